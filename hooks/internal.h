// SPDX-License-Identifier: Apache-2.0
/*
 * What the sources of the hooks share: how a hook is defined, how it knows that it is called in a
 * task, and how it reaches libc's function.
 *
 *   hooks.c      the start: libc's functions are found, and the runtime is told of them
 *   io.c         input and output; files.c: files; poll.c: waits for several descriptors
 *   close.c      closing and what is like it; settings.c: what changes how long calls wait
 *   time.c       time and signals; time64.c: other names for times of 64 bits
 *   waiting.c    who waits for a lock and similar; mutexes.c, rwlocks.c, conditions.c, semaphores.c
 *   threads.c    joining, and calls by threads of their own; c11.c: the names of C11
 *   keys.c       values of threads
 *   names.c      name look-ups; resolver.c: their state
 *   processes.c  child processes; file_locks.c: locks of files
 */
#ifndef ACO_HOOKS_INTERNAL_H
#define ACO_HOOKS_INTERNAL_H

#undef _FORTIFY_SOURCE /* its inline functions have the names of hooks */

#include "../internal.h"

#include "aco_hooks.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

/*
 * Of the runtime, whose library is loaded when the program starts: one load, without a call. NULL
 * in a child after fork().
 */
extern __thread loop_t *aco_i_loop __attribute__((tls_model("initial-exec")));

/* Whether the caller is a task with hooks. */
static inline int is_in_task(void)
{
    const loop_t *loop = aco_i_loop;
    return __builtin_expect(loop != NULL, 0) && loop->running != NULL &&
           !loop->running->is_unhooked;
}

/* Whether the caller is a child after vfork(), which has its parent's memory but descriptors of its
 * own. */
HIDDEN int aco_i_is_in_child(void);

/* The linker keeps it under --gc-sections. By the bounds of its section alone, lld would not. */
#if defined(__has_attribute)
#if __has_attribute(retain)
#define RETAIN __attribute__((retain))
#endif
#endif
#ifndef RETAIN
#define RETAIN
#endif

/* A hook. The section "aco_hooks" is an array of them, in which hooks.c finds all. */
typedef struct {
    const char *name;
    void *hook;
    void *real; /* where the pointer to libc's function is */
} hook_t;

#define HOOK_ENTRY(name, real)                                                                     \
    static RETAIN hook_t entry_##name __attribute__((                                              \
        used, section("aco_hooks"), aligned(sizeof(void *)))) = {#name, (void *)hook_##name, real}

/* Of functions that TSan calls while it starts. */
#define EARLY __attribute__((no_sanitize_thread))

/* Points `*real` to libc's function of a name, and says whether it did. It can't if there is none,
 * and while this thread is looking for another one: then the loader or an allocator calls. */
HIDDEN int aco_i_find_real(const char *name, void *real);

/*
 * HOOK(type, name, (parameters), (arguments), otherwise) { ... }
 *
 * Defines the function `name` of libc with the body that follows. In that, real_NAME is libc's own.
 * Before this can be had, calls of it evaluate `otherwise`, with the names of the parameters; that
 * is a system call, or an error by refuse(). The C name of the hook is hook_NAME, so no declaration
 * or macro of a header matters. It is weak: where libc is linked statically, some of its functions
 * are there anyway, and the message of hooks.c is clearer than the linker's.
 */
#define HOOK(type, name, params, args, otherwise)                                                  \
    static type first_##name params;                                                               \
    static type(*real_##name) params = first_##name;                                               \
    extern SHARED __attribute__((weak)) type hook_##name params __asm__(#name);                    \
    HOOK_ENTRY(name, &real_##name);                                                                \
    static EARLY type first_##name params                                                          \
    {                                                                                              \
        return aco_i_find_real(#name, &real_##name) ? real_##name args : (type)(otherwise);        \
    }                                                                                              \
    type hook_##name params

/* The same function under another name of libc, which is the same there, too. */
#define HOOK_ALIAS(alias_name, name)                                                               \
    extern SHARED __typeof__(hook_##name) hook_##alias_name __asm__(#alias_name)                   \
        __attribute__((weak, alias(#name)));                                                       \
    HOOK_ENTRY(alias_name, NULL)

/* ==== Times ================================================================================== */

#define SECOND INT64_C(1000000000) /* ns */

static inline int is_valid_time(const struct timespec *t)
{
    return t->tv_sec >= 0 && t->tv_nsec >= 0 && t->tv_nsec < SECOND;
}

static inline int64_t ns_of(const struct timespec *t)
{
    int64_t s = t->tv_sec;
    return s >= INT64_MAX / SECOND ? INT64_MAX : s * SECOND + t->tv_nsec;
}

/* When a wait ends that may take this time: NO_DEADLINE with NULL, 0 for no time. */
static inline int64_t end_of(const struct timespec *t)
{
    return t == NULL ? NO_DEADLINE : ns_of(t) == 0 ? 0 : aco_i_after(ns_of(t));
}

static inline struct timespec left_until(int64_t until)
{
    int64_t left = until == 0 ? 0 : until - aco_i_clock();
    left = left < 0 ? 0 : left;
    return (struct timespec){(time_t)(left / SECOND), (long)(left % SECOND)};
}

static inline long refuse(int error)
{
    errno = error;
    return -1;
}

/* The other sources; each defines HOOKS_OF(its name). hooks.c refers to all, so that a linker takes
 * all objects of an archive or none. */
#define HOOKS_FILES(X)                                                                             \
    X(io)                                                                                          \
    X(files)                                                                                       \
    X(settings)                                                                                    \
    X(poll)                                                                                        \
    X(close)                                                                                       \
    X(time)                                                                                        \
    X(mutexes)                                                                                     \
    X(rwlocks)                                                                                     \
    X(conditions)                                                                                  \
    X(semaphores)                                                                                  \
    X(threads)                                                                                     \
    X(c11)                                                                                         \
    X(time64)                                                                                      \
    X(keys)                                                                                        \
    X(names)                                                                                       \
    X(resolver)                                                                                    \
    X(processes)                                                                                   \
    X(file_locks)
#define HOOKS_OF(file) HIDDEN const char aco_i_hooks_of_##file = 0
#define X(file) extern HIDDEN const char aco_i_hooks_of_##file;
HOOKS_FILES(X)
#undef X

#endif
