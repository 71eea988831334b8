// std_thread.cc runs each row of "Coming from std::thread" in docs/cpp.md with both.
// SPDX-License-Identifier: Apache-2.0
#include "rows.hpp"

#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <future>
#include <latch>
#include <mutex>
#include <semaphore>
#include <shared_mutex>
#include <stop_token>
#include <thread>

using namespace std::chrono_literals;

namespace {

namespace theirs {

std::string join()
{
    int value = 0;
    std::thread t([&] { value = 42; });
    t.join();
    return std::to_string(value);
}

std::string detach()
{
    static std::promise<int> done;
    auto value = done.get_future();
    std::thread([] { done.set_value(1); }).detach();
    return std::to_string(value.get());
}

std::string ids()
{
    std::promise<std::thread::id> inside;
    std::thread t([&] { inside.set_value(std::this_thread::get_id()); });
    auto outside = t.get_id();
    bool is_same = inside.get_future().get() == outside;
    t.join();
    return is_same ? "same id" : "other id";
}

std::string sleep()
{
    auto begin = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_until(begin + 2ms);
    std::this_thread::yield();
    return std::chrono::steady_clock::now() - begin >= 2ms ? "slept" : "woke early";
}

std::string async()
{
    auto value = std::async(std::launch::async, [] { return 42; });
    return std::to_string(value.get());
}

std::string promise()
{
    std::promise<int> p;
    auto value = p.get_future();
    std::jthread setter([&] { p.set_value(42); });
    return std::to_string(value.get());
}

std::string packaged_task()
{
    std::packaged_task<int(int)> twice([](int i) { return 2 * i; });
    auto value = twice.get_future();
    std::jthread t(std::move(twice), 21);
    return std::to_string(value.get());
}

std::string jthread()
{
    std::string ended;
    {
        std::jthread t([&](std::stop_token stop) {
            while (!stop.stop_requested()) {
                std::this_thread::yield();
            }
            ended = "stopped at the end of the scope";
        });
    }
    return ended;
}

std::string stop_callback()
{
    std::jthread t([](std::stop_token stop) {
        std::mutex m;
        std::condition_variable_any never;
        std::unique_lock lock(m);
        never.wait(lock, stop, [] { return false; });
    });
    std::atomic<int> ct{0};
    std::stop_callback count(t.get_stop_token(), [&] { ct++; });
    t.request_stop();
    t.join();
    return std::to_string(ct);
}

std::string locks()
{
    std::mutex m, n;
    std::shared_mutex table;
    std::condition_variable changed;
    bool is_set = false;
    std::jthread t([&] {
        std::scoped_lock both(m, n);
        std::shared_lock reader(table);
        is_set = true;
        changed.notify_one();
    });
    std::unique_lock lock(m);
    changed.wait(lock, [&] { return is_set; });
    return "set";
}

std::string counters()
{
    std::counting_semaphore<4> slots(2);
    std::latch begun(2);
    std::barrier phase(2);
    std::jthread t([&] {
        slots.acquire();
        begun.count_down();
        phase.arrive_and_wait();
    });
    begun.arrive_and_wait();
    phase.arrive_and_wait();
    slots.acquire();
    return std::to_string(slots.try_acquire());
}

std::string call_once()
{
    std::once_flag flag;
    std::atomic<int> ct{0};
    {
        std::jthread a([&] { std::call_once(flag, [&] { ct++; }); });
        std::jthread b([&] { std::call_once(flag, [&] { ct++; }); });
    }
    return std::to_string(ct);
}

std::string thread_local_variable()
{
    static thread_local int local;
    local = 1;
    std::thread([] { local = 2; }).join();
    return std::to_string(local);
}

std::string uncaught()
{
    auto failed = std::async(std::launch::async,
                             []() -> int { throw std::runtime_error("failed"); });
    try {
        return std::to_string(failed.get());
    } catch (const std::runtime_error &e) {
        return e.what();
    }
}

std::string parallel()
{
    std::atomic<int> ct_there{0};
    auto meet = [&] {
        ct_there++;
        while (ct_there < 2) { /* needs two threads */
        }
    };
    std::jthread a(meet), b(meet);
    return "met";
}

} // namespace theirs

namespace ours {

std::string join()
{
    int value = 0;
    auto t = aco::spawn([&] { value = 42; });
    t.join();
    return std::to_string(value);
}

std::string detach()
{
    aco::promise<int> done;
    auto value = done.get_future();
    aco::spawn([&] { done.set_value(1); }).detach();
    return std::to_string(value.get());
}

std::string ids()
{
    auto t = aco::spawn([] { return aco::this_task_id(); });
    auto outside = t.id();
    return t.join() == outside ? "same id" : "other id";
}

std::string sleep()
{
    auto begin = std::chrono::steady_clock::now();
    aco::sleep_for(1ms);
    aco::sleep_until(begin + 2ms);
    aco::yield();
    return std::chrono::steady_clock::now() - begin >= 2ms ? "slept" : "woke early";
}

std::string async()
{
    auto value = aco::spawn([] { return 42; });
    return std::to_string(value.join());
}

std::string promise()
{
    aco::promise<int> p;
    auto value = p.get_future();
    auto setter = aco::spawn([&] { p.set_value(42); });
    return std::to_string(value.get());
}

std::string packaged_task()
{
    auto twice = [](int i) { return 2 * i; };
    auto value = aco::spawn([twice] { return twice(21); });
    return std::to_string(value.join());
}

std::string jthread()
{
    std::string ended;
    {
        auto t = aco::spawn([&] {
            auto stop = aco::this_task_stop_token();
            try {
                while (!stop.stop_requested()) {
                    aco::yield();
                }
            } catch (const std::system_error &) { /* ECANCELED of a wait */
            }
            ended = "stopped at the end of the scope";
        });
        aco::yield();
    }
    return ended;
}

std::string stop_callback()
{
    auto t = aco::spawn([] {
        aco::mutex m;
        aco::condition_variable_any never;
        std::unique_lock lock(m);
        never.wait(lock, aco::this_task_stop_token(), [] { return false; });
    });
    int ct = 0;
    aco::stop_callback count(t.get_stop_token(), [&] { ct++; });
    t.get_stop_source().request_stop(); /* as t.cancel() */
    t.join();
    return std::to_string(ct);
}

std::string locks()
{
    aco::mutex m, n;
    aco::shared_mutex table;
    aco::condition_variable changed;
    bool is_set = false;
    auto t = aco::spawn([&] {
        std::scoped_lock both(m, n);
        std::shared_lock reader(table);
        is_set = true;
        changed.notify_one();
    });
    std::unique_lock lock(m);
    changed.wait(lock, [&] { return is_set; });
    lock.unlock();
    t.join();
    return "set";
}

std::string counters()
{
    aco::counting_semaphore<4> slots(2);
    aco::latch begun(2);
    aco::barrier phase(2);
    auto t = aco::spawn([&] {
        slots.acquire();
        begun.count_down();
        phase.arrive_and_wait();
    });
    begun.arrive_and_wait();
    phase.arrive_and_wait();
    slots.acquire();
    return std::to_string(slots.try_acquire());
}

std::string call_once()
{
    aco::once_flag flag;
    int ct = 0;
    auto a = aco::spawn([&] { aco::call_once(flag, [&] { ct++; }); });
    auto b = aco::spawn([&] { aco::call_once(flag, [&] { ct++; }); });
    aco::when_all(a, b);
    return std::to_string(ct);
}

std::string thread_local_variable()
{
    aco::task_local<int> local;
    *local = 1;
    aco::spawn([&] { *local = 2; }).join();
    return std::to_string(*local);
}

std::string uncaught()
{
    auto failed = aco::spawn([]() -> int { throw std::runtime_error("failed"); });
    try {
        return std::to_string(failed.join());
    } catch (const std::runtime_error &e) {
        return e.what();
    }
}

std::string parallel() /* in aco::run() with ct_threads = 2 */
{
    std::atomic<int> ct_there{0};
    auto meet = [&] {
        ct_there++;
        while (ct_there < 2) {
        }
    };
    aco::task_options other;
    other.thread = ACO_THREAD(1);
    auto b = aco::spawn(other, meet);
    meet();
    b.join();
    return "met";
}

} // namespace ours

} // namespace

int main()
{
    aco::run_options options = {};
    options.ct_threads = 2;
    const row rows[] = {ROW(join),
                        ROW(detach),
                        ROW(ids),
                        ROW(sleep),
                        ROW(async),
                        ROW(promise),
                        ROW(packaged_task),
                        ROW(jthread),
                        ROW(stop_callback),
                        ROW(locks),
                        ROW(counters),
                        ROW(call_once),
                        ROW(thread_local_variable),
                        ROW(uncaught),
                        ROW(parallel)};
    return run_rows(rows, options);
}
