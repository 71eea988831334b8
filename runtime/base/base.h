// SPDX-License-Identifier: Apache-2.0
/* The basis of all folders: macros, libc's functions as the runtime calls them, locks, queues. */
#ifndef ACO_RUNTIME_BASE_H
#define ACO_RUNTIME_BASE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define _FILE_OFFSET_BITS 64

#include "aco_bindings.h"
#include "aco_stack_pool.h"

#include <errno.h>
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
/* Exported: used by libaco_hooks and libaco_compat. */
#define SHARED __attribute__((visibility("default")))
#define NO_DEADLINE INT64_MAX
#define LEAST_STACK_SZ ((size_t)16 << 10) /* bytes; the least that a program may ask for */
/* For reports only: reads other threads' data without locks; stale values are acceptable. */
#define READS_RACILY __attribute__((no_sanitize_thread))

static inline __attribute__((no_sanitize_thread)) void aco_i_set_errno(const int *error)
{
    errno = *error;
}

/* Restores errno, as it is here, when the block is left. */
#define KEEP_ERRNO()                                                                               \
    const int errno_before __attribute__((unused, cleanup(aco_i_set_errno))) = errno

typedef struct loop_s loop_t;
typedef struct runtime_s runtime_t;
typedef struct trace_s trace_t;
typedef struct profile_s profile_t;

/* ---- libc.c ---- */

/*
 * The functions of libc that the runtime calls. Hooks replace some of them in programs, and call
 * the runtime; they therefore store libc's own in this table. The second names are those for 64-bit
 * offsets, which differ where addresses have 32 bits.
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

/* Called before a runtime begins; NULL without hooks. */
extern SHARED void (*aco_i_check_hooks)(void);

/* The hooks' queues of tasks that wait for locks of the program; all 0 without hooks. `item` of
 * each node is the lock. owner_of() gives the last 30 bits of the id of the task that holds a
 * mutex, or 0 if none does; the mutex may be a copy. */
typedef struct {
    const void *queues;
    size_t sz; /* bytes */
    uint32_t (*owner_of)(const pthread_mutex_t *mutex);
} locks_of_hooks_t;

extern SHARED locks_of_hooks_t aco_i_locks_of_hooks;
#define ACO_I_OWNER_BITS ((UINT32_C(1) << 30) - 1)

/* ---- lock.c ---- */

/* Returns whether the process has no other thread. Callers then leave out locked instructions,
 * which are most of the cost of a short call. Data that signal handlers change needs them all the
 * same. */
static inline int is_alone(void)
{
#ifdef HAS_SINGLE_THREADED
    return __libc_single_threaded;
#else
    return 0;
#endif
}

/* An integer for atomic operations; i386 would align it to four bytes. */
typedef uint64_t __attribute__((aligned(8))) atomic_uint64_t;

/* Stands between a store and a load, both SEQ_CST, whose order another thread relies on. Processors
 * keep it without; emulators of arm64 on x86 (qemu-user 7.2) let the load go first. */
static inline void keep_load_behind(void)
{
#ifdef __aarch64__
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Adds to a count that other threads change, but no signal handler; returns the sum. */
static inline uint64_t add_to(atomic_uint64_t *ct, uint64_t added)
{
    if (is_alone()) {
        __atomic_store_n(ct, *ct + added, __ATOMIC_RELAXED);
        return *ct;
    }
    return __atomic_add_fetch(ct, added, __ATOMIC_SEQ_CST);
}

/* A lock is held for a few instructions, and never across a wait. */
typedef aco_i_lock_t lock_t;
SHARED void aco_i_lock_slowly(lock_t *lock);

/* Tries for some ms, and returns whether it got the lock; for callers that go on without it. */
HIDDEN int aco_i_try_to_lock(lock_t *lock);

/* Takes the lock if it is free; returns whether it did. */
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

/* ---- Queues ---- */

typedef aco_i_queue_t queue_t;

/* The entry of a task in a queue. */
typedef struct aco_i_node_s {
    struct aco_i_node_s *next, *prev;
    queue_t *queue; /* NULL: in none */
    aco_task_t *task;
    union {
        void *item;        /* a channel's item, or where it goes */
        uintptr_t lost_at; /* when its task first lost a lock to another; 0: never */
    };
    size_t kind; /* its meaning is the queue's */
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

#endif
