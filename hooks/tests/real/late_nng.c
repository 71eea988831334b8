// SPDX-License-Identifier: Apache-2.0
/* nng: a message that comes late. */
#include "late.h"

#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>
#include <string.h>

static nng_socket from, to;

static void begin(void)
{
    nng_pair0_open(&from);
    nng_pair0_open(&to);
    nng_listen(to, "inproc://late", NULL, 0);
    nng_dial(from, "inproc://late", NULL, 0);
}

static void wait(char *text, size_t sz)
{
    char buffer[8];
    size_t got = sizeof(buffer);
    int error = nng_recv(to, buffer, &got, 0);
    snprintf(text, sz, "recv %s", nng_strerror(error));
}

static void release(void)
{
    nng_send(from, (void *)"hello", 5, 0);
}

static int works(void)
{
    char buffer[8];
    size_t got = sizeof(buffer);
    return nng_send(from, (void *)"hello", 5, 0) == 0 && nng_recv(to, buffer, &got, 0) == 0 &&
           got == 5 && memcmp(buffer, "hello", 5) == 0;
}

const late_t late = {begin, wait, release, works};
