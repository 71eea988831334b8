// SPDX-License-Identifier: Apache-2.0
/*
 * Records the events of the trace. A loop that is traced writes what it sees of its tasks into a
 * ring of its own, without locks; other loops pay nothing.
 */
#include "observe/trace.h"

#include <string.h>

#define AHEAD 4 /* events for which memory is fetched in advance */

counter_t aco_i_counter;

static int has_room(trace_t *trace)
{
    trace->room_until = __atomic_load_n(&trace->ct_read, __ATOMIC_ACQUIRE) + CT_EVENTS;
    trace->ct_lost += trace->ct_begun == trace->room_until;
    return trace->ct_begun != trace->room_until;
}

/* The next event, to be filled before it is published; trace->lost if there is no room. */
static inline event_t *add_event(trace_t *trace)
{
    event_t *event = &trace->lost;
    if (!trace->is_busy) {
        trace->is_busy = 1;
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        if (trace->ct_begun != trace->room_until || has_room(trace)) {
            event = &trace->ring[trace->ct_begun++ % CT_EVENTS];
            /* The ring is larger than most caches, and the other thread has just read it. */
            __builtin_prefetch(&trace->ring[(trace->ct_begun + AHEAD) % CT_EVENTS], 1);
        }
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        trace->is_busy = 0;
    }
    return event;
}

static void add_wake(trace_t *trace, const aco_task_t *task, int64_t at)
{
    event_t *event = add_event(trace);
    event->kind = WOKE;
    event->at = at;
    event->id = task->id;
}

/* Adds the tasks behind `last_before` in the ready queue, which were woken, or made, since then. */
static void add_woken(loop_t *loop, const aco_task_t *last_before, const aco_task_t *ran,
                      int64_t at)
{
    const aco_task_t *task = last_before != NULL ? last_before->next : loop->first_ready;
    for (; task != NULL; task = task->next) {
        if (task != ran && !task->is_woken) {
            add_wake(loop->trace, task, at);
        }
    }
}

void aco_i_trace_wake(const loop_t *loop, aco_task_t *task)
{
    task->is_woken = 1; /* so that its own loop does not record it again */
    add_wake(loop->trace, task, now());
}

/* The end of what began last: now, or its beginning, as clocks of processors differ by a little. */
static inline int64_t end_of(const trace_t *trace)
{
    int64_t at = now();
    return at < trace->began ? trace->began : at;
}

void aco_i_trace_look(loop_t *loop, const aco_task_t *last_before)
{
    trace_t *trace = loop->trace;
    int64_t at = end_of(trace);
    event_t *event = add_event(trace);
    event->kind = LOOKED;
    event->at = trace->began;
    event->duration = at - trace->began;
    add_woken(loop, last_before, NULL, at - 1);
    publish(trace);
    trace->began = at;
}

/* Copies the name: the program may free it when the task has ended, before the file is written. */
static __attribute__((noinline)) void add_name(trace_t *trace, const aco_task_t *task)
{
    size_t sz = strnlen(task->name, NAME_SZ);
    for (size_t done = 0; done == 0 || done < sz; done += PART_SZ) {
        event_t *event = add_event(trace);
        event->kind = done == 0 ? NAMED : NAMED_ON;
        event->id = task->id;
        memset(event->part, 0, PART_SZ);
        memcpy(event->part, task->name + done, sz - done < PART_SZ ? sz - done : PART_SZ);
    }
}

static void set_name(event_t *event, const aco_task_t *task)
{
    event->is_function = task->name == NULL;
    event->name = task->name != NULL ? (const void *)task->name : (const void *)(uintptr_t)task->fn;
}

void aco_i_trace_name(loop_t *loop, const aco_task_t *task)
{
    set_name(loop->trace->runs, task);
}

void aco_i_trace_begin_run(loop_t *loop, const aco_task_t *task)
{
    trace_t *trace = loop->trace;
    if (task->co == NULL && task->name != NULL) {
        add_name(trace, task);
    }
    event_t *event = add_event(trace);
    int was_woken = task->co == NULL || task->reason != FOR_NOTHING;
    event->kind = RAN;
    event->at = trace->began;
    int64_t since = task->since < trace->began ? task->since : trace->began;
    event->waited_since = task->co != NULL && was_woken ? since : 0;
    event->id = task->id;
    set_name(event, task);
    event->waited_for = task->reason;
    event->was_woken = (char)was_woken;
    event->fd = task->fd;
    trace->runs = event;
    trace->last_ready = loop->first_ready != NULL ? loop->last_ready : NULL;
}

void aco_i_trace_end_run(loop_t *loop, aco_task_t *task)
{
    trace_t *trace = loop->trace;
    event_t *event = trace->runs;
    int64_t at = end_of(trace);
    event->duration = at - trace->began;
    event->state = task->id == event->id ? task->state : TASK_ENDED;
    event->waits_for = task->reason;
    event->next_fd = task->fd;
    if (task->state == TASK_WAITING) {
        task->since = at;
    } else if (task->state == TASK_READY) {
        task->reason = FOR_NOTHING; /* nothing has to wake it */
    }
    if (loop->first_ready != NULL && loop->last_ready != trace->last_ready) {
        add_woken(loop, trace->last_ready, task, at - 1);
    }
    publish(trace);
    trace->began = at;
}
