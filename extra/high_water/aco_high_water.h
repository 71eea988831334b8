// SPDX-License-Identifier: Apache-2.0
/*
 * High-water mark: how much of a share stack was ever used, to choose its size. Optional: the rest
 * of aco does not depend on it. Relies on aco.h and on what Linux reports of a process's pages.
 */
#ifndef ACO_HIGH_WATER_H
#define ACO_HIGH_WATER_H

#include "aco.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The bytes of `share_stack` that coroutines used since it was made, destroyed ones included: from
 * align_retptr, exclusive, down to the lowest byte that is not zero now. 0 means never used,
 * align_limit all of it. May be called anywhere on the thread whose coroutines use the stack, even
 * on that stack: then the call itself counts, with some hundred bytes. Aborts if `share_stack` is
 * NULL.
 *
 * Precision: exact to the byte, except for zeros at the lower end. A call leaves a return address
 * below its caller's frame, so these zeros can only be in the frame of the deepest function, where
 * it cleared memory or wrote none. With ACO_CONFIG_STRESS, what the core fills counts as used.
 * Memory given back to the system (MADV_DONTNEED) counts as unused. Clear memory of your own before
 * aco_share_stack_new_in(): what is not zero there counts as used.
 *
 * Cost: none until it is called. A call takes an open(), a read of 8 bytes of /proc/self/pagemap
 * for each unused page, and a search in the lowest used page: some 15 microseconds, plus 15 for
 * each unused MiB. It reads no page that was never touched, and so commits no memory. A page that
 * is swapped out counts, and is swapped in if it is the lowest. Where pagemap can't be read (no
 * /proc, no file descriptor left), it asks mincore(), for which swapped-out pages are unused; where
 * that fails too, it reads the whole stack.
 */
size_t aco_share_stack_high_water(const aco_share_stack_t *share_stack);

#ifdef __cplusplus
}
#endif

#endif
