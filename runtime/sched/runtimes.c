// SPDX-License-Identifier: Apache-2.0
/* Lists the runtimes of the process, and keeps the counts of those that have ended. */
#include "sched/sched.h"

#include <string.h>
#include <sys/mman.h>

static struct {
    lock_t lock; /* for all that follows */
    runtime_t *first;
    runtime_t *parents; /* in a child: the parent's, to which frames of its caller may refer */
    counts_t ended;     /* counted by runtimes that have ended */
} all;

static READS_RACILY void add_durations(durations_t *sum, const durations_t *durations)
{
    for (int i = 0; i <= CT_DURATIONS; i++) {
        sum->ct[i] += durations->ct[i];
    }
    sum->sum += durations->sum;
}

static READS_RACILY void add_counts(counts_t *sum, const counts_t *counts)
{
    sum->ct_started += counts->ct_started;
    sum->ct_switches += counts->ct_switches;
    sum->ct_wakes += counts->ct_wakes;
    sum->ct_polls += counts->ct_polls;
    sum->ct_offloads += counts->ct_offloads;
    add_durations(&sum->turns, &counts->turns);
    add_durations(&sum->delays, &counts->delays);
}

static void add_counts_of(counts_t *sum, const runtime_t *runtime)
{
    for (int i = 0; i < runtime->ct_loops; i++) {
        add_counts(sum, &runtime->loops[i].counts);
    }
}

void aco_i_lock_runtimes(void)
{
    lock(&all.lock);
}

void aco_i_unlock_runtimes(void)
{
    unlock(&all.lock);
}

/* ==== After fork() =========================================================================== */

static void close_one(int *fd)
{
    if (*fd >= 0) {
        aco_i_libc.close(*fd);
        *fd = -1;
    }
}

/* Takes the runtimes from a child: it lacks their threads, and would share their epoll instances
 * with the parent. */
static void begin_child(void)
{
    memset(&all.lock, 0, sizeof(all.lock)); /* a thread that the child lacks may hold it */
    runtime_t **link = &all.first;
    for (; *link != NULL; link = &(*link)->next) {
        (*link)->is_of_parent = 1;
        memset(&(*link)->lock, 0, sizeof((*link)->lock));
        for (int i = 0; i < (*link)->ct_loops; i++) {
            loop_t *loop = &(*link)->loops[i];
            close_one(&loop->event_fd);
            close_one(&loop->epoll_fd);
            close_one(&loop->timer_fd);
            close_one(&loop->ring_fd);
        }
    }
    *link = all.parents;
    all.parents = all.first;
    all.first = NULL;
    memset(&all.ended, 0, sizeof(all.ended));
}

/* ==== The list =============================================================================== */

void aco_i_enter_runtime(runtime_t *runtime)
{
    static aco_i_fork_handler_t handler = {.fn = begin_child};
    aco_i_at_fork(&handler);
    lock(&all.lock);
    runtime->next = all.first;
    all.first = runtime;
    unlock(&all.lock);
}

void aco_i_take_runtime(runtime_t *runtime)
{
    lock(&all.lock);
    runtime_t **link = &all.first;
    while (*link != runtime) {
        link = &(*link)->next;
    }
    *link = runtime->next;
    add_counts_of(&all.ended, runtime);
    unlock(&all.lock);
}

void aco_i_each_runtime(void (*fn)(runtime_t *runtime, void *arg), void *arg)
{
    lock(&all.lock);
    for (runtime_t *runtime = all.first; runtime != NULL; runtime = runtime->next) {
        fn(runtime, arg);
    }
    unlock(&all.lock);
}

runtime_t *aco_i_hold_runtime_of(const void *object,
                                 int (*has)(runtime_t *runtime, const void *object))
{
    lock(&all.lock);
    runtime_t *runtime = all.first;
    while (runtime != NULL && !has(runtime, object)) {
        runtime = runtime->next;
    }
    for (runtime = runtime != NULL ? runtime : all.parents;
         runtime != NULL && !has(runtime, object);) {
        runtime = runtime->next;
    }
    if (runtime != NULL) {
        aco_i_hold_runtime(runtime);
    }
    unlock(&all.lock);
    return runtime;
}

/* Makes room in `held` for `ct` runtimes, or for as many as there is memory for. */
static void make_room(aco_i_held_t *held, size_t ct)
{
    size_t sz = ct * sizeof(runtime_t *);
    void *memory = MAP_FAILED;
    if (ct > sizeof(held->few) / sizeof(held->few[0])) {
        memory = mmap(NULL, sz, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    held->mapped_sz = memory == MAP_FAILED ? 0 : sz;
    held->runtimes = memory == MAP_FAILED ? held->few : (runtime_t **)memory;
}

READS_RACILY void aco_i_hold_runtimes(aco_i_held_t *held)
{
    size_t most = 0, room;
    int is_locked = aco_i_try_to_lock(&all.lock);
    for (const runtime_t *runtime = all.first; runtime != NULL; runtime = runtime->next) {
        most++;
    }
    make_room(held, most);
    room = held->mapped_sz != 0 ? most : sizeof(held->few) / sizeof(held->few[0]);
    held->ct = 0;
    for (runtime_t *runtime = all.first; runtime != NULL && held->ct < room;
         runtime = runtime->next) {
        aco_i_hold_runtime(runtime);
        held->runtimes[held->ct++] = runtime;
    }
    held->ct_left_out = most - held->ct;
    if (is_locked) {
        unlock(&all.lock);
    }
}

void aco_i_drop_runtimes(aco_i_held_t *held)
{
    for (size_t i = 0; i < held->ct; i++) {
        aco_i_drop_runtime(held->runtimes[i]);
    }
    if (held->mapped_sz != 0) {
        munmap(held->runtimes, held->mapped_sz);
    }
}

/* ==== Counts ================================================================================= */

void aco_i_sum_counts(counts_t *sum)
{
    lock(&all.lock);
    *sum = all.ended;
    for (const runtime_t *runtime = all.first; runtime != NULL; runtime = runtime->next) {
        add_counts_of(sum, runtime);
    }
    unlock(&all.lock);
}

static void add_stacks(aco_stats_t *stats, aco_stack_pool_t *pool)
{
    aco_stack_pool_stats_t of_pool;
    if (pool != NULL) {
        aco_stack_pool_stats(pool, &of_pool);
        stats->stacks_sz += of_pool.mapped_sz;
    }
}

static READS_RACILY void add_present(runtime_t *runtime, void *arg)
{
    aco_stats_t *stats = (aco_stats_t *)arg;
    stats->ct_tasks += __atomic_load_n(&runtime->ct_tasks, __ATOMIC_RELAXED);
    for (int i = 0; i < runtime->ct_loops; i++) {
        const loop_t *loop = &runtime->loops[i];
        aco_stack_pool_t *pool = __atomic_load_n(&loop->pool, __ATOMIC_ACQUIRE);
        stats->ct_timers += loop->ct_timers;
        add_stacks(stats, pool);
        for (int class = 0; class < CT_CLASSES; class ++) {
            add_stacks(stats, __atomic_load_n(&loop->classes[class], __ATOMIC_ACQUIRE));
        }
    }
}

void aco_stats(aco_stats_t *stats)
{
    counts_t counts;
    need(stats, "aco_stats", "there is no place for the numbers: pass an aco_stats_t");
    aco_i_sum_counts(&counts);
    *stats = (aco_stats_t){.ct_started = counts.ct_started,
                           .ct_switches = counts.ct_switches,
                           .ct_wakes = counts.ct_wakes,
                           .ct_polls = counts.ct_polls,
                           .ct_offloads = counts.ct_offloads};
    aco_i_each_runtime(add_present, stats);
}
