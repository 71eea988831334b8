// SPDX-License-Identifier: Apache-2.0
/*
 * Descriptors behind the runtime's back: flags that change between calls, numbers that get another
 * file by close(2) and dup2(2), signal handlers that close, and no number left.
 */
// build: -Wl,--wrap=syscall,--wrap=aco_i_allocate,--wrap=close,--wrap=epoll_ctl
// build: -Wl,--wrap=fcntl,--wrap=fcntl64
#define _GNU_SOURCE
#include "tasks.h"

#include "extension.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#define BIG ((size_t)1 << 21) /* bytes, more than a socket holds */
#define BAD_ADDRESS "a..b:1"  /* no server is asked for this name */
#define GIVE_UP 60            /* s after which a thread that waits is killed */

static int has_no_nowait; /* as Linux before 6.5 for pipes and sockets */

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (has_no_nowait && (number == SYS_preadv2 || number == SYS_pwritev2)) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return __real_syscall(number, a, b, c, d, e, f);
}

static int has_no_memory; /* for more than some KiB */

void *__real_aco_i_allocate(size_t sz);
void *__wrap_aco_i_allocate(size_t sz);
void *__wrap_aco_i_allocate(size_t sz)
{
    return has_no_memory && sz > 8192 ? NULL : __real_aco_i_allocate(sz);
}

static void make_pair(int fds[2])
{
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
}

static void close_all(const int *fds, size_t ct)
{
    for (size_t i = 0; i < ct; i++) {
        CHECK(aco_close(fds[i]) == 0);
    }
}

/* ==== Flags ================================================================================== */

static void *reads_byte(void *arg)
{
    char byte;
    CHECK(aco_read((int)(intptr_t)arg, &byte, 1) == 1);
    return NULL;
}

/* Waits for a byte, as a blocking descriptor lets it. */
static void wait_for_byte(int fds[2])
{
    aco_task_t *task = aco_spawn(reads_byte, (void *)(intptr_t)fds[0]);
    aco_yield();
    CHECK(write(fds[1], "x", 1) == 1);
    CHECK(aco_join(task, NULL) == 0);
}

static void *changes_flags(void *arg)
{
    int fds[2];
    char byte;
    struct timeval soon = {0, 1000}, never = {0, 0};
    make_pair(fds);
    for (int round = 0; round < 2; round++) {
        wait_for_byte(fds);
        CHECK(fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0);
        CHECK_FAILS(aco_read(fds[0], &byte, 1), EAGAIN);
        CHECK(fcntl(fds[0], F_SETFL, 0) == 0);
        wait_for_byte(fds);
        CHECK(setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)) == 0);
        CHECK_FAILS(aco_read(fds[0], &byte, 1), EAGAIN);
        CHECK(setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &never, sizeof(never)) == 0);
    }
    close_all(fds, 2);
    return arg;
}

static int ct_set_flags;

int __real_fcntl64(int fd, int op, long arg);
int __wrap_fcntl64(int fd, int op, long arg);
int __wrap_fcntl64(int fd, int op, long arg)
{
    ct_set_flags += op == F_SETFL;
    return __real_fcntl64(fd, op, arg);
}

int __real_fcntl(int fd, int op, long arg);
int __wrap_fcntl(int fd, int op, long arg);
int __wrap_fcntl(int fd, int op, long arg)
{
    ct_set_flags += op == F_SETFL;
    return __real_fcntl(fd, op, arg);
}

/* Others see the flags of a file at any time, also by copies of its descriptor. */
static void *leaves_flags_alone(void *arg)
{
    uint64_t values[] = {1, 1000, UINT64_MAX - 1002}, sum = 0;
    int64_t offset = 0;
    int fds[2], ends[2], file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int event_fd = eventfd(0, EFD_CLOEXEC);
    make_pair(fds);
    CHECK(pipe2(ends, O_CLOEXEC) == 0 && file >= 0 && event_fd >= 0);
    ct_set_flags = 0;
    for (size_t i = 0; i < ARRAY_SZ(values); i++) {
        CHECK(aco_write(event_fd, &values[i], sizeof(*values)) == sizeof(*values));
    }
    aco_within(MS)
    {
        CHECK_FAILS(aco_write(event_fd, &values[1], sizeof(*values)), ETIMEDOUT);
    }
    CHECK(aco_read(event_fd, &sum, sizeof(sum)) == sizeof(sum) && sum == UINT64_MAX - 1);
    CHECK(aco_sendfile(fds[0], file, &offset, 1000) == 1000 && offset == 1000);
    CHECK(aco_sendfile(fds[0], file, NULL, 1000) == 1000 && lseek(file, 0, SEEK_CUR) == 1000);
    CHECK(aco_sendfile(ends[1], file, &offset, 1000) == 1000 && offset == 2000);
    CHECK(ct_set_flags == 0);
    close_all(fds, 2);
    close_all(ends, 2);
    CHECK(aco_close(file) == 0 && aco_close(event_fd) == 0);
    return arg;
}

static void flags_of_others_are_left_alone(void **state)
{
    (void)state;
    run_tasks(leaves_flags_alone, NULL);
}

static void flags_count_from_call_to_call(void **state)
{
    (void)state;
    run_tasks(changes_flags, NULL);
}

/* ==== Numbers ================================================================================ */

static void *fails_by_closing(void *arg)
{
    char byte;
    CHECK_FAILS(aco_read((int)(intptr_t)arg, &byte, 1), EBADF);
    return NULL;
}

/* A task that waits for the former file does not read from the new one. */
static void *waits_for_a_reused_number(void *arg)
{
    int former[2], pair[2], number;
    make_pair(former);
    make_pair(pair);
    number = former[0];
    aco_task_t *outdated = aco_spawn(fails_by_closing, (void *)(intptr_t)number);
    aco_yield();
    CHECK(dup2(pair[0], number) == number); /* and closes the former file */
    aco_task_t *task = aco_spawn(reads_byte, (void *)(intptr_t)number);
    aco_yield();
    CHECK(write(pair[1], "x", 1) == 1);
    CHECK(aco_join(task, NULL) == 0);
    CHECK(aco_join(outdated, NULL) == 0);
    close_all(former, 2);
    close_all(pair, 2);
    return arg;
}

static void *reads_big(void *arg)
{
    char *bytes = (char *)malloc(BIG);
    CHECK(aco_read_all((int)(intptr_t)arg, bytes, BIG) == (ssize_t)BIG);
    free(bytes);
    return NULL;
}

/* A socket takes the number of a pipe. A write to it waits until all is sent, as a thread's
 * does. */
static void *writes_to_a_reused_number(void *arg)
{
    int fds[2], pair[2];
    char *bytes = (char *)calloc(1, BIG);
    CHECK(pipe2(fds, O_CLOEXEC) == 0);
    CHECK(aco_write(fds[1], "x", 1) == 1); /* the runtime now knows that it is no socket */
    make_pair(pair);
    CHECK(dup2(pair[1], fds[1]) == fds[1]);
    aco_task_t *task = aco_spawn(reads_big, (void *)(intptr_t)pair[0]);
    CHECK(aco_write_all(fds[1], bytes, BIG) == (ssize_t)BIG);
    CHECK(aco_join(task, NULL) == 0);
    close_all(fds, 2);
    close_all(pair, 2);
    free(bytes);
    return arg;
}

/* A pipe takes the number of a TCP connection that the runtime knows to be read empty. */
static void *reads_from_a_reused_number(void *arg)
{
    int listener = aco_listen("tcp", "127.0.0.1:0"), fds[2], ends[2];
    char name[64], bytes[2];
    struct sockaddr_in in;
    socklen_t sz = sizeof(in);
    CHECK(listener >= 0 && getsockname(listener, (struct sockaddr *)&in, &sz) == 0);
    snprintf(name, sizeof(name), "127.0.0.1:%d", ntohs(in.sin_port));
    fds[0] = aco_dial("tcp", name);
    fds[1] = aco_accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(fds[0] >= 0 && fds[1] >= 0);
    for (int i = 0; i < 2; i++) {
        CHECK(aco_write(fds[!i], "x", 1) == 1);
        CHECK(aco_read(fds[i], bytes, 2) == 1);
    }
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    CHECK(dup2(ends[0], fds[0]) == fds[0] && dup2(ends[1], fds[1]) == fds[1]);
    CHECK(aco_write(fds[1], "y", 1) == 1);
    CHECK(aco_read(fds[0], bytes, 2) == 1 && bytes[0] == 'y');
    close_all(ends, 2);
    close_all(fds, 2);
    CHECK(aco_close(listener) == 0);
    return arg;
}

/* A task waits for a file that is closed unseen. A new connection gets its number. */
static void *accepts_a_reused_number(void *arg)
{
    int fds[2];
    int listener = aco_listen("unix", "@aco_test_numbers");
    int fd = aco_dial("unix", "@aco_test_numbers");
    CHECK(listener >= 0 && fd >= 0);
    make_pair(fds);
    aco_task_t *outdated = aco_spawn(fails_by_closing, (void *)(intptr_t)fds[0]);
    aco_yield();
    CHECK(close(fds[0]) == 0);
    CHECK(aco_accept4(listener, NULL, NULL, SOCK_CLOEXEC) == fds[0]);
    aco_within(1000 * MS)
    {
        CHECK(aco_join(outdated, NULL) == 0);
    }
    CHECK(aco_close(fd) == 0 && aco_close(listener) == 0);
    close_all(fds, 2);
    return arg;
}

static void a_reused_number_is_a_new_file(void **state)
{
    (void)state;
    run_tasks(waits_for_a_reused_number, NULL);
    run_tasks(accepts_a_reused_number, NULL);
    run_tasks(reads_from_a_reused_number, NULL);
    for (has_no_nowait = 0; has_no_nowait < 2; has_no_nowait++) {
        run_tasks(writes_to_a_reused_number, NULL);
    }
    has_no_nowait = 0;
}

/* ==== A file that comes back ================================================================= */

/* Gives the lowest free number to a file that aco_close() closes. */
static void pass_by(int fd)
{
    int other[2];
    CHECK(pipe(other) == 0 && other[0] == fd);
    CHECK(aco_close(other[0]) == 0 && close(other[1]) == 0);
}

/* Gives it to a file that is waited for, and that close() closes. */
static void wait_there(int fd)
{
    int other[2];
    make_pair(other);
    CHECK(other[0] == fd);
    wait_for_byte(other);
    CHECK(close(other[0]) == 0 && close(other[1]) == 0);
}

/* While a copy of its descriptor exists, epoll knows a file under a number that others have. */
static void *comes_back(void *arg)
{
    int fds[2];
    make_pair(fds);
    wait_for_byte(fds);
    int copy = dup(fds[0]);
    for (int round = 0; round < 8; round++) {
        CHECK(close(fds[0]) == 0);
        (round & 1 ? pass_by : wait_there)(fds[0]);
        if (round & 2) {
            pass_by(fds[0]);
        }
        if (round & 4) {
            wait_there(fds[0]);
        }
        CHECK(dup(copy) == fds[0]);
        aco_within(1000 * MS)
        {
            wait_for_byte(fds);
        }
    }
    CHECK(close(copy) == 0);
    close_all(fds, 2);
    return arg;
}

static void a_file_that_comes_back_is_seen(void **state)
{
    (void)state;
    run_tasks(comes_back, NULL);
}

/* ==== Signal handlers ======================================================================== */

/* At what the handler comes: after a close() of a descriptor, or while its entry is held. */
static int signal_at_close = -1, signal_at_epoll = -1;
static int in_handler; /* that it closes; 0: what it opens */

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    int result = __real_close(fd);
    if (fd == signal_at_close) {
        signal_at_close = -1;
        raise(SIGUSR1);
    }
    return result;
}

int __real_epoll_ctl(int epoll_fd, int op, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll_fd, int op, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll_fd, int op, int fd, struct epoll_event *event)
{
    int result = __real_epoll_ctl(epoll_fd, op, fd, event);
    if (fd == signal_at_epoll) {
        signal_at_epoll = -1;
        raise(SIGUSR1);
    }
    return result;
}

static void closes_in_handler(int number)
{
    int fd = in_handler > 0 ? in_handler : open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)number;
    CHECK(fd >= 0 && aco_close(fd) == 0);
}

/* The handler gets the number that is being closed. */
static void *closes_while_closing(void *arg)
{
    int fds[2];
    make_pair(fds);
    wait_for_byte(fds);
    signal_at_close = fds[0];
    CHECK(aco_close(fds[0]) == 0 && signal_at_close < 0);
    CHECK_FAILS(aco_close(fds[0]), EBADF);
    CHECK(aco_close(fds[1]) == 0);
    return arg;
}

/* It closes what another task waits for, the entry of which is held, or that of `other`. */
static void close_while_watching(int watched, int other)
{
    int fds[2], others[2];
    make_pair(fds);
    make_pair(others);
    aco_task_t *task = aco_spawn(fails_by_closing, (void *)(intptr_t)fds[0]);
    if (watched) {
        aco_yield();
    }
    signal_at_epoll = other ? others[0] : fds[0];
    in_handler = fds[0];
    aco_task_t *second = aco_spawn(other ? reads_byte : fails_by_closing,
                                   (void *)(intptr_t)signal_at_epoll);
    CHECK(aco_join(task, NULL) == 0 && signal_at_epoll < 0);
    CHECK(aco_write(others[1], "x", 1) == 1);
    CHECK(aco_join(second, NULL) == 0);
    in_handler = 0;
    CHECK_FAILS(fcntl(fds[0], F_GETFD), EBADF);
    CHECK(aco_close(fds[1]) == 0);
    close_all(others, 2);
}

static void *closes_while_others_watch(void *arg)
{
    close_while_watching(0, 0);
    close_while_watching(0, 1);
    close_while_watching(1, 0);
    close_while_watching(1, 1);
    return arg;
}

static void signal_handlers_close(void **state)
{
    struct sigaction action = {.sa_handler = closes_in_handler}, former;
    (void)state;
    assert_int_equal(sigaction(SIGUSR1, &action, &former), 0);
    run_tasks(closes_while_closing, NULL);
    run_tasks(closes_while_others_watch, NULL);
    assert_int_equal(sigaction(SIGUSR1, &former, NULL), 0);
}

/* A close lingers on one thread, while another one has the number again. */
static void *closes_slowly(void *arg)
{
    CHECK(aco_close((int)(intptr_t)arg) == 0);
    return NULL;
}

static volatile int may_go_on;

static void waits_in_handler(int number)
{
    (void)number;
    __atomic_store_n(&may_go_on, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&may_go_on, __ATOMIC_SEQ_CST) == 1) {
        usleep(100);
    }
}

static void *uses_a_number_that_is_being_closed(void *arg)
{
    int fds[2], again[2];
    aco_task_t *task = NULL;
    aco_task_options_t options = {.thread = ACO_THREAD(1)};
    make_pair(fds);
    may_go_on = 0;
    signal_at_close = fds[0];
    CHECK(aco_go_with(&options, closes_slowly, (void *)(intptr_t)fds[0], &task) == 0);
    while (__atomic_load_n(&may_go_on, __ATOMIC_SEQ_CST) == 0) {
        usleep(100);
    }
    make_pair(again);
    CHECK(again[0] == fds[0]);
    wait_for_byte(again);
    __atomic_store_n(&may_go_on, 2, __ATOMIC_SEQ_CST);
    CHECK(aco_join(task, NULL) == 0);
    wait_for_byte(again);
    close_all(again, 2);
    CHECK(aco_close(fds[1]) == 0);
    return arg;
}

static void a_close_that_lingers_holds_up_no_other(void **state)
{
    struct sigaction action = {.sa_handler = waits_in_handler}, former;
    (void)state;
    assert_int_equal(sigaction(SIGUSR1, &action, &former), 0);
    run_tasks_on(2, uses_a_number_that_is_being_closed, NULL);
    assert_int_equal(sigaction(SIGUSR1, &former, NULL), 0);
}

/* ---- A wait that begins between the two halves of a close ---- */

static struct {
    int number, other;         /* the descriptor, and the one that gets its number */
    int has_begun, is_waiting; /* atomic */
} swap;

/* Waits, most likely, until the task of the other thread waits for the former file. */
static int swaps_files(void *arg)
{
    (void)arg;
    __atomic_store_n(&swap.has_begun, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&swap.is_waiting, __ATOMIC_SEQ_CST)) {
        usleep(100);
    }
    usleep(20000);
    return dup2(swap.other, swap.number);
}

static void *reads_meanwhile(void *arg)
{
    char byte = 0;
    while (!__atomic_load_n(&swap.has_begun, __ATOMIC_SEQ_CST)) {
        CHECK(aco_sleep(MS / 10) == 0);
    }
    __atomic_store_n(&swap.is_waiting, 1, __ATOMIC_SEQ_CST);
    CHECK(aco_read(swap.number, &byte, 1) == 1 && byte == 'n');
    return arg;
}

static void *changes_a_file(void *arg)
{
    aco_task_options_t options = {.thread = 2};
    aco_task_t *reader = NULL;
    int former[2], next[2];
    CHECK(pipe2(former, O_CLOEXEC) == 0 && pipe2(next, O_CLOEXEC) == 0);
    memset(&swap, 0, sizeof(swap));
    swap.number = former[0];
    swap.other = next[0];
    CHECK(aco_go_with(&options, reads_meanwhile, NULL, &reader) == 0);
    CHECK(aco_i_close_by(swap.number, swaps_files, NULL) == swap.number);
    CHECK(aco_sleep(2 * MS) == 0);
    CHECK(write(next[1], "n", 1) == 1 && aco_join(reader, NULL) == 0);
    CHECK(aco_close(former[0]) == 0 && aco_close(former[1]) == 0);
    CHECK(aco_close(next[0]) == 0 && aco_close(next[1]) == 0);
    return arg;
}

static void a_wait_amid_a_close_is_for_the_next_file(void **state)
{
    (void)state;
    run_tasks_on(2, changes_a_file, NULL);
}

/* ==== No memory ============================================================================== */

static void *lacks_memory(void *arg)
{
    struct rlimit limit;
    char byte = 'x';
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    struct pollfd polled = {.fd = -1, .events = POLLIN};
    static struct iovec many[1024];
    int fds[2], file = open("/tmp", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_cur < 4096 ? 4096 : limit.rlim_cur;
    if (limit.rlim_max < limit.rlim_cur || setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return arg;
    }
    make_pair(fds);
    int fd = polled.fd = dup2(fds[0], 3000);
    has_no_memory = 1;
    CHECK_FAILS(aco_read(fd, &byte, 1), ENOMEM);
    CHECK_FAILS(aco_readv(fd, &iov, 1), ENOMEM);
    CHECK_FAILS(aco_recv(fd, &byte, 1, 0), ENOMEM);
    CHECK_FAILS(aco_recvmsg(fd, &msg, 0), ENOMEM);
    CHECK_FAILS(aco_write(fd, &byte, 1), ENOMEM);
    CHECK_FAILS(aco_writev(fd, &iov, 1), ENOMEM);
    CHECK_FAILS(aco_send(fd, &byte, 1, 0), ENOMEM);
    CHECK_FAILS(aco_sendmsg(fd, &msg, 0), ENOMEM);
    CHECK_FAILS(aco_accept4(fd, NULL, NULL, 0), ENOMEM);
    CHECK_FAILS(aco_poll(&polled, 1, -1), ENOMEM);
    CHECK_FAILS(aco_wait_fd(fd, POLLIN), ENOMEM);
    CHECK_FAILS(aco_read(-1, &byte, 1), EBADF);
    has_no_nowait = 1;
    for (size_t i = 0; i < ARRAY_SZ(many); i++) {
        many[i] = iov;
    }
    CHECK_FAILS(aco_writev(file, many, ARRAY_SZ(many)), ENOMEM);
    has_no_memory = has_no_nowait = 0;
    CHECK(aco_writev(file, many, ARRAY_SZ(many)) == ARRAY_SZ(many) && aco_close(file) == 0);
    CHECK(aco_write(fds[1], &byte, 1) == 1 && aco_read(fd, &byte, 1) == 1);
    CHECK(aco_close(fd) == 0);
    close_all(fds, 2);
    return arg;
}

static void missing_memory_is_told(void **state)
{
    (void)state;
    run_tasks(lacks_memory, NULL);
}

/* ==== No number ============================================================================== */

static void *lacks_numbers(void *arg)
{
    struct rlimit limit, none;
    int free_number = dup(STDERR_FILENO);
    CHECK(free_number >= 0 && close(free_number) == 0);
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = limit;
    none.rlim_cur = (rlim_t)free_number;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK_FAILS(aco_dial("tcp", "localhost:9"), EMFILE);
    CHECK_FAILS(aco_dial("tcp", "127.0.0.1:9"), EMFILE);
    CHECK_FAILS(aco_dial("tcp", "127.0.0.1:discard"), EMFILE);
    CHECK_FAILS(aco_dial("unix", "/nonexistent"), EMFILE);
    CHECK_FAILS(aco_listen("tcp", "localhost:0"), EMFILE);
    CHECK_FAILS(aco_listen("tcp", "127.0.0.1:0"), EMFILE);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int fd = aco_listen("tcp", "localhost:0");
    CHECK(fd >= 0 && aco_close(fd) == 0);
    CHECK(aco_dial("tcp", BAD_ADDRESS) < 0);
    int lowest = dup(0);
    CHECK(close(lowest) == 0 && aco_dial("tcp", BAD_ADDRESS) < 0);
    CHECK(dup(0) == lowest && close(lowest) == 0); /* the look-up has kept none */
    return arg;
}

static void a_missing_number_is_told(void **state)
{
    (void)state;
    run_tasks(lacks_numbers, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_count_from_call_to_call),
        cmocka_unit_test(flags_of_others_are_left_alone),
        cmocka_unit_test(a_reused_number_is_a_new_file),
        cmocka_unit_test(a_file_that_comes_back_is_seen),
        cmocka_unit_test(signal_handlers_close),
        cmocka_unit_test(a_close_that_lingers_holds_up_no_other),
        cmocka_unit_test(a_wait_amid_a_close_is_for_the_next_file),
        cmocka_unit_test(missing_memory_is_told),
        cmocka_unit_test(a_missing_number_is_told),
    };
    alarm(GIVE_UP);
    return cmocka_run_group_tests_name("numbers", tests, NULL, NULL);
}
