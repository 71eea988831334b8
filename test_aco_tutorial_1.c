// SPDX-License-Identifier: Apache-2.0
/*
 * Tutorial 1: the statistics that every aco_t keeps of its copies. A diver goes deeper by a frame
 * at each resume; as long as nobody else wants its share stack, nothing is copied. Then a visitor
 * runs on the same stack in between, and the diver's frames are saved out and restored each time.
 * The largest copy, max_cpsz, is the save_stack_sz that would have been right from the beginning: a
 * second diver is created with it, and its save stack never has to grow.
 */
#include "aco.h"

#include <stdio.h>

#include "aco_assert_override.h"

#define ROUNDS_ALONE 3
#define LEVELS 4
#define LEVEL_SZ 200u /* bytes of locals in a frame of the diver */

/* The locals are volatile, so that they lie on the stack, where the copies find them. */
static void descend(unsigned level)
{
    volatile unsigned char locals[LEVEL_SZ];
    for (size_t i = 0; i < LEVEL_SZ; i++) {
        locals[i] = (unsigned char)(level + i);
    }
    aco_yield();
    if (level < LEVELS) {
        descend(level + 1);
    }
    for (size_t i = 0; i < LEVEL_SZ; i++) {
        assert(locals[i] == (unsigned char)(level + i));
    }
}

static void diver(void)
{
    for (int i = 0; i < ROUNDS_ALONE; i++) {
        aco_yield();
    }
    descend(1);
    aco_exit();
}

static void visitor(void)
{
    for (;;) {
        aco_yield();
    }
}

static void print_header(const char *title)
{
    printf("%s\n%-16s %6s %9s %9s %8s %11s\n", title, "", "sz", "valid_sz", "max_cpsz", "ct_save",
           "ct_restore");
}

static void print_statistics(const char *when, const aco_t *co)
{
    const aco_save_stack_t *save = &co->save_stack;
    printf("%-16s %6zu %9zu %9zu %8zu %11zu\n", when, save->sz, save->valid_sz, save->max_cpsz,
           save->ct_save, save->ct_restore);
}

/* Bytes of the frames of a suspended coroutine, wherever they lie. */
static size_t live_sz(const aco_t *co)
{
    const char *end = co->share_stack->align_retptr;
    return (size_t)(end - (const char *)co->reg[ACO_REG_IDX_SP]);
}

static void dive_alone(aco_t *co)
{
    for (int i = 0; i < ROUNDS_ALONE; i++) {
        aco_resume(co);
    }
    print_statistics("alone", co);
#ifndef ACO_CONFIG_STRESS
    assert(co->save_stack.valid_sz == 0);
    assert(co->save_stack.max_cpsz == 0);
    assert(co->save_stack.ct_save == 0);
    assert(co->save_stack.ct_restore == 0);
#endif
}

static void dive_with_visits(aco_t *co, aco_t *visiting)
{
    const aco_save_stack_t *save = &co->save_stack;
    size_t ct_save_alone = save->ct_save;
    for (size_t level = 1; level <= LEVELS; level++) {
        aco_resume(co);
        aco_resume(visiting);
        print_statistics("saved out", co);
        assert(save->ct_save == ct_save_alone + level);
        assert(save->ct_restore == save->ct_save - 1);
        assert(save->valid_sz == live_sz(co));
        assert(save->valid_sz >= level * LEVEL_SZ);
        assert(save->max_cpsz == save->valid_sz);
        assert(save->sz >= save->max_cpsz);
    }
    aco_resume(co);
    print_statistics("ended", co);
    assert(co->is_end);
    assert(save->valid_sz == 0);
    assert(save->ct_restore == save->ct_save);
}

/* Lets one diver do all it does, and returns the size that its save stack should have had. */
static size_t dive(aco_t *main_co, size_t save_stack_sz)
{
    aco_share_stack_t *share_stack = aco_share_stack_new(0);
    aco_t *co = aco_create(main_co, share_stack, save_stack_sz, diver, NULL);
    aco_t *visiting = aco_create(main_co, share_stack, 0, visitor, NULL);
    assert(co->save_stack.sz >= save_stack_sz);

    dive_alone(co);
    dive_with_visits(co, visiting);
    size_t max_cpsz = co->save_stack.max_cpsz;
    if (save_stack_sz == max_cpsz) {
        assert(co->save_stack.sz == save_stack_sz);
    }

    aco_destroy(visiting);
    aco_destroy(co);
    aco_share_stack_destroy(share_stack);
    return max_cpsz;
}

int main(void)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);

    print_header("a diver with the default save stack (bytes)");
    size_t right_sz = dive(main_co, 0);
    print_header("a diver with a save stack of the right size");
    size_t same_sz = dive(main_co, right_sz);
    assert(same_sz == right_sz);

    aco_destroy(main_co);
    return 0;
}
