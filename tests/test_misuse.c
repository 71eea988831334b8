// SPDX-License-Identifier: Apache-2.0
/*
 * Every call, every rule that it has, broken from every place where that is possible: each ends in
 * one line that names the call, the rule and the coroutine, and in SIGABRT. Misuse that takes
 * several threads, the end of a share stack or of memory has test programs of its own.
 */
// build: -Wl,--wrap=write,--wrap=readlink
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>

/* ==== Cases =================================================================================== */

/* Coroutines of which most states can be had; all but one on one share stack. */
typedef struct {
    aco_t *main_co;
    aco_share_stack_t *stack;
    aco_t *init;    /* never resumed */
    aco_t *yielded; /* resumed once, unless the place is FRESH */
    aco_t *ended;   /* the same */
    aco_t *self;    /* in which the misuse happens if the place is COROUTINE */
    aco_t *child;   /* of self, on another share stack; the same for CHILD */
} world_t;

#include "tests/misuse.h"

/* ==== aco_create ============================================================================== */

static void create_without_stack(world_t *w)
{
    aco_create(w->main_co, NULL, 0, ends_at_once, NULL);
}

static void create_for_another(world_t *w)
{
    aco_create(w->init, w->stack, 0, ends_at_once, NULL);
}

static void create_for_self(world_t *w)
{
    aco_create(w->self, w->stack, 0, ends_at_once, NULL);
}

static void try_create_without_stack(world_t *w)
{
    aco_try_create(w->main_co, NULL, 0, ends_at_once, NULL);
}

static void try_create_for_another(world_t *w)
{
    aco_try_create(w->init, w->stack, 0, ends_at_once, NULL);
}

static char room[4096] __attribute__((aligned(16)));

static void create_in_for_another(world_t *w)
{
    aco_create_in(room, sizeof(room), w->init, w->stack, ends_at_once, NULL);
}

static void create_main_with_stack(world_t *w)
{
    aco_create(NULL, w->stack, 0, NULL, NULL);
}

static void create_main_with_save_stack_size(world_t *w)
{
    (void)w;
    aco_create(NULL, NULL, 1, NULL, NULL);
}

static void create_with_everything_but_main(world_t *w)
{
    aco_create(NULL, w->stack, 0, ends_at_once, NULL);
}

/* ==== aco_resume ============================================================================== */

static void resume_null(world_t *w)
{
    (void)w;
    aco_resume(NULL);
}

static void resume_main(world_t *w)
{
    aco_resume(w->main_co);
}

static void resume_ended(world_t *w)
{
    aco_resume(w->ended);
}

static void resume_ended_after_another(world_t *w)
{
    aco_resume(w->init);
    aco_resume(w->ended);
}

static void resume_self(world_t *w)
{
    aco_resume(w->self);
}

static void resume_yielded(world_t *w)
{
    aco_resume(w->yielded);
}

static void resume_init(world_t *w)
{
    aco_resume(w->init);
}

static void resume_child(world_t *w)
{
    aco_resume(w->child);
}

static void resume_child_of_ended(world_t *w)
{
    aco_resume(aco_create(w->ended, w->child->share_stack, 0, ends_at_once, NULL));
}

static void resume_one_on_stack_of_self(world_t *w)
{
    aco_resume(aco_create(w->child, w->self->share_stack, 0, ends_at_once, NULL));
}

/* ==== aco_yield_to ============================================================================ */

static void yield_to_null(world_t *w)
{
    (void)w;
    aco_yield_to(NULL);
}

static void yield_to_main(world_t *w)
{
    aco_yield_to(w->main_co);
}

static void yield_to_init(world_t *w)
{
    aco_yield_to(w->init);
}

static void yield_to_ended(world_t *w)
{
    aco_yield_to(w->ended);
}

static void yield_to_self(world_t *w)
{
    aco_yield_to(w->self);
}

static void yield_to_child(world_t *w)
{
    aco_yield_to(w->child);
}

/* A grandchild, whose sibling is on the stack of its grandparent. */
static void yields_to_its_argument(void)
{
    aco_yield_to((aco_t *)aco_get_arg());
    aco_exit();
}

static void yield_to_one_on_stack_of_self(world_t *w)
{
    aco_t *to = aco_create(w->child, w->self->share_stack, 0, ends_at_once, NULL);
    aco_resume(aco_create(w->child, aco_share_stack_new(0), 0, yields_to_its_argument, to));
}

/* ==== aco_reset =============================================================================== */

static void reset_null(world_t *w)
{
    (void)w;
    aco_reset(NULL, ends_at_once, NULL);
}

static void reset_without_entry_function(world_t *w)
{
    aco_reset(w->init, NULL, NULL);
}

static void reset_main(world_t *w)
{
    aco_reset(w->main_co, ends_at_once, NULL);
}

static void reset_self(world_t *w)
{
    aco_reset(w->self, ends_at_once, NULL);
}

static void reset_child(world_t *w)
{
    aco_reset(w->child, ends_at_once, NULL);
}

/* ==== aco_yield, aco_exit, and those that take the caller ===================================== */

static void yield(world_t *w)
{
    (void)w;
    aco_yield();
}

static void yield1_null(world_t *w)
{
    (void)w;
    aco_yield1(NULL);
}

static void yield1_main(world_t *w)
{
    aco_yield1(w->main_co);
}

static void yield1_other(world_t *w)
{
    aco_yield1(w->yielded);
}

static void exit_(world_t *w)
{
    (void)w;
    aco_exit();
}

static void exit1_null(world_t *w)
{
    (void)w;
    aco_exit1(NULL);
}

static void exit1_main(world_t *w)
{
    aco_exit1(w->main_co);
}

static void exit1_other(world_t *w)
{
    aco_exit1(w->yielded);
}

/* ==== Questions =============================================================================== */

static void get_arg(world_t *w)
{
    void *arg = aco_get_arg();
    ESCAPE(arg);
    (void)w;
}

static void is_main_co_null(world_t *w)
{
    int answer = aco_is_main_co(NULL);
    ESCAPE(&answer);
    (void)w;
}

static void status_null(world_t *w)
{
    aco_status_t status = aco_status(NULL);
    ESCAPE(&status);
    (void)w;
}

/* ==== aco_set_allocator ======================================================================= */

static void set_no_allocator(world_t *w)
{
    (void)w;
    aco_set_allocator(NULL, free);
}

static void set_no_release(world_t *w)
{
    (void)w;
    aco_set_allocator(malloc, NULL);
}

/* ==== aco_destroy, aco_share_stack_destroy ==================================================== */

static void destroy_null(world_t *w)
{
    (void)w;
    aco_destroy(NULL);
}

static void destroy_self(world_t *w)
{
    aco_destroy(w->self);
}

static void destroy_child(world_t *w)
{
    aco_destroy(w->child);
}

static void destroy_main(world_t *w)
{
    aco_destroy(w->main_co);
}

static void destroy_stack_null(world_t *w)
{
    (void)w;
    aco_share_stack_destroy(NULL);
}

static void destroy_stack_in_use(world_t *w)
{
    aco_share_stack_destroy(w->stack);
}

/* ==== Assertions ============================================================================== */

static void assert_something_false(world_t *w)
{
    aco_assert(w == NULL && 1 < 2);
}

static void assertptr_null(world_t *w)
{
    const char *my_pointer = w == NULL ? "" : NULL;
    aco_assertptr(my_pointer);
}

static void assertalloc_ptr_null(world_t *w)
{
    const char *my_block = w == NULL ? "" : NULL;
    aco_assertalloc_ptr(my_block);
}

static void assertalloc_bool_false(world_t *w)
{
    int got_it = w == NULL;
    aco_assertalloc_bool(got_it);
}

/* ==== Impossible sizes ======================================================================== */

static void share_stack_of_all_memory(world_t *w)
{
    (void)w;
    aco_share_stack_new2(SIZE_MAX, 0);
}

static void share_stack_of_nearly_all_memory(world_t *w)
{
    (void)w;
    aco_share_stack_new(SIZE_MAX - 100000);
}

static void save_stack_of_all_memory(world_t *w)
{
    aco_create(w->main_co, w->stack, SIZE_MAX, ends_at_once, NULL);
}

static void save_stack_of_half_the_memory(world_t *w)
{
    aco_create(w->main_co, w->stack, SIZE_MAX / 2, ends_at_once, NULL);
}

/* ==== Tests =================================================================================== */

static const misuse_t of_create[] = {
    CASE(create_without_stack, MAIN, "aco_create", "NULL", NOBODY),
    CASE(create_without_stack, COROUTINE, "aco_create", "NULL", NOBODY),
    CASE(create_for_another, MAIN, "aco_create", "runs on the same share stack", CO(init)),
    CASE(create_for_another, COROUTINE, "aco_create", "runs on the same share stack", CO(init)),
    CASE(create_for_self, COROUTINE, "aco_create", "runs on the same share stack", CO(self)),
    CASE(create_for_self, CHILD, "aco_create", "runs on the same share stack", CO(self)),
    CASE(try_create_without_stack, MAIN, "aco_try_create", "NULL", NOBODY),
    CASE(try_create_for_another, MAIN, "aco_try_create", "runs on the same share stack", CO(init)),
    CASE(create_in_for_another, MAIN, "aco_create_in", "runs on the same share stack", CO(init)),
    CASE(create_main_with_stack, FRESH, "aco_create", "main_co is NULL", NOBODY),
    CASE(create_main_with_save_stack_size, FRESH, "aco_create", "main_co is NULL", NOBODY),
    CASE(create_with_everything_but_main, MAIN, "aco_create", "main_co is NULL", NOBODY),
};

static const misuse_t of_resume[] = {
    CASE(resume_null, FRESH, "aco_resume", "NULL", NOBODY),
    CASE(resume_null, MAIN, "aco_resume", "NULL", NOBODY),
    CASE(resume_null, COROUTINE, "aco_resume", "NULL", NOBODY),
    CASE(resume_main, FRESH, "aco_resume", "main coroutine", CO(main_co)),
    CASE(resume_main, MAIN, "aco_resume", "main coroutine", CO(main_co)),
    CASE(resume_main, COROUTINE, "aco_resume", "main coroutine", CO(main_co)),
    CASE(resume_ended, MAIN, "aco_resume", "ended", CO(ended)),
    CASE(resume_ended_after_another, MAIN, "aco_resume", "ended", CO(ended)),
    CASE(resume_self, COROUTINE, "aco_resume", "the coroutine is running", CO(self)),
    CASE(resume_yielded, COROUTINE, "aco_resume", "caller is not its parent", CO(yielded)),
    CASE(resume_init, COROUTINE, "aco_resume", "caller is not its parent", CO(init)),
    CASE(resume_self, CHILD, "aco_resume", "waits for one it resumed", CO(self)),
    CASE(resume_child, CHILD, "aco_resume", "the coroutine is running", CO(child)),
    CASE(resume_main, CHILD, "aco_resume", "main coroutine", CO(main_co)),
    CASE(resume_init, CHILD, "aco_resume", "caller is not its parent", CO(init)),
    CASE(resume_child, FRESH, "aco_resume", "caller is not its parent", CO(child)),
    CASE(resume_child, MAIN, "aco_resume", "caller is not its parent", CO(child)),
    CASE(resume_child_of_ended, MAIN, "aco_resume", "caller is not its parent", NOBODY),
    CASE(resume_child_of_ended, COROUTINE, "aco_resume", "caller is not its parent", NOBODY),
    CASE(resume_one_on_stack_of_self, CHILD, "aco_resume", "its share stack waits for", NOBODY),
};

static const misuse_t of_yield_to[] = {
    CASE(yield_to_init, FRESH, "aco_yield_to", "no coroutine is running", NOBODY),
    CASE(yield_to_init, MAIN, "aco_yield_to", "no coroutine is running", CO(main_co)),
    CASE(yield_to_null, MAIN, "aco_yield_to", "no coroutine is running", CO(main_co)),
    CASE(yield_to_null, COROUTINE, "aco_yield_to", "the coroutine is NULL", NOBODY),
    CASE(yield_to_main, COROUTINE, "aco_yield_to", "another parent", CO(main_co)),
    CASE(yield_to_main, CHILD, "aco_yield_to", "another parent", CO(main_co)),
    CASE(yield_to_child, COROUTINE, "aco_yield_to", "another parent", CO(child)),
    CASE(yield_to_self, CHILD, "aco_yield_to", "another parent", CO(self)),
    CASE(yield_to_init, CHILD, "aco_yield_to", "another parent", CO(init)),
    CASE(yield_to_ended, COROUTINE, "aco_yield_to", "ended", CO(ended)),
    CASE(yield_to_one_on_stack_of_self, CHILD, "aco_resume", "its share stack waits for", NOBODY),
};

static const misuse_t of_reset[] = {
    CASE(reset_null, FRESH, "aco_reset", "NULL", NOBODY),
    CASE(reset_null, COROUTINE, "aco_reset", "NULL", NOBODY),
    CASE(reset_without_entry_function, FRESH, "aco_reset", "NULL", CO(init)),
    CASE(reset_main, FRESH, "aco_reset", "main coroutine", CO(main_co)),
    CASE(reset_main, COROUTINE, "aco_reset", "main coroutine", CO(main_co)),
    CASE(reset_self, COROUTINE, "aco_reset", "the coroutine is running", CO(self)),
    CASE(reset_self, CHILD, "aco_reset", "waits for one it resumed", CO(self)),
    CASE(reset_child, CHILD, "aco_reset", "the coroutine is running", CO(child)),
};

static const misuse_t of_yield[] = {
    CASE(yield, FRESH, "aco_yield", "no coroutine is running", NOBODY),
    CASE(yield, MAIN, "aco_yield", "no coroutine is running", CO(main_co)),
    CASE(yield1_null, FRESH, "aco_yield1", "no coroutine is running", NOBODY),
    CASE(yield1_null, MAIN, "aco_yield1", "the coroutine is NULL", NOBODY),
    CASE(yield1_null, COROUTINE, "aco_yield1", "the coroutine is NULL", NOBODY),
    CASE(yield1_main, FRESH, "aco_yield1", "not the one that runs", CO(main_co)),
    CASE(yield1_main, COROUTINE, "aco_yield1", "not the one that runs", CO(main_co)),
    CASE(yield1_other, FRESH, "aco_yield1", "not the one that runs", CO(yielded)),
    CASE(yield1_other, MAIN, "aco_yield1", "not the one that runs", CO(yielded)),
    CASE(yield1_other, COROUTINE, "aco_yield1", "not the one that runs", CO(yielded)),
};

static const misuse_t of_exit[] = {
    CASE(exit_, FRESH, "aco_exit", "no coroutine is running", NOBODY),
    CASE(exit_, MAIN, "aco_exit", "no coroutine is running", CO(main_co)),
    CASE(exit1_null, FRESH, "aco_exit1", "no coroutine is running", NOBODY),
    CASE(exit1_null, MAIN, "aco_exit1", "the coroutine is NULL", NOBODY),
    CASE(exit1_null, COROUTINE, "aco_exit1", "the coroutine is NULL", NOBODY),
    CASE(exit1_main, FRESH, "aco_exit1", "not the one that runs", CO(main_co)),
    CASE(exit1_main, COROUTINE, "aco_exit1", "not the one that runs", CO(main_co)),
    CASE(exit1_other, FRESH, "aco_exit1", "not the one that runs", CO(yielded)),
    CASE(exit1_other, MAIN, "aco_exit1", "not the one that runs", CO(yielded)),
    CASE(exit1_other, COROUTINE, "aco_exit1", "not the one that runs", CO(yielded)),
};

/* Here the caller is a main coroutine and the argument is right, but for its not being another. */
static const misuse_t of_yield1_and_exit1_in_main[] = {
    CASE(yield1_main, MAIN, "aco_yield1", "no coroutine is running", CO(main_co)),
    CASE(exit1_main, MAIN, "aco_exit1", "no coroutine is running", CO(main_co)),
};

static const misuse_t of_questions[] = {
    CASE(get_arg, FRESH, "aco_get_arg", "no coroutine is running", NOBODY),
    CASE(is_main_co_null, FRESH, "aco_is_main_co", "the coroutine is NULL", NOBODY),
    CASE(is_main_co_null, MAIN, "aco_is_main_co", "the coroutine is NULL", NOBODY),
    CASE(is_main_co_null, COROUTINE, "aco_is_main_co", "the coroutine is NULL", NOBODY),
    CASE(status_null, FRESH, "aco_status", "NULL", NOBODY),
    CASE(status_null, COROUTINE, "aco_status", "NULL", NOBODY),
};

static const misuse_t of_set_allocator[] = {
    CASE(set_no_allocator, FRESH, "aco_set_allocator", "NULL", NOBODY),
    CASE(set_no_release, FRESH, "aco_set_allocator", "NULL", NOBODY),
};

static const misuse_t of_destroy[] = {
    CASE(destroy_null, FRESH, "aco_destroy", "NULL", NOBODY),
    CASE(destroy_null, COROUTINE, "aco_destroy", "NULL", NOBODY),
    CASE(destroy_self, COROUTINE, "aco_destroy", "running", CO(self)),
    CASE(destroy_main, COROUTINE, "aco_destroy", "running", CO(main_co)),
    CASE(destroy_self, CHILD, "aco_destroy", "waits for one it resumed", CO(self)),
    CASE(destroy_child, CHILD, "aco_destroy", "the coroutine is running", CO(child)),
    CASE(destroy_main, CHILD, "aco_destroy", "running", CO(main_co)),
};

static const misuse_t of_share_stack_destroy[] = {
    CASE(destroy_stack_null, MAIN, "aco_share_stack_destroy", "NULL", NOBODY),
    CASE(destroy_stack_in_use, COROUTINE, "aco_share_stack_destroy", "is running", CO(self)),
    CASE(destroy_stack_in_use, CHILD, "aco_share_stack_destroy", "is running", CO(self)),
};

static const misuse_t of_assertions[] = {
    CASE(assert_something_false, FRESH, "assert_something_false", "w == NULL && 1 < 2", NOBODY),
    CASE(assert_something_false, COROUTINE, "assert_something_false", "test_misuse.c:", CO(self)),
    CASE(assertptr_null, MAIN, "assertptr_null", "my_pointer", CO(main_co)),
    CASE(assertalloc_ptr_null, MAIN, "assertalloc_ptr_null", "my_block", CO(main_co)),
    CASE(assertalloc_bool_false, MAIN, "assertalloc_bool_false", "got_it", CO(main_co)),
};

static const misuse_t of_sizes[] = {
    CASE(share_stack_of_all_memory, FRESH, "aco_share_stack_new2", "mmap", NOBODY),
    CASE(share_stack_of_nearly_all_memory, FRESH, "aco_share_stack_new", "mmap", NOBODY),
    CASE(save_stack_of_all_memory, FRESH, "aco_create", "malloc", NOBODY),
    CASE(save_stack_of_half_the_memory, FRESH, "aco_create", "malloc", NOBODY),
};

static void misuses(void)
{
    scene_t *scene = (scene_t *)aco_get_arg();
    if (scene->misuse->place == CHILD && aco_get_co() == scene->world.self) {
        aco_resume(scene->world.child);
    } else {
        scene->misuse->act(&scene->world);
    }
    aco_exit();
}

static void check_case(const instance_t *in, const misuse_t *misuse)
{
    scene_t scene = {misuse, {in->main_co, in->stack, NULL, NULL, NULL, NULL, NULL}};
    world_t *w = &scene.world;
    w->init = make_co(in, yields_for_ever, NULL);
    w->yielded = make_co(in, yields_for_ever, NULL);
    w->ended = make_co(in, ends_at_once, NULL);
    w->self = make_co(in, misuses, &scene);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    w->child = aco_create(w->self, stack, 0, misuses, &scene);
    const char *line = expect_abort_at(play, &scene, misuse->call, misuse->words, __FILE__,
                                       misuse->line);
    if (misuse->culprit != NOBODY) {
        assert_names_ptr(line, *(aco_t **)((char *)w + misuse->culprit));
    }
    aco_destroy(w->init);
    aco_destroy(w->yielded);
    aco_destroy(w->ended);
    aco_destroy(w->self);
    aco_destroy(w->child);
    aco_share_stack_destroy(stack);
}

#define MISUSE_TEST(cases)                                                                         \
    static void misuse_##cases(void **state)                                                       \
    {                                                                                              \
        for (size_t i = 0; i < ARRAY_SZ(cases); i++) {                                             \
            check_case((const instance_t *)*state, &(cases)[i]);                                   \
        }                                                                                          \
    }

MISUSE_TEST(of_create)
MISUSE_TEST(of_resume)
MISUSE_TEST(of_yield_to)
MISUSE_TEST(of_reset)
MISUSE_TEST(of_yield)
MISUSE_TEST(of_exit)
MISUSE_TEST(of_yield1_and_exit1_in_main)
MISUSE_TEST(of_questions)
MISUSE_TEST(of_set_allocator)
MISUSE_TEST(of_destroy)
MISUSE_TEST(of_share_stack_destroy)
MISUSE_TEST(of_assertions)
MISUSE_TEST(of_sizes)

/* ==== The line ================================================================================ */

#define LINE_SZ 400u /* bytes, the newline included */

static void fail_at_length(void *call)
{
    char text[3000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    aco_i_fail((const char *)call, NULL, text);
}

static void a_long_one_is_cut_before_its_newline(void **state)
{
    char call[] = "aco_test";
    (void)state;
    const char *line = expect_death(fail_at_length, call, SIGABRT);
    assert_memory_equal(line, "aco: aco_test: xxx", 18);
    assert_int_equal(strlen(line), LINE_SZ);
    assert_ptr_equal(strchr(line, '\n'), line + LINE_SZ - 1);
}

static void fail_in_chinese(void *call)
{
    aco_i_fail((const char *)call, NULL, "\xe8\xa7\x84\xe5\x88\x99: a remedy");
}

static void characters_beyond_ascii_are_written(void **state)
{
    char call[] = "aco_test";
    (void)state;
    const char *line = expect_death(fail_in_chinese, call, SIGABRT);
    assert_string_equal(line,
                        "aco: aco_test: \xe8\xa7\x84\xe5\x88\x99: a remedy (coroutine 0x0)\n");
}

static void fail_without_stderr(void *call)
{
    close(STDERR_FILENO);
    aco_i_fail((const char *)call, NULL, "a rule: a remedy");
}

static void without_stderr_it_ends_as_well(void **state)
{
    char call[] = "aco_test";
    (void)state;
    expect_signal(fail_without_stderr, call, SIGABRT);
}

/* 0, or how many bytes a write takes at most; between two, a signal interrupts it. */
static size_t most_written;

ssize_t __real_write(int fd, const void *buf, size_t sz);
ssize_t __wrap_write(int fd, const void *buf, size_t sz);
ssize_t __wrap_write(int fd, const void *buf, size_t sz)
{
    static int is_interrupted;
    if (most_written != 0 && (is_interrupted = !is_interrupted)) {
        errno = EINTR;
        return -1;
    }
    return __real_write(fd, buf, most_written != 0 && sz > most_written ? most_written : sz);
}

static void fail_in_parts(void *call)
{
    most_written = 7;
    aco_i_fail((const char *)call, NULL, "a rule: a remedy");
}

static void it_is_written_whole_in_parts(void **state)
{
    char call[] = "aco_test";
    (void)state;
    const char *line = expect_death(fail_in_parts, call, SIGABRT);
    assert_string_equal(line, "aco: aco_test: a rule: a remedy (coroutine 0x0)\n");
}

/* The name of a program is shown whole if it is shorter; else without its directories. */
#define NAME_SZ 128u /* bytes */

/* The frames of the next call begin with no zeros. */
static NOINLINE void soil_stack(void)
{
    char block[8192];
    memset(block, 'x', sizeof(block));
    ESCAPE(block);
}

static void fail_in_coroutine(void)
{
    soil_stack();
    aco_i_fail("aco_test", aco_gtls_co, "a rule: a remedy");
}

/* Runs in place of the tests if the program has an argument. */
static void fail_by_name(void)
{
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_resume(aco_create(main_co, aco_share_stack_new(0), 0, fail_in_coroutine, NULL));
}

#ifdef __GLIBC__
#define CODE_WITHOUT_NAME ", entry function (+0x"
#else
#define CODE_WITHOUT_NAME "(+0x" /* musl's loader knows the name */
#endif

static int has_no_proc;

ssize_t __real_readlink(const char *path, char *buf, size_t sz);
ssize_t __wrap_readlink(const char *path, char *buf, size_t sz);
ssize_t __wrap_readlink(const char *path, char *buf, size_t sz)
{
    if (has_no_proc) {
        errno = ENOENT;
        return -1;
    }
    return __real_readlink(path, buf, sz);
}

static void fail_without_proc(void *unused)
{
    (void)unused;
    has_no_proc = 1;
    fail_by_name();
}

static void execute(void *path)
{
    execl((const char *)path, (const char *)path, "fail", (char *)NULL);
}

static void copy_this_program(const char *path)
{
    char block[4096];
    ssize_t sz;
    int from = open("/proc/self/exe", O_RDONLY), to = open(path, O_WRONLY | O_CREAT, 0700);
    assert_true(from >= 0 && to >= 0);
    while ((sz = read(from, block, sizeof(block))) > 0) {
        assert_int_equal(write(to, block, (size_t)sz), sz);
    }
    close(from);
    close(to);
}

static void a_long_name_of_a_program_is_shown_without_directories(void **state)
{
    char directory[NAME_SZ + 1] = "/tmp/aco_test.XXXXXX", path[NAME_SZ + 1], words[2 * NAME_SZ];
    (void)state;
    if (EMULATED) {
        skip();
    }
    assert_non_null(mkdtemp(directory));
    size_t directory_sz = strlen(directory);
    for (size_t sz = NAME_SZ - 1; sz <= NAME_SZ; sz++) {
        memset(path, 'x', sz);
        memcpy(path, directory, directory_sz);
        path[directory_sz] = '/';
        path[sz] = '\0';
        const char *name = sz < NAME_SZ ? path : path + directory_sz + 1;
        snprintf(words, sizeof(words), ", entry function %s(+0x", name);
        copy_this_program(path);
        expect_abort(execute, path, "aco_test", words);
        unlink(path);
    }
    rmdir(directory);
    expect_abort(fail_without_proc, NULL, "aco_test", CODE_WITHOUT_NAME);
}

/* ==== Versions ================================================================================ */

/* Calls what aco_thread_init() of a header of that version calls. */
static void init_thread(void *version)
{
    aco_i_thread_init(NULL, *(const int *)version);
}

#define MAJOR (ACO_VERSION_MAJOR * 10000)

static void a_header_that_the_library_does_not_serve_is_named(void **state)
{
    static const struct {
        int version;
        const char *words;
    } cases[] = {
        {ACO_VERSION + 1, ": compile all with the aco.h of the library"},
        {MAJOR + 10000, "and can't serve what was compiled with aco.h "},
        {MAJOR - 1, ".99.99: compile"},
        {98765, "aco.h 9.87.65: compile"},
        {99990203, "aco.h 9999.2.3: compile"},
    };
    char library[64];
    (void)state;
    snprintf(library, sizeof(library), "the library is %d.%d.%d, and", ACO_VERSION_MAJOR,
             ACO_VERSION_MINOR, ACO_VERSION_PATCH);
    for (size_t i = 0; i < ARRAY_SZ(cases); i++) {
        int version = cases[i].version;
        expect_abort(init_thread, &version, "aco_thread_init", cases[i].words);
        expect_abort(init_thread, &version, "aco_thread_init", library);
    }
}

static void older_headers_of_the_major_version_are_served(void **state)
{
    int versions[] = {MAJOR, ACO_VERSION};
    (void)state;
    for (size_t i = 0; i < ARRAY_SZ(versions); i++) {
        expect_exit(init_thread, &versions[i], 0);
    }
}

/* In main, the argument of the main coroutine is what aco_create() was given. */
static void get_arg_in_main_is_no_misuse(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, ends_at_once, NULL);
    aco_resume(co);
    assert_null(aco_get_arg());
    aco_destroy(co);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        fail_by_name();
    }
    const struct CMUnitTest tests[] = {
        instance_test(misuse_of_create),
        instance_test(misuse_of_resume),
        instance_test(misuse_of_yield_to),
        instance_test(misuse_of_reset),
        instance_test(misuse_of_yield),
        instance_test(misuse_of_exit),
        instance_test(misuse_of_yield1_and_exit1_in_main),
        instance_test(misuse_of_questions),
        instance_test(misuse_of_set_allocator),
        instance_test(misuse_of_destroy),
        instance_test(misuse_of_share_stack_destroy),
        instance_test(misuse_of_assertions),
        instance_test(misuse_of_sizes),
        cmocka_unit_test(a_long_one_is_cut_before_its_newline),
        cmocka_unit_test(characters_beyond_ascii_are_written),
        cmocka_unit_test(without_stderr_it_ends_as_well),
        cmocka_unit_test(it_is_written_whole_in_parts),
        cmocka_unit_test(a_long_name_of_a_program_is_shown_without_directories),
        cmocka_unit_test(a_header_that_the_library_does_not_serve_is_named),
        cmocka_unit_test(older_headers_of_the_major_version_are_served),
        instance_test(get_arg_in_main_is_no_misuse),
    };
    return cmocka_run_group_tests_name("misuse", tests, NULL, NULL);
}
