// SPDX-License-Identifier: Apache-2.0
/*
 * Tasks from their start to their end: spawn, join, park, cancel, deadlines, task-local values.
 *
 * A task gets its stack when it starts, not when it is made: many that are made at once and don't
 * wait run on one stack after another. Task structs are cut from chunks that live as long as their
 * runtime.
 */
#include "internal.h"
#include "probes.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#define CT_TASKS_A_CHUNK 128u
#define MAX_FREE_TASKS (2 * CT_TASKS_A_CHUNK) /* of a loop */
#define MAX_KEYS 1024u
#define DESTRUCTOR_ROUNDS 4
#define IDLE_TIME 1000000000 /* ns after which idle stacks are given back */

struct chunk_s {
    struct chunk_s *next;
    aco_task_t tasks[CT_TASKS_A_CHUNK];
};

/* ==== Structs ================================================================================ */

/* Both under the lock of the runtime. */
static void give_tasks(loop_t *loop, size_t ct)
{
    while (ct-- != 0) {
        aco_task_t *task = loop->free_tasks;
        loop->free_tasks = task->next;
        loop->ct_free_tasks--;
        task->next = loop->runtime->free_tasks;
        loop->runtime->free_tasks = task;
    }
}

static void take_tasks(loop_t *loop)
{
    runtime_t *runtime = loop->runtime;
    while (runtime->free_tasks != NULL && loop->ct_free_tasks < CT_TASKS_A_CHUNK) {
        aco_task_t *task = runtime->free_tasks;
        runtime->free_tasks = task->next;
        task->next = loop->free_tasks;
        loop->free_tasks = task;
        loop->ct_free_tasks++;
    }
}

static int add_chunk(loop_t *loop)
{
    struct chunk_s *chunk = (struct chunk_s *)aco_i_allocate(sizeof(*chunk));
    if (chunk == NULL) {
        errno = ENOMEM;
        return -1;
    }
    memset(chunk, 0, sizeof(*chunk));
    chunk->next = loop->runtime->chunks;
    loop->runtime->chunks = chunk;
    for (size_t i = CT_TASKS_A_CHUNK; i-- != 0;) {
        chunk->tasks[i].next = loop->free_tasks;
        loop->free_tasks = &chunk->tasks[i];
        loop->ct_free_tasks++;
    }
    return 0;
}

uint64_t aco_i_new_id(void)
{
    static atomic_uint64_t last;
    uint64_t id = add_to(&last, 1);
    if (aco_unlikely((uintptr_t)id == 0)) { /* where addresses have 32 bits */
        id = add_to(&last, 1);
    }
    return id;
}

aco_task_t *aco_i_new_task(loop_t *loop, void *(*fn)(void *), void *arg)
{
    if (loop->free_tasks == NULL) {
        lock(&loop->runtime->lock);
        take_tasks(loop);
        int failed = loop->free_tasks == NULL && add_chunk(loop) != 0;
        unlock(&loop->runtime->lock);
        if (failed) {
            return NULL;
        }
    }
    aco_task_t *task = loop->free_tasks;
    loop->free_tasks = task->next;
    loop->ct_free_tasks--;
    size_t sz = sizeof(*task);
    __asm__("" : "+r"(sz)); /* compilers that know it use an instruction that starts slowly */
    memset(task, 0, sz);
    task->runtime = loop->runtime;
    task->id = aco_i_new_id();
    task->state = TASK_NEW;
    task->fn = fn;
    task->arg = arg;
    task->deadline = NO_DEADLINE;
    task->node.task = task;
    return task;
}

void aco_i_free_task(aco_task_t *task)
{
    loop_t *loop = aco_i_loop;
    runtime_t *runtime = task->runtime;
    task->state = TASK_FREE;
    if (loop == NULL || loop->runtime != runtime) { /* joined from outside */
        lock(&runtime->lock);
        task->next = runtime->free_tasks;
        runtime->free_tasks = task;
        unlock(&runtime->lock);
        return;
    }
    task->next = loop->free_tasks;
    loop->free_tasks = task;
    if (++loop->ct_free_tasks > MAX_FREE_TASKS) {
        lock(&runtime->lock);
        give_tasks(loop, CT_TASKS_A_CHUNK);
        unlock(&runtime->lock);
    }
}

void aco_i_free_chunks(runtime_t *runtime)
{
    while (runtime->chunks != NULL) {
        struct chunk_s *chunk = runtime->chunks;
        runtime->chunks = chunk->next;
        aco_i_release(chunk);
    }
}

READS_RACILY void aco_i_each_task(runtime_t *runtime, void (*fn)(const aco_task_t *, void *),
                                  void *arg)
{
    int is_locked = aco_i_try_to_lock(&runtime->lock);
    const struct chunk_s *chunk = runtime->chunks; /* they stay, and others come before them */
    if (is_locked) {
        unlock(&runtime->lock);
    }
    for (; chunk != NULL; chunk = chunk->next) {
        for (size_t i = 0; i < CT_TASKS_A_CHUNK; i++) {
            if (chunk->tasks[i].state != TASK_FREE && chunk->tasks[i].state != TASK_ENDED) {
                fn(&chunk->tasks[i], arg);
            }
        }
    }
}

void aco_i_each_unjoined(const runtime_t *runtime, void (*fn)(const aco_task_t *, void *arg),
                         void *arg)
{
    for (const struct chunk_s *chunk = runtime->chunks; chunk != NULL; chunk = chunk->next) {
        for (size_t i = 0; i < CT_TASKS_A_CHUNK; i++) {
            if (chunk->tasks[i].state == TASK_ENDED) {
                fn(&chunk->tasks[i], arg);
            }
        }
    }
}

/* ==== Start and end ========================================================================== */

static __attribute__((noinline)) void end_task(void *result)
{
    loop_t *loop = (loop_t *)aco_get_arg();
    aco_task_t *task = loop->running;
    task->arg = result;
    if (task->locals != NULL) {
        aco_i_run_destructors(task);
    }
    aco_i_end_in_place(loop, task);
}

/* Holds nothing while the function runs, so that its frame is small. After fork(), the thread of a
 * child has no loop any more. */
static void enter_task(void)
{
    for (;;) {
        const aco_task_t *task = ((loop_t *)aco_get_arg())->running;
        end_task(task->fn(task->arg));
    }
}

static void enter_end(void)
{
    end_task(NULL);
    enter_task(); /* of the task that the coroutine was left to */
}

void aco_i_end_early(loop_t *loop, aco_task_t *task)
{
    if (task->exit == EXIT_MISUSED) {
        loop->running = task;
        aco_i_misuse_of("aco_exit",
                        "it would skip destructors and lose the result of the task: "
                        "return from its callable");
    }
    aco_reset(task->co, enter_end, loop);
    task->suspended = task->co;
}

/* The share stack of a loop; NULL with ENOMEM. */
static aco_share_stack_t *share_stack_of(loop_t *loop)
{
    if (loop->share_stack == NULL) {
        loop->share_stack = aco_try_share_stack_new2(loop->runtime->stack_sz, 1);
    }
    return loop->share_stack;
}

/* A coroutine on a stack of the pool: new, or what a task has left. */
static aco_t *pooled_co(loop_t *loop)
{
    aco_t *co = loop->spare_co;
    loop->spare_co = NULL;
    if (co == NULL) {
        co = aco_stack_pool_try_create_co(loop->pool, loop->main_co, enter_task, loop);
#ifndef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
        if (co != NULL) {
            loop->control_words = co->reg[ACO_REG_IDX_FPU];
        }
    } else {
        co->reg[ACO_REG_IDX_FPU] = loop->control_words;
#endif
    }
    return co;
}

/* A coroutine on the stack that the task asked for. */
static aco_t *new_co(loop_t *loop, aco_task_t *task, aco_share_stack_t *shared)
{
    if (task->shares_stack) {
        shared = shared != NULL ? shared : share_stack_of(loop);
        return shared == NULL ? NULL : aco_try_create(loop->main_co, shared, 0, enter_task, loop);
    }
    if (task->stack_sz == 0) {
        return pooled_co(loop);
    }
    aco_share_stack_t *stack = aco_try_share_stack_new2(task->stack_sz, 1);
    aco_t *co = stack == NULL ? NULL : aco_try_create(loop->main_co, stack, 0, enter_task, loop);
    if (co == NULL && stack != NULL) {
        aco_share_stack_destroy(stack);
    }
    return co;
}

/* Messages of the core name the entry function of a coroutine, which is the same for all tasks:
 * they are to name the task's. */
static void name_function(aco_task_t *task)
{
    task->co->fp = (aco_cofuncp_t)(uintptr_t)task->fn;
}

void aco_i_name(const char *name, void *fn)
{
    loop_t *loop = aco_i_loop;
    aco_task_t *self = loop->running;
    self->name = self->name != NULL ? self->name : name;
    if (fn != NULL) {
        self->fn = (void *(*)(void *))(uintptr_t)fn; /* its own was called */
        name_function(self);
    }
    if (loop->trace != NULL) {
        aco_i_trace_name(loop, self);
    }
}

int aco_i_start(loop_t *loop, aco_task_t *task, aco_share_stack_t *stack)
{
    size_t ct_timers = loop->ct_tasks + loop->ct_later + 1;
    if (ct_timers >= loop->timers_sz && aco_i_reserve_timers(loop, ct_timers) != 0) {
        return -1;
    }
    task->co = task->suspended = new_co(loop, task, stack);
    if (task->co == NULL) {
        return -1;
    }
    name_function(task);
    loop->ct_tasks++;
    loop->ct_later -= task->starts_later != 0;
    loop->ct_started++;
    ACO_I_PROBE(start, task, task->name);
    return 0;
}

void aco_i_reset(aco_task_t *task)
{
    aco_reset(task->co, enter_task, task->loop);
    task->suspended = task->co;
    name_function(task);
}

static void destroy_co(loop_t *loop, aco_task_t *task)
{
    if (task->co == NULL) {
        return; /* it leaves it to the next task */
    }
    if (!task->shares_stack && task->stack_sz == 0) {
        aco_stack_pool_destroy_co(loop->pool, task->co);
        return;
    }
    aco_share_stack_t *stack = task->shares_stack ? NULL : task->co->share_stack;
    aco_destroy(task->co);
    if (stack != NULL) {
        aco_share_stack_destroy(stack);
    }
}

static void trim_stacks(loop_t *loop)
{
    if (loop->spare_co != NULL) {
        aco_stack_pool_destroy_co(loop->pool, loop->spare_co);
        loop->spare_co = NULL;
    }
    aco_stack_pool_trim(loop->pool);
    loop->trim_at = NO_DEADLINE;
}

/* Stacks are idle if more of them are unused than tasks have started and ended in all the time. So
 * bursts keep theirs, and a loop that sleeps wakes once at most for them. */
void aco_i_tend_stacks(loop_t *loop)
{
    uint64_t ct = 2 * loop->ct_started - loop->ct_tasks; /* starts and ends */
    if (ct == loop->ct_tended && loop->trim_at > loop->now) {
        return;
    }
    aco_stack_pool_stats_t stats;
    aco_stack_pool_stats(loop->pool, &stats);
    size_t ct_idle = stats.idle + (loop->spare_co != NULL);
    loop->ct_tended = ct;
    if (ct_idle == 0) {
        loop->trim_at = NO_DEADLINE;
    } else if (loop->trim_at == NO_DEADLINE || ct - loop->ct_at_trim >= ct_idle) {
        loop->ct_at_trim = ct;
        loop->trim_at = loop->now + IDLE_TIME;
    } else if (loop->trim_at <= loop->now) {
        trim_stacks(loop);
    }
}

/* Lets those who wait for the end of a task go on. Whether it remains to be joined. */
static int tell_of_end(aco_task_t *task)
{
    lock(&task->lock);
    task->state = TASK_ENDED;
    /* Who joins frees the task, perhaps right after the unlock. */
    __atomic_store_n(&task->has_ended, 1, __ATOMIC_RELEASE);
    int is_detached = task->is_detached;
    aco_task_t *joiner = task->joiner;
    int is_claimed = joiner != NULL && aco_i_claim(joiner, WAIT_EVENT);
    for (aco_i_watch_t *watch = task->watches; watch != NULL; watch = watch->next) {
        watch->fn(watch);
    }
    unlock(&task->lock);
    if (is_claimed) {
        aco_i_make_ready(joiner);
    }
    return !is_detached;
}

void aco_i_reap(loop_t *loop, aco_task_t *task)
{
    runtime_t *runtime = loop->runtime;
    ACO_I_PROBE(end, task, task->name);
    destroy_co(loop, task);
    task->co = NULL;
    loop->ct_tasks--;
    if (task->groups != NULL) {
        aco_i_abandon_groups(task);
    }
    if (task->group != NULL) {
        aco_i_leave_group(task);
    }
    if (!task->is_joinable) {
        aco_i_free_task(task);
    } else if (!tell_of_end(task)) {
        if (task->discard != NULL) {
            task->discard(task->storage, task->arg);
        }
        aco_i_free_task(task);
    }
    if (add_to(&runtime->ct_tasks, UINT64_MAX) == 0) {
        for (int i = 0; i < runtime->ct_loops; i++) {
            aco_i_wake_loop(&runtime->loops[i]);
        }
    }
}

/* ==== Making tasks =========================================================================== */

/* Lets any thread start the task, preferably one that has nothing to do. */
static void offer(runtime_t *runtime, aco_task_t *task)
{
    lock(&runtime->lock);
    task->next = NULL;
    if (runtime->first_any != NULL) {
        runtime->last_any->next = task;
    } else {
        __atomic_store_n(&runtime->first_any, task, __ATOMIC_SEQ_CST);
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

/* Whether the task could have its stack if it started now. Of a stack no larger than the first
 * task's, that is known. -1 with ENOMEM. */
static int check_stack_sz(const runtime_t *runtime, const aco_task_options_t *o)
{
    if (o->shares_stack || o->stack_sz <= runtime->stack_sz) {
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

aco_task_t *aco_i_make(const aco_task_options_t *options, void *(*fn)(void *),
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
    aco_task_t *task = check_stack_sz(runtime, o) != 0 ? NULL : aco_i_new_task(loop, fn, arg);
    if (task == NULL) {
        return NULL;
    }
    set_options(task, o, loop);
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

static inline void check_entry(const char *call, void *(*fn)(void *), const void *arg)
{
    if (aco_unlikely(fn == NULL)) {
        aco_i_misuse_of(call, "the function is NULL: pass one for the task to run");
    }
    check_argument(call, arg);
}

int aco_go(void *(*fn)(void *), void *arg)
{
    check_entry("aco_go", fn, arg);
    return aco_i_make(NULL, fn, NULL, arg, 0) == NULL ? -1 : 0;
}

aco_task_t *aco_spawn(void *(*fn)(void *), void *arg)
{
    check_entry("aco_spawn", fn, arg);
    return aco_i_make(NULL, fn, NULL, arg, 1);
}

int aco_go_with(const aco_task_options_t *options, void *(*fn)(void *), void *arg,
                aco_task_t **task)
{
    check_entry("aco_go_with", fn, arg);
    aco_task_t *made = aco_i_make(options, fn, NULL, arg, task != NULL);
    if (made == NULL) {
        return -1;
    }
    if (task != NULL) {
        *task = made;
    }
    return 0;
}

int aco_group_go(aco_group_t *group, void *(*fn)(void *), void *arg)
{
    if (group == NULL) {
        aco_i_misuse_of("aco_group_go", "the group is NULL: pass what aco_group_new() returned");
    }
    check_entry("aco_group_go", fn, arg);
    aco_task_options_t options = {.group = group};
    return aco_i_make(&options, fn, NULL, arg, 0) == NULL ? -1 : 0;
}

/* ==== Joining ================================================================================ */

/* Waits for the end of `task`, whose lock is held, and released. */
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
    if (task == NULL || !task->is_joinable) {
        aco_i_misuse_of("aco_join", "no task to be joined: pass what aco_spawn() returned, once");
    }
    aco_task_t *self = aco_i_self();
    if (task == self) {
        errno = EDEADLK;
        return -1;
    }
    runtime_t *runtime = task->runtime;
    if (self->loop != NULL && self->loop->runtime == runtime) {
        return join(task, self, result);
    }
    aco_i_touch(runtime);
    int joined = join(task, self, result);
    aco_i_untouch(runtime);
    return joined;
}

/* ==== The running task ======================================================================= */

aco_task_t *aco_self(void)
{
    return aco_i_loop == NULL ? NULL : aco_i_loop->running;
}

static void check_task(const char *call, const aco_task_t *task)
{
    if (task == NULL) {
        aco_i_misuse_of(call,
                        "the task is NULL: pass what aco_spawn() or, in a task, aco_self() "
                        "returned");
    }
}

uint64_t aco_task_id(const aco_task_t *task)
{
    check_task("aco_task_id", task);
    return task->id;
}

const char *aco_task_name(const aco_task_t *task)
{
    check_task("aco_task_name", task);
    return task->name == NULL ? "" : task->name;
}

int aco_i_is_lent(const aco_task_t *self, const void *ptr)
{
    const aco_t *co = is_moved(self, ptr) ? aco_get_co() : NULL;
    for (; co != NULL && co->share_stack != NULL; co = co->main_co) {
        const aco_share_stack_t *stack = co->share_stack;
        if ((uintptr_t)ptr - (uintptr_t)stack->ptr < stack->sz &&
            (stack == self->loop->share_stack || stack->ct_coroutines > 1)) {
            return 1;
        }
    }
    return 0;
}

void aco_i_misuse_of(const char *call, const char *rule)
{
    const aco_task_t *self = aco_self();
    static char text[512], label[ACO_I_LABEL_SZ];
    if (self != NULL) {
        aco_i_find_modules();
        aco_i_begin_last_places();
        aco_i_label(label, self);
        aco_i_end_places();
        snprintf(text, sizeof(text), "%s (task %llu \"%s\")", rule, (unsigned long long)self->id,
                 label);
    } else {
        snprintf(text, sizeof(text), "%s (thread %ld, outside of tasks)", rule,
                 (long)syscall(SYS_gettid));
    }
    aco_i_fail(call, aco_get_co(), text);
}

int aco_park(void)
{
    aco_task_t *self = aco_i_self();
    aco_i_open_wait(self, FOR_PARK);
    if (__atomic_exchange_n(&self->has_token, 0, __ATOMIC_SEQ_CST) && aco_i_close_wait(self)) {
        return 0;
    }
    int result = aco_i_result(aco_i_wait(self));
    if (result == 0) {
        __atomic_exchange_n(&self->has_token, 0, __ATOMIC_SEQ_CST); /* sees what was before it */
    }
    return result;
}

/* ==== Time =================================================================================== */

int64_t aco_now(void)
{
    return aco_i_clock();
}

int64_t aco_deadline(void)
{
    const aco_task_t *self = aco_self();
    return self == NULL ? NO_DEADLINE : self->deadline;
}

int aco_sleep(int64_t ns)
{
    aco_task_t *self = aco_i_self();
    if (self->loop == NULL) {
        struct timespec left = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
        while (ns > 0 && nanosleep(&left, &left) != 0 && errno == EINTR) {
        }
        return 0;
    }
    aco_i_open_wait(self, FOR_SLEEP);
    outcome_t outcome = aco_i_wait_until(self, aco_i_after(ns));
    return outcome == WAIT_NONE ? 0 : aco_i_result(outcome);
}

aco_i_scope_t aco_i_enter_within(int64_t ns)
{
    aco_i_scope_t scope = {NO_DEADLINE, aco_self(), 0, 1};
    if (scope.task != NULL) {
        int64_t deadline = aco_i_after(ns);
        scope.deadline = scope.task->deadline;
        scope.task->deadline = deadline < scope.deadline ? deadline : scope.deadline;
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

/* ==== Task-local values ====================================================================== */

static struct {
    unsigned ct;
    void (*destructors[MAX_KEYS])(void *);
} keys;

int aco_key_create(aco_key_t *key, void (*destructor)(void *))
{
    if (key == NULL) {
        aco_i_misuse_of("aco_key_create", "there is no place for the key: pass an aco_key_t");
    }
    unsigned ct = __atomic_load_n(&keys.ct, __ATOMIC_ACQUIRE);
    do {
        if (ct == MAX_KEYS) {
            errno = EAGAIN;
            return -1;
        }
    } while (
        !__atomic_compare_exchange_n(&keys.ct, &ct, ct + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    __atomic_store_n(&keys.destructors[ct], destructor, __ATOMIC_RELEASE);
    *key = ct;
    return 0;
}

__thread aco_task_t *aco_i_forked_task;

/* The task whose values are the caller's; NULL: none. */
static inline aco_task_t *task_with_values(void)
{
    aco_task_t *self = aco_self();
    return aco_likely(self != NULL) ? self : aco_i_forked_task;
}

static int grow_locals(aco_task_t *task, size_t ct)
{
    void **locals = (void **)aco_i_allocate(ct * sizeof(*locals));
    if (locals == NULL) {
        errno = ENOMEM;
        return -1;
    }
    memset(locals, 0, ct * sizeof(*locals));
    if (task->ct_locals != 0) {
        memcpy(locals, task->locals, task->ct_locals * sizeof(*locals));
    }
    aco_i_release(task->locals);
    task->locals = locals;
    task->ct_locals = (uint16_t)ct;
    return 0;
}

int aco_setspecific(aco_key_t key, const void *value)
{
    aco_task_t *self = task_with_values();
    if (self == NULL || key >= __atomic_load_n(&keys.ct, __ATOMIC_ACQUIRE)) {
        errno = self == NULL ? EPERM : EINVAL;
        return -1;
    }
    if (key >= self->ct_locals && grow_locals(self, key + 8) != 0) {
        return -1;
    }
    self->locals[key] = (void *)(uintptr_t)value;
    return 0;
}

void *aco_getspecific(aco_key_t key)
{
    const aco_task_t *self = task_with_values();
    return self != NULL && key < self->ct_locals ? self->locals[key] : NULL;
}

void aco_i_run_destructors(aco_task_t *task)
{
    int is_left = 1;
    for (int round = 0; is_left && round < DESTRUCTOR_ROUNDS; round++) {
        is_left = 0;
        for (size_t key = 0; key < task->ct_locals; key++) {
            void *value = task->locals[key];
            void (*destructor)(void *) =
                key < MAX_KEYS ? __atomic_load_n(&keys.destructors[key], __ATOMIC_ACQUIRE) : NULL;
            task->locals[key] = NULL;
            if (value != NULL && destructor != NULL) {
                destructor(value);
                is_left = 1;
            }
        }
    }
    aco_i_release(task->locals);
    task->locals = NULL;
    task->ct_locals = 0;
}
