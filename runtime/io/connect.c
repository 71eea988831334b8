// SPDX-License-Identifier: Apache-2.0
/* Calls that know neither MSG_DONTWAIT nor RWF_NOWAIT: accept, connect, shutdown and sendfile. */
#include "io/call.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define FILE_CHUNK (1u << 17)  /* bytes that sendfile() moves at a time */
#define MESSAGE_MAX (1u << 16) /* bytes of a file that sendfile() sends in one message */
#define LITTLE 256u            /* bytes that fit when poll() says POLLOUT */
#define COROUTINE_LIMIT (INT64_C(75) * 1000000000) /* ns */

/* ==== Files to sockets ======================================================================= */

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

/* Sends what fits. After a part it tries again, as sendfile() does: a connection that has ended
 * raises SIGPIPE. */
static ssize_t send_whole(int fd, const struct iovec *iov)
{
    size_t done = 0;
    do {
        ssize_t result = aco_i_libc.send(fd, (char *)iov->iov_base + done, iov->iov_len - done,
                                         MSG_DONTWAIT);
        if (result < 0) {
            return done != 0 ? (ssize_t)done : -1;
        }
        done += (size_t)result;
    } while (done < iov->iov_len);
    return (ssize_t)done;
}

/* Sends the next part of a regular file on a socket: sendfile() itself knows no MSG_DONTWAIT. */
static ssize_t send_part(sendfile_t *s)
{
    int is_stream = socket_option(s->call.fd, SO_TYPE) == SOCK_STREAM;
    s->sz = s->sz < MESSAGE_MAX || is_stream ? s->sz : MESSAGE_MAX;
    int64_t at = s->offset != NULL ? *s->offset : lseek(s->in, 0, SEEK_CUR);
    struct iovec iov = {aco_i_allocate(s->sz), s->sz};
    if (iov.iov_base == NULL) {
        errno = ENOMEM;
        return -1;
    }
    ssize_t result = aco_i_file_read(s->in, &iov, 1, at);
    if (result > 0) {
        iov.iov_len = (size_t)result;
        result = send_whole(s->call.fd, &iov);
    }
    KEEP_ERRNO();
    aco_i_release(iov.iov_base);
    if (result > 0 && s->offset != NULL) {
        *s->offset = at + result;
    } else if (result > 0) {
        lseek(s->in, (off_t)(at + result), SEEK_SET);
    }
    return result;
}

/* Calls sendfile() for a pipe by a second, nonblocking descriptor. */
static ssize_t send_to_pipe(sendfile_t *s)
{
    char name[32];
    int fd = s->call.fd;
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    int other = aco_i_libc.open(name, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    s->call.fd = other >= 0 ? other : fd;
    ssize_t result = do_sendfile(&s->call);
    KEEP_ERRNO();
    s->call.fd = fd;
    if (other >= 0) {
        aco_i_libc.close(other);
    }
    return result;
}

/* Calls sendfile() for what poll() reports as writable, a little at a time. */
static ssize_t send_a_little(sendfile_t *s)
{
    if (events_now(s->call.fd, POLLOUT) == 0) {
        errno = EAGAIN;
        return -1;
    }
    int type = socket_option(s->call.fd, SO_TYPE); /* -1: no socket */
    s->sz = s->sz < LITTLE || (type >= 0 && type != SOCK_STREAM) ? s->sz : LITTLE;
    return do_sendfile(&s->call);
}

static int may_have_parts(const sendfile_t *s)
{
    return s->sz != 0 && (s->offset == NULL || *s->offset >= 0) && file_kind(s->in) == S_IFREG;
}

static ssize_t try_sendfile(call_t *call)
{
    sendfile_t *s = (sendfile_t *)call;
    if (!may_go_on(call)) {
        return -1;
    }
    int flags = aco_i_libc.fcntl(call->fd, F_GETFL), kind = file_kind(call->fd);
    int may_wait = flags >= 0 && (flags & O_NONBLOCK) == 0 && (flags & O_ACCMODE) != O_RDONLY;
    return may_wait && kind == S_IFIFO                          ? send_to_pipe(s)
           : may_wait && kind == S_IFSOCK && may_have_parts(s)  ? send_part(s)
           : may_wait && (kind == S_IFSOCK || isatty(call->fd)) ? send_a_little(s)
                                                                : do_sendfile(call);
}

/* Brings the next part of a file into the page cache, by a helper if need be: sendfile() would wait
 * for the disk. */
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
        return lacks_entry(&s.call) ? -1 : do_sendfile(&s.call);
    }
    moment_t moment;
    int before = errno;
    do {
        aco_i_spend_call();
        s.sz = sz - s.call.done < FILE_CHUNK ? sz - s.call.done : FILE_CHUNK;
        fetch(in, offset);
        ssize_t result = until_done(&s.call, EPOLLOUT, try_sendfile, &moment);
        if (result <= 0) {
            errno = s.call.done != 0 ? before : errno;
            return result < 0 && s.call.done == 0 ? -1 : (ssize_t)s.call.done;
        }
        s.call.done += (size_t)result;
        if (s.call.done < sz && file_kind(fd) == S_IFIFO) {
            break; /* the kernel moves only what fits */
        }
    } while (s.call.done < sz);
    return (ssize_t)s.call.done;
}

/* ==== Connections ============================================================================ */

/* Accepts what poll() has reported, although somebody else may have taken it meanwhile, unless the
 * listener is ours. */
static int accept_now(const call_t *call)
{
    if (!call->entry->is_ours) {
        int accepted = aco_i_ring_accept(call->fd, call->addr, call->addr_sz, call->flags);
        if (accepted >= 0 || errno != ENOSYS) {
            errno = errno == ECANCELED ? EAGAIN : errno;
            return accepted;
        }
    }
    return aco_i_libc.accept4(call->fd, call->addr, call->addr_sz, call->flags);
}

static ssize_t try_accept(call_t *call)
{
    if (socket_option(call->fd, SO_ACCEPTCONN) != 1) {
        return aco_i_libc.accept4(call->fd, call->addr, call->addr_sz,
                                  call->flags); /* fails at once */
    }
    aco_i_lock_fd(call->entry); /* no other task may accept between poll() and accept4() */
    int result = events_now(call->fd, POLLIN | POLLRDHUP);
    if ((result & POLLRDHUP) != 0) { /* a listener that was shut down: the call fails at once */
        result = aco_i_libc.accept4(call->fd, call->addr, call->addr_sz, call->flags);
    } else if (result > 0) {
        result = accept_now(call);
    } else if (result == 0) {
        errno = EAGAIN;
        result = -1;
    }
    aco_i_unlock_fd(call->entry);
    return result;
}

int aco_i_accept(int fd, struct sockaddr *addr, socklen_t *addr_sz, int flags, int is_ours)
{
    aco_i_spend_call();
    call_t call = {.fd = fd, .entry = aco_i_fd(fd), .addr = addr, .addr_sz = addr_sz};
    if (!is_in_task() || call.entry == NULL || (flags & ~(SOCK_CLOEXEC | SOCK_NONBLOCK)) != 0) {
        return lacks_entry(&call) ? -1 : aco_i_libc.accept4(fd, addr, addr_sz, flags);
    }
    call.flags = flags;
    moment_t moment;
    int accepted = (int)until_done(&call, EPOLLIN, try_accept, &moment);
    if (accepted >= 0) {
        aco_i_adopt_fd(accepted, socket_option(accepted, SO_PROTOCOL) == IPPROTO_TCP, is_ours);
    }
    return accepted;
}

int aco_accept4(int fd, struct sockaddr *addr, socklen_t *addr_sz, int flags)
{
    return aco_i_accept(fd, addr, addr_sz, flags, 1);
}

/* Connects with O_NONBLOCK set for a moment, where io_uring is refused. */
static int connect_by_flag(const call_t *call)
{
    aco_i_lock_fd(call->entry);
    int flags = aco_i_libc.fcntl(call->fd, F_GETFL);
    aco_i_libc.fcntl(call->fd, F_SETFL, flags | O_NONBLOCK);
    int result = aco_i_libc.connect(call->fd, call->addr, *call->addr_sz);
    KEEP_ERRNO();
    aco_i_libc.fcntl(call->fd, F_SETFL, flags);
    aco_i_unlock_fd(call->entry);
    return result;
}

/* As connect() with O_NONBLOCK. */
static int connect_now(const call_t *call)
{
    int flags = aco_i_libc.fcntl(call->fd, F_GETFL);
    if (flags < 0 || (flags & (O_NONBLOCK | O_PATH)) != 0) {
        return aco_i_libc.connect(call->fd, call->addr, *call->addr_sz);
    }
    int result = aco_i_ring_connect(call->fd, call->addr, *call->addr_sz);
    if (result < 0 && errno == ECANCELED) {
        errno = socket_option(call->fd, SO_DOMAIN) == AF_UNIX ? EAGAIN : EINPROGRESS;
    } else if (result < 0 && errno == ENOSYS) {
        result = connect_by_flag(call);
    }
    return result;
}

/* A coroutine of libaco_compat connects for as long as one of libco. Returns whether it does. */
static int is_limited(call_t *call)
{
    if (call->until == 0 && aco_self()->is_coroutine &&
        aco_i_own_wait_limit(call->fd, call->entry, EPOLLOUT) == NO_DEADLINE) {
        call->asked_at = aco_i_ct_changes(call->entry);
        call->until = aco_i_after(COROUTINE_LIMIT);
        return 1;
    }
    return 0;
}

/* Waits for the end of a connect() that goes on by itself. 0: another call reports how it ended; or
 * -1 with errno. ECONNRESET: a shutdown has ended it, and another call would begin anew. */
static int wait_for_connection(call_t *call, moment_t since)
{
    int error = is_limited(call) ? ETIMEDOUT : errno;
    if (aco_i_wait_to_retry(call, EPOLLOUT, since) != 1) {
        errno = errno == EAGAIN ? error : errno;
        return -1;
    }
    int failure = socket_option(call->fd, SO_ERROR);
    if (failure > 0) {
        if (failure != ECONNRESET) {
            connect_now(call); /* so that the socket may connect again */
        }
        errno = failure;
    }
    return failure == 0 ? 0 : -1;
}

/* Waits a little, as the queue of a local socket is full; 0: try again, or -1 with errno. */
static int wait_for_queue(call_t *call, moment_t since)
{
    if (call->until == 0) {
        int64_t wait_limit = aco_i_wait_limit(call->fd, call->entry, EPOLLOUT);
        call->until = wait_limit == NO_DEADLINE ? NO_DEADLINE : aco_i_after(wait_limit);
    }
    if (aco_i_pause(call) != 0) {
        return -1;
    }
    if (was_closed(call->entry, since)) {
        errno = EBADF;
        return -1;
    }
    return 0;
}

int aco_connect(int fd, const struct sockaddr *addr, socklen_t addr_sz)
{
    aco_i_spend_call();
    call_t call = {.fd = fd, .entry = aco_i_fd(fd), .addr_sz = &addr_sz};
    call.addr = (struct sockaddr *)(uintptr_t)addr;
    if (!is_in_task() || call.entry == NULL) {
        return lacks_entry(&call) ? -1 : aco_i_libc.connect(fd, addr, addr_sz);
    }
    for (int before = errno;;) {
        moment_t moment = aco_i_moment(call.entry);
        if (connect_now(&call) == 0) {
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
