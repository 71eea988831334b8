// SPDX-License-Identifier: Apache-2.0
/* Defines what hooks set: libc's functions as the runtime calls them, a check, and queues. */
#include "base/base.h"

libc_t aco_i_libc = {
#define X(name, large) .name = name,
    ACO_I_LIBC(X)
#undef X
};

void (*aco_i_check_hooks)(void);
locks_of_hooks_t aco_i_locks_of_hooks;
