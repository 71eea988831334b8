// SPDX-License-Identifier: Apache-2.0
/* Questions to the kernel about a descriptor; -1 with errno if it has no answer. */
#ifndef ACO_RUNTIME_DESCRIPTOR_H
#define ACO_RUNTIME_DESCRIPTOR_H

#include "base/base.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* The value of an option of SOL_SOCKET that is an int. */
static inline int socket_option(int fd, int option)
{
    int value = 0;
    socklen_t sz = sizeof(value);
    return getsockopt(fd, SOL_SOCKET, option, &value, &sz) == 0 ? value : -1;
}

/* The kind of its file, in bits of S_IFMT; 0: an eventfd or similar, which has none. */
static inline int file_kind(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 ? (int)(status.st_mode & S_IFMT) : -1;
}

/* poll() without waiting. A signal ends it all the same, and it is made again. */
static inline int poll_now(struct pollfd *fds, nfds_t ct)
{
    int before = errno, result;
    do {
        result = aco_i_libc.poll(fds, ct, 0);
    } while (result < 0 && errno == EINTR);
    errno = result < 0 ? errno : before;
    return result;
}

/* The events of poll() that it has now; 0: none. */
static inline int events_now(int fd, int events)
{
    struct pollfd polled = {fd, (short)events, 0};
    int ct = poll_now(&polled, 1);
    return ct > 0 ? polled.revents : ct;
}

#endif
