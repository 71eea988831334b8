// echo_server.c shows a server on several threads, with stacks of three kinds to choose from.
// SPDX-License-Identifier: Apache-2.0
/*
 * At SIGTERM or SIGINT, the server stops listening, and waits for the clients to end; those that
 * are left after some seconds are cancelled.
 */
#include "aco_runtime.h"

#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
#define BUFFER_SZ 1024u      /* bytes */
#define SMALL_STACK_SZ 16384 /* bytes; enough for serve() and what it calls */

static const char USAGE[] =
    "usage: echo_server [-s KIND] [-t THREADS] [-i SECONDS] [-e SECONDS] [-h] ADDRESS, say :7000\n"
    "  -s KIND     stacks of tasks: pool, own for small ones, or share for one that all copy to\n"
    "  -t THREADS  each with a listener (1)\n"
    "  -i SECONDS  that a client may be silent, or not read (300)\n"
    "  -e SECONDS  that clients have to end after SIGTERM (10)\n"
    "  -h          this text\n";

static aco_task_options_t options = {.name = "connection"};
static int ct_threads = 1;
static int64_t idle_limit = 300 * SECOND, end_limit = 10 * SECOND;
static const char *address;

/* Sends back what comes next. Whether the client goes on. */
static int echo(int fd, char *buffer)
{
    ssize_t sz = -1;
    aco_within(idle_limit)
    {
        sz = aco_read(fd, buffer, BUFFER_SZ);
    }
    aco_within(idle_limit)
    {
        return sz > 0 && aco_write_all(fd, buffer, (size_t)sz) == sz;
    }
    return 0;
}

/* The buffer is on the heap: on a stack that is shared, it would be copied at each wait. */
static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char *buffer = (char *)malloc(BUFFER_SZ);
    while (buffer != NULL && echo(fd, buffer)) {
    }
    free(buffer);
    aco_close(fd);
    return NULL;
}

/* A server lives on when it is short of descriptors or memory: clients may leave. */
static void *accept_all(void *arg)
{
    int listener = aco_listen("tcp+", address);
    if (listener < 0) {
        err(1, "%s", address);
    }
    for (;;) {
        int fd = aco_accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0 && aco_go_with(&options, serve, (void *)(intptr_t)fd, NULL) == 0) {
            continue;
        }
        if (errno == ECANCELED) {
            break;
        }
        warn("a client has to wait");
        aco_close(fd);
        aco_sleep(SECOND / 10);
    }
    aco_close(listener);
    return arg;
}

static void *run(void *arg)
{
    const sigset_t *signals = (const sigset_t *)arg;
    aco_group_t *listening = aco_group_new();
    options.group = aco_group_new();
    for (int i = 0; i < ct_threads; i++) {
        aco_task_options_t there = {
            .name = "listener", .thread = ACO_THREAD(i), .group = listening};
        if (listening == NULL || options.group == NULL ||
            aco_go_with(&there, accept_all, NULL, NULL) != 0) {
            err(1, "thread %d", i);
        }
    }
    aco_wait_signal(signals, NULL);
    pthread_sigmask(SIG_UNBLOCK, signals, NULL); /* a second one ends the process at once */
    aco_group_cancel(listening);
    aco_group_join(listening);
    aco_within(end_limit)
    {
        if (aco_group_join(options.group) != 0) {
            warnx("clients were cut off");
        }
    }
    return NULL;
}

static int usage(int status)
{
    fputs(USAGE, status == 0 ? stdout : stderr);
    return status;
}

static int64_t seconds(const char *text)
{
    return (int64_t)(atof(text) * (double)SECOND);
}

int main(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "s:t:i:e:h")) != -1) {
        if (option == 't') {
            ct_threads = atoi(optarg);
        } else if (option == 'i') {
            idle_limit = seconds(optarg);
        } else if (option == 'e') {
            end_limit = seconds(optarg);
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
    address = argv[optind];
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before there are threads */
    signal(SIGPIPE, SIG_IGN);
    if (aco_run(&(aco_run_options_t){.ct_threads = ct_threads}, run, &signals, NULL) != 0) {
        err(1, "aco_run");
    }
    return 0;
}
