// SPDX-License-Identifier: Apache-2.0
/*
 * aco::channel<T>: a queue of values between tasks; aco::select. Relies on task.hpp.
 *
 *     aco::channel<std::string> lines(16);
 *     auto sender = aco::spawn([&] {
 *         lines.send("hello");
 *         lines.close();
 *     });
 *     for (const std::string &line : lines) {
 *         std::puts(line.c_str());
 *     }
 */
#ifndef ACO_CHANNEL_HPP
#define ACO_CHANNEL_HPP

#include "task.hpp"

#include <cstddef>
#include <iterator>
#include <memory>
#include <mutex>

namespace aco {
ACO_I_BEGIN

namespace detail {

/* Memory for values on their way through a channel. Freed slots are kept for later values. */
template <class T> class slots {
    struct slot {
        union {
            slot *next;
            T value;
        };
        slot() : next(nullptr)
        {
        }
        ~slot()
        {
        }
    };
    slot *free_ = nullptr;
    char is_locked_ = 0;

    void lock()
    {
        while (__atomic_test_and_set(&is_locked_, __ATOMIC_ACQUIRE)) {
        }
    }
    void unlock()
    {
        __atomic_clear(&is_locked_, __ATOMIC_RELEASE);
    }
    slot *get()
    {
        lock();
        slot *s = free_;
        if (s != nullptr) {
            free_ = s->next;
        }
        unlock();
        return s != nullptr ? s : new slot;
    }
    void put(slot *s)
    {
        lock();
        s->next = free_;
        free_ = s;
        unlock();
    }

    /* Ends the program if the move throws: there is no value then. */
    void replace(T &old, slot *s) noexcept
    {
        std::destroy_at(std::addressof(old));
        ::new (static_cast<void *>(std::addressof(old))) T(unpack(s));
    }

public:
    using item = slot *;

    slots() = default;
    slots(const slots &) = delete;
    slots &operator=(const slots &) = delete;
    ~slots()
    {
        while (free_ != nullptr) {
            delete std::exchange(free_, free_->next);
        }
    }
    template <class U> item pack(U &&value)
    {
        struct guard {
            slots *all;
            slot *taken;
            ~guard()
            {
                if (taken != nullptr) {
                    all->put(taken);
                }
            }
        } g{this, get()};
        ::new (static_cast<void *>(&g.taken->value)) T(std::forward<U>(value));
        return std::exchange(g.taken, nullptr);
    }
    T unpack(item s)
    {
        struct guard {
            slots *all;
            slot *taken;
            ~guard()
            {
                taken->value.~T();
                all->put(taken);
            }
        } g{this, s};
        return T(std::move(s->value));
    }
    /* Takes the value back into `from` after a send that has failed, if it came from there. */
    void return_to(T &&from, item s)
    {
        if constexpr (std::is_move_assignable_v<T>) {
            from = unpack(s);
        } else {
            replace(from, s);
        }
    }
    void return_to(const T &, item s)
    {
        unpack(s);
    }
};

/* Values that a channel can copy as bytes need no slots. */
template <class T> struct no_slots {
    using item = T;

    static T pack(const T &value)
    {
        return value;
    }
    static T unpack(const T &value)
    {
        return value;
    }
    static void return_to(const T &, const T &)
    {
    }
};

template <class T, class F> class recv_case;
template <class T, class U, class F> class send_case;

} // namespace detail

/*
 * A channel that holds `capacity` values; with 0, each send waits for a receiver. Values may be
 * move-only. May be used by tasks of different threads. It must not be destroyed while a task waits
 * for it.
 */
template <class T> class channel {
    static constexpr bool is_bytes = std::is_trivially_copyable_v<T> &&
                                     std::is_trivially_default_constructible_v<T>;
    using slots = std::conditional_t<is_bytes, detail::no_slots<T>, detail::slots<T>>;
    using item = typename slots::item;

    template <class, class> friend class detail::recv_case;
    template <class, class, class> friend class detail::send_case;

    slots slots_;
    aco_chan_t *chan_;

    static bool never(int)
    {
        return false;
    }

    /* Sends by `call(chan, item)`; returns false if that fails with an error that `may_be`. */
    template <class C, class P, class U> bool send_by(C call, P may_be, U &&value)
    {
        item i = slots_.pack(std::forward<U>(value));
        if (call(chan_, &i) == 0) {
            return true;
        }
        int error = errno;
        slots_.return_to(std::forward<U>(value), i);
        if (!may_be(error)) {
            detail::fail("aco::channel::send", error);
        }
        return false;
    }
    template <class U> bool try_to_send(U &&value)
    {
        return send_by(
            aco_chan_try_send, [](int error) { return error == EAGAIN; }, std::forward<U>(value));
    }
    template <class U> bool send_for_ns(std::int64_t ns, U &&value)
    {
        auto send = [ns](aco_chan_t *chan, const void *i) {
            detail::scope scope(aco_i_enter_timed(ns));
            return aco_chan_send(chan, i);
        };
        return send_by(send, detail::is_own_deadline, std::forward<U>(value));
    }
    std::optional<T> recv_for_ns(std::int64_t ns)
    {
        item i;
        int received = 0;
        auto wait = [&] {
            received = aco_chan_recv(chan_, &i);
            return received < 0 ? -1 : 0;
        };
        bool is_there = detail::is_in_time(ns, "aco::channel::recv_for", wait);
        return result_of(is_there ? received : 0, i);
    }
    std::optional<T> result_of(int received, item &i)
    {
        if (received > 0) {
            return std::optional<T>(slots_.unpack(i));
        }
        return std::nullopt;
    }

public:
    using value_type = T;

    explicit channel(std::size_t capacity = 0) : chan_(aco_chan_new(sizeof(item), capacity))
    {
        if (chan_ == nullptr) {
            detail::fail("aco::channel");
        }
    }
    channel(const channel &) = delete;
    channel &operator=(const channel &) = delete;
    ~channel()
    {
        item i;
        while (aco_chan_try_recv(chan_, &i) > 0) {
            slots_.unpack(i);
        }
        aco_chan_free(chan_);
    }

    /* Sends a value; throws EPIPE if the channel is closed. The caller keeps a value that was not
     * sent. */
    void send(T &&value)
    {
        send_by(aco_chan_send, never, std::move(value));
    }
    void send(const T &value)
    {
        send_by(aco_chan_send, never, value);
    }
    /* Sends a value if that needs no wait, and returns whether it did. */
    [[nodiscard]] bool try_send(T &&value)
    {
        return try_to_send(std::move(value));
    }
    [[nodiscard]] bool try_send(const T &value)
    {
        return try_to_send(value);
    }
    /* Send within a time, and return whether they did. */
    template <class R, class P>
    [[nodiscard]] bool send_for(std::chrono::duration<R, P> d, T &&value)
    {
        return send_for_ns(detail::ns_of(d), std::move(value));
    }
    template <class R, class P>
    [[nodiscard]] bool send_for(std::chrono::duration<R, P> d, const T &value)
    {
        return send_for_ns(detail::ns_of(d), value);
    }
    template <class C, class D>
    [[nodiscard]] bool send_until(std::chrono::time_point<C, D> t, T &&value)
    {
        return send_for_ns(detail::ns_until(t), std::move(value));
    }
    template <class C, class D>
    [[nodiscard]] bool send_until(std::chrono::time_point<C, D> t, const T &value)
    {
        return send_for_ns(detail::ns_until(t), value);
    }
    /* Receives the next value; none if the channel is closed and empty. */
    [[nodiscard]] std::optional<T> recv()
    {
        item i;
        int received = aco_chan_recv(chan_, &i);
        detail::check(received, "aco::channel::recv");
        return result_of(received, i);
    }
    /* As recv(), but without a wait: none also if the channel is empty now. */
    [[nodiscard]] std::optional<T> try_recv()
    {
        item i;
        return result_of(aco_chan_try_recv(chan_, &i), i);
    }
    /* As recv(), but wait for a time only: none also if it is over. */
    template <class R, class P>
    [[nodiscard]] std::optional<T> recv_for(std::chrono::duration<R, P> d)
    {
        return recv_for_ns(detail::ns_of(d));
    }
    template <class C, class D>
    [[nodiscard]] std::optional<T> recv_until(std::chrono::time_point<C, D> t)
    {
        return recv_for_ns(detail::ns_until(t));
    }
    /* Ends sending. The values in the channel can still be received. */
    void close() noexcept
    {
        int error = errno;
        aco_chan_close(chan_);
        errno = error;
    }

    /* An iterator over the values received. The range ends when the channel is closed and empty. */
    class iterator {
        channel *channel_ = nullptr;
        mutable std::optional<T> value_;

    public:
        using iterator_concept = std::input_iterator_tag;
        using iterator_category = std::input_iterator_tag;
        using value_type = T;
        using difference_type = std::ptrdiff_t;
        using reference = T &;
        using pointer = T *;

        iterator() = default;
        explicit iterator(channel *c) : channel_(c), value_(c->recv())
        {
        }
        reference operator*() const
        {
            return *value_;
        }
        pointer operator->() const
        {
            return &*value_;
        }
        iterator &operator++()
        {
            value_.reset();
            if (std::optional<T> next = channel_->recv()) {
                value_.emplace(std::move(*next)); /* T may have no assignment */
            }
            return *this;
        }
        void operator++(int)
        {
            ++*this;
        }
        /* Equal if both are at the end. */
        friend bool operator==(const iterator &a, const iterator &b)
        {
            return a.value_.has_value() == b.value_.has_value();
        }
        friend bool operator!=(const iterator &a, const iterator &b)
        {
            return !(a == b);
        }
    };
    iterator begin()
    {
        return iterator(this);
    }
    iterator end()
    {
        return {};
    }
};

/* ==== Select ================================================================================= */

namespace detail {

struct nothing {
    template <class... A> void operator()(A &&...) const
    {
    }
};

template <class T, class F> class recv_case {
    channel<T> &channel_;
    F f_;
    typename channel<T>::item item_{};

public:
    static constexpr bool is_default = false;

    recv_case(channel<T> &c, F &&f) : channel_(c), f_(std::move(f))
    {
    }
    void prepare(aco_case_t &its)
    {
        its.chan = channel_.chan_;
        its.recv = &item_;
    }
    void undo()
    {
    }
    void finish(const aco_case_t &its)
    {
        std::invoke(f_, channel_.result_of(its.result, item_));
    }
};

/* U is a reference. */
template <class T, class U, class F> class send_case {
    channel<T> &channel_;
    U value_;
    F f_;
    typename channel<T>::item item_{};
    bool is_packed_ = false;

public:
    static constexpr bool is_default = false;

    send_case(channel<T> &c, U value, F &&f)
        : channel_(c), value_(static_cast<U>(value)), f_(std::move(f))
    {
    }
    send_case(const send_case &) = delete;
    send_case &operator=(const send_case &) = delete;
    ~send_case()
    {
        undo();
    }
    void prepare(aco_case_t &its)
    {
        item_ = channel_.slots_.pack(static_cast<U>(value_));
        is_packed_ = true;
        its.chan = channel_.chan_;
        its.send = &item_;
    }
    /* Gives the value back. */
    void undo()
    {
        if (std::exchange(is_packed_, false)) {
            channel_.slots_.return_to(static_cast<U>(value_), item_);
        }
    }
    void finish(const aco_case_t &its)
    {
        if (its.result < 0) {
            fail("aco::select", its.error); /* the destructor gives the value back */
        }
        is_packed_ = false;
        std::invoke(f_);
    }
};

template <class F> class default_case {
    F f_;

public:
    static constexpr bool is_default = true;

    explicit default_case(F &&f) : f_(std::move(f))
    {
    }
    void prepare(aco_case_t &)
    {
    }
    void undo()
    {
    }
    void finish(const aco_case_t &)
    {
        std::invoke(f_);
    }
};

/* The index of the default case. */
template <class... C> constexpr std::size_t default_of()
{
    const bool is_default[] = {C::is_default...};
    std::size_t i = 0;
    while (!is_default[i]) {
        i++;
    }
    return i;
}

} // namespace detail

/* A case of select() that receives: calls `f` with what recv() would return. */
template <class T, class F = detail::nothing> auto on_recv(channel<T> &c, F f = {})
{
    return detail::recv_case<T, F>(c, std::move(f));
}
/* A case that sends, and then calls `f()`. The caller keeps a value that was not sent. If the
 * channel is closed, select() throws EPIPE. */
template <class T, class F = detail::nothing> auto on_send(channel<T> &c, T &&value, F f = {})
{
    return detail::send_case<T, T &&, F>(c, std::move(value), std::move(f));
}
template <class T, class F = detail::nothing> auto on_send(channel<T> &c, const T &value, F f = {})
{
    return detail::send_case<T, const T &, F>(c, value, std::move(f));
}
/* The case that is done if no other one can be without a wait: calls `f()`. */
template <class F = detail::nothing> auto otherwise(F f = {})
{
    return detail::default_case<F>(std::move(f));
}

/*
 * Does one of the cases, and returns its index, from 0 on; waits until one can be done, unless one
 * is otherwise(). If several can be done, each has the same chance.
 */
template <class... C> std::size_t select(C &&...cases)
{
    constexpr std::size_t ct_defaults = (std::size_t(std::decay_t<C>::is_default) + ...);
    static_assert(ct_defaults <= 1, "aco::select has at most one case otherwise()");
    aco_case_t all[sizeof...(C)] = {};
    std::size_t i = 0, done = sizeof...(C);
    (cases.prepare(all[i++]), ...);
    int chosen = aco_select(all, sizeof...(C), ct_defaults == 0);
    if (chosen >= 0) {
        done = static_cast<std::size_t>(chosen);
    } else if (ct_defaults == 0 || errno != EAGAIN) {
        detail::fail("aco::select");
    } else if constexpr (ct_defaults != 0) {
        done = detail::default_of<std::decay_t<C>...>();
    }
    i = 0;
    ((i++ != done ? cases.undo() : void()), ...);
    i = 0;
    ((i++ == done ? cases.finish(all[done]) : void()), ...);
    return done;
}

ACO_I_END
} // namespace aco

#endif
