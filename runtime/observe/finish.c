// SPDX-License-Identifier: Apache-2.0
/*
 * Finishes the files of the trace and of the profile when a signal ends the process. The handler
 * may have interrupted anything, so a thread does the work, and then ends the process by the
 * signal. Signals for which the program has a handler are left to that.
 */
#include "observe/observe.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>

#define SECOND INT64_C(1000000000)

static const int signals[] = {SIGHUP, SIGINT, SIGTERM};

static struct {
    sem_t requests;
    pid_t pid;
    int number;                  /* atomic: the first signal that has come; 0: none */
    int64_t began_at;            /* when that was */
    void (*fns[CT_FILES])(void); /* atomic; NULL: there is no such file */
} finish;

static void *finish_files(void *arg)
{
    while (sem_wait(&finish.requests) != 0) {
    }
    for (int i = 0; i < CT_FILES; i++) {
        void (*fn)(void) = __atomic_load_n(&finish.fns[i], __ATOMIC_ACQUIRE);
        if (fn != NULL) {
            fn();
        }
    }
    aco_i_die_of(__atomic_load_n(&finish.number, __ATOMIC_ACQUIRE));
    return arg; /* signals do not end the first process of a container */
}

static void handle(int number)
{
    KEEP_ERRNO();
    int none = 0;
    int64_t now = aco_i_clock();
    if (getpid() != finish.pid) {
        aco_i_die_of(number); /* a child, which has no files */
    } else if (__atomic_compare_exchange_n(&finish.number, &none, -1, 0, __ATOMIC_ACQ_REL,
                                           __ATOMIC_ACQUIRE)) {
        finish.began_at = now;
        __atomic_store_n(&finish.number, number, __ATOMIC_RELEASE);
        sem_post(&finish.requests);
        /* Keeps the program from seeing that it was interrupted; not for ever, as the thread may
         * need a lock that the caller holds. */
        aco_i_libc.poll(NULL, 0, 1000);
    } else if (none > 0 && now - finish.began_at > SECOND) {
        aco_i_die_of(number); /* a file that can't be finished must not keep the process */
    }
}

static void begin_finish(void)
{
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    finish.pid = getpid();
    sem_init(&finish.requests, 0, 0);
    if (aco_i_start_thread(finish_files, NULL) != 0) {
        fprintf(stderr, "aco: no thread for files at the end by a signal: %s\n", strerror(errno));
        return;
    }
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        aco_i_take_signal(signals[i], &action);
    }
}

void aco_i_finish_on_signals(int file, void (*fn)(void))
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    __atomic_store_n(&finish.fns[file], fn, __ATOMIC_RELEASE);
    pthread_once(&once, begin_finish);
}
