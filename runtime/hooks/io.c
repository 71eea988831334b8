// SPDX-License-Identifier: Apache-2.0
/* Input and output. */
#include "internal.h"

HOOKS_OF(io);

HOOK(ssize_t, read, (int fd, void *buf, size_t sz), (fd, buf, sz), syscall(SYS_read, fd, buf, sz))
{
    return is_in_task() ? aco_read(fd, buf, sz) : real_read(fd, buf, sz);
}

HOOK(ssize_t, write, (int fd, const void *buf, size_t sz), (fd, buf, sz),
     syscall(SYS_write, fd, buf, sz))
{
    return is_in_task() ? aco_write(fd, buf, sz) : real_write(fd, buf, sz);
}
