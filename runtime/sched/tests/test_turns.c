// SPDX-License-Identifier: Apache-2.0
/*
 * The budget of a turn: tasks whose calls never have to wait let others run, some of a hundred
 * calls at least; those whose waits fail at once do so, too. By counts: a second task counts its
 * turns.
 */
#define _GNU_SOURCE
#include "tasks.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#define CT_CALLS 1200
#define CT_LEAST 10  /* turns of others meanwhile: a budget of 120 calls */
#define CT_MOST 1200 /* and no switch at each call */

static aco_mutex_t mutex;
static aco_rwlock_t rwlock;
static aco_semaphore_t semaphore;
static aco_wait_group_t wait_group;
static aco_chan_t *chan;
static int zero, null, sockets[2], file;
static char bytes[64];

/* ==== Calls that do not wait ================================================================= */

static void lock_mutex(void)
{
    CHECK(aco_mutex_lock(&mutex) == 0 && aco_mutex_unlock(&mutex) == 0);
}

static void lock_to_read(void)
{
    CHECK(aco_rwlock_read_lock(&rwlock) == 0 && aco_rwlock_unlock(&rwlock) == 0);
}

static void lock_to_write(void)
{
    CHECK(aco_rwlock_write_lock(&rwlock) == 0 && aco_rwlock_unlock(&rwlock) == 0);
}

static void acquire(void)
{
    CHECK(aco_semaphore_acquire(&semaphore) == 0 && aco_semaphore_release(&semaphore) == 0);
}

static void wait_for_none(void)
{
    CHECK(aco_wait_group_wait(&wait_group) == 0);
}

static void send_and_receive(void)
{
    int item = 1;
    CHECK(aco_chan_send(chan, &item) == 0 && aco_chan_recv(chan, &item) == 1);
}

static void select_and_receive(void)
{
    int item = 1;
    aco_case_t cases[] = {{.chan = chan, .send = &item}};
    CHECK(aco_select(cases, 1, 1) == 0 && aco_chan_try_recv(chan, &item) == 1);
}

static void read_zeros(void)
{
    CHECK(aco_read(zero, bytes, sizeof(bytes)) == sizeof(bytes));
}

static void write_away(void)
{
    CHECK(aco_write(null, bytes, sizeof(bytes)) == sizeof(bytes));
}

static void talk(void)
{
    CHECK(aco_send(sockets[0], bytes, 8, 0) == 8 && aco_recv(sockets[1], bytes, 8, 0) == 8);
}

static void talk_by_messages(void)
{
    struct iovec iov = {bytes, 8};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    CHECK(aco_sendmsg(sockets[0], &msg, 0) == 8 && aco_recvmsg(sockets[1], &msg, 0) == 8);
}

static void talk_by_vectors(void)
{
    struct iovec iov = {bytes, 8};
    CHECK(aco_writev(sockets[0], &iov, 1) == 8 && aco_readv(sockets[1], &iov, 1) == 8);
}

static void read_file(void)
{
    CHECK(aco_pread(file, bytes, 1, 0) == 1);
}

static void look_around(void)
{
    struct pollfd polled = {sockets[0], POLLOUT, 0};
    CHECK(aco_poll(&polled, 1, -1) == 1);
}

static void look_at_none(void)
{
    struct pollfd polled = {sockets[0], POLLIN, 0};
    CHECK(aco_poll(&polled, 1, 0) == 0);
}

static void wait_for_room(void)
{
    CHECK(aco_wait_fd(sockets[0], POLLOUT) == POLLOUT);
}

static const struct {
    const char *name;
    void (*fn)(void);
} calls[] = {
#define CALL(fn)                                                                                   \
    {                                                                                              \
#fn, fn                                                                                    \
    }
    CALL(lock_mutex),
    CALL(lock_to_read),
    CALL(lock_to_write),
    CALL(acquire),
    CALL(wait_for_none),
    CALL(send_and_receive),
    CALL(read_zeros),
    CALL(write_away),
    CALL(talk),
    CALL(select_and_receive),
    CALL(read_file),
    CALL(look_around),
    CALL(talk_by_messages),
    CALL(talk_by_vectors),
    CALL(look_at_none),
    CALL(wait_for_room),
};

/* ==== Turns ================================================================================== */

static int ct_turns, is_over;

static void *counts_turns(void *arg)
{
    while (!is_over) {
        ct_turns++;
        aco_yield();
    }
    return arg;
}

static aco_task_t *start_counting(void)
{
    ct_turns = is_over = 0;
    aco_task_t *task = aco_spawn(counts_turns, NULL);
    CHECK(task != NULL);
    aco_yield();
    return task;
}

static int stop_counting(aco_task_t *task)
{
    int ct = ct_turns - 1;
    is_over = 1;
    CHECK(aco_join(task, NULL) == 0);
    return ct;
}

static void *calls_often(void *arg)
{
    for (size_t i = 0; i < ARRAY_SZ(calls); i++) {
        aco_task_t *task = start_counting();
        errno = EDOM;
        for (int k = 0; k < CT_CALLS; k++) {
            calls[i].fn();
            CHECK(errno == EDOM);
        }
        int ct = stop_counting(task);
        if (ct < CT_LEAST || ct >= CT_MOST) {
            print_error("%s: others have had %d turns\n", calls[i].name, ct);
            ct_failed++;
        }
    }
    return arg;
}

static void *makes_objects(void *arg)
{
    zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    chan = aco_chan_new(sizeof(int), 4);
    CHECK(zero >= 0 && null >= 0 && file >= 0 && chan != NULL);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
    CHECK(aco_semaphore_init(&semaphore, 1) == 0);
    calls_often(arg);
    CHECK(close(zero) == 0 && close(null) == 0 && close(file) == 0);
    CHECK(close(sockets[0]) == 0 && close(sockets[1]) == 0);
    aco_chan_free(chan);
    return arg;
}

static void calls_that_do_not_wait_let_others_run(void **state)
{
    (void)state;
    run_tasks(makes_objects, NULL);
}

static void lock_often(void)
{
    for (int k = 0; k < CT_CALLS; k++) {
        lock_mutex();
    }
}

/* A coroutine of the task's own makes the calls. */
static void calls_and_ends(void)
{
    lock_often();
    aco_exit();
}

static void *resumes_a_coroutine(void *arg)
{
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *co = aco_create(aco_get_co(), stack, 0, calls_and_ends, NULL);
    aco_task_t *task = start_counting();
    while (!co->is_end) {
        aco_resume(co);
    }
    CHECK(stop_counting(task) >= CT_LEAST);
    aco_destroy(co);
    aco_share_stack_destroy(stack);
    return arg;
}

static void coroutines_of_a_task_do_so_too(void **state)
{
    (void)state;
    run_tasks(resumes_a_coroutine, NULL);
}

static void calls_in_handler(int number)
{
    int before = ct_turns;
    (void)number;
    lock_often();
    CHECK(ct_turns == before);
}

/* A budget that a handler has used up is the task's when the loop has looked. */
static void *is_interrupted(void *arg)
{
    aco_task_t *task = start_counting();
    CHECK(raise(SIGUSR1) == 0);
    aco_yield();
    lock_often();
    CHECK(stop_counting(task) >= CT_LEAST);
    return arg;
}

static void signal_handlers_do_not(void **state)
{
    struct sigaction action = {.sa_handler = calls_in_handler}, former;
    (void)state;
    assert_int_equal(sigaction(SIGUSR1, &action, &former), 0);
    run_tasks(is_interrupted, NULL);
    action.sa_flags = (int)SA_RESETHAND;
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    run_tasks(is_interrupted, NULL);
    assert_int_equal(sigaction(SIGUSR1, &former, NULL), 0);
}

/* No handler can be what has blocked a signal without one. */
static void *blocks_signals(void *arg)
{
    aco_task_t *task = start_counting();
    CHECK(pthread_sigmask(SIG_BLOCK, (const sigset_t *)arg, NULL) == 0);
    lock_often();
    CHECK(stop_counting(task) >= CT_LEAST);
    return NULL;
}

/* Nor what has unblocked one that the loop has seen blocked, until it is called. */
static void *unblocks_signals(void *arg)
{
    aco_task_t *task = start_counting();
    CHECK(pthread_sigmask(SIG_UNBLOCK, (const sigset_t *)arg, NULL) == 0);
    lock_often();
    CHECK(raise(SIGUSR1) == 0);
    CHECK(stop_counting(task) >= CT_LEAST);
    return NULL;
}

static void tasks_that_change_their_mask_do(void **state)
{
    struct sigaction action = {.sa_handler = calls_in_handler}, former;
    void (*former_of_pipes)(int) = signal(SIGPIPE, SIG_IGN);
    sigset_t signals, mask;
    (void)state;
    sigemptyset(&signals);
    sigaddset(&signals, SIGPIPE);
    sigaddset(&signals, SIGUSR1);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
    run_tasks(blocks_signals, &signals);
    assert_int_equal(sigaction(SIGUSR1, &action, &former), 0);
    run_tasks(unblocks_signals, &signals);
    assert_int_equal(sigaction(SIGUSR1, &former, NULL), 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &mask, NULL), 0);
    assert_ptr_not_equal(signal(SIGPIPE, former_of_pipes), SIG_ERR);
}

/* ==== Waits that fail at once ================================================================ */

static int ct_calls;

static void *sleeps_in_vain(void *arg)
{
    while (!is_over) {
        ct_calls++;
        CHECK_FAILS(aco_sleep(MS), ECANCELED);
    }
    return arg;
}

static void *receives_in_vain(void *arg)
{
    char byte;
    aco_within(0)
    {
        while (!is_over) {
            ct_calls++;
            CHECK_FAILS(aco_read(sockets[0], &byte, 1), ETIMEDOUT);
        }
    }
    return arg;
}

static void *receives_with_blocked_signals(void *arg)
{
    sigset_t one, former;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR2);
    CHECK(pthread_sigmask(SIG_BLOCK, &one, &former) == 0);
    receives_in_vain(arg);
    CHECK(pthread_sigmask(SIG_SETMASK, &former, NULL) == 0);
    return arg;
}

/* As often as another task sleeps for 1 ms, or a little more often. */
static void fail_beside_a_sleeper(void *(*fn)(void *), int is_cancelled)
{
    ct_calls = is_over = 0;
    aco_task_t *task = aco_spawn(fn, NULL);
    if (is_cancelled) {
        aco_task_cancel(task);
    }
    for (int i = 0; i < 10; i++) {
        CHECK(aco_sleep(MS) == 0);
    }
    CHECK(ct_calls >= 3 && ct_calls <= 40);
    is_over = 1;
    CHECK(aco_join(task, NULL) == 0);
}

static void *fails_beside_a_sleeper(void *arg)
{
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
    fail_beside_a_sleeper(sleeps_in_vain, 1);
    fail_beside_a_sleeper(receives_in_vain, 0);
    fail_beside_a_sleeper(receives_with_blocked_signals, 0);
    CHECK(close(sockets[0]) == 0 && close(sockets[1]) == 0);
    return arg;
}

static void waits_that_fail_at_once_take_time(void **state)
{
    (void)state;
    run_tasks(fails_beside_a_sleeper, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_that_do_not_wait_let_others_run),
        cmocka_unit_test(coroutines_of_a_task_do_so_too),
        cmocka_unit_test(signal_handlers_do_not),
        cmocka_unit_test(tasks_that_change_their_mask_do),
        cmocka_unit_test(waits_that_fail_at_once_take_time),
    };
    return cmocka_run_group_tests_name("budgets", tests, NULL, NULL);
}
