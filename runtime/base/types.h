// SPDX-License-Identifier: Apache-2.0
/* The structs of tasks, loops and runtimes. */
#ifndef ACO_RUNTIME_TYPES_H
#define ACO_RUNTIME_TYPES_H

#include "base/base.h"

/* The values of a task's `wait`: no wait; an open one; or, from WAIT_EVENT on, how it ended.
 * aco_unpark() ends a wait only if it is parked, cancelling only if it is not shielded. */
typedef enum {
    WAIT_NONE,
    WAIT_OPEN,
    WAIT_OPEN_SHIELDED,
    WAIT_PARKED,
    WAIT_PARKED_SHIELDED,
    WAIT_EVENT,
    WAIT_DEADLINE,
    WAIT_CANCELLED,
    WAIT_CLOSED,  /* the object that it waited for was closed */
    WAIT_RECHECK, /* the kernel must be asked about that again */
    WAIT_INTERRUPTED
} outcome_t;

typedef enum __attribute__((packed)) {
    TASK_FREE,
    TASK_NEW,
    TASK_READY,
    TASK_RUNNING,
    TASK_WAITING,
    TASK_ENDED,
    TASK_IN_CHILD, /* after it called fork(): it has no loop there */
    TASK_SPARE     /* free, in the list of its runtime; its lock is held to change that */
} state_t;

/* How the coroutine of a task ends. */
typedef enum __attribute__((packed)) {
    EXIT_EARLY,   /* by aco_exit(): its function does not return */
    EXIT_MISUSED, /* the same where a binding needs its function to return */
    EXIT_AT_END
} exit_t;

/* Why a task waits, and what lists say after "waits for". No wait is open with FOR_RESUMED. */
#define ACO_I_REASONS(X)                                                                           \
    X(FOR_NOTHING, "nothing")                                                                      \
    X(FOR_JOIN, "the end of a task")                                                               \
    X(FOR_PARK, "aco_unpark")                                                                      \
    X(FOR_SLEEP, "a time")                                                                         \
    X(FOR_GROUP, "the end of a group")                                                             \
    X(FOR_MUTEX, "a mutex")                                                                        \
    X(FOR_RWLOCK, "an rwlock")                                                                     \
    X(FOR_COND, "a condition")                                                                     \
    X(FOR_SEMAPHORE, "a semaphore")                                                                \
    X(FOR_FUTEX, "a futex")                                                                        \
    X(FOR_WAIT_GROUP, "a wait group")                                                              \
    X(FOR_SEND, "a receiver")                                                                      \
    X(FOR_RECV, "a sender")                                                                        \
    X(FOR_SELECT, "one of several channels")                                                       \
    X(FOR_INPUT, "input")                                                                          \
    X(FOR_OUTPUT, "output")                                                                        \
    X(FOR_POLL, "one of several descriptors")                                                      \
    X(FOR_HELPER, "a helper thread")                                                               \
    X(FOR_NAME, "a name look-up")                                                                  \
    X(FOR_PROCESS, "the end of a process")                                                         \
    X(FOR_FILE, "a file")                                                                          \
    X(FOR_RESUME, "being resumed")                                                                 \
    X(FOR_RESUMED, "a task that it resumed")

#define X(reason, name) reason,
typedef enum __attribute__((packed)) { ACO_I_REASONS(X) CT_REASONS } reason_t;
#undef X

struct aco_task_s {
    aco_t *co;        /* NULL before its start, and for a thread */
    aco_t *suspended; /* where it goes on: `co`, or a coroutine that it resumed */
    aco_task_t *next; /* in a ready queue, an inbox or a list of free ones */
    loop_t *loop;     /* NULL for a thread, and for a task that any thread may start */
    runtime_t *runtime;
    int wait;      /* outcome_t; atomic */
    int error;     /* errno, while it does not run */
    int is_woken;  /* a thread's futex, atomic; or, for a task, its wake is in a trace */
    state_t state; /* belongs to its loop's thread */
    reason_t reason;
    char shares_stack;
    char is_joinable;
    char is_cancelled;              /* atomic */
    char is_interrupted;            /* atomic: aco_i_on_interrupt() is to be called */
    char may_restart;               /* the wait that was interrupted last, if its call wants to */
    char has_token;                 /* atomic: aco_unpark() came before aco_park() */
    char is_unhooked;               /* hooks pass its calls on to libc */
    unsigned char starts_later : 1; /* it has a timer before it has a stack */
    unsigned char is_coroutine : 1; /* aco_i_new_suspended() has made it */
    unsigned char is_thread : 1;    /* aco_i_on_return() is called whenever it goes on */
    unsigned char ct_hopeless : 2;  /* waits in a row that failed at once; at most 3 */
    int ct_shields;
    const void *caller; /* of a hook that calls another one; NULL: a hook knows its own */
    int64_t deadline;   /* 0: a thread without one */
    uint32_t timer;     /* index in the heap; 0: none is set */
    int fd;             /* a descriptor that it waits for */
    union {
        struct {
            node_t node;
            size_t selected; /* `kind` of the node by which a channel ended its wait */
            int64_t since;   /* when its wait began */
        };
        char storage[ACO_I_STORAGE_SZ]; /* while it has no wait: see aco_bindings.h */
    };
    void *(*fn)(void *);
    void *arg; /* later its result */
    const char *name;
    size_t stack_sz;    /* bytes; 0: the pool's */
    void *memory;       /* for its stack; NULL: the runtime's */
    atomic_uint64_t id; /* 0 for a thread until it takes a lock */
    aco_task_t *joiner;
    aco_i_watch_t *watches;
    void (*discard)(aco_task_t *task, void *result); /* called after the end of a detached task */
    char has_ended;
    char is_detached;
    lock_t lock;         /* for the fields from `joiner` to here */
    char shields_groups; /* it made groups in an aco_shielded */
    uint16_t ct_locals;
    signed char lookup_error; /* EAI_ of its last aco_dial() or aco_listen(); 0: none */
    exit_t exit;
    aco_group_t *group; /* that it belongs to */
    aco_task_t *group_next, *group_prev;
    aco_group_t *groups; /* that it made */
    void **locals;
    aco_i_stop_t *stops; /* the lock of the runtime protects the list */
};

/* A histogram: ct[i] counts durations below ACO_I_SHORTEST << i ns that ct[i - 1] does not count,
 * and the last one all that are longer. */
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

/* The counts of a loop since it began. Delays are those of samples. */
typedef struct {
    uint64_t ct_started, ct_switches, ct_wakes, ct_polls, ct_offloads;
    durations_t turns, delays;
} counts_t;

/* Stacks of the sizes that tasks ask for lie in pools: class i has those of LEAST_STACK_SZ << i
 * bytes. Larger ones than the last class's have mappings of their own. */
#define CT_CLASSES 10

/* When the wait of a task ends. The time is not in the task, so that the times which the heap
 * compares lie side by side. */
typedef struct {
    int64_t when;
    aco_task_t *task;
} aco_i_timer_t;

/* A loop as the watchdog saw it at its last tick. */
typedef struct {
    const aco_task_t *task;
    uint64_t ct_switches;
    int64_t processor_time, at;
    int64_t kept;  /* ns for which the task has kept its thread so far */
    int64_t slept; /* ns of these, asleep in system calls */
    int is_asleep; /* the thread, in a system call */
} watched_t;

typedef aco_i_exceptions_t handling_t;

struct loop_s {
    aco_task_t *running; /* NULL: the loop itself runs */
    aco_task_t *first_ready, *last_ready;
    aco_task_t *first_starved, *last_starved; /* they start when there is a stack */
    int64_t retry_at;                         /* when the first of them tries again */
    unsigned switches_left; /* until the loop looks at what has happened outside */
    unsigned calls_left;    /* of the running task, until its budget is looked at */
    unsigned ct_rounds;     /* how often that was, since the switch number `rounds_of` */
    uint64_t rounds_of;
    uint64_t mask;        /* the signals that the thread blocks while no handler runs */
    char is_awaited;      /* what is no task has resumed the running one, and goes on after it */
    char knows_mask;      /* 0: `mask` is to be read at the next look */
    char must_look;       /* the turn ends whatever `switches_left` says; see end_turn() */
    aco_task_t *resumed;  /* the task that the running one resumes by way of the loop */
    aco_task_t *resumers; /* tasks that go on when those that they resumed wait, the last first */
    int is_asleep;        /* atomic; to wake the loop, set it to 0 and write to event_fd */
    aco_task_t *inbox;    /* atomic: tasks made ready by other threads, the last one first */
    int *error;           /* errno of its thread */
    handling_t *handling; /* by its thread; NULL in a program without C++ */
    int64_t now;          /* at the last look */
    aco_t *main_co;
    void (*enter)(void); /* the entry of coroutines that run tasks */
    runtime_t *runtime;
    aco_stack_pool_t *pool;
    aco_stack_pool_t *classes[CT_CLASSES]; /* of sizes that tasks ask for; NULL: not needed yet */
    aco_t *spare_co;                       /* left by a task that ended in place; NULL: none */
#ifndef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
    void *control_words; /* given to new coroutines */
#endif
    aco_share_stack_t *share_stack; /* NULL before the first task that shares it */
    aco_task_t *free_tasks;
    size_t ct_free_tasks;
    size_t ct_tasks;       /* started here and not ended */
    size_t ct_later;       /* tasks that start when a wait ends */
    size_t ct_copying;     /* tasks on share stacks, whose frames are copied */
    size_t most_copying;   /* most of them at a time since the last trim */
    aco_i_timer_t *timers; /* a heap by `when`, the first one in [1] */
    size_t ct_timers, timers_sz;
    int epoll_fd, event_fd;
    int timer_fd;                       /* < 0: the loop is not embedded in another one */
    int ring_fd;                        /* io_uring's; < 0: there is none */
    int lacks_ring;                     /* io_uring is refused, or the program has closed ring_fd */
    struct aco_i_ring_s *ring;          /* NULL: not needed so far, or refused */
    void (*take_results)(loop_t *loop); /* of the ring; NULL: no task has waited for one */
    int (*at_end)(void);                /* called when its thread ends; see aco_i_own_loop() */
    int has_descriptors;                /* its epoll_fd watches some, or did */
    struct aco_i_fd_s *cached; /* waits rely on earlier answers of the kernel about these */
    int64_t cached_until;      /* when these are to be asked for again */
    uint32_t random;           /* not 0 */
    int index;                 /* in its runtime */
    pthread_t thread;
    int tid;         /* its thread's, for tgkill() */
    clockid_t clock; /* counts its thread's processor time */
    watched_t watched;
    void *alt_stack; /* for handlers of its thread; NULL: it has another one */
    stack_t former_alt_stack;
    int64_t trim_at;                /* when idle memory is given back; NO_DEADLINE: there is none */
    uint64_t ct_tended, ct_at_trim; /* see aco_i_tend() */
    int64_t turn_began;             /* 0: no task has run since the last look */
    aco_task_t *sampled;            /* a ready task whose delay will be counted; NULL: none */
    int64_t sampled_at;             /* when it, or the last one, was chosen */
    int64_t seen_at;                /* turns from then on go through run_seen() */
    counts_t counts;
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
    atomic_uint64_t ct_tasks; /* that have not ended */
    unsigned ct_holders; /* atomic: other threads that may use it after its last task has ended */
    lock_t lock;         /* for what follows, and for its groups */
    aco_task_t *free_tasks;
    size_t ct_returned; /* to `free_tasks`, less those taken again, since the last trim; atomic */
    struct chunk_s *chunks;
    struct chunk_s *idle_chunks;          /* none of their tasks is in use or in a list */
    aco_group_t *orphans;                 /* groups whose makers have ended */
    aco_task_t *first_any, *last_any;     /* any thread may start these; first_any is atomic, too */
    helpers_t *helpers[CT_HELPERS_KINDS]; /* NULL: not needed so far */
    int most_helpers[CT_HELPERS_KINDS];
    runtime_t *next;  /* in the list of the process */
    int is_of_parent; /* in a child after fork(): none of its tasks runs */
};

typedef struct aco_i_fd_s fd_t;

/* A moment of a descriptor: how often its number was closed, and how many events it had. */
typedef struct {
    uint32_t ct_closed, ct_events;
} moment_t;

#endif
