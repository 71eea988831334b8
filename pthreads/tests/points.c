// SPDX-License-Identifier: Apache-2.0
/* Cancellation points: in which calls a thread ends that was cancelled before, or meanwhile, and
 * which go on. The first half are those of POSIX. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_t other;
static sem_t semaphore, is_ready;
static int fds[2], file;
static char bytes[64];
static struct iovec iov = {bytes, 1};
static struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
static struct timespec soon = {0, 1000000}, late; /* on CLOCK_REALTIME */
static mqd_t queue;
static int old_queue, ignored;
static sigset_t none;

/* Each of these is made by a thread that was cancelled. */
#define CALLS(X)                                                                                   \
    X(accept(fds[0], NULL, NULL))                                                                  \
    X(clock_nanosleep(CLOCK_MONOTONIC, 0, &soon, NULL))                                            \
    X(close(-1))                                                                                   \
    X(cnd_timedwait((cnd_t *)&cond, (mtx_t *)&mutex, &late))                                       \
    X(connect(fds[0], NULL, 0))                                                                    \
    X(creat("/dev/null", 0600))                                                                    \
    X(fdatasync(file))                                                                             \
    X(fsync(file))                                                                                 \
    X(mq_receive(queue, bytes, sizeof(bytes), NULL))                                               \
    X(mq_send(queue, bytes, 1, 0))                                                                 \
    X(mq_timedreceive(queue, bytes, sizeof(bytes), NULL, &late))                                   \
    X(mq_timedsend(queue, bytes, 1, 0, &late))                                                     \
    X(msgrcv(old_queue, bytes, 1, 0, IPC_NOWAIT))                                                  \
    X(msgsnd(old_queue, bytes, 1, IPC_NOWAIT))                                                     \
    X(msync(NULL, 0, MS_ASYNC))                                                                    \
    X(nanosleep(&soon, NULL))                                                                      \
    X(open("/dev/null", O_RDONLY))                                                                 \
    X(openat(AT_FDCWD, "/dev/null", O_RDONLY))                                                     \
    X(pause())                                                                                     \
    X(poll(NULL, 0, 1))                                                                            \
    X(ppoll(NULL, 0, &soon, &none))                                                                \
    X(pread(file, bytes, 1, 0))                                                                    \
    X(preadv(file, &iov, 1, 0))                                                                    \
    X(pselect(0, NULL, NULL, NULL, &soon, &none))                                                  \
    X(pthread_cond_timedwait(&cond, &mutex, &late))                                                \
    X(pthread_cond_wait(&cond, &mutex))                                                            \
    X(pthread_join(other, NULL))                                                                   \
    X((pthread_testcancel(), 0))                                                                   \
    X(pwrite(file, bytes, 1, 0))                                                                   \
    X(pwritev(file, &iov, 1, 0))                                                                   \
    X(read(fds[0], bytes, 1))                                                                      \
    X(readv(fds[0], &iov, 1))                                                                      \
    X(recv(fds[0], bytes, 1, 0))                                                                   \
    X(recvfrom(fds[0], bytes, 1, 0, NULL, NULL))                                                   \
    X(recvmsg(fds[0], &message, 0))                                                                \
    X(select(0, NULL, NULL, NULL, &(struct timeval){0, 1000}))                                     \
    X(sem_timedwait(&semaphore, &late))                                                            \
    X(sem_wait(&semaphore))                                                                        \
    X(send(fds[0], bytes, 1, 0))                                                                   \
    X(sendmsg(fds[0], &message, 0))                                                                \
    X(sendto(fds[0], bytes, 1, 0, NULL, 0))                                                        \
    X(sigsuspend(&none))                                                                           \
    X(sigtimedwait(&none, NULL, &soon))                                                            \
    X(sigwait(&none, &ignored))                                                                    \
    X(sigwaitinfo(&none, NULL))                                                                    \
    X(sleep(1))                                                                                    \
    X(system("true"))                                                                              \
    X(tcdrain(file))                                                                               \
    X(thrd_sleep(&soon, NULL))                                                                     \
    X(usleep(1000))                                                                                \
    X(wait(NULL))                                                                                  \
    X(wait3(NULL, 0, NULL))                                                                        \
    X(wait4(-1, NULL, 0, NULL))                                                                    \
    X(waitid(P_ALL, 0, NULL, WEXITED))                                                             \
    X(waitpid(-1, NULL, 0))                                                                        \
    X(write(file, bytes, 1))                                                                       \
    X(writev(file, &iov, 1))                                                                       \
    X(epoll_wait(-1, NULL, 1, 0))                                                                  \
    X(pthread_mutex_timedlock(&held, &late))                                                       \
    X(pthread_mutex_lock(&mutex))                                                                  \
    X(pthread_rwlock_timedrdlock(&rwlock, &late))                                                  \
    X(pthread_rwlock_rdlock(&rwlock))                                                              \
    X(flock(file, LOCK_EX | LOCK_NB))                                                              \
    X(shutdown(fds[0], SHUT_WR))                                                                   \
    X(sched_yield())                                                                               \
    X(lseek(file, 0, SEEK_SET))

static long make_call(size_t which)
{
    size_t i = 0;
#define X(call)                                                                                    \
    if (i++ == which) {                                                                            \
        return (long)(call);                                                                       \
    }
    CALLS(X)
#undef X
    return 0;
}

static const char *const texts[] = {
#define X(call) #call,
    CALLS(X)
#undef X
};

static void *is_cancelled(void *which)
{
    alarm(60);
    CHECK(pthread_cancel(pthread_self()) == 0);
    make_call((size_t)which);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
    return NULL;
}

static void *is_disabled(void *which)
{
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
    return is_cancelled(which);
}

static void *sleeps(void *arg)
{
    sleep(1000);
    return arg;
}

/* The others would wait for long, when they are not cancelled. */
static int is_short(const char *text)
{
    static const char *const waiting[] = {
        "pause", "accept",   "pthread_cond_wait", "pthread_join", "read(",       "readv",
        "recv",  "sem_wait", "sigsuspend",        "sigwait",      "sigwaitinfo", "mq_receive"};
    for (size_t i = 0; i < sizeof(waiting) / sizeof(waiting[0]); i++) {
        if (strncmp(text, waiting[i], strlen(waiting[i])) == 0) {
            return 0;
        }
    }
    return 1;
}

static void open_all(void)
{
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 16};
    char name[32], path[] = "/tmp/aco-test-XXXXXX";
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    CHECK((file = mkstemp(path)) >= 0 && unlink(path) == 0);
    CHECK(sem_init(&semaphore, 0, 0) == 0 && sem_init(&is_ready, 0, 0) == 0);
    snprintf(name, sizeof(name), "/aco-points-%d", getpid());
    CHECK((queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes)) >= 0);
    CHECK(mq_unlink(name) == 0 && (old_queue = msgget(IPC_PRIVATE, 0600)) >= 0);
    CHECK(msgctl(old_queue, IPC_RMID, NULL) == 0);
    CHECK(clock_gettime(CLOCK_REALTIME, &late) == 0); /* it has passed */
    sigemptyset(&none);
}

int main(void)
{
    open_all();
    CHECK(pthread_mutex_lock(&held) == 0);
    other = start(sleeps, NULL);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        int is_point = result_of(start(is_cancelled, (void *)i)) == PTHREAD_CANCELED;
        printf("%s: %s\n", texts[i], is_point ? "ends" : "goes on");
        pthread_mutex_unlock(&mutex);
        if (is_short(texts[i])) {
            CHECK(result_of(start(is_disabled, (void *)i)) == NULL);
            pthread_mutex_unlock(&mutex);
        }
    }
    return 0;
}
