// SPDX-License-Identifier: Apache-2.0
/*
 * aco::channel<T>: a queue of values between tasks. Relies on task.hpp.
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

    slots slots_;
    aco_chan_t *chan_;

    template <class U> bool send_by(int (*call)(aco_chan_t *, const void *), U &&value, int may_be)
    {
        item i = slots_.pack(std::forward<U>(value));
        if (call(chan_, &i) == 0) {
            return true;
        }
        int error = errno;
        slots_.return_to(std::forward<U>(value), i);
        if (error != may_be) {
            detail::fail("aco::channel::send", error);
        }
        return false;
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
        send_by(aco_chan_send, std::move(value), 0);
    }
    void send(const T &value)
    {
        send_by(aco_chan_send, value, 0);
    }
    /* Sends a value if that needs no wait, and returns whether it did. */
    [[nodiscard]] bool try_send(T &&value)
    {
        return send_by(aco_chan_try_send, std::move(value), EAGAIN);
    }
    [[nodiscard]] bool try_send(const T &value)
    {
        return send_by(aco_chan_try_send, value, EAGAIN);
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

ACO_I_END
} // namespace aco

#endif
