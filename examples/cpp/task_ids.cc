// task_ids.cc shows that each task has a number that no other one ever has.
// SPDX-License-Identifier: Apache-2.0
/*
 * It prints:
 *
 *     inside and outside: the same
 *     another task: another one
 */
#include "aco.hpp"

#include <cstdio>

int main()
{
    aco::run([] {
        auto first = aco::spawn([] { return aco::this_task_id(); });
        auto second = aco::spawn([] {});
        std::uint64_t id = first.id();
        bool is_other = second.id() != id;
        std::printf("inside and outside: %s\n", first.join() == id ? "the same" : "different");
        std::printf("another task: %s\n", is_other ? "another one" : "the same");
        second.join();
    });
}
