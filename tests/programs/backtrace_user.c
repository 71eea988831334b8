// SPDX-License-Identifier: Apache-2.0
/*
 * For a debugger: coroutines on one share stack that call functions of well-known names, in which
 * to stop, and yield in the innermost; and one that has a stack to itself, to be stepped through.
 */
#include "tests/programs/followed.h"

static NOINLINE void arrives(void)
{
    last_stop = 3;
}

static NOINLINE void inner(void)
{
    arrives();
    aco_yield();
    arrives();
    NO_TAIL_CALL();
}

static NOINLINE void outer(void)
{
    inner();
    inner();
    NO_TAIL_CALL();
}

static NOINLINE void entry(void)
{
    outer();
    aco_exit();
}

int main(void)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0), *own_stack = aco_share_stack_new(0);
    aco_t *first = aco_create(main_co, stack, 0, entry, NULL);
    aco_t *second = aco_create(main_co, stack, 0, entry, NULL);
    while (!second->is_end) {
        resumes(first);
        resumes(second);
    }
    aco_t *alone = aco_create(main_co, own_stack, 0, entry, NULL);
    resumes(alone);
    begins();
    resumes(alone);
    ends();
    aco_destroy(alone);
    aco_destroy(first);
    aco_destroy(second);
    aco_share_stack_destroy(stack);
    aco_share_stack_destroy(own_stack);
    aco_destroy(main_co);
    return 0;
}
