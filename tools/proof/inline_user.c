// SPDX-License-Identifier: Apache-2.0
/*
 * The inline switch as a compiler emits it: one in each of these functions. test_proof.sh puts
 * labels around the two. Where else than in reg[] a switch may write is told by the size of an
 * object, which a tool reads most easily.
 */
#include "aco.h"

#include <stddef.h>

extern const char offset_of_base[offsetof(aco_t, base)];
const char offset_of_base[offsetof(aco_t, base)] = {0};

void resume(aco_t *co);
void yield(void);

void resume(aco_t *co)
{
    aco_resume(co);
}

void yield(void)
{
    aco_yield();
}
