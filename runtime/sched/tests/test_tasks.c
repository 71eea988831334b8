// SPDX-License-Identifier: Apache-2.0
/* Tasks, deadlines, cancelling and task-local values, on one thread and on two. */
#include "aco_bindings.h"
#include "tasks.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* ==== Running ================================================================================ */

static void *adds_one(void *arg)
{
    return (char *)arg + 1;
}

static void runs_and_returns_a_result(void **state)
{
    (void)state;
    char c[2];
    void *result = NULL;
    assert_int_equal(aco_run(NULL, adds_one, &c[0], &result), 0);
    assert_ptr_equal(result, &c[1]);
}

static int ct_ended;

static void *ends_late(void *arg)
{
    CHECK(aco_sleep(2 * MS) == 0);
    __atomic_add_fetch(&ct_ended, 1, __ATOMIC_RELAXED);
    return arg;
}

static void *leaves_tasks_behind(void *arg)
{
    for (int i = 0; i < 10; i++) {
        CHECK(aco_go(ends_late, NULL) == 0);
    }
    CHECK(aco_spawn(ends_late, NULL) != NULL); /* never joined */
    return arg;
}

static void ends_when_all_tasks_have(void **state)
{
    (void)state;
    ct_ended = 0;
    run_tasks(leaves_tasks_behind, NULL);
    assert_int_equal(ct_ended, 11);
}

static void *runs_another(void *arg)
{
    CHECK_FAILS(aco_run(NULL, adds_one, NULL, NULL), EBUSY);
    return arg;
}

#define LEAST_STACK ((size_t)16 << 10)

static void *asks_for_odd_stacks(void *arg)
{
    static const aco_task_options_t odd[] = {
        {.stack_sz = 10},
        {.stack_sz = LEAST_STACK - 1},
        {.stack_sz = LEAST_STACK, .shares_stack = 1},
    };
    for (size_t i = 0; i < ARRAY_SZ(odd); i++) {
        CHECK_FAILS(aco_go_with(&odd[i], adds_one, NULL, NULL), EINVAL);
    }
    return arg;
}

static void refuses_what_makes_no_sense(void **state)
{
    (void)state;
    run_tasks(runs_another, NULL);
    run_tasks(asks_for_odd_stacks, NULL);
    static const aco_run_options_t odd[] = {
        {.ct_threads = -2}, {.stack_sz = 100}, {.stack_sz = LEAST_STACK - 1}};
    for (size_t i = 0; i < ARRAY_SZ(odd); i++) {
        errno = 0;
        assert_int_equal(aco_run(&odd[i], adds_one, NULL, NULL), -1);
        assert_int_equal(errno, EINVAL);
    }
    assert_int_equal(aco_run(NULL, NULL, NULL, NULL), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(aco_go(adds_one, NULL), -1);
    assert_int_equal(errno, EPERM);
    assert_null(aco_spawn(adds_one, NULL));
    assert_null(aco_self());
    assert_null(aco_group_new());
}

/* Makes the calls that need the most stack, in a task that has the least. */
static void *calls_much(void *arg)
{
    int listener = aco_listen("tcp", ":0");
    FILE *nowhere = fopen("/dev/null", "we");
    CHECK(listener >= 0 && nowhere != NULL);
    aco_print_tasks(nowhere);
    aco_print_metrics(nowhere);
    fprintf(nowhere, "%f\n", 0.1);
    fclose(nowhere);
    CHECK(aco_dial("tcp", "127.0.0.1") < 0);
    CHECK(aco_close(listener) == 0);
    return arg;
}

static void *has_the_least_stack(void *arg)
{
    aco_task_options_t options = {.stack_sz = LEAST_STACK};
    CHECK(aco_go_with(&options, calls_much, NULL, NULL) == 0);
    return calls_much(arg);
}

static void the_least_stack_is_enough(void **state)
{
    (void)state;
    aco_run_options_t options = {.stack_sz = LEAST_STACK};
    ct_failed = 0;
    assert_int_equal(aco_run(&options, has_the_least_stack, NULL, NULL), 0);
    assert_int_equal(ct_failed, 0);
}

/* ==== Order ================================================================================== */

static char order[64];

static void *writes_thrice(void *letter)
{
    for (int i = 0; i < 3; i++) {
        strcat(order, (const char *)letter);
        aco_yield();
    }
    return NULL;
}

static void *lets_two_write(void *arg)
{
    order[0] = '\0';
    aco_task_t *a = aco_spawn(writes_thrice, "a"), *b = aco_spawn(writes_thrice, "b");
    CHECK(aco_join(a, NULL) == 0);
    CHECK(aco_join(b, NULL) == 0);
    CHECK(strcmp(order, "ababab") == 0);
    return arg;
}

static void tasks_that_yield_take_turns(void **state)
{
    (void)state;
    run_tasks(lets_two_write, NULL);
}

static void *yields_anyway(void *arg)
{
    aco_task_cancel(aco_self());
    aco_within(0)
    {
        writes_thrice("x");
    }
    return arg;
}

static void *lets_one_go_on(void *arg)
{
    order[0] = '\0';
    CHECK(aco_join(aco_spawn(yields_anyway, NULL), NULL) == 0);
    CHECK(strcmp(order, "xxx") == 0);
    return arg;
}

static void a_yield_is_no_wait(void **state)
{
    (void)state;
    run_tasks(lets_one_go_on, NULL);
}

/* ==== aco_exit() ============================================================================= */

static aco_key_t exit_key;
static int ct_destroyed;

static void destroys_late(void *value)
{
    CHECK(value == &exit_key && aco_sleep(MS / 10) == 0);
    ct_destroyed++;
}

static void exit_in_a_call(void)
{
    CHECK(aco_setspecific(exit_key, &exit_key) == 0);
    CHECK(aco_sleep(MS / 10) == 0);
    aco_exit();
}

static void *leaves_by_exit(void *arg)
{
    exit_in_a_call();
    CHECK(0);
    return arg;
}

static void *joins_those_that_exit(void *arg)
{
    static const aco_task_options_t options[] = {
        {.name = "pool"}, {.shares_stack = 1}, {.stack_sz = 100000}, {.thread = ACO_ANY}};
    ct_destroyed = 0;
    for (int i = 0; i < 40; i++) {
        void *result = arg;
        aco_task_t *task;
        CHECK(aco_go_with(&options[i % 4], leaves_by_exit, &exit_key, &task) == 0);
        CHECK(aco_join(task, &result) == 0 && result == NULL);
        CHECK(ct_destroyed == i + 1);
        CHECK(aco_join(aco_spawn(adds_one, &order[i]), &result) == 0 && result == &order[i + 1]);
    }
    aco_exit();
    return arg;
}

static void a_task_may_exit(void **state)
{
    (void)state;
    aco_run_options_t options = {.ct_threads = 2};
    void *result = &options;
    assert_int_equal(aco_key_create(&exit_key, destroys_late), 0);
    ct_failed = 0;
    assert_int_equal(aco_run(&options, joins_those_that_exit, &options, &result), 0);
    assert_int_equal(ct_failed, 0);
    assert_null(result);
}

/* ==== Arguments ============================================================================== */

static void *sets(void *arg)
{
    *(int *)arg = 1;
    return arg;
}

static void pass_to_all(int *value)
{
    aco_task_t *task;
    aco_group_t *group = aco_group_new();
    *value = 0;
    CHECK(aco_join(aco_spawn(sets, value), NULL) == 0 && *value == 1);
    *value = 0;
    CHECK(aco_go(sets, value) == 0 && aco_sleep(0) == 0 && *value == 1);
    *value = 0;
    CHECK(aco_go_with(NULL, sets, value, &task) == 0);
    CHECK(aco_join(task, NULL) == 0 && *value == 1);
    *value = 0;
    CHECK(aco_group_go(group, sets, value) == 0);
    CHECK(aco_group_join(group) == 0 && *value == 1);
}

static void passes_local_of_coroutine(void)
{
    int local;
    pass_to_all(&local);
    aco_exit();
}

/* Arguments that stay where they are while the task waits are allowed. */
static void *passes_all(void *arg)
{
    static int in_static_memory;
    int *on_heap = (int *)malloc(sizeof(*on_heap));
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *co = aco_create(aco_get_co(), stack, 0, passes_local_of_coroutine, NULL);
    pass_to_all(&in_static_memory);
    pass_to_all(on_heap);
    pass_to_all((int *)arg);
    aco_resume(co);
    CHECK(co->is_end);
    aco_destroy(co);
    aco_share_stack_destroy(stack);
    free(on_heap);
    return NULL;
}

static void *passes_arguments(void *arg)
{
    int local;
    aco_task_options_t options = {.shares_stack = 1};
    aco_task_t *task;
    CHECK(aco_go_with(&options, passes_all, &local, &task) == 0);
    CHECK(aco_join(task, NULL) == 0);
    passes_all(&local);
    return arg;
}

static void arguments_lie_where_they_stay(void **state)
{
    (void)state;
#ifdef ACO_CONFIG_STRESS
    skip(); /* all frames move */
#endif
    run_tasks(passes_arguments, NULL);
}

static void *keeps_errno(void *arg)
{
    int mine = (int)(uintptr_t)arg;
    for (int i = 0; i < 100; i++) {
        errno = mine;
        int result = 0;
        if (i % 3 == 0) {
            aco_yield();
        } else if (i % 3 == 1) {
            result = aco_sleep(0);
        } else {
            result = aco_park();
        }
        CHECK(errno == (result == 0 ? mine : ECANCELED));
    }
    return NULL;
}

static void *unparks_all(void *arg)
{
    aco_task_t **tasks = (aco_task_t **)arg;
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 3; i++) {
            aco_unpark(tasks[i]);
        }
        aco_yield();
    }
    return NULL;
}

static void *runs_with_errnos(void *arg)
{
    static aco_task_t *tasks[4];
    for (uintptr_t i = 0; i < 3; i++) {
        tasks[i] = aco_spawn(keeps_errno, (void *)(i + 1));
    }
    tasks[3] = aco_spawn(unparks_all, tasks);
    aco_join(tasks[3], NULL);
    for (int i = 0; i < 3; i++) {
        aco_task_cancel(tasks[i]); /* in case it has been unparked too seldom */
        CHECK(aco_join(tasks[i], NULL) == 0);
    }
    return arg;
}

/* ==== Joining ================================================================================ */

static void *joins(void *arg)
{
    void *result = NULL;
    aco_task_t *late = aco_spawn(ends_late, &order[3]), *early = aco_spawn(adds_one, &order[0]);
    CHECK(aco_join(late, &result) == 0);
    CHECK(result == &order[3]);
    CHECK(aco_join(early, &result) == 0); /* it has ended already */
    CHECK(result == &order[1]);
    CHECK_FAILS(aco_join(aco_self(), NULL), EDEADLK);
    aco_task_t *slow = aco_spawn(ends_late, &order[7]);
    aco_within(MS / 10)
    {
        CHECK_FAILS(aco_join(slow, &result), ETIMEDOUT);
    }
    CHECK(aco_join(slow, &result) == 0); /* the task remained to be joined */
    CHECK(result == &order[7]);
    return arg;
}

static void a_task_is_joined(void **state)
{
    (void)state;
    run_tasks(joins, NULL);
    run_tasks_on(2, joins, NULL);
}

/* ==== Time =================================================================================== */

static void *sleeps_in_order(void *arg)
{
    int64_t before = aco_now();
    CHECK(aco_sleep(3 * MS) == 0);
    CHECK(aco_now() - before >= 3 * MS);
    CHECK(aco_deadline() == INT64_MAX);
    before = aco_now();
    aco_within(5 * MS)
    {
        int64_t outer = aco_deadline();
        CHECK(outer >= before + 5 * MS);
        aco_within(1000 * MS)
        {
            CHECK(aco_deadline() == outer); /* the earlier one counts */
            CHECK_FAILS(aco_sleep(1000 * MS), ETIMEDOUT);
            CHECK_FAILS(aco_park(), ETIMEDOUT);
            aco_shielded
            {
                CHECK(aco_deadline() == INT64_MAX);
                CHECK(aco_sleep(MS) == 0);
            }
            break; /* leaves the block */
        }
        CHECK(aco_deadline() == outer);
    }
    CHECK(aco_now() - before >= 5 * MS && aco_now() - before < 900 * MS);
    for (int64_t past = 0; past >= -5 * MS; past -= 5 * MS) {
        aco_within(past)
        {
            CHECK(aco_deadline() <= aco_now());
            CHECK_FAILS(aco_sleep(MS), ETIMEDOUT);
            CHECK_FAILS(aco_park(), ETIMEDOUT);
            aco_mutex_t mutex = {0};
            CHECK(aco_mutex_lock(&mutex) == 0); /* it need not wait */
        }
    }
    CHECK(aco_deadline() == INT64_MAX);
    CHECK(aco_sleep(MS) == 0);
    return arg;
}

static void waits_end_at_deadlines(void **state)
{
    (void)state;
    run_tasks(sleeps_in_order, NULL);
}

/* There, calls know neither deadlines nor cancelling; the blocks run once all the same. */
static void scopes_outside_of_tasks_change_nothing(void **state)
{
    (void)state;
    int ct = 0;
    aco_within(0)
    {
        ct++;
        assert_int_equal(aco_deadline(), INT64_MAX);
        assert_int_equal(aco_sleep(1), 0);
        aco_shielded
        {
            ct++;
            assert_int_equal(aco_sleep(1), 0);
        }
    }
    assert_int_equal(ct, 2);
    assert_int_equal(aco_deadline(), INT64_MAX);
    run_tasks(sleeps_in_order, NULL); /* nothing is left of them */
}

#define CT_SLEEPERS 1000
static int64_t woken_at[CT_SLEEPERS];

static void *sleeps_for_its_time(void *arg)
{
    int64_t ns = (int64_t)(uintptr_t)arg % 17 * MS / 4, until = aco_now() + ns;
    CHECK(aco_sleep(ns) == 0);
    CHECK(aco_now() >= until);
    woken_at[(uintptr_t)arg] = until;
    return NULL;
}

static void *cancels_every_third(void *arg)
{
    static aco_task_t *tasks[CT_SLEEPERS];
    for (uintptr_t i = 0; i < CT_SLEEPERS; i++) {
        tasks[i] = aco_spawn(i % 3 == 0 ? ends_late : sleeps_for_its_time, (void *)i);
    }
    for (size_t i = 0; i < CT_SLEEPERS; i++) {
        CHECK(aco_join(tasks[i], NULL) == 0);
    }
    return arg;
}

static void many_sleep(void **state)
{
    (void)state;
    run_tasks(cancels_every_third, NULL);
    aco_stats_t stats;
    aco_stats(&stats);
    assert_int_equal(stats.ct_tasks, 0);
}

/* ==== Cancelling ============================================================================= */

static void *waits_until_cancelled(void *arg)
{
    CHECK_FAILS(aco_sleep(1000000 * MS), ECANCELED);
    CHECK_FAILS(aco_sleep(MS), ECANCELED); /* from then on */
    aco_shielded
    {
        CHECK(aco_sleep(MS) == 0);
    }
    return arg;
}

static void *cancels(void *arg)
{
    aco_task_t *waiting = aco_spawn(waits_until_cancelled, NULL);
    aco_task_t *shielded = aco_spawn(shields_itself, NULL);
    aco_yield();
    aco_task_cancel(waiting);
    aco_task_cancel(shielded);
    CHECK(aco_join(waiting, NULL) == 0);
    CHECK(aco_join(shielded, NULL) == 0);
    aco_task_t *unstarted = aco_spawn(waits_until_cancelled, NULL);
    aco_task_cancel(unstarted);
    CHECK(aco_join(unstarted, NULL) == 0);
    aco_task_cancel(aco_self());
    CHECK_FAILS(aco_sleep(MS), ECANCELED);
    return arg;
}

static void cancelled_tasks_wait_no_more(void **state)
{
    (void)state;
    run_tasks(cancels, NULL);
    run_tasks_on(2, cancels, NULL);
}

/* ==== Parking ================================================================================ */

static aco_task_t *parked;

static void unpark_by_signal(int signal_no)
{
    (void)signal_no;
    aco_unpark(parked);
}

static void *is_unparked_by_signal(void *arg)
{
    parked = aco_self();
    signal(SIGALRM, unpark_by_signal);
    struct itimerval soon = {{0, 0}, {0, 2000}};
    for (int i = 0; i < 20; i++) {
        setitimer(ITIMER_REAL, &soon, NULL);
        CHECK(aco_park() == 0);
    }
    aco_unpark(parked); /* comes before the wait, and counts once */
    aco_unpark(parked);
    CHECK(aco_park() == 0);
    aco_within(MS)
    {
        CHECK_FAILS(aco_park(), ETIMEDOUT);
    }
    signal(SIGALRM, SIG_DFL);
    return arg;
}

static int may_end;

static void *unparks_from_a_thread(void *task)
{
    while (!__atomic_load_n(&may_end, __ATOMIC_RELAXED)) {
        aco_unpark((aco_task_t *)task);
        struct timespec t = {0, 10000};
        nanosleep(&t, NULL);
    }
    return NULL;
}

static void *is_unparked_by_thread(void *arg)
{
    pthread_t thread;
    may_end = 0;
    CHECK(pthread_create(&thread, NULL, unparks_from_a_thread, aco_self()) == 0);
    aco_within(30000 * MS)
    {
        for (int i = 0; i < 50; i++) {
            CHECK(aco_park() == 0);
        }
    }
    __atomic_store_n(&may_end, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    return arg;
}

static void a_parked_task_is_unparked(void **state)
{
    (void)state;
    run_tasks(is_unparked_by_signal, NULL);
    run_tasks(is_unparked_by_thread, NULL);
}

/* ==== Coroutines within tasks ================================================================ */

static void generates(void)
{
    for (int i = 0; i < 5; i++) {
        CHECK(aco_sleep(MS / 10) == 0); /* the whole task waits */
        *(int *)aco_get_arg() = i;
        aco_yield();
    }
    aco_exit();
}

static void *uses_a_generator(void *arg)
{
    int value = -1;
    aco_share_stack_t *stack = aco_share_stack_new(0);
    int *to = arg == NULL ? &value : (int *)arg;
    aco_t *generator = aco_create(aco_get_co(), stack, 0, generates, to);
    for (int i = 0; i < 5; i++) {
        aco_resume(generator);
        CHECK(*to == i);
    }
    aco_resume(generator);
    CHECK(generator->is_end);
    aco_destroy(generator);
    aco_share_stack_destroy(stack);
    return NULL;
}

static void *uses_generators(void *arg)
{
    static int values[20];
    for (int i = 0; i < 20; i++) {
        aco_task_options_t options = {.shares_stack = i % 2, .name = "uses a generator"};
        CHECK(aco_go_with(&options, uses_a_generator, &values[i], NULL) == 0);
    }
    return arg;
}

static void generators_wait_with_their_task(void **state)
{
    (void)state;
    run_tasks(uses_generators, NULL);
}

/* ==== Stacks ================================================================================= */

static void *fills_its_stack(void *arg)
{
    char frame[100000];
    memset(frame, (int)(uintptr_t)arg, sizeof(frame));
    aco_sleep(MS);
    for (size_t i = 0; i < sizeof(frame); i++) {
        if (frame[i] != (char)(uintptr_t)arg) {
            CHECK(0);
            break;
        }
    }
    return NULL;
}

static void *runs_on_all_kinds_of_stack(void *arg)
{
    for (uintptr_t i = 0; i < 30; i++) {
        aco_task_options_t options = {.shares_stack = i % 3 == 0,
                                      .stack_sz = i % 3 == 1 ? (size_t)1 << 20 : 0};
        CHECK(aco_go_with(&options, fills_its_stack, (void *)i, NULL) == 0);
    }
    return arg;
}

static void tasks_keep_their_frames(void **state)
{
    (void)state;
    run_tasks(runs_on_all_kinds_of_stack, NULL);
}

/* ==== Threads ================================================================================ */

static pthread_t thread_of[4];

static void *notes_its_thread(void *arg)
{
    thread_of[(uintptr_t)arg] = pthread_self();
    return NULL;
}

static void *goes_to_threads(void *arg)
{
    aco_task_t *tasks[3];
    for (uintptr_t i = 0; i < 3; i++) {
        aco_task_options_t options = {.thread = ACO_THREAD((int)i)};
        CHECK(aco_go_with(&options, notes_its_thread, (void *)i, &tasks[i]) == 0);
    }
    for (int i = 0; i < 3; i++) {
        CHECK(aco_join(tasks[i], NULL) == 0);
    }
    CHECK(pthread_equal(thread_of[0], pthread_self()));
    CHECK(!pthread_equal(thread_of[0], thread_of[1]) && !pthread_equal(thread_of[1], thread_of[2]));
    aco_task_options_t nowhere = {.thread = ACO_THREAD(3)};
    CHECK_FAILS(aco_go_with(&nowhere, notes_its_thread, NULL, NULL), EINVAL);
    return arg;
}

static void *computes_anywhere(void *arg)
{
    aco_group_t *group = aco_group_new();
    aco_task_options_t options = {.thread = ACO_ANY, .group = group};
    for (int i = 0; i < 1000; i++) {
        CHECK(aco_go_with(&options, ends_late, NULL, NULL) == 0);
        if (i % 100 == 0) {
            aco_sleep(MS / 10);
        }
    }
    CHECK(aco_group_join(group) == 0);
    return arg;
}

static void tasks_go_to_threads(void **state)
{
    (void)state;
    run_tasks_on(3, goes_to_threads, NULL);
    run_tasks_on(3, computes_anywhere, NULL);
}

/* ==== Task-local values ====================================================================== */

static aco_key_t key_a, key_b;
static int ct_destroyed;

static void destroys(void *value)
{
    ct_destroyed += *(int *)value;
    aco_yield(); /* it may wait */
}

static void *has_values(void *arg)
{
    CHECK(aco_getspecific(key_a) == NULL);
    CHECK(aco_setspecific(key_a, arg) == 0);
    CHECK(aco_setspecific(key_b, arg) == 0);
    aco_yield();
    CHECK(aco_getspecific(key_a) == arg);
    CHECK(aco_setspecific(key_b, NULL) == 0);
    return NULL;
}

static void *makes_keys(void *arg)
{
    static int one = 1, ten = 10;
    CHECK(aco_key_create(&key_a, destroys) == 0);
    CHECK(aco_key_create(&key_b, destroys) == 0);
    CHECK_FAILS(aco_setspecific(key_b + 1, arg), EINVAL);
    CHECK(aco_go(has_values, &one) == 0);
    CHECK(aco_go(has_values, &ten) == 0);
    return arg;
}

static void values_are_the_tasks_own(void **state)
{
    (void)state;
    ct_destroyed = 0;
    run_tasks(makes_keys, NULL);
    assert_int_equal(ct_destroyed, 11);
    assert_null(aco_getspecific(key_a));
}

#define CT_KEYS 100

static aco_key_t many_keys[CT_KEYS];

/* Its values outlive each growth of the table that keeps them. */
static void *has_many_values(void *arg)
{
    char *values = (char *)arg;
    for (int ct = 1; ct <= CT_KEYS; ct++) {
        CHECK(aco_setspecific(many_keys[ct - 1], &values[ct - 1]) == 0);
        for (int i = 0; i < CT_KEYS; i++) {
            CHECK(aco_getspecific(many_keys[i]) == (i < ct ? &values[i] : NULL));
        }
    }
    return NULL;
}

static void *makes_many_keys(void *arg)
{
    static char values[2][CT_KEYS];
    for (int i = 0; i < CT_KEYS; i++) {
        CHECK(aco_key_create(&many_keys[i], NULL) == 0);
    }
    CHECK(aco_go(has_many_values, values[0]) == 0 && aco_go(has_many_values, values[1]) == 0);
    return arg;
}

static void values_stay_while_more_are_set(void **state)
{
    (void)state;
    run_tasks(makes_many_keys, NULL);
}

/* ==== Memory ================================================================================= */

#define CT_DEEP 200
#define DEEP_SZ (96 << 10) /* bytes of stack that each of them touches */

static int64_t resident_sz(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long long total = 0, resident = 0;
    CHECK(file != NULL && fscanf(file, "%lld %lld", &total, &resident) == 2);
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

static void *goes_deep(void *arg)
{
    char bytes[DEEP_SZ];
    memset(bytes, 1, sizeof(bytes));
    __asm__ volatile("" : : "r"(bytes) : "memory"); /* clang would not write them otherwise */
    CHECK(aco_park() == 0 && bytes[DEEP_SZ / 2] == 1);
    return arg;
}

typedef struct {
    aco_task_t *task;       /* it alone waits in the end */
    int64_t before, during; /* resident bytes */
} memory_t;

/* Waits until half of the memory is given back, and then until the loop sleeps for longer. */
static void *watches_memory(void *arg)
{
    const memory_t *memory = (const memory_t *)arg;
    const struct timespec pause = {0, 10 * MS}, longer = {1, 300 * MS};
    int64_t least = (memory->before + memory->during) / 2, end = aco_now() + 60000 * MS;
    aco_stats_t stats, later;
    while (resident_sz() > least && aco_now() < end) {
        nanosleep(&pause, NULL);
    }
    CHECK(resident_sz() <= least);
    do {
        aco_stats(&stats);
        nanosleep(&longer, NULL);
        aco_stats(&later);
    } while (later.ct_polls != stats.ct_polls && aco_now() < end);
    CHECK(later.ct_polls == stats.ct_polls);
    aco_unpark(memory->task);
    return NULL;
}

static void wait_until_returned(memory_t *memory)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, watches_memory, memory) == 0);
    CHECK(aco_park() == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void *idles(void *arg)
{
    static aco_task_t *deep[CT_DEEP];
    static memory_t memory;
    memory = (memory_t){.task = aco_self(), .before = resident_sz()};
    for (int i = 0; i < CT_DEEP; i++) {
        deep[i] = aco_spawn(goes_deep, NULL);
    }
    aco_yield();
    memory.during = resident_sz();
    CHECK(memory.during - memory.before >= CT_DEEP / 2 * DEEP_SZ);
    for (int i = 0; i < CT_DEEP; i++) {
        aco_unpark(deep[i]);
        CHECK(aco_join(deep[i], NULL) == 0);
    }
    wait_until_returned(&memory);
    return arg;
}

static void idle_stacks_are_given_back(void **state)
{
    (void)state;
    run_tasks(idles, NULL);
}

#define CT_LIGHT 50000

/* Tasks that begin after their maker waits have a struct alone before that. */
static void makes_and_idles(int ct)
{
    static memory_t memory;
    memory = (memory_t){.task = aco_self(), .before = resident_sz()};
    for (int i = 0; i < ct; i++) {
        CHECK(aco_go(adds_one, NULL) == 0);
    }
    memory.during = resident_sz();
    CHECK(memory.during - memory.before >= (int64_t)ct * 100);
    wait_until_returned(&memory);
}

static int compare_places(const void *a, const void *b)
{
    uintptr_t one = (uintptr_t) * (aco_task_t *const *)a,
              other = (uintptr_t) * (aco_task_t *const *)b;
    return (one > other) - (one < other);
}

/* The structs are used again, each by one task. */
static void *makes_many_light(void *arg)
{
    static aco_task_t *tasks[CT_LIGHT];
    makes_and_idles(CT_LIGHT);
    makes_and_idles(CT_LIGHT / 2);
    for (int i = 0; i < CT_LIGHT; i++) {
        tasks[i] = aco_spawn(adds_one, NULL);
        CHECK(tasks[i] != NULL);
    }
    qsort(tasks, CT_LIGHT, sizeof(tasks[0]), compare_places);
    for (int i = 0; i < CT_LIGHT; i++) {
        CHECK(i == 0 || tasks[i] != tasks[i - 1]);
        CHECK(aco_join(tasks[i], NULL) == 0);
    }
    return arg;
}

/* ThreadSanitizer keeps its shadow of such memory, and an emulator has more of its own. */
static void idle_tasks_are_given_back(void **state)
{
    (void)state;
#if defined(ACO_USE_TSAN) || defined(EMULATED)
    (void)makes_many_light;
    skip();
#else
    run_tasks(makes_many_light, NULL);
#endif
}

static void *waits_on_a_share_stack(void *gate)
{
    char byte;
    CHECK(aco_chan_recv((aco_chan_t *)gate, &byte) == 0);
    return NULL;
}

static void *makes_many_sharing(void *arg)
{
    static memory_t memory;
    aco_task_options_t options = {.shares_stack = 1};
    aco_chan_t *gate = aco_chan_new(1, 0);
    memory = (memory_t){.task = aco_self(), .before = resident_sz()};
    for (int i = 0; i < CT_LIGHT; i++) {
        CHECK(aco_go_with(&options, waits_on_a_share_stack, gate, NULL) == 0);
    }
    aco_yield();
    memory.during = resident_sz();
    CHECK(aco_chan_close(gate) == 0);
    wait_until_returned(&memory);
    aco_chan_free(gate);
    return arg;
}

/* Sanitizers, memcheck and other libcs keep freed memory as they like. */
static void idle_copies_are_given_back(void **state)
{
    (void)state;
#if !defined(__GLIBC__) || defined(ACO_USE_ASAN) || defined(ACO_USE_TSAN) ||                       \
    defined(ACO_USE_VALGRIND) || defined(EMULATED)
    (void)makes_many_sharing;
    skip();
#else
    run_tasks(makes_many_sharing, NULL);
#endif
}

static void errno_is_the_tasks_own(void **state)
{
    (void)state;
    run_tasks(runs_with_errnos, NULL);
}

static int ct_discarded;

static void counts_discarded(aco_task_t *task, void *result)
{
    CHECK(task != NULL && result == &ct_discarded);
    ct_discarded++;
}

static void *yields_once(void *arg)
{
    aco_yield();
    return arg;
}

static void detach_one(int has_ended, void (*discard)(aco_task_t *task, void *result))
{
    aco_task_t *task = aco_spawn(yields_once, &ct_discarded);
    CHECK(task != NULL);
    for (int i = 0; has_ended && !aco_i_has_ended(task) && i < 10; i++) {
        aco_yield();
    }
    CHECK(aco_i_has_ended(task) == has_ended);
    aco_i_detach(task, discard);
}

static void *detaches_tasks(void *arg)
{
    ct_discarded = 0;
    detach_one(1, NULL);
    detach_one(1, counts_discarded);
    CHECK(ct_discarded == 1);
    detach_one(0, NULL);
    detach_one(0, counts_discarded);
    CHECK(ct_discarded == 1);
    return arg;
}

static void detached_tasks_are_discarded_if_asked_for(void **state)
{
    (void)state;
    run_tasks(detaches_tasks, NULL);
    assert_int_equal(ct_discarded, 2);
}

/* ==== Tasks of bindings ====================================================================== */

enum { CT_PLACES = 1000 };

static void *places[CT_PLACES];
static int ct_places;

static void put(void *storage, void *arg)
{
    memcpy(storage, &arg, sizeof(arg));
}

static void *notes_its_place(void *storage)
{
    (void)storage;
    places[ct_places++] = aco_self();
    return NULL;
}

/* A task without a handle is free once it has ended: others get its place. */
static void *makes_many_in_turn(void *arg)
{
    int ct_reused = 0;
    for (int i = 0; i < CT_PLACES; i++) {
        CHECK(aco_i_spawn_in(NULL, notes_its_place, put, arg, NULL) == 0);
        aco_yield();
        ct_reused += i != 0 && places[i] == places[i - 1];
    }
    CHECK(ct_places == CT_PLACES && ct_reused > CT_PLACES / 2);
    return arg;
}

static void places_of_ended_tasks_are_used_again(void **state)
{
    (void)state;
    run_tasks(makes_many_in_turn, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_and_returns_a_result),
        cmocka_unit_test(ends_when_all_tasks_have),
        cmocka_unit_test(refuses_what_makes_no_sense),
        cmocka_unit_test(the_least_stack_is_enough),
        cmocka_unit_test(tasks_that_yield_take_turns),
        cmocka_unit_test(a_yield_is_no_wait),
        cmocka_unit_test(a_task_may_exit),
        cmocka_unit_test(arguments_lie_where_they_stay),
        cmocka_unit_test(errno_is_the_tasks_own),
        cmocka_unit_test(a_task_is_joined),
        cmocka_unit_test(waits_end_at_deadlines),
        cmocka_unit_test(scopes_outside_of_tasks_change_nothing),
        cmocka_unit_test(many_sleep),
        cmocka_unit_test(cancelled_tasks_wait_no_more),
        cmocka_unit_test(a_parked_task_is_unparked),
        cmocka_unit_test(generators_wait_with_their_task),
        cmocka_unit_test(tasks_keep_their_frames),
        cmocka_unit_test(tasks_go_to_threads),
        cmocka_unit_test(values_are_the_tasks_own),
        cmocka_unit_test(values_stay_while_more_are_set),
        cmocka_unit_test(idle_stacks_are_given_back),
        cmocka_unit_test(places_of_ended_tasks_are_used_again),
        cmocka_unit_test(idle_tasks_are_given_back),
        cmocka_unit_test(idle_copies_are_given_back),
        cmocka_unit_test(detached_tasks_are_discarded_if_asked_for),
    };
    return cmocka_run_group_tests_name("tasks", tests, NULL, NULL);
}
