// SPDX-License-Identifier: Apache-2.0
/*
 * A switch that works until a signal comes, and what it keeps of a suspended coroutine. For
 * signal_on_heap.c and faulty_switch.S; not to be used.
 */
#ifndef FAULTY_SWITCH_H
#define FAULTY_SWITCH_H

#ifdef __x86_64__
#define CONTEXT_REGISTERS 6 /* rbp rbx r12 r13 r14 r15 */
#else
#define CONTEXT_REGISTERS 4 /* ebp ebx esi edi */
#endif

#ifndef __ASSEMBLER__

typedef struct {
    void *registers[CONTEXT_REGISTERS];
    void *sp; /* points to the address at which it continues */
} context_t;

/* Suspends the caller, which `from` is to remember, and continues `to`. */
void faulty_switch(context_t *from, context_t *to);

#endif
#endif
