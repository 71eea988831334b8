// SPDX-License-Identifier: Apache-2.0
/*
 * Requests for memory that the linker leads from the library to here: counted, and refused when a
 * test wants that. For test programs with tests/wrapped_memory.c and the options
 * -Wl,--wrap=malloc,--wrap=calloc,--wrap=free,--wrap=mmap,--wrap=munmap,--wrap=mprotect
 */
#ifndef ACO_TEST_WRAPPED_MEMORY_H
#define ACO_TEST_WRAPPED_MEMORY_H

#include <stddef.h>

#define MEMORY_LOG_SZ 100

/* Requests are counted, and refused, only while this is on: cmocka allocates as well. */
typedef struct {
    int is_on;
    size_t refused;     /* number of the request that fails; 0: none */
    int error;          /* with which it does, 0 for ENOMEM */
    const char *call;   /* that the scenario is in */
    size_t ct_requests; /* that could fail */
    struct {
        const char *call;
        size_t sz;
    } log[MEMORY_LOG_SZ];
    long ct_blocks; /* of malloc() and calloc() not freed yet */
    long mapped_sz; /* bytes mapped and not unmapped yet */
} wrapped_memory_t;
extern wrapped_memory_t memory;

/* The functions that the library would call. */
void *__real_malloc(size_t sz);
void __real_free(void *ptr);

#endif
