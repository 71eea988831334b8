// SPDX-License-Identifier: Apache-2.0
/*
 * Tasks in many places, for test_observe.sh, which checks the list of them; then the program ends
 * as its argument says. Once a signal is about to end it, malloc() is fatal.
 */
#define _GNU_SOURCE
#include "aco_runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define CT_SLEEPERS 200
#define FOR_EVER INT64_C(1000000000000000)

static aco_mutex_t mutex;
static int fds[2], is_dying, ct_asleep;
static volatile int sink;

#if defined(__GLIBC__) && !defined(IS_STATIC)
void *__libc_malloc(size_t sz);
void *malloc(size_t sz);
void *malloc(size_t sz)
{
    if (__atomic_load_n(&is_dying, __ATOMIC_RELAXED)) {
        _exit(99);
    }
    return __libc_malloc(sz);
}
#endif

/* ==== Places ================================================================================= */

/* All but the last hand over to the next when they sleep again. */
static NOINLINE void *sleeps(void *arg)
{
    aco_sleep(1);
    ct_asleep++;
    aco_sleep(FOR_EVER);
    return arg;
}

static NOINLINE void locks_inside(void)
{
    aco_mutex_lock(&mutex);
    sink++;
}

static NOINLINE void *locks(void *arg)
{
    locks_inside();
    sink++;
    return arg;
}

static NOINLINE void *reads(void *arg)
{
    char byte[100];
    sink += (int)aco_read(fds[0], byte, 1);
    return arg;
}

static NOINLINE void *computes(void *arg)
{
    for (;;) {
        sink++;
    }
    return arg;
}

static NOINLINE int descends(intptr_t depth)
{
    if (depth <= 0) {
        aco_sleep(FOR_EVER);
    } else {
        descends(depth - 1);
    }
    return sink++;
}

static NOINLINE void *goes_down(void *arg)
{
    descends((intptr_t)arg);
    return NULL;
}

/* A generator that waits itself, for the task that resumes it. */
static NOINLINE void generates(void)
{
    aco_sleep(FOR_EVER);
    aco_exit();
}

static NOINLINE void *resumes(void *arg)
{
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *co = aco_create(aco_get_co(), stack, 0, generates, NULL);
    aco_resume(co);
    sink++;
    return arg;
}

/* ==== Ends =================================================================================== */

static NOINLINE int overflows(int depth)
{
    volatile char frame[1000];
    frame[0] = (char)depth;
    return depth < 0 ? 0 : overflows(depth + 1) + frame[0];
}

static NOINLINE void *fails(void *arg)
{
    const char *how = (const char *)arg;
    static void (*volatile nothing)(void);
    __atomic_store_n(&is_dying, strcmp(how, "goes_on") != 0, __ATOMIC_RELAXED);
    if (strcmp(how, "overflow") == 0) {
        overflows(0);
    } else if (strcmp(how, "null") == 0) {
        nothing();
    } else if (strcmp(how, "fault") == 0) {
        *(volatile int *)(intptr_t)(fds[0] + 16) = 1;
    } else if (strcmp(how, "misuse") == 0) {
        aco_mutex_unlock(&mutex);
    } else if (strcmp(how, "raise") == 0) {
        raise(SIGBUS);
    } else if (strcmp(how, "kill") == 0) {
        kill(getpid(), SIGABRT);
    } else if (strcmp(how, "abort") == 0) {
        abort();
    }
    sink++;
    return arg;
}

/* Makes the list, which is on its way to stderr, wait for ever, and sends another signal. */
static void *kills_again(void *arg)
{
    char byte;
    int *pipe_fds = (int *)arg;
    if (read(pipe_fds[0], &byte, 1) == 1) {
        kill(getpid(), SIGSEGV);
    }
    pause();
    return NULL;
}

static void block_stderr(void)
{
    static int pipe_fds[2];
    pthread_t thread;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGSEGV);
    if (pipe(pipe_fds) != 0 || fcntl(pipe_fds[1], F_SETPIPE_SZ, 4096) < 0 ||
        dup2(pipe_fds[1], STDERR_FILENO) < 0) {
        exit(98);
    }
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* in the other thread */
    pthread_create(&thread, NULL, kills_again, pipe_fds);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* ==== All of it ============================================================================== */

static void start(const char *how)
{
    aco_task_options_t shared = {.name = "sleeper", .shares_stack = 1};
    aco_task_options_t locker = {.shares_stack = 1};
    aco_task_options_t own = {.name = "reader", .stack_sz = 100000};
    aco_task_options_t elsewhere = {.name = "computer", .thread = ACO_THREAD(1)};
    int ok = socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0 && aco_mutex_lock(&mutex) == 0;
    for (int i = 0; i < CT_SLEEPERS; i++) {
        ok &= aco_go_with(&shared, sleeps, NULL, NULL) == 0;
    }
    for (int i = 0; i < 5; i++) {
        ok &= aco_go_with(&locker, locks, NULL, NULL) == 0;
        ok &= aco_go_with(&own, reads, NULL, NULL) == 0;
    }
    for (intptr_t i = 0; i < 20 && strcmp(how, "twice") == 0; i++) {
        ok &= aco_go_with(&shared, goes_down, (void *)i, NULL) == 0;
    }
    if (strcmp(how, "twice") != 0) {
        ok &= aco_go_with(&elsewhere, computes, NULL, NULL) == 0;
        ok &= aco_go(resumes, NULL) == 0;
    }
    if (!ok) {
        exit(98);
    }
    /* By then, all others have had their turns, too. */
    while (ct_asleep < CT_SLEEPERS || (strcmp(how, "twice") != 0 && sink == 0)) {
        aco_sleep(1000000);
    }
}

static void *first(void *arg)
{
    const char *how = (const char *)arg;
    aco_task_options_t culprit = {.name = "culprit"};
    start(how);
    if (strcmp(how, "print") == 0) {
        aco_print_tasks(stdout);
        exit(0);
    }
    if (strcmp(how, "twice") == 0) {
        block_stderr();
        how = "abort";
    }
    aco_go_with(&culprit, fails, (void *)(uintptr_t)how, NULL);
    aco_sleep(FOR_EVER);
    return arg;
}

int main(int argc, char **argv)
{
    static const int signals[] = {SIGABRT, SIGBUS, SIGSEGV};
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        if (aco_print_tasks_on(signals[i]) != 0) {
            return 98;
        }
    }
    aco_run_options_t options = {.ct_threads = argc > 2 ? 1 : 2};
    return argc < 2 ? 98 : aco_run(&options, first, argv[1], NULL);
}
