// SPDX-License-Identifier: Apache-2.0
/*
 * Ends of child processes, and signals. The end of one process makes its pidfd readable. For any of
 * several, and for a stop, a helper waits without taking what it finds: that is left to the task,
 * so no child is lost to a task that has given up.
 */
#include "internal.h"

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
    pid_t pid;
    int options;
    int result;
} child_wait_t;

static void *do_wait(void *arg)
{
    child_wait_t *w = (child_wait_t *)arg;
    idtype_t type = w->pid > 0 ? P_PID : w->pid == -1 ? P_ALL : P_PGID;
    pid_t id = w->pid > 0 ? w->pid : w->pid == 0 ? getpgrp() : -w->pid;
    siginfo_t info;
    w->result = aco_i_libc.waitid(type, (id_t)id, &info, w->options | WEXITED | WNOWAIT);
    return w;
}

/* Until waitpid() has something to say; 0, or -1 with errno. */
static int wait_by_helper(pid_t pid, int options)
{
    child_wait_t *w = (child_wait_t *)aco_i_allocate(sizeof(*w));
    if (w == NULL) {
        errno = ENOMEM;
        return -1;
    }
    *w = (child_wait_t){pid, options, -1};
    void *result;
    outcome_t outcome = aco_i_offload(HELPERS_FOR_PROCESSES, do_wait, w, aco_i_release, &result);
    if (outcome != WAIT_EVENT) {
        return aco_i_result(outcome);
    }
    int got = w->result, error = errno;
    aco_i_release(w);
    errno = error;
    return got;
}

/* Of a child that can be waited for alone; -1: it can't. */
static int open_child(pid_t pid, int options)
{
#ifdef SYS_pidfd_open
    if (pid > 0 && (options & (WUNTRACED | WCONTINUED)) == 0) {
        int error = errno;
        int fd = (int)syscall(SYS_pidfd_open, pid, 0);
        errno = error;
        return fd;
    }
#endif
    return -1;
}

pid_t aco_waitpid(pid_t pid, int *status, int options)
{
    if (aco_self() == NULL || (options & WNOHANG) != 0) {
        return aco_i_libc.waitpid(pid, status, options);
    }
    int fd = open_child(pid, options);
    pid_t got;
    while ((got = aco_i_libc.waitpid(pid, status, options | WNOHANG)) == 0) {
        if ((fd < 0 ? wait_by_helper(pid, options) : aco_wait_fd(fd, POLLIN)) < 0) {
            got = -1;
            break;
        }
    }
    int error = errno;
    if (fd >= 0) {
        aco_close(fd);
    }
    errno = error;
    return got;
}

/* ==== Signals ================================================================================ */

int aco_wait_signal(const sigset_t *set, siginfo_t *info)
{
    static const struct timespec at_once;
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
    do { /* others may wait for the same, and be first */
        got = aco_wait_fd(fd, POLLIN) < 0 ? -1 : aco_i_libc.sigtimedwait(set, info, &at_once);
    } while (got < 0 && (errno == EAGAIN || errno == EINTR));
    int error = errno;
    aco_close(fd);
    errno = error;
    return got;
}
