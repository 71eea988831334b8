// SPDX-License-Identifier: Apache-2.0
/* A list of the tasks there are. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const state_names[] = {"free", "new", "ready", "running", "waits", "ended"};
const char *const aco_i_reason_names[CT_REASONS] = {"nothing",
                                                    "the end of a task",
                                                    "aco_unpark",
                                                    "a time",
                                                    "the end of a group",
                                                    "a mutex",
                                                    "an rwlock",
                                                    "a condition",
                                                    "a semaphore",
                                                    "a wait group",
                                                    "a receiver",
                                                    "a sender",
                                                    "one of several channels",
                                                    "input",
                                                    "output",
                                                    "one of several descriptors",
                                                    "a helper thread",
                                                    "a name look-up",
                                                    "the end of a process"};

static READS_RACILY void print_task(const aco_task_t *task, int64_t now, void *arg)
{
    FILE *stream = (FILE *)arg;
    fprintf(stream, "task %" PRIu64 " \"%s\": %s", task->id, aco_task_name(task),
            state_names[task->state]);
    if (task->state == TASK_WAITING) {
        fprintf(stream, " for %s", aco_i_reason_names[task->reason]);
        if (task->reason == FOR_INPUT || task->reason == FOR_OUTPUT) {
            fprintf(stream, " of descriptor %d", task->fd);
        }
        fprintf(stream, " since %.3f s", (double)(now - task->since) / 1e9);
    }
    if (task->deadline != NO_DEADLINE) {
        fprintf(stream, ", deadline in %.3f s", (double)(task->deadline - now) / 1e9);
    }
    if (task->state != TASK_RUNNING && task->sp != NULL) {
        fprintf(stream, ", %zu bytes of stack", (size_t)(task->stack_top - task->sp));
    }
    fprintf(stream, "%s\n", task->is_cancelled ? ", cancelled" : "");
}

static void print_of(runtime_t *runtime, void *stream)
{
    aco_i_each_task(runtime, print_task, stream);
}

void aco_print_tasks(FILE *stream)
{
    /* Locks must not be held while `stream` blocks. */
    char *text = NULL;
    size_t sz = 0;
    FILE *memory = open_memstream(&text, &sz);
    if (memory == NULL) {
        fprintf(stream, "no memory for a list of tasks\n");
        return;
    }
    aco_i_each_runtime(print_of, memory);
    if (fclose(memory) == 0) {
        fwrite(text, 1, sz, stream);
    }
    free(text);
}

/* ==== On a signal ============================================================================ */

static struct {
    pthread_mutex_t mutex;
    int pipe[2];
    int is_ready;
} on_signal = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void ask_for_list(int signal)
{
    int error = errno;
    (void)signal;
    while (write(on_signal.pipe[1], "", 1) < 0 && errno == EINTR) {
    }
    errno = error;
}

/* Is a thread of its own, so it also prints if all others hang. */
static void *print_when_asked(void *arg)
{
    char byte;
    for (;;) {
        if (read(on_signal.pipe[0], &byte, 1) == 1) {
            aco_print_tasks(stderr);
        }
    }
    return arg;
}

/* Makes the pipe and the thread, which gets no signals; 0, or -1 with errno. */
static int start_printing(void)
{
    pthread_t thread;
    sigset_t all, before;
    if (pipe2(on_signal.pipe, O_CLOEXEC) != 0) {
        return -1;
    }
    fcntl(on_signal.pipe[1], F_SETFL, O_NONBLOCK); /* if it is full, a list comes anyway */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, print_when_asked, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        close(on_signal.pipe[0]);
        close(on_signal.pipe[1]);
        errno = error;
        return -1;
    }
    pthread_detach(thread);
    on_signal.is_ready = 1;
    return 0;
}

int aco_print_tasks_on(int signal)
{
    struct sigaction action = {.sa_handler = ask_for_list, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    pthread_mutex_lock(&on_signal.mutex);
    int result = on_signal.is_ready ? 0 : start_printing();
    pthread_mutex_unlock(&on_signal.mutex);
    return result == 0 ? sigaction(signal, &action, NULL) : -1;
}
