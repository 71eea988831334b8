// SPDX-License-Identifier: Apache-2.0
/* Time, and waits for signals. */
#include "internal.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>

HOOKS_OF(time);

/* ==== Sleeping =============================================================================== */

/* Sleeps at least once, as a yield, even if there is no time left. */
static int sleep_till(int64_t until)
{
    return aco_sleep(until == NO_DEADLINE ? INT64_MAX : until - aco_i_clock());
}

static int sleep_for(const struct timespec *t, struct timespec *left, const void *caller)
{
    int64_t until = aco_i_after(ns_of(t));
    int result = ANSWERED_TO(caller, sleep_till(until));
    if (result != 0 && left != NULL) {
        *left = left_until(until);
    }
    return result;
}

HOOK(int, nanosleep, (const struct timespec *t, struct timespec *left), (t, left),
     syscall(SYS_nanosleep, t, left))
{
    return is_in_task() && t != NULL && is_valid_time(t) ? sleep_for(t, left, CALLER)
                                                         : real_nanosleep(t, left);
}
HOOK_ALIAS(__nanosleep, nanosleep);

HOOK(int, usleep, (useconds_t us), (us), refuse(ENOSYS))
{
    struct timespec t = timespec_of((int64_t)us * 1000);
    return is_in_task() ? sleep_for(&t, NULL, CALLER) : real_usleep(us);
}

HOOK(unsigned, sleep, (unsigned s), (s), s)
{
    if (!is_in_task()) {
        return real_sleep(s);
    }
    struct timespec t = {(time_t)s, 0}, left = {0, 0};
    return sleep_for(&t, &left, CALLER) == 0 ? 0
                                             : (unsigned)left.tv_sec + (left.tv_nsec >= SECOND / 2);
}

/* Sleeps until a point in time of a clock that may be set. */
static int sleep_until(clockid_t clock, const struct timespec *t)
{
    struct itimerspec when = {{0, 0}, *t};
    int fd = timerfd_create(clock, TFD_CLOEXEC | TFD_NONBLOCK);
    if (fd < 0) {
        return -1;
    }
    when.it_value.tv_nsec += t->tv_sec == 0 && t->tv_nsec == 0; /* zero would disarm it */
    int result = timerfd_settime(fd, TFD_TIMER_ABSTIME, &when, NULL);
    if (result == 0) {
        result = aco_wait_fd(fd, POLLIN) < 0 ? -1 : 0;
    }
    KEEP_ERRNO();
    aco_close(fd);
    return result;
}

HOOK(int, clock_nanosleep,
     (clockid_t clock, int flags, const struct timespec *t, struct timespec *left),
     (clock, flags, t, left), refuse(ENOSYS) < 0 ? ENOSYS : 0)
{
    int is_absolute = (flags & TIMER_ABSTIME) != 0;
    if (!is_in_task() || t == NULL || !is_valid_time(t) || clock < 0 ||
        clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID) {
        return real_clock_nanosleep(clock, flags, t, left);
    }
    KEEP_ERRNO();
    int result = clock != CLOCK_MONOTONIC && (is_absolute || clock != CLOCK_REALTIME)
                     ? ANSWERED(sleep_until(clock, t))
                 : is_absolute ? ANSWERED(sleep_till(ns_of(t)))
                               : sleep_for(t, left, CALLER);
    return result == 0 ? 0 : errno;
}

/* ==== Signals ================================================================================ */

HOOK(int, pause, (void), (), refuse(ENOSYS))
{
    return is_in_task() ? ANSWERED(aco_sleep(INT64_MAX)) : real_pause();
}

/* ppoll() waits for signals that the mask lets through. */
HOOK(int, sigsuspend, (const sigset_t *mask), (mask), refuse(ENOSYS))
{
    return is_in_task() && mask != NULL ? NESTED(ppoll(NULL, 0, NULL, mask))
                                        : real_sigsuspend(mask);
}
HOOK_ALIAS(__sigsuspend, sigsuspend);

static int wait_for_signal(const sigset_t *set, siginfo_t *info, int64_t until);

HOOK(int, sigtimedwait, (const sigset_t *set, siginfo_t *info, const struct timespec *timeout),
     (set, info, timeout), refuse(ENOSYS))
{
    if (!is_in_task() || (timeout != NULL && !is_valid_time(timeout))) {
        return real_sigtimedwait(set, info, timeout);
    }
    int64_t until = end_of(timeout);
    return ANSWERED(wait_for_signal(set, info, until));
}

HOOK(int, sigwaitinfo, (const sigset_t *set, siginfo_t *info), (set, info), refuse(ENOSYS))
{
    return is_in_task() ? ANSWERED(wait_for_signal(set, info, NO_DEADLINE))
                        : real_sigwaitinfo(set, info);
}

HOOK(int, sigwait, (const sigset_t *set, int *number), (set, number), ENOSYS)
{
    if (!is_in_task()) {
        return real_sigwait(set, number);
    }
    KEEP_ERRNO();
    int got = ANSWERED(wait_for_signal(set, NULL, NO_DEADLINE));
    if (got > 0) {
        *number = got;
    }
    return got < 0 ? errno : 0;
}

static int wait_for_signal(const sigset_t *set, siginfo_t *info, int64_t until)
{
    static const struct timespec at_once;
    int got = real_sigtimedwait(set, info, &at_once);
    if (got >= 0 || errno != EAGAIN) {
        return got;
    }
    struct pollfd polled = {signalfd(-1, set, SFD_NONBLOCK | SFD_CLOEXEC), POLLIN, 0};
    if (polled.fd < 0) {
        return -1;
    }
    for (int ct = 1; got < 0 && ct > 0 && errno == EAGAIN;) {
        ct = aco_i_poll(&polled, 1, until); /* other waiters for the signal may be first */
        errno = ct == 0 ? EAGAIN : errno;
        got = ct > 0 ? real_sigtimedwait(set, info, &at_once) : -1;
    }
    KEEP_ERRNO();
    aco_close(polled.fd);
    return got;
}

/* ==== The processor ========================================================================== */

HOOK(int, sched_yield, (void), (), syscall(SYS_sched_yield))
{
    if (!is_in_task()) {
        return real_sched_yield();
    }
    if (!aco_i_has_ready()) {
        real_sched_yield();
    }
    aco_i_yield();
    return 0;
}
HOOK_ALIAS(__sched_yield, sched_yield);
