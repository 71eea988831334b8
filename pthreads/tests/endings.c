// SPDX-License-Identifier: Apache-2.0
/* The ends of threads: by pthread_exit(), and by cancelling them where they wait. Built with and
 * without -fexceptions, which changes how cleanup handlers are found. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static char noted[100]; /* by handlers, in their order */
static int ready[2], fds[2], sockets[2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;

static void note(void *text)
{
    strcat(noted, (const char *)text);
}

static void unlock(void *locked)
{
    CHECK(pthread_mutex_unlock((pthread_mutex_t *)locked) == 0);
    note("u");
}

static void tell_ready(void)
{
    int state;
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state) == 0);
    CHECK(write(ready[1], "", 1) == 1);
    CHECK(pthread_setcancelstate(state, NULL) == 0);
}

/* ==== Where a thread waits =================================================================== */

static void read_deep(int depth)
{
    char byte;
    if (depth == 0) {
        tell_ready();
        CHECK(read(fds[0], &byte, 1) == 1);
        return;
    }
    pthread_cleanup_push(note, "d");
    read_deep(depth - 1);
    pthread_cleanup_pop(0);
}

static void *reads(void *arg)
{
    pthread_cleanup_push(note, "r");
    read_deep(3);
    pthread_cleanup_pop(1);
    return arg;
}

static void *waits_for_condition(void *arg)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    pthread_cleanup_push(unlock, &mutex);
    tell_ready();
    for (;;) {
        CHECK(pthread_cond_wait(&cond, &mutex) == 0);
    }
    pthread_cleanup_pop(1);
    return arg;
}

#define WAITS(name, call)                                                                          \
    static void *name(void *arg)                                                                   \
    {                                                                                              \
        pthread_cleanup_push(note, "w");                                                           \
        tell_ready();                                                                              \
        (void)!(call);                                                                             \
        note(" returned");                                                                         \
        pthread_cleanup_pop(1);                                                                    \
        return arg;                                                                                \
    }
WAITS(waits_for_semaphore, sem_wait(&semaphore))
WAITS(sleeps, sleep(1000))
WAITS(naps, nanosleep(&((struct timespec){1000, 0}), NULL))
WAITS(pauses, pause())
WAITS(receives, recv(sockets[0], &((char[1]){0}), 1, 0))
WAITS(polls, poll(&((struct pollfd){fds[0], POLLIN, 0}), 1, -1))
WAITS(joins, pthread_join(*(pthread_t *)arg, NULL))

static void *computes(void *arg)
{
    pthread_cleanup_push(note, "c");
    tell_ready();
    for (;;) {
        pthread_testcancel();
        sched_yield();
    }
    pthread_cleanup_pop(1);
    return arg;
}

static void cancel_in(void *(*fn)(void *), void *arg, const char *expected)
{
    char byte;
    noted[0] = '\0';
    pthread_t thread = start(fn, arg);
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(result_of(thread) == PTHREAD_CANCELED);
    if (strcmp(noted, expected) != 0) {
        fprintf(stderr, "noted '%s', not '%s'\n", noted, expected);
        exit(EXIT_FAILURE);
    }
}

/* ==== Cases ================================================================================== */

static void waits_are_cancelled(void)
{
    cancel_in(reads, NULL, "dddr");
    cancel_in(waits_for_condition, NULL, "u");
    CHECK(pthread_mutex_trylock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
    cancel_in(waits_for_semaphore, NULL, "w");
    cancel_in(sleeps, NULL, "w");
    cancel_in(naps, NULL, "w");
    cancel_in(pauses, NULL, "w");
    cancel_in(receives, NULL, "w");
    cancel_in(polls, NULL, "w");
    cancel_in(computes, NULL, "c");
}

static void a_thread_that_was_to_be_joined_can_be_joined_again(void)
{
    char byte;
    pthread_t thread = start(reads, NULL);
    CHECK(read(ready[0], &byte, 1) == 1);
    cancel_in(joins, &thread, "w");
    CHECK(pthread_cancel(thread) == 0);
    CHECK(result_of(thread) == PTHREAD_CANCELED);
}

static void *is_disabled(void *arg)
{
    int state, type;
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state) == 0);
    CHECK(state == PTHREAD_CANCEL_ENABLE);
    CHECK(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type) == 0);
    CHECK(type == PTHREAD_CANCEL_DEFERRED && pthread_setcanceltype(9, NULL) == EINVAL);
    CHECK(write(ready[1], "", 1) == 1);
    CHECK(sem_wait(&semaphore) == 0 && usleep(1000) == 0);
    note("x");
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0);
    CHECK(state == PTHREAD_CANCEL_DISABLE);
    pthread_testcancel();
    note("not cancelled");
    return arg;
}

static void cancelling_can_be_disabled(void)
{
    char byte;
    noted[0] = '\0';
    pthread_t thread = start(is_disabled, NULL);
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(sem_post(&semaphore) == 0);
    CHECK(result_of(thread) == PTHREAD_CANCELED);
    CHECK(strcmp(noted, "x") == 0);
}

static void *cancels_itself(void *arg)
{
    CHECK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL) == 0);
    CHECK(pthread_cancel(pthread_self()) == 0);
    note("not cancelled");
    return arg;
}

static void exit_deep(int depth, void *result)
{
    pthread_cleanup_push(note, "e");
    if (depth == 0) {
        pthread_exit(result);
    }
    exit_deep(depth - 1, result);
    pthread_cleanup_pop(1);
}

static void *exits(void *result)
{
    exit_deep(3, result);
    return NULL;
}

static void *sleeps_a_little(void *arg)
{
    usleep(1000);
    return arg;
}

static void threads_end_early(void)
{
    noted[0] = '\0';
    CHECK(result_of(start(exits, noted)) == noted && strcmp(noted, "eeee") == 0);
    noted[0] = '\0';
    CHECK(result_of(start(cancels_itself, NULL)) == PTHREAD_CANCELED && noted[0] == '\0');
    pthread_t thread = start(sleeps_a_little, NULL); /* before it has begun, perhaps */
    CHECK(pthread_cancel(thread) == 0 && result_of(thread) == PTHREAD_CANCELED);
    thread = start(sleeps_a_little, NULL);
    usleep(20000);
    pthread_cancel(thread); /* it may have ended */
    result_of(thread);
}

int main(void)
{
    CHECK(pipe(ready) == 0 && pipe(fds) == 0 && sem_init(&semaphore, 0, 0) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    waits_are_cancelled();
    a_thread_that_was_to_be_joined_can_be_joined_again();
    cancelling_can_be_disabled();
    threads_end_early();
    puts("all held");
    return 0;
}
