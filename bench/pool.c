// SPDX-License-Identifier: Apache-2.0
/*
 * Measures a workload of standalone coroutines on pool stacks and prints one number, ns per
 * operation. figures.sh runs it.
 */
#include "extra/stack_pool/aco_stack_pool.h"

static aco_t *main_co;
static long yields; /* counted by the coroutines, compared with the resumes at the end */

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void die(const char *words)
{
    fprintf(stderr, "pool: %s\n", words);
    exit(1);
}

/* ---- Bodies --------------------------------------------------------------------------------- */

static void flat(void)
{
    for (;;) {
        yields++;
        aco_yield();
    }
}

static void ends(void)
{
    yields++;
    aco_exit();
}

/* ---- Workloads ------------------------------------------------------------------------------ */

/* Get and put alone. */
static double get_and_put(unsigned flags)
{
    enum { TIMES = 10000000 };
    aco_stack_pool_t *pool = aco_stack_pool_new((size_t)64 << 10, flags);
    aco_stack_pool_put(pool, aco_stack_pool_get(pool));
    double start = now_ns();
    for (long i = 0; i < TIMES; i++) {
        aco_stack_pool_put(pool, aco_stack_pool_get(pool));
    }
    return (now_ns() - start) / TIMES;
}

/* Create, first resume to the end, destroy. */
static double life(unsigned flags)
{
    enum { LIVES = 5000000 };
    aco_stack_pool_t *pool = aco_stack_pool_new((size_t)64 << 10, flags);
    aco_stack_pool_put(pool, aco_stack_pool_get(pool));
    double start = now_ns();
    for (long i = 0; i < LIVES; i++) {
        aco_t *co = aco_stack_pool_create_co(pool, main_co, ends, NULL);
        aco_resume(co);
        aco_stack_pool_destroy_co(pool, co);
    }
    double ns = (now_ns() - start) / LIVES;
    if (yields != LIVES) {
        die("a coroutine was lost");
    }
    return ns;
}

/* Resume + yield of `count` suspended ones in turn. */
static double round_robin(size_t count, size_t stack_sz)
{
    enum { RESUMES = 20000000 };
    size_t rounds = RESUMES / count;
    aco_stack_pool_t *pool = aco_stack_pool_new(stack_sz, 0);
    aco_t **all = (aco_t **)malloc(count * sizeof(*all));
    if (all == NULL) {
        die("out of memory");
    }
    for (size_t i = 0; i < count; i++) {
        all[i] = aco_stack_pool_create_co(pool, main_co, flat, NULL);
        aco_resume(all[i]);
    }
    yields = 0;
    double start = now_ns();
    for (size_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < count; i++) {
            aco_resume(all[i]);
        }
    }
    double ns = (now_ns() - start) / (double)(count * rounds);
    if (yields != (long)(count * rounds)) {
        die("a resume was lost");
    }
    return ns;
}

static size_t number(const char *text)
{
    return (size_t)strtoul(text, NULL, 10);
}

static double measure(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "get-put") == 0) {
        return get_and_put(0);
    }
    if (argc == 2 && strcmp(argv[1], "get-put-shared") == 0) {
        return get_and_put(ACO_STACK_POOL_SHARED);
    }
    if (argc == 2 && strcmp(argv[1], "life") == 0) {
        return life(0);
    }
    if (argc == 2 && strcmp(argv[1], "life-shared") == 0) {
        return life(ACO_STACK_POOL_SHARED);
    }
    if (argc == 4 && strcmp(argv[1], "round-robin") == 0) {
        return round_robin(number(argv[2]), number(argv[3]) << 10);
    }
    die("usage: pool get-put[-shared] | life[-shared] | round-robin COUNT STACK_KIB");
    return 0;
}

int main(int argc, char **argv)
{
    aco_thread_init(NULL);
    main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    printf("%.2f\n", measure(argc, argv));
    return 0;
}
