// SPDX-License-Identifier: Apache-2.0
/* What knots.c and deadlocks.c share: which tasks wait for others, and for which. */
#ifndef ACO_RUNTIME_KNOTS_H
#define ACO_RUNTIME_KNOTS_H

#include "internal.h"

typedef enum { HOLDS, ENDS, BELONGS, IS_AHEAD } kind_t;

/* A task that another one needs to go on. */
typedef struct {
    const aco_task_t *task;
    kind_t kind;
    uint32_t next; /* of the same waiter: 1 + its index; 0: none */
} need_t;

/* A task that waits for locks or ends. */
typedef struct {
    const aco_task_t *task;
    uint64_t id;
    int64_t since;
    aco_group_t *group;
    queue_t *queue; /* of a lock */
    node_t node;
    reason_t reason;
    char is_bounded; /* has a deadline */
    char is_doomed;  /* needs a task of a known cycle, or is one */
    char is_done, is_on_way;
    uint32_t first_need, need; /* 1 + index; `need` is where the way went on */
    uint32_t from;             /* before it on the way: 1 + index */
} waiter_t;

/* Of one look. */
typedef struct {
    waiter_t *waiters;
    need_t *needs;
    uint32_t *slots; /* a hash table: 1 + index of a waiter */
    size_t ct_waiters, ct_needs, room, room_for_needs, ct_slots;
    uint32_t *numbers; /* the same, by the last bits of ids */
    uint32_t ct_searches;
    uintptr_t owner_number;  /* what the last search among all tasks was for */
    const aco_task_t *owner; /* and what it has found */
} graph_t;
extern HIDDEN graph_t aco_i_graph;

/* Makes it, empty if no task waits for another, or there is no memory. */
HIDDEN void aco_i_make_graph(const aco_i_touched_t *touched);
HIDDEN void aco_i_unmap_graph(void);
/* In a child after fork(). */
HIDDEN void aco_i_forget_graph(void);
/* NULL: it does not wait for a lock or an end. */
HIDDEN waiter_t *aco_i_find_waiter(const aco_task_t *task);
/* How a waiter, or NULL, needs another task; NULL: it does not. */
HIDDEN const need_t *aco_i_find_need(const waiter_t *waiter, const aco_task_t *task);
/* 0 if the memory is gone. */
HIDDEN int aco_i_read_task(const aco_task_t *at, aco_task_t *task);

/* Waits, and nothing has ended its wait so far. */
static inline READS_RACILY int is_stuck(const aco_task_t *task)
{
    return task->state == TASK_WAITING && task->wait != WAIT_NONE && task->wait < WAIT_EVENT;
}

static inline int waits_for_tasks(reason_t reason)
{
    return reason == FOR_MUTEX || reason == FOR_RWLOCK || reason == FOR_JOIN || reason == FOR_GROUP;
}

#endif
