// SPDX-License-Identifier: Apache-2.0
/*
 * The end of a thread by pthread_exit() and pthread_cancel(): in a coroutine it is found out, on the
 * thread's own stack it is nothing special.
 */
#include "harness.h"

#include <pthread.h>

static void make_instance_here(instance_t *in)
{
    aco_thread_init(NULL);
    in->main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    in->stack = aco_share_stack_new(0);
}

static void ends_the_thread(void)
{
    pthread_exit(NULL);
}

static void waits_to_be_cancelled(void)
{
    pthread_cancel(pthread_self());
    pthread_testcancel();
    aco_exit();
}

/* Runs a coroutine, for ever, or until it ends. */
static void *run_coroutine(void *entry)
{
    instance_t in;
    make_instance_here(&in);
    aco_t *co = make_co(&in, *(const aco_cofuncp_t *)entry, NULL);
    while (!co->is_end) {
        aco_resume(co);
    }
    return NULL;
}

static void run_coroutine_on_thread(void *entry)
{
    pthread_t thread;
    _exit(pthread_create(&thread, NULL, run_coroutine, entry) == 0 &&
          pthread_join(thread, NULL) == 0 ? 0 : 1);
}

static void one_that_ends_in_a_coroutine_is_found_out(void **state)
{
    static const aco_cofuncp_t entries[] = {ends_the_thread, waits_to_be_cancelled};
    (void)state;
    for (size_t i = 0; i < ARRAY_SZ(entries); i++) {
        aco_cofuncp_t entry = entries[i];
        const char *line = expect_abort(run_coroutine_on_thread, &entry, "pthread_exit",
                                        "while the coroutine ran");
        assert_names_code(line, entry);
    }
}

static void ends_main_thread(void *arg)
{
    run_coroutine(arg);
}

static void the_main_thread_is_no_exception(void **state)
{
    aco_cofuncp_t entry = ends_the_thread;
    (void)state;
    expect_abort(ends_main_thread, &entry, "pthread_exit", "while the coroutine ran");
}

/* With coroutines that are suspended, by pthread_exit() or by return, before any was resumed and
 * after its main coroutine was destroyed. */
static void *end_properly(void *how)
{
    instance_t in;
    int bits = *(const int *)how;
    make_instance_here(&in);
    aco_t *co = make_co(&in, yields_for_ever, NULL);
    if (bits & 1) {
        aco_resume(co);
    }
    if (bits & 2) {
        aco_destroy(co);
        aco_share_stack_destroy(in.stack);
        aco_destroy(in.main_co);
    }
    if (bits & 4) {
        pthread_exit(NULL);
    }
    return NULL;
}

static void end_all_properly(void *arg)
{
    (void)arg;
    for (int bits = 0; bits < 8; bits++) {
        pthread_t thread;
        pthread_create(&thread, NULL, end_properly, &bits);
        pthread_join(thread, NULL);
    }
}

static void one_that_ends_on_its_own_stack_may(void **state)
{
    (void)state;
    expect_exit(end_all_properly, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_ends_in_a_coroutine_is_found_out),
        cmocka_unit_test(the_main_thread_is_no_exception),
        cmocka_unit_test(one_that_ends_on_its_own_stack_may),
    };
    return cmocka_run_group_tests_name("thread end", tests, NULL, NULL);
}
