// SPDX-License-Identifier: Apache-2.0
/*
 * High-water marks: the lowest byte that was written is found exactly, whatever wrote it and
 * whatever became of the writer, and the search leaves no trace.
 */
// build: -Wl,--wrap=pread
#include "extra/high_water/aco_high_water.h"
#include "tests/harness.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define SLACK 4096u                             /* bytes of frames around the data of a coroutine */
#define FILL_SZ (STRESS ? (size_t)16 << 10 : 0) /* bytes that the core overwrites after a yield */
#define DEEP ((size_t)100 << 10)                /* bytes */
#define SHALLOW ((size_t)30 << 10)              /* bytes */
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* The byte with `depth - 1` bytes between it and the protector. */
static volatile char *at_depth(const aco_share_stack_t *s, size_t depth)
{
    return (volatile char *)s->align_retptr - depth;
}

/* ==== Bytes =================================================================================== */

/* Calls `check` for stacks of all kinds, and for a byte at each end of each of their pages. */
static void on_all_stacks(void (*check)(aco_share_stack_t *s))
{
    static const size_t sizes[] = {0, 1, 4096, 5000, 65536, 300000, (size_t)3 << 20};
    for (size_t i = 0; i < 2 * ARRAY_SZ(sizes); i++) {
        aco_share_stack_t *s = aco_share_stack_new2(sizes[i / 2], i % 2);
        check(s);
        aco_share_stack_destroy(s);
    }
}

/* The protector does not count, even if its address ends with zeros. */
static void check_fresh(aco_share_stack_t *s)
{
    assert_int_equal(aco_share_stack_high_water(s), 0);
    assert_int_equal(aco_share_stack_high_water(s), 0);
    *(volatile char *)s->align_retptr = 0;
    assert_int_equal(aco_share_stack_high_water(s), 0);
}

static void that_of_a_fresh_stack_is_0(void **state)
{
    (void)state;
    on_all_stacks(check_fresh);
}

static void check_bytes(aco_share_stack_t *s)
{
    for (size_t depth = 1; depth <= s->align_limit; depth += page_size() / 2 - 1) {
        *at_depth(s, depth) = 1;
        assert_int_equal(aco_share_stack_high_water(s), depth);
        *at_depth(s, depth + 1 <= s->align_limit ? depth + 1 : depth) = (char)0x80;
        assert_int_equal(aco_share_stack_high_water(s),
                         depth + 1 <= s->align_limit ? depth + 1 : depth);
    }
    *(volatile char *)s->ptr = 1;
    assert_int_equal(aco_share_stack_high_water(s), s->align_limit);
}

static void the_lowest_byte_that_was_written_is_found_exactly(void **state)
{
    (void)state;
    on_all_stacks(check_bytes);
}

static void what_lies_above_the_lowest_byte_does_not_matter(void **state)
{
    (void)state;
    aco_share_stack_t *s = aco_share_stack_new(0);
    *at_depth(s, 1500000) = 1;
    assert_int_equal(aco_share_stack_high_water(s), 1500000);
    *at_depth(s, 700000) = 1;
    assert_int_equal(aco_share_stack_high_water(s), 1500000);
    aco_share_stack_destroy(s);
}

static void pages_that_were_read_or_cleared_are_unused(void **state)
{
    (void)state;
    aco_share_stack_t *s = aco_share_stack_new(0);
    *at_depth(s, 10) = 1;
    *at_depth(s, 50000) = 0;
    assert_int_equal(*at_depth(s, 100000), 0);
    assert_int_equal(aco_share_stack_high_water(s), 10);
    aco_share_stack_destroy(s);
}

/* Memory of the caller that does not begin on a page, before and after it is cleared. */
static void memory_of_the_caller_may_begin_anywhere(void **state)
{
    static char memory[20 << 12] __attribute__((aligned(4096)));
    (void)state;
    for (size_t offset = 0; offset < 2 * page_size(); offset += 1000 + offset / 3) {
        char *begin = memory + offset;
        memset(memory, 0, sizeof(memory));
        assert_int_equal(madvise(memory, sizeof(memory) / page_size() * page_size(), MADV_DONTNEED),
                         0);
        aco_share_stack_t *s = aco_share_stack_new_in(begin, sizeof(memory) - offset);
        assert_int_equal(aco_share_stack_high_water(s), 0);
        begin[-(offset != 0)] = 1; /* outside the stack, unless it is its first byte */
        assert_int_equal(aco_share_stack_high_water(s), offset != 0 ? 0 : s->align_limit);
        begin[-(offset != 0)] = 0;
        for (size_t depth = 1; depth <= s->align_limit; depth += page_size() / 2 - 1) {
            *at_depth(s, depth) = 1;
            assert_int_equal(aco_share_stack_high_water(s), depth);
        }
        aco_share_stack_destroy(s);
    }
}

/* ==== Coroutines ============================================================================== */

typedef struct {
    size_t data_sz;
    size_t depth;       /* from the protector to the end of the data */
    size_t mark_inside; /* the mark that the coroutine itself gets */
} use_t;

static NOINLINE void use_stack(use_t *use)
{
    unsigned char data[use->data_sz];
    memset(data, 0x11, sizeof(data));
    ESCAPE(data);
    use->depth = (size_t)((unsigned char *)aco_get_co()->share_stack->align_retptr - data);
}

static void uses_and_asks(void)
{
    use_t *use = (use_t *)aco_get_arg();
    use_stack(use);
    use->mark_inside = aco_share_stack_high_water(aco_get_co()->share_stack);
    aco_yield();
    aco_exit();
}

static use_t use_and_destroy(const instance_t *in, size_t data_sz)
{
    use_t use = {data_sz, 0, 0};
    aco_t *co = make_co(in, uses_and_asks, &use);
    aco_resume(co);
    aco_resume(co);
    assert_int_equal(co->is_end, 1);
    aco_destroy(co);
    return use;
}

/* `depth`, plus frames below it, or what the core fills. */
static void assert_mark(const aco_share_stack_t *s, size_t depth)
{
    size_t at_least = depth > FILL_SZ ? depth : FILL_SZ;
    assert_in_range(aco_share_stack_high_water(s), at_least, at_least + SLACK);
}

static void it_grows_with_what_a_coroutine_uses(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (size_t data_sz = 3000; data_sz < in->stack->sz / 2; data_sz += data_sz / 2) {
        use_t use = use_and_destroy(in, data_sz);
        assert_true(use.depth > data_sz);
        assert_mark(in->stack, use.depth);
    }
}

static void a_coroutine_may_ask_for_that_of_its_own_stack(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    use_t use = use_and_destroy(in, SHALLOW);
    assert_in_range(use.mark_inside, use.depth, use.depth + SLACK);
}

static void it_stays_when_what_made_it_is_gone(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    use_t deep = use_and_destroy(in, DEEP);
    size_t mark = aco_share_stack_high_water(in->stack);
    assert_mark(in->stack, deep.depth);
    use_and_destroy(in, SHALLOW);
    assert_int_equal(aco_share_stack_high_water(in->stack), mark);
}

static void it_is_the_maximum_of_those_that_share_the_stack(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    use_t uses[] = {{SHALLOW, 0, 0}, {DEEP, 0, 0}, {SHALLOW / 2, 0, 0}, {DEEP / 2, 0, 0}};
    aco_t *cos[ARRAY_SZ(uses)];
    for (size_t i = 0; i < ARRAY_SZ(uses); i++) {
        cos[i] = make_co(in, uses_and_asks, &uses[i]);
        aco_resume(cos[i]);
    }
    assert_mark(in->stack, uses[1].depth);
    for (size_t i = 0; i < ARRAY_SZ(uses); i++) {
        aco_resume(cos[i]);
        aco_destroy(cos[i]);
    }
    assert_mark(in->stack, uses[1].depth);
}

static void each_stack_has_its_own(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *other = aco_share_stack_new(0);
    use_and_destroy(in, DEEP);
    assert_int_equal(aco_share_stack_high_water(other), 0);
    aco_share_stack_destroy(other);
}

/* ==== Asking ================================================================================== */

/* The number of pages of `s` in memory, the page of zeros included. */
static size_t resident_pages(const aco_share_stack_t *s)
{
    static unsigned char resident[1024];
    size_t ct = s->sz / page_size(), sum = 0;
    assert_true(ct <= sizeof(resident));
    assert_int_equal(mincore(s->ptr, s->sz, resident), 0);
    for (size_t i = 0; i < ct; i++) {
        sum += resident[i] & 1;
    }
    return sum;
}

static void asking_touches_no_page(void **state)
{
    (void)state;
    aco_share_stack_t *s = aco_share_stack_new(0);
    *at_depth(s, 3 * page_size()) = 1;
    *at_depth(s, 50 * page_size()) = 0;
    size_t before = resident_pages(s);
    assert_true(before < s->sz / page_size());
    aco_share_stack_high_water(s);
    assert_int_equal(resident_pages(s), before);
    aco_share_stack_destroy(s);
}

static int flags_of_last; /* flags of the descriptor that pread() got last */

static int lowest_free_descriptor(void)
{
    int fd = open("/dev/null", O_RDONLY);
    close(fd);
    return fd;
}

/* No descriptor is handed down to a program that another thread executes meanwhile. */
static void asking_leaves_no_descriptor_open(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    int before = lowest_free_descriptor();
    aco_share_stack_high_water(in->stack);
    assert_int_equal(lowest_free_descriptor(), before);
    assert_int_equal(flags_of_last & FD_CLOEXEC, FD_CLOEXEC);
}

static void ask_without_descriptors(void *stack)
{
    const aco_share_stack_t *s = (const aco_share_stack_t *)stack;
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_NOFILE, &none);
    size_t before = resident_pages(s);
    size_t mark = aco_share_stack_high_water(s);
    _exit(mark == 123456 && resident_pages(s) == before ? 0 : 1);
}

static void without_pagemap_it_is_the_same(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    *at_depth(in->stack, 123456) = 1;
    expect_exit(ask_without_descriptors, in->stack, 0);
}

/* The sandbox has no mincore(). */
static void ask_without_system_calls(void *stack)
{
    struct sock_filter refuse_mincore[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mincore, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {ARRAY_SZ(refuse_mincore), refuse_mincore};
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_NOFILE, &none);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        _exit(2);
    }
    const aco_share_stack_t *s = (const aco_share_stack_t *)stack;
    _exit(aco_share_stack_high_water(s) == 123456 ? 0 : 1);
}

static void without_pagemap_and_mincore_it_is_the_same(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0) {
        skip(); /* a kernel without it */
    }
    *at_depth(in->stack, 123456) = 1;
    expect_exit(ask_without_system_calls, in->stack, 0);
}

/* A page that is swapped out according to pagemap, or NULL. */
static const volatile char *swapped_out;
ssize_t __real_pread(int fd, void *buffer, size_t sz, off_t offset);
ssize_t __wrap_pread(int fd, void *buffer, size_t sz, off_t offset);

ssize_t __wrap_pread(int fd, void *buffer, size_t sz, off_t offset)
{
    ssize_t got = __real_pread(fd, buffer, sz, offset);
    uint64_t *entries = (uint64_t *)buffer, first = (uint64_t)offset / sizeof(*entries);
    uint64_t index = (uintptr_t)swapped_out / page_size() - first;
    flags_of_last = fcntl(fd, F_GETFD);
    if (swapped_out != NULL && got == (ssize_t)sz && index < sz / sizeof(*entries)) {
        entries[index] = UINT64_C(1) << 62;
    }
    return got;
}

static void pages_that_are_said_to_be_swapped_out_count(void **state)
{
    (void)state;
    aco_share_stack_t *s = aco_share_stack_new(0);
    *at_depth(s, 10) = 1;
    *at_depth(s, 123456) = 1;
    swapped_out = at_depth(s, 123456);
    size_t mark = aco_share_stack_high_water(s);
    swapped_out = NULL;
    aco_share_stack_destroy(s);
    assert_int_equal(mark, 123456);
}

static void pages_that_are_swapped_out_count(void **state)
{
    (void)state;
    aco_share_stack_t *s = aco_share_stack_new(0);
    *at_depth(s, 123456) = 1;
    int is_asked_for = madvise(s->ptr, s->sz, MADV_PAGEOUT) == 0;
    size_t resident = resident_pages(s);
    size_t mark = aco_share_stack_high_water(s);
    aco_share_stack_destroy(s);
    assert_int_equal(mark, 123456);
    if (!is_asked_for || resident != 0) {
        skip(); /* no swap space */
    }
}

static void ask_for_that_of_null(void *arg)
{
    (void)arg;
    aco_share_stack_high_water(NULL);
}

static void null_is_misuse(void **state)
{
    (void)state;
    expect_abort(ask_for_that_of_null, NULL, "aco_share_stack_high_water", "stack is NULL");
}

/* pagemap has the emulator's addresses, which differ from the program's if these have 32 bits.
 * There nothing is opened, so mincore() is used. */
static int is_pagemap_of_others(void)
{
    const struct rlimit none = {0, 0};
    return EMULATED && sizeof(void *) == 4 && setrlimit(RLIMIT_NOFILE, &none) == 0;
}

int main(void)
{
    const struct CMUnitTest marks[] = {
        cmocka_unit_test(that_of_a_fresh_stack_is_0),
        cmocka_unit_test(the_lowest_byte_that_was_written_is_found_exactly),
        cmocka_unit_test(what_lies_above_the_lowest_byte_does_not_matter),
        cmocka_unit_test(pages_that_were_read_or_cleared_are_unused),
        cmocka_unit_test(memory_of_the_caller_may_begin_anywhere),
        instance_test(it_grows_with_what_a_coroutine_uses),
        instance_test(a_coroutine_may_ask_for_that_of_its_own_stack),
        instance_test(it_stays_when_what_made_it_is_gone),
        instance_test(it_is_the_maximum_of_those_that_share_the_stack),
        instance_test(each_stack_has_its_own),
        cmocka_unit_test(asking_touches_no_page),
    };
    const struct CMUnitTest ways[] = {
        instance_test(asking_leaves_no_descriptor_open),
        instance_test(without_pagemap_it_is_the_same),
        instance_test(without_pagemap_and_mincore_it_is_the_same),
        cmocka_unit_test(pages_that_are_said_to_be_swapped_out_count),
        cmocka_unit_test(pages_that_are_swapped_out_count),
        cmocka_unit_test(null_is_misuse),
    };
    int has_pagemap = !is_pagemap_of_others();
    int ct_failed = cmocka_run_group_tests_name("high water", marks, NULL, NULL);
    if (has_pagemap) {
        ct_failed += cmocka_run_group_tests_name("ways to ask", ways, NULL, NULL);
    }
    return ct_failed;
}
