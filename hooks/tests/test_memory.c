// SPDX-License-Identifier: Apache-2.0
// not stress: tasks use what lies on the stack of another one, which moves there
// build: -Wl,--wrap=malloc
/* Calls that get no memory fail with an error of theirs, and leave everything as it was. */
#include "threads.h"

#include "aco_hooks.h"

#include <aio.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/stat.h>

static __thread volatile int is_short; /* libc declares some calls as if they called nothing */

void *__real_malloc(size_t sz);
void *__wrap_malloc(size_t sz);
void *__wrap_malloc(size_t sz)
{
    if (is_short) {
        errno = ENOMEM;
        return NULL;
    }
    return __real_malloc(sz);
}

/* The value of a call without memory. */
#define SHORT(call)                                                                                \
    __extension__({                                                                                \
        is_short = 1;                                                                              \
        __typeof__(call) value_of_call = (call);                                                   \
        is_short = 0;                                                                              \
        value_of_call;                                                                             \
    })

static char folder[] = "/tmp/test_memory.XXXXXX", path[64];

/* ==== Descriptors and files ================================================================== */

static void *uses_descriptors(void *arg)
{
    int fds[2];
    char byte;
    sigset_t none;
    fd_set set;
    struct timespec second = {1, 0};
    CHECK(pipe(fds) == 0);
    struct pollfd polled = {fds[0], POLLIN, 0};
    sigemptyset(&none);
    FD_ZERO(&set);
    FD_SET(fds[0], &set);
    CHECK_FAILS(SHORT(poll(&polled, 1, 1000)), ENOMEM);
    CHECK_FAILS(SHORT(ppoll(&polled, 1, &second, &none)), ENOMEM);
    CHECK_FAILS(SHORT(select(fds[0] + 1, &set, NULL, NULL, NULL)), ENOMEM);
    CHECK(FD_ISSET(fds[0], &set));
    struct aiocb block = {.aio_fildes = fds[0], .aio_buf = &byte, .aio_nbytes = 1};
    const struct aiocb *list[] = {&block};
    CHECK(aio_read(&block) == 0);
    CHECK_FAILS(SHORT(aio_suspend(list, 1, NULL)), EAGAIN);
    CHECK(write(fds[1], "x", 1) == 1 && aio_suspend(list, 1, NULL) == 0);
    CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
    return arg;
}

static void *uses_files(void *arg)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    snprintf(path, sizeof(path), "%s/fifo", folder);
    CHECK(mkfifo(path, 0600) == 0);
    CHECK_FAILS(SHORT(open(path, O_RDONLY)), ENOMEM);
    CHECK(unlink(path) == 0);
    snprintf(path, sizeof(path), "%s/file", folder);
    int a = open(path, O_RDWR | O_CREAT, 0600), b = open(path, O_RDWR);
    CHECK(a >= 0 && b >= 0 && flock(a, LOCK_EX) == 0 && fcntl(a, F_OFD_SETLKW, &range) == 0);
    CHECK_FAILS(SHORT(flock(b, LOCK_EX)), ENOLCK);
    CHECK_FAILS(SHORT(fcntl(b, F_OFD_SETLKW, &range)), ENOLCK);
    CHECK(close(a) == 0 && flock(b, LOCK_EX) == 0 && close(b) == 0 && unlink(path) == 0);
    CHECK_FAILS(SHORT(system("true")), ENOMEM);
    return arg;
}

static void descriptors_and_files_are_left_alone(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
#ifndef __SANITIZE_THREAD__ /* TSan does not know the threads of aio_read() */
    run_tasks(uses_descriptors, NULL);
#else
    (void)uses_descriptors;
#endif
    run_tasks(uses_files, NULL);
    assert_int_equal(rmdir(folder), 0);
}

/* ==== Threads, keys and names ================================================================ */

static int may_end;

static void *ends_when_it_may(void *arg)
{
    while (!__atomic_load_n(&may_end, __ATOMIC_SEQ_CST)) {
        usleep(100);
    }
    return arg;
}

/* libcrypto makes its keys in a function of this name. */
static __attribute__((noinline)) int CRYPTO_THREAD_init_local(pthread_key_t *key)
{
    int error = pthread_key_create(key, NULL);
    __asm__ volatile(""); /* no tail call */
    return error;
}

static void *uses_threads(void *arg)
{
    pthread_t thread;
    pthread_key_t key;
    void *result = NULL;
    CHECK(pthread_create(&thread, NULL, ends_when_it_may, &may_end) == 0);
    CHECK(SHORT(pthread_join(thread, &result)) == EAGAIN && result == NULL);
    __atomic_store_n(&may_end, 1, __ATOMIC_SEQ_CST);
    CHECK(pthread_join(thread, &result) == 0 && result == &may_end);
    CHECK(CRYPTO_THREAD_init_local(&key) == 0);
    CHECK(SHORT(pthread_setspecific(key, &key)) == ENOMEM && pthread_getspecific(key) == NULL);
    CHECK(pthread_setspecific(key, &key) == 0 && pthread_getspecific(key) == &key);
    CHECK(pthread_key_delete(key) == 0);
    return arg;
}

static void *looks_up(void *arg)
{
    struct hostent host, *found = &host;
    char buf[1000];
    int h_error = 0;
    CHECK_FAILS((SHORT(gethostbyname("localhost")) == NULL ? -1 : 0), ENOMEM);
    CHECK(gethostbyname("127.0.0.1") != NULL); /* the task has a place for results now */
    CHECK_FAILS((SHORT(gethostbyname("localhost")) == NULL ? -1 : 0), ENOMEM);
    CHECK(h_errno == NETDB_INTERNAL);
    CHECK(SHORT(gethostbyname_r("localhost", &host, buf, sizeof(buf), &found, &h_error)) == ENOMEM);
    CHECK(found == NULL && h_error == NETDB_INTERNAL);
    CHECK(gethostbyname("localhost") != NULL);
    return arg;
}

static void threads_keys_and_names_are_left_alone(void **state)
{
    (void)state;
    run_tasks(uses_threads, NULL);
    run_tasks(looks_up, NULL);
}

/* ==== Settings =============================================================================== */

static void settings_are_left_alone(void **state)
{
    (void)state;
    errno = 0;
    assert_int_equal(SHORT(aco_hooks_on_deadline("libx", ACO_HOOKS_WAIT)), -1);
    assert_int_equal(errno, ENOMEM);
    errno = 0;
    assert_int_equal(SHORT(aco_hooks_own_keys("libx")), -1);
    assert_int_equal(errno, ENOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_and_files_are_left_alone),
        cmocka_unit_test(threads_keys_and_names_are_left_alone),
        cmocka_unit_test(settings_are_left_alone),
    };
    alarm(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
