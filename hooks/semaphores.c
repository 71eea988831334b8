// SPDX-License-Identifier: Apache-2.0
/*
 * Semaphores. They are libc's; tasks take from them by sem_trywait(). Another process may post to
 * one that is shared, as all named ones are, so the first task that waits also tries now and then.
 */
#include "waiting.h"

#include <semaphore.h>

HOOKS_OF(semaphores);

HOOK(int, sem_trywait, (sem_t * semaphore), (semaphore), refuse(EAGAIN))
{
    return real_sem_trywait(semaphore);
}

/* libc's field for it comes after the count, which has the size of a pointer. */
static int is_shared(const sem_t *semaphore)
{
    int is_shared;
    memcpy(&is_shared, (const char *)semaphore + sizeof(void *), sizeof(is_shared));
    return is_shared != 0;
}

static int is_watched(const void *semaphore)
{
    return !is_shared((const sem_t *)semaphore);
}

static int try(void *semaphore)
{
    KEEP_ERRNO();
    return real_sem_trywait((sem_t *)semaphore) == 0 ? 0 : errno == EAGAIN ? EBUSY : errno;
}

static int take(sem_t *semaphore, const limit_t *limit)
{
    static const lockable_t own = {try, NULL, 1, FOR_SEMAPHORE};
    static const lockable_t shared = {try, is_watched, 1, FOR_FUTEX};
    const lockable_t *kind = is_watched(semaphore) ? &own : &shared;
    aco_i_spend_call();
    int error = is_awaited(semaphore) ? EBUSY : try(semaphore);
    error = error == EBUSY ? aco_i_obtain(kind, semaphore, limit) : error;
    return error == 0 ? 0 : (int)refuse(error);
}

HOOK(int, sem_wait, (sem_t * semaphore), (semaphore), refuse(EAGAIN))
{
    limit_t limit = {.caller = CALLER, .signals = SIGNALS_RESTART};
    return is_in_task() ? take(semaphore, &limit) : real_sem_wait(semaphore);
}

HOOK(int, sem_timedwait, (sem_t * semaphore, const struct timespec *time), (semaphore, time),
     refuse(EAGAIN))
{
    limit_t limit = {
        .time = time, .clock = CLOCK_REALTIME, .caller = CALLER, .signals = SIGNALS_FAIL};
    return is_in_task() ? take(semaphore, &limit) : real_sem_timedwait(semaphore, time);
}

HOOK(int, sem_clockwait, (sem_t * semaphore, clockid_t clock, const struct timespec *time),
     (semaphore, clock, time), refuse(EAGAIN))
{
    limit_t limit = {.time = time, .clock = clock, .caller = CALLER, .signals = SIGNALS_FAIL};
    return is_in_task() && is_for_waits(clock) ? take(semaphore, &limit)
                                               : real_sem_clockwait(semaphore, clock, time);
}

/* Signal handlers may call this. */
HOOK(int, sem_post, (sem_t * semaphore), (semaphore), refuse(EAGAIN))
{
    int result = real_sem_post(semaphore);
    aco_i_released_by_any(semaphore);
    return result;
}
