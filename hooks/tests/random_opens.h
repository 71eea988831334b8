// SPDX-License-Identifier: Apache-2.0
/*
 * Steps of random_calls.c that make or replace descriptors, or make children. Each uses descriptors
 * of its own, and leaves none open. A call that blocks has a helper, which acts again and again
 * until the call has returned.
 */
#ifndef ACO_RANDOM_OPENS_H
#define ACO_RANDOM_OPENS_H

#include "random_calls.h"

#include <stddef.h>
#include <sys/un.h>
#include <sys/wait.h>

/* The values that a step compares beside its result. */
typedef struct {
    int more, flags;
} seen_t;

typedef struct {
    partner_t partner; /* only for the caller and how it waits */
    struct sockaddr_storage address;
    socklen_t sz;
    int listener, fd;
} help_t;

/* ==== Connections ============================================================================ */

/* Opens a listener for TCP or local connections, with room for one or two in its queue. */
static void open_listener(help_t *h, int is_local)
{
    struct sockaddr_in inet = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    h->listener = socket(is_local ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
    h->sz = is_local ? (socklen_t)sizeof(sa_family_t) : (socklen_t)sizeof(inet); /* any name */
    memcpy(&h->address, is_local ? (void *)&local : (void *)&inet, h->sz);
    CHECK(bind(h->listener, (struct sockaddr *)&h->address, h->sz) == 0);
    h->sz = sizeof(h->address);
    CHECK(getsockname(h->listener, (struct sockaddr *)&h->address, &h->sz) == 0);
    CHECK(listen(h->listener, 0) == 0);
}

static int connect_to(const help_t *h, int flags)
{
    int fd = socket(h->address.ss_family, SOCK_STREAM | flags, 0);
    CHECK(fd >= 0);
    int result = connect(fd, (const struct sockaddr *)&h->address, h->sz);
    CHECK(result == 0 || (flags != 0 && (errno == EAGAIN || errno == EINPROGRESS)));
    return fd;
}

static void *connects(void *arg)
{
    help_t *h = (help_t *)arg;
    while (comes_to_wait(&h->partner)) {
        if (h->fd < 0) {
            h->fd = connect_to(h, SOCK_NONBLOCK);
        }
    }
    return NULL;
}

/* Begins a call that may block: `fn` helps in another task or thread. */
static void begin_help(help_t *h, void *(*fn)(void *), int is_needed)
{
    h->partner.is_needed = is_needed;
    before_call_by(&h->partner, fn, h);
}

static int64_t accepts(seen_t *seen)
{
    static const int flags[] = {0, SOCK_CLOEXEC, SOCK_NONBLOCK, 1};
    help_t h = {.fd = -1};
    struct timeval t = {0, 1000};
    struct sockaddr_storage address;
    socklen_t sz = sizeof(address);
    size_t kind = random_below(4), is_queued = random_below(2), chosen = random_below(4);
    open_listener(&h, (int)random_below(2));
    if (kind == 1) {
        CHECK(fcntl(h.listener, F_SETFL, O_NONBLOCK) == 0);
    } else if (kind == 2) {
        CHECK(setsockopt(h.listener, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)) == 0);
    }
    h.fd = is_queued ? connect_to(&h, 0) : -1;
    begin_help(&h, connects, !is_queued && (kind == 3 || (kind == 0 && flags[chosen] != 1)));
    errno = 0;
    int fd = kind == 3 ? accept(h.listener, NULL, NULL)
                       : accept4(h.listener, (struct sockaddr *)&address, &sz, flags[chosen]);
    after_call(&h.partner);
    int error = errno;
    seen->more = fd < 0 ? 0 : (int)sz;
    seen->flags = fd < 0 ? 0 : fcntl(fd, F_GETFL) + fcntl(fd, F_GETFD);
    CHECK(fd < 0 || close(fd) == 0);
    CHECK((h.fd < 0 || close(h.fd) == 0) && close(h.listener) == 0);
    errno = error;
    return fd < 0 ? -1 : 0;
}

/* A thread that accepts from the same listener until that is shut down. */
static void *is_rival(void *arg)
{
    const help_t *h = (const help_t *)arg;
    struct pollfd polled = {h->listener, POLLIN, 0};
    int fd;
    do {
        CHECK(poll(&polled, 1, 100000) == 1); /* or the caller holds up who connects */
        fd = accept(h->listener, NULL, NULL);
        CHECK(fd < 0 || close(fd) == 0);
    } while (fd >= 0);
    return NULL;
}

static void *connects_again(void *arg)
{
    help_t *h = (help_t *)arg;
    while (comes_to_wait(&h->partner)) {
        CHECK(h->fd < 0 || close(h->fd) == 0);
        h->fd = connect_to(h, SOCK_NONBLOCK);
    }
    return NULL;
}

/* Whoever loses a connection waits for the next one, and only itself. */
static int64_t accepts_beside_another(seen_t *seen)
{
    help_t h = {.fd = -1};
    sigset_t all, before;
    pthread_t rival;
    open_listener(&h, (int)random_below(2));
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    CHECK(pthread_create(&rival, NULL, is_rival, &h) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    begin_help(&h, connects_again, 1);
    errno = 0;
    for (int i = 0; i < 8; i++) {
        int fd = accept(h.listener, NULL, NULL);
        seen->more += fd >= 0;
        CHECK(fd < 0 || close(fd) == 0);
    }
    after_call(&h.partner);
    int error = errno;
    CHECK(shutdown(h.listener, SHUT_RDWR) == 0 && pthread_join(rival, NULL) == 0);
    CHECK((h.fd < 0 || close(h.fd) == 0) && close(h.listener) == 0);
    errno = error;
    return 0;
}

static void *accepts_one(void *arg)
{
    help_t *h = (help_t *)arg;
    while (comes_to_wait(&h->partner)) {
        int fd = accept(h->listener, NULL, NULL); /* makes room */
        CHECK(fd < 0 || close(fd) == 0);
    }
    return NULL;
}

/* Connects to a listener that has room, has none, or is gone. */
static int64_t makes_connection(seen_t *seen)
{
    help_t h = {.fd = -1};
    int is_local = (int)random_below(2), filler = -1, flags = random_below(3) == 0 ? O_NONBLOCK : 0;
    size_t kind = random_below(3);
    open_listener(&h, is_local);
    if (kind == 1) {
        CHECK(close(h.listener) == 0);
    } else if (kind == 2 && is_local) {
        filler = connect_to(&h, 0);
    }
    int fd = socket(h.address.ss_family, SOCK_STREAM, 0);
    CHECK(fcntl(fd, F_SETFL, flags) == 0);
    CHECK(kind == 1 || fcntl(h.listener, F_SETFL, O_NONBLOCK) == 0);
    begin_help(&h, accepts_one, filler >= 0 && flags == 0);
    errno = 0;
    int result = connect(fd, (struct sockaddr *)&h.address, h.sz);
    after_call(&h.partner);
    int error = errno;
    /* A second call. A local socket would first wait for room. */
    seen->more = error != 0 || is_local ? 0 : connect(fd, (struct sockaddr *)&h.address, h.sz);
    seen->flags = fcntl(fd, F_GETFL);
    CHECK(close(fd) == 0 && (kind == 1 || close(h.listener) == 0));
    CHECK(filler < 0 || close(filler) == 0);
    errno = error;
    return result;
}

/* ==== Opening ================================================================================ */

static void *opens_both(void *arg)
{
    help_t *h = (help_t *)arg;
    char name[sizeof(path)];
    snprintf(name, sizeof(name), "%s/other", folder);
    while (comes_to_wait(&h->partner)) {
        if (h->fd < 0) { /* both ends, so it does not wait */
            h->fd = open(name, O_RDWR);
            CHECK(h->fd >= 0);
        }
    }
    return NULL;
}

static int64_t opens(seen_t *seen)
{
    static const int flags[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDONLY | O_NONBLOCK,
                                O_WRONLY | O_NONBLOCK};
    static const char *const names[] = {"other", "data", "missing", "other/none"};
    help_t h = {.fd = -1};
    char name[sizeof(path)];
    size_t chosen = random_below(4), how = random_below(ARRAY_SZ(flags));
    CHECK(mkfifo(path_of("other"), 0600) == 0);
    snprintf(name, sizeof(name), "%s/%s", folder, names[chosen]);
    begin_help(&h, opens_both, chosen == 0 && how < 2);
    errno = 0;
    int fd = random_below(2) ? open(name, flags[how]) : openat(AT_FDCWD, name, flags[how]);
    after_call(&h.partner);
    int error = errno;
    seen->flags = fd < 0 ? 0 : fcntl(fd, F_GETFL);
    CHECK(fd < 0 || close(fd) == 0);
    CHECK((h.fd < 0 || close(h.fd) == 0) && unlink(path_of("other")) == 0);
    errno = error;
    return fd < 0 ? -1 : 0;
}

/* ==== Copies and children ==================================================================== */

/* Copies an end onto an open descriptor, which takes the place of the end. */
static int64_t replaces(end_t *end, seen_t *seen)
{
    int other[2], is_dup3 = (int)random_below(2);
    int flags = is_dup3 && random_below(2) ? O_CLOEXEC : 0;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, other) == 0);
    errno = 0;
    int result = is_dup3 ? dup3(end->fd, other[0], flags) : dup2(end->fd, other[0]);
    int error = errno;
    seen->more = result < 0 ? 0 : fcntl(result, F_GETFD);
    seen->flags = result < 0 ? 0 : fcntl(result, F_GETFL);
    if (result >= 0) {
        char byte;
        CHECK(result == other[0] && recv(other[1], &byte, 1, 0) == 0); /* it was closed */
        CHECK(close(end->fd) == 0);
        end->fd = other[0];
    } else {
        CHECK(close(other[0]) == 0);
    }
    CHECK(close(other[1]) == 0);
    errno = error;
    return result < 0 ? -1 : 0;
}

/* Compares what a child sees of an end. The end itself stays as it is. */
static int64_t forks(const end_t *end, seen_t *seen)
{
    struct pollfd polled = {end->fd, POLLIN, 0};
    int status = 0, error = 0;
    pid_t pid = random_below(4) == 0 ? vfork() : fork();
    if (pid == 0) {
        int result = poll(&polled, 1, 0);
        _exit((result < 0 ? 7 : polled.revents & 63) + (fcntl(end->fd, F_GETFL) < 0 ? 64 : 0));
    }
    CHECK(pid > 0);
    errno = 0;
    pid_t got = waitpid(pid, &status, 0);
    error = errno;
    seen->more = status;
    seen->flags = fcntl(end->fd, F_GETFL);
    errno = error;
    return got == pid ? 0 : -1;
}

#endif
