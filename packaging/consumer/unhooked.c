// SPDX-License-Identifier: Apache-2.0
/*
 * A program that needs the hooks, but names none of them: its tasks wait in a library, by calls of
 * libc. Several wait at the same time, unless the hooks got lost at linking. Exits with 0 if all is
 * well.
 */
#include "aco_runtime.h"

#define TASKS 100

int wait_a_while(void);

static int ct_waiting, most;

static void *waits(void *arg)
{
    ct_waiting++;
    most = ct_waiting > most ? ct_waiting : most;
    int result = wait_a_while();
    ct_waiting--;
    return result == 0 ? arg : NULL;
}

static void *first(void *arg)
{
    for (int i = 0; i < TASKS; i++) {
        aco_go(waits, arg);
    }
    return arg;
}

int main(void)
{
    if (aco_run(NULL, first, NULL, NULL) != 0 || most < 2) {
        puts("the library blocks threads: no hooks");
        return 1;
    }
    puts("the library waits as a task");
    return 0;
}
