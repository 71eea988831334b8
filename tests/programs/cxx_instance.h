// SPDX-License-Identifier: Apache-2.0
/* What C++ test programs share: checks that are counted, and an instance of the library. */
#ifndef CXX_INSTANCE_H
#define CXX_INSTANCE_H

#include "aco.h"

#include <cstdio>

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

} // namespace

#endif
