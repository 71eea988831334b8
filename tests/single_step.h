// SPDX-License-Identifier: Apache-2.0
/*
 * Runs a switch under the trap flag and looks at the processor before each of its instructions;
 * on request it also delivers a real signal before each, whose handler fills the stack below. Knows
 * the ABI, and of aco only where its switch lies. Relies on Linux, x86-64 or i386, and on signals
 * being delivered on the stack in use unless they ask for another.
 *
 * A switch is the call of a function by one side, which ends where the other side arrives: at its
 * entry, if it has never run, or else behind its own last single_step().
 */
#ifndef ACO_TEST_SINGLE_STEP_H
#define ACO_TEST_SINGLE_STEP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __x86_64__
#define STEP_REGISTERS 6 /* rbx rbp r12 r13 r14 r15 */
#else
#define STEP_REGISTERS 4 /* ebx esi edi ebp */
#endif

#define STEP_FILL_SZ 4096u /* bytes that the handler of the delivered signal writes */

/* For a function that contains an inline switch: it may not even have data in the red zone. */
#define STEP_SWITCH_CODE __attribute__((noinline, section("step_switch_code")))

/* One side of a switch. It must not lie on a stack that is copied. The assembly knows the order. */
typedef struct {
    uintptr_t kept[STEP_REGISTERS]; /* what its callee-saved registers held when it stepped */
    char *sp;                       /* highest that SP may be: when it stepped, or at its start */
    uint32_t mxcsr, x87;            /* its control words: single_step() loads them first */
    char *low;                      /* lowest byte that SP may point to */
    const void *entry;              /* where it is to start; NULL once it has */
} step_side_t;

typedef struct {
    step_side_t *from, *to;
    void (*function)(void); /* gets the arguments */
    void *arguments[2];
    int is_signalled;     /* 1: a signal before every instruction */
    int shares_words;     /* 1: `to` must find the control words of `from`, not its own */
    const void *left_for; /* a function by whose call `to` ends the stepping; or NULL */
} step_t;

/* Counts since the program began. */
typedef struct {
    unsigned long instructions; /* stepped; one that repeats itself counts once */
    unsigned long signals;      /* delivered */
    unsigned long faults;       /* rules found broken, instruction by instruction */
    unsigned long strays;       /* those of them where SP was in neither stack */
    const char *rule;           /* the first rule that was broken, NULL if none was; and where */
    const char *pc, *sp;
    const void *stray_frame; /* where the last signal that came there left its ucontext_t */
} step_report_t;

extern step_report_t step_report;

/* Takes over SIGTRAP and SIGUSR1, and the thread's alternate stack. Call it once. */
void single_step_init(void);

/* The address of the interrupted instruction in what a signal left. */
const char *pc_in_frame(const void *ucontext);

/* Returns when step->from is continued, with the usual control words. */
void single_step(const step_t *step);

#endif
