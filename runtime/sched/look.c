// SPDX-License-Identifier: Apache-2.0
/*
 * Looks outside for a loop: at its inbox, its timers, its descriptors, and at tasks that any thread
 * may start. Sleeps while no task is ready.
 */
#include "sched/sched.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#define EVENTS 64
#define IDLE_TIME 1000000000 /* ns after which idle memory is given back */

/* How much of each kind of memory is unused. */
typedef struct {
    size_t ct_stacks, ct_tasks, ct_copies;
} unused_t;

static unused_t find_unused(const loop_t *loop)
{
    aco_stack_pool_stats_t stats;
    aco_stack_pool_stats(loop->pool, &stats);
    size_t ct_stacks = stats.idle + (loop->spare_co != NULL);
    for (int i = 0; i < CT_CLASSES; i++) {
        if (loop->classes[i] != NULL) {
            aco_stack_pool_stats(loop->classes[i], &stats);
            ct_stacks += stats.idle;
        }
    }
    return (unused_t){ct_stacks, __atomic_load_n(&loop->runtime->ct_returned, __ATOMIC_RELAXED),
                      loop->most_copying - loop->ct_copying};
}

static void trim_stacks(loop_t *loop)
{
    if (loop->spare_co != NULL) {
        aco_stack_pool_destroy_co(loop->pool, loop->spare_co);
        loop->spare_co = NULL;
    }
    aco_stack_pool_trim(loop->pool);
    for (int i = 0; i < CT_CLASSES; i++) {
        if (loop->classes[i] != NULL) {
            aco_stack_pool_trim(loop->classes[i]);
        }
    }
}

/* The copies were freed when their tasks ended, but libc keeps such memory. */
static void trim_copies(loop_t *loop)
{
    loop->most_copying = loop->ct_copying;
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* Memory of a kind is idle if more of it is unused than tasks started and ended within IDLE_TIME,
 * `ct`. */
static void trim(loop_t *loop, unused_t unused, uint64_t ct)
{
    if (unused.ct_stacks > ct) {
        trim_stacks(loop);
    }
    if (unused.ct_tasks > ct) {
        aco_i_trim_tasks(loop);
    }
    if (unused.ct_copies > ct) {
        trim_copies(loop);
    }
    loop->trim_at = NO_DEADLINE;
    loop->now = aco_i_clock(); /* millions of tasks take milliseconds */
}

/* Bursts keep their memory, and a loop that sleeps wakes for it once at most. */
void aco_i_tend(loop_t *loop)
{
    uint64_t ct = 2 * loop->counts.ct_started - loop->ct_tasks; /* starts and ends */
    if (ct == loop->ct_tended && loop->trim_at > loop->now) {
        return;
    }
    unused_t unused = find_unused(loop);
    size_t most = unused.ct_stacks > unused.ct_tasks ? unused.ct_stacks : unused.ct_tasks;
    most = most > unused.ct_copies ? most : unused.ct_copies;
    loop->ct_tended = ct;
    if (most == 0) {
        loop->trim_at = NO_DEADLINE;
    } else if (loop->trim_at == NO_DEADLINE || ct - loop->ct_at_trim >= most) {
        loop->ct_at_trim = ct;
        loop->trim_at = loop->now + IDLE_TIME;
    } else if (loop->trim_at <= loop->now) {
        trim(loop, unused, ct - loop->ct_at_trim);
    }
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
        loop->counts.ct_wakes++;
        push_ready(loop, task);
    }
}

void aco_i_take_ready(loop_t *loop, aco_task_t *task)
{
    while (task->state != TASK_READY) { /* another thread is making it ready */
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

/* Calls epoll_wait() with nanoseconds where the kernel has that (5.11), else with milliseconds,
 * rounded up. `timeout` < 0: until something happens. */
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

/* Wakes tasks whose descriptors have events; waits for the first event for `timeout` ns at most. */
static void poll_events(loop_t *loop, int64_t timeout)
{
    struct epoll_event events[EVENTS];
    int ct = wait_for_events(loop, events, EVENTS, timeout);
    __atomic_store_n(&loop->is_asleep, 0, __ATOMIC_RELAXED); /* it wakes by itself from here on */
    loop->counts.ct_polls++;
    for (int i = 0; i < ct; i++) {
        uint64_t data = events[i].data.u64, count;
        if (data == ACO_I_RING) {
            loop->take_results(loop);
            continue;
        }
        if (data != ACO_I_INBOX && data != ACO_I_TIMER) {
            aco_i_on_event(data, events[i].events);
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
    return loop->cached == NULL || timer < loop->cached_until ? timer : loop->cached_until;
}

void aco_i_look(loop_t *loop, int64_t most)
{
    empty_inbox(loop);
    if (loop->take_results != NULL) {
        loop->take_results(loop);
    }
    loop->now = aco_i_clock();
    if (loop->turn_began != 0) {
        count_duration(&loop->counts.turns, (uint64_t)(loop->now - loop->turn_began));
    }
    aco_i_expire_timers(loop);
    if (loop->first_starved != NULL && loop->retry_at <= loop->now) {
        aco_i_retry_starved(loop);
    }
    if (loop->cached != NULL && loop->cached_until <= loop->now) {
        aco_i_end_cached(loop);
    }
    take_any(loop); /* one at a time even if no thread is ever idle, so that all start */
    if (loop->first_ready != NULL) {
        if (loop->has_descriptors) {
            poll_events(loop, 0);
        }
        return;
    }
    aco_i_tend(loop);
    __atomic_store_n(&loop->is_asleep, 1, __ATOMIC_SEQ_CST);
    keep_load_behind();
    if (!has_work(loop)) {
        int64_t next = aco_i_next_time(loop);
        int64_t timeout = next == NO_DEADLINE ? -1 : next > loop->now ? next - loop->now : 0;
        poll_events(loop, most < 0 || (timeout >= 0 && timeout < most) ? timeout : most);
        loop->now = aco_i_clock();
    } else if (loop->timer_fd >= 0) {
        poll_events(loop, 0); /* else its timerfd keeps epoll_fd readable */
    }
    __atomic_store_n(&loop->is_asleep, 0, __ATOMIC_SEQ_CST);
}
