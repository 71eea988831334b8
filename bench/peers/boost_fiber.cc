// SPDX-License-Identifier: Apache-2.0
/*
 * Boost.Context fiber, with each of Boost's kinds of stacks: mapped with a guard page, and from
 * malloc() or a pool, without one. The switch saves and loads the control words, unless Boost's
 * assembly is compiled without. Killing a suspended one unwinds its stack by an exception.
 *
 * kind: stackful
 * needs: libboost-context-dev
 * peer: Boost.Context fiber, mapped
 * build: $CXX -std=c++20 -O2 -DNDEBUG -DSTACK=protected_fixedsize_stack $SRC -o $OUT \
 *        -l:libboost_context.a
 * peer: Boost.Context fiber, malloc
 * build: $CXX -std=c++20 -O2 -DNDEBUG -DSTACK=fixedsize_stack $SRC -o $OUT -l:libboost_context.a
 * peer: Boost.Context fiber, pool
 * build: $CXX -std=c++20 -O2 -DNDEBUG -DSTACK=pooled_fixedsize_stack $SRC -o $OUT \
 *        -l:libboost_context.a
 *
 * needs: libboost-context-dev cargo-web/cargo
 * registry: crates.io context 2.1.0
 * peer: Boost.Context fiber, pool, no control words
 * build: objects=$(bench/peers/boost.sh no_control_words $OUT) && \
 *        $CXX -std=c++20 -O2 -DNDEBUG -DSTACK=pooled_fixedsize_stack $SRC $objects -o $OUT \
 *        -l:libboost_context.a
 * needs:
 * registry: Debian libboost-context1.81-dev
 * peer: Boost.Context 1.81 fiber, pool
 * build: boost=$(bench/peers/boost.sh 1.81 $OUT) && \
 *        $CXX -std=c++20 -O2 -DNDEBUG -DSTACK=pooled_fixedsize_stack $SRC $boost -o $OUT
 */
#include "peer.h"

#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>

namespace context = boost::context;

// A coroutine's record is on its own stack: a variable of its body's.
struct record {
    context::fiber parent; // what to yield to
    void *arg;
};
using peer_ref = context::fiber;
using peer_self = record &;
using peer_body = context::fiber (*)(context::fiber &&parent, void *arg);

#define PEER_STACKFUL
#define PEER_MAIN nullptr
#define PEER_SELF(self) nullptr
#define PEER_ARG(self) ((self).arg)
#define PEER_YIELD(self) ((self).parent = std::move((self).parent).resume())
#define PEER_RETURN(self) return
#define PEER_BODY(name)                                                                            \
    static inline void name##_of(peer_self self) __attribute__((always_inline));                   \
    static context::fiber name(context::fiber &&parent, void *arg)                                 \
    {                                                                                              \
        record self{std::move(parent), arg};                                                       \
        name##_of(self);                                                                           \
        return std::move(self.parent);                                                             \
    }                                                                                              \
    static inline void name##_of([[maybe_unused]] peer_self self)

static inline peer_ref peer_create(std::nullptr_t, peer_body body, void *arg, size_t stack_sz)
{
    static context::STACK stacks(stack_sz);
    return context::fiber(std::allocator_arg, stacks, [body, arg](context::fiber &&parent) {
        return body(std::move(parent), arg);
    });
}

static inline void peer_resume(peer_ref &co)
{
    co = std::move(co).resume();
}

static inline void peer_destroy(peer_ref &co)
{
    co = context::fiber();
}

#define peer_kill peer_destroy

static void peer_init()
{
}

#include "bodies.h"

#include "workloads.h"
