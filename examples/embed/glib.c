// glib.c shows tasks in the main loop of glib: timers and descriptors of both, in one thread.
// SPDX-License-Identifier: Apache-2.0
// libraries: glib-2.0
/*
 * The standard input, and the ticks of a timer, go to all clients. glib has the input, the timer
 * and the signals; a task lets clients in, and each of them has one. libuv.c is the same in libuv.
 *
 *   - aco_loop_fd() is watched level-triggered, as g_unix_fd_add() does: aco_run_once(0) runs a
 *     short turn, and what is left keeps the descriptor readable.
 *   - Whenever it is readable, aco_run_once(0) is called: without that, the loop would spin. Tasks
 *     that are always ready delay sources of lower priority; give this source a lower one yourself
 *     where it must not delay the drawing of windows, say.
 *   - Callbacks are no tasks. A call that waits blocks the loop in them, with all tasks; so they
 *     send by aco_chan_try_send(), and start, cancel and unpark tasks. Tasks may call glib, as
 *     there is one thread, but not g_main_loop_run() or g_main_context_iteration().
 *   - The main loop ends when there are no more tasks, as a thread must not end before them.
 */
#include "aco_runtime.h"

#include <err.h>
#include <glib-unix.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char USAGE[] =
    "usage: glib [-t SECONDS] [-s SECONDS] [-h] ADDRESS\n"
    "  -t SECONDS  between ticks (1)\n"
    "  -s SECONDS  for which a client may stay (60)\n"
    "  -h          this text\n"
    "  ADDRESS is as localhost:7777. The end of the input, SIGINT or SIGTERM ends the program.\n";

#define SECOND INT64_C(1000000000)
#define PAUSE (SECOND / 10) /* after a client could not be let in */
#define CT_PIECES 100       /* that may wait for a client */

typedef struct {
    size_t sz;
    char text[256];
} piece_t;

typedef struct client_s {
    int fd;
    aco_chan_t *pieces;
    struct client_s *next;
} client_t;

static client_t *clients;
static aco_task_t *acceptor;
static double tick_pause = 1, stay = 60; /* seconds */

/* ==== Tasks ================================================================================== */

static void remove_client(client_t *client)
{
    client_t **link = &clients;
    while (*link != client) {
        link = &(*link)->next;
    }
    *link = client->next;
    aco_chan_free(client->pieces);
    aco_close(client->fd);
    free(client);
}

/* Writes to a client until it has left or stayed long enough, or its channel is closed. */
static void *serve(void *arg)
{
    client_t *client = (client_t *)arg;
    piece_t piece;
    aco_within((int64_t)(stay * 1e9))
    {
        while (aco_chan_recv(client->pieces, &piece) == 1 &&
               aco_write_all(client->fd, piece.text, piece.sz) == (ssize_t)piece.sz) {
        }
    }
    remove_client(client);
    return NULL;
}

static int add_client(int fd)
{
    client_t *client = (client_t *)malloc(sizeof(*client));
    aco_chan_t *pieces = aco_chan_new(sizeof(piece_t), CT_PIECES);
    if (client == NULL || pieces == NULL || aco_go(serve, client) != 0) {
        free(client);
        if (pieces != NULL) {
            aco_chan_free(pieces);
        }
        return 0;
    }
    *client = (client_t){fd, pieces, clients};
    clients = client;
    return 1;
}

/* Lets clients in until it is cancelled. */
static void *accept_all(void *arg)
{
    int listener = *(int *)arg, is_open = 1;
    while (is_open) {
        int fd = aco_accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0 && !add_client(fd)) {
            aco_close(fd);
            fd = -1;
        }
        is_open = fd >= 0 || aco_sleep(PAUSE) == 0;
    }
    aco_close(listener);
    return NULL;
}

/* ==== The main loop of glib ================================================================== */

static GMainLoop *loop;
static guint sources[4]; /* of the input, the timer and the signals */

/* Passes text on to all clients. One that is too slow for it is left. */
static void announce(const char *text, size_t sz)
{
    piece_t piece = {sz, ""};
    memcpy(piece.text, text, sz);
    for (client_t *client = clients; client != NULL; client = client->next) {
        if (aco_chan_try_send(client->pieces, &piece) != 0) {
            aco_chan_close(client->pieces);
        }
    }
}

/* Ends all but the tasks, which end by themselves then. */
static void finish(void)
{
    for (int i = 0; i < 4; i++) {
        g_source_remove(sources[i]);
    }
    aco_task_cancel(acceptor);
    for (client_t *client = clients; client != NULL; client = client->next) {
        aco_chan_close(client->pieces); /* what is in it is still written */
    }
}

static gboolean on_signal(gpointer arg)
{
    (void)arg;
    finish();
    return G_SOURCE_CONTINUE;
}

static gboolean on_tick(gpointer arg)
{
    static int ct;
    char text[32];
    int sz = snprintf(text, sizeof(text), "tick %d\n", ++ct);
    announce(text, (size_t)sz);
    (void)arg;
    return G_SOURCE_CONTINUE;
}

static gboolean on_input(gint fd, GIOCondition condition, gpointer arg)
{
    char text[sizeof(((piece_t *)NULL)->text)];
    ssize_t sz = read(fd, text, sizeof(text));
    (void)condition;
    (void)arg;
    if (sz > 0) {
        announce(text, (size_t)sz);
    } else {
        finish();
    }
    return G_SOURCE_CONTINUE;
}

static gboolean on_tasks(gint fd, GIOCondition condition, gpointer arg)
{
    (void)fd;
    (void)condition;
    (void)arg;
    if (aco_run_once(0) == 0) {
        g_main_loop_quit(loop);
    }
    return G_SOURCE_CONTINUE;
}

int main(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "t:s:h")) != -1) {
        if (option == 't') {
            tick_pause = atof(optarg);
        } else if (option == 's') {
            stay = atof(optarg);
        } else {
            break;
        }
    }
    if (option != -1 || optind != argc - 1) {
        fputs(USAGE, option == 'h' ? stdout : stderr);
        return option == 'h' ? 0 : 2;
    }
    signal(SIGPIPE, SIG_IGN); /* of clients that have left */
    loop = g_main_loop_new(NULL, FALSE);
    sources[0] = g_unix_fd_add(STDIN_FILENO, G_IO_IN | G_IO_HUP, on_input, NULL);
    sources[1] = g_timeout_add((guint)(tick_pause * 1000), on_tick, NULL);
    sources[2] = g_unix_signal_add(SIGINT, on_signal, NULL);
    sources[3] = g_unix_signal_add(SIGTERM, on_signal, NULL);
    guint tasks = g_unix_fd_add(aco_loop_fd(), G_IO_IN, on_tasks, NULL);
    int listener = aco_listen("tcp", argv[optind]);
    acceptor = aco_spawn(accept_all, &listener);
    if (listener < 0 || acceptor == NULL) {
        err(1, "%s", argv[optind]);
    }
    g_main_loop_run(loop);
    g_source_remove(tasks);
    g_main_loop_unref(loop);
    return 0;
}
