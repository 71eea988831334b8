// SPDX-License-Identifier: Apache-2.0
/*
 * Cancellation: unwinds a suspended coroutine, so that the destructors (C++) and the functions
 * named by __attribute__((cleanup)) (C) of its live frames run. aco_destroy() alone only frees
 * memory. Optional: the rest of aco does not depend on it. Relies on aco.h and on the unwinder of
 * the C++ ABI (libgcc or libunwind), which is linked to C programs too.
 */
#ifndef ACO_CANCEL_H
#define ACO_CANCEL_H

#include "aco.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Resumes `co` once, to unwind: instead of returning from aco_yield(), it runs the cleanups of its
 * frames, innermost first, and then ends as by aco_exit(). The caller must be its parent, as for
 * aco_resume(). Returns co->is_end: 1, unless a cleanup yields. Then `co` is suspended again, and
 * the next aco_cancel() or aco_resume() continues the unwinding:
 *
 *     while (!aco_cancel(co)) {
 *     }
 *     aco_destroy(co);
 *
 * A coroutine in state init ends without a call of its entry function; one that has ended stays as
 * it is. While `co` unwinds, others must not destroy it. Destroying it while it is suspended half
 * unwound leaks 160 bytes. aco_reset() may follow, even then.
 *
 * Rules for each function between the yield and the entry function, as with pthread_cancel():
 *   - It has unwind tables, which gcc and clang make by default. C functions with cleanups also
 *     need -fexceptions.
 *   - It does not swallow the cancellation: with libstdc++, a catch (...) ends in `throw;`, or
 *     follows a catch (abi::__forced_unwind &) { throw; } of <cxxabi.h>. With libc++abi, which
 *     can't rethrow the cancellation, it has no catch (...).
 *   - If it yields, and may be cancelled there, it is not noexcept, and so no destructor: else the
 *     process ends in std::terminate().
 *   - It was suspended by aco_yield(), aco_yield1() or aco_yield_to(), not by acosw() alone.
 * A broken rule, or one of those of aco_resume(), ends the process with one line and abort().
 *
 * The exceptions that the caller is handling are hidden from `co`, and restored afterwards. A
 * caller that is handling exceptions continues `co` by aco_cancel() or aco_exceptions_resume(). A
 * coroutine that yields inside a catch block does so by aco_exceptions_yield().
 *
 * On arm, C++ stores per thread which exception runs a destructor. A coroutine that is suspended
 * half unwound therefore stays on its thread there, and is continued only by aco_cancel() or
 * aco_exceptions_resume(). Its cleanups resume others by these too, and don't call aco_yield_to().
 *
 * Cost: none until it is called, as the switch tests one byte anyway. A call takes an allocation, a
 * microsecond plus 0.2 for each frame, and 3 KiB of stack.
 */
int aco_cancel(aco_t *co);

/* ==== Internals ============================================================================== */

/* Does what aco_cancel() does, but leaves the frame of the entry function as it is: that may have a
 * catch (...) with libc++abi, too. For aco.hpp. */
int aco_i_cancel_callees(aco_t *co);

#ifdef __cplusplus
}
#endif

#endif
