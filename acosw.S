// SPDX-License-Identifier: Apache-2.0
/*
 * The switch as a function, and what else has no C. One block per processor, in the order of
 * aco.h: acosw, aco_i_load_fpucw_mxcsr, aco_save_fpucw_mxcsr, aco_funcp_protector_asm. Compile with
 * the same ACO_CONFIG_SHARE_FPU_MXCSR_ENV as the rest. aco.h says what reg[] holds (the words are
 * its first member) and what goes for the inline switch; this file relies on that, on the C ABI,
 * and on nothing else.
 *
 * A coroutine that has never run (state init). Continuing it is a jump to its entry function, which
 * finds SP and return address as a call would leave them: where calls push it, SP + word is a
 * multiple of 16; where they leave it in a register, SP is aligned, and the switch loads that
 * register from there.
 *
 *            align_highptr ->  +----------------------------+  multiple of 16
 *                              | address of the protector   |  where the entry function returns to
 *   reg[SP] = align_retptr ->  +----------------------------+  ACO_RETPTR_SZ below
 *                              | unused                     |
 *
 *   reg[RETADDR] = fp, reg[BP] = 0 (ends the chain of frame pointers)
 *
 * One that called acosw. Its caller's frame lies as the call left it; below are the registers that
 * belong to the caller.
 *
 *             align_retptr ->  +----------------------------+
 *                              | frames                     |
 *                              +----------------------------+
 *                              | return address of the call |
 *                              | callee-saved registers     |
 *                  reg[SP] ->  +----------------------------+
 *                              | unused: never read again   |
 *
 *   reg[RETADDR] = the tail of acosw, which pops them and returns
 *
 * One that switched inline has reg[SP] at the end of the frame of the function that did so, and
 * reg[RETADDR] in its midst. Its main coroutine, meanwhile, looks like either, on its own stack.
 *
 * At every instruction SP is either the outgoing coroutine's or the incoming one's, with nothing
 * live below it, so a signal may come at any of them. Up to the jump the call-frame information
 * describes the outgoing coroutine: its frame pointer and its SP are found where they were stored.
 */
#include "aco.h"

/* ==== Portability ============================================================================ */

#ifdef __APPLE__
/* Mach-O: names have an underscore, symbols neither type nor size. */
#define SYMBOL(name) SYMBOL_EXPANDED(name)
#define SYMBOL_EXPANDED(name) _##name
#define LABEL(name) SYMBOL(name):
#define END(name) .cfi_endproc
#define SIZE(name)
#define CALL_PLT(name) SYMBOL(name)
#define LOCAL(name) L##name
#else
#define SYMBOL(name) name
#ifdef __thumb__
#define LABEL(name) .thumb_func; .type name, %function; name:
#else
#define LABEL(name) .type name, %function; name:
#endif
#define END(name) .cfi_endproc; SIZE(name)
#define SIZE(name) .size name, .-name
#define CALL_PLT(name) name@PLT
#define LOCAL(name) .L##name
#endif
#define GLOBAL(name) .globl SYMBOL(name)
#define FUNCTION(name) .p2align 4 ACO_NL GLOBAL(name) ACO_NL LABEL(name)

    .text

#if defined(ACO_ARCH_X86_64) || defined(ACO_ARCH_I386)
/* ==== What the two x86 blocks share ========================================================== */

/* A callee-saved register goes to the stack or comes from there; unwinders are told. */
#define PUSH(reg) push reg; .cfi_adjust_cfa_offset ACO_WORD; .cfi_rel_offset reg, 0
#define POP(reg) pop reg; .cfi_adjust_cfa_offset -ACO_WORD; .cfi_restore reg

/*
 * The control words of `to` are loaded, with the flags of MXCSR as they are. The x87 flags are
 * dropped if the new control word would turn one of them into a trap: somebody else raised it. The
 * word of `to` serves as memory meanwhile. Changes eax, ebx, edx.
 */
#define LOAD_CONTROL_WORDS(to) \
    movl ACO_REG(ACO_REG_IDX_FPU, to), %edx; \
    movl %edx, %ebx; \
    shrl $16, %ebx; \
    notl %ebx; \
    fnstsw %ax; \
    andl %eax, %ebx; \
    testb $0x3f, %bl; \
    jz 1f; \
    fnclex; \
1:  fldcw 2+ACO_REG(ACO_REG_IDX_FPU, to); \
    stmxcsr ACO_REG(ACO_REG_IDX_FPU, to); \
    xorl ACO_REG(ACO_REG_IDX_FPU, to), %edx; \
    andl $ACO_MXCSR_CONTROL, %edx; \
    xorl %edx, ACO_REG(ACO_REG_IDX_FPU, to); \
    ldmxcsr ACO_REG(ACO_REG_IDX_FPU, to)

    .att_syntax prefix /* also where the compiler was asked for Intel's */

#endif
#if defined(ACO_ARCH_X86_64)
/* ==== x86-64 (System V ABI) ================================================================== */

/*
 * void *acosw(aco_t *from, aco_t *to)
 *   rdi  from; callee-saved: rbx rbp r12-r15, x87 control word, control bits of MXCSR
 *   rsi  to; still so at the address jumped to
 */
FUNCTION(acosw)
    .cfi_startproc
    ACO_ASM_LAND(endbr64)
    PUSH(%rbx)
    PUSH(%r12)
    PUSH(%r13)
    PUSH(%r14)
    PUSH(%r15)
    .cfi_remember_state
    leaq LOCAL(continued)(%rip), %rax
    movq %rax, ACO_REG(ACO_REG_IDX_RETADDR, rdi)
    movq %rsp, ACO_REG(ACO_REG_IDX_SP, rdi)
    movq %rbp, ACO_REG(ACO_REG_IDX_BP, rdi)
    ACO_ASM_FPU(rdi, rsi, call LOCAL(load_control_words))

    movq ACO_REG(ACO_REG_IDX_BP, rsi), %rbp
    /* rbp: DW_CFA_expression 6, { DW_OP_breg5 8*ACO_REG_IDX_BP } */
    .cfi_escape 0x10, 6, 2, 0x75, 8*ACO_REG_IDX_BP
    movq ACO_REG(ACO_REG_IDX_SP, rsi), %rsp
    /* CFA: DW_CFA_def_cfa_expression { DW_OP_breg5 8*ACO_REG_IDX_SP; deref; plus_uconst 48 } */
    .cfi_escape 0x0f, 5, 0x75, 8*ACO_REG_IDX_SP, 0x06, 0x23, 48
    jmpq *ACO_REG(ACO_REG_IDX_RETADDR, rsi)

LOCAL(continued):
    .cfi_restore_state
    ACO_ASM_LAND(endbr64)
    POP(%r15)
    POP(%r14)
    POP(%r13)
    POP(%r12)
    POP(%rbx)
    ret
END(acosw)

/* Not callable from C.  rsi: to.  Changes rax, rbx, rdx. */
FUNCTION(aco_i_load_fpucw_mxcsr)
LOCAL(load_control_words):
    .cfi_startproc
    ACO_ASM_LAND(endbr64)
    LOAD_CONTROL_WORDS(rsi)
    ret
END(aco_i_load_fpucw_mxcsr)

/* void aco_save_fpucw_mxcsr(void *p)  rdi: p */
FUNCTION(aco_save_fpucw_mxcsr)
    .cfi_startproc
    ACO_ASM_LAND(endbr64)
    stmxcsr (%rdi)
    fnstcw 2(%rdi)
    ret
END(aco_save_fpucw_mxcsr)

/*
 * An entry function that returns arrives here, with SP at align_highptr and so aligned for a call,
 * which must leave the word below alone (I4): the last word may end the coroutine after all.
 * Unwinders look up the address before a return address: they find aco_coroutine_end, and learn
 * there that it has no caller.
 */
    .p2align 4
LABEL(aco_coroutine_end)
    .cfi_startproc
    .cfi_undefined rip
    nop
    SIZE(aco_coroutine_end)
    GLOBAL(aco_funcp_protector_asm)
LABEL(aco_funcp_protector_asm)
    ACO_ASM_LAND(endbr64)
    subq $16, %rsp
    call CALL_PLT(aco_funcp_protector)
    ud2
END(aco_funcp_protector_asm)

#elif defined(ACO_ARCH_I386)
/* ==== i386 (System V ABI; differs from x86-64 in what is said) =============================== */

/*
 * void *acosw(aco_t *from, aco_t *to)
 *   4(%esp) from, then in eax; callee-saved: ebx esi edi ebp, the control words
 *   8(%esp) to, then in ecx, and still so at the address jumped to
 */
FUNCTION(acosw)
    .cfi_startproc
    ACO_ASM_LAND(endbr32)
    movl 4(%esp), %eax
    movl 8(%esp), %ecx
    PUSH(%ebx)
    PUSH(%esi)
    PUSH(%edi)
    .cfi_remember_state
    /* The address of the tail, without a relocation in the text. */
    call 1f
    .cfi_adjust_cfa_offset 4
1:  popl %edx
    .cfi_adjust_cfa_offset -4
    addl $LOCAL(continued)-1b, %edx
    movl %edx, ACO_REG(ACO_REG_IDX_RETADDR, eax)
    movl %esp, ACO_REG(ACO_REG_IDX_SP, eax)
    movl %ebp, ACO_REG(ACO_REG_IDX_BP, eax)
    ACO_ASM_FPU(eax, ecx, call LOCAL(load_control_words))

    movl ACO_REG(ACO_REG_IDX_BP, ecx), %ebp
    /* ebp: DW_CFA_expression 5, { DW_OP_breg0 4*ACO_REG_IDX_BP } */
    .cfi_escape 0x10, 5, 2, 0x70, 4*ACO_REG_IDX_BP
    movl ACO_REG(ACO_REG_IDX_SP, ecx), %esp
    /* CFA: DW_CFA_def_cfa_expression { DW_OP_breg0 4*ACO_REG_IDX_SP; deref; plus_uconst 16 } */
    .cfi_escape 0x0f, 5, 0x70, 4*ACO_REG_IDX_SP, 0x06, 0x23, 16
    jmpl *ACO_REG(ACO_REG_IDX_RETADDR, ecx)

LOCAL(continued):
    .cfi_restore_state
    ACO_ASM_LAND(endbr32)
    POP(%edi)
    POP(%esi)
    POP(%ebx)
    ret
END(acosw)

/* Not callable from C.  ecx: to.  Changes ebx, edx; eax stays, as acosw's call-frame information
 * refers to it. */
FUNCTION(aco_i_load_fpucw_mxcsr)
LOCAL(load_control_words):
    .cfi_startproc
    ACO_ASM_LAND(endbr32)
    PUSH(%eax)
    LOAD_CONTROL_WORDS(ecx)
    POP(%eax)
    ret
END(aco_i_load_fpucw_mxcsr)

/* void aco_save_fpucw_mxcsr(void *p)  4(%esp): p */
FUNCTION(aco_save_fpucw_mxcsr)
    .cfi_startproc
    ACO_ASM_LAND(endbr32)
    movl 4(%esp), %eax
    stmxcsr (%eax)
    fnstcw 2(%eax)
    ret
END(aco_save_fpucw_mxcsr)

/* No red zone keeps signal handlers off the word below SP: it is written anew (I4). A call through
 * the PLT of position-independent code needs ebx. */
    .p2align 4
LABEL(aco_coroutine_end)
    .cfi_startproc
    .cfi_undefined eip
    nop
    SIZE(aco_coroutine_end)
    GLOBAL(aco_funcp_protector_asm)
LABEL(aco_funcp_protector_asm)
LOCAL(protector):
    ACO_ASM_LAND(endbr32)
    subl $16, %esp
    call 1f
1:  popl %ebx
    leal LOCAL(protector)-1b(%ebx), %eax
    movl %eax, 12(%esp)
    addl $_GLOBAL_OFFSET_TABLE_+(.-1b), %ebx
    call CALL_PLT(aco_funcp_protector)
    ud2
END(aco_funcp_protector_asm)

#elif defined(ACO_ARCH_ARM64)
/* ==== arm64 (AAPCS64; differs from x86-64 in what is said) =================================== */

/* Two registers go to the stack, which has room, or come from there; unwinders are told. */
    .macro KEEP first, second, at
    stp \first, \second, [sp, \at]
    .cfi_rel_offset \first, \at
    .cfi_rel_offset \second, \at + 8
    .endm
    .macro TAKE first, second, at
    ldp \first, \second, [sp, \at]
    .cfi_restore \first
    .cfi_restore \second
    .endm

/* The start of a function, where the return address is signed if that was asked for, which is a
 * landing pad as well; and its end. All are hints: every assembler knows them, and every processor
 * runs them. */
#ifdef __ARM_FEATURE_PAC_DEFAULT
#define PROTECT hint 25 /* paciasp */ ACO_NL .cfi_negate_ra_state
#define UNPROTECT hint 29 /* autiasp */ ACO_NL .cfi_negate_ra_state
#else
#define PROTECT ACO_ASM_LAND(hint 34) /* bti c */
#define UNPROTECT
#endif

/*
 * void *acosw(aco_t *from, aco_t *to)
 *   x0  from; callee-saved: x19-x28 x29 d8-d15, FPCR; x30 holds the return address
 *   x1  to; still so at the address jumped to
 * What SVE and SME add is nobody's after a call.
 */
FUNCTION(acosw)
    .cfi_startproc
    PROTECT
    sub sp, sp, 160
    .cfi_adjust_cfa_offset 160
    KEEP x19, x20, 0
    KEEP x21, x22, 16
    KEEP x23, x24, 32
    KEEP x25, x26, 48
    KEEP x27, x28, 64
    KEEP d8, d9, 80
    KEEP d10, d11, 96
    KEEP d12, d13, 112
    KEEP d14, d15, 128
    str x30, [sp, 144]
    .cfi_rel_offset x30, 144
    .cfi_remember_state
    adr x2, LOCAL(continued)
    mov x3, sp
    str x2, ACO_REG(ACO_REG_IDX_RETADDR, x0)
    str x3, ACO_REG(ACO_REG_IDX_SP, x0)
    str x29, ACO_REG(ACO_REG_IDX_BP, x0)
    ACO_ASM_FPU(x0, x1)

    ldr x17, ACO_REG(ACO_REG_IDX_RETADDR, x1)
    ldr x3, ACO_REG(ACO_REG_IDX_SP, x1)
    ldr x29, ACO_REG(ACO_REG_IDX_BP, x1)
    /* x29: DW_CFA_expression 29, { DW_OP_breg0 8*ACO_REG_IDX_BP } */
    .cfi_escape 0x10, 29, 2, 0x70, 8*ACO_REG_IDX_BP
    mov sp, x3
    /* CFA: DW_CFA_def_cfa_expression { DW_OP_breg0 8*ACO_REG_IDX_SP; deref; plus_uconst 160 } */
    .cfi_escape 0x0f, 6, 0x70, 8*ACO_REG_IDX_SP, 0x06, 0x23, 0xa0, 0x01
    ldr x30, [sp] /* the return address of an entry function */
    br x17

LOCAL(continued):
    .cfi_restore_state
    ACO_ASM_LAND(hint 36) /* bti j */
    TAKE x19, x20, 0
    TAKE x21, x22, 16
    TAKE x23, x24, 32
    TAKE x25, x26, 48
    TAKE x27, x28, 64
    TAKE d8, d9, 80
    TAKE d10, d11, 96
    TAKE d12, d13, 112
    TAKE d14, d15, 128
    ldr x30, [sp, 144]
    .cfi_restore x30
    add sp, sp, 160
    .cfi_adjust_cfa_offset -160
    UNPROTECT
    ret
END(acosw)

/* void aco_save_fpucw_mxcsr(void *p)  x0: p */
FUNCTION(aco_save_fpucw_mxcsr)
    .cfi_startproc
    ACO_ASM_LAND(hint 34) /* bti c */
    mrs x1, fpcr
    str w1, [x0]
    ret
END(aco_save_fpucw_mxcsr)

/* SP is at align_retptr, and aligned for a call, which leaves alone what lies there. */
    .p2align 4
LABEL(aco_coroutine_end)
    .cfi_startproc
    .cfi_undefined x30
    nop
    SIZE(aco_coroutine_end)
    GLOBAL(aco_funcp_protector_asm)
LABEL(aco_funcp_protector_asm)
    ACO_ASM_LAND(hint 34) /* bti c */
    bl SYMBOL(aco_funcp_protector)
    brk 1
END(aco_funcp_protector_asm)

#elif defined(ACO_ARCH_RISCV64)
/* ==== riscv64 (RISC-V ELF psABI, LP64D; differs from arm64 in what is said) =================== */

    .macro KEEP store, reg, at
    \store \reg, \at(sp)
    .cfi_rel_offset \reg, \at
    .endm
    .macro TAKE load, reg, at
    \load \reg, \at(sp)
    .cfi_restore \reg
    .endm

/*
 * void *acosw(aco_t *from, aco_t *to)
 *   a0  from; callee-saved: s0-s11 fs0-fs11, the rounding mode; ra holds the return address
 *   a1  to; still so at the address jumped to
 */
FUNCTION(acosw)
    .cfi_startproc
    addi sp, sp, -192
    .cfi_adjust_cfa_offset 192
    KEEP sd, ra, 0
    KEEP sd, s1, 8
    KEEP sd, s2, 16
    KEEP sd, s3, 24
    KEEP sd, s4, 32
    KEEP sd, s5, 40
    KEEP sd, s6, 48
    KEEP sd, s7, 56
    KEEP sd, s8, 64
    KEEP sd, s9, 72
    KEEP sd, s10, 80
    KEEP sd, s11, 88
    KEEP fsd, fs0, 96
    KEEP fsd, fs1, 104
    KEEP fsd, fs2, 112
    KEEP fsd, fs3, 120
    KEEP fsd, fs4, 128
    KEEP fsd, fs5, 136
    KEEP fsd, fs6, 144
    KEEP fsd, fs7, 152
    KEEP fsd, fs8, 160
    KEEP fsd, fs9, 168
    KEEP fsd, fs10, 176
    KEEP fsd, fs11, 184
    .cfi_remember_state
    lla a2, LOCAL(continued)
    sd a2, ACO_REG(ACO_REG_IDX_RETADDR, a0)
    sd sp, ACO_REG(ACO_REG_IDX_SP, a0)
    sd s0, ACO_REG(ACO_REG_IDX_BP, a0)
    ACO_ASM_FPU(a0, a1)

    ld t2, ACO_REG(ACO_REG_IDX_RETADDR, a1)
    ld s0, ACO_REG(ACO_REG_IDX_BP, a1)
    /* s0: DW_CFA_expression 8, { DW_OP_breg10 8*ACO_REG_IDX_BP } */
    .cfi_escape 0x10, 8, 2, 0x7a, 8*ACO_REG_IDX_BP
    ld sp, ACO_REG(ACO_REG_IDX_SP, a1)
    /* CFA: DW_CFA_def_cfa_expression { DW_OP_breg10 8*ACO_REG_IDX_SP; deref; plus_uconst 192 } */
    .cfi_escape 0x0f, 6, 0x7a, 8*ACO_REG_IDX_SP, 0x06, 0x23, 0xc0, 0x01
    ld ra, 0(sp) /* the return address of an entry function */
    jr t2

LOCAL(continued):
    .cfi_restore_state
    TAKE ld, ra, 0
    TAKE ld, s1, 8
    TAKE ld, s2, 16
    TAKE ld, s3, 24
    TAKE ld, s4, 32
    TAKE ld, s5, 40
    TAKE ld, s6, 48
    TAKE ld, s7, 56
    TAKE ld, s8, 64
    TAKE ld, s9, 72
    TAKE ld, s10, 80
    TAKE ld, s11, 88
    TAKE fld, fs0, 96
    TAKE fld, fs1, 104
    TAKE fld, fs2, 112
    TAKE fld, fs3, 120
    TAKE fld, fs4, 128
    TAKE fld, fs5, 136
    TAKE fld, fs6, 144
    TAKE fld, fs7, 152
    TAKE fld, fs8, 160
    TAKE fld, fs9, 168
    TAKE fld, fs10, 176
    TAKE fld, fs11, 184
    addi sp, sp, 192
    .cfi_adjust_cfa_offset -192
    ret
END(acosw)

/* void aco_save_fpucw_mxcsr(void *p)  a0: p */
FUNCTION(aco_save_fpucw_mxcsr)
    .cfi_startproc
    frrm a1
    sw a1, 0(a0)
    ret
END(aco_save_fpucw_mxcsr)

    .p2align 4
LABEL(aco_coroutine_end)
    .cfi_startproc
    .cfi_undefined ra
    nop
    SIZE(aco_coroutine_end)
    GLOBAL(aco_funcp_protector_asm)
LABEL(aco_funcp_protector_asm)
    call aco_funcp_protector
    unimp
END(aco_funcp_protector_asm)

#elif defined(ACO_ARCH_ARM)
/* ==== arm (AAPCS with VFP, arm and thumb code; differs from arm64 in what is said) ============ */

/* Unwinders have tables of their own here, which are right between calls only; debuggers are told
 * of every instruction. */
    .syntax unified
    .cfi_sections .debug_frame

/*
 * void *acosw(aco_t *from, aco_t *to)
 *   r0  from; callee-saved: r4-r11 d8-d15, FPSCR but for flags; lr holds the return address
 *   r1  to; still so at the address jumped to
 */
FUNCTION(acosw)
    .cfi_startproc
    .fnstart
    sub sp, sp, 4
    .pad #4
    .cfi_adjust_cfa_offset 4
    push {r4-r11, lr}
    .save {r4-r11, lr}
    .cfi_adjust_cfa_offset 36
    .cfi_rel_offset r4, 0
    .cfi_rel_offset r5, 4
    .cfi_rel_offset r6, 8
    .cfi_rel_offset r7, 12
    .cfi_rel_offset r8, 16
    .cfi_rel_offset r9, 20
    .cfi_rel_offset r10, 24
    .cfi_rel_offset r11, 28
    .cfi_rel_offset lr, 32
    vpush {d8-d15}
    .vsave {d8-d15}
    .cfi_adjust_cfa_offset 64
    .cfi_rel_offset d8, 0
    .cfi_rel_offset d9, 8
    .cfi_rel_offset d10, 16
    .cfi_rel_offset d11, 24
    .cfi_rel_offset d12, 32
    .cfi_rel_offset d13, 40
    .cfi_rel_offset d14, 48
    .cfi_rel_offset d15, 56
    .cfi_remember_state
    ACO_ASM_ADR(r2, LOCAL(continued))
    str r2, ACO_REG(ACO_REG_IDX_RETADDR, r0)
    str sp, ACO_REG(ACO_REG_IDX_SP, r0)
    str ACO_ASM_BP, ACO_REG(ACO_REG_IDX_BP, r0)
    ACO_ASM_FPU(r0, r1)

    ldr r12, ACO_REG(ACO_REG_IDX_RETADDR, r1)
    ldr r3, ACO_REG(ACO_REG_IDX_SP, r1)
    ldr r7, ACO_REG(ACO_REG_IDX_BP, r1)
    mov r11, r7
    mov sp, r3
    /* CFA: DW_CFA_def_cfa_expression { DW_OP_breg0 4*ACO_REG_IDX_SP; deref; plus_uconst 104 } */
    .cfi_escape 0x0f, 5, 0x70, 4*ACO_REG_IDX_SP, 0x06, 0x23, 104
    ldr lr, [sp] /* the return address of an entry function */
    bx r12

LOCAL(continued):
    .cfi_restore_state
    vpop {d8-d15}
    .cfi_adjust_cfa_offset -64
    .cfi_restore d8
    .cfi_restore d9
    .cfi_restore d10
    .cfi_restore d11
    .cfi_restore d12
    .cfi_restore d13
    .cfi_restore d14
    .cfi_restore d15
    pop {r4-r11, lr}
    .cfi_adjust_cfa_offset -36
    .cfi_restore r4
    .cfi_restore r5
    .cfi_restore r6
    .cfi_restore r7
    .cfi_restore r8
    .cfi_restore r9
    .cfi_restore r10
    .cfi_restore r11
    .cfi_restore lr
    add sp, sp, 4
    .cfi_adjust_cfa_offset -4
    bx lr
    .fnend
END(acosw)

/* void aco_save_fpucw_mxcsr(void *p)  r0: p */
FUNCTION(aco_save_fpucw_mxcsr)
    .cfi_startproc
    .fnstart
    vmrs r1, fpscr
    str r1, [r0]
    bx lr
    .fnend
END(aco_save_fpucw_mxcsr)

    .p2align 4
LABEL(aco_coroutine_end)
    .cfi_startproc
    .fnstart
    .cantunwind
    .cfi_undefined lr
    nop
    SIZE(aco_coroutine_end)
    GLOBAL(aco_funcp_protector_asm)
LABEL(aco_funcp_protector_asm)
    bl aco_funcp_protector
    udf 0
    .fnend
END(aco_funcp_protector_asm)

#endif

/* ==== Notes ================================================================================== */

/* aco.c refers to this name, so that it does not link with a switch that saves other words. */
#ifdef __APPLE__
    .section __TEXT,__const
    .private_extern SYMBOL(ACO_SWITCH_CONFIG)
#else
    .section .rodata
    .hidden ACO_SWITCH_CONFIG
    .type ACO_SWITCH_CONFIG, %object
    .size ACO_SWITCH_CONFIG, 1
#endif
    GLOBAL(ACO_SWITCH_CONFIG)
SYMBOL(ACO_SWITCH_CONFIG):
    .byte 0

/* Indirect branch tracking holds here, and on arm64 the signing of return addresses; a shadow stack
 * does not, since none is switched. */
#ifndef __APPLE__
#if defined(__CET__) && (__CET__ & 1)
#define PROPERTY 0xc0000002 /* GNU_PROPERTY_X86_FEATURE_1_AND */
#define FEATURES 1 /* IBT */
#elif defined(__ARM_FEATURE_BTI_DEFAULT) && defined(__ARM_FEATURE_PAC_DEFAULT)
#define PROPERTY 0xc0000000 /* GNU_PROPERTY_AARCH64_FEATURE_1_AND */
#define FEATURES 3 /* BTI, PAC */
#elif defined(__ARM_FEATURE_BTI_DEFAULT)
#define PROPERTY 0xc0000000
#define FEATURES 1
#elif defined(__ARM_FEATURE_PAC_DEFAULT)
#define PROPERTY 0xc0000000
#define FEATURES 2
#endif
#ifdef PROPERTY
    .section .note.gnu.property, "a", %note
    .balign ACO_WORD
    .long 4, 2f - 1f, 5 /* NT_GNU_PROPERTY_TYPE_0 */
    .asciz "GNU"
1:
    .long PROPERTY
    .long 4, FEATURES
    .balign ACO_WORD
2:
#endif

    .section .note.GNU-stack, "", %progbits
#endif
