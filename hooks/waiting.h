// SPDX-License-Identifier: Apache-2.0
/*
 * Waits of tasks for locks and similar objects of the program: a table of queues by address, like
 * the kernel's for futexes.
 *
 * libc alone knows the owner of an object. A task that can't have it stays in a queue until it has
 * it, and the first in the queue tries whenever the object is released. A release thus need not
 * know who comes next, and plain threads may overtake. No task behind is forgotten: one that leaves
 * the queue without the object wakes the next.
 *
 * A task tries after it has entered the queue, and a release looks at the queue after the object is
 * free, so at least one sees the other. libc may release an object unseen, for example a mutex when
 * a plain thread waits for a condition; then the first in the queue also tries now and then.
 */
#ifndef ACO_HOOKS_WAITING_H
#define ACO_HOOKS_WAITING_H

#include "internal.h"

#include <time.h>

/* The effect of a signal on the thread that waits, after its handler has returned. */
typedef enum {
    SIGNALS_PASS,    /* the wait goes on */
    SIGNALS_RESTART, /* the same with SA_RESTART, else the wait fails with EINTR */
    SIGNALS_FAIL
} signals_t;

/* A point in time until which to wait; a NULL `time` is never. */
typedef struct {
    const struct timespec *time;
    clockid_t clock;
    const void *caller; /* its library may want to wait beyond deadlines; NULL: it does not */
    int is_of_io;       /* not of a lock or similar */
    signals_t signals;
} limit_t;

/* Whether a wait that has failed goes on, shielded, as its task is late and its library wants that.
 * If its limit has passed, it then ends by that. */
HIDDEN int aco_i_limit_goes_on(const limit_t *limit);

/* Looks at a word that others may change without a wake that tasks see. */
typedef struct watch_s {
    int (*is_over)(struct watch_s *watch); /* whether the wait is over; it may set `interval` */
    int64_t interval;                      /* ns until it is called; 0: never */
} watch_t;

/* Whether the wait of a limit goes on that has ended in this way. If it was interrupted, that is
 * handled first; the task is in no queue. */
static inline int goes_on_after(outcome_t outcome, const limit_t *limit)
{
    return outcome == WAIT_INTERRUPTED &&
           (aco_i_goes_on_after(outcome, limit->signals != SIGNALS_FAIL) ||
            limit->signals == SIGNALS_PASS);
}

/* A kind of objects that tasks take and release. */
typedef struct {
    int (*try)(void *object);              /* 0, EBUSY if the task must wait, or another error */
    int (*is_watched)(const void *object); /* whether its release will be seen; NULL: yes */
    int is_shared; /* several may have it, so a task that gets it wakes the next */
    reason_t reason;
} lockable_t;

typedef struct {
    lock_t lock;
    unsigned ct; /* in the queue; atomic */
    queue_t queue;
    const void *missed; /* atomic: an object released while the lock was held */
} bucket_t;

#define CT_BUCKETS 1024u

/* Bits of the id of the task that has a mutex, given it or a copy of it: see locks_of_hooks_t. */
HIDDEN uint32_t aco_i_owner_of(const pthread_mutex_t *mutex);

extern HIDDEN bucket_t aco_i_buckets[CT_BUCKETS];

static inline bucket_t *bucket_of(const void *object)
{
    return &aco_i_buckets[((uint32_t)((uintptr_t)object >> 3) * UINT32_C(0x9e3779b1)) >> 22];
}

/* Whether a task waits for an object, or for another one in its bucket. */
static inline int is_awaited(const void *object)
{
    unsigned ct = __atomic_load_n(&bucket_of(object)->ct, __ATOMIC_RELAXED);
    return __builtin_expect(ct != 0, 0) != 0;
}

HIDDEN void aco_i_call_first(const void *object);

/* Must follow the release of an object by libc, whose read-modify-write x86 completes before it
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

/* As released(), but signal handlers may call it, too. */
HIDDEN void aco_i_released_by_any(const void *object);

/* Makes the running task wait until it has an object. 0, or ETIMEDOUT, ECANCELED, EINTR or an error
 * of try(). */
HIDDEN int aco_i_obtain(const lockable_t *kind, void *object, const limit_t *limit);

/*
 * Conditions. The first enters the running task into the queue of one; the second waits for a
 * signal until the limit has passed, or `watch`, which may be NULL, says that it is over; the third
 * wakes the first task that waits, or all.
 */
HIDDEN void aco_i_begin_cond_wait(const void *cond);
/* 0, ETIMEDOUT, ECANCELED or EINTR; ERESTART: it was interrupted, and is to begin again. */
HIDDEN int aco_i_end_wait(const limit_t *limit, watch_t *watch);
/* Whether a wait of the running task is bound to fail, with `*error`. */
HIDDEN int aco_i_must_fail(int *error);
HIDDEN void aco_i_signal_tasks(const void *cond, int all);

/*
 * Words. The first enters the running task into the queue of one if it has the value, and returns
 * whether it has; aco_i_end_wait() then waits. The second wakes tasks of which bits are asked for,
 * at most so many, and returns how many it has woken. The third wakes some and lets others wait for
 * another word, and returns whether the value was right.
 */
HIDDEN int aco_i_begin_wait_for_wake(const uint32_t *word, uint32_t value, uint32_t bits);
HIDDEN unsigned aco_i_wake_tasks(const void *word, unsigned most, uint32_t bits);

typedef struct {
    const uint32_t *word, *to;
    uint32_t value;
    int compares; /* whether the word must have the value */
    unsigned most_woken, most_moved, ct_woken, ct_moved;
} requeue_t;

HIDDEN int aco_i_requeue_tasks(requeue_t *r);

/* The limit as a time of CLOCK_MONOTONIC, as the clocks stand now. */
HIDDEN int64_t aco_i_end_of_limit(const limit_t *limit);

/* Waits until something ends the open wait of the running task, or `limit` has passed, which is
 * WAIT_DEADLINE, too. WAIT_NONE: the clock was set, and the limit has not passed. */
HIDDEN outcome_t aco_i_wait_within(aco_task_t *self, const limit_t *limit);

static inline int aco_i_error_of(outcome_t outcome)
{
    return outcome == WAIT_DEADLINE ? ETIMEDOUT : outcome == WAIT_INTERRUPTED ? EINTR : ECANCELED;
}

static inline int is_valid(const struct timespec *time)
{
    return time->tv_nsec >= 0 && time->tv_nsec < SECOND;
}

static inline int is_for_waits(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC;
}

/* ---- mutexes.c, for conditions ---- */

HIDDEN int aco_i_lock_mutex(pthread_mutex_t *mutex);
HIDDEN int aco_i_unlock_mutex(pthread_mutex_t *mutex);
/* Whether the running task has a mutex, as far as is known. */
HIDDEN int aco_i_may_unlock_mutex(const pthread_mutex_t *mutex);

/* Whether a thread that did not lock a mutex may release it. */
HIDDEN int aco_i_has_no_owner(const pthread_mutex_t *mutex);
/* Leaves a mutex of the running task to a thread, which may release it unseen; takes it back. */
HIDDEN void aco_i_leave_mutex(pthread_mutex_t *mutex);
HIDDEN void aco_i_enter_mutex(pthread_mutex_t *mutex);

/* ---- threads.c ---- */

/* A thread that makes a blocking call for a task that may give up: interrupt() makes the call
 * return. The thread blocks all signals. This is the first member of a struct on the heap, which
 * call() and interrupt() get. */
typedef struct caller_s {
    void (*call)(struct caller_s *caller);
    void (*interrupt)(struct caller_s *caller); /* is repeated, as the call may not have begun */
    pthread_t thread;
    aco_task_t *task;
    lock_t lock; /* for what follows */
    char has_ended;
    char is_left; /* the task handles what has interrupted it */
} caller_t;

/* 0 if the call has returned by itself; else an error: no thread could be started, or the task gave
 * up, and then the call has returned, too. */
HIDDEN int aco_i_call_by_thread(caller_t *caller, const limit_t *limit);

/* ---- keys.c ---- */

/* Weak: another library may decide that. */
HIDDEN int aco_i_has_own_keys(const void *address);

/* ---- system_calls.c and futex.c ---- */

/* The arguments of a system call, the first one first. */
typedef struct {
    long at[6];
} args_t;

/* Makes a system call by libc's function. */
HIDDEN long aco_i_libc_syscall(long number, const args_t *args);

/* Does SYS_futex, or SYS_futex_time64, for any thread. */
HIDDEN long aco_i_futex(long number, const args_t *args, const void *caller);

/* Empties all queues, in a child after fork(). */
HIDDEN void aco_i_forget_waits(void);

#endif
