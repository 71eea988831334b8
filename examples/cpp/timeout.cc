// timeout.cc shows a time for all that a task does, and one for waiting for it.
// SPDX-License-Identifier: Apache-2.0
/*
 * It prints:
 *
 *     the task: out of time
 *     the task goes on: 0
 *     now it was told to end: 1
 */
#include "aco.hpp"

#include <cstdio>

using namespace std::chrono_literals;

int main()
{
    aco::run([] {
        auto limited = aco::spawn([] {
            try {
                aco::within(5ms, [] { aco::sleep_for(1h); });
            } catch (const std::system_error &e) {
                return e.code() == std::errc::timed_out;
            }
            return false;
        });
        std::printf("the task: %s\n", limited.join() ? "out of time" : "ended");

        auto slow = aco::spawn([] { aco::sleep_for(1h); });
        try {
            aco::within(5ms, [&] { slow.join(); }); /* the time for waiting */
        } catch (const std::system_error &) {
            std::printf("the task goes on: %d\n", slow.done());
        }
        slow.cancel();
        try {
            slow.join();
        } catch (const std::system_error &e) {
            std::printf("now it was told to end: %d\n", e.code() == std::errc::operation_canceled);
        }
    });
}
