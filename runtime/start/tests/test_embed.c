// SPDX-License-Identifier: Apache-2.0
/* A runtime that another loop runs, here one of poll(). */
#include "tasks.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static int ct_done;

/* The other loop: it knows only whether the descriptor is readable. */
static void run_until_done(int ct)
{
    struct pollfd polled = {aco_loop_fd(), POLLIN, 0};
    while (ct_done < ct) {
        assert_int_equal(poll(&polled, 1, 10000), 1);
        assert_true(aco_run_once(0) >= 0);
    }
}

static void *yields(void *arg)
{
    for (int i = 0; i < 200; i++) { /* more than a turn */
        aco_yield();
    }
    ct_done++;
    return arg;
}

static void *sleeps(void *arg)
{
    for (int i = 0; i < 3; i++) {
        CHECK(aco_sleep(MS) == 0);
    }
    ct_done++;
    return arg;
}

static void *reads(void *arg)
{
    char byte;
    CHECK(aco_read(*(int *)arg, &byte, 1) == 1 && byte == 'x');
    ct_done++;
    return NULL;
}

static void *parks(void *arg)
{
    *(aco_task_t **)arg = aco_self();
    CHECK(aco_park() == 0);
    ct_done++;
    return NULL;
}

static void *unparks(void *task)
{
    usleep(2000);
    aco_unpark((aco_task_t *)task);
    return NULL;
}

static void test_turns(void **state)
{
    (void)state;
    int fds[2];
    ct_done = ct_failed = 0;
    assert_true(aco_loop_fd() >= 0);
    assert_int_equal(aco_run_once(-1), 0);
    assert_int_equal(aco_go(yields, NULL), 0);
    run_until_done(1);
    assert_int_equal(aco_go(sleeps, NULL), 0);
    run_until_done(2);
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(aco_go(reads, &fds[0]), 0);
    assert_int_equal(aco_run_once(0), 1);
    assert_int_equal(aco_run_once(MS), 1);
    assert_int_equal(ct_done, 2);
    assert_int_equal(write(fds[1], "x", 1), 1);
    run_until_done(3);
    assert_int_equal(aco_close(fds[0]), 0);
    assert_int_equal(aco_close(fds[1]), 0);
    assert_int_equal(aco_run_once(0), 0);
    assert_int_equal(ct_failed, 0);
}

static void test_wakes(void **state)
{
    (void)state;
    aco_task_t *task = NULL;
    pthread_t thread;
    ct_done = ct_failed = 0;
    assert_int_equal(aco_go(parks, &task), 0);
    assert_int_equal(aco_run_once(0), 1);
    assert_int_equal(pthread_create(&thread, NULL, unparks, task), 0);
    run_until_done(1);
    pthread_join(thread, NULL);
    assert_int_equal(aco_go(parks, &task), 0);
    assert_int_equal(aco_run_once(0), 1);
    aco_unpark(task); /* by the thread itself, between turns */
    run_until_done(2);
    assert_int_equal(ct_failed, 0);
}

static void *nests(void *arg)
{
    CHECK_FAILS(aco_run_once(0), EBUSY);
    CHECK_FAILS(aco_loop_fd(), EBUSY);
    ct_done++;
    return arg;
}

/* Returns NULL if all is right, or if the call that fails ends the process. */
static void *embeds(void *arg)
{
    int is_early = arg != NULL, result = 1;
    if (aco_go(sleeps, NULL) == 0 || errno != EPERM || aco_loop_fd() < 0) {
        return "aco_go";
    }
    if (aco_go(sleeps, NULL) != 0) {
        return "aco_go with a loop";
    }
    while (!is_early && (result = aco_run_once(-1)) == 1) {
    }
    return result == is_early ? NULL : "aco_run_once";
}

/* Runs embeds() in a thread, which ends with its loop. */
static void end_thread(void *arg)
{
    pthread_t thread;
    void *failed;
    assert_int_equal(pthread_create(&thread, NULL, embeds, arg), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
}

static void test_threads(void **state)
{
    (void)state;
    ct_done = ct_failed = 0;
    assert_int_equal(aco_run(NULL, nests, NULL, NULL), -1);
    assert_int_equal(errno, EBUSY);
    assert_int_equal(aco_go(nests, NULL), 0);
    run_until_done(1);
    end_thread(NULL);
    pid_t child = fork();
    if (child == 0) {
        assert_non_null(freopen("/dev/null", "w", stderr));
        signal(SIGABRT, SIG_DFL); /* cmocka handles it */
        end_thread("early");
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_int_equal(ct_failed, 0);
}

/* ==== A descriptor that tasks of two threads wait for ======================================== */

static int shared[2], is_waiting; /* atomic */

static void *reads_shared(void *arg)
{
    char byte;
    ssize_t got = aco_read(shared[0], &byte, 1);
    CHECK(arg == NULL ? got == 1 : got < 0 && errno == ECANCELED);
    return NULL;
}

static void *waits_elsewhere(void *arg)
{
    aco_task_t *task = aco_spawn(reads_shared, NULL);
    aco_yield();
    __atomic_store_n(&is_waiting, 1, __ATOMIC_RELEASE);
    CHECK(aco_join(task, NULL) == 0);
    return arg;
}

static void *runs_elsewhere(void *arg)
{
    CHECK(aco_run(NULL, waits_elsewhere, NULL, NULL) == 0);
    return arg;
}

/* The loop that watches a descriptor has no tasks any more, so it does not run. */
static void test_leaves_descriptors(void **state)
{
    (void)state;
    pthread_t thread;
    ct_failed = is_waiting = 0;
    assert_int_equal(pipe(shared), 0);
    assert_true(aco_loop_fd() >= 0);
    aco_task_t *task = aco_spawn(reads_shared, "is cancelled");
    assert_int_equal(aco_run_once(0), 1);
    assert_int_equal(pthread_create(&thread, NULL, runs_elsewhere, NULL), 0);
    while (!__atomic_load_n(&is_waiting, __ATOMIC_ACQUIRE)) {
        usleep(100);
    }
    aco_task_cancel(task);
    while (aco_run_once(0) != 0)
        continue;
    assert_int_equal(write(shared[1], "x", 1), 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(aco_join(task, NULL), 0);
    assert_true(close(shared[0]) == 0 && close(shared[1]) == 0);
    assert_int_equal(ct_failed, 0);
}

/* ==== Plain coroutines ======================================================================= */

static void run_in_coroutine(void)
{
    int *fd = (int *)aco_get_arg();
    CHECK_FAILS(aco_run_once(0), EBUSY);
    CHECK_FAILS(aco_loop_fd(), EBUSY);
    *fd = 0;
    aco_exit();
}

static void test_refuses_coroutines(void **state)
{
    (void)state;
    int fd = -1;
    ct_failed = 0;
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *co = aco_create(main_co, stack, 0, run_in_coroutine, &fd);
    aco_resume(co);
    assert_int_equal(fd, 0);
    assert_true(aco_loop_fd() >= 0);
    assert_int_equal(aco_run_once(0), 0);
    aco_destroy(co);
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
    assert_int_equal(ct_failed, 0);
}

static void counts(void)
{
    for (int *ct = (int *)aco_get_arg();;) {
        ++*ct;
        aco_yield();
    }
}

/* A coroutine that belongs to the caller, be it a task or not. */
typedef struct {
    aco_t *co;
    aco_share_stack_t *stack;
    int ct;
} counter_t;

static void make_counter(counter_t *counter, aco_t *main_co)
{
    counter->stack = aco_share_stack_new(0);
    counter->co = aco_create(main_co, counter->stack, 0, counts, &counter->ct);
    counter->ct = 0;
}

static int goes_on(counter_t *counter)
{
    int before = counter->ct;
    aco_resume(counter->co);
    return counter->ct == before + 1 && aco_get_co() == counter->co->main_co;
}

static void free_counter(counter_t *counter)
{
    aco_destroy(counter->co);
    aco_share_stack_destroy(counter->stack);
}

static void *has_a_coroutine(void *arg)
{
    counter_t *counter = (counter_t *)calloc(1, sizeof(*counter));
    make_counter(counter, aco_get_co());
    for (int i = 0; i < 3; i++) {
        CHECK(aco_sleep(MS / 10) == 0 && goes_on(counter));
    }
    free_counter(counter);
    free(counter);
    ct_done++;
    return arg;
}

static void *waits_last(void *arg)
{
    CHECK(aco_go(has_a_coroutine, NULL) == 0);
    CHECK(aco_go(has_a_coroutine, NULL) == 0);
    return has_a_coroutine(arg);
}

/* Runs in a thread that has no loop. */
static void *runs_between(void *arg)
{
    counter_t counter = {0};
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    make_counter(&counter, main_co);
    for (int i = 0; i < 3; i++) {
        CHECK(goes_on(&counter));
        CHECK(aco_run(NULL, waits_last, NULL, NULL) == 0);
        CHECK(aco_get_co() == main_co && goes_on(&counter));
    }
    free_counter(&counter);
    aco_destroy(main_co);
    return arg;
}

static void test_coroutines_go_on(void **state)
{
    (void)state;
    pthread_t thread;
    counter_t counter = {0};
    ct_done = ct_failed = 0;
    assert_int_equal(pthread_create(&thread, NULL, runs_between, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(ct_done, 9);
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    make_counter(&counter, main_co);
    assert_true(aco_loop_fd() >= 0 && goes_on(&counter));
    assert_int_equal(aco_go(waits_last, NULL), 0);
    do {
        assert_ptr_equal(aco_get_co(), main_co);
        assert_true(goes_on(&counter));
    } while (aco_run_once(-1) != 0);
    assert_ptr_equal(aco_get_co(), main_co);
    assert_true(goes_on(&counter));
    free_counter(&counter);
    aco_destroy(main_co);
    assert_int_equal(ct_done, 12);
    assert_int_equal(ct_failed, 0);
}

/* ==== Memory ================================================================================= */

/* The descriptor becomes readable once after the last event, so that idle stacks are given back. */
static void test_gives_stacks_back(void **state)
{
    (void)state;
    static aco_task_t *tasks[100];
    aco_stats_t before, after;
    int fd = aco_loop_fd();
    struct pollfd polled = {fd, POLLIN, 0};
    ct_done = ct_failed = 0;
    for (size_t i = 0; i < ARRAY_SZ(tasks); i++) {
        assert_int_equal(aco_go(parks, &tasks[i]), 0);
    }
    for (size_t i = 0; i < ARRAY_SZ(tasks); i++) {
        while (tasks[i] == NULL) {
            assert_int_equal(aco_run_once(0), 1);
        }
        aco_unpark(tasks[i]);
    }
    run_until_done(ARRAY_SZ(tasks));
    assert_int_equal(aco_run_once(0), 0);
    aco_stats(&before);
    assert_int_equal(poll(&polled, 1, 60000), 1);
    assert_int_equal(aco_run_once(0), 0);
    aco_stats(&after);
    assert_true(after.stacks_sz < before.stacks_sz);
    assert_int_equal(poll(&polled, 1, 0), 0);
    assert_int_equal(ct_failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_wakes),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_leaves_descriptors),
        cmocka_unit_test(test_refuses_coroutines),
        cmocka_unit_test(test_coroutines_go_on),
        cmocka_unit_test(test_gives_stacks_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
