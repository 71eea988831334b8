// SPDX-License-Identifier: Apache-2.0
/*
 * Return ends it: for coroutines whose entry function may `return`. By default that is an error.
 * Optional; nothing of aco depends on it. Relies on aco.h.
 */
#ifndef ACO_RETURNING_H
#define ACO_RETURNING_H

#include "aco.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Lets the entry function of `co` return: `co` then ends as by aco_exit(), which it may still call.
 * `co` must be in state init. Holds until aco_reset(), after which it must be asked for again.
 * Returns `co`. Cost: a frame of some 16 bytes below the entry function, which ends backtraces.
 * Aborts on misuse.
 */
aco_t *aco_return_ends(aco_t *co);

#ifdef __cplusplus
}
#endif

#endif
