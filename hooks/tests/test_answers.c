// SPDX-License-Identifier: Apache-2.0
// not stress: a task waits for what lies on the stack of another one, which moves there
/*
 * Calls of tasks that are late, by the answer that the program has chosen for itself:
 * each call waits in a task whose deadline comes, in one whose deadline has passed, and in one that
 * is cancelled. With the argument "library" and a file, that library chooses by its name.
 */
#include "threads.h"

#include "aco_hooks.h"

#include <aio.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <netinet/in.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <threads.h>

#define SELF "test_answers"
#define HOUR (3600000 * MS)

/* ==== Objects to wait for ===================================================================== */

static char folder[] = "/tmp/aco_answers_XXXXXX";
static char fifo[64], file[64], gate[64], done[80], command[200], queue_name[32], byte,
    full[1 << 16];
static int empty, giver;  /* ends of an empty pipe */
static int taker, filled; /* ends of a pipe without room */
static int near, far;     /* a pair of sockets */
static int listener, crowded, poller, counter;
static int locked, second; /* two files that are open, of which the first is locked */
static int messages, semaphores;
static mqd_t queue;
static pid_t child;
static FILE *stream;
static struct sockaddr_un crowd; /* the address of a socket whose queue is full */
static socklen_t crowd_sz;
static int visitors[8], ct_visitors, visitor;
static int has_succeeded; /* the call */
static int gatekeeper;
static pthread_t thread;
static pthread_mutex_t mutex, shared_mutex;
static pthread_rwlock_t rwlock;
static pthread_cond_t cond, shared_cond;
static sem_t semaphore, shared_semaphore;
static uint32_t word;
static struct aiocb request;
static volatile int is_released; /* what the call waits for has come */

static void fill(int fd)
{
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    while (write(fd, full, sizeof(full)) > 0) {
    }
    CHECK(fcntl(fd, F_SETFL, 0) == 0);
}

static void drain(int fd)
{
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    while (read(fd, full, sizeof(full)) > 0) {
    }
}

static void make_sockets(void)
{
    int pair[2];
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t sz = sizeof(name.sun_family);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    near = pair[0];
    far = pair[1];
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(listen(listener, 5) == 0);
    crowded = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(crowded, (struct sockaddr *)&name, sz) == 0 && listen(crowded, 0) == 0);
}

static void make_locks(void)
{
    pthread_mutexattr_t of_mutex;
    pthread_condattr_t of_cond;
    CHECK(pthread_mutex_init(&mutex, NULL) == 0 && pthread_cond_init(&cond, NULL) == 0);
    CHECK(pthread_rwlock_init(&rwlock, NULL) == 0 && sem_init(&semaphore, 0, 0) == 0);
    pthread_mutexattr_init(&of_mutex);
    pthread_mutexattr_setpshared(&of_mutex, PTHREAD_PROCESS_SHARED);
    pthread_condattr_init(&of_cond);
    pthread_condattr_setpshared(&of_cond, PTHREAD_PROCESS_SHARED);
    CHECK(pthread_mutex_init(&shared_mutex, &of_mutex) == 0);
    CHECK(pthread_cond_init(&shared_cond, &of_cond) == 0);
    CHECK(sem_init(&shared_semaphore, 1, 0) == 0);
    word = 0;
}

static void make_queues(void)
{
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 8};
    snprintf(queue_name, sizeof(queue_name), "/aco_answers_%d", (int)getpid());
    queue = mq_open(queue_name, O_RDWR | O_CREAT, 0600, &attributes);
    CHECK(queue >= 0 && mq_unlink(queue_name) == 0);
    messages = msgget(IPC_PRIVATE, 0600);
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    CHECK(messages >= 0 && semaphores >= 0);
}

static void prepare(void)
{
    int pipes[2][2];
    CHECK(pipe(pipes[0]) == 0 && pipe(pipes[1]) == 0);
    empty = pipes[0][0];
    giver = pipes[0][1];
    taker = pipes[1][0];
    filled = pipes[1][1];
    fill(filled);
    make_sockets();
    make_locks();
    make_queues();
    poller = epoll_create1(0);
    CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, empty, &(struct epoll_event){.events = EPOLLIN}) == 0);
    counter = eventfd(0, 0);
    locked = open(file, O_RDWR);
    second = open(file, O_RDWR);
    is_released = 0;
}

static void clean_up(void)
{
    const int fds[] = {empty,   giver,  taker,   filled, near,   far,
                       crowded, poller, counter, locked, second, listener};
    for (size_t i = 0; i < ARRAY_SZ(fds); i++) {
        CHECK(close(fds[i]) == 0);
    }
    CHECK(mq_close(queue) == 0 && msgctl(messages, IPC_RMID, NULL) == 0);
    CHECK(semctl(semaphores, 0, IPC_RMID) == 0);
}

/* ==== Calls =================================================================================== */

/* A call that waits, and what lets it go on. */
typedef struct {
    const char *name;
    long (*call)(void); /* less than 0 with errno */
    void (*release)(void);
    void (*begin)(void), (*end)(void); /* before and after it; may be NULL */
    int is_lock;
    int confuses_tsan; /* a thread makes it for the task */
} call_t;

static long by_error(int error)
{
    errno = error;
    return error == 0 ? 0 : -1;
}

static long closed(int fd)
{
    return fd < 0 ? -1 : close(fd);
}

/* The point in time an hour from now. */
#define AN_HOUR(clock) (&(struct timespec[]){in(clock, HOUR)}[0])

#define CALL(name, expression)                                                                     \
    static long call_##name(void)                                                                  \
    {                                                                                              \
        return (long)(expression);                                                                 \
    }                                                                                              \
    _Static_assert(1, "")

CALL(read, read(empty, &byte, 1));
CALL(readv, readv(empty, &(struct iovec){&byte, 1}, 1));
CALL(preadv2, preadv2(empty, &(struct iovec){&byte, 1}, 1, -1, 0));
CALL(syscall_read, syscall(SYS_read, empty, &byte, 1));
CALL(tee, tee(empty, filled, 1, 0)); /* there is room */
CALL(vmsplice, vmsplice(empty, &(struct iovec){&byte, 1}, 1, 0));
CALL(splice, splice(empty, NULL, locked, NULL, 1, 0));
CALL(write, write(filled, &byte, 1));
CALL(writev, writev(filled, &(struct iovec){&byte, 1}, 1));
CALL(sendfile, sendfile(filled, locked, NULL, 1));
CALL(recv, recv(near, &byte, 1, 0));
CALL(recvfrom, recvfrom(near, &byte, 1, 0, NULL, NULL));
CALL(recvmsg,
     recvmsg(near, &(struct msghdr){.msg_iov = &(struct iovec){&byte, 1}, .msg_iovlen = 1}, 0));
CALL(recvmmsg,
     recvmmsg(near,
              &(struct mmsghdr){.msg_hdr = {.msg_iov = &(struct iovec){&byte, 1}, .msg_iovlen = 1}},
              1, 0, NULL));
CALL(send, send(near, &byte, 1, 0));
CALL(sendto, sendto(near, &byte, 1, 0, NULL, 0));
CALL(sendmsg,
     sendmsg(near, &(struct msghdr){.msg_iov = &(struct iovec){&byte, 1}, .msg_iovlen = 1}, 0));
CALL(sendmmsg,
     sendmmsg(near,
              &(struct mmsghdr){.msg_hdr = {.msg_iov = &(struct iovec){&byte, 1}, .msg_iovlen = 1}},
              1, 0));
CALL(accept, closed(accept(listener, NULL, NULL)));
CALL(poll, poll(&(struct pollfd){empty, POLLIN, 0}, 1, -1) - 1);
CALL(poll_limited, poll(&(struct pollfd){empty, POLLIN, 0}, 1, 3600000) - 1);
CALL(ppoll, ppoll(&(struct pollfd){empty, POLLIN, 0}, 1, NULL, NULL) - 1);
CALL(epoll_wait, epoll_wait(poller, &(struct epoll_event){0}, 1, -1) - 1);
CALL(epoll_pwait, epoll_pwait(poller, &(struct epoll_event){0}, 1, -1, NULL) - 1);
CALL(eventfd_read, eventfd_read(counter, &(eventfd_t){0}));
CALL(eventfd_write, eventfd_write(counter, 1));
CALL(waitpid, waitpid(child, NULL, 0));
CALL(wait4, wait4(child, NULL, 0, NULL));
CALL(waitid, waitid(P_PID, (id_t)child, &(siginfo_t){0}, WEXITED));
CALL(open, closed(open(fifo, O_RDONLY)));
CALL(system, system(command));
CALL(pclose, pclose(stream));
CALL(flock, flock(second, LOCK_EX));
CALL(fcntl, fcntl(second, F_OFD_SETLKW, &(struct flock){.l_type = F_WRLCK}));
CALL(mq_receive, mq_receive(queue, full, 8, NULL));
CALL(mq_send, mq_send(queue, full, 8, 0));
CALL(msgrcv, msgrcv(messages, full, 8, 0, 0));
CALL(semop, semop(semaphores, &(struct sembuf){0, -1, 0}, 1));
CALL(aio_suspend, aio_suspend((const struct aiocb *const[]){&request}, 1, NULL));
CALL(sem_wait, sem_wait(&semaphore));
CALL(sem_wait_shared, sem_wait(&shared_semaphore));
CALL(join, by_error(pthread_join(thread, NULL)));

CALL(connect, connect(visitor, (struct sockaddr *)&crowd, crowd_sz));

/* A lock that is taken is released again. */
#define CALL_LOCK(name, unlock, expression)                                                        \
    static long call_##name(void)                                                                  \
    {                                                                                              \
        int error = (expression);                                                                  \
        CHECK(error != 0 || (unlock) == 0);                                                        \
        return by_error(error);                                                                    \
    }                                                                                              \
    _Static_assert(1, "")

CALL_LOCK(timedlock, pthread_mutex_unlock(&mutex),
          pthread_mutex_timedlock(&mutex, AN_HOUR(CLOCK_REALTIME)));
CALL_LOCK(clocklock, pthread_mutex_unlock(&mutex),
          pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, AN_HOUR(CLOCK_MONOTONIC)));
CALL_LOCK(mtx_timedlock, pthread_mutex_unlock(&mutex),
          mtx_timedlock((mtx_t *)&mutex, AN_HOUR(CLOCK_REALTIME)));
CALL_LOCK(timedrdlock, pthread_rwlock_unlock(&rwlock),
          pthread_rwlock_timedrdlock(&rwlock, AN_HOUR(CLOCK_REALTIME)));
CALL_LOCK(timedwrlock, pthread_rwlock_unlock(&rwlock),
          pthread_rwlock_timedwrlock(&rwlock, AN_HOUR(CLOCK_REALTIME)));
CALL(sem_timedwait, sem_timedwait(&semaphore, AN_HOUR(CLOCK_REALTIME)));
CALL(futex, syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &(struct timespec){3600, 0}, NULL, 0));

/* A wait that succeeds has been signalled, as nothing else may end it here. */
#define CALL_COND(name, the_mutex, wait)                                                           \
    static long call_##name(void)                                                                  \
    {                                                                                              \
        CHECK(pthread_mutex_lock(&(the_mutex)) == 0);                                              \
        int error = wait;                                                                          \
        CHECK(pthread_mutex_unlock(&(the_mutex)) == 0);                                            \
        return by_error(error);                                                                    \
    }                                                                                              \
    _Static_assert(1, "")

CALL_COND(cond_wait, mutex, pthread_cond_wait(&cond, &mutex));
CALL_COND(cond_timedwait, mutex, pthread_cond_timedwait(&cond, &mutex, AN_HOUR(CLOCK_REALTIME)));
CALL_COND(cond_shared, shared_mutex, pthread_cond_wait(&shared_cond, &shared_mutex));
CALL_COND(cnd_wait, mutex, cnd_wait((cnd_t *)&cond, (mtx_t *)&mutex));

static long call_select(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(empty, &set);
    return select(empty + 1, &set, NULL, NULL, NULL) - 1;
}

static long call_pselect(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(empty, &set);
    return pselect(empty + 1, &set, NULL, NULL, NULL, NULL) - 1;
}

static long call_sigwaitinfo(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    return sigwaitinfo(&set, NULL);
}

/* ==== Letting them go on ====================================================================== */

static void give(void)
{
    CHECK(write(giver, full, 1) == 1);
}

static void take(void)
{
    drain(taker);
}

static void answer(void)
{
    CHECK(send(far, full, 1, 0) == 1);
}

static void empty_sockets(void)
{
    drain(far);
}

static void visit(void)
{
    struct sockaddr_in address;
    socklen_t sz = sizeof(address);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &sz) == 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&address, sz) == 0 && close(fd) == 0);
}

static void let_in(void)
{
    int fd = accept(crowded, NULL, NULL);
    CHECK(fd >= 0 && close(fd) == 0);
}

static void count_up(void)
{
    CHECK(eventfd_write(counter, 1) == 0);
}

static void count_down(void)
{
    CHECK(eventfd_read(counter, &(eventfd_t){0}) == 0);
}

/* The other end of the FIFO comes, and stays, as the call may be late. */
static void open_fifo(void)
{
    gatekeeper = open(fifo, O_RDWR | O_NONBLOCK);
    CHECK(gatekeeper >= 0);
}

static void end_child(void)
{
    CHECK(kill(child, SIGKILL) == 0);
}

static void unlock_file(void)
{
    CHECK(flock(locked, LOCK_UN) == 0);
    CHECK(fcntl(locked, F_OFD_SETLK, &(struct flock){.l_type = F_UNLCK}) == 0);
}

static void send_message(void)
{
    CHECK(mq_send(queue, full, 8, 0) == 0);
}

static void receive_message(void)
{
    CHECK(mq_receive(queue, full, 8, NULL) == 8);
}

static void send_to_queue(void)
{
    struct {
        long type;
        char text[8];
    } message = {1, ""};
    CHECK(msgsnd(messages, &message, 8, 0) == 0);
}

static void raise_semaphore(void)
{
    CHECK(semop(semaphores, &(struct sembuf){0, 1, 0}, 1) == 0);
}

static void signal_process(void)
{
    CHECK(kill(getpid(), SIGUSR1) == 0);
}

static void unlock_mutex(void)
{
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static void unlock_rwlock(void)
{
    CHECK(pthread_rwlock_unlock(&rwlock) == 0);
}

static void signal_cond(void)
{
    CHECK(pthread_mutex_lock(&mutex) == 0 && pthread_cond_signal(&cond) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static void signal_shared_cond(void)
{
    CHECK(pthread_mutex_lock(&shared_mutex) == 0 && pthread_cond_signal(&shared_cond) == 0);
    CHECK(pthread_mutex_unlock(&shared_mutex) == 0);
}

static void post(void)
{
    CHECK(sem_post(&semaphore) == 0);
}

static void post_shared(void)
{
    CHECK(sem_post(&shared_semaphore) == 0);
}

static void wake(void)
{
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* ==== Before and after ======================================================================== */

static void fill_socket(void)
{
    fill(near);
}

static void crowd_socket(void)
{
    crowd_sz = sizeof(crowd);
    CHECK(getsockname(crowded, (struct sockaddr *)&crowd, &crowd_sz) == 0);
    ct_visitors = 0;
    for (;;) {
        int fd = visitors[ct_visitors++] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (connect(fd, (struct sockaddr *)&crowd, crowd_sz) != 0) {
            break;
        }
    }
    visitor = visitors[ct_visitors++] = socket(AF_UNIX, SOCK_STREAM, 0);
}

static void clear_crowd(void)
{
    while (ct_visitors > 0) {
        CHECK(close(visitors[--ct_visitors]) == 0);
    }
}

static void fill_counter(void)
{
    CHECK(eventfd_write(counter, UINT64_MAX - 1) == 0);
}

static void make_child(void)
{
    child = fork();
    if (child == 0) {
        for (;;) {
            sleep(1);
        }
    }
}

/* The child is left if the wait for it has failed. */
static void reap_child(void)
{
    waitpid(child, NULL, 0);
}

static void close_fifo(void)
{
    CHECK(close(gatekeeper) == 0);
}

/* A command that waits for a line. Each has names of its own: one that a task has given up on may
 * run at any time, or not at all. */
static void make_gate(void)
{
    static int number;
    snprintf(gate, sizeof(gate), "%s/gate%d", folder, number++);
    snprintf(done, sizeof(done), "%s.done", gate);
    snprintf(command, sizeof(command), "exec 2>/dev/null; read line <%s && printf x >>%s", gate,
             done);
    CHECK(mkfifo(gate, 0600) == 0);
    gatekeeper = open(gate, O_RDWR);
}

static void open_stream(void)
{
    make_gate();
    stream = popen(command, "r");
    CHECK(stream != NULL);
}

static void open_gate(void)
{
    CHECK(write(gatekeeper, "\n", 1) == 1);
}

/* The command has run, and only once. */
static void remove_gate(void)
{
    struct stat status;
    CHECK(unlink(gate) == 0 && close(gatekeeper) == 0);
    CHECK(!has_succeeded || (stat(done, &status) == 0 && status.st_size == 1));
}

static void lock_file(void)
{
    CHECK(flock(locked, LOCK_EX) == 0);
    CHECK(fcntl(locked, F_OFD_SETLK, &(struct flock){.l_type = F_WRLCK}) == 0);
}

static void begin_request(void)
{
    request = (struct aiocb){.aio_fildes = empty, .aio_buf = &byte, .aio_nbytes = 1};
    CHECK(aio_read(&request) == 0);
}

static void end_request(void)
{
    while (aio_error(&request) == EINPROGRESS) {
        aco_sleep(MS);
    }
    CHECK(aio_return(&request) == 1);
}

static void take_signal(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigtimedwait(&set, NULL, &(struct timespec){0, 0});
}

static void *waits_for_byte(void *fd)
{
    CHECK(read(*(int *)fd, &byte, 1) == 1);
    return fd;
}

static void start_thread(void)
{
    CHECK(pthread_create(&thread, NULL, waits_for_byte, &empty) == 0);
}

static void join_thread(void)
{
    CHECK(has_succeeded || pthread_join(thread, NULL) == 0);
}

static void lock_mutex(void)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
}

static void lock_rwlock(void)
{
    CHECK(pthread_rwlock_wrlock(&rwlock) == 0);
}

#ifdef __SANITIZE_THREAD__
#define HAS_TSAN 1
#else
#define HAS_TSAN 0
#endif

/* ==== All ===================================================================================== */

static const call_t calls[] = {
    {"read", call_read, give, NULL, NULL, 0, 0},
    {"readv", call_readv, give, NULL, NULL, 0, 0},
    {"preadv2", call_preadv2, give, NULL, NULL, 0, 0},
    {"syscall(SYS_read)", call_syscall_read, give, NULL, NULL, 0, 0},
    {"tee", call_tee, give, take, NULL, 0, 0},
    {"vmsplice", call_vmsplice, give, NULL, NULL, 0, 0},
    {"splice", call_splice, give, NULL, NULL, 0, 0},
    {"write", call_write, take, NULL, NULL, 0, 0},
    {"writev", call_writev, take, NULL, NULL, 0, 0},
    {"sendfile", call_sendfile, take, NULL, NULL, 0, 0},
    {"recv", call_recv, answer, NULL, NULL, 0, 0},
    {"recvfrom", call_recvfrom, answer, NULL, NULL, 0, 0},
    {"recvmsg", call_recvmsg, answer, NULL, NULL, 0, 0},
    {"recvmmsg", call_recvmmsg, answer, NULL, NULL, 0, 0},
    {"send", call_send, empty_sockets, fill_socket, NULL, 0, 0},
    {"sendto", call_sendto, empty_sockets, fill_socket, NULL, 0, 0},
    {"sendmsg", call_sendmsg, empty_sockets, fill_socket, NULL, 0, 0},
    {"sendmmsg", call_sendmmsg, empty_sockets, fill_socket, NULL, 0, 0},
    {"accept", call_accept, visit, NULL, NULL, 0, 0},
    {"connect", call_connect, let_in, crowd_socket, clear_crowd, 0, 0},
    {"poll", call_poll, give, NULL, NULL, 0, 0},
    {"poll with a limit", call_poll_limited, give, NULL, NULL, 0, 0},
    {"ppoll", call_ppoll, give, NULL, NULL, 0, 0},
    {"select", call_select, give, NULL, NULL, 0, 0},
    {"pselect", call_pselect, give, NULL, NULL, 0, 0},
    {"epoll_wait", call_epoll_wait, give, NULL, NULL, 0, 0},
    {"epoll_pwait", call_epoll_pwait, give, NULL, NULL, 0, 0},
    {"eventfd_read", call_eventfd_read, count_up, NULL, NULL, 0, 0},
    {"eventfd_write", call_eventfd_write, count_down, fill_counter, NULL, 0, 0},
    {"waitpid", call_waitpid, end_child, make_child, reap_child, 0, 0},
    {"wait4", call_wait4, end_child, make_child, reap_child, 0, 0},
    {"waitid", call_waitid, end_child, make_child, reap_child, 0, 0},
    {"open", call_open, open_fifo, NULL, close_fifo, 0, 0},
    {"system", call_system, open_gate, make_gate, remove_gate, 0, 0},
    {"pclose", call_pclose, open_gate, open_stream, remove_gate, 0, 0},
    {"flock", call_flock, unlock_file, lock_file, NULL, 0, 0},
    {"fcntl", call_fcntl, unlock_file, lock_file, NULL, 0, 0},
    {"mq_receive", call_mq_receive, send_message, NULL, NULL, 0, 0},
    {"mq_send", call_mq_send, receive_message, send_message, NULL, 0, 0},
    {"msgrcv", call_msgrcv, send_to_queue, NULL, NULL, 0, 0},
    {"semop", call_semop, raise_semaphore, NULL, NULL, 0, 0},
    {"aio_suspend", call_aio_suspend, give, begin_request, end_request, 0, 1},
    {"sigwaitinfo", call_sigwaitinfo, signal_process, NULL, take_signal, 0, 0},
    {"pthread_join", call_join, give, start_thread, join_thread, 1, 1},
    {"pthread_mutex_timedlock", call_timedlock, unlock_mutex, lock_mutex, NULL, 1, 0},
    {"pthread_mutex_clocklock", call_clocklock, unlock_mutex, lock_mutex, NULL, 1, 0},
    {"mtx_timedlock", call_mtx_timedlock, unlock_mutex, lock_mutex, NULL, 1, 0},
    {"pthread_rwlock_timedrdlock", call_timedrdlock, unlock_rwlock, lock_rwlock, NULL, 1, 0},
    {"pthread_rwlock_timedwrlock", call_timedwrlock, unlock_rwlock, lock_rwlock, NULL, 1, 0},
    {"pthread_cond_wait", call_cond_wait, signal_cond, NULL, NULL, 1, 0},
    {"pthread_cond_timedwait", call_cond_timedwait, signal_cond, NULL, NULL, 1, 0},
    {"a shared condition", call_cond_shared, signal_shared_cond, NULL, NULL, 1, 1},
    {"cnd_wait", call_cnd_wait, signal_cond, NULL, NULL, 1, 0},
    {"sem_wait", call_sem_wait, post, NULL, NULL, 1, 0},
    {"sem_timedwait", call_sem_timedwait, post, NULL, NULL, 1, 0},
    {"a shared semaphore", call_sem_wait_shared, post_shared, NULL, NULL, 1, 0},
    {"a futex", call_futex, wake, NULL, NULL, 1, 0},
};

typedef enum { DEADLINE, PASSED, CANCELLED, CT_MANNERS } manner_t;

typedef struct {
    const call_t *call;
    manner_t manner;
    aco_hooks_answer_t answer;
    int error; /* of the call; 0: it has succeeded */
} trial_t;

static void *makes_call(void *arg)
{
    trial_t *trial = (trial_t *)arg;
    aco_within(trial->manner == DEADLINE ? MS : trial->manner == PASSED ? 0 : HOUR)
    {
        errno = 0;
        trial->error = trial->call->call() < 0 ? errno : 0;
        CHECK(trial->error != 0 || is_released);
    }
    return NULL;
}

/* The error that a call must have; 0: it must succeed. */
static int expected_error(const trial_t *trial)
{
    int error = trial->manner == CANCELLED ? ECANCELED : ETIMEDOUT;
    return trial->answer == ACO_HOOKS_ERROR                          ? error
           : trial->answer == ACO_HOOKS_WAIT || trial->call->is_lock ? 0
           : trial->answer == ACO_HOOKS_EINTR                        ? EINTR
                                                                     : error;
}

/* The functions of C11 have errors of their own. */
static int is_expected(const trial_t *trial)
{
    int expected = expected_error(trial),
        is_c11 = trial->call->call == call_mtx_timedlock || trial->call->call == call_cnd_wait;
    return is_c11 ? (trial->error == 0) == (expected == 0) : trial->error == expected;
}

static void release(const trial_t *trial)
{
    is_released = 1;
    trial->call->release();
}

/* A call that is to wait is let go when its task is late; another one ends before that. */
static void *tries(void *arg)
{
    trial_t *trial = (trial_t *)arg;
    prepare();
    if (trial->call->begin != NULL) {
        trial->call->begin();
    }
    aco_task_t *task = aco_spawn(makes_call, trial);
    let_run();
    if (trial->manner == CANCELLED) {
        aco_task_cancel(task);
    }
    int must_wait = expected_error(trial) == 0;
    if (must_wait) {
        CHECK(aco_sleep(3 * MS) == 0);
        release(trial);
    }
    CHECK(aco_join(task, NULL) == 0);
    if (!must_wait) {
        release(trial);
    }
    if (trial->call->end != NULL) {
        has_succeeded = trial->error == 0;
        trial->call->end();
    }
    clean_up();
    if (!is_expected(trial)) {
        print_error("%s, answer %d, manner %d: error %d\n", trial->call->name, (int)trial->answer,
                    (int)trial->manner, trial->error);
        ct_failed++;
    }
    return NULL;
}

static void calls_have_the_answer(void **state)
{
    aco_hooks_answer_t chosen = *(aco_hooks_answer_t *)*state;
    assert_int_equal(aco_hooks_on_deadline(SELF, chosen), 0);
    for (size_t i = 0; i < ARRAY_SZ(calls); i++) {
        for (manner_t manner = DEADLINE;
             manner < CT_MANNERS && !(HAS_TSAN && calls[i].confuses_tsan); manner++) {
            trial_t trial = {.call = &calls[i], .manner = manner, .answer = chosen};
            run_tasks(tries, &trial);
        }
    }
    assert_int_equal(aco_hooks_on_deadline(SELF, ACO_HOOKS_ERROR), 0);
}

/* ==== Limits ================================================================================== */

/* A limit of the call itself counts, also if it comes after the deadline. */
#define CHECK_LIMIT(clock, call, holds)                                                            \
    do {                                                                                           \
        struct timespec end = in(clock, 10 * MS);                                                  \
        errno = 0;                                                                                 \
        long result __attribute__((unused)) = (long)(call);                                        \
        CHECK(holds);                                                                              \
        CHECK(has_come(clock, &end));                                                              \
    } while (0)

static void *keeps_to_limits(void *arg)
{
    struct pollfd polled = {empty, POLLIN, 0};
    struct timespec t = {0, 10 * MS}, left = {0, 0};
    aco_within(MS)
    {
        CHECK_LIMIT(CLOCK_MONOTONIC, poll(&polled, 1, 10), result == 0);
        CHECK_LIMIT(CLOCK_MONOTONIC, ppoll(&polled, 1, &t, NULL), result == 0);
        CHECK_LIMIT(CLOCK_MONOTONIC, epoll_wait(poller, &(struct epoll_event){0}, 1, 10),
                    result == 0);
        CHECK_LIMIT(CLOCK_MONOTONIC, select(0, NULL, NULL, NULL, &(struct timeval){0, 10000}),
                    result == 0);
        CHECK_LIMIT(CLOCK_MONOTONIC, nanosleep(&t, &left), result == 0);
        CHECK_LIMIT(CLOCK_MONOTONIC, usleep(10000), result == 0);
        CHECK_LIMIT(CLOCK_MONOTONIC, clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL),
                    result == 0);
        CHECK_LIMIT(CLOCK_REALTIME, clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &end, NULL),
                    result == 0);
        CHECK_LIMIT(CLOCK_REALTIME, sem_timedwait(&semaphore, &end), errno == ETIMEDOUT);
        CHECK_LIMIT(CLOCK_REALTIME, mq_timedreceive(queue, full, 8, NULL, &end),
                    errno == ETIMEDOUT);
        CHECK_LIMIT(CLOCK_MONOTONIC, semtimedop(semaphores, &(struct sembuf){0, -1, 0}, 1, &t),
                    errno == EAGAIN);
        CHECK(pthread_mutex_lock(&mutex) == 0);
        CHECK_LIMIT(CLOCK_REALTIME, pthread_cond_timedwait(&cond, &mutex, &end),
                    result == ETIMEDOUT);
        CHECK(pthread_mutex_unlock(&mutex) == 0);
    }
    return arg;
}

static void *limits_others(void *arg)
{
    prepare();
    aco_task_t *task = aco_spawn(keeps_to_limits, arg);
    CHECK(aco_join(task, NULL) == 0);
    clean_up();
    return arg;
}

static void limits_of_calls_count(void **state)
{
    (void)state;
    assert_int_equal(aco_hooks_on_deadline(SELF, ACO_HOOKS_WAIT), 0);
    run_tasks(limits_others, NULL);
    assert_int_equal(aco_hooks_on_deadline(SELF, ACO_HOOKS_ERROR), 0);
}

/* ==== Other failures ========================================================================== */

/* The system's errors are passed on, and so are limits; the runtime's own calls have no answer. */
static void *fails_as_before(void *arg)
{
    struct timespec soon = in(CLOCK_REALTIME, MS);
    prepare();
    CHECK_FAILS(read(-1, &byte, 1), EBADF);
    CHECK_FAILS(mq_timedreceive(queue, full, 8, NULL, &soon), ETIMEDOUT);
    CHECK_FAILS(sem_timedwait(&semaphore, &soon), ETIMEDOUT);
    aco_within(0)
    {
        CHECK_FAILS(read(-1, &byte, 1), EBADF);
        CHECK_FAILS(recv(empty, &byte, 1, 0), ENOTSOCK);
        CHECK_FAILS(recv(near, &byte, 1, MSG_DONTWAIT), EAGAIN);
        CHECK_FAILS(aco_read(empty, &byte, 1), ETIMEDOUT);
        CHECK_FAILS(aco_sleep(HOUR), ETIMEDOUT);
        CHECK_FAILS(fsync(-1), EBADF);
        CHECK_FAILS(fdatasync(empty), EINVAL);
    }
    clean_up();
    return arg;
}

static void other_failures_stay(void **state)
{
    (void)state;
    for (int i = ACO_HOOKS_ERROR; i <= ACO_HOOKS_WAIT; i++) {
        assert_int_equal(aco_hooks_on_deadline(SELF, (aco_hooks_answer_t)i), 0);
        run_tasks(fails_as_before, NULL);
    }
    assert_int_equal(aco_hooks_on_deadline(SELF, ACO_HOOKS_ERROR), 0);
}

CALL(to_file, write(locked, full, 10) - 10);
CALL(to_file_by_syscall, syscall(SYS_write, locked, full, 10) - 10);
CALL(to_file_by_parts, writev(locked, &(struct iovec){full, 10}, 1) - 10);
CALL(pwrite, pwrite(locked, full, 10, 30) - 10);
CALL(pwritev, pwritev(locked, &(struct iovec){full, 10}, 1, 40) - 10);
CALL(pwritev2, pwritev2(locked, &(struct iovec){full, 10}, 1, 50, 0) - 10);
CALL(fsync, fsync(locked));
CALL(fdatasync, fdatasync(locked));

static long (*const file_calls[])(void) = {
    call_to_file,
    call_to_file_by_syscall,
    call_to_file_by_parts,
    call_pwrite,
    call_pwritev,
    call_pwritev2,
    call_fsync,
    call_fdatasync,
};

static void *occupies_helper(void *arg)
{
    aco_offload(waits_for_byte, &empty);
    return arg;
}

static void *writes_late(void *call)
{
    aco_within(0)
    {
        CHECK((*(long (*const *)(void))call)() == 0);
    }
    return NULL;
}

/* The only helper is busy, so each call waits. */
static void *writes_files(void *arg)
{
    prepare();
    CHECK(ftruncate(locked, 0) == 0);
    for (size_t i = 0; i < 2 * ARRAY_SZ(file_calls); i++) {
        aco_task_t *busy = aco_spawn(occupies_helper, NULL);
        let_run();
        void *call = (void *)(uintptr_t)&file_calls[i / 2];
        aco_task_t *writer = aco_spawn(writes_late, call);
        if (i % 2 != 0) {
            aco_task_cancel(writer);
        }
        let_run();
        give();
        CHECK(aco_join(writer, NULL) == 0 && aco_join(busy, NULL) == 0);
    }
    CHECK(lseek(locked, 0, SEEK_CUR) == 60 && lseek(locked, 0, SEEK_END) == 60);
    clean_up();
    return arg;
}

static void files_are_written_in_any_case(void **state)
{
    (void)state;
    aco_run_options_t options = {.ct_offload = 1};
    ct_failed = 0;
    assert_int_equal(aco_run(&options, writes_files, NULL, NULL), 0);
    assert_int_equal(ct_failed, 0);
}

/* ==== Rules =================================================================================== */

static void *reads_late(void *error)
{
    prepare();
    aco_within(0)
    {
        CHECK_FAILS(read(empty, &byte, 1), *(int *)error);
    }
    clean_up();
    return error;
}

static void the_last_rule_counts(void **state)
{
    (void)state;
    int interrupted = EINTR, late = ETIMEDOUT;
    assert_int_equal(aco_hooks_on_deadline("libother " SELF, ACO_HOOKS_EINTR), 0);
    assert_int_equal(aco_hooks_on_deadline("libfoo  test_answers_of_others", ACO_HOOKS_WAIT), 0);
    run_tasks(reads_late, &interrupted);
    assert_int_equal(aco_hooks_on_deadline("test_a", ACO_HOOKS_LOCKS_WAIT), 0);
    run_tasks(reads_late, &late);
    errno = 0;
    assert_int_equal(aco_hooks_on_deadline(NULL, ACO_HOOKS_ERROR), -1);
    assert_int_equal(errno, EINVAL);
    errno = 0;
    assert_int_equal(aco_hooks_on_deadline(SELF, (aco_hooks_answer_t)4), -1);
    assert_int_equal(errno, EINVAL);
    run_tasks(reads_late, &late);
    assert_int_equal(aco_hooks_on_deadline(SELF, ACO_HOOKS_ERROR), 0);
}

/* ==== Libraries =============================================================================== */

/* Calls a function when there is no byte for it; the giver has no turn before it waits. */
static const char *answer_by_library(int (*fn)(int fd), int fd)
{
    struct pollfd polled = {fd, POLLIN, 0};
    while (poll(&polled, 1, 0) == 1) {
        CHECK(read(fd, &byte, 1) == 1);
    }
    errno = 0;
    int result = fn(fd);
    return result >= 0 ? "waits" : errno == EINTR ? "EINTR" : "error";
}

/* Prints what the calls of a library return: they wait for a byte that comes after 3 ms. */
static void *asks_library(void *path)
{
    static const char *const names[] = {"answering_read", "answering_syscall", "answering_lock"};
    void *library = dlopen((const char *)path, RTLD_NOW);
    CHECK(library != NULL);
    for (size_t i = 0; library != NULL && i < ARRAY_SZ(names); i++) {
        int (*fn)(int fd);
        void *found = dlsym(library, names[i]);
        memcpy(&fn, &found, sizeof(fn));
        aco_within(0)
        {
            printf("%s %s\n", names[i] + strlen("answering_"), answer_by_library(fn, empty));
        }
    }
    return path;
}

static void *gives_bytes(void *unused)
{
    while (aco_sleep(3 * MS) == 0) {
        give();
    }
    return unused;
}

static void *runs_library(void *path)
{
    prepare();
    aco_task_t *giver_task = aco_spawn(gives_bytes, NULL), *task = aco_spawn(asks_library, path);
    CHECK(aco_join(task, NULL) == 0);
    aco_task_cancel(giver_task);
    CHECK(aco_join(giver_task, NULL) == 0);
    clean_up();
    return NULL;
}

static int make_files(void **state)
{
    (void)state;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(fifo, sizeof(fifo), "%s/fifo", folder);
    snprintf(file, sizeof(file), "%s/file", folder);
    int fd = open(file, O_RDWR | O_CREAT, 0600);
    return write(fd, full, 100) == 100 && close(fd) == 0 && mkfifo(fifo, 0600) == 0 ? 0 : -1;
}

static int remove_files(void **state)
{
    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

int main(int argc, char **argv)
{
    static aco_hooks_answer_t answers[] = {ACO_HOOKS_ERROR, ACO_HOOKS_LOCKS_WAIT, ACO_HOOKS_EINTR,
                                           ACO_HOOKS_WAIT};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(calls_have_the_answer, &answers[0]),
        cmocka_unit_test_prestate(calls_have_the_answer, &answers[1]),
        cmocka_unit_test_prestate(calls_have_the_answer, &answers[2]),
        cmocka_unit_test_prestate(calls_have_the_answer, &answers[3]),
        cmocka_unit_test(limits_of_calls_count),
        cmocka_unit_test(other_failures_stay),
        cmocka_unit_test(files_are_written_in_any_case),
        cmocka_unit_test(the_last_rule_counts),
    };
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (argc > 2 && strcmp(argv[1], "library") == 0) {
        make_files(NULL);
        run_tasks(runs_library, argv[2]);
        return remove_files(NULL);
    }
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
