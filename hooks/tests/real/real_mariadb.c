// SPDX-License-Identifier: Apache-2.0
/* libmariadb and MariaDB. */
#include "real.h"

#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static MYSQL *dial_with(int to, const char *user, unsigned seconds)
{
    MYSQL *mysql = mysql_init(NULL);
    CHECK(mysql != NULL);
    mysql_options(mysql, MYSQL_OPT_CONNECT_TIMEOUT, &seconds);
    mysql_options(mysql, MYSQL_OPT_READ_TIMEOUT, &seconds);
    if (mysql_real_connect(mysql, HOST, user, "", NULL, (unsigned)to, NULL, 0) == NULL) {
        CHECK(mysql_errno(mysql) != 0);
    }
    return mysql;
}

static MYSQL *dial(void)
{
    MYSQL *mysql = dial_with(port, "root", 600);
    CHECK(mysql_errno(mysql) == 0);
    return mysql;
}

static void tell_error(job_t *job, MYSQL *mysql)
{
    tell(job, "[%u %.60s] ", mysql_errno(mysql), mysql_error(mysql));
}

static void ask(job_t *job, MYSQL *mysql, const char *query)
{
    MYSQL_RES *result;
    MYSQL_ROW row;
    if (mysql_query(mysql, query) != 0) {
        tell_error(job, mysql);
        return;
    }
    result = mysql_store_result(mysql);
    if (mysql_errno(mysql) != 0) { // the answer began before the error came
        tell_error(job, mysql);
        return;
    }
    if (result == NULL) {
        tell(job, "[%lld rows] ", (long long)mysql_affected_rows(mysql));
        return;
    }
    row = mysql_fetch_row(result);
    tell(job, "[%lld %.40s] ", (long long)mysql_num_rows(result), row && row[0] ? row[0] : "");
    mysql_free_result(result);
}

static void talk_of_big(job_t *job, MYSQL *mysql)
{
    enum { PREFIX_SZ = 8, BIG_SZ = 1 << 20 };
    char *query = (char *)calloc(BIG_SZ + 2 * PREFIX_SZ, 1);
    MYSQL_RES *result;
    MYSQL_ROW row;
    memcpy(query, "select '", PREFIX_SZ);
    fill(query + PREFIX_SZ, BIG_SZ, (unsigned)job->number);
    query[PREFIX_SZ + BIG_SZ] = '\'';
    CHECK(mysql_query(mysql, query) == 0);
    result = mysql_use_result(mysql);
    row = mysql_fetch_row(result);
    CHECK(row != NULL && memcmp(row[0], query + PREFIX_SZ, BIG_SZ) == 0);
    CHECK(mysql_fetch_row(result) == NULL);
    mysql_free_result(result);
    free(query);
}

static void talk_in_rows(job_t *job, MYSQL *mysql)
{
    MYSQL_RES *result;
    MYSQL_ROW row;
    long sum = 0;
    CHECK(mysql_query(mysql, "select seq from seq_1_to_5000") == 0);
    CHECK((result = mysql_use_result(mysql)) != NULL);
    while ((row = mysql_fetch_row(result)) != NULL) {
        sum += atol(row[0]);
    }
    mysql_free_result(result);
    tell(job, "[%ld] ", sum);
}

static void talk_by_statement(job_t *job, MYSQL *mysql)
{
    const char *query = "select ? * 2";
    MYSQL_STMT *statement = mysql_stmt_init(mysql);
    int number = job->number, answer = -1;
    MYSQL_BIND in, out;
    memset(&in, 0, sizeof(in));
    in.buffer_type = MYSQL_TYPE_LONG;
    out = in;
    in.buffer = &number;
    out.buffer = &answer;
    CHECK(mysql_stmt_prepare(statement, query, strlen(query)) == 0);
    CHECK(!mysql_stmt_bind_param(statement, &in) && !mysql_stmt_bind_result(statement, &out));
    CHECK(mysql_stmt_execute(statement) == 0 && mysql_stmt_fetch(statement) == 0);
    tell(job, "[%d] ", answer);
    mysql_stmt_close(statement);
}

static void talk_in_vain(job_t *job, int to, const char *user, const char *query)
{
    MYSQL *mysql = dial_with(to, user, 1);
    if (mysql_errno(mysql)) {
        tell_error(job, mysql);
    } else {
        ask(job, mysql, query);
    }
    mysql_close(mysql);
}

static void talk(job_t *job)
{
    MYSQL *mysql = dial();
    ask(job, mysql, "select 6 * 7");
    ask(job, mysql, "nonsense");
    ask(job, mysql, "select * from nothing.nothing");
    ask(job, mysql, "use mysql");
    talk_of_big(job, mysql);
    talk_in_rows(job, mysql);
    talk_by_statement(job, mysql);
    ask(job, mysql, "create temporary table t (n int) engine=innodb");
    ask(job, mysql, "insert into t values (1), (2), (3)");
    ask(job, mysql, "begin");
    ask(job, mysql, "delete from t");
    ask(job, mysql, "rollback");
    ask(job, mysql, "select count(*) from t");
    ask(job, mysql, "set statement max_statement_time=0.05 for select sleep(60) from t");
    mysql_close(mysql);
    talk_in_vain(job, port, "nobody", "select 1");
    talk_in_vain(job, REFUSED_PORT, "root", "select 1");
    talk_in_vain(job, silent_port, "root", "select 1");
    talk_in_vain(job, port, "root", "select sleep(60)");
    mysql_thread_end();
}

/* ==== Waits ================================================================================== */

static MYSQL *gate;

static long ask_number(MYSQL *mysql, const char *query)
{
    MYSQL_RES *result;
    MYSQL_ROW row;
    long number;
    CHECK(mysql_query(mysql, query) == 0 && (result = mysql_store_result(mysql)) != NULL);
    CHECK((row = mysql_fetch_row(result)) != NULL);
    number = atol(row[0]);
    mysql_free_result(result);
    return number;
}

static void prepare(void)
{
    gate = dial();
    CHECK(ask_number(gate, "select get_lock('gate', 0)") == 1);
}

static int ct_waiting(void)
{
    return (int)ask_number(gate,
                           "select count(*) from information_schema.processlist "
                           "where state = 'User lock'");
}

static void release(int ct)
{
    (void)ct;
    mysql_close(gate);
}

static void wait(job_t *job)
{
    MYSQL *mysql = dial();
    about_to_wait();
    aco_within(patience)
    {
        ask(job, mysql, "select get_lock('gate', 600) + release_lock('gate')");
    }
    mysql_close(mysql);
    mysql_thread_end();
}

static void session(job_t *job, unsigned *seed)
{
    MYSQL *mysql = dial();
    (void)job;
    for (int ct = rand_r(seed) % 20; ct > 0; ct--) {
        int times = rand_r(seed) % (rand_r(seed) % 4 ? 100 : 100000);
        char query[TEXT_SZ];
        MYSQL_RES *result;
        snprintf(query, sizeof(query), "select repeat('%c', %d)", 'a' + ct, times);
        CHECK(mysql_query(mysql, query) == 0 && (result = mysql_store_result(mysql)) != NULL);
        CHECK(mysql_fetch_row(result) != NULL);
        CHECK(mysql_fetch_lengths(result)[0] == (unsigned long)times);
        mysql_free_result(result);
    }
    mysql_close(mysql);
}

static void init(void)
{
    CHECK(mysql_library_init(0, NULL, NULL) == 0);
}

const library_t library = {talk, wait, prepare, ct_waiting, release, session, init};
