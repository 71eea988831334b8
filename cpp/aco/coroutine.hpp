// SPDX-License-Identifier: Apache-2.0
/*
 * aco::coroutine: owns a coroutine with any callable as its entry. Needs no runtime. Relies on
 * aco.h, aco_stack_pool.h and aco_cancel.h; programs link with these parts.
 *
 *     aco::coroutine co([] {
 *         std::puts("one");
 *         aco_yield();
 *         std::puts("two");
 *     });
 *     while (!co.done()) {
 *         co.resume();
 *     }
 */
#ifndef ACO_COROUTINE_HPP
#define ACO_COROUTINE_HPP

#include "base.hpp"

#include "aco.h"
#include "aco_cancel.h"
#include "aco_stack_pool.h"

#ifdef ACO_CONFIG_STRESS
#error "aco.hpp does not work with ACO_CONFIG_STRESS: its objects lie on suspended stacks"
#endif

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <type_traits>
#include <utility>

#ifdef __cpp_exceptions
#define ACO_I_TRY try
#else
#define ACO_I_TRY
#endif

namespace aco {
ACO_I_BEGIN

namespace detail {

/* Catches what a body throws into an exception_ptr. A cancellation, which is no exception,
 * passes. */
#ifdef __cpp_exceptions
#define ACO_I_CATCH_INTO(thrown)                                                                   \
    catch (...)                                                                                    \
    {                                                                                              \
        (thrown) = std::current_exception();                                                       \
        if ((thrown) == nullptr) {                                                                 \
            throw;                                                                                 \
        }                                                                                          \
    }
#else
#define ACO_I_CATCH_INTO(thrown)
#endif

/* Throws what was caught. */
[[noreturn]] inline void rethrow(std::exception_ptr &thrown)
{
#ifdef __cpp_exceptions
    std::rethrow_exception(std::exchange(thrown, nullptr));
#else
    (void)thrown;
    std::abort(); /* nothing throws */
#endif
}

/* ---- Callables ---- */

/* A move-only callable void(A...), in place if it fits. */
template <class... A> class body {
    static constexpr std::size_t room = 6 * sizeof(void *);

    struct operations {
        void (*call)(void *place, A... args);
        void (*move)(void *to, void *from) noexcept;
        void (*destroy)(void *place) noexcept; /* nullptr: nothing to do */
    };

    template <class F> struct in_place {
        static F &at(void *place)
        {
            return *std::launder(static_cast<F *>(place));
        }
        static void call(void *place, A... args)
        {
            at(place)(args...);
        }
        static void move(void *to, void *from) noexcept
        {
            ::new (to) F(std::move(at(from)));
            at(from).~F();
        }
        static void destroy(void *place) noexcept
        {
            at(place).~F();
        }
        static constexpr operations table{call, move,
                                          std::is_trivially_destructible_v<F> ? nullptr : destroy};
    };

    template <class F> struct on_heap {
        static F *&at(void *place)
        {
            return *static_cast<F **>(place);
        }
        static void call(void *place, A... args)
        {
            (*at(place))(args...);
        }
        static void move(void *to, void *from) noexcept
        {
            ::new (to) F *(at(from));
        }
        static void destroy(void *place) noexcept
        {
            delete at(place);
        }
        static constexpr operations table{call, move, destroy};
    };

    const operations *operations_ = nullptr;
    alignas(void *) unsigned char place_[room];

public:
    template <class G> explicit body(std::in_place_t, G &&callable)
    {
        using F = std::decay_t<G>;
        if constexpr (sizeof(F) <= room && alignof(F) <= alignof(void *) &&
                      std::is_nothrow_move_constructible_v<F>) {
            ::new (static_cast<void *>(place_)) F(std::forward<G>(callable));
            operations_ = &in_place<F>::table;
        } else {
            ::new (static_cast<void *>(place_)) F *(new F(std::forward<G>(callable)));
            operations_ = &on_heap<F>::table;
        }
    }
    body(body &&other) noexcept : operations_(std::exchange(other.operations_, nullptr))
    {
        if (operations_ != nullptr) {
            operations_->move(place_, other.place_);
        }
    }
    body &operator=(body &&other) noexcept
    {
        if (this != &other) {
            this->~body();
            ::new (static_cast<void *>(this)) body(std::move(other));
        }
        return *this;
    }
    ~body()
    {
        if (operations_ != nullptr && operations_->destroy != nullptr) {
            operations_->destroy(place_);
        }
    }
    explicit operator bool() const noexcept
    {
        return operations_ != nullptr;
    }
    void operator()(A... args)
    {
        operations_->call(place_, args...);
    }
    /* Calls the callable in place, and then destroys it. */
    void use_up(A... args)
    {
        struct user {
            const operations *last;
            void *place;
            ~user()
            {
                if (last->destroy != nullptr) {
                    last->destroy(place);
                }
            }
        } mine{std::exchange(operations_, nullptr), place_};
        mine.last->call(place_, args...);
    }
};

/* ---- Stacks ---- */

/* The stacks of a thread for coroutines, and its main coroutine if it has no other. Has no
 * destructor, so that others of the thread, and of static objects, may use it. */
class thread_stacks {
    aco_stack_pool_t *pool_ = nullptr;
    aco_t *main_co_ = nullptr;
    bool is_at_end_ = false; /* of the thread: the last coroutine to go frees all */

    struct ender {
        ~ender()
        {
            mine().is_at_end_ = true;
            mine().free_unused();
        }
    };
    void free_unused()
    {
        aco_stack_pool_stats_t stats = {};
        if (pool_ != nullptr) {
            aco_stack_pool_stats(pool_, &stats);
        }
        if (stats.in_use != 0) {
            return;
        }
        if (pool_ != nullptr) {
            aco_stack_pool_destroy(std::exchange(pool_, nullptr));
        }
        if (main_co_ != nullptr) {
            aco_destroy(std::exchange(main_co_, nullptr));
        }
    }

public:
    static constexpr std::size_t stack_sz = 256 << 10;

    static thread_stacks &mine()
    {
        static thread_local thread_stacks stacks;
        return stacks;
    }
    /* Tells the stacks of threads apart, as long as one is in use. */
    const aco_stack_pool_t *pool() const
    {
        return pool_;
    }
    /* The running coroutine. */
    aco_t *self()
    {
        aco_t *co = aco_get_co();
        if (co == nullptr) {
            if (main_co_ == nullptr) {
                aco_thread_init(nullptr);
                main_co_ = aco_create(nullptr, nullptr, 0, nullptr, nullptr);
            }
            co = main_co_;
        }
        return co;
    }
    aco_t *create(aco_cofuncp_t entry, void *arg)
    {
        aco_t *parent = self();
        if (pool_ == nullptr) {
            static thread_local ender at_end;
            (void)at_end;
            pool_ = aco_stack_pool_new(stack_sz, 0);
        }
        return aco_stack_pool_create_co(pool_, parent, entry, arg);
    }
    void destroy(aco_t *co)
    {
        aco_stack_pool_destroy_co(pool_, co);
        if (is_at_end_) {
            free_unused();
        }
    }
};

/* ---- Switches ---- */

/* The exceptions that a thread is handling. */
struct handling : aco_i_exceptions_t {
    static handling *of_thread()
    {
#ifdef __cpp_exceptions
        return static_cast<handling *>(aco_i_exceptions());
#else
        static handling none;
        return &none;
#endif
    }
    /* Exchanges the exceptions of two. */
    void swap(handling &other)
    {
        std::swap(caught, other.caught);
        std::swap(ct_uncaught, other.ct_uncaught);
#ifdef ACO_ARCH_ARM
        std::swap(propagating, other.propagating);
#endif
    }
};

/* Whether any exception is being handled or thrown. */
inline bool is_any(const handling *handling)
{
#ifdef __cpp_exceptions
    return (reinterpret_cast<std::uintptr_t>(handling->caught) | handling->ct_uncaught) != 0;
#else
    (void)handling;
    return false;
#endif
}

/* A coroutine that any running coroutine of its thread may resume, and the exceptions that it
 * handles. Cancelling it leaves the frame of its entry function, so that has no destructors. */
class fiber {
    static constexpr char in_destructor[] = "the destructor of an aco::coroutine or aco::generator";

protected:
    aco_t *co_;
    const aco_stack_pool_t *pool_ = thread_stacks::mine().pool();
    handling mine_ = {};

    void check_thread(const char *call) const
    {
        if (pool_ != thread_stacks::mine().pool()) {
            aco_i_fail(call, co_,
                       "its stack is another thread's, which resumed it first: resume and destroy "
                       "it there");
        }
    }
    /* Makes the running coroutine its parent. */
    void adopt(const char *call)
    {
        check_thread(call);
        if (aco_status(co_) == ACO_STATUS_RUNNING) {
            aco_i_fail(call, co_, "it runs, or waits for one that it resumed: let that end first");
        }
        co_->main_co = thread_stacks::mine().self();
    }

public:
    explicit fiber(aco_t *co) : co_(co)
    {
    }
    bool has_ended() const
    {
        return co_->is_end;
    }
    void resume()
    {
        handling *threads = handling::of_thread();
        adopt("aco::coroutine::resume");
        threads->swap(mine_); /* each has the other's until the coroutine is back */
        aco_resume(co_);
        threads->swap(mine_);
    }
    /* Takes over its exceptions from `first`, which resumed the coroutine before this object was
     * made. */
    void take_from(fiber &first)
    {
        mine_.swap(first.mine_);
    }
    void destroy()
    {
        check_thread(in_destructor);
        thread_stacks::mine().destroy(co_);
    }
    /* Runs the destructors of its frames if it has not ended. `this` lies in one of them. */
    __attribute__((noinline)) void cancel_and_destroy()
    {
        aco_t *co = co_;
        adopt(in_destructor);
#ifdef __cpp_exceptions
        while (!aco_i_cancel_callees(co)) {
        }
#endif
        thread_stacks::mine().destroy(co);
    }
};

} // namespace detail

/* How the destructor ends a coroutine that has not ended: it unwinds it, so that the destructors of
 * its objects run, or only gives its stack back. */
enum class on_destruction { cancels, destroys };

/*
 * A coroutine that runs `f()`, on a stack of its own that comes from a pool of the thread. It
 * begins with the first resume(), and suspends itself by aco_yield(). It belongs to the thread that
 * resumes it first; any running coroutine of that thread may resume it. An exception that leaves
 * `f` leaves the resume() that runs it.
 */
class coroutine {
    struct state : detail::fiber {
        std::exception_ptr thrown;
        explicit state(aco_t *co) : fiber(co)
        {
        }
    };

    detail::body<> body_;
    state *state_ = nullptr; /* in the frame of run() */
    on_destruction on_destruction_;
    bool is_done_ = false;

    __attribute__((noinline)) void use_up_body(state *mine)
    {
        detail::body<> body(std::move(body_));
        state_ = mine;
        body();
    }
    static void run()
    {
        state mine(aco_get_co());
        ACO_I_TRY
        {
            static_cast<coroutine *>(aco_get_arg())->use_up_body(&mine);
        }
        ACO_I_CATCH_INTO(mine.thrown)
        aco_exit();
    }
    void start()
    {
        if (!body_) {
            aco_i_fail("aco::coroutine::resume", nullptr,
                       "it has ended or was moved from: ask done() before");
        }
        aco_t *co = detail::thread_stacks::mine().create(run, this);
        detail::fiber first(co);
        first.resume();
        state_->take_from(first);
    }
    void finish()
    {
        std::exception_ptr thrown = std::move(state_->thrown);
        is_done_ = true;
        std::exchange(state_, nullptr)->destroy();
        if (thrown != nullptr) {
            detail::rethrow(thrown);
        }
    }

public:
    template <class F, class = std::enable_if_t<std::is_invocable_v<std::decay_t<F> &> &&
                                                !std::is_same_v<std::decay_t<F>, coroutine>>>
    explicit coroutine(F &&f, on_destruction what = on_destruction::cancels)
        : body_(std::in_place, std::forward<F>(f)), on_destruction_(what)
    {
    }
    coroutine(coroutine &&other) noexcept
        : body_(std::move(other.body_)), state_(std::exchange(other.state_, nullptr)),
          on_destruction_(other.on_destruction_), is_done_(std::exchange(other.is_done_, true))
    {
    }
    coroutine &operator=(coroutine &&other) noexcept
    {
        if (this != &other) {
            this->~coroutine();
            ::new (static_cast<void *>(this)) coroutine(std::move(other));
        }
        return *this;
    }
    ~coroutine()
    {
        if (state_ == nullptr) {
        } else if (on_destruction_ == on_destruction::cancels) {
            state_->cancel_and_destroy();
        } else {
            state_->destroy();
        }
    }

    /* Starts or continues it; returns when it yields or ends. Aborts if it has ended. */
    void resume()
    {
        if (state_ == nullptr) {
            start();
        } else {
            state_->resume();
        }
        if (state_->has_ended()) {
            finish();
        }
    }
    bool done() const noexcept
    {
        return is_done_;
    }
    explicit operator bool() const noexcept
    {
        return !is_done_;
    }
};

ACO_I_END
} // namespace aco

#endif
