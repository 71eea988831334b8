// SPDX-License-Identifier: Apache-2.0
/*
 * Tutorial 4: an offender. Its entry function returns instead of calling aco_exit(), which is an
 * error: there is nobody to return to. The library says on stderr which coroutine it was and aborts
 * the process (a shell shows status 134). That is how this program must end.
 */
#include "aco.h"

#include <stdio.h>
#include <stdlib.h>

static void forget_to_exit(void)
{
    aco_yield();
    printf("coroutine: return without aco_exit()\n");
    /* abort() drops what stdio has not written yet. */
    fflush(stdout);
}

int main(void)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *share_stack = aco_share_stack_new(0);
    aco_t *co = aco_create(main_co, share_stack, 0, forget_to_exit, NULL);

    aco_resume(co);
    printf("main: so far the coroutine %p has done nothing wrong\n", (void *)co);
    aco_resume(co);

    fprintf(stderr, "main: the library did not notice\n");
    return EXIT_FAILURE;
}
