// SPDX-License-Identifier: Apache-2.0
/* The plain shape; see plain.h. */
#include "plain.h"

__thread plain_t *plain_running;

__asm__(
    ".text\n"
    ".globl plain_switch\n"
    ".type plain_switch, @function\n"
    "plain_switch:\n\t"
    "popq %rdx\n\t"
    "movq %rdx, 0(%rdi)\n\t"
    "movq %rsp, 8(%rdi)\n\t"
    "movq %rbp, 16(%rdi)\n\t"
    "movq %rbx, 24(%rdi)\n\t"
    "movq %r12, 32(%rdi)\n\t"
    "movq %r13, 40(%rdi)\n\t"
    "movq %r14, 48(%rdi)\n\t"
    "movq %r15, 56(%rdi)\n\t"
    "movq 56(%rsi), %r15\n\t"
    "movq 48(%rsi), %r14\n\t"
    "movq 40(%rsi), %r13\n\t"
    "movq 32(%rsi), %r12\n\t"
    "movq 24(%rsi), %rbx\n\t"
    "movq 16(%rsi), %rbp\n\t"
    "movq 8(%rsi), %rsp\n\t"
    "jmpq *0(%rsi)\n"
    ".size plain_switch, .-plain_switch\n");

static void *get_memory(size_t sz)
{
    void *ptr = malloc(sz);
    if (ptr == NULL) {
        abort();
    }
    return ptr;
}

plain_stack_t *plain_stack_new(size_t sz)
{
    plain_stack_t *stack = (plain_stack_t *)get_memory(sizeof(*stack));
    stack->sz = sz;
    stack->ptr = mmap(NULL, sz, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack->ptr == MAP_FAILED) {
        abort();
    }
    stack->retptr = (char *)stack->ptr + sz - 8;
    stack->owner = NULL;
    return stack;
}

plain_t *plain_create(plain_t *main_co, plain_stack_t *stack, size_t save_sz, void (*fp)(void),
                      void *arg)
{
    plain_t *co = (plain_t *)get_memory(sizeof(*co));
    memset(co, 0, sizeof(*co));
    if (main_co == NULL) {
        return co;
    }
    co->main_co = main_co;
    co->share_stack = stack;
    co->fp = fp;
    co->arg = arg;
    co->save_stack.sz = save_sz != 0 ? save_sz : 64;
    co->save_stack.ptr = get_memory(co->save_stack.sz);
    co->reg[0] = (void *)(uintptr_t)fp;
    co->reg[1] = stack->retptr;
    return co;
}

static void save(plain_stack_t *stack)
{
    plain_t *co = stack->owner;
    size_t sz = (size_t)(stack->retptr - (char *)co->reg[1]);
    if (co->save_stack.sz < sz) {
        free(co->save_stack.ptr);
        while (co->save_stack.sz < sz) {
            co->save_stack.sz *= 2;
        }
        co->save_stack.ptr = get_memory(co->save_stack.sz);
    }
    memcpy(co->save_stack.ptr, co->reg[1], sz);
    co->save_stack.valid_sz = sz;
    co->save_stack.ct_save++;
    if (sz > co->save_stack.max_cpsz) {
        co->save_stack.max_cpsz = sz;
    }
}

void plain_resume(plain_t *co)
{
    plain_stack_t *stack = co->share_stack;
    if (co->is_end) {
        abort();
    }
    if (stack->owner != co) {
        if (stack->owner != NULL) {
            save(stack);
        }
        stack->owner = co;
        if (co->save_stack.valid_sz != 0) {
            memcpy(stack->retptr - co->save_stack.valid_sz, co->save_stack.ptr,
                   co->save_stack.valid_sz);
            co->save_stack.ct_restore++;
        }
    }
    plain_running = co;
    plain_switch(co->main_co, co);
    plain_running = co->main_co;
}

void plain_destroy(plain_t *co)
{
    if (co->share_stack->owner == co) {
        co->share_stack->owner = NULL;
    }
    free(co->save_stack.ptr);
    free(co);
}
