// SPDX-License-Identifier: Apache-2.0
/* A thread with a name that keeps the processor for a while and then waits, for tools to see. */
#define _GNU_SOURCE
#include "check.h"

#include <time.h>
#include <unistd.h>

static __attribute__((noinline)) void compute(void)
{
    struct timespec t;
    do {
        for (volatile int i = 0; i < 100000; i++) {
        }
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    } while (t.tv_sec == 0 && t.tv_nsec < 400000000);
}

static void *works(void *arg)
{
    CHECK(pthread_setname_np(pthread_self(), "worker") == 0);
    compute();
    usleep(1000);
    return arg;
}

int main(void)
{
    result_of(start(works, NULL));
    puts("all held");
}
