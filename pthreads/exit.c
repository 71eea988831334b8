// SPDX-License-Identifier: Apache-2.0
/*
 * pthread_exit(), and what runs at the end of a thread. The frames are unwound, as libc does, so
 * destructors run.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <threads.h>
#include <unistd.h>
#include <unwind.h>

/* ==== Thread-local variables with destructors ================================================ */

typedef void (*destructor_t)(void *);

REPLACE(int, __cxa_thread_atexit_impl, (destructor_t fn, void *arg, void *object),
        (fn, arg, object), -1)
{
    thread_t *thread = this_thread();
    if (thread == NULL) {
        return real___cxa_thread_atexit_impl(fn, arg, object);
    }
    ending_t *ending = (ending_t *)aco_i_allocate(sizeof(*ending));
    if (ending == NULL) {
        return -1;
    }
    *ending = (ending_t){thread->endings, fn, arg};
    thread->endings = ending;
    return 0;
}

void aco_i_run_endings(thread_t *thread)
{
    while (thread->endings != NULL) {
        ending_t ending = *thread->endings;
        aco_i_release(thread->endings);
        thread->endings = ending.next;
        ending.fn(ending.arg);
    }
}

/* ==== Cleanup handlers of C ================================================================== */

/* pthread_cleanup_push() puts it into the frame of C that is compiled without exceptions: a buffer
 * of setjmp(), then words for the library. */
struct cleanup_s {
    union {
        __pthread_unwind_buf_t buf;
        struct __jmp_buf_tag target; /* its first members */
    };
};

static cleanup_t **next_of(cleanup_t *cleanup)
{
    return (cleanup_t **)&cleanup->buf.__pad[0];
}

REPLACE(void, __pthread_register_cancel, (__pthread_unwind_buf_t * buf), (buf), (void)0)
{
    thread_t *thread = this_thread();
    if (thread == NULL) {
        real___pthread_register_cancel(buf);
        return;
    }
    *next_of((cleanup_t *)buf) = thread->cleanup;
    thread->cleanup = (cleanup_t *)buf;
}

REPLACE(void, __pthread_unregister_cancel, (__pthread_unwind_buf_t * buf), (buf), (void)0)
{
    thread_t *thread = this_thread();
    if (thread == NULL) {
        real___pthread_unregister_cancel(buf);
    } else {
        thread->cleanup = *next_of((cleanup_t *)buf);
    }
}

static ACO_NORETURN void unwind(thread_t *thread);

/* Called when the handler has run. */
REPLACE(void, __pthread_unwind_next, (__pthread_unwind_buf_t * buf), (buf), (void)0)
{
    thread_t *thread = this_thread();
    if (thread == NULL) {
        real___pthread_unwind_next(buf);
    } else {
        thread->cleanup = *next_of((cleanup_t *)buf);
        unwind(thread);
    }
}

REPLACE(void, _pthread_cleanup_push, (old_cleanup_t * buffer, destructor_t fn, void *arg),
        (buffer, fn, arg), (void)0)
{
    thread_t *thread = this_thread();
    if (thread == NULL) {
        real__pthread_cleanup_push(buffer, fn, arg);
        return;
    }
    *buffer = (old_cleanup_t){.__routine = fn, .__arg = arg, .__prev = thread->old_cleanup};
    thread->old_cleanup = buffer;
}

REPLACE(void, _pthread_cleanup_pop, (old_cleanup_t * buffer, int execute), (buffer, execute),
        (void)0)
{
    thread_t *thread = this_thread();
    if (thread == NULL) {
        real__pthread_cleanup_pop(buffer, execute);
        return;
    }
    thread->old_cleanup = buffer->__prev;
    if (execute) {
        buffer->__routine(buffer->__arg);
    }
}

/* The same with the cancel type. */
REPLACE(void, _pthread_cleanup_push_defer, (old_cleanup_t * buffer, destructor_t fn, void *arg),
        (buffer, fn, arg), (void)0)
{
    thread_t *thread = this_thread();
    if (thread == NULL) {
        real__pthread_cleanup_push_defer(buffer, fn, arg);
        return;
    }
    name__pthread_cleanup_push(buffer, fn, arg);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &buffer->__canceltype);
}

REPLACE(void, _pthread_cleanup_pop_restore, (old_cleanup_t * buffer, int execute),
        (buffer, execute), (void)0)
{
    thread_t *thread = this_thread();
    if (thread == NULL) {
        real__pthread_cleanup_pop_restore(buffer, execute);
        return;
    }
    pthread_setcanceltype(buffer->__canceltype, NULL);
    name__pthread_cleanup_pop(buffer, execute);
}

/* ==== Exit =================================================================================== */

static void refuse_catch(_Unwind_Reason_Code reason, struct _Unwind_Exception *exception)
{
    (void)reason;
    (void)exception;
    aco_i_misuse_of("pthread_exit",
                    "a catch (...) does not throw on what ends the thread: let it "
                    "end in `throw;`");
}

/* Goes on in a handler whose frame comes before `frame`, the one that is unwound next, or at the
 * end of the thread. */
static void run_handlers(thread_t *thread, uintptr_t frame)
{
    while (thread->old_cleanup != NULL && (uintptr_t)thread->old_cleanup < frame) {
        old_cleanup_t *buffer = thread->old_cleanup;
        thread->old_cleanup = buffer->__prev;
        buffer->__routine(buffer->__arg);
    }
    if (thread->cleanup != NULL && (uintptr_t)thread->cleanup < frame) {
        longjmp(&thread->cleanup->target, 1);
    }
    if (frame >= (uintptr_t)thread->end) {
        longjmp(*thread->end, 1);
    }
}

static _Unwind_Reason_Code step(int version, _Unwind_Action actions, _Unwind_Exception_Class class,
                                struct _Unwind_Exception *exception,
                                struct _Unwind_Context *context, void *arg)
{
    int is_last = (actions & _UA_END_OF_STACK) != 0;
    (void)version, (void)class, (void)exception;
    run_handlers((thread_t *)arg, is_last ? UINTPTR_MAX : _Unwind_GetCFA(context));
    return _URC_NO_REASON;
}

static ACO_NORETURN void unwind(thread_t *thread)
{
    static const char class[8] = {'A', 'C', 'O', '\0', 'E', 'X', 'I', 'T'};
    memset(&thread->exception, 0, sizeof(thread->exception));
    memcpy(&thread->exception.exception_class, class, sizeof(class));
    thread->exception.exception_cleanup = refuse_catch;
    _Unwind_ForcedUnwind(&thread->exception, step, thread);
    run_handlers(thread, UINTPTR_MAX); /* no frame has a table */
    abort();
}

ACO_NORETURN void aco_i_end_thread(thread_t *thread, void *result)
{
    thread->arg = result;
    aco_i_stop_cancelling(thread);
    unwind(thread);
}

REPLACE_HOOK(void, pthread_exit, (void *result))
{
    thread_t *thread = this_thread();
    if (thread != NULL) {
        aco_i_end_thread(thread, result);
    }
    aco_i_leave_main();
    hook_pthread_exit(result);
}

REPLACE_HOOK(void, thrd_exit, (int result))
{
    thread_t *thread = this_thread();
    if (thread != NULL) {
        aco_i_end_thread(thread, (void *)(intptr_t)result);
    }
    aco_i_leave_main();
    hook_thrd_exit(result);
}
