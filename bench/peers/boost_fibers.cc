// SPDX-License-Identifier: Apache-2.0
/*
 * Boost.Fiber: threads of its own, which its scheduler switches, on pooled stacks without a guard
 * page. To resume one is to signal its condition variable and to wait for its resumer's own; to
 * yield, the other way round. A suspended one that is to be destroyed is told to end by an
 * exception.
 *
 * kind: stackful
 * needs: libboost-fiber-dev
 * peer: Boost.Fiber, pool
 * build: $CXX -std=c++20 -O2 -DNDEBUG $SRC -o $OUT -l:libboost_fiber.a -l:libboost_context.a
 */
#include "peer.h"

#include <boost/fiber/all.hpp>

namespace fibers = boost::fibers;

struct peer_co {
    fibers::mutex mutex;
    fibers::condition_variable turn;
    fibers::fiber fiber;
    bool has_turn = false, is_over = false, is_killed = false;
    peer_co *parent = nullptr; // who resumes it
    void *arg = nullptr;
};
using peer_ref = peer_co *;
using peer_self = peer_ref;
using peer_body = void (*)(peer_ref self);

struct killed {};

static peer_co main_program;

#define PEER_STACKFUL
#define PEER_MAIN (&main_program)
#define PEER_SELF(self) (self)
#define PEER_ARG(self) ((self)->arg)
#define PEER_YIELD(self) yield(self)
#define PEER_RETURN(self) return
#define PEER_BODY(name) static void name(peer_ref self)

static inline void give_turn(peer_ref co)
{
    co->has_turn = true;
    co->turn.notify_one();
}

static inline void wait_turn(peer_ref co)
{
    std::unique_lock<fibers::mutex> lock(co->mutex);
    co->turn.wait(lock, [co] { return co->has_turn; });
    co->has_turn = false;
}

static inline void wait_resumed(peer_ref co)
{
    wait_turn(co);
    if (co->is_killed) {
        throw killed();
    }
}

static inline void yield(peer_ref co)
{
    give_turn(co->parent);
    wait_resumed(co);
}

static inline void run(peer_ref co, peer_body body)
{
    try {
        wait_resumed(co);
        body(co);
    } catch (killed) {
    }
    co->is_over = true;
    give_turn(co->parent);
}

static peer_ref peer_create(peer_ref parent, peer_body body, void *arg, size_t stack_sz)
{
    static fibers::pooled_fixedsize_stack stacks(stack_sz);
    peer_ref co = new peer_co;
    co->parent = parent;
    co->arg = arg;
    co->fiber = fibers::fiber(std::allocator_arg, stacks, run, co, body);
    return co;
}

static inline void peer_resume(peer_ref co)
{
    give_turn(co);
    wait_turn(co->parent);
}

static inline void peer_destroy(peer_ref co)
{
    if (!co->is_over) {
        co->is_killed = true;
        peer_resume(co);
    }
    co->fiber.join();
    delete co;
}

#define peer_kill peer_destroy

static void peer_init()
{
}

#include "bodies.h"

#include "workloads.h"
