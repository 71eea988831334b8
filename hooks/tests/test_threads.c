// SPDX-License-Identifier: Apache-2.0
/* Conditions, joins of threads and pthread_once() in tasks, and in a child. */
#include "threads.h"

#include "aco_hooks.h"

#include <semaphore.h>
#include <sys/wait.h>
#include <threads.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int ct_awake, may_go;

/* ==== Conditions ============================================================================= */

static void *waits(void *arg)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(pthread_cond_wait(&cond, &mutex) == 0);
    ct_awake++;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return arg;
}

static void *signals(void *arg)
{
    enum { CT = 5 };
    aco_task_t *tasks[CT];
    ct_awake = 0;
    for (int i = 0; i < CT; i++) {
        tasks[i] = aco_spawn(waits, NULL);
    }
    let_run();
    CHECK(pthread_cond_signal(&cond) == 0);
    let_run();
    CHECK(ct_awake == 1);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(pthread_cond_signal(&cond) == 0);
    let_run();
    CHECK(ct_awake == 1); /* the mutex is taken */
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(aco_join(tasks[0], NULL) == 0);
    CHECK(aco_join(tasks[1], NULL) == 0); /* the first to wait */
    CHECK(ct_awake == 2);
    CHECK(pthread_cond_broadcast(&cond) == 0);
    for (int i = 2; i < CT; i++) {
        CHECK(aco_join(tasks[i], NULL) == 0);
    }
    CHECK(ct_awake == CT);
    return arg;
}

static void signals_wake_one_and_broadcasts_all(void **state)
{
    (void)state;
    run_tasks(signals, NULL);
}

static void check_has_mutex(void)
{
    CHECK(pthread_mutex_trylock(&mutex) == EBUSY);
}

static void *waits_until(void *arg)
{
    pthread_cond_t by_monotonic;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    CHECK(pthread_cond_init(&by_monotonic, &attr) == 0);
    pthread_condattr_destroy(&attr);
    struct timespec t = in(CLOCK_REALTIME, 3 * MS), past = {0, 0}, invalid = {0, 1000000000};
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(pthread_cond_timedwait(&cond, &mutex, &t) == ETIMEDOUT);
    CHECK(has_come(CLOCK_REALTIME, &t));
    t = in(CLOCK_MONOTONIC, 3 * MS);
    CHECK(pthread_cond_timedwait(&by_monotonic, &mutex, &t) == ETIMEDOUT);
    CHECK(has_come(CLOCK_MONOTONIC, &t));
    t = in(CLOCK_MONOTONIC, 3 * MS);
    CHECK(pthread_cond_clockwait(&cond, &mutex, CLOCK_MONOTONIC, &t) == ETIMEDOUT);
    CHECK(has_come(CLOCK_MONOTONIC, &t));
    CHECK(pthread_cond_timedwait(&cond, &mutex, &past) == ETIMEDOUT);
    CHECK(pthread_cond_timedwait(&cond, &mutex, &invalid) == EINVAL);
    check_has_mutex();
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(pthread_cond_destroy(&by_monotonic) == 0);
    return arg;
}

static void timed_waits_end_by_their_clocks(void **state)
{
    (void)state;
    run_tasks(waits_until, NULL);
}

static void *fails_by_deadline(void *arg)
{
    pthread_mutex_t checked = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    CHECK(pthread_cond_wait(&cond, &checked) == EPERM);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    aco_within(MS)
    {
        CHECK(pthread_cond_wait(&cond, &mutex) == ETIMEDOUT);
    }
    check_has_mutex();
    struct timespec t = in(CLOCK_REALTIME, 1000000 * MS);
    stage = 1;
    CHECK(pthread_cond_timedwait(&cond, &mutex, &t) == ECANCELED);
    check_has_mutex();
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return arg;
}

static void *cancels(void *arg)
{
    stage = 0;
    aco_task_t *task = aco_spawn(fails_by_deadline, NULL);
    wait_for_stage(1);
    aco_task_cancel(task);
    CHECK(aco_join(task, NULL) == 0);
    return arg;
}

/* Ignores failures, as programs do that never expect one. */
static void *ignores_failures(void *arg)
{
    int ct = 0;
    aco_within(0)
    {
        CHECK(pthread_mutex_lock(&mutex) == 0);
        for (; !may_go; ct++) {
            pthread_cond_wait(&cond, &mutex);
        }
        CHECK(pthread_mutex_unlock(&mutex) == 0);
    }
    CHECK(ct > 0);
    return arg;
}

static void *lets_go(void *arg)
{
    may_go = 0;
    aco_task_t *task = aco_spawn(ignores_failures, NULL);
    aco_sleep(3 * MS);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    may_go = 1;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(aco_join(task, NULL) == 0);
    return arg;
}

static void deadlines_and_cancelling_end_waits(void **state)
{
    (void)state;
    run_tasks(cancels, NULL);
    run_tasks(lets_go, NULL);
}

static void *waits_for_go(void *arg)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    ct_awake++;
    while (!may_go) {
        CHECK(pthread_cond_wait(&cond, &mutex) == 0);
    }
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return arg;
}

static void *waits_and_goes_on(void *arg)
{
    pthread_t other;
    ct_awake = may_go = 0;
    CHECK(pthread_create(&other, NULL, waits_for_go, NULL) == 0);
    aco_task_t *tasks[] = {aco_spawn(waits_for_go, NULL), aco_spawn(waits_for_go, NULL)};
    for (int ct = 0; ct < 3;) {
        aco_yield();
        CHECK(pthread_mutex_lock(&mutex) == 0);
        ct = ct_awake;
        CHECK(pthread_mutex_unlock(&mutex) == 0);
    }
    CHECK(pthread_mutex_lock(&mutex) == 0);
    may_go = 1;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(pthread_cond_broadcast(&cond) == 0);
    CHECK(aco_join(tasks[0], NULL) == 0);
    CHECK(aco_join(tasks[1], NULL) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    return arg;
}

static void broadcasts_wake_tasks_and_threads(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        run_tasks(waits_and_goes_on, NULL);
    }
}

/* ==== Joining ================================================================================ */

static void *waits_as_thread(void *arg)
{
    while (!__atomic_load_n(&may_go, __ATOMIC_SEQ_CST)) {
        usleep(200);
    }
    return arg;
}

static pthread_t thread;

static void *joins_too_early(void *arg)
{
    void *result = NULL;
    CHECK(pthread_join(thread, &result) == ECANCELED);
    CHECK(result == NULL);
    return arg;
}

static void *joins(void *arg)
{
    void *result = NULL;
    struct timespec t = in(CLOCK_REALTIME, 2 * MS);
    may_go = 0;
    CHECK(pthread_create(&thread, NULL, waits_as_thread, &may_go) == 0);
    CHECK(pthread_join(pthread_self(), NULL) == EDEADLK);
    aco_within(2 * MS)
    {
        CHECK(pthread_join(thread, &result) == ETIMEDOUT);
    }
    CHECK(pthread_timedjoin_np(thread, &result, &t) == ETIMEDOUT);
    CHECK(pthread_clockjoin_np(thread, &result, CLOCK_REALTIME, &t) == ETIMEDOUT);
    aco_task_t *late = aco_spawn(joins_too_early, NULL);
    let_run();
    aco_task_cancel(late);
    CHECK(aco_join(late, NULL) == 0);
    CHECK(pthread_tryjoin_np(thread, &result) == EBUSY);
    __atomic_store_n(&may_go, 1, __ATOMIC_SEQ_CST);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == &may_go);
    return arg;
}

static void *lets_a_thread_go(void *arg)
{
    let_run();
    __atomic_store_n(&may_go, 1, __ATOMIC_SEQ_CST);
    return arg;
}

static void *joins_while_others_run(void *arg)
{
    may_go = 0;
    CHECK(pthread_create(&thread, NULL, waits_as_thread, NULL) == 0);
    aco_go(lets_a_thread_go, NULL);
    CHECK(pthread_join(thread, NULL) == 0);
    return arg;
}

static sem_t may_end;

static void *waits_for_its_end(void *arg)
{
    CHECK(sem_wait(&may_end) == 0);
    return arg;
}

/* libc finds that it can't be joined when it is asked to wait. */
static void *joins_in_vain(void *arg)
{
    void *result = NULL;
    CHECK(sem_init(&may_end, 0, 0) == 0);
    CHECK(pthread_create(&thread, NULL, waits_for_its_end, &may_end) == 0);
    CHECK(pthread_detach(thread) == 0);
    CHECK(pthread_join(thread, &result) == EINVAL && result == NULL);
    CHECK(sem_post(&may_end) == 0);
    return arg;
}

static void threads_are_joined_by_tasks(void **state)
{
    (void)state;
    run_tasks(joins_while_others_run, NULL);
#ifndef __SANITIZE_THREAD__ /* TSan does not know that a join may be cancelled, or fail */
    run_tasks(joins, NULL);
    run_tasks(joins_in_vain, NULL);
#else
    (void)joins, (void)joins_in_vain;
#endif
}

/* ==== Timed calls ============================================================================ */

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t held_rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t empty;
static volatile int ct_turns;

static void *holds(void *arg)
{
    CHECK(pthread_mutex_lock(&held) == 0 && pthread_rwlock_wrlock(&held_rwlock) == 0);
    CHECK(sem_post(&empty) == 0);
    waits_as_thread(NULL);
    CHECK(pthread_mutex_unlock(&held) == 0 && pthread_rwlock_unlock(&held_rwlock) == 0);
    return arg;
}

static void *takes_turns(void *arg)
{
    while (!__atomic_load_n(&may_go, __ATOMIC_SEQ_CST)) {
        ct_turns++;
        aco_yield();
    }
    return arg;
}

enum { TIMED_JOIN = 4, CT_TIMED_CALLS = 6 };

/* The error of a call whose limit is a time of the clock, or of CLOCK_REALTIME without one. */
static int call_until(int number, const clockid_t *clock, const struct timespec *t)
{
    switch (number) {
    case 0:
        return clock == NULL ? pthread_mutex_timedlock(&held, t)
                             : pthread_mutex_clocklock(&held, *clock, t);
    case 1:
        return clock == NULL ? pthread_rwlock_timedrdlock(&held_rwlock, t)
                             : pthread_rwlock_clockrdlock(&held_rwlock, *clock, t);
    case 2:
        return clock == NULL ? pthread_rwlock_timedwrlock(&held_rwlock, t)
                             : pthread_rwlock_clockwrlock(&held_rwlock, *clock, t);
    case 3:
        return clock == NULL ? pthread_cond_timedwait(&cond, &mutex, t)
                             : pthread_cond_clockwait(&cond, &mutex, *clock, t);
    case TIMED_JOIN:
        return clock == NULL ? pthread_timedjoin_np(thread, NULL, t)
                             : pthread_clockjoin_np(thread, NULL, *clock, t);
    default:
        return (clock == NULL ? sem_timedwait(&empty, t) : sem_clockwait(&empty, *clock, t)) == 0
                   ? 0
                   : errno;
    }
}

/* Other tasks run while it waits. The limit has passed before it waits if it is too short. */
static void make_timed_call(int number, const clockid_t *clock)
{
    clockid_t c = clock == NULL ? CLOCK_REALTIME : *clock;
    int before = ct_turns;
#ifdef __SANITIZE_THREAD__ /* it does not know that a join may be cancelled */
    if (number == TIMED_JOIN) {
        return;
    }
#endif
    for (int64_t ns = MS; ns < 500 * MS && ct_turns == before; ns *= 2) {
        struct timespec t = in(c, ns);
        int error = call_until(number, clock, &t);
        CHECK(error == ETIMEDOUT && has_come(c, &t));
    }
    CHECK(ct_turns != before);
}

static void *makes_timed_calls(void *arg)
{
    clockid_t wrong = CLOCK_PROCESS_CPUTIME_ID; /* no clock for waits */
    struct timespec later = in(CLOCK_REALTIME, 10000 * MS);
    static const clockid_t real = CLOCK_REALTIME, monotonic = CLOCK_MONOTONIC;
    may_go = 0;
    CHECK(sem_init(&empty, 0, 0) == 0 && pthread_create(&thread, NULL, holds, NULL) == 0);
    CHECK(sem_wait(&empty) == 0);
    aco_task_t *other = aco_spawn(takes_turns, NULL);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    for (int i = 0; i < CT_TIMED_CALLS; i++) {
        make_timed_call(i, NULL);
        make_timed_call(i, &real);
        make_timed_call(i, &monotonic);
        CHECK(call_until(i, &wrong, &later) == EINVAL);
    }
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    __atomic_store_n(&may_go, 1, __ATOMIC_SEQ_CST);
    CHECK(pthread_join(thread, NULL) == 0 && aco_join(other, NULL) == 0);
    return arg;
}

static void timed_calls_let_other_tasks_run(void **state)
{
    (void)state;
    run_tasks(makes_timed_calls, NULL);
}

/* ==== Once =================================================================================== */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int ct_called;

static void is_called_once(void)
{
    ct_called++;
    aco_sleep(MS);
    ct_called++;
}

static void *calls_once(void *arg)
{
    CHECK(pthread_once(&once, is_called_once) == 0);
    CHECK(__atomic_load_n(&ct_called, __ATOMIC_RELAXED) == 2);
    return arg;
}

static void a_function_that_waits_is_called_once(void **state)
{
    (void)state;
    void *(*fn)(void *) = calls_once;
    run_tasks_on(2, spawns_anywhere, &fn);
}

/* ==== Children =============================================================================== */

static int works_in_child(void)
{
    CHECK(pthread_mutex_unlock(&mutex) == 0); /* locked by the task before */
    CHECK(pthread_mutex_lock(&mutex) == 0);
    may_go = 1;
    CHECK(pthread_create(&thread, NULL, waits_for_go, NULL) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(pthread_cond_signal(&cond) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    return ct_failed;
}

static void *forks(void *arg)
{
    aco_task_t *waiting = aco_spawn(waits, NULL);
    let_run();
    CHECK(pthread_mutex_lock(&mutex) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(works_in_child());
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(status == 0);
    CHECK(pthread_cond_signal(&cond) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(aco_join(waiting, NULL) == 0);
    return arg;
}

static void a_child_has_no_hooks(void **state)
{
    (void)state;
    run_tasks(forks, NULL);
}

static void all_hooks_are_reached(void **state)
{
    (void)state;
    assert_true(aco_hooks_active());
}

/* ==== Keys of static libraries =============================================================== */

static pthread_key_t plain_key, static_key, static_tss;

/* libcrypto makes its keys in a function of this name. */
static __attribute__((noinline)) int CRYPTO_THREAD_init_local(pthread_key_t *key)
{
    int error = pthread_key_create(key, NULL);
    __asm__ volatile(""); /* no tail call */
    return error;
}

static __attribute__((noinline)) int CRYPTO_THREAD_init_tss(tss_t *key)
{
    int error = tss_create(key, NULL);
    __asm__ volatile("");
    return error;
}

static void *sets_values(void *arg)
{
    CHECK(pthread_getspecific(static_key) == NULL);
    CHECK(pthread_setspecific(static_key, arg) == 0 && pthread_setspecific(plain_key, arg) == 0);
    CHECK(tss_set(static_tss, arg) == thrd_success);
    let_run();
    CHECK(pthread_getspecific(static_key) == arg && tss_get(static_tss) == arg);
    return arg;
}

static void *has_two_values(void *arg)
{
    aco_task_t *a = aco_spawn(sets_values, &plain_key), *b = aco_spawn(sets_values, &static_key);
    CHECK(aco_join(a, NULL) == 0 && aco_join(b, NULL) == 0);
    CHECK(tss_set(static_tss, arg) == thrd_success && tss_get(static_tss) == arg);
    tss_t before = static_tss;
    tss_delete(static_tss); /* the next key has its number, and no value */
    CHECK(CRYPTO_THREAD_init_tss(&static_tss) == thrd_success && static_tss == before);
    CHECK(tss_get(static_tss) == NULL);
    CHECK(pthread_getspecific(plain_key) == &static_key); /* the thread's */
    CHECK(pthread_getspecific(static_key) == NULL);
    return arg;
}

static void static_libraries_are_known_by_their_symbols(void **state)
{
    (void)state;
    assert_int_equal(pthread_key_create(&plain_key, NULL), 0);
    assert_int_equal(CRYPTO_THREAD_init_local(&static_key), 0);
    assert_int_equal(CRYPTO_THREAD_init_tss(&static_tss), thrd_success);
    run_tasks(has_two_values, &static_tss);
    assert_int_equal(pthread_key_delete(plain_key) + pthread_key_delete(static_key), 0);
    tss_delete(static_tss);
}

static void keys_of_c11_end_with_an_error(void **state)
{
    static tss_t keys[PTHREAD_KEYS_MAX];
    int ct = 0, result = thrd_success;
    (void)state;
    while (ct < PTHREAD_KEYS_MAX && (result = tss_create(&keys[ct], NULL)) == thrd_success) {
        ct++;
    }
    assert_int_equal(result, thrd_error);
    while (ct > 0) {
        tss_delete(keys[--ct]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_wake_one_and_broadcasts_all),
        cmocka_unit_test(timed_waits_end_by_their_clocks),
        cmocka_unit_test(deadlines_and_cancelling_end_waits),
        cmocka_unit_test(broadcasts_wake_tasks_and_threads),
        cmocka_unit_test(threads_are_joined_by_tasks),
        cmocka_unit_test(timed_calls_let_other_tasks_run),
        cmocka_unit_test(a_function_that_waits_is_called_once),
        cmocka_unit_test(a_child_has_no_hooks),
        cmocka_unit_test(all_hooks_are_reached),
        cmocka_unit_test(static_libraries_are_known_by_their_symbols),
        cmocka_unit_test(keys_of_c11_end_with_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
