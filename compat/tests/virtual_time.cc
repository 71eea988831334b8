// SPDX-License-Identifier: Apache-2.0
/* Long waits, in a time that goes on while the loop sleeps. */
// build: -Wl,--wrap=clock_gettime,--wrap=epoll_wait,--wrap=syscall
#include "co_routine.h"

#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static const int64_t SECOND = 1000000000;
static int64_t now = INT64_MAX / 8; /* ns; far behind the kernel's time, which no timer reaches */
static int longest_sleep;           /* ms */

extern "C" {
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_epoll_wait(int epoll, struct epoll_event *events, int ct, int timeout);
int __real_epoll_wait(int epoll, struct epoll_event *events, int ct, int timeout);
long __wrap_syscall(long number, ...);
long __real_syscall(long number, ...);

int __wrap_clock_gettime(clockid_t, struct timespec *t)
{
    t->tv_sec = static_cast<time_t>(now / SECOND);
    t->tv_nsec = static_cast<long>(now % SECOND);
    return 0;
}

int __wrap_epoll_wait(int epoll, struct epoll_event *events, int ct, int timeout)
{
    int got = __real_epoll_wait(epoll, events, ct, timeout < 0 ? timeout : 0);
    if (got == 0) {
        now += timeout * (SECOND / 1000);
        longest_sleep = timeout > longest_sleep ? timeout : longest_sleep;
    }
    return got;
}

/* Has no epoll_pwait2(). */
long __wrap_syscall(long number, ...)
{
    if (number == SYS_epoll_pwait2) {
        errno = ENOSYS;
        return -1;
    }
    long args[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        args[i] = va_arg(list, long);
    }
    va_end(list);
    return __real_syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]);
}
}

/* ==== The loop =============================================================================== */

static int count_to_20(void *ct)
{
    return ++*static_cast<int *>(ct) == 20 ? -1 : 0;
}

static void check_idle_loop(int expected)
{
    int ct = 0;
    longest_sleep = 0;
    co_eventloop(co_get_epoll_ct(), count_to_20, &ct);
    CHECK(longest_sleep == expected);
}

static void test_idle_interval()
{
    check_idle_loop(64);
    co_set_idle_interval(10);
    check_idle_loop(10);
    co_set_idle_interval(0);
    check_idle_loop(1);
    co_set_idle_interval(64);
}

/* ==== Connections ============================================================================ */

static struct sockaddr_in address;

static int new_socket(int flags)
{
    int fd = socket(AF_INET, SOCK_STREAM | flags, 0);
    CHECK(fd >= 0);
    return fd;
}

static int connect_by(int fd)
{
    return connect(fd, reinterpret_cast<struct sockaddr *>(&address), sizeof(address));
}

static void *connects_in_vain(void *is_done)
{
    co_enable_hook_sys();
    int64_t begun = now;
    int fd = new_socket(0), other = new_socket(0);
    CHECK(connect_by(fd) == -1 && errno == ETIMEDOUT);
    CHECK(now - begun >= 75 * SECOND && now - begun < 76 * SECOND);
    struct timeval own = {2, 0};
    CHECK(setsockopt(other, SOL_SOCKET, SO_SNDTIMEO, &own, sizeof(own)) == 0);
    begun = now;
    CHECK(connect_by(other) == -1 && errno == EINPROGRESS);
    CHECK(now - begun >= 2 * SECOND && now - begun < 3 * SECOND);
    close(fd);
    close(other);
    *static_cast<int *>(is_done) = 1;
    return NULL;
}

static int is_set(void *flag)
{
    return *static_cast<int *>(flag) != 0 ? -1 : 0;
}

/* The queue of a listener is full, so the kernel drops what asks for a connection. */
static void test_connect()
{
    int listener = new_socket(0), fillers[4], is_done = 0;
    socklen_t sz = sizeof(address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct sockaddr *any = reinterpret_cast<struct sockaddr *>(&address);
    CHECK(bind(listener, any, sz) == 0 && listen(listener, 0) == 0);
    CHECK(getsockname(listener, any, &sz) == 0);
    for (int i = 0; i < 4; i++) {
        fillers[i] = new_socket(SOCK_NONBLOCK);
        CHECK(connect_by(fillers[i]) == 0 || errno == EINPROGRESS);
    }
    co_set_default_timeout(1000); /* is not for connections */
    stCoRoutine_t *co;
    CHECK(co_create(&co, NULL, connects_in_vain, &is_done) == 0);
    co_resume(co);
    co_eventloop(co_get_epoll_ct(), is_set, &is_done);
    co_release(co);
    co_set_default_timeout(0);
    for (int i = 0; i < 4; i++) {
        close(fillers[i]);
    }
    close(listener);
}

int main()
{
    test_idle_interval();
    test_connect();
    return ct_failed != 0;
}
