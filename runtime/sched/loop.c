// SPDX-License-Identifier: Apache-2.0
/*
 * The loop of a thread: which task runs next, how tasks wait, and how their waits end.
 *
 * A task that waits switches to the next one that is ready, without the loop in between. The loop
 * itself runs on the thread's own stack: it starts tasks, unless one that ends leaves its stack to
 * the next one, and looks outside, at its inbox, its timers and its descriptors, when no task is
 * ready and else after every 64 switches.
 */
/* What the core's inline functions call for a coroutine that does not own its share stack is here
 * told of before, so that all other switches pay nothing for the probe of evictions. */
#define aco_i_acquire aco_i_acquire_told
#define aco_i_ferry aco_i_ferry_told
#include "internal.h"
#include "probes.h"
#undef aco_i_acquire
#undef aco_i_ferry

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SWITCHES_A_TURN 64u
#define EVENTS 64
#define SAMPLE_EVERY 20000000  /* ns between two wakes at least whose delays are counted */
#define SAMPLE_RETRY 1000000   /* ns between two looks for one */
#define STARVED_RETRY 10000000 /* ns after which a task that found no stack tries again */

__thread loop_t *aco_i_loop;
__thread aco_task_t aco_i_thread_task;

int64_t aco_i_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t aco_i_after(int64_t ns)
{
    int64_t now = aco_i_clock();
    return ns > NO_DEADLINE - now ? NO_DEADLINE : now + (ns < 0 ? 0 : ns);
}

void aco_i_lock_slowly(lock_t *lock)
{
    for (unsigned ct = 1;; ct++) {
        if (!__atomic_load_n(&lock->is_held, __ATOMIC_RELAXED) &&
            !__atomic_exchange_n(&lock->is_held, 1, __ATOMIC_ACQUIRE)) {
            return;
        }
        if (ct % 64 == 0) {
            aco_i_libc.sched_yield(); /* its holder may have lost the processor */
        }
    }
}

int aco_i_try_to_lock(lock_t *lock)
{
    for (int ct = 0; ct < 10000; ct++) {
        if (!__atomic_exchange_n(&lock->is_held, 1, __ATOMIC_ACQUIRE)) {
            return 1;
        }
        aco_i_libc.sched_yield();
    }
    return 0;
}

/* ==== Ready tasks ============================================================================ */

static inline void push_ready(loop_t *loop, aco_task_t *task)
{
    task->state = TASK_READY;
    task->next = NULL;
    *(loop->first_ready != NULL ? &loop->last_ready->next : &loop->first_ready) = task;
    loop->last_ready = task;
}

static inline aco_task_t *pop_ready(loop_t *loop)
{
    aco_task_t *task = loop->first_ready;
    if (task != NULL) {
        loop->first_ready = task->next;
    }
    return task;
}

/* Keeps a task for which there is no stack until another task has ended, or started, or for some
 * time: the shortage may be that of other threads. */
static __attribute__((noinline, cold)) void push_starved(loop_t *loop, aco_task_t *task)
{
    task->next = NULL;
    *(loop->first_starved != NULL ? &loop->last_starved->next : &loop->first_starved) = task;
    loop->last_starved = task;
    loop->retry_at = aco_i_clock() + STARVED_RETRY;
}

static __attribute__((noinline, cold)) void do_retry(loop_t *loop)
{
    aco_task_t *task = loop->first_starved;
    loop->first_starved = task->next;
    loop->retry_at = loop->now + STARVED_RETRY; /* for the next one */
    push_ready(loop, task);
}

/* Lets the first of these try again. */
static inline void retry_starved(loop_t *loop)
{
    if (aco_unlikely(loop->first_starved != NULL)) {
        do_retry(loop);
    }
}

/* The caller switches to `task` next. */
static inline void set_running(loop_t *loop, aco_task_t *task)
{
    loop->running = task;
    loop->switches_left--;
    loop->ct_switches++;
    task->state = TASK_RUNNING;
    *loop->error = task->error;
}

/* ==== Waits ================================================================================== */

/* Whether `wait` of a task was `from` and is `to` now. Only those that are parked are changed by
 * signal handlers. */
static inline int change_wait(aco_task_t *task, int *from, int to)
{
    if (is_alone() && *from != WAIT_PARKED && *from != WAIT_PARKED_SHIELDED) {
        __atomic_store_n(&task->wait, to, __ATOMIC_RELAXED);
        return 1;
    }
    return __atomic_compare_exchange_n(&task->wait, from, to, 0, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
}

int aco_i_close_wait(aco_task_t *task)
{
    int wait = __atomic_load_n(&task->wait, __ATOMIC_RELAXED);
    return wait < WAIT_EVENT && change_wait(task, &wait, WAIT_NONE);
}

static int may_end(int wait, outcome_t outcome)
{
    return wait != WAIT_NONE && wait < WAIT_EVENT &&
           (outcome != WAIT_CANCELLED || wait == WAIT_OPEN || wait == WAIT_PARKED);
}

int aco_i_claim(aco_task_t *task, outcome_t outcome)
{
    int wait = __atomic_load_n(&task->wait, __ATOMIC_SEQ_CST);
    while (may_end(wait, outcome)) {
        if (change_wait(task, &wait, (int)outcome)) {
            return 1;
        }
    }
    return 0;
}

void aco_i_wake_loop(loop_t *loop)
{
    if (__atomic_load_n(&loop->is_asleep, __ATOMIC_SEQ_CST) &&
        __atomic_exchange_n(&loop->is_asleep, 0, __ATOMIC_SEQ_CST)) {
        int error = errno;
        uint64_t one = 1;
        while (aco_i_libc.write(loop->event_fd, &one, sizeof(one)) < 0 && errno == EINTR) {
        }
        errno = error;
    }
}

/* From any thread and from signal handlers, which must keep off the ready queue. */
static void send_to_loop(aco_task_t *task)
{
    loop_t *loop = task->loop, *own = aco_i_loop;
    runtime_t *runtime = loop->runtime;
    aco_i_touch(runtime);
    if (own != NULL && own->trace != NULL) {
        aco_i_trace_wake(own, task);
    }
    task->next = __atomic_load_n(&loop->inbox, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&loop->inbox, &task->next, task, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
    }
    aco_i_wake_loop(loop);
    aco_i_untouch(runtime);
}

static void wake_thread(aco_task_t *task)
{
    __atomic_store_n(&task->is_woken, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &task->is_woken, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void aco_i_make_ready_by_inbox(aco_task_t *task)
{
    if (task->loop == NULL) {
        wake_thread(task);
    } else {
        send_to_loop(task);
    }
}

void aco_i_make_ready(aco_task_t *task)
{
    loop_t *loop = task->loop;
    ACO_I_PROBE(unpark, task, task->reason);
    if (loop == NULL) {
        wake_thread(task);
    } else if (loop == aco_i_loop) {
        loop->ct_wakes++;
        push_ready(loop, task);
        if (__atomic_load_n(&loop->is_asleep,
                            __ATOMIC_RELAXED)) { /* between turns of a loop in another one */
            aco_i_wake_loop(loop);
        }
    } else {
        send_to_loop(task);
    }
}

void aco_unpark(aco_task_t *task)
{
    if (task == NULL) {
        aco_i_misuse_of("aco_unpark", "the task is NULL: pass what aco_self() returned in it");
    }
    __atomic_store_n(&task->has_token, 1, __ATOMIC_SEQ_CST);
    int wait = __atomic_load_n(&task->wait, __ATOMIC_SEQ_CST);
    while (wait == WAIT_PARKED || wait == WAIT_PARKED_SHIELDED) {
        if (__atomic_compare_exchange_n(&task->wait, &wait, WAIT_EVENT, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            ACO_I_PROBE(unpark, task, FOR_PARK);
            aco_i_make_ready_by_inbox(task);
            return;
        }
    }
}

/* Sleeps until the thread is woken, or its deadline has passed, if it has one. */
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
    int error = errno;
    while (!__atomic_load_n(&task->is_woken, __ATOMIC_ACQUIRE)) {
        sleep_as_thread(task);
    }
    errno = error;
    outcome_t outcome = (outcome_t)task->wait;
    task->wait = WAIT_NONE;
    return outcome;
}

/* Whether a task has a coroutine, or can have the one that another task has left. */
static inline int has_co(loop_t *loop, aco_task_t *task)
{
    return task->co != NULL || (loop->spare_co != NULL && task->stack_sz == 0 &&
                                !task->shares_stack && aco_i_start(loop, task, NULL) == 0);
}

/* The next task, if it can be switched to from another one. */
static inline aco_task_t *next_in_place(loop_t *loop)
{
    aco_task_t *next = loop->first_ready;
    return next != NULL && loop->switches_left != 0 && loop->resumers == NULL &&
                   has_co(loop, next) && next->suspended == next->co
               ? pop_ready(loop)
               : NULL;
}

void aco_i_acquire(aco_t *co);
aco_t *aco_i_ferry(aco_t *co);

static inline void tell_evicted(const aco_t *co)
{
    size_t sz = co->save_stack.valid_sz;
    const loop_t *loop = sz != 0 ? aco_i_loop : NULL;
    if (loop != NULL && loop->running != NULL) { /* not in a child after fork() */
        ACO_I_PROBE(evict, loop->running, sz);
    }
}

HIDDEN void aco_i_acquire_told(aco_t *co)
{
    tell_evicted(co);
    aco_i_acquire(co);
}

HIDDEN aco_t *aco_i_ferry_told(aco_t *co)
{
    tell_evicted(co);
    return aco_i_ferry(co);
}

/* To ThreadSanitizer, a coroutine is a thread, and while one is left, it lets no child after fork()
 * start threads. */
#ifdef ACO_USE_TSAN
#define KEEPS_COS 0
#else
#define KEEPS_COS 1
#endif

/* One end of so many gives the stack back to the pool, which so sees how many are idle. */
#define POOL_SEES_EACH 8

/* Whether the end of a task can do without the loop. */
static inline int may_end_in_place(const loop_t *loop, const aco_task_t *task)
{
    return KEEPS_COS && loop->spare_co == NULL && task->stack_sz == 0 && !task->shares_stack &&
           task->state == TASK_RUNNING && loop->switches_left % POOL_SEES_EACH != 0 &&
           loop->resumers == NULL && loop->first_starved == NULL;
}

void aco_i_end_in_place(loop_t *loop, aco_task_t *task)
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

/* From a coroutine that the task has resumed to the loop; it goes on by resume_inner(). */
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
            aco_i_acquire_told(outer);
        }
    }
    aco_t *main_co = loop->main_co;
    aco_gtls_co = co;
    ACO_TELL_SWITCH(main_co, co);
    acosw(main_co, co);
    aco_gtls_co = main_co; /* the task may have suspended itself by aco_yield() meanwhile */
}

/* Of functions that must not return between switches, as processors predict returns by a stack of
 * their own, which a switch does not change; and of what would add to the frames of all waits. */
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

handling_t *__cxa_get_globals(void) __attribute__((weak));

handling_t *aco_i_handling(void)
{
    return __cxa_get_globals != NULL ? __cxa_get_globals() : NULL;
}

static inline int is_handling(const loop_t *loop)
{
    return loop->handling != NULL &&
           (loop->handling->caught != NULL || loop->handling->ct_uncaught != 0);
}

/* The exceptions that a task is handling wait with it: others have their own. */
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

outcome_t aco_i_wait(aco_task_t *task)
{
    loop_t *loop = task->loop;
    if (loop == NULL) {
        return wait_as_thread(task);
    }
    int must_end = task->ct_shields == 0 && __atomic_load_n(&task->is_cancelled, __ATOMIC_SEQ_CST);
    int is_late = task->deadline <= loop->now;
    if (!((must_end && aco_i_claim(task, WAIT_CANCELLED)) ||
          (is_late && aco_i_claim(task, WAIT_DEADLINE)))) {
        if (task->deadline != NO_DEADLINE) {
            aco_i_set_timer(task, task->deadline);
        }
        task->since = loop->now;
        ACO_I_PROBE(park, task, task->reason);
        suspend(loop, task);
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

int aco_i_result(outcome_t outcome)
{
    if (outcome == WAIT_EVENT) {
        return 0;
    }
    errno = outcome == WAIT_DEADLINE ? ETIMEDOUT : outcome == WAIT_CANCELLED ? ECANCELED : EPIPE;
    return -1;
}

/* ==== The loop =============================================================================== */

/* In a child after fork(), nobody else runs if the task yields, and its end is that of the process,
 * as for a process's last thread. */
static ACO_NORETURN void run_in_child(aco_t *co)
{
    while (!co->is_end) {
        aco_resume(co);
    }
    exit(EXIT_SUCCESS);
}

/* The task that the last one has resumed, or else the one that has resumed it: there is one. */
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

/* Switches to a task. When that is suspended or ends, returns the one that goes on: which it has
 * resumed, or which has resumed it; or NULL. */
static INLINE aco_task_t *switch_to(loop_t *loop, aco_task_t *task)
{
    set_running(loop, task);
    if (task->suspended == task->co) {
        aco_resume(task->co);
    } else {
        resume_inner(loop, task->suspended);
    }
    task = loop->running; /* may be another one than was resumed */
    loop->running = NULL;
    if (task == NULL) {
        /* it has ended in place */
    } else if (task->state == TASK_RUNNING) {
        if (task->co->is_end && aco_likely(task->exit == EXIT_AT_END)) {
            aco_i_reap(loop, task);
            retry_starved(loop);
        } else if (task->co->is_end) {
            aco_i_end_early(loop, task);
            push_ready(loop, task);
        } else { /* aco_yield() */
            task->error = *loop->error;
            task->suspended = task->co;
            push_ready(loop, task);
        }
    } else if (task->state == TASK_IN_CHILD) {
        loop->running = task; /* which its end asks for */
        run_in_child(task->co);
    }
    return loop->resumers == NULL ? NULL : next_resumed(loop);
}

/* 0: there is no stack for the task. */
static int start_task(loop_t *loop, aco_task_t *task)
{
    if (aco_unlikely(aco_i_start(loop, task, NULL) != 0)) {
        push_starved(loop, task);
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
        loop->switches_left++; /* to resume is a call, and no task's turn */
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
    int error = errno;
    loop->switches_left = 1; /* this one */
    run_task(loop, task);
    loop->switches_left = switches_left;
    aco_gtls_co = before;
    errno = error;
}

static void empty_inbox(loop_t *loop)
{
    aco_task_t *last_first = __atomic_load_n(&loop->inbox, __ATOMIC_RELAXED) == NULL
                                 ? NULL
                                 : __atomic_exchange_n(&loop->inbox, NULL, __ATOMIC_ACQUIRE);
    aco_task_t *first_first = NULL;
    while (last_first != NULL) {
        aco_task_t *task = last_first;
        last_first = task->next;
        task->next = first_first;
        first_first = task;
    }
    while (first_first != NULL) {
        aco_task_t *task = first_first;
        first_first = task->next;
        loop->ct_wakes++;
        push_ready(loop, task);
    }
}

void aco_i_take_ready(loop_t *loop, aco_task_t *task)
{
    while (task->state != TASK_READY) { /* another thread is making it so */
        empty_inbox(loop);
    }
    aco_task_t *previous = NULL;
    for (aco_task_t *ready = loop->first_ready; ready != task; ready = ready->next) {
        previous = ready;
    }
    *(previous != NULL ? &previous->next : &loop->first_ready) = task->next;
    if (loop->last_ready == task) {
        loop->last_ready = previous;
    }
    loop->sampled = loop->sampled == task ? NULL : loop->sampled;
}

/* Takes one of the tasks that any thread may start. */
static void take_any(loop_t *loop)
{
    runtime_t *runtime = loop->runtime;
    if (__atomic_load_n(&runtime->first_any, __ATOMIC_SEQ_CST) == NULL) {
        return;
    }
    lock(&runtime->lock);
    aco_task_t *task = runtime->first_any;
    if (task != NULL) {
        __atomic_store_n(&runtime->first_any, task->next, __ATOMIC_SEQ_CST);
    }
    unlock(&runtime->lock);
    if (task != NULL) {
        task->loop = loop;
        push_ready(loop, task);
    }
}

static int has_work(loop_t *loop)
{
    return __atomic_load_n(&loop->inbox, __ATOMIC_SEQ_CST) != NULL ||
           __atomic_load_n(&loop->runtime->first_any, __ATOMIC_SEQ_CST) != NULL ||
           __atomic_load_n(&loop->runtime->ct_tasks, __ATOMIC_SEQ_CST) == 0;
}

/* epoll_wait() in nanoseconds where the kernel has it (5.11), else in milliseconds, rounded up.
 * `timeout` < 0: until something happens. */
static int wait_for_events(loop_t *loop, struct epoll_event *events, int ct, int64_t timeout)
{
#ifdef SYS_epoll_pwait2
    static int is_missing;
    if (timeout > 0 && !__atomic_load_n(&is_missing, __ATOMIC_RELAXED)) {
        long long t[2] = {timeout / 1000000000, timeout % 1000000000}; /* on all processors */
        long got = syscall(SYS_epoll_pwait2, loop->epoll_fd, events, ct, t, NULL, 0);
        if (got >= 0 || errno != ENOSYS) {
            return (int)got;
        }
        __atomic_store_n(&is_missing, 1, __ATOMIC_RELAXED);
    }
#endif
    int64_t ms = timeout <= 0 ? timeout : (timeout + 999999) / 1000000;
    return epoll_wait(loop->epoll_fd, events, ct, ms > INT_MAX ? INT_MAX : (int)ms);
}

/* Wakes tasks whose descriptors have events; waits for one at most for `timeout` ns. */
static void poll_events(loop_t *loop, int64_t timeout)
{
    struct epoll_event events[EVENTS];
    int ct = wait_for_events(loop, events, EVENTS, timeout);
    __atomic_store_n(&loop->is_asleep, 0, __ATOMIC_RELAXED); /* the wakes that follow are its own */
    loop->ct_polls++;
    for (int i = 0; i < ct; i++) {
        uint64_t data = events[i].data.u64, count;
        if (data != ACO_I_INBOX && data != ACO_I_TIMER) {
            aco_i_happened(data, events[i].events);
            continue;
        }
        while (aco_i_libc.read(data == ACO_I_INBOX ? loop->event_fd : loop->timer_fd, &count,
                               sizeof(count)) < 0 &&
               errno == EINTR) {
        }
    }
}

int64_t aco_i_next_time(const loop_t *loop)
{
    int64_t timer = loop->ct_timers == 0 ? NO_DEADLINE : loop->timers[1].when;
    timer = loop->first_starved == NULL || timer < loop->retry_at ? timer : loop->retry_at;
    timer = timer < loop->trim_at ? timer : loop->trim_at;
    return loop->trusted == NULL || timer < loop->trusted_until ? timer : loop->trusted_until;
}

/* Looks at what has happened outside, and waits for that while no task is ready, but for `most` ns
 * at most unless that is < 0. */
static void look(loop_t *loop, int64_t most)
{
    empty_inbox(loop);
    loop->now = aco_i_clock();
    if (loop->turn_began != 0) {
        count_duration(&loop->turns, (uint64_t)(loop->now - loop->turn_began));
    }
    aco_i_expire_timers(loop);
    if (loop->first_starved != NULL && loop->retry_at <= loop->now) {
        retry_starved(loop);
    }
    if (loop->trusted != NULL && loop->trusted_until <= loop->now) {
        aco_i_end_trust(loop);
    }
    take_any(loop); /* if no thread is idle, one now and then: it must start some time */
    if (loop->first_ready != NULL) {
        if (loop->has_descriptors) {
            poll_events(loop, 0);
        }
        return;
    }
    aco_i_tend_stacks(loop);
    __atomic_store_n(&loop->is_asleep, 1, __ATOMIC_SEQ_CST);
    if (!has_work(loop)) {
        int64_t next = aco_i_next_time(loop);
        int64_t timeout = next == NO_DEADLINE ? -1 : next - loop->now;
        poll_events(loop, most < 0 || (timeout >= 0 && timeout < most) ? timeout : most);
        loop->now = aco_i_clock();
    } else if (loop->timer_fd >= 0) {
        poll_events(loop, 0); /* so that its descriptor is readable no longer */
    }
    __atomic_store_n(&loop->is_asleep, 0, __ATOMIC_SEQ_CST);
}

/* Chooses the last of the tasks that the look has woken for its delay to be counted. */
static void choose_sample(loop_t *loop, const aco_task_t *last_before)
{
    int has_woken = loop->first_ready != NULL && loop->last_ready != last_before;
    if (has_woken && loop->sampled == NULL && loop->now - loop->sampled_at >= SAMPLE_EVERY) {
        loop->sampled = loop->last_ready;
        loop->sampled_at = loop->now;
    }
}

/* Runs a turn's tasks by way of the loop, which sees each of them, until the chosen one runs, or
 * all of them if the loop is traced. */
static __attribute__((noinline)) void run_seen(loop_t *loop, const aco_task_t *last_before)
{
    unsigned ct = SWITCHES_A_TURN;
    int is_due = loop->trace != NULL || loop->first_ready == NULL; /* timers are next */
    choose_sample(loop, last_before);
    if (loop->trace != NULL) {
        aco_i_trace_look(loop, last_before);
    }
    while ((loop->sampled != NULL || loop->trace != NULL) && loop->first_ready != NULL && ct != 0) {
        if (loop->first_ready == loop->sampled) {
            count_duration(&loop->delays, (uint64_t)(aco_i_clock() - loop->sampled_at));
            loop->sampled = NULL;
        }
        loop->switches_left = 1; /* for no task to hand over to the next one */
        aco_task_t *task = pop_ready(loop);
        if (loop->trace != NULL) {
            aco_i_trace_begin_run(loop, task);
        }
        run_task(loop, task);
        if (loop->trace != NULL) {
            aco_i_trace_end_run(loop, task);
        }
        ct--;
    }
    loop->seen_at = is_due || loop->sampled != NULL ? 0 : loop->now + SAMPLE_RETRY;
    loop->switches_left = ct;
}

static void run_ready(loop_t *loop, int64_t most)
{
    const aco_task_t *last_before = loop->first_ready != NULL ? loop->last_ready : NULL;
    look(loop, most);
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
    handling_t mine = *loop->handling; /* of the caller of aco_run() */
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
