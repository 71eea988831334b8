// workers.c shows a pool of workers in a group, and a deadline for all of their work.
// SPDX-License-Identifier: Apache-2.0
/*
 * Workers take jobs from a channel. The last job needs more time than there is: the deadline,
 * which the tasks of the group inherit, ends its wait and that for the group. It prints:
 *
 *     job 10 is done
 *     job 20 is done
 *     job 30 is done
 *     job 3600000: Connection timed out
 *     the group: Connection timed out
 */
#include "aco_runtime.h"

#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MILLISECOND INT64_C(1000000)

static const char USAGE[] =
    "usage: workers [-w WORKERS] [-t MILLISECONDS] [-h]\n"
    "  -w WORKERS       that work at a time (2)\n"
    "  -t MILLISECONDS  that all of them have (500)\n"
    "  -h               this text\n";

static const int jobs[] = {10, 20, 30, 3600000}; /* what each takes, in milliseconds */
static long ct_workers = 2, patience = 500;

static void *work(void *chan)
{
    int job;
    while (aco_chan_recv((aco_chan_t *)chan, &job) == 1) {
        if (aco_sleep(job * MILLISECOND) != 0) {
            printf("job %d: %s\n", job, strerror(errno));
            return NULL;
        }
        printf("job %d is done\n", job);
    }
    return NULL;
}

static void *run(void *arg)
{
    aco_chan_t *chan = aco_chan_new(sizeof(jobs[0]), 0);
    aco_within(patience * MILLISECOND)
    {
        aco_group_t *group = aco_group_new();
        for (long i = 0; i < ct_workers; i++) {
            if (chan == NULL || group == NULL || aco_group_go(group, work, chan) != 0) {
                err(1, "worker %ld", i);
            }
        }
        for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
            aco_chan_send(chan, &jobs[i]);
        }
        aco_chan_close(chan);
        if (aco_group_join(group) != 0) {
            printf("the group: %s\n", strerror(errno));
        }
    }
    aco_chan_free(chan);
    return arg;
}

int main(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "w:t:h")) != -1) {
        if (option == 'w') {
            ct_workers = atol(optarg);
        } else if (option == 't') {
            patience = atol(optarg);
        } else {
            break;
        }
    }
    if (option != -1 || optind != argc) {
        fputs(USAGE, option == 'h' ? stdout : stderr);
        return option == 'h' ? 0 : 2;
    }
    if (aco_run(NULL, run, NULL, NULL) != 0) {
        err(1, "aco_run");
    }
    return 0;
}
