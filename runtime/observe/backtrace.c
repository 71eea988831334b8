// SPDX-License-Identifier: Apache-2.0
/*
 * Where tasks are: backtraces of those that do not run, from what their coroutines keep, and of
 * those that do, which their threads tell in a signal handler. Memory of tasks is read by a system
 * call that fails where there is none any more, since their threads go on meanwhile.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define COPY_SZ ((size_t)32 << 10) /* bytes of a stack, from its innermost frame on */
#define WALK(place, copy)                                                                          \
    {                                                                                              \
        .pcs = (place)->pcs, .most = ACO_I_MOST_FRAMES, .copy = (copy), .copy_sz = COPY_SZ         \
    }
#define CHUNK_SZ ((size_t)4096)
#define ANSWER_TIME 1000000000 /* ns that a thread has to answer */

/* Where the system call below is missing or forbidden: write() fails as it does. */
static size_t read_by_pipe(char *to, const char *from, size_t sz)
{
    size_t done = 0;
    int fds[2];
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) {
        return 0;
    }
    while (done < sz) {
        size_t room = CHUNK_SZ - ((uintptr_t)(from + done) & (CHUNK_SZ - 1));
        ssize_t ct = aco_i_libc.write(fds[1], from + done, room < sz - done ? room : sz - done);
        if (ct <= 0 || aco_i_libc.read(fds[0], to + done, (size_t)ct) != ct) {
            break;
        }
        done += (size_t)ct;
    }
    aco_i_libc.close(fds[0]);
    aco_i_libc.close(fds[1]);
    return done;
}

size_t aco_i_read_memory(void *to, const void *from, size_t sz)
{
    int error = errno;
    long ct = -1;
#ifdef SYS_process_vm_readv
    struct iovec local = {to, sz}, remote = {(void *)(uintptr_t)from, sz};
    ct = syscall(SYS_process_vm_readv, (long)getpid(), &local, 1L, &remote, 1L, 0L);
    if (ct >= 0 || errno == EFAULT) {
        errno = error;
        return ct < 0 ? 0 : (size_t)ct;
    }
#endif
    ct = (long)read_by_pipe((char *)to, (const char *)from, sz);
    errno = error;
    return (size_t)ct;
}

static int read_struct(void *to, const void *from, size_t sz)
{
    return from != NULL && aco_i_read_memory(to, from, sz) == sz;
}

/* A copy of a stack from its byte `low` on, whose bytes are at `from`; pages that can't be read, a
 * guard page, say, are zeros. */
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

static void set_place(aco_i_place_t *place, const aco_i_walk_t *walk)
{
    place->ct = walk->ct;
    place->stack_use = walk->stack_use;
}

/* Adds the frames of a suspended coroutine, in place or saved out, and what it uses of its stack.
 * Returns its parent. */
static aco_t *add_suspended(const aco_t *at, aco_i_walk_t *walk)
{
    aco_t co;
    aco_share_stack_t share;
    if (!read_struct(&co, at, sizeof(co)) || !read_struct(&share, co.share_stack, sizeof(share))) {
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

/* Adds a coroutine that was suspended and those that have resumed it, up to that of the task. */
static void add_all_suspended(const aco_t *co, const aco_t *last, aco_i_walk_t *walk)
{
    int is_last = 0;
    for (int depth = 0; co != NULL && !is_last && depth < walk->most; depth++) {
        is_last = co == last;
        co = walk->ct < walk->most ? add_suspended(co, walk) : NULL;
    }
    walk->stack_use = is_last ? walk->stack_use : 0; /* of the task's own */
}

/* aco_i_wait() switches in several places, which are all the same to its callers. */
static void leave_out_wait(aco_i_place_t *place)
{
    for (int i = 0; i < place->ct && i < 4; i++) {
        if (aco_i_function_at(place->pcs[i]) == (uintptr_t)aco_i_wait) {
            place->ct -= i + 1;
            memmove(place->pcs, place->pcs + i + 1, (size_t)place->ct * sizeof(place->pcs[0]));
            return;
        }
    }
}

void aco_i_place_of(const aco_task_t *task, aco_i_place_t *place)
{
    static char copy[COPY_SZ];
    aco_i_walk_t walk = WALK(place, copy);
    add_all_suspended(task->suspended, task->co, &walk);
    set_place(place, &walk);
    leave_out_wait(place);
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

/* Adds the frames of the caller's thread that are on the stack below `top`. */
static void add_running(const aco_i_registers_t *registers, uintptr_t top, aco_i_walk_t *walk)
{
    size_t sz = registers->sp < top ? top - registers->sp : 0;
    aco_i_stack_t stack = copy_stack(registers->sp, (const char *)registers->sp, sz, walk);
    add_frames(walk, registers, &stack);
    walk->stack_use = sz;
}

/* Adds those of what has resumed the running coroutine of a task, up to the task's own. */
static void add_resumers(const aco_task_t *task, aco_i_walk_t *walk)
{
    if (aco_gtls_co != task->co) {
        add_all_suspended(aco_gtls_co->main_co, task->co, walk);
    }
}

static void find_running(const aco_task_t *task, const aco_i_registers_t *registers,
                         aco_i_place_t *place, char *copy, size_t copy_sz)
{
    const aco_t *co = aco_gtls_co;
    aco_i_walk_t walk = WALK(place, copy);
    walk.copy_sz = copy_sz;
    if (co != NULL && co->share_stack != NULL && registers->sp != 0) {
        add_running(registers, (uintptr_t)co->share_stack->align_retptr, &walk);
        add_resumers(task, &walk);
    }
    set_place(place, &walk);
}

void aco_i_place_here(const aco_task_t *task, const aco_i_registers_t *registers,
                      aco_i_place_t *place)
{
    static char copy[8 * COPY_SZ]; /* frames of a stack that has overflowed may be large */
    find_running(task, registers, place, copy, sizeof(copy));
}

void aco_i_walk_here(const aco_task_t *task, const aco_i_registers_t *registers, uintptr_t low,
                     uintptr_t top, aco_i_walk_t *walk)
{
    const aco_share_stack_t *shared = aco_gtls_co == NULL ? NULL : aco_gtls_co->share_stack;
    uintptr_t sp = registers->sp;
    if (shared != NULL && sp - (uintptr_t)shared->ptr < shared->sz) {
        /* The return address of the outermost frame is behind the others. */
        add_running(registers, (uintptr_t)shared->align_retptr + sizeof(void *), walk);
        int is_whole = walk->is_whole;
        if (task != NULL) {
            add_resumers(task, walk);
        }
        walk->is_whole = is_whole && walk->ct < walk->most;
    } else if (sp >= low && sp < top) {
        add_running(registers, top, walk);
    } else { /* still that of another task */
        walk->pcs[walk->ct++] = registers->pc;
        walk->is_whole = 0;
    }
}

/* What a thread is asked, and its answer. */
enum { NO_QUESTION, ASKED, ANSWERS, ANSWERED };
static struct {
    int state; /* atomic */
    const loop_t *loop;
    const aco_task_t *task;
    aco_i_place_t place;
    char copy[COPY_SZ];
} question;

static void answer(int signal, siginfo_t *info, void *ucontext)
{
    int error = errno, asked = ASKED;
    const loop_t *loop = aco_i_loop;
    (void)signal;
    (void)info;
    if (loop != NULL && loop->running != NULL && aco_i_has_room() &&
        __atomic_compare_exchange_n(&question.state, &asked, ANSWERS, 0, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED)) {
        int is_meant = question.loop == loop && question.task == loop->running;
        if (is_meant) {
            aco_i_registers_t registers = aco_i_interrupted(ucontext);
            find_running(loop->running, &registers, &question.place, question.copy, COPY_SZ);
        }
        __atomic_store_n(&question.state, is_meant ? ANSWERED : ASKED, __ATOMIC_RELEASE);
    }
    errno = error;
}

/* SIGURG, since it is ignored by default; 0 if the program uses it for something else. */
static int take_signal(void)
{
    struct sigaction action = {.sa_sigaction = answer,
                               .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    struct sigaction former;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGURG, NULL, &former) != 0) {
        return 0;
    }
    if ((former.sa_flags & SA_SIGINFO) && former.sa_sigaction == answer) {
        return 1;
    }
    return !(former.sa_flags & SA_SIGINFO) && former.sa_handler == SIG_DFL &&
           sigaction(SIGURG, &action, NULL) == 0;
}

void aco_i_ask_place(loop_t *loop, const aco_task_t *task, aco_i_place_t *place)
{
    int64_t until = aco_i_clock() + ANSWER_TIME;
    int asked = ASKED;
    *place = (aco_i_place_t){.ct = 0};
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
    *place = question.place;
    __atomic_store_n(&question.state, NO_QUESTION, __ATOMIC_RELAXED);
}
