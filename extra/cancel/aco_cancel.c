// SPDX-License-Identifier: Apache-2.0
/*
 * Implements aco_cancel.h by forced unwinding (Itanium C++ ABI, 1.3: _Unwind_ForcedUnwind). It
 * starts at a call that aco.h makes right after the switch: the inline switch itself is no call
 * site, so compilers expect no exception there.
 */
#include "aco_cancel.h"

#include <stddef.h>
#include <unwind.h>

/* Values of aco_t.wakes. */
#define WAKES 1   /* starts to unwind when it is continued */
#define UNWINDS 2 /* half unwound; only the end of unwinding and aco_reset() change this to 0 */

/* The coroutine that this thread is about to resume for the first time since its cancellation. */
static __thread aco_t *cancelled;
static __thread int spares_entry; /* its entry function's frame will not be unwound */

static void check(int holds, const aco_t *co, const char *rule_and_remedy)
{
    if (!holds) {
        aco_i_fail("aco_cancel", co, rule_and_remedy);
    }
}

/* The exceptions that this thread is handling; NULL in a program without C++. */
static aco_i_exceptions_t *get_handling(void)
{
    return aco_i_exceptions != NULL ? aco_i_exceptions() : NULL;
}

/* ct_uncaught of this thread when the coroutine that is unwinding was continued. */
static __thread unsigned ct_uncaught_before;

/* ==== In the coroutine ======================================================================= */

/* The unwinder of arm has other types; clang's header declares its exception class wrongly. */
#ifdef ACO_ARCH_ARM
typedef struct _Unwind_Control_Block exception_t;
typedef const char *exception_class_t;
#else
typedef struct _Unwind_Exception exception_t;
typedef _Unwind_Exception_Class exception_class_t;
#endif

/* When libstdc++ terminates, it reads the type of an exception from the memory before it, even if
 * the exception is not from C++. Zeros there say that it has no type. */
typedef struct thrown_s {
    char no_type[128]; /* all 0; larger than the header of a C++ exception */
    exception_t exception;
    int spares_entry; /* as above */
#ifdef ACO_ARCH_ARM
    const aco_t *co;
    void *propagating;     /* the thread's, during the cleanup that started last */
    struct thrown_s *next; /* the next older one of the thread */
#endif
} thrown_t;

#ifdef ACO_ARCH_ARM

/* The newest of this thread's coroutines that are half unwound. */
static __thread thrown_t *newest;

static void enter(thrown_t *thrown, const aco_t *co)
{
    thrown->co = co;
    thrown->next = newest;
    newest = thrown;
}

static void leave(thrown_t *thrown)
{
    thrown_t **link = &newest;
    while (*link != thrown) {
        link = &(*link)->next;
    }
    *link = thrown->next;
}

/* When a cleanup of C++ ends, it finds its exception by what propagates in the thread. If the
 * cleanup yields, others change that meanwhile. The unwinder sets it before each cleanup. */
static void keep_propagating(const aco_i_exceptions_t *handling, thrown_t *thrown)
{
    thrown->propagating = handling->propagating;
}

static void take_propagating(aco_i_exceptions_t *handling, const aco_t *co)
{
    const thrown_t *thrown = newest;
    while (thrown != NULL && thrown->co != co) {
        thrown = thrown->next;
    }
    check(thrown != NULL, co,
          "the coroutine was half unwound on another thread: let it end there "
          "before aco_detach()");
    handling->propagating = thrown->propagating;
}

#else
#define enter(thrown, co) ((void)0)
#define leave(thrown) ((void)0)
#define keep_propagating(handling, thrown) ((void)0)
#define take_propagating(handling, co) ((void)0)
#endif

/* The address of the function whose frame the unwinder is at. */
static uintptr_t function_of(struct _Unwind_Context *context, const exception_t *exception)
{
#ifdef ACO_ARCH_ARM
    (void)context;
    return exception->pr_cache.fnstart & ~(uintptr_t)1; /* set for thumb code */
#else
    (void)exception;
    return _Unwind_GetRegionStart(context);
#endif
}

/* Returns whether all frames have been unwound that are to be. The CFA of `context` is the frame's
 * stack pointer at its call; beyond the entry function's frame there is nothing to clean up. */
static int is_at_end(struct _Unwind_Context *context, const thrown_t *thrown, const aco_t *co)
{
    uintptr_t entry = (uintptr_t)co->fp;
#ifdef ACO_ARCH_ARM
    entry &= ~(uintptr_t)1;
#endif
    return _Unwind_GetCFA(context) >= (uintptr_t)co->share_stack->align_retptr ||
           (thrown->spares_entry && function_of(context, &thrown->exception) == entry);
}

/* Called if a catch block deletes the exception. */
static void on_deletion(_Unwind_Reason_Code reason, exception_t *exception)
{
    (void)reason;
    (void)exception;
    check(0, aco_gtls_co,
          "a catch block of the coroutine has swallowed the cancellation: end it with throw;");
}

/* Called before the cleanups of each frame. */
static _Unwind_Reason_Code end_after_last_frame(int version, _Unwind_Action actions,
                                                exception_class_t exception_class,
                                                exception_t *exception,
                                                struct _Unwind_Context *context, void *arg)
{
    aco_t *co = (aco_t *)arg;
    thrown_t *thrown = (thrown_t *)(void *)((char *)exception - offsetof(thrown_t, exception));
    aco_i_exceptions_t *handling = get_handling();
    (void)version;
    (void)exception_class;
    if (handling != NULL) {
        /* The `throw;` of a catch block increments ct_uncaught, and nothing decrements it. */
        handling->ct_uncaught = ct_uncaught_before;
        keep_propagating(handling, thrown);
    }
    if (is_at_end(context, thrown, co)) {
        leave(thrown);
        aco_i_release(thrown);
        co->wakes = 0;
        aco_exit1(co);
    }
    check(!(actions & _UA_END_OF_STACK), co,
          "a function of the coroutine has no unwind table: "
          "compile it with -fexceptions or -fasynchronous-unwind-tables");
    return _URC_NO_REASON;
}

/* Allocated, as the cleanups overwrite the frame of unwind(). */
static exception_t *new_exception(const aco_t *co)
{
    thrown_t *thrown = (thrown_t *)aco_i_allocate(sizeof(*thrown));
    check(thrown != NULL, co, "out of memory: free something first");
    memset(thrown, 0, sizeof(*thrown));
    thrown->exception.exception_cleanup = on_deletion;
    thrown->spares_entry = spares_entry;
    enter(thrown, co);
    return &thrown->exception;
}

#ifdef ACO_USE_ASAN
void __asan_handle_no_return(void);
#else
#define __asan_handle_no_return() ((void)0)
#endif

/* The waker: called when the unwinding starts, and whenever `co` is continued in a cleanup. */
static void unwind(aco_t *co)
{
    int is_begun = cancelled != co;
    aco_i_exceptions_t *handling = get_handling();
    cancelled = NULL;
    co->wakes = UNWINDS;
    ct_uncaught_before = handling != NULL ? handling->ct_uncaught : 0;
    if (!is_begun) {
        __asan_handle_no_return();
        _Unwind_ForcedUnwind(new_exception(co), (_Unwind_Stop_Fn)(uintptr_t)end_after_last_frame,
                             co);
        check(0, co, "the unwinder can't go on: the stack of the coroutine is damaged");
    }
    if (handling != NULL) {
        take_propagating(handling, co);
    }
}

/* ==== In its parent ========================================================================== */

/* A catch block for foreign exceptions can't begin inside another one, so `co` must not see those
 * that the caller is handling. */
static void resume_without_exceptions(aco_t *co)
{
    aco_i_exceptions_t *handling = get_handling();
    if (handling == NULL) {
        aco_resume(co);
    } else {
        aco_i_exceptions_t mine = *handling;
        unsigned mine_before = ct_uncaught_before;
        memset(handling, 0, sizeof(*handling));
        aco_resume(co);
        *handling = mine;
        ct_uncaught_before = mine_before;
    }
}

static int cancel(aco_t *co, int is_to_spare_entry)
{
    check(co != NULL && co->main_co != NULL, co,
          "NULL or a main coroutine: pass what aco_create() returned for another one");
    if (co->is_end) {
        return 1;
    }
    aco_i_check_resume("aco_cancel", co);
    if (aco_status(co) == ACO_STATUS_INIT) {
        co->reg[ACO_REG_IDX_RETADDR] = (void *)(uintptr_t)aco_exit;
    } else if (co->wakes != UNWINDS) {
        aco_set_waker(unwind);
        cancelled = co;
        spares_entry = is_to_spare_entry;
        co->wakes = WAKES;
    }
    resume_without_exceptions(co);
    check(co->wakes != WAKES, co,
          "the coroutine was suspended by acosw() alone: "
          "let it suspend itself by aco_yield() or aco_yield_to()");
    return co->is_end;
}

int aco_cancel(aco_t *co)
{
    return cancel(co, 0);
}

int aco_i_cancel_callees(aco_t *co)
{
    return cancel(co, 1);
}
