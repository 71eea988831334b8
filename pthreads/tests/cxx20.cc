// SPDX-License-Identifier: Apache-2.0
/* What C++20 has for threads: each test says what the standard does, and runs with many threads,
 * most of which wait. */
#include "check.h"

#include <atomic>
#include <barrier>
#include <condition_variable>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <algorithm>
#include <array>
#include <semaphore>
#include <shared_mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

static const int CT_THREADS = 40;

using threads = std::vector<std::jthread>;

template <typename F> static threads start_many(F f)
{
    threads all;
    for (int i = 0; i < CT_THREADS; i++) {
        all.emplace_back(f, i);
    }
    return all;
}

/* ==== Threads that stop ====================================================================== */

static void stops_end_waits()
{
    std::mutex mutex;
    std::condition_variable_any condition;
    std::atomic<int> ct_waiting = 0, ct_stopped = 0;
    {
        threads all = start_many([&](std::stop_token stop, int) {
            std::unique_lock lock(mutex);
            ct_waiting++;
            CHECK(!condition.wait(lock, stop, [] { return false; }));
            ct_stopped++;
        });
        while (ct_waiting != CT_THREADS) {
            std::this_thread::sleep_for(1ms);
        }
    } // each is asked to stop, and joined
    CHECK(ct_stopped == CT_THREADS);
}

/* ==== Latches, barriers, semaphores ========================================================== */

static void latches_open_once()
{
    std::latch begun(CT_THREADS), may_end(1);
    std::atomic<int> ct_through = 0;
    {
        threads all = start_many([&](int) {
            begun.count_down();
            may_end.wait();
            ct_through++;
        });
        begun.wait();
        CHECK(!may_end.try_wait() && ct_through == 0);
        may_end.count_down();
    }
    CHECK(ct_through == CT_THREADS);
}

static void barriers_complete_rounds()
{
    const int ct_rounds = 20;
    int ct_completed = 0;
    std::atomic<int> ct_arrived = 0;
    std::barrier barrier(CT_THREADS, [&]() noexcept {
        ct_completed++;
        CHECK(ct_arrived == ct_completed * CT_THREADS);
    });
    {
        threads all = start_many([&](int) {
            for (int i = 1; i <= ct_rounds; i++) {
                ct_arrived++;
                barrier.arrive_and_wait();
                CHECK(ct_completed >= i);
            }
            ct_arrived++;
            barrier.arrive_and_drop();
        });
    }
    CHECK(ct_completed == ct_rounds + 1);
}

static void semaphores_limit()
{
    std::counting_semaphore<> places(3);
    std::binary_semaphore none(0);
    std::atomic<int> ct_inside = 0, most = 0;
    {
        threads all = start_many([&](int) {
            places.acquire();
            int ct = ++ct_inside, before = most;
            while (ct > before && !most.compare_exchange_weak(before, ct)) {
            }
            std::this_thread::sleep_for(100us);
            ct_inside--;
            places.release();
            CHECK(!none.try_acquire_for(1ms));
        });
    }
    CHECK(most >= 1 && most <= 3);
}

/* ==== Atomics that wait ====================================================================== */

template <typename T> static void passes_a_turn()
{
    std::atomic<T> turn = 0;
    threads all = start_many([&](int number) {
        for (T now = turn; now != T(number); now = turn) {
            turn.wait(now);
        }
        turn = T(number + 1);
        turn.notify_all();
    });
    for (T now = turn; now != T(CT_THREADS); now = turn) {
        turn.wait(now);
    }
}

static void atomics_wait()
{
    passes_a_turn<int>();  // a futex
    passes_a_turn<long>(); // by a futex that others share
    std::atomic_flag flag;
    {
        threads all = start_many([&](int) { flag.wait(false); });
        flag.test_and_set();
        flag.notify_all();
    }
}

/* ==== Futures ================================================================================ */

static void futures_have_results()
{
    std::vector<std::future<int>> results;
    for (int i = 0; i < CT_THREADS; i++) {
        results.push_back(std::async(std::launch::async, [i] {
            std::this_thread::sleep_for(1ms);
            return i % 2 == 0 ? i : throw std::runtime_error("odd " + std::to_string(i));
        }));
    }
    for (int i = 0; i < CT_THREADS; i++) {
        try {
            CHECK(results[i].get() == i && i % 2 == 0);
        } catch (std::runtime_error &e) {
            CHECK(i % 2 != 0 && e.what() == "odd " + std::to_string(i));
        }
    }
    std::promise<int> promise;
    std::shared_future<int> shared = promise.get_future().share();
    CHECK(shared.wait_for(1ms) == std::future_status::timeout);
    threads all = start_many([shared](int) { CHECK(shared.get() == 42); });
    promise.set_value(42);
    std::promise<void> broken;
    std::future<void> none = broken.get_future();
    {
        std::jthread drops([](std::promise<void>) {}, std::move(broken));
    }
    try {
        none.get();
        CHECK(!"a broken promise has a result");
    } catch (std::future_error &e) {
        CHECK(e.code() == std::future_errc::broken_promise);
    }
}

/* The value is seen when the thread has destroyed its variables. */
struct slow_end {
    std::atomic<int> *ct = nullptr;
    ~slow_end()
    {
        std::this_thread::sleep_for(1ms);
        ++*ct;
    }
};

static void ends_are_told()
{
    for (int i = 0; i < CT_THREADS; i++) {
        std::atomic<int> ct = 0;
        std::promise<int> promise;
        std::packaged_task<int()> task([] { return 7; });
        std::future<int> value = promise.get_future(), packaged = task.get_future();
        std::mutex mutex;
        std::condition_variable condition;
        bool is_over = false;
        std::unique_lock lock(mutex);
        std::jthread thread([&] {
            static thread_local slow_end own;
            own.ct = &ct;
            promise.set_value_at_thread_exit(6);
            task.make_ready_at_thread_exit();
            std::unique_lock inside(mutex);
            is_over = true;
            std::notify_all_at_thread_exit(condition, std::move(inside));
        });
        condition.wait(lock, [&] { return is_over; });
        CHECK(ct == 1);
        lock.unlock();
        CHECK(value.get() == 6 && packaged.get() == 7);
    }
}

/* ==== Locks ================================================================================== */

static void readers_share()
{
    std::shared_timed_mutex mutex;
    std::array<int, 2> pair = {0, 0};
    std::atomic<int> ct_late = 0;
    {
        threads all = start_many([&](int number) {
            for (int i = 0; i < 20; i++) {
                if (number % 4 == 0) {
                    std::unique_lock lock(mutex);
                    pair[0]++;
                    std::this_thread::sleep_for(10us);
                    pair[1]++;
                } else {
                    std::shared_lock lock(mutex);
                    int first = pair[0];
                    std::this_thread::sleep_for(10us);
                    CHECK(first == pair[1]);
                }
            }
        });
    }
    CHECK(pair[0] == CT_THREADS / 4 * 20);
    {
        std::unique_lock lock(mutex);
        threads all = start_many([&](int) { ct_late += !mutex.try_lock_shared_for(5ms); });
        all.clear();
        CHECK(ct_late == CT_THREADS);
    }
    std::mutex a, b, c;
    long sum = 0;
    start_many([&](int number) {
        for (int i = 0; i < 20; i++) {
            std::scoped_lock lock(number % 2 ? a : c, b, number % 2 ? c : a);
            sum += number;
            std::this_thread::yield();
        }
    }).clear();
    CHECK(sum == 20 * CT_THREADS * (CT_THREADS - 1) / 2);
}

/* The first ones throw, while all others wait: each calls its own function. */
static void calls_once()
{
    std::once_flag flag;
    std::atomic<int> ct_calls = 0, ct_thrown = 0, winner = -1;
    start_many([&](int number) {
        try {
            std::call_once(flag, [&, number] {
                std::this_thread::sleep_for(100us);
                int ct = ++ct_calls;
                if (ct < 10) {
                    throw number;
                }
                winner = number;
            });
            CHECK(winner != -1);
        } catch (int thrower) {
            CHECK(thrower == number);
            ct_thrown++;
        }
    }).clear();
    CHECK(ct_calls == 10 && ct_thrown == 9);
    static std::atomic<int> ct_made;
    start_many([&](int) {
        static const int value = (std::this_thread::sleep_for(1ms), ++ct_made);
        CHECK(value == 1);
    }).clear();
}

/* ==== Thread-local variables ================================================================= */

/* Destroyed in the reverse order of their making; a destructor may make another. */
struct ordered {
    static thread_local std::vector<int> *log;
    int number;
    explicit ordered(int n) : number(n)
    {
    }
    ~ordered();
};

thread_local std::vector<int> *ordered::log;

static ordered &late()
{
    static thread_local ordered variable(9);
    return variable;
}

ordered::~ordered()
{
    log->push_back(number);
    std::this_thread::sleep_for(10us);
    if (number == 2) {
        late();
    }
}

static thread_local ordered first(1);
static thread_local std::unique_ptr<std::string> text;

static void variables_end_in_order()
{
    std::vector<std::vector<int>> logs(CT_THREADS);
    start_many([&](int number) {
        ordered::log = &logs[number];
        first.number = 1;
        static thread_local ordered second(2), third(3);
        second.number = 2;
        third.number = 3;
        CHECK(text == nullptr);
        text = std::make_unique<std::string>(std::to_string(number));
        std::this_thread::sleep_for(10us);
        CHECK(*text == std::to_string(number));
    }).clear();
    for (const std::vector<int> &log : logs) {
        CHECK((log == std::vector<int>{3, 2, 9, 1}));
    }
}

static void ids_differ()
{
    std::vector<std::thread::id> ids(CT_THREADS);
    {
        std::latch all_run(CT_THREADS);
        threads all = start_many([&](int number) {
            ids[number] = std::this_thread::get_id();
            all_run.arrive_and_wait();
        });
        for (int i = 0; i < CT_THREADS; i++) {
            CHECK(all[i].joinable() && all[i].get_id() != std::this_thread::get_id());
        }
        std::vector<std::thread::id> known;
        for (std::jthread &thread : all) {
            known.push_back(thread.get_id());
        }
        all.clear();
        CHECK(known == ids);
    }
    std::sort(ids.begin(), ids.end());
    CHECK(std::adjacent_find(ids.begin(), ids.end()) == ids.end());
}

int main()
{
    stops_end_waits();
    latches_open_once();
    barriers_complete_rounds();
    semaphores_limit();
    atomics_wait();
    futures_have_results();
    ends_are_told();
    readers_share();
    calls_once();
    variables_end_in_order();
    ids_differ();
    puts("all held");
}
