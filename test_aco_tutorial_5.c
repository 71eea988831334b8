// SPDX-License-Identifier: Apache-2.0
/*
 * Tutorial 5: the same offence, with a last-word function of the program's own. It was passed to
 * aco_thread_init(), runs on the offender's stack, and there aco_get_co() tells who that is; a
 * program would write its log here. It can't save the process, which aborts (a shell shows status
 * 134) when it returns. If something is not as it should be, this program ends with status 1
 * instead, because an abort would look right.
 */
#include "aco.h"

#include <stdio.h>
#include <stdlib.h>

static aco_t *offender;

static void forget_to_exit(void)
{
    aco_yield();
}

static void fail_unless(int holds, const char *fact)
{
    if (!holds) {
        fprintf(stderr, "last word: wrong: %s\n", fact);
        exit(EXIT_FAILURE);
    }
}

static void last_word(void)
{
    const aco_t *co = aco_get_co();
    fail_unless(co == offender, "aco_get_co() is not the offender");
    fail_unless(co->fp == forget_to_exit, "its fp is not the entry function");
    fail_unless(!co->is_end, "it counts as ended");
    fail_unless(co->share_stack->owner == co, "it does not own the stack that this runs on");
    fprintf(stderr, "last word: the coroutine named \"%s\" (%p) returned from its entry function\n",
            (const char *)co->arg, (const void *)co);
}

int main(void)
{
    char name[] = "forgetful";
    aco_thread_init(last_word);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *share_stack = aco_share_stack_new(0);
    offender = aco_create(main_co, share_stack, 0, forget_to_exit, name);

    aco_resume(offender);
    aco_resume(offender);

    fprintf(stderr, "main: the library did not notice\n");
    return EXIT_FAILURE;
}
