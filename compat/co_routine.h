// SPDX-License-Identifier: Apache-2.0
/*
 * The names of libco (github.com/Tencent/libco) on the runtime of aco, so that programs written for
 * it compile unchanged. C++, also C++98. Link with
 *
 *     -laco_compat -laco_hooks -laco_runtime -laco
 *
 * Vocabulary
 *   resume    co_resume() runs a coroutine until it yields, waits or ends, and then returns
 *   wait      co_poll(), co_cond_timedwait(), and blocking calls of libc that are hooked; those for
 *             descriptors also wait for the next turn of the loop if they could go on at once
 *   loop      co_eventloop() resumes the thread's coroutines whose waits have ended
 *
 * Rules
 *   - A coroutine belongs to the thread that created it. Each thread has a loop of its own.
 *   - Timeouts are milliseconds, by the monotonic clock. A negative one means no limit.
 *   - When a thread ends, its coroutines can only be released.
 *   - Misuse that can be detected ends in one line on stderr and abort().
 */
#ifndef CO_ROUTINE_H
#define CO_ROUTINE_H

#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct stCoRoutine_t;
struct stCoEpoll_t;
struct stShareStack_t;
struct stCoCond_t;

typedef void *(*pfn_co_routine_t)(void *);
typedef int (*pfn_co_eventloop_t)(void *);

/* ==== Coroutines ============================================================================= */

struct stCoRoutineAttr_t {
    int stack_size;              /* bytes; the stack has at least as many */
    stShareStack_t *share_stack; /* NULL: it has a stack of its own */

    stCoRoutineAttr_t() : stack_size(128 * 1024), share_stack(NULL)
    {
    }
};

/* Creates a coroutine that runs `routine(arg)` when it is first resumed; `attr` may be NULL. 0, or
 * -1 with errno: ENOMEM, EMFILE, or EBUSY in a thread that aco_run() has started. */
int co_create(stCoRoutine_t **co, const stCoRoutineAttr_t *attr, pfn_co_routine_t routine,
              void *arg);

/* Runs a coroutine at once. The wait of one that waits ends as if its time were over. Does nothing
 * to one that has ended. */
void co_resume(stCoRoutine_t *co);

/* Returns to where the running coroutine was resumed; another co_resume() lets it go on. As in
 * libco, the running coroutine yields, whatever `co` is. In C++20, co_yield is a keyword. */
#ifndef __cpp_impl_coroutine
void co_yield (stCoRoutine_t *co);
#endif
void co_yield_ct();

/* Frees a coroutine that does not run, in any state. Its frames are not unwound. */
void co_release(stCoRoutine_t *co);

/* Lets a coroutine that does not run, in any state, begin anew. */
void co_reset(stCoRoutine_t *co);

/* Returns the running coroutine. Outside of one, returns an object that stands for the thread; NULL
 * before the first call that needs a loop. */
stCoRoutine_t *co_self();

/* Makes `ct` stacks of `sz` bytes, which coroutines created on them take in turn. The contents of a
 * stack are copied when another coroutine needs it. They can't be freed. NULL with EINVAL or
 * ENOMEM. */
stShareStack_t *co_alloc_sharestack(int ct, int sz);

/* Makes the thread ready, as the first co_create() does. */
void co_init_curr_thread_env();

/* ==== Loop =================================================================================== */

/* Returns the loop of the thread; NULL with errno if it can't have one. */
stCoEpoll_t *co_get_epoll_ct();

/*
 * Runs the thread's loop, and calls `fn`, unless it is NULL, after each turn, until that returns
 * -1. While nothing happens, the thread sleeps: without `fn` until something does; with it, for
 * 1 ms, and each further time twice as long, up to the idle interval.
 */
void co_eventloop(stCoEpoll_t *ctx, pfn_co_eventloop_t fn, void *arg);

/* Sets the idle interval, in ms, of the loops that all threads begin to run from now on: 64 by
 * default, 1 at least. With 1, as in libco, functions of loops see what another thread has left for
 * them soon, and the process wakes a thousand times a second. */
void co_set_idle_interval(int ms);

/* As poll(), but only the coroutine waits. Outside of one, the thread waits. */
int co_poll(stCoEpoll_t *ctx, struct pollfd fds[], nfds_t ct, int timeout);

/* ==== Conditions ============================================================================= */

/* Conditions are for coroutines of one thread. A signal makes the first coroutine that waits go on
 * in the next turn of the loop, and is lost if none waits. All calls return 0. */
stCoCond_t *co_cond_alloc();
int co_cond_free(stCoCond_t *cond);
int co_cond_signal(stCoCond_t *cond);
int co_cond_broadcast(stCoCond_t *cond);

/* Waits for a signal, for `timeout` ms at most if that is more than 0. Returns 0 also if the time
 * is over, with errno ETIMEDOUT. */
int co_cond_timedwait(stCoCond_t *cond, int timeout);

/* ==== Values of coroutines =================================================================== */

/* As pthread_setspecific() and pthread_getspecific(), with a value for each coroutine. Destructors
 * are not called for the values of coroutines. Outside of coroutines, the value is the thread's. */
int co_setspecific(pthread_key_t key, const void *value);
void *co_getspecific(pthread_key_t key);

/* Gives each coroutine with hooks values of its own for these names, in getenv(), setenv() and
 * unsetenv(). None is set at first, whatever the process has. Only the first call counts. */
void co_set_env_list(const char *names[], size_t ct);

/* ==== Hooks ================================================================================== */

/* Set and return whether blocking calls of libc make the running coroutine wait instead of the
 * thread. A coroutine begins without. aco_hooks.h lists the calls. */
void co_enable_hook_sys();
void co_disable_hook_sys();
bool co_is_enable_sys_hook();

/* As accept(). */
int co_accept(int fd, struct sockaddr *addr, socklen_t *addr_sz);

/* Does nothing, as hooks work with every descriptor. Returns 0. */
int co_register_fd(int fd);

/* Sets the time, in ms, for which hooked calls of all threads wait for a socket that has no
 * SO_RCVTIMEO or SO_SNDTIMEO, before they fail with EAGAIN. 0, the default, is for ever. libco has
 * 1000. In a coroutine, connect() waits for 75 s instead, and fails with ETIMEDOUT, as in libco. */
void co_set_default_timeout(int timeout);

/* Prints a line on stderr. */
void co_log_err(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
