// SPDX-License-Identifier: Apache-2.0
/* Types of aco that are like those of the standard library have its requirements. Compiles in each
 * dialect. */
#include "aco.hpp"

#include <condition_variable>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <type_traits>
#if __cplusplus > 201703L && (!defined(__clang__) || __clang_major__ >= 16)
#include <ranges>
#endif

namespace {

using ms = std::chrono::milliseconds;
using point = std::chrono::steady_clock::time_point;
template <class T> T &a() noexcept;

/* ---- Requirements of the standard ---- */

#define IS_VALID(name, ...)                                                                        \
    template <class T, class = void> constexpr bool name = false;                                  \
    template <class T> constexpr bool name<T, std::void_t<decltype(__VA_ARGS__)>> = true
#define RETURNS(T, ...) std::enable_if_t<std::is_same_v<decltype(__VA_ARGS__), T>>()

IS_VALID(is_basic_lockable, RETURNS(void, a<T>().lock()), RETURNS(void, a<T>().unlock()));
IS_VALID(is_lockable, RETURNS(bool, a<T>().try_lock()));
IS_VALID(is_timed_lockable, RETURNS(bool, a<T>().try_lock_for(ms())),
         RETURNS(bool, a<T>().try_lock_until(point())));
IS_VALID(is_shared_lockable, RETURNS(void, a<T>().lock_shared()),
         RETURNS(bool, a<T>().try_lock_shared()), RETURNS(void, a<T>().unlock_shared()));
IS_VALID(is_shared_timed_lockable, RETURNS(bool, a<T>().try_lock_shared_for(ms())),
         RETURNS(bool, a<T>().try_lock_shared_until(point())));

template <class T>
constexpr bool stays = std::is_destructible_v<T> && !std::is_copy_constructible_v<T> &&
                       !std::is_move_constructible_v<T> && !std::is_copy_assignable_v<T> &&
                       !std::is_move_assignable_v<T>;
template <class T>
constexpr bool only_moves = !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
                            std::is_nothrow_move_constructible_v<T> &&
                            std::is_nothrow_move_assignable_v<T> &&
                            std::is_nothrow_destructible_v<T>;
template <class T>
constexpr bool copies =
    std::is_nothrow_copy_constructible_v<T> &&std::is_nothrow_move_constructible_v<T>
        &&std::is_copy_assignable_v<T> &&std::is_nothrow_default_constructible_v<T>;

/* ---- Mutexes ---- */

template <class T>
constexpr bool is_mutex = is_basic_lockable<T> &&is_lockable<T> &&is_timed_lockable<T> &&stays<T>
    &&std::is_default_constructible_v<T>;
static_assert(is_mutex<aco::mutex> && is_mutex<aco::timed_mutex>);
static_assert(is_mutex<aco::recursive_mutex> && is_mutex<aco::recursive_timed_mutex>);
static_assert(is_mutex<aco::shared_mutex> && is_shared_lockable<aco::shared_mutex>);
static_assert(is_mutex<aco::shared_timed_mutex> &&
              is_shared_timed_lockable<aco::shared_timed_mutex>);
static_assert(noexcept(a<aco::mutex>().unlock()) &&noexcept(a<aco::shared_mutex>().unlock()));
static_assert(std::is_constructible_v<std::scoped_lock<aco::mutex, aco::recursive_mutex>,
                                      aco::mutex &, aco::recursive_mutex &>);
static_assert(stays<aco::once_flag> && std::is_default_constructible_v<aco::once_flag>);

/* ---- Condition variables ---- */

using lock = std::unique_lock<aco::mutex>;
using is_so = bool (*)();
IS_VALID(waits_with_a_lock, RETURNS(void, a<T>().wait(a<lock>())),
         RETURNS(void, a<T>().wait(a<lock>(), a<is_so>())),
         RETURNS(std::cv_status, a<T>().wait_for(a<lock>(), ms())),
         RETURNS(bool, a<T>().wait_for(a<lock>(), ms(), a<is_so>())),
         RETURNS(std::cv_status, a<T>().wait_until(a<lock>(), point())),
         RETURNS(bool, a<T>().wait_until(a<lock>(), point(), a<is_so>())),
         RETURNS(void, a<T>().notify_one()), RETURNS(void, a<T>().notify_all()));
IS_VALID(waits_for_a_stop, RETURNS(bool, a<T>().wait(a<lock>(), aco::stop_token(), a<is_so>())),
         RETURNS(bool, a<T>().wait_for(a<lock>(), aco::stop_token(), ms(), a<is_so>())),
         RETURNS(bool, a<T>().wait_until(a<lock>(), aco::stop_token(), point(), a<is_so>())));
static_assert(waits_with_a_lock<aco::condition_variable> && stays<aco::condition_variable>);
static_assert(waits_with_a_lock<aco::condition_variable_any> &&
              waits_for_a_stop<aco::condition_variable_any> && stays<aco::condition_variable_any>);
static_assert(noexcept(a<aco::condition_variable>().notify_one()) &&noexcept(
    a<aco::condition_variable_any>().notify_all()));

/* ---- Counters ---- */

IS_VALID(is_semaphore, RETURNS(void, a<T>().acquire()), RETURNS(void, a<T>().release(1)),
         RETURNS(bool, a<T>().try_acquire()), RETURNS(bool, a<T>().try_acquire_for(ms())),
         RETURNS(bool, a<T>().try_acquire_until(point())), RETURNS(std::ptrdiff_t, T::max()));
static_assert(is_semaphore<aco::semaphore> && stays<aco::semaphore>);
static_assert(is_semaphore<aco::binary_semaphore> && aco::binary_semaphore::max() >= 1);
static_assert(aco::counting_semaphore<7>::max() >= 7);
static_assert(!std::is_convertible_v<std::ptrdiff_t, aco::semaphore>);
IS_VALID(is_latch, RETURNS(void, a<T>().count_down(1)), RETURNS(bool, a<T>().try_wait()),
         RETURNS(void, a<T>().wait()), RETURNS(void, a<T>().arrive_and_wait(1)),
         RETURNS(std::ptrdiff_t, T::max()));
static_assert(is_latch<aco::latch> && stays<aco::latch>);
IS_VALID(is_barrier, RETURNS(typename T::arrival_token, a<T>().arrive(1)),
         RETURNS(void, a<T>().wait(a<T>().arrive())), RETURNS(void, a<T>().arrive_and_wait()),
         RETURNS(void, a<T>().arrive_and_drop()), RETURNS(std::ptrdiff_t, T::max()));
static_assert(is_barrier<aco::barrier<>> && stays<aco::barrier<>>);
static_assert(only_moves<aco::barrier<>::arrival_token>);

/* ---- Tasks and futures ---- */

IS_VALID(is_like_a_jthread, RETURNS(bool, a<T>().joinable()), a<T>().join(), a<T>().detach(),
         RETURNS(aco::stop_token, a<T>().get_stop_token()),
         RETURNS(aco::stop_source, a<T>().get_stop_source()));
static_assert(is_like_a_jthread<aco::task<void>> && is_like_a_jthread<aco::task<int &>>);
static_assert(only_moves<aco::task<void>> && only_moves<aco::task<std::unique_ptr<int>>>);
static_assert(std::is_nothrow_swappable_v<aco::task<void>> &&
              std::is_default_constructible_v<aco::task<void>>);
static_assert(copies<aco::shared_task<int>> && only_moves<aco::future<int>> &&
              only_moves<aco::promise<int>> && stays<aco::group>);
IS_VALID(is_promise, a<T>().get_future(), RETURNS(void, a<T>().set_value(1)),
         RETURNS(void, a<T>().set_exception(std::exception_ptr())));
IS_VALID(is_future, RETURNS(int, a<T>().get()), RETURNS(bool, a<T>().valid()),
         RETURNS(void, a<T>().wait()), a<T>().wait_for(ms()), a<T>().wait_until(point()));
static_assert(is_promise<aco::promise<int>> && is_promise<std::promise<int>>);
static_assert(is_future<aco::future<int>> && is_future<std::future<int>>);

/* ---- Stop tokens ---- */

IS_VALID(is_stop_token, RETURNS(bool, a<T>().stop_requested()),
         RETURNS(bool, a<T>().stop_possible()), RETURNS(void, a<T>().swap(a<T>())),
         RETURNS(bool, a<T>() == a<T>()), RETURNS(bool, a<T>() != a<T>()));
IS_VALID(is_stop_source, RETURNS(aco::stop_token, a<T>().get_token()),
         RETURNS(bool, a<T>().request_stop()));
static_assert(is_stop_token<aco::stop_token> && copies<aco::stop_token> &&
              std::is_nothrow_swappable_v<aco::stop_token>);
static_assert(is_stop_token<aco::stop_source> && is_stop_source<aco::stop_source> &&
              std::is_nothrow_copy_constructible_v<aco::stop_source> &&
              std::is_nothrow_move_constructible_v<aco::stop_source> &&
              std::is_nothrow_constructible_v<aco::stop_source, aco::nostopstate_t>);
static_assert(stays<aco::stop_callback<is_so>>);

/* ---- Coroutines, generators and channels ---- */

static_assert(only_moves<aco::coroutine<>> && only_moves<aco::coroutine<int(std::string)>>);
static_assert(only_moves<aco::generator<int>> && only_moves<aco::generator<const int &>>);
static_assert(stays<aco::channel<int>>);
static_assert(std::is_same_v<std::iterator_traits<aco::generator<int>::iterator>::iterator_category,
                             std::input_iterator_tag>);
#if defined(__cpp_lib_ranges) && (!defined(__clang__) || __clang_major__ >= 16)
static_assert(std::ranges::input_range<aco::generator<int>> &&
              std::ranges::view<aco::generator<int>> &&
              std::ranges::viewable_range<aco::generator<std::unique_ptr<int>>>);
static_assert(!std::ranges::forward_range<aco::generator<int>>);
static_assert(std::input_iterator<aco::generator<int>::iterator> &&
              std::semiregular<aco::generator<int>::iterator> &&
              std::sentinel_for<aco::generator<int>::iterator, aco::generator<int>::iterator>);
static_assert(
    std::same_as<std::ranges::range_reference_t<aco::generator<const int &>>, const int &>);
static_assert(std::regular<aco::stop_token> && std::movable<aco::task<int>> &&
              std::semiregular<aco::shared_task<int>>);
#endif

} // namespace

template class std::unique_lock<aco::mutex>;
template class std::unique_lock<aco::recursive_mutex>;
template class std::shared_lock<aco::shared_mutex>;
template class std::lock_guard<aco::mutex>;
