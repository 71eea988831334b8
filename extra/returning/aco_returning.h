// SPDX-License-Identifier: Apache-2.0
/*
 * Return ends it: for coroutines whose entry function may `return`. By default that is an error.
 * Optional: the rest of aco does not depend on it. Relies on aco.h.
 */
#ifndef ACO_RETURNING_H
#define ACO_RETURNING_H

#include "aco.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Lets the entry function of `co` return: `co` then ends as by aco_exit(), which it may still call.
 * `co` must be in state init. Holds until aco_reset(); call it again after that. Returns `co`.
 * Cost: a frame of some 16 bytes, the entry function's caller, at which backtraces end. Aborts on
 * misuse.
 */
aco_t *aco_return_ends(aco_t *co);

#ifdef __cplusplus
}
#endif

#endif
