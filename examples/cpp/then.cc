// then.cc shows continuations: what a task returns goes to the next one.
// SPDX-License-Identifier: Apache-2.0
/*
 * It prints:
 *
 *     6 * 7 = 42
 *     skipped: division by zero
 */
#include "aco.hpp"

#include <cstdio>
#include <stdexcept>
#include <string>

namespace {

int divide(int a, int b)
{
    if (b == 0) {
        throw std::domain_error("division by zero");
    }
    return a / b;
}

} // namespace

int main()
{
    aco::run([] {
        auto text = aco::spawn([] { return divide(84, 2); }).then([](int i) {
            return "6 * 7 = " + std::to_string(i);
        });
        std::puts(text.join().c_str());
        auto none = aco::spawn([] {
                        return divide(1, 0);
                    }).then([](int) {
                          std::puts("never printed");
                      }).then([] { std::puts("nor this"); });
        try {
            none.join();
        } catch (const std::domain_error &e) {
            std::printf("skipped: %s\n", e.what());
        }
    });
}
