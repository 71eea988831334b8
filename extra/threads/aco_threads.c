// SPDX-License-Identifier: Apache-2.0
/*
 * Implements aco_threads.h. A coroutine that is alone on its share stack is bound to its thread
 * only by its parent and, with ACO_CONFIG_LIST, by the list of coroutines: so these change.
 */
#include "aco_threads.h"

/* The parent of detached coroutines. It belongs to no thread, so no thread may resume them. */
static aco_t nobody = {.save_stack = {.ptr = &nobody}};

static void check(int holds, const char *call, const aco_t *co, const char *rule_and_remedy)
{
    if (!holds) {
        aco_i_fail(call, co, rule_and_remedy);
    }
}

/* The save_stack.ptr of a main coroutine is an address of the thread that made it. */
static int is_of_this_thread(const aco_t *co)
{
    while (co->main_co != NULL) {
        co = co->main_co;
    }
    return co->save_stack.ptr == &aco_gtls_co;
}

void aco_detach(aco_t *co)
{
    const char *call = "aco_detach";
    check(co != NULL && co->main_co != NULL, call, co,
          "NULL or a main coroutine: pass what aco_create() returned for another one");
    check(is_of_this_thread(co), call, co,
          "the coroutine is detached, or of another thread: detach it once, on its own thread");
    check(aco_status(co) != ACO_STATUS_RUNNING, call, co,
          "the coroutine is running, or waits for one it resumed: let it yield first");
    check(co->share_stack->ct_coroutines == 1, call, co,
          "other coroutines use its share stack: create it on one of its own");
    aco_i_take_from_list(co);
    co->main_co = &nobody;
}

void aco_attach(aco_t *co, aco_t *main_co)
{
    const char *call = "aco_attach";
    check(co != NULL && co->main_co == &nobody, call, co,
          "NULL or a coroutine that is not detached: call aco_detach() on its thread first");
    check(main_co != NULL && is_of_this_thread(main_co), call, co,
          "main_co is NULL or of another thread: pass a coroutine of the calling thread");
    co->main_co = main_co;
    aco_i_enter_in_list(co);
}

void aco_movable_yield(void)
{
    aco_i_suspend("aco_movable_yield", aco_gtls_co);
}

aco_t *aco_movable_co(void)
{
    return aco_get_co();
}
