// SPDX-License-Identifier: Apache-2.0
/*
 * What aco.hpp costs, beside C++20's own coroutines: medians of interleaved rounds, in ns of
 * processor time. Measure on a processor that is idle otherwise:
 *
 *     gcc -O2 -pthread -I. -Iruntime -Iextra/stack_pool -Iextra/cancel -c runtime/[a-z]*.c \
 *         extra/stack_pool/[a-z]*.c extra/cancel/[a-z]*.c aco.c acosw.S
 *     g++ -O2 -pthread -std=c++20 -I. -Iruntime -Iextra/stack_pool bench/cpp/figures.cc [a-z]*.o \
 *         -o figures && taskset -c 1 ./figures
 */
#include "aco.hpp"

#include "stackless_generator.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

namespace {

constexpr int ct_rounds = 15, ct_values = 1000000, depth = 20, ct_tasks = 200000;

double now()
{
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

void check(bool is_so)
{
    if (!is_so) {
        std::fputs("a wrong sum\n", stderr);
        std::abort();
    }
}

template <class F> double ns_each(long ct, F f)
{
    double begin = now();
    f();
    return (now() - begin) / static_cast<double>(ct);
}

/* ==== Flat =================================================================================== */

__attribute__((noinline)) aco::generator<int> count(int ct)
{
    return aco::generator<int>([ct](auto &yield) {
        for (int i = 0; i < ct; i++) {
            yield(i);
        }
    });
}

__attribute__((noinline)) stackless::generator<int> stackless_count(int ct)
{
    for (int i = 0; i < ct; i++) {
        co_yield i;
    }
}

/* ==== A tree walk ============================================================================ */

struct node {
    node *left, *right;
    int value;
};

node *build(int levels)
{
    return levels == 0 ? nullptr : new node{build(levels - 1), build(levels - 1), 1};
}

aco::generator<int> walk(const node *n)
{
    return aco::generator<int>([n](auto &yield) {
        if (n->left != nullptr) {
            yield(walk(n->left));
        }
        yield(n->value);
        if (n->right != nullptr) {
            yield(walk(n->right));
        }
    });
}

stackless::generator<int> stackless_walk(const node *n)
{
    using nested = stackless::elements_of<stackless::generator<int>>;
    if (n->left != nullptr) {
        co_yield nested(stackless_walk(n->left));
    }
    co_yield n->value;
    if (n->right != nullptr) {
        co_yield nested(stackless_walk(n->right));
    }
}

/* Passes each value on by hand, level for level. */
stackless::generator<int> stackless_walk_by_loops(const node *n)
{
    if (n->left != nullptr) {
        for (int value : stackless_walk_by_loops(n->left)) {
            co_yield value;
        }
    }
    co_yield n->value;
    if (n->right != nullptr) {
        for (int value : stackless_walk_by_loops(n->right)) {
            co_yield value;
        }
    }
}

template <class G> void check_sum(G &&values, long expected)
{
    long sum = 0;
    for (int value : values) {
        sum += value;
    }
    check(sum == expected);
}

/* ==== Tasks ================================================================================== */

double spawn_and_join()
{
    return ns_each(ct_tasks, [] {
        long sum = 0;
        for (int i = 0; i < ct_tasks; i++) {
            sum += aco::spawn([i] { return i; }).join();
        }
        check(sum == ct_tasks * (ct_tasks - 1L) / 2);
    });
}

aco::future<double> await_all(std::vector<aco::task<int>> &tasks)
{
    long sum = 0;
    double begin = now();
    for (auto &task : tasks) {
        sum += co_await task;
    }
    double ns = (now() - begin) / static_cast<double>(tasks.size());
    check(sum == static_cast<long>(tasks.size()));
    co_return ns;
}

double await_ready()
{
    std::vector<aco::task<int>> tasks;
    for (int i = 0; i < 1000; i++) {
        tasks.push_back(aco::spawn([] { return 1; }));
    }
    for (auto &task : tasks) {
        while (!task.done()) {
            aco::yield();
        }
    }
    return await_all(tasks).get();
}

/* ==== Rounds ================================================================================= */

struct row {
    const char *name;
    double (*measure)();
    std::vector<double> times;

    double median()
    {
        std::sort(times.begin(), times.end());
        return times[times.size() / 2];
    }
};

const node *root;
constexpr long flat_sum = ct_values * (ct_values - 1L) / 2, ct_nodes = (1L << depth) - 1;

} // namespace

int main()
{
    root = build(depth);
    row rows[] = {
        {"value, flat",
         [] { return ns_each(ct_values, [] { check_sum(count(ct_values), flat_sum); }); },
         {}},
        {"value, flat, C++20",
         [] { return ns_each(ct_values, [] { check_sum(stackless_count(ct_values), flat_sum); }); },
         {}},
        {"value, tree of depth 20",
         [] { return ns_each(ct_nodes, [] { check_sum(walk(root), ct_nodes); }); },
         {}},
        {"value, tree, C++20",
         [] { return ns_each(ct_nodes, [] { check_sum(stackless_walk(root), ct_nodes); }); },
         {}},
        {"value, tree, C++20 by loops",
         [] {
             return ns_each(ct_nodes, [] { check_sum(stackless_walk_by_loops(root), ct_nodes); });
         },
         {}},
        {"spawn and join", spawn_and_join, {}},
        {"co_await of a ready task", await_ready, {}},
    };
    aco::run([&] {
        for (int round = 0; round < ct_rounds; round++) {
            for (row &r : rows) {
                r.times.push_back(r.measure());
            }
        }
    });
    for (row &r : rows) {
        std::printf("%-30s %7.2f ns\n", r.name, r.median());
    }
    std::printf("flat: %.2f times C++20\n", rows[0].median() / rows[1].median());
    std::printf("tree: C++20 takes %.2f times as long, by loops %.2f\n",
                rows[3].median() / rows[2].median(), rows[4].median() / rows[2].median());
    return 0;
}
