// SPDX-License-Identifier: Apache-2.0
/*
 * The state of the resolver, _res. A task gets one of its own when it first asks for it, and its
 * calls of libc's resolver then use that instead of the thread's. They block the thread. A helper
 * that looks up names for the task uses a copy of its settings.
 */
#include "internal.h"

#include <resolv.h>

HOOKS_OF(resolver);

#if __GLIBC_PREREQ(2, 34) /* before, these were not in libc */

static lazy_key_t state_key;

static void free_state(void *state)
{
    res_nclose((res_state)state);
    aco_i_release(state);
}

/* NULL: the caller uses the thread's. */
static res_state state_of_task(void)
{
    return is_in_task() ? (res_state)value_of_key(&state_key) : NULL;
}

/* ==== Look-ups by helpers ==================================================================== */

typedef struct {
    void *(*fn)(void *);
    void *arg;
    void (*discard)(void *);
    struct __res_state settings;
} look_up_t;

/* Copies what a program may set. The rest is libc's, and refers to memory. */
static void copy_settings(res_state to, const struct __res_state *from)
{
    to->retrans = from->retrans;
    to->retry = from->retry;
    to->options = from->options;
    to->nscount = from->nscount;
    to->ndots = from->ndots;
    to->nsort = from->nsort;
    memcpy(to->nsaddr_list, from->nsaddr_list, sizeof(to->nsaddr_list));
    memcpy(to->sort_list, from->sort_list, sizeof(to->sort_list));
    memcpy(to->defdname, from->defdname, sizeof(to->defdname));
    for (int i = 0; i <= MAXDNSRCH; i++) {
        uintptr_t place = (uintptr_t)from->dnsrch[i] - (uintptr_t)from->defdname;
        to->dnsrch[i] = place < sizeof(to->defdname) ? to->defdname + place : NULL;
    }
}

HOOK(res_state, __res_state, (void), (), NULL);

/* Runs on a helper, with a state that is gone afterwards; or in the task if there is no helper. */
static void *do_look_up(void *arg)
{
    look_up_t *l = (look_up_t *)arg;
    res_state state = real___res_state();
    struct __res_state before = *state;
    memset(state, 0, sizeof(*state));
    int is_ready = res_ninit(state) == 0;
    if (is_ready) {
        copy_settings(state, &l->settings);
    }
    l->arg = l->fn(l->arg);
    KEEP_ERRNO();
    if (is_ready) {
        res_nclose(state);
    }
    *state = before;
    return l;
}

static void discard_look_up(void *arg)
{
    look_up_t *l = (look_up_t *)arg;
    l->discard(l->arg);
    aco_i_release(l);
}

static outcome_t look_up(void *(*fn)(void *), void *arg, void (*discard)(void *), void **result)
{
    res_state state = state_of_task();
    look_up_t *l = state == NULL ? NULL : (look_up_t *)aco_i_allocate(sizeof(*l));
    if (l == NULL) {
        return aco_i_offload(HELPERS_FOR_NAMES, fn, arg, discard, result);
    }
    *l = (look_up_t){.fn = fn, .arg = arg, .discard = discard};
    copy_settings(&l->settings, state);
    outcome_t outcome = aco_i_offload(HELPERS_FOR_NAMES, do_look_up, l, discard_look_up, result);
    if (outcome == WAIT_EVENT) {
        KEEP_ERRNO();
        *result = l->arg;
        aco_i_release(l);
    }
    return outcome;
}

/* ==== State of a task ======================================================================== */

static res_state make_state(void)
{
    res_state state = make_key(&state_key, free_state) ? (res_state)aco_i_allocate(sizeof(*state))
                                                       : NULL;
    if (state == NULL) {
        return NULL;
    }
    memset(state, 0, sizeof(*state));
    if (res_ninit(state) != 0 || aco_setspecific(state_key.key, state) != 0) {
        res_nclose(state);
        aco_i_release(state);
        return NULL;
    }
    __atomic_store_n(&aco_i_look_up, look_up, __ATOMIC_RELAXED);
    return state;
}

res_state hook___res_state(void)
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

/* A call of libc, by its namesake that takes a state. */
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
