// hello.c shows the four-file way: a project that has aco among its sources.
// SPDX-License-Identifier: Apache-2.0
//
// All that a project needs beside the four files: an include and three more words to make.
#include <stdio.h>

#include "aco/aco.h"
#include "aco/aco_assert_override.h"

static void greet(void)
{
    const char *whom = (const char *)aco_get_arg();
    assert(whom != NULL);
    printf("hello, ");
    aco_yield();
    printf("%s\n", whom);
    aco_exit();
}

int main(void)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *co = aco_create(main_co, stack, 0, greet, (void *)"project");
    while (!co->is_end) {
        aco_resume(co);
    }
    aco_destroy(co);
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
    return 0;
}
