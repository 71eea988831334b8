// SPDX-License-Identifier: Apache-2.0
/* What tasks of one thread and of several do with mutexes and similar, and threads that run none.
 */
#include "tasks.h"

#include <pthread.h>

#define CT 50
#define ROUNDS 200

/* ==== Mutexes ================================================================================ */

static aco_mutex_t mutex;
static long ct_inside, ct_rounds;

static void *locks_and_waits(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(aco_mutex_lock(&mutex) == 0);
        CHECK(++ct_inside == 1);
        if (i % 3 == 0 && aco_self() != NULL) {
            aco_yield();
        }
        ct_rounds++;
        ct_inside--;
        CHECK(aco_mutex_unlock(&mutex) == 0);
    }
    return arg;
}

static void *spawns_anywhere(void *fn)
{
    aco_group_t *group = aco_group_new();
    aco_task_options_t options = {.thread = ACO_ANY, .group = group};
    for (uintptr_t i = 0; i < CT; i++) {
        options.shares_stack = i % 5 == 0;
        CHECK(aco_go_with(&options, *(void *(**)(void *))fn, (void *)i, NULL) == 0);
    }
    CHECK(aco_group_join(group) == 0);
    return NULL;
}

static void a_mutex_lets_one_in(void **state)
{
    (void)state;
    void *(*fn)(void *) = locks_and_waits;
    for (int ct_threads = 1; ct_threads <= 3; ct_threads++) {
        ct_rounds = 0;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, locks_and_waits, NULL), 0);
        run_tasks_on(ct_threads, spawns_anywhere, &fn);
        pthread_join(thread, NULL);
        assert_int_equal(ct_rounds, (CT + 1) * ROUNDS);
    }
    assert_null(mutex.owner);
}

static char order[8];
static int has_given_up;

static void *appends_in_turn(void *letter)
{
    CHECK(aco_mutex_lock(&mutex) == 0);
    strcat(order, (const char *)letter);
    return aco_mutex_unlock(&mutex) == 0 ? letter : NULL;
}

static void *is_kept_waiting(void *arg)
{
    aco_within(2 * MS)
    {
        CHECK_FAILS(aco_mutex_lock(&mutex), ETIMEDOUT);
    }
    has_given_up = 1;
    CHECK_FAILS(aco_mutex_lock(&mutex), ECANCELED);
    return arg;
}

static void *hands_over(void *arg)
{
    order[0] = '\0';
    has_given_up = 0;
    CHECK(aco_mutex_lock(&mutex) == 0);
    CHECK_FAILS(aco_mutex_lock(&mutex), EDEADLK);
    aco_task_t *a = aco_spawn(appends_in_turn, "a"), *late = aco_spawn(is_kept_waiting, NULL);
    aco_task_t *b = aco_spawn(appends_in_turn, "b");
    CHECK_FAILS(aco_mutex_try_lock(&mutex), EBUSY);
    while (!has_given_up) {
        aco_sleep(MS);
    }
    aco_task_cancel(late);
    CHECK(aco_join(late, NULL) == 0);
    CHECK(aco_mutex_unlock(&mutex) == 0);
    CHECK_FAILS(aco_mutex_try_lock(&mutex), EBUSY); /* nobody overtakes */
    CHECK(aco_join(a, NULL) == 0);
    CHECK(aco_join(b, NULL) == 0);
    CHECK(strcmp(order, "ab") == 0);
    CHECK(aco_mutex_try_lock(&mutex) == 0);
    CHECK(aco_mutex_unlock(&mutex) == 0);
    return arg;
}

static void a_mutex_goes_to_the_first_who_waits(void **state)
{
    (void)state;
    run_tasks(hands_over, NULL);
}

/* ==== Readers and writers ==================================================================== */

static aco_rwlock_t rwlock;
static int ct_readers, ct_writers, most_readers;

static void *reads_and_writes(void *arg)
{
    for (uintptr_t i = 0; i < ROUNDS; i++) {
        if ((i + (uintptr_t)arg) % 4 == 0) {
            CHECK(aco_rwlock_write_lock(&rwlock) == 0);
            CHECK(++ct_writers == 1 && __atomic_load_n(&ct_readers, __ATOMIC_RELAXED) == 0);
            aco_yield();
            ct_writers--;
        } else {
            CHECK(aco_rwlock_read_lock(&rwlock) == 0);
            int ct = __atomic_add_fetch(&ct_readers, 1, __ATOMIC_RELAXED);
            CHECK(ct_writers == 0);
            if (ct > __atomic_load_n(&most_readers, __ATOMIC_RELAXED)) {
                __atomic_store_n(&most_readers, ct, __ATOMIC_RELAXED);
            }
            aco_yield();
            __atomic_sub_fetch(&ct_readers, 1, __ATOMIC_RELAXED);
        }
        CHECK(aco_rwlock_unlock(&rwlock) == 0);
    }
    return NULL;
}

static void *writes_too_late(void *arg)
{
    aco_within(2 * MS)
    {
        CHECK_FAILS(aco_rwlock_write_lock(&rwlock), ETIMEDOUT);
    }
    return arg;
}

static void *reads_once(void *arg)
{
    CHECK(aco_rwlock_read_lock(&rwlock) == 0);
    CHECK(aco_rwlock_unlock(&rwlock) == 0);
    return arg;
}

/* A writer that gives up lets those in that waited behind it. */
static void *reads_while_a_writer_gives_up(void *arg)
{
    CHECK(aco_rwlock_read_lock(&rwlock) == 0);
    aco_task_t *writer = aco_spawn(writes_too_late, NULL);
    aco_yield();
    aco_task_t *reader = aco_spawn(reads_once, NULL);
    aco_within(1000 * MS)
    {
        CHECK(aco_join(reader, NULL) == 0);
    }
    CHECK(aco_join(writer, NULL) == 0);
    CHECK(aco_rwlock_unlock(&rwlock) == 0);
    return arg;
}

static void *tries(void *arg)
{
    CHECK(aco_rwlock_try_read_lock(&rwlock) == 0);
    CHECK(aco_rwlock_try_read_lock(&rwlock) == 0);
    CHECK_FAILS(aco_rwlock_try_write_lock(&rwlock), EBUSY);
    CHECK(aco_rwlock_unlock(&rwlock) == 0);
    CHECK(aco_rwlock_unlock(&rwlock) == 0);
    CHECK(aco_rwlock_try_write_lock(&rwlock) == 0);
    CHECK_FAILS(aco_rwlock_try_read_lock(&rwlock), EBUSY);
    CHECK_FAILS(aco_rwlock_try_write_lock(&rwlock), EBUSY);
    CHECK(aco_rwlock_unlock(&rwlock) == 0);
    return arg;
}

static void an_rwlock_lets_readers_share(void **state)
{
    (void)state;
    void *(*fn)(void *) = reads_and_writes;
    run_tasks(spawns_anywhere, &fn);
    run_tasks_on(3, spawns_anywhere, &fn);
    assert_true(most_readers > 1);
    run_tasks(reads_while_a_writer_gives_up, NULL);
    run_tasks(tries, NULL);
}

/* ==== Conditions ============================================================================= */

static aco_cond_t cond;
static int ct_tokens, ct_taken;

static void *takes_tokens(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(aco_mutex_lock(&mutex) == 0);
        while (ct_tokens == 0) {
            CHECK(aco_cond_wait(&cond, &mutex) == 0);
        }
        ct_tokens--;
        ct_taken++;
        CHECK(aco_mutex_unlock(&mutex) == 0);
    }
    return arg;
}

static void *gives_tokens(void *arg)
{
    for (int i = 0; i < CT * ROUNDS; i++) {
        CHECK(aco_mutex_lock(&mutex) == 0);
        ct_tokens++;
        CHECK((i % 2 == 0 ? aco_cond_signal : aco_cond_broadcast)(&cond) == 0);
        CHECK(aco_mutex_unlock(&mutex) == 0);
        if (i % 7 == 0) {
            aco_yield();
        }
    }
    return arg;
}

static void *passes_tokens(void *arg)
{
    void *(*fn)(void *) = takes_tokens;
    CHECK(aco_go(gives_tokens, NULL) == 0);
    spawns_anywhere(&fn);
    CHECK(ct_tokens == 0 && ct_taken == CT * ROUNDS);
    CHECK(aco_mutex_lock(&mutex) == 0);
    aco_within(MS)
    {
        CHECK_FAILS(aco_cond_wait(&cond, &mutex), ETIMEDOUT);
    }
    CHECK(mutex.owner == aco_self()); /* locked again all the same */
    CHECK(aco_mutex_unlock(&mutex) == 0);
    return arg;
}

static void a_condition_wakes_who_waits(void **state)
{
    (void)state;
    for (int ct_threads = 1; ct_threads <= 3; ct_threads++) {
        ct_taken = 0;
        run_tasks_on(ct_threads, passes_tokens, NULL);
    }
}

/* ==== Semaphores, wait groups, once ========================================================== */

static aco_semaphore_t semaphore;
static aco_wait_group_t wait_group;
static aco_once_t once;
static int ct_at_once, most_at_once, ct_once;

static void happens_once(void)
{
    aco_sleep(MS);
    ct_once++;
}

static void *enters_in_threes(void *arg)
{
    CHECK(aco_once(&once, happens_once) == 0);
    CHECK(__atomic_load_n(&ct_once, __ATOMIC_RELAXED) == 1);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(aco_semaphore_acquire(&semaphore) == 0);
        int ct = __atomic_add_fetch(&ct_at_once, 1, __ATOMIC_RELAXED);
        CHECK(ct <= 3);
        if (ct > __atomic_load_n(&most_at_once, __ATOMIC_RELAXED)) {
            __atomic_store_n(&most_at_once, ct, __ATOMIC_RELAXED);
        }
        aco_yield();
        __atomic_sub_fetch(&ct_at_once, 1, __ATOMIC_RELAXED);
        CHECK(aco_semaphore_release(&semaphore) == 0);
    }
    CHECK(aco_wait_group_done(&wait_group) == 0);
    return arg;
}

static void *waits_for_all(void *arg)
{
    static void *(*fn)(void *) = enters_in_threes;
    CHECK(aco_semaphore_init(&semaphore, 3) == 0);
    CHECK(aco_wait_group_wait(&wait_group) == 0); /* for none */
    CHECK(aco_wait_group_add(&wait_group, CT) == 0);
    aco_task_options_t options = {.thread = ACO_ANY};
    CHECK(aco_go_with(&options, spawns_anywhere, &fn, NULL) == 0);
    CHECK(aco_wait_group_wait(&wait_group) == 0);
    CHECK(ct_at_once == 0 && most_at_once == 3 && semaphore.ct == 3);
    CHECK(aco_semaphore_init(&semaphore, SIZE_MAX) == 0);
    CHECK_FAILS(aco_semaphore_release(&semaphore), EOVERFLOW);
    CHECK(aco_semaphore_init(&semaphore, 1) == 0);
    CHECK(aco_semaphore_try_acquire(&semaphore) == 0);
    CHECK_FAILS(aco_semaphore_try_acquire(&semaphore), EAGAIN);
    aco_within(MS)
    {
        CHECK_FAILS(aco_semaphore_acquire(&semaphore), ETIMEDOUT);
    }
    CHECK(aco_semaphore_release(&semaphore) == 0);
    CHECK(aco_semaphore_acquire(&semaphore) == 0);
    return arg;
}

static void counts_are_kept(void **state)
{
    (void)state;
    for (int ct_threads = 1; ct_threads <= 3; ct_threads++) {
        once = (aco_once_t){0};
        ct_once = most_at_once = 0;
        run_tasks_on(ct_threads, waits_for_all, NULL);
        assert_int_equal(ct_once, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mutex_lets_one_in),
        cmocka_unit_test(a_mutex_goes_to_the_first_who_waits),
        cmocka_unit_test(an_rwlock_lets_readers_share),
        cmocka_unit_test(a_condition_wakes_who_waits),
        cmocka_unit_test(counts_are_kept),
    };
    return cmocka_run_group_tests_name("sync", tests, NULL, NULL);
}
