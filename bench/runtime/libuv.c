// SPDX-License-Identifier: Apache-2.0
/*
 * An echo server on libuv. It writes by uv_try_write() first, which needs no request.
 *
 * peer: libuv
 * kind: callbacks
 * needs: libuv1-dev
 * build: $CC -O2 -Ibench/peers $SRC -o $OUT -luv
 */
#include "echo.h"

#include <uv.h>

typedef struct {
    uv_tcp_t tcp;
    char buffer[BUFFER_SZ];
} connection_t;

typedef struct {
    uv_write_t write;
    uv_buf_t rest;
    char buffer[BUFFER_SZ];
} request_t;

static void on_closed(uv_handle_t *handle)
{
    free(handle);
}

static void give_buffer(uv_handle_t *handle, size_t sz, uv_buf_t *buffer)
{
    (void)sz;
    *buffer = uv_buf_init(((connection_t *)handle)->buffer, BUFFER_SZ);
}

static void on_written(uv_write_t *write, int status)
{
    (void)status;
    free(write);
}

static void on_data(uv_stream_t *stream, ssize_t sz, const uv_buf_t *buffer)
{
    if (sz < 0) {
        uv_close((uv_handle_t *)stream, on_closed);
        return;
    }
    uv_buf_t answer = uv_buf_init(buffer->base, (unsigned)sz);
    int written = sz == 0 ? 0 : uv_try_write(stream, &answer, 1);
    written = written < 0 ? 0 : written;
    if (written < sz) {
        request_t *request = (request_t *)get_memory(sizeof(*request));
        memcpy(request->buffer, answer.base + written, (size_t)(sz - written));
        request->rest = uv_buf_init(request->buffer, (unsigned)(sz - written));
        uv_write(&request->write, stream, &request->rest, 1, on_written);
    }
}

static void on_connection(uv_stream_t *listener, int status)
{
    check(status == 0, uv_strerror(status));
    connection_t *connection = (connection_t *)get_memory(sizeof(*connection));
    uv_tcp_init(listener->loop, &connection->tcp);
    check(uv_accept(listener, (uv_stream_t *)connection) == 0, "uv_accept fails");
    uv_tcp_nodelay(&connection->tcp, 1);
    uv_read_start((uv_stream_t *)connection, give_buffer, on_data);
}

int main(int argc, char **argv)
{
    uv_tcp_t listener;
    int port = 0;
    echo_threads(argc, argv, 1);
    int fd = echo_listen(&port, 0);
    uv_tcp_init(uv_default_loop(), &listener);
    check(uv_tcp_open(&listener, fd) == 0 &&
              uv_listen((uv_stream_t *)&listener, BACKLOG, on_connection) == 0,
          "can't listen");
    tell_port(port);
    return uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}
