// SPDX-License-Identifier: Apache-2.0
/*
 * A coroutine may be copied, as a struct, before its first resume, and be run from the copy: some
 * programs keep theirs in structs of their own. The copy has a save stack of its own, so the
 * original may be freed. One of the two is destroyed, and the other, which the share stack does not
 * count, is freed.
 */
#include "harness.h"

#define LEVEL_SZ 500u
#define LEVEL_CT 5

static aco_t *copy_of(const aco_t *co)
{
    aco_t *copy = (aco_t *)malloc(sizeof(*copy));
    assert_non_null(copy);
    *copy = *co;
    return copy;
}

static NOINLINE void recurse(unsigned depth)
{
    unsigned char data[LEVEL_SZ];
    fill_from_seed(data, sizeof(data), depth);
    aco_yield();
    if (depth + 1 < LEVEL_CT) {
        recurse(depth + 1);
    }
    CO_CHECK(is_from_seed(data, sizeof(data), depth));
}

static void finds_itself_and_recurses(void)
{
    const aco_t *co = aco_get_co();
    recurse(0);
    CO_CHECK(aco_get_co() == co);
    *(const aco_t **)aco_get_arg() = co;
    aco_exit();
}

static void runs_from_the_copy(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *self = NULL;
    aco_t *co = make_co(in, finds_itself_and_recurses, &self);
    aco_t *copy = copy_of(co);
    for (unsigned i = 0; i < LEVEL_CT; i++) {
        aco_resume(copy);
        assert_invariants(copy);
        assert_ptr_equal(in->stack->owner, STRESS ? NULL : copy);
    }
    aco_resume(copy);
    assert_int_equal(copy->is_end, 1);
    assert_ptr_equal(self, copy);
    assert_int_equal(co->is_end, 0);
    assert_int_equal(live_sz(co), 0);
    aco_destroy(co);
    if (copy->blocks & ACO_BLOCK_SAVE_STACK) {
        free(copy->save_stack.ptr);
    }
    free(copy);
}

/* All saves go to blocks of its own. */
static void is_saved_out_and_grows_from_the_copy(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *self = NULL;
    aco_t *co = aco_create(in->main_co, in->stack, LEVEL_SZ * 2, finds_itself_and_recurses, &self);
    aco_t *other = make_co(in, yields_for_ever, NULL);
    aco_t *copy = copy_of(co);
    for (unsigned i = 0; i < LEVEL_CT; i++) {
        aco_resume(copy);
        aco_resume(other);
        assert_invariants(copy);
        assert_true(copy->save_stack.valid_sz >= LEVEL_SZ * (i + 1));
        assert_ptr_not_equal(copy->save_stack.ptr, co->save_stack.ptr);
        assert_int_equal(copy->blocks, ACO_BLOCK_CO | ACO_BLOCK_SAVE_STACK);
    }
    assert_true(is_save_stack_embedded(co));
    assert_int_equal(co->save_stack.ct_save, 0);
    aco_resume(copy);
    assert_ptr_equal(self, copy);
    aco_destroy(copy);
    aco_destroy(other);
    free(co);
}

/* The original can still be run, by itself, and both of them in turn in blocks of their own. */
static void original_and_copy_run_in_turn(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *selves[2] = {NULL, NULL};
    aco_t *co = aco_create(in->main_co, in->stack, 1, finds_itself_and_recurses, &selves[0]);
    aco_t *copy = copy_of(co);
    copy->arg = &selves[1];
    while (!co->is_end) {
        aco_resume(co);
        aco_resume(copy);
        assert_invariants(co);
        assert_invariants(copy);
    }
    assert_int_equal(copy->is_end, 1);
    assert_ptr_equal(selves[0], co);
    assert_ptr_equal(selves[1], copy);
    free(copy->save_stack.ptr);
    free(copy);
    aco_destroy(co);
}

/* The originals are given back before anything is saved, and their memory has other uses. */
static void copies_outlive_their_originals(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *selves[2] = {NULL, NULL}, *copies[2];
    unsigned char *noise[2];
    for (int i = 0; i < 2; i++) {
        aco_t *co = aco_create(in->main_co, in->stack, LEVEL_SZ * LEVEL_CT * 2,
                               finds_itself_and_recurses, &selves[i]);
        size_t sz = sizeof(*co) + co->save_stack.sz;
        copies[i] = copy_of(co);
        memset(co, 0xa5, sz);
        free(co);
        noise[i] = (unsigned char *)calloc(sz, 1);
    }
    while (!copies[0]->is_end) {
        aco_resume(copies[0]);
        aco_resume(copies[1]);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(copies[i]->is_end, 1);
        assert_ptr_equal(selves[i], copies[i]);
        assert_int_equal(noise[i][sizeof(aco_t) + LEVEL_SZ], 0);
        aco_destroy(copies[i]);
        free(noise[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(copies_outlive_their_originals),
        instance_test(runs_from_the_copy),
        instance_test(is_saved_out_and_grows_from_the_copy),
        instance_test(original_and_copy_run_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
