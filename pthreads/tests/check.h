// SPDX-License-Identifier: Apache-2.0
/* For programs that know nothing of aco: they check what POSIX says of threads. */
#ifndef CHECK_H
#define CHECK_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(EXIT_FAILURE);                                                                    \
        }                                                                                          \
    } while (0)

static inline pthread_t start(void *(*fn)(void *), void *arg)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, fn, arg) == 0);
    return thread;
}

static inline void *result_of(pthread_t thread)
{
    void *result;
    CHECK(pthread_join(thread, &result) == 0);
    return result;
}

#endif
