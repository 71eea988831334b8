// SPDX-License-Identifier: Apache-2.0
/*
 * Values that live in registers, and in memory near the stack pointer, must survive the inline
 * switch, whatever the other side does meanwhile. One side keeps values of every kind alive; the
 * other overwrites every register it may, and every byte below the keeper's stack pointer, and
 * takes a signal. The code of a compiler depends on its options: test_registers.sh compiles and
 * runs this with many. A program without cmocka: exits with 0 if all is well, and otherwise says
 * what has changed.
 */
#include "aco.h"
#include "tests/control_words.h"
#include "registers_lists.h"

#include <signal.h>

#define NOINLINE __attribute__((noinline))
#define ROUNDS 3
#define ALIGNMENT 64
#define ALIGNED_SZ 192u
#define OTHER_SET 4   /* of the control words: not the usual ones */
#define LEAF_SZ 96u   /* bytes, of which all would fit a red zone */
#define BELOW_SZ 512u /* bytes below the stack pointer that are overwritten; a red zone is 128 */

/* ==== Values ================================================================================== */

typedef struct {
    volatile uint32_t seed;
    volatile size_t variable_sz;
} keeper_t;

/* Takes `x` through a register, so that its value is not known and not worked out again. */
#define LAUNDER(constraint, x) __asm__ volatile("" : "+" constraint(x))

/* Numbers that all kinds of floating point represent exactly. */
#define FLOAT_VALUE(type, i) ((type)(seed & 0xfff) + (type)(i) + (type)0.25)

#define INT_FACTOR ((uintptr_t)0x9e3779b97f4a7c15u)
#define INT_VALUE(i) (((uintptr_t)seed * INT_FACTOR) ^ (uintptr_t)(0x10101 * (i)))
#define DECLARE_INT(i)                                                                             \
    uintptr_t int_##i = INT_VALUE(i);                                                              \
    LAUNDER("r", int_##i);
#define CHECK_INT(i)                                                                               \
    LAUNDER("r", int_##i);                                                                         \
    wrong_ints |= int_##i ^ INT_VALUE(i);
#define ALL_INTS(X) TIMES_MANY(X)

#define DECLARE_DOUBLE(i)                                                                          \
    double double_##i = FLOAT_VALUE(double, i);                                                    \
    LAUNDER(DOUBLE_CONSTRAINT, double_##i);
#define CHECK_DOUBLE(i)                                                                            \
    LAUNDER(DOUBLE_CONSTRAINT, double_##i);                                                        \
    wrong_floats += double_##i != FLOAT_VALUE(double, i);
#define ALL_DOUBLES(X) TIMES_MANY(X)

#define DECLARE_FLOAT(i)                                                                           \
    float float_##i = FLOAT_VALUE(float, i);                                                       \
    LAUNDER(FLOAT_CONSTRAINT, float_##i);
#define CHECK_FLOAT(i)                                                                             \
    LAUNDER(FLOAT_CONSTRAINT, float_##i);                                                          \
    wrong_floats += float_##i != FLOAT_VALUE(float, i);
#define ALL_FLOATS(X) TIMES_4(X)

/* Kinds of values that this processor, with these options, has no registers for are left out. */
#ifdef LONG_DOUBLE_CONSTRAINT
#define DECLARE_LONG_DOUBLE(i)                                                                     \
    long double long_double_##i = FLOAT_VALUE(long double, i);                                     \
    LAUNDER(LONG_DOUBLE_CONSTRAINT, long_double_##i);
#define CHECK_LONG_DOUBLE(i)                                                                       \
    LAUNDER(LONG_DOUBLE_CONSTRAINT, long_double_##i);                                              \
    wrong_floats += long_double_##i != FLOAT_VALUE(long double, i);
#define ALL_LONG_DOUBLES(X) TIMES_4(X)
#else
#define ALL_LONG_DOUBLES(X)
#endif

#ifdef VECTOR_CONSTRAINT
typedef uint32_t vector_t __attribute__((vector_size(16)));
/* clang-format off */
#define VECTOR_VALUE(i) {seed + (i), seed ^ (i), ~seed, seed * (i)}
/* clang-format on */
#define DECLARE_VECTOR(i)                                                                          \
    vector_t vector_##i = VECTOR_VALUE(i);                                                         \
    LAUNDER(VECTOR_CONSTRAINT, vector_##i);
#define CHECK_VECTOR(i)                                                                            \
    LAUNDER(VECTOR_CONSTRAINT, vector_##i);                                                        \
    wrong_lanes |= vector_##i ^ (vector_t)VECTOR_VALUE(i);
#define ALL_VECTORS(X) TIMES_16(X)
#else
#define ALL_VECTORS(X)
#endif

#ifdef WIDE_VECTOR_CONSTRAINT
typedef uint32_t wide_vector_t __attribute__((vector_size(32)));
/* clang-format off */
#define WIDE_VECTOR_VALUE(i)                                                                       \
    {seed, seed + (i), seed - (i), seed ^ (i), ~seed, seed * (i), seed + 9, seed + 10}
/* clang-format on */
#define DECLARE_WIDE_VECTOR(i)                                                                     \
    wide_vector_t wide_##i = WIDE_VECTOR_VALUE(i);                                                 \
    LAUNDER(WIDE_VECTOR_CONSTRAINT, wide_##i);
#define CHECK_WIDE_VECTOR(i)                                                                       \
    LAUNDER(WIDE_VECTOR_CONSTRAINT, wide_##i);                                                     \
    wrong_wide |= wide_##i ^ (wide_vector_t)WIDE_VECTOR_VALUE(i);
#define ALL_WIDE_VECTORS(X) TIMES_16(X)
#else
#define ALL_WIDE_VECTORS(X)
#endif

/* Vectors of a length that only the processor knows. */
#ifdef DECLARE_SCALABLE
#define ALL_SCALABLE(X) TIMES_16(X)
#else
#define ALL_SCALABLE(X)
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
    words_t other = sets[OTHER_SET];
    write_words(other);
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
        report(resumers[resumer].keep(&keeper, co), resumers[resumer].name, yielders[yielder].name);
    }
    report(kept.wrong, yielders[yielder].name, resumers[resumer].name);
    aco_destroy(co);
}

/* The bytes that a leaf function keeps must be part of the frames, or they are not saved. */
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
