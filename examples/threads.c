// threads.c shows a coroutine that goes from one thread to another and back.
// SPDX-License-Identifier: Apache-2.0
//
// Two threads hand a coroutine to each other, and it goes on where it was: by aco_detach() and
// aco_attach(), with a mutex and a condition variable in between.
// build: -Iextra/threads extra/threads/aco_threads.c
/*
 * The coroutine counts; each thread lets it make one step and passes it on. It prints:
 *
 *     1 in the first thread
 *     2 in the second thread
 *     3 in the first thread
 *     4 in the second thread
 *     5 in the first thread
 */
#include "aco_threads.h"

#include <pthread.h>

/* The thread whose turn it is; the coroutine is detached whenever the mutex is free. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    aco_t *co;
    int turn; /* 0 or 1 */
} table = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0};

static const char *const names[] = {"first", "second"};

static void count(void)
{
    for (int i = 1; i <= 5; i++) {
        printf("%d", i);
        aco_movable_yield();
    }
    aco_exit();
}

/* Waits for its turn, makes a step, and passes the coroutine on. Returns whether it goes on. */
static int make_step(aco_t *main_co, int me)
{
    pthread_mutex_lock(&table.mutex);
    while (table.turn != me) {
        pthread_cond_wait(&table.changed, &table.mutex);
    }
    if (!table.co->is_end) {
        aco_attach(table.co, main_co);
        aco_resume(table.co);
        aco_detach(table.co);
    }
    int goes_on = !table.co->is_end;
    if (goes_on) {
        printf(" in the %s thread\n", names[me]);
    }
    table.turn = 1 - me;
    pthread_cond_signal(&table.changed);
    pthread_mutex_unlock(&table.mutex);
    return goes_on;
}

static void *run(void *me)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    while (make_step(main_co, *(const int *)me)) {
    }
    aco_destroy(main_co);
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    int numbers[2] = {0, 1};
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    table.co = aco_create(main_co, stack, 0, count, NULL);
    aco_detach(table.co);

    for (int i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, run, &numbers[i]);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }

    aco_destroy(table.co);
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
    return 0;
}
