// results.cc shows results of any type, exceptions, and return codes, by join.
// SPDX-License-Identifier: Apache-2.0
/*
 * It prints:
 *
 *     42
 *     moved: text
 *     caught: no such file
 *     code 2
 */
#include "aco.hpp"

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

int main()
{
    int code = aco::run([] {
        auto number = aco::spawn([] { return 42; });
        auto pointer = aco::spawn([] { return std::make_unique<std::string>("text"); });
        auto failing = aco::spawn([]() -> int { throw std::runtime_error("no such file"); });
        std::printf("%d\n", number.join());
        std::printf("moved: %s\n", pointer.join()->c_str());
        try {
            (void)failing.join();
        } catch (const std::exception &e) {
            std::printf("caught: %s\n", e.what());
        }
        return 2; /* of run(), so perhaps of main() */
    });
    std::printf("code %d\n", code);
}
