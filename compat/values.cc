// SPDX-License-Identifier: Apache-2.0
/* Values of coroutines: by keys of pthreads, and of CO_ROUTINE_SPECIFIC. */
#include "coroutine.h"

#include "co_routine_specific.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CT 8 /* keys for which a coroutine has room at first */

static bool make_room(stCoRoutine_t *co, size_t key)
{
    size_t ct = co->ct_values != 0 ? co->ct_values : FIRST_CT;
    while (ct <= key) {
        ct *= 2;
    }
    const void **values = static_cast<const void **>(realloc(co->values, ct * sizeof(*co->values)));
    if (values == NULL) {
        return false;
    }
    memset(values + co->ct_values, 0, (ct - co->ct_values) * sizeof(*values));
    co->values = values;
    co->ct_values = ct;
    return true;
}

/* Returns an error number, as pthread_setspecific() does. */
PUBLIC int co_setspecific(pthread_key_t key, const void *value)
{
    stCoRoutine_t *co = co_i_running();
    if (co == NULL) {
        return pthread_setspecific(key, value);
    }
    if (key >= co->ct_values && !make_room(co, key)) {
        return ENOMEM;
    }
    co->values[key] = value;
    return 0;
}

PUBLIC void *co_getspecific(pthread_key_t key)
{
    const stCoRoutine_t *co = co_i_running();
    if (co == NULL) {
        return pthread_getspecific(key);
    }
    return key < co->ct_values ? const_cast<void *>(co->values[key]) : NULL;
}

void co_i_free_values(stCoRoutine_t *co)
{
    while (co->specifics != NULL) {
        specific_t *block = co->specifics;
        co->specifics = block->next;
        free(block);
    }
    free(co->values);
}

/* Frees the value of a thread outside of coroutines. */
static void free_of_thread(void *data)
{
    free(static_cast<specific_t *>(data) - 1);
}

/* Makes the key of a variable. Returns it plus one; 0 with errno. */
static uintptr_t make_key(uintptr_t *key)
{
    pthread_key_t made;
    uintptr_t there = 0;
    int error = pthread_key_create(&made, free_of_thread);
    if (error != 0) {
        errno = error;
        return 0;
    }
    if (!__atomic_compare_exchange_n(key, &there, static_cast<uintptr_t>(made) + 1, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        pthread_key_delete(made); /* another thread has made one */
        return there;
    }
    return static_cast<uintptr_t>(made) + 1;
}

PUBLIC void *co_i_specific(uintptr_t *key, size_t sz)
{
    uintptr_t number = __atomic_load_n(key, __ATOMIC_ACQUIRE);
    if (number == 0 && (number = make_key(key)) == 0) {
        return NULL;
    }
    pthread_key_t made = static_cast<pthread_key_t>(number - 1);
    void *data = co_getspecific(made);
    if (data != NULL) {
        return data;
    }
    specific_t *block = static_cast<specific_t *>(calloc(1, sizeof(*block) + sz));
    if (block == NULL || co_setspecific(made, block + 1) != 0) {
        free(block);
        errno = ENOMEM;
        return NULL;
    }
    stCoRoutine_t *co = co_i_running();
    if (co != NULL) {
        block->next = co->specifics;
        co->specifics = block;
    }
    return block + 1;
}
