// SPDX-License-Identifier: Apache-2.0
/* Observing tasks: where they are, what they wait for, what they did. Nothing below needs it. */
#ifndef ACO_RUNTIME_OBSERVE_H
#define ACO_RUNTIME_OBSERVE_H

#include "io/io.h"
#include "sync/sync.h"

#include <sys/mman.h>

/* Copies a struct that need not be there any more; 0 if it is not. */
#define READ_STRUCT(to, from) (aco_i_read_memory(to, from, sizeof(*(to))) == sizeof(*(to)))

/* Maps zeroed memory, in signal handlers, too; NULL with errno. `flags` are further MAP_ ones. */
static inline void *aco_i_map(size_t sz, int flags)
{
    void *memory = mmap(NULL, sz, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1,
                        0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* ---- elf.c ---- */

/* Finds where a section of a file is loaded, relative to the file's base; 0 if there is none. */
HIDDEN int aco_i_find_section(const char *path, const char *name, uintptr_t *address, size_t *sz);

/* ---- modules.c ---- */

/* A part of the program: its own file, or a shared library. */
typedef struct {
    uintptr_t low, high, base;
    const char *path;
    const unsigned char *frames; /* .eh_frame_hdr */
} aco_i_module_t;

/* Finds the modules of the process, for the functions below; not in signal handlers. */
HIDDEN void aco_i_find_modules(void);

/* The module that an address is in; NULL if there is none. */
HIDDEN const aco_i_module_t *aco_i_module_of(uintptr_t pc);

/* ---- cfi.c ---- */

/* Whether any call-frame information is found for the module that an address is in. */
HIDDEN int aco_i_has_frames(uintptr_t pc);

/* The start of the function that an address is in; 0 if there is none. */
HIDDEN uintptr_t aco_i_function_at(uintptr_t pc);

/* ---- unwind.c ---- */

/* A stack from address `low` on, whose bytes are at `copy`. */
typedef struct {
    uintptr_t low;
    size_t sz;
    const char *copy;
} aco_i_stack_t;

/* `link` is the return address on processors that have it in a register. */
typedef struct {
    uintptr_t pc, sp, bp, link;
} aco_i_registers_t;

/* Finds an address in each frame, from the innermost on, within the instruction that is executed;
 * `most` at most. Returns their number; `is_whole`: the last one has no caller. */
HIDDEN int aco_i_unwind(const aco_i_registers_t *from, const aco_i_stack_t *stack, uintptr_t *pcs,
                        int most, int *is_whole);

/* ---- symbols.c ---- */

/* Begin and end what one thread does at a time: backtraces, and looking for names. */
HIDDEN void aco_i_begin_backtraces(void);
HIDDEN void aco_i_end_backtraces(void);

/* The same before the process ends: does not wait for long for another thread. */
HIDDEN void aco_i_begin_last_backtraces(void);

/* Puts "function+0x12 (file+0x1234)" for an address, or "(file+0x1234)" if it is in no function. */
HIDDEN void aco_i_put_place(aco_i_text_t *text, uintptr_t pc);

/* Puts the name of the function alone, or "(file+0x1234)". */
HIDDEN void aco_i_put_function(aco_i_text_t *text, uintptr_t address);

/* The name of the function, valid until the next call for a name; NULL if there is none. */
HIDDEN const char *aco_i_function_name(uintptr_t address);

/* Whether the name of the function begins with `prefix`. */
HIDDEN int aco_i_is_function(uintptr_t pc, const char *prefix);

/* ---- backtrace.c ---- */

#define ACO_I_MOST_FRAMES 24

typedef struct {
    int ct;
    uintptr_t pcs[ACO_I_MOST_FRAMES];
    size_t stack_use; /* bytes of the task's own stack; 0: unknown */
} aco_i_backtrace_t;

/* A walk up the stacks of a task, which are copied to `copy` one by one. */
typedef struct {
    uintptr_t *pcs;
    int most, ct;
    int is_whole;     /* no frame is missing, as far as is known */
    size_t stack_use; /* bytes of the task's own stack; 0: unknown */
    char *copy;
    size_t copy_sz;
} aco_i_walk_t;

/* Sets `registers` to those of the function that contains it. */
#if defined(__x86_64__)
#define ACO_I_HERE(registers)                                                                      \
    __asm__ volatile("leaq 0(%%rip), %0\n\tmovq %%rsp, %1\n\tmovq %%rbp, %2"                       \
                     : "=&r"((registers).pc), "=&r"((registers).sp), "=&r"((registers).bp))
#elif defined(__i386__)
#define ACO_I_HERE(registers)                                                                      \
    __asm__ volatile("call 1f\n1:\tpopl %0\n\tmovl %%esp, %1\n\tmovl %%ebp, %2"                    \
                     : "=&r"((registers).pc), "=&r"((registers).sp), "=&r"((registers).bp))
#elif defined(__aarch64__)
#define ACO_I_HERE(registers)                                                                      \
    __asm__ volatile("adr %0, .\n\tmov %1, sp\n\tmov %2, x29"                                      \
                     : "=&r"((registers).pc), "=&r"((registers).sp), "=&r"((registers).bp))
#elif defined(__riscv)
#define ACO_I_HERE(registers)                                                                      \
    __asm__ volatile("auipc %0, 0\n\tmv %1, sp\n\tmv %2, s0"                                       \
                     : "=&r"((registers).pc), "=&r"((registers).sp), "=&r"((registers).bp))
#else
#define ACO_I_HERE(registers) ((registers).sp = (uintptr_t)__builtin_frame_address(0))
#endif

/* The registers of the code that a signal has interrupted. */
HIDDEN aco_i_registers_t aco_i_interrupted(const void *ucontext);

/* Finds the backtrace of a task that does not run; `task` is a copy of it. One caller at a time. */
HIDDEN void aco_i_backtrace_of(const aco_task_t *task, aco_i_backtrace_t *backtrace);

/* Finds that of the running task of the caller's thread, from `registers` on. */
HIDDEN void aco_i_backtrace_here(const aco_task_t *task, const aco_i_registers_t *registers,
                                 aco_i_backtrace_t *backtrace);

/* The same as a walk, and also in the middle of a switch. `task` is NULL in the loop itself; `low`
 * and `top` are the bounds of the thread's own stack. */
HIDDEN void aco_i_walk_here(const aco_task_t *task, const aco_i_registers_t *registers,
                            uintptr_t low, uintptr_t top, aco_i_walk_t *walk);

/* Finds the backtrace of a task that runs on another thread, which a signal interrupts for that;
 * backtrace->ct is 0 if it does not answer in time. One caller at a time. */
HIDDEN void aco_i_ask_backtrace(loop_t *loop, const aco_task_t *task, aco_i_backtrace_t *backtrace);

/* ---- task_list.c ---- */

extern HIDDEN const char *const aco_i_reason_names[CT_REASONS];

/* Prints the list of tasks, by system calls alone. `registers` are those of the caller's thread, or
 * of the code that its handler has interrupted. */
HIDDEN void aco_i_list_tasks(aco_i_text_t *text, const aco_i_registers_t *registers);
HIDDEN void aco_i_put_frames(aco_i_text_t *text, const aco_i_backtrace_t *backtrace);

/* Puts the line of a task; `task` is a copy of it. */
HIDDEN void aco_i_put_task(aco_i_text_t *text, const aco_task_t *task,
                           const aco_i_backtrace_t *backtrace, int64_t now);

/* Puts which task it is, by its number and its label, or that it is a thread outside of tasks. */
HIDDEN void aco_i_put_title(aco_i_text_t *text, const aco_task_t *task);

/* Writes the name of a task, or else that of its function, to ACO_I_LABEL_SZ bytes. */
HIDDEN void aco_i_label(char *label, const aco_task_t *task);

/* ---- handlers.c ---- */

/* Starts a detached thread that gets no signals, for as long as the process runs; 0, or -1 with
 * errno. */
HIDDEN int aco_i_start_thread(void *(*fn)(void *), void *arg);

/* The number of these threads. */
HIDDEN int aco_i_ct_own_threads(void);
HIDDEN int aco_i_is_thread_asleep(const loop_t *loop);

/* Installs a handler, unless the program has a use of its own for the signal: returns 0 then. */
HIDDEN int aco_i_take_signal(int signal, const struct sigaction *action);

/* Whether a handler has enough stack to list or walk tasks. */
HIDDEN int aco_i_has_room(void);

/* Gives the caller's thread a stack for handlers, which may need more than is left of a task's,
 * unless it has a large one. */
HIDDEN void aco_i_begin_alt_stack(loop_t *loop);
HIDDEN void aco_i_end_alt_stack(loop_t *loop);

/* The signal that ends the process, while that is reported; atomic; 0: none. */
extern HIDDEN int aco_i_dying_of;

/* Whether there is such a signal. */
HIDDEN int aco_i_is_dying(void);

/* Ends the process by the signal now, even if it is blocked. */
HIDDEN void aco_i_die_of(int number);

/* ---- on_signal.c ---- */

/* Starts printing lists on signals in a child of a process that has asked for it. */
HIDDEN void aco_i_begin_printing(void);

/* ---- fatal.c ---- */

/* Whether a signal is a fault or SIGABRT; aco_print_tasks_on() for such a signal. */
HIDDEN int aco_i_is_fatal(int signal);
HIDDEN int aco_i_list_before_end(int signal);

/* Lets overflows of tasks' stacks be reported before the process ends, from the first call on. */
HIDDEN void aco_i_begin_overflow_reports(void);

/* Reports an overflow if a signal is one, for extra/overflow, which has a handler, too. Returns
 * whether it is one. */
SHARED int aco_i_report_overflow(int signal, const siginfo_t *info, const void *ucontext);

/* ---- trace.c, trace_file.c ---- */

/* Begins to trace the loop of the caller's thread if ACO_TRACE asks for it; ends that. */
HIDDEN void aco_i_begin_trace(loop_t *loop);
HIDDEN void aco_i_end_trace(loop_t *loop);

/* Record events of a loop that is traced: a look has ended, before which `last_before` was the last
 * ready task, or NULL; a task will run; its name, or its function, has changed; it has run. */
HIDDEN void aco_i_trace_look(loop_t *loop, const aco_task_t *last_before);
HIDDEN void aco_i_trace_begin_run(loop_t *loop, const aco_task_t *task);
HIDDEN void aco_i_trace_name(loop_t *loop, const aco_task_t *task);
HIDDEN void aco_i_trace_end_run(loop_t *loop, aco_task_t *task);

/* Records that the thread of such a loop has put a task into another loop's inbox. */
HIDDEN void aco_i_trace_wake(const loop_t *loop, aco_task_t *task);

/* ---- profile.c ---- */

/* Begins to sample the loop of the caller's thread if ACO_PROFILE asks for it; ends that. */
HIDDEN void aco_i_begin_profile(loop_t *loop);
HIDDEN void aco_i_end_profile(loop_t *loop);

/* ---- finish.c ---- */

/* The files that are finished before a signal ends the process, each by its `fn`. */
enum { TRACE_FILE, PROFILE_FILE, CT_FILES };
HIDDEN void aco_i_finish_on_signals(int file, void (*fn)(void));

/* ---- watchdog.c ---- */

/* Reports which tasks, and how many groups, of a runtime that ends were not joined. */
HIDDEN void aco_i_report_unjoined(const runtime_t *runtime, size_t ct_groups);

/* Starts the watchdog, once, if ACO_WATCHDOG asks for it. */
HIDDEN void aco_i_begin_watch(void);

/* ---- deadlocks.c ---- */

/* Looks for deadlocks, and for locks held over waits of `limit` ns, and reports them. Is called
 * every now and then. */
HIDDEN void aco_i_look_for_deadlocks(const aco_i_held_t *held, int64_t limit);

/* ---- observer.c ---- */

/* The table of functions that loops call. */
extern HIDDEN const aco_i_observer_t aco_i_observe;

#endif
