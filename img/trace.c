// SPDX-License-Identifier: Apache-2.0
/*
 * The program whose trace is in trace.svg: clients on one thread, whose lines a task on another one
 * writes, and a report that keeps the first thread busy for too long. With the environment variable
 * ACO_TRACE=img/trace.json it records what img/draw.py draws.
 */
#include "aco_runtime.h"

#define US 1000 /* ns */

static aco_chan_t *lines;

static void work(int64_t ns)
{
    for (int64_t end = aco_now() + ns; aco_now() < end;) {
    }
}

static void *client(void *arg)
{
    const char *line = "a line";
    for (int i = 0; i < 4; i++) {
        aco_sleep(90 * US);
        work(30 * US);
        aco_chan_send(lines, &line);
    }
    return arg;
}

static void *report(void *arg)
{
    aco_sleep(230 * US);
    work(260 * US);
    return arg;
}

static void *writer(void *arg)
{
    const char *line;
    while (aco_chan_recv(lines, &line) == 1) {
        work(25 * US);
    }
    return arg;
}

static void *first(void *arg)
{
    aco_task_options_t there = {.name = "writer", .thread = ACO_THREAD(1)};
    lines = aco_chan_new(sizeof(const char *), 10);
    aco_go_with(&there, writer, NULL, NULL);
    aco_sleep(2000 * US);
    aco_group_t *group = aco_group_new();
    for (int i = 0; i < 3; i++) {
        aco_group_go(group, client, NULL);
        aco_sleep(40 * US);
    }
    aco_group_go(group, report, NULL);
    aco_group_join(group);
    aco_chan_close(lines);
    return arg;
}

int main(void)
{
    aco_run_options_t options = {.ct_threads = 2};
    return aco_run(&options, first, NULL, NULL) != 0;
}
