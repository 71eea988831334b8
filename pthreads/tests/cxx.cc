// SPDX-License-Identifier: Apache-2.0
/* Threads of C++: variables with destructors, exceptions over waits, futures, and unwinding. */
#include "check.h"

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

static std::atomic<int> ct_made, ct_gone, ct_unwound;

struct counted {
    std::string text = "initial";
    counted()
    {
        ct_made++;
    }
    ~counted()
    {
        ct_gone++;
    }
};

static thread_local counted own;
static thread_local std::vector<int> numbers;

struct on_return {
    ~on_return()
    {
        ct_unwound++;
    }
};

static void run(int number)
{
    CHECK(own.text == "initial" && numbers.empty());
    own.text = std::to_string(number);
    numbers.push_back(number);
    try {
        throw std::runtime_error(own.text);
    } catch (std::exception &e) {
        usleep(100);
        CHECK(e.what() == std::to_string(number));
        for (int i = 0; i < number % 4; i++) {
            std::this_thread::yield();
        }
        CHECK(std::current_exception() != nullptr);
        try {
            throw;
        } catch (std::exception &same) {
            CHECK(same.what() == std::to_string(number));
        }
    }
    CHECK(own.text == std::to_string(number) && numbers.size() == 1 && numbers[0] == number);
    on_return counts;
    if (number % 2 != 0) {
        pthread_exit(nullptr);
    }
}

static void run_many()
{
    const int ct = 500;
    std::vector<std::thread> threads;
    for (int i = 0; i < ct; i++) {
        threads.emplace_back(run, i);
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(ct_made == ct && ct_gone == ct && ct_unwound == ct);
}

static void wait_in_vain()
{
    std::mutex mutex;
    std::condition_variable condition;
    std::unique_lock<std::mutex> lock(mutex);
    on_return counts;
    try {
        condition.wait(lock, [] { return false; });
    } catch (...) {
        ct_unwound += 100;
        throw;
    }
}

static void cancelling_unwinds()
{
    ct_unwound = 0;
    std::thread thread(wait_in_vain);
    usleep(10000);
    CHECK(pthread_cancel(thread.native_handle()) == 0);
    thread.join();
    CHECK(ct_unwound == 101);
}

int main()
{
    run_many();
    cancelling_unwinds();
    std::future<int> answer = std::async(std::launch::async, [] {
        usleep(1000);
        return 42;
    });
    CHECK(answer.get() == 42);
    std::promise<int> promise;
    std::thread thread([&] { promise.set_value(43); });
    CHECK(promise.get_future().get() == 43);
    thread.join();
    puts("all held");
}
