// SPDX-License-Identifier: Apache-2.0
/*
 * Locks for readers and writers. They are libc's; tasks take them by its try functions and release
 * them as threads do. libc takes the thread for the writer, so two fields that libc leaves alone
 * hold the id of the task that writes, for EDEADLK. Locks that processes share are left to libc.
 */
#include "waiting.h"

HOOKS_OF(rwlocks);

/* Added to `__readers` by libc for each reader. */
#define A_READER 8u

static int is_ours(const pthread_rwlock_t *rwlock)
{
    return is_in_task() && rwlock->__data.__shared == 0;
}

/* ==== Writers ================================================================================ */

static void set_writer(pthread_rwlock_t *rwlock, uint64_t id)
{
    __atomic_store_n(&rwlock->__data.__pad3, (unsigned)id, __ATOMIC_RELAXED);
    __atomic_store_n(&rwlock->__data.__pad4, (unsigned)(id >> 32), __ATOMIC_RELAXED);
}

static int is_mine(const pthread_rwlock_t *rwlock)
{
    uint64_t id = aco_i_running_task()->id;
    return __atomic_load_n(&rwlock->__data.__pad3, __ATOMIC_RELAXED) == (unsigned)id &&
           __atomic_load_n(&rwlock->__data.__pad4, __ATOMIC_RELAXED) == (unsigned)(id >> 32);
}

/* ==== Trying ================================================================================= */

HOOK(int, pthread_rwlock_tryrdlock, (pthread_rwlock_t * rwlock), (rwlock), 0)
{
    return real_pthread_rwlock_tryrdlock(rwlock);
}

HOOK(int, pthread_rwlock_trywrlock, (pthread_rwlock_t * rwlock), (rwlock), 0)
{
    int error = real_pthread_rwlock_trywrlock(rwlock);
    if (error == 0 && is_ours(rwlock)) {
        set_writer(rwlock, aco_i_running_task()->id);
    }
    return error;
}

static int try_read(void *rwlock)
{
    return real_pthread_rwlock_tryrdlock((pthread_rwlock_t *)rwlock);
}

static int try_write(void *rwlock)
{
    return hook_pthread_rwlock_trywrlock((pthread_rwlock_t *)rwlock);
}

/* ==== Locking ================================================================================ */

/* While others read, a reader does not queue: it may be one of them already, and the tasks in the
 * queue may be writers. */
static int lock_to_read(pthread_rwlock_t *rwlock, const limit_t *limit)
{
    static const lockable_t reader = {try_read, NULL, 1, FOR_RWLOCK};
    aco_i_spend_call();
    if (is_mine(rwlock)) {
        return EDEADLK;
    }
    if (!is_awaited(rwlock) ||
        __atomic_load_n(&rwlock->__data.__readers, __ATOMIC_RELAXED) >= A_READER) {
        int error = real_pthread_rwlock_tryrdlock(rwlock);
        if (error != EBUSY) {
            return error;
        }
    }
    return aco_i_obtain(&reader, rwlock, limit);
}

static int lock_to_write(pthread_rwlock_t *rwlock, const limit_t *limit)
{
    static const lockable_t writer = {try_write, NULL, 0, FOR_RWLOCK};
    aco_i_spend_call();
    if (is_mine(rwlock)) {
        return EDEADLK;
    }
    return !is_awaited(rwlock) && try_write(rwlock) == 0 ? 0 : aco_i_obtain(&writer, rwlock, limit);
}

/* Callers rely on having the lock. */
static int lock_in_any_case(pthread_rwlock_t *rwlock,
                            int (*lock_to)(pthread_rwlock_t *rwlock, const limit_t *limit))
{
    static const limit_t never;
    aco_shielded
    {
        return lock_to(rwlock, &never);
    }
    return 0;
}

HOOK(int, pthread_rwlock_rdlock, (pthread_rwlock_t * rwlock), (rwlock), 0)
{
    return is_ours(rwlock) ? lock_in_any_case(rwlock, lock_to_read)
                           : real_pthread_rwlock_rdlock(rwlock);
}

HOOK(int, pthread_rwlock_wrlock, (pthread_rwlock_t * rwlock), (rwlock), 0)
{
    return is_ours(rwlock) ? lock_in_any_case(rwlock, lock_to_write)
                           : real_pthread_rwlock_wrlock(rwlock);
}

HOOK(int, pthread_rwlock_timedrdlock, (pthread_rwlock_t * rwlock, const struct timespec *time),
     (rwlock, time), EAGAIN)
{
    limit_t limit = {.time = time, .clock = CLOCK_REALTIME, .caller = CALLER};
    return is_ours(rwlock) && is_valid(time) ? lock_to_read(rwlock, &limit)
                                             : real_pthread_rwlock_timedrdlock(rwlock, time);
}

HOOK(int, pthread_rwlock_timedwrlock, (pthread_rwlock_t * rwlock, const struct timespec *time),
     (rwlock, time), EAGAIN)
{
    limit_t limit = {.time = time, .clock = CLOCK_REALTIME, .caller = CALLER};
    return is_ours(rwlock) && is_valid(time) ? lock_to_write(rwlock, &limit)
                                             : real_pthread_rwlock_timedwrlock(rwlock, time);
}

HOOK(int, pthread_rwlock_clockrdlock,
     (pthread_rwlock_t * rwlock, clockid_t clock, const struct timespec *time),
     (rwlock, clock, time), EAGAIN)
{
    limit_t limit = {.time = time, .clock = clock, .caller = CALLER};
    return is_ours(rwlock) && is_for_waits(clock) && is_valid(time)
               ? lock_to_read(rwlock, &limit)
               : real_pthread_rwlock_clockrdlock(rwlock, clock, time);
}

HOOK(int, pthread_rwlock_clockwrlock,
     (pthread_rwlock_t * rwlock, clockid_t clock, const struct timespec *time),
     (rwlock, clock, time), EAGAIN)
{
    limit_t limit = {.time = time, .clock = clock, .caller = CALLER};
    return is_ours(rwlock) && is_for_waits(clock) && is_valid(time)
               ? lock_to_write(rwlock, &limit)
               : real_pthread_rwlock_clockwrlock(rwlock, clock, time);
}

/* ==== Unlocking ============================================================================== */

HOOK(int, pthread_rwlock_unlock, (pthread_rwlock_t * rwlock), (rwlock), 0)
{
    if (is_ours(rwlock) && is_mine(rwlock)) {
        set_writer(rwlock, 0);
    }
    int error = real_pthread_rwlock_unlock(rwlock);
    released(rwlock);
    return error;
}
