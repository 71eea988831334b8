// SPDX-License-Identifier: Apache-2.0
/* Hooks beyond single calls: descriptors that are used again, deadlines, children, sleeping. */
#define _GNU_SOURCE
#include "tasks.h"

#include "aco_hooks.h"

#include <fcntl.h>
#include <poll.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ==== Numbers ================================================================================ */

static int fds[2];

static void *reads_until_closed(void *arg)
{
    char byte;
    CHECK_FAILS(read(fds[0], &byte, 1), EBADF);
    return arg;
}

/* A task that waits for fds[0] already. */
static aco_task_t *start_waiting(void)
{
    CHECK(pipe(fds) == 0);
    aco_task_t *task = aco_spawn(reads_until_closed, NULL);
    aco_yield();
    return task;
}

static void *closes(void *arg)
{
    aco_task_t *task = start_waiting();
    CHECK(close(fds[0]) == 0);
    CHECK(aco_join(task, NULL) == 0);
    CHECK_FAILS(close(fds[0]), EBADF);
    CHECK(close(fds[1]) == 0);
    return arg;
}

static void *copies_over(void *arg)
{
    for (int i = 0; i < 4; i++) {
        aco_task_t *task = start_waiting();
        int other = open("/dev/zero", O_RDONLY | (i < 2 ? O_CLOEXEC : 0));
        CHECK_FAILS(dup2(-1, fds[0]), EBADF); /* closes nothing */
        CHECK_FAILS(dup3(other, fds[0], O_APPEND), EINVAL);
        CHECK((i % 2 == 0 ? dup2(other, fds[0]) : dup3(other, fds[0], i == 1 ? O_CLOEXEC : 0)) ==
              fds[0]);
        CHECK(aco_join(task, NULL) == 0);
        char byte = 1;
        CHECK(read(fds[0], &byte, 1) == 1 && byte == 0);
        CHECK(close(other) == 0 && close(fds[0]) == 0 && close(fds[1]) == 0);
    }
    return arg;
}

static void *closes_number_0(void *arg)
{
    int kept = fcntl(0, F_DUPFD_CLOEXEC, 3);
    CHECK(kept < 0 || close(0) == 0);
    aco_task_t *task = start_waiting();
    CHECK(fds[0] == 0 && close(0) == 0);
    CHECK(aco_join(task, NULL) == 0);
    CHECK(close(fds[1]) == 0);
    CHECK(kept < 0 || (dup2(kept, 0) == 0 && close(kept) == 0));
    return arg;
}

static void *closes_stream(void *arg)
{
    aco_task_t *task = start_waiting();
    FILE *stream = fdopen(fds[0], "r");
    CHECK(fclose(stream) == 0);
    CHECK(aco_join(task, NULL) == 0);
    CHECK(close(fds[1]) == 0);
    return arg;
}

static void *closes_by_thread(void *arg)
{
    CHECK(close(fds[0]) == 0);
    return arg;
}

static void *is_closed_by_thread(void *arg)
{
    aco_task_t *task = start_waiting();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, closes_by_thread, NULL) == 0);
    CHECK(aco_join(task, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && close(fds[1]) == 0);
    return arg;
}

static void *sends(void *fd)
{
    CHECK(write((int)(intptr_t)fd, "x", 1) == 1);
    return NULL;
}

/* A descriptor that was waited for is closed by a system call, and becomes another file's. */
static void *is_closed_unseen(void *arg)
{
    int first[2], second[2];
    char byte;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, first) == 0);
    int copy = arg != NULL ? dup(first[0]) : -1; /* keeps the file watched */
    CHECK(aco_go(sends, (void *)(intptr_t)first[1]) == 0);
    CHECK(read(first[0], &byte, 1) == 1);
    CHECK(syscall(SYS_close, first[0]) == 0);
    CHECK(pipe(second) == 0 && second[0] == first[0]);
    CHECK(aco_go(sends, (void *)(intptr_t)second[1]) == 0);
    aco_within(10000 * MS)
    {
        CHECK(read(second[0], &byte, 1) == 1);
    }
    CHECK(close(first[1]) == 0 && close(second[0]) == 0 && close(second[1]) == 0);
    CHECK(copy < 0 || close(copy) == 0);
    return arg;
}

/* A socket of `type` with an address of its own on this machine. */
static int bind_here(int type, struct sockaddr_in *addr)
{
    socklen_t sz = sizeof(*addr);
    int fd = socket(AF_INET, type, 0);
    *addr = (struct sockaddr_in){.sin_family = AF_INET};
    addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(fd, (struct sockaddr *)addr, sz) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)addr, &sz) == 0);
    return fd;
}

static void *sends_two(void *addr)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    for (int i = 0; i < 2; i++) {
        CHECK(sendto(fd, "x", 1, 0, (const struct sockaddr *)addr, sizeof(struct sockaddr_in)) ==
              1);
    }
    CHECK(close(fd) == 0);
    return NULL;
}

/* A datagram socket takes the number of a TCP connection. Now a short read leaves more to be
 * read. */
static void *is_datagrams_next(void *arg)
{
    struct sockaddr_in addr;
    char bytes[8];
    int listener = bind_here(SOCK_STREAM, &addr), client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listen(listener, 1) == 0);
    CHECK(connect(client, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    int fd = accept(listener, NULL, NULL);
    CHECK(aco_go(sends, (void *)(intptr_t)client) == 0);
    CHECK(recv(fd, bytes, sizeof(bytes), 0) == 1);
    CHECK(syscall(SYS_close, fd) == 0);
    CHECK(bind_here(SOCK_DGRAM, &addr) == fd);
    CHECK(aco_go(sends_two, &addr) == 0);
    aco_within(10000 * MS)
    {
        CHECK(recv(fd, bytes, sizeof(bytes), 0) == 1);
        CHECK(recv(fd, bytes, sizeof(bytes), 0) == 1);
    }
    CHECK(close(fd) == 0 && close(listener) == 0 && close(client) == 0);
    return arg;
}

static void *passes_descriptor(void *arg)
{
    int pair[2], passed = -1;
    char byte = 'a', control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control};
    msg.msg_controllen = sizeof(control);
    struct cmsghdr *header = CMSG_FIRSTHDR(&msg);
    *header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    CHECK(pipe(fds) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    memcpy(CMSG_DATA(header), &fds[0], sizeof(int));
    CHECK(sendmsg(pair[0], &msg, 0) == 1);
    CHECK(recvmsg(pair[1], &msg, MSG_WAITALL) == 1);
    memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
    CHECK(aco_go(sends, (void *)(intptr_t)fds[1]) == 0);
    CHECK(read(passed, &byte, 1) == 1);
    int all[] = {fds[0], fds[1], pair[0], pair[1], passed};
    for (size_t i = 0; i < ARRAY_SZ(all); i++) {
        CHECK(close(all[i]) == 0);
    }
    return arg;
}

static void test_close(void **state)
{
    (void)state;
    run_tasks(closes, NULL);
    run_tasks(closes_stream, NULL);
    run_tasks(closes_number_0, NULL);
    run_tasks(is_closed_by_thread, NULL);
}

static void test_dup_onto_waited(void **state)
{
    (void)state;
    run_tasks(copies_over, NULL);
}

static void test_closed_unseen(void **state)
{
    (void)state;
    run_tasks(is_closed_unseen, NULL);
    run_tasks(is_closed_unseen, fds);
    run_tasks(is_datagrams_next, NULL);
}

static void test_passed(void **state)
{
    (void)state;
    run_tasks(passes_descriptor, NULL);
}

/* ==== Times of select() ====================================================================== */

static void *selects_for_a_time(void *arg)
{
    struct timeval t = {0, 2000}, negative[] = {{-1, 0}, {0, -1}};
    for (size_t i = 0; i < ARRAY_SZ(negative); i++) {
        CHECK_FAILS(select(0, NULL, NULL, NULL, &negative[i]), EINVAL);
    }
    CHECK(select(0, NULL, NULL, NULL, &t) == 0);
    CHECK(t.tv_sec == 0 && t.tv_usec == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    aco_go(sends, (void *)(intptr_t)fds[1]);
    fd_set in;
    FD_ZERO(&in);
    FD_SET(fds[0], &in);
    t = (struct timeval){3600, 0};
    CHECK(select(fds[0] + 1, &in, NULL, NULL, &t) == 1);
    CHECK(t.tv_sec < 3600 && t.tv_sec > 0 && t.tv_usec >= 0 && t.tv_usec < 1000000);
    CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
    return arg;
}

static void select_leaves_the_time_that_is_left(void **state)
{
    (void)state;
    run_tasks(selects_for_a_time, NULL);
}

/* ==== Deadlines and cancelling =============================================================== */

static void *runs_out_of_time(void *arg)
{
    char byte;
    struct pollfd polled;
    struct epoll_event event = {.events = EPOLLIN};
    struct timespec t = {100, 0}, left = {0, 0};
    sigset_t set;
    fd_set in;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fds[0], &event) == 0);
    polled = (struct pollfd){fds[0], POLLIN, 0};
    FD_ZERO(&in);
    FD_SET(fds[0], &in);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    aco_within(1)
    {
        CHECK_FAILS(read(fds[0], &byte, 1), ETIMEDOUT);
        CHECK_FAILS(recv(fds[0], &byte, 1, 0), ETIMEDOUT);
        CHECK_FAILS(poll(&polled, 1, -1), ETIMEDOUT);
        CHECK_FAILS(select(fds[0] + 1, &in, NULL, NULL, NULL), ETIMEDOUT);
        CHECK(FD_ISSET(fds[0], &in));
        CHECK_FAILS(epoll_wait(epoll, &event, 1, -1), ETIMEDOUT);
        CHECK_FAILS(nanosleep(&t, &left), ETIMEDOUT);
        CHECK(left.tv_sec == 99);
        CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL) == ETIMEDOUT);
        t.tv_sec = time(NULL) + 100;
        CHECK(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL) == ETIMEDOUT);
        CHECK(sleep(100) == 100);
        CHECK_FAILS(usleep(1000000), ETIMEDOUT);
        CHECK_FAILS(pause(), ETIMEDOUT);
        CHECK_FAILS(sigwaitinfo(&set, NULL), ETIMEDOUT);
    }
    CHECK(close(fds[0]) == 0 && close(fds[1]) == 0 && close(epoll) == 0);
    return arg;
}

static void *is_cancelled(void *arg)
{
    char byte;
    aco_task_cancel(aco_self());
    CHECK(pipe(fds) == 0);
    CHECK_FAILS(read(fds[0], &byte, 1), ECANCELED);
    CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
    return arg;
}

static void test_deadline(void **state)
{
    (void)state;
    run_tasks(runs_out_of_time, NULL);
    run_tasks(is_cancelled, NULL);
}

/* ==== Time and signals ======================================================================= */

static void *sleeps(void *arg)
{
    struct timespec t = {0, 20 * MS};
    CHECK(nanosleep(&t, NULL) == 0);
    CHECK(usleep(20000) == 0);
    clock_gettime(CLOCK_REALTIME, &t);
    CHECK(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL) == 0);
    t.tv_nsec = 1000000000;
    CHECK_FAILS(nanosleep(&t, NULL), EINVAL);
    CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL) == EINVAL);
    return arg;
}

/* Many tasks sleep at once. One after the other, they would take 40 s. */
static void *sleep_together(void *arg)
{
    int64_t since = aco_now();
    aco_group_t *group = aco_group_new();
    for (int i = 0; i < 1000; i++) {
        CHECK(aco_group_go(group, sleeps, NULL) == 0);
    }
    CHECK(aco_group_join(group) == 0);
    CHECK(aco_now() - since >= 40 * MS && aco_now() - since < 20000 * MS);
    return arg;
}

static void *signals(void *arg)
{
    sigset_t set;
    siginfo_t info;
    struct timespec t = {0, 1000};
    int number = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK_FAILS(sigtimedwait(&set, &info, &t), EAGAIN);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(sigtimedwait(&set, &info, &t) == SIGUSR1 && info.si_pid == getpid());
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(sigwait(&set, &number) == 0 && number == SIGUSR1);
    return arg;
}

static int ct_handled;

static void handle(int number)
{
    (void)number;
    ct_handled++;
}

static void *raises(void *arg)
{
    CHECK(kill(getpid(), SIGUSR1) == 0);
    return arg;
}

/* The number that the next file gets. */
static int next_number(void)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    CHECK(fd >= 0 && close(fd) == 0);
    return fd;
}

/* A signal arrives that the thread blocks and the mask lets through. The calls leave no descriptor
 * open. */
static void *lets_signal_through(void *arg)
{
    struct sigaction action = {.sa_handler = handle};
    sigset_t none;
    struct epoll_event event;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    sigemptyset(&none);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    int next = next_number();
    for (int i = 0; i < 3; i++) {
        CHECK(aco_go(raises, NULL) == 0);
        CHECK_FAILS(i == 0   ? ppoll(NULL, 0, NULL, &none)
                    : i == 1 ? pselect(0, NULL, NULL, NULL, NULL, &none)
                             : epoll_pwait(epoll, &event, 1, -1, &none),
                    EINTR);
        CHECK(ct_handled == i + 1);
        CHECK(next_number() == next);
    }
    CHECK(close(epoll) == 0);
    return arg;
}

static void test_sleep(void **state)
{
    (void)state;
    run_tasks(sleep_together, NULL);
}

static void test_signals(void **state)
{
    (void)state;
    run_tasks(signals, NULL);
    run_tasks(lets_signal_through, NULL);
}

/* ==== Children =============================================================================== */

/* Each call is libc's in a child: it blocks, and no task of the parent notices. */
static void *forks(void *arg)
{
    int status, pipe_fds[2];
    aco_task_t *task = start_waiting();
    CHECK(pipe(pipe_fds) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        _exit(aco_self() == NULL && read(pipe_fds[0], &byte, 1) == 1 && close(fds[0]) == 0 ? 7 : 8);
    }
    CHECK(write(pipe_fds[1], "x", 1) == 1);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    pid = vfork();
    if (pid == 0) {
        close(fds[0]);
        dup2(1, fds[0]);
        _exit(9);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 9);
    aco_yield();
    CHECK(close(fds[0]) == 0); /* only now does its wait end */
    CHECK(aco_join(task, NULL) == 0);
    CHECK(close(fds[1]) == 0 && close(pipe_fds[0]) == 0 && close(pipe_fds[1]) == 0);
    return arg;
}

static void test_children(void **state)
{
    (void)state;
    int status;
    run_tasks(forks, NULL);
    pid_t pid = fork(); /* like daemon(): the child may have tasks, and hooks for them */
    if (pid == 0) {
        alarm(60); /* in case it waits for ever */
        _exit(aco_run(NULL, closes, NULL, NULL) == 0 && ct_failed == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* ==== Large sets ============================================================================= */

static int ends[2];

static void *overwrites(void *arg)
{
    memset(arg, 'N', 2048);
    CHECK(write(ends[1], "x", 1) == 1);
    return arg;
}

/* A first argument beyond the table of descriptors: the kernel does not touch what is behind. */
static void *selects_all(void *arg)
{
    static struct {
        fd_set set;
        char behind[2048];
    } m;
    struct timeval time = {20, 0};
    size_t ct_changed = 0;
    memset(m.behind, 'O', sizeof(m.behind));
    CHECK(pipe(ends) == 0);
    FD_ZERO(&m.set);
    FD_SET(ends[0], &m.set);
    CHECK(aco_go(overwrites, m.behind) == 0);
    int ct = 20000; /* not a constant that a compiler checks */
    CHECK(select(*(volatile int *)&ct, &m.set, NULL, NULL, &time) == 1);
    CHECK(FD_ISSET(ends[0], &m.set));
    for (size_t i = 0; i < sizeof(m.behind); i++) {
        ct_changed += m.behind[i] != 'N';
    }
    CHECK(ct_changed == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    return arg;
}

/* The look at the size of the table has descriptor 0, and closes it again. */
static void *selects_all_without_0(void *arg)
{
    static fd_set sets[20];
    struct timeval none = {0, 0};
    int kept = fcntl(0, F_DUPFD_CLOEXEC, 3), ct = 20000;
    CHECK(kept < 0 || close(0) == 0);
    CHECK(select(*(volatile int *)&ct, sets, NULL, NULL, &none) == 0);
    CHECK_FAILS(fcntl(0, F_GETFD), EBADF);
    CHECK(kept < 0 || (dup2(kept, 0) == 0 && close(kept) == 0));
    return arg;
}

static void large_sets_end_with_the_table(void **state)
{
    (void)state;
    run_tasks(selects_all, NULL);
    run_tasks(selects_all_without_0, NULL);
}

/* ==== Connections and FIFOs ================================================================== */

static char fifo[] = "/tmp/test_hooks.XXXXXX";

static void *opens_other_end(void *arg)
{
    int fd = open(fifo, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0 && write(fd, "hello", 5) == 5 && close(fd) == 0);
    return arg;
}

static void *opens_fifo(void *arg)
{
    char text[5];
    CHECK(aco_go(opens_other_end, NULL) == 0);
    int fd = open(fifo, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fcntl(fd, F_GETFL) == (O_RDONLY | (fcntl(fd, F_GETFL) & ~O_NONBLOCK)));
    CHECK(read(fd, text, 5) == 5 && read(fd, text, 5) == 0);
    CHECK(close(fd) == 0);
    return arg;
}

static int count_open(void)
{
    int ct = 0;
    for (int fd = 0; fd < 1000; fd++) {
        ct += fcntl(fd, F_GETFD) >= 0;
    }
    return ct;
}

/* The helper opens it when the other end is there, and closes it again. */
static void *opens_fifo_too_late(void *arg)
{
    int before = count_open();
    aco_within(3 * MS)
    {
        CHECK_FAILS(open(fifo, O_RDONLY | O_CLOEXEC), ETIMEDOUT);
    }
    int fd = open(fifo, O_RDWR | O_CLOEXEC);
    aco_sleep(5 * MS);
    for (int i = 0; i < 10000 && count_open() != before + 1; i++) {
        aco_sleep(MS / 10);
    }
    CHECK(close(fd) == 0 && count_open() == before);
    return arg;
}

#define CT_READERS 100

static int ct_open;

static void *opens_to_read(void *arg)
{
    int fd = open(fifo, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    ct_open++;
    CHECK(close(fd) == 0);
    return arg;
}

/* Opens the other end last, and keeps it until all have theirs. */
static void *opens_for_all(void *arg)
{
    int fd = open(fifo, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    while (ct_open < CT_READERS && aco_sleep(1000000) == 0) {
    }
    CHECK(close(fd) == 0);
    return arg;
}

static void *opens_fifo_often(void *arg)
{
    aco_group_t *group = aco_group_new();
    ct_open = 0;
    for (int i = 0; i < CT_READERS; i++) {
        CHECK(aco_group_go(group, opens_to_read, NULL) == 0);
    }
    CHECK(aco_group_go(group, opens_for_all, NULL) == 0);
    aco_within(INT64_C(20000000000))
    {
        CHECK(aco_group_join(group) == 0);
    }
    return arg;
}

/* A FIFO that is full to poll() takes a little more in its last page. */
static void *fills_fifo(void *arg)
{
    static char bytes[1 << 20];
    int fd = open(fifo, O_RDWR | O_CLOEXEC);
    struct pollfd polled = {fd, POLLOUT, 0};
    int sz = fcntl(fd, F_GETPIPE_SZ) - 100, ct_unread = 0;
    CHECK(sz > 0 && sz < (int)sizeof(bytes) && write(fd, bytes, (size_t)sz) == sz);
    CHECK(poll(&polled, 1, 0) == 0);
    aco_within(1)
    {
        CHECK(write(fd, bytes, 60) == 60);
        CHECK_FAILS(write(fd, bytes, 60), ETIMEDOUT);
    }
    CHECK(ioctl(fd, FIONREAD, &ct_unread) == 0 && ct_unread == sz + 60);
    CHECK(close(fd) == 0);
    return arg;
}

/* An eventfd that is full to poll() still refuses what is no count, and on newer kernels more bytes
 * than a count has. */
static void *fills_eventfd(void *arg)
{
    int fd = eventfd(0, EFD_CLOEXEC), other = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    uint64_t most = UINT64_MAX - 1, none = UINT64_MAX, one = 1, two[] = {UINT64_MAX - 1, 0};
    int is_exact = write(other, two, sizeof(two)) < 0;
    CHECK(fd >= 0 && write(fd, &most, sizeof(most)) == sizeof(most));
    aco_within(1)
    {
        CHECK_FAILS(write(fd, &none, sizeof(none)), EINVAL);
        CHECK_FAILS(write(fd, &most, sizeof(most)), ETIMEDOUT);
        CHECK_FAILS(write(fd, two, sizeof(two)), is_exact ? EINVAL : ETIMEDOUT);
    }
    /* There is room to poll(), but none for the value. */
    CHECK(read(fd, &none, sizeof(none)) == sizeof(none) && none == most);
    CHECK(write(fd, &one, sizeof(one)) == sizeof(one));
    aco_within(1)
    {
        CHECK_FAILS(write(fd, two, sizeof(two)), is_exact ? EINVAL : ETIMEDOUT);
    }
    CHECK(close(fd) == 0 && close(other) == 0);
    return arg;
}

/* TCP waits for data even if a call asks for 0 bytes. */
static void *receives_none(void *arg)
{
    struct sockaddr_in addr, from;
    socklen_t sz = sizeof(from);
    struct timeval soon = {0, 1000};
    struct msghdr msg = {.msg_name = &from, .msg_namelen = sz, .msg_flags = -1};
    int listener = bind_here(SOCK_STREAM, &addr), client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listen(listener, 1) == 0);
    CHECK(connect(client, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    CHECK(setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)) == 0);
    errno = 0;
    CHECK(recvmsg(client, &msg, 0) == 0 && msg.msg_flags == 0 && msg.msg_namelen == 0);
    CHECK(recvfrom(client, NULL, 0, 0, (struct sockaddr *)&from, &sz) == 0 && sz == 0);
    CHECK(errno == 0);
    CHECK(close(client) == 0 && close(listener) == 0);
    return arg;
}

static void test_at_limits(void **state)
{
    (void)state;
    run_tasks(fills_eventfd, NULL);
    run_tasks(receives_none, NULL);
}

static void test_fifo(void **state)
{
    (void)state;
    assert_int_equal(close(mkstemp(fifo)), 0);
    assert_int_equal(unlink(fifo), 0);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    run_tasks(opens_fifo, NULL);
    run_tasks(opens_fifo_too_late, NULL);
    run_tasks(opens_fifo_often, NULL);
    run_tasks(fills_fifo, NULL);
    assert_int_equal(unlink(fifo), 0);
}

static void test_active(void **state)
{
    (void)state;
    assert_true(aco_hooks_active());
}

/* ==== select ================================================================================= */

/* A socket that hangs as select() begins, and gets what it waits for later. */
static int select_fds[2];

static void *connects_late(void *arg)
{
    struct sockaddr_in in;
    socklen_t sz = sizeof(in);
    CHECK(aco_sleep(5 * MS) == 0);
    CHECK(getsockname(select_fds[1], (struct sockaddr *)&in, &sz) == 0);
    CHECK(connect(select_fds[0], (struct sockaddr *)&in, sz) == 0);
    int fd = accept(select_fds[1], NULL, NULL);
    CHECK(fd >= 0 && send(fd, "!", 1, MSG_OOB) == 1);
    CHECK(aco_sleep(MS) == 0 && close(fd) == 0);
    return arg;
}

static void *selects_early(void *arg)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct timeval limit = {20, 0};
    fd_set except;
    for (int i = 0; i < 2; i++) {
        select_fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
    CHECK(bind(select_fds[1], (struct sockaddr *)&in, sizeof(in)) == 0);
    CHECK(listen(select_fds[1], 1) == 0);
    aco_task_t *task = aco_spawn(connects_late, NULL);
    FD_ZERO(&except);
    FD_SET(select_fds[0], &except);
    CHECK(select(select_fds[0] + 1, NULL, NULL, &except, &limit) == 1);
    CHECK(aco_join(task, NULL) == 0);
    CHECK(close(select_fds[0]) == 0 && close(select_fds[1]) == 0);
    return arg;
}

static void select_forgets_no_descriptor(void **state)
{
    (void)state;
    run_tasks(selects_early, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(select_forgets_no_descriptor),
        cmocka_unit_test(large_sets_end_with_the_table),
        cmocka_unit_test(select_leaves_the_time_that_is_left),
        cmocka_unit_test(test_active),
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_dup_onto_waited),
        cmocka_unit_test(test_passed),
        cmocka_unit_test(test_closed_unseen),
        cmocka_unit_test(test_sleep),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_children),
        cmocka_unit_test(test_fifo),
        cmocka_unit_test(test_at_limits),
    };
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
