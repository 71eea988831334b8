// SPDX-License-Identifier: Apache-2.0
/* Mutexes and similar, task-local values and channels. */
#include "cpp.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <shared_mutex>
#include <thread>
#include <vector>

#include <malloc.h>
#include <signal.h>

namespace {

using namespace std::chrono_literals;
using aco::spawn;

/* Runs `f` in `ct` tasks of several threads. */
template <class F> void on_threads(int ct, F f)
{
    aco::run_options options = {};
    options.ct_threads = 3;
    aco::run(
        [&] {
            aco::task_options anywhere = {};
            anywhere.thread = ACO_ANY;
            std::vector<aco::task<void>> tasks;
            for (int i = 0; i < ct; i++) {
                tasks.push_back(spawn(anywhere, f));
            }
            aco::when_all(tasks);
        },
        options);
}

void mutex_excludes()
{
    int shared = 0;
    aco::mutex m;
    on_threads(20, [&] {
        for (int i = 0; i < 50; i++) {
            std::lock_guard<aco::mutex> guard(m);
            int seen = shared;
            aco::yield();
            shared = seen + 1;
        }
    });
    CHECK(shared == 1000);
}

void mutex_works_with_the_locks_of_the_standard()
{
    aco::run([] {
        aco::mutex a, b;
        auto crosswise = [&](aco::mutex &first, aco::mutex &second) {
            return spawn([&] {
                for (int i = 0; i < 20; i++) {
                    std::scoped_lock both(first, second);
                    aco::yield();
                }
            });
        };
        auto one = crosswise(a, b), two = crosswise(b, a);
        aco::when_all(one, two);
        std::unique_lock<aco::mutex> lock(a, std::try_to_lock);
        CHECK(lock.owns_lock());
        CHECK_FAILS(std::errc::resource_deadlock_would_occur, a.lock());
        CHECK(!spawn([&] { return a.try_lock(); }).join());
        CHECK(!spawn([&] { return a.try_lock_for(1ms); }).join());
        CHECK(b.try_lock_until(std::chrono::system_clock::now() + 1h));
        b.unlock();
        aco::semaphore may_unlock(0);
        auto holder = spawn([&] {
            std::lock_guard<aco::mutex> guard(b);
            may_unlock.acquire();
        });
        aco::yield();
        check_wait_ends([&] { b.lock(); });
        may_unlock.release();
        holder.join();
    });
}

/* Each task locks several, in an order of its own: it holds one, tries the others, and backs
 * off. */
template <class M> void lock_several()
{
    M a, b, c;
    long ct = 0;
    std::atomic<int> ct_begun{0};
    on_threads(9, [&] {
        int order = ct_begun++;
        for (int i = 0; i < 30; i++) {
            std::unique_lock<M> first(order % 2 == 0 ? a : b, std::defer_lock),
                second(order % 2 == 0 ? b : a, std::defer_lock), third(c, std::defer_lock);
            if (order % 3 == 0) {
                std::lock(third, first, second);
            } else {
                std::lock(first, second);
            }
            long seen = ct;
            aco::yield();
            ct = seen + 1;
        }
    });
    CHECK(ct == 270);
}

void tasks_that_lock_several_come_to_an_end()
{
    lock_several<aco::mutex>();
    lock_several<aco::shared_mutex>();
    aco::run([] {
        for (int ct_tasks : {3, 4, 10}) {
            aco::mutex a, b;
            std::vector<aco::task<void>> tasks;
            for (int i = 0; i < ct_tasks; i++) {
                tasks.push_back(spawn([&, i] {
                    for (int round = 0; round < 20; round++) {
                        std::scoped_lock both(i % 2 == 0 ? a : b, i % 2 == 0 ? b : a);
                        aco::yield();
                    }
                }));
            }
            aco::when_all(tasks);
        }
    });
}

void shared_mutex_shares()
{
    aco::run([] {
        aco::shared_mutex m;
        {
            std::shared_lock<aco::shared_mutex> reader(m);
            CHECK(spawn([&] {
                      std::shared_lock<aco::shared_mutex> another(m, std::try_to_lock);
                      return another.owns_lock() && !m.try_lock();
                  }).join());
            check_wait_ends([&] { m.lock(); });
        }
        std::unique_lock<aco::shared_mutex> writer(m);
        CHECK(!spawn([&] { return m.try_lock() || m.try_lock_shared(); }).join());
        CHECK(!m.try_lock() && !m.try_lock_shared());
        auto reader = spawn([&] { m.lock_shared(); });
        aco::yield();
        reader.cancel();
        CHECK_FAILS(std::errc::operation_canceled, reader.join());
    });
    long sum = 0;
    aco::shared_mutex m;
    on_threads(10, [&] {
        for (int i = 0; i < 50; i++) {
            m.lock_shared();
            long seen = sum;
            m.unlock_shared();
            std::unique_lock<aco::shared_mutex> writer(m);
            CHECK(sum >= seen);
            sum++;
        }
    });
    CHECK(sum == 500);
}

void condition_variable_wakes()
{
    aco::run([] {
        aco::mutex m;
        aco::condition_variable c;
        int turn = 0, ct_woken = 0;
        std::vector<aco::task<void>> tasks;
        for (int i = 0; i < 5; i++) {
            tasks.push_back(spawn([&, i] {
                std::unique_lock<aco::mutex> lock(m);
                c.wait(lock, [&] { return turn == 4 - i; }); /* the last one begins */
                CHECK(turn == 4 - i && lock.owns_lock());
                turn++;
                ct_woken++;
                c.notify_all();
            }));
        }
        aco::when_all(tasks);
        CHECK(ct_woken == 5);
        std::unique_lock<aco::mutex> lock(m);
        CHECK(c.wait_for(lock, 1ms) == std::cv_status::timeout && lock.owns_lock());
        CHECK(!c.wait_for(lock, 1ms, [] { return false; }));
        CHECK(c.wait_until(lock, std::chrono::steady_clock::now(), [] { return true; }));
        CHECK(!c.wait_until(lock, std::chrono::system_clock::time_point::min(),
                            [] { return false; }));
        CHECK_FAILS(std::errc::timed_out,
                    aco::within(1ms, [&] { c.wait_for(lock, std::chrono::hours(1)); }));
        CHECK(lock.owns_lock());
        lock.unlock();
        int ct = 0;
        auto one = spawn([&] {
            std::unique_lock<aco::mutex> mine(m);
            return c.wait_for(mine, for_ever) == std::cv_status::no_timeout &&
                   c.wait_for(mine, std::chrono::hours::max(), [&] { return ct == 1; }) &&
                   c.wait_until(mine, std::chrono::steady_clock::time_point::max(),
                                [&] { return ct == 2; });
        });
        for (int i = 0; i < 3; i++) {
            let_others_wait();
            CHECK(!one.done());
            ct = i;
            c.notify_one();
        }
        CHECK(one.join());
        check_wait_ends([&] {
            std::unique_lock<aco::mutex> mine(m);
            c.wait(mine);
        });
    });
}

/* Each message names the call. */
void a_cancelled_wait_tells_its_name()
{
    aco::run([] {
        aco::mutex m;
        aco::shared_mutex s;
        aco::semaphore none(0);
        aco::latch l(1);
        aco::channel<int> c(0);
        m.lock();
        s.lock();
        auto waits = [](std::string name, auto call) {
            aco::task<void> t = aco::spawn([&] {
                CHECK_THROWS(std::system_error, e.what() == name + ": Operation canceled", call());
            });
            t.cancel();
            t.join();
        };
        waits("aco::mutex::lock", [&] { m.lock(); });
        waits("aco::shared_mutex::lock", [&] { s.lock(); });
        waits("aco::shared_mutex::lock_shared", [&] { s.lock_shared(); });
        waits("aco::semaphore::acquire", [&] { none.acquire(); });
        waits("aco::latch::wait", [&] { l.wait(); });
        waits("aco::channel::send", [&] { c.send(1); });
        waits("aco::channel::recv", [&] { (void)c.recv(); });
        waits("aco::sleep_for", [&] { aco::sleep_for(1h); });
        waits("aco::sleep_until", [&] { aco::sleep_until(std::chrono::steady_clock::now() + 1h); });
        m.unlock();
        s.unlock();
    });
    CHECK_THROWS(std::system_error, e.what() == std::string("aco::group: ") + strerror(EPERM),
                 aco::group());
}

/* Waits that are possible outside of tasks keep their time limit there, too. */
void threads_wait_for_a_time()
{
    aco::mutex m;
    aco::semaphore s(0);
    aco::condition_variable c;
    CHECK(!s.try_acquire_for(1ms) && !s.try_acquire_for(-1h));
    CHECK(!s.try_acquire_until(std::chrono::system_clock::now() + 1ms));
    std::unique_lock<aco::mutex> lock(m);
    CHECK(c.wait_for(lock, 1ms) == std::cv_status::timeout && lock.owns_lock());
    CHECK(!c.wait_for(lock, 1ms, [] { return false; }) && lock.owns_lock());
    std::thread other([&] {
        CHECK(!m.try_lock_for(1ms));
        s.release();
        CHECK(m.try_lock_for(for_ever));
        m.unlock();
        s.acquire(); /* has no time limit any more */
        std::lock_guard<aco::mutex> guard(m);
        c.notify_one();
    });
    s.acquire();
    lock.unlock();
    lock.lock();
    s.release();
    CHECK(c.wait_for(lock, for_ever) == std::cv_status::no_timeout && lock.owns_lock());
    other.join();
}

void semaphore_and_latch_count()
{
    aco::run([] {
        aco::semaphore s(2);
        s.acquire();
        CHECK(s.try_acquire() && !s.try_acquire() && !s.try_acquire_for(1ms));
        check_wait_ends([&] { s.acquire(); });
        check_wait_ends([&] { (void)s.try_acquire_for(for_ever); });
        s.release(2);
        CHECK(s.try_acquire_until(std::chrono::steady_clock::now() + 1h) && s.try_acquire());

        aco::latch l(3);
        CHECK(!l.try_wait());
        check_wait_ends([&] { l.wait(); });
        auto first = spawn([&] { l.arrive_and_wait(); });
        let_others_wait();
        CHECK(!first.done());
        l.count_down(2);
        l.wait();
        first.join();
        CHECK(l.try_wait());
    });
}

/* A lock of the user's own. */
struct plain_lock {
    bool is_locked = true;
    void lock()
    {
        aco::yield();
        is_locked = true;
    }
    void unlock()
    {
        is_locked = false;
    }
};

void condition_variable_any_waits_with_any_lock()
{
    aco::run([] {
        aco::condition_variable_any c;
        aco::shared_mutex m;
        int turn = 0;
        auto other = spawn([&] {
            std::shared_lock<aco::shared_mutex> lock(m);
            c.wait(lock, [&] { return turn == 1; });
            CHECK(lock.owns_lock());
        });
        let_others_wait();
        std::unique_lock<aco::shared_mutex> lock(m);
        CHECK(!other.done());
        turn = 1;
        c.notify_all();
        CHECK(c.wait_for(lock, 1ms) == std::cv_status::timeout && lock.owns_lock());
        other.join();
        CHECK(c.wait_until(lock, std::chrono::steady_clock::now()) == std::cv_status::timeout);
        CHECK(!c.wait_for(lock, 1ms, [] { return false; }) && lock.owns_lock());
        CHECK(c.wait_until(lock, std::chrono::steady_clock::now(), [] { return true; }));
        auto one = spawn([&] { c.notify_one(); });
        CHECK(c.wait_for(lock, for_ever) == std::cv_status::no_timeout);
        one.join();
        lock.unlock();
        check_wait_ends([&] {
            plain_lock mine;
            aco::detail::at_end locked([&] { CHECK(mine.is_locked); });
            c.wait(mine);
        });
    });
}

/* A notified waiter may still be about to lock again. */
void condition_variable_any_may_be_destroyed_once_all_are_notified()
{
    aco::run([] {
        auto c = std::make_unique<aco::condition_variable_any>();
        auto other = spawn([&] {
            plain_lock mine;
            c->wait(mine);
            return mine.is_locked;
        });
        let_others_wait();
        c->notify_one();
        c.reset();
        CHECK(other.join());
    });
}

void condition_variable_any_joins_threads()
{
    aco::condition_variable_any c;
    std::mutex m;
    int turn = 0;
    std::thread plain([&] {
        std::unique_lock<std::mutex> lock(m);
        c.wait(lock, [&] { return turn == 1; });
        turn = 2;
        c.notify_all();
        c.wait(lock, [&] { return turn == 3; });
    });
    aco::run([&] {
        std::unique_lock<std::mutex> lock(m);
        turn = 1;
        c.notify_all();
        c.wait(lock, [&] { return turn == 2; });
        turn = 3;
        c.notify_all();
    });
    plain.join();
}

void a_semaphore_has_bounds()
{
    static_assert(aco::binary_semaphore::max() >= 1 && aco::counting_semaphore<5>::max() >= 5);
    static_assert(std::is_same_v<aco::semaphore, aco::counting_semaphore<>>);
    static_assert(!std::is_convertible_v<int, aco::semaphore>);
    static_assert(!std::is_copy_constructible_v<aco::semaphore>);
    auto dies = [](auto f) {
        auto [said, status] = said_by(f);
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT &&
               said.find("aco::semaphore") != std::string::npos &&
               said.find("more than max() allows") != std::string::npos;
    };
    CHECK(dies([] { aco::binary_semaphore(2); }));
    CHECK(dies([] { aco::semaphore(-1); }));
    CHECK(dies([] { aco::binary_semaphore(1).release(); }));
    CHECK(dies([] { aco::counting_semaphore<3>(1).release(3); }));
    CHECK(dies([] { aco::semaphore(0).release(-1); }));
    CHECK(dies([] { aco::semaphore(aco::semaphore::max()).release(); }));
    aco::run([] {
        aco::counting_semaphore<3> s(1);
        s.release(2);
        s.release(0);
        CHECK(s.try_acquire() && s.try_acquire() && s.try_acquire() && !s.try_acquire());
        aco::binary_semaphore b(0);
        auto first = spawn([&] { b.acquire(); }), second = spawn([&] { b.acquire(); });
        let_others_wait();
        b.release(); /* to the first, so that the semaphore has room for the next one */
        b.release();
        first.join();
        second.join();
        b.release();
    });
}

void call_once_calls_once()
{
    int ct = 0;
    aco::once_flag flag;
    CHECK_THROWS(std::runtime_error, true,
                 aco::call_once(flag, [] { throw std::runtime_error("not yet"); }));
    on_threads(20, [&] {
        aco::call_once(
            flag,
            [&](int by) {
                aco::yield();
                ct += by;
            },
            1);
        CHECK(ct == 1);
    });
    CHECK(ct == 1);
}

void each_task_has_its_own_locals()
{
    static aco::task_local<counted> local([] { return counted(7); });
    static aco::task_local<std::string> text;
    CHECK_FAILS(std::errc::operation_not_permitted, local.get());
    aco::run([] {
        std::vector<aco::task<void>> tasks;
        for (int i = 0; i < 5; i++) {
            tasks.push_back(spawn([i] {
                CHECK(local->value == 7 && text->empty());
                local->value = i;
                *text = std::to_string(i);
                aco::yield();
                CHECK(local.get().value == i && *text == std::to_string(i));
            }));
        }
        aco::when_all(tasks);
        CHECK(counted::ct_alive == 0);
    });
}

void there_may_be_any_number_of_locals()
{
    aco::run([] {
        aco::task_local<aco::mutex> immovable;
        CHECK(immovable->try_lock());
        immovable->unlock();
        auto user = spawn([] {
            for (int i = 0; i < 3000; i++) {
                aco::task_local<counted> passing;
                CHECK(std::exchange(passing->value, 1) == 0 && counted::ct_alive == 1);
            }
            std::vector<std::unique_ptr<aco::task_local<counted>>> many;
            for (int i = 0; i < 3000; i++) {
                many.push_back(std::make_unique<aco::task_local<counted>>());
                (*many.back())->value = i;
            }
            for (int i = 0; i < 3000; i++) {
                CHECK((*many[static_cast<std::size_t>(i)])->value == i);
            }
            CHECK(counted::ct_alive == 3000);
        });
        user.join();
        CHECK(counted::ct_alive == 0);
    });
}

struct last_words {
    static inline aco::task_local<std::string> *text = nullptr;
    static inline std::string said;
    ~last_words()
    {
        said = **text;
    }
};

void locals_may_use_others_when_they_end()
{
    aco::task_local<std::shared_ptr<last_words>> user;
    aco::task_local<std::string> text([] { return std::string("new"); });
    last_words::text = &text;
    aco::run([&] {
        spawn([&] {
            *user = std::make_shared<last_words>();
            *text = "kept";
        }).join();
        CHECK(last_words::said == "kept");
        spawn([&] { *user = std::make_shared<last_words>(); }).join();
        CHECK(last_words::said == "new");
    });
}

/* ==== Channels =============================================================================== */

template <class T, class M> void pass_all(std::size_t capacity, M make)
{
    aco::channel<T> c(capacity);
    auto sender = spawn([&] {
        for (int i = 0; i < 100; i++) {
            c.send(make(i));
        }
        c.close();
        c.close();
        CHECK_FAILS(std::errc::broken_pipe, c.send(make(0)));
    });
    int ct = 0;
    for (auto &value : c) {
        CHECK(value == make(ct));
        ct++;
    }
    CHECK(ct == 100 && !c.recv() && !c.try_recv());
    sender.join();
}

void channel_passes_values_in_order()
{
    aco::run([] {
        for (std::size_t capacity : {0u, 1u, 7u, 200u}) {
            pass_all<int>(capacity, [](int i) { return i; });
            pass_all<std::string>(capacity,
                                  [](int i) { return std::string(30, 'x') + std::to_string(i); });
        }
    });
}

/* The bytes that malloc() has given; 0 under sanitizers. */
std::size_t ct_allocated()
{
#if __GLIBC_PREREQ(2, 33)
    return mallinfo2().uordblks;
#else
    return 0;
#endif
}

void channel_frees_what_its_values_took()
{
    aco::run([] {
        using value = std::array<std::string, 8>; /* is no mere bytes */
        constexpr std::size_t ct_channels = 500;
        auto use_channels = [] {
            for (std::size_t i = 0; i < ct_channels; i++) {
                aco::channel<value> c(1);
                c.send({});
                (void)c.recv();
                c.send({}); /* is never received */
            }
            return ct_allocated();
        };
        std::size_t before = use_channels();
        CHECK(use_channels() < before + ct_channels * sizeof(value) / 2);
    });
}

void channel_moves_values_and_gives_back_what_it_could_not_send()
{
    aco::run([] {
        aco::channel<std::unique_ptr<int>> c(1);
        auto p = std::make_unique<int>(1);
        CHECK(c.try_send(std::move(p)) && p == nullptr);
        p = std::make_unique<int>(2);
        CHECK(!c.try_send(std::move(p)) && p != nullptr);
        CHECK_FAILS(std::errc::timed_out, aco::within(1ms, [&] { c.send(std::move(p)); }));
        CHECK(*p == 2 && **c.recv() == 1);
        check_wait_ends([&] { (void)c.recv(); });
        c.close();
        CHECK_FAILS(std::errc::broken_pipe, c.send(std::move(p)));
        CHECK(*p == 2);
        {
            aco::channel<counted> left(3);
            counted::ct_copies = 0;
            counted one(1);
            left.send(std::move(one));
            left.send(counted(2));
            CHECK(counted::ct_copies == 0);
            left.send(one);
            CHECK(counted::ct_copies == 1 && counted::ct_alive == 4);
        }
        CHECK(counted::ct_alive == 0);
        aco::channel<std::string> full(0);
        check_wait_ends([&] { full.send("waits"); });
        auto sender = spawn([&] { full.send("never arrives"); });
        aco::yield();
        full.close();
        CHECK_FAILS(std::errc::broken_pipe, sender.join());
    });
}

/* Can be made and moved, but not assigned. A move throws unless `may_move`. */
struct stubborn {
    int value;
    static inline bool may_move = true;

    explicit stubborn(int v) : value(v)
    {
    }
    stubborn(stubborn &&other) noexcept(false) : value(other.value)
    {
        if (!may_move) {
            throw std::length_error("stubborn");
        }
        other.value = -1;
    }
    stubborn &operator=(stubborn &&) = delete;
};

void channel_passes_what_can_only_be_moved()
{
    aco::run([] {
        aco::channel<stubborn> c(3);
        for (int i = 0; i < 3; i++) {
            c.send(stubborn(i));
        }
        stubborn::may_move = false;
        stubborn value(3);
        CHECK_THROWS(std::length_error, true, c.send(std::move(value)));
        CHECK_THROWS(std::length_error, true, (void)c.try_send(std::move(value)));
        CHECK_THROWS(std::length_error, true, (void)c.recv()); /* it is lost, as from a queue */
        stubborn::may_move = true;
        c.close();
        int ct = 0;
        for (stubborn &each : c) {
            CHECK(each.value == ++ct);
        }
        CHECK(ct == 2);
        CHECK_FAILS(std::errc::broken_pipe, c.send(std::move(value)));
        CHECK(value.value == 3); /* it was not sent */
    });
}

/* The members of std::timed_mutex, recursive_timed_mutex and shared_timed_mutex. */
template <class M> constexpr bool is_timed()
{
    using std::declval;
    using ms = std::chrono::milliseconds;
    using point = std::chrono::steady_clock::time_point;
    static_assert(!std::is_copy_constructible_v<M> && !std::is_move_constructible_v<M> &&
                  std::is_default_constructible_v<M>);
    return std::is_same_v<decltype(declval<M>().lock()), void> &&
           std::is_same_v<decltype(declval<M>().try_lock()), bool> &&
           std::is_same_v<decltype(declval<M>().try_lock_for(ms())), bool> &&
           std::is_same_v<decltype(declval<M>().try_lock_until(point())), bool> &&
           std::is_same_v<decltype(declval<M>().unlock()), void>;
}
static_assert(is_timed<std::timed_mutex>() && is_timed<std::shared_timed_mutex>());
static_assert(is_timed<aco::mutex>() && is_timed<aco::timed_mutex>());
static_assert(is_timed<aco::recursive_mutex>() && is_timed<aco::recursive_timed_mutex>());
static_assert(is_timed<aco::shared_mutex>() && is_timed<aco::shared_timed_mutex>());

void a_recursive_mutex_is_locked_again_by_its_owner()
{
    aco::run([] {
        aco::recursive_timed_mutex m;
        std::unique_lock first(m);
        m.lock();
        CHECK(m.try_lock() && m.try_lock_for(0ms));
        for (int i = 0; i < 3; i++) {
            auto other = spawn([&] { return m.try_lock() || m.try_lock_for(1ms); });
            CHECK(!other.join());
            m.unlock();
        }
        auto waits = spawn([&] {
            std::scoped_lock once(m);
            std::scoped_lock again(m);
        });
        let_others_wait();
        CHECK(!waits.done());
        first.unlock();
        waits.join();
        CHECK(m.try_lock());
        check_wait_ends([&] {
            if (aco::this_task_id() != 0) {
                spawn([&] { m.lock(); }).join();
            }
        });
        m.unlock();
        std::thread plain([&] {
            std::scoped_lock lock(m);
            m.lock();
            m.unlock();
        });
        plain.join();
        CHECK(m.try_lock());
        m.unlock();
    });
    auto [said, status] = said_by([] {
        aco::recursive_mutex m;
        m.lock();
        spawn([&] { m.unlock(); }).join();
    });
    CHECK(said.find("aco: aco::recursive_mutex::unlock: the caller does not hold it") == 0);
    CHECK(status != 0);
}

void a_shared_mutex_waits_for_a_time()
{
    aco::run([] {
        aco::shared_timed_mutex m;
        auto soon = [] { return std::chrono::steady_clock::now() + 1ms; };
        auto other = [](auto f) { return spawn(f).join(); };
        {
            std::shared_lock reader(m, 1ms);
            CHECK(reader.owns_lock());
            CHECK(other([&] { return !m.try_lock_for(1ms) && !m.try_lock_until(soon()); }));
            CHECK(other([&] { return std::shared_lock(m, soon()).owns_lock(); }));
        }
        std::unique_lock writer(m, soon());
        CHECK(writer.owns_lock());
        CHECK(other([&] { return !m.try_lock_shared_for(1ms); }));
        CHECK(other([&] { return !m.try_lock_shared_until(soon()); }));
    });
}

static_assert(!std::is_copy_constructible_v<aco::barrier<>> &&
              std::is_constructible_v<aco::barrier<>, std::ptrdiff_t> &&
              std::is_move_constructible_v<aco::barrier<>::arrival_token> &&
              !std::is_copy_constructible_v<aco::barrier<>::arrival_token>);

void a_barrier_lets_all_pass_together()
{
    aco::run([] {
        int ct_phases = 0, ct_passed = 0;
        aco::barrier phases(3, [&]() noexcept { ct_phases++; });
        {
            aco::group g;
            for (int i = 0; i < 3; i++) {
                g.spawn([&] {
                    for (int phase = 1; phase <= 4; phase++) {
                        phases.arrive_and_wait();
                        CHECK(ct_phases == phase);
                        ct_passed++;
                    }
                });
            }
        }
        CHECK(ct_passed == 12);
        auto first = phases.arrive(2);
        auto waits = spawn([&] { phases.wait(std::move(first)); });
        let_others_wait();
        CHECK(!waits.done() && ct_phases == 4);
        phases.arrive_and_drop();
        waits.join();
        CHECK(ct_phases == 5);
        phases.wait(phases.arrive(2)); /* two are left */
        CHECK(ct_phases == 6);
        auto late = phases.arrive();
        CHECK_FAILS(std::errc::timed_out, aco::within(1ms, [&] { phases.wait(std::move(late)); }));
        (void)phases.arrive();
        CHECK(ct_phases == 7);
    });
    CHECK(said_by([] { (void)aco::barrier<>(1).arrive(2); }).first.find("aco: aco::barrier") == 0);
}

void a_barrier_joins_threads()
{
    std::atomic<int> ct = 0;
    aco::barrier<> all(3);
    auto pass = [&] {
        for (int i = 1; i <= 200; i++) {
            ct++;
            all.arrive_and_wait();
            CHECK(ct == 3 * i);
            all.arrive_and_wait();
        }
    };
    std::thread plain(pass);
    aco::run_options options = {};
    options.ct_threads = 2;
    aco::run(
        [&] {
            aco::task_options there = {};
            there.thread = ACO_THREAD(1);
            auto other = spawn(there, pass);
            pass();
            other.join();
        },
        options);
    plain.join();
}

void channel_waits_for_a_time()
{
    aco::run([] {
        aco::channel<std::string> c(1);
        auto soon = [] { return std::chrono::steady_clock::now() + 1ms; };
        std::string value = "a value that lies on the heap", other = value;
        CHECK(!c.recv_for(1ms) && !c.recv_until(soon()));
        CHECK(c.send_for(0ms, value) && *c.recv_for(for_ever) == value);
        CHECK(c.send_until(soon() + 1h, std::move(other)) && other.empty());
        CHECK(!c.send_for(1ms, std::move(value)) && !c.send_until(soon(), std::move(value)));
        CHECK(!c.send_for(0ms, std::as_const(value)) && !value.empty());
        check_wait_ends([&] { (void)c.send_for(for_ever, value); });
        CHECK(*c.recv_until(soon() + 1h) == value);
        check_wait_ends([&] { (void)c.recv_for(for_ever); });
        CHECK_FAILS(std::errc::timed_out,
                    aco::within(0ms, [&] { (void)c.recv_until(soon() + 1h); }));
        c.close();
        CHECK(!c.recv_for(for_ever));
        CHECK_FAILS(std::errc::broken_pipe, (void)c.send_for(for_ever, std::move(value)));
        CHECK(!value.empty());
    });
}

void select_does_one_case()
{
    aco::run([] {
        aco::channel<int> numbers(1);
        aco::channel<std::unique_ptr<counted>> objects(1);
        auto object = std::make_unique<counted>(7);
        int got = 0, ct_sent = 0;
        auto one = [&] {
            return aco::select(
                aco::on_recv(numbers, [&](std::optional<int> i) { got = i ? *i : -1; }),
                aco::on_send(objects, std::move(object), [&] { ct_sent++; }), aco::otherwise([&] {
                    CHECK(object != nullptr); /* it is back already */
                    got = 100;
                }));
        };
        CHECK(one() == 1 && ct_sent == 1 && object == nullptr && got == 0);
        object = std::make_unique<counted>(8);
        CHECK(one() == 2 && got == 100 && object->value == 8);
        numbers.send(5);
        CHECK(one() == 0 && got == 5 && object->value == 8 && ct_sent == 1);
        numbers.close();
        CHECK(one() == 0 && got == -1);
        CHECK((*objects.recv())->value == 7);
        aco::channel<int> sent(1);
        const int two = 2;
        CHECK(aco::select(aco::on_send(sent, two)) == 0);
        CHECK(aco::select(aco::on_recv(sent)) == 0 && !sent.try_recv());
        objects.close();
        CHECK_FAILS(std::errc::broken_pipe, aco::select(aco::on_send(objects, std::move(object))));
        CHECK(object->value == 8);
    });
}

void select_waits()
{
    aco::run([] {
        aco::channel<std::string> a, b;
        std::string value = "a value that lies on the heap";
        auto wait = [&] { aco::select(aco::on_recv(a), aco::on_send(b, std::move(value))); };
        check_wait_ends(wait);
        CHECK(!value.empty());
        auto receiver = spawn([&] { return *b.recv(); });
        wait();
        CHECK(receiver.join() == "a value that lies on the heap" && value.empty());
        std::string seen;
        auto sender = spawn([&] { a.send("sent"); });
        auto i = aco::select(aco::on_recv(b),
                             aco::on_recv(a, [&](std::optional<std::string> s) { seen = *s; }));
        CHECK(i == 1 && seen == "sent");
        sender.join();
        aco::task_options shares = {};
        shares.shares_stack = 1;
        auto copied = spawn(shares, [&] {
            std::string own = "on a stack that is copied", got;
            aco::select(aco::on_send(b, std::move(own)));
            aco::select(aco::on_recv(a, [&](std::optional<std::string> s) { got = *s; }));
            return got;
        });
        auto other = spawn(shares, [&] { return *b.recv(); });
        CHECK(other.join() == "on a stack that is copied");
        a.send("back");
        CHECK(copied.join() == "back");
    });
}

void channel_joins_threads()
{
    aco::channel<std::string> c(4);
    std::vector<int> seen(300);
    aco::run_options options = {};
    options.ct_threads = 3;
    aco::run(
        [&] {
            std::thread plain([&] {
                for (int i = 200; i < 300; i++) {
                    c.send(std::to_string(i));
                }
            });
            aco::task_options anywhere = {};
            anywhere.thread = ACO_ANY;
            std::vector<aco::task<void>> senders;
            for (int first : {0, 100}) {
                senders.push_back(spawn(anywhere, [&c, first] {
                    for (int i = first; i < first + 100; i++) {
                        c.send(std::to_string(i));
                    }
                }));
            }
            for (int i = 0; i < 300; i++) {
                seen[static_cast<std::size_t>(std::stoi(*c.recv()))]++;
            }
            aco::when_all(senders);
            plain.join();
        },
        options);
    CHECK(std::count(seen.begin(), seen.end(), 1) == 300);
}

} // namespace

int main(int argc, char **argv)
{
    const test tests[] = {
        T(mutex_excludes),
        T(mutex_works_with_the_locks_of_the_standard),
        T(tasks_that_lock_several_come_to_an_end),
        T(shared_mutex_shares),
        T(condition_variable_wakes),
        T(threads_wait_for_a_time),
        T(a_cancelled_wait_tells_its_name),
        T(semaphore_and_latch_count),
        T(condition_variable_any_waits_with_any_lock),
        T(condition_variable_any_may_be_destroyed_once_all_are_notified),
        T(condition_variable_any_joins_threads),
        T(a_semaphore_has_bounds),
        T(call_once_calls_once),
        T(each_task_has_its_own_locals),
        T(there_may_be_any_number_of_locals),
        T(locals_may_use_others_when_they_end),
        T(channel_passes_values_in_order),
        T(channel_frees_what_its_values_took),
        T(channel_moves_values_and_gives_back_what_it_could_not_send),
        T(channel_passes_what_can_only_be_moved),
        T(a_recursive_mutex_is_locked_again_by_its_owner),
        T(a_shared_mutex_waits_for_a_time),
        T(a_barrier_lets_all_pass_together),
        T(a_barrier_joins_threads),
        T(channel_waits_for_a_time),
        T(select_does_one_case),
        T(select_waits),
        T(channel_joins_threads),
    };
    return run_tests(tests, argc, argv);
}
