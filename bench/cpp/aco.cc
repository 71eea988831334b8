// SPDX-License-Identifier: Apache-2.0
/*
 * Generators and tasks of aco.hpp.
 *
 * kind: stackful
 * needs: g++
 * peer: aco.hpp
 * build: $CC -O2 -pthread $INCLUDE -r -nostdlib $ACO_RUNTIME -o $OUT.o && \
 *        $CXX -O2 -pthread -std=c++20 $INCLUDE -Ibench/peers $SRC $OUT.o -o $OUT
 */
#include "aco.hpp"

#include "values.hpp"

#include <vector>

namespace {

__attribute__((noinline)) aco::generator<int> count(int ct)
{
    return aco::generator<int>([ct](auto &yield) {
        for (int i = 0; i < ct; i++) {
            yield(i);
        }
    });
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

long spawn_and_join(long n)
{
    long sum = 0;
    for (long i = 0; i < n; i++) {
        sum += aco::spawn([i] { return i; }).join();
    }
    check(sum == n * (n - 1) / 2, "a wrong sum");
    return n;
}

aco::future<double> await_all(std::vector<aco::task<int>> &tasks)
{
    long sum = 0;
    double start = processor_ns();
    for (auto &task : tasks) {
        sum += co_await task;
    }
    double ns = processor_ns() - start;
    check(sum == static_cast<long>(tasks.size()), "a wrong sum");
    co_return ns;
}

void await_ended(long n)
{
    constexpr long batch = 1000;
    double ns = 0;
    for (long i = 0; i < n; i += batch) {
        std::vector<aco::task<int>> tasks;
        for (long j = 0; j < batch; j++) {
            tasks.push_back(aco::spawn([] { return 1; }));
        }
        for (auto &task : tasks) {
            while (!task.done()) {
                aco::yield();
            }
        }
        ns += await_all(tasks).get();
    }
    print_metric("ns", ns / static_cast<double>((n + batch - 1) / batch * batch));
}

const struct {
    const char *name;
    void (*measure)(long n);
} workloads[] = {
    {"flat", [](long n) { measure_flat(count, n); }},
    {"tree", [](long n) { measure_tree(walk, n); }},
    {"spawn_join", [](long n) { measure(spawn_and_join, n); }},
    {"co_await", await_ended},
};

} // namespace

int main(int argc, char **argv)
{
    for (const auto &workload : workloads) {
        if (argc == 3 && strcmp(argv[1], workload.name) == 0) {
            aco::run([&] { workload.measure(atol(argv[2])); });
            return 0;
        }
    }
    absent("no such workload");
}
