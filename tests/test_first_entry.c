// SPDX-License-Identifier: Apache-2.0
/*
 * What the processor holds when an entry function begins: what the ABI promises to a function that
 * is called, the protector as its return address, and an end of the chain of frame pointers. The
 * entry function is one in assembly, which writes down what it finds before it changes it.
 */
#include "harness.h"

#define FENV_SZ 28   /* bytes that fnstenv writes */
#define FENV_TAGS 8  /* offset of the tag word in them */
#define TAGS_EMPTY 0xffff
#define DIRECTION_FLAG 0x400

typedef struct {
    void *sp;
    void *return_address;
    void *bp;
    void *to; /* the register that carried the argument `to` of the switch */
    uintptr_t flags;
    unsigned char fenv[FENV_SZ];
} found_t;

/* The coroutine is found through the register that carried `to`; fnstenv masks, so undo that. */
#if defined(ACO_ARCH_X86_64)
__attribute__((naked)) static void writes_down(void)
{
    __asm__("movq %c0(%%rsi), %%rax\n\t"
            "movq %%rsp, %c1(%%rax)\n\t"
            "movq (%%rsp), %%rdx\n\t"
            "movq %%rdx, %c2(%%rax)\n\t"
            "movq %%rbp, %c3(%%rax)\n\t"
            "movq %%rsi, %c4(%%rax)\n\t"
            "pushfq\n\t"
            "popq %c5(%%rax)\n\t"
            "fnstenv %c6(%%rax)\n\t"
            "fldenv %c6(%%rax)\n\t"
            "jmp aco_exit@PLT"
            :
            : "i"(offsetof(aco_t, arg)), "i"(offsetof(found_t, sp)),
              "i"(offsetof(found_t, return_address)), "i"(offsetof(found_t, bp)),
              "i"(offsetof(found_t, to)), "i"(offsetof(found_t, flags)),
              "i"(offsetof(found_t, fenv)));
}
#else
__attribute__((naked)) static void writes_down(void)
{
    __asm__("movl %c0(%%ecx), %%eax\n\t"
            "movl %%esp, %c1(%%eax)\n\t"
            "movl (%%esp), %%edx\n\t"
            "movl %%edx, %c2(%%eax)\n\t"
            "movl %%ebp, %c3(%%eax)\n\t"
            "movl %%ecx, %c4(%%eax)\n\t"
            "pushfl\n\t"
            "popl %c5(%%eax)\n\t"
            "fnstenv %c6(%%eax)\n\t"
            "fldenv %c6(%%eax)\n\t"
            "jmp aco_exit"
            :
            : "i"(offsetof(aco_t, arg)), "i"(offsetof(found_t, sp)),
              "i"(offsetof(found_t, return_address)), "i"(offsetof(found_t, bp)),
              "i"(offsetof(found_t, to)), "i"(offsetof(found_t, flags)),
              "i"(offsetof(found_t, fenv)));
}
#endif

static void check_found(const found_t *found, const aco_t *co)
{
    uint16_t tags;
    memcpy(&tags, found->fenv + FENV_TAGS, sizeof(tags));
    assert_ptr_equal(found->sp, co->share_stack->align_retptr);
    assert_int_equal(((uintptr_t)found->sp + sizeof(void *)) % 16, 0);
    assert_ptr_equal(found->return_address, (void *)(uintptr_t)aco_funcp_protector_asm);
    assert_null(found->bp);
    assert_ptr_equal(found->to, co);
    assert_int_equal(found->flags & DIRECTION_FLAG, 0);
    assert_int_equal(tags, TAGS_EMPTY);
    assert_int_equal(co->is_end, 1);
}

/* How a thread comes to continue a coroutine in state init. */
static void resume_by_function(aco_t *co)
{
    void (*resume)(aco_t *) = aco_resume;
    resume(co);
}

static void resume_inline(aco_t *co)
{
    aco_resume(co);
}

static void acosw_by_hand(aco_t *co)
{
    aco_gtls_co = co;
    ACO_TELL_SWITCH(co->main_co, co);
    acosw(co->main_co, co);
    aco_gtls_co = co->main_co;
}

static void (*const ways[])(aco_t *) = {resume_inline, resume_by_function, acosw_by_hand};

static void an_entry_function_starts_as_if_called(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (size_t way = 0; way < ARRAY_SZ(ways); way++) {
        found_t found;
        memset(&found, 0xff, sizeof(found));
        aco_t *co = make_co(in, writes_down, &found);
        ways[way](co);
        check_found(&found, co);
        aco_destroy(co);
    }
}

static void an_entry_function_starts_the_same_after_an_eviction(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    found_t found;
    aco_t *other = make_co(in, yields_for_ever, NULL);
    aco_t *co = make_co(in, writes_down, &found);
    aco_resume(other);
    memset(&found, 0xff, sizeof(found));
    aco_resume(co);
    check_found(&found, co);
    aco_destroy(other);
    aco_destroy(co);
}

static void an_entry_function_starts_the_same_on_stacks_of_any_size(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (size_t sz = 4090; sz < 4106; sz++) {
        found_t found;
        memset(&found, 0xff, sizeof(found));
        aco_share_stack_t *stack = aco_share_stack_new2(sz, 0);
        aco_t *co = aco_create(in->main_co, stack, 0, writes_down, &found);
        aco_resume(co);
        check_found(&found, co);
        aco_destroy(co);
        aco_share_stack_destroy(stack);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(an_entry_function_starts_as_if_called),
        instance_test(an_entry_function_starts_the_same_after_an_eviction),
        instance_test(an_entry_function_starts_the_same_on_stacks_of_any_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
