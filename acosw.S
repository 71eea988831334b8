// SPDX-License-Identifier: Apache-2.0
/*
 * acosw(), the switch as a function, and the three functions beside it that C cannot express.
 * Compile with the same ACO_CONFIG_SHARE_FPU_MXCSR_ENV as the rest. Relies on the C ABI and on what
 * aco.h says of reg[], the first member of aco_t; on nothing else.
 *
 *   Pictures      the stack of a coroutine that does not run
 *   Portability   symbols, labels and sizes for ELF and Mach-O
 *   Processors    one block each, in the order of aco.h: acosw, aco_i_load_fpucw_mxcsr,
 *                 aco_save_fpucw_mxcsr, aco_coroutine_end with aco_funcp_protector_asm
 *   Notes         what linkers read
 *
 * Read the block of x86-64: it explains each step of the switch. The other blocks give the numbers
 * of the same steps, and what differs: i386 and arm64 from x86-64, riscv64 and arm from arm64.
 *
 * Pictures
 *
 * State init: the coroutine has not started. The switch jumps to its entry function, with SP as
 * after a call. Where a call pushes the return address, SP + word is a multiple of 16. Where a call
 * leaves it in a register, SP is aligned, and the switch loads that register from the word at SP.
 *
 *            align_highptr ->  +----------------------------+  multiple of 16
 *                              | address of the protector   |  the entry function returns there
 *   reg[SP] = align_retptr ->  +----------------------------+  ACO_RETPTR_SZ below
 *                              | unused                     |
 *
 *   reg[RETADDR] = fp, reg[BP] = 0: the chain of frame pointers ends here
 *
 * Suspended in acosw(): the callee-saved registers lie below the frame of the caller.
 *
 *             align_retptr ->  +----------------------------+
 *                              | frames                     |
 *                              +----------------------------+
 *                              | return address of acosw()  |
 *                              | callee-saved registers     |
 *                  reg[SP] ->  +----------------------------+
 *                              | unused                     |
 *
 *   reg[RETADDR] = step 6 of acosw(), which restores them and returns
 *
 * Suspended by the inline switch: reg[SP] is the end of the frame of the function that contains the
 * switch, and reg[RETADDR] an address inside that function. A suspended main coroutine looks like
 * one of the last two, on the stack of its thread.
 *
 * A signal handler may be entered before any instruction: SP is always either that of `from` or
 * that of `to`, and nothing below it is in use. Call-frame information describes `from` until the
 * jump: once the registers hold the frame pointer and SP of `to`, unwinders find those of `from` in
 * its reg[].
 */
#include "aco.h"

/* ==== Portability ============================================================================ */

#ifdef __APPLE__
/* Mach-O: names get an underscore; symbols have neither type nor size. */
#define SYMBOL(name) SYMBOL_EXPANDED(name)
#define SYMBOL_EXPANDED(name) _##name
#define LABEL(name) SYMBOL(name):
#define END_FUNCTION(name) .cfi_endproc
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
#define END_FUNCTION(name) .cfi_endproc; SIZE(name)
#define SIZE(name) .size name, .-name
#define CALL_PLT(name) name@PLT
#define LOCAL(name) .L##name
#endif
#define GLOBAL(name) .globl SYMBOL(name)
#define FUNCTION(name) .p2align 4 ACO_NL GLOBAL(name) ACO_NL LABEL(name)

    .text

#if defined(ACO_ARCH_X86_64) || defined(ACO_ARCH_I386)
/* ==== Common to the two x86 blocks =========================================================== */

/* Push and pop of a callee-saved register, with its call-frame information. */
#define PUSH(reg) push reg; .cfi_adjust_cfa_offset ACO_WORD; .cfi_rel_offset reg, 0
#define POP(reg) pop reg; .cfi_adjust_cfa_offset -ACO_WORD; .cfi_restore reg

/*
 * Loads the control words of `to`; the status flags of MXCSR stay. A pending x87 flag that the new
 * control word unmasks would trap in a coroutine that did not raise it: then all x87 flags are
 * cleared. reg[FPU] of `to` serves as scratch memory; it is stored again when `to` is suspended.
 * Changes eax, ebx, edx.
 */
#define LOAD_CONTROL_WORDS(to) \
    movl ACO_REG(FPU, to), %edx; \
    movl %edx, %ebx; \
    shrl $16, %ebx;                 /* x87 control word: 1 masks an exception */ \
    notl %ebx; \
    fnstsw %ax;                     /* x87 status word: 1 is a pending exception */ \
    andl %eax, %ebx; \
    testb $0x3f, %bl;               /* pending and unmasked? */ \
    jz 1f; \
    fnclex; \
1:  fldcw 2+ACO_REG(FPU, to); \
    stmxcsr ACO_REG(FPU, to); \
    xorl ACO_REG(FPU, to), %edx; \
    andl $ACO_MXCSR_CONTROL, %edx;  /* the control bits that differ */ \
    xorl %edx, ACO_REG(FPU, to);    /* are changed; the flags stay */ \
    ldmxcsr ACO_REG(FPU, to)

    .att_syntax prefix /* also under -masm=intel */

#endif
#if defined(ACO_ARCH_X86_64)
/* ==== x86-64 (System V ABI) ================================================================== */

/*
 * void *acosw(aco_t *from, aco_t *to)
 *
 *   register        on entry           at the jump (5)     on return, `from` being continued
 *   rdi             from               from                any
 *   rsi             to                 to                  any (it is `from`: the `to` of whoever
 *                                                          continued it)
 *   rsp             stack of `from`    stack of `to`       as on entry, less the return address
 *   rbp             of the caller      reg[BP] of `to`     as on entry
 *   rbx r12-r15     of the caller      any                 as on entry
 *   control words   of the caller      of `to`             as on entry
 *   all others      any                any                 any
 *
 * With ACO_CONFIG_SHARE_FPU_MXCSR_ENV the control words are left alone.
 *
 *   The stack of `from`, on entry and from step 2 until it is continued:
 *
 *              | frames          |                  | frames          |
 *              +-----------------+                  +-----------------+
 *              | return address  |                  | return address  |
 *      rsp ->  +-----------------+                  | rbx             |
 *              | unused          |                  | r12             |
 *                                                   | r13             |
 *                                                   | r14             |
 *                                                   | r15             |
 *                                       reg[SP] ->  +-----------------+
 *                                                   | unused          |
 */
FUNCTION(acosw)
    .cfi_startproc
    ACO_LANDING_PAD(endbr64)
    /* 1. Save the callee-saved registers on the stack of `from`. */
    PUSH(%rbx)
    PUSH(%r12)
    PUSH(%r13)
    PUSH(%r14)
    PUSH(%r15)
    .cfi_remember_state
    /* 2. Store in reg[] of `from` where it continues, its SP and its frame pointer. */
    leaq LOCAL(continued)(%rip), %rax
    movq %rax, ACO_REG(RETADDR, rdi)
    movq %rsp, ACO_REG(SP, rdi)
    movq %rbp, ACO_REG(BP, rdi)
    /* 3. Store the control words of `from`. If those of `to` differ, load them by a call, which
     * still uses the stack of `from`. Changes rax, rbx, rdx. */
    ACO_SWITCH_CONTROL_WORDS(rdi, rsi, call LOCAL(load_control_words))
    /* 4. Load the frame pointer and SP of `to`: this is the switch of stacks. After each load, the
     * call-frame information refers to reg[] of `from` instead, through rdi (breg5). */
    movq ACO_REG(BP, rsi), %rbp
    /* rbp: DW_CFA_expression 6, { DW_OP_breg5 8*ACO_REG_IDX_BP } */
    .cfi_escape 0x10, 6, 2, 0x75, 8*ACO_REG_IDX_BP
    movq ACO_REG(SP, rsi), %rsp
    /* CFA: DW_CFA_def_cfa_expression { DW_OP_breg5 8*ACO_REG_IDX_SP; deref; plus_uconst 48 }, which
     * is 5 registers and the return address above the SP of `from` */
    .cfi_escape 0x0f, 5, 0x75, 8*ACO_REG_IDX_SP, 0x06, 0x23, 48
    /* 5. Continue `to`, which is still in rsi: at step 6, after an inline switch, or at the start
     * of its entry function, whose return address, the protector, is at SP. */
    jmpq *ACO_REG(RETADDR, rsi)

LOCAL(continued):
    /* 6. `from` is continued, on its stack, as it was after step 1. Restore and return. */
    .cfi_restore_state
    ACO_LANDING_PAD(endbr64)
    POP(%r15)
    POP(%r14)
    POP(%r13)
    POP(%r12)
    POP(%rbx)
    ret
END_FUNCTION(acosw)

/* The rest of step 3, for acosw() and the inline switch; not callable from C.
 *   rsi  to; kept
 *   changes rax rbx rdx, flags; keeps all other registers */
FUNCTION(aco_i_load_fpucw_mxcsr)
LOCAL(load_control_words):
    .cfi_startproc
    ACO_LANDING_PAD(endbr64)
    LOAD_CONTROL_WORDS(rsi)
    ret
END_FUNCTION(aco_i_load_fpucw_mxcsr)

/* void aco_save_fpucw_mxcsr(void *p)
 *   rdi  p: 2 bytes for the lower half of MXCSR, 2 for the x87 control word */
FUNCTION(aco_save_fpucw_mxcsr)
    .cfi_startproc
    ACO_LANDING_PAD(endbr64)
    stmxcsr (%rdi)
    fnstcw 2(%rdi)
    ret
END_FUNCTION(aco_save_fpucw_mxcsr)

/*
 * The protector: an entry function that returns arrives here, with SP at align_highptr, which is
 * aligned for a call. The word below SP is the address of the protector, and must stay so (I4): the
 * last-word function may end the coroutine, whose share stack is then used again. The call
 * therefore pushes its return address lower.
 *
 * Unwinders look up the address before a return address. The address before the protector is
 * aco_coroutine_end, whose call-frame information ends the backtrace.
 */
    .p2align 4
LABEL(aco_coroutine_end)
    .cfi_startproc
    .cfi_undefined rip
    nop
    SIZE(aco_coroutine_end)
    GLOBAL(aco_funcp_protector_asm)
LABEL(aco_funcp_protector_asm)
    ACO_LANDING_PAD(endbr64)
    subq $16, %rsp
    call CALL_PLT(aco_funcp_protector)
    ud2
END_FUNCTION(aco_funcp_protector_asm)

#elif defined(ACO_ARCH_I386)
/* ==== i386 (System V ABI) ==================================================================== */

/*
 * void *acosw(aco_t *from, aco_t *to)
 *   4(%esp)  from; eax from step 1 on
 *   8(%esp)  to; ecx from step 1 on
 *   callee-saved: ebx esi edi ebp, control words
 */
FUNCTION(acosw)
    .cfi_startproc
    ACO_LANDING_PAD(endbr32)
    /* 1. */
    movl 4(%esp), %eax
    movl 8(%esp), %ecx
    PUSH(%ebx)
    PUSH(%esi)
    PUSH(%edi)
    .cfi_remember_state
    /* 2. The address of step 6 comes from a call, which needs no relocation in the text. */
    call 1f
    .cfi_adjust_cfa_offset 4
1:  popl %edx
    .cfi_adjust_cfa_offset -4
    addl $LOCAL(continued)-1b, %edx
    movl %edx, ACO_REG(RETADDR, eax)
    movl %esp, ACO_REG(SP, eax)
    movl %ebp, ACO_REG(BP, eax)
    /* 3. */
    ACO_SWITCH_CONTROL_WORDS(eax, ecx, call LOCAL(load_control_words))
    /* 4. */
    movl ACO_REG(BP, ecx), %ebp
    /* ebp: DW_CFA_expression 5, { DW_OP_breg0 4*ACO_REG_IDX_BP } */
    .cfi_escape 0x10, 5, 2, 0x70, 4*ACO_REG_IDX_BP
    movl ACO_REG(SP, ecx), %esp
    /* CFA: DW_CFA_def_cfa_expression { DW_OP_breg0 4*ACO_REG_IDX_SP; deref; plus_uconst 16 } */
    .cfi_escape 0x0f, 5, 0x70, 4*ACO_REG_IDX_SP, 0x06, 0x23, 16
    /* 5. */
    jmpl *ACO_REG(RETADDR, ecx)

LOCAL(continued):
    /* 6. */
    .cfi_restore_state
    ACO_LANDING_PAD(endbr32)
    POP(%edi)
    POP(%esi)
    POP(%ebx)
    ret
END_FUNCTION(acosw)

/*   ecx  to; kept
 *   changes ebx edx; keeps eax, too: the call-frame information of acosw() refers to it */
FUNCTION(aco_i_load_fpucw_mxcsr)
LOCAL(load_control_words):
    .cfi_startproc
    ACO_LANDING_PAD(endbr32)
    PUSH(%eax)
    LOAD_CONTROL_WORDS(ecx)
    POP(%eax)
    ret
END_FUNCTION(aco_i_load_fpucw_mxcsr)

/* void aco_save_fpucw_mxcsr(void *p)
 *   4(%esp)  p */
FUNCTION(aco_save_fpucw_mxcsr)
    .cfi_startproc
    ACO_LANDING_PAD(endbr32)
    movl 4(%esp), %eax
    stmxcsr (%eax)
    fnstcw 2(%eax)
    ret
END_FUNCTION(aco_save_fpucw_mxcsr)

/* No red zone protects the word below SP until `subl`: a signal handler may have overwritten it, so
 * the address of the protector is written again (I4). A call through the PLT needs ebx. */
    .p2align 4
LABEL(aco_coroutine_end)
    .cfi_startproc
    .cfi_undefined eip
    nop
    SIZE(aco_coroutine_end)
    GLOBAL(aco_funcp_protector_asm)
LABEL(aco_funcp_protector_asm)
LOCAL(protector):
    ACO_LANDING_PAD(endbr32)
    subl $16, %esp
    call 1f
1:  popl %ebx
    leal LOCAL(protector)-1b(%ebx), %eax
    movl %eax, 12(%esp)
    addl $_GLOBAL_OFFSET_TABLE_+(.-1b), %ebx
    call CALL_PLT(aco_funcp_protector)
    ud2
END_FUNCTION(aco_funcp_protector_asm)

#elif defined(ACO_ARCH_ARM64)
/* ==== arm64 (AAPCS64) ======================================================================== */

/* Stores two registers at an offset from SP, or loads them, with their call-frame information. */
    .macro SAVE first, second, at
    stp \first, \second, [sp, \at]
    .cfi_rel_offset \first, \at
    .cfi_rel_offset \second, \at + 8
    .endm
    .macro RESTORE first, second, at
    ldp \first, \second, [sp, \at]
    .cfi_restore \first
    .cfi_restore \second
    .endm

/* First and last instruction of acosw(). With -mbranch-protection=pac-ret they sign and
 * authenticate the return address; paciasp is a landing pad, too. All are hints, which old
 * assemblers know and old processors skip. */
#ifdef __ARM_FEATURE_PAC_DEFAULT
#define SIGN_RETURN_ADDRESS hint 25 /* paciasp */ ACO_NL .cfi_negate_ra_state
#define AUTHENTICATE_RETURN_ADDRESS hint 29 /* autiasp */ ACO_NL .cfi_negate_ra_state
#else
#define SIGN_RETURN_ADDRESS ACO_LANDING_PAD(hint 34) /* bti c */
#define AUTHENTICATE_RETURN_ADDRESS
#endif

/*
 * void *acosw(aco_t *from, aco_t *to)
 *   x0   from
 *   x1   to
 *   x30  return address
 *   callee-saved: x19-x28, x29 (frame pointer), d8-d15, FPCR; nothing of SVE and SME
 */
FUNCTION(acosw)
    .cfi_startproc
    SIGN_RETURN_ADDRESS
    /* 1. x30 is saved like a callee-saved register. */
    sub sp, sp, 160
    .cfi_adjust_cfa_offset 160
    SAVE x19, x20, 0
    SAVE x21, x22, 16
    SAVE x23, x24, 32
    SAVE x25, x26, 48
    SAVE x27, x28, 64
    SAVE d8, d9, 80
    SAVE d10, d11, 96
    SAVE d12, d13, 112
    SAVE d14, d15, 128
    str x30, [sp, 144]
    .cfi_rel_offset x30, 144
    .cfi_remember_state
    /* 2. */
    adr x2, LOCAL(continued)
    mov x3, sp
    str x2, ACO_REG(RETADDR, x0)
    str x3, ACO_REG(SP, x0)
    str x29, ACO_REG(BP, x0)
    /* 3. Inline: FPCR has control bits alone. */
    ACO_SWITCH_CONTROL_WORDS(x0, x1)
    /* 4. */
    ldr x17, ACO_REG(RETADDR, x1)
    ldr x3, ACO_REG(SP, x1)
    ldr x29, ACO_REG(BP, x1)
    /* x29: DW_CFA_expression 29, { DW_OP_breg0 8*ACO_REG_IDX_BP } */
    .cfi_escape 0x10, 29, 2, 0x70, 8*ACO_REG_IDX_BP
    mov sp, x3
    /* CFA: DW_CFA_def_cfa_expression { DW_OP_breg0 8*ACO_REG_IDX_SP; deref; plus_uconst 160 } */
    .cfi_escape 0x0f, 6, 0x70, 8*ACO_REG_IDX_SP, 0x06, 0x23, 0xa0, 0x01
    /* 5. An entry function gets its return address, the protector, in x30, which is scratch for all
     * others. A jump by x17 may arrive at the start of a function (bti c), too. */
    ldr x30, [sp]
    br x17

LOCAL(continued):
    /* 6. */
    .cfi_restore_state
    ACO_LANDING_PAD(hint 36) /* bti j */
    RESTORE x19, x20, 0
    RESTORE x21, x22, 16
    RESTORE x23, x24, 32
    RESTORE x25, x26, 48
    RESTORE x27, x28, 64
    RESTORE d8, d9, 80
    RESTORE d10, d11, 96
    RESTORE d12, d13, 112
    RESTORE d14, d15, 128
    ldr x30, [sp, 144]
    .cfi_restore x30
    add sp, sp, 160
    .cfi_adjust_cfa_offset -160
    AUTHENTICATE_RETURN_ADDRESS
    ret
END_FUNCTION(acosw)

/* void aco_save_fpucw_mxcsr(void *p)
 *   x0  p */
FUNCTION(aco_save_fpucw_mxcsr)
    .cfi_startproc
    ACO_LANDING_PAD(hint 34) /* bti c */
    mrs x1, fpcr
    str w1, [x0]
    ret
END_FUNCTION(aco_save_fpucw_mxcsr)

/* SP is at align_retptr, and aligned for a call, which pushes nothing. */
    .p2align 4
LABEL(aco_coroutine_end)
    .cfi_startproc
    .cfi_undefined x30
    nop
    SIZE(aco_coroutine_end)
    GLOBAL(aco_funcp_protector_asm)
LABEL(aco_funcp_protector_asm)
    ACO_LANDING_PAD(hint 34) /* bti c */
    bl SYMBOL(aco_funcp_protector)
    brk 1
END_FUNCTION(aco_funcp_protector_asm)

#elif defined(ACO_ARCH_RISCV64)
/* ==== riscv64 (RISC-V ELF psABI, LP64D) ====================================================== */

    .macro SAVE store, reg, at
    \store \reg, \at(sp)
    .cfi_rel_offset \reg, \at
    .endm
    .macro RESTORE load, reg, at
    \load \reg, \at(sp)
    .cfi_restore \reg
    .endm

/*
 * void *acosw(aco_t *from, aco_t *to)
 *   a0  from
 *   a1  to
 *   ra  return address
 *   callee-saved: s0 (frame pointer), s1-s11, fs0-fs11, the rounding mode
 */
FUNCTION(acosw)
    .cfi_startproc
    /* 1. */
    addi sp, sp, -192
    .cfi_adjust_cfa_offset 192
    SAVE sd, ra, 0
    SAVE sd, s1, 8
    SAVE sd, s2, 16
    SAVE sd, s3, 24
    SAVE sd, s4, 32
    SAVE sd, s5, 40
    SAVE sd, s6, 48
    SAVE sd, s7, 56
    SAVE sd, s8, 64
    SAVE sd, s9, 72
    SAVE sd, s10, 80
    SAVE sd, s11, 88
    SAVE fsd, fs0, 96
    SAVE fsd, fs1, 104
    SAVE fsd, fs2, 112
    SAVE fsd, fs3, 120
    SAVE fsd, fs4, 128
    SAVE fsd, fs5, 136
    SAVE fsd, fs6, 144
    SAVE fsd, fs7, 152
    SAVE fsd, fs8, 160
    SAVE fsd, fs9, 168
    SAVE fsd, fs10, 176
    SAVE fsd, fs11, 184
    .cfi_remember_state
    /* 2. */
    lla a2, LOCAL(continued)
    sd a2, ACO_REG(RETADDR, a0)
    sd sp, ACO_REG(SP, a0)
    sd s0, ACO_REG(BP, a0)
    /* 3. */
    ACO_SWITCH_CONTROL_WORDS(a0, a1)
    /* 4. */
    ld t2, ACO_REG(RETADDR, a1)
    ld s0, ACO_REG(BP, a1)
    /* s0: DW_CFA_expression 8, { DW_OP_breg10 8*ACO_REG_IDX_BP } */
    .cfi_escape 0x10, 8, 2, 0x7a, 8*ACO_REG_IDX_BP
    ld sp, ACO_REG(SP, a1)
    /* CFA: DW_CFA_def_cfa_expression { DW_OP_breg10 8*ACO_REG_IDX_SP; deref; plus_uconst 192 } */
    .cfi_escape 0x0f, 6, 0x7a, 8*ACO_REG_IDX_SP, 0x06, 0x23, 0xc0, 0x01
    /* 5. A jump by t2 needs no landing pad (Zicfilp). */
    ld ra, 0(sp)
    jr t2

LOCAL(continued):
    /* 6. */
    .cfi_restore_state
    RESTORE ld, ra, 0
    RESTORE ld, s1, 8
    RESTORE ld, s2, 16
    RESTORE ld, s3, 24
    RESTORE ld, s4, 32
    RESTORE ld, s5, 40
    RESTORE ld, s6, 48
    RESTORE ld, s7, 56
    RESTORE ld, s8, 64
    RESTORE ld, s9, 72
    RESTORE ld, s10, 80
    RESTORE ld, s11, 88
    RESTORE fld, fs0, 96
    RESTORE fld, fs1, 104
    RESTORE fld, fs2, 112
    RESTORE fld, fs3, 120
    RESTORE fld, fs4, 128
    RESTORE fld, fs5, 136
    RESTORE fld, fs6, 144
    RESTORE fld, fs7, 152
    RESTORE fld, fs8, 160
    RESTORE fld, fs9, 168
    RESTORE fld, fs10, 176
    RESTORE fld, fs11, 184
    addi sp, sp, 192
    .cfi_adjust_cfa_offset -192
    ret
END_FUNCTION(acosw)

/* void aco_save_fpucw_mxcsr(void *p)
 *   a0  p */
FUNCTION(aco_save_fpucw_mxcsr)
    .cfi_startproc
    frrm a1
    sw a1, 0(a0)
    ret
END_FUNCTION(aco_save_fpucw_mxcsr)

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
END_FUNCTION(aco_funcp_protector_asm)

#elif defined(ACO_ARCH_ARM)
/* ==== arm (AAPCS with VFP, arm and thumb code) =============================================== */

/* Unwinders read tables of their own (.fnstart, .save, .pad), which are right at calls only.
 * Debuggers read call-frame information, which is right at every instruction. */
    .syntax unified
    .cfi_sections .debug_frame

/*
 * void *acosw(aco_t *from, aco_t *to)
 *   r0  from
 *   r1  to
 *   lr  return address
 *   callee-saved: r4-r11, d8-d15, FPSCR except for its flags. The frame pointer is r7 in thumb code
 *   and r11 in arm code
 */
FUNCTION(acosw)
    .cfi_startproc
    .fnstart
    /* 1. The 4 bytes in front keep SP aligned to 8. */
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
    /* 2. */
    ACO_ADR(r2, LOCAL(continued))
    str r2, ACO_REG(RETADDR, r0)
    str sp, ACO_REG(SP, r0)
    str ACO_BP, ACO_REG(BP, r0)
    /* 3. */
    ACO_SWITCH_CONTROL_WORDS(r0, r1)
    /* 4. Both frame pointers are loaded: `to` may run the other kind of code. */
    ldr r12, ACO_REG(RETADDR, r1)
    ldr r3, ACO_REG(SP, r1)
    ldr r7, ACO_REG(BP, r1)
    mov r11, r7
    mov sp, r3
    /* CFA: DW_CFA_def_cfa_expression { DW_OP_breg0 4*ACO_REG_IDX_SP; deref; plus_uconst 104 } */
    .cfi_escape 0x0f, 5, 0x70, 4*ACO_REG_IDX_SP, 0x06, 0x23, 104
    /* 5. */
    ldr lr, [sp]
    bx r12

LOCAL(continued):
    /* 6. */
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
END_FUNCTION(acosw)

/* void aco_save_fpucw_mxcsr(void *p)
 *   r0  p */
FUNCTION(aco_save_fpucw_mxcsr)
    .cfi_startproc
    .fnstart
    vmrs r1, fpscr
    str r1, [r0]
    bx lr
    .fnend
END_FUNCTION(aco_save_fpucw_mxcsr)

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
END_FUNCTION(aco_funcp_protector_asm)

#endif

/* ==== Notes ================================================================================== */

/* aco.c refers to this name: it links only with a switch that treats control words as it does. */
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

/* This file supports indirect branch tracking and, on arm64, signed return addresses. It supports
 * no shadow stack, since it switches none. */
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
