// SPDX-License-Identifier: Apache-2.0
/*
 * Deadlocks, and locks that are held over a wait, for the watchdog. Tasks on a cycle of needs wait
 * for ever; so do all tasks if each waits for another one to do something, and nothing else can
 * happen. As what is read changes meanwhile, all of it counts only if the next look finds it again,
 * the tasks in the same waits as before.
 */
#include "knots.h"

#include <dirent.h>
#include <string.h>
#include <sys/mman.h>

#define SECOND INT64_C(1000000000)
#define MOST_KNOTS 256 /* that are known at a time */
#define MOST_TOLD 32   /* tasks of a cycle */
#define graph aco_i_graph

/* Tasks that wait for each other. */
typedef struct {
    const aco_task_t *task;
    uint64_t id;
    int64_t since;
} link_t;

typedef struct knot_s {
    struct knot_s *next;
    size_t ct, sz; /* links; bytes that are mapped */
    int is_told;
    link_t links[];
} knot_t;

static knot_t *knots;
static int ct_knots;

/* ==== News =================================================================================== */

/* What was found at a look, by a sum of ids and times. */
static struct {
    uint64_t sum;
    unsigned look;
    int is_told;
} found[MOST_KNOTS];
static unsigned look;

/* Whether the look before this one has found it, too, and nobody was told; with `may_tell`, it is
 * told now. */
static int is_news(uint64_t sum, int may_tell)
{
    size_t i = 0, free = MOST_KNOTS;
    for (; i < MOST_KNOTS && (found[i].sum != sum || found[i].look + 1 < look); i++) {
        free = found[i].look + 1 < look ? i : free;
    }
    if (i == MOST_KNOTS) {
        if (free != MOST_KNOTS) {
            found[free].sum = sum;
            found[free].look = look;
            found[free].is_told = 0;
        }
        return 0;
    }
    int is_again = found[i].look + 1 == look;
    found[i].look = look;
    int is_new = is_again && !found[i].is_told && may_tell;
    found[i].is_told |= is_new;
    return is_new;
}

static uint64_t sum_of(uint64_t id, int64_t since)
{
    return (id * UINT64_C(0x9e3779b97f4a7c15)) ^ ((uint64_t)since * UINT64_C(0xff51afd7ed558ccd));
}

/* ==== Messages =============================================================================== */

static void put_place(aco_i_text_t *text, const aco_task_t *task)
{
    aco_i_place_t place;
    aco_i_place_of(task, &place);
    aco_i_put_task(text, task, &place, aco_i_clock());
    aco_i_put_frames(text, &place);
}

static void put_need(aco_i_text_t *text, const aco_task_t *at, const aco_task_t *next)
{
    static const char *const phrases[] = {"  which is held by ",
                                          "  which is waited for: ", "  which still has ",
                                          "  behind a writer that waits: "};
    aco_task_t task, needed;
    const need_t *need = aco_i_find_need(aco_i_find_waiter(at), next);
    if (need != NULL && aco_i_read_task(at, &task) && aco_i_read_task(next, &needed)) {
        put_place(text, &task);
        aco_i_put(text, phrases[need->kind]);
        aco_i_put_title(text, &needed);
        aco_i_put(text, "\n");
    }
}

static void tell_knot(const knot_t *knot)
{
    aco_i_text_t text = {.fd = STDERR_FILENO};
    aco_i_find_modules();
    aco_i_begin_places();
    aco_i_put(&text, "aco: watchdog: deadlock: these tasks wait for each other:\n");
    for (size_t i = 0; i < knot->ct && i < MOST_TOLD; i++) {
        put_need(&text, knot->links[i].task, knot->links[(i + 1) % knot->ct].task);
    }
    if (knot->ct > MOST_TOLD) {
        aco_i_put(&text, "and so on, in all ");
        aco_i_put_number(&text, knot->ct, 10);
        aco_i_put(&text, " tasks\n");
    }
    aco_i_end_places();
    aco_i_flush(&text);
}

/* ==== Cycles ================================================================================= */

/* Makes a knot of the way from a waiter to where it has come back to that. */
static void add_knot(waiter_t *last, const waiter_t *first)
{
    size_t ct = 1;
    for (const waiter_t *at = last; at != first; at = &graph.waiters[at->from - 1]) {
        ct++;
    }
    size_t sz = sizeof(knot_t) + ct * sizeof(link_t);
    void *memory = ct_knots == MOST_KNOTS
                       ? MAP_FAILED
                       : mmap(NULL, sz, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    knot_t *knot = memory == MAP_FAILED ? NULL : (knot_t *)memory;
    if (knot == NULL) {
        return;
    }
    knot->ct = ct;
    knot->sz = sz;
    for (waiter_t *at = last; ct-- > 0; at = ct > 0 ? &graph.waiters[at->from - 1] : at) {
        knot->links[ct] = (link_t){at->task, at->id, at->since};
        at->is_doomed = 1;
    }
    knot->next = knots;
    knots = knot;
    ct_knots++;
}

/* Follows needs from a task, as far as none was followed before. A cycle with tasks of a known one
 * is part of that. */
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
            add_knot(at, next);
            continue;
        }
        next->is_on_way = 1;
        next->need = next->first_need;
        next->from = (uint32_t)(at - graph.waiters) + 1;
        at = next;
    }
}

/* Whether each of its tasks is in the same wait as before, for the next one. */
static int is_still(const knot_t *knot)
{
    size_t i = 0;
    for (; i < knot->ct; i++) {
        const link_t *link = &knot->links[i];
        const waiter_t *waiter = aco_i_find_waiter(link->task);
        if (waiter == NULL || waiter->id != link->id || waiter->since != link->since ||
            waiter->is_bounded ||
            aco_i_find_need(waiter, knot->links[(i + 1) % knot->ct].task) == NULL) {
            break;
        }
    }
    return i == knot->ct;
}

static void look_for_cycles(void)
{
    for (knot_t **at = &knots; *at != NULL;) {
        knot_t *knot = *at;
        if (!is_still(knot)) {
            *at = knot->next;
            munmap(knot, knot->sz);
            ct_knots--;
            continue;
        }
        for (size_t i = 0; i < knot->ct; i++) {
            aco_i_find_waiter(knot->links[i].task)->is_doomed = 1;
        }
        if (!knot->is_told) {
            knot->is_told = 1;
            tell_knot(knot);
        }
        at = &knot->next;
    }
    for (size_t i = 0; i < graph.ct_waiters; i++) {
        waiter_t *waiter = &graph.waiters[i];
        if (!waiter->is_done && !waiter->is_bounded && !waiter->is_doomed) {
            follow(waiter);
        }
    }
}

/* ==== Locks that are held ==================================================================== */

static void tell_holder(const waiter_t *waiter, const aco_task_t *at, const aco_task_t *holder)
{
    aco_i_text_t text = {.fd = STDERR_FILENO};
    aco_i_find_modules();
    aco_i_begin_places();
    aco_i_put(&text, "aco: watchdog: a lock is held over a wait, and others want it:\n");
    put_need(&text, waiter->task, at);
    put_place(&text, holder);
    aco_i_end_places();
    aco_i_flush(&text);
}

/* Whether the holder has waited for longer than the limit for something else than a lock. While its thread sleeps, it has all the time to go on, and nothing to do. */
static void look_at_holder(const waiter_t *waiter, const aco_task_t *at, int64_t limit)
{
    static int64_t told_at;
    int64_t now = aco_i_clock();
    aco_task_t holder;
    if (!aco_i_read_task(at, &holder) || holder.loop == NULL || !is_stuck(&holder) ||
        now - holder.since < limit) {
        return;
    }
    int may_tell = now - told_at >= SECOND && /* once a second at most */
                   aco_i_is_thread_asleep(holder.loop);
    if (is_news(sum_of(holder.id, holder.since), may_tell)) {
        told_at = now;
        tell_holder(waiter, at, &holder);
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

/* Threads of the process, or 0 if that can't be told. */
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

/* Those that need a task of a known cycle, as far as some rounds find them. */
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
static int is_all_asleep(const aco_i_touched_t *touched)
{
    size_t ct = (size_t)aco_i_ct_own_threads();
    for (size_t i = 0; i < touched->ct; i++) {
        runtime_t *runtime = touched->runtimes[i];
        for (int j = 0; j < runtime->ct_loops; j++) {
            if (!__atomic_load_n(&runtime->loops[j].is_asleep, __ATOMIC_SEQ_CST) ||
                runtime->loops[j].timer_fd >= 0) {
                return 0;
            }
        }
        ct += (size_t)runtime->ct_loops + aco_i_ct_idle_helpers(runtime);
    }
    return touched->ct_left_out == 0 && ct_threads() == ct;
}

/* Where all tasks wait for tasks, and no other thread is there that could wake one. */
static void look_for_standstill(const aco_i_touched_t *touched)
{
    standstill_t s = {0, 0, 0};
    if (!is_all_asleep(touched)) {
        return;
    }
    for (size_t i = 0; i < touched->ct; i++) {
        aco_i_each_task(touched->runtimes[i], count_stuck, &s);
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

void aco_i_look_for_knots(const aco_i_touched_t *touched, int64_t limit)
{
    look++;
    aco_i_make_graph(touched);
    look_for_cycles();
    look_for_holders(limit);
    look_for_standstill(touched);
    aco_i_unmap_graph();
}

void aco_i_forget_knots(void)
{
    knots = NULL;
    ct_knots = 0;
    aco_i_forget_graph();
    memset(found, 0, sizeof(found));
}
