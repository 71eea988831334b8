// SPDX-License-Identifier: Apache-2.0
/*
 * A program for gdb to look at, with coroutines in every state on two threads and locals of known
 * values. The places to break at are stop_here(), which a coroutine of the first thread calls, and
 * in main() the lines after "Here" and after "none left". The exit status is 0 if all coroutines,
 * continued to their ends, still have the values that they had. Relies on aco.h and threads.
 */
/* For barriers, also where the dialect is strict. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif

#include "aco.h"

#include <pthread.h>

#define NOINLINE __attribute__((noinline))
#define DEPTH 3
#define TEXT_SZ 40u /* bytes */

/* Everything of one thread. Each coroutine gets a tag of its own, which its locals are made of. */
typedef struct {
    int tags[6];
    aco_t *main_co;
    aco_share_stack_t *shared, *own;
    aco_t *nested, *switcher, *in_place, *ended, *not_started, *runner;
} world_t;

static world_t worlds[2];
static pthread_barrier_t all_prepared, all_looked_at;
static volatile int wrong_values, looks;

/* ==== Entry functions ======================================================================== */

/* Ends with the switch: what follows it is no more than the restoring of registers. */
NOINLINE static void yield(void)
{
    aco_yield();
}

/* Yields `depth` calls deeper. `name` is a text in the frame of the caller. */
NOINLINE static int nest(int depth, int tag, const char *name)
{
    volatile int local = tag * 100 + depth;
    char text[TEXT_SZ] = "";
    const char *volatile its_name = name;
    snprintf(text, sizeof(text), "depth %d of %d", depth, tag);
    if (depth == 0) {
        yield();
    } else {
        wrong_values += nest(depth - 1, tag, text);
    }
    return local != tag * 100 + depth || its_name != name || text[6] != '0' + depth;
}

static void worker(void)
{
    int tag = *(const int *)aco_get_arg();
    wrong_values += nest(DEPTH, tag, "nobody");
    aco_exit();
}

/* Suspends in acosw(), with a value in what is likely to be a callee-saved register. */
NOINLINE static int switch_by_function(int tag)
{
    int kept = tag * 100;
    __asm__("" : "+r"(kept)); /* so that no compiler computes it later */
    aco_t *co = aco_get_co();
    acosw(co, co->main_co);
    return kept != *(const int *)aco_get_arg() * 100;
}

static void switcher(void)
{
    int tag = *(const int *)aco_get_arg();
    wrong_values += switch_by_function(tag);
    aco_exit();
}

static void ender(void)
{
    aco_exit();
}

/* Inline, so that the thread's innermost frame has none of its own on the stack. */
__attribute__((always_inline)) static inline void stop_here(void)
{
    looks++;
}

static void runner(void)
{
    stop_here();
    aco_exit();
}

/* ==== Threads ================================================================================ */

static aco_t *make(world_t *w, aco_share_stack_t *stack, aco_cofuncp_t fp, int number)
{
    return aco_create(w->main_co, stack, 0, fp, &w->tags[number]);
}

/* Makes one coroutine in each state. `switcher` is the owner of the shared stack. */
static void prepare(world_t *w, int first_tag)
{
    for (int i = 0; i < 6; i++) {
        w->tags[i] = first_tag + i;
    }
    aco_thread_init(NULL);
    w->main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    w->shared = aco_share_stack_new(0);
    w->own = aco_share_stack_new(0);
    w->nested = make(w, w->shared, worker, 0);
    w->switcher = make(w, w->shared, switcher, 1);
    w->in_place = make(w, w->own, worker, 2);
    w->ended = make(w, w->shared, ender, 3);
    w->not_started = make(w, w->shared, worker, 4);
    w->runner = make(w, w->shared, runner, 5);
    aco_resume(w->nested);
    aco_resume(w->in_place);
    aco_resume(w->ended);
    aco_resume(w->switcher);
}

static void finish(world_t *w)
{
    aco_t *all[] = {w->nested, w->switcher, w->in_place, w->ended, w->not_started, w->runner};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        while (!all[i]->is_end) {
            aco_resume(all[i]);
        }
        aco_destroy(all[i]);
    }
    aco_share_stack_destroy(w->shared);
    aco_share_stack_destroy(w->own);
    aco_destroy(w->main_co);
}

static void *run_second(void *arg)
{
    prepare(&worlds[1], 11);
    pthread_barrier_wait(&all_prepared);
    pthread_barrier_wait(&all_looked_at);
    finish(&worlds[1]);
    return arg;
}

int main(void)
{
    pthread_t second;
    pthread_barrier_init(&all_prepared, NULL, 2);
    pthread_barrier_init(&all_looked_at, NULL, 2);
    pthread_create(&second, NULL, run_second, NULL);
    prepare(&worlds[0], 1);
    pthread_barrier_wait(&all_prepared);
    aco_resume(worlds[0].runner);
    /* Here all but `runner` are as before, and the thread stands in main(). */
    looks++;
    pthread_barrier_wait(&all_looked_at);
    pthread_join(second, NULL);
    finish(&worlds[0]);
    /* There is none left. */
    return wrong_values;
}
