// SPDX-License-Identifier: Apache-2.0
/*
 * Ends waits, on any thread: one caller claims the wait of a task and makes the task ready, by its
 * loop's ready queue, the inbox of that loop, or the futex of a thread outside of tasks.
 */
#include "base/probes.h"
#include "sched/sched.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>

/* Changes `wait` of a task from `from` to `to`, and returns whether it did. A single thread needs
 * one instruction for it all the same, as signal handlers end waits, too. */
static inline int change_wait(aco_task_t *task, int *from, int to)
{
#if defined(__x86_64__) || defined(__i386__)
    if (is_alone()) {
        int is_done;
        __asm__ volatile("cmpxchgl %3, %1"
                         : "=@ccz"(is_done), "+m"(task->wait), "+a"(*from)
                         : "r"(to)
                         : "memory");
        return is_done;
    }
#endif
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
        KEEP_ERRNO();
        uint64_t one = 1;
        while (aco_i_libc.write(loop->event_fd, &one, sizeof(one)) < 0 && errno == EINTR) {
        }
    }
}

/* Runs on any thread, and in signal handlers, which must keep off the ready queue. */
static void send_to_loop(aco_task_t *task)
{
    loop_t *loop = task->loop, *own = aco_i_loop;
    runtime_t *runtime = loop->runtime;
    aco_i_hold_runtime(runtime);
    if (own != NULL && own->trace != NULL) {
        aco_i_observer->wake(own, task);
    }
    task->next = __atomic_load_n(&loop->inbox, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&loop->inbox, &task->next, task, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
    }
    aco_i_wake_loop(loop);
    aco_i_drop_runtime(runtime);
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
        loop->counts.ct_wakes++;
        push_ready(loop, task);
        if (__atomic_load_n(&loop->is_asleep, __ATOMIC_RELAXED)) {
            aco_i_wake_loop(loop); /* it is between turns, embedded in another one */
        }
    } else {
        send_to_loop(task);
    }
}

void aco_i_interrupt(aco_task_t *task)
{
    __atomic_store_n(&task->is_interrupted, 1, __ATOMIC_SEQ_CST);
    keep_load_behind();
    if (aco_i_claim(task, WAIT_INTERRUPTED)) {
        aco_i_make_ready_by_inbox(task);
    }
}

void aco_i_wake_all(aco_task_t *first)
{
    while (first != NULL) {
        aco_task_t *task = first;
        first = task->next;
        aco_i_make_ready(task);
    }
}

void aco_unpark(aco_task_t *task)
{
    need(task, "aco_unpark", "the task is NULL: pass what aco_self() returned in it");
    __atomic_store_n(&task->has_token, 1, __ATOMIC_SEQ_CST);
    keep_load_behind();
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
