// SPDX-License-Identifier: Apache-2.0
/*
 * Boost.Asio's stackless coroutine: a function that jumps to where it left off, and whose state is
 * in an object of the program's own. Here that comes from a free list, with a pointer to the
 * function, as the program does not know at compile time which one it resumes.
 *
 * kind: stackless
 * needs: libboost-dev
 * peer: Boost.Asio stackless
 * build: $CXX -std=c++20 -O2 -DNDEBUG $SRC -o $OUT
 */
#include "peer.h"

#include <boost/asio/coroutine.hpp>
#include <new>

struct peer_co;
using peer_ref = peer_co *;
using peer_self = peer_ref;
using peer_body = void (*)(peer_ref self);

struct peer_co : boost::asio::coroutine {
    peer_body body;
    void *arg;
    peer_ref next_free;
};

static peer_ref free_list;

#define PEER_MAIN nullptr
#define PEER_SELF(self) nullptr
#define PEER_ARG(self) ((self)->arg)
#define PEER_RETURN(self) return
#define PEER_BODY(name) static void name(peer_ref self)

static inline peer_ref peer_create(std::nullptr_t, peer_body body, void *arg, size_t)
{
    peer_ref co = free_list;
    if (co != nullptr) {
        free_list = co->next_free;
    } else {
        co = static_cast<peer_ref>(get_memory(sizeof(*co)));
    }
    new (co) boost::asio::coroutine;
    co->body = body;
    co->arg = arg;
    return co;
}

static inline void peer_resume(peer_ref co)
{
    co->body(co);
}

static inline void peer_destroy(peer_ref co)
{
    co->next_free = free_list;
    free_list = co;
}

#define peer_kill peer_destroy

static void peer_init()
{
}

PEER_BODY(scheduled_inner);
#include "bodies.h"

// ==== Bodies that yield ==========================================================================

PEER_BODY(flat)
{
    BOOST_ASIO_CORO_REENTER(self)
    {
        for (;;) {
            yields++;
            BOOST_ASIO_CORO_YIELD;
        }
    }
}

PEER_BODY(until_over)
{
    BOOST_ASIO_CORO_REENTER(self)
    {
        while (!is_over) {
            yields++;
            BOOST_ASIO_CORO_YIELD;
        }
    }
}

// No register lives on: what does is kept in memory.
static struct {
    long i[LIVE_CT];
    double d[LIVE_CT];
} state;

static void add_to_state()
{
    for (int k = 0; k < LIVE_CT; k++) {
        state.i[k] += k + 1;
        state.d[k] += k + 1;
    }
}

PEER_BODY(live)
{
    BOOST_ASIO_CORO_REENTER(self)
    {
        for (int k = 0; k < LIVE_CT; k++) {
            state.i[k] = k;
            state.d[k] = k;
        }
        while (!is_over) {
            add_to_state();
            yields++;
            BOOST_ASIO_CORO_YIELD;
        }
        live_sum = 0;
        for (int k = 0; k < LIVE_CT; k++) {
            live_sum += (double)state.i[k] + state.d[k];
        }
    }
}

PEER_BODY(scheduled_inner)
{
    skynet_task *task = (skynet_task *)PEER_ARG(self);
    BOOST_ASIO_CORO_REENTER(self)
    {
        BOOST_ASIO_CORO_YIELD spawn_children(task, scheduled_inner);
        DELETE_ARRAY(task->children);
        report(task);
    }
}

#include "workloads.h"
