// SPDX-License-Identifier: Apache-2.0
/*
 * aco::stop_token, stop_source and stop_callback: those of the standard library if it has them, in
 * C++20, or else others with the same members. By them a task sees that it was cancelled, without a
 * wait, and others are called then. Relies on aco_bindings.h.
 *
 *     auto worker = aco::spawn([] {
 *         for (aco::stop_token stop = aco::this_task_stop_token(); !stop.stop_requested();) {
 *             compute();
 *         }
 *     });
 *     worker.cancel();
 *
 * The function of a stop_callback runs in the call that cancels, and must not wait: the destructor
 * of a stop_callback stops a whole thread as long as another one runs it.
 */
#ifndef ACO_STOP_HPP
#define ACO_STOP_HPP

#include "base.hpp"

#include "aco_bindings.h"

#include <optional>
#include <type_traits>
#include <utility>

#if __cplusplus > 201703L && __has_include(<stop_token>)
#include <stop_token>
#endif
#ifndef __cpp_lib_jthread
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#endif

namespace aco {
ACO_I_BEGIN

#ifdef __cpp_lib_jthread
using std::nostopstate;
using std::nostopstate_t;
using std::stop_callback;
using std::stop_source;
using std::stop_token;
#else

namespace detail {

/* A callback in the list of a stop_state. */
struct stop_link {
    stop_link *next = nullptr, *previous = nullptr;
    void (*call)(stop_link *link) noexcept;
};

/* Whether a stop was requested, and what to call then. */
class stop_state {
    std::mutex mutex_;
    std::condition_variable returned_;
    std::atomic<bool> is_requested_{false};
    std::atomic<int> ct_sources_{1};
    stop_link *first_ = nullptr, *running_ = nullptr;
    std::thread::id requester_; /* runs the callbacks */

    void unlink(stop_link *link)
    {
        (link->previous != nullptr ? link->previous->next : first_) = link->next;
        if (link->next != nullptr) {
            link->next->previous = link->previous;
        }
    }

public:
    bool is_requested() const noexcept
    {
        return is_requested_.load(std::memory_order_acquire);
    }
    bool is_possible() const noexcept
    {
        return is_requested() || ct_sources_.load(std::memory_order_acquire) != 0;
    }
    void count_source(int change) noexcept
    {
        ct_sources_.fetch_add(change, std::memory_order_acq_rel);
    }
    bool request()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        if (is_requested_.exchange(true, std::memory_order_acq_rel)) {
            return false;
        }
        requester_ = std::this_thread::get_id();
        while (first_ != nullptr) {
            running_ = first_;
            unlink(running_);
            lock.unlock();
            running_->call(running_); /* which may destroy it */
            lock.lock();
            running_ = nullptr;
            returned_.notify_all();
        }
        return true;
    }
    /* Returns false if `link` will never be called by request(). */
    bool add(stop_link *link)
    {
        std::lock_guard<std::mutex> guard(mutex_);
        if (is_requested() || !is_possible()) {
            return false;
        }
        link->next = first_;
        if (first_ != nullptr) {
            first_->previous = link;
        }
        first_ = link;
        return true;
    }
    /* Waits as long as another thread calls it. */
    void remove(stop_link *link)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        if (link == first_ || link->previous != nullptr) {
            unlink(link);
        } else if (requester_ != std::this_thread::get_id()) {
            returned_.wait(lock, [&] { return running_ != link; });
        }
    }
};

} // namespace detail

struct nostopstate_t {
    explicit nostopstate_t() = default;
};
inline constexpr nostopstate_t nostopstate{};

class stop_source;
template <class F> class stop_callback;

/* As std::stop_token. */
class stop_token {
    friend stop_source;
    template <class F> friend class stop_callback;
    std::shared_ptr<detail::stop_state> state_;

    explicit stop_token(std::shared_ptr<detail::stop_state> state) : state_(std::move(state))
    {
    }

public:
    stop_token() noexcept = default;

    [[nodiscard]] bool stop_requested() const noexcept
    {
        return state_ != nullptr && state_->is_requested();
    }
    [[nodiscard]] bool stop_possible() const noexcept
    {
        return state_ != nullptr && state_->is_possible();
    }
    void swap(stop_token &other) noexcept
    {
        state_.swap(other.state_);
    }
    friend void swap(stop_token &a, stop_token &b) noexcept
    {
        a.swap(b);
    }
    [[nodiscard]] friend bool operator==(const stop_token &a, const stop_token &b) noexcept
    {
        return a.state_ == b.state_;
    }
    [[nodiscard]] friend bool operator!=(const stop_token &a, const stop_token &b) noexcept
    {
        return a.state_ != b.state_;
    }
};

/* As std::stop_source. */
class stop_source {
    std::shared_ptr<detail::stop_state> state_;

    void count(int change) noexcept
    {
        if (state_ != nullptr) {
            state_->count_source(change);
        }
    }

public:
    stop_source() : state_(std::make_shared<detail::stop_state>())
    {
    }
    explicit stop_source(nostopstate_t) noexcept
    {
    }
    stop_source(const stop_source &other) noexcept : state_(other.state_)
    {
        count(1);
    }
    stop_source(stop_source &&other) noexcept = default;
    stop_source &operator=(stop_source other) noexcept
    {
        swap(other);
        return *this;
    }
    ~stop_source()
    {
        count(-1);
    }
    [[nodiscard]] stop_token get_token() const noexcept
    {
        return stop_token(state_);
    }
    /* Calls the callbacks, and returns true, unless a stop was requested before. */
    bool request_stop() const
    {
        return state_ != nullptr && state_->request();
    }
    [[nodiscard]] bool stop_requested() const noexcept
    {
        return get_token().stop_requested();
    }
    [[nodiscard]] bool stop_possible() const noexcept
    {
        return state_ != nullptr;
    }
    void swap(stop_source &other) noexcept
    {
        state_.swap(other.state_);
    }
    friend void swap(stop_source &a, stop_source &b) noexcept
    {
        a.swap(b);
    }
    [[nodiscard]] friend bool operator==(const stop_source &a, const stop_source &b) noexcept
    {
        return a.state_ == b.state_;
    }
    [[nodiscard]] friend bool operator!=(const stop_source &a, const stop_source &b) noexcept
    {
        return a.state_ != b.state_;
    }
};

/* As std::stop_callback: calls `f()` when a stop is requested, or at once if it was. */
template <class F> class stop_callback : detail::stop_link {
    std::shared_ptr<detail::stop_state> state_; /* nullptr: it is in no list */
    F f_;

    void begin(const stop_token &token)
    {
        call = [](detail::stop_link *link) noexcept { static_cast<stop_callback *>(link)->f_(); };
        if (token.state_ != nullptr && token.state_->add(this)) {
            state_ = token.state_;
        } else if (token.stop_requested()) {
            f_();
        }
    }

public:
    using callback_type = F;

    template <class G, class = std::enable_if_t<std::is_constructible_v<F, G>>>
    explicit stop_callback(const stop_token &token,
                           G &&f) noexcept(std::is_nothrow_constructible_v<F, G>)
        : f_(std::forward<G>(f))
    {
        begin(token);
    }
    stop_callback(const stop_callback &) = delete;
    stop_callback &operator=(const stop_callback &) = delete;
    ~stop_callback()
    {
        if (state_ != nullptr) {
            state_->remove(this);
        }
    }
};
template <class F> stop_callback(stop_token, F) -> stop_callback<F>;

#endif

namespace detail {

/* The stop_source of a task, from its first use until the task is freed: a stop is requested when
 * the task is cancelled, and the other way round. A template, as files in C++17 and C++20 of one
 * program have other sources. */
template <class Source> class task_stop : aco_i_stop_t {
    struct canceller {
        aco_task_t *task;
        void operator()() const noexcept
        {
            aco_task_cancel(task);
        }
    };
    Source source_;
    std::optional<stop_callback<canceller>> cancels_;

    explicit task_stop(aco_task_t *task) : aco_i_stop_t{nullptr, nullptr, on_cancel, on_free, 0, 0}
    {
        cancels_.emplace(source_.get_token(), canceller{task});
    }
    static void on_cancel(aco_i_stop_t *stop)
    {
        static_cast<task_stop *>(stop)->source_.request_stop();
        leave(stop);
    }
    static void on_free(aco_i_stop_t *stop)
    {
        static_cast<task_stop *>(stop)->cancels_.reset();
        leave(stop);
    }
    static void leave(aco_i_stop_t *stop)
    {
        if (aco_i_leave_stop(stop)) {
            delete static_cast<task_stop *>(stop);
        }
    }

public:
    /* A stop is requested already if the task was cancelled. */
    static Source &of(aco_task_t *task)
    {
        aco_i_stop_t *found = aco_i_stop_of(task, on_cancel, nullptr);
        if (found == nullptr) {
            task_stop *made = new task_stop(task);
            found = aco_i_stop_of(task, on_cancel, made);
            if (found != made) {
                delete made;
            }
        }
        Source &source = static_cast<task_stop *>(found)->source_;
        if (aco_i_was_cancelled(task)) {
            source.request_stop();
        }
        return source;
    }
};

} // namespace detail

/* The token of the running task, by which it sees that it was cancelled. Outside of tasks, one for
 * which no stop is possible. A template, so that its symbol has the type that it returns. */
template <class Token = stop_token> [[nodiscard]] Token this_task_stop_token()
{
    aco_task_t *self = aco_self();
    return self == nullptr ? Token() : detail::task_stop<stop_source>::of(self).get_token();
}

ACO_I_END
} // namespace aco

#endif
