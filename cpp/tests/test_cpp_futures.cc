// SPDX-License-Identifier: Apache-2.0
/* aco::promise, future and shared_task. */
#include "cpp.hpp"

#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using aco::spawn;

/* ==== promise and future ===================================================================== */

static_assert(!std::is_copy_constructible_v<aco::promise<int>> &&
              std::is_nothrow_move_constructible_v<aco::promise<int>> &&
              std::is_nothrow_move_assignable_v<aco::promise<int>>);
static_assert(!std::is_copy_constructible_v<aco::future<int>> &&
              std::is_nothrow_default_constructible_v<aco::future<int>> &&
              std::is_nothrow_move_constructible_v<aco::future<int>> &&
              std::is_nothrow_move_assignable_v<aco::future<int>>);

template <class T, class... A> std::false_type sets(...);
template <class T, class... A>
auto sets(int)
    -> decltype(std::declval<aco::promise<T>>().set_value(std::declval<A>()...), std::true_type());
static_assert(decltype(sets<int, long>(0))::value && !decltype(sets<int>(0))::value &&
              !decltype(sets<int, std::string>(0))::value);
static_assert(decltype(sets<void>(0))::value && !decltype(sets<void, int>(0))::value);
static_assert(decltype(sets<int &, int &>(0))::value && !decltype(sets<int &, int>(0))::value);

void a_promise_is_kept_by_a_task_or_a_thread()
{
    aco::run([] {
        aco::promise<std::unique_ptr<int>> pointer;
        auto later = pointer.get_future();
        CHECK(later.valid() && !later.done());
        auto gets = spawn([&] { return later.get(); });
        let_others_wait();
        CHECK(!gets.done());
        pointer.set_value(std::make_unique<int>(3));
        CHECK(*gets.join() == 3);

        aco::promise<int> number;
        auto from_thread = number.get_future();
        std::thread setter([&number] { number.set_value(7); });
        CHECK(from_thread.get() == 7);
        setter.join();

        aco::promise<void> nothing;
        nothing.set_value(); /* before there is a future */
        auto is_there = nothing.get_future();
        CHECK(is_there.done());
        is_there.wait();
        is_there.get();

        int target = 0;
        aco::promise<int &> reference;
        reference.set_value(target);
        CHECK(&reference.get_future().get() == &target);

        aco::promise<int> fails;
        fails.set_exception(std::make_exception_ptr(std::out_of_range("x")));
        CHECK_THROWS(std::out_of_range, true, fails.get_future().get());
    });
    aco::promise<int> outside; /* without a runtime */
    auto got = outside.get_future();
    std::thread setter([&] { outside.set_value(1); });
    CHECK(got.get() == 1);
    setter.join();
}

void a_promise_is_kept_once()
{
    aco::promise<int> p;
    auto f = p.get_future();
    CHECK_FAILS(std::errc::connection_already_in_progress, (void)p.get_future());
    p.set_value(1);
    CHECK_FAILS(std::errc::connection_already_in_progress, p.set_value(2));
    CHECK_FAILS(std::errc::connection_already_in_progress,
                p.set_exception(std::make_exception_ptr(1)));
    CHECK(f.get() == 1);
    {
        aco::promise<int> broken;
        f = broken.get_future();
        aco::promise<int> moved = std::move(broken);
    }
    CHECK_FAILS(std::errc::broken_pipe, f.get());
    struct throws_when_copied {
        bool throws;
        explicit throws_when_copied(bool t) : throws(t)
        {
        }
        throws_when_copied(const throws_when_copied &other) : throws(other.throws)
        {
            if (throws) {
                throw std::length_error("copy");
            }
        }
    };
    aco::promise<throws_when_copied> again;
    const throws_when_copied bad(true), good(false);
    CHECK_THROWS(std::length_error, true, again.set_value(bad));
    again.set_value(good); /* nothing was set before */
    CHECK(!again.get_future().get().throws);
}

void a_promise_and_its_future_free_their_state()
{
    aco::promise<counted> unused;
    {
        aco::promise<counted> p;
        auto f = p.get_future();
        p.set_value(counted(1));
        CHECK(counted::ct_alive == 1);
    }
    CHECK(counted::ct_alive == 0);
    aco::promise<counted> p;
    {
        auto dropped = p.get_future();
    }
    p.set_value(counted(1));
    p = aco::promise<counted>();
    CHECK(counted::ct_alive == 0);
}

void the_wait_for_a_future_can_end()
{
    aco::run([] {
        aco::promise<int> p;
        auto f = p.get_future();
        check_wait_ends([&] { f.get(); });
        check_wait_ends([&] { f.wait(); });
        check_wait_ends([&] { (void)f.wait_for(for_ever); });
        CHECK(!f.wait_for(1ms) && !f.wait_until(std::chrono::system_clock::now()));
        p.set_value(5);
        CHECK(f.wait_for(0ms) && f.get() == 5);
    });
}

void a_future_and_its_end_may_meet()
{
    aco::run_options options = {};
    options.ct_threads = 2;
    aco::run(
        [] {
            aco::task_options there = {};
            there.thread = ACO_THREAD(1);
            for (int i = 0; i < 2000; i++) {
                aco::promise<int> p;
                auto f = p.get_future();
                auto setter = spawn(there, [p = std::move(p), i]() mutable { p.set_value(i); });
                for (int k = 0; k < i % 20; k++) {
                    aco::yield();
                }
                if (i % 4 == 0) {
                    f = {};
                } else if (i % 4 == 1) {
                    while (!f.wait_for(std::chrono::microseconds(i % 10))) {
                    }
                    CHECK(f.get() == i);
                } else {
                    CHECK(f.get() == i);
                }
                setter.join();
            }
        },
        options);
}

void misuse_of_futures_and_promises_is_told()
{
    auto ends = [](const char *message, auto f) {
        auto [said, status] = said_by(f);
        return said.find(message) == 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    };
    CHECK(ends("aco: aco::future: it was moved from", [] { aco::future<int>().get(); }));
    CHECK(ends("aco: aco::promise: it was moved from", [] {
        aco::promise<int> from, to = std::move(from);
        from.set_value(1);
    }));
    CHECK(ends("aco: aco::shared_task::join: it has no task",
               [] { (void)aco::shared_task<int>().join(); }));
    CHECK(ends("aco: aco::shared_task: it was joined", [] {
        aco::shared_task<void> none = aco::task<void>();
        none.join();
    }));
    CHECK(ends("aco: aco::future: another one waits", [] {
        aco::promise<int> p;
        auto f = p.get_future();
        auto first = spawn([&] { f.get(); });
        let_others_wait();
        f.get();
    }));
}

/* ==== shared_task ============================================================================ */

static_assert(std::is_copy_constructible_v<aco::shared_task<int>> &&
              std::is_copy_assignable_v<aco::shared_task<int>>);
using text_task = aco::shared_task<std::string>;
static_assert(std::is_same_v<decltype(std::declval<text_task>().join()), const std::string &>);
static_assert(std::is_same_v<decltype(std::declval<aco::shared_task<int &>>().join()), int &>);
static_assert(std::is_same_v<decltype(std::declval<aco::shared_task<void>>().join()), void>);

void several_join_a_shared_task()
{
    aco::run([] {
        text_task text = spawn([] {
            aco::yield();
            return std::string("text");
        });
        std::vector<aco::task<std::size_t>> joiners;
        for (int i = 0; i < 3; i++) {
            joiners.push_back(spawn([text] { return text.join().size(); }));
            joiners.push_back(text.then([](const std::string &t) { return t.size(); }));
        }
        CHECK(!text.done() && text.joinable() && text.id() != 0);
        for (auto &each : joiners) {
            CHECK(each.join() == 4);
        }
        CHECK(text.done() && text.join() == "text" && &text.join() == &text.join());
        CHECK(text.then([](const std::string &t) { return t + "!"; }).join() == "text!");
        int target = 1;
        aco::shared_task<int &> reference = spawn([&]() -> int & { return target; });
        CHECK(&reference.join() == &target);
        aco::shared_task<void> nothing = spawn([] {});
        nothing.join();
        nothing.then([&] { target = 2; }).join();
        CHECK(target == 2);
        aco::shared_task<counted> object = spawn([] { return counted(9); });
        CHECK(object.join().value == 9 && counted::ct_copies == 0);
    });
}

void several_get_the_exception_of_a_shared_task()
{
    auto [said, status] = said_by([] {
        aco::shared_task<int> failing = spawn([]() -> int { throw std::out_of_range("x"); });
        auto other = spawn([=] { return failing.join(); });
        CHECK_THROWS(std::out_of_range, true, (void)failing.join());
        CHECK_THROWS(std::out_of_range, true, (void)other.join());
        CHECK_THROWS(std::out_of_range, true, (void)failing.join());
        auto next = failing.then([](int) { CHECK(false); });
        CHECK_THROWS(std::out_of_range, true, next.join());
    });
    CHECK(said == "" && status == 0);
    said = said_by([] {
               aco::shared_task<int> failing = spawn([]() -> int { throw std::out_of_range("x"); });
               let_others_wait();
           }).first;
    CHECK(said.find("aco: an exception leaves a task that is never joined") == 0);
}

void the_last_copy_of_a_shared_task_ends_it()
{
    aco::run([] {
        bool is_cancelled = false;
        auto waits = [&] {
            CHECK_FAILS(std::errc::operation_canceled, aco::sleep_for(for_ever));
            is_cancelled = true;
        };
        {
            aco::shared_task<void> a = spawn(waits), b = a;
            let_others_wait();
            a = {};
            let_others_wait();
            CHECK(!is_cancelled && !a.joinable() && !b.done());
        }
        CHECK(is_cancelled);
        aco::shared_task<void> asked = spawn(waits);
        check_wait_ends([&] { asked.join(); });
        is_cancelled = false;
        asked.cancel();
        asked.join();
        CHECK(is_cancelled);
        is_cancelled = false;
        {
            auto last = aco::shared_task<void>(spawn(waits)).then([] {});
            let_others_wait();
        }
        CHECK(is_cancelled);
    });
}

void threads_join_a_shared_task()
{
    aco::run_options options = {};
    options.ct_threads = 3;
    aco::run(
        [] {
            aco::task_options anywhere = {};
            anywhere.thread = ACO_ANY;
            for (int i = 0; i < 300; i++) {
                aco::shared_task<std::string> text =
                    spawn(anywhere, [i] { return std::string(40, 'x') + std::to_string(i); });
                std::vector<aco::task<bool>> joiners;
                for (int k = 0; k < 5; k++) {
                    joiners.push_back(spawn(anywhere, [text, i] {
                        return text.join().substr(40) == std::to_string(i);
                    }));
                }
                text = {};
                for (bool is_equal : aco::when_all(joiners)) {
                    CHECK(is_equal);
                }
            }
        },
        options);
}

} // namespace

int main(int argc, char **argv)
{
    const test tests[] = {
        T(a_promise_is_kept_by_a_task_or_a_thread),
        T(a_promise_is_kept_once),
        T(a_promise_and_its_future_free_their_state),
        T(the_wait_for_a_future_can_end),
        T(a_future_and_its_end_may_meet),
        T(misuse_of_futures_and_promises_is_told),
        T(several_join_a_shared_task),
        T(several_get_the_exception_of_a_shared_task),
        T(the_last_copy_of_a_shared_task_ends_it),
        T(threads_join_a_shared_task),
    };
    return run_tests(tests, argc, argv);
}
