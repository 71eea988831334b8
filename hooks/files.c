// SPDX-License-Identifier: Apache-2.0
/* Files: reading and writing at an offset, syncing, and opening, which may block. */
#include "internal.h"

#include <sys/stat.h>

HOOKS_OF(files);

/* ==== At an offset =========================================================================== */

/* Whether the runtime takes the call. With an invalid offset or count, libc's function fails at
 * once. */
static int is_right(const struct iovec *iov, int ct, int64_t offset)
{
    return is_in_task() && offset >= 0 && ct >= 0 && ct <= IOV_MAX && (ct == 0 || iov != NULL);
}

/* The calls for offsets of a type; `P` follows their names. */
#define HOOKS_AT(offset_t, P)                                                                      \
    HOOK(ssize_t, pread##P, (int fd, void *buf, size_t sz, offset_t offset),                       \
         (fd, buf, sz, offset), refuse(ENOSYS))                                                    \
    {                                                                                              \
        return is_right(NULL, 0, offset) ? ANSWERED(aco_pread(fd, buf, sz, offset))                \
                                         : real_pread##P(fd, buf, sz, offset);                     \
    }                                                                                              \
    HOOK(ssize_t, __pread##P##_chk,                                                                \
         (int fd, void *buf, size_t sz, offset_t offset, size_t buf_sz),                           \
         (fd, buf, sz, offset, buf_sz), refuse(ENOSYS))                                            \
    {                                                                                              \
        return is_right(NULL, 0, offset) && sz <= buf_sz                                           \
                   ? ANSWERED(aco_pread(fd, buf, sz, offset))                                      \
                   : real___pread##P##_chk(fd, buf, sz, offset, buf_sz);                           \
    }                                                                                              \
    HOOK(ssize_t, pwrite##P, (int fd, const void *buf, size_t sz, offset_t offset),                \
         (fd, buf, sz, offset), refuse(ENOSYS))                                                    \
    {                                                                                              \
        return is_right(NULL, 0, offset) ? FINISHED(fd, aco_pwrite(fd, buf, sz, offset))           \
                                         : real_pwrite##P(fd, buf, sz, offset);                    \
    }                                                                                              \
    HOOK(ssize_t, preadv##P, (int fd, const struct iovec *iov, int ct, offset_t offset),           \
         (fd, iov, ct, offset), refuse(ENOSYS))                                                    \
    {                                                                                              \
        return is_right(iov, ct, offset) ? ANSWERED(aco_i_file_read(fd, iov, ct, offset))          \
                                         : real_preadv##P(fd, iov, ct, offset);                    \
    }                                                                                              \
    HOOK(ssize_t, pwritev##P, (int fd, const struct iovec *iov, int ct, offset_t offset),          \
         (fd, iov, ct, offset), refuse(ENOSYS))                                                    \
    {                                                                                              \
        return is_right(iov, ct, offset) ? FINISHED(fd, aco_i_file_write(fd, iov, ct, offset))     \
                                         : real_pwritev##P(fd, iov, ct, offset);                   \
    }                                                                                              \
    _Static_assert(1, "")

HOOKS_AT(long, );
#if __SIZEOF_POINTER__ == 8
HOOK_ALIAS(pread64, pread);
HOOK_ALIAS(__pread64, pread);
HOOK_ALIAS(__pread64_chk, __pread_chk);
HOOK_ALIAS(pwrite64, pwrite);
HOOK_ALIAS(__pwrite64, pwrite);
HOOK_ALIAS(preadv64, preadv);
HOOK_ALIAS(pwritev64, pwritev);
#else
HOOKS_AT(int64_t, 64);
HOOK_ALIAS(__pread64, pread64);
HOOK_ALIAS(__pwrite64, pwrite64);
#endif

/* Flags are for files, so libc gets these calls. */
#define HOOK_V2(name, plain, at, offset_t)                                                         \
    HOOK(ssize_t, name, (int fd, const struct iovec *iov, int ct, offset_t offset, int flags),     \
         (fd, iov, ct, offset, flags), refuse(ENOSYS))                                             \
    {                                                                                              \
        return flags == 0 && offset == -1 ? NESTED(plain(fd, iov, ct))                             \
               : flags == 0 && is_right(iov, ct, offset)                                           \
                   ? NESTED(at(fd, iov, ct, offset))                                               \
                   : real_##name(fd, iov, ct, offset, flags);                                      \
    }                                                                                              \
    _Static_assert(1, "")

HOOK_V2(preadv2, readv, preadv, long);
HOOK_V2(pwritev2, writev, pwritev, long);
#if __SIZEOF_POINTER__ == 8
HOOK_ALIAS(preadv64v2, preadv2);
HOOK_ALIAS(pwritev64v2, pwritev2);
#else
HOOK_V2(preadv64v2, readv, preadv64, int64_t);
HOOK_V2(pwritev64v2, writev, pwritev64, int64_t);
#endif

/* ==== Syncing ================================================================================ */

static void *sync_data(void *arg);

HOOK(int, fsync, (int fd), (fd), syscall(SYS_fsync, fd))
{
    if (!is_in_task()) {
        return real_fsync(fd);
    }
    int result = -1;
    aco_shielded
    {
        result = aco_fsync(fd);
    }
    return result;
}

HOOK(int, fdatasync, (int fd), (fd), syscall(SYS_fdatasync, fd))
{
    void *result = NULL;
    if (!is_in_task()) {
        return real_fdatasync(fd);
    }
    aco_shielded
    {
        aco_i_offload(HELPERS_FOR_FILES, sync_data, (void *)(intptr_t)fd, NULL, &result);
    }
    return (int)(intptr_t)result;
}

static void *sync_data(void *arg)
{
    return (void *)(intptr_t)real_fdatasync((int)(intptr_t)arg);
}

static void *drain(void *arg);

static int drain_by_helper(int fd)
{
    void *result;
    outcome_t outcome = aco_i_offload(HELPERS_FOR_LONG, drain, (void *)(intptr_t)fd, NULL, &result);
    return outcome == WAIT_EVENT ? (int)(intptr_t)result : aco_i_result(outcome);
}

HOOK(int, tcdrain, (int fd), (fd), refuse(ENOSYS))
{
    return is_in_task() ? ANSWERED(drain_by_helper(fd)) : real_tcdrain(fd);
}

static void *drain(void *arg)
{
    return (void *)(intptr_t)real_tcdrain((int)(intptr_t)arg);
}

/* ==== Opening ================================================================================ */

typedef struct {
    int directory, flags, fd;
    unsigned mode;
    char path[];
} opening_t;

static void *do_open(void *arg);

static void discard_opening(void *arg)
{
    opening_t *opening = (opening_t *)arg;
    if (opening->fd >= 0) {
        aco_i_libc.close(opening->fd);
    }
    aco_i_release(opening);
}

/* A FIFO waits for its other end, a terminal for its line. */
static int may_block(int directory, const char *path, int flags)
{
    struct stat status;
    if (!is_in_task() || (flags & (O_NONBLOCK | O_PATH | O_DIRECTORY)) != 0) {
        return 0;
    }
    KEEP_ERRNO();
    return fstatat(directory, path, &status, 0) == 0 &&
           (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode));
}

static int open_by_helper(int directory, const char *path, int flags, unsigned mode)
{
    size_t path_sz = strlen(path) + 1;
    opening_t *opening = (opening_t *)aco_i_allocate(sizeof(*opening) + path_sz);
    if (opening == NULL) {
        return (int)refuse(ENOMEM);
    }
    *opening = (opening_t){directory, flags, -1, mode};
    memcpy(opening->path, path, path_sz);
    void *result;
    outcome_t outcome = aco_i_offload(HELPERS_FOR_LONG, do_open, opening, discard_opening, &result);
    if (outcome != WAIT_EVENT) {
        return aco_i_result(outcome);
    }
    KEEP_ERRNO();
    int fd = opening->fd;
    aco_i_release(opening);
    return fd;
}

/* The calls for files of any size if `L` is 64, else for those below 2 GiB. libc's functions take a
 * mode only with some flags; these take and pass it on always, which the calling conventions of all
 * supported processors allow. */
#define HOOKS_OPEN(L)                                                                              \
    HOOK(int, openat##L, (int directory, const char *path, int flags, unsigned mode),              \
         (directory, path, flags, mode), syscall(SYS_openat, directory, path, flags, mode))        \
    {                                                                                              \
        return may_block(directory, path, flags)                                                   \
                   ? ANSWERED_ONCE(open_by_helper(directory, path, flags | LARGE##L, mode))        \
                   : real_openat##L(directory, path, flags, mode);                                 \
    }                                                                                              \
    HOOK(int, open##L, (const char *path, int flags, unsigned mode), (path, flags, mode),          \
         syscall(SYS_openat, AT_FDCWD, path, flags, mode))                                         \
    {                                                                                              \
        return may_block(AT_FDCWD, path, flags)                                                    \
                   ? ANSWERED_ONCE(open_by_helper(AT_FDCWD, path, flags | LARGE##L, mode))         \
                   : real_open##L(path, flags, mode);                                              \
    }                                                                                              \
    HOOK(int, __openat##L##_2, (int directory, const char *path, int flags),                       \
         (directory, path, flags), syscall(SYS_openat, directory, path, flags, 0))                 \
    {                                                                                              \
        return may_block(directory, path, flags) && (flags & O_CREAT) == 0                         \
                   ? ANSWERED_ONCE(open_by_helper(directory, path, flags | LARGE##L, 0))           \
                   : real___openat##L##_2(directory, path, flags);                                 \
    }                                                                                              \
    HOOK(int, __open##L##_2, (const char *path, int flags), (path, flags),                         \
         syscall(SYS_openat, AT_FDCWD, path, flags, 0))                                            \
    {                                                                                              \
        return may_block(AT_FDCWD, path, flags) && (flags & O_CREAT) == 0                          \
                   ? ANSWERED_ONCE(open_by_helper(AT_FDCWD, path, flags | LARGE##L, 0))            \
                   : real___open##L##_2(path, flags);                                              \
    }                                                                                              \
    _Static_assert(1, "")

#define LARGE 0
#define LARGE64 O_LARGEFILE
HOOKS_OPEN();
HOOKS_OPEN(64);
HOOK_ALIAS(__open, open);
HOOK_ALIAS(__open64, open64);

static void *do_open(void *arg)
{
    opening_t *opening = (opening_t *)arg;
    opening->fd = real_openat(opening->directory, opening->path, opening->flags, opening->mode);
    return opening;
}
