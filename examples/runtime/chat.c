// chat.c shows a chat server: a broadcast is the room, and slow clients delay no other.
// SPDX-License-Identifier: Apache-2.0
/*
 * Each client is a task, which reads its lines and sends them to the room, and another one, which
 * writes those of the others to it. The room keeps the last lines; a client that is slower than
 * that learns how many it has missed.
 */
#include "aco_runtime.h"

#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
#define NAME_SZ 32   /* bytes, with a NUL */
#define TEXT_SZ 200  /* of a line that a client sends, with its end */
#define LINE_SZ 256  /* of one that it gets: name, verb and text */
#define CT_LINES 256 /* that a client may be behind */

static const char USAGE[] =
    "usage: chat [-h] ADDRESS, such as :7000\n"
    "  Clients send lines, the first one with their name, and get those of the others.\n";

typedef struct {
    uint64_t from; /* the id of the task that reads from a client */
    char text[LINE_SZ];
} line_t;

typedef struct {
    uint64_t id, position; /* in the room */
    int fd;
    char name[NAME_SZ];
    aco_reader_t reader;
} client_t;

static const char *address;
static aco_broadcast_t *room;
static aco_group_t *tasks;
static int listener;

/* ==== A client =============================================================================== */

static void *write_lines(void *arg)
{
    client_t *c = (client_t *)arg;
    line_t line;
    for (;;) {
        uint64_t position = c->position;
        int result = aco_broadcast_recv(room, &c->position, &line);
        if (result < 0 && errno == EOVERFLOW) {
            line.from = 0;
            snprintf(line.text, sizeof(line.text), "%" PRIu64 " lines are missing\n",
                     c->position - position);
        } else if (result != 1) {
            return NULL;
        }
        if (line.from != c->id && aco_write_all(c->fd, line.text, strlen(line.text)) < 0) {
            return NULL;
        }
    }
}

/* The next line, without its end; NULL: none comes, or it is too long. */
static char *take_line(client_t *c)
{
    char *text;
    ssize_t sz = aco_reader_until(&c->reader, "\n", TEXT_SZ, &text);
    if (sz <= 0) {
        return NULL;
    }
    text[sz - 1] = '\0';
    text[strcspn(text, "\r")] = '\0';
    return text;
}

/* Tells the room "NAME, verb, object". */
static void tell(const client_t *c, const char *verb, const char *object)
{
    line_t line = {.from = c->id};
    snprintf(line.text, sizeof(line.text), "%s%s%s\n", c->name, verb, object);
    aco_broadcast_send(room, &line);
}

static void talk(client_t *c)
{
    const char *text;
    aco_group_t *writer = aco_group_new();
    c->position = aco_broadcast_subscribe(room);
    if (writer == NULL || aco_group_go(writer, write_lines, c) != 0) {
        if (errno != ECANCELED) {
            warn("%s can not join", c->name);
        }
    } else {
        tell(c, " joins", "");
        while ((text = take_line(c)) != NULL) {
            tell(c, ": ", text);
            aco_yield(); /* writers must run even if there is always a line to be read */
        }
        tell(c, " leaves", "");
    }
    if (writer != NULL) {
        aco_group_cancel(writer);
        aco_group_join(writer);
    }
}

static void *serve(void *arg)
{
    client_t c = {.id = aco_task_id(aco_self()), .fd = (int)(intptr_t)arg};
    aco_reader_init(&c.reader, c.fd, NULL, TEXT_SZ);
    const char *name = take_line(&c);
    if (name != NULL) {
        snprintf(c.name, sizeof(c.name), "%.*s", NAME_SZ - 1, name);
        talk(&c);
    }
    aco_reader_free(&c.reader);
    aco_close(c.fd);
    return NULL;
}

/* ==== The server ============================================================================= */

static void *accept_all(void *arg)
{
    for (;;) {
        int fd = aco_accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0 && aco_group_go(tasks, serve, (void *)(intptr_t)fd) == 0) {
            continue;
        }
        if (errno == ECANCELED) {
            aco_close(fd);
            return arg;
        }
        warn("a client has to wait");
        aco_close(fd);
        aco_sleep(SECOND / 10);
    }
}

/* At a signal, all tasks are cancelled: clients have nothing that is to be finished. */
static void *run(void *signals)
{
    listener = aco_listen("tcp", address);
    room = aco_broadcast_new(sizeof(line_t), CT_LINES);
    tasks = aco_group_new();
    if (listener < 0 || room == NULL || tasks == NULL ||
        aco_group_go(tasks, accept_all, NULL) != 0) {
        err(1, "%s", address);
    }
    aco_wait_signal((const sigset_t *)signals, NULL);
    aco_group_cancel(tasks);
    aco_group_join(tasks);
    aco_broadcast_free(room);
    aco_close(listener);
    return NULL;
}

int main(int argc, char **argv)
{
    int option = getopt(argc, argv, "h");
    if (option != -1 || argc != 2) {
        fputs(USAGE, option == 'h' ? stdout : stderr);
        return option == 'h' ? 0 : 2;
    }
    address = argv[1];
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
