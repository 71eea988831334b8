// SPDX-License-Identifier: Apache-2.0
/*
 * Implements aco_exceptions.h. C++ runtimes store the exceptions of a thread in two words, on arm
 * in three, whose address __cxa_get_globals() returns (Itanium C++ ABI, 2.2.2; Exception Handling
 * ABI for the Arm Architecture, 8.2).
 */
#include "aco_exceptions.h"

/* NULL in a program without C++. */
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

/* For the inline calls, which return or, if the caller is cancelled, are unwound. Then this is the
 * first cleanup, and what propagates is the cancellation. */
void aco_i_exceptions_return(const aco_exceptions_t *mine)
{
#ifdef ACO_ARCH_ARM
    if (__cxa_get_globals != NULL && mine->propagating == NULL) {
        aco_exceptions_t with_cancellation = *mine;
        with_cancellation.propagating = __cxa_get_globals()->propagating;
        aco_exceptions_enter(&with_cancellation);
        return;
    }
#endif
    aco_exceptions_enter(mine);
}
