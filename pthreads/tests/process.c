// SPDX-License-Identifier: Apache-2.0
/* Threads and their process: signals, barriers, children, and a main() that leaves first. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ==== Signals ================================================================================ */

static volatile sig_atomic_t got;
static pthread_t got_in;

static void handle(int number)
{
    got = number;
    got_in = pthread_self();
}

static void *handles_its_own(void *arg)
{
    sigset_t set, before, pending;
    CHECK(raise(SIGUSR1) == 0 && got == SIGUSR1 && pthread_equal(got_in, pthread_self()));
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, &before) == 0 && !sigismember(&before, SIGUSR2));
    CHECK(pthread_sigmask(12345, &set, NULL) == EINVAL);
    CHECK(pthread_kill(pthread_self(), SIGUSR2) == 0 && got == SIGUSR1);
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR2));
    CHECK(sigprocmask(SIG_SETMASK, &before, &set) == 0 && sigismember(&set, SIGUSR2));
    CHECK(got == SIGUSR2);
    CHECK(tgkill(getpid(), gettid(), SIGUSR1) == 0 && got == SIGUSR1);
    CHECK(pthread_kill(pthread_self(), 0) == 0 && pthread_kill(pthread_self(), 1000) == EINVAL);
    return arg;
}

static int ct_taken; /* atomic */

static void *waits_for_signals(void *first)
{
    sigset_t set;
    siginfo_t info;
    int number;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    CHECK(sigwait(&set, &number) == 0 && number == SIGUSR2);
    __atomic_store_n(&ct_taken, 1, __ATOMIC_RELEASE);
    CHECK(sigwaitinfo(&set, &info) == SIGUSR2 && info.si_value.sival_int == 42);
    CHECK(pthread_kill(*(pthread_t *)first, 0) == 0);
    return first;
}

static void signals_reach_a_thread(void)
{
    pthread_t self = pthread_self();
    sigset_t set, before;
    CHECK(signal(SIGUSR1, handle) != SIG_ERR && signal(SIGUSR2, handle) != SIG_ERR);
    result_of(start(handles_its_own, NULL));
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, &before) == 0); /* which the thread inherits */
    pthread_t thread = start(waits_for_signals, &self);
    usleep(10000);
    CHECK(pthread_kill(thread, SIGUSR1) == 0); /* it waits for another one */
    clock_t used = clock();
    usleep(100000);
    CHECK(clock() - used < CLOCKS_PER_SEC / 100);
    CHECK(pthread_kill(thread, SIGUSR2) == 0);
    while (!__atomic_load_n(&ct_taken, __ATOMIC_ACQUIRE)) { /* a second one would be lost */
        usleep(1000);
    }
    CHECK(pthread_sigqueue(thread, SIGUSR2, (union sigval){.sival_int = 42}) == 0);
    result_of(thread);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
}

/* ==== Barriers =============================================================================== */

#define CT_THREADS 50
#define CT_ROUNDS 20

static pthread_barrier_t barrier;
static int ct_serial, ct_arrived[CT_ROUNDS];

static void *meets(void *arg)
{
    for (int round = 0; round < CT_ROUNDS; round++) {
        __atomic_add_fetch(&ct_arrived[round], 1, __ATOMIC_SEQ_CST);
        int result = pthread_barrier_wait(&barrier);
        CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
        ct_serial += result == PTHREAD_BARRIER_SERIAL_THREAD;
        CHECK(ct_arrived[round] == CT_THREADS);
        pthread_barrier_wait(&barrier);
    }
    return arg;
}

static void threads_meet(void)
{
    pthread_t threads[CT_THREADS - 1];
    CHECK(pthread_barrier_init(&barrier, NULL, 0) == EINVAL);
    CHECK(pthread_barrier_init(&barrier, NULL, CT_THREADS) == 0);
    for (int i = 0; i < CT_THREADS - 1; i++) {
        threads[i] = start(meets, NULL);
    }
    meets(NULL);
    for (int i = 0; i < CT_THREADS - 1; i++) {
        result_of(threads[i]);
    }
    CHECK(pthread_barrier_destroy(&barrier) == 0);
    CHECK(ct_serial == CT_ROUNDS);
}

/* ==== Children =============================================================================== */

static void *returns(void *arg)
{
    return arg;
}

static void run_child(pthread_t self, pid_t parent)
{
    int value;
    CHECK(pthread_equal(self, pthread_self()) && getpid() != parent);
    CHECK(result_of(start(returns, &value)) == &value);
    _exit(7);
}

static void *forks(void *arg)
{
    pthread_t self = pthread_self();
    pid_t parent = getpid(), child = fork();
    int status;
    if (child == 0) {
        run_child(self, parent);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    return arg;
}

static void *is_last(void *arg)
{
    usleep(100000);
    puts("all held");
    return arg;
}

int main(void)
{
    signals_reach_a_thread();
    threads_meet();
    forks(NULL);
    result_of(start(forks, NULL));
    start(is_last, NULL);
    pthread_exit(NULL);
}
