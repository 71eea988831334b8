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
    ssize_t sz;
    while ((sz = aco_read(from, text, sizeof(text))) > 0 &&
           aco_send(to, text, (size_t)sz, MSG_NOSIGNAL) == sz) {
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
    aco_close(server);
    return (void *)(intptr_t)aco_close(client);
}

static void *accept_all(void *address)
{
    int listener = aco_listen("tcp", (const char *)address);
    while (listener >= 0) {
        int fd = aco_accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 || aco_go(serve, (void *)(intptr_t)fd) != 0) {
            warn("a client has to wait");
            aco_close(fd);
            aco_sleep(100000000);
        }
    }
    err(1, "%s", (const char *)address);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        return puts("usage: proxy ADDRESS TARGET, such as :8080 localhost:80") < 0 || argc != 2;
    }
    target = argv[2];
    return aco_run(NULL, accept_all, argv[1], NULL);
}
