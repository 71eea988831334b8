// SPDX-License-Identifier: Apache-2.0
/*
 * Resumes tasks as coroutines are resumed: aco_i_resume() returns when the task waits, in whatever
 * call. In aco_i_wait_for_resume(), the task waits for another aco_i_resume(); from any other wait
 * its loop lets it go on, as all tasks.
 */
#include "start/start.h"

#include <errno.h>

int aco_i_wait_for_resume(int64_t until)
{
    aco_task_t *self = aco_i_loop->running;
    aco_i_open_wait(self, FOR_RESUME);
    return aco_i_wait_until(self, until) == WAIT_EVENT;
}

void aco_i_let_go(uint64_t ct_switches)
{
    aco_task_t *self = aco_i_loop->running;
    if (self->loop->counts.ct_switches != ct_switches) {
        return;
    }
    KEEP_ERRNO();
    aco_i_open_wait(self, FOR_SLEEP);
    aco_i_wait_until(self, self->loop->now + 1); /* up to the next look at timers */
}

aco_task_t *aco_i_new_suspended(void *(*fn)(void *), void *arg, size_t stack_sz,
                                aco_share_stack_t *stack)
{
    loop_t *loop = aco_i_loop;
    aco_task_t *task = aco_i_new_task(loop, fn, arg);
    if (task == NULL) {
        return NULL;
    }
    task->loop = loop;
    task->is_coroutine = 1;
    task->shares_stack = stack != NULL;
    task->stack_sz = stack != NULL || stack_sz <= loop->runtime->stack_sz ? 0 : stack_sz;
    if (aco_i_start(loop, task, stack) != 0) {
        aco_i_free_task(task);
        errno = ENOMEM;
        return NULL;
    }
    __atomic_add_fetch(&loop->runtime->ct_tasks, 1, __ATOMIC_SEQ_CST);
    task->state = TASK_WAITING;
    aco_i_open_wait(task, FOR_RESUME);
    return task;
}

static void check(const char *call, const aco_task_t *task)
{
    if (task->loop != aco_i_loop) {
        aco_i_misuse_of(call, "the coroutine is another thread's: leave it to that");
    }
    if (task->state == TASK_RUNNING ||
        (task->state == TASK_WAITING && task->reason == FOR_RESUMED)) {
        aco_i_misuse_of(call,
                        "the coroutine runs, or waits for one that it resumed: let it yield "
                        "first");
    }
}

/* Ends the wait of a suspended task; if that has ended, takes it from the ready queue. Returns 0
 * for a wait that others must end. */
static int take(aco_task_t *task)
{
    int wait = __atomic_load_n(&task->wait, __ATOMIC_SEQ_CST);
    int is_open = wait != WAIT_NONE && wait < WAIT_EVENT;
    reason_t reason = task->reason;
    if (is_open && reason != FOR_RESUME && reason != FOR_SLEEP && reason != FOR_INPUT &&
        reason != FOR_OUTPUT && reason != FOR_POLL) {
        return 0;
    }
    if (!is_open || !aco_i_claim(task, reason == FOR_RESUME ? WAIT_EVENT : WAIT_DEADLINE)) {
        aco_i_take_ready(task->loop, task);
    }
    return 1;
}

/* Does the same before the frames of a task are dropped: these would have taken it from queues, and
 * cleared its timer. */
static int take_for_good(const char *call, aco_task_t *task)
{
    check(call, task);
    if (!take(task)) {
        return 0;
    }
    if (__atomic_load_n(&task->wait, __ATOMIC_SEQ_CST) != WAIT_NONE) {
        aco_i_clear_timer(task);
        aco_i_leave_descriptors(task);
        dequeue(&task->node);
    }
    task->deadline = NO_DEADLINE;
    task->ct_shields = 0;
    if (task->shields_groups) {
        aco_i_unshield_groups(task);
    }
    return 1;
}

void aco_i_resume(const char *call, aco_task_t *task)
{
    check(call, task);
    if (take(task)) {
        aco_i_run_now(task->loop, task);
    }
}

int aco_i_restart(const char *call, aco_task_t *task)
{
    if (!take_for_good(call, task)) {
        return -1;
    }
    aco_i_reset(task);
    task->state = TASK_WAITING;
    aco_i_open_wait(task, FOR_RESUME);
    return 0;
}

int aco_i_drop(const char *call, aco_task_t *task)
{
    if (!take_for_good(call, task)) {
        return -1;
    }
    aco_i_release(task->locals);
    task->locals = NULL;
    aco_i_reap(task->loop, task);
    return 0;
}
