// SPDX-License-Identifier: Apache-2.0
/*
 * Mutexes and similar, and task-local values. Their members have the names of the standard library,
 * so std::unique_lock, std::scoped_lock, std::shared_lock and std::lock_guard work with them. Tasks
 * of different threads may share them, and threads that run no task may use them. Waits throw
 * std::system_error. Relies on aco_runtime.h.
 */
#ifndef ACO_SYNC_HPP
#define ACO_SYNC_HPP

#include "task.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace aco {
ACO_I_BEGIN

/* As std::timed_mutex. Locking throws EDEADLK if the caller holds the mutex. Unlocking aborts if
 * the caller does not hold it. */
class mutex {
    aco_mutex_t mutex_ = {};

    bool try_lock_for_ns(std::int64_t ns)
    {
        return detail::is_in_time(ns, "aco::mutex::try_lock_for",
                                  [this] { return aco_mutex_lock(&mutex_); });
    }

public:
    using native_handle_type = aco_mutex_t *;

    mutex() = default;
    mutex(const mutex &) = delete;
    mutex &operator=(const mutex &) = delete;

    void lock()
    {
        detail::check(aco_mutex_lock(&mutex_), "aco::mutex::lock");
    }
    [[nodiscard]] bool try_lock() noexcept
    {
        return aco_mutex_try_lock(&mutex_) == 0;
    }
    template <class R, class P> [[nodiscard]] bool try_lock_for(std::chrono::duration<R, P> d)
    {
        return try_lock_for_ns(detail::ns_of(d));
    }
    template <class C, class D> [[nodiscard]] bool try_lock_until(std::chrono::time_point<C, D> t)
    {
        return try_lock_for_ns(detail::ns_until(t));
    }
    void unlock() noexcept
    {
        aco_mutex_unlock(&mutex_);
    }
    native_handle_type native_handle() noexcept
    {
        return &mutex_;
    }
};

using timed_mutex = mutex;

/* As std::recursive_timed_mutex: its owner, a task or thread, may lock it again. */
class recursive_mutex {
    mutex mutex_;
    std::atomic<const void *> owner_{nullptr};
    std::size_t ct_ = 0; /* the owner's */

    static const void *self() noexcept
    {
        static thread_local char thread;
        const aco_task_t *task = aco_self();
        return task != nullptr ? static_cast<const void *>(task) : &thread;
    }
    bool take(bool is_locked) noexcept
    {
        if (is_locked) {
            owner_.store(self(), std::memory_order_relaxed);
            ct_ = 1;
        }
        return is_locked;
    }
    bool lock_again() noexcept
    {
        bool is_mine = owner_.load(std::memory_order_relaxed) == self();
        ct_ += is_mine;
        return is_mine;
    }

public:
    recursive_mutex() = default;
    recursive_mutex(const recursive_mutex &) = delete;
    recursive_mutex &operator=(const recursive_mutex &) = delete;

    void lock()
    {
        if (!lock_again()) {
            mutex_.lock();
            take(true);
        }
    }
    [[nodiscard]] bool try_lock() noexcept
    {
        return lock_again() || take(mutex_.try_lock());
    }
    template <class R, class P> [[nodiscard]] bool try_lock_for(std::chrono::duration<R, P> d)
    {
        return lock_again() || take(mutex_.try_lock_for(d));
    }
    template <class C, class D> [[nodiscard]] bool try_lock_until(std::chrono::time_point<C, D> t)
    {
        return lock_again() || take(mutex_.try_lock_until(t));
    }
    /* Aborts if the caller does not hold it. */
    void unlock() noexcept
    {
        if (owner_.load(std::memory_order_relaxed) != self()) {
            aco_i_fail("aco::recursive_mutex::unlock", aco_get_co(),
                       "the caller does not hold it: only its owner may unlock it");
        }
        if (--ct_ == 0) {
            owner_.store(nullptr, std::memory_order_relaxed);
            mutex_.unlock();
        }
    }
};
using recursive_timed_mutex = recursive_mutex;

/* As std::shared_timed_mutex. A reader waits behind waiting writers. */
class shared_mutex {
    aco_rwlock_t rwlock_ = {};

    bool lock_for_ns(std::int64_t ns)
    {
        return detail::is_in_time(ns, "aco::shared_mutex::try_lock_for",
                                  [this] { return aco_rwlock_write_lock(&rwlock_); });
    }
    bool lock_shared_for_ns(std::int64_t ns)
    {
        return detail::is_in_time(ns, "aco::shared_mutex::try_lock_shared_for",
                                  [this] { return aco_rwlock_read_lock(&rwlock_); });
    }

public:
    using native_handle_type = aco_rwlock_t *;

    shared_mutex() = default;
    shared_mutex(const shared_mutex &) = delete;
    shared_mutex &operator=(const shared_mutex &) = delete;

    void lock()
    {
        detail::check(aco_rwlock_write_lock(&rwlock_), "aco::shared_mutex::lock");
    }
    [[nodiscard]] bool try_lock() noexcept
    {
        return aco_rwlock_try_write_lock(&rwlock_) == 0;
    }
    void unlock() noexcept
    {
        aco_rwlock_unlock(&rwlock_);
    }
    void lock_shared()
    {
        detail::check(aco_rwlock_read_lock(&rwlock_), "aco::shared_mutex::lock_shared");
    }
    [[nodiscard]] bool try_lock_shared() noexcept
    {
        return aco_rwlock_try_read_lock(&rwlock_) == 0;
    }
    template <class R, class P> [[nodiscard]] bool try_lock_for(std::chrono::duration<R, P> d)
    {
        return lock_for_ns(detail::ns_of(d));
    }
    template <class C, class D> [[nodiscard]] bool try_lock_until(std::chrono::time_point<C, D> t)
    {
        return lock_for_ns(detail::ns_until(t));
    }
    template <class R, class P>
    [[nodiscard]] bool try_lock_shared_for(std::chrono::duration<R, P> d)
    {
        return lock_shared_for_ns(detail::ns_of(d));
    }
    template <class C, class D>
    [[nodiscard]] bool try_lock_shared_until(std::chrono::time_point<C, D> t)
    {
        return lock_shared_for_ns(detail::ns_until(t));
    }
    void unlock_shared() noexcept
    {
        aco_rwlock_unlock(&rwlock_);
    }
    native_handle_type native_handle() noexcept
    {
        return &rwlock_;
    }
};

using shared_timed_mutex = shared_mutex;

/* As std::condition_variable, but without spurious wake-ups. A wait that throws has locked the
 * mutex again. */
class condition_variable {
    aco_cond_t cond_ = {};

    std::cv_status wait_for_ns(std::unique_lock<mutex> &lock, std::int64_t ns)
    {
        bool is_notified = detail::is_in_time(ns, "aco::condition_variable::wait_for", [&] {
            return aco_cond_wait(&cond_, lock.mutex()->native_handle());
        });
        return is_notified ? std::cv_status::no_timeout : std::cv_status::timeout;
    }

public:
    using native_handle_type = aco_cond_t *;

    condition_variable() = default;
    condition_variable(const condition_variable &) = delete;
    condition_variable &operator=(const condition_variable &) = delete;

    void notify_one() noexcept
    {
        aco_cond_signal(&cond_);
    }
    void notify_all() noexcept
    {
        aco_cond_broadcast(&cond_);
    }
    void wait(std::unique_lock<mutex> &lock)
    {
        detail::check(aco_cond_wait(&cond_, lock.mutex()->native_handle()),
                      "aco::condition_variable::wait");
    }
    template <class P> void wait(std::unique_lock<mutex> &lock, P is_so)
    {
        while (!is_so()) {
            wait(lock);
        }
    }
    template <class R, class P>
    std::cv_status wait_for(std::unique_lock<mutex> &lock, std::chrono::duration<R, P> d)
    {
        return wait_for_ns(lock, detail::ns_of(d));
    }
    template <class R, class P, class Q>
    bool wait_for(std::unique_lock<mutex> &lock, std::chrono::duration<R, P> d, Q is_so)
    {
        using ns = std::chrono::nanoseconds;
        using point = std::chrono::time_point<std::chrono::steady_clock, ns>;
        return wait_until(lock, point(ns(detail::ns_from_now(d))), std::move(is_so));
    }
    template <class C, class D>
    std::cv_status wait_until(std::unique_lock<mutex> &lock, std::chrono::time_point<C, D> t)
    {
        return wait_for_ns(lock, detail::ns_until(t));
    }
    template <class C, class D, class Q>
    bool wait_until(std::unique_lock<mutex> &lock, std::chrono::time_point<C, D> t, Q is_so)
    {
        while (!is_so()) {
            if (wait_until(lock, t) == std::cv_status::timeout) {
                return is_so();
            }
        }
        return true;
    }
    native_handle_type native_handle() noexcept
    {
        return &cond_;
    }
};

/* As std::counting_semaphore. */
class semaphore {
    aco_semaphore_t semaphore_;

    bool try_acquire_for_ns(std::int64_t ns)
    {
        return detail::is_in_time(ns, "aco::semaphore::try_acquire_for",
                                  [this] { return aco_semaphore_acquire(&semaphore_); });
    }

public:
    explicit semaphore(std::ptrdiff_t ct)
    {
        aco_semaphore_init(&semaphore_, static_cast<std::size_t>(ct));
    }
    static constexpr std::ptrdiff_t max() noexcept
    {
        return PTRDIFF_MAX;
    }
    semaphore(const semaphore &) = delete;
    semaphore &operator=(const semaphore &) = delete;

    void acquire()
    {
        detail::check(aco_semaphore_acquire(&semaphore_), "aco::semaphore::acquire");
    }
    [[nodiscard]] bool try_acquire() noexcept
    {
        return aco_semaphore_try_acquire(&semaphore_) == 0;
    }
    template <class R, class P> [[nodiscard]] bool try_acquire_for(std::chrono::duration<R, P> d)
    {
        return try_acquire_for_ns(detail::ns_of(d));
    }
    template <class C, class D>
    [[nodiscard]] bool try_acquire_until(std::chrono::time_point<C, D> t)
    {
        return try_acquire_for_ns(detail::ns_until(t));
    }
    void release(std::ptrdiff_t ct = 1)
    {
        while (ct-- > 0) {
            detail::check(aco_semaphore_release(&semaphore_), "aco::semaphore::release");
        }
    }
};

/* As std::latch. */
class latch {
    aco_wait_group_t left_ = {};
    std::atomic<std::ptrdiff_t> ct_;

public:
    explicit latch(std::ptrdiff_t ct) : ct_(ct)
    {
        aco_wait_group_add(&left_, ct);
    }
    static constexpr std::ptrdiff_t max() noexcept
    {
        return PTRDIFF_MAX;
    }
    latch(const latch &) = delete;
    latch &operator=(const latch &) = delete;

    void count_down(std::ptrdiff_t ct = 1)
    {
        ct_.fetch_sub(ct, std::memory_order_release);
        aco_wait_group_add(&left_, -static_cast<std::int64_t>(ct));
    }
    [[nodiscard]] bool try_wait() const noexcept
    {
        return ct_.load(std::memory_order_acquire) == 0;
    }
    void wait()
    {
        detail::check(aco_wait_group_wait(&left_), "aco::latch::wait");
    }
    void arrive_and_wait(std::ptrdiff_t ct = 1)
    {
        count_down(ct);
        wait();
    }
};

namespace detail {
struct no_completion {
    void operator()() noexcept
    {
    }
};
} // namespace detail

/* As std::barrier, but a wait may end early: then throws, and the caller has arrived all the same.
 * `F` must not throw. */
template <class F = detail::no_completion> class barrier {
    mutex mutex_;
    condition_variable passed_;
    std::uint64_t phase_ = 0;
    std::ptrdiff_t expected_, left_;
    F on_completion_;

    /* The lock is held. */
    void arrive_locked(std::ptrdiff_t ct)
    {
        if (ct < 0 || ct > left_) {
            aco_i_fail("aco::barrier::arrive", aco_get_co(),
                       "more have arrived than it expects: set their number when you make it");
        }
        left_ -= ct;
        if (left_ == 0) {
            on_completion_();
            left_ = expected_;
            phase_++;
            passed_.notify_all();
        }
    }
    void wait_locked(std::unique_lock<mutex> &lock, std::uint64_t phase)
    {
        passed_.wait(lock, [&] { return phase_ != phase; });
    }
    /* Locks whatever the deadline: this is no wait for others to arrive. */
    std::unique_lock<mutex> lock()
    {
        return shielded([this] { return std::unique_lock<mutex>(mutex_); });
    }

public:
    class arrival_token {
        friend barrier;
        std::uint64_t phase_;
        explicit arrival_token(std::uint64_t phase) : phase_(phase)
        {
        }

    public:
        arrival_token(arrival_token &&) = default;
        arrival_token &operator=(arrival_token &&) = default;
    };

    explicit barrier(std::ptrdiff_t expected, F f = F())
        : expected_(expected), left_(expected), on_completion_(std::move(f))
    {
    }
    static constexpr std::ptrdiff_t max() noexcept
    {
        return PTRDIFF_MAX;
    }
    barrier(const barrier &) = delete;
    barrier &operator=(const barrier &) = delete;

    [[nodiscard]] arrival_token arrive(std::ptrdiff_t ct = 1)
    {
        std::unique_lock<mutex> held = lock();
        arrival_token token(phase_);
        arrive_locked(ct);
        return token;
    }
    void wait(arrival_token &&token)
    {
        std::unique_lock<mutex> held = lock();
        wait_locked(held, token.phase_);
    }
    void arrive_and_wait()
    {
        wait(arrive());
    }
    /* Arrives, and is expected no more. */
    void arrive_and_drop()
    {
        std::unique_lock<mutex> held = lock();
        expected_--;
        arrive_locked(1);
    }
};

/* As std::once_flag, for aco::call_once(). */
class once_flag {
    mutex mutex_;
    std::atomic<bool> is_done_{false};

    template <class F, class... A> friend void call_once(once_flag &flag, F &&f, A &&...args);

public:
    once_flag() = default;
};

/* Calls `f(args...)` unless a call with this flag has returned; all others wait until it does. */
template <class F, class... A> void call_once(once_flag &flag, F &&f, A &&...args)
{
    if (flag.is_done_.load(std::memory_order_acquire)) {
        return;
    }
    std::lock_guard<mutex> guard(flag.mutex_);
    if (!flag.is_done_.load(std::memory_order_relaxed)) {
        std::invoke(std::forward<F>(f), std::forward<A>(args)...);
        flag.is_done_.store(true, std::memory_order_release);
    }
}

/*
 * A variable with a value for each task, made when the task first uses it: by `T()`, or by the
 * callable given. The value is destroyed when the task ends. A process can have 1024 such
 * variables.
 */
template <class T> class task_local {
    aco_key_t key_;
    T (*make_)();

    static T make_default()
    {
        return T();
    }

public:
    explicit task_local(T (*make)() = make_default) : make_(make)
    {
        detail::check(aco_key_create(&key_, [](void *value) { delete static_cast<T *>(value); }),
                      "aco::task_local");
    }
    task_local(const task_local &) = delete;
    task_local &operator=(const task_local &) = delete;

    /* The value of the running task. Throws EPERM outside of tasks. */
    T &get()
    {
        T *value = static_cast<T *>(aco_getspecific(key_));
        if (value == nullptr) {
            value = new T(make_());
            if (aco_setspecific(key_, value) != 0) {
                int error = errno;
                delete value;
                detail::fail("aco::task_local::get", error);
            }
        }
        return *value;
    }
    T &operator*()
    {
        return get();
    }
    T *operator->()
    {
        return &get();
    }
};

ACO_I_END
} // namespace aco

#endif
