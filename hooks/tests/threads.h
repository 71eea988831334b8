// SPDX-License-Identifier: Apache-2.0
/* Shared by the tests of calls of threads. */
#ifndef ACO_HOOKS_TESTS_THREADS_H
#define ACO_HOOKS_TESTS_THREADS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tasks.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#define CT_TASKS 20

/* The point in time `ns` from now. */
static inline struct timespec in(clockid_t clock, int64_t ns)
{
    struct timespec t;
    clock_gettime(clock, &t);
    int64_t sum = t.tv_nsec + ns;
    t.tv_sec += (time_t)(sum / 1000000000);
    t.tv_nsec = (long)(sum % 1000000000);
    return t;
}

static inline int has_come(clockid_t clock, const struct timespec *t)
{
    struct timespec now = in(clock, 0);
    return now.tv_sec != t->tv_sec ? now.tv_sec > t->tv_sec : now.tv_nsec >= t->tv_nsec;
}

/* Lets all tasks of this thread run until they wait. */
static inline void let_run(void)
{
    for (int i = 0; i < 10; i++) {
        aco_yield();
    }
}

/* The stage that another task has reached. It is volatile, as libc declares some hooked calls as if
 * the caller's own functions could not run meanwhile. */
static volatile int stage;

static inline void wait_for_stage(int awaited)
{
    while (stage != awaited) {
        aco_sleep(MS / 10);
    }
    let_run();
}

/* Runs tasks of `*fn` on all threads. */
static inline void *spawns_anywhere(void *fn)
{
    aco_group_t *group = aco_group_new();
    aco_task_options_t options = {.thread = ACO_ANY, .group = group};
    for (uintptr_t i = 0; i < CT_TASKS; i++) {
        options.shares_stack = i % 5 == 0;
        CHECK(aco_go_with(&options, *(void *(**)(void *))fn, (void *)i, NULL) == 0);
    }
    CHECK(aco_group_join(group) == 0);
    return NULL;
}

#endif
