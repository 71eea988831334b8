// SPDX-License-Identifier: Apache-2.0
/*
 * A program that knows threads alone, with a thread for each connection of its echo server. Its
 * threads are those of the kernel, or tasks by aco-run: the same binary.
 *
 * peer: threads
 * kind: thread
 * build: $CC -O2 -pthread -Ibench/peers -Ibench/runtime $SRC -o $OUT
 * peer: aco-run
 * kind: stackful
 * build: bench/pthreads/build.sh "$SRC" "$OUT"
 * peer: aco-run, 1 KiB of thread-local variables
 * kind: stackful
 * build: bench/pthreads/build.sh "$SRC" "$OUT" -DLOCAL_SZ=1024
 */
#define _GNU_SOURCE
#include "echo.h"

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LOCAL_SZ
static __thread char local[LOCAL_SZ];
#define TOUCH_LOCAL() (++*(volatile char *)local)
#else
#define TOUCH_LOCAL() ((void)0)
#endif

extern char **environ;

static pthread_t start(void *(*fn)(void *), void *arg)
{
    pthread_t thread;
    check(pthread_create(&thread, NULL, fn, arg) == 0, "there is no thread");
    return thread;
}

static void finish(pthread_t thread)
{
    check(pthread_join(thread, NULL) == 0, "pthread_join fails");
}

/* ==== The echo server ======================================================================== */

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char buffer[BUFFER_SZ];
    ssize_t sz;
    set_nodelay(fd);
    while ((sz = recv(fd, buffer, BUFFER_SZ, 0)) > 0 &&
           send(fd, buffer, (size_t)sz, MSG_NOSIGNAL) == sz) {
        continue;
    }
    close(fd);
    return NULL;
}

static void echo(int argc, char **argv)
{
    int port = 0, fd;
    echo_threads(argc, argv, 1);
    int listener = echo_listen(&port, 0);
    tell_port(port);
    while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        pthread_detach(start(serve, (void *)(intptr_t)fd));
    }
    die("accept4 fails");
}

/* ==== Creation and end ======================================================================= */

static void *end_at_once(void *arg)
{
    return arg;
}

static void *create_and_join(void *n)
{
    for (long i = *(long *)n; i > 0; i--) {
        finish(start(end_at_once, NULL));
    }
    return NULL;
}

static void create_from_main(long n)
{
    create_and_join(&n);
}

static void create_from_thread(long n)
{
    finish(start(create_and_join, &n));
}

/* ==== A lock handed over ===================================================================== */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long turn, last_turn;

/* Takes every other turn. */
static void *take_turns(void *first)
{
    pthread_mutex_lock(&mutex);
    for (long own = (long)(intptr_t)first; own < last_turn; own += 2) {
        while (turn != own) {
            pthread_cond_wait(&changed, &mutex);
        }
        TOUCH_LOCAL();
        turn++;
        pthread_cond_signal(&changed);
    }
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void hand_over(long n)
{
    turn = 0;
    last_turn = n;
    pthread_t odd = start(take_turns, (void *)1), even = start(take_turns, NULL);
    finish(odd);
    finish(even);
}

/* ==== Many threads =========================================================================== */

static void *sleep_shortly(void *arg)
{
    nanosleep(&(struct timespec){0, 100000000}, NULL);
    return arg;
}

static void sleep_at_a_time(long n)
{
    pthread_t *threads = (pthread_t *)get_memory((size_t)n * sizeof(*threads));
    for (long i = 0; i < n; i++) {
        if (pthread_create(&threads[i], NULL, sleep_shortly, NULL) != 0) {
            absent("the system has not so many threads");
        }
    }
    for (long i = 0; i < n; i++) {
        finish(threads[i]);
    }
    free(threads);
}

/* ==== The start of a program ================================================================= */

/* $LAUNCHER starts the program that does nothing. */
static void run_true(long n)
{
    char *launcher = getenv("LAUNCHER");
    char *command[] = {launcher, (char *)"true", NULL};
    unsetenv("LD_PRELOAD");
    for (long i = 0; i < n; i++) {
        char **words = launcher == NULL ? command + 1 : command;
        pid_t pid;
        int status;
        check(posix_spawnp(&pid, words[0], NULL, NULL, words, environ) == 0 &&
                  waitpid(pid, &status, 0) == pid && status == 0,
              "true fails");
    }
}

/* ==== Workloads ============================================================================== */

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(long n);
    } workloads[] = {
        {"create_from_main", create_from_main},
        {"create_from_thread", create_from_thread},
        {"hand_over", hand_over},
        {"sleepers", sleep_at_a_time},
        {"start", run_true},
    };
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "echo") == 0) {
        echo(argc, argv);
    }
    for (size_t i = 0; argc == 3 && i < sizeof(workloads) / sizeof(workloads[0]); i++) {
        if (strcmp(workloads[i].name, name) == 0) {
            long n = atol(argv[2]);
            int64_t begin = now_ns();
            workloads[i].run(n);
            double each = mean_ns(begin, (double)n);
            print_metric("ns", each);
            print_metric("ms", each * (double)n / 1e6);
            return 0;
        }
    }
    absent("no such workload");
}
