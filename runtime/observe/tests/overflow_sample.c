// SPDX-License-Identifier: Apache-2.0
/*
 * Tasks that overflow their stacks, or fail otherwise, for test_observe.sh: the argument says how.
 * Once a task begins to fail, malloc() is fatal.
 */
#define _GNU_SOURCE
#include "aco_overflow.h"
#include "aco_runtime.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Sizes of up to 8 MiB are from pools. */
#ifndef OWN_STACK_SZ
#define OWN_STACK_SZ 100000
#endif

#define NOINLINE __attribute__((noinline))
#define FRAME_SZ 1000
#define LARGE_FRAME_SZ 40000 /* bytes: less than a guard */
#define SMALL_STACK_SZ ((size_t)65536)

static int is_failing;
static volatile int sink;
static volatile char *page;
static const char *how;

#if defined(__GLIBC__) && !defined(IS_STATIC)
void *__libc_malloc(size_t sz);
void *malloc(size_t sz);
void *malloc(size_t sz)
{
    if (__atomic_load_n(&is_failing, __ATOMIC_RELAXED)) {
        _exit(99);
    }
    return __libc_malloc(sz);
}
#endif

static int is(const char *name)
{
    return strcmp(how, name) == 0;
}

static void say(const char *text)
{
    sink += (int)write(STDERR_FILENO, text, strlen(text));
}

/* ==== Failures =============================================================================== */

static NOINLINE int digs(int depth)
{
    volatile char frame[FRAME_SZ];
    frame[0] = (char)depth;
    return depth < 0 ? 0 : digs(depth + 1) + frame[0];
}

static NOINLINE int leaps(int depth)
{
    volatile char frame[LARGE_FRAME_SZ];
    frame[0] = (char)depth;
    __asm__ volatile("" : : "r"(frame) : "memory"); /* all of it must be there */
    return depth < 0 ? 0 : leaps(depth + 1) + frame[0];
}

static NOINLINE void *deep(void *arg)
{
    __atomic_store_n(&is_failing, 1, __ATOMIC_RELAXED);
    sink += arg == NULL ? digs(0) : leaps(0);
    return arg;
}

static NOINLINE void generates(void)
{
    deep(NULL);
    aco_exit();
}

static NOINLINE void *resumes(void *arg)
{
    aco_share_stack_t *stack = aco_share_stack_new(SMALL_STACK_SZ);
    aco_resume(aco_create(aco_get_co(), stack, 0, generates, NULL));
    sink++;
    return arg;
}

/* Fails by faults and signals that are no overflow. */
static NOINLINE void *fails(void *arg)
{
    if (is("null")) {
        *(volatile int *)(intptr_t)(sink & 8) = 1;
    } else if (is("guard")) {
        *((volatile char *)aco_get_co()->share_stack->ptr - 1) = 1;
    } else if (is("sent") || is("ignored")) {
        kill(getpid(), SIGSEGV);
    } else if (is("write")) {
        page[0] = page[4096] = 1;
    } else if (is("unlocks")) {
        aco_mutex_unlock(NULL);
    } else if (is("destroys")) {
        aco_destroy(aco_get_co());
    }
    return arg;
}

static NOINLINE void *ends_in_child(void *arg)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        deep(arg);
    }
    waitpid(pid, &status, 0);
    exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : 1);
}

/* ==== Handlers =============================================================================== */

/* The program's own handler, without SA_ONSTACK. */
static void exits(int signal, siginfo_t *info, void *context)
{
    (void)info;
    (void)context;
    say(signal == SIGSEGV ? "handler of the program\n" : "?\n");
    _exit(7);
}

/* Lets the program go on after a write to a protected page, and gives up on an overflow at its
 * second try. */
static void repairs(int signal_number, siginfo_t *info, void *context)
{
    static int ct;
    (void)context;
    if (is("write")) {
        mprotect((void *)((uintptr_t)info->si_addr & ~(uintptr_t)4095), 4096,
                 PROT_READ | PROT_WRITE);
        say("repaired\n");
    } else if (ct++ == 1) {
        signal(signal_number, SIG_DFL);
    }
}

static void handle_by(void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, NULL);
}

static void install_before(void)
{
    if (is("former")) {
        handle_by(exits, 0);
    } else if (is("again") || is("write")) {
        handle_by(repairs, 0);
    } else if (is("listed")) {
        aco_print_tasks_on(SIGSEGV);
    } else if (is("extra_before")) {
        aco_install_overflow_handler();
    } else if (is("ignored")) {
        signal(SIGSEGV, SIG_IGN);
    }
}

/* Sets a small stack behind a page that must not be touched. */
static void set_small_stack(void)
{
    char *memory = (char *)mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                                -1, 0);
    stack_t stack = {.ss_sp = memory + 4096, .ss_size = 2 * 4096};
    mprotect(memory, 4096, PROT_NONE);
    sigaltstack(&stack, NULL);
}

static void install_in_task(void)
{
    if (is("replaced")) {
        handle_by(exits, SA_ONSTACK);
    } else if (is("listed_later")) {
        aco_print_tasks_on(SIGSEGV);
    } else if (is("extra") || is("extra_listed")) {
        if (is("extra_listed")) {
            aco_print_tasks_on(SIGSEGV);
        }
        aco_install_overflow_handler();
    } else if (is("small")) {
        set_small_stack();
    }
}

/* ==== All of it ============================================================================== */

static void *overflows(const aco_task_options_t *options, void *arg)
{
    aco_task_t *task;
    install_in_task();
    if (aco_go_with(options, deep, arg, &task) == 0) {
        aco_join(task, NULL);
    }
    return NULL;
}

static void *first(void *arg)
{
    aco_task_options_t options = {.name = is("named") ? "diver" : NULL};
    if (is("own") || is("former")) {
        options.stack_sz = OWN_STACK_SZ;
    } else if (is("shared")) {
        options.shares_stack = 1;
    } else if (is("thread")) {
        options.thread = ACO_THREAD(1);
    } else if (is("coroutine")) {
        return resumes(arg);
    } else if (is("child")) {
        return ends_in_child(NULL);
    } else if (is("null") || is("guard") || is("sent") || is("ignored") || is("write") ||
               is("unlocks") || is("destroys")) {
        return fails(arg);
    }
    return overflows(&options, is("large") ? &is_failing : NULL);
}

static int run_embedded(void)
{
    struct pollfd loop = {.fd = aco_loop_fd(), .events = POLLIN};
    aco_go(deep, NULL);
    while (poll(&loop, 1, -1) == 1 && aco_run_once(0) == 1) {
    }
    return 1;
}

int main(int argc, char **argv)
{
    struct rlimit none = {0, 0};
    aco_run_options_t options = {.ct_threads = 2};
    setrlimit(RLIMIT_CORE, &none);
    how = argc > 1 ? argv[1] : "pool";
    page = (volatile char *)mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (is("outside")) {
        aco_mutex_unlock(NULL);
    }
    if (is("embedded")) {
        return run_embedded();
    }
    install_before();
    return aco_run(&options, first, NULL, NULL);
}
