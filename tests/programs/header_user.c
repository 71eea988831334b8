// SPDX-License-Identifier: Apache-2.0
/*
 * Compiled, not run, in every dialect of C and C++ that the header is for: uses everything that the
 * header offers, and what programs have always got from the system through it. Includes nothing
 * else.
 */
#include "aco.h"
#include "aco.h"

void use_macros(const char *ptr);
aco_attr_no_asan void use_calls(aco_t *co, aco_share_stack_t *stack);
void use_memory(void *memory, size_t sz, aco_t *main_co, aco_share_stack_t *stack);
aco_t *use_questions(void);
size_t use_system_headers(const char *text);
void use_last(aco_t *co, int is_by_name);
#ifdef ACO_USE_VALGRIND
unsigned use_valgrind(const aco_share_stack_t *stack);
#endif

#if ACO_VERSION != ACO_VERSION_MAJOR * 10000 + ACO_VERSION_MINOR * 100 + ACO_VERSION_PATCH
#error "the version is not made of its parts"
#endif

void use_macros(const char *ptr)
{
    if (aco_likely(ptr != NULL) && aco_unlikely(*ptr == 'x')) {
        aco_assert(ptr[0] == 'x' && "with words");
        aco_assertptr(ptr);
        aco_assertalloc_ptr(ptr);
        aco_assertalloc_bool(ptr != NULL);
    }
}

aco_attr_no_asan void use_calls(aco_t *co, aco_share_stack_t *stack)
{
    aco_cofuncp_t fp = aco_funcp_protector_asm;
    uint64_t words = 0;
    aco_thread_init(NULL);
    aco_thread_init(fp);
    aco_runtime_test();
    aco_save_fpucw_mxcsr(&words);
    co = aco_create(co, stack, 0, fp, &words);
    stack = aco_share_stack_new(0);
    aco_share_stack_destroy(aco_share_stack_new2(stack->sz, stack->guard_page_enabled));
    aco_resume(co);
    aco_yield();
    aco_yield1(co);
    aco_yield_to(co);
    aco_reset(co, fp, &words);
    acosw(co, co->main_co);
    aco_destroy(co);
}

/* Each way to make one without an abort, with an allocator, and aco_new(). */
void use_memory(void *memory, size_t sz, aco_t *main_co, aco_share_stack_t *stack)
{
    struct {
        char *name;
    } my;
    aco_set_allocator(malloc, free);
    aco_set_waker(aco_destroy);
    aco_new(my.name, sz);
    aco_share_stack_t *two[] = {
        aco_try_share_stack_new2(sz, 1),
        aco_share_stack_new_in(memory, sz),
    };
    aco_t *cos[] = {
        aco_try_create(main_co, stack, sz, aco_funcp_protector_asm, my.name),
        aco_create_in(memory, sz, main_co, two[sz % 2], aco_funcp_protector_asm, my.name),
    };
    cos[sz % 2]->wakes = 1;
    aco_i_wake(cos[sz % 2]);
    free(my.name);
}

aco_t *use_questions(void)
{
    const aco_t *co = aco_get_co();
    aco_status_t status = aco_status(co);
    if (status == ACO_STATUS_INIT || status == ACO_STATUS_END) {
        return NULL;
    }
    if (aco_on_own_stack(&status)) {
        return NULL;
    }
    return aco_is_main_co(co) || aco_get_arg() == NULL ? aco_co() : aco_gtls_co;
}

size_t use_system_headers(const char *text)
{
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, -1, 0);
    void *block = malloc(strlen(text));
    time_t now = time(NULL);
    printf("%d %ld %p\n", INT_MAX, (long)now, page);
    free(block);
    return sizeof(uint32_t) + (size_t)getpid();
}

void use_last(aco_t *co, int is_by_name)
{
    if (is_by_name) {
        aco_exit1(co);
    }
    aco_exit();
}

#ifdef ACO_USE_VALGRIND
unsigned use_valgrind(const aco_share_stack_t *stack)
{
    return RUNNING_ON_VALGRIND ? stack->valgrind_stk_id : 0;
}
#endif
