// cancel.cc shows how an unfinished coroutine lets go of what its C++ frames hold.
// SPDX-License-Identifier: Apache-2.0
//
// Cancellation of a coroutine that is not needed any more, by aco_cancel() in the destructor of a
// C++ class that owns it.
// build: -Iextra/cancel extra/cancel/aco_cancel.c
/*
 * A reader holds a connection, and for each page a buffer. It is left after two of many pages. It
 * prints:
 *
 *     connection opened
 *     page 1
 *     buffer of page 1 released
 *     page 2
 *     buffer of page 2 released
 *     connection closed
 */
#include "aco_cancel.h"

#include <string>

namespace {

/* Owns a coroutine and its stack. */
class Coroutine {
public:
    Coroutine(aco_t *main_co, aco_cofuncp_t entry)
        : stack_(aco_share_stack_new(0)), co_(aco_create(main_co, stack_, 0, entry, nullptr))
    {
    }
    ~Coroutine()
    {
        while (!aco_cancel(co_)) {
        }
        aco_destroy(co_);
        aco_share_stack_destroy(stack_);
    }
    Coroutine(const Coroutine &) = delete;
    Coroutine &operator=(const Coroutine &) = delete;

    void resume()
    {
        aco_resume(co_);
    }

private:
    aco_share_stack_t *stack_;
    aco_t *co_;
};

struct Connection {
    Connection()
    {
        std::puts("connection opened");
    }
    ~Connection()
    {
        std::puts("connection closed");
    }
};

class Buffer {
public:
    explicit Buffer(int page) : text_("page " + std::to_string(page))
    {
        std::puts(text_.c_str());
    }
    ~Buffer()
    {
        std::printf("buffer of %s released\n", text_.c_str());
    }

private:
    std::string text_;
};

void read_pages()
{
    {
        Connection connection;
        for (int page = 1; page <= 1000; page++) {
            Buffer buffer(page);
            aco_yield();
        }
    }
    aco_exit();
}

} // namespace

int main()
{
    aco_thread_init(nullptr);
    aco_t *main_co = aco_create(nullptr, nullptr, 0, nullptr, nullptr);
    {
        Coroutine reader(main_co, read_pages);
        reader.resume();
        reader.resume();
    }
    aco_destroy(main_co);
}
