// SPDX-License-Identifier: Apache-2.0
/*
 * Boost.Coroutine2, on mapped stacks with a guard page and on pooled ones without. The main program
 * pushes, so that nothing runs before the first resume.
 *
 * kind: stackful
 * needs: libboost-context-dev
 * peer: Boost.Coroutine2, mapped
 * build: $CXX -std=c++20 -O2 -DSTACK=protected_fixedsize_stack $SRC -o $OUT -lboost_context
 * peer: Boost.Coroutine2, pool
 * build: $CXX -std=c++20 -O2 -DSTACK=pooled_fixedsize_stack $SRC -o $OUT -lboost_context
 */
#include "peer.h"

#include <boost/coroutine2/all.hpp>
#include <memory>
#include <new>

using coroutine = boost::coroutines2::coroutine<void>;

struct peer_co {
    alignas(coroutine::push_type) char self[sizeof(coroutine::push_type)]; // what to resume
    coroutine::pull_type *parent;                                          // what to yield to
    void *arg;
};
using peer_ref = peer_co *;
using peer_body = void (*)(peer_ref self);

#define PEER_STACKFUL
#define PEER_MAIN nullptr
#define PEER_SELF(self) (self)
#define PEER_ARG(self) ((self)->arg)
#define PEER_YIELD(self) ((*(self)->parent)())
#define PEER_RETURN(self) return
#define PEER_BODY(name) static void name(peer_ref self)

static inline coroutine::push_type &self_of(peer_ref co)
{
    return *std::launder(reinterpret_cast<coroutine::push_type *>(co->self));
}

static peer_ref peer_create(peer_ref, peer_body body, void *arg, size_t stack_sz)
{
    static boost::coroutines2::STACK stacks(stack_sz);
    peer_ref co = new peer_co;
    co->arg = arg;
    new (co->self) coroutine::push_type(stacks, [body, co](coroutine::pull_type &parent) {
        co->parent = &parent;
        body(co);
    });
    return co;
}

static inline void peer_resume(peer_ref co)
{
    self_of(co)();
}

static inline void peer_destroy(peer_ref co)
{
    std::destroy_at(&self_of(co));
    delete co;
}

#define peer_kill peer_destroy

static void peer_init()
{
}

#include "bodies.h"

#include "workloads.h"
