// SPDX-License-Identifier: Apache-2.0
/* Runs both sides of each row of a table in docs/cpp.md, and compares what they return. */
#ifndef ROWS_HPP
#define ROWS_HPP

#include "aco.hpp"

#include <cstdio>
#include <string>

struct row {
    const char *name;
    std::string (*theirs)();
    std::string (*ours)();
};

/* The functions of that name in the namespaces `theirs` and `ours`. */
#define ROW(name) row({#name, theirs::name, ours::name})

/* Calls `theirs` of all rows on the thread, and then `ours` in a task. Prints a line for each row.
 * Returns the status of the program: 1 if two sides differ. */
template <std::size_t N> int run_rows(const row (&rows)[N], const aco::run_options &options = {})
{
    std::string theirs[N];
    for (std::size_t i = 0; i < N; i++) {
        theirs[i] = rows[i].theirs();
    }
    return aco::run(
        [&] {
            bool differ = false;
            for (std::size_t i = 0; i < N; i++) {
                std::string ours = rows[i].ours();
                bool is_same = ours == theirs[i];
                std::printf("%s: %s%s%s\n", rows[i].name, theirs[i].c_str(),
                            is_same ? "" : " is not ", is_same ? "" : ours.c_str());
                differ = differ || !is_same;
            }
            return differ ? 1 : 0;
        },
        options);
}

#endif
