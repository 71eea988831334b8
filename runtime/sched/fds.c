// SPDX-License-Identifier: Apache-2.0
/*
 * What is known of a descriptor: hints for the next call, and for how long calls wait for it, its
 * patience.
 *
 * Hooks see what closes a number, and what changes O_NONBLOCK or a timeout, but for direct system
 * calls, calls inside of libc, and other processes. With them, what the kernel said of a descriptor
 * counts for TRUST; a wait that relies on it is tried again when that is over. So what they don't
 * see makes a call late, but not wrong.
 */
#include "descriptors.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>

#define TRUST 1000000000 /* ns for which hooks rely on what the kernel said of a descriptor */

int64_t aco_i_default_patience = NO_DEADLINE;
int aco_i_sees_changes;

static uint32_t ct_changes; /* of all descriptors, as some are copies of others; atomic */

/* ==== Hints ================================================================================== */

int aco_i_is_simple(const fd_t *entry)
{
    return __atomic_load_n(&entry->is_simple, __ATOMIC_RELAXED);
}

int aco_i_is_drained(const fd_t *entry)
{
    return __atomic_load_n(&entry->is_simple, __ATOMIC_RELAXED) &&
           __atomic_load_n(&entry->drained_at, __ATOMIC_RELAXED) ==
               __atomic_load_n(&entry->moment.ct_events, __ATOMIC_RELAXED);
}

void aco_i_set_drained(fd_t *entry, moment_t moment)
{
    if (__atomic_load_n(&entry->is_simple, __ATOMIC_RELAXED)) {
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

void aco_i_lock_fd(fd_t *entry)
{
    lock(&entry->lock);
}

void aco_i_unlock_fd(fd_t *entry)
{
    unlock(&entry->lock);
}

/* ==== Patience =============================================================================== */

int64_t aco_i_end_of_trust(const loop_t *loop)
{
    return __atomic_load_n(&aco_i_sees_changes, __ATOMIC_RELAXED) ? loop->now + TRUST : 0;
}

static void forget_patience(fd_t *entry)
{
    entry->patience[0] = entry->patience[1] = 0;
}

void aco_i_forget_file(fd_t *entry)
{
    forget_patience(entry);
    entry->is_ours = 0;
    entry->watched_until = entry->asked_until = 0;
    __atomic_store_n(&entry->is_simple, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->is_no_socket, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->has_hung_up, 0, __ATOMIC_RELAXED);
}

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

/* Whether `patience` still counts. */
static int is_patience_known(const fd_t *entry, const loop_t *loop)
{
    return entry->is_ours || (loop->now < entry->asked_until &&
                              entry->asked_at == __atomic_load_n(&ct_changes, __ATOMIC_ACQUIRE));
}

/* Asks the kernel; 0: it does not wait. `is_output` is the index of `patience`. */
static int64_t ask_patience(int fd, fd_t *entry, int is_output, const loop_t *loop)
{
    uint32_t ct_closed = aco_i_moment(entry).ct_closed;
    uint32_t asked_at = __atomic_load_n(&ct_changes, __ATOMIC_ACQUIRE);
    lock(&entry->lock); /* under which O_NONBLOCK may be set for a moment */
    int flags = aco_i_libc.fcntl(fd, F_GETFL);
    unlock(&entry->lock);
    if (flags < 0 || (flags & O_NONBLOCK) != 0) {
        return 0;
    }
    int64_t timeout = timeout_of(fd, is_output ? SO_SNDTIMEO : SO_RCVTIMEO);
    timeout = timeout == 0 ? NO_DEADLINE : timeout;
    lock(&entry->lock);
    if (entry->moment.ct_closed == ct_closed) {
        if (!is_patience_known(entry, loop)) {
            forget_patience(entry);
        }
        entry->patience[is_output] = timeout;
        entry->asked_at = asked_at;
        entry->asked_until = aco_i_end_of_trust(loop);
    }
    unlock(&entry->lock);
    return timeout;
}

int64_t aco_i_patience(int fd, fd_t *entry, int events)
{
    const loop_t *loop = aco_i_self()->loop;
    int is_output = events != EPOLLIN;
    lock(&entry->lock);
    int64_t patience = is_patience_known(entry, loop) ? entry->patience[is_output] : 0;
    unlock(&entry->lock);
    patience = patience == 0 ? ask_patience(fd, entry, is_output, loop) : patience;
    return patience == NO_DEADLINE ? __atomic_load_n(&aco_i_default_patience, __ATOMIC_RELAXED)
                                   : patience;
}
