// echo_client.c shows ten thousand connections at a time, every byte checked.
// SPDX-License-Identifier: Apache-2.0
#include "aco_runtime.h"

#include <err.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE_MAX_SZ 1000u /* bytes */
#define MOST_DIALLING 256u   /* connections; a listener's queue is short */

static const char USAGE[] =
    "usage: echo_client [-c CONNECTIONS] [-r ROUNDS] [-e EVERY] [-h] ADDRESS, such as :7000\n"
    "  -c CONNECTIONS  how many are open at a time (10000)\n"
    "  -r ROUNDS       messages that each of them sends (5)\n"
    "  -e EVERY        one of so many breaks off in the middle of an answer (0: none)\n"
    "  -h              this text\n";

static long ct_connections = 10000, ct_rounds = 5, every;
static const char *address;

static aco_semaphore_t dialling;
static aco_wait_group_t opening;
static size_t ct_bytes;

/* Sends a message, which no other one is like, and checks `part` of its answer, 1 for all of it. */
static void exchange(int fd, long number, long round, size_t part)
{
    char message[MESSAGE_MAX_SZ], answer[MESSAGE_MAX_SZ];
    uint32_t x = (uint32_t)(number * ct_rounds + round) * 2654435761u + 1;
    size_t sz = 1 + x % MESSAGE_MAX_SZ;
    for (size_t i = 0; i < sz; i++) {
        x = x * 1664525u + 1013904223u;
        message[i] = (char)(x >> 24);
    }
    if (aco_write_all(fd, message, sz) != (ssize_t)sz) {
        err(1, "connection %ld: send", number);
    }
    sz /= part;
    if (aco_read_all(fd, answer, sz) != (ssize_t)sz || memcmp(message, answer, sz) != 0) {
        errx(1, "connection %ld: a wrong answer in round %ld", number, round);
    }
    ct_bytes += sz;
}

/* No more from here, then no more from there. */
static void end_in_order(int fd, long number)
{
    char more;
    if (aco_shutdown(fd, SHUT_WR) != 0 || aco_read(fd, &more, 1) != 0) {
        errx(1, "connection %ld: no end after the last byte", number);
    }
}

static void *converse(void *arg)
{
    long number = (long)(intptr_t)arg;
    aco_semaphore_acquire(&dialling);
    int fd = aco_dial("tcp", address);
    if (fd < 0) {
        err(1, "%s", address);
    }
    exchange(fd, number, 0, 1);
    aco_semaphore_release(&dialling);
    aco_wait_group_done(&opening);
    aco_wait_group_wait(&opening); /* all are open now */
    for (long round = 1; round < ct_rounds; round++) {
        exchange(fd, number, round, 1);
    }
    if (every != 0 && number % every == 0) {
        exchange(fd, number, ct_rounds, 2);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    } else {
        end_in_order(fd, number);
    }
    aco_close(fd);
    return NULL;
}

static void *run(void *arg)
{
    aco_group_t *group = aco_group_new();
    aco_semaphore_init(&dialling, MOST_DIALLING);
    aco_wait_group_add(&opening, ct_connections);
    for (long i = 0; i < ct_connections; i++) {
        if (group == NULL || aco_group_go(group, converse, (void *)(intptr_t)i) != 0) {
            err(1, "connection %ld", i);
        }
    }
    aco_wait_group_wait(&opening);
    printf("%ld connections are open\n", ct_connections);
    fflush(stdout);
    aco_group_join(group);
    printf("%zu bytes came back right\n", ct_bytes);
    return arg;
}

int main(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "c:r:e:h")) != -1) {
        if (option == 'c') {
            ct_connections = atol(optarg);
        } else if (option == 'r') {
            ct_rounds = atol(optarg);
        } else if (option == 'e') {
            every = atol(optarg);
        } else {
            break;
        }
    }
    if (option != -1 || optind != argc - 1) {
        fputs(USAGE, option == 'h' ? stdout : stderr);
        return option == 'h' ? 0 : 2;
    }
    address = argv[optind];
    signal(SIGPIPE, SIG_IGN);
    if (aco_run(NULL, run, NULL, NULL) != 0) {
        err(1, "aco_run");
    }
    return 0;
}
