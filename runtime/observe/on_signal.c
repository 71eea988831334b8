// SPDX-License-Identifier: Apache-2.0
/* Prints the list of tasks on signals with which the process goes on, by a thread of its own. */
#include "observe/observe.h"

#include <semaphore.h>
#include <signal.h>

/* Uses no descriptors: programs close those that they do not know, and children share them. */
static struct {
    pthread_mutex_t mutex;
    sem_t requests;
    int is_wanted; /* the process, or the one that it was forked from, has asked for it */
    int is_ready;  /* there is a thread */
} on_signal = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void ask_for_list(int signal)
{
    KEEP_ERRNO();
    (void)signal;
    sem_post(&on_signal.requests);
}

/* Runs as a thread of its own, so it also prints if all others hang. Requests that came meanwhile
 * count as one. */
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

/* In a child after fork(), the thread is the parent's. */
static void forget_thread(void)
{
    static const pthread_mutex_t initial = PTHREAD_MUTEX_INITIALIZER;
    on_signal.mutex = initial;
    on_signal.is_ready = 0;
}

/* 0, or -1 with errno. */
static int start_printing(void)
{
    static aco_i_fork_handler_t handler = {.fn = forget_thread};
    aco_i_at_fork(&handler);
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
