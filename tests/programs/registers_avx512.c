// SPDX-License-Identifier: Apache-2.0
/*
 * Values in the registers that only AVX-512 has, kept alive across a switch. Few machines can run
 * this, so test_registers.sh reads what the compiler made of it instead: after the arrival, no mask
 * register and no vector register above 15 may be read before it is written. For that, each
 * function is a straight line.
 */
#include "aco.h"

typedef float vector_t __attribute__((vector_size(64)));

typedef struct {
    vector_t vectors[32];
    uint16_t masks[7];
} values_t;

#define TIMES_7(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6)
/* clang-format off */
#define TIMES_32(X)                                                                                \
    TIMES_7(X)                                                                                     \
    X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22)   \
    X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
/* clang-format on */

#define LOAD_VECTOR(i) vector_t vector_##i = in->vectors[i];
#define LOAD_MASK(i) uint16_t mask_##i = in->masks[i];

/* All of them at a time: each is then in a register of its own. */
#define HOLD_VECTOR(i) __asm__ volatile("" : "+v"(vector_##i));
#define HOLD_MASK(i) __asm__ volatile("" : "+k"(mask_##i));
#define STORE_VECTOR(i) out->vectors[i] = vector_##i;
#define STORE_MASK(i) out->masks[i] = mask_##i;

void keep_and_yield(const values_t *in, values_t *out);
void keep_and_resume(const values_t *in, values_t *out, aco_t *co);

void keep_and_yield(const values_t *in, values_t *out)
{
    TIMES_32(LOAD_VECTOR)
    TIMES_7(LOAD_MASK)
    TIMES_32(HOLD_VECTOR)
    TIMES_7(HOLD_MASK)
    aco_yield();
    TIMES_32(HOLD_VECTOR)
    TIMES_7(HOLD_MASK)
    TIMES_32(STORE_VECTOR)
    TIMES_7(STORE_MASK)
}

void keep_and_resume(const values_t *in, values_t *out, aco_t *co)
{
    TIMES_32(LOAD_VECTOR)
    TIMES_7(LOAD_MASK)
    TIMES_32(HOLD_VECTOR)
    TIMES_7(HOLD_MASK)
    aco_resume(co);
    TIMES_32(HOLD_VECTOR)
    TIMES_7(HOLD_MASK)
    TIMES_32(STORE_VECTOR)
    TIMES_7(STORE_MASK)
}
