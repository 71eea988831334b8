// SPDX-License-Identifier: Apache-2.0
/*
 * Tutorial 3: several threads. The library shares nothing between them: each thread prepares
 * itself and has a main coroutine, a share stack and coroutines of its own, which it alone resumes.
 * Data that the program itself shares need a lock: here a counter that all coroutines of all
 * threads add to. A coroutine never yields with the lock held: the next one on its thread that
 * wants the lock would wait for it forever.
 */
#include "aco.h"

#include <pthread.h>
#include <stdio.h>

#include "aco_assert_override.h"

#define THREADS 4
#define COROUTINES 8 /* coroutines of each thread, all on one share stack */
#define ROUNDS 500   /* rounds of each coroutine */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long common_count; /* guarded by lock */

struct thread {
    pthread_t id;
    unsigned long own_count; /* no lock: only the coroutines of one thread add to it */
};

static void lock_and_count(void)
{
    int locked = pthread_mutex_lock(&lock);
    assert(locked == 0);
    common_count++;
    int unlocked = pthread_mutex_unlock(&lock);
    assert(unlocked == 0);
}

static void count(void)
{
    struct thread *thread = aco_get_arg();
    for (int round = 0; round < ROUNDS; round++) {
        lock_and_count();
        thread->own_count++;
        aco_yield();
        assert(pthread_equal(thread->id, pthread_self()));
    }
    aco_exit();
}

/* Resumes the coroutines in turn until they have ended, which all do in the same round. */
static void resume_until_ended(aco_t *const *coroutines)
{
    do {
        for (int i = 0; i < COROUTINES; i++) {
            aco_resume(coroutines[i]);
        }
    } while (!coroutines[0]->is_end);
}

static void *run_thread(void *arg)
{
    struct thread *thread = arg;
    thread->id = pthread_self();
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *share_stack = aco_share_stack_new(0);
    aco_t *coroutines[COROUTINES];
    for (int i = 0; i < COROUTINES; i++) {
        coroutines[i] = aco_create(main_co, share_stack, 0, count, thread);
    }

    assert(aco_get_co() == NULL);
    resume_until_ended(coroutines);
    assert(aco_get_co() == main_co);

    for (int i = 0; i < COROUTINES; i++) {
        assert(coroutines[i]->is_end);
        aco_destroy(coroutines[i]);
    }
    aco_share_stack_destroy(share_stack);
    aco_destroy(main_co);
    return NULL;
}

int main(void)
{
    struct thread threads[THREADS] = {{0}};
    pthread_t ids[THREADS];
    for (int i = 0; i < THREADS; i++) {
        int created = pthread_create(&ids[i], NULL, run_thread, &threads[i]);
        assert(created == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        int joined = pthread_join(ids[i], NULL);
        assert(joined == 0);
        printf("thread %d: its %d coroutines counted to %lu\n", i, COROUTINES,
               threads[i].own_count);
        assert(threads[i].own_count == COROUTINES * ROUNDS);
    }
    printf("all threads: %lu\n", common_count);
    assert(common_count == THREADS * COROUTINES * ROUNDS);
    return 0;
}
