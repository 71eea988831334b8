// SPDX-License-Identifier: Apache-2.0
/*
 * Exceptions across yields: C++ keeps for each thread which exceptions are being handled and how
 * many are on their way, so a coroutine that yields inside a catch block, or in a destructor that
 * an exception runs, would mix its own with those of others. These calls let them travel with it.
 * Optional; nothing of aco depends on it, and who doesn't call it pays nothing. Relies on aco.h and
 * on the C++ ABI as libstdc++ and libc++abi have it; without either, the calls do nothing more than
 * the plain ones. C code that is called by C++ may use them too, compiled with -fexceptions.
 */
#ifndef ACO_EXCEPTIONS_H
#define ACO_EXCEPTIONS_H

#include "aco.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The exceptions that a thread, or a coroutine, is handling. */
typedef struct {
    void *caught;         /* the innermost, which leads to the others */
    unsigned ct_uncaught; /* on their way; as in std::uncaught_exceptions() */
#ifdef ACO_ARCH_ARM
    void *propagating; /* the innermost of those whose destructors run, which leads to the others */
#endif
} aco_exceptions_t;

/*
 * aco_exceptions_leave() moves the calling thread's exceptions to `*mine`, so that it has none;
 * aco_exceptions_enter() makes it have those of `*mine` and no others. For use around what runs
 * coroutines in another way than the calls below, such as aco_yield_to(). Cost: a few ns.
 */
void aco_exceptions_leave(aco_exceptions_t *mine);
void aco_exceptions_enter(const aco_exceptions_t *mine);

/*
 * aco_resume(co) and aco_yield(), after which the caller handles the exceptions that it handled
 * before. A coroutine that yields while it handles one does it by aco_exceptions_yield(). Who
 * resumes such a coroutine needs nothing; who resumes any coroutine while it handles one itself
 * does it by aco_exceptions_resume(). A coroutine starts with none of its own then. When it is
 * cancelled meanwhile (see aco_cancel()), the handlers that it leaves release what they handle;
 * when it is destroyed, these exceptions leak.
 */
static inline void aco_exceptions_resume(aco_t *co);
static inline void aco_exceptions_yield(void);

/* ==== Inline ================================================================================= */

/* Inline, as the switch is: what is kept lies in the frame of the caller, and travels with it. It
 * is a cleanup that brings it back, since aco_cancel() does not let aco_yield() return; so these
 * have to be compiled as the program that includes them, and the library has none of them. */
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
    aco_exceptions_enter(&mine); /* no cleanup: a resume always returns */
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
