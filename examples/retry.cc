// retry.cc shows C++ coroutines that wait inside a catch block.
// SPDX-License-Identifier: Apache-2.0
//
// Exceptions across yields: several coroutines that wait in a catch block at a time, by
// aco_exceptions_yield().
// build: -Iextra/exceptions extra/exceptions/aco_exceptions.c
/*
 * Two senders meet a fault in turn. Each waits a while in its catch block, in which the other one
 * meets a fault too, and then looks at its own again. It prints:
 *
 *     first sender: line is busy
 *     second sender: no carrier
 *     first sender tries again after: line is busy
 *     second sender tries again after: no carrier
 */
#include "aco_exceptions.h"

#include <exception>
#include <stdexcept>

namespace {

struct Sender {
    const char *name;
    const char *fault;
};

/* Prints the text of the exception that is being handled. */
void tell(const char *name, const char *before)
{
    try {
        throw;
    } catch (const std::exception &e) {
        std::printf("%s%s: %s\n", name, before, e.what());
    }
}

void send()
{
    const Sender *sender = static_cast<const Sender *>(aco_get_arg());
    try {
        throw std::runtime_error(sender->fault);
    } catch (...) {
        tell(sender->name, "");
        aco_exceptions_yield();
        tell(sender->name, " tries again after");
    }
    aco_exit();
}

} // namespace

int main()
{
    Sender senders[] = {{"first sender", "line is busy"}, {"second sender", "no carrier"}};
    aco_thread_init(nullptr);
    aco_t *main_co = aco_create(nullptr, nullptr, 0, nullptr, nullptr);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *first = aco_create(main_co, stack, 0, send, &senders[0]);
    aco_t *second = aco_create(main_co, stack, 0, send, &senders[1]);
    while (!second->is_end) {
        aco_resume(first);
        aco_resume(second);
    }
    aco_destroy(second);
    aco_destroy(first);
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
}
