// SPDX-License-Identifier: Apache-2.0
/*
 * Conditions. Tasks wait in the hooks' own queue, threads in libc's, and a signal goes to both, so
 * it may wake one of each. Conditions that processes share are left to libc.
 */
#include "waiting.h"

HOOKS_OF(conditions);

/* Bits of `__wrefs`. */
#define IS_SHARED 1u
#define IS_MONOTONIC 2u

static int is_ours(const pthread_cond_t *cond)
{
    return is_in_task() &&
           (__atomic_load_n(&cond->__data.__wrefs, __ATOMIC_RELAXED) & IS_SHARED) == 0;
}

static clockid_t clock_of(const pthread_cond_t *cond)
{
    unsigned bits = __atomic_load_n(&cond->__data.__wrefs, __ATOMIC_RELAXED);
    return (bits & IS_MONOTONIC) != 0 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
}

static int wait_for(const pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                    const struct timespec *time)
{
    limit_t limit = {time, clock};
    if (!aco_i_may_unlock_mutex(mutex)) {
        return EPERM;
    }
    if (time != NULL && !is_valid(time)) {
        return EINVAL;
    }
    aco_i_begin_cond_wait(cond);
    aco_i_unlock_mutex(mutex);
    int error = aco_i_end_cond_wait(cond, &limit), locked = aco_i_lock_mutex(mutex);
    return locked != 0 ? locked : error; /* its owner may have died */
}

HOOK(int, pthread_cond_wait, (pthread_cond_t * cond, pthread_mutex_t *mutex), (cond, mutex), EAGAIN)
{
    return is_ours(cond) ? wait_for(cond, mutex, CLOCK_MONOTONIC, NULL)
                         : real_pthread_cond_wait(cond, mutex);
}

HOOK(int, pthread_cond_timedwait,
     (pthread_cond_t * cond, pthread_mutex_t *mutex, const struct timespec *time),
     (cond, mutex, time), EAGAIN)
{
    return is_ours(cond) ? wait_for(cond, mutex, clock_of(cond), time)
                         : real_pthread_cond_timedwait(cond, mutex, time);
}

HOOK(int, pthread_cond_clockwait,
     (pthread_cond_t * cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *time),
     (cond, mutex, clock, time), EAGAIN)
{
    return is_ours(cond) && is_for_waits(clock)
               ? wait_for(cond, mutex, clock, time)
               : real_pthread_cond_clockwait(cond, mutex, clock, time);
}

HOOK(int, pthread_cond_signal, (pthread_cond_t * cond), (cond), 0)
{
    if (is_awaited(cond)) {
        aco_i_signal_tasks(cond, 0);
    }
    return real_pthread_cond_signal(cond);
}

HOOK(int, pthread_cond_broadcast, (pthread_cond_t * cond), (cond), 0)
{
    if (is_awaited(cond)) {
        aco_i_signal_tasks(cond, 1);
    }
    return real_pthread_cond_broadcast(cond);
}
