// SPDX-License-Identifier: Apache-2.0
/* A nested function of gcc's, called by its address in a coroutine. With an argument, its share
 * stack is executable, as the code that gcc puts there must be. */
#include "aco.h"

static __attribute__((noinline)) int call(int (*function)(int), int arg)
{
    return function(arg);
}

static void calls_nested_function(void)
{
    int sum = 1;
    int add(int arg)
    {
        return sum += arg;
    }
    int first = call(add, 2);
    aco_yield();
    aco_assert(first == 3 && call(add, 4) == 7 && sum == 7);
    aco_exit();
}

int main(int argc, char **argv)
{
    (void)argv;
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    if (argc > 1) {
        aco_assert(mprotect(stack->ptr, stack->sz, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    }
    aco_t *co = aco_create(main_co, stack, 0, calls_nested_function, NULL);
    aco_t *other = aco_create(main_co, stack, 0, calls_nested_function, NULL);
    aco_resume(co);
    aco_resume(other);
    aco_resume(co);
    aco_resume(other);
    aco_assert(co->is_end && other->is_end);
    return 0;
}
