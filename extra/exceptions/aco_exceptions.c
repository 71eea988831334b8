// SPDX-License-Identifier: Apache-2.0
/*
 * Implements aco_exceptions.h: copies what aco_i_exceptions() of aco.h points to, if anything.
 */
#include "aco_exceptions.h"

void aco_exceptions_leave(aco_exceptions_t *mine)
{
    memset(mine, 0, sizeof(*mine));
    if (aco_i_exceptions != NULL) {
        aco_exceptions_t *current = aco_i_exceptions(), none = *mine;
        *mine = *current;
        *current = none;
    }
}

void aco_exceptions_enter(const aco_exceptions_t *mine)
{
    if (aco_i_exceptions != NULL) {
        *aco_i_exceptions() = *mine;
    }
}

/* The inline calls end in it, when they return or are unwound because the caller is cancelled. Then
 * it is the first cleanup, and the cancellation propagates. */
void aco_i_exceptions_return(const aco_exceptions_t *mine)
{
#ifdef ACO_ARCH_ARM
    if (aco_i_exceptions != NULL && mine->propagating == NULL) {
        aco_exceptions_t with_cancellation = *mine;
        with_cancellation.propagating = aco_i_exceptions()->propagating;
        aco_exceptions_enter(&with_cancellation);
        return;
    }
#endif
    aco_exceptions_enter(mine);
}
