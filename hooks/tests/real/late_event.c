// SPDX-License-Identifier: Apache-2.0
/* libevent: a loop that waits for a byte of a pipe. */
#include "late.h"

#include <event2/event.h>
#include <unistd.h>

static int fds[2];

static void read_byte(evutil_socket_t fd, short what, void *ct)
{
    char byte;
    (void)what;
    *(int *)ct += (int)read(fd, &byte, 1);
}

static void begin(void)
{
    if (pipe(fds) != 0) {
        perror("pipe");
    }
}

static void release(void)
{
    if (write(fds[1], "x", 1) != 1) {
        perror("write");
    }
}

static void wait(char *text, size_t sz)
{
    int ct = 0;
    struct event_base *base = event_base_new();
    struct event *event = event_new(base, fds[0], EV_READ, read_byte, &ct);
    event_add(event, NULL);
    int result = event_base_dispatch(base);
    snprintf(text, sz, "dispatch %d, %d bytes", result, ct);
    event_free(event);
    event_base_free(base);
}

static int works(void)
{
    char text[100];
    release();
    wait(text, sizeof(text));
    return text[9] == '1' || text[9] == '0';
}

const late_t late = {begin, wait, release, works};
