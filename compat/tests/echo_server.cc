// SPDX-License-Identifier: Apache-2.0
/*
 * An echo server: one coroutine accepts, and workers on a few shared stacks serve. Clients in
 * another thread send on many connections, and compare the answers.
 */
#include "co_routine.h"

#include "check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stack>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vector>

enum { CT_WORKERS = 12, CT_CLIENTS = 30, CT_ROUNDS = 20 };

struct worker_t {
    stCoRoutine_t *co;
    int fd;
};

static std::stack<worker_t *> idle;
static int listener;
static unsigned ct_served;
static bool is_over; /* atomic */

static void *serve(void *arg)
{
    worker_t *worker = static_cast<worker_t *>(arg);
    co_enable_hook_sys();
    for (;;) {
        if (worker->fd < 0) {
            idle.push(worker);
            co_yield_ct();
            continue;
        }
        char buf[1024];
        struct pollfd polled = {worker->fd, POLLIN | POLLERR | POLLHUP, 0};
        co_poll(co_get_epoll_ct(), &polled, 1, 1000);
        ssize_t sz = read(worker->fd, buf, sizeof(buf));
        if (sz > 0) {
            sz = write(worker->fd, buf, static_cast<size_t>(sz));
        }
        if (sz > 0 || (sz < 0 && errno == EAGAIN)) {
            continue;
        }
        close(worker->fd);
        worker->fd = -1;
        ct_served++;
    }
    return NULL;
}

static void *accept_all(void *)
{
    co_enable_hook_sys();
    for (;;) {
        if (idle.empty()) {
            struct pollfd pause = {-1, 0, 0};
            co_poll(co_get_epoll_ct(), &pause, 1, 1);
            continue;
        }
        struct sockaddr_in addr;
        socklen_t sz = sizeof(addr);
        int fd = co_accept(listener, reinterpret_cast<struct sockaddr *>(&addr), &sz);
        if (fd < 0) {
            struct pollfd polled = {listener, POLLIN | POLLERR | POLLHUP, 0};
            co_poll(co_get_epoll_ct(), &polled, 1, 1000);
            continue;
        }
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
        worker_t *worker = idle.top();
        idle.pop();
        worker->fd = fd;
        co_resume(worker->co);
    }
    return NULL;
}

static int listen_at(struct sockaddr_in *addr)
{
    socklen_t sz = sizeof(*addr);
    memset(addr, 0, sizeof(*addr));
    addr->sin_family = AF_INET;
    addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(bind(fd, reinterpret_cast<struct sockaddr *>(addr), sz) == 0 && listen(fd, 1024) == 0);
    CHECK(getsockname(fd, reinterpret_cast<struct sockaddr *>(addr), &sz) == 0);
    return fd;
}

static void exchange(int fd, int client, int round)
{
    char sent[600], got[sizeof(sent)];
    memset(sent, client * 31 + round, sizeof(sent));
    CHECK(send(fd, sent, sizeof(sent), MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(sent)));
    CHECK(recv(fd, got, sizeof(got), MSG_WAITALL) == static_cast<ssize_t>(sizeof(got)));
    CHECK(memcmp(sent, got, sizeof(sent)) == 0);
}

/* Makes more connections than there are workers, a few at a time. */
static void *run_clients(void *arg)
{
    const struct sockaddr *addr = static_cast<const struct sockaddr *>(arg);
    for (int first = 0; first < CT_CLIENTS; first += CT_WORKERS / 2) {
        int fds[CT_WORKERS / 2];
        for (int i = 0; i < CT_WORKERS / 2; i++) {
            fds[i] = socket(AF_INET, SOCK_STREAM, 0);
            CHECK(connect(fds[i], addr, sizeof(struct sockaddr_in)) == 0);
        }
        for (int round = 0; round < CT_ROUNDS; round++) {
            for (int i = 0; i < CT_WORKERS / 2; i++) {
                exchange(fds[i], first + i, round);
            }
        }
        for (int i = 0; i < CT_WORKERS / 2; i++) {
            close(fds[i]);
        }
    }
    __atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
    return NULL;
}

static int end_when_over(void *)
{
    return __atomic_load_n(&is_over, __ATOMIC_ACQUIRE) && ct_served == CT_CLIENTS ? -1 : 0;
}

int main()
{
    struct sockaddr_in addr;
    pthread_t clients;
    listener = listen_at(&addr);
    stCoRoutineAttr_t attr;
    attr.share_stack = co_alloc_sharestack(3, 128 * 1024);
    attr.stack_size = 0;
    std::vector<worker_t> workers(CT_WORKERS);
    for (size_t i = 0; i < workers.size(); i++) {
        workers[i].fd = -1;
        CHECK(co_create(&workers[i].co, &attr, serve, &workers[i]) == 0);
        co_resume(workers[i].co);
    }
    stCoRoutine_t *acceptor;
    CHECK(co_create(&acceptor, NULL, accept_all, NULL) == 0);
    co_resume(acceptor);
    CHECK(pthread_create(&clients, NULL, run_clients, &addr) == 0);
    co_eventloop(co_get_epoll_ct(), end_when_over, NULL);
    pthread_join(clients, NULL);
    for (size_t i = 0; i < workers.size(); i++) {
        co_release(workers[i].co);
    }
    co_release(acceptor); /* it waits */
    return ct_failed != 0;
}
