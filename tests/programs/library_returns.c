// SPDX-License-Identifier: Apache-2.0
/*
 * A coroutine with control words of its own, so that each switch loads some, in the program's own
 * code and in that of the library, and which returns from its entry function in the end. For
 * test_shared_library.sh, which links it as position-independent code: what is called meanwhile is
 * then behind the PLT. Exits with 0 if all is well.
 */
#include "aco.h"
#include "tests/control_words.h"

#define ROUNDS 4

static void (*volatile resume_there)(aco_t *co) = aco_resume;
static void (*volatile yield_there)(void) = aco_yield;
static unsigned wrong;

static void expect(words_t words)
{
    wrong += !have_same_control(read_words(), words);
}

static void rounds_and_returns(void)
{
    words_t own = sets[1];
    write_words(own);
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 2 == 0) {
            aco_yield();
        } else {
            yield_there();
        }
        expect(own);
    }
}

static void ends(void)
{
    expect(sets[1]);
    aco_exit();
}

int main(void)
{
    int ct = 0;
    aco_thread_init(ends);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *co = aco_create(main_co, stack, 0, rounds_and_returns, NULL);
    for (; !co->is_end; ct++) {
        if (ct / 2 % 2 == 0) {
            aco_resume(co);
        } else {
            resume_there(co);
        }
        expect(usual);
    }
    aco_destroy(co);
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
    return wrong != 0 || ct != ROUNDS + 1;
}
