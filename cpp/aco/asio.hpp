// SPDX-License-Identifier: Apache-2.0
/*
 * aco::use_task: a completion token of Boost.Asio. With it, a task can make each of Asio's
 * asynchronous calls, and only the task waits. Relies on task.hpp and
 * <boost/asio/async_result.hpp>; an io_context runs on a thread of its own, as usual.
 *
 *     std::size_t got = socket.async_read_some(boost::asio::buffer(text), aco::use_task);
 *
 * The call returns the values that a handler would get after an error_code or exception_ptr; it
 * throws that if it is set. Several values are a std::tuple. The operation uses its buffers until
 * it has ended, so the wait is shielded: to end it, cancel or close Asio's object.
 */
#ifndef ACO_ASIO_HPP
#define ACO_ASIO_HPP

#include "task.hpp"

#include <boost/asio/async_result.hpp>
#include <boost/system/system_error.hpp>

#include <tuple>

namespace aco {
ACO_I_BEGIN

struct use_task_t {};
inline constexpr use_task_t use_task{};

namespace detail {

/* The result that a handler with arguments A gives to the task. */
template <class... A> struct completion {
    using tuple = std::tuple<A...>;
    using value = std::conditional_t<
        sizeof...(A) == 0, void,
        std::conditional_t<sizeof...(A) == 1, std::tuple_element_t<0, std::tuple<A..., void>>,
                           tuple>>;

    template <class... B> static void set(outcome<value> &result, B &&...values)
    {
        if constexpr (sizeof...(A) <= 1) {
            result.set_value(std::forward<B>(values)...);
        } else {
            result.set_value(tuple(std::forward<B>(values)...));
        }
    }
};

template <class... A> struct completion_of : completion<A...> {
    template <class... B>
    static void end(outcome<typename completion<A...>::value> &result, B &&...b)
    {
        completion<A...>::set(result, std::forward<B>(b)...);
    }
};
template <class... A> struct completion_of<boost::system::error_code, A...> : completion<A...> {
    template <class... B>
    static void end(outcome<typename completion<A...>::value> &result,
                    boost::system::error_code error, B &&...b)
    {
        if (error) {
            result.set_thrown(std::make_exception_ptr(boost::system::system_error(error)));
        } else {
            completion<A...>::set(result, std::forward<B>(b)...);
        }
    }
};
template <class... A> struct completion_of<std::exception_ptr, A...> : completion<A...> {
    template <class... B>
    static void end(outcome<typename completion<A...>::value> &result, std::exception_ptr thrown,
                    B &&...b)
    {
        if (thrown != nullptr) {
            result.set_thrown(thrown);
        } else {
            completion<A...>::set(result, std::forward<B>(b)...);
        }
    }
};

/* Lies on the heap, as another thread writes to it. */
template <class... A> struct asio_wait {
    outcome<typename completion_of<A...>::value> result;
    aco_semaphore_t ended = {};
    int ct_owners = 2; /* atomic */

    void leave()
    {
        if (__atomic_sub_fetch(&ct_owners, 1, __ATOMIC_ACQ_REL) == 0) {
            delete this;
        }
    }
};

/* The handler: moved, and called once or dropped. */
template <class... A> class asio_handler {
    asio_wait<A...> *wait_;

    void end()
    {
        asio_wait<A...> *wait = std::exchange(wait_, nullptr);
        aco_semaphore_release(&wait->ended);
        wait->leave();
    }

public:
    explicit asio_handler(asio_wait<A...> *wait) : wait_(wait)
    {
    }
    asio_handler(asio_handler &&other) noexcept : wait_(std::exchange(other.wait_, nullptr))
    {
    }
    ~asio_handler()
    {
        if (wait_ != nullptr) { /* the io_context is destroyed */
            wait_->result.set_thrown(std::make_exception_ptr(
                std::system_error(ECANCELED, std::generic_category(), "aco::use_task")));
            end();
        }
    }
    template <class... B> void operator()(B &&...b)
    {
        completion_of<A...>::end(wait_->result, std::forward<B>(b)...);
        end();
    }
};

} // namespace detail

ACO_I_END
} // namespace aco

namespace boost::asio {

template <class R, class... A> class async_result<aco::use_task_t, R(A...)> {
    using wait = aco::detail::asio_wait<std::decay_t<A>...>;

public:
    using return_type = typename aco::detail::completion_of<std::decay_t<A>...>::value;

    template <class I, class... B>
    static return_type initiate(I &&initiation, aco::use_task_t, B &&...args)
    {
        struct owner {
            wait *shared = new wait;
            ~owner()
            {
                shared->leave();
            }
        } mine;
        std::forward<I>(initiation)(aco::detail::asio_handler<std::decay_t<A>...>(mine.shared),
                                    std::forward<B>(args)...);
        aco::shielded([&] { aco_semaphore_acquire(&mine.shared->ended); });
        return mine.shared->result.take();
    }
};

} // namespace boost::asio

#endif
