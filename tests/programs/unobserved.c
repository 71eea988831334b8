// SPDX-License-Identifier: Apache-2.0
/* For tests that print tasks when they fail: a runtime without observe/ has nothing to print. */
#include "aco_runtime.h"

void aco_print_tasks(FILE *stream)
{
    (void)stream;
}

void aco_print_metrics(FILE *stream)
{
    (void)stream;
}
