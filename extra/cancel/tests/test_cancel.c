// SPDX-License-Identifier: Apache-2.0
/*
 * Cancellation in C: however a coroutine was suspended and wherever its frames lie, its cleanups
 * run once each, innermost first, with its own locals and control words; then it has ended like any
 * other. A cleanup that yields continues when the coroutine is resumed.
 */
// build: -fexceptions tests/no_inline.c
#include "extra/cancel/aco_cancel.h"
#include "tests/harness.h"
#include "tests/no_inline.h"

#include <fenv.h>
#include <pthread.h>

#define DEPTH 3
#define DATA_SZ 150 /* bytes in each frame */

/* ==== A coroutine with cleanups =============================================================== */

/* Orders for a coroutine, and what its cleanups saw. */
typedef struct {
    void (*suspend)(void);
    aco_t *partner;      /* for coroutines that switch to another one */
    int ct_yields;       /* in each cleanup */
    unsigned ct_cleaned; /* frames, of which the innermost has number DEPTH - 1 */
    unsigned ct_returns; /* returns from `suspend` */
    int rounding;        /* in the last cleanup */
} order_t;

typedef struct {
    order_t *order;
    unsigned depth;
    unsigned char data[DATA_SZ];
} frame_t;

static void clean_up(frame_t *frame)
{
    order_t *order = frame->order;
    for (int i = 0; i < order->ct_yields; i++) {
        aco_yield();
    }
    CO_CHECK(frame->depth == DEPTH - 1 - order->ct_cleaned);
    CO_CHECK(is_from_seed(frame->data, sizeof(frame->data), frame->depth));
    CO_CHECK(aco_get_arg() == order);
    order->rounding = fegetround();
    order->ct_cleaned++;
}

static NOINLINE void descend(order_t *order, unsigned depth)
{
    frame_t frame __attribute__((cleanup(clean_up))) = {order, depth, {0}};
    fill_from_seed(frame.data, sizeof(frame.data), depth);
    if (depth + 1 < DEPTH) {
        descend(order, depth + 1);
    } else {
        order->suspend();
    }
    order->ct_returns++;
}

static void descends(void)
{
    order_t *order = (order_t *)aco_get_arg();
    fesetround(FE_UPWARD);
    descend(order, 0);
    order->ct_returns++;
    aco_exit();
}

/* ==== Ways to be suspended ==================================================================== */

static void suspend_inline(void)
{
    aco_yield();
}

static void suspend_as_known(void)
{
    aco_yield1(aco_get_co());
}

static void (*volatile exported_yield)(void) = aco_yield;

static void suspend_by_exported_function(void)
{
    exported_yield();
}

static void suspend_to_partner(void)
{
    order_t *order = (order_t *)aco_get_arg();
    aco_yield_to(order->partner);
}

static void (*const ways[])(void) = {
    suspend_inline,  suspend_as_known,   suspend_by_exported_function,
    no_inline_yield, suspend_to_partner,
};

typedef enum { IN_PLACE, SAVED_OUT, PARTNER_ON_OTHER_STACK, PLACE_CT } place_t;

static void assert_is_unwound(const aco_t *co, const order_t *order)
{
    assert_int_equal(co->is_end, 1);
    assert_int_equal(order->ct_cleaned, DEPTH);
    assert_int_equal(order->ct_returns, 0);
    assert_null(co->share_stack->owner);
    assert_int_equal(co->wakes, 0);
    assert_ptr_equal(aco_get_co(), co->main_co);
    assert_invariants(co);
    assert_co_checks();
}

/* The partner is in place when it lies on another stack and has run. */
static void cancel_one(const instance_t *in, void (*suspend)(void), place_t place)
{
    aco_share_stack_t *other_stack = aco_share_stack_new(0);
    instance_t other = {in->main_co, other_stack};
    aco_t *partner = make_co(place == PARTNER_ON_OTHER_STACK ? &other : in, yields_for_ever, NULL);
    order_t order = {suspend, partner, 0, 0, 0, 0};
    aco_t *co = make_co(in, descends, &order);
    aco_resume(partner);
    aco_resume(co);
    if (place == SAVED_OUT) {
        aco_resume(partner);
        assert_int_equal(co->is_owner, 0);
    }
    assert_int_equal(aco_cancel(co), 1);
    assert_is_unwound(co, &order);
    aco_resume(partner);
    aco_destroy(co);
    aco_destroy(partner);
    aco_share_stack_destroy(other_stack);
}

static void cleanups_run_innermost_first_however_it_was_suspended(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (size_t i = 0; i < ARRAY_SZ(ways); i++) {
        for (int place = 0; place < PLACE_CT; place++) {
            cancel_one(in, ways[i], (place_t)place);
        }
    }
}

static void control_words_are_those_of_the_coroutine(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    order_t order = {suspend_inline, NULL, 0, 0, 0, 0};
    aco_t *co = make_co(in, descends, &order);
    aco_resume(co);
    fesetround(FE_DOWNWARD);
    aco_cancel(co);
    int rounding = fegetround();
    fesetround(FE_TONEAREST);
#ifdef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
    assert_int_equal(order.rounding, FE_DOWNWARD);
#else
    assert_int_equal(order.rounding, FE_UPWARD);
#endif
    assert_int_equal(rounding, FE_DOWNWARD);
    aco_destroy(co);
}

static void those_that_share_its_stack_go_on(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    order_t orders[3];
    aco_t *cos[3];
    for (size_t i = 0; i < 3; i++) {
        orders[i] = (order_t){suspend_inline, NULL, 0, 0, 0, 0};
        cos[i] = make_co(in, descends, &orders[i]);
        aco_resume(cos[i]);
    }
    assert_int_equal(aco_cancel(cos[1]), 1);
    assert_is_unwound(cos[1], &orders[1]);
    for (size_t i = 0; i < 3; i += 2) {
        assert_int_equal(orders[i].ct_cleaned, 0);
        aco_resume(cos[i]);
        assert_int_equal(cos[i]->is_end, 1);
        assert_int_equal(orders[i].ct_cleaned, DEPTH);
        assert_int_equal(orders[i].ct_returns, DEPTH + 1);
    }
    for (size_t i = 0; i < 3; i++) {
        aco_destroy(cos[i]);
    }
    assert_co_checks();
}

/* ==== States ================================================================================== */

static void one_that_never_ran_ends_without_running(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    order_t order = {suspend_inline, NULL, 0, 0, 0, 0};
    aco_t *other = make_co(in, yields_for_ever, NULL);
    aco_resume(other);
    aco_t *co = make_co(in, descends, &order);
    assert_int_equal(aco_cancel(co), 1);
    assert_int_equal(co->is_end, 1);
    assert_int_equal(order.rounding, 0);
    assert_invariants(co);
    assert_invariants(other);
    aco_resume(other);
    aco_destroy(co);
    aco_destroy(other);
}

static void one_that_has_ended_stays_so(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, ends_at_once, NULL);
    aco_resume(co);
    assert_int_equal(aco_cancel(co), 1);
    assert_int_equal(aco_cancel(co), 1);
    assert_int_equal(co->is_end, 1);
    aco_destroy(co);
}

static void destroying_one_runs_no_cleanup(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    order_t order = {suspend_inline, NULL, 0, 0, 0, 0};
    aco_t *co = make_co(in, descends, &order);
    aco_resume(co);
    aco_destroy(co);
    assert_int_equal(order.ct_cleaned, 0);
}

/* Resets a coroutine in every state; then it runs, or is cancelled, like a new one. */
static void it_can_be_reset_and_cancelled_again(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (int ct_yields = 0; ct_yields <= 1; ct_yields++) {
        order_t first = {suspend_inline, NULL, ct_yields, 0, 0, 0};
        order_t second = {suspend_inline, NULL, 0, 0, 0, 0};
        aco_t *co = make_co(in, descends, &first);
        aco_resume(co);
        assert_int_equal(aco_cancel(co), ct_yields == 0);
        aco_reset(co, descends, &second);
        aco_resume(co);
        assert_int_equal(second.ct_cleaned, 0);
        assert_int_equal(aco_cancel(co), 1);
        assert_is_unwound(co, &second);
        second = (order_t){suspend_inline, NULL, 0, 0, 0, 0};
        aco_reset(co, descends, &second);
        aco_resume(co);
        aco_resume(co);
        assert_int_equal(second.ct_returns, DEPTH + 1);
        aco_destroy(co);
    }
    assert_co_checks();
}

/* ==== Yields in a cleanup ===================================================================== */

static void go_on_by_resume(aco_t *co)
{
    aco_resume(co);
}

static void go_on_by_cancel(aco_t *co)
{
    int is_end = aco_cancel(co);
    assert_int_equal(is_end, co->is_end);
}

static void check_yields(const instance_t *in, void (*go_on)(aco_t *), int is_evicted)
{
    order_t order = {suspend_inline, NULL, 2, 0, 0, 0};
    aco_t *other = make_co(in, yields_for_ever, NULL);
    aco_t *co = make_co(in, descends, &order);
    aco_resume(co);
    assert_int_equal(aco_cancel(co), 0);
    for (unsigned ct_yields = 1; ct_yields <= 2 * DEPTH; ct_yields++) {
        assert_int_equal(co->is_end, 0);
        assert_int_equal(order.ct_cleaned, (ct_yields - 1) / 2);
        if (is_evicted) {
            aco_resume(other);
        }
        go_on(co);
    }
    assert_is_unwound(co, &order);
    aco_destroy(co);
    aco_destroy(other);
}

static void a_cleanup_may_yield(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (int is_evicted = 0; is_evicted <= 1; is_evicted++) {
        check_yields(in, go_on_by_resume, is_evicted);
        check_yields(in, go_on_by_cancel, is_evicted);
    }
}

static void several_unwind_by_turns(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    order_t orders[2];
    aco_t *cos[2];
    for (size_t i = 0; i < 2; i++) {
        orders[i] = (order_t){suspend_inline, NULL, 1, 0, 0, 0};
        cos[i] = make_co(in, descends, &orders[i]);
        aco_resume(cos[i]);
    }
    int ct_ended = 0;
    while (ct_ended < 2) {
        ct_ended = aco_cancel(cos[0]) + aco_cancel(cos[1]);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_is_unwound(cos[i], &orders[i]);
        aco_destroy(cos[i]);
    }
}

/* ==== Parents that are no main coroutine ====================================================== */

typedef struct {
    aco_share_stack_t *stack;
    order_t order;
    aco_t *child;
} family_t;

static void cancel_child(family_t **family)
{
    CO_CHECK(aco_cancel((*family)->child) == 1);
    CO_CHECK(aco_get_arg() == *family);
    aco_destroy((*family)->child);
    (*family)->child = NULL;
}

/* Its cleanup cancels its child. */
static void has_child(void)
{
    family_t *family __attribute__((cleanup(cancel_child))) = (family_t *)aco_get_arg();
    family->child = aco_create(aco_get_co(), family->stack, 0, descends, &family->order);
    aco_resume(family->child);
    aco_yield();
    cancel_child(&family);
    aco_exit();
}

static void a_coroutine_cancels_its_child_also_while_it_unwinds(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (int is_cancelled = 0; is_cancelled <= 1; is_cancelled++) {
        family_t family = {aco_share_stack_new(0), {suspend_inline, NULL, 0, 0, 0, 0}, NULL};
        aco_t *co = make_co(in, has_child, &family);
        aco_resume(co);
        if (is_cancelled) {
            assert_int_equal(aco_cancel(co), 1);
        } else {
            aco_resume(co);
        }
        assert_int_equal(co->is_end, 1);
        assert_int_equal(family.order.ct_cleaned, DEPTH);
        assert_null(family.child);
        aco_destroy(co);
        aco_share_stack_destroy(family.stack);
    }
    assert_co_checks();
}

/* ==== Memory ================================================================================== */

static struct {
    int ct_allocated, ct_released;
    int refuses;
} allocator;

static void *allocate(size_t sz)
{
    allocator.ct_allocated++;
    if (allocator.refuses) {
        return NULL;
    }
    void *ptr = malloc(sz);
    if (ptr != NULL) {
        memset(ptr, 0xa5, sz);
    }
    return ptr;
}

/* Cancels a coroutine of the calling thread. */
static void *cancel_on_this_thread(void *arg)
{
    void *state;
    order_t order = {suspend_inline, NULL, 0, 0, 0, 0};
    make_instance(&state);
    aco_t *co = make_co((const instance_t *)state, descends, &order);
    aco_resume(co);
    CO_CHECK(aco_cancel(co) == 1 && order.ct_cleaned == DEPTH);
    aco_destroy(co);
    delete_instance(&state);
    return arg;
}

static void *allocate_late(size_t sz)
{
    pthread_t thread;
    allocator.ct_allocated++;
    aco_set_allocator(malloc, free);
    CO_CHECK(pthread_create(&thread, NULL, cancel_on_this_thread, NULL) == 0);
    CO_CHECK(pthread_join(thread, NULL) == 0);
    return malloc(sz);
}

static void release(void *ptr)
{
    allocator.ct_released++;
    free(ptr);
}

static void cancel(void *co)
{
    aco_cancel((aco_t *)co);
}

static void memory_comes_from_the_allocator(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    order_t order = {suspend_inline, NULL, 0, 0, 0, 0};
    aco_t *co = make_co(in, descends, &order);
    aco_resume(co);
    memset(&allocator, 0, sizeof(allocator));
    aco_set_allocator(allocate, release);
    allocator.refuses = 1;
    expect_abort(cancel, co, "aco_cancel", "out of memory");
    allocator.refuses = 0;
    int is_end = aco_cancel(co);
    aco_set_allocator(malloc, free);
    assert_int_equal(is_end, 1);
    assert_true(allocator.ct_allocated > 0);
    assert_int_equal(allocator.ct_allocated, allocator.ct_released);
    assert_is_unwound(co, &order);
    aco_destroy(co);
}

static void deepens(void)
{
    unsigned char data[2000];
    fill_from_seed(data, sizeof(data), 1);
    aco_yield();
    CO_CHECK(is_from_seed(data, sizeof(data), 1));
    aco_exit();
}

/* Another thread cancels while this one, in aco_cancel(), allocates to save out the owner. */
static void threads_cancel_at_once(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    order_t order = {suspend_inline, NULL, 0, 0, 0, 0};
    aco_t *co = make_co(in, descends, &order);
    aco_t *owner = make_co(in, deepens, NULL);
    aco_resume(co);
    aco_resume(owner);
    memset(&allocator, 0, sizeof(allocator));
    if (!STRESS) { /* in which the owner is saved out at its yield */
        aco_set_allocator(allocate_late, free);
    }
    int is_end = aco_cancel(co);
    aco_set_allocator(malloc, free);
    assert_int_equal(is_end, 1);
    assert_int_equal(allocator.ct_allocated, !STRESS);
    assert_is_unwound(co, &order);
    aco_destroy(co);
    aco_destroy(owner);
}

/* ==== Misuse ================================================================================== */

static void cancels_argument(void)
{
    cancel(aco_get_arg());
    aco_exit();
}

static void cancels_itself(void)
{
    cancel(aco_get_co());
    aco_exit();
}

static void resume(void *co)
{
    aco_resume((aco_t *)co);
}

static void only_a_suspended_coroutine_is_cancelled_by_its_parent(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, yields_for_ever, NULL);
    aco_resume(co);
    aco_t *stranger = make_co(in, cancels_argument, co);
    aco_t *suicide = make_co(in, cancels_itself, NULL);
    expect_abort(cancel, NULL, "aco_cancel", "NULL or a main coroutine");
    expect_abort(cancel, in->main_co, "aco_cancel", "NULL or a main coroutine");
    expect_abort(resume, stranger, "aco_cancel", "not its parent");
    expect_abort(resume, suicide, "aco_cancel", "is running");
    aco_destroy(co);
    aco_destroy(stranger);
    aco_destroy(suicide);
}

static void suspends_by_acosw_alone(void)
{
    aco_t *co = aco_get_co();
    aco_gtls_co = co->main_co;
    for (;;) {
        acosw(co, co->main_co);
    }
}

static void one_that_was_suspended_by_acosw_alone_is_found_out(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, suspends_by_acosw_alone, NULL);
    aco_resume(co);
    expect_abort(cancel, co, "aco_cancel", "acosw() alone");
    aco_destroy(co);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(cleanups_run_innermost_first_however_it_was_suspended),
        instance_test(control_words_are_those_of_the_coroutine),
        instance_test(those_that_share_its_stack_go_on),
        instance_test(one_that_never_ran_ends_without_running),
        instance_test(one_that_has_ended_stays_so),
        instance_test(destroying_one_runs_no_cleanup),
        instance_test(it_can_be_reset_and_cancelled_again),
        instance_test(a_cleanup_may_yield),
        instance_test(several_unwind_by_turns),
        instance_test(a_coroutine_cancels_its_child_also_while_it_unwinds),
        instance_test(memory_comes_from_the_allocator),
        instance_test(threads_cancel_at_once),
        instance_test(only_a_suspended_coroutine_is_cancelled_by_its_parent),
        instance_test(one_that_was_suspended_by_acosw_alone_is_found_out),
    };
    return cmocka_run_group_tests_name("cancel", tests, NULL, NULL);
}
