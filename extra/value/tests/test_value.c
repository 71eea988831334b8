// SPDX-License-Identifier: Apache-2.0
/*
 * Values passed by resume and yield: each reaches its receiver and no other coroutine, whatever
 * runs in between, including coroutines that pass no values.
 */
#include "extra/value/aco_value.h"
#include "tests/harness.h"

#define ROUNDS 10

/* Values are addresses that stand for themselves. */
static char values[64];
#define VALUE(i) ((void *)&values[i])

static void *value_after(const void *value)
{
    return VALUE((const char *)value - values + 1);
}

/* ==== There and back ========================================================================== */

/* Yields what it gets, plus 1. */
static void adds_one(void)
{
    void *value = aco_first_value();
    for (int i = 0; i < ROUNDS; i++) {
        value = aco_yield_value(value_after(value));
    }
    aco_exit();
}

static void each_gets_what_the_other_gives(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, adds_one, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        assert_ptr_equal(aco_resume_value(co, VALUE(i)), VALUE(i + 1));
    }
    assert_null(aco_resume_value(co, VALUE(0)));
    assert_int_equal(co->is_end, 1);
    aco_destroy(co);
}

static void several_take_turns(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *cos[3];
    for (size_t i = 0; i < 3; i++) {
        cos[i] = make_co(in, adds_one, NULL);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 3; i++) {
            assert_ptr_equal(aco_resume_value(cos[i], VALUE(i + round)), VALUE(i + round + 1));
        }
    }
    for (size_t i = 0; i < 3; i++) {
        aco_destroy(cos[i]);
    }
}

/* The exported functions do the same. */
static void *(*volatile exported_resume)(aco_t *, void *) = aco_resume_value;
static void *(*volatile exported_yield)(void *) = aco_yield_value;
static void *(*volatile exported_first)(void) = aco_first_value;

static void adds_one_by_exported_functions(void)
{
    void *value = exported_first();
    for (;;) {
        value = exported_yield(value_after(value));
    }
}

static void the_exported_functions_do_it_too(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, adds_one_by_exported_functions, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        assert_ptr_equal(exported_resume(co, VALUE(i)), VALUE(i + 1));
    }
    aco_destroy(co);
}

/* ==== Calls that give none ==================================================================== */

/* Records what it gets; passes a value every other time. */
typedef struct {
    void *got[4];
} notes_t;

static void notes(void)
{
    notes_t *noted = (notes_t *)aco_get_arg();
    noted->got[0] = aco_first_value();
    aco_yield();
    noted->got[1] = aco_yield_value(VALUE(10));
    noted->got[2] = aco_yield_value(VALUE(11));
    noted->got[3] = aco_first_value();
    aco_exit();
}

static void plain_resumes_give_null(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    notes_t noted = {{VALUE(60), VALUE(60), VALUE(60), VALUE(60)}};
    aco_t *co = make_co(in, notes, &noted);
    for (int i = 0; i < 4; i++) {
        aco_resume(co);
    }
    for (size_t i = 0; i < ARRAY_SZ(noted.got); i++) {
        assert_null(noted.got[i]);
    }
    aco_destroy(co);
}

static void plain_yields_take_and_give_nothing(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    notes_t noted = {{VALUE(60), VALUE(60), VALUE(60), VALUE(60)}};
    aco_t *co = make_co(in, notes, &noted);
    assert_null(aco_resume_value(co, VALUE(1)));
    assert_ptr_equal(aco_resume_value(co, VALUE(2)), VALUE(10));
    aco_resume(co);
    assert_null(aco_resume_value(co, VALUE(4)));
    assert_ptr_equal(noted.got[0], VALUE(1));
    assert_null(noted.got[1]);
    assert_ptr_equal(noted.got[2], VALUE(4));
    assert_null(noted.got[3]);
    aco_destroy(co);
}

static void gives_one_and_yields_plainly(void)
{
    aco_yield_value(VALUE(1));
    aco_yield();
    aco_exit();
}

/* A plain resume does not take it, nor does the resume after that. */
static void what_nobody_takes_is_lost(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, gives_one_and_yields_plainly, NULL);
    aco_resume(co);
    assert_null(aco_resume_value(co, VALUE(2)));
    assert_null(aco_resume_value(co, VALUE(3)));
    aco_destroy(co);
}

/* ==== Parents that are no main coroutine ====================================================== */

static void waits_for_one(void)
{
    CO_CHECK(aco_first_value() == NULL);
    CO_CHECK(aco_yield_value(VALUE(20)) == NULL);
    CO_CHECK(aco_yield_value(VALUE(21)) == NULL);
    aco_exit();
}

/* Does not take its value; its child must not get it, nor its parent that of the child. */
static void resumes_child_plainly(void)
{
    aco_share_stack_t *stack = (aco_share_stack_t *)aco_get_arg();
    aco_t *child = aco_create(aco_get_co(), stack, 0, waits_for_one, NULL);
    while (!child->is_end) {
        aco_resume(child);
        aco_yield();
    }
    aco_destroy(child);
    aco_exit();
}

static void passes_on(void)
{
    aco_share_stack_t *stack = (aco_share_stack_t *)aco_get_arg();
    void *value = aco_first_value();
    aco_t *child = aco_create(aco_get_co(), stack, 0, adds_one, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        value = aco_yield_value(value_after(aco_resume_value(child, value)));
    }
    aco_destroy(child);
    aco_exit();
}

static void run_family(const instance_t *in, aco_cofuncp_t fp, int step)
{
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *co = make_co(in, fp, stack);
    for (int i = 0; !co->is_end; i++) {
        const void *got = aco_resume_value(co, VALUE(i));
        assert_ptr_equal(got, step != 0 && !co->is_end ? VALUE(i + step) : NULL);
    }
    aco_destroy(co);
    aco_share_stack_destroy(stack);
    assert_co_checks();
}

static void what_is_meant_for_another_generation_is_not_taken(void **state)
{
    run_family((const instance_t *)*state, resumes_child_plainly, 0);
}

static void generators_of_generators_work(void **state)
{
    run_family((const instance_t *)*state, passes_on, 2);
}

/* ==== Direct switches ========================================================================= */

static void switches_to_argument(void)
{
    aco_yield_to((aco_t *)aco_get_arg());
    aco_exit();
}

/* The target of aco_yield_to() gets no value; the one that it passes goes to the parent. */
static void a_switch_gives_nothing(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *other = make_co(in, waits_for_one, NULL);
    aco_t *co = make_co(in, switches_to_argument, other);
    assert_ptr_equal(aco_resume_value(co, VALUE(1)), VALUE(20));
    assert_null(aco_resume_value(co, VALUE(3)));
    assert_ptr_equal(aco_resume_value(other, NULL), VALUE(21));
    aco_destroy(co);
    aco_destroy(other);
    assert_co_checks();
}

/* ==== Former addressees ======================================================================= */

static void keeps_first_value(void)
{
    void **got = (void **)aco_get_arg();
    *got = aco_first_value();
    aco_yield();
    aco_exit();
}

static void gives_one_to_its_parent(void)
{
    aco_yield_value(VALUE(30));
    aco_exit();
}

/* Ignores what its child passes, and ends. */
static void leaves_value_of_child(void)
{
    aco_t *child = aco_create(aco_get_co(), (aco_share_stack_t *)aco_get_arg(), 0,
                              gives_one_to_its_parent, NULL);
    aco_resume(child);
    aco_destroy(child);
    aco_exit();
}

/* A new coroutine at the address of the receiver, or the receiver after a reset. */
static void what_a_parent_left_is_not_for_its_successor(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stack = aco_share_stack_new(0);
    char memory[2 * sizeof(aco_t)] __attribute__((aligned(16)));
    for (int is_reset = 0; is_reset <= 1; is_reset++) {
        void *got = VALUE(60);
        aco_t *co = aco_create_in(memory, sizeof(memory), in->main_co, in->stack,
                                  leaves_value_of_child, stack);
        aco_resume(co);
        assert_int_equal(co->is_end, 1);
        if (is_reset) {
            aco_reset(co, keeps_first_value, &got);
        } else {
            aco_destroy(co);
            aco_create_in(memory, sizeof(memory), in->main_co, in->stack, keeps_first_value, &got);
        }
        aco_resume(co);
        assert_null(got);
        aco_destroy(co);
    }
    aco_share_stack_destroy(stack);
}

/* Orders for a coroutine that replaces another one by a child of its own. */
typedef struct {
    char memory[2 * sizeof(aco_t)] __attribute__((aligned(16)));
    aco_t *replacing;
    aco_share_stack_t *stack;
    void *got;
} replacement_t;

static void leaves_value_and_switches(void)
{
    const replacement_t *r = (const replacement_t *)aco_get_arg();
    aco_yield_to(r->replacing);
}

static void replaces_it_by_a_child(void)
{
    replacement_t *r = (replacement_t *)aco_get_arg();
    aco_destroy((aco_t *)(void *)r->memory);
    aco_t *child = aco_create_in(r->memory, sizeof(r->memory), aco_get_co(), r->stack,
                                 keeps_first_value, &r->got);
    aco_resume(child);
    aco_destroy(child);
    aco_exit();
}

static void what_a_sibling_left_is_not_for_a_child_in_its_place(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    replacement_t r = {{0}, NULL, aco_share_stack_new(0), VALUE(60)};
    r.replacing = make_co(in, replaces_it_by_a_child, &r);
    aco_t *co = aco_create_in(r.memory, sizeof(r.memory), in->main_co, in->stack,
                              leaves_value_and_switches, &r);
    assert_null(aco_resume_value(co, VALUE(31)));
    assert_null(r.got);
    aco_destroy(r.replacing);
    aco_share_stack_destroy(r.stack);
}

/* ==== Misuse ================================================================================== */

static void take_first(void *arg)
{
    (void)arg;
    aco_first_value();
}

static void yield_one(void *arg)
{
    aco_yield_value(arg);
}

static void resume_one(void *co)
{
    aco_resume_value((aco_t *)co, NULL);
}

static void misuse_ends_in_words(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, ends_at_once, NULL);
    expect_abort(take_first, NULL, "aco_first_value", "no coroutine");
    expect_abort(yield_one, NULL, "aco_yield_value", "no coroutine");
    expect_abort(resume_one, NULL, "aco_resume_value", "NULL");
    expect_abort(resume_one, in->main_co, "aco_resume_value", "a main coroutine");
    assert_null(aco_resume_value(co, NULL));
    expect_abort(resume_one, co, "aco_resume_value", "has ended");
    expect_abort(take_first, NULL, "aco_first_value", "no coroutine");
    expect_abort(yield_one, NULL, "aco_yield_value", "no coroutine");
    aco_destroy(co);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(each_gets_what_the_other_gives),
        instance_test(several_take_turns),
        instance_test(the_exported_functions_do_it_too),
        instance_test(plain_resumes_give_null),
        instance_test(plain_yields_take_and_give_nothing),
        instance_test(what_nobody_takes_is_lost),
        instance_test(what_is_meant_for_another_generation_is_not_taken),
        instance_test(generators_of_generators_work),
        instance_test(a_switch_gives_nothing),
        instance_test(what_a_parent_left_is_not_for_its_successor),
        instance_test(what_a_sibling_left_is_not_for_a_child_in_its_place),
        instance_test(misuse_ends_in_words),
    };
    return cmocka_run_group_tests_name("value", tests, NULL, NULL);
}
