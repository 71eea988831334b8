// SPDX-License-Identifier: Apache-2.0
/*
 * Arrives by indirect branches wherever they can arrive in acosw.S and in the inline switch: by
 * calls through a pointer and through the PLT, and by the jump of a switch. test_landing_pads.sh
 * runs it on an arm64 that wants a landing pad there. libc's object files that start programs may
 * have none, so it does without. Exits with 0 if all is well.
 */
#include "aco.h"

__asm__(
    ".globl _start\n"
    ".type _start, %function\n"
    "_start:\n\t"
    "hint 34\n\t" /* bti c */
    "ldr x1, [sp]\n\t"
    "add x2, sp, 8\n\t"
    "mov x5, x0\n\t"
    "adrp x0, main\n\t"
    "add x0, x0, :lo12:main\n\t"
    "mov x3, 0\n\t"
    "mov x4, 0\n\t"
    "mov x6, sp\n\t"
    "bl __libc_start_main\n\t"
    "brk 1\n\t"
    ".size _start, .-_start\n");

static void *(*volatile switch_by_pointer)(aco_t *, aco_t *) = acosw;
static void (*volatile save_by_pointer)(void *) = aco_save_fpucw_mxcsr;
static aco_t *main_co;

static void ends(void)
{
    aco_exit();
}

/* Suspended by each way of switching, continued by each. */
static void switches(void)
{
    for (int i = 0; i < 2; i++) {
        aco_yield();
        acosw(aco_get_co(), main_co);
        switch_by_pointer(aco_get_co(), main_co);
    }
}

static void resume_by_pointer(aco_t *co)
{
    aco_gtls_co = co;
    switch_by_pointer(main_co, co);
    aco_gtls_co = main_co;
}

int main(void)
{
    uint32_t words = 1, same = 0;
    save_by_pointer(&words);
    aco_save_fpucw_mxcsr(&same);
    aco_thread_init(ends);
    main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *co = aco_create(main_co, stack, 0, switches, NULL);
    for (int i = 0; !co->is_end; i++) {
        if (i % 2 == 0) {
            aco_resume(co);
        } else {
            resume_by_pointer(co);
        }
    }
    /* One that starts where others return to. */
    aco_t *returned = aco_create(main_co, stack, 0, switches, NULL);
    returned->reg[ACO_REG_IDX_RETADDR] = (void *)(uintptr_t)aco_funcp_protector_asm;
    aco_resume(returned);
    int is_wrong = words != same || !returned->is_end;
    aco_destroy(returned);
    aco_destroy(co);
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
    return is_wrong;
}
