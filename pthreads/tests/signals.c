// SPDX-License-Identifier: Apache-2.0
/* Signals: a world that is stopped and goes on, as collectors do it; signals of the process; jumps
 * out of handlers; and threads that end in one. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static sigset_t set_of(int number)
{
    sigset_t set;
    sigemptyset(&set);
    if (number != 0) {
        sigaddset(&set, number);
    }
    return set;
}

static void handle_by(int number, void (*fn)(int number), int flags)
{
    struct sigaction action = {.sa_handler = fn, .sa_flags = flags};
    CHECK(sigaction(number, &action, NULL) == 0);
}

/* ==== A stopped world ======================================================================== */

#define CT_ROUNDS 5

static sem_t stopped, gone_on, semaphore;
static int is_stopped; /* atomic */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static int pipes[2], is_over, ct_waiting;

static void stop(int number)
{
    sigset_t all_but_one;
    int error = errno;
    (void)number;
    sigfillset(&all_but_one);
    sigdelset(&all_but_one, SIGUSR2);
    CHECK(sem_post(&stopped) == 0);
    while (__atomic_load_n(&is_stopped, __ATOMIC_ACQUIRE)) {
        CHECK(sigsuspend(&all_but_one) == -1 && errno == EINTR);
    }
    CHECK(sem_post(&gone_on) == 0);
    errno = error;
}

static void go_on(int number)
{
    (void)number;
}

static void *locks(void *arg)
{
    CHECK(pthread_mutex_lock(&held) == 0 && pthread_mutex_unlock(&held) == 0);
    return arg;
}

/* It waits for a condition, and the mutex of that is held when the world stops. */
static void *waits_for_condition(void *arg)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    ct_waiting++;
    while (!is_over) {
        CHECK(pthread_cond_wait(&cond, &mutex) == 0);
    }
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return arg;
}

static void *reads(void *arg)
{
    char byte;
    CHECK(read(pipes[0], &byte, 1) == 1);
    return arg;
}

static void *takes(void *arg)
{
    CHECK(sem_wait(&semaphore) == 0);
    return arg;
}

static void *locks_to_write(void *arg)
{
    CHECK(pthread_rwlock_wrlock(&rwlock) == 0 && pthread_rwlock_unlock(&rwlock) == 0);
    return arg;
}

static void *meets(void *arg)
{
    int result = pthread_barrier_wait(&barrier);
    CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
    return arg;
}

static void *yields(void *arg)
{
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        sched_yield();
    }
    return arg;
}

static void *joins(void *thread)
{
    result_of(*(pthread_t *)thread);
    return thread;
}

static void *sleeps(void *arg)
{
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        usleep(arg == NULL ? 100 : 10000);
    }
    return arg;
}

static void stop_the_world(const pthread_t *threads, int ct)
{
    __atomic_store_n(&is_stopped, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < ct; i++) {
        CHECK(pthread_kill(threads[i], SIGUSR1) == 0);
    }
    for (int i = 0; i < ct; i++) {
        while (sem_wait(&stopped) != 0) {
            CHECK(errno == EINTR);
        }
    }
    __atomic_store_n(&is_stopped, 0, __ATOMIC_RELEASE);
    for (int i = 0; i < ct; i++) {
        CHECK(pthread_kill(threads[i], SIGUSR2) == 0);
    }
    for (int i = 0; i < ct; i++) {
        CHECK(sem_wait(&gone_on) == 0);
    }
}

static void *stops_the_world(void *arg)
{
    static pthread_t threads[11];
    void *(*const fns[])(void *) = {locks, waits_for_condition, reads,  takes,  locks_to_write,
                                    meets, waits_for_condition, yields, sleeps, joins};
    int ct = (int)(sizeof(fns) / sizeof(fns[0]));
    is_over = ct_waiting = 0;
    CHECK(pthread_mutex_lock(&held) == 0 && pthread_rwlock_rdlock(&rwlock) == 0);
    threads[ct] = start(sleeps, threads);
    for (int i = 0; i < ct; i++) {
        threads[i] = start(fns[i], fns[i] == joins ? &threads[ct] : NULL);
    }
    CHECK(pthread_mutex_lock(&mutex) == 0);
    while (ct_waiting != 2) {
        CHECK(pthread_mutex_unlock(&mutex) == 0);
        usleep(1000);
        CHECK(pthread_mutex_lock(&mutex) == 0);
    }
    for (int round = 0; round < CT_ROUNDS; round++) {
        stop_the_world(threads, ct + 1);
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    CHECK(pthread_cond_broadcast(&cond) == 0 && pthread_mutex_unlock(&mutex) == 0);
    CHECK(pthread_mutex_unlock(&held) == 0 && pthread_rwlock_unlock(&rwlock) == 0);
    CHECK(write(pipes[1], "", 1) == 1 && sem_post(&semaphore) == 0);
    meets(NULL);
    for (int i = 0; i < ct; i++) {
        result_of(threads[i]);
    }
    return arg;
}

static void worlds_are_stopped(void)
{
    CHECK(sem_init(&stopped, 0, 0) == 0 && sem_init(&gone_on, 0, 0) == 0);
    CHECK(sem_init(&semaphore, 0, 0) == 0 && pipe(pipes) == 0);
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    handle_by(SIGUSR1, stop, SA_RESTART);
    handle_by(SIGUSR2, go_on, SA_RESTART);
    stops_the_world(NULL);
    result_of(start(stops_the_world, NULL));
}

/* ==== Signals of the process ================================================================= */

static volatile sig_atomic_t ct_got;
static pthread_t got_in;

static void note(int number)
{
    (void)number;
    got_in = pthread_self();
    __atomic_add_fetch(&ct_got, 1, __ATOMIC_SEQ_CST);
}

static void *lets_through(void *seconds)
{
    sigset_t set = set_of(SIGUSR1);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
    if (seconds != NULL) {
        while (ct_got == 0) {
            sleep(600);
        }
    }
    CHECK(ct_got == 1 && pthread_equal(got_in, pthread_self()));
    return seconds;
}

static void *sends_to_itself(void *arg)
{
    sigset_t set = set_of(SIGUSR1);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(ct_got == 1 && pthread_equal(got_in, pthread_self()));
    return arg;
}

static void signals_find_a_thread(void)
{
    sigset_t set = set_of(SIGUSR1), pending;
    int number;
    handle_by(SIGUSR1, note, 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    pthread_t thread = start(lets_through, &number), other = start(sleeps, &number);
    is_over = 0;
    CHECK(kill(getpid(), SIGUSR1) == 0);
    result_of(thread);
    ct_got = 0;
    CHECK(kill(getpid(), SIGUSR1) == 0); /* all block it */
    usleep(20000);
    CHECK(ct_got == 0 && sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
    result_of(start(lets_through, NULL));
    ct_got = 0;
    result_of(start(sends_to_itself, NULL));
    ct_got = 0;
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(sigwait(&set, &number) == 0 && number == SIGUSR1 && ct_got == 0);
    is_over = 1;
    result_of(other);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
}

/* ==== Jumps ================================================================================== */

static sigjmp_buf before;
static sem_t is_ready;

static void jump(int number)
{
    siglongjmp(before, number);
}

static void *is_jumped_out(void *arg)
{
    sigset_t set;
    for (volatile int round = 0; round < 3; round++) {
        if (sigsetjmp(before, 1) == 0) {
            char byte;
            CHECK(sem_post(&is_ready) == 0);
            read(pipes[0], &byte, 1);
            CHECK(0);
        }
        CHECK(pthread_sigmask(SIG_BLOCK, NULL, &set) == 0 && !sigismember(&set, SIGUSR1));
    }
    return arg;
}

static void leave(int number)
{
    (void)number;
    pthread_exit(&is_ready);
}

static void *is_left(void *arg)
{
    char byte;
    CHECK(sem_post(&is_ready) == 0);
    read(pipes[0], &byte, 1);
    return arg;
}

static void handlers_are_left(void)
{
    CHECK(sem_init(&is_ready, 0, 0) == 0);
    handle_by(SIGUSR1, jump, 0);
    pthread_t thread = start(is_jumped_out, NULL);
    for (int round = 0; round < 3; round++) {
        CHECK(sem_wait(&is_ready) == 0 && pthread_kill(thread, SIGUSR1) == 0);
    }
    result_of(thread);
    handle_by(SIGUSR1, leave, 0);
    thread = start(is_left, NULL);
    CHECK(sem_wait(&is_ready) == 0 && pthread_kill(thread, SIGUSR1) == 0);
    CHECK(result_of(thread) == &is_ready);
}

/* ==== Stacks of handlers ===================================================================== */

static void *has_stack_for_handlers(void *arg)
{
    static char memory[65536];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof(memory)}, got;
    CHECK(sigaltstack(NULL, &got) == 0 && (got.ss_flags & SS_DISABLE) != 0);
    CHECK(sigaltstack(&stack, NULL) == 0);
    usleep(1000);
    CHECK(sigaltstack(NULL, &got) == 0 && got.ss_sp == memory && got.ss_size == sizeof(memory));
    stack.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&stack, NULL) == 0);
    return arg;
}

int main(void)
{
    worlds_are_stopped();
    signals_find_a_thread();
    handlers_are_left();
    result_of(start(has_stack_for_handlers, NULL));
    result_of(start(has_stack_for_handlers, NULL));
    puts("all held");
    return 0;
}
