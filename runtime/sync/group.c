// SPDX-License-Identifier: Apache-2.0
/* Makes, joins and frees groups. sched/group_tree.c keeps the tree that they are in. */
#include "sync/sync.h"

#include <errno.h>

static const char no_group[] = "the group is NULL: pass what aco_group_new() returned";

aco_group_t *aco_group_new(void)
{
    aco_task_t *self = aco_self();
    if (self == NULL) {
        errno = EPERM;
        return NULL;
    }
    aco_group_t *group = (aco_group_t *)aco_i_allocate(sizeof(*group));
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

int aco_i_group_keep(aco_group_t *group, void *word)
{
    need(group, "aco_i_group_keep", no_group);
    void *none = NULL;
    return __atomic_compare_exchange_n(&group->word, &none, word, 0, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

/* ==== Joining ================================================================================ */

/* Waits until the group has no task, unless cancelling or the deadline ends the wait. */
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
    aco_i_spend_call();
    need(group, "aco_group_join", no_group);
    need(word, "aco_i_group_join", "there is no place for the word: pass its address");
    const aco_task_t *self = aco_i_self();
    int is_inside = self->loop != NULL && self->loop->runtime == group->runtime;
    runtime_t *held = is_inside ? NULL : aco_i_hold_runtime_of(group, aco_i_has_group);
    if (!is_inside && held == NULL) {
        aco_i_misuse_of("aco_group_join",
                        "it was joined, or its runtime has ended, and is freed: join a group once, "
                        "before aco_run() returns");
    }
    if (self->group == group) {
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
    if (held != NULL) {
        aco_i_drop_runtime(held);
    }
    return aco_i_result(outcome);
}

int aco_group_join(aco_group_t *group)
{
    void *word;
    return aco_i_group_join(group, &word);
}
