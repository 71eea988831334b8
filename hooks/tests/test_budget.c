// SPDX-License-Identifier: Apache-2.0
/* How many hooked calls that need not wait, or can't, a task makes before others run. */
#include "threads.h"

#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>

#define CT_MOST 97  /* calls in a turn */
#define CT_LEAST 10 /* where 1 ms has passed meanwhile */
#define CT_MANY 20000

static int fds[2], pipe_fds[2], epoll_fd; /* those that are read have input */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, checked;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static volatile int has_run;

static void *runs(void *arg)
{
    errno = ENOTTY;
    has_run = 1;
    return arg;
}

static void begin_turn(void)
{
    aco_yield();
    has_run = 0;
    CHECK(aco_go(runs, NULL) == 0);
}

static int reads_pipe(void)
{
    static int is_output;
    char c = 0;
    is_output = !is_output;
    return (is_output ? write(pipe_fds[1], &c, 1) : read(pipe_fds[0], &c, 1)) != 1;
}

static int receives(void)
{
    static int is_output;
    char c = 0;
    is_output = !is_output;
    return (is_output ? send(fds[1], &c, 1, 0) : recv(fds[0], &c, 1, 0)) != 1;
}

static int polls(void)
{
    struct pollfd polled = {fds[0], POLLIN, 0};
    return poll(&polled, 1, 1000) != 1;
}

static int polls_with_mask(void)
{
    struct pollfd polled = {fds[0], POLLIN, 0};
    return ppoll(&polled, 1, NULL, NULL) != 1;
}

static int selects(void)
{
    fd_set in;
    FD_ZERO(&in);
    FD_SET(fds[0], &in);
    return select(fds[0] + 1, &in, NULL, NULL, NULL) != 1;
}

static int waits_for_events(void)
{
    struct epoll_event event;
    return epoll_wait(epoll_fd, &event, 1, -1) != 1;
}

static int takes_semaphore(void)
{
    return sem_post(&semaphore) | sem_wait(&semaphore);
}

static int locks(void)
{
    return pthread_mutex_lock(&mutex) | pthread_mutex_unlock(&mutex);
}

static int locks_checked(void)
{
    return pthread_mutex_lock(&checked) | pthread_mutex_unlock(&checked);
}

static int locks_in_time(void)
{
    struct timespec t = {INT32_MAX, 0};
    return pthread_mutex_timedlock(&mutex, &t) | pthread_mutex_unlock(&mutex);
}

static int locks_to_read(void)
{
    return pthread_rwlock_rdlock(&rwlock) | pthread_rwlock_unlock(&rwlock);
}

static int locks_to_write(void)
{
    return pthread_rwlock_wrlock(&rwlock) | pthread_rwlock_unlock(&rwlock);
}

static int (*const may_wait[])(void) = {
    reads_pipe,      receives, polls,         polls_with_mask, selects,       waits_for_events,
    takes_semaphore, locks,    locks_checked, locks_in_time,   locks_to_read, locks_to_write,
};

static void *makes_calls(void *arg)
{
    for (size_t i = 0; i < ARRAY_SZ(may_wait); i++) {
        int ct = 0;
        CHECK(may_wait[i]() == 0); /* what the first call has to do */
        begin_turn();
        errno = EISDIR;
        for (; !has_run && ct < CT_MANY; ct++) {
            CHECK(may_wait[i]() == 0);
        }
        CHECK(errno == EISDIR);
        if (ct < CT_LEAST || ct > CT_MOST) {
            print_error("kind %zu: %d calls in a turn\n", i, ct);
            ct_failed++;
        }
    }
    return arg;
}

static void set_up(void)
{
    static const char input[8];
    pthread_mutexattr_t attr;
    struct epoll_event event = {.events = EPOLLIN};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(pipe(pipe_fds), 0);
    assert_int_equal(write(fds[1], input, sizeof(input)), sizeof(input));
    assert_int_equal(write(pipe_fds[1], input, sizeof(input)), sizeof(input));
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    assert_int_equal(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fds[0], &event), 0);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&checked, &attr);
    pthread_mutexattr_destroy(&attr);
    sem_init(&semaphore, 0, 0);
}

static void tear_down(void)
{
    for (int i = 0; i < 2; i++) {
        close(fds[i]);
        close(pipe_fds[i]);
    }
    close(epoll_fd);
}

static void others_run_after_some_calls(void **state)
{
    (void)state;
    set_up();
    run_tasks(makes_calls, NULL);
    tear_down();
}

/* ==== Waits that are bound to fail =========================================================== */

static volatile int ct_ticks;

static void *ticks(void *arg)
{
    for (ct_ticks = 0; ct_ticks < 20; ct_ticks++) {
        CHECK(aco_sleep(MS) == 0);
    }
    return arg;
}

/* Programs wait in such loops for the time that is left. */
static int sleeps_on(void)
{
    static struct timespec t = {1000, 0};
    return nanosleep(&t, &t);
}

static int sleeps_for_seconds(void)
{
    static unsigned s = 1000;
    return (s = sleep(s)) == 0 ? 0 : -1;
}

static int receives_none(void)
{
    char c;
    return (int)recv(fds[1], &c, 1, 0);
}

static int polls_for_none(void)
{
    struct pollfd polled = {fds[1], POLLIN, 0};
    return poll(&polled, 1, 100);
}

static int waits_for_signal(void)
{
    pthread_mutex_lock(&mutex);
    int result = pthread_cond_wait(&cond, &mutex);
    pthread_mutex_unlock(&mutex);
    return result == 0 ? 0 : -1;
}

static int waits_for_semaphore(void)
{
    return sem_wait(&semaphore);
}

static int (*const must_fail[])(void) = {
    sleeps_on,      sleeps_for_seconds, receives_none,
    polls_for_none, waits_for_signal,   waits_for_semaphore,
};

static void fails_again_and_again(void)
{
    for (size_t i = 0; i < ARRAY_SZ(must_fail); i++) {
        aco_task_t *other = aco_spawn(ticks, NULL);
        int ct_failures = 0;
        ct_ticks = 0;
        for (; ct_ticks < 20 && ct_failures < CT_MANY; ct_failures++) {
            CHECK(must_fail[i]() < 0);
        }
        if (ct_failures > 50) {
            print_error("kind %zu: %d failures\n", i, ct_failures);
        }
        CHECK(ct_failures <= 50);
        aco_shielded
        {
            CHECK(aco_join(other, NULL) == 0);
        }
    }
}

static void *fails_when_cancelled(void *arg)
{
    aco_task_cancel(aco_self());
    fails_again_and_again();
    return arg;
}

static void *fails_when_late(void *arg)
{
    aco_within(0)
    {
        fails_again_and_again();
    }
    return arg;
}

static void waits_that_must_fail_take_a_moment(void **state)
{
    (void)state;
    set_up();
    run_tasks(fails_when_cancelled, NULL);
    run_tasks(fails_when_late, NULL);
    tear_down();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_run_after_some_calls),
        cmocka_unit_test(waits_that_must_fail_take_a_moment),
    };
    return cmocka_run_group_tests_name("budget", tests, NULL, NULL);
}
