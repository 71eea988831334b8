// SPDX-License-Identifier: Apache-2.0
/*
 * Lets others run where a thread keeps its loop: it computes, or waits for another one by looking
 * at a variable. A timer interrupts a loop's thread after each 5 ms of its processor time. If the
 * same thread has run all the time, it yields in the handler, on its own stack.
 *
 * A thread that was interrupted in libc, the loader, the C++ runtime, the allocator or this library
 * goes on until the next time: these may be in the middle of something that belongs to the thread
 * of the kernel.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <stdlib.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define PERIOD 5000000 /* ns of processor time */

/* How often a thread must have been seen, one time after another. With a watchdog, that is to see
 * it first. */
#define CT_SEEN 1
#define CT_SEEN_WATCHED 200

#if defined(__x86_64__)
#define PC_OF(context) ((uintptr_t)(context)->uc_mcontext.gregs[REG_RIP])
#define SP_OF(context) ((uintptr_t)(context)->uc_mcontext.gregs[REG_RSP])
#elif defined(__i386__)
#define PC_OF(context) ((uintptr_t)(context)->uc_mcontext.gregs[REG_EIP])
#define SP_OF(context) ((uintptr_t)(context)->uc_mcontext.gregs[REG_ESP])
#elif defined(__aarch64__)
#define PC_OF(context) ((uintptr_t)(context)->uc_mcontext.pc)
#define SP_OF(context) ((uintptr_t)(context)->uc_mcontext.sp)
#elif defined(__arm__)
#define PC_OF(context) ((uintptr_t)(context)->uc_mcontext.arm_pc)
#define SP_OF(context) ((uintptr_t)(context)->uc_mcontext.arm_sp)
#elif defined(__riscv)
#define PC_OF(context) ((uintptr_t)(context)->uc_mcontext.__gregs[REG_PC])
#define SP_OF(context) ((uintptr_t)(context)->uc_mcontext.__gregs[REG_SP])
#else
#error "aco: write PC_OF and SP_OF for this processor"
#endif

static struct {
    int signal; /* atomic; 0: threads are not preempted */
    int ct_seen;
    struct sigaction of_program; /* what the program wants to happen with the signal */
} all;

/* A loop, as its thread's handler sees it. */
static __thread struct {
    int has_begun;
    int ct_seen;
    uint64_t ct_switches;
} mine __attribute__((tls_model("initial-exec")));

/* ==== The handler ============================================================================ */

REPLACE(int, sigaction, (int number, const struct sigaction *action, struct sigaction *before),
        (number, action, before), -1);

/* Whether the thread runs on its own stack: not in a handler that has another one, nor in a
 * coroutine of the program. */
static int is_on_stack(const aco_task_t *task, uintptr_t sp)
{
    const aco_share_stack_t *stack = task->co != NULL ? task->co->share_stack : NULL;
    return stack != NULL && sp - (uintptr_t)stack->ptr < stack->sz;
}

/* Lets the program have a signal that no timer of this file has sent. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    static const struct sigaction by_default = {.sa_handler = SIG_DFL};
    struct sigaction action = all.of_program;
    if ((action.sa_flags & SA_SIGINFO) != 0) {
        action.sa_sigaction(number, info, context);
    } else if (action.sa_handler == SIG_DFL) {
        real_sigaction(number, &by_default, NULL);
        aco_i_syscall(SYS_kill, getpid(), number);
    } else if (action.sa_handler != SIG_IGN) {
        action.sa_handler(number);
    }
}

static void preempt(int number, siginfo_t *info, void *arg)
{
    const ucontext_t *context = (const ucontext_t *)arg;
    loop_t *loop = aco_i_loop;
    const aco_task_t *task = loop == NULL ? NULL : loop->running;
    if (info->si_code != SI_TIMER || info->si_value.sival_ptr != &all) {
        pass_on(number, info, arg);
        return;
    }
    if (task == NULL || !task->is_thread) {
        return;
    }
    if (mine.ct_switches != loop->counts.ct_switches) {
        mine.ct_switches = loop->counts.ct_switches;
        mine.ct_seen = 0;
        return;
    }
    if (++mine.ct_seen >= all.ct_seen && is_on_stack(task, SP_OF(context)) &&
        !aco_i_is_code_of_loop(PC_OF(context))) {
        KEEP_ERRNO();
        aco_i_end_round(loop);
        if (aco_i_has_ready()) {
            aco_i_yield(); /* once more, to those that the loop found when it looked outside */
        }
    }
}

/* ==== The signal ============================================================================= */

/* Takes the last real-time signal that the program does not use; 0: there is none. */
static int take_signal(void)
{
    struct sigaction before,
        action = {.sa_sigaction = preempt, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER};
    for (int i = SIGRTMAX; i >= SIGRTMIN; i--) {
        int is_free = real_sigaction(i, NULL, &before) == 0 && before.sa_handler == SIG_DFL;
        if (is_free && real_sigaction(i, &action, NULL) == 0) {
            return i;
        }
    }
    return 0;
}

/* The program sees the signal as if it were its own. */
static int set_action(int number, const struct sigaction *action, struct sigaction *before)
{
    if (number == 0 || number != __atomic_load_n(&all.signal, __ATOMIC_ACQUIRE)) {
        return real_sigaction(number, action, before);
    }
    struct sigaction old = all.of_program;
    if (action != NULL) {
        all.of_program = *action;
    }
    if (before != NULL) {
        *before = old;
    }
    return 0;
}

/* The hooks look for signals that are free, too. */
int name_sigaction(int number, const struct sigaction *action, struct sigaction *before)
{
    return aco_i_is_ours(__builtin_return_address(0)) ? real_sigaction(number, action, before)
                                                      : set_action(number, action, before);
}

REPLACE(__sighandler_t, signal, (int number, __sighandler_t handler), (number, handler), SIG_ERR)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;
    if (number == 0 || number != __atomic_load_n(&all.signal, __ATOMIC_ACQUIRE)) {
        return real_signal(number, handler);
    }
    set_action(number, &action, &before);
    return before.sa_handler;
}

/* ==== Timers ================================================================================= */

void aco_i_begin_preempting(void)
{
    all.ct_seen = getenv("ACO_WATCHDOG") != NULL ? CT_SEEN_WATCHED : CT_SEEN;
    if (all.signal == 0) {
        __atomic_store_n(&all.signal, take_signal(), __ATOMIC_RELEASE);
    }
}

/* A thread that gets no timer goes without. By system calls, since older versions of libc have
 * timers in a library of their own. */
static void start_timer(int number, int tid)
{
    struct {
        void *value;
        int signal, notify, tid;
        char unused[64];
    } event = {&all, number, 4 /* SIGEV_THREAD_ID */, tid, ""};
    long period[4] = {0, PERIOD, 0, PERIOD};
    int timer;
    if (aco_i_syscall(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &event, &timer) == 0) {
        aco_i_syscall(SYS_timer_settime, timer, 0, period, NULL);
    }
}

void aco_i_preempt_here(void)
{
    int number = __atomic_load_n(&all.signal, __ATOMIC_ACQUIRE);
    if (mine.has_begun || number == 0) {
        return;
    }
    KEEP_ERRNO();
    uint64_t bit = UINT64_C(1) << (number - 1);
    mine.has_begun = 1;
    aco_i_syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &bit, NULL, sizeof(bit));
    aco_i_loop->mask &= ~bit;
    start_timer(number, aco_i_loop->tid);
}
