// SPDX-License-Identifier: Apache-2.0
/* Berkeley DB: a lock that another transaction has. */
#include "late.h"

#include <db.h>
#include <stdlib.h>

static DB_ENV *environment;
static DB *db;
static DB_TXN *holder;

static int put(DB_TXN *txn)
{
    int number = 1;
    DBT key = {.data = &number, .size = sizeof(number)};
    DBT value = {.data = &number, .size = sizeof(number)};
    return db->put(db, txn, &key, &value, 0);
}

static void hold(void)
{
    environment->txn_begin(environment, NULL, &holder, 0);
    put(holder);
}

static void begin(void)
{
    db_env_create(&environment, 0);
    u_int32_t flags = DB_CREATE | DB_INIT_MPOOL | DB_INIT_TXN | DB_INIT_LOCK | DB_INIT_LOG |
                      DB_THREAD;
    if (environment->open(environment, getenv("DATA"), flags | DB_PRIVATE, 0600) != 0 ||
        db_create(&db, environment, 0) != 0 ||
        db->open(db, NULL, "x.db", NULL, DB_BTREE, DB_CREATE | DB_AUTO_COMMIT | DB_THREAD, 0600)) {
        abort();
    }
    hold();
}

static void release(void)
{
    holder->commit(holder, 0);
}

static void wait(char *text, size_t sz)
{
    DB_TXN *txn;
    environment->txn_begin(environment, NULL, &txn, 0);
    int error = put(txn);
    int ended = error == 0 ? txn->commit(txn, 0) : txn->abort(txn);
    snprintf(text, sz, "put %d, end %d", error, ended);
}

static int works(void)
{
    hold();
    return 1;
}

const late_t late = {begin, wait, release, works};
