// SPDX-License-Identifier: Apache-2.0
/* Shared by the tests: a check that may fail in a coroutine or thread, and whose failures main()
 * counts. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <time.h>

static int ct_failed;

#define CHECK(EX)                                                                                  \
    do {                                                                                           \
        if (!(EX)) {                                                                               \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #EX, errno);             \
            __atomic_add_fetch(&ct_failed, 1, __ATOMIC_RELAXED);                                   \
        }                                                                                          \
    } while (0)

/* Milliseconds on the monotonic clock. */
static inline double now_ms()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

#endif
