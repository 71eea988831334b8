// SPDX-License-Identifier: Apache-2.0
/*
 * The claims of docs/limits.md about libc and the kernel: jumps, signal handlers, processes,
 * seccomp and huge pages. test_limits.sh tries those about other software.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "harness.h"

#include <linux/seccomp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#define FRAME_SZ 300u                      /* bytes; more than a first save stack */
#define SIGNAL_STACK_SZ 65536u             /* bytes */
#define CT_HUGE 8u                         /* stacks */
#define HUGE_SZ ((size_t)4 << 20)          /* bytes of a stack: two huge pages */
#define HUGE_RESIDENT_SZ ((size_t)1 << 20) /* bytes; half a huge page, as sanitizers add to it */

/* Keeps a frame over a yield; returns whether it was kept. */
static NOINLINE int yields_with_frame(uint32_t seed)
{
    unsigned char data[FRAME_SZ];
    fill_from_seed(data, sizeof(data), seed);
    ESCAPE(data);
    aco_yield();
    ESCAPE(data);
    return is_from_seed(data, sizeof(data), seed);
}

/* Overwrites the frames of others on its share stack whenever it runs. */
static void yields_with_frames(void)
{
    for (uint32_t i = 0;; i++) {
        CO_CHECK(yields_with_frame(i));
    }
}

/* ==== Jumps ================================================================================== */

static jmp_buf place;

static void jumps_within_itself(void)
{
    volatile uint32_t round = 0;
    if (setjmp(place) < 3) {
        round++;
        CO_CHECK(yields_with_frame(round));
        longjmp(place, (int)round);
    }
    CO_CHECK(round == 3);
    aco_exit();
}

static void jumps_out(void)
{
    aco_yield();
    longjmp(place, 1);
}

static void a_jump_within_a_coroutine_is_all_right(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, jumps_within_itself, NULL);
    aco_t *other = make_co(in, yields_with_frames, NULL);
    while (!co->is_end) {
        aco_resume(co);
        aco_resume(other);
    }
    aco_destroy(co);
    aco_destroy(other);
}

/* Resumes `co` until it jumps back to here. */
static void resume_until_jump(aco_t *co)
{
    if (setjmp(place) == 0) {
        for (;;) {
            aco_resume(co);
        }
    }
}

static void jump_out_and_resume(void *arg)
{
    const instance_t *in = (const instance_t *)arg;
    aco_t *other = make_co(in, yields_for_ever, NULL);
    resume_until_jump(make_co(in, jumps_out, NULL));
    aco_resume(other);
}

static void a_jump_out_of_a_coroutine_is_found_out(void **state)
{
    expect_abort(jump_out_and_resume, *state, "aco_resume", "the caller is not its parent");
}

static void a_jump_out_of_a_coroutine_can_be_set_right(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, jumps_out, NULL);
    aco_t *other = make_co(in, yields_with_frames, NULL);
    aco_resume(other);
    for (int i = 0; i < 3; i++) {
        resume_until_jump(co);
        aco_gtls_co = in->main_co;
        aco_reset(co, jumps_out, NULL);
        aco_resume(other);
    }
    resume_until_jump(co);
    aco_gtls_co = in->main_co;
    aco_destroy(co);
    aco_resume(other);
    aco_destroy(other);
}

/* ==== Signals ================================================================================ */

static volatile sig_atomic_t is_due;

static void note_signal(int signal_no)
{
    (void)signal_no;
    is_due = 1;
}

static void yield_in_handler(int signal_no)
{
    (void)signal_no;
    aco_yield();
}

static void raises(void)
{
    raise(SIGUSR1);
    aco_exit();
}

/* Yields where it looks at the note, never where the signal comes. */
static void yields_when_due(void)
{
    for (int ct = 0; ct < 10;) {
        if (is_due) {
            is_due = 0;
            ct++;
            aco_yield();
        }
    }
    aco_exit();
}

static void handle(int signal_no, void (*handler)(int), int flags)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(signal_no, &action, NULL);
}

static void a_handler_that_takes_a_note_is_all_right(void **state)
{
    static const struct itimerval soon = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, yields_when_due, NULL);
    int ct_resumes = 0;
    handle(SIGALRM, note_signal, SA_RESTART);
    setitimer(ITIMER_REAL, &soon, NULL);
    for (; !co->is_end; ct_resumes++) {
        aco_resume(co);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    signal(SIGALRM, SIG_DFL);
    assert_int_equal(ct_resumes, 11);
    aco_destroy(co);
}

static void a_handler_that_yields_leaves_its_signal_blocked(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, raises, NULL);
    sigset_t mask;
    handle(SIGUSR1, yield_in_handler, 0);
    aco_resume(co);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    assert_true(sigismember(&mask, SIGUSR1));
    aco_resume(co);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    assert_false(sigismember(&mask, SIGUSR1));
    assert_true(co->is_end);
    signal(SIGUSR1, SIG_DFL);
    aco_destroy(co);
}

static void yield_on_alternate_stack(void *arg)
{
    static char signal_stack[SIGNAL_STACK_SZ];
    const instance_t *in = (const instance_t *)arg;
    stack_t stack;
    memset(&stack, 0, sizeof(stack));
    stack.ss_sp = signal_stack;
    stack.ss_size = sizeof(signal_stack);
    sigaltstack(&stack, NULL);
    handle(SIGUSR1, yield_in_handler, SA_ONSTACK);
    aco_resume(make_co(in, raises, NULL));
    aco_resume(make_co(in, yields_for_ever, NULL));
}

static void a_yield_on_an_alternate_stack_is_found_out(void **state)
{
    expect_abort(yield_on_alternate_stack, *state, "aco_resume", "the owner");
}

/* ==== Processes ============================================================================== */

static void forks(void)
{
    aco_t *other = (aco_t *)aco_get_arg();
    int status;
    uint32_t seed = 1;
    pid_t pid = fork();
    if (pid == 0) {
        CO_CHECK(yields_with_frame(++seed));
        _exit(seed == 2 && other->save_stack.ct_restore == 1 ? 5 : 1);
    }
    CO_CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 5);
    CO_CHECK(yields_with_frame(seed) && seed == 1 && other->save_stack.ct_restore == 1);
    aco_exit();
}

static void both_sides_of_a_fork_go_on(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *other = make_co(in, yields_with_frames, NULL);
    aco_t *co = make_co(in, forks, other);
    aco_resume(other);
    while (!co->is_end) {
        aco_resume(co);
        aco_resume(other);
    }
    aco_destroy(co);
    aco_destroy(other);
}

static void starts_programs(void)
{
    char name[] = "true", *arguments[] = {name, NULL};
    int status;
    pid_t pid = vfork();
    if (pid == 0) {
        execvp(name, arguments);
        _exit(1);
    }
    CO_CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CO_CHECK(posix_spawnp(&pid, name, NULL, NULL, arguments, environ) == 0);
    CO_CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    aco_exit();
}

static void a_coroutine_may_start_a_program(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, starts_programs, NULL);
    aco_resume(co);
    assert_true(co->is_end);
    aco_destroy(co);
}

/* ==== Kernel ================================================================================= */

/* Only read(), write() and exit() are left to it; anything else is SIGKILL. */
static void switch_in_seccomp(void *arg)
{
    aco_t **cos = (aco_t **)arg;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) {
        _exit(1);
    }
    for (int i = 0; i < 10; i++) {
        aco_resume(cos[i % 2]);
    }
    aco_reset(cos[0], yields_for_ever, NULL);
    aco_resume(cos[0]);
    syscall(SYS_exit, 0);
}

static void a_switch_makes_no_system_call(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    if (EMULATED || STRESS) {
        skip(); /* the emulator makes some, and so does malloc() of new save stacks */
    }
    aco_t *cos[2];
    for (size_t i = 0; i < ARRAY_SZ(cos); i++) {
        cos[i] = aco_create(in->main_co, in->stack, 4 * FRAME_SZ, yields_with_frames, NULL);
    }
    expect_exit(switch_in_seccomp, cos, 0);
    for (size_t i = 0; i < ARRAY_SZ(cos); i++) {
        aco_destroy(cos[i]);
    }
}

static size_t resident_sz(void)
{
    size_t all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%zu %zu", &all, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static void memory_of_the_caller_takes_advice_on_huge_pages(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stacks[CT_HUGE];
    aco_t *cos[CT_HUGE];
    size_t sz = (CT_HUGE + 1) * HUGE_SZ;
    char *memory = (char *)mmap(NULL, sz, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    char *first = memory + (HUGE_SZ - (uintptr_t)memory % HUGE_SZ);
    madvise(first, sz - HUGE_SZ, MADV_HUGEPAGE);
    madvise(first, sz - HUGE_SZ, MADV_NOHUGEPAGE);
    size_t before = resident_sz();
    for (size_t i = 0; i < CT_HUGE; i++) {
        stacks[i] = aco_share_stack_new_in(first + i * HUGE_SZ, HUGE_SZ);
        cos[i] = aco_create(in->main_co, stacks[i], 0, yields_for_ever, NULL);
        aco_resume(cos[i]);
    }
    assert_in_range(resident_sz() - before, 0, CT_HUGE * HUGE_RESIDENT_SZ);
    for (size_t i = 0; i < CT_HUGE; i++) {
        aco_destroy(cos[i]);
        aco_share_stack_destroy(stacks[i]);
    }
    munmap(memory, sz);
}

int main(void)
{
    const struct CMUnitTest jumps[] = {
        instance_test(a_jump_within_a_coroutine_is_all_right),
        instance_test(a_jump_out_of_a_coroutine_is_found_out),
        instance_test(a_jump_out_of_a_coroutine_can_be_set_right),
    };
    const struct CMUnitTest signals[] = {
        instance_test(a_handler_that_takes_a_note_is_all_right),
        instance_test(a_handler_that_yields_leaves_its_signal_blocked),
        instance_test(a_yield_on_an_alternate_stack_is_found_out),
    };
    const struct CMUnitTest system[] = {
        instance_test(both_sides_of_a_fork_go_on),
        instance_test(a_coroutine_may_start_a_program),
        instance_test(a_switch_makes_no_system_call),
        instance_test(memory_of_the_caller_takes_advice_on_huge_pages),
    };
    return cmocka_run_group_tests_name("jumps", jumps, NULL, NULL) +
           cmocka_run_group_tests_name("signals", signals, NULL, NULL) +
           cmocka_run_group_tests_name("system", system, NULL, NULL);
}
