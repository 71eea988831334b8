// SPDX-License-Identifier: Apache-2.0
/* nanomsg: a socket without a sender. */
#include "late.h"

#include <errno.h>
#include <nanomsg/nn.h>
#include <nanomsg/pair.h>
#include <nanomsg/pipeline.h>
#include <string.h>

static void wait(char *text, size_t sz)
{
    char buffer[8];
    int socket = nn_socket(AF_SP, NN_PULL);
    int id = nn_bind(socket, "inproc://late"), result = nn_recv(socket, buffer, 8, 0);
    snprintf(text, sz, "bind %d, recv %d %s", id < 0, result, nn_strerror(errno));
    nn_close(socket);
}

static int works(void)
{
    char buffer[8];
    int from = nn_socket(AF_SP, NN_PAIR), to = nn_socket(AF_SP, NN_PAIR);
    int is_right = nn_bind(to, "inproc://works") >= 0 && nn_connect(from, "inproc://works") >= 0 &&
                   nn_send(from, "hello", 5, 0) == 5 && nn_recv(to, buffer, 8, 0) == 5 &&
                   memcmp(buffer, "hello", 5) == 0;
    return nn_close(from) == 0 && nn_close(to) == 0 && is_right;
}

const late_t late = {NULL, wait, NULL, works};
