// SPDX-License-Identifier: Apache-2.0
/*
 * A generator of C++20's stackless coroutines, as C++23 specifies std::generator, which Debian 12
 * does not have. co_yield of a value is one resumption, and co_yield of elements_of(generator)
 * costs one a value at any depth.
 */
#ifndef STACKLESS_GENERATOR_HPP
#define STACKLESS_GENERATOR_HPP

#include <coroutine>
#include <exception>
#include <iterator>
#include <memory>
#include <utility>

namespace stackless {

template <class G> struct elements_of {
    G generator;
    explicit elements_of(G &&g) : generator(std::move(g))
    {
    }
};

template <class T> class generator {
public:
    struct promise_type {
        using handle = std::coroutine_handle<promise_type>;
        T *value = nullptr;
        promise_type *root = this;
        handle leaf = handle::from_promise(*this); /* of the root */
        handle outer;
        std::exception_ptr thrown;

        generator get_return_object()
        {
            return generator(handle::from_promise(*this));
        }
        std::suspend_always initial_suspend() noexcept
        {
            return {};
        }
        struct final_awaiter {
            bool await_ready() noexcept
            {
                return false;
            }
            std::coroutine_handle<> await_suspend(handle ended) noexcept
            {
                promise_type &mine = ended.promise();
                if (!mine.outer) {
                    return std::noop_coroutine();
                }
                mine.root->leaf = mine.outer;
                return mine.outer;
            }
            void await_resume() noexcept
            {
            }
        };
        final_awaiter final_suspend() noexcept
        {
            return {};
        }
        std::suspend_always yield_value(T &&v) noexcept
        {
            root->value = std::addressof(v);
            return {};
        }
        struct copy_awaiter : std::suspend_always {
            T copy;
            promise_type *root;
            copy_awaiter(const T &v, promise_type *r) : copy(v), root(r)
            {
            }
            void await_suspend(handle) noexcept
            {
                root->value = std::addressof(copy);
            }
        };
        copy_awaiter yield_value(const T &v)
        {
            return copy_awaiter(v, root);
        }
        struct nested_awaiter {
            generator inner;
            bool await_ready() noexcept
            {
                return !inner.handle_;
            }
            std::coroutine_handle<> await_suspend(handle outer) noexcept
            {
                promise_type &mine = inner.handle_.promise();
                mine.root = outer.promise().root;
                mine.outer = outer;
                mine.root->leaf = inner.handle_;
                return inner.handle_;
            }
            void await_resume()
            {
                if (inner.handle_.promise().thrown) {
                    std::rethrow_exception(inner.handle_.promise().thrown);
                }
            }
        };
        nested_awaiter yield_value(elements_of<generator> e) noexcept
        {
            return {std::move(e.generator)};
        }
        void return_void()
        {
        }
        void unhandled_exception()
        {
            if (!outer) {
                throw;
            }
            thrown = std::current_exception();
        }
    };

    explicit generator(std::coroutine_handle<promise_type> h) : handle_(h)
    {
    }
    generator(generator &&other) noexcept : handle_(std::exchange(other.handle_, nullptr))
    {
    }
    ~generator()
    {
        if (handle_) {
            handle_.destroy();
        }
    }

    struct iterator {
        std::coroutine_handle<promise_type> handle;
        bool operator==(std::default_sentinel_t) const
        {
            return handle.done();
        }
        T &operator*() const
        {
            return *handle.promise().value;
        }
        iterator &operator++()
        {
            handle.promise().leaf.resume();
            return *this;
        }
    };
    iterator begin()
    {
        handle_.resume();
        return {handle_};
    }
    std::default_sentinel_t end()
    {
        return {};
    }

private:
    std::coroutine_handle<promise_type> handle_;
};

} // namespace stackless

#endif
