// redis_pipeline.c shows many tasks that share one connection: their commands leave in batches.
// SPDX-License-Identifier: Apache-2.0
// libraries: hiredis
#include "aco_runtime.h"

#include <err.h>
#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <unistd.h>

#define BATCH_MOST 1000

static const char USAGE[] =
    "usage: redis_pipeline [-c COUNT] [-n COMMANDS] [-h] HOST PORT\n"
    "  -c COUNT     tasks (1000)\n"
    "  -n COMMANDS  that each task sends, one after another (10)\n"
    "  -h           this text\n";

static redisContext *context;
static aco_chan_t *requests; /* of request_t * */
static int ct_tasks = 1000, ct_each = 10, ct_batches;

/* ==== The connection ========================================================================= */

typedef struct {
    const char *command;
    aco_task_t *task; /* which waits for the reply */
    redisReply *reply;
    int is_done;
} request_t;

/* Sends one command; to the task it is like a connection of its own. */
static redisReply *ask(const char *command)
{
    request_t request = {command, aco_self(), NULL, 0};
    aco_shielded
    { /* the driver has the address of the request */
        aco_chan_send(requests, &(request_t *){&request});
        while (!request.is_done) {
            aco_park();
        }
    }
    return request.reply;
}

/* Takes all commands that wait by now, sends them as one, and gives each task its reply. */
static int run_batch(void)
{
    request_t *batch[BATCH_MOST];
    int ct = 0;
    if (aco_chan_recv(requests, &batch[ct]) != 1) {
        return 0;
    }
    do {
        redisAppendCommand(context, batch[ct++]->command);
    } while (ct < BATCH_MOST && aco_chan_try_recv(requests, &batch[ct]) == 1);
    for (int i = 0; i < ct; i++) {
        if (redisGetReply(context, (void **)&batch[i]->reply) != REDIS_OK) {
            errx(1, "%s", context->errstr);
        }
        batch[i]->is_done = 1;
        aco_unpark(batch[i]->task);
    }
    ct_batches++;
    return 1;
}

static void *drive(void *arg)
{
    while (run_batch()) {
    }
    return arg;
}

/* ==== Its users ============================================================================== */

static void *count(void *arg)
{
    for (int i = 0; i < ct_each; i++) {
        freeReplyObject(ask("INCR aco:example"));
    }
    return arg;
}

static void *run(void *arg)
{
    aco_task_t *driver = aco_spawn(drive, NULL);
    aco_group_t *group = aco_group_new();
    freeReplyObject(ask("DEL aco:example"));
    for (int i = 0; i < ct_tasks; i++) {
        if (group == NULL || aco_group_go(group, count, NULL) != 0) {
            err(1, "aco_group_go");
        }
    }
    aco_group_join(group);
    redisReply *reply = ask("GET aco:example");
    printf("%s commands in %d batches\n", reply->str, ct_batches - 2);
    freeReplyObject(reply);
    aco_chan_close(requests);
    aco_join(driver, NULL);
    aco_chan_free(requests);
    return arg;
}

int main(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "c:n:h")) != -1) {
        if (option == 'c') {
            ct_tasks = atoi(optarg);
        } else if (option == 'n') {
            ct_each = atoi(optarg);
        } else {
            break;
        }
    }
    if (option != -1 || optind != argc - 2) {
        fputs(USAGE, option == 'h' ? stdout : stderr);
        return option == 'h' ? 0 : 2;
    }
    context = redisConnect(argv[optind], atoi(argv[optind + 1]));
    requests = aco_chan_new(sizeof(request_t *), BATCH_MOST);
    if (context == NULL || context->err || requests == NULL) {
        errx(1, "%s", context == NULL || !context->err ? "no memory" : context->errstr);
    }
    if (aco_run(NULL, run, NULL, NULL) != 0) {
        err(1, "aco_run");
    }
    redisFree(context);
    return 0;
}
