// SPDX-License-Identifier: Apache-2.0
/*
 * Cancelling. pthread_cancel() ends the wait of a thread as the runtime cancels a task; the
 * function that waited then ends the thread instead of failing. The functions are those that POSIX
 * names cancellation points, and those that glibc adds.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <mqueue.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/wait.h>

/* ==== Cancelling ============================================================================= */

/* Makes the waits of a thread fail, or not. Its lock is held, so that it can't end. */
static void set_task(thread_t *thread, int is_cancelled)
{
    if (thread->task != NULL && is_cancelled) {
        aco_task_cancel(thread->task);
    } else if (thread->task != NULL) {
        __atomic_store_n(&thread->task->is_cancelled, 0, __ATOMIC_SEQ_CST);
    }
}

static inline int must_end(const thread_t *thread)
{
    return __atomic_load_n(&thread->is_cancelled, __ATOMIC_ACQUIRE) &&
           thread->cancel_state == PTHREAD_CANCEL_ENABLE;
}

void aco_i_begin_cancelling(thread_t *thread, aco_task_t *task)
{
    lock(&thread->lock);
    thread->task = task;
    set_cancellable(thread, 0);
    if (must_end(thread)) {
        set_task(thread, 1);
    }
    unlock(&thread->lock);
}

void aco_i_stop_cancelling(thread_t *thread)
{
    lock(&thread->lock);
    thread->cancel_state = PTHREAD_CANCEL_DISABLE;
    set_task(thread, 0);
    unlock(&thread->lock);
}

REPLACE(int, pthread_cancel, (pthread_t id), (id), EINVAL)
{
    thread_t *thread = aco_i_handle_of(id);
    if (thread == NULL) {
        return real_pthread_cancel(id);
    }
    lock(&thread->lock);
    int error = thread->state == HANDLE_FREE ? ESRCH : 0;
    if (error == 0) {
        __atomic_store_n(&thread->is_cancelled, 1, __ATOMIC_RELEASE);
        set_task(thread, thread->cancel_state == PTHREAD_CANCEL_ENABLE);
    }
    unlock(&thread->lock);
    if (thread == this_thread() && thread->cancel_type == PTHREAD_CANCEL_ASYNCHRONOUS &&
        must_end(thread)) {
        aco_i_end_thread(thread, PTHREAD_CANCELED);
    }
    return error;
}

REPLACE(void, pthread_testcancel, (void), (), (void)0)
{
    thread_t *thread = this_thread();
    if (thread == NULL) {
        real_pthread_testcancel();
    } else if (must_end(thread)) {
        aco_i_end_thread(thread, PTHREAD_CANCELED);
    }
}

REPLACE(int, pthread_setcancelstate, (int state, int *before), (state, before), EINVAL)
{
    thread_t *thread = this_thread();
    if (thread == NULL) {
        return real_pthread_setcancelstate(state, before);
    }
    if (state != PTHREAD_CANCEL_ENABLE && state != PTHREAD_CANCEL_DISABLE) {
        return EINVAL;
    }
    if (before != NULL) {
        *before = thread->cancel_state;
    }
    lock(&thread->lock);
    thread->cancel_state = (char)state;
    set_task(thread, must_end(thread));
    unlock(&thread->lock);
    if (thread->cancel_type == PTHREAD_CANCEL_ASYNCHRONOUS) {
        name_pthread_testcancel();
    }
    return 0;
}

REPLACE(int, pthread_setcanceltype, (int type, int *before), (type, before), EINVAL)
{
    thread_t *thread = this_thread();
    if (thread == NULL) {
        return real_pthread_setcanceltype(type, before);
    }
    if (type != PTHREAD_CANCEL_DEFERRED && type != PTHREAD_CANCEL_ASYNCHRONOUS) {
        return EINVAL;
    }
    if (before != NULL) {
        *before = thread->cancel_type;
    }
    thread->cancel_type = (char)type;
    if (type == PTHREAD_CANCEL_ASYNCHRONOUS) {
        name_pthread_testcancel();
    }
    return 0;
}

/* ==== Cancellation points ==================================================================== */

static inline void look_for_signals(void)
{
    thread_t *thread = this_thread();
    if (thread != NULL && __builtin_expect(has_signals(thread), 0)) {
        aco_i_deliver(thread);
    }
}

static inline thread_t *begin_point(void)
{
    look_for_signals();
    name_pthread_testcancel();
    thread_t *thread = this_thread();
    set_cancellable(thread, 1);
    return thread;
}

/* POINT() is for functions that fail with errno, ERROR_POINT() for those that return errors. One
 * that has done something returns, even if its thread has been cancelled meanwhile. */
#define POINT_IF(failed, type, name, params, args)                                                 \
    REPLACE_HOOK(type, name, params)                                                               \
    {                                                                                              \
        thread_t *thread = begin_point();                                                          \
        type result = hook_##name args;                                                            \
        set_cancellable(thread, 0);                                                                \
        if (__builtin_expect((failed) != 0, 0)) {                                                  \
            KEEP_ERRNO();                                                                          \
            name_pthread_testcancel();                                                             \
        }                                                                                          \
        return result;                                                                             \
    }                                                                                              \
    _Static_assert(1, "")
#define POINT(...) POINT_IF(result < 0 && errno == ECANCELED, __VA_ARGS__)
/* With a mask for its time, which the hook does not get: the loop has another one. */
#define MASKED_POINT(type, name, params, args, args_of_hook)                                       \
    REPLACE_HOOK(type, name, params)                                                               \
    {                                                                                              \
        thread_t *thread = this_thread();                                                          \
        uint64_t before;                                                                           \
        if (thread == NULL) {                                                                      \
            return hook_##name args;                                                               \
        }                                                                                          \
        begin_point();                                                                             \
        type result = aco_i_begin_mask(thread, mask, &before) ? (type)refuse(EINTR)                \
                                                              : hook_##name args_of_hook;          \
        set_cancellable(thread, 0);                                                                \
        aco_i_end_mask(thread, before);                                                            \
        if (result < 0 && errno == ECANCELED) {                                                    \
            KEEP_ERRNO();                                                                          \
            name_pthread_testcancel();                                                             \
        }                                                                                          \
        return result;                                                                             \
    }                                                                                              \
    _Static_assert(1, "")
#define ERROR_POINT(...) POINT_IF(result == ECANCELED, __VA_ARGS__)

POINT(ssize_t, read, (int fd, void *buf, size_t sz), (fd, buf, sz));
POINT(ssize_t, readv, (int fd, const struct iovec *iov, int ct), (fd, iov, ct));
POINT(ssize_t, write, (int fd, const void *buf, size_t sz), (fd, buf, sz));
POINT(ssize_t, writev, (int fd, const struct iovec *iov, int ct), (fd, iov, ct));
POINT(ssize_t, recv, (int fd, void *buf, size_t sz, int flags), (fd, buf, sz, flags));
POINT(ssize_t, recvfrom,
      (int fd, void *buf, size_t sz, int flags, struct sockaddr *addr, socklen_t *addr_sz),
      (fd, buf, sz, flags, addr, addr_sz));
POINT(ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags), (fd, msg, flags));
POINT(ssize_t, send, (int fd, const void *buf, size_t sz, int flags), (fd, buf, sz, flags));
POINT(ssize_t, sendto,
      (int fd, const void *buf, size_t sz, int flags, const struct sockaddr *addr,
       socklen_t addr_sz),
      (fd, buf, sz, flags, addr, addr_sz));
POINT(ssize_t, sendmsg, (int fd, const struct msghdr *msg, int flags), (fd, msg, flags));
POINT(int, accept, (int fd, struct sockaddr *addr, socklen_t *addr_sz), (fd, addr, addr_sz));
POINT(int, accept4, (int fd, struct sockaddr *addr, socklen_t *addr_sz, int flags),
      (fd, addr, addr_sz, flags));
POINT(int, connect, (int fd, const struct sockaddr *addr, socklen_t addr_sz), (fd, addr, addr_sz));
POINT(int, poll, (struct pollfd * fds, nfds_t ct, int timeout), (fds, ct, timeout));
MASKED_POINT(int, ppoll,
             (struct pollfd * fds, nfds_t ct, const struct timespec *t, const sigset_t *mask),
             (fds, ct, t, mask), (fds, ct, t, NULL));
POINT(int, select, (int ct, void *in, void *out, void *except, struct timeval *t),
      (ct, in, out, except, t));
MASKED_POINT(int, pselect,
             (int ct, void *in, void *out, void *except, const struct timespec *t,
              const sigset_t *mask),
             (ct, in, out, except, t, mask), (ct, in, out, except, t, NULL));
POINT(int, epoll_wait, (int fd, struct epoll_event *events, int ct, int timeout),
      (fd, events, ct, timeout));
MASKED_POINT(int, epoll_pwait,
             (int fd, struct epoll_event *events, int ct, int timeout, const sigset_t *mask),
             (fd, events, ct, timeout, mask), (fd, events, ct, timeout, NULL));
MASKED_POINT(int, epoll_pwait2,
             (int fd, struct epoll_event *events, int ct, const struct timespec *t,
              const sigset_t *mask),
             (fd, events, ct, t, mask), (fd, events, ct, t, NULL));
MASKED_POINT(int, __ppoll_chk,
             (struct pollfd * fds, nfds_t ct, const struct timespec *t, const sigset_t *mask,
              size_t sz),
             (fds, ct, t, mask, sz), (fds, ct, t, NULL, sz));
POINT(int, nanosleep, (const struct timespec *t, struct timespec *left), (t, left));
ERROR_POINT(int, clock_nanosleep,
            (clockid_t clock, int flags, const struct timespec *t, struct timespec *left),
            (clock, flags, t, left));
POINT(int, usleep, (useconds_t us), (us));
POINT_IF(result != 0, unsigned, sleep, (unsigned s), (s));
POINT(int, pause, (void), ());
POINT(int, sigsuspend, (const sigset_t *mask), (mask));
POINT(pid_t, wait, (int *status), (status));
POINT(pid_t, waitpid, (pid_t pid, int *status, int options), (pid, status, options));
POINT(int, waitid, (idtype_t type, id_t id, siginfo_t *info, int options),
      (type, id, info, options));
POINT(int, system, (const char *command), (command));
POINT(int, fsync, (int fd), (fd));
POINT(int, fdatasync, (int fd), (fd));
POINT(int, tcdrain, (int fd), (fd));
POINT(ssize_t, msgrcv, (int id, void *message, size_t sz, long type, int flags),
      (id, message, sz, type, flags));
POINT(int, msgsnd, (int id, const void *message, size_t sz, int flags), (id, message, sz, flags));
POINT(ssize_t, mq_receive, (mqd_t queue, char *text, size_t sz, unsigned *priority),
      (queue, text, sz, priority));
POINT(int, mq_send, (mqd_t queue, const char *text, size_t sz, unsigned priority),
      (queue, text, sz, priority));
POINT(int, sem_wait, (sem_t * semaphore), (semaphore));
POINT(int, sem_timedwait, (sem_t * semaphore, const struct timespec *time), (semaphore, time));
POINT(int, sem_clockwait, (sem_t * semaphore, clockid_t clock, const struct timespec *time),
      (semaphore, clock, time));
ERROR_POINT(int, pthread_cond_wait, (pthread_cond_t * cond, pthread_mutex_t *mutex), (cond, mutex));
ERROR_POINT(int, pthread_cond_timedwait,
            (pthread_cond_t * cond, pthread_mutex_t *mutex, const struct timespec *time),
            (cond, mutex, time));
ERROR_POINT(int, pthread_cond_clockwait,
            (pthread_cond_t * cond, pthread_mutex_t *mutex, clockid_t clock,
             const struct timespec *time),
            (cond, mutex, clock, time));

/* Other names, which programs have that are compiled with _FORTIFY_SOURCE, or for large files. */
#define POINT_ALIAS(alias_name, name)                                                              \
    extern SHARED __typeof__(name_##name) name_##alias_name __asm__(#alias_name)                   \
        __attribute__((alias(#name)))

POINT(ssize_t, __read_chk, (int fd, void *buf, size_t sz, size_t buf_sz), (fd, buf, sz, buf_sz));
POINT(ssize_t, __recv_chk, (int fd, void *buf, size_t sz, size_t buf_sz, int flags),
      (fd, buf, sz, buf_sz, flags));
POINT(ssize_t, __recvfrom_chk,
      (int fd, void *buf, size_t sz, size_t buf_sz, int flags, struct sockaddr *addr,
       socklen_t *addr_sz),
      (fd, buf, sz, buf_sz, flags, addr, addr_sz));
POINT(int, __poll_chk, (struct pollfd * fds, nfds_t ct, int timeout, size_t sz),
      (fds, ct, timeout, sz));
POINT(int, recvmmsg,
      (int fd, struct mmsghdr *messages, unsigned ct, int flags, struct timespec *timeout),
      (fd, messages, ct, flags, timeout));
POINT(int, sendmmsg, (int fd, struct mmsghdr *messages, unsigned ct, int flags),
      (fd, messages, ct, flags));
POINT(pid_t, wait4, (pid_t pid, int *status, int options, struct rusage *usage),
      (pid, status, options, usage));
POINT(pid_t, wait3, (int *status, int options, struct rusage *usage), (status, options, usage));
POINT(int, close, (int fd), (fd));
POINT(int, open, (const char *path, int flags, unsigned mode), (path, flags, mode));
POINT(int, open64, (const char *path, int flags, unsigned mode), (path, flags, mode));
POINT(int, openat, (int directory, const char *path, int flags, unsigned mode),
      (directory, path, flags, mode));
POINT(int, openat64, (int directory, const char *path, int flags, unsigned mode),
      (directory, path, flags, mode));
POINT(int, aio_suspend, (const void *const *list, int ct, const struct timespec *t), (list, ct, t));
POINT(int, mq_timedsend,
      (mqd_t queue, const char *text, size_t sz, unsigned priority, const struct timespec *time),
      (queue, text, sz, priority, time));
POINT(ssize_t, mq_timedreceive,
      (mqd_t queue, char *text, size_t sz, unsigned *priority, const struct timespec *time),
      (queue, text, sz, priority, time));

#if __SIZEOF_POINTER__ == 8
POINT(ssize_t, pread, (int fd, void *buf, size_t sz, int64_t offset), (fd, buf, sz, offset));
POINT(ssize_t, __pread_chk, (int fd, void *buf, size_t sz, int64_t offset, size_t buf_sz),
      (fd, buf, sz, offset, buf_sz));
POINT(ssize_t, pwrite, (int fd, const void *buf, size_t sz, int64_t offset), (fd, buf, sz, offset));
POINT(ssize_t, preadv, (int fd, const struct iovec *iov, int ct, int64_t offset),
      (fd, iov, ct, offset));
POINT(ssize_t, pwritev, (int fd, const struct iovec *iov, int ct, int64_t offset),
      (fd, iov, ct, offset));
POINT(int, lockf64, (int fd, int command, int64_t length), (fd, command, length));
POINT_ALIAS(pread64, pread);
POINT_ALIAS(__pread64_chk, __pread_chk);
POINT_ALIAS(pwrite64, pwrite);
POINT_ALIAS(preadv64, preadv);
POINT_ALIAS(pwritev64, pwritev);
POINT_ALIAS(lockf, lockf64);
POINT_ALIAS(aio_suspend64, aio_suspend);
#endif

/* Calls that need no hook. */
#define PLAIN_POINT(type, name, params, args)                                                      \
    REPLACE(type, name, params, args, refuse(ENOSYS))                                              \
    {                                                                                              \
        set_cancellable(begin_point(), 0);                                                         \
        return real_##name args;                                                                   \
    }                                                                                              \
    _Static_assert(1, "")

PLAIN_POINT(int, creat, (const char *path, mode_t mode), (path, mode));
PLAIN_POINT(int, creat64, (const char *path, mode_t mode), (path, mode));
PLAIN_POINT(int, msync, (void *at, size_t sz, int flags), (at, sz, flags));

/* ==== Other calls that let handlers run ====================================================== */

REPLACE_HOOK(int, sched_yield, (void))
{
    int result = hook_sched_yield();
    look_for_signals();
    return result;
}
