// SPDX-License-Identifier: Apache-2.0
/*
 * Finds deadlocks, and locks that are held over a wait, for the watchdog. Tasks on a cycle of needs
 * wait for ever; so do all tasks if each waits for another one to do something, and nothing else
 * can happen. Tasks change while they are read, so what is found counts only if the next look finds
 * it again, with the tasks in the same waits as before.
 */
#include "observe/wait_graph.h"

#include <dirent.h>
#include <string.h>
#include <sys/mman.h>

#define SECOND INT64_C(1000000000)
#define MOST_CYCLES 256 /* known at a time */
#define MOST_SHOWN 32   /* tasks of a cycle, in a message */
#define graph aco_i_graph

/* A task of a cycle, in one of its waits. */
typedef struct {
    const aco_task_t *task;
    uint64_t id;
    int64_t since;
} link_t;

/* Tasks that wait for each other, each for the next one. */
typedef struct cycle_s {
    struct cycle_s *next;
    size_t ct, sz; /* links; bytes that are mapped */
    int is_reported;
    link_t links[];
} cycle_t;

static cycle_t *cycles;
static int ct_cycles;

/* ==== News =================================================================================== */

/* Waits that were found at a look, by a sum of ids and times. */
static struct {
    uint64_t sum;
    unsigned look;
    int is_reported;
} found[MOST_CYCLES];
static unsigned look;

/* Whether to report what was found: the look before this one has found it, too, it was not
 * reported, and `may_report`. */
static int is_news(uint64_t sum, int may_report)
{
    size_t i = 0, free = MOST_CYCLES;
    for (; i < MOST_CYCLES && (found[i].sum != sum || found[i].look + 1 < look); i++) {
        free = found[i].look + 1 < look ? i : free;
    }
    if (i == MOST_CYCLES) {
        if (free != MOST_CYCLES) {
            found[free].sum = sum;
            found[free].look = look;
            found[free].is_reported = 0;
        }
        return 0;
    }
    int is_again = found[i].look + 1 == look;
    found[i].look = look;
    int is_new = is_again && !found[i].is_reported && may_report;
    found[i].is_reported |= is_new;
    return is_new;
}

static uint64_t sum_of(uint64_t id, int64_t since)
{
    return (id * UINT64_C(0x9e3779b97f4a7c15)) ^ ((uint64_t)since * UINT64_C(0xff51afd7ed558ccd));
}

/* ==== Messages =============================================================================== */

static void put_task(aco_i_text_t *text, const aco_task_t *task)
{
    aco_i_backtrace_t backtrace;
    aco_i_backtrace_of(task, &backtrace);
    aco_i_put_task(text, task, &backtrace, aco_i_clock());
    aco_i_put_frames(text, &backtrace);
}

static void put_need(aco_i_text_t *text, const aco_task_t *at, const aco_task_t *next)
{
    static const char *const phrases[] = {"  which is held by ",
                                          "  which is waited for: ", "  which still has ",
                                          "  behind a writer that waits: "};
    aco_task_t task, needed;
    const need_t *need = aco_i_find_need(aco_i_find_waiter(at), next);
    if (need != NULL && READ_STRUCT(&task, at) && READ_STRUCT(&needed, next)) {
        put_task(text, &task);
        aco_i_put(text, phrases[need->kind]);
        aco_i_put_title(text, &needed);
        aco_i_put(text, "\n");
    }
}

static void report_cycle(const cycle_t *cycle)
{
    aco_i_text_t text = {.fd = STDERR_FILENO};
    aco_i_find_modules();
    aco_i_begin_backtraces();
    aco_i_put(&text, "aco: watchdog: deadlock: these tasks wait for each other:\n");
    for (size_t i = 0; i < cycle->ct && i < MOST_SHOWN; i++) {
        put_need(&text, cycle->links[i].task, cycle->links[(i + 1) % cycle->ct].task);
    }
    if (cycle->ct > MOST_SHOWN) {
        aco_i_put(&text, "and so on, in all ");
        aco_i_put_number(&text, cycle->ct, 10);
        aco_i_put(&text, " tasks\n");
    }
    aco_i_end_backtraces();
    aco_i_flush(&text);
}

/* ==== Cycles ================================================================================= */

/* Makes a cycle of the way from `first` to `last`, which needs `first`. */
static void add_cycle(waiter_t *last, const waiter_t *first)
{
    size_t ct = 1;
    for (const waiter_t *at = last; at != first; at = &graph.waiters[at->from - 1]) {
        ct++;
    }
    size_t sz = sizeof(cycle_t) + ct * sizeof(link_t);
    cycle_t *cycle = ct_cycles == MOST_CYCLES ? NULL : (cycle_t *)aco_i_map(sz, 0);
    if (cycle == NULL) {
        return;
    }
    cycle->ct = ct;
    cycle->sz = sz;
    for (waiter_t *at = last; ct-- > 0; at = ct > 0 ? &graph.waiters[at->from - 1] : at) {
        cycle->links[ct] = (link_t){at->task, at->id, at->since};
        at->is_doomed = 1;
    }
    cycle->next = cycles;
    cycles = cycle;
    ct_cycles++;
}

/* Follows needs from a waiter on, as far as they were not followed before. A cycle that shares a
 * task with a known one counts as part of that. */
static void follow(waiter_t *start)
{
    waiter_t *at = start;
    at->is_on_way = 1;
    at->need = at->first_need;
    while (at != NULL) {
        if (at->need == 0) {
            at->is_on_way = 0;
            at->is_done = 1;
            at = at->from == 0 ? NULL : &graph.waiters[at->from - 1];
            continue;
        }
        const need_t *need = &graph.needs[at->need - 1];
        waiter_t *next = aco_i_find_waiter(need->task);
        at->need = need->next;
        if (next == NULL || next->is_done || next->is_bounded || next->is_doomed) {
            continue;
        }
        if (next->is_on_way) {
            add_cycle(at, next);
            continue;
        }
        next->is_on_way = 1;
        next->need = next->first_need;
        next->from = (uint32_t)(at - graph.waiters) + 1;
        at = next;
    }
}

/* Whether each task of a cycle is in the same wait as before, for the next one. */
static int is_still(const cycle_t *cycle)
{
    size_t i = 0;
    for (; i < cycle->ct; i++) {
        const link_t *link = &cycle->links[i];
        const waiter_t *waiter = aco_i_find_waiter(link->task);
        if (waiter == NULL || waiter->id != link->id || waiter->since != link->since ||
            waiter->is_bounded ||
            aco_i_find_need(waiter, cycle->links[(i + 1) % cycle->ct].task) == NULL) {
            break;
        }
    }
    return i == cycle->ct;
}

static void look_for_cycles(void)
{
    for (cycle_t **at = &cycles; *at != NULL;) {
        cycle_t *cycle = *at;
        if (!is_still(cycle)) {
            *at = cycle->next;
            munmap(cycle, cycle->sz);
            ct_cycles--;
            continue;
        }
        for (size_t i = 0; i < cycle->ct; i++) {
            aco_i_find_waiter(cycle->links[i].task)->is_doomed = 1;
        }
        if (!cycle->is_reported) {
            cycle->is_reported = 1;
            report_cycle(cycle);
        }
        at = &cycle->next;
    }
    for (size_t i = 0; i < graph.ct_waiters; i++) {
        waiter_t *waiter = &graph.waiters[i];
        if (!waiter->is_done && !waiter->is_bounded && !waiter->is_doomed) {
            follow(waiter);
        }
    }
}

/* ==== Locks that are held ==================================================================== */

static void report_holder(const waiter_t *waiter, const aco_task_t *at, const aco_task_t *holder)
{
    aco_i_text_t text = {.fd = STDERR_FILENO};
    aco_i_find_modules();
    aco_i_begin_backtraces();
    aco_i_put(&text, "aco: watchdog: a lock is held over a wait, and others want it:\n");
    put_need(&text, waiter->task, at);
    put_task(&text, holder);
    aco_i_end_backtraces();
    aco_i_flush(&text);
}

/* Reports a holder that has waited for longer than the limit for something else than a lock. While
 * its thread is busy, the holder may only wait for its turn, so that is not reported. */
static void look_at_holder(const waiter_t *waiter, const aco_task_t *at, int64_t limit)
{
    static int64_t reported_at;
    int64_t now = aco_i_clock();
    aco_task_t holder;
    if (!READ_STRUCT(&holder, at) || holder.loop == NULL || !is_stuck(&holder) ||
        now - holder.since < limit) {
        return;
    }
    int may_report = now - reported_at >= SECOND && /* once a second at most */
                     aco_i_is_thread_asleep(holder.loop);
    if (is_news(sum_of(holder.id, holder.since), may_report)) {
        reported_at = now;
        report_holder(waiter, at, &holder);
    }
}

static void look_for_holders(int64_t limit)
{
    int64_t now = aco_i_clock();
    const aco_task_t *last = NULL;
    for (size_t i = 0; i < graph.ct_waiters; i++) {
        const waiter_t *waiter = &graph.waiters[i];
        for (uint32_t j = now - waiter->since < limit ? 0 : waiter->first_need; j != 0;) {
            const need_t *need = &graph.needs[j - 1];
            j = need->next;
            if (need->kind == HOLDS && need->task != last &&
                aco_i_find_waiter(need->task) == NULL) {
                last = need->task; /* the next one may want the same */
                look_at_holder(waiter, need->task, limit);
            }
        }
    }
}

/* ==== Standstill ============================================================================= */

typedef struct {
    uint64_t sum;
    size_t ct, ct_that_may_wake;
} standstill_t;

static READS_RACILY void count_stuck(const aco_task_t *task, void *arg)
{
    static const reason_t others[] = {FOR_COND, FOR_SEMAPHORE, FOR_WAIT_GROUP,
                                      FOR_SEND, FOR_RECV,      FOR_SELECT};
    standstill_t *s = (standstill_t *)arg;
    reason_t reason = task->reason;
    int is_found = waits_for_tasks(reason);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        is_found |= reason == others[i];
    }
    s->ct++;
    s->sum += sum_of(task->id, task->since);
    s->ct_that_may_wake += !is_found || !is_stuck(task) || task->deadline != NO_DEADLINE;
}

/* The threads of the process; 0: unknown. */
static size_t ct_threads(void)
{
    size_t ct = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        ct += entry->d_name[0] != '.';
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return ct;
}

/* The waiters that need a task of a known cycle, as far as some rounds find them. */
static size_t ct_doomed(void)
{
    size_t ct = 0, before = SIZE_MAX;
    for (int round = 0; round < 64 && ct != before; round++) {
        before = ct;
        ct = 0;
        for (size_t i = 0; i < graph.ct_waiters; i++) {
            waiter_t *waiter = &graph.waiters[i];
            for (uint32_t j = waiter->first_need; j != 0 && !waiter->is_doomed;) {
                const waiter_t *needed = aco_i_find_waiter(graph.needs[j - 1].task);
                waiter->is_doomed = needed != NULL && needed->is_doomed;
                j = graph.needs[j - 1].next;
            }
            ct += waiter->is_doomed != 0;
        }
    }
    return ct;
}

/* Whether no loop of the process has anything to do, and there is no other thread. */
static int is_all_asleep(const aco_i_held_t *held)
{
    size_t ct = (size_t)aco_i_ct_own_threads();
    for (size_t i = 0; i < held->ct; i++) {
        runtime_t *runtime = held->runtimes[i];
        for (int j = 0; j < runtime->ct_loops; j++) {
            if (!__atomic_load_n(&runtime->loops[j].is_asleep, __ATOMIC_SEQ_CST) ||
                runtime->loops[j].timer_fd >= 0) {
                return 0;
            }
        }
        ct += (size_t)runtime->ct_loops + aco_i_ct_idle_helpers(runtime);
    }
    return held->ct_left_out == 0 && ct_threads() == ct;
}

/* Reports that all tasks wait for tasks, and there is no other thread that could wake one. */
static void look_for_standstill(const aco_i_held_t *held)
{
    standstill_t s = {0, 0, 0};
    if (!is_all_asleep(held)) {
        return;
    }
    for (size_t i = 0; i < held->ct; i++) {
        aco_i_each_task(held->runtimes[i], count_stuck, &s);
    }
    if (s.ct == 0 || s.ct_that_may_wake != 0 || ct_doomed() == s.ct || !is_news(s.sum, 1)) {
        return;
    }
    aco_i_text_t text = {.fd = STDERR_FILENO};
    aco_i_registers_t none = {0, 0, 0, 0};
    aco_i_put(&text, "aco: watchdog: deadlock: all tasks wait for each other:\n");
    aco_i_find_modules();
    aco_i_list_tasks(&text, &none);
    aco_i_flush(&text);
}

/* In a child after fork(), all tasks are gone. */
static void forget_cycles(void)
{
    cycles = NULL;
    ct_cycles = 0;
    memset(found, 0, sizeof(found));
}

void aco_i_look_for_deadlocks(const aco_i_held_t *held, int64_t limit)
{
    static aco_i_fork_handler_t handler = {.fn = forget_cycles};
    aco_i_at_fork(&handler);
    look++;
    aco_i_make_graph(held);
    look_for_cycles();
    look_for_holders(limit);
    look_for_standstill(held);
    aco_i_unmap_graph();
}
