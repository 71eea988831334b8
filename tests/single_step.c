// SPDX-License-Identifier: Apache-2.0
/*
 * Implements single_step.h. The trap handler runs on the alternate stack, so that it disturbs
 * nothing; the signal that it raises comes when it has returned, before the instruction that was
 * about to run, on whatever SP points to.
 */
#define _GNU_SOURCE /* the names of the registers in a ucontext_t */
#include "single_step.h"

#include "aco.h"

#include <signal.h>
#include <ucontext.h>

#define TRAP_FLAG 0x100
#define DIRECTION_FLAG 0x400
#define MXCSR_USUAL 0x1f80u
#define TRAP_STACK_SZ 65536u /* bytes; a signal frame takes up to 11 KiB */

step_report_t step_report;

/* The step under way. */
static struct {
    step_t step;
    int has_left;        /* SP was in the incoming stack */
    const char *last_pc; /* an instruction with a rep prefix traps once per repetition */
} run;

/* ==== Processor =============================================================================== */

/* Notes SP, loads the control words and registers of `from`, sets the trap flag, and calls. The
 * side that is continued comes to the breakpoint. */
void single_step_call(step_side_t *from, void (*function)(void), void *argument, void *argument2);
extern const char single_step_arrived[];

/* In assembly, the fields of a step_side_t. */
#define KEPT(i) ACO_STR(ACO_WORD) "*" #i
#define NOTED_SP ACO_STR(ACO_WORD) "*" ACO_STR(STEP_REGISTERS)
#define MXCSR NOTED_SP "+" ACO_STR(ACO_WORD)
#define X87 MXCSR "+4"

#if defined(ACO_ARCH_X86_64)

#define PC REG_RIP
#define SP REG_RSP
#define BP REG_RBP
#define RED_ZONE_SZ 128u /* bytes below SP that the kernel leaves alone */
static const int kept_registers[] = {REG_RBX, REG_RBP, REG_R12, REG_R13, REG_R14, REG_R15};

__asm__("    .text\n"
        "    .globl single_step_call, single_step_arrived\n"
        "single_step_call:\n"
        "    pushq %rbx\n"
        "    pushq %rbp\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    subq $8, %rsp\n"
        "    movq %rsp, " NOTED_SP "(%rdi)\n"
        "    ldmxcsr " MXCSR "(%rdi)\n"
        "    fldcw " X87 "(%rdi)\n"
        "    movq %rsi, %rax\n"
        "    movq " KEPT(0) "(%rdi), %rbx\n"
        "    movq " KEPT(1) "(%rdi), %rbp\n"
        "    movq " KEPT(2) "(%rdi), %r12\n"
        "    movq " KEPT(3) "(%rdi), %r13\n"
        "    movq " KEPT(4) "(%rdi), %r14\n"
        "    movq " KEPT(5) "(%rdi), %r15\n"
        "    movq %rdx, %rdi\n"
        "    movq %rcx, %rsi\n"
        "    pushfq\n"
        "    orl $0x100, (%rsp)\n"
        "    popfq\n"
        "    call *%rax\n"
        "    int3\n"
        "single_step_arrived:\n"
        "    addq $8, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbp\n"
        "    popq %rbx\n"
        "    ret\n");

static int is_x87_empty(const ucontext_t *context)
{
    return context->uc_mcontext.fpregs->ftw == 0;
}

static uint32_t mxcsr_of(const ucontext_t *context)
{
    return context->uc_mcontext.fpregs->mxcsr;
}

static uint32_t x87_of(const ucontext_t *context)
{
    return context->uc_mcontext.fpregs->cwd;
}

#else

#define PC REG_EIP
#define SP REG_ESP
#define BP REG_EBP
#define RED_ZONE_SZ 0u
#define MXCSR_OFFSET 136u /* bytes; the image of fxsave follows what glibc declares */
static const int kept_registers[] = {REG_EBX, REG_ESI, REG_EDI, REG_EBP};

__asm__("    .text\n"
        "    .globl single_step_call, single_step_arrived\n"
        "single_step_call:\n"
        "    pushl %ebx\n"
        "    pushl %esi\n"
        "    pushl %edi\n"
        "    pushl %ebp\n"
        "    movl 20(%esp), %eax\n"
        "    movl 24(%esp), %edx\n"
        "    subl $4, %esp\n"
        "    pushl 36(%esp)\n"
        "    pushl 36(%esp)\n"
        "    movl %esp, " NOTED_SP "(%eax)\n"
        "    ldmxcsr " MXCSR "(%eax)\n"
        "    fldcw " X87 "(%eax)\n"
        "    movl " KEPT(0) "(%eax), %ebx\n"
        "    movl " KEPT(1) "(%eax), %esi\n"
        "    movl " KEPT(2) "(%eax), %edi\n"
        "    movl " KEPT(3) "(%eax), %ebp\n"
        "    pushfl\n"
        "    orl $0x100, (%esp)\n"
        "    popfl\n"
        "    call *%edx\n"
        "    int3\n"
        "single_step_arrived:\n"
        "    addl $12, %esp\n"
        "    popl %ebp\n"
        "    popl %edi\n"
        "    popl %esi\n"
        "    popl %ebx\n"
        "    ret\n");

static int is_x87_empty(const ucontext_t *context)
{
    return (context->uc_mcontext.fpregs->tag & 0xffff) == 0xffff;
}

static uint32_t mxcsr_of(const ucontext_t *context)
{
    uint32_t mxcsr;
    memcpy(&mxcsr, (const char *)context->uc_mcontext.fpregs + MXCSR_OFFSET, sizeof(mxcsr));
    return mxcsr;
}

static uint32_t x87_of(const ucontext_t *context)
{
    return (uint32_t)context->uc_mcontext.fpregs->cw & 0xffff;
}

#endif

static char *register_of(const ucontext_t *context, int which)
{
    return (char *)(uintptr_t)context->uc_mcontext.gregs[which];
}

/* Functions outside may have data in the red zone, these may not. */
extern const char step_switch_code_begin[] __asm__("__start_step_switch_code")
    __attribute__((weak));
extern const char step_switch_code_end[] __asm__("__stop_step_switch_code") __attribute__((weak));

static int is_switch_code(const char *pc)
{
    return (pc >= step_switch_code_begin && pc < step_switch_code_end) ||
           ((uintptr_t)pc >= (uintptr_t)acosw && (uintptr_t)pc < (uintptr_t)aco_save_fpucw_mxcsr);
}

/* ==== Rules =================================================================================== */

static void demand(int holds, const char *rule, const ucontext_t *context)
{
    if (holds) {
        return;
    }
    if (step_report.faults++ == 0) {
        step_report.rule = rule;
        step_report.pc = register_of(context, PC);
        step_report.sp = register_of(context, SP);
    }
}

static int is_in(const step_side_t *side, const char *address)
{
    return address >= side->low && address <= side->sp;
}

static int is_in_a_stack(const char *address)
{
    return is_in(run.step.from, address) || is_in(run.step.to, address);
}

/* Checks what holds before every instruction. */
static void check_instruction(const ucontext_t *context)
{
    const char *sp = register_of(context, SP);
    if (is_in(run.step.to, sp)) {
        run.has_left = 1;
    } else if (is_in(run.step.from, sp)) {
        demand(!run.has_left, "SP is in the outgoing stack again", context);
    } else {
        step_report.strays++;
        demand(0, "SP is in neither stack", context);
    }
    demand((context->uc_mcontext.gregs[REG_EFL] & DIRECTION_FLAG) == 0, "DF is not 0", context);
    demand(is_x87_empty(context), "the x87 stack is not empty", context);
}

/* Checks what holds where a side arrives that has never run (C2 of the ABI's function entry). */
static void check_entry(const ucontext_t *context)
{
    const step_side_t *to = run.step.to;
    const char *sp = register_of(context, SP);
    demand(sp == to->sp, "SP at the entry is not that of an empty stack", context);
    demand(((uintptr_t)sp + sizeof(void *)) % 16 == 0, "SP at the entry is not aligned", context);
    demand(register_of(context, BP) == NULL, "the frame pointer at the entry is not 0", context);
}

/* Checks what holds where a side arrives that has stepped away. */
static void check_return(const ucontext_t *context)
{
    const step_side_t *to = run.step.to;
    demand(register_of(context, SP) == to->sp, "SP is not what it was", context);
    for (size_t i = 0; i < STEP_REGISTERS; i++) {
        demand((uintptr_t)register_of(context, kept_registers[i]) == to->kept[i],
               "a callee-saved register is not what it was", context);
    }
}

static void check_control_words(const ucontext_t *context)
{
    const step_side_t *whose = run.step.shares_words ? run.step.from : run.step.to;
    demand(((mxcsr_of(context) ^ whose->mxcsr) & ACO_MXCSR_CONTROL) == 0,
           "the control bits of MXCSR are not the right ones", context);
    demand(x87_of(context) == whose->x87, "the x87 control word is not the right one", context);
}

/* ==== Signals ================================================================================= */

/* Writes where nothing live may lie, up to the last byte. The signal's frame comes over it. */
static void fill_below(const ucontext_t *context)
{
    size_t kept_sz = is_switch_code(register_of(context, PC)) ? 0 : RED_ZONE_SZ;
    char *sp = register_of(context, SP);
    if (is_in_a_stack(sp)) {
        memset(sp - STEP_FILL_SZ, 0xd5, STEP_FILL_SZ - kept_sz);
    }
}

/* Before every instruction, at the entry where a side starts, and at the breakpoint. */
static void on_trap(int signal_no, siginfo_t *info, void *ucontext)
{
    ucontext_t *context = (ucontext_t *)ucontext;
    const char *pc = register_of(context, PC);
    (void)signal_no;
    (void)info;
    int has_returned = pc == single_step_arrived, has_started = pc == run.step.to->entry;
    if (pc == run.last_pc) {
        return;
    }
    run.last_pc = pc;
    check_instruction(context);
    if (has_returned) {
        check_return(context);
    } else if (has_started) {
        check_entry(context);
        run.step.to->entry = NULL;
    }
    if (has_returned || has_started) {
        check_control_words(context);
    }
    int is_left = run.has_left && pc == run.step.left_for;
    if (has_returned || has_started || is_left) {
        context->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    }
    step_report.instructions++;
    if (run.step.is_signalled) {
        fill_below(context);
        raise(SIGUSR1);
    }
}

/* On whatever SP points to. */
static void on_signal(int signal_no, siginfo_t *info, void *ucontext)
{
    char below[STEP_FILL_SZ];
    (void)signal_no;
    (void)info;
    memset(below, 0xe6, sizeof(below));
    __asm__ volatile("" : : "r"(below) : "memory");
    step_report.signals++;
    if (!is_in_a_stack(below)) {
        step_report.stray_frame = ucontext;
    }
}

const char *pc_in_frame(const void *ucontext)
{
    return register_of((const ucontext_t *)ucontext, PC);
}

static void handle(int signal_no, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | flags;
    sigaddset(&action.sa_mask, SIGUSR1);
    aco_assert(sigaction(signal_no, &action, NULL) == 0);
}

void single_step_init(void)
{
    static char trap_stack[TRAP_STACK_SZ];
    stack_t stack = {.ss_sp = trap_stack, .ss_size = sizeof(trap_stack)};
    aco_assert(sigaltstack(&stack, NULL) == 0);
    handle(SIGTRAP, on_trap, SA_ONSTACK);
    handle(SIGUSR1, on_signal, 0);
}

/* ==== Step ==================================================================================== */

void single_step(const step_t *step)
{
    static uintptr_t value = 0;
    const uint32_t usual = MXCSR_USUAL;
    for (size_t i = 0; i < STEP_REGISTERS; i++) {
        value += (uintptr_t)0x9e3779b9;
        step->from->kept[i] = value;
    }
    run.step = *step;
    run.has_left = 0;
    run.last_pc = NULL;
    single_step_call(step->from, step->function, step->arguments[0], step->arguments[1]);
    /* An x87 exception that is pending, and not masked here, comes now. */
    __asm__ volatile("fwait\n\tfninit\n\tldmxcsr %0" : : "m"(usual));
}
