// SPDX-License-Identifier: Apache-2.0
/* Reads memory that may be unmapped: a system call fails where a load would fault. */
#include "base/self.h"

#include <errno.h>
#include <sys/syscall.h>

#define CHUNK_SZ ((size_t)4096)

/* Used where the system call below is missing or forbidden: write() fails as that does. */
static size_t read_by_pipe(char *to, const char *from, size_t sz)
{
    size_t done = 0;
    int fds[2];
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) {
        return 0;
    }
    while (done < sz) {
        size_t room = CHUNK_SZ - ((uintptr_t)(from + done) & (CHUNK_SZ - 1));
        ssize_t ct = aco_i_libc.write(fds[1], from + done, room < sz - done ? room : sz - done);
        if (ct <= 0 || aco_i_libc.read(fds[0], to + done, (size_t)ct) != ct) {
            break;
        }
        done += (size_t)ct;
    }
    aco_i_libc.close(fds[0]);
    aco_i_libc.close(fds[1]);
    return done;
}

size_t aco_i_read_memory(void *to, const void *from, size_t sz)
{
    KEEP_ERRNO();
#ifdef SYS_process_vm_readv
    struct iovec local = {to, sz}, remote = {(void *)(uintptr_t)from, sz};
    long ct = syscall(SYS_process_vm_readv, (long)getpid(), &local, 1L, &remote, 1L, 0L);
    if (ct >= 0 || errno == EFAULT) {
        return ct < 0 ? 0 : (size_t)ct;
    }
#endif
    return read_by_pipe((char *)to, (const char *)from, sz);
}
