// SPDX-License-Identifier: Apache-2.0
/* Tasks in every state, for test_gdb.sh, which stops in stop_here(), or makes the program abort. */
#include "aco_runtime.h"

#include <stdlib.h>
#include <sys/socket.h>

static aco_mutex_t mutex;
static int fds[2];

static __attribute__((noinline)) void stop_here(void)
{
    __asm__ volatile("");
}

static void *reads(void *arg)
{
    char byte;
    aco_read(fds[0], &byte, 1);
    return arg;
}

static void *locks(void *arg)
{
    aco_mutex_lock(&mutex);
    aco_mutex_unlock(&mutex);
    return arg;
}

static void *sleeps(void *arg)
{
    aco_sleep(INT64_C(1000000000000));
    return arg;
}

/* Waits in a coroutine that the task has resumed. */
static void generates(void)
{
    aco_sleep(INT64_C(1000000000000));
    aco_exit();
}

static void *resumes(void *arg)
{
    aco_t *co = aco_create(aco_get_co(), aco_share_stack_new(0), 0, generates, NULL);
    aco_resume(co);
    return arg;
}

static void *never_starts(void *arg)
{
    return arg;
}

static void *first(void *arg)
{
    aco_task_options_t shared = {.shares_stack = 1, .name = "locker"};
    aco_mutex_lock(&mutex);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0 || aco_go(reads, NULL) != 0 ||
        aco_go_with(&shared, locks, NULL, NULL) != 0 ||
        aco_go_with(&shared, locks, NULL, NULL) != 0) {
        abort();
    }
    aco_go(sleeps, NULL);
    aco_go(resumes, NULL);
    aco_yield();
    aco_go(never_starts, NULL);
    stop_here();
    if (arg != NULL) {
        abort();
    }
    exit(0);
}

int main(int argc, char **argv)
{
    aco_run_options_t options = {.ct_threads = 2};
    return aco_run(&options, first, argc > 1 ? argv[1] : NULL, NULL);
}
