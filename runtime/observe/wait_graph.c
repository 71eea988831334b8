// SPDX-License-Identifier: Apache-2.0
/*
 * Makes the graph of tasks that wait for others, for the watchdog. A task needs others to go on if
 * it waits for locks that they hold, or for their end. Locks know who holds them to write; who
 * holds them to read is noted while there is a watchdog. Tasks and locks change while they are
 * read.
 */
#include "observe/wait_graph.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define MOST_IN_FRONT 1000 /* waiters that are looked at in front of a reader in its queue */
#define MOST_SEARCHES 16   /* searches of all tasks for the owner of a lock, in one look */

graph_t aco_i_graph;
#define graph aco_i_graph

/* ==== Waiters ================================================================================ */

/* The slot at which the search for the number of a task begins. */
static size_t first_slot(uintptr_t number)
{
    return (size_t)((number & ACO_I_OWNER_BITS) * UINT64_C(0x9e3779b97f4a7c15) >> 32) %
           graph.ct_slots;
}

static uint32_t *find_slot(const aco_task_t *task)
{
    size_t i = (size_t)(((uintptr_t)task >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
    for (;; i++) {
        uint32_t *slot = &graph.slots[i % graph.ct_slots];
        if (*slot == 0 || graph.waiters[*slot - 1].task == task) {
            return slot;
        }
    }
}

waiter_t *aco_i_find_waiter(const aco_task_t *task)
{
    uint32_t number = graph.ct_slots == 0 ? 0 : *find_slot(task);
    return number == 0 ? NULL : &graph.waiters[number - 1];
}

static READS_RACILY void count_waiter(const aco_task_t *task, void *arg)
{
    *(size_t *)arg += is_stuck(task) && waits_for_tasks(task->reason);
}

static READS_RACILY void add_waiter(const aco_task_t *task, void *arg)
{
    reason_t reason = task->reason;
    (void)arg;
    if (!is_stuck(task) || !waits_for_tasks(reason) || graph.ct_waiters == graph.room) {
        return;
    }
    waiter_t *waiter = &graph.waiters[graph.ct_waiters++];
    waiter->task = task;
    waiter->id = task->id;
    waiter->since = task->since;
    waiter->queue = task->node.queue;
    waiter->node.prev = task->node.prev;
    waiter->node.kind = task->node.kind;
    waiter->node.item = task->node.item;
    waiter->reason = reason;
    waiter->is_bounded = task->deadline != NO_DEADLINE;
    *find_slot(task) = (uint32_t)graph.ct_waiters;
    size_t i = first_slot((uintptr_t)waiter->id);
    while (graph.numbers[i] != 0) {
        i = (i + 1) % graph.ct_slots;
    }
    graph.numbers[i] = (uint32_t)graph.ct_waiters;
}

/* ==== Needs ================================================================================== */

static int grow_needs(void)
{
    size_t sz = graph.room_for_needs * sizeof(need_t);
    void *memory = mremap(graph.needs, sz, 2 * sz, MREMAP_MAYMOVE);
    if (memory == MAP_FAILED) {
        return 0;
    }
    graph.needs = (need_t *)memory;
    graph.room_for_needs *= 2;
    return 1;
}

static void add_need(waiter_t *waiter, const aco_task_t *task, need_kind_t kind)
{
    if (task == NULL || (graph.ct_needs == graph.room_for_needs && !grow_needs())) {
        return;
    }
    graph.needs[graph.ct_needs] = (need_t){task, kind, waiter->first_need};
    waiter->first_need = (uint32_t)++graph.ct_needs;
}

/* Adds the needs for the end of a task, if that waits itself. */
static READS_RACILY void add_ends(const aco_task_t *task, void *arg)
{
    static const aco_group_t *last;
    static const aco_task_t *joiner_of_last;
    const aco_group_t *group = task->group;
    (void)arg;
    if (aco_i_find_waiter(task) == NULL) {
        return;
    }
    waiter_t *waiter = task->joiner == NULL ? NULL : aco_i_find_waiter(task->joiner);
    if (waiter != NULL && waiter->reason == FOR_JOIN) {
        add_need(waiter, task, ENDS);
    }
    if (group != last) {
        last = group;
        joiner_of_last = group == NULL ? NULL : aco_i_joiner_of(group);
    }
    waiter = joiner_of_last == NULL ? NULL : aco_i_find_waiter(joiner_of_last);
    if (waiter != NULL && waiter->reason == FOR_GROUP) {
        add_need(waiter, task, BELONGS);
    }
}

/* Adds the writer that a reader waits behind. */
static void add_writer_ahead(waiter_t *waiter)
{
    node_t node = waiter->node;
    for (int i = 0; i < MOST_IN_FRONT && node.prev != NULL; i++) {
        if (!READ_STRUCT(&node, node.prev)) {
            return;
        }
        if (node.queue == waiter->queue && node.kind == WRITER) {
            add_need(waiter, node.task, IS_AHEAD);
            return;
        }
    }
}

/* ---- Owners of locks: locks know the low word of a task's id, hooks its last bits ---- */

static READS_RACILY void compare_id(const aco_task_t *task, void *arg)
{
    if (((uintptr_t)task->id & *(uintptr_t *)arg) == graph.owner_number) {
        graph.owner = task;
    }
}

/* Looks among waiters first: only these can be in a cycle. */
static const aco_task_t *find_by_number(uintptr_t number, uintptr_t mask, const aco_i_held_t *held)
{
    const waiter_t *waiter = NULL;
    for (size_t i = first_slot(number); number != 0 && graph.numbers[i] != 0 && waiter == NULL;) {
        const waiter_t *at = &graph.waiters[graph.numbers[i] - 1];
        waiter = ((uintptr_t)at->id & mask) == number ? at : NULL;
        i = (i + 1) % graph.ct_slots;
    }
    if (number == 0 || waiter != NULL || graph.owner_number == number) {
        return waiter != NULL ? waiter->task : number == 0 ? NULL : graph.owner;
    }
    graph.owner_number = number;
    graph.owner = NULL;
    if (++graph.ct_searches <= MOST_SEARCHES) {
        for (size_t i = 0; i < held->ct; i++) {
            aco_i_each_task(held->runtimes[i], compare_id, &mask);
        }
    }
    return graph.owner;
}

static void add_owner(waiter_t *waiter, const aco_i_held_t *held)
{
    const void *at = (const char *)waiter->queue - offsetof(aco_mutex_t, waiting);
    aco_mutex_t mutex;
    if (READ_STRUCT(&mutex, at)) {
        add_need(waiter, find_by_number(mutex.owner, UINTPTR_MAX, held), HOLDS);
    }
}

typedef struct {
    waiter_t *waiter;
    const aco_i_held_t *held;
} reader_search_t;

static void add_reader(uintptr_t number, void *arg)
{
    const reader_search_t *search = (const reader_search_t *)arg;
    add_need(search->waiter, find_by_number(number, UINTPTR_MAX, search->held), HOLDS);
}

static void add_writer_or_readers(waiter_t *waiter, const aco_i_held_t *held)
{
    const void *at = (const char *)waiter->queue - offsetof(aco_rwlock_t, waiting);
    aco_rwlock_t rwlock;
    if (!READ_STRUCT(&rwlock, at)) {
        return;
    }
    if (rwlock.writer != 0) {
        add_need(waiter, find_by_number(rwlock.writer, UINTPTR_MAX, held), HOLDS);
    } else if (waiter->node.kind == WRITER) {
        reader_search_t search = {waiter, held};
        aco_i_each_reader((const aco_rwlock_t *)at, rwlock.ct_readers, add_reader, &search);
    } else {
        add_writer_ahead(waiter);
    }
}

static void add_owner_of_hooks(waiter_t *waiter, const aco_i_held_t *held)
{
    pthread_mutex_t mutex;
    if (waiter->reason == FOR_MUTEX && READ_STRUCT(&mutex, waiter->node.item)) {
        uint32_t number = aco_i_locks_of_hooks.owner_of(&mutex);
        add_need(waiter, find_by_number(number, ACO_I_OWNER_BITS, held), HOLDS);
    }
}

static void add_holders(waiter_t *waiter, const aco_i_held_t *held)
{
    uintptr_t offset = (uintptr_t)waiter->queue - (uintptr_t)aco_i_locks_of_hooks.queues;
    if (offset < aco_i_locks_of_hooks.sz) {
        add_owner_of_hooks(waiter, held);
    } else if (waiter->reason == FOR_MUTEX) {
        add_owner(waiter, held);
    } else {
        add_writer_or_readers(waiter, held);
    }
}

static void unmap(void *memory, size_t sz)
{
    if (memory != NULL) {
        munmap(memory, sz);
    }
}

void aco_i_unmap_graph(void)
{
    unmap(graph.waiters, graph.room * sizeof(waiter_t));
    unmap(graph.needs, graph.room_for_needs * sizeof(need_t));
    unmap(graph.numbers, graph.ct_slots * sizeof(uint32_t));
    unmap(graph.slots, graph.ct_slots * sizeof(uint32_t));
    memset(&graph, 0, sizeof(graph));
}

static void forget_graph(void)
{
    memset(&graph, 0, sizeof(graph));
}

void aco_i_make_graph(const aco_i_held_t *held)
{
    static aco_i_fork_handler_t handler = {.fn = forget_graph};
    size_t ct = 0;
    aco_i_at_fork(&handler);
    for (size_t i = 0; i < held->ct; i++) {
        aco_i_each_task(held->runtimes[i], count_waiter, &ct);
    }
    if (ct == 0 || ct > UINT32_MAX / 4) {
        return;
    }
    graph.room = graph.room_for_needs = ct;
    graph.ct_slots = 2 * ct + 1;
    graph.waiters = (waiter_t *)aco_i_map(graph.room * sizeof(waiter_t), 0);
    graph.needs = (need_t *)aco_i_map(graph.room_for_needs * sizeof(need_t), 0);
    graph.slots = (uint32_t *)aco_i_map(graph.ct_slots * sizeof(uint32_t), 0);
    graph.numbers = (uint32_t *)aco_i_map(graph.ct_slots * sizeof(uint32_t), 0);
    if (graph.waiters == NULL || graph.needs == NULL || graph.slots == NULL ||
        graph.numbers == NULL) {
        aco_i_unmap_graph();
        return;
    }
    for (size_t i = 0; i < held->ct; i++) {
        aco_i_each_task(held->runtimes[i], add_waiter, NULL);
    }
    for (size_t i = 0; i < held->ct; i++) {
        aco_i_each_task(held->runtimes[i], add_ends, NULL);
    }
    for (size_t i = 0; i < graph.ct_waiters; i++) {
        waiter_t *waiter = &graph.waiters[i];
        if (waiter->queue != NULL && waiter->reason != FOR_JOIN && waiter->reason != FOR_GROUP) {
            add_holders(waiter, held);
        }
    }
}

const need_t *aco_i_find_need(const waiter_t *waiter, const aco_task_t *task)
{
    uint32_t i = waiter == NULL ? 0 : waiter->first_need;
    while (i != 0 && graph.needs[i - 1].task != task) {
        i = graph.needs[i - 1].next;
    }
    return i == 0 ? NULL : &graph.needs[i - 1];
}
