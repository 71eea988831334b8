// SPDX-License-Identifier: Apache-2.0
/*
 * Threads: hands a suspended coroutine to another thread, together with its share stack. Without
 * this, a coroutine stays on the thread of its main coroutine; who never does it pays nothing.
 * Optional; nothing of aco depends on it. Relies on aco.h.
 */
#ifndef ACO_THREADS_H
#define ACO_THREADS_H

#include "aco.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * aco_detach() takes `co` from its thread, which calls it; aco_attach() gives it to the calling
 * thread, as a child of `main_co`: that thread's main coroutine, or any other one of the thread.
 * In between `co` is nobody's: it may be passed on, attached and destroyed, by any thread, and
 * nothing else. In particular, to resume it ends in words.
 *
 *     aco_detach(co);                          // or: aco_t *co = take_from(queue);
 *     put_into(queue, co);                     //     aco_attach(co, main_co);
 *
 * Rules
 *   - `co` is standalone, alone on its share stack, which goes along. It is in any state but
 *     running. It has no children that are not destroyed, and no parent that is: neither is seen.
 *   - What happens before aco_detach() in the one thread must happen before aco_attach() in the
 *     other: pass `co` through something with a mutex, or with release and acquire.
 *   - What lies in thread-local variables, and mutexes that `co` holds, don't go along. Its
 *     control words do, if it has its own; aco_reset() gives it those of the thread that calls it.
 *   - A function of `co` that goes on in another thread must not use the address of a thread-local
 *     variable that it had before. The compiler may keep one, too: see below.
 * Cost: a few ns, apart from the caches of another processor. Abort on misuse.
 */
void aco_detach(aco_t *co);
void aco_attach(aco_t *co, aco_t *main_co);

/*
 * aco_yield() and aco_get_co() that don't get inlined. To compilers the address of a thread-local
 * variable is constant within a function, also that of the running coroutine, which aco_yield(),
 * aco_get_co(), aco_get_arg() and their kind use. On x86, programs (also -fPIE) use no such
 * address: they reach thread-locals by a segment register. Position-independent code of shared
 * libraries does (-fPIC), and on other processors all code does. Whether one is kept across a yield
 * depends on compiler and options: gcc 12 for x86 does so in loops with -m32, and anywhere with
 * -mtls-dialect=gnu2, clang 14 for x86 doesn't; for arm64 both do. None promises anything.
 * So there, a function that goes on in another thread
 *   - yields by aco_movable_yield(), never by aco_yield(), aco_yield_to() or aco_yield_value(),
 *   - gets the running coroutine by aco_movable_co(),
 *   - uses other thread-locals, errno and pthread_self() only in noinline functions that it calls;
 * or, on x86, the library is compiled with -ftls-model=initial-exec, where it may be loaded so.
 */
void aco_movable_yield(void);
aco_t *aco_movable_co(void);

#ifdef __cplusplus
}
#endif

#endif
