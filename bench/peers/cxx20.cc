// SPDX-License-Identifier: Apache-2.0
/*
 * C++20 coroutines. Stackless: a coroutine has no stack but a frame, from the heap or from a free
 * list. No frame is elided, as no compiler can tell which body a coroutine has. Where a function
 * four calls deep is to yield, each of them must be a coroutine too, awaited by its caller.
 *
 * kind: stackless
 * needs: g++
 * peer: C++20
 * build: $CXX -std=c++20 -O2 -DNDEBUG $SRC -o $OUT
 * peer: C++20, pool
 * build: $CXX -std=c++20 -O2 -DNDEBUG -DPOOL $SRC -o $OUT
 * needs: clang
 * peer: C++20, clang
 * build: clang++ -std=c++20 -O2 -DNDEBUG $SRC -o $OUT
 * peer: C++20, clang, pool
 * build: clang++ -std=c++20 -O2 -DNDEBUG -DPOOL $SRC -o $OUT
 */
#include "peer.h"

#include <coroutine>
#include <exception>
#include <new>

// ==== Frames =====================================================================================

#ifdef POOL

constexpr size_t FRAME_SZ_UNIT = 16, FRAME_SZ_MAX = 4096; // bytes

struct free_frame {
    free_frame *next;
};
static free_frame *free_lists[FRAME_SZ_MAX / FRAME_SZ_UNIT + 1]; // by size in units, rounded up

struct frame {
    static free_frame *&list_of(size_t sz)
    {
        return free_lists[(sz + FRAME_SZ_UNIT - 1) / FRAME_SZ_UNIT];
    }
    static void *operator new(size_t sz)
    {
        check(sz <= FRAME_SZ_MAX, "a frame is too big");
        free_frame *&list = list_of(sz), *first = list;
        if (first == nullptr) {
            return get_memory((sz + FRAME_SZ_UNIT - 1) / FRAME_SZ_UNIT * FRAME_SZ_UNIT);
        }
        list = first->next;
        return first;
    }
    static void operator delete(void *ptr, size_t sz)
    {
        free_frame *&list = list_of(sz);
        list = new (ptr) free_frame{list};
    }
};

#else

struct frame {};

#endif

// ==== A coroutine ================================================================================

struct task {
    struct promise_type : frame {
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
using peer_self = void *; // its argument is all that a body knows of itself
using peer_body = task (*)(peer_self self);

#define PEER_MAIN nullptr
#define PEER_SELF(self) nullptr
#define PEER_ARG(self) (self)
#define PEER_YIELD(self)                                                                           \
    co_await std::suspend_always                                                                   \
    {                                                                                              \
    }
#define PEER_RETURN(self) co_return
#define PEER_BODY(name) static task name([[maybe_unused]] peer_self self)

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
    struct promise_type : frame {
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
