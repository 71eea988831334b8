// SPDX-License-Identifier: Apache-2.0
/* Threads of our own, and stacks for signal handlers; whether the process is about to end. */
#include "observe/observe.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALT_STACK_SZ ((size_t)128 << 10)   /* bytes */
#define LEAST_ALT_STACK ((size_t)32 << 10) /* bytes that the program may have given instead */
#define LEAST_ROOM ((size_t)16 << 10)      /* bytes: handlers need some 8 KiB */

/* ==== Threads ================================================================================ */

static int ct_own_threads; /* atomic */

/* In a child after fork(), the threads are the parent's. */
static void forget_threads(void)
{
    ct_own_threads = 0;
}

int aco_i_ct_own_threads(void)
{
    return __atomic_load_n(&ct_own_threads, __ATOMIC_RELAXED);
}

int aco_i_start_thread(void *(*fn)(void *), void *arg)
{
    static aco_i_fork_handler_t handler = {.fn = forget_threads};
    pthread_t thread;
    sigset_t all, before;
    aco_i_at_fork(&handler);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        errno = error;
        return -1;
    }
    pthread_detach(thread);
    __atomic_add_fetch(&ct_own_threads, 1, __ATOMIC_RELAXED);
    return 0;
}

int aco_i_is_thread_asleep(const loop_t *loop)
{
    char path[64], text[256];
    const char *state = NULL;
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", loop->tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t sz = read(fd, text, sizeof(text) - 1);
        text[sz < 0 ? 0 : sz] = '\0';
        state = strrchr(text, ')');
        close(fd);
    }
    return state != NULL && strncmp(state, ") S", 3) == 0;
}

/* ==== Handlers =============================================================================== */

int aco_i_take_signal(int signal, const struct sigaction *action)
{
    struct sigaction former;
    if (sigaction(signal, NULL, &former) != 0) {
        return 0;
    }
    if (former.sa_sigaction == action->sa_sigaction) {
        return 1;
    }
    return !(former.sa_flags & SA_SIGINFO) && former.sa_handler == SIG_DFL &&
           sigaction(signal, action, NULL) == 0;
}

int aco_i_has_room(void)
{
    char here;
    stack_t stack;
    return sigaltstack(NULL, &stack) != 0 || !(stack.ss_flags & SS_ONSTACK) ||
           (uintptr_t)&here - (uintptr_t)stack.ss_sp >= LEAST_ROOM;
}

void aco_i_begin_alt_stack(loop_t *loop)
{
    if (sigaltstack(NULL, &loop->former_alt_stack) != 0 ||
        (!(loop->former_alt_stack.ss_flags & SS_DISABLE) &&
         loop->former_alt_stack.ss_size >= LEAST_ALT_STACK)) {
        return;
    }
    stack_t stack = {.ss_sp = aco_i_map(ALT_STACK_SZ, 0), .ss_size = ALT_STACK_SZ};
    if (stack.ss_sp != NULL && sigaltstack(&stack, NULL) == 0) {
        loop->alt_stack = stack.ss_sp;
    }
}

/* The program may have set another one meanwhile. */
void aco_i_end_alt_stack(loop_t *loop)
{
    stack_t stack;
    if (loop->alt_stack == NULL) {
        return;
    }
    if (sigaltstack(NULL, &stack) == 0 && stack.ss_sp == loop->alt_stack) {
        sigaltstack(&loop->former_alt_stack, NULL);
    }
    munmap(loop->alt_stack, ALT_STACK_SZ);
}

/* ==== The end of the process ================================================================= */

int aco_i_dying_of;

int aco_i_is_dying(void)
{
    return __atomic_load_n(&aco_i_dying_of, __ATOMIC_RELAXED) != 0;
}

void aco_i_die_of(int number)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t set;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
    sigemptyset(&set);
    sigaddset(&set, number);
    syscall(SYS_tgkill, getpid(), (int)syscall(SYS_gettid), number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}
