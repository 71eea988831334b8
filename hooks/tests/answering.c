// SPDX-License-Identifier: Apache-2.0
/* A library whose name decides what its calls return in a task that is late. Some of these calls
 * are hooks that call other hooks. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sys/syscall.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

int answering_read(int fd);
int answering_syscall(int fd);
int answering_lock(int fd);

int answering_read(int fd)
{
    char byte;
    long result = read(fd, &byte, 1);
    return (int)result;
}

int answering_syscall(int fd)
{
    char byte;
    long result = syscall(SYS_read, fd, &byte, 1);
    return (int)result;
}

typedef struct {
    mtx_t mutex;
    thrd_t thread;
    int fd, is_locked; /* the second is atomic */
} lock_t;

/* Has the mutex until a byte comes. */
static int holds(void *arg)
{
    lock_t *lock = (lock_t *)arg;
    mtx_lock(&lock->mutex);
    __atomic_store_n(&lock->is_locked, 1, __ATOMIC_SEQ_CST);
    int result = answering_read(lock->fd);
    mtx_unlock(&lock->mutex);
    return result;
}

int answering_lock(int fd)
{
    lock_t lock = {.fd = fd};
    struct timespec end;
    mtx_init(&lock.mutex, mtx_timed);
    thrd_create(&lock.thread, holds, &lock);
    while (!__atomic_load_n(&lock.is_locked, __ATOMIC_SEQ_CST)) {
    }
    timespec_get(&end, TIME_UTC);
    end.tv_sec += 3600;
    int result = mtx_timedlock(&lock.mutex, &end);
    while (thrd_join(lock.thread, NULL) != thrd_success) {
    }
    return result == thrd_success ? 0 : -1;
}
