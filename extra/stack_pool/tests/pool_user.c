// SPDX-License-Identifier: Apache-2.0
/*
 * A program for test_tools.sh: coroutines on pool stacks, in the ways that matter to tools. Some
 * stay suspended within frames, and hold blocks that nothing else refers to; stacks come back from
 * the pool and from the system; threads share a pool while another thread reads its statistics.
 * Exits with 0 if all data are intact. With the argument `leak` it leaks a block, whose address is
 * where a coroutine of a pool was.
 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "extra/stack_pool/aco_stack_pool.h"

#include <pthread.h>
#include <sys/mman.h>

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

/* Frames with red zones around an array, and a heap block that only the stack refers to. */
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

/* Its argument is a heap block that only the aco_t refers to. */
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

/* The process ends with blocks that only suspended coroutines refer to: no leak. */
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

static int is_over;

static void *watch(void *arg)
{
    aco_stack_pool_stats_t stats;
    do {
        aco_stack_pool_stats((aco_stack_pool_t *)arg, &stats);
        if (stats.in_use > stats.most_in_use || stats.in_use > stats.ct_get) {
            __atomic_fetch_add(&failure_ct, 1, __ATOMIC_RELAXED);
        }
    } while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED));
    return NULL;
}

/* The coroutine's mapping is gone by then, and another one is in its place. */
static int leak(void)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_stack_pool_t *pool = aco_stack_pool_new(STACK_SZ, 0);
    aco_t *co = aco_stack_pool_create_co(pool, main_co, leaves_frames, NULL);
    uintptr_t address = (uintptr_t)co;
    aco_stack_pool_destroy_co(pool, co);
    aco_stack_pool_trim(pool);
    char *page = (char *)mmap((void *)(address & ~(uintptr_t)4095), 4096, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (page == (char *)MAP_FAILED) {
        return 2;
    }
    *(void **)(void *)(page + (address & 4095)) = malloc(BLOCK_SZ);
    aco_stack_pool_destroy(pool);
    aco_destroy(main_co);
    return 0;
}

int main(int argc, char **argv)
{
    pthread_t threads[3];
    if (argc > 1 && strcmp(argv[1], "leak") == 0) {
        return leak();
    }
    aco_stack_pool_t *own = aco_stack_pool_new(STACK_SZ, 0);
    aco_stack_pool_t *shared = aco_stack_pool_new(STACK_SZ, ACO_STACK_POOL_SHARED);
    use(own);
    aco_stack_pool_destroy(own);
    for (size_t i = 0; i < 3; i++) {
        if (pthread_create(&threads[i], NULL, i < 2 ? use : watch, shared) != 0) {
            return 2;
        }
    }
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    pthread_join(threads[2], NULL);
    aco_stack_pool_destroy(shared);
    leave_some_suspended();
    return failure_ct != 0;
}
