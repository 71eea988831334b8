// SPDX-License-Identifier: Apache-2.0
/*
 * A program in C++ that uses optional parts of an installed library: a coroutine on a stack of a
 * pool is cancelled, and its objects are destroyed. Exits with 0 if all is well.
 */
#include "aco_cancel.h"
#include "aco_stack_pool.h"

#include <iostream>
#include <string>

namespace {

struct Guest {
    std::string &where;
    explicit Guest(std::string &place) : where(place)
    {
        where = "inside";
    }
    ~Guest()
    {
        where = "gone";
    }
};

void visit()
{
    Guest guest(*static_cast<std::string *>(aco_get_arg()));
    for (;;) {
        aco_yield();
    }
}

} // namespace

int main()
{
    std::string where;
    aco_thread_init(nullptr);
    aco_t *main_co = aco_create(nullptr, nullptr, 0, nullptr, nullptr);
    aco_stack_pool_t *pool = aco_stack_pool_new(0, 0);
    aco_t *co = aco_stack_pool_create_co(pool, main_co, visit, &where);
    aco_resume(co);
    bool was_inside = where == "inside";
    aco_cancel(co);
    bool is_gone = where == "gone" && co->is_end;
    aco_stack_pool_destroy_co(pool, co);
    aco_stack_pool_destroy(pool);
    aco_destroy(main_co);
    std::cout << (was_inside && is_gone ? "the parts work\n" : "the parts fail\n");
    return was_inside && is_gone ? 0 : 1;
}
