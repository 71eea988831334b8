// SPDX-License-Identifier: Apache-2.0
/*
 * Calls of the runtime to libc, which can be made to fail: the linker leads them here, by --wrap
 * for each. All are counted, and the n-th fails with an error that it can have.
 */
#ifndef ACO_TESTS_FAILING_CALLS_H
#define ACO_TESTS_FAILING_CALLS_H

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#define CT_ERRORS 3
#ifdef ACO_CONFIG_STRESS
#define IS_STRESS 1
#else
#define IS_STRESS 0
#endif

static struct {
    int is_on;                 /* atomic */
    long ct;                   /* atomic: calls so far */
    long refused;              /* number of the call that fails, from 1 */
    int choice;                /* which of its errors */
    int error;                 /* that it failed with; 0: none failed; atomic */
    int has_more;              /* it has an error after that choice */
    const char *volatile name; /* of the call that failed */
    long ct_blocks, mapped_sz; /* atomic: not given back */
} failing;

/* The error that a call must return; 0: the system makes the call. */
static int next_error(const char *name, const int errors[CT_ERRORS])
{
    if (!__atomic_load_n(&failing.is_on, __ATOMIC_ACQUIRE) ||
        __atomic_add_fetch(&failing.ct, 1, __ATOMIC_ACQ_REL) != failing.refused ||
        failing.choice >= CT_ERRORS) {
        return 0;
    }
    failing.name = name;
    failing.has_more = failing.choice + 1 < CT_ERRORS && errors[failing.choice + 1] != 0;
    __atomic_store_n(&failing.error, errors[failing.choice], __ATOMIC_RELEASE);
    return errors[failing.choice];
}

#define FAILS(name, type, params, args, ...)                                                       \
    type __real_##name params;                                                                     \
    type __wrap_##name params;                                                                     \
    type __wrap_##name params                                                                      \
    {                                                                                              \
        static const int errors[CT_ERRORS] = {__VA_ARGS__};                                        \
        int error = next_error(#name, errors);                                                     \
        if (error != 0) {                                                                          \
            errno = error;                                                                         \
            return (type)-1;                                                                       \
        }                                                                                          \
        return __real_##name args;                                                                 \
    }

FAILS(epoll_create1, int, (int flags), (flags), EMFILE, ENOMEM)
FAILS(epoll_ctl, int, (int epoll, int op, int fd, struct epoll_event *event),
      (epoll, op, fd, event), ENOMEM, ENOSPC)
FAILS(epoll_wait, int, (int epoll, struct epoll_event *events, int ct, int timeout),
      (epoll, events, ct, timeout), EINTR)
FAILS(eventfd, int, (unsigned value, int flags), (value, flags), EMFILE, ENFILE)
FAILS(timerfd_create, int, (int clock, int flags), (clock, flags), EMFILE)
FAILS(signalfd, int, (int fd, const sigset_t *set, int flags), (fd, set, flags), EMFILE)
FAILS(socket, int, (int family, int type, int protocol), (family, type, protocol), EMFILE, ENOBUFS)
FAILS(bind, int, (int fd, const struct sockaddr *addr, socklen_t sz), (fd, addr, sz), EADDRINUSE)
FAILS(listen, int, (int fd, int backlog), (fd, backlog), EADDRINUSE)
FAILS(accept4, int, (int fd, struct sockaddr *addr, socklen_t *sz, int flags),
      (fd, addr, sz, flags), EMFILE, ECONNABORTED, EINTR)
FAILS(connect, int, (int fd, const struct sockaddr *addr, socklen_t sz), (fd, addr, sz),
      ECONNREFUSED, ETIMEDOUT)
FAILS(poll, int, (struct pollfd * fds, nfds_t ct, int timeout), (fds, ct, timeout), EINTR, ENOMEM)
FAILS(read, ssize_t, (int fd, void *buf, size_t sz), (fd, buf, sz), EINTR)
FAILS(write, ssize_t, (int fd, const void *buf, size_t sz), (fd, buf, sz), EINTR)
FAILS(preadv64, ssize_t, (int fd, const struct iovec *iov, int ct, int64_t offset),
      (fd, iov, ct, offset), EIO, ENOMEM)
FAILS(pwritev64, ssize_t, (int fd, const struct iovec *iov, int ct, int64_t offset),
      (fd, iov, ct, offset), ENOSPC, EIO)
FAILS(recvfrom, ssize_t,
      (int fd, void *buf, size_t sz, int flags, struct sockaddr *addr, socklen_t *addr_sz),
      (fd, buf, sz, flags, addr, addr_sz), EINTR, ECONNRESET, ENOMEM)
FAILS(recvmsg, ssize_t, (int fd, struct msghdr *msg, int flags), (fd, msg, flags), EINTR,
      ECONNRESET)
FAILS(send, ssize_t, (int fd, const void *buf, size_t sz, int flags), (fd, buf, sz, flags), EINTR,
      ECONNRESET, ENOBUFS)
FAILS(sendmsg, ssize_t, (int fd, const struct msghdr *msg, int flags), (fd, msg, flags), EINTR,
      ECONNRESET)
FAILS(sendfile64, ssize_t, (int fd, int in, int64_t *offset, size_t sz), (fd, in, offset, sz),
      EINTR, ECONNRESET)
FAILS(fsync, int, (int fd), (fd), EIO)
FAILS(waitpid, pid_t, (pid_t pid, int *status, int options), (pid, status, options), ECHILD)
FAILS(sigtimedwait, int, (const sigset_t *set, siginfo_t *info, const struct timespec *timeout),
      (set, info, timeout), EINTR)
FAILS(mprotect, int, (void *ptr, size_t sz, int protection), (ptr, sz, protection), ENOMEM)

/* ==== Other failures ========================================================================= */

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd) /* Linux closes in any case */
{
    static const int errors[CT_ERRORS] = {EINTR, EIO};
    int error = next_error("close", errors), result = __real_close(fd);
    if (error != 0) {
        errno = error;
        return -1;
    }
    return result;
}

int __real_open64(const char *path, int flags, unsigned mode);
int __wrap_open64(const char *path, int flags, unsigned mode);
int __wrap_open64(const char *path, int flags, unsigned mode)
{
    static const int errors[CT_ERRORS] = {EMFILE, ENOMEM};
    int error = next_error("open", errors);
    if (error != 0) {
        errno = error;
        return -1;
    }
    return __real_open64(path, flags, mode);
}

/* Others are sure to report that they can be read, and EAGAIN would hide it. */
static int is_regular_file(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    static const int at_wait[CT_ERRORS] = {EINTR, ENOSYS};
    static const int at_read[CT_ERRORS] = {EAGAIN, ENOSYS, EIO};
    static const int at_open[CT_ERRORS] = {ENOSYS, EMFILE};
    int is_file_read = number == SYS_preadv2 && is_regular_file((int)a);
    int error = number == SYS_epoll_pwait2 ? next_error("epoll_pwait2", at_wait)
                : is_file_read             ? next_error("preadv2", at_read)
                : number == SYS_pidfd_open ? next_error("pidfd_open", at_open)
                                           : 0;
    if (error != 0) {
        errno = error;
        return -1;
    }
    return __real_syscall(number, a, b, c, d, e, f);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg)
{
    static const int errors[CT_ERRORS] = {EAGAIN};
    int error = next_error("pthread_create", errors);
    return error != 0 ? error : __real_pthread_create(thread, attr, fn, arg);
}

int __real_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list);
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list);
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list)
{
    static const int errors[CT_ERRORS] = {EAGAIN, ENOMEM};
    int error = next_error("getaddrinfo", errors);
    return error == EAGAIN   ? EAI_AGAIN
           : error == ENOMEM ? EAI_MEMORY
                             : __real_getaddrinfo(node, service, hints, list);
}

/* ==== Memory ================================================================================= */

void *__real_malloc(size_t sz);
void *__wrap_malloc(size_t sz);
void *__wrap_malloc(size_t sz)
{
    static const int errors[CT_ERRORS] = {IS_STRESS ? 0 : ENOMEM}; /* stress moves frames by it */
    int error = next_error("malloc", errors);
    if (error != 0) {
        errno = error;
        return NULL;
    }
    void *block = __real_malloc(sz);
    __atomic_add_fetch(&failing.ct_blocks, block != NULL, __ATOMIC_RELAXED);
    return block;
}

void *__real_calloc(size_t ct, size_t sz);
void *__wrap_calloc(size_t ct, size_t sz);
void *__wrap_calloc(size_t ct, size_t sz)
{
    static const int errors[CT_ERRORS] = {ENOMEM};
    int error = next_error("calloc", errors);
    if (error != 0) {
        errno = error;
        return NULL;
    }
    void *block = __real_calloc(ct, sz);
    __atomic_add_fetch(&failing.ct_blocks, block != NULL, __ATOMIC_RELAXED);
    return block;
}

void __real_free(void *block);
void __wrap_free(void *block);
void __wrap_free(void *block)
{
    __atomic_sub_fetch(&failing.ct_blocks, block != NULL, __ATOMIC_RELAXED);
    __real_free(block);
}

void *__real_mmap(void *ptr, size_t sz, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *ptr, size_t sz, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *ptr, size_t sz, int protection, int flags, int fd, off_t offset)
{
    static const int errors[CT_ERRORS] = {ENOMEM};
    int error = next_error("mmap", errors);
    if (error != 0) {
        errno = error;
        return MAP_FAILED;
    }
    void *mapped = __real_mmap(ptr, sz, protection, flags, fd, offset);
    if (mapped != MAP_FAILED) {
        __atomic_add_fetch(&failing.mapped_sz, (long)sz, __ATOMIC_RELAXED);
    }
    return mapped;
}

void *__wrap_mmap64(void *ptr, size_t sz, int protection, int flags, int fd, int64_t offset);
void *__wrap_mmap64(void *ptr, size_t sz, int protection, int flags, int fd, int64_t offset)
{
    return __wrap_mmap(ptr, sz, protection, flags, fd, (off_t)offset);
}

int __real_munmap(void *ptr, size_t sz);
int __wrap_munmap(void *ptr, size_t sz);
int __wrap_munmap(void *ptr, size_t sz)
{
    __atomic_sub_fetch(&failing.mapped_sz, (long)sz, __ATOMIC_RELAXED);
    return __real_munmap(ptr, sz);
}

#endif
