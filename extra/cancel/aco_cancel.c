// SPDX-License-Identifier: Apache-2.0
/*
 * Implements aco_cancel.h by forced unwinding (Itanium C++ ABI, 1.3: _Unwind_ForcedUnwind), begun
 * at a call that aco.h has right after the switch: the inline switch itself is no call site, and so
 * no place where compilers expect an exception.
 */
#include "aco_cancel.h"

#include <stddef.h>
#include <unwind.h>

/* What aco_t.wakes is. */
#define WAKES 1   /* to begin unwinding when it is continued */
#define UNWINDS 2 /* half unwound; only the end of unwinding and aco_reset() change that to 0 */

/* The coroutine that this thread is about to resume for the first time since it was cancelled. */
static __thread aco_t *cancelled;

static void check(int holds, const char *rule_and_remedy)
{
    if (!holds) {
        aco_assert_failed(rule_and_remedy, __FILE__, __LINE__, "aco_cancel");
    }
}

/* ==== In the coroutine ======================================================================= */

/* The unwinder of arm has other types, of which clang's header gets that of a class wrong. */
#ifdef ACO_ARCH_ARM
typedef struct _Unwind_Control_Block exception_t;
typedef const char *exception_class_t;
#else
typedef struct _Unwind_Exception exception_t;
typedef _Unwind_Exception_Class exception_class_t;
#endif

/* libstdc++, when it terminates, looks for the type of an exception before it, also of one that is
 * not of its own kind: there is none. */
typedef struct {
    char no_type[128]; /* all 0; more than the header of a C++ exception has */
    exception_t exception;
} thrown_t;

/* Called when somebody deletes the exception, which only its end may do. */
static void on_deletion(_Unwind_Reason_Code reason, exception_t *exception)
{
    (void)reason;
    (void)exception;
    check(0, "a catch block of the coroutine has swallowed the cancellation: end it with throw;");
}

/* Called before the cleanups of each frame, with the stack pointer that it had when it called.
 * Above those of the entry function there is nothing more to clean up. */
static _Unwind_Reason_Code end_after_last_frame(int version, _Unwind_Action actions,
                                                exception_class_t exception_class,
                                                exception_t *exception,
                                                struct _Unwind_Context *context, void *arg)
{
    aco_t *co = (aco_t *)arg;
    (void)version;
    (void)exception_class;
    if (_Unwind_GetCFA(context) >= (uintptr_t)co->share_stack->align_retptr) {
        free((char *)exception - offsetof(thrown_t, exception));
        co->wakes = 0;
        aco_exit1(co);
    }
    check(!(actions & _UA_END_OF_STACK), "a function of the coroutine has no unwind table: "
          "compile it with -fexceptions or -fasynchronous-unwind-tables");
    return _URC_NO_REASON;
}

/* Not in the frame of unwind(), which the cleanups overwrite. */
static exception_t *new_exception(void)
{
    thrown_t *thrown = (thrown_t *)calloc(1, sizeof(*thrown));
    check(thrown != NULL, "out of memory: free something first");
    thrown->exception.exception_cleanup = on_deletion;
    return &thrown->exception;
}

#ifdef ACO_USE_ASAN
void __asan_handle_no_return(void);
#else
#define __asan_handle_no_return() ((void)0)
#endif

/* The waker, called once to begin with, and then whenever `co` has yielded in a cleanup. */
static void unwind(aco_t *co)
{
    int is_begun = cancelled != co;
    cancelled = NULL;
    co->wakes = UNWINDS;
    if (!is_begun) {
        __asan_handle_no_return();
        _Unwind_ForcedUnwind(new_exception(), (_Unwind_Stop_Fn)(uintptr_t)end_after_last_frame, co);
        check(0, "the unwinder can't go on: the stack of the coroutine is damaged");
    }
}

/* ==== In its parent ========================================================================== */

/* The exceptions that a thread is handling, in libstdc++ and libc++abi; NULL without either. */
typedef struct {
    void *caught;
    unsigned ct_uncaught;
} handling_t;
handling_t *__cxa_get_globals(void) __attribute__((weak));

/* A catch block for foreign exceptions can't begin inside another one, and its `throw;` counts as
 * uncaught for ever: neither is to meet what the caller has. */
static void resume_without_exceptions(aco_t *co)
{
    handling_t *handling = __cxa_get_globals != NULL ? __cxa_get_globals() : NULL;
    if (handling == NULL) {
        aco_resume(co);
    } else {
        handling_t mine = *handling;
        memset(handling, 0, sizeof(*handling));
        aco_resume(co);
        *handling = mine;
    }
}

int aco_cancel(aco_t *co)
{
    check(co != NULL && co->main_co != NULL,
          "NULL or a main coroutine: pass what aco_create() returned for another one");
    switch (aco_status(co)) {
    case ACO_STATUS_END:
        return 1;
    case ACO_STATUS_INIT:
        co->reg[ACO_REG_IDX_RETADDR] = (void *)(uintptr_t)aco_exit;
        break;
    default:
        if (co->wakes != UNWINDS) {
            aco_set_waker(unwind);
            cancelled = co;
            co->wakes = WAKES;
        }
    }
    resume_without_exceptions(co);
    check(co->wakes != WAKES, "the coroutine was suspended by acosw() alone: "
          "let it suspend itself by aco_yield() or aco_yield_to()");
    return co->is_end;
}
