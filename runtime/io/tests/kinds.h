// SPDX-License-Identifier: Apache-2.0
/*
 * Descriptors of every kind, in every situation: nothing to read, something, no room to write, the
 * other end closed or reset. For tests that compare the effect of a call with the right one.
 */
#ifndef ACO_TESTS_KINDS_H
#define ACO_TESTS_KINDS_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define MUST(EX) ((EX) ? (void)0 : give_up(#EX, __LINE__))

static const char *what_is_tested = "";

static inline void give_up(const char *what, int line)
{
    fprintf(stderr, "line %d: %s, errno %d, in %s\n", line, what, errno, what_is_tested);
    abort();
}

/* The descriptors of a test. */
typedef struct {
    int fd;   /* under test */
    int peer; /* the other end, which never blocks; -1: none */
    int file; /* a regular file */
    pid_t child;
    struct sockaddr_storage addr; /* to which it may send or connect */
    socklen_t addr_sz;            /* 0: nowhere */
} ends_t;

typedef enum { IDLE, READY, FULL, ENDED, READY_AND_ENDED, RESET, CT_SITUATIONS } situation_t;

typedef struct {
    const char *name;
    void (*make)(ends_t *ends);
    void (*feed)(const ends_t *ends);  /* gives it something to read; NULL: impossible */
    void (*drain)(const ends_t *ends); /* makes room; NULL: impossible */
    char is_socket;
    char varies;     /* the kernel decides how much fits */
    char situations; /* bits of those that it can be in */
} kind_t;

static char folder[] = "/tmp/kinds.XXXXXX";
static char fifo_path[64], file_path[64];

/* ==== Both ends ============================================================================== */

static inline void set_nonblocking(int fd)
{
    MUST(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
}

static inline void feed_peer(const ends_t *ends)
{
    MUST(write(ends->peer, "hello", 5) == 5);
}

static long ct_drained; /* bytes */

static inline void drain_peer(const ends_t *ends)
{
    char buf[4096];
    ssize_t sz;
    while ((sz = read(ends->peer, buf, sizeof(buf))) > 0) {
        ct_drained += sz;
    }
}

static inline void pair(ends_t *ends, int type)
{
    int fds[2], sz = 4096;
    MUST(socketpair(AF_UNIX, type, 0, fds) == 0);
    *ends = (ends_t){.fd = fds[0], .peer = fds[1]};
    MUST(setsockopt(ends->fd, SOL_SOCKET, SO_SNDBUF, &sz, sizeof(sz)) == 0);
}

static inline void make_unix_stream(ends_t *ends)
{
    pair(ends, SOCK_STREAM);
}
static inline void make_unix_datagram(ends_t *ends)
{
    pair(ends, SOCK_DGRAM);
}
static inline void make_unix_seqpacket(ends_t *ends)
{
    pair(ends, SOCK_SEQPACKET);
}

/* A socket bound to an address that the kernel chooses. */
static inline int bound(int family, int type, struct sockaddr_storage *addr, socklen_t *sz)
{
    int fd = socket(family, type, 0);
    memset(addr, 0, sizeof(*addr));
    addr->ss_family = (sa_family_t)family;
    ((struct sockaddr_in *)addr)->sin_addr.s_addr = family == AF_INET ? htonl(INADDR_LOOPBACK) : 0;
    *sz = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(sa_family_t);
    MUST(fd >= 0 && bind(fd, (struct sockaddr *)addr, *sz) == 0);
    *sz = sizeof(*addr);
    MUST(getsockname(fd, (struct sockaddr *)addr, sz) == 0);
    return fd;
}

/* Two datagram sockets; the peer is connected, and `fd` knows its address. */
static inline void make_free(ends_t *ends, int family)
{
    struct sockaddr_storage addr;
    socklen_t sz;
    int small = 4096;
    ends->fd = bound(family, SOCK_DGRAM, &addr, &sz);
    ends->peer = bound(family, SOCK_DGRAM, &ends->addr, &ends->addr_sz);
    MUST(family == AF_UNIX || connect(ends->peer, (struct sockaddr *)&addr, sz) == 0);
    /* A local socket is full when its receiver is. */
    MUST(family == AF_UNIX ||
         setsockopt(ends->fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)) == 0);
}

static inline void make_udp_free(ends_t *ends)
{
    make_free(ends, AF_INET);
}

static inline void make_udp(ends_t *ends)
{
    make_free(ends, AF_INET);
    MUST(connect(ends->fd, (struct sockaddr *)&ends->addr, ends->addr_sz) == 0);
}

static inline void make_unix_free(ends_t *ends)
{
    make_free(ends, AF_UNIX);
}

static inline void feed_unix_free(const ends_t *ends)
{
    struct sockaddr_storage addr;
    socklen_t sz = sizeof(addr);
    MUST(getsockname(ends->fd, (struct sockaddr *)&addr, &sz) == 0);
    MUST(sendto(ends->peer, "hello", 5, 0, (struct sockaddr *)&addr, sz) == 5);
}

/* Makes a connection with small buffers, so that it is soon full. */
static inline void make_tcp(ends_t *ends)
{
    struct sockaddr_storage addr;
    socklen_t sz;
    int small = 4096, listener = bound(AF_INET, SOCK_STREAM, &addr, &sz);
    MUST(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)) == 0);
    ends->fd = socket(AF_INET, SOCK_STREAM, 0);
    MUST(setsockopt(ends->fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)) == 0);
    MUST(listen(listener, 1) == 0 && connect(ends->fd, (struct sockaddr *)&addr, sz) == 0);
    ends->peer = accept(listener, NULL, NULL);
    MUST(ends->peer >= 0 && close(listener) == 0);
}

/* ==== Listeners, and what connects to them =================================================== */

static inline void make_listener(ends_t *ends, int family)
{
    ends->fd = bound(family, SOCK_STREAM, &ends->addr, &ends->addr_sz);
    MUST(listen(ends->fd, 0) == 0);
    ends->peer = socket(family, SOCK_STREAM, 0);
}

static inline void make_tcp_listener(ends_t *ends)
{
    make_listener(ends, AF_INET);
}
static inline void make_unix_listener(ends_t *ends)
{
    make_listener(ends, AF_UNIX);
}

static inline void feed_listener(const ends_t *ends)
{
    MUST(connect(ends->peer, (const struct sockaddr *)&ends->addr, ends->addr_sz) == 0 ||
         errno == EINPROGRESS);
}

static inline void make_unconnected(ends_t *ends, int family)
{
    make_listener(ends, family);
    int client = ends->peer;
    ends->peer = ends->fd;
    ends->fd = client;
}

static inline void make_tcp_unconnected(ends_t *ends)
{
    make_unconnected(ends, AF_INET);
}
static inline void make_unix_unconnected(ends_t *ends)
{
    make_unconnected(ends, AF_UNIX);
}

static inline void drain_listener(const ends_t *ends)
{
    int fd = accept(ends->peer, NULL, NULL);
    MUST(fd < 0 || close(fd) == 0);
}

/* Fills the queue of a listener. */
static inline void call_in_vain(const ends_t *ends)
{
    int fds[8], ct = 0;
    do {
        fds[ct] = socket(ends->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    } while (ct < 7 &&
             connect(fds[ct++], (const struct sockaddr *)&ends->addr, ends->addr_sz) == 0);
    while (ct != 0) {
        close(fds[--ct]); /* the connections that were queued stay so */
    }
}

/* ==== Pipes and terminals ==================================================================== */

static inline void make_pipe(ends_t *ends, int in)
{
    int fds[2];
    MUST(pipe(fds) == 0);
    *ends = (ends_t){.fd = fds[!in], .peer = fds[in]};
}

static inline void make_pipe_in(ends_t *ends)
{
    make_pipe(ends, 1);
}
static inline void make_pipe_out(ends_t *ends)
{
    make_pipe(ends, 0);
}

static inline void make_fifo_both(ends_t *ends)
{
    unlink(fifo_path);
    MUST(mkfifo(fifo_path, 0600) == 0);
    ends->fd = open(fifo_path, O_RDWR);
    ends->peer = open(fifo_path, O_RDWR | O_NONBLOCK);
}

static inline void make_fifo(ends_t *ends, int mode, int peer_mode)
{
    make_fifo_both(ends);
    int fd = open(fifo_path, mode), peer = open(fifo_path, peer_mode | O_NONBLOCK);
    close(ends->fd);
    close(ends->peer);
    *ends = (ends_t){.fd = fd, .peer = peer};
}

static inline void make_fifo_in(ends_t *ends)
{
    make_fifo(ends, O_RDONLY, O_WRONLY);
}
static inline void make_fifo_out(ends_t *ends)
{
    make_fifo(ends, O_WRONLY, O_RDONLY);
}

static inline void make_pty_slave(ends_t *ends)
{
    struct termios raw;
    ends->peer = posix_openpt(O_RDWR | O_NOCTTY);
    MUST(grantpt(ends->peer) == 0 && unlockpt(ends->peer) == 0);
    ends->fd = open(ptsname(ends->peer), O_RDWR | O_NOCTTY);
    MUST(tcgetattr(ends->fd, &raw) == 0);
    cfmakeraw(&raw);
    MUST(tcsetattr(ends->fd, TCSANOW, &raw) == 0);
}

static inline void make_pty_master(ends_t *ends)
{
    make_pty_slave(ends);
    *ends = (ends_t){.fd = ends->peer, .peer = ends->fd};
}

/* ==== Kinds without another end ============================================================== */

static inline void make_eventfd(ends_t *ends)
{
    ends->fd = eventfd(0, 0);
}

static inline void feed_eventfd(const ends_t *ends)
{
    MUST(eventfd_write(ends->fd, 3) == 0);
}

static inline void drain_eventfd(const ends_t *ends)
{
    eventfd_t count;
    struct pollfd polled = {ends->fd, POLLIN | POLLOUT, 0};
    if (poll(&polled, 1, 0) == 1 && polled.revents == POLLIN) {
        MUST(eventfd_read(ends->fd, &count) == 0);
    }
}

static inline void make_timerfd(ends_t *ends)
{
    ends->fd = timerfd_create(CLOCK_MONOTONIC, 0);
}

static inline void feed_timerfd(const ends_t *ends)
{
    struct itimerspec at_once = {{0, 0}, {0, 1}};
    MUST(timerfd_settime(ends->fd, 0, &at_once, NULL) == 0);
}

/* The program blocks SIGUSR1 in all threads. */
static inline void make_signalfd(ends_t *ends)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    ends->fd = signalfd(-1, &set, 0);
}

static inline void feed_signalfd(const ends_t *ends)
{
    MUST(ends->fd < 0 || kill(getpid(), SIGUSR1) == 0);
}

static inline void make_inotify(ends_t *ends)
{
    ends->fd = inotify_init();
    MUST(inotify_add_watch(ends->fd, folder, IN_CREATE) >= 0);
}

static inline void feed_inotify(const ends_t *ends)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/new", folder);
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    MUST(ends->fd >= 0 && fd >= 0 && close(fd) == 0 && unlink(path) == 0);
}

static inline void make_pidfd(ends_t *ends)
{
    ends->child = fork();
    if (ends->child == 0) {
        for (;;) {
            pause();
        }
    }
    ends->fd = (int)syscall(SYS_pidfd_open, ends->child, 0);
}

static inline void feed_pidfd(const ends_t *ends)
{
    MUST(kill(ends->child, SIGKILL) == 0);
}

static inline void make_epoll(ends_t *ends)
{
    ends->fd = epoll_create1(0);
}
static inline void make_file(ends_t *ends)
{
    ends->fd = dup(ends->file);
}
static inline void make_zero(ends_t *ends)
{
    ends->fd = open("/dev/zero", O_RDWR);
}
static inline void make_null(ends_t *ends)
{
    ends->fd = open("/dev/null", O_RDWR);
}
static inline void make_full(ends_t *ends)
{
    ends->fd = open("/dev/full", O_RDWR);
}
static inline void make_folder(ends_t *ends)
{
    ends->fd = open(folder, O_RDONLY);
}
static inline void make_path(ends_t *ends)
{
    ends->fd = open(folder, O_PATH);
}

static inline void make_closed(ends_t *ends)
{
    ends->fd = fcntl(ends->file, F_DUPFD, 900);
    MUST(close(ends->fd) == 0);
}

/* ==== All ==================================================================================== */

#define B(situation) (1 << (situation))
#define STREAM (B(IDLE) | B(READY) | B(FULL) | B(ENDED) | B(READY_AND_ENDED))
#define SINGLE (B(IDLE) | B(READY))
/* TCP and terminals are never full for long: the kernel itself moves their bytes on. */

static const kind_t kinds[] = {
    {"tcp", make_tcp, feed_peer, drain_peer, 1, 1, (STREAM & ~B(FULL)) | B(RESET)},
    {"udp", make_udp, feed_peer, NULL, 1, 0, SINGLE | B(RESET)},
    {"unconnected udp", make_udp_free, feed_peer, NULL, 1, 0, SINGLE},
    {"unix stream", make_unix_stream, feed_peer, drain_peer, 1, 0, STREAM | B(RESET)},
    {"unix datagram", make_unix_datagram, feed_peer, drain_peer, 1, 0, STREAM},
    {"unconnected unix datagram", make_unix_free, feed_unix_free, drain_peer, 1, 0, STREAM},
    {"unix seqpacket", make_unix_seqpacket, feed_peer, drain_peer, 1, 0, STREAM | B(RESET)},
    {"tcp listener", make_tcp_listener, feed_listener, NULL, 1, 0, SINGLE},
    {"unix listener", make_unix_listener, feed_listener, NULL, 1, 0, SINGLE},
    {"new tcp", make_tcp_unconnected, NULL, NULL, 1, 0, B(IDLE) | B(FULL) | B(ENDED)},
    {"new unix", make_unix_unconnected, NULL, drain_listener, 1, 0, B(IDLE) | B(FULL) | B(ENDED)},
    {"pipe, read", make_pipe_in, feed_peer, NULL, 0, 0, STREAM & ~B(FULL)},
    {"pipe, write", make_pipe_out, NULL, drain_peer, 0, 0, B(IDLE) | B(FULL) | B(ENDED)},
    {"fifo", make_fifo_both, feed_peer, drain_peer, 0, 1, B(IDLE) | B(READY) | B(FULL)},
    {"fifo, read", make_fifo_in, feed_peer, NULL, 0, 0, STREAM & ~B(FULL)},
    {"fifo, write", make_fifo_out, NULL, drain_peer, 0, 1, B(IDLE) | B(FULL) | B(ENDED)},
    {"pty slave", make_pty_slave, feed_peer, drain_peer, 0, 1, B(IDLE) | B(READY) | B(ENDED)},
    {"pty master", make_pty_master, feed_peer, drain_peer, 0, 1, B(IDLE) | B(READY) | B(ENDED)},
    {"eventfd", make_eventfd, feed_eventfd, drain_eventfd, 0, 0, SINGLE | B(FULL)},
    {"timerfd", make_timerfd, feed_timerfd, NULL, 0, 0, SINGLE},
    {"signalfd", make_signalfd, feed_signalfd, NULL, 0, 0, SINGLE},
    {"inotify", make_inotify, feed_inotify, NULL, 0, 0, SINGLE},
    {"pidfd", make_pidfd, feed_pidfd, NULL, 0, 0, SINGLE},
    {"epoll", make_epoll, NULL, NULL, 0, 0, B(IDLE)},
    {"file", make_file, NULL, NULL, 0, 0, B(IDLE)},
    {"/dev/zero", make_zero, NULL, NULL, 0, 0, B(IDLE)},
    {"/dev/null", make_null, NULL, NULL, 0, 0, B(IDLE)},
    {"/dev/full", make_full, NULL, NULL, 0, 0, B(IDLE)},
    {"folder", make_folder, NULL, NULL, 0, 0, B(IDLE)},
    {"O_PATH", make_path, NULL, NULL, 0, 0, B(IDLE)},
    {"closed number", make_closed, NULL, NULL, 0, 0, B(IDLE)},
};

#endif
