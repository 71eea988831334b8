// SPDX-License-Identifier: Apache-2.0
/*
 * Child processes begin with the signals blocked that their thread blocks, of which the kernel
 * knows nothing: the thread of the loop blocks all.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* Evaluates a call while the kernel has the mask of the running thread. A child after vfork()
 * shares the memory of its parent, but not that mask. */
#define WITH_MASK(call)                                                                            \
    __extension__({                                                                                \
        const thread_t *thread_of_call = this_thread();                                            \
        sigset_t mask_before;                                                                      \
        if (thread_of_call != NULL) {                                                              \
            aco_i_syscall(SYS_rt_sigprocmask, SIG_SETMASK, NULL, &mask_before, _NSIG / 8);         \
            aco_i_take_signals(thread_of_call);                                                    \
        }                                                                                          \
        __typeof__(call) result_of_call = (call);                                                  \
        KEEP_ERRNO();                                                                              \
        if (thread_of_call != NULL) {                                                              \
            aco_i_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask_before, NULL, _NSIG / 8);         \
        }                                                                                          \
        result_of_call;                                                                            \
    })

typedef char *const *words_t;

/* ==== Other programs ========================================================================= */

#define EXEC(name, params, args)                                                                   \
    REPLACE(int, name, params, args, refuse(ENOSYS))                                               \
    {                                                                                              \
        return WITH_MASK(real_##name args);                                                        \
    }                                                                                              \
    _Static_assert(1, "")

EXEC(execve, (const char *path, words_t words, words_t environment), (path, words, environment));
EXEC(execv, (const char *path, words_t words), (path, words));
EXEC(execvp, (const char *file, words_t words), (file, words));
EXEC(execvpe, (const char *file, words_t words, words_t environment), (file, words, environment));
EXEC(fexecve, (int fd, words_t words, words_t environment), (fd, words, environment));
EXEC(execveat, (int fd, const char *path, words_t words, words_t environment, int flags),
     (fd, path, words, environment, flags));

static size_t count_words(va_list list)
{
    size_t ct = 1;
    while (va_arg(list, char *) != NULL) {
        ct++;
    }
    return ct;
}

/* Puts the words of a call into an array, with NULL behind them. */
static void collect_words(char **words, const char *first, va_list list)
{
    *words = (char *)(uintptr_t)first;
    while (*words != NULL) {
        *++words = va_arg(list, char *);
    }
}

/* Defines a function with a list of words. */
#define EXEC_LIST(name, by)                                                                        \
    SHARED int name(const char *file, const char *first, ...)                                      \
    {                                                                                              \
        va_list list;                                                                              \
        va_start(list, first);                                                                     \
        size_t ct = count_words(list);                                                             \
        va_end(list);                                                                              \
        char *words[ct + 1];                                                                       \
        va_start(list, first);                                                                     \
        collect_words(words, first, list);                                                         \
        int result = by;                                                                           \
        va_end(list);                                                                              \
        return result;                                                                             \
    }                                                                                              \
    _Static_assert(1, "")

EXEC_LIST(execl, name_execv(file, words));
EXEC_LIST(execlp, name_execvp(file, words));
EXEC_LIST(execle, name_execve(file, words, va_arg(list, words_t)));

/* ==== Children =============================================================================== */

typedef const posix_spawn_file_actions_t actions_t;
typedef const posix_spawnattr_t spawn_t;

#define SPAWN(name)                                                                                \
    REPLACE(int, name,                                                                             \
            (pid_t * pid, const char *path, actions_t *actions, spawn_t *attributes,               \
             words_t words, words_t environment),                                                  \
            (pid, path, actions, attributes, words, environment), ENOSYS)                          \
    {                                                                                              \
        return WITH_MASK(real_##name(pid, path, actions, attributes, words, environment));         \
    }                                                                                              \
    _Static_assert(1, "")

SPAWN(posix_spawn);
SPAWN(posix_spawnp);

REPLACE(FILE *, popen, (const char *command, const char *type), (command, type), NULL)
{
    return WITH_MASK(real_popen(command, type));
}
