// SPDX-License-Identifier: Apache-2.0
/*
 * Implements aco_exceptions.h. C++ runtimes keep what they know of a thread's exceptions in two
 * words, whose address is __cxa_get_globals() (Itanium C++ ABI, 2.2.2).
 */
#include "aco_exceptions.h"

/* Not there in a program without C++. */
aco_exceptions_t *__cxa_get_globals(void) __attribute__((weak));

void aco_exceptions_leave(aco_exceptions_t *mine)
{
    memset(mine, 0, sizeof(*mine));
    if (__cxa_get_globals != NULL) {
        aco_exceptions_t *current = __cxa_get_globals(), none = *mine;
        *mine = *current;
        *current = none;
    }
}

void aco_exceptions_enter(const aco_exceptions_t *mine)
{
    if (__cxa_get_globals != NULL) {
        *__cxa_get_globals() = *mine;
    }
}
