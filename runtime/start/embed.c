// SPDX-License-Identifier: Apache-2.0
/*
 * Embeds a loop in a thread's loop of another kind, which runs a turn of it now and then.
 *
 * Between turns the loop counts as asleep, so that its eventfd is written to when a task becomes
 * ready; and a timerfd is set for the first timer. Its epoll_fd watches both, and the descriptors
 * that tasks wait for: it is readable when there is something to do.
 */
#include "start/start.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define SHORTEST_PAUSE 1000000 /* ns between calls of the `fn` of aco_i_run_turns() */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* ends the runtime of a thread that ends */

static void end(void *arg)
{
    loop_t *loop = (loop_t *)arg;
    if (loop != aco_i_loop) {
        return; /* a child after fork(): the loop was the parent's */
    }
    if (loop->at_end != NULL) {
        if (loop->at_end() != 0) {
            return; /* other threads may still refer to them */
        }
        __atomic_sub_fetch(&loop->runtime->ct_tasks, 1, __ATOMIC_SEQ_CST);
    }
    if (loop->runtime->ct_tasks != 0) {
        aco_i_misuse_of("aco_run_once",
                        "the thread ends before the tasks of its loop: call it "
                        "until it returns 0");
    }
    aco_i_loop = NULL;
    aco_i_end_runtime(loop->runtime);
}

static void make_key(void)
{
    pthread_key_create(&key, end);
}

/* Makes a loop for the caller; NULL with errno. */
static loop_t *make_loop(void)
{
    runtime_t *runtime = aco_i_begin_runtime(NULL);
    if (runtime == NULL) {
        return NULL;
    }
    loop_t *loop = &runtime->loops[0];
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = ACO_I_TIMER};
    loop->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    pthread_once(&once, make_key);
    if (loop->timer_fd < 0 ||
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->timer_fd, &event) != 0 ||
        pthread_setspecific(key, loop) != 0) {
        KEEP_ERRNO();
        aco_i_end_runtime(runtime);
        return NULL;
    }
    loop->is_asleep = 1;
    return aco_i_loop = loop;
}

loop_t *aco_i_own_loop(int (*at_end)(void))
{
    loop_t *loop = aco_i_loop != NULL ? aco_i_loop : make_loop();
    if (loop != NULL && loop->at_end == NULL && at_end != NULL) {
        loop->at_end = at_end;
        __atomic_add_fetch(&loop->runtime->ct_tasks, 1, __ATOMIC_SEQ_CST);
    }
    return loop;
}

/* Returns the caller's loop, or a new one, for a turn; NULL with errno, EBUSY in aco_run(), a task
 * or another coroutine. */
static loop_t *loop_to_turn(void)
{
    const aco_t *co = aco_get_co();
    if (co != NULL && !aco_is_main_co(co)) {
        errno = EBUSY;
        return NULL;
    }
    loop_t *loop = aco_i_own_loop(NULL);
    if (loop != NULL && (loop->running != NULL || loop->timer_fd < 0)) {
        errno = EBUSY;
        return NULL;
    }
    return loop;
}

int aco_loop_fd(void)
{
    loop_t *loop = loop_to_turn();
    return loop == NULL ? -1 : loop->epoll_fd;
}

static void set_timer(const loop_t *loop)
{
    struct itimerspec time = {{0, 0}, {0, 0}};
    int64_t when = aco_i_next_time(loop);
    if (when != NO_DEADLINE) {
        time.it_value.tv_sec = (time_t)(when / 1000000000);
        time.it_value.tv_nsec = (long)(when % 1000000000);
    }
    timerfd_settime(loop->timer_fd, TFD_TIMER_ABSTIME, &time, NULL);
}

/* Turns run between leave_sleep() and enter_sleep(). */
static void leave_sleep(loop_t *loop)
{
    __atomic_store_n(&loop->is_asleep, 0, __ATOMIC_SEQ_CST);
}

static void enter_sleep(loop_t *loop)
{
    loop->turn_began = 0;
    aco_i_tend(loop);
    set_timer(loop);
    __atomic_store_n(&loop->is_asleep, 1, __ATOMIC_SEQ_CST);
    keep_load_behind();
    if (loop->first_ready != NULL || __atomic_load_n(&loop->inbox, __ATOMIC_SEQ_CST) != NULL) {
        aco_i_wake_loop(loop);
    }
}

int aco_run_once(int64_t timeout)
{
    loop_t *loop = loop_to_turn();
    if (loop == NULL) {
        return -1;
    }
    aco_t *before = aco_gtls_co;
    KEEP_ERRNO();
    leave_sleep(loop);
    aco_i_run_turn(loop, timeout);
    aco_gtls_co = before;
    enter_sleep(loop);
    int has_tasks = __atomic_load_n(&loop->runtime->ct_tasks, __ATOMIC_SEQ_CST) != 0;
    if (!has_tasks) { /* perhaps the thread won't run it again */
        aco_i_forget_loop(loop);
    }
    return has_tasks;
}

void aco_i_run_turns(loop_t *loop, int (*fn)(void *), void *arg, int64_t longest_pause)
{
    aco_t *before = aco_gtls_co;
    int64_t most = fn == NULL ? -1 : SHORTEST_PAUSE;
    uint64_t ct_switches;
    int result = 0;
    leave_sleep(loop);
    do {
        ct_switches = loop->counts.ct_switches;
        aco_i_run_turn(loop, most);
        if (fn != NULL) {
            aco_gtls_co = before;
            result = fn(arg);
            most = loop->counts.ct_switches != ct_switches ? SHORTEST_PAUSE
                   : 2 * most < longest_pause              ? 2 * most
                                                           : longest_pause;
        }
    } while (result != -1 && aco_i_loop == loop);
    if (aco_i_loop == loop) { /* else `fn` has called fork(), and this is the child */
        enter_sleep(loop);
    }
}
