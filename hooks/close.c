// SPDX-License-Identifier: Apache-2.0
/*
 * Calls that close a descriptor. They end the waits of tasks for it, whichever thread closes it,
 * before the kernel can give its number to another file.
 *
 * A child after vfork() shares the memory of its parent, but not the descriptors: there, each call
 * is libc's.
 */
#include "internal.h"

#include <stdio.h>

HOOKS_OF(close);

/* Whether tasks may wait for a descriptor that the caller closes. */
static int may_be_waited_for(int fd)
{
    return fd >= 0 && aco_i_is_known(fd) && !aco_i_is_in_child();
}

/* ==== Descriptors ============================================================================ */

HOOK(int, close, (int fd), (fd), syscall(SYS_close, fd))
{
    return may_be_waited_for(fd) ? aco_close(fd) : real_close(fd);
}
HOOK_ALIAS(__close, close);

typedef struct {
    int from, to, flags; /* flags < 0: as dup2() */
} copy_t;

static int do_copy(void *arg);

static int copy(int from, int to, int flags)
{
    copy_t c = {from, to, flags};
    int is_valid = from != to && aco_i_libc.fcntl(from, F_GETFD) >= 0;
    return is_valid && may_be_waited_for(to) ? aco_i_close_by(to, do_copy, &c) : do_copy(&c);
}

HOOK(int, dup2, (int from, int to), (from, to),
     from != to ? syscall(SYS_dup3, from, to, 0) : refuse(ENOSYS))
{
    return copy(from, to, -1);
}
HOOK_ALIAS(__dup2, dup2);

HOOK(int, dup3, (int from, int to, int flags), (from, to, flags),
     syscall(SYS_dup3, from, to, flags))
{
    return flags == 0 || flags == O_CLOEXEC ? copy(from, to, flags) : real_dup3(from, to, flags);
}

static int do_copy(void *arg)
{
    const copy_t *c = (const copy_t *)arg;
    return c->flags < 0 ? real_dup2(c->from, c->to) : real_dup3(c->from, c->to, c->flags);
}

/* ==== Streams ================================================================================ */

/* The descriptor of a stream; -1: none that tasks may wait for. */
static int number_of(FILE *stream)
{
    KEEP_ERRNO();
    int fd = stream != NULL ? fileno(stream) : -1;
    return may_be_waited_for(fd) ? fd : -1;
}

static int do_fclose(void *arg);

HOOK(int, fclose, (FILE * stream), (stream), refuse(ENOSYS))
{
    int fd = number_of(stream);
    if (fd < 0) {
        return real_fclose(stream);
    }
    fflush(stream); /* may wait; fclose() reports its failure */
    return aco_i_close_by(fd, do_fclose, stream);
}

static int do_fclose(void *arg)
{
    return real_fclose((FILE *)arg);
}
