// SPDX-License-Identifier: Apache-2.0
/* For programs that include libco's header of this name, but use none of its internals. */
#ifndef COCTX_H
#define COCTX_H

#include "co_routine.h"

#endif
