// SPDX-License-Identifier: Apache-2.0
/*
 * A program that uses the runtime: tasks on two threads send numbers by a channel, within a time
 * that is ample. Is C as well as C++; exits with 0 if all is well.
 */
#include "aco_runtime.h"

#define TASKS 100

static void *send_one(void *arg)
{
    static const int one = 1;
    aco_sleep(1000);
    return aco_chan_send((aco_chan_t *)arg, &one) == 0 ? arg : NULL;
}

static void *sum(void *arg)
{
    const aco_task_options_t options = {NULL, 0, 0, ACO_THREAD(1), NULL};
    int number = 0, total = 0;
    aco_chan_t *chan = aco_chan_new(sizeof number, 0);
    for (int i = 0; i < TASKS; i++) {
        if (i % 2 ? aco_go(send_one, chan) : aco_go_with(&options, send_one, chan, NULL)) {
            return NULL;
        }
    }
    aco_within(10000000000)
    {
        for (int i = 0; i < TASKS && aco_chan_recv(chan, &number) == 1; i++) {
            total += number;
        }
    }
    aco_chan_free(chan);
    return total == TASKS ? arg : NULL;
}

int main(void)
{
    aco_run_options_t options = {2, 0, 0, 0, 0};
    void *result = NULL;
    if (aco_run(&options, sum, &options, &result) || result != &options) {
        puts("the runtime fails");
        return 1;
    }
    puts("the runtime works");
    return 0;
}
