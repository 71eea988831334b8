// SPDX-License-Identifier: Apache-2.0
/*
 * Libraries that block, and single calls, in tasks by hooks, and the same code in plain threads.
 * PORT, TLS_PORT and CERTIFICATE in the environment belong to the server that server.sh starts.
 *
 * needs: libhiredis-dev libpq-dev libmariadb-dev libcurl4-openssl-dev pkg-config/pkg-config \
 *        redis-server postgresql mariadb-server-core nginx-light libnginx-mod-http-echo \
 *        openssl/openssl
 * peer: threads
 * kind: thread
 * build: $CC -O2 -pthread -Ibench/peers $SRC \
 *        $(pkg-config --cflags --libs hiredis libpq libmariadb libcurl) -o $OUT
 * peer: tasks
 * kind: stackful
 * build: $CC -O2 -pthread $INCLUDE -Ibench/peers -DTASKS -DACO_CONFIG_SHARE_FPU_MXCSR_ENV $SRC \
 *        $ACO_HOOKS $(pkg-config --cflags --libs hiredis libpq libmariadb libcurl) -o $OUT
 */
#define _GNU_SOURCE
#include "peer.h"
#ifdef TASKS
#include "aco_runtime.h"
#endif

#include <curl/curl.h>
#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <mysql.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

static int port, tls_port, ct_failed;

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

/* ==== Jobs at the same time ================================================================== */

static void (*job)(void);

static void *run_job(void *arg)
{
    job();
    return arg;
}

#ifdef TASKS
static void *start_tasks(void *arg)
{
    for (long ct = (long)(intptr_t)arg; ct > 0; ct--) {
        check(aco_go(run_job, NULL) == 0, "aco_go fails");
    }
    return NULL;
}

static void run_jobs(long ct)
{
    check(aco_run(NULL, start_tasks, (void *)(intptr_t)ct, NULL) == 0, "aco_run fails");
}
#else
static void run_jobs(long ct)
{
    pthread_t *threads = (pthread_t *)get_memory((size_t)ct * sizeof(*threads));
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    for (long i = 0; i < ct; i++) {
        check(pthread_create(&threads[i], &attributes, run_job, NULL) == 0, "no thread");
    }
    for (long i = 0; i < ct; i++) {
        pthread_join(threads[i], NULL);
    }
    free(threads);
}
#endif

static double processor_ms(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3;
}

static void measure_jobs(void (*fn)(void), long ct)
{
    job = fn;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    mysql_library_init(0, NULL, NULL);
    int64_t start = now_ns();
    double used = processor_ms();
    run_jobs(ct);
    print_metric("ms", (double)(now_ns() - start) / 1e6);
    print_metric("cpu_ms", processor_ms() - used);
    check(ct_failed == 0, "a job fails");
}

/* ==== Single calls =========================================================================== */

/* Outside of tasks. */
static void measure_pipe(long n)
{
    static char bytes[1 << 16];
    int64_t ns = 0;
    int fds[2];
    check(pipe(fds) == 0, "no pipe");
    for (long left = n; left > 0; left -= (long)sizeof(bytes)) {
        long ct = left < (long)sizeof(bytes) ? left : (long)sizeof(bytes);
        check(write(fds[1], bytes, (size_t)ct) == ct, "write fails");
        int64_t start = now_ns();
        for (long i = 0; i < ct; i++) {
            check(read(fds[0], bytes, 1) == 1, "read fails");
        }
        ns += now_ns() - start;
    }
    print_metric("ns", (double)ns / (double)n);
}

static void *lock_mutex(void *arg)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    long n = *(long *)arg;
    int64_t start = now_ns();
    for (long i = 0; i < n; i++) {
        check(pthread_mutex_lock(&mutex) == 0, "pthread_mutex_lock fails");
        pthread_mutex_unlock(&mutex);
    }
    print_metric("ns", mean_ns(start, (double)n));
    return NULL;
}

static void measure_mutex(long n)
{
#ifdef TASKS
    check(aco_run(NULL, lock_mutex, &n, NULL) == 0, "aco_run fails");
#else
    lock_mutex(&n);
#endif
}

/* ==== Workloads ============================================================================== */

static const struct {
    const char *name;
    void (*job)(void);
    void (*measure)(long n);
} WORKLOADS[] = {
    {"nanosleep", sleep_shortly, NULL},
    {"blpop", pop, NULL},
    {"pg", query_pg, NULL},
    {"mariadb", query_mariadb, NULL},
    {"http", fetch_http, NULL},
    {"https", fetch_https, NULL},
    {"pipe", NULL, measure_pipe},
    {"mutex", NULL, measure_mutex},
};

static int number_in(const char *variable)
{
    const char *text = getenv(variable);
    return text != NULL ? atoi(text) : 0;
}

int main(int argc, char **argv)
{
    port = number_in("PORT");
    tls_port = number_in("TLS_PORT");
    for (size_t i = 0; argc == 3 && i < sizeof(WORKLOADS) / sizeof(*WORKLOADS); i++) {
        if (strcmp(argv[1], WORKLOADS[i].name) != 0) {
            continue;
        }
        if (WORKLOADS[i].job != NULL) {
            measure_jobs(WORKLOADS[i].job, atol(argv[2]));
        } else {
            WORKLOADS[i].measure(atol(argv[2]));
        }
        return 0;
    }
    absent("no such workload");
}
