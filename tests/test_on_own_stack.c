// SPDX-License-Identifier: Apache-2.0
/*
 * aco_on_own_stack(): true of every byte of the share stack that the caller runs on, whatever frame
 * it is in, and of no other; and that what it warns of is real: what is read, for a coroutine that
 * waits, to where its buffer was, lands in the frames of another.
 */
#include "harness.h"

#include <pthread.h>

#define BUFFER_SZ 64u /* bytes */

static char global[BUFFER_SZ];

/* ==== Where it is true ======================================================================== */

static NOINLINE void check_from_below(const char *local_of_caller, const char *on_heap)
{
    char mine = 0;
    ESCAPE(&mine);
    CO_CHECK(aco_on_own_stack(&mine));
    CO_CHECK(aco_on_own_stack(local_of_caller));
    CO_CHECK(!aco_on_own_stack(on_heap));
}

/* The argument is a local of main. */
static void looks_around(void)
{
    const aco_share_stack_t *s = aco_get_co()->share_stack;
    const char *low = (const char *)s->ptr, *of_main = (const char *)aco_get_arg();
    char local[BUFFER_SZ];
    ESCAPE(local);
    for (;;) {
        check_from_below(local, (const char *)aco_get_co());
        CO_CHECK(!aco_on_own_stack(of_main));
        CO_CHECK(!aco_on_own_stack(global));
        CO_CHECK(aco_on_own_stack(low) && !aco_on_own_stack(low - 1));
        CO_CHECK(aco_on_own_stack(low + s->sz - 1) && !aco_on_own_stack(low + s->sz));
        CO_CHECK(aco_on_own_stack(s->align_retptr));
        CO_CHECK(!aco_on_own_stack(NULL) && !aco_on_own_stack((void *)UINTPTR_MAX));
        aco_yield();
    }
}

static void of_every_byte_of_the_stack_and_of_no_other(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stacks[] = {in->stack, aco_share_stack_new2(0, 0), aco_share_stack_new(1)};
    aco_t *cos[2 * ARRAY_SZ(stacks)];
    char local = 0;
    for (size_t i = 0; i < ARRAY_SZ(cos); i++) {
        cos[i] = aco_create(in->main_co, stacks[i / 2], 0, looks_around, &local);
    }
    for (size_t i = 0; i < 3 * ARRAY_SZ(cos); i++) {
        aco_resume(cos[i % ARRAY_SZ(cos)]);
        assert_co_checks();
    }
    for (size_t i = 0; i < ARRAY_SZ(cos); i++) {
        aco_destroy(cos[i]);
    }
    aco_share_stack_destroy(stacks[1]);
    aco_share_stack_destroy(stacks[2]);
}

static void on_the_own_stack_of_a_thread_of_nothing(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    char local = 0;
    aco_t *co = make_co(in, yields_for_ever, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(aco_on_own_stack(&local), 0);
        assert_int_equal(aco_on_own_stack(in->stack->align_retptr), 0);
        assert_int_equal(aco_on_own_stack(NULL), 0);
        aco_resume(co);
    }
    aco_destroy(co);
}

static void *asks_without_any_preparation(void *local)
{
    return aco_on_own_stack(local) || aco_on_own_stack(&local) ? local : NULL;
}

static void without_any_preparation_of_nothing(void **state)
{
    pthread_t thread;
    void *found = state;
    assert_int_equal(pthread_create(&thread, NULL, asks_without_any_preparation, state), 0);
    assert_int_equal(pthread_join(thread, &found), 0);
    assert_null(found);
}

/* ==== Nesting ================================================================================= */

static void looks_at_its_parents(void)
{
    char local = 0;
    ESCAPE(&local);
    CO_CHECK(aco_on_own_stack(&local));
    CO_CHECK(!aco_on_own_stack(aco_get_arg()));
    aco_exit();
}

/* The argument is a share stack for its child. */
static void has_a_child(void)
{
    char local = 0;
    ESCAPE(&local);
    aco_t *child = aco_create(aco_get_co(), (aco_share_stack_t *)aco_get_arg(), 0,
                              looks_at_its_parents, &local);
    aco_resume(child);
    CO_CHECK(aco_on_own_stack(&local));
    aco_destroy(child);
    aco_exit();
}

static void the_stack_of_the_parent_is_another(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *co = make_co(in, has_a_child, stack);
    aco_resume(co);
    assert_int_equal(co->is_end, 1);
    aco_destroy(co);
    aco_share_stack_destroy(stack);
}

/* ==== Uses that it detects ==================================================================== */

typedef struct {
    int is_on_heap;
    int was_warned;
    char *buffer; /* to be filled while the coroutine is suspended */
    int ct_right; /* bytes in it that are as they should be */
} order_t;

static int count_x(const char *bytes)
{
    int ct = 0;
    for (size_t i = 0; i < BUFFER_SZ; i++) {
        ct += bytes[i] == 'x';
    }
    return ct;
}

static void waits_for_x(void)
{
    order_t *order = (order_t *)aco_get_arg();
    char local[BUFFER_SZ];
    memset(local, 0, sizeof(local));
    ESCAPE(local);
    order->buffer = order->is_on_heap ? (char *)calloc(1, BUFFER_SZ) : local;
    order->was_warned = aco_on_own_stack(order->buffer);
    aco_yield();
    order->ct_right = count_x(order->buffer);
    if (order->is_on_heap) {
        free(order->buffer);
    }
    aco_exit();
}

/* Fills the buffer while another coroutine has the stack. */
static aco_attr_no_asan void fill(const instance_t *in, order_t *order)
{
    aco_t *co = make_co(in, waits_for_x, order);
    aco_t *other = make_co(in, yields_for_ever, NULL);
    aco_resume(co);
    aco_resume(other);
    for (volatile char *p = order->buffer; p < order->buffer + BUFFER_SZ; p++) {
        *p = 'x';
    }
    aco_reset(other, ends_at_once, NULL); /* its frames may be gone */
    aco_resume(co);
    assert_int_equal(co->is_end, 1);
    aco_destroy(co);
    aco_destroy(other);
}

static void what_it_is_true_of_is_not_there_meanwhile(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    order_t on_stack = {0, -1, NULL, -1}, on_heap = {1, -1, NULL, -1};
    fill(in, &on_heap);
    assert_int_equal(on_heap.was_warned, 0);
    assert_int_equal(on_heap.ct_right, BUFFER_SZ);
    fill(in, &on_stack);
    assert_int_equal(on_stack.was_warned, 1);
    assert_int_equal(on_stack.ct_right, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(of_every_byte_of_the_stack_and_of_no_other),
        instance_test(on_the_own_stack_of_a_thread_of_nothing),
        instance_test(without_any_preparation_of_nothing),
        instance_test(the_stack_of_the_parent_is_another),
        instance_test(what_it_is_true_of_is_not_there_meanwhile),
    };
    return cmocka_run_group_tests_name("on own stack", tests, NULL, NULL);
}
