// SPDX-License-Identifier: Apache-2.0
/*
 * A C++ program that cancels coroutines: destructors run, handlers that rethrow let the
 * cancellation pass, and the caller's exceptions are unchanged, however a coroutine that yields
 * meanwhile is continued. Exits with 0 on success, otherwise names the failure. With an argument,
 * it breaks one of the rules, which must end the process.
 */
#include "extra/cancel/aco_cancel.h"
#include "tests/programs/cxx_instance.h"

#include <cstring>
#include <cxxabi.h>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" void call_without_tables(void (*function)(void));

namespace {

/* A coroutine that has yielded once, and is cancelled at the end of this object's life. */
class Coroutine {
public:
    Coroutine(const Instance &instance, aco_cofuncp_t entry, std::string &log)
        : co_(instance.create(entry, &log))
    {
        aco_resume(co_);
    }
    aco_t *get() const
    {
        return co_;
    }
    ~Coroutine()
    {
        while (!aco_cancel(co_)) {
        }
        aco_destroy(co_);
    }
    Coroutine(const Coroutine &) = delete;
    Coroutine &operator=(const Coroutine &) = delete;

private:
    aco_t *co_;
};

std::string &the_log()
{
    return *static_cast<std::string *>(aco_get_arg());
}

/* The number as text, made by library functions that use the stack. */
std::string formatted(double number)
{
    std::ostringstream stream;
    stream << number;
    return stream.str();
}

/* Writes its name when it is destroyed; in between it may yield. */
class Object {
public:
    explicit Object(const char *name, bool yields = false) : name_(name), yields_(yields)
    {
    }
    ~Object()
    {
        if (yields_) {
            aco_yield();
        }
        the_log() += formatted(0.5) == "0.5" ? name_ : "wrong";
    }
    Object(const Object &) = delete;
    Object &operator=(const Object &) = delete;

private:
    std::string name_;
    bool yields_;
};

/* ==== Frames ================================================================================= */

/* A frame without cleanups, but with red zones under AddressSanitizer. */
void yield_below_arrays()
{
    char arrays[9][100];
    char others[300];
    for (char *array : {arrays[0], arrays[8], others}) {
        __asm__ volatile("" : : "r"(array) : "memory");
    }
    aco_yield();
}

void yield_deep()
{
    Object first("c"), second("d");
    std::vector<std::string> words(20, "a string that is too long to be kept in the object itself");
    yield_below_arrays();
    the_log() += words[0];
}

void has_objects()
{
    Object outer("a");
    Object yielding("b", true);
    yield_deep();
    aco_exit();
}

void has_handlers()
{
    Object outer("a");
    try {
        try {
            try {
                yield_deep();
            } catch (const std::runtime_error &) {
                the_log() += "wrong";
            }
        } catch (...) {
            the_log() += "1";
            throw;
        }
    } catch (abi::__forced_unwind &) {
        the_log() += "2";
        throw;
    } catch (...) {
        the_log() += "wrong";
    }
    aco_exit();
}

/* Its handler rethrows after a destructor has yielded. */
void has_handler_outside()
{
    Object outer("a");
    try {
        Object yielding("b", true);
        yield_deep();
    } catch (...) {
        the_log() += "1";
        throw;
    }
    aco_exit();
}

/* A cleanup may throw and catch exceptions of its own. */
class Thrower {
public:
    ~Thrower()
    {
        try {
            aco_yield();
            throw std::runtime_error("within a cleanup");
        } catch (const std::runtime_error &) {
            the_log() += "t";
        }
    }
};

void has_thrower()
{
    Object outer("a");
    Thrower thrower;
    yield_deep();
    aco_exit();
}

/* ==== Callers ================================================================================ */

const struct {
    aco_cofuncp_t entry;
    const char *log;
} cases[] = {{has_objects, "dcba"},
             {has_handlers, "dc12a"},
             {has_handler_outside, "dcb1a"},
             {has_thrower, "dcta"}};

/* Each object cancels its coroutine, which yields in cleanups. */
void cancel_plainly(const Instance &instance)
{
    for (const auto &each : cases) {
        std::string log, other_log;
        {
            Coroutine co(instance, each.entry, log);
            Coroutine other(instance, has_objects, other_log);
        }
        check(log == each.log, each.log);
        check(other_log == "dcba", "the other one is unwound");
        check(!std::uncaught_exception(), "no exception is left over");
    }
}

/* Two coroutines are half unwound at the same time. */
void cancel_by_turns(const Instance &instance)
{
    for (const auto &each : cases) {
        std::string log, other_log;
        {
            Coroutine co(instance, each.entry, log);
            Coroutine other(instance, has_handler_outside, other_log);
            while (!aco_cancel(co.get()) + !aco_cancel(other.get()) != 0) {
            }
        }
        check(log == each.log, "one of two by turns is unwound");
        check(other_log == "dcb1a", "the other one of two by turns is unwound");
        check(!std::uncaught_exception(), "no exception is left over after turns");
    }
}

aco_t *unwinding;

void yields_to_unwinding()
{
    aco_yield_to(unwinding);
    aco_exit();
}

/* A coroutine that yielded during its cancellation is continued by every call; afterwards the
 * exceptions of the thread are unchanged. */
void go_on_plainly(const Instance &instance)
{
    for (int by_sibling = 0; by_sibling <= 1; by_sibling++) {
        for (const auto &each : cases) {
            std::string log, other_log;
            Coroutine co(instance, each.entry, log);
            unwinding = co.get();
            if (!aco_cancel(unwinding) && by_sibling) {
                Coroutine sibling(instance, yields_to_unwinding, other_log);
            }
            while (!unwinding->is_end) {
                aco_resume(unwinding);
            }
            check(log == each.log, "one that went on plainly is unwound");
            check(!std::uncaught_exception(), "no exception is left over after going on plainly");
            try {
                throw std::runtime_error("mine");
            } catch (const std::runtime_error &) {
                check(!std::uncaught_exception(), "a caught one is not on its way");
            }
        }
    }
}

/* The exception that is being handled is hidden from the coroutine. */
void cancel_in_handler(const Instance &instance)
{
    for (const auto &each : cases) {
        std::string log;
        try {
            throw std::runtime_error("mine");
        } catch (const std::runtime_error &error) {
            {
                Coroutine co(instance, each.entry, log);
            }
            check(std::current_exception() != nullptr, "the exception is still being handled");
            try {
                throw;
            } catch (const std::runtime_error &again) {
                check(&again == &error, "the exception is the one it was");
            }
        }
        check(log == each.log, "cancelled in a catch block");
        check(std::current_exception() == nullptr, "the exception is over");
    }
}

/* Has a frame of its own, so that the destructor runs before the catch block is reached. */
__attribute__((noinline)) void throw_past(const Instance &instance, aco_cofuncp_t entry,
                                          std::string &log)
{
    Coroutine co(instance, entry, log);
    throw std::runtime_error("mine");
}

void cancel_by_exception(const Instance &instance)
{
    for (const auto &each : cases) {
        std::string log;
        try {
            throw_past(instance, each.entry, log);
        } catch (const std::runtime_error &error) {
            check(std::strcmp(error.what(), "mine") == 0, "the exception is the one thrown");
        }
        check(log == each.log, "cancelled while an exception passes");
        check(!std::uncaught_exception(), "the exception is over");
    }
}

/* ==== Callees alone ========================================================================== */

__attribute__((noinline)) void has_objects_of_a_callee()
{
    Object yielding("b", true);
    yield_deep();
}

void catches_all()
{
    try {
        has_objects_of_a_callee();
    } catch (...) {
        the_log() += "wrong";
    }
    aco_exit();
}

/* The entry function's catch block, which could not rethrow with libc++abi, sees nothing. */
void cancel_callees(const Instance &instance)
{
    std::string log;
    aco_t *co = instance.create(catches_all, &log);
    aco_resume(co);
    check(!aco_i_cancel_callees(co) && log == "dc", "a destructor yields");
    check(aco_i_cancel_callees(co) && log == "dcb", "all but the entry function is unwound");
    aco_destroy(co);
}

/* ==== Broken rules =========================================================================== */

void swallows()
{
    try {
        aco_yield();
    } catch (...) {
    }
    aco_exit();
}

void yield_noexcept() noexcept
{
    aco_yield();
}

void is_noexcept()
{
    yield_noexcept();
    aco_exit();
}

void has_no_tables()
{
    call_without_tables(yield_deep);
    aco_exit();
}

} // namespace

int main(int argc, char **argv)
{
    Instance instance;
    std::string log;
    const std::string rule = argc == 2 ? argv[1] : "";
    if (rule == "swallow") {
        Coroutine co(instance, swallows, log);
    } else if (rule == "noexcept") {
        Coroutine co(instance, is_noexcept, log);
    } else if (rule == "tables") {
        Coroutine co(instance, has_no_tables, log);
    } else {
        cancel_plainly(instance);
        cancel_by_turns(instance);
        go_on_plainly(instance);
        cancel_in_handler(instance);
        cancel_by_exception(instance);
        cancel_callees(instance);
    }
    return ct_failures != 0;
}
