// SPDX-License-Identifier: Apache-2.0
/* Calls that the hook of syscall() passes on to. */
#ifndef ACO_HOOKS_SYSTEM_CALLS_H
#define ACO_HOOKS_SYSTEM_CALLS_H

#include "internal.h"

/* The arguments of a system call, the first one first. */
typedef struct {
    long at[6];
} args_t;

/* ---- system_calls.c ---- */

/* Makes a system call by libc's function. */
HIDDEN long aco_i_libc_syscall(long number, const args_t *args);

/* ---- futex.c ---- */

/* SYS_futex, or SYS_futex_time64, by any thread. */
HIDDEN long aco_i_futex(long number, const args_t *args);

#endif
