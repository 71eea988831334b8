// SPDX-License-Identifier: Apache-2.0
/*
 * Memory: what is asked of the system is given back, and each request that the system refuses, one
 * after the other, ends in a line that names the call, the size and the error.
 *
 * The linker leads the library's requests to the functions here.
 */
// build: -Wl,--wrap=malloc,--wrap=calloc,--wrap=free,--wrap=mmap,--wrap=munmap,--wrap=mprotect
#include "harness.h"

#include <errno.h>

#define LOG_SZ 100

/* What is counted, and refused, is what happens while this is on: cmocka allocates as well. */
static struct {
    int is_on;
    size_t refused;     /* number of the request that fails; 0: none */
    const char *call;   /* that the scenario is in */
    size_t ct_requests; /* that could fail */
    struct {
        const char *call;
        size_t sz;
    } log[LOG_SZ];
    long ct_blocks;     /* of malloc() and calloc() not freed yet */
    long mapped_sz;     /* bytes mapped and not unmapped yet */
} memory;

/* Notes a request; tells whether it is the one to be refused. */
static int is_refused(size_t sz)
{
    if (!memory.is_on) {
        return 0;
    }
    if (memory.ct_requests < LOG_SZ) {
        memory.log[memory.ct_requests].call = memory.call;
        memory.log[memory.ct_requests].sz = sz;
    }
    if (++memory.ct_requests != memory.refused) {
        return 0;
    }
    errno = ENOMEM;
    return 1;
}

void *__real_malloc(size_t sz);
void *__real_calloc(size_t ct, size_t sz);
void __real_free(void *ptr);
void *__real_mmap(void *ptr, size_t sz, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *ptr, size_t sz);
int __real_mprotect(void *ptr, size_t sz, int protection);
void *__wrap_malloc(size_t sz);
void *__wrap_calloc(size_t ct, size_t sz);
void __wrap_free(void *ptr);
void *__wrap_mmap(void *ptr, size_t sz, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *ptr, size_t sz);
int __wrap_mprotect(void *ptr, size_t sz, int protection);

void *__wrap_malloc(size_t sz)
{
    if (is_refused(sz)) {
        return NULL;
    }
    memory.ct_blocks += memory.is_on;
    return __real_malloc(sz);
}

void *__wrap_calloc(size_t ct, size_t sz)
{
    if (is_refused(ct * sz)) {
        return NULL;
    }
    memory.ct_blocks += memory.is_on;
    return __real_calloc(ct, sz);
}

void __wrap_free(void *ptr)
{
    memory.ct_blocks -= memory.is_on && ptr != NULL;
    __real_free(ptr);
}

void *__wrap_mmap(void *ptr, size_t sz, int protection, int flags, int fd, off_t offset)
{
    if (is_refused(sz)) {
        return MAP_FAILED;
    }
    memory.mapped_sz += memory.is_on ? (long)sz : 0;
    return __real_mmap(ptr, sz, protection, flags, fd, offset);
}

int __wrap_munmap(void *ptr, size_t sz)
{
    memory.mapped_sz -= memory.is_on ? (long)sz : 0;
    return __real_munmap(ptr, sz);
}

int __wrap_mprotect(void *ptr, size_t sz, int protection)
{
    return is_refused(sz) ? -1 : __real_mprotect(ptr, sz, protection);
}

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
    memory.call = "aco_share_stack_new";
    aco_share_stack_t *unguarded = aco_share_stack_new2(10000, 0);
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
    for (size_t i = 0; i < memory.ct_requests && i < LOG_SZ; i++) {
        ct_create += strcmp(memory.log[i].call, "aco_create") == 0;
        ct_resume += strcmp(memory.log[i].call, "aco_resume") == 0;
    }
    assert_int_equal(ct_create, 5);
    assert_true(ct_resume >= 4);
    assert_in_range(memory.ct_requests, ct_create + ct_resume, LOG_SZ);
}

static void refuse(void *number)
{
    live_and_forget((size_t)(uintptr_t)number);
}

static void every_refused_request_ends_in_words(void **state)
{
    (void)state;
    live_and_forget(0);
    assert_in_range(memory.ct_requests, 10, LOG_SZ);
    for (size_t i = 1; i <= memory.ct_requests; i++) {
        char words[64];
        snprintf(words, sizeof(words), "of %zu bytes failed, errno %d", memory.log[i - 1].sz,
                 ENOMEM);
        expect_abort(refuse, (void *)(uintptr_t)i, memory.log[i - 1].call, words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_given_back),
        cmocka_unit_test(a_coroutine_is_one_block_until_its_save_stack_grows),
        cmocka_unit_test(every_refused_request_ends_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
