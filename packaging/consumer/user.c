// SPDX-License-Identifier: Apache-2.0
/*
 * A program that uses an installed library, of which it knows no more than the core: coroutines on
 * one share stack take turns at counting. Is C as well as C++; exits with 0 if all is well.
 */
#include "aco.h"
#include "aco_assert_override.h"

#define TURNS 3

static void count(void)
{
    for (int i = 0; i < TURNS; i++) {
        ++*(int *)aco_get_arg();
        aco_yield();
    }
    aco_exit();
}

int main(void)
{
    int counts[2] = {0, 0};
    aco_t *cos[2];
    assert(aco_version() == ACO_VERSION);
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    for (int i = 0; i < 2; i++) {
        cos[i] = aco_create(main_co, stack, 0, count, &counts[i]);
    }
    while (!cos[1]->is_end) {
        aco_resume(cos[0]);
        aco_resume(cos[1]);
    }
    assert(counts[0] == TURNS && counts[1] == TURNS);
    assert(cos[0]->save_stack.ct_restore == TURNS);
    aco_destroy(cos[0]);
    aco_destroy(cos[1]);
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
    puts("the core works");
    return 0;
}
