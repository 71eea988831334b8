// SPDX-License-Identifier: Apache-2.0
/*
 * What the sources of the runtime share. Programs include aco_runtime.h.
 *
 * Layers, each relying on those before it:
 *   timer.c   deadlines, a heap for each loop
 *   loop.c    ready queue, switching, waits and how they end
 *   task.c    tasks: start, end, join, park, scopes, locals
 *   group.c   groups, and cancelling
 *   run.c     a runtime: its threads, from start to end
 *   sync.c    mutexes and similar; chan.c: channels and select; print.c: what is there
 *
 * A wait
 *   A call that waits opens the wait of its task by aco_i_open_wait(), makes it known to something
 *   that can end it (a queue, usually), and calls aco_i_wait(), which returns how it ended. Who
 * ends a wait, on any thread, first claims it: the task's `wait` goes from open to an outcome by
 * one compare-and-swap, so each wait ends once. Who has claimed it may write to the task, and then
 *   makes it ready. If that was not the queue, the call itself takes its node from the queue, under
 *   the queue's lock, before it returns.
 *   Nodes lie in the task or on the heap, never on its stack, where another task may run meanwhile.
 *
 * Threads
 *   From its start to its end a task belongs to one loop. Other threads touch its `wait`, what they
 *   claimed it for, and `next`, to put it into the loop's inbox. A thread outside of tasks waits as
 *   a task without a loop, on a futex.
 */
#ifndef ACO_RUNTIME_INTERNAL_H
#define ACO_RUNTIME_INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "aco_runtime.h"
#include "aco_stack_pool.h"

#include <pthread.h>

#define HIDDEN __attribute__((visibility("hidden")))
#define NO_DEADLINE INT64_MAX

typedef struct loop_s loop_t;
typedef struct runtime_s runtime_t;

/* ==== Locks and queues ======================================================================= */

/* Locks are held for a few instructions, and never across a wait. */
typedef aco_i_lock_t lock_t;
HIDDEN void aco_i_lock_slowly(lock_t *lock);

static inline void lock(lock_t *lock)
{
    if (__atomic_exchange_n(&lock->is_held, 1, __ATOMIC_ACQUIRE)) {
        aco_i_lock_slowly(lock);
    }
}

static inline void unlock(lock_t *lock)
{
    __atomic_store_n(&lock->is_held, 0, __ATOMIC_RELEASE);
}

typedef aco_i_queue_t queue_t;

/* The place of a task in a queue. */
typedef struct aco_i_node_s {
    struct aco_i_node_s *next, *prev;
    queue_t *queue; /* NULL: in none */
    aco_task_t *task;
    void *item;  /* of a channel: the item, or where it goes */
    size_t kind; /* for whoever takes it from the queue */
} node_t;

static inline void enqueue(queue_t *queue, node_t *node)
{
    node->queue = queue;
    node->next = NULL;
    node->prev = queue->last;
    *(queue->last != NULL ? &queue->last->next : &queue->first) = node;
    queue->last = node;
}

static inline void dequeue(node_t *node)
{
    queue_t *queue = node->queue;
    if (queue != NULL) {
        *(node->prev != NULL ? &node->prev->next : &queue->first) = node->next;
        *(node->next != NULL ? &node->next->prev : &queue->last) = node->prev;
        node->queue = NULL;
    }
}

/* ==== Tasks ================================================================================== */

/* What `wait` of a task is: no wait; an open one, which aco_unpark() may end if it is parked, and
 * cancelling unless it is shielded; or how it ended. */
typedef enum {
    WAIT_NONE,
    WAIT_OPEN,
    WAIT_OPEN_SHIELDED,
    WAIT_PARKED,
    WAIT_PARKED_SHIELDED,
    WAIT_EVENT,
    WAIT_DEADLINE,
    WAIT_CANCELLED,
    WAIT_CLOSED /* what it waited for was closed */
} outcome_t;

typedef enum { TASK_FREE, TASK_NEW, TASK_READY, TASK_RUNNING, TASK_WAITING, TASK_ENDED } state_t;

/* Why a task waits, for people. */
typedef enum {
    FOR_NOTHING,
    FOR_JOIN,
    FOR_PARK,
    FOR_SLEEP,
    FOR_GROUP,
    FOR_MUTEX,
    FOR_RWLOCK,
    FOR_COND,
    FOR_SEMAPHORE,
    FOR_WAIT_GROUP,
    FOR_SEND,
    FOR_RECV,
    FOR_SELECT
} reason_t;

struct aco_task_s {
    aco_t *co;            /* NULL before its start, and of a thread */
    aco_t *suspended;     /* where it goes on: `co`, or a coroutine that it resumed */
    aco_task_t *next;     /* in a ready queue, an inbox or a list of free ones */
    loop_t *loop;         /* NULL: of a thread, or of a task that any thread may start */
    int wait;             /* outcome_t; atomic */
    int error;            /* errno, while it does not run */
    int is_woken;         /* of a thread: a futex; atomic */
    unsigned char state;  /* state_t; of its loop's thread */
    unsigned char reason; /* reason_t */
    char shares_stack;
    char is_joinable;
    char is_cancelled; /* atomic */
    char has_token;    /* atomic: aco_unpark() came before aco_park() */
    char has_stack;    /* a stack of a size of its own, not the pool's */
    int ct_shields;
    int64_t deadline;
    int64_t since;   /* when its wait began */
    int64_t wake_at; /* when its timer ends its wait */
    size_t timer;    /* place in the heap; 0: none is set */
    node_t node;
    size_t selected; /* `kind` of the node by which a channel ended its wait */
    void *(*fn)(void *);
    void *arg; /* and its result */
    const char *name;
    size_t stack_sz; /* bytes; 0: the pool's */
    uint64_t id;
    aco_task_t *joiner;
    char has_ended;
    lock_t lock;        /* of `joiner` and has_ended */
    aco_group_t *group; /* that it belongs to */
    aco_task_t *group_next, *group_prev;
    aco_group_t *groups; /* that it made */
    void **locals;
    size_t ct_locals;
};

/* ==== Loops ================================================================================== */

struct loop_s {
    aco_task_t *running; /* NULL: the loop itself runs */
    aco_task_t *first_ready, *last_ready;
    unsigned switches_left; /* until the loop looks at what has happened outside */
    int is_asleep;          /* atomic: who sets it to 0 writes to event_fd */
    aco_task_t *inbox;      /* atomic: tasks made ready by other threads, the last one first */
    int *error;             /* errno of its thread */
    int64_t now;            /* at the last look */
    aco_t *main_co;
    runtime_t *runtime;
    aco_stack_pool_t *pool;
    aco_share_stack_t *share_stack; /* NULL before the first task that shares it */
    aco_task_t *free_tasks;
    size_t ct_free_tasks;
    size_t ct_tasks;     /* that have started here and not ended */
    aco_task_t **timers; /* a heap by wake_at, the first one in [1] */
    size_t ct_timers, timers_sz;
    int epoll_fd, event_fd;
    uint32_t random; /* not 0 */
    int index;       /* in its runtime */
    int error_at_start;
    pthread_t thread;
    uint64_t ct_started, ct_switches, ct_wakes, ct_polls;
};

struct runtime_s {
    loop_t *loops;
    int ct_loops;
    size_t stack_sz;
    unsigned pool_flags;
    uint64_t ct_tasks; /* atomic: not ended */
    lock_t lock;       /* of what follows, and of its groups */
    aco_task_t *free_tasks;
    struct chunk_s *chunks;
    aco_task_t *first_any, *last_any; /* may start on any thread; first_any is atomic, too */
    runtime_t *next;                  /* of the process */
};

extern HIDDEN __thread loop_t *aco_i_loop; /* that runs on this thread */

/* ---- timer.c ---- */

/* Makes sure that `ct` timers can be set in a loop; 0, or -1 with ENOMEM. */
HIDDEN int aco_i_reserve_timers(loop_t *loop, size_t ct);
/* Ends the open wait of `task` by WAIT_DEADLINE once `when` has passed. */
HIDDEN void aco_i_set_timer(aco_task_t *task, int64_t when);
HIDDEN void aco_i_clear_timer(aco_task_t *task);
/* Ends the waits whose timers are due, in their order. */
HIDDEN void aco_i_expire_timers(loop_t *loop);

/* ---- loop.c ---- */

/* The running task, or what stands for the thread outside of one. */
HIDDEN aco_task_t *aco_i_self(void);
/* Opens the wait of the running task. */
HIDDEN void aco_i_open_wait(aco_task_t *task, reason_t reason);
/* Closes it again, unless something has claimed it: then it must be waited for. Whether it did. */
HIDDEN int aco_i_close_wait(aco_task_t *task);
/* Waits until it has ended. */
HIDDEN outcome_t aco_i_wait(aco_task_t *task);
/* Claims an open wait; 0: something else has, or there is none. The caller knows that it is the
 * wait which it means: it holds the lock of the queue that the task is in, or is on the task's
 * thread. */
HIDDEN int aco_i_claim(aco_task_t *task, outcome_t outcome);
/* Makes a task ready whose wait the caller has claimed. */
HIDDEN void aco_i_make_ready(aco_task_t *task);
/* 0 for WAIT_EVENT, or else -1 with errno. */
HIDDEN int aco_i_result(outcome_t outcome);
/* Runs tasks until the runtime has none. */
HIDDEN void aco_i_run_loop(loop_t *loop);
/* Has a loop look at its inbox and at tasks that any thread may start. */
HIDDEN void aco_i_wake_loop(loop_t *loop);
HIDDEN int64_t aco_i_clock(void);

/* ---- task.c ---- */

/* A task in no loop; NULL with ENOMEM. */
HIDDEN aco_task_t *aco_i_new_task(loop_t *loop, void *(*fn)(void *), void *arg);
HIDDEN void aco_i_free_task(aco_task_t *task);
/* Gives a task its coroutine; 0, or -1 with ENOMEM. */
HIDDEN int aco_i_start(loop_t *loop, aco_task_t *task);
/* What is left to do after the last switch from a task. */
HIDDEN void aco_i_reap(loop_t *loop, aco_task_t *task);
HIDDEN void aco_i_free_chunks(runtime_t *runtime);
/* Calls `fn` for each task that has not ended. */
HIDDEN void aco_i_each_task(runtime_t *runtime, void (*fn)(FILE *, const aco_task_t *, int64_t now),
                            FILE *stream);
/* Ends the process with a message of the running task. */
HIDDEN ACO_NORETURN void aco_i_misuse_of(const char *call, const char *rule);

/* ---- run.c ---- */
HIDDEN void aco_i_each_runtime(void (*fn)(runtime_t *runtime, void *arg), void *arg);

/* ---- sync.c ---- */

/* The first of a queue whose wait can be claimed, taken from the queue; NULL if there is none. */
HIDDEN node_t *aco_i_claim_first(queue_t *queue, outcome_t outcome);

/* ---- group.c ---- */
HIDDEN int aco_i_enter_group(aco_group_t *group, aco_task_t *task);
HIDDEN void aco_i_leave_group(aco_task_t *task);
/* Clears the owner of each group that the task made, before the task ends. */
HIDDEN void aco_i_abandon_groups(aco_task_t *task);

#endif
