// SPDX-License-Identifier: Apache-2.0
/* A library that knows nothing of tasks, and blocks its caller in poll() of libc. */
#include <poll.h>

int wait_a_while(void);

int wait_a_while(void)
{
    return poll(0, 0, 1);
}
