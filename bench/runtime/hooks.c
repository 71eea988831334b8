// SPDX-License-Identifier: Apache-2.0
/*
 * An echo server of blocking calls, as one would write it for threads, in tasks by hooks.
 *
 * kind: stackful
 * peer: aco hooks, recv and send
 * build: $CC -O2 -pthread $INCLUDE -Ibench/peers -DACO_CONFIG_SHARE_FPU_MXCSR_ENV $SRC \
 *        $ACO_HOOKS -o $OUT
 * peer: aco hooks, read and write
 * build: $CC -O2 -pthread $INCLUDE -Ibench/peers -DREAD_AND_WRITE \
 *        -DACO_CONFIG_SHARE_FPU_MXCSR_ENV $SRC $ACO_HOOKS -o $OUT
 */
#define _GNU_SOURCE
#include "aco_runtime.h"
#include "echo.h"

#include <unistd.h>

#ifdef READ_AND_WRITE
#define RECEIVE(fd, buffer, sz) read(fd, buffer, sz)
#define SEND(fd, buffer, sz) write(fd, buffer, sz)
#else
#define RECEIVE(fd, buffer, sz) recv(fd, buffer, sz, 0)
#define SEND(fd, buffer, sz) send(fd, buffer, sz, MSG_NOSIGNAL)
#endif

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char buffer[BUFFER_SZ];
    ssize_t sz;
    set_nodelay(fd);
    while ((sz = RECEIVE(fd, buffer, BUFFER_SZ)) > 0 && SEND(fd, buffer, (size_t)sz) == sz) {
        continue;
    }
    close(fd);
    return NULL;
}

static void *accept_all(void *arg)
{
    int port = 0, listener = echo_listen(&port, 0), fd;
    signal(SIGPIPE, SIG_IGN);
    tell_port(port);
    while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        check(aco_go(serve, (void *)(intptr_t)fd) == 0, "no task");
    }
    return arg;
}

int main(int argc, char **argv)
{
    echo_threads(argc, argv, 1);
    aco_run(NULL, accept_all, NULL, NULL);
    die("accept4 fails");
}
