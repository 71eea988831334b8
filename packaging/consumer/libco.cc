// SPDX-License-Identifier: Apache-2.0
/*
 * A program that was written for libco: a coroutine reads from a pipe what another one writes to it
 * later, and so works only with the hooks.
 */
#include "co_routine.h"

#include <stdio.h>
#include <unistd.h>

static int fds[2];
static int ct_read;

static void *read_byte(void *)
{
    char byte = 0;
    co_enable_hook_sys();
    if (read(fds[0], &byte, 1) == 1 && byte == 'x') {
        ct_read++;
    }
    return NULL;
}

static void *write_byte(void *)
{
    co_enable_hook_sys();
    poll(NULL, 0, 1);
    return write(fds[1], "x", 1) == 1 ? fds : NULL;
}

static int end_when_read(void *)
{
    return ct_read == 1 ? -1 : 0;
}

int main()
{
    stCoRoutine_t *reader, *writer;
    if (pipe(fds) != 0 || co_create(&reader, NULL, read_byte, NULL) != 0 ||
        co_create(&writer, NULL, write_byte, NULL) != 0) {
        return 1;
    }
    co_resume(reader);
    co_resume(writer);
    co_eventloop(co_get_epoll_ct(), end_when_read, NULL);
    co_release(reader);
    co_release(writer);
    puts("programs of libco work");
    return 0;
}
