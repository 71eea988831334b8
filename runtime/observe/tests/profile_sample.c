// SPDX-License-Identifier: Apache-2.0
/*
 * Programs to be profiled, for test_observe.sh. The first argument names one, the second is the
 * amount of work, the third the number of threads; with a fourth, the program has a handler of its
 * own. All work alike with and without a profile.
 */
#define _GNU_SOURCE
#include "aco_runtime.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define UNIT 2000 /* steps in one unit of work */

static long amount;
static int ct_threads;
static __thread volatile unsigned sink;

static NOINLINE void burns(void)
{
    for (int i = 0; i < UNIT; i++) {
        sink = sink * 1664525 + 1013904223;
    }
}

/* Works for `amount` turns, `share` units in each, times a number that varies, alike for all tasks,
 * so that they don't keep step with the timer. */
static NOINLINE void burns_for(int share)
{
    unsigned random = 1;
    for (long i = 0; i < amount; i++) {
        random = random * 1103515245 + 12345;
        for (unsigned j = 0; j < (unsigned)share * (1 + (random >> 16) % 7); j++) {
            burns();
        }
        aco_yield();
    }
}

/* ==== Known shares =========================================================================== */

static NOINLINE void descends(int depth)
{
    if (depth > 0) {
        descends(depth - 1);
    } else {
        burns_for(5);
    }
    sink++;
}

static NOINLINE void *does_half(void *arg)
{
    descends(2);
    sink++;
    return arg;
}

static NOINLINE void generates(void)
{
    burns_for(3);
    sink++;
    aco_exit();
}

/* Does all its work in a coroutine of its own, with a frame that is larger than most stacks. */
static NOINLINE void *does_nearly_a_third(void *arg)
{
    char large[100000];
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *co = aco_create(aco_get_co(), stack, 0, generates, large);
    memset(large, 1, sizeof(large));
    while (!co->is_end) {
        aco_resume(co);
        aco_yield();
    }
    aco_destroy(co);
    aco_share_stack_destroy(stack);
    sink += (unsigned)large[sink % sizeof(large)];
    return arg;
}

static NOINLINE void *does_a_fifth(void *arg)
{
    burns_for(2);
    sink++;
    return arg;
}

static void *shares(void *arg)
{
    aco_task_options_t half = {.name = "a;half"}, third = {.name = "b"};
    aco_task_options_t fifth = {.shares_stack = 1, .thread = ACO_THREAD(ct_threads - 1)};
    int failed = aco_go_with(&half, does_half, NULL, NULL) != 0 ||
                 aco_go_with(&third, does_nearly_a_third, NULL, NULL) != 0 ||
                 aco_go_with(&fifth, does_a_fifth, NULL, NULL) != 0;
    return failed ? (void *)"no tasks" : arg;
}

/* ==== Switches =============================================================================== */

static aco_chan_t *channel;
static int ct_running;

/* Each switch moves its frames. */
static void *yields(void *arg)
{
    volatile long local[8] = {0};
    for (long i = 0; i < amount; i++) {
        local[i % 8]++;
        aco_yield();
    }
    for (int i = 1; i < 8; i++) {
        local[0] += local[i];
    }
    ct_running--;
    return local[0] == amount ? arg : (void *)"a local has changed";
}

static void *sends(void *arg)
{
    for (long i = 0; i < amount; i++) {
        aco_chan_send(channel, &i);
    }
    aco_chan_close(channel);
    ct_running--;
    return arg;
}

static void *receives(void *arg)
{
    long item, ct = 0;
    while (aco_chan_recv(channel, &item) == 1) {
        ct += item == ct;
    }
    ct_running--;
    return ct == amount ? arg : (void *)"an item is lost";
}

/* Is inside libc now and then, with its locks. */
static void *loads(void *arg)
{
    for (int i = 0; ct_running > 0; i++) {
        if (i % 256 != 0) {
            aco_yield();
            continue;
        }
        void *library = dlopen("libm.so.6", RTLD_NOW), *memory = malloc(sink++ % 10000 + 1);
        if (library == NULL || memory == NULL || dlsym(library, "cos") == NULL) {
            return (void *)"no library";
        }
        free(memory);
        dlclose(library);
    }
    return arg;
}

static void *ends_at_once(void *arg)
{
    return arg;
}

static void *starts(void *arg)
{
    for (long i = 0; i < amount / 16; i++) {
        aco_join(aco_spawn(ends_at_once, NULL), NULL);
    }
    ct_running--;
    return arg;
}

static void *switches(void *arg)
{
    static void *(*const fns[])(void *) = {yields, yields, yields, sends, receives, starts, loads};
    enum { CT = sizeof(fns) / sizeof(fns[0]) };
    aco_task_t *tasks[CT];
    void *result = arg;
    channel = aco_chan_new(sizeof(long), 0);
    ct_running = CT - 1;
    for (int i = 0; i < CT; i++) {
        aco_task_options_t options = {.name = "switches", .shares_stack = i < 2};
        aco_go_with(&options, fns[i], NULL, &tasks[i]);
    }
    for (int i = 0; i < CT; i++) {
        void *failure = NULL;
        aco_join(tasks[i], &failure);
        result = failure != NULL ? failure : result;
    }
    aco_chan_free(channel);
    return result;
}

/* ==== Ends =================================================================================== */

/* Whether the profile is empty, or none was asked for. */
static int is_empty(void)
{
    struct stat about;
    const char *path = getenv("ACO_PROFILE");
    return path == NULL || (stat(path, &about) == 0 && about.st_size == 0);
}

/* A child has no profile, and leaves its parent's alone. */
static void *forks(void *arg)
{
    int status;
    burns_for(1);
    pid_t pid = fork();
    if (pid == 0) {
        burns_for(1);
        exit(7);
    }
    burns_for(1);
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 7) {
        return (void *)"the child";
    }
    return is_empty() ? arg : (void *)"the child has written";
}

static void *exits(void *arg)
{
    burns_for(1);
    exit(arg == NULL ? 0 : 1);
}

static void ignore(int signal)
{
    (void)signal;
}

/* The program takes the signal from the profile. */
static void *handles(void *arg)
{
    signal(SIGPROF, ignore);
    return exits(arg);
}

static void *blocks(void *arg)
{
    sigset_t set;
    sigfillset(&set);
    pthread_sigmask(SIG_SETMASK, &set, NULL);
    burns_for(1);
    return arg;
}

static void *burns_once(void *arg)
{
    for (int i = 0; i < 150; i++) {
        burns();
    }
    return arg;
}

/* Runs that are shorter than the time between two samples; 0: the profile has one. */
static int runs_briefly(void)
{
    long ct = 0;
    do {
        aco_run(NULL, burns_once, NULL, NULL);
    } while (++ct < amount && is_empty());
    return is_empty();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void *(*fn)(void *);
    } programs[] = {{"shares", shares}, {"switches", switches}, {"forks", forks},
                    {"exits", exits},   {"handles", handles},   {"blocks", blocks}};
    ct_threads = argc > 3 ? atoi(argv[3]) : 2;
    if (argc > 4) {
        signal(SIGPROF, ignore);
    }
    amount = argc > 2 ? atol(argv[2]) : 0;
    if (argc > 2 && strcmp(argv[1], "briefly") == 0) {
        return runs_briefly();
    }
    for (size_t i = 0; argc > 2 && i < sizeof(programs) / sizeof(programs[0]); i++) {
        aco_run_options_t options = {.ct_threads = ct_threads};
        void *failure = NULL;
        if (strcmp(programs[i].name, argv[1]) != 0) {
            continue;
        }
        if (aco_run(&options, ends_at_once, NULL, NULL) != 0 ||
            aco_run(&options, programs[i].fn, NULL, &failure) != 0 || failure != NULL) {
            fprintf(stderr, "%s\n", failure != NULL ? (const char *)failure : "it can't run");
            return 1;
        }
        return getenv("ACO_PROFILE") != NULL && is_empty();
    }
    return 98;
}
