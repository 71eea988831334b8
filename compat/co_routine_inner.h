// SPDX-License-Identifier: Apache-2.0
/* For programs that include libco's header of this name. It has what they use of its internals. */
#ifndef CO_ROUTINE_INNER_H
#define CO_ROUTINE_INNER_H

#include "co_routine.h"

struct stCoRoutineEnv_t;

/* Returns what stands for the thread; NULL before the first call that needs a loop. */
stCoRoutineEnv_t *co_get_curr_thread_env();

/* As co_release(). */
void co_free(stCoRoutine_t *co);

#endif
