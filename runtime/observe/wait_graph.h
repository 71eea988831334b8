// SPDX-License-Identifier: Apache-2.0
/* The graph of waits, which wait_graph.c makes and deadlocks.c reads. */
#ifndef ACO_RUNTIME_WAIT_GRAPH_H
#define ACO_RUNTIME_WAIT_GRAPH_H

#include "observe/observe.h"

/* The needed task holds the lock, is joined, belongs to the group, or is a writer ahead. */
typedef enum { HOLDS, ENDS, BELONGS, IS_AHEAD } need_kind_t;

/* A task that another one needs to go on. */
typedef struct {
    const aco_task_t *task;
    need_kind_t kind;
    uint32_t next; /* need of the same waiter: 1 + its index; 0: none */
} need_t;

/* A task that waits for a lock, or for the end of others. */
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
    uint32_t first_need, need; /* 1 + index; `need` is the next one to follow */
    uint32_t from;             /* the waiter before it on the way: 1 + index */
} waiter_t;

/* The graph of one look. */
typedef struct {
    waiter_t *waiters;
    need_t *needs;
    uint32_t *slots; /* a hash table: 1 + index of a waiter */
    size_t ct_waiters, ct_needs, room, room_for_needs, ct_slots;
    uint32_t *numbers; /* the same, by the last bits of ids */
    uint32_t ct_searches;
    uintptr_t owner_number;  /* the number that all tasks were last searched for */
    const aco_task_t *owner; /* and the task that was found */
} graph_t;
extern HIDDEN graph_t aco_i_graph;

/* Makes the graph; it is empty if no task waits for another, or there is no memory. */
HIDDEN void aco_i_make_graph(const aco_i_held_t *held);
HIDDEN void aco_i_unmap_graph(void);
/* The waiter that a task is; NULL: it waits for no lock and no end. */
HIDDEN waiter_t *aco_i_find_waiter(const aco_task_t *task);
/* The need of a waiter, or NULL, for a task; NULL: there is none. */
HIDDEN const need_t *aco_i_find_need(const waiter_t *waiter, const aco_task_t *task);

/* Whether a task waits, and nothing has ended its wait so far. */
static inline READS_RACILY int is_stuck(const aco_task_t *task)
{
    return task->state == TASK_WAITING && task->wait != WAIT_NONE && task->wait < WAIT_EVENT;
}

static inline int waits_for_tasks(reason_t reason)
{
    return reason == FOR_MUTEX || reason == FOR_RWLOCK || reason == FOR_JOIN || reason == FOR_GROUP;
}

#endif
