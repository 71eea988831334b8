// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps groups as a tree: a task owns the groups that it made, and a group has its tasks.
 * Cancelling a task or group reaches all below it that is not shielded. The lock of the runtime
 * protects the tree.
 */
#include "sched/sched.h"

#include <errno.h>

aco_task_t *aco_i_joiner_of(const aco_group_t *group)
{
    aco_group_t copy;
    return aco_i_read_memory(&copy, group, sizeof(copy)) == sizeof(copy) ? copy.joiner : NULL;
}

int aco_i_enter_group(aco_group_t *group, aco_task_t *task)
{
    if (group->runtime != task->runtime) {
        aco_i_misuse_of("aco_group_go", "the group is of another runtime: make one in each");
    }
    lock(&group->runtime->lock);
    int is_cancelled = group->is_cancelled;
    if (!is_cancelled) {
        task->group = group;
        task->deadline = group->deadline;
        task->group_next = group->first;
        if (group->first != NULL) {
            group->first->group_prev = task;
        }
        group->first = task;
        group->ct++;
    }
    unlock(&group->runtime->lock);
    if (is_cancelled) {
        errno = ECANCELED;
        return -1;
    }
    return 0;
}

void aco_i_leave_group(aco_task_t *task)
{
    aco_group_t *group = task->group;
    runtime_t *runtime = group->runtime;
    lock(&runtime->lock);
    *(task->group_prev != NULL ? &task->group_prev->group_next : &group->first) = task->group_next;
    if (task->group_next != NULL) {
        task->group_next->group_prev = task->group_prev;
    }
    aco_task_t *joiner = --group->ct == 0 ? group->joiner : NULL;
    int is_claimed = joiner != NULL && aco_i_claim(joiner, WAIT_EVENT);
    unlock(&runtime->lock);
    if (is_claimed) {
        aco_i_make_ready(joiner); /* the joiner frees the group */
    }
}

void aco_i_abandon_groups(aco_task_t *task)
{
    runtime_t *runtime = task->loop->runtime;
    lock(&runtime->lock);
    while (task->groups != NULL) {
        aco_group_t *group = task->groups;
        task->groups = group->next;
        group->owner = NULL;
        group->next = runtime->orphans;
        runtime->orphans = group;
    }
    unlock(&runtime->lock);
}

size_t aco_i_free_groups(runtime_t *runtime)
{
    size_t ct = 0;
    for (; runtime->orphans != NULL; ct++) {
        aco_group_t *group = runtime->orphans;
        runtime->orphans = group->next;
        aco_i_release(group);
    }
    return ct;
}

/* Returns the first of a task's groups, from `group` on, that cancelling the task reaches. */
static aco_group_t *unshielded(aco_group_t *group)
{
    while (group != NULL && group->is_shielded) {
        group = group->next;
    }
    return group;
}

static aco_group_t *group_of_members(aco_task_t *task)
{
    aco_group_t *group = NULL;
    for (; task != NULL && group == NULL; task = task->group_next) {
        group = unshielded(task->groups);
    }
    return group;
}

/* Returns the group after `group` on a walk down from `top`, which visits each group before those
 * below it, without recursion, and leaves out shielded ones; NULL at its end. */
static aco_group_t *next_group(aco_group_t *group, const aco_group_t *top)
{
    aco_group_t *inner = group_of_members(group->first);
    while (inner == NULL && group != top) {
        aco_task_t *owner = group->owner;
        aco_group_t *next = unshielded(group->next);
        if (next != NULL) {
            return next;
        }
        inner = group_of_members(owner->group_next);
        group = owner->group;
    }
    return inner;
}

/* Tasks that were cancelled and are to be told so, without the lock. */
typedef struct {
    aco_task_t *claimed;
    aco_i_stop_t *stops; /* each held */
} cancelled_t;

static void take_stops(const aco_task_t *task, cancelled_t *cancelled)
{
    for (aco_i_stop_t *stop = task->stops; stop != NULL; stop = stop->next) {
        if (!stop->is_called) {
            stop->is_called = 1;
            __atomic_add_fetch(&stop->ct_owners, 1, __ATOMIC_RELAXED);
            stop->next_called = cancelled->stops;
            cancelled->stops = stop;
        }
    }
}

/* Cancels a task of any thread. Claims its wait if it can. */
static void cancel_task(aco_task_t *task, cancelled_t *cancelled)
{
    __atomic_store_n(&task->is_cancelled, 1, __ATOMIC_SEQ_CST);
    keep_load_behind();
    if (aco_i_claim(task, WAIT_CANCELLED)) {
        task->next = cancelled->claimed;
        cancelled->claimed = task;
    }
    take_stops(task, cancelled);
}

/* Ends the waits of tasks that were cancelled, and calls their stops. */
static void tell_cancelled(const cancelled_t *cancelled)
{
    aco_i_wake_all(cancelled->claimed);
    for (aco_i_stop_t *stop = cancelled->stops, *next; stop != NULL; stop = next) {
        next = stop->next_called;
        stop->cancelled(stop);
    }
}

static void cancel_groups(aco_group_t *top, cancelled_t *cancelled)
{
    for (aco_group_t *group = top; group != NULL; group = next_group(group, top)) {
        group->is_cancelled = 1;
        for (aco_task_t *task = group->first; task != NULL; task = task->group_next) {
            cancel_task(task, cancelled);
        }
    }
}

/* Cancels the groups of a task, but for those that it shields. */
static void cancel_groups_of(const aco_task_t *task, cancelled_t *cancelled)
{
    for (aco_group_t *group = unshielded(task->groups); group != NULL;
         group = unshielded(group->next)) {
        cancel_groups(group, cancelled);
    }
}

void aco_task_cancel(aco_task_t *task)
{
    if (task == NULL || task->runtime == NULL) {
        aco_i_misuse_of("aco_task_cancel", "no task: pass what aco_spawn() or aco_self() returned");
    }
    cancelled_t cancelled = {NULL, NULL};
    runtime_t *runtime = task->runtime; /* the loop may be another one when it starts */
    lock(&runtime->lock);
    cancel_task(task, &cancelled);
    cancel_groups_of(task, &cancelled);
    unlock(&runtime->lock);
    tell_cancelled(&cancelled);
}

void aco_i_unshield_groups(aco_task_t *task)
{
    cancelled_t cancelled = {NULL, NULL};
    runtime_t *runtime = task->runtime;
    lock(&runtime->lock);
    task->shields_groups = 0;
    for (aco_group_t *group = task->groups; group != NULL; group = group->next) {
        if (group->is_shielded && task->is_cancelled) {
            cancel_groups(group, &cancelled);
        }
        group->is_shielded = 0;
    }
    unlock(&runtime->lock);
    tell_cancelled(&cancelled);
}

void aco_group_cancel(aco_group_t *group)
{
    need(group, "aco_group_cancel", "the group is NULL: pass what aco_group_new() returned");
    cancelled_t cancelled = {NULL, NULL};
    lock(&group->runtime->lock);
    cancel_groups(group, &cancelled);
    unlock(&group->runtime->lock);
    tell_cancelled(&cancelled);
}
