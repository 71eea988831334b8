// SPDX-License-Identifier: Apache-2.0
/*
 * A new coroutine, a new main coroutine and a new share stack, field by field, and the answers of
 * aco.h's questions before, during and after the first resume of a thread.
 *
 * The linker leads madvise() to a function here, which notes what it is called with, and sysconf()
 * to one that reports pages of any size.
 */
// build: -Wl,--wrap=madvise,--wrap=sysconf
#include "harness.h"

#include <errno.h>
#include <sys/mman.h>

#define STACK_MIN_SZ ((size_t)4096)

static size_t page_sz(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* ==== Coroutines ============================================================================== */

static void a_new_coroutine_has_its_arguments_in_its_fields(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    int arg = 0;
    aco_t *co = aco_create(in->main_co, in->stack, 320, yields_for_ever, &arg);
    assert_non_null(co);
    assert_ptr_equal(co->main_co, in->main_co);
    assert_ptr_equal(co->share_stack, in->stack);
    assert_true(co->fp == yields_for_ever);
    assert_ptr_equal(co->arg, &arg);
    assert_int_equal(co->save_stack.sz, 320);
    aco_destroy(co);
}

static void a_new_coroutine_is_in_state_init(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, yields_for_ever, NULL);
    assert_int_equal(co->is_end, 0);
    assert_int_equal(co->is_owner, 0);
    assert_null(in->stack->owner);
    assert_int_equal(co->save_stack.valid_sz, 0);
    assert_int_equal(co->save_stack.max_cpsz, 0);
    assert_int_equal(co->save_stack.ct_save, 0);
    assert_int_equal(co->save_stack.ct_restore, 0);
    assert_int_equal(live_sz(co), 0);
    assert_invariants(co);
    aco_destroy(co);
}

static void reg_of_a_new_coroutine_leads_to_its_entry_function(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, yields_for_ever, NULL);
    assert_ptr_equal(co->reg[ACO_REG_IDX_RETADDR], (void *)(uintptr_t)yields_for_ever);
    assert_ptr_equal(co->reg[ACO_REG_IDX_SP], in->stack->align_retptr);
    assert_ptr_equal(co->reg[ACO_REG_IDX_BP], NULL);
#ifdef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
    assert_int_equal(ARRAY_SZ(co->reg), ACO_REG_IDX_BP + 1);
#else
    uint64_t control_words = 0;
    aco_save_fpucw_mxcsr(&control_words);
    assert_int_equal(ARRAY_SZ(co->reg), ACO_REG_IDX_FPU + 1);
    assert_memory_equal(&co->reg[ACO_REG_IDX_FPU], &control_words, sizeof(uint32_t));
#endif
    aco_destroy(co);
}

static void save_stack_size_0_means_64(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = aco_create(in->main_co, in->stack, 0, yields_for_ever, NULL);
    assert_int_equal(co->save_stack.sz, 64);
    aco_destroy(co);
}

static void the_save_stack_comes_with_the_coroutine_in_any_size(void **state)
{
    static const size_t sizes[] = {1, 7, 8, 15, 16, 17, 63, 64, 65, 4096, 100001, (size_t)1 << 20};
    const instance_t *in = (const instance_t *)*state;
    for (size_t i = 0; i < ARRAY_SZ(sizes); i++) {
        aco_t *co = aco_create(in->main_co, in->stack, sizes[i], yields_for_ever, NULL);
        assert_int_equal(co->save_stack.sz, sizes[i]);
        assert_true(is_save_stack_embedded(co));
        assert_int_equal((uintptr_t)co->save_stack.ptr % __BIGGEST_ALIGNMENT__, 0);
        memset(co->save_stack.ptr, 1, sizes[i]);
        aco_destroy(co);
    }
}

static void a_main_coroutine_has_neither_stack_nor_entry_function(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    assert_non_null(in->main_co);
    assert_null(in->main_co->main_co);
    assert_null(in->main_co->share_stack);
    assert_true(in->main_co->fp == NULL);
    assert_null(in->main_co->arg);
    assert_int_equal(in->main_co->is_end, 0);
    assert_int_equal(in->main_co->save_stack.sz, 0);
}

static void is_main_co_tells_main_from_others(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, yields_for_ever, NULL);
    assert_int_equal(aco_is_main_co(in->main_co), 1);
    assert_int_equal(aco_is_main_co(co), 0);
    aco_destroy(co);
}

static void creates_another(void)
{
    const aco_t *self = aco_get_co();
    *(aco_t **)aco_get_arg() = aco_create(self->main_co, self->share_stack, 0, ends_at_once, NULL);
    aco_exit();
}

static void a_coroutine_can_be_created_in_a_coroutine(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *other = NULL;
    aco_t *co = make_co(in, creates_another, &other);
    aco_resume(co);
    assert_non_null(other);
    assert_ptr_equal(other->main_co, in->main_co);
    aco_destroy(co);
    aco_resume(other);
    assert_int_equal(other->is_end, 1);
    aco_destroy(other);
}

/* ==== Questions =============================================================================== */

typedef struct {
    aco_t *get_co, *co, *gtls_co;
    void *arg;
} answers_t;

static void ask(answers_t *answers)
{
    answers->get_co = aco_get_co();
    answers->co = aco_co();
    answers->gtls_co = aco_gtls_co;
    answers->arg = aco_get_co() != NULL ? aco_get_arg() : NULL;
}

static void asks_and_yields(void)
{
    answers_t *answers = (answers_t *)aco_get_arg();
    for (;;) {
        ask(answers);
        aco_yield();
    }
}

static void assert_answers(const answers_t *answers, const aco_t *co, const void *arg)
{
    assert_ptr_equal(answers->get_co, co);
    assert_ptr_equal(answers->co, co);
    assert_ptr_equal(answers->gtls_co, co);
    assert_ptr_equal(answers->arg, arg);
}

static void the_running_coroutine_is_null_then_itself_then_main(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    answers_t inside, outside;
    aco_t *co = make_co(in, asks_and_yields, &inside);
    ask(&outside);
    assert_answers(&outside, NULL, NULL);
    for (int i = 0; i < 3; i++) {
        memset(&inside, 0, sizeof(inside));
        aco_resume(co);
        assert_answers(&inside, co, &inside);
        ask(&outside);
        assert_answers(&outside, in->main_co, NULL);
    }
    aco_destroy(co);
    ask(&outside);
    assert_answers(&outside, in->main_co, NULL);
}

static void version_of_the_library_is_that_of_the_header(void **state)
{
    (void)state;
    assert_int_equal(aco_version(), ACO_VERSION);
    assert_int_equal(ACO_VERSION,
                     ACO_VERSION_MAJOR * 10000 + ACO_VERSION_MINOR * 100 + ACO_VERSION_PATCH);
    assert_true(ACO_VERSION_MAJOR >= 2);
}

static void thread_init_and_runtime_test_can_be_repeated(void **state)
{
    (void)state;
    aco_thread_init(NULL);
    aco_runtime_test();
    aco_thread_init(NULL);
}

static const long *told_page_sz; /* what sysconf() says, or NULL for the truth */

long __real_sysconf(int name);
long __wrap_sysconf(int name);

long __wrap_sysconf(int name)
{
    return name == _SC_PAGESIZE && told_page_sz != NULL ? *told_page_sz : __real_sysconf(name);
}

static void prepare_with_pages_of(void *sz)
{
    told_page_sz = (const long *)sz;
    aco_thread_init(NULL);
}

static void pages_that_no_stack_fits_are_refused(void **state)
{
    long sizes[] = {0, -1, -4096, 8, 4100};
    (void)state;
    for (size_t i = 0; i < ARRAY_SZ(sizes); i++) {
        expect_abort(prepare_with_pages_of, &sizes[i], "aco_runtime_test", "page_sz");
    }
}

/* ==== Share stacks ============================================================================ */

/* Everything that is promised of a share stack of which `sz` bytes were asked for. */
static void check_share_stack(const aco_share_stack_t *s, size_t sz, int guard)
{
    size_t asked = sz == 0 ? (size_t)2 << 20 : sz < STACK_MIN_SZ ? STACK_MIN_SZ : sz;
    const char *low = (const char *)s->ptr, *high = (const char *)s->align_highptr;
    assert_int_equal(s->sz % page_sz(), 0);
    assert_true(s->align_limit >= asked);
    assert_true(s->sz < asked + ACO_RETPTR_SZ + 16 + page_sz());
    assert_int_equal((uintptr_t)high % 16, 0);
    assert_true(high > low && high <= low + s->sz && high + 32 > low + s->sz);
    assert_ptr_equal(s->align_retptr, high - ACO_RETPTR_SZ);
    assert_int_equal(s->align_validsz, high - low);
    assert_int_equal(s->align_limit, (const char *)s->align_retptr - low);
    assert_ptr_equal(*(void **)s->align_retptr, (void *)(uintptr_t)aco_funcp_protector_asm);
    assert_int_equal(s->guard_page_enabled, guard);
    size_t guard_sz = guard ? page_sz() : 0;
    assert_ptr_equal(low, (const char *)s->real_ptr + guard_sz);
    assert_int_equal(s->real_sz, s->sz + guard_sz);
    assert_null(s->owner);
    assert_int_equal(s->ct_coroutines, 0);
}

/* clang-format off */
static const size_t stack_sizes[] = {
    1,    2,    7,    8,    100,   4080,  4087,  4088,  4089,   4092,   4095,
    4096, 4097, 8176, 8184, 8188,  8191,  8192,  8193,  12345,  65535,  65536,
    65537, 100001, (size_t)1 << 20, ((size_t)2 << 20) + 1, (size_t)8 << 20,
};
/* clang-format on */

static void share_stack_size_0_means_2_mib(void **state)
{
    (void)state;
    for (int guard = 0; guard <= 1; guard++) {
        aco_share_stack_t *s = aco_share_stack_new2(0, (char)guard);
        check_share_stack(s, 0, guard);
        assert_true(s->align_limit >= (size_t)2 << 20);
        aco_share_stack_destroy(s);
    }
}

static void share_stacks_have_the_size_asked_for_and_at_least_4096(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SZ(stack_sizes); i++) {
        for (int guard = 0; guard <= 1; guard++) {
            aco_share_stack_t *s = aco_share_stack_new2(stack_sizes[i], (char)guard);
            check_share_stack(s, stack_sizes[i], guard);
            aco_share_stack_destroy(s);
        }
    }
}

static void all_of_a_share_stack_can_be_written(void **state)
{
    (void)state;
    for (int guard = 0; guard <= 1; guard++) {
        aco_share_stack_t *s = aco_share_stack_new2(10000, (char)guard);
        memset(s->ptr, 1, s->align_limit);
        assert_int_equal(*(char *)s->ptr, 1);
        check_share_stack(s, 10000, guard);
        aco_share_stack_destroy(s);
    }
}

static void share_stack_new_makes_a_guarded_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SZ(stack_sizes); i++) {
        aco_share_stack_t *s = aco_share_stack_new(stack_sizes[i]);
        check_share_stack(s, stack_sizes[i], 1);
        aco_share_stack_destroy(s);
    }
}

/* The last call of madvise(). */
static struct {
    unsigned ct;
    void *ptr;
    size_t sz;
    int advice;
} advised;

int __wrap_madvise(void *ptr, size_t sz, int advice);

/* Fails as in a kernel without huge pages. */
int __wrap_madvise(void *ptr, size_t sz, int advice)
{
    advised.ct++;
    advised.ptr = ptr;
    advised.sz = sz;
    advised.advice = advice;
    errno = EINVAL;
    return -1;
}

static void share_stacks_refuse_huge_pages_by_one_call(void **state)
{
    (void)state;
    for (int guard = 0; guard <= 1; guard++) {
        advised.ct = 0;
        aco_share_stack_t *s = aco_share_stack_new2((size_t)4 << 20, (char)guard);
        assert_int_equal(advised.ct, 1);
        assert_int_equal(advised.advice, MADV_NOHUGEPAGE);
        assert_ptr_equal(advised.ptr, s->real_ptr);
        assert_int_equal(advised.sz, s->real_sz);
        aco_share_stack_destroy(s);
    }
}

static void share_stacks_count_their_coroutines(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *first = make_co(in, ends_at_once, NULL);
    aco_t *second = make_co(in, ends_at_once, NULL);
    assert_int_equal(in->stack->ct_coroutines, 2);
    aco_resume(first);
    assert_int_equal(in->stack->ct_coroutines, 2);
    aco_destroy(first);
    assert_int_equal(in->stack->ct_coroutines, 1);
    aco_destroy(second);
    assert_int_equal(in->stack->ct_coroutines, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(a_new_coroutine_has_its_arguments_in_its_fields),
        instance_test(a_new_coroutine_is_in_state_init),
        instance_test(reg_of_a_new_coroutine_leads_to_its_entry_function),
        instance_test(save_stack_size_0_means_64),
        instance_test(the_save_stack_comes_with_the_coroutine_in_any_size),
        instance_test(a_main_coroutine_has_neither_stack_nor_entry_function),
        instance_test(is_main_co_tells_main_from_others),
        instance_test(a_coroutine_can_be_created_in_a_coroutine),
        instance_test(the_running_coroutine_is_null_then_itself_then_main),
        instance_test(version_of_the_library_is_that_of_the_header),
        instance_test(thread_init_and_runtime_test_can_be_repeated),
        cmocka_unit_test(pages_that_no_stack_fits_are_refused),
        instance_test(share_stack_size_0_means_2_mib),
        instance_test(share_stacks_have_the_size_asked_for_and_at_least_4096),
        instance_test(all_of_a_share_stack_can_be_written),
        instance_test(share_stack_new_makes_a_guarded_one),
        cmocka_unit_test(share_stacks_refuse_huge_pages_by_one_call),
        instance_test(share_stacks_count_their_coroutines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
