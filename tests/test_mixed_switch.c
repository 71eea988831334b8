// SPDX-License-Identifier: Apache-2.0
/*
 * Inline switches, acosw() in another translation unit, acosw() by hand and the exported functions
 * through pointers: what one of them has suspended, any other continues. Main and coroutines take
 * the ways at random, and what they keep in registers and on the stack must not mind.
 */
// build: tests/no_inline.c
#include "harness.h"
#include "no_inline.h"

#define ROUNDS 3000

/* ==== Ways ==================================================================================== */

static void resume_inline(aco_t *co)
{
    aco_resume(co);
}

/* Volatile, so that a compiler can't see which function it is. */
static void (*volatile resume_pointer)(aco_t *) = aco_resume;
static void (*volatile yield_pointer)(void) = aco_yield;
static void (*volatile yield1_pointer)(aco_t *) = aco_yield1;
static void (*volatile exit_pointer)(void) = aco_exit;
static void (*volatile exit1_pointer)(aco_t *) = aco_exit1;
static aco_t *(*volatile get_co_pointer)(void) = aco_get_co;
static aco_t *(*volatile co_pointer)(void) = aco_co;
static void *(*volatile get_arg_pointer)(void) = aco_get_arg;
static int (*volatile is_main_co_pointer)(const aco_t *) = aco_is_main_co;
static void (*volatile thread_init_pointer)(aco_cofuncp_t) = aco_thread_init;

static void resume_through_pointer(aco_t *co)
{
    resume_pointer(co);
}

/* By hand nothing is copied: only one whose frames are in place can be continued. */
static void resume_by_hand(aco_t *co)
{
    if (!co->is_owner) {
        aco_resume(co);
        return;
    }
    aco_gtls_co = co;
    ACO_TELL_SWITCH(co->main_co, co);
    acosw(co->main_co, co);
    aco_gtls_co = co->main_co;
}

static void yield_inline(void)
{
    aco_yield();
}

static void yield1_inline(void)
{
    aco_yield1(aco_get_co());
}

static void yield_through_pointer(void)
{
    yield_pointer();
}

static void yield1_through_pointer(void)
{
    yield1_pointer(get_co_pointer());
}

static void yield_by_hand(void)
{
    aco_t *co = aco_get_co();
    ACO_TELL_SWITCH(co, co->main_co);
    acosw(co, co->main_co);
}

static void (*const resumes[])(aco_t *) = {
    resume_inline,
    no_inline_resume,
    resume_through_pointer,
    resume_by_hand,
};

static void (*const yields[])(void) = {
    yield_inline,  no_inline_yield, yield_through_pointer,
    yield_by_hand, yield1_inline,   yield1_through_pointer,
};

static void exit_inline(void)
{
    aco_exit();
}

static void exit1_inline(void)
{
    aco_exit1(aco_get_co());
}

static void exit_through_pointer(void)
{
    exit_pointer();
}

static void exit1_through_pointer(void)
{
    exit1_pointer(get_co_pointer());
}

static void (*const exits[])(void) = {
    exit_inline, exit1_inline, exit_through_pointer, exit1_through_pointer, no_inline_exit,
};

/* ==== Random ways ============================================================================= */

/* Sums that are kept in registers, as far as the compiler has any that survive a call. */
typedef struct {
    uint32_t seed;
    uint32_t sums[4];
    unsigned ct;
} walk_t;

static void walks(void)
{
    walk_t *walk = (walk_t *)aco_get_arg();
    uint32_t random = walk->seed, a = 1, b = 2, c = 3, d = 4;
    unsigned char data[100];
    fill_from_seed(data, sizeof(data), walk->seed);
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint32_t value = next_random(&random);
        a += value;
        b ^= a;
        c += b * 3;
        d ^= c + i;
        yields[value % ARRAY_SZ(yields)]();
        walk->ct++;
    }
    CO_CHECK(is_from_seed(data, sizeof(data), walk->seed));
    walk->sums[0] = a;
    walk->sums[1] = b;
    walk->sums[2] = c;
    walk->sums[3] = d;
    exits[walk->seed % ARRAY_SZ(exits)]();
}

/* Works out without a switch what walks() must come to. */
static void check_walk(const walk_t *walk)
{
    uint32_t random = walk->seed, sums[4] = {1, 2, 3, 4};
    for (unsigned i = 0; i < ROUNDS; i++) {
        sums[0] += next_random(&random);
        sums[1] ^= sums[0];
        sums[2] += sums[1] * 3;
        sums[3] ^= sums[2] + i;
    }
    assert_int_equal(walk->ct, ROUNDS);
    assert_memory_equal(walk->sums, sums, sizeof(sums));
}

/* Resumes `ct` coroutines in turn until they end, each time in another way. */
static void walk_to_the_end(const instance_t *in, walk_t *walks_of_all, size_t ct)
{
    aco_t *cos[5];
    uint32_t random = 99;
    for (size_t i = 0; i < ct; i++) {
        cos[i] = make_co(in, walks, &walks_of_all[i]);
    }
    for (unsigned round = 0; round <= ROUNDS; round++) {
        size_t streak = next_random(&random) % 3;
        for (size_t i = 0; i < ct; i++) {
            assert_int_equal(cos[i]->is_end, 0);
            resumes[next_random(&random) % ARRAY_SZ(resumes)](cos[i]);
            assert_ptr_equal(aco_get_co(), in->main_co);
            for (size_t j = 0; j < streak && walks_of_all[i].ct < ROUNDS - ROUNDS / 10; j++) {
                resumes[next_random(&random) % ARRAY_SZ(resumes)](cos[i]);
            }
            assert_invariants(cos[i]);
        }
        if (cos[0]->is_end) {
            break;
        }
    }
    for (size_t i = 0; i < ct; i++) {
        assert_int_equal(cos[i]->is_end, 1);
        check_walk(&walks_of_all[i]);
        aco_destroy(cos[i]);
    }
}

static void a_standalone_coroutine_is_switched_in_any_way(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (uint32_t seed = 1; seed <= ARRAY_SZ(exits); seed++) {
        walk_t walk = {seed, {0}, 0};
        walk_to_the_end(in, &walk, 1);
    }
}

static void copying_coroutines_are_switched_in_any_way(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    walk_t walks_of_all[5];
    memset(walks_of_all, 0, sizeof(walks_of_all));
    for (size_t i = 0; i < ARRAY_SZ(walks_of_all); i++) {
        walks_of_all[i].seed = (uint32_t)i + 20;
    }
    walk_to_the_end(in, walks_of_all, ARRAY_SZ(walks_of_all));
}

/* ==== One after the other ===================================================================== */

typedef struct {
    size_t yield;
    unsigned ct;
} step_t;

static void yields_as_told(void)
{
    step_t *step = (step_t *)aco_get_arg();
    for (;;) {
        step->ct++;
        yields[step->yield]();
    }
}

static void every_resume_goes_with_every_yield(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (size_t first = 0; first < ARRAY_SZ(resumes); first++) {
        step_t step = {0, 0};
        unsigned ct = 1;
        aco_t *co = make_co(in, yields_as_told, &step);
        resumes[first](co);
        for (size_t i = 0; i < ARRAY_SZ(resumes); i++) {
            for (step.yield = 0; step.yield < ARRAY_SZ(yields); step.yield++) {
                for (size_t j = 0; j < ARRAY_SZ(resumes); j++) {
                    resumes[i](co);
                    resumes[j](co);
                    ct += 2;
                    assert_int_equal(step.ct, ct);
                    assert_invariants(co);
                }
            }
        }
        aco_destroy(co);
    }
}

typedef struct {
    aco_t *get_co, *co;
    void *arg;
    int is_main;
} answers_t;

static void asks_through_pointers(void)
{
    answers_t *answers = (answers_t *)get_arg_pointer();
    answers->get_co = get_co_pointer();
    answers->co = co_pointer();
    answers->arg = get_arg_pointer();
    answers->is_main = is_main_co_pointer(get_co_pointer());
    exit_pointer();
}

static void questions_can_be_asked_through_pointers(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    answers_t answers = {NULL, NULL, NULL, 1};
    thread_init_pointer(NULL);
    aco_t *co = make_co(in, asks_through_pointers, &answers);
    resume_pointer(co);
    assert_ptr_equal(answers.get_co, co);
    assert_ptr_equal(answers.co, co);
    assert_ptr_equal(answers.arg, &answers);
    assert_int_equal(answers.is_main, 0);
    assert_int_equal(is_main_co_pointer(in->main_co), 1);
    assert_ptr_equal(get_co_pointer(), in->main_co);
    aco_destroy(co);
}

/* ==== Contents of reg[] ======================================================================= */

#define FUNCTION_SZ 4096u /* bytes; more than a small function has */

typedef struct {
    const char *frame;
} frame_t;

/* Asking for the address of its frame makes a function have a frame pointer. */
static NOINLINE void yields_with_frame_pointer(void)
{
    frame_t *frame = (frame_t *)aco_get_arg();
    frame->frame = (const char *)__builtin_frame_address(0);
    aco_yield();
    ESCAPE(frame);
    aco_exit();
}

static void reg_of_one_that_yielded_inline_tells_where_it_is(void **state)
{
    const instance_t *in = (const instance_t *)*state;
#if defined(ACO_USE_ASAN) || defined(ACO_USE_TSAN)
    skip(); /* compilers need not inline then */
#endif
    frame_t frame = {NULL};
    aco_t *co = make_co(in, yields_with_frame_pointer, &frame);
    aco_resume(co);
    uintptr_t address = (uintptr_t)co->reg[ACO_REG_IDX_RETADDR];
    assert_in_range(address, (uintptr_t)yields_with_frame_pointer,
                    (uintptr_t)yields_with_frame_pointer + FUNCTION_SZ);
    assert_ptr_equal(co->reg[ACO_REG_IDX_BP], frame.frame);
    assert_true((const char *)co->reg[ACO_REG_IDX_SP] <= frame.frame);
    aco_resume(co);
    aco_destroy(co);
}

/* ==== acosw() alone =========================================================================== */

static void counts_by_hand(void)
{
    aco_t *co = aco_get_co();
    unsigned *ct = (unsigned *)co->arg;
    for (;;) {
        ++*ct;
        ACO_TELL_SWITCH(co, co->main_co);
        acosw(co, co->main_co);
    }
}

/* As other languages use it: no inline function has a part in this. */
static void acosw_alone_switches(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    unsigned ct = 0;
    aco_t *co = make_co(in, counts_by_hand, &ct);
    for (unsigned i = 1; i <= 100; i++) {
        aco_gtls_co = co;
        ACO_TELL_SWITCH(in->main_co, co);
        acosw(in->main_co, co);
        aco_gtls_co = in->main_co;
        assert_int_equal(ct, i);
    }
    aco_destroy(co);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(a_standalone_coroutine_is_switched_in_any_way),
        instance_test(copying_coroutines_are_switched_in_any_way),
        instance_test(every_resume_goes_with_every_yield),
        instance_test(questions_can_be_asked_through_pointers),
        instance_test(reg_of_one_that_yielded_inline_tells_where_it_is),
        instance_test(acosw_alone_switches),
    };
    return cmocka_run_group_tests_name("mixed switch", tests, NULL, NULL);
}
