// SPDX-License-Identifier: Apache-2.0
/* aco::run, spawn, task, group, when_*, time. */
#include "cpp.hpp"

#include <array>
#include <atomic>
#include <cfenv>
#include <csignal>
#include <limits>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <regex.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace std::chrono_literals;
using aco::spawn;

std::atomic<std::size_t> ct_allocations; /* by malloc(), or by operator new under a sanitizer */

/* ==== run, spawn, join ======================================================================= */

void run_returns_or_throws_what_the_callable_does()
{
    CHECK(aco::run([] { return 42; }) == 42);
    aco::run([] {});
    int number = 0;
    int &same = aco::run([&]() -> int & { return number; });
    CHECK(&same == &number);
    CHECK(*aco::run([p = std::make_unique<int>(3)]() mutable { return std::move(p); }) == 3);
    CHECK_THROWS(std::runtime_error, e.what() == std::string("x"),
                 aco::run([] { throw std::runtime_error("x"); }));
    aco::run([] { CHECK_FAILS(std::errc::device_or_resource_busy, aco::run([] {})); });
    aco_run_options_t options = {};
    options.ct_threads = -7;
    CHECK_FAILS(std::errc::invalid_argument, aco::run([] {}, options));
    CHECK_FAILS(std::errc::operation_not_permitted, (void)spawn([] {}));
}

void tasks_pass_values_and_exceptions_by_join()
{
    aco::run([] {
        auto number = spawn([] { return 42; });
        auto pointer = spawn([p = std::make_unique<int>(1)] {
            aco::yield();
            return std::make_unique<int>(*p + 1);
        });
        auto large = spawn([] { return std::array<int, 100>{1, 2, 3}; });
        auto nothing = spawn([] { aco::yield(); });
        auto thrown = spawn([]() -> int { throw std::runtime_error("thrown"); });
        std::array<char, 300> room{"captured"};
        auto captures = spawn([room] { return std::string(room.data()); });
        int target = 0;
        auto reference = spawn([&]() -> int & { return target; });
        auto rvalue = spawn([&]() -> int && { return std::move(target); });
        CHECK(number.join() == 42 && !number.joinable());
        CHECK(*pointer.join() == 2);
        CHECK(large.join()[2] == 3);
        nothing.join();
        CHECK_THROWS(std::runtime_error, e.what() == std::string("thrown"), (void)thrown.join());
        CHECK(captures.join() == "captured");
        CHECK(&reference.join() == &target);
        int &&same = rvalue.join();
        CHECK(&same == &target);
        CHECK(aco_self() != nullptr && aco::this_task_id() != 0);
    });
    CHECK(aco::this_task_id() == 0);
}

/* Whether `said` begins with the report of an exception that is lost. */
bool reports(const std::string &said, const char *what)
{
    return said.find("aco: an exception leaves a task that is never joined (task ") == 0 &&
           said.find(what) != said.npos;
}

void an_exception_of_a_dropped_task_is_reported()
{
    using large = std::array<char, 1000>;
    auto throws = [] { throw std::runtime_error("lost"); };
    auto throws_instead = []() -> large { throw 1; };
    auto throws_when_cancelled = [] {
        try {
            aco::sleep_for(for_ever);
        } catch (const std::system_error &) {
            throw std::runtime_error("cleaning up");
        }
    };
    auto ends_like_cancelled = [] {
        throw std::system_error(ECANCELED, std::generic_category(), "by itself");
    };
    auto tells = [](const char *what, auto f) {
        auto [said, status] = said_by([&] {
            auto dropped = spawn(f);
            let_others_wait();
        });
        return reports(said, what) && status == 0;
    };
    CHECK(tells("): lost: ", throws));
    CHECK(tells("): it is no std::exception: ", throws_instead));
    CHECK(tells("): cleaning up: ", throws_when_cancelled));
    CHECK(tells("): by itself: ", ends_like_cancelled));
    auto said = said_by([&] {
                    auto joined = spawn(throws);
                    CHECK_THROWS(std::runtime_error, true, joined.join());
                    auto waits = spawn([] { aco::sleep_for(for_ever); });
                    auto not_begun = spawn([] { aco::sleep_for(for_ever); });
                    let_others_wait();
                    auto ended = spawn([] { aco::sleep_for(for_ever); });
                    let_others_wait();
                    ended.cancel();
                    let_others_wait();
                }).first;
    CHECK(said == "");
}

void an_exception_of_a_detached_task_ends_the_program()
{
    using large = std::array<char, 1000>;
    auto throws = [] { throw std::runtime_error("lost"); };
    auto throws_instead = []() -> large { throw 1; };
    auto ends = [](const char *what, auto f) {
        auto [said, status] = said_by([&] {
            std::set_terminate([] {
                CHECK(std::current_exception() != nullptr);
                _exit(99);
            });
            f();
        });
        return reports(said, what) && WIFEXITED(status) && WEXITSTATUS(status) == 99;
    };
    CHECK(ends("): lost: ", [&] { spawn(throws).detach(); }));
    CHECK(ends("no std::exception: ", [&] { spawn(throws_instead).detach(); }));
    CHECK(ends("): lost: ", [&] {
        auto ended = spawn(throws);
        let_others_wait();
        ended.detach();
    }));
    CHECK(ends("): by itself: ", [&] {
        spawn([] {
            throw std::system_error(ECANCELED, std::generic_category(), "by itself");
        }).detach();
    }));
    auto [said, status] = said_by([&] {
        auto cancelled = spawn([] { aco::sleep_for(for_ever); });
        let_others_wait();
        cancelled.cancel();
        cancelled.detach();
    });
    CHECK(said == "" && status == 0);
}

void a_dropped_task_is_cancelled_and_joined()
{
    aco::run([] {
        int ct_ended = 0;
        auto cleans_up = [&] {
            try {
                aco::sleep_for(for_ever);
            } catch (const std::system_error &e) {
                CHECK(e.code() == std::errc::operation_canceled);
                aco::shielded([] { let_others_wait(); });
                ct_ended++;
            }
        };
        CHECK_THROWS(std::logic_error, ct_ended == 2, {
            auto waits = spawn(cleans_up);
            let_others_wait();
            auto not_begun = spawn(cleans_up);
            throw std::logic_error("between spawn() and join()");
        });
        auto replaced = spawn(cleans_up);
        replaced = aco::task<void>();
        CHECK(ct_ended == 3);
        replaced = spawn(cleans_up).then([&] { ct_ended += 10; });
        let_others_wait();
        replaced = {}; /* drops the one that it follows, too */
        CHECK(ct_ended == 4);
        CHECK_THROWS(std::logic_error, ct_ended == 5, {
            auto first = spawn([] { throw std::logic_error("of the first"); });
            auto second = spawn(cleans_up);
            first.join();
            second.join();
        });
        { /* objects of a coroutine that is unwound */
            aco::coroutine suspended([&] {
                auto waits = spawn(cleans_up);
                let_others_wait();
                aco_yield();
            });
            suspended.resume();
            aco::generator<int> values([&](auto &yield) {
                auto waits = spawn(cleans_up);
                let_others_wait();
                yield(1);
            });
            CHECK(*values.begin() == 1);
        }
        CHECK(ct_ended == 7);
    });
}

void the_end_of_a_dropped_task_is_waited_for_in_any_case()
{
    aco::run([] {
        int ct_ended = 0;
        auto takes_time = [&] {
            aco::shielded([] { aco::sleep_for(1ms); });
            ct_ended++;
        };
        CHECK_FAILS(std::errc::timed_out, aco::within(0ms, [&] {
                        auto dropped = spawn(takes_time);
                        errno = ERANGE;
                        dropped = {};
                        CHECK(errno == ERANGE && ct_ended == 1);
                        aco::sleep_for(for_ever);
                    }));
        auto cancelled = spawn([&] {
            auto dropped = spawn(takes_time);
            aco::sleep_for(for_ever);
        });
        let_others_wait();
        cancelled.cancel();
        CHECK_FAILS(std::errc::operation_canceled, cancelled.join());
        CHECK(ct_ended == 2);
        auto outside = spawn(takes_time);
        aco_offload(
            [](void *t) -> void * {
                *static_cast<aco::task<void> *>(t) = {};
                return nullptr;
            },
            &outside);
        CHECK(ct_ended == 3);
    });
}

void dropping_a_task_where_none_can_wait_is_misuse()
{
    auto [itself, status] = said_by([] {
        aco::task<void> own;
        own = spawn([&own] { own = {}; });
        aco::sleep_for(for_ever);
    });
    CHECK(itself.find("aco: the destructor of a task: it would wait for its own end") == 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    auto late = said_by([] {
        std::thread([] {
            aco::task<int> outside;
            aco::run([&] { outside = spawn([] { return 1; }); });
        }).join();
    });
    CHECK(late.first.find("the runtime of the task has ended, and freed it") != late.first.npos);
    CHECK(WIFSIGNALED(late.second) && WTERMSIG(late.second) == SIGABRT);
}

/* Tasks of a parent are none of its child's. ThreadSanitizer loses the order of coroutines in a
 * fork(). */
[[maybe_unused]] void a_child_drops_tasks_of_its_parent_without_a_wait()
{
    auto [said, status] = said_by([] {
        pid_t child = spawn([] {
                          auto waits = spawn([] { aco::sleep_for(for_ever); });
                          let_others_wait();
                          return fork();
                      }).join();
        int child_status = 0;
        CHECK(child > 0 && waitpid(child, &child_status, 0) == child && child_status == 0);
    });
    CHECK(said == "" && status == 0);
}

/* A result whose second move, into the storage of its task that has finished, goes on after that
 * was detached: its loop destroys it. */
struct slow_to_move {
    static inline std::atomic<int> ct_moves = 0;
    static inline std::atomic<bool> is_detached = false;
    aco::task<void> inner;

    explicit slow_to_move(aco::task<void> &&t) : inner(std::move(t))
    {
    }
    slow_to_move(slow_to_move &&other) noexcept : inner(std::move(other.inner))
    {
        if (++ct_moves == 2) {
            while (!is_detached) {
            }
        }
    }
};

void a_result_of_a_detached_task_may_wait_when_it_is_destroyed()
{
    aco::run_options options = {};
    options.ct_threads = 2;
    aco::run(
        [] {
            aco::task_options there = {};
            there.thread = ACO_THREAD(1);
            std::atomic<bool> has_ended = false;
            auto outer = spawn(there, [&] {
                return slow_to_move(spawn([&] {
                    CHECK_FAILS(std::errc::operation_canceled, aco::sleep_for(for_ever));
                    aco::shielded([] { aco::sleep_for(1ms); });
                    has_ended = true;
                }));
            });
            while (slow_to_move::ct_moves < 2) {
                aco::yield();
            }
            outer.detach();
            slow_to_move::is_detached = true;
            while (!has_ended) {
                aco::sleep_for(1ms);
            }
        },
        options);
}

void aco_exit_in_the_first_task_is_misuse()
{
    auto [said, status] = said_by([]() -> std::string { aco_exit(); });
    CHECK(said.find("aco_exit") != said.npos && said.find("return from its callable") != said.npos);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

void objects_of_tasks_live_as_long_as_they_must()
{
    aco::run([] {
        {
            auto t = spawn([c = counted(5)] { return counted(c.value); });
            CHECK(counted::ct_alive == 1);
            CHECK(t.join().value == 5);
            CHECK(counted::ct_alive == 0);
        }
        (void)spawn([c = counted()] { return counted(1); }); /* dropped before it begins */
        CHECK(counted::ct_alive == 0);
        spawn([c = counted()] { return counted(1); }).detach();
        let_others_wait();
        CHECK(counted::ct_alive == 0);
        {
            auto ended = spawn([] { return counted(2); });
            let_others_wait();
            CHECK(counted::ct_alive == 1 && ended.done());
        } /* dropped after it has ended */
        CHECK(counted::ct_alive == 0);
        {
            auto waits = spawn([c = counted()] { let_others_wait(); });
            let_others_wait();
            waits = spawn([] {}); /* dropped while it waits */
            CHECK(counted::ct_alive == 0);
            waits.join();
        }
    });
}

/* Counts its copies and moves down, and throws at the n-th. */
struct fragile {
    int *left;
    counted object;

    explicit fragile(int *n) : left(n)
    {
    }
    fragile(const fragile &other) : left(other.left)
    {
        use();
    }
    fragile(fragile &&other) noexcept(false) : left(other.left)
    {
        use();
    }
    void use() const
    {
        if (--*left == 0) {
            throw std::length_error("fragile");
        }
    }
    int operator()()
    {
        return 5;
    }
};

/* Calls `f` with an object that throws at its first use, its second and so on, until none does. */
template <class F> int ct_failures(F f)
{
    for (int ct = 0;; ct++) {
        int left = ct + 1;
        try {
            f(fragile(&left));
            return ct;
        } catch (const std::length_error &) {
        }
        let_others_wait();
        CHECK(counted::ct_alive == 0);
    }
}

void what_copies_throw_reaches_the_caller()
{
    aco::run([] {
        CHECK(ct_failures([](const fragile &f) { CHECK(spawn(f).join() == 5); }) == 1);
        CHECK(ct_failures([](fragile &&f) { CHECK(spawn(std::move(f)).join() == 5); }) == 1);
        int ct = ct_failures([](fragile &&f) {
            aco::group g;
            CHECK(g.spawn(std::move(f)).get() == 5);
        });
        CHECK(ct > 0);
        ct = ct_failures([](fragile &&f) {
            auto t = spawn([] { return 1; });
            CHECK(std::move(t).then([f = std::move(f)](int) mutable { return f(); }).join() == 5);
        });
        CHECK(ct > 0);
        auto kept = spawn([] { return 1; });
        ct = ct_failures([&](fragile &&f) {
            aco::task<int> made;
            try {
                made = kept.then([f = std::move(f)](int) mutable { return f(); });
            } catch (...) {
                CHECK(kept.joinable());
                throw;
            }
            CHECK(made.join() == 5);
        });
        CHECK(ct > 1);
        ct = ct_failures([](fragile &&f) { /* the result */
                                           CHECK(spawn([&f] { return fragile(f.left); }).join()() ==
                                                 5);
                                           (void)spawn([&f] { return std::move(f); }).join();
        });
        CHECK(ct > 0);
        ct = ct_failures([](fragile &&f) {
            auto t = spawn([&f] { return std::move(f); });
            aco::when_all(t);
        });
        CHECK(ct > 0);
    });
}

/* gcc names the function around a lambda; clang, the place. */
bool names_lambda(const std::string &name)
{
    const std::string lambda = "<lambda()>", file = "test_cpp_tasks.cc:";
    bool is_of_gcc = name.size() >= lambda.size() &&
                     name.compare(name.size() - lambda.size(), lambda.size(), lambda) == 0;
    return is_of_gcc || (name.compare(0, file.size(), file) == 0 &&
                         name.find_first_not_of("0123456789:", file.size()) == name.npos);
}

void tasks_have_ids_names_options()
{
    aco::run([] {
        aco::task_options options = {};
        options.name = "worker";
        options.shares_stack = 1;
        auto a = spawn(options, [] {
            aco::yield();
            return aco::this_task_id();
        });
        auto b = spawn([] {});
        CHECK(a.id() != b.id() && a.id() != 0);
        CHECK(a.name() == std::string("worker"));
        CHECK(names_lambda(b.name()));
        std::uint64_t id = a.id();
        CHECK(a.join() == id);
        b.join();
        options.thread = 99;
        CHECK_FAILS(std::errc::invalid_argument, (void)spawn(options, [] {}));
    });
}

/* Whether the list of tasks has a task of this name. */
bool lists(const std::string &name)
{
    char *text = nullptr;
    std::size_t sz;
    FILE *stream = open_memstream(&text, &sz);
    aco_print_tasks(stream);
    std::fclose(stream);
    regex_t pattern;
    std::string line = "(^|\n)task [0-9]+ \"" + name + "\": ";
    CHECK(regcomp(&pattern, line.c_str(), REG_EXTENDED | REG_NOSUB) == 0);
    bool is_there = regexec(&pattern, text, 0, nullptr, 0) == 0;
    regfree(&pattern);
    std::free(text);
    return is_there;
}

void is_named()
{
    CHECK(lists("\\w*is_named\\w*"));
}

void lists_name()
{
    CHECK(aco_task_name(aco_self()) == std::string());
    CHECK(lists("\\w*lists_name\\w*"));
}

struct functor {
    char large[100];
    void operator()() const
    {
        CHECK(lists(".*functor"));
    }
};

void tasks_without_names_have_those_of_callables()
{
    aco::run(is_named);
    aco::run([] {
        CHECK(names_lambda(aco_task_name(aco_self())));
        spawn(lists_name).join();
        spawn(&lists_name).join();
        spawn(functor{}).join();
        aco::task_options options = {};
        options.stack_sz = 100000;
        spawn(options, functor{}).join();
        aco::group group;
        group.spawn(lists_name);
        group.spawn([] { CHECK(names_lambda(aco_task_name(aco_self()))); });
        group.spawn(functor{});
        group.join();
    });
}

void results_pass_between_threads()
{
    aco::run_options options = {};
    options.ct_threads = 3;
    aco::run(
        [] {
            aco::task_options anywhere = {};
            anywhere.thread = ACO_ANY;
            std::vector<aco::task<std::string>> tasks;
            for (int i = 0; i < 200; i++) {
                tasks.push_back(spawn(anywhere, [i] {
                    if (i % 10 == 9 && i % 7 != 3) { /* the others are detached */
                        throw std::runtime_error(std::to_string(i));
                    }
                    return std::string(40, 'x') + std::to_string(i);
                }));
            }
            for (std::size_t i = 0; i < tasks.size(); i++) {
                if (i % 7 == 3) {
                    tasks[i].detach();
                } else if (i % 10 == 9) {
                    CHECK_THROWS(std::runtime_error, e.what() == std::to_string(i),
                                 (void)tasks[i].join());
                } else {
                    CHECK(tasks[i].join() == std::string(40, 'x') + std::to_string(i));
                }
            }
        },
        options);
    aco::task<int> outside; /* joined by a thread without a runtime */
    aco::run([&] {
        outside = spawn([] {
            let_others_wait();
            return 5;
        });
        int joined = 0;
        std::thread joiner([&] { joined = outside.join(); });
        aco_offload(
            [](void *t) -> void * {
                static_cast<std::thread *>(t)->join();
                return nullptr;
            },
            &joiner);
        CHECK(joined == 5);
    });
}

void small_callables_allocate_nothing()
{
    aco::run([] {
        spawn([] {}).join();
        std::size_t before = ct_allocations;
        for (int i = 0; i < 100; i++) {
            long a = i, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7;
            auto t = spawn([a, b, c, d, e, f, g] { return a + b + c + d + e + f + g; });
            CHECK(t.join() == i + 27);
        }
        CHECK(ct_allocations == before);
        /* The largest callables that fit, and larger ones. */
        std::array<void *, 8> eight{};
        std::array<void *, 9> nine{};
        (void)spawn([eight] { return std::array<void *, 6>{eight[0]}; }).join();
        CHECK(ct_allocations == before);
        (void)spawn([nine] { return nine[0]; }).join();
        CHECK(ct_allocations == before + 1);
        (void)spawn([] { return std::array<void *, 7>{}; }).join();
        CHECK(ct_allocations == before + 2);
    });
}

/* A task gets the stack of a task that has ended, but nothing else of it. */
void a_task_begins_as_if_it_were_the_first()
{
    aco::run([] {
        for (int i = 0; i < 3; i++) {
            aco::task<int> last;
            for (int k = 0; k < 3; k++) {
                last = spawn([] {
                    CHECK(errno == 0 && std::uncaught_exceptions() == 0);
                    int rounding = std::fegetround();
                    std::fesetround(FE_UPWARD);
                    errno = ERANGE;
                    return rounding;
                });
            }
            int rounding = last.join();
#ifndef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
            CHECK(rounding == FE_TONEAREST);
#endif
            (void)rounding;
        }
    });
}

void a_task_may_wait_while_it_handles_an_exception()
{
    aco::run([] {
        auto make = [](int i) {
            return spawn([i] {
                try {
                    throw std::runtime_error(std::to_string(i));
                } catch (const std::exception &) {
                    let_others_wait();
                    CHECK_THROWS(std::exception, e.what() == std::to_string(i), throw);
                }
                CHECK(std::uncaught_exceptions() == 0);
            });
        };
        auto a = make(1), b = make(2), c = make(3);
        aco::when_all(a, b, c);
        struct waits_when_unwound {
            ~waits_when_unwound()
            {
                CHECK(std::uncaught_exceptions() == 1);
                spawn([] { CHECK(std::uncaught_exceptions() == 0); }).join();
                CHECK(std::uncaught_exceptions() == 1);
            }
        };
        CHECK_THROWS(std::runtime_error, true, {
            waits_when_unwound w;
            throw std::runtime_error("x");
        });
    });
    try {
        throw std::runtime_error("around");
    } catch (const std::exception &) {
        aco::run([] { CHECK(std::current_exception() == nullptr); });
        CHECK_THROWS(std::exception, e.what() == std::string("around"), throw);
    }
}

/* ==== Cancelling and time ==================================================================== */

void cancelling_ends_waits()
{
    aco::run([] {
        auto sleeper = spawn([] { aco::sleep_for(for_ever); });
        auto not_begun = spawn([] { aco::sleep_for(for_ever); });
        auto joiner = spawn([&] { return sleeper.join(); });
        not_begun.cancel();
        let_others_wait();
        CHECK(!joiner.done());
        joiner.cancel();
        CHECK_FAILS(std::errc::operation_canceled, joiner.join());
        CHECK_FAILS(std::errc::operation_canceled, not_begun.join());
        CHECK(!sleeper.done());
        sleeper.cancel();
        CHECK_FAILS(std::errc::operation_canceled, sleeper.join());
        auto shields = spawn([] {
            aco::shielded([] { let_others_wait(); });
            aco::sleep_for(for_ever);
        });
        shields.cancel();
        CHECK_FAILS(std::errc::operation_canceled, shields.join());
    });
}

void yield_lets_others_run_and_can_fail()
{
    aco::run([] {
        std::string order;
        auto other = spawn([&] {
            for (int i = 0; i < 3; i++) {
                order += 'b';
                aco::yield();
            }
        });
        for (int i = 0; i < 3; i++) {
            order += 'a';
            aco::yield();
        }
        other.join();
        CHECK(order == "ababab");
        CHECK_FAILS(std::errc::timed_out, aco::within(0ms, [] { aco::yield(); }));
        aco::within(0ms, [] { aco::shielded([] { aco::yield(); }); });
        auto cancelled = spawn([] { aco::yield(); });
        cancelled.cancel();
        CHECK_FAILS(std::errc::operation_canceled, cancelled.join());
        int ct_turns = 0;
        auto spins = spawn([&] {
            for (;;) {
                ct_turns++;
                aco::yield();
            }
        });
        aco::sleep_for(1ms); /* timers count while a task yields */
        CHECK(ct_turns > 0);
    });
}

void each_wait_can_end()
{
    aco::run([] {
        auto sleeps = spawn([] { aco::sleep_for(for_ever); });
        check_wait_ends([] { aco::sleep_for(for_ever); });
        check_wait_ends([] { aco::sleep_until(std::chrono::system_clock::now() + for_ever); });
        check_wait_ends([&] { sleeps.join(); });
        check_wait_ends([&] { aco::when_all(sleeps); });
        check_wait_ends([&] { aco::when_any(sleeps); });
        check_wait_ends([&] { aco::when_some(1, sleeps); });
        check_wait_ends([] {
            aco::group g;
            g.spawn([] { aco::sleep_for(for_ever); });
        });
        check_wait_ends([] {
            aco::generator<int> values([](auto &yield) {
                counted object;
                aco::sleep_for(for_ever);
                yield(1);
            });
            values.begin();
        });
        CHECK(sleeps.joinable() && !sleeps.done());
        sleeps.cancel();
        CHECK_FAILS(std::errc::operation_canceled, sleeps.join());
    });
}

template <class T> void check_time(T longest, T past)
{
    CHECK_FAILS(std::errc::timed_out, aco::within(1ms, [&] { aco::sleep_until(longest); }));
    aco::sleep_until(past);
}

void times_have_no_bounds()
{
    using namespace std::chrono;
    CHECK_FAILS(std::errc::timed_out, aco::within(1ms, [] { aco::sleep_for(hours::max()); }));
    CHECK_FAILS(std::errc::timed_out, aco::within(1ms, [] {
                    aco::sleep_for(duration<double>(std::numeric_limits<double>::infinity()));
                }));
    aco::sleep_for(hours::min());
    check_time(steady_clock::time_point::max(), steady_clock::time_point::min());
    check_time(system_clock::time_point::max(), system_clock::time_point::min());
    using far = time_point<system_clock, hours>;
    check_time(far::max(), far::min());
    CHECK(aco::within(hours::max(), [] { return aco_deadline(); }) == INT64_MAX);
    using picoseconds = duration<std::int64_t, std::pico>;
    CHECK(aco::detail::ns_of(picoseconds(1)) == 1 && aco::detail::ns_of(picoseconds(0)) == 0);
    CHECK(aco::detail::ns_of(picoseconds::max()) > 0);
    CHECK(aco::detail::ns_of(duration<double>(1.5e-9)) == 2);
    CHECK(aco::detail::ns_of(hours(1)) == 3600000000000 && aco::detail::ns_of(-2ns) == -2);
}

void deadlines_end_waits()
{
    aco::run([] {
        auto sleeper = spawn([] { aco::sleep_for(for_ever); });
        CHECK_FAILS(std::errc::timed_out, aco::within(1ms, [&] { sleeper.join(); }));
        CHECK(sleeper.joinable() && !sleeper.done());
        CHECK_FAILS(std::errc::timed_out, aco::within(for_ever, [&] {
                        aco::within(1ms, [] { aco::sleep_for(for_ever); });
                    }));
        CHECK(aco::within(for_ever, [] { return 3; }) == 3);
        CHECK(aco_deadline() == INT64_MAX);
        aco::within(0ms, [] { aco::shielded([] { aco::sleep_for(1ms); }); });
        sleeper.cancel();
        CHECK_FAILS(std::errc::operation_canceled, sleeper.join());

        auto begin = std::chrono::steady_clock::now();
        aco::sleep_for(2ms);
        aco::sleep_until(begin + 5ms);
        CHECK(std::chrono::steady_clock::now() - begin >= 5ms);
        aco::sleep_until(std::chrono::system_clock::now() - 1h);
        aco::sleep_for(-1s);
        times_have_no_bounds();
    });
}

/* ==== then, groups, when ===================================================================== */

void then_continues()
{
    aco::run([] {
        auto text = spawn([] {
                        return 20;
                    }).then([](int i) {
                          return std::make_unique<int>(2 * i);
                      }).then([](std::unique_ptr<int> p) { return std::to_string(*p); });
        CHECK(text.join() == "40");
        int ct = 0;
        spawn([] {}).then([&] { ct++; }).then([&] { ct++; }).join();
        CHECK(ct == 2);
        auto failed =
            spawn([]() -> int { throw std::runtime_error("x"); }).then([&](int) { ct++; });
        CHECK_THROWS(std::runtime_error, true, failed.join());
        auto failed_too = spawn([] { throw std::runtime_error("x"); }).then([&] { ct++; });
        CHECK_THROWS(std::runtime_error, true, failed_too.join());
        CHECK(ct == 2);
        auto same = spawn([&]() -> int & { return ct; }).then([](int &i) -> int & { return i; });
        static_assert(std::is_same_v<decltype(same.join()), int &>);
        CHECK(&same.join() == &ct);
    });
}

void groups_end_together()
{
    aco::run([] {
        int ct = 0;
        {
            aco::group g;
            for (int i = 0; i < 10; i++) {
                g.spawn([&ct, p = std::make_unique<int>(1)] {
                    let_others_wait();
                    ct += *p;
                });
            }
        } /* joins */
        CHECK(ct == 10);
        {
            aco::group g;
            g.spawn([] { aco::sleep_for(for_ever); });
            g.cancel();
            CHECK_FAILS(std::errc::operation_canceled, g.spawn([c = counted()] {}));
            g.join(); /* the cancellation of its tasks is no failure */
        }
    });
}

void an_exception_in_a_group_cancels_it_and_leaves_join()
{
    aco::run([] {
        int ct_cancelled = 0;
        auto fill = [&](aco::group &g) {
            for (int i = 0; i < 3; i++) {
                g.spawn([&] {
                    CHECK_FAILS(std::errc::operation_canceled, aco::sleep_for(for_ever));
                    ct_cancelled++;
                });
            }
            g.spawn([] { throw std::runtime_error("first"); });
            g.spawn([] { throw std::runtime_error("second"); });
        };
        aco::group g;
        fill(g);
        CHECK_THROWS(std::runtime_error, e.what() == std::string("first"), g.join());
        CHECK(ct_cancelled == 3);
        CHECK_THROWS(std::runtime_error, e.what() == std::string("first"), {
            aco::group by_destructor;
            fill(by_destructor);
        });
        CHECK(ct_cancelled == 6);
        CHECK_FAILS(std::errc::operation_canceled, {
            aco::group not_cancelled;
            not_cancelled.spawn(
                [] { throw std::system_error(ECANCELED, std::generic_category(), "by itself"); });
        });
        CHECK_THROWS(std::logic_error, e.what() == std::string("mine"), {
            aco::group passed_by;
            fill(passed_by);
            throw std::logic_error("mine");
        });
        int ct_ended = 0;
        CHECK_THROWS(std::logic_error, ct_ended == 3, {
            aco::group waited_for;
            for (int i = 0; i < 3; i++) {
                waited_for.spawn([&ct_ended] {
                    aco::shielded([] { let_others_wait(); });
                    ct_ended++;
                });
            }
            let_others_wait();
            throw std::logic_error("mine");
        });
        CHECK(ct_cancelled == 9 || ct_cancelled == 6); /* before they began, or after */
        aco::group late;
        late.spawn([] { aco::sleep_for(for_ever); });
        CHECK_FAILS(std::errc::timed_out, aco::within(1ms, [&] { late.join(); }));
    });
}

/* An exception that passes a coroutine, which is suspended in a destructor, is none of its
 * resumer. */
void tasks_of_groups_have_results_and_options()
{
    aco::run([] {
        int variable = 0;
        aco::task_options options;
        options.name = "worker";
        options.shares_stack = true;
        {
            aco::group g;
            auto nothing = [] {};
            static_assert(std::is_void_v<decltype(g.spawn(nothing))>);
            aco::future<int> one = g.spawn([] { return 1; });
            auto reference = g.spawn([&]() -> int & { return variable; });
            auto moved = g.spawn([] { return std::make_unique<counted>(2); });
            auto name = g.spawn(options, [] { return std::string(aco_task_name(aco_self())); });
            CHECK(one.get() == 1 && &reference.get() == &variable && moved.get()->value == 2);
            CHECK(name.get() == "worker");
            g.spawn(options, [&variable] {
                let_others_wait();
                variable = 3;
            });
        }
        CHECK(variable == 3);
        aco::group failing;
        auto lost = failing.spawn([]() -> int { throw std::runtime_error("lost"); });
        auto other = failing.spawn([] {
            aco::sleep_for(for_ever);
            return 1;
        });
        CHECK_THROWS(std::runtime_error, e.what() == std::string("lost"), lost.get());
        CHECK_FAILS(std::errc::operation_canceled, other.get());
        CHECK_THROWS(std::runtime_error, e.what() == std::string("lost"), failing.join());
        aco::group late;
        options.shares_stack = false;
        options.stack_sz = 1;
        CHECK_FAILS(std::errc::invalid_argument, late.spawn(options, [] {}));
        options.stack_sz = 0;
        options.within = 1ms;
        late.spawn(options, [] { aco::sleep_for(for_ever); });
        CHECK_FAILS(std::errc::timed_out, late.join());
    });
}

void options_have_defaults()
{
    alignas(aco::task_options) unsigned char bytes[sizeof(aco::task_options)];
    std::memset(bytes, 0x7f, sizeof(bytes));
    auto *options = ::new (bytes) aco::task_options;
    aco::run([&] {
        std::thread::id here = std::this_thread::get_id();
        CHECK(spawn(*options, [&] { return std::this_thread::get_id() == here; }).join());
        CHECK(spawn(*options, [] { return aco_deadline(); }).join() == INT64_MAX);
    });
}

void a_deadline_is_an_option()
{
    aco::run([] {
        aco::task_options options;
        for (auto d : {std::chrono::nanoseconds(1ms), std::chrono::nanoseconds::min()}) {
            options.within = d;
            CHECK_FAILS(std::errc::timed_out,
                        spawn(options, [] { aco::sleep_for(for_ever); }).join());
        }
        options.within = 1h; /* from now on */
        std::int64_t before = aco_now();
        auto t = spawn(options, [] { return aco_deadline(); });
        std::int64_t after = aco_now();
        std::int64_t late = after + std::chrono::nanoseconds(50ms).count();
        while (aco_now() < late) { /* the task begins afterwards */
        }
        std::int64_t deadline = t.join(), hour = std::chrono::nanoseconds(1h).count();
        CHECK(deadline >= before + hour && deadline < late + hour);
    });
}

void groups_know_what_passes_them()
{
    aco::run([] {
        struct yields_when_unwound {
            ~yields_when_unwound()
            {
                aco_yield();
            }
        };
        aco::coroutine unwinding([] {
            yields_when_unwound y;
            throw std::runtime_error("unwound");
        });
        aco::generator<int> values([](auto &yield) {
            struct yields_a_value {
                decltype(yield) &to;
                ~yields_a_value()
                {
                    to(std::uncaught_exceptions());
                }
            } y{yield};
            throw std::runtime_error("unwound");
        });
        int ct = 0;
        {
            aco::group g;
            g.spawn([&] {
                aco::yield();
                ct++;
            });
            unwinding.resume();
            CHECK(*values.begin() == 1 && std::uncaught_exceptions() == 0);
        }
        CHECK(ct == 1);
        CHECK_THROWS(std::runtime_error, true, ++values.begin());
        CHECK_THROWS(std::runtime_error, true, unwinding.resume());
        CHECK(std::uncaught_exceptions() == 0);
    });
}

void when_all_has_all_results()
{
    aco::run([] {
        auto [number, text, nothing] = aco::when_all(
            spawn([] { return 1; }), spawn([] { return std::string("two"); }), spawn([] {}));
        CHECK(number == 1 && text == "two" && nothing == std::monostate());
        std::vector<aco::task<std::unique_ptr<int>>> many;
        for (int i = 0; i < 20; i++) {
            many.push_back(spawn([i] { return std::make_unique<int>(i); }));
        }
        CHECK(*aco::when_all(many)[19] == 19);
        auto named = spawn([] { return 1; });
        auto [first, second] = aco::when_all(named, spawn([] { return std::string("x"); }));
        CHECK(first == 1 && second == "x");
        int target = 5;
        auto refers = [&] { return spawn([&]() -> int & { return target; }); };
        std::vector<aco::task<int &>> references;
        references.push_back(refers());
        CHECK(&aco::when_all(references)[0].get() == &target);
        CHECK(&std::get<0>(aco::when_all(refers())) == &target);
        int ended = 0;
        auto bad = spawn([] { throw std::runtime_error("bad"); });
        auto good = spawn([&] {
            let_others_wait();
            ended++;
        });
        CHECK_THROWS(std::runtime_error, true, aco::when_all(bad, good));
        CHECK(ended == 1);
        auto sleeper = spawn([] { aco::sleep_for(for_ever); });
        CHECK_FAILS(std::errc::timed_out, aco::within(1ms, [&] { aco::when_all(sleeper); }));
        CHECK(sleeper.joinable());
        sleeper.cancel();
    });
}

void when_any_leaves_the_others()
{
    aco::run([] {
        auto slow = spawn([] {
            aco::sleep_for(for_ever);
            return 1;
        });
        auto fast = spawn([] { return std::string("fast"); });
        auto first = aco::when_any(slow, fast);
        CHECK(first.index() == 1 && std::get<1>(first) == "fast");
        CHECK(slow.joinable() && !slow.done() && !fast.joinable());
        CHECK_FAILS(std::errc::timed_out, aco::within(1ms, [&] { aco::when_any(slow, fast); }));
        auto bad = spawn([] { throw std::runtime_error("bad"); });
        CHECK_THROWS(std::runtime_error, true, aco::when_any(aco::cancel_rest, slow, bad));
        CHECK_FAILS(std::errc::operation_canceled, (void)slow.join());
        CHECK_FAILS(std::errc::invalid_argument, aco::when_any(slow, bad));
    });
}

void when_any_takes_temporaries_and_references()
{
    aco::run([] {
        int target = 5;
        auto refers = [&] { return spawn([&]() -> int & { return target; }); };
        auto sleeps = [] { return spawn([] { aco::sleep_for(for_ever); }); };
        auto slow = sleeps();
        auto any = aco::when_any(aco::cancel_rest, slow, refers(), sleeps());
        CHECK(&std::get<1>(any).get() == &target);
        CHECK_FAILS(std::errc::operation_canceled, slow.join());
        auto one = aco::when_some(1, refers());
        CHECK(&std::get<0>(one[0]).get() == &target);
        auto many = [&] {
            std::vector<aco::task<int &>> tasks;
            tasks.push_back(refers());
            tasks.push_back(refers());
            return tasks;
        };
        CHECK(&aco::when_any(many()).second.get() == &target);
        CHECK(&aco::when_any(aco::cancel_rest, many()).second.get() == &target);
        CHECK(aco::when_some(2, many()).size() == 2);
        CHECK(aco::when_some(aco::cancel_rest, 1, many()).size() == 1);
        CHECK(aco::when_some(aco::cancel_rest, 1, refers(), spawn([] {})).size() == 1);
    });
}

void when_some_waits_for_so_many()
{
    aco::run([] {
        std::vector<aco::task<int>> tasks;
        for (int i = 0; i < 6; i++) {
            tasks.push_back(spawn([i] {
                if (i % 2 == 0) {
                    aco::sleep_for(for_ever);
                }
                return i;
            }));
        }
        auto two = aco::when_some(2, tasks);
        CHECK(two.size() == 2 && two[0].first % 2 == 1 && two[0].second % 2 == 1);
        auto one = aco::when_any(aco::cancel_rest, tasks);
        CHECK(one.second % 2 == 1 && one.second != two[0].second && one.second != two[1].second);
        for (auto &task : tasks) {
            if (task.joinable()) {
                CHECK_FAILS(std::errc::operation_canceled, (void)task.join());
            }
        }
        auto a = spawn([] { return 1; }), b = spawn([] { return 2; });
        auto c = spawn([] { aco::sleep_for(for_ever); });
        auto some = aco::when_some(aco::cancel_rest, 2, a, b, c);
        CHECK(some.size() == 2 && some[0].index() + some[1].index() == 1);
        CHECK_FAILS(std::errc::operation_canceled, c.join());
    });
}

void when_some_counts_what_there_is()
{
    aco::run([] {
        auto fails = [] { return spawn([]() -> int { throw std::runtime_error("bad"); }); };
        auto a = fails(), b = fails();
        CHECK_THROWS(std::runtime_error, true, aco::when_any(a, b));
        CHECK(a.joinable() != b.joinable());
        CHECK_THROWS(std::runtime_error, true, aco::when_any(a, b));
        CHECK(!a.joinable() && !b.joinable());
        CHECK_FAILS(std::errc::invalid_argument, aco::when_any(a, b));
        auto c = spawn([] { return 1; });
        CHECK(aco::when_some(0, c).empty() && c.joinable());
        CHECK_FAILS(std::errc::invalid_argument, aco::when_some(2, c));
        CHECK(c.joinable());
        std::vector<aco::task<int>> none;
        CHECK(aco::when_all(none).empty() && aco::when_some(0, none).empty());
        CHECK_FAILS(std::errc::invalid_argument, aco::when_any(none));
        CHECK(aco::when_some(1, c)[0].index() == 0);
    });
}

void when_some_joins_in_the_order_of_ends()
{
    aco::run([] {
        aco::semaphore may_end[3]{aco::semaphore(0), aco::semaphore(0), aco::semaphore(0)};
        std::vector<aco::task<int>> tasks;
        for (int i = 0; i < 3; i++) {
            tasks.push_back(spawn([&may_end, i] {
                may_end[i].acquire();
                return i;
            }));
        }
        auto order = spawn([&] {
            std::string seen;
            for (auto &[index, value] : aco::when_some(2, tasks)) {
                seen += std::to_string(value);
            }
            return seen + std::to_string(aco::when_any(tasks).first);
        });
        let_others_wait();
        for (int i : {2, 0, 1}) { /* all end before the one that waits runs again */
            may_end[i].release();
        }
        CHECK(order.join() == "201");
    });
}

void when_any_works_across_threads()
{
    aco::run_options options = {};
    options.ct_threads = 3;
    aco::run(
        [] {
            aco::task_options anywhere = {};
            anywhere.thread = ACO_ANY;
            std::vector<aco::task<int>> tasks;
            for (int i = 0; i < 100; i++) {
                tasks.push_back(spawn(anywhere, [i] { return i; }));
            }
            int total = 0;
            for (int i = 0; i < 50; i++) {
                total += aco::when_any(tasks).second;
            }
            for (auto &[index, value] : aco::when_some(50, tasks)) {
                CHECK(index == static_cast<std::size_t>(value));
                total += value;
            }
            CHECK(total == 4950);
        },
        options);
}

} // namespace

#if defined(ACO_USE_ASAN) || defined(ACO_USE_TSAN)
constexpr bool counts_new = true;
#else
constexpr bool counts_new = false;

extern "C" void *__libc_malloc(std::size_t sz) noexcept;
extern "C" void *malloc(std::size_t sz) noexcept
{
    ct_allocations++;
    return __libc_malloc(sz);
}
#endif

__attribute__((noinline)) void *operator new(std::size_t sz)
{
    ct_allocations += counts_new;
    void *p = std::malloc(sz);
    if (p == nullptr) {
        throw std::bad_alloc();
    }
    return p;
}
__attribute__((noinline)) void *operator new(std::size_t sz, const std::nothrow_t &) noexcept
{
    ct_allocations += counts_new;
    return std::malloc(sz);
}
__attribute__((noinline)) void operator delete(void *p) noexcept
{
    std::free(p);
}
__attribute__((noinline)) void operator delete(void *p, std::size_t) noexcept
{
    std::free(p);
}

int main(int argc, char **argv)
{
    const test tests[] = {
        T(run_returns_or_throws_what_the_callable_does),
        T(tasks_pass_values_and_exceptions_by_join),
        T(an_exception_of_a_dropped_task_is_reported),
        T(an_exception_of_a_detached_task_ends_the_program),
        T(a_dropped_task_is_cancelled_and_joined),
        T(the_end_of_a_dropped_task_is_waited_for_in_any_case),
        T(dropping_a_task_where_none_can_wait_is_misuse),
#ifndef ACO_USE_TSAN
        T(a_child_drops_tasks_of_its_parent_without_a_wait),
#endif
        T(a_result_of_a_detached_task_may_wait_when_it_is_destroyed),
        T(aco_exit_in_the_first_task_is_misuse),
        T(objects_of_tasks_live_as_long_as_they_must),
        T(what_copies_throw_reaches_the_caller),
        T(tasks_have_ids_names_options),
        T(tasks_without_names_have_those_of_callables),
        T(results_pass_between_threads),
        T(small_callables_allocate_nothing),
        T(a_task_begins_as_if_it_were_the_first),
        T(a_task_may_wait_while_it_handles_an_exception),
        T(cancelling_ends_waits),
        T(yield_lets_others_run_and_can_fail),
        T(each_wait_can_end),
        T(deadlines_end_waits),
        T(then_continues),
        T(groups_end_together),
        T(an_exception_in_a_group_cancels_it_and_leaves_join),
        T(tasks_of_groups_have_results_and_options),
        T(options_have_defaults),
        T(a_deadline_is_an_option),
        T(groups_know_what_passes_them),
        T(when_all_has_all_results),
        T(when_any_leaves_the_others),
        T(when_any_takes_temporaries_and_references),
        T(when_some_waits_for_so_many),
        T(when_some_counts_what_there_is),
        T(when_some_joins_in_the_order_of_ends),
        T(when_any_works_across_threads),
    };
    return run_tests(tests, argc, argv);
}
