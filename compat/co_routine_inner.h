// SPDX-License-Identifier: Apache-2.0
/* For programs that include libco's header of this name, but use none of its internals. */
#ifndef CO_ROUTINE_INNER_H
#define CO_ROUTINE_INNER_H

#include "co_routine.h"

#endif
