// SPDX-License-Identifier: Apache-2.0
/* LMDB: a transaction that is committed late, by writes and fdatasync(), and tasks that read at
 * once, by keys of their own. */
#include "late.h"

#include <lmdb.h>
#include <stdlib.h>
#include <string.h>

static MDB_env *environment;
static MDB_dbi db;
static int ct_written;

static void begin(void)
{
    MDB_txn *txn;
    mdb_env_create(&environment);
    if (mdb_env_open(environment, getenv("DATA"), 0, 0600) != 0) {
        abort();
    }
    mdb_txn_begin(environment, NULL, 0, &txn);
    mdb_dbi_open(txn, NULL, 0, &db);
    mdb_txn_commit(txn);
}

static int put(int value)
{
    MDB_txn *txn;
    MDB_val key = {3, (void *)"key"}, data = {sizeof(value), &value};
    int error = mdb_txn_begin(environment, NULL, 0, &txn);
    if (error == 0 && (error = mdb_put(txn, db, &key, &data, 0)) != 0) {
        mdb_txn_abort(txn);
    } else if (error == 0) {
        error = mdb_txn_commit(txn);
    }
    return error;
}

static int get(void)
{
    MDB_txn *txn;
    MDB_val key = {3, (void *)"key"}, data;
    int value = -1;
    if (mdb_txn_begin(environment, NULL, MDB_RDONLY, &txn) == 0) {
        if (mdb_get(txn, db, &key, &data) == 0) {
            memcpy(&value, data.mv_data, sizeof(value));
        }
        mdb_txn_abort(txn);
    }
    return value;
}

/* Commits until the task is late, and once more. */
static void wait(char *text, size_t sz)
{
    int error;
    do {
        error = put(++ct_written);
    } while (error == 0 && aco_sleep(100000) == 0);
    snprintf(text, sz, "commit: %s", mdb_strerror(error != 0 ? error : put(++ct_written)));
}

static void *gets_value(void *value)
{
    *(int *)value = get();
    return NULL;
}

/* Reads in another task, while this one reads, too: each has a slot of its own. */
static int get_beside(void)
{
    MDB_txn *txn;
    int value = -1;
    if (mdb_txn_begin(environment, NULL, MDB_RDONLY, &txn) == 0) {
        aco_task_t *task = aco_spawn(gets_value, &value);
        value = task != NULL && aco_join(task, NULL) == 0 ? value : -1;
        mdb_txn_abort(txn);
    }
    return value;
}

static int works(void)
{
    return get_beside() == ct_written && put(++ct_written) == 0;
}

const late_t late = {begin, wait, NULL, works};
