// SPDX-License-Identifier: Apache-2.0
/* Locks, channels, broadcasts and groups: what their files share, and other folders use. */
#ifndef ACO_RUNTIME_SYNC_H
#define ACO_RUNTIME_SYNC_H

#include "sched/sched.h"

#include <errno.h>
#include <string.h>

/* Allocates a struct of `sz` bytes, all 0, and room for items behind it; NULL with ENOMEM. */
static inline void *new_with_items(size_t sz, size_t item_sz, size_t capacity)
{
    size_t whole_sz;
    void *block = NULL;
    if (!__builtin_mul_overflow(item_sz, capacity, &whole_sz) &&
        !__builtin_add_overflow(whole_sz, sz, &whole_sz)) {
        block = aco_i_allocate(whole_sz);
    }
    if (block == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    return memset(block, 0, sz);
}

/* ---- sync.c ---- */

/* Claims the waits of all tasks in `queue`; returns these, linked by their `next`. */
HIDDEN aco_task_t *aco_i_claim_all(queue_t *queue);

/* `kind` of a node that waits for an rwlock; HANDED_OVER: an unlock has locked it for the task. */
enum { READER, WRITER, HANDED_OVER };

/* ---- readers.c ---- */

/* Whether there is a watchdog, which wants to know the readers of rwlocks. */
extern HIDDEN int aco_i_is_watched;

/* Record that a task has locked an rwlock to read, or unlocked it; the rwlock's lock is held. */
HIDDEN void aco_i_note_reader(const aco_rwlock_t *rwlock, const aco_task_t *task);
HIDDEN void aco_i_drop_reader(const aco_rwlock_t *rwlock, const aco_task_t *task);

/* Calls `fn` with the id of each reader of a lock, if all `ct` of them are known. */
HIDDEN void aco_i_each_reader(const aco_rwlock_t *rwlock, size_t ct,
                              void (*fn)(uintptr_t id, void *arg), void *arg);

#endif
