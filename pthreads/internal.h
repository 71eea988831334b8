// SPDX-License-Identifier: Apache-2.0
/*
 * Internals that the sources of pthreads/ share. A thread is a task of the runtime with a handle,
 * which is its pthread_t.
 *
 *   handles.c     the table of handles
 *   threads.c     the start, the end and joining
 *   exit.c        pthread_exit(), cleanup handlers, destructors of thread-local variables
 *   variables.c   thread-local variables
 *   attributes.c  names, stacks, scheduling
 *   points.c      cancelling, and the functions that it ends
 *   signals.c     masks and signals; processes.c: those of child processes
 *   numbers.c     calls that name threads by numbers
 *   preempt.c     lets others run where a thread keeps its loop
 *   barriers.c    barriers; system_calls.c: syscall()
 *   settings.c    variables of the environment
 *
 * A function here replaces the hook of the same name, which is weak, and knows handles. A pthread_t
 * that is no handle is a thread of the kernel, and goes to libc.
 */
#ifndef ACO_PTHREADS_INTERNAL_H
#define ACO_PTHREADS_INTERNAL_H

#include "../hooks/waiting.h"

#include <locale.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <unwind.h>

#define NAME_SZ 16 /* bytes of a thread's name, as the kernel's */

/* A function that runs at the end of a thread: the destructor of a thread-local variable. */
typedef struct ending_s {
    struct ending_s *next;
    void (*fn)(void *);
    void *arg;
} ending_t;

typedef struct cleanup_s cleanup_t;
typedef struct _pthread_cleanup_buffer old_cleanup_t;

typedef enum { HANDLE_FREE, HANDLE_JOINABLE, HANDLE_DETACHED } handle_state_t;

typedef struct thread_s {
    lock_t lock;
    handle_state_t state;
    uint32_t is_over; /* a futex: nothing of the thread runs any more */
    char is_awaited;  /* somebody joins it */
    struct thread_s *joiner;
    struct thread_s *next; /* of those that are free */

    void *(*fn)(void *);
    void *arg;        /* later its result */
    char is_c11;      /* its function returns an int */
    aco_task_t *task; /* NULL before its start, and after its end */
    ending_t *endings;
    cleanup_t *cleanup;         /* the last one; see exit.c */
    old_cleanup_t *old_cleanup; /* the last one */
    jmp_buf *end;               /* where it ends; the address of a frame that lives until then */
    struct _Unwind_Exception exception; /* by which pthread_exit() unwinds */

    char name[NAME_SZ];
    int tid;
    size_t stack_sz, guard_sz;
    void *stack;               /* NULL: one of the runtime's */
    size_t mapped_sz;          /* of `stack` and its guard; 0: the program gave it */
    uint64_t blocked, pending; /* signals, each a bit; atomic */
    uint64_t awaited;          /* by sigwait() and similar; atomic */
    uint64_t blocked_outside;  /* before the outermost handler was called */
    unsigned ct_handlers;      /* that have not returned */
    char must_look;            /* for signals of the process; atomic */
    union sigval value;        /* of the last pthread_sigqueue() */
    stack_t alt_stack;         /* kept, and not used */
    char cancel_state, cancel_type, is_cancelled;
    int policy, priority;
    int nice; /* added to the process's */
    cpu_set_t processors;
    locale_t locale;

    char *variables; /* its thread-local variables while another thread has the loop's */
    size_t variables_sz;
    size_t generation; /* of the list of objects, when they were put by; 0: they never were */
} thread_t;

/* ---- handles.c ---- */

/* A handle that stands for nothing; NULL if there are too many. */
HIDDEN thread_t *aco_i_new_handle(void);
HIDDEN void aco_i_free_handle(thread_t *thread);

/* The handle that a pthread_t is; NULL for a thread of the kernel. */
HIDDEN thread_t *aco_i_handle_of(pthread_t thread);

/* The handle with a number that aco_i_new_handle() has given; NULL if there is none. */
HIDDEN thread_t *aco_i_handle_of_tid(int tid);

/* In a child after fork(), other threads hold no lock. */
HIDDEN void aco_i_begin_child_of_handles(void);

/* Calls `fn` for each handle that was ever used, until that returns other than 0, and returns
 * that. */
HIDDEN int aco_i_for_each_handle(int (*fn)(thread_t *thread, void *arg), void *arg);

/* The caller's handle; NULL in a thread of the kernel. */
static inline thread_t *this_thread(void)
{
    extern HIDDEN __thread aco_task_t *aco_i_forked_task;
    const loop_t *loop = aco_i_loop;
    const aco_task_t *task = loop != NULL ? loop->running : aco_i_forked_task;
    return task != NULL && task->is_thread ? (thread_t *)task->arg : NULL;
}

/* Starts a thread of the kernel, which leaves signals to the program's, but for its own faults. */
HIDDEN int aco_i_start_own(void *(*fn)(void *), void *arg);

/* ---- variables.c ---- */

/* The path of the file that holds the address; "" for the program, and with a libc that can tell it
 * only under the lock of the loader. */
HIDDEN const char *aco_i_file_of(const void *address);

/* Gives a thread that has not started the initial values; 0 or ENOMEM. */
HIDDEN int aco_i_new_variables(thread_t *thread);

/* Makes the variables of the loop those of the running thread. */
HIDDEN void aco_i_take_variables(thread_t *thread);

/* Whether an address is that of such a variable. */
HIDDEN int aco_i_is_variable(const void *address);

/* Leaves them to nobody, when the running thread has ended, and frees those that were put by. */
HIDDEN void aco_i_drop_variables(thread_t *thread);

HIDDEN void aco_i_begin_child_of_variables(void);

/* Whether an address is in code that may be in the middle of something of the kernel's thread: of
 * libc, the loader, the C++ runtime, sanitizers, the library with malloc(), or this one. For
 * handlers, too. */
HIDDEN int aco_i_is_code_of_loop(uintptr_t address);

/* ---- preempt.c ---- */

/* Called before a runtime begins, and by each thread when it starts. */
HIDDEN void aco_i_begin_preempting(void);
HIDDEN void aco_i_preempt_here(void);

/* ---- exit.c ---- */

/* Runs what is to run at the end of the running thread, but for destructors of keys. */
HIDDEN void aco_i_run_endings(thread_t *thread);

/* Unwinds the running thread and ends it, so that it can't be cancelled any more. */
HIDDEN ACO_NORETURN void aco_i_end_thread(thread_t *thread, void *result);

/* ---- threads.c ---- */

/* Called by a thread of the kernel before it ends by pthread_exit(): if it is the program's first,
 * the process ends with the last thread. */
HIDDEN void aco_i_leave_main(void);

/* Waits while a word has a value, until a point in time of `clock`, or with NULL for ever. 0 or an
 * error: EAGAIN if it has another value, ETIMEDOUT or ECANCELED. The other changes the word. */
HIDDEN int aco_i_wait_while(const uint32_t *word, uint32_t value, clockid_t clock,
                            const struct timespec *time);
HIDDEN void aco_i_wake_all_at(uint32_t *word);
HIDDEN void aco_i_set_and_wake(uint32_t *word, uint32_t value);

/* ---- points.c ---- */

/* Lets a thread be cancelled by way of its task, from its start on, and no more. */
HIDDEN void aco_i_begin_cancelling(thread_t *thread, aco_task_t *task);
HIDDEN void aco_i_stop_cancelling(thread_t *thread);

/* Whether cancelling ends the waits of the running thread: in cancellation points alone. */
static inline void set_cancellable(thread_t *thread, int is_cancellable)
{
    if (thread != NULL && thread->task != NULL) {
        thread->task->ct_shields = !is_cancellable;
    }
}

/* ---- signals.c ---- */

HIDDEN void aco_i_begin_signals(thread_t *thread, const thread_t *creator);

/* Lets the running thread's loop have the signals of the process that the thread does not block. */
HIDDEN void aco_i_take_signals(const thread_t *thread);

/* Calls the handlers for signals of the running thread that have come and are not blocked. */
HIDDEN void aco_i_deliver(thread_t *thread);

static inline int has_signals(const thread_t *thread)
{
    uint64_t pending = __atomic_load_n(&thread->pending, __ATOMIC_SEQ_CST);
    return (pending & ~thread->blocked) != 0 ||
           __atomic_load_n(&thread->must_look, __ATOMIC_RELAXED) != 0;
}

/* Called by the runtime when a wait was interrupted. */
HIDDEN aco_i_interrupt_t aco_i_handle_interrupt(aco_task_t *task);

/* Finds threads for signals of the process that its first thread blocks, as a task. */
HIDDEN void *aco_i_find_receivers(void *unused);

/* Lets a mask, which may be NULL, be that of the running thread during a call. The first returns
 * whether a handler was called. */
HIDDEN int aco_i_begin_mask(thread_t *thread, const sigset_t *mask, uint64_t *before);
HIDDEN void aco_i_end_mask(thread_t *thread, uint64_t before);

/* ---- numbers.c ---- */

/* The thread that a call of the kernel concerns by its number; NULL: it is for the kernel. */
HIDDEN thread_t *aco_i_named_thread(long number, const args_t *args);
HIDDEN long aco_i_call_by_number(thread_t *thread, long number, const args_t *args);

/* ---- settings.c ---- */

HIDDEN int aco_i_ct_loops(void);
HIDDEN int aco_i_list_signal(void); /* 0: none */
HIDDEN size_t aco_i_default_stack_sz(void);

/* Whether threads that start with the function are the kernel's. */
HIDDEN int aco_i_is_real(const void *fn);

/* Whether the threads of a loop share the variable, or the variables of the object at the path. The
 * second asks nothing of the loader. */
HIDDEN int aco_i_shares_variable(const void *address);
HIDDEN int aco_i_shares_variables_of(const char *path);

/* Whether an address lies in this library. */
HIDDEN int aco_i_is_ours(const void *address);

/* Defines a function of libc as HOOK() does, but not weakly, with the C name name_NAME. */
#define REPLACE(type, name, params, args, otherwise)                                               \
    static type first_##name params;                                                               \
    static type(*real_##name) params = first_##name;                                               \
    extern SHARED type name_##name params __asm__(#name);                                          \
    HOOK_ENTRY(name, &real_##name);                                                                \
    static EARLY type first_##name params                                                          \
    {                                                                                              \
        return aco_i_find_real(#name, &real_##name) ? real_##name args : (type)(otherwise);        \
    }                                                                                              \
    type name_##name params

/* Defines a function that has a hook, which hook_NAME calls. */
#define REPLACE_HOOK(type, name, params)                                                           \
    extern HIDDEN type hook_##name params __asm__("aco_i_hook_" #name);                            \
    extern SHARED type name_##name params __asm__(#name);                                          \
    type name_##name params

#endif
