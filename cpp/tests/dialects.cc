// SPDX-License-Identifier: Apache-2.0
/* A program of two files: this one, compiled as C++17 and as C++20, whose stop tokens are of other
 * types. Both ask for those of one task. */
#include "aco.hpp"

#include <cstdio>
#include <cstdlib>

bool is_stopped_in_20(const aco::task<void> &task);

#if __cplusplus > 201703L
bool is_stopped_in_20(const aco::task<void> &task)
{
    return task.get_stop_token().stop_requested();
}
#else
static bool is_stopped_in_17(const aco::task<void> &task)
{
    return task.get_stop_token().stop_requested();
}

int main()
{
    return aco::run([] {
        auto task = aco::spawn([] {});
        bool is_right = !is_stopped_in_17(task) && !is_stopped_in_20(task);
        task.cancel();
        is_right = is_right && is_stopped_in_17(task) && is_stopped_in_20(task);
        task.join();
        if (!is_right) {
            std::fprintf(stderr,
                         "dialects.cc: a token does not tell that the task was cancelled\n");
        }
        return is_right ? EXIT_SUCCESS : EXIT_FAILURE;
    });
}
#endif
