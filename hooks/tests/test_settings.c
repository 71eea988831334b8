// SPDX-License-Identifier: Apache-2.0
/*
 * Settings that hooks remember of descriptors: they seldom ask the kernel, and see each change that
 * the program makes. A change behind their back makes a call late at most.
 */
#define _GNU_SOURCE
#include "tasks.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CT_MESSAGES 1000

/* ==== How often the kernel is asked ========================================================== */

static int ct_asked;

/* Replaces libc's functions, also for the runtime, and counts calls. */
int getsockopt(int fd, int level, int option, void *value, socklen_t *sz)
{
    ct_asked++;
    return (int)syscall(SYS_getsockopt, fd, level, option, value, sz);
}

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
    ct_asked++;
    return (int)syscall(SYS_epoll_ctl, epoll, operation, fd, event);
}

static void *echoes(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char byte;
    while (read(fd, &byte, 1) == 1 && write(fd, &byte, 1) == 1) {
    }
    CHECK(close(fd) == 0);
    return NULL;
}

/* Calls ask seldom. Only waits of a second or more ask again. */
static void *asks_seldom(void *arg)
{
    int ends[2];
    char byte = 'x';
    struct pollfd polled;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(aco_go(echoes, (void *)(intptr_t)ends[1]) == 0);
    polled = (struct pollfd){ends[0], POLLIN, 0};
    ct_asked = 0;
    for (int i = 0; i < CT_MESSAGES; i++) {
        CHECK(write(ends[0], &byte, 1) == 1);
        CHECK(i % 2 == 0 || poll(&polled, 1, -1) == 1);
        CHECK(read(ends[0], &byte, 1) == 1);
    }
    CHECK(ct_asked < CT_MESSAGES / 4);
    CHECK(close(ends[0]) == 0);
    return arg;
}

static void test_asks_seldom(void **state)
{
    (void)state;
    run_tasks(asks_seldom, NULL);
}

/* ==== Changes ================================================================================ */

typedef struct {
    int ends[2], copy; /* of ends[0] */
} pair_t;

static void *sends(void *fd)
{
    CHECK(write((int)(intptr_t)fd, "x", 1) == 1);
    return NULL;
}

/* Makes a connection that a task has waited for, so that its settings are known. */
static pair_t connected(void)
{
    pair_t pair;
    char byte;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair.ends) == 0);
    pair.copy = dup(pair.ends[0]);
    CHECK(aco_go(sends, (void *)(intptr_t)pair.ends[1]) == 0);
    CHECK(read(pair.ends[0], &byte, 1) == 1);
    return pair;
}

static void close_all(const pair_t *pair)
{
    CHECK(close(pair->ends[0]) == 0 && close(pair->ends[1]) == 0 && close(pair->copy) == 0);
}

static void set_flags(int fd)
{
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
}

static void set_flag_only(int fd)
{
    int on = 1;
    CHECK(ioctl(fd, FIONBIO, &on) == 0);
}

static void *sets_by_thread(void *fd)
{
    set_flags((int)(intptr_t)fd);
    return NULL;
}

static void set_by_thread(int fd)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, sets_by_thread, (void *)(intptr_t)fd) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void (*const CHANGES[])(int fd) = {set_flags, set_flag_only, set_by_thread};

/* O_NONBLOCK is seen at once, also if it is set by a copy. If the call waited, it would fail with
 * ETIMEDOUT. */
static void *sees_nonblocking(void *arg)
{
    char byte;
    for (size_t i = 0; i < ARRAY_SZ(CHANGES); i++) {
        pair_t pair = connected();
        CHANGES[i](i % 2 == 0 ? pair.copy : pair.ends[0]);
        aco_within(1)
        {
            CHECK_FAILS(read(pair.ends[0], &byte, 1), EAGAIN);
        }
        close_all(&pair);
    }
    return arg;
}

/* A timeout is seen at once, and not only when the answers of the kernel are a second old, as some
 * are. It ends after the deadline if the machine was busy. */
static void *sees_timeout(void *arg)
{
    struct timeval t = {0, 1};
    char byte;
    int ct_seen = 0;
    for (int i = 0; i < 20; i++) {
        pair_t pair = connected();
        CHECK(setsockopt(pair.copy, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)) == 0);
        aco_within(100 * MS)
        {
            ct_seen += read(pair.ends[0], &byte, 1) < 0 && errno == EAGAIN;
        }
        close_all(&pair);
    }
    CHECK(ct_seen > 10);
    return arg;
}

static void *sets_and_sends(void *arg)
{
    const pair_t *pair = (const pair_t *)arg;
    set_flags(pair->ends[0]);
    CHECK(aco_sleep(1500 * MS) == 0); /* by then the wait was tried again */
    return sends((void *)(intptr_t)pair->ends[1]);
}

/* A call that already waits goes on, as in the kernel. */
static void *waits_on(void *arg)
{
    static pair_t pair; /* another task reads it: not on the stack */
    char byte;
    pair = connected();
    CHECK(aco_go(sets_and_sends, &pair) == 0);
    CHECK(read(pair.ends[0], &byte, 1) == 1);
    close_all(&pair);
    return arg;
}

/* A timeout counts from the start of the call, and does not end when it is asked for again. */
static void *times_out(void *arg)
{
    struct timeval t = {1, 400000};
    char byte;
    pair_t pair = connected();
    CHECK(setsockopt(pair.ends[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)) == 0);
    int64_t since = aco_now();
    CHECK_FAILS(read(pair.ends[0], &byte, 1), EAGAIN);
    CHECK(aco_now() - since >= 1400 * MS);
    close_all(&pair);
    return arg;
}

/* ==== Unseen changes ========================================================================= */

static void *changes_unseen(void *arg)
{
    char byte;
    pair_t pair = connected();
    CHECK(syscall(SYS_fcntl, pair.ends[0], F_SETFL, O_NONBLOCK) == 0);
    CHECK_FAILS(read(pair.ends[0], &byte, 1), EAGAIN);
    close_all(&pair);
    return arg;
}

/* Replaces the first end by `fd`, unseen. */
static void replace_unseen(const pair_t *pair, int fd)
{
    CHECK(fd >= 0 && syscall(SYS_dup3, fd, pair->ends[0], 0) == pair->ends[0]);
    CHECK(syscall(SYS_close, fd) == 0);
}

static void *is_replaced_by_nonblocking(void *arg)
{
    int other[2];
    char byte;
    pair_t pair = connected();
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, other) == 0);
    replace_unseen(&pair, other[0]);
    CHECK_FAILS(read(pair.ends[0], &byte, 1), EAGAIN);
    close_all(&pair);
    CHECK(close(other[1]) == 0);
    return arg;
}

static void *is_replaced_by_pipe(void *with_poll)
{
    int other[2];
    char byte;
    pair_t pair = connected();
    struct pollfd polled = {pair.ends[0], POLLIN, 0};
    CHECK(pipe(other) == 0);
    replace_unseen(&pair, other[0]);
    CHECK(aco_go(sends, (void *)(intptr_t)other[1]) == 0);
    CHECK(with_poll == NULL || poll(&polled, 1, -1) == 1);
    CHECK(read(pair.ends[0], &byte, 1) == 1);
    close_all(&pair);
    CHECK(close(other[1]) == 0);
    return NULL;
}

static void *polls_another(void *arg)
{
    static char yes;
    (void)arg;
    return is_replaced_by_pipe(&yes);
}

/* A file replaces a connection that the runtime knows to be read empty. It must not take that for
 * the file. */
static void *is_replaced_by_file(void *arg)
{
    struct sockaddr_storage address = {.ss_family = AF_INET};
    socklen_t sz = sizeof(address);
    char bytes[2];
    pair_t pair;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &sz) == 0);
    pair.ends[1] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(pair.ends[1], (struct sockaddr *)&address, sz) == 0);
    pair.ends[0] = accept(listener, NULL, NULL);
    pair.copy = listener;
    for (int i = 0; i < 2; i++) {
        CHECK(aco_go(sends, (void *)(intptr_t)pair.ends[1]) == 0);
        CHECK(read(pair.ends[0], bytes, 2) == 1);
    }
    replace_unseen(&pair, open("/proc/self/exe", O_RDONLY));
    CHECK(read(pair.ends[0], bytes, 1) == 1);
    close_all(&pair);
    return arg;
}

/* ==== Together =============================================================================== */

static void *(*const WAITING[])(void *) = {waits_on, times_out, NULL};
/* These make no change that hooks can see, which would make them ask again for all descriptors. */
static void *(*const UNSEEN[])(void *) = {changes_unseen,      is_replaced_by_nonblocking,
                                          is_replaced_by_pipe, polls_another,
                                          is_replaced_by_file, NULL};

static void *run_all(void *tasks)
{
    aco_group_t *group = aco_group_new();
    for (void *(*const *fn)(void *) = (void *(*const *)(void *))tasks; *fn != NULL; fn++) {
        CHECK(aco_group_go(group, *fn, NULL) == 0);
    }
    aco_within(100000 * MS)
    {
        CHECK(aco_group_join(group) == 0);
    }
    return tasks;
}

static void test_changes(void **state)
{
    (void)state;
    run_tasks(sees_nonblocking, NULL);
    run_tasks(sees_timeout, NULL);
    run_tasks(run_all, (void *)(uintptr_t)WAITING);
}

static void test_unseen(void **state)
{
    (void)state;
    run_tasks(run_all, (void *)(uintptr_t)UNSEEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asks_seldom),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_unseen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
