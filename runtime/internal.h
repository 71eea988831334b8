// SPDX-License-Identifier: Apache-2.0
/*
 * What the sources of the runtime share. Programs include aco_runtime.h.
 *
 * Layers, each relying on those before it:
 *   timer.c   deadlines, a heap for each loop
 *   loop.c    ready queue, switching, waits and how they end
 *   task.c    tasks: start, end, join, park, scopes, locals
 *   bindings.c what aco.hpp needs beyond that
 *   group.c   groups, and cancelling
 *   offload.c helper threads
 *   run.c     a runtime: its threads, from start to end
 *   embed.c   a loop in another one; resume.c: tasks that others resume, for compat/
 *   descriptors.c what is known of descriptors
 *   poll.c    who waits for them, and closing
 *   call.c    how a call waits and is tried again
 *   io.c      input and output; connect.c: connections, sendfile(); net.c: listening and dialling
 *   reader.c  buffered readers
 *   process.c ends of processes, signals
 *   sync.c    mutexes and similar; chan.c: channels and select; broadcast.c: broadcasts
 *   text.c    text without malloc; cfi.c, unwind.c: backtraces; symbols.c: names of places
 *   places.c  where tasks are; print.c: the list of them
 *   report.c  that on signals; stacks for handlers
 *   fatal.c   signals that end the process: stack overflows, and the list
 *   metrics.c numbers; trace.c, trace_file.c: the trace; profile.c: the profile
 *   finish.c  both when a signal ends the process
 *   watch.c   the watchdog
 *   knots.c   which tasks wait for others; deadlocks.c: those that do so for ever
 *   files.c   files; names.c: name look-ups
 *   libc.c    the functions of libc that hooks replace, as the runtime itself calls them
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
#define _FILE_OFFSET_BITS 64

#include "aco_bindings.h"
#include "aco_stack_pool.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__has_include)
#if __has_include(<sys/single_threaded.h>) /* glibc 2.32 */
#include <sys/single_threaded.h>
#define HAS_SINGLE_THREADED
#endif
#endif

#define HIDDEN __attribute__((visibility("hidden")))
/* Of what the hooks use, which may be a library of their own. */
#define SHARED __attribute__((visibility("default")))
#define NO_DEADLINE INT64_MAX
#define LEAST_STACK_SZ ((size_t)16 << 10) /* bytes that a program may ask for */
/* Of a function that reads, for people, what other threads may write meanwhile. */
#define READS_RACILY __attribute__((no_sanitize_thread))

typedef struct loop_s loop_t;
typedef struct runtime_s runtime_t;
typedef struct trace_s trace_t;
typedef struct profile_s profile_t;

/* ==== libc =================================================================================== */

/*
 * Calls that a task may make inside of the runtime. A program may have hooks in their place, which
 * would lead back here; hooks therefore put libc's own into this table. Each has its name for large
 * offsets, which counts where addresses have 32 bits.
 */
#define ACO_I_LIBC(X)                                                                              \
    X(read, read)                                                                                  \
    X(readv, readv)                                                                                \
    X(preadv, preadv64)                                                                            \
    X(write, write)                                                                                \
    X(writev, writev)                                                                              \
    X(pwritev, pwritev64)                                                                          \
    X(recvfrom, recvfrom)                                                                          \
    X(recvmsg, recvmsg)                                                                            \
    X(send, send)                                                                                  \
    X(sendmsg, sendmsg)                                                                            \
    X(sendfile, sendfile64)                                                                        \
    X(accept4, accept4)                                                                            \
    X(connect, connect)                                                                            \
    X(shutdown, shutdown)                                                                          \
    X(close, close)                                                                                \
    X(poll, poll)                                                                                  \
    X(fcntl, fcntl64)                                                                              \
    X(open, open64)                                                                                \
    X(fsync, fsync)                                                                                \
    X(sched_yield, sched_yield)                                                                    \
    X(sigtimedwait, sigtimedwait)                                                                  \
    X(sigwaitinfo, sigwaitinfo)                                                                    \
    X(waitpid, waitpid)                                                                            \
    X(waitid, waitid)                                                                              \
    X(getaddrinfo, getaddrinfo)                                                                    \
    X(getnameinfo, getnameinfo)                                                                    \
    X(pthread_mutex_lock, pthread_mutex_lock)                                                      \
    X(pthread_mutex_unlock, pthread_mutex_unlock)                                                  \
    X(pthread_cond_signal, pthread_cond_signal)

typedef struct {
#define X(name, large) __typeof__(&name) name;
    ACO_I_LIBC(X)
#undef X
} libc_t;
extern SHARED libc_t aco_i_libc;

/* Called before the first task of a runtime starts; NULL: there are no hooks. */
extern SHARED void (*aco_i_check_hooks)(void);

/* Where hooks have the queues of those who wait for locks of the program, with the lock in `item`
 * of each node; and who has a mutex, which may be a copy: the last 30 bits of the task's id, or 0
 * if none has. All 0 without hooks. */
typedef struct {
    const void *queues;
    size_t sz;
    uint32_t (*owner_of)(const pthread_mutex_t *mutex);
} locks_of_hooks_t;
extern SHARED locks_of_hooks_t aco_i_locks_of_hooks;
#define ACO_I_OWNER_BITS ((UINT32_C(1) << 30) - 1)

/* ==== Locks and queues ======================================================================= */

/* Whether the process has no other thread. Locked instructions are most of what a short call costs,
 * and are left out then. What signal handlers change needs them all the same. */
static inline int is_alone(void)
{
#ifdef HAS_SINGLE_THREADED
    return __libc_single_threaded;
#else
    return 0;
#endif
}

/* 64 bits for atomic operations, which i386 aligns to four bytes otherwise. */
typedef uint64_t __attribute__((aligned(8))) atomic_uint64_t;

/* Adds to a count that other threads change, but no signal handler. */
static inline uint64_t add_to(atomic_uint64_t *ct, uint64_t added)
{
    if (is_alone()) {
        __atomic_store_n(ct, *ct + added, __ATOMIC_RELAXED);
        return *ct;
    }
    return __atomic_add_fetch(ct, added, __ATOMIC_SEQ_CST);
}

/* Locks are held for a few instructions, and never across a wait. */
typedef aco_i_lock_t lock_t;
SHARED void aco_i_lock_slowly(lock_t *lock);
/* Tries for some ms, for callers that go on in any case. Whether it has the lock. */
HIDDEN int aco_i_try_to_lock(lock_t *lock);

/* Whether the caller has the lock now. */
static inline __attribute__((always_inline)) int lock_at_once(lock_t *lock)
{
    if (is_alone() && !lock->is_held) {
        __atomic_store_n(&lock->is_held, 1, __ATOMIC_RELAXED);
        return 1;
    }
    return !__atomic_exchange_n(&lock->is_held, 1, __ATOMIC_ACQUIRE);
}

static inline void lock(lock_t *lock)
{
    if (!lock_at_once(lock)) {
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
    union {
        void *item;        /* of a channel: the item, or where it goes */
        uintptr_t lost_at; /* of a lock: when its task first lost it to others; 0: it has not */
    };
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

static inline void enqueue_first(queue_t *queue, node_t *node)
{
    node->queue = queue;
    node->next = queue->first;
    node->prev = NULL;
    *(queue->first != NULL ? &queue->first->prev : &queue->last) = node;
    queue->first = node;
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
    WAIT_CLOSED, /* what it waited for was closed */
    WAIT_DOUBTED /* what is known of that must be asked again */
} outcome_t;

typedef enum __attribute__((packed)) {
    TASK_FREE,
    TASK_NEW,
    TASK_READY,
    TASK_RUNNING,
    TASK_WAITING,
    TASK_ENDED,
    TASK_IN_CHILD /* after it has called fork(); it has no loop then */
} state_t;

/* How the coroutine of a task ends. */
typedef enum __attribute__((packed)) {
    EXIT_EARLY,   /* by aco_exit(): its function does not return */
    EXIT_MISUSED, /* the same in a task of a binding, whose function must */
    EXIT_AT_END
} exit_t;

/* Why a task waits, for people. */
typedef enum __attribute__((packed)) {
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
    FOR_SELECT,
    FOR_INPUT,
    FOR_OUTPUT,
    FOR_POLL,
    FOR_HELPER,
    FOR_NAME,
    FOR_PROCESS,
    FOR_RESUME,  /* aco_i_resume() of it */
    FOR_RESUMED, /* the task that it resumed; no wait is open */
    CT_REASONS
} reason_t;

struct aco_task_s {
    aco_t *co;        /* NULL before its start, and of a thread */
    aco_t *suspended; /* where it goes on: `co`, or a coroutine that it resumed */
    aco_task_t *next; /* in a ready queue, an inbox or a list of free ones */
    loop_t *loop;     /* NULL: of a thread, or of a task that any thread may start */
    runtime_t *runtime;
    int wait;      /* outcome_t; atomic */
    int error;     /* errno, while it does not run */
    int is_woken;  /* of a thread: a futex; atomic. Of a task: its wake is in a trace */
    state_t state; /* of its loop's thread */
    reason_t reason;
    char shares_stack;
    char is_joinable;
    char is_cancelled; /* atomic */
    char has_token;    /* atomic: aco_unpark() came before aco_park() */
    char is_unhooked;  /* hooks leave its calls to libc */
    char starts_later; /* it has a timer before it has a stack */
    int ct_shields;
    int64_t deadline; /* of a thread, 0: none */
    uint32_t timer;   /* place in the heap; 0: none is set */
    int fd;           /* a descriptor that it waits for */
    union {
        struct {
            node_t node;
            size_t selected; /* `kind` of the node by which a channel ended its wait */
            int64_t since;   /* when its wait began */
        };
        char storage[ACO_I_STORAGE_SZ]; /* while it has no wait: see aco_bindings.h */
    };
    void *(*fn)(void *);
    void *arg; /* and its result */
    const char *name;
    size_t stack_sz;    /* bytes; 0: the pool's */
    atomic_uint64_t id; /* of a thread: 0 until it takes a lock */
    aco_task_t *joiner;
    aco_i_watch_t *watches;
    void (*discard)(void *storage, void *result); /* of a task that was detached */
    char has_ended;
    char is_detached;
    lock_t lock;         /* of what stands between `joiner` and here */
    char shields_groups; /* that it made in an aco_shielded */
    uint16_t ct_locals;
    signed char lookup_error; /* EAI_ of its last aco_dial() or aco_listen(); 0: none */
    exit_t exit;
    aco_group_t *group; /* that it belongs to */
    aco_task_t *group_next, *group_prev;
    aco_group_t *groups; /* that it made */
    void **locals;
};

/* ==== Loops ================================================================================== */

/* Durations: ct[i] of those below ACO_I_SHORTEST << i ns, and not of ct[i - 1]; the last one has all
 * that are longer. */
#define ACO_I_SHORTEST 1024
#define CT_DURATIONS 24
typedef struct {
    uint64_t ct[CT_DURATIONS + 1];
    uint64_t sum; /* ns */
} durations_t;

static inline void count_duration(durations_t *durations, uint64_t ns)
{
    int i = 63 - __builtin_clzll(ns / (ACO_I_SHORTEST / 2) | 1);
    durations->ct[i < CT_DURATIONS ? i : CT_DURATIONS]++;
    durations->sum += ns;
}

/* When the wait of a task ends. The time is not in the task, since those that the heap compares lie
 * side by side so. */
typedef struct {
    int64_t when;
    aco_task_t *task;
} aco_i_timer_t;

/* What the watchdog has seen at its last tick. */
typedef struct {
    const aco_task_t *task;
    uint64_t ct_switches;
    int64_t processor_time, at;
    int64_t kept;  /* ns for which the task has kept its thread so far */
    int64_t slept; /* of these, asleep in system calls */
    int is_asleep; /* the thread, in a system call */
} watched_t;

/* The exceptions that a thread is handling, in libstdc++ and libc++abi. */
typedef struct {
    void *caught;
    unsigned ct_uncaught;
#ifdef ACO_ARCH_ARM
    void *propagating; /* those whose cleanups run */
#endif
} handling_t;

struct loop_s {
    aco_task_t *running; /* NULL: the loop itself runs */
    aco_task_t *first_ready, *last_ready;
    aco_task_t *first_starved, *last_starved; /* to start when there is a stack */
    int64_t retry_at;                         /* when the first of them tries again */
    unsigned switches_left; /* until the loop looks at what has happened outside */
    aco_task_t *resumed;    /* by the running task, which has switched to the loop for that */
    aco_task_t *resumers;   /* tasks to go on when those that they resumed wait, the last first */
    int is_asleep;          /* atomic: who sets it to 0 writes to event_fd */
    aco_task_t *inbox;      /* atomic: tasks made ready by other threads, the last one first */
    int *error;             /* errno of its thread */
    handling_t *handling;   /* of its thread; NULL: a program without C++ */
    int64_t now;            /* at the last look */
    aco_t *main_co;
    runtime_t *runtime;
    aco_stack_pool_t *pool;
    aco_t *spare_co; /* that a task has left, suspended in aco_i_end_in_place(); NULL: none */
#ifndef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
    void *control_words; /* of new coroutines */
#endif
    aco_share_stack_t *share_stack; /* NULL before the first task that shares it */
    aco_task_t *free_tasks;
    size_t ct_free_tasks;
    size_t ct_tasks;       /* that have started here and not ended */
    size_t ct_later;       /* that have a timer for their start */
    aco_i_timer_t *timers; /* a heap by `when`, the first one in [1] */
    size_t ct_timers, timers_sz;
    int epoll_fd, event_fd;
    int timer_fd;        /* < 0: the loop is not embedded in another one */
    int (*at_end)(void); /* of its thread; NULL: its tasks must have ended; see aco_i_own_loop() */
    int has_descriptors; /* that its epoll_fd watches, or once did */
    struct aco_i_fd_s *trusted; /* those of which waits rely on what the kernel said before */
    int64_t trusted_until;
    uint32_t random; /* not 0 */
    int index;       /* in its runtime */
    int error_at_start;
    pthread_t thread;
    int tid;         /* of its thread, for tgkill() */
    clockid_t clock; /* of its thread's processor time */
    watched_t watched;
    void *alt_stack; /* for handlers of its thread; NULL: it has another one */
    stack_t former_alt_stack;
    uint64_t ct_started, ct_switches, ct_wakes, ct_polls, ct_offloads;
    int64_t trim_at; /* when idle stacks are given back; NO_DEADLINE: there are none */
    uint64_t ct_tended, ct_at_trim; /* see aco_i_tend_stacks() */
    int64_t turn_began;             /* 0: no task has run since the last look */
    aco_task_t *sampled;            /* a ready task, whose delay is to be counted; NULL: none */
    int64_t sampled_at;             /* when it, or the last one, was chosen */
    int64_t seen_at;                /* turns from then on go by run_seen() */
    durations_t turns, delays;
    trace_t *trace;     /* NULL: it is not traced */
    profile_t *profile; /* NULL: none is made */
};

/* Each kind has a pool of helper threads. */
typedef enum {
    HELPERS_FOR_FILES,
    HELPERS_FOR_NAMES,
    HELPERS_FOR_PROCESSES,
    HELPERS_FOR_LONG, /* as many as there are jobs, which may wait for one another */
    CT_HELPERS_KINDS
} helpers_kind_t;

typedef struct helpers_s helpers_t;

struct runtime_s {
    loop_t *loops;
    int ct_loops;
    size_t stack_sz;
    unsigned pool_flags;
    atomic_uint64_t ct_tasks; /* not ended */
    unsigned ct_touching; /* atomic: other threads that may use it after its last task has ended */
    lock_t lock;          /* of what follows, and of its groups */
    aco_task_t *free_tasks;
    struct chunk_s *chunks;
    aco_group_t *orphans;                 /* groups whose makers have ended */
    aco_task_t *first_any, *last_any;     /* may start on any thread; first_any is atomic, too */
    helpers_t *helpers[CT_HELPERS_KINDS]; /* NULL: not needed so far */
    int most_helpers[CT_HELPERS_KINDS];
    runtime_t *next;  /* of the process */
    int is_of_parent; /* in a child after fork(): none of its tasks runs */
};

extern SHARED __thread loop_t *aco_i_loop; /* that runs on this thread */

/* Keeps a runtime, one of whose tasks the caller has claimed or is to join, until it is untouched. */
static inline void aco_i_touch(runtime_t *runtime)
{
    __atomic_add_fetch(&runtime->ct_touching, 1, __ATOMIC_SEQ_CST);
}

static inline void aco_i_untouch(runtime_t *runtime)
{
    __atomic_sub_fetch(&runtime->ct_touching, 1, __ATOMIC_RELEASE);
}

/* The stress build moves all frames. */
#ifdef ACO_CONFIG_STRESS
#define IS_STRESS 1
#else
#define IS_STRESS 0
#endif

/* Whether any frame of the running task may be elsewhere while it waits. */
static inline int has_moved_frames(const aco_task_t *self)
{
    return self->loop != NULL && (self->shares_stack || IS_STRESS || aco_get_co() != self->co);
}

/* Whether that is so of the frame that `ptr` points into. */
static inline int is_moved(const aco_task_t *self, const void *ptr)
{
    const aco_t *co = has_moved_frames(self) ? aco_get_co() : NULL;
    for (; co != NULL && co->share_stack != NULL; co = co->main_co) {
        if ((uintptr_t)ptr - (uintptr_t)co->share_stack->ptr < co->share_stack->sz) {
            return 1;
        }
    }
    return 0;
}

/* ---- timer.c ---- */

/* Makes sure that `ct` timers can be set in a loop; 0, or -1 with ENOMEM. */
HIDDEN int aco_i_reserve_timers(loop_t *loop, size_t ct);
/* Ends the open wait of `task` by WAIT_DEADLINE once `when` has passed. */
HIDDEN void aco_i_set_timer(aco_task_t *task, int64_t when);
HIDDEN void aco_i_clear_timer(aco_task_t *task);
/* Ends the waits whose timers are due, in their order. */
HIDDEN void aco_i_expire_timers(loop_t *loop);

/* ---- loop.c ---- */

/* Stands for a thread outside of tasks. */
extern SHARED __thread aco_task_t aco_i_thread_task;
/* The running task, or what stands for the thread outside of one. */
static inline aco_task_t *aco_i_self(void)
{
    loop_t *loop = aco_i_loop;
    return loop != NULL && loop->running != NULL ? loop->running : &aco_i_thread_task;
}
/* Opens the wait of the running task. */
static inline void aco_i_open_wait(aco_task_t *task, reason_t reason)
{
    int wait = (reason == FOR_PARK ? WAIT_PARKED : WAIT_OPEN) + (task->ct_shields != 0);
    task->reason = reason;
    task->is_woken = 0;
    if (is_alone()) {
        __atomic_store_n(&task->wait, wait, __ATOMIC_RELAXED);
        __atomic_signal_fence(__ATOMIC_SEQ_CST); /* a handler's aco_unpark() */
    } else {
        __atomic_store_n(&task->wait, wait, __ATOMIC_SEQ_CST); /* before is_cancelled is read */
    }
}
/* Closes it again, unless something has claimed it: then it must be waited for. Whether it did. */
SHARED int aco_i_close_wait(aco_task_t *task);
/* Waits until it has ended. */
SHARED outcome_t aco_i_wait(aco_task_t *task);
/* Claims an open wait; 0: something else has, or there is none. The caller knows that it is the
 * wait which it means: it holds the lock of the queue that the task is in, or is on the task's
 * thread. */
SHARED int aco_i_claim(aco_task_t *task, outcome_t outcome);
/* Makes a task ready whose wait the caller has claimed. */
SHARED void aco_i_make_ready(aco_task_t *task);
/* The same for signal handlers, too. */
SHARED void aco_i_make_ready_by_inbox(aco_task_t *task);
/* The same, but until a point in time at most: WAIT_NONE if that has come. */
SHARED outcome_t aco_i_wait_until(aco_task_t *task, int64_t until);
/* 0 for WAIT_EVENT, or else -1 with errno. */
SHARED int aco_i_result(outcome_t outcome);
/* Runs tasks until the runtime has none. */
HIDDEN void aco_i_run_loop(loop_t *loop);
/* A turn: looks at what has happened, and waits for `most` ns at most (< 0: for ever) if no task is
 * ready; then runs some that are. */
HIDDEN void aco_i_run_turn(loop_t *loop, int64_t most);
/* For the coroutine of a task whose function has returned: ends that, and returns when the
 * coroutine is another task's; or does not return. */
HIDDEN void aco_i_end_in_place(loop_t *loop, aco_task_t *task);
/* Runs a suspended task, which is in no queue, at once, and returns when that is suspended again.
 * The caller is a task, or on the thread's own stack. */
HIDDEN void aco_i_run_now(loop_t *loop, aco_task_t *task);
/* When the loop has something to do by itself; NO_DEADLINE: never. */
HIDDEN int64_t aco_i_next_time(const loop_t *loop);
/* Takes a task that is ready, or will be in a moment, from the queue that it is in. */
HIDDEN void aco_i_take_ready(loop_t *loop, aco_task_t *task);
/* What epoll reports if a loop was woken, and if its timerfd expired. */
#define ACO_I_INBOX UINT64_MAX
#define ACO_I_TIMER (UINT64_MAX - 1)
/* Has a loop look at its inbox and at tasks that any thread may start. */
HIDDEN void aco_i_wake_loop(loop_t *loop);
SHARED int64_t aco_i_clock(void);
/* That of the calling thread. */
HIDDEN handling_t *aco_i_handling(void);
/* Of `ns` from now, without overflow. */
SHARED int64_t aco_i_after(int64_t ns);

/* ---- poll.c ---- */

typedef struct aco_i_fd_s fd_t;

/* How often a number was closed, and how many events it had. */
typedef struct {
    uint32_t ct_closed, ct_events;
} moment_t;

/* The entry of a descriptor; NULL with EBADF or ENOMEM. */
SHARED fd_t *aco_i_fd(int fd);
/* Is taken before a call is tried. */
SHARED moment_t aco_i_moment(const fd_t *entry);
/* Waits until something that matters for `events` (EPOLLIN or EPOLLOUT) has happened since `since`,
 * and returns 0: the caller tries again; or 1: what aco_i_patience() said may be wrong, too. -1
 * with EBADF if the descriptor was closed, ETIMEDOUT or ECANCELED; EAGAIN if `until` has come;
 * EPERM if it never has to be waited for; ENOMEM or ENOSPC. In a task. */
SHARED int aco_i_wait_for(int fd, fd_t *entry, int events, moment_t since, int64_t until);
/* poll() in a task, until a point in time. */
SHARED int aco_i_poll(struct pollfd *fds, nfds_t ct, int64_t until);
/* Takes a task that won't go on, and whose wait was claimed, from all queues of descriptors. */
HIDDEN void aco_i_leave_descriptors(aco_task_t *task);
/* An event of a descriptor, as epoll reports it. */
HIDDEN void aco_i_happened(uint64_t data, uint32_t events);
/* Says that a number is new, and with `is_ours` that only aco_close() will close it. */
HIDDEN void aco_i_own(int fd, int is_tcp, int is_ours);
/* Whether anything was noted of a number, so that aco_close() has to close it. */
SHARED int aco_i_is_known(int fd);
/* Calls `fn(arg)`, which closes a number; before that, the waits for it end with EBADF. */
SHARED int aco_i_close_by(int fd, int (*fn)(void *arg), void *arg);
/* For how long calls may wait for a descriptor, in ns: what the kernel would do. */
SHARED int64_t aco_i_patience(int fd, fd_t *entry, int events);
/* Hooks see it when the program closes a number or changes O_NONBLOCK or a timeout; atomic. */
extern SHARED int aco_i_sees_changes;
/* They call this after O_NONBLOCK or a timeout may have changed; how often for an entry. */
SHARED void aco_i_tell_change(int fd);
HIDDEN uint32_t aco_i_ct_changes(const fd_t *entry);
/* Has waits that rely on what the kernel said ask again. */
HIDDEN void aco_i_end_trust(loop_t *loop);
/* That of a blocking descriptor without timeouts, for compat/; atomic. */
extern SHARED int64_t aco_i_default_patience;
/* A TCP connection of which no event was seen but those of data. */
HIDDEN int aco_i_is_simple(const fd_t *entry);
/* After a read from one that was shorter than asked for, at a moment: there is nothing to be read
 * until the next event. */
HIDDEN void aco_i_set_drained(fd_t *entry, moment_t moment);
HIDDEN int aco_i_is_drained(const fd_t *entry);
/* Whether a shutdown was seen; perhaps that of another file which had the number. */
HIDDEN int aco_i_has_hung_up(const fd_t *entry);
HIDDEN void aco_i_set_no_socket(fd_t *entry, int is_no_socket);
HIDDEN int aco_i_is_no_socket(const fd_t *entry);
/* For two system calls that must not be parted by another task's. */
SHARED void aco_i_lock_fd(fd_t *entry);
SHARED void aco_i_unlock_fd(fd_t *entry);
/* In a child after fork(): what was noted of descriptors is the parent's. */
HIDDEN void aco_i_forget_descriptors(void);
/* Leaves all descriptors to other loops: of a loop that ends, or may not run for long. */
HIDDEN void aco_i_forget_loop(loop_t *loop);

/* ---- io.c ---- */

/* As aco_accept4(); `is_ours` as in aco_i_own(). */
SHARED int aco_i_accept(int fd, struct sockaddr *addr, socklen_t *addr_sz, int flags, int is_ours);

/* ---- task.c ---- */

/* A number that no other task has or had, nor a thread; its low word is not 0. */
HIDDEN uint64_t aco_i_new_id(void);
/* Makes a task as aco_i_spawn_in() does; with NULL for `place`, `fn` gets `arg`. NULL with errno. */
HIDDEN aco_task_t *aco_i_make(const aco_task_options_t *options, void *(*fn)(void *),
                              void (*place)(void *storage, void *arg), void *arg, int is_joinable);
/* Waits for the end of a task that remains to be joined. */
HIDDEN int aco_i_wait_for_end(aco_task_t *task, aco_task_t *self);
HIDDEN void aco_i_run_destructors(aco_task_t *task);
/* In a child, the task that has called fork(), and goes on as this thread; else NULL. */
extern HIDDEN __thread aco_task_t *aco_i_forked_task;
/* A task in no loop; NULL with ENOMEM. */
HIDDEN aco_task_t *aco_i_new_task(loop_t *loop, void *(*fn)(void *), void *arg);
HIDDEN void aco_i_free_task(aco_task_t *task);
/* Gives a task its coroutine, on `stack` if that is not NULL and it shares its stack; 0, or -1 with
 * ENOMEM. */
HIDDEN int aco_i_start(loop_t *loop, aco_task_t *task, aco_share_stack_t *stack);
/* Drops the frames of a suspended task, so that it begins anew. */
HIDDEN void aco_i_reset(aco_task_t *task);
/* After aco_exit() in a task: has it begin anew, to do what is left to do in it. */
HIDDEN void aco_i_end_early(loop_t *loop, aco_task_t *task);
/* What is left to do after the last switch from a task. */
HIDDEN void aco_i_reap(loop_t *loop, aco_task_t *task);
/* Gives the memory of idle stacks back if they have been idle for long; is called before the loop
 * sleeps, and at loop->trim_at. */
HIDDEN void aco_i_tend_stacks(loop_t *loop);
HIDDEN void aco_i_free_chunks(runtime_t *runtime);
/* Calls `fn` for each task that has not ended, while they go on. In signal handlers, too. */
HIDDEN void aco_i_each_task(runtime_t *runtime, void (*fn)(const aco_task_t *, void *arg),
                            void *arg);
/* Calls `fn` for each task that was not joined. All tasks of the runtime have ended. */
HIDDEN void aco_i_each_unjoined(const runtime_t *runtime, void (*fn)(const aco_task_t *, void *arg),
                                void *arg);
/* Whether `ptr` is in frames of the running task that are moved while it waits, since others use
 * their stack. */
HIDDEN int aco_i_is_lent(const aco_task_t *self, const void *ptr);
/* Ends the process with a message of the running task. */
SHARED ACO_NORETURN void aco_i_misuse_of(const char *call, const char *rule);

/* Does so unless there is what the call needs. */
static inline void need(const void *argument, const char *call, const char *rule)
{
    if (aco_unlikely(argument == NULL)) {
        aco_i_misuse_of(call, rule);
    }
}

/* Does so if another task or thread is to get an argument that is in frames which are moved. */
static inline void check_argument(const char *call, const void *arg)
{
    const aco_task_t *self = aco_i_self();
    if (aco_unlikely(has_moved_frames(self)) && aco_i_is_lent(self, arg)) {
        aco_i_misuse_of(call,
                        "the argument lies on a stack that others use while the task waits: "
                        "pass memory from the heap");
    }
}

/* ---- run.c ---- */
/* How often this process, and those that it is a child of, are the child of a fork(). */
extern HIDDEN unsigned aco_i_ct_forks;
/* A runtime whose first loop, the caller's, may run; NULL with errno. */
HIDDEN runtime_t *aco_i_begin_runtime(const aco_run_options_t *options);
HIDDEN void aco_i_end_runtime(runtime_t *runtime);
/* Has children forget what is the parent's; 0, or -1 with errno. */
HIDDEN int aco_i_watch_fork(void);
/* Calls `fn` for each, and for one that stands for all that have ended. */
HIDDEN void aco_i_each_runtime(void (*fn)(runtime_t *runtime, void *arg), void *arg);
/* The runtimes there are, which stay until they are untouched; of these, `ct_left_out` are missing
 * for lack of memory. In signal handlers, too. */
typedef struct {
    runtime_t **runtimes;
    size_t ct, ct_left_out;
    size_t mapped_sz; /* bytes; 0: they are in `few` */
    runtime_t *few[16];
} aco_i_touched_t;
HIDDEN void aco_i_touch_all(aco_i_touched_t *touched);
HIDDEN void aco_i_untouch_all(aco_i_touched_t *touched);

/* ---- embed.c ---- */

/*
 * The caller's loop, or a new one; NULL with errno. With `at_end`, the thread itself counts as a
 * task, so that the loop waits while there is no other, and at_end() is called when the thread
 * ends, to drop the tasks that are left; it returns how many it could not.
 */
SHARED loop_t *aco_i_own_loop(int (*at_end)(void));
/* Runs turns of a loop that is embedded, and calls `fn`, unless NULL, after each, until that
 * returns -1. */
SHARED void aco_i_run_turns(loop_t *loop, int (*fn)(void *), void *arg);

/* ---- resume.c ---- */

/* Suspends the running task until aco_i_resume(), and returns 1; 0 if `until` has come before. */
SHARED int aco_i_wait_for_resume(int64_t until);
/* A task of the caller's thread that waits for that before it begins. It has a stack of `stack_sz`
 * bytes at least, or shares `stack`, if that is not NULL. NULL with ENOMEM. */
SHARED aco_task_t *aco_i_new_suspended(void *(*fn)(void *), void *arg, size_t stack_sz,
                                       aco_share_stack_t *stack);
/*
 * Runs a suspended task at once, and returns when it waits. If it was waiting for a descriptor or a
 * time, that is as if its time were over. If it waits for a lock or similar, nothing happens. These
 * three abort, naming `call`, if it is of another thread, runs, or has resumed the caller.
 */
SHARED void aco_i_resume(const char *call, aco_task_t *task);
/* Lets it begin anew when it is resumed next, or frees it. Its frames are dropped. -1: it waits for
 * a lock or similar, and nothing has happened. */
SHARED int aco_i_restart(const char *call, aco_task_t *task);
SHARED int aco_i_drop(const char *call, aco_task_t *task);

/* ---- sync.c ---- */

/* The first of a queue whose wait can be claimed, taken from the queue; NULL if there is none. */
SHARED node_t *aco_i_claim_first(queue_t *queue, outcome_t outcome);
/* `kind` of those who wait for an rwlock; GIVEN: by an unlock. */
enum { READER, WRITER, GIVEN };

/* ---- group.c ---- */
/* The task that waits for the end of the group's, which may be gone by now; NULL: none does. */
HIDDEN aco_task_t *aco_i_joiner_of(const aco_group_t *group);
HIDDEN int aco_i_enter_group(aco_group_t *group, aco_task_t *task);
HIDDEN void aco_i_leave_group(aco_task_t *task);
/* At the end of the outermost aco_shielded of a task with shields_groups: its cancelling reaches
 * the groups that were made there. */
HIDDEN void aco_i_unshield_groups(aco_task_t *task);
/* Makes the groups that the task made orphans, before the task ends. */
HIDDEN void aco_i_abandon_groups(aco_task_t *task);
/* Frees the groups of a runtime that has no tasks, and returns how many there were. */
HIDDEN size_t aco_i_free_groups(runtime_t *runtime);

/* ---- offload.c ---- */

/*
 * Runs `fn(arg)` on a helper thread while the running task waits; at once outside of a task, and
 * where no helper can be had. WAIT_EVENT: `*result` and errno are what it has left.
 * Otherwise the task was cancelled or its deadline has passed before a helper began; or, with
 * `discard`, afterwards: then `fn` returns what it got, and discard() is called with that when it
 * does, or at once if it won't be called.
 */
SHARED outcome_t aco_i_offload(helpers_kind_t kind, void *(*fn)(void *), void *arg,
                               void (*discard)(void *), void **result);
/* Ends the helpers of a runtime that has no tasks. */
HIDDEN void aco_i_end_helpers(runtime_t *runtime);
/* How many of them have nothing to do, roughly. */
HIDDEN size_t aco_i_ct_idle_helpers(const runtime_t *runtime);

/* ---- process.c ---- */

/* Until waitid() or waitpid() with the same arguments has something to say, in a task; 0, or -1
 * with errno. */
SHARED int aco_i_wait_for_children(idtype_t type, id_t id, int options);
SHARED int aco_i_wait_for_child(pid_t pid, int options);
/* ---- unwind.c ---- */

/* A part of the program: the program itself, or a shared library. */
typedef struct {
    uintptr_t low, high, base;
    const char *path;
    const unsigned char *frames; /* .eh_frame_hdr */
} aco_i_module_t;

/* The bytes from address `low` on, which are at `copy`. */
typedef struct {
    uintptr_t low;
    size_t sz;
    const char *copy;
} aco_i_stack_t;

/* `link` is the return address of processors that have it in a register. */
typedef struct {
    uintptr_t pc, sp, bp, link;
} aco_i_registers_t;

/* Finds the modules of the process, for the functions below; not in signal handlers. */
HIDDEN void aco_i_find_modules(void);
/* The module with an address; NULL if there is none. */
HIDDEN const aco_i_module_t *aco_i_module_of(uintptr_t pc);
/* The addresses of the frames from the innermost on, each in the instruction that is executed;
 * `most` at most. Returns their number; `is_whole`: the last one has no caller. */
HIDDEN int aco_i_unwind(const aco_i_registers_t *from, const aco_i_stack_t *stack, uintptr_t *pcs,
                        int most, int *is_whole);

/* Whether the module with an address has any call-frame information that can be found. */
HIDDEN int aco_i_has_frames(uintptr_t pc);
/* Where the function begins that has an address; 0 if there is none. */
HIDDEN uintptr_t aco_i_function_at(uintptr_t pc);

/* ---- text.c ---- */

#define ACO_I_NAME_SZ 64 /* bytes of a task's name that are shown */

/* Text on its way to a descriptor, by write(2) alone, or to a stream. */
typedef struct {
    FILE *stream; /* NULL: to `fd` */
    int fd;
    int error; /* errno of a write that has failed; nothing is written after that */
    size_t sz;
    char bytes[512];
} aco_i_text_t;

HIDDEN void aco_i_put(aco_i_text_t *text, const char *string);
HIDDEN void aco_i_put_some(aco_i_text_t *text, const char *bytes, size_t sz);
/* Copies a name of at most `sz` bytes so that it can't end its quotes or its line: quotes,
 * backslashes and control characters are escaped. There is room for 4 * sz + 1. Returns its
 * length. */
HIDDEN size_t aco_i_escape(char *to, const char *bytes, size_t sz);
HIDDEN void aco_i_put_number(aco_i_text_t *text, uint64_t number, unsigned base);
/* A duration in seconds, with three decimals; 0 for one below, as clocks differ a little. */
HIDDEN void aco_i_put_time(aco_i_text_t *text, int64_t ns);
HIDDEN void aco_i_flush(aco_i_text_t *text);

/* ---- symbols.c ---- */

/* Where a section of a file is to be loaded, counted from where the file is; 0 if there is none. */
HIDDEN int aco_i_find_section(const char *path, const char *name, uintptr_t *address, size_t *sz);
/* Puts "function+0x12 (file+0x1234)" of an address. Reads the symbols of the file. */
HIDDEN void aco_i_put_place(aco_i_text_t *text, uintptr_t pc);
/* Puts the name of a function alone; if it has none, where it is: "(file+0x1234)". */
HIDDEN void aco_i_put_function(aco_i_text_t *text, uintptr_t address);
/* Its name, until symbols are read again; NULL if it has none. */
HIDDEN const char *aco_i_function_name(uintptr_t address);
/* Whether the name of its function begins with `prefix`. */
HIDDEN int aco_i_is_function(uintptr_t pc, const char *prefix);
/* Before and after the places of one listing, which one thread makes at a time. */
HIDDEN void aco_i_begin_places(void);
HIDDEN void aco_i_end_places(void);
/* Begins one before the process ends, which does not wait for another listing for long. */
HIDDEN void aco_i_begin_last_places(void);
/* In a child after fork(), which may have come in the middle of a listing. */
HIDDEN void aco_i_forget_places(void);

/* ---- places.c ---- */

#define ACO_I_MOST_FRAMES 24
typedef struct {
    int ct;
    uintptr_t pcs[ACO_I_MOST_FRAMES];
    size_t stack_use; /* bytes of the task's own stack; 0: not known */
} aco_i_place_t;

/* A walk up the stacks of a task; stacks are copied to `copy`, and read there. */
typedef struct {
    uintptr_t *pcs;
    int most, ct;
    int is_whole;     /* as far as is known, none is missing */
    size_t stack_use; /* bytes of the task's own stack; 0: not known */
    char *copy;
    size_t copy_sz;
} aco_i_walk_t;

/* Sets `registers` to those of the function that contains it. */
#if defined(__x86_64__)
#define ACO_I_HERE(registers)                                                                      \
    __asm__ volatile("leaq 0(%%rip), %0\n\tmovq %%rsp, %1\n\tmovq %%rbp, %2"                       \
                     : "=&r"((registers).pc), "=&r"((registers).sp), "=&r"((registers).bp))
#elif defined(__i386__)
#define ACO_I_HERE(registers)                                                                      \
    __asm__ volatile("call 1f\n1:\tpopl %0\n\tmovl %%esp, %1\n\tmovl %%ebp, %2"                    \
                     : "=&r"((registers).pc), "=&r"((registers).sp), "=&r"((registers).bp))
#elif defined(__aarch64__)
#define ACO_I_HERE(registers)                                                                      \
    __asm__ volatile("adr %0, .\n\tmov %1, sp\n\tmov %2, x29"                                      \
                     : "=&r"((registers).pc), "=&r"((registers).sp), "=&r"((registers).bp))
#elif defined(__riscv)
#define ACO_I_HERE(registers)                                                                      \
    __asm__ volatile("auipc %0, 0\n\tmv %1, sp\n\tmv %2, s0"                                       \
                     : "=&r"((registers).pc), "=&r"((registers).sp), "=&r"((registers).bp))
#else
#define ACO_I_HERE(registers) ((registers).sp = (uintptr_t)__builtin_frame_address(0))
#endif

/* Those of what a signal has interrupted. */
HIDDEN aco_i_registers_t aco_i_interrupted(const void *ucontext);
/* Copies memory that need not be there any more; returns the bytes copied from the start on. */
HIDDEN size_t aco_i_read_memory(void *to, const void *from, size_t sz);
/* Where a task is that does not run, and was read from memory. One caller at a time. */
HIDDEN void aco_i_place_of(const aco_task_t *task, aco_i_place_t *place);
/* Where the running task of the caller's thread is, of which there are the registers. */
HIDDEN void aco_i_place_here(const aco_task_t *task, const aco_i_registers_t *registers,
                             aco_i_place_t *place);
/* The same by a walk, and also in the middle of a switch. `task` is NULL in the loop itself;
 * `low` and `top` are the bounds of the thread's own stack. */
HIDDEN void aco_i_walk_here(const aco_task_t *task, const aco_i_registers_t *registers,
                            uintptr_t low, uintptr_t top, aco_i_walk_t *walk);
/* Where a task that runs on another thread is: that is interrupted to tell. One caller at a time.
 * place->ct is 0 if it does not answer in time. */
HIDDEN void aco_i_ask_place(loop_t *loop, const aco_task_t *task, aco_i_place_t *place);

/* ---- print.c ---- */
extern HIDDEN const char *const aco_i_reason_names[CT_REASONS];
/* Prints the list of tasks, by system calls alone. `registers` are those of the caller's thread, or
 * of what its handler has interrupted. */
HIDDEN void aco_i_list_tasks(aco_i_text_t *text, const aco_i_registers_t *registers);
HIDDEN void aco_i_put_frames(aco_i_text_t *text, const aco_i_place_t *place);
/* The line of a task, which was read from memory as its place was. */
HIDDEN void aco_i_put_task(aco_i_text_t *text, const aco_task_t *task, const aco_i_place_t *place,
                           int64_t now);
/* Says which task: by its number, and by its name, or else that of its function; or that it is a
 * thread outside of tasks. */
HIDDEN void aco_i_put_title(aco_i_text_t *text, const aco_task_t *task);
/* Makes that name, escaped, from a task that is the caller's, or was read from memory; between
 * aco_i_begin_places() and aco_i_end_places(). */
#define ACO_I_LABEL_SZ (4 * ACO_I_NAME_SZ + 1) /* bytes */
HIDDEN void aco_i_label(char *label, const aco_task_t *task);

/* ---- metrics.c ---- */

/* Adds what the loops of a runtime have counted to what `sum` has. */
HIDDEN void aco_i_add_counts(loop_t *sum, const runtime_t *runtime);

/* ---- trace.c, trace_file.c ---- */

/* Has the loop of the caller's thread traced if ACO_TRACE asks for it, and no more. */
HIDDEN void aco_i_begin_trace(loop_t *loop);
HIDDEN void aco_i_end_trace(loop_t *loop);
/* Of a loop that is traced: a look has ended, before which that task was the last ready one, or
 * none; a task will run; it has run. */
HIDDEN void aco_i_trace_look(loop_t *loop, const aco_task_t *last_before);
/* In a task or on the thread of such a loop, another loop's inbox was given the task. */
HIDDEN void aco_i_trace_wake(const loop_t *loop, aco_task_t *task);
HIDDEN void aco_i_trace_begin_run(loop_t *loop, const aco_task_t *task);
/* Its name, or its function, has changed since. */
HIDDEN void aco_i_trace_name(loop_t *loop, const aco_task_t *task);
HIDDEN void aco_i_trace_end_run(loop_t *loop, aco_task_t *task);
/* Writes what there is, and the end of the file, if there is one. */
HIDDEN void aco_i_finish_trace(void);

/* ---- profile.c ---- */
/* Has the loop of the caller's thread sampled if ACO_PROFILE asks for it, and no more. */
HIDDEN void aco_i_begin_profile(loop_t *loop);
HIDDEN void aco_i_end_profile(loop_t *loop);
/* Writes the file for the last time, if there is one. */
HIDDEN void aco_i_finish_profile(void);

/* ---- finish.c ---- */
/* Has both done before a signal ends the process. */
HIDDEN void aco_i_finish_on_signals(void);

/* ---- watch.c ---- */
/* Tells which tasks and how many groups of a runtime that ends were not joined. */
HIDDEN void aco_i_tell_unjoined(const runtime_t *runtime, size_t ct_groups);
/* Starts the watchdog, once, if ACO_WATCHDOG asks for it. */
HIDDEN void aco_i_begin_watch(void);
/* In a child after fork(), which has no watchdog until a runtime begins. */
HIDDEN void aco_i_forget_watch(void);
HIDDEN int aco_i_is_thread_asleep(const loop_t *loop);

/* ---- knots.c, deadlocks.c ---- */
/* Whether there is a watchdog, which is to know who has an rwlock to read. */
extern HIDDEN int aco_i_is_watched;
/* A task has got an rwlock to read, or has given it back; its lock is held. */
HIDDEN void aco_i_note_reader(const aco_rwlock_t *rwlock, const aco_task_t *task);
HIDDEN void aco_i_drop_reader(const aco_rwlock_t *rwlock, const aco_task_t *task);
/* In a child after fork(), where all tasks are gone. */
HIDDEN void aco_i_forget_knots(void);
/* Tells what it finds; is called every now and then. */
HIDDEN void aco_i_look_for_knots(const aco_i_touched_t *touched, int64_t limit);

/* ---- fatal.c ---- */
/* Has overflows of tasks' stacks told before the process ends, from the first call on. */
HIDDEN void aco_i_begin_overflow_reports(void);
/* Tells of one if a signal is that, for extra/overflow, which has a handler, too. Whether it is
 * one. */
SHARED int aco_i_report_overflow(int signal, const siginfo_t *info, const void *ucontext);
/* aco_print_tasks_on() for a signal of a fault or SIGABRT; `is_fatal` says whether it is one. */
HIDDEN int aco_i_is_fatal(int signal);
HIDDEN int aco_i_list_before_end(int signal);
/* Whether something is told because the process ends. */
HIDDEN int aco_i_is_dying(void);

/* ---- report.c ---- */
/* A detached thread that gets no signals, for as long as the process runs; 0, or -1 with errno. */
HIDDEN int aco_i_start_thread(void *(*fn)(void *), void *arg);
/* How many of these there are. */
HIDDEN int aco_i_ct_own_threads(void);
/* Has lists printed on signals in a child of a process that has asked for it. */
HIDDEN void aco_i_begin_printing(void);
/* In a child after fork(): the threads are the parent's. */
HIDDEN void aco_i_forget_threads(void);
/* Has the process end by the signal now, whatever is blocked. */
HIDDEN void aco_i_die_of(int number);
/* Whether a handler may list or walk tasks on the stack that it has. */
HIDDEN int aco_i_has_room(void);
/* Gives the caller's thread a stack for handlers, which may need more than is left of a task's,
 * unless it has a large one. */
HIDDEN void aco_i_begin_alt_stack(loop_t *loop);
HIDDEN void aco_i_end_alt_stack(loop_t *loop);

/* ---- files.c ---- */

static inline size_t size_of(const struct iovec *iov, int ct)
{
    size_t sz = 0;
    for (int i = 0; i < ct; i++) {
        sz += iov[i].iov_len;
    }
    return sz;
}

/* As preadv() and pwritev() for what epoll takes for always ready; `offset` -1: that of `fd`. */
SHARED ssize_t aco_i_file_read(int fd, const struct iovec *iov, int ct, int64_t offset);
SHARED ssize_t aco_i_file_write(int fd, const struct iovec *iov, int ct, int64_t offset);

#endif
