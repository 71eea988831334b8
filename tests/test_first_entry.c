// SPDX-License-Identifier: Apache-2.0
/*
 * The state of the processor when an entry function begins: as the ABI promises it to a function
 * that is called, with the protector as return address, and an end of the chain of frame pointers.
 * The entry function is one in assembly, which writes down what it finds before it changes it.
 */
#include "harness.h"

#if defined(ACO_ARCH_X86_64) || defined(ACO_ARCH_I386)
#define HAVE_X87
#define FENV_SZ 28  /* bytes that fnstenv writes */
#define FENV_TAGS 8 /* offset of the tag word in them */
#define TAGS_EMPTY 0xffff
#define DIRECTION_FLAG 0x400
#endif

typedef struct {
    void *sp;
    void *return_address;
    void *bp;
    void *to; /* the register that carried the argument `to` of the switch */
#ifdef HAVE_X87
    uintptr_t flags;
    unsigned char fenv[FENV_SZ];
#endif
} found_t;

#ifdef HAVE_X87
/* The coroutine is found through the register that carried `to`; fnstenv masks, so undo that. */
__attribute__((naked)) static void writes_down(void)
{
#ifdef ACO_ARCH_X86_64
    __asm__(
        "movq %c0(%%rsi), %%rax\n\t"
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
          "i"(offsetof(found_t, to)), "i"(offsetof(found_t, flags)), "i"(offsetof(found_t, fenv)));
#else
    __asm__(
        "movl %c0(%%ecx), %%eax\n\t"
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
          "i"(offsetof(found_t, to)), "i"(offsetof(found_t, flags)), "i"(offsetof(found_t, fenv)));
#endif
}
#else
/* Others have no attribute that keeps gcc from adding instructions. A field is at FOUND(word). */
found_t *to_be_written;
void writes_down(void);
#define FOUND(i) ACO_STR(ACO_WORD *i)
#if defined(ACO_ARCH_ARM64)
__asm__(".text\n"
        "writes_down:\n\t"
        "adrp x2, to_be_written\n\t"
        "ldr x2, [x2, :lo12:to_be_written]\n\t"
        "mov x3, sp\n\t"
        "str x3, [x2]\n\t"
        "str x30, [x2, " FOUND(1) "]\n\t"
        "str x29, [x2, " FOUND(2) "]\n\t"
        "str x1, [x2, " FOUND(3) "]\n\t"
        "b aco_exit\n");
#elif defined(ACO_ARCH_RISCV64)
__asm__(".text\n"
        "writes_down:\n\t"
        "lla a2, to_be_written\n\t"
        "ld a2, 0(a2)\n\t"
        "sd sp, 0(a2)\n\t"
        "sd ra, " FOUND(1) "(a2)\n\t"
        "sd s0, " FOUND(2) "(a2)\n\t"
        "sd a1, " FOUND(3) "(a2)\n\t"
        "tail aco_exit\n");
#elif defined(ACO_ARCH_ARM)
__asm__(".text\n"
        ".syntax unified\n"
#ifdef __thumb__
        ".thumb\n"
        ".thumb_func\n"
#else
        ".arm\n"
#endif
        ".type writes_down, %function\n"
        "writes_down:\n\t"
        "ldr r2, 3f\n"
        "2:\n\t"
        "add r2, pc, r2\n\t"
        "ldr r2, [r2]\n\t"
        "mov r3, sp\n\t"
        "str r3, [r2]\n\t"
        "str lr, [r2, " FOUND(1) "]\n\t"
        "str " ACO_STR(ACO_BP) ", [r2, " FOUND(2) "]\n\t"
        "str r1, [r2, " FOUND(3) "]\n\t"
        "b aco_exit\n\t"
        ".balign 4\n"
        "3:\n\t"
        ".long to_be_written - 2b - "
#ifdef __thumb__
        "4\n");
#else
        "8\n");
#endif
#endif
#endif

static void check_found(const found_t *found, const aco_t *co)
{
    assert_ptr_equal(found->sp, co->share_stack->align_retptr);
    assert_int_equal(((uintptr_t)found->sp + ACO_RETPTR_SZ) % 16, 0);
    assert_ptr_equal(found->return_address, (void *)(uintptr_t)aco_funcp_protector_asm);
    assert_null(found->bp);
    assert_ptr_equal(found->to, co);
    assert_int_equal(co->is_end, 1);
#ifdef HAVE_X87
    uint16_t tags;
    memcpy(&tags, found->fenv + FENV_TAGS, sizeof(tags));
    assert_int_equal(found->flags & DIRECTION_FLAG, 0);
    assert_int_equal(tags, TAGS_EMPTY);
#endif
}

/* A coroutine that writes to `found`. */
static aco_t *make_writer(const instance_t *in, aco_share_stack_t *stack, found_t *found)
{
    memset(found, 0xff, sizeof(*found));
#ifndef HAVE_X87
    to_be_written = found;
#endif
    return aco_create(in->main_co, stack, 0, writes_down, found);
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
        aco_t *co = make_writer(in, in->stack, &found);
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
    aco_t *co = make_writer(in, in->stack, &found);
    aco_resume(other);
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
        aco_share_stack_t *stack = aco_share_stack_new2(sz, 0);
        aco_t *co = make_writer(in, stack, &found);
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
