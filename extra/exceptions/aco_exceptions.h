// SPDX-License-Identifier: Apache-2.0
/*
 * Exceptions across yields: C++ stores per thread which exceptions are being handled and how many
 * are uncaught. A coroutine that yields inside a catch block, or in a destructor that runs because
 * of an exception, would mix its own with those of others. These calls let them travel with it.
 * Optional: the rest of aco does not depend on it, and programs that don't call it pay nothing.
 * Relies on aco.h and on the C++ ABI as libstdc++ and libc++abi implement it; without either, the
 * calls do no more than the plain ones. C code called from C++ may use them if it is compiled with
 * -fexceptions.
 */
#ifndef ACO_EXCEPTIONS_H
#define ACO_EXCEPTIONS_H

#include "aco.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The exceptions that a thread, or a coroutine, is handling. */
typedef aco_i_exceptions_t aco_exceptions_t;

/*
 * aco_exceptions_leave() moves the calling thread's exceptions to `*mine`; then it has none.
 * aco_exceptions_enter() replaces them by those of `*mine`. They belong around other calls that
 * switch than the ones below, such as aco_yield_to(). Cost: a few ns.
 */
void aco_exceptions_leave(aco_exceptions_t *mine);
void aco_exceptions_enter(const aco_exceptions_t *mine);

/*
 * aco_resume(co) and aco_yield(), after which the caller handles the exceptions that it handled
 * before. A coroutine that yields while it handles one does so by aco_exceptions_yield(); its
 * parent may resume it by any call. A caller that handles an exception itself resumes any coroutine
 * by aco_exceptions_resume(), which starts it without exceptions. If a coroutine is cancelled
 * meanwhile (see aco_cancel()), the handlers that it leaves release their exceptions; if it is
 * destroyed, these leak.
 */
static inline void aco_exceptions_resume(aco_t *co);
static inline void aco_exceptions_yield(void);

/* ==== Inline ================================================================================= */

/* Inline, as the switch is: the saved exceptions lie in the caller's frame, and travel with it. A
 * cleanup restores them, since a cancelled aco_yield() does not return. The options of the program
 * thus apply, and the library contains none of it. */
#define ACO_EXCEPTIONS_KEPT __attribute__((cleanup(aco_i_exceptions_return))) aco_exceptions_t
void aco_i_exceptions_return(const aco_exceptions_t *mine);

#define ACO_EXCEPTIONS_INLINE static inline __attribute__((ACO_ALWAYS unused))

ACO_EXCEPTIONS_INLINE void aco_exceptions_resume(aco_t *co)
{
    if (aco_unlikely(co == NULL || co->main_co == NULL || co->is_end)) {
        aco_i_check_resume("aco_exceptions_resume", co);
    }
    aco_exceptions_t mine;
    aco_exceptions_leave(&mine);
    aco_i_continue("aco_exceptions_resume", co);
    aco_exceptions_enter(&mine); /* no cleanup needed: a resume always returns */
}

ACO_EXCEPTIONS_INLINE void aco_exceptions_yield(void)
{
    ACO_EXCEPTIONS_KEPT mine;
    aco_exceptions_leave(&mine);
    aco_i_suspend("aco_exceptions_yield", aco_gtls_co);
}

#ifdef __cplusplus
}
#endif

#endif
