// futures.cc shows futures and values of stackless coroutines, and one that comes from outside.
// SPDX-License-Identifier: Apache-2.0
/*
 * It prints:
 *
 *     from a stackless coroutine: 42
 *     awaited by another: 43
 *     fulfilled from outside: hello
 *     1 2 3
 */
#include "aco.hpp"

#include <cstdio>
#include <string>

using namespace std::chrono_literals;

namespace {

aco::future<int> answer()
{
    co_await aco::co::sleep_for(1ms);
    co_return 42;
}

aco::future<int> one_more()
{
    co_return co_await answer() + 1;
}

aco::future<void> greet(aco::future<std::string> promised)
{
    std::string text = co_await promised;
    std::printf("fulfilled from outside: %s\n", text.c_str());
}

aco::future<void> produce(aco::channel<int> &values)
{
    for (int i = 1; i <= 3; i++) {
        co_await aco::co::send(values, i);
    }
    values.close();
}

} // namespace

int main()
{
    aco::run([] {
        std::printf("from a stackless coroutine: %d\n", answer().get());
        std::printf("awaited by another: %d\n", aco::await(one_more()));
        aco::promise<std::string> promise;
        auto greeting = greet(promise.get_future());
        greeting.start();
        promise.set_value("hello");
        greeting.get();
        aco::channel<int> values;
        auto producer = produce(values);
        producer.start();
        for (int value : values) {
            std::printf("%d%s", value, value == 3 ? "\n" : " ");
        }
        producer.get();
    });
}
