// SPDX-License-Identifier: Apache-2.0
/*
 * Programs of libaco change coroutines and share stacks by hand, and in an order that was never
 * promised: this works, or ends in a message where it can't.
 */
#include "harness.h"

#include <pthread.h>

/* ==== A worker that knows what it must compute ================================================ */

typedef struct {
    aco_t *co;
    uint32_t seed;
    unsigned ct_steps;   /* since its start */
    unsigned ends_after; /* steps; then it ends, by hand if this is odd */
} work_t;

static void ends_by_hand(void)
{
    aco_t *co = aco_get_co();
    co->is_end = 1;
    co->share_stack->owner = NULL;
    co->share_stack->align_validsz = 0;
    aco_yield1(co);
    note_failure("one that ended by hand went on", __FILE__, __LINE__);
}

static void works(void)
{
    work_t *work = (work_t *)aco_get_arg();
    unsigned char data[200];
    uint32_t seed = work->seed;
    fill_from_seed(data, sizeof(data), seed);
    for (work->ct_steps = 1; work->ct_steps < work->ends_after; work->ct_steps++) {
        unsigned ct_steps = work->ct_steps;
        aco_yield();
        CO_CHECK(is_from_seed(data, sizeof(data), seed));
        CO_CHECK(work->ct_steps == ct_steps && work->seed == seed);
    }
    if (work->ends_after % 2 != 0) {
        ends_by_hand();
    }
    aco_exit();
}

static void start_by_hand(aco_t *co)
{
    co->reg[ACO_REG_IDX_RETADDR] = (void *)(uintptr_t)co->fp;
    co->reg[ACO_REG_IDX_SP] = co->share_stack->align_retptr;
    co->is_end = 0;
}

/* ==== Owners, exits and restarts ============================================================== */

static void an_owner_set_to_null_loses_nothing(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    work_t a = {NULL, 1, 0, 100}, b = {NULL, 2, 0, 100};
    a.co = make_co(in, works, &a);
    b.co = make_co(in, works, &b);
    for (unsigned i = 1; i <= 4; i++) {
        aco_resume(a.co);
        in->stack->owner = NULL;
        aco_resume(b.co);
        in->stack->owner = NULL;
        assert_int_equal(a.ct_steps, i);
        assert_int_equal(b.ct_steps, i);
    }
    aco_destroy(a.co);
    aco_resume(b.co);
    assert_int_equal(b.ct_steps, 5);
    aco_destroy(b.co);
}

#define WORKER_CT 3u
#define ROUND_CT 20000u

/* One of what a program may do to a worker that does not run. */
static void do_something(work_t *work, uint32_t *random)
{
    aco_t *co = work->co;
    switch (next_random(random) % 8) {
    case 0:
        co->share_stack->owner = NULL;
        break;
    case 1:
        co->share_stack->owner = NULL;
        co->share_stack->align_validsz = 0;
        /* fallthrough */
    case 2:
        work->seed = next_random(random);
        work->ends_after = 1 + next_random(random) % 6;
        start_by_hand(co);
        work->ct_steps = 0;
        break;
    case 3:
        co->save_stack.valid_sz = 0;
        start_by_hand(co);
        work->ct_steps = 0;
        break;
    default:
        if (!co->is_end) {
            unsigned ct_steps = work->ct_steps;
            aco_resume(co);
            assert_int_equal(work->ct_steps, ct_steps + 1);
            assert_int_equal(co->is_end, work->ct_steps == work->ends_after);
        }
    }
}

static void workers_by_turns_compute_what_they_should(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    uint32_t random = 1;
    work_t works_of[WORKER_CT];
    for (unsigned i = 0; i < WORKER_CT; i++) {
        works_of[i].seed = i + 1;
        works_of[i].ct_steps = 0;
        works_of[i].ends_after = 3 + i;
        works_of[i].co = make_co(in, works, &works_of[i]);
    }
    for (unsigned i = 0; i < ROUND_CT / (EMULATED ? 20 : 1); i++) {
        work_t *work = &works_of[next_random(&random) % WORKER_CT];
        do_something(work, &random);
        if (next_random(&random) % 64 == 0) {
            aco_destroy(work->co);
            work->ct_steps = 0;
            work->co = make_co(in, works, work);
        }
    }
    for (unsigned i = 0; i < WORKER_CT; i++) {
        aco_destroy(works_of[(i + 1) % WORKER_CT].co);
    }
}

static void one_that_ended_by_hand_is_not_saved_out(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    work_t a = {NULL, 1, 0, 1}, b = {NULL, 2, 0, 100};
    a.co = make_co(in, works, &a);
    b.co = make_co(in, works, &b);
    aco_resume(a.co);
    assert_int_equal(a.co->is_end, 1);
    aco_resume(b.co);
    assert_int_equal(a.co->save_stack.ct_save, 0);
    assert_int_equal(aco_status(a.co), ACO_STATUS_END);
    aco_destroy(b.co);
    aco_destroy(a.co);
}

static void one_with_few_frames_that_ended_by_hand_is_not_either(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *a = aco_create(in->main_co, in->stack, 255, ends_by_hand, NULL);
    aco_t *b = make_co(in, yields_for_ever, NULL);
    aco_resume(a);
    aco_resume(b);
    assert_int_equal(a->save_stack.ct_save, 0);
    aco_destroy(b);
    aco_destroy(a);
}

/* ==== Share stacks destroyed early ============================================================ */

typedef enum { INIT, IN_PLACE, SAVED_OUT, ENDED, STATE_CT } co_state_t;

/* One of each state on a share stack of their own, all but the main coroutine. */
static aco_share_stack_t *make_one_of_each(const instance_t *in, work_t work_of[STATE_CT])
{
    aco_share_stack_t *stack = aco_share_stack_new(16384);
    for (unsigned i = 0; i < STATE_CT; i++) {
        work_of[i].seed = i + 1;
        work_of[i].ct_steps = 0;
        work_of[i].ends_after = i == ENDED ? 2 : 100;
        work_of[i].co = aco_create(in->main_co, stack, 0, works, &work_of[i]);
    }
    aco_resume(work_of[SAVED_OUT].co);
    aco_resume(work_of[ENDED].co);
    aco_resume(work_of[ENDED].co);
    aco_resume(work_of[IN_PLACE].co);
    return stack;
}

static void resume(void *co)
{
    aco_resume((aco_t *)co);
}

static void yields_to_its_argument(void)
{
    aco_yield_to((aco_t *)aco_get_arg());
}

static int ct_blocks; /* allocated, and not released */

static void *counts_up(size_t sz)
{
    ct_blocks++;
    return malloc(sz);
}

static void counts_down(void *ptr)
{
    ct_blocks--;
    free(ptr);
}

static void a_share_stack_may_go_before_its_coroutines(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    work_t work_of[STATE_CT];
    aco_set_allocator(counts_up, counts_down);
    for (unsigned first = 0; first < STATE_CT; first++) {
        aco_share_stack_destroy(make_one_of_each(in, work_of));
        for (unsigned i = 0; i < STATE_CT; i++) {
            aco_t *co = work_of[(first + i) % STATE_CT].co;
            assert_int_equal(co->is_owner, 0);
            assert_true(ct_blocks > 0);
            aco_destroy(co);
        }
        assert_int_equal(ct_blocks, 0);
    }
    aco_set_allocator(malloc, free);
}

static void what_has_lost_its_share_stack_cant_run(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    work_t work_of[STATE_CT];
    const char *destroyed = "share stack was destroyed";
    aco_share_stack_t *stack = make_one_of_each(in, work_of);
    aco_share_stack_destroy(stack);
    for (unsigned i = 0; i < STATE_CT; i++) {
        aco_t *co = work_of[i].co;
        const char *words = i == ENDED ? "has ended" : destroyed;
        assert_names_ptr(expect_abort(resume, co, "aco_resume", words), co);
        aco_t *other = make_co(in, yields_to_its_argument, co);
        expect_abort(resume, other, i == ENDED ? "aco_yield_to" : "aco_resume", words);
        aco_destroy(other);
        aco_reset(co, works, &work_of[i]);
        expect_abort(resume, co, "aco_resume", destroyed);
    }
    for (unsigned i = 0; i < STATE_CT; i++) {
        aco_destroy(work_of[i].co);
    }
}

/* The struct of a share stack in the caller's memory lies there too. */
static void a_stack_in_the_callers_memory_may_go_early_too(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    static unsigned char room[32768];
    work_t a = {NULL, 1, 0, 100};
    for (unsigned ct = 0; ct < 2; ct++) {
        aco_share_stack_t *stack = aco_share_stack_new_in(room, sizeof(room));
        a.co = aco_create(in->main_co, stack, 0, works, &a);
        for (unsigned i = 0; i < ct; i++) {
            aco_resume(a.co);
        }
        aco_share_stack_destroy(stack);
        aco_destroy(a.co);
    }
}

/* A copy may remain in place after its original was destroyed; the share stack doesn't count it. */
static void a_copy_may_outlive_its_share_stack(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    work_t a = {NULL, 1, 0, 100};
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *original = aco_create(in->main_co, stack, 0, works, &a);
    aco_t *copy = (aco_t *)malloc(sizeof(*copy));
    assert_non_null(copy);
    *copy = *original;
    if (!STRESS) { /* it would use the save stack of the original */
        aco_resume(copy);
        aco_destroy(original);
        assert_int_equal(stack->ct_coroutines, 0);
        aco_share_stack_destroy(stack);
        expect_abort(resume, copy, "aco_resume", "share stack was destroyed");
        aco_destroy(copy);
    } else {
        aco_destroy(original);
        aco_share_stack_destroy(stack);
        free(copy);
    }
}

/* ==== Another share stack ===================================================================== */

static void one_moved_before_its_start_counts_where_it_is(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (unsigned sets_sp = 0; sets_sp < 2; sets_sp++) {
        aco_share_stack_t *stack = aco_share_stack_new(0), *other = aco_share_stack_new(16384);
        work_t a = {NULL, 1, 0, 3}, b = {NULL, 2, 0, 3};
        a.co = aco_create(in->main_co, stack, 0, works, &a);
        b.co = aco_create(in->main_co, other, 0, works, &b);
        a.co->share_stack = other;
        if (sets_sp) {
            a.co->reg[ACO_REG_IDX_SP] = other->align_retptr;
        }
        assert_int_equal(aco_status(a.co), ACO_STATUS_INIT);
        aco_resume(b.co);
        aco_resume(a.co);
        assert_int_equal(other->ct_coroutines, 2);
        assert_invariants(a.co);
        aco_share_stack_destroy(stack);
        for (unsigned i = 0; i < 2; i++) {
            aco_resume(b.co);
            aco_resume(a.co);
        }
        assert_int_equal(a.co->is_end + b.co->is_end, 2);
        aco_share_stack_destroy(other);
        aco_destroy(a.co);
        aco_destroy(b.co);
    }
}

static const char changed[] =
    "its share stack or reg[ACO_REG_IDX_SP] was changed while frames were saved";

static void one_moved_with_frames_cant_run(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *other = aco_share_stack_new(16384);
    work_t a = {NULL, 1, 0, 3}, b = {NULL, 2, 0, 3};
    a.co = make_co(in, works, &a);
    b.co = make_co(in, works, &b);
    aco_resume(a.co);
    aco_resume(b.co);
    a.co->share_stack = other;
    expect_abort(resume, a.co, "aco_resume", changed);
    a.co->share_stack = in->stack;
    aco_destroy(a.co);
    aco_destroy(b.co);
    aco_share_stack_destroy(other);
}

/* With so few frames that they are copied inline. */
static void nor_can_one_with_another_stack_pointer(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *a = make_co(in, yields_for_ever, NULL), *b = make_co(in, yields_for_ever, NULL);
    aco_resume(a);
    aco_resume(b);
    char *sp = (char *)a->reg[ACO_REG_IDX_SP];
    for (int words = -2; words <= 2; words += 4) {
        a->reg[ACO_REG_IDX_SP] = sp + words * ACO_WORD;
        expect_abort(resume, a, "aco_resume", changed);
    }
    a->reg[ACO_REG_IDX_SP] = sp;
    aco_destroy(a);
    aco_destroy(b);
}

static void a_copy_of_a_share_stack_serves(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t copy = *in->stack;
    work_t a = {NULL, 1, 0, 4}, b = {NULL, 2, 0, 4};
    a.co = aco_create(in->main_co, &copy, 0, works, &a);
    b.co = make_co(in, works, &b);
    b.co->share_stack = &copy;
    for (unsigned i = 0; i < 4; i++) {
        aco_resume(a.co);
        aco_resume(b.co);
    }
    assert_int_equal(a.co->is_end + b.co->is_end, 2);
    assert_int_equal(copy.ct_coroutines, 2);
    aco_destroy(a.co);
    aco_destroy(b.co);
    in->stack->ct_coroutines = 0; /* b was counted there */
}

static void another_parent_may_be_set(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *other_main = aco_create(NULL, NULL, 0, NULL, NULL);
    work_t a = {NULL, 1, 0, 2};
    a.co = make_co(in, works, &a);
    aco_resume(a.co);
    a.co->main_co = other_main;
    aco_resume(a.co);
    assert_int_equal(a.co->is_end, 1);
    assert_ptr_equal(aco_get_co(), other_main);
    aco_destroy(a.co);
    aco_destroy(other_main);
}

/* ==== Creation ================================================================================ */

static void *create_at_once(void *arg)
{
    work_t a = {NULL, 1, 0, 2};
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, arg);
    assert_ptr_equal(main_co->arg, arg);
    assert_true(aco_is_main_co(main_co));
    aco_share_stack_t *stack = aco_share_stack_new(0);
    a.co = aco_create(main_co, stack, 0, works, &a);
    aco_resume(a.co);
    assert_ptr_equal(aco_get_arg(), arg);
    aco_resume(a.co);
    assert_int_equal(a.co->is_end, 1);
    aco_destroy(a.co);
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
    return arg;
}

static void a_thread_need_not_be_prepared(void **state)
{
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, create_at_once, state), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, state);
}

static void returns(void)
{
}

static void *return_on_new_thread(void *arg)
{
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, arg);
    aco_resume(aco_create(main_co, aco_share_stack_new(0), 0, returns, NULL));
    return NULL;
}

static void return_there(void *arg)
{
    pthread_t thread;
    pthread_create(&thread, NULL, return_on_new_thread, arg);
    pthread_join(thread, NULL);
}

static void such_a_thread_has_the_default_last_word(void **state)
{
    (void)state;
    expect_abort(return_there, NULL, "aco_exit", "the entry function returned");
}

static void a_main_coroutine_may_be_given_a_function(void **state)
{
    (void)state;
    aco_t *main_co = aco_create(NULL, NULL, 0, returns, NULL);
    assert_true(aco_is_main_co(main_co));
    aco_destroy(main_co);
}

static void the_entry_function_may_come_later(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    work_t a = {NULL, 1, 0, 2};
    a.co = aco_create(in->main_co, in->stack, 0, NULL, &a);
    const char *line = expect_abort(resume, a.co, "aco_resume", "no entry function");
    assert_names_ptr(line, a.co);
    a.co->reg[ACO_REG_IDX_RETADDR] = (void *)(uintptr_t)works;
    a.co->reg[ACO_REG_IDX_SP] = in->stack->align_retptr;
    aco_resume(a.co);
    aco_resume(a.co);
    assert_int_equal(a.co->is_end, 1);
    aco_destroy(a.co);
}

/* ==== Usual save stacks ======================================================================= */

static size_t wanted_sz; /* bytes of frames, at least */

/* Without red zones, which would make it need more than is taken for usual. */
aco_attr_no_asan static void keeps_what_is_wanted(void)
{
    size_t sz = wanted_sz;
    unsigned char data[sz];
    for (;;) {
        ESCAPE(data);
        aco_yield();
        ESCAPE(data);
    }
}

/* Bytes that a coroutine that keeps about `sz` bytes came to need on `stack`. */
static size_t need(const instance_t *in, aco_share_stack_t *stack, size_t sz)
{
    aco_t *evictor = aco_create(in->main_co, stack, 1000, ends_at_once, NULL);
    aco_t *co = aco_create(in->main_co, stack, 0, keeps_what_is_wanted, NULL);
    wanted_sz = sz;
    aco_resume(co);
    aco_resume(evictor);
    size_t needed = co->save_stack.max_cpsz;
    assert_true(needed > sz);
    aco_destroy(co);
    aco_destroy(evictor);
    return needed;
}

static size_t usual(const instance_t *in, aco_share_stack_t *stack)
{
    aco_t *co = aco_create(in->main_co, stack, 0, ends_at_once, NULL);
    size_t sz = co->save_stack.sz;
    assert_true(is_save_stack_embedded(co));
    aco_destroy(co);
    return sz;
}

static void save_stacks_get_the_size_that_others_needed(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stack = aco_share_stack_new(0);
    assert_int_equal(usual(in, stack), 64);
    size_t needed = need(in, stack, 80);
    assert_true(needed <= 512);
    assert_int_equal(usual(in, stack), needed);
    assert_int_equal(need(in, stack, 80), needed);
    need(in, stack, 5000);
    assert_int_equal(usual(in, stack), needed);
    assert_int_equal(usual(in, in->stack), 64);
    aco_share_stack_destroy(stack);
}

static void a_rare_deep_one_is_forgotten(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stack = aco_share_stack_new(0);
    size_t small = need(in, stack, 8);
    size_t large = need(in, stack, 100);
    assert_true(large > 64 && large > small);
    assert_int_equal(usual(in, stack), large);
    need(in, stack, 8);
    assert_in_range(usual(in, stack), (large + 64) / 2, large - 1);
    for (unsigned i = 1; i < 60; i++) {
        need(in, stack, 8);
    }
    assert_in_range(usual(in, stack), 64, (small < 64 ? 64 : small) + 8);
    aco_share_stack_destroy(stack);
}

static void yields_and_ends(void)
{
    ++*(int *)aco_get_arg();
    aco_yield();
    ++*(int *)aco_get_arg();
    aco_exit();
}

static void resume_to_the_end(const instance_t *in, aco_t *main_co)
{
    int ct = 0;
    aco_t *co = aco_create(main_co, in->stack, 0, yields_and_ends, &ct);
    aco_resume(co);
    assert_int_equal(ct, 1);
    assert_ptr_equal(aco_get_co(), main_co);
    aco_resume(co);
    assert_int_equal(ct, 2);
    assert_int_equal(co->is_end, 1);
    aco_destroy(co);
}

/* Nothing tells their thread. */
static void main_coroutines_made_by_hand_are_the_threads(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t zeroed, *made = aco_create(NULL, NULL, 0, NULL, NULL);
    memset(&zeroed, 0, sizeof(zeroed));
    resume_to_the_end(in, &zeroed);
    made->save_stack.ptr = NULL;
    resume_to_the_end(in, made);
    aco_destroy(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(an_owner_set_to_null_loses_nothing),
        instance_test(workers_by_turns_compute_what_they_should),
        instance_test(main_coroutines_made_by_hand_are_the_threads),
        instance_test(one_that_ended_by_hand_is_not_saved_out),
        instance_test(one_with_few_frames_that_ended_by_hand_is_not_either),
        instance_test(a_share_stack_may_go_before_its_coroutines),
        instance_test(what_has_lost_its_share_stack_cant_run),
        instance_test(a_stack_in_the_callers_memory_may_go_early_too),
        instance_test(a_copy_may_outlive_its_share_stack),
        instance_test(one_moved_before_its_start_counts_where_it_is),
        instance_test(one_moved_with_frames_cant_run),
        instance_test(nor_can_one_with_another_stack_pointer),
        instance_test(a_copy_of_a_share_stack_serves),
        instance_test(another_parent_may_be_set),
        instance_test(a_thread_need_not_be_prepared),
        instance_test(such_a_thread_has_the_default_last_word),
        instance_test(a_main_coroutine_may_be_given_a_function),
        instance_test(the_entry_function_may_come_later),
        instance_test(save_stacks_get_the_size_that_others_needed),
        instance_test(a_rare_deep_one_is_forgotten),
    };
    return cmocka_run_group_tests_name("by hand", tests, NULL, NULL);
}
