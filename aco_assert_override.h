// SPDX-License-Identifier: Apache-2.0
/*
 * Assertions: gives the short names to those of aco, which are active in every build. Include it
 * last: headers that follow, such as <assert.h>, would be affected by these macros.
 */
#ifndef ACO_ASSERT_OVERRIDE_H
#define ACO_ASSERT_OVERRIDE_H

#include "aco.h"

#undef likely
#undef unlikely
#undef assert
#undef assertptr
#undef assertalloc_bool
#undef assertalloc_ptr

#define likely(EX) aco_likely(EX)
#define unlikely(EX) aco_unlikely(EX)
#define assert(EX) aco_assert(EX)
#define assertptr(ptr) aco_assertptr(ptr)
#define assertalloc_bool(b) aco_assertalloc_bool(b)
#define assertalloc_ptr(ptr) aco_assertalloc_ptr(ptr)

#endif
