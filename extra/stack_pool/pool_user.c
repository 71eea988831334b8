// SPDX-License-Identifier: Apache-2.0
/*
 * A program for test_tools.sh: coroutines on pool stacks, with all that tools look at. Some are
 * left in the midst of frames, what they hold is known to nobody else, stacks come back from the
 * pool and from the system, and threads share a pool. Exits with 0 if all found what they left.
 */
#include "extra/stack_pool/aco_stack_pool.h"

#include <pthread.h>

#define CT 40
#define ROUNDS 2
#define STACK_SZ ((size_t)64 << 10)
#define BLOCK_SZ 100
#define DEPTH 10

typedef struct {
    aco_stack_pool_t *pool;
    unsigned resumes;
} order_t;

static unsigned failure_ct;

/* Frames with red zones around an array, and a block of the heap that only the stack knows. */
static __attribute__((noinline)) unsigned go_down(unsigned depth)
{
    volatile unsigned char bytes[77];
    unsigned char *block = (unsigned char *)malloc(BLOCK_SZ);
    if (block == NULL) {
        abort();
    }
    memset(block, (int)depth, BLOCK_SZ);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (unsigned char)depth;
    }
    unsigned sum = depth == 0 ? 0 : go_down(depth - 1);
    aco_yield();
    for (size_t i = 0; i < sizeof(bytes); i++) {
        sum += bytes[i] != depth || block[i] != depth;
    }
    free(block);
    return sum;
}

/* Its argument is a block of the heap that only the aco_t knows. */
static void goes_down(void)
{
    unsigned sum = go_down(DEPTH);
    __atomic_fetch_add(&failure_ct, sum, __ATOMIC_RELAXED);
    free(aco_get_arg());
    aco_exit();
}

static void resume_to_the_end(aco_t *co)
{
    while (!co->is_end) {
        aco_resume(co);
    }
}

static void live_and_die(aco_stack_pool_t *pool, aco_t *main_co)
{
    aco_t *all[CT];
    for (size_t i = 0; i < CT; i++) {
        all[i] = aco_stack_pool_create_co(pool, main_co, goes_down, malloc(BLOCK_SZ));
        for (size_t j = 0; j < i % DEPTH; j++) {
            aco_resume(all[i]);
        }
    }
    for (size_t i = 0; i < CT; i++) {
        resume_to_the_end(all[CT - 1 - i]);
        aco_stack_pool_destroy_co(pool, all[CT - 1 - i]);
    }
}

static void leaves_frames(void)
{
    volatile char bytes[3000];
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = 1;
    }
    aco_yield();
    bytes[0] = 2;
    aco_exit();
}

static void die_young(aco_stack_pool_t *pool, aco_t *main_co)
{
    for (size_t i = 0; i < CT; i++) {
        aco_t *co = aco_stack_pool_create_co(pool, main_co, leaves_frames, NULL);
        aco_resume(co);
        aco_stack_pool_destroy_co(pool, co);
    }
}

static void *use(void *arg)
{
    aco_stack_pool_t *pool = (aco_stack_pool_t *)arg;
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    for (size_t round = 0; round < ROUNDS; round++) {
        die_young(pool, main_co);
        live_and_die(pool, main_co);
        if (round == 0) {
            aco_stack_pool_trim(pool);
        }
    }
    aco_destroy(main_co);
    return NULL;
}

/* The process ends with blocks that only suspended coroutines know, which is no leak. */
static void leave_some_suspended(void)
{
    static aco_stack_pool_t *pool;
    static aco_t *all[CT], *main_co;
    aco_thread_init(NULL);
    main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    pool = aco_stack_pool_new(STACK_SZ, 0);
    for (size_t i = 0; i < CT; i++) {
        all[i] = aco_stack_pool_create_co(pool, main_co, goes_down, malloc(BLOCK_SZ));
        if (i % 2) {
            aco_resume(all[i]);
        }
    }
}

int main(void)
{
    pthread_t threads[2];
    aco_stack_pool_t *own = aco_stack_pool_new(STACK_SZ, 0);
    aco_stack_pool_t *shared = aco_stack_pool_new(STACK_SZ, ACO_STACK_POOL_SHARED);
    use(own);
    aco_stack_pool_destroy(own);
    for (size_t i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, use, shared) != 0) {
            return 2;
        }
    }
    for (size_t i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    aco_stack_pool_destroy(shared);
    leave_some_suspended();
    return failure_ct != 0;
}
