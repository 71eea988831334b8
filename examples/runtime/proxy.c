// proxy.c shows a TCP proxy in 40 lines, with a task for each direction.
// SPDX-License-Identifier: Apache-2.0
#include "aco_runtime.h"

#include <err.h>

static const char *target;

/* Passes on what comes from the first descriptor to the second one, and then its end. */
static void *pass(void *fds)
{
    char text[16384];
    int from = ((int *)fds)[0], to = ((int *)fds)[1];
    for (ssize_t sz; (sz = aco_read(from, text, sizeof(text))) > 0 &&
                     aco_send(to, text, (size_t)sz, MSG_NOSIGNAL) == sz;) {
    }
    return (void *)(intptr_t)aco_shutdown(to, SHUT_WR);
}

static void *serve(void *arg)
{
    int client = (int)(intptr_t)arg, server = aco_dial("tcp", target);
    aco_task_t *task = server < 0 ? NULL : aco_spawn(pass, (int[]){client, server});
    if (task != NULL) {
        pass((int[]){server, client});
        aco_join(task, NULL);
    }
    return (void *)(intptr_t)(aco_close(server) | aco_close(client));
}

static void *accept_all(void *address)
{
    int listener = aco_listen("tcp", (const char *)address);
    while (listener >= 0) {
        int fd = aco_accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 || aco_go(serve, (void *)(intptr_t)fd) != 0) {
            warn("a client has to wait");
            aco_sleep(100000000 + aco_close(fd));
        }
    }
    err(1, "%s", (const char *)address);
}

int main(int argc, char **argv)
{
    target = argv[argc - 1];
    return argc == 3 ? aco_run(NULL, accept_all, argv[1], NULL)
                     : puts("usage: proxy ADDRESS TARGET, say :8080 localhost:80") < 0 || argc != 2;
}
