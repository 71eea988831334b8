// SPDX-License-Identifier: Apache-2.0
/*
 * Waits for several descriptors. Each turn asks the kernel without waiting, so the caller gets the
 * kernel's answer; between turns, the task waits until one of the descriptors has an event.
 *
 * The signal mask of a call can't be that of the thread, where other tasks run. A signalfd waits
 * for the signals that the mask lets through and the thread blocks, and they are delivered when the
 * kernel is asked with the mask.
 */
#include "internal.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <time.h>

HOOKS_OF(poll);

/* ==== Signals that a mask lets through ======================================================= */

/* Opens a descriptor that is readable when one of these signals has come. -1: there are none. */
static int open_signals(const sigset_t *mask)
{
    sigset_t blocked, let_through;
    int is_any = 0;
    if (mask == NULL || pthread_sigmask(SIG_BLOCK, NULL, &blocked) != 0) {
        return -1;
    }
    sigemptyset(&let_through);
    for (int number = 1; number < _NSIG; number++) {
        if (sigismember(&blocked, number) == 1 && sigismember(mask, number) == 0) {
            sigaddset(&let_through, number);
            is_any = 1;
        }
    }
    return is_any ? signalfd(-1, &let_through, SFD_CLOEXEC | SFD_NONBLOCK) : -1;
}

/* ==== A wait ================================================================================= */

/* The descriptors and signals that a call waits for. */
typedef struct many_s {
    int (*ask)(struct many_s *many); /* asks the kernel, without waiting; its result */
    const sigset_t *mask;            /* NULL: that of the thread */
    struct pollfd *fds;              /* with one more at the end, for signals */
    nfds_t ct;
} many_t;

/* Asks the kernel. A signal may end that, although nothing waits, which counts if the call has a
 * mask. */
static int ask(many_t *many)
{
    int before = errno, result;
    do {
        result = many->ask(many);
    } while (result < 0 && errno == EINTR && many->mask == NULL);
    errno = result < 0 ? errno : before;
    return result;
}

#define LEFT_OUT INT_MIN     /* is added to a descriptor */
#define FIRST_LEAVE 1000000  /* ns for which descriptors are left out */
#define LAST_LEAVE 100000000 /* ns; the time doubles up to this */

/* Leaves out descriptors that poll() finds ready and the call does not: they may become ready for
 * it in another way. Returns whether there are any. */
static int leave_out(many_t *many)
{
    int has_left_out = 0;
    for (nfds_t i = 0; i < many->ct; i++) {
        struct pollfd *polled = &many->fds[i];
        if (polled->fd >= 0 && (polled->revents & polled->events) == 0 && polled->revents != 0) {
            polled->fd += LEFT_OUT;
            has_left_out = 1;
        }
    }
    return has_left_out;
}

static void take_in(many_t *many)
{
    for (nfds_t i = 0; i < many->ct; i++) {
        int fd = many->fds[i].fd;
        many->fds[i].fd = fd < LEFT_OUT / 2 ? fd - LEFT_OUT
                                            : fd; /* others below 0 are the caller's */
    }
}

static int take_signals(const sigset_t *mask);

static int wait_for_many(many_t *many, int64_t until)
{
    int signals = open_signals(many->mask);
    int result;
    int64_t leave = FIRST_LEAVE, end = until;
    many->fds[many->ct] = (struct pollfd){signals, POLLIN, 0};
    while ((result = ask(many)) == 0) {
        int ct = aco_i_poll(many->fds, many->ct + 1, end);
        if (ct < 0 || (ct == 0 && end == until)) {
            result = ct;
            break;
        }
        if (ct == 0) {
            take_in(many);
            end = until;
        } else if (leave_out(many)) {
            int64_t again = aco_i_after(leave);
            end = again < until ? again : until;
            leave = leave < LAST_LEAVE ? 2 * leave : leave;
        }
        if (many->fds[many->ct].revents != 0 && (result = take_signals(many->mask)) != 0) {
            break;
        }
    }
    KEEP_ERRNO();
    if (signals >= 0) {
        aco_close(signals);
    }
    return result;
}

/* ==== poll =================================================================================== */

static int64_t end_of_ms(int timeout)
{
    return timeout < 0 ? NO_DEADLINE : timeout == 0 ? 0 : aco_i_after((int64_t)timeout * 1000000);
}

static int poll_in_task(struct pollfd *fds, nfds_t ct, int64_t until)
{
    return until == 0 ? aco_poll(fds, ct, 0) : aco_i_poll(fds, ct, until);
}

HOOK(int, poll, (struct pollfd * fds, nfds_t ct, int timeout), (fds, ct, timeout), refuse(ENOSYS))
{
    if (!is_in_task()) {
        return real_poll(fds, ct, timeout);
    }
    int64_t until = end_of_ms(timeout);
    return WAITING_IF(until != 0, poll_in_task(fds, ct, until));
}
HOOK_ALIAS(__poll, poll);

HOOK(int, __poll_chk, (struct pollfd * fds, nfds_t ct, int timeout, size_t sz),
     (fds, ct, timeout, sz), refuse(ENOSYS))
{
    if (!is_in_task() || sz / sizeof(*fds) < ct) {
        return real___poll_chk(fds, ct, timeout, sz);
    }
    int64_t until = end_of_ms(timeout);
    return WAITING_IF(until != 0, poll_in_task(fds, ct, until));
}

typedef struct {
    many_t many;
    struct pollfd *fds; /* the caller's */
} ppoll_t;

static int ask_ppoll(many_t *many);

static int ppoll_in_task(struct pollfd *fds, nfds_t ct, int64_t until, const sigset_t *mask)
{
    ppoll_t p = {{ask_ppoll, mask, NULL, ct}, fds};
    aco_i_spend_call();
    int result = ask(&p.many);
    if (result != 0) {
        return result;
    }
    if (mask == NULL) {
        return until == 0 ? 0 : aco_i_poll(fds, ct, until);
    }
    p.many.fds = (struct pollfd *)aco_i_allocate((ct + 1) * sizeof(*fds));
    if (p.many.fds == NULL) {
        return (int)refuse(ENOMEM);
    }
    if (ct != 0) {
        memcpy(p.many.fds, fds, ct * sizeof(*fds));
    }
    result = wait_for_many(&p.many, until);
    KEEP_ERRNO();
    aco_i_release(p.many.fds);
    return result;
}

HOOK(int, ppoll, (struct pollfd * fds, nfds_t ct, const struct timespec *t, const sigset_t *mask),
     (fds, ct, t, mask), refuse(ENOSYS))
{
    if (!is_in_task() || (t != NULL && !is_valid_time(t))) {
        return real_ppoll(fds, ct, t, mask);
    }
    int64_t until = end_of(t);
    return WAITING_IF(until != 0, ppoll_in_task(fds, ct, until, mask));
}

HOOK(int, __ppoll_chk,
     (struct pollfd * fds, nfds_t ct, const struct timespec *t, const sigset_t *mask, size_t sz),
     (fds, ct, t, mask, sz), refuse(ENOSYS))
{
    if (!is_in_task() || (t != NULL && !is_valid_time(t)) || sz / sizeof(*fds) < ct) {
        return real___ppoll_chk(fds, ct, t, mask, sz);
    }
    int64_t until = end_of(t);
    return WAITING_IF(until != 0, ppoll_in_task(fds, ct, until, mask));
}

/* -1 with EINTR if a signal came that the mask lets through: not all calls that don't wait notice
 * it. */
static int take_signals(const sigset_t *mask)
{
    static const struct timespec at_once;
    return real_ppoll(NULL, 0, &at_once, mask);
}

static int ask_ppoll(many_t *many)
{
    static const struct timespec at_once;
    return real_ppoll(((ppoll_t *)many)->fds, many->ct, &at_once, many->mask);
}

/* ==== select ================================================================================= */

#define CT_SETS 3
#define SET_BITS (8 * (int)sizeof(long))

typedef struct {
    many_t many;
    int ct;              /* numbers */
    size_t set_sz;       /* bytes of a set */
    long *sets[CT_SETS]; /* the caller's; each may be NULL */
    long *asked[CT_SETS];
} select_t;

static void copy_sets(const select_t *s, long *const to[CT_SETS], long *const from[CT_SETS])
{
    for (int i = 0; i < CT_SETS; i++) {
        if (s->sets[i] != NULL) {
            memcpy(to[i], from[i], s->set_sz);
        }
    }
}

static int is_in_set(const long *set, int fd)
{
    return set != NULL && ((unsigned long)set[fd / SET_BITS] >> fd % SET_BITS & 1) != 0;
}

/* Lists the descriptors in the sets for poll(). */
static void list_set(select_t *s)
{
    static const short events[CT_SETS] = {POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR, POLLPRI};
    for (int fd = 0; fd < s->ct; fd++) {
        short all = 0;
        for (int i = 0; i < CT_SETS; i++) {
            all = (short)(all | (is_in_set(s->asked[i], fd) ? events[i] : 0));
        }
        if (all != 0) {
            s->many.fds[s->many.ct++] = (struct pollfd){fd, all, 0};
        }
    }
}

static int ask_select(many_t *many);

/* The size of the process's table of descriptors, where the kernel ends the sets of select();
 * FD_SETSIZE if it can't be known. */
static int table_sz(void)
{
    KEEP_ERRNO();
    char text[1024];
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC);
    long sz = syscall(SYS_read, fd, text, sizeof(text) - 1); /* fails if that has failed */
    text[sz < 0 ? 0 : sz] = '\0';
    const char *line = strstr(text, "\nFDSize:");
    syscall(SYS_close, fd);
    return line != NULL ? atoi(line + sizeof("\nFDSize:") - 1) : FD_SETSIZE;
}

static int select_in_task(int ct, long *in, long *out, long *except, int64_t until,
                          const sigset_t *mask)
{
    aco_i_spend_call();
    int most = ct > FD_SETSIZE ? table_sz() : ct;
    ct = ct < most ? ct : most;
    select_t s = {.many = {ask_select, mask, NULL, 0}, .ct = ct, .sets = {in, out, except}};
    s.set_sz = ((size_t)ct + SET_BITS - 1) / SET_BITS * sizeof(long);
    size_t fds_sz = ((size_t)ct + 1) * sizeof(struct pollfd);
    char *block = (char *)aco_i_allocate(CT_SETS * s.set_sz + fds_sz);
    if (block == NULL) {
        return (int)refuse(ENOMEM);
    }
    s.many.fds = (struct pollfd *)(void *)(block + CT_SETS * s.set_sz);
    for (size_t i = 0; i < CT_SETS; i++) {
        s.asked[i] = s.sets[i] == NULL ? NULL : (long *)(void *)(block + i * s.set_sz);
    }
    copy_sets(&s, s.asked, s.sets);
    int result = ask(&s.many);
    if (result == 0 && until != 0) {
        list_set(&s);
        result = wait_for_many(&s.many, until);
    }
    KEEP_ERRNO();
    if (result < 0) {
        copy_sets(&s, s.sets, s.asked);
    }
    aco_i_release(block);
    return result;
}

static int is_valid_select(int ct, const struct timeval *t)
{
    return ct >= 0 && (t == NULL || (t->tv_sec >= 0 && t->tv_usec >= 0));
}

HOOK(int, select, (int ct, void *in, void *out, void *except, struct timeval *timeout),
     (ct, in, out, except, timeout), refuse(ENOSYS))
{
    if (!is_in_task() || !is_valid_select(ct, timeout)) {
        return real_select(ct, in, out, except, timeout);
    }
    struct timespec t = {0, 0};
    if (timeout != NULL) {
        t = (struct timespec){timeout->tv_sec + timeout->tv_usec / 1000000,
                              timeout->tv_usec % 1000000 * 1000};
    }
    int64_t until = end_of(timeout != NULL ? &t : NULL);
    int result = WAITING_IF(
        until != 0, select_in_task(ct, (long *)in, (long *)out, (long *)except, until, NULL));
    if (timeout != NULL) {
        KEEP_ERRNO();
        t = left_until(until);
        *timeout = (struct timeval){t.tv_sec, (suseconds_t)(t.tv_nsec / 1000)};
    }
    return result;
}
HOOK_ALIAS(__select, select);

HOOK(int, pselect,
     (int ct, void *in, void *out, void *except, const struct timespec *t, const sigset_t *mask),
     (ct, in, out, except, t, mask), refuse(ENOSYS))
{
    if (!is_in_task() || ct < 0 || (t != NULL && !is_valid_time(t))) {
        return real_pselect(ct, in, out, except, t, mask);
    }
    int64_t until = end_of(t);
    return WAITING_IF(until != 0,
                      select_in_task(ct, (long *)in, (long *)out, (long *)except, until, mask));
}

static int ask_select(many_t *many)
{
    static const struct timespec at_once;
    select_t *s = (select_t *)many;
    copy_sets(s, s->sets, s->asked);
    return real_pselect(s->ct, s->sets[0], s->sets[1], s->sets[2], &at_once, many->mask);
}

/* ==== epoll ================================================================================== */

typedef struct {
    many_t many;
    struct pollfd fds[2];
    struct epoll_event *events;
    int ct;
} epoll_t;

static int ask_epoll(many_t *many);

static int epoll_in_task(int fd, struct epoll_event *events, int ct, int64_t until,
                         const sigset_t *mask)
{
    epoll_t e = {.many = {ask_epoll, mask, e.fds, 1}, .fds = {{fd, POLLIN, 0}}};
    e.events = events;
    e.ct = ct;
    aco_i_spend_call();
    int result = ask(&e.many);
    return result == 0 && until != 0 ? wait_for_many(&e.many, until) : result;
}

HOOK(int, epoll_wait, (int fd, struct epoll_event *events, int ct, int timeout),
     (fd, events, ct, timeout), syscall(SYS_epoll_pwait, fd, events, ct, timeout, NULL, 0))
{
    if (!is_in_task()) {
        return real_epoll_wait(fd, events, ct, timeout);
    }
    int64_t until = end_of_ms(timeout);
    return WAITING_IF(until != 0, epoll_in_task(fd, events, ct, until, NULL));
}

HOOK(int, epoll_pwait,
     (int fd, struct epoll_event *events, int ct, int timeout, const sigset_t *mask),
     (fd, events, ct, timeout, mask), refuse(ENOSYS))
{
    if (!is_in_task()) {
        return real_epoll_pwait(fd, events, ct, timeout, mask);
    }
    int64_t until = end_of_ms(timeout);
    return WAITING_IF(until != 0, epoll_in_task(fd, events, ct, until, mask));
}

HOOK(int, epoll_pwait2,
     (int fd, struct epoll_event *events, int ct, const struct timespec *t, const sigset_t *mask),
     (fd, events, ct, t, mask), refuse(ENOSYS))
{
    if (!is_in_task() || (t != NULL && !is_valid_time(t))) {
        return real_epoll_pwait2(fd, events, ct, t, mask);
    }
    int64_t until = end_of(t);
    return WAITING_IF(until != 0, epoll_in_task(fd, events, ct, until, mask));
}

static int ask_epoll(many_t *many)
{
    epoll_t *e = (epoll_t *)many;
    return real_epoll_pwait(e->many.fds[0].fd, e->events, e->ct, 0, many->mask);
}
