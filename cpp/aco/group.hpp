// SPDX-License-Identifier: Apache-2.0
/*
 * aco::group: tasks that end together; when_all, when_any and when_some. Relies on task.hpp.
 */
#ifndef ACO_GROUP_HPP
#define ACO_GROUP_HPP

#include "future.hpp"
#include "task.hpp"

#include <cstddef>
#include <memory>
#include <tuple>
#include <vector>

namespace aco {
ACO_I_BEGIN

namespace detail {

/* Keeps the exception of a task of a group, in a handler of it, and cancels the group; unless the
 * group has one, or it is that of a cancelled task. */
inline void keep_thrown([[maybe_unused]] aco_group_t *group)
{
#ifdef __cpp_exceptions
    try {
        throw;
    } catch (const std::system_error &e) {
        if (is_cancellation(e, aco_self())) {
            return;
        }
    } catch (...) {
    }
    auto thrown = std::make_unique<std::exception_ptr>(std::current_exception());
    if (aco_i_group_keep(group, thrown.get())) {
        thrown.release();
        aco_group_cancel(group);
    }
#endif
}

template <class F, class T = std::invoke_result_t<F &>> struct member {
    F f;
    aco_group_t *group;
    promise<T> result{};

    void operator()()
    {
        tell_function(f);
        ACO_I_TRY_TASK
        {
            result.set_value(f());
        }
        ACO_I_CATCH_ALL
        {
            keep_thrown(group);
            result.set_exception(std::current_exception());
        }
    }
};

template <class F> struct member<F, void> {
    F f;
    aco_group_t *group;

    void operator()()
    {
        tell_function(f);
        ACO_I_TRY_TASK
        {
            f();
        }
        ACO_I_CATCH_ALL
        {
            keep_thrown(group);
        }
    }
};

} // namespace detail

/*
 * A group of tasks that ends with its scope: the destructor joins it, after it has cancelled it if
 * an exception is passing. The first exception of a task cancels the group, and leaves join(), or
 * the destructor if none is passing. Belongs to the task that makes it.
 */
class group {
    aco_group_t *group_;
    int ct_uncaught_ = uncaught();

    static int uncaught() noexcept
    {
        return std::uncaught_exceptions();
    }

public:
    group() : group_(aco_group_new())
    {
        if (group_ == nullptr) {
            detail::fail("aco::group");
        }
    }
    group(const group &) = delete;
    group &operator=(const group &) = delete;
    ~group() noexcept(false)
    {
        if (group_ == nullptr) {
            return;
        }
        if (uncaught() == ct_uncaught_) {
            join();
            return;
        }
        cancel();
        int error;
        end(&error);
    }

    /* A task of the group that runs `f()`; returns an aco::future of what that returns, or nothing
     * if it is void. An exception leaves get(), too. Throws ECANCELED in a cancelled group. */
    template <class F> auto spawn(F &&f)
    {
        task_options options;
        options.group = valid();
        options.name = detail::name_for<F>();
        return start(options, std::forward<F>(f));
    }
    template <class F> auto spawn(task_options options, F &&f)
    {
        using G = detail::limited<std::decay_t<F>>;
        options.group = valid();
        if (options.name == nullptr) {
            options.name = detail::name_for<F>();
        }
        return start(options, G{std::forward<F>(f), detail::limit_of(options)});
    }
    /* Cancels its tasks, now and to come, and the groups that these made. */
    void cancel()
    {
        aco_group_cancel(valid());
    }
    /* Waits for the end of all its tasks, and throws what the first of them threw. If the wait
     * fails, the tasks are cancelled and waited for, and join() throws why it failed. A group is
     * joined once. */
    void join()
    {
        int error;
        std::unique_ptr<std::exception_ptr> thrown = end(&error);
        if (error != 0) {
            detail::fail("aco::group::join", error);
        }
#ifdef __cpp_exceptions
        if (thrown != nullptr) {
            std::rethrow_exception(*thrown);
        }
#endif
    }

private:
    template <class F> auto start(const task_options &options, F &&f)
    {
        using M = detail::member<std::decay_t<F>>;
        M made{std::forward<F>(f), group_};
        auto go = [&] {
            detail::go<M>(options, detail::run_stored<M, void>, std::move(made), nullptr,
                          "aco::group::spawn");
        };
        if constexpr (std::is_void_v<std::invoke_result_t<std::decay_t<F> &>>) {
            go();
        } else {
            auto result = made.result.get_future();
            go();
            return result;
        }
    }
    aco_group_t *valid() const
    {
        if (group_ == nullptr) {
            aco_i_fail("aco::group", aco_get_co(), "it was joined: make another one");
        }
        return group_;
    }
    /* Ends the group: returns what the first task threw, and errno of the wait in `error`. */
    std::unique_ptr<std::exception_ptr> end(int *error)
    {
        aco_group_t *ended = valid();
        group_ = nullptr;
        void *kept;
        *error = aco_i_group_join(ended, &kept) == 0 ? 0 : errno;
        return std::unique_ptr<std::exception_ptr>(static_cast<std::exception_ptr *>(kept));
    }
};

/* ==== Several tasks ========================================================================== */

/* Asks when_any() and when_some() to cancel the tasks that they don't join. */
struct cancel_rest_t {};
inline constexpr cancel_rest_t cancel_rest{};

namespace detail {

/* Waits for some of several tasks. It lies on the heap, where other threads may write to it. */
class race {
    struct runner : aco_i_watch_t {
        race *of;
        aco_task_t *task;  /* nullptr: none, or ended and taken */
        std::size_t place; /* in the order of their ends, from 1; atomic */
    };
    aco_semaphore_t ended_ = {}; /* one for each task that has ended and was not taken */
    std::size_t ct_ended_ = 0;   /* atomic */
    std::size_t ct_;
    std::unique_ptr<runner[]> runners_;

    static void on_end(aco_i_watch_t *watch)
    {
        runner *r = static_cast<runner *>(watch);
        std::size_t place = __atomic_add_fetch(&r->of->ct_ended_, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&r->place, place, __ATOMIC_RELEASE);
        aco_semaphore_release(&r->of->ended_);
    }

public:
    explicit race(std::size_t ct) : ct_(ct), runners_(new runner[ct]())
    {
    }
    race(const race &) = delete;
    race &operator=(const race &) = delete;
    ~race()
    {
        for (std::size_t i = 0; i < ct_; i++) {
            if (runners_[i].task != nullptr) {
                aco_i_unwatch(runners_[i].task, &runners_[i]);
            }
        }
    }
    /* Returns whether there is a task. */
    bool enter(std::size_t i, aco_task_t *task)
    {
        runner &r = runners_[i];
        r.of = this;
        r.fn = on_end;
        r.task = task;
        if (task != nullptr && !aco_i_watch(task, &r)) {
            on_end(&r);
        }
        return task != nullptr;
    }
    /* Waits until a task has ended, and returns the index of the first one that did. */
    std::size_t take(const char *call)
    {
        check(aco_semaphore_acquire(&ended_), call);
        std::size_t first = 0, least = SIZE_MAX;
        for (std::size_t i = 0; i < ct_; i++) {
            std::size_t place = __atomic_load_n(&runners_[i].place, __ATOMIC_ACQUIRE);
            if (runners_[i].task != nullptr && place != 0 && place < least) {
                first = i;
                least = place;
            }
        }
        aco_i_unwatch(runners_[first].task, &runners_[first]);
        runners_[first].task = nullptr;
        return first;
    }
};

/* A race of these tasks. Throws EINVAL if there are fewer than `ct`. */
template <class... T>
std::unique_ptr<race> race_of(std::size_t ct, const char *call, const task<T> &...tasks)
{
    auto r = std::make_unique<race>(sizeof...(T));
    std::size_t i = 0;
    std::size_t ct_there = 0;
    ((ct_there += r->enter(i++, tasks.handle())), ...);
    if (ct_there < ct) {
        fail(call, EINVAL);
    }
    return r;
}

template <class T>
std::unique_ptr<race> race_of(std::size_t ct, const char *call, const std::vector<task<T>> &tasks)
{
    auto r = std::make_unique<race>(tasks.size());
    std::size_t ct_there = 0;
    for (std::size_t i = 0; i < tasks.size(); i++) {
        ct_there += r->enter(i, tasks[i].handle());
    }
    if (ct_there < ct) {
        fail(call, EINVAL);
    }
    return r;
}

template <class T> void cancel_those_there(task<T> &each)
{
    if (each.joinable()) {
        each.cancel();
    }
}
template <class T> void cancel_those_there(std::vector<task<T>> &tasks)
{
    for (task<T> &each : tasks) {
        cancel_those_there(each);
    }
}

/* Calls `f()` at the end of a scope. */
template <class F> struct at_end {
    F f;
    explicit at_end(F &&callable) : f(std::move(callable))
    {
    }
    ~at_end()
    {
        f();
    }
};

template <class T> inline constexpr bool is_task = false;
template <class T> inline constexpr bool is_task<task<T>> = true;
template <class T> inline constexpr bool is_vector = false;
template <class T> inline constexpr bool is_vector<std::vector<task<T>>> = true;

/* For templates that take tasks, or a vector of tasks: variables or temporaries. */
template <class... T>
using if_tasks = std::enable_if_t<(is_task<std::remove_reference_t<T>> && ...), int>;
template <class V> using if_vector = std::enable_if_t<is_vector<std::remove_reference_t<V>>, int>;

/* The type that the callable of a task returns, or the callables of a vector of tasks. */
template <class T> using returned_by = typename std::remove_reference_t<T>::value_type;
template <class V> using returned_by_each = returned_by<returned_by<V>>;

template <class T> held_of<T> held(outcome<T> &&ended)
{
    if constexpr (std::is_reference_v<T>) {
        auto &&referred = ended.take();
        return referred;
    } else {
        return ended.take_value();
    }
}

/* The i-th of several tasks, joined. */
template <std::size_t I, class V, class... T> V join_nth(std::size_t i, std::tuple<T &...> tasks)
{
    if constexpr (I + 1 < sizeof...(T)) {
        if (i != I) {
            return join_nth<I + 1, V>(i, tasks);
        }
    }
    return V(std::in_place_index<I>, held(std::get<I>(tasks).end()));
}

} // namespace detail

/*
 * Waits for the end of all tasks, and returns what they return, void as std::monostate, or throws
 * what the first of them has thrown. If the wait fails, the tasks that have not ended remain to be
 * joined.
 */
template <class... T, detail::if_tasks<T...> = 0>
std::tuple<detail::value_of<detail::returned_by<T>>...> when_all(T &&...tasks)
{
    (tasks.valid("aco::when_all"), ...);
    (detail::check(aco_i_await_end(tasks.handle()), "aco::when_all"), ...);
    std::tuple<detail::outcome<detail::returned_by<T>>...> ended{tasks.end()...};
    return std::apply(
        [](auto &...each) {
            return std::tuple<detail::value_of<detail::returned_by<T>>...>{each.take_value()...};
        },
        ended);
}
/* The same for a vector of tasks: returns a vector, of a reference as std::reference_wrapper. */
template <class V, detail::if_vector<V> = 0>
std::vector<detail::held_of<detail::returned_by_each<V>>> when_all(V &&tasks)
{
    using T = detail::returned_by_each<V>;
    for (task<T> &each : tasks) {
        each.valid("aco::when_all");
    }
    for (task<T> &each : tasks) {
        detail::check(aco_i_await_end(each.handle()), "aco::when_all");
    }
    std::vector<detail::outcome<T>> ended;
    ended.reserve(tasks.size());
    for (task<T> &each : tasks) {
        ended.push_back(each.end());
    }
    std::vector<detail::held_of<T>> values;
    values.reserve(ended.size());
    for (detail::outcome<T> &each : ended) {
        values.push_back(detail::held(std::move(each)));
    }
    return values;
}

/*
 * Waits until the first of the tasks has ended, and joins it: returns its result as a std::variant
 * with its index, or throws what it throws; a reference is a std::reference_wrapper. If several
 * had ended before the call, the first argument of these counts as first. The others go on, and
 * remain to be joined; with cancel_rest as the first argument, they are cancelled. Tasks that were
 * joined before don't count. Throws EINVAL if none is left.
 */
template <class... T, detail::if_tasks<T...> = 0>
std::variant<detail::held_of<detail::returned_by<T>>...> when_any(T &&...tasks)
{
    using value = std::variant<detail::held_of<detail::returned_by<T>>...>;
    std::size_t i = detail::race_of(1, "aco::when_any", tasks...)->take("aco::when_any");
    return detail::join_nth<0, value>(i, std::tie(tasks...));
}
template <class V, detail::if_vector<V> = 0>
std::pair<std::size_t, detail::held_of<detail::returned_by_each<V>>> when_any(V &&tasks)
{
    std::size_t i = detail::race_of(1, "aco::when_any", tasks)->take("aco::when_any");
    return {i, detail::held(tasks[i].end())};
}
template <class... T> auto when_any(cancel_rest_t, T &&...tasks)
{
    detail::at_end cancel([&] { (detail::cancel_those_there(tasks), ...); });
    return when_any(tasks...);
}

/*
 * Waits until `ct` of the tasks have ended, and joins these: returns their results, each with its
 * index, or throws what the first of them threw. The other tasks are treated as by when_any().
 */
template <class... T, detail::if_tasks<T...> = 0>
std::vector<std::variant<detail::held_of<detail::returned_by<T>>...>> when_some(std::size_t ct,
                                                                                T &&...tasks)
{
    using value = std::variant<detail::held_of<detail::returned_by<T>>...>;
    auto race = detail::race_of(ct, "aco::when_some", tasks...);
    std::vector<value> values;
    while (values.size() < ct) {
        std::size_t i = race->take("aco::when_some");
        values.push_back(detail::join_nth<0, value>(i, std::tie(tasks...)));
    }
    return values;
}
template <class V, detail::if_vector<V> = 0>
std::vector<std::pair<std::size_t, detail::held_of<detail::returned_by_each<V>>>>
when_some(std::size_t ct, V &&tasks)
{
    auto race = detail::race_of(ct, "aco::when_some", tasks);
    std::vector<std::pair<std::size_t, detail::held_of<detail::returned_by_each<V>>>> values;
    while (values.size() < ct) {
        std::size_t i = race->take("aco::when_some");
        values.emplace_back(i, detail::held(tasks[i].end()));
    }
    return values;
}
template <class... T> auto when_some(cancel_rest_t, std::size_t ct, T &&...tasks)
{
    detail::at_end cancel([&] { (detail::cancel_those_there(tasks), ...); });
    return when_some(ct, tasks...);
}

ACO_I_END
} // namespace aco

#endif
