// SPDX-License-Identifier: Apache-2.0
/* Waits of tasks for the ends of processes, and for signals. Linked with --wrap for syscall(). */
// build: -Wl,--wrap=syscall
#define _GNU_SOURCE
#include "tasks.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int has_no_pidfd; /* as Linux before 5.3 */

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

long __wrap_syscall(long number, ...)
{
    va_list args;
    va_start(args, number);
    long a[6];
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(args, long);
    }
    va_end(args);
    if (number == SYS_pidfd_open && has_no_pidfd) {
        errno = ENOSYS;
        return -1;
    }
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ==== Processes ============================================================================== */

#define CT 12
#define FOR_EVER 1000000 /* ms */

/* Starts a child that exits with `code` after `ms`; in a process group of its own if `is_alone`. */
static pid_t start(int ms, int code, int is_alone)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        usleep((useconds_t)ms * 1000);
        _exit(code);
    }
    if (is_alone) {
        setpgid(pid, pid);
    }
    return pid;
}

static int has_exited(int status, int code)
{
    return WIFEXITED(status) && WEXITSTATUS(status) == code;
}

static pid_t pids[CT];
static int is_ended[CT], ct_done;

static void *waits_for_its_child(void *arg)
{
    int i = (int)(uintptr_t)arg, status = -1; /* on the stack, shared or not */
    errno = EXDEV;
    CHECK(aco_waitpid(pids[i], &status, 0) == pids[i]);
    CHECK(errno == EXDEV);
    CHECK(has_exited(status, i + 1));
    ct_done++;
    return NULL;
}

static void *waits_for_any(void *arg)
{
    int status;
    pid_t pid;
    while ((pid = aco_waitpid(-1, &status, 0)) > 0) {
        int i = 0;
        while (i < CT && pids[i] != pid) {
            i++;
        }
        CHECK(i < CT && has_exited(status, i + 1) && !is_ended[i]);
        is_ended[i % CT] = 1;
        ct_done++;
    }
    CHECK(errno == ECHILD);
    return arg;
}

static void *runs_children(void *fn)
{
    ct_done = 0;
    memset(is_ended, 0, sizeof(is_ended));
    aco_task_options_t options = {.group = aco_group_new()};
    for (int i = 0; i < CT; i++) {
        pids[i] = start(i * 7 % CT * 4, i + 1, 0); /* the first has ended before it is waited for */
    }
    usleep(5000);
    for (int i = 0; i < CT; i++) {
        options.shares_stack = i % 2;
        CHECK(aco_go_with(&options, *(void *(**)(void *))fn, (void *)(uintptr_t)i, NULL) == 0);
    }
    CHECK(aco_group_join(options.group) == 0);
    CHECK(ct_done == CT);
    return NULL;
}

static int ct_descriptors(void)
{
    int ct = 0;
    for (int fd = 0; fd < 256; fd++) {
        ct += fcntl(fd, F_GETFD) >= 0;
    }
    return ct;
}

static void children_end_in_any_order(void **state)
{
    (void)state;
    int ct = ct_descriptors();
    void *(*fn)(void *) = waits_for_its_child;
    run_tasks(runs_children, &fn);
    has_no_pidfd = 1;
    run_tasks(runs_children, &fn);
    has_no_pidfd = 0;
    assert_int_equal(ct_descriptors(), ct);
}

static void several_wait_for_any_child(void **state)
{
    (void)state;
    void *(*fn)(void *) = waits_for_any;
    run_tasks(runs_children, &fn);
}

static void *waits_for(void *pid)
{
    CHECK_FAILS(aco_waitpid(*(pid_t *)pid, NULL, 0), ECANCELED);
    return NULL;
}

/* A task that gives up leaves the child to others. */
static void *gives_up(void *arg)
{
    static pid_t any[4];
    pid_t pid = start(FOR_EVER, 0, 1), all[] = {pid, -1, 0, -pid};
    for (size_t i = 0; i < ARRAY_SZ(any); i++) {
        any[i] = all[i];
        aco_within(2 * MS)
        {
            CHECK_FAILS(aco_waitpid(any[i], NULL, 0), ETIMEDOUT);
        }
        aco_task_t *task = aco_spawn(waits_for, &any[i]);
        CHECK(aco_sleep(2 * MS) == 0);
        aco_task_cancel(task);
        CHECK(aco_join(task, NULL) == 0);
    }
    CHECK(aco_waitpid(pid, NULL, WNOHANG) == 0);
    aco_stats_t before, after;
    aco_stats(&before);
    pid_t other = start(0, 0, 0);
    aco_within(20 * MS)
    {
        CHECK_FAILS(aco_waitpid(-pid, NULL, 0), ETIMEDOUT); /* is not woken by it */
    }
    aco_stats(&after);
    CHECK(after.ct_offloads == before.ct_offloads + 1);
    CHECK(aco_waitpid(other, NULL, 0) == other);
    kill(pid, SIGKILL);
    int status = 0;
    CHECK(aco_sleep(10 * MS) == 0);
    CHECK(aco_waitpid(-pid, &status, 0) == pid && WIFSIGNALED(status));
    return arg;
}

static void who_gives_up_takes_no_child(void **state)
{
    (void)state;
    pid_t other = start(FOR_EVER, 0, 0); /* in the group of the caller */
    run_tasks(gives_up, NULL);
    kill(other, SIGKILL);
    assert_int_equal(waitpid(other, NULL, 0), other);
}

static void *waits_for_states(void *arg)
{
    int status = 0;
    pid_t pid = start(FOR_EVER, 0, 1);
    kill(pid, SIGSTOP);
    CHECK(aco_waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    aco_within(2 * MS)
    {
        CHECK_FAILS(aco_waitpid(pid, &status, WUNTRACED), ETIMEDOUT);
    }
    kill(pid, SIGCONT);
    CHECK(aco_waitpid(-pid, &status, WCONTINUED) == pid && WIFCONTINUED(status));
    kill(pid, SIGKILL);
    CHECK(aco_waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    CHECK_FAILS(aco_waitpid(pid, &status, 0), ECHILD);
    CHECK_FAILS(aco_waitpid(-1, &status, 0), ECHILD);
    CHECK_FAILS(aco_waitpid(-1, &status, ~0), EINVAL);
    return arg;
}

static void stops_and_errors_are_told(void **state)
{
    (void)state;
    run_tasks(waits_for_states, NULL);
    int status = 0;
    pid_t pid = start(5, 3, 0);
    assert_int_equal(aco_waitpid(pid, &status, 0), pid);
    assert_true(has_exited(status, 3));
}

/* ==== fork() ================================================================================= */

#define PATIENCE (60 * INT64_C(1000000000)) /* ns; more than any machine needs */

typedef struct {
    int ends[2]; /* a pipe into which tasks write as they end */
    int conn[2]; /* a connection on whose first end a task waits */
    int has_read;
    aco_mutex_t mutex; /* the task has locked it, and others want it */
    aco_rwlock_t rwlock;
    aco_key_t key;
} forked_t;

static void *writes_at_its_end(void *arg)
{
    aco_yield();
    aco_yield();
    CHECK(write(((forked_t *)arg)->ends[1], "t", 1) == 1);
    return NULL;
}

static void *reads_conn(void *arg)
{
    forked_t *f = (forked_t *)arg;
    char byte;
    aco_within(PATIENCE)
    {
        CHECK(aco_read(f->conn[0], &byte, 1) == 1);
    }
    f->has_read = 1;
    return NULL;
}

static void *wants_mutex(void *arg)
{
    forked_t *f = (forked_t *)arg;
    CHECK(aco_mutex_lock(&f->mutex) == 0 && aco_mutex_unlock(&f->mutex) == 0);
    return NULL;
}

static void *wants_rwlock(void *arg)
{
    forked_t *f = (forked_t *)arg;
    CHECK(aco_rwlock_write_lock(&f->rwlock) == 0 && aco_rwlock_unlock(&f->rwlock) == 0);
    return NULL;
}

static void must(int is_true, int code)
{
    if (!is_true) {
        _exit(code);
    }
}

/* Whether the process has a loop's epoll instance. */
static int has_epoll(void)
{
    int ct = 0;
    for (int fd = 0; fd < 64; fd++) {
        char name[32], target[64] = "";
        snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        ct += readlink(name, target, sizeof(target) - 1) > 0 && strstr(target, "eventpoll") != NULL;
    }
    return ct != 0;
}

/* The task in the child still has its locks and values, and no task that waits for them gets
 * them. */
static void own_what_the_task_has(forked_t *f)
{
    must(aco_getspecific(f->key) == f, 20);
    must(aco_setspecific(f->key, NULL) == 0 && aco_getspecific(f->key) == NULL, 21);
    must(aco_mutex_lock(&f->mutex) < 0 && errno == EDEADLK, 22);
    must(aco_rwlock_write_lock(&f->rwlock) < 0 && errno == EDEADLK, 23);
    must(aco_rwlock_unlock(&f->rwlock) == 0 && aco_rwlock_write_lock(&f->rwlock) == 0, 24);
#ifndef ACO_USE_TSAN /* TSan lets no such child start threads */
    const void *last = f->mutex.waiting.last;
    pthread_t thread;
    alarm(60);
    must(pthread_create(&thread, NULL, wants_mutex, f) == 0, 26);
    while (__atomic_load_n(&f->mutex.waiting.last, __ATOMIC_ACQUIRE) == last) {
        sched_yield();
    }
    must(aco_mutex_unlock(&f->mutex) == 0 && pthread_join(thread, NULL) == 0, 27);
    must(aco_mutex_lock(&f->mutex) == 0, 28);
#endif
}

/* Calls that a task may make in a child. */
static void live_without_runtime(forked_t *f)
{
    char byte = 'c';
    int fds[2];
    own_what_the_task_has(f);
    must(!has_epoll(), 9);
    must(aco_self() == NULL && aco_go(writes_at_its_end, f) < 0 && errno == EPERM, 10);
    must(pipe(fds) == 0 && aco_write(fds[1], &byte, 1) == 1 && aco_read(fds[0], &byte, 1) == 1, 11);
    must(aco_close(fds[0]) == 0 && aco_close(f->conn[0]) == 0, 12);
    must(aco_sleep(MS) == 0 && aco_deadline() == INT64_MAX, 13);
    aco_print_tasks(stderr); /* there is none */
#ifdef ACO_USE_TSAN
    _exit(0); /* TSan sees neither the actions of a fiber after fork() nor its switches */
#endif
    aco_yield();
    aco_yield();
    must(aco_self() == NULL, 14);
}

static int has_lived;

/* The child ends neither at its first yield nor before its task. */
static void exit_if_lived(void)
{
    must(has_lived, 16);
}

static int says_nothing(int fd)
{
    struct pollfd polled = {fd, POLLIN, 0};
    return poll(&polled, 1, 0) == 0;
}

/* Forks in a task while another one waits and a third is ready. The child returns, too. */
static void *returns_twice(void *arg)
{
    forked_t *f = (forked_t *)arg;
    CHECK(aco_go(reads_conn, f) == 0);
    aco_yield();
    CHECK(aco_go(writes_at_its_end, f) == 0);
    CHECK(aco_key_create(&f->key, NULL) == 0 && aco_setspecific(f->key, f) == 0);
    CHECK(aco_mutex_lock(&f->mutex) == 0 && aco_rwlock_write_lock(&f->rwlock) == 0);
    CHECK(aco_go(wants_mutex, f) == 0 && aco_go(wants_rwlock, f) == 0);
    aco_yield();
    CHECK(has_epoll());
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        must(atexit(exit_if_lived) == 0, 15);
        live_without_runtime(f);
        has_lived = 1;
        return arg; /* which ends it */
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && has_exited(status, 0)); /* no other task runs */
    CHECK(says_nothing(f->ends[0]));
    CHECK(!f->has_read && write(f->conn[1], "x", 1) == 1);
    CHECK(aco_rwlock_unlock(&f->rwlock) == 0 && aco_mutex_unlock(&f->mutex) == 0);
    return arg;
}

static void a_child_leaves_all_tasks_to_its_parent(void **state)
{
    (void)state;
    for (int ct_threads = 1; ct_threads <= 2; ct_threads++) {
        forked_t f = {.has_read = 0};
        char bytes[4];
        assert_int_equal(pipe(f.ends) | socketpair(AF_UNIX, SOCK_STREAM, 0, f.conn), 0);
        fflush(stdout);
        run_tasks_on(ct_threads, returns_twice, &f);
        assert_true(f.has_read);
        close(f.ends[1]);
        assert_int_equal(read(f.ends[0], bytes, sizeof(bytes)), 1);
        close(f.ends[0]);
        aco_close(f.conn[0]);
        close(f.conn[1]);
    }
}

static aco_chan_t *items;

/* Receives one item, of the parent. */
static void *wants_item(void *arg)
{
    int item = 0;
    CHECK(aco_chan_recv(items, &item) == 1 && item == 1);
    return arg;
}

/* A child sends to a channel for which a task of its parent waits. */
static void *sends_in_child(void *arg)
{
    int item = 2, status;
    items = aco_chan_new(sizeof(int), 1);
    CHECK(items != NULL && aco_go(wants_item, NULL) == 0);
    aco_yield();
    pid_t child = fork();
    if (child == 0) {
        must(aco_chan_send(items, &item) == 0, 1);
        must(aco_chan_try_recv(items, &item) == 1 && item == 2, 2);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && has_exited(status, 0));
    item = 1;
    CHECK(aco_chan_send(items, &item) == 0);
    aco_yield();
    aco_chan_free(items);
    return arg;
}

static void a_child_has_its_own_channels(void **state)
{
    (void)state;
    run_tasks(sends_in_child, NULL);
}

static void *waits_for_input(void *arg)
{
    const forked_t *f = (const forked_t *)arg;
    CHECK(aco_wait_fd(f->conn[0], POLLIN) == POLLIN);
    return NULL;
}

/* Makes a connection whose first end only aco_close() closes. */
static void connect_ends(int conn[2])
{
    struct sockaddr_in addr;
    socklen_t sz = sizeof(addr);
    int listener = aco_listen("tcp4", "127.0.0.1:0");
    conn[1] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(getsockname(listener, (struct sockaddr *)&addr, &sz) == 0);
    CHECK(connect(conn[1], (struct sockaddr *)&addr, sz) == 0);
    conn[0] = aco_accept4(listener, NULL, NULL, 0);
    CHECK(conn[0] >= 0 && aco_close(listener) == 0);
}

/* Writes `end` once the other task waits. */
static void *waits_beside(void *arg)
{
    forked_t *f = (forked_t *)arg;
    if (f->conn[0] < 0) {
        connect_ends(f->conn);
    }
    CHECK(aco_go(waits_for_input, f) == 0);
    aco_yield();
    CHECK(write(f->ends[1], "w", 1) == 1);
    return NULL;
}

static void *run_beside(void *arg)
{
    CHECK(aco_run(NULL, waits_beside, arg, NULL) == 0);
    return NULL;
}

/* A child's task waits for a descriptor for which a task of another thread waits in the parent. */
static void a_child_may_run_its_own_tasks(void **state)
{
    (void)state;
    forked_t f = {.conn = {-1, -1}};
    char byte;
    pthread_t thread;
    int status;
    ct_failed = 0;
    assert_int_equal(pipe(f.ends), 0);
    assert_int_equal(pthread_create(&thread, NULL, run_beside, &f), 0);
    assert_int_equal(read(f.ends[0], &byte, 1), 1);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(60);
        f.ends[1] = f.conn[1]; /* ends the wait */
        run_beside(&f);
        _exit(ct_failed);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(has_exited(status, 0));
    pthread_join(thread, NULL);
    assert_int_equal(ct_failed, 0);
    for (int i = 0; i < 2; i++) {
        close(f.ends[i]);
        aco_close(f.conn[i]);
    }
}

/* ==== Signals ================================================================================ */

static sigset_t signals;
static int ct_received;

static void *receives(void *arg)
{
    siginfo_t info = {0};
    errno = EXDEV;
    CHECK(aco_wait_signal(&signals, &info) == SIGRTMIN);
    CHECK(info.si_signo == SIGRTMIN && info.si_pid == getpid());
    ct_received += info.si_value.sival_int;
    return arg;
}

static void *sends(void *arg)
{
    ct_received = 0;
    aco_task_t *tasks[3];
    for (int i = 0; i < 3; i++) {
        tasks[i] = aco_spawn(receives, NULL);
    }
    CHECK(aco_sleep(2 * MS) == 0);
    for (int i = 0; i < 3; i++) {
        sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 1 << i});
        CHECK(aco_sleep(i * MS) == 0);
    }
    for (int i = 0; i < 3; i++) {
        CHECK(aco_join(tasks[i], NULL) == 0);
    }
    CHECK(ct_received == 7); /* each once */
    kill(getpid(), SIGUSR1);
    errno = EAGAIN;
    CHECK(aco_wait_signal(&signals, NULL) == SIGUSR1); /* it was pending */
    aco_within(2 * MS)
    {
        CHECK_FAILS(aco_wait_signal(&signals, NULL), ETIMEDOUT);
    }
    return arg;
}

static void tasks_wait_for_signals(void **state)
{
    (void)state;
    sigset_t before;
    int ct = ct_descriptors();
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigaddset(&signals, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &signals, &before);
    run_tasks(sends, NULL);
    run_tasks_on(2, sends, NULL);
    assert_int_equal(ct_descriptors(), ct);
    kill(getpid(), SIGUSR1);
    assert_int_equal(aco_wait_signal(&signals, NULL), SIGUSR1);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_has_its_own_channels), /* while there is one thread */
        cmocka_unit_test(children_end_in_any_order),
        cmocka_unit_test(several_wait_for_any_child),
        cmocka_unit_test(who_gives_up_takes_no_child),
        cmocka_unit_test(stops_and_errors_are_told),
        cmocka_unit_test(a_child_leaves_all_tasks_to_its_parent),
        cmocka_unit_test(a_child_may_run_its_own_tasks),
        cmocka_unit_test(tasks_wait_for_signals),
    };
    return cmocka_run_group_tests_name("process", tests, NULL, NULL);
}
