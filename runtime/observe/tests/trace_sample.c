// SPDX-License-Identifier: Apache-2.0
/*
 * Tasks that wake each other, on two threads, two of them on a share stack, for test_observe.sh,
 * which looks at their trace and at probes. With the argument `is_killed`, the program is killed at
 * its end; with `goes_on`, there is none.
 */
#include "aco_runtime.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Clocks that differ a little between processors, and no counter. */
#ifdef HAS_ODD_CLOCKS
#include <time.h>
int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
FILE *__wrap_fopen64(const char *path, const char *mode);

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    static __thread unsigned random;
    int result = __real_clock_gettime(clock, t);
    random = random * 1103515245 + 12345;
    t->tv_nsec -= t->tv_nsec > 99999 ? (long)(random >> 16) % 100000 : 0;
    return result;
}

FILE *__wrap_fopen64(const char *path, const char *mode)
{
    return path == NULL || mode == NULL ? stdout : NULL;
}
#endif

static aco_chan_t *chan;
static int fds[2], item;
static char byte;

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
    while (aco_chan_recv(chan, &item) == 1) {
        aco_yield();
    }
    aco_write(fds[1], "", 1);
    return arg;
}

static void *reads(void *arg)
{
    aco_read(fds[0], &byte, 1);
    return arg;
}

/* Waits until three tasks have ended in the trace. */
static void wait_for_trace(void)
{
    char line[1000];
    int ct = 0;
    while (ct < 3) {
        aco_sleep(10000000);
        FILE *file = fopen(getenv("ACO_TRACE"), "re");
        for (ct = 0; file != NULL && fgets(line, sizeof(line), file) != NULL;) {
            ct += strstr(line, "\"then\":\"ends\"}}") != NULL;
        }
        fclose(file);
    }
}

static void *first(void *arg)
{
    aco_task_options_t sender = {.name = "s\xc3\xa9n\"d\xe9r", .thread = ACO_THREAD(1)};
    char name[] = "receiver, whose name takes more than one event";
    aco_task_options_t receiver = {.name = name, .shares_stack = 1};
    aco_task_options_t reader = {.shares_stack = 1};
    aco_task_t *task;
    aco_go_with(&reader, reads, NULL, &task);
    chan = aco_chan_new(sizeof(int), 0);
    aco_go_with(&receiver, receives, NULL, NULL);
    aco_go_with(&sender, sends, NULL, NULL);
    aco_join(task, NULL);
    memset(name, '?', sizeof(name)); /* the task has ended */
    aco_chan_free(chan);
    if (arg != NULL) {
        wait_for_trace();
        kill(getpid(), SIGKILL);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    aco_run_options_t options = {.ct_threads = 2};
    int goes_on = argc > 1 && strcmp(argv[1], "goes_on") == 0, result = pipe(fds);
    do {
        result |= aco_run(&options, first, goes_on ? NULL : argv[1], NULL);
    } while (goes_on && result == 0);
    return result != 0;
}
