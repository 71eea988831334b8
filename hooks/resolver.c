// SPDX-License-Identifier: Apache-2.0
/*
 * The state of the resolver, _res, which a task has of its own once it asks for it. libc's calls
 * that use the thread's are made with that then. They block the thread.
 */
#include "internal.h"

#include <resolv.h>

HOOKS_OF(resolver);

#if __GLIBC_PREREQ(2, 34) /* before, these were not in libc */

static aco_key_t state_key;
static int has_state_key;
static lock_t state_lock;

static void free_state(void *state)
{
    res_nclose((res_state)state);
    aco_i_release(state);
}

static int has_made_key(void)
{
    lock(&state_lock);
    if (!has_state_key) {
        __atomic_store_n(&has_state_key, aco_key_create(&state_key, free_state) == 0,
                         __ATOMIC_RELEASE);
    }
    unlock(&state_lock);
    return has_state_key;
}

/* NULL: the caller's is the thread's. */
static res_state state_of_task(void)
{
    return is_in_task() && __atomic_load_n(&has_state_key, __ATOMIC_ACQUIRE)
               ? (res_state)aco_getspecific(state_key)
               : NULL;
}

static res_state make_state(void)
{
    res_state state = has_made_key() ? (res_state)aco_i_allocate(sizeof(*state)) : NULL;
    if (state == NULL) {
        return NULL;
    }
    memset(state, 0, sizeof(*state));
    if (res_ninit(state) != 0 || aco_setspecific(state_key, state) != 0) {
        res_nclose(state);
        aco_i_release(state);
        return NULL;
    }
    return state;
}

HOOK(res_state, __res_state, (void), (), NULL)
{
    res_state state = state_of_task();
    if (state == NULL && is_in_task()) {
        state = make_state();
    }
    return state != NULL ? state : real___res_state();
}

HOOK(int, __res_init, (void), (), refuse(EAGAIN))
{
    return is_in_task() && hook___res_state() == state_of_task() ? res_ninit(state_of_task())
                                                                 : real___res_init();
}

/* A call of libc, and its namesake with a state. */
#define HOOK_RESOLVER(name, with_state, params, ...)                                               \
    HOOK(int, name, params, (__VA_ARGS__), refuse(EAGAIN))                                         \
    {                                                                                              \
        res_state state = state_of_task();                                                         \
        return state != NULL ? with_state(state, __VA_ARGS__) : real_##name(__VA_ARGS__);          \
    }                                                                                              \
    _Static_assert(1, "")

typedef const char *string_t;
typedef unsigned char byte_t;

HOOK_RESOLVER(res_query, res_nquery, (string_t name, int class, int type, byte_t *answer, int sz),
              name, class, type, answer, sz);
HOOK_RESOLVER(res_search, res_nsearch, (string_t name, int class, int type, byte_t *answer, int sz),
              name, class, type, answer, sz);
HOOK_RESOLVER(res_querydomain, res_nquerydomain,
              (string_t name, string_t domain, int class, int type, byte_t *answer, int sz), name,
              domain, class, type, answer, sz);
HOOK_RESOLVER(res_mkquery, res_nmkquery,
              (int op, string_t name, int class, int type, const byte_t *data, int data_sz,
               const byte_t *unused, byte_t *query, int sz),
              op, name, class, type, data, data_sz, unused, query, sz);
HOOK_RESOLVER(res_send, res_nsend, (const byte_t *query, int query_sz, byte_t *answer, int sz),
              query, query_sz, answer, sz);
#endif
