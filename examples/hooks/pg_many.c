// pg_many.c shows a query a thousand times, a hundred at a time, by unmodified libpq on one thread.
// SPDX-License-Identifier: Apache-2.0
// libraries: libpq
#include "aco_runtime.h"

#include <err.h>
#include <libpq-fe.h>
#include <stdlib.h>
#include <unistd.h>

static const char USAGE[] =
    "usage: pg_many [-c COUNT] [-n QUERIES] [-t SECONDS] [-h] CONNECTION QUERY\n"
    "  -c COUNT    connections (100)\n"
    "  -n QUERIES  how many in all (1000)\n"
    "  -t SECONDS  that each query may take (10)\n"
    "  -h          this text\n"
    "  CONNECTION is as for psql, such as 'host=localhost user=me dbname=shop'.\n";

static const char *connection_options, *query;
static int ct_left = 1000, ct_done, ct_failed;
static int64_t ct_rows;
static double patience = 10;

static void run_query(PGconn *connection)
{
    PGresult *result = NULL;
    aco_within((int64_t)(patience * 1e9))
    {
        result = PQexec(connection, query);
    }
    if (PQresultStatus(result) == PGRES_TUPLES_OK || PQresultStatus(result) == PGRES_COMMAND_OK) {
        ct_done++;
        ct_rows += PQntuples(result);
    } else {
        ct_failed++;
        fprintf(stderr, "%s", PQerrorMessage(connection));
        if (PQresultErrorField(result, PG_DIAG_SQLSTATE) == NULL) {
            PQreset(connection); /* it was not the server that said so, which may still be busy */
        }
    }
    PQclear(result);
}

/* Code as it would be in a thread, but that what tasks share needs no lock. */
static void *work(void *arg)
{
    PGconn *connection = PQconnectdb(connection_options);
    if (PQstatus(connection) != CONNECTION_OK) {
        errx(1, "%s", PQerrorMessage(connection));
    }
    while (ct_left-- > 0) {
        run_query(connection);
    }
    PQfinish(connection);
    return arg;
}

static void *run(void *ct)
{
    int64_t start = aco_now();
    aco_group_t *group = aco_group_new();
    for (int i = 0; i < *(int *)ct; i++) {
        if (group == NULL || aco_group_go(group, work, NULL) != 0) {
            err(1, "aco_group_go");
        }
    }
    aco_group_join(group);
    printf("%d queries done, %d failed, %lld rows, %.2f s\n", ct_done, ct_failed,
           (long long)ct_rows, (double)(aco_now() - start) / 1e9);
    return NULL;
}

int main(int argc, char **argv)
{
    int option, ct = 100;
    while ((option = getopt(argc, argv, "c:n:t:h")) != -1) {
        if (option == 'c') {
            ct = atoi(optarg);
        } else if (option == 'n') {
            ct_left = atoi(optarg);
        } else if (option == 't') {
            patience = atof(optarg);
        } else {
            break;
        }
    }
    if (option != -1 || optind != argc - 2) {
        fputs(USAGE, option == 'h' ? stdout : stderr);
        return option == 'h' ? 0 : 2;
    }
    connection_options = argv[optind];
    query = argv[optind + 1];
    if (aco_run(NULL, run, &ct, NULL) != 0) {
        err(1, "aco_run");
    }
    return ct_failed != 0;
}
