// SPDX-License-Identifier: Apache-2.0
/*
 * The control words of each processor, for tests: how they are read and written, sets of them that
 * differ, and what reg[ACO_REG_IDX_FPU] has of them.
 */
#ifndef ACO_TEST_CONTROL_WORDS_H
#define ACO_TEST_CONTROL_WORDS_H

#include "aco.h"

/* x86 has MXCSR and the x87 control word, others one word, in which control and flags are apart. */
typedef struct {
    uint32_t word;
    uint32_t x87;
} words_t;

/* Each processor has: CONTROL and FLAGS, the bits of `word`; MY_FLAGS and ITS_FLAGS, which may be
 * raised; IN_REG, the bits of reg[ACO_REG_IDX_FPU] that are in use; the functions
 *   in_reg(words)       what aco_save_fpucw_mxcsr() writes for them
 *   read_words()
 *   write_words(words)  also drops what is raised and not in `words`, which might trap from now on
 * and what an unprepared thread has, `usual`, with sets of which each differs from it, and from
 * each other, in something else. The first is the usual one. */
#if defined(ACO_ARCH_X86_64) || defined(ACO_ARCH_I386)

#define HAVE_X87
#define CONTROL 0xffc0u
#define FLAGS 0x3fu
#define MY_FLAGS 0x08u
#define ITS_FLAGS 0x21u
#define IN_REG 0xffffffc0u
#define FENV_SZ 28    /* bytes that fnstenv writes */
#define FENV_STATUS 4 /* offset of the status word in them */
#define STATUS_FLAGS 0x3fu

static const words_t usual = {0x1f80, 0x37f};

static const words_t sets[] = {
    {0x1f80, 0x37f}, /* the usual ones */
    {0x3f80, 0x37f}, /* MXCSR: round down */
    {0x5f80, 0x37f}, /* round up */
    {0x7f80, 0x37f}, /* round towards zero */
    {0x9f80, 0x37f}, /* flush results to zero */
    {0x1fc0, 0x37f}, /* denormals are zeros */
    {0x1f00, 0x37f}, /* invalid operations trap */
    {0x0f80, 0x37f}, /* inexact results trap */
    {0x1f80, 0x77f}, /* x87: round down */
    {0x1f80, 0xb7f}, /* round up */
    {0x1f80, 0x27f}, /* double precision */
    {0x1f80, 0x07f}, /* single precision */
    {0x1f80, 0x37e}, /* invalid operations trap */
    {0x1f80, 0x35f}, /* inexact results trap */
    {0xffc0, 0xc7f}, /* much at once */
};

static inline uint32_t in_reg(words_t words)
{
    return (words.word & 0xffff) | words.x87 << 16;
}

static inline words_t read_words(void)
{
    words_t words = {0, 0};
    uint16_t x87;
    __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(words.word), "=m"(x87));
    words.x87 = x87;
    return words;
}

static inline void write_words(words_t words)
{
    uint16_t x87 = (uint16_t)words.x87;
    __asm__ volatile("ldmxcsr %0\n\tfnclex\n\tfldcw %1" : : "m"(words.word), "m"(x87));
}

#elif defined(ACO_ARCH_ARM64)

/* FPCR, with the flags of FPSR. */
#define CONTROL 0x07f79f00u
#define FLAGS 0x0800009fu
#define MY_FLAGS 0x08u
#define ITS_FLAGS 0x11u
#define IN_REG 0xffffffffu

static const words_t usual = {0, 0};

/* Processors without traps ignore the bits for these. */
static const words_t sets[] = {
    {0, 0},          /* the usual one */
    {0x00400000, 0}, /* round up */
    {0x00800000, 0}, /* round down */
    {0x00c00000, 0}, /* round towards zero */
    {0x01000000, 0}, /* flush to zero */
    {0x02000000, 0}, /* default NaN */
    {0x04000000, 0}, /* alternative half precision */
    {0x07c00000, 0}, /* all of it */
};

static inline uint32_t in_reg(words_t words)
{
    return words.word & CONTROL;
}

static inline words_t read_words(void)
{
    words_t words = {0, 0};
    uint64_t fpcr, fpsr;
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(fpcr), "=r"(fpsr));
    words.word = (uint32_t)fpcr | ((uint32_t)fpsr & FLAGS);
    return words;
}

static inline void write_words(words_t words)
{
    uint64_t fpcr = words.word & CONTROL, fpsr = words.word & FLAGS;
    __asm__ volatile("msr fpcr, %0\n\tmsr fpsr, %1" : : "r"(fpcr), "r"(fpsr));
}

#elif defined(ACO_ARCH_RISCV64)

/* fcsr; only the rounding mode is control. */
#define CONTROL 0xe0u
#define FLAGS 0x1fu
#define MY_FLAGS 0x08u
#define ITS_FLAGS 0x11u
#define IN_REG 0xffffffffu

static const words_t usual = {0, 0};

static const words_t sets[] = {
    {0x00, 0}, /* the usual one: round to nearest */
    {0x20, 0}, /* round towards zero */
    {0x40, 0}, /* round down */
    {0x60, 0}, /* round up */
    {0x80, 0}, /* round to nearest, ties away from zero */
};

static inline uint32_t in_reg(words_t words)
{
    return (words.word & CONTROL) >> 5;
}

static inline words_t read_words(void)
{
    words_t words = {0, 0};
    __asm__ volatile("frcsr %0" : "=r"(words.word));
    return words;
}

static inline void write_words(words_t words)
{
    __asm__ volatile("fscsr %0" : : "r"(words.word));
}

#elif defined(ACO_ARCH_ARM)

/* FPSCR. */
#define CONTROL 0x07f79f00u
#define FLAGS 0x0800009fu
#define MY_FLAGS 0x08u
#define ITS_FLAGS 0x11u
#define IN_REG CONTROL

static const words_t usual = {0, 0};

/* Processors without traps ignore the bits for these. */
static const words_t sets[] = {
    {0, 0},          /* the usual one */
    {0x00400000, 0}, /* round up */
    {0x00800000, 0}, /* round down */
    {0x00c00000, 0}, /* round towards zero */
    {0x01000000, 0}, /* flush to zero */
    {0x02000000, 0}, /* default NaN */
    {0x04000000, 0}, /* alternative half precision */
    {0x07c00000, 0}, /* all of it */
};

static inline uint32_t in_reg(words_t words)
{
    return words.word;
}

static inline words_t read_words(void)
{
    words_t words = {0, 0};
    __asm__ volatile("vmrs %0, fpscr" : "=r"(words.word));
    return words;
}

static inline void write_words(words_t words)
{
    __asm__ volatile("vmsr fpscr, %0" : : "r"(words.word));
}

#endif

static inline int have_same_control(words_t a, words_t b)
{
    return ((a.word ^ b.word) & CONTROL) == 0 && a.x87 == b.x87;
}

static inline uint32_t flags(words_t words)
{
    return words.word & FLAGS;
}

#endif
