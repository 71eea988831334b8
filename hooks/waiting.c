// SPDX-License-Identifier: Apache-2.0
/* Waits of tasks for locks and similar of the program: waiting.h. */
#include "waiting.h"

#define FIRST_RETRY 50000     /* ns after which the first in a queue tries again if it must */
#define LAST_RETRY 50000000   /* ns; the time doubles up to this */
#define REPEATED_WAIT 1000000 /* ns that a wait lasts at least if it is bound to fail */

/* Values of `kind` in a node: the task waits for an object, or for a signal. */
enum { FOR_OBJECT, FOR_SIGNAL };

bucket_t aco_i_buckets[CT_BUCKETS];

/* Stands for all objects of a bucket. */
static const char all_objects;

/* ==== Buckets ================================================================================ */

static node_t *first_of(const bucket_t *bucket, const void *object)
{
    node_t *node = bucket->queue.first;
    while (node != NULL && node->item != object) {
        node = node->next;
    }
    return node;
}

static void enter(bucket_t *bucket, aco_task_t *task, const void *object, size_t kind)
{
    task->node.task = task;
    task->node.item = (void *)(uintptr_t)object;
    task->node.kind = kind;
    enqueue(&bucket->queue, &task->node);
    __atomic_store_n(&bucket->ct, bucket->ct + 1, __ATOMIC_SEQ_CST);
}

static void leave(bucket_t *bucket, node_t *node)
{
    dequeue(node);
    __atomic_store_n(&bucket->ct, bucket->ct - 1, __ATOMIC_RELAXED);
}

/* Claims the first task in an object's queue, so that it tries again, and returns it as a list of
 * one; it stays in the queue. NULL if that task does not wait just now: then it will try, or wake
 * the next one. */
static aco_task_t *claim_first(const bucket_t *bucket, const void *object)
{
    node_t *node = first_of(bucket, object);
    if (node == NULL || !aco_i_claim(node->task, WAIT_EVENT)) {
        return NULL;
    }
    node->task->next = NULL;
    return node->task;
}

static aco_task_t *claim_missed(bucket_t *bucket)
{
    const void *object = __atomic_exchange_n(&bucket->missed, NULL, __ATOMIC_SEQ_CST);
    if (object != &all_objects) {
        return object == NULL ? NULL : claim_first(bucket, object);
    }
    aco_task_t *first = NULL;
    for (node_t *node = bucket->queue.first; node != NULL; node = node->next) {
        if (node->kind == FOR_OBJECT && aco_i_claim(node->task, WAIT_EVENT)) {
            node->task->next = first;
            first = node->task;
        }
    }
    return first;
}

static void make_all_ready(aco_task_t *first, void (*make_ready)(aco_task_t *task))
{
    while (first != NULL) {
        aco_task_t *task = first;
        first = task->next;
        make_ready(task);
    }
}

static int try_lock(bucket_t *bucket)
{
    return !__atomic_exchange_n(&bucket->lock.is_held, 1, __ATOMIC_SEQ_CST);
}

/* Also wakes tasks for objects that were released meanwhile by callers that could not wait for the
 * lock. */
static void unlock_bucket(bucket_t *bucket)
{
    do {
        aco_task_t *first = claim_missed(bucket);
        __atomic_store_n(&bucket->lock.is_held, 0, __ATOMIC_SEQ_CST);
        make_all_ready(first, aco_i_make_ready_by_inbox);
    } while (__atomic_load_n(&bucket->missed, __ATOMIC_SEQ_CST) != NULL && try_lock(bucket));
}

/* ==== Releases =============================================================================== */

void aco_i_call_first(const void *object)
{
    bucket_t *bucket = bucket_of(object);
    lock(&bucket->lock);
    aco_task_t *first = claim_first(bucket, object);
    unlock_bucket(bucket);
    make_all_ready(first, aco_i_make_ready);
}

void aco_i_released_by_any(const void *object)
{
    bucket_t *bucket = bucket_of(object);
    __sync_synchronize();
    if (__atomic_load_n(&bucket->ct, __ATOMIC_RELAXED) == 0) {
        return;
    }
    const void *missed = NULL;
    if (!__atomic_compare_exchange_n(&bucket->missed, &missed, object, 0, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST) &&
        missed != object) {
        __atomic_store_n(&bucket->missed, &all_objects, __ATOMIC_SEQ_CST);
    }
    if (try_lock(bucket)) {
        unlock_bucket(bucket);
    }
}

/* ==== Time =================================================================================== */

/* The limit as a time of CLOCK_MONOTONIC, as the clocks stand now. */
static int64_t end_of_limit(const limit_t *limit)
{
    if (limit->time == NULL) {
        return NO_DEADLINE;
    }
    struct timespec now;
    clock_gettime(limit->clock, &now);
    int64_t s = (int64_t)limit->time->tv_sec - now.tv_sec;
    if (s < 0) {
        return 0;
    }
    return s > NO_DEADLINE / SECOND / 2
               ? NO_DEADLINE
               : aco_i_after(s * SECOND + limit->time->tv_nsec - now.tv_nsec);
}

/* Like aco_i_wait_within(), but returns WAIT_NONE also after `retry` ns, unless that is 0. */
static outcome_t wait_within(aco_task_t *self, const limit_t *limit, int64_t retry)
{
    int64_t until = end_of_limit(limit), again = retry == 0 ? NO_DEADLINE : aco_i_after(retry);
    outcome_t outcome = aco_i_wait_until(self, until < again ? until : again);
    return outcome == WAIT_NONE && end_of_limit(limit) <= aco_i_clock() ? WAIT_DEADLINE : outcome;
}

outcome_t aco_i_wait_within(aco_task_t *self, const limit_t *limit)
{
    return wait_within(self, limit, 0);
}

/* ==== Waits for objects ====================================================================== */

/* Time, in ns, after which the first in a queue must try again; 0: it waits until it is woken. */
static int64_t retry_after(const lockable_t *kind, const void *object, int64_t before)
{
    if (kind->is_watched == NULL || kind->is_watched(object)) {
        return 0;
    }
    return before == 0 ? FIRST_RETRY : before < LAST_RETRY ? before * 2 : before;
}

/* Waits in the queue of a bucket. The caller holds its lock, and holds it again afterwards. */
static int wait_in_queue(const lockable_t *kind, void *object, const limit_t *limit,
                         bucket_t *bucket, aco_task_t *self)
{
    int64_t retry = 0;
    for (;;) {
        int is_first = first_of(bucket, object) == &self->node;
        aco_i_open_wait(self, kind->reason);
        unlock_bucket(bucket);
        __sync_synchronize();
        int error = is_first ? kind->try(object) : EBUSY;
        if (error != EBUSY) {
            if (!aco_i_close_wait(self)) {
                aco_i_wait(self);
            }
            lock(&bucket->lock);
            return error;
        }
        retry = is_first ? retry_after(kind, object, retry) : 0;
        outcome_t outcome = wait_within(self, limit, retry);
        lock(&bucket->lock);
        if (outcome != WAIT_EVENT && outcome != WAIT_NONE) {
            return aco_i_error_of(outcome);
        }
    }
}

int aco_i_obtain(const lockable_t *kind, void *object, const limit_t *limit)
{
    aco_task_t *self = aco_i_running_task();
    bucket_t *bucket = bucket_of(object);
    lock(&bucket->lock);
    int error = first_of(bucket, object) == NULL ? kind->try(object) : EBUSY;
    if (error != EBUSY) {
        unlock_bucket(bucket);
        return error;
    }
    if (limit->time != NULL && !is_valid(limit->time)) {
        unlock_bucket(bucket);
        return EINVAL;
    }
    enter(bucket, self, object, FOR_OBJECT);
    error = wait_in_queue(kind, object, limit, bucket, self);
    leave(bucket, &self->node);
    aco_task_t *next = error != 0 || kind->is_shared ? claim_first(bucket, object) : NULL;
    unlock_bucket(bucket);
    make_all_ready(next, aco_i_make_ready);
    if (error != 0) {
        aco_i_rest();
    }
    return error;
}

/* ==== Waits for signals ====================================================================== */

void aco_i_begin_cond_wait(const void *cond)
{
    aco_task_t *self = aco_i_running_task();
    bucket_t *bucket = bucket_of(cond);
    lock(&bucket->lock);
    enter(bucket, self, cond, FOR_SIGNAL);
    aco_i_open_wait(self, FOR_COND);
    unlock_bucket(bucket);
}

/* Whether a wait is bound to fail, with `*error`. It still takes a moment and may be signalled:
 * callers that ignore the failure and wait again must not keep others from running. */
static int must_fail(const aco_task_t *self, int *error)
{
    if (self->ct_shields != 0) {
        return 0;
    }
    *error = __atomic_load_n(&self->is_cancelled, __ATOMIC_RELAXED) ? ECANCELED : ETIMEDOUT;
    return *error == ECANCELED || self->deadline <= aco_i_clock();
}

/* Takes the running task from the queue; or, if its limit has not come, opens its wait again and
 * returns WAIT_NONE. Returns WAIT_EVENT if a signal has taken it from the queue in between. */
static outcome_t end_or_reopen(bucket_t *bucket, aco_task_t *self, outcome_t outcome)
{
    lock(&bucket->lock);
    if (self->node.queue == NULL) {
        outcome = outcome == WAIT_NONE ? WAIT_EVENT : outcome;
    } else if (outcome == WAIT_NONE) {
        aco_i_open_wait(self, FOR_COND);
    } else {
        leave(bucket, &self->node);
    }
    unlock_bucket(bucket);
    return outcome;
}

int aco_i_end_cond_wait(const void *cond, const limit_t *limit)
{
    aco_task_t *self = aco_i_running_task();
    bucket_t *bucket = bucket_of(cond);
    int error;
    if (must_fail(self, &error)) {
        aco_shielded
        {
            int64_t until = end_of_limit(limit), soon = aco_i_after(REPEATED_WAIT);
            outcome_t outcome = aco_i_wait_until(self, until < soon ? until : soon);
            outcome = outcome == WAIT_EVENT ? outcome : WAIT_DEADLINE;
            return end_or_reopen(bucket, self, outcome) == WAIT_EVENT ? 0 : error;
        }
    }
    for (;;) {
        outcome_t outcome = wait_within(self, limit, 0);
        if (outcome == WAIT_EVENT) {
            return 0;
        }
        outcome = end_or_reopen(bucket, self, outcome);
        if (outcome != WAIT_NONE) {
            return outcome == WAIT_EVENT ? 0 : aco_i_error_of(outcome);
        }
    }
}

void aco_i_signal_tasks(const void *cond, int all)
{
    bucket_t *bucket = bucket_of(cond);
    aco_task_t *first = NULL, **link = &first;
    lock(&bucket->lock);
    for (node_t *node; (all || first == NULL) && (node = first_of(bucket, cond)) != NULL;) {
        leave(bucket, node);
        if (aco_i_claim(node->task, WAIT_EVENT)) {
            *link = node->task;
            link = &node->task->next;
            *link = NULL;
        }
    }
    unlock_bucket(bucket);
    make_all_ready(first, aco_i_make_ready);
}

/* ==== After fork() =========================================================================== */

void aco_i_forget_waits(void)
{
    memset(aco_i_buckets, 0, sizeof(aco_i_buckets));
}
