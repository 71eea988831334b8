// SPDX-License-Identifier: Apache-2.0
/*
 * What a binding to another language needs beyond aco_runtime.h: tasks that hold their callable and
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
 * As aco_go_with(), but `fn` gets the task's storage, into which `place(storage, arg)` has put
 * what it needs, unless the call fails. `place` must not wait.
 */
int aco_i_spawn_in(const aco_task_options_t *options, void *(*fn)(void *storage),
                   void (*place)(void *storage, void *arg), void *arg, aco_task_t **task);

/* For `fn`: messages name the running task by `name`, unless it has one, or else by the function
 * that it calls, instead of `fn`. Both may be NULL. */
void aco_i_name(const char *name, void *function);

/* For `fn`: what was in the storage has been moved out of it, and the task may wait. */
void aco_i_begin(void);

/* For `fn`: the task will wait no more. Destroys its task-local values; returns the storage for its
 * result, or NULL if nobody wants that: it was detached. */
void *aco_i_finish(void);

/* Waits as aco_join() does, but leaves the task, and what is in its storage, to be joined. */
int aco_i_await_end(aco_task_t *task);

/* Whether that would return at once; right after the end it may say 0. */
int aco_i_has_ended(aco_task_t *task);

/* Frees a task after aco_i_await_end(). */
void aco_i_free_ended(aco_task_t *task);

/* The storage of a task that has ended, or that the caller has just made in its loop. */
void *aco_i_storage(aco_task_t *task);

/*
 * Instead of aco_join(): the task frees itself at its end, or now if it has ended. Before that,
 * `discard`, unless NULL, is called with its storage and what `fn` returned, if aco_i_finish()
 * had returned the storage: by the caller, or by the loop of the task, so it must not wait.
 */
void aco_i_detach(aco_task_t *task, void (*discard)(void *storage, void *result));

/* A call when a task ends, by its loop or in a lock: it must not wait, nor touch that task. */
typedef struct aco_i_watch_s {
    struct aco_i_watch_s *next;
    void (*fn)(struct aco_i_watch_s *watch);
} aco_i_watch_t;

/* Has `watch->fn` called when `task`, which is to be joined, ends; 0 if it has ended already. */
int aco_i_watch(aco_task_t *task, aco_i_watch_t *watch);

/* After it, the watch is not called any more; it may have been. */
void aco_i_unwatch(aco_task_t *task, aco_i_watch_t *watch);

/* Each group can keep a word for its binding, the first one. Whether it is this one. */
int aco_i_group_keep(aco_group_t *group, void *word);

/* As aco_group_join(); `*word` is what the group has kept, or NULL. */
int aco_i_group_join(aco_group_t *group, void **word);

/* As aco_go(), but the task begins after aco_unpark(), which must be called once. It has no stack
 * until then. */
aco_task_t *aco_i_go_parked(void *(*fn)(void *), void *arg);

/* As aco_go(), but the task begins at the time `when`: it has no stack until then. */
int aco_i_go_later(int64_t when, void *(*fn)(void *), void *arg);

/* As aco_within(), and outside of a task for a wait of what tasks wait for, too: a lock, say. Until
 * aco_i_leave(). */
aco_i_scope_t aco_i_enter_timed(int64_t ns);

#ifdef __cplusplus
}
#endif

#endif
