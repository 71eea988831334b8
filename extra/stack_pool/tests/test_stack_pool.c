// SPDX-License-Identifier: Apache-2.0
/*
 * Stack pools: stacks have the size asked for, come back warm, differ in colour and are guarded;
 * idle memory is given back; exhaustion and misuse end in messages. Then 200,000 guarded coroutines
 * at once, if the system can have as many.
 *
 * The linker redirects calls of malloc() and madvise() to functions here, which count them.
 */
// build: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free,--wrap=madvise
#include "extra/stack_pool/aco_stack_pool.h"
#include "tests/harness.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define CACHE_LINE_SZ 64u
#define GUARD_INSTALL 102           /* MADV_GUARD_INSTALL */
#define SMALL ((size_t)16384)       /* bytes of stack; what the stress build needs */
#define COLOURS 40u                 /* as in aco_stack_pool.c */
#define GUARD_SZ ((size_t)64 << 10) /* bytes; the default */

/* ==== Shared by several tests ================================================================= */

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static aco_stack_pool_stats_t stats_of(aco_stack_pool_t *pool)
{
    aco_stack_pool_stats_t stats;
    aco_stack_pool_stats(pool, &stats);
    return stats;
}

/* Takes `ct` stacks; puts them back in the same order. */
static aco_share_stack_t **get_many(aco_stack_pool_t *pool, size_t ct)
{
    aco_share_stack_t **all = (aco_share_stack_t **)malloc(ct * sizeof(aco_share_stack_t *));
    assert_non_null(all);
    for (size_t i = 0; i < ct; i++) {
        all[i] = aco_stack_pool_get(pool);
    }
    return all;
}

static void put_many(aco_stack_pool_t *pool, aco_share_stack_t **all, size_t ct)
{
    for (size_t i = 0; i < ct; i++) {
        aco_stack_pool_put(pool, all[i]);
    }
    free(all);
}

static void put_and_destroy(aco_stack_pool_t *pool, aco_share_stack_t **all, size_t ct)
{
    put_many(pool, all, ct);
    aco_stack_pool_destroy(pool);
}

/* In a child: the kernel knows no MADV_GUARD_INSTALL. */
static void refuse_guard_install(void)
{
    struct sock_filter refuse[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, GUARD_INSTALL, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {ARRAY_SZ(refuse), refuse};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        _exit(2);
    }
}

/* Tries it on the kernel. qemu 7 reports success without doing it. */
static int has_guard_install(void)
{
    void *page = mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                      0);
    assert_true(page != MAP_FAILED);
    int has = !EMULATED && madvise(page, page_size(), GUARD_INSTALL) == 0;
    munmap(page, page_size());
    return has;
}

/* ==== Counted calls =========================================================================== */

/* Requests to malloc() and similar by the program, including cmocka and libraries that call through
 * it; those to the hooks below; and the mapping where huge pages are refused. */
static struct {
    size_t ct_direct;
    size_t until_refusal; /* requests to the hook until one fails, or 0 */
    size_t ct_allocate, ct_release;
    size_t ct_no_huge_pages, no_huge_pages_sz;
    const char *no_huge_pages; /* the last one */
    size_t last_sz;            /* its bytes */
} counted;

void *__real_malloc(size_t sz);
void *__real_calloc(size_t ct, size_t sz);
void *__real_realloc(void *ptr, size_t sz);
void __real_free(void *ptr);
int __real_madvise(void *ptr, size_t sz, int advice);
void *__wrap_malloc(size_t sz);
void *__wrap_calloc(size_t ct, size_t sz);
void *__wrap_realloc(void *ptr, size_t sz);
void __wrap_free(void *ptr);
int __wrap_madvise(void *ptr, size_t sz, int advice);

void *__wrap_malloc(size_t sz)
{
    counted.ct_direct++;
    return __real_malloc(sz);
}

void *__wrap_calloc(size_t ct, size_t sz)
{
    counted.ct_direct++;
    return __real_calloc(ct, sz);
}

void *__wrap_realloc(void *ptr, size_t sz)
{
    counted.ct_direct++;
    return __real_realloc(ptr, sz);
}

void __wrap_free(void *ptr)
{
    counted.ct_direct++;
    __real_free(ptr);
}

int __wrap_madvise(void *ptr, size_t sz, int advice)
{
    if (advice == MADV_NOHUGEPAGE) {
        counted.ct_no_huge_pages++;
        counted.no_huge_pages_sz += sz;
        counted.no_huge_pages = (const char *)ptr;
        counted.last_sz = sz;
    }
    return __real_madvise(ptr, sz, advice);
}

/* Sets another errno than the pool. */
static void *hook_allocate(size_t sz)
{
    if (counted.until_refusal != 0 && --counted.until_refusal == 0) {
        errno = EDQUOT;
        return NULL;
    }
    counted.ct_allocate++;
    return __real_malloc(sz);
}

static void hook_release(void *ptr)
{
    counted.ct_release++;
    __real_free(ptr);
    errno = EBADF;
}

static int set_hooks(void **state)
{
    (void)state;
    memset(&counted, 0, sizeof(counted));
    aco_set_allocator(hook_allocate, hook_release);
    return 0;
}

static int unset_hooks(void **state)
{
    (void)state;
    aco_set_allocator(malloc, free);
    return 0;
}

/* ==== Stacks ================================================================================== */

static void assert_guarded(aco_share_stack_t *s, size_t guard_sz)
{
    assert_int_equal(s->guard_page_enabled, 1);
    assert_ptr_equal((char *)s->real_ptr + guard_sz, s->ptr);
    if (!EMULATED) { /* see has_guard_install() */
        expect_signal(write_below, s, SIGSEGV);
        expect_signal(write_at_start_of_guard, s, SIGSEGV);
    }
    expect_exit(write_lowest, s, 0);
}

static void check_sizes(size_t asked, size_t sz)
{
    enum { CT = 50 };
    aco_stack_pool_t *pool = aco_stack_pool_new(asked, 0);
    aco_share_stack_t **all = get_many(pool, CT);
    assert_int_equal(stats_of(pool).stack_sz, sz);
    for (size_t i = 0; i < CT; i++) {
        assert_true(all[i]->align_limit >= sz);
        assert_true(all[i]->align_limit < sz + 2 * page_size());
        assert_int_equal((uintptr_t)all[i]->align_highptr % 16, 0);
    }
    put_and_destroy(pool, all, CT);
}

static void stacks_are_as_large_as_was_asked_for(void **state)
{
    (void)state;
    check_sizes(0, (size_t)128 << 10);
    check_sizes(1, 4096);
    check_sizes(300000, 300000);
    for (size_t sz = 4096; sz < 8300; sz += 60) {
        check_sizes(sz, sz);
    }
}

static void each_has_memory_of_its_own_from_end_to_end(void **state)
{
    enum { CT = 100 };
    (void)state;
    aco_stack_pool_t *pool = aco_stack_pool_new(5000, 0);
    aco_share_stack_t **all = get_many(pool, CT);
    for (uint32_t i = 0; i < CT; i++) {
        fill_from_seed(all[i]->ptr, all[i]->align_limit, i);
    }
    for (uint32_t i = 0; i < CT; i++) {
        assert_true(is_from_seed(all[i]->ptr, all[i]->align_limit, i));
    }
    put_and_destroy(pool, all, CT);
}

static void what_is_below_faults(void **state)
{
    (void)state;
    aco_stack_pool_t *pool = aco_stack_pool_new(5000, 0);
    aco_share_stack_t **all = get_many(pool, 20);
    for (size_t i = 0; i < 20; i++) {
        assert_guarded(all[i], GUARD_SZ);
    }
    if (!EMULATED) {
        assert_int_equal(stats_of(pool).has_mprotect, !has_guard_install());
    }
    put_and_destroy(pool, all, 20);
}

static void guards_are_as_large_as_was_asked_for(void **state)
{
    static const unsigned kibs[] = {1, 4, 5, 100, 1024, 3000};
    (void)state;
    for (size_t i = 0; i < ARRAY_SZ(kibs); i++) {
        aco_stack_pool_t *pool = aco_stack_pool_new(5000, ACO_STACK_POOL_GUARD_KIB(kibs[i]));
        aco_share_stack_t **all = get_many(pool, 3);
        size_t page_ct = ((size_t)kibs[i] * 1024 + page_size() - 1) / page_size();
        assert_guarded(all[0], page_ct * page_size());
        assert_guarded(all[2], page_ct * page_size());
        put_and_destroy(pool, all, 3);
    }
}

#ifndef __LP64__
static void guards_that_are_too_large_are_an_error(void **state)
{
    (void)state;
    errno = 0;
    assert_null(aco_stack_pool_try_new(5000, ACO_STACK_POOL_GUARD_KIB(0x400000)));
    assert_int_equal(errno, ENOMEM);
}
#endif

/* Like a read() that fills a part of a large buffer. */
aco_attr_no_asan static NOINLINE void fills_a_part(void)
{
    enum { FRAME_SZ = 32 << 10, FILLED_SZ = 100 };
    volatile char buffer[FRAME_SZ];
    ESCAPE(buffer);
    for (size_t i = 0; i < FILLED_SZ; i++) {
        buffer[i] = 1;
    }
}

/* Recurses, with small frames, until little stack is left. */
aco_attr_no_asan static NOINLINE void goes_down(void)
{
    volatile char here[100];
    here[0] = 0;
    if ((size_t)(here - (volatile char *)aco_get_co()->share_stack->ptr) > 1000) {
        goes_down();
    } else {
        fills_a_part();
    }
    here[1] = here[0]; /* prevents a tail call */
}

static void overflows_by_a_large_frame(void)
{
    goes_down();
    aco_exit();
}

static void resume(void *co)
{
    aco_resume((aco_t *)co);
}

/* Without a guard, the write would hit the stack below. */
static void a_frame_of_32_kib_can_not_jump_the_guard(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_stack_pool_t *pool = aco_stack_pool_new((size_t)128 << 10, 0);
    aco_t *all[3];
    for (size_t i = 0; i < ARRAY_SZ(all); i++) {
        all[i] = aco_stack_pool_create_co(pool, in->main_co, overflows_by_a_large_frame, NULL);
    }
    if (!EMULATED) { /* see has_guard_install() */
        expect_signal(resume, all[2], SIGSEGV);
    }
    for (size_t i = 0; i < ARRAY_SZ(all); i++) {
        aco_stack_pool_destroy_co(pool, all[i]);
    }
    aco_stack_pool_destroy(pool);
}

static void each_slab_refuses_huge_pages_by_one_call(void **state)
{
    (void)state;
    memset(&counted, 0, sizeof(counted));
    aco_stack_pool_t *pool = aco_stack_pool_new(5000, 0);
    aco_share_stack_t *all[200];
    for (size_t i = 0; i < ARRAY_SZ(all); i++) {
        all[i] = aco_stack_pool_get(pool);
        size_t offset = (size_t)((const char *)all[i]->real_ptr - counted.no_huge_pages);
        assert_true(offset < counted.last_sz);
    }
    assert_true(stats_of(pool).ct_slabs > 1);
    assert_int_equal(counted.ct_no_huge_pages, stats_of(pool).ct_slabs);
    assert_int_equal(counted.no_huge_pages_sz, stats_of(pool).mapped_sz);
    for (size_t i = 0; i < ARRAY_SZ(all); i++) {
        aco_stack_pool_put(pool, all[i]);
    }
    aco_stack_pool_destroy(pool);
}

static void without_guards_there_is_none(void **state)
{
    (void)state;
    aco_stack_pool_t *pool = aco_stack_pool_new(5000, ACO_STACK_POOL_NO_GUARD);
    aco_share_stack_t **all = get_many(pool, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(all[i]->guard_page_enabled, 0);
        assert_ptr_equal(all[i]->real_ptr, all[i]->ptr);
        expect_exit(write_lowest, all[i], 0);
    }
    put_and_destroy(pool, all, 3);
}

/* Tops use all sets of a cache, but leave the first KiB of frames in one page. */
static void tops_of_successive_stacks_differ_by_cache_lines(void **state)
{
    (void)state;
    size_t of_offset[4096 / CACHE_LINE_SZ] = {0};
    aco_stack_pool_t *pool = aco_stack_pool_new(5000, 0);
    aco_share_stack_t **all = get_many(pool, 4 * COLOURS);
    for (size_t i = 0; i < 4 * COLOURS; i++) {
        size_t offset = (uintptr_t)all[i]->align_highptr % 4096;
        assert_true(offset >= 1024);
        of_offset[offset / CACHE_LINE_SZ]++;
    }
    put_and_destroy(pool, all, 4 * COLOURS);
    for (size_t i = 0; i < ARRAY_SZ(of_offset); i++) {
        assert_true(of_offset[i] == 4 || of_offset[i] == 0);
    }
}

static void the_one_that_was_put_last_comes_first(void **state)
{
    (void)state;
    aco_stack_pool_t *pool = aco_stack_pool_new(5000, 0);
    aco_share_stack_t **all = get_many(pool, 30);
    for (size_t i = 0; i < 30; i++) {
        aco_stack_pool_put(pool, all[i]);
    }
    for (size_t i = 30; i-- > 0;) {
        assert_ptr_equal(aco_stack_pool_get(pool), all[i]);
    }
    put_and_destroy(pool, all, 30);
}

/* ==== Coroutines ============================================================================== */

typedef struct {
    aco_stack_pool_t *pool;
    unsigned depth;
    unsigned ct; /* coroutines below and itself */
} tree_t;

static void makes_two_children(void)
{
    tree_t *tree = (tree_t *)aco_get_arg();
    tree->ct = 1;
    for (int i = 0; i < 2 && tree->depth > 0; i++) {
        tree_t below = {tree->pool, tree->depth - 1, 0};
        aco_t *co = aco_stack_pool_create_co(tree->pool, aco_get_co(), makes_two_children, &below);
        aco_resume(co);
        CO_CHECK(co->is_end);
        aco_stack_pool_destroy_co(tree->pool, co);
        tree->ct += below.ct;
    }
    aco_exit();
}

static void children_of_children_run_on_pool_stacks(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    tree_t tree = {aco_stack_pool_new(SMALL, 0), 6, 0};
    aco_t *co = aco_stack_pool_create_co(tree.pool, in->main_co, makes_two_children, &tree);
    aco_resume(co);
    aco_stack_pool_destroy_co(tree.pool, co);
    assert_int_equal(tree.ct, 127);
    assert_int_equal(stats_of(tree.pool).most_in_use, 7);
    assert_int_equal(stats_of(tree.pool).ct_get, 127);
    aco_stack_pool_destroy(tree.pool);
}

static void keeps_a_number(void)
{
    volatile uintptr_t number = (uintptr_t)aco_get_arg();
    for (;;) {
        aco_yield();
        CO_CHECK(number == (uintptr_t)aco_get_arg());
    }
}

static void a_coroutine_may_be_destroyed_in_any_state(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_stack_pool_t *pool = aco_stack_pool_new(SMALL, 0);
    for (int resumes = 0; resumes < 3; resumes++) {
        aco_t *co = aco_stack_pool_create_co(pool, in->main_co, keeps_a_number, pool);
        assert_int_equal(aco_status(co), ACO_STATUS_INIT);
        for (int i = 0; i < resumes; i++) {
            aco_resume(co);
            assert_invariants(co);
        }
        aco_stack_pool_destroy_co(pool, co);
        assert_int_equal(stats_of(pool).in_use, 0);
    }
    aco_stack_pool_destroy(pool);
}

/* A coroutine made by aco_create(), on a stack of aco_stack_pool_get(). */
static void any_coroutine_on_a_pool_stack_is_destroyed_by_one_call(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_stack_pool_t *pool = aco_stack_pool_new(SMALL, 0);
    aco_t *co = aco_create(in->main_co, aco_stack_pool_get(pool), 0, ends_at_once, NULL);
    aco_resume(co);
    aco_stack_pool_destroy_co(pool, co);
    aco_t *other = aco_stack_pool_try_create_co(pool, in->main_co, ends_at_once, NULL);
    aco_resume(other);
    aco_stack_pool_destroy_co(pool, other);
    aco_stack_pool_destroy(pool);
}

/* Each aco_t begins a cache line, and a stack that overflows hits none of them. */
static void the_aco_ts_lie_side_by_side_apart_from_stacks(void **state)
{
    enum { CT = 64 }; /* of one slab */
    const instance_t *in = (const instance_t *)*state;
    aco_stack_pool_t *pool = aco_stack_pool_new(5000, 0);
    aco_t *all[CT];
    for (size_t i = 0; i < CT; i++) {
        all[i] = aco_stack_pool_create_co(pool, in->main_co, ends_at_once, NULL);
        assert_int_equal((uintptr_t)all[i] % CACHE_LINE_SZ, 0);
        if (i > 0) {
            uintptr_t distance = (uintptr_t)all[i] - (uintptr_t)all[i - 1];
            assert_in_range(distance, sizeof(aco_t), sizeof(aco_t) + CACHE_LINE_SZ - 1);
        }
    }
    for (size_t i = 0; i < CT; i++) {
        assert_true((char *)all[CT - 1] + sizeof(aco_t) <= (char *)all[i]->share_stack->real_ptr);
    }
    for (size_t i = 0; i < CT; i++) {
        aco_stack_pool_destroy_co(pool, all[i]);
    }
    aco_stack_pool_destroy(pool);
}

/* ==== Idleness ================================================================================ */

/* Whether the page at `ptr` is mapped and has memory. */
static int is_resident(void *ptr)
{
    unsigned char page = 0;
    return mincore(ptr, page_size(), &page) == 0 && (page & 1);
}

static void touch_all(aco_share_stack_t **all, size_t ct)
{
    for (size_t i = 0; i < ct; i++) {
        *(volatile char *)all[i]->ptr = 1;
    }
}

static void trim_gives_idle_memory_back_and_leaves_the_rest(void **state)
{
    enum { CT = 200, OUT = 64 };
    (void)state;
    aco_stack_pool_t *pool = aco_stack_pool_new(5000, 0);
    aco_share_stack_t **all = get_many(pool, CT), **out = get_many(pool, OUT);
    char *lows[CT];
    fill_from_seed(out[OUT - 1]->ptr, out[OUT - 1]->align_limit, 1);
    touch_all(all, CT);
    for (size_t i = 0; i < CT; i++) {
        lows[i] = (char *)all[i]->ptr;
        aco_stack_pool_put(pool, all[i]);
    }
    aco_stack_pool_stats_t before = stats_of(pool);
    assert_int_equal(before.idle, CT);
    aco_stack_pool_trim(pool);
    aco_stack_pool_stats_t after = stats_of(pool);
    assert_int_equal(after.idle, 0);
    assert_int_equal(after.ct_given_back, CT);
    assert_int_equal(after.in_use, OUT);
    assert_int_equal(after.most_in_use, CT + OUT);
    assert_true(after.ct_slabs < before.ct_slabs);
    assert_true(after.mapped_sz < before.mapped_sz);
    for (size_t i = 0; i < CT; i++) {
        assert_false(is_resident(lows[i]));
    }
    assert_true(is_from_seed(out[OUT - 1]->ptr, out[OUT - 1]->align_limit, 1));
    free(all);
    put_and_destroy(pool, out, OUT);
}

static void trimmed_stacks_are_given_out_again_zero_and_guarded(void **state)
{
    enum { CT = 16 };
    (void)state;
    aco_stack_pool_t *pool = aco_stack_pool_new(5000, 0);
    aco_share_stack_t **all = get_many(pool, CT);
    touch_all(all, CT);
    for (size_t i = 1; i < CT; i++) {
        aco_stack_pool_put(pool, all[i]);
    }
    aco_stack_pool_trim(pool);
    assert_int_equal(stats_of(pool).ct_slabs, 1);
    for (size_t i = CT; i-- > 1;) {
        aco_share_stack_t *s = aco_stack_pool_get(pool);
        assert_ptr_equal(s, all[i]);
        assert_false(is_resident(s->ptr));
        assert_int_equal(*(volatile char *)s->ptr, 0);
        assert_true(s->align_limit >= 5000);
    }
    assert_guarded(all[1], GUARD_SZ);
    put_and_destroy(pool, all, CT);
}

static void a_pool_goes_on_after_all_of_it_was_unmapped(void **state)
{
    (void)state;
    aco_stack_pool_t *pool = aco_stack_pool_new(5000, 0);
    for (size_t round = 0; round < 3; round++) {
        put_many(pool, get_many(pool, 100), 100);
        aco_stack_pool_trim(pool);
        aco_stack_pool_trim(pool);
        assert_int_equal(stats_of(pool).ct_slabs, 0);
        assert_int_equal(stats_of(pool).mapped_sz, 0);
        assert_int_equal(stats_of(pool).most_in_use, 100);
    }
    aco_stack_pool_destroy(pool);
}

/* All but one stack of each of two slabs are cold; then the one of the second slab is put. */
static void trim_unmaps_cold_stacks_with_their_slab(void **state)
{
    enum { FIRST = 64, CT = 2 * FIRST };
    (void)state;
    aco_stack_pool_t *pool = aco_stack_pool_new(5000, 0);
    aco_share_stack_t **all = get_many(pool, CT);
    for (size_t i = 0; i < CT; i++) {
        if (i % FIRST != 0) {
            aco_stack_pool_put(pool, all[i]);
        }
    }
    aco_stack_pool_trim(pool);
    assert_int_equal(stats_of(pool).ct_slabs, 2);
    aco_stack_pool_put(pool, all[FIRST]);
    aco_stack_pool_trim(pool);
    assert_int_equal(stats_of(pool).ct_slabs, 1);
    assert_int_equal(stats_of(pool).idle, 0);
    put_many(pool, get_many(pool, FIRST - 1), FIRST - 1);
    assert_int_equal(stats_of(pool).ct_slabs, 1);
    assert_int_equal(stats_of(pool).idle, FIRST - 1);
    aco_stack_pool_put(pool, all[0]);
    free(all);
    aco_stack_pool_destroy(pool);
}

static void bursts_keep_their_stacks(void **state)
{
    enum { CT = 500 };
    (void)state;
    aco_stack_pool_t *pool = aco_stack_pool_new(5000, 0);
    for (size_t round = 0; round < 20; round++) {
        put_many(pool, get_many(pool, CT), CT);
    }
    assert_int_equal(stats_of(pool).idle, CT);
    assert_int_equal(stats_of(pool).ct_given_back, 0);
    aco_stack_pool_destroy(pool);
}

/* Each put gives back at most one stack: half at first, and in the end, of 1000, all but the
 * reserve and the few that the load needs. */
static void a_load_that_shrank_loses_stacks_bit_by_bit(void **state)
{
    enum { PEAK = 1000, LOAD = 10, RESERVE = 64, ROUNDS = 30000, FIRST_ROUNDS = 3000 };
    (void)state;
    aco_stack_pool_t *pool = aco_stack_pool_new(5000, 0);
    put_many(pool, get_many(pool, PEAK), PEAK);
    size_t given_back = 0;
    for (size_t round = 0; round < ROUNDS; round++) {
        aco_share_stack_t **load = get_many(pool, LOAD);
        for (size_t i = 0; i < LOAD; i++) {
            aco_stack_pool_put(pool, load[i]);
            size_t now = stats_of(pool).ct_given_back;
            assert_true(now <= given_back + 1);
            given_back = now;
        }
        free(load);
        if (round == FIRST_ROUNDS) {
            assert_in_range(given_back, PEAK * 4 / 10, PEAK * 6 / 10);
        }
    }
    aco_stack_pool_stats_t stats = stats_of(pool);
    assert_int_equal(stats.idle, LOAD + RESERVE);
    assert_int_equal(stats.ct_given_back, PEAK - LOAD - RESERVE);
    assert_int_equal(stats.most_in_use, PEAK);
    aco_stack_pool_destroy(pool);
}

/* Takes a stack and puts it back, `ct` times; the other idle stacks stay idle. */
static void get_and_put(aco_stack_pool_t *pool, size_t ct)
{
    while (ct-- > 0) {
        aco_stack_pool_put(pool, aco_stack_pool_get(pool));
    }
}

/* The first period begins when all stacks are in use, the second when all but a few are idle. */
static void after_a_period_each_put_gives_one_of_the_surplus_back(void **state)
{
    enum { CT = 200, HELD = 20, RESERVE = 64, PERIOD = 16 * CT + 1024 };
    enum { SURPLUS = (CT - HELD - 1 - RESERVE + 1) / 2 };
    (void)state;
    aco_stack_pool_t *pool = aco_stack_pool_new(5000, 0);
    aco_share_stack_t **held = get_many(pool, HELD), **idle = get_many(pool, CT - HELD);
    aco_stack_pool_trim(pool);
    put_many(pool, idle, CT - HELD);
    get_and_put(pool, PERIOD - (CT - HELD));
    get_and_put(pool, PERIOD);
    assert_int_equal(stats_of(pool).ct_given_back, 0);
    for (size_t i = 1; i <= SURPLUS; i++) {
        get_and_put(pool, 1);
        assert_int_equal(stats_of(pool).ct_given_back, i);
    }
    get_and_put(pool, PERIOD);
    assert_int_equal(stats_of(pool).ct_given_back, SURPLUS);
    get_and_put(pool, 1);
    assert_int_equal(stats_of(pool).ct_given_back, SURPLUS + 1);
    put_and_destroy(pool, held, HELD);
}

/* ==== Statistics ============================================================================== */

static void statistics_follow_random_gets_and_puts(void **state)
{
    enum { CT = 300, STEPS = 20000 };
    (void)state;
    aco_share_stack_t *out[CT];
    size_t ct = 0, most = 0, gets = 0;
    uint32_t random = 1;
    aco_stack_pool_t *pool = aco_stack_pool_new(5000, 0);
    for (size_t i = 0; i < STEPS; i++) {
        size_t limit = i / 1000 % 2 ? 20 : CT;
        uint32_t choice = next_random(&random) % 1000;
        if (choice < 600 && ct < limit) {
            out[ct++] = aco_stack_pool_get(pool);
            gets++;
            most = ct > most ? ct : most;
        } else if (choice < 998 && ct > 0) {
            size_t which = choice % ct;
            aco_stack_pool_put(pool, out[which]);
            out[which] = out[--ct];
        } else if (choice >= 998) {
            aco_stack_pool_trim(pool);
        }
        aco_stack_pool_stats_t stats = stats_of(pool);
        assert_int_equal(stats.in_use, ct);
        assert_int_equal(stats.most_in_use, most);
        assert_int_equal(stats.ct_get, gets);
        assert_true(stats.idle + ct <= most);
        assert_true(stats.mapped_sz >= ct * 3 * page_size());
    }
    while (ct > 0) {
        aco_stack_pool_put(pool, out[--ct]);
    }
    aco_stack_pool_destroy(pool);
}

static void slabs_are_few(void **state)
{
    (void)state;
    aco_stack_pool_t *pool = aco_stack_pool_new(5000, ACO_STACK_POOL_NO_GUARD);
    aco_share_stack_t **all = get_many(pool, 5000);
    assert_true(stats_of(pool).ct_slabs <= 10);
    put_and_destroy(pool, all, 5000);
}

/* ==== Threads ================================================================================= */

enum { THREAD_CT = 4, TURNS = 20000, HELD = 20 };

static pthread_barrier_t start;

/* Takes and puts at random; a stack in use holds a mark of the thread that took it. */
static void *uses_pool(void *arg)
{
    aco_stack_pool_t *pool = (aco_stack_pool_t *)arg;
    aco_share_stack_t *held[HELD];
    int mark; /* its address is the thread's own */
    size_t ct = 0;
    uint32_t random = (uint32_t)(uintptr_t)&mark | 1;
    pthread_barrier_wait(&start);
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    for (size_t i = 0; i < TURNS; i++) {
        if (ct < HELD && next_random(&random) % 2) {
            held[ct] = aco_stack_pool_get(pool);
            *(void **)held[ct++]->ptr = &mark;
        } else if (ct > 0) {
            aco_share_stack_t *s = held[--ct];
            CO_CHECK(*(void **)s->ptr == &mark);
            aco_stack_pool_put(pool, s);
        }
        aco_t *co = aco_stack_pool_create_co(pool, main_co, ends_at_once, NULL);
        aco_resume(co);
        aco_stack_pool_destroy_co(pool, co);
        if (i % 1000 == 999) {
            aco_stack_pool_trim(pool);
        }
    }
    while (ct > 0) {
        aco_stack_pool_put(pool, held[--ct]);
    }
    aco_destroy(main_co);
    return NULL;
}

static void *uses_own_pool(void *arg)
{
    aco_stack_pool_t *pool = aco_stack_pool_new(SMALL, 0);
    (void)arg;
    uses_pool(pool);
    aco_stack_pool_stats_t stats = stats_of(pool);
    CO_CHECK(stats.in_use == 0);
    CO_CHECK(stats.most_in_use <= HELD + 1);
    aco_stack_pool_destroy(pool);
    return NULL;
}

static void run_threads(void *(*function)(void *), void *arg)
{
    pthread_t threads[THREAD_CT];
    pthread_barrier_init(&start, NULL, THREAD_CT);
    for (size_t i = 0; i < THREAD_CT; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, function, arg), 0);
    }
    for (size_t i = 0; i < THREAD_CT; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    pthread_barrier_destroy(&start);
    assert_co_checks();
}

static void threads_share_a_pool(void **state)
{
    (void)state;
    aco_stack_pool_t *pool = aco_stack_pool_new(SMALL, ACO_STACK_POOL_SHARED);
    run_threads(uses_pool, pool);
    aco_stack_pool_stats_t stats = stats_of(pool);
    assert_int_equal(stats.in_use, 0);
    assert_true(stats.most_in_use <= THREAD_CT * (HELD + 1));
    assert_true(stats.ct_get >= THREAD_CT * TURNS);
    aco_stack_pool_destroy(pool);
}

/* A call that grows a shared pool is delayed in its allocation; another call must wait for it. */
typedef struct {
    aco_stack_pool_t *pool;
    aco_share_stack_t *stack; /* taken */
    void (*call)(aco_stack_pool_t *pool, aco_share_stack_t *stack);
    int has_returned;
} waiting_t;

static pthread_mutex_t kept = PTHREAD_MUTEX_INITIALIZER;
static int is_in_allocation;

static void *allocate_when_let(size_t sz)
{
    __atomic_store_n(&is_in_allocation, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&kept);
    pthread_mutex_unlock(&kept);
    return malloc(sz);
}

static void *grows(void *pool)
{
    return aco_stack_pool_get((aco_stack_pool_t *)pool);
}

static void *calls(void *arg)
{
    waiting_t *w = (waiting_t *)arg;
    w->call(w->pool, w->stack);
    __atomic_store_n(&w->has_returned, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void get_first(aco_stack_pool_t *pool, aco_share_stack_t *stack)
{
    aco_stack_pool_put(pool, aco_stack_pool_get(pool));
    aco_stack_pool_put(pool, stack);
}

static void put_first(aco_stack_pool_t *pool, aco_share_stack_t *stack)
{
    aco_stack_pool_put(pool, stack);
}

static void trim_first(aco_stack_pool_t *pool, aco_share_stack_t *stack)
{
    aco_stack_pool_trim(pool);
    aco_stack_pool_put(pool, stack);
}

static void look_first(aco_stack_pool_t *pool, aco_share_stack_t *stack)
{
    stats_of(pool);
    aco_stack_pool_put(pool, stack);
}

static void each_call_waits_for_the_one_under_way(void **state)
{
    void (*const all[])(aco_stack_pool_t *, aco_share_stack_t *) = {get_first, put_first,
                                                                    trim_first, look_first};
    (void)state;
    for (size_t i = 0; i < ARRAY_SZ(all); i++) {
        pthread_t growing, waiting;
        void *grown;
        aco_stack_pool_t *pool = aco_stack_pool_new(SMALL, ACO_STACK_POOL_SHARED);
        aco_share_stack_t **first = get_many(pool, 64); /* all of the first slab */
        waiting_t w = {pool, aco_stack_pool_get(pool), all[i], 0};
        aco_share_stack_t **rest = get_many(pool, 63); /* of the second one */
        aco_set_allocator(allocate_when_let, free);
        is_in_allocation = 0;
        pthread_mutex_lock(&kept);
        assert_int_equal(pthread_create(&growing, NULL, grows, pool), 0);
        while (!__atomic_load_n(&is_in_allocation, __ATOMIC_SEQ_CST)) {
            sched_yield();
        }
        assert_int_equal(pthread_create(&waiting, NULL, calls, &w), 0);
        usleep(2000);
        int has_waited = !__atomic_load_n(&w.has_returned, __ATOMIC_SEQ_CST);
        pthread_mutex_unlock(&kept);
        assert_int_equal(pthread_join(growing, &grown), 0);
        assert_int_equal(pthread_join(waiting, NULL), 0);
        aco_set_allocator(malloc, free);
        assert_true(has_waited);
        aco_stack_pool_put(pool, (aco_share_stack_t *)grown);
        put_many(pool, rest, 63);
        put_and_destroy(pool, first, 64);
    }
}

static void each_thread_has_its_own(void **state)
{
    (void)state;
    run_threads(uses_own_pool, NULL);
}

typedef struct {
    aco_stack_pool_t *pool;
    aco_share_stack_t *stacks[100];
} handover_t;

static void *puts_all(void *arg)
{
    handover_t *handover = (handover_t *)arg;
    for (size_t i = 0; i < ARRAY_SZ(handover->stacks); i++) {
        aco_stack_pool_put(handover->pool, handover->stacks[i]);
    }
    return NULL;
}

static void another_thread_may_put_a_stack(void **state)
{
    (void)state;
    handover_t handover;
    pthread_t thread;
    handover.pool = aco_stack_pool_new(5000, ACO_STACK_POOL_SHARED);
    for (size_t i = 0; i < ARRAY_SZ(handover.stacks); i++) {
        handover.stacks[i] = aco_stack_pool_get(handover.pool);
    }
    assert_int_equal(pthread_create(&thread, NULL, puts_all, &handover), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(stats_of(handover.pool).idle, ARRAY_SZ(handover.stacks));
    aco_stack_pool_destroy(handover.pool);
}

/* ==== Running out ============================================================================= */

/* In a child: limits the address space to `sz` bytes more than now. */
static void limit_addresses(size_t sz)
{
    unsigned long page_ct = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (statm == NULL || fscanf(statm, "%lu", &page_ct) != 1) {
        _exit(2);
    }
    fclose(statm);
    struct rlimit limit = {page_ct * page_size() + sz, RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit) != 0) {
        _exit(2);
    }
}

/* Nearly all memory is used, the failure is clean, and a put makes the next get succeed. */
static void run_out_of_addresses(void *arg)
{
    enum { LIMIT = 32 << 20, STACK = 64 << 10 };
    static aco_share_stack_t *all[LIMIT / STACK + 1];
    aco_stack_pool_t *pool = (aco_stack_pool_t *)arg;
    size_t ct = 0;
    limit_addresses(LIMIT);
    errno = 0;
    while ((all[ct] = aco_stack_pool_try_get(pool)) != NULL) {
        ct++;
    }
    int is_right = errno == ENOMEM && ct > LIMIT / STACK * 7 / 10 && stats_of(pool).in_use == ct &&
                   aco_stack_pool_try_get(pool) == NULL;
    aco_stack_pool_put(pool, all[0]);
    is_right = is_right && aco_stack_pool_try_get(pool) == all[0];
    while (ct > 0) {
        aco_stack_pool_put(pool, all[--ct]);
    }
    aco_stack_pool_destroy(pool);
    _exit(is_right ? 0 : 1);
}

static void get_for_ever(void *pool)
{
    limit_addresses((size_t)8 << 20);
    for (;;) {
        aco_stack_pool_get((aco_stack_pool_t *)pool);
    }
}

static void create_for_ever(void *pool)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    limit_addresses((size_t)8 << 20);
    while (aco_stack_pool_try_create_co((aco_stack_pool_t *)pool, main_co, ends_at_once, NULL)) {
    }
    aco_stack_pool_create_co((aco_stack_pool_t *)pool, main_co, ends_at_once, NULL);
}

static void addresses_that_run_out_are_an_error(void **state)
{
    (void)state;
    if (EMULATED) {
        skip(); /* the emulator itself needs some */
    }
    aco_stack_pool_t *pool = aco_stack_pool_new((size_t)64 << 10,
                                                ACO_STACK_POOL_GUARD_KIB(4)); /* saves addresses */
    expect_exit(run_out_of_addresses, pool, 0);
    expect_abort(get_for_ever, pool, "aco_stack_pool_get", "mmap() of a stack failed");
    expect_abort(create_for_ever, pool, "aco_stack_pool_create_co", "mmap() of a stack failed");
    aco_stack_pool_destroy(pool);
}

static void make_too_large(void *arg)
{
    (void)arg;
    aco_stack_pool_new(SIZE_MAX, 0);
}

static void what_is_too_large_is_an_error(void **state)
{
    (void)state;
    errno = 0;
    assert_null(aco_stack_pool_try_new(SIZE_MAX - 5, 0));
    assert_int_equal(errno, ENOMEM);
    expect_abort(make_too_large, NULL, "aco_stack_pool_new", "smaller stacks");
    aco_stack_pool_t *pool = aco_stack_pool_new(SIZE_MAX / 2, 0);
    aco_share_stack_t *half = aco_stack_pool_try_get(pool); /* i386 may have as many addresses */
    errno = 0;
    assert_null(aco_stack_pool_try_get(pool));
    assert_int_equal(errno, ENOMEM);
    if (half != NULL) {
        aco_stack_pool_put(pool, half);
    }
    aco_stack_pool_destroy(pool);
}

static void get_with_refusal(void *pool)
{
    counted.until_refusal = 1;
    aco_stack_pool_get((aco_stack_pool_t *)pool);
}

/* A pool allocates when it is made, and occasionally as it grows. */
static void each_allocation_may_fail_and_succeed_later(void **state)
{
    (void)state;
    errno = 0;
    counted.until_refusal = 1;
    assert_null(aco_stack_pool_try_new(5000, 0));
    assert_int_equal(errno, ENOMEM);
    aco_stack_pool_t *pool = aco_stack_pool_new(5000, 0);
    aco_share_stack_t *all[200];
    size_t refusal_ct = 0;
    expect_abort(get_with_refusal, pool, "aco_stack_pool_get", "no memory");
    for (size_t i = 0; i < ARRAY_SZ(all); i++) {
        for (size_t n = 2; n > 0; n--) {
            errno = 0;
            counted.until_refusal = n;
            aco_share_stack_t *s = aco_stack_pool_try_get(pool);
            if (s == NULL) {
                refusal_ct++;
                assert_int_equal(errno, ENOMEM);
            } else {
                aco_stack_pool_put(pool, s);
                aco_stack_pool_trim(pool);
            }
            counted.until_refusal = 0;
        }
        all[i] = aco_stack_pool_get(pool);
        assert_int_equal(stats_of(pool).in_use, i + 1);
    }
    assert_true(refusal_ct >= 4);
    for (size_t i = 0; i < ARRAY_SZ(all); i++) {
        aco_stack_pool_put(pool, all[i]);
    }
    aco_stack_pool_destroy(pool);
    assert_int_equal(counted.ct_allocate, counted.ct_release);
}

static void all_that_is_allocated_comes_from_the_users_allocator(void **state)
{
    enum { CT = 1000 };
    static aco_share_stack_t *all[CT];
    (void)state;
    counted.ct_direct = 0;
    aco_stack_pool_t *pool = aco_stack_pool_new(5000, 0);
    for (size_t i = 0; i < CT; i++) {
        all[i] = aco_stack_pool_get(pool);
    }
    size_t ct_allocate = counted.ct_allocate;
    for (size_t i = 0; i < CT; i++) {
        aco_stack_pool_put(pool, all[i]);
    }
    aco_stack_pool_destroy(pool);
    assert_int_equal(counted.ct_direct, 0);
    assert_in_range(ct_allocate, 3, 20);
    assert_int_equal(counted.ct_allocate, ct_allocate);
    assert_int_equal(counted.ct_release, ct_allocate);
}

/* ==== Kernels without MADV_GUARD_INSTALL ====================================================== */

static void touch_guard_of_mprotect(void *pool)
{
    refuse_guard_install();
    aco_share_stack_t *s = aco_stack_pool_get((aco_stack_pool_t *)pool);
    if (!stats_of((aco_stack_pool_t *)pool).has_mprotect) {
        _exit(1);
    }
    write_below(s);
}

/* i386 has too few addresses for 40,000 stacks. */
#ifdef __LP64__
static void get_until_mappings_run_out(void *pool)
{
    refuse_guard_install();
    size_t ct = 0;
    while (aco_stack_pool_try_get((aco_stack_pool_t *)pool) != NULL && ct < 40000) {
        ct++;
    }
    _exit(errno == ENOMEM && ct > 32000 && ct < 32768 ? 0 : 1);
}

static void get_for_ever_by_mprotect(void *pool)
{
    refuse_guard_install();
    for (size_t ct = 0; ct < 40000; ct++) {
        aco_stack_pool_get((aco_stack_pool_t *)pool);
    }
}

static void expect_mappings_to_run_out(aco_stack_pool_t *pool)
{
    unsigned long limit = 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    if (file == NULL || fscanf(file, "%lu", &limit) != 1 || limit != 65530) {
        print_message("vm.max_map_count is %lu, not 65530: not tested how it ends\n", limit);
    } else {
        expect_exit(get_until_mappings_run_out, pool, 0);
        expect_abort(get_for_ever_by_mprotect, pool, "aco_stack_pool_get", "vm.max_map_count");
    }
    if (file != NULL) {
        fclose(file);
    }
}
#else
#define expect_mappings_to_run_out(pool) ((void)(pool))
#endif

static void without_guard_install_mprotect_guards_as_many_as_it_can(void **state)
{
    (void)state;
    if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0) {
        skip(); /* a kernel without it */
    }
    aco_stack_pool_t *pool = aco_stack_pool_new(4096, 0);
    expect_signal(touch_guard_of_mprotect, pool, SIGSEGV);
    expect_mappings_to_run_out(pool);
    aco_stack_pool_destroy(pool);
}

/* ==== Misuse ================================================================================== */

/* A pool with stacks in several states. */
typedef struct {
    const instance_t *in;
    aco_stack_pool_t *pool;
    aco_stack_pool_t *other_pool;
    aco_share_stack_t *out;
    aco_share_stack_t *idle;
    aco_share_stack_t *of_other_pool;
    aco_t *co;
} scene_t;

static void put_null(void *arg)
{
    aco_stack_pool_put(((scene_t *)arg)->pool, NULL);
}
static void put_idle(void *arg)
{
    aco_stack_pool_put(((scene_t *)arg)->pool, ((scene_t *)arg)->idle);
}
static void put_of_other_pool(void *arg)
{
    aco_stack_pool_put(((scene_t *)arg)->pool, ((scene_t *)arg)->of_other_pool);
}
static void put_of_no_pool(void *arg)
{
    aco_stack_pool_put(((scene_t *)arg)->pool, aco_share_stack_new(0));
}
static void put_made_on_pool_stack(void *arg)
{
    scene_t *scene = (scene_t *)arg;
    aco_share_stack_t *s = aco_share_stack_new_in(scene->out->ptr, SMALL / 2);
    if (s == NULL) {
        _exit(2);
    }
    aco_stack_pool_put(scene->pool, s);
}
static void put_twice_after_trim(void *arg)
{
    aco_stack_pool_trim(((scene_t *)arg)->pool);
    put_idle(arg);
}
static void put_twice_after_unmapping(void *arg)
{
    scene_t *scene = (scene_t *)arg;
    aco_stack_pool_put(scene->other_pool, scene->of_other_pool);
    aco_stack_pool_trim(scene->other_pool);
    aco_stack_pool_put(scene->other_pool, scene->of_other_pool);
}
static void put_under_new_co(void *arg)
{
    scene_t *scene = (scene_t *)arg;
    aco_stack_pool_put(scene->pool, scene->co->share_stack);
}
/* An aco_t may be copied before its first resume; ct_coroutines does not count the copy. */
static void put_under_copy_of_co(void *arg)
{
    scene_t *scene = (scene_t *)arg;
    aco_t copy = *scene->co;
    if (STRESS) {
        put_under_new_co(arg); /* a copy does not stay on the stack */
    }
    aco_destroy(scene->co);
    aco_resume(&copy);
    put_under_new_co(arg);
}
static void put_under_suspended_co(void *arg)
{
    aco_resume(((scene_t *)arg)->co);
    put_under_new_co(arg);
}
static void destroy_null_co(void *arg)
{
    aco_stack_pool_destroy_co(((scene_t *)arg)->pool, NULL);
}
static void destroy_main_co(void *arg)
{
    aco_stack_pool_destroy_co(((scene_t *)arg)->pool, ((scene_t *)arg)->in->main_co);
}
static void destroy_foreign_co(void *arg)
{
    scene_t *scene = (scene_t *)arg;
    aco_stack_pool_destroy_co(scene->pool, make_co(scene->in, ends_at_once, NULL));
}
static void destroy_co_twice(void *arg)
{
    scene_t *scene = (scene_t *)arg;
    aco_stack_pool_destroy_co(scene->pool, scene->co);
    aco_stack_pool_destroy_co(scene->pool, scene->co);
}
static void destroy_one_of_two(void *arg)
{
    scene_t *scene = (scene_t *)arg;
    aco_create(scene->in->main_co, scene->co->share_stack, 0, ends_at_once, NULL);
    aco_stack_pool_destroy_co(scene->pool, scene->co);
}
static void create_without_parent(void *arg)
{
    aco_stack_pool_create_co(((scene_t *)arg)->pool, NULL, ends_at_once, NULL);
}
static void try_create_without_parent(void *arg)
{
    aco_stack_pool_try_create_co(((scene_t *)arg)->pool, NULL, ends_at_once, NULL);
}
static void create_without_function(void *arg)
{
    aco_stack_pool_create_co(((scene_t *)arg)->pool, ((scene_t *)arg)->in->main_co, NULL, NULL);
}
static void destroy_share_stack(void *arg)
{
    aco_share_stack_destroy(((scene_t *)arg)->out);
}
static void destroy_share_stack_of_co(void *arg)
{
    aco_share_stack_destroy(((scene_t *)arg)->co->share_stack);
}
static void destroy_idle_share_stack(void *arg)
{
    aco_share_stack_destroy(((scene_t *)arg)->idle);
}
static void destroy_with_stacks_out(void *arg)
{
    aco_stack_pool_destroy(((scene_t *)arg)->pool);
}
static void make_with_unknown_flag(void *arg)
{
    (void)arg;
    aco_stack_pool_new(0, 4);
}
static void make_with_size_of_no_guard(void *arg)
{
    (void)arg;
    aco_stack_pool_new(0, ACO_STACK_POOL_NO_GUARD + ACO_STACK_POOL_GUARD_KIB(4));
}
static void ask_for_no_stats(void *arg)
{
    aco_stack_pool_stats(((scene_t *)arg)->pool, NULL);
}

static void get_of_null(void *arg)
{
    (void)arg;
    aco_stack_pool_get(NULL);
}
static void try_get_of_null(void *arg)
{
    (void)arg;
    aco_stack_pool_try_get(NULL);
}
static void put_to_null(void *arg)
{
    aco_stack_pool_put(NULL, ((scene_t *)arg)->out);
}
static void trim_null(void *arg)
{
    (void)arg;
    aco_stack_pool_trim(NULL);
}
static void destroy_null(void *arg)
{
    (void)arg;
    aco_stack_pool_destroy(NULL);
}
static void destroy_co_of_null(void *arg)
{
    aco_stack_pool_destroy_co(NULL, ((scene_t *)arg)->co);
}
static void create_of_null(void *arg)
{
    aco_stack_pool_create_co(NULL, ((scene_t *)arg)->in->main_co, ends_at_once, NULL);
}
static void try_create_of_null(void *arg)
{
    aco_stack_pool_try_create_co(NULL, ((scene_t *)arg)->in->main_co, ends_at_once, NULL);
}
static void stats_of_null(void *arg)
{
    (void)arg;
    aco_stack_pool_stats_t stats;
    aco_stack_pool_stats(NULL, &stats);
}

static const struct {
    act_t act;
    const char *call;
    const char *words;
} misuses[] = {
    {put_null, "aco_stack_pool_put", "no such stack is out"},
    {put_idle, "aco_stack_pool_put", "no such stack is out"},
    {put_of_other_pool, "aco_stack_pool_put", "no such stack is out"},
    {put_of_no_pool, "aco_stack_pool_put", "no such stack is out"},
    {put_made_on_pool_stack, "aco_stack_pool_put", "no such stack is out"},
    {put_twice_after_trim, "aco_stack_pool_put", "no such stack is out"},
    {put_twice_after_unmapping, "aco_stack_pool_put", "no such stack is out"},
    {put_under_new_co, "aco_stack_pool_put", "still exists"},
    {put_under_copy_of_co, "aco_stack_pool_put", "still exists"},
    {put_under_suspended_co, "aco_stack_pool_put", "still exists"},
    {destroy_null_co, "aco_stack_pool_destroy_co", "NULL"},
    {destroy_main_co, "aco_stack_pool_destroy_co", "main coroutine"},
    {destroy_foreign_co, "aco_stack_pool_destroy_co", "no such stack is out"},
    {destroy_co_twice, "aco_stack_pool_destroy_co", "no such stack is out"},
    {destroy_one_of_two, "aco_stack_pool_destroy_co", "still exists"},
    {create_without_parent, "aco_stack_pool_create_co", "main_co is NULL"},
    {try_create_without_parent, "aco_stack_pool_try_create_co", "main_co is NULL"},
    {create_without_function, "aco_stack_pool_create_co", "entry function is NULL"},
    {destroy_with_stacks_out, "aco_stack_pool_destroy", "in use"},
    {destroy_share_stack, "aco_share_stack_destroy", "aco_stack_pool_put"},
    {destroy_share_stack_of_co, "aco_share_stack_destroy", "aco_stack_pool_put"},
    {destroy_idle_share_stack, "aco_share_stack_destroy", "aco_stack_pool_put"},
    {make_with_unknown_flag, "aco_stack_pool_new", "flag"},
    {make_with_size_of_no_guard, "aco_stack_pool_new", "flag"},
    {ask_for_no_stats, "aco_stack_pool_stats", "nowhere"},
    {get_of_null, "aco_stack_pool_get", "pool is NULL"},
    {try_get_of_null, "aco_stack_pool_try_get", "pool is NULL"},
    {put_to_null, "aco_stack_pool_put", "pool is NULL"},
    {trim_null, "aco_stack_pool_trim", "pool is NULL"},
    {destroy_null, "aco_stack_pool_destroy", "pool is NULL"},
    {destroy_co_of_null, "aco_stack_pool_destroy_co", "pool is NULL"},
    {create_of_null, "aco_stack_pool_create_co", "pool is NULL"},
    {try_create_of_null, "aco_stack_pool_try_create_co", "pool is NULL"},
    {stats_of_null, "aco_stack_pool_stats", "pool is NULL"},
};

static void misuse_ends_in_words(void **state)
{
    scene_t scene = {(const instance_t *)*state,
                     aco_stack_pool_new(SMALL, 0),
                     aco_stack_pool_new(SMALL, 0),
                     NULL,
                     NULL,
                     NULL,
                     NULL};
    scene.out = aco_stack_pool_get(scene.pool);
    scene.co = aco_stack_pool_create_co(scene.pool, scene.in->main_co, yields_for_ever, NULL);
    scene.idle = aco_stack_pool_get(scene.pool);
    aco_stack_pool_put(scene.pool, scene.idle);
    scene.of_other_pool = aco_stack_pool_get(scene.other_pool);
    for (size_t i = 0; i < ARRAY_SZ(misuses); i++) {
        expect_abort(misuses[i].act, &scene, misuses[i].call, misuses[i].words);
    }
    aco_stack_pool_put(scene.pool, scene.out);
    aco_stack_pool_put(scene.other_pool, scene.of_other_pool);
    aco_stack_pool_destroy_co(scene.pool, scene.co);
    aco_stack_pool_destroy(scene.pool);
    aco_stack_pool_destroy(scene.other_pool);
}

/* ==== Many ==================================================================================== */

/* Not in the stress build, where every yield copies, nor on i386, which has too few addresses. One
 * of the other builds is enough. */
#if defined(__LP64__) && !defined(ACO_CONFIG_STRESS) && !defined(ACO_CONFIG_SHARE_FPU_MXCSR_ENV)
#define IS_FOR_MANY 1
#else
#define IS_FOR_MANY 0
#endif

static void two_hundred_thousand_guarded_ones_live_at_once(void **state)
{
    enum { CT = 200000, SAMPLE = 66666 };
    const instance_t *in = (const instance_t *)*state;
    if (!IS_FOR_MANY) {
        skip();
    }
    if (!has_guard_install()) {
        print_message("the kernel has no MADV_GUARD_INSTALL (Linux 6.13): not tested\n");
        skip();
    }
    aco_stack_pool_t *pool = aco_stack_pool_new(4096, 0);
    aco_t **all = (aco_t **)malloc(CT * sizeof(aco_t *));
    assert_non_null(all);
    for (size_t i = 0; i < CT; i++) {
        all[i] = aco_stack_pool_create_co(pool, in->main_co, keeps_a_number, (void *)i);
        aco_resume(all[i]);
    }
    assert_int_equal(stats_of(pool).in_use, CT);
    for (size_t i = 0; i < CT; i++) {
        aco_resume(all[i]);
        assert_int_equal(all[i]->save_stack.ct_save, 0);
    }
    for (size_t i = SAMPLE; i < CT; i += SAMPLE) {
        expect_signal(write_below, all[i]->share_stack, SIGSEGV);
    }
    for (size_t i = 0; i < CT; i++) {
        aco_stack_pool_destroy_co(pool, all[i]);
    }
    assert_int_equal(stats_of(pool).most_in_use, CT);
    free(all);
    aco_stack_pool_destroy(pool);
}

int main(void)
{
#define HOOKS_TEST(f) cmocka_unit_test_setup_teardown(f, set_hooks, unset_hooks)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stacks_are_as_large_as_was_asked_for),
        cmocka_unit_test(each_has_memory_of_its_own_from_end_to_end),
        cmocka_unit_test(what_is_below_faults),
        cmocka_unit_test(guards_are_as_large_as_was_asked_for),
#ifndef __LP64__
        cmocka_unit_test(guards_that_are_too_large_are_an_error),
#endif
        instance_test(a_frame_of_32_kib_can_not_jump_the_guard),
        cmocka_unit_test(each_slab_refuses_huge_pages_by_one_call),
        cmocka_unit_test(without_guards_there_is_none),
        cmocka_unit_test(tops_of_successive_stacks_differ_by_cache_lines),
        cmocka_unit_test(the_one_that_was_put_last_comes_first),
        instance_test(children_of_children_run_on_pool_stacks),
        instance_test(a_coroutine_may_be_destroyed_in_any_state),
        instance_test(any_coroutine_on_a_pool_stack_is_destroyed_by_one_call),
        instance_test(the_aco_ts_lie_side_by_side_apart_from_stacks),
        cmocka_unit_test(trim_gives_idle_memory_back_and_leaves_the_rest),
        cmocka_unit_test(trimmed_stacks_are_given_out_again_zero_and_guarded),
        cmocka_unit_test(a_pool_goes_on_after_all_of_it_was_unmapped),
        cmocka_unit_test(trim_unmaps_cold_stacks_with_their_slab),
        cmocka_unit_test(bursts_keep_their_stacks),
        cmocka_unit_test(a_load_that_shrank_loses_stacks_bit_by_bit),
        cmocka_unit_test(after_a_period_each_put_gives_one_of_the_surplus_back),
        cmocka_unit_test(statistics_follow_random_gets_and_puts),
        cmocka_unit_test(slabs_are_few),
        cmocka_unit_test(threads_share_a_pool),
        cmocka_unit_test(each_call_waits_for_the_one_under_way),
        cmocka_unit_test(each_thread_has_its_own),
        cmocka_unit_test(another_thread_may_put_a_stack),
        cmocka_unit_test(addresses_that_run_out_are_an_error),
        cmocka_unit_test(what_is_too_large_is_an_error),
        HOOKS_TEST(each_allocation_may_fail_and_succeed_later),
        HOOKS_TEST(all_that_is_allocated_comes_from_the_users_allocator),
        cmocka_unit_test(without_guard_install_mprotect_guards_as_many_as_it_can),
        instance_test(misuse_ends_in_words),
        instance_test(two_hundred_thousand_guarded_ones_live_at_once),
    };
    return cmocka_run_group_tests_name("stack pool", tests, NULL, NULL);
}
