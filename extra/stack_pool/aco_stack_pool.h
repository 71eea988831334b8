// SPDX-License-Identifier: Apache-2.0
/*
 * Stack pool: share stacks for standalone coroutines, each of which has one to itself. A stack that
 * was put back is given out again while it is warm, in a few ns, where making one takes thousands.
 * Optional; nothing of aco depends on it. Relies on aco.h, mmap() and madvise(), and on a mutex of
 * POSIX threads for pools that threads share.
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
 *   Growth     Stacks are parts of slabs. A slab is one mapping, made when no stack is idle, for
 *              as many stacks as there are already (64 at first, fewer where memory is short), so
 *              there are few. A part is prepared when it is first given out, and takes memory as
 *              it is touched, in small pages.
 *   Coroutines Their aco_ts lie side by side at the low end of each slab, out of the way of any
 *              stack. To resume many in turn, a processor fetches these ahead, and then the stacks.
 *   Guards     Below each stack are 64 KiB that fault, or as much as ACO_STACK_POOL_GUARD_KIB()
 *              says. A function with a frame of 32 KiB can't miss them, nor what it calls; one with
 *              a larger frame than the guard can, and then writes to the stack below. Against
 *              that, compile with -fstack-clash-protection: functions then touch each page of such
 *              a frame in turn, and overflows fault with a guard of any size. (It is of no use to
 *              functions of libraries that were compiled without.) A guard takes addresses, which
 *              are free unless vm.overcommit_memory is 2, and 8 bytes of page tables for each of
 *              its pages: 128 bytes for 64 KiB.
 *              On Linux 6.13 and later MADV_GUARD_INSTALL makes guards, and the number of stacks
 *              is limited by memory alone. Elsewhere mprotect() does, which makes two mappings of
 *              each stack: with vm.max_map_count as it usually is, 65530, about 32,750 are
 *              possible in a process, and then getting one fails.
 *   Colours    The tops of successive stacks differ by a few cache lines. At one offset in their
 *              pages, the frames of all suspended coroutines would share a few sets of each cache.
 *   Order      The stack that was put back last is given out first.
 *   Idleness   After every 16 puts for each stack there is, and 1024 more, those that were idle
 *              all that while are counted. Half of what is above 64 is chosen, and each put from
 *              then on gives the memory of one back to the system, that of the longest idle one
 *              first. So a load that comes in bursts keeps its stacks, and one that has shrunk
 *              loses them bit by bit. Mappings stay, until aco_stack_pool_trim(): a program that
 *              falls silent calls that.
 *   Tools      What is said to AddressSanitizer and valgrind of a stack is said when it is first
 *              given out, and again after its memory was given back; not by each get and put.
 */
typedef struct aco_stack_pool_s aco_stack_pool_t;

/* Flags of a pool. */
#define ACO_STACK_POOL_NO_GUARD 1u /* no guards: an overflow is silent corruption */
#define ACO_STACK_POOL_SHARED 2u   /* several threads may use it at a time, at some 10 ns a call */
/* Another flag: guards of `kib` KiB, less than 2^24, rounded up to whole pages; 0 means 64. */
#define ACO_STACK_POOL_GUARD_KIB(kib) ((unsigned)(kib) << 8)

/* ==== Life of a pool ========================================================================= */

/*
 * Makes a pool of stacks on which a coroutine can have at least `stack_sz` bytes of frames, and at
 * least 4096; 0 means 128 KiB. `flags` is 0 or the sum of some of the above. Without
 * ACO_STACK_POOL_SHARED it may be used by one thread at a time, so by each thread's own pool. Maps
 * nothing yet; what it allocates, now and as it grows, comes from where aco_set_allocator() says.
 * Aborts if memory runs out, on flags that don't exist, and on guards of a size beside
 * ACO_STACK_POOL_NO_GUARD.
 */
aco_stack_pool_t *aco_stack_pool_new(size_t stack_sz, unsigned flags);

/*
 * The same as aco_stack_pool_new(), but if memory runs out or no stack can be so large, returns
 * NULL with ENOMEM.
 */
aco_stack_pool_t *aco_stack_pool_try_new(size_t stack_sz, unsigned flags);

/* Frees a pool and its mappings. Aborts if it is NULL or a stack was not put back. */
void aco_stack_pool_destroy(aco_stack_pool_t *pool);

/*
 * Gives the memory of idle stacks back to the system, and unmaps the slabs of which none is in use.
 * Cost: about a microsecond for every idle stack.
 */
void aco_stack_pool_trim(aco_stack_pool_t *pool);

/* ==== Stacks ================================================================================= */

/*
 * Takes a stack from the pool, for any use but aco_share_stack_destroy(), which aborts. Cost: a few
 * ns if one is idle, otherwise some microseconds. Aborts if memory or mappings run out.
 */
aco_share_stack_t *aco_stack_pool_get(aco_stack_pool_t *pool);

/*
 * The same as aco_stack_pool_get(), but if memory or mappings run out, returns NULL with ENOMEM;
 * later it may succeed.
 */
aco_share_stack_t *aco_stack_pool_try_get(aco_stack_pool_t *pool);

/*
 * Puts back a stack that was taken from this pool. Its coroutines must have been destroyed before;
 * that of aco_stack_pool_create_co() needs aco_stack_pool_destroy_co() instead. Cost: a few ns, and
 * a microsecond if it gives memory back. Aborts on misuse.
 */
void aco_stack_pool_put(aco_stack_pool_t *pool, aco_share_stack_t *share_stack);

/* ==== Coroutines ============================================================================= */

/*
 * aco_stack_pool_get() and aco_create() on that stack, in one: the aco_t has its place in the pool,
 * so that nothing is allocated. `main_co`, `fp` and `arg` are as for aco_create(), but `main_co` is
 * not NULL. Cost: some 10 ns. Aborts as both do.
 */
aco_t *aco_stack_pool_create_co(aco_stack_pool_t *pool, aco_t *main_co, aco_cofuncp_t fp,
                                void *arg);

/*
 * The same as aco_stack_pool_create_co(), but if memory or mappings run out, returns NULL with
 * ENOMEM; later it may succeed.
 */
aco_t *aco_stack_pool_try_create_co(aco_stack_pool_t *pool, aco_t *main_co, aco_cofuncp_t fp,
                                    void *arg);

/*
 * aco_destroy() and aco_stack_pool_put(), in one, for any coroutine on a stack of this pool, the
 * last one there. Its memory is gone after that. Aborts as both do.
 */
void aco_stack_pool_destroy_co(aco_stack_pool_t *pool, aco_t *co);

/* ==== Statistics ============================================================================= */

/* What the pool has and did so far. */
typedef struct {
    size_t stack_sz;       /* bytes of frames that each stack has at least */
    size_t in_use;         /* stacks taken and not put back */
    size_t most_in_use;    /* the largest in_use so far */
    size_t idle;           /* stacks put back that have their memory still */
    size_t ct_get;         /* stacks taken so far */
    size_t ct_given_back;  /* times that the memory of an idle stack went back to the system */
    size_t ct_slabs;       /* mappings now; each guard made by mprotect() adds two */
    size_t mapped_sz;      /* their bytes of addresses; memory is taken only where touched */
    char has_mprotect;     /* 1: MADV_GUARD_INSTALL failed, guards are made by mprotect() */
} aco_stack_pool_stats_t;
void aco_stack_pool_stats(aco_stack_pool_t *pool, aco_stack_pool_stats_t *stats);

#ifdef __cplusplus
}
#endif

#endif
