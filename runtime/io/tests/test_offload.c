// SPDX-License-Identifier: Apache-2.0
/*
 * Helper threads at work for tasks. Linked with --wrap for functions that are made slow, or to
 * fail.
 */
// build: -Wl,--wrap=pthread_create,--wrap=pthread_cond_timedwait,--wrap=syscall
// build: -Wl,--wrap=getaddrinfo,--wrap=getnameinfo
#define _GNU_SOURCE
#include "tasks.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/mman.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(ACO_USE_ASAN) || defined(ACO_USE_TSAN)
#define IS_SANITIZED 1
#else
#define IS_SANITIZED 0
#endif

static void run_with(aco_run_options_t options, void *(*fn)(void *), void *arg)
{
    ct_failed = 0;
    assert_int_equal(aco_run(&options, fn, arg, NULL), 0);
    assert_int_equal(ct_failed, 0);
}

/* ==== Wrapped functions ====================================================================== */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until);

static int ct_threads_left = 1000; /* that can still be created */

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg)
{
    if (__atomic_fetch_sub(&ct_threads_left, 1, __ATOMIC_RELAXED) <= 0) {
        return EAGAIN;
    }
    return __real_pthread_create(thread, attr, fn, arg);
}

static int64_t idle_time; /* ns; 0: the usual */
static pid_t only_idle;   /* the process whose helpers use it; 0: all */

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until)
{
    if (only_idle != 0 && only_idle != getpid()) {
        _exit(9);
    }
    if (idle_time == 0) {
        return __real_pthread_cond_timedwait(cond, mutex, until);
    }
    int64_t at = aco_now() + idle_time;
    struct timespec soon = {(time_t)(at / 1000000000), (long)(at % 1000000000)};
    return __real_pthread_cond_timedwait(cond, mutex, &soon);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

static unsigned ct_reads; /* without a helper, since is_cold was set */
static int is_cold;       /* 1: some of a file is not in the page cache */
static int is_stopped;    /* 1: another thread wants the processor after a page */

static int is_ring_refused, is_ring_slow;
static unsigned ct_ring_calls; /* atomic */

#ifndef SYS_io_uring_enter
#define SYS_io_uring_setup (-1)
#define SYS_io_uring_enter (-1)
#endif

typedef struct {
    pthread_t thread;
    long args[6];
} slow_call_t;

static slow_call_t slow_calls[2];

static void *enter_ring(void *arg)
{
    const long *a = ((slow_call_t *)arg)->args;
    usleep(20000);
    CHECK(__real_syscall(SYS_io_uring_enter, a[0], a[1], a[2], a[3], a[4], a[5]) == 1);
    return NULL;
}

/* Another thread makes the call, later. */
static long enter_ring_later(const long *args)
{
    unsigned ct = __atomic_fetch_add(&ct_ring_calls, 1, __ATOMIC_RELAXED);
    slow_call_t *call = &slow_calls[ct % ARRAY_SZ(slow_calls)];
    memcpy(call->args, args, sizeof(call->args));
    CHECK(__real_pthread_create(&call->thread, NULL, enter_ring, call) == 0);
    return 1;
}

long __wrap_syscall(long number, ...)
{
    va_list args;
    va_start(args, number);
    long a[6];
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(args, long);
    }
    va_end(args);
    if (number == SYS_io_uring_setup && is_ring_refused) {
        errno = EPERM;
        return -1;
    }
    if (number == SYS_io_uring_enter && is_ring_slow) {
        return enter_ring_later(a);
    }
    if (number == SYS_io_uring_enter) {
        __atomic_fetch_add(&ct_ring_calls, 1, __ATOMIC_RELAXED);
    }
    CHECK(number != SYS_preadv2 || a[5] == RWF_NOWAIT);
    if (number == SYS_preadv2 && is_stopped) {
        struct iovec page = {((const struct iovec *)a[1])->iov_base, 4096};
        return __real_syscall(number, a[0], &page, 1L, a[3], a[4], a[5]);
    }
    if (number != SYS_preadv2 || !is_cold || ct_reads++ % 4 == 0) {
        return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    }
    if (ct_reads % 4 == 0) {
        errno = EAGAIN;
        return -1;
    }
    struct iovec part = *(const struct iovec *)a[1];
    part.iov_len = part.iov_len < 1000 ? part.iov_len : 1000;
    return __real_syscall(number, a[0], &part, 1L, a[3], a[4], a[5]);
}

/* ==== aco_offload() ========================================================================== */

#define CT 300

static int ct_inside, most_inside, ct_calls;

static void *is_counted(void *arg)
{
    int ct = __atomic_add_fetch(&ct_inside, 1, __ATOMIC_RELAXED);
    int most = __atomic_load_n(&most_inside, __ATOMIC_RELAXED);
    while (ct > most && !__atomic_compare_exchange_n(&most_inside, &most, ct, 0, __ATOMIC_RELAXED,
                                                     __ATOMIC_RELAXED)) {
    }
    CHECK(aco_self() == NULL);
    usleep(100);
    __atomic_sub_fetch(&ct_inside, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&ct_calls, 1, __ATOMIC_RELAXED);
    return (char *)arg + 1;
}

static void *offloads_thrice(void *arg)
{
    for (int i = 0; i < 3; i++) {
        CHECK(aco_offload(is_counted, arg) == (char *)arg + 1);
    }
    return NULL;
}

static void *offloads_in_many_tasks(void *arg)
{
    static char c[CT];
    aco_task_options_t options = {.thread = ACO_ANY, .group = aco_group_new()};
    for (int i = 0; i < CT; i++) {
        options.shares_stack = i % 3 == 0;
        CHECK(aco_go_with(&options, offloads_thrice, &c[i], NULL) == 0);
    }
    CHECK(aco_group_join(options.group) == 0);
    return arg;
}

static void many_share_few_helpers(void **state)
{
    (void)state;
    for (int ct_threads = 1; ct_threads <= 3; ct_threads++) {
        ct_calls = most_inside = 0;
        run_with((aco_run_options_t){.ct_threads = ct_threads, .ct_offload = 4},
                 offloads_in_many_tasks, NULL);
        assert_int_equal(ct_calls, 3 * CT);
        assert_int_equal(ct_inside, 0);
        assert_in_range(most_inside, 2, 4);
    }
}

static void *sets_errno(void *arg)
{
    CHECK(errno == ENOTTY);
    errno = arg == NULL ? errno : EXDEV;
    return NULL;
}

static void *keeps_errno(void *arg)
{
    errno = ENOTTY;
    CHECK(aco_offload(sets_errno, NULL) == NULL && errno == ENOTTY);
    CHECK(aco_offload(sets_errno, &errno) == NULL && errno == EXDEV);
    return arg;
}

static void errno_comes_back(void **state)
{
    (void)state;
    run_tasks(keeps_errno, NULL);
    ct_failed = 0;
    keeps_errno(NULL);
    assert_int_equal(ct_failed, 0);
}

static sem_t gate;

static void *passes_the_gate(void *arg)
{
    __atomic_add_fetch(&ct_calls, 1, __ATOMIC_RELAXED);
    while (sem_wait(&gate) != 0) {
    }
    return arg;
}

static void *offloads_until_the_gate_opens(void *arg)
{
    CHECK(aco_offload(passes_the_gate, &gate) == &gate);
    return arg;
}

static void *opens_the_gate(void *arg)
{
    aco_task_t *task = aco_spawn(offloads_until_the_gate_opens, NULL);
    for (int i = 0; i < 10; i++) {
        aco_yield();
    }
    sem_post(&gate);
    CHECK(aco_join(task, NULL) == 0);
    return arg;
}

static void only_the_task_waits(void **state)
{
    (void)state;
    sem_init(&gate, 0, 0);
    run_tasks(opens_the_gate, NULL);
}

static int ct_late;

static void *offloads_in_vain(void *arg)
{
    aco_within(2 * MS)
    {
        errno = 0;
        CHECK(aco_offload(passes_the_gate, arg) == NULL && errno == ETIMEDOUT);
    }
    ct_late++;
    errno = 0;
    CHECK(aco_offload(passes_the_gate, arg) == NULL && errno == ECANCELED);
    errno = 0; /* cancelled before the call */
    CHECK(aco_offload(passes_the_gate, arg) == NULL && errno == ECANCELED);
    return arg;
}

/* A call that has begun is waited for. */
static void *offloads_too_long(void *arg)
{
    CHECK(aco_offload(passes_the_gate, arg) == arg);
    CHECK_FAILS(aco_park(), ECANCELED);
    return arg;
}

static void sleep_until(const int *ct, int least)
{
    while (__atomic_load_n(ct, __ATOMIC_RELAXED) < least) {
        CHECK(aco_sleep(MS) == 0);
    }
}

static void *keeps_the_helper_busy(void *arg)
{
    ct_calls = ct_late = 0;
    aco_task_t *first = aco_spawn(offloads_too_long, &gate);
    sleep_until(&ct_calls, 1);
    aco_task_t *second = aco_spawn(offloads_in_vain, &gate);
    sleep_until(&ct_late, 1);
    aco_task_cancel(first);
    aco_task_cancel(second);
    CHECK(aco_join(second, NULL) == 0);
    sem_post(&gate);
    CHECK(aco_join(first, NULL) == 0);
    CHECK(ct_calls == 1);
    sem_post(&gate);
    CHECK(aco_offload(passes_the_gate, arg) == arg);
    return arg;
}

static int written_fd, ct_written;

static void *writes_too_late(void *arg)
{
    ct_written++;
    CHECK_FAILS(aco_pwrite(written_fd, "x", 1, 0), EBADF);
    return arg;
}

static void *syncs_too_late(void *arg)
{
    ct_written++;
    CHECK_FAILS(aco_fsync(written_fd), EBADF);
    return arg;
}

/* The number goes to another file before a helper has time for the write. */
static void *closes_what_is_to_be_written(void *arg)
{
    ct_calls = ct_written = 0;
    aco_task_t *first = aco_spawn(offloads_too_long, &gate);
    sleep_until(&ct_calls, 1);
    written_fd = memfd_create("written", MFD_CLOEXEC);
    aco_task_t *second = aco_spawn(writes_too_late, NULL);
    aco_task_t *third = aco_spawn(syncs_too_late, NULL);
    sleep_until(&ct_written, 2);
    CHECK(aco_close(written_fd) == 0);
    CHECK(memfd_create("other", MFD_CLOEXEC) == written_fd);
    aco_task_cancel(first);
    sem_post(&gate);
    CHECK(aco_join(first, NULL) == 0 && aco_join(second, NULL) == 0);
    CHECK(aco_join(third, NULL) == 0);
    CHECK(lseek(written_fd, 0, SEEK_END) == 0);
    CHECK(aco_close(written_fd) == 0);
    return arg;
}

static void waits_for_what_has_begun(void **state)
{
    (void)state;
    sem_init(&gate, 0, 0);
    run_with((aco_run_options_t){.ct_offload = 1}, keeps_the_helper_busy, NULL);
    run_with((aco_run_options_t){.ct_offload = 1}, closes_what_is_to_be_written, NULL);
}

static void *tells_its_thread(void *arg)
{
    *(pthread_t *)arg = pthread_self();
    sigset_t set;
    sigemptyset(&set);
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    return (void *)(uintptr_t)(sigismember(&set, SIGTERM) && !sigismember(&set, SIGSEGV));
}

static void *offloads_without_threads(void *arg)
{
    static pthread_t thread, other;
    ct_threads_left = 0;
    CHECK(aco_offload(tells_its_thread, &thread) == NULL); /* runs in place */
    CHECK(pthread_equal(thread, pthread_self()));
    ct_threads_left = 1;
    CHECK(aco_offload(tells_its_thread, &thread) != NULL);
    CHECK(!pthread_equal(thread, pthread_self()));
    aco_task_t *task = aco_spawn(opens_the_gate, NULL); /* needs a helper, and gets one */
    CHECK(aco_offload(tells_its_thread, &other) != NULL);
    CHECK(pthread_equal(thread, other));
    CHECK(aco_join(task, NULL) == 0);
    return arg;
}

static void threads_may_be_short(void **state)
{
    (void)state;
    sem_init(&gate, 0, 0);
    run_tasks(offloads_without_threads, NULL);
    ct_threads_left = 1000;
}

static void an_offload_outside_of_tasks_is_a_call(void **state)
{
    (void)state;
    pthread_t thread;
    assert_null(aco_offload(tells_its_thread, &thread));
    assert_true(pthread_equal(thread, pthread_self()));
}

static int ct_files(const char *name)
{
    DIR *dir = opendir(name);
    int ct = 0;
    while (readdir(dir) != NULL) {
        ct++;
    }
    closedir(dir);
    return ct;
}

static int ct_threads(void)
{
    return ct_files("/proc/self/task");
}

static void *waits_for_idle_helpers(void *arg)
{
    int ct = ct_threads();
    aco_stats_t before, after;
    aco_stats(&before);
    aco_task_t *task = aco_spawn(offloads_in_many_tasks, NULL);
    CHECK(aco_join(task, NULL) == 0);
    aco_stats(&after);
    CHECK(after.ct_offloads == before.ct_offloads + 3 * CT);
    CHECK(ct_threads() > ct);
    aco_within(2000 * MS)
    {
        while (ct_threads() > ct && aco_sleep(MS) == 0) {
        }
    }
    CHECK(ct_threads() <= ct);
    CHECK(aco_offload(is_counted, &gate) == (char *)&gate + 1);
    return arg;
}

static void idle_helpers_end(void **state)
{
    (void)state;
    idle_time = 300 * MS;
    run_with((aco_run_options_t){.ct_offload = 4}, waits_for_idle_helpers, NULL);
    idle_time = 0;
}

static void *returns(void *arg)
{
    return arg;
}

static void *starts_a_helper(void *arg)
{
    sigset_t before, after;
    sigemptyset(&before);
    sigaddset(&before, SIGUSR2);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &before) == 0);
    CHECK(aco_offload(returns, &gate) == &gate);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &after) == 0);
    for (int number = 1; number < _NSIG; number++) {
        CHECK(sigismember(&after, number) == sigismember(&before, number));
    }
    CHECK(pthread_sigmask(SIG_UNBLOCK, &before, NULL) == 0);
    return arg;
}

static void helpers_leave_the_signal_mask(void **state)
{
    (void)state;
    run_tasks(starts_a_helper, NULL);
}

static void *offloads_its_frame(void *arg)
{
    char c = 0;
    return aco_offload(returns, &c) == &c ? arg : NULL;
}

static void *shares_its_stack(void *arg)
{
    aco_task_options_t options = {.name = "sharer", .shares_stack = 1};
    CHECK(aco_go_with(&options, offloads_its_frame, NULL, NULL) == 0);
    return arg;
}

static void a_frame_that_moves_is_refused(void **state)
{
    (void)state;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], 2);
        aco_run(NULL, shares_its_stack, NULL, NULL);
        _exit(0);
    }
    close(pipes[1]);
    char text[4096];
    ssize_t sz = read(pipes[0], text, sizeof(text) - 1);
    close(pipes[0]);
    text[sz > 0 ? sz : 0] = '\0';
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "aco_offload"));
    assert_non_null(strstr(text, "sharer"));
    run_tasks(offloads_its_frame, NULL);
}

/* ==== fork() ================================================================================= */

/* The child has the helper's memory alone, and the helper no more jobs. */
static void *forks(void *arg)
{
    pid_t child = fork();
    if (child == 0 && IS_SANITIZED) {
        _exit(0); /* TSan stops such a child, and ASan reports all its memory as leaked */
    }
    *(pid_t *)arg = child;
    return arg;
}

static void *offloads_a_fork(void *arg)
{
    pid_t child = -1;
    int status = -1;
    CHECK(aco_offload(forks, &child) == &child && child > 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return arg;
}

static void a_forked_helper_ends_with_its_call(void **state)
{
    (void)state;
    only_idle = getpid();
    fflush(stdout); /* not written twice */
    run_tasks(offloads_a_fork, NULL);
    only_idle = 0;
}

/* ==== Files ================================================================================== */

#define FILE_SZ (1 << 20)
#define BLOCK_SZ 5000

static char directory[] = "/tmp/test_offload.XXXXXX";

static const char *path_of(const char *name)
{
    static char path[64];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

static char byte_at(size_t i)
{
    return (char)(i * 7 + i / 4096);
}

static uint64_t ct_offloads(void)
{
    aco_stats_t stats;
    aco_stats(&stats);
    return stats.ct_offloads;
}

static int is_read_at(int fd, size_t offset)
{
    char block[BLOCK_SZ]; /* on the stack, shared or not */
    size_t sz = offset >= FILE_SZ ? 0 : offset > FILE_SZ - BLOCK_SZ ? FILE_SZ - offset : BLOCK_SZ;
    errno = EXDEV;
    if (aco_pread(fd, block, BLOCK_SZ, (int64_t)offset) != (ssize_t)sz || errno != EXDEV) {
        return 0;
    }
    for (size_t i = 0; i < sz; i++) {
        if (block[i] != byte_at(offset + i)) {
            return 0;
        }
    }
    return 1;
}

static int is_written_at(int fd, size_t offset)
{
    char block[BLOCK_SZ];
    size_t sz = offset > FILE_SZ - BLOCK_SZ ? FILE_SZ - offset : BLOCK_SZ;
    for (size_t i = 0; i < sz; i++) {
        block[i] = byte_at(offset + i);
    }
    return aco_pwrite(fd, block, sz, (int64_t)offset) == (ssize_t)sz;
}

static int file;
static size_t next_offset;

static void *writes_blocks(void *arg)
{
    for (size_t offset; (offset = next_offset) < FILE_SZ;) {
        next_offset += BLOCK_SZ;
        CHECK(is_written_at(file, offset));
    }
    return arg;
}

static void *reads_blocks(void *arg)
{
    for (size_t offset; (offset = next_offset) < FILE_SZ + BLOCK_SZ;) {
        next_offset += BLOCK_SZ;
        CHECK(is_read_at(file, offset));
    }
    return arg;
}

static void run_tasks_of(void *(*fn)(void *))
{
    next_offset = 0;
    aco_task_options_t options = {.group = aco_group_new()};
    for (int i = 0; i < 8; i++) {
        options.shares_stack = i % 2;
        CHECK(aco_go_with(&options, fn, NULL, NULL) == 0);
    }
    CHECK(aco_group_join(options.group) == 0);
}

static void *uses_a_file(void *arg)
{
    file = aco_open(path_of("file"), O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    struct stat status;
    CHECK(file >= 0 && fstat(file, &status) == 0 && (status.st_mode & 0700) == 0600);
    run_tasks_of(writes_blocks);
    errno = EXDEV;
    CHECK(aco_fsync(file) == 0 && errno == EXDEV);
    CHECK(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0);
    uint64_t before = ct_offloads();
    unsigned ct_calls_before = ct_ring_calls;
    is_cold = 1;
    run_tasks_of(reads_blocks);
    is_cold = 0;
    CHECK((ct_offloads() > before) != (ct_ring_calls > ct_calls_before));
    CHECK(!is_ring_refused || ct_offloads() > before);
    before = ct_offloads();
    run_tasks_of(reads_blocks);
    CHECK(ct_offloads() == before);
    CHECK(errno == EXDEV);
    close(file);
    return arg;
}

static void *fails_with_files(void *arg)
{
    char c = 0;
    CHECK_FAILS(aco_open(path_of("missing"), O_RDONLY), ENOENT);
    CHECK_FAILS(aco_open(NULL, O_RDONLY), EFAULT);
    CHECK_FAILS(aco_fsync(-1), EBADF);
    CHECK_FAILS(aco_pread(-1, &c, 1, 0), EBADF);
    CHECK_FAILS(aco_pwrite(-1, &c, 1, 0), EBADF);
    CHECK_FAILS(aco_pread(0, &c, 1, -1), EINVAL);
    CHECK_FAILS(aco_pwrite(0, &c, 1, -1), EINVAL);
    int fd = aco_open(path_of("file"), O_RDONLY | O_CLOEXEC);
    CHECK_FAILS(aco_pwrite(fd, &c, 1, 0), EBADF);
    CHECK(aco_pread(fd, &c, 0, 0) == 0);
    CHECK(aco_pread(fd, NULL, 0, 0) == 0);
    CHECK_FAILS(aco_pread(fd, (void *)1, 1, 0), EFAULT);
    close(fd);
    return arg;
}

static void files_are_read_and_written(void **state)
{
    (void)state;
    run_tasks(uses_a_file, NULL);
    is_ring_refused = 1;
    run_tasks(uses_a_file, NULL);
    is_ring_refused = 0;
    run_tasks(fails_with_files, NULL);
    ct_failed = 0;
    fails_with_files(NULL);
    assert_int_equal(ct_failed, 0);
}

/* /dev/zero gives a part of what is asked for then, unlike to a call without RWF_NOWAIT. */
static void *reads_zeros(void *arg)
{
    static char zeros[3 * 4096];
    int zero = aco_open("/dev/zero", O_RDONLY | O_CLOEXEC);
    is_stopped = 1;
    CHECK(aco_read(zero, zeros, sizeof(zeros)) == sizeof(zeros));
    is_stopped = 0;
    CHECK(aco_close(zero) == 0);
    return arg;
}

static void zeros_come_at_once(void **state)
{
    (void)state;
    run_tasks(reads_zeros, NULL);
}

/* A byte on a shared stack is another task's by the time that a helper takes it. */
static void *writes_its_byte(void *arg)
{
    char byte = *(char *)arg;
    for (int i = 0; i < 50; i++) {
        CHECK(aco_pwrite(file, &byte, 1, byte) == 1);
    }
    return arg;
}

static void *writes_bytes(void *arg)
{
    static char bytes[] = {0, 1, 2, 3, 4, 5, 6, 7}, got[sizeof(bytes)];
    file = aco_open(directory, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    aco_task_options_t options = {.group = aco_group_new(), .shares_stack = 1};
    for (size_t i = 0; i < sizeof(bytes); i++) {
        CHECK(aco_go_with(&options, writes_its_byte, &bytes[i], NULL) == 0);
    }
    CHECK(aco_group_join(options.group) == 0);
    CHECK(aco_pread(file, got, sizeof(got), 0) == sizeof(got));
    CHECK(memcmp(got, bytes, sizeof(got)) == 0);
    CHECK(aco_close(file) == 0);
    return arg;
}

static void bytes_on_shared_stacks_are_written(void **state)
{
    (void)state;
    run_tasks(writes_bytes, NULL);
}

static void *reads_a_block(void *arg)
{
    CHECK(is_read_at(file, BLOCK_SZ));
    CHECK_FAILS(aco_sleep(MS), ECANCELED);
    return arg;
}

static void *reads_late(void *arg)
{
    file = open(path_of("file"), O_RDONLY | O_CLOEXEC);
    uint64_t before = ct_offloads();
    unsigned ct_ring_calls_before = ct_ring_calls;
    is_cold = is_ring_slow = 1;
    ct_reads = 1; /* the next read finds nothing in the cache */
    aco_within(MS)
    {
        CHECK(is_read_at(file, 0));
        CHECK_FAILS(aco_sleep(MS), ETIMEDOUT);
    }
    ct_reads = 1;
    aco_task_options_t options = {.shares_stack = 1};
    aco_task_t *task;
    CHECK(aco_go_with(&options, reads_a_block, NULL, &task) == 0);
    aco_sleep(MS);
    aco_task_cancel(task);
    CHECK(aco_join(task, NULL) == 0);
    is_cold = is_ring_slow = 0;
    CHECK(ct_ring_calls == ct_ring_calls_before + 2 || ct_offloads() == before + 2);
    for (unsigned i = 0; i < ct_ring_calls - ct_ring_calls_before; i++) {
        CHECK(pthread_join(slow_calls[(ct_ring_calls_before + i) % 2].thread, NULL) == 0);
    }
    CHECK(close(file) == 0);
    return arg;
}

/* The kernel writes to its buffer. */
static void a_read_that_began_is_waited_for(void **state)
{
    (void)state;
    run_tasks(reads_late, NULL);
}

static int ct_descriptors(void)
{
    return ct_files("/proc/self/fd");
}

static int ct_blocks; /* atomic: of memory that the runtime has */

static void *allocate(size_t sz)
{
    __atomic_add_fetch(&ct_blocks, 1, __ATOMIC_SEQ_CST);
    return malloc(sz);
}

static void release(void *block)
{
    __atomic_sub_fetch(&ct_blocks, 1, __ATOMIC_SEQ_CST);
    free(block);
}

/* The only helper is busy until the gate opens. */
static void *opens_in_vain(void *arg)
{
    aco_task_t *task = aco_spawn(offloads_until_the_gate_opens, NULL);
    sleep_until(&ct_calls, 1);
    aco_within(MS)
    {
        CHECK_FAILS(aco_open(path_of("missing"), O_RDONLY | O_CLOEXEC), ETIMEDOUT);
    }
    sem_post(&gate);
    CHECK(aco_join(task, NULL) == 0);
    return arg;
}

static void *opens_one_end(void *arg)
{
    aco_within(20 * MS)
    {
        CHECK_FAILS(aco_open(path_of("fifo"), O_RDONLY | O_CLOEXEC), ETIMEDOUT);
    }
    return arg;
}

/* Neither before a helper begins nor while it opens. */
static void an_open_that_ended_leaks_nothing(void **state)
{
    (void)state;
    int ct = ct_blocks, ct_open = ct_descriptors();
    ct_calls = 0;
    sem_init(&gate, 0, 0);
    run_with((aco_run_options_t){.ct_offload = 1}, opens_in_vain, NULL);
    assert_int_equal(__atomic_load_n(&ct_blocks, __ATOMIC_SEQ_CST), ct);
    assert_int_equal(mkfifo(path_of("fifo"), 0600), 0);
    run_tasks(opens_one_end, NULL);
    int both = open(path_of("fifo"), O_RDWR | O_CLOEXEC); /* lets the helper go on */
    for (int i = 0; i < 20000 && __atomic_load_n(&ct_blocks, __ATOMIC_SEQ_CST) != ct; i++) {
        usleep(1000);
    }
    assert_int_equal(__atomic_load_n(&ct_blocks, __ATOMIC_SEQ_CST), ct);
    assert_int_equal(close(both), 0);
    assert_int_equal(ct_descriptors(), ct_open);
    assert_int_equal(unlink(path_of("fifo")), 0);
}

static void *opens_to_read(void *arg)
{
    int fd = aco_open(path_of("fifo"), O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    close(fd);
    return arg;
}

static void *opens_both_ends(void *arg)
{
    CHECK(mkfifo(path_of("fifo"), 0600) == 0);
    aco_task_t *reader = aco_spawn(opens_to_read, NULL);
    CHECK(aco_sleep(5 * MS) == 0); /* other tasks run meanwhile */
    int fd = aco_open(path_of("fifo"), O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(aco_join(reader, NULL) == 0);
    close(fd);
    aco_within(50 * MS)
    {
        CHECK_FAILS(aco_open(path_of("fifo"), O_RDONLY | O_CLOEXEC), ETIMEDOUT);
    }
    return arg;
}

static void *gives_up(void *arg)
{
    aco_within(1)
    {
        CHECK_FAILS(aco_open(path_of("fifo"), O_RDONLY | O_CLOEXEC), ETIMEDOUT);
    }
    aco_within(50 * MS)
    {
        CHECK_FAILS(aco_open(path_of("fifo"), O_RDONLY | O_CLOEXEC), ETIMEDOUT);
    }
    return arg;
}

static void *goes_on(void *arg)
{
    aco_group_t *group = aco_group_new();
    for (int i = 0; i < 100; i++) {
        CHECK(aco_group_go(group, gives_up, NULL) == 0);
    }
    CHECK(aco_group_join(group) == 0);
    aco_within(10000 * MS)
    {
        int fd = aco_open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0 && aco_close(fd) == 0);
    }
    int both = open(path_of("fifo"), O_RDWR | O_CLOEXEC); /* lets the helpers go on */
    CHECK(both >= 0 && aco_sleep(10 * MS) == 0 && close(both) == 0);
    return arg;
}

static void waiting_fifos_stop_nobody(void **state)
{
    (void)state;
    run_tasks(goes_on, NULL);
}

/* A helper whose task gave up outlives the runtime, and closes the file that it opens. */
static void a_fifo_waits_for_its_other_end(void **state)
{
    (void)state;
    run_tasks(opens_both_ends, NULL);
    int fd = -1;
    for (int i = 0; fd < 0 && i < 1000; i++) {
        usleep(1000);
        fd = open(path_of("fifo"), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    }
    assert_true(fd >= 0);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 1000 && write(fd, "", 1) == 1; i++) {
        usleep(1000);
    }
    assert_int_equal(write(fd, "", 1), -1);
    assert_int_equal(errno, EPIPE);
    close(fd);
}

/* ==== Names ================================================================================== */

int __real_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list);
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list);
int __real_getnameinfo(const struct sockaddr *address, socklen_t address_sz, char *host,
                       socklen_t host_sz, char *service, socklen_t service_sz, int flags);
int __wrap_getnameinfo(const struct sockaddr *address, socklen_t address_sz, char *host,
                       socklen_t host_sz, char *service, socklen_t service_sz, int flags);

static sem_t answers; /* each lets one look-up end */
static int ct_lookups, ct_ended;

static void look_up(void)
{
    __atomic_add_fetch(&ct_lookups, 1, __ATOMIC_RELAXED);
    CHECK(aco_self() == NULL);
    while (sem_wait(&answers) != 0) {
    }
    __atomic_add_fetch(&ct_ended, 1, __ATOMIC_RELAXED);
}

/* A name with forty addresses; only the last one is of this host's usual loopback. */
static int find_forty(const char *service, const struct addrinfo *hints, struct addrinfo **list)
{
    for (int i = 1; i <= 40; i++) {
        char address[32];
        snprintf(address, sizeof(address), "127.0.%d.1", i < 40 ? i : 0);
        int result = __real_getaddrinfo(address, service, hints, list);
        if (result != 0) {
            return result;
        }
        list = &(*list)->ai_next;
    }
    return 0;
}

#define FULL_HOST "127.0.3.1"

/* A name with two addresses; the first one's server takes no connections. */
static int find_two(const char *service, const struct addrinfo *hints, struct addrinfo **list)
{
    int result = __real_getaddrinfo(FULL_HOST, service, hints, list);
    return result != 0 ? result
                       : __real_getaddrinfo("127.0.0.1", service, hints, &(*list)->ai_next);
}

int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **list)
{
    if (node != NULL && strcmp(node, "two.example") == 0 && !(hints->ai_flags & AI_NUMERICHOST)) {
        return find_two(service, hints, list);
    }
    if (node != NULL && strcmp(node, "forty.example") == 0 && !(hints->ai_flags & AI_NUMERICHOST)) {
        return find_forty(service, hints, list);
    }
    if (node != NULL && strcmp(node, "busy.example") == 0 && !(hints->ai_flags & AI_NUMERICHOST)) {
        return EAI_AGAIN;
    }
    if (node != NULL && strcmp(node, "no.example") == 0) {
        return EAI_NONAME;
    }
    if (node == NULL || strcmp(node, "slow.example") != 0 ||
        (hints->ai_flags & AI_NUMERICHOST) != 0) {
        return __real_getaddrinfo(node, service, hints, list);
    }
    look_up();
    if (service == NULL) {
        errno = ENETDOWN;
        return EAI_SYSTEM;
    }
    return __real_getaddrinfo("192.0.2.1", service, hints, list);
}

int __wrap_getnameinfo(const struct sockaddr *address, socklen_t address_sz, char *host,
                       socklen_t host_sz, char *service, socklen_t service_sz, int flags)
{
    if (host != NULL && (flags & NI_NUMERICHOST) == 0) {
        look_up();
    }
    return __real_getnameinfo(address, address_sz, host, host_sz, service, service_sz,
                              flags | NI_NUMERICHOST);
}

static void *dials_forty(void *arg)
{
    struct sockaddr_in in;
    socklen_t sz = sizeof(in);
    char name[32];
    int listener = aco_listen("tcp", "127.0.0.1:0");
    CHECK(listener >= 0 && getsockname(listener, (struct sockaddr *)(void *)&in, &sz) == 0);
    snprintf(name, sizeof(name), "forty.example:%d", ntohs(in.sin_port));
    int fd = aco_dial("tcp4", name);
    CHECK(fd >= 0 && aco_close(fd) == 0 && aco_close(listener) == 0);
    CHECK_FAILS(aco_dial("tcp4", name), ECONNREFUSED);
    return arg;
}

static void all_addresses_are_dialled(void **state)
{
    (void)state;
    run_tasks(dials_forty, NULL);
}

#define NEXT_ATTEMPT (250 * MS)
#define CT_CALLERS 8

/* A server at FULL_HOST whose queue is full: the kernel drops further connections. */
typedef struct {
    int listener, callers[CT_CALLERS];
} full_t;

static void make_full(full_t *full, uint16_t port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = port};
    const struct sockaddr *address = (const struct sockaddr *)(const void *)&in;
    CHECK(inet_pton(AF_INET, FULL_HOST, &in.sin_addr) == 1);
    full->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(full->listener, address, sizeof(in)) == 0 && listen(full->listener, 0) == 0);
    for (int i = 0; i < CT_CALLERS; i++) {
        full->callers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        CHECK(connect(full->callers[i], address, sizeof(in)) == 0 || errno == EINPROGRESS);
    }
}

static void free_full(const full_t *full)
{
    for (int i = 0; i < CT_CALLERS; i++) {
        CHECK(close(full->callers[i]) == 0);
    }
    CHECK(close(full->listener) == 0);
}

/* The second address has its turn when the first one has not answered for a while. The attempt that
 * lost is closed, and so is one that a deadline ends. */
static void *dials_two(void *arg)
{
    struct sockaddr_in in;
    socklen_t sz = sizeof(in);
    char name[32];
    full_t full;
    int listener = aco_listen("tcp4", "127.0.0.1:0");
    CHECK(listener >= 0 && getsockname(listener, (struct sockaddr *)(void *)&in, &sz) == 0);
    make_full(&full, in.sin_port);
    snprintf(name, sizeof(name), "two.example:%d", ntohs(in.sin_port));
    int64_t before = aco_now();
    int ct_open = ct_descriptors(), fd = aco_dial("tcp4", name);
    CHECK(fd >= 0 && aco_now() - before >= NEXT_ATTEMPT);
    CHECK(aco_close(fd) == 0 && ct_descriptors() == ct_open);
    snprintf(name, sizeof(name), FULL_HOST ":%d", ntohs(in.sin_port));
    aco_within(MS)
    {
        CHECK(aco_self() == NULL || (aco_dial("tcp4", name) < 0 && errno == ETIMEDOUT));
    }
    CHECK(ct_descriptors() == ct_open);
    free_full(&full);
    CHECK(aco_close(listener) == 0);
    return arg;
}

static void attempts_begin_one_after_the_other(void **state)
{
    (void)state;
    run_tasks(dials_two, NULL);
    ct_failed = 0;
    dials_two(NULL);
    assert_int_equal(ct_failed, 0);
}

static int is_address(const struct addrinfo *list, uint32_t address, uint16_t port)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)list->ai_addr;
    return list->ai_family == AF_INET && in->sin_addr.s_addr == htonl(address) &&
           in->sin_port == htons(port);
}

static void *looks_up(void *arg)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *list = NULL;
    CHECK(aco_getaddrinfo("slow.example", "80", &hints, &list) == 0);
    CHECK(list != NULL && is_address(list, 0xc0000201, 80));
    freeaddrinfo(list);
    CHECK(aco_getaddrinfo("slow.example", NULL, &hints, &list) == EAI_SYSTEM);
    CHECK(errno == ENETDOWN);
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(80)};
    in.sin_addr.s_addr = htonl(0xc0000202);
    char host[NI_MAXHOST], service[NI_MAXSERV];
    const struct sockaddr *address = (const struct sockaddr *)&in;
    CHECK(aco_getnameinfo(address, sizeof(in), host, sizeof(host), service, sizeof(service),
                          NI_NUMERICSERV) == 0);
    CHECK(strcmp(host, "192.0.2.2") == 0 && strcmp(service, "80") == 0);
    CHECK(aco_getnameinfo(address, sizeof(in), host, 5, NULL, 0, 0) == EAI_OVERFLOW);
    return arg;
}

static void *answers_all(void *arg)
{
    uint64_t before = ct_offloads();
    aco_task_options_t options = {.shares_stack = 1};
    aco_task_t *task;
    CHECK(aco_go_with(&options, looks_up, NULL, &task) == 0);
    for (int i = 0; i < 4; i++) {
        sem_post(&answers);
    }
    CHECK(aco_join(task, NULL) == 0);
    CHECK(ct_lookups == 4 && ct_offloads() == before + 4);
    return arg;
}

static void *needs_no_helper(void *arg)
{
    uint64_t before = ct_offloads();
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *list = NULL;
    CHECK(aco_getaddrinfo("192.0.2.1", "80", &hints, &list) == 0);
    CHECK(is_address(list, 0xc0000201, 80));
    freeaddrinfo(list);
    hints.ai_flags = AI_PASSIVE;
    CHECK(aco_getaddrinfo(NULL, "81", &hints, &list) == 0);
    CHECK(is_address(list, INADDR_ANY, 81));
    freeaddrinfo(list);
    CHECK(aco_getaddrinfo(NULL, NULL, &hints, &list) == EAI_NONAME);
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(80)};
    char host[NI_MAXHOST];
    CHECK(aco_getnameinfo((const struct sockaddr *)&in, sizeof(in), host, sizeof(host), NULL, 0,
                          NI_NUMERICHOST) == 0);
    CHECK(strcmp(host, "0.0.0.0") == 0);
    CHECK(ct_offloads() == before);
    return arg;
}

static void names_are_looked_up(void **state)
{
    (void)state;
    ct_lookups = 0;
    sem_init(&answers, 0, 0);
    run_tasks(answers_all, NULL);
    run_tasks(needs_no_helper, NULL);
    ct_failed = 0;
    needs_no_helper(NULL);
    assert_int_equal(ct_failed, 0);
}

static int is_lookup_error(int error)
{
    const char *text = aco_lookup_error();
    return text != NULL && strcmp(text, gai_strerror(error)) == 0;
}

static void *fails_to_find(void *arg)
{
    CHECK(aco_lookup_error() == NULL);
    CHECK_FAILS(aco_dial("tcp", "no.example:80"), ENOENT);
    CHECK(is_lookup_error(EAI_NONAME));
    aco_sleep(MS); /* the other one has failed otherwise meanwhile */
    CHECK(is_lookup_error(EAI_NONAME));
    CHECK_FAILS(aco_listen("tcp", "no.example"), EINVAL);
    CHECK(aco_lookup_error() == NULL);
    CHECK_FAILS(aco_dial("tcp", "127.0.0.1:no-such-service"), EINVAL);
    CHECK(is_lookup_error(EAI_SERVICE));
    int fd = aco_listen("tcp", "127.0.0.1:0");
    CHECK(fd >= 0 && aco_lookup_error() == NULL);
    aco_close(fd);
    aco_within(0)
    {
        CHECK_FAILS(aco_dial("tcp", "slow.example:80"), ETIMEDOUT);
    }
    CHECK(aco_lookup_error() == NULL);
    return arg;
}

static void *fails_to_look(void *arg)
{
    CHECK_FAILS(aco_listen("tcp", "busy.example:0"), EAGAIN);
    CHECK(is_lookup_error(EAI_AGAIN));
    CHECK_FAILS(aco_dial("carrier pigeon", "no.example:0"), EINVAL);
    CHECK(aco_lookup_error() == NULL);
    return arg;
}

static void *two_fail(void *arg)
{
    CHECK(aco_go(fails_to_find, NULL) == 0 && aco_go(fails_to_look, NULL) == 0);
    return arg;
}

static void a_lookup_tells_why_it_failed(void **state)
{
    (void)state;
    sem_init(&answers, 0, 1);
    run_tasks(two_fail, NULL);
    ct_failed = 0;
    assert_null(aco_lookup_error());
    fails_to_look(NULL); /* outside of tasks */
    assert_int_equal(ct_failed, 0);
}

static void *looks_up_too_long(void *arg)
{
    struct addrinfo *list = NULL;
    struct sockaddr_in in = {.sin_family = AF_INET};
    char host[NI_MAXHOST];
    while (ct_late < 2) { /* by the helper, or while the task waits for it */
        aco_within(20 * MS)
        {
            CHECK(aco_getaddrinfo("slow.example", "80", NULL, &list) == EAI_SYSTEM);
            CHECK(errno == ETIMEDOUT && list == NULL);
        }
        ct_late += __atomic_load_n(&ct_lookups, __ATOMIC_RELAXED); /* none if it began too late */
    }
    CHECK(aco_getnameinfo((const struct sockaddr *)&in, sizeof(in), host, sizeof(host), NULL, 0,
                          0) == EAI_SYSTEM);
    CHECK(errno == ECANCELED);
    return arg;
}

static void *has_no_patience(void *arg)
{
    ct_late = 0;
    aco_task_t *task = aco_spawn(looks_up_too_long, NULL);
    sleep_until(&ct_late, 2);
    aco_task_cancel(task);
    CHECK(aco_join(task, NULL) == 0);
    CHECK(aco_offload(returns, &gate) == &gate); /* look-ups don't delay other helpers */
    return arg;
}

/* The look-up that was given up ends after the runtime. */
static void a_deadline_ends_a_slow_lookup(void **state)
{
    (void)state;
    sem_init(&answers, 0, 0);
    ct_lookups = 0;
    __atomic_store_n(&ct_ended, 0, __ATOMIC_RELAXED);
    run_with((aco_run_options_t){.ct_offload = 1, .ct_offload_names = 1}, has_no_patience, NULL);
    assert_int_equal(__atomic_load_n(&ct_lookups, __ATOMIC_RELAXED), 1);
    assert_int_equal(__atomic_load_n(&ct_ended, __ATOMIC_RELAXED), 0);
    int ct = ct_threads();
    sem_post(&answers);
    for (int i = 0; i < 1000 && ct_threads() == ct; i++) {
        usleep(1000);
    }
    assert_int_equal(ct_threads(), ct - 1);
    assert_int_equal(__atomic_load_n(&ct_ended, __ATOMIC_RELAXED), 1);
}

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) == NULL ? -1 : 0;
}

static int remove_directory(void **state)
{
    (void)state;
    unlink(path_of("file"));
    unlink(path_of("fifo"));
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_share_few_helpers),
        cmocka_unit_test(errno_comes_back),
        cmocka_unit_test(only_the_task_waits),
        cmocka_unit_test(helpers_leave_the_signal_mask),
        cmocka_unit_test(waits_for_what_has_begun),
        cmocka_unit_test(threads_may_be_short),
        cmocka_unit_test(an_offload_outside_of_tasks_is_a_call),
        cmocka_unit_test(idle_helpers_end),
        cmocka_unit_test(a_frame_that_moves_is_refused),
        cmocka_unit_test(a_forked_helper_ends_with_its_call),
        cmocka_unit_test(files_are_read_and_written),
        cmocka_unit_test(zeros_come_at_once),
        cmocka_unit_test(bytes_on_shared_stacks_are_written),
        cmocka_unit_test(a_read_that_began_is_waited_for),
        cmocka_unit_test(attempts_begin_one_after_the_other),
        cmocka_unit_test(an_open_that_ended_leaks_nothing),
        cmocka_unit_test(a_fifo_waits_for_its_other_end),
        cmocka_unit_test(waiting_fifos_stop_nobody),
        cmocka_unit_test(all_addresses_are_dialled),
        cmocka_unit_test(names_are_looked_up),
        cmocka_unit_test(a_lookup_tells_why_it_failed),
        cmocka_unit_test(a_deadline_ends_a_slow_lookup),
    };
    aco_set_allocator(allocate, release);
    return cmocka_run_group_tests_name("offload", tests, make_directory, remove_directory);
}
