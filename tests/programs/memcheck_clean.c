// SPDX-License-Identifier: Apache-2.0
/*
 * For memcheck, which must find nothing: over a thousand coroutines on a few share stacks nest at
 * random, keep what they are sure of in their frames over yields and look at all of it again, and
 * are ended, destroyed, made anew and reset by hand in every state; some switch to others directly.
 * Memory of the caller that was a stack is like any other then. Exits with 0 if all is well, with 1
 * if a frame lost what it held.
 */
#include "aco.h"

#define MANY 1000 /* coroutines on the first share stack */
#define FEW 50    /* on each of the others */
#define STEPS 8000
#define MEMORY_SZ 40000 /* bytes of the caller's, for the last share stack */
#define MAX_DEPTH 12
#define MAX_WORDS 200 /* of an array in a frame */

typedef struct {
    aco_t *co;
    aco_share_stack_t *stack;
    uint32_t random;
} actor_t;

static actor_t actors[MANY + 4 * FEW];
enum { CT_ACTORS = sizeof(actors) / sizeof(actors[0]) };
static int is_wrong;

static uint32_t next_random(uint32_t *random)
{
    *random = *random * 1103515245u + 12345u;
    return *random >> 16;
}

/* Yields to its parent or to any other one. */
static void yield(uint32_t *random)
{
    aco_t *other = actors[next_random(random) % CT_ACTORS].co;
    if (next_random(random) % 4 == 0 && other != NULL && other != aco_get_co() && !other->is_end) {
        aco_yield_to(other);
    } else {
        aco_yield();
    }
}

/* Fills and reads an array whose size is random, with yields on the way down and on the way up. */
static uint32_t nest(uint32_t *random, uint32_t depth)
{
    uint32_t words[MAX_WORDS], seed = next_random(random), sum = 0;
    uint32_t ct = 1 + next_random(random) % MAX_WORDS;
    for (uint32_t i = 0; i < ct; i++) {
        words[i] = seed + i;
    }
    __asm__ volatile("" : : "r"(words) : "memory");
    if (next_random(random) % 4 == 0) {
        yield(random);
    }
    if (depth != 0) {
        sum = nest(random, depth - 1);
    }
    if (next_random(random) % 4 == 0) {
        yield(random);
    }
    for (uint32_t i = 0; i < ct; i++) {
        if (words[i] != seed + i) {
            is_wrong = 1;
        }
    }
    return sum + ct;
}

static void nests_at_random(void)
{
    uint32_t *random = &((actor_t *)aco_get_arg())->random;
    uint32_t rounds = next_random(random) % 8;
    for (uint32_t i = 0; i < rounds; i++) {
        if (nest(random, next_random(random) % MAX_DEPTH) == 0) {
            is_wrong = 1;
        }
        aco_yield();
    }
    aco_exit();
}

static void make(actor_t *actor, aco_t *main_co)
{
    actor->co = aco_create(main_co, actor->stack, 0, nests_at_random, actor);
}

static void reset_by_hand(aco_t *co)
{
    co->reg[ACO_REG_IDX_RETADDR] = (void *)(uintptr_t)co->fp;
    co->reg[ACO_REG_IDX_SP] = co->share_stack->align_retptr;
    co->is_end = 0;
    co->save_stack.valid_sz = 0;
}

/* Whatever state it is in, the next thing that can happen to it happens. */
static void step(actor_t *actor, aco_t *main_co, uint32_t dice)
{
    if (dice % 16 == 0) {
        aco_destroy(actor->co);
        make(actor, main_co);
    } else if (dice % 16 == 1 || (actor->co->is_end && dice % 2 == 0)) {
        reset_by_hand(actor->co);
    } else if (actor->co->is_end) {
        aco_destroy(actor->co);
        make(actor, main_co);
    }
    aco_resume(actor->co);
}

int main(void)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    char *memory = (char *)malloc(MEMORY_SZ);
    aco_share_stack_t *stacks[] = {aco_share_stack_new(0), aco_share_stack_new2(32768, 0),
                                   aco_share_stack_new2(32768, 1), aco_share_stack_new(8 << 20),
                                   aco_share_stack_new_in(memory, MEMORY_SZ)};
    for (uint32_t i = 0; i < CT_ACTORS; i++) {
        actors[i].stack = stacks[i < MANY ? 0 : 1 + (i - MANY) / FEW];
        actors[i].random = i;
        make(&actors[i], main_co);
        aco_resume(actors[i].co);
    }
    uint32_t random = 1;
    for (int i = 0; i < STEPS; i++) {
        actor_t *actor = &actors[next_random(&random) % CT_ACTORS];
        step(actor, main_co, next_random(&random));
    }
    for (uint32_t i = 0; i < CT_ACTORS; i++) {
        aco_destroy(actors[i].co);
    }
    for (size_t i = 0; i < sizeof(stacks) / sizeof(stacks[0]); i++) {
        aco_share_stack_destroy(stacks[i]);
    }
    aco_destroy(main_co);
    memset(memory, 1, MEMORY_SZ);
    __asm__ volatile("" : : "r"(memory) : "memory");
    free(memory);
    return is_wrong;
}
