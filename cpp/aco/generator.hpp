// SPDX-License-Identifier: Apache-2.0
/*
 * aco::generator<T>: an input range of the values that a callable yields. Needs no runtime; relies
 * on coroutine.hpp.
 *
 *     aco::generator<int> squares([](auto &yield) {
 *         for (int i = 1; i <= 3; i++) {
 *             yield(i * i);
 *         }
 *     });
 *     for (int square : squares) {
 *         std::printf("%d\n", square);
 *     }
 */
#ifndef ACO_GENERATOR_HPP
#define ACO_GENERATOR_HPP

#include "coroutine.hpp"

#include <iterator>
#include <memory>
#include <string_view> /* has enable_view, too */

namespace aco {
ACO_I_BEGIN

template <class T> class generator;

namespace detail {

/*
 * A coroutine of a generator. It shares the control words of its resumer, as a function does those
 * of its caller, so the switches here neither save nor load them, unless acosw() stands in for the
 * inline switch.
 */
class light_fiber : public fiber {
    /* Rare cases: another parent, the first resume, exceptions. */
    __attribute__((noinline)) void resume_slowly(handling *threads)
    {
        adopt("aco::generator");
        threads->swap(mine_);
        if (!co_->is_owner) {
            aco_i_acquire(co_);
        }
        aco_i_continue_light(co_->main_co, co_);
        threads->swap(mine_);
        be_slow();
    }
    __attribute__((noinline)) void keep(handling *threads)
    {
        threads->swap(mine_);
        be_slow();
    }
    /* Clears the parent of a coroutine that handles exceptions, so that the next resume is a slow
     * one. */
    void be_slow()
    {
        if (is_any(&mine_)) {
            co_->main_co = nullptr;
        }
    }
    __attribute__((noinline)) void be_cancelled()
    {
        handling::of_thread()->swap(mine_);
        aco_i_wake(co_);
    }

public:
    using fiber::fiber;

    /* The first resume(). */
    void begin()
    {
        resume_slowly(handling::of_thread());
    }
    /* Resumes `fiber`, whose coroutine is `co`. */
    static inline __attribute__((ACO_ALWAYS unused)) void resume(light_fiber *const &fiber,
                                                                 aco_t *co, handling *threads)
    {
        aco_t *self = aco_get_co();
        if (__builtin_expect(co->main_co != self || is_any(threads), 0)) {
            fiber->resume_slowly(threads);
            return;
        }
        aco_i_continue_light(self, co);
        if (__builtin_expect(is_any(threads), 0)) {
            fiber->keep(threads);
        }
    }
    /* suspend() and end() are called by the coroutine itself. */
    inline __attribute__((ACO_ALWAYS)) void suspend()
    {
        if (__builtin_expect(aco_i_suspend_light(aco_get_co()), 0)) {
            be_cancelled();
        }
    }
    [[noreturn]] static void end()
    {
        aco_i_end_light(aco_get_co());
    }
};

} // namespace detail

/*
 * The argument of a generator's callable: `yield(value)` passes a value to the code that iterates,
 * and returns when that wants the next one. `yield(generator)` passes all values of another
 * generator, at the cost of one switch a value, however deep generators are nested. An exception
 * that leaves that generator leaves the call.
 */
template <class T> class yielder : detail::light_fiber {
    friend class generator<T>;
    using item = std::remove_reference_t<T>;

    /* Used in the outermost generator, which is iterated over: its present value, nullptr after a
     * nested one has ended; and the generator that yields now, with its coroutine. */
    item *item_ = nullptr;
    aco_t *running_;
    detail::handling *handling_ = detail::handling::of_thread();
    light_fiber *innermost_ = this;

    yielder *outermost_ = this;
    yielder *outer_ = nullptr; /* the generator that yields this one */
    const char *low_;          /* below this, too little stack is left for nested generators */
    std::exception_ptr thrown_;

    yielder(aco_t *co, const stack_options &options)
        : light_fiber(co, options), running_(co),
          low_(static_cast<const char *>(co->share_stack->ptr) + co->share_stack->sz / 4)
    {
    }
    inline __attribute__((ACO_ALWAYS)) void pass(item *value)
    {
        outermost_->item_ = value;
        suspend();
    }
    void set_innermost(light_fiber *innermost)
    {
        innermost_ = innermost;
        running_ = innermost->co();
    }
    yielder *innermost() const
    {
        return static_cast<yielder *>(innermost_);
    }
    /* Goes on to the next value. For the outermost only. */
    inline __attribute__((ACO_ALWAYS)) void advance()
    {
        resume(innermost_, running_, handling_);
        if (__builtin_expect(item_ == nullptr, 0)) {
            leave_ended();
        }
    }
    __attribute__((noinline)) void leave_ended()
    {
        while (innermost_ != this && innermost_->has_ended()) {
            set_innermost(innermost()->outer_);
            resume(innermost_, running_, handling_);
        }
        if (has_ended() && thrown_ != nullptr) {
            detail::rethrow(thrown_);
        }
    }

    /* Passes the values of `inner` through the outermost generator, whose iterator then resumes
     * `inner`. */
    void join(yielder *inner)
    {
        inner->outer_ = this;
        outermost_->set_innermost(inner->innermost_);
        for (yielder *each = inner->innermost(); each != this; each = each->outer_) {
            each->outermost_ = outermost_;
        }
    }
    /* Undoes join(); `inner` can be iterated over again, unless it has ended. */
    void part(yielder *inner)
    {
        yielder *top = outermost_;
        inner->set_innermost(top->innermost_ == this ? inner : top->innermost_);
        for (yielder *each = inner->innermost(); each != this; each = each->outer_) {
            each->outermost_ = inner;
        }
        inner->item_ = inner->has_ended() ? nullptr : top->item_;
        inner->outer_ = nullptr;
        top->set_innermost(this);
    }
    void nest(generator<T> &inner);
    __attribute__((noinline)) void nest_slowly(generator<T> &inner);

public:
    yielder(const yielder &) = delete;
    yielder &operator=(const yielder &) = delete;

    template <class U = T, std::enable_if_t<!std::is_reference_v<U>, int> = 0>
    void operator()(T &&value)
    {
        pass(std::addressof(value));
    }
    template <class U = T,
              std::enable_if_t<!std::is_reference_v<U> && std::is_copy_constructible_v<U>, int> = 0>
    void operator()(const T &value)
    {
        T copy(value);
        pass(std::addressof(copy));
    }
    template <class U = T, std::enable_if_t<std::is_reference_v<U>, int> = 0>
    void operator()(T value)
    {
        pass(std::addressof(value));
    }
    void operator()(generator<T> &&inner)
    {
        nest(inner);
    }
    void operator()(generator<T> &inner)
    {
        nest(inner);
    }
};

/*
 * An input range of T, which may be move-only or a reference, made by `f(yield)`. `f` runs while a
 * value is wanted, on a stack of its own that comes from a pool of the thread; it may wait if a
 * task iterates. An exception that leaves `f` leaves begin() or ++. The destructor of a generator
 * that has not ended unwinds it, so that the destructors of its objects run.
 */
template <class T> class generator {
    using state = yielder<T>;
    using item = std::remove_reference_t<T>;
    friend state;

    detail::body<state &> body_;
    stack_options options_;
    state *state_ = nullptr; /* in the frame of run() */

    __attribute__((noinline)) void use_up_body(state &mine)
    {
        detail::body<state &> body(std::move(body_));
        state_ = &mine;
        body(mine);
    }
    static void run()
    {
        generator *self = static_cast<generator *>(aco_get_arg());
        state mine(aco_get_co(), self->options_);
        ACO_I_TRY
        {
            self->use_up_body(mine);
        }
        ACO_I_CATCH_INTO(mine.thrown_)
        mine.outermost_->item_ = nullptr;
        state::end();
    }
    void start()
    {
        if (options_.share_stack != nullptr) {
            aco_i_fail("aco::generator", nullptr,
                       "its values lie on its stack: give it a pool, and no share stack");
        }
        detail::light_fiber first(detail::thread_stacks::mine().create(options_, run, this),
                                  options_);
        first.begin();
        state_->take_from(first);
        state_->leave_ended();
    }
    void destroy()
    {
        if (__builtin_expect(state_ != nullptr, 0)) {
            std::exchange(state_, nullptr)->cancel_and_destroy();
        }
    }

public:
    class iterator {
        state *state_;
        friend class generator;
        explicit iterator(state *s) : state_(s)
        {
        }

    public:
        using iterator_concept = std::input_iterator_tag;
        using iterator_category = std::input_iterator_tag;
        using value_type = std::remove_cv_t<item>;
        using difference_type = std::ptrdiff_t;
        using reference = item &;
        using pointer = item *;

        iterator() : state_(nullptr)
        {
        }
        reference operator*() const
        {
            return *state_->item_;
        }
        pointer operator->() const
        {
            return state_->item_;
        }
        inline __attribute__((ACO_ALWAYS)) iterator &operator++()
        {
            state_->advance();
            return *this;
        }
        void operator++(int)
        {
            ++*this;
        }
        bool is_at_end() const
        {
            return state_ == nullptr || state_->item_ == nullptr;
        }
        /* Compares iterators of one generator: equal if both are at its end, or neither is. */
        friend bool operator==(const iterator &a, const iterator &b)
        {
            return a.is_at_end() == b.is_at_end();
        }
        friend bool operator!=(const iterator &a, const iterator &b)
        {
            return a.is_at_end() != b.is_at_end();
        }
    };

    template <class F, class = std::enable_if_t<std::is_invocable_v<std::decay_t<F> &, state &> &&
                                                !std::is_same_v<std::decay_t<F>, generator>>>
    explicit generator(F &&f) : body_(std::in_place, std::forward<F>(f))
    {
    }
    template <class F>
    generator(const stack_options &options, F &&f)
        : body_(std::in_place, std::forward<F>(f)), options_(options)
    {
    }
    generator(generator &&other) noexcept
        : body_(std::move(other.body_)), options_(other.options_),
          state_(std::exchange(other.state_, nullptr))
    {
    }
    generator &operator=(generator &&other) noexcept
    {
        if (this != &other) {
            destroy();
            body_ = std::move(other.body_);
            options_ = other.options_;
            state_ = std::exchange(other.state_, nullptr);
        }
        return *this;
    }
    ~generator()
    {
        destroy();
    }

    /* Runs to the first value. Later calls return an iterator at the present value. */
    iterator begin()
    {
        if (state_ == nullptr && body_) {
            start();
        }
        return iterator(state_);
    }
    iterator end() const noexcept
    {
        return iterator(nullptr);
    }
};

template <class T> inline __attribute__((always_inline)) void yielder<T>::nest(generator<T> &inner)
{
    bool has_room = static_cast<const char *>(__builtin_frame_address(0)) > low_;
    if (__builtin_expect(inner.state_ == nullptr && inner.body_ && has_room, 1)) {
        inner.body_.use_up(*this); /* on this stack: no switch at all */
    } else {
        nest_slowly(inner);
    }
}

template <class T> void yielder<T>::nest_slowly(generator<T> &inner)
{
    if (inner.begin() == inner.end()) {
        return;
    }
    struct joint {
        yielder *outer, *inner;
        ~joint()
        {
            outer->part(inner);
        }
    } joined{this, inner.state_};
    join(inner.state_);
    pass(joined.inner->item_);
    if (joined.inner->thrown_ != nullptr) {
        detail::rethrow(joined.inner->thrown_);
    }
}

ACO_I_END
} // namespace aco

#if __cplusplus > 201703L && defined(__cpp_lib_ranges)
template <class T> inline constexpr bool std::ranges::enable_view<aco::generator<T>> = true;
#endif

#endif
