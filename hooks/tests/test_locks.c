// SPDX-License-Identifier: Apache-2.0
/* libc's mutexes, rwlocks and semaphores in tasks, and between tasks and threads. */
#include "threads.h"

#include "waiting.h"

#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* ==== Mutexes ================================================================================ */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char order[16];

static void append(char letter)
{
    size_t sz = strlen(order);
    order[sz] = letter;
    order[sz + 1] = '\0';
}

static void *locks_in_turn(void *letter)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    append(*(const char *)letter);
    aco_yield();
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return NULL;
}

static void *holds_over_waits(void *arg)
{
    order[0] = '\0';
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(aco_i_owner_of(&mutex) == ((uint32_t)aco_i_running_task()->id & 0x3fffffff));
    aco_task_t *a = aco_spawn(locks_in_turn, "a"), *b = aco_spawn(locks_in_turn, "b");
    let_run();
    CHECK(order[0] == '\0');
    CHECK(pthread_mutex_trylock(&mutex) == EBUSY);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(pthread_mutex_lock(&mutex) == 0); /* behind the tasks that wait */
    append('c');
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(aco_join(a, NULL) == 0);
    CHECK(aco_join(b, NULL) == 0);
    CHECK(strcmp(order, "abc") == 0);
    CHECK(aco_i_owner_of(&mutex) == 0);
    return arg;
}

static void a_mutex_held_over_a_wait_stops_no_other_task(void **state)
{
    (void)state;
    run_tasks(holds_over_waits, NULL);
    assert_int_equal(pthread_mutex_trylock(&mutex), 0);
    assert_int_equal(pthread_mutex_unlock(&mutex), 0);
    assert_int_equal(mutex.__data.__nusers, 0);
}

static pthread_mutex_t make_mutex(int type)
{
    pthread_mutex_t made;
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, type);
    pthread_mutex_init(&made, &attr);
    pthread_mutexattr_destroy(&attr);
    return made;
}

static int is_inside;

static void *finds_recursive_taken(void *arg)
{
    pthread_mutex_t *m = (pthread_mutex_t *)arg;
    CHECK(pthread_mutex_trylock(m) == EBUSY);
    CHECK(pthread_mutex_unlock(m) == EPERM);
    CHECK(pthread_mutex_lock(m) == 0);
    CHECK(!is_inside);
    CHECK(pthread_mutex_unlock(m) == 0);
    return NULL;
}

static void *locks_recursively(void *arg)
{
    pthread_mutex_t *m = (pthread_mutex_t *)arg;
    is_inside = 1;
    CHECK(pthread_mutex_lock(m) == 0);
    CHECK(pthread_mutex_lock(m) == 0);
    aco_task_t *other = aco_spawn(finds_recursive_taken, m);
    let_run();
    CHECK(pthread_mutex_trylock(m) == 0);
    CHECK(pthread_mutex_unlock(m) == 0);
    CHECK(pthread_mutex_unlock(m) == 0);
    let_run();
    is_inside = 0;
    CHECK(pthread_mutex_unlock(m) == 0);
    CHECK(pthread_mutex_unlock(m) == EPERM);
    CHECK(aco_join(other, NULL) == 0);
    return NULL;
}

static void a_recursive_mutex_keeps_other_tasks_out(void **state)
{
    (void)state;
    pthread_mutex_t m = make_mutex(PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_t is_static = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    run_tasks(locks_recursively, &m);
    run_tasks(locks_recursively, &is_static);
    assert_int_equal(pthread_mutex_destroy(&m), 0);
}

static void *fails_to_unlock(void *m)
{
    CHECK(pthread_mutex_unlock((pthread_mutex_t *)m) == EPERM);
    CHECK(pthread_mutex_trylock((pthread_mutex_t *)m) == EBUSY);
    return NULL;
}

static void *locks_twice(void *arg)
{
    pthread_mutex_t *m = (pthread_mutex_t *)arg;
    struct timespec t = in(CLOCK_REALTIME, 1000 * MS);
    CHECK(pthread_mutex_unlock(m) == EPERM);
    CHECK(pthread_mutex_lock(m) == 0);
    CHECK(pthread_mutex_lock(m) == EDEADLK);
    CHECK(pthread_mutex_timedlock(m, &t) == EDEADLK);
    CHECK(aco_join(aco_spawn(fails_to_unlock, m), NULL) == 0);
    CHECK(pthread_mutex_unlock(m) == 0);
    return NULL;
}

static void an_error_checking_mutex_knows_its_task(void **state)
{
    (void)state;
    pthread_mutex_t m = make_mutex(PTHREAD_MUTEX_ERRORCHECK);
    run_tasks(locks_twice, &m);
    assert_int_equal(pthread_mutex_destroy(&m), 0);
}

static void *finds_a_thread_inside(void *arg)
{
    pthread_mutex_t *m = (pthread_mutex_t *)arg;
    CHECK(pthread_mutex_trylock(m) == EBUSY);
    CHECK(pthread_mutex_unlock(m) == EPERM);
    return NULL;
}

static void a_task_is_not_its_thread(void **state)
{
    (void)state;
    static const int types[] = {PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK};
    for (size_t i = 0; i < ARRAY_SZ(types); i++) {
        pthread_mutex_t m = make_mutex(types[i]);
        assert_int_equal(pthread_mutex_lock(&m), 0);
        run_tasks(finds_a_thread_inside, &m);
        assert_int_equal(pthread_mutex_unlock(&m), 0);
    }
}

/* ==== Limits ================================================================================= */

static void *waits_too_long(void *arg)
{
    struct timespec late = in(CLOCK_REALTIME, 2 * MS), never = in(CLOCK_REALTIME, 1000000 * MS);
    struct timespec monotonic = in(CLOCK_MONOTONIC, 2 * MS), invalid = {0, 1000000000};
    CHECK(pthread_mutex_timedlock(&mutex, &late) == ETIMEDOUT);
    CHECK(has_come(CLOCK_REALTIME, &late));
    CHECK(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &monotonic) == ETIMEDOUT);
    CHECK(pthread_mutex_timedlock(&mutex, &invalid) == EINVAL);
    aco_within(2 * MS)
    {
        CHECK(pthread_mutex_timedlock(&mutex, &never) == ETIMEDOUT);
    }
    stage = 1;
    CHECK(pthread_mutex_timedlock(&mutex, &never) == ECANCELED);
    stage = 2;
    CHECK(pthread_mutex_lock(&mutex) == 0); /* in any case */
    CHECK(order[0] == 'u');
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(pthread_mutex_timedlock(&mutex, &invalid) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return arg;
}

static void *keeps_others_waiting(void *arg)
{
    order[0] = '\0';
    CHECK(pthread_mutex_lock(&mutex) == 0);
    stage = 0;
    aco_task_t *late = aco_spawn(waits_too_long, NULL);
    wait_for_stage(1);
    aco_task_cancel(late);
    wait_for_stage(2);
    append('u');
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(aco_join(late, NULL) == 0);
    return arg;
}

static void limits_end_timed_waits_alone(void **state)
{
    (void)state;
    run_tasks(keeps_others_waiting, NULL);
}

static void *gives_up_or_not(void *arg)
{
    struct timespec t = in(CLOCK_REALTIME, 1000000 * MS);
    int error = pthread_mutex_timedlock(&mutex, &t);
    CHECK(error == 0 || error == ECANCELED);
    if (error == 0) {
        CHECK(pthread_mutex_unlock(&mutex) == 0);
    }
    return arg;
}

static void *cancels_whom_it_calls(void *arg)
{
    for (int i = 0; i < 2; i++) { /* before and after the call */
        order[0] = '\0';
        CHECK(pthread_mutex_lock(&mutex) == 0);
        aco_task_t *first = aco_spawn(gives_up_or_not, NULL);
        aco_task_t *second = aco_spawn(locks_in_turn, "s");
        let_run();
        if (i == 0) {
            aco_task_cancel(first);
        }
        CHECK(pthread_mutex_unlock(&mutex) == 0);
        aco_task_cancel(first);
        CHECK(aco_join(second, NULL) == 0);
        CHECK(aco_join(first, NULL) == 0);
        CHECK(strcmp(order, "s") == 0);
    }
    return arg;
}

static void who_gives_up_calls_the_next(void **state)
{
    (void)state;
    run_tasks(cancels_whom_it_calls, NULL);
}

/* ==== Threads ================================================================================ */

#define ROUNDS 300

static long ct_rounds;

static void *locks_and_waits(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(pthread_mutex_lock(&mutex) == 0);
        CHECK(++is_inside == 1);
        if (i % 3 == 0) {
            sched_yield();
        }
        is_inside--;
        ct_rounds++;
        CHECK(pthread_mutex_unlock(&mutex) == 0);
    }
    return arg;
}

static void tasks_and_threads_share_a_mutex(void **state)
{
    (void)state;
    pthread_t threads[2];
    void *(*fn)(void *) = locks_and_waits;
    ct_rounds = is_inside = 0;
    for (size_t i = 0; i < ARRAY_SZ(threads); i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, locks_and_waits, NULL), 0);
    }
    run_tasks_on(2, spawns_anywhere, &fn);
    for (size_t i = 0; i < ARRAY_SZ(threads); i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(ct_rounds, (CT_TASKS + 2) * ROUNDS);
}

#define TIGHT_ROUNDS 200000

static void *counts(void *arg)
{
    for (int i = 0; i < TIGHT_ROUNDS; i++) {
        CHECK(pthread_mutex_lock(&mutex) == 0);
        ct_rounds++;
        CHECK(pthread_mutex_unlock(&mutex) == 0);
    }
    return arg;
}

static void a_task_and_a_thread_count_together(void **state)
{
    (void)state;
    pthread_t thread;
    ct_rounds = 0;
    assert_int_equal(pthread_create(&thread, NULL, counts, NULL), 0);
    run_tasks(counts, NULL);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(ct_rounds, 2 * TIGHT_ROUNDS);
}

/* The thread's wait releases the mutex inside libc. */
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int is_there, may_go;

static void *waits_inside(void *arg)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    while (!__atomic_load_n(&is_there, __ATOMIC_SEQ_CST)) {
        usleep(100);
    }
    while (!may_go) {
        CHECK(pthread_cond_wait(&cond, &mutex) == 0);
    }
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return arg;
}

static void *needs_the_mutex(void *arg)
{
    while (pthread_mutex_trylock(&mutex) == 0) {
        CHECK(pthread_mutex_unlock(&mutex) == 0);
        aco_sleep(MS / 10);
    }
    __atomic_store_n(&is_there, 1, __ATOMIC_SEQ_CST);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    may_go = 1;
    CHECK(pthread_cond_signal(&cond) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return arg;
}

static void a_thread_that_waits_for_a_condition_lets_tasks_in(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        is_there = may_go = 0;
        assert_int_equal(pthread_create(&thread, NULL, waits_inside, NULL), 0);
        run_tasks(needs_the_mutex, NULL);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
}

/* ==== Mutexes that are more than a word ====================================================== */

static void *finds_special_taken(void *arg)
{
    pthread_mutex_t *m = (pthread_mutex_t *)arg;
    CHECK(pthread_mutex_trylock(m) == EBUSY);
    CHECK(pthread_mutex_lock(m) == 0);
    CHECK(!is_inside);
    CHECK(pthread_mutex_unlock(m) == 0);
    return NULL;
}

static void *holds_special(void *arg)
{
    pthread_mutex_t *m = (pthread_mutex_t *)arg;
    struct timespec t = in(CLOCK_REALTIME, 1000 * MS);
    is_inside = 1;
    CHECK(pthread_mutex_lock(m) == 0);
    aco_task_t *other = aco_spawn(finds_special_taken, m);
    let_run();
    CHECK(pthread_mutex_trylock(m) == EBUSY);
    is_inside = 0;
    CHECK(pthread_mutex_unlock(m) == 0);
    CHECK(aco_join(other, NULL) == 0);
    CHECK(pthread_mutex_timedlock(m, &t) == 0);
    CHECK(pthread_mutex_unlock(m) == 0);
    return NULL;
}

/* A mutex that is left to libc. */
static void *locks_again_and_again(void *arg)
{
    pthread_mutex_t *m = (pthread_mutex_t *)arg;
    CHECK(pthread_mutex_lock(m) == 0);
    CHECK(pthread_mutex_lock(m) == 0);
    CHECK(pthread_mutex_trylock(m) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_mutex_unlock(m) == 0);
    }
    return NULL;
}

/* Another one, which libc takes the thread to own. */
static void *fails_to_lock_again(void *arg)
{
    pthread_mutex_t *m = (pthread_mutex_t *)arg;
    CHECK(pthread_mutex_lock(m) == 0);
    CHECK(pthread_mutex_lock(m) == EDEADLK);
    CHECK(pthread_mutex_unlock(m) == 0);
    return NULL;
}

static void run_with(void *(*fn)(void *), const pthread_mutexattr_t *attr)
{
    pthread_mutex_t m;
    assert_int_equal(pthread_mutex_init(&m, attr), 0);
    run_tasks(fn, &m);
    assert_int_equal(pthread_mutex_destroy(&m), 0);
}

static void a_special_mutex_stops_no_other_task(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        pthread_mutexattr_t attr;
        pthread_mutexattr_init(&attr);
        if (i == 0) {
            pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
        } else if (i == 1) {
            pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
        } else {
            pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
        }
        run_with(holds_special, &attr);
        pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
        run_with(locks_again_and_again, &attr);
        pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
        run_with(fails_to_lock_again, &attr);
        pthread_mutexattr_destroy(&attr);
    }
}

static void *ends_with_it(void *m)
{
    return pthread_mutex_lock((pthread_mutex_t *)m) == 0 ? m : NULL;
}

static void *finds_owner_dead(void *arg)
{
    pthread_mutex_t *m = (pthread_mutex_t *)arg;
    CHECK(pthread_mutex_lock(m) == EOWNERDEAD);
    aco_task_t *other = aco_spawn(finds_special_taken, m);
    is_inside = 1;
    let_run();
    CHECK(pthread_mutex_consistent(m) == 0);
    is_inside = 0;
    CHECK(pthread_mutex_unlock(m) == 0);
    CHECK(aco_join(other, NULL) == 0);
    return NULL;
}

static void the_death_of_an_owner_is_told(void **state)
{
    (void)state;
    pthread_mutex_t m;
    pthread_mutexattr_t attr;
    pthread_t thread;
    void *result;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    assert_int_equal(pthread_mutex_init(&m, &attr), 0);
    assert_int_equal(pthread_create(&thread, NULL, ends_with_it, &m), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &m);
    run_tasks(finds_owner_dead, &m);
    assert_int_equal(pthread_mutex_destroy(&m), 0);
    pthread_mutexattr_destroy(&attr);
}

/* In a child: takes a mutex whose owner is dead, and repairs it when it is told to. */
static int repairs(pthread_mutex_t *m, int fd)
{
    char byte;
    return pthread_mutex_lock(m) == EOWNERDEAD && write(fd, "", 1) == 1 &&
           read(fd, &byte, 1) == 1 && pthread_mutex_consistent(m) == 0 &&
           pthread_mutex_unlock(m) == 0;
}

static void *lets_repair(void *fd)
{
    let_run();
    CHECK(write((int)(intptr_t)fd, "", 1) == 1);
    return NULL;
}

static void *waits_for_repair(void *arg)
{
    pthread_mutex_t *m = (pthread_mutex_t *)arg;
    int fds[2], status;
    char byte;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(pthread_mutex_lock(m));
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    pid = fork();
    if (pid == 0) {
        _exit(!repairs(m, fds[1]));
    }
    CHECK(read(fds[0], &byte, 1) == 1);
    aco_go(lets_repair, (void *)(intptr_t)fds[0]);
    CHECK(pthread_mutex_lock(m) == 0); /* released by the child */
    CHECK(pthread_mutex_unlock(m) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
    return NULL;
}

static void another_process_repairs_a_mutex(void **state)
{
    (void)state;
    pthread_mutexattr_t attr;
    pthread_mutex_t *m = (pthread_mutex_t *)mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE,
                                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(m != MAP_FAILED);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    assert_int_equal(pthread_mutex_init(m, &attr), 0);
    pthread_mutexattr_destroy(&attr);
    run_tasks(waits_for_repair, m);
    assert_int_equal(munmap(m, sizeof(*m)), 0);
}

/* ==== Readers and writers ==================================================================== */

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

static void *writes(void *arg)
{
    struct timespec t = in(CLOCK_REALTIME, 2 * MS), monotonic = in(CLOCK_MONOTONIC, 2 * MS);
    CHECK(pthread_rwlock_trywrlock(&rwlock) == EBUSY);
    CHECK(pthread_rwlock_timedwrlock(&rwlock, &t) == ETIMEDOUT);
    CHECK(pthread_rwlock_clockwrlock(&rwlock, CLOCK_MONOTONIC, &monotonic) == ETIMEDOUT);
    stage = 1;
    aco_within(0)
    {
        CHECK(pthread_rwlock_wrlock(&rwlock) == 0);
    }
    append('w');
    let_run();
    CHECK(pthread_rwlock_wrlock(&rwlock) == EDEADLK);
    CHECK(pthread_rwlock_rdlock(&rwlock) == EDEADLK);
    append('W');
    CHECK(pthread_rwlock_unlock(&rwlock) == 0);
    return arg;
}

static void *reads(void *arg)
{
    struct timespec t = in(CLOCK_REALTIME, 1000000 * MS);
    aco_within(MS)
    {
        CHECK(pthread_rwlock_timedrdlock(&rwlock, &t) == ETIMEDOUT);
    }
    stage++;
    CHECK(pthread_rwlock_rdlock(&rwlock) == 0);
    append('r');
    CHECK(pthread_rwlock_unlock(&rwlock) == 0);
    return arg;
}

static void *reads_and_lets_write(void *arg)
{
    order[0] = '\0';
    CHECK(pthread_rwlock_rdlock(&rwlock) == 0);
    stage = 0;
    aco_task_t *writer = aco_spawn(writes, NULL);
    wait_for_stage(1);
    CHECK(pthread_rwlock_rdlock(&rwlock) == 0); /* once more, while a writer waits */
    CHECK(pthread_rwlock_tryrdlock(&rwlock) == 0);
    CHECK(pthread_rwlock_unlock(&rwlock) == 0);
    CHECK(pthread_rwlock_unlock(&rwlock) == 0);
    CHECK(order[0] == '\0');
    CHECK(pthread_rwlock_unlock(&rwlock) == 0);
    CHECK(pthread_rwlock_rdlock(&rwlock) == 0); /* after the writer, which came first */
    append('R');
    CHECK(pthread_rwlock_unlock(&rwlock) == 0);
    CHECK(aco_join(writer, NULL) == 0);
    CHECK(strcmp(order, "wWR") == 0);
    CHECK(pthread_rwlock_wrlock(&rwlock) == 0);
    aco_task_t *a = aco_spawn(reads, NULL), *b = aco_spawn(reads, NULL);
    wait_for_stage(3);
    CHECK(pthread_rwlock_unlock(&rwlock) == 0);
    CHECK(aco_join(a, NULL) == 0);
    CHECK(aco_join(b, NULL) == 0);
    CHECK(strcmp(order, "wWRrr") == 0);
    return arg;
}

static void readers_and_writers_are_tasks(void **state)
{
    (void)state;
    run_tasks(reads_and_lets_write, NULL);
}

/* ==== Semaphores ============================================================================= */

static sem_t semaphore;

static void posts(int number)
{
    (void)number;
    sem_post(&semaphore);
}

static void *takes(void *arg)
{
    errno = 0;
    CHECK(sem_wait(&semaphore) == 0 && errno == 0);
    append('t');
    return arg;
}

static void *is_cancelled_at_it(void *arg)
{
    CHECK_FAILS(sem_wait(&semaphore), ECANCELED);
    return arg;
}

static void *takes_from_a_semaphore(void *arg)
{
    struct timespec t = in(CLOCK_REALTIME, 2 * MS), invalid = {0, -1};
    struct timespec monotonic = in(CLOCK_MONOTONIC, 2 * MS);
    order[0] = '\0';
    CHECK_FAILS(sem_trywait(&semaphore), EAGAIN);
    CHECK_FAILS(sem_timedwait(&semaphore, &t), ETIMEDOUT);
    CHECK_FAILS(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &monotonic), ETIMEDOUT);
    CHECK_FAILS(sem_timedwait(&semaphore, &invalid), EINVAL);
    aco_within(2 * MS)
    {
        CHECK_FAILS(sem_wait(&semaphore), ETIMEDOUT);
    }
    aco_task_t *a = aco_spawn(takes, NULL), *b = aco_spawn(takes, NULL);
    aco_task_t *late = aco_spawn(is_cancelled_at_it, NULL);
    let_run();
    CHECK(sem_post(&semaphore) == 0);
    CHECK(aco_join(a, NULL) == 0);
    CHECK(strcmp(order, "t") == 0);
    raise(SIGUSR1);
    CHECK(aco_join(b, NULL) == 0);
    aco_task_cancel(late);
    CHECK(aco_join(late, NULL) == 0);
    CHECK(sem_post(&semaphore) == 0);
    CHECK(sem_wait(&semaphore) == 0);
    return arg;
}

static void semaphores_keep_tasks_waiting(void **state)
{
    (void)state;
    assert_int_equal(sem_init(&semaphore, 0, 0), 0);
    signal(SIGUSR1, posts);
    run_tasks(takes_from_a_semaphore, NULL);
}

static void *posts_thrice(void *arg)
{
    for (int i = 0; i < 3; i++) {
        CHECK(sem_post(&semaphore) == 0);
    }
    return arg;
}

static void *takes_thrice(void *arg)
{
    aco_task_t *tasks[3];
    for (size_t i = 0; i < ARRAY_SZ(tasks); i++) {
        tasks[i] = aco_spawn(takes, NULL);
    }
    let_run();
    order[0] = '\0';
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, posts_thrice, NULL) == 0);
    for (size_t i = 0; i < ARRAY_SZ(tasks); i++) {
        CHECK(aco_join(tasks[i], NULL) == 0);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    return arg;
}

static void threads_post_for_tasks(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        run_tasks(takes_thrice, NULL);
    }
}

static sem_t many[2 * CT_BUCKETS + 1]; /* three are in one bucket at least */

/* Finds three of one bucket. */
static void find_neighbours(sem_t *found[3])
{
    int cts[CT_BUCKETS] = {0};
    bucket_t *full = NULL;
    for (size_t i = 0; full == NULL; i++) {
        bucket_t *bucket = bucket_of(&many[i]);
        full = ++cts[bucket - aco_i_buckets] == 3 ? bucket : NULL;
    }
    for (int i = 0, ct = 0; ct < 3; i++) {
        found[ct] = &many[i];
        ct += bucket_of(&many[i]) == full;
    }
}

static void *takes_from(void *which)
{
    CHECK(sem_wait((sem_t *)which) == 0);
    return NULL;
}

/* A signal handler may post while its thread holds the lock of the queue. The next to unlock it
 * wakes the tasks. With `arg`, there are two semaphores. */
static void *posts_behind_a_lock(void *arg)
{
    int ct = arg != NULL ? 2 : 1;
    sem_t *found[3];
    aco_task_t *tasks[2];
    find_neighbours(found);
    lock_t *held = &bucket_of(found[0])->lock;
    for (int i = 0; i < ct; i++) {
        CHECK(sem_init(found[i], 0, 0) == 0);
        tasks[i] = aco_spawn(takes_from, found[i]);
    }
    let_run();
    lock(held);
    for (int i = 0; i < ct; i++) {
        CHECK(sem_post(found[i]) == 0);
    }
    unlock(held);
    aco_i_call_first(found[2]);
    for (int i = 0; i < ct; i++) {
        CHECK(aco_join(tasks[i], NULL) == 0);
    }
    return arg;
}

static void a_post_behind_a_lock_is_not_lost(void **state)
{
    (void)state;
    run_tasks(posts_behind_a_lock, NULL);
    run_tasks(posts_behind_a_lock, many);
}

/* ==== Many locks ============================================================================= */

/* The hooks have queues for fewer locks: some share one. TSan aborts if a thread holds so many. */
#ifdef __SANITIZE_THREAD__
#define CT_LOCKS 60
#else
#define CT_LOCKS 1025
#endif

static pthread_mutex_t locks[CT_LOCKS];
static char has_got[CT_LOCKS];

static void *gets_lock(void *which)
{
    CHECK(pthread_mutex_lock((pthread_mutex_t *)which) == 0);
    has_got[(pthread_mutex_t *)which - locks] = 1;
    CHECK(pthread_mutex_unlock((pthread_mutex_t *)which) == 0);
    return NULL;
}

static void *gives_locks_in_turn(void *arg)
{
    aco_group_t *group = aco_group_new();
    for (int i = 0; i < CT_LOCKS; i++) {
        CHECK(pthread_mutex_init(&locks[i], NULL) == 0 && pthread_mutex_lock(&locks[i]) == 0);
        CHECK(aco_group_go(group, gets_lock, &locks[i]) == 0);
    }
    let_run();
    for (int i = 0; i < CT_LOCKS; i++) {
        CHECK(!has_got[i] && pthread_mutex_unlock(&locks[i]) == 0);
        let_run();
        CHECK(has_got[i]);
    }
    CHECK(aco_group_join(group) == 0);
    return arg;
}

static void locks_that_share_a_queue_have_waiters_of_their_own(void **state)
{
    (void)state;
    run_tasks(gives_locks_in_turn, NULL);
}

/* ==== Children =============================================================================== */

static pthread_mutex_t inherited = PTHREAD_MUTEX_INITIALIZER;

static void *locks_it(void *arg)
{
    CHECK(pthread_mutex_lock(&inherited) == 0 && pthread_mutex_unlock(&inherited) == 0);
    return arg;
}

static int has_begun, may_end; /* atomic */

static void *keeps_one_waiting(void *arg)
{
    CHECK(pthread_mutex_lock(&inherited) == 0);
    aco_task_t *task = aco_spawn(locks_it, NULL);
    let_run();
    __atomic_store_n(&has_begun, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&may_end, __ATOMIC_SEQ_CST)) {
        CHECK(aco_sleep(MS) == 0);
    }
    CHECK(pthread_mutex_unlock(&inherited) == 0 && aco_join(task, NULL) == 0);
    return arg;
}

static void *runs_beside(void *arg)
{
    CHECK(aco_run(NULL, keeps_one_waiting, NULL, NULL) == 0);
    return arg;
}

/* A child that makes the lock anew does not find the parent's task in its queue. */
static void children_wait_behind_no_task_of_the_parent(void **state)
{
    int status;
    pthread_t thread;
    (void)state;
    ct_failed = 0;
    assert_int_equal(pthread_create(&thread, NULL, runs_beside, NULL), 0);
    while (!__atomic_load_n(&has_begun, __ATOMIC_SEQ_CST)) {
        usleep(1000);
    }
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        int is_new = pthread_mutex_init(&inherited, NULL) == 0;
        _exit(!is_new || aco_run(NULL, locks_it, NULL, NULL) != 0 || ct_failed != 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    __atomic_store_n(&may_end, 1, __ATOMIC_SEQ_CST);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(status, 0);
    assert_int_equal(ct_failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mutex_held_over_a_wait_stops_no_other_task),
        cmocka_unit_test(a_special_mutex_stops_no_other_task), /* while there is one thread */
        cmocka_unit_test(a_recursive_mutex_keeps_other_tasks_out),
        cmocka_unit_test(an_error_checking_mutex_knows_its_task),
        cmocka_unit_test(a_task_is_not_its_thread),
        cmocka_unit_test(limits_end_timed_waits_alone),
        cmocka_unit_test(who_gives_up_calls_the_next),
        cmocka_unit_test(tasks_and_threads_share_a_mutex),
        cmocka_unit_test(a_task_and_a_thread_count_together),
        cmocka_unit_test(a_thread_that_waits_for_a_condition_lets_tasks_in),
        cmocka_unit_test(the_death_of_an_owner_is_told),
        cmocka_unit_test(another_process_repairs_a_mutex),
        cmocka_unit_test(readers_and_writers_are_tasks),
        cmocka_unit_test(semaphores_keep_tasks_waiting),
        cmocka_unit_test(threads_post_for_tasks),
        cmocka_unit_test(a_post_behind_a_lock_is_not_lost),
        cmocka_unit_test(children_wait_behind_no_task_of_the_parent),
        cmocka_unit_test(locks_that_share_a_queue_have_waiters_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
