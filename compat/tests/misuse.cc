// SPDX-License-Identifier: Apache-2.0
/* misuse N: does the N-th kind of misuse, which ends in a message. */
#include "co_routine.h"

#include "aco_runtime.h"

#include <stdlib.h>

static stCoRoutine_t *outer, *inner;
static int number;
static aco_semaphore_t none;

static void *run_inner(void *)
{
    if (number == 1) {
        co_resume(outer);
    } else if (number == 2) {
        co_release(outer);
    }
    return NULL;
}

static void *run_outer(void *)
{
    switch (number) {
    case 0:
        co_resume(outer);
        break;
    case 3:
        co_reset(co_self());
        break;
    case 4:
        co_eventloop(co_get_epoll_ct(), NULL, NULL);
        break;
    case 5:
        co_yield_ct();
        break;
    case 10:
        aco_exit();
        break;
    case 12:
    case 13:
        aco_semaphore_acquire(&none);
        break;
    default:
        co_resume(inner);
    }
    return NULL;
}

static void *run_thread(void *)
{
    co_resume(outer);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    number = argc > 1 ? atoi(argv[1]) : 0;
    if (co_create(&outer, NULL, run_outer, NULL) != 0 ||
        co_create(&inner, NULL, run_inner, NULL) != 0) {
        return 1;
    }
    if (number < 5) {
        co_resume(outer);
    } else if (number == 5) {
        co_resume(outer);
        pthread_create(&thread, NULL, run_thread, NULL);
        pthread_join(thread, NULL);
    } else if (number == 6) {
        co_yield_ct();
    } else if (number == 7) {
        co_cond_timedwait(co_cond_alloc(), 1);
    } else if (number == 8) {
        co_resume(co_self());
    } else if (number == 10) {
        co_resume(outer);
    } else if (number == 11) {
        co_yield (NULL);
    } else if (number == 12) {
        co_resume(outer);
        co_release(outer);
    } else if (number == 13) {
        co_resume(outer);
        co_reset(outer);
    } else {
        co_release(NULL);
    }
    return 0;
}
