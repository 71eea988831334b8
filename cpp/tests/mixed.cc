// SPDX-License-Identifier: Apache-2.0
/* A program of two files: this one, compiled with exceptions and without. Each has classes of its
 * own, whichever of their functions the linker meets first. */
#include "aco.hpp"

#include <cstdio>
#include <cstdlib>

int sum_without_exceptions();

static aco::generator<int> count(int limit)
{
    return aco::generator<int>([limit](auto &yield) {
        for (int i = 0;; i++) {
            if (i == limit) {
#ifdef __cpp_exceptions
                throw limit;
#endif
            }
            yield(i);
        }
    });
}

static int sum()
{
    int total = 0;
    for (int i : count(7)) {
        total += i;
        if (i == 4) {
            break;
        }
    }
    return total;
}

#ifndef __cpp_exceptions
int sum_without_exceptions()
{
    aco::mutex mutex;
    mutex.lock();
    mutex.unlock();
    return sum();
}
#else
static void check(bool is_so, const char *what)
{
    if (!is_so) {
        std::fprintf(stderr, "mixed.cc: %s\n", what);
        std::abort();
    }
}

int main()
{
    check(sum() == 10 && sum_without_exceptions() == 10, "the sums are wrong");
    int caught = 0;
    try {
        for (int i : count(7)) {
            caught -= i;
        }
    } catch (int thrown) {
        caught += thrown;
    }
    check(caught == 7 - 21, "a generator does not throw");
    aco::run([] {
        aco::mutex mutex;
        mutex.lock();
        try {
            mutex.lock();
            check(false, "a mutex is locked twice");
        } catch (const std::system_error &e) {
            check(e.code() == std::errc::resource_deadlock_would_occur, "another error");
        }
        mutex.unlock();
    });
}
#endif
