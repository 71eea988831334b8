// SPDX-License-Identifier: Apache-2.0
/*
 * Threads of the State Threads library, which its scheduler switches. To resume one is to signal
 * its condition variable and to wait for its resumer's own; to yield, the other way round. Stacks
 * are mapped without a guard page and used again. A suspended one that is to be destroyed is told
 * to end.
 *
 * kind: stackful
 * needs: libst-dev
 * peer: State Threads
 * build: $CC -O2 $SRC -o $OUT -l:libst.a
 */
#include "peer.h"

#include <setjmp.h>
#include <st.h>

typedef struct peer_co *peer_ref;
typedef peer_ref peer_self;
typedef void (*peer_body)(peer_ref self);

struct peer_co {
    st_cond_t turn;
    int has_turn;
    int is_over;
    int is_killed;
    jmp_buf end;
    peer_ref parent; /* who resumes it */
    peer_body body;
    void *arg;
};

static struct peer_co main_program;

#define PEER_STACKFUL
#define PEER_MAIN (&main_program)
#define PEER_SELF(self) (self)
#define PEER_ARG(self) ((self)->arg)
#define PEER_YIELD(self) yield(self)
#define PEER_RETURN(self) return
#define PEER_BODY(name) static void name(peer_ref self)

static inline void give_turn(peer_ref co)
{
    co->has_turn = 1;
    st_cond_signal(co->turn);
}

static inline void wait_turn(peer_ref co)
{
    while (!co->has_turn) {
        st_cond_wait(co->turn);
    }
    co->has_turn = 0;
}

static inline void wait_resumed(peer_ref co)
{
    wait_turn(co);
    if (co->is_killed) {
        longjmp(co->end, 1);
    }
}

static inline void yield(peer_ref co)
{
    give_turn(co->parent);
    wait_resumed(co);
}

static void *run(void *arg)
{
    peer_ref co = (peer_ref)arg;
    if (setjmp(co->end) == 0) {
        wait_resumed(co);
        co->body(co);
    }
    co->is_over = 1;
    give_turn(co->parent);
    return NULL;
}

static inline peer_ref peer_create(peer_ref parent, peer_body body, void *arg, size_t stack_sz)
{
    peer_ref co = (peer_ref)get_memory(sizeof(*co));
    co->turn = st_cond_new();
    co->has_turn = co->is_over = co->is_killed = 0;
    co->parent = parent;
    co->body = body;
    co->arg = arg;
    if (co->turn == NULL || st_thread_create(run, co, 0, (int)stack_sz) == NULL) {
        absent("the system does not allow so many mappings");
    }
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
        co->is_killed = 1;
        peer_resume(co);
    }
    st_cond_destroy(co->turn);
    free(co);
}

#define peer_kill peer_destroy

static void peer_init(void)
{
    check(st_init() == 0, "the library does not start");
    main_program.turn = st_cond_new();
}

#include "bodies.h"

#include "workloads.h"
