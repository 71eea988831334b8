// SPDX-License-Identifier: Apache-2.0
/*
 * The overflow report: what it contains, that the default action follows it, and that every other
 * fault and every SIGSEGV that was sent has the same effect as without the handler. Each case is a
 * child process that dies, or exits with the status that a handler of the test gives it.
 *
 * Functions whose names must be in backtraces are not static, so that -rdynamic exports them.
 */
// build: -rdynamic -Wl,--wrap=backtrace
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "extra/overflow/aco_overflow.h"
#include "tests/harness.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define FRAME_SZ 512u   /* bytes; less than a page, so that no frame steps over the guard */
#define CAUGHT 3        /* exit status of a child whose fault reached a handler of the test */
#define SHOWN_FRAMES 32 /* as in aco_overflow.h */
#define ANYWHERE ((void *)8)

/* 1 if a report has more than its first line. */
#ifdef __GLIBC__
#define HAS_BACKTRACE 1
#else
#define HAS_BACKTRACE 0
#endif

/* Has no red zone, which would stay when siglongjmp() leaves the function. */
aco_attr_no_asan static void write_to(void *address)
{
    volatile char *volatile there = (volatile char *)address;
    *there = 1;
}

/* ==== Coroutines that overflow ================================================================ */

void recurses_for_ever(void);
unsigned recurse_and_write(unsigned depth);
void touches_guard_page(void);
void touch_guard_page(void);

/* Uses the sum after the call, so that compilers do not make a loop of it. */
NOINLINE unsigned recurse_and_write(unsigned depth)
{
    volatile unsigned char data[FRAME_SZ];
    for (size_t i = 0; i < FRAME_SZ; i++) {
        data[i] = (unsigned char)depth;
    }
    ESCAPE(data);
    return data[depth % FRAME_SZ] + (depth == 0 ? 0 : recurse_and_write(depth - 1));
}

void recurses_for_ever(void)
{
    unsigned sum = recurse_and_write((unsigned)-1);
    ESCAPE(&sum);
    aco_exit();
}

static void yields_and_recurses_for_ever(void)
{
    aco_yield();
    recurses_for_ever();
}

NOINLINE void touch_guard_page(void)
{
    volatile char *lowest = (volatile char *)aco_get_co()->share_stack->ptr;
    lowest[-1] = 1;
    ESCAPE(lowest);
}

void touches_guard_page(void)
{
    touch_guard_page();
    aco_exit();
}

static void resume(void *co)
{
    aco_install_overflow_handler();
    aco_resume((aco_t *)co);
}

/* ==== The text of a report ==================================================================== */

/* The line of `text` after the one that starts with `head`, up to the end of `text`. */
static const char *after_line(const char *text, const char *head)
{
    const char *line = strstr(text, head);
    if (line == NULL || strchr(line, '\n') == NULL) {
        print_error("no line \"%s\" in:\n%s\n", head, text);
        fail();
        return NULL;
    }
    return strchr(line, '\n') + 1;
}

static void assert_line_has(const char *line, const char *words)
{
    const char *found = strstr(line, words);
    if (found == NULL || found > strchr(line, '\n')) {
        print_error("no \"%s\" in the first line of:\n%s\n", words, line);
        fail();
    }
}

static size_t count_lines(const char *text)
{
    size_t ct = 0;
    while ((text = strchr(text, '\n')) != NULL) {
        text++;
        ct++;
    }
    return ct;
}

/* Asserts what all reports have in common. Returns the backtrace, empty if there is none. */
static const char *assert_report(const char *text, const aco_t *co)
{
    char words[64];
    const char *address = text + strlen("aco: stack overflow at ");
    assert_memory_equal(text, "aco: stack overflow at ", (size_t)(address - text));
    uintptr_t fault = (uintptr_t)strtoull(address, NULL, 16);
    assert_in_range(fault, (uintptr_t)co->share_stack->real_ptr,
                    (uintptr_t)co->share_stack->ptr - 1);
    snprintf(words, sizeof(words), " %zu bytes (coroutine %p,", co->share_stack->sz,
             (const void *)co);
    assert_line_has(text, words);
    snprintf(words, sizeof(words), " entry function %p)", (void *)(uintptr_t)co->fp);
    assert_line_has(text, words);
    if (!HAS_BACKTRACE) {
        assert_int_equal(count_lines(text), 1);
        return "";
    }
    snprintf(words, sizeof(words), "[%p]", (void *)(uintptr_t)co->fp);
    assert_line_has(after_line(text, "aco: entry function"), words);
    return after_line(text, "aco: backtrace");
}

static void check_recursion(const aco_t *co, const char *text)
{
    const char *trace = assert_report(text, co);
    if (!HAS_BACKTRACE) {
        return;
    }
    assert_line_has(trace, "(recurse_and_write+");
    const char *more = strstr(trace, "aco: more frames are not shown\n");
    assert_non_null(more);
    assert_int_equal(count_lines(trace), SHOWN_FRAMES + 1);
    assert_int_equal(count_lines(more), 1);
}

static void a_standalone_coroutine_that_overflows_is_reported(void **state)
{
    static const size_t sizes[] = {0, 32768, 50000, (size_t)1 << 20};
    const instance_t *in = (const instance_t *)*state;
    for (size_t i = 0; i < ARRAY_SZ(sizes); i++) {
        aco_share_stack_t *stack = aco_share_stack_new(sizes[i]);
        aco_t *co = aco_create(in->main_co, stack, 0, recurses_for_ever, NULL);
        const char *text = expect_death(resume, co, SIGSEGV);
        check_recursion(co, text);
        if (HAS_BACKTRACE) {
            assert_line_has(after_line(text, "aco: entry function"), "(recurses_for_ever+");
        }
        aco_destroy(co);
        aco_share_stack_destroy(stack);
    }
}

/* The coroutine that overflows was saved out and restored. */
static void a_copying_coroutine_that_overflows_is_reported(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, yields_and_recurses_for_ever, NULL);
    aco_t *other = make_co(in, yields_for_ever, NULL);
    aco_resume(co);
    aco_resume(other);
    check_recursion(co, expect_death(resume, co, SIGSEGV));
    aco_destroy(co);
    aco_destroy(other);
}

static void the_backtrace_goes_from_the_fault_to_the_entry_function(void **state)
{
    if (!HAS_BACKTRACE) {
        skip();
    }
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, touches_guard_page, NULL);
    const char *trace = assert_report(expect_death(resume, co, SIGSEGV), co);
    assert_line_has(trace, "(touch_guard_page+");
    trace = strchr(trace, '\n') + 1;
    assert_line_has(trace, "(touches_guard_page+");
    assert_null(strstr(trace, "more frames"));
    aco_destroy(co);
}

static void writes_to_its_argument(void)
{
    write_to(aco_get_arg());
    aco_exit();
}

/* Both ends of the guard page, and the page above, if that faults too. */
static void the_guard_page_is_all_that_counts(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    char *guard = (char *)in->stack->real_ptr, *ptr = (char *)in->stack->ptr;
    size_t page_sz = (size_t)(ptr - guard);
    char *ends[] = {guard, ptr - 1};
    for (size_t i = 0; i < ARRAY_SZ(ends); i++) {
        aco_t *co = make_co(in, writes_to_its_argument, ends[i]);
        assert_report(expect_death(resume, co, SIGSEGV), co);
        aco_destroy(co);
    }
    aco_t *co = make_co(in, writes_to_its_argument, ptr);
    mprotect(ptr, page_sz, PROT_NONE);
    expect_signal(resume, co, SIGSEGV);
    mprotect(ptr, page_sz, PROT_READ | PROT_WRITE);
    expect_exit(resume, co, 0);
    aco_destroy(co);
}

static void write_to_guard_page(void *stack)
{
    aco_install_overflow_handler();
    write_to(((aco_share_stack_t *)stack)->real_ptr);
}

static void a_guard_page_of_no_running_coroutine_is_elsewhere(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *other = aco_share_stack_new(0);
    expect_signal(write_to_guard_page, in->stack, SIGSEGV);
    aco_t *co = make_co(in, writes_to_its_argument, other->real_ptr);
    expect_signal(resume, co, SIGSEGV);
    aco_destroy(co);
    aco_share_stack_destroy(other);
}

static void resume_without_memory(void *co)
{
    const struct rlimit none = {0, 0};
    aco_install_overflow_handler();
    setrlimit(RLIMIT_AS, &none);
    aco_resume((aco_t *)co);
}

static void a_report_allocates_nothing(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, recurses_for_ever, NULL);
    check_recursion(co, expect_death(resume_without_memory, co, SIGSEGV));
    aco_destroy(co);
}

/* The first call of backtrace() loads the unwinder, which a report must find loaded. */
#ifdef __GLIBC__
static int ct_backtraces, last_ct;
int __real_backtrace(void **frames, int ct);
int __wrap_backtrace(void **frames, int ct);

int __wrap_backtrace(void **frames, int ct)
{
    ct_backtraces++;
    last_ct = ct;
    return __real_backtrace(frames, ct);
}

static void install_and_count(void *arg)
{
    (void)arg;
    aco_install_overflow_handler();
    int ct_first = ct_backtraces;
    aco_install_overflow_handler();
    _exit(ct_first == 1 && ct_backtraces == 1 && last_ct == 1 ? 0 : 1);
}
#endif

static void installation_loads_the_unwinder(void **state)
{
    (void)state;
#ifdef __GLIBC__
    expect_exit(install_and_count, NULL, 0);
#else
    skip(); /* there is no backtrace() */
#endif
}

/* A report that faults itself: it has an invalid frame pointer, by which unwinders find the frame
 * of a function with a variable length array. */
#if defined(ACO_ARCH_X86_64) || defined(ACO_ARCH_I386)
#define LOSE_FRAME_AND_WRITE "movl $8, %%ebp\n\tmovb $1, (%0)"
#elif defined(ACO_ARCH_ARM64)
#define LOSE_FRAME_AND_WRITE "mov x29, 8\n\tstrb wzr, [%0]"
#elif defined(ACO_ARCH_ARM)
#define LOSE_FRAME_AND_WRITE "mov " ACO_STR(ACO_BP) ", #8\n\tstrb " ACO_STR(ACO_BP) ", [%0]"
#elif defined(ACO_ARCH_RISCV64)
#define LOSE_FRAME_AND_WRITE "li s0, 8\n\tsb zero, 0(%0)"
#endif
static void destroys_its_frame(void)
{
    volatile char data[(uintptr_t)aco_get_arg()];
    char *guard = (char *)aco_get_co()->share_stack->real_ptr;
    data[0] = 1;
    ESCAPE(data);
    __asm__ volatile(LOSE_FRAME_AND_WRITE : : "r"(guard) : "memory");
    aco_exit();
}

static void exit_caught(int signal_no)
{
    (void)signal_no;
    _exit(CAUGHT);
}

static void handle_with(void (*handler)(int), int flags)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(SIGSEGV, &action, NULL);
}

static void handle_with_nodefer_and_resume(void *co)
{
    handle_with(exit_caught, SA_NODEFER);
    resume(co);
}

static void a_fault_of_the_report_itself_ends_the_process(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, destroys_its_frame, (void *)100);
    const char *text = expect_death(handle_with_nodefer_and_resume, co, SIGSEGV);
    assert_line_has(text, "aco: stack overflow at ");
    assert_null(strstr(text + 1, "aco: stack overflow at "));
    aco_destroy(co);
}

/* ==== The default action ====================================================================== */

static void handle_and_resume(void *co)
{
    handle_with(exit_caught, 0);
    resume(co);
}

static void ignore_and_resume(void *co)
{
    handle_with(SIG_IGN, 0);
    resume(co);
}

static void install_twice_and_resume(void *co)
{
    aco_install_overflow_handler();
    resume(co);
}

static void an_overflow_is_deadly_whoever_handled_faults_before(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    static const act_t acts[] = {handle_and_resume, ignore_and_resume, install_twice_and_resume,
                                 handle_with_nodefer_and_resume};
    aco_t *co = make_co(in, recurses_for_ever, NULL);
    for (size_t i = 0; i < ARRAY_SZ(acts); i++) {
        const char *text = expect_death(acts[i], co, SIGSEGV);
        check_recursion(co, text);
        assert_null(strstr(text + 1, "aco: stack overflow"));
    }
    aco_destroy(co);
}

static void fault_in_main(void *arg)
{
    (void)arg;
    aco_install_overflow_handler();
    write_to(ANYWHERE);
}

static void ignore_and_fault(void *arg)
{
    handle_with(SIG_IGN, 0);
    fault_in_main(arg);
}

static void install_twice_and_fault(void *arg)
{
    aco_install_overflow_handler();
    fault_in_main(arg);
}

static void a_fault_elsewhere_that_nobody_handled_is_deadly(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, writes_to_its_argument, ANYWHERE);
    expect_signal(fault_in_main, NULL, SIGSEGV);
    expect_signal(ignore_and_fault, NULL, SIGSEGV);
    expect_signal(install_twice_and_fault, NULL, SIGSEGV);
    expect_signal(resume, co, SIGSEGV);
    aco_destroy(co);
    co = make_co(in, yields_for_ever, NULL);
    aco_resume(co);
    expect_signal(fault_in_main, NULL, SIGSEGV);
    aco_destroy(co);
}

/* ==== Previous handlers ======================================================================= */

/* The facts that a handler of the test saw. */
static volatile struct {
    unsigned ct;
    int signal_no;
    void *address;
    int has_context, is_itself_blocked, is_user_blocked;
} found;

static void look(int signal_no)
{
    sigset_t blocked;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    found.ct++;
    found.signal_no = signal_no;
    found.is_itself_blocked = sigismember(&blocked, SIGSEGV);
    found.is_user_blocked = sigismember(&blocked, SIGUSR1);
}

static void look_at_all(int signal_no, siginfo_t *info, void *context)
{
    look(signal_no);
    found.address = info->si_addr;
    found.has_context = context != NULL;
}

static sigjmp_buf back;

static void look_and_jump(int signal_no)
{
    look(signal_no);
    siglongjmp(back, 1);
}

static void look_at_all_and_jump(int signal_no, siginfo_t *info, void *context)
{
    look_at_all(signal_no, info, context);
    siglongjmp(back, 1);
}

/* A kind of previous handler, and what it must see. */
typedef struct {
    int flags;
    int masked; /* a signal in its mask, or 0 */
    int is_itself_blocked;
} kind_t;

static const kind_t kinds[] = {
    {0, 0, 1},
    {0, SIGUSR1, 1},
    {SA_SIGINFO, 0, 1},
    {SA_SIGINFO | SA_ONSTACK | SA_RESTART, SIGUSR1, 1},
    {SA_NODEFER, 0, 0},
    {SA_NODEFER, SIGSEGV, 1},
    {SA_NODEFER | SA_SIGINFO, SIGUSR1, 0},
};

static void handle_as(const kind_t *kind)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    if (kind->flags & SA_SIGINFO) {
        action.sa_sigaction = look_at_all_and_jump;
    } else {
        action.sa_handler = look_and_jump;
    }
    action.sa_flags = kind->flags;
    if (kind->masked != 0) {
        sigaddset(&action.sa_mask, kind->masked);
    }
    sigaction(SIGSEGV, &action, NULL);
}

/* Writes to `address`; the handler jumps back. Returns whether it saw what it must. */
static int fault_and_look(const kind_t *kind, void *address)
{
    memset((void *)(uintptr_t)&found, 0, sizeof(found));
    if (sigsetjmp(back, 1) == 0) {
        write_to(address);
    }
    return found.ct == 1 && found.signal_no == SIGSEGV &&
           found.is_itself_blocked == kind->is_itself_blocked &&
           found.is_user_blocked == (kind->masked == SIGUSR1) &&
           (!(kind->flags & SA_SIGINFO) || (found.address == address && found.has_context));
}

static void catch_many_in_main(void *kind)
{
    handle_as((const kind_t *)kind);
    aco_install_overflow_handler();
    aco_install_overflow_handler();
    for (uintptr_t address = 8; address < 80; address += 8) {
        if (!fault_and_look((const kind_t *)kind, (void *)address)) {
            _exit(1);
        }
    }
}

static void catches_many(void)
{
    const kind_t *kind = (const kind_t *)aco_get_arg();
    for (uintptr_t address = 8; address < 80; address += 8) {
        if (!fault_and_look(kind, (void *)address)) {
            _exit(1);
        }
        aco_yield();
    }
    _exit(0);
}

static void catch_many_in_coroutine(void *co)
{
    handle_as((const kind_t *)((aco_t *)co)->arg);
    aco_install_overflow_handler();
    for (;;) {
        aco_resume((aco_t *)co);
    }
}

static void a_fault_elsewhere_goes_to_the_previous_handler(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *other = make_co(in, yields_for_ever, NULL);
    for (size_t i = 0; i < ARRAY_SZ(kinds); i++) {
        void *kind = (void *)(uintptr_t)&kinds[i];
#ifdef ACO_ARCH_RISCV64
        if (EMULATED && kinds[i].masked != 0) {
            continue; /* qemu 7 forgets the signal mask of a handler there */
        }
#endif
        aco_t *co = make_co(in, catches_many, kind);
        expect_exit(catch_many_in_main, kind, 0);
        expect_exit(catch_many_in_coroutine, co, 0);
        aco_destroy(co);
        /* From now on, aco_get_co() is the main coroutine, not NULL. */
        aco_resume(other);
    }
    aco_destroy(other);
}

static void catch_then_overflow(void *co)
{
    static const kind_t kind = {0, 0, 1};
    handle_as(&kind);
    aco_install_overflow_handler();
    if (!fault_and_look(&kind, ANYWHERE)) {
        _exit(1);
    }
    resume(co);
}

static void an_overflow_after_a_handled_fault_is_reported(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, recurses_for_ever, NULL);
    check_recursion(co, expect_death(catch_then_overflow, co, SIGSEGV));
    aco_destroy(co);
}

static void catch_once_then_again(void *co)
{
    static const kind_t kind = {(int)SA_RESETHAND, 0, 1};
    handle_as(&kind);
    aco_install_overflow_handler();
    if (!fault_and_look(&kind, ANYWHERE)) {
        _exit(1);
    }
    if (co != NULL) {
        resume(co);
    }
    write_to(ANYWHERE);
}

static void a_previous_handler_with_resethand_is_called_once(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, recurses_for_ever, NULL);
    expect_signal(catch_once_then_again, NULL, SIGSEGV);
    check_recursion(co, expect_death(catch_once_then_again, co, SIGSEGV));
    aco_destroy(co);
}

/* ==== Signals that are sent =================================================================== */

static void send_to_self(void *arg)
{
    (void)arg;
    aco_install_overflow_handler();
    kill(getpid(), SIGSEGV);
    _exit(CAUGHT);
}

static void ignore_and_send(void *arg)
{
    handle_with(SIG_IGN, 0);
    send_to_self(arg);
}

/* Each signal reaches the handler once, also one with SA_SIGINFO, which `arg` asks for. */
static void handle_and_send(void *arg)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    if (arg != NULL) {
        action.sa_sigaction = look_at_all;
        action.sa_flags = SA_SIGINFO;
    } else {
        action.sa_handler = look;
    }
    sigaction(SIGSEGV, &action, NULL);
    aco_install_overflow_handler();
    for (unsigned i = 1; i <= 3; i++) {
        raise(SIGSEGV);
        if (found.ct != i) {
            _exit(1);
        }
    }
}

/* A signal from a process, with data that look like an address in the guard page. */
static void sends_an_address(void)
{
    siginfo_t info;
    memset(&info, 0, sizeof(info));
    info.si_signo = SIGSEGV;
    info.si_code = SI_QUEUE;
    info.si_addr = aco_get_co()->share_stack->real_ptr;
    syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), SIGSEGV, &info);
    _exit(1);
}

static void a_signal_that_is_sent_does_what_it_did_before(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, sends_an_address, NULL);
    expect_signal(send_to_self, NULL, SIGSEGV);
    expect_exit(ignore_and_send, NULL, CAUGHT);
    expect_exit(handle_and_send, NULL, 0);
    expect_exit(handle_and_send, (void *)(uintptr_t)&found, 0);
    expect_signal(resume, co, SIGSEGV);
    expect_exit(handle_and_resume, co, CAUGHT);
    aco_destroy(co);
}

/* Returns from a signal handler on an invalid stack. The kernel sends a SIGSEGV for that, and
 * continues behind the call if a handler returns. */
#ifdef ACO_ARCH_X86_64
static void return_from_no_signal(void *arg)
{
    (void)arg;
    aco_install_overflow_handler();
    __asm__ volatile("xorl %%esp, %%esp\n\tsyscall\n\tud2" : : "a"(SYS_rt_sigreturn) : "memory");
}
#endif

static void a_signal_of_the_kernel_that_does_not_come_again_is_deadly(void **state)
{
    (void)state;
#ifdef ACO_ARCH_X86_64
    expect_signal(return_from_no_signal, NULL, SIGSEGV);
#else
    skip(); /* the way to end a handler depends on the processor */
#endif
}

/* ==== Threads and alternate stacks ============================================================ */

static void *overflow_in_thread(void *arg)
{
    (void)arg;
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_t *co = aco_create(main_co, aco_share_stack_new(0), 0, recurses_for_ever, NULL);
    char line[64];
    int sz = snprintf(line, sizeof(line), "made %p\n", (void *)co);
    if (write(STDERR_FILENO, line, (size_t)sz) == sz) {
        resume(co);
    }
    return NULL;
}

static void overflow_in_another_thread(void *arg)
{
    pthread_t thread;
    aco_install_overflow_handler();
    pthread_create(&thread, NULL, overflow_in_thread, arg);
    pthread_join(thread, NULL);
}

static void another_thread_that_overflows_is_reported(void **state)
{
    (void)state;
    const char *text = expect_death(overflow_in_another_thread, NULL, SIGSEGV);
    const char *said = after_line(text, "made");
    char words[64];
    snprintf(words, sizeof(words), "(coroutine %.*s,", (int)(said - text - 6), text + 5);
    assert_line_has(said, words);
    if (HAS_BACKTRACE) {
        assert_line_has(after_line(said, "aco: backtrace"), "(recurse_and_write+");
    }
}

static stack_t alternate_stack(void)
{
    stack_t stack;
    sigaltstack(NULL, &stack);
    return stack;
}

static void disable_alternate_stack(void)
{
    stack_t none;
    memset(&none, 0, sizeof(none));
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, NULL);
}

/* Installs an alternate stack of `sz` bytes first, and queries the one in use at the end. */
static void have_alternate_stack_and_resume(aco_t *co, size_t sz, int is_to_stay)
{
    stack_t mine;
    memset(&mine, 0, sizeof(mine));
    mine.ss_sp = malloc(sz);
    mine.ss_size = sz;
    sigaltstack(&mine, NULL);
    aco_install_overflow_handler();
    stack_t now = alternate_stack();
    if ((now.ss_sp == mine.ss_sp) != is_to_stay) {
        _exit(1);
    }
    resume(co);
}

static void resume_with_large_alternate_stack(void *co)
{
    have_alternate_stack_and_resume((aco_t *)co, (size_t)MINSIGSTKSZ + (16u << 10), 1);
}

static void resume_with_small_alternate_stack(void *co)
{
    have_alternate_stack_and_resume((aco_t *)co, (size_t)MINSIGSTKSZ + (16u << 10) - 16, 0);
}

static void an_alternate_stack_is_kept_if_it_is_large_enough(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, recurses_for_ever, NULL);
    check_recursion(co, expect_death(resume_with_large_alternate_stack, co, SIGSEGV));
    check_recursion(co, expect_death(resume_with_small_alternate_stack, co, SIGSEGV));
    aco_destroy(co);
}

static void use_alternate_stack(void *arg)
{
    (void)arg;
    disable_alternate_stack();
    aco_install_overflow_handler();
    stack_t stack = alternate_stack();
    write_to(stack.ss_sp);
    write_to((char *)stack.ss_sp + stack.ss_size - 1);
    _exit(stack.ss_size >= (size_t)MINSIGSTKSZ + (64u << 10) ? 0 : 1);
}

static void an_alternate_stack_has_64_KiB(void **state)
{
    (void)state;
    expect_exit(use_alternate_stack, NULL, 0);
}

static void write_below_alternate_stack(void *arg)
{
    (void)arg;
    aco_install_overflow_handler();
    write_to((char *)alternate_stack().ss_sp - 1);
}

static void an_alternate_stack_has_a_guard_page(void **state)
{
    (void)state;
    expect_signal(write_below_alternate_stack, NULL, SIGSEGV);
}

static void *install(void *arg)
{
    aco_install_overflow_handler();
    disable_alternate_stack();
    aco_install_overflow_handler();
    return arg;
}

static size_t count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    size_t ct = 0;
    for (int c; (c = fgetc(maps)) != EOF;) {
        ct += c == '\n';
    }
    fclose(maps);
    return ct;
}

/* The first thread leaves a stack that libc keeps for the next one. */
static void install_in_many_threads(void *arg)
{
    size_t after_first = 0;
    for (int i = 0; i < 10; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, install, arg);
        pthread_join(thread, NULL);
        after_first = i == 0 ? count_mappings() : after_first;
    }
    _exit(count_mappings() == after_first ? 0 : 1);
}

/* A thread that ends: the alternate stack that it set itself, or none, and how often the
 * destructor looked for it. */
static pthread_key_t last_look_key;
static struct {
    void *own;
    int ct;
} last_look;

/* Looks at its second call, after all other destructors were called once. */
static void look_for_alternate_stack(void *arg)
{
    if (last_look.ct++ == 0) {
        pthread_setspecific(last_look_key, arg);
    } else {
        stack_t now = alternate_stack();
        int is_enabled = !(now.ss_flags & SS_DISABLE);
        _exit(is_enabled == (last_look.own != NULL) && (!is_enabled || now.ss_sp == last_look.own)
                  ? 0
                  : 1);
    }
}

static void *install_and_look_at_end(void *own)
{
    aco_install_overflow_handler();
    if (own != NULL) {
        stack_t stack = alternate_stack();
        stack.ss_sp = own;
        sigaltstack(&stack, NULL);
    }
    last_look.own = own;
    pthread_setspecific(last_look_key, &last_look);
    return NULL;
}

static void look_at_end_of_thread(void *own)
{
    pthread_t thread;
    pthread_key_create(&last_look_key, look_for_alternate_stack);
    pthread_create(&thread, NULL, install_and_look_at_end, own);
    pthread_join(thread, NULL);
    _exit(2);
}

static void an_alternate_stack_goes_with_its_thread(void **state)
{
    (void)state;
    expect_exit(install_in_many_threads, NULL, 0);
    expect_exit(look_at_end_of_thread, NULL, 0);
}

static void an_alternate_stack_of_somebody_else_stays(void **state)
{
    (void)state;
    void *own = malloc((size_t)1 << 20);
    expect_exit(look_at_end_of_thread, own, 0);
    free(own);
}

static void install_without_memory(void *arg)
{
    const struct rlimit none = {0, 0};
    (void)arg;
    setrlimit(RLIMIT_AS, &none);
    aco_install_overflow_handler();
}

static void want_of_memory_is_told(void **state)
{
    (void)state;
    if (EMULATED) {
        skip(); /* the limit is not the program's alone */
    }
    expect_abort(install_without_memory, NULL, "aco_install_overflow_handler", "mmap() failed");
}

static void install_without_keys(void *arg)
{
    pthread_key_t key;
    (void)arg;
    while (pthread_key_create(&key, NULL) == 0) {
    }
    aco_install_overflow_handler();
}

static void want_of_a_key_is_told(void **state)
{
    (void)state;
    expect_abort(install_without_keys, NULL, "aco_install_overflow_handler",
                 "pthread_key_create() failed, errno ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(a_standalone_coroutine_that_overflows_is_reported),
        instance_test(a_copying_coroutine_that_overflows_is_reported),
        instance_test(the_backtrace_goes_from_the_fault_to_the_entry_function),
        instance_test(the_guard_page_is_all_that_counts),
        instance_test(a_guard_page_of_no_running_coroutine_is_elsewhere),
        instance_test(a_report_allocates_nothing),
        instance_test(installation_loads_the_unwinder),
        instance_test(a_fault_of_the_report_itself_ends_the_process),
        instance_test(an_overflow_is_deadly_whoever_handled_faults_before),
        instance_test(a_fault_elsewhere_that_nobody_handled_is_deadly),
        instance_test(a_fault_elsewhere_goes_to_the_previous_handler),
        instance_test(an_overflow_after_a_handled_fault_is_reported),
        instance_test(a_previous_handler_with_resethand_is_called_once),
        instance_test(a_signal_that_is_sent_does_what_it_did_before),
        instance_test(a_signal_of_the_kernel_that_does_not_come_again_is_deadly),
        instance_test(another_thread_that_overflows_is_reported),
        instance_test(an_alternate_stack_is_kept_if_it_is_large_enough),
        instance_test(an_alternate_stack_has_64_KiB),
        instance_test(an_alternate_stack_has_a_guard_page),
        instance_test(an_alternate_stack_goes_with_its_thread),
        instance_test(an_alternate_stack_of_somebody_else_stays),
        instance_test(want_of_memory_is_told),
        instance_test(want_of_a_key_is_told),
    };
    return cmocka_run_group_tests_name("overflow", tests, NULL, NULL);
}
