// SPDX-License-Identifier: Apache-2.0
/* Echo servers in C and C++ share this: a listener on a port that the kernel chooses. */
#ifndef BENCH_ECHO_H
#define BENCH_ECHO_H

#include "peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#define BUFFER_SZ 1024 /* bytes that each connection has */
#define BACKLOG 4096

/* A listener that shares its port with those of other threads. `port` 0: one that is free, which
 * it becomes. */
static inline int echo_listen(int *port, int flags)
{
    struct sockaddr_in address;
    socklen_t sz = sizeof(address);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    memset(&address, 0, sizeof(address));
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)*port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
    check(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, BACKLOG) == 0 &&
              getsockname(fd, (struct sockaddr *)&address, &sz) == 0,
          "can't listen");
    *port = ntohs(address.sin_port);
    return fd;
}

static inline void set_nodelay(int fd)
{
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* Tells the client, which connects at once. */
static inline void tell_port(int port)
{
    printf("port %d\n", port);
    fflush(stdout);
}

/* Returns how many threads `argv` of a server asks for. A peer without a server, or with one for
 * fewer threads, has no such workload. */
static inline int echo_threads(int argc, char **argv, int most)
{
    int ct = argc == 3 && strcmp(argv[1], "echo") == 0 ? atoi(argv[2]) : 0;
    if (ct < 1 || ct > most) {
        absent("no such workload");
    }
    return ct;
}

#endif
