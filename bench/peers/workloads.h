// SPDX-License-Identifier: Apache-2.0
/*
 * The workloads, for peers in C and C++: how coroutines are created, resumed and destroyed by the
 * main program, and main() itself. C99 and C++20. Before it is included, a peer has defined all
 * that bodies.h wants, bodies by the same names, and:
 *   peer_body                          the type of a body
 *   PEER_MAIN                          the main program, as a parent
 *   peer_init()                        called first
 *   peer_create(parent, body, arg, sz) makes a coroutine with a stack of `sz` bytes, not started;
 *                                      it will be resumed by `parent`
 *   peer_resume(co)                    returns when it yields or ends
 *   peer_destroy(co)                   destroys one that has ended or stays suspended
 *   peer_kill(co)                      destroys a suspended one, unwound if the peer does that
 * and, where the peer has more than the common workloads:
 *   PEER_PURE                          a body that yields with nothing but the switch itself
 *   PEER_OTHERS(argc, argv)            runs one of its own; returns 0 if there is no such one
 *
 * Each workload is done once before it is measured, so that allocators, pools and caches are warm.
 */
#ifndef BENCH_WORKLOADS_H
#define BENCH_WORKLOADS_H

#include "peer.h"

#define SWITCH_STACK_SZ ((size_t)16 << 10) /* bytes */
#define TABLE_CYCLES 20                    /* of create, end, destroy, kill, for their means */
#define WARM_UP_CT 1000

/* Hides from the compiler which body it is: nothing is inlined that would not be elsewhere. */
#define LAUNDER(value) __asm__ volatile("" : "+r"(value))

/* ==== Switch ================================================================================= */

/* Counts down and holds the coroutine in a variable of its own, so that the loop adds as little as
 * can be to what is measured. */
static __attribute__((noinline)) void resume_often(peer_ref *held, long n)
{
    peer_ref co = MOVE(*held);
    for (long left = n; left > 0; left--) {
        peer_resume(co);
    }
    *held = MOVE(co);
}

static volatile double one = 1.0, three = 3.0, quotient;

/* With an inexact division while the coroutine is suspended, the flags of the main program differ
 * from those that the coroutine was suspended with, if it has flags of its own. */
static void run_switch(peer_body body, long n, int is_inexact)
{
    LAUNDER(body);
    peer_ref co = peer_create(PEER_MAIN, body, NULL, SWITCH_STACK_SZ);
    resume_often(&co, WARM_UP_CT);
    yields = 0;
    if (is_inexact) {
        quotient = one / three;
    }
    int64_t start = now_ns();
    resume_often(&co, n);
    double ns = mean_ns(start, (double)n);
    check(yields == n, "a resume was lost");
    peer_destroy(co);
    print_metric("ns", ns);
}

static void run_switch_live(long n)
{
    peer_body body = live;
    LAUNDER(body);
    peer_ref co = peer_create(PEER_MAIN, body, NULL, SWITCH_STACK_SZ);
    resume_often(&co, WARM_UP_CT);
    int64_t start = now_ns();
    resume_often(&co, n);
    double ns = mean_ns(start, (double)n);
    is_over = 1;
    peer_resume(co);
    check(yields == n + WARM_UP_CT, "a resume was lost");
    check(live_sum == expected_live_sum(n + WARM_UP_CT), "a live value is wrong");
    peer_destroy(co);
    print_metric("ns", ns);
}

/* Create, one resume to the end, destroy, one after the other. */
static void run_life(long n)
{
    peer_body body = at_once;
    double ns = 0;
    LAUNDER(body);
    for (long ct = WARM_UP_CT, is_warm = 0; is_warm < 2; ct = n, is_warm++) {
        yields = 0;
        int64_t start = now_ns();
        for (long i = 0; i < ct; i++) {
            peer_ref co = peer_create(PEER_MAIN, body, NULL, SWITCH_STACK_SZ);
            peer_resume(co);
            peer_destroy(co);
        }
        ns = mean_ns(start, (double)ct);
        check(yields == ct, "a coroutine was lost");
    }
    print_metric("ns", ns);
}

/* ==== Many =================================================================================== */

static peer_ref *all; /* the coroutines of a workload, in the order in which they were made */

static double create_all(peer_body body, long count, size_t stack_sz)
{
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        all[i] = peer_create(PEER_MAIN, body, NULL, stack_sz);
    }
    return mean_ns(start, (double)count);
}

static double resume_all(long count, long rounds)
{
    int64_t start = now_ns();
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < count; i++) {
            peer_resume(all[i]);
        }
    }
    return mean_ns(start, (double)count * (double)rounds);
}

static double destroy_all(long count)
{
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        peer_destroy(all[i]);
    }
    return mean_ns(start, (double)count);
}

static double kill_all(long count)
{
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        peer_kill(all[i]);
    }
    return mean_ns(start, (double)count);
}

/* Order of the metrics. */
enum { CREATE, SWITCH, LAST, DESTROY, KILL, METRIC_CT };

static void run_cycle(double ns[METRIC_CT], long count, long switches, size_t stack_sz)
{
    peer_body body = until_over;
    LAUNDER(body);
    is_over = 0;
    yields = 0;
    ns[CREATE] = create_all(body, count, stack_sz);
    ns[SWITCH] = resume_all(count, switches);
    check(yields == count * switches, "a resume was lost");
    is_over = 1;
    ns[LAST] = resume_all(count, 1);
    ns[DESTROY] = destroy_all(count);
    is_over = 0;
    create_all(body, count, stack_sz);
    resume_all(count, 1);
    ns[KILL] = kill_all(count);
    check(yields == count * (switches + 1), "a coroutine was lost");
}

static void run_table(long count, long switches, size_t stack_sz)
{
    static const char *const metrics[] = {"create_ns", "switch_ns", "last_ns", "destroy_ns",
                                          "kill_ns"};
    double sum[METRIC_CT] = {0}, ns[METRIC_CT];
    all = NEW_ARRAY(peer_ref, (size_t)count);
    run_cycle(ns, count, 1, stack_sz);
    for (int cycle = 0; cycle < TABLE_CYCLES; cycle++) {
        run_cycle(ns, count, 1, stack_sz);
        for (int i = 0; i < METRIC_CT; i++) {
            sum[i] += ns[i] / TABLE_CYCLES;
        }
    }
    run_cycle(ns, count, switches, stack_sz);
    sum[SWITCH] = ns[SWITCH];
    for (int i = 0; i < METRIC_CT; i++) {
        print_metric(metrics[i], sum[i]);
    }
    DELETE_ARRAY(all);
}

static void run_many(long count, size_t stack_sz, long rounds)
{
    peer_body body = flat;
    LAUNDER(body);
    all = NEW_ARRAY(peer_ref, (size_t)count);
    create_all(body, count, stack_sz);
    resume_all(count, 1);
    destroy_all(count);
    print_metric("create_ns", create_all(body, count, stack_sz));
    resume_all(count, 1);
    yields = 0;
    print_metric("switch_ns", resume_all(count, rounds));
    check(yields == count * rounds, "a resume was lost");
    destroy_all(count);
    DELETE_ARRAY(all);
}

/* ==== Skynet ================================================================================= */

static void run_skynet(int64_t (*skynet)(long leaves), long leaves)
{
    int64_t start = now_ns();
    int64_t sum = skynet(leaves);
    double ms = mean_ns(start, 1e6);
    check(sum == (int64_t)leaves * (leaves - 1) / 2, "wrong sum");
    print_metric("ms", ms);
}

/* ==== Command line =========================================================================== */

static inline long number(const char *text)
{
    return strtol(text, NULL, 10);
}

static int is_called(int argc, char **argv, const char *workload, int least, int most)
{
    return argc - 2 >= least && argc - 2 <= most && strcmp(argv[1], workload) == 0;
}

static int run_common(int argc, char **argv)
{
    if (is_called(argc, argv, "switch", 1, 1)) {
        run_switch(flat, number(argv[2]), 0);
    } else if (is_called(argc, argv, "switch_inexact", 1, 1)) {
        run_switch(flat, number(argv[2]), 1);
#ifdef PEER_DEEP
    } else if (is_called(argc, argv, "switch_deep", 1, 1)) {
        run_switch(PEER_DEEP, number(argv[2]), 0);
#endif
#ifdef PEER_PURE
    } else if (is_called(argc, argv, "pure", 1, 1)) {
        run_switch(PEER_PURE, number(argv[2]), 0);
#endif
    } else if (is_called(argc, argv, "switch_live", 1, 1)) {
        run_switch_live(number(argv[2]));
    } else if (is_called(argc, argv, "life", 1, 1)) {
        run_life(number(argv[2]));
    } else if (is_called(argc, argv, "table", 3, 3)) {
        run_table(number(argv[2]), number(argv[3]), (size_t)number(argv[4]));
    } else if (is_called(argc, argv, "many", 3, 3)) {
        run_many(number(argv[2]), (size_t)number(argv[3]), number(argv[4]));
    } else if (is_called(argc, argv, "skynet", 1, 2)) {
        int is_nested = strcmp(argv[2], "nested") == 0;
        run_skynet(is_nested ? skynet_nested : skynet_scheduler,
                   argc > 3 ? number(argv[3]) : 1000000);
    } else {
        return 0;
    }
    return 1;
}

#ifndef PEER_OTHERS
#define PEER_OTHERS(argc, argv) 0
#endif

int main(int argc, char **argv)
{
    if (argc < 2) {
        die("usage: PROGRAM WORKLOAD ARGUMENT...");
    }
    peer_init();
    if (!run_common(argc, argv) && !PEER_OTHERS(argc, argv)) {
        absent("no such workload");
    }
    return 0;
}

#endif
