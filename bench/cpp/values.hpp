// SPDX-License-Identifier: Apache-2.0
/* Values that generators pass on, in a row or of a tree, and how they are measured. */
#ifndef BENCH_VALUES_HPP
#define BENCH_VALUES_HPP

#include "peer.h"

struct node {
    node *left, *right;
    int value;
};

inline node *build(int levels)
{
    return levels == 0 ? nullptr : new node{build(levels - 1), build(levels - 1), 1};
}

template <class G> void check_sum(G &&values, long expected)
{
    long sum = 0;
    for (int value : values) {
        sum += value;
    }
    check(sum == expected, "a wrong sum");
}

inline double processor_ns()
{
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

/* Runs f(n), which makes as many values as it returns. */
template <class F> void measure(F f, long n)
{
    f(n / 10 + 1); /* warm */
    double start = processor_ns();
    double ct = static_cast<double>(f(n));
    print_metric("ns", (processor_ns() - start) / ct);
}

/* `count` makes a generator of so many integers. */
template <class F> void measure_flat(F count, long n)
{
    measure(
        [count](long ct) {
            check_sum(count(static_cast<int>(ct)), ct * (ct - 1) / 2);
            return ct;
        },
        n);
}

/* `walk` makes a generator of a tree's values. */
template <class F> void measure_tree(F walk, long n)
{
    constexpr int depth = 20;
    const node *root = build(depth);
    measure(
        [root, walk](long ct) {
            constexpr long ct_nodes = (1L << depth) - 1;
            for (long i = 0; i < ct; i++) {
                check_sum(walk(root), ct_nodes);
            }
            return ct * ct_nodes;
        },
        n);
}

#endif
