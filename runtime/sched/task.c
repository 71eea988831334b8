// SPDX-License-Identifier: Apache-2.0
/* Makes, joins and parks tasks, and sets deadlines and shields. */
#include "base/probes.h"
#include "sched/sched.h"

#include <errno.h>
#include <time.h>

/* ==== Making tasks =========================================================================== */

static const char no_function[] = "the function is NULL: pass one for the task to run";

/* Lets any thread start the task, preferably one that has nothing to do. */
static void offer(runtime_t *runtime, aco_task_t *task)
{
    lock(&runtime->lock);
    task->next = NULL;
    if (runtime->first_any != NULL) {
        runtime->last_any->next = task;
    } else {
        __atomic_store_n(&runtime->first_any, task, __ATOMIC_SEQ_CST);
        keep_load_behind();
    }
    runtime->last_any = task;
    unlock(&runtime->lock);
    for (int i = 0; i < runtime->ct_loops; i++) {
        loop_t *loop = &runtime->loops[i];
        if (__atomic_load_n(&loop->is_asleep, __ATOMIC_SEQ_CST)) {
            aco_i_wake_loop(loop);
            return;
        }
    }
}

static int has_valid_stack(const aco_task_options_t *o)
{
    return o->stack_sz == 0 || (o->stack_sz >= LEAST_STACK_SZ && !o->shares_stack);
}

/* Returns 0 if the task could have its stack now; or -1 with ENOMEM. A stack no larger than the
 * first task's, or in memory of the caller, needs no check. */
static int check_stack_sz(const runtime_t *runtime, const aco_task_options_t *o, const void *memory)
{
    if (o->shares_stack || memory != NULL || o->stack_sz <= runtime->stack_sz) {
        return 0;
    }
    aco_share_stack_t *stack = aco_try_share_stack_new2(o->stack_sz, 1);
    if (stack == NULL) {
        errno = ENOMEM;
        return -1;
    }
    aco_share_stack_destroy(stack);
    return 0;
}

static void set_options(aco_task_t *task, const aco_task_options_t *o, loop_t *loop)
{
    task->name = o->name;
    task->stack_sz = o->stack_sz;
    task->shares_stack = o->shares_stack != 0;
    task->loop = o->thread > 0 ? &loop->runtime->loops[o->thread - 1] : loop;
}

/* Makes a task as aco_i_spawn_in() does; with NULL for `place`, `fn` gets `arg`. `memory`, if not
 * NULL, is for its stack. */
static aco_task_t *make(const aco_task_options_t *options, void *memory, void *(*fn)(void *),
                        void (*place)(void *storage, void *arg), void *arg, int is_joinable)
{
    static const aco_task_options_t defaults;
    const aco_task_options_t *o = options == NULL ? &defaults : options;
    loop_t *loop = aco_i_loop;
    if (loop == NULL) {
        errno = EPERM;
        return NULL;
    }
    runtime_t *runtime = loop->runtime;
    if (o->thread < ACO_ANY || o->thread > runtime->ct_loops || !has_valid_stack(o)) {
        errno = EINVAL;
        return NULL;
    }
    aco_task_t *task = check_stack_sz(runtime, o, memory) != 0 ? NULL
                                                               : aco_i_new_task(loop, fn, arg);
    if (task == NULL) {
        return NULL;
    }
    set_options(task, o, loop);
    task->memory = memory;
    task->is_joinable = is_joinable != 0;
    if (o->group != NULL && aco_i_enter_group(o->group, task) != 0) {
        aco_i_free_task(task);
        return NULL;
    }
    if (place != NULL) {
        place(task->storage, arg);
        task->arg = task->storage;
        task->exit = EXIT_MISUSED;
    }
    ACO_I_PROBE(create, task, task->name);
    add_to(&runtime->ct_tasks, 1);
    if (o->thread == ACO_ANY && runtime->ct_loops > 1) {
        offer(runtime, task);
    } else {
        aco_i_make_ready(task);
    }
    return task;
}

int aco_i_spawn_in(const aco_task_options_t *options, void *(*fn)(void *storage),
                   void (*place)(void *storage, void *arg), void *arg, aco_task_t **task)
{
    need(fn, "aco_i_spawn_in", no_function);
    aco_task_t *made = make(options, NULL, fn, place, arg, task != NULL);
    if (made == NULL) {
        return -1;
    }
    if (task != NULL) {
        *task = made;
    }
    return 0;
}

static inline void check_entry(const char *call, void *(*fn)(void *), const void *arg)
{
    need(fn, call, no_function);
    check_argument(call, arg);
}

int aco_go(void *(*fn)(void *), void *arg)
{
    check_entry("aco_go", fn, arg);
    return make(NULL, NULL, fn, NULL, arg, 0) == NULL ? -1 : 0;
}

aco_task_t *aco_spawn(void *(*fn)(void *), void *arg)
{
    check_entry("aco_spawn", fn, arg);
    return make(NULL, NULL, fn, NULL, arg, 1);
}

int aco_go_with(const aco_task_options_t *options, void *(*fn)(void *), void *arg,
                aco_task_t **task)
{
    check_entry("aco_go_with", fn, arg);
    return aco_i_spawn_in(options, fn, NULL, arg, task);
}

int aco_group_go(aco_group_t *group, void *(*fn)(void *), void *arg)
{
    need(group, "aco_group_go", "the group is NULL: pass what aco_group_new() returned");
    check_entry("aco_group_go", fn, arg);
    aco_task_options_t options = {.group = group};
    return make(&options, NULL, fn, NULL, arg, 0) == NULL ? -1 : 0;
}

int aco_i_go_in(void *memory, size_t sz, void *(*fn)(void *), void *arg, aco_task_t **task)
{
    aco_task_options_t options = {.stack_sz = sz, .thread = ACO_ANY};
    *task = make(&options, memory, fn, NULL, arg, 1);
    return *task == NULL ? -1 : 0;
}

/* ==== Joining ================================================================================ */

/* Waits for the end of `task`. Releases the task's lock, which is held. */
static outcome_t wait_until_ended(aco_task_t *task, aco_task_t *self)
{
    task->joiner = self;
    aco_i_open_wait(self, FOR_JOIN);
    unlock(&task->lock);
    outcome_t outcome = aco_i_wait(self);
    if (outcome != WAIT_EVENT) {
        lock(&task->lock);
        task->joiner = NULL;
        outcome = task->has_ended ? WAIT_EVENT : outcome;
        unlock(&task->lock);
    }
    return outcome;
}

int aco_i_wait_for_end(aco_task_t *task, aco_task_t *self)
{
    lock(&task->lock);
    if (task->joiner != NULL) {
        aco_i_misuse_of("aco_join", "it was joined, or another task joins it: join a task once");
    }
    if (task->has_ended) {
        unlock(&task->lock);
        return 0;
    }
    return aco_i_result(wait_until_ended(task, self));
}

static int join(aco_task_t *task, aco_task_t *self, void **result)
{
    if (aco_i_wait_for_end(task, self) != 0) {
        return -1;
    }
    if (result != NULL) {
        *result = task->arg;
    }
    aco_i_free_task(task);
    return 0;
}

int aco_join(aco_task_t *task, void **result)
{
    aco_i_spend_call();
    static const char no_task[] = "no task to be joined: pass what aco_spawn() returned, once";
    need(task, "aco_join", no_task);
    aco_task_t *self = aco_i_self();
    int is_inside = self->loop != NULL && self->loop->runtime == task->runtime;
    runtime_t *held = is_inside ? NULL : aco_i_hold_runtime_of(task, aco_i_has_task);
    if (!is_inside && held == NULL) {
        aco_i_misuse_of("aco_join",
                        "it was joined, or its runtime has ended, and is freed: join a task once, "
                        "before aco_run() returns");
    }
    if (!task->is_joinable) {
        aco_i_misuse_of("aco_join", no_task);
    }
    int joined = -1;
    if (task == self) {
        errno = EDEADLK;
    } else {
        joined = join(task, self, result);
    }
    if (held != NULL) {
        aco_i_drop_runtime(held);
    }
    return joined;
}

/* ==== The running task ======================================================================= */

int aco_park(void)
{
    aco_i_spend_call();
    aco_task_t *self = aco_i_self();
    aco_i_open_wait(self, FOR_PARK);
    if (__atomic_exchange_n(&self->has_token, 0, __ATOMIC_SEQ_CST) && aco_i_close_wait(self)) {
        return 0;
    }
    int result = aco_i_result(aco_i_wait(self));
    if (result == 0) {
        __atomic_exchange_n(&self->has_token, 0, __ATOMIC_SEQ_CST); /* acquires what preceded it */
    }
    return result;
}

/* ==== Time =================================================================================== */

int64_t aco_deadline(void)
{
    const aco_task_t *self = aco_self();
    return self == NULL ? NO_DEADLINE : self->deadline;
}

int aco_sleep(int64_t ns)
{
    aco_i_spend_call();
    aco_task_t *self = aco_i_self();
    if (self->loop == NULL) {
        struct timespec left = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
        while (ns > 0 && nanosleep(&left, &left) != 0 && errno == EINTR) {
        }
        return 0;
    }
    if (ns < 1 && aco_i_let_others_run(self)) {
        return 0;
    }
    int64_t until = aco_i_after(ns);
    outcome_t outcome;
    do {
        aco_i_open_wait(self, FOR_SLEEP);
        outcome = aco_i_wait_until(self, until);
    } while (aco_i_goes_on_after(outcome, 0));
    return outcome == WAIT_NONE ? 0 : aco_i_result(outcome);
}

aco_i_scope_t aco_i_enter_within(int64_t ns)
{
    aco_i_scope_t scope = {NO_DEADLINE, aco_self(), 0, 1};
    if (scope.task != NULL) {
        int64_t deadline = aco_i_after(ns);
        scope.deadline = scope.task->deadline;
        scope.task->deadline = deadline < scope.deadline ? deadline : scope.deadline;
        if (scope.deadline > scope.task->loop->now && !scope.task->is_cancelled) {
            scope.task->ct_hopeless = 0; /* another deadline than that which failed */
        }
    }
    return scope;
}

aco_i_scope_t aco_i_enter_timed(int64_t ns)
{
    aco_i_scope_t scope = aco_i_enter_within(ns);
    if (scope.task == NULL) {
        scope.task = &aco_i_thread_task;
        scope.deadline = scope.task->deadline;
        scope.task->deadline = aco_i_after(ns);
    }
    return scope;
}

aco_i_scope_t aco_i_enter_shielded(void)
{
    aco_i_scope_t scope = {NO_DEADLINE, aco_i_self(), 1, 1};
    scope.deadline = scope.task->deadline;
    scope.task->deadline = NO_DEADLINE;
    scope.task->ct_shields++;
    return scope;
}

void aco_i_leave(aco_i_scope_t *scope)
{
    aco_task_t *task = scope->task;
    if (task == NULL) {
        return;
    }
    task->deadline = scope->deadline;
    task->ct_shields -= scope->is_shield;
    if (task->shields_groups && task->ct_shields == 0) {
        aco_i_unshield_groups(task);
    }
}
