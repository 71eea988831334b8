// SPDX-License-Identifier: Apache-2.0
/*
 * aco::promise<T> and aco::future<T>: a value that comes from anywhere, once; aco::shared_task<T>:
 * a task that several join. Relies on task.hpp. With C++20, await.hpp lets stackless coroutines
 * return futures, and wait for them.
 *
 *     aco::promise<int> answer;
 *     aco::future<int> later = answer.get_future();
 *     std::thread([answer = std::move(answer)]() mutable { answer.set_value(42); }).detach();
 *     ... in a task: later.get()
 */
#ifndef ACO_FUTURE_HPP
#define ACO_FUTURE_HPP

#include "task.hpp"

#include <atomic>
#include <memory>

namespace aco {
ACO_I_BEGIN

namespace detail {

/* Waits for the end of a future; any thread calls `wake`, once. */
struct future_waiter {
    void (*wake)(future_waiter *);
};

/* The state of a future: no waiter, one, ending, ended, or dropped. */
class future_core {
    struct task_waiter : future_waiter {
        aco_semaphore_t ended = {};
        task_waiter()
            : future_waiter{[](future_waiter *w) {
                  aco_semaphore_release(&static_cast<task_waiter *>(w)->ended);
              }}
        {
        }
    };
    static inline future_waiter ending_, ended_, dropped_;
    std::atomic<future_waiter *> waiter_{nullptr};
    task_waiter task_waiter_; /* here, as other tasks may use the stack of one that waits */

public:
    bool has_ended() const noexcept
    {
        future_waiter *waiter = waiter_.load(std::memory_order_acquire);
        return waiter == &ended_ || waiter == &ending_;
    }
    /* Sets who waits. Returns false if the future has ended. */
    bool enter(future_waiter *waiter)
    {
        future_waiter *found = nullptr;
        if (waiter_.compare_exchange_strong(found, waiter, std::memory_order_acq_rel)) {
            return true;
        }
        if (!has_ended()) {
            aco_i_fail("aco::future", aco_get_co(),
                       "another one waits for it already: wait for a future once");
        }
        return false;
    }
    /* Takes back a waiter. Returns false if that was woken. */
    bool leave(future_waiter *waiter) noexcept
    {
        future_waiter *found = waiter;
        if (waiter_.compare_exchange_strong(found, nullptr, std::memory_order_acq_rel)) {
            return true;
        }
        while (waiter_.load(std::memory_order_acquire) == &ending_) { /* it is being woken */
        }
        return false;
    }
    /* The wait of a task: 0, or -1 with errno, and the future has no waiter. */
    int wait()
    {
        if (!enter(&task_waiter_) || aco_semaphore_acquire(&task_waiter_.ended) == 0) {
            return 0;
        }
        int error = errno;
        if (leave(&task_waiter_)) {
            errno = error;
            return -1;
        }
        shielded([this] { aco_semaphore_acquire(&task_waiter_.ended); }); /* it was released */
        return 0;
    }

    /* An object of two owners ends by these: drop() returns whether the caller must destroy it,
     * end() who is to be woken. */
    bool drop() noexcept
    {
        return waiter_.exchange(&dropped_, std::memory_order_acq_rel) == &ended_;
    }
    future_waiter *end(bool *is_dropped) noexcept
    {
        future_waiter *waiter = waiter_.exchange(&ended_, std::memory_order_acq_rel);
        *is_dropped = waiter == &dropped_;
        return *is_dropped ? nullptr : waiter;
    }
    /* Ends what stays meanwhile, as its owners are counted. */
    void end_and_wake() noexcept
    {
        future_waiter *waiter = waiter_.exchange(&ending_, std::memory_order_acq_rel);
        if (waiter != nullptr) {
            waiter->wake(waiter);
        }
        waiter_.store(&ended_, std::memory_order_release);
    }
};

template <class T> struct future_state : future_core {
    /* The end of a future, by whatever brings it. All but `release` are nullptr for a promise. */
    struct operations {
        void (*release)(future_state *) noexcept;
        void (*begin)(future_state *); /* unless it has begun */
        void (*cancel)(future_state *);
        void (*limit)(future_state *, std::int64_t when);
    };
    outcome<T> result;
    const operations *its;

    explicit future_state(const operations *o) : its(o)
    {
    }
    /* Whether any thread may end it. */
    bool is_promised() const
    {
        return its->begin == nullptr;
    }
};

/* The state that a promise has in common with its future. */
template <class T> struct promised_state : future_state<T> {
    std::atomic<int> ct_owners{1};
    std::atomic<bool> is_set{false}, has_future{false};

    static void leave(future_state<T> *state) noexcept
    {
        promised_state *left = static_cast<promised_state *>(state);
        if (left->ct_owners.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            delete left;
        }
    }
    static constexpr typename future_state<T>::operations table{leave, nullptr, nullptr, nullptr};

    promised_state() : future_state<T>(&table)
    {
    }
};

} // namespace detail

template <class T> class promise;

/*
 * A value that comes once: from an aco::promise, or from a stackless coroutine, whose return type
 * it is. One task waits for it by get(), or one stackless coroutine by co_await.
 */
template <class T> class [[nodiscard]] future {
    using state = detail::future_state<T>;
    state *state_ = nullptr;

public:
    using value_type = T;

    future() = default;
    future(future &&other) noexcept : state_(std::exchange(other.state_, nullptr))
    {
    }
    future &operator=(future &&other) noexcept
    {
        std::swap(state_, other.state_);
        return *this;
    }
    /* Drops the value. A stackless coroutine that has begun goes on alone. */
    ~future()
    {
        if (state_ != nullptr) {
            state_->its->release(state_);
        }
    }
    bool valid() const noexcept
    {
        return state_ != nullptr;
    }
    /* Whether get() would not wait. */
    bool done() const
    {
        return get_state()->has_ended();
    }
    void wait()
    {
        detail::check(begun()->wait(), "aco::future::wait");
    }
    /* Wait for so long; return whether the value is there. */
    template <class R, class P> [[nodiscard]] bool wait_for(std::chrono::duration<R, P> d)
    {
        return detail::is_in_time(detail::ns_of(d), "aco::future::wait_for",
                                  [this] { return begun()->wait(); });
    }
    template <class C, class D> [[nodiscard]] bool wait_until(std::chrono::time_point<C, D> t)
    {
        return detail::is_in_time(detail::ns_until(t), "aco::future::wait_until",
                                  [this] { return begun()->wait(); });
    }
    /* Waits, and returns the value or throws the exception. May be called once, and again if the
     * wait has failed. */
    T get()
    {
        detail::check(begun()->wait(), "aco::future::get");
        return state_->result.take();
    }

    /*
     * A stackless coroutine begins when it is first waited for, or by start(), on the caller's
     * stack. The others are called on its thread. From cancel() on, each of its waits by co_await
     * fails with ECANCELED, the present one too, and so do those of the coroutines that it awaits;
     * with within(), they fail with ETIMEDOUT once `d` has passed. It ends itself. A wait for an
     * awaitable that is not aco's is not ended.
     */
    void start()
    {
        begun();
    }
    void cancel()
    {
        its("aco::future::cancel")->cancel(state_);
    }
    template <class R, class P> future &within(std::chrono::duration<R, P> d) &
    {
        its("aco::future::within")->limit(state_, detail::ns_from_now(d));
        return *this;
    }
    template <class R, class P> future &&within(std::chrono::duration<R, P> d) &&
    {
        return std::move(within(d));
    }

    /* Private. */
    explicit future(state *s) noexcept : state_(s)
    {
    }
    state *get_state() const
    {
        if (state_ == nullptr) {
            aco_i_fail("aco::future", aco_get_co(), "it was moved from: use the one it moved to");
        }
        return state_;
    }

private:
    state *begun()
    {
        if (!get_state()->is_promised()) {
            state_->its->begin(state_);
        }
        return state_;
    }
    const typename state::operations *its(const char *call) const
    {
        if (get_state()->is_promised()) {
            aco_i_fail(call, aco_get_co(), "it is a promise's: end what is to keep that");
        }
        return state_->its;
    }
};

/*
 * As std::promise: sets the value or exception of its future, once, from any task or thread.
 * Setting it again, and a second future, throw EALREADY. If it is destroyed before it was set, the
 * future throws EPIPE.
 */
template <class T> class promise {
    using state = detail::promised_state<T>;
    state *state_;

    state *valid() const
    {
        if (state_ == nullptr) {
            aco_i_fail("aco::promise", aco_get_co(), "it was moved from: use the one it moved to");
        }
        return state_;
    }
    static void claim(std::atomic<bool> &flag, const char *call)
    {
        if (flag.exchange(true)) {
            detail::fail(call, EALREADY);
        }
    }
    /* Calls `set()`; if that throws, nothing is set. */
    template <class F> void set(F &&set, const char *call)
    {
        struct undo {
            state *failed;
            ~undo()
            {
                if (failed != nullptr) {
                    failed->is_set = false;
                }
            }
        };
        claim(valid()->is_set, call);
        undo guard{state_};
        set();
        std::exchange(guard.failed, nullptr)->end_and_wake();
    }

public:
    promise() : state_(new state)
    {
    }
    promise(promise &&other) noexcept : state_(std::exchange(other.state_, nullptr))
    {
    }
    promise &operator=(promise &&other) noexcept
    {
        std::swap(state_, other.state_);
        return *this;
    }
    ~promise()
    {
        if (state_ == nullptr) {
            return;
        }
        if (!state_->is_set.exchange(true) && state_->has_future) {
#ifdef __cpp_exceptions
            state_->result.set_thrown(std::make_exception_ptr(std::system_error(
                EPIPE, std::generic_category(), "aco::promise was destroyed without a value")));
            state_->end_and_wake();
#else
            aco_i_fail("the destructor of aco::promise", aco_get_co(),
                       "its future would have no value: set one before");
#endif
        }
        state::leave(state_);
    }
    [[nodiscard]] future<T> get_future()
    {
        claim(valid()->has_future, "aco::promise::get_future");
        state_->ct_owners.fetch_add(1, std::memory_order_relaxed);
        return future<T>(state_);
    }
    /* set_value(value), or set_value() if T is void. */
    template <class... A,
              class = std::enable_if_t<std::is_constructible_v<detail::held_of<T>, A...> &&
                                       sizeof...(A) == (std::is_void_v<T> ? 0 : 1)>>
    void set_value(A &&...value)
    {
        set([&] { state_->result.set_value(std::forward<A>(value)...); },
            "aco::promise::set_value");
    }
    void set_exception(std::exception_ptr thrown)
    {
        set([&] { state_->result.set_thrown(std::move(thrown)); }, "aco::promise::set_exception");
    }
};

/*
 * A task that several may join, before its end and after it; copies are of the same task. The last
 * copy cancels and joins the task, as the destructor of aco::task does.
 */
template <class T> class shared_task {
    struct state : aco_i_watch_t {
        task<T> first;
        aco_wait_group_t left = {};
        std::atomic<bool> was_joined{false};

        explicit state(task<T> &&t) : aco_i_watch_t{nullptr, on_end}, first(std::move(t))
        {
            aco_wait_group_add(&left, 1);
            if (!aco_i_watch(first.valid("aco::shared_task"), this)) {
                on_end(this);
            }
        }
        state(const state &) = delete;
        state &operator=(const state &) = delete;
        ~state()
        {
            aco_i_unwatch(first.handle(), this);
            if (was_joined) {
                first.discard();
            }
        }
        static void on_end(aco_i_watch_t *watch)
        {
            aco_wait_group_done(&static_cast<state *>(watch)->left);
        }
    };
    std::shared_ptr<state> state_;

    task<T> &valid(const char *call) const
    {
        if (state_ == nullptr) {
            aco_i_fail(call, aco_get_co(), "it has no task: make it from one");
        }
        return state_->first;
    }

public:
    using value_type = T;

    shared_task() = default;
    shared_task(task<T> &&t) : state_(std::make_shared<state>(std::move(t)))
    {
    }
    /* Waits for its end. Returns a reference to what its callable returned, for as long as there is
     * a copy; or throws what that has thrown. */
    decltype(auto) join() const
    {
        valid("aco::shared_task::join");
        detail::check(aco_wait_group_wait(&state_->left), "aco::shared_task::join");
        state_->was_joined = true;
        return state_->first.peek();
    }
    /* Starts a task that calls `g` with what join() returns, and throws what that throws. */
    template <class G> [[nodiscard]] auto then(G &&g) const
    {
        valid("aco::shared_task::then");
        return spawn([self = *this, next = std::forward<G>(g)]() mutable -> decltype(auto) {
            if constexpr (std::is_void_v<T>) {
                self.join();
                return std::invoke(std::move(next));
            } else {
                return std::invoke(std::move(next), self.join());
            }
        });
    }
    void cancel() const
    {
        valid("aco::shared_task::cancel").cancel();
    }
    bool done() const
    {
        return valid("aco::shared_task::done").done();
    }
    std::uint64_t id() const
    {
        return valid("aco::shared_task::id").id();
    }
    const char *name() const
    {
        return valid("aco::shared_task::name").name();
    }
    bool joinable() const noexcept
    {
        return state_ != nullptr;
    }
};

ACO_I_END
} // namespace aco

#endif
