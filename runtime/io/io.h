// SPDX-License-Identifier: Apache-2.0
/* Input and output, and helper threads. */
#ifndef ACO_RUNTIME_IO_H
#define ACO_RUNTIME_IO_H

#include "sched/fds.h"

/* Whether a descriptor was closed since; 0 without an entry: that is not known. */
static inline int was_closed(const fd_t *entry, moment_t since)
{
    return entry != NULL && aco_i_moment(entry).ct_closed != since.ct_closed;
}

static inline void close_keeping_errno(int fd)
{
    KEEP_ERRNO();
    aco_close(fd);
}

static inline void release_keeping_errno(void *ptr)
{
    KEEP_ERRNO();
    aco_i_release(ptr);
}

static inline size_t size_of(const struct iovec *iov, int ct)
{
    size_t sz = 0;
    for (int i = 0; i < ct; i++) {
        sz += iov[i].iov_len;
    }
    return sz;
}

/* ---- fd_hints.c ---- */

/* The count of calls that may have changed O_NONBLOCK or a timeout. */
HIDDEN uint32_t aco_i_ct_changes(const fd_t *entry);

/* Whether it is a TCP connection of which no event was seen but those of data. */
HIDDEN int aco_i_is_plain_tcp(const fd_t *entry);

/* Notes that a read at `moment` was shorter than asked for: no more comes before the next event. */
HIDDEN void aco_i_set_drained(fd_t *entry, moment_t moment);
HIDDEN int aco_i_is_drained(const fd_t *entry);

/* Whether a shutdown was seen; perhaps that of a file which had the descriptor before. */
HIDDEN int aco_i_has_hung_up(const fd_t *entry);

/* As aco_i_wait_limit(), but without the limit that compat/ sets. */
HIDDEN int64_t aco_i_own_wait_limit(int fd, fd_t *entry, int events);

/* The hint that it is no socket. */
HIDDEN void aco_i_set_no_socket(fd_t *entry, int is_no_socket);
HIDDEN int aco_i_is_no_socket(const fd_t *entry);

/* ---- fd_wait.c ---- */

/* Waits until something that matters for `events` (EPOLLIN or EPOLLOUT) has happened since `since`,
 * and returns 0: the caller tries again; or 1: the answer of aco_i_wait_limit() may be wrong, too.
 * -1 with EBADF if the descriptor was closed, ETIMEDOUT or ECANCELED; EAGAIN if `until` has come;
 * EPERM if it never has to be waited for; ENOMEM or ENOSPC. In a task. */
HIDDEN int aco_i_wait_for(int fd, fd_t *entry, int events, moment_t since, int64_t until);

/* Takes a task that won't go on, and whose wait was claimed, from all queues of descriptors. */
HIDDEN void aco_i_leave_descriptors(aco_task_t *task);

/* ---- files.c ---- */

/* Calls preadv2() or pwritev2() with RWF_NOWAIT; `offset` -1: that of `fd`. */
HIDDEN ssize_t aco_i_move_at_once(int fd, int is_write, const struct iovec *iov, int ct,
                                  int64_t offset);

/* ---- helpers.c ---- */

/* Ends the helpers of a runtime that has no tasks. */
HIDDEN void aco_i_end_helpers(runtime_t *runtime);

/* Counts the idle ones, roughly. */
HIDDEN size_t aco_i_ct_idle_helpers(const runtime_t *runtime);

/* ---- ring.c ---- */

/* As accept4() and connect(), in a task, but they don't wait: then errno is ECANCELED, and a
 * connection may be under way by itself. ENOSYS: io_uring is refused, and nothing was tried. */
HIDDEN int aco_i_ring_accept(int fd, struct sockaddr *addr, socklen_t *addr_sz, int flags);
HIDDEN int aco_i_ring_connect(int fd, const struct sockaddr *addr, socklen_t addr_sz);

/* A result that a task waits for, on the heap. */
typedef struct {
    aco_task_t *task;
    int result; /* or -errno */
    int is_done;
} awaited_t;

/* Reads as preadv(), and waits for the result, in a task, whose buffers stay where they are. 0:
 * io_uring is refused, and nothing was tried. */
HIDDEN int aco_i_ring_read(awaited_t *awaited, int fd, const struct iovec *iov, int ct,
                           int64_t offset);

/* Gives back the ring of a loop, if it has one. */
HIDDEN void aco_i_end_ring(loop_t *loop);

#endif
