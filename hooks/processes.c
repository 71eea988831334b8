// SPDX-License-Identifier: Apache-2.0
/*
 * Child processes. The runtime waits for their ends. A helper thread makes libc's calls of system()
 * and pclose(); a task that gives up on one leaves it to the helper.
 */
#include "internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>

HOOKS_OF(processes);

/* ==== Waits ================================================================================== */

HOOK(pid_t, waitpid, (pid_t pid, int *status, int options), (pid, status, options),
     syscall(SYS_wait4, pid, status, options, NULL))
{
    return is_in_task() ? ANSWERED(aco_waitpid(pid, status, options))
                        : real_waitpid(pid, status, options);
}
HOOK_ALIAS(__waitpid, waitpid);

HOOK(pid_t, wait, (int *status), (status), syscall(SYS_wait4, -1, status, 0, NULL))
{
    return is_in_task() ? ANSWERED(aco_waitpid(-1, status, 0)) : real_wait(status);
}
HOOK_ALIAS(__wait, wait);

HOOK(pid_t, wait4, (pid_t pid, int *status, int options, struct rusage *usage),
     (pid, status, options, usage), syscall(SYS_wait4, pid, status, options, usage))
{
    if (!is_in_task() || (options & WNOHANG) != 0) {
        return real_wait4(pid, status, options, usage);
    }
    pid_t got;
    while ((got = real_wait4(pid, status, options | WNOHANG, usage)) == 0 &&
           (got = ANSWERED(aco_i_wait_for_child(pid, options))) == 0) {
    }
    return got;
}

HOOK(pid_t, wait3, (int *status, int options, struct rusage *usage), (status, options, usage),
     syscall(SYS_wait4, -1, status, options, usage))
{
    return NESTED(hook_wait4(-1, status, options, usage));
}

/* Whether it is a pidfd with O_NONBLOCK: waitid() does not wait for that. */
static int is_nonblocking(idtype_t type, id_t id)
{
    return (int)type == 3 /* P_PIDFD */ && (aco_i_libc.fcntl((int)id, F_GETFL) & O_NONBLOCK) != 0;
}

HOOK(int, waitid, (idtype_t type, id_t id, siginfo_t *info, int options), (type, id, info, options),
     syscall(SYS_waitid, type, id, info, options, NULL))
{
    if (!is_in_task() || (options & WNOHANG) != 0 || is_nonblocking(type, id)) {
        return real_waitid(type, id, info, options);
    }
    siginfo_t unused, *i = info != NULL ? info : &unused;
    do {
        i->si_pid = 0;
        if (real_waitid(type, id, i, options | WNOHANG) != 0) {
            return -1;
        }
    } while (i->si_pid == 0 && ANSWERED(aco_i_wait_for_children(type, id, options)) == 0);
    return i->si_pid != 0 ? 0 : -1;
}

/* ==== Commands =============================================================================== */

typedef struct {
    FILE *stream; /* to be closed; NULL: run the command */
    sigset_t mask;
    int result;
    char command[];
} job_t;

HOOK(int, system, (const char *command), (command), refuse(EAGAIN));
HOOK(int, pclose, (FILE * stream), (stream), refuse(EAGAIN));

/* The child inherits the caller's mask of blocked signals. */
static void *do_job(void *arg)
{
    job_t *job = (job_t *)arg;
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, &job->mask, &before);
    job->result = job->stream != NULL ? real_pclose(job->stream) : real_system(job->command);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return job;
}

static int by_helper(FILE *stream, const char *command)
{
    size_t sz = strlen(command) + 1;
    job_t *job = (job_t *)aco_i_allocate(sizeof(*job) + sz);
    if (job == NULL) {
        return (int)refuse(ENOMEM);
    }
    job->stream = stream;
    job->result = -1;
    memcpy(job->command, command, sz);
    pthread_sigmask(SIG_SETMASK, NULL, &job->mask);
    void *result;
    outcome_t outcome = aco_i_offload(HELPERS_FOR_LONG, do_job, job, aco_i_release, &result);
    if (outcome != WAIT_EVENT) {
        return aco_i_result(outcome);
    }
    KEEP_ERRNO();
    int status = job->result;
    aco_i_release(job);
    return status;
}

int hook_system(const char *command)
{
    return is_in_task() && command != NULL ? ANSWERED_ONCE(by_helper(NULL, command))
                                           : real_system(command);
}

int hook_pclose(FILE *stream)
{
    return is_in_task() ? ANSWERED_ONCE(by_helper(stream, "")) : real_pclose(stream);
}
