// SPDX-License-Identifier: Apache-2.0
/* syscall(), where a call concerns the calling thread or names one. */
#define _GNU_SOURCE
#include "internal.h"

#include <unistd.h>

#undef syscall

extern int tgkill(pid_t process, pid_t tid, int number); /* of glibc since 2.30 */

REPLACE_HOOK(long, syscall, (long number, long a, long b, long c, long d, long e, long f))
{
    const args_t args = {{a, b, c, d, e, f}};
    const thread_t *thread = this_thread();
    if (thread != NULL && number == SYS_gettid) {
        return thread->tid;
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
