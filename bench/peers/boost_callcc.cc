// SPDX-License-Identifier: Apache-2.0
/*
 * Boost.Context callcc(), on mapped stacks with a guard page and on pooled ones without. callcc()
 * runs the coroutine at once, so it goes back before the body begins: that is part of its creation.
 *
 * kind: stackful
 * needs: libboost-context-dev
 * peer: Boost.Context callcc, mapped
 * build: $CXX -std=c++20 -O2 -DNDEBUG -DSTACK=protected_fixedsize_stack $SRC -o $OUT \
 *        -l:libboost_context.a
 * peer: Boost.Context callcc, pool
 * build: $CXX -std=c++20 -O2 -DNDEBUG -DSTACK=pooled_fixedsize_stack $SRC -o $OUT \
 *        -l:libboost_context.a
 */
#include "peer.h"

#include <boost/context/continuation.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>

namespace context = boost::context;

// A coroutine's record is on its own stack: a variable of its body's.
struct record {
    context::continuation parent; // what to yield to
    void *arg;
};
using peer_ref = context::continuation;
using peer_self = record &;
using peer_body = context::continuation (*)(context::continuation &&parent, void *arg);

#define PEER_STACKFUL
#define PEER_MAIN nullptr
#define PEER_SELF(self) nullptr
#define PEER_ARG(self) ((self).arg)
#define PEER_YIELD(self) ((self).parent = (self).parent.resume())
#define PEER_RETURN(self) return
#define PEER_BODY(name)                                                                            \
    static inline void name##_of(peer_self self) __attribute__((always_inline));                   \
    static context::continuation name(context::continuation &&parent, void *arg)                   \
    {                                                                                              \
        record self{std::move(parent), arg};                                                       \
        name##_of(self);                                                                           \
        return std::move(self.parent);                                                             \
    }                                                                                              \
    static inline void name##_of([[maybe_unused]] peer_self self)

static inline peer_ref peer_create(std::nullptr_t, peer_body body, void *arg, size_t stack_sz)
{
    static context::STACK stacks(stack_sz);
    return context::callcc(std::allocator_arg, stacks, [body, arg](context::continuation &&parent) {
        return body(parent.resume(), arg);
    });
}

static inline void peer_resume(peer_ref &co)
{
    co = co.resume();
}

static inline void peer_destroy(peer_ref &co)
{
    co = context::continuation();
}

#define peer_kill peer_destroy

static void peer_init()
{
}

#include "bodies.h"

#include "workloads.h"
