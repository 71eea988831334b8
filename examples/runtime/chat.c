// chat.c shows a chat server: a task that owns the room, and channels to and from it.
// SPDX-License-Identifier: Apache-2.0
#include "aco_runtime.h"

#include <err.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_SZ 32  /* bytes, with a NUL */
#define TEXT_SZ 200 /* of a line that a client sends */
#define LINE_SZ 256 /* of one that it gets: name, verb and text */
#define BACKLOG 64  /* lines that a client may be behind; it misses those after */

static const char USAGE[] =
    "usage: chat [-h] ADDRESS, such as :7000\n"
    "  Clients send lines, the first one with their name, and get those of the others.\n";

typedef struct client_s {
    struct client_s *next; /* of those in the room */
    aco_chan_t *lines;     /* to be written to it */
    int fd;
    char name[NAME_SZ];
    char text[TEXT_SZ]; /* that was read, and is not yet taken */
    size_t text_sz;
} client_t;

/* What clients tell the room. */
typedef enum { JOINS, SPEAKS, LEAVES } what_t;
typedef struct {
    client_t *from;
    what_t what;
    char line[LINE_SZ];
} event_t;

static aco_chan_t *events;

/* ==== The room =============================================================================== */

static void remove_from(client_t **clients, client_t *gone)
{
    while (*clients != gone) {
        clients = &(*clients)->next;
    }
    *clients = gone->next;
    aco_chan_close(gone->lines);
}

/* Only this task knows who is there, so that needs no lock. It never waits for a slow client. */
static void *keep_room(void *arg)
{
    client_t *clients = NULL;
    event_t e;
    while (aco_chan_recv(events, &e) == 1) {
        if (e.what == LEAVES) {
            remove_from(&clients, e.from);
        }
        for (client_t *c = clients; c != NULL; c = c->next) {
            if (c != e.from) {
                aco_chan_try_send(c->lines, e.line);
            }
        }
        if (e.what == JOINS) {
            e.from->next = clients;
            clients = e.from;
        }
    }
    return arg;
}

/* ==== A client =============================================================================== */

static void *write_lines(void *arg)
{
    const client_t *c = (const client_t *)arg;
    char line[LINE_SZ];
    while (aco_chan_recv(c->lines, line) == 1) {
        aco_send(c->fd, line, strlen(line), MSG_NOSIGNAL);
    }
    return NULL;
}

/* Takes a line, at most `sz` - 1 bytes of it, without its end. Returns 0 if there is none. */
static int take_line(client_t *c, char *line, size_t sz)
{
    char *end;
    while ((end = (char *)memchr(c->text, '\n', c->text_sz)) == NULL) {
        ssize_t got = aco_read(c->fd, c->text + c->text_sz, TEXT_SZ - c->text_sz);
        if (got <= 0) { /* also if the line is too long */
            return 0;
        }
        c->text_sz += (size_t)got;
    }
    snprintf(line, sz, "%.*s", (int)strcspn(c->text, "\r\n"), c->text);
    c->text_sz -= (size_t)(++end - c->text);
    memmove(c->text, end, c->text_sz);
    return 1;
}

/* Tells the room, and with it the others, "NAME, verb, object". */
static void tell(client_t *c, what_t what, const char *verb, const char *object)
{
    event_t e = {.from = c, .what = what};
    snprintf(e.line, sizeof(e.line) - 1, "%s%s%s", c->name, verb, object);
    strcat(e.line, "\n");
    aco_chan_send(events, &e);
}

static void talk(client_t *c)
{
    char text[TEXT_SZ];
    tell(c, JOINS, " joins", "");
    while (take_line(c, text, sizeof(text))) {
        tell(c, SPEAKS, ": ", text);
    }
    tell(c, LEAVES, " leaves", "");
}

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    client_t *c = (client_t *)calloc(1, sizeof(*c));
    aco_chan_t *lines = aco_chan_new(LINE_SZ, BACKLOG);
    if (c != NULL && lines != NULL) {
        *c = (client_t){.fd = fd, .lines = lines};
        aco_task_t *writer = aco_spawn(write_lines, c);
        if (writer != NULL && take_line(c, c->name, sizeof(c->name))) {
            talk(c);
        } else {
            aco_chan_close(lines);
        }
        aco_shutdown(fd, SHUT_RDWR); /* ends a send that waits */
        if (writer != NULL) {
            aco_join(writer, NULL);
        }
    }
    if (lines != NULL) {
        aco_chan_free(lines);
    }
    free(c);
    aco_close(fd);
    return NULL;
}

static void *accept_all(void *address)
{
    int listener = aco_listen("tcp", (const char *)address);
    events = aco_chan_new(sizeof(event_t), 0);
    if (listener < 0 || events == NULL || aco_go(keep_room, NULL) != 0) {
        err(1, "%s", (const char *)address);
    }
    for (;;) {
        int fd = aco_accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 || aco_go(serve, (void *)(intptr_t)fd) != 0) {
            warn("a client has to wait");
            aco_close(fd);
            aco_sleep(100000000);
        }
    }
}

int main(int argc, char **argv)
{
    int option = getopt(argc, argv, "h");
    if (option != -1 || argc != 2) {
        fputs(USAGE, option == 'h' ? stdout : stderr);
        return option == 'h' ? 0 : 2;
    }
    aco_run(NULL, accept_all, argv[1], NULL);
    err(1, "aco_run");
}
