// SPDX-License-Identifier: Apache-2.0
/*
 * Gives each task a coroutine and a stack at its start, and takes them at its end. A task starts
 * when it first runs, not when it is made: many that are made at once, and don't wait, use one
 * stack in turn.
 */
#include "base/probes.h"
#include "sched/sched.h"

#include <errno.h>

#define STARVED_RETRY 10000000 /* ns after which a task that found no stack tries again */

/* ==== Tasks that find no stack =============================================================== */

__attribute__((cold)) void aco_i_starve(loop_t *loop, aco_task_t *task)
{
    task->next = NULL;
    *(loop->first_starved != NULL ? &loop->last_starved->next : &loop->first_starved) = task;
    loop->last_starved = task;
    loop->retry_at = aco_i_clock() + STARVED_RETRY;
}

__attribute__((cold)) void aco_i_retry_starved(loop_t *loop)
{
    aco_task_t *task = loop->first_starved;
    loop->first_starved = task->next;
    loop->retry_at = loop->now + STARVED_RETRY; /* for the next one */
    push_ready(loop, task);
}

/* ==== Start and end ========================================================================== */

/* Returns the share stack of a loop, made when it is first needed; NULL if memory is short. */
static aco_share_stack_t *share_stack_of(loop_t *loop)
{
    if (loop->share_stack == NULL) {
        loop->share_stack = aco_try_share_stack_new2(loop->runtime->stack_sz, 1);
    }
    return loop->share_stack;
}

/* Returns a coroutine on a stack of the pool: one that a task has left, or a new one. */
static aco_t *pooled_co(loop_t *loop)
{
    aco_t *co = loop->spare_co;
    loop->spare_co = NULL;
    if (co == NULL) {
        co = aco_stack_pool_try_create_co(loop->pool, loop->main_co, loop->enter, loop);
#ifndef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
        if (co != NULL) {
            loop->control_words = co->reg[ACO_REG_IDX_FPU];
        }
    } else {
        co->reg[ACO_REG_IDX_FPU] = loop->control_words;
#endif
    }
    return co;
}

/* The class of stacks for the size that a task asked for; CT_CLASSES: there is none. */
static int class_of(const aco_task_t *task)
{
    int class = task->shares_stack || task->memory != NULL ? CT_CLASSES : 0;
    while (class < CT_CLASSES && LEAST_STACK_SZ << class < task->stack_sz) {
        class ++;
    }
    return class;
}

/* The pool of a class, made when it is first needed; NULL if memory is short. */
static aco_stack_pool_t *pool_of_class(loop_t *loop, int class)
{
    aco_stack_pool_t *pool = loop->classes[class];
    if (pool == NULL) {
        pool = aco_stack_pool_try_new(LEAST_STACK_SZ << class, loop->runtime->pool_flags);
        __atomic_store_n(&loop->classes[class], pool, __ATOMIC_RELEASE);
    }
    return pool;
}

/* Returns a coroutine on the stack that the task asked for; NULL if memory is short. */
static aco_t *new_co(loop_t *loop, aco_task_t *task, aco_share_stack_t *shared)
{
    if (task->shares_stack) {
        shared = shared != NULL ? shared : share_stack_of(loop);
        return shared == NULL ? NULL : aco_try_create(loop->main_co, shared, 0, loop->enter, loop);
    }
    if (task->stack_sz == 0) {
        return pooled_co(loop);
    }
    int class = class_of(task);
    if (class < CT_CLASSES) {
        aco_stack_pool_t *pool = pool_of_class(loop, class);
        return pool == NULL ? NULL
                            : aco_stack_pool_try_create_co(pool, loop->main_co, loop->enter, loop);
    }
    aco_share_stack_t *stack = task->memory != NULL
                                   ? aco_share_stack_new_in(task->memory, task->stack_sz)
                                   : aco_try_share_stack_new2(task->stack_sz, 1);
    aco_t *co = stack == NULL ? NULL : aco_try_create(loop->main_co, stack, 0, loop->enter, loop);
    if (co == NULL && stack != NULL) {
        aco_share_stack_destroy(stack);
    }
    return co;
}

/* Makes messages of the core name the task's function: they name the entry function of a coroutine,
 * which is the same for all tasks. */
static void name_function(aco_task_t *task)
{
    task->co->fp = (aco_cofuncp_t)(uintptr_t)task->fn;
}

void aco_i_name(const char *name, void *fn)
{
    loop_t *loop = aco_i_loop;
    aco_task_t *self = loop->running;
    self->name = self->name != NULL ? self->name : name;
    if (fn != NULL) {
        self->fn = (void *(*)(void *))(uintptr_t)fn; /* its own has been called */
        name_function(self);
    }
    if (loop->trace != NULL) {
        aco_i_observer->rename(loop, self);
    }
}

int aco_i_start(loop_t *loop, aco_task_t *task, aco_share_stack_t *stack)
{
    size_t ct_timers = loop->ct_tasks + loop->ct_later + 1;
    if (ct_timers >= loop->timers_sz && aco_i_reserve_timers(loop, ct_timers) != 0) {
        return -1;
    }
    task->co = task->suspended = new_co(loop, task, stack);
    if (task->co == NULL) {
        return -1;
    }
    name_function(task);
    loop->ct_tasks++;
    loop->ct_later -= task->starts_later != 0;
    if (task->shares_stack) {
        loop->ct_copying++;
        loop->most_copying += loop->most_copying < loop->ct_copying;
    }
    loop->counts.ct_started++;
    ACO_I_PROBE(start, task, task->name);
    return 0;
}

void aco_i_reset(aco_task_t *task)
{
    aco_reset(task->co, task->loop->enter, task->loop);
    task->suspended = task->co;
    name_function(task);
}

static void destroy_co(loop_t *loop, aco_task_t *task)
{
    if (task->co == NULL) {
        return; /* it was left to the next task */
    }
    if (!task->shares_stack && task->stack_sz == 0) {
        aco_stack_pool_destroy_co(loop->pool, task->co);
        return;
    }
    int class = class_of(task);
    if (class < CT_CLASSES) {
        aco_stack_pool_destroy_co(loop->classes[class], task->co);
        return;
    }
    aco_share_stack_t *stack = task->shares_stack ? NULL : task->co->share_stack;
    loop->ct_copying -= task->shares_stack != 0;
    aco_destroy(task->co);
    if (stack != NULL) {
        aco_share_stack_destroy(stack);
    }
}

/* Wakes the task that joins this one, and calls its watches. Returns 0 if it was detached. */
static int announce_end(aco_task_t *task)
{
    lock(&task->lock);
    task->state = TASK_ENDED;
    /* The joiner frees the task, perhaps right after the unlock. */
    __atomic_store_n(&task->has_ended, 1, __ATOMIC_RELEASE);
    int is_detached = task->is_detached;
    aco_task_t *joiner = task->joiner;
    int is_claimed = joiner != NULL && aco_i_claim(joiner, WAIT_EVENT);
    for (aco_i_watch_t *watch = task->watches; watch != NULL; watch = watch->next) {
        watch->fn(watch);
    }
    unlock(&task->lock);
    if (is_claimed) {
        aco_i_make_ready(joiner);
    }
    return !is_detached;
}

void aco_i_reap(loop_t *loop, aco_task_t *task)
{
    runtime_t *runtime = loop->runtime;
    ACO_I_PROBE(end, task, task->name);
    destroy_co(loop, task);
    task->co = NULL;
    loop->ct_tasks--;
    if (task->groups != NULL) {
        aco_i_abandon_groups(task);
    }
    if (task->group != NULL) {
        aco_i_leave_group(task);
    }
    if (!task->is_joinable) {
        aco_i_free_task(task);
    } else if (!announce_end(task)) {
        if (task->discard != NULL) {
            task->discard(task, task->arg);
        }
        aco_i_free_task(task);
    }
    if (add_to(&runtime->ct_tasks, UINT64_MAX) == 0) {
        for (int i = 0; i < runtime->ct_loops; i++) {
            aco_i_wake_loop(&runtime->loops[i]);
        }
    }
}
