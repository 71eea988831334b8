// SPDX-License-Identifier: Apache-2.0
/*
 * C++20 coroutines. Stackless: a coroutine has a frame from the heap and no stack. Where a function
 * four calls deep is to yield, each of them must be a coroutine too, awaited by its caller.
 *
 * kind: stackless
 * needs: g++
 * peer: C++20
 * build: $CXX -std=c++20 -O2 $SRC -o $OUT
 */
#include "peer.h"

#include <coroutine>
#include <exception>

struct task {
    struct promise_type {
        task get_return_object()
        {
            return {std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_always initial_suspend()
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
            std::terminate();
        }
    };
    std::coroutine_handle<promise_type> handle;
};
using peer_ref = std::coroutine_handle<>;
using peer_body = task (*)(void *self);

// The only thing that a body knows of itself is its argument.
#define PEER_MAIN nullptr
#define PEER_SELF(self) nullptr
#define PEER_ARG(self) (self)
#define PEER_YIELD(self)                                                                           \
    co_await std::suspend_always                                                                   \
    {                                                                                              \
    }
#define PEER_RETURN(self) co_return
#define PEER_BODY(name) static task name([[maybe_unused]] void *self)

static peer_ref peer_create(std::nullptr_t, peer_body body, void *arg, size_t)
{
    return body(arg).handle;
}

static inline void peer_resume(peer_ref co)
{
    co.resume();
}

static inline void peer_destroy(peer_ref co)
{
    co.destroy();
}

#define peer_kill peer_destroy

static void peer_init()
{
}

#include "bodies.h"

// ==== Four calls deep ============================================================================

static peer_ref innermost; // what main resumes

// A coroutine that is awaited by another one, and continues it at its end.
struct call {
    struct promise_type {
        std::coroutine_handle<> caller;

        call get_return_object()
        {
            return {std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_always initial_suspend()
        {
            return {};
        }
        auto final_suspend() noexcept
        {
            struct back {
                bool await_ready() noexcept
                {
                    return false;
                }
                std::coroutine_handle<>
                await_suspend(std::coroutine_handle<promise_type> self) noexcept
                {
                    return self.promise().caller;
                }
                void await_resume() noexcept
                {
                }
            };
            return back{};
        }
        void return_void()
        {
        }
        void unhandled_exception()
        {
            std::terminate();
        }
    };
    std::coroutine_handle<promise_type> handle;

    ~call()
    {
        handle.destroy();
    }
    bool await_ready()
    {
        return false;
    }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller)
    {
        handle.promise().caller = caller;
        return handle;
    }
    void await_resume()
    {
    }
};

struct yield_innermost {
    bool await_ready()
    {
        return false;
    }
    void await_suspend(std::coroutine_handle<> self)
    {
        innermost = self;
    }
    void await_resume()
    {
    }
};

static __attribute__((noinline)) call call_4()
{
    co_await yield_innermost{};
    yields++;
}
static __attribute__((noinline)) call call_3()
{
    co_await call_4();
}
static __attribute__((noinline)) call call_2()
{
    co_await call_3();
}
static __attribute__((noinline)) call call_1()
{
    co_await call_2();
}

static task deep(void *)
{
    for (;;) {
        co_await call_1();
    }
}

static void run_deep(long n);
#define PEER_OTHERS(argc, argv)                                                                    \
    (is_called(argc, argv, "switch_deep", 1, 1) ? (run_deep(number(argv[2])), 1) : 0)
#include "workloads.h"

static void run_deep(long n)
{
    peer_ref co = deep(nullptr).handle;
    co.resume();
    yields = 0;
    int64_t start = now_ns();
    for (long i = 0; i < n; i++) {
        innermost.resume();
    }
    double ns = mean_ns(start, (double)n);
    check(yields == n, "a resume was lost");
    print_metric("ns", ns);
}
