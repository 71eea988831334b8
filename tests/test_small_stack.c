// SPDX-License-Identifier: Apache-2.0
/*
 * The words of a misuse come out on the smallest stack as well, and even where a coroutine has
 * spent all of it but 4096 bytes: what prints them must be content with that.
 *
 * Functions are bound at the start, because finding one at its first call takes stack as well, and
 * on processors with wide registers more than anything here.
 */
// build: -Wl,-z,now
#include "harness.h"

#define STACK_SZ 4096u /* bytes, of which no coroutine can have less */

/* Mistakes of a coroutine on a small stack, and how many bytes it leaves for them. */
typedef struct {
    void (*act)(aco_t *other);
    const char *call, *words;
    size_t room;  /* 0: all there is */
    aco_t *other; /* has yielded, on another stack */
} misuse_t;

static void resume_other(aco_t *other)
{
    aco_resume(other);
}

static void resume_self(aco_t *other)
{
    (void)other;
    aco_resume(aco_get_co());
}

static void yield1_other(aco_t *other)
{
    aco_yield1(other);
}

static void exit1_other(aco_t *other)
{
    aco_exit1(other);
}

static void destroy_self(aco_t *other)
{
    (void)other;
    aco_destroy(aco_get_co());
}

static void destroy_own_stack(aco_t *other)
{
    (void)other;
    aco_share_stack_destroy(aco_get_co()->share_stack);
}

static void create_without_stack(aco_t *other)
{
    aco_create(other->main_co, NULL, 0, ends_at_once, NULL);
}

static void create_too_large(aco_t *other)
{
    aco_create(other->main_co, other->share_stack, SIZE_MAX, ends_at_once, NULL);
}

static void assert_what_is_not(aco_t *other)
{
    aco_assert(other == NULL);
}

static void return_from_entry_function(aco_t *other)
{
    (void)other;
}

static const misuse_t misuses[] = {
    {resume_other, "aco_resume", "caller is not its parent", 0, NULL},
    {resume_self, "aco_resume", "the coroutine is running", 0, NULL},
    {yield1_other, "aco_yield1", "not the one that runs", 0, NULL},
    {exit1_other, "aco_exit1", "not the one that runs", 0, NULL},
    {destroy_self, "aco_destroy", "running", 0, NULL},
    {destroy_own_stack, "aco_share_stack_destroy", "is running", 0, NULL},
    {create_without_stack, "aco_create", "NULL", 0, NULL},
    {create_too_large, "aco_create", "malloc", 0, NULL},
    {assert_what_is_not, "assert_what_is_not", "other == NULL", 0, NULL},
    {return_from_entry_function, "aco_exit", "returned", 0, NULL},
};

static void misuses_with_little_room(void)
{
    const misuse_t *misuse = (const misuse_t *)aco_get_arg();
    const char *here = (const char *)__builtin_frame_address(0);
    size_t room = (size_t)(here - (const char *)aco_get_co()->share_stack->ptr);
    size_t spent = misuse->room == 0 || room <= misuse->room ? 1 : room - misuse->room;
    unsigned char data[spent];
    ESCAPE(data);
    misuse->act(misuse->other);
    ESCAPE(data);
}

static void resume(void *co)
{
    aco_resume((aco_t *)co);
}

static void misuse_with_room(const instance_t *in, size_t room)
{
    aco_share_stack_t *stack = aco_share_stack_new(STACK_SZ);
    aco_t *other = make_co(in, yields_for_ever, NULL);
    aco_resume(other);
    for (size_t i = 0; i < ARRAY_SZ(misuses); i++) {
        misuse_t misuse = misuses[i];
        misuse.room = room;
        misuse.other = other;
        aco_t *co = aco_create(in->main_co, stack, 0, misuses_with_little_room, &misuse);
        expect_abort(resume, co, misuse.call, misuse.words);
        aco_destroy(co);
    }
    aco_destroy(other);
    aco_share_stack_destroy(stack);
}

static void words_come_out_on_the_smallest_stack(void **state)
{
    misuse_with_room((const instance_t *)*state, 0);
}

static void words_come_out_where_4096_bytes_are_left(void **state)
{
    misuse_with_room((const instance_t *)*state, STACK_SZ);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(words_come_out_on_the_smallest_stack),
        instance_test(words_come_out_where_4096_bytes_are_left),
    };
    return cmocka_run_group_tests_name("small stack", tests, NULL, NULL);
}
