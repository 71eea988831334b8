// SPDX-License-Identifier: Apache-2.0
/* Threads that calls name by their numbers, or by 0: each has what was set for it alone. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static sem_t is_set, may_end;
static volatile sig_atomic_t ct_signals;

/* The beginning of the kernel's struct sched_attr. */
typedef struct {
    uint32_t sz, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t others[4];
} attr_t;

static void has_policy(pid_t tid)
{
    struct sched_param param = {.sched_priority = 0};
    attr_t attr;
    CHECK(sched_getscheduler(tid) == SCHED_OTHER);
    CHECK(sched_setscheduler(tid, SCHED_BATCH, &param) == 0);
    CHECK(sched_getscheduler(tid) == SCHED_BATCH);
    CHECK(sched_setparam(tid, &param) == 0);
    param.sched_priority = 7;
    CHECK(sched_getparam(tid, &param) == 0 && param.sched_priority == 0);
    param.sched_priority = 7;
    CHECK(sched_setscheduler(tid, SCHED_BATCH, &param) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_sched_getattr, tid, &attr, sizeof(attr), 0) == 0);
    CHECK(attr.sz >= 48 && attr.policy == SCHED_BATCH && attr.priority == 0);
    attr.policy = SCHED_IDLE;
    CHECK(syscall(SYS_sched_setattr, tid, &attr, 0) == 0);
    CHECK(sched_getscheduler(tid) == SCHED_IDLE);
}

static void has_processors(pid_t tid)
{
    cpu_set_t all, one, set;
    size_t first = 0;
    CHECK(sched_getaffinity(tid, sizeof(all), &all) == 0);
    while (!CPU_ISSET(first, &all)) {
        first++;
    }
    CPU_ZERO(&one);
    CHECK(sched_setaffinity(tid, sizeof(one), &one) == -1 && errno == EINVAL);
    CPU_SET(first, &one);
    CHECK(sched_setaffinity(tid, sizeof(one), &one) == 0);
    CHECK(sched_getaffinity(tid, sizeof(set), &set) == 0 && CPU_EQUAL(&set, &one));
    CPU_ZERO(&set);
    CHECK(syscall(SYS_sched_getaffinity, tid, sizeof(set), &set) > 0 && CPU_EQUAL(&set, &one));
    CHECK(syscall(SYS_sched_setaffinity, tid, sizeof(one), &one) == 0);
    CHECK(sched_getaffinity(getpid(), sizeof(set), &set) == 0 && CPU_EQUAL(&set, &all));
}

/* The kernel lets any thread raise its nice value. */
static void has_nice_value(pid_t tid)
{
    int of_main = getpriority(PRIO_PROCESS, (id_t)getpid());
    CHECK(getpriority(PRIO_PROCESS, (id_t)tid) == of_main);
    CHECK(setpriority(PRIO_PROCESS, (id_t)tid, of_main + 1) == 0);
    CHECK(getpriority(PRIO_PROCESS, (id_t)tid) == of_main + 1);
    CHECK(syscall(SYS_setpriority, PRIO_PROCESS, tid, of_main + 2) == 0);
    CHECK(syscall(SYS_getpriority, PRIO_PROCESS, tid) == 20 - (of_main + 2));
    CHECK(getpriority(PRIO_PROCESS, (id_t)getpid()) == of_main);
}

static void *inherits(void *arg)
{
    CHECK(getpriority(PRIO_PROCESS, 0) == *(int *)arg);
    return arg;
}

static void *has_settings(void *arg)
{
    has_policy(0);
    has_processors(gettid());
    has_nice_value(0);
    int mine = nice(1);
    CHECK(mine == getpriority(PRIO_PROCESS, (id_t)getpid()) + 3);
    CHECK(mine == getpriority(PRIO_PROCESS, (id_t)gettid()));
    result_of(start(inherits, &mine));
    CHECK(nice(40) == 19);
    return arg;
}

static void *tell_number(void *arg)
{
    *(pid_t *)arg = gettid();
    CHECK(sem_post(&is_set) == 0);
    CHECK(sem_wait(&may_end) == 0);
    CHECK(raise(SIGUSR2) == 0); /* after that of the other thread */
    CHECK(ct_signals == 2);
    return arg;
}

static void count_signal(int number)
{
    (void)number;
    ct_signals++;
}

static void others_can_be_named(void)
{
    pid_t tid;
    pthread_t thread = start(tell_number, &tid);
    CHECK(sem_wait(&is_set) == 0);
    has_policy(tid);
    has_processors(tid);
    has_nice_value(tid);
    CHECK(syscall(SYS_tkill, tid, 0) == 0);
    CHECK(syscall(SYS_tkill, tid, SIGUSR1) == 0);
    CHECK(sem_post(&may_end) == 0);
    result_of(thread);
    for (int i = 0; i < 1000 && sched_getscheduler(tid) != -1; i++) {
        usleep(1000); /* the kernel's threads end a little later */
    }
    CHECK(sched_getscheduler(tid) == -1 && errno == ESRCH);
    CHECK(syscall(SYS_tkill, tid, 0) == -1 && errno == ESRCH);
}

int main(void)
{
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
    CHECK(sem_init(&is_set, 0, 0) == 0 && sem_init(&may_end, 0, 0) == 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGUSR2, &action, NULL) == 0);
    result_of(start(has_settings, NULL));
    others_can_be_named();
    CHECK(sched_getscheduler(0) == SCHED_OTHER);
    puts("all held");
    return 0;
}
