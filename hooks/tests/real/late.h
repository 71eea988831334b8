// SPDX-License-Identifier: Apache-2.0
/*
 * Shared by the programs that test_late.sh builds, one for each library, which gives the functions
 * of late_t. late.c runs them in tasks that are late or cancelled.
 */
#ifndef LATE_H
#define LATE_H

#include "aco_runtime.h"

#include <stddef.h>
#include <stdio.h>

typedef struct {
    /* Called once, outside of tasks. May be NULL. */
    void (*begin)(void);

    /* Calls the library, which waits, and writes what it returns to `text`. */
    void (*wait)(char *text, size_t sz);

    /* Lets that wait end. NULL: the library ends it by itself. */
    void (*release)(void);

    /* Uses the library in the same way, in time, and returns whether it works. */
    int (*works)(void);
} late_t;

extern const late_t late;

#endif
