// SPDX-License-Identifier: Apache-2.0
/*
 * Implements aco_value.h: emits the functions that are inline there.
 */
#define ACO_VALUE_INLINE
#include "aco_value.h"

__thread aco_letter_t aco_i_gtls_letter;
