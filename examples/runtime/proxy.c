// proxy.c shows a TCP proxy with timeouts, half-closed connections and a graceful end.
// SPDX-License-Identifier: Apache-2.0
/*
 * Each client is a task with a group of two, one for each direction. Where a direction ends, the
 * end is passed on, and the other one goes on; where it fails, both end.
 *
 * At SIGTERM or SIGINT, the proxy stops listening, and waits for the clients to end; those that
 * are left after some seconds are cancelled.
 */
#include "aco_runtime.h"

#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
#define BUFFER_SZ 16384 /* bytes */

static const char USAGE[] =
    "usage: proxy [-c SECONDS] [-i SECONDS] [-e SECONDS] [-h] ADDRESS TARGET,\n"
    "       say proxy :8080 localhost:80\n"
    "  -c SECONDS  that connecting to the target may take (5)\n"
    "  -i SECONDS  that a client and its target may both be silent (300)\n"
    "  -e SECONDS  that clients have to end after SIGTERM (10)\n"
    "  -h          this text\n";

static int64_t connect_limit = 5 * SECOND, idle_limit = 300 * SECOND, end_limit = 10 * SECOND;
static const char *address, *target;
static aco_group_t *clients;
static int listener;

/* ==== A client =============================================================================== */

typedef struct {
    aco_group_t *directions;
    int client, server;
    int64_t active_at; /* when a byte passed in either direction */
} session_t;

/* Reads, and waits for that until both directions have been silent for too long. */
static ssize_t read_some(const session_t *session, int fd, char *buffer)
{
    ssize_t sz = -1;
    int64_t left;
    errno = ETIMEDOUT;
    while (sz < 0 && errno == ETIMEDOUT &&
           (left = session->active_at + idle_limit - aco_now()) > 0) {
        aco_within(left)
        {
            sz = aco_read(fd, buffer, BUFFER_SZ);
        }
    }
    return sz;
}

static int write_whole(int fd, const char *buffer, size_t sz)
{
    aco_within(idle_limit)
    {
        return aco_write_all(fd, buffer, sz) == (ssize_t)sz;
    }
    return 0;
}

static void pass(session_t *session, int from, int to)
{
    char buffer[BUFFER_SZ];
    ssize_t sz;
    while ((sz = read_some(session, from, buffer)) > 0 && write_whole(to, buffer, (size_t)sz)) {
        session->active_at = aco_now();
    }
    if (sz != 0 || aco_shutdown(to, SHUT_WR) != 0) {
        aco_group_cancel(session->directions);
    }
}

static void *pass_to_server(void *arg)
{
    session_t *session = (session_t *)arg;
    pass(session, session->client, session->server);
    return NULL;
}

static void *pass_to_client(void *arg)
{
    session_t *session = (session_t *)arg;
    pass(session, session->server, session->client);
    return NULL;
}

static void *serve(void *arg)
{
    session_t session = {.client = (int)(intptr_t)arg, .server = -1};
    aco_within(connect_limit)
    {
        session.server = aco_dial("tcp", target);
    }
    session.active_at = aco_now();
    session.directions = session.server < 0 ? NULL : aco_group_new();
    if (session.directions != NULL) {
        if (aco_group_go(session.directions, pass_to_server, &session) != 0 ||
            aco_group_go(session.directions, pass_to_client, &session) != 0) {
            aco_group_cancel(session.directions);
        }
        aco_group_join(session.directions);
    } else {
        warn("%s", target);
    }
    aco_close(session.server);
    aco_close(session.client);
    return NULL;
}

/* ==== The server ============================================================================= */

/* A server lives on when it is short of descriptors or memory: clients may leave. */
static void *accept_all(void *arg)
{
    for (;;) {
        int fd = aco_accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0 && aco_group_go(clients, serve, (void *)(intptr_t)fd) == 0) {
            continue;
        }
        if (errno == ECANCELED) {
            return arg;
        }
        warn("a client has to wait");
        aco_close(fd);
        aco_sleep(SECOND / 10);
    }
}

static void *run(void *arg)
{
    const sigset_t *signals = (const sigset_t *)arg;
    aco_group_t *listening = aco_group_new();
    clients = aco_group_new();
    listener = aco_listen("tcp", address);
    if (listener < 0 || listening == NULL || clients == NULL ||
        aco_group_go(listening, accept_all, NULL) != 0) {
        err(1, "%s", address);
    }
    aco_wait_signal(signals, NULL);
    pthread_sigmask(SIG_UNBLOCK, signals, NULL); /* a second one ends the process at once */
    aco_group_cancel(listening);
    aco_group_join(listening);
    aco_close(listener);
    aco_within(end_limit)
    {
        if (aco_group_join(clients) != 0) {
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
    while ((option = getopt(argc, argv, "c:i:e:h")) != -1) {
        if (option == 'c') {
            connect_limit = seconds(optarg);
        } else if (option == 'i') {
            idle_limit = seconds(optarg);
        } else if (option == 'e') {
            end_limit = seconds(optarg);
        } else {
            return usage(option == 'h' ? 0 : 2);
        }
    }
    if (optind != argc - 2) {
        return usage(2);
    }
    address = argv[optind];
    target = argv[optind + 1];
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before there are threads */
    signal(SIGPIPE, SIG_IGN);
    if (aco_run(NULL, run, &signals, NULL) != 0) {
        err(1, "aco_run");
    }
    return 0;
}
