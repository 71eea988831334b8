// SPDX-License-Identifier: Apache-2.0
/*
 * Accepting and connecting, and files to sockets: calls that know neither MSG_DONTWAIT nor
 * RWF_NOWAIT.
 */
#include "call.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define FILE_CHUNK (1u << 17) /* bytes that sendfile() moves at a time */

/* ==== Files to sockets ======================================================================= */

/* A system call that waits unless O_NONBLOCK is set, which it is for that time. */
static ssize_t without_waiting(call_t *call, try_t try)
{
    aco_i_lock_fd(call->entry);
    int flags = aco_i_libc.fcntl(call->fd, F_GETFL);
    int is_blocking = flags >= 0 && (flags & O_NONBLOCK) == 0;
    if (is_blocking) {
        aco_i_libc.fcntl(call->fd, F_SETFL, flags | O_NONBLOCK);
    }
    ssize_t result = try(call);
    int error = errno;
    if (is_blocking) {
        aco_i_libc.fcntl(call->fd, F_SETFL, flags);
    }
    aco_i_unlock_fd(call->entry);
    errno = error;
    return result;
}

typedef struct {
    call_t call;
    int in;
    int64_t *offset;
    size_t sz;
} sendfile_t;

static ssize_t do_sendfile(call_t *call)
{
    sendfile_t *s = (sendfile_t *)call;
    off_t offset = s->offset != NULL ? (off_t)*s->offset : 0;
    ssize_t result = aco_i_libc.sendfile(call->fd, s->in, s->offset != NULL ? &offset : NULL,
                                         s->sz);
    if (s->offset != NULL) {
        *s->offset = offset;
    }
    return result;
}

static ssize_t try_sendfile(call_t *call)
{
    if ((call->done != 0 || call->has_waited) && !aco_i_may_go_on(call)) {
        return -1;
    }
    return without_waiting(call, do_sendfile);
}

/* Has a part of a file read, by a helper if need be: sendfile() would wait for the disk. */
static void fetch(int fd, const int64_t *offset)
{
    char byte;
    struct iovec iov = {&byte, 1};
    int64_t at = offset != NULL ? *offset : lseek(fd, 0, SEEK_CUR);
    if (at >= 0) {
        aco_i_file_read(fd, &iov, 1, at);
    }
}

ssize_t aco_sendfile(int fd, int in, int64_t *offset, size_t sz)
{
    sendfile_t s = {{.fd = fd, .entry = aco_i_fd(fd)}, in, offset, sz};
    if (!is_in_task() || s.call.entry == NULL) {
        return do_sendfile(&s.call);
    }
    moment_t moment;
    int before = errno;
    do {
        s.sz = sz - s.call.done < FILE_CHUNK ? sz - s.call.done : FILE_CHUNK;
        fetch(in, offset);
        ssize_t result = until_done(&s.call, EPOLLOUT, try_sendfile, &moment);
        if (result <= 0) {
            errno = s.call.done != 0 ? before : errno;
            return result < 0 && s.call.done == 0 ? -1 : (ssize_t)s.call.done;
        }
        s.call.done += (size_t)result;
        if (s.call.done < sz && aco_i_is_pipe(fd)) {
            break; /* what fits is all that the kernel moves */
        }
    } while (s.call.done < sz);
    return (ssize_t)s.call.done;
}

/* ==== Connections ============================================================================ */

static ssize_t try_accept(call_t *call)
{
    struct pollfd polled = {call->fd, POLLIN, 0};
    int is_listener = 0;
    socklen_t sz = sizeof(is_listener);
    getsockopt(call->fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listener, &sz);
    if (!is_listener) {
        return aco_i_libc.accept4(call->fd, call->addr, call->addr_sz,
                                  call->flags); /* fails at once */
    }
    aco_i_lock_fd(call->entry); /* poll() is right only if no other task accepts meanwhile */
    int result = aco_i_libc.poll(&polled, 1, 0);
    if (result > 0) {
        result = aco_i_libc.accept4(call->fd, call->addr, call->addr_sz, call->flags);
    } else if (result == 0) {
        errno = EAGAIN;
        result = -1;
    }
    aco_i_unlock_fd(call->entry);
    return result;
}

int aco_i_accept(int fd, struct sockaddr *addr, socklen_t *addr_sz, int flags, int is_ours)
{
    call_t call = {.fd = fd, .entry = aco_i_fd(fd), .addr = addr, .addr_sz = addr_sz};
    if (!is_in_task() || call.entry == NULL || (flags & ~(SOCK_CLOEXEC | SOCK_NONBLOCK)) != 0) {
        return aco_i_libc.accept4(fd, addr, addr_sz, flags);
    }
    call.flags = flags;
    int protocol = 0;
    socklen_t sz = sizeof(protocol);
    moment_t moment;
    int accepted = (int)until_done(&call, EPOLLIN, try_accept, &moment);
    if (accepted >= 0) {
        getsockopt(accepted, SOL_SOCKET, SO_PROTOCOL, &protocol, &sz); /* 0 of local ones */
        aco_i_own(accepted, protocol == IPPROTO_TCP, is_ours);
    }
    return accepted;
}

int aco_accept4(int fd, struct sockaddr *addr, socklen_t *addr_sz, int flags)
{
    return aco_i_accept(fd, addr, addr_sz, flags, 1);
}

static ssize_t do_connect(call_t *call)
{
    return aco_i_libc.connect(call->fd, call->addr, *call->addr_sz);
}

/* After connect() has said that it goes on by itself; called again, it tells how that ended. 0, or
 * -1 with errno. A shutdown has ended it by ECONNRESET: then another call would begin anew. */
static int wait_for_connection(call_t *call, moment_t since)
{
    int error = errno, failure = 0;
    socklen_t sz = sizeof(failure);
    if (aco_i_wait_to_retry(call, EPOLLOUT, since) != 1) {
        errno = errno == EAGAIN ? error : errno;
        return -1;
    }
    getsockopt(call->fd, SOL_SOCKET, SO_ERROR, &failure, &sz);
    if (failure != 0 && failure != ECONNRESET) {
        without_waiting(call, do_connect); /* so that the socket may connect again */
    }
    errno = failure;
    return failure == 0 ? 0 : -1;
}

/* While the queue of a local socket is full. */
static int wait_for_queue(call_t *call, moment_t since)
{
    if (call->until == 0) {
        int64_t patience = aco_i_patience(call->fd, call->entry, EPOLLOUT);
        call->until = patience == NO_DEADLINE ? NO_DEADLINE : aco_i_after(patience);
    }
    if (aco_i_pause(call) != 0) {
        return -1;
    }
    if (aco_i_moment(call->entry).ct_closed != since.ct_closed) {
        errno = EBADF;
        return -1;
    }
    return 0;
}

int aco_connect(int fd, const struct sockaddr *addr, socklen_t addr_sz)
{
    call_t call = {.fd = fd, .entry = aco_i_fd(fd), .addr_sz = &addr_sz};
    call.addr = (struct sockaddr *)(uintptr_t)addr;
    if (!is_in_task() || call.entry == NULL) {
        return aco_i_libc.connect(fd, addr, addr_sz);
    }
    for (int before = errno;;) {
        moment_t moment = aco_i_moment(call.entry);
        if (without_waiting(&call, do_connect) == 0) {
            errno = before;
            return 0;
        }
        int goes_on = errno == EINPROGRESS || errno == EALREADY;
        int is_full = errno == EAGAIN && addr->sa_family == AF_UNIX;
        int may_try = goes_on   ? wait_for_connection(&call, moment) == 0
                      : is_full ? wait_for_queue(&call, moment) == 0
                                : 0;
        if (!may_try) {
            return -1;
        }
    }
}

int aco_shutdown(int fd, int how)
{
    return aco_i_libc.shutdown(fd, how);
}
