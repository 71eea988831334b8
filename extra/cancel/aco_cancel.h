// SPDX-License-Identifier: Apache-2.0
/*
 * Cancellation: ends a suspended coroutine properly, so that the destructors (C++) and functions
 * named by __attribute__((cleanup)) (C) of its live frames run. aco_destroy() alone just frees.
 * Optional; nothing of aco depends on it. Relies on aco.h and on the unwinder of the C++ ABI
 * (libgcc or libunwind), which C programs have linked as well.
 */
#ifndef ACO_CANCEL_H
#define ACO_CANCEL_H

#include "aco.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Resumes `co` once, to unwind: in place of returning from aco_yield(), it runs the cleanups of its
 * frames, innermost first, and then ends as by aco_exit(). The caller is its parent, as for
 * aco_resume(). Returns co->is_end, so 1 unless a cleanup yields; then `co` is suspended again, and
 * whoever resumes it, by another aco_cancel() or a plain aco_resume(), lets it unwind further:
 *
 *     while (!aco_cancel(co)) {
 *     }
 *     aco_destroy(co);
 *
 * One that never ran (state init) ends without a call of its entry function, and one that has ended
 * stays so. While it unwinds, `co` must not be destroyed by others; destroying one that is
 * suspended half unwound leaks 160 bytes. aco_reset() may follow, also then.
 *
 * What every function in between must be, as with pthread_cancel():
 *   - It has unwind tables. gcc and clang make them unasked. C functions with cleanups
 *     also need -fexceptions.
 *   - It doesn't swallow: a catch (...) ends in `throw;`. Where other exceptions may be swallowed,
 *     a catch (abi::__forced_unwind &) { throw; } of <cxxabi.h> stands before it. That is so with
 *     libstdc++; with libc++abi, which can't rethrow it, it has no catch (...) at all.
 *   - It isn't noexcept, and so no destructor either, if it yields to be cancelled there. Otherwise
 *     the process ends in std::terminate().
 *   - It was suspended by aco_yield(), aco_yield1() or aco_yield_to(), not by acosw() alone.
 * The process ends in one line and abort() if a rule is broken, and in those of aco_resume().
 *
 * The exceptions that the caller is handling are hidden from `co`, and there again afterwards. One
 * that handles exceptions continues it by aco_cancel() or aco_exceptions_resume(). A coroutine that
 * yields inside a catch block does it by aco_exceptions_yield().
 *
 * On arm, C++ keeps for the thread which exception runs a destructor. So one that is suspended half
 * unwound stays on its thread, and is continued by aco_cancel() or aco_exceptions_resume() alone;
 * its cleanups resume others by these, too, and don't switch by aco_yield_to().
 *
 * Cost: nothing until it is called, as the switch looks at one byte anyway. A call takes an
 * allocation, a microsecond and 0.2 more for each frame, and 3 KiB of stack.
 */
int aco_cancel(aco_t *co);

#ifdef __cplusplus
}
#endif

#endif
