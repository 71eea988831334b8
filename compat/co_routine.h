// SPDX-License-Identifier: Apache-2.0
/*
 * The names of libco (github.com/Tencent/libco) on the runtime of aco, so that programs written for
 * it compile unchanged. C++, also C++98. Link with
 *
 *     -laco_compat -laco_hooks -laco_runtime -laco
 *
 * Vocabulary
 *   resume    co_resume() runs a coroutine until it yields, waits or ends, and then returns
 *   wait      co_poll(), co_cond_timedwait(), and what the hooks make of blocking calls of libc
 *   loop      co_eventloop() resumes those of the thread's coroutines whose waits have ended
 *
 * Rules
 *   - A coroutine belongs to the thread that created it. Each thread has a loop of its own.
 *   - Timeouts are milliseconds, by the monotonic clock. Less than 0: none.
 *   - When a thread ends, its coroutines can only be released.
 *   - Misuse that can be seen ends in one line on stderr and abort().
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

/* Runs a coroutine at once. One that waits finds its wait over, as if that had taken too long. One
 * that has ended is left alone. */
void co_resume(stCoRoutine_t *co);

/* Goes back to where the running coroutine was resumed; another co_resume() lets it go on. As in
 * libco, it is the running one that yields, whatever `co` is. In C++20, co_yield is a keyword. */
#ifndef __cpp_impl_coroutine
void co_yield (stCoRoutine_t *co);
#endif
void co_yield_ct();

/* Frees a coroutine that does not run, in whatever state. Its frames are not unwound. */
void co_release(stCoRoutine_t *co);

/* Lets a coroutine that does not run begin anew, in whatever state it is. */
void co_reset(stCoRoutine_t *co);

/* The running coroutine. Outside of one, what stands for the thread; NULL before the first call
 * that needs a loop. */
stCoRoutine_t *co_self();

/* `ct` stacks of `sz` bytes, which coroutines created on them take in turn; what they have on it is
 * copied when the next one needs it. Cannot be freed. NULL with EINVAL or ENOMEM. */
stShareStack_t *co_alloc_sharestack(int ct, int sz);

/* Makes the thread ready, as the first co_create() does. */
void co_init_curr_thread_env();

/* ==== Loop =================================================================================== */

/* The loop of the thread; NULL with errno if there can't be one. */
stCoEpoll_t *co_get_epoll_ct();

/*
 * Runs the thread's loop, and calls `fn`, unless it is NULL, after each turn, until that returns
 * -1. While nothing happens, the thread sleeps: without `fn` until something does; with it, for
 * 1 ms, and each further time twice as long, up to 64.
 */
void co_eventloop(stCoEpoll_t *ctx, pfn_co_eventloop_t fn, void *arg);

/* As poll(); only the coroutine waits. Outside of one, the thread does. */
int co_poll(stCoEpoll_t *ctx, struct pollfd fds[], nfds_t ct, int timeout);

/* ==== Conditions ============================================================================= */

/* For coroutines of one thread. A signal makes the first that waits go on in the next turn of the
 * loop; without one, it is lost. All return 0. */
stCoCond_t *co_cond_alloc();
int co_cond_free(stCoCond_t *cond);
int co_cond_signal(stCoCond_t *cond);
int co_cond_broadcast(stCoCond_t *cond);

/* Waits for a signal, for `timeout` ms at most if that is more than 0. Returns 0 also if the time
 * is over; errno is ETIMEDOUT then. */
int co_cond_timedwait(stCoCond_t *cond, int timeout);

/* ==== Values of coroutines =================================================================== */

/* As pthread_setspecific() and pthread_getspecific(), with a value for each coroutine. Destructors
 * are not called for these. Outside of coroutines, the value is the thread's. */
int co_setspecific(pthread_key_t key, const void *value);
void *co_getspecific(pthread_key_t key);

/* Makes getenv(), setenv() and unsetenv() of these names each coroutine's own, in those with hooks:
 * they have the process's value until the coroutine sets or unsets its own. Only the first call
 * counts. */
void co_set_env_list(const char *names[], size_t ct);

/* ==== Hooks ================================================================================== */

/* Whether blocking calls of libc make the running coroutine wait instead of the thread. Each begins
 * without. Which calls: see aco_hooks.h. */
void co_enable_hook_sys();
void co_disable_hook_sys();
bool co_is_enable_sys_hook();

/* As accept(). */
int co_accept(int fd, struct sockaddr *addr, socklen_t *addr_sz);

/* Not needed: hooks work with every descriptor. Returns 0. */
int co_register_fd(int fd);

/* For how long hooked calls wait for a socket that has no SO_RCVTIMEO or SO_SNDTIMEO, in all
 * threads, before they fail with EAGAIN; 0, as it is at first: for ever. libco has 1000. */
void co_set_default_timeout(int timeout);

/* Prints a line on stderr. */
void co_log_err(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
