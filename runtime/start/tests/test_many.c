// SPDX-License-Identifier: Apache-2.0
/*
 * Large numbers at a time, and clients that misbehave:
 *
 *     test_many [CONNECTIONS [TASKS [TIMERS]]]
 *
 * CONNECTIONS between two processes, all open at once, with every byte verified; TASKS that are
 * parked, and TIMERS that run, at once; a client that reads nothing, one that resets; and a server
 * that has no descriptor left for the next client.
 */
#define _GNU_SOURCE
#include "aco_runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS INT64_C(1000000) /* ns */
#define ROUNDS 3            /* questions and answers on a connection */
#define MOST 600            /* bytes of a question */
#define DIALS 256           /* at a time; the queue of a listener holds as many everywhere */
#define SPARE 64            /* descriptors for everything else */

static int ct_wrong;

#define CHECK(EX)                                                                                  \
    do {                                                                                           \
        if (!(EX)) {                                                                               \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #EX, errno);             \
            ct_wrong++;                                                                            \
        }                                                                                          \
    } while (0)

static char address[64];

static int listen_anywhere(void)
{
    struct sockaddr_in addr;
    socklen_t sz = sizeof(addr);
    int fd = aco_listen("tcp4", "127.0.0.1:0");
    CHECK(fd >= 0 && getsockname(fd, (struct sockaddr *)&addr, &sz) == 0);
    snprintf(address, sizeof(address), "127.0.0.1:%u", ntohs(addr.sin_port));
    return fd;
}

/* ==== Connections ============================================================================ */

static intptr_t ct_connections;
static aco_wait_group_t are_open; /* all of them */
static aco_semaphore_t dials;

static void *echoes(void *arg)
{
    char buf[256];
    int fd = (int)(intptr_t)arg;
    ssize_t sz;
    while ((sz = aco_read(fd, buf, sizeof(buf))) > 0) {
        CHECK(aco_write(fd, buf, (size_t)sz) == sz);
    }
    CHECK(sz == 0 && aco_close(fd) == 0);
    return NULL;
}

static void *serves(void *arg)
{
    for (intptr_t i = 0; i < ct_connections; i++) {
        int fd = aco_accept4((int)(intptr_t)arg, NULL, NULL, SOCK_CLOEXEC);
        CHECK(fd >= 0 && aco_go(echoes, (void *)(intptr_t)fd) == 0);
    }
    return NULL;
}

static void fill(char *bytes, size_t sz, uint64_t seed)
{
    for (size_t i = 0; i < sz; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        bytes[i] = (char)(seed >> 56);
    }
}

static void *asks(void *arg)
{
    char question[MOST], answer[MOST];
    CHECK(aco_semaphore_acquire(&dials) == 0);
    int fd = aco_dial("tcp4", address);
    CHECK(fd >= 0 && aco_semaphore_release(&dials) == 0);
    CHECK(aco_wait_group_done(&are_open) == 0 && aco_wait_group_wait(&are_open) == 0);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t seed = (uint64_t)(intptr_t)arg * ROUNDS + round;
        size_t sz = 1 + (size_t)(seed * 7919 % MOST);
        fill(question, sz, seed);
        CHECK(aco_write_all(fd, question, sz) == (ssize_t)sz);
        CHECK(aco_read_all(fd, answer, sz) == (ssize_t)sz && memcmp(question, answer, sz) == 0);
    }
    CHECK(aco_shutdown(fd, SHUT_WR) == 0 && aco_read(fd, answer, 1) == 0 && aco_close(fd) == 0);
    return NULL;
}

static void *asks_all(void *arg)
{
    aco_semaphore_init(&dials, DIALS);
    aco_wait_group_add(&are_open, ct_connections);
    for (intptr_t i = 0; i < ct_connections; i++) {
        CHECK(aco_go(asks, (void *)i) == 0);
    }
    return arg;
}

static void test_connections(intptr_t ct)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    ct_connections = (rlim_t)ct + SPARE < limit.rlim_cur ? ct : (intptr_t)limit.rlim_cur - SPARE;
    int listener = listen_anywhere(), status;
    pid_t child = fork();
    if (child == 0) {
        CHECK(aco_run(NULL, serves, (void *)(intptr_t)listener, NULL) == 0);
        _exit(ct_wrong != 0);
    }
    CHECK(aco_close(listener) == 0 && aco_run(NULL, asks_all, NULL, NULL) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    printf("%ld connections\n", (long)ct_connections);
}

/* ==== Tasks and timers ======================================================================= */

static aco_task_t **parked;
static intptr_t ct_tasks, ct_went_on;

static long resident_sz(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%*d %ld", &pages) == 1);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static void *parks(void *arg)
{
    parked[(intptr_t)arg] = aco_self();
    CHECK(aco_park() == 0);
    ct_went_on++;
    return NULL;
}

static void *parks_all(void *arg)
{
    static const aco_task_options_t options = {.shares_stack = 1};
    long before = resident_sz();
    for (intptr_t i = 0; i < ct_tasks; i++) {
        CHECK(aco_go_with(&options, parks, (void *)i, NULL) == 0);
    }
    while (parked[ct_tasks - 1] == NULL) {
        aco_yield();
    }
    long task_sz = (resident_sz() - before) / (long)ct_tasks;
    CHECK(ct_went_on == 0);
    for (intptr_t i = 0; i < ct_tasks; i++) {
        aco_unpark(parked[(i * 7919 + 1) % ct_tasks]); /* each of them, in another order */
    }
    while (ct_went_on < ct_tasks) {
        aco_yield();
    }
    printf("%ld parked tasks, %ld bytes each\n", (long)ct_tasks, task_sz);
    return arg;
}

static void test_tasks(intptr_t ct)
{
    ct_tasks = ct % 7919 == 0 ? ct + 1 : ct;
    parked = (aco_task_t **)calloc((size_t)ct_tasks, sizeof(*parked));
    memset(parked, 0, (size_t)ct_tasks * sizeof(*parked));
    CHECK(aco_run(NULL, parks_all, NULL, NULL) == 0);
    free(parked);
}

static intptr_t ct_slept, ct_timers;

static void *sleeps(void *arg)
{
    int64_t ns = (intptr_t)arg * 7919 % 100 * MS, begun = aco_now();
    CHECK(aco_sleep(ns) == 0 && aco_now() - begun >= ns);
    ct_slept++;
    return NULL;
}

static void *sleeps_often(void *arg)
{
    static const aco_task_options_t options = {.shares_stack = 1};
    for (intptr_t i = 0; i < ct_timers; i++) {
        CHECK(aco_go_with(&options, sleeps, (void *)i, NULL) == 0);
    }
    return arg;
}

static void test_timers(intptr_t ct)
{
    ct_timers = ct;
    CHECK(aco_run(NULL, sleeps_often, NULL, NULL) == 0 && ct_slept == ct);
    printf("%ld timers\n", (long)ct);
}

/* ==== Clients that misbehave ================================================================= */

/* Accepts one connection, and gives it up when the client does not do its part. */
static void *meets_a_staller(void *arg)
{
    static char bytes[1 << 16];
    int fd = aco_accept4((int)(intptr_t)arg, NULL, NULL, SOCK_CLOEXEC);
    aco_within(50 * MS)
    {
        ssize_t sz;
        do { /* the bytes written before a wait count; the next call fails */
            sz = aco_write(fd, bytes, sizeof(bytes));
        } while (sz > 0);
        CHECK(sz == -1 && errno == ETIMEDOUT);
    }
    CHECK(aco_close(fd) == 0);
    return NULL;
}

static void *meets_a_resetter(void *arg)
{
    char byte;
    int fd = aco_accept4((int)(intptr_t)arg, NULL, NULL, SOCK_CLOEXEC);
    CHECK(aco_read(fd, &byte, 1) == -1 && errno == ECONNRESET);
    CHECK(aco_write(fd, &byte, 1) == -1 && errno == EPIPE);
    CHECK(aco_close(fd) == 0);
    return NULL;
}

static void *misbehaves(void *arg)
{
    struct linger at_once = {1, 0};
    int listener = listen_anywhere();
    void *where = (void *)(intptr_t)listener;
    aco_task_t *server = aco_spawn(meets_a_staller, where);
    int fd = aco_dial("tcp4", address);
    CHECK(aco_join(server, NULL) == 0 && aco_close(fd) == 0);
    server = aco_spawn(meets_a_resetter, where);
    fd = aco_dial("tcp4", address);
    aco_sleep(MS); /* the server waits, or not */
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0);
    CHECK(aco_close(fd) == 0 && aco_join(server, NULL) == 0);
    CHECK(aco_close(listener) == 0);
    return arg;
}

/* ==== No descriptor left ===================================================================== */

static int ct_accepted, ct_refused;

/* Serves as the servers of the examples do. */
static void *serves_for_ever(void *arg)
{
    int fd;
    while ((fd = aco_accept4((int)(intptr_t)arg, NULL, NULL, SOCK_CLOEXEC)) >= 0 ||
           errno == EMFILE) {
        if (fd < 0) {
            ct_refused++;
            aco_sleep(10 * MS);
            continue;
        }
        ct_accepted++;
        CHECK(aco_go(echoes, (void *)(intptr_t)fd) == 0);
    }
    CHECK(errno == EBADF);
    return NULL;
}

static void *runs_out(void *arg)
{
    struct rlimit limit, less;
    int listener = listen_anywhere(), fds[64], ct = 0;
    char byte;
    aco_task_t *server = aco_spawn(serves_for_ever, (void *)(intptr_t)listener);
    int first = aco_dial("tcp4", address);
    CHECK(aco_write(first, "a", 1) == 1 && aco_read(first, &byte, 1) == 1 && byte == 'a');
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    less = limit;
    less.rlim_cur = (rlim_t)first + 32;
    CHECK(setrlimit(RLIMIT_NOFILE, &less) == 0);
    while (ct < 63 && (fds[ct] = fcntl(first, F_DUPFD_CLOEXEC, 0)) >= 0) {
        ct++;
    }
    CHECK(errno == EMFILE && aco_close(fds[--ct]) == 0);
    int second = aco_dial("tcp4", address); /* takes the last descriptor; the server has none for
                                             * it */
    CHECK(second >= 0 && aco_write(second, "b", 1) == 1);
    while (ct_refused < 3) {
        CHECK(aco_write(first, "c", 1) == 1 && aco_read(first, &byte, 1) == 1 && byte == 'c');
        aco_sleep(MS);
    }
    CHECK(ct_accepted == 1);
    CHECK(aco_dial("tcp4", address) == -1 && errno == EMFILE);
    CHECK(aco_close(fds[--ct]) == 0);
    CHECK(aco_read(second, &byte, 1) == 1 && byte == 'b');
    while (ct != 0) {
        CHECK(aco_close(fds[--ct]) == 0);
    }
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(aco_close(first) == 0 && aco_close(second) == 0 && aco_close(listener) == 0);
    CHECK(aco_join(server, NULL) == 0 && ct_accepted == 2);
    return arg;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IONBF, 0); /* not written twice after fork() */
    test_connections(argc > 1 ? atol(argv[1]) : 1000);
    test_tasks(argc > 2 ? atol(argv[2]) : 100000);
    test_timers(argc > 3 ? atol(argv[3]) : 10000);
    CHECK(aco_run(NULL, misbehaves, NULL, NULL) == 0);
    CHECK(aco_run(NULL, runs_out, NULL, NULL) == 0);
    return ct_wrong != 0;
}
