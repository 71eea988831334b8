// SPDX-License-Identifier: Apache-2.0
/*
 * The inline switch as a compiler emits it: one in each of these functions. test_proof.sh puts
 * labels around the two. The sizes of objects have what the proof must know of the layout of aco_t:
 * a tool reads these most easily.
 */
#include "aco.h"

#include <stddef.h>

#define TELL(name, number)                                                                         \
    extern const char name[number];                                                                \
    const char name[number] = {0}

TELL(offset_of_base, offsetof(aco_t, base));
TELL(offset_of_main_co, offsetof(aco_t, main_co));
TELL(offset_of_is_end, offsetof(aco_t, is_end));
TELL(size_of_aco_t, sizeof(aco_t));
TELL(size_of_return_address, ACO_RETPTR_SZ);

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
