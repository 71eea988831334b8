// SPDX-License-Identifier: Apache-2.0
/* Waits of tasks for locks and similar of the program: waiting.h. */
#include "waiting.h"

#include <limits.h>

#define FIRST_RETRY 50000     /* ns after which the first in a queue tries again if it must */
#define LAST_RETRY 50000000   /* ns; the time doubles up to this */
#define REPEATED_WAIT 1000000 /* ns that a wait lasts at least if it is bound to fail */

/* Values of `kind` in a node: the task waits for an object, for a signal, or for a wake of those
 * that the bits in its `selected` name. */
enum { FOR_OBJECT, FOR_SIGNAL, FOR_WAKE };

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
    __atomic_store_n(&task->node.item, (void *)(uintptr_t)object, __ATOMIC_RELEASE);
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
        keep_load_behind();
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
int64_t aco_i_end_of_limit(const limit_t *limit)
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
    int64_t until = aco_i_end_of_limit(limit),
            again = retry == 0 ? NO_DEADLINE : aco_i_after(retry);
    outcome_t outcome = aco_i_wait_until(self, until < again ? until : again);
    return outcome == WAIT_NONE && aco_i_end_of_limit(limit) <= aco_i_clock() ? WAIT_DEADLINE
                                                                              : outcome;
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
    SHIELD_LATER(shield);
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
        int has_failed = outcome != WAIT_EVENT && outcome != WAIT_NONE;
        if (has_failed && outcome != WAIT_INTERRUPTED && aco_i_limit_goes_on(limit)) {
            shield = aco_i_enter_shielded();
            has_failed = 0;
        }
        lock(&bucket->lock);
        if (has_failed) {
            return aco_i_error_of(outcome);
        }
    }
}

static int obtain(const lockable_t *kind, void *object, const limit_t *limit)
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
    if (error != 0 && error != EINTR) {
        aco_i_rest();
    }
    return error;
}

int aco_i_obtain(const lockable_t *kind, void *object, const limit_t *limit)
{
    int error;
    do {
        error = obtain(kind, object, limit);
    } while (error == EINTR && goes_on_after(WAIT_INTERRUPTED, limit));
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
int aco_i_must_fail(int *error)
{
    const aco_task_t *self = aco_i_running_task();
    if (self->ct_shields != 0) {
        return 0;
    }
    *error = __atomic_load_n(&self->is_cancelled, __ATOMIC_RELAXED) ? ECANCELED : ETIMEDOUT;
    return *error == ECANCELED || self->deadline <= aco_i_clock();
}

/* Locks the bucket that the running task is in: a requeue may have moved it to another one. */
static bucket_t *lock_own_bucket(aco_task_t *self)
{
    for (;;) {
        const void *object = __atomic_load_n(&self->node.item, __ATOMIC_ACQUIRE);
        bucket_t *bucket = bucket_of(object);
        lock(&bucket->lock);
        if (self->node.item == object) {
            return bucket;
        }
        unlock_bucket(bucket);
    }
}

/* Takes the running task from the queue; or, if its limit has not come, opens its wait again and
 * returns WAIT_NONE. Returns WAIT_EVENT if a signal has taken it from the queue in between. */
static outcome_t end_or_reopen(aco_task_t *self, outcome_t outcome)
{
    bucket_t *bucket = lock_own_bucket(self);
    if (self->node.queue == NULL) {
        outcome = outcome == WAIT_NONE ? WAIT_EVENT : outcome;
    } else if (outcome == WAIT_NONE) {
        aco_i_open_wait(self, self->reason);
    } else {
        leave(bucket, &self->node);
    }
    unlock_bucket(bucket);
    return outcome;
}

/* Waits for a moment, as the wait is bound to fail. */
static outcome_t wait_a_moment(aco_task_t *self, const limit_t *limit)
{
    aco_shielded
    {
        int64_t until = aco_i_end_of_limit(limit), soon = aco_i_after(REPEATED_WAIT);
        outcome_t outcome = aco_i_wait_until(self, until < soon ? until : soon);
        return end_or_reopen(self, outcome == WAIT_EVENT ? outcome : WAIT_DEADLINE);
    }
    return WAIT_NONE;
}

int aco_i_end_wait(const limit_t *limit, watch_t *watch)
{
    aco_task_t *self = aco_i_running_task();
    int error;
    SHIELD_LATER(shield);
    if (aco_i_must_fail(&error) && !aco_i_limit_goes_on(limit)) {
        return wait_a_moment(self, limit) == WAIT_EVENT ? 0 : error;
    }
    for (;;) {
        outcome_t outcome = wait_within(self, limit, watch == NULL ? 0 : watch->interval);
        if (outcome == WAIT_EVENT) {
            return 0;
        }
        int is_over = outcome == WAIT_NONE && watch != NULL && watch->is_over(watch);
        if (outcome != WAIT_NONE && outcome != WAIT_INTERRUPTED && aco_i_limit_goes_on(limit)) {
            shield = aco_i_enter_shielded(); /* before the wait is opened again */
            outcome = WAIT_NONE;
        }
        outcome = end_or_reopen(self, is_over ? WAIT_EVENT : outcome);
        if (goes_on_after(outcome, limit)) {
            return ERESTART;
        }
        if (outcome != WAIT_NONE) {
            return outcome == WAIT_EVENT ? 0 : aco_i_error_of(outcome);
        }
    }
}

/* Takes tasks that wait in one way from the queue, and adds those that it could claim to the list.
 * Returns how many. */
static unsigned take_tasks(bucket_t *bucket, const void *object, size_t kind, unsigned most,
                           uint32_t bits, aco_task_t **list)
{
    unsigned ct = 0;
    for (node_t *node = bucket->queue.first, *next; node != NULL && ct < most; node = next) {
        aco_task_t *task = node->task;
        next = node->next;
        if (node->item != object || node->kind != kind ||
            (kind == FOR_WAKE && (task->selected & bits) == 0)) {
            continue;
        }
        leave(bucket, node);
        if (aco_i_claim(task, WAIT_EVENT)) {
            *list = task;
            list = &task->next;
            *list = NULL;
            ct++;
        }
    }
    return ct;
}

void aco_i_signal_tasks(const void *cond, int all)
{
    bucket_t *bucket = bucket_of(cond);
    aco_task_t *first = NULL;
    lock(&bucket->lock);
    take_tasks(bucket, cond, FOR_SIGNAL, all ? UINT_MAX : 1, 0, &first);
    unlock_bucket(bucket);
    make_all_ready(first, aco_i_make_ready);
}

/* ==== Waits for wakes ======================================================================== */

int aco_i_begin_wait_for_wake(const uint32_t *word, uint32_t value, uint32_t bits)
{
    aco_task_t *self = aco_i_running_task();
    bucket_t *bucket = bucket_of(word);
    lock(&bucket->lock);
    enter(bucket, self, word, FOR_WAKE); /* before the value is read */
    self->selected = bits;
    int is_equal = __atomic_load_n(word, __ATOMIC_SEQ_CST) == value;
    if (is_equal) {
        aco_i_open_wait(self, FOR_FUTEX);
    } else {
        leave(bucket, &self->node);
    }
    unlock_bucket(bucket);
    return is_equal;
}

unsigned aco_i_wake_tasks(const void *word, unsigned most, uint32_t bits)
{
    bucket_t *bucket = bucket_of(word);
    aco_task_t *first = NULL;
    lock(&bucket->lock);
    unsigned ct = take_tasks(bucket, word, FOR_WAKE, most, bits, &first);
    unlock_bucket(bucket);
    make_all_ready(first, aco_i_make_ready);
    return ct;
}

/* Lets tasks wait for a wake of another word. Returns how many. */
static unsigned move_tasks(bucket_t *from, const void *word, bucket_t *to, const void *to_word,
                           unsigned most)
{
    unsigned ct = 0;
    for (node_t *node = from->queue.first, *next; node != NULL && ct < most; node = next) {
        next = node->next;
        if (node->item == word && node->kind == FOR_WAKE && word != to_word) {
            leave(from, node);
            enter(to, node->task, to_word, FOR_WAKE);
            ct++;
        }
    }
    return ct;
}

int aco_i_requeue_tasks(requeue_t *r)
{
    bucket_t *from = bucket_of(r->word), *to = bucket_of(r->to);
    aco_task_t *first = NULL;
    lock(from < to ? &from->lock : &to->lock);
    if (from != to) {
        lock(from < to ? &to->lock : &from->lock);
    }
    int is_equal = !r->compares || __atomic_load_n(r->word, __ATOMIC_SEQ_CST) == r->value;
    if (is_equal) {
        r->ct_woken = take_tasks(from, r->word, FOR_WAKE, r->most_woken, UINT32_MAX, &first);
        r->ct_moved = move_tasks(from, r->word, to, r->to, r->most_moved);
    }
    if (from != to) {
        unlock_bucket(to);
    }
    unlock_bucket(from);
    make_all_ready(first, aco_i_make_ready);
    return is_equal;
}

/* ==== After fork() =========================================================================== */

void aco_i_forget_waits(void)
{
    memset(aco_i_buckets, 0, sizeof(aco_i_buckets));
}
