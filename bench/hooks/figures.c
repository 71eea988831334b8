// SPDX-License-Identifier: Apache-2.0
/*
 * What libraries do in tasks by hooks, and in threads: called as
 *
 *   figures tasks|threads WORKLOAD COUNT   COUNT of them at a time: nanosleep, blpop, pg, mariadb,
 *                                          http, https; prints seconds, and those of processor
 *   figures pipe                           a hooked read() of a pipe outside of tasks, and libc's
 *   figures mutex                          a hooked pthread_mutex_lock() and unlock in a task, and
 *                                          libc's
 *
 * The last two print nanoseconds of both and their ratio. PORT, TLS_PORT and CERTIFICATE in the
 * environment are of the server that figures.sh starts.
 */
#define _GNU_SOURCE
#include "aco_runtime.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <err.h>
#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <mysql.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { CT_MOST = 20000, THREAD_STACK_SZ = 256 << 10, PIPE_SZ = 1 << 16, ROUNDS = 200 };
enum { CT_LOCKS = 100000 };

static int port, tls_port, ct_failed;

static void check(int holds, const char *what)
{
    if (!holds) {
        err(1, "%s", what);
    }
}

/* ==== Libraries ============================================================================== */

static void sleep_shortly(void)
{
    nanosleep(&(struct timespec){0, 100000000}, NULL);
}

static void pop(void)
{
    redisContext *context = redisConnect("127.0.0.1", port);
    redisReply *reply = NULL;
    if (context != NULL && !context->err) {
        reply = (redisReply *)redisCommand(context, "BLPOP nothing 0.1");
    }
    ct_failed += reply == NULL || reply->type != REDIS_REPLY_NIL;
    freeReplyObject(reply);
    redisFree(context);
}

static void query_pg(void)
{
    char options[100];
    snprintf(options, sizeof(options), "host=127.0.0.1 port=%d user=aco dbname=postgres", port);
    PGconn *connection = PQconnectdb(options);
    PGresult *result = PQexec(connection, "select pg_sleep(0.1)");
    ct_failed += PQresultStatus(result) != PGRES_TUPLES_OK;
    PQclear(result);
    PQfinish(connection);
}

static void query_mariadb(void)
{
    MYSQL *mysql = mysql_init(NULL);
    if (!mysql_real_connect(mysql, "127.0.0.1", "root", "", NULL, (unsigned)port, NULL, 0) ||
        mysql_query(mysql, "select sleep(0.1)") != 0) {
        ct_failed++;
    } else {
        mysql_free_result(mysql_store_result(mysql));
    }
    mysql_close(mysql);
}

static size_t ignore(char *bytes, size_t one, size_t sz, void *arg)
{
    (void)bytes;
    (void)arg;
    return one * sz;
}

static void fetch(const char *scheme, int to)
{
    char url[100];
    long status = 0;
    CURL *curl = curl_easy_init();
    snprintf(url, sizeof(url), "%s://localhost:%d/wait", scheme, to);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_CAINFO, getenv("CERTIFICATE"));
    curl_easy_setopt(curl, CURLOPT_CAPATH, NULL);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ignore);
    ct_failed += curl_easy_perform(curl) != CURLE_OK;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    ct_failed += status != 200;
    curl_easy_cleanup(curl);
}

static void fetch_http(void)
{
    fetch("http", port);
}

static void fetch_https(void)
{
    fetch("https", tls_port);
}

static const struct {
    const char *name;
    void (*fn)(void);
} WORKLOADS[] = {{"nanosleep", sleep_shortly}, {"blpop", pop},       {"pg", query_pg},
                 {"mariadb", query_mariadb},   {"http", fetch_http}, {"https", fetch_https}};

/* ==== At a time ============================================================================== */

static int ct_jobs;
static void (*job)(void);

static void *run_job(void *arg)
{
    job();
    return arg;
}

static void *run_tasks(void *arg)
{
    for (int i = 0; i < ct_jobs; i++) {
        check(aco_go(run_job, NULL) == 0, "aco_go");
    }
    return arg;
}

static void run_threads(void)
{
    static pthread_t threads[CT_MOST];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, THREAD_STACK_SZ);
    for (int i = 0; i < ct_jobs; i++) {
        check(pthread_create(&threads[i], &attributes, run_job, NULL) == 0, "pthread_create");
    }
    for (int i = 0; i < ct_jobs; i++) {
        pthread_join(threads[i], NULL);
    }
}

static double processor_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void run_workload(int is_in_tasks)
{
    int64_t start = aco_now();
    double used = processor_seconds();
    if (is_in_tasks) {
        check(aco_run(NULL, run_tasks, NULL, NULL) == 0, "aco_run");
    } else {
        run_threads();
    }
    printf("%.3f %.3f\n", (double)(aco_now() - start) / 1e9, processor_seconds() - used);
    if (ct_failed != 0) {
        errx(1, "%d of %d fail", ct_failed, ct_jobs);
    }
}

/* ==== Single calls =========================================================================== */

/* libc's own, whatever hooks there are. */
static void find_in_libc(void *fn, const char *name)
{
    void *found = dlsym(dlopen("libc.so.6", RTLD_LAZY), name);
    check(found != NULL, name);
    memcpy(fn, &found, sizeof(found));
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of rounds that alternate, the medians. */
static void print_medians(double (*measure)(int), const char *what)
{
    double ns[2][ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        for (int j = 0; j < 2; j++) {
            ns[(i + j) % 2][i] = measure((i + j) % 2);
        }
    }
    qsort(ns[0], ROUNDS, sizeof(double), compare);
    qsort(ns[1], ROUNDS, sizeof(double), compare);
    printf("%s: hooked %.1f ns, libc's %.1f ns, ratio %.3f\n", what, ns[1][ROUNDS / 2],
           ns[0][ROUNDS / 2], ns[1][ROUNDS / 2] / ns[0][ROUNDS / 2]);
}

static int pipe_fds[2];

static double read_pipe(int is_hooked)
{
    static char bytes[PIPE_SZ];
    ssize_t (*fn)(int, void *, size_t) = read;
    if (!is_hooked) {
        find_in_libc(&fn, "read");
    }
    check(write(pipe_fds[1], bytes, PIPE_SZ) == PIPE_SZ, "write");
    int64_t start = aco_now();
    for (int i = 0; i < PIPE_SZ; i++) {
        fn(pipe_fds[0], bytes, 1);
    }
    return (double)(aco_now() - start) / PIPE_SZ;
}

static double lock_mutex(int is_hooked)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    int (*lock)(pthread_mutex_t *) = pthread_mutex_lock;
    int (*unlock)(pthread_mutex_t *) = pthread_mutex_unlock;
    if (!is_hooked) {
        find_in_libc(&lock, "pthread_mutex_lock");
        find_in_libc(&unlock, "pthread_mutex_unlock");
    }
    int64_t start = aco_now();
    for (int i = 0; i < CT_LOCKS; i++) {
        lock(&mutex);
        unlock(&mutex);
    }
    return (double)(aco_now() - start) / CT_LOCKS;
}

static void *lock_in_task(void *arg)
{
    print_medians(lock_mutex, "mutex in a task");
    return arg;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "pipe") == 0) {
        check(pipe(pipe_fds) == 0, "pipe");
        print_medians(read_pipe, "read of a pipe outside of tasks");
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "mutex") == 0) {
        return aco_run(NULL, lock_in_task, NULL, NULL);
    }
    for (size_t i = 0; argc == 4 && i < sizeof(WORKLOADS) / sizeof(*WORKLOADS); i++) {
        if (strcmp(argv[2], WORKLOADS[i].name) == 0) {
            job = WORKLOADS[i].fn;
        }
    }
    if (job == NULL || (ct_jobs = atoi(argv[3])) > CT_MOST) {
        errx(2, "usage: figures tasks|threads WORKLOAD COUNT, or pipe, or mutex");
    }
    port = atoi(getenv("PORT") ? getenv("PORT") : "0");
    tls_port = atoi(getenv("TLS_PORT") ? getenv("TLS_PORT") : "0");
    curl_global_init(CURL_GLOBAL_DEFAULT);
    mysql_library_init(0, NULL, NULL);
    run_workload(strcmp(argv[1], "tasks") == 0);
    return 0;
}
