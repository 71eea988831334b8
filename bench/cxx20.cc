// SPDX-License-Identifier: Apache-2.0
/* ns per resume of a C++20 coroutine whose body is not inlined: the price of a stackless switch. */
#include <coroutine>
#include <cstdio>
#include <ctime>

struct task {
    struct promise_type {
        task get_return_object()
        {
            return {std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_always initial_suspend() { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() {}
    };
    std::coroutine_handle<promise_type> handle;
};

static long yields;

static __attribute__((noinline)) task flat()
{
    for (;;) {
        yields++;
        co_await std::suspend_always{};
    }
}

static double now_ns()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main()
{
    const long resumes = 10000000;
    auto handle = flat().handle;
    // What the compiler does not know, it can't inline.
    __asm__ volatile("" : "+r"(handle));
    double start = now_ns();
    for (long i = 0; i < resumes; i++) {
        handle.resume();
    }
    double ns = (now_ns() - start) / (double)resumes;
    std::printf("%.2f\n", ns);
    return yields == resumes ? 0 : 1;
}
