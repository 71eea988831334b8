// SPDX-License-Identifier: Apache-2.0
/* Threads of C11 in tasks, and barriers: only the task waits. */
#include "threads.h"

#include <threads.h>

static mtx_t mutex;
static cnd_t cond;
static int ct_calls, is_set;

/* ==== Mutexes ================================================================================ */

static void *holds_over_a_wait(void *arg)
{
    CHECK(mtx_lock(&mutex) == thrd_success);
    stage = 1;
    CHECK(thrd_sleep(&(struct timespec){0, MS}, NULL) == 0);
    wait_for_stage(2);
    CHECK(mtx_unlock(&mutex) == thrd_success);
    return arg;
}

static void *takes_turns(void *arg)
{
    struct timespec past = {0, 0};
    aco_task_t *holder = aco_spawn(holds_over_a_wait, NULL);
    wait_for_stage(1);
    CHECK(mtx_trylock(&mutex) == thrd_busy);
    CHECK(mtx_timedlock(&mutex, &past) == thrd_timedout);
    stage = 2;
    CHECK(mtx_lock(&mutex) == thrd_success);
    CHECK(mtx_unlock(&mutex) == thrd_success);
    CHECK(aco_join(holder, NULL) == 0);
    return arg;
}

static void mutexes_are_the_tasks(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        stage = 0;
        assert_int_equal(mtx_init(&mutex, mtx_timed | (i == 0 ? 0 : mtx_recursive)), thrd_success);
        run_tasks(takes_turns, NULL);
        mtx_destroy(&mutex);
    }
}

/* ==== Conditions ============================================================================= */

static void *waits(void *arg)
{
    CHECK(mtx_lock(&mutex) == thrd_success);
    while (!is_set) {
        CHECK(cnd_wait(&cond, &mutex) == thrd_success);
    }
    ct_calls++;
    CHECK(mtx_unlock(&mutex) == thrd_success);
    return arg;
}

static void *signals(void *arg)
{
    struct timespec past = {0, 0};
    aco_task_t *tasks[] = {aco_spawn(waits, NULL), aco_spawn(waits, NULL), aco_spawn(waits, NULL)};
    let_run();
    CHECK(mtx_lock(&mutex) == thrd_success);
    CHECK(cnd_timedwait(&cond, &mutex, &past) == thrd_timedout);
    is_set = 1;
    CHECK(cnd_signal(&cond) == thrd_success && cnd_broadcast(&cond) == thrd_success);
    CHECK(mtx_unlock(&mutex) == thrd_success);
    for (size_t i = 0; i < ARRAY_SZ(tasks); i++) {
        CHECK(aco_join(tasks[i], NULL) == 0);
    }
    return arg;
}

static void conditions_wake_tasks(void **state)
{
    (void)state;
    ct_calls = 0;
    assert_int_equal(mtx_init(&mutex, mtx_plain), thrd_success);
    assert_int_equal(cnd_init(&cond), thrd_success);
    run_tasks(signals, NULL);
    assert_int_equal(ct_calls, 3);
    cnd_destroy(&cond);
    mtx_destroy(&mutex);
}

/* ==== Threads ================================================================================ */

#ifndef __SANITIZE_THREAD__ /* TSan does not know thrd_create() */

static int waits_for_a_task(void *arg)
{
    (void)arg;
    while (__atomic_load_n(&is_set, __ATOMIC_ACQUIRE) == 0) {
        thrd_yield();
    }
    return 42;
}

static void *lets_the_thread_end(void *arg)
{
    __atomic_store_n(&is_set, 1, __ATOMIC_RELEASE);
    return arg;
}

static once_flag flag = ONCE_FLAG_INIT;

static void call_me_once(void)
{
    ct_calls++;
    aco_sleep(MS);
}

static void *calls_once(void *arg)
{
    call_once(&flag, call_me_once);
    CHECK(ct_calls == 1);
    return arg;
}

static void *joins(void *arg)
{
    thrd_t thread;
    int result = 0;
    is_set = ct_calls = 0;
    CHECK(thrd_create(&thread, waits_for_a_task, NULL) == thrd_success);
    CHECK(aco_go(lets_the_thread_end, NULL) == 0);
    int unset = 7;
    CHECK(thrd_join(thrd_current(), &unset) == thrd_error && unset == 7);
    CHECK(thrd_join(thread, &result) == thrd_success && result == 42);
    CHECK(aco_go(calls_once, NULL) == 0);
    calls_once(NULL);
    return arg;
}

static void threads_are_joined_by_tasks(void **state)
{
    (void)state;
    run_tasks(joins, NULL);
}

#endif

/* ==== Barriers =============================================================================== */

enum { CT_AT_BARRIER = 4, ROUNDS = 3 };

static pthread_barrier_t barrier;
static int ct_serial;

static void *comes_to_barrier(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        int result = pthread_barrier_wait(&barrier);
        CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
        __atomic_add_fetch(&ct_serial, result != 0, __ATOMIC_RELAXED);
    }
    return arg;
}

/* Three tasks of one thread, one of them cancelled, meet another thread. */
static void *meets(void *arg)
{
    pthread_t thread;
    aco_task_t *tasks[CT_AT_BARRIER - 1];
    CHECK(pthread_barrier_init(&barrier, NULL, CT_AT_BARRIER) == 0);
    for (size_t i = 0; i < ARRAY_SZ(tasks); i++) {
        tasks[i] = aco_spawn(comes_to_barrier, NULL);
    }
    let_run();
    aco_task_cancel(tasks[0]);
    CHECK(pthread_create(&thread, NULL, comes_to_barrier, NULL) == 0);
    for (size_t i = 0; i < ARRAY_SZ(tasks); i++) {
        CHECK(aco_join(tasks[i], NULL) == 0);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(ct_serial == ROUNDS && pthread_barrier_destroy(&barrier) == 0);
    return arg;
}

static void tasks_meet_at_barriers(void **state)
{
    (void)state;
    run_tasks(meets, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutexes_are_the_tasks),
        cmocka_unit_test(conditions_wake_tasks),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(threads_are_joined_by_tasks),
#endif
        cmocka_unit_test(tasks_meet_at_barriers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
