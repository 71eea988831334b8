// SPDX-License-Identifier: Apache-2.0
/* Loops, barriers and critical sections of OpenMP, among threads of the program. */
#include "check.h"

static long ct_turns;

static void *computes(void *arg)
{
    long sum = 0;
    for (int k = 0; k < 20; k++) {
#pragma omp parallel for num_threads(4) reduction(+ : sum)
        for (long i = 0; i < 10000; i++) {
            sum += i % 7;
        }
#pragma omp parallel num_threads(4)
        {
#pragma omp critical
            ct_turns++;
#pragma omp barrier
        }
    }
    CHECK(sum == 20 * 29994);
    return arg;
}

int main(void)
{
    computes(NULL);
    CHECK(ct_turns == 20 * 4);
    result_of(start(computes, NULL));
    CHECK(ct_turns == 2 * 20 * 4);
    puts("all held");
}
