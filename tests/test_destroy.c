// SPDX-License-Identifier: Apache-2.0
/*
 * Destroying a coroutine in every state, by main and by another coroutine, and what is left: a
 * share stack that others go on using, and a thread that can start again.
 */
#include "harness.h"

static void yields_twice_with_data(void)
{
    int *result = (int *)aco_get_arg();
    unsigned char data[300];
    for (uint32_t i = 0; i < 2; i++) {
        fill_from_seed(data, sizeof(data), i);
        aco_yield();
        CO_CHECK(is_from_seed(data, sizeof(data), i));
    }
    *result += 1;
    aco_exit();
}

/* Two new coroutines on the stack of the instance must work, whatever happened to it before. */
static void use_stack(const instance_t *in)
{
    int result = 0;
    aco_t *cos[2] = {make_co(in, yields_twice_with_data, &result),
                     make_co(in, yields_twice_with_data, &result)};
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < ARRAY_SZ(cos); i++) {
            aco_resume(cos[i]);
            assert_invariants(cos[0]);
            assert_invariants(cos[1]);
        }
    }
    assert_int_equal(result, 2);
    for (size_t i = 0; i < ARRAY_SZ(cos); i++) {
        aco_destroy(cos[i]);
    }
    assert_null(in->stack->owner);
    assert_int_equal(in->stack->ct_coroutines, 0);
}

static void in_state_init(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_destroy(make_co(in, yields_for_ever, NULL));
    use_stack(in);
}

static void in_state_init_while_another_owns_the_stack(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    int result = 0;
    aco_t *owner = make_co(in, yields_twice_with_data, &result);
    aco_resume(owner);
    aco_destroy(make_co(in, yields_for_ever, NULL));
    assert_invariants(owner);
    assert_int_equal(owner->is_owner, !STRESS);
    aco_resume(owner);
    aco_resume(owner);
    assert_int_equal(result, 1);
    aco_destroy(owner);
    use_stack(in);
}

static void while_it_owns_the_stack(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, yields_for_ever, NULL);
    aco_resume(co);
    assert_ptr_equal(in->stack->owner, STRESS ? NULL : co);
    aco_destroy(co);
    assert_null(in->stack->owner);
    use_stack(in);
}

static void while_it_is_saved_out(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    int result = 0;
    aco_t *co = make_co(in, yields_for_ever, NULL);
    aco_t *owner = make_co(in, yields_twice_with_data, &result);
    aco_resume(co);
    aco_resume(owner);
    assert_true(co->save_stack.valid_sz != 0);
    aco_destroy(co);
    assert_invariants(owner);
    assert_int_equal(owner->is_owner, !STRESS);
    aco_resume(owner);
    aco_resume(owner);
    assert_int_equal(result, 1);
    aco_destroy(owner);
    use_stack(in);
}

static void when_it_has_ended(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    int result = 0;
    aco_t *co = make_co(in, ends_at_once, NULL);
    aco_t *owner = make_co(in, yields_twice_with_data, &result);
    aco_resume(co);
    assert_int_equal(co->is_end, 1);
    aco_resume(owner);
    aco_destroy(co);
    assert_invariants(owner);
    aco_resume(owner);
    aco_resume(owner);
    assert_int_equal(result, 1);
    aco_destroy(owner);
    use_stack(in);
}

static void with_a_save_stack_that_has_grown(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    int result = 0;
    aco_t *co = aco_create(in->main_co, in->stack, 1, yields_twice_with_data, &result);
    aco_t *owner = make_co(in, yields_for_ever, NULL);
    aco_resume(co);
    aco_resume(owner);
    assert_true(co->blocks & ACO_BLOCK_SAVE_STACK);
    aco_destroy(co);
    aco_destroy(owner);
    use_stack(in);
}

static void destroys_its_argument(void)
{
    aco_destroy((aco_t *)aco_get_arg());
    aco_exit();
}

static void by_another_coroutine(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stack = aco_share_stack_new(0);
    for (int same_stack = 0; same_stack <= 1; same_stack++) {
        for (int is_started = 0; is_started <= 1; is_started++) {
            aco_t *co = aco_create(in->main_co, same_stack ? in->stack : stack, 0, yields_for_ever,
                                   NULL);
            aco_t *other = make_co(in, destroys_its_argument, co);
            if (is_started) {
                aco_resume(co);
            }
            aco_resume(other);
            assert_int_equal(other->is_end, 1);
            aco_destroy(other);
            assert_null(stack->owner);
            assert_int_equal(stack->ct_coroutines, 0);
            use_stack(in);
        }
    }
    aco_share_stack_destroy(stack);
}

static void the_main_coroutine_leaves_a_thread_that_can_start_again(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        instance_t in;
        int result = 0;
        aco_thread_init(NULL);
        in.main_co = aco_create(NULL, NULL, 0, NULL, NULL);
        in.stack = aco_share_stack_new(0);
        assert_null(aco_get_co());
        aco_t *co = make_co(&in, yields_twice_with_data, &result);
        aco_resume(co);
        assert_ptr_equal(aco_get_co(), in.main_co);
        aco_destroy(co);
        aco_share_stack_destroy(in.stack);
        aco_destroy(in.main_co);
        assert_null(aco_get_co());
    }
}

static void a_main_coroutine_that_never_resumed(void **state)
{
    (void)state;
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_destroy(main_co);
    assert_null(aco_get_co());
}

/* A coroutine that can't be resumed any more can still be destroyed, in every state but running. */
static void the_main_coroutine_before_its_coroutines(void **state)
{
    instance_t in;
    aco_t *cos[4];
    (void)state;
    aco_thread_init(NULL);
    in.main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    in.stack = aco_share_stack_new(0);
    for (size_t i = 0; i < ARRAY_SZ(cos); i++) {
        cos[i] = make_co(&in, i == 0 ? ends_at_once : yields_for_ever, NULL);
    }
    aco_resume(cos[0]);
    aco_resume(cos[1]);
    aco_resume(cos[2]);
    aco_destroy(in.main_co);
    assert_null(aco_get_co());
    for (size_t i = 0; i < ARRAY_SZ(cos); i++) {
        aco_destroy(cos[i]);
    }
    assert_null(in.stack->owner);
    aco_share_stack_destroy(in.stack);
}

/* The main coroutine that a thread does not use goes without a trace. */
static void a_main_coroutine_that_another_has_replaced(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *mains[] = {aco_create(NULL, NULL, 0, NULL, NULL), aco_create(NULL, NULL, 0, NULL, NULL)};
    aco_t *cos[ARRAY_SZ(mains)];
    for (size_t i = 0; i < ARRAY_SZ(mains); i++) {
        cos[i] = aco_create(mains[i], in->stack, 0, yields_for_ever, NULL);
        aco_resume(cos[i]);
    }
    assert_ptr_equal(aco_get_co(), mains[1]);
    for (size_t i = 0; i < ARRAY_SZ(mains); i++) { /* each while the other one is current */
        aco_t *unused = aco_create(NULL, NULL, 0, NULL, NULL), *current = mains[!i];
        aco_resume(cos[!i]);
        aco_destroy(unused);
        assert_ptr_equal(aco_get_co(), current);
    }
    aco_resume(cos[1]);
    aco_destroy(cos[0]);
    aco_destroy(mains[0]);
    assert_ptr_equal(aco_get_co(), mains[1]);
    aco_resume(cos[1]);
    assert_ptr_equal(aco_get_co(), mains[1]);
    aco_destroy(cos[1]);
    aco_destroy(mains[1]);
    assert_null(aco_get_co());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(in_state_init),
        instance_test(in_state_init_while_another_owns_the_stack),
        instance_test(while_it_owns_the_stack),
        instance_test(while_it_is_saved_out),
        instance_test(when_it_has_ended),
        instance_test(with_a_save_stack_that_has_grown),
        instance_test(by_another_coroutine),
        cmocka_unit_test(the_main_coroutine_leaves_a_thread_that_can_start_again),
        cmocka_unit_test(a_main_coroutine_that_never_resumed),
        cmocka_unit_test(the_main_coroutine_before_its_coroutines),
        instance_test(a_main_coroutine_that_another_has_replaced),
    };
    return cmocka_run_group_tests_name("destroy", tests, NULL, NULL);
}
