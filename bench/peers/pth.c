// SPDX-License-Identifier: Apache-2.0
/*
 * Threads of GNU Pth, which its scheduler switches. To resume one is to yield to it by name; to
 * yield, to its resumer. Each has a stack from malloc(). A suspended one that is to be destroyed is
 * aborted. Each switch calls the kernel several times.
 *
 * kind: stackful
 * needs: libpth-dev
 * peer: GNU Pth
 * build: $CC -O2 $SRC -o $OUT -l:libpth.a -ldl
 */
#include "peer.h"

#include <pth.h>

typedef struct peer_co *peer_ref;
typedef peer_ref peer_self;
typedef void (*peer_body)(peer_ref self);

struct peer_co {
    pth_t thread;
    int has_turn;
    int is_over;
    peer_ref parent; /* who resumes it */
    peer_body body;
    void *arg;
};

/* A switch takes the longer the more threads there are, and a creation tens of microseconds. */
#define THREADS_MAX 10000
#define CREATIONS_MAX 100000
static int thread_ct, creation_ct;

static struct peer_co main_program;

#define PEER_STACKFUL
#define PEER_MAIN (&main_program)
#define PEER_SELF(self) (self)
#define PEER_ARG(self) ((self)->arg)
#define PEER_YIELD(self) yield(self)
#define PEER_RETURN(self) return
#define PEER_BODY(name) static void name(peer_ref self)

/* The scheduler may run others in between, but runs first the one it is asked for. */
static inline void hand_over(peer_ref from, peer_ref to)
{
    to->has_turn = 1;
    while (!from->has_turn) {
        pth_yield(to->thread);
    }
    from->has_turn = 0;
}

static inline void yield(peer_ref co)
{
    hand_over(co, co->parent);
}

static void *run(void *arg)
{
    peer_ref co = (peer_ref)arg;
    while (!co->has_turn) {
        pth_yield(co->parent->thread);
    }
    co->has_turn = 0;
    co->body(co);
    co->is_over = 1;
    co->parent->has_turn = 1;
    return NULL;
}

static inline peer_ref peer_create(peer_ref parent, peer_body body, void *arg, size_t stack_sz)
{
    static pth_attr_t attributes;
    peer_ref co = (peer_ref)get_memory(sizeof(*co));
    if (attributes == NULL) {
        attributes = pth_attr_new();
        pth_attr_set(attributes, PTH_ATTR_STACK_SIZE, (unsigned)stack_sz);
    }
    co->has_turn = co->is_over = 0;
    co->parent = parent;
    co->body = body;
    co->arg = arg;
    if (thread_ct++ == THREADS_MAX || creation_ct++ == CREATIONS_MAX) {
        absent("so many threads take minutes");
    }
    co->thread = pth_spawn(attributes, run, co);
    check(co->thread != NULL, "out of memory");
    return co;
}

static inline void peer_resume(peer_ref co)
{
    hand_over(co->parent, co);
}

static inline void peer_destroy(peer_ref co)
{
    thread_ct--;
    if (co->is_over) {
        check(pth_join(co->thread, NULL), "a thread can't be joined");
    } else {
        check(pth_abort(co->thread), "a thread can't be aborted");
    }
    free(co);
}

#define peer_kill peer_destroy

static void peer_init(void)
{
    check(pth_init(), "the library does not start");
    main_program.thread = pth_self();
}

#include "bodies.h"

#include "workloads.h"
