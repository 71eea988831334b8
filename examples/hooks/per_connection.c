// per_connection.c shows a server with a thread per connection, and what makes it tasks: two lines.
// SPDX-License-Identifier: Apache-2.0
/*
 * Without -DTHREADS, aco_go() starts what pthread_create() did, and main() runs as a task. All else
 * is the same: blocking calls, a mutex of pthreads, streams' formatting, thread functions.
 */
#ifndef THREADS
#include "aco_runtime.h"
#endif

#include <err.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char USAGE[] =
    "usage: per_connection [-h] PORT\n"
    "  A client sends words, each a line, and gets how often all clients\n"
    "  have sent each, a millisecond later.\n";

enum { WORD_SZ = 32, CT_WORDS = 1024 };

static struct {
    char word[WORD_SZ];
    int ct;
} words[CT_WORDS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* The lock is held over a wait: what stands for work with a disk or a database. */
static int count(const char *word)
{
    struct timespec work = {0, 1000000};
    int i = 0, ct = 0;
    pthread_mutex_lock(&mutex);
    while (i < CT_WORDS && words[i].ct > 0 && strcmp(words[i].word, word) != 0) {
        i++;
    }
    if (i < CT_WORDS) {
        memcpy(words[i].word, word, WORD_SZ);
        ct = words[i].ct;
        nanosleep(&work, NULL);
        words[i].ct = ++ct;
    }
    pthread_mutex_unlock(&mutex);
    return ct;
}

static int answer(int fd, const char *word)
{
    char text[WORD_SZ * 2];
    int sz = snprintf(text, sizeof(text), "%s %d\n", word, count(word));
    return send(fd, text, (size_t)sz, MSG_NOSIGNAL) == sz;
}

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg, sz = 0;
    char word[WORD_SZ] = "";
    while (read(fd, &word[sz], 1) == 1) {
        if (word[sz] != '\n' && ++sz < WORD_SZ) {
            continue;
        }
        word[sz < WORD_SZ ? sz : WORD_SZ - 1] = '\0';
        if (!answer(fd, word)) {
            break;
        }
        memset(word, 0, WORD_SZ);
        sz = 0;
    }
    close(fd);
    return NULL;
}

static void start(int fd)
{
    void *arg = (void *)(intptr_t)fd;
#ifdef THREADS
    pthread_t thread;
    if (pthread_create(&thread, NULL, serve, arg) != 0 || pthread_detach(thread) != 0) {
#else
    if (aco_go(serve, arg) != 0) {
#endif
        warnx("a client has to leave");
        close(fd);
    }
}

static void *listen_at(void *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi((const char *)port))};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1, fd;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(listener, SOMAXCONN) != 0) {
        err(1, "port %s", (const char *)port);
    }
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        start(fd);
    }
    err(1, "accept");
}

int main(int argc, char **argv)
{
    if (argc != 2 || argv[1][0] == '-') {
        int is_help = argc == 2 && strcmp(argv[1], "-h") == 0;
        fputs(USAGE, is_help ? stdout : stderr);
        return is_help ? 0 : 2;
    }
#ifdef THREADS
    listen_at(argv[1]);
#else
    aco_run(NULL, listen_at, argv[1], NULL);
#endif
}
