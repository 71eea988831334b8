// SPDX-License-Identifier: Apache-2.0
/*
 * Descriptors that are opened, duplicated, closed and opened again at random, while tasks wait for
 * them in both directions, and files that come back under a number that others had meanwhile:
 *
 *     random_descriptors STEPS SEED [THREADS]
 *
 * Each stream carries only its own number, so a task notices if it reads from another stream. A
 * wait that ends because its descriptor was closed fails with EBADF, on one thread within a turn.
 */
#define _GNU_SOURCE
#include "aco_runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CT_STREAMS 24
#define CT_COPIES 16
#define CT_UNREAD 24         /* numbers at most; a reader takes them in one turn */
#define AT_ONCE 3            /* yields on one thread until a close has ended a wait */
#define AT_A_LOOK 300        /* until the loop has looked, and readers have had turns */
#define PATIENCE 20000000000 /* ns; other threads may have lost the processor */

#define CHECK(EX)                                                                                  \
    do {                                                                                           \
        if (!(EX)) {                                                                               \
            fprintf(stderr, "%s:%d: %s (errno %d, seed %lu)\n", __FILE__, __LINE__, #EX, errno,    \
                    seed);                                                                         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static unsigned long seed;
static int ct_threads;

/* Used by the task that drives the program, and on one thread by others. */
static uint64_t random_state;

static size_t random_below(size_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (size_t)(random_state % limit);
}

/* A pipe or a pair of sockets, with a task that reads, and at times one that fills it. */
typedef struct stream_s {
    int in, out;
    int home; /* the number of `in` until it left that, and its reader ended; or 0 */
    uint64_t number;
    int ct_sent;
    int ct_got;       /* atomic */
    int has_begun;    /* the reader */
    int may_leave;    /* the reader, with what it gets next; atomic */
    int has_ended[2]; /* reader and filler; atomic */
    int has_filler;
    struct stream_s *to_close; /* by the reader, on one thread; or NULL */
} stream_t;

static stream_t *streams[CT_STREAMS];
static int copies[CT_COPIES]; /* copies of descriptors that may be closed since; 0: none */
static uint64_t ct_made;

static void close_in(stream_t *stream);

static void *reads(void *arg)
{
    stream_t *stream = (stream_t *)arg;
    int fd = stream->in;
    uint64_t number;
    ssize_t sz;
    stream->has_begun = 1;
    while ((sz = aco_read(fd, &number, sizeof(number))) == sizeof(number)) {
        CHECK(number == stream->number);
        __atomic_add_fetch(&stream->ct_got, 1, __ATOMIC_SEQ_CST);
        if (stream->to_close != NULL) {
            close_in(stream->to_close);
            stream->to_close = NULL;
        }
        if (__atomic_load_n(&stream->may_leave, __ATOMIC_SEQ_CST)) {
            break;
        }
    }
    CHECK(sz >= 0 || errno == EBADF);
    __atomic_store_n(&stream->has_ended[0], 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* Writes until the descriptor is closed, or the other end. */
static void *fills(void *arg)
{
    stream_t *stream = (stream_t *)arg;
    int fd = stream->out;
    while (aco_write(fd, &stream->number, sizeof(stream->number)) == sizeof(stream->number)) {
        aco_yield();
    }
    CHECK(errno == EBADF || errno == EPIPE || errno == ECONNRESET);
    __atomic_store_n(&stream->has_ended[1], 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void send_number(stream_t *stream)
{
    CHECK(aco_write(stream->out, &stream->number, sizeof(stream->number)) ==
          sizeof(stream->number));
    stream->ct_sent++;
}

static int is_closed(int fd)
{
    return fcntl(fd, F_GETFD) < 0;
}

static void start(void *(*fn)(void *), stream_t *stream)
{
    aco_task_options_t options = {.thread = ACO_THREAD((int)random_below((size_t)ct_threads)),
                                  .shares_stack = random_below(4) == 0};
    CHECK(aco_go_with(&options, fn, stream, NULL) == 0);
}

static void open_stream(stream_t **place)
{
    stream_t *stream = (stream_t *)calloc(1, sizeof(*stream));
    int fds[2];
    if (random_below(2) == 0) {
        CHECK(pipe2(fds, O_CLOEXEC) == 0);
    } else {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    }
    *stream = (stream_t){.in = fds[0], .out = fds[1], .number = ++ct_made};
    stream->has_filler = random_below(8) == 0;
    *place = stream;
    start(reads, stream);
    if (stream->has_filler) {
        start(fills, stream);
    }
}

/* Lets others run until a task has noticed a change, but not for ever. */
static void let_run(int ct_left, int64_t since)
{
    CHECK(ct_threads == 1 ? ct_left > 0 : aco_now() - since < PATIENCE);
    if (ct_threads == 1) {
        aco_yield();
    } else {
        aco_sleep(20000);
    }
}

static void wait_for(const int *has_ended, int ct_yields)
{
    int64_t since = aco_now();
    while (!__atomic_load_n(has_ended, __ATOMIC_SEQ_CST)) {
        let_run(ct_yields--, since);
    }
}

static void wait_for_all(const stream_t *stream)
{
    int64_t since = aco_now();
    int ct_yields = AT_A_LOOK;
    while (__atomic_load_n(&stream->ct_got, __ATOMIC_SEQ_CST) < stream->ct_sent) {
        let_run(ct_yields--, since);
    }
}

/* The reader ends. A copy keeps the file, and its number is closed unseen: others get that. */
static void leave(stream_t *stream)
{
    __atomic_store_n(&stream->may_leave, 1, __ATOMIC_SEQ_CST);
    send_number(stream);
    wait_for(&stream->has_ended[0], AT_A_LOOK);
    stream->home = stream->in;
    stream->in = fcntl(stream->home, F_DUPFD_CLOEXEC, 3);
    CHECK(stream->in > 0 && close(stream->home) == 0);
}

/* Another reader waits for the file, under its former number if that is free. */
static void come_back(stream_t *stream)
{
    if (is_closed(stream->home)) {
        CHECK(fcntl(stream->in, F_DUPFD_CLOEXEC, stream->home) == stream->home);
        CHECK(close(stream->in) == 0);
        stream->in = stream->home;
    }
    stream->home = stream->may_leave = stream->has_begun = stream->has_ended[0] = 0;
    start(reads, stream);
}

/* Gives the number of a descriptor that was just closed to a new stream. */
static void reuse_at_once(void)
{
    for (size_t i = 0; i < CT_STREAMS; i++) {
        if (streams[i] == NULL) {
            open_stream(&streams[i]);
            return;
        }
    }
}

/* Closes the end of a reader that waits. On several threads, or if it has much to read, it may as
 * well be about to read: then the number is not used again. */
static void close_in(stream_t *stream)
{
    CHECK(aco_close(stream->in) == 0);
    if (ct_threads == 1 && stream->has_begun && !stream->has_filler && random_below(2) == 0) {
        reuse_at_once();
    }
}

/* The same in the turn of the reader of another stream, which one look of the loop wakes with it:
 * its wait has ended by an event, but it has not tried again. */
static void close_in_by(stream_t *by, stream_t *stream)
{
    by->to_close = stream;
    send_number(by);
    send_number(stream);
    while (by->to_close != NULL) {
        aco_yield();
    }
}

static void close_stream(stream_t **place)
{
    stream_t *stream = *place;
    int is_reader_first = random_below(2) == 0;
    if (stream->home != 0) {
        come_back(stream);
    }
    if (!stream->has_filler && random_below(2) == 0) {
        wait_for_all(stream);
    }
    if (is_reader_first) {
        stream_t *by = streams[random_below(CT_STREAMS)];
        if (ct_threads == 1 && by != NULL && by != stream && !by->has_filler && by->home == 0) {
            close_in_by(by, stream);
        } else {
            close_in(stream);
        }
        wait_for(&stream->has_ended[0], AT_ONCE);
    } else {
        CHECK(aco_close(stream->out) == 0);
        if (stream->has_filler) {
            wait_for(&stream->has_ended[1], AT_ONCE);
        }
    }
    if (random_below(2) == 0) { /* another file gets the number */
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0 && close(fd) == 0);
    }
    CHECK(aco_close(is_reader_first ? stream->out : stream->in) == 0);
    wait_for(&stream->has_ended[0], AT_ONCE);
    if (stream->has_filler) {
        wait_for(&stream->has_ended[1], AT_ONCE);
    }
    free(stream);
    *place = NULL;
}

/* A copy keeps a file and its state in epoll alive after the descriptor was closed. */
static void change_copy(const stream_t *stream)
{
    int *copy = &copies[random_below(CT_COPIES)];
    if (*copy != 0) {
        CHECK(close(*copy) == 0);
        *copy = 0;
    } else if (random_below(2) == 0) { /* of the sending end: an end of file stays one */
        *copy = fcntl(stream->in, F_DUPFD_CLOEXEC, 3);
        CHECK(*copy > 0);
    }
}

static void step(void)
{
    stream_t **place = &streams[random_below(CT_STREAMS)];
    stream_t *stream = *place;
    if (stream == NULL) {
        open_stream(place);
        return;
    }
    switch (random_below(7)) {
    case 0:
        close_stream(place);
        break;
    case 1:
        change_copy(stream);
        break;
    case 2:
        aco_yield();
        break;
    case 3:
        if (!stream->has_filler) {
            (stream->home == 0 ? leave : come_back)(stream);
        }
        break;
    default:
        if (!stream->has_filler &&
            stream->ct_sent - __atomic_load_n(&stream->ct_got, __ATOMIC_SEQ_CST) < CT_UNREAD) {
            CHECK(!is_closed(stream->out));
            send_number(stream);
        }
    }
}

static void *runs(void *arg)
{
    for (long i = 0; i < (long)(intptr_t)arg; i++) {
        step();
    }
    for (size_t i = 0; i < CT_STREAMS;) {
        if (streams[i] != NULL) {
            close_stream(&streams[i]);
            i = 0; /* it may have opened another one */
        } else {
            i++;
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    long ct_steps = argc > 1 ? atol(argv[1]) : 10000;
    seed = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    ct_threads = argc > 3 ? atoi(argv[3]) : 1;
    random_state = seed * 2654435761u + 88172645463325252u;
    signal(SIGPIPE, SIG_IGN);
    aco_run_options_t options = {.ct_threads = ct_threads};
    if (aco_run(&options, runs, (void *)(intptr_t)ct_steps, NULL) != 0) {
        perror("aco_run");
        return 1;
    }
    for (size_t i = 0; i < CT_COPIES; i++) {
        if (copies[i] != 0) {
            close(copies[i]);
        }
    }
    printf("%ld steps, %llu streams\n", ct_steps, (unsigned long long)ct_made);
    return 0;
}
