// SPDX-License-Identifier: Apache-2.0
// not stress: tasks use what lies on the stack of another one, which moves there
// build: -lutil
/* Queues and semaphores that processes share, requests that libc's threads carry out, and further
 * calls on descriptors: the task waits, and the call answers as in a thread. */
#include "threads.h"

#include <aio.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netdb.h>
#include <pty.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* ==== Comparing ============================================================================== */

typedef struct {
    long result;
    int error;
} answer_t;

static answer_t answers[2][64], *answer;

#define ASK(call)                                                                                  \
    do {                                                                                           \
        errno = 0;                                                                                 \
        answer->result = (long)(call);                                                             \
        answer->error = errno;                                                                     \
        answer++;                                                                                  \
    } while (0)

static int is_task;

/* Runs `other` beside the caller: as a thread, or as a task. */
typedef struct {
    pthread_t thread;
    aco_task_t *task;
} beside_t;

static beside_t begin(void *(*fn)(void *))
{
    beside_t beside = {.task = NULL};
    if (is_task) {
        beside.task = aco_spawn(fn, NULL);
        CHECK(beside.task != NULL);
    } else {
        CHECK(pthread_create(&beside.thread, NULL, fn, NULL) == 0);
    }
    return beside;
}

static void end(beside_t *beside)
{
    CHECK(is_task ? aco_join(beside->task, NULL) == 0 : pthread_join(beside->thread, NULL) == 0);
}

/* Runs `fn`, which asks, in a thread and in a task. Returns the number of the first answer that
 * differs, or -1. */
static int ask_both(void *(*fn)(void *))
{
    pthread_t thread;
    memset(answers, 0, sizeof(answers));
    answer = answers[0];
    is_task = 0;
    ct_failed = 0;
    assert_int_equal(pthread_create(&thread, NULL, fn, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(ct_failed, 0);
    answer = answers[1];
    is_task = 1;
    run_tasks(fn, NULL);
    for (size_t i = 0; i < ARRAY_SZ(answers[0]); i++) {
        const answer_t *a = &answers[0][i], *b = &answers[1][i];
        if (a->result != b->result || a->error != b->error) {
            return (int)i;
        }
    }
    return -1;
}

/* On a busy machine, what is beside the caller may come first: then a difference does not
 * repeat. */
static void compare(void *(*fn)(void *))
{
    int i = 0;
    for (int ct = 0; ct < 3 && (i = ask_both(fn)) >= 0; ct++) {
    }
    if (i >= 0) {
        const answer_t *a = &answers[0][i], *b = &answers[1][i];
        fail_msg("call %d: thread %ld, errno %d; task %ld, errno %d", i, a->result, a->error,
                 b->result, b->error);
    }
}

/* ==== Message queues of POSIX ================================================================ */

static mqd_t queue;

static mqd_t open_queue(void)
{
    struct mq_attr attributes = {.mq_maxmsg = 2, .mq_msgsize = 8};
    char name[32];
    snprintf(name, sizeof(name), "/aco_test_%d", (int)getpid());
    mqd_t opened = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    mq_unlink(name);
    return opened;
}

static void *sends_late(void *arg)
{
    usleep(2000);
    CHECK(mq_send(queue, "late", 4, 3) == 0);
    return arg;
}

static void *receives_late(void *arg)
{
    char text[8];
    usleep(2000);
    CHECK(mq_receive(queue, text, sizeof(text), NULL) == 1);
    return arg;
}

static void *uses_mq(void *arg)
{
    struct timespec past = {1, 0}, wrong = {1, -1}, soon, later = in(CLOCK_REALTIME, 10000 * MS);
    unsigned priority = 0;
    char text[8];
    queue = open_queue();
    CHECK(queue >= 0);
    beside_t other = begin(sends_late);
    ASK(mq_receive(queue, text, sizeof(text), &priority));
    end(&other);
    CHECK(priority == 3 && memcmp(text, "late", 4) == 0);
    other = begin(sends_late);
    ASK(mq_timedreceive(queue, text, sizeof(text), NULL, &later));
    end(&other);
    ASK(mq_timedreceive(queue, text, sizeof(text), NULL, &past));
    ASK(mq_timedreceive(queue, text, sizeof(text), NULL, &wrong));
    soon = in(CLOCK_REALTIME, MS);
    ASK(mq_timedreceive(queue, text, sizeof(text), NULL, &soon));
    CHECK(has_come(CLOCK_REALTIME, &soon));
    ASK(mq_receive(queue, text, 7, NULL));
    ASK(mq_send(queue, "1", 1, 0));
    ASK(mq_timedsend(queue, "2", 1, 0, &past));
    ASK(mq_timedsend(queue, "3", 1, 0, &past));
    ASK(mq_send(queue, "too long.", 9, 0));
    other = begin(receives_late);
    ASK(mq_send(queue, "3", 1, 9));
    end(&other);
    ASK(mq_receive(queue, text, sizeof(text), &priority));
    CHECK(priority == 9);
    CHECK(fcntl(queue, F_SETFL, O_NONBLOCK) == 0);
    ASK(mq_receive(queue, text, sizeof(text), NULL));
    ASK(mq_receive(queue, text, sizeof(text), NULL));
    ASK(mq_close(queue));
    ASK(mq_receive(queue, text, sizeof(text), NULL));
    return arg;
}

static void *is_cancelled_in_mq(void *arg)
{
    char text[8];
    CHECK_FAILS(mq_receive(queue, text, sizeof(text), NULL), ECANCELED);
    return arg;
}

static void *cancels_in_mq(void *arg)
{
    queue = open_queue();
    CHECK(queue >= 0);
    aco_task_t *task = aco_spawn(is_cancelled_in_mq, NULL);
    let_run();
    aco_task_cancel(task);
    CHECK(aco_join(task, NULL) == 0 && mq_close(queue) == 0);
    return arg;
}

static void posix_queues_wait(void **state)
{
    (void)state;
    if ((queue = open_queue()) < 0) {
        skip(); /* a kernel without them */
    }
    mq_close(queue);
    compare(uses_mq);
    run_tasks(cancels_in_mq, NULL);
}

/* ==== System V =============================================================================== */

typedef struct {
    long type;
    char text[8];
} message_t;

static int id;

static void *sends_two_types(void *arg)
{
    message_t one = {1, "one"}, two = {2, "two"};
    usleep(2000);
    CHECK(msgsnd(id, &two, 3, 0) == 0);
    usleep(2000);
    CHECK(msgsnd(id, &one, 3, 0) == 0);
    return arg;
}

static void *takes_one(void *arg)
{
    message_t m;
    usleep(2000);
    CHECK(msgrcv(id, &m, sizeof(m.text), 0, 0) >= 0);
    return arg;
}

static void *removes_queue(void *arg)
{
    usleep(2000);
    CHECK(msgctl(id, IPC_RMID, NULL) == 0);
    return arg;
}

static void *uses_msg(void *arg)
{
    message_t m = {0};
    struct msqid_ds state;
    id = msgget(IPC_PRIVATE, 0600);
    CHECK(id >= 0);
    ASK(msgrcv(id, &m, sizeof(m.text), 0, IPC_NOWAIT));
    beside_t other = begin(sends_two_types);
    ASK(msgrcv(id, &m, sizeof(m.text), 1, 0));
    CHECK(memcmp(m.text, "one", 3) == 0);
    end(&other);
    ASK(msgrcv(id, &m, 1, 2, 0));
    ASK(msgrcv(id, &m, sizeof(m.text), -3, 0));
    CHECK(msgctl(id, IPC_STAT, &state) == 0);
    state.msg_qbytes = 8;
    CHECK(msgctl(id, IPC_SET, &state) == 0);
    ASK(msgsnd(id, &m, 8, 0));
    ASK(msgsnd(id, &m, 8, IPC_NOWAIT));
    other = begin(takes_one);
    ASK(msgsnd(id, &m, 8, 0));
    end(&other);
    ASK(msgrcv(id, &m, sizeof(m.text), 0, 0));
    other = begin(removes_queue);
    ASK(msgrcv(id, &m, sizeof(m.text), 0, 0));
    end(&other);
    ASK(msgsnd(id, &m, 8, 0));
    return arg;
}

static void *posts(void *arg)
{
    struct sembuf up = {0, 1, 0};
    usleep(2000);
    CHECK(semop(id, &up, 1) == 0);
    return arg;
}

static void *uses_sem(void *arg)
{
    struct sembuf down[2] = {{0, -1, 0}, {0, 0, 0}}, up = {0, 1, 0};
    struct sembuf many[501];
    struct timespec soon = {0, MS}, wrong = {0, -1};
    for (size_t i = 0; i < ARRAY_SZ(many); i++) {
        many[i] = down[0];
    }
    id = semget(IPC_PRIVATE, 1, 0600);
    CHECK(id >= 0);
    ASK(semtimedop(id, down, 1, &soon));
    ASK(semtimedop(id, down, 1, &wrong));
    beside_t other = begin(posts);
    ASK(semop(id, down, 2)); /* takes one, and waits for zero */
    end(&other);
    ASK(semop(id, &up, 1));
    ASK(semctl(id, 0, GETVAL));
    ASK(semtimedop(id, many, 501, NULL)); /* too many */
    CHECK(semctl(id, 0, SETVAL, 499) == 0);
    other = begin(posts);
    ASK(semop(id, many, 500));
    end(&other);
    CHECK(semctl(id, 0, SETVAL, 1) == 0);
    down[0].sem_flg = IPC_NOWAIT;
    ASK(semop(id, down, 1));
    ASK(semop(id, down, 1));
    ASK(semop(id, down, 0));
    ASK(semctl(id, 0, IPC_RMID));
    down[0].sem_flg = 0;
    ASK(semop(id, down, 1));
    return arg;
}

static void *posts_in_a_child(void *arg)
{
    struct sembuf down = {0, -1, 0};
    id = semget(IPC_PRIVATE, 1, 0600);
    pid_t pid = fork();
    if (pid == 0) {
        posts(NULL);
        _exit(0);
    }
    CHECK(semop(id, &down, 1) == 0);
    CHECK(waitpid(pid, NULL, 0) == pid && semctl(id, 0, IPC_RMID) == 0);
    return arg;
}

static volatile int is_awake;

static void *takes_message(void *arg)
{
    message_t m;
    CHECK(msgrcv(id, &m, sizeof(m.text), 0, 0) >= 0);
    is_awake = 1;
    return arg;
}

static void *takes_unit(void *arg)
{
    struct sembuf down = {0, -1, 0};
    CHECK(semop(id, &down, 1) == 0);
    is_awake = 1;
    return arg;
}

enum { CT_CHANGES = 5 };

/* The first two send a message. */
static void *changes(void *number)
{
    message_t m = {1, ""};
    struct sembuf up[] = {{0, 1, 0}, {0, 1, IPC_NOWAIT}};
    switch (*(const int *)number) {
    case 0:
    case 1:
        CHECK(msgsnd(id, &m, 1, *(const int *)number == 0 ? 0 : IPC_NOWAIT) == 0);
        break;
    case 2:
        CHECK(semop(id, &up[0], 1) == 0);
        break;
    case 3:
        CHECK(semop(id, &up[1], 1) == 0);
        break;
    default:
        CHECK(semtimedop(id, up, 1, NULL) == 0);
    }
    return NULL;
}

/* Makes a task wait for so long that it rarely looks by itself, and tells whether a change wakes it
 * at once. */
static int is_woken(int number, int by_thread)
{
    pthread_t thread;
    int is_queue = number < 2;
    id = is_queue ? msgget(IPC_PRIVATE, 0600) : semget(IPC_PRIVATE, 1, 0600);
    is_awake = 0;
    aco_task_t *task = aco_spawn(is_queue ? takes_message : takes_unit, NULL);
    aco_sleep(30 * MS);
    if (by_thread) {
        CHECK(pthread_create(&thread, NULL, changes, &number) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    } else {
        changes(&number);
    }
    for (int i = 0; i < 1000 && !is_awake; i++) {
        aco_yield();
    }
    int was_awake = is_awake;
    CHECK(aco_join(task, NULL) == 0);
    CHECK((is_queue ? msgctl(id, IPC_RMID, NULL) : semctl(id, 0, IPC_RMID)) == 0);
    return was_awake;
}

/* On a busy machine, the task may be looking by itself when the change comes. */
static void check_wakes(int number, int by_thread)
{
    CHECK(is_woken(number, by_thread) || is_woken(number, by_thread) ||
          is_woken(number, by_thread));
}

static void *is_woken_at_once(void *arg)
{
    for (int i = 0; i < CT_CHANGES; i++) {
        check_wakes(i, 0);
        check_wakes(i, 1);
    }
    return arg;
}

static void system_v_waits(void **state)
{
    (void)state;
    if ((id = msgget(IPC_PRIVATE, 0600)) < 0) {
        skip(); /* a kernel without them */
    }
    msgctl(id, IPC_RMID, NULL);
    compare(uses_msg);
    compare(uses_sem);
    run_tasks(posts_in_a_child, NULL);
    run_tasks(is_woken_at_once, NULL);
}

/* ==== Requests =============================================================================== */

static int ends[2];

static void *writes_late(void *arg)
{
    usleep(2000);
    CHECK(write(ends[1], "x", 1) == 1);
    return arg;
}

static void *suspends(void *arg)
{
    char byte;
    struct timespec soon = {0, MS}, wrong = {0, -1};
    CHECK(pipe(ends) == 0);
    struct aiocb block = {.aio_fildes = ends[0], .aio_buf = &byte, .aio_nbytes = 1};
    const struct aiocb *list[] = {NULL, &block};
    CHECK(aio_read(&block) == 0);
    ASK(aio_suspend(list, 2, &soon));
    ASK(aio_suspend(list, 2, &wrong));
    ASK(aio_suspend(list, 0, &soon));
    beside_t other = begin(writes_late);
    ASK(aio_suspend(list, 2, NULL));
    ASK(aio_return(&block));
    ASK(aio_suspend(list, 2, NULL));
    end(&other);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    return arg;
}

static void *suspends_for_a_name(void *arg)
{
    struct gaicb request = {.ar_name = "127.0.0.1"}, *list[] = {&request};
    CHECK(getaddrinfo_a(GAI_NOWAIT, list, 1, NULL) == 0);
    int error = gai_suspend((const struct gaicb *const *)list, 1, NULL);
    CHECK(error == 0 || error == EAI_ALLDONE);
    CHECK(gai_error(&request) == 0);
    CHECK(gai_suspend((const struct gaicb *const *)list, 1, NULL) == EAI_ALLDONE);
    freeaddrinfo(request.ar_result);
    return arg;
}

static const struct aiocb *awaited[1];

static void *is_cancelled_in_aio(void *arg)
{
    CHECK_FAILS(aio_suspend(awaited, 1, NULL), ECANCELED);
    return arg;
}

static void *cancels_in_aio(void *arg)
{
    char byte;
    CHECK(pipe(ends) == 0);
    struct aiocb block = {.aio_fildes = ends[0], .aio_buf = &byte, .aio_nbytes = 1};
    awaited[0] = &block;
    CHECK(aio_read(&block) == 0);
    aco_task_t *task = aco_spawn(is_cancelled_in_aio, NULL);
    let_run();
    aco_task_cancel(task);
    CHECK(aco_join(task, NULL) == 0 && write(ends[1], "x", 1) == 1);
    CHECK(aio_suspend(awaited, 1, NULL) == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    return arg;
}

static void requests_are_awaited(void **state)
{
    (void)state;
#ifndef __SANITIZE_THREAD__ /* TSan does not know the threads of these */
    compare(suspends);
    run_tasks(suspends_for_a_name, NULL);
    run_tasks(cancels_in_aio, NULL);
#else
    (void)suspends, (void)suspends_for_a_name, (void)cancels_in_aio;
#endif
}

/* ==== Descriptors ============================================================================ */

static void *counts_late(void *arg)
{
    usleep(2000);
    CHECK(eventfd_write(ends[0], 5) == 0);
    return arg;
}

static void *reads_count(void *arg)
{
    eventfd_t value = 0;
    usleep(2000);
    CHECK(eventfd_read(ends[0], &value) == 0 && value == UINT64_MAX - 1);
    return arg;
}

static void *uses_eventfd(void *arg)
{
    eventfd_t value = 0;
    ends[0] = eventfd(0, 0);
    beside_t other = begin(counts_late);
    ASK(eventfd_read(ends[0], &value));
    end(&other);
    CHECK(value == 5);
    ASK(eventfd_write(ends[0], UINT64_MAX));
    ASK(eventfd_write(ends[0], UINT64_MAX - 1));
    other = begin(reads_count);
    ASK(eventfd_write(ends[0], 1));
    end(&other);
    ASK(close(ends[0]));
    ASK(eventfd_read(ends[0], &value));
    return arg;
}

static int from[2], to[2];

static void *writes_to_pipe(void *arg)
{
    usleep(2000);
    CHECK(write(from[1], "abc", 3) == 3);
    return arg;
}

static void *empties_pipe(void *arg)
{
    static char bytes[100000];
    usleep(2000);
    CHECK(read(to[0], bytes, sizeof(bytes)) > 0);
    return arg;
}

static void fill(int fd)
{
    static const char bytes[4096];
    int flags = fcntl(fd, F_GETFL);
    CHECK(fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
    while (write(fd, bytes, sizeof(bytes)) > 0) {
    }
    CHECK(fcntl(fd, F_SETFL, flags) == 0);
}

static void *closes_late(void *arg)
{
    usleep(2000);
    CHECK(close(from[1]) == 0);
    return arg;
}

/* At first, neither end of a splice() is ready. */
static void *writes_and_empties(void *arg)
{
    writes_to_pipe(NULL);
    return empties_pipe(arg);
}

static void *uses_pipes(void *arg)
{
    char bytes[8];
    struct iovec iov = {bytes, 8};
    CHECK(pipe(from) == 0 && pipe(to) == 0);
    beside_t other = begin(writes_to_pipe);
    ASK(tee(from[0], to[1], 10, 0));
    end(&other);
    ASK(read(to[0], bytes, 8));
    ASK(tee(from[0], to[1], 0, 0));
    fill(to[1]);
    ASK(tee(from[0], to[1], 10, SPLICE_F_NONBLOCK));
    other = begin(empties_pipe);
    ASK(tee(from[0], to[1], 10, 0));
    end(&other);
    ASK(vmsplice(from[0], &iov, 1, 0));
    ASK(vmsplice(from[0], &iov, 1, SPLICE_F_NONBLOCK));
    other = begin(writes_to_pipe);
    ASK(vmsplice(from[0], &iov, 1, 0));
    end(&other);
    fill(to[1]);
    other = begin(empties_pipe);
    ASK(vmsplice(to[1], &iov, 1, 0));
    end(&other);
    CHECK(fcntl(from[0], F_SETFL, O_NONBLOCK) == 0);
    ASK(tee(from[0], to[1], 10, 0));
    CHECK(close(from[0]) == 0 && close(from[1]) == 0 && pipe(from) == 0);
    other = begin(closes_late);
    ASK(vmsplice(from[0], &iov, 1, 0)); /* the end of the file is no error */
    end(&other);
    CHECK(close(from[0]) == 0 && pipe(from) == 0);
    other = begin(closes_late);
    ASK(tee(from[0], to[1], 10, 0));
    end(&other);
    CHECK(close(from[0]) == 0 && pipe(from) == 0);
    CHECK(fcntl(from[0], F_SETFL, 0) == 0 && close(from[1]) == 0);
    ASK(tee(from[0], to[1], 10, 0));
    ASK(tee(from[0], -1, 10, 0));
    ASK(vmsplice(-1, &iov, 1, 0));
    ASK(vmsplice(to[1], &iov, 1, 0x100)); /* no flag */
    CHECK(close(from[0]) == 0 && close(to[0]) == 0 && close(to[1]) == 0);
    return arg;
}

static void *uses_splice(void *arg)
{
    off64_t offset = 1;
    FILE *stream = tmpfile(), *other_stream = tmpfile();
    int file = fileno(stream), other_file = fileno(other_stream), pair[2];
    CHECK(write(file, "abcdef", 6) == 6 && lseek(file, 0, SEEK_SET) == 0);
    CHECK(pipe(from) == 0 && pipe(to) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    ASK(splice(file, NULL, other_file, NULL, 3, 0)); /* without a pipe */
    ASK(splice(pair[0], NULL, other_file, NULL, 3, 0));
    ASK(splice(from[1], NULL, other_file, NULL, 3, 0));
    ASK(splice(file, NULL, to[0], NULL, 3, 0));
    ASK(splice(file, NULL, to[1], NULL, 3, 0));
    fill(to[1]);
    ASK(splice(file, NULL, to[1], NULL, 3, SPLICE_F_NONBLOCK));
    beside_t other = begin(empties_pipe);
    ASK(splice(file, NULL, to[1], NULL, 3, 0));
    end(&other);
    fill(to[1]);
    other = begin(writes_and_empties);
    ASK(splice(from[0], NULL, to[1], NULL, 3, 0));
    end(&other);
    ASK(splice(file, &offset, to[1], NULL, 3, 0));
    ASK(offset);
    ASK(splice(to[0], NULL, other_file, &offset, 2, 0));
    ASK(offset);
    ASK(splice(to[0], &offset, other_file, NULL, 2, 0));
    other = begin(writes_to_pipe);
    ASK(splice(from[0], NULL, other_file, NULL, 10, 0));
    end(&other);
    ASK(splice(from[0], NULL, other_file, NULL, 10, SPLICE_F_NONBLOCK));
    ASK(splice(from[0], NULL, to[1], NULL, 0, 0));
    ASK(splice(from[0], NULL, -1, NULL, 1, 0));
    CHECK(close(from[0]) == 0 && close(from[1]) == 0 && close(to[0]) == 0 && close(to[1]) == 0);
    CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
    CHECK(fclose(stream) == 0 && fclose(other_stream) == 0);
    return arg;
}

static void *uses_preadv2(void *arg)
{
    char bytes[8] = "12345";
    struct iovec iov = {bytes, 5};
    FILE *file = tmpfile();
    int fd = fileno(file);
    ASK(pwritev2(fd, &iov, 1, 3, 0));
    ASK(pwritev2(fd, &iov, 1, -1, 0));
    ASK(lseek(fd, 0, SEEK_CUR));
    ASK(preadv2(fd, &iov, 1, 6, 0));
    ASK(preadv2(fd, &iov, 1, -1, RWF_HIPRI));
    ASK(preadv2(fd, &iov, 1, -2, 0));
    CHECK(fclose(file) == 0 && pipe(from) == 0);
    beside_t other = begin(writes_to_pipe);
    ASK(preadv2(from[0], &iov, 1, -1, 0));
    end(&other);
    ASK(preadv2(from[0], &iov, 1, -1, RWF_NOWAIT));
    ASK(preadv2(from[0], &iov, 1, 1, 0));
    CHECK(close(from[0]) == 0 && close(from[1]) == 0);
    return arg;
}

static void *uses_epoll(void *arg)
{
    struct epoll_event event = {.events = EPOLLIN};
    struct timespec soon = {0, MS}, none = {0, 0}, wrong = {0, -1};
    int fd = epoll_create1(0);
    CHECK(pipe(from) == 0 && epoll_ctl(fd, EPOLL_CTL_ADD, from[0], &event) == 0);
    ASK(epoll_pwait2(fd, &event, 1, &soon, NULL));
    ASK(epoll_pwait2(fd, &event, 1, &none, NULL));
    ASK(epoll_pwait2(fd, &event, 1, &wrong, NULL));
    beside_t other = begin(writes_to_pipe);
    ASK(epoll_pwait2(fd, &event, 1, NULL, NULL));
    end(&other);
    ASK(epoll_pwait2(fd, &event, 0, NULL, NULL));
    CHECK(close(from[0]) == 0 && close(from[1]) == 0 && close(fd) == 0);
    return arg;
}

static void *drains(void *arg)
{
    CHECK(openpty(&ends[0], &ends[1], NULL, NULL, NULL) == 0);
    ASK(tcdrain(ends[1]));
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    ASK(tcdrain(ends[1]));
    return arg;
}

static void descriptors_wait(void **state)
{
    (void)state;
    compare(uses_eventfd);
    compare(uses_pipes);
    compare(uses_splice);
    compare(uses_preadv2);
    compare(uses_epoll);
    compare(drains);
}

/* ==== Signals ================================================================================ */

static volatile int ct_signals;

static void count_signal(int number)
{
    (void)number;
    ct_signals++;
}

static void *signals_late(void *arg)
{
    usleep(2000);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    return arg;
}

static void *suspends_for_signal(void *arg)
{
    sigset_t none;
    sigemptyset(&none);
    ct_signals = 0;
    beside_t other = begin(signals_late);
    ASK(sigsuspend(&none));
    CHECK(ct_signals == 1);
    end(&other);
    return arg;
}

static void signals_end_sigsuspend(void **state)
{
    sigset_t set;
    (void)state;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
    signal(SIGUSR1, count_signal);
    compare(suspends_for_signal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(posix_queues_wait),      cmocka_unit_test(system_v_waits),
        cmocka_unit_test(requests_are_awaited),   cmocka_unit_test(descriptors_wait),
        cmocka_unit_test(signals_end_sigsuspend),
    };
    alarm(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
