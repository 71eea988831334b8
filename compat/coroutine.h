// SPDX-License-Identifier: Apache-2.0
/* Internals that the sources of the compatibility layer share. Programs include co_routine.h. */
#ifndef ACO_COMPAT_COROUTINE_H
#define ACO_COMPAT_COROUTINE_H

#include "co_routine_inner.h"

#include "aco_runtime.h"

extern "C" {
#include "extension.h"
}

#define PUBLIC __attribute__((visibility("default")))

/* A block for a variable of CO_ROUTINE_SPECIFIC, whose bytes follow. */
struct specific_t {
    specific_t *next;
    uint64_t align[]; /* as malloc() does */
};

struct stCoRoutine_t {
    aco_task_t *task; /* NULL: it has ended, its thread has, or it stands for a thread */
    stCoEpoll_t *thread;
    pfn_co_routine_t routine;
    void *arg;
    const void **values; /* by key */
    size_t ct_values;
    specific_t *specifics;
    char **variables; /* in the order of the list, NULL if not set; NULL: none is */
    stShareStack_t *share_stack;
    size_t stack_sz;
    bool has_begun;
    bool is_hooked;
    stCoRoutine_t *next, *prev; /* of the thread */
};

/* A thread. */
struct stCoRoutineEnv_t {};
struct stCoEpoll_t : stCoRoutineEnv_t {
    stCoRoutine_t main; /* stands for the thread outside of coroutines */
    stCoRoutine_t *first;
};

/* The running coroutine, or NULL. */
HIDDEN stCoRoutine_t *co_i_running();
HIDDEN void co_i_free_values(stCoRoutine_t *co);
HIDDEN void co_i_free_variables(stCoRoutine_t *co);

#endif
