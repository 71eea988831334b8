// SPDX-License-Identifier: Apache-2.0
/* Mutexes and similar, used by tasks of one thread and of several, and by threads that run none.
 *  */
// build: -Wl,--wrap=clock_gettime
#include "aco_bindings.h"
#include "tasks.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

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
    assert_true(mutex.owner == 0);
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

/* An unlocked mutex is free for any task that runs; tasks that wait keep their order. */
static void *unlocks_for_two(void *arg)
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
    CHECK(aco_mutex_try_lock(&mutex) == 0);
    aco_yield(); /* a was woken, and has lost */
    CHECK(strcmp(order, "") == 0);
    CHECK(aco_mutex_unlock(&mutex) == 0);
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
    run_tasks(unlocks_for_two, NULL);
}

static void *waits_in_vain(void *arg)
{
    CHECK_FAILS(aco_mutex_lock(&mutex), ECANCELED);
    return arg;
}

/* A task that was woken, lost and gives up does not keep the next one from being woken. */
static void *gives_up_after_a_loss(void *arg)
{
    order[0] = '\0';
    CHECK(aco_mutex_lock(&mutex) == 0);
    aco_task_t *first = aco_spawn(waits_in_vain, NULL), *second = aco_spawn(appends_in_turn, "b");
    aco_yield();
    CHECK(aco_mutex_unlock(&mutex) == 0);
    CHECK(aco_mutex_lock(&mutex) == 0);
    aco_task_cancel(first); /* it was about to try again */
    CHECK(aco_join(first, NULL) == 0);
    CHECK(aco_mutex_unlock(&mutex) == 0);
    CHECK(aco_join(second, NULL) == 0);
    CHECK(strcmp(order, "b") == 0 && mutex.owner == 0);
    return arg;
}

static void who_gives_up_lets_the_next_one_go_on(void **state)
{
    (void)state;
    run_tasks(gives_up_after_a_loss, NULL);
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

static void *writes_once(void *arg)
{
    CHECK(aco_rwlock_write_lock(&rwlock) == 0);
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

static void *reads_behind_a_writer(void *arg)
{
    CHECK(aco_rwlock_read_lock(&rwlock) == 0);
    aco_task_t *writer = aco_spawn(writes_once, NULL);
    aco_yield();
    CHECK_FAILS(aco_rwlock_try_read_lock(&rwlock), EBUSY);
    CHECK(aco_rwlock_unlock(&rwlock) == 0);
    CHECK(aco_rwlock_try_read_lock(&rwlock) == 0); /* the lock was free */
    CHECK_FAILS(aco_rwlock_try_read_lock(&rwlock), EBUSY);
    CHECK(aco_rwlock_unlock(&rwlock) == 0);
    CHECK(aco_join(writer, NULL) == 0);
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
    run_tasks(reads_behind_a_writer, NULL);
    run_tasks(tries, NULL);
}

/* ==== Fairness =============================================================================== */

typedef struct {
    int (*lock)(void *), (*unlock)(void *);
    void *it;
} side_t;

static int read_lock(void *it)
{
    return aco_rwlock_read_lock((aco_rwlock_t *)it);
}

static int write_lock(void *it)
{
    return aco_rwlock_write_lock((aco_rwlock_t *)it);
}

static int unlock_rwlock(void *it)
{
    return aco_rwlock_unlock((aco_rwlock_t *)it);
}

static int lock_mutex(void *it)
{
    return aco_mutex_lock((aco_mutex_t *)it);
}

static int unlock_mutex(void *it)
{
    return aco_mutex_unlock((aco_mutex_t *)it);
}

static const side_t owner = {lock_mutex, unlock_mutex, &mutex};
static const side_t reader = {read_lock, unlock_rwlock, &rwlock};
static const side_t writer = {write_lock, unlock_rwlock, &rwlock};
static int has_entered;

static void *enters_once(void *arg)
{
    const side_t *side = (const side_t *)arg;
    CHECK(side->lock(side->it) == 0);
    __atomic_store_n(&has_entered, 1, __ATOMIC_RELEASE);
    CHECK(side->unlock(side->it) == 0);
    return NULL;
}

/* This task has the lock whenever another one runs. */
static void *hogs(void *arg)
{
    const side_t *const *sides = (const side_t *const *)arg, *side = sides[0];
    has_entered = 0;
    CHECK(side->lock(side->it) == 0);
    aco_task_t *other = aco_spawn(enters_once, (void *)(uintptr_t)sides[1]);
    int ct_turns = 0;
    for (; !has_entered; ct_turns++) {
        aco_yield();
        CHECK(side->unlock(side->it) == 0);
        CHECK(side->lock(side->it) == 0);
    }
    CHECK(ct_turns > 1); /* the first time, it was not given away */
    CHECK(side->unlock(side->it) == 0);
    CHECK(aco_join(other, NULL) == 0);
    return NULL;
}

static void *appends_by(const side_t *side, const char *letter)
{
    CHECK(side->lock(side->it) == 0);
    strcat(order, letter);
    CHECK(side->unlock(side->it) == 0);
    return NULL;
}

static void *appends_a(void *side)
{
    return appends_by((const side_t *)side, "a");
}

static void *appends_b(void *side)
{
    return appends_by((const side_t *)side, "b");
}

static void *overtakes_twice(void *arg)
{
    const side_t *side = (const side_t *)arg;
    order[0] = '\0';
    CHECK(side->lock(side->it) == 0);
    aco_task_t *a = aco_spawn(appends_a, arg), *b = aco_spawn(appends_b, arg);
    aco_yield();
    for (int i = 0; i < 2; i++) {
        CHECK(side->unlock(side->it) == 0);
        CHECK(side->lock(side->it) == 0);
    }
    aco_yield();
    CHECK(strcmp(order, "") == 0 && side->unlock(side->it) == 0);
    CHECK(aco_join(a, NULL) == 0);
    CHECK(aco_join(b, NULL) == 0);
    CHECK(strcmp(order, "ab") == 0);
    return NULL;
}

static void who_has_lost_keeps_its_place(void **state)
{
    (void)state;
    run_tasks(overtakes_twice, (void *)(uintptr_t)&owner);
    run_tasks(overtakes_twice, (void *)(uintptr_t)&writer);
}

static void who_always_loses_is_given_the_lock(void **state)
{
    (void)state;
    const side_t *const sides[][2] = {
        {&owner, &owner}, {&writer, &writer}, {&writer, &reader}, {&reader, &writer}};
    for (size_t i = 0; i < sizeof(sides) / sizeof(sides[0]); i++) {
        run_tasks(hogs, (void *)(uintptr_t)sides[i]);
    }
}

/*
 * The same between threads, by a clock of the test's own. A tenth of the 1 ms, after which the
 * loser is given the lock, goes by each time it has lost and waits again.
 */
#define CT_LOSSES 12 /* the first one begins the 1 ms */

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
static int64_t own_time; /* ns; 0: the time is the machine's; atomic */

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    int64_t now = __atomic_load_n(&own_time, __ATOMIC_RELAXED);
    if (now == 0) {
        return __real_clock_gettime(clock, t);
    }
    *t = (struct timespec){(time_t)(now / 1000000000), (long)(now % 1000000000)};
    return 0;
}

/* Whether a task or thread waits for a lock that the caller holds. */
static int is_waited_for(aco_i_lock_t *lock, const aco_i_queue_t *waiting)
{
    while (__atomic_exchange_n(&lock->is_held, 1, __ATOMIC_ACQUIRE)) {
        sched_yield();
    }
    int has_first = waiting->first != NULL;
    __atomic_store_n(&lock->is_held, 0, __ATOMIC_RELEASE);
    return has_first;
}

static void *overtakes(void *arg)
{
    const side_t *const *sides = (const side_t *const *)arg, *side = sides[0];
    aco_task_options_t options = {.thread = ACO_THREAD(1)};
    int is_mutex = side == &owner, ct = 0;
    aco_i_lock_t *lock = is_mutex ? &mutex.lock : &rwlock.lock;
    const aco_i_queue_t *waiting = is_mutex ? &mutex.waiting : &rwlock.waiting;
    aco_task_t *other = NULL;
    has_entered = 0;
    CHECK(side->lock(side->it) == 0);
    CHECK(aco_go_with(&options, enters_once, (void *)(uintptr_t)sides[1], &other) == 0);
    for (; !__atomic_load_n(&has_entered, __ATOMIC_ACQUIRE) && ct < 10 * CT_LOSSES; ct++) {
        while (!is_waited_for(lock, waiting)) {
            sched_yield();
        }
        __atomic_add_fetch(&own_time, MS / 10, __ATOMIC_RELAXED);
        CHECK(side->unlock(side->it) == 0);
        CHECK(side->lock(side->it) == 0);
    }
    CHECK(ct <= CT_LOSSES);
    CHECK(side->unlock(side->it) == 0);
    CHECK(aco_join(other, NULL) == 0);
    return NULL;
}

static void who_waits_is_seldom_overtaken(void **state)
{
    (void)state;
    const side_t *const sides[][2] = {
        {&owner, &owner}, {&writer, &writer}, {&writer, &reader}, {&reader, &writer}};
    own_time = aco_now();
    for (size_t i = 0; i < 10 * sizeof(sides) / sizeof(sides[0]); i++) {
        run_tasks_on(2, overtakes, (void *)(uintptr_t)sides[i % 4]);
    }
    own_time = 0;
}

/* ==== Owners ================================================================================= */

/* The structs of tasks, and the thread-local memory of threads, are used again. */
static void *locks_for_good(void *arg)
{
    CHECK(aco_mutex_lock(&mutex) == 0);
    CHECK(aco_rwlock_write_lock(&rwlock) == 0);
    return arg;
}

static void *finds_them_locked(void *arg)
{
    aco_i_scope_t scope = aco_i_enter_timed(MS);
    CHECK_FAILS(aco_mutex_lock(&mutex), ETIMEDOUT);
    CHECK_FAILS(aco_rwlock_write_lock(&rwlock), ETIMEDOUT);
    CHECK_FAILS(aco_rwlock_read_lock(&rwlock), ETIMEDOUT);
    aco_i_leave(&scope);
    CHECK_FAILS(aco_mutex_try_lock(&mutex), EBUSY);
    CHECK_FAILS(aco_rwlock_try_write_lock(&rwlock), EBUSY);
    return arg;
}

static void *follows_an_owner(void *arg)
{
    aco_task_t *task = aco_spawn(locks_for_good, NULL), *next = NULL;
    CHECK(aco_join(task, NULL) == 0);
    next = aco_spawn(finds_them_locked, NULL);
    CHECK(next == task);
    CHECK(aco_join(next, NULL) == 0);
    return arg;
}

static void an_owner_that_has_ended_owns_on(void **state)
{
    (void)state;
    void *(*const fns[])(void *) = {locks_for_good, finds_them_locked};
    run_tasks(follows_an_owner, NULL);
    memset(&mutex, 0, sizeof(mutex));
    memset(&rwlock, 0, sizeof(rwlock));
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, fns[i], NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    assert_int_equal(ct_failed, 0);
    memset(&mutex, 0, sizeof(mutex));
    memset(&rwlock, 0, sizeof(rwlock));
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
    CHECK(mutex.owner == (uintptr_t)aco_task_id(aco_self())); /* locked again all the same */
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
static int ct_at_once, was_full, ct_once;

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
        if (ct == 3) {
            __atomic_store_n(&was_full, 1, __ATOMIC_RELAXED);
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
    CHECK(aco_wait_group_wait(&wait_group) == 0); /* waits for nothing */
    CHECK(aco_wait_group_add(&wait_group, CT) == 0);
    aco_task_options_t options = {.thread = ACO_ANY};
    CHECK(aco_go_with(&options, spawns_anywhere, &fn, NULL) == 0);
    CHECK(aco_wait_group_wait(&wait_group) == 0);
    CHECK(ct_at_once == 0);
    CHECK(semaphore.ct == 3);
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
        ct_once = was_full = 0;
        run_tasks_on(ct_threads, waits_for_all, NULL);
        assert_int_equal(ct_once, 1);
        assert_true(was_full || ct_threads != 1); /* a thread may stand still with its share */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mutex_lets_one_in),
        cmocka_unit_test(a_mutex_goes_to_the_first_who_waits),
        cmocka_unit_test(who_gives_up_lets_the_next_one_go_on),
        cmocka_unit_test(an_rwlock_lets_readers_share),
        cmocka_unit_test(who_has_lost_keeps_its_place),
        cmocka_unit_test(who_always_loses_is_given_the_lock),
        cmocka_unit_test(who_waits_is_seldom_overtaken),
        cmocka_unit_test(an_owner_that_has_ended_owns_on),
        cmocka_unit_test(a_condition_wakes_who_waits),
        cmocka_unit_test(counts_are_kept),
    };
    return cmocka_run_group_tests_name("sync", tests, NULL, NULL);
}
