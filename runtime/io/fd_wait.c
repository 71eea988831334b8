// SPDX-License-Identifier: Apache-2.0
/* Waits for descriptors, for one or for several at a time. */
#include "io/io.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#define FIRST_LOOK 1000000 /* ns after which a poll() asks again what no loop can watch */
#define LAST_LOOK 64000000 /* ns; the time doubles up to this */

/* Enters `node`, whose task's wait is open, into the queue of a descriptor; 0. 1: something has
 * happened since `since`, or the descriptor is another file's now. -1 with errno: EBADF if it was
 * closed, EPERM if it never has to be waited for. */
static int enter(int fd, fd_t *entry, moment_t since, node_t *node, loop_t *loop)
{
    aco_task_t *woken = NULL;
    int before = errno;
    aco_i_lock_fd(entry);
    int result = entry->moment.ct_closed != since.ct_closed ? -1
                 : entry->moment.ct_events != since.ct_events
                     ? 1
                     : aco_i_watch_fd(fd, entry, loop, &woken);
    if (entry->moment.ct_closed != since.ct_closed) {
        errno = EBADF;
    } else if (result == 0) {
        enqueue(&entry->waiting, node);
    }
    int error = result < 0 ? errno : before;
    aco_i_unlock_fd(entry);
    aco_i_wake_all(woken);
    errno = error;
    return result;
}

static void leave(fd_t *entry, node_t *node)
{
    aco_i_lock_fd(entry);
    dequeue(node);
    aco_i_unlock_fd(entry);
}

static size_t kind_of(int events)
{
    events |= (events & (POLLRDNORM | POLLRDBAND)) != 0 ? EPOLLIN | EPOLLPRI : 0;
    events |= (events & (POLLWRNORM | POLLWRBAND)) != 0 ? EPOLLOUT : 0;
    return (size_t)events | EPOLLERR | EPOLLHUP | ((events & EPOLLIN) != 0 ? EPOLLRDHUP : 0);
}

int aco_i_wait_for(int fd, fd_t *entry, int events, moment_t since, int64_t until)
{
    aco_task_t *self = aco_i_self();
    aco_i_open_wait(self, events == EPOLLIN ? FOR_INPUT : FOR_OUTPUT);
    self->node.task = self;
    self->node.kind = kind_of(events);
    self->fd = fd;
    int entered = enter(fd, entry, since, &self->node, self->loop);
    if (entered != 0 && aco_i_close_wait(self)) {
        return entered;
    }
    outcome_t outcome = aco_i_wait_until(self, until);
    if (entered == 0 && outcome != WAIT_EVENT && outcome != WAIT_CLOSED) {
        leave(entry, &self->node);
    }
    if (outcome == WAIT_RECHECK || aco_i_goes_on_after(outcome, until == NO_DEADLINE)) {
        return 1;
    }
    if (outcome == WAIT_CLOSED || outcome == WAIT_NONE) {
        errno = outcome == WAIT_CLOSED ? EBADF : EAGAIN;
        return -1;
    }
    return aco_i_result(outcome);
}

/* One of several descriptors that a task waits for. */
typedef struct {
    node_t node;
    fd_t *entry; /* NULL: not a descriptor */
    moment_t since;
} polled_t;

/* Records the moments before a try; 0, or -1 with ENOMEM. */
static int take_moments(const struct pollfd *fds, polled_t *places, nfds_t ct)
{
    for (nfds_t i = 0; i < ct; i++) {
        places[i].entry = fds[i].fd < 0 ? NULL : aco_i_fd(fds[i].fd);
        if (places[i].entry != NULL) {
            places[i].since = aco_i_moment(places[i].entry);
        } else if (fds[i].fd >= 0 && errno == ENOMEM) {
            return -1;
        }
    }
    return 0;
}

/* Enters the caller's open wait for all descriptors that can be waited for; 0, or the first other
 * result of enter(). `*is_unwatched`: some is an epoll nested so deeply that the loop's can't have
 * it. */
static int enter_all(const struct pollfd *fds, polled_t *places, nfds_t ct, aco_task_t *self,
                     int *is_unwatched)
{
    *is_unwatched = 0;
    for (nfds_t i = 0; i < ct; i++) {
        polled_t *place = &places[i];
        if (place->entry == NULL) {
            continue;
        }
        place->node.task = self;
        place->node.kind = kind_of(fds[i].events);
        self->fd = fds[i].fd;
        int entered = enter(fds[i].fd, place->entry, place->since, &place->node, self->loop);
        int is_too_deep = entered < 0 && errno == ELOOP;
        *is_unwatched |= is_too_deep;
        if (entered > 0 || (entered < 0 && errno != EPERM && !is_too_deep)) {
            return entered;
        }
    }
    return 0;
}

/* Sets `revents` to what a close since requires; returns how many were closed. */
static int mark_closed(struct pollfd *fds, const polled_t *places, nfds_t ct)
{
    KEEP_ERRNO();
    int ct_closed = 0;
    for (nfds_t i = 0; i < ct; i++) {
        int is_closed = was_closed(places[i].entry, places[i].since);
        fds[i].revents = is_closed ? POLLNVAL : 0;
        ct_closed += is_closed;
    }
    return ct_closed;
}

static void leave_all(polled_t *places, size_t ct)
{
    for (size_t i = 0; i < ct; i++) {
        if (places[i].entry != NULL) {
            leave(places[i].entry, &places[i].node);
        }
    }
}

static int poll_by(struct pollfd *fds, polled_t *places, nfds_t ct, int64_t until)
{
    aco_task_t *self = aco_i_self();
    for (int64_t look = FIRST_LOOK;; look = look < LAST_LOOK ? 2 * look : look) {
        int is_unwatched, result = take_moments(fds, places, ct) != 0 ? -1 : poll_now(fds, ct);
        if (result != 0) {
            return result;
        }
        aco_i_open_wait(self, FOR_POLL);
        self->node.item = places;
        self->node.kind = ct;
        int entered = enter_all(fds, places, ct, self, &is_unwatched);
        int64_t again = is_unwatched ? aco_i_after(look) : NO_DEADLINE;
        int64_t end = until < again ? until : again;
        outcome_t outcome = entered != 0 && aco_i_close_wait(self) ? WAIT_EVENT
                                                                   : aco_i_wait_until(self, end);
        outcome = outcome == WAIT_RECHECK ? WAIT_EVENT : outcome;
        leave_all(places, ct);
        if (aco_i_goes_on_after(outcome, 0)) {
            continue;
        }
        int ct_closed = outcome == WAIT_CLOSED || outcome == WAIT_EVENT
                            ? mark_closed(fds, places, ct)
                            : 0;
        if (ct_closed != 0) {
            return ct_closed;
        }
        if (outcome == WAIT_NONE && end == until) { /* the time is over */
            return 0;
        }
        if (entered < 0 && outcome == WAIT_EVENT && errno != EBADF) {
            return -1;
        }
        if (outcome != WAIT_EVENT && outcome != WAIT_CLOSED && outcome != WAIT_NONE) {
            return aco_i_result(outcome);
        }
    }
}

int aco_i_poll(struct pollfd *fds, nfds_t ct, int64_t until)
{
    aco_i_spend_call();
    int now = poll_now(fds, ct);
    if (now != 0) {
        return now;
    }
    polled_t *places = (polled_t *)aco_i_allocate((ct + 1) * sizeof(*places));
    if (places == NULL) {
        errno = ENOMEM;
        return -1;
    }
    memset(places, 0, ct * sizeof(*places));
    int before = errno, result = poll_by(fds, places, ct, until);
    int error = result < 0 ? errno : before;
    aco_i_release(places);
    errno = error;
    return result;
}

int aco_poll(struct pollfd *fds, nfds_t ct, int timeout)
{
    if (aco_self() == NULL) {
        return aco_i_libc.poll(fds, ct, timeout);
    }
    if (timeout == 0) {
        aco_i_spend_call();
        return poll_now(fds, ct);
    }
    int64_t ns = (int64_t)timeout * 1000000;
    return aco_i_poll(fds, ct, timeout < 0 ? NO_DEADLINE : aco_i_after(ns));
}

int aco_wait_fd(int fd, int events)
{
    struct pollfd polled = {fd, (short)events, 0};
    int ct = fd < 0               ? -1
             : aco_self() != NULL ? aco_i_poll(&polled, 1, NO_DEADLINE)
                                  : aco_i_libc.poll(&polled, 1, -1);
    if (fd < 0 || (ct > 0 && (polled.revents & POLLNVAL) != 0)) {
        errno = EBADF;
        return -1;
    }
    return ct < 0 ? -1 : polled.revents;
}

void aco_i_leave_descriptors(aco_task_t *task)
{
    if (task->reason == FOR_INPUT || task->reason == FOR_OUTPUT) {
        leave(aco_i_fd(task->fd), &task->node);
    } else if (task->reason == FOR_POLL) {
        polled_t *places = (polled_t *)task->node.item;
        leave_all(places, task->node.kind);
        aco_i_release(places);
    }
}
