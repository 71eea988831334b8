// SPDX-License-Identifier: Apache-2.0
/*
 * The direct switch between coroutines of one parent: in rings, each of which is on stacks of its
 * own, on one, or on some of both; below main and below a coroutine; at any depth of calls. The
 * parent goes on where it last resumed, whoever yields.
 *
 * Compiled for a processor on which gcc likes to keep registers below the stack pointer in
 * functions that call nothing: aco_yield_to() at the end of a function must not let it.
 */
// build: tests/no_inline.c
// build x86: -mtune=athlon64
#include "harness.h"
#include "no_inline.h"

#include <fenv.h>

#define RING_SZ 5
#define ROUNDS 6

#ifdef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
#define IS_SHARED 1
#else
#define IS_SHARED 0
#endif

/* ==== Ring ==================================================================================== */

typedef struct {
    uint32_t no;
    aco_t *co;
    unsigned ct_turns;
} member_t;

static struct {
    member_t members[RING_SZ];
    unsigned turn; /* of all members together */
} ring;

/* Each way to switch, as the last thing of a function and in the midst of one. */
static NOINLINE void last_of_all(aco_t *co)
{
    aco_yield_to(co);
}

static void (*volatile exported_yield_to)(aco_t *) = aco_yield_to;

static void yield_to(aco_t *co)
{
    switch (ring.turn % 4) {
    case 0:
        aco_yield_to(co);
        break;
    case 1:
        last_of_all(co);
        break;
    case 2:
        exported_yield_to(co);
        break;
    default:
        no_inline_yield_to(co);
    }
}

/* Passes the turn on, `depth` calls below the entry function; the last of all yields. */
static NOINLINE void pass_on(member_t *member, uint32_t depth)
{
    unsigned char data[40 + 30 * depth];
    fill_from_seed(data, sizeof(data), member->no * 100 + depth + 1);
    if (depth != 0) {
        pass_on(member, depth - 1);
    } else {
        CO_CHECK(ring.turn % RING_SZ == member->no);
        member->ct_turns++;
        if (++ring.turn == ROUNDS * RING_SZ) {
            aco_yield();
        } else {
            yield_to(ring.members[(member->no + 1) % RING_SZ].co);
        }
        CO_CHECK(aco_get_co() == member->co);
        CO_CHECK(aco_get_arg() == member);
        CO_CHECK(aco_status(member->co) == ACO_STATUS_RUNNING);
    }
    CO_CHECK(is_from_seed(data, sizeof(data), member->no * 100 + depth + 1));
}

static void passes_on_for_ever(void)
{
    member_t *member = (member_t *)aco_get_arg();
    for (uint32_t i = 0;; i++) {
        pass_on(member, (member->no * 3 + i) % 7);
    }
}

/* Member i is on the stack with number i % ct. */
static void make_ring(aco_t *parent, aco_share_stack_t *const *stacks, size_t ct)
{
    memset(&ring, 0, sizeof(ring));
    for (uint32_t i = 0; i < RING_SZ; i++) {
        member_t *member = &ring.members[i];
        member->no = i;
        member->co = aco_create(parent, stacks[i % ct], 0, passes_on_for_ever, member);
    }
}

static void destroy_ring(void)
{
    for (size_t i = 0; i < RING_SZ; i++) {
        aco_destroy(ring.members[i].co);
    }
}

static void make_stacks(aco_share_stack_t **stacks, size_t ct)
{
    for (size_t i = 0; i < ct; i++) {
        stacks[i] = aco_share_stack_new(0);
    }
}

static void destroy_stacks(aco_share_stack_t *const *stacks, size_t ct)
{
    for (size_t i = 0; i < ct; i++) {
        aco_share_stack_destroy(stacks[i]);
    }
}

static void check_ring(void)
{
    assert_int_equal(ring.turn, ROUNDS * RING_SZ);
    for (size_t i = 0; i < RING_SZ; i++) {
        assert_int_equal(ring.members[i].ct_turns, ROUNDS);
        assert_int_equal(aco_status(ring.members[i].co), ACO_STATUS_SUSPENDED);
        assert_invariants(ring.members[i].co);
    }
    assert_co_checks();
}

/* Each time that a member gets the turn, but the first, it is brought in, unless it is alone on its
 * stack; so it was saved out once less if it was the last on its stack to have the turn. */
static void check_counts(size_t stack_ct)
{
    for (size_t i = 0; i < RING_SZ; i++) {
        const aco_save_stack_t *save = &ring.members[i].co->save_stack;
        int is_last = i + stack_ct >= RING_SZ, is_alone = is_last && i < stack_ct;
        assert_int_equal(save->ct_restore, is_alone ? 0 : ROUNDS - 1);
        if (!STRESS) {
            assert_int_equal(save->ct_save, is_alone ? 0 : ROUNDS - is_last);
        }
    }
}

/* One resume sets the ring going, until the last member yields. */
static void run_ring_on(const instance_t *in, size_t stack_ct)
{
    aco_share_stack_t *stacks[RING_SZ];
    make_stacks(stacks, stack_ct);
    make_ring(in->main_co, stacks, stack_ct);
    aco_resume(ring.members[0].co);
    assert_ptr_equal(aco_get_co(), in->main_co);
    check_ring();
    check_counts(stack_ct);
    destroy_ring();
    destroy_stacks(stacks, stack_ct);
}

static void in_a_ring_of_standalone_ones(void **state)
{
    run_ring_on((const instance_t *)*state, RING_SZ);
}

static void in_a_ring_on_one_share_stack(void **state)
{
    run_ring_on((const instance_t *)*state, 1);
}

static void in_rings_on_several_share_stacks(void **state)
{
    run_ring_on((const instance_t *)*state, 2);
    run_ring_on((const instance_t *)*state, 3);
}

/* ==== Below a coroutine ======================================================================= */

/* The side that brings frames in runs below those of the parent, which it must leave alone. */
static void sets_ring_going(void)
{
    aco_t *self = aco_get_co();
    aco_share_stack_t *const *stacks = (aco_share_stack_t *const *)aco_get_arg();
    unsigned char data[500];
    for (size_t ct = 1; ct <= RING_SZ; ct++) {
        make_ring(self, stacks, ct);
        fill_from_seed(data, sizeof(data), (uint32_t)ct);
        aco_resume(ring.members[0].co);
        CO_CHECK(aco_get_co() == self);
        CO_CHECK(is_from_seed(data, sizeof(data), (uint32_t)ct));
        aco_yield();
        CO_CHECK(is_from_seed(data, sizeof(data), (uint32_t)ct));
        destroy_ring();
    }
    aco_exit();
}

static void below_a_coroutine_that_is_copied_itself(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stacks[RING_SZ];
    make_stacks(stacks, RING_SZ);
    aco_t *parent = make_co(in, sets_ring_going, stacks);
    aco_t *other = make_co(in, yields_for_ever, NULL);
    for (size_t ct = 1; ct <= RING_SZ; ct++) {
        aco_resume(parent);
        check_ring();
        aco_resume(other);
        assert_invariants(parent);
    }
    aco_resume(parent);
    assert_int_equal(parent->is_end, 1);
    aco_destroy(parent);
    aco_destroy(other);
    destroy_stacks(stacks, RING_SZ);
}

/* ==== Parent ================================================================================== */

/* A coroutine that does what it is told: switches to another, yields or exits. */
typedef struct {
    aco_t *next; /* NULL: main */
    int is_to_exit;
    unsigned ct_turns;
} order_t;

static void obeys(void)
{
    order_t *order = (order_t *)aco_get_arg();
    unsigned char data[120];
    for (;;) {
        fill_from_seed(data, sizeof(data), ++order->ct_turns);
        if (order->is_to_exit) {
            aco_exit();
        }
        if (order->next != NULL) {
            aco_yield_to(order->next);
        } else {
            aco_yield();
        }
        CO_CHECK(is_from_seed(data, sizeof(data), order->ct_turns));
    }
}

typedef struct {
    aco_share_stack_t *stack;
    order_t a_order, b_order;
    aco_t *a, *b;
} pair_t;

/* On two stacks or on one. */
static void make_pair(const instance_t *in, pair_t *pair, int is_sharing)
{
    memset(pair, 0, sizeof(*pair));
    pair->stack = aco_share_stack_new(0);
    pair->a = make_co(in, obeys, &pair->a_order);
    pair->b = aco_create(in->main_co, is_sharing ? in->stack : pair->stack, 0, obeys,
                         &pair->b_order);
    pair->a_order.next = pair->b;
}

static void check_turns(const pair_t *pair, unsigned a, unsigned b)
{
    assert_ptr_equal(aco_get_co(), pair->a->main_co);
    assert_int_equal(pair->a_order.ct_turns, a);
    assert_int_equal(pair->b_order.ct_turns, b);
    assert_invariants(pair->a);
    assert_invariants(pair->b);
    assert_co_checks();
}

static void destroy_pair(pair_t *pair)
{
    aco_destroy(pair->a);
    aco_destroy(pair->b);
    aco_share_stack_destroy(pair->stack);
}

static void the_parent_may_resume_either_afterwards(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (int is_sharing = 0; is_sharing <= 1; is_sharing++) {
        pair_t pair;
        make_pair(in, &pair, is_sharing);
        aco_resume(pair.a);
        check_turns(&pair, 1, 1);
        aco_resume(pair.a);
        check_turns(&pair, 2, 2);
        aco_resume(pair.b);
        check_turns(&pair, 2, 3);
        pair.a_order.next = NULL;
        aco_resume(pair.a);
        check_turns(&pair, 3, 3);
        destroy_pair(&pair);
    }
}

static void the_target_may_exit(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (int is_sharing = 0; is_sharing <= 1; is_sharing++) {
        pair_t pair;
        make_pair(in, &pair, is_sharing);
        pair.b_order.is_to_exit = 1;
        aco_resume(pair.a);
        check_turns(&pair, 1, 1);
        assert_int_equal(aco_status(pair.b), ACO_STATUS_END);
        assert_int_equal(aco_status(pair.a), ACO_STATUS_SUSPENDED);
        pair.a_order.next = NULL;
        aco_resume(pair.a);
        check_turns(&pair, 2, 1);
        destroy_pair(&pair);
    }
}

/* The one that the parent resumed may have ended, or be gone, when the parent goes on. */
static void the_one_that_switched_away_may_end_later(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (int is_sharing = 0; is_sharing <= 1; is_sharing++) {
        pair_t pair;
        make_pair(in, &pair, is_sharing);
        aco_resume(pair.a);
        pair.a_order.is_to_exit = 1;
        pair.b_order.next = pair.a;
        aco_resume(pair.b);
        check_turns(&pair, 2, 2);
        assert_int_equal(aco_status(pair.a), ACO_STATUS_END);
        assert_int_equal(aco_status(pair.b), ACO_STATUS_SUSPENDED);
        pair.b_order.next = NULL;
        aco_resume(pair.b);
        check_turns(&pair, 2, 3);
        destroy_pair(&pair);
    }
}

static void destroys_another_with_its_stack(void)
{
    pair_t *pair = (pair_t *)aco_get_arg();
    aco_destroy(pair->b);
    aco_share_stack_destroy(pair->stack);
    aco_yield();
    aco_exit();
}

static void the_one_that_was_resumed_may_be_destroyed_with_its_stack(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    pair_t pair;
    make_pair(in, &pair, 0);
    aco_reset(pair.a, destroys_another_with_its_stack, &pair);
    pair.b_order.next = pair.a;
    aco_resume(pair.b);
    assert_ptr_equal(aco_get_co(), in->main_co);
    assert_invariants(pair.a);
    aco_resume(pair.a);
    assert_int_equal(pair.a->is_end, 1);
    aco_destroy(pair.a);
}

/* ==== Registers =============================================================================== */

/* More values than there are registers that a call leaves alone. */
static NOINLINE uintptr_t keeps_values(aco_t *co, uintptr_t seed)
{
    uintptr_t a = seed * 3, b = seed * 5, c = seed * 7, d = seed * 11, e = seed * 13, f = seed * 17;
    __asm__("" : "+r"(a));
    __asm__("" : "+r"(b));
    __asm__("" : "+r"(c));
    __asm__("" : "+r"(d));
    __asm__("" : "+r"(e));
    __asm__("" : "+r"(f));
    last_of_all(co);
    return a + b + c + d + e + f;
}

typedef struct {
    uintptr_t seed;
    aco_t *other;
} keeper_t;

/* With control words of its own, so that the switch has to load them, by a call. */
static void keeps_registers(void)
{
    const keeper_t *keeper = (const keeper_t *)aco_get_arg();
    fesetround(keeper->seed == 1 ? FE_UPWARD : FE_DOWNWARD);
    for (uintptr_t i = 1; i <= ROUNDS; i++) {
        CO_CHECK(keeps_values(keeper->other, keeper->seed * i) == 56 * keeper->seed * i);
    }
    aco_yield();
    aco_exit();
}

static void registers_are_kept_by_the_last_call_of_a_function(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stack = aco_share_stack_new(0);
    for (int is_sharing = 0; is_sharing <= 1; is_sharing++) {
        keeper_t a = {1, NULL}, b = {1000, NULL};
        b.other = make_co(in, keeps_registers, &a);
        a.other = aco_create(in->main_co, is_sharing ? in->stack : stack, 0, keeps_registers, &b);
        aco_resume(b.other);
        fesetround(FE_TONEAREST);
        assert_co_checks();
        aco_destroy(a.other);
        aco_destroy(b.other);
    }
    aco_share_stack_destroy(stack);
}

/* ==== Control words =========================================================================== */

static const int modes[] = {FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};

/* Main has the last of the modes; `a` and `b` begin with the nearest and take one each. */
static void rounds_its_own_way(void)
{
    aco_t *const *others = (aco_t *const *)aco_get_arg();
    int mode = modes[others[1] != NULL];
    CO_CHECK(IS_SHARED || fegetround() == FE_TONEAREST);
    fesetround(mode);
    for (int i = 0; i < ROUNDS; i++) {
        aco_yield_to(others[0]);
        CO_CHECK(IS_SHARED || fegetround() == mode);
        fesetround(mode);
    }
    aco_yield();
    aco_exit();
}

static void each_has_its_own_control_words(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stack = aco_share_stack_new(0);
    for (int is_sharing = 0; is_sharing <= 1; is_sharing++) {
        aco_t *after_a[2] = {NULL, NULL}, *after_b[2];
        aco_t *a = make_co(in, rounds_its_own_way, after_a);
        aco_t *b = aco_create(in->main_co, is_sharing ? in->stack : stack, 0, rounds_its_own_way,
                              after_b);
        after_a[0] = b;
        after_b[0] = after_b[1] = a;
        fesetround(modes[2]);
        aco_resume(a);
        int mode = fegetround();
        fesetround(FE_TONEAREST);
        assert_int_equal(mode, IS_SHARED ? modes[0] : modes[2]);
        assert_co_checks();
        aco_destroy(a);
        aco_destroy(b);
    }
    aco_share_stack_destroy(stack);
}

/* ==== Memory ================================================================================== */

static int first_rounding; /* in which memory was asked for; -1: not yet */

static void *note_rounding(size_t sz)
{
    first_rounding = first_rounding == -1 ? fegetround() : first_rounding;
    return malloc(sz);
}

static NOINLINE void fill_and_yield_to(aco_t *co)
{
    unsigned char data[3000];
    fill_from_seed(data, sizeof(data), 7);
    fesetround(FE_UPWARD);
    aco_yield_to(co);
    CO_CHECK(is_from_seed(data, sizeof(data), 7));
    CO_CHECK(fegetround() == (IS_SHARED ? FE_DOWNWARD : FE_UPWARD));
    fesetround(FE_TONEAREST);
}

static void fills_and_yields_to_argument(void)
{
    fill_and_yield_to((aco_t *)aco_get_arg());
    aco_exit();
}

/* Its save stack grows on the stack of the parent, which has other control words. */
static void memory_is_asked_for_with_those_of_the_parent(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *other = make_co(in, yields_for_ever, NULL);
    aco_t *co = make_co(in, fills_and_yields_to_argument, other);
    first_rounding = -1;
    fesetround(FE_DOWNWARD);
    aco_set_allocator(note_rounding, free);
    aco_resume(co);
    aco_set_allocator(malloc, free);
    fesetround(FE_DOWNWARD);
    assert_int_equal(first_rounding, IS_SHARED ? FE_UPWARD : FE_DOWNWARD);
    aco_resume(co);
    fesetround(FE_TONEAREST);
    assert_int_equal(co->is_end, 1);
    aco_destroy(co);
    aco_destroy(other);
    assert_co_checks();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(in_a_ring_of_standalone_ones),
        instance_test(in_a_ring_on_one_share_stack),
        instance_test(in_rings_on_several_share_stacks),
        instance_test(below_a_coroutine_that_is_copied_itself),
        instance_test(the_parent_may_resume_either_afterwards),
        instance_test(the_target_may_exit),
        instance_test(the_one_that_switched_away_may_end_later),
        instance_test(the_one_that_was_resumed_may_be_destroyed_with_its_stack),
        instance_test(registers_are_kept_by_the_last_call_of_a_function),
        instance_test(each_has_its_own_control_words),
        instance_test(memory_is_asked_for_with_those_of_the_parent),
    };
    return cmocka_run_group_tests_name("yield_to", tests, NULL, NULL);
}
