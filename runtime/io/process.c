// SPDX-License-Identifier: Apache-2.0
/*
 * Waits for child processes and signals. The end of a process makes its pidfd readable. For any of
 * several, and for a stop, a helper waits with WNOWAIT, and the task takes what it finds: so no
 * child is lost if the task has given up.
 */
#include "io/io.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ==== Processes ============================================================================== */

typedef struct {
    idtype_t type;
    id_t id;
    int options, result;
} child_wait_t;

static void *do_wait(void *arg)
{
    child_wait_t *w = (child_wait_t *)arg;
    siginfo_t info;
    w->result = aco_i_libc.waitid(w->type, w->id, &info, w->options | WNOWAIT);
    return w;
}

static int wait_by_helper(idtype_t type, id_t id, int options)
{
    child_wait_t *w = (child_wait_t *)aco_i_allocate(sizeof(*w));
    if (w == NULL) {
        errno = ENOMEM;
        return -1;
    }
    *w = (child_wait_t){type, id, options, -1};
    void *result;
    outcome_t outcome = aco_i_offload(HELPERS_FOR_PROCESSES, do_wait, w, aco_i_release, &result);
    if (outcome != WAIT_EVENT) {
        return aco_i_result(outcome);
    }
    int got = w->result;
    release_keeping_errno(w);
    return got;
}

/* Opens the pidfd of a child that can be waited for alone; -1: it can't. */
static int open_child(idtype_t type, id_t id, int options)
{
#ifdef SYS_pidfd_open
    if (type == P_PID && (options & (WSTOPPED | WCONTINUED)) == 0) {
        KEEP_ERRNO();
        return (int)syscall(SYS_pidfd_open, id, 0);
    }
#endif
    return -1;
}

int aco_i_wait_for_children(idtype_t type, id_t id, int options)
{
    int fd = open_child(type, id, options);
    if (fd < 0) {
        return wait_by_helper(type, id, options);
    }
    int result;
    do {
        result = aco_wait_fd(fd, POLLIN) < 0 ? -1 : 0;
    } while (result < 0 && aco_i_may_restart());
    close_keeping_errno(fd);
    return result;
}

int aco_i_wait_for_child(pid_t pid, int options)
{
    idtype_t type = pid > 0 ? P_PID : pid == -1 ? P_ALL : P_PGID;
    pid_t id = pid > 0 ? pid : pid == 0 ? getpgrp() : -pid;
    return aco_i_wait_for_children(type, (id_t)id, options | WEXITED);
}

pid_t aco_waitpid(pid_t pid, int *status, int options)
{
    aco_i_spend_call();
    if (aco_self() == NULL || (options & WNOHANG) != 0) {
        return aco_i_libc.waitpid(pid, status, options);
    }
    pid_t got;
    while ((got = aco_i_libc.waitpid(pid, status, options | WNOHANG)) == 0 &&
           (got = aco_i_wait_for_child(pid, options)) == 0) {
    }
    return got;
}

/* ==== Signals ================================================================================ */

int aco_wait_signal(const sigset_t *set, siginfo_t *info)
{
    aco_i_spend_call();
    static const struct timespec at_once;
    need(set, "aco_wait_signal", "there are no signals: pass the address of a sigset_t");
    if (aco_self() == NULL) {
        return aco_i_libc.sigwaitinfo(set, info);
    }
    int got = aco_i_libc.sigtimedwait(set, info, &at_once);
    if (got >= 0 || (errno != EAGAIN && errno != EINTR)) {
        return got;
    }
    int fd = signalfd(-1, set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    do { /* others may wait for the same signal, and be first */
        got = aco_wait_fd(fd, POLLIN) < 0 ? -1 : aco_i_libc.sigtimedwait(set, info, &at_once);
    } while (got < 0 && (errno == EAGAIN || errno == EINTR));
    close_keeping_errno(fd);
    return got;
}
