// SPDX-License-Identifier: Apache-2.0
/*
 * Tasks that wait for each other, for the watchdog: those of a cycle, in which each waits for a
 * lock that the next one holds, or for its end; and those of a runtime in which nothing can happen
 * any more; and tasks that hold a lock while they wait. What is read changes meanwhile, so
 * a knot counts only if the next look finds it as it was.
 */
#include "internal.h"

#include <dirent.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define CT_SLOTS 65536u /* a power of two; tasks that wait for locks or ends beyond are left out */
#define MOST_IN_CYCLE 64
#define SECOND INT64_C(1000000000)

/* A task that waits, or that another one waits for. */
typedef struct {
    uintptr_t id;           /* as locks know their owners; 0: the slot is free */
    uintptr_t holder;       /* whom it waits for; 0: nobody who is known */
    const aco_task_t *task; /* NULL: not found so far */
    unsigned visit;         /* the start whose way came here; 0: none */
} edge_t;

static edge_t *edges;
static size_t ct_edges;

/* What the last message of each kind was about. */
static struct {
    uint64_t cycle, held, standstill; /* sums of ids and times of tasks */
    uint64_t cycle_seen, held_seen, standstill_seen;
} last;

/* Its slot, perhaps a free one; NULL: there is none. */
static edge_t *find_edge(uintptr_t id)
{
    size_t i = (size_t)((uint64_t)id * UINT64_C(0x9e3779b97f4a7c15) >> 32);
    for (size_t tries = 0; tries < CT_SLOTS; tries++, i++) {
        edge_t *edge = &edges[i % CT_SLOTS];
        if (edge->id == id || edge->id == 0) {
            return edge;
        }
    }
    return NULL;
}

/* The edge of a task, perhaps a new one. */
static edge_t *take_edge(uintptr_t id)
{
    edge_t *edge = find_edge(id);
    ct_edges += edge->id == 0;
    edge->id = id;
    return edge;
}

static void add_edge(const aco_task_t *at, const aco_task_t *task, uintptr_t holder)
{
    uintptr_t id = (uintptr_t)task->id;
    if (holder == 0 || id == 0 || holder == id || ct_edges >= CT_SLOTS / 2) {
        return;
    }
    edge_t *edge = take_edge(id);
    edge->task = at;
    edge->holder = holder;
    take_edge(holder);
}

/* ==== Who waits for whom ===================================================================== */

static int read_task(const aco_task_t *at, aco_task_t *task)
{
    return aco_i_read_memory(task, at, sizeof(*task)) == sizeof(*task);
}

/* Waits, and nothing has ended its wait so far. */
static int is_stuck(const aco_task_t *task)
{
    return task->state == TASK_WAITING && task->wait != WAIT_NONE && task->wait < WAIT_EVENT;
}

/* Who holds the lock that a task waits for; 0: nobody who is known. */
static uintptr_t holder_of(const aco_task_t *task)
{
    const char *queue = (const char *)task->node.queue;
    aco_mutex_t mutex;
    aco_rwlock_t rwlock;
    if (task->reason == FOR_MUTEX && queue != NULL) {
        queue -= offsetof(aco_mutex_t, waiting);
        return aco_i_read_memory(&mutex, queue, sizeof(mutex)) == sizeof(mutex) ? mutex.owner : 0;
    }
    if (task->reason == FOR_RWLOCK && queue != NULL) {
        queue -= offsetof(aco_rwlock_t, waiting);
        return aco_i_read_memory(&rwlock, queue, sizeof(rwlock)) == sizeof(rwlock) ? rwlock.writer
                                                                                   : 0;
    }
    return 0;
}

static void add_joiner(const aco_task_t *at, const aco_task_t *task)
{
    aco_task_t joiner;
    if (at != NULL && read_task(at, &joiner)) {
        add_edge(at, &joiner, (uintptr_t)task->id);
    }
}

static void add_edges(const aco_task_t *at, int64_t now, void *arg)
{
    aco_task_t task;
    (void)now;
    (void)arg;
    if (!read_task(at, &task) || !is_stuck(&task)) {
        return;
    }
    add_edge(at, &task, holder_of(&task));
    add_joiner(task.joiner, &task);
    add_joiner(task.group == NULL ? NULL : aco_i_joiner_of(task.group), &task);
}

/* Those that hold a lock, and wait for nobody. */
static void find_holder(const aco_task_t *at, int64_t now, void *arg)
{
    aco_task_t task;
    (void)now;
    (void)arg;
    edge_t *edge = read_task(at, &task) ? find_edge((uintptr_t)task.id) : NULL;
    if (edge != NULL && edge->id != 0) {
        edge->task = at;
    }
}

/* ==== Cycles ================================================================================= */

/* Follows the edges from a task to one that was met before on the same way; NULL: they end. */
static const edge_t *follow(edge_t *edge, unsigned visit)
{
    while (edge->holder != 0 && edge->visit == 0) {
        edge->visit = visit;
        edge = find_edge(edge->holder);
    }
    return edge->holder != 0 && edge->visit == visit ? edge : NULL;
}

static uint64_t sum_of(const aco_task_t *task)
{
    return task->id * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)task->since;
}

/* That of an edge, unless another task is there by now. */
static int read_task_of(const edge_t *edge, aco_task_t *task)
{
    return edge->task != NULL && read_task(edge->task, task) && (uintptr_t)task->id == edge->id;
}

/* The sum of a cycle whose tasks will wait for ever; 0 if it is none. */
static uint64_t check_cycle(const edge_t *first)
{
    uint64_t sum = 0;
    const edge_t *edge = first;
    aco_task_t task;
    for (int ct = 0; ct == 0 || edge != first; ct++, edge = find_edge(edge->holder)) {
        if (ct == MOST_IN_CYCLE || !read_task_of(edge, &task) || !is_stuck(&task) ||
            task.deadline != NO_DEADLINE) {
            return 0;
        }
        sum += sum_of(&task);
    }
    return sum;
}

static void put_edge(aco_i_text_t *text, const edge_t *edge)
{
    aco_task_t task, holder;
    aco_i_place_t place;
    if (!read_task_of(edge, &task)) {
        return;
    }
    aco_i_place_of(&task, &place);
    aco_i_put_task(text, &task, &place, aco_i_clock());
    aco_i_put_frames(text, &place);
    if (read_task_of(find_edge(edge->holder), &holder)) {
        int is_lock = task.reason == FOR_MUTEX || task.reason == FOR_RWLOCK;
        aco_i_put(text, is_lock ? "  which is held by task " : "  which is waited for: task ");
        aco_i_put_number(text, holder.id, 10);
        aco_i_put_name(text, &holder);
        aco_i_put(text, "\n");
    }
}

static void tell_cycle(const edge_t *first)
{
    aco_i_text_t text = {.fd = STDERR_FILENO};
    const edge_t *edge = first;
    aco_i_find_modules();
    aco_i_begin_places();
    aco_i_put(&text, "aco: watchdog: deadlock: these tasks wait for each other:\n");
    do {
        put_edge(&text, edge);
        edge = find_edge(edge->holder);
    } while (edge != first);
    aco_i_end_places();
    aco_i_flush(&text);
}

static void look_for_cycles(void)
{
    for (unsigned i = 0; i < CT_SLOTS; i++) {
        const edge_t *first = follow(&edges[i], i + 1);
        uint64_t sum = first == NULL ? 0 : check_cycle(first);
        if (sum == 0) {
            continue;
        }
        if (sum == last.cycle_seen && sum != last.cycle) {
            last.cycle = sum;
            tell_cycle(first);
        }
        last.cycle_seen = sum;
        return;
    }
}

/* ==== Locks that are held ==================================================================== */

/* A task that has waited for a lock longer than the limit, whose holder has waited so long for
 * something else, while its thread slept, had all the time to go on, and nothing to do. */
static void look_for_holders(int64_t limit)
{
    int64_t now = aco_i_clock();
    for (unsigned i = 0; i < CT_SLOTS; i++) {
        aco_task_t task, holder;
        const edge_t *edge = &edges[i];
        if (edge->holder == 0 || !read_task_of(edge, &task) ||
            !read_task_of(find_edge(edge->holder), &holder) || holder.loop == NULL ||
            !is_stuck(&task) || !is_stuck(&holder) ||
            (task.reason != FOR_MUTEX && task.reason != FOR_RWLOCK) ||
            find_edge(edge->holder)->holder != 0 || now - task.since < limit ||
            now - holder.since < limit || !aco_i_is_thread_asleep(holder.loop)) {
            continue;
        }
        uint64_t sum = sum_of(&holder);
        if (sum == last.held_seen && sum != last.held) {
            aco_i_text_t text = {.fd = STDERR_FILENO};
            aco_i_place_t place;
            last.held = sum;
            aco_i_find_modules();
            aco_i_begin_places();
            aco_i_put(&text, "aco: watchdog: a lock is held over a wait, and others want it:\n");
            put_edge(&text, edge);
            aco_i_place_of(&holder, &place);
            aco_i_put_task(&text, &holder, &place, now);
            aco_i_put_frames(&text, &place);
            aco_i_end_places();
            aco_i_flush(&text);
        }
        last.held_seen = sum;
        return;
    }
}

/* ==== Standstill ============================================================================= */

typedef struct {
    uint64_t sum;
    size_t ct, ct_that_may_wake;
} standstill_t;

static void count_stuck(const aco_task_t *at, int64_t now, void *arg)
{
    static const reason_t reasons[] = {FOR_JOIN, FOR_GROUP,     FOR_MUTEX,      FOR_RWLOCK,
                                       FOR_COND, FOR_SEMAPHORE, FOR_WAIT_GROUP, FOR_SEND,
                                       FOR_RECV, FOR_SELECT};
    standstill_t *s = (standstill_t *)arg;
    aco_task_t task;
    int is_found = 0;
    (void)now;
    if (!read_task(at, &task) || task.state == TASK_ENDED || task.state == TASK_FREE) {
        return;
    }
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        is_found |= task.reason == reasons[i];
    }
    s->ct++;
    s->sum += sum_of(&task);
    s->ct_that_may_wake += !is_found || !is_stuck(&task) || task.deadline != NO_DEADLINE;
}

/* Threads of the process, or 0 if that can't be told. */
static int ct_threads(void)
{
    int ct = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        ct += entry->d_name[0] != '.';
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return ct;
}

/* Where all tasks wait for tasks, and no other thread is there that could wake one. */
static void look_for_standstill(runtime_t *runtime)
{
    standstill_t s = {0, 0, 0};
    for (int i = 0; i < runtime->ct_loops; i++) {
        if (!__atomic_load_n(&runtime->loops[i].is_asleep, __ATOMIC_SEQ_CST) ||
            runtime->loops[i].timer_fd >= 0) {
            return;
        }
    }
    aco_i_each_task(runtime, count_stuck, &s);
    if (s.ct == 0 || s.ct_that_may_wake != 0 ||
        ct_threads() != runtime->ct_loops + aco_i_ct_own_threads()) {
        return;
    }
    if (s.sum == last.standstill_seen && s.sum != last.standstill && last.cycle_seen == 0) {
        aco_i_text_t text = {.fd = STDERR_FILENO};
        aco_i_registers_t none = {0, 0, 0, 0};
        last.standstill = s.sum;
        aco_i_put(&text, "aco: watchdog: deadlock: all tasks wait for each other:\n");
        aco_i_find_modules();
        aco_i_list_tasks(&text, &none);
        aco_i_flush(&text);
    }
    last.standstill_seen = s.sum;
}

void aco_i_look_for_knots(const aco_i_touched_t *touched, int64_t limit)
{
    size_t sz = CT_SLOTS * sizeof(*edges);
    void *memory = mmap(NULL, sz, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return;
    }
    edges = (edge_t *)memory;
    ct_edges = 0;
    for (size_t i = 0; i < touched->ct; i++) {
        aco_i_each_task(touched->runtimes[i], add_edges, NULL);
    }
    for (size_t i = 0; i < touched->ct && ct_edges != 0; i++) {
        aco_i_each_task(touched->runtimes[i], find_holder, NULL);
    }
    if (ct_edges != 0) {
        look_for_cycles();
        look_for_holders(limit);
    }
    for (size_t i = 0; i < touched->ct; i++) {
        look_for_standstill(touched->runtimes[i]);
    }
    munmap(memory, sz);
}
