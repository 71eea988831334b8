// SPDX-License-Identifier: Apache-2.0
/*
 * Implements most of aco_bindings.h. The storage of a task lies where its wait has its node: they
 * are never needed at once.
 */
#include "sched/sched.h"

#include <errno.h>
#include <string.h>

static const char no_function[] = "the function is NULL: pass one for the task to run";
static const char no_task[] = "the task is NULL: pass what aco_i_spawn_in() has stored";
static const char no_watch[] = "the watch is NULL: pass the address of an aco_i_watch_t";

void aco_i_begin(void)
{
    aco_task_t *self = aco_i_loop->running;
    memset(self->storage, 0, sizeof(self->storage));
    self->node.task = self;
}

void *aco_i_finish(void)
{
    aco_task_t *self = aco_i_loop != NULL ? aco_i_loop->running : aco_i_forked_task;
    if (self->locals != NULL) {
        aco_i_run_destructors(self);
    }
    if (!self->is_joinable) {
        return NULL;
    }
    if (__atomic_load_n(&self->is_detached, __ATOMIC_ACQUIRE)) {
        self->discard = NULL;
        return NULL;
    }
    return self->storage; /* aco_i_detach() may still come */
}

/* Returns whether only its owner will touch the task again: the thread that ended it has released
 * its lock, too. */
static int is_over(aco_task_t *task)
{
    return __atomic_load_n(&task->has_ended, __ATOMIC_ACQUIRE) &&
           !__atomic_load_n(&task->lock.is_held, __ATOMIC_ACQUIRE);
}

/* Waits for the end of a task, and leaves it as if none had waited. */
static int await_end(aco_task_t *task, aco_task_t *self)
{
    int result = aco_i_wait_for_end(task, self);
    if (result == 0) {
        task->joiner = NULL; /* it has ended: none else reads that */
    }
    return result;
}

/* Holds the runtime of a task for a caller that is no task: run() may have returned by then. */
static runtime_t *hold_from_outside(const aco_task_t *task)
{
    runtime_t *held = aco_i_hold_runtime_of(task, aco_i_has_task);
    if (held == NULL) {
        aco_i_misuse_of("join() or the destructor of a task",
                        "the runtime of the task has ended, and freed it: join or destroy a task "
                        "before run() returns");
    }
    return held;
}

static __attribute__((noinline)) int await_end_slowly(aco_task_t *task)
{
    aco_task_t *self = aco_i_self();
    runtime_t *held = NULL;
    if (self->loop == NULL) {
        held = hold_from_outside(task);
    } else if (task == self) {
        errno = EDEADLK;
        return -1;
    } else if (self->loop->runtime != task->runtime) {
        aco_i_hold_runtime(held = task->runtime);
    }
    int result = await_end(task, self);
    if (held != NULL) {
        aco_i_drop_runtime(held);
    }
    return result;
}

int aco_i_await_end(aco_task_t *task)
{
    need(task, "aco_i_await_end", no_task);
    return aco_likely(aco_i_loop != NULL) && is_over(task) && task->joiner == NULL
               ? 0
               : await_end_slowly(task);
}

int aco_i_cancel_and_await(aco_task_t *task)
{
    static const char call[] = "the destructor of a task";
    need(task, call, no_task);
    if (aco_i_loop == NULL) {
        aco_i_drop_runtime(hold_from_outside(task));
    }
    if (task->runtime->is_of_parent) {
        return 0;
    }
    if (task == aco_self()) {
        aco_i_misuse_of(call, "it would wait for its own end: call detach() before");
    }
    KEEP_ERRNO();
    if (!is_over(task)) {
        aco_task_cancel(task);
    }
    aco_i_scope_t scope = aco_i_enter_shielded();
    aco_i_await_end(task);
    aco_i_leave(&scope);
    return 1;
}

void aco_i_free_ended(aco_task_t *task)
{
    need(task, "aco_i_free_ended", no_task);
    runtime_t *runtime = task->runtime;
    if (aco_i_loop != NULL && aco_i_loop->runtime == runtime) {
        aco_i_free_task(task);
        return;
    }
    aco_i_hold_runtime(runtime);
    aco_i_free_task(task);
    aco_i_drop_runtime(runtime);
}

int aco_i_has_ended(aco_task_t *task)
{
    need(task, "aco_i_has_ended", no_task);
    return is_over(task);
}

int aco_i_was_cancelled(const aco_task_t *task)
{
    need(task, "aco_i_was_cancelled", no_task);
    return __atomic_load_n(&task->is_cancelled, __ATOMIC_SEQ_CST);
}

void *aco_i_storage(aco_task_t *task)
{
    need(task, "aco_i_storage", no_task);
    return task->storage;
}

void aco_i_detach(aco_task_t *task, void (*discard)(aco_task_t *task, void *result))
{
    need(task, "aco_i_detach", no_task);
    lock(&task->lock);
    int has_ended = task->has_ended;
    task->discard = discard;
    __atomic_store_n(&task->is_detached, 1, __ATOMIC_RELEASE);
    unlock(&task->lock);
    if (!has_ended) {
        return;
    }
    if (discard != NULL) {
        discard(task, task->arg);
    }
    aco_i_free_ended(task);
}

int aco_i_watch(aco_task_t *task, aco_i_watch_t *watch)
{
    need(task, "aco_i_watch", no_task);
    need(watch, "aco_i_watch", no_watch);
    lock(&task->lock);
    int is_watched = !task->has_ended;
    if (is_watched) {
        watch->next = task->watches;
        task->watches = watch;
    }
    unlock(&task->lock);
    return is_watched;
}

void aco_i_unwatch(aco_task_t *task, aco_i_watch_t *watch)
{
    need(task, "aco_i_unwatch", no_task);
    need(watch, "aco_i_unwatch", no_watch);
    lock(&task->lock);
    aco_i_watch_t **link = &task->watches;
    while (*link != NULL && *link != watch) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = watch->next;
    }
    unlock(&task->lock);
}

aco_i_stop_t *aco_i_stop_of(aco_task_t *task, void (*cancelled)(aco_i_stop_t *stop),
                            aco_i_stop_t *added)
{
    need(task, "aco_i_stop_of", no_task);
    lock(&task->runtime->lock);
    aco_i_stop_t *stop = task->stops;
    while (stop != NULL && stop->cancelled != cancelled) {
        stop = stop->next;
    }
    if (stop == NULL && added != NULL) {
        added->ct_owners = 1;
        added->next = task->stops;
        stop = task->stops = added;
    }
    unlock(&task->runtime->lock);
    return stop;
}

int aco_i_leave_stop(aco_i_stop_t *stop)
{
    need(stop, "aco_i_leave_stop", "the stop is NULL: pass the argument of the call");
    return __atomic_sub_fetch(&stop->ct_owners, 1, __ATOMIC_ACQ_REL) == 0;
}

/* Makes a task that begins when its wait ends, and has no stack until then; NULL with errno. */
static aco_task_t *make_waiting(loop_t *loop, reason_t reason, void *(*fn)(void *), void *arg)
{
    if (loop == NULL) {
        errno = EPERM;
        return NULL;
    }
    aco_task_t *task = NULL;
    if (aco_i_reserve_timers(loop, loop->ct_tasks + loop->ct_later + 1) == 0) {
        task = aco_i_new_task(loop, fn, arg);
    }
    if (task == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    task->loop = loop;
    task->starts_later = 1;
    loop->ct_later++;
    add_to(&loop->runtime->ct_tasks, 1);
    aco_i_open_wait(task, reason);
    return task;
}

aco_task_t *aco_i_go_parked(void *(*fn)(void *), void *arg)
{
    need(fn, "aco_i_go_parked", no_function);
    return make_waiting(aco_i_loop, FOR_PARK, fn, arg);
}

aco_task_t *aco_i_go_later(int64_t when, void *(*fn)(void *), void *arg)
{
    need(fn, "aco_i_go_later", no_function);
    aco_task_t *task = make_waiting(aco_i_loop, FOR_SLEEP, fn, arg);
    if (task != NULL) {
        aco_i_set_timer(task, when);
        aco_i_wake_loop(task->loop); /* one that is embedded must set its timerfd */
    }
    return task;
}

static void *do_nothing(void *arg)
{
    return arg;
}

static const char no_waiting[] = "the task is NULL: pass what aco_i_go_later() returned";

static void begin_now(aco_task_t *task, const char *call, const char *rule)
{
    need(task, call, no_waiting);
    if (task->loop != aco_i_loop) {
        aco_i_misuse_of(call, rule);
    }
    aco_i_clear_timer(task);
    if (aco_i_claim(task, WAIT_EVENT)) {
        aco_i_make_ready(task);
    }
}

void aco_i_begin_now(aco_task_t *task)
{
    begin_now(task, "the end of a co_await",
              "the stackless coroutine was suspended on another thread: cancel it there");
}

void aco_i_call_off(aco_task_t *task)
{
    begin_now(task, "the destructor of a co_await",
              "the stackless coroutine was suspended on another thread: destroy it there");
    task->fn = do_nothing;
}
