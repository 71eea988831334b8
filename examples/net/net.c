// SPDX-License-Identifier: Apache-2.0
/*
 * Implements net.h. Events are edge-triggered: one epoll_ctl() for a socket is enough, and every
 * call tries before it waits.
 */

/* For accept4(), and what else Linux has beyond POSIX. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define BACKLOG 4096 /* clients that may wait for net_accept(); the system may allow fewer */

void net_demand(int holds, const char *what)
{
    if (!holds) {
        perror(what);
        exit(1);
    }
}

size_t net_allow_files(size_t ct)
{
    struct rlimit limit;
    net_demand(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
    if (limit.rlim_max < ct) {
        fprintf(stderr,
                "the hard limit on open files is %zu, %zu are wanted: raise it (ulimit -Hn)"
                "\n",
                (size_t)limit.rlim_max, ct);
        ct = (size_t)limit.rlim_max;
    }
    if (limit.rlim_cur < ct) {
        limit.rlim_cur = ct;
        net_demand(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    }
    return ct;
}

static struct sockaddr_in loopback(uint16_t port)
{
    struct sockaddr_in address;
    memset(&address, 0, sizeof(address));
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
}

static void set_option(int fd, int level, int option)
{
    int on = 1;
    net_demand(setsockopt(fd, level, option, &on, sizeof(on)) == 0, "setsockopt");
}

static int new_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    net_demand(fd >= 0, "socket");
    return fd;
}

int net_listen(uint16_t port)
{
    struct sockaddr_in address = loopback(port);
    int fd = new_socket();
    set_option(fd, SOL_SOCKET, SO_REUSEADDR);
    set_option(fd, SOL_SOCKET, SO_REUSEPORT);
    net_demand(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "bind");
    net_demand(listen(fd, BACKLOG) == 0, "listen");
    return fd;
}

uint16_t net_port(int listener)
{
    struct sockaddr_in address;
    socklen_t sz = sizeof(address);
    net_demand(getsockname(listener, (struct sockaddr *)&address, &sz) == 0, "getsockname");
    return ntohs(address.sin_port);
}

/* Whether it is no fault of ours that there is no client: none waits, or it has left again. */
static int nobody_is_there(void)
{
    return errno == EAGAIN || errno == ECONNABORTED;
}

int net_accept(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    net_demand(fd >= 0 || nobody_is_there(), "accept");
    if (fd >= 0) {
        set_option(fd, IPPROTO_TCP, TCP_NODELAY);
    }
    return fd;
}

void net_watch(int epoll, int fd, void *kept)
{
    struct epoll_event event;
    memset(&event, 0, sizeof(event));
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.ptr = kept;
    net_demand(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
}

int net_connect(int epoll, uint16_t port, void *kept)
{
    struct sockaddr_in address = loopback(port);
    int fd = new_socket();
    set_option(fd, IPPROTO_TCP, TCP_NODELAY);
    net_watch(epoll, fd, kept);
    while (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0 && errno != EISCONN) {
        if (errno != EINPROGRESS && errno != EALREADY) {
            int error = errno;
            close(fd);
            errno = error;
            return -1;
        }
        aco_yield();
    }
    return fd;
}

/* recv() and send() are done with the memory when they return, also if they had to be called again.
 * So it may lie on a share stack, unlike what is read or written while the caller is suspended. */
ssize_t net_read(int fd, void *buffer, size_t sz)
{
    for (;;) {
        ssize_t ct = recv(fd, buffer, sz, 0);
        if (ct >= 0 || errno != EAGAIN) {
            return ct;
        }
        aco_yield();
    }
}

int net_write(int fd, const void *data, size_t sz)
{
    const char *rest = (const char *)data;
    while (sz > 0) {
        ssize_t ct = send(fd, rest, sz, MSG_NOSIGNAL);
        if (ct >= 0) {
            rest += ct;
            sz -= (size_t)ct;
        } else if (errno == EAGAIN) {
            aco_yield();
        } else {
            return -1;
        }
    }
    return 0;
}

void net_abort(int fd)
{
    struct linger at_once = {1, 0};
    net_demand(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0, "setsockopt");
    close(fd);
}

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

void net_print_usage(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("cpu time %.3f s (%.3f user, %.3f system), peak memory %.1f MiB\n",
           seconds(usage.ru_utime) + seconds(usage.ru_stime), seconds(usage.ru_utime),
           seconds(usage.ru_stime), (double)usage.ru_maxrss / 1024);
}
