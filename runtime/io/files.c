// SPDX-License-Identifier: Apache-2.0
/*
 * Files. Bytes in the page cache are read at once. io_uring reads others, at positions that the
 * caller gives; helper threads do all else that may wait for a disk, since epoll takes a file for
 * always ready.
 */
#include "io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8
#endif

/* ==== Reading and writing ==================================================================== */

/* The rest of a read or a write. */
typedef struct {
    int fd, is_write;
    const fd_t *entry; /* NULL: it has none */
    moment_t since;
    int64_t offset;     /* -1: that of the descriptor */
    void *copy;         /* of the bytes, if a buffer lies on a stack that others use meanwhile */
    struct iovec whole; /* `copy` */
    size_t sz;          /* bytes left */
    ssize_t result;
    awaited_t awaited; /* by io_uring */
    int ct;
    struct iovec iov[];
} transfer_t;

static transfer_t *new_transfer(int fd, int is_write, const struct iovec *iov, int ct,
                                int64_t offset)
{
    size_t iov_sz = (size_t)ct * sizeof(*iov);
    transfer_t *t = (transfer_t *)aco_i_allocate(sizeof(*t) + iov_sz);
    if (t == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    *t = (transfer_t){.fd = fd, .is_write = is_write, .offset = offset, .result = -1, .ct = ct};
    t->sz = size_of(iov, ct);
    t->entry = aco_i_fd(fd);
    if (t->entry != NULL) {
        t->since = aco_i_moment(t->entry);
    }
    memcpy(t->iov, iov, iov_sz);
    return t;
}

static void free_transfer(transfer_t *t)
{
    release_keeping_errno(t->copy);
    release_keeping_errno(t);
}

/* Skips the first `sz` bytes, which were read. */
static void advance(transfer_t *t, size_t sz)
{
    t->sz -= sz;
    t->offset += t->offset < 0 ? 0 : (int64_t)sz;
    for (int i = 0; i < t->ct && sz != 0; i++) {
        size_t part = sz < t->iov[i].iov_len ? sz : t->iov[i].iov_len;
        t->iov[i].iov_base = (char *)t->iov[i].iov_base + part;
        t->iov[i].iov_len -= part;
        sz -= part;
    }
}

static void *do_transfer(void *arg)
{
    transfer_t *t = (transfer_t *)arg;
    struct iovec whole = {t->copy, t->sz};
    const struct iovec *iov = t->copy != NULL ? &whole : t->iov;
    int ct = t->copy != NULL ? 1 : t->ct;
    if (was_closed(t->entry, t->since)) {
        errno = EBADF; /* closed before its turn came; the descriptor may be another file's */
    } else if (t->offset < 0) {
        t->result = (t->is_write ? aco_i_libc.writev : aco_i_libc.readv)(t->fd, iov, ct);
    } else {
        t->result = (t->is_write ? aco_i_libc.pwritev : aco_i_libc.preadv)(t->fd, iov, ct,
                                                                           t->offset);
    }
    return t;
}

/* Copies the first `sz` bytes of the buffers to or from t->copy. */
static void copy_bytes(transfer_t *t, size_t sz)
{
    char *copy = (char *)t->copy;
    for (int i = 0; i < t->ct && sz != 0; i++) {
        size_t part = sz < t->iov[i].iov_len ? sz : t->iov[i].iov_len;
        memcpy(t->is_write ? copy : t->iov[i].iov_base, t->is_write ? t->iov[i].iov_base : copy,
               part);
        copy += part;
        sz -= part;
    }
}

/* Makes a copy if a buffer lies on a stack that others use; 0, or -1 with ENOMEM. */
static int copy_if_moved(transfer_t *t)
{
    const aco_task_t *self = aco_self();
    int is_any = 0;
    for (int i = 0; self != NULL && i < t->ct; i++) {
        is_any |= t->iov[i].iov_len != 0 && is_moved(self, t->iov[i].iov_base);
    }
    if (is_any) {
        t->copy = aco_i_allocate(t->sz);
        if (t->copy == NULL) {
            errno = ENOMEM;
            return -1;
        }
        if (t->is_write) {
            copy_bytes(t, t->sz);
        }
    }
    return 0;
}

/* io_uring would wait for an event of other files, even of those that can't be read. */
static int is_on_disk(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && (S_ISREG(status.st_mode) || S_ISBLK(status.st_mode));
}

/* Whether io_uring has done a transfer, or has failed as a helper would. It reads at a position of
 * its own; a helper does the rest, and withdraws what a task that is late asks for. */
static int is_done_by_ring(transfer_t *t)
{
    const aco_task_t *self = aco_self();
    t->whole = (struct iovec){t->copy, t->sz};
    if (self == NULL || t->is_write || t->offset < 0 || aco_i_is_late(self) || !is_on_disk(t->fd) ||
        !aco_i_ring_read(&t->awaited, t->fd, t->copy != NULL ? &t->whole : t->iov,
                         t->copy != NULL ? 1 : t->ct, t->offset)) {
        return 0;
    }
    int result = t->awaited.result;
    if (result == -EAGAIN || result == -EINTR || result == -EINVAL || result == -EOPNOTSUPP) {
        return 0; /* the file wants to be read in a thread, or it has O_NONBLOCK */
    }
    errno = result < 0 ? -result : errno;
    t->result = result < 0 ? -1 : result;
    return 1;
}

static ssize_t wait_for_transfer(transfer_t *t)
{
    void *result;
    if (copy_if_moved(t) != 0) {
        return -1;
    }
    if (!is_done_by_ring(t)) {
        outcome_t outcome = aco_i_offload(HELPERS_FOR_FILES, do_transfer, t, NULL, &result);
        if (outcome != WAIT_EVENT) {
            return aco_i_result(outcome);
        }
    }
    if (t->copy != NULL && !t->is_write && t->result > 0) {
        copy_bytes(t, (size_t)t->result);
    }
    return t->result;
}

/* No function of libc: some lack it, and its name depends on the size of offsets. */
ssize_t aco_i_move_at_once(int fd, int is_write, const struct iovec *iov, int ct, int64_t offset)
{
    unsigned long low = (unsigned long)offset, high = (unsigned long)((uint64_t)offset >> 32);
    return (ssize_t)syscall(is_write ? SYS_pwritev2 : SYS_preadv2, (long)fd, iov, (long)ct, low,
                            high, (long)RWF_NOWAIT);
}

/* Whether a helper may do what was not done at once; EINVAL: from Linux before 4.14. */
static int must_wait(void)
{
    return errno == EAGAIN || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL;
}

ssize_t aco_i_file_read(int fd, const struct iovec *iov, int ct, int64_t offset)
{
    int error = errno;
    ssize_t got = aco_i_move_at_once(fd, 0, iov, ct, offset);
    if (got == 0 || (got > 0 && (size_t)got == size_of(iov, ct)) || (got < 0 && !must_wait())) {
        return got;
    }
    transfer_t *t = new_transfer(fd, 0, iov, ct, offset);
    if (t == NULL) {
        return got > 0 ? got : -1;
    }
    size_t done = 0;
    while (got > 0) { /* the rest is not cached, or there is none */
        done += (size_t)got;
        advance(t, (size_t)got);
        got = aco_i_move_at_once(fd, 0, t->iov, t->ct, t->offset);
    }
    if (got < 0 && must_wait()) {
        errno = error;
        got = wait_for_transfer(t);
    }
    free_transfer(t);
    return done == 0 ? got : (ssize_t)done + (got > 0 ? got : 0);
}

/* A helper writes all: a try at once may write a part, and other writes could come between. */
ssize_t aco_i_file_write(int fd, const struct iovec *iov, int ct, int64_t offset)
{
    transfer_t *t = new_transfer(fd, 1, iov, ct, offset);
    if (t == NULL) {
        return -1;
    }
    ssize_t result = wait_for_transfer(t);
    free_transfer(t);
    return result;
}

ssize_t aco_pread(int fd, void *buffer, size_t sz, int64_t offset)
{
    aco_i_spend_call();
    struct iovec iov = {buffer, sz};
    if (offset < 0) {
        errno = EINVAL;
        return -1;
    }
    return aco_i_file_read(fd, &iov, 1, offset);
}

ssize_t aco_pwrite(int fd, const void *buffer, size_t sz, int64_t offset)
{
    aco_i_spend_call();
    struct iovec iov = {(void *)(uintptr_t)buffer, sz};
    if (offset < 0) {
        errno = EINVAL;
        return -1;
    }
    return aco_i_file_write(fd, &iov, 1, offset);
}

/* ==== Opening ================================================================================ */

typedef struct {
    int fd, flags;
    int is_long; /* it may wait for others, and is for a helper of that kind */
    mode_t mode;
    char path[];
} opening_t;

/* Whether opening may last: that of a FIFO until its other end is opened, that of a terminal until
 * its line is there. */
static int may_last(const opening_t *opening)
{
    struct stat status;
    return (opening->flags & (O_NONBLOCK | O_PATH | O_DIRECTORY)) == 0 &&
           stat(opening->path, &status) == 0 &&
           (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode));
}

static void *do_open(void *arg)
{
    opening_t *opening = (opening_t *)arg;
    if (!opening->is_long && may_last(opening)) {
        opening->is_long = 1;
        return opening;
    }
    opening->fd = aco_i_libc.open(opening->path, opening->flags, opening->mode);
    return opening;
}

static void discard_opening(void *arg)
{
    opening_t *opening = (opening_t *)arg;
    if (opening->fd >= 0) {
        aco_i_libc.close(opening->fd);
    }
    aco_i_release(opening);
}

int aco_open(const char *path, int flags, ...)
{
    aco_i_spend_call();
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE
                      ? (mode_t)va_arg(args, unsigned)
                      : 0;
    va_end(args);
    if (path == NULL) {
        errno = EFAULT;
        return -1;
    }
    size_t path_sz = strlen(path) + 1;
    opening_t *opening = (opening_t *)aco_i_allocate(sizeof(*opening) + path_sz);
    if (opening == NULL) {
        errno = ENOMEM;
        return -1;
    }
    *opening = (opening_t){.fd = -1, .flags = flags, .mode = mode};
    memcpy(opening->path, path, path_sz);
    void *result;
    outcome_t outcome = aco_i_offload(HELPERS_FOR_FILES, do_open, opening, discard_opening,
                                      &result);
    if (outcome == WAIT_EVENT && opening->is_long) {
        outcome = aco_i_offload(HELPERS_FOR_LONG, do_open, opening, discard_opening, &result);
    }
    if (outcome != WAIT_EVENT) {
        return aco_i_result(outcome);
    }
    int fd = opening->fd;
    release_keeping_errno(opening);
    return fd;
}

/* ==== Syncing ================================================================================ */

typedef struct {
    int fd, result;
    const fd_t *entry;
    moment_t since;
} syncing_t;

static void *do_fsync(void *arg)
{
    syncing_t *s = (syncing_t *)arg;
    if (was_closed(s->entry, s->since)) {
        errno = EBADF; /* closed before its turn came */
    } else {
        s->result = aco_i_libc.fsync(s->fd);
    }
    return s;
}

int aco_fsync(int fd)
{
    aco_i_spend_call();
    void *ignored;
    syncing_t *s = (syncing_t *)aco_i_allocate(sizeof(*s));
    if (s == NULL) {
        errno = ENOMEM;
        return -1;
    }
    *s = (syncing_t){.fd = fd, .result = -1, .entry = aco_i_fd(fd)};
    if (s->entry != NULL) {
        s->since = aco_i_moment(s->entry);
    }
    outcome_t outcome = aco_i_offload(HELPERS_FOR_FILES, do_fsync, s, NULL, &ignored);
    int result = outcome == WAIT_EVENT ? s->result : aco_i_result(outcome);
    release_keeping_errno(s);
    return result;
}
