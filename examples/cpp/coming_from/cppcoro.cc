// cppcoro.cc runs the right side of each row of "Coming from cppcoro" in docs/cpp.md.
// SPDX-License-Identifier: Apache-2.0
/* cppcoro is no package of Debian, so the left side is the result that each row must have. */
#include "rows.hpp"

#include <chrono>
#include <memory>
#include <vector>

using namespace std::chrono_literals;

namespace {

template <int N> std::string number()
{
    return std::to_string(N);
}

aco::future<int> lazy(bool &has_begun)
{
    has_begun = true;
    co_await aco::co::sleep_for(1ms);
    co_return 42;
}

std::string task()
{
    bool has_begun = false;
    aco::future<int> value = lazy(has_begun);
    return has_begun ? "it has begun" : std::to_string(value.get()); /* as cppcoro::sync_wait() */
}

std::string nested_tasks()
{
    auto outer = []() -> aco::future<int> {
        bool has_begun = false;
        co_return co_await lazy(has_begun) + 1;
    };
    return std::to_string(outer().get());
}

std::string shared_task()
{
    aco::shared_task<int> value = aco::spawn([] { return 21; });
    auto doubled = [](aco::shared_task<int> mine) -> aco::future<int> {
        co_return co_await mine + co_await mine;
    };
    return std::to_string(doubled(value).get());
}

std::string generator()
{
    aco::generator<int> values([](auto &yield) {
        for (int i = 1; i <= 3; i++) {
            yield(i);
        }
    });
    int sum = 0;
    for (int i : values) {
        sum += i;
    }
    return std::to_string(sum);
}

aco::generator<int> down_from(int n)
{
    return aco::generator<int>([n](auto &yield) {
        yield(n);
        if (n > 1) {
            yield(down_from(n - 1));
        }
    });
}

std::string recursive_generator()
{
    int sum = 0;
    for (int i : down_from(100)) {
        sum += i;
    }
    return std::to_string(sum);
}

std::string async_generator()
{
    aco::generator<int> values([](auto &yield) { /* its values may wait: it runs in the task */
                                                 for (int i = 1; i <= 3; i++) {
                                                     aco::sleep_for(1ms);
                                                     yield(i);
                                                 }
    });
    int sum = 0;
    for (int i : values) {
        sum += i;
    }
    return std::to_string(sum);
}

std::string manual_reset_event()
{
    aco::mutex m;
    aco::condition_variable changed;
    bool is_set = false;
    auto waiting = aco::spawn([&] {
        std::unique_lock lock(m);
        changed.wait(lock, [&] { return is_set; });
        return 1;
    });
    {
        std::scoped_lock lock(m);
        is_set = true;
        changed.notify_all();
    }
    return std::to_string(waiting.join());
}

std::string auto_reset_event()
{
    aco::binary_semaphore event(0);
    auto waiting = aco::spawn([&] { event.acquire(); });
    event.release();
    waiting.join();
    return std::to_string(event.try_acquire());
}

std::string single_consumer_event()
{
    aco::promise<int> event;
    auto wait = [](aco::future<int> set) -> aco::future<int> { co_return co_await set; };
    auto waiting = wait(event.get_future());
    waiting.start();
    event.set_value(42);
    return std::to_string(waiting.get());
}

std::string async_mutex()
{
    aco::mutex m;
    int value = 0;
    auto change = [&]() -> aco::future<void> {
        co_await aco::co::call([&] {
            std::scoped_lock lock(m);
            value = 42;
        });
    };
    change().get();
    return std::to_string(value);
}

std::string async_latch()
{
    aco::latch ended(3);
    std::vector<aco::task<void>> tasks;
    for (int i = 0; i < 3; i++) {
        tasks.push_back(aco::spawn([&] { ended.count_down(); }));
    }
    ended.wait();
    return std::to_string(ended.try_wait());
}

std::string when_all()
{
    auto [a, b] = aco::when_all(aco::spawn([] { return 40; }), aco::spawn([] { return 2; }));
    return std::to_string(a + b);
}

std::string fmap()
{
    auto twice = aco::spawn([] { return 21; }).then([](int i) { return 2 * i; });
    return std::to_string(twice.join());
}

std::string thread_pool() /* in aco::run() with ct_threads = 2 */
{
    aco::task_options anywhere;
    anywhere.thread = ACO_ANY;
    auto sum = aco::spawn(anywhere, [] {
        int result = 0;
        for (int i = 1; i <= 10; i++) {
            result += i;
        }
        return result;
    });
    return std::to_string(sum.join());
}

std::string schedule_after()
{
    auto begin = std::chrono::steady_clock::now();
    auto wait = []() -> aco::future<void> { co_await aco::co::sleep_for(2ms); };
    wait().get();
    return std::to_string(std::chrono::steady_clock::now() - begin >= 2ms);
}

std::string cancellation()
{
    aco::stop_source source;
    int ct = 0;
    aco::stop_callback count(source.get_token(), [&] { ct++; });
    source.request_stop();
    return std::to_string(ct);
}

std::string cancelled_wait()
{
    auto wait = []() -> aco::future<void> { co_await aco::co::sleep_for(1h); };
    aco::future<void> waiting = wait();
    waiting.start();
    waiting.cancel();
    try {
        waiting.get();
    } catch (const std::system_error &e) {
        return std::to_string(e.code() == std::errc::operation_canceled);
    }
    return "0";
}

std::string sockets()
{
    int fds[2];
    if (pipe(fds) != 0 || aco_write(fds[1], "x", 1) != 1) {
        return "no pipe";
    }
    auto wait = [](int fd) -> aco::future<int> {
        co_await aco::co::wait_fd(fd, POLLIN);
        char byte = 0;
        co_return static_cast<int>(aco_read(fd, &byte, 1));
    };
    std::string ct = std::to_string(wait(fds[0]).get());
    aco_close(fds[0]);
    aco_close(fds[1]);
    return ct;
}

std::string sequence()
{
    aco::channel<int> ring(4);
    auto producer = aco::spawn([&] {
        for (int i = 1; i <= 10; i++) {
            ring.send(i);
        }
        ring.close();
    });
    int sum = 0;
    for (int i : ring) {
        sum += i;
    }
    producer.join();
    return std::to_string(sum);
}

} // namespace

int main()
{
    aco::run_options options = {};
    options.ct_threads = 2;
    const row rows[] = {{"task", number<42>, task},
                        {"nested_tasks", number<43>, nested_tasks},
                        {"shared_task", number<42>, shared_task},
                        {"generator", number<6>, generator},
                        {"recursive_generator", number<5050>, recursive_generator},
                        {"async_generator", number<6>, async_generator},
                        {"single_consumer_event", number<42>, single_consumer_event},
                        {"manual_reset_event", number<1>, manual_reset_event},
                        {"auto_reset_event", number<0>, auto_reset_event},
                        {"async_mutex", number<42>, async_mutex},
                        {"async_latch", number<1>, async_latch},
                        {"sequence", number<55>, sequence},
                        {"when_all", number<42>, when_all},
                        {"fmap", number<42>, fmap},
                        {"thread_pool", number<55>, thread_pool},
                        {"schedule_after", number<1>, schedule_after},
                        {"cancellation", number<1>, cancellation},
                        {"cancelled_wait", number<1>, cancelled_wait},
                        {"sockets", number<1>, sockets}};
    return run_rows(rows, options);
}
