// SPDX-License-Identifier: Apache-2.0
/* Prints numbers about the runtimes of the process, in the text format of Prometheus. */
#include "observe/observe.h"

#include <inttypes.h>

typedef struct {
    uint64_t ct_waiting[CT_REASONS], ct_ready, ct_running;
} metrics_t;

static READS_RACILY void count_task(const aco_task_t *task, void *arg)
{
    metrics_t *metrics = (metrics_t *)arg;
    if (task->state == TASK_WAITING) {
        metrics->ct_waiting[task->reason]++;
    } else {
        metrics->ct_running += task->state == TASK_RUNNING;
        metrics->ct_ready += task->state != TASK_RUNNING;
    }
}

static void count_tasks(runtime_t *runtime, void *metrics)
{
    aco_i_each_task(runtime, count_task, metrics);
}

static void print_head(FILE *stream, const char *name, const char *type, const char *help)
{
    fprintf(stream, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void print_number(FILE *stream, const char *name, const char *type, const char *help,
                         uint64_t number)
{
    print_head(stream, name, type, help);
    fprintf(stream, "%s %" PRIu64 "\n", name, number);
}

static void print_durations(FILE *stream, const char *name, const char *help,
                            const durations_t *durations)
{
    uint64_t ct = 0;
    print_head(stream, name, "histogram", help);
    for (int i = 0; i < CT_DURATIONS; i++) {
        int64_t most = (int64_t)ACO_I_SHORTEST << i;
        ct += durations->ct[i];
        fprintf(stream, "%s_bucket{le=\"%" PRId64 ".%09" PRId64 "\"} %" PRIu64 "\n", name,
                most / 1000000000, most % 1000000000, ct);
    }
    ct += durations->ct[CT_DURATIONS];
    fprintf(stream, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, ct);
    fprintf(stream, "%s_sum %" PRIu64 ".%09" PRIu64 "\n%s_count %" PRIu64 "\n", name,
            durations->sum / 1000000000, durations->sum % 1000000000, name, ct);
}

static void print_waiting(FILE *stream, const metrics_t *metrics)
{
    print_head(stream, "aco_tasks_waiting", "gauge", "Tasks that wait, by what they wait for.");
    for (int i = 0; i < CT_REASONS; i++) {
        if (metrics->ct_waiting[i] != 0) {
            fprintf(stream, "aco_tasks_waiting{for=\"%s\"} %" PRIu64 "\n", aco_i_reason_names[i],
                    metrics->ct_waiting[i]);
        }
    }
}

void aco_print_metrics(FILE *stream)
{
    need(stream, "aco_print_metrics", "there is no stream: pass stdout, say");
    metrics_t metrics = {.ct_ready = 0};
    aco_stats_t stats;
    counts_t counts;
    aco_stats(&stats);
    aco_i_sum_counts(&counts);
    aco_i_each_runtime(count_tasks, &metrics);
    print_number(stream, "aco_tasks", "gauge", "Tasks that have not ended.", stats.ct_tasks);
    print_number(stream, "aco_tasks_ready", "gauge", "Tasks that could run, but do not.",
                 metrics.ct_ready);
    print_number(stream, "aco_tasks_running", "gauge", "Tasks that run.", metrics.ct_running);
    print_waiting(stream, &metrics);
    print_number(stream, "aco_tasks_started_total", "counter", "Tasks that have started.",
                 stats.ct_started);
    print_number(stream, "aco_switches_total", "counter", "Switches to a task.", stats.ct_switches);
    print_number(stream, "aco_wakes_total", "counter", "Ends of waits.", stats.ct_wakes);
    print_number(stream, "aco_polls_total", "counter", "Looks at descriptors.", stats.ct_polls);
    print_number(stream, "aco_timers", "gauge", "Waits that have a deadline.", stats.ct_timers);
    print_number(stream, "aco_offloads_total", "counter", "Jobs for helper threads.",
                 stats.ct_offloads);
    print_number(stream, "aco_stacks_bytes", "gauge", "Addresses mapped for stacks.",
                 stats.stacks_sz);
    print_durations(stream, "aco_turn_seconds",
                    "For how long tasks ran until the loop looked outside again.", &counts.turns);
    print_durations(stream, "aco_wake_seconds",
                    "How long a task that was woken from outside waited to run; samples.",
                    &counts.delays);
}
