// SPDX-License-Identifier: Apache-2.0
/*
 * Programs that a signal ends while they are traced and profiled, for test_observe.sh. The first
 * argument says how: `by NUMBER`, a signal that a task sends to the process; `handles NUMBER`, the
 * same with a handler that has another task call exit(3); `forks NUMBER` is ended as a child, which
 * leaves the files to its parent, which returns; `goes_on` runs until it is killed. Tasks of three
 * threads allocate and write all the time.
 */
#include "aco_runtime.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define MS INT64_C(1000000) /* ns */

static FILE *nowhere;
static volatile sig_atomic_t has_come, is_over;

static NOINLINE void allocate_and_write(void)
{
    for (size_t i = 1; i < 100; i++) {
        char *bytes = (char *)malloc(i * i);
        bytes[0] = (char)i;
        fprintf(nowhere, "%c %zu\n", bytes[0], i);
        free(bytes);
    }
}

static void *is_busy(void *arg)
{
    while (!is_over) {
        allocate_and_write();
        aco_yield();
    }
    return arg;
}

static void note(int number)
{
    (void)number;
    has_come = 1;
}

static void *exits(void *arg)
{
    while (!has_come) {
        aco_sleep(MS);
    }
    exit(3);
    return arg;
}

static int ends_a_child(int number)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        for (;;) {
            pause();
        }
    }
    usleep(20000);
    kill(pid, number);
    return waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == number;
}

static void *first(void *arg)
{
    char **argv = (char **)arg;
    int number = argv[2] == NULL ? 0 : atoi(argv[2]);
    for (int i = 0; i < 3; i++) {
        aco_task_options_t options = {.name = "is_busy", .thread = ACO_THREAD(i)};
        aco_go_with(&options, is_busy, NULL, NULL);
    }
    aco_sleep(100 * MS);
    if (strcmp(argv[1], "forks") == 0) {
        is_over = 1;
        return ends_a_child(number) ? NULL : arg;
    }
    if (strcmp(argv[1], "handles") == 0) {
        signal(number, note);
        aco_go(exits, NULL);
    }
    if (strcmp(argv[1], "goes_on") != 0) {
        kill(getpid(), number);
    }
    return arg;
}

int main(int argc, char **argv)
{
    aco_run_options_t options = {.ct_threads = 3};
    void *failure = NULL;
    alarm(300);
    signal(argc > 2 ? atoi(argv[2]) : SIGTERM, SIG_DFL); /* shells may ignore some signals */
    nowhere = fopen("/dev/null", "we");
    return argc < 2 || nowhere == NULL || aco_run(&options, first, argv, &failure) != 0 ||
           failure != NULL;
}
