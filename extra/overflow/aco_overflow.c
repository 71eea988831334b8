// SPDX-License-Identifier: Apache-2.0
/*
 * Implements aco_overflow.h. An overflow is a fault at an address in the guard page of the running
 * coroutine's share stack. On Linux it is always a SIGSEGV: SIGBUS is for mapped files.
 *
 * The handler calls nothing that allocates or waits. It is not reentered while it reports: SIGSEGV
 * is blocked, so a fault ends the process. It keeps no state, so a handler to which it passes a
 * fault may leave by siglongjmp().
 */

/* Declares the registers in a ucontext_t, and MINSIGSTKSZ of the running system. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "aco_overflow.h"

#include "aco.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#ifdef __GLIBC__
#include <execinfo.h>
#endif

#define REPORT_SZ ((size_t)16 << 10)          /* bytes of stack; a report takes less than 4 KiB */
#define ALTERNATE_STACK_SZ ((size_t)64 << 10) /* bytes: for a report, or another handler */
#define LINE_SZ 320u                          /* bytes; the longest line of a report */
#define FAILURE_SZ 160u                       /* bytes; of the message for a failed call */
#define SHOWN_FRAMES 32                       /* frames of the faulting coroutine, at most */
#define HANDLER_FRAMES 8                      /* from backtrace() to the fault, at most */

/* Reports an overflow in a task of the runtime, and names the task; NULL in a program without one.
 * Returns whether the fault was such an overflow. */
#ifdef __cplusplus
extern "C" {
#endif
extern int aco_i_report_overflow(int signal_no, const siginfo_t *info, const void *context)
    __attribute__((weak));
#ifdef __cplusplus
}
#endif

/* The action for SIGSEGV before the handler was installed. */
static struct sigaction previous;
static char previous_is_spent; /* 1 once a previous handler with SA_RESETHAND was called */

/* ==== Report ================================================================================= */

typedef struct {
    char text[LINE_SZ];
    size_t sz;
} line_t;

static void add_char(line_t *line, char c)
{
    if (line->sz < LINE_SZ) {
        line->text[line->sz++] = c;
    }
}

static void add_text(line_t *line, const char *text)
{
    for (; *text != '\0'; text++) {
        add_char(line, *text);
    }
}

static void add_number(line_t *line, uintptr_t n, unsigned base)
{
    if (n >= base) {
        add_number(line, n / base, base);
    }
    add_char(line, "0123456789abcdef"[n % base]);
}

static void add_address(line_t *line, uintptr_t address)
{
    add_text(line, "0x");
    add_number(line, address, 16);
}

/* Each line is one write(), so that lines of two threads don't mix. */
static void write_text(const char *text, size_t sz)
{
    ssize_t written = write(STDERR_FILENO, text, sz);
    (void)written; /* a failure can be reported nowhere else */
}

static void write_summary(const aco_t *co, uintptr_t address)
{
    line_t line;
    line.sz = 0;
    add_text(&line, "aco: stack overflow at ");
    add_address(&line, address);
    add_text(&line, ": the share stack has no more than ");
    add_number(&line, co->share_stack->sz, 10);
    add_text(&line, " bytes (coroutine ");
    add_address(&line, (uintptr_t)co);
    add_text(&line, ", entry function ");
    add_address(&line, (uintptr_t)co->fp);
    add_text(&line, "): give aco_share_stack_new2() a larger size, or recurse less deeply\n");
    write_text(line.text, line.sz);
}

#ifdef __GLIBC__
/* The address of the faulting instruction; NULL on unknown processors. */
static void *faulting_instruction(const void *context)
{
    const ucontext_t *interrupted = (const ucontext_t *)context;
#if defined(ACO_ARCH_X86_64)
    return (void *)interrupted->uc_mcontext.gregs[REG_RIP];
#elif defined(ACO_ARCH_I386)
    return (void *)interrupted->uc_mcontext.gregs[REG_EIP];
#elif defined(ACO_ARCH_ARM64)
    return (void *)interrupted->uc_mcontext.pc;
#elif defined(ACO_ARCH_ARM)
    return (void *)interrupted->uc_mcontext.arm_pc;
#elif defined(ACO_ARCH_RISCV64)
    return (void *)interrupted->uc_mcontext.__gregs[REG_PC];
#else
    (void)interrupted;
    return NULL;
#endif
}

/* The frames from the faulting one on. Those of the handler before it are shown only if the
 * faulting one is not found. */
static void write_backtrace(const void *context)
{
    static const char head[] = "aco: backtrace, innermost frame first:\n";
    static const char more[] = "aco: more frames are not shown\n";
    void *frames[HANDLER_FRAMES + SHOWN_FRAMES + 1];
    int ct = backtrace(frames, HANDLER_FRAMES + SHOWN_FRAMES + 1);
    int first = 0;
    while (first < ct && frames[first] != faulting_instruction(context)) {
        first++;
    }
    first = first < ct ? first : 0;
    int shown = ct - first < SHOWN_FRAMES ? ct - first : SHOWN_FRAMES;
    write_text(head, sizeof(head) - 1);
    backtrace_symbols_fd(frames + first, shown, STDERR_FILENO);
    if (ct - first > shown) {
        write_text(more, sizeof(more) - 1);
    }
}

/* The first call of backtrace() loads a library. */
static void load_unwinder(void)
{
    void *frame;
    (void)backtrace(&frame, 1);
}

static void write_functions(const aco_t *co, const void *context)
{
    static const char head[] = "aco: entry function:\n";
    void *fp = (void *)(uintptr_t)co->fp;
    write_text(head, sizeof(head) - 1);
    backtrace_symbols_fd(&fp, 1, STDERR_FILENO);
    write_backtrace(context);
}
#else
/* Without backtrace(), the first line is all. */
#define load_unwinder() ((void)0)
#define write_functions(co, context) ((void)(context))
#endif

static void report(const aco_t *co, uintptr_t address, const void *context)
{
    write_summary(co, address);
    write_functions(co, context);
}

/* ==== Handler ================================================================================ */

/* Whether the thread itself caused the signal. Only then does it have an address. */
static int is_fault(const siginfo_t *info)
{
    return info->si_code > 0;
}

static int is_overflow(const aco_t *co, const siginfo_t *info)
{
    if (!is_fault(info) || co == NULL || co->share_stack == NULL) {
        return 0;
    }
    /* Without a guard page, real_ptr is ptr. */
    uintptr_t address = (uintptr_t)info->si_addr;
    return address >= (uintptr_t)co->share_stack->real_ptr &&
           address < (uintptr_t)co->share_stack->ptr;
}

/* When the handler returns, the instruction faults again, and a core shows its address. A signal of
 * another origin is sent again; it stays pending until the handler returns. */
static void take_default_action(int signal_no, const siginfo_t *info)
{
    signal(signal_no, SIG_DFL);
    if (!is_fault(info) || info->si_code == SI_KERNEL) {
        raise(signal_no);
    }
}

/* Acts as without this handler, whose mask is that of the previous one. */
static void pass_on(int signal_no, siginfo_t *info, void *context)
{
    unsigned flags = (unsigned)previous.sa_flags;
    if (previous.sa_handler == SIG_IGN && !is_fault(info)) {
        return;
    }
    if (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN ||
        ((flags & SA_RESETHAND) && __atomic_exchange_n(&previous_is_spent, 1, __ATOMIC_RELAXED))) {
        take_default_action(signal_no, info);
        return;
    }
    if ((flags & SA_NODEFER) && !sigismember(&previous.sa_mask, signal_no)) {
        sigset_t itself;
        sigemptyset(&itself);
        sigaddset(&itself, signal_no);
        pthread_sigmask(SIG_UNBLOCK, &itself, NULL);
    }
    if (flags & SA_SIGINFO) {
        previous.sa_sigaction(signal_no, info, context);
    } else {
        previous.sa_handler(signal_no);
    }
}

static void handle_fault(int signal_no, siginfo_t *info, void *context)
{
    const aco_t *co = aco_gtls_co;
    if (is_overflow(co, info)) {
        if (aco_i_report_overflow == NULL || !aco_i_report_overflow(signal_no, info, context)) {
            report(co, (uintptr_t)info->si_addr, context);
        }
        take_default_action(signal_no, info);
    } else {
        pass_on(signal_no, info, context);
    }
}

/* ==== Installation =========================================================================== */

static size_t page_sz;
static pthread_key_t mapping_key; /* the alternate stack made here, with its guard */

static size_t mapping_sz(void)
{
    return page_sz + ((size_t)MINSIGSTKSZ + ALTERNATE_STACK_SZ + page_sz - 1) / page_sz * page_sz;
}

/* Ends the process, with errno, unless `holds`. */
static void demand(int holds, const char *function)
{
    char text[FAILURE_SZ];
    if (!holds) {
        snprintf(text, sizeof(text),
                 "%s failed, errno %d: free memory or raise its limit, and "
                 "don't call it in a signal handler",
                 function, errno);
        aco_i_fail("aco_install_overflow_handler", aco_gtls_co, text);
    }
}

/* The same for functions that return an error number. */
static void demand_no_error(int error, const char *function)
{
    errno = error;
    demand(error == 0, function);
}

/* Called at the end of a thread. */
static void free_alternate_stack(void *mapping)
{
    stack_t current;
    if (sigaltstack(NULL, &current) == 0 && current.ss_sp == (char *)mapping + page_sz) {
        current.ss_flags = SS_DISABLE;
        sigaltstack(&current, NULL);
    }
    munmap(mapping, mapping_sz());
}

static void *map_alternate_stack(void)
{
    void *mapping = mmap(NULL, mapping_sz(), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    demand(mapping != MAP_FAILED, "mmap()");
    demand(mprotect(mapping, page_sz, PROT_NONE) == 0, "mprotect()");
    demand_no_error(pthread_setspecific(mapping_key, mapping), "pthread_setspecific()");
    return mapping;
}

static void provide_alternate_stack(void)
{
    stack_t stack;
    demand(sigaltstack(NULL, &stack) == 0, "sigaltstack()");
    if (!(stack.ss_flags & SS_DISABLE) && stack.ss_size >= (size_t)MINSIGSTKSZ + REPORT_SZ) {
        return;
    }
    void *mapping = pthread_getspecific(mapping_key);
    if (mapping == NULL) {
        mapping = map_alternate_stack();
    }
    stack.ss_sp = (char *)mapping + page_sz;
    stack.ss_size = mapping_sz() - page_sz;
    stack.ss_flags = 0;
    demand(sigaltstack(&stack, NULL) == 0, "sigaltstack()");
}

/* The handler has the mask and the flags of the previous one, except for flags that pass_on()
 * implements, so the previous one runs as it asked to. */
static void install_for_process(void)
{
    load_unwinder();
    page_sz = (size_t)sysconf(_SC_PAGESIZE);
    demand_no_error(pthread_key_create(&mapping_key, free_alternate_stack), "pthread_key_create()");
    demand(sigaction(SIGSEGV, NULL, &previous) == 0, "sigaction()");
    struct sigaction ours = previous;
    unsigned flags = (unsigned)previous.sa_flags & ~(SA_RESETHAND | (unsigned)SA_NODEFER);
    ours.sa_flags = (int)(flags | SA_SIGINFO | SA_ONSTACK);
    ours.sa_sigaction = handle_fault;
    demand(sigaction(SIGSEGV, &ours, NULL) == 0, "sigaction()");
}

void aco_install_overflow_handler(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    /* The first access to a thread-local may allocate in a library loaded by dlopen(): do it
     * here. */
    aco_t *volatile first_use = aco_gtls_co;
    (void)first_use;
    demand_no_error(pthread_once(&once, install_for_process), "pthread_once()");
    provide_alternate_stack();
}
