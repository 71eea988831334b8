// SPDX-License-Identifier: Apache-2.0
/*
 * Descriptors: who waits for them, and closing.
 *
 * A call tries first and waits only if the kernel says EAGAIN, so an event that comes between the
 * two must not be lost. The entry of a descriptor counts its events and how often its number was
 * closed: the call takes this moment before it tries, and its wait ends at once if something has
 * happened since.
 *
 * The first loop with a task that waits for a descriptor watches it, edge-triggered and in both
 * directions, until it is closed. An event wakes all tasks that wait for its kind, of any loop:
 * they try again. So an event too many does no harm; and epoll reports what is true at the time
 * when a descriptor is added, so none is missed.
 *
 * A program may close a number behind our back, and get it again for another file. Only of
 * descriptors that came from aco_accept4(), aco_dial() and aco_listen(), which aco_close() closes,
 * is it taken as known that they are still watched. All others are added again at a wait: the
 * kernel says EEXIST if they are watched. If it does not, the number is another file's by now. With
 * hooks, the answer counts for a while: see descriptors.c.
 */
#include "descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define ENTRIES 1024 /* of a part */
#define PARTS 16384
#define WATCHED (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET)

static fd_t *parts[PARTS]; /* atomic, and never freed */

static __attribute__((noinline)) fd_t *add_part(int i)
{
    fd_t *part = (fd_t *)aco_i_allocate(ENTRIES * sizeof(*part));
    if (part == NULL) {
        return NULL;
    }
    memset(part, 0, ENTRIES * sizeof(*part));
    fd_t *there = NULL;
    if (!__atomic_compare_exchange_n(&parts[i], &there, part, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        aco_i_release(part);
        part = there;
    }
    return part;
}

fd_t *aco_i_fd(int fd)
{
    unsigned i = (unsigned)fd / ENTRIES;
    if (i >= PARTS) { /* or below 0 */
        errno = EBADF;
        return NULL;
    }
    fd_t *part = __atomic_load_n(&parts[i], __ATOMIC_ACQUIRE);
    if (aco_unlikely(part == NULL) && (part = add_part((int)i)) == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    return &part[(unsigned)fd % ENTRIES];
}

int aco_i_is_known(int fd)
{
    const fd_t *part = fd < 0 || fd >= ENTRIES * PARTS
                           ? NULL
                           : __atomic_load_n(&parts[fd / ENTRIES], __ATOMIC_ACQUIRE);
    return part != NULL;
}

static __attribute__((noinline, cold)) void wait_for_close(const fd_t *entry)
{
    while (__atomic_load_n(&entry->is_closing, __ATOMIC_ACQUIRE)) {
        aco_i_libc.sched_yield();
    }
}

moment_t aco_i_moment(const fd_t *entry)
{
    for (;;) {
        moment_t moment = {__atomic_load_n(&entry->moment.ct_closed, __ATOMIC_ACQUIRE),
                           __atomic_load_n(&entry->moment.ct_events, __ATOMIC_ACQUIRE)};
        if (aco_likely(!__atomic_load_n(&entry->is_closing, __ATOMIC_ACQUIRE))) {
            return moment;
        }
        wait_for_close(entry);
    }
}

/* ==== Watching =============================================================================== */

/* Takes from the queue, and links by their `next`, those who wait for some of `events`. */
static node_t *claim_waiting(fd_t *entry, uint32_t events, outcome_t outcome)
{
    node_t *first = NULL, **link = &first;
    for (node_t *node = entry->waiting.first, *next; node != NULL; node = next) {
        next = node->next;
        if ((node->kind & events) != 0 && aco_i_claim(node->task, outcome)) {
            dequeue(node);
            node->next = NULL;
            *link = node;
            link = &node->next;
        }
    }
    return first;
}

static void make_all_ready(node_t *node)
{
    while (node != NULL) {
        node_t *next = node->next;
        aco_i_make_ready(node->task);
        node = next;
    }
}

/* 1: it is watched now; 0: it was already; or -1 with errno. */
static int add(int fd, const fd_t *entry, const loop_t *loop)
{
    struct epoll_event event = {.events = WATCHED};
    event.data.u64 = (uint64_t)entry->moment.ct_closed << 32 | (uint32_t)fd;
    int result = epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event);
    return result == 0 ? 1 : errno == EEXIST ? 0 : -1;
}

/* Enters it into the list of the caller's loop, unless it is in one. */
static void trust(fd_t *entry, loop_t *loop)
{
    if (entry->is_trusted) {
        return;
    }
    entry->is_trusted = 1;
    entry->next_trusted = loop->trusted;
    if (loop->trusted == NULL) {
        loop->trusted_until = aco_i_end_of_trust(loop);
    }
    loop->trusted = entry;
}

static void forget(int fd, fd_t *entry)
{
    struct epoll_event none = {0};
    if (entry->loop != NULL) {
        if (epoll_ctl(entry->loop->epoll_fd, EPOLL_CTL_DEL, fd, &none) != 0) {
            aco_i_forget_file(entry); /* it is gone */
        }
        entry->loop = NULL;
    }
}

/* Has a loop watch it: that which does already, if tasks rely on it, or else the caller's. 1: the
 * number is another file's by now; tasks that wait for the former one are to be `woken`. */
static int watch(int fd, fd_t *entry, loop_t *loop, node_t **woken)
{
    int64_t trust_ends = aco_i_end_of_trust(loop);
    if (entry->loop != loop && entry->waiting.first == NULL) {
        forget(fd, entry);
    } else if (entry->loop != NULL && entry->is_ours) {
        return 0;
    } else if (entry->loop == loop && loop->now < entry->watched_until) {
        trust(entry, loop);
        return 0;
    }
    int added = add(fd, entry, entry->loop != NULL ? entry->loop : loop);
    if (added != 0 && entry->loop != NULL) {
        entry->loop = added > 0 ? entry->loop : NULL;
        aco_i_forget_file(entry);
        *woken = claim_waiting(entry, UINT32_MAX, WAIT_CLOSED);
        return 1;
    }
    if (added < 0) {
        return -1;
    }
    entry->loop = entry->loop != NULL ? entry->loop : loop;
    entry->watched_until = entry->loop == loop ? trust_ends : 0;
    if (loop->now < entry->asked_until && entry->asked_until != trust_ends) {
        trust(entry, loop); /* of the patience */
    }
    loop->has_descriptors = 1;
    return 0;
}

void aco_i_happened(uint64_t data, uint32_t events)
{
    fd_t *entry = aco_i_fd((int)(uint32_t)data);
    node_t *woken = NULL;
    lock(&entry->lock);
    if (entry->moment.ct_closed == (uint32_t)(data >> 32)) {
        __atomic_store_n(&entry->moment.ct_events, entry->moment.ct_events + 1, __ATOMIC_RELEASE);
        if ((events & ~(uint32_t)(EPOLLIN | EPOLLOUT)) != 0) {
            __atomic_store_n(&entry->is_simple, 0, __ATOMIC_RELAXED);
        }
        if ((events & (EPOLLRDHUP | EPOLLHUP)) != 0) {
            __atomic_store_n(&entry->has_hung_up, 1, __ATOMIC_RELAXED);
        }
        woken = claim_waiting(entry, events, WAIT_EVENT);
    }
    unlock(&entry->lock);
    make_all_ready(woken);
}

void aco_i_end_trust(loop_t *loop)
{
    fd_t *next = loop->trusted;
    loop->trusted = NULL;
    while (next != NULL) {
        fd_t *entry = next;
        lock(&entry->lock);
        next = entry->next_trusted;
        entry->is_trusted = 0;
        entry->watched_until = entry->asked_until = 0;
        node_t *woken = claim_waiting(entry, UINT32_MAX, WAIT_DOUBTED);
        unlock(&entry->lock);
        make_all_ready(woken);
    }
}

void aco_i_forget_loop(loop_t *loop)
{
    aco_i_end_trust(loop);
    for (int i = 0; i < PARTS && loop->has_descriptors; i++) {
        fd_t *part = __atomic_load_n(&parts[i], __ATOMIC_ACQUIRE);
        for (int j = 0; part != NULL && j < ENTRIES; j++) {
            node_t *woken = NULL; /* tasks of other runtimes: they find another loop */
            lock(&part[j].lock);
            if (part[j].loop == loop) {
                forget(i * ENTRIES + j, &part[j]);
                woken = claim_waiting(&part[j], UINT32_MAX, WAIT_EVENT);
            }
            unlock(&part[j].lock);
            make_all_ready(woken);
        }
    }
    loop->has_descriptors = 0;
}

void aco_i_forget_descriptors(void)
{
    for (int i = 0; i < PARTS; i++) {
        if (parts[i] != NULL) {
            memset(parts[i], 0, ENTRIES * sizeof(*parts[i]));
        }
    }
}

/* ==== Waiting ================================================================================ */

/* Enters the open wait of `node`. 0: it is entered; 1: something has happened since `since`, or it
 * is another file; or -1 with errno: EBADF if that was its end, EPERM if there is nothing to wait
 * for. */
static int enter(int fd, fd_t *entry, moment_t since, node_t *node, loop_t *loop)
{
    node_t *woken = NULL;
    int before = errno;
    lock(&entry->lock);
    int result = entry->moment.ct_closed != since.ct_closed   ? -1
                 : entry->moment.ct_events != since.ct_events ? 1
                                                              : watch(fd, entry, loop, &woken);
    if (entry->moment.ct_closed != since.ct_closed) {
        errno = EBADF;
    } else if (result == 0) {
        enqueue(&entry->waiting, node);
    }
    int error = result < 0 ? errno : before;
    unlock(&entry->lock);
    make_all_ready(woken);
    errno = error;
    return result;
}

static void leave(fd_t *entry, node_t *node)
{
    lock(&entry->lock);
    dequeue(node);
    unlock(&entry->lock);
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
    if (outcome == WAIT_DOUBTED) {
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
    fd_t *entry; /* NULL: it is none */
    moment_t since;
} place_t;

/* Takes the moments before a try; -1 with ENOMEM. */
static int take_moments(const struct pollfd *fds, place_t *places, nfds_t ct)
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

/* Enters the open wait of the caller for all descriptors; 0, or as enter() of the first for which
 * that is not 0. */
static int enter_all(const struct pollfd *fds, place_t *places, nfds_t ct, aco_task_t *self)
{
    for (nfds_t i = 0; i < ct; i++) {
        place_t *place = &places[i];
        if (place->entry == NULL) {
            continue;
        }
        place->node.task = self;
        place->node.kind = kind_of(fds[i].events);
        self->fd = fds[i].fd;
        int entered = enter(fds[i].fd, place->entry, place->since, &place->node, self->loop);
        if (entered > 0 || (entered < 0 && errno != EPERM)) {
            return entered;
        }
    }
    return 0;
}

/* How many were closed since; their `revents` say so. */
static int mark_closed(struct pollfd *fds, const place_t *places, nfds_t ct)
{
    int ct_closed = 0;
    for (nfds_t i = 0; i < ct; i++) {
        int is_closed = places[i].entry != NULL &&
                        aco_i_moment(places[i].entry).ct_closed != places[i].since.ct_closed;
        fds[i].revents = is_closed ? POLLNVAL : 0;
        ct_closed += is_closed;
    }
    return ct_closed;
}

static int poll_now(struct pollfd *fds, nfds_t ct)
{
    int result;
    do {
        result = aco_i_libc.poll(fds, ct, 0);
    } while (result < 0 && errno == EINTR);
    return result;
}

static int poll_by(struct pollfd *fds, place_t *places, nfds_t ct, int64_t until)
{
    aco_task_t *self = aco_i_self();
    for (;;) {
        int result = take_moments(fds, places, ct) != 0 ? -1 : poll_now(fds, ct);
        if (result != 0) {
            return result;
        }
        aco_i_open_wait(self, FOR_POLL);
        self->node.item = places;
        self->node.kind = ct;
        int entered = enter_all(fds, places, ct, self);
        outcome_t outcome = entered != 0 && aco_i_close_wait(self) ? WAIT_EVENT
                                                                   : aco_i_wait_until(self, until);
        outcome = outcome == WAIT_DOUBTED ? WAIT_EVENT : outcome;
        for (nfds_t i = 0; i < ct; i++) {
            if (places[i].entry != NULL) {
                leave(places[i].entry, &places[i].node);
            }
        }
        int error = errno;
        int ct_closed = outcome == WAIT_CLOSED || outcome == WAIT_EVENT
                            ? mark_closed(fds, places, ct)
                            : 0;
        errno = error;
        if (ct_closed != 0) {
            return ct_closed;
        }
        if (outcome == WAIT_NONE) { /* the time is over */
            return 0;
        }
        if (entered < 0 && outcome == WAIT_EVENT && errno != EBADF) {
            return -1;
        }
        if (outcome != WAIT_EVENT && outcome != WAIT_CLOSED) {
            return aco_i_result(outcome);
        }
    }
}

int aco_i_poll(struct pollfd *fds, nfds_t ct, int64_t until)
{
    int now = poll_now(fds, ct);
    if (now != 0) {
        return now;
    }
    place_t *places = (place_t *)aco_i_allocate((ct + 1) * sizeof(*places));
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
    int64_t ns = (int64_t)timeout * 1000000;
    return timeout == 0 ? poll_now(fds, ct)
                        : aco_i_poll(fds, ct, timeout < 0 ? NO_DEADLINE : aco_i_after(ns));
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
        place_t *places = (place_t *)task->node.item;
        for (size_t i = 0; i < task->node.kind; i++) {
            if (places[i].entry != NULL) {
                leave(places[i].entry, &places[i].node);
            }
        }
        aco_i_release(places);
    }
}

/* ==== New and closed ========================================================================= */

void aco_i_own(int fd, int is_tcp, int is_ours)
{
    fd_t *entry = aco_i_fd(fd);
    if (entry == NULL) {
        return; /* nothing is known of it then */
    }
    lock(&entry->lock);
    __atomic_store_n(&entry->moment.ct_closed, entry->moment.ct_closed + 1, __ATOMIC_RELEASE);
    node_t *woken = claim_waiting(entry, UINT32_MAX, WAIT_CLOSED); /* it was closed unseen */
    entry->loop = NULL;
    aco_i_forget_file(entry);
    entry->is_ours = (char)is_ours;
    __atomic_store_n(&entry->is_simple, (char)is_tcp, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->drained_at, entry->moment.ct_events - 1, __ATOMIC_RELAXED);
    unlock(&entry->lock);
    make_all_ready(woken);
}

int aco_i_close_by(int fd, int (*fn)(void *arg), void *arg)
{
    fd_t *entry = aco_i_fd(fd);
    if (entry == NULL) {
        return fn(arg);
    }
    lock(&entry->lock);
    __atomic_store_n(&entry->is_closing, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&entry->moment.ct_closed, entry->moment.ct_closed + 1, __ATOMIC_RELEASE);
    node_t *woken = claim_waiting(entry, UINT32_MAX, WAIT_CLOSED);
    forget(fd, entry); /* a copy of the descriptor would keep it watched */
    aco_i_forget_file(entry);
    int result = fn(arg);
    int error = errno;
    result = result < 0 && error == EINTR ? 0 : result; /* it is closed all the same */
    __atomic_store_n(&entry->is_closing, 0, __ATOMIC_RELEASE);
    unlock(&entry->lock);
    make_all_ready(woken);
    errno = error;
    return result;
}

static int do_close(void *arg)
{
    return aco_i_libc.close((int)(intptr_t)arg);
}

int aco_close(int fd)
{
    return aco_i_close_by(fd, do_close, (void *)(intptr_t)fd);
}
