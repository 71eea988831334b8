// SPDX-License-Identifier: Apache-2.0
/*
 * Signals of threads. Each has a mask of its own, which the kernel does not know: the threads of
 * the loops block what comes to the process, so that it goes to the program's first thread, or to
 * a thread in sigwait(). Signals to a thread by pthread_kill() are kept in its handle; handlers run
 * in that thread.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <ucontext.h>
#include <unistd.h>

#define MOST_SIGNALS 64
#define BIT_OF(number) (UINT64_C(1) << ((number)-1))
#define FAULTS                                                                                     \
    (BIT_OF(SIGSEGV) | BIT_OF(SIGBUS) | BIT_OF(SIGFPE) | BIT_OF(SIGILL) | BIT_OF(SIGTRAP) |        \
     BIT_OF(SIGABRT) | BIT_OF(SIGSYS))

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

void aco_i_take_signals(const thread_t *thread)
{
    sigset_t set;
    set_bits(&set, thread->blocked);
    real_pthread_sigmask(SIG_SETMASK, &set, NULL);
}

/* Before signals are looked for: their sender looks at the mask after it has sent one. */
static void set_blocked(thread_t *thread, uint64_t bits)
{
    __atomic_store_n(&thread->blocked, bits & ~(BIT_OF(SIGKILL) | BIT_OF(SIGSTOP)),
                     __ATOMIC_SEQ_CST);
    if (aco_i_loop == NULL) { /* a child's only thread, which no loop runs */
        aco_i_take_signals(thread);
    }
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

/* ==== Handlers =============================================================================== */

/* Tells of a signal by pthread_kill() or pthread_sigqueue(). */
static void describe(const thread_t *thread, int number, siginfo_t *info)
{
    memset(info, 0, sizeof(*info));
    info->si_signo = number;
    info->si_code = SI_TKILL;
    info->si_pid = getpid();
    info->si_uid = getuid();
    info->si_value = thread->value;
}

static void call_with_mask(thread_t *thread, const struct sigaction *action, siginfo_t *info)
{
    uint64_t before = thread->blocked;
    unsigned ct_handlers = thread->ct_handlers++;
    thread->blocked_outside = ct_handlers == 0 ? before : thread->blocked_outside;
    uint64_t own = (action->sa_flags & SA_NODEFER) == 0 ? BIT_OF(info->si_signo) : 0;
    set_blocked(thread, before | bits_of(&action->sa_mask) | own);
    if ((action->sa_flags & SA_SIGINFO) != 0) {
        ucontext_t context;
        getcontext(&context);
        action->sa_sigaction(info->si_signo, info, &context);
    } else {
        action->sa_handler(info->si_signo);
    }
    thread->ct_handlers = ct_handlers;
    set_blocked(thread, before);
}

/* The handler may wait, and leave by a jump: so what holds for the interrupted wait alone does not
 * hold in it. */
static void call_handler(thread_t *thread, const struct sigaction *action, siginfo_t *info)
{
    aco_task_t *task = thread->task;
    if (task == NULL || aco_i_loop == NULL) { /* in a child */
        call_with_mask(thread, action, info);
        return;
    }
    int ct_shields = task->ct_shields;
    int64_t deadline = task->deadline;
    const void *caller = task->caller;
    set_cancellable(thread, 0);
    task->deadline = NO_DEADLINE;
    task->caller = NULL;
    call_with_mask(thread, action, info);
    task->ct_shields = ct_shields;
    task->deadline = deadline;
    task->caller = caller;
}

/* Lets the kernel do what a signal does that has no handler: it then concerns the process. */
static void act_by_default(int number)
{
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, number);
    real_pthread_sigmask(SIG_UNBLOCK, &set, &before);
    aco_i_syscall(SYS_tgkill, getpid(), (int)aco_i_syscall(SYS_gettid), number);
    real_pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static int has_handler(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) != 0 ||
           (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN);
}

static aco_i_interrupt_t handle(thread_t *thread, siginfo_t *info)
{
    struct sigaction action;
    if (sigaction(info->si_signo, NULL, &action) != 0) {
        return INTERRUPT_NOTHING;
    }
    if (!has_handler(&action)) {
        act_by_default(info->si_signo);
        return INTERRUPT_NOTHING;
    }
    if ((action.sa_flags & (int)SA_RESETHAND) != 0) {
        signal(info->si_signo, SIG_DFL);
    }
    call_handler(thread, &action, info);
    return (action.sa_flags & SA_RESTART) != 0 ? INTERRUPT_RESTARTS : INTERRUPT_FAILS;
}

/* ==== Delivery =============================================================================== */

/* Takes signals of the process that the running thread does not block, and nobody else has taken:
 * the thread of the loop blocks all. */
static aco_i_interrupt_t take_signals_of_process(thread_t *thread)
{
    static const struct timespec at_once;
    aco_i_interrupt_t most = INTERRUPT_NOTHING;
    siginfo_t info;
    sigset_t set;
    __atomic_store_n(&thread->must_look, 0, __ATOMIC_SEQ_CST);
    while (set_bits(&set, ~(thread->blocked | thread->awaited | FAULTS)),
           aco_i_libc.sigtimedwait(&set, &info, &at_once) > 0) {
        aco_i_interrupt_t one = handle(thread, &info);
        most = one > most ? one : most;
    }
    return most;
}

/* Called by the thread itself. */
static aco_i_interrupt_t deliver(thread_t *thread)
{
    KEEP_ERRNO();
    aco_i_interrupt_t most = INTERRUPT_NOTHING, one;
    uint64_t bits;
    while ((bits = __atomic_load_n(&thread->pending, __ATOMIC_SEQ_CST) &
                   ~(thread->blocked | thread->awaited)) != 0) {
        siginfo_t info;
        describe(thread, __builtin_ctzll(bits) + 1, &info);
        __atomic_and_fetch(&thread->pending, ~BIT_OF(info.si_signo), __ATOMIC_SEQ_CST);
        one = handle(thread, &info);
        most = one > most ? one : most;
    }
    if (__atomic_load_n(&thread->must_look, __ATOMIC_SEQ_CST)) {
        one = take_signals_of_process(thread);
        most = one > most ? one : most;
    }
    return most;
}

void aco_i_deliver(thread_t *thread)
{
    deliver(thread);
}

aco_i_interrupt_t aco_i_handle_interrupt(aco_task_t *task)
{
    thread_t *thread = (thread_t *)task->arg;
    __atomic_store_n(&task->is_interrupted, 0, __ATOMIC_SEQ_CST);
    aco_i_interrupt_t interrupt = deliver(thread);
    return (__atomic_load_n(&thread->pending, __ATOMIC_SEQ_CST) & thread->awaited) != 0
               ? INTERRUPT_FAILS
               : interrupt;
}

/* ==== Sending ================================================================================ */

/* Whether a signal that comes now is to interrupt the wait of a thread. */
static int is_wanted(const thread_t *thread, uint64_t bit)
{
    uint64_t blocked = __atomic_load_n(&thread->blocked, __ATOMIC_SEQ_CST);
    return (blocked & bit) == 0 || (__atomic_load_n(&thread->awaited, __ATOMIC_SEQ_CST) & bit) != 0;
}

/* Without a handler, a signal need not wait until its thread runs. */
static int acts_at_once(const thread_t *thread, int number)
{
    struct sigaction action;
    return number == SIGKILL || number == SIGSTOP ||
           (is_wanted(thread, BIT_OF(number)) && (thread->awaited & BIT_OF(number)) == 0 &&
            sigaction(number, NULL, &action) == 0 && !has_handler(&action));
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
    if (acts_at_once(thread, number)) {
        act_by_default(number);
        return 0;
    }
    int is_own = thread == this_thread();
    lock(&thread->lock);
    __atomic_or_fetch(&thread->pending, BIT_OF(number), __ATOMIC_SEQ_CST);
    if (!is_own && thread->task != NULL && is_wanted(thread, BIT_OF(number))) {
        aco_i_interrupt(thread->task);
    }
    unlock(&thread->lock);
    if (is_own) {
        deliver(thread);
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

/* A signal to the process that the first thread blocks comes before kill() returns, if the caller
 * is the only thread for it. */
REPLACE(int, kill, (pid_t process, int number), (process, number),
        (int)aco_i_syscall(SYS_kill, process, number))
{
    thread_t *thread = this_thread();
    int result = real_kill(process, number);
    if (result == 0 && thread != NULL && process == getpid()) {
        thread->must_look = 1;
        deliver(thread);
    }
    return result;
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

/* Delivers what the thread does not block any more. */
static void look_after(thread_t *thread, uint64_t blocked_before)
{
    if ((blocked_before & ~thread->blocked) != 0) {
        thread->must_look = 1;
    }
    deliver(thread);
}

int aco_i_begin_mask(thread_t *thread, const sigset_t *mask, uint64_t *before)
{
    *before = thread->blocked;
    if (mask == NULL) {
        return 0;
    }
    set_blocked(thread, bits_of(mask));
    thread->must_look |= (*before & ~thread->blocked) != 0;
    return deliver(thread) != INTERRUPT_NOTHING;
}

void aco_i_end_mask(thread_t *thread, uint64_t before)
{
    KEEP_ERRNO();
    uint64_t during = thread->blocked;
    set_blocked(thread, before);
    if (during != before) {
        look_after(thread, during);
    }
}

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
        set_blocked(thread, how == SIG_BLOCK     ? old | bits
                            : how == SIG_UNBLOCK ? old & ~bits
                                                 : bits);
    }
    if (before != NULL) {
        set_bits(before, old);
    }
    look_after(thread, old);
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
    bits &= __atomic_load_n(&thread->pending, __ATOMIC_SEQ_CST);
    if (bits == 0) {
        return 0;
    }
    int number = __builtin_ctzll(bits) + 1;
    __atomic_and_fetch(&thread->pending, ~BIT_OF(number), __ATOMIC_SEQ_CST);
    if (info != NULL) {
        describe(thread, number, info);
    }
    return number;
}

/* Waits for signals to the process, by a signalfd, and for those to the thread, which interrupt the
 * wait. */
static int wait_with(thread_t *thread, const sigset_t *set, siginfo_t *info, int64_t until, int fd)
{
    static const struct timespec at_once;
    struct pollfd polled = {fd, POLLIN, 0};
    for (;;) {
        int number = take_pending(thread, bits_of(set), info);
        number = number != 0 ? number : aco_i_libc.sigtimedwait(set, info, &at_once);
        if (number > 0 || errno != EAGAIN) {
            return number;
        }
        int ct = aco_i_poll(&polled, 1, until);
        if (ct == 0 || (ct < 0 && errno != EINTR)) {
            errno = ct == 0 ? EAGAIN : errno;
            return -1;
        }
        if (ct < 0 && (thread->pending & bits_of(set)) == 0) {
            return -1; /* another one had a handler */
        }
    }
}

static int wait_for_signal(thread_t *thread, const sigset_t *set, siginfo_t *info, int64_t until)
{
    pthread_testcancel();
    int fd = signalfd(-1, set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    __atomic_store_n(&thread->awaited, bits_of(set), __ATOMIC_SEQ_CST);
    set_cancellable(thread, 1);
    int number = wait_with(thread, set, info, until, fd);
    set_cancellable(thread, 0);
    __atomic_store_n(&thread->awaited, 0, __ATOMIC_SEQ_CST);
    KEEP_ERRNO();
    aco_close(fd);
    deliver(thread);
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
    int got;
    do {
        got = wait_for_signal(thread, set, NULL, NO_DEADLINE);
    } while (got < 0 && errno == EINTR);
    if (got > 0) {
        *number = got;
    }
    return got < 0 ? errno : 0;
}

/* ==== Signals of the process ================================================================= */

#define FIRST_PAUSE 1000000 /* ns between looks for a receiver */
#define LAST_PAUSE 100000000

/* Asks a thread to look, unless one waits for the signals: that one sees them itself. */
static int ask(thread_t *thread, void *bits)
{
    uint64_t wanted = *(uint64_t *)bits;
    int is_asked = 0;
    if (thread->state == HANDLE_FREE || thread->task == NULL) {
        return 0;
    }
    lock(&thread->lock);
    if (thread->task != NULL && (wanted & ~thread->blocked & ~thread->awaited) != 0) {
        __atomic_store_n(&thread->must_look, 1, __ATOMIC_SEQ_CST);
        aco_i_interrupt(thread->task);
        is_asked = 1;
    }
    unlock(&thread->lock);
    return is_asked;
}

static int waits_for(thread_t *thread, void *bits)
{
    *(uint64_t *)bits &= ~(thread->state == HANDLE_FREE ? 0 : thread->awaited);
    return 0;
}

/* The signals that the program's first thread blocks, or all; it gets others itself. */
static uint64_t blocked_by_first(void)
{
    char text[4096];
    int fd = (int)aco_i_syscall(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t sz = fd < 0 ? -1 : aco_i_libc.read(fd, text, sizeof(text) - 1);
    if (fd >= 0) {
        aco_i_libc.close(fd);
    }
    text[sz < 0 ? 0 : sz] = '\0';
    const char *line = strstr(text, "\nSigBlk:");
    return line == NULL ? UINT64_MAX : strtoull(line + sizeof("SigBlk:"), NULL, 16);
}

void *aco_i_find_receivers(void *unused)
{
    sigset_t set;
    int64_t pause = FIRST_PAUSE;
    set_bits(&set, ~FAULTS);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    while (fd >= 0 && aco_wait_fd(fd, POLLIN) >= 0) {
        sigset_t pending;
        uint64_t bits = real_sigpending(&pending) == 0 ? bits_of(&pending) & ~FAULTS : 0;
        aco_i_for_each_handle(waits_for, &bits);
        bits &= bits == 0 ? 0 : blocked_by_first();
        if (bits != 0) {
            aco_i_for_each_handle(ask, &bits);
        }
        aco_sleep(pause);
        pause = bits != 0 && pause < LAST_PAUSE ? 2 * pause : FIRST_PAUSE;
    }
    return unused;
}

/* ==== Jumps out of handlers ================================================================== */

/* The mask that sigsetjmp() has saved is the loop's; the thread's own was that before the
 * handler. */
static void leave_handlers(const struct __jmp_buf_tag *to)
{
    thread_t *thread = this_thread();
    if (thread != NULL && thread->ct_handlers != 0) {
        thread->ct_handlers = 0;
        if (to->__mask_was_saved) {
            set_blocked(thread, thread->blocked_outside);
        }
    }
}

#define LEAVE_BY(name)                                                                             \
    REPLACE_HOOK(void, name, (void *buf, int value))                                               \
    {                                                                                              \
        leave_handlers((const struct __jmp_buf_tag *)buf);                                         \
        hook_##name(buf, value);                                                                   \
    }                                                                                              \
    _Static_assert(1, "")

LEAVE_BY(longjmp);
LEAVE_BY(_longjmp);
LEAVE_BY(siglongjmp);
LEAVE_BY(__longjmp_chk);

/* ==== Stacks for handlers ==================================================================== */

/* Handlers of a thread run on its own stack; that of the loop is the runtime's. */
REPLACE(int, sigaltstack, (const stack_t *stack, stack_t *before), (stack, before),
        (int)aco_i_syscall(SYS_sigaltstack, stack, before))
{
    thread_t *thread = this_thread();
    if (thread == NULL) {
        return real_sigaltstack(stack, before);
    }
    stack_t old = thread->alt_stack;
    old.ss_flags = old.ss_sp == NULL ? SS_DISABLE : old.ss_flags;
    if (stack != NULL && (stack->ss_flags & SS_DISABLE) == 0 &&
        stack->ss_size < (size_t)sysconf(_SC_MINSIGSTKSZ)) {
        return (int)refuse(ENOMEM);
    }
    if (stack != NULL) {
        thread->alt_stack = (stack->ss_flags & SS_DISABLE) != 0 ? (stack_t){.ss_sp = NULL} : *stack;
    }
    if (before != NULL) {
        *before = old;
    }
    return 0;
}
