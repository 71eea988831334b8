// SPDX-License-Identifier: Apache-2.0
/* ZeroMQ: a socket without a sender. */
#include "late.h"

#include <errno.h>
#include <string.h>
#include <zmq.h>

static void *context;

static void begin(void)
{
    context = zmq_ctx_new();
}

static void wait(char *text, size_t sz)
{
    char buffer[8];
    void *socket = zmq_socket(context, ZMQ_PULL);
    int port = zmq_bind(socket, "tcp://127.0.0.1:*"), result = zmq_recv(socket, buffer, 8, 0);
    snprintf(text, sz, "bind %d, recv %d %s", port, result, zmq_strerror(errno));
    zmq_close(socket);
}

static int works(void)
{
    char address[100], buffer[8];
    size_t sz = sizeof(address);
    void *from = zmq_socket(context, ZMQ_PUSH), *to = zmq_socket(context, ZMQ_PULL);
    int is_right = zmq_bind(to, "tcp://127.0.0.1:*") == 0 &&
                   zmq_getsockopt(to, ZMQ_LAST_ENDPOINT, address, &sz) == 0 &&
                   zmq_connect(from, address) == 0 && zmq_send(from, "hello", 5, 0) == 5 &&
                   zmq_recv(to, buffer, 8, 0) == 5 && memcmp(buffer, "hello", 5) == 0;
    zmq_close(from);
    zmq_close(to);
    return is_right;
}

const late_t late = {begin, wait, NULL, works};
