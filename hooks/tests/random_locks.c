// SPDX-License-Identifier: Apache-2.0
/*
 * A random program of tasks on several threads, and of threads that run none, with locks of all
 * kinds, semaphores and conditions: a lock has one owner, which is the actor that locked it, and no
 * wait lasts for ever. random_locks CT_STEPS SEED CT_THREADS CT_PLAIN_THREADS
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "aco_runtime.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define CT_MUTEXES 8 /* two of each type */
#define CT_RWLOCKS 3
#define CT_TASKS 24
#define MAX_PLAIN 8
#define SEMAPHORE_CT 3
#define QUEUE_SZ 4
#define ARRAY_SZ(array) (sizeof(array) / sizeof((array)[0]))

#define CHECK(EX)                                                                                  \
    do {                                                                                           \
        if (!(EX)) {                                                                               \
            fprintf(stderr, "%s:%d: %s (seed %u)\n", __FILE__, __LINE__, #EX, seed);               \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* In threads, TSan does not know all locks, and reports an unlock that fails. */
#ifdef __SANITIZE_THREAD__
#define MAY_MISUSE (aco_self() != NULL)
#define pthread_mutex_clocklock(mutex, clock, time)                                                \
    (aco_self() != NULL ? pthread_mutex_clocklock(mutex, clock, time) : pthread_mutex_lock(mutex))
#define pthread_rwlock_clockwrlock(rwlock, clock, time)                                            \
    (aco_self() != NULL ? pthread_rwlock_clockwrlock(rwlock, clock, time)                          \
                        : pthread_rwlock_wrlock(rwlock))
#else
#define MAY_MISUSE 1
#endif

static unsigned seed;
static int ct_steps;

/* Data stands behind the lock that guards it, and is not atomic unless marked so. */
static struct {
    pthread_mutex_t mutex;
    int type;
    int ct_inside;
} mutexes[CT_MUTEXES];

static struct {
    pthread_rwlock_t rwlock;
    int ct_writers;
    int ct_readers; /* atomic */
} rwlocks[CT_RWLOCKS];

static struct {
    sem_t semaphore;
    int ct_inside; /* atomic */
} entrance;

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t has_room, has_item;
    int ct, ct_made, ct_to_make, ct_taken;
} queue = {.mutex = PTHREAD_MUTEX_INITIALIZER,
           .has_room = PTHREAD_COND_INITIALIZER,
           .has_item = PTHREAD_COND_INITIALIZER};

/* ==== Actors ================================================================================= */

typedef struct {
    uint32_t state;
    int steps_left;
} actor_t;

static unsigned below(actor_t *actor, unsigned n)
{
    actor->state ^= actor->state << 13;
    actor->state ^= actor->state >> 17;
    actor->state ^= actor->state << 5;
    return (actor->state >> 3) % n;
}

/* The actor may have a lock meanwhile. */
static void let_others_run(actor_t *actor)
{
    switch (below(actor, 12)) {
    case 0:
        aco_sleep(below(actor, 200000));
        break;
    case 1:
    case 2:
    case 3:
        if (aco_self() != NULL) {
            aco_yield();
        } else {
            sched_yield();
        }
        break;
    default:
        break;
    }
}

static struct timespec in(clockid_t clock, int64_t ns)
{
    struct timespec t;
    clock_gettime(clock, &t);
    int64_t sum = t.tv_nsec + ns;
    t.tv_sec += (time_t)(sum / 1000000000);
    t.tv_nsec = (long)(sum % 1000000000);
    return t;
}

/* ==== Mutexes ================================================================================ */

static int lock_somehow(actor_t *actor, pthread_mutex_t *mutex)
{
    struct timespec t;
    int error;
    switch (below(actor, 6)) {
    case 0:
        error = pthread_mutex_trylock(mutex);
        CHECK(error == 0 || error == EBUSY);
        return error;
    case 1:
        t = in(CLOCK_REALTIME, below(actor, 300000));
        error = pthread_mutex_timedlock(mutex, &t);
        CHECK(error == 0 || error == ETIMEDOUT);
        return error;
    case 2:
        aco_within(below(actor, 300000))
        {
            t = in(CLOCK_MONOTONIC, 2000000000000);
            error = pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &t);
            CHECK(error == 0 || (error == ETIMEDOUT && aco_self() != NULL));
            return error;
        }
        break;
    case 3:
        aco_within(0) /* which does not count */
        {
            CHECK(pthread_mutex_lock(mutex) == 0);
        }
        return 0;
    default:
        break;
    }
    CHECK(pthread_mutex_lock(mutex) == 0);
    return 0;
}

/* Checks what the type of a mutex promises for a second lock by its owner, and for an unlock by
 * another actor. */
static void check_type(actor_t *actor, size_t i)
{
    pthread_mutex_t *mutex = &mutexes[i].mutex;
    if (mutexes[i].type == PTHREAD_MUTEX_ERRORCHECK) {
        struct timespec t = in(CLOCK_REALTIME, 1000000000);
        CHECK(pthread_mutex_lock(mutex) == EDEADLK);
        CHECK(pthread_mutex_timedlock(mutex, &t) == EDEADLK);
        CHECK(pthread_mutex_trylock(mutex) == EBUSY);
    } else if (mutexes[i].type == PTHREAD_MUTEX_RECURSIVE) {
        CHECK(pthread_mutex_lock(mutex) == 0);
        CHECK(pthread_mutex_trylock(mutex) == 0);
        let_others_run(actor);
        CHECK(pthread_mutex_unlock(mutex) == 0);
        CHECK(pthread_mutex_unlock(mutex) == 0);
    } else {
        CHECK(pthread_mutex_trylock(mutex) == EBUSY);
    }
}

static void use_mutex(actor_t *actor, size_t from)
{
    size_t i = from + below(actor, (unsigned)(CT_MUTEXES - from));
    int type = mutexes[i].type;
    if ((type == PTHREAD_MUTEX_ERRORCHECK || type == PTHREAD_MUTEX_RECURSIVE) &&
        below(actor, 8) == 0 && MAY_MISUSE) {
        CHECK(pthread_mutex_unlock(&mutexes[i].mutex) == EPERM);
    }
    if (lock_somehow(actor, &mutexes[i].mutex) != 0) {
        return;
    }
    CHECK(mutexes[i].ct_inside++ == 0);
    let_others_run(actor);
    if (below(actor, 4) == 0) {
        check_type(actor, i);
    }
    if (i + 1 < CT_MUTEXES && below(actor, 6) == 0) {
        use_mutex(actor, i + 1);
    }
    CHECK(mutexes[i].ct_inside-- == 1);
    CHECK(pthread_mutex_unlock(&mutexes[i].mutex) == 0);
}

/* ==== Readers and writers ==================================================================== */

static void read_it(actor_t *actor, size_t i)
{
    struct timespec t = in(CLOCK_REALTIME, below(actor, 300000));
    int is_timed = below(actor, 4) == 0;
    int error = is_timed ? pthread_rwlock_timedrdlock(&rwlocks[i].rwlock, &t)
                         : pthread_rwlock_rdlock(&rwlocks[i].rwlock);
    CHECK(error == 0 || (is_timed && error == ETIMEDOUT));
    if (error != 0) {
        return;
    }
    __atomic_add_fetch(&rwlocks[i].ct_readers, 1, __ATOMIC_RELAXED);
    CHECK(rwlocks[i].ct_writers == 0);
    let_others_run(actor);
    CHECK(rwlocks[i].ct_writers == 0);
    __atomic_sub_fetch(&rwlocks[i].ct_readers, 1, __ATOMIC_RELAXED);
    CHECK(pthread_rwlock_unlock(&rwlocks[i].rwlock) == 0);
}

static void write_it(actor_t *actor, size_t i)
{
    struct timespec t = in(CLOCK_MONOTONIC, below(actor, 300000));
    int is_timed = below(actor, 4) == 0;
    int error = is_timed ? pthread_rwlock_clockwrlock(&rwlocks[i].rwlock, CLOCK_MONOTONIC, &t)
                         : pthread_rwlock_wrlock(&rwlocks[i].rwlock);
    CHECK(error == 0 || (is_timed && error == ETIMEDOUT));
    if (error != 0) {
        return;
    }
    CHECK(rwlocks[i].ct_writers++ == 0);
    CHECK(__atomic_load_n(&rwlocks[i].ct_readers, __ATOMIC_RELAXED) == 0);
    let_others_run(actor);
    CHECK(pthread_rwlock_wrlock(&rwlocks[i].rwlock) == EDEADLK);
    CHECK(pthread_rwlock_rdlock(&rwlocks[i].rwlock) == EDEADLK);
    CHECK(rwlocks[i].ct_writers-- == 1);
    CHECK(pthread_rwlock_unlock(&rwlocks[i].rwlock) == 0);
}

/* ==== Semaphores and conditions ============================================================== */

static void go_through_entrance(actor_t *actor)
{
    struct timespec t = in(CLOCK_REALTIME, below(actor, 300000));
    int is_timed = below(actor, 4) == 0, got;
    do {
        got = is_timed ? sem_timedwait(&entrance.semaphore, &t) : sem_wait(&entrance.semaphore);
    } while (got < 0 && errno == EINTR);
    CHECK(got == 0 || (is_timed && errno == ETIMEDOUT));
    if (got == 0) {
        CHECK(__atomic_add_fetch(&entrance.ct_inside, 1, __ATOMIC_RELAXED) <= SEMAPHORE_CT);
        let_others_run(actor);
        __atomic_sub_fetch(&entrance.ct_inside, 1, __ATOMIC_RELAXED);
        CHECK(sem_post(&entrance.semaphore) == 0);
    }
}

static void wait_on(actor_t *actor, pthread_cond_t *cond)
{
    struct timespec t;
    int error = 0;
    switch (below(actor, 3)) {
    case 0:
        t = in(CLOCK_REALTIME, below(actor, 500000));
        error = pthread_cond_timedwait(cond, &queue.mutex, &t);
        break;
    case 1:
        t = in(CLOCK_MONOTONIC, below(actor, 500000));
        error = pthread_cond_clockwait(cond, &queue.mutex, CLOCK_MONOTONIC, &t);
        break;
    default:
        error = pthread_cond_wait(cond, &queue.mutex);
    }
    CHECK(error == 0 || error == ETIMEDOUT);
}

/* Half of the actors make items, and half take them, one in each such step. */
static void make_item(actor_t *actor)
{
    CHECK(pthread_mutex_lock(&queue.mutex) == 0);
    while (queue.ct == QUEUE_SZ) {
        wait_on(actor, &queue.has_room);
    }
    queue.ct++;
    queue.ct_made++;
    let_others_run(actor);
    CHECK(pthread_cond_signal(&queue.has_item) == 0);
    CHECK(pthread_mutex_unlock(&queue.mutex) == 0);
}

static void take_item(actor_t *actor)
{
    CHECK(pthread_mutex_lock(&queue.mutex) == 0);
    while (queue.ct == 0) {
        wait_on(actor, &queue.has_item);
    }
    queue.ct--;
    queue.ct_taken++;
    CHECK(queue.ct_made - queue.ct_taken == queue.ct);
    CHECK(pthread_mutex_unlock(&queue.mutex) == 0);
    CHECK(pthread_cond_broadcast(&queue.has_room) == 0);
}

/* ==== The program ============================================================================ */

static void *act(void *arg)
{
    uintptr_t number = (uintptr_t)arg;
    actor_t actor = {(uint32_t)(seed * 7919 + number * 104729 + 1) | 1, ct_steps};
    for (int i = 0; i < ct_steps; i++) {
        switch (below(&actor, 8)) {
        case 0:
        case 1:
            read_it(&actor, below(&actor, CT_RWLOCKS));
            break;
        case 2:
            write_it(&actor, below(&actor, CT_RWLOCKS));
            break;
        case 3:
            go_through_entrance(&actor);
            break;
        default:
            use_mutex(&actor, 0);
        }
        if (i % 4 == 0) {
            (number % 2 == 0 ? make_item : take_item)(&actor);
        }
        let_others_run(&actor);
    }
    return NULL;
}

static void *run_all(void *arg)
{
    aco_group_t *group = aco_group_new();
    aco_task_options_t options = {.thread = ACO_ANY, .group = group};
    for (uintptr_t i = 0; i < CT_TASKS; i++) {
        options.shares_stack = i % 5 == 0;
        CHECK(aco_go_with(&options, act, (void *)i, NULL) == 0);
    }
    CHECK(aco_group_join(group) == 0);
    return arg;
}

static void make_locks(void)
{
    static const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE,
                                PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
    static const int kinds[] = {PTHREAD_RWLOCK_PREFER_READER_NP, PTHREAD_RWLOCK_PREFER_WRITER_NP,
                                PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP};
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    for (size_t i = 0; i < CT_MUTEXES; i++) {
        mutexes[i].type = types[i % ARRAY_SZ(types)];
        pthread_mutexattr_settype(&attr, mutexes[i].type);
        pthread_mutex_init(&mutexes[i].mutex, &attr);
    }
    pthread_mutexattr_destroy(&attr);
    pthread_rwlockattr_t rwattr;
    pthread_rwlockattr_init(&rwattr);
    for (size_t i = 0; i < CT_RWLOCKS; i++) {
        pthread_rwlockattr_setkind_np(&rwattr, kinds[i % ARRAY_SZ(kinds)]);
        pthread_rwlock_init(&rwlocks[i].rwlock, &rwattr);
    }
    pthread_rwlockattr_destroy(&rwattr);
    sem_init(&entrance.semaphore, 0, SEMAPHORE_CT);
}

static void check_end(void)
{
    int value;
    for (size_t i = 0; i < CT_MUTEXES; i++) {
        CHECK(pthread_mutex_destroy(&mutexes[i].mutex) == 0);
    }
    for (size_t i = 0; i < CT_RWLOCKS; i++) {
        CHECK(pthread_rwlock_trywrlock(&rwlocks[i].rwlock) == 0);
    }
    CHECK(sem_getvalue(&entrance.semaphore, &value) == 0 && value == SEMAPHORE_CT);
    CHECK(queue.ct == 0 && queue.ct_made == queue.ct_taken);
}

int main(int argc, char **argv)
{
    ct_steps = argc > 1 ? atoi(argv[1]) : 1000;
    seed = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
    aco_run_options_t options = {.ct_threads = argc > 3 ? atoi(argv[3]) : 1};
    uintptr_t ct_plain = argc > 4 ? (uintptr_t)atoi(argv[4]) : 2; /* an even number */
    pthread_t threads[MAX_PLAIN];
    make_locks();
    for (uintptr_t i = 0; i < ct_plain; i++) {
        CHECK(pthread_create(&threads[i], NULL, act, (void *)(CT_TASKS + i)) == 0);
    }
    CHECK(aco_run(&options, run_all, NULL, NULL) == 0);
    for (uintptr_t i = 0; i < ct_plain; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    check_end();
    printf("%d steps each of %d tasks on %d threads, %d threads: ok\n", ct_steps, CT_TASKS,
           options.ct_threads, (int)ct_plain);
    return 0;
}
