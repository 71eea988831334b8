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
 * suspended, so it may make any call of the runtime. future.cancel() and future.within() end its
 * waits by co_await, and those of the coroutines that it awaits, as cancelling and deadlines end
 * those of tasks.
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

/* Resumes a stackless coroutine, and then those to which it passes control, one after another, so
 * that these need no stack even where compilers make calls of such passes. */
class driver {
    static inline thread_local driver *current_ = nullptr; /* it lives */
    void *running_ = nullptr;                              /* the coroutine that it has resumed */
    std::coroutine_handle<> next_;

    explicit driver(std::coroutine_handle<> first) : next_(first)
    {
    }

public:
    static void resume(std::coroutine_handle<> first)
    {
        driver mine(first);
        while (mine.next_) {
            std::coroutine_handle<> h = std::exchange(mine.next_, nullptr);
            mine.running_ = h.address();
            current_ = &mine;
            h.resume();
        }
        if (current_ == &mine) { /* or else that of a task that waits meanwhile */
            current_ = nullptr;
        }
    }
    /* The value by which await_suspend() of `from` passes control to `to`, which goes on directly
     * where something else has resumed `from`. */
    static std::coroutine_handle<> pass(std::coroutine_handle<> from, std::coroutine_handle<> to)
    {
        driver *mine = current_;
        if (mine == nullptr || mine->running_ != from.address()) {
            return to;
        }
        mine->next_ = to;
        return std::noop_coroutine();
    }
};

inline void *resume_stackless(void *address)
{
    driver::resume(std::coroutine_handle<>::from_address(address));
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

/* ---- Limits ---- */

class stackless_wait;

/*
 * How the waits of a stackless coroutine that returns a future may end before their time: by
 * cancelling, or by a deadline, of this one or of one that awaits it. All of this happens on the
 * thread of the coroutine.
 */
class future_limits {
    friend stackless_wait;
    future_limits *inner_ = nullptr; /* of the coroutine that this one awaits */
    stackless_wait *wait_ = nullptr; /* that it is in */
    int error_ = 0;                  /* with which its waits fail from now on */
    resumer timer_;                  /* begins at the deadline */

    static void *be_late(void *limits)
    {
        static_cast<future_limits *>(limits)->timer_.clear();
        static_cast<future_limits *>(limits)->cut(ETIMEDOUT);
        return nullptr;
    }

public:
    future_limits() = default;
    future_limits(const future_limits &) = delete;
    future_limits &operator=(const future_limits &) = delete;

    /* Ends the present wait, and each that follows. */
    void cut(int error);
    void set_deadline(std::int64_t when)
    {
        clear_deadline();
        timer_.set(aco_i_go_later(when, be_late, this), "aco::future::within");
    }
    void clear_deadline()
    {
        if (timer_.get() != nullptr) {
            aco_i_call_off(timer_.get());
            timer_.clear();
        }
    }
    /* The coroutine awaits that of `inner`; nullptr: no more. */
    void set_inner(future_limits *inner)
    {
        inner_ = inner;
        if (inner != nullptr && error_ != 0) {
            inner->cut(error_);
        }
    }
};

/* The limits of a coroutine that waits; nullptr if it returns no future. */
template <class P> future_limits *limits_of(std::coroutine_handle<P> h)
{
    if constexpr (std::is_base_of_v<future_limits, P>) {
        return &h.promise();
    } else {
        return nullptr;
    }
}

/* A wait that limits can end: `cut` makes the coroutine go on. Lies in the frame of that. */
class stackless_wait {
    friend future_limits;
    future_limits *limits_ = nullptr;
    void (*cut_)(stackless_wait *);
    int error_ = 0;

public:
    explicit stackless_wait(void (*cut)(stackless_wait *)) : cut_(cut)
    {
    }
    stackless_wait(const stackless_wait &) = delete;
    stackless_wait &operator=(const stackless_wait &) = delete;
    ~stackless_wait()
    {
        end();
    }
    /* Returns 0, or errno if the wait fails at once. */
    int begin(future_limits *limits)
    {
        if (limits != nullptr && limits->error_ == 0) {
            limits_ = limits;
            limits->wait_ = this;
        }
        return error_ = limits == nullptr ? 0 : limits->error_;
    }
    /* Returns 0, or errno if it has failed. */
    int end()
    {
        if (limits_ != nullptr) {
            std::exchange(limits_, nullptr)->wait_ = nullptr;
        }
        return error_;
    }
};

inline void future_limits::cut(int error)
{
    for (future_limits *each = this; each != nullptr; each = each->inner_) {
        each->error_ = each->error_ != 0 ? each->error_ : error;
        stackless_wait *wait = each->wait_;
        if (wait != nullptr) {
            wait->error_ = each->error_;
            wait->end();
            wait->cut_(wait);
        }
    }
}

/* ---- Awaiters ---- */

/* co_await of a task. */
template <class T> class task_awaiter : aco_i_watch_t, stackless_wait {
    resumer resumer_;
    task<T> &task_;

    static void on_end(aco_i_watch_t *watch)
    {
        aco_unpark(static_cast<task_awaiter *>(watch)->resumer_.get());
    }
    static void cut(stackless_wait *wait)
    {
        aco_i_begin_now(static_cast<task_awaiter *>(wait)->resumer_.get());
    }

public:
    explicit task_awaiter(task<T> &t)
        : aco_i_watch_t{nullptr, on_end}, stackless_wait(cut), task_(t)
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
    template <class P> bool await_suspend(std::coroutine_handle<P> h)
    {
        if (begin(limits_of(h)) != 0) {
            return false;
        }
        aco_task_t *resumer = resumer_.set(aco_i_go_parked(resume_stackless, h.address()),
                                           "co_await of a task");
        if (!aco_i_watch(task_.handle(), this)) {
            aco_unpark(resumer);
        }
        return true;
    }
    T await_resume()
    {
        int error = end();
        if (error != 0 && !task_.done()) {
            aco_i_unwatch(task_.handle(), this);
            resumer_.clear();
            fail("co_await of a task", error);
        }
        resumer_.clear();
        return task_.join();
    }
};

/* co_await of a point in time. */
class time_awaiter : stackless_wait {
    std::int64_t when_;
    resumer resumer_;

    static void cut(stackless_wait *wait)
    {
        aco_i_begin_now(static_cast<time_awaiter *>(wait)->resumer_.get());
    }

public:
    explicit time_awaiter(std::int64_t when) : stackless_wait(cut), when_(when)
    {
    }
    bool await_ready() const noexcept
    {
        return false;
    }
    template <class P> bool await_suspend(std::coroutine_handle<P> h)
    {
        if (begin(limits_of(h)) != 0) {
            return false;
        }
        resumer_.set(aco_i_go_later(when_, resume_stackless, h.address()), "aco::co::sleep_for");
        return true;
    }
    void await_resume()
    {
        resumer_.clear();
        int error = end();
        if (error != 0) {
            fail("aco::co::sleep_for", error);
        }
    }
};

/* co_await of a call: returns or throws what `f()` does, which runs in a task unless `now()` has a
 * result. That task is cancelled where limits end the wait. */
template <class T, class F, class N> class call_awaiter : stackless_wait {
    F f_;
    N now_;
    outcome<T> result_;
    aco_task_t *task_ = nullptr;
    std::coroutine_handle<> handle_; /* nullptr: it does not wait */

    static void *run(void *arg)
    {
        call_awaiter *self = static_cast<call_awaiter *>(arg);
        self->result_.set_to(self->f_);
        bool is_cut = self->end() != 0;
        std::coroutine_handle<> h = std::exchange(self->handle_, nullptr);
        /* More may go on than was cancelled: not in this task. */
        if (!is_cut || aco_go(resume_stackless, h.address()) != 0) {
            driver::resume(h);
        }
        return nullptr;
    }
    static void cut(stackless_wait *wait)
    {
        aco_task_cancel(static_cast<call_awaiter *>(wait)->task_);
    }

public:
    call_awaiter(F &&f, N &&now) : stackless_wait(cut), f_(std::move(f)), now_(std::move(now))
    {
    }
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
    template <class P> void await_suspend(std::coroutine_handle<P> h)
    {
        int error = begin(limits_of(h));
        check(aco_go_with(nullptr, run, this, &task_), "co_await");
        aco_i_detach(task_, nullptr);
        handle_ = h;
        if (error != 0) {
            cut(this);
        }
    }
    T await_resume()
    {
#ifdef __cpp_exceptions
        try {
            return result_.take();
        } catch (const std::system_error &e) {
            if (end() == ETIMEDOUT && e.code() == std::errc::operation_canceled) {
                fail(e.what(), ETIMEDOUT);
            }
            throw;
        }
#else
        return result_.take();
#endif
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

/* The waiter is a stackless coroutine, which a coroutine that ends resumes itself. */
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
        ended.promise().clear_deadline();
        future_waiter *waiter = ended.promise().end(&is_dropped);
        if (is_dropped) {
            ended.destroy();
        } else if (waiter != nullptr && waiter->wake == coroutine_waiter::wake) {
            return driver::pass(ended, static_cast<coroutine_waiter *>(waiter)->handle);
        } else if (waiter != nullptr) {
            waiter->wake(waiter);
        }
        return std::noop_coroutine();
    }
    void await_resume() noexcept
    {
    }
};

template <class P, class T> struct future_promise_base : future_state<T>, future_limits {
    bool has_begun = false;

    static P &promise_of(future_state<T> *state) noexcept
    {
        return *static_cast<P *>(state);
    }
    static void release(future_state<T> *state) noexcept
    {
        P &promise = promise_of(state);
        if (!promise.has_begun || state->drop()) {
            std::coroutine_handle<P>::from_promise(promise).destroy();
        }
    }
    /* The coroutine if it is to begin, or else one that does nothing. */
    static std::coroutine_handle<> to_begin(future_state<T> *state)
    {
        P &promise = promise_of(state);
        return std::exchange(promise.has_begun, true)
                   ? std::noop_coroutine()
                   : std::coroutine_handle<>(std::coroutine_handle<P>::from_promise(promise));
    }
    static void begin(future_state<T> *state)
    {
        driver::resume(to_begin(state));
    }
    static void cancel(future_state<T> *state)
    {
        promise_of(state).cut(ECANCELED);
    }
    static void limit(future_state<T> *state, std::int64_t when)
    {
        promise_of(state).set_deadline(when);
    }
    static constexpr typename future_state<T>::operations table{release, begin, cancel, limit};

    future_promise_base() : future_state<T>(&table)
    {
    }
    future<T> get_return_object()
    {
        return future<T>(this);
    }
    std::suspend_always initial_suspend() noexcept
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

/* co_await of a future: of a promise, which limits may end, or of a coroutine, whose own waits they
 * end. */
template <class T> class future_awaiter : stackless_wait {
    future_state<T> *state_;
    future_limits *outer_ = nullptr; /* of the coroutine that waits for another one */
    std::optional<coroutine_waiter> waiter_;

    static void cut(stackless_wait *wait)
    {
        aco_i_begin_now(static_cast<future_awaiter *>(wait)->waiter_->by.get());
    }
    bool wait_for_promise(std::coroutine_handle<> h, future_limits *limits)
    {
        if (begin(limits) != 0) {
            return false;
        }
        waiter_->by.set(aco_i_go_parked(resume_stackless, h.address()), "co_await of a future");
        return state_->enter(&*waiter_);
    }
    bool wait_for_coroutine(future_limits *limits)
    {
        outer_ = limits;
        if (outer_ != nullptr) {
            outer_->set_inner(static_cast<future_promise<T> *>(state_));
        }
        return state_->enter(&*waiter_);
    }

public:
    explicit future_awaiter(future_state<T> *state) : stackless_wait(cut), state_(state)
    {
    }
    ~future_awaiter()
    {
        if (waiter_) { /* the coroutine is destroyed while it waits */
            state_->leave(&*waiter_);
        }
        leave_inner();
    }
    bool await_ready() const noexcept
    {
        return state_->has_ended();
    }
    /* Returns which coroutine goes on. */
    template <class P> std::coroutine_handle<> await_suspend(std::coroutine_handle<P> h)
    {
        waiter_.emplace(h);
        bool is_promised = state_->is_promised();
        if (is_promised ? !wait_for_promise(h, limits_of(h)) : !wait_for_coroutine(limits_of(h))) {
            waiter_.reset();
            return h;
        }
        return is_promised ? std::noop_coroutine()
                           : driver::pass(h, future_promise<T>::to_begin(state_));
    }
    T await_resume()
    {
        int error = end();
        leave_inner();
        bool has_failed = error != 0 && (waiter_ ? state_->leave(&*waiter_) : !state_->has_ended());
        if (waiter_) {
            waiter_->by.clear();
            waiter_.reset();
        }
        if (has_failed) {
            fail("co_await of a future", error);
        }
        return state_->result.take();
    }

private:
    void leave_inner()
    {
        if (outer_ != nullptr) {
            std::exchange(outer_, nullptr)->set_inner(nullptr);
        }
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

/* A stackless coroutine that returns a future begins when that is waited for, or by start(). */
template <class T, class... A> struct std::coroutine_traits<aco::future<T>, A...> {
    using promise_type = aco::detail::future_promise<T>;
};

#endif
