// SPDX-License-Identifier: Apache-2.0
/*
 * POSIX threads that hand over by a futex, one of them running at a time. A suspended one that is
 * to be destroyed is told to end.
 *
 * kind: thread
 * peer: POSIX threads, futex
 * build: $CC -O2 $SRC -o $OUT -lpthread
 */
#include "peer.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct peer_co *peer_ref;
typedef peer_ref peer_self;
typedef void (*peer_body)(peer_ref self);

struct peer_co {
    int is_resumed; /* futexes: whose turn it is */
    int is_back;
    int is_killed;
    jmp_buf end;
    peer_body body;
    void *arg;
    pthread_t thread;
};

#define THREADS_MAX 10000
static int thread_ct;

#define PEER_STACKFUL
#define PEER_MAIN NULL
#define PEER_SELF(self) (self)
#define PEER_ARG(self) ((self)->arg)
#define PEER_YIELD(self) yield(self)
#define PEER_RETURN(self) return
#define PEER_BODY(name) static void name(peer_ref self)

static void signal_turn(int *turn)
{
    __atomic_store_n(turn, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void wait_turn(int *turn)
{
    while (!__atomic_load_n(turn, __ATOMIC_ACQUIRE)) {
        syscall(SYS_futex, turn, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    }
    __atomic_store_n(turn, 0, __ATOMIC_RELAXED);
}

static void wait_resumed(peer_ref co)
{
    wait_turn(&co->is_resumed);
    if (co->is_killed) {
        longjmp(co->end, 1);
    }
}

static inline void yield(peer_ref co)
{
    signal_turn(&co->is_back);
    wait_resumed(co);
}

static void *run(void *arg)
{
    peer_ref co = (peer_ref)arg;
    if (setjmp(co->end) == 0) {
        wait_resumed(co);
        co->body(co);
        signal_turn(&co->is_back);
    }
    return NULL;
}

static peer_ref peer_create(peer_ref parent, peer_body body, void *arg, size_t stack_sz)
{
    pthread_attr_t attributes;
    peer_ref co = (peer_ref)get_memory(sizeof(*co));
    (void)parent;
    co->is_resumed = co->is_back = co->is_killed = 0;
    co->body = body;
    co->arg = arg;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes,
                              stack_sz > PTHREAD_STACK_MIN ? stack_sz : PTHREAD_STACK_MIN);
    if (thread_ct++ == THREADS_MAX) {
        absent("the more threads, the slower each: more than 10,000 take minutes");
    }
    if (pthread_create(&co->thread, &attributes, run, co) != 0) {
        absent("the system does not allow so many threads");
    }
    pthread_attr_destroy(&attributes);
    return co;
}

static inline void peer_resume(peer_ref co)
{
    signal_turn(&co->is_resumed);
    wait_turn(&co->is_back);
}

static inline void peer_destroy(peer_ref co)
{
    thread_ct--;
    co->is_killed = 1;
    signal_turn(&co->is_resumed);
    pthread_join(co->thread, NULL);
    free(co);
}

#define peer_kill peer_destroy

static void peer_init(void)
{
}

#include "bodies.h"

#include "workloads.h"
