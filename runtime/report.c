// SPDX-License-Identifier: Apache-2.0
/*
 * The list of tasks on a signal: from a thread of its own while the process goes on, or in the
 * handler if the signal is about to end it.
 */
#include "internal.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
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

void aco_i_forget_threads(void)
{
    static const pthread_mutex_t initial = PTHREAD_MUTEX_INITIALIZER;
    ct_own_threads = 0;
    on_signal.mutex = initial;
    on_signal.is_ready = 0;
}

/* ==== When the process is about to end ======================================================= */

static const int fatal_signals[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
#define CT_FATAL (sizeof(fatal_signals) / sizeof(fatal_signals[0]))

static struct {
    struct sigaction former[CT_FATAL];
    aco_i_registers_t registers;
    int printing, tid; /* the signal for which a list is printed, and by whom; printing is atomic */
} fatal;

static size_t index_of(int signal)
{
    size_t i = 0;
    while (i < CT_FATAL && fatal_signals[i] != signal) {
        i++;
    }
    return i;
}

int aco_i_is_dying(void)
{
    return __atomic_load_n(&fatal.printing, __ATOMIC_RELAXED) != 0;
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

int aco_i_has_room(void)
{
    char here;
    stack_t stack;
    return sigaltstack(NULL, &stack) != 0 || !(stack.ss_flags & SS_ONSTACK) ||
           (uintptr_t)&here - (uintptr_t)stack.ss_sp >= LEAST_ROOM;
}

static void print_list(void)
{
    aco_i_text_t text = {.fd = STDERR_FILENO};
    aco_i_put(&text, "The process ends by signal ");
    aco_i_put_number(&text, (uint64_t)fatal.printing, 10);
    aco_i_put(&text, ". Its tasks:\n");
    aco_i_list_tasks(&text, &fatal.registers);
    aco_i_flush(&text);
}

/* The same on a stack of its own, where the program has given its thread a small one for handlers
 * while it ran tasks. */
static void print_list_elsewhere(void)
{
#ifdef __GLIBC__
    static char stack[ALT_STACK_SZ];
    static ucontext_t here, there;
    getcontext(&there);
    there.uc_stack = (stack_t){.ss_sp = stack, .ss_size = sizeof(stack)};
    there.uc_link = &here;
    makecontext(&there, print_list, 0);
    swapcontext(&here, &there);
#else
    print_list();
#endif
}

static void print_and_die(int number, siginfo_t *info, void *ucontext)
{
    int none = 0, tid = (int)syscall(SYS_gettid), error = errno;
    if (!__atomic_compare_exchange_n(&fatal.printing, &none, number, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        for (int i = 0; fatal.tid != tid && i < 10; i++) {
            aco_i_libc.poll(NULL, 0, 1000); /* another thread prints, and ends the process */
        }
        aco_i_die_of(none);
    }
    fatal.tid = tid;
    fatal.registers = aco_i_interrupted(ucontext);
    aco_i_has_room() ? print_list() : print_list_elsewhere();
    /* The instruction fails again, or the signal comes again once the handler has returned, in the
     * frame that had it. */
    sigaction(number, &fatal.former[index_of(number)], NULL);
    if (info->si_code <= 0) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, number);
        pthread_sigmask(SIG_BLOCK, &set, NULL);
        syscall(SYS_tgkill, getpid(), tid, number);
    }
    __atomic_store_n(&fatal.printing, 0, __ATOMIC_RELEASE); /* a former handler may go on */
    errno = error;
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

static int print_before_end(int number)
{
    struct sigaction action = {.sa_sigaction = print_and_die,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    struct sigaction former;
    sigemptyset(&action.sa_mask);
    aco_i_find_modules();
    if (sigaction(number, &action, &former) != 0) {
        return -1;
    }
    if (!(former.sa_flags & SA_SIGINFO) || former.sa_sigaction != print_and_die) {
        int is_ignored = !(former.sa_flags & SA_SIGINFO) && former.sa_handler == SIG_IGN;
        former.sa_handler = is_ignored ? SIG_DFL : former.sa_handler;
        fatal.former[index_of(number)] = former;
    }
    return 0;
}

int aco_print_tasks_on(int signal)
{
    return index_of(signal) < CT_FATAL ? print_before_end(signal) : print_on(signal);
}
