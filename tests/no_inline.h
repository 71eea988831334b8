// SPDX-License-Identifier: Apache-2.0
/*
 * The switch of a translation unit that is compiled with ACO_CONFIG_NO_INLINE_SWITCH: every one of
 * these goes through acosw(). For test programs whose own switches are inline.
 */
#ifndef ACO_TEST_NO_INLINE_H
#define ACO_TEST_NO_INLINE_H

#include "aco.h"

void no_inline_resume(aco_t *co);
void no_inline_yield(void);
void no_inline_yield_to(aco_t *co);
ACO_NORETURN void no_inline_exit(void);

#endif
