// SPDX-License-Identifier: Apache-2.0
/* Groups: joined, cancelled, with deadlines and shielded, on one thread and on two. */
#include "tasks.h"

#include <pthread.h>

static void *adds_one(void *arg)
{
    return (char *)arg + 1;
}

static int ct_ended;

static void *ends_late(void *arg)
{
    CHECK(aco_sleep(2 * MS) == 0);
    __atomic_add_fetch(&ct_ended, 1, __ATOMIC_RELAXED);
    return arg;
}

static int ct_cancelled;

static void *counts_if_cancelled(void *arg)
{
    if (aco_sleep(1000000 * MS) != 0 && errno == ECANCELED) {
        __atomic_add_fetch(&ct_cancelled, 1, __ATOMIC_RELAXED);
    }
    return arg;
}

static int has_groups; /* makes_a_group_inside() has made its group */

static void *makes_a_group_inside(void *arg)
{
    aco_group_t *inner = aco_group_new();
    for (int i = 0; i < 3; i++) {
        CHECK(aco_group_go(inner, counts_if_cancelled, NULL) == 0);
    }
    __atomic_store_n(&has_groups, 1, __ATOMIC_RELEASE);
    CHECK_FAILS(aco_group_join(inner), ECANCELED);
    return arg;
}

static void *groups(void *arg)
{
    aco_group_t *group = aco_group_new();
    ct_ended = ct_cancelled = 0;
    for (int i = 0; i < 5; i++) {
        CHECK(aco_group_go(group, ends_late, NULL) == 0);
    }
    CHECK(aco_group_join(group) == 0);
    CHECK(ct_ended == 5);

    group = aco_group_new();
    CHECK(aco_group_join(group) == 0); /* a group without tasks */

    group = aco_group_new();
    CHECK(aco_group_go(group, counts_if_cancelled, NULL) == 0);
    CHECK(aco_group_go(group, makes_a_group_inside, NULL) == 0);
    aco_yield();
    aco_yield();
    aco_group_cancel(group);
    CHECK_FAILS(aco_group_go(group, adds_one, NULL), ECANCELED);
    CHECK(aco_group_join(group) == 0);
    CHECK(ct_cancelled == 4);

    ct_cancelled = 0;
    aco_within(2 * MS)
    {
        group = aco_group_new();
        aco_shielded
        {
            CHECK(aco_group_go(group, adds_one, NULL) == 0);
        }
        CHECK(aco_group_go(group, shields_itself, NULL) == 0);
        CHECK_FAILS(aco_group_join(group), ETIMEDOUT);
    }
    return arg;
}

static void *sleeps_too_long(void *arg)
{
    CHECK_FAILS(aco_sleep(1000000 * MS), ETIMEDOUT);
    return arg;
}

static void *inherits(void *arg)
{
    aco_group_t *group = NULL;
    aco_within(2 * MS)
    {
        group = aco_group_new();
    }
    CHECK(aco_group_go(group, sleeps_too_long, NULL) == 0); /* the deadline of its maker then */
    CHECK(aco_group_join(group) == 0);
    return arg;
}

static void *is_cancelled_with_its_groups(void *arg)
{
    ct_cancelled = has_groups = 0;
    aco_task_t *task = aco_spawn(makes_a_group_inside, NULL);
    while (!__atomic_load_n(&has_groups, __ATOMIC_ACQUIRE)) {
        aco_yield();
    }
    aco_task_cancel(task);
    CHECK(aco_join(task, NULL) == 0);
    CHECK(ct_cancelled == 3);
    return arg;
}

static void groups_end_together(void **state)
{
    (void)state;
    run_tasks(groups, NULL);
    run_tasks(inherits, NULL);
    run_tasks(is_cancelled_with_its_groups, NULL);
    run_tasks_on(2, is_cancelled_with_its_groups, NULL);
}

/* Deep enough to overflow a stack if cancelling were recursive. */
#if defined(ACO_USE_ASAN) || defined(ACO_USE_TSAN) || UINTPTR_MAX == UINT32_MAX
#define DEPTH 2000 /* TSan has no more fibers, i386 no more addresses, ASan no more speed */
#else
#define DEPTH 20000
#endif
static int ct_nested;

static void *nests(void *arg)
{
    aco_group_t *group = aco_group_new();
    if (++ct_nested < DEPTH) {
        CHECK(aco_group_go(group, nests, NULL) == 0);
    }
    CHECK(aco_group_go(group, counts_if_cancelled, NULL) == 0);
    CHECK_FAILS(aco_group_join(group), ECANCELED);
    return arg;
}

static void *cancels_what_is_deep(void *arg)
{
    ct_nested = ct_cancelled = 0;
    aco_task_options_t options = {.shares_stack = 1};
    aco_task_t *top = NULL;
    CHECK(aco_go_with(&options, nests, NULL, &top) == 0);
    while (ct_nested < DEPTH) {
        aco_yield();
    }
    aco_yield();
    aco_task_cancel(top);
    CHECK(aco_join(top, NULL) == 0);
    CHECK(ct_cancelled == DEPTH);
    return arg;
}

static void deep_groups_are_cancelled(void **state)
{
    (void)state;
    run_tasks(cancels_what_is_deep, NULL);
}

/* ==== Shields ================================================================================ */

/* Groups made in aco_shielded, by a task that is cancelled meanwhile. */
typedef struct {
    aco_wait_group_t opened;         /* the tasks wait for this */
    int ct_cancelled, ct_passed;     /* atomic */
    aco_wait_group_t made, may_join; /* the groups; they may be joined */
} shield_t;

static void *waits_for_opening(void *arg)
{
    shield_t *s = (shield_t *)arg;
    int is_cancelled = aco_wait_group_wait(&s->opened) != 0 && errno == ECANCELED;
    __atomic_add_fetch(is_cancelled ? &s->ct_cancelled : &s->ct_passed, 1, __ATOMIC_SEQ_CST);
    return arg;
}

static void *has_a_group(void *arg)
{
    aco_group_t *group = aco_group_new();
    CHECK(aco_group_go(group, waits_for_opening, arg) == 0);
    int result = aco_group_join(group);
    CHECK(result == 0 || errno == ECANCELED);
    return arg;
}

static void *shields_groups(void *arg)
{
    shield_t *s = (shield_t *)arg;
    aco_group_t *outside = aco_group_new(), *left = NULL;
    CHECK(aco_group_go(outside, waits_for_opening, s) == 0);
    aco_shielded
    {
        aco_group_t *inside = aco_group_new(), *innermost = NULL;
        aco_shielded
        {
            innermost = aco_group_new();
        }
        left = aco_group_new();
        CHECK(aco_group_go(inside, waits_for_opening, s) == 0);
        CHECK(aco_group_go(inside, has_a_group, s) == 0);
        CHECK(aco_group_go(innermost, has_a_group, s) == 0);
        CHECK(aco_group_go(left, has_a_group, s) == 0);
        CHECK(aco_wait_group_done(&s->made) == 0);
        CHECK(aco_wait_group_wait(&s->may_join) == 0);
        CHECK(aco_group_join(inside) == 0);
        CHECK(aco_group_join(innermost) == 0);
        CHECK(s->ct_passed == 4 && s->ct_cancelled == 1);
        CHECK(aco_wait_group_add(&s->opened, 1) == 0);
        CHECK(aco_group_go(left, waits_for_opening, s) == 0);
        aco_yield();
    }
    CHECK_FAILS(aco_group_join(left), ECANCELED);
    CHECK(aco_group_join(outside) == 0); /* its task has ended */
    CHECK(s->ct_passed == 4 && s->ct_cancelled == 2);
    return arg;
}

static void *cancels_a_shielded(void *arg)
{
    static shield_t s;
    s = (shield_t){.opened = {.ct = 1}, .made = {.ct = 1}, .may_join = {.ct = 1}};
    aco_group_t *group = aco_group_new();
    CHECK(aco_group_go(group, shields_groups, &s) == 0);
    CHECK(aco_wait_group_wait(&s.made) == 0);
    aco_group_cancel(group);
    while (__atomic_load_n(&s.ct_cancelled, __ATOMIC_SEQ_CST) == 0) {
        aco_yield(); /* the task of the group that was made outside */
    }
    aco_yield();
    CHECK(aco_wait_group_done(&s.opened) == 0);
    CHECK(aco_wait_group_done(&s.may_join) == 0);
    CHECK(aco_group_join(group) == 0);
    return arg;
}

static void *is_cancelled_after_its_shield(void *arg)
{
    static shield_t s;
    s = (shield_t){.opened = {.ct = 1}};
    aco_group_t *group = NULL;
    aco_shielded
    {
        group = aco_group_new();
        CHECK(aco_group_go(group, waits_for_opening, &s) == 0);
    }
    aco_yield();
    aco_task_cancel(aco_self());
    CHECK_FAILS(aco_group_join(group), ECANCELED);
    CHECK(s.ct_cancelled == 1);
    return arg;
}

static void *notes_its_deadline(void *arg)
{
    *(int64_t *)arg = aco_deadline();
    return arg;
}

static void *shields_from_deadlines(void *arg)
{
    static int64_t deadline; /* frames are moved in the stress build */
    aco_within(MS)
    {
        aco_shielded
        {
            aco_group_t *group = aco_group_new();
            CHECK(aco_group_go(group, notes_its_deadline, &deadline) == 0);
            CHECK(aco_sleep(2 * MS) == 0);
            CHECK(aco_group_join(group) == 0);
        }
    }
    CHECK(deadline == INT64_MAX);
    return arg;
}

static void groups_are_shielded(void **state)
{
    (void)state;
    run_tasks(cancels_a_shielded, NULL);
    run_tasks_on(2, cancels_a_shielded, NULL);
    run_tasks(is_cancelled_after_its_shield, NULL);
    run_tasks(shields_from_deadlines, NULL);
}

/* ==== Adding tasks =========================================================================== */

/* Adds tasks as a task of the group, while it is joined. */
static void *adds_more(void *group)
{
    for (int i = 0; i < 10; i++) {
        CHECK(aco_sleep(MS / 10) == 0);
        CHECK(aco_group_go((aco_group_t *)group, ends_late, NULL) == 0);
    }
    return NULL;
}

static void *adds_once(void *group)
{
    CHECK(aco_group_go((aco_group_t *)group, adds_more, group) == 0);
    return NULL;
}

/* Tasks of other threads, outside the group, add tasks before it is joined. */
static void *lets_others_add(void *arg)
{
    aco_group_t *group = aco_group_new();
    aco_task_t *tasks[3];
    ct_ended = 0;
    for (int i = 0; i < 3; i++) {
        aco_task_options_t options = {.thread = ACO_THREAD(i)};
        CHECK(aco_go_with(&options, adds_once, group, &tasks[i]) == 0);
    }
    for (int i = 0; i < 3; i++) {
        CHECK(aco_join(tasks[i], NULL) == 0);
    }
    CHECK(aco_group_join(group) == 0);
    CHECK(ct_ended == 30);
    return arg;
}

static void others_add_to_a_group(void **state)
{
    (void)state;
    run_tasks_on(3, lets_others_add, NULL);
}

/* A plain thread joins; the group's task is the last one of its runtime. */
static aco_group_t *joined_from_outside;
static pthread_barrier_t may_join;

aco_task_t *aco_i_joiner_of(const aco_group_t *group); /* of sched/group_tree.c */

static void *ends_when_joined(void *arg)
{
    while (aco_i_joiner_of(joined_from_outside) == NULL) {
        CHECK(aco_sleep(MS) == 0);
    }
    return arg;
}

static void *leaves_a_group(void *arg)
{
    joined_from_outside = aco_group_new();
    CHECK(aco_group_go(joined_from_outside, ends_when_joined, NULL) == 0);
    pthread_barrier_wait(&may_join);
    return arg;
}

static void *joins_from_outside(void *arg)
{
    pthread_barrier_wait(&may_join);
    CHECK(aco_group_join(joined_from_outside) == 0);
    return arg;
}

static void threads_join_groups(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        assert_int_equal(pthread_barrier_init(&may_join, NULL, 2), 0);
        assert_int_equal(pthread_create(&thread, NULL, joins_from_outside, NULL), 0);
        run_tasks(leaves_a_group, NULL);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(pthread_barrier_destroy(&may_join), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_join_groups), cmocka_unit_test(others_add_to_a_group),
        cmocka_unit_test(groups_end_together), cmocka_unit_test(deep_groups_are_cancelled),
        cmocka_unit_test(groups_are_shielded),
    };
    return cmocka_run_group_tests_name("groups", tests, NULL, NULL);
}
