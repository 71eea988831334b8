// pg_pool.c shows a pool of workers over libpq: back pressure, deadlines, cancelling, reconnecting.
// SPDX-License-Identifier: Apache-2.0
// libraries: libpq
/*
 * Each worker has a connection, and takes queries from a channel of bounded size. So whoever writes
 * queries into the program waits while all workers are busy, and the workers wait while whoever
 * reads the results is slow.
 */
#include "aco_runtime.h"

#include <err.h>
#include <libpq-fe.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
#define SHORTEST_PAUSE (SECOND / 10) /* between tries to connect; doubled each time */
#define LONGEST_PAUSE (5 * SECOND)
#define STOP_LIMIT (2 * SECOND) /* for asking the server to stop a query */

static const char USAGE[] =
    "usage: pg_pool [-c COUNT] [-q COUNT] [-t SECONDS] [-r SECONDS] [-h] CONNECTION < QUERIES\n"
    "  -c COUNT    connections (10)\n"
    "  -q COUNT    queries that wait for one (20)\n"
    "  -t SECONDS  that each query may take (10)\n"
    "  -r SECONDS  for which a worker tries to connect before it gives up (30)\n"
    "  -h          this text\n"
    "  CONNECTION is as for psql, such as 'host=localhost user=me dbname=shop'. Each line of "
    "QUERIES\n"
    "  is one; the first value of its result follows the number of the line. SIGINT or SIGTERM "
    "ends\n"
    "  the program: it stops the queries that run, and starts no more.\n";

typedef struct {
    int line;
    char *query; /* freed by the worker */
} job_t;

typedef struct {
    int line;
    PGresult *rows; /* freed by the printer */
} result_t;

static const char *connection_options;
static aco_chan_t *jobs, *results;
static sigset_t end_signals;
static int ct_connections = 10, ct_read, ct_done, ct_failed;
static double query_limit = 10, connect_limit = 30; /* seconds */

/* ==== A worker =============================================================================== */

/* Connects if `*connection` is none, or lost. Returns 0 if the worker has to give up. */
static int connect_if_lost(PGconn **connection)
{
    int64_t end = aco_now() + (int64_t)(connect_limit * 1e9), pause = SHORTEST_PAUSE;
    while (PQstatus(*connection) != CONNECTION_OK) {
        PQfinish(*connection);
        aco_within(end - aco_now())
        {
            *connection = PQconnectdb(connection_options);
        }
        if (PQstatus(*connection) != CONNECTION_OK) {
            int is_over = aco_now() + pause > end;
            if (!is_over && aco_sleep(pause) != 0) {
                return 0;
            }
            fputs(PQerrorMessage(*connection), stderr);
            if (is_over) {
                return 0;
            }
            pause = pause < LONGEST_PAUSE / 2 ? pause * 2 : LONGEST_PAUSE;
        }
    }
    return 1;
}

static int is_done(const PGresult *result)
{
    return PQresultStatus(result) == PGRES_TUPLES_OK || PQresultStatus(result) == PGRES_COMMAND_OK;
}

/* Has the server stop a query that nothing waits for any more, also in a task that was cancelled. A
 * server that can't be reached has nothing to stop. */
static void stop_query(PGcancel *cancel)
{
    char fault[256];
    aco_shielded
    {
        aco_within(STOP_LIMIT)
        {
            PQcancel(cancel, fault, sizeof(fault));
        }
    }
}

/* Gives the connection up unless the server itself reported the failure: it may be busy still. A
 * query is never repeated: it may have been done before the connection was lost. */
static PGresult *run_query(PGconn **connection, const char *query)
{
    PGcancel *cancel = PQgetCancel(*connection); /* a connection that is lost gives none */
    PGresult *result = NULL;
    aco_within((int64_t)(query_limit * 1e9))
    {
        result = PQexec(*connection, query);
    }
    if (result == NULL) {
        result = PQmakeEmptyPGresult(*connection, PGRES_FATAL_ERROR); /* has the message */
    }
    if (!is_done(result) && PQresultErrorField(result, PG_DIAG_SQLSTATE) == NULL) {
        stop_query(cancel);
        PQfinish(*connection);
        *connection = NULL;
    }
    PQfreeCancel(cancel);
    return result;
}

static void *work(void *arg)
{
    PGconn *connection = NULL;
    job_t job;
    /* The sleep fails in a task that was cancelled; to connect and to receive may need no wait. */
    while (connect_if_lost(&connection) && aco_sleep(1) == 0 && aco_chan_recv(jobs, &job) == 1) {
        result_t result = {job.line, run_query(&connection, job.query)};
        free(job.query);
        aco_shielded
        { /* the result of a query that was cancelled, too */
            aco_chan_send(results, &result);
        }
    }
    PQfinish(connection);
    return arg;
}

/* Returns when no worker is left: all queries are done, or it was cancelled, or the server is lost
 * for good. */
static void *work_all(void *arg)
{
    job_t job;
    aco_group_t *workers = aco_group_new();
    for (int i = 0; i < ct_connections; i++) {
        if (workers == NULL || aco_group_go(workers, work, NULL) != 0) {
            err(1, "a worker");
        }
    }
    aco_group_join(workers);
    aco_chan_close(jobs);
    while (aco_chan_try_recv(jobs, &job) == 1) {
        free(job.query);
    }
    aco_chan_close(results);
    return arg;
}

/* ==== Queries in, results out ================================================================ */

/* Waits while the channel is full. Returns 0 if no more queries are wanted. */
static int send_job(const char *query, size_t sz)
{
    job_t job = {++ct_read, strndup(query, sz)};
    if (job.query == NULL) {
        err(1, "a query");
    }
    if (aco_chan_send(jobs, &job) != 0) {
        free(job.query);
        return 0;
    }
    return 1;
}

static void *read_queries(void *arg)
{
    static char text[65536];
    size_t sz = 0;
    ssize_t got;
    while ((got = aco_read(STDIN_FILENO, text + sz, sizeof(text) - sz)) > 0) {
        char *line = text, *end;
        sz += (size_t)got;
        while ((end = (char *)memchr(line, '\n', sz)) != NULL) {
            if (!send_job(line, (size_t)(end - line))) {
                return arg;
            }
            sz -= (size_t)(end + 1 - line);
            line = end + 1;
        }
        if (sz == sizeof(text)) {
            errx(1, "line %d is longer than %zu bytes", ct_read + 1, sz);
        }
        memmove(text, line, sz);
    }
    if (got == 0 && sz > 0) {
        send_job(text, sz);
    }
    aco_chan_close(jobs);
    return arg;
}

/* The first line of what the server has said. */
static const char *text_of(const PGresult *rows)
{
    ExecStatusType status = PQresultStatus(rows);
    const char *message = PQresultErrorMessage(rows);
    return status == PGRES_COMMAND_OK  ? PQcmdStatus((PGresult *)rows)
           : status != PGRES_TUPLES_OK ? *message != '\0' ? message : PQresStatus(status)
           : PQntuples(rows) == 0 ? "no rows"
                                       : PQgetvalue(rows, 0, 0);
}

static void print_result(const result_t *result)
{
    char text[1024];
    const char *value = text_of(result->rows);
    size_t sz = strcspn(value, "\n");
    sz = (size_t)snprintf(text, sizeof(text), "%d: %.*s\n", result->line,
                          sz < 1000 ? (int)sz : 1000, value);
    /* printf() would keep all tasks waiting while a pipe is full */
    if (aco_write_all(STDOUT_FILENO, text, sz) != (ssize_t)sz) {
        err(1, "a result");
    }
}

/* Cancels the two tasks when a signal comes. */
static void *end_at_signal(void *arg)
{
    aco_task_t **tasks = (aco_task_t **)arg;
    if (aco_wait_signal(&end_signals, NULL) > 0) {
        sigprocmask(SIG_UNBLOCK, &end_signals, NULL); /* a second one ends the program at once */
        aco_task_cancel(tasks[0]);
        aco_task_cancel(tasks[1]);
    }
    return NULL;
}

static void *run(void *arg)
{
    aco_task_t *tasks[] = {aco_spawn(read_queries, NULL), aco_spawn(work_all, NULL)};
    aco_task_t *ender = aco_spawn(end_at_signal, tasks);
    result_t result;
    if (tasks[0] == NULL || tasks[1] == NULL || ender == NULL) {
        err(1, "aco_spawn");
    }
    while (aco_chan_recv(results, &result) == 1) {
        print_result(&result);
        *(is_done(result.rows) ? &ct_done : &ct_failed) += 1;
        PQclear(result.rows);
    }
    aco_task_cancel(ender);
    aco_join(ender, NULL);
    aco_task_cancel(tasks[0]); /* it may wait for input that no worker wants */
    aco_join(tasks[0], NULL);
    aco_join(tasks[1], NULL);
    fprintf(stderr, "%d queries read, %d done, %d failed, %d not run\n", ct_read, ct_done,
            ct_failed, ct_read - ct_done - ct_failed);
    return arg;
}

int main(int argc, char **argv)
{
    int option, ct_waiting = 20;
    while ((option = getopt(argc, argv, "c:q:t:r:h")) != -1) {
        if (option == 'c') {
            ct_connections = atoi(optarg);
        } else if (option == 'q') {
            ct_waiting = atoi(optarg);
        } else if (option == 't') {
            query_limit = atof(optarg);
        } else if (option == 'r') {
            connect_limit = atof(optarg);
        } else {
            break;
        }
    }
    if (option != -1 || optind != argc - 1 || ct_connections < 1 || ct_waiting < 0) {
        fputs(USAGE, option == 'h' ? stdout : stderr);
        return option == 'h' ? 0 : 2;
    }
    connection_options = argv[optind];
    jobs = aco_chan_new(sizeof(job_t), (size_t)ct_waiting);
    results = aco_chan_new(sizeof(result_t), 0);
    if (jobs == NULL || results == NULL) {
        err(1, "a channel");
    }
    sigemptyset(&end_signals);
    sigaddset(&end_signals, SIGINT);
    sigaddset(&end_signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &end_signals, NULL);
    if (aco_run(NULL, run, NULL, NULL) != 0) {
        err(1, "aco_run");
    }
    aco_chan_free(jobs);
    aco_chan_free(results);
    return ct_done != ct_read;
}
