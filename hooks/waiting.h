// SPDX-License-Identifier: Apache-2.0
/*
 * Waits of tasks for locks and similar of the program, which lie at an address: a table like the
 * kernel's of futexes.
 *
 * Who has an object is known to libc alone. A task that can't have it stays in a queue until it
 * has got it, and the first in the queue tries whenever the object was released. So a release need
 * not know who comes next, plain threads may be faster, and none of those behind is forgotten: who
 * leaves the queue without the object calls the next one.
 *
 * A task tries after it has entered the queue, and a release looks at the queue after it was done;
 * so at least one sees the other. Where libc may release an object unseen, as a mutex when a plain
 * thread waits for a condition, the first in the queue also tries now and then.
 */
#ifndef ACO_HOOKS_WAITING_H
#define ACO_HOOKS_WAITING_H

#include "internal.h"

#include <time.h>

/* A point in time until which to wait; a NULL `time` is never. */
typedef struct {
    const struct timespec *time;
    clockid_t clock;
} limit_t;

/* A kind of objects that tasks have and release. */
typedef struct {
    int (*try)(void *object);              /* 0, EBUSY if it must be waited for, or another error */
    int (*is_watched)(const void *object); /* whether releasing it will be seen; NULL: yes */
    int is_shared; /* several may have it at a time, so who gets it calls the next one */
    reason_t reason;
} kind_t;

typedef struct {
    lock_t lock;
    unsigned ct; /* in the queue; atomic */
    queue_t queue;
    const void *missed; /* atomic: an object released while the lock was held, to be called for */
} bucket_t;

#define CT_BUCKETS 1024u

/* Of a mutex, or a copy of one: bits of its task's number, as in locks_of_hooks_t. */
HIDDEN uint32_t aco_i_owner_of(const pthread_mutex_t *mutex);

extern HIDDEN bucket_t aco_i_buckets[CT_BUCKETS];

static inline bucket_t *bucket_of(const void *object)
{
    return &aco_i_buckets[((uint32_t)((uintptr_t)object >> 3) * UINT32_C(0x9e3779b1)) >> 22];
}

/* Whether a task waits for an object, or for one in the same bucket. */
static inline int is_awaited(const void *object)
{
    unsigned ct = __atomic_load_n(&bucket_of(object)->ct, __ATOMIC_RELAXED);
    return __builtin_expect(ct != 0, 0) != 0;
}

HIDDEN void aco_i_call_first(const void *object);

/* After an object was released by a read-modify-write of libc's, which x86 completes before it
 * loads the count. */
static inline void released(const void *object)
{
#if defined(__x86_64__) || defined(__i386__)
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
#else
    __sync_synchronize();
#endif
    if (is_awaited(object)) {
        aco_i_call_first(object);
    }
}

/* The same for signal handlers, too. */
HIDDEN void aco_i_released_by_any(const void *object);

/* Waits, as the running task, until it has an object. 0, or ETIMEDOUT, ECANCELED or an error of
 * try(). */
HIDDEN int aco_i_obtain(const kind_t *kind, void *object, const limit_t *limit);

/*
 * For conditions. Enters the running task into the queue of one; waits until it is signalled, or
 * the limit has passed; wakes one of those who wait, or all.
 */
HIDDEN void aco_i_begin_cond_wait(const void *cond);
HIDDEN int aco_i_end_cond_wait(const void *cond, const limit_t *limit);
HIDDEN void aco_i_signal_tasks(const void *cond, int all);

/* On CLOCK_MONOTONIC, by what the clocks say now. */
HIDDEN int64_t aco_i_until(const limit_t *limit);

/* Waits until something ends the open wait of the running task, or `limit` has passed: then
 * WAIT_DEADLINE, too. WAIT_NONE: it has not, as the clock was set. */
HIDDEN outcome_t aco_i_wait_within(aco_task_t *self, const limit_t *limit);

static inline int aco_i_error_of(outcome_t outcome)
{
    return outcome == WAIT_DEADLINE ? ETIMEDOUT : ECANCELED;
}

static inline int is_valid(const struct timespec *time)
{
    return time->tv_nsec >= 0 && time->tv_nsec < 1000000000;
}

static inline int is_for_waits(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC;
}

/* ---- mutexes.c, for conditions ---- */

HIDDEN int aco_i_lock_mutex(pthread_mutex_t *mutex);
HIDDEN int aco_i_unlock_mutex(pthread_mutex_t *mutex);
/* Whether the running task has it, as far as is known. */
HIDDEN int aco_i_may_unlock_mutex(const pthread_mutex_t *mutex);

/* ---- threads.c ---- */

/* A thread for a call that blocks, of a task that can give up: interrupt() makes the call return.
 * The thread blocks all signals. It begins what call() and interrupt() use, on the heap. */
typedef struct caller_s {
    void (*call)(struct caller_s *caller);
    void (*interrupt)(struct caller_s *caller); /* perhaps before the call has begun: is repeated */
    pthread_t thread;
    aco_task_t *task;
    lock_t lock; /* of the end */
    int has_ended;
} caller_t;

/* 0 if the call has returned by itself, or why no thread can be had, or why the task gave up; then
 * the call has returned, too. */
HIDDEN int aco_i_call_by_thread(caller_t *caller, const limit_t *limit);

/* In a child after fork(). */
HIDDEN void aco_i_forget_waits(void);

#endif
