// SPDX-License-Identifier: Apache-2.0
/*
 * The runtime of aco, with tasks on stacks of their own from its pool, or on the share stack of
 * their thread: an echo server, and the processor time of tasks.
 *
 * kind: stackful
 * peer: aco pool
 * build: $CC -O2 -pthread $INCLUDE -Ibench/peers -DACO_CONFIG_SHARE_FPU_MXCSR_ENV $SRC \
 *        $ACO_RUNTIME -o $OUT
 * peer: aco pool, own control words
 * build: $CC -O2 -pthread $INCLUDE -Ibench/peers $SRC $ACO_RUNTIME -o $OUT
 * peer: aco share stack
 * build: $CC -O2 -pthread $INCLUDE -Ibench/peers -DSHARE -DACO_CONFIG_SHARE_FPU_MXCSR_ENV $SRC \
 *        $ACO_RUNTIME -o $OUT
 */
#define _GNU_SOURCE
#include "aco_runtime.h"
#include "echo.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST_THREADS 64
#define CT_YIELDING 10
#define BATCH 100          /* tasks that are started before they run */
#define CAPACITY 100       /* of a channel with a buffer */
#define SECOND 1000000000L /* ns */
#define SPREAD 20u         /* ns for each sleeping task in which they are to be woken */
#define CREATION 5000      /* ns that making a task and its stack may take */

#ifdef SHARE
static const aco_task_options_t OPTIONS = {.shares_stack = 1};
#else
static const aco_task_options_t OPTIONS = {.shares_stack = 0};
#endif

static void *go(void *(*fn)(void *), void *arg)
{
    check(aco_go_with(&OPTIONS, fn, arg, NULL) == 0, "there is no task");
    return NULL;
}

/* ==== Echo =================================================================================== */

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char *buffer = (char *)get_memory(BUFFER_SZ);
    ssize_t sz;
    while ((sz = aco_recv(fd, buffer, BUFFER_SZ, 0)) > 0 &&
           aco_write_all(fd, buffer, (size_t)sz) == sz) {
    }
    free(buffer);
    aco_close(fd);
    return NULL;
}

static void *accept_all(void *listener)
{
    for (;;) {
        int fd = aco_accept4((int)(intptr_t)listener, NULL, NULL, SOCK_CLOEXEC);
        check(fd >= 0, "aco_accept4 fails");
        set_nodelay(fd);
        go(serve, (void *)(intptr_t)fd);
    }
    return NULL;
}

static void *start_echo(void *threads)
{
    int port = 0, first = echo_listen(&port, 0);
    for (int i = 1; i < (int)(intptr_t)threads; i++) {
        void *other = (void *)(intptr_t)echo_listen(&port, 0);
        aco_task_options_t there = {.thread = ACO_THREAD(i)};
        check(aco_go_with(&there, accept_all, other, NULL) == 0, "there is no listener");
    }
    tell_port(port);
    return accept_all((void *)(intptr_t)first);
}

/* ==== The cost of tasks ====================================================================== */

/* Processor time of the thread that runs all tasks. */
static int64_t processor_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

static double mean_processor_ns(int64_t start, long ct)
{
    return (double)(processor_ns() - start) / (double)ct;
}

/* Tasks count here what they have done, as they have one thread. */
static long ct_done;

static aco_wait_group_t ended;

static void *yield_often(void *ct)
{
    for (long i = 0; i < (long)(intptr_t)ct; i++) {
        aco_yield();
        ct_done++;
    }
    aco_wait_group_done(&ended);
    return NULL;
}

/* `ct` tasks take turns. */
static void yields(long ct, long each)
{
    aco_wait_group_add(&ended, ct);
    for (long i = 0; i < ct; i++) {
        go(yield_often, (void *)(intptr_t)each);
    }
    aco_yield(); /* all have started */
    ct_done = 0;
    int64_t start = processor_ns();
    aco_wait_group_wait(&ended);
    print_metric("ns", mean_processor_ns(start, ct_done));
    check(ct_done == ct * each || ct_done == ct * (each - 1), "tasks were not run");
}

static void measure_yield(long n)
{
    yields(CT_YIELDING, n / CT_YIELDING + 2);
}

static void measure_turns(long n, long ct)
{
    yields(ct, n + 2);
}

static void *end_at_once(void *arg)
{
    ct_done++;
    return arg;
}

static void spawn_all(long n)
{
    ct_done = 0;
    for (long i = 0; i < n; i++) {
        go(end_at_once, NULL);
        if (i % BATCH == BATCH - 1) {
            aco_yield();
        }
    }
    aco_yield();
    check(ct_done == n, "tasks were not run");
}

static void measure_spawn(long n)
{
    spawn_all(n / 10 + BATCH);
    int64_t start = processor_ns();
    spawn_all(n);
    print_metric("ns", mean_processor_ns(start, n));
}

static aco_chan_t *chan;

static void *send_all(void *ct)
{
    for (uint64_t i = 0; i < (uint64_t)(uintptr_t)ct; i++) {
        aco_chan_send(chan, &i);
    }
    aco_chan_close(chan);
    return NULL;
}

static void pass_messages(long n, size_t capacity)
{
    uint64_t *item = (uint64_t *)get_memory(sizeof(*item)), ct = 0;
    chan = aco_chan_new(sizeof(*item), capacity);
    go(send_all, (void *)(intptr_t)(n + BATCH));
    int64_t start = 0;
    while (aco_chan_recv(chan, item) == 1) {
        check(*item == ct++, "another message came");
        start = ct == BATCH ? processor_ns() : start;
    }
    check(ct == (uint64_t)n + BATCH, "a message is lost");
    print_metric("ns", mean_processor_ns(start, n));
    aco_chan_free(chan);
    free(item);
}

static void measure_rendezvous(long n)
{
    pass_messages(n, 0);
}

static void measure_buffered(long n)
{
    pass_messages(n, CAPACITY);
}

static aco_mutex_t mutex;

static void measure_mutex(long n)
{
    int64_t start = processor_ns();
    for (long i = 0; i < n; i++) {
        check(aco_mutex_lock(&mutex) == 0, "aco_mutex_lock fails");
        ct_done++;
        aco_mutex_unlock(&mutex);
    }
    print_metric("ns", mean_processor_ns(start, n));
    check(ct_done == n, "the mutex was not locked");
}

/* Two tasks and three locks: the task that runs unlocks the lock that the other one waits for, and
 * then waits for one that the other one holds. */
static aco_mutex_t locks[3];

static void *hand_over(void *ct, int k)
{
    for (long i = 0; i < (long)(intptr_t)ct; i++) {
        aco_mutex_unlock(&locks[k]);
        check(aco_mutex_lock(&locks[(k + 1) % 3]) == 0, "aco_mutex_lock fails");
        ct_done++;
        k = (k + 2) % 3;
    }
    aco_mutex_unlock(&locks[k]);
    aco_mutex_unlock(&locks[(k + 2) % 3]);
    aco_wait_group_done(&ended);
    return NULL;
}

static void *hand_over_first(void *ct)
{
    aco_mutex_lock(&locks[0]);
    aco_mutex_lock(&locks[2]);
    aco_yield();
    return hand_over(ct, 0);
}

static void *hand_over_second(void *ct)
{
    aco_mutex_lock(&locks[1]);
    aco_mutex_lock(&locks[0]);
    return hand_over(ct, 1);
}

static void measure_handover(long n)
{
    aco_wait_group_add(&ended, 2);
    go(hand_over_first, (void *)(intptr_t)(n / 2));
    go(hand_over_second, (void *)(intptr_t)(n / 2));
    int64_t start = processor_ns();
    aco_wait_group_wait(&ended);
    print_metric("ns", mean_processor_ns(start, ct_done));
    check(ct_done == n / 2 * 2, "the mutex was not locked");
}

/* ==== Many tasks ============================================================================= */

static long resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    check(file != NULL && fscanf(file, "%*d %ld", &pages) == 1, "there is no /proc/self/statm");
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static void *park(void *arg)
{
    *(aco_task_t **)arg = aco_self();
    check(aco_park() == 0, "aco_park fails");
    ct_done++;
    aco_wait_group_done(&ended);
    return NULL;
}

/* The first time stacks are made, and the second time used again. */
static void park_all(aco_task_t **tasks, long n, int is_warm)
{
    long before = resident_bytes();
    int64_t start = processor_ns();
    aco_wait_group_add(&ended, n);
    for (long i = 0; i < n; i++) {
        go(park, &tasks[i]);
    }
    aco_yield();
    print_metric(is_warm ? "create_ns" : "first_create_ns", mean_processor_ns(start, n));
    if (!is_warm) {
        print_metric("bytes", (double)(resident_bytes() - before) / (double)n);
    }
    start = processor_ns();
    for (long i = 0; i < n; i++) {
        aco_unpark(tasks[i]);
    }
    aco_wait_group_wait(&ended);
    if (is_warm) {
        print_metric("ns", mean_processor_ns(start, n)); /* a wake and an end */
    }
}

static void measure_parked(long n)
{
    aco_task_t **tasks = (aco_task_t **)get_memory((size_t)n * sizeof(*tasks));
    memset(tasks, 1, (size_t)n * sizeof(*tasks)); /* counts for none of them */
    park_all(tasks, n, 0);
    park_all(tasks, n, 1);
    check(ct_done == 2 * n, "a task was not woken");
    free(tasks);
}

static int64_t wake_at;

/* Closer to each other than the loop can wake tasks, so that it never waits in between. */
static void *sleep_some(void *arg)
{
    int64_t until = wake_at + (int64_t)(uintptr_t)arg;
    check(aco_sleep(until - now_ns()) == 0 && now_ns() >= until, "a sleep was too short");
    ct_done++;
    aco_wait_group_done(&ended);
    return NULL;
}

/* Mean processor time of a task that starts, sleeps, is woken and ends. */
static double sleepers(long n, int is_random)
{
    int64_t start = processor_ns();
    wake_at = now_ns() + SECOND / 2 + n * CREATION;
    aco_wait_group_add(&ended, n);
    for (long i = 0; i < n; i++) {
        uint64_t random = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u >> 32;
        uint64_t at = is_random ? random % (uint64_t)n : (uint64_t)i;
        go(sleep_some, (void *)(uintptr_t)(at * SPREAD));
    }
    aco_wait_group_wait(&ended);
    return mean_processor_ns(start, n);
}

static void measure_sleepers(long n)
{
    sleepers(n, 0); /* makes the stacks */
    print_metric("ns", sleepers(n, 0));
    print_metric("random_ns", sleepers(n, 1));
    check(ct_done == 3 * n, "a task was not woken");
}

/* ==== Time =================================================================================== */

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void measure_lateness(long n)
{
    int64_t *late = (int64_t *)get_memory((size_t)n * sizeof(*late));
    for (long i = 0; i < n; i++) {
        int64_t start = now_ns();
        aco_sleep(SECOND / 1000);
        late[i] = now_ns() - start - SECOND / 1000;
        check(late[i] >= 0, "a sleep was too short");
    }
    qsort(late, (size_t)n, sizeof(*late), compare);
    print_metric("us", (double)late[n / 2] / 1e3);
    free(late);
}

/* How often a thread of this process gave up its processor so far. */
static long waits_of(long thread)
{
    char path[64], line[128];
    long ct = -1;
    snprintf(path, sizeof(path), "/proc/self/task/%ld/status", thread);
    FILE *file = fopen(path, "r");
    check(file != NULL, "the thread has ended");
    while (fgets(line, sizeof(line), file) != NULL) {
        sscanf(line, "voluntary_ctxt_switches: %ld", &ct);
    }
    fclose(file);
    return ct;
}

/* Watches another thread for as many seconds as are asked for. */
typedef struct {
    long thread, ct_seconds;
} watch_t;

static void *watch(void *arg)
{
    const watch_t *watch = (const watch_t *)arg;
    usleep(100000); /* all tasks wait by then */
    long before = waits_of(watch->thread);
    sleep((unsigned)watch->ct_seconds);
    print_metric("wakes", (double)(waits_of(watch->thread) - before) / (double)watch->ct_seconds);
    exit(0);
}

static void *wait_for_none(void *fd)
{
    char byte;
    aco_read((int)(intptr_t)fd, &byte, 1);
    die("a task was woken");
}

static void measure_idle(long n)
{
    pthread_t thread;
    watch_t watched = {syscall(SYS_gettid), n};
    for (int i = 0; i < BATCH; i++) {
        int ends[2];
        check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "there is no socket");
        go(wait_for_none, (void *)(intptr_t)ends[0]);
    }
    check(pthread_create(&thread, NULL, watch, &watched) == 0, "there is no thread");
    aco_park();
}

/* ==== Workloads ============================================================================== */

typedef struct {
    const char *name;
    void (*measure)(long n);
    void (*measure_many)(long n, long ct);
} workload_t;

static const workload_t WORKLOADS[] = {
    {"yield", measure_yield, NULL},       {"turns", NULL, measure_turns},
    {"spawn", measure_spawn, NULL},       {"rendezvous", measure_rendezvous, NULL},
    {"buffered", measure_buffered, NULL}, {"mutex", measure_mutex, NULL},
    {"handover", measure_handover, NULL}, {"parked", measure_parked, NULL},
    {"sleepers", measure_sleepers, NULL}, {"lateness", measure_lateness, NULL},
    {"idle", measure_idle, NULL},
};

static char **arguments;

static void *start(void *arg)
{
    const workload_t *workload = (const workload_t *)arg;
    if (workload->measure != NULL) {
        workload->measure(atol(arguments[2]));
    } else {
        workload->measure_many(atol(arguments[3]), atol(arguments[2]));
    }
    return NULL;
}

static void *do_nothing(void *arg)
{
    return arg;
}

static int measure_cold(void)
{
    int64_t begin = now_ns();
    check(aco_run(NULL, do_nothing, NULL, NULL) == 0, "aco_run fails");
    print_metric("us", (double)(now_ns() - begin) / 1e3);
    return 0;
}

int main(int argc, char **argv)
{
    arguments = argv;
    if (argc == 3 && strcmp(argv[1], "cold") == 0) {
        return measure_cold();
    }
    for (size_t i = 0; argc >= 3 && i < sizeof(WORKLOADS) / sizeof(*WORKLOADS); i++) {
        const workload_t *workload = &WORKLOADS[i];
        if (strcmp(argv[1], workload->name) == 0 && argc == (workload->measure != NULL ? 3 : 4)) {
            return aco_run(NULL, start, (void *)(uintptr_t)workload, NULL);
        }
    }
    int ct = echo_threads(argc, argv, MOST_THREADS);
    aco_run(&(aco_run_options_t){.ct_threads = ct}, start_echo, (void *)(intptr_t)ct, NULL);
    die("aco_run fails");
}
