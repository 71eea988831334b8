// SPDX-License-Identifier: Apache-2.0
/*
 * Implements no_inline.h.
 */
#define ACO_CONFIG_NO_INLINE_SWITCH
#include "no_inline.h"

void no_inline_resume(aco_t *co)
{
    aco_resume(co);
}

void no_inline_yield(void)
{
    aco_yield();
}

void no_inline_yield_to(aco_t *co)
{
    aco_yield_to(co);
}

void no_inline_exit(void)
{
    aco_exit();
}
