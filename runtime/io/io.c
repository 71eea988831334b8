// SPDX-License-Identifier: Apache-2.0
/*
 * Input and output. Each call is tried so that the kernel does not wait; if it would have, the task
 * does. Sockets are tried with MSG_DONTWAIT, other files with RWF_NOWAIT, or after poll() if they
 * don't know that. O_NONBLOCK, which others may see, is not set. Outside tasks, a call is libc's.
 */
#include "io/call.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#define GENERAL_WAY -2 /* instead of what a call returns */
#define WINDOW 16      /* buffers per try, once a part was moved */
#define PAGE_SZ 4096   /* divides the size of a page everywhere */
#define TTY_CHUNK 256u /* bytes that fit when poll() says POLLOUT */

/* Fills `window` with the buffers after the first `done` bytes, as far as they fit; returns how
 * many. */
static int rest_of(struct iovec window[WINDOW], const call_t *call)
{
    size_t done = call->done;
    int ct = 0;
    for (int i = 0; i < call->iov_ct && ct < WINDOW; i++) {
        size_t sz = call->iov[i].iov_len;
        if (done >= sz) {
            done -= sz;
            continue;
        }
        window[ct++] = (struct iovec){(char *)call->iov[i].iov_base + done, sz - done};
        done = 0;
    }
    return ct;
}

/* Whether there are bytes to move; if not, the kernel reports at once what is wrong. */
static int may_wait_for(const struct iovec *iov, int ct)
{
    return iov != NULL && ct > 0 && ct <= IOV_MAX && size_of(iov, ct) != 0;
}

/* ==== Other files than sockets =============================================================== */

/* Bytes that fit for sure when poll() reports POLLOUT. */
static size_t sure_sz(int fd)
{
    return isatty(fd) ? TTY_CHUNK : file_kind(fd) == S_IFIFO ? PIPE_BUF : SIZE_MAX;
}

/* Writes to a FIFO, which does not know RWF_NOWAIT, by a second, nonblocking descriptor: as much as
 * fits. -1 with errno, ENXIO if there is no reader. */
static ssize_t write_to_fifo(int fd, const struct iovec *iov, int ct)
{
    char name[32];
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    int other = aco_i_libc.open(name, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (other < 0) {
        errno = ENXIO;
        return -1;
    }
    ssize_t result = aco_i_libc.writev(other, iov, ct);
    KEEP_ERRNO();
    aco_i_libc.close(other);
    return result;
}

/* Sets `*count` to that of an eventfd and returns 1; 0: the descriptor is no eventfd. */
static int count_of_eventfd(int fd, uint64_t *count)
{
    static const char key[] = "eventfd-count:";
    char name[40], text[512];
    snprintf(name, sizeof(name), "/proc/self/fdinfo/%d", fd);
    int info = aco_i_libc.open(name, O_RDONLY | O_CLOEXEC);
    ssize_t sz = info < 0 ? -1 : aco_i_libc.read(info, text, sizeof(text) - 1);
    KEEP_ERRNO();
    if (info >= 0) {
        aco_i_libc.close(info);
    }
    text[sz > 0 ? sz : 0] = '\0';
    const char *found = strstr(text, key);
    *count = found == NULL ? 0 : strtoull(found + sizeof(key) - 1, NULL, 16);
    return found != NULL;
}

/* Whether eventfds refuse more than 8 bytes, of which older kernels take the first. */
static int is_exact(void)
{
    static int answer; /* atomic; 0: not known */
    if (__atomic_load_n(&answer, __ATOMIC_RELAXED) == 0) {
        static const uint64_t values[2];
        KEEP_ERRNO();
        int fd = eventfd(0, EFD_CLOEXEC);
        ssize_t sz = aco_i_libc.write(fd, values, sizeof(values));
        if (fd >= 0) {
            aco_i_libc.close(fd);
            __atomic_store_n(&answer, sz < 0 ? 1 : -1, __ATOMIC_RELAXED);
        }
    }
    return __atomic_load_n(&answer, __ATOMIC_RELAXED) > 0;
}

/* Whether an eventfd refuses so many bytes, whatever its count is. */
static int is_refused(const struct iovec *iov)
{
    return iov->iov_len < sizeof(uint64_t) || (iov->iov_len > sizeof(uint64_t) && is_exact());
}

/* Writes to a file of no kind, such as an eventfd, that poll() reports as writable: the count of
 * that has room for 1 then, but perhaps not for the value. It writes one of several values. */
static ssize_t write_to_nameless(int fd, const struct iovec *iov, int ct)
{
    uint64_t value = 0, count;
    if (iov->iov_len >= sizeof(value)) {
        memcpy(&value, iov->iov_base, sizeof(value));
    }
    int is_simple = ct == 1 && value <= 1;
    if (is_simple || !count_of_eventfd(fd, &count)) {
        return aco_i_libc.writev(fd, iov, ct);
    }
    if (!is_refused(iov) && value != UINT64_MAX && value > UINT64_MAX - 1 - count) {
        errno = EAGAIN;
        return -1;
    }
    return aco_i_libc.writev(fd, iov, 1);
}

/* Whether a write to an eventfd without room ends at once all the same. */
static int ends_at_once(int fd, const struct iovec *iov, int ct)
{
    uint64_t value = 1, count;
    if (size_of(iov, ct) >= sizeof(value) && iov->iov_len >= sizeof(value)) {
        memcpy(&value, iov->iov_base, sizeof(value));
    }
    return count_of_eventfd(fd, &count) &&
           (size_of(iov, ct) < sizeof(value) || value == 0 || value == UINT64_MAX ||
            (iov->iov_len > sizeof(value) && is_exact()));
}

/* Writes to what poll() reports as full: a pipe without a free page may have room in its last one,
 * and an eventfd refuses some values at once. */
static ssize_t write_to_full(int fd, const struct iovec *iov, int ct)
{
    ssize_t result = -1;
    errno = EAGAIN;
    if (file_kind(fd) == 0 && ends_at_once(fd, iov, ct)) {
        return aco_i_libc.writev(fd, iov, ct);
    }
    errno = EAGAIN;
    if (file_kind(fd) == S_IFIFO) {
        result = write_to_fifo(fd, iov, ct);
        errno = result < 0 && errno == ENXIO ? EAGAIN : errno;
    }
    return result;
}

/* Moves bytes where RWF_NOWAIT is not known. The thread waits if another process takes the bytes,
 * or the room, between poll() and the call. */
static ssize_t when_polled(const call_t *call, const struct iovec *iov, int ct, int events)
{
    size_t most = events == POLLOUT && size_of(iov, ct) > TTY_CHUNK ? sure_sz(call->fd) : SIZE_MAX;
    while (ct > 1 && iov->iov_len == 0) {
        iov++;
        ct--;
    }
    struct iovec chunk = {iov->iov_base, iov->iov_len < most ? iov->iov_len : most};
    if (most == PIPE_BUF && size_of(iov, ct) > most) {
        ssize_t written = write_to_fifo(call->fd, iov, ct);
        if (written >= 0 || errno != ENXIO) {
            return written;
        }
    }
    aco_i_lock_fd(call->entry);
    int polled = events_now(call->fd, events);
    ssize_t result = polled;
    if (polled == 0) {
        errno = EAGAIN;
        result = events == POLLOUT ? write_to_full(call->fd, iov, ct) : -1;
    } else if (polled > 0 && events == POLLOUT && file_kind(call->fd) == 0) {
        result = write_to_nameless(call->fd, iov, ct);
    } else if (polled > 0) {
        result = events == POLLIN          ? aco_i_libc.readv(call->fd, iov, ct)
                 : size_of(iov, ct) > most ? aco_i_libc.writev(call->fd, &chunk, 1)
                                           : aco_i_libc.writev(call->fd, iov, ct);
    }
    aco_i_unlock_fd(call->entry);
    if (result == 0 && call->has_waited && (polled & POLLHUP) != 0 &&
        file_kind(call->fd) != S_IFIFO) {
        errno = EIO; /* of a terminal, for a call that waits; a later one sees an end */
        return -1;
    }
    return result;
}

/* /dev/zero and similar stop early, under RWF_NOWAIT, if another thread wants the processor. They
 * never wait. */
static int is_memory(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISCHR(status.st_mode) && major(status.st_rdev) == 1;
}

static ssize_t move_no_socket(const call_t *call, const struct iovec *iov, int ct, int events)
{
    if (events == POLLOUT && size_of(iov, ct) == 0) {
        return aco_i_libc.write(call->fd, iov->iov_base, 0); /* does not wait */
    }
    ssize_t result = aco_i_move_at_once(call->fd, events == POLLOUT, iov, ct, -1);
    if (result > 0 && result % PAGE_SZ == 0 && (size_t)result < size_of(iov, ct) &&
        events == POLLIN && is_memory(call->fd)) {
        return aco_i_libc.readv(call->fd, iov, ct);
    }
    if (result >= 0 || (errno != EAGAIN && errno != EOPNOTSUPP && errno != ENOSYS)) {
        return result;
    }
    int error = errno;
    int kind = file_kind(call->fd);
    if (kind == S_IFREG || kind == S_IFBLK) {
        return events == POLLIN ? aco_i_file_read(call->fd, iov, ct, -1)
                                : aco_i_file_write(call->fd, iov, ct, -1);
    }
    errno = error;
    if (error != EAGAIN && kind == S_IFSOCK) { /* the hint was about another file */
        struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)ct};
        aco_i_set_no_socket(call->entry, 0);
        return events == POLLIN ? aco_i_libc.recvmsg(call->fd, &msg, MSG_DONTWAIT)
                                : aco_i_libc.sendmsg(call->fd, &msg, MSG_DONTWAIT);
    }
    return error == EAGAIN ? -1 : when_polled(call, iov, ct, events);
}

/* ==== Input ================================================================================== */

static ssize_t try_recv(call_t *call)
{
    const struct iovec *iov = call->iov;
    if (call->flags == 0 && aco_i_is_drained(call->entry)) {
        errno = EAGAIN;
        return -1;
    }
    return aco_i_libc.recvfrom(call->fd, (char *)iov->iov_base + call->done,
                               iov->iov_len - call->done, call->flags | MSG_DONTWAIT, call->addr,
                               call->addr_sz);
}

static ssize_t try_recvmsg(call_t *call)
{
    return aco_i_libc.recvmsg(call->fd, call->msg, call->flags | MSG_DONTWAIT);
}

static ssize_t try_read(call_t *call)
{
    if (!aco_i_is_no_socket(call->entry)) {
        if (call->iov_ct == 1) {
            ssize_t result = try_recv(call);
            if (result >= 0 || errno != ENOTSOCK) {
                return result;
            }
        } else {
            struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)call->iov,
                                 .msg_iovlen = (size_t)call->iov_ct};
            ssize_t result = aco_i_libc.recvmsg(call->fd, &msg, MSG_DONTWAIT);
            if (result >= 0 || errno != ENOTSOCK) {
                return result;
            }
        }
        aco_i_set_no_socket(call->entry, 1);
    }
    return move_no_socket(call, call->iov, call->iov_ct, POLLIN);
}

/* Receives once, and notes it if that left nothing. */
static inline ssize_t receive(call_t *call, try_t try)
{
    moment_t moment;
    size_t sz = call->iov->iov_len - call->done;
    ssize_t result = until_done(call, EPOLLIN, try, &moment);
    if (result > 0 && (size_t)result < sz && (call->flags & ~MSG_DONTWAIT) == 0) {
        aco_i_set_drained(call->entry, moment);
    }
    return result;
}

static ssize_t try_rest(call_t *call)
{
    struct iovec window[WINDOW];
    struct msghdr msg = {.msg_iov = window, .msg_iovlen = (size_t)rest_of(window, call)};
    return aco_i_libc.recvmsg(call->fd, &msg, call->flags | MSG_DONTWAIT);
}

/* Whether MSG_WAITALL or SO_RCVLOWAT may ask for more than was received. */
static inline int may_be_short(const call_t *call, ssize_t result)
{
    return result > 0 && ((call->flags & MSG_WAITALL) != 0 || aco_i_has_low_water());
}

/* How many of `sz` bytes a call waits for, if more than it has received; else 0. */
static size_t least_of(const call_t *call, ssize_t result, size_t sz)
{
    size_t least = sz;
    if ((call->flags & MSG_WAITALL) == 0) {
        int mark = socket_option(call->fd, SO_RCVLOWAT);
        least = mark < 0 ? 0 : (size_t)mark < sz ? (size_t)mark : sz;
    }
    return (size_t)result < least && socket_option(call->fd, SO_TYPE) == SOCK_STREAM ? least : 0;
}

static int is_tcp(int fd)
{
    return socket_option(fd, SO_PROTOCOL) == IPPROTO_TCP;
}

/* Whether a TCP connection has ended, and nothing is unread. The call then returns what has come;
 * an error stays for the next one. Local sockets don't keep theirs. */
static int is_at_end(const call_t *call)
{
    int ct_unread = 0;
    return events_now(call->fd, POLLRDHUP) > 0 && is_tcp(call->fd) &&
           ioctl(call->fd, FIONREAD, &ct_unread) == 0 && ct_unread == 0;
}

/* Peeks until `sz` bytes are there, or no more can come: TCP alone does that. */
static ssize_t peek_whole(call_t *call, ssize_t result, size_t sz, try_t try)
{
    while ((size_t)result < sz && is_tcp(call->fd)) {
        moment_t moment = aco_i_moment(call->entry);
        ssize_t now = try(call);
        if (now > result) {
            result = now;
        } else if (now < result || events_now(call->fd, POLLRDHUP) != 0 ||
                   aco_i_wait_to_retry(call, EPOLLIN, moment) != 1) {
            break;
        }
    }
    return result;
}

static ssize_t receive_rest(call_t *call, ssize_t result, size_t sz, try_t try)
{
    for (call->done = (size_t)result; call->done < sz;) {
        aco_i_spend_call();
        moment_t moment = aco_i_moment(call->entry);
        result = is_at_end(call) ? 0 : try(call);
        if (result > 0) {
            call->done += (size_t)result;
        } else if (result == 0 ||
                   (errno != EINTR &&
                    (errno != EAGAIN || aco_i_wait_to_retry(call, EPOLLIN, moment) != 1))) {
            break;
        }
    }
    return (ssize_t)call->done;
}

/* Receives more after the first `result` bytes, if the call waits for that. Bytes that came before
 * an error or the end count. `sz` is the room for all. */
static ssize_t receive_whole(call_t *call, ssize_t result, size_t sz, try_t try)
{
    KEEP_ERRNO();
    size_t least = least_of(call, result, sz);
    return (call->flags & MSG_PEEK) != 0 ? peek_whole(call, result, least, try)
                                         : receive_rest(call, result, least, try);
}

/* Whether a call may wait for more on a local socket. The kernel ends it where descriptors have
 * come, which only recvmsg() reports. */
static inline int may_end_at_descriptors(int fd, int flags)
{
    if ((flags & MSG_WAITALL) == 0 && !aco_i_has_low_water()) {
        return 0;
    }
    KEEP_ERRNO();
    return socket_option(fd, SO_DOMAIN) == AF_UNIX;
}

/* Control data with a sender, and no room for descriptors. */
typedef union {
    struct cmsghdr aligned;
    char bytes[CMSG_SPACE(sizeof(struct ucred))];
} sender_t;

static __attribute__((noinline)) ssize_t receive_message(int fd, const struct iovec *iov, int ct,
                                                         int flags, struct sockaddr *addr,
                                                         socklen_t *addr_sz)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)ct};
    msg.msg_name = addr;
    msg.msg_namelen = addr != NULL ? *addr_sz : 0;
    sender_t control;
    if (socket_option(fd, SO_PASSCRED) > 0) {
        msg.msg_control = &control;
        msg.msg_controllen = sizeof(control);
    }
    ssize_t result = aco_recvmsg(fd, &msg, flags);
    if (result >= 0 && addr != NULL) {
        *addr_sz = msg.msg_namelen;
    }
    return result;
}

/* Whether a read of no bytes waits: only those of inotify and fanotify do. */
static int waits_for_none(int fd)
{
    char name[32], target[64];
    if (file_kind(fd) != 0) {
        return 0;
    }
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    ssize_t sz = readlink(name, target, sizeof(target) - 1);
    target[sz > 0 ? sz : 0] = '\0';
    return strstr(target, "notify") != NULL;
}

static ssize_t try_none(call_t *call)
{
    if (events_now(call->fd, POLLIN) == 0) {
        errno = EAGAIN;
        return -1;
    }
    return aco_i_libc.read(call->fd, call->iov->iov_base, 0);
}

/* The entry of a TCP connection, for a call in a task; NULL: the call goes the general way. */
static inline fd_t *simple_entry(int fd)
{
    fd_t *entry = is_in_task() ? aco_i_fd(fd) : NULL;
    return entry != NULL && aco_i_is_plain_tcp(entry) ? entry : NULL;
}

/* Receives from a TCP connection as most calls do, with small frames while the task waits. Returns
 * the call's result; GENERAL_WAY: another way is needed for a timeout, O_NONBLOCK or an end. */
static inline __attribute__((always_inline)) ssize_t receive_simply(int fd, fd_t *entry, void *buf,
                                                                    size_t sz)
{
    moment_t moment = aco_i_moment(entry);
    for (uint32_t ct_closed = moment.ct_closed; moment.ct_closed == ct_closed;
         moment = aco_i_moment(entry)) {
        if (!aco_i_is_plain_tcp(entry)) {
            return GENERAL_WAY;
        }
        if (!aco_i_is_drained(entry)) {
            int before = errno;
            ssize_t result = aco_i_libc.recvfrom(fd, buf, sz, MSG_DONTWAIT, NULL, NULL);
            if (result != (ssize_t)sz && (result > 0 || (result < 0 && errno == EAGAIN))) {
                aco_i_set_drained(entry, moment);
            }
            if (result >= 0 || (errno != EAGAIN && errno != EINTR && errno != ENOTSOCK)) {
                return result;
            }
            int error = errno;
            errno = before;
            if (error == ENOTSOCK) { /* the descriptor is another file's now */
                return GENERAL_WAY;
            }
        } else if (aco_i_wait_limit(fd, entry, EPOLLIN) != NO_DEADLINE) {
            return GENERAL_WAY;
        } else if (aco_i_wait_for(fd, entry, EPOLLIN, moment, NO_DEADLINE) < 0) {
            return -1;
        }
    }
    errno = EBADF;
    return -1;
}

/* Not inlined: that keeps the frames of the simple way small. */
static __attribute__((noinline)) ssize_t read_generally(int fd, void *buf, size_t sz)
{
    call_t call = {.fd = fd, .entry = aco_i_fd(fd), .iov_ct = 1};
    if (!is_in_task() || call.entry == NULL || (sz == 0 && !waits_for_none(fd))) {
        return lacks_entry(&call) ? -1 : aco_i_libc.read(fd, buf, sz);
    }
    struct iovec iov = {buf, sz};
    call.iov = &iov;
    if (sz == 0) {
        moment_t moment;
        return until_done(&call, EPOLLIN, try_none, &moment);
    }
    if (may_end_at_descriptors(fd, 0)) {
        return receive_message(fd, &iov, 1, 0, NULL, NULL);
    }
    ssize_t result = receive(&call, try_read);
    return may_be_short(&call, result) ? receive_whole(&call, result, sz, try_rest) : result;
}

ssize_t aco_read(int fd, void *buf, size_t sz)
{
    aco_i_spend_call();
    fd_t *entry = simple_entry(fd);
    ssize_t result = entry != NULL && sz != 0 ? receive_simply(fd, entry, buf, sz) : GENERAL_WAY;
    return result == GENERAL_WAY ? read_generally(fd, buf, sz) : result;
}

ssize_t aco_readv(int fd, const struct iovec *iov, int ct)
{
    aco_i_spend_call();
    call_t call = {.fd = fd, .entry = aco_i_fd(fd), .iov = iov, .iov_ct = ct};
    if (!is_in_task() || call.entry == NULL || !may_wait_for(iov, ct)) {
        return lacks_entry(&call) ? -1 : aco_i_libc.readv(fd, iov, ct);
    }
    if (may_end_at_descriptors(fd, 0)) {
        return receive_message(fd, iov, ct, 0, NULL, NULL);
    }
    moment_t moment;
    ssize_t result = until_done(&call, EPOLLIN, try_read, &moment);
    return may_be_short(&call, result) ? receive_whole(&call, result, size_of(iov, ct), try_rest)
                                       : result;
}

/* Whether TCP has waited for a read of no bytes, which then returns 0 without data. */
static int has_waited_for_none(const call_t *call)
{
    return errno == EAGAIN && call->has_waited && is_tcp(call->fd);
}

ssize_t aco_recvfrom(int fd, void *buf, size_t sz, int flags, struct sockaddr *addr,
                     socklen_t *addr_sz)
{
    aco_i_spend_call();
    struct iovec iov = {buf, sz};
    call_t call = {.fd = fd, .flags = flags, .entry = aco_i_fd(fd), .iov = &iov, .iov_ct = 1};
    call.addr = addr;
    call.addr_sz = addr_sz;
    if (!is_in_task() || call.entry == NULL) {
        return lacks_entry(&call) ? -1 : aco_i_libc.recvfrom(fd, buf, sz, flags, addr, addr_sz);
    }
    if (may_end_at_descriptors(fd, flags)) {
        return receive_message(fd, &iov, 1, flags, addr, addr_sz);
    }
    int before = errno;
    ssize_t result = receive(&call, try_recv);
    if (result < 0 && sz == 0 && has_waited_for_none(&call)) {
        if (addr != NULL) {
            *addr_sz = 0;
        }
        errno = before;
        return 0;
    }
    return may_be_short(&call, result) ? receive_whole(&call, result, sz, try_recv) : result;
}

ssize_t aco_recv(int fd, void *buf, size_t sz, int flags)
{
    aco_i_spend_call();
    fd_t *entry = flags == 0 && sz != 0 ? simple_entry(fd) : NULL;
    ssize_t result = entry != NULL ? receive_simply(fd, entry, buf, sz) : GENERAL_WAY;
    return result == GENERAL_WAY ? aco_recvfrom(fd, buf, sz, flags, NULL, NULL) : result;
}

/* A recvmsg() that may wait for more after the first bytes. */
typedef struct {
    call_t call;
    size_t control_sz; /* the caller's room for control data */
    int is_complete;   /* descriptors have come, after which the kernel returns */
} recvmsg_t;

static const struct cmsghdr *find_control(struct msghdr *msg, int type, size_t least_sz)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(msg);
    while (c != NULL && (c->cmsg_level != SOL_SOCKET || c->cmsg_type != type ||
                         c->cmsg_len < CMSG_LEN(least_sz))) {
        c = CMSG_NXTHDR(msg, c);
    }
    return c;
}

/* Whether the bytes in `msg` came with descriptors, for which there may have been no room. */
static int has_descriptors(int fd, struct msghdr *msg)
{
    return find_control(msg, SCM_RIGHTS, 0) != NULL ||
           ((msg->msg_flags & MSG_CTRUNC) != 0 && socket_option(fd, SO_DOMAIN) == AF_UNIX &&
            (find_control(msg, SCM_CREDENTIALS, sizeof(struct ucred)) != NULL ||
             socket_option(fd, SO_PASSCRED) == 0));
}

/* Whether the next bytes have the sender of those in `msg`, as the kernel joins no others; or -1
 * with errno. There is no room for descriptors: a peek would open them. */
static int has_same_sender(int fd, struct msghdr *msg)
{
    sender_t control;
    char byte;
    struct iovec iov = {&byte, 1};
    struct msghdr next = {.msg_iov = &iov, .msg_iovlen = 1};
    const struct cmsghdr *sender = find_control(msg, SCM_CREDENTIALS, sizeof(struct ucred));
    if (sender == NULL) {
        return 1;
    }
    next.msg_control = &control;
    next.msg_controllen = sizeof(control);
    ssize_t result = aco_i_libc.recvmsg(fd, &next, MSG_PEEK | MSG_DONTWAIT);
    if (result <= 0) {
        return (int)result;
    }
    const struct cmsghdr *other = find_control(&next, SCM_CREDENTIALS, sizeof(struct ucred));
    return other == NULL || memcmp(CMSG_DATA(other), CMSG_DATA(sender), sizeof(struct ucred)) == 0;
}

/* The control data of the last bytes counts, as in a call that gets all of them at once. */
static ssize_t try_rest_of_message(call_t *call)
{
    recvmsg_t *r = (recvmsg_t *)call;
    int goes_on = r->is_complete ? 0 : has_same_sender(call->fd, call->msg);
    if (goes_on <= 0) {
        return goes_on;
    }
    struct iovec window[WINDOW];
    struct msghdr rest = {.msg_iov = window, .msg_iovlen = (size_t)rest_of(window, call)};
    rest.msg_control = call->msg->msg_control;
    rest.msg_controllen = (__typeof__(rest.msg_controllen))r->control_sz;
    ssize_t result = aco_i_libc.recvmsg(call->fd, &rest, call->flags | MSG_DONTWAIT);
    if (result > 0) {
        call->msg->msg_flags |= rest.msg_flags;
        if (rest.msg_controllen != 0) {
            call->msg->msg_controllen = rest.msg_controllen;
        }
        r->is_complete = has_descriptors(call->fd, &rest);
    }
    return result;
}

ssize_t aco_recvmsg(int fd, struct msghdr *msg, int flags)
{
    aco_i_spend_call();
    recvmsg_t r = {.call = {.fd = fd, .flags = flags, .entry = aco_i_fd(fd), .msg = msg}};
    if (!is_in_task() || r.call.entry == NULL) {
        return lacks_entry(&r.call) ? -1 : aco_i_libc.recvmsg(fd, msg, flags);
    }
    r.control_sz = msg != NULL ? msg->msg_controllen : 0;
    moment_t moment;
    int before = errno;
    ssize_t result = until_done(&r.call, EPOLLIN, try_recvmsg, &moment);
    if (result < 0 && has_waited_for_none(&r.call) &&
        size_of(msg->msg_iov, (int)msg->msg_iovlen) == 0) {
        msg->msg_namelen = msg->msg_name != NULL ? 0 : msg->msg_namelen;
        msg->msg_controllen = 0;
        msg->msg_flags = 0;
        errno = before;
        return 0;
    }
    if (!may_be_short(&r.call, result) || has_descriptors(fd, msg)) {
        return result;
    }
    r.call.iov = msg->msg_iov;
    r.call.iov_ct = (int)msg->msg_iovlen;
    return receive_whole(&r.call, result, size_of(r.call.iov, r.call.iov_ct), try_rest_of_message);
}

ssize_t aco_read_all(int fd, void *buf, size_t sz)
{
    size_t done = 0;
    while (done < sz) {
        ssize_t result = aco_read(fd, (char *)buf + done, sz - done);
        if (result <= 0) {
            return result < 0 && done == 0 ? -1 : (ssize_t)done;
        }
        done += (size_t)result;
    }
    return (ssize_t)done;
}

/* ==== Output ================================================================================= */

static ssize_t try_sendmsg(call_t *call)
{
    if (!may_go_on(call)) {
        return -1;
    }
    if (call->done == 0) {
        return aco_i_libc.sendmsg(call->fd, call->msg, call->flags | MSG_DONTWAIT);
    }
    struct iovec window[WINDOW];
    struct msghdr msg = {.msg_iov = window, .msg_iovlen = (size_t)rest_of(window, call)};
    return aco_i_libc.sendmsg(call->fd, &msg, call->flags | MSG_DONTWAIT | MSG_NOSIGNAL);
}

static ssize_t try_send(call_t *call)
{
    if (!may_go_on(call)) {
        return -1;
    }
    int no_signal = call->done != 0 ? MSG_NOSIGNAL : 0;
    return aco_i_libc.send(call->fd, (char *)call->iov->iov_base + call->done,
                           call->iov->iov_len - call->done, call->flags | MSG_DONTWAIT | no_signal);
}

static ssize_t try_write(call_t *call)
{
    if (!aco_i_is_no_socket(call->entry)) {
        ssize_t result = call->iov_ct == 1 ? try_send(call) : try_sendmsg(call);
        if (result >= 0 || errno != ENOTSOCK) {
            return result;
        }
        aco_i_set_no_socket(call->entry, 1);
    }
    if (call->done == 0) {
        return move_no_socket(call, call->iov, call->iov_ct, POLLOUT);
    }
    struct iovec window[WINDOW];
    int ct = rest_of(window, call);
    return move_no_socket(call, window, ct, POLLOUT);
}

/* Sends all `sz` bytes, as a blocking call does. Bytes sent before an error count. */
static inline ssize_t send_whole(call_t *call, size_t sz, try_t try)
{
    moment_t moment;
    int before = errno;
    do {
        aco_i_spend_call();
        ssize_t result = until_done(call, EPOLLOUT, try, &moment);
        if (result < 0) {
            errno = call->done != 0 ? before : errno;
            return call->done != 0 ? (ssize_t)call->done : -1;
        }
        call->done += (size_t)result;
        if (result == 0) {
            break;
        }
    } while (call->done < sz && (call->flags & MSG_DONTWAIT) == 0);
    return (ssize_t)call->done;
}

/* Sends once on a TCP connection, as most calls do. Returns the call's result if that is all;
 * GENERAL_WAY: the call has to go on after the first `*done` bytes. */
static ssize_t send_simply(int fd, const void *buf, size_t sz, int flags, size_t *done)
{
    *done = 0;
    if ((flags & ~MSG_NOSIGNAL) != 0 || simple_entry(fd) == NULL) {
        return GENERAL_WAY;
    }
    int before = errno;
    ssize_t result = aco_i_libc.send(fd, buf, sz, flags | MSG_DONTWAIT);
    if (result == (ssize_t)sz ||
        (result < 0 && errno != EAGAIN && errno != EINTR && errno != ENOTSOCK)) {
        return result;
    }
    errno = before;
    *done = result > 0 ? (size_t)result : 0;
    return GENERAL_WAY;
}

static __attribute__((noinline)) ssize_t write_generally(int fd, const void *buf, size_t sz,
                                                         size_t done)
{
    struct iovec iov = {(void *)(uintptr_t)buf, sz};
    call_t call = {.fd = fd, .entry = aco_i_fd(fd), .iov = &iov, .iov_ct = 1, .done = done};
    if (!is_in_task() || call.entry == NULL) {
        return lacks_entry(&call) ? -1 : aco_i_libc.write(fd, buf, sz);
    }
    return send_whole(&call, sz, try_write);
}

ssize_t aco_write(int fd, const void *buf, size_t sz)
{
    aco_i_spend_call();
    size_t done;
    ssize_t result = send_simply(fd, buf, sz, 0, &done);
    return result == GENERAL_WAY ? write_generally(fd, buf, sz, done) : result;
}

ssize_t aco_writev(int fd, const struct iovec *iov, int ct)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)ct};
    call_t call = {.fd = fd, .entry = aco_i_fd(fd), .iov = iov, .iov_ct = ct, .msg = &msg};
    if (!is_in_task() || call.entry == NULL || !may_wait_for(iov, ct)) {
        return lacks_entry(&call) ? -1 : aco_i_libc.writev(fd, iov, ct);
    }
    return send_whole(&call, size_of(iov, ct), try_write);
}

static __attribute__((noinline)) ssize_t send_generally(int fd, const void *buf, size_t sz,
                                                        int flags, size_t done)
{
    struct iovec iov = {(void *)(uintptr_t)buf, sz};
    call_t call = {.fd = fd, .flags = flags, .entry = aco_i_fd(fd), .iov = &iov, .iov_ct = 1};
    call.done = done;
    if (!is_in_task() || call.entry == NULL) {
        return lacks_entry(&call) ? -1 : aco_i_libc.send(fd, buf, sz, flags);
    }
    return send_whole(&call, sz, try_send);
}

ssize_t aco_send(int fd, const void *buf, size_t sz, int flags)
{
    aco_i_spend_call();
    size_t done;
    ssize_t result = send_simply(fd, buf, sz, flags, &done);
    return result == GENERAL_WAY ? send_generally(fd, buf, sz, flags, done) : result;
}

ssize_t aco_sendmsg(int fd, const struct msghdr *msg, int flags)
{
    call_t call = {.fd = fd, .flags = flags, .entry = aco_i_fd(fd)};
    if (!is_in_task() || call.entry == NULL || msg == NULL || msg->msg_iovlen > IOV_MAX ||
        (msg->msg_iov == NULL && msg->msg_iovlen != 0)) {
        return lacks_entry(&call)
                   ? -1
                   : aco_i_libc.sendmsg(fd, msg, flags); /* which reports at once what is wrong */
    }
    call.iov = msg->msg_iov;
    call.iov_ct = (int)msg->msg_iovlen;
    call.msg = (struct msghdr *)(uintptr_t)msg;
    return send_whole(&call, size_of(call.iov, call.iov_ct), try_sendmsg);
}

ssize_t aco_sendto(int fd, const void *buf, size_t sz, int flags, const struct sockaddr *addr,
                   socklen_t addr_sz)
{
    struct iovec iov = {(void *)(uintptr_t)buf, sz};
    struct msghdr msg = {.msg_name = (void *)(uintptr_t)addr, .msg_namelen = addr_sz};
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    return aco_sendmsg(fd, &msg, flags);
}

ssize_t aco_write_all(int fd, const void *buf, size_t sz)
{
    size_t done = 0;
    while (done < sz) {
        ssize_t result = aco_write(fd, (const char *)buf + done, sz - done);
        if (result <= 0) {
            return result < 0 && done == 0 ? -1 : (ssize_t)done;
        }
        done += (size_t)result;
    }
    return (ssize_t)done;
}
