// SPDX-License-Identifier: Apache-2.0
/*
 * A C++ program that uses the library: objects with destructors in coroutines, exceptions that are
 * thrown and caught in one, containers, and calls through functions of the header. Exits with 0 if
 * all is well, otherwise says what is not. With the argument "throw", an exception leaves an entry
 * function, which must end the process in std::terminate().
 */
#include "aco.h"

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

int ct_failures;

void check(bool is_right, const char *what)
{
    if (!is_right) {
        std::fprintf(stderr, "not so: %s\n", what);
        ct_failures++;
    }
}

/* A thread's instance, as an object. */
class Instance {
public:
    Instance()
    {
        aco_thread_init(nullptr);
        main_co_ = aco_create(nullptr, nullptr, 0, nullptr, nullptr);
        stack_ = aco_share_stack_new(0);
    }
    ~Instance()
    {
        aco_share_stack_destroy(stack_);
        aco_destroy(main_co_);
    }
    Instance(const Instance &) = delete;
    Instance &operator=(const Instance &) = delete;

    aco_t *create(aco_cofuncp_t entry, void *arg) const
    {
        return aco_create(main_co_, stack_, 0, entry, arg);
    }

private:
    aco_t *main_co_;
    aco_share_stack_t *stack_;
};

class Coroutine {
public:
    Coroutine(const Instance &instance, aco_cofuncp_t entry, void *arg)
        : co_(instance.create(entry, arg))
    {
    }
    ~Coroutine()
    {
        aco_destroy(co_);
    }
    Coroutine(const Coroutine &) = delete;
    Coroutine &operator=(const Coroutine &) = delete;

    bool resume()
    {
        aco_resume(co_);
        return co_->is_end == 0;
    }

private:
    aco_t *co_;
};

/* Counts the objects that exist. */
class Counted {
public:
    explicit Counted(int &ct) : ct_(ct)
    {
        ++ct_;
    }
    ~Counted()
    {
        --ct_;
    }
    Counted(const Counted &) = delete;
    Counted &operator=(const Counted &) = delete;

private:
    int &ct_;
};

struct Work {
    int ct_objects;
    int ct_caught;
    std::vector<std::string> words;
};

int throw_deep(int depth, int &ct_objects)
{
    Counted counted(ct_objects);
    aco_yield();
    if (depth == 0) {
        throw std::runtime_error("deep");
    }
    return throw_deep(depth - 1, ct_objects) + 1;
}

void works(Work &work)
{
    Counted counted(work.ct_objects);
    std::string text("a string that is too long to be kept in the object itself");
    for (int i = 0; i < 5; i++) {
        std::vector<int> numbers(100, i);
        aco_yield();
        for (int number : numbers) {
            check(number == i, "a vector holds what it held");
        }
        try {
            throw_deep(i, work.ct_objects);
        } catch (const std::runtime_error &error) {
            check(std::strcmp(error.what(), "deep") == 0, "the exception is the one thrown");
            work.ct_caught++;
        }
        work.words.push_back(text);
    }
}

/* Objects must be gone before aco_exit(), which unwinds nothing. */
void entry_works()
{
    works(*static_cast<Work *>(aco_get_arg()));
    aco_exit();
}

void entry_throws()
{
    aco_yield();
    throw std::runtime_error("leaves the entry function");
}

void alternate(const Instance &instance)
{
    Work works_of_all[2] = {{0, 0, {}}, {0, 0, {}}};
    {
        Coroutine first(instance, entry_works, &works_of_all[0]);
        Coroutine second(instance, entry_works, &works_of_all[1]);
        check(first.resume(), "the first yields");
        check(works_of_all[0].ct_objects == 1, "an object lives while its coroutine is suspended");
        bool is_first_alive = true, is_second_alive = true;
        while (is_first_alive || is_second_alive) {
            is_first_alive = is_first_alive && first.resume();
            is_second_alive = is_second_alive && second.resume();
        }
    }
    for (const Work &work : works_of_all) {
        check(work.ct_objects == 0, "every object was destroyed");
        check(work.ct_caught == 5, "every exception was caught");
        check(work.words.size() == 5, "every round was made");
    }
}

void throw_out(const Instance &instance)
{
    Coroutine thrower(instance, entry_throws, nullptr);
    thrower.resume();
    thrower.resume();
}

} // namespace

int main(int argc, char **argv)
{
    Instance instance;
    if (argc == 2 && std::strcmp(argv[1], "throw") == 0) {
        throw_out(instance);
    }
    alternate(instance);
    check(aco_version() == ACO_VERSION, "header and library are of one version");
    return ct_failures != 0;
}
