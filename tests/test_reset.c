// SPDX-License-Identifier: Apache-2.0
/*
 * aco_reset(), and the pattern by which programs do the same by hand: a coroutine starts its entry
 * function anew, from every state but running, and then yields, is saved out and ends like a new
 * one. By aco_reset() it also gives up its share stack and has its first control words.
 */
#include "harness.h"

#include <fenv.h>

typedef struct {
    unsigned ct_starts;
    unsigned ct_steps; /* since the last start */
} progress_t;

static void counts_three_steps(void)
{
    progress_t *progress = (progress_t *)aco_get_arg();
    unsigned char data[150];
    uint32_t seed = ++progress->ct_starts;
    progress->ct_steps = 0;
    fill_from_seed(data, sizeof(data), seed);
    for (int i = 0; i < 3; i++) {
        progress->ct_steps++;
        aco_yield();
        CO_CHECK(is_from_seed(data, sizeof(data), seed));
    }
    aco_exit();
}

static void reset_by_hand(aco_t *co)
{
    co->reg[ACO_REG_IDX_RETADDR] = (void *)(uintptr_t)co->fp;
    co->reg[ACO_REG_IDX_SP] = co->share_stack->align_retptr;
    co->is_end = 0;
    co->save_stack.valid_sz = 0;
}

static void reset_by_call(aco_t *co)
{
    aco_reset(co, co->fp, co->arg);
}

static void (*const resets[])(aco_t *co) = {reset_by_hand, reset_by_call};

/* Runs `co` from its start to its end; another one evicts it before every resume, if there is. */
static void run_to_the_end(aco_t *co, aco_t *evictor)
{
    const progress_t *progress = (const progress_t *)co->arg;
    unsigned ct_starts = progress->ct_starts;
    for (unsigned i = 1; i <= 3; i++) {
        if (evictor != NULL) {
            aco_resume(evictor);
            assert_invariants(co);
        }
        aco_resume(co);
        assert_invariants(co);
        assert_int_equal(progress->ct_starts, ct_starts + 1);
        assert_int_equal(progress->ct_steps, i);
        assert_int_equal(co->is_end, 0);
    }
    if (evictor != NULL) {
        aco_resume(evictor);
    }
    aco_resume(co);
    assert_int_equal(co->is_end, 1);
    assert_null(co->share_stack->owner);
    assert_co_checks();
}

typedef enum { INIT, OWNER, SAVED_OUT, ENDED } co_state_t;

/* Brings a new one to the given state, resets it, and runs it with or without eviction. */
static void reset_one(const instance_t *in, co_state_t co_state, unsigned ct_resumes,
                      int is_evicted, void (*reset)(aco_t *co))
{
    progress_t progress = {0, 0};
    aco_t *co = make_co(in, counts_three_steps, &progress);
    aco_t *other = make_co(in, yields_for_ever, NULL);
    unsigned ct = co_state == INIT ? 0 : co_state == ENDED ? 4 : ct_resumes;
    for (unsigned i = 0; i < ct; i++) {
        aco_resume(co);
    }
    if (co_state == SAVED_OUT) {
        aco_resume(other);
    }
    reset(co);
    assert_invariants(co);
    run_to_the_end(co, is_evicted ? other : NULL);
    aco_destroy(co);
    aco_destroy(other);
}

/* In every way, after one to three steps. */
static void reset_in_state(const instance_t *in, co_state_t co_state)
{
    for (unsigned i = 0; i < 3 * 2 * ARRAY_SZ(resets); i++) {
        reset_one(in, co_state, 1 + i % 3, i / 3 % 2, resets[i / 6]);
    }
}

static void after_its_end(void **state)
{
    reset_in_state((const instance_t *)*state, ENDED);
}

static void while_yielded_in_place(void **state)
{
    reset_in_state((const instance_t *)*state, OWNER);
}

static void while_saved_out(void **state)
{
    reset_in_state((const instance_t *)*state, SAVED_OUT);
}

static void before_its_first_resume(void **state)
{
    reset_in_state((const instance_t *)*state, INIT);
}

static void again_and_again(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    progress_t progress = {0, 0};
    aco_t *co = make_co(in, counts_three_steps, &progress);
    aco_t *other = make_co(in, yields_for_ever, NULL);
    for (unsigned i = 0; i < 50; i++) {
        run_to_the_end(co, i % 2 == 0 ? other : NULL);
        assert_int_equal(progress.ct_starts, i + 1);
        resets[i / 2 % ARRAY_SZ(resets)](co);
    }
    aco_destroy(co);
    aco_destroy(other);
}

static void with_another_argument_and_entry_function(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    progress_t first = {0, 0}, second = {0, 0};
    aco_t *co = make_co(in, counts_three_steps, &first);
    run_to_the_end(co, NULL);
    co->arg = &second;
    reset_by_hand(co);
    run_to_the_end(co, NULL);
    assert_int_equal(first.ct_starts, 1);
    assert_int_equal(second.ct_starts, 1);
    co->fp = ends_at_once;
    reset_by_hand(co);
    aco_resume(co);
    assert_int_equal(co->is_end, 1);
    aco_reset(co, counts_three_steps, &first);
    run_to_the_end(co, NULL);
    assert_int_equal(first.ct_starts, 2);
    assert_ptr_equal((void *)(uintptr_t)co->fp, (void *)(uintptr_t)counts_three_steps);
    assert_ptr_equal(co->arg, &first);
    aco_destroy(co);
}

/* A reset owner has no frames, so that there is nothing to copy when it is evicted. */
static void one_that_is_evicted_before_it_starts_again(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    progress_t progress = {0, 0};
    aco_t *co = make_co(in, counts_three_steps, &progress);
    aco_t *other = make_co(in, yields_for_ever, NULL);
    aco_resume(co);
    reset_by_hand(co);
    aco_resume(other);
    assert_int_equal(co->is_owner, 0);
    assert_int_equal(co->save_stack.valid_sz, 0);
    size_t ct_restore = co->save_stack.ct_restore;
    aco_resume(co);
    assert_int_equal(co->save_stack.ct_restore, ct_restore);
    assert_int_equal(progress.ct_starts, 2);
    aco_destroy(co);
    aco_destroy(other);
}

/* ==== aco_reset() only ======================================================================== */

static void the_owner_gives_up_its_stack(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    progress_t progress = {0, 0};
    aco_t *co = make_co(in, counts_three_steps, &progress);
    aco_resume(co);
    size_t ct_save = co->save_stack.ct_save;
    aco_reset(co, co->fp, co->arg);
    assert_null(in->stack->owner);
    assert_int_equal(co->is_owner, 0);
    aco_t *other = make_co(in, yields_for_ever, NULL);
    aco_resume(other);
    assert_int_equal(co->save_stack.ct_save, ct_save);
    aco_reset(co, co->fp, co->arg);
    assert_ptr_equal(in->stack->owner, STRESS ? NULL : other);
    assert_invariants(other);
    aco_destroy(co);
    aco_destroy(other);
}

/* One whose save stack has grown, as it is saved out and after its end. */
static void save_stack_and_statistics_stay(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    progress_t progress = {0, 0};
    aco_t *co = make_co(in, counts_three_steps, &progress);
    aco_t *other = make_co(in, yields_for_ever, NULL);
    for (int is_to_end = 0; is_to_end <= 1; is_to_end++) {
        aco_resume(co);
        aco_resume(other);
        for (int i = 0; is_to_end && i < 3; i++) {
            aco_resume(co);
        }
        aco_save_stack_t before = co->save_stack;
        assert_true(before.sz > 64 && before.ct_save != 0 && before.max_cpsz != 0);
        aco_reset(co, co->fp, co->arg);
        assert_int_equal(co->save_stack.valid_sz, 0);
        before.valid_sz = 0;
        assert_memory_equal(&before, &co->save_stack, sizeof(before));
        assert_ptr_equal(co->share_stack, in->stack);
        assert_int_equal(in->stack->ct_coroutines, 2);
    }
    aco_destroy(co);
    aco_destroy(other);
}

static void one_moved_after_that_counts_where_it_is(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stack = aco_share_stack_new(0), *other = aco_share_stack_new(16384);
    progress_t progress = {0, 0};
    aco_t *co = aco_create(in->main_co, stack, 0, counts_three_steps, &progress);
    aco_resume(co);
    reset_by_call(co);
    co->share_stack = other;
    assert_int_equal(aco_status(co), ACO_STATUS_INIT);
    aco_resume(co);
    assert_int_equal(other->ct_coroutines, 1);
    aco_share_stack_destroy(stack);
    aco_share_stack_destroy(other);
    aco_destroy(co);
}

static void rounds_upward(void)
{
    int *mode = (int *)aco_get_arg();
    *mode = fegetround();
    fesetround(FE_UPWARD);
    aco_yield();
    aco_exit();
}

static void control_words_are_the_first_ones(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    int mode;
    aco_t *co = make_co(in, rounds_upward, &mode);
    for (int i = 0; i < 2; i++) {
        aco_resume(co);
        fesetround(FE_TONEAREST);
        assert_int_equal(mode, FE_TONEAREST);
        aco_reset(co, co->fp, co->arg);
    }
    aco_destroy(co);
}

static void resets_another(void)
{
    aco_t *other = (aco_t *)aco_get_arg();
    unsigned char data[150];
    fill_from_seed(data, sizeof(data), 5);
    aco_reset(other, counts_three_steps, other->arg);
    CO_CHECK(is_from_seed(data, sizeof(data), 5));
    aco_exit();
}

/* On the same stack: the frames of the one that does so stay. */
static void by_another_coroutine(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    progress_t progress = {0, 0};
    aco_t *co = make_co(in, counts_three_steps, &progress);
    aco_resume(co);
    aco_t *other = make_co(in, resets_another, co);
    aco_resume(other);
    assert_int_equal(aco_status(co), ACO_STATUS_INIT);
    run_to_the_end(co, NULL);
    assert_int_equal(progress.ct_starts, 2);
    aco_destroy(co);
    aco_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(after_its_end),
        instance_test(while_yielded_in_place),
        instance_test(while_saved_out),
        instance_test(before_its_first_resume),
        instance_test(again_and_again),
        instance_test(with_another_argument_and_entry_function),
        instance_test(one_that_is_evicted_before_it_starts_again),
        instance_test(the_owner_gives_up_its_stack),
        instance_test(save_stack_and_statistics_stay),
        instance_test(one_moved_after_that_counts_where_it_is),
        instance_test(control_words_are_the_first_ones),
        instance_test(by_another_coroutine),
    };
    return cmocka_run_group_tests_name("reset", tests, NULL, NULL);
}
