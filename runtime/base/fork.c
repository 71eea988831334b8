// SPDX-License-Identifier: Apache-2.0
/*
 * Prepares a child after fork(): it has the calling thread alone, and none of the runtimes. Each
 * part that keeps data of the parent registers a function that forgets it.
 */
#include "base/self.h"

#include <errno.h>
#include <string.h>

unsigned aco_i_ct_forks;

static aco_i_fork_handler_t *handlers; /* atomic */

static struct {
    lock_t lock;
    int is_watched;
} forks;

void aco_i_at_fork(aco_i_fork_handler_t *handler)
{
    if (__atomic_exchange_n(&handler->is_registered, 1, __ATOMIC_SEQ_CST)) {
        return;
    }
    handler->next = __atomic_load_n(&handlers, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&handlers, &handler->next, handler, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
    }
}

void aco_i_begin_child_of_runtime(void)
{
    aco_task_t *task = aco_i_loop != NULL ? aco_i_loop->running : NULL;
    if (task != NULL) {
        task->state = TASK_IN_CHILD;
        aco_i_forked_task = task;
        aco_i_thread_task.id = task->id; /* so that it owns the locks of the task */
    }
    aco_i_loop = NULL;
    aco_i_ct_forks++;
    memset(&forks.lock, 0, sizeof(forks.lock)); /* a thread that the child lacks may hold it */
    for (aco_i_fork_handler_t *handler = handlers; handler != NULL; handler = handler->next) {
        handler->fn();
    }
}

int aco_i_watch_fork(void)
{
    lock(&forks.lock);
    int error = forks.is_watched ? 0 : pthread_atfork(NULL, NULL, aco_i_begin_child_of_runtime);
    forks.is_watched = error == 0;
    unlock(&forks.lock);
    errno = error != 0 ? error : errno;
    return error != 0 ? -1 : 0;
}
