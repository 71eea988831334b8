// SPDX-License-Identifier: Apache-2.0
/*
 * Hints about a descriptor for the next call, and its wait limit: for how long calls wait for it.
 *
 * Hooks see calls that close a descriptor, or change O_NONBLOCK or a timeout, except direct system
 * calls, calls inside libc, and those of other processes. With hooks, the kernel's answers about a
 * descriptor are cached for CACHE_TIME; then waits that rely on them are tried again. So a change
 * that hooks miss makes a call late, but not wrong.
 */
#include "sched/fds.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>

int64_t aco_i_default_wait_limit = NO_DEADLINE;

static uint32_t ct_changes; /* of all descriptors, as duplicates share flags; atomic */

/* ==== Hints ================================================================================== */

int aco_i_is_plain_tcp(const fd_t *entry)
{
    return __atomic_load_n(&entry->is_plain_tcp, __ATOMIC_RELAXED);
}

int aco_i_is_drained(const fd_t *entry)
{
    return __atomic_load_n(&entry->is_plain_tcp, __ATOMIC_RELAXED) &&
           __atomic_load_n(&entry->drained_at, __ATOMIC_RELAXED) ==
               __atomic_load_n(&entry->moment.ct_events, __ATOMIC_RELAXED);
}

void aco_i_set_drained(fd_t *entry, moment_t moment)
{
    if (__atomic_load_n(&entry->is_plain_tcp, __ATOMIC_RELAXED)) {
        __atomic_store_n(&entry->drained_at, moment.ct_events, __ATOMIC_RELAXED);
    }
}

int aco_i_is_no_socket(const fd_t *entry)
{
    return __atomic_load_n(&entry->is_no_socket, __ATOMIC_RELAXED);
}

int aco_i_has_hung_up(const fd_t *entry)
{
    return __atomic_load_n(&entry->has_hung_up, __ATOMIC_RELAXED);
}

void aco_i_set_no_socket(fd_t *entry, int is_no_socket)
{
    __atomic_store_n(&entry->is_no_socket, (char)is_no_socket, __ATOMIC_RELAXED);
}

/* ==== Wait limits ============================================================================ */

static int64_t timeout_of(int fd, int option)
{
    struct timeval t;
    socklen_t sz = sizeof(t);
    if (getsockopt(fd, SOL_SOCKET, option, &t, &sz) != 0) {
        return 0;
    }
    return (int64_t)t.tv_sec * 1000000000 + (int64_t)t.tv_usec * 1000;
}

void aco_i_tell_change(int fd)
{
    __atomic_add_fetch(&ct_changes, 1, __ATOMIC_SEQ_CST);
    if (aco_i_is_known(fd)) {
        __atomic_add_fetch(&aco_i_fd(fd)->ct_changes, 1, __ATOMIC_RELAXED);
    }
}

uint32_t aco_i_ct_changes(const fd_t *entry)
{
    return __atomic_load_n(&entry->ct_changes, __ATOMIC_RELAXED);
}

/* Whether `wait_limit` is still valid. */
static int is_wait_limit_known(const fd_t *entry, const loop_t *loop)
{
    return entry->is_ours || (loop->now < entry->asked_until &&
                              entry->asked_at == __atomic_load_n(&ct_changes, __ATOMIC_ACQUIRE));
}

/* Asks the kernel; 0: it does not wait. `is_output` is the index of `wait_limit`. */
static int64_t ask_wait_limit(int fd, fd_t *entry, int is_output, const loop_t *loop)
{
    uint32_t ct_closed = aco_i_moment(entry).ct_closed;
    uint32_t asked_at = __atomic_load_n(&ct_changes, __ATOMIC_ACQUIRE);
    aco_i_lock_fd(entry); /* whose holder may set O_NONBLOCK for a moment */
    int flags = aco_i_libc.fcntl(fd, F_GETFL);
    aco_i_unlock_fd(entry);
    if (flags < 0) {
        return NO_DEADLINE; /* it was closed meanwhile, which the wait tells */
    }
    if ((flags & O_NONBLOCK) != 0) {
        return 0;
    }
    int64_t timeout = timeout_of(fd, is_output ? SO_SNDTIMEO : SO_RCVTIMEO);
    timeout = timeout == 0 ? NO_DEADLINE : timeout;
    aco_i_lock_fd(entry);
    if (entry->moment.ct_closed == ct_closed) {
        if (!is_wait_limit_known(entry, loop)) {
            forget_wait_limit(entry);
        }
        entry->wait_limit[is_output] = timeout;
        entry->asked_at = asked_at;
        entry->asked_until = aco_i_cached_until(loop);
    }
    aco_i_unlock_fd(entry);
    return timeout;
}

int64_t aco_i_own_wait_limit(int fd, fd_t *entry, int events)
{
    const loop_t *loop = aco_i_self()->loop;
    int is_output = events != EPOLLIN;
    aco_i_lock_fd(entry);
    int64_t wait_limit = is_wait_limit_known(entry, loop) ? entry->wait_limit[is_output] : 0;
    aco_i_unlock_fd(entry);
    return wait_limit == 0 ? ask_wait_limit(fd, entry, is_output, loop) : wait_limit;
}

int64_t aco_i_wait_limit(int fd, fd_t *entry, int events)
{
    int64_t wait_limit = aco_i_own_wait_limit(fd, entry, events);
    return wait_limit == NO_DEADLINE ? __atomic_load_n(&aco_i_default_wait_limit, __ATOMIC_RELAXED)
                                     : wait_limit;
}
