// SPDX-License-Identifier: Apache-2.0
/*
 * The list of tasks on a signal with which the process goes on: from a thread of its own. And the
 * stacks on which handlers run.
 */
#include "internal.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALT_STACK_SZ ((size_t)128 << 10)   /* bytes */
#define LEAST_ALT_STACK ((size_t)32 << 10) /* that the program may have instead */
#define LEAST_ROOM ((size_t)16 << 10)      /* for what handlers do, some 8 KiB */

/* ==== While the process goes on ============================================================== */

/* No descriptors: programs close those that they do not know, and children share them. */
static struct {
    pthread_mutex_t mutex;
    sem_t requests;
    int is_wanted; /* the process, or the one that it was forked from, has asked for it */
    int is_ready;  /* there is a thread */
} on_signal = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void ask_for_list(int signal)
{
    int error = errno;
    (void)signal;
    sem_post(&on_signal.requests);
    errno = error;
}

/* Is a thread of its own, so it also prints if all others hang. Of several requests that have come
 * meanwhile, it makes one. */
static void *print_when_asked(void *arg)
{
    for (;;) {
        if (sem_wait(&on_signal.requests) == 0) {
            while (sem_trywait(&on_signal.requests) == 0) {
            }
            aco_print_tasks(stderr);
        }
    }
    return arg;
}

static int ct_own_threads; /* atomic */

int aco_i_ct_own_threads(void)
{
    return __atomic_load_n(&ct_own_threads, __ATOMIC_RELAXED);
}

int aco_i_start_thread(void *(*fn)(void *), void *arg)
{
    pthread_t thread;
    sigset_t all, before;
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

/* 0, or -1 with errno. */
static int start_printing(void)
{
    pthread_mutex_lock(&on_signal.mutex);
    if (!on_signal.is_ready) {
        sem_init(&on_signal.requests, 0, 0);
        on_signal.is_ready = aco_i_start_thread(print_when_asked, NULL) == 0;
    }
    int result = on_signal.is_ready ? 0 : -1;
    pthread_mutex_unlock(&on_signal.mutex);
    return result;
}

void aco_i_begin_printing(void)
{
    if (on_signal.is_wanted) {
        start_printing();
    }
}

static int print_on(int signal)
{
    struct sigaction action = {.sa_handler = ask_for_list, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    if (aco_i_watch_fork() != 0 || start_printing() != 0) {
        return -1;
    }
    on_signal.is_wanted = 1;
    return sigaction(signal, &action, NULL);
}

int aco_print_tasks_on(int signal)
{
    return aco_i_is_fatal(signal) ? aco_i_list_before_end(signal) : print_on(signal);
}

void aco_i_forget_threads(void)
{
    static const pthread_mutex_t initial = PTHREAD_MUTEX_INITIALIZER;
    ct_own_threads = 0;
    on_signal.mutex = initial;
    on_signal.is_ready = 0;
}

/* ==== Stacks for handlers ==================================================================== */

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
    void *memory = mmap(NULL, ALT_STACK_SZ, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                        0);
    stack_t stack = {.ss_sp = memory, .ss_size = ALT_STACK_SZ};
    if (memory != MAP_FAILED && sigaltstack(&stack, NULL) == 0) {
        loop->alt_stack = memory;
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
