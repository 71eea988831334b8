// SPDX-License-Identifier: Apache-2.0
/* Stackless coroutines and tasks, and calls of Boost.Asio in tasks. C++20. */
#include <utility> /* Boost 1.74 forgets it */

#ifdef WITH_ASIO
#include <boost/asio.hpp>
#endif

#include "cpp.hpp"

#include <csignal>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using aco::future;
using aco::spawn;

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
        auto both = sum_of(waits(), waits());
        CHECK(!both.done() && both.get() == 40);
        auto ended = spawn([] { return 1; }), ended_too = spawn([] { return 2; });
        let_others_wait();
        auto at_once = sum_of(std::move(ended), std::move(ended_too));
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
            many.push_back(chain(1));
        }
        for (auto &each : many) {
            CHECK(aco::await(each) == "end1");
        }
        chain(2).get();
        {
            auto dropped = chain(1);
        }
        [[maybe_unused]] auto kept = chain(1); /* dropped before its end, for which run() waits */
    });
}

void a_wait_outside_of_tasks_throws()
{
    auto waits = []() -> future<void> { co_await aco::co::sleep_for(1ms); };
    auto failed = waits();
    CHECK(failed.done());
    aco::run([&] { CHECK_FAILS(std::errc::operation_not_permitted, failed.get()); });
}

/* What co_await waits with lives to the end of the expression, and the task that resumed the
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
        auto value = receives(c);
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
        auto other = receives(c);
        CHECK_FAILS(std::errc::timed_out, aco::within(1ms, [&] { other.get(); }));
        auto awaits = [](future<int> f) -> future<int> { co_return co_await f; };
        auto outer = awaits(std::move(other));
        c.send(8);
        CHECK(outer.get() == 8);
        {
            auto dropped = receives(c);
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
                auto value = receives(c);
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
        auto worker = sums(in, out);
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
        auto c = reads(fds[0]);
        let_others_wait();
        CHECK(!c.done());
        CHECK(write(fds[1], "x", 1) == 1);
        CHECK(c.get() == 'x');
        auto closed = reads(fds[0]);
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
        auto value = twice(later);
        std::thread([&] { later.set_value(21); }).join();
        CHECK(!value.done() && value.get() == 42);
        auto failed = twice(fails);
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
        auto a = size_of(text), b = size_of(text);
        CHECK(a.get() == 4 && b.get() == 4 && size_of(text).get() == 4);
    });
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
        T(tasks_wait_for_any_awaitable),
#ifdef WITH_ASIO
        T(tasks_call_asio),
#endif
    };
    return run_tests(tests, argc, argv);
}
