// SPDX-License-Identifier: Apache-2.0
/* Precedes each source of the runtime that waits.c checks, and waits.c. */
#ifndef ACO_PROOF_WAITS_H
#define ACO_PROOF_WAITS_H

/* Each thread of the model has its own. */
#define __libc_single_threaded waits_is_single
#define aco_i_thread_task (*waits_thread_task)

#include "sched/sched.h"

#undef ACO_I_PROBE_ACQUIRE /* loop.c defines it, too */

/* A task that waits goes on with its loop. */
void waits_switch(void);
#define aco_yield waits_switch

/* Memory that is watched. */
void *waits_allocate(size_t sz);
void waits_release(void *block);
#define aco_i_allocate waits_allocate
#define aco_i_release waits_release

#endif
