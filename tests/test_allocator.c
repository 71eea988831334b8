// SPDX-License-Identifier: Apache-2.0
/*
 * aco_set_allocator(): all that the library allocates comes from the one function and goes back by
 * the other, in blocks as it asked for them, and nothing by malloc() and free(); a failure is
 * reported as one of malloc() is.
 */
// build: tests/wrapped_memory.c -Wl,--wrap=malloc,--wrap=calloc,--wrap=free
// build: -Wl,--wrap=mmap,--wrap=munmap,--wrap=mprotect
#include "harness.h"
#include "wrapped_memory.h"

#include <errno.h>

/* ==== Allocator =============================================================================== */

#define BLOCK_CT 20

/* The blocks that were handed out and not given back; no other is taken. */
static struct {
    void *blocks[BLOCK_CT];
    unsigned ct_allocate, ct_release, ct_foreign;
    int error; /* with which it refuses, or 0 */
} hooks;

static void *find_room(void *block)
{
    for (size_t i = 0; i < BLOCK_CT; i++) {
        if (hooks.blocks[i] == block) {
            return &hooks.blocks[i];
        }
    }
    return NULL;
}

static void *hook_allocate(size_t sz)
{
    void **room = (void **)find_room(NULL);
    hooks.ct_allocate++;
    if (hooks.error != 0 || room == NULL) {
        errno = hooks.error;
        return NULL;
    }
    return *room = __real_malloc(sz);
}

static void hook_release(void *ptr)
{
    void **room = ptr != NULL ? (void **)find_room(ptr) : NULL;
    hooks.ct_release++;
    hooks.ct_foreign += room == NULL;
    if (room != NULL) {
        *room = NULL;
        __real_free(ptr);
    }
    errno = EBADF;
}

static int set_hooks(void **state)
{
    (void)state;
    memset(&hooks, 0, sizeof(hooks));
    memset(&memory, 0, sizeof(memory));
    aco_set_allocator(hook_allocate, hook_release);
    return 0;
}

static int unset_hooks(void **state)
{
    (void)state;
    aco_set_allocator(malloc, free);
    return 0;
}

/* ==== Scenario ================================================================================ */

static NOINLINE void fill_and_yield(size_t sz)
{
    unsigned char data[sz];
    fill_from_seed(data, sz, 1);
    aco_yield();
    CO_CHECK(is_from_seed(data, sz, 1));
}

/* A save stack grows, and so does what it has grown to. */
static void fills_and_yields(void)
{
    fill_and_yield(2000);
    fill_and_yield(6000);
    aco_exit();
}

/* Each kind of block: two share stacks, a main coroutine, coroutines, save stacks that grow. */
static void use_everything(void)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *guarded = aco_share_stack_new(0);
    aco_share_stack_t *unguarded = aco_try_share_stack_new2(10000, 0);
    aco_t *a = aco_create(main_co, guarded, 0, fills_and_yields, NULL);
    aco_t *b = aco_try_create(main_co, guarded, 0, fills_and_yields, NULL);
    aco_t *c = aco_create(a, unguarded, 10, yields_for_ever, NULL);
    while (!a->is_end || !b->is_end) {
        aco_resume(a);
        aco_resume(b);
    }
    aco_destroy(c);
    aco_destroy(a);
    aco_destroy(b);
    aco_share_stack_destroy(guarded);
    aco_share_stack_destroy(unguarded);
    aco_destroy(main_co);
}

/* ==== Tests =================================================================================== */

static void all_blocks_come_from_it_and_go_back(void **state)
{
    (void)state;
    memory.is_on = 1;
    use_everything();
    memory.is_on = 0;
    assert_co_checks();
    /* Two mappings and a guard page are not its business. */
    assert_int_equal(memory.ct_requests, 3);
    assert_int_equal(memory.ct_blocks, 0);
    assert_true(hooks.ct_allocate >= 6 + 4);
    assert_int_equal(hooks.ct_release, hooks.ct_allocate);
    assert_int_equal(hooks.ct_foreign, 0);
    for (size_t i = 0; i < BLOCK_CT; i++) {
        assert_null(hooks.blocks[i]);
    }
}

/* The optional parts allocate by the same allocator. */
static void parts_allocate_by_it(void **state)
{
    (void)state;
    memory.is_on = 1;
    void *block = aco_i_allocate(100);
    assert_non_null(block);
    assert_int_equal(hooks.ct_allocate, 1);
    assert_ptr_equal(hooks.blocks[0], block);
    aco_i_release(block);
    aco_i_release(NULL);
    memory.is_on = 0;
    assert_int_equal(hooks.ct_release, 1);
    assert_int_equal(hooks.ct_foreign, 0);
    assert_int_equal(memory.ct_requests, 0);
    assert_null(hooks.blocks[0]);
    hooks.error = EDQUOT;
    assert_null(aco_i_allocate(100));
    assert_int_equal(errno, EDQUOT);
}

/* The allocator's own reason gets through, whatever releasing leaves in errno. */
static void its_error_is_told(void **state)
{
    (void)state;
    hooks.error = EDQUOT;
    aco_thread_init(NULL);
    assert_null(aco_try_create(NULL, NULL, 0, NULL, NULL));
    assert_int_equal(errno, EDQUOT);
    assert_null(aco_try_share_stack_new2(0, 1));
    assert_int_equal(errno, EDQUOT);
    hooks.error = 0;
    memory.refused = 1;
    memory.is_on = 1;
    assert_null(aco_try_share_stack_new2(0, 1));
    memory.is_on = 0;
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(hooks.ct_release, 1);
    assert_int_equal(hooks.ct_foreign, 0);
}

static void create_main(void *arg)
{
    (void)arg;
    hooks.error = EDQUOT;
    aco_create(NULL, NULL, 0, NULL, NULL);
}

static void new_share_stack(void *arg)
{
    (void)arg;
    hooks.error = EDQUOT;
    aco_share_stack_new(0);
}

static void grow_save_stack(void *arg)
{
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *a = aco_create(main_co, stack, 0, fills_and_yields, NULL);
    aco_t *b = aco_create(main_co, stack, 0, fills_and_yields, NULL);
    (void)arg;
    hooks.error = EDQUOT;
    aco_resume(a);
    aco_resume(b);
}

static void its_failures_end_in_words(void **state)
{
    char words[64];
    (void)state;
    aco_thread_init(NULL);
    snprintf(words, sizeof(words), " bytes failed, errno %d", EDQUOT);
    const char *line = expect_abort(create_main, NULL, "aco_create", words);
    assert_non_null(strstr(line, "the program's allocator of "));
    expect_abort(new_share_stack, NULL, "aco_share_stack_new", words);
    expect_abort(grow_save_stack, NULL, "aco_resume", words);
}

static void malloc_and_free_are_the_default(void **state)
{
    (void)state;
    aco_set_allocator(malloc, free);
    memory.is_on = 1;
    use_everything();
    memory.is_on = 0;
    assert_int_equal(hooks.ct_allocate, 0);
    assert_true(memory.ct_requests >= 3 + 6 + 4);
    assert_int_equal(memory.ct_blocks, 0);
}

int main(void)
{
#define HOOKS_TEST(f) cmocka_unit_test_setup_teardown(f, set_hooks, unset_hooks)
    const struct CMUnitTest tests[] = {
        HOOKS_TEST(all_blocks_come_from_it_and_go_back),
        HOOKS_TEST(parts_allocate_by_it),
        HOOKS_TEST(its_error_is_told),
        HOOKS_TEST(its_failures_end_in_words),
        HOOKS_TEST(malloc_and_free_are_the_default),
    };
    return cmocka_run_group_tests_name("allocator", tests, NULL, NULL);
}
