// SPDX-License-Identifier: Apache-2.0
/*
 * Programs that a watchdog should report, and some that it should not, for test_observe.sh: the
 * argument names one. The first ones go on until the program is killed.
 */
#define _GNU_SOURCE
#include "aco_runtime.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define MS INT64_C(1000000)
#define FOR_EVER INT64_C(1000000000000000)

static aco_mutex_t one, two;
static aco_rwlock_t three;
static aco_chan_t *chan;
static int fds[2];
static volatile int sink;
static int is_quiet;

/* ==== To be told ============================================================================= */

static NOINLINE void *computes(void *arg)
{
    for (;;) {
        sink++;
    }
    return arg;
}

static NOINLINE void *blocks(void *arg)
{
    char byte;
    sink += (int)read(fds[0], &byte, 1);
    return arg;
}

/* Blocks inside of libc, where no hook reaches the call. */
static NOINLINE void *blocks_inside(void *arg)
{
    FILE *file = fdopen(fds[0], "r");
    sink += fgetc(file);
    return arg;
}

static NOINLINE void *locks_one_first(void *arg)
{
    aco_mutex_lock(&one);
    aco_yield();
    sink += aco_mutex_lock(&two);
    return arg;
}

static NOINLINE void *locks_two_first(void *arg)
{
    aco_mutex_lock(&two);
    aco_yield();
    sink += aco_rwlock_read_lock(&three);
    return arg;
}

static NOINLINE void *locks_three_and_joins(void *task)
{
    aco_rwlock_write_lock(&three);
    aco_yield();
    sink += aco_join((aco_task_t *)task, NULL);
    return NULL;
}

static void make_cycle(void)
{
    static const aco_task_options_t first = {.name = "first"}, second = {.name = "second"},
                                    third = {.name = "third"};
    aco_task_t *task;
    aco_go_with(&first, locks_one_first, NULL, &task);
    aco_go_with(&second, locks_two_first, NULL, NULL);
    aco_go_with(&third, locks_three_and_joins, task, NULL);
    aco_sleep(FOR_EVER); /* other tasks go on */
}

static NOINLINE void *holds(void *arg)
{
    aco_mutex_lock(&one);
    sink += aco_sleep(FOR_EVER);
    return arg;
}

static NOINLINE void *wants(void *arg)
{
    sink += aco_mutex_lock(&one);
    return arg;
}

static NOINLINE void *receives(void *arg)
{
    int item;
    sink += aco_chan_recv(chan, &item);
    return arg;
}

/* Two pairs: the second one gets stuck when the first one has been reported. */
static NOINLINE void *locks_both(void *arg)
{
    aco_mutex_t *locks = (aco_mutex_t *)arg;
    aco_mutex_lock(&locks[0]);
    aco_sleep(10 * MS);
    sink += aco_mutex_lock(&locks[1]);
    return arg;
}

static void make_pair(const char *name)
{
    aco_mutex_t *locks = (aco_mutex_t *)calloc(3, sizeof(*locks));
    aco_task_options_t options = {.name = name};
    aco_go_with(&options, locks_both, locks, NULL);
    aco_sleep(MS);
    aco_mutex_lock(&locks[1]);
    sink += aco_mutex_lock(&locks[0]);
}

static void *is_second_pair(void *arg)
{
    aco_sleep(1500 * MS);
    make_pair((const char *)arg);
    return arg;
}

static void make_pairs(void)
{
    aco_go(is_second_pair, "later");
    make_pair("sooner");
}

/* A task waits for a group, and a task of the group wants the lock that it holds. */
static NOINLINE void *sleeps(void *arg)
{
    sink += aco_sleep(FOR_EVER);
    return arg;
}

static void join_with_lock(void)
{
    aco_group_t *group = aco_group_new();
    aco_mutex_lock(&one);
    aco_group_go(group, sleeps, NULL);
    aco_group_go(group, locks_both, &one);
    aco_group_go(group, sleeps, NULL);
    sink += aco_group_join(group);
}

/* Two readers: one wants to read again, behind a writer, and one waits for a writer. */
static NOINLINE void *writes(void *arg)
{
    sink += aco_rwlock_write_lock(&three);
    return arg;
}

static void read_twice(void)
{
    aco_task_options_t options = {.name = "writer"};
    aco_rwlock_read_lock(&three);
    aco_go_with(&options, writes, NULL, NULL);
    aco_go(sleeps, NULL);
    aco_yield();
    sink += aco_rwlock_read_lock(&three);
}

static NOINLINE void *reads_and_locks(void *arg)
{
    aco_rwlock_read_lock(&three);
    aco_sleep(10 * MS);
    sink += aco_mutex_lock(&one);
    return arg;
}

static void lock_and_write(void)
{
    aco_task_options_t options = {.name = "reader"};
    aco_go(sleeps, NULL);
    aco_go_with(&options, reads_and_locks, NULL, NULL);
    aco_rwlock_read_lock(&three);
    aco_sleep(MS);
    aco_rwlock_unlock(&three);
    aco_mutex_lock(&one);
    sink += aco_rwlock_write_lock(&three);
}

/* Tasks on two threads, with a helper that has nothing to do. */
static NOINLINE void *acquires(void *arg)
{
    static aco_semaphore_t semaphore;
    sink += aco_semaphore_acquire(&semaphore);
    return arg;
}

static void *does_nothing(void *arg)
{
    return arg;
}

static void stand_still(void)
{
    aco_task_options_t options = {.thread = ACO_THREAD(1)};
    aco_mutex_lock(&one);
    aco_offload(does_nothing, NULL);
    aco_go_with(&options, acquires, NULL, NULL);
    static aco_cond_t cond;
    sink += aco_cond_wait(&cond, &one);
}

/* With hooks: mutexes of libc, of two kinds. */
static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER, recursive;

static NOINLINE void *locks_normal_first(void *arg)
{
    pthread_mutex_lock(&normal);
    aco_yield();
    sink += pthread_mutex_lock(&recursive);
    return arg;
}

static NOINLINE void *locks_recursive_first(void *arg)
{
    pthread_mutex_lock(&recursive);
    aco_yield();
    sink += pthread_mutex_lock(&normal);
    return arg;
}

static void lock_by_hooks(void)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recursive, &attributes);
    aco_go(locks_normal_first, NULL);
    aco_go(locks_recursive_first, NULL);
    aco_sleep(FOR_EVER);
}

/* ==== Not to be told ========================================================================= */

static int64_t processor_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000 * MS + t.tv_nsec;
}

static void *parks(void *arg)
{
    sink += aco_park();
    return arg;
}

/* Sends at the end. */
static void *is_another_thread(void *arg)
{
    int item = 1;
    while (!__atomic_load_n(&is_quiet, __ATOMIC_ACQUIRE)) {
        usleep(1000);
    }
    usleep(2000000);
    sink += aco_chan_send(chan, &item);
    return arg;
}

/* A parked task: a signal could wake it. */
static void stay_parked(void)
{
    aco_go(parks, NULL);
    alarm(2);
}

/* Works correctly, on a machine that gives it little time, then does nothing. */
static void stay_calm(void)
{
    pthread_t thread;
    chan = aco_chan_new(sizeof(int), 0);
    pthread_create(&thread, NULL, is_another_thread, NULL);
    aco_go(receives, NULL);
    for (int64_t end = aco_now() + 2500 * MS; aco_now() < end; aco_yield()) {
        for (int64_t until = processor_time() + 10 * MS; processor_time() < until;) {
            sink++;
        }
    }
    __atomic_store_n(&is_quiet, 1, __ATOMIC_RELEASE);
}

/* ==== All of it ============================================================================== */

static void *ends(void *arg)
{
    return arg;
}

static void join_too_little(void)
{
    aco_task_options_t options = {.name = "spawned"};
    aco_task_t *task;
    for (int i = 0; i < 10; i++) {
        aco_go_with(&options, ends, NULL, &task);
        aco_group_go(aco_group_new(), ends, NULL);
    }
    aco_join(task, NULL);
    aco_group_join(aco_group_new());
}

static void *first(void *arg)
{
    const char *what = (const char *)arg;
    aco_task_options_t options = {.name = what};
    if (strcmp(what, "computes") == 0) {
        aco_go_with(&options, computes, NULL, NULL);
    } else if (strcmp(what, "child") == 0) {
        computes(arg);
    } else if (strcmp(what, "blocks") == 0) {
        aco_go_with(&options, blocks, NULL, NULL);
    } else if (strcmp(what, "blocks_inside") == 0) {
        aco_go_with(&options, blocks_inside, NULL, NULL);
    } else if (strcmp(what, "holds") == 0) {
        aco_go_with(&options, holds, NULL, NULL);
        aco_go(wants, NULL);
    } else if (strcmp(what, "cycle") == 0) {
        make_cycle();
    } else if (strcmp(what, "pairs") == 0) {
        make_pairs();
    } else if (strcmp(what, "group") == 0) {
        join_with_lock();
    } else if (strcmp(what, "reader") == 0) {
        read_twice();
    } else if (strcmp(what, "readers") == 0) {
        lock_and_write();
    } else if (strcmp(what, "threads") == 0) {
        stand_still();
    } else if (strcmp(what, "hooked") == 0) {
        lock_by_hooks();
    } else if (strcmp(what, "stands") == 0) {
        chan = aco_chan_new(sizeof(int), 0);
        aco_go_with(&options, receives, NULL, NULL);
    } else if (strcmp(what, "unjoined") == 0) {
        join_too_little();
    } else if (strcmp(what, "calm") == 0) {
        stay_calm();
    } else if (strcmp(what, "parked") == 0) {
        stay_parked();
    }
    return arg;
}

/* Becomes a child of a process that had a watchdog. Returns 0 in the parent, when the child has
 * ended. */
static int become_child(void)
{
    if (aco_run(NULL, first, "nothing", NULL) != 0 || fork() != 0) {
        wait(NULL);
        return 0;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return 1;
}

int main(int argc, char **argv)
{
    alarm(300);
    if (argc > 1 && strcmp(argv[1], "child") == 0 && !become_child()) {
        return 0;
    }
    aco_run_options_t options = {.ct_threads = argc > 1 && strcmp(argv[1], "threads") == 0 ? 2 : 1};
    return argc < 2 || pipe(fds) != 0 ? 98 : aco_run(&options, first, argv[1], NULL);
}
