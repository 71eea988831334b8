// SPDX-License-Identifier: Apache-2.0
/*
 * An I/O call: tried so that the kernel does not wait, and again after the task has waited, for as
 * long as the kernel would have.
 */
#ifndef ACO_RUNTIME_CALL_H
#define ACO_RUNTIME_CALL_H

#include "io/io.h"

#include <errno.h>
#include <sys/epoll.h>

/* Arguments of a call, and how far it is. */
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
    int64_t until;     /* when a timeout ends it; 0: the kernel was not asked yet */
    int64_t began;     /* to wait, if there is a timeout */
    uint32_t asked_at; /* ct_changes of its entry when the kernel was asked */
    int64_t pause;     /* ns; the last one */
} call_t;

typedef ssize_t (*try_t)(call_t *call);

/* ---- call.c ---- */

/* Waits after a try at `moment` has failed with EAGAIN. 1: the caller tries again; else the result
 * of the call. */
HIDDEN int aco_i_wait_to_retry(call_t *call, int events, moment_t moment);

/* Sleeps, longer each time: no event reports that a local socket has room again. 0, or -1 with
 * errno. */
HIDDEN int aco_i_pause(call_t *call);

/* Whether output goes on after a part or a wait; 0 with errno. A blocked call reports the failure
 * of its socket; but if a part was sent, it returns how much, and leaves the error, and SIGPIPE, to
 * the next call. */
HIDDEN int aco_i_may_go_on(const call_t *call);

static inline int may_go_on(const call_t *call)
{
    return (call->done == 0 && !call->has_waited) || aco_i_may_go_on(call);
}

static inline int is_in_task(void)
{
    return aco_self() != NULL;
}

/* Whether there is no memory for the entry of a descriptor, without which the task can't wait for
 * it. errno is that of aco_i_fd(). */
static inline int lacks_entry(const call_t *call)
{
    return call->entry == NULL && errno == ENOMEM && is_in_task();
}

/* Tries until the result is not EAGAIN, for as long as the kernel would have waited and the task
 * may. As in libc, errno changes only if the call fails. */
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
