// SPDX-License-Identifier: Apache-2.0
/*
 * Internals that the sources of the hooks share: how a hook is defined, how it knows that a task
 * calls it, and how it reaches libc's function.
 *
 *   hooks.c      the start: finds libc's functions and gives them to the runtime
 *   io.c         input and output; files.c: files; poll.c: waits for several descriptors
 *   close.c      closing and similar; settings.c: calls that change how long others wait
 *   time.c       time and signals; time64.c: other names for times of 64 bits
 *   waiting.c    queues for locks and similar; mutexes.c, rwlocks.c, conditions.c, semaphores.c
 *   threads.c    joining, and calls by threads of their own; c11.c: the names of C11
 *   keys.c       values of threads
 *   answers.c    what libraries get when their task is late or cancelled
 *   names.c      name look-ups; resolver.c: their state
 *   processes.c  child processes; file_locks.c: locks of files
 *   futex.c      futexes; queues.c: message queues and semaphores that processes share
 *   requests.c   requests that others carry out; system_calls.c: syscall()
 */
#ifndef ACO_HOOKS_INTERNAL_H
#define ACO_HOOKS_INTERNAL_H

#undef _FORTIFY_SOURCE /* its inline functions have the names of hooks */

#include "extension.h"

#include "aco_hooks.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

/*
 * The runtime's: its library is loaded when the program starts, so access is one load, without a
 * call. NULL in a child after fork().
 */
extern __thread loop_t *aco_i_loop __attribute__((tls_model("initial-exec")));

/* Whether the caller is a task with hooks. */
static inline int is_in_task(void)
{
    const loop_t *loop = aco_i_loop;
    return __builtin_expect(loop != NULL, 0) && loop->running != NULL &&
           !loop->running->is_unhooked;
}

/* Declares a scope that may be set to aco_i_enter_shielded(), and that ends with its block. */
#define SHIELD_LATER(scope)                                                                        \
    aco_i_scope_t scope __attribute__((cleanup(aco_i_leave))) = {.task = NULL}

/* The function that called a hook, in the hook's body. */
#define CALLER __builtin_return_address(0)

/* ---- answers.c ---- */

/* Whether the base name of `file` begins with one of the words in `libraries`. */
HIDDEN int aco_i_is_named(const char *libraries, const char *file);

/* Whether a call that has failed, with errno, is to be made again, shielded: its task is late, and
 * the library of `caller` wants to wait. If not, errno is the answer. The second is for calls that
 * write to a descriptor: those to files go on in any case. */
HIDDEN int aco_i_goes_on(const void *caller);
HIDDEN int aco_i_finishes(const void *caller, int fd);

/* Whether the library of `caller` wants to wait, for calls that must not be made again. */
HIDDEN int aco_i_always_waits(const void *caller);

/* Evaluates a call that fails with less than 0 and errno; if `goes_on` says so then, evaluates it
 * again. Its time limits are points in time. */
#define ANSWERED_IF(goes_on, call)                                                                 \
    __extension__({                                                                                \
        __typeof__(call) answer_to_call = (call);                                                  \
        if (__builtin_expect(answer_to_call < 0, 0) && (goes_on)) {                                \
            aco_shielded                                                                           \
            {                                                                                      \
                answer_to_call = (call);                                                           \
            }                                                                                      \
        }                                                                                          \
        answer_to_call;                                                                            \
    })
#define ANSWERED_TO(caller, call) ANSWERED_IF(aco_i_goes_on(caller), call)
#define ANSWERED(call) ANSWERED_TO(CALLER, call)
#define FINISHED(fd, call) ANSWERED_IF(aco_i_finishes(CALLER, fd), call)

/* The same for a call that must not be made again. */
#define ANSWERED_ONCE(call)                                                                        \
    __extension__({                                                                                \
        SHIELD_LATER(shield_of_call);                                                              \
        if (aco_i_always_waits(CALLER)) {                                                          \
            shield_of_call = aco_i_enter_shielded();                                               \
        }                                                                                          \
        __typeof__(call) answer_to_call = (call);                                                  \
        if (answer_to_call < 0) {                                                                  \
            aco_i_goes_on(CALLER);                                                                 \
        }                                                                                          \
        answer_to_call;                                                                            \
    })

/* Evaluates a call of other hooks, to which the caller's answer is then given. */
#define NESTED(call)                                                                               \
    __extension__({                                                                                \
        aco_task_t *nesting_task = is_in_task() ? aco_i_running_task() : NULL;                     \
        const void *caller_before = nesting_task != NULL ? nesting_task->caller : NULL;            \
        if (nesting_task != NULL && caller_before == NULL) {                                       \
            nesting_task->caller = CALLER;                                                         \
        }                                                                                          \
        __typeof__(call) nested_result = (call);                                                   \
        if (nesting_task != NULL) {                                                                \
            nesting_task->caller = caller_before;                                                  \
        }                                                                                          \
        nested_result;                                                                             \
    })

/* Evaluates a call that waits if `may_wait`. A coroutine of libaco_compat lets the one that resumed
 * it go on afterwards, even if the call had no need to wait. */
#define LETTING_GO_IF(may_wait, call)                                                              \
    __extension__({                                                                                \
        uint64_t ct_before = aco_i_ct_switches();                                                  \
        __typeof__(call) result_of_call = (call);                                                  \
        if (__builtin_expect(aco_i_running_task()->is_coroutine, 0) && (may_wait)) {               \
            aco_i_let_go(ct_before);                                                               \
        }                                                                                          \
        result_of_call;                                                                            \
    })
#define WAITING_IF(may_wait, call) LETTING_GO_IF(may_wait, ANSWERED(call))
#define WAITING(call) WAITING_IF(1, call)
#define WRITING(fd, call) LETTING_GO_IF(1, FINISHED(fd, call))

/* A system call. The hooks' own go neither to the hook of syscall() nor to libc, which may not be
 * found yet. */
HIDDEN long aco_i_syscall(long number, ...);
#define syscall aco_i_syscall

/* Makes the process a child after a fork() of which libc did not know. */
HIDDEN void aco_i_begin_child(void);

/* Whether the caller is a child after vfork(), which shares its parent's memory but has descriptors
 * of its own. */
HIDDEN int aco_i_is_in_child(void);

/* Makes the linker keep an object under --gc-sections. The bounds of its section alone do not make
 * lld keep it. */
#if defined(__has_attribute)
#if __has_attribute(retain)
#define RETAIN __attribute__((retain))
#endif
#endif
#ifndef RETAIN
#define RETAIN
#endif

/* A hook. The section "aco_hooks" is the array of all hooks, which hooks.c walks. */
typedef struct {
    const char *name;
    void *hook;
    void *real; /* address of the pointer to libc's function */
} hook_t;

#define HOOK_ENTRY(name, real)                                                                     \
    static RETAIN hook_t entry_##name __attribute__((                                              \
        used, section("aco_hooks"), aligned(sizeof(void *)))) = {#name, (void *)name_##name, real}

/* For functions that TSan calls while it starts. */
#define EARLY __attribute__((no_sanitize_thread))

/* Points `*real` to libc's function of a name, and returns whether it did. It fails if there is
 * none, and while this thread looks for another one: then the loader or an allocator is the
 * caller. */
HIDDEN int aco_i_find_real(const char *name, void *real);

/*
 * HOOK(type, name, (parameters), (arguments), otherwise) { ... }
 *
 * Defines the function `name` of libc with the body that follows. In the body, real_NAME is libc's
 * own function. Until that is found, a call of real_NAME evaluates `otherwise`, with the names of
 * the parameters: a system call, or an error by refuse(). The C name of the hook is hook_NAME,
 * which no declaration or macro of a header touches. The function `name` is a weak alias of it:
 * another library may have one that calls the hook, and where libc is linked statically, some of
 * its functions are there anyway, and the message of hooks.c is clearer than the linker's.
 */
#define HOOK(type, name, params, args, otherwise)                                                  \
    static type first_##name params;                                                               \
    static type(*real_##name) params = first_##name;                                               \
    extern HIDDEN type hook_##name params __asm__("aco_i_hook_" #name);                            \
    extern SHARED type name_##name params __asm__(#name)                                           \
        __attribute__((weak, alias("aco_i_hook_" #name)));                                         \
    HOOK_ENTRY(name, &real_##name);                                                                \
    static EARLY type first_##name params                                                          \
    {                                                                                              \
        return aco_i_find_real(#name, &real_##name) ? real_##name args : (type)(otherwise);        \
    }                                                                                              \
    type hook_##name params

/* The same hook for another name that libc has for the function. */
#define HOOK_ALIAS(alias_name, name)                                                               \
    extern SHARED __typeof__(hook_##name) name_##alias_name __asm__(#alias_name)                   \
        __attribute__((weak, alias("aco_i_hook_" #name)));                                         \
    HOOK_ENTRY(alias_name, NULL)

/* ==== Times ================================================================================== */

#define SECOND INT64_C(1000000000) /* ns */

static inline struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){(time_t)(ns / SECOND), (long)(ns % SECOND)};
}

static inline int is_valid_time(const struct timespec *t)
{
    return t->tv_sec >= 0 && t->tv_nsec >= 0 && t->tv_nsec < SECOND;
}

static inline int64_t ns_of(const struct timespec *t)
{
    int64_t s = t->tv_sec;
    return s >= INT64_MAX / SECOND ? INT64_MAX : s * SECOND + t->tv_nsec;
}

/* The end of a wait that may take this time: NO_DEADLINE with NULL, 0 for no time. */
static inline int64_t end_of(const struct timespec *t)
{
    return t == NULL ? NO_DEADLINE : ns_of(t) == 0 ? 0 : aco_i_after(ns_of(t));
}

static inline struct timespec left_until(int64_t until)
{
    int64_t left = until == 0 ? 0 : until - aco_i_clock();
    return timespec_of(left < 0 ? 0 : left);
}

/* ==== errno ================================================================================== */

static inline long refuse(int error)
{
    errno = error;
    return -1;
}

/* refuse() with EINTR if the library of `caller` wants that for the error of a late task. */
static inline long refuse_to(const void *caller, int error)
{
    errno = error;
    aco_i_goes_on(caller);
    return -1;
}

/* ==== Values of tasks ======================================================================== */

/* A key of the runtime, created when a task sets the first value. */
typedef struct {
    aco_key_t key;
    int is_made; /* atomic */
    lock_t lock;
} lazy_key_t;

/* Returns whether the key is there now. */
static inline int make_key(lazy_key_t *key, void (*destroy)(void *value))
{
    lock(&key->lock);
    if (!key->is_made) {
        __atomic_store_n(&key->is_made, aco_key_create(&key->key, destroy) == 0, __ATOMIC_RELEASE);
    }
    unlock(&key->lock);
    return key->is_made;
}

static inline void *value_of_key(const lazy_key_t *key)
{
    return __atomic_load_n(&key->is_made, __ATOMIC_ACQUIRE) ? aco_getspecific(key->key) : NULL;
}

/* The other sources, each of which defines HOOKS_OF(its name). hooks.c refers to all of them, so
 * that a linker takes all objects of an archive or none. */
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
    X(answers)                                                                                     \
    X(names)                                                                                       \
    X(resolver)                                                                                    \
    X(processes)                                                                                   \
    X(file_locks)                                                                                  \
    X(futex)                                                                                       \
    X(queues)                                                                                      \
    X(requests)                                                                                    \
    X(system_calls)
#define HOOKS_OF(file) HIDDEN const char aco_i_hooks_of_##file = 0
#define X(file) extern HIDDEN const char aco_i_hooks_of_##file;
HOOKS_FILES(X)
#undef X

#endif
