// SPDX-License-Identifier: Apache-2.0
/*
 * Conditions. Tasks wait in the hooks' own queue, threads in libc's, and a signal goes to both, so
 * it may wake one of each. For a condition that processes share, a thread of its own waits in libc
 * for each task, as a signal by another process is seen there alone.
 */
#include "waiting.h"

HOOKS_OF(conditions);

#define A_MOMENT 1000000 /* ns */

/* Bits of `__wrefs`. */
#define IS_SHARED 1u
#define IS_MONOTONIC 2u

static int is_shared(const pthread_cond_t *cond)
{
    return (__atomic_load_n(&cond->__data.__wrefs, __ATOMIC_RELAXED) & IS_SHARED) != 0;
}

/* libc would take the thread for the owner of some mutexes that belong to it, and so must wait. */
static int is_ours(const pthread_cond_t *cond, const pthread_mutex_t *mutex)
{
    return is_in_task() && (!is_shared(cond) || aco_i_has_no_owner(mutex));
}

static clockid_t clock_of(const pthread_cond_t *cond)
{
    unsigned bits = __atomic_load_n(&cond->__data.__wrefs, __ATOMIC_RELAXED);
    return (bits & IS_MONOTONIC) != 0 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
}

/* ==== Shared conditions ====================================================================== */

HOOK(int, pthread_cond_wait, (pthread_cond_t * cond, pthread_mutex_t *mutex), (cond, mutex),
     EAGAIN);
HOOK(int, pthread_cond_clockwait,
     (pthread_cond_t * cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *time),
     (cond, mutex, clock, time), EAGAIN);

typedef struct {
    caller_t caller;
    pthread_cond_t *cond;
    pthread_mutex_t *mutex;
    clockid_t clock;
    int has_time, error; /* ECANCELED: it has not returned */
    struct timespec time;
} shared_wait_t;

static void call_wait(caller_t *caller)
{
    shared_wait_t *w = (shared_wait_t *)caller;
    w->error = w->has_time ? real_pthread_cond_clockwait(w->cond, w->mutex, w->clock, &w->time)
                           : real_pthread_cond_wait(w->cond, w->mutex);
}

static void cancel_wait(caller_t *caller)
{
    pthread_cancel(caller->thread);
}

/* The thread releases the mutex and has taken it again when it ends, also if it is cancelled. */
static int wait_by_thread(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                          const struct timespec *time, const void *caller)
{
    limit_t never = {.caller = caller};
    shared_wait_t *w = (shared_wait_t *)aco_i_allocate(sizeof(*w));
    if (w == NULL) {
        return EAGAIN;
    }
    *w = (shared_wait_t){.caller = {.call = call_wait, .interrupt = cancel_wait},
                         .cond = cond,
                         .mutex = mutex,
                         .clock = clock,
                         .has_time = time != NULL,
                         .error = ECANCELED};
    w->time = time != NULL ? *time : w->time;
    aco_i_leave_mutex(mutex);
    int error = aco_i_call_by_thread(&w->caller, &never);
    aco_i_enter_mutex(mutex);
    error = w->error != ECANCELED ? w->error : error;
    aco_i_release(w);
    return error;
}

/* A wait that is bound to fail still takes a moment and may be signalled, as others do. */
static int wait_shared(pthread_cond_t *cond, pthread_mutex_t *mutex, const limit_t *limit)
{
    int error;
    if (!aco_i_must_fail(&error) || aco_i_limit_goes_on(limit)) {
        return wait_by_thread(cond, mutex, limit->clock, limit->time, limit->caller);
    }
    aco_shielded
    {
        struct timespec soon = timespec_of(aco_i_after(A_MOMENT));
        int waited = wait_by_thread(cond, mutex, CLOCK_MONOTONIC, &soon, NULL);
        error = waited == ETIMEDOUT ? error : waited;
    }
    return error;
}

/* ==== Any ==================================================================================== */

static int wait_for(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                    const struct timespec *time, const void *caller)
{
    limit_t limit = {.time = time, .clock = clock, .caller = caller};
    if (!aco_i_may_unlock_mutex(mutex)) {
        return EPERM;
    }
    if (time != NULL && !is_valid(time)) {
        return EINVAL;
    }
    if (is_shared(cond)) {
        return wait_shared(cond, mutex, &limit);
    }
    aco_i_begin_cond_wait(cond);
    aco_i_unlock_mutex(mutex);
    int error = aco_i_end_wait(&limit, NULL), locked = aco_i_lock_mutex(mutex);
    error = error == ERESTART ? 0 : error; /* a wake-up without a signal of the condition */
    return locked != 0 ? locked : error;   /* its owner may have died */
}

int hook_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    return is_ours(cond, mutex) ? wait_for(cond, mutex, CLOCK_MONOTONIC, NULL, CALLER)
                                : real_pthread_cond_wait(cond, mutex);
}

HOOK(int, pthread_cond_timedwait,
     (pthread_cond_t * cond, pthread_mutex_t *mutex, const struct timespec *time),
     (cond, mutex, time), EAGAIN)
{
    return is_ours(cond, mutex) ? wait_for(cond, mutex, clock_of(cond), time, CALLER)
                                : real_pthread_cond_timedwait(cond, mutex, time);
}

int hook_pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                                const struct timespec *time)
{
    return is_ours(cond, mutex) && is_for_waits(clock)
               ? wait_for(cond, mutex, clock, time, CALLER)
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
