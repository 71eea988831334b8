// SPDX-License-Identifier: Apache-2.0
/* What there is: a list of all tasks, and numbers. */
#include "internal.h"

#include <inttypes.h>

static const char *const state_names[] = {"free", "new", "ready", "running", "waits", "ended"};
static const char *const reason_names[] = {"nothing",
                                           "the end of a task",
                                           "aco_unpark",
                                           "a time",
                                           "the end of a group",
                                           "a mutex",
                                           "an rwlock",
                                           "a condition",
                                           "a semaphore",
                                           "a wait group",
                                           "a receiver",
                                           "a sender",
                                           "one of several channels"};

static void print_task(FILE *stream, const aco_task_t *task, int64_t now)
{
    fprintf(stream, "task %" PRIu64 " \"%s\": %s", task->id, aco_task_name(task),
            state_names[task->state]);
    if (task->state == TASK_WAITING) {
        fprintf(stream, " for %s since %.3f s", reason_names[task->reason],
                (double)(now - task->since) / 1e9);
    }
    if (task->deadline != NO_DEADLINE) {
        fprintf(stream, ", deadline in %.3f s", (double)(task->deadline - now) / 1e9);
    }
    fprintf(stream, "%s\n", task->is_cancelled ? ", cancelled" : "");
}

static void print_of(runtime_t *runtime, void *stream)
{
    aco_i_each_task(runtime, print_task, (FILE *)stream);
}

void aco_print_tasks(FILE *stream)
{
    aco_i_each_runtime(print_of, stream);
}

static void add_stats(runtime_t *runtime, void *arg)
{
    aco_stats_t *stats = (aco_stats_t *)arg;
    stats->ct_tasks += __atomic_load_n(&runtime->ct_tasks, __ATOMIC_RELAXED);
    for (int i = 0; i < runtime->ct_loops; i++) {
        const loop_t *loop = &runtime->loops[i];
        stats->ct_started += loop->ct_started;
        stats->ct_switches += loop->ct_switches;
        stats->ct_wakes += loop->ct_wakes;
        stats->ct_polls += loop->ct_polls;
        stats->ct_timers += loop->ct_timers;
    }
}

void aco_stats(aco_stats_t *stats)
{
    *stats = (aco_stats_t){0};
    aco_i_each_runtime(add_stats, stats);
}
