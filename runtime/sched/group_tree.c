// SPDX-License-Identifier: Apache-2.0
/*
 * Groups, and cancelling. A task owns the groups that it made, and a group has its tasks: a tree,
 * which is cancelled from any of its tasks or groups downwards. All of it is under the lock of the
 * runtime.
 */
#include "internal.h"

#include <errno.h>

struct aco_group_s {
    runtime_t *runtime;
    aco_task_t *owner;  /* that made it; NULL: that has ended */
    aco_group_t *next;  /* of its owner, or of the runtime's orphans */
    aco_task_t *first;  /* of its tasks */
    aco_task_t *joiner; /* waits for their end */
    int64_t deadline;
    size_t ct;
    int is_cancelled;
    int is_shielded; /* made in an aco_shielded that its owner has not left */
    void *word;      /* of a binding; atomic */
};

aco_group_t *aco_group_new(void)
{
    aco_task_t *self = aco_self();
    aco_group_t *group = NULL;
    if (self == NULL) {
        errno = EPERM;
        return NULL;
    }
    group = (aco_group_t *)aco_i_allocate(sizeof(*group));
    if (group == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    *group =
        (aco_group_t){.runtime = self->loop->runtime, .owner = self, .deadline = self->deadline};
    lock(&group->runtime->lock);
    group->is_shielded = self->ct_shields != 0;
    self->shields_groups = self->ct_shields != 0;
    group->is_cancelled = self->is_cancelled && !group->is_shielded;
    group->next = self->groups;
    self->groups = group;
    unlock(&group->runtime->lock);
    return group;
}

aco_task_t *aco_i_joiner_of(const aco_group_t *group)
{
    aco_group_t copy;
    return aco_i_read_memory(&copy, group, sizeof(copy)) == sizeof(copy) ? copy.joiner : NULL;
}

int aco_i_group_keep(aco_group_t *group, void *word)
{
    need(group, "aco_i_group_keep", "the group is NULL: pass what aco_group_new() returned");
    void *none = NULL;
    return __atomic_compare_exchange_n(&group->word, &none, word, 0, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
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
        aco_i_make_ready(joiner); /* and who joins frees the group */
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

/* ==== Cancelling ============================================================================= */

/* The groups and tasks below `top` that no shield keeps from it, each before what is below it,
 * without recursion. */
static aco_group_t *next_group(aco_group_t *group, const aco_group_t *top);

/* The first of a task's groups, from `group` on, that its cancelling reaches. */
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

/* Claims the wait of a task of this or another thread, and puts it into `claimed`. */
static void cancel_task(aco_task_t *task, aco_task_t **claimed)
{
    __atomic_store_n(&task->is_cancelled, 1, __ATOMIC_SEQ_CST);
    if (aco_i_claim(task, WAIT_CANCELLED)) {
        task->next = *claimed;
        *claimed = task;
    }
}

static void cancel_groups(aco_group_t *top, aco_task_t **claimed)
{
    for (aco_group_t *group = top; group != NULL; group = next_group(group, top)) {
        group->is_cancelled = 1;
        for (aco_task_t *task = group->first; task != NULL; task = task->group_next) {
            cancel_task(task, claimed);
        }
    }
}

/* The groups of a task, but for those that it shields. */
static void cancel_groups_of(const aco_task_t *task, aco_task_t **claimed)
{
    for (aco_group_t *group = unshielded(task->groups); group != NULL;
         group = unshielded(group->next)) {
        cancel_groups(group, claimed);
    }
}

static void make_all_ready(aco_task_t *claimed)
{
    while (claimed != NULL) {
        aco_task_t *task = claimed;
        claimed = task->next;
        aco_i_make_ready(task);
    }
}

void aco_task_cancel(aco_task_t *task)
{
    if (task == NULL || task->runtime == NULL) {
        aco_i_misuse_of("aco_task_cancel", "no task: pass what aco_spawn() or aco_self() returned");
    }
    aco_task_t *claimed = NULL;
    runtime_t *runtime = task->runtime; /* the loop may be another one when it starts */
    lock(&runtime->lock);
    cancel_task(task, &claimed);
    cancel_groups_of(task, &claimed);
    unlock(&runtime->lock);
    make_all_ready(claimed);
}

void aco_i_unshield_groups(aco_task_t *task)
{
    aco_task_t *claimed = NULL;
    runtime_t *runtime = task->runtime;
    lock(&runtime->lock);
    task->shields_groups = 0;
    for (aco_group_t *group = task->groups; group != NULL; group = group->next) {
        if (group->is_shielded && task->is_cancelled) {
            cancel_groups(group, &claimed);
        }
        group->is_shielded = 0;
    }
    unlock(&runtime->lock);
    make_all_ready(claimed);
}

void aco_group_cancel(aco_group_t *group)
{
    if (group == NULL) {
        aco_i_misuse_of("aco_group_cancel",
                        "the group is NULL: pass what aco_group_new() returned");
    }
    aco_task_t *claimed = NULL;
    lock(&group->runtime->lock);
    cancel_groups(group, &claimed);
    unlock(&group->runtime->lock);
    make_all_ready(claimed);
}

/* ==== Joining ================================================================================ */

/* Waits until the group has no task, as far as cancelling and the deadline let it. */
static outcome_t wait_for_tasks(aco_group_t *group, aco_task_t *self)
{
    lock(&group->runtime->lock);
    if (group->joiner != NULL) {
        aco_i_misuse_of("aco_group_join", "another task joins it already: join a group once");
    }
    if (group->ct == 0) {
        unlock(&group->runtime->lock);
        return WAIT_EVENT;
    }
    group->joiner = self;
    aco_i_open_wait(self, FOR_GROUP);
    unlock(&group->runtime->lock);
    outcome_t outcome = aco_i_wait(self);
    lock(&group->runtime->lock);
    group->joiner = NULL;
    unlock(&group->runtime->lock);
    return outcome;
}

static void free_group(aco_group_t *group)
{
    runtime_t *runtime = group->runtime;
    lock(&runtime->lock);
    aco_group_t **link = group->owner != NULL ? &group->owner->groups : &runtime->orphans;
    while (*link != group) {
        link = &(*link)->next;
    }
    *link = group->next;
    unlock(&runtime->lock);
    aco_i_release(group);
}

int aco_i_group_join(aco_group_t *group, void **word)
{
    if (group == NULL) {
        aco_i_misuse_of("aco_group_join", "the group is NULL: pass what aco_group_new() returned");
    }
    need(word, "aco_i_group_join", "there is no place for the word: pass its address");
    if (aco_i_self()->group == group) {
        aco_i_misuse_of("aco_group_join",
                        "the caller is a task of the group: join it from outside");
    }
    outcome_t outcome = wait_for_tasks(group, aco_i_self());
    if (outcome != WAIT_EVENT) {
        aco_group_cancel(group);
        aco_shielded
        {
            wait_for_tasks(group, aco_i_self());
        }
    }
    *word = __atomic_load_n(&group->word, __ATOMIC_ACQUIRE);
    free_group(group);
    return aco_i_result(outcome);
}

int aco_group_join(aco_group_t *group)
{
    void *word;
    return aco_i_group_join(group, &word);
}
