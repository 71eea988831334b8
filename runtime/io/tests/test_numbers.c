// SPDX-License-Identifier: Apache-2.0
/*
 * Descriptors behind the runtime's back: flags that change between calls, numbers that get another
 * file by close(2) and dup2(2), and no number left.
 */
// build: -Wl,--wrap=preadv2,--wrap=pwritev2
#define _GNU_SOURCE
#include "tasks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#define BIG ((size_t)1 << 21) /* bytes, more than a socket holds */
#define GIVE_UP 60            /* s after which a thread that waits is killed */

static int has_no_nowait; /* as Linux before 6.5 for pipes and sockets */

ssize_t __real_preadv2(int fd, const struct iovec *iov, int ct, off_t offset, int flags);
ssize_t __wrap_preadv2(int fd, const struct iovec *iov, int ct, off_t offset, int flags);
ssize_t __wrap_preadv2(int fd, const struct iovec *iov, int ct, off_t offset, int flags)
{
    errno = EOPNOTSUPP;
    return has_no_nowait ? -1 : __real_preadv2(fd, iov, ct, offset, flags);
}

ssize_t __real_pwritev2(int fd, const struct iovec *iov, int ct, off_t offset, int flags);
ssize_t __wrap_pwritev2(int fd, const struct iovec *iov, int ct, off_t offset, int flags);
ssize_t __wrap_pwritev2(int fd, const struct iovec *iov, int ct, off_t offset, int flags)
{
    errno = EOPNOTSUPP;
    return has_no_nowait ? -1 : __real_pwritev2(fd, iov, ct, offset, flags);
}

static void make_pair(int fds[2])
{
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
}

static void close_all(const int *fds, size_t ct)
{
    for (size_t i = 0; i < ct; i++) {
        CHECK(aco_close(fds[i]) == 0);
    }
}

/* ==== Flags ================================================================================== */

static void *reads_byte(void *arg)
{
    char byte;
    CHECK(aco_read((int)(intptr_t)arg, &byte, 1) == 1);
    return NULL;
}

/* Waits for a byte, as a blocking descriptor lets it. */
static void wait_for_byte(int fds[2])
{
    aco_task_t *task = aco_spawn(reads_byte, (void *)(intptr_t)fds[0]);
    aco_yield();
    CHECK(write(fds[1], "x", 1) == 1);
    CHECK(aco_join(task, NULL) == 0);
}

static void *changes_flags(void *arg)
{
    int fds[2];
    char byte;
    struct timeval soon = {0, 1000}, never = {0, 0};
    make_pair(fds);
    for (int round = 0; round < 2; round++) {
        wait_for_byte(fds);
        CHECK(fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0);
        CHECK_FAILS(aco_read(fds[0], &byte, 1), EAGAIN);
        CHECK(fcntl(fds[0], F_SETFL, 0) == 0);
        wait_for_byte(fds);
        CHECK(setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)) == 0);
        CHECK_FAILS(aco_read(fds[0], &byte, 1), EAGAIN);
        CHECK(setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &never, sizeof(never)) == 0);
    }
    close_all(fds, 2);
    return arg;
}

static void flags_count_from_call_to_call(void **state)
{
    (void)state;
    run_tasks(changes_flags, NULL);
}

/* ==== Numbers ================================================================================ */

static void *fails_by_closing(void *arg)
{
    char byte;
    CHECK_FAILS(aco_read((int)(intptr_t)arg, &byte, 1), EBADF);
    return NULL;
}

/* Who waits for the former file does not read from the new one. */
static void *waits_for_a_reused_number(void *arg)
{
    int former[2], pair[2], number;
    make_pair(former);
    make_pair(pair);
    number = former[0];
    aco_task_t *outdated = aco_spawn(fails_by_closing, (void *)(intptr_t)number);
    aco_yield();
    CHECK(dup2(pair[0], number) == number); /* and closes the former file */
    aco_task_t *task = aco_spawn(reads_byte, (void *)(intptr_t)number);
    aco_yield();
    CHECK(write(pair[1], "x", 1) == 1);
    CHECK(aco_join(task, NULL) == 0);
    CHECK(aco_join(outdated, NULL) == 0);
    close_all(former, 2);
    close_all(pair, 2);
    return arg;
}

static void *reads_big(void *arg)
{
    char *bytes = (char *)malloc(BIG);
    CHECK(aco_read_all((int)(intptr_t)arg, bytes, BIG) == (ssize_t)BIG);
    free(bytes);
    return NULL;
}

/* What was a pipe is a socket, of which a thread would wait until all is sent. */
static void *writes_to_a_reused_number(void *arg)
{
    int fds[2], pair[2];
    char *bytes = (char *)calloc(1, BIG);
    CHECK(pipe2(fds, O_CLOEXEC) == 0);
    CHECK(aco_write(fds[1], "x", 1) == 1); /* so it is known to be no socket */
    make_pair(pair);
    CHECK(dup2(pair[1], fds[1]) == fds[1]);
    aco_task_t *task = aco_spawn(reads_big, (void *)(intptr_t)pair[0]);
    CHECK(aco_write_all(fds[1], bytes, BIG) == (ssize_t)BIG);
    CHECK(aco_join(task, NULL) == 0);
    close_all(fds, 2);
    close_all(pair, 2);
    free(bytes);
    return arg;
}

/* What was a TCP connection, of which it is known that all was read, is a pipe. */
static void *reads_from_a_reused_number(void *arg)
{
    int listener = aco_listen("tcp", "127.0.0.1:0"), fds[2], ends[2];
    char name[64], bytes[2];
    struct sockaddr_in in;
    socklen_t sz = sizeof(in);
    CHECK(listener >= 0 && getsockname(listener, (struct sockaddr *)&in, &sz) == 0);
    snprintf(name, sizeof(name), "127.0.0.1:%d", ntohs(in.sin_port));
    fds[0] = aco_dial("tcp", name);
    fds[1] = aco_accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(fds[0] >= 0 && fds[1] >= 0);
    for (int i = 0; i < 2; i++) {
        CHECK(aco_write(fds[!i], "x", 1) == 1);
        CHECK(aco_read(fds[i], bytes, 2) == 1);
    }
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    CHECK(dup2(ends[0], fds[0]) == fds[0] && dup2(ends[1], fds[1]) == fds[1]);
    CHECK(aco_write(fds[1], "y", 1) == 1);
    CHECK(aco_read(fds[0], bytes, 2) == 1 && bytes[0] == 'y');
    close_all(ends, 2);
    close_all(fds, 2);
    CHECK(aco_close(listener) == 0);
    return arg;
}

static void a_reused_number_is_a_new_file(void **state)
{
    (void)state;
    run_tasks(waits_for_a_reused_number, NULL);
    run_tasks(reads_from_a_reused_number, NULL);
    for (has_no_nowait = 0; has_no_nowait < 2; has_no_nowait++) {
        run_tasks(writes_to_a_reused_number, NULL);
    }
    has_no_nowait = 0;
}

/* ==== No number ============================================================================== */

static void *lacks_numbers(void *arg)
{
    struct rlimit limit, none;
    int free_number = dup(STDERR_FILENO);
    CHECK(free_number >= 0 && close(free_number) == 0);
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = limit;
    none.rlim_cur = (rlim_t)free_number;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK_FAILS(aco_dial("tcp", "localhost:9"), EMFILE);
    CHECK_FAILS(aco_dial("tcp", "127.0.0.1:9"), EMFILE);
    CHECK_FAILS(aco_dial("tcp", "127.0.0.1:discard"), EMFILE);
    CHECK_FAILS(aco_dial("unix", "/nonexistent"), EMFILE);
    CHECK_FAILS(aco_listen("tcp", "localhost:0"), EMFILE);
    CHECK_FAILS(aco_listen("tcp", "127.0.0.1:0"), EMFILE);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int fd = aco_listen("tcp", "localhost:0");
    CHECK(fd >= 0 && aco_close(fd) == 0);
    return arg;
}

static void a_missing_number_is_told(void **state)
{
    (void)state;
    run_tasks(lacks_numbers, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_count_from_call_to_call),
        cmocka_unit_test(a_reused_number_is_a_new_file),
        cmocka_unit_test(a_missing_number_is_told),
    };
    alarm(GIVE_UP);
    return cmocka_run_group_tests_name("numbers", tests, NULL, NULL);
}
