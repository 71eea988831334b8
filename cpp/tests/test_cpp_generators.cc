// SPDX-License-Identifier: Apache-2.0
/* aco::coroutine and aco::generator, with and without a runtime. */
#include "cpp.hpp"

#include <array>
#include <cfenv>
#include <cmath>
#include <fstream>
#include <numeric>
#include <thread>
#include <vector>
#if __cplusplus >= 202002L && (!defined(__clang__) || __clang_major__ >= 16)
#include <ranges>
#endif

namespace {

using aco::generator;

/* ==== Coroutines ============================================================================= */

void resumes_to_the_end()
{
    int step = 0;
    aco::coroutine co([&, owned = std::make_unique<int>(5)] {
        step = *owned;
        aco_yield();
        step = 2;
    });
    CHECK(step == 0 && !co.done());
    co.resume();
    CHECK(step == 5 && !co.done() && co);
    co.resume();
    CHECK(step == 2 && co.done() && !co);
}

void is_moved_while_suspended()
{
    int ct = 0;
    aco::coroutine first([&] {
        ct++;
        aco_yield();
        ct++;
    });
    aco::coroutine second(std::move(first));
    CHECK(first.done());
    second.resume();
    aco::coroutine third(std::move(second));
    third.resume();
    CHECK(ct == 2 && third.done() && second.done());
}

void is_assigned_while_suspended()
{
    int ct = 0;
    {
        aco::coroutine ended([&, object = counted()] { /* its object goes when it is assigned to */
                                                       counted another;
                                                       ct++;
                                                       aco_yield();
                                                       ct += 100;
        });
        aco::coroutine other([&, object = counted()] {
            ct += 10;
            aco_yield();
            ct += 10;
        });
        ended.resume();
        other.resume();
        CHECK(ct == 11 && counted::ct_alive == 3);
        ended = std::move(other);
        CHECK(counted::ct_alive == 1 && other.done() && !ended.done());
        aco::coroutine<> &itself = ended;
        ended = std::move(itself);
        ended.resume();
        CHECK(ct == 21 && ended.done());
        ended = aco::coroutine([&] { ct++; });
        CHECK(!ended.done());
        ended.resume();
        CHECK(ct == 22);
    }
    CHECK(counted::ct_alive == 0);
}

void passes_values_both_ways()
{
    aco::coroutine<std::string(int)> co([](auto &yield, int first) {
        int second = yield(std::to_string(first));
        int third = yield(std::to_string(first + second));
        return std::to_string(first + second + third);
    });
    CHECK(co.resume(1) == "1");
    auto moved = std::move(co); /* suspended */
    CHECK(co.done() && moved.resume(10) == "11" && !moved.done());
    CHECK(moved.resume(100) == "111" && moved.done());

    aco::coroutine<std::unique_ptr<int>(std::unique_ptr<int>)> owned(
        [](auto &yield, std::unique_ptr<int> value) {
            for (int i = 0; i < 3; i++) {
                ++*value;
                value = yield(std::move(value));
            }
            return value;
        });
    auto value = std::make_unique<int>(0);
    const int *place = value.get();
    while (!owned.done()) {
        value = owned.resume(std::move(value));
    }
    CHECK(*value == 3 && value.get() == place);

    int a = 1, b = 2;
    aco::coroutine<int &(int &)> referred([](auto &yield, int &first) -> int & {
        int &second = yield(first);
        second++;
        return second;
    });
    CHECK(&referred.resume(a) == &a && &referred.resume(b) == &b && b == 3);

    int sum = 0;
    aco::coroutine<void(int)> sink([&](auto &yield, int i) {
        for (; i != 0; i = yield()) {
            sum += i;
        }
    });
    for (int i : {1, 2, 3, 0}) {
        sink.resume(i);
    }
    CHECK(sum == 6 && sink.done());
    aco::coroutine<counted()> source([](auto &yield) {
        yield(counted(1));
        return counted(2);
    });
    CHECK(source.resume().value == 1 && source.resume().value == 2 && source.done());
    aco::coroutine<> plain([&](auto &yield) {
        yield();
        sum++;
    });
    plain.resume();
    CHECK(sum == 6);
    plain.resume();
    CHECK(sum == 7 && plain.done());
}

void an_exception_leaves_the_resume_with_a_value()
{
    aco::coroutine<int(int)> co([](auto &yield, int i) {
        i = yield(i);
        throw i;
        return 0;
    });
    CHECK(co.resume(1) == 1);
    CHECK_THROWS(int, e == 5, co.resume(5));
    CHECK(co.done());
    {
        aco::coroutine<counted(counted)> left([](auto &yield, counted first) {
            counted second = yield(std::move(first));
            return yield(std::move(second));
        });
        (void)left.resume(counted(1));
    }
    CHECK(counted::ct_alive == 0);
}

void coroutines_have_ids()
{
    aco::coroutine a([] {}), b([] {});
    auto id = a.id();
    CHECK(id != 0 && id != b.id() && id == a.id());
    aco::coroutine c = std::move(a);
    CHECK(c.id() == id && a.id() != id);
    c.resume();
    CHECK(c.id() == id);
}

/* Uses some 200 KiB of stack. */
int use_stack(int depth)
{
    volatile char bytes[1024] = {};
    bytes[depth] = 1;
    return depth == 0 ? 0 : use_stack(depth - 1) + bytes[depth];
}

void stacks_have_sizes_and_pools()
{
    auto deep = [](auto &yield) { yield(use_stack(1000)); };
    aco::stack_options large, own;
    large.stack_sz = 4 << 20;
    generator<int> values(large, deep);
    CHECK(*values.begin() == 1000);
    auto stats = aco::stack_pool_stats(large);
    CHECK(stats.in_use == 1 && stats.stack_sz >= large.stack_sz);
    CHECK(aco::stack_pool_stats().stack_sz >= 256 << 10);
    own.pool = aco_stack_pool_new(4 << 20, 0);
    {
        generator<int> pooled(own, deep), moved(std::move(pooled));
        aco::coroutine<int()> co(own, [](auto &) { return use_stack(1000); });
        CHECK(aco::stack_pool_stats(own).in_use == 0);
        CHECK(*moved.begin() == 1000 && aco::stack_pool_stats(own).in_use == 1);
        pooled = std::move(moved);
        auto two = [](auto &yield) { yield(2); };
        generator<int> assigned(two);
        assigned = generator<int>(own, two);
        CHECK(*assigned.begin() == 2 && aco::stack_pool_stats(own).in_use == 2);
        assigned = generator<int>(two);
        CHECK(co.resume() == 1000 && aco::stack_pool_stats(own).ct_get == 3);
        CHECK(aco::stack_pool_stats(own).in_use == 1);
    }
    CHECK(aco::stack_pool_stats(own).in_use == 0);
    aco_stack_pool_destroy(own.pool);
    aco::stack_options small;
    small.stack_sz = 1;
    aco::coroutine least(small, [] { aco_yield(); });
    least.resume();
    CHECK(aco::stack_pool_stats(small).stack_sz < 256 << 10);
}

void coroutines_share_a_stack()
{
    aco::stack_options shared;
    aco_t *creator = aco_get_co();
    if (creator == nullptr) {
        aco_thread_init(nullptr);
    }
    shared.share_stack = aco_share_stack_new(0);
    {
        using adder = aco::coroutine<int(int)>;
        std::vector<adder> all;
        for (int i = 0; i < 20; i++) {
            all.emplace_back(shared, [object = counted(i)](auto &yield, int value) {
                counted sum(object.value);
                for (;;) {
                    sum.value += value;
                    value = yield(sum.value);
                }
                return 0;
            });
        }
        CHECK(shared.share_stack->ct_coroutines == 0);
        for (int k = 1; k <= 3; k++) {
            for (int i = 0; i < 20; i++) {
                CHECK(all[static_cast<std::size_t>(i)].resume(10) == i + 10 * k);
            }
        }
        CHECK(counted::ct_alive == 40);
        adder fails(shared, [](auto &yield, int i) {
            counted object(yield(i));
            throw object.value;
            return 0;
        });
        CHECK(fails.resume(1) == 1 && all[3].resume(0) == 33);
        CHECK_THROWS(int, e == 7, fails.resume(7));
        aco::coroutine left(
            shared, [] { aco_yield(); }, aco::on_destruction::destroys);
        left.resume();
    }
    CHECK(counted::ct_alive == 0 && shared.share_stack->ct_coroutines == 0);
    aco_share_stack_destroy(shared.share_stack);
}

/* Its callable lies on the heap. */
void has_a_large_callable()
{
    std::array<int, 100> numbers;
    numbers.fill(3);
    int sum = 0;
    {
        aco::coroutine first([&sum, numbers, object = counted()] {
            for (int i : numbers) {
                sum += i;
                aco_yield();
            }
        });
        aco::coroutine never_resumed([&sum, numbers, object = counted()] { sum += numbers[0]; });
        CHECK(counted::ct_alive == 2 && counted::ct_copies == 0);
        aco::coroutine second(std::move(first));
        second.resume();
        aco::coroutine third(std::move(second));
        while (!third.done()) {
            third.resume();
        }
        CHECK(sum == 300 && counted::ct_alive == 1);
    }
    CHECK(counted::ct_alive == 0);
}

void exception_leaves_resume()
{
    aco::coroutine co([] {
        counted object;
        aco_yield();
        throw std::runtime_error("thrown");
    });
    co.resume();
    CHECK_THROWS(std::runtime_error, e.what() == std::string("thrown"), co.resume());
    CHECK(co.done());
}

void destructor_unwinds_or_destroys()
{
    {
        aco::coroutine co([] {
            counted object;
            aco_yield();
        });
        co.resume();
        CHECK(counted::ct_alive == 1);
    }
    CHECK(counted::ct_alive == 0);
    {
        aco::coroutine co(
            [] {
                counted object;
                aco_yield();
            },
            aco::on_destruction::destroys);
        co.resume();
    }
    CHECK(counted::ct_alive == 1);
    counted::ct_alive = 0;
    {
        aco::coroutine never_resumed([object = counted()] {});
    }
    CHECK(counted::ct_alive == 0);
}

void suspends_inside_catch_blocks()
{
    auto body = [](const char *what) {
        return [what] {
            try {
                throw std::runtime_error(what);
            } catch (const std::exception &) {
                aco_yield();
                CHECK_THROWS(std::exception, e.what() == std::string(what), throw);
            }
        };
    };
    aco::coroutine a(body("a")), b(body("b"));
    a.resume();
    b.resume();
    CHECK(std::current_exception() == nullptr);
    try {
        throw std::runtime_error("mine");
    } catch (const std::exception &mine) {
        a.resume();
        CHECK_THROWS(std::exception, e.what() == std::string("mine"), throw);
    }
    b.resume();
    CHECK(a.done() && b.done());
}

/* ==== Generators ============================================================================= */

generator<int> count(int ct)
{
    return generator<int>([ct](auto &yield) {
        for (int i = 1; i <= ct; i++) {
            yield(i);
        }
    });
}

int sum(generator<int> values)
{
    int total = 0;
    for (int value : values) {
        total += value;
    }
    return total;
}

void yields_values_in_order()
{
    int last = 0;
    for (int value : count(1000)) {
        CHECK(value == last + 1);
        last = value;
    }
    CHECK(last == 1000);
    CHECK(sum(count(0)) == 0);
}

void runs_only_as_far_as_wanted()
{
    int made = 0;
    generator<int> lazy([&](auto &yield) {
        for (;;) {
            yield(++made);
        }
    });
    CHECK(made == 0);
    auto i = lazy.begin();
    CHECK(made == 1 && *i == 1);
    ++i;
    CHECK(made == 2 && *i == 2 && i != lazy.end());
    CHECK(*lazy.begin() == 2); /* at the present value */
}

void yields_move_only_values_without_copies()
{
    generator<std::unique_ptr<int>> pointers([](auto &yield) {
        for (int i = 0; i < 3; i++) {
            yield(std::make_unique<int>(i));
        }
    });
    std::vector<std::unique_ptr<int>> kept;
    for (auto &p : pointers) {
        kept.push_back(std::move(p));
    }
    CHECK(kept.size() == 3 && *kept[2] == 2);

    counted::ct_copies = 0;
    generator<counted> temporaries([](auto &yield) { yield(counted(7)); });
    for (auto &c : temporaries) {
        CHECK(c.value == 7);
    }
    CHECK(counted::ct_copies == 0);
}

void a_copy_is_yielded_of_an_lvalue_and_references_are_themselves()
{
    generator<std::string> copies([](auto &yield) {
        std::string text = "text";
        yield(text);
        yield(text);
    });
    for (auto &text : copies) {
        CHECK(text == "text");
        text = "changed";
    }
    int number = 1;
    generator<int &> references([&](auto &yield) {
        yield(number);
        yield(number);
    });
    for (int &n : references) {
        n *= 3;
    }
    CHECK(number == 9);
}

void exception_leaves_the_loop()
{
    generator<int> at_once([](auto &) { throw std::runtime_error("at once"); });
    CHECK_THROWS(std::runtime_error, true, at_once.begin());
    generator<int> later([](auto &yield) {
        counted object;
        yield(1);
        throw std::runtime_error("later");
    });
    int ct = 0;
    CHECK_THROWS(std::runtime_error, e.what() == std::string("later"), for (int i : later) ct += i);
    CHECK(ct == 1 && later.begin() == later.end());
}

void is_unwound_when_destroyed_half_way()
{
    {
        generator<int> half([](auto &yield) {
            counted object;
            for (int i = 0;; i++) {
                counted another;
                yield(i);
            }
        });
        for (int i : half) {
            if (i == 3) {
                break;
            }
        }
        CHECK(counted::ct_alive == 2);
    }
    CHECK(counted::ct_alive == 0);
    {
        generator<int> never([object = counted()](auto &yield) { yield(object.value); });
    }
    CHECK(counted::ct_alive == 0);
}

void suspends_and_is_destroyed_inside_a_catch_block()
{
    auto make = [] {
        return generator<int>([](auto &yield) {
            try {
                throw std::runtime_error("inner");
            } catch (const std::exception &) {
                yield(1);
                CHECK_THROWS(std::exception, e.what() == std::string("inner"), throw);
            }
        });
    };
    auto first = make(), second = make(), third = make(), fourth = make();
    auto i = first.begin(), j = second.begin(), k = fourth.begin();
    third.begin();
    CHECK(std::current_exception() == nullptr);
    ++k;
    CHECK(k == fourth.end());
    try {
        throw std::runtime_error("outer");
    } catch (const std::exception &) {
        ++i;
        CHECK_THROWS(std::exception, e.what() == std::string("outer"), throw);
        ++j;
    }
    CHECK(i == first.end() && j == second.end());
}

/* ==== Nesting ================================================================================ */

generator<int> tree(int depth, int first = 1)
{
    return generator<int>([depth, first](auto &yield) {
        if (depth > 0) {
            int half = (1 << (depth - 1)) - 1;
            yield(tree(depth - 1, first));
            yield(first + half);
            yield(tree(depth - 1, first + half + 1));
        }
    });
}

void yields_what_nested_ones_yield()
{
    int last = 0;
    for (int value : tree(12)) {
        CHECK(value == last + 1);
        last = value;
    }
    CHECK(last == 4095);
}

generator<int> chain(int depth)
{
    return generator<int>([depth](auto &yield) {
        counted object;
        char room[512];
        room[0] = static_cast<char>(depth);
        asm volatile("" : : "r"(room) : "memory");
        if (depth > 0) {
            yield(chain(depth - 1));
        }
        yield(depth);
    });
}

/* Nests generators too deep for one stack. */
void nests_deeper_than_a_stack()
{
    const int depth = 5000;
    int last = -1;
    for (int value : chain(depth)) {
        CHECK(value == last + 1);
        last = value;
    }
    CHECK(last == depth && counted::ct_alive == 0);
    {
        auto half = chain(depth);
        auto i = half.begin();
        while (*i < depth / 2) {
            ++i;
        }
        CHECK(counted::ct_alive > depth / 2 - 2);
    }
    CHECK(counted::ct_alive == 0);
}

void nests_one_that_has_begun()
{
    generator<int> inner = count(5);
    auto i = inner.begin();
    ++i;
    std::vector<int> seen;
    {
        generator<int> outer([&](auto &yield) {
            yield(-1);
            yield(inner);
            yield(-2);
        });
        for (int value : outer) {
            seen.push_back(value);
            if (value == 3) {
                break;
            }
        }
    } /* gives `inner` back, which goes on alone */
    CHECK((seen == std::vector<int>{-1, 2, 3}));
    CHECK(*i == 3);
    ++i;
    CHECK(*i == 4);
    seen.clear();
    generator<int> again([&](auto &yield) {
        generator<int> middle([&](auto &yield_middle) {
            yield_middle(inner);
            yield_middle(-3);
        });
        middle.begin();
        yield(middle);
        yield(-4);
    });
    for (int value : again) {
        seen.push_back(value);
    }
    CHECK((seen == std::vector<int>{4, 5, -3, -4}));
    CHECK(inner.begin() == inner.end());
    generator<int> once = count(3);
    CHECK(sum(generator<int>([&](auto &yield) {
              yield(once);
              yield(once);
          })) == 6);
    CHECK(once.begin() == once.end());
}

void exception_of_a_nested_one_leaves_its_yield()
{
    auto make = [](bool has_begun) {
        return generator<int>([has_begun](auto &yield) {
            generator<int> bad([](auto &yield_bad) {
                yield_bad(1);
                throw std::runtime_error("bad");
            });
            if (has_begun) {
                bad.begin();
            }
            CHECK_THROWS(std::runtime_error, e.what() == std::string("bad"), yield(bad));
            yield(2);
        });
    };
    CHECK(sum(make(false)) == 3);
    CHECK(sum(make(true)) == 3);
}

/* ==== With others ============================================================================ */

void is_a_range()
{
    generator<int> values = count(4);
    CHECK(std::accumulate(values.begin(), values.end(), 0) == 10);
#if defined(__cpp_lib_ranges) && (!defined(__clang__) || __clang_major__ >= 16)
    static_assert(std::ranges::input_range<generator<int>>);
    static_assert(std::ranges::input_range<generator<std::unique_ptr<int>>>);
    int total = 0;
    for (int i : count(100) | std::views::filter([](int i) { return i % 2 == 0; }) |
                     std::views::transform([](int i) { return i * 10; }) | std::views::take(3)) {
        total += i;
    }
    CHECK(total == 120);
    generator<int> more = count(4);
    CHECK(std::ranges::distance(std::move(more) | std::views::drop(1)) == 3);
#endif
}

void is_resumed_by_whoever_runs()
{
    generator<int> values = count(3);
    auto i = values.begin();
    aco::coroutine co([&] {
        ++i;
        aco_yield();
        ++i;
    });
    co.resume();
    CHECK(*i == 2);
    co.resume();
    CHECK(*i == 3);
    ++i;
    CHECK(i == values.end());
    int total = 0;
    std::thread([&total] { total = sum(tree(4)); }).join();
    CHECK(total == 120);
}

/* Iterates when the objects of its thread, or the static ones, are destroyed. */
struct iterates_at_the_end {
    ~iterates_at_the_end()
    {
        CHECK(sum(count(10)) == 55);
        CHECK(sum(count(4)) == 10);
    }
} in_static_destructor;

/* The size of the address space, in MiB. */
long size_of_memory()
{
    long ct_pages = 0;
    std::ifstream("/proc/self/statm") >> ct_pages;
    return ct_pages * sysconf(_SC_PAGESIZE) >> 20;
}

void a_thread_frees_its_stacks_at_its_end()
{
    auto make_threads = [](int ct) {
        for (int i = 0; i < ct; i++) {
            std::thread([] {
                aco::coroutine co([] { aco_yield(); });
                co.resume();
            }).join();
        }
        return size_of_memory();
    };
    long before = make_threads(10);
    CHECK(make_threads(40) < before + 20); /* each has a slab of at least 1 MiB */
}

void iterates_in_destructors_at_the_end_of_a_thread()
{
    std::thread([] {
        static thread_local iterates_at_the_end in_destructor;
        (void)in_destructor;
        CHECK(sum(count(3)) == 6);
    }).join();
}

void has_the_rounding_of_who_resumes_it()
{
    generator<long> rounded([](auto &yield) {
        for (;;) {
            volatile double half = 0.5;
            yield(std::lrint(half));
        }
    });
    auto i = rounded.begin();
    CHECK(*i == 0);
/* acosw(), which is not inlined, switches the control words. */
#if !defined(ACO_CONFIG_SHARE_FPU_MXCSR_ENV) && !defined(ACO_CONFIG_NO_INLINE_SWITCH) &&           \
    defined(FE_UPWARD)
    std::fesetround(FE_UPWARD);
    ++i;
    CHECK(*i == 1 && std::fegetround() == FE_UPWARD);
    std::fesetround(FE_TONEAREST);
    ++i;
    CHECK(*i == 0 && std::fegetround() == FE_TONEAREST);
#endif
}

void may_wait_in_a_task()
{
    aco::run([] {
        auto make = [] {
            return generator<std::uint64_t>([](auto &yield) {
                for (int i = 0; i < 100; i++) {
                    counted object;
                    aco::yield();
                    yield(aco::this_task_id());
                }
            });
        };
        aco::group tasks;
        for (int i = 0; i < 10; i++) {
            tasks.spawn([&] {
                int ct = 0;
                for (std::uint64_t id : make()) {
                    CHECK(id == aco::this_task_id());
                    ct++;
                }
                CHECK(ct == 100);
                CHECK(sum(count(10)) == 55);
            });
        }
        tasks.join();
        auto cancelled = aco::spawn([] {
            generator<int> waits([](auto &yield) {
                counted object;
                aco::sleep_for(for_ever);
                yield(1);
            });
            return sum(std::move(waits));
        });
        aco::yield();
        cancelled.cancel();
        CHECK_FAILS(std::errc::operation_canceled, (void)cancelled.join());
    });
}

} // namespace

int main(int argc, char **argv)
{
    const test tests[] = {
        T(resumes_to_the_end),
        T(is_moved_while_suspended),
        T(is_assigned_while_suspended),
        T(has_a_large_callable),
        T(exception_leaves_resume),
        T(destructor_unwinds_or_destroys),
        T(suspends_inside_catch_blocks),
        T(yields_values_in_order),
        T(runs_only_as_far_as_wanted),
        T(yields_move_only_values_without_copies),
        T(a_copy_is_yielded_of_an_lvalue_and_references_are_themselves),
        T(exception_leaves_the_loop),
        T(is_unwound_when_destroyed_half_way),
        T(suspends_and_is_destroyed_inside_a_catch_block),
        T(yields_what_nested_ones_yield),
        T(nests_deeper_than_a_stack),
        T(nests_one_that_has_begun),
        T(exception_of_a_nested_one_leaves_its_yield),
        T(is_a_range),
        T(is_resumed_by_whoever_runs),
        T(a_thread_frees_its_stacks_at_its_end),
        T(iterates_in_destructors_at_the_end_of_a_thread),
        T(has_the_rounding_of_who_resumes_it),
        T(may_wait_in_a_task),
        T(passes_values_both_ways),
        T(an_exception_leaves_the_resume_with_a_value),
        T(coroutines_have_ids),
        T(stacks_have_sizes_and_pools),
        T(coroutines_share_a_stack),
    };
    return run_tests(tests, argc, argv);
}
