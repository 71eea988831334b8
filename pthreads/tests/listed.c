// SPDX-License-Identifier: Apache-2.0
/* Threads that wait until the process is killed, for lists of them. */
#include "check.h"

#include <unistd.h>

static void *listed(void *arg)
{
    puts("waits");
    fflush(stdout);
    pause();
    return arg;
}

int main(void)
{
    result_of(start(listed, NULL));
}
