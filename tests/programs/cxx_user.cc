// SPDX-License-Identifier: Apache-2.0
/*
 * A C++ program that uses the library: objects with destructors in coroutines, exceptions that are
 * thrown, caught and thrown again in one, or carried to another, containers, and calls through
 * functions of the header. Exits with 0 if all is well, otherwise says what is not. With the
 * argument "throw", an exception leaves an entry function, which must end the process in
 * std::terminate() before anything is unwound.
 */
#include "tests/programs/cxx_instance.h"

#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

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

/* ---- Exceptions that pass several frames, in many coroutines at once ---- */

const int CT_THROWERS = 20; /* on one share stack */
const int CT_LEVELS = 6;

struct Failure {
    int id;
    int ct_passed; /* frames that caught it and threw it again */
};

struct Thrower {
    int id;
    int ct_objects;
    int ct_caught;
    std::exception_ptr last;
};

/* Yields on the way down. Every other frame on the way up catches and throws again. */
void throw_through(Thrower &thrower, int level)
{
    Counted counted(thrower.ct_objects);
    volatile char frame[100];
    frame[level] = static_cast<char>(thrower.id);
    aco_yield();
    if (level == 0) {
        throw Failure{thrower.id, 0};
    }
    if (level % 2 == 0) {
        throw_through(thrower, level - 1);
        return;
    }
    try {
        throw_through(thrower, level - 1);
    } catch (Failure &failure) {
        check(frame[level] == static_cast<char>(thrower.id), "a catching frame is its own");
        check(thrower.ct_objects == CT_LEVELS - level, "frames below were unwound, and no other");
        failure.ct_passed++;
        throw;
    }
}

/* Caught where it was thrown, and at once. */
void throw_and_catch(Thrower &thrower)
{
    try {
        Counted counted(thrower.ct_objects);
        throw thrower.id;
    } catch (int id) {
        check(id == thrower.id, "the number is the one thrown");
    }
}

void throws_many(Thrower &thrower)
{
    for (int round = 0; round < 3; round++) {
        throw_and_catch(thrower);
        aco_yield();
        try {
            throw_through(thrower, CT_LEVELS - 1);
            check(false, "an exception passes what is behind the call");
        } catch (const std::exception &) {
            check(false, "an exception is not of another type");
        } catch (const Failure &failure) {
            check(failure.id == thrower.id, "the exception is its own");
            check(failure.ct_passed == CT_LEVELS / 2, "it was thrown again in every other frame");
            thrower.last = std::current_exception();
            thrower.ct_caught++;
        }
        check(thrower.ct_objects == 0, "every frame was unwound");
        check(!std::uncaught_exception(), "no exception is under way");
    }
}

void entry_throws_many()
{
    throws_many(*static_cast<Thrower *>(aco_get_arg()));
    aco_exit();
}

/* Throws again, on the thread's own stack, the exception that a coroutine caught. */
void check_carried(const Thrower &thrower)
{
    try {
        std::rethrow_exception(thrower.last);
    } catch (const Failure &failure) {
        check(failure.id == thrower.id, "an exception is carried from a coroutine to main");
        return;
    }
    check(false, "an exception is carried");
}

void interleave(const Instance &instance)
{
    std::vector<Thrower> throwers;
    std::vector<std::unique_ptr<Coroutine>> alive;
    throwers.reserve(CT_THROWERS);
    for (int id = 0; id < CT_THROWERS || !alive.empty(); id++) {
        /* One more each time, so that each throws while others are at another depth. */
        if (id < CT_THROWERS) {
            throwers.push_back(Thrower{id, 0, 0, nullptr});
            alive.emplace_back(new Coroutine(instance, entry_throws_many, &throwers.back()));
        }
        for (auto it = alive.begin(); it != alive.end();) {
            it = (*it)->resume() ? it + 1 : alive.erase(it);
        }
    }
    for (const Thrower &thrower : throwers) {
        check(thrower.ct_caught == 3, "every exception was caught, of each coroutine");
        check(thrower.ct_objects == 0, "every object was destroyed, of each coroutine");
        check_carried(thrower);
    }
}

/* Objects must be gone before aco_exit(), which unwinds nothing. */
void entry_works()
{
    works(*static_cast<Work *>(aco_get_arg()));
    aco_exit();
}

/* Without a handler on the stack, nothing may be unwound. */
class Loud {
public:
    ~Loud()
    {
        std::fprintf(stderr, "unwound\n");
    }
};

void entry_throws()
{
    Loud loud;
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
    Coroutine thrower(instance, entry_throws, nullptr), other(instance, entry_throws, nullptr);
    thrower.resume();
    other.resume();
    try {
        thrower.resume();
    } catch (...) {
        std::fprintf(stderr, "caught beyond the entry function\n");
    }
}

} // namespace

int main(int argc, char **argv)
{
    Instance instance;
    if (argc == 2 && std::strcmp(argv[1], "throw") == 0) {
        throw_out(instance);
    }
    alternate(instance);
    interleave(instance);
    check(aco_version() == ACO_VERSION, "header and library are of one version");
    return ct_failures != 0;
}
