// SPDX-License-Identifier: Apache-2.0
/*
 * Sockets that others share, threads or processes: accept4() does not wait when somebody else took
 * the connection, and connect() leaves O_NONBLOCK alone. The runtime's own ring for that is closed
 * at its end, and does without where the program closes it.
 */
// build: -Wl,--wrap=syscall
#define _GNU_SOURCE
#include "tasks.h"

#include "sched/fds.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int ct_sets;              /* of O_NONBLOCK */
static int ct_taken, ct_to_take; /* connections that somebody else accepts */

/* ==== Shared things =========================================================================== */

/* Accepts what it reports, as another process might. */
static int poll_and_take(struct pollfd *fds, nfds_t ct, int timeout)
{
    int result = poll(fds, ct, timeout);
    if (ct == 1 && result > 0 && (fds->revents & POLLIN) != 0 && ct_taken < ct_to_take) {
        int fd = accept4(fds->fd, NULL, NULL, SOCK_CLOEXEC);
        CHECK(fd >= 0 && close(fd) == 0);
        ct_taken++;
    }
    return result;
}

static int fcntl_and_count(int fd, int command, ...)
{
    va_list rest;
    va_start(rest, command);
    long arg = va_arg(rest, long);
    va_end(rest);
    ct_sets += command == F_SETFL;
    return fcntl(fd, command, arg);
}

static int is_ring_refused, ct_ring_calls;

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
#ifdef SYS_io_uring_setup
    ct_ring_calls += number == SYS_io_uring_setup || number == SYS_io_uring_enter;
    if (number == SYS_io_uring_setup && is_ring_refused) {
        errno = EPERM;
        return -1;
    }
#endif
    return __real_syscall(number, a, b, c, d, e, f);
}

static void skip_without_io_uring(void)
{
#ifdef SYS_io_uring_setup
    char params[120] = {0};
    int fd = (int)syscall(SYS_io_uring_setup, 2, params);
    if (fd >= 0) {
        assert_int_equal(close(fd), 0);
        return;
    }
#endif
    skip();
}

/* Returns a listener whose queue is short, and its address. */
static int listen_at(int family, struct sockaddr_storage *addr, socklen_t *addr_sz)
{
    memset(addr, 0, sizeof(*addr));
    addr->ss_family = (sa_family_t)family;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (family == AF_INET) {
        ((struct sockaddr_in *)addr)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        *addr_sz = sizeof(struct sockaddr_in);
    } else { /* the kernel chooses a name */
        *addr_sz = sizeof(sa_family_t);
    }
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)addr, *addr_sz) == 0 && listen(fd, 1) == 0);
    *addr_sz = sizeof(*addr);
    CHECK(getsockname(fd, (struct sockaddr *)addr, addr_sz) == 0);
    return fd;
}

static int connect_to(const struct sockaddr_storage *addr, socklen_t addr_sz)
{
    int fd = socket(addr->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    int result = aco_connect(fd, (const struct sockaddr *)addr, addr_sz), error = errno;
    CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) == 0);
    if (result != 0) {
        CHECK(aco_close(fd) == 0);
        errno = error;
        return -1;
    }
    return fd;
}

/* ==== Accepting ============================================================================== */

static struct {
    struct sockaddr_storage addr;
    socklen_t addr_sz;
    int listener;
} shared;

static void *accepts_and_closes(void *arg)
{
    struct sockaddr_storage addr;
    socklen_t addr_sz = sizeof(addr);
    int fd = aco_accept4(shared.listener, (struct sockaddr *)&addr, &addr_sz, SOCK_CLOEXEC);
    CHECK(fd >= 0 && addr.ss_family == shared.addr.ss_family);
    CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 && (fcntl(fd, F_GETFL) & O_NONBLOCK) == 0);
    CHECK(aco_close(fd) == 0);
    return arg;
}

static void *loses_races(void *arg)
{
    shared.listener = listen_at(*(int *)arg, &shared.addr, &shared.addr_sz);
    ct_taken = 0;
    ct_to_take = 3;
    aco_task_t *acceptor = aco_spawn(accepts_and_closes, NULL);
    for (int i = 0; i <= ct_to_take; i++) {
        int fd = connect_to(&shared.addr, shared.addr_sz);
        CHECK(fd >= 0);
        while (ct_taken <= i && ct_taken < ct_to_take) {
            CHECK(aco_sleep(MS) == 0);
        }
        CHECK(aco_close(fd) == 0);
    }
    CHECK(aco_join(acceptor, NULL) == 0);
    CHECK((fcntl(shared.listener, F_GETFL) & O_NONBLOCK) == 0);
    CHECK(aco_close(shared.listener) == 0);
    return arg;
}

static void test_lost_races(void **state)
{
    int family = AF_INET;
    (void)state;
    skip_without_io_uring();
    aco_i_libc.poll = poll_and_take;
    run_tasks(loses_races, &family);
    family = AF_UNIX;
    run_tasks(loses_races, &family);
    aco_i_libc.poll = poll;
}

/* ==== Connecting ============================================================================= */

static void *accepts_two(void *arg)
{
    CHECK(aco_sleep(5 * MS) == 0);
    accepts_and_closes(NULL);
    accepts_and_closes(NULL);
    return arg;
}

/* Connects to a queue that gets full: two more wait in it than listen() was told. */
static void *connects(void *arg)
{
    int fds[3];
    shared.listener = listen_at(*(int *)arg, &shared.addr, &shared.addr_sz);
    for (int i = 0; i < 2; i++) {
        CHECK((fds[i] = connect_to(&shared.addr, shared.addr_sz)) >= 0);
    }
    aco_within(5 * MS)
    {
        CHECK_FAILS(connect_to(&shared.addr, shared.addr_sz), ETIMEDOUT);
    }
    aco_task_t *acceptor = aco_spawn(accepts_two, NULL);
    CHECK((fds[2] = connect_to(&shared.addr, shared.addr_sz)) >= 0);
    CHECK_FAILS(aco_connect(fds[2], (struct sockaddr *)&shared.addr, shared.addr_sz), EISCONN);
    CHECK(aco_join(acceptor, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(aco_close(fds[i]) == 0);
    }
    CHECK(aco_close(shared.listener) == 0);
    CHECK_FAILS(connect_to(&shared.addr, shared.addr_sz), ECONNREFUSED);
    return arg;
}

static void test_connect(void **state)
{
    int family = AF_INET;
    (void)state;
    skip_without_io_uring();
    aco_i_libc.fcntl = fcntl_and_count;
    run_tasks(connects, &family);
    family = AF_UNIX;
    run_tasks_on(2, connects, &family);
    aco_i_libc.fcntl = fcntl;
    assert_int_equal(ct_sets, 0);
}

/* Others that ask for O_NONBLOCK must wait for the lock meanwhile. */
static int connect_nonblocking(int fd, const struct sockaddr *addr, socklen_t addr_sz)
{
    CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    CHECK(!aco_i_try_to_lock(&aco_i_fd(fd)->lock));
    return connect(fd, addr, addr_sz);
}

static void test_connect_without_ring(void **state)
{
    int family = AF_INET;
    (void)state;
    is_ring_refused = 1;
    aco_i_libc.connect = connect_nonblocking;
    run_tasks(connects, &family);
    family = AF_UNIX;
    run_tasks_on(2, connects, &family);
    aco_i_libc.connect = connect;
    is_ring_refused = 0;
}

/* ==== The ring =============================================================================== */

/* Returns a descriptor of io_uring that the process has, or -1. */
static int find_ring(void)
{
    char path[64], target[64];
    int found = -1;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/self/fd/%.20s", entry->d_name);
        ssize_t sz = readlink(path, target, sizeof(target) - 1);
        target[sz < 0 ? 0 : sz] = '\0';
        found = strstr(target, "io_uring") != NULL ? atoi(entry->d_name) : found;
    }
    assert_int_equal(closedir(folder), 0);
    return found;
}

static void *makes_ring(void *arg)
{
    shared.listener = listen_at(AF_UNIX, &shared.addr, &shared.addr_sz);
    int fd = connect_to(&shared.addr, shared.addr_sz);
    CHECK(fd >= 0);
    accepts_and_closes(NULL);
    CHECK(aco_close(fd) == 0);
    *(int *)arg = find_ring();
    CHECK(*(int *)arg >= 0);
    return arg;
}

static void *forks(void *arg)
{
    int status = 0;
    makes_ring(arg);
    pid_t child = fork();
    if (child == 0) {
        _exit(find_ring() < 0 ? 0 : 1);
    }
    CHECK(aco_waitpid(child, &status, 0) == child && status == 0);
    CHECK(aco_close(shared.listener) == 0);
    return arg;
}

static void test_end_of_ring(void **state)
{
    int ring;
    (void)state;
    skip_without_io_uring();
    run_tasks(forks, &ring);
    assert_int_equal(find_ring(), -1);
}

/* Closes the ring, and puts another file in its place. */
static void *loses_ring(void *arg)
{
    makes_ring(arg);
    int ring = *(int *)arg, other = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(other >= 0 && dup3(other, ring, O_CLOEXEC) == ring);
    for (int i = 0; i < 3; i++) {
        int fd = connect_to(&shared.addr, shared.addr_sz);
        CHECK(fd >= 0);
        accepts_and_closes(NULL);
        CHECK(aco_close(fd) == 0);
    }
    CHECK(aco_close(other) == 0 && aco_close(shared.listener) == 0);
    return arg;
}

static void test_lost_ring(void **state)
{
    int ring;
    (void)state;
    skip_without_io_uring();
    run_tasks(loses_ring, &ring);
    assert_int_equal(close(ring), 0); /* the runtime has not */
}

/* ==== Signals ================================================================================ */

#define GIVE_UP 60 /* s */

static int ct_looks;

static int is_ended_by_a_signal(struct pollfd *fds, nfds_t ct, int timeout)
{
    if (timeout == 0 && ct_looks++ % 2 == 0) {
        errno = EINTR;
        return -1;
    }
    return poll(fds, ct, timeout);
}

/* The look at a listener says nothing then. An accept4() would hold up the thread. */
static void *accepts_in_vain(void *arg)
{
    struct sockaddr_storage addr;
    socklen_t addr_sz;
    int listener = listen_at(AF_INET, &addr, &addr_sz);
    aco_within(5 * MS)
    {
        CHECK_FAILS(aco_accept4(listener, NULL, NULL, SOCK_CLOEXEC), ETIMEDOUT);
    }
    int fd = connect_to(&addr, addr_sz);
    struct pollfd polled = {listener, POLLIN, 0};
    errno = 0;
    CHECK(aco_poll(&polled, 1, -1) == 1 && polled.revents == POLLIN && errno == 0);
    CHECK(aco_close(fd) == 0 && aco_close(listener) == 0);
    return arg;
}

static void test_interrupted_looks(void **state)
{
    (void)state;
    aco_i_libc.poll = is_ended_by_a_signal;
    alarm(GIVE_UP);
    run_tasks(accepts_in_vain, NULL);
    alarm(0);
    aco_i_libc.poll = poll;
    assert_true(ct_looks > 2);
}

/* Others can't know the listener, so nothing is asked of a ring. */
static void *accepts_from_its_own(void *arg)
{
    struct sockaddr_in in;
    socklen_t sz = sizeof(in);
    char address[32];
    int listener = aco_listen("tcp4", "127.0.0.1:0");
    CHECK(getsockname(listener, (struct sockaddr *)&in, &sz) == 0);
    snprintf(address, sizeof(address), "127.0.0.1:%d", ntohs(in.sin_port));
    ct_ring_calls = 0;
    int client = aco_dial("tcp", address), fd = aco_accept4(listener, NULL, NULL, 0);
    CHECK(client >= 0 && fd >= 0 && ct_ring_calls == 0);
    CHECK(aco_close(client) == 0 && aco_close(fd) == 0 && aco_close(listener) == 0);
    return arg;
}

static void test_own_listener(void **state)
{
    (void)state;
    run_tasks(accepts_from_its_own, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_listener),         cmocka_unit_test(test_interrupted_looks),
        cmocka_unit_test(test_lost_races),           cmocka_unit_test(test_connect),
        cmocka_unit_test(test_end_of_ring),          cmocka_unit_test(test_lost_ring),
        cmocka_unit_test(test_connect_without_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
