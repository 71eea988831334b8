// libuv.c shows tasks in the loop of libuv: timers and descriptors of both, in one thread.
// SPDX-License-Identifier: Apache-2.0
// libraries: libuv
/*
 * The standard input, and the ticks of a timer, go to all clients. libuv has the input, the timer
 * and the signals; a task lets clients in, and each of them has one. glib.c is the same in glib.
 *
 *   - aco_loop_fd() is watched level-triggered, as uv_poll_t does: aco_run_once(0) runs a short
 *     turn, and what is left keeps the descriptor readable. A watcher by EPOLLET would have to call
 *     it until poll() finds the descriptor readable no longer.
 *   - Whenever it is readable, aco_run_once(0) is called: without that, the loop would spin.
 *   - Callbacks are no tasks. A call that waits blocks the loop in them, with all tasks; so they
 *     send by aco_chan_try_send(), and start, cancel and unpark tasks. Tasks may call libuv, as
 *     there is one thread, but not uv_run().
 *   - An active handle keeps uv_run() going. That of the tasks is closed when there are no more, as
 *     a thread must not end before its tasks.
 */
#include "aco_runtime.h"

#include <err.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

static const char USAGE[] =
    "usage: libuv [-t SECONDS] [-s SECONDS] [-h] ADDRESS\n"
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

/* ==== The loop of libuv ====================================================================== */

static union {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_pipe_t pipe;
    uv_tty_t tty;
} input;
static uv_poll_t tasks;
static uv_timer_t timer;
static uv_signal_t signals[2];

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
    if (uv_is_closing(&input.handle)) {
        return;
    }
    uv_close(&input.handle, NULL);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_close((uv_handle_t *)&signals[0], NULL);
    uv_close((uv_handle_t *)&signals[1], NULL);
    aco_task_cancel(acceptor);
    for (client_t *client = clients; client != NULL; client = client->next) {
        aco_chan_close(client->pieces); /* what is in it is still written */
    }
}

static void on_signal(uv_signal_t *handle, int number)
{
    (void)handle;
    (void)number;
    finish();
}

static void on_tick(uv_timer_t *handle)
{
    (void)handle;
    static int ct;
    char text[32];
    int sz = snprintf(text, sizeof(text), "tick %d\n", ++ct);
    announce(text, (size_t)sz);
}

static void on_buffer(uv_handle_t *handle, size_t sz, uv_buf_t *buffer)
{
    static char text[sizeof(((piece_t *)NULL)->text)];
    (void)handle;
    (void)sz;
    *buffer = uv_buf_init(text, sizeof(text));
}

static void on_input(uv_stream_t *stream, ssize_t sz, const uv_buf_t *buffer)
{
    (void)stream;
    if (sz < 0) {
        finish();
    } else {
        announce(buffer->base, (size_t)sz);
    }
}

static void on_tasks(uv_poll_t *handle, int status, int events)
{
    (void)status;
    (void)events;
    if (aco_run_once(0) == 0) {
        uv_close((uv_handle_t *)handle, NULL);
    }
}

/* ==== The program ============================================================================ */

static void check(int error)
{
    if (error < 0) {
        errx(1, "%s", uv_strerror(error));
    }
}

static void open_input(uv_loop_t *loop)
{
    uv_handle_type type = uv_guess_handle(STDIN_FILENO);
    if (type == UV_TTY) {
        check(uv_tty_init(loop, &input.tty, STDIN_FILENO, 0));
    } else if (type == UV_NAMED_PIPE) {
        check(uv_pipe_init(loop, &input.pipe, 0));
        check(uv_pipe_open(&input.pipe, STDIN_FILENO));
    } else {
        errx(1, "the input is neither a pipe nor a terminal");
    }
    check(uv_read_start(&input.stream, on_buffer, on_input));
}

static void open_others(uv_loop_t *loop)
{
    uint64_t ms = (uint64_t)(tick_pause * 1000);
    check(uv_timer_init(loop, &timer));
    check(uv_timer_start(&timer, on_tick, ms, ms));
    for (int i = 0; i < 2; i++) {
        check(uv_signal_init(loop, &signals[i]));
        check(uv_signal_start(&signals[i], on_signal, i == 0 ? SIGINT : SIGTERM));
    }
    check(uv_poll_init(loop, &tasks, aco_loop_fd()));
    check(uv_poll_start(&tasks, UV_READABLE, on_tasks));
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
    uv_loop_t *loop = uv_default_loop();
    signal(SIGPIPE, SIG_IGN); /* of clients that have left */
    open_input(loop);
    open_others(loop);
    int listener = aco_listen("tcp", argv[optind]);
    acceptor = aco_spawn(accept_all, &listener);
    if (listener < 0 || acceptor == NULL) {
        err(1, "%s", argv[optind]);
    }
    check(uv_run(loop, UV_RUN_DEFAULT));
    check(uv_loop_close(loop));
    return 0;
}
