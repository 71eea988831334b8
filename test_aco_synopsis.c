// SPDX-License-Identifier: Apache-2.0
/*
 * The library on one page: prepare the thread, make its main coroutine, a share stack and one
 * coroutine, resume that until it ends, free everything. The coroutine counts and yields after each
 * number, so main can check that it has come exactly one step further.
 */
#include "aco.h"

#include <stdio.h>

#include "aco_assert_override.h"

#define LAST_NUMBER 5

static void count_up(void)
{
    int *number = aco_get_arg();
    while (*number < LAST_NUMBER) {
        (*number)++;
        printf("    coroutine: %d\n", *number);
        aco_yield();
    }
    printf("    coroutine: that was the last number\n");
    aco_exit();
}

int main(void)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *share_stack = aco_share_stack_new(0);

    int number = 0;
    aco_t *co = aco_create(main_co, share_stack, 0, count_up, &number);

    for (int expected = 1; expected <= LAST_NUMBER; expected++) {
        printf("main: resume\n");
        aco_resume(co);
        assert(number == expected);
        assert(!co->is_end);
    }
    printf("main: resume for the last time\n");
    aco_resume(co);
    assert(number == LAST_NUMBER);
    assert(co->is_end);
    printf("main: the coroutine has ended\n");

    aco_destroy(co);
    aco_share_stack_destroy(share_stack);
    aco_destroy(main_co);
    return 0;
}
