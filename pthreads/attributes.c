// SPDX-License-Identifier: Apache-2.0
/*
 * Names, stacks, scheduling, processors and clocks of threads. The kernel does not schedule tasks,
 * so settings for it can be read again, and have no effect.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <stdarg.h>
#include <sys/prctl.h>
#include <unistd.h>

/* ==== Names ================================================================================== */

REPLACE(int, pthread_setname_np, (pthread_t id, const char *name), (id, name), EINVAL)
{
    thread_t *thread = aco_i_handle_of(id);
    if (thread == NULL) {
        return real_pthread_setname_np(id, name);
    }
    size_t sz = strlen(name) + 1;
    if (sz > NAME_SZ) {
        return ERANGE;
    }
    memcpy(thread->name, name, sz);
    return 0;
}

REPLACE(int, pthread_getname_np, (pthread_t id, char *name, size_t sz), (id, name, sz), EINVAL)
{
    const thread_t *thread = aco_i_handle_of(id);
    if (thread == NULL) {
        return real_pthread_getname_np(id, name, sz);
    }
    size_t least = strlen(thread->name) + 1;
    if (sz < least) {
        return ERANGE;
    }
    memcpy(name, thread->name, least);
    return 0;
}

REPLACE(int, prctl, (int option, long a, long b, long c, long d), (option, a, b, c, d), -1)
{
    thread_t *thread = this_thread();
    if (thread != NULL && option == PR_SET_NAME) {
        strncpy(thread->name, (const char *)a, NAME_SZ - 1);
        return 0;
    }
    if (thread != NULL && option == PR_GET_NAME) {
        memcpy((char *)a, thread->name, NAME_SZ);
        return 0;
    }
    return real_prctl(option, a, b, c, d);
}

/* ==== Numbers ================================================================================ */

REPLACE(pid_t, gettid, (void), (), (pid_t)aco_i_syscall(SYS_gettid))
{
    const thread_t *thread = this_thread();
    return thread != NULL ? thread->tid : real_gettid();
}

/* ==== Attributes ============================================================================= */

REPLACE(int, pthread_getattr_np, (pthread_t id, pthread_attr_t *attributes), (id, attributes),
        EINVAL)
{
    const thread_t *thread = aco_i_handle_of(id);
    if (thread == NULL) {
        return real_pthread_getattr_np(id, attributes);
    }
    int error = pthread_attr_init(attributes);
    if (error != 0) {
        return error;
    }
    const aco_task_t *task = thread->task;
    if (thread->stack != NULL) {
        pthread_attr_setstack(attributes, thread->stack, thread->stack_sz);
    } else if (task != NULL && task->co != NULL) {
        pthread_attr_setstack(attributes, task->co->share_stack->ptr, task->co->share_stack->sz);
    } else {
        pthread_attr_setstacksize(attributes, thread->stack_sz);
    }
    pthread_attr_setguardsize(attributes, thread->guard_sz);
    pthread_attr_setdetachstate(attributes, thread->state == HANDLE_DETACHED
                                                ? PTHREAD_CREATE_DETACHED
                                                : PTHREAD_CREATE_JOINABLE);
    return 0;
}

/* ==== Scheduling ============================================================================= */

REPLACE(int, pthread_getschedparam, (pthread_t id, int *policy, struct sched_param *param),
        (id, policy, param), EINVAL)
{
    const thread_t *thread = aco_i_handle_of(id);
    if (thread == NULL) {
        return real_pthread_getschedparam(id, policy, param);
    }
    *policy = thread->policy;
    param->sched_priority = thread->priority;
    return 0;
}

REPLACE(int, pthread_setschedparam, (pthread_t id, int policy, const struct sched_param *param),
        (id, policy, param), EINVAL)
{
    thread_t *thread = aco_i_handle_of(id);
    if (thread == NULL) {
        return real_pthread_setschedparam(id, policy, param);
    }
    int least = sched_get_priority_min(policy), most = sched_get_priority_max(policy);
    if (least < 0 || param->sched_priority < least || param->sched_priority > most) {
        return EINVAL;
    }
    if (policy == SCHED_FIFO || policy == SCHED_RR) {
        return EPERM;
    }
    thread->policy = policy;
    thread->priority = param->sched_priority;
    return 0;
}

REPLACE(int, pthread_setschedprio, (pthread_t id, int priority), (id, priority), EINVAL)
{
    thread_t *thread = aco_i_handle_of(id);
    struct sched_param param = {.sched_priority = priority};
    return thread == NULL ? real_pthread_setschedprio(id, priority)
                          : name_pthread_setschedparam(id, thread->policy, &param);
}

/* ==== Processors ============================================================================= */

REPLACE(int, pthread_setaffinity_np, (pthread_t id, size_t sz, const cpu_set_t *set), (id, sz, set),
        EINVAL)
{
    thread_t *thread = aco_i_handle_of(id);
    if (thread == NULL) {
        return real_pthread_setaffinity_np(id, sz, set);
    }
    cpu_set_t allowed;
    size_t known = sz < sizeof(allowed) ? sz : sizeof(allowed);
    CPU_ZERO(&allowed);
    memcpy(&thread->processors, &allowed, sizeof(allowed));
    memcpy(&thread->processors, set, known);
    sched_getaffinity(getpid(), sizeof(allowed), &allowed);
    CPU_AND(&allowed, &allowed, &thread->processors);
    return CPU_COUNT(&allowed) == 0 ? EINVAL : 0;
}

REPLACE(int, pthread_getaffinity_np, (pthread_t id, size_t sz, cpu_set_t *set), (id, sz, set),
        EINVAL)
{
    const thread_t *thread = aco_i_handle_of(id);
    if (thread == NULL || CPU_COUNT(&thread->processors) == 0) {
        return thread == NULL || sched_getaffinity(getpid(), sz, set) == 0
                   ? thread == NULL ? real_pthread_getaffinity_np(id, sz, set) : 0
                   : errno;
    }
    memset(set, 0, sz);
    memcpy(set, &thread->processors, sz < sizeof(*set) ? sz : sizeof(*set));
    return 0;
}

/* ==== Clocks ================================================================================= */

/* The processor time of its loop. */
REPLACE(int, pthread_getcpuclockid, (pthread_t id, clockid_t *clock), (id, clock), EINVAL)
{
    const thread_t *thread = aco_i_handle_of(id);
    if (thread == NULL) {
        return real_pthread_getcpuclockid(id, clock);
    }
    const aco_task_t *task = thread->task;
    *clock = task != NULL && task->loop != NULL ? task->loop->clock : CLOCK_PROCESS_CPUTIME_ID;
    return 0;
}
