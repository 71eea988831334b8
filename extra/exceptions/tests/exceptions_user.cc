// SPDX-License-Identifier: Apache-2.0
/*
 * A C++ program whose coroutines yield inside catch blocks, and in destructors that run because of
 * an exception: several at a time, while their parent handles an exception too. Exits with 0 on
 * success, otherwise names the failure.
 */
#include "extra/cancel/aco_cancel.h"
#include "extra/exceptions/aco_exceptions.h"

#include <cstring>
#include <exception>
#include <string>
#include <vector>

namespace {

int ct_failures, ct_errors, ct_uncaught;

void check(bool is_right, const char *what)
{
    if (!is_right) {
        std::fprintf(stderr, "not so: %s\n", what);
        ct_failures++;
    }
}

/* The exceptions thrown; the existing ones are counted. */
class Error {
public:
    explicit Error(int number) : number_(number)
    {
        ++ct_errors;
    }
    Error(const Error &other) : number_(other.number_)
    {
        ++ct_errors;
    }
    ~Error()
    {
        --ct_errors;
    }
    Error &operator=(const Error &) = delete;

    int number() const
    {
        return number_;
    }

private:
    int number_;
};

/* The number of the exception that is being handled, 0 if none is. */
int handled()
{
    if (!std::current_exception()) {
        return 0;
    }
    try {
        throw;
    } catch (const Error &error) {
        return error.number();
    }
}

/* ==== Coroutines ============================================================================= */

void yield_and_look(int number)
{
    aco_exceptions_yield();
    check(handled() == number, "after a yield, what was being handled still is");
    check(std::uncaught_exception() == false, "after a yield, nothing is on its way");
}

class YieldsAtTheEnd {
public:
    ~YieldsAtTheEnd()
    {
        check(std::uncaught_exception(), "an exception is on its way");
        aco_exceptions_yield();
        check(std::uncaught_exception(), "after a yield, the exception is still on its way");
        ct_uncaught++;
    }
};

/* Has a frame of its own, so that the destructor runs before the catch block is reached. */
__attribute__((noinline)) void throw_past_a_yield(int number)
{
    YieldsAtTheEnd yields;
    throw Error(number);
}

/* Handles an exception, and in its handler another one, during which a destructor yields. */
void handle(int number)
{
    try {
        throw Error(number);
    } catch (const Error &outer) {
        yield_and_look(number);
        try {
            throw_past_a_yield(number + 1);
        } catch (const Error &inner) {
            yield_and_look(number + 1);
            check(inner.number() == number + 1, "the inner one is what it was");
        }
        yield_and_look(number);
        check(outer.number() == number, "the outer one is what it was");
    }
    yield_and_look(0);
}

void handles()
{
    handle(*static_cast<int *>(aco_get_arg()));
    aco_exit();
}

const int ct_steps = 6; /* resumes until it ends */

/* Its handler lets the cancellation pass, which is impossible with libc++abi. */
void handles_and_rethrows()
{
    int number = *static_cast<int *>(aco_get_arg());
#ifdef __GLIBCXX__
    try {
        handle(number);
    } catch (...) {
        throw;
    }
#else
    handle(number);
#endif
    aco_exit();
}

/* ==== Their parent =========================================================================== */

struct Group {
    std::vector<int> numbers;
    std::vector<aco_t *> cos;
    aco_share_stack_t *stack;

    Group(aco_t *main_co, aco_cofuncp_t entry)
        : numbers{10, 20, 30}, cos(), stack(aco_share_stack_new(0))
    {
        for (int &number : numbers) {
            cos.push_back(aco_create(main_co, stack, 0, entry, &number));
        }
    }
    ~Group()
    {
        for (aco_t *co : cos) {
            check(co->is_end != 0, "every coroutine has ended");
            aco_destroy(co);
        }
        aco_share_stack_destroy(stack);
    }
    Group(const Group &) = delete;
    Group &operator=(const Group &) = delete;

    void step(void (*resume)(aco_t *))
    {
        for (aco_t *co : cos) {
            resume(co);
        }
    }
};

void resume_plainly(aco_t *co)
{
    aco_resume(co);
    check(handled() == 0 && !std::uncaught_exception(), "the parent sees nothing of it");
}

void resume_kept(aco_t *co)
{
    aco_exceptions_resume(co);
}

void take_turns(aco_t *main_co)
{
    Group group(main_co, handles);
    for (int i = 0; i < ct_steps; i++) {
        group.step(resume_plainly);
    }
}

/* The parent handles an exception from step `first` on, for two steps. */
void take_turns_with_parent(aco_t *main_co, int first)
{
    Group group(main_co, handles);
    int i = 0;
    while (i < first) {
        group.step(resume_kept), i++;
    }
    try {
        throw Error(7);
    } catch (const Error &) {
        for (; i < ct_steps && i < first + 2; i++) {
            group.step(resume_kept);
            check(handled() == 7, "the parent's exception is the one it was");
        }
    }
    check(handled() == 0, "the parent's exception is over");
    while (i < ct_steps) {
        group.step(resume_kept), i++;
    }
}

/* All coroutines are cancelled after some steps. */
void cancel_after(aco_t *main_co, int ct)
{
    Group group(main_co, handles_and_rethrows);
    for (int i = 0; i < ct; i++) {
        group.step(resume_plainly);
    }
    for (aco_t *co : group.cos) {
        try {
            throw Error(8);
        } catch (const Error &) {
            check(aco_cancel(co) == 1, "one that is cancelled ends");
            check(handled() == 8, "who cancels still handles what it did");
        }
    }
}

/* The calls stand around others that run coroutines. */
void leave_and_enter()
{
    aco_exceptions_t mine;
    try {
        throw Error(9);
    } catch (const Error &) {
        aco_exceptions_leave(&mine);
        check(handled() == 0, "there is none after aco_exceptions_leave()");
        aco_exceptions_enter(&mine);
        check(handled() == 9, "it is back after aco_exceptions_enter()");
    }
}

} // namespace

int main()
{
    aco_thread_init(nullptr);
    aco_t *main_co = aco_create(nullptr, nullptr, 0, nullptr, nullptr);
    take_turns(main_co);
    check(ct_uncaught == 3, "every destructor yielded");
    for (int i = 0; i < ct_steps; i++) {
        take_turns_with_parent(main_co, i);
    }
    for (int i = 0; i < ct_steps; i++) {
        if (i != 2) { /* not in a destructor */
            cancel_after(main_co, i);
        }
    }
    leave_and_enter();
    check(ct_errors == 0, "every exception was released");
    aco_destroy(main_co);
    return ct_failures != 0;
}
