// SPDX-License-Identifier: Apache-2.0
/* Threads that wait for a futex on their stack, and then for one among their thread-local
 * variables. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

static __thread int own;

static void *waits(void *arg)
{
    int on_stack = 0, *words[] = {&on_stack, &own, &own};
    struct timespec soon = {0, 1000000};
    pthread_setname_np(pthread_self(), "waiter");
    for (int i = 0; i < 3; i++) {
        CHECK(syscall(SYS_futex, words[i], FUTEX_WAIT_PRIVATE, 1, &soon) < 0 && errno == EAGAIN);
        CHECK(syscall(SYS_futex, words[i], FUTEX_WAIT_PRIVATE, 0, &soon) < 0 && errno == ETIMEDOUT);
    }
    return arg;
}

int main(void)
{
    result_of(start(waits, NULL));
    result_of(start(waits, NULL));
    puts("all held");
    return 0;
}
