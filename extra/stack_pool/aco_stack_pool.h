// SPDX-License-Identifier: Apache-2.0
/*
 * Stack pool: share stacks for standalone coroutines, each of which has one to itself. A stack that
 * was put back is given out again while it is warm: in a few ns, where making one takes thousands.
 * Optional: the rest of aco does not depend on it. Relies on aco.h, mmap() and madvise(), and on a
 * POSIX mutex for pools that threads share.
 *
 *     aco_stack_pool_t *pool = aco_stack_pool_new(64 << 10, 0);
 *     aco_t *co = aco_stack_pool_create_co(pool, main_co, fp, arg);
 *     aco_resume(co);
 *     aco_stack_pool_destroy_co(pool, co);
 *     aco_stack_pool_destroy(pool);
 */
#ifndef ACO_STACK_POOL_H
#define ACO_STACK_POOL_H

#include "aco.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * How it works
 *   Growth     Stacks are slots of slabs. A slab is one mapping, made when no stack is idle, for as
 *              many stacks as exist already (64 at first, fewer if memory is short), so slabs are
 *              few. A slot is prepared when it is first given out. It takes memory as it is
 *              touched, in small pages.
 *   Coroutines Their aco_ts lie side by side at the low end of each slab, away from the stacks.
 *              When many are resumed in turn, a processor prefetches them, and then the stacks.
 *   Guards     Below each stack lie 64 KiB that fault, or the size in ACO_STACK_POOL_GUARD_KIB().
 *              A function with a frame of at most 32 KiB hits them, as do its callees. A frame
 *              larger than the guard can skip it and overwrite the stack below. Compiled with
 *              -fstack-clash-protection, functions touch each page of such a frame in turn, so
 *              overflows fault with a guard of any size; library functions compiled without that
 *              may still skip it. A guard takes addresses, which are free unless
 *              vm.overcommit_memory is 2, and 8 bytes of page tables per page: 128 for 64 KiB.
 *              On Linux 6.13 and later, MADV_GUARD_INSTALL makes the guards, and only memory
 *              limits the number of stacks. Elsewhere mprotect() does, which splits each stack
 *              into two mappings: with the usual vm.max_map_count, 65530, a process can have
 *              about 32,750 stacks, and then getting one fails.
 *   Colours    The tops of successive stacks differ by a few cache lines. At equal offsets in
 *              their pages, all suspended frames would compete for a few sets of each cache.
 *   Order      The stack that was put back last is given out first.
 *   Idleness   A period is 1024 puts plus 16 for each stack. Its end chooses half of the stacks
 *              above 64 that were idle throughout. Each put from then on gives the memory of one
 *              back to the system, the one longest idle first. A load with bursts thus keeps its
 *              stacks, and one that has shrunk loses them gradually. Mappings stay until
 *              aco_stack_pool_trim(), which a program calls before a long pause.
 *   Tools      AddressSanitizer and valgrind are told of a stack when it is first given out, and
 *              again after its memory was given back; not by each get and put.
 */

/* A pool of stacks. */
typedef struct aco_stack_pool_s aco_stack_pool_t;

/* Flags of a pool. */
#define ACO_STACK_POOL_NO_GUARD 1u /* no guards: overflows silently corrupt memory */
#define ACO_STACK_POOL_SHARED 2u   /* threads may use it concurrently, at some 10 ns a call */
/* Another flag: guards of `kib` KiB, below 2^24, rounded up to whole pages; 0 means 64. */
#define ACO_STACK_POOL_GUARD_KIB(kib) ((unsigned)(kib) << 8)

/* ==== Life of a pool ========================================================================= */

/*
 * Makes a pool of stacks on which a coroutine can have at least `stack_sz` bytes of frames, and at
 * least 4096; 0 means 128 KiB. `flags` is 0 or a sum of flags above. Without ACO_STACK_POOL_SHARED,
 * only one thread at a time may use it, so threads have a pool each. Maps nothing yet. Allocates by
 * the functions of aco_set_allocator(), now and as it grows. Aborts if memory
 * runs out, on flags that don't exist, and on a size of guards beside ACO_STACK_POOL_NO_GUARD.
 */
aco_stack_pool_t *aco_stack_pool_new(size_t stack_sz, unsigned flags);

/*
 * aco_stack_pool_new() that can fail: returns NULL with ENOMEM if memory runs out or no stack can
 * be so large.
 */
aco_stack_pool_t *aco_stack_pool_try_new(size_t stack_sz, unsigned flags);

/* Frees a pool and its mappings. Aborts if it is NULL or a stack was not put back. */
void aco_stack_pool_destroy(aco_stack_pool_t *pool);

/*
 * Gives the memory of idle stacks back to the system, and unmaps slabs without a stack in use.
 * Cost: about a microsecond for each idle stack.
 */
void aco_stack_pool_trim(aco_stack_pool_t *pool);

/* ==== Stacks ================================================================================= */

/*
 * Takes a stack from the pool, for any use but aco_share_stack_destroy(), which aborts. Cost: a few
 * ns if one is idle, else some microseconds. Aborts if memory or mappings run out.
 */
aco_share_stack_t *aco_stack_pool_get(aco_stack_pool_t *pool);

/*
 * aco_stack_pool_get() that can fail: returns NULL with ENOMEM if memory or mappings run out. Later
 * it may succeed.
 */
aco_share_stack_t *aco_stack_pool_try_get(aco_stack_pool_t *pool);

/*
 * Puts back a stack that was taken from this pool. Its coroutines must be destroyed before; one of
 * aco_stack_pool_create_co() needs aco_stack_pool_destroy_co() instead. Cost: a few ns, and a
 * microsecond if it gives memory back. Aborts on misuse.
 */
void aco_stack_pool_put(aco_stack_pool_t *pool, aco_share_stack_t *share_stack);

/* ==== Coroutines ============================================================================= */

/*
 * aco_stack_pool_get() and aco_create() on that stack, in one: the aco_t lies in the pool, so
 * nothing is allocated. `main_co`, `fp` and `arg` are as for aco_create(), except that `main_co`
 * must not be NULL. Cost: some 10 ns. Aborts as both do.
 */
aco_t *aco_stack_pool_create_co(aco_stack_pool_t *pool, aco_t *main_co, aco_cofuncp_t fp,
                                void *arg);

/*
 * aco_stack_pool_create_co() that can fail: returns NULL with ENOMEM if memory or mappings run out.
 * Later it may succeed.
 */
aco_t *aco_stack_pool_try_create_co(aco_stack_pool_t *pool, aco_t *main_co, aco_cofuncp_t fp,
                                    void *arg);

/*
 * aco_destroy() and aco_stack_pool_put(), in one, for the last coroutine on a stack of this pool.
 * Any call may have created it. Its memory is gone after that. Aborts as both do.
 */
void aco_stack_pool_destroy_co(aco_stack_pool_t *pool, aco_t *co);

/* ==== Statistics ============================================================================= */

/* The state of a pool, and its history so far. */
typedef struct {
    size_t stack_sz;      /* bytes of frames that each stack has at least */
    size_t in_use;        /* stacks taken and not put back */
    size_t most_in_use;   /* the largest in_use so far */
    size_t idle;          /* stacks put back that still have their memory */
    size_t ct_get;        /* stacks taken so far */
    size_t ct_given_back; /* times that the memory of an idle stack went back to the system */
    size_t ct_slabs;      /* mappings now; each guard made by mprotect() adds two */
    size_t mapped_sz;     /* their bytes of addresses; only touched pages take memory */
    char has_mprotect;    /* 1: MADV_GUARD_INSTALL failed, guards are made by mprotect() */
} aco_stack_pool_stats_t;
void aco_stack_pool_stats(aco_stack_pool_t *pool, aco_stack_pool_stats_t *stats);

#ifdef __cplusplus
}
#endif

#endif
