// SPDX-License-Identifier: Apache-2.0
/*
 * Values that live in registers, and in memory near the stack pointer, must survive the inline
 * switch, whatever the other side does meanwhile. One side keeps values of every kind alive; the
 * other overwrites every register it may, and every byte below the keeper's stack pointer, and
 * takes a signal. What a compiler makes of this depends on its options: test_registers.sh compiles
 * and runs it with many. A program without cmocka: exits with 0 if all is well, and otherwise says
 * what has changed.
 */
#include "aco.h"

#include <signal.h>

#define NOINLINE __attribute__((noinline))
#define ROUNDS 3
#define ALIGNMENT 64
#define ALIGNED_SZ 192u
#define LEAF_SZ 96u      /* bytes, of which all would fit a red zone */
#define BELOW_SZ 512u    /* bytes below the stack pointer that are overwritten; a red zone is 128 */
#define MXCSR_OTHER 0x9f80u

/* ==== Values ================================================================================== */

typedef struct {
    volatile uint32_t seed;
    volatile size_t variable_sz;
} keeper_t;

/* Takes `x` through a register, so that its value is not known and not worked out again. */
#define LAUNDER(constraint, x) __asm__ volatile("" : "+" constraint(x))

#define TIMES_4(X) X(0) X(1) X(2) X(3)
#define TIMES_16(X)                                                                                \
    TIMES_4(X) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)

/* Numbers that all kinds of floating point represent exactly. */
#define FLOAT_VALUE(type, i) ((type)(seed & 0xfff) + (type)(i) + (type)0.25)

#define INT_FACTOR ((uintptr_t)0x9e3779b97f4a7c15u)
#define INT_VALUE(i) (((uintptr_t)seed * INT_FACTOR) ^ (uintptr_t)((i) * 0x10101))
#define DECLARE_INT(i)                                                                             \
    uintptr_t int_##i = INT_VALUE(i);                                                              \
    LAUNDER("r", int_##i);
#define CHECK_INT(i)                                                                               \
    LAUNDER("r", int_##i);                                                                         \
    wrong_ints |= int_##i ^ INT_VALUE(i);
#define ALL_INTS(X) TIMES_16(X)

/* Where the compiler calculates in x87 registers, there are those for all three. */
#ifdef __SSE2_MATH__
#define FLOAT_CONSTRAINT "x"
#else
#define FLOAT_CONSTRAINT "t"
#endif
#define DECLARE_DOUBLE(i)                                                                          \
    double double_##i = FLOAT_VALUE(double, i);                                                    \
    LAUNDER(FLOAT_CONSTRAINT, double_##i);
#define CHECK_DOUBLE(i)                                                                            \
    LAUNDER(FLOAT_CONSTRAINT, double_##i);                                                         \
    wrong_floats += double_##i != FLOAT_VALUE(double, i);
#define ALL_DOUBLES(X) TIMES_16(X)

#define DECLARE_FLOAT(i)                                                                           \
    float float_##i = FLOAT_VALUE(float, i);                                                       \
    LAUNDER(FLOAT_CONSTRAINT, float_##i);
#define CHECK_FLOAT(i)                                                                             \
    LAUNDER(FLOAT_CONSTRAINT, float_##i);                                                          \
    wrong_floats += float_##i != FLOAT_VALUE(float, i);
#define ALL_FLOATS(X) TIMES_4(X)

#define DECLARE_LONG_DOUBLE(i)                                                                     \
    long double long_double_##i = FLOAT_VALUE(long double, i);                                     \
    LAUNDER("t", long_double_##i);
#define CHECK_LONG_DOUBLE(i)                                                                       \
    LAUNDER("t", long_double_##i);                                                                 \
    wrong_floats += long_double_##i != FLOAT_VALUE(long double, i);
#define ALL_LONG_DOUBLES(X) TIMES_4(X)

#ifdef __SSE2__
#define HAVE_VECTORS
typedef uint32_t vector_t __attribute__((vector_size(16)));
#define VECTOR_VALUE(i) {seed + (i), seed ^ (i), ~seed, seed * (i)}
#define DECLARE_VECTOR(i)                                                                          \
    vector_t vector_##i = VECTOR_VALUE(i);                                                         \
    LAUNDER("x", vector_##i);
#define CHECK_VECTOR(i)                                                                            \
    LAUNDER("x", vector_##i);                                                                      \
    wrong_lanes |= vector_##i ^ (vector_t)VECTOR_VALUE(i);
#define ALL_VECTORS(X) TIMES_16(X)
#else
#define ALL_VECTORS(X)
#endif

#ifdef __AVX__
#define HAVE_WIDE_VECTORS
typedef uint32_t wide_vector_t __attribute__((vector_size(32)));
#define WIDE_VECTOR_VALUE(i)                                                                       \
    {seed, seed + (i), seed - (i), seed ^ (i), ~seed, seed * (i), seed + 9, seed + 10}
#define DECLARE_WIDE_VECTOR(i)                                                                     \
    wide_vector_t wide_##i = WIDE_VECTOR_VALUE(i);                                                 \
    LAUNDER("x", wide_##i);
#define CHECK_WIDE_VECTOR(i)                                                                       \
    LAUNDER("x", wide_##i);                                                                        \
    wrong_wide |= wide_##i ^ (wide_vector_t)WIDE_VECTOR_VALUE(i);
#define ALL_WIDE_VECTORS(X) TIMES_16(X)
#else
#define ALL_WIDE_VECTORS(X)
#endif

/* ==== Keepers ================================================================================= */

#define KEEPER_NAME keep_and_resume
#define KEEPER_SWITCH aco_resume(co)
#define KEEPER_AWKWARD 0
#include "registers_keeper.h"

#define KEEPER_NAME keep_and_resume_awkwardly
#define KEEPER_SWITCH aco_resume(co)
#define KEEPER_AWKWARD 1
#include "registers_keeper.h"

#define KEEPER_NAME keep_and_yield
#define KEEPER_SWITCH aco_yield()
#define KEEPER_AWKWARD 0
#include "registers_keeper.h"

#define KEEPER_NAME keep_and_yield_awkwardly
#define KEEPER_SWITCH aco_yield()
#define KEEPER_AWKWARD 1
#include "registers_keeper.h"

/* Where the compiler keeps local variables of a function that calls nothing but the switch. */
static volatile unsigned char *volatile leaf_bytes;

/* Functions that would be leaves, if the switch were not a call. */
static NOINLINE unsigned keep_in_leaf_and_yield(const keeper_t *keeper, aco_t *co)
{
    volatile unsigned char bytes[LEAF_SZ];
    unsigned wrong = 0;
    (void)co;
    for (size_t i = 0; i < LEAF_SZ; i++) {
        bytes[i] = (unsigned char)(keeper->seed + i);
    }
    leaf_bytes = bytes;
    aco_yield();
    for (size_t i = 0; i < LEAF_SZ; i++) {
        wrong += bytes[i] != (unsigned char)(keeper->seed + i);
    }
    return wrong;
}

static NOINLINE unsigned keep_in_leaf_and_resume(const keeper_t *keeper, aco_t *co)
{
    volatile unsigned char bytes[LEAF_SZ];
    unsigned wrong = 0;
    for (size_t i = 0; i < LEAF_SZ; i++) {
        bytes[i] = (unsigned char)(keeper->seed + i);
    }
    leaf_bytes = bytes;
    aco_resume(co);
    for (size_t i = 0; i < LEAF_SZ; i++) {
        wrong += bytes[i] != (unsigned char)(keeper->seed + i);
    }
    return wrong;
}

/* The switch comes last: only others can look at the bytes after it. */
static NOINLINE void publish_and_yield(uint32_t seed)
{
    volatile unsigned char bytes[LEAF_SZ];
    for (size_t i = 0; i < LEAF_SZ; i++) {
        bytes[i] = (unsigned char)(seed + i);
    }
    leaf_bytes = bytes;
    aco_yield();
}

/* ==== The other side ========================================================================== */

#define SYNTAX_BEGIN "{|.att_syntax prefix\n\t}"
#define SYNTAX_END "{|\n\t.intel_syntax noprefix}"

#ifdef __AVX__
#define OVERWRITE_VECTOR(i) "vcmptrueps %%ymm" #i ", %%ymm" #i ", %%ymm" #i "\n\t"
#else
#define OVERWRITE_VECTOR(i) "pcmpeqd %%xmm" #i ", %%xmm" #i "\n\t"
#endif
#define OVERWRITE_X87(i) "fldpi\n\t"
#define EMPTY_X87(i) "fstp %%st(0)\n\t"
#define TIMES_8(X) TIMES_4(X) X(4) X(5) X(6) X(7)
#define X87_REGISTERS                                                                              \
    "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)", "st(7)"

/* Leaves another value in every register but the stack and frame pointer. No immediate operands:
 * with -masm=intel not every compiler would take them for such. */
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

static volatile sig_atomic_t ct_signals;

static void on_signal(int signal_no)
{
    volatile unsigned char frame[1000];
    for (size_t i = 0; i < sizeof(frame); i++) {
        frame[i] = (unsigned char)signal_no;
    }
    ct_signals++;
}

/* Nothing lives below the stack pointer of a suspended coroutine or of its main coroutine. */
static NOINLINE void overwrite_below(const aco_t *co)
{
    if (co->main_co == NULL || co->is_owner) {
        memset((char *)co->reg[ACO_REG_IDX_SP] - BELOW_SZ, 0x5c, BELOW_SZ);
    }
}

static NOINLINE void overwrite_and_resume(aco_t *co)
{
    raise(SIGUSR1);
    overwrite_below(co);
    OVERWRITE_REGISTERS();
    aco_resume(co);
}

static NOINLINE void overwrite_and_yield(void)
{
    raise(SIGUSR1);
    overwrite_below(aco_get_co()->main_co);
    OVERWRITE_REGISTERS();
    aco_yield();
}

static void overwrites_for_ever(void)
{
    const uint32_t mxcsr = MXCSR_OTHER;
    __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
    for (;;) {
        overwrite_and_yield();
    }
}

/* ==== Tests =================================================================================== */

typedef unsigned (*keep_t)(const keeper_t *keeper, aco_t *co);

typedef struct {
    keep_t keep;
    keeper_t keeper;
    unsigned wrong;
} kept_t;

static void keeps_for_ever(void)
{
    kept_t *kept = (kept_t *)aco_get_arg();
    for (;;) {
        kept->wrong += kept->keep(&kept->keeper, NULL);
    }
}

static void publishes_and_yields(void)
{
    publish_and_yield(((const kept_t *)aco_get_arg())->keeper.seed);
    aco_exit();
}

typedef struct {
    const char *name;
    keep_t keep;
} keep_way_t;

static const keep_way_t resumers[] = {
    {"in a resumer", keep_and_resume},
    {"in a resumer with an awkward frame", keep_and_resume_awkwardly},
    {"in a leaf that resumes", keep_in_leaf_and_resume},
};

static const keep_way_t yielders[] = {
    {"in a coroutine", keep_and_yield},
    {"in a coroutine with an awkward frame", keep_and_yield_awkwardly},
    {"in a leaf that yields", keep_in_leaf_and_yield},
};

#define WAY_CT (sizeof(resumers) / sizeof(resumers[0]))

static aco_t *main_co;
static aco_share_stack_t *stack;
static unsigned ct_failures;

static void report(unsigned wrong, const char *where, const char *against)
{
    if (wrong != 0) {
        fprintf(stderr, "changed: values %s, against %s\n", where, against);
        ct_failures++;
    }
}

/* Main keeps, a coroutine overwrites; in turn with another one if both share the stack. */
static void main_keeps(size_t way, int is_copying)
{
    keeper_t keeper = {1000 + (uint32_t)way, 77};
    aco_t *co = aco_create(main_co, stack, 0, overwrites_for_ever, NULL);
    aco_t *other = aco_create(main_co, stack, 0, overwrites_for_ever, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        report(resumers[way].keep(&keeper, co), resumers[way].name, "an overwriting coroutine");
        if (is_copying) {
            overwrite_and_resume(other);
        }
    }
    aco_destroy(co);
    aco_destroy(other);
}

/* A coroutine keeps, main overwrites, and another coroutine as well if both share the stack. */
static void coroutine_keeps(size_t way, int is_copying)
{
    kept_t kept = {yielders[way].keep, {2000 + (uint32_t)way, 88}, 0};
    aco_t *co = aco_create(main_co, stack, 0, keeps_for_ever, &kept);
    aco_t *other = aco_create(main_co, stack, 0, overwrites_for_ever, NULL);
    for (int i = 0; i < 3 * ROUNDS; i++) {
        overwrite_and_resume(co);
        if (is_copying) {
            overwrite_and_resume(other);
        }
    }
    report(kept.wrong, yielders[way].name, "main that overwrites");
    aco_destroy(co);
    aco_destroy(other);
}

/* Both keep, each its own. */
static void both_keep(size_t resumer, size_t yielder)
{
    keeper_t keeper = {3000, 99};
    kept_t kept = {yielders[yielder].keep, {4000, 111}, 0};
    aco_t *co = aco_create(main_co, stack, 0, keeps_for_ever, &kept);
    for (int i = 0; i < ROUNDS; i++) {
        report(resumers[resumer].keep(&keeper, co), resumers[resumer].name,
               yielders[yielder].name);
    }
    report(kept.wrong, yielders[yielder].name, resumers[resumer].name);
    aco_destroy(co);
}

/* What a leaf function keeps must be part of the frames, or nobody saves it. */
static void leaf_is_within_frames(void)
{
    kept_t kept = {NULL, {55, 0}, 0};
    unsigned wrong = 0;
    aco_t *co = aco_create(main_co, stack, 0, publishes_and_yields, &kept);
    overwrite_and_resume(co);
    wrong += (char *)leaf_bytes < (char *)co->reg[ACO_REG_IDX_SP];
    overwrite_below(co);
    for (size_t i = 0; i < LEAF_SZ; i++) {
        wrong += leaf_bytes[i] != (unsigned char)(55 + i);
    }
    report(wrong, "of a function that yields last", "main that overwrites");
    overwrite_and_resume(co);
    aco_destroy(co);
}

int main(void)
{
    signal(SIGUSR1, on_signal);
    aco_thread_init(NULL);
    main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    stack = aco_share_stack_new(0);
    for (int is_copying = 0; is_copying <= 1; is_copying++) {
        for (size_t i = 0; i < WAY_CT; i++) {
            main_keeps(i, is_copying);
            coroutine_keeps(i, is_copying);
        }
    }
    for (size_t i = 0; i < WAY_CT; i++) {
        for (size_t j = 0; j < WAY_CT; j++) {
            both_keep(i, j);
        }
    }
    leaf_is_within_frames();
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
    return ct_failures != 0 || ct_signals == 0;
}
