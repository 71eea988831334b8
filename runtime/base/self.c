// SPDX-License-Identifier: Apache-2.0
/* The running task, and the message about it when it misuses a call. */
#include "base/self.h"

#include <errno.h>
#include <sys/syscall.h>

__thread loop_t *aco_i_loop;
__thread aco_task_t aco_i_thread_task;
__thread aco_task_t *aco_i_forked_task;
const aco_i_observer_t *aco_i_observer;

handling_t *aco_i_handling(void)
{
    return aco_i_exceptions != NULL ? aco_i_exceptions() : NULL;
}

uint64_t aco_i_new_id(void)
{
    static atomic_uint64_t last;
    uint64_t id = add_to(&last, 1);
    if (aco_unlikely((uintptr_t)id == 0)) { /* where addresses have 32 bits */
        id = add_to(&last, 1);
    }
    return id;
}

aco_task_t *aco_self(void)
{
    return aco_i_loop == NULL ? NULL : aco_i_loop->running;
}

static const char no_task[] =
    "the task is NULL: pass what aco_spawn() or, in a task, aco_self() returned";

uint64_t aco_task_id(const aco_task_t *task)
{
    need(task, "aco_task_id", no_task);
    return task->id;
}

const char *aco_task_name(const aco_task_t *task)
{
    need(task, "aco_task_name", no_task);
    return task->name == NULL ? "" : task->name;
}

int aco_i_is_on_shared_stack(const aco_task_t *self, const void *ptr)
{
    const aco_t *co = is_moved(self, ptr) ? aco_get_co() : NULL;
    for (; co != NULL && co->share_stack != NULL; co = co->main_co) {
        const aco_share_stack_t *stack = co->share_stack;
        if ((uintptr_t)ptr - (uintptr_t)stack->ptr < stack->sz &&
            (stack == self->loop->share_stack || stack->ct_coroutines > 1)) {
            return 1;
        }
    }
    return 0;
}

void aco_i_misuse_of(const char *call, const char *rule)
{
    const aco_task_t *self = aco_self();
    static char text[512], label[ACO_I_LABEL_SZ];
    if (self != NULL) {
        if (aco_i_observer != NULL) {
            aco_i_observer->label(label, self);
        } else {
            aco_i_escape(label, aco_task_name(self), ACO_I_NAME_SZ);
        }
        snprintf(text, sizeof(text), "%s (task %llu \"%s\")", rule, (unsigned long long)self->id,
                 label);
    } else {
        snprintf(text, sizeof(text), "%s (thread %ld, outside of tasks)", rule,
                 (long)syscall(SYS_gettid));
    }
    aco_i_fail(call, aco_get_co(), text);
}
