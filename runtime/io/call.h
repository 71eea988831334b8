// SPDX-License-Identifier: Apache-2.0
/*
 * A call of input or output: tried so that the kernel does not wait, and again after the task has
 * waited, for as long as the kernel would have.
 */
#ifndef ACO_RUNTIME_CALL_H
#define ACO_RUNTIME_CALL_H

#include "internal.h"

#include <errno.h>
#include <sys/epoll.h>

/* As its namesake takes it. */
typedef struct {
    int fd, flags;
    fd_t *entry;
    const struct iovec *iov;
    int iov_ct;
    int has_waited;
    size_t done; /* bytes so far */
    struct msghdr *msg;
    struct sockaddr *addr;
    socklen_t *addr_sz;
    int64_t until;     /* when O_NONBLOCK or a timeout ends it; 0: to be asked */
    int64_t began;     /* to wait, where there is a timeout */
    uint32_t asked_at; /* ct_changes of its entry */
    int64_t pause;     /* ns; the last one */
} call_t;

typedef ssize_t (*try_t)(call_t *call);

/* Waits after a try at `moment` that has said EAGAIN. 1: the caller tries again; or what the call
 * returns. */
HIDDEN int aco_i_wait_to_retry(call_t *call, int events, moment_t moment);
/* Sleeps a little longer each time, where nothing tells that a local socket has room again. */
HIDDEN int aco_i_pause(call_t *call);
/* Whether output goes on after a part or a wait; 0 with errno. If a socket has failed, the kernel
 * tells so who waits; but of what was partly sent it says how much, and leaves the error, and
 * SIGPIPE, to the next call. */
HIDDEN int aco_i_may_go_on(const call_t *call);
HIDDEN int aco_i_is_pipe(int fd);

static inline int is_in_task(void)
{
    return aco_self() != NULL;
}

/* Tries until it does not say EAGAIN, as long as the kernel would have waited, and the task may. As
 * in libc, errno is left alone unless the call fails. */
static inline __attribute__((always_inline)) ssize_t until_done(call_t *call, int events, try_t try,
                                                                moment_t *moment)
{
    int before = errno;
    *moment = aco_i_moment(call->entry);
    for (uint32_t ct_closed = moment->ct_closed;; *moment = aco_i_moment(call->entry)) {
        if (moment->ct_closed != ct_closed) { /* between an event and the task's turn */
            errno = EBADF;
            return -1;
        }
        ssize_t result = try(call);
        if (result < 0 && (errno == EAGAIN || errno == EINTR)) {
            int next = errno == EINTR ? 1 : aco_i_wait_to_retry(call, events, *moment);
            if (next == 1) {
                continue;
            }
            result = next;
        }
        errno = result >= 0 ? before : errno;
        return result;
    }
}

#endif
