// SPDX-License-Identifier: Apache-2.0
/* The plugin of host.c: yields in the coroutine that calls it. */
#include "aco.h"

void plugin_step(void);

void plugin_step(void)
{
    aco_yield();
}
