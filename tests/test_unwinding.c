// SPDX-License-Identifier: Apache-2.0
/*
 * Backtraces. From a coroutine they list its functions up to the entry function and end there, by
 * call-frame information and by the chain of frame pointers, also after its frames were saved out
 * and restored. And they are right at every instruction of the switch, inline and in acosw(), and
 * of the protector: each is stepped over, and a signal handler on a stack of its own looks from
 * there. Relies on the unwinder of libgcc; on frame pointers where HAVE_FRAME_POINTERS says so; and
 * where HAVE_BREAKPOINTS does, on a breakpoint before each instruction of the switch.
 */
// build: tests/no_inline.c -fno-omit-frame-pointer -DHAVE_FRAME_POINTERS
#define _GNU_SOURCE /* for the names of registers in <ucontext.h> */
#include "harness.h"
#include "no_inline.h"

#include <fenv.h>
#include <signal.h>
#include <ucontext.h>
#include <unwind.h>

/* Where a flag of the processor makes it trap after every instruction, or a breakpoint is before
 * each one that matters. */
#if defined(ACO_ARCH_X86_64) || defined(ACO_ARCH_I386)
#define HAVE_TRAP_FLAG
#endif
#if defined(HAVE_TRAP_FLAG) || defined(HAVE_BREAKPOINTS)
#define HAVE_STEPS
#endif

#if defined(ACO_ARCH_X86_64)
#define REG_PC REG_RIP
#define REG_STACK REG_RSP
#define CT_KEPT 6
static const int kept[CT_KEPT] = {3, 6, 12, 13, 14, 15}; /* rbx, rbp, r12-r15 in DWARF */
#define FILL_KEPT(n)                                                                               \
    __asm__ volatile(                                                                              \
        "movl %0, %%ebx\n\tmovl %0, %%r12d\n\tmovl %0, %%r13d\n\t"                                 \
        "movl %0, %%r14d\n\tmovl %0, %%r15d"                                                       \
        :                                                                                          \
        : "i"(n)                                                                                   \
        : "ebx", "r12", "r13", "r14", "r15")
#elif defined(ACO_ARCH_I386)
#define REG_PC REG_EIP
#define REG_STACK REG_ESP
#define CT_KEPT 4
static const int kept[CT_KEPT] = {3, 5, 6, 7}; /* ebx, ebp, esi, edi in DWARF */
#define FILL_KEPT(n)                                                                               \
    __asm__ volatile("movl %0, %%ebx\n\tmovl %0, %%esi\n\tmovl %0, %%edi"                          \
                     :                                                                             \
                     : "i"(n)                                                                      \
                     : "ebx", "esi", "edi")
#elif defined(ACO_ARCH_ARM64)
#define CT_KEPT 11
static const int kept[CT_KEPT] = {19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29};
#define FILL_KEPT(n)                                                                               \
    __asm__ volatile(                                                                              \
        "mov x19, %0\n\tmov x20, %0\n\tmov x21, %0\n\tmov x22, %0\n\tmov x23, %0\n\t"              \
        "mov x24, %0\n\tmov x25, %0\n\tmov x26, %0\n\tmov x27, %0\n\tmov x28, %0"                  \
        :                                                                                          \
        : "i"(n)                                                                                   \
        : "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28")
#elif defined(ACO_ARCH_RISCV64)
#define CT_KEPT 12
static const int kept[CT_KEPT] = {8, 9, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27};
#define FILL_KEPT(n)                                                                               \
    __asm__ volatile(                                                                              \
        "li s1, %0\n\tli s2, %0\n\tli s3, %0\n\tli s4, %0\n\tli s5, %0\n\tli s6, %0\n\t"           \
        "li s7, %0\n\tli s8, %0\n\tli s9, %0\n\tli s10, %0\n\tli s11, %0"                          \
        :                                                                                          \
        : "i"(n)                                                                                   \
        : "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11")
#elif defined(ACO_ARCH_ARM)
#define CT_KEPT 8
static const int kept[CT_KEPT] = {4, 5, 6, 7, 8, 9, 10, 11};
/* Those that may point to frames are not this function's to change. */
#define FILL_KEPT(n)                                                                               \
    __asm__ volatile("mov r4, %0\n\tmov r5, %0\n\tmov r8, %0\n\tmov r9, %0\n\tmov r10, %0"         \
                     :                                                                             \
                     : "i"(n)                                                                      \
                     : "r4", "r5", "r8", "r9", "r10")
#endif

#ifdef ACO_ARCH_RISCV64
#define FRAME_RECORD (-2) /* words from where a frame pointer points to those saved there */
#else
#define FRAME_RECORD 0
#endif

#define MAX_FRAMES 64
#define SIGNAL_STACK_SZ 65536u /* bytes */
#define TRAP_FLAG 0x100        /* of the flags register: SIGTRAP after every instruction */
#define BELOW_SP_SZ 256u       /* bytes; acosw() uses fewer */

/* 0 where libc has no unwind tables, so that the trace of a thread's own stack breaks off there. */
#ifdef __GLIBC__
#define MAIN_HAS_END 1
#else
#define MAIN_HAS_END 0
#endif

/* Keeps a call before it from becoming a jump, which leaves no frame. */
#define NO_TAIL_CALL() __asm__ volatile("")

/* C can't call these. The first is there only on x86, the second only in position-independent code
 * for i386. */
extern void aco_i_load_fpucw_mxcsr(void) __attribute__((weak));
extern void aco_i_get_pc_edx(void) __attribute__((weak, visibility("hidden")));

/* ==== A coroutine and its main coroutine ====================================================== */

static struct {
    aco_t *co;
    void (*look)(void); /* what the innermost function does before and after it yields */
    int is_inline;      /* the switch; otherwise by acosw() */
} run;

static NOINLINE void yields(void)
{
    run.look();
    if (run.is_inline) {
        aco_yield();
    } else {
        no_inline_yield();
    }
    run.look();
    NO_TAIL_CALL();
}

static NOINLINE void nests(void)
{
    FILL_KEPT(0);
    yields();
    yields();
    NO_TAIL_CALL();
}

static NOINLINE ACO_NORETURN void exits(void)
{
    if (run.is_inline) {
        aco_exit();
    }
    no_inline_exit();
}

static void nests_and_exits(void)
{
    fesetround(FE_UPWARD); /* so that each switch loads control words */
    nests();
    exits();
}

static NOINLINE void resumes(void)
{
    if (run.is_inline) {
        aco_resume(run.co);
    } else {
        no_inline_resume(run.co);
    }
    NO_TAIL_CALL();
}

#ifdef HAVE_STEPS
static volatile int is_stepping;

#ifdef HAVE_TRAP_FLAG
/* The breakpoint has the handler set the trap flag, or clear it. */
#define SET_STEPPING(is_on)                                                                        \
    do {                                                                                           \
        is_stepping = (is_on);                                                                     \
        __asm__ volatile("int3");                                                                  \
    } while (0)
#else
#define SET_STEPPING(is_on) (is_stepping = (is_on))
#endif

static NOINLINE void resumes_under_steps(void)
{
    SET_STEPPING(1);
    while (!run.co->is_end) {
        FILL_KEPT(1); /* the coroutine's differ: one that a backtrace doesn't find is seen */
        resumes();
    }
    SET_STEPPING(0);
}

static void looks_at_nothing(void)
{
}

/* The last word after that ends the coroutine. */
static void returns(void)
{
    NO_TAIL_CALL();
}
#endif

/* ==== Expected backtraces ===================================================================== */

typedef enum { NEITHER, EITHER, MAIN, COROUTINE } side_t;

/* A function that the test knows: the sides that may be suspended or running in it, and its depth
 * there, 0 being where a coroutine ends or where the thread's own frames are of no more interest.
 * The switch itself may be called from any depth. */
typedef struct {
    const char *name;
    aco_cofuncp_t function;
    side_t side;
    int depth;
} place_t;

/* clang-format off */
#define PLACE(function, side, depth) {#function, (aco_cofuncp_t)(function), side, depth}
/* clang-format on */

static const place_t places[] = {
    PLACE(acosw, EITHER, 0),
    PLACE(aco_i_load_fpucw_mxcsr, EITHER, 0),
    PLACE(aco_i_get_pc_edx, EITHER, 0),
    PLACE(no_inline_resume, EITHER, 0),
    PLACE(no_inline_yield, EITHER, 0),
    PLACE(no_inline_exit, EITHER, 0),
#ifdef HAVE_STEPS
    PLACE(resumes_under_steps, MAIN, 0),
    PLACE(returns, COROUTINE, 1),
#endif
    PLACE(resumes, MAIN, 1),
    PLACE(aco_funcp_protector_asm, COROUTINE, 0),
    PLACE(nests_and_exits, COROUTINE, 1),
    PLACE(nests, COROUTINE, 2),
    PLACE(yields, COROUTINE, 3),
    PLACE(exits, COROUTINE, 2),
    PLACE(aco_funcp_protector, COROUTINE, 1),
};

typedef struct {
    const place_t *place; /* NULL if the test does not know it */
    uintptr_t pc;
} frame_t;

/* Frames from the innermost on: where the code was interrupted, then return addresses. */
typedef struct {
    frame_t frames[MAX_FRAMES];
    size_t ct;
    uintptr_t first_pc; /* frames before it are left out; 0: those of unknown functions are */
    int is_end;         /* whether the last frame is one that is known to have no caller */
    int has_kept;       /* whether some function called acosw(), and then what its */
    _Unwind_Word kept[CT_KEPT]; /* callee-saved registers held */
} trace_t;

/* The address without the bit that marks thumb code. */
static uintptr_t address_of(aco_cofuncp_t function)
{
#ifdef ACO_ARCH_ARM
    return (uintptr_t)function & ~(uintptr_t)1;
#else
    return (uintptr_t)function;
#endif
}

#ifdef ACO_ARCH_ARM
/* For each function two words: the distance to it from here, in 31 bits, and how to unwind it. */
extern const uint32_t (*__gnu_Unwind_Find_exidx(uintptr_t pc, int *ct))[2];

/* The linker keeps one entry, that of the first, for neighbours that are unwound alike. */
static uintptr_t start_before(uintptr_t next)
{
    int ct = 0;
    const uint32_t(*table)[2] = __gnu_Unwind_Find_exidx(next, &ct);
    uintptr_t start = 0;
    for (int i = 0; i < ct; i++) {
        uintptr_t other = (uintptr_t)table[i] + (uintptr_t)((int32_t)(table[i][0] << 1) >> 1);
        start = other < next ? other : start; /* they are sorted */
    }
    for (size_t i = 0; i < ARRAY_SZ(places); i++) {
        uintptr_t other = address_of(places[i].function);
        start = other > start && other < next ? other : start;
    }
    return start;
}
#else
static uintptr_t start_before(uintptr_t next)
{
    return (uintptr_t)_Unwind_FindEnclosingFunction((void *)next);
}
#endif

/* The place of the instruction before `next`. */
static const place_t *place_before(uintptr_t next)
{
    uintptr_t protector = address_of(aco_funcp_protector_asm);
    uintptr_t start = start_before(next);
    /* A return address belongs to the code before it. */
    if (start != 0 && start == start_before(protector)) {
        start = protector;
    }
    for (size_t i = 0; i < ARRAY_SZ(places) && start != 0; i++) {
        if (address_of(places[i].function) == start) {
            return &places[i];
        }
    }
    return NULL;
}

static side_t side_at(const trace_t *trace, size_t i)
{
    return i < trace->ct && trace->frames[i].place != NULL ? trace->frames[i].place->side : NEITHER;
}

/*
 * Whether the trace lists what switches, if that, then each function down to depth 0, and no more
 * of a coroutine. With the stack pointer under way from one stack to the other, the inline switch
 * may pass for a call, so that the function which it is part of is there twice.
 */
static int is_right(const trace_t *trace, side_t side)
{
    size_t i = 0;
    while (side_at(trace, i) == EITHER) {
        i++;
    }
    if (i == 0 && trace->ct > 1 && trace->frames[0].place == trace->frames[1].place) {
        i++;
    }
    for (int depth = side_at(trace, i) == side ? trace->frames[i].place->depth : 0; depth >= 0;
         depth--, i++) {
        if (side_at(trace, i) != side || trace->frames[i].place->depth != depth) {
            return 0;
        }
    }
    if (side == MAIN) {
        return trace->is_end || !MAIN_HAS_END;
    }
    return trace->is_end && i == trace->ct;
}

static void print_trace(const trace_t *trace, side_t side)
{
    print_error("this is no backtrace of %s:\n", side == MAIN ? "main" : "the coroutine");
    for (size_t i = 0; i < trace->ct; i++) {
        const frame_t *frame = &trace->frames[i];
        uintptr_t start = frame->place != NULL ? (uintptr_t)frame->place->function : 0;
        print_error("  %s + %#tx\n", frame->place != NULL ? frame->place->name : "?",
                    (ptrdiff_t)(frame->pc - start));
    }
    print_error("  %s\n", trace->is_end ? "end" : "no end");
    for (size_t i = 0; trace->has_kept && i < CT_KEPT; i++) {
        print_error("  register %d: %#lx\n", kept[i], (unsigned long)trace->kept[i]);
    }
}

/* ==== Taking backtraces ======================================================================= */

/* Adds a frame; `next` is the instruction after the one it is at. */
static void add_frame(trace_t *trace, uintptr_t pc, uintptr_t next)
{
    const place_t *place = place_before(next);
    int is_known = trace->first_pc != 0 ? pc == trace->first_pc : place != NULL;
    if (trace->ct < MAX_FRAMES && (trace->ct != 0 || is_known)) {
        trace->frames[trace->ct].place = place;
        trace->frames[trace->ct].pc = pc;
        trace->ct++;
    }
}

#ifdef ACO_ARCH_ARM
static _Unwind_Reason_Code add_context(struct _Unwind_Context *context, void *arg)
{
    uintptr_t pc = (uintptr_t)_Unwind_GetIP(context);
    add_frame((trace_t *)arg, pc, pc);
    return _URC_NO_REASON;
}

/* The unwinder stops before a function that is known to have no caller, as it does before one
 * without a table: so there must not be a frame more, nor less. */
static NOINLINE void trace_by_cfi(trace_t *trace, uintptr_t first_pc)
{
    memset(trace, 0, sizeof(*trace));
    trace->first_pc = first_pc;
    _Unwind_Backtrace(add_context, trace);
    trace->is_end = 1;
    add_frame(trace, address_of(aco_funcp_protector_asm), address_of(aco_funcp_protector_asm));
}
#else
static int is_acosw(const place_t *place)
{
    return place != NULL && place->function == (aco_cofuncp_t)acosw;
}

static void add_kept(trace_t *trace, struct _Unwind_Context *context)
{
    trace->has_kept = 1;
    for (size_t i = 0; i < CT_KEPT; i++) {
        trace->kept[i] = _Unwind_GetGR(context, kept[i]);
    }
}

/* For a frame known to have no caller, the unwinder adds one without an address; it does not where
 * it merely finds no call-frame information. */
static _Unwind_Reason_Code add_context(struct _Unwind_Context *context, void *arg)
{
    trace_t *trace = (trace_t *)arg;
    int is_interrupted = 0;
    uintptr_t pc = (uintptr_t)_Unwind_GetIPInfo(context, &is_interrupted);
    trace->is_end = pc == 0;
    if (pc != 0) {
        add_frame(trace, pc, is_interrupted ? pc + 1 : pc);
        if (trace->ct > 1 && is_acosw(trace->frames[trace->ct - 2].place)) {
            add_kept(trace, context);
        }
    }
    return _URC_NO_REASON;
}

static NOINLINE void trace_by_cfi(trace_t *trace, uintptr_t first_pc)
{
    memset(trace, 0, sizeof(*trace));
    trace->first_pc = first_pc;
    if (_Unwind_Backtrace(add_context, trace) != _URC_END_OF_STACK) {
        trace->is_end = 0;
    }
}
#endif

#ifdef HAVE_FRAME_POINTERS
/* Traces as profilers do: a frame pointer points at that of the caller, and a return address; on
 * some processors these lie below. */
static NOINLINE void trace_by_frame_pointers(trace_t *trace)
{
    memset(trace, 0, sizeof(*trace));
    void *const *frame = (void *const *)__builtin_frame_address(0);
    for (; frame != NULL && trace->ct < MAX_FRAMES; frame = (void *const *)frame[FRAME_RECORD]) {
        uintptr_t return_address = (uintptr_t)frame[FRAME_RECORD + 1];
        add_frame(trace, return_address, return_address);
    }
    trace->is_end = frame == NULL;
}
#endif

/* An unwinder that takes the protector for a function with a caller finds something. */
static void dirty_the_end(const aco_share_stack_t *s)
{
    char *end = (char *)s->ptr + s->sz;
    memset(s->align_highptr, 0x5a, (size_t)(end - (char *)s->align_highptr));
}

/* ==== From a coroutine ======================================================================== */

static int ct_looks;

static void look_at(const trace_t *trace)
{
    int is_as_expected = is_right(trace, COROUTINE) && trace->ct == 4;
    if (!is_as_expected) {
        print_trace(trace, COROUTINE);
    }
    CO_CHECK(is_as_expected);
    ct_looks++;
}

static void looks(void)
{
    trace_t trace;
    trace_by_cfi(&trace, 0);
    look_at(&trace);
}

#ifdef HAVE_FRAME_POINTERS
static void looks_at_frame_pointers(void)
{
    trace_t trace;
    trace_by_frame_pointers(&trace);
    look_at(&trace);
}
#endif

/* Another uses the stack whenever the coroutine has yielded. */
static void check_looks(const instance_t *in, int is_inline, void (*look)(void))
{
    dirty_the_end(in->stack);
    aco_t *other = make_co(in, yields_for_ever, NULL);
    run.co = make_co(in, nests_and_exits, NULL);
    run.look = look;
    run.is_inline = is_inline;
    ct_looks = 0;
    while (!run.co->is_end) {
        resumes();
        aco_resume(other);
    }
    assert_int_equal(ct_looks, 4);
    assert_int_equal(run.co->save_stack.ct_restore, 2);
    assert_co_checks();
    aco_destroy(run.co);
    aco_destroy(other);
}

static void backtraces_end_at_the_entry_function(void **state)
{
    check_looks((const instance_t *)*state, 1, looks);
    check_looks((const instance_t *)*state, 0, looks);
}

#ifdef HAVE_FRAME_POINTERS
static void chains_of_frame_pointers_end_at_the_entry_function(void **state)
{
    check_looks((const instance_t *)*state, 1, looks_at_frame_pointers);
    check_looks((const instance_t *)*state, 0, looks_at_frame_pointers);
}
#endif

#ifdef HAVE_STEPS
/* ==== At every instruction ==================================================================== */

static struct {
    side_t side; /* that runs */
    int is_jump; /* whether the last instruction was that of a switch which changes sides */
    size_t ct_jumps;
    size_t cts[ARRAY_SZ(places)]; /* instructions looked from, of each place */
    trace_t trace;                /* the last one */
    int is_wrong;                 /* whether it is, after which none is taken */
    trace_t calls[COROUTINE + 1]; /* of each side, when it last called acosw() */
} steps;

#ifdef HAVE_TRAP_FLAG
/* Whether a jump through memory is at `pc`: opcode ff, 4 in the middle of the next byte, and no
 * register in its upper bits. In the known functions there is none but that of a switch. */
static int is_jump_of_switch(uintptr_t pc)
{
    const unsigned char *code = (const unsigned char *)pc;
    return code[0] == 0xff && (code[1] & 0x38) == 0x20 && code[1] < 0xc0;
}
#else
#define BREAKPOINT_SZ 4 /* bytes */

/* Whether "br x17" is behind the breakpoint at `pc`. */
static int is_jump_of_switch(uintptr_t pc)
{
    return *(const uint32_t *)(pc + BREAKPOINT_SZ) == 0xd61f0220;
}
#endif

/* Whether the caller of acosw(), if there is one, holds in its registers what it called it with. */
static int is_kept(const trace_t *trace)
{
    trace_t *call = &steps.calls[steps.side];
    if (trace->first_pc == (uintptr_t)acosw) {
        *call = *trace;
    }
    return !trace->has_kept || memcmp(call->kept, trace->kept, sizeof(trace->kept)) == 0;
}

/* Overwrites what is below SP, as a handler on the same stack does: no register is saved there. The
 * kernel would spare the red zone of x86-64, where acosw() must not rely on it. */
aco_attr_no_asan static void overwrite_below(uintptr_t sp)
{
    volatile unsigned char *below = (unsigned char *)sp - BELOW_SP_SZ;
    for (size_t i = 0; i < BELOW_SP_SZ; i++) {
        below[i] = 0x5a;
    }
}

static void look_from(uintptr_t pc, uintptr_t sp, const place_t *place)
{
    steps.cts[place - places]++;
    if (is_acosw(place)) {
        overwrite_below(sp);
    }
    trace_by_cfi(&steps.trace, pc);
    steps.is_wrong = !is_right(&steps.trace, steps.side) || !is_kept(&steps.trace);
}

/* The instruction that comes next, or the breakpoint before it. */
static void step_to(uintptr_t pc, uintptr_t sp)
{
    if (steps.is_jump) {
        steps.ct_jumps++;
        steps.side = steps.side == MAIN ? COROUTINE : MAIN;
    }
    const place_t *place = place_before(pc + 1);
    steps.is_jump = place != NULL && is_jump_of_switch(pc);
    if (place != NULL && !steps.is_wrong) {
        look_from(pc, sp, place);
    }
}

#ifdef HAVE_TRAP_FLAG
static void on_trap(int signal_no, siginfo_t *info, void *context)
{
    (void)signal_no;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (info->si_code == SI_KERNEL) { /* a breakpoint */
        registers[REG_EFL] &= ~(greg_t)TRAP_FLAG;
        registers[REG_EFL] |= is_stepping ? TRAP_FLAG : 0;
    } else if (is_stepping) {
        step_to((uintptr_t)registers[REG_PC], (uintptr_t)registers[REG_STACK]);
    }
}
#else
static void on_trap(int signal_no, siginfo_t *info, void *context)
{
    (void)signal_no;
    (void)info;
    mcontext_t *registers = &((ucontext_t *)context)->uc_mcontext;
    if (is_stepping) {
        step_to((uintptr_t)registers->pc, (uintptr_t)registers->sp);
    }
    registers->pc += BREAKPOINT_SZ;
}
#endif

/* The unwinder was led astray. */
static void on_fault(int signal_no)
{
    print_trace(&steps.trace, steps.side);
    print_error("died of signal %d\n", signal_no);
    _exit(1);
}

static int set_handlers(void **state)
{
    (void)state;
    static char signal_stack[SIGNAL_STACK_SZ];
    stack_t stack;
    memset(&stack, 0, sizeof(stack));
    stack.ss_sp = signal_stack;
    stack.ss_size = sizeof(signal_stack);
    assert_int_equal(sigaltstack(&stack, NULL), 0);
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    assert_int_equal(sigaction(SIGTRAP, &action, NULL), 0);
    signal(SIGSEGV, on_fault);
    return 0;
}

/* How many instructions of a function were looked from. */
static size_t ct_steps_in(aco_cofuncp_t function)
{
    const place_t *place = place_before((uintptr_t)function + 1);
    assert_non_null(place);
    return steps.cts[place - places];
}

static void step_through(const instance_t *in, aco_cofuncp_t entry, int is_inline)
{
    dirty_the_end(in->stack);
    aco_thread_init(exits);
    run.co = make_co(in, entry, NULL);
    run.look = looks_at_nothing;
    run.is_inline = is_inline;
    memset(&steps, 0, sizeof(steps));
    steps.side = MAIN;
    set_handlers(NULL); /* cmocka has put others in their place */
    resumes_under_steps();
    fesetround(FE_TONEAREST); /* also where all share the control words */
    aco_destroy(run.co);
}

/* A virtual machine may lose a trap now and then; unwind information that is wrong is wrong in
 * every attempt. */
static void check_steps(const instance_t *in, aco_cofuncp_t entry, int is_inline, size_t ct_jumps)
{
    for (int attempt = 0; attempt < 3; attempt++) {
        step_through(in, entry, is_inline);
        if (!steps.is_wrong && steps.ct_jumps == ct_jumps) {
            break;
        }
    }
    if (steps.is_wrong) {
        print_trace(&steps.trace, steps.side);
        fail();
    }
    assert_int_equal(steps.ct_jumps, ct_jumps);
    assert_int_equal(ct_steps_in((aco_cofuncp_t)acosw) != 0, !is_inline);
}

static void backtraces_are_right_at_every_instruction_of_a_switch(void **state)
{
    for (int is_inline = 0; is_inline <= 1; is_inline++) {
        check_steps((const instance_t *)*state, nests_and_exits, is_inline, 6);
#ifndef HAVE_TRAP_FLAG
        if (!is_inline) {
            continue; /* only the switch has breakpoints */
        }
#endif
        assert_true(ct_steps_in(yields) != 0);
        assert_true(ct_steps_in(exits) != 0);
#if defined(HAVE_TRAP_FLAG) && !defined(ACO_CONFIG_SHARE_FPU_MXCSR_ENV)
        assert_true(ct_steps_in(aco_i_load_fpucw_mxcsr) != 0);
#endif
    }
}

static void backtraces_are_right_at_every_instruction_of_the_protector(void **state)
{
    for (int is_inline = 0; is_inline <= 1; is_inline++) {
        check_steps((const instance_t *)*state, returns, is_inline, 2);
        assert_true(ct_steps_in(aco_funcp_protector_asm) != 0);
#ifdef HAVE_TRAP_FLAG
        assert_true(ct_steps_in(aco_funcp_protector) != 0);
#endif
    }
}

#else
#define set_handlers NULL
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(backtraces_end_at_the_entry_function),
#ifdef HAVE_FRAME_POINTERS
        instance_test(chains_of_frame_pointers_end_at_the_entry_function),
#endif
#ifdef HAVE_STEPS
        instance_test(backtraces_are_right_at_every_instruction_of_a_switch),
        instance_test(backtraces_are_right_at_every_instruction_of_the_protector),
#endif
    };
    return cmocka_run_group_tests_name("unwinding", tests, set_handlers, NULL);
}
