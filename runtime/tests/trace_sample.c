// SPDX-License-Identifier: Apache-2.0
/* Tasks that wake each other, on two threads, for test_observe.sh, which looks at their trace. With
 * an argument, the program is killed at its end. */
#include "aco_runtime.h"

#include <signal.h>
#include <unistd.h>

static aco_chan_t *chan;
static int fds[2];

static void *sends(void *arg)
{
    for (int i = 0; i < 10; i++) {
        aco_chan_send(chan, &i);
        aco_sleep(1000000);
    }
    aco_chan_close(chan);
    return arg;
}

static void *receives(void *arg)
{
    int item;
    while (aco_chan_recv(chan, &item) == 1) {
        aco_yield();
    }
    aco_write(fds[1], "", 1);
    return arg;
}

static void *reads(void *arg)
{
    char byte;
    aco_read(fds[0], &byte, 1);
    return arg;
}

static void *first(void *arg)
{
    aco_task_options_t sender = {.name = "sen\"der", .thread = ACO_THREAD(1)};
    aco_task_options_t receiver = {.name = "receiver"};
    aco_task_t *task = aco_spawn(reads, NULL);
    chan = aco_chan_new(sizeof(int), 0);
    aco_go_with(&receiver, receives, NULL, NULL);
    aco_go_with(&sender, sends, NULL, NULL);
    aco_join(task, NULL);
    if (arg != NULL) {
        aco_sleep(INT64_C(2000000000));
        kill(getpid(), SIGKILL);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    aco_run_options_t options = {.ct_threads = 2};
    return pipe(fds) != 0 || aco_run(&options, first, argc > 1 ? argv[1] : NULL, NULL) != 0;
}
