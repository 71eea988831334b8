// skynet.c shows a million coroutines, nested, on the stacks of a pool.
// SPDX-License-Identifier: Apache-2.0
//
// Skynet: a coroutine makes ten others, each of them ten more, up to a million leaves. A parent
// resumes its children and reads what they found.
// build: -Iextra/stack_pool extra/stack_pool/aco_stack_pool.c
/*
 * Every leaf has a number, every other one adds up what its children found. 1,111,111 coroutines
 * come and go on the stacks of one pool, of which 61 are in use at most.
 */
#include "aco_stack_pool.h"

#include <sys/resource.h>

#define CHILDREN 10
#define LEAVES 1000000L

typedef struct {
    long first; /* number of the first leaf below */
    long ct;    /* leaves below; a leaf itself where it is 1 */
    int64_t sum;
} task_t;

static aco_stack_pool_t *pool;

static void skynet(void);

static int64_t sum_of_children(const task_t *task)
{
    task_t tasks[CHILDREN];
    aco_t *children[CHILDREN];
    int64_t sum = 0;
    for (int i = 0; i < CHILDREN; i++) {
        long ct = task->ct / CHILDREN;
        tasks[i] = (task_t){task->first + i * ct, ct, 0};
        children[i] = aco_stack_pool_create_co(pool, aco_get_co(), skynet, &tasks[i]);
    }
    for (int i = 0; i < CHILDREN; i++) {
        aco_resume(children[i]);
        aco_stack_pool_destroy_co(pool, children[i]);
        sum += tasks[i].sum;
    }
    return sum;
}

static void skynet(void)
{
    task_t *task = (task_t *)aco_get_arg();
    task->sum = task->ct == 1 ? task->first : sum_of_children(task);
    aco_exit();
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static double peak_mib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

int main(void)
{
    double start = now_ms();
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    pool = aco_stack_pool_new(0, 0);
    task_t root = {0, LEAVES, 0};
    aco_t *co = aco_stack_pool_create_co(pool, main_co, skynet, &root);
    aco_resume(co);
    aco_stack_pool_destroy_co(pool, co);
    aco_stack_pool_destroy(pool);
    aco_destroy(main_co);
    printf("sum %lld\ntime %.1f ms\npeak memory %.1f MiB\n", (long long)root.sum, now_ms() - start,
           peak_mib());
    return 0;
}
