// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps timers: a heap for each loop, by when they are due. Four children to a node make it half as
 * deep as a binary heap, and lie in one or two cache lines. Each task has at most one timer; its
 * place is reserved when the task starts, so setting a timer never fails.
 */
#include "sched/sched.h"

#include <errno.h>
#include <string.h>

#define CT_CHILDREN 4u

/* Node i, from 1 on, has the children 4i - 2 to 4i + 1. */
static inline size_t parent_of(size_t i)
{
    return (i + 2) / CT_CHILDREN;
}

static inline void put_at(loop_t *loop, size_t i, aco_i_timer_t timer)
{
    loop->timers[i] = timer;
    timer.task->timer = (uint32_t)i;
}

static void move_up(loop_t *loop, size_t i, aco_i_timer_t timer)
{
    while (i > 1 && loop->timers[parent_of(i)].when > timer.when) {
        put_at(loop, i, loop->timers[parent_of(i)]);
        i = parent_of(i);
    }
    put_at(loop, i, timer);
}

static void move_down(loop_t *loop, size_t i, aco_i_timer_t timer)
{
    for (;;) {
        size_t first = CT_CHILDREN * i - 2, least = 0;
        for (size_t child = first; child < first + CT_CHILDREN && child <= loop->ct_timers;
             child++) {
            if (least == 0 || loop->timers[child].when < loop->timers[least].when) {
                least = child;
            }
        }
        if (least == 0 || loop->timers[least].when >= timer.when) {
            break;
        }
        put_at(loop, i, loop->timers[least]);
        i = least;
    }
    put_at(loop, i, timer);
}

int aco_i_reserve_timers(loop_t *loop, size_t ct)
{
    if (ct < loop->timers_sz) {
        return 0;
    }
    if (ct > UINT32_MAX) {
        return -1;
    }
    size_t sz = loop->timers_sz < 64 ? 64 : 2 * loop->timers_sz;
    aco_i_timer_t *timers = (aco_i_timer_t *)aco_i_allocate(sz * sizeof(*timers));
    if (timers == NULL) {
        return -1;
    }
    if (loop->timers != NULL) {
        memcpy(timers, loop->timers, (loop->ct_timers + 1) * sizeof(*timers));
    }
    aco_i_release(loop->timers);
    loop->timers = timers;
    loop->timers_sz = sz;
    return 0;
}

void aco_i_set_timer(aco_task_t *task, int64_t when)
{
    move_up(task->loop, ++task->loop->ct_timers, (aco_i_timer_t){when, task});
}

void aco_i_clear_timer(aco_task_t *task)
{
    size_t i = task->timer;
    if (i == 0) {
        return;
    }
    task->timer = 0;
    loop_t *loop = task->loop;
    aco_i_timer_t last = loop->timers[loop->ct_timers--];
    if (last.task == task) {
        return;
    }
    if (i > 1 && loop->timers[parent_of(i)].when > last.when) {
        move_up(loop, i, last);
    } else {
        move_down(loop, i, last);
    }
}

void aco_i_expire_timers(loop_t *loop)
{
    while (loop->ct_timers != 0 && loop->timers[1].when <= loop->now) {
        aco_task_t *task = loop->timers[1].task;
        aco_i_clear_timer(task);
        if (aco_i_claim(task, WAIT_DEADLINE)) {
            aco_i_make_ready(task);
        }
    }
}
