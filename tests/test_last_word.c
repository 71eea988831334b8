// SPDX-License-Identifier: Apache-2.0
/*
 * An entry function that returns: the thread's last-word function runs, on the stack of the
 * offender and in its name, and then the process aborts.
 */
#include "harness.h"

#include <signal.h>

#define LAST_STATUS 7 /* by which a last word ends the child when all it looked at was right */

static void returns(void)
{
}

/* Returns with a stack pointer that has been elsewhere, and was evicted in between. */
static void yields_and_returns(void)
{
    aco_yield();
}

/* Set in the child before the coroutine runs. */
static const aco_t *offender;

static void says_something(void)
{
    static const char text[] = "aco: test: one more word\n";
    if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0) {
        _exit(1);
    }
}

/* Its frame must be an aligned one, or else what it calls may fault. */
static void looks_around(void)
{
    volatile long double aligned = 1;
    const char *here = (const char *)__builtin_frame_address(0);
    const aco_t *co = aco_get_co();
    const aco_share_stack_t *s = offender->share_stack;
    ESCAPE(&aligned);
    int is_right = co == offender && aco_get_arg() == co->arg && !co->is_end && s->owner == co &&
                   here >= (const char *)s->ptr && here < (const char *)s->align_highptr &&
                   ((uintptr_t)here + 2 * sizeof(void *)) % 16 == 0;
    _exit(is_right ? LAST_STATUS : 1);
}

static void says_nothing(void)
{
}

static void resume_offender(void *co)
{
    offender = (const aco_t *)co;
    aco_resume((aco_t *)co);
    aco_resume((aco_t *)co);
}

static void check_default_words(const instance_t *in, aco_cofuncp_t fp, aco_share_stack_t *stack)
{
    aco_t *co = aco_create(in->main_co, stack, 0, fp, NULL);
    const char *line = expect_abort(resume_offender, co, "aco_exit", "entry function returned");
    assert_names_ptr(line, co);
    assert_names_code(line, fp);
    aco_destroy(co);
}

static void the_default_names_coroutine_and_entry_function(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    check_default_words(in, returns, in->stack);
    check_default_words(in, yields_and_returns, in->stack);
}

static void the_default_fits_the_smallest_stack(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stack = aco_share_stack_new(4096);
    check_default_words(in, returns, stack);
    check_default_words(in, yields_and_returns, stack);
    aco_share_stack_destroy(stack);
}

static void resume_with_another_in_between(void *arg)
{
    aco_t **cos = (aco_t **)arg;
    aco_resume(cos[0]);
    aco_resume(cos[1]);
    aco_resume(cos[0]);
}

static void an_offender_that_was_saved_out_is_named_too(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *cos[2] = {make_co(in, yields_and_returns, NULL), make_co(in, yields_for_ever, NULL)};
    const char *line = expect_abort(resume_with_another_in_between, cos, "aco_exit", "returned");
    assert_names_ptr(line, cos[0]);
    aco_destroy(cos[0]);
    aco_destroy(cos[1]);
}

static void a_custom_one_runs_on_the_offender(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    static const aco_cofuncp_t offenders[] = {returns, yields_and_returns};
    for (size_t i = 0; i < ARRAY_SZ(offenders); i++) {
        int arg = 0;
        aco_t *co = make_co(in, offenders[i], &arg);
        aco_thread_init(looks_around);
        expect_exit(resume_offender, co, LAST_STATUS);
        aco_destroy(co);
    }
}

static void a_custom_one_has_the_last_word(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, returns, NULL);
    aco_thread_init(says_something);
    assert_non_null(strstr(expect_death(resume_offender, co, SIGABRT), "one more word"));
    aco_destroy(co);
}

static void one_that_returns_is_followed_by_abort(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, returns, NULL);
    aco_thread_init(says_nothing);
    expect_signal(resume_offender, co, SIGABRT);
    aco_destroy(co);
}

static void null_keeps_the_one_there_was(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, returns, NULL);
    aco_thread_init(looks_around);
    aco_thread_init(NULL);
    expect_exit(resume_offender, co, LAST_STATUS);
    aco_destroy(co);
}

static void the_last_one_set_counts(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, returns, NULL);
    aco_thread_init(says_nothing);
    aco_thread_init(looks_around);
    expect_exit(resume_offender, co, LAST_STATUS);
    aco_destroy(co);
}

/* The last word may end the coroutine after all. The stack must then be as good as before, the
 * protector's address included. */
static void one_that_exits_leaves_the_stack_intact(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_thread_init(aco_exit);
    for (int i = 0; i < 3; i++) {
        aco_t *co = make_co(in, yields_and_returns, NULL);
        aco_resume(co);
        assert_int_equal(co->is_end, 0);
        aco_resume(co);
        assert_int_equal(co->is_end, 1);
        assert_invariants(co);
        aco_destroy(co);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(the_default_names_coroutine_and_entry_function),
        instance_test(the_default_fits_the_smallest_stack),
        instance_test(an_offender_that_was_saved_out_is_named_too),
        instance_test(a_custom_one_runs_on_the_offender),
        instance_test(a_custom_one_has_the_last_word),
        instance_test(one_that_returns_is_followed_by_abort),
        instance_test(null_keeps_the_one_there_was),
        instance_test(the_last_one_set_counts),
        instance_test(one_that_exits_leaves_the_stack_intact),
    };
    return cmocka_run_group_tests_name("last word", tests, NULL, NULL);
}
