// SPDX-License-Identifier: Apache-2.0
/*
 * Calls for bindings to other languages, beyond aco_runtime.h: tasks that hold their callable and
 * its result, and calls at the end of a task. aco.hpp is such a binding; C programs need none of
 * it. Names may change with any version. Relies on aco_runtime.h.
 */
#ifndef ACO_BINDINGS_H
#define ACO_BINDINGS_H

#include "aco_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== Internals ============================================================================== */

/*
 * Bytes that each task has for its binding, aligned as a pointer: for a callable until it begins,
 * and for its result from its end until it is freed. In between they are the runtime's.
 */
#define ACO_I_STORAGE_SZ (8 * sizeof(void *))

/*
 * Makes a task as aco_go_with() does, but `fn` gets the task's storage. Unless the call fails,
 * `place(storage, arg)` has put there what `fn` needs; it must not wait.
 */
int aco_i_spawn_in(const aco_task_options_t *options, void *(*fn)(void *storage),
                   void (*place)(void *storage, void *arg), void *arg, aco_task_t **task);

/* Called by `fn`: messages name the running task by `name`, unless it has one, and its function by
 * `function` instead of `fn`. Both may be NULL. */
void aco_i_name(const char *name, void *function);

/* Called by `fn` after it has moved the callable out of the storage: the task may wait now. */
void aco_i_begin(void);

/* Called by `fn` when the task will wait no more. Destroys its task-local values; returns the
 * storage for its result, or NULL if the task was detached. */
void *aco_i_finish(void);

/* Waits as aco_join() does, but does not free the task, so that its storage can be read. Aborts as
 * that does if the task's runtime has ended, unless the caller is in another one. */
int aco_i_await_end(aco_task_t *task);

/* Returns 1 if that would return at once; right after the end it may return 0. */
int aco_i_has_ended(aco_task_t *task);

/* The number that a semaphore holds. Others may change it at once. */
size_t aco_i_semaphore_ct(aco_semaphore_t *semaphore);

/* Frees a task after aco_i_await_end(). */
void aco_i_free_ended(aco_task_t *task);

/* Returns 1 if the task, which runs or has ended, was cancelled. */
int aco_i_was_cancelled(const aco_task_t *task);

/* The storage of a task that has ended, or that the caller has just made in its loop. */
void *aco_i_storage(aco_task_t *task);

/*
 * Replaces aco_join(): the task frees itself at its end, or now if it has ended. Before that, if
 * aco_i_finish() had returned the storage, `discard`, unless NULL, is called with the task and the
 * result of `fn`: by the caller, or by the loop of the task, so it must not wait.
 */
void aco_i_detach(aco_task_t *task, void (*discard)(aco_task_t *task, void *result));

/*
 * Cancels a task that is to be joined, and waits for its end as aco_i_await_end() does, whatever
 * the deadline of the caller and whether that is cancelled. Returns 1; or 0, without a wait, in a
 * child after fork(), to which the task does not belong. Aborts in the task itself.
 */
int aco_i_cancel_and_await(aco_task_t *task);

/* A call when a task ends, by its loop or in a lock: it must not wait, nor touch that task. */
typedef struct aco_i_watch_s {
    struct aco_i_watch_s *next;
    void (*fn)(struct aco_i_watch_s *watch);
} aco_i_watch_t;

/* Sets a watch on a task that is to be joined: calls `watch->fn` when that ends, and returns 1; or
 * 0 if it has ended already. */
int aco_i_watch(aco_task_t *task, aco_i_watch_t *watch);

/* Removes a watch: it is not called any more, but may have been. */
void aco_i_unwatch(aco_task_t *task, aco_i_watch_t *watch);

/*
 * Calls when a task is cancelled, once, and when it is freed. The struct is the binding's.
 * `cancelled` is called by the thread that cancels the task, which holds no lock then, perhaps
 * after `freed`; each ends with a call of aco_i_leave_stop().
 */
typedef struct aco_i_stop_s {
    struct aco_i_stop_s *next, *next_called;
    void (*cancelled)(struct aco_i_stop_s *stop);
    void (*freed)(struct aco_i_stop_s *stop);
    int ct_owners; /* atomic */
    char is_called;
} aco_i_stop_t;

/* Returns the stop of a task that has `cancelled`. If it has none, adds `added`, and returns that;
 * `added` may be NULL. The caller looks whether the task was cancelled before. */
aco_i_stop_t *aco_i_stop_of(aco_task_t *task, void (*cancelled)(aco_i_stop_t *stop),
                            aco_i_stop_t *added);

/* Returns 1 to the last one that leaves, who frees the memory. */
int aco_i_leave_stop(aco_i_stop_t *stop);

/* Keeps a word for the binding in a group, unless it has one. Returns whether it keeps this one. */
int aco_i_group_keep(aco_group_t *group, void *word);

/* Joins a group as aco_group_join() does; `*word` is the word that it keeps, or NULL. */
int aco_i_group_join(aco_group_t *group, void **word);

/* Makes a task as aco_go() does, but it begins after aco_unpark(), which must be called once. It
 * has no stack until then. */
aco_task_t *aco_i_go_parked(void *(*fn)(void *), void *arg);

/* Makes a task as aco_go() does, but it begins at the time `when`, and has no stack until then. */
aco_task_t *aco_i_go_later(int64_t when, void *(*fn)(void *), void *arg);

/* Makes a task of the caller's thread that one of these two has made begin now. aco_unpark() may
 * have been called, and is not due any more. */
void aco_i_begin_now(aco_task_t *task);

/* The same for a task that has not begun, but `fn` is not called. */
void aco_i_call_off(aco_task_t *task);

/* Begins a block as aco_within() does, up to aco_i_leave(); outside of a task, too, for waits such
 * as those for locks. */
aco_i_scope_t aco_i_enter_timed(int64_t ns);

#ifdef __cplusplus
}
#endif

#endif
