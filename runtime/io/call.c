// SPDX-License-Identifier: Apache-2.0
/* Decides, after EAGAIN, whether and for how long a blocking call would have waited; and waits. */
#include "io/call.h"

#define FIRST_PAUSE 100000 /* ns */
#define MAX_PAUSE 10000000 /* ns */

/* Whether flags keep the call from waiting: MSG_DONTWAIT, or on some sockets those that ask for
 * other things than data. */
static int never_waits(const call_t *call, int events)
{
    int asks = call->flags & (MSG_ERRQUEUE | MSG_OOB);
    if (events != EPOLLIN || asks == 0 || (call->flags & MSG_DONTWAIT) != 0) {
        return (call->flags & MSG_DONTWAIT) != 0;
    }
    return ((asks & MSG_ERRQUEUE) != 0 && socket_option(call->fd, SO_DOMAIN) != AF_UNIX) ||
           ((asks & MSG_OOB) != 0 && socket_option(call->fd, SO_TYPE) == SOCK_STREAM);
}

/* Whether a datagram socket was shut down for input: a blocked call returns an end then, but one
 * that does not wait fails with EAGAIN. */
static int is_shut_down(const call_t *call, int events)
{
    return events == EPOLLIN && aco_i_has_hung_up(call->entry) &&
           events_now(call->fd, POLLRDHUP) > 0 && socket_option(call->fd, SO_TYPE) == SOCK_DGRAM;
}

/* Returns a datagram of no bytes, from nowhere. */
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

/* Whether a datagram waits for room at a local socket: a sender that is not connected to that gets
 * no event. */
static int is_for_local(const call_t *call, int events)
{
    return events == EPOLLOUT && call->msg != NULL && call->msg->msg_namelen != 0 &&
           socket_option(call->fd, SO_DOMAIN) == AF_UNIX &&
           socket_option(call->fd, SO_TYPE) == SOCK_DGRAM;
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

/* Waits; 1: try again. The kernel is asked anew if its answer may have changed unseen. A change
 * that was seen since does not matter: it would not affect a call that blocks already. */
static int wait_for(call_t *call, int events, moment_t moment)
{
    int result = aco_i_wait_for(call->fd, call->entry, events, moment, call->until);
    if (result == 1 && call->asked_at == aco_i_ct_changes(call->entry)) {
        call->until = 0;
    }
    return result < 0 ? -1 : 1;
}

static int64_t end_of_wait(call_t *call, int64_t wait_limit)
{
    if (wait_limit == NO_DEADLINE) {
        return NO_DEADLINE;
    }
    call->began = call->began == 0 ? aco_i_clock() : call->began;
    return call->began > NO_DEADLINE - wait_limit ? NO_DEADLINE : call->began + wait_limit;
}

int aco_i_wait_to_retry(call_t *call, int events, moment_t moment)
{
    if (call->until == 0) {
        call->asked_at = aco_i_ct_changes(call->entry);
        int64_t wait_limit = aco_i_wait_limit(call->fd, call->entry, events);
        if (wait_limit == 0 && events == EPOLLIN && aco_i_is_drained(call->entry)) {
            moment.ct_events--;
            aco_i_set_drained(call->entry, moment);
            return 1; /* the EAGAIN was a hint's: now ask the kernel */
        }
        if (wait_limit == 0 || (call->flags != 0 && never_waits(call, events))) {
            errno = was_closed(call->entry, moment) ? EBADF : EAGAIN;
            return -1;
        }
        call->until = end_of_wait(call, wait_limit);
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
    int events = events_now(call->fd, POLLOUT);
    if (events <= 0) {
        errno = events == 0 ? EAGAIN : errno;
        return 0;
    }
    if (call->done != 0) {
        errno = EPIPE;
        return (events & (POLLERR | POLLHUP)) == 0;
    }
    int error = (events & POLLERR) != 0 ? socket_option(call->fd, SO_ERROR) : 0;
    if (error > 0) {
        errno = error;
        return 0;
    }
    return 1;
}
