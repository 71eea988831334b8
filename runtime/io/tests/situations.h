// SPDX-License-Identifier: Apache-2.0
/* Brings descriptors of every kind into every situation. */
#ifndef ACO_TESTS_SITUATIONS_H
#define ACO_TESTS_SITUATIONS_H

#include "kinds.h"

static inline int happens(int fd, int events, int timeout)
{
    struct pollfd polled = {fd, (short)events, 0};
    return poll(&polled, 1, timeout) == 1;
}

/* Writes until nothing more fits. */
static inline void fill(const kind_t *kind, const ends_t *ends)
{
    static const char bytes[256];
    int flags = fcntl(ends->fd, F_GETFL);
    set_nonblocking(ends->fd);
    if (kind->drain == drain_eventfd) {
        MUST(eventfd_write(ends->fd, UINT64_MAX - 1) == 0);
    } else if (ends->addr_sz != 0 && kind->feed == NULL) {
        call_in_vain(ends);
    } else {
        while ((ends->addr_sz == 0
                    ? write(ends->fd, bytes, sizeof(bytes))
                    : sendto(ends->fd, bytes, sizeof(bytes), 0,
                             (const struct sockaddr *)&ends->addr, ends->addr_sz)) > 0) {
        }
    }
    MUST(fcntl(ends->fd, F_SETFL, flags) == 0);
}

static inline void close_peer(ends_t *ends)
{
    if (ends->peer >= 0) {
        MUST(close(ends->peer) == 0);
        ends->peer = -1;
    }
}

/* Closes the other end so that what was sent to it is lost. */
static inline void reset(const kind_t *kind, ends_t *ends)
{
    struct linger at_once = {1, 0};
    if (kind->make == make_tcp) {
        MUST(setsockopt(ends->peer, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0);
    }
    if (kind->make == make_udp) {
        close_peer(ends);
    }
    MUST(send(ends->fd, "lost", 4, 0) == 4);
    close_peer(ends);
    MUST(happens(ends->fd, POLLIN, 10000));
}

static inline void make_ends(const kind_t *kind, situation_t situation, ends_t *ends)
{
    *ends = (ends_t){.fd = -1, .peer = -1, .file = open(file_path, O_RDWR)};
    int file = ends->file;
    kind->make(ends);
    ends->file = file;
    MUST(ends->fd >= 0);
    if (ends->peer >= 0) {
        set_nonblocking(ends->peer);
    }
    if (situation == FULL) {
        fill(kind, ends);
    } else if (situation == READY || situation == READY_AND_ENDED) {
        kind->feed(ends);
        MUST(happens(ends->fd, POLLIN, 10000));
    }
    if (situation == ENDED || situation == READY_AND_ENDED) {
        close_peer(ends);
    } else if (situation == RESET) {
        reset(kind, ends);
    }
}

/* Closes all descriptors but `fd`. */
static inline void close_rest(ends_t *ends)
{
    static const struct timespec at_once;
    sigset_t set;
    close_peer(ends);
    MUST(close(ends->file) == 0);
    if (ends->child != 0) {
        MUST(kill(ends->child, SIGKILL) == 0 && waitpid(ends->child, NULL, 0) == ends->child);
    }
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    while (sigtimedwait(&set, NULL, &at_once) > 0)
        continue;
}

#endif
