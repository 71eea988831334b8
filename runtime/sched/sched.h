// SPDX-License-Identifier: Apache-2.0
/* Waits, timers, descriptors, tasks, groups, loops and runtimes. */
#ifndef ACO_RUNTIME_SCHED_H
#define ACO_RUNTIME_SCHED_H

#include "extension.h"

/* ---- wait.c ---- */

/* Makes tasks ready whose waits the caller has claimed, linked by their `next`. */
HIDDEN void aco_i_wake_all(aco_task_t *first);

/* Makes a loop look at its inbox and at tasks that any thread may start. */
HIDDEN void aco_i_wake_loop(loop_t *loop);

/* Appends a task to the ready queue of the caller's loop. */
static inline void push_ready(loop_t *loop, aco_task_t *task)
{
    task->state = TASK_READY;
    task->next = NULL;
    *(loop->first_ready != NULL ? &loop->last_ready->next : &loop->first_ready) = task;
    loop->last_ready = task;
}

/* Makes the loop look outside after `ct` more switches. Signal handlers may call it. */
static inline void end_turn(loop_t *loop, unsigned ct)
{
    __atomic_store_n(&loop->must_look, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&loop->switches_left, ct, __ATOMIC_RELAXED);
}

/* Holds a reference, so that the runtime is not freed while the caller wakes or joins one of its
 * tasks. */
static inline void aco_i_hold_runtime(runtime_t *runtime)
{
    __atomic_add_fetch(&runtime->ct_holders, 1, __ATOMIC_SEQ_CST);
}

static inline void aco_i_drop_runtime(runtime_t *runtime)
{
    __atomic_sub_fetch(&runtime->ct_holders, 1, __ATOMIC_RELEASE);
}

/* ---- timer.c ---- */

/* Makes sure that `ct` timers can be set in a loop; 0, or -1 if memory is short. */
HIDDEN int aco_i_reserve_timers(loop_t *loop, size_t ct);

/* Sets a timer that ends the open wait of `task` by WAIT_DEADLINE once `when` has passed. */
HIDDEN void aco_i_set_timer(aco_task_t *task, int64_t when);
HIDDEN void aco_i_clear_timer(aco_task_t *task);

/* Ends the waits whose timers are due, in their order. */
HIDDEN void aco_i_expire_timers(loop_t *loop);

/* ---- fds.c ---- */

/* Wakes the tasks that wait for an event of a descriptor, as epoll reports it. */
HIDDEN void aco_i_on_event(uint64_t data, uint32_t events);

/* Notes a new descriptor; with `is_ours`, only aco_close() will close it. */
HIDDEN void aco_i_adopt_fd(int fd, int is_tcp, int is_ours);

/* Makes waits that rely on earlier answers of the kernel ask again. */
HIDDEN void aco_i_end_cached(loop_t *loop);

/* Leaves all descriptors to other loops, as this one ends or may not run for long. */
HIDDEN void aco_i_forget_loop(loop_t *loop);

/* ---- tasks.c ---- */

/* Allocates a task that is in no loop; NULL with ENOMEM. */
HIDDEN aco_task_t *aco_i_new_task(loop_t *loop, void *(*fn)(void *), void *arg);
HIDDEN void aco_i_free_task(aco_task_t *task);

/* Gives memory of free tasks back to the system. */
HIDDEN void aco_i_trim_tasks(loop_t *loop);

HIDDEN void aco_i_free_chunks(runtime_t *runtime);

/* Calls `fn` for each task that has not ended, while they go on. In signal handlers, too. */
HIDDEN void aco_i_each_task(runtime_t *runtime, void (*fn)(const aco_task_t *, void *arg),
                            void *arg);

/* Whether a task of the runtime lies at `task`, and whether a group that was not joined does at
 * `group`; neither is read. */
HIDDEN int aco_i_has_task(runtime_t *runtime, const void *task);
HIDDEN int aco_i_has_group(runtime_t *runtime, const void *group);

/* Calls `fn` for each task that was not joined. All tasks of the runtime have ended. */
HIDDEN void aco_i_each_unjoined(const runtime_t *runtime, void (*fn)(const aco_task_t *, void *arg),
                                void *arg);

/* ---- locals.c ---- */

/* Calls the destructors of a task's values, and frees these. */
HIDDEN void aco_i_run_destructors(aco_task_t *task);

/* ---- group_tree.c ---- */

struct aco_group_s {
    runtime_t *runtime;
    aco_task_t *owner;  /* made it; NULL: has ended */
    aco_group_t *next;  /* next one of its owner, or of the runtime's orphans */
    aco_task_t *first;  /* first of its tasks */
    aco_task_t *joiner; /* waits for their end */
    int64_t deadline;
    size_t ct; /* tasks in it */
    int is_cancelled;
    int is_shielded; /* made in an aco_shielded that its owner has not left */
    void *word;      /* kept for a binding; atomic */
};

/* The task that waits for the end of the group's, which may be gone by now; NULL: none does. */
HIDDEN aco_task_t *aco_i_joiner_of(const aco_group_t *group);

/* Adds a task that has not started to a group; 0, or -1 with ECANCELED. */
HIDDEN int aco_i_enter_group(aco_group_t *group, aco_task_t *task);
HIDDEN void aco_i_leave_group(aco_task_t *task);

/* Extends the cancelling of a task to the groups that it made shielded, at the end of its outermost
 * aco_shielded. */
HIDDEN void aco_i_unshield_groups(aco_task_t *task);

/* Makes the groups of a task orphans, before it ends. */
HIDDEN void aco_i_abandon_groups(aco_task_t *task);

/* Frees the groups of a runtime that has no tasks, and returns how many there were. */
HIDDEN size_t aco_i_free_groups(runtime_t *runtime);

/* ---- life.c ---- */

/* Gives a task its coroutine, on `stack` if that is not NULL and it shares its stack; 0, or -1 if
 * memory is short. */
HIDDEN int aco_i_start(loop_t *loop, aco_task_t *task, aco_share_stack_t *stack);

/* Drops the frames of a suspended task, so that it begins anew. */
HIDDEN void aco_i_reset(aco_task_t *task);

/* Frees what a task has, after the last switch from it, and wakes the task that joins it. */
HIDDEN void aco_i_reap(loop_t *loop, aco_task_t *task);

/* Keeps a task for which there is no stack until another task has ended or started, or for some
 * time: other threads may cause the shortage. */
HIDDEN void aco_i_starve(loop_t *loop, aco_task_t *task);

/* Makes the first of these ready to try again; there is one. */
HIDDEN void aco_i_retry_starved(loop_t *loop);

/* ---- look.c ---- */

/* Data of the events that epoll reports when a loop is woken, and when its timerfd expires. */
#define ACO_I_INBOX UINT64_MAX
#define ACO_I_TIMER (UINT64_MAX - 1)
#define ACO_I_RING (UINT64_MAX - 2)

/* Looks at what has happened outside. While no task is ready, waits for that, but for `most` ns at
 * most unless that is < 0. */
HIDDEN void aco_i_look(loop_t *loop, int64_t most);

/* When the loop has something to do by itself; NO_DEADLINE: never. */
HIDDEN int64_t aco_i_next_time(const loop_t *loop);

/* Takes a task that is ready, or will be in a moment, from the queue that it is in. */
HIDDEN void aco_i_take_ready(loop_t *loop, aco_task_t *task);

/* Gives stacks, structs of tasks and copies of frames back if they have been idle for long. Called
 * before the loop sleeps, and at loop->trim_at. */
HIDDEN void aco_i_tend(loop_t *loop);

/* ---- loop.c ---- */

/* Puts the running task behind those that are ready, and returns 1; or 0 if it is cancelled or
 * late, so that its waits fail. */
HIDDEN int aco_i_let_others_run(aco_task_t *task);

/* The entry of each coroutine that runs tasks; its argument is the loop. */
HIDDEN void aco_i_enter_task(void);

/* Runs tasks until the runtime has none. */
HIDDEN void aco_i_run_loop(loop_t *loop);

/* Runs a turn: looks at what has happened, and waits for `most` ns at most (< 0: for ever) if no
 * task is ready; then runs some that are. */
HIDDEN void aco_i_run_turn(loop_t *loop, int64_t most);

/* Runs a suspended task, which is in no queue, at once, and returns when that is suspended again.
 * The caller is a task, or on the thread's own stack. */
HIDDEN void aco_i_run_now(loop_t *loop, aco_task_t *task);

/* ---- task.c ---- */

/* Waits for the end of a task, which is not freed then; 0, or -1 with errno. */
HIDDEN int aco_i_wait_for_end(aco_task_t *task, aco_task_t *self);

/* ---- runtimes.c ---- */

/* Enters a runtime into the list of the process. */
HIDDEN void aco_i_enter_runtime(runtime_t *runtime);

/* Takes a runtime from the list, and keeps its counts. */
HIDDEN void aco_i_take_runtime(runtime_t *runtime);

/* Hold and release the lock under which aco_i_each_runtime() looks at runtimes. */
HIDDEN void aco_i_lock_runtimes(void);
HIDDEN void aco_i_unlock_runtimes(void);

/* Calls `fn` for each runtime. */
HIDDEN void aco_i_each_runtime(void (*fn)(runtime_t *runtime, void *arg), void *arg);

/* The runtimes of the process, each held. */
typedef struct {
    runtime_t **runtimes;
    size_t ct, ct_left_out; /* left out for lack of memory */
    size_t mapped_sz;       /* bytes; 0: they are in `few` */
    runtime_t *few[16];
} aco_i_held_t;

/* Hold all runtimes, so that they are not freed, and drop them. In signal handlers, too. */
HIDDEN void aco_i_hold_runtimes(aco_i_held_t *held);

/* Holds the runtime that has an object, for callers outside of it, and returns it; NULL: that has
 * ended, and freed the object. */
HIDDEN runtime_t *aco_i_hold_runtime_of(const void *object,
                                        int (*has)(runtime_t *runtime, const void *object));
HIDDEN void aco_i_drop_runtimes(aco_i_held_t *held);

/* Sums what all runtimes have counted, with those that have ended. */
HIDDEN void aco_i_sum_counts(counts_t *sum);

#endif
