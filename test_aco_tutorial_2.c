// SPDX-License-Identifier: Apache-2.0
/*
 * Tutorial 2: one standalone coroutine, and two that use one share stack in turn. Those two have
 * their local variables at the very same address, and yet each finds its own values there whenever
 * it runs: the frames of the one that does not run are in its save stack. So don't hand the address
 * of a local variable to another coroutine: while that one runs, somebody else's lies there.
 */
#include "aco.h"

#include <stdint.h>
#include <stdio.h>

#include "aco_assert_override.h"

#define ROUNDS 4

struct walker {
    const char *name;
    int stride;
    int position;      /* the value of its local variable when it yielded */
    uintptr_t address; /* the address of that variable */
};

static void walk(void)
{
    struct walker *walker = aco_get_arg();
    volatile int position = 0;
    walker->address = (uintptr_t)&position;
    for (int round = 1; round <= ROUNDS; round++) {
        position += walker->stride;
        walker->position = position;
        aco_yield();
        assert(aco_get_arg() == walker);
        assert(position == round * walker->stride);
    }
    aco_exit();
}

/* One round of all; each must have come one stride further. */
static void resume_in_turn(aco_t *const *walkers, size_t amount, int round)
{
    for (size_t i = 0; i < amount; i++) {
        aco_resume(walkers[i]);
        const struct walker *walker = walkers[i]->arg;
        printf("  %-10s at %3d", walker->name, walker->position);
        assert(walker->position == round * walker->stride);
#ifndef ACO_CONFIG_STRESS
        assert(walkers[i]->share_stack->owner == walkers[i]);
#endif
    }
    printf("\n");
}

static void print_walker(const aco_t *co)
{
    const struct walker *walker = co->arg;
    printf("%-10s local variable at %#lx, saved out %zu times, restored %zu times\n", walker->name,
           (unsigned long)walker->address, co->save_stack.ct_save, co->save_stack.ct_restore);
}

/* The state after ROUNDS rounds in turn. */
static void check_copies(const aco_t *alone, const aco_t *left, const aco_t *right)
{
    const struct walker *at_left = left->arg, *at_right = right->arg, *elsewhere = alone->arg;
    assert(at_left->address == at_right->address);
    assert(at_left->address != elsewhere->address);
#ifndef ACO_CONFIG_STRESS
    assert(alone->save_stack.ct_save == 0);
    assert(alone->save_stack.ct_restore == 0);
    /* The last one to run is still the owner. */
    assert(left->save_stack.ct_save == ROUNDS);
    assert(right->save_stack.ct_save == ROUNDS - 1);
#endif
    assert(left->save_stack.ct_restore == ROUNDS - 1);
    assert(right->save_stack.ct_restore == ROUNDS - 1);
}

int main(void)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *own_stack = aco_share_stack_new(0);
    aco_share_stack_t *common_stack = aco_share_stack_new(0);

    struct walker alone = {"standalone", 1, 0, 0};
    struct walker left = {"left", 10, 0, 0};
    struct walker right = {"right", 100, 0, 0};
    aco_t *walkers[] = {
        aco_create(main_co, own_stack, 0, walk, &alone),
        aco_create(main_co, common_stack, 0, walk, &left),
        aco_create(main_co, common_stack, 0, walk, &right),
    };
    const size_t amount = sizeof(walkers) / sizeof(walkers[0]);

    for (int round = 1; round <= ROUNDS; round++) {
        resume_in_turn(walkers, amount, round);
    }
    for (size_t i = 0; i < amount; i++) {
        print_walker(walkers[i]);
    }
    check_copies(walkers[0], walkers[1], walkers[2]);

    for (size_t i = 0; i < amount; i++) {
        aco_resume(walkers[i]);
        assert(walkers[i]->is_end);
        aco_destroy(walkers[i]);
    }
    aco_share_stack_destroy(common_stack);
    aco_share_stack_destroy(own_stack);
    aco_destroy(main_co);
    return 0;
}
