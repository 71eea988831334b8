// SPDX-License-Identifier: Apache-2.0
// not stress: tasks use what lies on the stack of another one, which moves there
/* Calls that need not wait let the resumer of a coroutine go on. Calls that know the size of a
 * buffer wait as tasks, and end a program that would overflow it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tasks.h"

#include "extension.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

/* libc declares these for programs with _FORTIFY_SOURCE. */
ssize_t __read_chk(int fd, void *buf, size_t sz, size_t buf_sz);
ssize_t __pread_chk(int fd, void *buf, size_t sz, off_t offset, size_t buf_sz);
ssize_t __recv_chk(int fd, void *buf, size_t sz, size_t buf_sz, int flags);
ssize_t __recvfrom_chk(int fd, void *buf, size_t sz, size_t buf_sz, int flags,
                       struct sockaddr *from, socklen_t *from_sz);
int __poll_chk(struct pollfd *fds, nfds_t ct, int timeout, size_t sz);
int __ppoll_chk(struct pollfd *fds, nfds_t ct, const struct timespec *t, const sigset_t *mask,
                size_t sz);

static int ends[2], epoll, file; /* a connection, an epoll with its first end, an endless file */
static char byte[2];
static struct pollfd polled;

static void open_all(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    polled = (struct pollfd){ends[0], POLLIN, 0};
    epoll = epoll_create1(EPOLL_CLOEXEC);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
    file = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
}

static void close_all(void)
{
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && close(epoll) == 0 && close(file) == 0);
}

/* ==== Calls of coroutines ==================================================================== */

static struct iovec part = {byte, 1};
static struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
static struct mmsghdr messages;

/* Connects to a port of its own, and accepts the connection. The first call lets go. */
static int makes_connection(int by_accept4)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t sz = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(listener, (struct sockaddr *)&address, sz) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &sz) == 0);
    uint64_t before = aco_i_ct_switches();
    CHECK(connect(client, (struct sockaddr *)&address, sz) == 0);
    CHECK(aco_i_ct_switches() != before);
    before = aco_i_ct_switches();
    int fd = by_accept4 ? accept4(listener, NULL, NULL, SOCK_CLOEXEC)
                        : accept(listener, NULL, NULL);
    int has_let_go = aco_i_ct_switches() != before;
    CHECK(fd >= 0 && close(fd) == 0 && close(client) == 0 && close(listener) == 0);
    return has_let_go;
}

enum { CT_TIMED_CALLS = 9, CT_CALLS = 21 };

/* Makes a call that has what it needs; timed ones with a limit of no time, or without one. */
static long make_call(int number, int has_time)
{
    static const struct timespec none;
    const struct timespec *t = has_time ? &none : NULL;
    struct timeval none_left = {0, 0}, *left = has_time ? &none_left : NULL;
    struct epoll_event event;
    fd_set set;
    int ms = has_time ? 0 : -1;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    switch (number) {
    case 0:
        return poll(&polled, 1, ms);
    case 1:
        return __poll_chk(&polled, 1, ms, sizeof(polled));
    case 2:
        return ppoll(&polled, 1, t, NULL);
    case 3:
        return __ppoll_chk(&polled, 1, t, NULL, sizeof(polled));
    case 4:
        return select(ends[0] + 1, &set, NULL, NULL, left);
    case 5:
        return pselect(ends[0] + 1, &set, NULL, NULL, t, NULL);
    case 6:
        return epoll_wait(epoll, &event, 1, ms);
    case 7:
        return epoll_pwait(epoll, &event, 1, ms, NULL);
    case 8:
        return epoll_pwait2(epoll, &event, 1, t, NULL);
    case 9:
        return read(ends[0], byte, 1);
    case 10:
        return readv(ends[0], &part, 1);
    case 11:
        return write(ends[1], byte, 1);
    case 12:
        return writev(ends[1], &part, 1);
    case 13:
        return recv(ends[0], byte, 1, 0);
    case 14:
        return recvfrom(ends[0], byte, 1, 0, NULL, NULL);
    case 15:
        return recvmsg(ends[0], &message, 0);
    case 16:
        messages.msg_hdr = message;
        return recvmmsg(ends[0], &messages, 1, 0, NULL);
    case 17:
        return send(ends[1], byte, 1, 0);
    case 18:
        return sendto(ends[1], byte, 1, 0, NULL, 0);
    case 19:
        return sendmsg(ends[1], &message, 0);
    default:
        return sendfile(ends[1], file, NULL, 1);
    }
}

static void *is_coroutine(void *arg)
{
    static const char bytes[32];
    open_all();
    CHECK(write(ends[1], bytes, sizeof(bytes)) == sizeof(bytes));
    aco_i_running_task()->is_coroutine = 1;
    for (int i = 0; i < CT_CALLS; i++) {
        uint64_t before = aco_i_ct_switches();
        CHECK(make_call(i, 0) == 1 && aco_i_ct_switches() != before);
    }
    for (int i = 0; i < CT_TIMED_CALLS; i++) {
        aco_yield(); /* begins a new budget */
        uint64_t before = aco_i_ct_switches();
        CHECK(make_call(i, 1) == 1 && aco_i_ct_switches() == before);
    }
    struct pollfd nothing = {ends[1], POLLIN, 0};
    struct epoll_event event;
    aco_yield();
    uint64_t before = aco_i_ct_switches();
    CHECK(poll(&nothing, 1, 0) == 0 && aco_i_ct_switches() == before);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], NULL) == 0);
    CHECK(epoll_wait(epoll, &event, 1, 0) == 0 && aco_i_ct_switches() == before);
    CHECK(makes_connection(0) && makes_connection(1));
    aco_i_running_task()->is_coroutine = 0;
    close_all();
    return arg;
}

static void calls_outside_of_tasks_are_libcs(void **state)
{
    static const char bytes[32];
    (void)state;
    ct_failed = 0;
    open_all();
    CHECK(write(ends[1], bytes, sizeof(bytes)) == sizeof(bytes));
    for (int i = 0; i < CT_CALLS; i++) {
        CHECK(make_call(i, 0) == 1);
        CHECK(i >= CT_TIMED_CALLS || make_call(i, 1) == 1);
    }
    close_all();
    assert_int_equal(ct_failed, 0);
}

static void calls_of_coroutines_let_others_go_on(void **state)
{
    (void)state;
    run_tasks(is_coroutine, NULL);
}

/* ==== Signals ================================================================================ */

enum { CT_SIGNALS = 500 };

static int is_over; /* atomic */
static volatile sig_atomic_t ct_signals;

static void handle(int number)
{
    ct_signals += number == SIGUSR1;
}

static void *sends_signals(void *thread)
{
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        CHECK(pthread_kill(*(pthread_t *)thread, SIGUSR1) == 0);
        sched_yield();
    }
    return NULL;
}

/* Each asks the kernel, which a signal ends even if nothing waits. */
static void *asks_amid_signals(void *arg)
{
    pthread_t self = pthread_self(), thread;
    struct timeval none = {0, 0};
    int ct_wrong = 0;
    __atomic_store_n(&is_over, 0, __ATOMIC_RELEASE);
    CHECK(pthread_create(&thread, NULL, sends_signals, &self) == 0);
    while (ct_signals < CT_SIGNALS) {
        ct_wrong += select(0, NULL, NULL, NULL, &none) != 0;
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    CHECK(ct_wrong == 0 && pthread_join(thread, NULL) == 0);
    return arg;
}

static void signals_interrupt_no_task(void **state)
{
    (void)state;
    signal(SIGUSR1, handle);
    run_tasks(asks_amid_signals, NULL);
}

/* ==== Errors of sockets ====================================================================== */

/* An error that is pending comes before messages. */
static void *receives_an_error(void *arg)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t sz = sizeof(address);
    int closed = socket(AF_INET, SOCK_DGRAM, 0), fd = socket(AF_INET, SOCK_DGRAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(closed, (struct sockaddr *)&address, sz) == 0);
    CHECK(getsockname(closed, (struct sockaddr *)&address, &sz) == 0 && close(closed) == 0);
    CHECK(connect(fd, (struct sockaddr *)&address, sz) == 0 && send(fd, "x", 1, 0) == 1);
    messages.msg_hdr = message;
    CHECK_FAILS(recvmmsg(fd, &messages, 1, 0, NULL), ECONNREFUSED);
    CHECK_FAILS(recvmmsg(fd, &messages, 1, MSG_DONTWAIT, NULL), EAGAIN);
    CHECK_FAILS(recvmmsg(-1, &messages, 0, 0, NULL), EBADF);
    CHECK(close(fd) == 0);
    return arg;
}

/* The peer has closed, so the first part of a splice() brings an error: the next call has it. */
static void *splices_until_an_error(void *arg)
{
    static const char bytes[16384];
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t sz = sizeof(address);
    int fds[2], error = 0, listener = socket(AF_INET, SOCK_STREAM, 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(listener, (struct sockaddr *)&address, sz) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &sz) == 0);
    CHECK(connect(fd, (struct sockaddr *)&address, sz) == 0);
    CHECK(close(accept(listener, NULL, NULL)) == 0);
    CHECK(pipe(fds) == 0 && write(fds[1], bytes, sizeof(bytes)) == sizeof(bytes));
    CHECK(splice(fds[0], NULL, fd, NULL, sizeof(bytes), 0) > 0);
    struct pollfd errors = {fd, 0, 0};
    CHECK(poll(&errors, 1, 10000) == 1);
    sz = sizeof(error);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &sz) == 0 && error == EPIPE);
    CHECK(close(fd) == 0 && close(listener) == 0 && close(fds[0]) == 0 && close(fds[1]) == 0);
    return arg;
}

static void errors_of_sockets_are_received(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    run_tasks(receives_an_error, NULL);
    run_tasks(splices_until_an_error, NULL);
}

/* ==== Calls that know the size of a buffer =================================================== */

enum { CT_CHECKED_CALLS = 6 };

/* A buffer has room for `room` bytes or descriptors. */
static long make_checked_call(int number, size_t room)
{
    switch (number) {
    case 0:
        return __poll_chk(&polled, 1, -1, room * sizeof(polled));
    case 1:
        return __ppoll_chk(&polled, 1, NULL, NULL, room * sizeof(polled));
    case 2:
        return __read_chk(ends[0], byte, 1, room);
    case 3:
        return __recv_chk(ends[0], byte, 1, room, 0);
    case 4:
        return __recvfrom_chk(ends[0], byte, 1, room, 0, NULL, NULL);
    default:
        return __pread_chk(file, byte, 1, 0, room);
    }
}

static void *writes_late(void *arg)
{
    aco_yield();
    CHECK(write(ends[1], "x", 1) == 1);
    return arg;
}

static void *waits_checked(void *arg)
{
    for (int i = 0; i < CT_CHECKED_CALLS; i++) {
        open_all();
        aco_task_t *other = aco_spawn(writes_late, NULL);
        CHECK(make_checked_call(i, 1) == 1);
        CHECK(aco_join(other, NULL) == 0);
        close_all();
    }
    return arg;
}

static void *overflows(void *number)
{
    open_all();
    CHECK(write(ends[1], "x", 1) == 1);
    make_checked_call((int)(intptr_t)number, 0);
    return NULL;
}

static void checked_calls_wait_and_check(void **state)
{
    (void)state;
    run_tasks(waits_checked, NULL);
    for (intptr_t i = 0; i < CT_CHECKED_CALLS; i++) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) {
            signal(SIGABRT, SIG_DFL);
            CHECK(close(2) == 0 && open("/dev/null", O_WRONLY) == 2);
            _exit(aco_run(NULL, overflows, (void *)i, NULL));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
}

/* ==== System calls of the hooks ============================================================== */

long own_syscall(long number, ...) __asm__("aco_i_syscall");

static void own_system_calls_have_results_and_errors(void **state)
{
    (void)state;
    ct_failed = 0;
    CHECK(own_syscall(SYS_getpid) == getpid());
    CHECK_FAILS(own_syscall(SYS_close, -1L), EBADF);
    assert_int_equal(ct_failed, 0);
}

/* ==== Yielding =============================================================================== */

static int ct_turns;

static void *yields(void *arg)
{
    for (int i = 0; i < 10; i++) {
        CHECK(sched_yield() == 0); /* with another task that is ready, and alone */
        ct_turns++;
    }
    return arg;
}

static void *yields_in_turn(void *arg)
{
    aco_task_t *other = aco_spawn(yields, NULL);
    for (int i = 0; i < 5; i++) {
        (void)(i % 2 == 0 ? (void)sched_yield() : thrd_yield());
        CHECK(ct_turns == i);
    }
    CHECK(aco_join(other, NULL) == 0);
    return arg;
}

static void tasks_yield_to_each_other(void **state)
{
    (void)state;
    run_tasks(yields_in_turn, NULL);
}

/* ==== Waits that are no loops ================================================================= */

static int full[2];

static void *empties_late(void *arg)
{
    static char bytes[65536];
    CHECK(aco_sleep(30 * MS) == 0 && read(full[0], bytes, sizeof(bytes)) > 0);
    return arg;
}

/* One pipe has a byte, so tee() waits for the other one alone. */
static void *copies_to_a_full_pipe(void *arg)
{
    int filled[2];
    CHECK(pipe(filled) == 0 && write(filled[1], "x", 1) == 1);
    CHECK(pipe2(full, O_NONBLOCK) == 0);
    while (write(full[1], byte, 1) == 1) {
    }
    CHECK(fcntl(full[0], F_SETFL, 0) == 0 && fcntl(full[1], F_SETFL, 0) == 0);
    aco_task_t *other = aco_spawn(empties_late, NULL);
    aco_yield();
    uint64_t before = aco_i_ct_switches();
    CHECK(tee(filled[0], full[1], 1, 0) == 1);
    CHECK(aco_i_ct_switches() - before < 10);
    CHECK(aco_join(other, NULL) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(close(filled[i]) == 0 && close(full[i]) == 0);
    }
    return arg;
}

static void tee_sleeps_until_there_is_room(void **state)
{
    (void)state;
    run_tasks(copies_to_a_full_pipe, NULL);
}

/* ==== Cancelled tasks ======================================================================== */

/* A call that need not wait has its result, too; one that waits fails as the kernel's do. */
static void *is_cancelled(void *arg)
{
    struct epoll_event event;
    int fds[2];
    open_all();
    CHECK(pipe(fds) == 0);
    aco_task_cancel(aco_self());
    CHECK(poll(&polled, 1, 0) == 0 && epoll_wait(epoll, &event, 1, 0) == 0);
    CHECK(splice(fds[0], NULL, ends[0], NULL, 1, 0) == -1 && errno == ECANCELED);
    CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
    close_all();
    return arg;
}

static void calls_of_cancelled_tasks_have_results(void **state)
{
    (void)state;
    run_tasks(is_cancelled, NULL);
}

/* ==== Arguments that change nothing ========================================================== */

static int own_ends[2];

static void *reads_a_byte(void *arg)
{
    char got;
    CHECK(read(own_ends[0], &got, 1) == 1);
    return arg;
}

static void *copies_to_itself(void *arg)
{
    CHECK(pipe2(own_ends, O_CLOEXEC) == 0);
    aco_task_t *reader = aco_spawn(reads_a_byte, NULL);
    aco_yield();
    CHECK(dup2(own_ends[0], own_ends[0]) == own_ends[0]);
    CHECK((fcntl(own_ends[0], F_GETFD) & FD_CLOEXEC) != 0);
    CHECK_FAILS(dup3(own_ends[0], own_ends[0], 0), EINVAL);
    aco_yield();
    CHECK(write(own_ends[1], "x", 1) == 1);
    CHECK(aco_join(reader, NULL) == 0);
    CHECK(close(own_ends[0]) == 0 && close(own_ends[1]) == 0);
    CHECK_FAILS(dup2(own_ends[0], own_ends[0]), EBADF);
    return arg;
}

static void a_copy_to_itself_ends_no_wait(void **state)
{
    (void)state;
    run_tasks(copies_to_itself, NULL);
}

static void *sleeps_for_nothing(void *arg)
{
    struct timespec *none = (struct timespec *)arg, wrong = {0, -1};
    if (sizeof(long) == sizeof(int64_t)) { /* otherwise libc reads the time itself */
        CHECK_FAILS(nanosleep(none, NULL), EFAULT);
    }
    CHECK_FAILS(nanosleep(&wrong, NULL), EINVAL);
    return NULL;
}

static void wrong_times_fail_as_in_the_kernel(void **state)
{
    (void)state;
    run_tasks(sleeps_for_nothing, NULL);
    sleeps_for_nothing(NULL);
    assert_int_equal(ct_failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_outside_of_tasks_are_libcs),
        cmocka_unit_test(calls_of_coroutines_let_others_go_on),
        cmocka_unit_test(signals_interrupt_no_task),
        cmocka_unit_test(errors_of_sockets_are_received),
        cmocka_unit_test(checked_calls_wait_and_check),
        cmocka_unit_test(own_system_calls_have_results_and_errors),
        cmocka_unit_test(tasks_yield_to_each_other),
        cmocka_unit_test(tee_sleeps_until_there_is_room),
        cmocka_unit_test(calls_of_cancelled_tasks_have_results),
        cmocka_unit_test(a_copy_to_itself_ends_no_wait),
        cmocka_unit_test(wrong_times_fail_as_in_the_kernel),
    };
    alarm(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
