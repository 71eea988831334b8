// SPDX-License-Identifier: Apache-2.0
/* libmemcached and memcached. */
#include "real.h"

#include <libmemcached/memcached.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BIG_SZ = 500000, CT_KEYS = 50, FOR_EVER_MS = 600000, SHORTLY_MS = 100 };

static memcached_st *dial(int to, int timeout_ms)
{
    memcached_st *cache = memcached_create(NULL);
    CHECK(cache != NULL);
    memcached_behavior_set(cache, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, (uint64_t)timeout_ms);
    memcached_behavior_set(cache, MEMCACHED_BEHAVIOR_CONNECT_TIMEOUT, (uint64_t)timeout_ms);
    CHECK(memcached_server_add(cache, HOST, (in_port_t)to) == MEMCACHED_SUCCESS);
    return cache;
}

static memcached_return_t set(memcached_st *cache, const char *key, const char *value, size_t sz)
{
    return memcached_set(cache, key, strlen(key), value, sz, 0, 0);
}

static void tell_code(job_t *job, memcached_st *cache, memcached_return_t code)
{
    tell(job, "[%s] ", memcached_strerror(cache, code));
}

static void tell_value(job_t *job, memcached_st *cache, const char *key)
{
    memcached_return_t code;
    uint32_t flags;
    size_t sz;
    char *value = memcached_get(cache, key, strlen(key), &sz, &flags, &code);
    if (value == NULL) {
        tell_code(job, cache, code);
    } else {
        tell(job, "[%.*s, %zu] ", (int)(sz < 20 ? sz : 20), value, sz);
    }
    free(value);
}

static void talk_of_big(job_t *job, memcached_st *cache, const char *key)
{
    memcached_return_t code;
    uint32_t flags;
    size_t sz;
    char *big = (char *)malloc(BIG_SZ), *value;
    fill(big, BIG_SZ, (unsigned)job->number);
    CHECK(set(cache, key, big, BIG_SZ) == MEMCACHED_SUCCESS);
    value = memcached_get(cache, key, strlen(key), &sz, &flags, &code);
    CHECK(value != NULL && sz == BIG_SZ && memcmp(value, big, BIG_SZ) == 0);
    free(value);
    free(big);
}

/* Gets many values by one request. */
static void talk_of_many(job_t *job, memcached_st *cache)
{
    char names[CT_KEYS][TEXT_SZ];
    const char *keys[CT_KEYS];
    size_t lengths[CT_KEYS];
    memcached_result_st *result;
    memcached_return_t code;
    int ct = 0;
    for (int i = 0; i < CT_KEYS; i++) {
        keys[i] = names[i];
        lengths[i] = (size_t)snprintf(names[i], TEXT_SZ, "many:%d:%d", job->number, i);
        CHECK(i % 5 == 0 || set(cache, keys[i], keys[i], lengths[i]) == MEMCACHED_SUCCESS);
    }
    CHECK(memcached_mget(cache, keys, lengths, CT_KEYS) == MEMCACHED_SUCCESS);
    while ((result = memcached_fetch_result(cache, NULL, &code)) != NULL) {
        CHECK(memcached_result_length(result) == memcached_result_key_length(result));
        memcached_result_free(result);
        ct++;
    }
    tell(job, "[%d values] ", ct);
}

static void talk_in_vain(job_t *job, int to)
{
    memcached_st *cache = dial(to, SHORTLY_MS);
    tell_value(job, cache, "key");
    memcached_free(cache);
}

static void talk(job_t *job)
{
    memcached_st *cache = dial(port, FOR_EVER_MS);
    char key[TEXT_SZ];
    uint64_t number;
    snprintf(key, sizeof(key), "key:%d", job->number);
    tell_code(job, cache, set(cache, key, "41", 2));
    tell_code(job, cache, memcached_increment(cache, key, strlen(key), 1, &number));
    tell_value(job, cache, key);
    tell_code(job, cache, memcached_add(cache, key, strlen(key), "x", 1, 0, 0));
    tell_code(job, cache, memcached_delete(cache, key, strlen(key), 0));
    tell_value(job, cache, key);
    talk_of_big(job, cache, key);
    talk_of_many(job, cache);
    memcached_free(cache);
    talk_in_vain(job, silent_port);
    talk_in_vain(job, REFUSED_PORT);
}

static void wait(job_t *job)
{
    memcached_st *cache = dial(port, FOR_EVER_MS);
    about_to_wait();
    aco_within(patience)
    {
        tell_value(job, cache, "nothing");
    }
    memcached_free(cache);
}

static void session(job_t *job, unsigned *seed)
{
    memcached_st *cache = dial(port, FOR_EVER_MS);
    char key[TEXT_SZ];
    snprintf(key, sizeof(key), "load:%d", job->number);
    for (int ct = rand_r(seed) % 20; ct > 0; ct--) {
        size_t sz = (size_t)rand_r(seed) % (rand_r(seed) % 4 ? 100 : 100000) + 1, got;
        char *text = (char *)malloc(sz), *value;
        memcached_return_t code;
        uint32_t flags;
        fill(text, sz, *seed);
        CHECK(set(cache, key, text, sz) == MEMCACHED_SUCCESS);
        value = memcached_get(cache, key, strlen(key), &got, &flags, &code);
        CHECK(value != NULL && got == sz && memcmp(value, text, sz) == 0);
        free(value);
        free(text);
    }
    memcached_free(cache);
}

const library_t library = {talk, wait, NULL, NULL, NULL, session, NULL};
