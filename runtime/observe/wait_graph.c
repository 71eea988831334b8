// SPDX-License-Identifier: Apache-2.0
/*
 * Which tasks wait for others, for the watchdog. A task needs others to go on if it waits for locks
 * that they hold, or for their end. Locks know who holds them to write; who holds them to read is
 * noted while there is a watchdog. What is read of tasks and locks changes meanwhile.
 */
#include "knots.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define MOST_IN_FRONT 1000 /* of a reader in its queue, that are looked at */
#define MOST_SEARCHES 16   /* in all tasks, for who has a lock, in one look */

graph_t aco_i_graph;
#define graph aco_i_graph

/* ==== Readers ================================================================================ */

#define CT_LISTS 1024

typedef struct reader_s {
    struct reader_s *next;
    const aco_rwlock_t *rwlock;
    uintptr_t number;
} reader_t;

int aco_i_is_watched;
static reader_t *readers[CT_LISTS];
static lock_t readers_lock;

static reader_t **list_of(const aco_rwlock_t *rwlock)
{
    return &readers[((uintptr_t)rwlock >> 4) * UINT32_C(0x9e3779b1) / 4 % CT_LISTS];
}

/* Takes one reader of a lock from its list, this one if it is there; 0: there is none. */
static int take_reader(const aco_rwlock_t *rwlock, uintptr_t number)
{
    reader_t **any = NULL, **at = list_of(rwlock);
    for (; *at != NULL && ((*at)->rwlock != rwlock || (*at)->number != number); at = &(*at)->next) {
        any = (*at)->rwlock == rwlock ? at : any;
    }
    at = *at != NULL ? at : any;
    if (at == NULL) {
        return 0;
    }
    reader_t *reader = *at;
    *at = reader->next;
    aco_i_release(reader);
    return 1;
}

/* The first reader finds what was noted of another lock at the same address. */
void aco_i_note_reader(const aco_rwlock_t *rwlock, const aco_task_t *task)
{
    reader_t *reader = (reader_t *)aco_i_allocate(sizeof(*reader));
    lock(&readers_lock);
    while (rwlock->ct_readers == 0 && take_reader(rwlock, (uintptr_t)task->id)) {
    }
    if (reader != NULL) {
        reader_t **list = list_of(rwlock);
        *reader = (reader_t){*list, rwlock, (uintptr_t)task->id};
        *list = reader;
    }
    unlock(&readers_lock);
}

void aco_i_drop_reader(const aco_rwlock_t *rwlock, const aco_task_t *task)
{
    lock(&readers_lock);
    take_reader(rwlock, (uintptr_t)task->id);
    unlock(&readers_lock);
}

/* ==== Who waits ============================================================================== */

int aco_i_read_task(const aco_task_t *at, aco_task_t *task)
{
    return aco_i_read_memory(task, at, sizeof(*task)) == sizeof(*task);
}

/* Where the search for the number of a task begins. */
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

/* ==== What they need ========================================================================= */

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

static void add_need(waiter_t *waiter, const aco_task_t *task, kind_t kind)
{
    if (task == NULL || (graph.ct_needs == graph.room_for_needs && !grow_needs())) {
        return;
    }
    graph.needs[graph.ct_needs] = (need_t){task, kind, waiter->first_need};
    waiter->first_need = (uint32_t)++graph.ct_needs;
}

/* Ends that others wait for, those of tasks that wait themselves. */
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

/* The writer that a reader waits behind. */
static void add_writer_ahead(waiter_t *waiter)
{
    node_t node = waiter->node;
    for (int i = 0; i < MOST_IN_FRONT && node.prev != NULL; i++) {
        if (aco_i_read_memory(&node, node.prev, sizeof(node)) != sizeof(node)) {
            return;
        }
        if (node.queue == waiter->queue && node.kind == WRITER) {
            add_need(waiter, node.task, IS_AHEAD);
            return;
        }
    }
}

/* ---- Who has a lock: locks know a number of the task, hooks the last bits of that ---- */

static READS_RACILY void compare_id(const aco_task_t *task, void *arg)
{
    if (((uintptr_t)task->id & *(uintptr_t *)arg) == graph.owner_number) {
        graph.owner = task;
    }
}

/* Tasks that wait are found first: only these can be in a cycle. */
static const aco_task_t *find_by_number(uintptr_t number, uintptr_t mask,
                                        const aco_i_touched_t *touched)
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
        for (size_t i = 0; i < touched->ct; i++) {
            aco_i_each_task(touched->runtimes[i], compare_id, &mask);
        }
    }
    return graph.owner;
}

static void add_owner(waiter_t *waiter, const aco_i_touched_t *touched)
{
    const void *at = (const char *)waiter->queue - offsetof(aco_mutex_t, waiting);
    aco_mutex_t mutex;
    if (aco_i_read_memory(&mutex, at, sizeof(mutex)) == sizeof(mutex)) {
        add_need(waiter, find_by_number(mutex.owner, UINTPTR_MAX, touched), HOLDS);
    }
}

/* Of a lock that so many have to read; none unless all of them are known. */
static void add_readers(waiter_t *waiter, const aco_rwlock_t *rwlock, size_t ct,
                        const aco_i_touched_t *touched)
{
    size_t ct_known = 0;
    lock(&readers_lock);
    for (const reader_t *at = *list_of(rwlock); at != NULL; at = at->next) {
        ct_known += at->rwlock == rwlock;
    }
    for (const reader_t *at = *list_of(rwlock); at != NULL && ct_known == ct; at = at->next) {
        if (at->rwlock == rwlock) {
            add_need(waiter, find_by_number(at->number, UINTPTR_MAX, touched), HOLDS);
        }
    }
    unlock(&readers_lock);
}

static void add_writer_or_readers(waiter_t *waiter, const aco_i_touched_t *touched)
{
    const void *at = (const char *)waiter->queue - offsetof(aco_rwlock_t, waiting);
    aco_rwlock_t rwlock;
    if (aco_i_read_memory(&rwlock, at, sizeof(rwlock)) != sizeof(rwlock)) {
        return;
    }
    if (rwlock.writer != 0) {
        add_need(waiter, find_by_number(rwlock.writer, UINTPTR_MAX, touched), HOLDS);
    } else if (waiter->node.kind == WRITER) {
        add_readers(waiter, (const aco_rwlock_t *)at, rwlock.ct_readers, touched);
    } else {
        add_writer_ahead(waiter);
    }
}

static void add_owner_of_hooks(waiter_t *waiter, const aco_i_touched_t *touched)
{
    pthread_mutex_t mutex;
    if (waiter->reason == FOR_MUTEX &&
        aco_i_read_memory(&mutex, waiter->node.item, sizeof(mutex)) == sizeof(mutex)) {
        uint32_t number = aco_i_locks_of_hooks.owner_of(&mutex);
        add_need(waiter, find_by_number(number, ACO_I_OWNER_BITS, touched), HOLDS);
    }
}

static void add_holders(waiter_t *waiter, const aco_i_touched_t *touched)
{
    uintptr_t offset = (uintptr_t)waiter->queue - (uintptr_t)aco_i_locks_of_hooks.queues;
    if (offset < aco_i_locks_of_hooks.sz) {
        add_owner_of_hooks(waiter, touched);
    } else if (waiter->reason == FOR_MUTEX) {
        add_owner(waiter, touched);
    } else {
        add_writer_or_readers(waiter, touched);
    }
}

static void *map(size_t sz)
{
    void *memory = mmap(NULL, sz, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void aco_i_unmap_graph(void)
{
    if (graph.waiters != NULL) {
        munmap(graph.waiters, graph.room * sizeof(waiter_t));
    }
    if (graph.needs != NULL) {
        munmap(graph.needs, graph.room_for_needs * sizeof(need_t));
    }
    if (graph.numbers != NULL) {
        munmap(graph.numbers, graph.ct_slots * sizeof(uint32_t));
    }
    if (graph.slots != NULL) {
        munmap(graph.slots, graph.ct_slots * sizeof(uint32_t));
    }
    memset(&graph, 0, sizeof(graph));
}

void aco_i_make_graph(const aco_i_touched_t *touched)
{
    size_t ct = 0;
    for (size_t i = 0; i < touched->ct; i++) {
        aco_i_each_task(touched->runtimes[i], count_waiter, &ct);
    }
    if (ct == 0 || ct > UINT32_MAX / 4) {
        return;
    }
    graph.room = graph.room_for_needs = ct;
    graph.ct_slots = 2 * ct + 1;
    graph.waiters = (waiter_t *)map(graph.room * sizeof(waiter_t));
    graph.needs = (need_t *)map(graph.room_for_needs * sizeof(need_t));
    graph.slots = (uint32_t *)map(graph.ct_slots * sizeof(uint32_t));
    graph.numbers = (uint32_t *)map(graph.ct_slots * sizeof(uint32_t));
    if (graph.waiters == NULL || graph.needs == NULL || graph.slots == NULL ||
        graph.numbers == NULL) {
        aco_i_unmap_graph();
        return;
    }
    for (size_t i = 0; i < touched->ct; i++) {
        aco_i_each_task(touched->runtimes[i], add_waiter, NULL);
    }
    for (size_t i = 0; i < touched->ct; i++) {
        aco_i_each_task(touched->runtimes[i], add_ends, NULL);
    }
    for (size_t i = 0; i < graph.ct_waiters; i++) {
        waiter_t *waiter = &graph.waiters[i];
        if (waiter->queue != NULL && waiter->reason != FOR_JOIN && waiter->reason != FOR_GROUP) {
            add_holders(waiter, touched);
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

void aco_i_forget_graph(void)
{
    memset(&graph, 0, sizeof(graph));
    memset(readers, 0, sizeof(readers));
    memset(&readers_lock, 0, sizeof(readers_lock));
}
