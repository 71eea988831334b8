// SPDX-License-Identifier: Apache-2.0
/*
 * Signals of threads. Each has a mask of its own, which the kernel does not know: the threads of
 * the loops block what comes to the process, so that it goes to the program's first thread, or to
 * a thread in sigwait(). Signals to a thread by pthread_kill() are kept in its handle; handlers run
 * in that thread.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define MOST_SIGNALS 64
#define BIT_OF(number) (UINT64_C(1) << ((number)-1))

REPLACE(int, pthread_sigmask, (int how, const sigset_t *set, sigset_t *before), (how, set, before),
        (int)aco_i_syscall(SYS_rt_sigprocmask, how, set, before, MOST_SIGNALS / 8));

static uint64_t bits_of(const sigset_t *set)
{
    uint64_t bits;
    memcpy(&bits, set, sizeof(bits));
    return bits;
}

static void set_bits(sigset_t *set, uint64_t bits)
{
    memset(set, 0, sizeof(*set));
    memcpy(set, &bits, sizeof(bits));
}

void aco_i_begin_signals(thread_t *thread, const thread_t *creator)
{
    sigset_t set;
    sigemptyset(&set);
    if (creator == NULL) {
        real_pthread_sigmask(SIG_BLOCK, NULL, &set);
    }
    thread->blocked = creator != NULL ? creator->blocked : bits_of(&set);
}

void aco_i_take_signals(const thread_t *thread)
{
    sigset_t set;
    set_bits(&set, thread->blocked);
    real_pthread_sigmask(SIG_SETMASK, &set, NULL);
}

/* ==== Delivery =============================================================================== */

static void call_handler(thread_t *thread, const struct sigaction *action, int number)
{
    uint64_t before = thread->blocked;
    siginfo_t info;
    memset(&info, 0, sizeof(info));
    info.si_signo = number;
    info.si_code = SI_TKILL;
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value = thread->value;
    thread->blocked |= bits_of(&action->sa_mask);
    thread->blocked |= (action->sa_flags & SA_NODEFER) == 0 ? BIT_OF(number) : 0;
    if ((action->sa_flags & SA_SIGINFO) != 0) {
        action->sa_sigaction(number, &info, NULL);
    } else {
        action->sa_handler(number);
    }
    thread->blocked = before;
}

/* Does what a signal does. The kernel knows what that is for those without a handler: it then
 * concerns the process. */
static void deliver(thread_t *thread, int number)
{
    struct sigaction action;
    if (sigaction(number, NULL, &action) != 0) {
        return;
    }
    int has_handler = (action.sa_flags & SA_SIGINFO) != 0 ||
                      (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
    if (!has_handler) {
        aco_i_syscall(SYS_kill, getpid(), number);
        return;
    }
    if ((action.sa_flags & (int)SA_RESETHAND) != 0) {
        signal(number, SIG_DFL);
    }
    call_handler(thread, &action, number);
}

/* Called by the thread itself. */
static void deliver_pending(thread_t *thread)
{
    KEEP_ERRNO();
    uint64_t bits;
    while ((bits = __atomic_load_n(&thread->pending, __ATOMIC_ACQUIRE) & ~thread->blocked) != 0) {
        int number = __builtin_ctzll(bits) + 1;
        __atomic_and_fetch(&thread->pending, ~BIT_OF(number), __ATOMIC_ACQ_REL);
        deliver(thread, number);
    }
}

static int send_signal(thread_t *thread, int number)
{
    if (thread->state == HANDLE_FREE) {
        return ESRCH;
    }
    if (number < 0 || number > MOST_SIGNALS) {
        return EINVAL;
    }
    if (number == 0 || __atomic_load_n(&thread->is_over, __ATOMIC_ACQUIRE) != 0) {
        return 0;
    }
    lock(&thread->lock);
    __atomic_or_fetch(&thread->pending, BIT_OF(number), __ATOMIC_ACQ_REL);
    if (thread->wake_fd != 0) {
        eventfd_write(thread->wake_fd - 1, 1);
    }
    unlock(&thread->lock);
    if (thread == this_thread()) {
        deliver_pending(thread);
    }
    return 0;
}

REPLACE(int, pthread_kill, (pthread_t id, int number), (id, number), EINVAL)
{
    thread_t *thread = aco_i_handle_of(id);
    return thread != NULL ? send_signal(thread, number) : real_pthread_kill(id, number);
}

REPLACE(int, pthread_sigqueue, (pthread_t id, int number, union sigval value), (id, number, value),
        EINVAL)
{
    thread_t *thread = aco_i_handle_of(id);
    if (thread == NULL) {
        return real_pthread_sigqueue(id, number, value);
    }
    thread->value = value;
    return send_signal(thread, number);
}

REPLACE(int, tgkill, (pid_t process, pid_t tid, int number), (process, tid, number),
        (int)aco_i_syscall(SYS_tgkill, process, tid, number))
{
    thread_t *thread = process == getpid() ? aco_i_handle_of_tid(tid) : NULL;
    int error = thread != NULL ? send_signal(thread, number) : 0;
    return thread == NULL ? real_tgkill(process, tid, number) : error == 0 ? 0 : (int)refuse(error);
}

REPLACE(int, raise, (int number), (number), -1)
{
    thread_t *thread = this_thread();
    int error = thread != NULL ? send_signal(thread, number) : 0;
    return thread == NULL ? real_raise(number) : error == 0 ? 0 : (int)refuse(error);
}

/* ==== Masks ================================================================================== */

int name_pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
    thread_t *thread = this_thread();
    if (thread == NULL) {
        return real_pthread_sigmask(how, set, before);
    }
    uint64_t bits = set != NULL ? bits_of(set) : 0, old = thread->blocked;
    if (set != NULL && how != SIG_BLOCK && how != SIG_UNBLOCK && how != SIG_SETMASK) {
        return EINVAL;
    }
    if (set != NULL) {
        bits &= ~(BIT_OF(SIGKILL) | BIT_OF(SIGSTOP));
        thread->blocked = how == SIG_BLOCK ? old | bits : how == SIG_UNBLOCK ? old & ~bits : bits;
    }
    if (before != NULL) {
        set_bits(before, old);
    }
    deliver_pending(thread);
    return 0;
}

REPLACE(int, sigprocmask, (int how, const sigset_t *set, sigset_t *before), (how, set, before),
        (int)aco_i_syscall(SYS_rt_sigprocmask, how, set, before, MOST_SIGNALS / 8))
{
    int error = this_thread() != NULL ? name_pthread_sigmask(how, set, before) : -1;
    return error < 0 ? real_sigprocmask(how, set, before) : error == 0 ? 0 : (int)refuse(error);
}

REPLACE(int, sigpending, (sigset_t * set), (set), -1)
{
    const thread_t *thread = this_thread();
    int result = real_sigpending(set);
    if (result == 0 && thread != NULL) {
        set_bits(set, bits_of(set) | thread->pending);
    }
    return result;
}

/* ==== Waiting for signals ==================================================================== */

/* Takes a pending signal of a set and returns its number; 0 if there is none. */
static int take_pending(thread_t *thread, uint64_t bits, siginfo_t *info)
{
    bits &= __atomic_load_n(&thread->pending, __ATOMIC_ACQUIRE);
    if (bits == 0) {
        return 0;
    }
    int number = __builtin_ctzll(bits) + 1;
    __atomic_and_fetch(&thread->pending, ~BIT_OF(number), __ATOMIC_ACQ_REL);
    if (info != NULL) {
        memset(info, 0, sizeof(*info));
        info->si_signo = number;
        info->si_code = SI_TKILL;
        info->si_pid = getpid();
        info->si_uid = getuid();
        info->si_value = thread->value;
    }
    return number;
}

static void set_wake_fd(thread_t *thread, int fd)
{
    lock(&thread->lock);
    thread->wake_fd = fd;
    unlock(&thread->lock);
}

/* Waits for signals to the process, and for those to the thread, which come by way of fds[1]. */
static int wait_with(thread_t *thread, const sigset_t *set, siginfo_t *info, int64_t until,
                     struct pollfd *fds)
{
    static const struct timespec at_once;
    for (eventfd_t ct_sent;; eventfd_read(fds[1].fd, &ct_sent)) {
        int number = take_pending(thread, bits_of(set), info);
        number = number != 0 ? number : aco_i_libc.sigtimedwait(set, info, &at_once);
        if (number > 0 || errno != EAGAIN) {
            return number;
        }
        int ct = aco_i_poll(fds, 2, until);
        if (ct <= 0) {
            errno = ct == 0 ? EAGAIN : errno;
            return -1;
        }
    }
}

static int wait_for_signal(thread_t *thread, const sigset_t *set, siginfo_t *info, int64_t until)
{
    struct pollfd fds[2] = {{signalfd(-1, set, SFD_NONBLOCK | SFD_CLOEXEC), POLLIN, 0},
                            {eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), POLLIN, 0}};
    int number = -1;
    pthread_testcancel();
    if (fds[0].fd >= 0 && fds[1].fd >= 0) {
        set_wake_fd(thread, fds[1].fd + 1);
        number = wait_with(thread, set, info, until, fds);
        set_wake_fd(thread, 0);
    }
    KEEP_ERRNO();
    for (int i = 0; i < 2; i++) {
        if (fds[i].fd >= 0) {
            aco_close(fds[i].fd);
        }
    }
    pthread_testcancel();
    return number;
}

REPLACE_HOOK(int, sigtimedwait, (const sigset_t *set, siginfo_t *info, const struct timespec *t))
{
    thread_t *thread = this_thread();
    return thread == NULL || (t != NULL && !is_valid_time(t))
               ? hook_sigtimedwait(set, info, t)
               : wait_for_signal(thread, set, info, end_of(t));
}

REPLACE_HOOK(int, sigwaitinfo, (const sigset_t *set, siginfo_t *info))
{
    thread_t *thread = this_thread();
    return thread == NULL ? hook_sigwaitinfo(set, info)
                          : wait_for_signal(thread, set, info, NO_DEADLINE);
}

REPLACE_HOOK(int, sigwait, (const sigset_t *set, int *number))
{
    thread_t *thread = this_thread();
    if (thread == NULL) {
        return hook_sigwait(set, number);
    }
    KEEP_ERRNO();
    int got = wait_for_signal(thread, set, NULL, NO_DEADLINE);
    if (got > 0) {
        *number = got;
    }
    return got < 0 ? errno : 0;
}
