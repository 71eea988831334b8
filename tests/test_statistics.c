// SPDX-License-Identifier: Apache-2.0
/*
 * The statistics in save_stack: exact counts of saves and restores, the high-water mark of what was
 * copied, and how many bytes are saved out now.
 */
#include "harness.h"

#define ROUNDS 10

static void yields_deep_when_told(void)
{
    const size_t *wanted = (const size_t *)aco_get_arg();
    for (;;) {
        unsigned char data[*wanted + 1];
        memset(data, 1, sizeof(data));
        ESCAPE(data);
        aco_yield();
        ESCAPE(data);
    }
}

static void assert_counts(const aco_t *co, size_t ct_save, size_t ct_restore)
{
    assert_int_equal(co->save_stack.ct_save, ct_save);
    assert_int_equal(co->save_stack.ct_restore, ct_restore);
}

/* Two take turns: each is saved out by the other and comes back, but for the first time. */
static void each_eviction_counts_once(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *a = make_co(in, yields_for_ever, NULL);
    aco_t *b = make_co(in, yields_for_ever, NULL);
    for (size_t i = 0; i < ROUNDS; i++) {
        aco_resume(a);
        assert_counts(a, i + STRESS, i);
        assert_counts(b, i, i == 0 ? 0 : i - 1);
        aco_resume(b);
        assert_counts(a, i + 1, i);
        assert_counts(b, i + STRESS, i);
    }
    aco_destroy(a);
    aco_destroy(b);
}

static void resuming_the_owner_counts_nothing(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, yields_for_ever, NULL);
    aco_t *other = make_co(in, ends_at_once, NULL);
    aco_resume(co);
    aco_resume(other);
    assert_counts(co, 1, 0);
    aco_resume(co);
    size_t saves = co->save_stack.ct_save;
    for (size_t i = 1; i <= ROUNDS; i++) {
        aco_resume(co);
        assert_counts(co, saves + (STRESS ? i : 0), 1 + (STRESS ? i : 0));
    }
    aco_destroy(co);
    aco_destroy(other);
}

static void one_that_ends_when_first_resumed_is_never_copied(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, yields_for_ever, NULL);
    aco_t *other = make_co(in, ends_at_once, NULL);
    aco_resume(co);
    aco_resume(other);
    aco_resume(co);
    assert_counts(other, 0, 0);
    assert_int_equal(other->save_stack.max_cpsz, 0);
    aco_destroy(co);
    aco_destroy(other);
}

static void valid_sz_is_what_is_saved_out_now(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    size_t depth = 100;
    aco_t *co = make_co(in, yields_deep_when_told, &depth);
    aco_t *other = make_co(in, yields_for_ever, NULL);
    assert_int_equal(co->save_stack.valid_sz, 0);
    for (size_t i = 0; i < ROUNDS; i++) {
        depth = i * 77;
        aco_resume(co);
        assert_int_equal(co->save_stack.valid_sz, STRESS ? live_sz(co) : 0);
        aco_resume(other);
        assert_int_equal(co->save_stack.valid_sz, live_sz(co));
        assert_true(co->save_stack.valid_sz > depth);
    }
    aco_destroy(co);
    aco_destroy(other);
}

static void max_cpsz_is_the_high_water_mark(void **state)
{
    static const size_t depths[] = {10, 3000, 200, 2999, 0, 50000, 3000, 10};
    const instance_t *in = (const instance_t *)*state;
    size_t depth, max = 0;
    aco_t *co = make_co(in, yields_deep_when_told, &depth);
    aco_t *other = make_co(in, yields_for_ever, NULL);
    for (size_t i = 0; i < ARRAY_SZ(depths); i++) {
        depth = depths[i];
        aco_resume(co);
        aco_resume(other);
        max = live_sz(co) > max ? live_sz(co) : max;
        assert_int_equal(co->save_stack.max_cpsz, max);
    }
    assert_true(max > 50000 && max < 51000);
    aco_destroy(co);
    aco_destroy(other);
}

/* max_cpsz tells the right size for a save stack. */
static void a_save_stack_of_max_cpsz_never_grows(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    size_t depth = 5000;
    aco_t *other = make_co(in, yields_for_ever, NULL);
    aco_t *co = make_co(in, yields_deep_when_told, &depth);
    aco_resume(co);
    aco_resume(other);
    size_t right = co->save_stack.max_cpsz;
    aco_destroy(co);
    co = aco_create(in->main_co, in->stack, right, yields_deep_when_told, &depth);
    aco_resume(co);
    aco_resume(other);
    assert_int_equal(co->save_stack.max_cpsz, right);
    assert_int_equal(co->save_stack.sz, right);
    aco_destroy(co);
    co = aco_create(in->main_co, in->stack, right - 1, yields_deep_when_told, &depth);
    aco_resume(co);
    aco_resume(other);
    assert_true(co->save_stack.sz >= right);
    aco_destroy(co);
    aco_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(each_eviction_counts_once),
        instance_test(resuming_the_owner_counts_nothing),
        instance_test(one_that_ends_when_first_resumed_is_never_copied),
        instance_test(valid_sz_is_what_is_saved_out_now),
        instance_test(max_cpsz_is_the_high_water_mark),
        instance_test(a_save_stack_of_max_cpsz_never_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
