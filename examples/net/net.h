// SPDX-License-Identifier: Apache-2.0
/*
 * What the examples with sockets have in common: calls on non-blocking sockets of the loopback
 * network that read as if they blocked. One that has to wait yields, so it is for coroutines; their
 * parent is a loop around epoll_wait(), and resumes a coroutine when its socket has news, whatever
 * they are. What can't go on ends the process in a line that says why.
 */
#ifndef ACO_EXAMPLES_NET_H
#define ACO_EXAMPLES_NET_H

#include "aco.h"

#include <sys/epoll.h>

/* Ends the process with `what` and errno unless `holds`. */
void net_demand(int holds, const char *what);

/*
 * Has the process open as many as `ct` files, as far as the hard limit goes (ulimit -Hn). Returns
 * how many it may, after a line on stderr if they are fewer.
 */
size_t net_allow_files(size_t ct);

/* A socket that listens at `port`, 0 for any. Several may share a port; the kernel deals it out. */
int net_listen(uint16_t port);
uint16_t net_port(int listener);

/* The next client that waits at `listener`; -1 if none does. Does not yield. */
int net_accept(int listener);

/* Has `epoll` tell of all news of `fd`, once each, by way of `kept` in data.ptr. */
void net_watch(int epoll, int fd, void *kept);

/* Makes a socket that is watched, and connects it to `port`. Returns its number, or -1 with errno
 * if nobody listens there. */
int net_connect(int epoll, uint16_t port, void *kept);

/* At most `sz` bytes, as soon as there are some; 0 at the end, -1 if the connection broke. */
ssize_t net_read(int fd, void *buffer, size_t sz);

/* All `sz` bytes. Returns 0, or -1 if the connection broke. */
int net_write(int fd, const void *data, size_t sz);

/* Ends the connection as a crash would: the other side gets a reset. */
void net_abort(int fd);

/* A line on stdout: which processor time and how much memory this process took. */
void net_print_usage(void);

#endif
