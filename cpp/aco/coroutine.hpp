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

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <tuple>
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

} // namespace detail

/* How a coroutine or generator gets its stack: from a pool of the thread that resumes it first, or
 * as one of these says. A pool and a share stack must exist as long as the coroutine. */
struct stack_options {
    std::size_t stack_sz = 0;         /* bytes of its frames at least; 0: 256 KiB */
    aco_stack_pool_t *pool = nullptr; /* gives the stack, of the size that it has */
    /* A coroutine runs there, and keeps only its live frames while others do: nothing but these may
     * point into them. The object itself, and who resumes it, must not be on that stack. */
    aco_share_stack_t *share_stack = nullptr;
};

namespace detail {

/* ---- Stacks ---- */

/* The stacks of a thread for coroutines, and its main coroutine if it has no other. Has no
 * destructor, so that others of the thread, and of static objects, may use it. */
class thread_stacks {
    static constexpr std::size_t least_sz = 16 << 10, usual_sz = 256 << 10;

    aco_stack_pool_t *pools_[24] = {}; /* of stacks of least_sz << i bytes */
    aco_t *main_co_ = nullptr;
    char *mark_ = nullptr;
    std::size_t ct_ = 0;     /* coroutines */
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
        if (ct_ != 0) {
            return;
        }
        for (aco_stack_pool_t *&pool : pools_) {
            if (pool != nullptr) {
                aco_stack_pool_destroy(std::exchange(pool, nullptr));
            }
        }
        if (main_co_ != nullptr) {
            aco_destroy(std::exchange(main_co_, nullptr));
        }
        delete std::exchange(mark_, nullptr);
    }

public:
    static thread_stacks &mine()
    {
        static thread_local thread_stacks stacks;
        return stacks;
    }
    /* Tells the stacks of threads apart, as long as one is in use. */
    const char *mark() const
    {
        return mark_;
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
    aco_stack_pool_t *pool(const stack_options &options)
    {
        if (options.pool != nullptr) {
            return options.pool;
        }
        std::size_t i = 0, sz = options.stack_sz != 0 ? options.stack_sz : usual_sz;
        while (i < std::size(pools_) - 1 && least_sz << i < sz) {
            i++;
        }
        if (pools_[i] == nullptr) {
            pools_[i] = aco_stack_pool_new(sz > least_sz << i ? sz : least_sz << i, 0);
        }
        return pools_[i];
    }
    aco_t *create(const stack_options &options, aco_cofuncp_t entry, void *arg)
    {
        aco_t *parent = self();
        if (mark_ == nullptr) {
            static thread_local ender at_end;
            (void)at_end;
            mark_ = new char;
        }
        ct_++;
        return options.share_stack != nullptr
                   ? aco_create(parent, options.share_stack, 0, entry, arg)
                   : aco_stack_pool_create_co(pool(options), parent, entry, arg);
    }
    void destroy(const stack_options &options, aco_t *co)
    {
        if (options.share_stack != nullptr) {
            aco_destroy(co);
        } else {
            aco_stack_pool_destroy_co(pool(options), co);
        }
        ct_--;
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
    stack_options options_;
    const char *mark_ = thread_stacks::mine().mark();
    handling mine_ = {};

    void check_thread(const char *call) const
    {
        if (mark_ != thread_stacks::mine().mark()) {
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
    fiber(aco_t *co, const stack_options &options) : co_(co), options_(options)
    {
    }
    aco_t *co() const
    {
        return co_;
    }
    bool has_ended() const
    {
        return co_->is_end;
    }
    /* Makes the coroutine, and resumes it first. */
    void begin(aco_cofuncp_t entry, void *arg)
    {
        co_ = thread_stacks::mine().create(options_, entry, arg);
        mark_ = thread_stacks::mine().mark();
        resume();
    }
    void set_arg(void *arg)
    {
        if (co_ != nullptr) {
            co_->arg = arg;
        }
    }
    /* Leaves the coroutine to the result. */
    fiber leave()
    {
        fiber left = *this;
        co_ = nullptr;
        return left;
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
        thread_stacks::mine().destroy(options_, std::exchange(co_, nullptr));
    }
    /* Runs the destructors of its frames if it has not ended. `this` may lie in one of them. */
    __attribute__((noinline)) void cancel_and_destroy()
    {
        aco_t *co = co_;
        stack_options options = options_;
        adopt(in_destructor);
#ifdef __cpp_exceptions
        while (!aco_i_cancel_callees(co)) {
        }
#endif
        thread_stacks::mine().destroy(options, co);
    }
};

/* ---- Values ---- */

/* A value on its way into a coroutine or out of it. */
template <class T> class passed {
    std::optional<T> it_;

public:
    template <class U> void set(U &&value)
    {
        it_.emplace(std::forward<U>(value));
    }
    explicit operator bool() const
    {
        return it_.has_value();
    }
    T take()
    {
        T taken(std::move(*it_));
        it_.reset();
        return taken;
    }
};
template <class T> class passed<T &> {
    T *it_ = nullptr;

public:
    void set(T &value)
    {
        it_ = std::addressof(value);
    }
    explicit operator bool() const
    {
        return it_ != nullptr;
    }
    T &take()
    {
        return *std::exchange(it_, nullptr);
    }
};
template <> class passed<void> {
public:
    void set()
    {
    }
    explicit operator bool() const
    {
        return true;
    }
    void take()
    {
    }
};

inline std::uint64_t new_coroutine_id()
{
    static std::atomic<std::uint64_t> last{0};
    return ++last;
}

} // namespace detail

/* How the destructor ends a coroutine that has not ended: it unwinds it, so that the destructors of
 * its objects run, or only gives its stack back. */
enum class on_destruction { cancels, destroys };

/*
 * A coroutine that runs a callable, on a stack of its own. It begins with the first resume(), and
 * belongs to the thread that calls that; any running coroutine of the thread may resume it. An
 * exception that leaves the callable leaves the resume() that runs it.
 *
 *   coroutine<R(A)>     runs f(yield, first): resume(a) returns what it yields by yield(r), which
 *                       returns the A of the next resume(); or what it returns, and is done then
 *   coroutine<R()>      runs f(yield); yield(r) returns nothing
 *   coroutine<void()>   runs f(), which suspends itself by aco_yield(), or f(yield). This is the
 *                       type of `coroutine co(f)`
 */
template <class S = void()> class coroutine;

template <class R, class... A> class coroutine<R(A...)> {
    static_assert(sizeof...(A) <= 1, "a coroutine takes one value at a time: pass a struct");
    using in = std::tuple_element_t<0, std::tuple<A..., void>>;

public:
    /* The argument of the callable. Only this coroutine may call it. */
    class yielder {
        friend coroutine;
        aco_t *co_;
        explicit yielder(aco_t *co) : co_(co)
        {
        }

    public:
        yielder(const yielder &) = delete;
        yielder &operator=(const yielder &) = delete;

        template <class... V> in operator()(V &&...value)
        {
            static_assert(sizeof...(V) == (std::is_void_v<R> ? 0 : 1), "yields one value: an R");
            if (aco_get_co() != co_) {
                aco_i_fail("aco::coroutine: yield", co_,
                           "another coroutine runs: only the one that has it may call it");
            }
            running().out_.set(std::forward<V>(value)...);
            aco_yield();
            return running().in_.take();
        }
    };

private:
    detail::body<yielder &> body_;
    detail::fiber fiber_; /* has no coroutine before the start, and after the end */
    detail::passed<in> in_;
    detail::passed<R> out_;
    std::exception_ptr thrown_;
    on_destruction on_destruction_;
    bool is_done_ = false;
    mutable std::uint64_t id_ = 0;

    /* The object of the running coroutine, wherever that was moved meanwhile. */
    static coroutine &running()
    {
        return *static_cast<coroutine *>(aco_get_arg());
    }
    /* Passes what `f` returns, after which the object may be another one. */
    template <class F, class... V> static void call(F &f, V &&...values)
    {
        if constexpr (std::is_void_v<R>) {
            f(std::forward<V>(values)...);
        } else {
            R result = f(std::forward<V>(values)...);
            running().out_.set(std::forward<R>(result));
        }
    }
    template <class F> static auto entry_of(F &&f)
    {
        return [f = std::decay_t<F>(std::forward<F>(f))](yielder &yield) mutable {
            if constexpr (!std::is_void_v<in>) {
                call(f, yield, running().in_.take());
            } else if constexpr (std::is_void_v<R> && std::is_invocable_v<std::decay_t<F> &>) {
                call(f);
            } else {
                call(f, yield);
            }
        };
    }
    static __attribute__((noinline)) void use_up_body()
    {
        detail::body<yielder &> body(std::move(running().body_));
        yielder yield(aco_get_co());
        body(yield);
    }
    static void run()
    {
        ACO_I_TRY
        {
            use_up_body();
        }
        ACO_I_CATCH_INTO(running().thrown_)
        aco_exit();
    }
    void start()
    {
        if (!body_) {
            aco_i_fail("aco::coroutine::resume", nullptr,
                       "it has ended or was moved from: ask done() before");
        }
        fiber_.begin(run, this);
    }
    void finish()
    {
        fiber_.destroy();
        is_done_ = true;
        if (thrown_ != nullptr) {
            detail::rethrow(thrown_);
        }
    }

public:
    template <class F, class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, coroutine>>>
    explicit coroutine(F &&f, on_destruction what = on_destruction::cancels)
        : coroutine(stack_options(), std::forward<F>(f), what)
    {
    }
    template <class F>
    coroutine(const stack_options &options, F &&f, on_destruction what = on_destruction::cancels)
        : body_(std::in_place, entry_of(std::forward<F>(f))), fiber_(nullptr, options),
          on_destruction_(what)
    {
    }
    coroutine(coroutine &&other) noexcept
        : body_(std::move(other.body_)), fiber_(other.fiber_.leave()), in_(std::move(other.in_)),
          out_(std::move(other.out_)), thrown_(std::move(other.thrown_)),
          on_destruction_(other.on_destruction_), is_done_(std::exchange(other.is_done_, true)),
          id_(std::exchange(other.id_, 0))
    {
        fiber_.set_arg(this);
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
        if (fiber_.co() == nullptr) {
        } else if (on_destruction_ == on_destruction::cancels) {
            fiber_.cancel_and_destroy();
        } else {
            fiber_.destroy();
        }
    }

    /* Starts or continues it; returns when it yields or ends. Aborts if it has ended, and if it has
     * yielded no R. */
    R resume(A... value)
    {
        in_.set(std::forward<A>(value)...);
        if (fiber_.co() != nullptr) {
            fiber_.resume();
        } else {
            start();
        }
        if (fiber_.has_ended()) {
            finish();
        } else if (!out_) {
            aco_i_fail("aco::coroutine::resume", fiber_.co(),
                       "the coroutine has called aco_yield(): yield a value");
        }
        return out_.take();
    }
    bool done() const noexcept
    {
        return is_done_;
    }
    explicit operator bool() const noexcept
    {
        return !is_done_;
    }
    /* A number that no other coroutine of the process has or had. */
    std::uint64_t id() const noexcept
    {
        return id_ != 0 ? id_ : id_ = detail::new_coroutine_id();
    }
};

template <class F> coroutine(F &&, on_destruction = on_destruction::cancels) -> coroutine<void()>;
template <class F>
coroutine(const stack_options &, F &&, on_destruction = on_destruction::cancels)
    -> coroutine<void()>;

/* The state and history of the pool from which a coroutine or generator of this thread gets its
 * stack. */
inline aco_stack_pool_stats_t stack_pool_stats(const stack_options &options = {})
{
    aco_stack_pool_stats_t stats;
    aco_stack_pool_stats(detail::thread_stacks::mine().pool(options), &stats);
    return stats;
}

ACO_I_END
} // namespace aco

#endif
