// SPDX-License-Identifier: Apache-2.0
/*
 * Calls that receive from a stream and return only when more than the first bytes have come: by
 * SO_RCVLOWAT, or by MSG_WAITALL with control data.
 */
#define _GNU_SOURCE
#include "threads.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int ends[2]; /* the first one receives */
static char bytes[64];

static void open_tcp(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr *a = (struct sockaddr *)&addr;
    socklen_t sz = sizeof(addr);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ends[1] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listener >= 0 && ends[1] >= 0 && bind(listener, a, sz) == 0);
    CHECK(listen(listener, 1) == 0 && getsockname(listener, a, &sz) == 0);
    CHECK(connect(ends[1], a, sz) == 0);
    ends[0] = accept(listener, NULL, NULL);
    CHECK(ends[0] >= 0 && close(listener) == 0);
}

static void open_unix(void)
{
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
}

static void (*const OPENINGS[])(void) = {open_tcp, open_unix};

static void close_ends(void)
{
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void set_option(int option, int value)
{
    CHECK(setsockopt(ends[0], SOL_SOCKET, option, &value, sizeof(value)) == 0);
}

static void send_bytes(size_t sz)
{
    CHECK(send(ends[1], bytes, sz, 0) == (ssize_t)sz);
}

/* ==== Low water marks ======================================================================== */

#define MARK 25

static ssize_t by_read(char *buf, size_t sz)
{
    return read(ends[0], buf, sz);
}

static ssize_t by_readv(char *buf, size_t sz)
{
    struct iovec iov[2] = {{buf, 4}, {buf + 4, sz - 4}};
    return readv(ends[0], iov, 2);
}

static ssize_t by_recv(char *buf, size_t sz)
{
    return recv(ends[0], buf, sz, 0);
}

static ssize_t by_recvmsg(char *buf, size_t sz)
{
    struct iovec iov[2] = {{buf, 4}, {buf + 4, sz - 4}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    return recvmsg(ends[0], &msg, 0);
}

static ssize_t (*const CALLS[])(char *buf, size_t sz) = {by_read, by_readv, by_recv, by_recvmsg};

static void *sends_rest(void *arg)
{
    int *has_sent = (int *)arg;
    let_run();
    *has_sent = 1;
    send_bytes(30);
    return NULL;
}

/* Ten bytes are there, and thirty come once the caller waits: TCP wakes nobody for fewer than the
 * mark. */
static void *waits_for_mark(void *arg)
{
    static int has_sent; /* another task writes it: not on the stack */
    for (size_t i = 0; i < ARRAY_SZ(OPENINGS) * ARRAY_SZ(CALLS); i++) {
        char buf[64];
        OPENINGS[i % 2]();
        has_sent = 0;
        set_option(SO_RCVLOWAT, MARK);
        send_bytes(10);
        CHECK(aco_go(sends_rest, &has_sent) == 0);
        CHECK(CALLS[i / 2](buf, sizeof(buf)) == 40 && has_sent);
        send_bytes(10);
        CHECK(CALLS[i / 2](buf, 10) == 10); /* no more than asked for */
        send_bytes(10);
        CHECK(shutdown(ends[1], SHUT_WR) == 0);
        CHECK(CALLS[i / 2](buf, sizeof(buf)) == 10); /* no more can come */
        close_ends();
    }
    return arg;
}

/* Calls that may not wait, or not for long, return what is there. */
static void *returns_less(void *arg)
{
    struct timeval t = {0, 1};
    char buf[64];
    for (size_t i = 0; i < ARRAY_SZ(OPENINGS); i++) {
        OPENINGS[i]();
        set_option(SO_RCVLOWAT, MARK);
        send_bytes(10);
        CHECK(recv(ends[0], buf, sizeof(buf), MSG_DONTWAIT) == 10);
        send_bytes(10);
        CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)) == 0);
        CHECK(read(ends[0], buf, sizeof(buf)) == 10);
        CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
        send_bytes(10);
        CHECK(read(ends[0], buf, sizeof(buf)) == 10);
        close_ends();
    }
    return arg;
}

static void low_water_marks_count(void **state)
{
    (void)state;
    run_tasks(waits_for_mark, NULL);
    run_tasks(returns_less, NULL);
}

/* ==== Control data =========================================================================== */

typedef union {
    struct cmsghdr header;
    char bytes[256];
} control_t;

static control_t control;

/* Receives up to `sz` bytes; returns the type of the control data, or -1. */
static int receive_all(size_t sz, ssize_t expected)
{
    static char buf[64];
    struct iovec iov = {buf, sz};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control};
    msg.msg_controllen = sizeof(control);
    CHECK(recvmsg(ends[0], &msg, MSG_WAITALL) == expected);
    return msg.msg_controllen != 0 ? control.header.cmsg_type : -1;
}

static void send_descriptor(size_t sz)
{
    control_t c = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec iov = {bytes, sz};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c};
    msg.msg_controllen = CMSG_SPACE(sizeof(int));
    c.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&c.header), &ends[1], sizeof(int));
    CHECK(sendmsg(ends[1], &msg, 0) == (ssize_t)sz);
}

static void *sends_descriptor(void *arg)
{
    let_run();
    send_descriptor(8);
    send_bytes(8);
    return arg;
}

static void *receives_descriptor(void *arg)
{
    int fd;
    open_unix();
    send_bytes(8);
    CHECK(aco_go(sends_descriptor, NULL) == 0);
    CHECK(receive_all(32, 16) == SCM_RIGHTS);
    memcpy(&fd, CMSG_DATA(&control.header), sizeof(int));
    CHECK(close(fd) == 0);
    CHECK(receive_all(8, 8) == -1);
    close_ends();
    return arg;
}

/* The number that the next file gets. */
static int next_number(void)
{
    int fd = dup(STDERR_FILENO);
    CHECK(fd >= 0 && close(fd) == 0);
    return fd;
}

/* Calls without room for a descriptor end there, too, and drop it. */
static void *receives_without_it(void *with_sender)
{
    char buf[32];
    struct iovec iov = {buf, sizeof(buf)};
    struct sockaddr_storage address;
    for (int i = 0; i < 4; i++) {
        socklen_t sz = sizeof(address);
        open_unix();
        int next = next_number();
        set_option(SO_PASSCRED, with_sender != NULL);
        set_option(SO_RCVLOWAT, i < 2 ? 1 : 32);
        send_bytes(8);
        CHECK(aco_go(sends_descriptor, NULL) == 0);
        CHECK((i == 0   ? recv(ends[0], buf, 32, MSG_WAITALL)
               : i == 1 ? recvfrom(ends[0], buf, 32, MSG_WAITALL, (struct sockaddr *)&address, &sz)
               : i == 2 ? read(ends[0], buf, 32)
                        : readv(ends[0], &iov, 1)) == 16);
        set_option(SO_RCVLOWAT, 1);
        CHECK(recv(ends[0], buf, 8, MSG_WAITALL) == 8 && (i != 1 || sz == 0));
        CHECK(next_number() == next);
        close_ends();
    }
    return NULL;
}

static void *sends_in_parts(void *arg)
{
    for (int i = 0; i < 3; i++) {
        let_run();
        send_bytes(5);
    }
    return arg;
}

static void *receives_in_parts(void *arg)
{
    for (size_t i = 0; i < ARRAY_SZ(OPENINGS); i++) {
        int is_unix = OPENINGS[i] == open_unix;
        OPENINGS[i]();
        set_option(is_unix ? SO_PASSCRED : SO_TIMESTAMP, 1);
        send_bytes(5);
        CHECK(aco_go(sends_in_parts, NULL) == 0);
        int type = receive_all(20, 20); /* the kernel begins to note times a little later */
        CHECK(is_unix ? type == SCM_CREDENTIALS : type == SO_TIMESTAMP || type == -1);
        close_ends();
    }
    return arg;
}

/* The kernel does not join the bytes of two senders. */
static void *receives_from_two(void *arg)
{
    open_unix();
    set_option(SO_PASSCRED, 1);
    send_bytes(5);
    pid_t child = fork();
    if (child == 0) {
        _exit(write(ends[1], bytes, 5) != 5);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (int i = 0; i < 2; i++) {
        struct ucred sender;
        CHECK(receive_all(10 - 5 * (size_t)i, 5) == SCM_CREDENTIALS);
        memcpy(&sender, CMSG_DATA(&control.header), sizeof(sender));
        CHECK((sender.pid == child) == i);
    }
    close_ends();
    return arg;
}

static void control_data_comes_along(void **state)
{
    (void)state;
    run_tasks(receives_descriptor, NULL);
    run_tasks(receives_without_it, NULL);
    run_tasks(receives_without_it, "a sender");
    run_tasks(receives_in_parts, NULL);
    run_tasks(receives_from_two, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(low_water_marks_count),
        cmocka_unit_test(control_data_comes_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
