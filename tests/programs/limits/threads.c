// SPDX-License-Identifier: Apache-2.0
/* Threads whose coroutines count, for helgrind and drd: under a lock, with an argument without. */
#include "aco.h"

#include <pthread.h>

#define CT_THREADS 2
#define CT_COROUTINES 6
#define ROUNDS 20

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int takes_lock, ct;

static void counts(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        volatile char frame[300];
        memset((char *)frame, i, sizeof(frame));
        if (takes_lock) {
            pthread_mutex_lock(&lock);
            ct++;
            pthread_mutex_unlock(&lock);
        } else {
            ct++;
        }
        aco_yield();
        aco_assert(frame[7] == i);
    }
    aco_exit();
}

static void *run_coroutines(void *arg)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL), *cos[CT_COROUTINES];
    aco_share_stack_t *stacks[2] = {aco_share_stack_new(0), aco_share_stack_new(65536)};
    for (int i = 0; i < CT_COROUTINES; i++) {
        cos[i] = aco_create(main_co, stacks[i % 2], 0, counts, NULL);
    }
    for (int i = 0; i < (ROUNDS + 1) * CT_COROUTINES; i++) {
        aco_resume(cos[i % CT_COROUTINES]);
    }
    for (int i = 0; i < CT_COROUTINES; i++) {
        aco_destroy(cos[i]);
    }
    aco_share_stack_destroy(stacks[0]);
    aco_share_stack_destroy(stacks[1]);
    aco_destroy(main_co);
    return arg;
}

int main(int argc, char **argv)
{
    pthread_t threads[CT_THREADS];
    (void)argv;
    takes_lock = argc == 1;
    for (int i = 0; i < CT_THREADS; i++) {
        pthread_create(&threads[i], NULL, run_coroutines, NULL);
    }
    for (int i = 0; i < CT_THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    return 0;
}
