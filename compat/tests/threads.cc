// SPDX-License-Identifier: Apache-2.0
/*
 * Many threads, each with a loop and coroutines of its own. Some threads end while their coroutines
 * wait; another thread can release these afterwards. A loop with nothing to do never wakes up.
 */
#include "co_routine.h"

#include "check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

enum { CT_THREADS = 16, CT_COROUTINES = 20, CT_ROUNDS = 10 };

struct pair_t {
    int fds[2];
    int *ct_done;
};

static void *ping(void *arg)
{
    const pair_t *pair = static_cast<pair_t *>(arg);
    co_enable_hook_sys();
    for (int i = 0; i < CT_ROUNDS; i++) {
        char byte = static_cast<char>(i), got = 0;
        CHECK(write(pair->fds[0], &byte, 1) == 1 && read(pair->fds[0], &got, 1) == 1);
        CHECK(got == byte);
    }
    ++*pair->ct_done;
    return NULL;
}

static void *pong(void *arg)
{
    const pair_t *pair = static_cast<pair_t *>(arg);
    char byte;
    co_enable_hook_sys();
    while (read(pair->fds[1], &byte, 1) == 1) { /* for ever */
        CHECK(write(pair->fds[1], &byte, 1) == 1);
    }
    return NULL;
}

static int end_when_done(void *ct_done)
{
    return *static_cast<int *>(ct_done) == CT_COROUTINES ? -1 : 0;
}

struct thread_t {
    pthread_t thread;
    std::vector<pair_t> pairs;
    std::vector<stCoRoutine_t *> all;
    int ct_done;
};

static void *run_thread(void *arg)
{
    thread_t *thread = static_cast<thread_t *>(arg);
    thread->pairs.resize(CT_COROUTINES);
    stCoRoutineAttr_t attr;
    attr.share_stack = co_alloc_sharestack(2, 64 * 1024);
    for (size_t i = 0; i < CT_COROUTINES; i++) {
        pair_t *pair = &thread->pairs[i];
        pair->ct_done = &thread->ct_done;
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair->fds) == 0);
        stCoRoutine_t *co;
        CHECK(co_create(&co, i % 2 == 0 ? &attr : NULL, pong, pair) == 0);
        co_resume(co);
        thread->all.push_back(co);
        CHECK(co_create(&co, i % 3 == 0 ? &attr : NULL, ping, pair) == 0);
        co_resume(co);
        thread->all.push_back(co);
    }
    co_eventloop(co_get_epoll_ct(), end_when_done, &thread->ct_done);
    return NULL;
}

static void run_threads()
{
    std::vector<thread_t> threads(CT_THREADS);
    for (size_t i = 0; i < threads.size(); i++) {
        threads[i].ct_done = 0;
        CHECK(pthread_create(&threads[i].thread, NULL, run_thread, &threads[i]) == 0);
    }
    for (size_t i = 0; i < threads.size(); i++) {
        CHECK(pthread_join(threads[i].thread, NULL) == 0);
        CHECK(threads[i].ct_done == CT_COROUTINES);
        for (size_t j = 0; j < threads[i].pairs.size(); j++) {
            close(threads[i].pairs[j].fds[0]);
            close(threads[i].pairs[j].fds[1]);
        }
        for (size_t j = 0; j < threads[i].all.size(); j++) {
            co_release(threads[i].all[j]);
        }
    }
}

/* ==== Idle =================================================================================== */

static int idle_thread; /* atomic */

static void *waits_for_ever(void *)
{
    co_poll(co_get_epoll_ct(), NULL, 0, -1);
    return NULL;
}

static void *is_idle(void *)
{
    stCoRoutine_t *co;
    CHECK(co_create(&co, NULL, waits_for_ever, NULL) == 0);
    co_resume(co);
    __atomic_store_n(&idle_thread, static_cast<int>(syscall(SYS_gettid)), __ATOMIC_RELEASE);
    co_eventloop(co_get_epoll_ct(), NULL, NULL);
    return NULL;
}

/* The number of times that the thread has gone to sleep. */
static long ct_sleeps(int thread)
{
    char name[100], line[200];
    long ct = -1;
    snprintf(name, sizeof(name), "/proc/self/task/%d/status", thread);
    FILE *file = fopen(name, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        sscanf(line, "voluntary_ctxt_switches: %ld", &ct);
    }
    if (file != NULL) {
        fclose(file);
    }
    return ct;
}

/* The thread may take a while to become idle, but then it stays so. */
static void check_idle()
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, is_idle, NULL) == 0);
    CHECK(pthread_detach(thread) == 0);
    int number;
    while ((number = __atomic_load_n(&idle_thread, __ATOMIC_ACQUIRE)) == 0) {
        usleep(1000);
    }
    int ct_still = 0;
    for (int i = 0; i < 200 && ct_still < 3; i++) {
        long ct = ct_sleeps(number);
        usleep(100000);
        ct_still = ct > 0 && ct_sleeps(number) == ct ? ct_still + 1 : 0;
    }
    CHECK(ct_still == 3);
}

int main()
{
    run_threads();
    check_idle();
    return ct_failed != 0;
}
