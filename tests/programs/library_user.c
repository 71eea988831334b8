// SPDX-License-Identifier: Apache-2.0
/*
 * A small program like any that uses the library: two coroutines on one share stack take turns, and
 * what they add up must be right. For scripts that build it in unusual ways; exits with 0 if all is
 * well.
 */
#include "aco.h"

#define ROUNDS 100

static void adds_up(void)
{
    int *sum = (int *)aco_get_arg();
    int step = *sum;
    for (int i = 0; i < ROUNDS; i++) {
        *sum += step;
        aco_yield();
    }
    aco_exit();
}

int main(void)
{
    int sums[2] = {1, 2};
    aco_t *cos[2];
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    for (int i = 0; i < 2; i++) {
        cos[i] = aco_create(main_co, stack, 0, adds_up, &sums[i]);
    }
    while (!cos[1]->is_end) {
        aco_resume(cos[0]);
        aco_resume(cos[1]);
    }
    int is_right = aco_version() == ACO_VERSION && cos[0]->is_end && sums[0] == 1 + ROUNDS &&
                   sums[1] == 2 + 2 * ROUNDS && cos[0]->save_stack.ct_save != 0;
    aco_destroy(cos[0]);
    aco_destroy(cos[1]);
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
    return !is_right;
}
