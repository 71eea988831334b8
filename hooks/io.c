// SPDX-License-Identifier: Apache-2.0
/* Input and output on descriptors of any kind, as the runtime does it. */
#include "internal.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

HOOKS_OF(io);

#define SPLICE_CHUNK 4096u /* bytes that a socket takes at least when poll() says POLLOUT */

/* ==== Any descriptor ========================================================================= */

HOOK(ssize_t, read, (int fd, void *buf, size_t sz), (fd, buf, sz), syscall(SYS_read, fd, buf, sz))
{
    return is_in_task() ? WAITING(aco_read(fd, buf, sz)) : real_read(fd, buf, sz);
}
HOOK_ALIAS(__read, read);

HOOK(ssize_t, __read_chk, (int fd, void *buf, size_t sz, size_t buf_sz), (fd, buf, sz, buf_sz),
     syscall(SYS_read, fd, buf, sz))
{
    return is_in_task() && sz <= buf_sz ? WAITING(aco_read(fd, buf, sz))
                                        : real___read_chk(fd, buf, sz, buf_sz);
}

HOOK(ssize_t, readv, (int fd, const struct iovec *iov, int ct), (fd, iov, ct),
     syscall(SYS_readv, fd, iov, ct))
{
    return is_in_task() ? WAITING(aco_readv(fd, iov, ct)) : real_readv(fd, iov, ct);
}

HOOK(ssize_t, write, (int fd, const void *buf, size_t sz), (fd, buf, sz),
     syscall(SYS_write, fd, buf, sz))
{
    return is_in_task() ? WRITING(fd, aco_write(fd, buf, sz)) : real_write(fd, buf, sz);
}
HOOK_ALIAS(__write, write);

HOOK(int, eventfd_read, (int fd, uint64_t *value), (fd, value), refuse(ENOSYS))
{
    return !is_in_task() ? real_eventfd_read(fd, value)
           : ANSWERED(aco_read(fd, value, sizeof(*value))) == sizeof(*value) ? 0
                                                                             : -1;
}

HOOK(int, eventfd_write, (int fd, uint64_t value), (fd, value), refuse(ENOSYS))
{
    return !is_in_task() ? real_eventfd_write(fd, value)
           : ANSWERED(aco_write(fd, &value, sizeof(value))) == sizeof(value) ? 0
                                                                             : -1;
}

HOOK(ssize_t, writev, (int fd, const struct iovec *iov, int ct), (fd, iov, ct),
     syscall(SYS_writev, fd, iov, ct))
{
    return is_in_task() ? WRITING(fd, aco_writev(fd, iov, ct)) : real_writev(fd, iov, ct);
}

/* ==== Receiving ============================================================================== */

HOOK(ssize_t, recv, (int fd, void *buf, size_t sz, int flags), (fd, buf, sz, flags),
     syscall(SYS_recvfrom, fd, buf, sz, flags, NULL, NULL))
{
    return is_in_task() ? WAITING(aco_recv(fd, buf, sz, flags)) : real_recv(fd, buf, sz, flags);
}

HOOK(ssize_t, __recv_chk, (int fd, void *buf, size_t sz, size_t buf_sz, int flags),
     (fd, buf, sz, buf_sz, flags), syscall(SYS_recvfrom, fd, buf, sz, flags, NULL, NULL))
{
    return is_in_task() && sz <= buf_sz ? WAITING(aco_recv(fd, buf, sz, flags))
                                        : real___recv_chk(fd, buf, sz, buf_sz, flags);
}

HOOK(ssize_t, recvfrom,
     (int fd, void *buf, size_t sz, int flags, struct sockaddr *addr, socklen_t *addr_sz),
     (fd, buf, sz, flags, addr, addr_sz), syscall(SYS_recvfrom, fd, buf, sz, flags, addr, addr_sz))
{
    return is_in_task() ? WAITING(aco_recvfrom(fd, buf, sz, flags, addr, addr_sz))
                        : real_recvfrom(fd, buf, sz, flags, addr, addr_sz);
}

HOOK(ssize_t, __recvfrom_chk,
     (int fd, void *buf, size_t sz, size_t buf_sz, int flags, struct sockaddr *addr,
      socklen_t *addr_sz),
     (fd, buf, sz, buf_sz, flags, addr, addr_sz),
     syscall(SYS_recvfrom, fd, buf, sz, flags, addr, addr_sz))
{
    return is_in_task() && sz <= buf_sz
               ? WAITING(aco_recvfrom(fd, buf, sz, flags, addr, addr_sz))
               : real___recvfrom_chk(fd, buf, sz, buf_sz, flags, addr, addr_sz);
}

HOOK(ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags), (fd, msg, flags),
     syscall(SYS_recvmsg, fd, msg, flags))
{
    return is_in_task() ? WAITING(aco_recvmsg(fd, msg, flags)) : real_recvmsg(fd, msg, flags);
}

/* Takes the error that is pending at a socket, as recvmmsg() does before all else. */
static int take_error(int fd)
{
    int error = socket_option(fd, SO_ERROR);
    return error > 0 ? (int)refuse(error) : 0;
}

/* As in the kernel, `timeout` is checked after each message, and never ends a wait. */
static int receive_messages(int fd, struct mmsghdr *messages, unsigned ct, int flags,
                            struct timespec *timeout)
{
    int64_t until = 0;
    unsigned i = 0;
    int is_over = 0, before = errno;
    if ((flags & MSG_ERRQUEUE) == 0 && take_error(fd) != 0) {
        return -1;
    }
    if (timeout != NULL) {
        until = aco_i_after(ns_of(timeout));
    }
    for (; i < ct && !is_over; i++) {
        ssize_t sz = aco_recvmsg(fd, &messages[i].msg_hdr, flags & ~MSG_WAITFORONE);
        if (sz < 0) {
            errno = i != 0 ? before : errno;
            return i != 0 ? (int)i : -1;
        }
        messages[i].msg_len = (unsigned)sz;
        flags |= (flags & MSG_WAITFORONE) != 0 ? MSG_DONTWAIT : 0;
        is_over = (messages[i].msg_hdr.msg_flags & MSG_OOB) != 0;
        if (timeout != NULL) {
            *timeout = left_until(until);
            is_over |= timeout->tv_sec == 0 && timeout->tv_nsec == 0;
        }
    }
    return (int)i;
}

HOOK(int, recvmmsg,
     (int fd, struct mmsghdr *messages, unsigned ct, int flags, struct timespec *timeout),
     (fd, messages, ct, flags, timeout), refuse(ENOSYS))
{
    int is_right = timeout == NULL || is_valid_time(timeout);
    return is_in_task() && is_right && ct != 0
               ? WAITING(receive_messages(fd, messages, ct, flags, timeout))
               : real_recvmmsg(fd, messages, ct, flags, timeout);
}

/* ==== Sending ================================================================================ */

HOOK(ssize_t, send, (int fd, const void *buf, size_t sz, int flags), (fd, buf, sz, flags),
     syscall(SYS_sendto, fd, buf, sz, flags, NULL, 0))
{
    return is_in_task() ? WAITING(aco_send(fd, buf, sz, flags)) : real_send(fd, buf, sz, flags);
}
HOOK_ALIAS(__send, send);

HOOK(ssize_t, sendto,
     (int fd, const void *buf, size_t sz, int flags, const struct sockaddr *addr,
      socklen_t addr_sz),
     (fd, buf, sz, flags, addr, addr_sz), syscall(SYS_sendto, fd, buf, sz, flags, addr, addr_sz))
{
    return is_in_task() ? WAITING(aco_sendto(fd, buf, sz, flags, addr, addr_sz))
                        : real_sendto(fd, buf, sz, flags, addr, addr_sz);
}

HOOK(ssize_t, sendmsg, (int fd, const struct msghdr *msg, int flags), (fd, msg, flags),
     syscall(SYS_sendmsg, fd, msg, flags))
{
    return is_in_task() ? WAITING(aco_sendmsg(fd, msg, flags)) : real_sendmsg(fd, msg, flags);
}

HOOK(int, sendmmsg, (int fd, struct mmsghdr *messages, unsigned ct, int flags),
     (fd, messages, ct, flags), refuse(ENOSYS))
{
    if (!is_in_task() || ct == 0) {
        return real_sendmmsg(fd, messages, ct, flags);
    }
    int before = errno;
    ct = ct < IOV_MAX ? ct : IOV_MAX;
    for (unsigned i = 0; i < ct; i++) {
        ssize_t sz = ANSWERED(aco_sendmsg(fd, &messages[i].msg_hdr, flags));
        if (sz < 0) {
            errno = i != 0 ? before : errno;
            return i != 0 ? (int)i : -1;
        }
        messages[i].msg_len = (unsigned)sz;
    }
    return (int)ct;
}

/* ==== Connections ============================================================================ */

HOOK(int, accept4, (int fd, struct sockaddr *addr, socklen_t *addr_sz, int flags),
     (fd, addr, addr_sz, flags), syscall(SYS_accept4, fd, addr, addr_sz, flags))
{
    return is_in_task() ? WAITING(aco_i_accept(fd, addr, addr_sz, flags, 0))
                        : real_accept4(fd, addr, addr_sz, flags);
}

HOOK(int, accept, (int fd, struct sockaddr *addr, socklen_t *addr_sz), (fd, addr, addr_sz),
     syscall(SYS_accept4, fd, addr, addr_sz, 0))
{
    return is_in_task() ? WAITING(aco_i_accept(fd, addr, addr_sz, 0, 0))
                        : real_accept(fd, addr, addr_sz);
}

HOOK(int, connect, (int fd, const struct sockaddr *addr, socklen_t addr_sz), (fd, addr, addr_sz),
     syscall(SYS_connect, fd, addr, addr_sz))
{
    return is_in_task() ? WAITING(aco_connect(fd, addr, addr_sz)) : real_connect(fd, addr, addr_sz);
}
HOOK_ALIAS(__connect, connect);

HOOK(int, shutdown, (int fd, int how), (fd, how), refuse(ENOSYS))
{
    return is_in_task() ? aco_shutdown(fd, how) : real_shutdown(fd, how);
}

/* ==== From one descriptor to another ========================================================= */

#if __SIZEOF_POINTER__ == 8
HOOK(ssize_t, sendfile, (int fd, int in, int64_t *offset, size_t sz), (fd, in, offset, sz),
     syscall(SYS_sendfile, fd, in, offset, sz))
{
    return is_in_task() ? WAITING(aco_sendfile(fd, in, offset, sz))
                        : real_sendfile(fd, in, offset, sz);
}
HOOK_ALIAS(sendfile64, sendfile);
#else
HOOK(ssize_t, sendfile64, (int fd, int in, int64_t *offset, size_t sz), (fd, in, offset, sz),
     syscall(SYS_sendfile64, fd, in, offset, sz))
{
    return is_in_task() ? WAITING(aco_sendfile(fd, in, offset, sz))
                        : real_sendfile64(fd, in, offset, sz);
}

HOOK(ssize_t, sendfile, (int fd, int in, int32_t *offset, size_t sz), (fd, in, offset, sz),
     syscall(SYS_sendfile, fd, in, offset, sz))
{
    if (!is_in_task()) {
        return real_sendfile(fd, in, offset, sz);
    }
    int64_t large = offset != NULL ? *offset : 0;
    ssize_t result = WAITING(aco_sendfile(fd, in, offset != NULL ? &large : NULL, sz));
    if (offset != NULL) {
        *offset = (int32_t)large;
    }
    return result;
}
#endif

/* The two ends of a splice(). */
typedef struct {
    struct pollfd fds[2];
    int64_t *offsets[2];
    unsigned flags;
    mode_t kinds[2];   /* S_IFSOCK and so on */
    int is_patient[2]; /* the kernel would wait for it */
    int64_t until;     /* when the timeout of a socket ends the wait */
} splice_t;

static ssize_t move(const splice_t *s, size_t sz, unsigned flags);

/* Whether SPLICE_F_NONBLOCK counts for an end: it does for pipes and local connections. */
static int knows_flag(int fd, mode_t kind)
{
    return kind == S_IFIFO || socket_option(fd, SO_DOMAIN) == AF_UNIX;
}

/* The time at which the timeout of a socket ends the wait for an end. */
static int64_t end_of_wait(int fd, int is_output)
{
    fd_t *entry = aco_i_fd(fd);
    int64_t wait_limit = entry == NULL
                             ? NO_DEADLINE
                             : aco_i_wait_limit(fd, entry, is_output ? EPOLLOUT : EPOLLIN);
    return wait_limit == NO_DEADLINE ? NO_DEADLINE : aco_i_after(wait_limit);
}

/* Fills in the state of both ends. Returns whether splice() waits for such ends. */
static int look_at_ends(splice_t *s)
{
    for (int i = 0; i < 2; i++) {
        struct stat status;
        int flags = aco_i_libc.fcntl(s->fds[i].fd, F_GETFL);
        if (flags < 0 || fstat(s->fds[i].fd, &status) != 0 ||
            (flags & O_ACCMODE) == (i == 0 ? O_WRONLY : O_RDONLY)) {
            return 0;
        }
        s->kinds[i] = status.st_mode & S_IFMT;
        s->is_patient[i] = (flags & O_NONBLOCK) == 0 && ((s->flags & SPLICE_F_NONBLOCK) == 0 ||
                                                         !knows_flag(s->fds[i].fd, s->kinds[i]));
        if (s->kinds[i] == S_IFSOCK && s->is_patient[i]) {
            int64_t until = end_of_wait(s->fds[i].fd, i);
            s->until = until < s->until ? until : s->until;
        }
        if (s->kinds[i] == 0 || (s->kinds[i] == S_IFIFO && s->offsets[i] != NULL)) {
            return 0;
        }
    }
    return s->kinds[0] == S_IFIFO || s->kinds[1] == S_IFIFO;
}

/* Waits until all ends that the kernel would wait for are ready. -1 with errno, EAGAIN after a
 * timeout. */
static int wait_for_ends(const splice_t *s)
{
    for (;;) {
        struct pollfd fds[2];
        memcpy(fds, s->fds, sizeof(fds));
        int ct_missing = 0;
        if (poll_now(fds, 2) < 0) {
            return -1;
        }
        for (int i = 0; i < 2; i++) {
            int is_missing = fds[i].revents == 0 && s->is_patient[i];
            fds[i].fd = is_missing ? fds[i].fd : -1;
            ct_missing += is_missing;
        }
        if (ct_missing == 0) {
            return 0;
        }
        int ct = aco_i_poll(fds, 2, s->until);
        if (ct < 0 && aco_i_may_restart()) {
            continue;
        }
        if (ct <= 0) {
            errno = ct == 0 ? EAGAIN : errno;
            return -1;
        }
    }
}

/* Whether the pipe has more, and the socket no error: the next call reports that. */
static int has_more(const splice_t *s)
{
    struct pollfd fds[2];
    memcpy(fds, s->fds, sizeof(fds));
    return poll_now(fds, 2) > 0 && (fds[0].revents & POLLIN) != 0 &&
           (fds[1].revents & POLLERR) == 0;
}

/* A socket takes at once as much as poll() promises, but may wait for the rest: it gets a page at a
 * time as long as the pipe has something. */
static ssize_t splice_in_task(const splice_t *s, size_t sz)
{
    int is_socket = socket_option(s->fds[1].fd, SO_TYPE) == SOCK_STREAM;
    size_t done = 0;
    do {
        size_t part = is_socket && sz - done > SPLICE_CHUNK ? SPLICE_CHUNK : sz - done;
        if (wait_for_ends(s) != 0) {
            return done != 0 ? (ssize_t)done : -1;
        }
        ssize_t result = move(s, part, SPLICE_F_NONBLOCK);
        if (result < 0 && errno == EAGAIN && done == 0 && s->is_patient[0] && s->is_patient[1]) {
            aco_i_yield(); /* another task was first */
            continue;
        }
        if (result <= 0) {
            return done != 0 ? (ssize_t)done : result;
        }
        done += (size_t)result;
    } while (done < sz && (done == 0 || (is_socket && has_more(s))));
    return (ssize_t)done;
}

HOOK(ssize_t, splice,
     (int in, int64_t *in_offset, int out, int64_t *out_offset, size_t sz, unsigned flags),
     (in, in_offset, out, out_offset, sz, flags), refuse(ENOSYS))
{
    splice_t s = {{{in, POLLIN, 0}, {out, POLLOUT, 0}},
                  {in_offset, out_offset},
                  flags,
                  {0},
                  {0},
                  NO_DEADLINE};
    if (!is_in_task()) {
        return real_splice(in, in_offset, out, out_offset, sz, flags);
    }
    int before = errno;
    ssize_t result = sz != 0 && look_at_ends(&s) ? ANSWERED(splice_in_task(&s, sz))
                                                 : move(&s, sz, 0);
    errno = result >= 0 ? before : errno;
    return result;
}

static ssize_t move(const splice_t *s, size_t sz, unsigned flags)
{
    return real_splice(s->fds[0].fd, s->offsets[0], s->fds[1].fd, s->offsets[1], sz,
                       s->flags | flags);
}

/* ==== Pipes that are not read ================================================================ */

/* Waits until a pipe may have what the call needs; -1 with errno. */
static int wait_for_pipe(int fd, short events)
{
    struct pollfd polled = {fd, events, 0};
    int ct;
    do {
        ct = aco_i_poll(&polled, 1, NO_DEADLINE);
    } while (ct < 0 && aco_i_may_restart());
    return ct < 0 ? -1 : 0;
}

static int is_ready(int fd, short events)
{
    struct pollfd polled = {fd, events, 0};
    return aco_i_libc.poll(&polled, 1, 0) != 0;
}

static int has_nonblock(int fd)
{
    return (aco_i_libc.fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
}

HOOK(ssize_t, tee, (int in, int out, size_t sz, unsigned flags), (in, out, sz, flags),
     refuse(ENOSYS))
{
    if (!is_in_task() || sz == 0 || (flags & SPLICE_F_NONBLOCK) != 0) {
        return real_tee(in, out, sz, flags);
    }
    const void *caller = CALLER;
    int before = errno;
    ssize_t result;
    while ((result = real_tee(in, out, sz, flags | SPLICE_F_NONBLOCK)) < 0 && errno == EAGAIN &&
           !has_nonblock(in) && !has_nonblock(out) &&
           ANSWERED_TO(caller, is_ready(in, POLLIN) ? wait_for_pipe(out, POLLOUT)
                                                    : wait_for_pipe(in, POLLIN)) == 0) {
    }
    errno = result >= 0 ? before : errno;
    return result;
}

HOOK(ssize_t, vmsplice, (int fd, const struct iovec *iov, size_t ct, unsigned flags),
     (fd, iov, ct, flags), refuse(ENOSYS))
{
    if (!is_in_task() || (flags & SPLICE_F_NONBLOCK) != 0) {
        return real_vmsplice(fd, iov, ct, flags);
    }
    int before = errno;
    ssize_t result;
    while ((result = real_vmsplice(fd, iov, ct, flags | SPLICE_F_NONBLOCK)) < 0 &&
           errno == EAGAIN) {
        int is_output = (aco_i_libc.fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
        if (ANSWERED(wait_for_pipe(fd, is_output ? POLLOUT : POLLIN)) != 0) {
            break;
        }
    }
    errno = result >= 0 ? before : errno;
    return result;
}
