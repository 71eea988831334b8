// SPDX-License-Identifier: Apache-2.0
/*
 * minicoro, with the stacks that it takes from malloc(), or with its coroutines made again in the
 * memory of destroyed ones. It takes stacks of 32 KB at least. A suspended one is not unwound.
 *
 * kind: stackful
 * needs: cargo-web/cargo
 * registry: crates.io minicoro-sys 0.8.1
 * peer: minicoro
 * build: $CC -O2 -DNDEBUG $SRC -o $OUT \
 *        -I"$(bench/peers/rust/build.sh minicoro-sys source "$OUT")"
 * peer: minicoro, pool
 * build: $CC -O2 -DNDEBUG -DPOOL $SRC -o $OUT \
 *        -I"$(bench/peers/rust/build.sh minicoro-sys source "$OUT")"
 */
#define MCO_DEFAULT_STORAGE_SIZE 0 /* for values that are passed: not used here */
#define MINICORO_IMPL
#include "minicoro.h"

#include "peer.h"

typedef mco_coro *peer_ref;
typedef mco_coro *peer_self;
typedef void (*peer_body)(mco_coro *self);

#define PEER_STACKFUL
#define PEER_MAIN NULL
#define PEER_SELF(self) (self)
#define PEER_ARG(self) mco_get_user_data(self)
#define PEER_YIELD(self) mco_yield(self)
#define PEER_RETURN(self) return
#define PEER_BODY(name) static void name(mco_coro *self)

static inline void peer_resume(mco_coro *co)
{
    mco_resume(co);
}

static mco_desc describe(peer_body body, void *arg, size_t stack_sz)
{
    mco_desc desc = mco_desc_init(body,
                                  stack_sz < MCO_MIN_STACK_SIZE ? MCO_MIN_STACK_SIZE : stack_sz);
    desc.user_data = arg;
    return desc;
}

#ifdef POOL

/* Those that were destroyed, linked by what they begin with. */
static mco_coro *destroyed;

static inline mco_coro *peer_create(mco_coro *parent, peer_body body, void *arg, size_t stack_sz)
{
    (void)parent;
    mco_desc desc = describe(body, arg, stack_sz);
    mco_coro *co = destroyed;
    if (co == NULL) {
        check(mco_create(&co, &desc) == MCO_SUCCESS, "no coroutine");
        return co;
    }
    memcpy(&destroyed, co, sizeof(destroyed));
    check(mco_init(co, &desc) == MCO_SUCCESS, "no coroutine");
    return co;
}

static inline void peer_destroy(mco_coro *co)
{
    check(mco_uninit(co) == MCO_SUCCESS, "a coroutine can't be destroyed");
    memcpy(co, &destroyed, sizeof(destroyed));
    destroyed = co;
}

#else

static inline mco_coro *peer_create(mco_coro *parent, peer_body body, void *arg, size_t stack_sz)
{
    (void)parent;
    mco_desc desc = describe(body, arg, stack_sz);
    mco_coro *co;
    check(mco_create(&co, &desc) == MCO_SUCCESS, "no coroutine");
    return co;
}

static inline void peer_destroy(mco_coro *co)
{
    check(mco_destroy(co) == MCO_SUCCESS, "a coroutine can't be destroyed");
}

#endif

static inline void peer_kill(mco_coro *co)
{
    peer_destroy(co);
}

static void peer_init(void)
{
}

#include "bodies.h"
#include "workloads.h"
