// SPDX-License-Identifier: Apache-2.0
/* The table of functions by which loops are observed. */
#include "observe/observe.h"

static void begin_runtime(void)
{
    aco_i_begin_watch();
    aco_i_begin_printing();
    aco_i_begin_overflow_reports();
}

static void begin_loop(loop_t *loop)
{
    aco_i_begin_alt_stack(loop);
    aco_i_begin_trace(loop);
    aco_i_begin_profile(loop);
}

static void end_loop(loop_t *loop)
{
    aco_i_end_profile(loop);
    aco_i_end_trace(loop);
    aco_i_end_alt_stack(loop);
}

static void end_runtime(const runtime_t *runtime, size_t ct_groups)
{
    if (aco_i_is_watched) {
        aco_i_report_unjoined(runtime, ct_groups);
    }
}

static void put_label(char *label, const aco_task_t *task)
{
    aco_i_find_modules();
    aco_i_begin_last_backtraces();
    aco_i_label(label, task);
    aco_i_end_backtraces();
}

const aco_i_observer_t aco_i_observe = {
    .label = put_label,
    .begin_runtime = begin_runtime,
    .end_runtime = end_runtime,
    .begin_loop = begin_loop,
    .end_loop = end_loop,
    .look = aco_i_trace_look,
    .begin_run = aco_i_trace_begin_run,
    .end_run = aco_i_trace_end_run,
    .rename = aco_i_trace_name,
    .wake = aco_i_trace_wake,
};
