// SPDX-License-Identifier: Apache-2.0
/* Stackless coroutines and tasks, and calls of Boost.Asio in tasks. C++20. */
#include <utility> /* Boost 1.74 forgets it */

#ifdef WITH_ASIO
#include <boost/asio.hpp>
#endif

#include "cpp.hpp"

#include <csignal>
#if __has_include(<ranges>)
#include <ranges>
#endif
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using aco::future;
using aco::spawn;

/* A future of a coroutine that has begun. */
template <class T> future<T> started(future<T> f)
{
    f.start();
    return f;
}

future<int> sum_of(aco::task<int> a, aco::task<int> b)
{
    counted object;
    int first = co_await a;
    co_return first + co_await std::move(b);
}

void stackless_coroutines_wait_for_tasks()
{
    aco::run([] {
        auto waits = [] {
            return spawn([] {
                let_others_wait();
                return 20;
            });
        };
        auto both = started(sum_of(waits(), waits()));
        CHECK(!both.done() && both.get() == 40);
        auto ended = spawn([] { return 1; }), ended_too = spawn([] { return 2; });
        let_others_wait();
        auto at_once = started(sum_of(std::move(ended), std::move(ended_too)));
        CHECK(at_once.done() && at_once.get() == 3);
        auto failed = sum_of(spawn([]() -> int { throw std::runtime_error("x"); }), waits());
        CHECK_THROWS(std::runtime_error, true, failed.get());
    });
}

future<std::string> chain(int depth)
{
    if (depth == 0) {
        co_await aco::co::sleep_for(1ms);
        co_return "end";
    }
    std::string inner = co_await chain(depth - 1);
    co_return inner + std::to_string(depth);
}

void stackless_coroutines_wait_for_time_and_each_other()
{
    aco::run([] {
        auto begin = std::chrono::steady_clock::now();
        CHECK(chain(3).get() == "end123");
        CHECK(std::chrono::steady_clock::now() - begin >= 1ms);
        std::vector<future<std::string>> many;
        for (int i = 0; i < 1000; i++) {
            many.push_back(started(chain(1)));
        }
        for (auto &each : many) {
            CHECK(aco::await(each) == "end1");
        }
        chain(2).get();
        {
            auto dropped = started(chain(1));
        }
        [[maybe_unused]] auto kept =
            started(chain(1)); /* dropped before its end, for which run() waits */
    });
}

void a_wait_outside_of_tasks_throws()
{
    auto waits = []() -> future<void> { co_await aco::co::sleep_for(1ms); };
    auto failed = started(waits());
    CHECK(failed.done());
    aco::run([&] { CHECK_FAILS(std::errc::operation_not_permitted, failed.get()); });
}

/* The awaiter of co_await lives to the end of the expression, and the task that resumed the
 * coroutine does not. */
future<void> waits_twice_and_spawns(bool &has_run)
{
    aco::task<void> t;
    (co_await aco::co::sleep_for(1ms), co_await aco::co::sleep_for(1ms),
     t = spawn([&] { has_run = true; }));
    co_await t;
}

void waits_of_one_expression_leave_other_tasks_alone()
{
    aco::run([] {
        bool has_run = false;
        waits_twice_and_spawns(has_run).get();
        CHECK(has_run);
    });
}

/* A coroutine that begins at once, and is destroyed with its owner. */
struct owned {
    struct promise_type {
        owned get_return_object()
        {
            return {std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_never initial_suspend()
        {
            return {};
        }
        std::suspend_always final_suspend() noexcept
        {
            return {};
        }
        void return_void()
        {
        }
        void unhandled_exception()
        {
            std::abort();
        }
    };
    std::coroutine_handle<promise_type> handle;

    ~owned()
    {
        handle.destroy();
    }
};

owned waits_for(aco::task<int> &t)
{
    counted object;
    co_await t;
    CHECK(false); /* it was destroyed */
}

owned waits_for_own(aco::semaphore &may_end)
{
    counted object;
    co_await spawn([&may_end] { may_end.acquire(); });
    CHECK(false); /* it was destroyed */
}

owned sleeps()
{
    counted object;
    co_await aco::co::sleep_for(for_ever);
    CHECK(false); /* it was destroyed */
}

void a_stackless_coroutine_may_be_destroyed_while_it_waits()
{
    aco::run([] {
        aco::semaphore may_end(0), ends(0);
        auto waits = [&] {
            may_end.acquire();
            ends.release();
            return 1;
        };
        auto t = spawn(waits);
        {
            auto a = waits_for(t), b = sleeps(), c = waits_for_own(may_end);
            let_others_wait();
        }
        CHECK(counted::ct_alive == 0);
        may_end.release(2);
        CHECK(t.join() == 1);
        t = spawn(waits);
        {
            auto a = waits_for(t);
            may_end.release();
            ends.acquire();
            ends.acquire();
            CHECK(t.done()); /* the coroutine is the next to run */
        }
        CHECK(counted::ct_alive == 0 && t.join() == 1);
    }); /* without a wait for sleeps() */
}

future<int> receives(aco::channel<int> &c)
{
    counted object;
    co_return *co_await aco::co::recv(c);
}

void a_future_can_be_waited_for_again()
{
    aco::run([] {
        aco::channel<int> c;
        auto value = started(receives(c));
        CHECK_FAILS(std::errc::timed_out, aco::within(1ms, [&] { value.get(); }));
        auto cancelled = spawn([&] { aco::await(value); });
        let_others_wait();
        cancelled.cancel();
        CHECK_FAILS(std::errc::operation_canceled, cancelled.join());
        CHECK(!value.done());
        auto gets = spawn([&] { return value.get(); });
        let_others_wait();
        c.send(7);
        CHECK(gets.join() == 7);
        auto other = started(receives(c));
        CHECK_FAILS(std::errc::timed_out, aco::within(1ms, [&] { other.get(); }));
        auto awaits = [](future<int> f) -> future<int> { co_return co_await f; };
        auto outer = awaits(std::move(other));
        c.send(8);
        CHECK(outer.get() == 8);
        {
            auto dropped = started(receives(c));
            CHECK_FAILS(std::errc::timed_out, aco::within(1ms, [&] { dropped.get(); }));
        }
        c.send(9);
        let_others_wait();
        CHECK(counted::ct_alive == 0);
    });
}

/* The wait fails and the future ends at the same time, on two threads. */
void misuse_of_futures_and_waits_is_told()
{
    auto moved = said_by([] {
        auto from = chain(0);
        auto to = std::move(from);
        from.done();
    });
    CHECK(moved.first.find("aco: aco::future: it was moved from") == 0 && moved.second == SIGABRT);
    auto in_call = said_by([] {
        auto calls = []() -> owned { co_await aco::co::call([] { aco::sleep_for(for_ever); }); };
        auto destroyed = calls();
        let_others_wait();
    });
    CHECK(in_call.first.find("aco: the destructor of a co_await: a task makes its call") == 0);
    auto elsewhere = said_by([] {
        auto waits = sleeps();
        std::thread([&] { waits.handle.destroy(); }).join();
    });
    CHECK(elsewhere.first.find("aco: the destructor of a co_await: ") == 0 &&
          elsewhere.first.find("another thread") != std::string::npos);
}

void a_future_is_never_lost()
{
    aco::run_options options = {};
    options.ct_threads = 2;
    aco::run(
        [] {
            aco::channel<int> c;
            aco::task_options there = {};
            there.thread = ACO_THREAD(1);
            auto sender = spawn(there, [&] {
                for (int i = 0; i < 500; i++) {
                    c.send(i);
                }
            });
            for (int i = 0; i < 500; i++) {
                auto value = started(receives(c));
                for (bool has_it = false; !has_it;) {
                    try {
                        has_it = aco::within(std::chrono::microseconds(i % 20),
                                             [&] { return value.get() == i; });
                        CHECK(has_it);
                    } catch (const std::system_error &e) {
                        CHECK(e.code() == std::errc::timed_out);
                    }
                }
            }
            sender.join();
        },
        options);
}

future<void> sums(aco::channel<std::unique_ptr<int>> &in, aco::channel<int> &out)
{
    int total = 0;
    while (auto value = co_await aco::co::recv(in)) {
        total += **value;
    }
    co_await aco::co::send(out, total);
    CHECK(co_await aco::co::call([] {
              aco::yield();
              return aco::this_task_id();
          }) != 0);
    out.close();
    try {
        co_await aco::co::send(out, 1);
    } catch (const std::system_error &e) {
        CHECK(e.code() == std::errc::broken_pipe);
        co_return;
    }
    CHECK(false);
}

void stackless_coroutines_use_channels()
{
    aco::run([] {
        aco::channel<std::unique_ptr<int>> in(2);
        aco::channel<int> out;
        auto worker = started(sums(in, out));
        for (int i = 0; i < 10; i++) {
            in.send(std::make_unique<int>(i));
        }
        in.close();
        CHECK(out.recv() == 45);
        worker.get();
    });
}

future<char> reads(int fd)
{
    int events = co_await aco::co::wait_fd(fd, POLLIN);
    CHECK(events & POLLIN);
    char c = 0;
    CHECK(read(fd, &c, 1) == 1);
    co_return c;
}

void stackless_coroutines_wait_for_descriptors()
{
    aco::run([] {
        int fds[2];
        CHECK(pipe(fds) == 0);
        auto c = started(reads(fds[0]));
        let_others_wait();
        CHECK(!c.done());
        CHECK(write(fds[1], "x", 1) == 1);
        CHECK(c.get() == 'x');
        auto closed = started(reads(fds[0]));
        let_others_wait();
        aco_close(fds[0]);
        CHECK_FAILS(std::errc::bad_file_descriptor, closed.get());
        aco_close(fds[1]);
    });
}

future<int> twice(aco::promise<int> &p)
{
    counted object;
    co_return 2 * co_await p.get_future();
}

owned waits_for_promise(aco::promise<int> &p)
{
    counted object;
    co_await p.get_future();
    CHECK(false); /* it was destroyed */
}

void stackless_coroutines_wait_for_promises()
{
    aco::run([] {
        aco::promise<int> later, before, fails;
        before.set_value(4);
        CHECK(twice(before).get() == 8);
        auto value = started(twice(later));
        std::thread([&] { later.set_value(21); }).join();
        CHECK(!value.done() && value.get() == 42);
        auto failed = started(twice(fails));
        fails = aco::promise<int>();
        CHECK_FAILS(std::errc::broken_pipe, failed.get());
        for (int i = 0; i < 500; i++) { /* the end and the destructor may meet */
            aco::promise<int> p;
            std::atomic<bool> may_set{false};
            std::thread sets([&] {
                while (!may_set) {
                }
                p.set_value(1);
            });
            {
                auto destroyed = waits_for_promise(p);
                may_set = true;
                for (std::atomic<int> k = 0; k < 20 * (i % 50); k++) {
                }
            }
            sets.join();
        }
    });
}

future<std::size_t> size_of(aco::shared_task<std::string> t)
{
    const std::string &text = co_await t;
    co_return text.size();
}

void stackless_coroutines_wait_for_shared_tasks()
{
    aco::run([] {
        aco::shared_task<std::string> text = spawn([] {
            aco::yield();
            return std::string("text");
        });
        auto a = started(size_of(text)), b = started(size_of(text));
        CHECK(a.get() == 4 && b.get() == 4 && size_of(text).get() == 4);
    });
}

/* ==== Limits of futures ====================================================================== */

/* Makes one kind of wait, after which another one must fail in the same way. */
template <class F> future<void> fails_twice(F wait, std::errc error, int *ct_failures)
{
    counted object;
    for (int i = 0; i < 2; i++) {
        try {
            co_await wait();
        } catch (const std::system_error &e) {
            CHECK(e.code() == error);
            ++*ct_failures;
        }
    }
    co_await wait();
}

template <class F> future<int> passes_on(F wait, std::errc error, int *ct_failures, int depth)
{
    if (depth == 0) {
        co_await fails_twice(wait, error, ct_failures);
    } else {
        co_await passes_on(wait, error, ct_failures, depth - 1);
    }
    co_return 1;
}

/* Checks that `wait()` ends when its future is cancelled, and when its deadline passes: of the
 * coroutine that waits, or one that awaits it. */
template <class F> void check_limits(F wait)
{
    for (int depth = 0; depth < 3; depth++) {
        int ct = 0;
        auto cancelled = started(passes_on(wait, std::errc::operation_canceled, &ct, depth));
        let_others_wait();
        CHECK(!cancelled.done() && ct == 0);
        cancelled.cancel();
        CHECK_FAILS(std::errc::operation_canceled, cancelled.get());
        CHECK(ct == 2);
        cancelled.cancel(); /* too late */
        auto late = passes_on(wait, std::errc::timed_out, &ct, depth);
        CHECK_FAILS(std::errc::timed_out, std::move(late).within(1ms).get());
        auto late_too = started(passes_on(wait, std::errc::timed_out, &ct, depth));
        let_others_wait();
        late_too.within(for_ever).within(1ms);
        CHECK_FAILS(std::errc::timed_out, late_too.get());
        auto before = passes_on(wait, std::errc::operation_canceled, &ct, depth);
        before.cancel();
        CHECK_FAILS(std::errc::operation_canceled, before.get());
        CHECK(ct == 8);
    }
    CHECK(counted::ct_alive == 0);
}

void cancelling_and_deadlines_end_waits_of_futures()
{
    aco::run([] {
        check_limits([] { return aco::co::sleep_for(for_ever); });
        auto sleeper = spawn([] { aco::sleep_for(for_ever); });
        check_limits([&]() -> aco::task<void> & { return sleeper; });
        CHECK(sleeper.joinable() && !sleeper.done());
        aco::channel<int> c;
        check_limits([&] { return aco::co::recv(c); });
        check_limits([&] { return aco::co::send(c, 1); });
        check_limits([] { return aco::co::call([] { aco::sleep_for(for_ever); }); });
        int fds[2];
        CHECK(pipe(fds) == 0);
        check_limits([&] { return aco::co::wait_fd(fds[0], POLLIN); });
        aco_close(fds[0]);
        aco_close(fds[1]);
        aco::promise<void> p;
        auto never_kept = p.get_future();
        check_limits([&]() -> future<void> & { return never_kept; });
        p.set_value();
        never_kept.get(); /* nothing was taken from it */
        auto shared = aco::shared_task<void>(std::move(sleeper));
        check_limits([&]() -> aco::shared_task<void> & { return shared; });
    }); /* without a wait for the longer deadline */
}

void a_limited_wait_that_is_over_has_its_result()
{
    aco::run([] {
        aco::promise<int> p;
        auto value = started(twice(p));
        p.set_value(5);
        value.cancel(); /* before it goes on */
        CHECK(value.get() == 10);
        CHECK(chain(1).within(for_ever).get() == "end1"); /* run() does not wait for the deadline */
    });
}

/* A coroutine goes on as before when one that it awaits was cancelled. */
void cancelling_ends_with_what_is_cancelled()
{
    aco::run([] {
        aco::channel<int> c;
        auto inner = receives(c);
        auto outer = [](future<int> &awaited) -> future<int> {
            bool has_failed = false;
            try {
                co_await awaited;
            } catch (const std::system_error &e) {
                CHECK(e.code() == std::errc::operation_canceled);
                has_failed = true;
            }
            aco::sleep_for(1ms); /* the task was not cancelled */
            co_await aco::co::sleep_for(1ms);
            co_return has_failed ? 3 : 0;
        };
        auto both = started(outer(inner));
        let_others_wait();
        inner.cancel();
        CHECK(both.get() == 3);
        auto begun = started(receives(c)); /* before the one that awaits it */
        auto awaits = [](future<int> f) -> future<int> { co_return co_await f; };
        auto late = awaits(std::move(begun));
        CHECK_FAILS(std::errc::timed_out, late.within(1ms).get());
    });
}

void a_future_begins_when_it_is_waited_for()
{
    aco::run([] {
        int ct_begun = 0;
        auto begins = [&ct_begun](counted object) -> future<int> {
            ct_begun++;
            co_return object.value;
        };
        {
            auto dropped = begins(counted(1));
            let_others_wait();
            CHECK(!dropped.done() && ct_begun == 0 && counted::ct_alive == 1);
        }
        CHECK(counted::ct_alive == 0 && ct_begun == 0);
        CHECK(begins(counted(2)).get() == 2 && ct_begun == 1);
        auto value = started(begins(counted(3)));
        CHECK(value.done() && ct_begun == 2);
        value.start();
        CHECK(value.get() == 3 && ct_begun == 2);
        value = begins(counted(4));
        CHECK(value.wait_for(for_ever) && ct_begun == 3);
    });
}

future<long> count_up_to(long n)
{
    if (n == 0) {
        co_await aco::co::sleep_for(1ms);
        co_return 0;
    }
    co_return 1 + co_await count_up_to(n - 1);
}

void nested_futures_need_no_stack()
{
    aco::run([] {
        constexpr long depth = 100000;
        aco::task_options small = {};
        small.stack_sz = 32 << 10;
        long sum = spawn(small, [] { return count_up_to(depth).get(); }).join();
        CHECK(sum == depth);
        auto cancelled = started(count_up_to(depth));
        cancelled.cancel();
        CHECK_FAILS(std::errc::operation_canceled, cancelled.get());
    });
}

void limits_of_promises_and_of_other_threads_are_misuse()
{
    auto promised = said_by([] {
        aco::promise<int> p;
        p.get_future().cancel();
    });
    CHECK(promised.first.find("aco: aco::future::cancel: it is a promise's") == 0);
    CHECK(WIFSIGNALED(promised.second) && WTERMSIG(promised.second) == SIGABRT);
    auto elsewhere = said_by([] {
        auto waits = started(chain(0));
        std::thread([&] { waits.cancel(); }).join();
    });
    CHECK(elsewhere.first.find("aco: the end of a co_await: ") == 0 &&
          elsewhere.first.find("another thread") != std::string::npos);
}

/* An awaitable that knows nothing of aco: a thread of its own resumes it. */
struct by_thread {
    int value;
    bool await_ready() const
    {
        return false;
    }
    void await_suspend(std::coroutine_handle<> h) const
    {
        pthread_t thread;
        CHECK(pthread_create(
                  &thread, nullptr,
                  [](void *address) -> void * {
                      std::coroutine_handle<>::from_address(address).resume();
                      return nullptr;
                  },
                  h.address()) == 0);
        pthread_detach(thread);
    }
    std::unique_ptr<int> await_resume() const
    {
        if (value < 0) {
            throw std::out_of_range("negative");
        }
        return std::make_unique<int>(value);
    }
};

struct never : std::suspend_always {
    static inline std::coroutine_handle<> handle;
    void await_suspend(std::coroutine_handle<> h)
    {
        handle = h;
    }
};

void tasks_wait_for_any_awaitable()
{
    aco::run([] {
        CHECK(*aco::await(by_thread{5}) == 5);
        CHECK_THROWS(std::out_of_range, true, aco::await(by_thread{-1}));
        CHECK(aco::await(spawn([] { return 3; })) == 3);
        aco::await(std::suspend_never());
        CHECK_FAILS(std::errc::timed_out, aco::within(1ms, [] { aco::await(never()); }));
        never::handle.resume(); /* it goes on alone, and frees itself */
        auto cancelled = spawn([] { aco::await(never()); });
        let_others_wait();
        cancelled.cancel();
        CHECK_FAILS(std::errc::operation_canceled, cancelled.join());
        never::handle.resume();
    });
}

#ifdef WITH_ASIO

namespace asio = boost::asio;
using asio::ip::tcp;

void tasks_call_asio()
{
    asio::io_context io;
    auto guard = asio::make_work_guard(io);
    std::thread runner([&] { io.run(); });
    aco::run([&] {
        tcp::acceptor acceptor(io, {asio::ip::make_address("127.0.0.1"), 0});
        auto server = spawn([&] {
            tcp::socket peer = acceptor.async_accept(aco::use_task);
            std::string text;
            std::size_t sz = asio::async_read_until(peer, asio::dynamic_buffer(text), '\n',
                                                    aco::use_task);
            asio::async_write(peer, asio::buffer(text, sz), aco::use_task);
        });
        tcp::socket client(io);
        client.async_connect(acceptor.local_endpoint(), aco::use_task);
        asio::async_write(client, asio::buffer("hello\n", 6), aco::use_task);
        char text[6];
        CHECK(asio::async_read(client, asio::buffer(text), aco::use_task) == 6);
        CHECK(std::string(text, 6) == "hello\n");
        server.join();
        CHECK_THROWS(boost::system::system_error, e.code() == asio::error::eof,
                     asio::async_read(client, asio::buffer(text), aco::use_task));

        asio::steady_timer timer(io, 24h);
        auto waits = spawn([&] { timer.async_wait(aco::use_task); });
        let_others_wait();
        waits.cancel(); /* does not end the wait; cancelling the timer does */
        let_others_wait();
        CHECK(!waits.done());
        asio::post(io, [&] { timer.cancel(); });
        CHECK_THROWS(boost::system::system_error, e.code() == asio::error::operation_aborted,
                     waits.join());

        auto stackless = [](int i) -> asio::awaitable<std::string> {
            if (i < 0) {
                throw std::out_of_range("negative");
            }
            co_return std::to_string(i);
        };
        CHECK(asio::co_spawn(io, stackless(7), aco::use_task) == "7");
        CHECK_THROWS(std::out_of_range, true, asio::co_spawn(io, stackless(-1), aco::use_task));
        asio::post(io, aco::use_task);
    });
    guard.reset();
    runner.join();
}

#endif

#ifdef __cpp_lib_ranges
void a_generator_is_a_view()
{
    using numbers = aco::generator<int>;
    static_assert(std::ranges::view<numbers> && std::ranges::input_range<numbers>);
    static_assert(std::ranges::view<aco::generator<std::unique_ptr<int> &>>);
    static_assert(std::is_same_v<std::views::all_t<numbers>, numbers>);
#if !defined(__clang__) || __clang_major__ > 15 /* others refuse all views of libstdc++ */
    int sum = 0;
    for (int i : numbers([](auto &yield) {
                     for (int n = 1;; n++) {
                         yield(n);
                     }
                 }) | std::views::transform([](int n) { return n * n; }) |
                     std::views::take(3)) {
        sum += i;
    }
    CHECK(sum == 14);
#endif
}
#endif

void options_are_set_by_name()
{
    aco::run([] {
        auto named = spawn({.name = "worker", .within = 1ms}, [] { aco::sleep_for(for_ever); });
        CHECK(named.name() == std::string("worker"));
        CHECK_FAILS(std::errc::timed_out, named.join());
    });
}

} // namespace

int main(int argc, char **argv)
{
    const test tests[] = {
        T(stackless_coroutines_wait_for_tasks),
        T(stackless_coroutines_wait_for_time_and_each_other),
        T(a_wait_outside_of_tasks_throws),
        T(waits_of_one_expression_leave_other_tasks_alone),
        T(a_stackless_coroutine_may_be_destroyed_while_it_waits),
        T(a_future_can_be_waited_for_again),
        T(misuse_of_futures_and_waits_is_told),
        T(a_future_is_never_lost),
        T(stackless_coroutines_use_channels),
        T(stackless_coroutines_wait_for_descriptors),
        T(stackless_coroutines_wait_for_promises),
        T(stackless_coroutines_wait_for_shared_tasks),
        T(cancelling_and_deadlines_end_waits_of_futures),
        T(a_limited_wait_that_is_over_has_its_result),
        T(cancelling_ends_with_what_is_cancelled),
        T(a_future_begins_when_it_is_waited_for),
        T(nested_futures_need_no_stack),
        T(limits_of_promises_and_of_other_threads_are_misuse),
        T(tasks_wait_for_any_awaitable),
#ifdef __cpp_lib_ranges
        T(a_generator_is_a_view),
#endif
        T(options_are_set_by_name),
#ifdef WITH_ASIO
        T(tasks_call_asio),
#endif
    };
    return run_tests(tests, argc, argv);
}
