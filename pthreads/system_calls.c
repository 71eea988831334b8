// SPDX-License-Identifier: Apache-2.0
/* syscall(), where a call concerns the calling thread or names one. */
#define _GNU_SOURCE
#include "internal.h"

#include <linux/futex.h>
#include <stdio.h>
#include <unistd.h>

#undef syscall

extern int tgkill(pid_t process, pid_t tid, int number); /* of glibc since 2.30 */

/* Says once that a thread waits for a word among its thread-local variables. Others that know its
 * address find their own word there, so the thread may wait for ever. */
static void check_futex(const thread_t *thread, const args_t *args)
{
    static int was_said;
    int command = (int)args->at[1] & FUTEX_CMD_MASK;
    if ((command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET) &&
        aco_i_is_variable((const void *)args->at[0]) &&
        !__atomic_exchange_n(&was_said, 1, __ATOMIC_RELAXED)) {
        dprintf(STDERR_FILENO,
                "aco-run: thread %s waits for a futex among its thread-local variables, which "
                "others of its loop can't wake: start it, or those that wake it, with --real\n",
                thread->name);
    }
}

REPLACE_HOOK(long, syscall, (long number, long a, long b, long c, long d, long e, long f))
{
    const args_t args = {{a, b, c, d, e, f}};
    const thread_t *thread = this_thread();
    if (thread != NULL && number == SYS_gettid) {
        return thread->tid;
    }
    if (thread != NULL && number == SYS_futex) {
        check_futex(thread, &args);
    }
    thread_t *named = aco_i_named_thread(number, &args);
    if (named != NULL) {
        return aco_i_call_by_number(named, number, &args);
    }
    if (number == SYS_tkill && aco_i_handle_of_tid((int)a) != NULL) {
        return tgkill(getpid(), (pid_t)a, (int)b);
    }
    return number == SYS_tgkill && aco_i_handle_of_tid((int)b) != NULL
               ? tgkill((pid_t)a, (pid_t)b, (int)c)
               : hook_syscall(number, a, b, c, d, e, f);
}
