// SPDX-License-Identifier: Apache-2.0
/* What calls of input and output do between two tries: find out how the kernel would wait. */
#include "call.h"

#include <sys/stat.h>

#define FIRST_PAUSE 100000 /* ns */
#define MAX_PAUSE 10000000 /* ns */

/* Whether flags keep it from waiting: those that ask for other things than data do, of some kinds
 * of socket. */
static int never_waits(const call_t *call, int events)
{
    int domain = AF_UNSPEC, type = 0, asks = call->flags & (MSG_ERRQUEUE | MSG_OOB);
    socklen_t sz = sizeof(int);
    if (events != EPOLLIN || asks == 0 || (call->flags & MSG_DONTWAIT) != 0) {
        return (call->flags & MSG_DONTWAIT) != 0;
    }
    getsockopt(call->fd, SOL_SOCKET, SO_DOMAIN, &domain, &sz);
    getsockopt(call->fd, SOL_SOCKET, SO_TYPE, &type, &sz);
    return ((asks & MSG_ERRQUEUE) != 0 && domain != AF_UNIX) ||
           ((asks & MSG_OOB) != 0 && type == SOCK_STREAM);
}

/* Whether a datagram socket was shut down for input: to who would wait, that is its end, but who
 * asks without waiting is told EAGAIN. */
static int is_shut_down(const call_t *call, int events)
{
    struct pollfd polled = {call->fd, POLLRDHUP, 0};
    int type = 0;
    socklen_t sz = sizeof(type);
    return events == EPOLLIN && aco_i_has_hung_up(call->entry) &&
           aco_i_libc.poll(&polled, 1, 0) > 0 &&
           getsockopt(call->fd, SOL_SOCKET, SO_TYPE, &type, &sz) == 0 && type == SOCK_DGRAM;
}

/* A datagram of no bytes, from nowhere. */
static int end_of(const call_t *call)
{
    if (call->addr_sz != NULL) {
        *call->addr_sz = 0;
    }
    if (call->msg != NULL) {
        call->msg->msg_namelen = 0;
        call->msg->msg_controllen = 0;
        call->msg->msg_flags = 0;
    }
    return 0;
}

/* Whether a datagram is for a local socket that has to make room: of that, a sender which is not
 * connected to it hears nothing. */
static int is_for_local(const call_t *call, int events)
{
    int domain = AF_UNSPEC, type = 0;
    socklen_t sz = sizeof(int);
    return events == EPOLLOUT && call->msg != NULL && call->msg->msg_namelen != 0 &&
           getsockopt(call->fd, SOL_SOCKET, SO_DOMAIN, &domain, &sz) == 0 && domain == AF_UNIX &&
           getsockopt(call->fd, SOL_SOCKET, SO_TYPE, &type, &sz) == 0 && type == SOCK_DGRAM;
}

int aco_i_pause(call_t *call)
{
    int64_t left = call->until - aco_i_clock();
    if (left <= 0) {
        errno = EAGAIN;
        return -1;
    }
    call->pause = call->pause == 0              ? FIRST_PAUSE
                  : call->pause * 2 < MAX_PAUSE ? call->pause * 2
                                                : MAX_PAUSE;
    return aco_sleep(left < call->pause ? left : call->pause);
}

/* Waits; 1: try again. What was known before the call may be wrong, as nobody saw it change. What
 * was seen to change since does not matter to a call that waits. */
static int wait_for(call_t *call, int events, moment_t moment)
{
    int result = aco_i_wait_for(call->fd, call->entry, events, moment, call->until);
    if (result == 1 && call->asked_at == aco_i_ct_changes(call->entry)) {
        call->until = 0;
    }
    return result < 0 ? -1 : 1;
}

static int64_t end_of_patience(call_t *call, int64_t patience)
{
    if (patience == NO_DEADLINE) {
        return NO_DEADLINE;
    }
    call->began = call->began == 0 ? aco_i_clock() : call->began;
    return call->began > NO_DEADLINE - patience ? NO_DEADLINE : call->began + patience;
}

int aco_i_wait_to_retry(call_t *call, int events, moment_t moment)
{
    if (call->until == 0) {
        call->asked_at = aco_i_ct_changes(call->entry);
        int64_t patience = aco_i_patience(call->fd, call->entry, events);
        if (patience == 0 && events == EPOLLIN && aco_i_is_drained(call->entry)) {
            moment.ct_events--;
            aco_i_set_drained(call->entry, moment);
            return 1; /* the kernel was not asked */
        }
        if (patience == 0 || (call->flags != 0 && never_waits(call, events))) {
            int is_same = aco_i_moment(call->entry).ct_closed == moment.ct_closed;
            errno = is_same ? EAGAIN : EBADF;
            return -1;
        }
        call->until = end_of_patience(call, patience);
    }
    if (is_shut_down(call, events)) {
        return end_of(call);
    }
    call->has_waited = 1;
    if (is_for_local(call, events)) {
        return aco_i_pause(call) == 0 ? 1 : -1;
    }
    return wait_for(call, events, moment);
}

int aco_i_may_go_on(const call_t *call)
{
    struct pollfd polled = {call->fd, POLLOUT, 0};
    int ct = aco_i_libc.poll(&polled, 1, 0), error = 0;
    socklen_t sz = sizeof(error);
    if (ct <= 0) {
        errno = ct == 0 ? EAGAIN : errno;
        return 0;
    }
    if (call->done != 0) {
        errno = EPIPE;
        return (polled.revents & (POLLERR | POLLHUP)) == 0;
    }
    if ((polled.revents & POLLERR) != 0) {
        getsockopt(call->fd, SOL_SOCKET, SO_ERROR, &error, &sz);
    }
    errno = error;
    return error == 0;
}

int aco_i_is_pipe(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode);
}
