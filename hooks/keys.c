// SPDX-License-Identifier: Apache-2.0
/*
 * Values of pthread keys. Certain libraries keep the state of a thread across calls that wait: each
 * task has values of its own for their keys. A key belongs to the library that calls
 * pthread_key_create(). libc has the same key, for the values of threads outside of tasks.
 */
#include "internal.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <threads.h>

HOOKS_OF(keys);

#define DESTRUCTOR_ROUNDS 4
#define CT_KEYS PTHREAD_KEYS_MAX

/* ==== Libraries ============================================================================== */

static const char default_libraries[] =
    "libcrypto libpython liblmdb libgit2 libcups libnats libtirpc";
static const char *libraries = default_libraries; /* atomic */

/* Makes a list of two the list. */
static int set_libraries(const char *first, const char *second)
{
    size_t sz = strlen(first) + strlen(second) + 2;
    char *list = (char *)aco_i_allocate(sz);
    if (list == NULL) {
        return (int)refuse(ENOMEM);
    }
    snprintf(list, sz, "%s %s", first, second);
    const char *before = __atomic_exchange_n(&libraries, list, __ATOMIC_ACQ_REL);
    if (before != default_libraries) {
        aco_i_release((void *)(uintptr_t)before);
    }
    return 0;
}

int aco_hooks_own_keys(const char *names)
{
    return names == NULL ? (int)refuse(EINVAL)
                         : set_libraries(__atomic_load_n(&libraries, __ATOMIC_ACQUIRE), names);
}

int aco_hooks_set_own_keys(const char *names)
{
    return names == NULL ? (int)refuse(EINVAL) : set_libraries(names, "");
}

static EARLY int is_listed(const char *file)
{
    return aco_i_is_named(__atomic_load_n(&libraries, __ATOMIC_ACQUIRE), file);
}

/* Whether an address is in one of the libraries, linked into another file. TSan makes keys before
 * the hooks have begun. */
static EARLY int is_of_static_library(const void *address)
{
    static const struct {
        const char *library, *function; /* which makes its keys, or the beginning of its name */
    } known[] = {
        {"libcrypto", "CRYPTO_THREAD_"},
        {"libpython", "PyThread_"},
        {"liblmdb", "mdb_env_"},
    };
    for (size_t i = 0; aco_i_check_hooks != NULL && i < sizeof(known) / sizeof(known[0]); i++) {
        if (is_listed(known[i].library) && aco_i_is_in_function(address, known[i].function)) {
            return 1;
        }
    }
    return 0;
}

/* Whether tasks have values of their own for keys that code at an address makes: here, if it is of
 * one of the libraries. */
__attribute__((weak)) EARLY int aco_i_has_own_keys(const void *address)
{
    Dl_info info;
    return (dladdr(address, &info) != 0 && info.dli_fname != NULL && is_listed(info.dli_fname)) ||
           is_of_static_library(address);
}

/* ==== Keys =================================================================================== */

typedef void (*destructor_t)(void *value);

static struct {
    unsigned generation; /* atomic; odd: tasks have values for the key */
    destructor_t destructor;
} keys[CT_KEYS];

/* All values of a task. The runtime keeps them as one value. */
typedef struct {
    unsigned ct;
    struct {
        unsigned generation;
        void *value;
    } of[];
} values_t;

static lazy_key_t values_key; /* made before the first key of those libraries */

static inline unsigned generation_of(pthread_key_t key)
{
    return key < CT_KEYS ? __atomic_load_n(&keys[key].generation, __ATOMIC_ACQUIRE) : 0;
}

/* Whether the caller is a task that has a value of its own for the key. */
static inline int is_of_task(pthread_key_t key)
{
    return is_in_task() && (generation_of(key) & 1) != 0;
}

static values_t *values_of_task(void)
{
    return (values_t *)aco_getspecific(values_key.key);
}

/* Destructors may read and set values, which may make the array grow. */
static int run_round(void)
{
    int has_run = 0;
    for (pthread_key_t key = 0; key < values_of_task()->ct; key++) {
        values_t *values = values_of_task();
        void *value = values->of[key].value;
        destructor_t destructor = keys[key].destructor;
        values->of[key].value = NULL;
        if (value != NULL && values->of[key].generation == generation_of(key) &&
            destructor != NULL) {
            destructor(value);
            has_run = 1;
        }
    }
    return has_run;
}

/* Runs in the task, before it ends. */
static void destroy(void *values)
{
    aco_setspecific(values_key.key, values);
    for (int round = 0; round < DESTRUCTOR_ROUNDS && run_round(); round++) {
    }
    aco_i_release(values_of_task());
    aco_setspecific(values_key.key, NULL);
}

/* ==== Values ================================================================================= */

/* Makes room for the value of a key in the running task. NULL: there is no memory. */
static values_t *make_room(pthread_key_t key)
{
    values_t *before = values_of_task();
    if (before != NULL && key < before->ct) {
        return before;
    }
    unsigned ct = key + 4;
    values_t *values = (values_t *)aco_i_allocate(sizeof(*values) + ct * sizeof(values->of[0]));
    if (values == NULL) {
        return NULL;
    }
    memset(values, 0, sizeof(*values) + ct * sizeof(values->of[0]));
    if (before != NULL) {
        memcpy(values->of, before->of, before->ct * sizeof(values->of[0]));
    }
    values->ct = ct;
    if (aco_setspecific(values_key.key, values) != 0) {
        aco_i_release(values);
        return NULL;
    }
    aco_i_release(before);
    return values;
}

static void *value_of_task(pthread_key_t key)
{
    const values_t *values = values_of_task();
    return values != NULL && key < values->ct && values->of[key].generation == generation_of(key)
               ? values->of[key].value
               : NULL;
}

static int set_value_of_task(pthread_key_t key, const void *value)
{
    values_t *values = make_room(key);
    if (values == NULL) {
        return ENOMEM;
    }
    values->of[key].generation = generation_of(key);
    values->of[key].value = (void *)(uintptr_t)value;
    return 0;
}

HOOK(void *, pthread_getspecific, (pthread_key_t key), (key), NULL);
HOOK(int, pthread_setspecific, (pthread_key_t key, const void *value), (key, value), ENOMEM);

EARLY void *hook_pthread_getspecific(pthread_key_t key)
{
    return aco_i_loop != NULL && is_of_task(key) ? value_of_task(key)
                                                 : real_pthread_getspecific(key);
}

EARLY int hook_pthread_setspecific(pthread_key_t key, const void *value)
{
    return aco_i_loop != NULL && is_of_task(key) ? set_value_of_task(key, value)
                                                 : real_pthread_setspecific(key, value);
}

/* ==== Making keys ============================================================================ */

HOOK(int, pthread_key_create, (pthread_key_t * key, destructor_t destructor), (key, destructor),
     EAGAIN);

/* The caller is libc, if pthread_once() has called a function whose last act this is: then a
 * library is known by the variable that it has for the key. */
static EARLY int create(pthread_key_t *key, destructor_t destructor, const void *caller)
{
    int error = real_pthread_key_create(key, destructor);
    if (error == 0 && *key < CT_KEYS && (aco_i_has_own_keys(caller) || aco_i_has_own_keys(key)) &&
        make_key(&values_key, destroy)) {
        keys[*key].destructor = destructor;
        __atomic_add_fetch(&keys[*key].generation, 1, __ATOMIC_RELEASE);
    }
    return error;
}

EARLY int hook_pthread_key_create(pthread_key_t *key, destructor_t destructor)
{
    return create(key, destructor, __builtin_return_address(0));
}
HOOK_ALIAS(__pthread_key_create, pthread_key_create);

HOOK(int, pthread_key_delete, (pthread_key_t key), (key), EINVAL)
{
    if ((generation_of(key) & 1) != 0) { /* before libc can reuse the key */
        __atomic_add_fetch(&keys[key].generation, 1, __ATOMIC_RELEASE);
    }
    return real_pthread_key_delete(key);
}

/* ==== C11 ==================================================================================== */

HOOK_ALIAS(tss_get, pthread_getspecific);

HOOK(int, tss_set, (tss_t key, void *value), (key, value), thrd_error)
{
    return hook_pthread_setspecific(key, value) == 0 ? thrd_success : thrd_error;
}

HOOK(int, tss_create, (tss_t * key, tss_dtor_t destructor), (key, destructor), thrd_error)
{
    int error = create(key, destructor, __builtin_return_address(0));
    return error == 0 ? thrd_success : thrd_error;
}

HOOK(void, tss_delete, (tss_t key), (key), (void)0)
{
    hook_pthread_key_delete(key);
}
