// SPDX-License-Identifier: Apache-2.0
/*
 * Mutexes. They are libc's: tasks take them by pthread_mutex_trylock() and release them as threads
 * do. libc checks no owner of normal and adaptive mutexes. It takes the thread for the owner of
 * recursive and error-checking ones. While a task has one, the fields therefore say that no thread
 * has it, and which task does: `__owner` has a bit that thread ids lack.
 *
 * Mutexes that are shared by processes, robust, or have a priority protocol remain the thread's,
 * since the kernel or other processes know it as the owner; a task that finds one taken tries again
 * from time to time. If these are also recursive or error-checking, they are left to libc, which
 * would take a second task of the thread for the owner.
 */
#include "waiting.h"

#include <limits.h>

#if __GLIBC_PREREQ(2, 32)
#include <sys/single_threaded.h>
#define IS_SINGLE_THREADED __libc_single_threaded
#else
#define IS_SINGLE_THREADED 0
#endif

HOOKS_OF(mutexes);

/* Bits of `__kind` that say whether hardware transactions may be used. */
#define ELISION (256 | 512)

#define TASK_OWNED 0x40000000 /* in `__owner`; thread ids are below 2^22 */

static __thread int thread_id __attribute__((tls_model("initial-exec")));

#define TYPE 3 /* bits of `__kind` that hold PTHREAD_MUTEX_NORMAL and so on */

static inline int kind_of(const pthread_mutex_t *mutex)
{
    return __atomic_load_n(&mutex->__data.__kind, __ATOMIC_RELAXED) & ~ELISION;
}

static inline int knows_its_owner(int kind)
{
    return kind == PTHREAD_MUTEX_RECURSIVE || kind == PTHREAD_MUTEX_ERRORCHECK;
}

/* Whether a mutex is shared by processes, robust, or has a priority protocol. */
static inline int is_special(int kind)
{
    return (kind & ~TYPE) != 0;
}

static inline int is_left_to_libc(int kind)
{
    return is_special(kind) && knows_its_owner(kind & TYPE);
}

/* ==== Owners ================================================================================= */

static inline int owner_of(const pthread_mutex_t *mutex)
{
    return __atomic_load_n(&mutex->__data.__owner, __ATOMIC_ACQUIRE);
}

static inline void set_owner(pthread_mutex_t *mutex, int owner)
{
    __atomic_store_n(&mutex->__data.__owner, owner, __ATOMIC_RELEASE);
}

/* 30 bits of the task's id. */
static inline int owner_for(const aco_task_t *self)
{
    return TASK_OWNED | (int)(self->id & (TASK_OWNED - 1));
}

#if __PTHREAD_MUTEX_HAVE_PREV
/* The id of the task is in a field for robust mutexes. */
static int is_mine(const pthread_mutex_t *mutex, const aco_task_t *self)
{
    return owner_of(mutex) == TASK_OWNED &&
           __atomic_load_n(&mutex->__data.__list.__next, __ATOMIC_RELAXED) ==
               (void *)(uintptr_t)self->id;
}

static void set_mine(pthread_mutex_t *mutex, const aco_task_t *self)
{
    __atomic_store_n(&mutex->__data.__list.__next, (void *)(uintptr_t)self->id, __ATOMIC_RELAXED);
    set_owner(mutex, TASK_OWNED);
}
#else
/* 30 bits of an id suffice: they repeat after 2^30 new tasks, and the owner would have to keep the
 * mutex for as long. */
static int is_mine(const pthread_mutex_t *mutex, const aco_task_t *self)
{
    return owner_of(mutex) == owner_for(self);
}

static void set_mine(pthread_mutex_t *mutex, const aco_task_t *self)
{
    set_owner(mutex, owner_for(self));
}
#endif

uint32_t aco_i_owner_of(const pthread_mutex_t *mutex)
{
    uint32_t owner = is_special(kind_of(mutex)) ? 0 : (uint32_t)owner_of(mutex);
#if __PTHREAD_MUTEX_HAVE_PREV
    if (owner == TASK_OWNED) {
        owner |= (uint32_t)(uintptr_t)mutex->__data.__list.__next;
    }
#endif
    return owner & TASK_OWNED ? owner & (TASK_OWNED - 1) : 0;
}

static int this_thread(void)
{
    if (thread_id == 0) {
        thread_id = (int)syscall(SYS_gettid);
    }
    return thread_id;
}

/* A task that has the mutex releases it by the hook. */
static int is_watched(const void *ptr)
{
    const pthread_mutex_t *mutex = (const pthread_mutex_t *)ptr;
    return !is_special(kind_of(mutex)) && (owner_of(mutex) & TASK_OWNED) != 0;
}

/* ==== Trying ================================================================================= */

HOOK(int, pthread_mutex_lock, (pthread_mutex_t * mutex), (mutex), 0);
HOOK(int, pthread_mutex_unlock, (pthread_mutex_t * mutex), (mutex), 0);
HOOK(int, pthread_mutex_trylock, (pthread_mutex_t * mutex), (mutex), 0);

/* Does what libc does while there is one thread. */
static inline int try_alone(pthread_mutex_t *mutex)
{
    if (mutex->__data.__lock != 0) {
        return EBUSY;
    }
    mutex->__data.__lock = 1;
    mutex->__data.__nusers++;
    mutex->__data.__owner = owner_for(aco_i_running_task());
    return 0;
}

static inline int unlock_alone(pthread_mutex_t *mutex)
{
    mutex->__data.__owner = 0;
    mutex->__data.__nusers--;
    mutex->__data.__lock = 0;
    return 0;
}

/* Counts one more lock by the owner. */
static int lock_again(pthread_mutex_t *mutex)
{
    if (mutex->__data.__count == UINT_MAX) {
        return EAGAIN;
    }
    mutex->__data.__count++;
    return 0;
}

static int try_with_owner(pthread_mutex_t *mutex)
{
    const aco_task_t *self = aco_i_running_task();
    if (owner_of(mutex) == this_thread()) { /* locked outside of tasks */
        return EBUSY;
    }
    if (is_mine(mutex, self)) {
        return kind_of(mutex) == PTHREAD_MUTEX_RECURSIVE ? lock_again(mutex) : EBUSY;
    }
    int error = real_pthread_mutex_trylock(mutex);
    if (error == 0) {
        set_mine(mutex, self);
    }
    return error;
}

static inline int try_normal(pthread_mutex_t *mutex)
{
    if (IS_SINGLE_THREADED) {
        return try_alone(mutex);
    }
    int error = real_pthread_mutex_trylock(mutex);
    if (error == 0) {
        set_owner(mutex, owner_for(aco_i_running_task()));
    }
    return error;
}

static inline int try_kind(pthread_mutex_t *mutex, int kind)
{
    return knows_its_owner(kind) ? try_with_owner(mutex)
           : is_special(kind)    ? real_pthread_mutex_trylock(mutex)
                                 : try_normal(mutex);
}

static int try(void *mutex)
{
    return try_kind((pthread_mutex_t *)mutex, kind_of((pthread_mutex_t *)mutex));
}

int hook_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    return is_in_task() && !is_left_to_libc(kind_of(mutex)) ? try(mutex)
                                                            : real_pthread_mutex_trylock(mutex);
}

/* ==== Locking ================================================================================ */

static __attribute__((noinline)) int wait_for(pthread_mutex_t *mutex, const limit_t *limit)
{
    static const lockable_t kind = {try, is_watched, 0, FOR_MUTEX};
    if (knows_its_owner(kind_of(mutex)) && is_mine(mutex, aco_i_running_task())) {
        return kind_of(mutex) == PTHREAD_MUTEX_RECURSIVE ? lock_again(mutex) : EDEADLK;
    }
    return aco_i_obtain(&kind, mutex, limit);
}

/* Callers rely on having the mutex. */
static __attribute__((noinline)) int wait_in_any_case(pthread_mutex_t *mutex)
{
    static const limit_t never;
    aco_shielded
    {
        return wait_for(mutex, &never);
    }
    return 0;
}

int hook_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    int kind;
    if (!is_in_task() || is_left_to_libc(kind = kind_of(mutex))) {
        return real_pthread_mutex_lock(mutex);
    }
    aco_i_spend_call();
    int error = is_awaited(mutex) ? EBUSY : try_kind(mutex, kind);
    return error != EBUSY ? error : wait_in_any_case(mutex);
}

int aco_i_lock_mutex(pthread_mutex_t *mutex)
{
    return hook_pthread_mutex_lock(mutex);
}

static int lock_until(pthread_mutex_t *mutex, const limit_t *limit)
{
    aco_i_spend_call();
    return wait_for(mutex, limit);
}

HOOK(int, pthread_mutex_timedlock, (pthread_mutex_t * mutex, const struct timespec *time),
     (mutex, time), EAGAIN)
{
    return is_in_task() && !is_left_to_libc(kind_of(mutex))
               ? lock_until(mutex,
                            &(limit_t){.time = time, .clock = CLOCK_REALTIME, .caller = CALLER})
               : real_pthread_mutex_timedlock(mutex, time);
}

HOOK(int, pthread_mutex_clocklock,
     (pthread_mutex_t * mutex, clockid_t clock, const struct timespec *time), (mutex, clock, time),
     EAGAIN)
{
    return is_in_task() && !is_left_to_libc(kind_of(mutex)) && is_for_waits(clock)
               ? lock_until(mutex, &(limit_t){.time = time, .clock = clock, .caller = CALLER})
               : real_pthread_mutex_clocklock(mutex, clock, time);
}

/* ==== Unlocking ============================================================================== */

static int unlock_with_owner(pthread_mutex_t *mutex)
{
    if (!is_mine(mutex, aco_i_running_task())) {
        return EPERM;
    }
    if (kind_of(mutex) == PTHREAD_MUTEX_RECURSIVE && mutex->__data.__count > 1) {
        mutex->__data.__count--;
        return 0;
    }
    set_owner(mutex, this_thread()); /* libc checks the owner */
    return real_pthread_mutex_unlock(mutex);
}

static inline int unlock_in_task(pthread_mutex_t *mutex)
{
    int kind = kind_of(mutex);
    if (knows_its_owner(kind)) {
        return unlock_with_owner(mutex);
    }
    return IS_SINGLE_THREADED && mutex->__data.__lock == 1 && !is_special(kind)
               ? unlock_alone(mutex)
               : real_pthread_mutex_unlock(mutex);
}

int hook_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    int error = is_in_task() ? unlock_in_task(mutex) : real_pthread_mutex_unlock(mutex);
    released(mutex);
    return error;
}

int aco_i_unlock_mutex(pthread_mutex_t *mutex)
{
    return hook_pthread_mutex_unlock(mutex);
}

int aco_i_may_unlock_mutex(const pthread_mutex_t *mutex)
{
    return !knows_its_owner(kind_of(mutex)) || is_mine(mutex, aco_i_running_task());
}

/* ==== For threads that wait for a task ======================================================= */

#define IS_SHARED 128 /* in `__kind` */

int aco_i_has_no_owner(const pthread_mutex_t *mutex)
{
    int kind = kind_of(mutex);
    return !knows_its_owner(kind & TYPE) && (kind & ~(TYPE | IS_SHARED)) == 0;
}

void aco_i_leave_mutex(pthread_mutex_t *mutex)
{
    if (!is_special(kind_of(mutex))) {
        set_owner(mutex, 0);
    }
    released(mutex); /* so that tasks that wait for it try now and then */
}

void aco_i_enter_mutex(pthread_mutex_t *mutex)
{
    if (!is_special(kind_of(mutex))) {
        set_owner(mutex, owner_for(aco_i_running_task()));
    }
}
