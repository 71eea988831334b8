// SPDX-License-Identifier: Apache-2.0
/* Shared by the C++ tests of the runtime. A check that fails ends the program. */
#ifndef CPP_HPP
#define CPP_HPP

#include "aco.hpp"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            std::fprintf(stderr, "%s:%d: %s: not so: %s\n", __FILE__, __LINE__, __func__, #what);  \
            std::abort();                                                                          \
        }                                                                                          \
    } while (0)

/* Checks that the statement throws an E for which `test`, an expression in the exception `e`, is
 * true. */
#define CHECK_THROWS(E, test, ...)                                                                 \
    do {                                                                                           \
        bool has_thrown = false;                                                                   \
        try {                                                                                      \
            __VA_ARGS__;                                                                           \
        } catch (const E &e) {                                                                     \
            has_thrown = true;                                                                     \
            CHECK(test);                                                                           \
        }                                                                                          \
        CHECK(has_thrown);                                                                         \
    } while (0)
#define CHECK_FAILS(error, ...) CHECK_THROWS(std::system_error, e.code() == (error), __VA_ARGS__)

/* Counts the objects that are alive, and the copies. */
struct counted {
    static inline int ct_alive = 0, ct_copies = 0;
    int value;

    explicit counted(int v = 0) : value(v)
    {
        ct_alive++;
    }
    counted(const counted &other) : value(other.value)
    {
        ct_alive++;
        ct_copies++;
    }
    counted(counted &&other) noexcept : value(std::exchange(other.value, -1))
    {
        ct_alive++;
    }
    counted &operator=(const counted &) = default;
    counted &operator=(counted &&) = default;
    ~counted()
    {
        ct_alive--;
    }
};

constexpr auto for_ever = std::chrono::hours(24);

/* Lets all tasks that are ready run until they wait. */
inline void let_others_wait()
{
    for (int i = 0; i < 10; i++) {
        aco::yield();
    }
}

/* Calls `f` while an exception unwinds it. */
template <class F> struct at_unwinding {
    F f;
    ~at_unwinding()
    {
        CHECK(std::uncaught_exceptions() == 1);
        f();
    }
};

/* Checks that `wait` ends when its task is cancelled, and when a deadline passes: in ordinary code,
 * and while an exception is handled or unwinds a frame. */
template <class F> void check_wait_ends(F wait)
{
    auto ends = [&] {
        auto cancelled = aco::spawn([&] { wait(); });
        let_others_wait();
        CHECK(!cancelled.done());
        cancelled.cancel();
        CHECK_FAILS(std::errc::operation_canceled, cancelled.join());
        CHECK_FAILS(std::errc::timed_out,
                    aco::within(std::chrono::milliseconds(1), [&] { wait(); }));
    };
    ends();
    try {
        at_unwinding<decltype(ends)> unwound{ends};
        throw 1;
    } catch (int) {
        ends();
    }
    CHECK(std::uncaught_exceptions() == 0);
}

/* Runs `f` as the first task of a child. Returns the child's stderr and its status. */
template <class F> std::pair<std::string, int> said_by(F &&f)
{
    int fds[2], status;
    CHECK(pipe(fds) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(fds[1], STDERR_FILENO);
        aco::run(std::forward<F>(f));
        _exit(0);
    }
    close(fds[1]);
    std::string said(4096, '\0');
    said.resize(static_cast<std::size_t>(read(fds[0], said.data(), said.size())));
    close(fds[0]);
    CHECK(waitpid(child, &status, 0) == child);
    return {said, status};
}

struct test {
    const char *name;
    void (*fn)();
};
#define T(name)                                                                                    \
    test                                                                                           \
    {                                                                                              \
#name, name                                                                                \
    }

/* Runs all tests, or those that the arguments name. */
template <std::size_t N> int run_tests(const test (&tests)[N], int argc, char **argv)
{
    for (const test &t : tests) {
        bool is_named = argc == 1;
        for (int i = 1; i < argc; i++) {
            is_named = is_named || std::string(argv[i]) == t.name;
        }
        if (is_named) {
            t.fn();
            CHECK(counted::ct_alive == 0);
            std::printf("%s\n", t.name);
            std::fflush(stdout);
        }
    }
    return 0;
}

#endif
