// SPDX-License-Identifier: Apache-2.0
/*
 * The end of a thread by pthread_exit() and pthread_cancel(): in a coroutine it is detected, on the
 * thread's own stack it is nothing special.
 *
 * The linker leads what makes and deletes keys of threads to functions here: the first key is the
 * library's, made before main().
 */
// build: -Wl,--wrap=pthread_key_create,--wrap=pthread_key_delete
#include "harness.h"

#include <errno.h>
#include <pthread.h>

#define NO_KEYS "ACO_TEST_NO_KEYS" /* in the environment: no key can be made */
#define DELETED 3                  /* exit status of a child that ends and deletes the key */

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
                  pthread_join(thread, NULL) == 0
              ? 0
              : 1);
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

/* ==== The key ================================================================================= */

static pthread_key_t first_key;
static char has_first_key, is_leaving;

int __real_pthread_key_create(pthread_key_t *key, void (*destroy)(void *));
int __real_pthread_key_delete(pthread_key_t key);
int __wrap_pthread_key_create(pthread_key_t *key, void (*destroy)(void *));
int __wrap_pthread_key_delete(pthread_key_t key);

int __wrap_pthread_key_create(pthread_key_t *key, void (*destroy)(void *))
{
    int error = getenv(NO_KEYS) != NULL ? EAGAIN : __real_pthread_key_create(key, destroy);
    if (error == 0 && !has_first_key) {
        first_key = *key;
        has_first_key = 1;
    }
    return error;
}

int __wrap_pthread_key_delete(pthread_key_t key)
{
    if (is_leaving) {
        _exit(has_first_key && key == first_key ? DELETED : 1);
    }
    return __real_pthread_key_delete(key);
}

static void leave(void *arg)
{
    (void)arg;
    is_leaving = 1;
    exit(0);
}

static void the_key_goes_with_the_library(void **state)
{
    (void)state;
    expect_exit(leave, NULL, DELETED);
}

/* Runs in place of the tests if the program has an argument: coroutines run all the same. */
static void run_without_keys(void)
{
    aco_cofuncp_t entry = ends_at_once;
    run_coroutine(&entry);
    leave(NULL);
}

static void execute_without_keys(void *arg)
{
    (void)arg;
    setenv(NO_KEYS, "", 1);
    execl("/proc/self/exe", "test_thread_end", "run", (char *)NULL);
    _exit(2);
}

static void a_key_that_was_not_made_is_not_deleted(void **state)
{
    (void)state;
    if (EMULATED) {
        skip();
    }
    expect_exit(execute_without_keys, NULL, 0);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        run_without_keys();
    }
    /* Static, as red zones of ASan would stay in a frame that the end of the main thread leaves. */
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_ends_in_a_coroutine_is_found_out),
        cmocka_unit_test(the_main_thread_is_no_exception),
        cmocka_unit_test(one_that_ends_on_its_own_stack_may),
        cmocka_unit_test(the_key_goes_with_the_library),
        cmocka_unit_test(a_key_that_was_not_made_is_not_deleted),
    };
    return cmocka_run_group_tests_name("thread end", tests, NULL, NULL);
}
