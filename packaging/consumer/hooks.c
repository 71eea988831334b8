// SPDX-License-Identifier: Apache-2.0
/*
 * A program that uses the hooks: tasks in usleep() of libc sleep at the same time. Is C as well as
 * C++; exits with 0 if all is well.
 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "aco_hooks.h"
#include "aco_runtime.h"

#include <unistd.h>

#define TASKS 100

static int ct_asleep, most;

static void *sleeps(void *arg)
{
    ct_asleep++;
    most = ct_asleep > most ? ct_asleep : most;
    usleep(1000);
    ct_asleep--;
    return arg;
}

static void *first(void *arg)
{
    for (int i = 0; i < TASKS; i++) {
        aco_go(sleeps, arg);
    }
    return arg;
}

int main(void)
{
    if (aco_run(NULL, first, NULL, NULL) != 0 || most != TASKS || !aco_hooks_active()) {
        puts("the hooks fail");
        return 1;
    }
    puts("the hooks work");
    return 0;
}
