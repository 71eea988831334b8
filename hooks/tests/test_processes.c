// SPDX-License-Identifier: Apache-2.0
/* Waits for child processes and for locks of files, in tasks. */
#include "threads.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* ==== Children =============================================================================== */

static int gate[2]; /* a pipe; children end when its writing end is closed */

static void make_gate(void)
{
    if (gate[0] != 0) {
        close(gate[0]);
    }
    CHECK(pipe(gate) == 0);
    CHECK(fcntl(gate[1], F_SETFD, FD_CLOEXEC) == 0);
}

static void open_gate(void)
{
    close(gate[1]);
}

static pid_t make_child(int status)
{
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        close(gate[1]);
        ssize_t sz = read(gate[0], &byte, 1);
        _exit(sz == 0 ? status : 99);
    }
    CHECK(pid > 0);
    return pid;
}

static void *lets_children_go(void *arg)
{
    let_run();
    stage = 1;
    open_gate();
    return arg;
}

/* Waits for a child that ends only after other tasks have run. */
static pid_t begin_wait(int status)
{
    stage = 0;
    make_gate();
    pid_t pid = make_child(status);
    aco_go(lets_children_go, NULL);
    return pid;
}

static void *waits_for_children(void *arg)
{
    int status;
    siginfo_t info;
    struct rusage usage;
    CHECK_FAILS(wait(&status), ECHILD);
    CHECK_FAILS(waitpid(1, &status, 0), ECHILD);
    CHECK_FAILS(waitid(P_ALL, 0, &info, WEXITED), ECHILD);
    pid_t pid = begin_wait(3);
    CHECK(waitpid(pid, &status, WNOHANG) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 3 && stage == 1);
    pid = begin_wait(4);
    CHECK(setpgid(pid, pid) == 0); /* children of all groups are waited for */
    CHECK(wait(&status) == pid && WEXITSTATUS(status) == 4 && stage == 1);
    pid = begin_wait(5);
    CHECK(setpgid(pid, pid) == 0);
    memset(&usage, 0xff, sizeof(usage));
    CHECK(wait3(&status, 0, &usage) == pid && WEXITSTATUS(status) == 5 && stage == 1);
    CHECK(usage.ru_maxrss > 0);
    pid = begin_wait(6);
    usage.ru_maxrss = 0;
    CHECK(wait4(pid, &status, 0, &usage) == pid && WEXITSTATUS(status) == 6 && stage == 1);
    CHECK(usage.ru_maxrss > 0);
    pid = begin_wait(7);
    CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0 && stage == 1);
    CHECK(info.si_pid == pid && info.si_status == 7);
    CHECK(waitid(P_PID, (id_t)pid, NULL, WEXITED) == 0);
    pid = begin_wait(7);
    int fd = (int)syscall(SYS_pidfd_open, pid, O_NONBLOCK);
    if (fd >= 0) { /* a kernel that has it */
        CHECK_FAILS(waitid((idtype_t)3 /* P_PIDFD */, (id_t)fd, &info, WEXITED), EAGAIN);
        CHECK(stage == 0 && fcntl(fd, F_SETFL, 0) == 0);
        CHECK(waitid((idtype_t)3, (id_t)fd, &info, WEXITED | WNOWAIT) == 0 && stage == 1);
        CHECK(close(fd) == 0);
    }
    CHECK(waitid(P_PID, (id_t)pid, NULL, WEXITED) == 0);
    pid = begin_wait(8);
    CHECK(waitid(P_ALL, 0, &info, WEXITED) == 0 && info.si_pid == pid && stage == 1);
    CHECK_FAILS(wait(NULL), ECHILD);
    return arg;
}

static void children_are_waited_for_by_tasks(void **state)
{
    (void)state;
    run_tasks(waits_for_children, NULL);
}

static pid_t child;

static void *is_cancelled(void *arg)
{
    int status;
    stage = 1;
    CHECK_FAILS(wait(&status), ECANCELED);
    CHECK_FAILS(waitid(P_ALL, 0, NULL, WEXITED), ECANCELED);
    CHECK_FAILS(wait4(child, &status, 0, NULL), ECANCELED);
    return arg;
}

static void *waits_within(void *arg)
{
    int status;
    make_gate();
    pid_t pid = child = make_child(1);
    aco_within(MS)
    {
        CHECK_FAILS(waitpid(pid, &status, 0), ETIMEDOUT);
        CHECK_FAILS(waitid(P_PID, (id_t)pid, NULL, WEXITED), ETIMEDOUT);
        CHECK_FAILS(wait3(&status, 0, NULL), ETIMEDOUT);
    }
    stage = 0;
    aco_task_t *late = aco_spawn(is_cancelled, NULL);
    wait_for_stage(1);
    aco_task_cancel(late);
    CHECK(aco_join(late, NULL) == 0);
    open_gate();
    CHECK(waitpid(pid, &status, 0) == pid); /* the child was not taken */
    return arg;
}

static void waits_that_fail_take_no_child(void **state)
{
    (void)state;
    run_tasks(waits_within, NULL);
}

/* ==== Commands =============================================================================== */

static char command[100];

static void *runs_commands(void *arg)
{
    stage = 0;
    make_gate();
    snprintf(command, sizeof(command), "read x <&%d; exit 3", gate[0]);
    aco_go(lets_children_go, NULL);
    int status = system(command);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3 && stage == 1);
    CHECK(system(NULL) != 0);
    stage = 0;
    make_gate();
    snprintf(command, sizeof(command), "read x <&%d; exit 4", gate[0]);
    FILE *stream = popen(command, "w");
    CHECK(stream != NULL);
    aco_go(lets_children_go, NULL);
    status = pclose(stream);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 4 && stage == 1);
    return arg;
}

static int begun[2]; /* a pipe that a command writes to */
static volatile int ct_signals;

static void count_signal(int number)
{
    (void)number;
    ct_signals++;
}

static void *signals_while_it_runs(void *arg)
{
    char byte;
    CHECK(read(begun[0], &byte, 1) == 1);
    CHECK(kill(getpid(), SIGUSR2) == 0);
    open_gate();
    return arg;
}

/* The thread that runs a command has the caller's mask. */
static void *blocks_a_signal(void *arg)
{
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    signal(SIGUSR2, count_signal);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, &before) == 0 && pipe(begun) == 0);
    make_gate();
    snprintf(command, sizeof(command), "echo >&%d; read x <&%d; exit 5", begun[1], gate[0]);
    aco_go(signals_while_it_runs, NULL);
    int status = system(command);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5 && ct_signals == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0 && ct_signals == 1);
    CHECK(close(begun[0]) == 0 && close(begun[1]) == 0);
    return arg;
}

static void *runs_for_too_long(void *arg)
{
    make_gate();
    snprintf(command, sizeof(command), "read x <&%d", gate[0]);
    aco_within(3 * MS)
    {
        CHECK_FAILS(system(command), ETIMEDOUT);
    }
    open_gate();
    return arg; /* the shell still reads */
}

static void commands_run_while_other_tasks_do(void **state)
{
    (void)state;
    run_tasks(runs_commands, NULL);
    run_tasks(blocks_a_signal, NULL);
    run_tasks(runs_for_too_long, NULL);
}

/* ==== Locks of files ========================================================================= */

static char path[] = "/tmp/test_processes.XXXXXX";
static int fds[2]; /* two open files */

typedef enum { BY_FLOCK, BY_OFD, CT_WAYS } way_t;

static int lock_file(way_t way, int fd, int type, int must_wait)
{
    if (way == BY_FLOCK) {
        int operation = type == F_WRLCK ? LOCK_EX : type == F_RDLCK ? LOCK_SH : LOCK_UN;
        return flock(fd, operation | (must_wait ? 0 : LOCK_NB));
    }
    struct flock range = {.l_type = (short)type, .l_whence = SEEK_SET, .l_len = 10};
    return fcntl(fd, must_wait ? F_OFD_SETLKW : F_OFD_SETLK, &range);
}

static void *unlocks_first(void *way)
{
    let_run();
    stage = 1;
    CHECK(lock_file(*(way_t *)way, fds[0], F_UNLCK, 0) == 0);
    return NULL;
}

static void *is_cancelled_at_lock(void *way)
{
    CHECK_FAILS(lock_file(*(way_t *)way, fds[1], F_WRLCK, 1), ECANCELED);
    return NULL;
}

static void *locks_files(void *arg)
{
    way_t way = *(way_t *)arg;
    CHECK(lock_file(way, fds[0], F_WRLCK, 1) == 0);
    aco_go(unlocks_first, arg);
    stage = 0;
    CHECK(lock_file(way, fds[1], F_WRLCK, 1) == 0 && stage == 1);
    CHECK(lock_file(way, fds[1], F_UNLCK, 1) == 0);
    CHECK(lock_file(way, fds[0], F_RDLCK, 1) == 0);
    CHECK(lock_file(way, fds[1], F_RDLCK, 1) == 0);
    CHECK(lock_file(way, fds[1], F_UNLCK, 1) == 0);
    aco_within(2 * MS)
    {
        CHECK_FAILS(lock_file(way, fds[1], F_WRLCK, 1), ETIMEDOUT);
    }
    aco_task_t *late = aco_spawn(is_cancelled_at_lock, arg);
    let_run();
    aco_task_cancel(late);
    CHECK(aco_join(late, NULL) == 0);
    CHECK(lock_file(way, fds[0], F_UNLCK, 1) == 0);
    CHECK(lock_file(way, fds[0], F_WRLCK, 0) == 0); /* no other task got it */
    CHECK(lock_file(way, fds[0], F_UNLCK, 1) == 0);
    return arg;
}

static void locks_of_open_files_are_waited_for(void **state)
{
    (void)state;
    for (way_t way = 0; way < CT_WAYS; way++) {
        run_tasks(locks_files, &way);
    }
}

/* Makes a child that has locked the file, and waits for byte 20 of it, until the gate opens. */
static pid_t make_locker(void)
{
    int ready[2];
    make_gate();
    CHECK(pipe(ready) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
        close(gate[1]);
        int failed = fcntl(fds[0], F_SETLKW, &range) != 0 || write(ready[1], "", 1) != 1;
        range.l_start = 20;
        failed |= read(gate[0], &byte, 1) != 0 || fcntl(fds[0], F_SETLKW, &range) != 0;
        _exit(failed);
    }
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void *locks_against_a_process(void *arg)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 20, .l_len = 10};
    int status = -1;
    CHECK(fcntl(fds[0], F_SETLKW, &range) == 0);
    pid_t pid = make_locker();
    range.l_start = 0;
    CHECK(fcntl(fds[0], F_SETLK, &range) < 0 && (errno == EAGAIN || errno == EACCES));
    aco_within(2 * MS)
    {
        CHECK_FAILS(fcntl(fds[0], F_SETLKW, &range), ETIMEDOUT);
        CHECK_FAILS(lockf(fds[0], F_LOCK, 5), ETIMEDOUT);
    }
    stage = 0;
    aco_go(lets_children_go, NULL); /* it waits for this process, which waits for it */
    int result = fcntl(fds[0], F_SETLKW, &range);
    CHECK(stage == 1 && (result == 0 || errno == EDEADLK));
    range.l_type = F_UNLCK;
    range.l_start = 20;
    CHECK(fcntl(fds[0], F_SETLKW, &range) == 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK((result == 0) == (status != 0)); /* one of the two has got EDEADLK */
    CHECK(lockf(fds[0], F_LOCK, 5) == 0);
    CHECK(lockf(fds[0], F_ULOCK, 5) == 0);
    return arg;
}

static void locks_of_processes_are_waited_for(void **state)
{
    (void)state;
    run_tasks(locks_against_a_process, NULL);
}

static int open_files(void **state)
{
    (void)state;
    fds[0] = mkstemp(path);
    fds[1] = open(path, O_RDWR | O_CLOEXEC);
    return fds[0] < 0 || fds[1] < 0 ? -1 : unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(children_are_waited_for_by_tasks),
        cmocka_unit_test(waits_that_fail_take_no_child),
        cmocka_unit_test(commands_run_while_other_tasks_do),
        cmocka_unit_test(locks_of_open_files_are_waited_for),
        cmocka_unit_test(locks_of_processes_are_waited_for),
    };
    return cmocka_run_group_tests(tests, open_files, NULL);
}
