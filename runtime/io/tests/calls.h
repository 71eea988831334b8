// SPDX-License-Identifier: Apache-2.0
/*
 * Calls for input and output, each in several forms: a thread makes them by libc, a task by the
 * runtime. For test_kernel.c.
 */
#ifndef ACO_TESTS_CALLS_H
#define ACO_TESTS_CALLS_H

#include "aco_runtime.h"
#include "kinds.h"

#include <sys/sendfile.h>

#define BIG 200000   /* bytes; more than any descriptor here holds */
#define TIMEOUT_MS 2 /* of SO_RCVTIMEO and SO_SNDTIMEO */
#define ARRAY_SZ(array) (sizeof(array) / sizeof((array)[0]))

/* ==== Calls ================================================================================== */

/* One set of calls: libc's or the runtime's. */
typedef struct {
    ssize_t (*read)(int, void *, size_t);
    ssize_t (*readv)(int, const struct iovec *, int);
    ssize_t (*recv)(int, void *, size_t, int);
    ssize_t (*recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
    ssize_t (*recvmsg)(int, struct msghdr *, int);
    ssize_t (*write)(int, const void *, size_t);
    ssize_t (*writev)(int, const struct iovec *, int);
    ssize_t (*send)(int, const void *, size_t, int);
    ssize_t (*sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    ssize_t (*sendmsg)(int, const struct msghdr *, int);
    ssize_t (*sendfile)(int, int, int64_t *, size_t);
    ssize_t (*pread)(int, void *, size_t, int64_t);
    ssize_t (*pwrite)(int, const void *, size_t, int64_t);
    int (*accept4)(int, struct sockaddr *, socklen_t *, int);
    int (*connect)(int, const struct sockaddr *, socklen_t);
    int (*poll)(struct pollfd *, nfds_t, int);
    int (*wait_fd)(int, int);
    int (*shutdown)(int, int);
    int (*fsync)(int);
    int (*close)(int);
} api_t;

static ssize_t thread_sendfile(int fd, int in, int64_t *offset, size_t sz)
{
    return sendfile64(fd, in, offset, sz);
}

static ssize_t thread_pread(int fd, void *buf, size_t sz, int64_t offset)
{
    return pread64(fd, buf, sz, offset);
}

static ssize_t thread_pwrite(int fd, const void *buf, size_t sz, int64_t offset)
{
    return pwrite64(fd, buf, sz, offset);
}

/* Does what aco_wait_fd() promises. */
static int thread_wait_fd(int fd, int events)
{
    struct pollfd polled = {fd, (short)events, 0};
    if (poll(&polled, 1, -1) < 0 || (polled.revents & POLLNVAL) != 0) {
        errno = EBADF;
        return -1;
    }
    return polled.revents;
}

static const api_t of_thread = {
    read,    readv,  recv,           recvfrom,        recvmsg,      write,         writev,
    send,    sendto, sendmsg,        thread_sendfile, thread_pread, thread_pwrite, accept4,
    connect, poll,   thread_wait_fd, shutdown,        fsync,        close};
static const api_t of_task = {aco_read,     aco_readv,   aco_recv,     aco_recvfrom, aco_recvmsg,
                              aco_write,    aco_writev,  aco_send,     aco_sendto,   aco_sendmsg,
                              aco_sendfile, aco_pread,   aco_pwrite,   aco_accept4,  aco_connect,
                              aco_poll,     aco_wait_fd, aco_shutdown, aco_fsync,    aco_close};

/* The results of a call, besides its return value. */
typedef struct {
    char bytes[512];
    long more; /* an address, flags or events */
} seen_t;

static char big[BIG]; /* BIG bytes to send */
static void *const nowhere = (void *)16;

#define CALL(name, ...)                                                                            \
    static ssize_t name(const api_t *api, const ends_t *ends, seen_t *seen)                        \
    {                                                                                              \
        (void)ends, (void)seen;                                                                    \
        return __VA_ARGS__;                                                                        \
    }

CALL(read_some, api->read(ends->fd, seen->bytes, 256))
CALL(read_3, api->read(ends->fd, seen->bytes, 3))
CALL(read_0, api->read(ends->fd, seen->bytes, 0))
CALL(read_nowhere, api->read(ends->fd, nowhere, 256))
CALL(readv_some,
     api->readv(ends->fd, (struct iovec[]){{seen->bytes, 2}, {NULL, 0}, {seen->bytes + 2, 300}}, 3))
CALL(readv_0, api->readv(ends->fd, (struct iovec[]){{NULL, 0}}, 1))
CALL(readv_less, api->readv(ends->fd, NULL, -1))
CALL(recv_some, api->recv(ends->fd, seen->bytes, 256, 0))
CALL(recv_0, api->recv(ends->fd, seen->bytes, 0, 0))
CALL(recv_nowhere, api->recv(ends->fd, nowhere, 256, 0))
CALL(recv_peek, api->recv(ends->fd, seen->bytes, 256, MSG_PEEK))
CALL(recv_at_once, api->recv(ends->fd, seen->bytes, 256, MSG_DONTWAIT))
CALL(recv_all, api->recv(ends->fd, seen->bytes, 8, MSG_WAITALL))
CALL(recv_truncated, api->recv(ends->fd, seen->bytes, 3, MSG_TRUNC))
CALL(recv_urgent, api->recv(ends->fd, seen->bytes, 1, MSG_OOB))
CALL(recv_errors, api->recv(ends->fd, seen->bytes, 1, MSG_ERRQUEUE))
CALL(write_some, api->write(ends->fd, "some", 4))
CALL(write_0, api->write(ends->fd, "some", 0))
CALL(write_nowhere, api->write(ends->fd, nowhere, 4))
CALL(write_8, api->write(ends->fd, "\1\0\0\0\0\0\0", 8)) /* also a count of an eventfd */
CALL(write_big, api->write(ends->fd, big, BIG))
CALL(writev_some,
     api->writev(ends->fd, (struct iovec[]){{big, 2}, {NULL, 0}, {(char *)big + 2, 3}}, 3))
CALL(writev_0, api->writev(ends->fd, (struct iovec[]){{NULL, 0}}, 1))
CALL(writev_big, api->writev(ends->fd, (struct iovec[]){{big, 7}, {(char *)big + 7, BIG - 7}}, 2))
CALL(send_some, api->send(ends->fd, "some", 4, MSG_NOSIGNAL))
CALL(send_0, api->send(ends->fd, "some", 0, MSG_NOSIGNAL))
CALL(send_nowhere, api->send(ends->fd, nowhere, 4, 0))
CALL(send_at_once, api->send(ends->fd, big, BIG, MSG_DONTWAIT))
CALL(send_big, api->send(ends->fd, big, BIG, 0))
CALL(sendto_some,
     api->sendto(ends->fd, "some", 4, 0, (const struct sockaddr *)&ends->addr, ends->addr_sz))
CALL(sendto_at_once, api->sendto(ends->fd, "some", 4, MSG_DONTWAIT,
                                 (const struct sockaddr *)&ends->addr, ends->addr_sz))
CALL(sendmsg_some, api->sendmsg(ends->fd,
                                &(struct msghdr){.msg_iov = (struct iovec[]){{big, 3}, {big, 4}},
                                                 .msg_iovlen = 2},
                                0))
CALL(sendmsg_0, api->sendmsg(ends->fd, &(struct msghdr){.msg_iovlen = 0}, 0))
CALL(sendmsg_many, api->sendmsg(ends->fd, &(struct msghdr){.msg_iovlen = 1025}, 0))
CALL(sendmsg_big,
     api->sendmsg(ends->fd,
                  &(struct msghdr){
                      .msg_iov = (struct iovec[]){{big, 3}, {(char *)big + 3, BIG - 3}},
                      .msg_iovlen = 2},
                  0))
CALL(sendfile_some, api->sendfile(ends->fd, ends->file, &(int64_t){1}, 4))
CALL(sendfile_big, api->sendfile(ends->fd, ends->file, &(int64_t){0}, BIG))
CALL(sendfile_in, api->sendfile(ends->file, ends->fd, NULL, 4))
CALL(pread_some, api->pread(ends->fd, seen->bytes, 256, 1))
CALL(pread_less, api->pread(ends->fd, seen->bytes, 256, -1))
CALL(pwrite_some, api->pwrite(ends->fd, "some", 4, 0))
CALL(connect_somewhere, api->connect(ends->fd, (const struct sockaddr *)&ends->addr, ends->addr_sz))
CALL(connect_nowhere, api->connect(ends->fd, (const struct sockaddr *)nowhere, 16))
CALL(shutdown_in, api->shutdown(ends->fd, SHUT_RD))
CALL(shutdown_out, api->shutdown(ends->fd, SHUT_WR))
CALL(sync_it, api->fsync(ends->fd))
CALL(close_it, api->close(ends->fd))
CALL(wait_in, api->wait_fd(ends->fd, POLLIN))
CALL(wait_out, api->wait_fd(ends->fd, POLLOUT))

static ssize_t recvfrom_some(const api_t *api, const ends_t *ends, seen_t *seen)
{
    struct sockaddr_storage addr = {.ss_family = AF_UNSPEC};
    socklen_t sz = sizeof(addr);
    ssize_t result = api->recvfrom(ends->fd, seen->bytes, 256, 0, (struct sockaddr *)&addr, &sz);
    seen->more = result < 0 ? 0 : (long)addr.ss_family << 16 | (long)sz;
    return result;
}

static ssize_t recvmsg_some(const api_t *api, const ends_t *ends, seen_t *seen)
{
    struct iovec iov[] = {{seen->bytes, 1}, {seen->bytes + 1, 2}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    ssize_t result = api->recvmsg(ends->fd, &msg, 0);
    seen->more = result < 0 ? 0 : msg.msg_flags;
    return result;
}

static ssize_t recvmsg_many(const api_t *api, const ends_t *ends, seen_t *seen)
{
    struct msghdr msg = {.msg_iovlen = 1025};
    (void)seen;
    return api->recvmsg(ends->fd, &msg, 0);
}

static ssize_t accept_with(const api_t *api, const ends_t *ends, seen_t *seen, int flags)
{
    struct sockaddr_storage addr = {.ss_family = AF_UNSPEC};
    socklen_t sz = sizeof(addr);
    int fd = api->accept4(ends->fd, (struct sockaddr *)&addr, &sz, flags);
    if (fd < 0) {
        return -1;
    }
    seen->more = ((long)fcntl(fd, F_GETFL) << 8 | (long)sz) * 2 + fcntl(fd, F_GETFD);
    MUST(api->close(fd) == 0);
    return 0;
}

CALL(accept_one, accept_with(api, ends, seen, 0))
CALL(accept_nonblocking, accept_with(api, ends, seen, SOCK_NONBLOCK | SOCK_CLOEXEC))
CALL(accept_wrongly, accept_with(api, ends, seen, 1))

static ssize_t poll_for(const api_t *api, const ends_t *ends, seen_t *seen, int events, int ms)
{
    struct pollfd polled[] = {{-1, POLLIN, 99}, {ends->fd, (short)events, 99}};
    ssize_t result = api->poll(polled, 2, ms);
    if (polled[1].revents & POLLHUP) { /* room comes a moment after the other end is gone */
        polled[1].revents &= (short)~(POLLOUT | POLLWRNORM);
    }
    seen->more = polled[1].revents << 16 | polled[0].revents;
    return result;
}

CALL(poll_now, poll_for(api, ends, seen, POLLIN | POLLOUT | POLLPRI | POLLRDHUP, 0))
CALL(poll_in, poll_for(api, ends, seen, POLLIN | POLLRDHUP, -1))
CALL(poll_in_shortly, poll_for(api, ends, seen, POLLIN, TIMEOUT_MS))
CALL(poll_out, poll_for(api, ends, seen, POLLOUT | POLLWRNORM, -1))
CALL(poll_out_shortly, poll_for(api, ends, seen, POLLOUT, TIMEOUT_MS))

/* Bits of a call: it is input or output; it has a time limit of its own, or ignores those that are
 * set; it moves all bytes; a helper thread may make it. */
enum { IN = 1, OUT = 2, TIMED = 4, UNTIMED = 8, WHOLE = 16, HELPED = 32 };

#define C(fn, kind)                                                                                \
    {                                                                                              \
#fn, fn, kind                                                                              \
    }
static const struct {
    const char *name;
    ssize_t (*fn)(const api_t *api, const ends_t *ends, seen_t *seen);
    int kind;
} calls[] = {C(read_some, IN),
             C(read_3, IN),
             C(read_0, IN),
             C(read_nowhere, IN),
             C(readv_some, IN),
             C(readv_0, IN),
             C(readv_less, IN),
             C(recv_some, IN),
             C(recv_0, IN),
             C(recv_nowhere, IN),
             C(recv_peek, IN),
             C(recv_at_once, IN),
             C(recv_all, IN | WHOLE),
             C(recv_truncated, IN),
             C(recv_urgent, IN),
             C(recv_errors, IN),
             C(recvfrom_some, IN),
             C(recvmsg_some, IN),
             C(recvmsg_many, IN),
             C(accept_one, IN),
             C(accept_nonblocking, IN),
             C(accept_wrongly, IN),
             C(wait_in, IN | UNTIMED),
             C(poll_now, IN | OUT),
             C(poll_in, IN | UNTIMED),
             C(poll_in_shortly, IN | TIMED),
             C(pread_some, IN | HELPED),
             C(pread_less, IN | HELPED),
             C(sendfile_in, IN | HELPED),
             C(write_some, OUT),
             C(write_0, OUT),
             C(write_nowhere, OUT),
             C(write_8, OUT),
             C(write_big, OUT),
             C(writev_some, OUT),
             C(writev_0, OUT),
             C(writev_big, OUT),
             C(send_some, OUT),
             C(send_0, OUT),
             C(send_nowhere, OUT),
             C(send_at_once, OUT),
             C(send_big, OUT),
             C(sendto_some, OUT),
             C(sendto_at_once, OUT),
             C(sendmsg_some, OUT),
             C(sendmsg_0, OUT),
             C(sendmsg_many, OUT),
             C(sendmsg_big, OUT),
             C(sendfile_some, OUT),
             C(sendfile_big, OUT),
             C(pwrite_some, OUT | HELPED),
             C(connect_somewhere, OUT),
             C(connect_nowhere, OUT),
             C(sync_it, OUT | HELPED),
             C(wait_out, OUT | UNTIMED),
             C(poll_out, OUT | UNTIMED),
             C(poll_out_shortly, OUT | TIMED),
             C(shutdown_in, IN | OUT),
             C(shutdown_out, IN | OUT),
             C(close_it, IN | OUT)};

#endif
