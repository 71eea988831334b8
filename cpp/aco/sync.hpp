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
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

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
        return wait_until(lock, detail::point_from_now(d), std::move(is_so));
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

namespace detail {
/* Unlocks a lock as long as it lives. Ends the program if it can't lock again, as in the standard.
 */
template <class L> struct unlocked {
    L &lock;
    explicit unlocked(L &l) : lock(l)
    {
        lock.unlock();
    }
    unlocked(const unlocked &) = delete;
    unlocked &operator=(const unlocked &) = delete;
    ~unlocked()
    {
        shielded([this] { lock.lock(); });
    }
};
} // namespace detail

/* As std::condition_variable_any: waits with any lock that has lock() and unlock(), also until a
 * stop is requested. A wait that throws has locked the lock again. */
class condition_variable_any {
    struct state {
        mutex guard;
        condition_variable changed;
    };
    std::shared_ptr<state> state_ = std::make_shared<state>(); /* also of those who wake up */

    /* Calls `wait(changed, guard)` with `lock` unlocked. No notification of one who has seen it
     * unlocked comes before the wait, as `guard` is locked. */
    template <class L, class F> static auto wait_by(std::shared_ptr<state> kept, L &lock, F wait)
    {
        std::optional<detail::unlocked<L>> outside;
        std::unique_lock<mutex> guard(kept->guard);
        outside.emplace(lock);
        return wait(kept->changed, guard);
    }
    /* A stop_callback may destroy the object. */
    static void notify_all_of(std::shared_ptr<state> kept) noexcept
    {
        shielded([&] {
            std::lock_guard<mutex> guard(kept->guard);
            kept->changed.notify_all();
        });
    }

public:
    condition_variable_any() = default;
    condition_variable_any(const condition_variable_any &) = delete;
    condition_variable_any &operator=(const condition_variable_any &) = delete;

    void notify_one() noexcept
    {
        shielded([this] {
            std::lock_guard<mutex> guard(state_->guard);
            state_->changed.notify_one();
        });
    }
    void notify_all() noexcept
    {
        notify_all_of(state_);
    }
    template <class L> void wait(L &lock)
    {
        wait_by(state_, lock, [](auto &changed, auto &guard) { changed.wait(guard); });
    }
    template <class L, class P> void wait(L &lock, P is_so)
    {
        while (!is_so()) {
            wait(lock);
        }
    }
    template <class L, class R, class P>
    std::cv_status wait_for(L &lock, std::chrono::duration<R, P> d)
    {
        return wait_by(state_, lock,
                       [d](auto &changed, auto &guard) { return changed.wait_for(guard, d); });
    }
    template <class L, class R, class P, class Q>
    bool wait_for(L &lock, std::chrono::duration<R, P> d, Q is_so)
    {
        return wait_until(lock, detail::point_from_now(d), std::move(is_so));
    }
    template <class L, class C, class D>
    std::cv_status wait_until(L &lock, std::chrono::time_point<C, D> t)
    {
        return wait_by(state_, lock,
                       [t](auto &changed, auto &guard) { return changed.wait_until(guard, t); });
    }
    template <class L, class C, class D, class Q>
    bool wait_until(L &lock, std::chrono::time_point<C, D> t, Q is_so)
    {
        while (!is_so()) {
            if (wait_until(lock, t) == std::cv_status::timeout) {
                return is_so();
            }
        }
        return true;
    }

    /* These end as well, and return is_so(), once a stop is requested, also that of the caller by
     * cancelling it. */
    template <class L, class P> bool wait(L &lock, stop_token stop, P is_so)
    {
        return wait_stoppable(lock, stop, is_so, [](auto &changed, auto &guard) {
            changed.wait(guard);
            return std::cv_status::no_timeout;
        });
    }
    template <class L, class R, class P, class Q>
    bool wait_for(L &lock, stop_token stop, std::chrono::duration<R, P> d, Q is_so)
    {
        return wait_until(lock, std::move(stop), detail::point_from_now(d), std::move(is_so));
    }
    template <class L, class C, class D, class Q>
    bool wait_until(L &lock, stop_token stop, std::chrono::time_point<C, D> t, Q is_so)
    {
        return wait_stoppable(lock, stop, is_so, [t](auto &changed, auto &guard) {
            return changed.wait_until(guard, t);
        });
    }

private:
    template <class L, class P, class F>
    bool wait_stoppable(L &lock, const stop_token &stop, P &is_so, F wait)
    {
        auto wake = [kept = state_] { notify_all_of(kept); };
        stop_callback<decltype(wake)> on_stop(stop, wake);
        auto unless_stopped = [&](auto &changed, auto &guard) {
            return stop.stop_requested() ? std::cv_status::timeout : wait(changed, guard);
        };
        while (!is_so()) {
            if (wait_once(lock, stop, unless_stopped) == std::cv_status::timeout) {
                return is_so();
            }
        }
        return true;
    }
    /* Cancelling the caller ends this by a timeout if it is what `stop` tells. */
    template <class L, class F>
    std::cv_status wait_once(L &lock, [[maybe_unused]] const stop_token &stop, F &wait)
    {
        ACO_I_TRY_TASK
        {
            return wait_by(state_, lock, wait);
        }
#ifdef __cpp_exceptions
        catch (const std::system_error &error)
        {
            if (!detail::is_cancellation(error, aco_self()) || !is_stopped_too(stop)) {
                throw;
            }
        }
#endif
        return std::cv_status::timeout;
    }
    /* The running task was cancelled: perhaps its token is not told yet. */
    static bool is_stopped_too(const stop_token &stop)
    {
        return stop.stop_requested() || stop == this_task_stop_token();
    }
};

/* As std::counting_semaphore. A number that it can't hold is misuse, and aborts. */
template <std::ptrdiff_t least_max = PTRDIFF_MAX> class counting_semaphore {
    static_assert(least_max >= 0, "a semaphore holds no negative number");
    aco_semaphore_t semaphore_;

    bool try_acquire_for_ns(std::int64_t ns)
    {
        return detail::is_in_time(ns, "aco::semaphore::try_acquire_for",
                                  [this] { return aco_semaphore_acquire(&semaphore_); });
    }
    static void need_between(std::ptrdiff_t ct, std::ptrdiff_t most, const char *call)
    {
        if (ct < 0 || ct > most) {
            aco_i_fail(call, aco_get_co(), "the number is negative, or more than max() allows");
        }
    }

public:
    explicit counting_semaphore(std::ptrdiff_t ct)
    {
        need_between(ct, max(), "aco::semaphore");
        aco_semaphore_init(&semaphore_, static_cast<std::size_t>(ct));
    }
    static constexpr std::ptrdiff_t max() noexcept
    {
        return least_max;
    }
    counting_semaphore(const counting_semaphore &) = delete;
    counting_semaphore &operator=(const counting_semaphore &) = delete;

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
        auto present = static_cast<std::ptrdiff_t>(aco_i_semaphore_ct(&semaphore_));
        need_between(ct, max() - present, "aco::semaphore::release");
        while (ct-- > 0) {
            aco_semaphore_release(&semaphore_);
        }
    }
};

using semaphore = counting_semaphore<>;
using binary_semaphore = counting_semaphore<1>;

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

namespace detail {

/* The values that a task has of task_locals, by the place of each. All use one key. */
struct locals {
    struct value {
        std::uint64_t id = 0; /* of its task_local; another one may have the place now */
        std::shared_ptr<void> it{};
    };
    std::vector<value> values;

    /* Ends the values one by one, as their destructors may use the others. */
    static void end(void *mine)
    {
        std::unique_ptr<locals> ended(static_cast<locals *>(mine));
        aco_setspecific(key(), mine);
        for (std::size_t i = 0; i < ended->values.size(); i++) {
            value last = std::exchange(ended->values[i], {});
        }
        aco_setspecific(key(), nullptr);
    }
    static aco_key_t key()
    {
        static const aco_key_t made = [] {
            aco_key_t k;
            check(aco_key_create(&k, end), "aco::task_local");
            return k;
        }();
        return made;
    }
    /* The values of the running task. Throws EPERM outside of tasks. */
    static locals &mine()
    {
        void *found = aco_getspecific(key());
        if (found != nullptr) {
            return *static_cast<locals *>(found);
        }
        auto made = std::make_unique<locals>();
        check(aco_setspecific(key(), made.get()), "aco::task_local::get");
        return *made.release();
    }
};

/* A place that a task_local has as long as it exists. */
class local_place {
    static inline std::mutex mutex_;
    static inline std::vector<bool> is_used_;
    static inline std::uint64_t last_id_ = 0;

public:
    std::size_t index = 0;
    std::uint64_t id;

    local_place()
    {
        std::lock_guard<std::mutex> guard(mutex_);
        while (index < is_used_.size() && is_used_[index]) {
            index++;
        }
        if (index == is_used_.size()) {
            is_used_.push_back(false);
        }
        is_used_[index] = true;
        id = ++last_id_;
    }
    local_place(const local_place &) = delete;
    local_place &operator=(const local_place &) = delete;
    ~local_place()
    {
        std::lock_guard<std::mutex> guard(mutex_);
        is_used_[index] = false;
    }
};

} // namespace detail

/*
 * A variable with a value for each task, made when the task first uses it: by `T()`, or by the
 * callable given. The value is destroyed when the task ends; if the variable is destroyed before,
 * then or when the task uses a newer one. A process can have any number of such variables.
 */
template <class T> class task_local {
    detail::local_place place_;
    T (*make_)();

    static T make_default()
    {
        return T();
    }

public:
    explicit task_local(T (*make)() = make_default) : make_(make)
    {
    }
    task_local(const task_local &) = delete;
    task_local &operator=(const task_local &) = delete;

    /* The value of the running task. Throws EPERM outside of tasks. */
    T &get()
    {
        auto &values = detail::locals::mine().values;
        if (place_.index < values.size() && values[place_.index].id == place_.id) {
            return *static_cast<T *>(values[place_.index].it.get());
        }
        std::shared_ptr<T> made(new T(make_())); /* which may use others, and wait */
        values.resize(std::max(values.size(), place_.index + 1));
        auto old = std::exchange(values[place_.index], {place_.id, made});
        return *made;
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
