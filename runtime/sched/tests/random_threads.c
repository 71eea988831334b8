// SPDX-License-Identifier: Apache-2.0
/*
 * Random programs on several threads at once, where the machine decides the order of events:
 *
 *     random_threads [CT_PROGRAMS [SEED]]
 *
 * Tasks of all threads lock, wait, send, park, form groups, cancel each other and run out of time.
 * Data under a lock is not atomic, so ThreadSanitizer sees a lock that fails. Each item that was
 * sent is received once; groups are joined when all their tasks have ended; and each program ends.
 */
#include "aco_runtime.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#define CT_THREADS 3
#define CT_WORKERS 9
#define CT_STEPS 40
#define CT_ROUNDS 100

static unsigned long seed;

#define CHECK(EX)                                                                                  \
    do {                                                                                           \
        if (!(EX)) {                                                                               \
            fprintf(stderr, "%s:%d: %s (errno %d, seed %lu)\n", __FILE__, __LINE__, #EX, errno,    \
                    seed);                                                                         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

typedef struct {
    uint64_t random;
    long ct_locked, ct_written, ct_acquired, ct_released, sent, received;
} worker_t;

static worker_t workers[CT_WORKERS];
static aco_mutex_t mutex;
static aco_rwlock_t rwlock;
static aco_cond_t cond;
static aco_semaphore_t semaphore;
static aco_chan_t *chans[2];
static long ct_locked, written[2]; /* under their locks */
static int ct_working;             /* under the mutex */
static int ct_arrived;             /* atomic */

static uint64_t below(worker_t *self, uint64_t limit)
{
    self->random ^= self->random << 13;
    self->random ^= self->random >> 7;
    self->random ^= self->random << 17;
    return self->random % limit;
}

/* Checks that a wait has failed only for a reason that exists. */
static int ended(int result)
{
    CHECK(result >= 0 || errno == ETIMEDOUT || errno == ECANCELED);
    return result >= 0;
}

static void locks(worker_t *self)
{
    if (ended(aco_mutex_lock(&mutex))) {
        self->ct_locked++;
        ct_locked++;
        if (below(self, 3) == 0) {
            aco_cond_wait(&cond, &mutex);
        } else {
            aco_cond_signal(&cond);
        }
        CHECK(aco_mutex_unlock(&mutex) == 0);
    }
}

static void reads_or_writes(worker_t *self)
{
    if (below(self, 3) != 0) {
        if (ended(aco_rwlock_read_lock(&rwlock))) {
            CHECK(written[0] == written[1]);
            aco_yield();
            CHECK(written[0] == written[1] && aco_rwlock_unlock(&rwlock) == 0);
        }
    } else if (ended(aco_rwlock_write_lock(&rwlock))) {
        written[0]++;
        aco_yield();
        written[1]++;
        self->ct_written++;
        CHECK(aco_rwlock_unlock(&rwlock) == 0);
    }
}

static void sends_or_receives(worker_t *self)
{
    long sent = 1 + (long)below(self, 100), received = 0;
    aco_chan_t *chan = chans[below(self, 2)];
    aco_case_t cases[] = {{.chan = chans[0], .send = &sent}, {.chan = chans[1], .recv = &received}};
    switch (below(self, 3)) {
    case 0:
        self->sent += ended(aco_chan_send(chan, &sent)) ? sent : 0;
        break;
    case 1:
        self->received += ended(aco_chan_recv(chan, &received)) ? received : 0;
        break;
    default: {
        int k = aco_select(cases, 2, 1);
        self->sent += ended(k) && k == 0 ? sent : 0;
        self->received += k == 1 ? received : 0;
    }
    }
}

static void *parks(void *arg)
{
    while (aco_park() == 0)
        continue;
    CHECK(errno == ECANCELED);
    return arg;
}

/* Sends tokens, a cancellation, and the end, all at once. */
static void wakes(worker_t *self)
{
    aco_task_options_t options = {.thread = ACO_THREAD((int)below(self, CT_THREADS))};
    aco_task_t *task;
    CHECK(aco_go_with(&options, parks, self, &task) == 0);
    uint64_t most = below(self, 2) * 300; /* or as fast as possible */
    for (uint64_t i = below(self, 100); i != 0; i--) {
        aco_unpark(task);
        for (volatile uint64_t pause = below(self, most + 1); pause != 0; pause--)
            continue;
    }
    aco_task_cancel(task);
    aco_unpark(task);
    aco_shielded
    {
        CHECK(aco_join(task, NULL) == 0);
    }
}

static void *waits_in_a_group(void *ct_ended)
{
    while (aco_park() == 0)
        continue;
    CHECK(errno == ECANCELED || errno == ETIMEDOUT);
    aco_yield();
    __atomic_add_fetch((int *)ct_ended, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* Joins a group whose tasks are cancelled at once, or when the join runs out of time. */
static void joins_a_group(worker_t *self)
{
    int *ct_ended = (int *)calloc(1, sizeof(*ct_ended)), ct = 0;
    aco_group_t *group = aco_group_new();
    CHECK(ct_ended != NULL && group != NULL);
    for (uint64_t i = below(self, 4); i != 0; i--) {
        aco_task_options_t options = {.thread = ACO_THREAD((int)below(self, CT_THREADS)),
                                      .group = group};
        int is_made = aco_go_with(&options, waits_in_a_group, ct_ended, NULL) == 0;
        CHECK(is_made || errno == ECANCELED);
        ct += is_made;
    }
    if (below(self, 2) == 0) {
        aco_group_cancel(group);
    }
    ended(aco_group_join(group));
    CHECK(__atomic_load_n(ct_ended, __ATOMIC_RELAXED) == ct);
    free(ct_ended);
}

static void acts(worker_t *self)
{
    switch (below(self, 8)) {
    case 0:
        locks(self);
        break;
    case 1:
        reads_or_writes(self);
        break;
    case 2:
        self->ct_acquired += ended(aco_semaphore_acquire(&semaphore));
        break;
    case 3:
        self->ct_released += aco_semaphore_release(&semaphore) == 0;
        break;
    case 4:
        sends_or_receives(self);
        break;
    case 5:
        wakes(self);
        break;
    case 6:
        joins_a_group(self);
        break;
    default:
        ended(aco_sleep((int64_t)below(self, 50000)));
    }
}

static void *works(void *arg)
{
    worker_t *self = (worker_t *)arg;
    for (int i = 0; i < CT_STEPS; i++) {
        aco_within((int64_t)below(self, 100000))
        {
            acts(self);
        }
    }
    CHECK(aco_mutex_lock(&mutex) == 0);
    ct_working--;
    CHECK(aco_mutex_unlock(&mutex) == 0);
    return arg;
}

/* Two threads want a mutex at the same time, again and again, without a deadline, which would hide
 * a lost wake-up. */
static void *contends(void *arg)
{
    for (int round = 1; round <= CT_ROUNDS; round++) {
        __atomic_add_fetch(&ct_arrived, 1, __ATOMIC_RELAXED);
        while (__atomic_load_n(&ct_arrived, __ATOMIC_RELAXED) < 2 * round) {
            sched_yield();
        }
        CHECK(aco_mutex_lock(&mutex) == 0);
        ct_locked++;
        CHECK(aco_mutex_unlock(&mutex) == 0);
    }
    return arg;
}

static void contend(void)
{
    aco_task_options_t options = {.thread = ACO_THREAD(1)};
    aco_task_t *other;
    ct_arrived = 0;
    CHECK(aco_go_with(&options, contends, NULL, &other) == 0);
    contends(NULL);
    CHECK(aco_join(other, NULL) == 0 && ct_locked == 2 * CT_ROUNDS);
    ct_locked = 0;
}

static void *runs_a_program(void *arg)
{
    aco_task_t *tasks[CT_WORKERS];
    contend();
    ct_working = CT_WORKERS;
    for (int i = 0; i < CT_WORKERS; i++) {
        aco_task_options_t options = {.thread = i % 2 == 0 ? ACO_ANY : ACO_THREAD(i % CT_THREADS)};
        workers[i] = (worker_t){.random = seed * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)i + 1};
        CHECK(aco_go_with(&options, works, &workers[i], &tasks[i]) == 0);
    }
    for (int i = 0; i < CT_WORKERS; i++) {
        CHECK(aco_join(tasks[i], NULL) == 0);
    }
    CHECK(ct_working == 0);
    return arg;
}

static void run_program(void)
{
    static const aco_run_options_t options = {.ct_threads = CT_THREADS};
    worker_t all = {0};
    long item;
    aco_semaphore_init(&semaphore, 2);
    chans[0] = aco_chan_new(sizeof(long), 0);
    chans[1] = aco_chan_new(sizeof(long), 3);
    ct_locked = written[0] = written[1] = 0;
    alarm(60);
    CHECK(aco_run(&options, runs_a_program, NULL, NULL) == 0);
    for (int i = 0; i < CT_WORKERS; i++) {
        all.ct_locked += workers[i].ct_locked;
        all.ct_written += workers[i].ct_written;
        all.ct_released += workers[i].ct_released - workers[i].ct_acquired;
        all.sent += workers[i].sent - workers[i].received;
    }
    CHECK(all.ct_locked == ct_locked && all.ct_written == written[0]);
    CHECK((long)semaphore.ct == 2 + all.ct_released);
    while (aco_chan_try_recv(chans[1], &item) == 1) {
        all.sent -= item;
    }
    CHECK(all.sent == 0);
    aco_chan_free(chans[0]);
    aco_chan_free(chans[1]);
}

static void on_alarm(int signal)
{
    fprintf(stderr, "random_threads: hangs, seed %lu\n", seed);
    aco_print_tasks(stderr);
    _exit(signal);
}

int main(int argc, char **argv)
{
    unsigned long ct = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    unsigned long first = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    signal(SIGALRM, on_alarm);
    for (seed = first; seed < first + ct; seed++) {
        run_program();
    }
    printf("%lu programs\n", ct);
    return 0;
}
