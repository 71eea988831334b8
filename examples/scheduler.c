// SPDX-License-Identifier: Apache-2.0
// A scheduler: tasks that run in turn, each until it lets the next one run or waits for a time.
// Shows aco_yield_to(), the direct way from one coroutine to the next, beside aco_yield().
/*
 * A task that passes its turn on goes straight to the next one that is ready. Only when none is, or
 * when one ends, the main coroutine runs, and lets the time pass. It prints:
 *
 *     time 0: A works, B works, C works, A works, C works, A works, C ends, A ends, nobody is ready
 *     time 1: nobody is ready
 *     time 2: B works, B works, B ends
 */
#include "aco.h"

#define TASKS 3

typedef struct {
    const char *name;
    int ct_steps;      /* how much it has to do */
    int waits_for;     /* time units that it waits for after its first step */
    int wakes_at;      /* when it is ready again */
    aco_t *co;
} task_t;

static task_t tasks[TASKS] = {{"A", 3, 0, 0, NULL}, {"B", 3, 2, 0, NULL}, {"C", 2, 0, 0, NULL}};
static size_t ct_running = TASKS;
static int now;

static void say(const task_t *task, const char *what)
{
    static int told = -1;
    printf(told == now ? ", " : told < 0 ? "time %d: " : "\ntime %d: ", now);
    told = now;
    printf("%s %s", task != NULL ? task->name : "nobody", what);
}

/* The next task after `task` that is ready, maybe itself; NULL if none is. */
static task_t *next_ready(const task_t *task)
{
    for (size_t i = 1; i <= TASKS; i++) {
        task_t *next = &tasks[((size_t)(task - tasks) + i) % TASKS];
        if (!next->co->is_end && next->wakes_at <= now) {
            return next;
        }
    }
    return NULL;
}

/* Called by a task: lets the others run until `time` has come and its turn. */
static void wait_until(task_t *task, int time)
{
    task->wakes_at = time;
    const task_t *next = next_ready(task);
    if (next == NULL) {
        aco_yield();
    } else if (next != task) {
        aco_yield_to(next->co);
    }
}

static void run_task(void)
{
    task_t *task = (task_t *)aco_get_arg();
    for (int i = 0; i < task->ct_steps; i++) {
        say(task, "works");
        wait_until(task, i == 0 ? now + task->waits_for : now);
    }
    say(task, "ends");
    ct_running--;
    aco_exit();
}

/* Runs all tasks to their end. */
static void run(void)
{
    const task_t *last = &tasks[TASKS - 1];
    while (ct_running > 0) {
        const task_t *task = next_ready(last);
        if (task != NULL) {
            aco_resume(task->co);
            last = task;
        } else {
            say(NULL, "is ready");
            now++;
        }
    }
    printf("\n");
}

int main(void)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    for (size_t i = 0; i < TASKS; i++) {
        tasks[i].co = aco_create(main_co, stack, 0, run_task, &tasks[i]);
    }

    run();

    for (size_t i = 0; i < TASKS; i++) {
        aco_destroy(tasks[i].co);
    }
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
    return 0;
}
