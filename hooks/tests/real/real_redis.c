// SPDX-License-Identifier: Apache-2.0
/* hiredis and redis-server. */
#include "real.h"

#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BIG_SZ = 1 << 20, CT_PIPELINED = 200 };

static redisContext *dial(int to)
{
    redisContext *context = redisConnectWithTimeout(HOST, to, (struct timeval){60, 0});
    CHECK(context != NULL);
    return context;
}

static void tell_reply(job_t *job, redisContext *context, redisReply *reply)
{
    if (reply == NULL) {
        tell(job, "[error %d %s] ", context->err, context->errstr);
        return;
    }
    tell(job, "[%d %lld %.60s] ", reply->type, reply->integer, reply->str ? reply->str : "");
    freeReplyObject(reply);
}

static void ask(job_t *job, redisContext *context, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    tell_reply(job, context, (redisReply *)redisvCommand(context, format, list));
    va_end(list);
}

static void talk_of_big(job_t *job, redisContext *context)
{
    char *big = (char *)malloc(BIG_SZ);
    redisReply *reply;
    fill(big, BIG_SZ, (unsigned)job->number);
    ask(job, context, "SET big:%d %b", job->number, big, (size_t)BIG_SZ);
    reply = (redisReply *)redisCommand(context, "GET big:%d", job->number);
    CHECK(reply != NULL && reply->len == BIG_SZ && memcmp(reply->str, big, BIG_SZ) == 0);
    freeReplyObject(reply);
    free(big);
}

static void talk_in_pipeline(job_t *job, redisContext *context)
{
    void *reply;
    for (int i = 0; i < CT_PIPELINED; i++) {
        CHECK(redisAppendCommand(context, "INCRBY sum:%d %d", job->number, i) == REDIS_OK);
    }
    for (int i = 0; i < CT_PIPELINED; i++) {
        CHECK(redisGetReply(context, &reply) == REDIS_OK);
        if (i == CT_PIPELINED - 1) {
            tell_reply(job, context, (redisReply *)reply);
        } else {
            freeReplyObject(reply);
        }
    }
}

/* Reports how a connection to this port ends, if the server has a tenth of a second to answer. */
static void talk_in_vain(job_t *job, int to, const char *command)
{
    redisContext *context = dial(to);
    if (context->err) {
        tell(job, "[%d %s] ", context->err, context->errstr);
    } else {
        redisSetTimeout(context, (struct timeval){0, 100000});
        ask(job, context, command);
    }
    redisFree(context);
}

static void talk(job_t *job)
{
    redisContext *context = dial(port);
    CHECK(context->err == 0);
    ask(job, context, "SET key:%d value%d", job->number, job->number);
    ask(job, context, "GET key:%d", job->number);
    ask(job, context, "LPUSH key:%d x", job->number);
    ask(job, context, "NONSENSE");
    freeReplyObject(redisCommand(context, "DEL sum:%d", job->number));
    talk_in_pipeline(job, context);
    talk_of_big(job, context);
    ask(job, context, "MULTI");
    ask(job, context, "INCR sum:%d", job->number);
    ask(job, context, "EXEC");
    ask(job, context, "BLPOP nothing:%d 0.05", job->number);
    redisFree(context);
    talk_in_vain(job, port, "BLPOP nothing 0");
    talk_in_vain(job, silent_port, "PING");
    talk_in_vain(job, REFUSED_PORT, "PING");
}

/* ==== Waits ================================================================================== */

static redisContext *gate;

static void prepare(void)
{
    gate = dial(port);
    CHECK(gate->err == 0);
}

static int ct_waiting(void)
{
    redisReply *reply = (redisReply *)redisCommand(gate, "INFO clients");
    const char *found;
    int ct;
    CHECK(reply != NULL && (found = strstr(reply->str, "blocked_clients:")) != NULL);
    ct = atoi(found + strlen("blocked_clients:"));
    freeReplyObject(reply);
    return ct;
}

static void release(int ct)
{
    for (int i = 0; i < ct; i++) {
        freeReplyObject(redisCommand(gate, "RPUSH gate:%d:%d go", getpid(), i));
    }
    redisFree(gate);
}

static void wait(job_t *job)
{
    redisContext *context = dial(port);
    CHECK(context->err == 0);
    about_to_wait();
    aco_within(patience)
    {
        ask(job, context, "BLPOP gate:%d:%d 0", getpid(), job->number);
    }
    redisFree(context);
}

static void session(job_t *job, unsigned *seed)
{
    redisContext *context = dial(port);
    CHECK(context->err == 0);
    for (int ct = rand_r(seed) % 20; ct > 0; ct--) {
        size_t sz = (size_t)rand_r(seed) % (rand_r(seed) % 4 ? 100 : 100000);
        char *text = (char *)malloc(sz + 1);
        redisReply *reply;
        fill(text, sz, *seed);
        freeReplyObject(redisCommand(context, "SET load:%d %b", job->number, text, sz));
        reply = (redisReply *)redisCommand(context, "GET load:%d", job->number);
        CHECK(reply != NULL && reply->len == sz && memcmp(reply->str, text, sz) == 0);
        freeReplyObject(reply);
        free(text);
    }
    redisFree(context);
}

const library_t library = {talk, wait, prepare, ct_waiting, release, session, NULL};
