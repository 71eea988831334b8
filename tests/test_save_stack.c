// SPDX-License-Identifier: Apache-2.0
/*
 * The save stack: where it lies, how it grows, and that frames of every size come back as they
 * were. Sizes around the limits of the copying code can't be had from a compiler, so some tests
 * declare bytes that they wrote themselves to be the frames of a coroutine.
 */
#include "harness.h"

#define CANARY_SZ 64u    /* bytes */
#define STACK_ROOM 4096u /* bytes that a coroutine with made frames needs below them */

/* ==== Made frames ============================================================================= */

/* Looks at the frames above its own, which it has not got from a call, and never returns. */
typedef struct {
    const char *frames;
    size_t sz;
    uint32_t seed;
    int was_right;
} made_t;

/* Frames end where SP may be: on x86 at any word, so it is not as a call leaves it. */
#if defined(ACO_ARCH_X86_64) || defined(ACO_ARCH_I386)
__attribute__((force_align_arg_pointer))
#endif
static void
looks_at_frames(void)
{
    made_t *made = (made_t *)aco_get_arg();
    made->was_right = is_from_seed(made->frames, made->sz, made->seed);
    aco_exit();
}

/* Makes `co`, in state init, a suspended owner with frames that follow from made->seed. */
static void make_frames(aco_t *co, made_t *made)
{
    aco_share_stack_t *s = co->share_stack;
    char *sp = (char *)s->align_retptr - made->sz;
    fill_from_seed(sp, made->sz, made->seed);
    made->frames = sp;
    made->was_right = 0;
    co->reg[ACO_REG_IDX_SP] = sp;
    co->is_owner = 1;
    s->owner = s->in_place = co;
}

/* Saves made frames out and restores them; the save stack lies between canaries at first. */
static void save_and_restore(const instance_t *in, aco_share_stack_t *stack, size_t sz)
{
    made_t made = {NULL, sz, (uint32_t)sz, 0};
    aco_t *co = aco_create(in->main_co, stack, 0, looks_at_frames, &made);
    aco_t *other = aco_create(in->main_co, stack, 0, ends_at_once, NULL);
    char *area = (char *)malloc(sz + 2 * CANARY_SZ);
    assert_non_null(area);
    memset(area, 0x77, sz + 2 * CANARY_SZ);
    co->save_stack.ptr = area + CANARY_SZ;
    co->save_stack.sz = sz;
    make_frames(co, &made);

    aco_resume(other);
    assert_int_equal(other->is_end, 1);
    memset((char *)stack->align_retptr - sz, 0x5a, sz);
    assert_invariants(co);
    assert_int_equal(co->save_stack.valid_sz, sz);
    assert_int_equal(co->save_stack.sz, sz);
    assert_true(is_from_seed(co->save_stack.ptr, sz, made.seed));
    for (size_t i = 0; i < CANARY_SZ; i++) {
        assert_int_equal(area[i], 0x77);
        assert_int_equal(area[CANARY_SZ + sz + i], 0x77);
    }

    aco_resume(co);
    assert_int_equal(made.was_right, 1);
    assert_invariants(co);
    aco_destroy(co);
    aco_destroy(other);
    free(area);
}

static void frames_of_every_small_size_come_back(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (size_t sz = ACO_RETPTR_SZ; sz <= 1200; sz += ACO_RETPTR_SZ) {
        save_and_restore(in, in->stack, sz);
    }
}

static void frames_around_pages_come_back(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (size_t sz = 4096 - 64; sz <= 4096 + 64; sz += ACO_RETPTR_SZ) {
        save_and_restore(in, in->stack, sz);
        save_and_restore(in, in->stack, 4 * sz);
    }
}

static void frames_up_to_the_limit_of_the_stack_come_back(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    static const size_t sizes[] = {8000, 16384, 70001, (size_t)1 << 20};
    for (size_t i = 0; i < ARRAY_SZ(sizes); i++) {
        aco_share_stack_t *stack = aco_share_stack_new(sizes[i]);
        save_and_restore(in, stack,
                         (stack->align_limit - STACK_ROOM) / ACO_RETPTR_SZ * ACO_RETPTR_SZ);
        aco_share_stack_destroy(stack);
    }
}

/* All of it; one that is continued would have no room to run. */
static void frames_that_fill_the_stack_are_no_overrun(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stack = aco_share_stack_new(4096);
    made_t made = {NULL, stack->align_limit, 1, 0};
    aco_t *co = aco_create(in->main_co, stack, 0, looks_at_frames, &made);
    aco_t *other = aco_create(in->main_co, stack, 0, ends_at_once, NULL);
    make_frames(co, &made);
    aco_resume(other);
    assert_int_equal(co->save_stack.valid_sz, stack->align_limit);
    assert_true(is_from_seed(co->save_stack.ptr, made.sz, made.seed));
    aco_destroy(co);
    aco_destroy(other);
    aco_share_stack_destroy(stack);
}

/* ==== Growth ================================================================================== */

static void a_save_stack_that_is_large_enough_stays_embedded(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = aco_create(in->main_co, in->stack, 4096, yields_for_ever, NULL);
    aco_t *other = make_co(in, yields_for_ever, NULL);
    for (int i = 0; i < 10; i++) {
        aco_resume(co);
        aco_resume(other);
        assert_invariants(co);
        assert_true(co->save_stack.valid_sz != 0);
        assert_int_equal(co->save_stack.sz, 4096);
        assert_true(STRESS || is_save_stack_embedded(co));
    }
    aco_destroy(co);
    aco_destroy(other);
}

typedef struct {
    size_t sz;        /* bytes that a level keeps */
    uint32_t seed;    /* of the outermost level */
    unsigned ct_down; /* levels to go down before going up again */
} recursion_t;

static NOINLINE void descend(const recursion_t *recursion, unsigned depth)
{
    unsigned char data[recursion->sz];
    fill_from_seed(data, recursion->sz, recursion->seed + depth);
    aco_yield();
    if (depth + 1 < recursion->ct_down) {
        descend(recursion, depth + 1);
    }
    CO_CHECK(is_from_seed(data, recursion->sz, recursion->seed + depth));
    aco_yield();
    CO_CHECK(is_from_seed(data, recursion->sz, recursion->seed + depth));
}

static void descends(void)
{
    descend((const recursion_t *)aco_get_arg(), 0);
    aco_exit();
}

/* Two that descend on one stack evict each other at every step. */
static void descend_in_turn(const instance_t *in, const recursion_t *recursion)
{
    recursion_t second = *recursion;
    second.seed += 5000;
    aco_t *cos[2] = {make_co(in, descends, (void *)(uintptr_t)recursion),
                     make_co(in, descends, &second)};
    while (!cos[0]->is_end) {
        for (size_t i = 0; i < ARRAY_SZ(cos); i++) {
            aco_resume(cos[i]);
            assert_invariants(cos[0]);
            assert_invariants(cos[1]);
        }
    }
    for (size_t i = 0; i < ARRAY_SZ(cos); i++) {
        assert_int_equal(cos[i]->is_end, 1);
        assert_true(cos[i]->save_stack.max_cpsz > recursion->sz * recursion->ct_down);
        assert_true(cos[i]->save_stack.max_cpsz <= cos[i]->save_stack.sz);
        aco_destroy(cos[i]);
    }
    assert_co_checks();
}

static void deep_frames_come_back(void **state)
{
    static const recursion_t recursions[] = {
        {1, 1, 4}, {50, 2, 40}, {300, 3, 20}, {5000, 4, 5}, {100000, 5, 3}, {2000000, 6, 1},
    };
    const instance_t *in = (const instance_t *)*state;
    for (size_t i = 0; i < ARRAY_SZ(recursions); i++) {
        descend_in_turn(in, &recursions[i]);
    }
}

static void a_save_stack_that_is_too_small_becomes_a_block_of_its_own(void **state)
{
    static const recursion_t recursion = {1000, 9, 1};
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, descends, (void *)(uintptr_t)&recursion);
    aco_t *other = make_co(in, yields_for_ever, NULL);
    assert_true(is_save_stack_embedded(co));
    aco_resume(co);
    aco_resume(other);
    assert_true(co->blocks & ACO_BLOCK_SAVE_STACK);
    assert_true(co->save_stack.sz >= 1000);
    assert_int_equal(co->save_stack.valid_sz, live_sz(co));
    assert_invariants(co);
    aco_destroy(co);
    aco_destroy(other);
}

/* Each time by half at least, so that there are few blocks on the way; and never back. */
static void the_save_stack_grows_geometrically(void **state)
{
    static const recursion_t recursion = {48, 10, 600};
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, descends, (void *)(uintptr_t)&recursion);
    aco_t *other = make_co(in, yields_for_ever, NULL);
    unsigned ct_growths = 0;
    while (!co->is_end) {
        size_t old_sz = co->save_stack.sz;
        aco_resume(co);
        aco_resume(other);
        size_t sz = co->save_stack.sz;
        assert_true(sz >= co->save_stack.valid_sz);
        if (sz != old_sz) {
            assert_true(sz >= old_sz + old_sz / 2);
            ct_growths++;
        }
    }
    assert_true(co->save_stack.sz >= 600 * 48);
    assert_true(co->save_stack.sz <= co->save_stack.max_cpsz * 3);
    assert_in_range(ct_growths, 2, 20);
    aco_destroy(co);
    aco_destroy(other);
}

#if STRESS
static void under_stress_every_eviction_moves_the_save_stack(void **state)
{
    aco_t *co = make_co((const instance_t *)*state, yields_for_ever, NULL);
    for (size_t i = 0; i < 10; i++) {
        const void *former = co->save_stack.ptr;
        aco_resume(co);
        assert_ptr_not_equal(co->save_stack.ptr, former);
    }
    aco_destroy(co);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(frames_of_every_small_size_come_back),
        instance_test(frames_around_pages_come_back),
        instance_test(frames_up_to_the_limit_of_the_stack_come_back),
        instance_test(frames_that_fill_the_stack_are_no_overrun),
        instance_test(a_save_stack_that_is_large_enough_stays_embedded),
        instance_test(deep_frames_come_back),
        instance_test(a_save_stack_that_is_too_small_becomes_a_block_of_its_own),
        instance_test(the_save_stack_grows_geometrically),
#if STRESS
        instance_test(under_stress_every_eviction_moves_the_save_stack),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
