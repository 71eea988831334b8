// SPDX-License-Identifier: Apache-2.0
/*
 * Barriers, for threads of both kinds. libc's know no tasks, so those of one process are made here.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <limits.h>

/* In a pthread_barrier_t. libc's is as long, and has 0 or 128 where this has `kind` and `lock`. */
typedef struct {
    uint32_t ct_arrived; /* in this round */
    uint32_t round;      /* a futex */
    uint32_t ct;         /* how many make a round */
    uint16_t kind;
    lock_t lock;        /* for the first two */
    uint32_t ct_inside; /* calls that have not returned */
} barrier_t;

#define KIND UINT16_C(0x6f62)

_Static_assert(sizeof(barrier_t) <= sizeof(pthread_barrier_t), "a barrier has room");

REPLACE(int, pthread_barrier_init,
        (pthread_barrier_t * barrier, const pthread_barrierattr_t *attributes, unsigned ct),
        (barrier, attributes, ct), EAGAIN)
{
    int shared = PTHREAD_PROCESS_PRIVATE;
    int error = real_pthread_barrier_init(barrier, attributes, ct);
    if (attributes != NULL) {
        pthread_barrierattr_getpshared(attributes, &shared);
    }
    if (error == 0 && shared == PTHREAD_PROCESS_PRIVATE) {
        *(barrier_t *)barrier = (barrier_t){.ct = ct, .kind = KIND};
    }
    return error;
}

REPLACE(int, pthread_barrier_destroy, (pthread_barrier_t * barrier), (barrier), EINVAL)
{
    barrier_t *b = (barrier_t *)barrier;
    if (b->kind != KIND) {
        return real_pthread_barrier_destroy(barrier);
    }
    while (__atomic_load_n(&b->ct_inside, __ATOMIC_ACQUIRE) != 0) {
        sched_yield();
    }
    b->kind = 0;
    return 0;
}

static int wait_at(barrier_t *b)
{
    __atomic_add_fetch(&b->ct_inside, 1, __ATOMIC_ACQUIRE);
    lock(&b->lock);
    uint32_t round = b->round;
    int is_last = ++b->ct_arrived == b->ct;
    if (is_last) {
        b->ct_arrived = 0;
        __atomic_store_n(&b->round, round + 1, __ATOMIC_RELEASE);
    }
    unlock(&b->lock);
    if (is_last) {
        aco_i_wake_all_at(&b->round);
    }
    while (__atomic_load_n(&b->round, __ATOMIC_ACQUIRE) == round) {
        aco_i_wait_while(&b->round, round, CLOCK_MONOTONIC, NULL);
    }
    __atomic_sub_fetch(&b->ct_inside, 1, __ATOMIC_RELEASE);
    return is_last ? PTHREAD_BARRIER_SERIAL_THREAD : 0;
}

REPLACE_HOOK(int, pthread_barrier_wait, (pthread_barrier_t * barrier))
{
    barrier_t *b = (barrier_t *)barrier;
    int result = 0;
    if (b->kind != KIND) {
        return hook_pthread_barrier_wait(barrier);
    }
    if (!is_in_task()) {
        return wait_at(b);
    }
    aco_shielded
    {
        result = wait_at(b);
    }
    return result;
}
