// scheduler.c shows priorities, timers, and the direct switch from task to task.
// SPDX-License-Identifier: Apache-2.0
//
// A scheduler of tasks, each of which runs until it lets another one run: by aco_yield_to(), the
// direct way from one coroutine to the next, beside aco_yield().
/*
 * The most urgent of the ready tasks runs; those of one priority take turns. A task that passes its
 * turn on goes straight to the next one. The main coroutine runs only when no task is ready, or
 * when one ends, and lets the time pass to the first timer. Time is a number here: a step of work
 * takes a unit of it. With a clock, "the first timer" would be a timeout of epoll_wait().
 * It prints:
 *
 *      0 alarm set
 *      0 A works
 *      1 B works
 *      2 alarm rings
 *      2 A works
 *      3 B works
 *      4 alarm rings
 *      4 A sleeps
 *      4 B ends
 *      4 log is written
 *      5 log is written
 *      6 alarm rings
 *      6 alarm ends
 *      6 log ends
 *      6 nobody is ready
 *      9 A ends
 */
#include "aco.h"

#define PRIORITIES 3

typedef struct task_s task_t;
struct task_s {
    const char *name;
    int priority; /* 0: the most urgent */
    aco_cofuncp_t fp;
    aco_t *co;
    int wakes_at; /* of one in the list of timers */
    task_t *next; /* in a queue, or in the list of timers */
};

/* First in, first out. */
typedef struct {
    task_t *first, **end;
} queue_t;

static queue_t ready[PRIORITIES];
static task_t *timers; /* the soonest first */
static size_t ct_alive;
static int now;

static void say(const char *who, const char *what)
{
    printf("%2d %s %s\n", now, who, what);
}

/* ==== The scheduler ========================================================================== */

static void make_ready(task_t *task)
{
    queue_t *queue = &ready[task->priority];
    task->next = NULL;
    *queue->end = task;
    queue->end = &task->next;
}

static void set_timer(task_t *task, int time)
{
    task_t **link = &timers;
    while (*link != NULL && (*link)->wakes_at <= time) {
        link = &(*link)->next;
    }
    task->wakes_at = time;
    task->next = *link;
    *link = task;
}

/* Takes the next task that is to run from its queue; NULL if none is ready. */
static task_t *take_next(void)
{
    while (timers != NULL && timers->wakes_at <= now) {
        task_t *task = timers;
        timers = task->next;
        make_ready(task);
    }
    for (queue_t *queue = ready; queue < ready + PRIORITIES; queue++) {
        task_t *task = queue->first;
        if (task != NULL) {
            queue->first = task->next;
            queue->end = task->next != NULL ? queue->end : &queue->first;
            return task;
        }
    }
    return NULL;
}

/* For the task that runs, once it is in a queue or has a timer: lets the next one run. */
static void switch_to_next(const task_t *self)
{
    const task_t *next = take_next();
    if (next == NULL) {
        aco_yield();
    } else if (next != self) {
        aco_yield_to(next->co);
    }
}

static void pass_turn(task_t *self)
{
    make_ready(self);
    switch_to_next(self);
}

static void sleep_until(task_t *self, int time)
{
    set_timer(self, time);
    switch_to_next(self);
}

/* Runs all tasks to their end. */
static void run(void)
{
    while (ct_alive > 0) {
        const task_t *task = take_next();
        if (task != NULL) {
            aco_resume(task->co);
        } else {
            say("nobody", "is ready");
            now = timers->wakes_at;
        }
    }
}

/* ==== Tasks ================================================================================== */

static ACO_NORETURN void end(const task_t *self)
{
    say(self->name, "ends");
    ct_alive--;
    aco_exit();
}

static void work(task_t *self, const char *what)
{
    say(self->name, what);
    now++;
    pass_turn(self);
}

static void ring(void)
{
    task_t *self = (task_t *)aco_get_arg();
    say(self->name, "set");
    for (int time = 2; time <= 6; time += 2) {
        sleep_until(self, time);
        say(self->name, "rings");
    }
    end(self);
}

static void work_twice(void)
{
    task_t *self = (task_t *)aco_get_arg();
    work(self, "works");
    work(self, "works");
    end(self);
}

static void work_and_sleep(void)
{
    task_t *self = (task_t *)aco_get_arg();
    work(self, "works");
    work(self, "works");
    say(self->name, "sleeps");
    sleep_until(self, now + 5);
    end(self);
}

static void write_log(void)
{
    task_t *self = (task_t *)aco_get_arg();
    work(self, "is written");
    work(self, "is written");
    end(self);
}

static task_t tasks[] = {
    {"log", 2, write_log, NULL, 0, NULL},
    {"A", 1, work_and_sleep, NULL, 0, NULL},
    {"B", 1, work_twice, NULL, 0, NULL},
    {"alarm", 0, ring, NULL, 0, NULL},
};
#define TASKS (sizeof(tasks) / sizeof(tasks[0]))

int main(void)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    for (int i = 0; i < PRIORITIES; i++) {
        ready[i].end = &ready[i].first;
    }
    for (size_t i = 0; i < TASKS; i++) {
        tasks[i].co = aco_create(main_co, stack, 0, tasks[i].fp, &tasks[i]);
        make_ready(&tasks[i]);
        ct_alive++;
    }

    run();

    for (size_t i = 0; i < TASKS; i++) {
        aco_destroy(tasks[i].co);
    }
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
    return 0;
}
