// SPDX-License-Identifier: Apache-2.0
/*
 * Handles signals that are about to end the process: reports that a task has overflowed its stack,
 * and prints the list of tasks if the program has asked for it; then the signal does what it would
 * have done.
 *
 * An overflow is a fault in the guard below the stack of the running coroutine. On Linux it is
 * always a SIGSEGV: SIGBUS is for mapped files. A frame that is larger than the guard, and first
 * touched below it, is not seen.
 *
 * There are two handlers, and each remembers the one that it has replaced: the program may have
 * installed one of its own between them, which calls the older one.
 */
#include "observe/observe.h"

#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define STACK_SZ ((size_t)128 << 10) /* bytes; for a report, where the program gave little */
#define NEAR_END ((uintptr_t)4096)   /* bytes of a stack that an overflow may have left */
#define MOST_TRIES 100               /* times 100 ms: for another thread's report */

static const int signals[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
#define CT_SIGNALS (sizeof(signals) / sizeof(signals[0]))

typedef void handler_t(int number, siginfo_t *info, void *ucontext);

/* The handlers that those for overflows and for lists have replaced; `is_due`: a list was asked
 * for, and not printed so far. */
static struct sigaction former_of_overflows;
static struct {
    struct sigaction former;
    int is_due; /* atomic */
} lists[CT_SIGNALS];

/* The report under way; there is one at a time. */
static struct {
    int tid; /* its thread; its signal is aco_i_dying_of */
    int has_list;
    const aco_task_t *task; /* that has overflowed its stack; NULL: none has */
    aco_i_registers_t registers;
} report;

/* The overflow that was reported last. Both handlers may see it, and see it again each time that
 * the instruction is tried, but it is reported once. */
static struct {
    uint64_t id;
    const aco_t *co;
    const void *address;
} reported;

static size_t index_of(int signal)
{
    size_t i = 0;
    while (i < CT_SIGNALS && signals[i] != signal) {
        i++;
    }
    return i;
}

int aco_i_is_fatal(int signal)
{
    return index_of(signal) < CT_SIGNALS;
}

/* ==== Overflows ============================================================================== */

/* The task that has overflowed its stack, or that of a coroutine that it resumed; NULL: none. In a
 * child after fork(), tasks go on without a loop. */
static const aco_task_t *overflowed_task(int signal, const siginfo_t *info, const void *ucontext)
{
    const aco_t *co = aco_gtls_co;
    const aco_task_t *self = aco_i_loop != NULL ? aco_i_loop->running : aco_i_forked_task;
    if (signal != SIGSEGV || info->si_code <= 0 || self == NULL || co == NULL ||
        co->share_stack == NULL) {
        return NULL;
    }
    uintptr_t end = (uintptr_t)co->share_stack->ptr, address = (uintptr_t)info->si_addr;
    int is_in_guard = address >= (uintptr_t)co->share_stack->real_ptr && address < end;
    return is_in_guard && aco_i_interrupted(ucontext).sp < end + NEAR_END ? self : NULL;
}

static void put_size(aco_i_text_t *text, size_t sz)
{
    int is_in_kib = sz % 1024 == 0;
    aco_i_put_number(text, is_in_kib ? sz / 1024 : sz, 10);
    aco_i_put(text, is_in_kib ? " KiB" : " bytes");
}

static void put_task_overflow(aco_i_text_t *text, const aco_task_t *task)
{
    int is_embedded = task->runtime->loops[0].timer_fd >= 0;
    aco_i_put(text, "aco: ");
    aco_i_put_title(text, task);
    aco_i_put(text, task->shares_stack ? " overflowed the share stack of its thread, of "
                                       : " overflowed its stack of ");
    put_size(text, task->stack_sz != 0 ? task->stack_sz : task->runtime->stack_sz);
    aco_i_put(text, task->stack_sz != 0  ? ": set a larger .stack_sz\n"
                    : is_embedded        ? ": set .stack_sz of aco_task_options_t\n"
                    : task->shares_stack ? ": set .stack_sz instead of .shares_stack, or stack_sz "
                                           "of aco_run_options_t\n"
                                         : ": set .stack_sz, or stack_sz of aco_run_options_t\n");
}

/* The same for a coroutine that the task has resumed. */
static void put_coroutine_overflow(aco_i_text_t *text, const aco_task_t *task, const aco_t *co)
{
    aco_i_put(text, "aco: a coroutine of ");
    aco_i_put_title(text, task);
    aco_i_put(text, ", entry function ");
    aco_i_put_function(text, (uintptr_t)co->fp);
    aco_i_put(text, ", overflowed its share stack of ");
    put_size(text, co->share_stack->sz);
    aco_i_put(text, co->share_stack->is_pooled ? ": give aco_stack_pool_new()"
                                               : ": give aco_share_stack_new2()");
    aco_i_put(text, " a larger size, or recurse less deeply\n");
}

/* Puts the message, with a backtrace unless that is in the list. */
static void put_overflow(aco_i_text_t *text)
{
    aco_i_backtrace_t backtrace;
    aco_i_begin_backtraces();
    if (aco_gtls_co == report.task->co) {
        put_task_overflow(text, report.task);
    } else {
        put_coroutine_overflow(text, report.task, aco_gtls_co);
    }
    if (!report.has_list) {
        aco_i_backtrace_here(report.task, &report.registers, &backtrace);
        aco_i_put_frames(text, &backtrace);
    }
    aco_i_end_backtraces();
}

/* ==== Reports ================================================================================ */

static void print_report(void)
{
    aco_i_text_t text = {.fd = STDERR_FILENO};
    /* Takes a lock of the dynamic linker, as backtrace() does, which is held for moments. When a
     * runtime starts, it would cost more than all else there. */
    aco_i_find_modules();
    if (report.task != NULL) {
        put_overflow(&text);
    }
    if (report.has_list) {
        aco_i_put(&text, "The process ends by signal ");
        aco_i_put_number(&text, (uint64_t)aco_i_dying_of, 10);
        aco_i_put(&text, ". Its tasks:\n");
        aco_i_list_tasks(&text, &report.registers);
    }
    aco_i_flush(&text);
}

/* Prints it on a stack of our own, if the program has given its thread a small one for handlers
 * while that ran tasks. */
static void print_report_elsewhere(void)
{
#ifdef __GLIBC__
    static char stack[STACK_SZ];
    static ucontext_t here, there;
    getcontext(&there);
    there.uc_stack = (stack_t){.ss_sp = stack, .ss_size = sizeof(stack)};
    there.uc_link = &here;
    makecontext(&there, print_report, 0);
    swapcontext(&here, &there);
#else
    print_report();
#endif
}

/* Waits for another thread's report, after which that is likely to end the process. */
static void begin_report(int number)
{
    int other = 0, tid = (int)syscall(SYS_gettid), tries = 0;
    while (!__atomic_compare_exchange_n(&aco_i_dying_of, &other, number, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE)) {
        if (report.tid == tid || tries++ == MOST_TRIES) {
            aco_i_die_of(other); /* it has failed */
        }
        aco_i_libc.poll(NULL, 0, 100);
        other = 0;
    }
    report.tid = tid;
}

static int is_reported(const aco_task_t *task, const siginfo_t *info)
{
    return reported.id == task->id && reported.co == aco_gtls_co &&
           reported.address == info->si_addr;
}

/* Reports what is due on a signal, and returns whether anything was. After an overflow, the list is
 * printed at once: its backtrace of the task is the only one. */
static int report_signal(int number, const siginfo_t *info, const void *ucontext, int may_list)
{
    int *is_due = &lists[index_of(number)].is_due;
    const aco_task_t *task = overflowed_task(number, info, ucontext);
    int is_new = task != NULL && !is_reported(task, info);
    may_list |= is_new;
    if (!is_new && !(may_list && __atomic_load_n(is_due, __ATOMIC_RELAXED)) && !aco_i_is_dying()) {
        return 0;
    }
    begin_report(number);
    report.task = is_new ? task : NULL;
    report.has_list = may_list && __atomic_exchange_n(is_due, 0, __ATOMIC_RELAXED);
    report.registers = aco_i_interrupted(ucontext);
    if (is_new) {
        reported.id = task->id;
        reported.co = aco_gtls_co;
        reported.address = info->si_addr;
    }
    aco_i_has_room() ? print_report() : print_report_elsewhere();
    return 1;
}

/* ==== The former action ====================================================================== */

/* Ends the process in the frame that had the signal, so that a core shows it: the instruction fails
 * again when the handler has returned, or else the signal is sent again. */
static void end_by_default(int number, const siginfo_t *info)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t set;
    int fails_again = info->si_code > 0 && info->si_code != SI_KERNEL && number != SIGTRAP &&
                      number != SIGSYS;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
    if (!fails_again) {
        sigemptyset(&set);
        sigaddset(&set, number);
        pthread_sigmask(SIG_BLOCK, &set, NULL);
        syscall(SYS_tgkill, getpid(), (int)syscall(SYS_gettid), number);
    }
}

/* Calls the former handler as the kernel would have, but on this stack. It may leave by
 * siglongjmp(). */
static void call_former(struct sigaction *former, int number, siginfo_t *info, void *ucontext)
{
    struct sigaction action = *former;
    if (!(action.sa_flags & SA_NODEFER)) {
        sigaddset(&action.sa_mask, number);
    }
    if ((unsigned)action.sa_flags & (unsigned)SA_RESETHAND) {
        former->sa_handler = SIG_DFL;
        former->sa_flags = 0;
    }
    pthread_sigmask(SIG_BLOCK, &action.sa_mask, NULL);
    if (action.sa_flags & SA_SIGINFO) {
        action.sa_sigaction(number, info, ucontext);
    } else {
        action.sa_handler(number);
    }
}

/* `has_reported`: the caller has begun a report. That ends with the process, unless a former
 * handler lets the process go on. */
static void pass_on(struct sigaction *former, int number, siginfo_t *info, void *ucontext,
                    int has_reported)
{
    int is_ignored = former->sa_handler == SIG_IGN && info->si_code <= 0;
    if (former->sa_handler != SIG_DFL && former->sa_handler != SIG_IGN) {
        if (has_reported) {
            __atomic_store_n(&aco_i_dying_of, 0, __ATOMIC_RELEASE);
        }
        call_former(former, number, info, ucontext);
    } else if (has_reported || !is_ignored) {
        end_by_default(number, info);
    }
}

/* ==== Handlers =============================================================================== */

static void report_overflow(int number, siginfo_t *info, void *ucontext)
{
    KEEP_ERRNO();
    int has_reported = report_signal(number, info, ucontext, 0);
    pass_on(&former_of_overflows, number, info, ucontext, has_reported);
}

static void list_tasks(int number, siginfo_t *info, void *ucontext)
{
    KEEP_ERRNO();
    int has_reported = report_signal(number, info, ucontext, 1);
    pass_on(&lists[index_of(number)].former, number, info, ucontext, has_reported);
}

/* Installs a handler, unless it is installed; 0, or -1 with errno. Makes no needless call: as a
 * process starts, the first of each takes a microsecond. */
static int install(handler_t *handler, int number, struct sigaction *former)
{
    struct sigaction action = {.sa_sigaction = handler}, present;
    if (sigaction(number, NULL, &present) != 0) {
        return -1;
    }
    if ((present.sa_flags & SA_SIGINFO) && present.sa_sigaction == handler) {
        return 0;
    }
    *former = present; /* before the first signal */
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | (present.sa_flags & SA_RESTART);
    return sigaction(number, &action, NULL);
}

int aco_i_list_before_end(int signal)
{
    size_t i = index_of(signal);
    if (install(list_tasks, signal, &lists[i].former) != 0) {
        return -1;
    }
    __atomic_store_n(&lists[i].is_due, 1, __ATOMIC_RELAXED);
    return 0;
}

/* ThreadSanitizer has a handler that sigaction() does not return, so it could not be called next.
 * That of AddressSanitizer is, as any other. */
#ifdef ACO_USE_TSAN
#define MAY_INSTALL 0
#else
#define MAY_INSTALL 1
#endif

static void begin_overflow_reports(void)
{
    if (MAY_INSTALL) {
        install(report_overflow, SIGSEGV, &former_of_overflows);
    }
}

void aco_i_begin_overflow_reports(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin_overflow_reports);
}

int aco_i_report_overflow(int signal, const siginfo_t *info, const void *ucontext)
{
    int is_overflow = overflowed_task(signal, info, ucontext) != NULL;
    if (is_overflow) {
        report_signal(signal, info, ucontext, 0);
    }
    return is_overflow;
}
