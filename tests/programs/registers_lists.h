// SPDX-License-Identifier: Apache-2.0
/*
 * The registers of each processor, for registers.c. A block defines
 *   FLOAT_CONSTRAINT, DOUBLE_CONSTRAINT  of inline assembly, for registers that hold such values
 *   LONG_DOUBLE_CONSTRAINT, VECTOR_CONSTRAINT (16 bytes), WIDE_VECTOR_CONSTRAINT (32 bytes)
 *                                        where there are such registers
 *   DECLARE_SCALABLE(i), CHECK_SCALABLE(i)
 *                                        the same as DECLARE_INT(i), CHECK_INT(i), for vectors of a
 *                                        length that only the processor knows, where there are any;
 *                                        the latter adds to `wrong`
 *   OVERWRITE_REGISTERS()                a statement that leaves another value in every register
 *                                        but stack, frame and thread pointer
 */
#ifndef ACO_TEST_REGISTERS_LISTS_H
#define ACO_TEST_REGISTERS_LISTS_H

#include "aco.h"

/* clang-format off */
#define TIMES_4(X) X(0) X(1) X(2) X(3)
#define TIMES_8(X) TIMES_4(X) X(4) X(5) X(6) X(7)
#define TIMES_16(X) TIMES_8(X) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define TIMES_32(X)                                                                                \
    TIMES_16(X)                                                                                    \
    X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)

/* At least as many as there are registers for integers, or for double. */
#if defined(ACO_ARCH_ARM64) || defined(ACO_ARCH_RISCV64)
#define TIMES_MANY(X) TIMES_32(X)
#else
#define TIMES_MANY(X) TIMES_16(X)
#endif

#if defined(ACO_ARCH_X86_64) || defined(ACO_ARCH_I386)

#define LONG_DOUBLE_CONSTRAINT "t"
/* Where the compiler calculates in x87 registers, there are those for all three. */
#ifdef __SSE2_MATH__
#define FLOAT_CONSTRAINT "x"
#else
#define FLOAT_CONSTRAINT "t"
#endif
#define DOUBLE_CONSTRAINT FLOAT_CONSTRAINT
#ifdef __SSE2__
#define VECTOR_CONSTRAINT "x"
#endif
#ifdef __AVX__
#define WIDE_VECTOR_CONSTRAINT "x"
#endif

#define SYNTAX_BEGIN "{|.att_syntax prefix\n\t}"
#define SYNTAX_END "{|\n\t.intel_syntax noprefix}"

#ifdef __AVX__
#define OVERWRITE_VECTOR(i) "vcmptrueps %%ymm" #i ", %%ymm" #i ", %%ymm" #i "\n\t"
#else
#define OVERWRITE_VECTOR(i) "pcmpeqd %%xmm" #i ", %%xmm" #i "\n\t"
#endif
#define OVERWRITE_X87(i) "fldpi\n\t"
#define EMPTY_X87(i) "fstp %%st(0)\n\t"
#define X87_REGISTERS                                                                              \
    "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)", "st(7)"

/* No immediate operands: with -masm=intel not every compiler would take them for such. */
#ifdef __x86_64__
#define OVERWRITE_REGISTERS()                                                                      \
    do {                                                                                           \
        uintptr_t junk = 0x5c5c5c5c;                                                               \
        __asm__ volatile(SYNTAX_BEGIN TIMES_8(OVERWRITE_X87) TIMES_8(EMPTY_X87)                    \
                         TIMES_16(OVERWRITE_VECTOR)                                                \
                         "movq %%rax, %%rbx\n\tmovq %%rax, %%rcx\n\tmovq %%rax, %%rdx\n\t"         \
                         "movq %%rax, %%rsi\n\tmovq %%rax, %%rdi\n\tmovq %%rax, %%r8\n\t"          \
                         "movq %%rax, %%r9\n\tmovq %%rax, %%r10\n\tmovq %%rax, %%r11\n\t"          \
                         "movq %%rax, %%r12\n\tmovq %%rax, %%r13\n\tmovq %%rax, %%r14\n\t"         \
                         "movq %%rax, %%r15" SYNTAX_END                                            \
                         : "+a"(junk)                                                              \
                         :                                                                         \
                         : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12",     \
                           "r13", "r14", "r15", X87_REGISTERS, "xmm0", "xmm1", "xmm2", "xmm3",     \
                           "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",       \
                           "xmm12", "xmm13", "xmm14", "xmm15", "cc");                              \
    } while (0)
#else
#ifdef __SSE2__
#define OVERWRITE_VECTORS TIMES_8(OVERWRITE_VECTOR)
#define VECTOR_REGISTERS , "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7"
#else
#define OVERWRITE_VECTORS
#define VECTOR_REGISTERS
#endif
#define OVERWRITE_REGISTERS()                                                                      \
    do {                                                                                           \
        uintptr_t junk = 0x5c5c5c5c;                                                               \
        __asm__ volatile(SYNTAX_BEGIN TIMES_8(OVERWRITE_X87) TIMES_8(EMPTY_X87) OVERWRITE_VECTORS  \
                         "movl %%eax, %%ebx\n\tmovl %%eax, %%ecx\n\tmovl %%eax, %%edx\n\t"         \
                         "movl %%eax, %%esi\n\tmovl %%eax, %%edi" SYNTAX_END                       \
                         : "+a"(junk)                                                              \
                         :                                                                         \
                         : "ebx", "ecx", "edx", "esi", "edi", "cc",                                \
                           X87_REGISTERS VECTOR_REGISTERS);                                        \
    } while (0)
#endif

#elif defined(ACO_ARCH_ARM64)

#define FLOAT_CONSTRAINT "w"
#define DOUBLE_CONSTRAINT "w"
#define VECTOR_CONSTRAINT "w"

#ifdef __ARM_FEATURE_SVE
#include <arm_sve.h>
#define SCALABLE_VALUE(i) svindex_u32(seed, (i) + 1)
#define PREDICATE_VALUE(i) svcmplt_n_u32(svptrue_b32(), svindex_u32(0, 1), (seed + (i)) % 4)
#define DECLARE_SCALABLE(i)                                                                        \
    svuint32_t scalable_##i = SCALABLE_VALUE(i);                                                   \
    svbool_t predicate_##i = PREDICATE_VALUE(i);                                                   \
    LAUNDER("w", scalable_##i);                                                                    \
    LAUNDER("Upa", predicate_##i);
#define CHECK_SCALABLE(i)                                                                          \
    LAUNDER("w", scalable_##i);                                                                    \
    LAUNDER("Upa", predicate_##i);                                                                 \
    wrong += svptest_any(svptrue_b32(),                                                            \
                         svcmpne_u32(svptrue_b32(), scalable_##i, SCALABLE_VALUE(i)));             \
    wrong += svptest_any(svptrue_b32(),                                                            \
                         sveor_b_z(svptrue_b32(), predicate_##i, PREDICATE_VALUE(i)));
#define OVERWRITE_VECTOR(i) "mov z" #i ".b, 0x5c\n\t"
#define OVERWRITE_PREDICATES "pfalse p0.b\n\t" TIMES_16(OVERWRITE_PREDICATE) "wrffr p0.b\n\t"
#define OVERWRITE_PREDICATE(i) "pfalse p" #i ".b\n\t"
#else
#define OVERWRITE_VECTOR(i) "movi v" #i ".16b, 0x5c\n\t"
#define OVERWRITE_PREDICATES
#endif

/* x18 is a register like others on Linux. */
#define OVERWRITE_REGISTERS()                                                                      \
    __asm__ volatile(TIMES_32(OVERWRITE_VECTOR) OVERWRITE_PREDICATES                               \
                     "mov x0, 0x5c5c\n\tmov x1, x0\n\tmov x2, x0\n\tmov x3, x0\n\t"                \
                     "mov x4, x0\n\tmov x5, x0\n\tmov x6, x0\n\tmov x7, x0\n\t"                    \
                     "mov x8, x0\n\tmov x9, x0\n\tmov x10, x0\n\tmov x11, x0\n\t"                  \
                     "mov x12, x0\n\tmov x13, x0\n\tmov x14, x0\n\tmov x15, x0\n\t"                \
                     "mov x16, x0\n\tmov x17, x0\n\tmov x18, x0\n\tmov x19, x0\n\t"                \
                     "mov x20, x0\n\tmov x21, x0\n\tmov x22, x0\n\tmov x23, x0\n\t"                \
                     "mov x24, x0\n\tmov x25, x0\n\tmov x26, x0\n\tmov x27, x0\n\t"                \
                     "mov x28, x0\n\tmov x30, x0"                                                  \
                     :                                                                             \
                     :                                                                             \
                     : "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11",   \
                       "x12", "x13", "x14", "x15", "x16", "x17", "x18", "x19", "x20", "x21",       \
                       "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x30", "cc", "v0", "v1",   \
                       "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", \
                       "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23",       \
                       "v24", "v25", "v26", "v27", "v28", "v29", "v30",                            \
                       "v31" ACO_CLOBBER_PREDICATES)

#elif defined(ACO_ARCH_RISCV64)

#define FLOAT_CONSTRAINT "f"
#define DOUBLE_CONSTRAINT "f"

#ifdef __riscv_vector
#include <riscv_vector.h>
#define SCALABLE_VALUE(i) vadd_vx_u32m1(vid_v_u32m1(4), seed * ((i) + 1), 4)
#define DECLARE_SCALABLE(i)                                                                        \
    vuint32m1_t scalable_##i = SCALABLE_VALUE(i);                                                  \
    LAUNDER("vr", scalable_##i);
#define CHECK_SCALABLE(i)                                                                          \
    LAUNDER("vr", scalable_##i);                                                                   \
    wrong += vcpop_m_b32(vmsne_vv_u32m1_b32(scalable_##i, SCALABLE_VALUE(i), 4), 4) != 0;
#define OVERWRITE_VECTOR(i) "vmv.v.i v" #i ", 5\n\t"
#define OVERWRITE_VECTORS "vsetvli zero, zero, e8, m1, ta, ma\n\t" TIMES_32(OVERWRITE_VECTOR)
#else
#define OVERWRITE_VECTORS
#endif

#define OVERWRITE_FLOAT(i) "fmv.d.x f" #i ", a0\n\t"
#define OVERWRITE_REGISTERS()                                                                      \
    __asm__ volatile(OVERWRITE_VECTORS                                                             \
                     "li a0, 0x5c5c\n\t" TIMES_32(OVERWRITE_FLOAT)                                 \
                     "mv ra, a0\n\tmv t0, a0\n\tmv t1, a0\n\tmv t2, a0\n\tmv t3, a0\n\t"           \
                     "mv t4, a0\n\tmv t5, a0\n\tmv t6, a0\n\tmv a1, a0\n\tmv a2, a0\n\t"           \
                     "mv a3, a0\n\tmv a4, a0\n\tmv a5, a0\n\tmv a6, a0\n\tmv a7, a0\n\t"           \
                     "mv s1, a0\n\tmv s2, a0\n\tmv s3, a0\n\tmv s4, a0\n\tmv s5, a0\n\t"           \
                     "mv s6, a0\n\tmv s7, a0\n\tmv s8, a0\n\tmv s9, a0\n\tmv s10, a0\n\t"          \
                     "mv s11, a0"                                                                  \
                     :                                                                             \
                     :                                                                             \
                     : "ra", "t0", "t1", "t2", "t3", "t4", "t5", "t6", "a0", "a1", "a2", "a3",     \
                       "a4", "a5", "a6", "a7", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8",     \
                       "s9", "s10", "s11", "ft0", "ft1", "ft2", "ft3", "ft4", "ft5", "ft6", "ft7", \
                       "ft8", "ft9", "ft10", "ft11", "fa0", "fa1", "fa2", "fa3", "fa4", "fa5",     \
                       "fa6", "fa7", "fs0", "fs1", "fs2", "fs3", "fs4", "fs5", "fs6", "fs7",       \
                       "fs8", "fs9", "fs10", "fs11" ACO_CLOBBER_VECTOR)

#elif defined(ACO_ARCH_ARM)

#define FLOAT_CONSTRAINT "t"
#define DOUBLE_CONSTRAINT "w"
#ifdef __ARM_NEON
#define VECTOR_CONSTRAINT "w"
#define OVERWRITE_VECTOR(i) "vmov.i8 q" #i ", 0x5c\n\t"
#define OVERWRITE_VECTORS TIMES_16(OVERWRITE_VECTOR)
#define HIGH_VECTORS                                                                               \
    , "d16", "d17", "d18", "d19", "d20", "d21", "d22", "d23", "d24", "d25", "d26", "d27", "d28",   \
        "d29", "d30", "d31"
#else
#define OVERWRITE_VECTOR(i) "vmov d" #i ", r0, r0\n\t"
#define OVERWRITE_VECTORS TIMES_16(OVERWRITE_VECTOR)
#define HIGH_VECTORS
#endif

/* The one of r7 and r11 that is no frame pointer is free. */
#define OVERWRITE_REGISTERS()                                                                      \
    __asm__ volatile(".syntax unified\n\tmov r0, 0x5c\n\t" OVERWRITE_VECTORS                       \
                     "mov r1, r0\n\tmov r2, r0\n\tmov r3, r0\n\tmov r4, r0\n\t"                    \
                     "mov r5, r0\n\tmov r6, r0\n\tmov r8, r0\n\tmov r9, r0\n\t"                    \
                     "mov r10, r0\n\tmov r12, r0\n\t"                                              \
                     "mov lr, r0\n\tmov " ACO_CLOBBER_OTHER_BP ", r0"                              \
                     :                                                                             \
                     :                                                                             \
                     : "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r8", "r9", "r10",                \
                       ACO_CLOBBER_OTHER_BP, "r12", "lr", "cc", "d0", "d1", "d2", "d3", "d4",      \
                       "d5", "d6", "d7", "d8", "d9", "d10", "d11", "d12", "d13", "d14",            \
                       "d15" HIGH_VECTORS)

#endif
/* clang-format on */

#endif
