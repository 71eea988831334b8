// SPDX-License-Identifier: Apache-2.0
/* Input and output of what is not a file alone, as the runtime does it. */
#include "internal.h"

#include <sys/socket.h>

HOOKS_OF(io);

/* ==== Any descriptor ========================================================================= */

HOOK(ssize_t, read, (int fd, void *buf, size_t sz), (fd, buf, sz), syscall(SYS_read, fd, buf, sz))
{
    return is_in_task() ? aco_read(fd, buf, sz) : real_read(fd, buf, sz);
}
HOOK_ALIAS(__read, read);

HOOK(ssize_t, __read_chk, (int fd, void *buf, size_t sz, size_t buf_sz), (fd, buf, sz, buf_sz),
     syscall(SYS_read, fd, buf, sz))
{
    return is_in_task() && sz <= buf_sz ? aco_read(fd, buf, sz)
                                        : real___read_chk(fd, buf, sz, buf_sz);
}

HOOK(ssize_t, readv, (int fd, const struct iovec *iov, int ct), (fd, iov, ct),
     syscall(SYS_readv, fd, iov, ct))
{
    return is_in_task() ? aco_readv(fd, iov, ct) : real_readv(fd, iov, ct);
}

HOOK(ssize_t, write, (int fd, const void *buf, size_t sz), (fd, buf, sz),
     syscall(SYS_write, fd, buf, sz))
{
    return is_in_task() ? aco_write(fd, buf, sz) : real_write(fd, buf, sz);
}
HOOK_ALIAS(__write, write);

HOOK(ssize_t, writev, (int fd, const struct iovec *iov, int ct), (fd, iov, ct),
     syscall(SYS_writev, fd, iov, ct))
{
    return is_in_task() ? aco_writev(fd, iov, ct) : real_writev(fd, iov, ct);
}

/* ==== Receiving ============================================================================== */

HOOK(ssize_t, recv, (int fd, void *buf, size_t sz, int flags), (fd, buf, sz, flags),
     syscall(SYS_recvfrom, fd, buf, sz, flags, NULL, NULL))
{
    return is_in_task() ? aco_recv(fd, buf, sz, flags) : real_recv(fd, buf, sz, flags);
}

HOOK(ssize_t, __recv_chk, (int fd, void *buf, size_t sz, size_t buf_sz, int flags),
     (fd, buf, sz, buf_sz, flags), syscall(SYS_recvfrom, fd, buf, sz, flags, NULL, NULL))
{
    return is_in_task() && sz <= buf_sz ? aco_recv(fd, buf, sz, flags)
                                        : real___recv_chk(fd, buf, sz, buf_sz, flags);
}

HOOK(ssize_t, recvfrom,
     (int fd, void *buf, size_t sz, int flags, struct sockaddr *addr, socklen_t *addr_sz),
     (fd, buf, sz, flags, addr, addr_sz), syscall(SYS_recvfrom, fd, buf, sz, flags, addr, addr_sz))
{
    return is_in_task() ? aco_recvfrom(fd, buf, sz, flags, addr, addr_sz)
                        : real_recvfrom(fd, buf, sz, flags, addr, addr_sz);
}

HOOK(ssize_t, __recvfrom_chk,
     (int fd, void *buf, size_t sz, size_t buf_sz, int flags, struct sockaddr *addr,
      socklen_t *addr_sz),
     (fd, buf, sz, buf_sz, flags, addr, addr_sz),
     syscall(SYS_recvfrom, fd, buf, sz, flags, addr, addr_sz))
{
    return is_in_task() && sz <= buf_sz
               ? aco_recvfrom(fd, buf, sz, flags, addr, addr_sz)
               : real___recvfrom_chk(fd, buf, sz, buf_sz, flags, addr, addr_sz);
}

HOOK(ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags), (fd, msg, flags),
     syscall(SYS_recvmsg, fd, msg, flags))
{
    return is_in_task() ? aco_recvmsg(fd, msg, flags) : real_recvmsg(fd, msg, flags);
}

/* As the kernel does it: `timeout` is looked at after each message, and never ends a wait. */
static int receive_messages(int fd, struct mmsghdr *messages, unsigned ct, int flags,
                            struct timespec *timeout)
{
    int64_t until = 0;
    unsigned i = 0;
    int is_over = 0;
    if (timeout != NULL) {
        until = aco_i_after(ns_of(timeout));
    }
    for (; i < ct && !is_over; i++) {
        ssize_t sz = aco_recvmsg(fd, &messages[i].msg_hdr, flags & ~MSG_WAITFORONE);
        if (sz < 0) {
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
    return is_in_task() && is_right && ct != 0 ? receive_messages(fd, messages, ct, flags, timeout)
                                               : real_recvmmsg(fd, messages, ct, flags, timeout);
}

/* ==== Sending ================================================================================ */

HOOK(ssize_t, send, (int fd, const void *buf, size_t sz, int flags), (fd, buf, sz, flags),
     syscall(SYS_sendto, fd, buf, sz, flags, NULL, 0))
{
    return is_in_task() ? aco_send(fd, buf, sz, flags) : real_send(fd, buf, sz, flags);
}
HOOK_ALIAS(__send, send);

HOOK(ssize_t, sendto,
     (int fd, const void *buf, size_t sz, int flags, const struct sockaddr *addr,
      socklen_t addr_sz),
     (fd, buf, sz, flags, addr, addr_sz), syscall(SYS_sendto, fd, buf, sz, flags, addr, addr_sz))
{
    return is_in_task() ? aco_sendto(fd, buf, sz, flags, addr, addr_sz)
                        : real_sendto(fd, buf, sz, flags, addr, addr_sz);
}

HOOK(ssize_t, sendmsg, (int fd, const struct msghdr *msg, int flags), (fd, msg, flags),
     syscall(SYS_sendmsg, fd, msg, flags))
{
    return is_in_task() ? aco_sendmsg(fd, msg, flags) : real_sendmsg(fd, msg, flags);
}

HOOK(int, sendmmsg, (int fd, struct mmsghdr *messages, unsigned ct, int flags),
     (fd, messages, ct, flags), refuse(ENOSYS))
{
    if (!is_in_task() || ct == 0) {
        return real_sendmmsg(fd, messages, ct, flags);
    }
    ct = ct < IOV_MAX ? ct : IOV_MAX;
    for (unsigned i = 0; i < ct; i++) {
        ssize_t sz = aco_sendmsg(fd, &messages[i].msg_hdr, flags);
        if (sz < 0) {
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
    return is_in_task() ? aco_i_accept(fd, addr, addr_sz, flags, 0)
                        : real_accept4(fd, addr, addr_sz, flags);
}

HOOK(int, accept, (int fd, struct sockaddr *addr, socklen_t *addr_sz), (fd, addr, addr_sz),
     syscall(SYS_accept4, fd, addr, addr_sz, 0))
{
    return is_in_task() ? aco_i_accept(fd, addr, addr_sz, 0, 0) : real_accept(fd, addr, addr_sz);
}

HOOK(int, connect, (int fd, const struct sockaddr *addr, socklen_t addr_sz), (fd, addr, addr_sz),
     syscall(SYS_connect, fd, addr, addr_sz))
{
    return is_in_task() ? aco_connect(fd, addr, addr_sz) : real_connect(fd, addr, addr_sz);
}
HOOK_ALIAS(__connect, connect);

/* ==== From one descriptor to another ========================================================= */

#if __SIZEOF_POINTER__ == 8
HOOK(ssize_t, sendfile, (int fd, int in, int64_t *offset, size_t sz), (fd, in, offset, sz),
     syscall(SYS_sendfile, fd, in, offset, sz))
{
    return is_in_task() ? aco_sendfile(fd, in, offset, sz) : real_sendfile(fd, in, offset, sz);
}
HOOK_ALIAS(sendfile64, sendfile);
#else
HOOK(ssize_t, sendfile64, (int fd, int in, int64_t *offset, size_t sz), (fd, in, offset, sz),
     syscall(SYS_sendfile64, fd, in, offset, sz))
{
    return is_in_task() ? aco_sendfile(fd, in, offset, sz) : real_sendfile64(fd, in, offset, sz);
}

HOOK(ssize_t, sendfile, (int fd, int in, int32_t *offset, size_t sz), (fd, in, offset, sz),
     syscall(SYS_sendfile, fd, in, offset, sz))
{
    if (!is_in_task()) {
        return real_sendfile(fd, in, offset, sz);
    }
    int64_t large = offset != NULL ? *offset : 0;
    ssize_t result = aco_sendfile(fd, in, offset != NULL ? &large : NULL, sz);
    if (offset != NULL) {
        *offset = (int32_t)large;
    }
    return result;
}
#endif
