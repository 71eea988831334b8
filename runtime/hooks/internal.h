// SPDX-License-Identifier: Apache-2.0
/*
 * What the sources of the hooks share: how a hook is defined, how it knows that it is called in a
 * task, and how it reaches libc's function.
 *
 *   hooks.c      the start: libc's functions are found, and the runtime is told of them
 *   io.c         input and output; files.c: files; poll.c: waits for several descriptors
 *   close.c      closing and what is like it; time.c: time and signals
 *   locks.c      locks of threads; keys.c: values of threads
 *   names.c      name look-ups; processes.c: child processes
 */
#ifndef ACO_HOOKS_INTERNAL_H
#define ACO_HOOKS_INTERNAL_H

#include "../internal.h"

#include "aco_hooks.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>

/*
 * Of the runtime, whose library is loaded when the program starts: one load, without a call. NULL
 * in a child after fork().
 */
extern __thread loop_t *aco_i_loop __attribute__((tls_model("initial-exec")));

/* Whether the caller is a task. */
static inline int is_in_task(void)
{
    const loop_t *loop = aco_i_loop;
    return __builtin_expect(loop != NULL, 0) && loop->running != NULL;
}

/* A hook. The section "aco_hooks" is an array of them, in which hooks.c finds all. */
typedef struct {
    const char *name;
    void *hook;
    void *real; /* where the pointer to libc's function is */
} hook_t;

#define HOOK_ENTRY(name, real)                                                                     \
    static hook_t entry_##name __attribute__((                                                     \
        used, section("aco_hooks"), aligned(sizeof(void *)))) = {#name, (void *)hook_##name, real}

/* Points `*real` to libc's function of a name, and says whether it did. It can't if there is none,
 * and while this thread is looking for another one: then the loader or an allocator calls. */
HIDDEN int aco_i_find_real(const char *name, void *real);

/*
 * HOOK(type, name, (parameters), (arguments), otherwise) { ... }
 *
 * Defines the function `name` of libc with the body that follows. In that, real_NAME is libc's own.
 * Before this can be had, calls of it evaluate `otherwise`, with the names of the parameters; that
 * is a system call, or an error by refuse(). The C name of the hook is hook_NAME, so no declaration
 * or macro of a header matters.
 */
#define HOOK(type, name, params, args, otherwise)                                                  \
    static type first_##name params;                                                               \
    static type(*real_##name) params = first_##name;                                               \
    extern SHARED type hook_##name params __asm__(#name);                                          \
    HOOK_ENTRY(name, &real_##name);                                                                \
    static type first_##name params                                                                \
    {                                                                                              \
        return aco_i_find_real(#name, &real_##name) ? real_##name args : (type)(otherwise);        \
    }                                                                                              \
    type hook_##name params

/* The same function under another name of libc, which is the same there, too. */
#define HOOK_ALIAS(alias_name, name)                                                               \
    extern SHARED __typeof__(hook_##name) hook_##alias_name __asm__(#alias_name)                   \
        __attribute__((alias(#name)));                                                             \
    HOOK_ENTRY(alias_name, NULL)

static inline long refuse(int error)
{
    errno = error;
    return -1;
}

/* Referred to by hooks.c, so that a linker takes all objects of an archive or none. */
#define HOOKS_OF(file) HIDDEN const char aco_i_hooks_of_##file = 0

#endif
