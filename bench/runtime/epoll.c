// SPDX-License-Identifier: Apache-2.0
/*
 * The echo server that others are compared with: epoll, edge-triggered, and a callback for each
 * event, which reads until the kernel has no more. Each thread has a listener and a loop.
 *
 * peer: epoll
 * kind: callbacks
 * build: $CC -O2 -pthread -Ibench/peers $SRC -o $OUT
 */
#define _GNU_SOURCE
#include "echo.h"

#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS 64
#define MOST_THREADS 64

typedef struct handler_s {
    void (*on_event)(struct handler_s *handler, int epoll_fd, uint32_t events);
    int fd;
    size_t to_write, written; /* bytes of `buffer` */
    char buffer[BUFFER_SZ];
} handler_t;

static void end(handler_t *handler)
{
    close(handler->fd);
    free(handler);
}

/* Returns whether all is written; if not, the next event goes on. */
static int flush(handler_t *handler)
{
    while (handler->written < handler->to_write) {
        ssize_t sz = send(handler->fd, handler->buffer + handler->written,
                          handler->to_write - handler->written, MSG_NOSIGNAL);
        if (sz < 0) {
            return 0;
        }
        handler->written += (size_t)sz;
    }
    return 1;
}

static void on_data(handler_t *handler, int epoll_fd, uint32_t events)
{
    (void)epoll_fd;
    while (flush(handler)) {
        ssize_t sz = recv(handler->fd, handler->buffer, BUFFER_SZ, 0);
        if (sz == 0 || (sz < 0 && errno != EAGAIN)) {
            end(handler);
            return;
        }
        if (sz < 0) {
            return;
        }
        handler->to_write = (size_t)sz;
        handler->written = 0;
        if (sz < BUFFER_SZ && (events & EPOLLRDHUP) == 0) { /* nothing until the next event */
            flush(handler);
            return;
        }
    }
}

static void add(int epoll_fd, int fd, void (*on_event)(handler_t *, int, uint32_t), uint32_t events)
{
    handler_t *handler = (handler_t *)get_memory(sizeof(*handler));
    struct epoll_event event = {.events = events, .data.ptr = handler};
    handler->on_event = on_event;
    handler->fd = fd;
    handler->to_write = handler->written = 0;
    check(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl fails");
}

static void on_connection(handler_t *handler, int epoll_fd, uint32_t events)
{
    (void)events;
    for (int fd; (fd = accept4(handler->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        set_nodelay(fd);
        add(epoll_fd, fd, on_data, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    }
}

static void *serve(void *listener)
{
    struct epoll_event events[EVENTS];
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    add(epoll_fd, (int)(intptr_t)listener, on_connection, EPOLLIN);
    for (;;) {
        int ct = epoll_wait(epoll_fd, events, EVENTS, -1);
        for (int i = 0; i < ct; i++) {
            handler_t *handler = (handler_t *)events[i].data.ptr;
            handler->on_event(handler, epoll_fd, events[i].events);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int ct = echo_threads(argc, argv, MOST_THREADS), port = 0;
    int first = echo_listen(&port, SOCK_NONBLOCK);
    for (int i = 1; i < ct; i++) {
        pthread_t thread;
        int other = echo_listen(&port, SOCK_NONBLOCK);
        check(pthread_create(&thread, NULL, serve, (void *)(intptr_t)other) == 0, "no thread");
    }
    tell_port(port);
    serve((void *)(intptr_t)first);
}
