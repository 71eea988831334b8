// SPDX-License-Identifier: Apache-2.0
/*
 * Implements aco_returning.h: the coroutine starts in a function that calls its entry function.
 */
#include "aco_returning.h"

/* It is not inlined: the registers that the switch makes its function save take no stack while `fp`
 * runs. */
static ACO_NORETURN __attribute__((noinline)) void end(void)
{
    aco_exit();
}

static void call_and_end(void)
{
    aco_get_co()->fp();
    end();
}

aco_t *aco_return_ends(aco_t *co)
{
    if (co == NULL || aco_status(co) != ACO_STATUS_INIT) {
        aco_i_fail("aco_return_ends", co,
                   "the coroutine is NULL or not in state init: ask before its first resume");
    }
    co->reg[ACO_REG_IDX_RETADDR] = (void *)(uintptr_t)call_and_end;
    return co;
}
