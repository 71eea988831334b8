// SPDX-License-Identifier: Apache-2.0
/*
 * Mutexes, rwlocks, conditions, semaphores and similar. Each has a lock and a queue of tasks that
 * wait. A release of a semaphore goes to the first of its queue at once, so none overtakes it. A
 * mutex that is unlocked is free for whoever comes first; see Fairness.
 */
#include "sync/sync.h"

#include <errno.h>

/* Messages about arguments that are NULL. */
static const char no_mutex[] = "the mutex is NULL: pass the address of an aco_mutex_t";
static const char no_rwlock[] = "the rwlock is NULL: pass the address of an aco_rwlock_t";
static const char no_cond[] = "the condition is NULL: pass the address of an aco_cond_t";
static const char no_semaphore[] = "the semaphore is NULL: pass the address of an aco_semaphore_t";
static const char no_wait_group[] =
    "the wait group is NULL: pass the address of an aco_wait_group_t";

/* ==== Queues ================================================================================= */

/* Claims as aco_i_claim() does, but no task of the parent: after fork(), these stay in the child's
 * queues, and don't run. */
static inline int claim(aco_task_t *task, outcome_t outcome)
{
    if (aco_unlikely(aco_i_ct_forks != 0) && task->runtime != NULL && task->runtime->is_of_parent) {
        return 0;
    }
    return aco_i_claim(task, outcome);
}

node_t *aco_i_claim_first(queue_t *queue, outcome_t outcome)
{
    node_t *node;
    while ((node = queue->first) != NULL) {
        dequeue(node);
        if (claim(node->task, outcome)) {
            return node;
        }
    }
    return NULL;
}

/* Refuses an object on a stack that others use, before a task waits for it. */
static inline void check_place(const char *call, const aco_task_t *self, const void *object)
{
    if (aco_unlikely(is_moved(self, object) && aco_i_is_on_shared_stack(self, object))) {
        aco_i_misuse_of(call,
                        "it lies on a stack that others use while the task waits: have it in "
                        "static memory or on the heap");
    }
}

/* Waits in the queue that the task's node is in. The queue's lock is held, and released. */
static outcome_t wait_in_place(aco_task_t *self, lock_t *queue_lock, reason_t reason)
{
    aco_i_open_wait(self, reason);
    unlock(queue_lock);
    outcome_t outcome = aco_i_wait(self);
    if (outcome != WAIT_EVENT) {
        lock(queue_lock);
        dequeue(&self->node);
        unlock(queue_lock);
    }
    return outcome;
}

/* Waits at the end of `queue`, whose lock is held, and released. */
static outcome_t wait_in(queue_t *queue, lock_t *queue_lock, aco_task_t *self, reason_t reason)
{
    self->node.task = self;
    enqueue(queue, &self->node);
    return wait_in_place(self, queue_lock, reason);
}

aco_task_t *aco_i_claim_all(queue_t *queue)
{
    aco_task_t *first = NULL, **link = &first;
    node_t *node;
    while ((node = aco_i_claim_first(queue, WAIT_EVENT)) != NULL) {
        *link = node->task;
        link = &node->task->next;
    }
    *link = NULL;
    return first;
}

/* ==== Fairness =============================================================================== */

/*
 * An unlocked lock is free for any task. A running task may lock it again without a switch, and
 * tasks that release everything and retry when a lock is taken, as std::lock() does, always make
 * progress: if each unlock chose the next owner, owners that have not run yet could make them retry
 * for ever.
 *
 * An unlock wakes the first task of the queue, which tries again. If another was faster, it waits
 * at the front again; meanwhile no other is woken, so the order stays. Once it has been losing for
 * PATIENCE, the next unlock makes it the owner.
 */
#define PATIENCE 1000u /* in units of 1024 ns */

/* The present time, never 0. loop->now would stand still while a task computes. */
static uintptr_t present(void)
{
    return (uintptr_t)(aco_i_clock() >> 10) | 1;
}

/* Whether an unlock makes the first task of the queue the owner. */
static int is_impatient(const node_t *node)
{
    return node->lost_at != 0 && (intptr_t)(present() - node->lost_at) >= (intptr_t)PATIENCE;
}

/* Waits at the front of the queue, as wait_in_place(), after another task was faster. */
static outcome_t wait_again(queue_t *queue, lock_t *queue_lock, aco_task_t *self, reason_t reason)
{
    if (self->node.lost_at == 0) {
        self->node.lost_at = present();
    }
    enqueue_first(queue, &self->node);
    return wait_in_place(self, queue_lock, reason);
}

/* ==== Owners ================================================================================= */

/*
 * An owner is an id, not an address: structs of tasks, and the thread-local memory of threads, are
 * used again. Where ids are cut to 32 bits, one comes again only if 2^32 tasks are made while it
 * has the lock.
 */
static __attribute__((noinline)) aco_task_t *thread_with_id(void)
{
    aco_task_t *self = &aco_i_thread_task;
    self->id = self->id != 0 ? self->id : aco_i_new_id();
    return self;
}

/* The running task; NULL: the caller is a thread. */
static inline aco_task_t *running_task(void)
{
    loop_t *loop = aco_i_loop;
    return loop != NULL ? loop->running : NULL;
}

/* The running task or thread as aco_i_self() returns it, with an id in any case. */
static inline aco_task_t *self_with_id(void)
{
    aco_task_t *self = running_task();
    return self != NULL ? self : thread_with_id();
}

static inline uintptr_t owner_for(const aco_task_t *self)
{
    return (uintptr_t)self->id;
}

/* ==== Mutexes ================================================================================ */

/* Invariant: if tasks wait for a mutex without an owner, one was woken and will try to lock it. */
static int try_lock(aco_mutex_t *mutex, uintptr_t self)
{
    uintptr_t owner = 0;
    if (is_alone()) {
        owner = mutex->owner;
        mutex->owner = owner == 0 ? self : owner;
        return owner == 0;
    }
    return __atomic_compare_exchange_n(&mutex->owner, &owner, self, 0, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

static __attribute__((noinline)) int lock_slowly(aco_mutex_t *mutex)
{
    aco_task_t *self = self_with_id();
    uintptr_t me = owner_for(self);
    if (try_lock(mutex, me)) {
        return 0;
    }
    if (__atomic_load_n(&mutex->owner, __ATOMIC_RELAXED) == me) {
        errno = EDEADLK;
        return -1;
    }
    check_place("aco_mutex_lock", self, mutex);
    lock(&mutex->lock);
    if (try_lock(mutex, me)) {
        unlock(&mutex->lock);
        return 0;
    }
    self->node.lost_at = 0;
    outcome_t outcome = wait_in(&mutex->waiting, &mutex->lock, self, FOR_MUTEX);
    while (outcome == WAIT_EVENT && __atomic_load_n(&mutex->owner, __ATOMIC_RELAXED) != me) {
        if (try_lock(mutex, me)) {
            mutex->is_woken = 0; /* only the owner and the woken task write it */
            return 0;
        }
        lock(&mutex->lock);
        mutex->is_woken = 0;
        if (try_lock(mutex, me)) {
            unlock(&mutex->lock);
            return 0;
        }
        outcome = wait_again(&mutex->waiting, &mutex->lock, self, FOR_MUTEX);
    }
    return aco_i_result(outcome);
}

int aco_mutex_lock(aco_mutex_t *mutex)
{
    aco_i_spend_call();
    need(mutex, "aco_mutex_lock", no_mutex);
    const aco_task_t *self = running_task();
    return self != NULL && try_lock(mutex, owner_for(self)) ? 0 : lock_slowly(mutex);
}

int aco_mutex_try_lock(aco_mutex_t *mutex)
{
    need(mutex, "aco_mutex_try_lock", no_mutex);
    if (try_lock(mutex, owner_for(self_with_id()))) {
        return 0;
    }
    errno = EBUSY;
    return -1;
}

/* Unlocks a mutex, and wakes a task that waits for it. */
static __attribute__((noinline)) int unlock_slowly(aco_mutex_t *mutex)
{
    uintptr_t self = owner_for(self_with_id());
    if (__atomic_load_n(&mutex->owner, __ATOMIC_RELAXED) != self) {
        aco_i_misuse_of("aco_mutex_unlock",
                        "the caller has not locked it: unlock it where it was "
                        "locked");
    }
    lock(&mutex->lock);
    node_t *first = mutex->is_woken ? NULL : aco_i_claim_first(&mutex->waiting, WAIT_EVENT);
    aco_task_t *task = first != NULL ? first->task : NULL;
    uintptr_t owner = first != NULL && is_impatient(first) ? owner_for(task) : 0;
    mutex->is_woken |= task != NULL && owner == 0;
    __atomic_store_n(&mutex->owner, owner, __ATOMIC_RELEASE);
    unlock(&mutex->lock);
    if (task != NULL) {
        aco_i_make_ready(task);
    }
    return 0;
}

int aco_mutex_unlock(aco_mutex_t *mutex)
{
    need(mutex, "aco_mutex_unlock", no_mutex);
    const aco_task_t *self = running_task();
    if (is_alone() && self != NULL && mutex->owner == owner_for(self) &&
        mutex->waiting.first == NULL) {
        mutex->owner = 0;
        return 0;
    }
    return unlock_slowly(mutex);
}

/* ==== Readers and writers ==================================================================== */

static int is_open_to(const aco_rwlock_t *rwlock, size_t kind)
{
    return rwlock->writer == 0 && (kind == READER || rwlock->ct_readers == 0);
}

static void let_in(aco_rwlock_t *rwlock, aco_task_t *task, size_t kind)
{
    if (kind == READER && __builtin_expect(aco_i_is_watched, 0)) {
        aco_i_note_reader(rwlock, task);
    }
    rwlock->ct_readers += kind == READER;
    rwlock->writer = kind == WRITER ? owner_for(task) : 0;
}

/* Claims the tasks at the head of the queue that could enter, a writer or readers, unless some that
 * were woken have not tried yet. Returns them, linked by their `next`. The lock is held. */
static aco_task_t *claim_head(aco_rwlock_t *rwlock)
{
    aco_task_t *first = NULL, **link = &first;
    size_t kind = READER;
    node_t *node;
    int is_free = rwlock->ct_woken == 0;
    while (is_free && kind == READER && (node = rwlock->waiting.first) != NULL &&
           is_open_to(rwlock, node->kind) && (first == NULL || node->kind == READER)) {
        dequeue(node);
        if (!claim(node->task, WAIT_EVENT)) {
            continue;
        }
        kind = node->kind;
        if (is_impatient(node)) {
            let_in(rwlock, node->task, kind);
            node->kind = HANDED_OVER;
        } else {
            rwlock->ct_woken++;
        }
        *link = node->task;
        link = &node->task->next;
    }
    *link = NULL;
    return first;
}

/* Unlocks, and wakes the tasks that could enter now. */
static void unlock_and_wake(aco_rwlock_t *rwlock)
{
    aco_task_t *first = claim_head(rwlock);
    unlock(&rwlock->lock);
    aco_i_wake_all(first);
}

/* Waits until the caller can enter. The lock is held, and released. */
static int wait_to_enter(aco_rwlock_t *rwlock, aco_task_t *self, size_t kind)
{
    check_place(kind == READER ? "aco_rwlock_read_lock" : "aco_rwlock_write_lock", self, rwlock);
    self->node.kind = kind;
    self->node.lost_at = 0;
    outcome_t outcome = wait_in(&rwlock->waiting, &rwlock->lock, self, FOR_RWLOCK);
    while (outcome == WAIT_EVENT && self->node.kind != HANDED_OVER) {
        lock(&rwlock->lock);
        rwlock->ct_woken--;
        if (is_open_to(rwlock, kind)) {
            let_in(rwlock, self, kind);
            unlock_and_wake(rwlock);
            return 0;
        }
        outcome = wait_again(&rwlock->waiting, &rwlock->lock, self, FOR_RWLOCK);
    }
    if (outcome != WAIT_EVENT) { /* tasks behind it may have waited for it alone */
        lock(&rwlock->lock);
        unlock_and_wake(rwlock);
    }
    return aco_i_result(outcome);
}

/* Whether a newcomer may enter: it is free, or has readers alone and no task waits. */
static int is_open_to_new(const aco_rwlock_t *rwlock, size_t kind)
{
    int is_wanted = rwlock->waiting.first != NULL || rwlock->ct_woken != 0;
    return is_open_to(rwlock, kind) && (rwlock->ct_readers == 0 || !is_wanted);
}

static int enter(const char *call, aco_rwlock_t *rwlock, size_t kind, int may_wait)
{
    need(rwlock, call, no_rwlock);
    aco_task_t *self = self_with_id();
    lock(&rwlock->lock);
    int is_writer = rwlock->writer == owner_for(self);
    if (!is_writer && is_open_to_new(rwlock, kind)) {
        let_in(rwlock, self, kind);
        unlock(&rwlock->lock);
        return 0;
    }
    if (may_wait && !is_writer) {
        return wait_to_enter(rwlock, self, kind);
    }
    unlock(&rwlock->lock);
    errno = may_wait ? EDEADLK : EBUSY;
    return -1;
}

int aco_rwlock_read_lock(aco_rwlock_t *rwlock)
{
    aco_i_spend_call();
    return enter("aco_rwlock_read_lock", rwlock, READER, 1);
}

int aco_rwlock_write_lock(aco_rwlock_t *rwlock)
{
    aco_i_spend_call();
    return enter("aco_rwlock_write_lock", rwlock, WRITER, 1);
}

int aco_rwlock_try_read_lock(aco_rwlock_t *rwlock)
{
    return enter("aco_rwlock_try_read_lock", rwlock, READER, 0);
}

int aco_rwlock_try_write_lock(aco_rwlock_t *rwlock)
{
    return enter("aco_rwlock_try_write_lock", rwlock, WRITER, 0);
}

int aco_rwlock_unlock(aco_rwlock_t *rwlock)
{
    need(rwlock, "aco_rwlock_unlock", no_rwlock);
    uintptr_t self = owner_for(self_with_id());
    lock(&rwlock->lock);
    if (rwlock->writer != 0 ? rwlock->writer != self : rwlock->ct_readers == 0) {
        aco_i_misuse_of("aco_rwlock_unlock",
                        "the caller has not locked it: unlock it where it was "
                        "locked");
    }
    if (rwlock->writer == 0 && __builtin_expect(aco_i_is_watched, 0)) {
        aco_i_drop_reader(rwlock, aco_i_self());
    }
    rwlock->ct_readers -= rwlock->writer == 0;
    rwlock->writer = 0;
    unlock_and_wake(rwlock);
    return 0;
}

/* ==== Conditions ============================================================================= */

int aco_cond_wait(aco_cond_t *cond, aco_mutex_t *mutex)
{
    aco_i_spend_call();
    need(cond, "aco_cond_wait", no_cond);
    need(mutex, "aco_cond_wait", no_mutex);
    aco_task_t *self = self_with_id();
    if (__atomic_load_n(&mutex->owner, __ATOMIC_RELAXED) != owner_for(self)) {
        aco_i_misuse_of("aco_cond_wait", "the caller has not locked the mutex: lock it before");
    }
    check_place("aco_cond_wait", self, cond);
    check_place("aco_cond_wait", self, mutex);
    lock(&cond->lock);
    self->node.task = self;
    enqueue(&cond->waiting, &self->node);
    aco_i_open_wait(self, FOR_COND);
    unlock(&cond->lock);
    aco_mutex_unlock(mutex);
    outcome_t outcome = aco_i_wait(self);
    if (outcome != WAIT_EVENT) {
        lock(&cond->lock);
        dequeue(&self->node);
        unlock(&cond->lock);
    }
    aco_shielded
    {
        aco_mutex_lock(mutex);
    }
    return aco_i_result(outcome);
}

int aco_cond_signal(aco_cond_t *cond)
{
    need(cond, "aco_cond_signal", no_cond);
    lock(&cond->lock);
    node_t *node = aco_i_claim_first(&cond->waiting, WAIT_EVENT);
    unlock(&cond->lock);
    if (node != NULL) {
        aco_i_make_ready(node->task);
    }
    return 0;
}

int aco_cond_broadcast(aco_cond_t *cond)
{
    need(cond, "aco_cond_broadcast", no_cond);
    lock(&cond->lock);
    aco_task_t *first = aco_i_claim_all(&cond->waiting);
    unlock(&cond->lock);
    aco_i_wake_all(first);
    return 0;
}

/* ==== Semaphores ============================================================================= */

int aco_semaphore_init(aco_semaphore_t *semaphore, size_t ct)
{
    need(semaphore, "aco_semaphore_init", no_semaphore);
    *semaphore = (aco_semaphore_t){.ct = ct};
    return 0;
}

/* Takes one, unlocks, and returns 1; or 0 with the lock held: there is none. */
static int take_one(aco_semaphore_t *semaphore)
{
    lock(&semaphore->lock);
    if (semaphore->ct == 0) {
        return 0;
    }
    semaphore->ct--;
    unlock(&semaphore->lock);
    return 1;
}

int aco_semaphore_acquire(aco_semaphore_t *semaphore)
{
    aco_i_spend_call();
    need(semaphore, "aco_semaphore_acquire", no_semaphore);
    if (take_one(semaphore)) {
        return 0;
    }
    aco_task_t *self = aco_i_self();
    check_place("aco_semaphore_acquire", self, semaphore);
    return aco_i_result(wait_in(&semaphore->waiting, &semaphore->lock, self, FOR_SEMAPHORE));
}

int aco_semaphore_try_acquire(aco_semaphore_t *semaphore)
{
    need(semaphore, "aco_semaphore_try_acquire", no_semaphore);
    if (take_one(semaphore)) {
        return 0;
    }
    unlock(&semaphore->lock);
    errno = EAGAIN;
    return -1;
}

int aco_semaphore_release(aco_semaphore_t *semaphore)
{
    need(semaphore, "aco_semaphore_release", no_semaphore);
    lock(&semaphore->lock);
    node_t *node = aco_i_claim_first(&semaphore->waiting, WAIT_EVENT);
    int is_full = node == NULL && semaphore->ct == SIZE_MAX;
    semaphore->ct += node == NULL && !is_full;
    unlock(&semaphore->lock);
    if (node != NULL) {
        aco_i_make_ready(node->task);
    }
    if (is_full) {
        errno = EOVERFLOW;
        return -1;
    }
    return 0;
}

size_t aco_i_semaphore_ct(aco_semaphore_t *semaphore)
{
    need(semaphore, "aco_i_semaphore_ct", no_semaphore);
    lock(&semaphore->lock);
    size_t ct = semaphore->ct;
    unlock(&semaphore->lock);
    return ct;
}

/* ==== Wait groups ============================================================================ */

static int count(const char *call, aco_wait_group_t *wait_group, int64_t ct)
{
    need(wait_group, call, no_wait_group);
    lock(&wait_group->lock);
    if (__builtin_add_overflow(wait_group->ct, ct, &wait_group->ct)) {
        aco_i_misuse_of(call, "too many are counted: count each that begins once");
    }
    if (wait_group->ct < 0) {
        aco_i_misuse_of(call, "less than none are left: count each that begins before it ends");
    }
    aco_task_t *first = wait_group->ct == 0 ? aco_i_claim_all(&wait_group->waiting) : NULL;
    unlock(&wait_group->lock);
    aco_i_wake_all(first);
    return 0;
}

int aco_wait_group_add(aco_wait_group_t *wait_group, int64_t ct)
{
    return count("aco_wait_group_add", wait_group, ct);
}

int aco_wait_group_done(aco_wait_group_t *wait_group)
{
    return count("aco_wait_group_done", wait_group, -1);
}

int aco_wait_group_wait(aco_wait_group_t *wait_group)
{
    aco_i_spend_call();
    need(wait_group, "aco_wait_group_wait", no_wait_group);
    lock(&wait_group->lock);
    if (wait_group->ct == 0) {
        unlock(&wait_group->lock);
        return 0;
    }
    aco_task_t *self = aco_i_self();
    check_place("aco_wait_group_wait", self, wait_group);
    return aco_i_result(wait_in(&wait_group->waiting, &wait_group->lock, self, FOR_WAIT_GROUP));
}

/* ==== Once =================================================================================== */

int aco_once(aco_once_t *once, void (*fn)(void))
{
    need(once, "aco_once", "the first argument is NULL: pass the address of an aco_once_t");
    need(fn, "aco_once", "the function is NULL: pass one to call");
    if (__atomic_load_n(&once->is_done, __ATOMIC_ACQUIRE)) {
        return 0;
    }
    if (aco_mutex_lock(&once->mutex) != 0) {
        return -1;
    }
    if (!once->is_done) {
        fn();
        __atomic_store_n(&once->is_done, 1, __ATOMIC_RELEASE);
    }
    return aco_mutex_unlock(&once->mutex);
}
