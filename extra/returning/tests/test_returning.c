// SPDX-License-Identifier: Apache-2.0
/*
 * Returning from the entry function: ends a coroutine after aco_return_ends(), like aco_exit(), and
 * is an error for all others.
 */
// build: -fexceptions
#include "extra/cancel/aco_cancel.h"
#include "extra/returning/aco_returning.h"
#include "tests/harness.h"

/* The number of its yields, and the way it ends. */
typedef struct {
    int ct_yields;
    int exits;
    int ct_starts;
    int ct_cleaned;
} order_t;

static void count_cleaned(order_t **order)
{
    (*order)->ct_cleaned++;
}

static void yields_and_returns(void)
{
    order_t *order __attribute__((cleanup(count_cleaned))) = (order_t *)aco_get_arg();
    unsigned char data[100];
    order->ct_starts++;
    for (int i = 0; i < order->ct_yields; i++) {
        fill_from_seed(data, sizeof(data), (uint32_t)i);
        aco_yield();
        CO_CHECK(is_from_seed(data, sizeof(data), (uint32_t)i));
        CO_CHECK(aco_get_co()->fp == yields_and_returns);
    }
    if (order->exits) {
        order->ct_cleaned++;
        aco_exit();
    }
}

static void returns_at_once(void)
{
}

static void assert_has_ended(const aco_t *co)
{
    assert_int_equal(co->is_end, 1);
    assert_int_equal(aco_status(co), ACO_STATUS_END);
    assert_null(co->share_stack->owner);
    assert_ptr_equal(aco_get_co(), co->main_co);
    assert_invariants(co);
    assert_co_checks();
}

static void run_to_the_end(aco_t *co, aco_t *evictor)
{
    order_t *order = (order_t *)co->arg;
    order->ct_starts = order->ct_cleaned = 0;
    for (int i = 0; i <= order->ct_yields; i++) {
        assert_int_equal(co->is_end, 0);
        aco_resume(evictor);
        assert_invariants(co);
        aco_resume(co);
        assert_int_equal(order->ct_starts, 1);
    }
    assert_int_equal(order->ct_cleaned, 1);
    assert_has_ended(co);
}

/* ==== Ends ==================================================================================== */

static void it_ends_by_return_or_exit(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *evictor = make_co(in, yields_for_ever, NULL);
    for (int ct_yields = 0; ct_yields < 4; ct_yields++) {
        for (int exits = 0; exits <= 1; exits++) {
            order_t order = {ct_yields, exits, 0, 0};
            aco_t *co = make_co(in, yields_and_returns, &order);
            assert_ptr_equal(aco_return_ends(co), co);
            assert_int_equal(aco_status(co), ACO_STATUS_INIT);
            assert_invariants(co);
            run_to_the_end(co, evictor);
            aco_destroy(co);
        }
    }
    aco_destroy(evictor);
}

static void an_empty_function_is_enough(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = aco_return_ends(make_co(in, returns_at_once, NULL));
    aco_resume(co);
    assert_has_ended(co);
    aco_destroy(co);
}

static void it_may_be_cancelled(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    order_t order = {1, 0, 0, 0};
    aco_t *co = aco_return_ends(make_co(in, yields_and_returns, &order));
    aco_resume(co);
    assert_int_equal(aco_cancel(co), 1);
    assert_int_equal(order.ct_cleaned, 1);
    assert_has_ended(co);
    aco_reset(co, yields_and_returns, &order);
    assert_int_equal(aco_cancel(aco_return_ends(co)), 1);
    assert_int_equal(order.ct_starts, 1);
    assert_has_ended(co);
    aco_destroy(co);
}

static void it_may_be_destroyed_in_every_state(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (int ct_resumes = 0; ct_resumes <= 2; ct_resumes++) {
        order_t order = {1, 0, 0, 0};
        aco_t *co = aco_return_ends(make_co(in, yields_and_returns, &order));
        for (int i = 0; i < ct_resumes; i++) {
            aco_resume(co);
        }
        aco_destroy(co);
    }
}

/* ==== Resets ================================================================================== */

static void resume(void *co)
{
    aco_resume((aco_t *)co);
}

static void by_default_it_is_an_error(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, returns_at_once, NULL);
    aco_t *other = aco_return_ends(make_co(in, returns_at_once, NULL));
    expect_abort(resume, co, "aco_exit", "returned");
    aco_resume(other);
    expect_abort(resume, co, "aco_exit", "returned");
    aco_destroy(co);
    aco_destroy(other);
}

static void a_reset_takes_it_back(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    order_t order = {2, 0, 0, 0};
    aco_t *evictor = make_co(in, yields_for_ever, NULL);
    aco_t *co = aco_return_ends(make_co(in, returns_at_once, NULL));
    aco_resume(co);
    aco_reset(co, returns_at_once, NULL);
    expect_abort(resume, co, "aco_exit", "returned");
    for (int i = 0; i < 3; i++) {
        aco_reset(co, yields_and_returns, &order);
        run_to_the_end(aco_return_ends(co), evictor);
    }
    aco_destroy(co);
    aco_destroy(evictor);
}

/* ==== Misuse ================================================================================== */

static void ask(void *co)
{
    aco_return_ends((aco_t *)co);
}

static void asks_for_itself(void)
{
    ask(aco_get_co());
    aco_exit();
}

static void it_is_asked_for_before_the_first_resume(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    order_t order = {1, 0, 0, 0};
    aco_t *co = make_co(in, yields_and_returns, &order);
    aco_t *asking = make_co(in, asks_for_itself, NULL);
    expect_abort(ask, NULL, "aco_return_ends", "NULL");
    expect_abort(ask, in->main_co, "aco_return_ends", "not in state init");
    expect_abort(resume, asking, "aco_return_ends", "not in state init");
    aco_resume(co);
    expect_abort(ask, co, "aco_return_ends", "not in state init");
    aco_destroy(co);
    co = make_co(in, ends_at_once, NULL);
    aco_resume(co);
    expect_abort(ask, co, "aco_return_ends", "not in state init");
    aco_destroy(co);
    aco_destroy(asking);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(it_ends_by_return_or_exit),
        instance_test(an_empty_function_is_enough),
        instance_test(it_may_be_cancelled),
        instance_test(it_may_be_destroyed_in_every_state),
        instance_test(by_default_it_is_an_error),
        instance_test(a_reset_takes_it_back),
        instance_test(it_is_asked_for_before_the_first_resume),
    };
    return cmocka_run_group_tests_name("returning", tests, NULL, NULL);
}
