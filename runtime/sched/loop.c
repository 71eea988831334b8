// SPDX-License-Identifier: Apache-2.0
/*
 * Runs the tasks of a thread: chooses the next one, switches to it, and suspends tasks that wait.
 *
 * A task that waits switches to the next one that is ready, without the loop in between. The loop
 * itself runs on the thread's own stack. It starts tasks, unless one that ends leaves its stack to
 * the next one. It looks outside, at its inbox, its timers and its descriptors, when no task is
 * ready, and otherwise after every 64 switches.
 */
/* The core's cold path calls this, so that all other switches pay nothing for the probe. */
struct aco_s;
__attribute__((visibility("hidden"))) void aco_i_tell_evicted(const struct aco_s *co);
#define ACO_I_PROBE_ACQUIRE(co) aco_i_tell_evicted(co)
#include "base/probes.h"
#include "sched/sched.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#define SWITCHES_A_TURN 64u
#define SAMPLE_EVERY 20000000 /* ns at least between two wakes whose delays are counted */
#define SAMPLE_RETRY 1000000  /* ns between two searches for one */
#define ROUNDS_A_TURN 3u      /* rounds of calls before a task lets others run */
#define TURN_TIME 1000000     /* ns since the last look after which it does so, too */
#define REST_TIME 1000000     /* ns */
#define HOPELESS 3            /* waits in a row that failed at once before each takes REST_TIME */

/* ==== Ready tasks ============================================================================ */

/* Takes the first of those that are ready; there is one. */
static inline aco_task_t *pop_ready(loop_t *loop)
{
    aco_task_t *task = loop->first_ready;
    loop->first_ready = task->next;
    return task;
}

static inline void retry_starved(loop_t *loop)
{
    if (aco_unlikely(loop->first_starved != NULL)) {
        aco_i_retry_starved(loop);
    }
}

/* Prepares a switch to `task`, which the caller does next. */
static inline void set_running(loop_t *loop, aco_task_t *task)
{
    loop->running = task;
    loop->calls_left = ACO_I_CALLS_A_ROUND;
    loop->switches_left--;
    loop->counts.ct_switches++;
    task->state = TASK_RUNNING;
    *loop->error = task->error;
}

/* ==== Waits ================================================================================== */

/* Sleeps until the thread is woken or its deadline, if it has one, has passed. */
static void sleep_as_thread(aco_task_t *task)
{
    int64_t when = task->deadline;
    long t[2] = {(long)(when / 1000000000), (long)(when % 1000000000)}; /* on all processors */
    int has_deadline = when != 0 && when != NO_DEADLINE;
    if (has_deadline && aco_i_clock() >= when && aco_i_claim(task, WAIT_DEADLINE)) {
        __atomic_store_n(&task->is_woken, 1, __ATOMIC_RELAXED);
        return;
    }
    syscall(SYS_futex, &task->is_woken, FUTEX_WAIT_BITSET_PRIVATE, 0, has_deadline ? t : NULL, NULL,
            FUTEX_BITSET_MATCH_ANY);
}

/* Not inlined, so that the frames of tasks that wait are small. */
static __attribute__((noinline, cold)) outcome_t wait_as_thread(aco_task_t *task)
{
    if (aco_i_loop != NULL) {
        aco_i_misuse_of("a call that waits",
                        "the thread's own loop stands still meanwhile: make the call in a task");
    }
    KEEP_ERRNO();
    while (!__atomic_load_n(&task->is_woken, __ATOMIC_ACQUIRE)) {
        sleep_as_thread(task);
    }
    outcome_t outcome = (outcome_t)task->wait;
    task->wait = WAIT_NONE;
    return outcome;
}

/* Returns whether a task has a coroutine; gives it the one that another task has left, if any. */
static inline int has_co(loop_t *loop, aco_task_t *task)
{
    return task->co != NULL || (loop->spare_co != NULL && task->stack_sz == 0 &&
                                !task->shares_stack && aco_i_start(loop, task, NULL) == 0);
}

/* Takes the next task from the ready queue if a task can switch to it; NULL if not. */
static inline aco_task_t *next_in_place(loop_t *loop)
{
    aco_task_t *next = loop->first_ready;
    return next != NULL && loop->switches_left != 0 && loop->resumers == NULL &&
                   has_co(loop, next) && next->suspended == next->co
               ? pop_ready(loop)
               : NULL;
}

void aco_i_tell_evicted(const aco_t *co)
{
    size_t sz = co->save_stack.valid_sz;
    const loop_t *loop = sz != 0 ? aco_i_loop : NULL;
    if (loop != NULL && loop->running != NULL) { /* not in a child after fork() */
        ACO_I_PROBE(evict, loop->running, sz);
    }
}

/* ThreadSanitizer takes a coroutine for a thread; while one is left, a child after fork() can't
 * start threads. */
#ifdef ACO_USE_TSAN
#define KEEPS_COS 0
#else
#define KEEPS_COS 1
#endif

/* Every eighth task that ends returns its stack to the pool, which counts idle stacks by such
 * calls. */
#define POOL_SEES_EACH 8

/* Returns whether a task can end without a switch to the loop. */
static inline int may_end_in_place(const loop_t *loop, const aco_task_t *task)
{
    return KEEPS_COS && loop->spare_co == NULL && task->stack_sz == 0 && !task->shares_stack &&
           task->state == TASK_RUNNING && loop->switches_left % POOL_SEES_EACH != 0 &&
           loop->resumers == NULL && loop->first_starved == NULL;
}

static void end_in_place(loop_t *loop, aco_task_t *task)
{
    if (!may_end_in_place(loop, task)) {
        task->exit = EXIT_AT_END;
        aco_exit();
    }
    aco_t *co = task->co;
    task->co = NULL;
    loop->running = NULL;
    aco_i_reap(loop, task);
    aco_task_t *next = next_in_place(loop);
    loop->spare_co = co;
    if (next == NULL) {
        aco_yield();
    } else {
        set_running(loop, next);
        aco_yield_to(next->co);
    }
}

static __attribute__((noinline)) void end_task(void *result)
{
    loop_t *loop = (loop_t *)aco_get_arg();
    aco_task_t *task = loop->running;
    task->arg = result;
    if (task->locals != NULL) {
        aco_i_run_destructors(task);
    }
    end_in_place(loop, task);
}

/* Keeps no value while the function runs, so that its frame is small. The argument gives the loop,
 * as the thread of a child after fork() has none. */
void aco_i_enter_task(void)
{
    for (;;) {
        const aco_task_t *task = ((loop_t *)aco_get_arg())->running;
        end_task(task->fn(task->arg));
    }
}

static void enter_end(void)
{
    end_task(NULL);
    aco_i_enter_task(); /* for the next task, which has the coroutine */
}

/* Makes a task begin anew after aco_exit(), to do what is left to do in it. */
static __attribute__((noinline, cold)) void end_early(loop_t *loop, aco_task_t *task)
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

/* Switches to the loop from a coroutine that the task has resumed; resume_inner() switches back. */
static __attribute__((noinline)) void suspend_inner(loop_t *loop, aco_t *co)
{
    aco_t *main_co = loop->main_co;
    aco_gtls_co = main_co;
    ACO_TELL_SWITCH(co, main_co);
    acosw(co, main_co);
}

static __attribute__((noinline)) void resume_inner(loop_t *loop, aco_t *co)
{
    for (aco_t *outer = co; outer != loop->main_co; outer = outer->main_co) {
        if (!outer->is_owner) {
            aco_i_tell_evicted(outer);
            aco_i_acquire(outer);
        }
    }
    aco_t *main_co = loop->main_co;
    aco_gtls_co = co;
    ACO_TELL_SWITCH(main_co, co);
    acosw(main_co, co);
    aco_gtls_co = main_co; /* the task may have suspended itself by aco_yield() meanwhile */
}

/* For functions that must not return between switches, because processors predict returns by a
 * stack of their own, which a switch does not change; and for those that would add a frame to each
 * wait. */
#define INLINE inline __attribute__((always_inline))

static INLINE void switch_away(loop_t *loop, aco_task_t *task)
{
    aco_t *co = aco_get_co();
    task->suspended = co;
    task->state = TASK_WAITING;
    task->error = *loop->error;
    if (co != task->co) {
        suspend_inner(loop, co);
        return;
    }
    aco_task_t *next = next_in_place(loop);
    if (next == NULL) {
        aco_yield();
    } else if (next != task) {
        set_running(loop, next);
        aco_yield_to(next->co);
    } else {
        set_running(loop, next); /* its wait has ended already */
    }
}

static inline int is_handling(const loop_t *loop)
{
    return loop->handling != NULL &&
           (loop->handling->caught != NULL || loop->handling->ct_uncaught != 0);
}

/* Suspends a task with the exceptions that it is handling: other tasks have their own. */
static __attribute__((noinline)) void suspend_handling(loop_t *loop, aco_task_t *task)
{
    handling_t mine = *loop->handling;
    memset(loop->handling, 0, sizeof(mine));
    switch_away(loop, task);
    *loop->handling = mine;
}

static INLINE void suspend(loop_t *loop, aco_task_t *task)
{
    if (is_handling(loop)) {
        suspend_handling(loop, task);
    } else {
        switch_away(loop, task);
    }
}

void (*aco_i_on_return)(aco_task_t *task);
aco_i_interrupt_t (*aco_i_on_interrupt)(aco_task_t *task);

/* Must follow each switch back to a task. */
static INLINE void go_on(aco_task_t *task)
{
    if (aco_unlikely(task->is_thread)) {
        aco_i_on_return(task);
    }
}

outcome_t aco_i_wait(aco_task_t *task)
{
    loop_t *loop = task->loop;
    if (loop == NULL) {
        return wait_as_thread(task);
    }
    int must_end = task->ct_shields == 0 && __atomic_load_n(&task->is_cancelled, __ATOMIC_SEQ_CST);
    int is_late = task->deadline <= loop->now;
    int is_interrupted = __atomic_load_n(&task->is_interrupted, __ATOMIC_SEQ_CST);
    if (aco_unlikely(is_interrupted) && aco_i_claim(task, WAIT_INTERRUPTED)) {
        /* it does not begin */
    } else if ((must_end && aco_i_claim(task, WAIT_CANCELLED)) ||
               (is_late && aco_i_claim(task, WAIT_DEADLINE))) {
        if (task->ct_hopeless < HOPELESS) {
            task->ct_hopeless++;
        }
    } else {
        task->ct_hopeless = 0;
        if (task->deadline != NO_DEADLINE) {
            aco_i_set_timer(task, task->deadline);
        }
        task->since = loop->now;
        ACO_I_PROBE(park, task, task->reason);
        suspend(loop, task);
        go_on(task);
        ACO_I_PROBE(resume, task, task->reason);
        if (task->timer != 0) {
            aco_i_clear_timer(task);
        }
    }
    outcome_t outcome = (outcome_t)__atomic_load_n(&task->wait, __ATOMIC_ACQUIRE);
    __atomic_store_n(&task->wait, WAIT_NONE, __ATOMIC_RELAXED);
    return outcome;
}

outcome_t aco_i_wait_until(aco_task_t *task, int64_t until)
{
    int64_t outer = task->deadline;
    if (outer <= until) {
        return aco_i_wait(task);
    }
    task->deadline = until;
    outcome_t outcome = aco_i_wait(task);
    task->deadline = outer;
    return outcome == WAIT_DEADLINE ? WAIT_NONE : outcome;
}

/* ==== Budgets ================================================================================ */

/* The thread's blocked signals, as the kernel's first 64. Hooks and libc are left out. */
static uint64_t blocked_signals(void)
{
    uint64_t mask = 0;
    KEEP_ERRNO();
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, sizeof(mask), 0L, 0L);
    return mask;
}

static inline void learn_mask(loop_t *loop)
{
    if (aco_unlikely(!loop->knows_mask)) {
        loop->mask = blocked_signals();
        loop->knows_mask = 1;
    }
}

/* Whether one of these signals has a handler, or had one until it was called. sigaction() refuses
 * libc's own signals, which have handlers. */
static int have_handler(uint64_t signals)
{
    struct sigaction action;
    KEEP_ERRNO();
    for (int number = 1; signals != 0; number++, signals >>= 1) {
        if ((signals & 1) != 0 &&
            (sigaction(number, NULL, &action) != 0 || (action.sa_flags & (int)SA_RESETHAND) != 0 ||
             (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN))) {
            return 1;
        }
    }
    return 0;
}

/* Whether a signal handler may be the caller, which must not switch: it may have interrupted
 * malloc(). While it runs, its signal is blocked. The loop learns at its next look if a task has
 * blocked a signal that has a handler. */
static int may_be_in_handler(loop_t *loop)
{
    uint64_t mask = blocked_signals();
    if (mask != loop->mask) {
        if (have_handler(mask & ~loop->mask)) {
            loop->knows_mask = 0;
            return 1;
        }
        loop->mask = mask;
    }
    return 0;
}

/* Puts the running task at the end of the ready queue. */
static void switch_to_others(loop_t *loop, aco_task_t *task)
{
    aco_t *co = aco_get_co();
    task->suspended = co;
    task->state = TASK_READY;
    task->error = *loop->error;
    if (co != task->co) {
        suspend_inner(loop, co);
    } else {
        aco_yield();
    }
}

static void let_others_run(loop_t *loop, aco_task_t *task)
{
    if (is_handling(loop)) {
        handling_t mine = *loop->handling;
        memset(loop->handling, 0, sizeof(mine));
        switch_to_others(loop, task);
        *loop->handling = mine;
    } else {
        switch_to_others(loop, task);
    }
    go_on(task);
}

void aco_i_yield(void)
{
    let_others_run(aco_i_loop, aco_i_loop->running);
}

int aco_i_let_others_run(aco_task_t *task)
{
    loop_t *loop = task->loop;
    int must_end = task->ct_shields == 0 && __atomic_load_n(&task->is_cancelled, __ATOMIC_SEQ_CST);
    if (must_end || (task->deadline != NO_DEADLINE && task->deadline <= aco_i_clock())) {
        return 0;
    }
    task->ct_hopeless = 0;
    task->reason = FOR_SLEEP;
    task->since = loop->now;
    push_ready(loop, task); /* as if its wait had ended already */
    suspend(loop, task);
    go_on(task);
    return 1;
}

/* This wait disregards the task's deadline, and that it is cancelled. */
void aco_i_rest(void)
{
    aco_task_t *task = aco_i_self();
    if (task->ct_hopeless != HOPELESS || may_be_in_handler(task->loop)) {
        return;
    }
    KEEP_ERRNO();
    int64_t outer = task->deadline;
    task->ct_shields++;
    task->deadline = aco_i_after(REST_TIME);
    aco_i_open_wait(task, FOR_SLEEP);
    aco_i_wait(task);
    task->deadline = outer;
    task->ct_shields--;
    task->ct_hopeless = HOPELESS - 1;
}

int aco_i_result(outcome_t outcome)
{
    if (outcome == WAIT_EVENT) {
        return 0;
    }
    aco_i_rest();
    errno = outcome == WAIT_DEADLINE      ? ETIMEDOUT
            : outcome == WAIT_CANCELLED   ? ECANCELED
            : outcome == WAIT_INTERRUPTED ? EINTR
                                          : EPIPE;
    return -1;
}

int aco_i_goes_on_after(outcome_t outcome, int may_restart)
{
    if (aco_likely(outcome != WAIT_INTERRUPTED)) {
        return 0;
    }
    aco_task_t *task = aco_i_self();
    aco_i_interrupt_t interrupt = aco_i_on_interrupt(task);
    task->may_restart = interrupt == INTERRUPT_RESTARTS;
    return interrupt == INTERRUPT_NOTHING || (task->may_restart && may_restart);
}

int aco_i_may_restart(void)
{
    return errno == EINTR && aco_i_self()->may_restart;
}

__attribute__((noinline, cold)) void aco_i_end_round(loop_t *loop)
{
    aco_task_t *task = loop->running;
    loop->calls_left = ACO_I_CALLS_A_ROUND;
    if (loop->rounds_of != loop->counts.ct_switches) {
        loop->rounds_of = loop->counts.ct_switches;
        loop->ct_rounds = 0;
    }
    loop->ct_rounds++;
    int is_late = aco_i_clock() - loop->now >= TURN_TIME;
    int has_others = loop->first_ready != NULL || loop->resumers != NULL || loop->is_awaited;
    int is_over = loop->ct_rounds >= ROUNDS_A_TURN && has_others;
    if (task == NULL || !(is_late || is_over) || may_be_in_handler(loop)) {
        return;
    }
    if (is_late) {
        end_turn(loop, 0);
    }
    let_others_run(loop, task);
}

/* ==== The loop =============================================================================== */

/* Goes on with the task that called fork(), in the child. No other task runs if it yields, and its
 * end ends the process, as that of a last thread does. */
static ACO_NORETURN void run_in_child(aco_t *co)
{
    while (!co->is_end) {
        aco_resume(co);
    }
    exit(EXIT_SUCCESS);
}

/* Returns the task that the last one has resumed, or else the one that has resumed it: there is
 * one. */
static __attribute__((noinline)) aco_task_t *next_resumed(loop_t *loop)
{
    aco_task_t *next = loop->resumed;
    if (next == NULL) {
        next = loop->resumers;
        loop->resumers = next->next;
    }
    loop->resumed = NULL;
    return next;
}

/* Switches to a task. When that is suspended or has ended, returns the task that it has resumed, or
 * that has resumed it, and is to go on; or NULL. */
static INLINE aco_task_t *switch_to(loop_t *loop, aco_task_t *task)
{
    set_running(loop, task);
    if (task->suspended == task->co) {
        aco_resume(task->co);
    } else {
        resume_inner(loop, task->suspended);
    }
    task = loop->running; /* others may have followed the one that was resumed */
    loop->running = NULL;
    if (task == NULL) {
        /* it has ended in place */
    } else if (task->state == TASK_RUNNING) {
        if (task->co->is_end && aco_likely(task->exit == EXIT_AT_END)) {
            aco_i_reap(loop, task);
            retry_starved(loop);
        } else if (task->co->is_end) {
            end_early(loop, task);
            push_ready(loop, task);
        } else { /* aco_yield() */
            task->error = *loop->error;
            task->suspended = task->co;
            push_ready(loop, task);
        }
    } else if (task->state == TASK_READY) { /* its budget is spent */
        push_ready(loop, task);
    } else if (task->state == TASK_IN_CHILD) {
        loop->running = task; /* end_task() reads it */
        run_in_child(task->co);
    }
    return loop->resumers == NULL ? NULL : next_resumed(loop);
}

/* Starts a task and returns 1; or 0 if there is no stack for it. */
static int start_task(loop_t *loop, aco_task_t *task)
{
    if (aco_unlikely(aco_i_start(loop, task, NULL) != 0)) {
        aco_i_starve(loop, task);
        loop->switches_left--;
        return 0;
    }
    retry_starved(loop);
    return 1;
}

static INLINE void run_task(loop_t *loop, aco_task_t *task)
{
    if (task->co == NULL && aco_unlikely(!start_task(loop, task))) {
        return;
    }
    while ((task = switch_to(loop, task)) != NULL) {
        loop->switches_left++; /* resuming is a call, and no task's turn */
    }
}

void aco_i_run_now(loop_t *loop, aco_task_t *task)
{
    aco_task_t *self = loop->running;
    if (self != NULL) {
        self->reason = FOR_RESUMED;
        self->since = loop->now;
        self->next = loop->resumers;
        loop->resumers = self;
        loop->resumed = task;
        suspend(loop, self);
        return;
    }
    aco_t *before = aco_gtls_co;
    unsigned switches_left = loop->switches_left;
    KEEP_ERRNO();
    learn_mask(loop);
    loop->switches_left = 1; /* this one */
    loop->is_awaited = 1;
    run_task(loop, task);
    loop->is_awaited = 0;
    loop->switches_left = switches_left;
    aco_gtls_co = before;
}

/* Chooses the last task that the look has woken, so that its delay is counted. */
static void choose_sample(loop_t *loop, const aco_task_t *last_before)
{
    int has_woken = loop->first_ready != NULL && loop->last_ready != last_before;
    if (has_woken && loop->sampled == NULL && loop->now - loop->sampled_at >= SAMPLE_EVERY) {
        loop->sampled = loop->last_ready;
        loop->sampled_at = loop->now;
    }
}

/* Runs the tasks of a turn by way of the loop, which sees each: up to the chosen one, or all if the
 * loop is traced. */
static __attribute__((noinline)) void run_seen(loop_t *loop, const aco_task_t *last_before)
{
    unsigned ct = SWITCHES_A_TURN;
    int is_due = loop->trace != NULL || loop->first_ready == NULL; /* timers are next */
    choose_sample(loop, last_before);
    if (loop->trace != NULL) {
        aco_i_observer->look(loop, last_before);
    }
    while ((loop->sampled != NULL || loop->trace != NULL) && loop->first_ready != NULL && ct != 0) {
        if (loop->first_ready == loop->sampled) {
            count_duration(&loop->counts.delays, (uint64_t)(aco_i_clock() - loop->sampled_at));
            loop->sampled = NULL;
        }
        loop->switches_left = 1; /* so that no task switches to the next one */
        aco_task_t *task = pop_ready(loop);
        if (loop->trace != NULL) {
            aco_i_observer->begin_run(loop, task);
        }
        run_task(loop, task);
        if (loop->trace != NULL) {
            aco_i_observer->end_run(loop, task);
        }
        ct = __atomic_load_n(&loop->must_look, __ATOMIC_RELAXED) ? 0 : ct - 1;
    }
    loop->seen_at = is_due || loop->sampled != NULL ? 0 : loop->now + SAMPLE_RETRY;
    loop->switches_left = ct;
}

static void run_ready(loop_t *loop, int64_t most)
{
    const aco_task_t *last_before = loop->first_ready != NULL ? loop->last_ready : NULL;
    __atomic_store_n(&loop->must_look, 0, __ATOMIC_RELAXED);
    aco_i_look(loop, most);
    learn_mask(loop);
    loop->turn_began = loop->first_ready != NULL ? loop->now : 0;
    loop->switches_left = SWITCHES_A_TURN;
    if (loop->now >= loop->seen_at) {
        run_seen(loop, last_before);
    }
    while (loop->switches_left != 0 && loop->first_ready != NULL) {
        run_task(loop, pop_ready(loop));
    }
}

void aco_i_run_turn(loop_t *loop, int64_t most)
{
    if (!is_handling(loop)) {
        run_ready(loop, most);
        return;
    }
    handling_t mine = *loop->handling; /* the caller of aco_run() handles them */
    memset(loop->handling, 0, sizeof(mine));
    run_ready(loop, most);
    *loop->handling = mine;
}

void aco_i_run_loop(loop_t *loop)
{
    while (__atomic_load_n(&loop->runtime->ct_tasks, __ATOMIC_SEQ_CST) != 0) {
        aco_i_run_turn(loop, -1);
    }
}
