// SPDX-License-Identifier: Apache-2.0
/*
 * Finds backtraces of tasks: of suspended ones from what their coroutines keep, of running ones in
 * a signal handler on their threads. A system call that fails where there is no memory any more
 * reads the tasks, since their threads go on meanwhile.
 */
#include "observe/observe.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define COPY_SZ ((size_t)32 << 10) /* bytes of a stack, from its innermost frame on */
#define WALK(backtrace, copy)                                                                      \
    {                                                                                              \
        .pcs = (backtrace)->pcs, .most = ACO_I_MOST_FRAMES, .copy = (copy), .copy_sz = COPY_SZ     \
    }
#define CHUNK_SZ ((size_t)4096)
#define ANSWER_TIME 1000000000 /* ns that a thread has to answer */

/* Copies a stack from address `low` on, whose bytes are at `from`; pages that can't be read, a
 * guard page, say, become zeros. */
static aco_i_stack_t copy_stack(uintptr_t low, const char *from, size_t sz,
                                const aco_i_walk_t *walk)
{
    aco_i_stack_t stack = {low, sz < walk->copy_sz ? sz : walk->copy_sz, walk->copy};
    if (aco_i_read_memory(walk->copy, from, stack.sz) != stack.sz) {
        for (size_t done = 0, ct; done < stack.sz; done += ct) {
            ct = CHUNK_SZ - ((uintptr_t)(from + done) & (CHUNK_SZ - 1));
            ct = ct < stack.sz - done ? ct : stack.sz - done;
            size_t got = aco_i_read_memory(walk->copy + done, from + done, ct);
            memset(walk->copy + done + got, 0, ct - got);
        }
    }
    return stack;
}

/* ==== Tasks that do not run ================================================================== */

static void add_frames(aco_i_walk_t *walk, const aco_i_registers_t *registers,
                       const aco_i_stack_t *stack)
{
    walk->ct += aco_i_unwind(registers, stack, walk->pcs + walk->ct, walk->most - walk->ct,
                             &walk->is_whole);
}

static void set_backtrace(aco_i_backtrace_t *backtrace, const aco_i_walk_t *walk)
{
    backtrace->ct = walk->ct;
    backtrace->stack_use = walk->stack_use;
}

/* Adds the frames of a suspended coroutine, in place or saved out, and what it uses of its stack.
 * Returns its parent. */
static aco_t *add_suspended(const aco_t *at, aco_i_walk_t *walk)
{
    aco_t co;
    aco_share_stack_t share;
    if (!READ_STRUCT(&co, at) || !READ_STRUCT(&share, co.share_stack)) {
        return NULL;
    }
    aco_i_registers_t registers = {(uintptr_t)co.reg[ACO_REG_IDX_RETADDR],
                                   (uintptr_t)co.reg[ACO_REG_IDX_SP],
                                   (uintptr_t)co.reg[ACO_REG_IDX_BP], 0};
    size_t sz = (uintptr_t)share.align_retptr - registers.sp;
    if (registers.sp < (uintptr_t)share.ptr || registers.sp >= (uintptr_t)share.align_retptr) {
        return NULL;
    }
    walk->stack_use = sz;
    const char *from = (const char *)registers.sp;
    if (!co.is_owner) {
        from = (const char *)co.save_stack.ptr;
        sz = co.save_stack.valid_sz < sz ? co.save_stack.valid_sz : sz;
    }
    aco_i_stack_t stack = copy_stack(registers.sp, from, sz, walk);
    add_frames(walk, &registers, &stack);
    return co.main_co;
}

/* Adds a suspended coroutine and those that have resumed it, up to that of the task. */
static void add_all_suspended(const aco_t *co, const aco_t *last, aco_i_walk_t *walk)
{
    int is_last = 0;
    for (int depth = 0; co != NULL && !is_last && depth < walk->most; depth++) {
        is_last = co == last;
        co = walk->ct < walk->most ? add_suspended(co, walk) : NULL;
    }
    walk->stack_use = is_last ? walk->stack_use : 0; /* that of the task's own */
}

/* Makes tasks alike that wait by different switches in aco_i_wait(). */
static void leave_out_wait(aco_i_backtrace_t *backtrace)
{
    for (int i = 0; i < backtrace->ct && i < 4; i++) {
        if (aco_i_function_at(backtrace->pcs[i]) == (uintptr_t)aco_i_wait) {
            backtrace->ct -= i + 1;
            memmove(backtrace->pcs, backtrace->pcs + i + 1,
                    (size_t)backtrace->ct * sizeof(backtrace->pcs[0]));
            return;
        }
    }
}

void aco_i_backtrace_of(const aco_task_t *task, aco_i_backtrace_t *backtrace)
{
    static char copy[COPY_SZ];
    aco_i_walk_t walk = WALK(backtrace, copy);
    add_all_suspended(task->suspended, task->co, &walk);
    set_backtrace(backtrace, &walk);
    leave_out_wait(backtrace);
}

/* ==== Tasks that run ========================================================================= */

aco_i_registers_t aco_i_interrupted(const void *ucontext)
{
    const mcontext_t *m = &((const ucontext_t *)ucontext)->uc_mcontext;
#if defined(__x86_64__)
    return (aco_i_registers_t){(uintptr_t)m->gregs[REG_RIP], (uintptr_t)m->gregs[REG_RSP],
                               (uintptr_t)m->gregs[REG_RBP], 0};
#elif defined(__i386__)
    return (aco_i_registers_t){(uintptr_t)m->gregs[REG_EIP], (uintptr_t)m->gregs[REG_ESP],
                               (uintptr_t)m->gregs[REG_EBP], 0};
#elif defined(__aarch64__)
    return (aco_i_registers_t){m->pc, m->sp, m->regs[29], m->regs[30]};
#elif defined(__riscv)
    return (aco_i_registers_t){m->__gregs[0], m->__gregs[2], m->__gregs[8], m->__gregs[1]};
#else
    return (aco_i_registers_t){m->arm_pc, m->arm_sp, m->arm_fp, 0};
#endif
}

/* Adds the frames of the caller's thread on the stack that ends at `top`. */
static void add_running(const aco_i_registers_t *registers, uintptr_t top, aco_i_walk_t *walk)
{
    size_t sz = registers->sp < top ? top - registers->sp : 0;
    aco_i_stack_t stack = copy_stack(registers->sp, (const char *)registers->sp, sz, walk);
    add_frames(walk, registers, &stack);
    walk->stack_use = sz;
}

/* Adds the coroutines that have resumed the running one of a task, up to the task's own. */
static void add_resumers(const aco_task_t *task, aco_i_walk_t *walk)
{
    if (aco_gtls_co != task->co) {
        add_all_suspended(aco_gtls_co->main_co, task->co, walk);
    }
}

static void find_running(const aco_task_t *task, const aco_i_registers_t *registers,
                         aco_i_backtrace_t *backtrace, char *copy, size_t copy_sz)
{
    const aco_t *co = aco_gtls_co;
    aco_i_walk_t walk = WALK(backtrace, copy);
    walk.copy_sz = copy_sz;
    if (co != NULL && co->share_stack != NULL && registers->sp != 0) {
        add_running(registers, (uintptr_t)co->share_stack->align_retptr, &walk);
        add_resumers(task, &walk);
    }
    set_backtrace(backtrace, &walk);
}

void aco_i_backtrace_here(const aco_task_t *task, const aco_i_registers_t *registers,
                          aco_i_backtrace_t *backtrace)
{
    static char copy[8 * COPY_SZ]; /* frames of a stack that has overflowed may be large */
    find_running(task, registers, backtrace, copy, sizeof(copy));
}

void aco_i_walk_here(const aco_task_t *task, const aco_i_registers_t *registers, uintptr_t low,
                     uintptr_t top, aco_i_walk_t *walk)
{
    const aco_share_stack_t *shared = aco_gtls_co == NULL ? NULL : aco_gtls_co->share_stack;
    uintptr_t sp = registers->sp;
    if (shared != NULL && sp - (uintptr_t)shared->ptr < shared->sz) {
        /* The return address of the outermost frame is above the others. */
        add_running(registers, (uintptr_t)shared->align_retptr + sizeof(void *), walk);
        int is_whole = walk->is_whole;
        if (task != NULL) {
            add_resumers(task, walk);
        }
        walk->is_whole = is_whole && walk->ct < walk->most;
    } else if (sp >= low && sp < top) {
        add_running(registers, top, walk);
    } else { /* in a switch: the stack is still that of another task */
        walk->pcs[walk->ct++] = registers->pc;
        walk->is_whole = 0;
    }
}

/* The question to a thread, and its answer. */
enum { NO_QUESTION, ASKED, ANSWERS, ANSWERED };
static struct {
    int state; /* atomic */
    const loop_t *loop;
    const aco_task_t *task;
    aco_i_backtrace_t backtrace;
    char copy[COPY_SZ];
} question;

static void answer(int signal, siginfo_t *info, void *ucontext)
{
    KEEP_ERRNO();
    int asked = ASKED;
    const loop_t *loop = aco_i_loop;
    (void)signal;
    (void)info;
    if (loop != NULL && loop->running != NULL && aco_i_has_room() &&
        __atomic_compare_exchange_n(&question.state, &asked, ANSWERS, 0, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED)) {
        int is_meant = question.loop == loop && question.task == loop->running;
        if (is_meant) {
            aco_i_registers_t registers = aco_i_interrupted(ucontext);
            find_running(loop->running, &registers, &question.backtrace, question.copy, COPY_SZ);
        }
        __atomic_store_n(&question.state, is_meant ? ANSWERED : ASKED, __ATOMIC_RELEASE);
    }
}

/* Takes SIGURG, since that is ignored by default; 0 if the program has a use of its own for it. */
static int take_signal(void)
{
    struct sigaction action = {.sa_sigaction = answer,
                               .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    return aco_i_take_signal(SIGURG, &action);
}

void aco_i_ask_backtrace(loop_t *loop, const aco_task_t *task, aco_i_backtrace_t *backtrace)
{
    int64_t until = aco_i_clock() + ANSWER_TIME;
    int asked = ASKED;
    *backtrace = (aco_i_backtrace_t){.ct = 0};
    if (!take_signal()) {
        return;
    }
    question.loop = loop;
    question.task = task;
    __atomic_store_n(&question.state, ASKED, __ATOMIC_RELEASE);
    syscall(SYS_tgkill, getpid(), __atomic_load_n(&loop->tid, __ATOMIC_RELAXED), SIGURG);
    while (__atomic_load_n(&question.state, __ATOMIC_ACQUIRE) != ANSWERED) {
        if (aco_i_clock() >= until &&
            __atomic_compare_exchange_n(&question.state, &asked, NO_QUESTION, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
            return;
        }
        asked = ASKED;
        aco_i_libc.poll(NULL, 0, 1);
    }
    *backtrace = question.backtrace;
    __atomic_store_n(&question.state, NO_QUESTION, __ATOMIC_RELAXED);
}
