// SPDX-License-Identifier: Apache-2.0
/*
 * For emulated_steps.py to step through, from begins() to ends(): a coroutine starts, yields, is
 * continued and ends, with another rounding mode than main.
 */
#include "tests/programs/followed.h"

#include <fenv.h>

aco_t *stepped;

static NOINLINE void inner(void)
{
    aco_yield();
    NO_TAIL_CALL();
}

static NOINLINE void outer(void)
{
    inner();
    NO_TAIL_CALL();
}

static void entry(void)
{
    fesetround(FE_UPWARD);
    outer();
    aco_exit();
}

int main(void)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    stepped = aco_create(main_co, stack, 0, entry, NULL);
    begins();
    resumes(stepped);
    resumes(stepped);
    ends();
    return !stepped->is_end;
}
