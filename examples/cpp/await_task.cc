// await_task.cc shows a task that waits for the end of others.
// SPDX-License-Identifier: Apache-2.0
/*
 * It prints:
 *
 *     worker 1 ended
 *     worker 2 ended
 *     sum 3
 */
#include "aco.hpp"

#include <cstdio>

namespace {

int work(int i)
{
    for (int rounds = 0; rounds < i; rounds++) {
        aco::yield();
    }
    std::printf("worker %d ended\n", i);
    return i;
}

} // namespace

int main()
{
    aco::run([] {
        auto one = aco::spawn([] { return work(1); });
        auto both = aco::spawn([&one] {
            auto two = aco::spawn([] { return work(2); });
            int first = one.join(); /* only this task waits */
            return first + two.join();
        });
        std::printf("sum %d\n", both.join());
    });
}
