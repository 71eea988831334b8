// SPDX-License-Identifier: Apache-2.0
/*
 * The watchdog: a thread that looks at the loops now and then, and reports which task keeps its
 * thread from running others, and what to do about it. Loops do nothing for it. It counts processor
 * time of the thread, and time asleep in system calls, but not time in which the thread was ready
 * to run and the machine had no processor for it.
 */
#include "observe/observe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND INT64_C(1000000000)
#define SHORTEST_TICK 1000000 /* ns */
#define LONGEST_TICK 100000000
#define CT_NAMED 8 /* tasks that were not joined, named in a message */

static struct {
    int64_t limit, tick;
    int64_t reported_at; /* the last message about a task that keeps its thread */
    int64_t looked_at;   /* the last look for deadlocks */
} watch;

/* ==== Tasks that keep their thread =========================================================== */

static int64_t processor_time(clockid_t clock)
{
    struct timespec t;
    return clock_gettime(clock, &t) != 0 ? -1 : (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

/* The remedy for a task that has kept its thread: it computes, or has blocked it. */
static const char *remedy(const watched_t *w)
{
    if (w->slept <= w->kept / 2) {
        return " s: let it yield, or aco_offload() what takes long\n";
    }
    if (aco_i_check_hooks == NULL) {
        return " s, asleep in a system call: make it by an aco_ call, link libaco_hooks so that "
               "such calls wait as tasks (docs/hooks.md), or aco_offload() it\n";
    }
    return " s, asleep in a system call that no hook reaches: make it by an aco_ call, or "
           "aco_offload() it\n";
}

static void report(loop_t *loop, const aco_task_t *task)
{
    aco_i_text_t text = {.fd = STDERR_FILENO};
    aco_i_backtrace_t backtrace;
    aco_task_t now;
    if (!READ_STRUCT(&now, task)) {
        return;
    }
    aco_i_find_modules();
    aco_i_begin_backtraces();
    aco_i_ask_backtrace(loop, task, &backtrace);
    aco_i_put(&text, "aco: watchdog: ");
    aco_i_put_title(&text, &now);
    aco_i_put(&text, " has kept its thread for ");
    aco_i_put_time(&text, loop->watched.kept);
    aco_i_put(&text, remedy(&loop->watched));
    aco_i_put_frames(&text, &backtrace);
    aco_i_flush(&text);
    aco_i_end_backtraces();
}

/* Begins to measure anew, for a task that was switched to since the last tick. */
static void begin_stretch(loop_t *loop, const aco_task_t *task, uint64_t ct_switches)
{
    loop->watched = (watched_t){.task = task, .ct_switches = ct_switches};
    loop->watched.processor_time = processor_time(loop->clock);
    loop->watched.at = aco_i_clock();
}

static READS_RACILY void watch_loop(loop_t *loop)
{
    watched_t *w = &loop->watched;
    const aco_task_t *task = loop->running;
    uint64_t ct_switches = loop->counts.ct_switches;
    if (task == NULL || task != w->task || ct_switches != w->ct_switches) {
        begin_stretch(loop, task, ct_switches);
        return;
    }
    int64_t time = processor_time(loop->clock), now = aco_i_clock();
    int was_asleep = w->is_asleep;
    if (time < 0 || w->processor_time < 0) {
        return;
    }
    int64_t ran = time - w->processor_time, passed = now - w->at;
    w->is_asleep = ran < passed / 2 && aco_i_is_thread_asleep(loop);
    if (was_asleep && w->is_asleep) {
        w->slept += passed;
        w->kept += passed;
    } else {
        w->kept += ran;
    }
    w->processor_time = time;
    w->at = now;
    if (w->kept >= watch.limit && now - watch.reported_at >= SECOND) {
        watch.reported_at = now;
        report(loop, task);
    }
}

/* ==== Tasks and groups that were not joined ================================================== */

typedef struct {
    aco_i_text_t text;
    uint64_t ct;
} unjoined_t;

static void put_unjoined(const aco_task_t *task, void *arg)
{
    unjoined_t *unjoined = (unjoined_t *)arg;
    if (unjoined->ct++ < CT_NAMED) {
        aco_i_put(&unjoined->text, unjoined->ct == 1 ? "aco: watchdog: never joined: " : ", ");
        aco_i_put_title(&unjoined->text, task);
    }
}

void aco_i_report_unjoined(const runtime_t *runtime, size_t ct_groups)
{
    unjoined_t unjoined = {.text = {.fd = STDERR_FILENO}};
    aco_i_text_t *text = &unjoined.text;
    aco_i_find_modules();
    aco_i_begin_backtraces();
    aco_i_each_unjoined(runtime, put_unjoined, &unjoined);
    aco_i_end_backtraces();
    if (unjoined.ct > CT_NAMED) {
        aco_i_put(text, " and others, ");
        aco_i_put_number(text, unjoined.ct, 10);
        aco_i_put(text, " in all");
    }
    aco_i_put(text,
              unjoined.ct == 0 ? "" : ": aco_join() what aco_spawn() returns, or use aco_go()\n");
    if (ct_groups != 0) {
        aco_i_put(text, "aco: watchdog: never joined: groups, ");
        aco_i_put_number(text, ct_groups, 10);
        aco_i_put(text, " in all: aco_group_join() what aco_group_new() returns\n");
    }
    aco_i_flush(text);
}

/* ==== The thread ============================================================================= */

static void watch_runtimes(int is_late)
{
    aco_i_held_t held;
    int64_t now = aco_i_clock();
    aco_i_hold_runtimes(&held);
    for (size_t i = 0; i < held.ct; i++) {
        const runtime_t *runtime = held.runtimes[i];
        for (int j = 0; j < runtime->ct_loops; j++) {
            if (is_late) { /* so may the loops be: the process was stopped, or starved */
                runtime->loops[j].watched.task = NULL;
            }
            watch_loop(&runtime->loops[j]);
        }
    }
    if (now - watch.looked_at >= SECOND / 2 && !is_late) {
        watch.looked_at = now;
        aco_i_look_for_deadlocks(&held, watch.limit);
    }
    aco_i_drop_runtimes(&held);
}

static void *run_watch(void *arg)
{
    struct timespec pause = {(time_t)(watch.tick / SECOND), (long)(watch.tick % SECOND)};
    for (;;) {
        int64_t before = aco_i_clock();
        nanosleep(&pause, NULL);
        watch_runtimes(aco_i_clock() - before > 3 * watch.tick);
    }
    return arg;
}

/* The ns of "50ms", "1.5s", "500us"; 0 if it is no time. */
static int64_t parse_time(const char *text)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    char *unit;
    double value = strtod(text, &unit);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(unit, units[i].name) == 0 && value > 0 && value * units[i].ns < 1e18) {
            return (int64_t)(value * units[i].ns);
        }
    }
    return 0;
}

static void begin_watch(void)
{
    const char *text = getenv("ACO_WATCHDOG");
    if (text == NULL || *text == '\0') {
        return;
    }
    watch.limit = parse_time(text);
    if (watch.limit == 0) {
        fprintf(stderr, "aco: ACO_WATCHDOG is %s: set it to a time such as 50ms or 1.5s\n", text);
        return;
    }
    watch.tick = watch.limit / 4 < SHORTEST_TICK  ? SHORTEST_TICK
                 : watch.limit / 4 > LONGEST_TICK ? LONGEST_TICK
                                                  : watch.limit / 4;
    aco_i_is_watched = 1;
    if (aco_i_start_thread(run_watch, NULL) != 0) {
        aco_i_is_watched = 0;
        fprintf(stderr, "aco: ACO_WATCHDOG: no thread for it: %s\n", strerror(errno));
    }
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The child of a fork() has no watchdog until a runtime begins. */
static void forget_watch(void)
{
    static const pthread_once_t initial = PTHREAD_ONCE_INIT;
    once = initial;
    memset(&watch, 0, sizeof(watch));
    aco_i_is_watched = 0;
}

void aco_i_begin_watch(void)
{
    static aco_i_fork_handler_t handler = {.fn = forget_watch};
    aco_i_at_fork(&handler);
    pthread_once(&once, begin_watch);
}
