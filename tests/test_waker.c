// SPDX-License-Identifier: Apache-2.0
/*
 * The waker: called once, on the coroutine's own stack and before it goes on, in each one that has
 * the mark as it is continued, whichever way it was suspended and is continued; it may return,
 * yield or end the coroutine.
 */
// build: tests/no_inline.c
#include "harness.h"
#include "no_inline.h"

typedef enum { RETURN, YIELD, EXIT } what_t;

static struct {
    what_t what; /* the waker does */
    unsigned ct_calls;
    aco_t *co; /* that it was called with */
} waker;

static void wake(aco_t *co)
{
    const char *here = (const char *)__builtin_frame_address(0);
    const aco_share_stack_t *stack = co->share_stack;
    waker.ct_calls++;
    waker.co = co;
    CO_CHECK(co == aco_get_co());
    CO_CHECK(co->wakes == 0);
    CO_CHECK(here > (const char *)stack->ptr && here < (const char *)stack->align_highptr);
    if (waker.what == YIELD) {
        aco_yield();
    } else if (waker.what == EXIT) {
        aco_exit();
    }
}

/* ==== Coroutines ============================================================================== */

typedef enum { BY_YIELD, BY_NO_INLINE_YIELD, BY_YIELD_TO, BY_NO_INLINE_YIELD_TO, WAY_CT } way_t;

typedef struct {
    way_t way;
    aco_t *other;
    unsigned ct_steps;
} order_t;

static void suspend(const order_t *order)
{
    switch (order->way) {
    case BY_YIELD:
        aco_yield();
        break;
    case BY_NO_INLINE_YIELD:
        no_inline_yield();
        break;
    case BY_YIELD_TO:
        aco_yield_to(order->other);
        break;
    default:
        no_inline_yield_to(order->other);
    }
}

static void steps(void)
{
    order_t *order = (order_t *)aco_get_arg();
    unsigned char data[100];
    fill_from_seed(data, sizeof(data), 3);
    for (;;) {
        order->ct_steps++;
        suspend(order);
        CO_CHECK(is_from_seed(data, sizeof(data), 3));
    }
}

/* One that was suspended in the given way; the other one, which is on its stack or not. */
typedef struct {
    aco_share_stack_t *stack;
    order_t order;
    aco_t *co, *other;
} scene_t;

static void make_scene(const instance_t *in, scene_t *scene, way_t way, int is_sharing)
{
    memset(&waker, 0, sizeof(waker));
    aco_set_waker(wake);
    scene->stack = aco_share_stack_new(0);
    scene->other = aco_create(in->main_co, is_sharing ? in->stack : scene->stack, 0,
                              yields_for_ever, NULL);
    scene->order = (order_t){way, scene->other, 0};
    scene->co = make_co(in, steps, &scene->order);
    /* Twice, so that a direct switch finds the other one in place where it can be. */
    aco_resume(scene->co);
    aco_resume(scene->co);
    assert_int_equal(waker.ct_calls, 0);
}

static void destroy_scene(scene_t *scene)
{
    assert_co_checks();
    aco_destroy(scene->co);
    aco_destroy(scene->other);
    aco_share_stack_destroy(scene->stack);
}

/* Calls `check` for one that was suspended in every way, on both kinds of stack. */
static void in_every_way(const instance_t *in, void (*check)(scene_t *scene))
{
    for (int i = 0; i < 2 * WAY_CT; i++) {
        scene_t scene;
        make_scene(in, &scene, (way_t)(i / 2), i % 2);
        check(&scene);
        destroy_scene(&scene);
    }
}

/* ==== Tests =================================================================================== */

static void check_return(scene_t *scene)
{
    waker.what = RETURN;
    scene->co->wakes = 1;
    aco_resume(scene->co);
    assert_int_equal(waker.ct_calls, 1);
    assert_ptr_equal(waker.co, scene->co);
    assert_int_equal(scene->order.ct_steps, 3);
    aco_resume(scene->co);
    assert_int_equal(waker.ct_calls, 1);
    assert_int_equal(scene->order.ct_steps, 4);
}

static void one_with_the_mark_wakes_once_and_goes_on(void **state)
{
    in_every_way((const instance_t *)*state, check_return);
}

static void check_yield(scene_t *scene)
{
    waker.what = YIELD;
    scene->co->wakes = 1;
    aco_resume(scene->co);
    assert_int_equal(waker.ct_calls, 1);
    assert_int_equal(scene->order.ct_steps, 2);
    assert_int_equal(aco_status(scene->co), ACO_STATUS_SUSPENDED);
    aco_resume(scene->co);
    assert_int_equal(waker.ct_calls, 1);
    assert_int_equal(scene->order.ct_steps, 3);
}

static void a_waker_may_yield(void **state)
{
    in_every_way((const instance_t *)*state, check_yield);
}

static void check_exit(scene_t *scene)
{
    waker.what = EXIT;
    scene->co->wakes = 1;
    aco_resume(scene->co);
    assert_int_equal(waker.ct_calls, 1);
    assert_int_equal(scene->order.ct_steps, 2);
    assert_int_equal(aco_status(scene->co), ACO_STATUS_END);
}

static void a_waker_may_end_the_coroutine(void **state)
{
    in_every_way((const instance_t *)*state, check_exit);
}

/* `other` is the one with the mark, and is continued by a direct switch. */
static void check_direct_switch(scene_t *scene)
{
    unsigned is_direct = scene->order.way >= BY_YIELD_TO;
    scene->other->wakes = 1;
    aco_resume(scene->co);
    assert_int_equal(waker.ct_calls, is_direct);
    assert_ptr_equal(waker.co, is_direct ? scene->other : NULL);
}

static void a_direct_switch_wakes_its_target(void **state)
{
    in_every_way((const instance_t *)*state, check_direct_switch);
}

static void check_reset(scene_t *scene)
{
    scene->co->wakes = 1;
    aco_reset(scene->co, steps, &scene->order);
    aco_resume(scene->co);
    aco_resume(scene->co);
    assert_int_equal(waker.ct_calls, 0);
}

static void reset_takes_the_mark_away(void **state)
{
    in_every_way((const instance_t *)*state, check_reset);
}

static unsigned ct_other_calls;

static void wake_otherwise(aco_t *co)
{
    CO_CHECK(co == aco_get_co());
    ct_other_calls++;
}

static void check_replacement(scene_t *scene)
{
    ct_other_calls = 0;
    aco_set_waker(wake_otherwise);
    scene->co->wakes = 1;
    aco_resume(scene->co);
    assert_int_equal(waker.ct_calls, 0);
    assert_int_equal(ct_other_calls, 1);
}

static void a_second_waker_replaces_the_first(void **state)
{
    in_every_way((const instance_t *)*state, check_replacement);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(one_with_the_mark_wakes_once_and_goes_on),
        instance_test(a_waker_may_yield),
        instance_test(a_waker_may_end_the_coroutine),
        instance_test(a_direct_switch_wakes_its_target),
        instance_test(reset_takes_the_mark_away),
        instance_test(a_second_waker_replaces_the_first),
    };
    return cmocka_run_group_tests_name("waker", tests, NULL, NULL);
}
