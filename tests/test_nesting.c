// SPDX-License-Identifier: Apache-2.0
/*
 * Coroutines whose parents are coroutines: at every depth a yield goes to the parent, all that run
 * or wait for one they resumed are known as running, frames and control words stay each one's own,
 * and a parent may be copied, reset, ended and destroyed while its children are suspended.
 */
// build: tests/no_inline.c
#include "harness.h"
#include "no_inline.h"

#include <fenv.h>

#define DEPTH 10
#define TURNS 4

#ifdef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
#define IS_SHARED 1
#else
#define IS_SHARED 0
#endif

static void assert_counts(const aco_t *co, size_t ct_save, size_t ct_restore)
{
    assert_int_equal(co->save_stack.ct_save, ct_save);
    assert_int_equal(co->save_stack.ct_restore, ct_restore);
}

/* ==== Depth =================================================================================== */

/* One below the other, each on a stack of its own. */
typedef struct {
    aco_share_stack_t *stack;
    aco_t *co;
    unsigned ct_turns;
} level_t;

static struct {
    level_t levels[DEPTH];
    int ends_children; /* a level ends only after the one below */
} chain;

/* `depth` runs: it and those above are running, the one below is in state `below`. */
static void check_chain(size_t depth, aco_status_t below)
{
    CO_CHECK(aco_get_co() == chain.levels[depth].co);
    CO_CHECK(aco_get_arg() == &chain.levels[depth]);
    CO_CHECK(!aco_is_main_co(aco_get_co()));
    for (size_t i = 0; i <= depth; i++) {
        CO_CHECK(aco_status(chain.levels[i].co) == ACO_STATUS_RUNNING);
    }
    if (depth + 1 < DEPTH) {
        CO_CHECK(aco_status(chain.levels[depth + 1].co) == below);
    }
}

static void resume_level(size_t depth)
{
    if (depth < DEPTH) {
        (depth % 2 == 0 ? aco_resume : no_inline_resume)(chain.levels[depth].co);
    }
}

static void takes_turns(void)
{
    level_t *level = (level_t *)aco_get_arg();
    size_t depth = (size_t)(level - chain.levels);
    unsigned char data[50 + 40 * depth];
    fill_from_seed(data, sizeof(data), (uint32_t)depth + 1);
    check_chain(depth, ACO_STATUS_INIT);
    for (unsigned i = 0; i < TURNS; i++) {
        resume_level(depth + 1);
        check_chain(depth, ACO_STATUS_SUSPENDED);
        CO_CHECK(is_from_seed(data, sizeof(data), (uint32_t)depth + 1));
        level->ct_turns++;
        (depth % 3 == 0 ? no_inline_yield : aco_yield)();
        check_chain(depth, ACO_STATUS_SUSPENDED);
    }
    if (chain.ends_children) {
        resume_level(depth + 1);
        check_chain(depth, ACO_STATUS_END);
    }
    CO_CHECK(is_from_seed(data, sizeof(data), (uint32_t)depth + 1));
    aco_exit();
}

static void make_chain(const instance_t *in, int ends_children)
{
    memset(&chain, 0, sizeof(chain));
    chain.ends_children = ends_children;
    aco_t *parent = in->main_co;
    for (size_t i = 0; i < DEPTH; i++) {
        level_t *level = &chain.levels[i];
        level->stack = aco_share_stack_new(0);
        parent = level->co = aco_create(parent, level->stack, 0, takes_turns, level);
    }
}

/* The level with number i * step % DEPTH is the i-th. */
static void destroy_chain(size_t step)
{
    for (size_t i = 0; i < DEPTH; i++) {
        level_t *level = &chain.levels[i * step % DEPTH];
        aco_destroy(level->co);
        aco_share_stack_destroy(level->stack);
    }
}

static void run_chain(const instance_t *in)
{
    for (unsigned i = 1; i <= TURNS; i++) {
        aco_resume(chain.levels[0].co);
        assert_ptr_equal(aco_get_co(), in->main_co);
        for (size_t j = 0; j < DEPTH; j++) {
            assert_int_equal(aco_status(chain.levels[j].co), ACO_STATUS_SUSPENDED);
            assert_int_equal(chain.levels[j].ct_turns, i);
            assert_invariants(chain.levels[j].co);
        }
    }
    aco_resume(chain.levels[0].co);
    assert_int_equal(aco_status(chain.levels[0].co), ACO_STATUS_END);
    assert_co_checks();
}

static void each_of_ten_levels_is_right_about_all_others(void **state)
{
    make_chain((const instance_t *)*state, 1);
    run_chain((const instance_t *)*state);
    for (size_t i = 0; i < DEPTH; i++) {
        assert_int_equal(aco_status(chain.levels[i].co), ACO_STATUS_END);
        assert_counts(chain.levels[i].co, STRESS ? TURNS : 0, STRESS ? TURNS : 0);
    }
    destroy_chain(1);
}

/* In three orders: parents first, children first, mixed. */
static void a_parent_may_end_and_be_destroyed_before_its_suspended_children(void **state)
{
    static const size_t steps[] = {1, DEPTH - 1, 3};
    for (size_t i = 0; i < ARRAY_SZ(steps); i++) {
        make_chain((const instance_t *)*state, 0);
        run_chain((const instance_t *)*state);
        for (size_t j = 1; j < DEPTH; j++) {
            assert_int_equal(aco_status(chain.levels[j].co), ACO_STATUS_SUSPENDED);
        }
        destroy_chain(steps[i]);
    }
}

/* ==== Order =================================================================================== */

static struct {
    char text[64];
    size_t sz;
} trace;

static void note(char c)
{
    if (trace.sz < sizeof(trace.text) - 1) {
        trace.text[trace.sz++] = c;
        trace.text[trace.sz] = '\0';
    }
}

static void notes_child(void)
{
    note('c');
    aco_yield();
    note('C');
    aco_exit();
}

static void notes_parent(void)
{
    aco_t *child = (aco_t *)aco_get_arg();
    note('p');
    aco_resume(child);
    note('q');
    aco_yield();
    note('r');
    aco_resume(child);
    note('s');
    aco_exit();
}

static void yield_and_exit_go_to_the_parent(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    memset(&trace, 0, sizeof(trace));
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *parent = make_co(in, notes_parent, NULL);
    aco_t *child = aco_create(parent, stack, 0, notes_child, NULL);
    parent->arg = child;
    note('m');
    aco_resume(parent);
    note('n');
    aco_resume(parent);
    note('o');
    assert_string_equal(trace.text, "mpcqnrCso");
    aco_destroy(child);
    aco_destroy(parent);
    aco_share_stack_destroy(stack);
}

/* ==== Families ================================================================================ */

/* A parent and its children, which it resumes in turn; each child steps once when resumed. */
#define CHILD_CT 3

typedef struct {
    uint32_t seed;
    unsigned ct_steps;
} child_t;

typedef struct {
    uint32_t seed;
    aco_t *co;
    aco_t *children[CHILD_CT];
    child_t facts[CHILD_CT];
} family_t;

static void steps(void)
{
    child_t *facts = (child_t *)aco_get_arg();
    unsigned char data[100 + facts->seed];
    fill_from_seed(data, sizeof(data), facts->seed);
    for (;;) {
        facts->ct_steps++;
        aco_yield();
        CO_CHECK(is_from_seed(data, sizeof(data), facts->seed));
    }
}

static void lets_children_step(void)
{
    family_t *family = (family_t *)aco_get_arg();
    unsigned char data[300];
    fill_from_seed(data, sizeof(data), family->seed);
    for (;;) {
        for (size_t i = 0; i < CHILD_CT; i++) {
            aco_resume(family->children[i]);
            CO_CHECK(aco_get_co() == family->co);
            CO_CHECK(is_from_seed(data, sizeof(data), family->seed));
        }
        aco_yield();
        CO_CHECK(is_from_seed(data, sizeof(data), family->seed));
    }
}

static void make_family(const instance_t *in, family_t *family, uint32_t seed,
                        aco_share_stack_t *childrens_stack)
{
    memset(family, 0, sizeof(*family));
    family->seed = seed;
    family->co = make_co(in, lets_children_step, family);
    for (size_t i = 0; i < CHILD_CT; i++) {
        family->facts[i].seed = seed + 10 * (uint32_t)(i + 1);
        family->children[i] = aco_create(family->co, childrens_stack, 0, steps, &family->facts[i]);
    }
}

static void check_family(const family_t *family, unsigned ct_steps)
{
    assert_invariants(family->co);
    for (size_t i = 0; i < CHILD_CT; i++) {
        assert_int_equal(family->facts[i].ct_steps, ct_steps);
        assert_invariants(family->children[i]);
    }
}

static void destroy_family(family_t *family)
{
    aco_destroy(family->co);
    for (size_t i = 0; i < CHILD_CT; i++) {
        aco_destroy(family->children[i]);
    }
}

static void children_on_one_stack_evict_each_other(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stack = aco_share_stack_new(0);
    family_t family;
    make_family(in, &family, 7, stack);
    for (unsigned i = 1; i <= TURNS; i++) {
        aco_resume(family.co);
        check_family(&family, i);
        for (size_t j = 0; j < CHILD_CT; j++) {
            int is_in_place = j == CHILD_CT - 1 && !STRESS;
            assert_int_equal(family.children[j]->is_owner, is_in_place);
            assert_counts(family.children[j], i - (unsigned)is_in_place, i - 1);
        }
        assert_counts(family.co, STRESS ? i : 0, STRESS ? i - 1 : 0);
    }
    destroy_family(&family);
    aco_share_stack_destroy(stack);
}

/* Two parents take turns on one stack, and their children, all together, on another. */
static void a_parent_is_copied_while_its_children_are_suspended(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stack = aco_share_stack_new(0);
    family_t a, b;
    make_family(in, &a, 7, stack);
    make_family(in, &b, 8, stack);
    for (unsigned i = 1; i <= TURNS; i++) {
        aco_resume(a.co);
        check_family(&a, i);
        check_family(&b, i - 1);
        assert_counts(a.co, i - !STRESS, i - 1);
        aco_resume(b.co);
        check_family(&a, i);
        check_family(&b, i);
        assert_counts(a.co, i, i - 1);
        for (size_t j = 0; j < CHILD_CT; j++) {
            assert_counts(a.children[j], i, i - 1);
        }
    }
    assert_co_checks();
    destroy_family(&a);
    destroy_family(&b);
    aco_share_stack_destroy(stack);
}

/* One that is reset finds its children as it left them. */
static void a_parent_that_is_reset_goes_on_with_its_children(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stack = aco_share_stack_new(0);
    family_t family;
    make_family(in, &family, 9, stack);
    for (unsigned i = 1; i <= TURNS; i++) {
        aco_resume(family.co);
        aco_reset(family.co, lets_children_step, &family);
        check_family(&family, i);
    }
    assert_co_checks();
    destroy_family(&family);
    aco_share_stack_destroy(stack);
}

/* ==== Control words =========================================================================== */

static const int modes[] = {FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};

/* A level finds its own mode, or the one that the last level that changed it left. */
static void check_mode(int mine, int last)
{
    CO_CHECK(fegetround() == (IS_SHARED ? last : mine));
}

static void rounds_upward(void)
{
    check_mode(FE_TONEAREST, modes[0]);
    fesetround(modes[1]);
    aco_yield();
    check_mode(modes[1], modes[2]);
    aco_exit();
}

static void rounds_downward(void)
{
    aco_t *child = (aco_t *)aco_get_arg();
    check_mode(FE_TONEAREST, modes[2]);
    fesetround(modes[0]);
    aco_resume(child);
    check_mode(modes[0], modes[1]);
    aco_yield();
    check_mode(modes[0], modes[2]);
    aco_resume(child);
    check_mode(modes[0], modes[2]);
    aco_exit();
}

static void each_level_has_its_own_control_words(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *parent = make_co(in, rounds_downward, NULL);
    aco_t *child = aco_create(parent, stack, 0, rounds_upward, NULL);
    parent->arg = child;
    fesetround(modes[2]);
    aco_resume(parent);
    int after_yield = fegetround();
    fesetround(modes[2]);
    aco_resume(parent);
    int after_exit = fegetround();
    fesetround(FE_TONEAREST);
    assert_int_equal(after_yield, IS_SHARED ? modes[1] : modes[2]);
    assert_int_equal(after_exit, modes[2]);
    assert_int_equal(parent->is_end + child->is_end, 2);
    assert_co_checks();
    aco_destroy(child);
    aco_destroy(parent);
    aco_share_stack_destroy(stack);
}

/* ==== Tree ==================================================================================== */

/* Each node makes its children and resumes them in turn until all have ended, then adds up. All
 * nodes of one depth use one stack: a node and what it keeps for its children move together. */
#define TREE_DEPTH 4
#define FAN_OUT 5
#define LEAF_CT (FAN_OUT * FAN_OUT * FAN_OUT * FAN_OUT)

typedef struct {
    unsigned depth;
    unsigned long first, sum; /* number of the first leaf below; sum of all below */
} node_t;

static aco_share_stack_t *tree_stacks[TREE_DEPTH + 1];

static unsigned long leaves_below(unsigned depth)
{
    unsigned long ct = 1;
    for (; depth < TREE_DEPTH; depth++) {
        ct *= FAN_OUT;
    }
    return ct;
}

/* Returns whether there were any to resume. */
static int resume_each(aco_t *const *children)
{
    int ct = 0;
    for (unsigned i = 0; i < FAN_OUT; i++) {
        if (!children[i]->is_end) {
            aco_resume(children[i]);
            ct++;
        }
    }
    return ct != 0;
}

static void adds_up(void)
{
    node_t *node = (node_t *)aco_get_arg();
    if (node->depth == TREE_DEPTH) {
        node->sum = node->first;
        aco_exit();
    }
    unsigned below = node->depth + 1;
    node_t nodes[FAN_OUT];
    aco_t *children[FAN_OUT];
    for (unsigned i = 0; i < FAN_OUT; i++) {
        nodes[i] = (node_t){below, node->first + i * leaves_below(below), 0};
        children[i] = aco_create(aco_get_co(), tree_stacks[below], 0, adds_up, &nodes[i]);
    }
    while (resume_each(children)) {
        aco_yield();
    }
    for (unsigned i = 0; i < FAN_OUT; i++) {
        node->sum += nodes[i].sum;
        aco_destroy(children[i]);
    }
    aco_exit();
}

static void a_tree_adds_up(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (size_t i = 0; i < ARRAY_SZ(tree_stacks); i++) {
        tree_stacks[i] = aco_share_stack_new(0);
    }
    node_t root = {0, 0, 0};
    aco_t *co = aco_create(in->main_co, tree_stacks[0], 0, adds_up, &root);
    while (!co->is_end) {
        aco_resume(co);
    }
    assert_int_equal(root.sum, (unsigned long)LEAF_CT * (LEAF_CT - 1) / 2);
    aco_destroy(co);
    for (size_t i = 0; i < ARRAY_SZ(tree_stacks); i++) {
        aco_share_stack_destroy(tree_stacks[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(each_of_ten_levels_is_right_about_all_others),
        instance_test(a_parent_may_end_and_be_destroyed_before_its_suspended_children),
        instance_test(yield_and_exit_go_to_the_parent),
        instance_test(children_on_one_stack_evict_each_other),
        instance_test(a_parent_is_copied_while_its_children_are_suspended),
        instance_test(a_parent_that_is_reset_goes_on_with_its_children),
        instance_test(each_level_has_its_own_control_words),
        instance_test(a_tree_adds_up),
    };
    return cmocka_run_group_tests_name("nesting", tests, NULL, NULL);
}
