// SPDX-License-Identifier: Apache-2.0
/*
 * Names that programs call where addresses have 32 bits and they are compiled for times of 64 bits.
 * In tasks, these call the hooks of the usual names, and a time beyond the range of those is their
 * last one.
 */
#include "internal.h"

HOOKS_OF(time64);

#if __SIZEOF_POINTER__ == 4 && __TIMESIZE == 32 && __GLIBC_PREREQ(2, 34)

#include <aio.h>
#include <limits.h>
#include <mqueue.h>
#include <netdb.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <threads.h>

/* The struct timespec and struct timeval of these programs. */
typedef struct {
    int64_t s;
    int32_t ns, unused;
} timespec64_t;

typedef struct {
    int64_t s, us;
} timeval64_t;

static time_t seconds_of(int64_t s)
{
    return s > INT_MAX ? INT_MAX : s < INT_MIN ? INT_MIN : (time_t)s;
}

static const struct timespec *small_in(struct timespec *room, const timespec64_t *t)
{
    if (t == NULL) {
        return NULL;
    }
    *room = (struct timespec){seconds_of(t->s), t->ns};
    return room;
}

/* A time as the usual hook takes it. */
#define SMALL(t) small_in(&(struct timespec){0, 0}, t)

static void put(timespec64_t *to, const struct timespec *t)
{
    if (to != NULL) {
        to->s = t->tv_sec;
        to->ns = (int32_t)t->tv_nsec;
    }
}

/* ==== Time and signals ======================================================================= */

HOOK(int, __nanosleep64, (const timespec64_t *t, timespec64_t *left), (t, left), refuse(ENOSYS))
{
    struct timespec rest = {0, 0};
    if (!is_in_task() || t == NULL) {
        return real___nanosleep64(t, left);
    }
    int result = NESTED(nanosleep(SMALL(t), &rest));
    if (result != 0) {
        put(left, &rest);
    }
    return result;
}

HOOK(int, __thrd_sleep64, (const timespec64_t *t, timespec64_t *left), (t, left), -2)
{
    return !is_in_task()                              ? real___thrd_sleep64(t, left)
           : NESTED(hook___nanosleep64(t, left)) == 0 ? 0
                                                      : -2;
}

HOOK(int, __clock_nanosleep_time64,
     (clockid_t clock, int flags, const timespec64_t *t, timespec64_t *left),
     (clock, flags, t, left), ENOSYS)
{
    struct timespec rest = {0, 0};
    if (!is_in_task() || t == NULL) {
        return real___clock_nanosleep_time64(clock, flags, t, left);
    }
    int error = NESTED(clock_nanosleep(clock, flags, SMALL(t), &rest));
    if (error != 0 && (flags & TIMER_ABSTIME) == 0) {
        put(left, &rest);
    }
    return error;
}

HOOK(int, __sigtimedwait64, (const sigset_t *set, siginfo_t *info, const timespec64_t *t),
     (set, info, t), refuse(ENOSYS))
{
    return is_in_task() ? NESTED(sigtimedwait(set, info, SMALL(t)))
                        : real___sigtimedwait64(set, info, t);
}

HOOK(int, __semtimedop64, (int id, struct sembuf *ops, size_t ct, const timespec64_t *t),
     (id, ops, ct, t), refuse(ENOSYS))
{
    return NESTED(semtimedop(id, ops, ct, SMALL(t))); /* which wakes tasks, in threads, too */
}

#define HOOK_SUSPEND(name, usual, type, otherwise)                                                 \
    HOOK(int, name, (const type *const *list, int ct, const timespec64_t *t), (list, ct, t),       \
         otherwise)                                                                                \
    {                                                                                              \
        return is_in_task() ? NESTED(usual(list, ct, SMALL(t))) : real_##name(list, ct, t);        \
    }                                                                                              \
    _Static_assert(1, "")

HOOK_SUSPEND(__aio_suspend_time64, aio_suspend, struct aiocb, refuse(ENOSYS));
HOOK_SUSPEND(__gai_suspend_time64, gai_suspend, struct gaicb, EAI_SYSTEM);

/* ==== Descriptors ============================================================================ */

HOOK(int, __ppoll64, (struct pollfd * fds, nfds_t ct, const timespec64_t *t, const sigset_t *mask),
     (fds, ct, t, mask), refuse(ENOSYS))
{
    return is_in_task() ? NESTED(ppoll(fds, ct, SMALL(t), mask)) : real___ppoll64(fds, ct, t, mask);
}

HOOK(int, __select64, (int ct, fd_set *in, fd_set *out, fd_set *except, timeval64_t *t),
     (ct, in, out, except, t), refuse(ENOSYS))
{
    if (!is_in_task() || t == NULL) {
        return is_in_task() ? NESTED(select(ct, in, out, except, NULL))
                            : real___select64(ct, in, out, except, t);
    }
    struct timeval small = {seconds_of(t->s + t->us / 1000000), (suseconds_t)(t->us % 1000000)};
    int result = NESTED(select(ct, in, out, except, &small));
    *t = (timeval64_t){small.tv_sec, small.tv_usec};
    return result;
}

HOOK(int, __pselect64,
     (int ct, fd_set *in, fd_set *out, fd_set *except, const timespec64_t *t, const sigset_t *mask),
     (ct, in, out, except, t, mask), refuse(ENOSYS))
{
    return is_in_task() ? NESTED(pselect(ct, in, out, except, SMALL(t), mask))
                        : real___pselect64(ct, in, out, except, t, mask);
}

HOOK(int, __epoll_pwait2_time64,
     (int fd, struct epoll_event *events, int ct, const timespec64_t *t, const sigset_t *mask),
     (fd, events, ct, t, mask), refuse(ENOSYS))
{
    return is_in_task() ? NESTED(epoll_pwait2(fd, events, ct, SMALL(t), mask))
                        : real___epoll_pwait2_time64(fd, events, ct, t, mask);
}

HOOK(int, __recvmmsg64, (int fd, struct mmsghdr *messages, unsigned ct, int flags, timespec64_t *t),
     (fd, messages, ct, flags, t), refuse(ENOSYS))
{
    if (!is_in_task() || t == NULL) {
        return is_in_task() ? NESTED(recvmmsg(fd, messages, ct, flags, NULL))
                            : real___recvmmsg64(fd, messages, ct, flags, t);
    }
    struct timespec small = {seconds_of(t->s), t->ns};
    int result = NESTED(recvmmsg(fd, messages, ct, flags, &small));
    put(t, &small);
    return result;
}

HOOK(int, __mq_timedsend_time64,
     (mqd_t queue, const char *text, size_t sz, unsigned priority, const timespec64_t *t),
     (queue, text, sz, priority, t), refuse(ENOSYS))
{
    return is_in_task() ? NESTED(mq_timedsend(queue, text, sz, priority, SMALL(t)))
                        : real___mq_timedsend_time64(queue, text, sz, priority, t);
}

HOOK(ssize_t, __mq_timedreceive_time64,
     (mqd_t queue, char *text, size_t sz, unsigned *priority, const timespec64_t *t),
     (queue, text, sz, priority, t), refuse(ENOSYS))
{
    return is_in_task() ? NESTED(mq_timedreceive(queue, text, sz, priority, SMALL(t)))
                        : real___mq_timedreceive_time64(queue, text, sz, priority, t);
}

HOOK(int, __ioctl_time64, (int fd, unsigned long request, void *arg), (fd, request, arg),
     syscall(SYS_ioctl, fd, request, arg))
{
    int result = real___ioctl_time64(fd, request, arg);
    if (request == FIONBIO) {
        aco_i_tell_change(fd);
    }
    return result;
}

HOOK(int, __setsockopt64, (int fd, int level, int option, const void *value, socklen_t sz),
     (fd, level, option, value, sz), refuse(ENOSYS))
{
    int result = real___setsockopt64(fd, level, option, value, sz);
    aco_i_tell_change(fd);
    return result;
}

HOOK(ssize_t, __recvmsg64, (int fd, struct msghdr *msg, int flags), (fd, msg, flags),
     syscall(SYS_recvmsg, fd, msg, flags))
{
    return is_in_task() ? NESTED(recvmsg(fd, msg, flags)) : real___recvmsg64(fd, msg, flags);
}

HOOK(ssize_t, __sendmsg64, (int fd, const struct msghdr *msg, int flags), (fd, msg, flags),
     syscall(SYS_sendmsg, fd, msg, flags))
{
    return is_in_task() ? NESTED(sendmsg(fd, msg, flags)) : real___sendmsg64(fd, msg, flags);
}

HOOK(int, __sendmmsg64, (int fd, struct mmsghdr *messages, unsigned ct, int flags),
     (fd, messages, ct, flags), refuse(ENOSYS))
{
    return is_in_task() ? NESTED(sendmmsg(fd, messages, ct, flags))
                        : real___sendmmsg64(fd, messages, ct, flags);
}

/* ==== Children =============================================================================== */

/* The struct rusage of these programs. */
typedef struct {
    timeval64_t user, system;
    long others[(sizeof(struct rusage) - 2 * sizeof(struct timeval)) / sizeof(long)];
} rusage64_t;

HOOK(pid_t, __wait4_time64, (pid_t pid, int *status, int options, rusage64_t *usage),
     (pid, status, options, usage), refuse(ENOSYS))
{
    struct rusage u;
    if (!is_in_task()) {
        return real___wait4_time64(pid, status, options, usage);
    }
    pid_t got = NESTED(wait4(pid, status, options, &u));
    if (got > 0 && usage != NULL) {
        usage->user = (timeval64_t){u.ru_utime.tv_sec, u.ru_utime.tv_usec};
        usage->system = (timeval64_t){u.ru_stime.tv_sec, u.ru_stime.tv_usec};
        memcpy(usage->others, &u.ru_maxrss, sizeof(usage->others));
    }
    return got;
}

HOOK(pid_t, __wait3_time64, (int *status, int options, rusage64_t *usage), (status, options, usage),
     refuse(ENOSYS))
{
    return NESTED(hook___wait4_time64(-1, status, options, usage));
}

/* ==== Threads ================================================================================ */

/* Hooks `name`, a call on an object with a time limit, by `usual`. */
#define HOOK_UNTIL(name, type, usual)                                                              \
    HOOK(int, name, (type * object, const timespec64_t *t), (object, t), EAGAIN)                   \
    {                                                                                              \
        return is_in_task() ? NESTED(usual(object, SMALL(t))) : real_##name(object, t);            \
    }                                                                                              \
    _Static_assert(1, "")
#define HOOK_UNTIL_BY(name, type, usual)                                                           \
    HOOK(int, name, (type * object, clockid_t clock, const timespec64_t *t), (object, clock, t),   \
         EAGAIN)                                                                                   \
    {                                                                                              \
        return is_in_task() ? NESTED(usual(object, clock, SMALL(t)))                               \
                            : real_##name(object, clock, t);                                       \
    }                                                                                              \
    _Static_assert(1, "")

HOOK_UNTIL(__pthread_mutex_timedlock64, pthread_mutex_t, pthread_mutex_timedlock);
HOOK_UNTIL_BY(__pthread_mutex_clocklock64, pthread_mutex_t, pthread_mutex_clocklock);
HOOK_UNTIL(__pthread_rwlock_timedrdlock64, pthread_rwlock_t, pthread_rwlock_timedrdlock);
HOOK_UNTIL(__pthread_rwlock_timedwrlock64, pthread_rwlock_t, pthread_rwlock_timedwrlock);
HOOK_UNTIL_BY(__pthread_rwlock_clockrdlock64, pthread_rwlock_t, pthread_rwlock_clockrdlock);
HOOK_UNTIL_BY(__pthread_rwlock_clockwrlock64, pthread_rwlock_t, pthread_rwlock_clockwrlock);
HOOK_UNTIL(__sem_timedwait64, sem_t, sem_timedwait);
HOOK_UNTIL_BY(__sem_clockwait64, sem_t, sem_clockwait);
HOOK_UNTIL(__mtx_timedlock64, mtx_t, mtx_timedlock);

HOOK(int, __pthread_cond_timedwait64,
     (pthread_cond_t * cond, pthread_mutex_t *mutex, const timespec64_t *t), (cond, mutex, t),
     EAGAIN)
{
    return is_in_task() ? NESTED(pthread_cond_timedwait(cond, mutex, SMALL(t)))
                        : real___pthread_cond_timedwait64(cond, mutex, t);
}

HOOK(int, __pthread_cond_clockwait64,
     (pthread_cond_t * cond, pthread_mutex_t *mutex, clockid_t clock, const timespec64_t *t),
     (cond, mutex, clock, t), EAGAIN)
{
    return is_in_task() ? NESTED(pthread_cond_clockwait(cond, mutex, clock, SMALL(t)))
                        : real___pthread_cond_clockwait64(cond, mutex, clock, t);
}

HOOK(int, __cnd_timedwait64, (cnd_t * cond, mtx_t *mutex, const timespec64_t *t), (cond, mutex, t),
     thrd_error)
{
    return is_in_task() ? NESTED(cnd_timedwait(cond, mutex, SMALL(t)))
                        : real___cnd_timedwait64(cond, mutex, t);
}

HOOK(int, __pthread_timedjoin_np64, (pthread_t thread, void **result, const timespec64_t *t),
     (thread, result, t), EAGAIN)
{
    return is_in_task() ? NESTED(pthread_timedjoin_np(thread, result, SMALL(t)))
                        : real___pthread_timedjoin_np64(thread, result, t);
}

HOOK(int, __pthread_clockjoin_np64,
     (pthread_t thread, void **result, clockid_t clock, const timespec64_t *t),
     (thread, result, clock, t), EAGAIN)
{
    return is_in_task() ? NESTED(pthread_clockjoin_np(thread, result, clock, SMALL(t)))
                        : real___pthread_clockjoin_np64(thread, result, clock, t);
}
#endif
