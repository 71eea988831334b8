// SPDX-License-Identifier: Apache-2.0
/*
 * The end of a share stack: the guard page faults when it is touched, running off the stack by
 * recursion is a SIGSEGV, and without a guard an owner that has overrun its stack is found out when
 * it is evicted, if not before.
 */
#include "harness.h"

#include <signal.h>

#define FRAME_SZ 512u    /* bytes; less than a page, so that no frame steps over the guard */
#define DECLARED_SZ 8192 /* bytes of a stack of which the rest is declared not to be there */

static void the_guard_page_faults_and_what_is_above_does_not(void **state)
{
    static const size_t sizes[] = {0, 1, 4096, 5000, 8192, 100000};
    (void)state;
    for (size_t i = 0; i < ARRAY_SZ(sizes); i++) {
        aco_share_stack_t *stack = aco_share_stack_new2(sizes[i], 1);
        expect_signal(write_below, stack, SIGSEGV);
        expect_signal(write_at_start_of_guard, stack, SIGSEGV);
        expect_exit(write_lowest, stack, 0);
        aco_share_stack_destroy(stack);
    }
}

static void an_unguarded_stack_has_no_guard_page(void **state)
{
    (void)state;
    aco_share_stack_t *stack = aco_share_stack_new2(10000, 0);
    assert_ptr_equal(stack->real_ptr, stack->ptr);
    expect_exit(write_lowest, stack, 0);
    aco_share_stack_destroy(stack);
}

/* The sum is used after the call, so that this is no loop. */
static NOINLINE unsigned recurse(unsigned depth)
{
    unsigned char data[FRAME_SZ];
    memset(data, (int)depth, sizeof(data));
    ESCAPE(data);
    return data[depth % FRAME_SZ] + (depth == 0 ? 0 : recurse(depth - 1));
}

static void recurses_for_ever(void)
{
    unsigned sum = recurse((unsigned)-1);
    ESCAPE(&sum);
    aco_exit();
}

static void recurses_as_far_as_it_goes(void)
{
    const aco_share_stack_t *s = aco_get_co()->share_stack;
    unsigned sum = recurse((unsigned)(s->align_limit / (2 * FRAME_SZ)));
    ESCAPE(&sum);
    aco_exit();
}

static void resume(void *co)
{
    aco_resume((aco_t *)co);
}

static void running_off_a_guarded_stack_is_a_segmentation_fault(void **state)
{
    static const size_t sizes[] = {0, 4096, 20000, (size_t)1 << 20};
    const instance_t *in = (const instance_t *)*state;
    for (size_t i = 0; i < ARRAY_SZ(sizes); i++) {
        aco_share_stack_t *stack = aco_share_stack_new(sizes[i]);
        aco_t *co = aco_create(in->main_co, stack, 0, recurses_for_ever, NULL);
        expect_signal(resume, co, SIGSEGV);
        aco_destroy(co);
        co = aco_create(in->main_co, stack, 0, recurses_as_far_as_it_goes, NULL);
        aco_resume(co);
        assert_int_equal(co->is_end, 1);
        aco_destroy(co);
        aco_share_stack_destroy(stack);
    }
}

/* ==== Overruns without a guard ================================================================ */

static void yields_below_the_stack(void)
{
    unsigned char data[2 * DECLARED_SZ];
    memset(data, 1, sizeof(data));
    ESCAPE(data);
    aco_yield();
    ESCAPE(data);
    aco_exit();
}

static void resume_both(void *arg)
{
    aco_t **cos = (aco_t **)arg;
    aco_resume(cos[0]);
    aco_resume(cos[1]);
}

/* Declares a large stack to be a small one, so that the overrun meets memory of its own. */
static void check_overrun(const instance_t *in, size_t save_stack_sz)
{
    aco_share_stack_t *stack = aco_share_stack_new2(16 * DECLARED_SZ, 0);
    const aco_share_stack_t as_made = *stack;
    size_t excess = stack->sz - DECLARED_SZ;
    stack->ptr = (char *)stack->ptr + excess;
    stack->sz -= excess;
    stack->align_limit -= excess;
    aco_t *cos[2] = {aco_create(in->main_co, stack, save_stack_sz, yields_below_the_stack, NULL),
                     aco_create(in->main_co, stack, 0, ends_at_once, NULL)};
    const char *line = expect_abort(resume_both, cos, "aco_resume", "overrun");
    assert_names_ptr(line, cos[0]);
    aco_destroy(cos[0]);
    aco_destroy(cos[1]);
    *stack = as_made;
    aco_share_stack_destroy(stack);
}

static void an_owner_that_has_overrun_its_stack_is_named_when_evicted(void **state)
{
    check_overrun((const instance_t *)*state, 0);
}

static void a_save_stack_that_could_hold_an_overrun_does_not_hide_it(void **state)
{
    check_overrun((const instance_t *)*state, 16 * DECLARED_SZ);
}

static void set_sp_above_the_stack(void *arg)
{
    aco_t **cos = (aco_t **)arg;
    aco_resume(cos[0]);
    cos[0]->reg[ACO_REG_IDX_SP] = cos[0]->share_stack->align_highptr;
    aco_resume(cos[1]);
}

static void an_owner_whose_sp_is_above_its_stack_is_named_too(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    if (STRESS) {
        skip(); /* it is evicted before its SP can be changed */
    }
    aco_t *cos[2] = {make_co(in, yields_for_ever, NULL), make_co(in, ends_at_once, NULL)};
    const char *line = expect_abort(set_sp_above_the_stack, cos, "aco_resume", "overrun");
    assert_names_ptr(line, cos[0]);
    aco_destroy(cos[0]);
    aco_destroy(cos[1]);
}

/* As in libaco, where programs read it. */
static void a_guard_page_may_be_read(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    assert_int_equal(*(const volatile char *)in->stack->real_ptr, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(a_guard_page_may_be_read),
        instance_test(the_guard_page_faults_and_what_is_above_does_not),
        instance_test(an_unguarded_stack_has_no_guard_page),
        instance_test(running_off_a_guarded_stack_is_a_segmentation_fault),
        instance_test(an_owner_that_has_overrun_its_stack_is_named_when_evicted),
        instance_test(a_save_stack_that_could_hold_an_overrun_does_not_hide_it),
        instance_test(an_owner_whose_sp_is_above_its_stack_is_named_too),
    };
    return cmocka_run_group_tests_name("guard page", tests, NULL, NULL);
}
