// SPDX-License-Identifier: Apache-2.0
/*
 * Values live across a switch between code of two kinds, as arm and thumb code are, which may
 * differ in what register is the frame pointer. test_registers.sh compiles this twice, once with
 * KEEPS_MAIN, and links both. Exits with 0 if all is well.
 */
#include "aco.h"

#define ROUNDS 8
#define NOINLINE __attribute__((noinline))

void yields_for_ever(void);

#define HOLD(x) __asm__ volatile("" : "+r"(x))
#define DECLARE(i) unsigned value_##i = seed * (2 * i + 3);
#define HOLD_VALUE(i) HOLD(value_##i);
#define CHECK(i) wrong += value_##i != seed * (2 * i + 3);
#define TIMES_12(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

/* More values than there are registers; those of the two sides differ. */
#define KEEP(statement)                                                                            \
    do {                                                                                           \
        TIMES_12(DECLARE)                                                                          \
        TIMES_12(HOLD_VALUE)                                                                       \
        statement;                                                                                 \
        TIMES_12(CHECK)                                                                            \
    } while (0)

#ifdef KEEPS_MAIN
static NOINLINE unsigned keep_and_resume(aco_t *co, unsigned seed)
{
    unsigned wrong = 0;
    KEEP(aco_resume(co));
    return wrong;
}

int main(void)
{
    unsigned wrong = 0, wrong_there = 0;
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *co = aco_create(main_co, stack, 0, yields_for_ever, &wrong_there);
    for (unsigned i = 1; i <= ROUNDS; i++) {
        wrong += keep_and_resume(co, i);
    }
    aco_destroy(co);
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
    return wrong + wrong_there != 0;
}
#else
static NOINLINE unsigned keep_and_yield(unsigned seed)
{
    unsigned wrong = 0;
    KEEP(aco_yield());
    return wrong;
}

void yields_for_ever(void)
{
    unsigned *wrong = (unsigned *)aco_get_arg();
    for (unsigned seed = 1000;; seed++) {
        *wrong += keep_and_yield(seed);
    }
}
#endif
