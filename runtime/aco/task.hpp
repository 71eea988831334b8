// SPDX-License-Identifier: Apache-2.0
/*
 * aco::run, spawn, task<T>, and time. Relies on aco_runtime.h.
 *
 *     int main()
 *     {
 *         return aco::run([] {
 *             aco::task<int> sum = aco::spawn([] { return 40 + 2; });
 *             return sum.join() - 42;
 *         });
 *     }
 */
#ifndef ACO_TASK_HPP
#define ACO_TASK_HPP

#if __cplusplus < 201703L
#error "aco.hpp needs C++17: compile with -std=c++17 or later"
#endif

#include "aco_bindings.h"

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

namespace aco {

using run_options = aco_run_options_t;
using task_options = aco_task_options_t;

namespace detail {

/* ---- Errors ---- */

/* Throws what errno says about `call`; without exceptions, ends the process. */
[[noreturn]] inline void fail(const char *call, int error = errno)
{
#ifdef __cpp_exceptions
    throw std::system_error(error, std::generic_category(), call);
#else
    std::fprintf(stderr, "aco: %s: %s: without exceptions, use the calls of aco_runtime.h\n", call,
                 std::strerror(error));
    std::abort();
#endif
}

/* For calls that return -1 with errno. */
inline void check(int result, const char *call)
{
    if (__builtin_expect(result < 0, 0)) {
        fail(call);
    }
}

#ifdef __cpp_exceptions
#define ACO_I_TRY_TASK try
#define ACO_I_CATCH_ALL catch (...)
#else
#define ACO_I_TRY_TASK
#define ACO_I_CATCH_ALL if (false)
#endif

/* ---- Results ---- */

/* What a callable returns, as a value: void becomes std::monostate. */
template <class T> using value_of = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

/* The value of a call, or what it has thrown. */
template <class T> class outcome {
    using stored =
        std::conditional_t<std::is_reference_v<T>,
                           std::reference_wrapper<std::remove_reference_t<T>>, value_of<T>>;
    std::optional<stored> value_;
    std::exception_ptr thrown_;

public:
    outcome() = default;

    template <class F, class... A> void set_to(F &&f, A &&...args)
    {
        ACO_I_TRY_TASK
        {
            if constexpr (std::is_void_v<T>) {
                std::invoke(std::forward<F>(f), std::forward<A>(args)...);
                value_.emplace();
            } else {
                value_.emplace(std::invoke(std::forward<F>(f), std::forward<A>(args)...));
            }
        }
        ACO_I_CATCH_ALL
        {
            thrown_ = std::current_exception();
        }
    }
    /* By parts: for those who can't pass a callable. */
    template <class... A> void set_value(A &&...value)
    {
        value_.emplace(std::forward<A>(value)...);
    }
    void set_thrown(std::exception_ptr thrown)
    {
        thrown_ = std::move(thrown);
    }
    T take()
    {
#ifdef __cpp_exceptions
        if (thrown_ != nullptr) {
            std::rethrow_exception(std::move(thrown_));
        }
#endif
        if constexpr (std::is_reference_v<T>) {
            return static_cast<T>(value_->get());
        } else if constexpr (!std::is_void_v<T>) {
            return std::move(*value_);
        }
    }
    value_of<T> take_value()
    {
        if constexpr (std::is_void_v<T>) {
            take();
            return {};
        } else {
            return take();
        }
    }
};

/* ---- What lies in the storage of a task ---- */

template <class T>
inline constexpr bool
    fits = sizeof(T) <= ACO_I_STORAGE_SZ &&
           alignof(T) <= alignof(void *) && std::is_nothrow_move_constructible_v<T>;

/* A T in the storage, or a pointer to it. */
template <class T> struct stored {
    static void put(void *storage, T *from) /* nothrow if it fits */
    {
        if constexpr (fits<T>) {
            ::new (storage) T(std::move(*from));
        } else {
            ::new (storage) T *(from);
        }
    }
    static T &at(void *storage)
    {
        if constexpr (fits<T>) {
            return *std::launder(static_cast<T *>(storage));
        } else {
            return **static_cast<T **>(storage);
        }
    }
    static void destroy(void *storage)
    {
        if constexpr (fits<T>) {
            at(storage).~T();
        } else {
            delete &at(storage);
        }
    }
    static T take(void *storage)
    {
        struct guard {
            void *storage;
            ~guard()
            {
                destroy(storage);
            }
        } taken{storage};
        return std::move(at(storage));
    }
};

/* The function of a task that runs an F in its storage and leaves an outcome there. */
template <class F, class T> void *run_stored(void *storage)
{
    outcome<T> result;
    {
        F f(stored<F>::take(storage));
        aco_i_begin();
        result.set_to(std::move(f));
    }
    void *place = aco_i_finish();
    if (place != nullptr) {
        if constexpr (fits<outcome<T>>) {
            stored<outcome<T>>::put(place, &result);
        } else {
            stored<outcome<T>>::put(place, new outcome<T>(std::move(result)));
        }
    }
    return nullptr;
}

/* Makes a task that runs `f` by `run`; `task` as for aco_go_with(). */
template <class G>
inline void go(const task_options *options, void *(*run)(void *), G &&f, aco_task_t **task,
               const char *call)
{
    using F = std::decay_t<G>;
    if constexpr (fits<F>) {
        F moved(std::forward<G>(f));
        check(
            aco_i_spawn_in(
                options, run,
                [](void *storage, void *from) { stored<F>::put(storage, static_cast<F *>(from)); },
                &moved, task),
            call);
    } else {
        F *moved = new F(std::forward<G>(f));
        auto place = [](void *storage, void *from) {
            stored<F>::put(storage, static_cast<F *>(from));
        };
        if (aco_i_spawn_in(options, run, place, moved, task) != 0) {
            int error = errno;
            delete moved;
            fail(call, error);
        }
    }
}

/* ---- Time ---- */

/* A duration in nanoseconds, as far as these reach. */
template <class R, class P> inline std::int64_t ns_of(std::chrono::duration<R, P> d)
{
    using seconds = std::chrono::duration<double>;
    if (seconds(d).count() > 9.2e9) {
        return INT64_MAX;
    }
    if (seconds(d).count() < 0) {
        return 0;
    }
    return std::chrono::ceil<std::chrono::nanoseconds>(d).count();
}

template <class C, class D> inline std::int64_t ns_until(std::chrono::time_point<C, D> t)
{
    return ns_of(t - C::now());
}

class scope {
    aco_i_scope_t scope_;

public:
    explicit scope(aco_i_scope_t s) : scope_(s)
    {
    }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;
    ~scope()
    {
        aco_i_leave(&scope_);
    }
};

/* Calls `wait()`, which returns -1 with errno, for `d` at most: false if the time is over. */
template <class R, class P, class F>
bool is_in_time(std::chrono::duration<R, P> d, const char *call, F &&wait)
{
    int result;
    {
        scope scope(aco_i_enter_within(ns_of(d)));
        result = wait();
    }
    if (result == 0) {
        return true;
    }
    /* A deadline from outside is one that still counts. */
    if (errno != ETIMEDOUT || aco_deadline() <= aco_now()) {
        fail(call);
    }
    return false;
}

} // namespace detail

/* ==== Tasks ================================================================================== */

template <class T> class task;

/* A task that runs `f()`, as by aco_spawn(); with options, as by aco_go_with(). Nothing is
 * allocated for a callable of up to eight words. Throws if there is no runtime or no memory. */
template <class F> auto spawn(F &&f) -> task<std::invoke_result_t<std::decay_t<F>>>;
template <class F>
auto spawn(const task_options &options, F &&f) -> task<std::invoke_result_t<std::decay_t<F>>>;

/*
 * Owns a task that returns a T, which may be void, a reference or move-only. One that is neither
 * joined nor moved from is detached by the destructor: it goes on, and frees itself. It must be
 * gone when run() returns.
 */
template <class T> class task {
    using result = detail::outcome<T>;
    aco_task_t *task_ = nullptr;

    explicit task(aco_task_t *t) noexcept : task_(t)
    {
    }
    template <class F>
    friend auto spawn(const task_options &, F &&) -> task<std::invoke_result_t<std::decay_t<F>>>;
    template <class F> friend auto spawn(F &&) -> task<std::invoke_result_t<std::decay_t<F>>>;

    aco_task_t *valid(const char *call) const
    {
        if (task_ == nullptr) {
            aco_i_fail(call, aco_get_co(), "it was joined or moved from: use a task once");
        }
        return task_;
    }

public:
    using value_type = T;

    task() = default;
    task(task &&other) noexcept : task_(std::exchange(other.task_, nullptr))
    {
    }
    task &operator=(task &&other) noexcept
    {
        if (this != &other) {
            detach();
            task_ = std::exchange(other.task_, nullptr);
        }
        return *this;
    }
    ~task()
    {
        detach();
    }

    /* Waits for its end; returns or throws what its callable did. If the wait fails, with
     * std::system_error, the task remains to be joined. */
    T join()
    {
        return end().take();
    }
    /* Each wait of it fails with ECANCELED from now on. */
    void cancel()
    {
        aco_task_cancel(valid("aco::task::cancel"));
    }
    /* Lets it go on alone; what it returns or throws is dropped. */
    void detach() noexcept
    {
        if (task_ != nullptr) {
            aco_i_detach(std::exchange(task_, nullptr),
                         [](void *storage, void *) { detail::stored<result>::destroy(storage); });
        }
    }
    /* A task that calls `g` with what this one returns; it throws what this one does. */
    template <class G> auto then(G &&g) &&
    {
        return spawn(
            [first = std::move(*this), next = std::decay_t<G>(std::forward<G>(g))]() mutable {
                if constexpr (std::is_void_v<T>) {
                    first.join();
                    return std::invoke(std::move(next));
                } else {
                    return std::invoke(std::move(next), first.join());
                }
            });
    }
    template <class G> auto then(G &&g) &
    {
        return std::move(*this).then(std::forward<G>(g));
    }

    bool joinable() const noexcept
    {
        return task_ != nullptr;
    }
    /* Whether join() would not wait. */
    bool done() const
    {
        return aco_i_has_ended(valid("aco::task::done")) != 0;
    }
    /* A number that no other task of the process has or had. */
    std::uint64_t id() const
    {
        return aco_task_id(valid("aco::task::id"));
    }
    const char *name() const
    {
        return aco_task_name(valid("aco::task::name"));
    }
    aco_task_t *handle() const noexcept
    {
        return task_;
    }

    /* join(), but what it returns or throws is in the outcome. Private. */
    result end()
    {
        aco_task_t *t = valid("aco::task::join");
        detail::check(aco_i_await_end(t), "aco::task::join");
        result r(detail::stored<result>::take(aco_i_storage(t)));
        task_ = nullptr;
        aco_i_free_ended(t);
        return r;
    }
};

template <class F>
auto spawn(const task_options &options, F &&f) -> task<std::invoke_result_t<std::decay_t<F>>>
{
    using T = std::invoke_result_t<std::decay_t<F>>;
    aco_task_t *t;
    detail::go(&options, detail::run_stored<std::decay_t<F>, T>, std::forward<F>(f), &t,
               "aco::spawn");
    return task<T>(t);
}

template <class F> auto spawn(F &&f) -> task<std::invoke_result_t<std::decay_t<F>>>
{
    using T = std::invoke_result_t<std::decay_t<F>>;
    aco_task_t *t;
    detail::go(nullptr, detail::run_stored<std::decay_t<F>, T>, std::forward<F>(f), &t,
               "aco::spawn");
    return task<T>(t);
}

/* Runs `f()` as the first task of a runtime, as aco_run() does; returns or throws what `f` does,
 * once all tasks have ended. */
template <class F> auto run(F &&f, const run_options &options = {}) -> std::invoke_result_t<F>
{
    using T = std::invoke_result_t<F>;
    struct call {
        F &&f;
        detail::outcome<T> result;
    } first{std::forward<F>(f), {}};
    auto fn = [](void *arg) -> void * {
        call *c = static_cast<call *>(arg);
        c->result.set_to(std::forward<F>(c->f));
        return nullptr;
    };
    detail::check(aco_run(&options, fn, &first, nullptr), "aco::run");
    return first.result.take();
}

/* The id of the running task; 0 outside of one. */
inline std::uint64_t this_task_id() noexcept
{
    const aco_task_t *self = aco_self();
    return self == nullptr ? 0 : aco_task_id(self);
}

/* Lets the other tasks that are ready run first. */
inline void yield()
{
    detail::check(aco_sleep(0), "aco::yield");
}

/* ==== Time =================================================================================== */

template <class R, class P> void sleep_for(std::chrono::duration<R, P> d)
{
    detail::check(aco_sleep(detail::ns_of(d)), "aco::sleep_for");
}

template <class C, class D> void sleep_until(std::chrono::time_point<C, D> t)
{
    do {
        detail::check(aco_sleep(detail::ns_until(t)), "aco::sleep_until");
    } while (C::now() < t); /* a clock that was set back */
}

/* Calls `f()`, in which each wait of the task fails with ETIMEDOUT once `d` has passed. */
template <class R, class P, class F>
auto within(std::chrono::duration<R, P> d, F &&f) -> std::invoke_result_t<F>
{
    detail::scope scope(aco_i_enter_within(detail::ns_of(d)));
    return std::forward<F>(f)();
}

/* Calls `f()` with neither cancelling nor deadlines from outside of it, for cleaning up. */
template <class F> auto shielded(F &&f) -> std::invoke_result_t<F>
{
    detail::scope scope(aco_i_enter_shielded());
    return std::forward<F>(f)();
}

} // namespace aco

#endif
