// embed.c shows tasks in a program that has a main loop of its own, around poll().
// SPDX-License-Identifier: Apache-2.0
/*
 * The loop reads commands; "20 tea" starts a task that says "tea" in 20 ms. The program ends when
 * there are no more commands, and all has been said.
 */
#include "aco_runtime.h"

#include <err.h>
#include <stdlib.h>
#include <string.h>
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

int main(int argc, char **argv)
{
    int option = getopt(argc, argv, "h");
    if (option != -1 || argc != 1) {
        fputs(USAGE, option == 'h' ? stdout : stderr);
        return option == 'h' ? 0 : 2;
    }
    struct pollfd fds[] = {{.fd = aco_loop_fd(), .events = POLLIN},
                           {.fd = STDIN_FILENO, .events = POLLIN}};
    if (fds[0].fd < 0) {
        err(1, "aco_loop_fd");
    }
    int has_tasks = 0;
    while (has_tasks || fds[1].fd >= 0) {
        if (poll(fds, 2, -1) < 0) {
            err(1, "poll");
        }
        if (fds[1].revents != 0 && !read_commands()) {
            fds[1].fd = -1;
        }
        has_tasks = aco_run_once(0);
    }
    return 0;
}
