// SPDX-License-Identifier: Apache-2.0
/*
 * The plain shape of a copying coroutine library, to measure against: a switch that is a function
 * and saves every callee-saved register, called from a resume that is a function too; an object
 * and a save stack in two allocations; memcpy() for every copy. x86-64, shared control words, none
 * of the checks. Just enough of the names of aco.h that aco.c compiles with either.
 */
#ifndef PLAIN_H
#define PLAIN_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef struct plain_stack plain_stack_t;
typedef struct plain {
    void *reg[8]; /* return address, rsp, rbp, rbx, r12-r15 */
    struct plain *main_co;
    void *arg;
    char is_end;
    void (*fp)(void);
    struct {
        void *ptr;
        size_t sz, valid_sz, max_cpsz, ct_save, ct_restore;
    } save_stack;
    plain_stack_t *share_stack;
} plain_t;

struct plain_stack {
    void *ptr;
    size_t sz;
    char *retptr;
    plain_t *owner;
};

extern __thread plain_t *plain_running;
void plain_switch(plain_t *from, plain_t *to);
plain_t *plain_create(plain_t *main_co, plain_stack_t *stack, size_t save_sz, void (*fp)(void),
                      void *arg);
plain_stack_t *plain_stack_new(size_t sz);
void plain_resume(plain_t *co);
void plain_destroy(plain_t *co);

static inline void plain_yield(void)
{
    plain_switch(plain_running, plain_running->main_co);
}

static inline void plain_exit(void)
{
    plain_running->is_end = 1;
    plain_running->share_stack->owner = NULL;
    plain_yield();
    abort();
}

#define aco_t plain_t
#define aco_share_stack_t plain_stack_t
#define aco_thread_init(last_word) ((void)0)
#define aco_share_stack_new plain_stack_new
#define aco_create plain_create
#define aco_resume plain_resume
#define aco_yield plain_yield
#define aco_exit plain_exit
#define aco_destroy plain_destroy
#define aco_gtls_co plain_running
#define acosw plain_switch

#endif
