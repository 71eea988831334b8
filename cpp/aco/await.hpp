// SPDX-License-Identifier: Apache-2.0
/*
 * Stackless coroutines of C++20 and tasks wait for each other. Relies on task.hpp and channel.hpp.
 *
 *     aco::future<int> twice(int i)
 *     {
 *         co_await aco::co::sleep_for(std::chrono::milliseconds(1));
 *         co_return 2 * i;
 *     }
 *     ... in a task: aco::await(twice(21))
 *
 * A stackless coroutine that these waits resume runs in a task of the thread on which it was
 * suspended, so it may make any call of the runtime. Cancelling and deadlines are those of tasks: a
 * stackless coroutine that waits has neither.
 */
#ifndef ACO_AWAIT_HPP
#define ACO_AWAIT_HPP

#include "channel.hpp"
#include "future.hpp"
#include "task.hpp"

#include <atomic>
#include <coroutine>

namespace aco {
ACO_I_BEGIN

namespace detail {

inline void *resume_stackless(void *address)
{
    std::coroutine_handle<>::from_address(address).resume();
    return nullptr;
}

/* The task that resumes a stackless coroutine, which begins when the wait of that has ended. */
class resumer {
    aco_task_t *task_ = nullptr;

public:
    resumer() = default;
    resumer(const resumer &) = delete;
    resumer &operator=(const resumer &) = delete;
    ~resumer()
    {
        if (task_ != nullptr) { /* the coroutine is destroyed while it waits */
            aco_i_call_off(task_);
        }
    }
    aco_task_t *set(aco_task_t *task, const char *call)
    {
        if (task == nullptr) {
            fail(call);
        }
        return task_ = task;
    }
    aco_task_t *get() const noexcept
    {
        return task_;
    }
    /* Called by the coroutine after it was resumed. */
    void clear() noexcept
    {
        task_ = nullptr;
    }
};

/* co_await of a task. */
template <class T> class task_awaiter : aco_i_watch_t {
    resumer resumer_;
    task<T> &task_;

    static void on_end(aco_i_watch_t *watch)
    {
        aco_unpark(static_cast<task_awaiter *>(watch)->resumer_.get());
    }

public:
    explicit task_awaiter(task<T> &t) : aco_i_watch_t{nullptr, on_end}, task_(t)
    {
    }
    ~task_awaiter()
    {
        if (resumer_.get() != nullptr && task_.joinable()) {
            aco_i_unwatch(task_.handle(), this);
        }
    }
    bool await_ready() const
    {
        return task_.done();
    }
    void await_suspend(std::coroutine_handle<> h)
    {
        aco_task_t *resumer = resumer_.set(aco_i_go_parked(resume_stackless, h.address()),
                                           "co_await of a task");
        if (!aco_i_watch(task_.handle(), this)) {
            aco_unpark(resumer);
        }
    }
    T await_resume()
    {
        resumer_.clear();
        return task_.join();
    }
};

/* co_await of a point in time. */
class time_awaiter {
    std::int64_t when_;
    resumer resumer_;

public:
    explicit time_awaiter(std::int64_t when) : when_(when)
    {
    }
    bool await_ready() const noexcept
    {
        return false;
    }
    void await_suspend(std::coroutine_handle<> h)
    {
        resumer_.set(aco_i_go_later(when_, resume_stackless, h.address()), "aco::co::sleep_for");
    }
    void await_resume() noexcept
    {
        resumer_.clear();
    }
};

/* co_await of a call: returns or throws what `f()` does, which runs in a task unless `now()` has a
 * result. */
template <class T, class F, class N> class call_awaiter {
    F f_;
    N now_;
    outcome<T> result_;
    std::coroutine_handle<> handle_; /* nullptr: it does not wait */

    static void *run(void *arg)
    {
        call_awaiter *self = static_cast<call_awaiter *>(arg);
        self->result_.set_to(self->f_);
        std::exchange(self->handle_, nullptr).resume();
        return nullptr;
    }

public:
    call_awaiter(F &&f, N &&now) : f_(std::move(f)), now_(std::move(now))
    {
    }
    call_awaiter(const call_awaiter &) = delete;
    call_awaiter &operator=(const call_awaiter &) = delete;
    ~call_awaiter()
    {
        if (handle_ != nullptr) {
            aco_i_fail("the destructor of a co_await", aco_get_co(),
                       "a task makes its call: destroy the stackless coroutine after that");
        }
    }
    bool await_ready()
    {
        return now_(result_);
    }
    void await_suspend(std::coroutine_handle<> h)
    {
        check(aco_go(run, this), "co_await");
        handle_ = h;
    }
    T await_resume()
    {
        return result_.take();
    }
};

template <class T, class F, class N> call_awaiter<T, F, N> call_awaiter_of(F &&f, N &&now)
{
    return {std::forward<F>(f), std::forward<N>(now)};
}

} // namespace detail

/* co_await of a task: returns or throws what join() would. The wait takes no stack. */
template <class T> detail::task_awaiter<T> operator co_await(task<T> &t)
{
    return detail::task_awaiter<T>(t);
}
template <class T> detail::task_awaiter<T> operator co_await(task<T> &&t)
{
    return detail::task_awaiter<T>(t); /* it lives as long as the whole expression */
}

/* Operations for co_await in a stackless coroutine, under the names that they have in a task. While
 * it waits for a task or a time, but for nothing else, it may be destroyed, on its thread. */
namespace co {

template <class R, class P> detail::time_awaiter sleep_for(std::chrono::duration<R, P> d)
{
    return detail::time_awaiter(detail::ns_from_now(d));
}
template <class C, class D> detail::time_awaiter sleep_until(std::chrono::time_point<C, D> t)
{
    return sleep_for(std::chrono::nanoseconds(detail::ns_until(t)));
}

/* The operations below take a task while they wait. */

/* Receives as channel.recv(). */
template <class T> [[nodiscard]] auto recv(channel<T> &c)
{
    return detail::call_awaiter_of<std::optional<T>>(
        [&c] { return c.recv(); },
        [&c](detail::outcome<std::optional<T>> &result) {
            std::optional<T> value = c.try_recv();
            if (!value) {
                return false;
            }
            result.set_value(std::move(value));
            return true;
        });
}

/* Sends as channel.send(). */
template <class T, class U = T> auto send(channel<T> &c, U &&value)
{
    return detail::call_awaiter_of<void>(
        [&c, v = T(std::forward<U>(value))]() mutable { c.send(std::move(v)); },
        [](auto &) { return false; });
}

/* Waits as aco_wait_fd(), and returns POLLIN, POLLOUT and so on. */
inline auto wait_fd(int fd, int events)
{
    return detail::call_awaiter_of<int>(
        [fd, events] {
            int happened = aco_wait_fd(fd, events);
            detail::check(happened, "aco::co::wait_fd");
            return happened;
        },
        [](auto &) { return false; });
}

/* Runs `f()`, any call that waits, in a task, and returns or throws what it does. */
template <class F> auto call(F f)
{
    return detail::call_awaiter_of<std::invoke_result_t<F &>>(std::move(f),
                                                              [](auto &) { return false; });
}

} // namespace co

/* ==== Futures ================================================================================ */

namespace detail {

/* Who waits is a stackless coroutine, which a coroutine that ends resumes itself. */
struct coroutine_waiter : future_waiter {
    std::coroutine_handle<> handle;
    resumer by; /* resumes it where any thread may end the future */

    static void wake(future_waiter *w)
    {
        aco_unpark(static_cast<coroutine_waiter *>(w)->by.get());
    }
    explicit coroutine_waiter(std::coroutine_handle<> h) : future_waiter{wake}, handle(h)
    {
    }
};

struct future_end {
    bool await_ready() noexcept
    {
        return false;
    }
    template <class P>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<P> ended) noexcept
    {
        bool is_dropped;
        future_waiter *waiter = ended.promise().end(&is_dropped);
        if (is_dropped) {
            ended.destroy();
        } else if (waiter != nullptr && waiter->wake == coroutine_waiter::wake) {
            return static_cast<coroutine_waiter *>(waiter)->handle;
        } else if (waiter != nullptr) {
            waiter->wake(waiter);
        }
        return std::noop_coroutine();
    }
    void await_resume() noexcept
    {
    }
};

template <class P, class T> struct future_promise_base : future_state<T> {
    future_promise_base() : future_state<T>(release, false)
    {
    }
    static void release(future_state<T> *state) noexcept
    {
        if (state->drop()) {
            std::coroutine_handle<P>::from_promise(*static_cast<P *>(state)).destroy();
        }
    }
    future<T> get_return_object()
    {
        return future<T>(this);
    }
    std::suspend_never initial_suspend() noexcept
    {
        return {};
    }
    future_end final_suspend() noexcept
    {
        return {};
    }
    void unhandled_exception() noexcept
    {
        this->result.set_thrown(std::current_exception());
    }
};

template <class T> struct future_promise : future_promise_base<future_promise<T>, T> {
    template <class U = T> void return_value(U &&value)
    {
        this->result.set_value(std::forward<U>(value));
    }
};

template <> struct future_promise<void> : future_promise_base<future_promise<void>, void> {
    void return_void() noexcept
    {
    }
};

/* co_await of a future. */
template <class T> class future_awaiter {
    future_state<T> *state_;
    std::optional<coroutine_waiter> waiter_;

public:
    explicit future_awaiter(future_state<T> *state) : state_(state)
    {
    }
    future_awaiter(const future_awaiter &) = delete;
    future_awaiter &operator=(const future_awaiter &) = delete;
    ~future_awaiter()
    {
        if (waiter_) { /* the coroutine is destroyed while it waits */
            state_->leave(&*waiter_);
        }
    }
    bool await_ready() const noexcept
    {
        return state_->has_ended();
    }
    bool await_suspend(std::coroutine_handle<> h)
    {
        waiter_.emplace(h);
        if (state_->is_promised) {
            waiter_->by.set(aco_i_go_parked(resume_stackless, h.address()), "co_await of a future");
        }
        if (state_->enter(&*waiter_)) {
            return true;
        }
        waiter_.reset();
        return false;
    }
    T await_resume()
    {
        if (waiter_) {
            waiter_->by.clear();
            waiter_.reset();
        }
        return state_->result.take();
    }
};

} // namespace detail

template <class T> detail::future_awaiter<T> operator co_await(future<T> &f)
{
    return detail::future_awaiter<T>(f.get_state());
}
template <class T> detail::future_awaiter<T> operator co_await(future<T> &&f)
{
    return detail::future_awaiter<T>(f.get_state());
}

/* co_await of a shared task takes a task while it waits. */
template <class T> auto operator co_await(const shared_task<T> &t)
{
    return detail::call_awaiter_of<decltype(t.join())>([t]() -> decltype(auto) { return t.join(); },
                                                       [](auto &) { return false; });
}

/* ==== Awaitables in a task =================================================================== */

namespace detail {

/* State shared by a task and the coroutine that awaits for it. */
template <class T> struct awaited {
    outcome<T> result;
    aco_semaphore_t ended = {};
    std::atomic<int> ct_owners{2};

    void leave()
    {
        if (ct_owners.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            delete this;
        }
    }
};

/* A coroutine that begins at once, and destroys itself. */
struct detached {
    struct promise_type {
        detached get_return_object() noexcept
        {
            return {};
        }
        std::suspend_never initial_suspend() noexcept
        {
            return {};
        }
        std::suspend_never final_suspend() noexcept
        {
            return {};
        }
        void return_void() noexcept
        {
        }
        void unhandled_exception() noexcept
        {
            std::terminate();
        }
    };
};

/* A is a reference for an lvalue. */
template <class T, class A> detached await_into(awaited<T> *shared, A awaitable)
{
    ACO_I_TRY_TASK
    {
        if constexpr (std::is_void_v<T>) {
            co_await static_cast<A &&>(awaitable);
        } else {
            shared->result.set_value(co_await static_cast<A &&>(awaitable));
        }
    }
    ACO_I_CATCH_ALL
    {
        shared->result.set_thrown(std::current_exception());
    }
    aco_semaphore_release(&shared->ended);
    shared->leave();
}

template <class A> decltype(auto) awaiter_of(A &&a)
{
    if constexpr (requires { static_cast<A &&>(a).operator co_await(); }) {
        return static_cast<A &&>(a).operator co_await();
    } else if constexpr (requires { operator co_await(static_cast<A &&>(a)); }) {
        return operator co_await(static_cast<A &&>(a));
    } else {
        return static_cast<A &&>(a);
    }
}

template <class A>
using await_result =
    decltype(std::declval<std::remove_reference_t<decltype(awaiter_of(std::declval<A>()))> &>()
                 .await_resume());

} // namespace detail

/*
 * Waits, in a task, for any awaitable, also of other libraries, and returns or throws what
 * `co_await awaitable` would. If the wait fails, the operation goes on alone, and an awaitable that
 * was passed by reference must live until it ends.
 */
template <class A> auto await(A &&awaitable) -> detail::await_result<A>
{
    using T = detail::await_result<A>;
    auto *shared = new detail::awaited<T>;
    struct owner {
        detail::awaited<T> *shared;
        ~owner()
        {
            shared->leave();
        }
    } mine{shared};
    detail::await_into<T, A>(shared, std::forward<A>(awaitable));
    detail::check(aco_semaphore_acquire(&shared->ended), "aco::await");
    return shared->result.take();
}

template <class T> T await(task<T> &t)
{
    return t.join();
}
template <class T> T await(task<T> &&t)
{
    return t.join();
}

template <class T> T await(future<T> &f)
{
    return f.get();
}
template <class T> T await(future<T> &&f)
{
    return f.get();
}

ACO_I_END
} // namespace aco

/* A stackless coroutine that returns a future begins at once. */
template <class T, class... A> struct std::coroutine_traits<aco::future<T>, A...> {
    using promise_type = aco::detail::future_promise<T>;
};

#endif
