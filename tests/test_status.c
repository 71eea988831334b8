// SPDX-License-Identifier: Apache-2.0
/*
 * aco_status() of coroutines in every state, asked by main, by themselves, by others and by their
 * children; it follows what a program does to a coroutine by hand.
 */
#include "harness.h"

static void asks_about_itself(void)
{
    aco_t *self = aco_get_co();
    CO_CHECK(aco_status(self) == ACO_STATUS_RUNNING);
    CO_CHECK(aco_status(self->main_co) == ACO_STATUS_RUNNING);
    aco_yield();
    CO_CHECK(aco_status(self) == ACO_STATUS_RUNNING);
    aco_exit();
}

static void from_init_to_end(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, asks_about_itself, NULL);
    assert_int_equal(aco_status(co), ACO_STATUS_INIT);
    aco_resume(co);
    assert_int_equal(aco_status(co), ACO_STATUS_SUSPENDED);
    aco_resume(co);
    assert_int_equal(aco_status(co), ACO_STATUS_END);
    aco_destroy(co);
}

static void saved_out_is_suspended(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, yields_for_ever, NULL);
    aco_t *other = make_co(in, yields_for_ever, NULL);
    aco_resume(co);
    aco_resume(other);
    assert_int_equal(co->is_owner, 0);
    assert_int_equal(aco_status(co), ACO_STATUS_SUSPENDED);
    aco_destroy(co);
    aco_destroy(other);
}

static void reset_is_init_again(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, asks_about_itself, NULL);
    for (int ct_resumes = 0; ct_resumes <= 2; ct_resumes++) {
        for (int i = 0; i < ct_resumes; i++) {
            aco_resume(co);
        }
        aco_reset(co, asks_about_itself, NULL);
        assert_int_equal(aco_status(co), ACO_STATUS_INIT);
    }
    aco_resume(co);
    co->reg[ACO_REG_IDX_RETADDR] = (void *)(uintptr_t)co->fp;
    co->reg[ACO_REG_IDX_SP] = co->share_stack->align_retptr;
    co->save_stack.valid_sz = 0;
    assert_int_equal(aco_status(co), ACO_STATUS_INIT);
    aco_destroy(co);
}

/* The status of main: it runs as soon as it is known, that is, once it has resumed. */
static void a_main_coroutine_runs_from_its_first_resume_on(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *another = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_t *co = make_co(in, yields_for_ever, NULL);
    assert_int_equal(aco_status(in->main_co), ACO_STATUS_SUSPENDED);
    aco_resume(co);
    assert_int_equal(aco_status(in->main_co), ACO_STATUS_RUNNING);
    assert_int_equal(aco_status(another), ACO_STATUS_SUSPENDED);
    aco_t *its = aco_create(another, in->stack, 0, yields_for_ever, NULL);
    aco_resume(its);
    assert_int_equal(aco_status(in->main_co), ACO_STATUS_SUSPENDED);
    assert_int_equal(aco_status(another), ACO_STATUS_RUNNING);
    aco_destroy(its);
    aco_destroy(co);
    aco_destroy(another);
}

/* Statuses that the lowest of three finds. */
static struct {
    aco_t *parent, *child, *sibling, *init, *ended;
} family;

static void asks_about_its_family(void)
{
    CO_CHECK(aco_status(aco_get_co()) == ACO_STATUS_RUNNING);
    CO_CHECK(aco_status(family.parent) == ACO_STATUS_RUNNING);
    CO_CHECK(aco_status(family.parent->main_co) == ACO_STATUS_RUNNING);
    CO_CHECK(aco_status(family.sibling) == ACO_STATUS_SUSPENDED);
    CO_CHECK(aco_status(family.init) == ACO_STATUS_INIT);
    CO_CHECK(aco_status(family.ended) == ACO_STATUS_END);
    aco_yield();
    aco_exit();
}

static void has_children(void)
{
    aco_resume(family.sibling);
    aco_resume(family.ended);
    aco_resume(family.child);
    CO_CHECK(aco_status(family.child) == ACO_STATUS_SUSPENDED);
    CO_CHECK(aco_status(family.parent) == ACO_STATUS_RUNNING);
    aco_yield();
    aco_exit();
}

static void those_that_wait_for_one_they_resumed_are_running(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stack = aco_share_stack_new(0);
    family.parent = make_co(in, has_children, NULL);
    family.child = aco_create(family.parent, stack, 0, asks_about_its_family, NULL);
    family.sibling = aco_create(family.parent, stack, 0, yields_for_ever, NULL);
    family.init = aco_create(family.parent, stack, 0, yields_for_ever, NULL);
    family.ended = aco_create(family.parent, stack, 0, ends_at_once, NULL);
    aco_resume(family.parent);
    assert_int_equal(aco_status(family.parent), ACO_STATUS_SUSPENDED);
    assert_int_equal(aco_status(family.child), ACO_STATUS_SUSPENDED);
    assert_co_checks();
    aco_destroy(family.ended);
    aco_destroy(family.init);
    aco_destroy(family.sibling);
    aco_destroy(family.child);
    aco_destroy(family.parent);
    aco_share_stack_destroy(stack);
}

static void switches_directly(void)
{
    aco_yield_to((aco_t *)aco_get_arg());
    aco_exit();
}

static void looks_back(void)
{
    aco_t *from = (aco_t *)aco_get_arg();
    CO_CHECK(aco_status(from) == ACO_STATUS_SUSPENDED);
    CO_CHECK(aco_status(aco_get_co()) == ACO_STATUS_RUNNING);
    aco_exit();
}

static void one_that_switched_directly_is_suspended(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stack = aco_share_stack_new(0);
    for (int is_sharing = 0; is_sharing <= 1; is_sharing++) {
        aco_t *from = make_co(in, switches_directly, NULL);
        aco_t *to = aco_create(in->main_co, is_sharing ? in->stack : stack, 0, looks_back, from);
        from->arg = to;
        aco_resume(from);
        assert_int_equal(aco_status(from), ACO_STATUS_SUSPENDED);
        assert_int_equal(aco_status(to), ACO_STATUS_END);
        assert_co_checks();
        aco_destroy(from);
        aco_destroy(to);
    }
    aco_share_stack_destroy(stack);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(from_init_to_end),
        instance_test(saved_out_is_suspended),
        instance_test(reset_is_init_again),
        instance_test(a_main_coroutine_runs_from_its_first_resume_on),
        instance_test(those_that_wait_for_one_they_resumed_are_running),
        instance_test(one_that_switched_directly_is_suspended),
    };
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
