// status.cc shows the states of a task: running, done, joined, and what it waits for.
// SPDX-License-Identifier: Apache-2.0
/*
 * It prints:
 *
 *     begun: done 0, joinable 1
 *     its line says that it waits: 1
 *     ended: done 1, joinable 1
 *     joined: joinable 0
 */
#include "aco.hpp"

#include <cstdio>
#include <string>

namespace {

/* The line about the task in the list of all tasks. */
std::string line_of(const char *name)
{
    char *text = nullptr;
    std::size_t sz;
    FILE *memory = open_memstream(&text, &sz);
    aco_print_tasks(memory);
    std::fclose(memory);
    std::string lines = text;
    std::free(text);
    std::size_t at = lines.find(name);
    return lines.substr(at, lines.find('\n', at) - at);
}

} // namespace

int main()
{
    aco::run([] {
        aco::task_options options = {};
        options.name = "sleeper";
        auto task = aco::spawn(options, [] { aco::sleep_for(std::chrono::milliseconds(20)); });
        aco::yield();
        std::printf("begun: done %d, joinable %d\n", task.done(), task.joinable());
        std::printf("its line says that it waits: %d\n",
                    line_of("sleeper").find("waits for a time") != std::string::npos);
        while (!task.done()) {
            aco::sleep_for(std::chrono::milliseconds(1));
        }
        std::printf("ended: done %d, joinable %d\n", task.done(), task.joinable());
        task.join();
        std::printf("joined: joinable %d\n", task.joinable());
    });
}
