// boost_fiber.cc runs each row of "Coming from Boost.Fiber" in docs/cpp.md with both libraries.
// SPDX-License-Identifier: Apache-2.0
#include "rows.hpp"

#include <boost/fiber/all.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

using namespace std::chrono_literals;

namespace {

namespace theirs {

namespace fibers = boost::fibers;

std::string join()
{
    int value = 0;
    fibers::fiber f([&] { value = 42; });
    f.join();
    return std::to_string(value);
}

std::string detach()
{
    fibers::promise<int> done;
    auto value = done.get_future();
    fibers::fiber([&] { done.set_value(1); }).detach();
    return std::to_string(value.get());
}

std::string yield()
{
    std::string order;
    fibers::fiber a([&] {
        order += "a";
        boost::this_fiber::yield();
        order += "a";
    });
    fibers::fiber b([&] { order += "b"; });
    a.join();
    b.join();
    return order;
}

std::string sleep()
{
    auto begin = std::chrono::steady_clock::now();
    boost::this_fiber::sleep_for(2ms);
    return std::chrono::steady_clock::now() - begin >= 2ms ? "slept" : "woke early";
}

std::string ids()
{
    fibers::fiber::id inside;
    fibers::fiber f([&] { inside = boost::this_fiber::get_id(); });
    auto outside = f.get_id();
    f.join();
    return inside == outside ? "same id" : "other id";
}

std::string async()
{
    auto value = fibers::async([] { return 42; });
    return std::to_string(value.get());
}

std::string exceptions()
{
    auto value = fibers::async([]() -> int { throw std::runtime_error("failed"); });
    try {
        return std::to_string(value.get());
    } catch (const std::runtime_error &e) {
        return e.what();
    }
}

std::string promise()
{
    fibers::promise<int> p;
    auto value = p.get_future();
    bool is_late = value.wait_for(1ms) == fibers::future_status::timeout;
    p.set_value(42);
    return std::to_string(is_late) + std::to_string(value.get());
}

std::string shared_future()
{
    fibers::shared_future<int> value = fibers::async([] { return 21; }).share();
    auto copy = value;
    return std::to_string(value.get() + copy.get());
}

std::string buffered_channel()
{
    fibers::buffered_channel<int> c(4);
    fibers::fiber sender([&] {
        for (int i = 1; i <= 9; i++) {
            c.push(i);
        }
        c.close();
    });
    int sum = 0;
    for (int i : c) {
        sum += i;
    }
    sender.join();
    return std::to_string(sum);
}

std::string unbuffered_channel()
{
    fibers::unbuffered_channel<int> c;
    fibers::fiber sender([&] { c.push(42); });
    int value = 0;
    c.pop(value);
    sender.join();
    bool is_late = c.pop_wait_for(value, 1ms) == fibers::channel_op_status::timeout;
    return std::to_string(value) + std::to_string(is_late);
}

std::string mutex()
{
    fibers::timed_mutex m;
    std::unique_lock<fibers::timed_mutex> lock(m);
    bool got = true;
    fibers::fiber other([&] { got = m.try_lock_for(1ms); });
    other.join();
    return got ? "locked" : "late";
}

std::string condition_variable()
{
    fibers::mutex m;
    fibers::condition_variable changed;
    bool is_set = false;
    fibers::fiber setter([&] {
        std::unique_lock<fibers::mutex> lock(m);
        is_set = true;
        changed.notify_all();
    });
    std::unique_lock<fibers::mutex> lock(m);
    changed.wait(lock, [&] { return is_set; });
    lock.unlock();
    setter.join();
    return "set";
}

std::string barrier()
{
    fibers::barrier all(2);
    std::string order;
    fibers::fiber other([&] {
        order += "a";
        all.wait();
    });
    all.wait();
    order += "b";
    other.join();
    return order;
}

std::string specific_ptr()
{
    fibers::fiber_specific_ptr<int> local;
    local.reset(new int(1));
    fibers::fiber([&] { local.reset(new int(2)); }).join();
    return std::to_string(*local);
}

std::string stack_size()
{
    fibers::fiber f(std::allocator_arg, fibers::fixedsize_stack(1 << 20), [] {
        volatile char large[900 << 10];
        large[0] = 1;
        (void)large[0];
    });
    f.join();
    return "900 KiB";
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

std::string yield()
{
    std::string order;
    auto a = aco::spawn([&] {
        order += "a";
        aco::yield();
        order += "a";
    });
    auto b = aco::spawn([&] { order += "b"; });
    a.join();
    b.join();
    return order;
}

std::string sleep()
{
    auto begin = std::chrono::steady_clock::now();
    aco::sleep_for(2ms);
    return std::chrono::steady_clock::now() - begin >= 2ms ? "slept" : "woke early";
}

std::string ids()
{
    auto t = aco::spawn([] { return aco::this_task_id(); });
    auto outside = t.id();
    return t.join() == outside ? "same id" : "other id";
}

std::string async()
{
    auto value = aco::spawn([] { return 42; });
    return std::to_string(value.join());
}

std::string exceptions()
{
    auto value = aco::spawn([]() -> int { throw std::runtime_error("failed"); });
    try {
        return std::to_string(value.join());
    } catch (const std::runtime_error &e) {
        return e.what();
    }
}

std::string promise()
{
    aco::promise<int> p;
    auto value = p.get_future();
    bool is_late = !value.wait_for(1ms);
    p.set_value(42);
    return std::to_string(is_late) + std::to_string(value.get());
}

std::string shared_future()
{
    aco::shared_task<int> value = aco::spawn([] { return 21; });
    auto copy = value;
    return std::to_string(value.join() + copy.join());
}

std::string buffered_channel()
{
    aco::channel<int> c(4);
    auto sender = aco::spawn([&] {
        for (int i = 1; i <= 9; i++) {
            c.send(i);
        }
        c.close();
    });
    int sum = 0;
    for (int i : c) {
        sum += i;
    }
    sender.join();
    return std::to_string(sum);
}

std::string unbuffered_channel()
{
    aco::channel<int> c;
    auto sender = aco::spawn([&] { c.send(42); });
    int value = *c.recv();
    sender.join();
    bool is_late = false;
    try {
        (void)aco::within(1ms, [&] { return c.recv(); });
    } catch (const std::system_error &e) {
        is_late = e.code() == std::errc::timed_out;
    }
    return std::to_string(value) + std::to_string(is_late);
}

std::string mutex()
{
    aco::timed_mutex m;
    std::unique_lock<aco::timed_mutex> lock(m);
    auto other = aco::spawn([&] { return m.try_lock_for(1ms); });
    return other.join() ? "locked" : "late";
}

std::string condition_variable()
{
    aco::mutex m;
    aco::condition_variable changed;
    bool is_set = false;
    auto setter = aco::spawn([&] {
        std::unique_lock<aco::mutex> lock(m);
        is_set = true;
        changed.notify_all();
    });
    std::unique_lock<aco::mutex> lock(m);
    changed.wait(lock, [&] { return is_set; });
    lock.unlock();
    setter.join();
    return "set";
}

std::string barrier()
{
    aco::barrier all(2);
    std::string order;
    auto other = aco::spawn([&] {
        order += "a";
        all.arrive_and_wait();
    });
    all.arrive_and_wait();
    order += "b";
    other.join();
    return order;
}

std::string specific_ptr()
{
    aco::task_local<int> local;
    *local = 1;
    aco::spawn([&] { *local = 2; }).join();
    return std::to_string(*local);
}

std::string stack_size()
{
    aco::task_options large;
    large.stack_sz = 1 << 20;
    aco::spawn(large, [] {
        volatile char bytes[900 << 10];
        bytes[0] = 1;
        (void)bytes[0];
    }).join();
    return "900 KiB";
}

} // namespace ours

} // namespace

int main()
{
    const row rows[] = {ROW(join),
                        ROW(detach),
                        ROW(yield),
                        ROW(sleep),
                        ROW(ids),
                        ROW(async),
                        ROW(exceptions),
                        ROW(promise),
                        ROW(shared_future),
                        ROW(buffered_channel),
                        ROW(unbuffered_channel),
                        ROW(mutex),
                        ROW(condition_variable),
                        ROW(barrier),
                        ROW(specific_ptr),
                        ROW(stack_size)};
    return run_rows(rows);
}
