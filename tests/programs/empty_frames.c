// SPDX-License-Identifier: Apache-2.0
/*
 * Entry functions that never return and keep nothing, which some compilers give no frame: that they
 * have begun must show all the same. Relies on aco.h.
 */
#include "aco.h"

static aco_t *main_co;
static aco_share_stack_t *stack;

static void ends(void)
{
    aco_yield();
    aco_exit();
}

static void never_ends(void)
{
    for (;;) {
        aco_yield();
    }
}

static __attribute__((noreturn)) void never_returns(void)
{
    aco_yield();
    aco_exit();
}

static int has_begun(aco_cofuncp_t fp, const char *name)
{
    aco_t *co = aco_create(main_co, stack, 0, fp, NULL);
    aco_resume(co);
    int is_suspended = aco_status(co) == ACO_STATUS_SUSPENDED;
    if (!is_suspended) {
        printf("%s: has begun, and its state is init\n", name);
    }
    aco_destroy(co);
    return is_suspended;
}

int main(void)
{
    aco_thread_init(NULL);
    main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    stack = aco_share_stack_new(0);
    int all = has_begun(ends, "ends") & has_begun(never_ends, "never_ends") &
              has_begun(never_returns, "never_returns");
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
    return all ? 0 : 1;
}
