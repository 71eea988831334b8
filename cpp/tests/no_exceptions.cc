// SPDX-License-Identifier: Apache-2.0
/* The parts of aco.hpp that work without exceptions and RTTI; and without the runtime. */
#ifdef WITHOUT_RUNTIME
#include "aco/generator.hpp"
#else
#include "aco.hpp"
#endif

#include <cstdio>
#include <memory>
#include <string>
#include <thread>

namespace {

int ct_faults;

void check(bool is_so)
{
    ct_faults += !is_so;
}

aco::generator<int> tree(int depth)
{
    return aco::generator<int>([depth](auto &yield) {
        if (depth > 0) {
            yield(tree(depth - 1));
            yield(depth);
            yield(tree(depth - 1));
        }
    });
}

void try_coroutines()
{
    int ct = 0;
    for (int depth : tree(5)) {
        ct += depth;
    }
    check(ct == 57);
    auto half = tree(5);
    check(*half.begin() == 1);
    aco::coroutine co([&] {
        aco_yield();
        ct = 0;
    });
    while (!co.done()) {
        co.resume();
    }
    check(ct == 0);
}

#ifndef WITHOUT_RUNTIME
int first(const std::string &fault)
{
    if (fault == "fails") {
        aco::within(std::chrono::milliseconds(1), [] { aco::sleep_for(std::chrono::hours(1)); });
    } else if (fault == "misuses") {
        auto joined = aco::spawn([] { return 1; });
        check(joined.join() == 1);
        aco::when_all(joined, aco::spawn([] {}));
    } else if (fault == "resumes itself") {
        aco::coroutine<> *self = nullptr;
        aco::coroutine co([&] { self->resume(); });
        self = &co;
        co.resume();
    } else if (fault == "iterates over itself") {
        aco::generator<int> *self = nullptr;
        aco::generator<int> values([&](auto &yield) {
            yield(1);
            ++self->begin();
        });
        self = &values;
        for (int value : values) {
            check(value == 1);
        }
    } else if (fault == "yields no value") {
        aco::coroutine<int()> co([](auto &) {
            aco_yield();
            return 1;
        });
        check(co.resume() == 1);
    } else if (fault == "yields for another") {
        aco::coroutine<int()> co([](auto &yield) {
            aco::coroutine inner([&] { yield(1); });
            inner.resume();
            return 1;
        });
        check(co.resume() == 1);
    } else if (fault == "resumes on its stack") {
        aco::stack_options shared;
        shared.share_stack = aco_share_stack_new(0);
        aco::coroutine co(shared, [] { aco_yield(); }), other(shared, [&] { co.resume(); });
        co.resume();
        other.resume();
    } else if (fault == "generates on a share stack") {
        aco::stack_options shared;
        shared.share_stack = aco_share_stack_new(0);
        aco::generator<int> values(shared, [](auto &yield) { yield(1); });
        values.begin();
    } else if (fault == "resumes another's") {
        auto values = tree(3);
        values.begin();
        std::thread([&] { ++values.begin(); }).join();
    } else if (fault == "destroys another's") {
        auto values = tree(3);
        values.begin();
        std::thread([&] { aco::generator<int> mine(std::move(values)); }).join();
    }
    aco::channel<std::unique_ptr<int>> c;
    auto sender = aco::spawn([&] { c.send(std::make_unique<int>(5)); });
    check(**c.recv() == 5);
    sender.join();
    aco::mutex m;
    std::scoped_lock lock(m);
    aco::group g;
    g.spawn([] { try_coroutines(); });
    g.join();
    auto [a, b] = aco::when_all(aco::spawn([] { return 1; }), aco::spawn([] { return 2; }));
    return aco::spawn([] { return 39; }).then([sum = a + b](int i) { return i + sum; }).join();
}
#endif

} // namespace

int main(int argc, char **argv)
{
    try_coroutines();
#ifndef WITHOUT_RUNTIME
    check(aco::run([&] { return first(argc > 1 ? argv[1] : ""); }) == 42);
#else
    (void)argc;
    (void)argv;
#endif
    return ct_faults;
}
