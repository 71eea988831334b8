// SPDX-License-Identifier: Apache-2.0
/*
 * Variables with a value for each coroutine, and for each thread outside of coroutines.
 *
 *     struct request_t { int id; };
 *     CO_ROUTINE_SPECIFIC(request_t, request)
 *     ... request->id = 1; ...
 *
 * They are zero bytes at first: no constructor or destructor is called. Their memory is freed with
 * the coroutine.
 */
#ifndef CO_ROUTINE_SPECIFIC_H
#define CO_ROUTINE_SPECIFIC_H

#include "co_routine.h"

/* Returns the memory of the running coroutine for a variable; NULL with errno. `*key` is 0 at
 * first. */
void *co_i_specific(uintptr_t *key, size_t sz);

template <class T> struct co_i_specific_t {
    uintptr_t key;

    T *operator->()
    {
        return static_cast<T *>(co_i_specific(&key, sizeof(T)));
    }
    T &operator*()
    {
        return *operator->();
    }
};

#define CO_ROUTINE_SPECIFIC(type, name) static co_i_specific_t<type> name;

#endif
