// SPDX-License-Identifier: Apache-2.0
/*
 * A coroutine that has its share stack to itself is never copied, whatever it and others do.
 */
#include "harness.h"

#define DEPTH 40
#define ROUNDS 20

/* Under ACO_CONFIG_STRESS every coroutine is copied: there only what they keep is checked. */
static void check_never_copied(const aco_t *co)
{
    if (STRESS) {
        return;
    }
    assert_int_equal(co->save_stack.ct_save, 0);
    assert_int_equal(co->save_stack.ct_restore, 0);
    assert_int_equal(co->save_stack.max_cpsz, 0);
    assert_int_equal(co->save_stack.valid_sz, 0);
    assert_true(is_save_stack_embedded(co));
    assert_true(co->is_owner != co->is_end);
}

static NOINLINE void recurse(uint32_t seed, int depth)
{
    unsigned char data[200];
    fill_from_seed(data, sizeof(data), seed);
    aco_yield();
    if (depth > 1) {
        recurse(seed + 1, depth - 1);
    }
    aco_yield();
    CO_CHECK(is_from_seed(data, sizeof(data), seed));
}

static void recurses_and_returns(void)
{
    uint32_t seed = (uint32_t)(uintptr_t)aco_get_arg();
    for (int round = 0; round < ROUNDS; round++) {
        recurse(seed, DEPTH);
    }
    aco_exit();
}

static void a_standalone_coroutine_is_never_copied(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, recurses_and_returns, NULL);
    unsigned ct = 0;
    while (!co->is_end) {
        aco_resume(co);
        ct++;
        check_never_copied(co);
        assert_invariants(co);
    }
    assert_int_equal(ct, ROUNDS * DEPTH * 2 + 1);
    aco_destroy(co);
}

static void several_standalone_coroutines_are_never_copied(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stacks[5];
    aco_t *cos[ARRAY_SZ(stacks)];
    for (size_t i = 0; i < ARRAY_SZ(stacks); i++) {
        stacks[i] = aco_share_stack_new(65536);
        cos[i] = aco_create(in->main_co, stacks[i], 0, recurses_and_returns,
                            (void *)(uintptr_t)(i * 1000));
    }
    while (!cos[0]->is_end) {
        for (size_t i = 0; i < ARRAY_SZ(stacks); i++) {
            aco_resume(cos[i]);
            check_never_copied(cos[i]);
        }
    }
    for (size_t i = 0; i < ARRAY_SZ(stacks); i++) {
        assert_int_equal(cos[i]->is_end, 1);
        aco_destroy(cos[i]);
        aco_share_stack_destroy(stacks[i]);
    }
}

/* Eviction is lazy: to be created on a stack, or destroyed, is no need of it. */
static void coroutines_that_are_never_resumed_evict_nobody(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, recurses_and_returns, NULL);
    aco_t *others[3];
    aco_resume(co);
    for (size_t i = 0; i < ARRAY_SZ(others); i++) {
        others[i] = make_co(in, ends_at_once, NULL);
    }
    aco_resume(co);
    check_never_copied(co);
    for (size_t i = 0; i < ARRAY_SZ(others); i++) {
        aco_destroy(others[i]);
    }
    aco_resume(co);
    check_never_copied(co);
    aco_destroy(co);
}

static void coroutines_that_follow_each_other_on_a_stack_are_never_copied(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (int i = 0; i < 5; i++) {
        aco_t *co = make_co(in, recurses_and_returns, NULL);
        while (!co->is_end) {
            aco_resume(co);
            check_never_copied(co);
        }
        assert_null(in->stack->owner);
        aco_destroy(co);
    }
}

/* The one test that has nothing to say where every yield evicts. */
static void the_usual_build_counts_no_copies(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    if (STRESS) {
        skip();
    }
    aco_t *co = make_co(in, yields_for_ever, NULL);
    for (int i = 0; i < 1000; i++) {
        aco_resume(co);
    }
    assert_int_equal(co->save_stack.ct_save, 0);
    assert_int_equal(co->save_stack.ct_restore, 0);
    aco_destroy(co);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(a_standalone_coroutine_is_never_copied),
        instance_test(several_standalone_coroutines_are_never_copied),
        instance_test(coroutines_that_are_never_resumed_evict_nobody),
        instance_test(coroutines_that_follow_each_other_on_a_stack_are_never_copied),
        instance_test(the_usual_build_counts_no_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
