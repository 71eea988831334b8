// SPDX-License-Identifier: Apache-2.0
/*
 * Boost.Context fiber, with each of Boost's kinds of stacks: mapped with a guard page, and from
 * malloc() or a pool, without one. The switch always saves and loads the control words. Killing a
 * suspended one unwinds its stack by an exception.
 *
 * kind: stackful
 * needs: libboost-context-dev
 * peer: Boost.Context fiber, mapped
 * build: $CXX -std=c++20 -O2 -DSTACK=protected_fixedsize_stack $SRC -o $OUT -lboost_context
 * peer: Boost.Context fiber, malloc
 * build: $CXX -std=c++20 -O2 -DSTACK=fixedsize_stack $SRC -o $OUT -lboost_context
 * peer: Boost.Context fiber, pool
 * build: $CXX -std=c++20 -O2 -DSTACK=pooled_fixedsize_stack $SRC -o $OUT -lboost_context
 */
#include "peer.h"

#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>

namespace context = boost::context;

struct peer_co {
    context::fiber self, parent; // what to resume, and what to yield to
    void *arg;
};
using peer_ref = peer_co *;
using peer_body = void (*)(peer_ref self);

#define PEER_STACKFUL
#define PEER_MAIN nullptr
#define PEER_SELF(self) (self)
#define PEER_ARG(self) ((self)->arg)
#define PEER_YIELD(self) ((self)->parent = std::move((self)->parent).resume())
#define PEER_RETURN(self) return
#define PEER_BODY(name) static void name(peer_ref self)

static peer_ref peer_create(peer_ref, peer_body body, void *arg, size_t stack_sz)
{
    static context::STACK stacks(stack_sz);
    peer_ref co = new peer_co;
    co->arg = arg;
    co->self = context::fiber(std::allocator_arg, stacks, [body, co](context::fiber &&parent) {
        co->parent = std::move(parent);
        body(co);
        return std::move(co->parent);
    });
    return co;
}

static inline void peer_resume(peer_ref co)
{
    co->self = std::move(co->self).resume();
}

static inline void peer_destroy(peer_ref co)
{
    delete co;
}

#define peer_kill peer_destroy

static void peer_init()
{
}

#include "bodies.h"

#include "workloads.h"
