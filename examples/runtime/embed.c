// embed.c shows tasks in a program that has a main loop of its own, around epoll.
// SPDX-License-Identifier: Apache-2.0
/*
 * The loop reads commands; "20 tea" starts a task that says "tea" in 20 ms. The program ends when
 * there are no more commands, and all has been said.
 */
#include "aco_runtime.h"

#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static const char USAGE[] = "usage: embed [-h] < COMMANDS, which are lines: MILLISECONDS TEXT\n";

static void *remind(void *arg)
{
    char *text;
    long ms = strtol((const char *)arg, &text, 10);
    aco_sleep(ms * INT64_C(1000000));
    puts(text + strspn(text, " "));
    free(arg);
    return NULL;
}

/* Starts a task for each line that is there. Returns 0 at the end. */
static int read_commands(void)
{
    static char text[4096];
    static size_t sz;
    ssize_t got = read(STDIN_FILENO, text + sz, sizeof(text) - sz);
    char *line = text, *end;
    sz += got > 0 ? (size_t)got : 0;
    while ((end = (char *)memchr(line, '\n', sz)) != NULL) {
        char *command = strndup(line, (size_t)(end - line));
        if (command == NULL || aco_go(remind, command) != 0) {
            err(1, "a command");
        }
        sz -= (size_t)(end + 1 - line);
        line = end + 1;
    }
    memmove(text, line, sz);
    return got > 0;
}

/* Returns whether the kernel can tell when there is something to read: not of files. */
static int watch(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0) {
        return 1;
    }
    if (errno != EPERM) {
        err(1, "epoll_ctl");
    }
    return 0;
}

int main(int argc, char **argv)
{
    int option = getopt(argc, argv, "h");
    if (option != -1 || argc != 1) {
        fputs(USAGE, option == 'h' ? stdout : stderr);
        return option == 'h' ? 0 : 2;
    }
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC), loop_fd = aco_loop_fd();
    if (epoll_fd < 0 || loop_fd < 0) {
        err(1, "the loop");
    }
    watch(epoll_fd, loop_fd);
    int has_commands = watch(epoll_fd, STDIN_FILENO);
    while (!has_commands && read_commands()) {
    }
    for (int has_tasks = aco_run_once(0); has_tasks || has_commands; has_tasks = aco_run_once(0)) {
        struct epoll_event event;
        int ct = epoll_wait(epoll_fd, &event, 1, -1);
        if (ct < 0 && errno != EINTR) {
            err(1, "epoll_wait");
        }
        if (ct > 0 && event.data.fd == STDIN_FILENO && !read_commands()) {
            epoll_ctl(epoll_fd, EPOLL_CTL_DEL, STDIN_FILENO, NULL);
            has_commands = 0;
        }
    }
    return 0;
}
