// SPDX-License-Identifier: Apache-2.0
/* Shared by the tests of calls: coroutines note letters, and tests compare their order. */
#ifndef CALLS_H
#define CALLS_H

#include "check.h"
#include "co_routine.h"

#include <string.h>

/* The letters noted so far. */
static char trace[256];

static inline void note(char letter)
{
    size_t sz = strlen(trace);
    CHECK(sz + 1 < sizeof(trace));
    trace[sz] = letter;
    trace[sz + 1] = '\0';
}

static inline void expect(const char *expected, int line)
{
    if (strcmp(trace, expected) != 0) {
        fprintf(stderr, "%s:%d: \"%s\" instead of \"%s\"\n", __FILE__, line, trace, expected);
        ct_failed++;
    }
    trace[0] = '\0';
}
#define EXPECT(expected) expect(expected, __LINE__)

static inline stCoRoutine_t *create(pfn_co_routine_t routine, void *arg,
                                    stShareStack_t *stack = NULL)
{
    stCoRoutineAttr_t attr;
    stCoRoutine_t *co = NULL;
    attr.share_stack = stack;
    CHECK(co_create(&co, stack == NULL ? NULL : &attr, routine, arg) == 0);
    return co;
}

/* Ends co_eventloop() when the flag is set. */
static inline int is_set(void *flag)
{
    return *static_cast<int *>(flag) != 0 ? -1 : 0;
}

static inline void *polls_for_time(void *arg)
{
    double begun = now_ms();
    note('a');
    CHECK(co_poll(co_get_epoll_ct(), NULL, 0, 30) == 0);
    CHECK(now_ms() - begun >= 30);
    note('b');
    *static_cast<int *>(arg) = 1;
    return NULL;
}

#endif
