// SPDX-License-Identifier: Apache-2.0
/*
 * Coroutines and share stacks in memory of the caller: nothing is allocated for them and nothing
 * freed, they use the bytes they were given and no others, and what is too small or misaligned is
 * refused with EINVAL.
 */
// build: tests/wrapped_memory.c -Wl,--wrap=malloc,--wrap=calloc,--wrap=free
// build: -Wl,--wrap=mmap,--wrap=munmap,--wrap=mprotect
#include "harness.h"
#include "wrapped_memory.h"

#include <errno.h>
#include <signal.h>

#define STACK_SZ 65536u
#define STACK_MIN_SZ 4096u
#define SAVE_STACK_SZ 4096u
#define CO_SZ ((sizeof(aco_t) + 15) / 16 * 16)
#define ROUNDS 5
#define CANARY 0xc5

/* Where an eviction allocates, whatever the size of the save stack. */
#if defined(ACO_CONFIG_STRESS) || defined(ACO_USE_ASAN)
#define EVICTION_ALLOCATES 1
#else
#define EVICTION_ALLOCATES 0
#endif

/* Memory that is given to the library, with as many canaries before and after. */
#define CANARY_CT 64u
typedef struct {
    unsigned char before[CANARY_CT];
    unsigned char bytes[STACK_SZ];
    unsigned char after[CANARY_CT];
} room_t;

static room_t rooms[3] __attribute__((aligned(64)));

static int setup(void **state)
{
    memset(rooms, CANARY, sizeof(rooms));
    memset(&memory, 0, sizeof(memory));
    return make_instance(state);
}

static int is_canary(const unsigned char *bytes, const unsigned char *end)
{
    while (bytes < end && *bytes == CANARY) {
        bytes++;
    }
    return bytes == end;
}

/* Nothing was written but to `sz` bytes from `offset` on. */
static void assert_within(const room_t *room, size_t offset, size_t sz)
{
    assert_true(is_canary(room->before, room->bytes + offset));
    assert_true(is_canary(room->bytes + offset + sz, room->after + CANARY_CT));
}

static void fills_and_yields(void)
{
    uint32_t seed = *(const uint32_t *)aco_get_arg();
    unsigned char data[1000];
    for (;;) {
        fill_from_seed(data, sizeof(data), seed);
        aco_yield();
        CO_CHECK(is_from_seed(data, sizeof(data), seed));
    }
}

/* Lets two copy each other. */
static void alternate(aco_t *a, aco_t *b)
{
    for (int i = 0; i < ROUNDS; i++) {
        aco_resume(a);
        aco_resume(b);
    }
}

/* ==== Nothing is allocated ==================================================================== */

static void live_in_rooms(void)
{
    static uint32_t seeds[] = {1, 2};
    aco_t *main_co = aco_create_in(rooms[0].bytes, CO_SZ, NULL, NULL, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new_in(rooms[1].bytes, STACK_SZ);
    unsigned char *next = rooms[2].bytes;
    aco_t *cos[2];
    for (size_t i = 0; i < ARRAY_SZ(cos); i++) {
        cos[i] = aco_create_in(next, CO_SZ + SAVE_STACK_SZ, main_co, stack, fills_and_yields,
                               &seeds[i]);
        next += CO_SZ + SAVE_STACK_SZ;
    }
    alternate(cos[0], cos[1]);
    aco_reset(cos[0], ends_at_once, NULL);
    aco_resume(cos[0]);
    for (size_t i = 0; i < ARRAY_SZ(cos); i++) {
        aco_destroy(cos[i]);
    }
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
}

static void nothing_is_allocated_and_nothing_freed(void **state)
{
    (void)state;
    memory.is_on = 1;
    live_in_rooms();
    memory.is_on = 0;
    assert_co_checks();
    if (!EVICTION_ALLOCATES) {
        assert_int_equal(memory.ct_requests, 0);
    }
    assert_int_equal(memory.ct_blocks, 0);
    assert_int_equal(memory.mapped_sz, 0);
    assert_within(&rooms[0], 0, CO_SZ);
    assert_within(&rooms[1], 0, STACK_SZ);
    assert_within(&rooms[2], 0, 2 * (CO_SZ + SAVE_STACK_SZ));
}

static void the_same_memory_serves_again(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        live_in_rooms();
        assert_co_checks();
    }
}

/* ==== Coroutine =============================================================================== */

static void a_save_stack_is_what_remains_and_grows_when_it_must(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    static const size_t sizes[] = {0, 1, 15, 16, 500, 5000};
    uint32_t seed = 3;
    aco_t *other = aco_create(in->main_co, in->stack, SAVE_STACK_SZ, yields_for_ever, NULL);
    for (size_t i = 0; i < ARRAY_SZ(sizes); i++) {
        memset(rooms, CANARY, sizeof(rooms));
        aco_t *co = aco_create_in(rooms[0].bytes, CO_SZ + sizes[i], in->main_co, in->stack,
                                  fills_and_yields, &seed);
        assert_ptr_equal(co, rooms[0].bytes);
        assert_ptr_equal(co->save_stack.ptr, rooms[0].bytes + CO_SZ);
        assert_int_equal(co->save_stack.sz, sizes[i]);
        memory.is_on = 1;
        memory.ct_blocks = 0;
        alternate(co, other);
        memory.is_on = 0;
        assert_co_checks();
        assert_within(&rooms[0], 0, CO_SZ + sizes[i]);
        if (!EVICTION_ALLOCATES) {
            int has_grown = sizes[i] < 1000;
            assert_int_equal(memory.ct_blocks, has_grown);
            assert_int_equal(is_save_stack_embedded(co), !has_grown);
        }
        aco_destroy(co);
    }
    aco_destroy(other);
}

/* Memory by which it grew is given back; the caller's memory is not. */
static void destroy_frees_what_has_grown_only(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    uint32_t seed = 4;
    aco_share_stack_t *stack = aco_share_stack_new(0);
    memory.is_on = 1;
    aco_t *co = aco_create_in(rooms[0].bytes, CO_SZ, in->main_co, stack, fills_and_yields, &seed);
    aco_t *other = aco_create_in(rooms[1].bytes, CO_SZ + 3 * SAVE_STACK_SZ, in->main_co, stack,
                                 yields_for_ever, NULL);
    alternate(co, other);
    assert_true(memory.ct_blocks >= 1);
    aco_destroy(co);
    aco_destroy(other);
    memory.is_on = 0;
    assert_int_equal(memory.ct_blocks, 0);
    aco_share_stack_destroy(stack);
}

static aco_t *try_create_in(const instance_t *in, void *bytes, size_t sz)
{
    errno = 0;
    return aco_create_in(bytes, sz, in->main_co, in->stack, ends_at_once, NULL);
}

static void misaligned_or_small_memory_is_refused(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (size_t i = 1; i < 16; i++) {
        assert_null(try_create_in(in, rooms[0].bytes + i, STACK_SZ - i));
        assert_int_equal(errno, EINVAL);
    }
    for (size_t sz = 0; sz < CO_SZ; sz++) {
        assert_null(try_create_in(in, rooms[0].bytes, sz));
        assert_int_equal(errno, EINVAL);
    }
    assert_null(try_create_in(in, NULL, STACK_SZ));
    assert_int_equal(errno, EINVAL);
    assert_within(&rooms[0], 0, 0);
    assert_int_equal(in->stack->ct_coroutines, 0);
    aco_t *co = try_create_in(in, rooms[0].bytes + 16, CO_SZ);
    assert_ptr_equal(co, rooms[0].bytes + 16);
    assert_int_equal(errno, 0);
    aco_destroy(co);
}

/* ==== Share stack ============================================================================= */

static void check_stack(const aco_share_stack_t *s, const unsigned char *bytes, size_t sz)
{
    const unsigned char *high = (const unsigned char *)s->align_highptr;
    assert_ptr_equal(s->ptr, bytes);
    assert_true((const unsigned char *)s->ptr + s->sz >= high);
    assert_true(high <= (const unsigned char *)s);
    assert_true((const unsigned char *)(s + 1) <= bytes + sz);
    assert_int_equal((uintptr_t)high % 16, 0);
    assert_int_equal((uintptr_t)s % 16, 0);
    assert_ptr_equal(s->align_retptr, high - ACO_RETPTR_SZ);
    assert_int_equal(s->align_validsz, high - bytes);
    assert_int_equal(s->align_limit, s->align_validsz - ACO_RETPTR_SZ);
    assert_true(s->align_limit >= STACK_MIN_SZ);
    assert_int_equal(s->guard_page_enabled, 0);
    assert_ptr_equal(s->real_ptr, bytes);
    assert_int_equal(s->real_sz, 0);
    assert_null(s->owner);
    assert_int_equal(s->ct_coroutines, 0);
}

/* The size from which on it is taken wastes less than the alignment asks for. */
static void memory_of_any_alignment_serves_from_the_size_that_is_needed(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    /* Besides the frames: the struct, and what any stack keeps for itself. */
    const size_t need = sizeof(aco_share_stack_t) + STACK_MIN_SZ +
                        (in->stack->sz - in->stack->align_limit);
    for (size_t offset = 0; offset < 20; offset++) {
        unsigned char *bytes = rooms[0].bytes + offset;
        for (size_t sz = 0; sz < need + 40; sz++) {
            errno = 0;
            aco_share_stack_t *s = aco_share_stack_new_in(bytes, sz);
            if (s == NULL) {
                assert_int_equal(errno, EINVAL);
                assert_true(sz < need + 2 * 15);
            } else {
                assert_true(sz >= need);
                check_stack(s, bytes, sz);
                aco_share_stack_destroy(s);
                assert_within(&rooms[0], offset, sz);
            }
        }
        memset(bytes, CANARY, need + 40);
    }
}

/* NULL, and what reaches beyond the last address, by much or by little. */
static void impossible_memory_is_refused(void **state)
{
    const size_t to_the_end = (size_t)0 - (uintptr_t)rooms[0].bytes;
    const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 1000, SIZE_MAX - STACK_SZ, to_the_end + 16};
    (void)state;
    errno = 0;
    assert_null(aco_share_stack_new_in(NULL, STACK_SZ));
    assert_int_equal(errno, EINVAL);
    for (size_t i = 0; i < ARRAY_SZ(sizes); i++) {
        errno = 0;
        assert_null(aco_share_stack_new_in(rooms[0].bytes, sizes[i]));
        assert_int_equal(errno, EINVAL);
    }
    assert_within(&rooms[0], 0, 0);
}

/* Two share stacks side by side, each with its coroutine, the one below deep in use. */
static void coroutines_use_the_memory_that_was_given(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    uint32_t seeds[] = {5, 6};
    const size_t half = STACK_SZ / 2;
    aco_share_stack_t *stacks[2];
    aco_t *cos[2];
    for (size_t i = 0; i < 2; i++) {
        stacks[i] = aco_share_stack_new_in(rooms[0].bytes + 3 + i * half, half - 3);
        cos[i] = aco_create(in->main_co, stacks[i], 0, fills_and_yields, &seeds[i]);
    }
    alternate(cos[0], cos[1]);
    assert_co_checks();
    assert_within(&rooms[0], 3, STACK_SZ - 3);
    for (size_t i = 0; i < 2; i++) {
        const unsigned char *sp = (const unsigned char *)cos[i]->reg[ACO_REG_IDX_SP];
        assert_true(sp > (const unsigned char *)stacks[i]->ptr);
        assert_true(sp < (const unsigned char *)stacks[i]);
        assert_int_equal(cos[i]->save_stack.ct_save, STRESS ? ROUNDS : 0);
        aco_destroy(cos[i]);
        aco_share_stack_destroy(stacks[i]);
    }
}

/* ==== Guard page ============================================================================== */

#define PAGE_SZ 4096u

static NOINLINE unsigned recurse(unsigned depth)
{
    unsigned char data[512];
    memset(data, (int)depth, sizeof(data));
    ESCAPE(data);
    return depth == 0 ? data[0] : recurse(depth - 1) + data[1];
}

static void overflows(void)
{
    recurse(10 * STACK_SZ / 512);
    aco_exit();
}

static void overflow(void *arg)
{
    aco_resume((aco_t *)arg);
}

static void a_guard_page_of_the_caller_holds_and_stays(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    char *mapping = (char *)mmap(NULL, PAGE_SZ + STACK_SZ, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(mprotect(mapping, PAGE_SZ, PROT_NONE), 0);
    memory.is_on = 1;
    aco_share_stack_t *s = aco_share_stack_new_in(mapping + PAGE_SZ, STACK_SZ);
    s->guard_page_enabled = 1;
    s->real_ptr = mapping;
    aco_t *co = aco_create(in->main_co, s, 0, overflows, NULL);
    memory.is_on = 0;
    expect_signal(overflow, co, SIGSEGV);
    memory.is_on = 1;
    aco_destroy(co);
    aco_share_stack_destroy(s);
    memory.is_on = 0;
    assert_int_equal(memory.mapped_sz, 0);
    assert_int_equal(memory.ct_blocks, 0);
    memset(mapping + PAGE_SZ, 0, STACK_SZ);
    assert_int_equal(munmap(mapping, PAGE_SZ + STACK_SZ), 0);
}

int main(void)
{
#define ROOMS_TEST(f) cmocka_unit_test_setup_teardown(f, setup, delete_instance)
    const struct CMUnitTest tests[] = {
        ROOMS_TEST(nothing_is_allocated_and_nothing_freed),
        ROOMS_TEST(the_same_memory_serves_again),
        ROOMS_TEST(a_save_stack_is_what_remains_and_grows_when_it_must),
        ROOMS_TEST(destroy_frees_what_has_grown_only),
        ROOMS_TEST(misaligned_or_small_memory_is_refused),
        ROOMS_TEST(memory_of_any_alignment_serves_from_the_size_that_is_needed),
        ROOMS_TEST(impossible_memory_is_refused),
        ROOMS_TEST(coroutines_use_the_memory_that_was_given),
        ROOMS_TEST(a_guard_page_of_the_caller_holds_and_stays),
    };
    return cmocka_run_group_tests_name("caller's memory", tests, NULL, NULL);
}
