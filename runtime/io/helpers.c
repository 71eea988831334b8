// SPDX-License-Identifier: Apache-2.0
/*
 * Helper threads, which make calls that block. A runtime has several pools of them, so that one
 * kind of slow call never delays another. A pool starts a helper when a job finds none idle, and a
 * helper that has been idle for some seconds ends.
 *
 * A job lies on the heap. Until a helper takes it, its task may withdraw it; after that, the task
 * waits for its end, or drops it if the job can be discarded, which the helper then does. A helper
 * of a dropped job touches nothing of the runtime, which may end before it.
 */
#include "base/probes.h"
#include "io/io.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define IDLE_TIME INT64_C(5000000000) /* ns */

typedef struct {
    void *(*fn)(void *);
    void *arg; /* and then its result */
    void (*discard)(void *);
    aco_task_t *task; /* that waits; NULL: it has dropped the job */
    int error;        /* errno, before `fn` and then after it */
    char is_done;
    char is_left; /* its task handles what has interrupted it */
} job_t;

struct helpers_s {
    pthread_mutex_t mutex; /* of all that follows, and of the jobs */
    pthread_cond_t work;   /* something is queued, or is_ending */
    pthread_cond_t left;   /* a helper has ended */
    queue_t queue;         /* of tasks whose jobs no helper has taken */
    size_t ct_queued, ct_idle;
    size_t ct_threads, ct_dropped; /* that have not ended; of these, those with a dropped job */
    size_t most;                   /* threads */
    int is_ending;
    int is_abandoned; /* the runtime has ended; the last helper frees the pool */
    int has_ended;    /* a helper that is not joined yet: */
    pthread_t ended;
};

/* ==== A helper =============================================================================== */

static void free_helpers(helpers_t *helpers)
{
    pthread_mutex_destroy(&helpers->mutex);
    pthread_cond_destroy(&helpers->work);
    pthread_cond_destroy(&helpers->left);
    aco_i_release(helpers);
}

/* The next job; NULL: the helper is to end. */
static job_t *next_job(helpers_t *helpers)
{
    int64_t until = aco_i_clock() + IDLE_TIME;
    struct timespec t = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
    int error = 0;
    while (helpers->queue.first == NULL && !helpers->is_ending && error != ETIMEDOUT) {
        helpers->ct_idle++;
        error = pthread_cond_timedwait(&helpers->work, &helpers->mutex, &t);
        helpers->ct_idle--;
    }
    node_t *node = helpers->queue.first;
    if (node == NULL) {
        return NULL;
    }
    dequeue(node);
    helpers->ct_queued--;
    return (job_t *)node->item;
}

/* Does a job. The lock is held, but not while `fn` runs. */
static void do_job(helpers_t *helpers, job_t *job)
{
    unsigned ct_forks = aco_i_ct_forks;
    aco_i_libc.pthread_mutex_unlock(&helpers->mutex);
    errno = job->error;
    job->arg = job->fn(job->arg);
    int error = errno;
    if (aco_i_ct_forks != ct_forks) { /* `fn` has forked, and this is the child's only thread */
        exit(EXIT_SUCCESS);
    }
    aco_i_libc.pthread_mutex_lock(&helpers->mutex);
    aco_task_t *task = job->task;
    job->error = error;
    job->is_done = 1;
    int is_claimed = task != NULL && !job->is_left && aco_i_claim(task, WAIT_EVENT);
    aco_i_libc.pthread_mutex_unlock(&helpers->mutex);
    if (is_claimed) {
        aco_i_make_ready(task); /* it frees the job */
    } else if (task == NULL) {
        job->discard(job->arg);
        aco_i_release(job);
    }
    aco_i_libc.pthread_mutex_lock(&helpers->mutex);
    helpers->ct_dropped -= task == NULL;
}

static void *run_helper(void *arg)
{
    helpers_t *helpers = (helpers_t *)arg;
    aco_i_libc.pthread_mutex_lock(&helpers->mutex);
    for (job_t *job; (job = next_job(helpers)) != NULL;) {
        do_job(helpers, job);
    }
    int is_last = --helpers->ct_threads == 0 && helpers->is_abandoned;
    int is_abandoned = helpers->is_abandoned, has_ended = helpers->has_ended;
    pthread_t ended = helpers->ended;
    helpers->has_ended = 1; /* each joins the one before it, and the runtime the last one */
    helpers->ended = pthread_self();
    pthread_cond_broadcast(&helpers->left);
    aco_i_libc.pthread_mutex_unlock(&helpers->mutex);
    if (is_abandoned) {
        pthread_detach(pthread_self());
    } else if (has_ended) {
        pthread_join(ended, NULL);
    }
    if (is_last) {
        free_helpers(helpers);
    }
    return NULL;
}

/* Starts a helper; 0, or -1. It blocks signals, which go to the program's threads, but not those of
 * faults. */
static int start_helper(helpers_t *helpers)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        sigdelset(&blocked, faults[i]);
    }
    pthread_t thread;
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int error = pthread_create(&thread, NULL, run_helper, helpers);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    helpers->ct_threads += error == 0;
    return error == 0 ? 0 : -1;
}

/* Wakes or starts a helper for what was queued; 0: there is none. */
static int call_helper(helpers_t *helpers)
{
    if (helpers->ct_queued <= helpers->ct_idle) {
        aco_i_libc.pthread_cond_signal(&helpers->work);
    } else if (helpers->ct_threads < helpers->most && start_helper(helpers) != 0) {
        return helpers->ct_threads > helpers->ct_dropped;
    }
    return 1;
}

/* ==== Pools ================================================================================== */

static helpers_t *new_helpers(int most)
{
    helpers_t *helpers = (helpers_t *)aco_i_allocate(sizeof(*helpers));
    if (helpers == NULL) {
        return NULL;
    }
    memset(helpers, 0, sizeof(*helpers));
    helpers->most = (size_t)most;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&helpers->mutex, NULL);
    pthread_cond_init(&helpers->work, &attr);
    pthread_cond_init(&helpers->left, NULL);
    pthread_condattr_destroy(&attr);
    return helpers;
}

static helpers_t *helpers_of(runtime_t *runtime, helpers_kind_t kind)
{
    lock(&runtime->lock);
    if (runtime->helpers[kind] == NULL) {
        runtime->helpers[kind] = new_helpers(runtime->most_helpers[kind]);
    }
    helpers_t *helpers = runtime->helpers[kind];
    unlock(&runtime->lock);
    return helpers;
}

static void end_helpers(helpers_t *helpers)
{
    aco_i_libc.pthread_mutex_lock(&helpers->mutex);
    helpers->is_ending = 1;
    pthread_cond_broadcast(&helpers->work);
    while (helpers->ct_threads > helpers->ct_dropped) {
        pthread_cond_wait(&helpers->left, &helpers->mutex);
    }
    int is_abandoned = helpers->is_abandoned = helpers->ct_threads != 0;
    int has_ended = helpers->has_ended;
    pthread_t ended = helpers->ended;
    aco_i_libc.pthread_mutex_unlock(&helpers->mutex);
    if (has_ended) {
        pthread_join(ended, NULL);
    }
    if (!is_abandoned) {
        free_helpers(helpers);
    }
}

void aco_i_end_helpers(runtime_t *runtime)
{
    for (int kind = 0; kind < CT_HELPERS_KINDS; kind++) {
        if (runtime->helpers[kind] != NULL) {
            end_helpers(runtime->helpers[kind]);
        }
    }
}

READS_RACILY size_t aco_i_ct_idle_helpers(const runtime_t *runtime)
{
    size_t ct = 0;
    for (int kind = 0; kind < CT_HELPERS_KINDS; kind++) {
        const helpers_t *helpers = __atomic_load_n(&runtime->helpers[kind], __ATOMIC_ACQUIRE);
        ct += helpers == NULL ? 0 : __atomic_load_n(&helpers->ct_idle, __ATOMIC_RELAXED);
    }
    return ct;
}

/* ==== Tasks ================================================================================== */

static void dequeue_job(helpers_t *helpers, node_t *node)
{
    dequeue(node);
    helpers->ct_queued--;
}

/* Queues a job and returns whether there is a helper for it. The lock is held. */
static int enqueue_job(helpers_t *helpers, node_t *node)
{
    enqueue(&helpers->queue, node);
    helpers->ct_queued++;
    return call_helper(helpers);
}

/* Leaves a job while its task handles what has interrupted it, and may use its node. The lock is
 * held, and held again afterwards. Returns whether the wait goes on. */
static int handle_interrupt(helpers_t *helpers, job_t *job)
{
    node_t *node = &job->task->node;
    int was_queued = node->queue != NULL;
    if (was_queued) {
        dequeue_job(helpers, node);
    }
    job->is_left = 1;
    aco_i_libc.pthread_mutex_unlock(&helpers->mutex);
    int goes_on = aco_i_goes_on_after(WAIT_INTERRUPTED, 1);
    aco_i_libc.pthread_mutex_lock(&helpers->mutex);
    job->is_left = 0;
    node->task = job->task;
    node->item = job;
    return (!was_queued || enqueue_job(helpers, node)) && goes_on && !job->is_done;
}

/* Waits for a queued job. The lock is held, and released. A job that has begun and can't be
 * discarded is waited for in any case. `*job` is NULL after it was dropped. */
static outcome_t wait_for(helpers_t *helpers, job_t **job, reason_t reason)
{
    aco_task_t *self = (*job)->task;
    aco_i_open_wait(self, reason);
    aco_i_libc.pthread_mutex_unlock(&helpers->mutex);
    outcome_t outcome = aco_i_wait(self);
    if (outcome == WAIT_EVENT) {
        return outcome;
    }
    aco_i_libc.pthread_mutex_lock(&helpers->mutex);
    if (outcome == WAIT_INTERRUPTED && handle_interrupt(helpers, *job)) {
        return wait_for(helpers, job, reason);
    }
    if (self->node.queue != NULL) {
        dequeue_job(helpers, &self->node);
    } else if ((*job)->is_done) {
        outcome = WAIT_EVENT;
    } else if ((*job)->discard != NULL) {
        (*job)->task = NULL;
        *job = NULL;
        helpers->ct_dropped++;
    } else {
        aco_shielded
        {
            return wait_for(helpers, job, reason);
        }
    }
    aco_i_libc.pthread_mutex_unlock(&helpers->mutex);
    return outcome;
}

static job_t *new_job(aco_task_t *self, void *(*fn)(void *), void *arg, void (*discard)(void *))
{
    int error = errno;
    job_t *job = (job_t *)aco_i_allocate(sizeof(*job));
    if (job != NULL) {
        *job = (job_t){.fn = fn, .arg = arg, .discard = discard, .task = self, .error = error};
    }
    errno = error;
    return job;
}

/* Queues a job of the running task, and returns 1 with the lock held; 0: there is no helper. */
static int begin_job(helpers_t *helpers, job_t *job)
{
    node_t *node = &job->task->node;
    node->item = job;
    aco_i_libc.pthread_mutex_lock(&helpers->mutex);
    if (enqueue_job(helpers, node)) {
        return 1;
    }
    dequeue_job(helpers, node);
    aco_i_libc.pthread_mutex_unlock(&helpers->mutex);
    return 0;
}

outcome_t aco_i_offload(helpers_kind_t kind, void *(*fn)(void *), void *arg,
                        void (*discard)(void *), void **result)
{
    static const reason_t reasons[] = {FOR_HELPER, FOR_NAME, FOR_PROCESS, FOR_HELPER};
    aco_task_t *self = aco_self();
    job_t *job = self == NULL ? NULL : new_job(self, fn, arg, discard);
    helpers_t *helpers = job == NULL ? NULL : helpers_of(self->loop->runtime, kind);
    if (helpers == NULL || !begin_job(helpers, job)) {
        aco_i_release(job);
        *result = fn(arg);
        return WAIT_EVENT;
    }
    self->loop->counts.ct_offloads++;
    ACO_I_PROBE(offload, self, fn);
    outcome_t outcome = wait_for(helpers, &job, reasons[kind]);
    if (job == NULL) {
        return outcome;
    }
    *result = job->arg;
    int error = job->error;
    aco_i_release(job);
    if (outcome != WAIT_EVENT && discard != NULL) {
        discard(arg);
    }
    errno = error;
    return outcome;
}

void *aco_offload(void *(*fn)(void *), void *arg)
{
    need(fn, "aco_offload", "the function is NULL: pass one for a helper to run");
    const aco_task_t *self = aco_self();
    check_argument("aco_offload", arg);
    if (self != NULL && IS_STRESS && is_moved(self, arg)) {
        return fn(arg);
    }
    void *result = NULL;
    outcome_t outcome = aco_i_offload(HELPERS_FOR_FILES, fn, arg, NULL, &result);
    if (outcome != WAIT_EVENT) {
        aco_i_result(outcome);
        return NULL;
    }
    return result;
}
