// SPDX-License-Identifier: Apache-2.0
/* libpq and PostgreSQL. */
#include "real.h"

#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CT_COPIED = 2000, GATE = 77 };

static PGconn *dial_with(int to, const char *more)
{
    char options[TEXT_SZ];
    PGconn *connection;
    snprintf(options, sizeof(options), "host=" HOST " port=%d user=aco dbname=postgres %s", to,
             more);
    connection = PQconnectdb(options);
    CHECK(connection != NULL);
    return connection;
}

static PGconn *dial(void)
{
    PGconn *connection = dial_with(port, "");
    CHECK(PQstatus(connection) == CONNECTION_OK);
    return connection;
}

/* Reports the first line of a message; the others name processes and so on. */
static void tell_error(job_t *job, const char *message)
{
    tell(job, "[%.*s] ", (int)strcspn(message, "\n"), message);
}

static void tell_result(job_t *job, PGresult *result)
{
    if (PQresultStatus(result) == PGRES_TUPLES_OK) {
        tell(job, "[%d %.40s] ", PQntuples(result),
             PQntuples(result) ? PQgetvalue(result, 0, 0) : "");
    } else if (PQresultStatus(result) == PGRES_COMMAND_OK) {
        tell(job, "[%s] ", PQcmdStatus(result));
    } else {
        tell_error(job, PQresultErrorMessage(result));
    }
    PQclear(result);
}

static void ask(job_t *job, PGconn *connection, const char *query)
{
    tell_result(job, PQexec(connection, query));
}

static void talk_of_big(job_t *job, PGconn *connection)
{
    size_t sz = 1 << 20;
    char *big = (char *)calloc(sz + 1, 1);
    const char *values[] = {big};
    PGresult *result;
    fill(big, sz, (unsigned)job->number);
    result = PQexecParams(connection, "select $1::text || 'x'", 1, NULL, values, NULL, NULL, 0);
    CHECK(PQresultStatus(result) == PGRES_TUPLES_OK);
    CHECK(PQgetlength(result, 0, 0) == (int)sz + 1);
    CHECK(memcmp(PQgetvalue(result, 0, 0), big, sz) == 0);
    PQclear(result);
    free(big);
}

/* Writes and reads rows by COPY. */
static void talk_by_copy(job_t *job, PGconn *connection)
{
    char line[TEXT_SZ], *row;
    uint32_t before = 0, after = 0;
    int sz;
    ask(job, connection, "create temp table copied (n int, t text)");
    PQclear(PQexec(connection, "copy copied from stdin"));
    for (int i = 0; i < CT_COPIED; i++) {
        sz = snprintf(line, sizeof(line), "%d\trow %d of %d\n", i, i, job->number);
        before = sum_of(before, line, (size_t)sz);
        CHECK(PQputCopyData(connection, line, sz) == 1);
    }
    CHECK(PQputCopyEnd(connection, NULL) == 1);
    tell_result(job, PQgetResult(connection));
    CHECK(PQgetResult(connection) == NULL);
    PQclear(PQexec(connection, "copy (select * from copied order by n) to stdout"));
    while ((sz = PQgetCopyData(connection, &row, 0)) > 0) {
        after = sum_of(after, row, (size_t)sz);
        PQfreemem(row);
    }
    CHECK(sz == -1 && before == after);
    tell_result(job, PQgetResult(connection));
    CHECK(PQgetResult(connection) == NULL);
}

/* This connection polls its descriptor until another connection notifies it. */
static void talk_by_notify(job_t *job, PGconn *connection)
{
    PGconn *other = dial();
    PGnotify *notify;
    char query[TEXT_SZ];
    snprintf(query, sizeof(query), "listen channel_%d", job->number);
    ask(job, connection, query);
    snprintf(query, sizeof(query), "notify channel_%d, 'hello %d'", job->number, job->number);
    ask(job, other, query);
    while ((notify = PQnotifies(connection)) == NULL) {
        struct pollfd polled = {PQsocket(connection), POLLIN, 0};
        CHECK(poll(&polled, 1, -1) == 1 && PQconsumeInput(connection));
    }
    tell(job, "[%s %s] ", notify->relname, notify->extra);
    PQfreemem(notify);
    PQfinish(other);
}

static void talk_in_rows(job_t *job, PGconn *connection)
{
    PGresult *result;
    int sum = 0;
    CHECK(PQsendQuery(connection, "select generate_series(1, 1000)"));
    CHECK(PQsetSingleRowMode(connection));
    while ((result = PQgetResult(connection)) != NULL) {
        if (PQresultStatus(result) == PGRES_SINGLE_TUPLE) {
            sum += atoi(PQgetvalue(result, 0, 0));
        }
        PQclear(result);
    }
    tell(job, "[%d] ", sum);
}

static void talk_in_vain(job_t *job, int to, const char *more)
{
    PGconn *connection = dial_with(to, more);
    CHECK(PQstatus(connection) == CONNECTION_BAD);
    if (to == silent_port) {
        tell(job, "[%s] ",
             strstr(PQerrorMessage(connection), "timeout expired") ? "too late"
                                                                   : PQerrorMessage(connection));
    } else {
        tell_error(job, PQerrorMessage(connection));
    }
    PQfinish(connection);
}

static void talk(job_t *job)
{
    PGconn *connection = dial();
    ask(job, connection, "select 6 * 7");
    ask(job, connection, "select 1 / 0");
    ask(job, connection, "nonsense");
    talk_of_big(job, connection);
    talk_by_copy(job, connection);
    talk_by_notify(job, connection);
    talk_in_rows(job, connection);
    ask(job, connection, "begin");
    ask(job, connection, "delete from copied");
    ask(job, connection, "rollback");
    ask(job, connection, "select count(*) from copied");
    ask(job, connection, "set statement_timeout = 50");
    ask(job, connection, "select pg_sleep(60)");
    PQfinish(connection);
    talk_in_vain(job, port, "dbname=nothing");
    talk_in_vain(job, REFUSED_PORT, "");
    if (job->number < 2) { /* at least two seconds */
        talk_in_vain(job, silent_port, "connect_timeout=2");
    }
}

/* ==== Waits ================================================================================== */

static PGconn *gate;

static void prepare(void)
{
    gate = dial();
    PQclear(PQexec(gate, "select pg_advisory_lock(77)"));
}

static int ct_waiting(void)
{
    PGresult *result = PQexec(gate, "select count(*) from pg_locks where not granted");
    int ct;
    CHECK(PQresultStatus(result) == PGRES_TUPLES_OK);
    ct = atoi(PQgetvalue(result, 0, 0));
    PQclear(result);
    return ct;
}

static void release(int ct)
{
    (void)ct;
    PQfinish(gate);
}

static void wait(job_t *job)
{
    PGconn *connection = dial();
    about_to_wait();
    aco_within(patience)
    {
        ask(job, connection, "select 'free' from pg_advisory_lock_shared(77)");
    }
    PQfinish(connection);
}

static void session(job_t *job, unsigned *seed)
{
    PGconn *connection = dial();
    (void)job;
    for (int ct = rand_r(seed) % 20; ct > 0; ct--) {
        int times = rand_r(seed) % (rand_r(seed) % 4 ? 100 : 100000);
        char query[TEXT_SZ];
        PGresult *result;
        snprintf(query, sizeof(query), "select repeat('%c', %d)", 'a' + ct, times);
        result = PQexec(connection, query);
        CHECK(PQresultStatus(result) == PGRES_TUPLES_OK);
        CHECK(PQgetlength(result, 0, 0) == times);
        PQclear(result);
    }
    PQfinish(connection);
}

const library_t library = {talk, wait, prepare, ct_waiting, release, session, NULL};
