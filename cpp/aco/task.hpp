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

#include "base.hpp"
#include "stop.hpp"

#include "aco_bindings.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <ratio>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

namespace aco {
ACO_I_BEGIN

using run_options = aco_run_options_t;

/* Options of a task. With C++20, name those that you set: {.name = "worker", .thread = ACO_ANY}. */
struct task_options {
    const char *name = nullptr; /* kept, not copied; nullptr: the type of its callable */
    std::size_t stack_sz = 0;   /* 0: that of the options of the runtime */
    bool shares_stack = false;
    int thread = ACO_HERE;
    aco_group_t *group = nullptr;
    /* As aco::within() around its callable, from spawn() on. */
    std::chrono::nanoseconds within = std::chrono::nanoseconds::max();
};

namespace detail {

/* ---- Errors ---- */

/* Throws std::system_error for the failure of `call`; without exceptions, ends the process. */
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

/* Throws if a call has returned -1 with errno. */
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

/* The type of a result as a value: void becomes std::monostate. */
template <class T> using value_of = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

/* The type of a result in a container: a reference becomes std::reference_wrapper, too. */
template <class T>
using held_of = std::conditional_t<std::is_reference_v<T>,
                                   std::reference_wrapper<std::remove_reference_t<T>>, value_of<T>>;

#ifdef __cpp_exceptions
/* Whether the task, nullptr in a child after fork(), has thrown this because it was cancelled. */
inline bool is_cancellation(const std::system_error &error, const aco_task_t *task)
{
    return task != nullptr && error.code() == std::errc::operation_canceled &&
           aco_i_was_cancelled(task);
}

/* Reports an exception of a task that is never joined, in a handler of it. That of a detached task
 * ends the program, as in std::thread. */
inline void lose(const aco_task_t *task, bool is_detached, const char *what) noexcept
{
    std::fprintf(stderr,
                 "aco: an exception leaves a task that is never joined (task %llu): %s: join() it, "
                 "or catch what its callable throws\n",
                 task == nullptr ? 0ULL : static_cast<unsigned long long>(aco_task_id(task)), what);
    if (is_detached) {
        std::terminate();
    }
}
#endif

/* The value of a call, or what it has thrown. */
template <class T> class outcome {
    std::optional<held_of<T>> value_;
    std::exception_ptr thrown_;

public:
    outcome() = default;

    template <class F, class... A> void set_to(F &&f, A &&...args)
    {
        ACO_I_TRY_TASK
        {
            if constexpr (std::is_void_v<T>) {
                std::invoke(std::forward<F>(f), std::forward<A>(args)...);
            } else if constexpr (std::is_reference_v<T>) {
                auto &&referred = std::invoke(std::forward<F>(f), std::forward<A>(args)...);
                value_.emplace(referred);
            } else {
                value_.emplace(std::invoke(std::forward<F>(f), std::forward<A>(args)...));
            }
        }
        ACO_I_CATCH_ALL
        {
            thrown_ = std::current_exception();
        }
    }
    /* set_value() and set_thrown() are for callers that have no callable. */
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
    /* Loses an exception of `task` that can't reach a caller any more. ECANCELED, by which a task
     * ends that was cancelled, is no news. */
    void drop([[maybe_unused]] const aco_task_t *task, [[maybe_unused]] bool is_detached) noexcept
    {
#ifdef __cpp_exceptions
        if (thrown_ == nullptr) {
            return;
        }
        try {
            std::rethrow_exception(thrown_);
        } catch (const std::system_error &error) {
            if (!is_cancellation(error, task)) {
                lose(task, is_detached, error.what());
            }
        } catch (const std::exception &error) {
            lose(task, is_detached, error.what());
        } catch (...) {
            lose(task, is_detached, "it is no std::exception");
        }
#endif
    }
    /* As take(), but leaves the outcome as it is. */
    auto peek() const -> std::conditional_t<std::is_void_v<T>, void,
                                            std::add_lvalue_reference_t<std::add_const_t<T>>>
    {
#ifdef __cpp_exceptions
        if (thrown_ != nullptr) {
            std::rethrow_exception(thrown_);
        }
#endif
        if constexpr (std::is_reference_v<T>) {
            return value_->get();
        } else if constexpr (!std::is_void_v<T>) {
            return *value_;
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

/* ---- The storage of a task ---- */

template <class T>
inline constexpr bool
    fits = sizeof(T) <= ACO_I_STORAGE_SZ &&
           alignof(T) <= alignof(void *) && std::is_nothrow_move_constructible_v<T>;

/* A T in the storage, or a pointer to it. */
template <class T> struct stored {
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
};

/* A T taken out of the storage, which is free afterwards. */
template <class T> class taken {
    using owner = std::conditional_t<fits<T>, T, std::unique_ptr<T>>;
    owner it_;

    static owner take(void *storage)
    {
        if constexpr (fits<T>) {
            struct guard {
                T &it;
                ~guard()
                {
                    it.~T();
                }
            } from{stored<T>::at(storage)};
            return std::move(from.it);
        } else {
            return std::unique_ptr<T>(&stored<T>::at(storage));
        }
    }

public:
    explicit taken(void *storage) : it_(take(storage))
    {
    }
    T *operator->()
    {
        if constexpr (fits<T>) {
            return std::addressof(it_);
        } else {
            return it_.get();
        }
    }
};

/* ---- Names ---- */

/* The name of a type, as compilers write it in their messages: "first(int)::<lambda()>". For a
 * lambda in clang, it is the place without folders: "file.cc:12:5". */
template <class F> constexpr std::string_view name_of_type() noexcept
{
    std::string_view text = __PRETTY_FUNCTION__; /* "... [with F = T; ...]" or "... [F = T]" */
    text.remove_prefix(text.find("F = ") + 4);
    text = text.substr(0, std::min(text.find(';'), text.rfind(']')));
    if (text.substr(0, 11) == "(lambda at ") {
        text.remove_prefix(std::max(text.rfind('/') + 1, sizeof("(lambda at ") - 1));
        text.remove_suffix(1);
    }
    return text;
}

template <class F> struct type_name {
    struct text_type {
        char bytes[name_of_type<F>().size() + 1];
    };
    static constexpr text_type make() noexcept
    {
        text_type made{};
        for (std::size_t i = 0; i < name_of_type<F>().size(); i++) {
            made.bytes[i] = name_of_type<F>()[i];
        }
        return made;
    }
    static constexpr text_type text = make();
};

template <class F>
constexpr bool is_function = std::is_function_v<std::remove_pointer_t<std::decay_t<F>>>;

/* The name, in messages, of a task that was given none: the type of its callable. nullptr for a
 * function, which the task names by tell_function() when it begins. */
template <class F> constexpr const char *name_for() noexcept
{
    return is_function<F> ? nullptr : type_name<std::decay_t<F>>::text.bytes;
}
template <class F> void tell_function([[maybe_unused]] const F &f) noexcept
{
    if constexpr (is_function<F>) {
        aco_i_name(nullptr, reinterpret_cast<void *>(f));
    }
}

template <class G> constexpr task_options named() noexcept
{
    task_options made;
    made.name = name_for<G>();
    return made;
}

/* ---- Spawning ---- */

/* The function of a task that runs an F in its storage and leaves an outcome there. */
template <class F, class T> void *run_stored(void *storage)
{
    outcome<T> result;
    {
        taken<F> f(storage);
        aco_i_begin();
        tell_function(*f.operator->());
        result.set_to(std::move(*f.operator->()));
    }
    void *place = aco_i_finish();
    if (place != nullptr) {
        ::new (place) outcome<T>(std::move(result));
    } else {
        result.drop(aco_self(), true);
    }
    return nullptr;
}

/* As run_stored(), for an outcome that does not fit: spawn() makes room for it. */
template <class F, class T> struct with_room {
    F f;
    std::unique_ptr<outcome<T>> room = std::make_unique<outcome<T>>();

    template <class G> explicit with_room(G &&callable) : f(std::forward<G>(callable))
    {
    }
    static void *run(void *storage)
    {
        std::unique_ptr<outcome<T>> result;
        {
            taken<with_room> mine(storage);
            aco_i_begin();
            tell_function(mine->f);
            result = std::move(mine->room);
            result->set_to(std::move(mine->f));
        }
        void *place = aco_i_finish();
        if (place != nullptr) {
            ::new (place) outcome<T> *(result.release());
        } else {
            result->drop(aco_self(), true);
        }
        return nullptr;
    }
};

/* Makes a task that runs F(arg) by `run`; `task` as for aco_go_with(). Throws what F's constructor
 * throws. */
template <class F, class A>
void go(const task_options &options, void *(*run)(void *), A &&arg, aco_task_t **task,
        const char *call)
{
    const aco_task_options_t its{options.name, options.stack_sz, options.shares_stack,
                                 options.thread, options.group};
    if constexpr (fits<F>) {
        F made(std::forward<A>(arg));
        auto place = [](void *storage, void *from) {
            ::new (storage) F(std::move(*static_cast<F *>(from)));
        };
        check(aco_i_spawn_in(&its, run, place, &made, task), call);
    } else {
        auto made = std::make_unique<F>(std::forward<A>(arg));
        auto place = [](void *storage, void *from) { ::new (storage) F *(static_cast<F *>(from)); };
        check(aco_i_spawn_in(&its, run, place, made.get(), task), call);
        made.release();
    }
}

/* Starts a task that runs `f()` and keeps its outcome. */
template <class T, class G> aco_task_t *start(const task_options &options, G &&f)
{
    using F = std::decay_t<G>;
    aco_task_t *task;
    if constexpr (fits<outcome<T>>) {
        go<F>(options, run_stored<F, T>, std::forward<G>(f), &task, "aco::spawn");
    } else {
        using W = with_room<F, T>;
        go<W>(options, W::run, std::forward<G>(f), &task, "aco::spawn");
    }
    return task;
}

/* ---- Time ---- */

/* A duration in nanoseconds, rounded up and limited to their range. */
template <class R, class P> std::int64_t ns_of(std::chrono::duration<R, P> d)
{
    constexpr bool is_exact = !std::chrono::treat_as_floating_point_v<R> &&
                              std::ratio_divide<P, std::nano>::den == 1;
    constexpr double most = 9.2e9;
    double seconds = std::chrono::duration<double>(d).count();
    if (!(seconds < most)) {
        return INT64_MAX;
    }
    if (seconds < -most) {
        return INT64_MIN;
    }
    return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count() +
           (!is_exact && seconds > 0);
}

/* The time from now to `t` in nanoseconds, limited to their range. */
template <class C, class D> std::int64_t ns_until(std::chrono::time_point<C, D> t)
{
    std::int64_t then = ns_of(t.time_since_epoch()), now = ns_of(C::now().time_since_epoch());
    std::int64_t left;
    bool is_too_far = __builtin_sub_overflow(then, now, &left);
    return !is_too_far ? left : then < 0 ? INT64_MIN : INT64_MAX;
}

/* The point in time `d` from now, in the time of aco_now(). */
template <class R, class P> std::int64_t ns_from_now(std::chrono::duration<R, P> d)
{
    std::int64_t ns = ns_of(d), now = aco_now();
    return ns > INT64_MAX - now ? INT64_MAX : now + ns;
}
template <class R, class P> auto point_from_now(std::chrono::duration<R, P> d)
{
    using ns = std::chrono::nanoseconds;
    return std::chrono::time_point<std::chrono::steady_clock, ns>(ns(ns_from_now(d)));
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

/* A callable of a task with a deadline. */
template <class F> struct limited {
    F f;
    std::int64_t deadline; /* INT64_MAX: none */

    decltype(auto) operator()()
    {
        tell_function(f);
        if (deadline == INT64_MAX) {
            return std::invoke(std::move(f));
        }
        scope scope(aco_i_enter_within(std::max<std::int64_t>(deadline, 0) - aco_now()));
        return std::invoke(std::move(f));
    }
};
inline std::int64_t limit_of(const task_options &options)
{
    return options.within == options.within.max() ? INT64_MAX : ns_from_now(options.within);
}

/* Whether the deadline of a block within a call has passed, for a wait that failed with `error`,
 * and not one from outside. */
inline bool is_own_deadline(int error)
{
    return error == ETIMEDOUT && aco_deadline() > aco_now();
}

/* Calls `wait()`, which may return -1 with errno, for at most `ns`. Returns false if the time is
 * over. */
template <class F> bool is_in_time(std::int64_t ns, const char *call, F &&wait)
{
    int result;
    {
        scope scope(aco_i_enter_timed(ns));
        result = wait();
    }
    if (result == 0) {
        return true;
    }
    if (!is_own_deadline(errno)) {
        fail(call);
    }
    return false;
}

} // namespace detail

/* ==== Tasks ================================================================================== */

template <class T> class task;

namespace detail {
template <class T, class G> struct continuation;
template <class F, class T> F &callable_of(const task<T> &made);
} // namespace detail

/* Starts a task that runs `f()`, as aco_spawn() does; with options, as aco_go_with() does. Nothing
 * is allocated for a callable of up to eight words and a result of up to six that move without
 * exceptions. Throws if there is no runtime or no memory, and what copying `f` throws. */
template <class F> [[nodiscard]] auto spawn(F &&f) -> task<std::invoke_result_t<std::decay_t<F>>>;
template <class F>
[[nodiscard]] auto spawn(const task_options &options, F &&f)
    -> task<std::invoke_result_t<std::decay_t<F>>>;

/*
 * Owns a task that returns a T, which may be void, a reference or move-only. As that of
 * std::jthread, the destructor cancels a task that was neither joined, detached nor moved from, and
 * waits for its end, so the task may use variables that were there before the object. This wait
 * knows neither cancelling nor deadlines. The object must be destroyed before run() returns.
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

    /* The remains of a task that has ended: the task and its storage. The object owns both. */
    class remains {
        aco_task_t *task_;
        void *storage_ = aco_i_storage(task_);

    public:
        explicit remains(aco_task_t *task) : task_(task)
        {
        }
        remains(const remains &) = delete;
        remains &operator=(const remains &) = delete;
        ~remains()
        {
            detail::stored<result>::destroy(storage_);
            aco_i_free_ended(task_);
        }
        result &outcome()
        {
            return detail::stored<result>::at(storage_);
        }
    };
    aco_task_t *await_end()
    {
        detail::check(aco_i_await_end(valid("aco::task::join")), "aco::task::join");
        return std::exchange(task_, nullptr);
    }
    /* Ends a task that is not joined. In a child after fork() there is nothing to end. */
    void drop() noexcept
    {
        if (task_ == nullptr) {
            return;
        }
        aco_task_t *dropped = std::exchange(task_, nullptr);
        if (aco_i_cancel_and_await(dropped)) {
            remains(dropped).outcome().drop(dropped, false);
        }
    }
    /* Destroys the result of a detached task: in a new one if the caller is a loop, which must not
     * wait, as the destructor of a T may. */
    static void drop_result(void *storage) noexcept
    {
        using kept = detail::taken<result>;
        kept *moved = aco_self() != nullptr || std::is_trivially_destructible_v<detail::held_of<T>>
                          ? nullptr
                          : new (std::nothrow) kept(storage);
        auto destroy = [](void *k) -> void * {
            delete static_cast<kept *>(k);
            return nullptr;
        };
        if (moved == nullptr) {
            detail::stored<result>::destroy(storage);
        } else if (aco_go(destroy, moved) != 0) {
            destroy(moved);
        }
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
            drop();
            task_ = std::exchange(other.task_, nullptr);
        }
        return *this;
    }
    ~task()
    {
        drop();
    }

    /* Waits for its end; returns or throws what its callable did. If the wait fails, with
     * std::system_error, the task remains to be joined. */
    [[nodiscard]] T join()
    {
        return remains(await_end()).outcome().take();
    }
    /* Makes each wait of the task fail with ECANCELED from now on. */
    void cancel()
    {
        aco_task_cancel(valid("aco::task::cancel"));
    }
    /* Lets the task go on alone. Its result is dropped. An exception that leaves it then, or did
     * before, ends the program by std::terminate(), unless it is ECANCELED after cancel(). */
    void detach() noexcept
    {
        if (task_ != nullptr) {
            aco_i_detach(std::exchange(task_, nullptr), [](aco_task_t *ended, void *) {
                void *storage = aco_i_storage(ended);
                detail::stored<result>::at(storage).drop(ended, true);
                drop_result(storage);
            });
        }
    }
    /* Starts a task that calls `g` with what this one returns, and throws what this one throws. If
     * it can't be started, or copying `g` throws, this one remains to be joined. */
    template <class G> [[nodiscard]] auto then(G &&g) &&
    {
        using C = detail::continuation<T, std::decay_t<G>>;
        valid("aco::task::then");
        auto made = spawn(C{std::forward<G>(g), {}});
        detail::callable_of<C>(made).first = std::move(*this);
        return made;
    }
    template <class G> [[nodiscard]] auto then(G &&g) &
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
    /* The id of the task, which no other task of the process has or had. */
    std::uint64_t id() const
    {
        return aco_task_id(valid("aco::task::id"));
    }
    /* The name given to the task, or else that of its callable's type; "" if that is a function. */
    const char *name() const
    {
        return aco_task_name(valid("aco::task::name"));
    }
    /* As of std::jthread: cancel() requests a stop, and each request of one cancels the task. */
    template <class Token = stop_token> [[nodiscard]] Token get_stop_token() const
    {
        return get_stop_source().get_token();
    }
    template <class Source = stop_source> [[nodiscard]] Source get_stop_source() const
    {
        return detail::task_stop<Source>::of(valid("aco::task::get_stop_source"));
    }
    aco_task_t *handle() const noexcept
    {
        return task_;
    }

    /* Private: like join(), but returns the outcome, which has the result or exception. */
    result end()
    {
        return std::move(remains(await_end()).outcome());
    }
    /* The result of a task that has ended and stays, or what it has thrown. */
    decltype(auto) peek() const
    {
        return detail::stored<result>::at(aco_i_storage(task_)).peek();
    }
    void discard()
    {
        remains ended(await_end());
    }
    aco_task_t *valid(const char *call) const
    {
        if (task_ == nullptr) {
            aco_i_fail(call, aco_get_co(), "it was joined or moved from: use a task once");
        }
        return task_;
    }
};

namespace detail {

/* The callable that task::then() spawns. */
template <class T, class G> struct continuation {
    G next;
    task<T> first; /* moved here once nothing can fail */

    decltype(auto) operator()()
    {
        if constexpr (std::is_void_v<T>) {
            first.join();
            return std::invoke(std::move(next));
        } else {
            return std::invoke(std::move(next), first.join());
        }
    }
};

/* The callable of a task that was just spawned and has not begun. */
template <class F, class T> F &callable_of(const task<T> &made)
{
    void *storage = aco_i_storage(made.handle());
    if constexpr (fits<outcome<T>>) {
        return stored<F>::at(storage);
    } else {
        return stored<with_room<F, T>>::at(storage).f;
    }
}

} // namespace detail

template <class F>
auto spawn(const task_options &options, F &&f) -> task<std::invoke_result_t<std::decay_t<F>>>
{
    using T = std::invoke_result_t<std::decay_t<F>>;
    using G = detail::limited<std::decay_t<F>>;
    task_options named = options;
    if (named.name == nullptr) {
        named.name = detail::name_for<F>();
    }
    return task<T>(detail::start<T>(named, G{std::forward<F>(f), detail::limit_of(options)}));
}

template <class F> auto spawn(F &&f) -> task<std::invoke_result_t<std::decay_t<F>>>
{
    using T = std::invoke_result_t<std::decay_t<F>>;
    return task<T>(detail::start<T>(detail::named<F>(), std::forward<F>(f)));
}

/* Runs `f()` as the first task of a runtime, as aco_run() does; returns or throws what `f` does,
 * once all tasks have ended. */
template <class F> auto run(F &&f, const run_options &options = {}) -> std::invoke_result_t<F>
{
    using T = std::invoke_result_t<F>;
    struct call {
        F &&f;
        detail::outcome<T> result;
        bool has_result;
    } first{std::forward<F>(f), {}, false};
    auto fn = [](void *arg) -> void * {
        call *c = static_cast<call *>(arg);
        aco_i_name(detail::name_for<F>(), nullptr);
        detail::tell_function(c->f);
        c->result.set_to(std::forward<F>(c->f));
        c->has_result = true;
        return nullptr;
    };
    detail::check(aco_run(&options, fn, &first, nullptr), "aco::run");
    if (!first.has_result) {
        aco_i_fail("aco_exit", aco_get_co(),
                   "it has skipped destructors and the result of the first task: return from its "
                   "callable");
    }
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
    } while (detail::ns_until(t) > 0); /* a clock that was set back */
}

/* Calls `f()`, in which each wait of the task fails with ETIMEDOUT once `d` has passed. */
template <class R, class P, class F>
auto within(std::chrono::duration<R, P> d, F &&f) -> std::invoke_result_t<F>
{
    detail::scope scope(aco_i_enter_within(detail::ns_of(d)));
    return std::forward<F>(f)();
}

/* Calls `f()` without cancelling or deadlines from outside of it, for cleaning up. */
template <class F> auto shielded(F &&f) -> std::invoke_result_t<F>
{
    detail::scope scope(aco_i_enter_shielded());
    return std::forward<F>(f)();
}

ACO_I_END
} // namespace aco

#endif
