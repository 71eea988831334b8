// SPDX-License-Identifier: Apache-2.0
/* Reads the clock by which deadlines count. */
#include "base/self.h"

#include <time.h>

int64_t aco_i_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t aco_i_after(int64_t ns)
{
    int64_t now = aco_i_clock();
    return ns > NO_DEADLINE - now ? NO_DEADLINE : now + (ns < 0 ? 0 : ns);
}

int64_t aco_now(void)
{
    return aco_i_clock();
}
