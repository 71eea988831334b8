// SPDX-License-Identifier: Apache-2.0
/*
 * Threads: hands a suspended coroutine to another thread, together with its share stack. Without
 * this, a coroutine stays on the thread of its main coroutine. Programs that don't use it pay
 * nothing. Optional: the rest of aco does not depend on it. Relies on aco.h.
 */
#ifndef ACO_THREADS_H
#define ACO_THREADS_H

#include "aco.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * aco_detach() takes `co` from its thread, which makes the call; aco_attach() gives it to the
 * calling thread, as a child of `main_co`: that thread's main coroutine or any other coroutine of
 * it. In between, any thread may pass `co` on, attach it or destroy it, and nothing else: resuming
 * it is misuse.
 *
 *     aco_detach(co);                          // or: aco_t *co = take_from(queue);
 *     put_into(queue, co);                     //     aco_attach(co, main_co);
 *
 * Rules
 *   - `co` is standalone, alone on its share stack, which goes along. It is in any state but
 *     running. Its children are destroyed, and its parent is not: neither is checked.
 *   - aco_detach() in one thread must happen before aco_attach() in the other: pass `co` under a
 *     mutex, or with release and acquire.
 *   - Thread-local variables, and mutexes that `co` holds, do not go along. Its control words do,
 *     if it has its own; aco_reset() replaces them by those of the thread that calls it.
 *   - A function of `co` that continues on another thread must not use the address of a
 *     thread-local variable from before. The compiler may keep one, too: see below.
 * Cost: a few ns, apart from the caches of another processor. Abort on misuse.
 */
void aco_detach(aco_t *co);
void aco_attach(aco_t *co, aco_t *main_co);

/*
 * aco_yield() and aco_get_co() that don't get inlined. Compilers take the address of a thread-local
 * variable for constant within a function, even that of the running coroutine, which aco_yield(),
 * aco_get_co(), aco_get_arg() and similar use. On x86, programs (with -fPIE too) use no such
 * address: they access thread-locals by a segment register. Shared libraries (-fPIC) use it, and so
 * does all code on other processors. Whether a compiler keeps one across a yield depends on its
 * options: gcc 12 for x86 does in loops with -m32, and anywhere with -mtls-dialect=gnu2; clang 14
 * for x86 does not; for arm64 both do. None promises anything. There, therefore, a function that
 * continues on another thread
 *   - yields by aco_movable_yield(), never by aco_yield(), aco_yield_to() or aco_yield_value(),
 *   - gets the running coroutine by aco_movable_co(),
 *   - uses other thread-locals, errno, pthread_self() and aco_exit() only in noinline functions
 *     that it calls;
 * or, on x86, the library is compiled with -ftls-model=initial-exec, where it may be loaded so.
 */
void aco_movable_yield(void);
aco_t *aco_movable_co(void);

#ifdef __cplusplus
}
#endif

#endif
