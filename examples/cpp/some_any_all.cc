// some_any_all.cc shows waiting for all, any and some of several tasks.
// SPDX-License-Identifier: Apache-2.0
/*
 * It prints:
 *
 *     all: 1 two
 *     any: the second one
 *     some: 2 of 5, and the rest was cancelled: 3
 */
#include "aco.hpp"

#include <cstdio>
#include <string>
#include <vector>

namespace {

aco::task<int> worker(int i, bool is_slow)
{
    return aco::spawn([=] {
        if (is_slow) {
            aco::sleep_for(std::chrono::hours(1));
        }
        return i;
    });
}

} // namespace

int main()
{
    aco::run([] {
        auto [one, two] = aco::when_all(aco::spawn([] { return 1; }),
                                        aco::spawn([] { return std::string("two"); }));
        std::printf("all: %d %s\n", one, two.c_str());

        auto slow = worker(1, true), fast = worker(2, false);
        auto first = aco::when_any(aco::cancel_rest, slow, fast);
        std::printf("any: the %s one\n", first.index() == 0 ? "first" : "second");

        std::vector<aco::task<int>> workers;
        for (int i = 0; i < 5; i++) {
            workers.push_back(worker(i, i % 2 == 0));
        }
        auto some = aco::when_some(aco::cancel_rest, 2, workers);
        int ct_cancelled = 0;
        for (auto &left : workers) {
            if (left.joinable()) {
                try {
                    (void)left.join();
                } catch (const std::system_error &) {
                    ct_cancelled++;
                }
            }
        }
        std::printf("some: %zu of 5, and the rest was cancelled: %d\n", some.size(), ct_cancelled);
    });
}
