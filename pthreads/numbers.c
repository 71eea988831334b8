// SPDX-License-Identifier: Apache-2.0
/*
 * Calls that name a thread by its number, for the kernel's scheduler. They take the numbers of
 * gettid(), and 0 for the caller. The kernel does not schedule tasks, so what is set for one can be
 * read again, and has no effect.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <sys/resource.h>

/* The thread that a number stands for; NULL: one of the kernel, or none. */
static thread_t *thread_of(pid_t tid)
{
    return tid == 0 ? this_thread() : aco_i_handle_of_tid(tid);
}

static int result_of(int error)
{
    return error == 0 ? 0 : (int)refuse(error);
}

/* ==== Policies =============================================================================== */

REPLACE(int, sched_setscheduler, (pid_t tid, int policy, const struct sched_param *param),
        (tid, policy, param), -1)
{
    const thread_t *thread = thread_of(tid);
    return thread == NULL ? real_sched_setscheduler(tid, policy, param)
                          : result_of(pthread_setschedparam((pthread_t)thread,
                                                            policy & ~SCHED_RESET_ON_FORK, param));
}

REPLACE(int, sched_getscheduler, (pid_t tid), (tid), -1)
{
    const thread_t *thread = thread_of(tid);
    return thread == NULL ? real_sched_getscheduler(tid) : thread->policy;
}

REPLACE(int, sched_setparam, (pid_t tid, const struct sched_param *param), (tid, param), -1)
{
    const thread_t *thread = thread_of(tid);
    return thread == NULL
               ? real_sched_setparam(tid, param)
               : result_of(pthread_setschedparam((pthread_t)thread, thread->policy, param));
}

REPLACE(int, sched_getparam, (pid_t tid, struct sched_param *param), (tid, param), -1)
{
    const thread_t *thread = thread_of(tid);
    if (thread == NULL) {
        return real_sched_getparam(tid, param);
    }
    param->sched_priority = thread->priority;
    return 0;
}

/* ==== Processors ============================================================================= */

REPLACE(int, sched_setaffinity, (pid_t tid, size_t sz, const cpu_set_t *set), (tid, sz, set), -1)
{
    const thread_t *thread = thread_of(tid);
    return thread == NULL ? real_sched_setaffinity(tid, sz, set)
                          : result_of(pthread_setaffinity_np((pthread_t)thread, sz, set));
}

REPLACE(int, sched_getaffinity, (pid_t tid, size_t sz, cpu_set_t *set), (tid, sz, set), -1)
{
    const thread_t *thread = thread_of(tid);
    return thread == NULL || CPU_COUNT(&thread->processors) == 0
               ? real_sched_getaffinity(thread == NULL ? tid : 0, sz, set)
               : result_of(pthread_getaffinity_np((pthread_t)thread, sz, set));
}

/* ==== Nice values ============================================================================ */

#define LEAST_NICE (-20)
#define MOST_NICE 19

REPLACE(int, getpriority, (__priority_which_t which, id_t who), (which, who), -1)
{
    const thread_t *thread = which == PRIO_PROCESS ? thread_of((pid_t)who) : NULL;
    return thread == NULL ? real_getpriority(which, who)
                          : real_getpriority(PRIO_PROCESS, 0) + thread->nice;
}

REPLACE(int, setpriority, (__priority_which_t which, id_t who, int nice), (which, who, nice), -1)
{
    thread_t *thread = which == PRIO_PROCESS ? thread_of((pid_t)who) : NULL;
    if (thread == NULL) {
        return real_setpriority(which, who, nice);
    }
    nice = nice < LEAST_NICE ? LEAST_NICE : nice > MOST_NICE ? MOST_NICE : nice;
    thread->nice = nice - real_getpriority(PRIO_PROCESS, 0);
    return 0;
}

REPLACE(int, nice, (int more), (more), -1)
{
    if (this_thread() == NULL) {
        return real_nice(more);
    }
    name_setpriority(PRIO_PROCESS, 0, name_getpriority(PRIO_PROCESS, 0) + more);
    return name_getpriority(PRIO_PROCESS, 0);
}

/* ==== By syscall() =========================================================================== */

/* The beginning of the kernel's struct sched_attr. */
typedef struct {
    uint32_t sz, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
} attr_t;

static long set_attr(thread_t *thread, const attr_t *attr)
{
    struct sched_param param = {.sched_priority = (int)attr->priority};
    int error = pthread_setschedparam((pthread_t)thread, (int)attr->policy, &param);
    return error == 0 ? name_setpriority(PRIO_PROCESS, (id_t)thread->tid, attr->nice)
                      : refuse(error);
}

/* Calls the kernel for its own thread, which has all but what is set for the caller alone. */
static long call_for_own(long number, const args_t *args)
{
    args_t own = *args;
    own.at[0] = 0;
    return aco_i_libc_syscall(number, &own);
}

static long get_attr(const thread_t *thread, const args_t *args)
{
    attr_t *attr = (attr_t *)args->at[1];
    long result = call_for_own(SYS_sched_getattr, args);
    if (result == 0) {
        attr->policy = (uint32_t)thread->policy;
        attr->priority = (uint32_t)thread->priority;
        attr->nice = name_getpriority(PRIO_PROCESS, (id_t)thread->tid);
    }
    return result;
}

/* Returns how many bytes the kernel's set has. */
static long get_affinity(const thread_t *thread, const args_t *args)
{
    long sz = call_for_own(SYS_sched_getaffinity, args);
    if (sz > 0) {
        name_sched_getaffinity(thread->tid, (size_t)sz, (cpu_set_t *)args->at[2]);
    }
    return sz;
}

thread_t *aco_i_named_thread(long number, const args_t *args)
{
    switch (number) {
    case SYS_sched_setattr:
    case SYS_sched_getattr:
    case SYS_sched_setaffinity:
    case SYS_sched_getaffinity:
        return thread_of((pid_t)args->at[0]);
    case SYS_setpriority:
    case SYS_getpriority:
        return args->at[0] == PRIO_PROCESS ? thread_of((pid_t)args->at[1]) : NULL;
    default:
        return NULL;
    }
}

long aco_i_call_by_number(thread_t *thread, long number, const args_t *args)
{
    switch (number) {
    case SYS_sched_setattr:
        return set_attr(thread, (const attr_t *)args->at[1]);
    case SYS_sched_getattr:
        return get_attr(thread, args);
    case SYS_sched_setaffinity:
        return name_sched_setaffinity(thread->tid, (size_t)args->at[1],
                                      (const cpu_set_t *)args->at[2]);
    case SYS_sched_getaffinity:
        return get_affinity(thread, args);
    case SYS_setpriority:
        return name_setpriority(PRIO_PROCESS, (id_t)thread->tid, (int)args->at[2]);
    default: /* SYS_getpriority, whose results are above 0 */
        return MOST_NICE + 1 - name_getpriority(PRIO_PROCESS, (id_t)thread->tid);
    }
}
