// SPDX-License-Identifier: Apache-2.0
/*
 * Descriptors of all kinds, in pairs of which one end gets what the other sends, and the partner of
 * a call that blocks. For random_calls.c, which makes the calls.
 */
#ifndef ACO_RANDOM_CALLS_H
#define ACO_RANDOM_CALLS_H

#define _GNU_SOURCE
#include "extension.h"

#include "aco_hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <termios.h>
#include <time.h>

#define CT_STREAMS 8
#define CLOSED 200 /* a descriptor that is below the size of the kernel's table, but not open */
#define ARRAY_SZ(array) (sizeof(array) / sizeof((array)[0]))

typedef enum {
    KIND_TCP,
    KIND_UDP,
    KIND_UNIX,
    KIND_UNIX_DATAGRAM,
    KIND_SEQPACKET,
    KIND_PIPE,
    KIND_FIFO,
    KIND_PTY,
    KIND_EVENTFD,
    KIND_TIMERFD,
    KIND_SIGNALFD,
    KIND_INOTIFY,
    KIND_FILE,
    KIND_ZERO,
    KIND_CLOSED,
    CT_KINDS
} kind_t;

static const char *const kind_names[] = {"a TCP socket",
                                         "a UDP socket",
                                         "a unix socket",
                                         "a unix datagram socket",
                                         "a seqpacket socket",
                                         "a pipe",
                                         "a FIFO",
                                         "a pty",
                                         "an eventfd",
                                         "a timerfd",
                                         "a signalfd",
                                         "an inotify",
                                         "a file",
                                         "/dev/zero",
                                         "a closed number"};

static kind_t last_kind;

#define CHECK(EX)                                                                                  \
    do {                                                                                           \
        if (!(EX)) {                                                                               \
            fprintf(stderr, "%s:%d: %s (errno %d, seed %lu, step %ld: %s, %s)\n", __FILE__,        \
                    __LINE__, #EX, errno, seed, step_number, what_happens, kind_names[last_kind]); \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static unsigned long seed;
static long step_number;
static int is_task;
static const char *what_happens = "open";

/* ==== Random numbers, the same in both worlds ================================================ */

static uint64_t random_state;

static size_t random_below(size_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (size_t)(random_state % limit);
}

static void fill_buffer(char *buffer, size_t sz)
{
    static unsigned ct;
    static unsigned char pattern[251];
    if (pattern[1] == 0) {
        for (size_t i = 0; i < sizeof(pattern); i++) {
            pattern[i] = (unsigned char)(i * 7 + 1);
        }
    }
    ct = step_number == 0 ? 0 : ct + 1;
    for (size_t i = 0; i < sz; i += sizeof(pattern)) {
        memcpy(buffer + i, pattern, sz - i < sizeof(pattern) ? sz - i : sizeof(pattern));
    }
    buffer[0] = (char)step_number;
}

/* ==== Streams ================================================================================ */

typedef struct {
    int fd;
    struct stream_s *stream;
    int64_t ct_unread; /* for streams: bytes that the other end sent */
    int timeout[2];    /* whether SO_RCVTIMEO, SO_SNDTIMEO are set */
    int has_times;     /* messages have the time when they came, if the kernel is ready */
} end_t;

typedef struct stream_s {
    kind_t kind;
    int is_open;
    end_t ends[2];
} stream_t;

static stream_t streams[CT_STREAMS];
static int data_file;
static char folder[] = "/tmp/random_calls.XXXXXX";
static char path[sizeof(folder) + 32];

static end_t *other_end(end_t *end)
{
    return &end->stream->ends[end == &end->stream->ends[0]];
}

static int is_socket(const end_t *end)
{
    return end->stream->kind <= KIND_SEQPACKET;
}

/* Whether descriptors can be sent on an end. */
static int is_local(const end_t *end)
{
    kind_t kind = end->stream->kind;
    return kind == KIND_UNIX || kind == KIND_UNIX_DATAGRAM || kind == KIND_SEQPACKET;
}

static int counts_bytes(const end_t *end)
{
    kind_t kind = end->stream->kind;
    return kind == KIND_TCP || kind == KIND_UNIX || kind == KIND_PIPE || kind == KIND_FIFO ||
           kind == KIND_PTY;
}

static const char *path_of(const char *name)
{
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void open_inet(int type, int fds[2])
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t sz = sizeof(addr);
    int first = socket(AF_INET, type, 0), one = 1, size = 20000;
    fds[0] = socket(AF_INET, type, 0);
    CHECK(first >= 0 && fds[0] >= 0);
    CHECK(bind(first, (struct sockaddr *)&addr, sz) == 0);
    CHECK(getsockname(first, (struct sockaddr *)&addr, &sz) == 0);
    if (type == SOCK_STREAM) {
        CHECK(listen(first, 1) == 0);
    }
    CHECK(connect(fds[0], (struct sockaddr *)&addr, sz) == 0);
    fds[1] = first;
    if (type == SOCK_STREAM) {
        fds[1] = accept(first, NULL, NULL);
        CHECK(fds[1] >= 0 && close(first) == 0);
        for (int i = 0; i < 2; i++) {
            struct linger abort_at_close = {1, 0};
            setsockopt(fds[i], IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof(one));
            setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &abort_at_close, sizeof(abort_at_close));
            setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
        }
        return;
    }
    CHECK(getsockname(fds[0], (struct sockaddr *)&addr, &sz) == 0);
    CHECK(connect(fds[1], (struct sockaddr *)&addr, sz) == 0);
}

static void open_pty(int fds[2])
{
    struct termios mode;
    CHECK(openpty(&fds[0], &fds[1], NULL, NULL, NULL) == 0);
    CHECK(tcgetattr(fds[1], &mode) == 0);
    cfmakeraw(&mode);
    CHECK(tcsetattr(fds[1], TCSANOW, &mode) == 0);
}

static void open_fifo(int fds[2])
{
    CHECK(mkfifo(path_of("fifo"), 0600) == 0);
    fds[0] = open(path, O_RDONLY | O_NONBLOCK);
    fds[1] = open(path, O_WRONLY);
    CHECK(fds[0] >= 0 && fds[1] >= 0 && fcntl(fds[0], F_SETFL, 0) == 0);
    CHECK(unlink(path) == 0);
}

static void open_of_kind(kind_t kind, int fds[2])
{
    sigset_t set;
    fds[1] = -1;
    switch (kind) {
    case KIND_TCP:
    case KIND_UDP:
        open_inet(kind == KIND_TCP ? SOCK_STREAM : SOCK_DGRAM, fds);
        break;
    case KIND_UNIX:
    case KIND_UNIX_DATAGRAM:
    case KIND_SEQPACKET:
        CHECK(socketpair(AF_UNIX,
                         kind == KIND_UNIX        ? SOCK_STREAM
                         : kind == KIND_SEQPACKET ? SOCK_SEQPACKET
                                                  : SOCK_DGRAM,
                         0, fds) == 0);
        break;
    case KIND_PIPE:
        CHECK(pipe(fds) == 0);
        break;
    case KIND_FIFO:
        open_fifo(fds);
        break;
    case KIND_PTY:
        open_pty(fds);
        break;
    case KIND_EVENTFD:
        fds[0] = eventfd(0, 0);
        break;
    case KIND_TIMERFD:
        fds[0] = timerfd_create(CLOCK_MONOTONIC, 0);
        break;
    case KIND_SIGNALFD:
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        fds[0] = signalfd(-1, &set, 0);
        break;
    case KIND_INOTIFY:
        fds[0] = inotify_init();
        CHECK(inotify_add_watch(fds[0], folder, IN_ATTRIB) > 0);
        break;
    case KIND_FILE:
        fds[0] = open(path_of("file"), O_RDWR | O_CREAT | O_TRUNC, 0600);
        fds[1] = open(path, O_RDONLY);
        break;
    case KIND_ZERO:
        fds[0] = open("/dev/zero", O_RDWR);
        break;
    default:
        fds[0] = CLOSED;
    }
    CHECK(fds[0] >= 0);
}

static void open_stream(stream_t *stream)
{
    int fds[2];
    stream->kind = last_kind = (kind_t)random_below(CT_KINDS);
    open_of_kind(stream->kind, fds);
    stream->is_open = 1;
    for (int i = 0; i < 2; i++) {
        end_t *end = &stream->ends[i];
        *end = (end_t){.fd = fds[i], .stream = stream};
        if (end->fd >= 0 && random_below(4) == 0) {
            fcntl(end->fd, F_SETFL, fcntl(end->fd, F_GETFL) | O_NONBLOCK);
        }
        if (is_socket(end) && random_below(4) == 0) {
            int option = (int)random_below(2);
            struct timeval t = {0, 2000};
            CHECK(setsockopt(end->fd, SOL_SOCKET, option ? SO_SNDTIMEO : SO_RCVTIMEO, &t,
                             sizeof(t)) == 0);
            end->timeout[option] = 1;
        }
        if (is_socket(end) && random_below(4) != 0) {
            static const int options[] = {SO_RCVLOWAT, SO_PASSCRED, SO_TIMESTAMP};
            int option = options[random_below(ARRAY_SZ(options))], value = 1;
            value = option == SO_RCVLOWAT ? (int)random_below(40) : value;
            int result = setsockopt(end->fd, SOL_SOCKET, option, &value, sizeof(value));
            CHECK(result == 0 || option == SO_PASSCRED); /* for local sockets alone */
            end->has_times = option == SO_TIMESTAMP;
        }
    }
}

static void close_end(end_t *end)
{
    if (end->fd >= 0 && end->stream->kind != KIND_CLOSED) {
        CHECK(close(end->fd) == 0);
    }
    end->fd = -1;
}

static void close_stream(stream_t *stream)
{
    for (int i = 0; i < 2; i++) {
        close_end(&stream->ends[i]);
    }
    stream->is_open = 0;
}

/* ==== Sent data ============================================================================== */

static int64_t unread_of(const end_t *end)
{
    int ct = 0;
    return end->fd >= 0 && ioctl(end->fd, FIONREAD, &ct) == 0 ? ct : 0;
}

/* The bytes in a socket's queue of received data. */
static unsigned memory_of(const end_t *end)
{
    unsigned memory[9] = {0};
    socklen_t sz = sizeof(memory);
    return end->fd >= 0 && getsockopt(end->fd, SOL_SOCKET, 55 /* SO_MEMINFO */, memory, &sz) == 0
               ? memory[0]
               : 0;
}

/* The amount that is queued for an end. */
static int64_t queued_for(const end_t *end)
{
    return counts_bytes(end) ? unread_of(end) : (int64_t)memory_of(end);
}

static int is_inexact(const end_t *end, size_t sz)
{
    kind_t kind = end->stream->kind;
    return sz > 1000 && (kind == KIND_TCP || kind == KIND_PTY || kind == KIND_UNIX);
}

/* Whether bytes that an end has sent are not yet in the other end's queue. Only TCP can have such
 * bytes. */
static int is_under_way(const end_t *end)
{
    int ct = 0;
    return end->stream->kind == KIND_TCP && ioctl(end->fd, SIOCOUTQ, &ct) == 0 && ct != 0;
}

/* Reads everything that the other end can get. */
static void drain(end_t *end)
{
    static char bytes[70000];
    end_t *to = other_end(end);
    int flags = fcntl(to->fd, F_GETFL);
    if (to->fd < 0 || flags < 0) {
        return;
    }
    fcntl(to->fd, F_SETFL, flags | O_NONBLOCK);
    int64_t since = aco_now();
    while (syscall(SYS_read, to->fd, bytes, sizeof(bytes)) > 0 ||
           (is_under_way(end) && aco_now() - since < 1000000000)) {
    }
    fcntl(to->fd, F_SETFL, flags);
}

/* ==== Control messages ======================================================================= */

#define MOST_SENT 2 /* descriptors in a message */

typedef union {
    struct cmsghdr first;
    char bytes[256];
} control_t;

/* Adds `ct` descriptors to a message. */
static void add_descriptors(struct msghdr *msg, control_t *control, size_t ct)
{
    int fds[MOST_SENT] = {data_file, data_file};
    msg->msg_control = control;
    msg->msg_controllen = CMSG_SPACE(ct * sizeof(int));
    control->first.cmsg_level = SOL_SOCKET;
    control->first.cmsg_type = SCM_RIGHTS;
    control->first.cmsg_len = CMSG_LEN(ct * sizeof(int));
    memcpy(CMSG_DATA(&control->first), fds, ct * sizeof(int));
}

/* Describes the control messages that have come, without times, and closes descriptors in them. */
static int take_control(struct msghdr *msg)
{
    int seen = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
        size_t sz = c->cmsg_len - CMSG_LEN(0);
        seen |= c->cmsg_type == SCM_CREDENTIALS ? 1 << 4 : 0;
        for (size_t i = 0; c->cmsg_type == SCM_RIGHTS && (i + 1) * sizeof(int) <= sz; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
            CHECK(close(fd) == 0);
            seen++;
        }
    }
    return seen;
}

/* ==== The partner ============================================================================ */

typedef struct {
    end_t *end; /* on which the call is made */
    int is_output;
    int is_needed;
    int ct_turns;
    int is_done; /* atomic */
    pid_t tid;
    aco_task_t *caller, *task;
    pthread_t thread;
} partner_t;

/* Whether a call may block for ever. One with a timeout ends by itself. */
static int may_block(const end_t *end, int flags, int is_output)
{
    int is_blocking = (fcntl(end->fd, F_GETFL) & O_NONBLOCK) == 0;
    return is_blocking && end->stream->kind != KIND_FILE && (flags & MSG_DONTWAIT) == 0 &&
           !end->timeout[is_output];
}

static void read_of_thread(pid_t tid, const char *what, char text[256])
{
    char name[64];
    snprintf(name, sizeof(name), "/proc/self/task/%d/%s", (int)tid, what);
    int fd = open(name, O_RDONLY);
    ssize_t sz = read(fd, text, 255);
    CHECK(sz > 0 && close(fd) == 0);
    text[sz] = '\0';
}

/* Whether a thread waits in a system call, other than for memory or a lock. */
static int is_asleep(pid_t tid)
{
    char text[256];
    read_of_thread(tid, "stat", text);
    if (strrchr(text, ')')[2] != 'S') {
        return 0;
    }
    read_of_thread(tid, "syscall", text);
    return text[0] >= '0' && text[0] <= '9' && atol(text) != SYS_futex;
}

/* Waits until the caller waits or has returned, and returns whether it waits. */
static int comes_to_wait(partner_t *p)
{
    for (;;) {
        for (int i = 0; p->caller != NULL && i < 200; i++) {
            aco_yield(); /* the loop looks at its descriptors meanwhile */
        }
        int waits = p->caller != NULL ? p->caller->state == TASK_WAITING : is_asleep(p->tid);
        if (__atomic_load_n(&p->is_done, __ATOMIC_SEQ_CST)) {
            return 0;
        }
        if (waits) {
            return 1;
        }
        sched_yield();
    }
}

/* Waits until the bytes sent have arrived, or the caller has got them. Ptys deliver them on a
 * thread of the kernel, and networks may. */
static void settle(end_t *from, int64_t before, int64_t sz, const partner_t *p)
{
    const end_t *to = other_end(from);
    int64_t since = aco_now();
    int is_slow = from->stream->kind == KIND_UDP || counts_bytes(from);
    while (is_slow && sz > 0 && to->fd >= 0 && aco_now() - since < 100000000 &&
           queued_for(to) < before + (counts_bytes(to) ? sz : 1)) {
        if (p != NULL && p->caller == NULL &&
            (__atomic_load_n(&p->is_done, __ATOMIC_SEQ_CST) ||
             (from->stream->kind != KIND_PTY && !is_asleep(p->tid)))) {
            break;
        }
        syscall(SYS_sched_yield);
    }
}

static void send_something(end_t *to, const partner_t *p)
{
    int turn = p->ct_turns;
    end_t *from = other_end(to);
    uint64_t one = 1;
    struct itimerspec soon = {{0, 0}, {0, 1}};
    char bytes[32];
    memset(bytes, 'a' + turn, sizeof(bytes));
    switch (to->stream->kind) {
    case KIND_EVENTFD:
        CHECK(write(to->fd, &one, sizeof(one)) == sizeof(one));
        break;
    case KIND_TIMERFD:
        CHECK(timerfd_settime(to->fd, 0, &soon, NULL) == 0);
        break;
    case KIND_SIGNALFD:
        CHECK(kill(getpid(), SIGUSR1) == 0);
        break;
    case KIND_INOTIFY:
        CHECK(chmod(path_of("watched"), 0600) == 0);
        break;
    default:
        if (from->fd >= 0) {
            int64_t before = queued_for(to);
            struct iovec iov = {bytes, 1 + (size_t)(step_number + turn) % 30};
            struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
            control_t control;
            if (is_local(from) && (step_number + turn) % 4 == 0) {
                add_descriptors(&msg, &control, 1);
            }
            ssize_t sz = is_socket(from) ? sendmsg(from->fd, &msg, 0)
                                         : write(from->fd, bytes, iov.iov_len);
            CHECK(sz > 0 || errno == EPIPE || errno == ECONNRESET || errno == EBADF ||
                  errno == ECONNREFUSED || errno == EAGAIN || errno == ENOTCONN);
            settle(from, before, sz, p);
        }
    }
}

static void *helps(void *arg)
{
    partner_t *p = (partner_t *)arg;
    int64_t since = aco_now();
    while (comes_to_wait(p)) {
        CHECK(aco_now() - since < 100000000000); /* the caller may get its turn late */
        if (p->is_output && p->end->stream->kind != KIND_EVENTFD) {
            drain(p->end);
        } else if (p->is_output) {
            uint64_t count;
            CHECK(read(p->end->fd, &count, sizeof(count)) == sizeof(count));
        } else if (p->ct_turns < 3 || p->end->stream->kind >= KIND_EVENTFD) {
            send_something(p->end, p);
        } else if (other_end(p->end)->fd >= 0) {
            close_end(other_end(p->end));
        } else { /* no end can send any more, and a datagram socket does not notice */
            CHECK(shutdown(p->end->fd, SHUT_RD) == 0);
        }
        p->ct_turns++;
    }
    return NULL;
}

/* Makes `fn(arg)` the partner. */
static void before_call_by(partner_t *p, void *(*fn)(void *), void *arg)
{
    if (!p->is_needed) {
        return;
    }
    if (is_task) {
        p->caller = aco_self();
        p->task = aco_spawn(fn, arg);
        CHECK(p->task != NULL);
    } else {
        p->tid = (pid_t)syscall(SYS_gettid);
        CHECK(pthread_create(&p->thread, NULL, fn, arg) == 0);
    }
}

static void before_call(partner_t *p)
{
    before_call_by(p, helps, p);
}

static void after_call(partner_t *p)
{
    int error = errno;
    __atomic_store_n(&p->is_done, 1, __ATOMIC_SEQ_CST);
    if (p->is_needed && is_task) {
        CHECK(aco_join(p->task, NULL) == 0);
    } else if (p->is_needed) {
        CHECK(pthread_join(p->thread, NULL) == 0);
    }
    errno = error;
}

/* ==== Changes ================================================================================ */

static int change(stream_t *stream, end_t *end, size_t what)
{
    int flags = fcntl(end->fd, F_GETFL), copy;
    switch (what) {
    case 0:
        close_stream(stream);
        return 0;
    case 1:
        return flags < 0 ? -1 : fcntl(end->fd, F_SETFL, flags ^ O_NONBLOCK);
    case 2:
        return shutdown(end->fd, (int)random_below(3));
    default: /* another descriptor for the same file */
        copy = fcntl(end->fd, F_DUPFD, 3);
        if (copy >= 0) {
            CHECK(close(end->fd) == 0);
            end->fd = copy;
        }
        return copy < 0;
    }
}

/* ==== Worlds ================================================================================= */

static void begin_process(void)
{
    sigset_t set;
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(mkdtemp(folder) != NULL);
    CHECK(close(open(path_of("watched"), O_WRONLY | O_CREAT, 0600)) == 0);
    data_file = open(path_of("data"), O_RDWR | O_CREAT, 0600);
    CHECK(dup2(data_file, CLOSED) == CLOSED && close(CLOSED) == 0);
    char bytes[1000];
    memset(bytes, 'd', sizeof(bytes));
    for (int i = 0; i < 80; i++) {
        CHECK(write(data_file, bytes, sizeof(bytes)) == sizeof(bytes));
    }
}

static void begin_world(void)
{
    random_state = seed * 2654435761u + 88172645463325252u;
    step_number = 0;
    memset(streams, 0, sizeof(streams));
}

/* ==== Signals ================================================================================ */

#define SIGNAL_INTERVAL 100 /* us */

/* POSIX lets a handler make these calls. Descriptors are closed beside those of the call that it
 * interrupts, and have numbers that this perhaps has closed just now. */
static void opens_and_closes(int number)
{
    int error = errno, fd = dup(data_file), other = dup(data_file);
    (void)number;
    CHECK(fd >= 0 && other >= 0);
    CHECK(dup2(fd, other) == other && close(fd) == 0 && close(other) == 0);
    errno = error;
}

/* Lets signals come all the time: a task is not to notice them. */
static void let_signals_come(int may_come)
{
    struct sigaction action = {.sa_handler = may_come ? opens_and_closes : SIG_DFL};
    struct itimerval never = {{0, 0}, {0, 0}}, often = never;
    often.it_interval.tv_usec = often.it_value.tv_usec = SIGNAL_INTERVAL;
    action.sa_flags = SA_RESTART;
    CHECK(may_come || setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(!may_come || setitimer(ITIMER_REAL, &often, NULL) == 0);
}

static void end_world(void)
{
    for (int i = 0; i < CT_STREAMS; i++) {
        if (streams[i].is_open) {
            close_stream(&streams[i]);
        }
    }
    sigset_t set;
    struct timespec at_once = {0, 0};
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    while (sigtimedwait(&set, NULL, &at_once) > 0) {
    }
}

static void end_process(void)
{
    CHECK(close(data_file) == 0);
    CHECK(unlink(path_of("data")) == 0 && unlink(path_of("watched")) == 0);
    unlink(path_of("file"));
    CHECK(rmdir(folder) == 0);
}

#endif
