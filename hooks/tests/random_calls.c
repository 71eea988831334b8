// SPDX-License-Identifier: Apache-2.0
// not stress: tasks see what is on the stack of another one, which moves there
// build: -lutil
/*
 * Random calls on descriptors of all kinds, once in a plain thread, where they are libc's, and once
 * in a task, where they are hooked:
 *
 *     random_calls STEPS SEED
 *
 * Both must return the same, set errno to the same, move the same bytes and leave the descriptor in
 * the same state. Where a call blocks, a partner writes, reads or closes at the other end each time
 * the caller has begun to wait; its turns are compared, too. In the task, signals come all the
 * time, whose handler opens and closes descriptors.
 */
#include "random_opens.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/wait.h>
#include <unistd.h>

#define BUFFER_SZ 70000u

/* The outcome of a step, which is compared. */
typedef struct {
    int64_t result;
    int error, flags, ct_turns, more;
    uint32_t sum;
} outcome_of_step_t;

static outcome_of_step_t *expected;
static char buffer[BUFFER_SZ];

/* ==== Calls ================================================================================== */

typedef struct {
    int fd, flags, timeout;
    size_t sz;
    end_t *end;
    int more; /* `more` of the outcome */
} args_t;

/* Divides the buffer into three parts. */
static int part(struct iovec iov[3], size_t sz)
{
    size_t first = sz / 3, second = sz / 5;
    iov[0] = (struct iovec){buffer, first};
    iov[1] = (struct iovec){buffer + first, second};
    iov[2] = (struct iovec){buffer + first + second, sz - first - second};
    return 3;
}

static ssize_t does_read(args_t *a)
{
    return read(a->fd, buffer, a->sz);
}

static ssize_t does_readv(args_t *a)
{
    struct iovec iov[3];
    return readv(a->fd, iov, part(iov, a->sz));
}

static ssize_t does_preadv2(args_t *a)
{
    struct iovec iov[3];
    return preadv2(a->fd, iov, part(iov, a->sz), -1, 0);
}

static ssize_t does_direct_read(args_t *a)
{
    return syscall(SYS_read, a->fd, buffer, a->sz);
}

static ssize_t does_pread(args_t *a)
{
    return pread(a->fd, buffer, a->sz, 3);
}

static ssize_t does_recv(args_t *a)
{
    return recv(a->fd, buffer, a->sz, a->flags);
}

static ssize_t does_recvfrom(args_t *a)
{
    struct sockaddr_storage addr;
    socklen_t sz = sizeof(addr);
    ssize_t result = recvfrom(a->fd, buffer, a->sz, a->flags, (struct sockaddr *)&addr, &sz);
    a->more = result < 0 ? 0 : (int)sz;
    return result;
}

static ssize_t does_recvmsg(args_t *a)
{
    static const size_t rooms[] = {0, CMSG_LEN(sizeof(int)), sizeof(control_t)};
    struct iovec iov[3];
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = (size_t)part(iov, a->sz)};
    control_t control;
    msg.msg_control = &control;
    msg.msg_controllen = rooms[a->sz % ARRAY_SZ(rooms)];
    ssize_t result = recvmsg(a->fd, &msg, a->flags);
    int error = errno;
    msg.msg_flags &= ~(MSG_CMSG_CLOEXEC | (a->end->has_times ? MSG_CTRUNC : 0));
    a->more = result < 0 ? 0 : msg.msg_flags | take_control(&msg) << 20;
    errno = error;
    return result;
}

/* Whether a socket has a low water mark. The kernel's splice() keeps to it, or not, by its kind;
 * and a task's recvmmsg() loses an error that comes after the first message. */
static int has_mark(const end_t *end)
{
    int mark = 0;
    socklen_t sz = sizeof(mark);
    return is_socket(end) && getsockopt(end->fd, SOL_SOCKET, SO_RCVLOWAT, &mark, &sz) == 0 &&
           mark > 1;
}

static ssize_t does_recvmmsg(args_t *a)
{
    if (has_mark(a->end)) {
        return 0;
    }
    struct iovec iov[2] = {{buffer, a->sz / 2}, {buffer + a->sz / 2, a->sz - a->sz / 2}};
    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = &iov[0], .msg_iovlen = 1}},
                                  {.msg_hdr = {.msg_iov = &iov[1], .msg_iovlen = 1}}};
    int result = recvmmsg(a->fd, messages, 2, a->flags | MSG_WAITFORONE, NULL);
    a->more = result > 0 ? (int)(messages[0].msg_len * 1000 + messages[1].msg_len) : 0;
    return result;
}

static ssize_t does_write(args_t *a)
{
    return write(a->fd, buffer, a->sz);
}

static ssize_t does_writev(args_t *a)
{
    struct iovec iov[3];
    return writev(a->fd, iov, part(iov, a->sz));
}

static ssize_t does_pwritev2(args_t *a)
{
    struct iovec iov[3];
    return pwritev2(a->fd, iov, part(iov, a->sz), -1, 0);
}

static ssize_t does_direct_write(args_t *a)
{
    return syscall(SYS_write, a->fd, buffer, a->sz);
}

static ssize_t does_pwrite(args_t *a)
{
    return pwrite(a->fd, buffer, a->sz, 3);
}

static ssize_t does_send(args_t *a)
{
    return send(a->fd, buffer, a->sz, a->flags);
}

static ssize_t does_sendto(args_t *a)
{
    return sendto(a->fd, buffer, a->sz, a->flags, NULL, 0);
}

static ssize_t does_sendmsg(args_t *a)
{
    struct iovec iov[3];
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = (size_t)part(iov, a->sz)};
    control_t control;
    size_t ct = random_below(2 * MOST_SENT);
    if (is_local(a->end) && ct != 0 && ct <= MOST_SENT) {
        add_descriptors(&msg, &control, ct);
    }
    return sendmsg(a->fd, &msg, a->flags);
}

static ssize_t does_sendmmsg(args_t *a)
{
    struct iovec iov[3];
    struct mmsghdr message = {.msg_hdr = {.msg_iov = iov, .msg_iovlen = (size_t)part(iov, a->sz)}};
    int result = sendmmsg(a->fd, &message, 1, a->flags);
    return result == 1 ? (ssize_t)message.msg_len : result;
}

/* Whether an end makes packets. The kernel divides moved pages into packets by chance, and may lose
 * parts of them. */
static int makes_packets(const end_t *end)
{
    return is_socket(end) && !counts_bytes(end);
}

static ssize_t does_sendfile(args_t *a)
{
    off_t offset = 5;
    if (makes_packets(a->end)) {
        return 0;
    }
    ssize_t result = sendfile(a->fd, data_file, &offset, a->sz);
    a->more = result < 0 ? 0 : offset == 5 + result;
    return result;
}

/* The next two splice to and from a pipe of their own. */
static ssize_t does_splice_in(args_t *a)
{
    int fds[2];
    if (makes_packets(a->end) || has_mark(a->end)) {
        return 0;
    }
    CHECK(pipe2(fds, O_CLOEXEC) == 0);
    errno = 0;
    ssize_t result = splice(a->fd, NULL, fds[1], NULL, a->sz, a->sz % 2 ? SPLICE_F_NONBLOCK : 0);
    int error = errno;
    CHECK(result <= 0 || read(fds[0], buffer, (size_t)result) == result);
    CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
    errno = error;
    return result;
}

static ssize_t does_splice_out(args_t *a)
{
    int fds[2];
    size_t sz = a->sz < 5000 ? a->sz : 5000;
    struct pollfd polled = {a->fd, POLLOUT, 0};
    if (makes_packets(a->end) || (is_socket(a->end) && poll(&polled, 1, 0) == 0)) {
        return 0; /* a task waits for POLLOUT, a thread for less */
    }
    CHECK(pipe2(fds, O_CLOEXEC) == 0);
    CHECK(write(fds[1], buffer, sz) == (ssize_t)sz);
    errno = 0;
    ssize_t result = splice(fds[0], NULL, a->fd, NULL, sz, a->sz % 2 ? SPLICE_F_NONBLOCK : 0);
    int error = errno;
    CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
    errno = error;
    return result;
}

static ssize_t does_poll_in(args_t *a)
{
    struct pollfd fds[2] = {{a->fd, POLLIN, 0}, {-1, POLLIN, 0}};
    int result = poll(fds, 2, a->timeout);
    a->more = fds[0].revents;
    return result;
}

static ssize_t does_ppoll_out(args_t *a)
{
    struct pollfd polled = {a->fd, POLLOUT | POLLIN, 0};
    struct timespec t = {0, a->timeout * 1000000};
    sigset_t none;
    sigemptyset(&none);
    sigaddset(&none, SIGUSR1);
    sigaddset(&none, SIGALRM); /* which would end the call */
    int result = ppoll(&polled, 1, a->timeout < 0 ? NULL : &t, a->sz % 2 != 0 ? &none : NULL);
    a->more = polled.revents;
    return result;
}

/* The first argument may be larger than the sets: the kernel ends them with its table. */
static ssize_t does_select(args_t *a)
{
    const int numbers[] = {a->fd + 1, a->fd + 1, FD_SETSIZE, 1 << 20, INT_MAX};
    struct {
        fd_set set;
        char behind[64];
    } in, out;
    struct timeval t = {0, a->timeout * 1000};
    if (a->fd < 0 || a->fd >= FD_SETSIZE) {
        return 0;
    }
    memset(&in, 0, sizeof(in));
    memset(&out, 0, sizeof(out));
    memset(in.behind, 'b', sizeof(in.behind));
    FD_SET(a->fd, &in.set);
    if (a->sz % 2 != 0) {
        FD_SET(a->fd, &out.set);
    }
    int result = select(numbers[random_below(ARRAY_SZ(numbers))], &in.set, &out.set, NULL,
                        a->timeout < 0 ? NULL : &t);
    a->more = (FD_ISSET(a->fd, &in.set) != 0) + 2 * (FD_ISSET(a->fd, &out.set) != 0);
    for (size_t i = 0; i < sizeof(in.behind); i++) {
        a->more += in.behind[i] != 'b' || out.behind[i] != 0 ? 4 : 0;
    }
    return result;
}

static ssize_t does_epoll(args_t *a)
{
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    int result = epoll_ctl(epoll, EPOLL_CTL_ADD, a->fd, &event);
    event.events = 0;
    result = result != 0 ? -2 : epoll_wait(epoll, &event, 1, a->timeout);
    a->more = (int)event.events;
    int error = errno;
    CHECK(close(epoll) == 0);
    errno = error;
    return result;
}

static ssize_t does_fsync(args_t *a)
{
    return a->sz % 2 != 0 ? fsync(a->fd) : fdatasync(a->fd);
}

enum { INPUT = 1, OUTPUT = 2, FLAGS = 4, TIMEOUT = 8 };

static const struct {
    const char *name;
    ssize_t (*fn)(args_t *a);
    int kind;
} calls[] = {
    {"read", does_read, INPUT},
    {"readv", does_readv, INPUT},
    {"pread", does_pread, 0},
    {"preadv2", does_preadv2, INPUT},
    {"syscall(SYS_read)", does_direct_read, INPUT},
    {"syscall(SYS_write)", does_direct_write, OUTPUT},
    {"pwritev2", does_pwritev2, OUTPUT},
    {"recv", does_recv, INPUT | FLAGS},
    {"recvfrom", does_recvfrom, INPUT | FLAGS},
    {"recvmsg", does_recvmsg, INPUT | FLAGS},
    {"recvmmsg", does_recvmmsg, INPUT},
    {"write", does_write, OUTPUT},
    {"writev", does_writev, OUTPUT},
    {"pwrite", does_pwrite, 0},
    {"send", does_send, OUTPUT | FLAGS},
    {"sendto", does_sendto, OUTPUT | FLAGS},
    {"sendmsg", does_sendmsg, OUTPUT | FLAGS},
    {"sendmmsg", does_sendmmsg, OUTPUT | FLAGS},
    {"sendfile", does_sendfile, OUTPUT},
    {"splice from", does_splice_in, INPUT},
    {"splice to", does_splice_out, OUTPUT},
    {"poll", does_poll_in, INPUT | TIMEOUT},
    {"ppoll", does_ppoll_out, TIMEOUT},
    {"select", does_select, INPUT | TIMEOUT},
    {"epoll_wait", does_epoll, INPUT | TIMEOUT},
    {"fsync", does_fsync, 0},
};

/* ==== Steps ================================================================================== */

static int flags_for(int kind)
{
    static const int in[] = {0,
                             0,
                             0,
                             MSG_DONTWAIT,
                             MSG_PEEK,
                             MSG_WAITALL,
                             MSG_TRUNC,
                             MSG_PEEK | MSG_DONTWAIT,
                             MSG_WAITALL | MSG_DONTWAIT,
                             MSG_ERRQUEUE,
                             MSG_OOB};
    static const int out[] = {0, 0, MSG_DONTWAIT, MSG_NOSIGNAL};
    return (kind & FLAGS) == 0   ? 0
           : (kind & INPUT) != 0 ? in[random_below(ARRAY_SZ(in))]
                                 : out[random_below(ARRAY_SZ(out))];
}

static size_t random_sz(int kind)
{
    switch (random_below(8)) {
    case 0:
        return random_below(3);
    case 1:
        return (kind & OUTPUT) != 0 ? random_below(BUFFER_SZ) : random_below(5000);
    default:
        return 1 + random_below(40);
    }
}

static uint32_t sum_of(const char *bytes, size_t sz)
{
    uint32_t sum = 1;
    for (size_t i = 0; i < sz; i++) {
        sum = sum * 31 + (unsigned char)bytes[i];
    }
    return sum;
}

/* Makes a call on one end of a stream, and notes its outcome. */
static void call(end_t *end, size_t i, outcome_of_step_t *o)
{
    static const int timeouts[] = {0, 1, 3, -1};
    int kind = calls[i].kind;
    args_t a = {.fd = end->fd, .flags = flags_for(kind), .end = end};
    a.sz = random_sz(kind);
    a.timeout = timeouts[random_below(ARRAY_SZ(timeouts))];
    fill_buffer(buffer, BUFFER_SZ);
    if ((kind & OUTPUT) != 0 && end->stream->kind == KIND_EVENTFD && a.sz == 8) {
        uint64_t few = 1 + random_below(3), is_much = random_below(3) == 0;
        *(uint64_t *)(void *)buffer = is_much ? UINT64_MAX - few : few;
    }
    int is_patient = (kind & TIMEOUT) != 0 ? a.timeout < 0
                                           : may_block(end, a.flags, (kind & OUTPUT) != 0);
    partner_t partner = {.end = end, .is_output = (kind & OUTPUT) != 0};
    partner.is_needed = is_patient && kind != 0;
    int64_t before = queued_for(other_end(end));
    before_call(&partner);
    errno = 0;
    o->result = calls[i].fn(&a);
    o->error = errno; /* a call that succeeds does not touch it */
    after_call(&partner);
    o->flags = end->fd < 0 ? 0 : fcntl(end->fd, F_GETFL);
    o->ct_turns = partner.is_output ? 0 : partner.ct_turns != 0;
    o->more = a.more;
    o->sum = sum_of(buffer, (kind & (OUTPUT | TIMEOUT)) != 0 || o->result <= 0 ? 0
                            : (size_t)o->result < a.sz                         ? (size_t)o->result
                                                                               : a.sz);
    settle(end, before, (kind & OUTPUT) != 0 && partner.ct_turns == 0 ? o->result : 0, NULL);
    if (is_inexact(end, a.sz) && (kind & OUTPUT) != 0 && o->result > 0) {
        o->result = 1;
        drain(end);
    } else if (partner.is_output && partner.ct_turns != 0) {
        drain(end); /* the rest depends on how many turns the partner had */
    }
}

enum { ACCEPT, ACCEPT_BESIDE, CONNECT, OPEN, REPLACE, FORK, CT_OTHERS };

/* Makes a step with descriptors of its own, or with an end as a whole. */
static void other_call(end_t *end, size_t which, outcome_of_step_t *o)
{
    static const char *const names[] = {
        "accept", "accept beside another", "connect", "open", "dup2", "fork"};
    seen_t seen = {0, 0};
    what_happens = names[which];
    errno = 0;
    o->result = which == ACCEPT          ? accepts(&seen)
                : which == ACCEPT_BESIDE ? accepts_beside_another(&seen)
                : which == CONNECT       ? makes_connection(&seen)
                : which == OPEN          ? opens(&seen)
                : which == REPLACE       ? replaces(end, &seen)
                                         : forks(end, &seen);
    o->error = errno;
    o->more = seen.more;
    o->flags = seen.flags;
}

static void step(long number, outcome_of_step_t *o)
{
    stream_t *stream = &streams[random_below(CT_STREAMS)];
    end_t *end = &stream->ends[random_below(2)];
    if (!stream->is_open) {
        open_stream(stream);
        o->result = stream->kind;
        return;
    }
    end = end->fd < 0 ? other_end(end) : end;
    last_kind = stream->kind;
    if (end->fd < 0) {
        close_stream(stream);
        return;
    }
    size_t what = random_below(ARRAY_SZ(calls) + 4 + CT_OTHERS);
    what_happens = what < ARRAY_SZ(calls) ? calls[what].name : "change";
    if (what < ARRAY_SZ(calls)) {
        call(end, what, o);
    } else if (what >= ARRAY_SZ(calls) + 4) {
        other_call(end, what - ARRAY_SZ(calls) - 4, o);
    } else {
        o->result = change(stream, end, what - ARRAY_SZ(calls));
        o->flags = fcntl(end->fd, F_GETFL);
    }
    (void)number;
}

static void compare(long number, const outcome_of_step_t *e, const outcome_of_step_t *o,
                    const char *kind)
{
    if (memcmp(e, o, sizeof(*e)) == 0) {
        return;
    }
    fprintf(stderr,
            "seed %lu, step %ld, %s of %s:\n"
            "  thread %lld, %s, flags %x, more %x, %d turns, sum %x\n"
            "  task   %lld, %s, flags %x, more %x, %d turns, sum %x\n",
            seed, number, what_happens, kind, (long long)e->result, strerror(e->error), e->flags,
            e->more, e->ct_turns, e->sum, (long long)o->result, strerror(o->error), o->flags,
            o->more, o->ct_turns, o->sum);
    abort();
}

static void *runs(void *arg)
{
    long ct_steps = (long)(intptr_t)arg;
    begin_world();
    if (is_task) {
        let_signals_come(1);
    }
    for (long i = 0; i < ct_steps; i++) {
        outcome_of_step_t o;
        memset(&o, 0, sizeof(o));
        step_number = i;
        step(i, &o);
        if (is_task) {
            compare(i, &expected[i], &o, kind_names[last_kind]);
        } else {
            expected[i] = o;
        }
    }
    if (is_task) {
        let_signals_come(0);
    }
    end_world();
    return NULL;
}

static int compare_steps(long ct_steps)
{
    expected = (outcome_of_step_t *)calloc((size_t)ct_steps, sizeof(*expected));
    CHECK(expected != NULL);
    begin_process();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, runs, (void *)(intptr_t)ct_steps) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    is_task = 1;
    CHECK(aco_run(NULL, runs, (void *)(intptr_t)ct_steps, NULL) == 0);
    CHECK(aco_hooks_active());
    end_process();
    free(expected);
    printf("%ld steps\n", ct_steps);
    return 0;
}

/* A pty may show a difference once on a busy machine. A difference that comes again is a bug. */
int main(int argc, char **argv)
{
    long ct_steps = argc > 1 ? atol(argv[1]) : 3000;
    int status = 1;
    seed = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    for (int ct_tries = 0; ct_tries < 2 && status != 0; ct_tries++) {
        pid_t child = fork();
        if (child == 0) {
            return compare_steps(ct_steps);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
    }
    return status != 0;
}
