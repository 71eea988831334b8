// SPDX-License-Identifier: Apache-2.0
/*
 * High-water mark: how much of a share stack was ever used, to give it the right size. Optional;
 * nothing of aco depends on it. Relies on aco.h and on what Linux tells of a process's pages.
 */
#ifndef ACO_HIGH_WATER_H
#define ACO_HIGH_WATER_H

#include "aco.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The bytes of `share_stack` that were used since it was made, by whatever coroutine, destroyed
 * ones included: from align_retptr, exclusive, down to the lowest byte that is not zero now. So 0
 * means never used, and align_limit (to which it compares) all of it. May be called from anywhere
 * on the thread whose coroutines use the stack, also on that very stack: the call then counts too,
 * with some hundred bytes. Aborts if `share_stack` is NULL.
 *
 * Precision: exact to the byte, but for zeros at the lower end. A frame that called something has
 * left a return address below itself, so they can only be those of the deepest function, in memory
 * that it cleared or never wrote to. With ACO_CONFIG_STRESS, what the core fills counts as used.
 * Memory that somebody has given back to the system (MADV_DONTNEED) is unused again. Of memory of the
 * caller (aco_share_stack_new_in()), all that was not zero before counts as used: clear it first.
 *
 * Cost: nothing until it is called, since fresh stacks are zero and the switch is as it was. A call
 * takes an open(), 8 bytes of /proc/self/pagemap for every unused page, and a look at the lowest
 * page in use: some 15 microseconds, and as many again for every MiB that is unused. It reads no
 * page that was not touched before, and so commits no memory; a page that is swapped out counts,
 * and is swapped in if it is the lowest. Where pagemap can't be read (no /proc, no file descriptor
 * left) mincore() is asked instead, for which a page that is swapped out is unused; where that
 * fails too, the whole stack is read.
 */
size_t aco_share_stack_high_water(const aco_share_stack_t *share_stack);

#ifdef __cplusplus
}
#endif

#endif
