// SPDX-License-Identifier: Apache-2.0
/*
 * Internals of the runtime that libaco_hooks and libaco_compat may use besides its API. Valid C++.
 * Programs include aco_runtime.h.
 */
#ifndef ACO_RUNTIME_EXTENSION_H
#define ACO_RUNTIME_EXTENSION_H

#include "base/descriptor.h"
#include "base/self.h"

/* ---- In a task ---- */

/* The running task. */
static inline aco_task_t *aco_i_running_task(void)
{
    return aco_i_loop->running;
}

/* How many switches to tasks the loop of the caller has made: another task has run since then if it
 * has changed. */
static inline uint64_t aco_i_ct_switches(void)
{
    return aco_i_loop->counts.ct_switches;
}

/* Whether another task of the thread could run now. */
static inline int aco_i_has_ready(void)
{
    return aco_i_loop->first_ready != NULL;
}

/* Whether the caller's thread runs tasks by aco_run(), and not by a loop that is embedded. */
static inline int aco_i_is_in_run(void)
{
    return aco_i_loop != NULL && aco_i_loop->timer_fd < 0;
}

/* ---- sched/wait.c ---- */

/* Opens a wait of the running task. */
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
        keep_load_behind();
    }
}

/* Whether waits of the running task are bound to fail. */
static inline int aco_i_is_late(const aco_task_t *self)
{
    return self->deadline <= aco_i_clock() ||
           (self->ct_shields == 0 && __atomic_load_n(&self->is_cancelled, __ATOMIC_RELAXED));
}

/* Closes the wait again and returns 1; or 0 if something has claimed it: then aco_i_wait() must
 * follow. */
SHARED int aco_i_close_wait(aco_task_t *task);

/* Claims an open wait and returns 1; or 0 if something else has, or none is open. The caller must
 * know that it is the wait it means: it holds the lock of the queue that the task is in, or is on
 * the task's thread. */
SHARED int aco_i_claim(aco_task_t *task, outcome_t outcome);

/* Makes a task ready whose wait the caller has claimed. */
SHARED void aco_i_make_ready(aco_task_t *task);

/* Does the same, in signal handlers, too. */
SHARED void aco_i_make_ready_by_inbox(aco_task_t *task);

/* Interrupts the wait of a task with `is_thread`, which has not ended, or its next one. */
SHARED void aco_i_interrupt(aco_task_t *task);

/* ---- sched/task.c ---- */

/* As aco_go_with(), for any thread, on a stack in the `sz` bytes at `memory`, at least 16 KiB. They
 * are the caller's again when the task has ended. */
SHARED int aco_i_go_in(void *memory, size_t sz, void *(*fn)(void *), void *arg, aco_task_t **task);

/* ---- sched/loop.c ---- */

#define ACO_I_CALLS_A_ROUND 32u

SHARED void aco_i_end_round(loop_t *loop);

/*
 * Counts a call that may wait, before it does anything: each such call calls it. A task that has
 * used up its budget lets others run: some 100 calls, or 1 ms since the loop's last look. This is
 * no wait, so it does not fail. Nothing happens outside of tasks, and in signal handlers.
 */
static inline void aco_i_spend_call(void)
{
    loop_t *loop = aco_i_loop;
    if (loop != NULL && aco_unlikely(--loop->calls_left == 0)) {
        aco_i_end_round(loop);
    }
}

/* ---- sched/fds.c ---- */

/* The entry of a descriptor; NULL with EBADF or ENOMEM. */
SHARED fd_t *aco_i_fd(int fd);

/* Returns whether anything may be noted of a descriptor, so that aco_close() has to close it. */
SHARED int aco_i_is_known(int fd);

/* Calls `fn(arg)`, which closes a descriptor. Before that, the waits for it end with EBADF. */
SHARED int aco_i_close_by(int fd, int (*fn)(void *arg), void *arg);

/* 1: hooks see it when the program closes a descriptor, or changes O_NONBLOCK or a timeout;
 * atomic. */
extern SHARED int aco_i_sees_changes;

/* Notes that a socket may have got a low water mark, SO_RCVLOWAT, above 1. Hooks call it. */
SHARED void aco_i_tell_low_water(void);

/* ---- sched/loop.c ---- */

/* Waits until the open wait of the running task has ended. */
SHARED outcome_t aco_i_wait(aco_task_t *task);

/* Does the same, but until a point in time at most: WAIT_NONE if that has come. */
SHARED outcome_t aco_i_wait_until(aco_task_t *task, int64_t until);

/* Called when a task with `is_thread` goes on after a switch, before anything else. */
extern SHARED void (*aco_i_on_return)(aco_task_t *task);

/* Called when a wait of such a task was interrupted, and it is in no queue. */
typedef enum { INTERRUPT_NOTHING, INTERRUPT_RESTARTS, INTERRUPT_FAILS } aco_i_interrupt_t;
extern SHARED aco_i_interrupt_t (*aco_i_on_interrupt)(aco_task_t *task);

/* Lets other tasks run. */
SHARED void aco_i_yield(void);

/* Turns the end of a wait into a result: 0 for WAIT_EVENT, or else -1 with errno. The task is in no
 * queue any more. */
SHARED int aco_i_result(outcome_t outcome);

/* Whether a wait goes on that has ended in this way. If it was interrupted, that is handled first;
 * the task is in no queue. */
SHARED int aco_i_goes_on_after(outcome_t outcome, int may_restart);

/* Whether a call that has failed, with errno, was interrupted and may be made again. */
SHARED int aco_i_may_restart(void);

/* Called by what fails without aco_i_result(), at its end: a wait that has failed at once, as the
 * task is cancelled or late, takes 1 ms from the third one in a row on, so that others run. */
SHARED void aco_i_rest(void);

/* ---- io/fd_hints.c ---- */

/* How long calls may wait for a descriptor, in ns: what the kernel would do; 0: they don't wait. */
SHARED int64_t aco_i_wait_limit(int fd, fd_t *entry, int events);

/* Notes that O_NONBLOCK or a timeout of a descriptor may have changed. Hooks call it. */
SHARED void aco_i_tell_change(int fd);

/* The limit of a blocking descriptor without timeouts, which compat/ sets; atomic. */
extern SHARED int64_t aco_i_default_wait_limit;

/* ---- io/fd_wait.c ---- */

/* Calls poll() in a task, until a point in time. */
SHARED int aco_i_poll(struct pollfd *fds, nfds_t ct, int64_t until);

/* ---- io/helpers.c ---- */

/*
 * Runs `fn(arg)` on a helper thread while the running task waits; at once outside of a task, and
 * where no helper can be had. WAIT_EVENT: `*result` and errno are what it has left.
 * Otherwise the task was cancelled or its deadline has passed before a helper began; or, with
 * `discard`, afterwards: then `fn` returns what it got, and discard() is called with that when it
 * does, or at once if it won't be called.
 */
SHARED outcome_t aco_i_offload(helpers_kind_t kind, void *(*fn)(void *), void *arg,
                               void (*discard)(void *), void **result);

/* ---- io/dns.c ---- */

typedef outcome_t (*aco_i_look_up_t)(void *(*fn)(void *), void *arg, void (*discard)(void *),
                                     void **result);

/* Offloads a look-up of a name, as aco_i_offload() does. Hooks set it, for look-ups by the settings
 * of the task; atomic. */
extern SHARED aco_i_look_up_t aco_i_look_up;

/* ---- io/files.c ---- */

/* Read and write as preadv() and pwritev(), where epoll takes a descriptor for always ready. With
 * -1 for `offset`, that of `fd` counts. `ct` is from 0 to IOV_MAX. */
SHARED ssize_t aco_i_file_read(int fd, const struct iovec *iov, int ct, int64_t offset);
SHARED ssize_t aco_i_file_write(int fd, const struct iovec *iov, int ct, int64_t offset);

/* ---- io/connect.c ---- */

/* As aco_accept4(); `is_ours` as in aco_i_adopt_fd(). */
SHARED int aco_i_accept(int fd, struct sockaddr *addr, socklen_t *addr_sz, int flags, int is_ours);

/* ---- io/process.c ---- */

/* Wait, in a task, until waitid() or waitpid() with the same arguments has something to report; 0,
 * or -1 with errno. */
SHARED int aco_i_wait_for_children(idtype_t type, id_t id, int options);
SHARED int aco_i_wait_for_child(pid_t pid, int options);

/* ---- sync/sync.c ---- */

/* Takes the first task whose wait can be claimed from a queue; NULL if there is none. */
SHARED node_t *aco_i_claim_first(queue_t *queue, outcome_t outcome);

/* ---- observe/symbols.c ---- */

/* Whether an address is in a function whose name begins with `prefix`. 0 in a file that was
 * stripped of its symbols. */
SHARED int aco_i_is_in_function(const void *address, const char *prefix);

/* ---- start/embed.c ---- */

/*
 * The caller's loop, or a new one; NULL with errno. With `at_end`, the thread itself counts as a
 * task, so that the loop waits while there is no other. When the thread ends, at_end() is called to
 * drop the tasks that are left, and returns how many it could not.
 */
SHARED loop_t *aco_i_own_loop(int (*at_end)(void));

/* Runs turns of a loop that is embedded in another one, and calls `fn`, unless NULL, after each,
 * until that returns -1. While no task runs, a pause of 1 ms between calls doubles, up to
 * `longest_pause` ns. */
SHARED void aco_i_run_turns(loop_t *loop, int (*fn)(void *), void *arg, int64_t longest_pause);

/* ---- start/resume.c ---- */

/* Called by a task that aco_i_resume() runs, after a call that may wait: if it has not waited since
 * aco_i_ct_switches() was `ct_switches`, that returns, and the task goes on in its turn. */
SHARED void aco_i_let_go(uint64_t ct_switches);

/* Suspends the running task until aco_i_resume(), and returns 1; 0 if `until` has come before. */
SHARED int aco_i_wait_for_resume(int64_t until);

/* Makes a task of the caller's thread that begins at aco_i_resume(). It has a stack of `stack_sz`
 * bytes at least, or shares `stack`, if that is not NULL. NULL with ENOMEM. */
SHARED aco_task_t *aco_i_new_suspended(void *(*fn)(void *), void *arg, size_t stack_sz,
                                       aco_share_stack_t *stack);

/*
 * Runs a suspended task at once, and returns when it waits. A wait for a descriptor or a time ends
 * as if its time were over; in a wait for a lock or similar, nothing happens. These three abort,
 * naming `call`, if the task is another thread's, runs, or has resumed the caller.
 */
SHARED void aco_i_resume(const char *call, aco_task_t *task);

/* Drop the frames of a suspended task: it begins anew when it is resumed next, or is freed. -1: it
 * waits for a lock or similar, and nothing has happened. */
SHARED int aco_i_restart(const char *call, aco_task_t *task);
SHARED int aco_i_drop(const char *call, aco_task_t *task);

#endif
