// SPDX-License-Identifier: Apache-2.0
/*
 * Shared by the tests of the runtime. cmocka's assertions jump out of a failed test, which a task
 * must not do: tasks use CHECK(), and run_tasks() fails the test once all have ended.
 */
#ifndef ACO_TESTS_TASKS_H
#define ACO_TESTS_TASKS_H

#include "aco_runtime.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS INT64_C(1000000) /* ns */
#define ARRAY_SZ(array) (sizeof(array) / sizeof((array)[0]))

static int ct_failed;

#define CHECK(EX)                                                                                  \
    do {                                                                                           \
        if (!(EX)) {                                                                               \
            print_error("%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #EX, errno);                 \
            __atomic_add_fetch(&ct_failed, 1, __ATOMIC_RELAXED);                                   \
        }                                                                                          \
    } while (0)

/* Checks that a call fails with an error. */
#define CHECK_FAILS(call, error)                                                                   \
    do {                                                                                           \
        errno = 0;                                                                                 \
        CHECK((call) < 0 && errno == (error));                                                     \
    } while (0)

static inline void run_tasks_on(int ct_threads, void *(*fn)(void *), void *arg)
{
    aco_run_options_t options = {.ct_threads = ct_threads};
    ct_failed = 0;
    assert_int_equal(aco_run(&options, fn, arg, NULL), 0);
    assert_int_equal(ct_failed, 0);
}

static inline void run_tasks(void *(*fn)(void *), void *arg)
{
    run_tasks_on(1, fn, arg);
}

/* A task that must be cancelled before it ends. */
static inline void *shields_itself(void *arg)
{
    aco_shielded
    {
        CHECK(aco_sleep(5 * MS) == 0);
    }
    CHECK_FAILS(aco_park(), ECANCELED);
    return arg;
}

#endif
