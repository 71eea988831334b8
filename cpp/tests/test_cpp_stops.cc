// SPDX-License-Identifier: Apache-2.0
/* Stop tokens, those of tasks and others, in each dialect. */
#include "cpp.hpp"

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using aco::spawn;
using aco::stop_callback;
using aco::stop_source;
using aco::stop_token;

void sources_and_tokens_share_a_state()
{
    stop_token none;
    stop_source source, never(aco::nostopstate);
    CHECK(!none.stop_possible() && !none.stop_requested() && none == never.get_token());
    CHECK(!never.stop_possible() && !never.request_stop() && !never.stop_requested());
    stop_token token = source.get_token(), copy = token, other = stop_source().get_token();
    CHECK(token == copy && token != none && source == stop_source(source) && source != never);
    CHECK(token.stop_possible() && !token.stop_requested());
    CHECK(!other.stop_possible()); /* its source is gone */
    stop_source moved = std::move(source);
    CHECK(moved.get_token() == token && moved.request_stop() && !moved.request_stop());
    CHECK(moved.stop_requested() && copy.stop_requested() && copy.stop_possible());
    swap(token, none);
    CHECK(none == copy && !token.stop_possible());
    swap(moved, never);
    CHECK(never.stop_requested());
    {
        stop_source second(never);
        second = stop_source();
        token = second.get_token();
        CHECK(token.stop_possible());
    }
    CHECK(!token.stop_possible());
    never = stop_source(aco::nostopstate);
    CHECK(copy.stop_requested() && copy.stop_possible());
}

void callbacks_are_called_once_or_never()
{
    stop_source source;
    int calls = 0;
    auto count = [&] { calls++; };
    {
        stop_callback gone(source.get_token(), count);
        stop_callback not_possible(stop_token(), count);
    }
    stop_callback first(source.get_token(), count);
    std::optional<stop_callback<decltype(count)>> second(std::in_place, source.get_token(), count),
        third(std::in_place, source.get_token(), count);
    second.reset();
    CHECK(calls == 0 && source.request_stop() && calls == 2);
    CHECK(!source.request_stop() && calls == 2);
    stop_callback late(source.get_token(), count);
    CHECK(calls == 3);
    third.reset();
    CHECK(calls == 3);
}

void a_callback_may_destroy_itself_and_others()
{
    struct call {
        std::function<void()> f;
        void operator()() const
        {
            f();
        }
    };
    stop_source source;
    int calls = 0;
    std::optional<stop_callback<call>> own, others[3];
    own.emplace(source.get_token(), call{[&] {
                    calls++;
                    own.reset();
                }});
    for (auto &each : others) {
        each.emplace(source.get_token(), call{[&] {
                         calls++;
                         for (auto &any : others) {
                             any.reset();
                         }
                     }});
    }
    CHECK(source.request_stop() && calls == 2 && !own.has_value());
}

void the_end_of_a_callback_waits_for_other_threads()
{
    for (int i = 0; i < 20; i++) {
        stop_source source;
        std::atomic<int> at{0};
        std::optional<std::thread> requester;
        {
            auto slow = [&] {
                at = 1;
                std::this_thread::sleep_for(1ms);
                at = 2;
            };
            stop_callback runs(source.get_token(), slow);
            requester.emplace([&] { source.request_stop(); });
            while (at == 0) {
            }
        }
        CHECK(at == 2);
        requester->join();
    }
}

void threads_request_a_stop_once()
{
    for (int round = 0; round < 50; round++) {
        stop_source source;
        std::atomic<int> ct_calls{0}, ct_requests{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; i++) {
            threads.emplace_back([&, token = source.get_token(), mine = source] {
                auto count = [&] { ct_calls++; };
                stop_callback each(token, count);
                ct_requests += mine.request_stop();
                while (ct_requests == 0) {
                }
                while (ct_calls == 0) {
                }
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        CHECK(ct_requests == 1 && ct_calls == 4);
    }
}

void a_task_sees_by_its_token_that_it_was_cancelled()
{
    CHECK(!aco::this_task_stop_token().stop_possible());
    aco::run([] {
        stop_token inside;
        auto t = spawn([&] {
            inside = aco::this_task_stop_token();
            CHECK(inside == aco::this_task_stop_token());
            CHECK(inside.stop_possible() && !inside.stop_requested());
            CHECK_FAILS(std::errc::operation_canceled, aco::sleep_for(for_ever));
            CHECK(inside.stop_requested());
        });
        let_others_wait();
        stop_token outside = t.get_stop_token();
        CHECK(outside == inside && !outside.stop_requested());
        t.cancel();
        CHECK(outside.stop_requested());
        t.join();
        CHECK(inside.stop_requested());
        CHECK(!aco::this_task_stop_token().stop_requested());

        auto before = spawn([] { CHECK(aco::this_task_stop_token().stop_requested()); });
        before.cancel(); /* before anything asks for its token */
        before.join();
    });
}

void a_task_that_computes_sees_a_stop_from_another_thread()
{
    aco::run_options options = {};
    options.ct_threads = 2;
    aco::run(
        [] {
            aco::task_options other;
            other.thread = ACO_THREAD(1);
            std::atomic<bool> has_begun{false};
            auto t = spawn(other, [&] {
                stop_token stop = aco::this_task_stop_token();
                has_begun = true;
                while (!stop.stop_requested()) { /* never waits */
                }
                return 7;
            });
            while (!has_begun) {
            }
            t.cancel();
            CHECK(t.join() == 7);
        },
        options);
}

void all_that_cancels_requests_a_stop()
{
    aco::run([] {
        stop_token tokens[4];
        auto wait = [&](int i) {
            tokens[i] = aco::this_task_stop_token();
            aco::sleep_for(for_ever);
        };
        {
            auto dropped = spawn([&] { wait(0); });
            let_others_wait();
        }
        aco::group cancelled, failing;
        cancelled.spawn([&] {
            aco::group inner;
            inner.spawn([&] { wait(1); });
            inner.join();
        });
        failing.spawn([&] { wait(2); });
        let_others_wait();
        CHECK(tokens[0].stop_requested() && !tokens[1].stop_requested());
        cancelled.cancel();
        cancelled.join();
        failing.spawn([] { throw 1; });
        CHECK_THROWS(int, e == 1, failing.join());
        CHECK(tokens[1].stop_requested() && tokens[2].stop_requested());
        CHECK_FAILS(std::errc::timed_out, aco::within(1ms, [&] { wait(3); }));
        CHECK(!tokens[3].stop_requested()); /* being late is no stop */
        auto ended = spawn([] {});
        tokens[3] = ended.get_stop_token();
        ended.join();
        CHECK(!tokens[3].stop_requested() && !tokens[3].stop_possible());
    });
}

void callbacks_run_in_the_call_that_cancels()
{
    aco::run([] {
        std::uint64_t caller = 0;
        int ct_calls = 0;
        auto t = spawn([&] {
            auto note = [&] {
                caller = aco::this_task_id();
                ct_calls++;
            };
            stop_callback noted(aco::this_task_stop_token(), note);
            CHECK_FAILS(std::errc::operation_canceled, aco::sleep_for(for_ever));
        });
        let_others_wait();
        t.cancel();
        CHECK(ct_calls == 1 && caller == aco::this_task_id());
        t.cancel();
        t.join();
        CHECK(ct_calls == 1);
    });
}

void a_source_of_a_task_cancels_it()
{
    aco::run([] {
        auto t = spawn([] { aco::sleep_for(for_ever); });
        stop_source source = t.get_stop_source();
        CHECK(source == t.get_stop_source() && source.get_token() == t.get_stop_token());
        std::thread([&] { CHECK(source.request_stop()); }).join();
        CHECK_FAILS(std::errc::operation_canceled, t.join());
        CHECK(!source.request_stop());

        stop_source later;
        {
            auto ended = spawn([] {});
            later = ended.get_stop_source();
            ended.join();
        }
        CHECK(later.request_stop()); /* the task is gone */

        auto alone = spawn([] { (void)aco::this_task_stop_token(); });
        later = alone.get_stop_source();
        alone.detach();
        let_others_wait();
        CHECK(later.request_stop());
    });
}

void a_callback_may_cancel_those_that_are_being_cancelled()
{
    aco::run([] {
        aco::group g;
        std::vector<aco_task_t *> tasks;
        int ct_calls = 0;
        auto cancel_one = [&] {
            ct_calls++;
            aco_task_cancel(tasks[2]);
        };
        for (int i = 0; i < 5; i++) {
            g.spawn([&] {
                tasks.push_back(aco_self());
                stop_callback each(aco::this_task_stop_token(), cancel_one);
                aco::sleep_for(for_ever);
            });
        }
        let_others_wait();
        g.cancel();
        CHECK(ct_calls == 5);
        g.join();
    });
}

/* While the first task of a group is told that it was cancelled, the second one ends, and another
 * task gets its memory. */
void a_task_that_is_freed_is_not_cancelled_any_more()
{
    aco::run_options options = {};
    options.ct_threads = 2;
    aco::run(
        [] {
            aco::task_options other;
            other.thread = ACO_THREAD(1);
            std::atomic<int> ct_begun{0};
            std::atomic<bool> has_ended{false}, is_made{false}, may_end{false};
            aco::group g;
            g.spawn(other, [&] {
                auto wait = [&] {
                    while (!is_made) {
                    }
                };
                stop_callback slow(aco::this_task_stop_token(), wait);
                ct_begun++;
                aco::shielded([&] {
                    while (!may_end) {
                        aco::yield();
                    }
                });
            });
            g.spawn(other, [&] {
                (void)aco::this_task_stop_token();
                ct_begun++;
                CHECK_FAILS(std::errc::operation_canceled, aco::sleep_for(for_ever));
                has_ended = true;
            });
            auto maker = spawn(other, [&] {
                while (!has_ended) {
                    aco::yield();
                }
                let_others_wait();
                std::vector<aco::task<void>> made;
                for (int i = 0; i < 4; i++) {
                    made.push_back(spawn([&] {
                        while (!may_end) {
                            aco::yield();
                        }
                        aco::yield();
                    }));
                }
                is_made = true;
                for (auto &each : made) {
                    each.join();
                }
            });
            while (ct_begun != 2) {
                aco::yield();
            }
            g.cancel();
            may_end = true;
            maker.join();
            g.join();
        },
        options);
}

void tasks_end_while_others_request_a_stop()
{
    aco::run_options options = {};
    options.ct_threads = 3;
    aco::run(
        [] {
            aco::task_options anywhere;
            anywhere.thread = ACO_ANY;
            for (int i = 0; i < 300; i++) {
                stop_source source;
                auto t = spawn(anywhere, [&] {
                    for (int k = i % 7; k > 0; k--) {
                        (void)aco::this_task_stop_token();
                    }
                });
                source = t.get_stop_source();
                auto requester = spawn(anywhere, [mine = source] { mine.request_stop(); });
                auto canceller = spawn(anywhere, [&] { t.cancel(); });
                canceller.join();
                t.join();
                requester.join();
                CHECK(source.stop_requested());
            }
        },
        options);
}

/* A lock of one's own. */
struct own_lock {
    aco::mutex mutex;
    bool is_held = false;
    void lock()
    {
        mutex.lock();
        is_held = true;
    }
    void unlock()
    {
        is_held = false;
        mutex.unlock();
    }
};

void waits_end_by_a_stop()
{
    aco::run([] {
        own_lock lock;
        aco::condition_variable_any changed;
        stop_source source;
        bool is_set = false;
        auto is_so = [&] { return is_set; };
        auto wait = [&](auto how) {
            return spawn([&, how] {
                std::unique_lock<own_lock> held(lock);
                bool result = how(held);
                CHECK(lock.is_held);
                return result;
            });
        };
        auto plain =
            wait([&](auto &held) { return changed.wait(held, source.get_token(), is_so); });
        auto timed = wait([&](auto &held) {
            return changed.wait_for(held, source.get_token(), for_ever, is_so);
        });
        auto late = wait(
            [&](auto &held) { return changed.wait_for(held, source.get_token(), 1ms, is_so); });
        CHECK(!late.join() && !plain.done() && !timed.done());
        source.request_stop();
        CHECK(!plain.join() && !timed.join());
        auto already =
            wait([&](auto &held) { return changed.wait(held, source.get_token(), is_so); });
        CHECK(!already.join());
        auto never = wait([&](auto &held) { return changed.wait(held, stop_token(), is_so); });
        let_others_wait();
        is_set = true;
        changed.notify_all();
        CHECK(never.join());
    });
}

void a_wait_with_the_tasks_own_token_ends_by_cancelling()
{
    aco::run([] {
        aco::mutex mutex;
        aco::condition_variable_any changed;
        auto waits = [&](auto get_token) {
            return spawn([&, get_token] {
                std::unique_lock lock(mutex);
                bool is_so = changed.wait(lock, get_token(), [] { return false; });
                CHECK(lock.owns_lock());
                return is_so;
            });
        };
        auto own = waits([] { return aco::this_task_stop_token(); });
        auto others = waits([] { return stop_token(); });
        let_others_wait();
        own.cancel();
        others.cancel();
        CHECK(!own.join());
        CHECK_FAILS(std::errc::operation_canceled, (void)others.join());
        auto before = waits([] { return aco::this_task_stop_token(); });
        before.cancel();
        CHECK(!before.join());
        auto late = spawn([&] {
            std::unique_lock lock(mutex);
            aco::within(1ms, [&] {
                changed.wait(lock, aco::this_task_stop_token(), [] { return false; });
            });
        });
        CHECK_FAILS(std::errc::timed_out, late.join());
    });
}

void condition_variable_any_is_stopped()
{
    aco::run([] {
        aco::condition_variable_any c;
        aco::mutex m;
        auto never = [] { return false; };
        for (bool is_timed : {false, true}) {
            stop_source source;
            auto waiting = spawn([&, stop = source.get_token()] {
                std::unique_lock<aco::mutex> lock(m);
                bool is_so = is_timed ? c.wait_for(lock, stop, for_ever, never)
                                      : c.wait(lock, stop, never);
                CHECK(lock.owns_lock());
                return is_so;
            });
            let_others_wait();
            CHECK(!waiting.done());
            source.request_stop();
            CHECK(!waiting.join());
            std::unique_lock<aco::mutex> lock(m);
            CHECK(c.wait(lock, source.get_token(), [] { return true; }));
            CHECK(!c.wait(lock, source.get_token(), never));
        }
        stop_source source;
        std::unique_lock<aco::mutex> lock(m);
        auto now = std::chrono::steady_clock::now();
        CHECK(!c.wait_until(lock, source.get_token(), now, never));
        int ct = 0;
        auto other = spawn([&] {
            ct = 1;
            c.notify_all();
        });
        CHECK(c.wait(lock, source.get_token(), [&] { return std::exchange(ct, 0) == 1; }));
        other.join();
        CHECK(lock.owns_lock());
    });
}

/* Another thread stops, at any moment of the wait. */
void condition_variable_any_is_stopped_by_threads()
{
    aco::run([] {
        for (int i = 0; i < 200; i++) {
            aco::condition_variable_any c;
            aco::mutex m;
            stop_source source;
            std::thread other([&] { source.request_stop(); });
            std::unique_lock<aco::mutex> lock(m);
            CHECK(!c.wait(lock, source.get_token(), [] { return false; }));
            other.join();
        }
    });
}

} // namespace

int main(int argc, char **argv)
{
    const test tests[] = {
        T(sources_and_tokens_share_a_state),
        T(callbacks_are_called_once_or_never),
        T(a_callback_may_destroy_itself_and_others),
        T(the_end_of_a_callback_waits_for_other_threads),
        T(threads_request_a_stop_once),
        T(a_task_sees_by_its_token_that_it_was_cancelled),
        T(a_task_that_computes_sees_a_stop_from_another_thread),
        T(all_that_cancels_requests_a_stop),
        T(callbacks_run_in_the_call_that_cancels),
        T(a_source_of_a_task_cancels_it),
        T(a_callback_may_cancel_those_that_are_being_cancelled),
        T(a_task_that_is_freed_is_not_cancelled_any_more),
        T(tasks_end_while_others_request_a_stop),
        T(waits_end_by_a_stop),
        T(condition_variable_any_is_stopped),
        T(condition_variable_any_is_stopped_by_threads),
        T(a_wait_with_the_tasks_own_token_ends_by_cancelling),
    };
    return run_tests(tests, argc, argv);
}
