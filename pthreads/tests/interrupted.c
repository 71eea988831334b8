// SPDX-License-Identifier: Apache-2.0
/* Signals by pthread_kill() to a thread that waits, in each call that may: tells which calls fail,
 * with and without SA_RESTART. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LONG 600      /* s, longer than the test */
#define CT_HANDLED 10 /* calls of the handler in a wait that goes on */

static int ct_handled, has_ended; /* atomic */
static int is_free;               /* what the calls wait for has come; atomic */
static int pipes[2], sockets[2], listener, file, epoll;
static sem_t semaphore;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static pid_t child;
static mqd_t queue;
static int old_queue, semaphores;
static uint32_t word;
static char path[64];
static const struct timespec a_long_time = {LONG, 0};

static void handle(int number)
{
    CHECK(number == SIGUSR1);
    __atomic_add_fetch(&ct_handled, 1, __ATOMIC_SEQ_CST);
}

static struct timespec end_by(clockid_t clock)
{
    struct timespec time;
    CHECK(clock_gettime(clock, &time) == 0);
    time.tv_sec += LONG;
    return time;
}

static long of_error(int error)
{
    errno = error;
    return error == 0 ? 0 : -1;
}

/* ==== Calls ================================================================================== */

static long call_sleep(void)
{
    return sleep(LONG) > LONG / 2 ? of_error(EINTR) : 0;
}

static long call_usleep(void)
{
    return usleep(LONG * 1000000u);
}

static long call_nanosleep(void)
{
    struct timespec left = {0, 0};
    long result = nanosleep(&a_long_time, &left);
    CHECK(result == 0 || left.tv_sec > LONG / 2);
    return result;
}

static long call_clock_nanosleep(void)
{
    struct timespec time = end_by(CLOCK_REALTIME);
    return of_error(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &time, NULL));
}

static long call_pause(void)
{
    return pause();
}

static long call_sigsuspend(void)
{
    sigset_t set;
    sigemptyset(&set);
    return sigsuspend(&set);
}

static long call_sigtimedwait(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    return sigtimedwait(&set, NULL, &a_long_time);
}

static long call_read_pipe(void)
{
    char byte;
    return read(pipes[0], &byte, 1);
}

static long call_read_socket(void)
{
    char byte;
    return read(sockets[0], &byte, 1);
}

static long call_recv_with_timeout(void)
{
    struct timeval time = {LONG, 0}, never = {0, 0};
    char byte;
    CHECK(setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)) == 0);
    long result = recv(sockets[0], &byte, 1, 0);
    int error = errno;
    CHECK(setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &never, sizeof(never)) == 0);
    errno = error;
    return result;
}

static void free_input(void)
{
    CHECK(write(pipes[1], "p", 1) == 1 && write(sockets[1], "s", 1) == 1);
}

static void fill_pipe(void)
{
    char bytes[4096];
    int flags = fcntl(pipes[1], F_GETFL);
    memset(bytes, 0, sizeof(bytes));
    CHECK(fcntl(pipes[1], F_SETFL, flags | O_NONBLOCK) == 0);
    while (write(pipes[1], bytes, sizeof(bytes)) > 0) {
    }
    CHECK(fcntl(pipes[1], F_SETFL, flags) == 0);
}

static long call_write_pipe(void)
{
    return write(pipes[1], "0123456789", 10);
}

static void free_output(void)
{
    char bytes[4096];
    for (int i = 0; i < 4; i++) {
        CHECK(read(pipes[0], bytes, sizeof(bytes)) > 0);
    }
}

static long call_accept(void)
{
    int fd = accept(listener, NULL, NULL);
    return fd < 0 ? fd : close(fd);
}

static void free_accept(void)
{
    struct sockaddr_un address;
    socklen_t sz = sizeof(address);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &sz) == 0);
    CHECK(connect(fd, (struct sockaddr *)&address, sz) == 0 && close(fd) == 0);
}

static long call_poll(void)
{
    struct pollfd polled = {pipes[0], POLLIN, 0};
    return poll(&polled, 1, LONG * 1000);
}

static long call_ppoll(void)
{
    struct pollfd polled = {pipes[0], POLLIN, 0};
    sigset_t set;
    sigemptyset(&set);
    return ppoll(&polled, 1, NULL, &set);
}

static long call_select(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pipes[0], &set);
    return select(pipes[0] + 1, &set, NULL, NULL, NULL);
}

static long call_epoll_wait(void)
{
    struct epoll_event event;
    return epoll_wait(epoll, &event, 1, -1);
}

static long call_sem_wait(void)
{
    return sem_wait(&semaphore);
}

static long call_sem_timedwait(void)
{
    struct timespec time = end_by(CLOCK_REALTIME);
    return sem_timedwait(&semaphore, &time);
}

static void free_semaphore(void)
{
    CHECK(sem_post(&semaphore) == 0);
}

static void run_child(void)
{
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        pause();
        _exit(0);
    }
}

static void end_child(void)
{
    kill(child, SIGKILL);
}

static long call_waitpid(void)
{
    long result = waitpid(child, NULL, 0);
    return result == child ? 0 : result;
}

static long call_wait(void)
{
    long result = wait(NULL);
    return result == child ? 0 : result;
}

static long call_waitid(void)
{
    siginfo_t info;
    return waitid(P_PID, (id_t)child, &info, WEXITED);
}

static void reap_child(void)
{
    end_child();
    waitpid(child, NULL, 0);
}

static long call_mq_receive(void)
{
    char text[16];
    return mq_receive(queue, text, sizeof(text), NULL);
}

static void free_queue(void)
{
    CHECK(mq_send(queue, "text", 4, 0) == 0);
}

static long call_msgrcv(void)
{
    struct msgbuf message;
    return msgrcv(old_queue, &message, 1, 0, 0);
}

static long call_semop(void)
{
    struct sembuf take = {0, -1, 0};
    return semop(semaphores, &take, 1);
}

static long call_flock(void)
{
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    long result = flock(fd, LOCK_EX);
    int error = errno;
    CHECK(close(fd) == 0);
    errno = error;
    return result;
}

static void take_file(void)
{
    CHECK(flock(file, LOCK_EX) == 0);
}

static void free_file(void)
{
    CHECK(flock(file, LOCK_UN) == 0);
}

static long call_futex(void)
{
    return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static long call_futex_with_timeout(void)
{
    return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &a_long_time, NULL, 0);
}

static void free_word(void)
{
    CHECK(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 1);
}

static long call_mutex_lock(void)
{
    long result = of_error(pthread_mutex_lock(&mutex));
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return result;
}

static long call_mutex_timedlock(void)
{
    struct timespec time = end_by(CLOCK_REALTIME);
    long result = of_error(pthread_mutex_timedlock(&mutex, &time));
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return result;
}

static void take_mutex(void)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
}

static void free_mutex(void)
{
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static long call_rdlock(void)
{
    long result = of_error(pthread_rwlock_rdlock(&rwlock));
    CHECK(pthread_rwlock_unlock(&rwlock) == 0);
    return result;
}

static void take_rwlock(void)
{
    CHECK(pthread_rwlock_wrlock(&rwlock) == 0);
}

static void free_rwlock(void)
{
    CHECK(pthread_rwlock_unlock(&rwlock) == 0);
}

static long call_cond_wait(void)
{
    int error = 0;
    CHECK(pthread_mutex_lock(&mutex) == 0);
    while (!is_free && error == 0) {
        error = pthread_cond_wait(&cond, &mutex);
    }
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return of_error(error);
}

static void free_cond(void)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    is_free = 1;
    CHECK(pthread_cond_signal(&cond) == 0 && pthread_mutex_unlock(&mutex) == 0);
}

static long call_barrier_wait(void)
{
    int result = pthread_barrier_wait(&barrier);
    CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
    return 0;
}

static void free_barrier(void)
{
    pthread_barrier_wait(&barrier);
}

static void *waits_to_be_freed(void *arg)
{
    while (!__atomic_load_n(&is_free, __ATOMIC_ACQUIRE)) {
        usleep(1000);
    }
    return arg;
}

static long call_join(void)
{
    result_of(start(waits_to_be_freed, NULL));
    return 0;
}

static void set_free(void)
{
    __atomic_store_n(&is_free, 1, __ATOMIC_RELEASE);
}

static long call_open_fifo(void)
{
    int fd = open("fifo", O_RDONLY);
    return fd < 0 ? fd : close(fd);
}

static void free_fifo(void)
{
    int fd = open("fifo", O_WRONLY);
    CHECK(fd >= 0 && close(fd) == 0);
}

static void nothing(void)
{
}

/* ==== Each call ============================================================================== */

typedef struct {
    const char *name;
    long (*call)(void);
    void (*begin)(void);
    void (*free)(void); /* ends a wait that goes on */
    void (*end)(void);  /* after one that has failed */
} call_t;

#define CALL(name, begin, free, end)                                                               \
    {                                                                                              \
#name, call_##name, begin, free, end                                                       \
    }
#define ENDS(name) CALL(name, nothing, nothing, nothing)

static const call_t calls[] = {
    ENDS(sleep),
    ENDS(usleep),
    ENDS(nanosleep),
    ENDS(clock_nanosleep),
    ENDS(pause),
    ENDS(sigsuspend),
    ENDS(sigtimedwait),
    CALL(read_pipe, nothing, free_input, nothing),
    CALL(read_socket, nothing, free_input, nothing),
    ENDS(recv_with_timeout),
    CALL(write_pipe, fill_pipe, free_output, nothing),
    CALL(accept, nothing, free_accept, nothing),
    ENDS(poll),
    ENDS(ppoll),
    ENDS(select),
    ENDS(epoll_wait),
    CALL(sem_wait, nothing, free_semaphore, nothing),
    ENDS(sem_timedwait),
    CALL(waitpid, run_child, end_child, reap_child),
    CALL(wait, run_child, end_child, reap_child),
    CALL(waitid, run_child, end_child, reap_child),
    CALL(mq_receive, nothing, free_queue, nothing),
    ENDS(msgrcv),
    ENDS(semop),
    CALL(flock, take_file, free_file, free_file),
    CALL(futex, nothing, free_word, nothing),
    ENDS(futex_with_timeout),
    CALL(mutex_lock, take_mutex, free_mutex, nothing),
    CALL(mutex_timedlock, take_mutex, free_mutex, nothing),
    CALL(rdlock, take_rwlock, free_rwlock, nothing),
    CALL(cond_wait, nothing, free_cond, nothing),
    CALL(barrier_wait, nothing, free_barrier, nothing),
    CALL(join, nothing, set_free, nothing),
    CALL(open_fifo, nothing, free_fifo, nothing),
};

static long result;
static int error;

static void *makes_call(void *arg)
{
    result = ((const call_t *)arg)->call();
    error = errno;
    __atomic_store_n(&has_ended, 1, __ATOMIC_RELEASE);
    return arg;
}

/* Sends signals until the call has failed, or goes on after some. */
static void interrupt(const call_t *call, const char *flags)
{
    has_ended = ct_handled = is_free = 0;
    call->begin();
    pthread_t thread = start(makes_call, (void *)(uintptr_t)call);
    int ct = 0;
    while (!__atomic_load_n(&has_ended, __ATOMIC_ACQUIRE) && ct < CT_HANDLED) {
        int before = ct;
        CHECK(pthread_kill(thread, SIGUSR1) == 0);
        while ((ct = __atomic_load_n(&ct_handled, __ATOMIC_SEQ_CST)) == before &&
               !__atomic_load_n(&has_ended, __ATOMIC_ACQUIRE)) {
            usleep(100);
        }
        usleep(1000);
    }
    int goes_on = !__atomic_load_n(&has_ended, __ATOMIC_ACQUIRE);
    if (goes_on) {
        CHECK(call->free != nothing);
        call->free();
    } else {
        call->end();
    }
    result_of(thread);
    printf("%s%s: %s, then %s\n", call->name, flags, goes_on ? "goes on" : "ends",
           result >= 0 ? "is done" : strerror(error));
}

/* ==== Their waits ============================================================================ */

static void open_all(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    struct sockaddr_un address = {.sun_family = AF_UNIX}; /* gets a name of its own */
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 16};
    char name[32];
    CHECK(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof(sa_family_t)) == 0);
    CHECK(listen(listener, 1) == 0 && (epoll = epoll_create1(0)) >= 0);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &event) == 0);
    CHECK(sem_init(&semaphore, 0, 0) == 0 && pthread_barrier_init(&barrier, NULL, 2) == 0);
    snprintf(name, sizeof(name), "/aco-test-%d", getpid());
    queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    CHECK(queue >= 0 && mq_unlink(name) == 0);
    CHECK((old_queue = msgget(IPC_PRIVATE, 0600)) >= 0);
    CHECK((semaphores = semget(IPC_PRIVATE, 1, 0600)) >= 0);
    strcpy(path, "/tmp/aco-test-XXXXXX");
    CHECK(mkdtemp(path) != NULL && chdir(path) == 0 && mkfifo("fifo", 0600) == 0);
    strcat(path, "/file");
    CHECK((file = open(path, O_RDWR | O_CREAT, 0600)) >= 0);
}

static void close_all(void)
{
    CHECK(msgctl(old_queue, IPC_RMID, NULL) == 0 && semctl(semaphores, 0, IPC_RMID) == 0);
    CHECK(unlink(path) == 0 && unlink("fifo") == 0);
    *strrchr(path, '/') = '\0';
    CHECK(rmdir(path) == 0);
}

static void drain(void)
{
    int unread;
    char bytes[4096];
    struct pollfd polled[2] = {{pipes[0], POLLIN, 0}, {sockets[0], POLLIN, 0}};
    while (poll(polled, 2, 0) > 0) {
        unread = polled[0].revents != 0 ? pipes[0] : sockets[0];
        CHECK(read(unread, bytes, sizeof(bytes)) > 0);
    }
}

int main(void)
{
    struct sigaction action = {.sa_handler = handle};
    open_all();
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        for (int restarts = 0; restarts <= 1; restarts++) {
            action.sa_flags = restarts ? SA_RESTART : 0;
            CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
            interrupt(&calls[i], restarts ? " with SA_RESTART" : "");
            drain();
        }
    }
    close_all();
    return 0;
}
