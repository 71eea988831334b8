// SPDX-License-Identifier: Apache-2.0
/*
 * Threads of C11. libc implements them by pthreads, which it calls internally, past the hooks.
 * These call the hooks of pthreads, and translate the results.
 */
#include "internal.h"

#include <threads.h>

HOOKS_OF(c11);

static int result_of(int error)
{
    switch (error) {
    case 0:
        return thrd_success;
    case EBUSY:
        return thrd_busy;
    case ENOMEM:
        return thrd_nomem;
    case ETIMEDOUT:
        return thrd_timedout;
    default:
        return thrd_error;
    }
}

/* ==== Mutexes and conditions ================================================================= */

HOOK(int, mtx_lock, (pthread_mutex_t * mutex), (mutex), thrd_error)
{
    return result_of(pthread_mutex_lock(mutex));
}

HOOK(int, mtx_trylock, (pthread_mutex_t * mutex), (mutex), thrd_error)
{
    return result_of(pthread_mutex_trylock(mutex));
}

HOOK(int, mtx_timedlock, (pthread_mutex_t * mutex, const struct timespec *time), (mutex, time),
     thrd_error)
{
    return result_of(NESTED(pthread_mutex_timedlock(mutex, time)));
}

HOOK(int, mtx_unlock, (pthread_mutex_t * mutex), (mutex), thrd_error)
{
    return result_of(pthread_mutex_unlock(mutex));
}

HOOK(int, cnd_wait, (pthread_cond_t * cond, pthread_mutex_t *mutex), (cond, mutex), thrd_error)
{
    return result_of(NESTED(pthread_cond_wait(cond, mutex)));
}

HOOK(int, cnd_timedwait,
     (pthread_cond_t * cond, pthread_mutex_t *mutex, const struct timespec *time),
     (cond, mutex, time), thrd_error)
{
    return result_of(NESTED(pthread_cond_timedwait(cond, mutex, time)));
}

HOOK(int, cnd_signal, (pthread_cond_t * cond), (cond), thrd_error)
{
    return result_of(pthread_cond_signal(cond));
}

HOOK(int, cnd_broadcast, (pthread_cond_t * cond), (cond), thrd_error)
{
    return result_of(pthread_cond_broadcast(cond));
}

/* ==== Threads ================================================================================ */

HOOK(int, thrd_join, (pthread_t thread, int *result), (thread, result), thrd_error)
{
    void *returned = NULL;
    int error = NESTED(pthread_join(thread, &returned));
    if (error == 0 && result != NULL) {
        *result = (int)(intptr_t)returned;
    }
    return result_of(error);
}

/* Returns -1 if a signal came, and less if it failed. */
HOOK(int, thrd_sleep, (const struct timespec *t, struct timespec *left), (t, left), -2)
{
    if (!is_in_task()) {
        return real_thrd_sleep(t, left);
    }
    return NESTED(nanosleep(t, left)) == 0 ? 0 : -2;
}

HOOK(void, thrd_yield, (void), (), sched_yield())
{
    sched_yield();
}

HOOK(void, call_once, (pthread_once_t * once, void (*fn)(void)), (once, fn), 0)
{
    pthread_once(once, fn);
}
