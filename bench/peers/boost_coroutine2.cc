// SPDX-License-Identifier: Apache-2.0
/*
 * Boost.Coroutine2, on mapped stacks with a guard page and on pooled ones without. The main program
 * pushes, so that nothing runs before the first resume.
 *
 * kind: stackful
 * needs: libboost-context-dev
 * peer: Boost.Coroutine2, mapped
 * build: $CXX -std=c++20 -O2 -DNDEBUG -DSTACK=protected_fixedsize_stack $SRC -o $OUT \
 *        -l:libboost_context.a
 * peer: Boost.Coroutine2, pool
 * build: $CXX -std=c++20 -O2 -DNDEBUG -DSTACK=pooled_fixedsize_stack $SRC -o $OUT \
 *        -l:libboost_context.a
 */
#include "peer.h"

#include <boost/coroutine2/all.hpp>
#include <optional>

using coroutine = boost::coroutines2::coroutine<void>;

// A coroutine's record is on its own stack: a variable of its body's.
struct record {
    coroutine::pull_type &parent; // what to yield to
    void *arg;
};
using peer_ref = std::optional<coroutine::push_type>;
using peer_self = record &;
using peer_body = void (*)(coroutine::pull_type &parent, void *arg);

#define PEER_STACKFUL
#define PEER_MAIN nullptr
#define PEER_SELF(self) nullptr
#define PEER_ARG(self) ((self).arg)
#define PEER_YIELD(self) ((self).parent())
#define PEER_RETURN(self) return
#define PEER_BODY(name)                                                                            \
    static inline void name##_of(peer_self self) __attribute__((always_inline));                   \
    static void name(coroutine::pull_type &parent, void *arg)                                      \
    {                                                                                              \
        record self{parent, arg};                                                                  \
        name##_of(self);                                                                           \
    }                                                                                              \
    static inline void name##_of([[maybe_unused]] peer_self self)

static inline peer_ref peer_create(std::nullptr_t, peer_body body, void *arg, size_t stack_sz)
{
    static boost::coroutines2::STACK stacks(stack_sz);
    return peer_ref(std::in_place, stacks,
                    [body, arg](coroutine::pull_type &parent) { body(parent, arg); });
}

static inline void peer_resume(peer_ref &co)
{
    (*co)();
}

static inline void peer_destroy(peer_ref &co)
{
    co.reset();
}

#define peer_kill peer_destroy

static void peer_init()
{
}

#include "bodies.h"

#include "workloads.h"
