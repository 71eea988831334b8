// SPDX-License-Identifier: Apache-2.0
/*
 * The control words, on x86 the x87 control word and the control bits of MXCSR: every coroutine has
 * its own, or with ACO_CONFIG_SHARE_FPU_MXCSR_ENV all have the same. All coroutines share the
 * status flags, but those that one has raised must not trap another. Each test is for the inline
 * switch, for acosw(), and for both in one switch there and back.
 */
// build: tests/no_inline.c
#include "control_words.h"
#include "harness.h"
#include "no_inline.h"

#include <fenv.h>
#ifdef HAVE_X87
#include <signal.h>
#endif

#ifdef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
#define IS_SHARED 1
#else
#define IS_SHARED 0
#endif

/* ==== Ways to switch ========================================================================== */

static void inline_resume(aco_t *co)
{
    aco_resume(co);
}

static void inline_yield(void)
{
    aco_yield();
}

typedef struct {
    void (*resume)(aco_t *co);
    void (*yield)(void);
} way_t;

static const way_t ways[] = {
    {inline_resume, inline_yield},
    {inline_resume, no_inline_yield},
    {no_inline_resume, inline_yield},
    {no_inline_resume, no_inline_yield},
};

/* ==== A coroutine that sets and looks ========================================================= */

typedef struct {
    const way_t *way;
    int is_to_set;
    words_t to_set;
    words_t found; /* when it started or was continued */
} order_t;

static void sets_and_looks(void)
{
    order_t *order = (order_t *)aco_get_arg();
    for (;;) {
        order->found = read_words();
        if (order->is_to_set) {
            write_words(order->to_set);
        }
        order->way->yield();
    }
}

/* Calls `check` for every way of switching, with the usual control words before and after. */
static void in_every_way(const instance_t *in, void (*check)(const instance_t *, const way_t *))
{
    for (size_t i = 0; i < ARRAY_SZ(ways); i++) {
        write_words(usual);
        aco_thread_init(NULL);
        check(in, &ways[i]);
        write_words(usual);
    }
}

/* Lets main and a coroutine have two sets, and looks at both as they alternate. */
static void check_two_sets(const instance_t *in, const way_t *way, words_t mine, words_t its,
                           aco_t *evictor)
{
    order_t order = {way, 1, its, usual};
    words_t found[3];
    aco_t *co = make_co(in, sets_and_looks, &order);
    write_words(mine);
    for (size_t i = 0; i < ARRAY_SZ(found); i++) {
        way->resume(co);
        found[i] = read_words();
        order.is_to_set = 0;
        if (evictor != NULL) {
            aco_resume(evictor);
        }
    }
    words_t found_there = order.found;
    write_words(usual);
    aco_destroy(co);
    for (size_t i = 0; i < ARRAY_SZ(found); i++) {
        assert_true(have_same_control(found[i], IS_SHARED ? its : mine));
    }
    assert_true(have_same_control(found_there, its));
}

static void check_all_pairs(const instance_t *in, const way_t *way)
{
    aco_t *evictor = make_co(in, yields_for_ever, NULL);
    for (size_t i = 0; i < ARRAY_SZ(sets); i++) {
        for (size_t j = 0; j < ARRAY_SZ(sets); j++) {
            check_two_sets(in, way, sets[i], sets[j], NULL);
            if (!IS_SHARED) {
                check_two_sets(in, way, sets[i], sets[j], evictor);
            }
        }
    }
    aco_destroy(evictor);
}

static void each_side_keeps_its_own_unless_they_are_shared(void **state)
{
    in_every_way((const instance_t *)*state, check_all_pairs);
}

/* Own words at the start are those at aco_thread_init(), not at creation or at the first resume. */
static void check_start(const instance_t *in, const way_t *way)
{
    for (size_t i = 0; i < ARRAY_SZ(sets); i++) {
        order_t order = {way, 0, usual, usual};
        write_words(sets[i]);
        aco_thread_init(NULL);
        write_words(usual);
        aco_t *co = make_co(in, sets_and_looks, &order);
        write_words(sets[3]);
        way->resume(co);
        write_words(usual);
        aco_destroy(co);
        assert_true(have_same_control(order.found, IS_SHARED ? sets[3] : sets[i]));
    }
}

static void a_new_one_starts_with_those_of_thread_init_unless_they_are_shared(void **state)
{
    in_every_way((const instance_t *)*state, check_start);
}

static void check_two_coroutines(const instance_t *in, const way_t *way)
{
    for (size_t i = 1; i < ARRAY_SZ(sets); i++) {
        order_t orders[2] = {{way, 1, sets[i], usual}, {way, 1, sets[i - 1], usual}};
        aco_t *cos[2] = {make_co(in, sets_and_looks, &orders[0]),
                         make_co(in, sets_and_looks, &orders[1])};
        for (size_t round = 0; round < 3; round++) {
            way->resume(cos[0]);
            way->resume(cos[1]);
            orders[0].is_to_set = orders[1].is_to_set = 0;
        }
        write_words(usual);
        aco_destroy(cos[0]);
        aco_destroy(cos[1]);
        assert_true(have_same_control(orders[0].found, IS_SHARED ? sets[i - 1] : sets[i]));
        assert_true(have_same_control(orders[1].found, sets[i - 1]));
    }
}

static void two_coroutines_keep_their_own_unless_they_are_shared(void **state)
{
    in_every_way((const instance_t *)*state, check_two_coroutines);
}

#ifndef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
static void check_reg(const instance_t *in, const way_t *way)
{
    for (size_t i = 0; i < ARRAY_SZ(sets); i++) {
        order_t order = {way, 1, sets[i], usual};
        aco_t *co = make_co(in, sets_and_looks, &order);
        way->resume(co);
        uint32_t word;
        memcpy(&word, &co->reg[ACO_REG_IDX_FPU], sizeof(word));
        assert_int_equal(word & IN_REG, in_reg(sets[i]) & IN_REG);
        aco_destroy(co);
    }
}

static void reg_of_a_suspended_one_holds_its_control_words(void **state)
{
    in_every_way((const instance_t *)*state, check_reg);
}
#endif

static void save_fpucw_mxcsr_writes_four_bytes_in_the_form_of_reg(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SZ(sets); i++) {
        uint32_t words[2] = {0, 0x5a5a5a5a};
        write_words(sets[i]);
        aco_save_fpucw_mxcsr(words);
        write_words(usual);
        assert_int_equal(words[0], in_reg(sets[i]));
        assert_int_equal(words[1], 0x5a5a5a5a);
    }
}

/* ==== Arithmetic ============================================================================== */

typedef struct {
    const way_t *way;
    int rounding;
    double quotient;
} division_t;

static double one_third(void)
{
    volatile double one = 1.0, three = 3.0;
    volatile double quotient = one / three;
    return quotient;
}

static void divides(void)
{
    division_t *division = (division_t *)aco_get_arg();
    fesetround(division->rounding);
    for (;;) {
        division->way->yield();
        division->quotient = one_third();
    }
}

static void check_rounding(const instance_t *in, const way_t *way)
{
    division_t division = {way, FE_UPWARD, 0};
    aco_t *co = make_co(in, divides, &division);
    fesetround(FE_DOWNWARD);
    way->resume(co);
    way->resume(co);
    double quotient = one_third();
    fesetround(FE_TONEAREST);
    aco_destroy(co);
    if (IS_SHARED) {
        assert_true(division.quotient == quotient);
    } else {
        assert_true(division.quotient > quotient);
    }
}

static void quotients_are_rounded_as_each_side_wants(void **state)
{
    in_every_way((const instance_t *)*state, check_rounding);
}

/* ==== Status flags ============================================================================ */

/* The flags stay what they are, whether the control bits have to be loaded or not. */
static void check_flags(const instance_t *in, const way_t *way)
{
    for (size_t i = 0; i < 2; i++) {
        words_t its = i == 0 ? usual : sets[4];
        words_t mine = usual;
        order_t order = {way, 1, its, usual};
        aco_t *co = make_co(in, sets_and_looks, &order);
        order.to_set.word |= ITS_FLAGS;
        mine.word |= MY_FLAGS;
        write_words(mine);
        way->resume(co);
        words_t found = read_words();
        words_t found_there = order.found;
        order.is_to_set = 0;
        write_words(usual);
        way->resume(co);
        words_t found_there_again = order.found;
        write_words(usual);
        aco_destroy(co);
        assert_int_equal(flags(found_there), MY_FLAGS);
        assert_int_equal(flags(found), ITS_FLAGS);
        assert_int_equal(flags(found_there_again), 0);
    }
}

static void flags_are_those_of_the_processor(void **state)
{
    in_every_way((const instance_t *)*state, check_flags);
}

#ifdef HAVE_X87

/* Makes the x87 status flags be `raised`; nothing traps as long as they are masked. */
static void raise_x87_flags(uint16_t raised)
{
    unsigned char env[FENV_SZ];
    uint16_t status;
    __asm__ volatile("fnstenv %0" : "=m"(env));
    memcpy(&status, env + FENV_STATUS, sizeof(status));
    status = (uint16_t)((status & ~STATUS_FLAGS) | raised);
    memcpy(env + FENV_STATUS, &status, sizeof(status));
    __asm__ volatile("fldenv %0" : : "m"(env));
}

/* Does what traps if a flag is raised that is not masked. */
static void use_x87(void)
{
    __asm__ volatile("fld1\n\tfstp %%st(0)\n\tfwait" : : : "st");
}

typedef struct {
    const way_t *way;
    uint16_t flag;
    int is_to_raise; /* whether the coroutine raises the flag itself */
} trap_t;

static void unmasks_and_uses_x87(void)
{
    const trap_t *trap = (const trap_t *)aco_get_arg();
    words_t words = usual;
    words.x87 &= ~(uint32_t)trap->flag;
    write_words(words);
    for (;;) {
        trap->way->yield();
        if (trap->is_to_raise) {
            raise_x87_flags(trap->flag);
        }
        use_x87();
    }
}

static void uses_x87(void)
{
    for (;;) {
        use_x87();
        aco_yield();
    }
}

/* In a child: main raises what is masked for it and not for the coroutine. */
static void raise_and_resume(void *arg)
{
    aco_t *co = (aco_t *)arg;
    const trap_t *trap = (const trap_t *)co->arg;
    if (co->fp == unmasks_and_uses_x87) {
        trap->way->resume(co);
    }
    for (int i = 0; i < 3; i++) {
        raise_x87_flags(trap->is_to_raise ? 0 : trap->flag);
        trap->way->resume(co);
        use_x87();
    }
}

static void check_traps(const instance_t *in, const way_t *way)
{
    for (uint16_t flag = 1; flag <= STATUS_FLAGS; flag = (uint16_t)(flag << 1)) {
        trap_t trap = {way, flag, 0};
        aco_t *co = make_co(in, unmasks_and_uses_x87, &trap);
        expect_exit(raise_and_resume, co, 0);
        trap.is_to_raise = 1;
        expect_signal(raise_and_resume, co, SIGFPE);
        aco_destroy(co);
    }
}

static void flags_of_x87_trap_who_raised_them_and_nobody_else(void **state)
{
    if (IS_SHARED) {
        skip(); /* what one unmasks is unmasked for all */
    }
    in_every_way((const instance_t *)*state, check_traps);
}

static void check_traps_of_a_new_one(const instance_t *in, const way_t *way)
{
    words_t unmasking = usual;
    unmasking.x87 &= ~1u;
    write_words(unmasking);
    aco_thread_init(NULL);
    write_words(usual);
    trap_t trap = {way, 1, 0};
    aco_t *co = make_co(in, uses_x87, &trap);
    expect_exit(raise_and_resume, co, 0);
    aco_destroy(co);
}

static void flags_of_x87_do_not_trap_a_new_one(void **state)
{
    in_every_way((const instance_t *)*state, check_traps_of_a_new_one);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(each_side_keeps_its_own_unless_they_are_shared),
        instance_test(a_new_one_starts_with_those_of_thread_init_unless_they_are_shared),
        instance_test(two_coroutines_keep_their_own_unless_they_are_shared),
#ifndef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
        instance_test(reg_of_a_suspended_one_holds_its_control_words),
#endif
        instance_test(save_fpucw_mxcsr_writes_four_bytes_in_the_form_of_reg),
        instance_test(quotients_are_rounded_as_each_side_wants),
        instance_test(flags_are_those_of_the_processor),
#ifdef HAVE_X87
        instance_test(flags_of_x87_trap_who_raised_them_and_nobody_else),
        instance_test(flags_of_x87_do_not_trap_a_new_one),
#endif
    };
    return cmocka_run_group_tests_name("control words", tests, NULL, NULL);
}
