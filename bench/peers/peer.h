// SPDX-License-Identifier: Apache-2.0
/* Peers in C and C++ share this: a clock, memory, and messages on failure. */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __cplusplus
#include <utility>
#endif

#define ABSENT 77 /* exit status: the peer has no such workload */

static inline __attribute__((noreturn)) void die(const char *words)
{
    fprintf(stderr, "%s\n", words);
    exit(1);
}

static inline __attribute__((noreturn)) void absent(const char *words)
{
    fprintf(stderr, "%s\n", words);
    exit(ABSENT);
}

static inline void check(int holds, const char *words)
{
    if (!holds) {
        die(words);
    }
}

static inline void *get_memory(size_t sz)
{
    void *ptr = malloc(sz);
    check(ptr != NULL, "out of memory");
    return ptr;
}

/* Handles of some coroutines in C++ have constructors and destructors. */
#ifdef __cplusplus
#define NEW_ARRAY(type, ct) (new type[ct])
#define DELETE_ARRAY(array) (delete[](array))
#define MOVE(value) std::move(value)
#else
#define NEW_ARRAY(type, ct) ((type *)get_memory((ct) * sizeof(type)))
#define DELETE_ARRAY(array) free(array)
#define MOVE(value) (value)
#endif

/* Integers, since a conversion of such a size would be inexact and so raise a flag in MXCSR. */
static inline int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void print_metric(const char *metric, double value)
{
    printf("%s %.3f\n", metric, value);
}

/* Mean of `ct` operations that began at `start`, in ns. */
static inline double mean_ns(int64_t start, double ct)
{
    return (double)(now_ns() - start) / ct;
}

#endif
