// SPDX-License-Identifier: Apache-2.0
/*
 * Memory: what is asked of the system is given back, and each request that the system refuses, one
 * after the other, ends in a line that names the call, the size and the error; or, in calls that
 * are for that, in NULL with errno and nothing kept.
 */
// build: tests/wrapped_memory.c -Wl,--wrap=malloc,--wrap=calloc,--wrap=free
// build: -Wl,--wrap=mmap,--wrap=munmap,--wrap=mprotect
#include "harness.h"
#include "wrapped_memory.h"

#include <errno.h>

/* ==== Scenario ================================================================================ */

static NOINLINE void grows(unsigned depth)
{
    unsigned char data[700];
    fill_from_seed(data, sizeof(data), depth);
    aco_yield();
    if (depth < 4) {
        grows(depth + 1);
    }
    CO_CHECK(is_from_seed(data, sizeof(data), depth));
}

static void grows_and_ends(void)
{
    grows(0);
    aco_exit();
}

/* Everything that asks for memory, and everything that gives it back. */
static void live_and_let_die(void *arg)
{
    (void)arg;
    memory.is_on = 1;
    memory.call = "aco_thread_init";
    aco_thread_init(NULL);
    memory.call = "aco_create";
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    memory.call = "aco_share_stack_new2";
    aco_share_stack_t *unguarded = aco_share_stack_new2(10000, 0);
    memory.call = "aco_share_stack_new";
    aco_share_stack_t *guarded = aco_share_stack_new(0);
    memory.call = "aco_create";
    aco_t *a = aco_create(main_co, guarded, 0, grows_and_ends, NULL);
    aco_t *b = aco_create(main_co, guarded, 1, grows_and_ends, NULL);
    aco_t *c = aco_create(main_co, guarded, 100000, grows_and_ends, NULL);
    aco_t *d = aco_create(main_co, unguarded, 0, yields_for_ever, NULL);
    memory.call = "aco_resume";
    while (!c->is_end) {
        aco_resume(a);
        aco_resume(b);
        aco_resume(c);
        aco_resume(d);
    }
    memory.call = "aco_destroy";
    aco_destroy(a);
    aco_destroy(b);
    aco_destroy(c);
    aco_destroy(d);
    memory.call = "aco_share_stack_destroy";
    aco_share_stack_destroy(guarded);
    aco_share_stack_destroy(unguarded);
    memory.call = "aco_destroy";
    aco_destroy(main_co);
    memory.is_on = 0;
}

static void live_and_forget(size_t refused)
{
    memset(&memory, 0, sizeof(memory));
    memory.refused = refused;
    live_and_let_die(NULL);
}

/* ==== Tests =================================================================================== */

static void everything_is_given_back(void **state)
{
    (void)state;
    live_and_forget(0);
    assert_co_checks();
    assert_int_equal(memory.ct_blocks, 0);
    assert_int_equal(memory.mapped_sz, 0);
}

static void a_coroutine_is_one_block_until_its_save_stack_grows(void **state)
{
    (void)state;
    live_and_forget(0);
    size_t ct_create = 0, ct_resume = 0;
    for (size_t i = 0; i < memory.ct_requests && i < MEMORY_LOG_SZ; i++) {
        ct_create += strcmp(memory.log[i].call, "aco_create") == 0;
        ct_resume += strcmp(memory.log[i].call, "aco_resume") == 0;
    }
    assert_int_equal(ct_create, 5);
    assert_true(ct_resume >= 4);
    assert_in_range(memory.ct_requests, ct_create + ct_resume, MEMORY_LOG_SZ);
}

static void refuse(void *number)
{
    live_and_forget((size_t)(uintptr_t)number);
}

static void every_refused_request_ends_in_words(void **state)
{
    (void)state;
    live_and_forget(0);
    assert_in_range(memory.ct_requests, 10, MEMORY_LOG_SZ);
    for (size_t i = 1; i <= memory.ct_requests; i++) {
        char words[64];
        snprintf(words, sizeof(words), "of %zu bytes failed, errno %d", memory.log[i - 1].sz,
                 ENOMEM);
        expect_abort(refuse, (void *)(uintptr_t)i, memory.log[i - 1].call, words);
    }
}

/* Refuses the guard page, with the error that `error` points to. */
static void refuse_guard(void *error)
{
    memset(&memory, 0, sizeof(memory));
    memory.refused = 3;
    memory.error = *(const int *)error;
    memory.is_on = 1;
    aco_share_stack_new(0);
}

static void the_remedy_fits_the_error(void **state)
{
    static const struct {
        int error;
        const char *words;
    } remedies[] = {
        {EPERM, ": the system forbids the call: "},
        {EACCES, ": the system forbids the call: "},
        {ENOSYS, ": the system forbids the call: "},
        {EAGAIN, ": too much memory is locked: "},
        {ENOMEM, ": free something first, or raise the limit on memory or on mappings"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SZ(remedies); i++) {
        int error = remedies[i].error;
        char words[120];
        snprintf(words, sizeof(words), "mprotect of %ld bytes failed, errno %d%s",
                 sysconf(_SC_PAGESIZE), error, remedies[i].words);
        expect_abort(refuse_guard, &error, "aco_share_stack_new", words);
    }
}

/* ==== Failure by return ======================================================================= */

/* Something to try, which takes a number of requests; returns what it got. */
typedef struct {
    void *(*act)(const instance_t *in);
    void (*undo)(void *got);
    size_t ct_requests;
} attempt_t;

static void *try_guarded(const instance_t *in)
{
    (void)in;
    return aco_try_share_stack_new2(0, 1);
}

static void *try_unguarded(const instance_t *in)
{
    (void)in;
    return aco_try_share_stack_new2(10000, 0);
}

static void *try_co(const instance_t *in)
{
    return aco_try_create(in->main_co, in->stack, 500, yields_for_ever, NULL);
}

static void *try_main_co(const instance_t *in)
{
    (void)in;
    return aco_try_create(NULL, NULL, 0, NULL, NULL);
}

static void destroy_stack(void *got)
{
    aco_share_stack_destroy((aco_share_stack_t *)got);
}

static void destroy_co(void *got)
{
    aco_destroy((aco_t *)got);
}

static const attempt_t attempts[] = {
    {try_guarded, destroy_stack, 3},
    {try_unguarded, destroy_stack, 2},
    {try_co, destroy_co, 1},
    {try_main_co, destroy_co, 1},
};

/* Does so with one request refused, or none if 0. */
static void *attempt(const attempt_t *try, const instance_t *in, size_t refused)
{
    memset(&memory, 0, sizeof(memory));
    memory.refused = refused;
    memory.is_on = 1;
    errno = 0;
    void *got = try->act(in);
    memory.is_on = 0;
    return got;
}

static void refused_requests_are_told_and_leave_nothing(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (size_t i = 0; i < ARRAY_SZ(attempts); i++) {
        size_t ct_coroutines = in->stack->ct_coroutines;
        for (size_t refused = 1; refused <= attempts[i].ct_requests; refused++) {
            assert_null(attempt(&attempts[i], in, refused));
            assert_int_equal(errno, ENOMEM);
            assert_int_equal(memory.ct_requests, refused);
            assert_int_equal(memory.ct_blocks, 0);
            assert_int_equal(memory.mapped_sz, 0);
            assert_int_equal(in->stack->ct_coroutines, ct_coroutines);
        }
    }
}

static void what_is_not_refused_is_as_good_as_any(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (size_t i = 0; i < ARRAY_SZ(attempts); i++) {
        void *got = attempt(&attempts[i], in, 0);
        assert_non_null(got);
        assert_int_equal(memory.ct_requests, attempts[i].ct_requests);
        memory.is_on = 1;
        attempts[i].undo(got);
        memory.is_on = 0;
        assert_int_equal(memory.ct_blocks, 0);
        assert_int_equal(memory.mapped_sz, 0);
    }
}

static void what_can_run_runs(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stack = aco_try_share_stack_new2(100000, 1);
    assert_true(stack->guard_page_enabled == 1 && stack->align_limit >= 100000);
    aco_t *co = aco_try_create(in->main_co, stack, 0, yields_for_ever, NULL);
    assert_int_equal(co->save_stack.sz, 64);
    aco_resume(co);
    aco_resume(co);
    assert_invariants(co);
    aco_destroy(co);
    aco_share_stack_destroy(stack);
}

static void impossible_sizes_are_told(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 100, SIZE_MAX / 2 + 1};
    for (size_t i = 0; i < ARRAY_SZ(sizes); i++) {
        errno = 0;
        assert_null(aco_try_create(in->main_co, in->stack, sizes[i], yields_for_ever, NULL));
        assert_int_equal(errno, ENOMEM);
        errno = 0;
        assert_null(aco_try_share_stack_new2(sizes[i], 1));
        assert_int_equal(errno, ENOMEM);
    }
    assert_int_equal(in->stack->ct_coroutines, 0);
}

/* ==== aco_new() =============================================================================== */

static void aco_new_gives_what_can_be_written_and_freed(void **state)
{
    (void)state;
    memset(&memory, 0, sizeof(memory));
    memory.is_on = 1;
    ESCAPE(&memory); /* to a compiler, malloc() does not look at it */
    int *numbers;
    aco_new(numbers, 10 * sizeof(*numbers));
    ESCAPE(&memory);
    memory.is_on = 0;
    assert_int_equal(memory.log[0].sz, 10 * sizeof(*numbers));
    memset(numbers, 1, 10 * sizeof(*numbers));
    ESCAPE(numbers);
    free(numbers);
}

static void new_refused(void *arg)
{
    char *my_block;
    (void)arg;
    memory.refused = memory.ct_requests + 1;
    memory.is_on = 1;
    ESCAPE(&memory);
    aco_new(my_block, 100);
    ESCAPE(my_block);
}

static void aco_new_that_is_refused_ends_in_words(void **state)
{
    (void)state;
    expect_abort(new_refused, NULL, "new_refused", "out of memory: my_block is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_given_back),
        cmocka_unit_test(a_coroutine_is_one_block_until_its_save_stack_grows),
        cmocka_unit_test(every_refused_request_ends_in_words),
        cmocka_unit_test(the_remedy_fits_the_error),
        instance_test(refused_requests_are_told_and_leave_nothing),
        instance_test(what_is_not_refused_is_as_good_as_any),
        instance_test(what_can_run_runs),
        instance_test(impossible_sizes_are_told),
        cmocka_unit_test(aco_new_gives_what_can_be_written_and_freed),
        cmocka_unit_test(aco_new_that_is_refused_ends_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
