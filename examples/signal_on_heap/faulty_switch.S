// SPDX-License-Identifier: Apache-2.0
/*
 * Implements faulty_switch.h. The fault is to make SP point to a context, for the sake of push and
 * pop as short ways to store and load: below it there is no stack, but whatever comes before the
 * context in memory, and a signal writes its frame there. Relies on the C ABI for all else.
 */
#include "faulty_switch.h"

#define SP_OFFSET (CONTEXT_REGISTERS * __SIZEOF_POINTER__)

    .text
    .globl faulty_switch
    .type faulty_switch, @function
faulty_switch:
#ifdef __x86_64__
    movq %rsp, SP_OFFSET(%rdi)
    leaq SP_OFFSET(%rdi), %rsp /* from here on SP is in the context of `from` */
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsi, %rsp /* and here in that of `to` */
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rsp /* until it is in a stack again */
#else
    movl 4(%esp), %eax
    movl 8(%esp), %ecx
    movl %esp, SP_OFFSET(%eax)
    leal SP_OFFSET(%eax), %esp
    pushl %ebp
    pushl %ebx
    pushl %esi
    pushl %edi
    movl %ecx, %esp
    popl %edi
    popl %esi
    popl %ebx
    popl %ebp
    popl %esp
#endif
    ret
    .size faulty_switch, .-faulty_switch

    .section .note.GNU-stack, "", @progbits
