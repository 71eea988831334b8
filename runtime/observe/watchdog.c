// SPDX-License-Identifier: Apache-2.0
/*
 * The watchdog: a thread that looks at the loops now and then, and tells which task keeps a thread
 * from running others, and what to do about it. Loops do nothing for it. What counts is processor
 * time of the thread, and time that it spends asleep in a system call, but not time in which it was
 * ready to run and the machine had no processor for it.
 */
#include "knots.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND INT64_C(1000000000)
#define SHORTEST_TICK 1000000 /* ns */
#define LONGEST_TICK 100000000
#define CT_NAMED 8 /* tasks that were not joined, in a message */

static struct {
    int64_t limit, tick;
    int64_t told_at;   /* the last message about a task that keeps its thread */
    int64_t looked_at; /* the last look at who waits for whom */
} watch;

/* ==== Tasks that keep their thread =========================================================== */

static int64_t processor_time(clockid_t clock)
{
    struct timespec t;
    return clock_gettime(clock, &t) != 0 ? -1 : (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

int aco_i_is_thread_asleep(const loop_t *loop)
{
    char path[64], text[256];
    const char *state = NULL;
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", loop->tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t sz = read(fd, text, sizeof(text) - 1);
        text[sz < 0 ? 0 : sz] = '\0';
        state = strrchr(text, ')');
        close(fd);
    }
    return state != NULL && strncmp(state, ") S", 3) == 0;
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

static void tell(loop_t *loop, const aco_task_t *task)
{
    aco_i_text_t text = {.fd = STDERR_FILENO};
    aco_i_place_t place;
    aco_task_t now;
    if (!aco_i_read_task(task, &now)) {
        return;
    }
    aco_i_find_modules();
    aco_i_begin_places();
    aco_i_ask_place(loop, task, &place);
    aco_i_put(&text, "aco: watchdog: ");
    aco_i_put_title(&text, &now);
    aco_i_put(&text, " has kept its thread for ");
    aco_i_put_time(&text, loop->watched.kept);
    aco_i_put(&text, remedy(&loop->watched));
    aco_i_put_frames(&text, &place);
    aco_i_flush(&text);
    aco_i_end_places();
}

/* Begins to measure anew: another task runs than at the last tick, or the same one again. */
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
    uint64_t ct_switches = loop->ct_switches;
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
    if (w->kept >= watch.limit && now - watch.told_at >= SECOND) {
        watch.told_at = now;
        tell(loop, task);
    }
}

/* ==== What was not joined ==================================================================== */

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

void aco_i_tell_unjoined(const runtime_t *runtime, size_t ct_groups)
{
    unjoined_t unjoined = {.text = {.fd = STDERR_FILENO}};
    aco_i_text_t *text = &unjoined.text;
    aco_i_find_modules();
    aco_i_begin_places();
    aco_i_each_unjoined(runtime, put_unjoined, &unjoined);
    aco_i_end_places();
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
    aco_i_touched_t touched;
    int64_t now = aco_i_clock();
    aco_i_touch_all(&touched);
    for (size_t i = 0; i < touched.ct; i++) {
        const runtime_t *runtime = touched.runtimes[i];
        for (int j = 0; j < runtime->ct_loops; j++) {
            if (is_late) { /* so may the others be: the process was stopped, or starved */
                runtime->loops[j].watched.task = NULL;
            }
            watch_loop(&runtime->loops[j]);
        }
    }
    if (now - watch.looked_at >= SECOND / 2 && !is_late) {
        watch.looked_at = now;
        aco_i_look_for_knots(&touched, watch.limit);
    }
    aco_i_untouch_all(&touched);
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

/* Of "50ms", "1.5s", "500us"; 0 if it is none. */
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

void aco_i_begin_watch(void)
{
    pthread_once(&once, begin_watch);
}

void aco_i_forget_watch(void)
{
    static const pthread_once_t initial = PTHREAD_ONCE_INIT;
    once = initial;
    memset(&watch, 0, sizeof(watch));
    aco_i_is_watched = 0;
    aco_i_forget_knots();
}
