// echo_server.c shows a server on several threads, with stacks of three kinds to choose from.
// SPDX-License-Identifier: Apache-2.0
#include "aco_runtime.h"

#include <err.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_SZ 1024u      /* bytes */
#define SMALL_STACK_SZ 16384 /* bytes; enough for serve() and what it calls */

static const char USAGE[] =
    "usage: echo_server [-s KIND] [-t THREADS] [-h] ADDRESS, such as :7000\n"
    "  -s KIND     stacks of tasks: pool, own for small ones, or share for one that all copy to\n"
    "  -t THREADS  each with a listener (1)\n"
    "  -h          this text\n";

static aco_task_options_t options = {.name = "connection"};

/* The buffer is on the heap: on a stack that is shared, it would be copied at each wait. */
static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char *buffer = (char *)malloc(BUFFER_SZ);
    ssize_t sz;
    while (buffer != NULL && (sz = aco_read(fd, buffer, BUFFER_SZ)) > 0 &&
           aco_write_all(fd, buffer, (size_t)sz) == sz) {
    }
    free(buffer);
    aco_close(fd);
    return NULL;
}

/* A server lives on when it is short of descriptors or memory: clients may leave. */
static void *accept_all(void *address)
{
    int listener = aco_listen("tcp+", (const char *)address);
    if (listener < 0) {
        err(1, "%s", (const char *)address);
    }
    for (;;) {
        int fd = aco_accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 || aco_go_with(&options, serve, (void *)(intptr_t)fd, NULL) != 0) {
            warn("a client has to wait");
            aco_close(fd);
            aco_sleep(100000000);
        }
    }
}

static int ct_threads = 1;

static void *start(void *address)
{
    for (int i = 1; i < ct_threads; i++) {
        aco_task_options_t there = {.name = "listener", .thread = ACO_THREAD(i)};
        if (aco_go_with(&there, accept_all, address, NULL) != 0) {
            err(1, "thread %d", i);
        }
    }
    return accept_all(address);
}

static int usage(int status)
{
    fputs(USAGE, status == 0 ? stdout : stderr);
    return status;
}

int main(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "s:t:h")) != -1) {
        if (option == 't') {
            ct_threads = atoi(optarg);
        } else if (option == 's' && strcmp(optarg, "own") == 0) {
            options.stack_sz = SMALL_STACK_SZ;
        } else if (option == 's' && strcmp(optarg, "share") == 0) {
            options.shares_stack = 1;
        } else if (option != 's' || strcmp(optarg, "pool") != 0) {
            return usage(option == 'h' ? 0 : 2);
        }
    }
    if (optind != argc - 1) {
        return usage(2);
    }
    signal(SIGPIPE, SIG_IGN);
    aco_run(&(aco_run_options_t){.ct_threads = ct_threads}, start, argv[optind], NULL);
    err(1, "aco_run");
}
