// SPDX-License-Identifier: Apache-2.0
/* Input and output of every kind of descriptor, waiting for them, and closing. */
// build: -Wl,--wrap=getsockopt
#define _GNU_SOURCE
#include "tasks.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

#define CT_TASKS 50
#define BIG (1 << 20) /* bytes, more than a socket or pipe holds */

typedef struct {
    int in, out;
} ends_t;

static void make_pipe(ends_t *ends)
{
    int fds[2];
    CHECK(pipe2(fds, O_CLOEXEC) == 0);
    *ends = (ends_t){fds[0], fds[1]};
}

static void make_sockets(ends_t *ends)
{
    int fds[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    *ends = (ends_t){fds[0], fds[1]};
}

static void close_both(ends_t ends)
{
    CHECK(aco_close(ends.in) == 0);
    CHECK(aco_close(ends.out) == 0);
}

static char *big_data(void)
{
    char *data = (char *)malloc(BIG);
    for (int i = 0; i < BIG; i++) {
        data[i] = (char)((unsigned)i * 2654435761u >> 24);
    }
    return data;
}

/* ==== Streams ================================================================================ */

static void *writes_big(void *arg)
{
    char *data = big_data();
    CHECK(aco_write(((ends_t *)arg)->out, data, BIG) == BIG);
    free(data);
    return NULL;
}

static void *writes_big_in_parts(void *arg)
{
    char *data = big_data();
    struct iovec parts[] = {{data, 1},
                            {data + 1, 0},
                            {data + 1, BIG / 2},
                            {NULL, 0},
                            {data + 1 + BIG / 2, BIG / 2 - 1}};
    CHECK(aco_writev(((ends_t *)arg)->out, parts, ARRAY_SZ(parts)) == BIG);
    free(data);
    return NULL;
}

static void *moves_big(ends_t *ends, void *(*writes)(void *))
{
    char *data = big_data(), *got = (char *)calloc(1, BIG);
    aco_task_t *writer = aco_spawn(writes, ends);
    CHECK(aco_read_all(ends->in, got, BIG) == BIG);
    CHECK(memcmp(got, data, BIG) == 0);
    CHECK(aco_join(writer, NULL) == 0);
    free(data);
    free(got);
    close_both(*ends);
    return NULL;
}

static void *moves_through_pipe(void *arg)
{
    static ends_t ends; /* other tasks see them: not on a stack */
    make_pipe(&ends);
    moves_big(&ends, writes_big);
    make_pipe(&ends);
    return moves_big(&ends, arg == NULL ? writes_big_in_parts : writes_big);
}

static void *moves_through_sockets(void *arg)
{
    static ends_t ends;
    make_sockets(&ends);
    moves_big(&ends, writes_big);
    make_sockets(&ends);
    return moves_big(&ends, arg == NULL ? writes_big_in_parts : writes_big);
}

static void test_streams(void **state)
{
    (void)state;
    run_tasks(moves_through_pipe, NULL);
    run_tasks(moves_through_sockets, NULL);
}

static void *reads_in_parts(void *arg)
{
    ends_t *ends = (ends_t *)arg;
    char a[3], b[5];
    struct iovec parts[] = {{a, sizeof(a)}, {b, sizeof(b)}};
    CHECK(aco_readv(ends->in, parts, 2) == 6);
    CHECK(memcmp(a, "abc", 3) == 0 && memcmp(b, "def", 3) == 0);
    CHECK(aco_readv(ends->in, parts, 2) == 0); /* the end */
    return NULL;
}

static void *writes_parts(void *arg)
{
    static ends_t ends;
    (arg == NULL ? make_pipe : make_sockets)(&ends);
    aco_task_t *reader = aco_spawn(reads_in_parts, &ends);
    aco_sleep(MS);
    CHECK(aco_write(ends.out, "abcdef", 6) == 6);
    aco_sleep(MS);
    CHECK(aco_close(ends.out) == 0);
    CHECK(aco_join(reader, NULL) == 0);
    CHECK(aco_close(ends.in) == 0);
    return NULL;
}

static void test_parts(void **state)
{
    (void)state;
    run_tasks(writes_parts, NULL);
    run_tasks(writes_parts, "sockets");
}

static void *writes_rest(void *arg)
{
    CHECK(aco_write(((ends_t *)arg)->out, "defgh", 5) == 5);
    return NULL;
}

/* More has come than the buffer holds when the second read goes on after the first one's bytes. */
static void *reads_all_and_no_more(void *arg)
{
    static ends_t ends;
    char got[] = "________";
    (arg == NULL ? make_pipe : make_sockets)(&ends);
    CHECK(aco_write(ends.out, "abc", 3) == 3);
    CHECK(aco_go(writes_rest, &ends) == 0); /* it runs when the first read has taken these */
    CHECK(aco_read_all(ends.in, got, 5) == 5);
    CHECK(strcmp(got, "abcde___") == 0);
    CHECK(aco_read(ends.in, got, sizeof(got)) == 3 && memcmp(got, "fgh", 3) == 0);
    close_both(ends);
    return NULL;
}

static void test_read_all(void **state)
{
    (void)state;
    run_tasks(reads_all_and_no_more, NULL);
    run_tasks(reads_all_and_no_more, "sockets");
}

/* ==== Descriptors of other kinds ============================================================= */

static void *writes_later(void *arg)
{
    uint64_t one = 1;
    aco_sleep(2 * MS);
    CHECK(aco_write(*(int *)arg, &one, sizeof(one)) == sizeof(one));
    return NULL;
}

static void *reads_counters(void *arg)
{
    uint64_t ct = 0;
    static int event_fd;
    event_fd = eventfd(0, EFD_CLOEXEC);
    aco_go(writes_later, &event_fd);
    CHECK(aco_read(event_fd, &ct, sizeof(ct)) == sizeof(ct) && ct == 1);
    CHECK(aco_close(event_fd) == 0);
    int timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    struct itimerspec time = {.it_value = {0, 2 * MS}};
    CHECK(timerfd_settime(timer_fd, 0, &time, NULL) == 0);
    CHECK(aco_read(timer_fd, &ct, sizeof(ct)) == sizeof(ct) && ct == 1);
    CHECK(aco_close(timer_fd) == 0);
    return arg;
}

static void *creates_later(void *arg)
{
    aco_sleep(2 * MS);
    int fd = open((char *)arg, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && aco_close(fd) == 0);
    return NULL;
}

static void *watches_folder(void *arg)
{
    char folder[] = "/tmp/aco_io_XXXXXX";
    static char path[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/x", folder);
    int fd = inotify_init1(IN_CLOEXEC);
    CHECK(inotify_add_watch(fd, folder, IN_CREATE) >= 0);
    aco_go(creates_later, path);
    union {
        struct inotify_event event;
        char bytes[512];
    } got;
    CHECK(aco_read(fd, &got, sizeof(got)) > 0 && strcmp(got.event.name, "x") == 0);
    CHECK(aco_close(fd) == 0);
    unlink(path);
    rmdir(folder);
    return arg;
}

static void *types_later(void *arg)
{
    aco_sleep(2 * MS);
    CHECK(aco_write(*(int *)arg, "hello\n", 6) == 6);
    return NULL;
}

static void *reads_terminal(void *arg)
{
    static int master;
    master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    CHECK(slave >= 0);
    char line[16];
    aco_go(types_later, &master);
    CHECK(aco_read(slave, line, sizeof(line)) == 6 && memcmp(line, "hello\n", 6) == 0);
    CHECK((fcntl(slave, F_GETFL) & O_NONBLOCK) == 0);
    CHECK(aco_close(slave) == 0 && aco_close(master) == 0);
    return arg;
}

static void *reads_file(void *arg)
{
    char path[] = "/tmp/aco_io_XXXXXX", got[8];
    int fd = mkstemp(path);
    unlink(path);
    CHECK(aco_write(fd, "content", 7) == 7);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    CHECK(aco_read(fd, got, sizeof(got)) == 7 && memcmp(got, "content", 7) == 0);
    CHECK(aco_read(fd, got, sizeof(got)) == 0);
    CHECK(aco_wait_fd(fd, POLLIN) == POLLIN);
    static ends_t ends;
    make_sockets(&ends);
    int64_t offset = 3;
    CHECK(aco_sendfile(ends.out, fd, &offset, 100) == 4 && offset == 7);
    CHECK(aco_read(ends.in, got, sizeof(got)) == 4 && memcmp(got, "tent", 4) == 0);
    close_both(ends);
    CHECK(aco_close(fd) == 0);
    return arg;
}

static void test_kinds(void **state)
{
    (void)state;
    run_tasks(reads_counters, NULL);
    run_tasks(watches_folder, NULL);
    run_tasks(reads_terminal, NULL);
    run_tasks(reads_file, NULL);
}

/* ==== How waits end ========================================================================== */

static int ct_begun;

static void *reads_closed(void *arg)
{
    char byte;
    __atomic_add_fetch(&ct_begun, 1, __ATOMIC_RELAXED);
    CHECK_FAILS(aco_read(((ends_t *)arg)->in, &byte, 1), EBADF);
    return NULL;
}

static void *polls_closed(void *arg)
{
    struct pollfd fds[] = {{-1, POLLIN, 0}, {((ends_t *)arg)->in, POLLIN, 0}};
    __atomic_add_fetch(&ct_begun, 1, __ATOMIC_RELAXED);
    CHECK(aco_poll(fds, 2, -1) == 1 && fds[1].revents == POLLNVAL);
    CHECK(fds[0].revents == 0);
    return NULL;
}

static void *closes(void *arg)
{
    int ct = arg == NULL ? 1 : 2;
    for (int i = 0; i < 6; i++) {
        static ends_t ends;
        (i % 2 == 0 ? make_pipe : make_sockets)(&ends);
        aco_task_t *tasks[4];
        ct_begun = 0;
        for (int j = 0; j < 4; j++) {
            aco_task_options_t options = {.thread = ACO_THREAD(j % ct)};
            CHECK(aco_go_with(&options, j < 2 ? reads_closed : polls_closed, &ends, &tasks[j]) ==
                  0);
        }
        while (__atomic_load_n(&ct_begun, __ATOMIC_RELAXED) < 4) {
            aco_sleep(MS);
        }
        aco_sleep(ct == 1 ? 0 : 20 * MS); /* until the other thread waits */
        CHECK(aco_close(ends.in) == 0);
        int reused[2];
        CHECK(pipe2(reused, O_CLOEXEC) == 0 && (reused[0] == ends.in || ct > 1));
        CHECK(write(reused[1], "x", 1) == 1); /* not for the tasks that waited */
        for (int j = 0; j < 4; j++) {
            CHECK(aco_join(tasks[j], NULL) == 0);
        }
        CHECK(aco_close(ends.out) == 0);
        char byte;
        CHECK(aco_read(reused[0], &byte, 1) == 1 && byte == 'x');
        CHECK(aco_close(reused[0]) == 0 && aco_close(reused[1]) == 0);
    }
    return NULL;
}

static void test_close(void **state)
{
    (void)state;
    run_tasks(closes, NULL);
    run_tasks_on(2, closes, "");
}

static void *reads_cancelled(void *arg)
{
    int fd = ((ends_t *)arg)->out;
    char byte;
    CHECK_FAILS(aco_read(fd, &byte, 1), ECANCELED);
    CHECK_FAILS(aco_wait_fd(fd, POLLIN), ECANCELED);
    return NULL;
}

static void *times_out(void *arg)
{
    static ends_t ends;
    make_sockets(&ends);
    char byte, *data = big_data();
    aco_within(MS)
    {
        CHECK_FAILS(aco_read(ends.in, &byte, 1), ETIMEDOUT);
    }
    aco_within(MS)
    {
        CHECK_FAILS(aco_wait_fd(ends.in, POLLIN), ETIMEDOUT);
    }
    aco_within(MS)
    {
        ssize_t sz = aco_write(ends.out, data, BIG); /* a short count, not an error */
        CHECK(sz > 0 && sz < BIG);
        CHECK_FAILS(aco_write(ends.out, data, BIG), ETIMEDOUT);
    }
    struct pollfd polled = {ends.out, POLLOUT, 0};
    CHECK(aco_poll(&polled, 1, 2) == 0);
    aco_task_t *task = aco_spawn(reads_cancelled, &ends);
    aco_sleep(MS);
    aco_task_cancel(task);
    CHECK(aco_join(task, NULL) == 0);
    CHECK(aco_read(ends.in, &byte, 1) == 1); /* nothing was lost */
    close_both(ends);
    free(data);
    return arg;
}

static void *drains(void *arg)
{
    char bytes[4096];
    while (aco_recv(((ends_t *)arg)->in, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
    }
    return NULL;
}

/* POLLOUT and POLLIN have other names, which wait alike. */
static void *waits_by_other_names(void *arg)
{
    static const short outs[] = {POLLWRNORM, POLLWRBAND}, ins[] = {POLLRDNORM};
    static ends_t ends;
    char *data = big_data(), byte;
    make_sockets(&ends);
    for (size_t i = 0; i < ARRAY_SZ(outs); i++) {
        struct pollfd polled = {ends.out, outs[i], 0};
        while (aco_send(ends.out, data, BIG, MSG_DONTWAIT) > 0) {
        }
        CHECK(aco_go(drains, &ends) == 0);
        aco_within(20000 * MS)
        {
            CHECK(aco_poll(&polled, 1, -1) == 1 && polled.revents == outs[i]);
        }
    }
    for (size_t i = 0; i < ARRAY_SZ(ins); i++) {
        struct pollfd polled = {ends.in, ins[i], 0};
        CHECK(aco_go(writes_rest, &ends) == 0);
        aco_within(20000 * MS)
        {
            CHECK(aco_poll(&polled, 1, -1) == 1 && polled.revents == ins[i]);
        }
        CHECK(aco_read(ends.in, &byte, 1) == 1);
    }
    close_both(ends);
    free(data);
    return arg;
}

static void test_other_names(void **state)
{
    (void)state;
    run_tasks(waits_by_other_names, NULL);
}

static void test_deadlines(void **state)
{
    (void)state;
    run_tasks(times_out, NULL);
}

/* ==== Between the try and the wait =========================================================== */

/* Called once, when a call has got EAGAIN and has not begun to wait. */
static void (*in_between)(int fd);

int __real_getsockopt(int fd, int level, int option, void *value, socklen_t *sz);
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *sz);
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *sz)
{
    if ((option == SO_SNDTIMEO || option == SO_RCVTIMEO) && in_between != NULL) {
        void (*act)(int) = in_between;
        in_between = NULL;
        act(fd);
    }
    return __real_getsockopt(fd, level, option, value, sz);
}

static void *closes_and_reuses(void *arg)
{
    int fd = *(int *)arg, fds[2];
    CHECK(pipe2(fds, O_CLOEXEC) == 0);
    CHECK(aco_close(fd) == 0);
    CHECK(dup2(fds[0], fd) == fd); /* a read of this one would wait */
    CHECK(close(fds[0]) == 0);
    *(int *)arg = fds[1];
    return NULL;
}

static void close_by_another_thread(int fd)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, closes_and_reuses, &fd) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    close(fd); /* the other end of the new pipe */
}

static void *is_closed_in_between(void *arg)
{
    static ends_t ends;
    make_pipe(&ends);
    char byte;
    in_between = close_by_another_thread;
    aco_within(1000 * MS)
    {
        CHECK_FAILS(aco_read(ends.in, &byte, 1), EBADF);
    }
    CHECK(in_between == NULL);
    close_both(ends);
    return arg;
}

static uint64_t ct_polls(void)
{
    aco_stats_t stats;
    aco_stats(&stats);
    return stats.ct_polls;
}

/* The event of the former file has come, but the task has not had its turn. */
static void *is_closed_before_its_turn(void *arg)
{
    static ends_t ends, others;
    for (int is_poll = 0; is_poll <= 1; is_poll++) {
        make_pipe(&ends);
        aco_task_t *task = aco_spawn(is_poll ? polls_closed : reads_closed, &ends);
        aco_sleep(MS);
        CHECK(write(ends.out, "x", 1) == 1);
        for (uint64_t ct = ct_polls(); ct_polls() == ct;) {
            aco_yield();
        }
        CHECK(aco_close(ends.in) == 0);
        make_pipe(&others);
        CHECK(others.in == ends.in && write(others.out, "y", 1) == 1);
        CHECK(aco_join(task, NULL) == 0);
        char byte;
        CHECK(aco_read(others.in, &byte, 1) == 1 && byte == 'y');
        close_both(others);
        CHECK(aco_close(ends.out) == 0);
    }
    return arg;
}

static ends_t watched;
static int has_seen;

/* Runs on the thread whose loop watches the descriptor. */
static void *sees_input(void *arg)
{
    CHECK(aco_wait_fd(watched.in, POLLIN) == POLLIN);
    __atomic_store_n(&has_seen, 1, __ATOMIC_SEQ_CST);
    return arg;
}

/* Keeps the loop watching. */
static void *stays(void *arg)
{
    CHECK_FAILS(aco_wait_fd(watched.in, POLLPRI), EBADF);
    return arg;
}

static void write_and_let_it_be_seen(int fd)
{
    (void)fd;
    CHECK(write(watched.out, "z", 1) == 1);
    while (!__atomic_load_n(&has_seen, __ATOMIC_SEQ_CST)) {
        usleep(100);
    }
}

static void *misses_no_event(void *arg)
{
    aco_task_options_t options = {.thread = ACO_THREAD(1)};
    aco_task_t *task;
    char byte;
    make_pipe(&watched);
    has_seen = 0;
    CHECK(aco_go_with(&options, stays, NULL, NULL) == 0);
    CHECK(aco_go_with(&options, sees_input, NULL, &task) == 0);
    aco_sleep(50 * MS); /* until it waits */
    in_between = write_and_let_it_be_seen;
    aco_within(2000 * MS)
    {
        CHECK(aco_read(watched.in, &byte, 1) == 1 && byte == 'z');
    }
    CHECK(in_between == NULL);
    CHECK(aco_join(task, NULL) == 0);
    close_both(watched);
    return arg;
}

static void test_in_between(void **state)
{
    (void)state;
    run_tasks(is_closed_in_between, NULL);
    run_tasks(is_closed_before_its_turn, NULL);
    run_tasks_on(2, misses_no_event, NULL);
}

/* ==== Settings of the user =================================================================== */

static void *obeys_options(void *arg)
{
    static ends_t ends;
    make_sockets(&ends);
    char byte;
    struct timeval time = {0, 2000};
    CHECK_FAILS(aco_recv(ends.in, &byte, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(setsockopt(ends.in, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)) == 0);
    int64_t before = aco_now();
    CHECK_FAILS(aco_read(ends.in, &byte, 1), EAGAIN);
    CHECK(aco_now() - before >= 2 * MS);
    CHECK(fcntl(ends.in, F_SETFL, O_NONBLOCK) == 0);
    before = aco_now();
    CHECK_FAILS(aco_read(ends.in, &byte, 1), EAGAIN);
    CHECK_FAILS(aco_recv(ends.in, &byte, 1, 0), EAGAIN);
    close_both(ends);
    make_pipe(&ends);
    CHECK(fcntl(ends.in, F_SETFL, O_NONBLOCK) == 0);
    CHECK_FAILS(aco_read(ends.in, &byte, 1), EAGAIN);
    close_both(ends);
    CHECK_FAILS(aco_read(ends.in, &byte, 1), EBADF);
    CHECK_FAILS(aco_read(-1, &byte, 1), EBADF);
    CHECK_FAILS(aco_close(-1), EBADF);
    CHECK_FAILS(aco_wait_fd(-1, POLLIN), EBADF);
    return arg;
}

static void test_options(void **state)
{
    (void)state;
    run_tasks(obeys_options, NULL);
}

/* ==== Messages =============================================================================== */

static void *sends_messages(void *arg)
{
    ends_t *ends = (ends_t *)arg;
    struct iovec parts[] = {{"ab", 2}, {"cd", 2}};
    struct msghdr msg = {.msg_iov = parts, .msg_iovlen = 2};
    aco_sleep(MS);
    CHECK(aco_sendmsg(ends->out, &msg, 0) == 4);
    aco_sleep(MS);
    CHECK(aco_sendto(ends->out, "efgh", 4, 0, NULL, 0) == 4);
    return NULL;
}

static void *receives_messages(void *arg)
{
    static ends_t ends;
    make_sockets(&ends);
    char got[9] = "";
    aco_task_t *sender = aco_spawn(sends_messages, &ends);
    CHECK(aco_recv(ends.in, got, 8, MSG_WAITALL) == 8 && strcmp(got, "abcdefgh") == 0);
    CHECK(aco_join(sender, NULL) == 0);
    sender = aco_spawn(sends_messages, &ends);
    struct iovec part = {got, 8};
    struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1};
    CHECK(aco_recvmsg(ends.in, &msg, 0) == 4 && memcmp(got, "abcd", 4) == 0);
    struct sockaddr_storage from;
    socklen_t sz = sizeof(from);
    CHECK(aco_recvfrom(ends.in, got, 8, 0, (struct sockaddr *)&from, &sz) == 4);
    CHECK(memcmp(got, "efgh", 4) == 0);
    CHECK(aco_join(sender, NULL) == 0);
    close_both(ends);
    return arg;
}

static void test_messages(void **state)
{
    (void)state;
    run_tasks(receives_messages, NULL);
}

/* ==== A number that is reused behind our back ================================================ */

static void *writes_byte_later(void *arg)
{
    aco_sleep(2 * MS);
    CHECK(write(((ends_t *)arg)->out, "y", 1) == 1);
    return NULL;
}

static void *reuses_numbers(void *arg)
{
    for (int i = 0; i < 10; i++) {
        static ends_t ends;
        (i % 3 == 0 ? make_pipe : make_sockets)(&ends);
        char byte;
        int copy = i % 2 == 0 ? dup(ends.in) : -1; /* keeps the former one alive */
        aco_go(writes_byte_later, &ends);
        CHECK(aco_read(ends.in, &byte, 1) == 1 && byte == 'y');
        close(ends.in);
        close(ends.out);
        if (copy >= 0) {
            static ends_t again;
            make_pipe(&again);
            aco_go(writes_byte_later, &again);
            CHECK(aco_read(again.in, &byte, 1) == 1 && byte == 'y');
            close(again.in);
            close(again.out);
            close(copy);
        }
    }
    return arg;
}

static void test_reuse(void **state)
{
    (void)state;
    run_tasks(reuses_numbers, NULL);
}

/* ==== Connections ============================================================================ */

static char address[64];

static void *echoes(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char buf[256];
    ssize_t sz;
    while ((sz = aco_read(fd, buf, sizeof(buf))) > 0) {
        CHECK(aco_write(fd, buf, (size_t)sz) == sz);
    }
    CHECK(sz == 0);
    CHECK(aco_close(fd) == 0);
    return NULL;
}

static void *serves(void *arg)
{
    int listener = (int)(intptr_t)arg, fd;
    while ((fd = aco_accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        aco_task_options_t options = {.thread = ACO_ANY, .shares_stack = fd % 2};
        CHECK(aco_go_with(&options, echoes, (void *)(intptr_t)fd, NULL) == 0);
    }
    CHECK(errno == EBADF);
    return NULL;
}

static const char *network;

static void *calls(void *arg)
{
    char sent[64], got[64];
    int fd = aco_dial(network, address);
    CHECK(fd >= 0 && (fcntl(fd, F_GETFL) & O_NONBLOCK) == 0);
    CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    for (int i = 0; i < 20; i++) {
        memset(sent, (int)(intptr_t)arg + i, sizeof(sent));
        CHECK(aco_write_all(fd, sent, sizeof(sent)) == sizeof(sent));
        CHECK(aco_read_all(fd, got, sizeof(got)) == sizeof(got));
        CHECK(memcmp(sent, got, sizeof(got)) == 0);
    }
    CHECK(aco_shutdown(fd, SHUT_WR) == 0);
    CHECK(aco_read(fd, got, 1) == 0);
    CHECK(aco_close(fd) == 0);
    CHECK(aco_write_all(-1, sent, 1) == -1 && errno == EBADF);
    CHECK(aco_read_all(-1, got, 1) == -1 && errno == EBADF);
    return NULL;
}

/* Notes the address of a listener that chose its port. */
static void set_address(int listener)
{
    struct sockaddr_storage addr;
    socklen_t sz = sizeof(addr);
    CHECK(getsockname(listener, (struct sockaddr *)&addr, &sz) == 0);
    if (addr.ss_family != AF_UNIX) {
        unsigned port = ntohs(((struct sockaddr_in *)&addr)->sin_port);
        snprintf(address, sizeof(address), addr.ss_family == AF_INET6 ? "[::1]:%u" : "127.0.0.1:%u",
                 port);
    }
}

static void *connects(void *arg)
{
    snprintf(address, sizeof(address), "%s", (const char *)arg);
    int listener = aco_listen(network, address);
    CHECK(listener >= 0);
    set_address(listener);
    aco_task_t *servers[2];
    for (int i = 0; i < 2; i++) { /* on two threads if there are two */
        aco_task_options_t options = {.thread = ACO_THREAD(i)};
        if (aco_go_with(&options, serves, (void *)(intptr_t)listener, &servers[i]) != 0) {
            servers[i] = aco_spawn(serves, (void *)(intptr_t)listener);
        }
    }
    aco_group_t *group = aco_group_new();
    for (intptr_t i = 0; i < CT_TASKS; i++) {
        CHECK(aco_group_go(group, calls, (void *)i) == 0);
    }
    CHECK(aco_group_join(group) == 0);
    CHECK(aco_close(listener) == 0);
    CHECK(aco_join(servers[0], NULL) == 0 && aco_join(servers[1], NULL) == 0);
    return NULL;
}

/* After a short read the next try may be left out, but only before a wait. */
static void *reads_without_blocking(void *arg)
{
    char got[64];
    int listener = aco_listen("tcp4", "127.0.0.1:0");
    set_address(listener);
    int fd = aco_dial("tcp4", address);
    int accepted = aco_accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    aco_within(2000 * MS)
    {
        for (int i = 0; i < 3; i++) {
            CHECK(aco_write(fd, "abc", 3) == 3);
            ssize_t sz;
            while ((sz = aco_read(accepted, got, sizeof(got))) < 0 && errno == EAGAIN) {
                if (aco_wait_fd(accepted, POLLIN) < 0) {
                    break;
                }
            }
            CHECK(sz == 3);
        }
        CHECK_FAILS(aco_read(accepted, got, sizeof(got)), EAGAIN);
        CHECK(aco_write(fd, "d", 1) == 1);
        for (int i = 0; i < 1000 && aco_read(accepted, got, sizeof(got)) != 1; i++) {
            CHECK(i < 999 && aco_sleep(MS) == 0);
        }
    }
    CHECK_FAILS(aco_accept4(accepted, NULL, NULL, 0), EINVAL);
    CHECK_FAILS(aco_recv(fd, got, 1, MSG_ERRQUEUE), EAGAIN);
    CHECK(aco_close(fd) == 0 && aco_close(accepted) == 0 && aco_close(listener) == 0);
    return arg;
}

static void test_connections(void **state)
{
    (void)state;
    network = "tcp4";
    run_tasks(connects, "127.0.0.1:0");
    network = "tcp";
    run_tasks_on(2, connects, ":0");
    network = "tcp6+";
    run_tasks(connects, "[::1]:0");
    network = "unix";
    char name[32]; /* not the name of a test beside this one */
    snprintf(name, sizeof(name), "@aco io %d", (int)getpid());
    run_tasks_on(2, connects, name);
    run_tasks(reads_without_blocking, NULL);
}

/* Whether an address of this machine reaches the port that `address` names. */
static int is_reached(const char *host)
{
    char other[64];
    snprintf(other, sizeof(other), "%s%s", host, strrchr(address, ':'));
    int fd = aco_dial("tcp", other);
    CHECK(fd < 0 ? errno == ECONNREFUSED : aco_close(fd) == 0);
    return fd >= 0;
}

/* A listener has the families of its network; without a host, "tcp" has both. */
static void *listens_to_families(void *arg)
{
    static const struct {
        const char *network, *address;
        int is_v4, is_v6;
    } listeners[] = {
        {"tcp", ":0", 1, 1},  {"tcp+", ":0", 1, 1},         {"tcp4", ":0", 1, 0},
        {"tcp6", ":0", 0, 1}, {"tcp", "127.0.0.1:0", 1, 0}, {"tcp", "[::1]:0", 0, 1},
    };
    for (size_t i = 0; i < ARRAY_SZ(listeners); i++) {
        int listener = aco_listen(listeners[i].network, listeners[i].address);
        CHECK(listener >= 0);
        set_address(listener);
        CHECK(is_reached("127.0.0.1") == listeners[i].is_v4);
        CHECK(is_reached("[::1]") == listeners[i].is_v6);
        CHECK(aco_close(listener) == 0);
    }
    return arg;
}

static void test_families(void **state)
{
    (void)state;
    run_tasks(listens_to_families, NULL);
}

/* The number that the next file gets. */
static int next_number(void)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    CHECK(fd >= 0 && close(fd) == 0);
    return fd;
}

static void *leaves_no_descriptor(void *arg)
{
    char name[32];
    snprintf(name, sizeof(name), "@aco left %d", (int)getpid());
    int path = aco_listen("unix", name), listener = aco_listen("tcp4", "127.0.0.1:0");
    set_address(listener);
    CHECK_FAILS(aco_listen("tcp4", address), EADDRINUSE); /* opens what stays open */
    int next = next_number();
    CHECK_FAILS(aco_listen("tcp", address), EADDRINUSE);
    CHECK_FAILS(aco_listen("tcp", strrchr(address, ':')), EADDRINUSE);
    CHECK_FAILS(aco_listen("tcp", "192.0.2.1:0"), EADDRNOTAVAIL);
    CHECK_FAILS(aco_listen("udp", "192.0.2.1:0"), EADDRNOTAVAIL);
    CHECK_FAILS(aco_listen("unix", name), EADDRINUSE);
    CHECK(next_number() == next);
    CHECK(aco_close(path) == 0 && aco_close(listener) == 0);
    next = next_number();
    CHECK_FAILS(aco_dial("tcp", address), ECONNREFUSED);
    CHECK_FAILS(aco_dial("unix", name), ECONNREFUSED);
    CHECK(next_number() == next);
    return arg;
}

static void *fails_to_connect(void *arg)
{
    int listener = aco_listen("tcp4", "127.0.0.1:0");
    set_address(listener);
    CHECK(aco_close(listener) == 0);
    CHECK_FAILS(aco_dial("tcp", address), ECONNREFUSED);
    CHECK_FAILS(aco_dial("unix", "/nonexistent/socket"), ENOENT);
    CHECK_FAILS(aco_dial("unix", ""), EINVAL);
    CHECK_FAILS(aco_dial("carrier pigeon", "127.0.0.1:80"), EINVAL);
    CHECK_FAILS(aco_dial("tcp", "127.0.0.1"), EINVAL);
    CHECK_FAILS(aco_dial("tcp", "::1:80"), EINVAL);
    CHECK_FAILS(aco_dial("tcp", "127.0.0.1:65616"), EINVAL);
    CHECK_FAILS(aco_listen("tcp", ":4294967296"), EINVAL);
    CHECK_FAILS(aco_listen("tcp", "127.0.0.1:no such service"), EINVAL);
    return arg;
}

/* A server whose queue is full: the call waits, and its deadline ends it. */
static void *waits_for_server(void *arg)
{
    int full = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), fds[2];
    struct sockaddr_un addr = {AF_UNIX, ""};
    char name[32];
    socklen_t sz = (socklen_t)snprintf(name, sizeof(name), "@aco full %d", (int)getpid());
    memcpy(addr.sun_path + 1, name + 1, sz - 1);
    sz += offsetof(struct sockaddr_un, sun_path);
    CHECK(bind(full, (struct sockaddr *)&addr, sz) == 0 && listen(full, 0) == 0);
    fds[0] = aco_dial("unix", name);
    CHECK(fds[0] >= 0);
    aco_within(5 * MS)
    {
        CHECK_FAILS(aco_dial("unix", name), ETIMEDOUT);
    }
    CHECK(aco_close(fds[0]) == 0 && aco_close(full) == 0);
    return arg;
}

static void test_failures(void **state)
{
    (void)state;
    run_tasks(fails_to_connect, NULL);
    run_tasks(leaves_no_descriptor, NULL);
    run_tasks(waits_for_server, NULL);
}

/* ==== Outside of tasks ======================================================================= */

static void test_outside(void **state)
{
    (void)state;
    static ends_t ends;
    char got[4];
    ct_failed = 0;
    make_sockets(&ends);
    CHECK(aco_write(ends.out, "abc", 3) == 3);
    CHECK(aco_wait_fd(ends.in, POLLIN) == POLLIN);
    CHECK(aco_read(ends.in, got, 4) == 3);
    struct pollfd polled = {ends.in, POLLIN, 0};
    CHECK(aco_poll(&polled, 1, 1) == 0);
    close_both(ends);
    int listener = aco_listen("tcp4", "127.0.0.1:0");
    set_address(listener);
    int fd = aco_dial("tcp4", address), accepted = aco_accept4(listener, NULL, NULL, 0);
    CHECK(fd >= 0 && accepted >= 0);
    CHECK(aco_close(fd) == 0 && aco_close(accepted) == 0 && aco_close(listener) == 0);
    assert_int_equal(ct_failed, 0);
}

/* ==== Waits for nothing ====================================================================== */

static void *closes_number(void *arg)
{
    CHECK(aco_close((int)(intptr_t)arg) == 0);
    return arg;
}

/* TCP waits for data also where there is no room for it. The end of its time is no error then. */
static void *receives_nothing(void *arg)
{
    char c;
    struct timeval short_time = {0, 20000}, no_limit = {0, 0};
    int listener = aco_listen("tcp4", "127.0.0.1:0");
    set_address(listener);
    int fd = aco_dial("tcp4", address);
    int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK_FAILS(aco_recv(accepted, &c, 0, MSG_DONTWAIT), EAGAIN);
    CHECK(setsockopt(accepted, SOL_SOCKET, SO_RCVTIMEO, &short_time, sizeof(short_time)) == 0);
    int64_t before = aco_now();
    CHECK(aco_recv(accepted, &c, 0, 0) == 0 && aco_now() - before >= 15 * MS);
    CHECK(setsockopt(accepted, SOL_SOCKET, SO_RCVTIMEO, &no_limit, sizeof(no_limit)) == 0);
    aco_within(5 * MS)
    {
        CHECK_FAILS(aco_recv(accepted, &c, 0, 0), ETIMEDOUT);
    }
    aco_task_t *closer = aco_spawn(closes_number, (void *)(intptr_t)accepted);
    CHECK_FAILS(aco_recv(accepted, &c, 0, 0), EBADF);
    CHECK(aco_join(closer, NULL) == 0);
    CHECK(aco_close(fd) == 0 && aco_close(listener) == 0);
    return arg;
}

static void *reads_nothing(void *fd)
{
    char c;
    CHECK_FAILS(aco_read((int)(intptr_t)fd, &c, 0), EINVAL); /* there is an event, and no room */
    return NULL;
}

/* inotify waits for an event also where there is no room for it: as a task, here. */
static void *lets_an_event_come(void *arg)
{
    char path[32];
    FILE *file = tmpfile();
    int fd = inotify_init1(IN_CLOEXEC);
    CHECK(file != NULL && fd >= 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fileno(file));
    CHECK(inotify_add_watch(fd, path, IN_MODIFY) >= 0);
    aco_task_t *reader = aco_spawn(reads_nothing, (void *)(intptr_t)fd);
    CHECK(aco_sleep(2 * MS) == 0);
    CHECK(write(fileno(file), "x", 1) == 1);
    CHECK(aco_join(reader, NULL) == 0 && aco_close(fd) == 0 && fclose(file) == 0);
    return arg;
}

static void test_empty_receives(void **state)
{
    (void)state;
    run_tasks(lets_an_event_come, NULL);
    run_tasks(receives_nothing, NULL);
}

/* ==== Local datagrams ======================================================================== */

static void *goes_on_after_shutdown(void *arg)
{
    char message[1000] = "";
    int fds[2], more[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, fds) == 0);
    CHECK(shutdown(fds[0], SHUT_RD) == 0);
    CHECK(aco_recv(fds[0], message, 1, 0) == 0);
    while (aco_send(fds[0], message, sizeof(message), MSG_DONTWAIT) > 0) {
    }
    CHECK(errno == EAGAIN);
    aco_within(5 * MS)
    {
        CHECK_FAILS(aco_send(fds[0], message, sizeof(message), 0), ETIMEDOUT);
    }
    /* The runtime does not see that the number gets another file. */
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, more) == 0);
    CHECK(syscall(SYS_dup3, more[0], fds[0], O_CLOEXEC) == fds[0]);
    aco_within(5 * MS)
    {
        CHECK_FAILS(aco_recv(fds[0], message, 1, 0), ETIMEDOUT);
    }
    CHECK(aco_close(fds[0]) == 0 && aco_close(fds[1]) == 0);
    CHECK(aco_close(more[0]) == 0 && aco_close(more[1]) == 0);
    return arg;
}

/* No event reports room at a socket to which the sender is not connected. */
static void *sends_to_a_full_queue(void *arg)
{
    char message[1000] = "";
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    socklen_t sz = sizeof(to.sun_family); /* the kernel chooses a name */
    int receiver = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(bind(receiver, (struct sockaddr *)&to, sz) == 0);
    sz = sizeof(to);
    CHECK(getsockname(receiver, (struct sockaddr *)&to, &sz) == 0);
    while (sendto(sender, message, sizeof(message), MSG_DONTWAIT, (struct sockaddr *)&to, sz) > 0) {
    }
    aco_within(5 * MS)
    {
        CHECK(aco_sendto(sender, message, 1, 0, (struct sockaddr *)&to, sz) == -1);
        CHECK(errno == ETIMEDOUT);
    }
    CHECK(aco_close(sender) == 0 && aco_close(receiver) == 0);
    return arg;
}

static void test_local_datagrams(void **state)
{
    (void)state;
    run_tasks(goes_on_after_shutdown, NULL);
    run_tasks(sends_to_a_full_queue, NULL);
}

/* ==== Nested epolls ========================================================================== */

#define DEPTH 5 /* the most that the kernel allows: a loop can't watch the last one */

typedef struct {
    int fd, has_timed_out;
} deep_t;

static void *polls_deep(void *arg)
{
    deep_t *deep = (deep_t *)arg;
    struct pollfd polled = {deep->fd, POLLIN, 0};
    CHECK(aco_poll(&polled, 1, 1) == 0);
    aco_within(MS)
    {
        CHECK_FAILS(aco_poll(&polled, 1, -1), ETIMEDOUT);
    }
    deep->has_timed_out = 1;
    CHECK(aco_poll(&polled, 1, -1) == 1 && polled.revents == POLLIN);
    return arg;
}

static void *nests_epolls(void *arg)
{
    int ends[2], epolls[DEPTH];
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    for (int i = 0; i < DEPTH; i++) {
        epolls[i] = epoll_create1(EPOLL_CLOEXEC);
        int below = i == 0 ? ends[0] : epolls[i - 1];
        CHECK(epoll_ctl(epolls[i], EPOLL_CTL_ADD, below, &event) == 0);
    }
    static deep_t deep; /* another task uses it: not on the stack */
    deep = (deep_t){epolls[DEPTH - 1], 0};
    aco_task_t *task = aco_spawn(polls_deep, &deep);
    while (!deep.has_timed_out) {
        CHECK(aco_sleep(MS) == 0);
    }
    CHECK(aco_write(ends[1], "x", 1) == 1);
    CHECK(aco_join(task, NULL) == 0);
    for (int i = 0; i < DEPTH; i++) {
        CHECK(aco_close(epolls[i]) == 0);
    }
    CHECK(aco_close(ends[0]) == 0 && aco_close(ends[1]) == 0);
    return arg;
}

static void test_nested(void **state)
{
    (void)state;
    run_tasks(nests_epolls, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_kinds),          cmocka_unit_test(test_close),
        cmocka_unit_test(test_in_between),     cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_options),        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_reuse),          cmocka_unit_test(test_connections),
        cmocka_unit_test(test_failures),       cmocka_unit_test(test_outside),
        cmocka_unit_test(test_nested),         cmocka_unit_test(test_read_all),
        cmocka_unit_test(test_families),       cmocka_unit_test(test_other_names),
        cmocka_unit_test(test_empty_receives), cmocka_unit_test(test_local_datagrams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
