// two_threads.c shows a pipeline over two threads, whose stages are tasks between channels.
// SPDX-License-Identifier: Apache-2.0
/*
 * The first stage makes numbers, the second one, on another thread, takes them apart, and the third
 * one prints them. A full channel has the stage before it wait: no stage runs away from the next.
 * It prints:
 *
 *     1000000000001 = 73 * 137 * 99990001
 *     1000000000002 = 2 * 3 * 166666666667
 *     1000000000003 = 61 * 14221 * 1152763
 */
#include "aco_runtime.h"

#include <err.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char USAGE[] =
    "usage: two_threads [-n COUNT] [-h]\n"
    "  -n COUNT  of numbers (3)\n"
    "  -h        this text\n";

typedef struct {
    uint64_t number;
    uint64_t factors[64];
    int ct_factors;
} item_t;

static long ct_numbers = 3;
static aco_chan_t *numbers, *results;

static void *make_numbers(void *arg)
{
    for (item_t item = {.number = 1000000000001}; ct_numbers > 0; ct_numbers--, item.number++) {
        aco_chan_send(numbers, &item);
    }
    aco_chan_close(numbers);
    return arg;
}

static void *take_apart(void *arg)
{
    item_t item;
    while (aco_chan_recv(numbers, &item) == 1) {
        uint64_t rest = item.number;
        for (uint64_t factor = 2; factor * factor <= rest; factor++) {
            while (rest % factor == 0 && rest != factor) {
                item.factors[item.ct_factors++] = factor;
                rest /= factor;
            }
        }
        item.factors[item.ct_factors++] = rest;
        aco_chan_send(results, &item);
    }
    aco_chan_close(results);
    return arg;
}

static void print(const item_t *item)
{
    printf("%" PRIu64 " = ", item->number);
    for (int i = 0; i < item->ct_factors; i++) {
        printf(i == 0 ? "%" PRIu64 : " * %" PRIu64, item->factors[i]);
    }
    puts("");
}

static void *run(void *arg)
{
    aco_task_options_t there = {.name = "take_apart", .thread = ACO_THREAD(1)};
    numbers = aco_chan_new(sizeof(item_t), 16);
    results = aco_chan_new(sizeof(item_t), 16);
    if (numbers == NULL || results == NULL || aco_go(make_numbers, NULL) != 0 ||
        aco_go_with(&there, take_apart, NULL, NULL) != 0) {
        err(1, "the pipeline");
    }
    item_t item;
    while (aco_chan_recv(results, &item) == 1) {
        print(&item);
    }
    aco_chan_free(results);
    aco_chan_free(numbers);
    return arg;
}

int main(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "n:h")) == 'n') {
        ct_numbers = atol(optarg);
    }
    if (option != -1 || optind != argc) {
        fputs(USAGE, option == 'h' ? stdout : stderr);
        return option == 'h' ? 0 : 2;
    }
    if (aco_run(&(aco_run_options_t){.ct_threads = 2}, run, NULL, NULL) != 0) {
        err(1, "aco_run");
    }
    return 0;
}
