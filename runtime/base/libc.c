// SPDX-License-Identifier: Apache-2.0
/* The functions of libc that hooks replace for programs, as the runtime itself calls them. */
#include "internal.h"

libc_t aco_i_libc = {
#define X(name, large) .name = name,
    ACO_I_LIBC(X)
#undef X
};

void (*aco_i_check_hooks)(void);
locks_of_hooks_t aco_i_locks_of_hooks;
