// SPDX-License-Identifier: Apache-2.0
/*
 * Faults of programs, which tools must still see when they happen in tasks:
 *
 *     faults freed          a task uses memory that another one has freed
 *     faults race           tasks of two threads write one variable
 *     faults uninitialised  a task decides by memory that was never written
 *
 * Exits with 0 if nothing stops it.
 */
#include "aco_runtime.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

static void *frees(void *block)
{
    aco_yield();
    free(block);
    return NULL;
}

static void *uses_freed(void *arg)
{
    char *block = (char *)malloc(100);
    aco_task_t *task = aco_spawn(frees, block);
    block[50] = 1;
    aco_join(task, NULL);
    block[50] = 2;
    return arg;
}

/* Neither task ends before both have begun: its end would order their writes. */
static void *counts(void *ct)
{
    static int ct_begun; /* atomic */
    *(volatile long *)ct += 1;
    __atomic_add_fetch(&ct_begun, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&ct_begun, __ATOMIC_RELAXED) < 2) {
        sched_yield();
    }
    return ct;
}

static void *races(void *arg)
{
    static long ct;
    aco_task_t *tasks[2];
    for (int i = 0; i < 2; i++) {
        aco_task_options_t options = {.thread = ACO_THREAD(i)};
        aco_go_with(&options, counts, &ct, &tasks[i]);
    }
    aco_join(tasks[0], NULL);
    aco_join(tasks[1], NULL);
    return arg;
}

static void *decides(void *block)
{
    aco_yield();
    if (((volatile char *)block)[50] == 1) {
        aco_yield();
    }
    return NULL;
}

static void *leaves_uninitialised(void *arg)
{
    void *block = malloc(100);
    aco_task_t *task = aco_spawn(decides, block);
    aco_join(task, NULL);
    free(block);
    return arg;
}

int main(int argc, char **argv)
{
    aco_run_options_t options = {.ct_threads = 2};
    const char *fault = argc > 1 ? argv[1] : "";
    void *(*fn)(void *) = strcmp(fault, "freed") == 0  ? uses_freed
                          : strcmp(fault, "race") == 0 ? races
                                                       : leaves_uninitialised;
    return aco_run(&options, fn, NULL, NULL) != 0;
}
