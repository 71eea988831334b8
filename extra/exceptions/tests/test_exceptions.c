// SPDX-License-Identifier: Apache-2.0
/*
 * Exceptions of a mock C++ runtime that is one variable: whose exceptions it holds after each call
 * of aco_exceptions.h, and while coroutines are cancelled. test_exceptions.sh and test_cancel.sh
 * throw real ones.
 */
// build: -fexceptions
#include "extra/cancel/aco_cancel.h"
#include "extra/exceptions/aco_exceptions.h"
#include "tests/harness.h"

/* The exceptions of the thread. Number `i` stands for `i` uncaught ones. */
static aco_exceptions_t current;

aco_exceptions_t *__cxa_get_globals(void);
aco_exceptions_t *__cxa_get_globals(void)
{
    return &current;
}

static aco_exceptions_t number(unsigned i)
{
    static char things[10];
    aco_exceptions_t exceptions;
    memset(&exceptions, 0, sizeof(exceptions));
    exceptions.caught = i != 0 ? &things[i] : NULL;
    exceptions.ct_uncaught = i;
    return exceptions;
}

static int is(const aco_exceptions_t *exceptions, unsigned i)
{
    aco_exceptions_t expected = number(i);
    return exceptions->caught == expected.caught && exceptions->ct_uncaught == i;
}

/* ==== Kept by the calls ======================================================================= */

static void leaving_takes_them_and_entering_brings_others(void **state)
{
    aco_exceptions_t mine = number(1), others = number(2);
    (void)state;
    current = number(3);
    aco_exceptions_leave(&mine);
    assert_true(is(&mine, 3) && is(&current, 0));
    current = number(4);
    aco_exceptions_enter(&others);
    assert_true(is(&others, 2) && is(&current, 2));
    aco_exceptions_enter(&mine);
    assert_true(is(&mine, 3) && is(&current, 3));
}

static void handles_some_of_its_own(void)
{
    CO_CHECK(is(&current, 0));
    for (unsigned i = 5; i < 8; i++) {
        current = number(i);
        aco_exceptions_yield();
        CO_CHECK(is(&current, i));
    }
    current = number(0);
    aco_exit();
}

static void each_coroutine_has_its_own(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *cos[] = {make_co(in, handles_some_of_its_own, NULL),
                    make_co(in, handles_some_of_its_own, NULL)};
    for (unsigned i = 0; !cos[1]->is_end; i++) {
        current = number(i % 4);
        aco_exceptions_resume(cos[i % 2]);
        assert_true(is(&current, i % 4));
    }
    aco_destroy(cos[0]);
    aco_destroy(cos[1]);
    assert_co_checks();
}

/* A caller that handles no exception may use aco_resume(). */
static void a_plain_resume_finds_none_afterwards(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, handles_some_of_its_own, NULL);
    current = number(0);
    while (!co->is_end) {
        aco_resume(co);
        assert_true(is(&current, 0));
    }
    aco_destroy(co);
    assert_co_checks();
}

/* ==== While coroutines are cancelled ========================================================== */

/* A coroutine with two cleanups: its orders, and what it saw. */
typedef struct {
    unsigned seen[2]; /* uncaught ones when the inner cleanup begins, and the outer */
    aco_t *to_cancel; /* resumed and cancelled by the inner one, or NULL */
    int yields;       /* the inner one, before all else */
} order_t;

static void clean_up_last(order_t **order)
{
    (*order)->seen[1] = current.ct_uncaught;
}

/* Increments the count, as the `throw;` of a handler that lets the cancellation pass. */
static void clean_up_first(order_t **order)
{
    if ((*order)->yields) {
        aco_yield();
    }
    (*order)->seen[0] = current.ct_uncaught;
    if ((*order)->to_cancel != NULL) {
        aco_resume((*order)->to_cancel);
        CO_CHECK(aco_cancel((*order)->to_cancel));
    }
    current.ct_uncaught++;
}

static NOINLINE void yield_below_cleanup(order_t *order)
{
    __attribute__((cleanup(clean_up_first))) order_t *first = order;
    aco_yield();
    ESCAPE(&first);
}

static void has_cleanups(void)
{
    __attribute__((cleanup(clean_up_last))) order_t *last = (order_t *)aco_get_arg();
    yield_below_cleanup(last);
    aco_exit();
}

static void those_of_the_caller_are_hidden_and_come_back(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    order_t order = {{9, 9}, NULL, 0};
    aco_t *co = make_co(in, has_cleanups, &order);
    aco_resume(co);
    current = number(2);
    assert_int_equal(aco_cancel(co), 1);
    assert_true(is(&current, 2));
    assert_int_equal(order.seen[0], 0);
    assert_int_equal(order.seen[1], 0);
    aco_destroy(co);
}

/* It is not, even if a plain call continues the coroutine, and it cancelled another meanwhile. */
static void a_cancellation_that_passes_is_not_counted(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    order_t orders[] = {{{9, 9}, NULL, 1}, {{9, 9}, NULL, 0}};
    aco_t *co = make_co(in, has_cleanups, &orders[0]);
    orders[0].to_cancel = aco_create(co, aco_share_stack_new(0), 0, has_cleanups, &orders[1]);
    aco_resume(co);
    assert_int_equal(aco_cancel(co), 0);
    orders[0].yields = 0;
    current = number(3);
    aco_resume(co);
    assert_int_equal(co->is_end, 1);
    assert_true(is(&current, 3));
    assert_int_equal(orders[0].seen[0], 3);
    assert_int_equal(orders[0].seen[1], 3);
    aco_share_stack_t *stack = orders[0].to_cancel->share_stack;
    aco_destroy(orders[0].to_cancel);
    aco_share_stack_destroy(stack);
    aco_destroy(co);
    assert_co_checks();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(leaving_takes_them_and_entering_brings_others),
        instance_test(each_coroutine_has_its_own),
        instance_test(a_plain_resume_finds_none_afterwards),
        instance_test(those_of_the_caller_are_hidden_and_come_back),
        instance_test(a_cancellation_that_passes_is_not_counted),
    };
    return cmocka_run_group_tests_name("exceptions", tests, NULL, NULL);
}
