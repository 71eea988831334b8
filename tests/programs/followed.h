// SPDX-License-Identifier: Apache-2.0
/*
 * Shared by programs that gdb follows: functions of well-known names, which it finds by symbols and
 * in backtraces. It steps from begins() to ends().
 */
#ifndef FOLLOWED_H
#define FOLLOWED_H

#include "aco.h"

#define NOINLINE __attribute__((noinline))

/* Keeps a call before it from becoming a jump, which leaves no frame. */
#define NO_TAIL_CALL() __asm__ volatile("")

/* Differs at each stop: otherwise compilers merge these functions. */
static volatile int last_stop;

static NOINLINE void begins(void)
{
    last_stop = 1;
}

static NOINLINE void ends(void)
{
    last_stop = 2;
}

static NOINLINE void resumes(aco_t *co)
{
    aco_resume(co);
    NO_TAIL_CALL();
}

#endif
