// SPDX-License-Identifier: Apache-2.0
/*
 * glibc's ucontext. Each coroutine has a mapped stack with a guard page, its own or one from a free
 * list. swapcontext() calls the kernel twice for a switch and back, to keep the mask of signals.
 *
 * kind: stackful
 * peer: glibc ucontext
 * build: $CC -O2 $SRC -o $OUT
 * peer: glibc ucontext, pool
 * build: $CC -O2 -DPOOL $SRC -o $OUT
 */
#include "peer.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

typedef struct peer_co *peer_ref;
typedef peer_ref peer_self;
typedef void (*peer_body)(peer_ref self);

struct peer_co {
    ucontext_t context;
    peer_ref parent; /* who resumes it */
    peer_body body;
    void *arg;
    void *mapping; /* guard page and stack */
    size_t sz;
#ifdef POOL
    peer_ref next_free;
#endif
};

static struct peer_co main_program;
static peer_ref running = &main_program;

#define PEER_STACKFUL
#define PEER_MAIN (&main_program)
#define PEER_SELF(self) (self)
#define PEER_ARG(self) ((self)->arg)
#define PEER_YIELD(self) swapcontext(&(self)->context, &(self)->parent->context)
#define PEER_RETURN(self) return
#define PEER_BODY(name) static void name(peer_ref self)

/* When it returns, uc_link is continued: the parent. */
static void enter(void)
{
    running->body(running);
}

/* All of a process have stacks of the same size. */
static peer_ref new_stack(size_t stack_sz)
{
    peer_ref co = (peer_ref)get_memory(sizeof(*co));
    size_t guard_sz = (size_t)sysconf(_SC_PAGESIZE);
    co->sz = stack_sz + guard_sz;
    co->mapping = mmap(NULL, co->sz, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(co->mapping != MAP_FAILED && mprotect(co->mapping, guard_sz, PROT_NONE) == 0,
          "out of memory or mappings");
    getcontext(&co->context);
    co->context.uc_stack.ss_sp = (char *)co->mapping + guard_sz;
    co->context.uc_stack.ss_size = stack_sz;
    return co;
}

#ifdef POOL

static peer_ref free_list;

static inline peer_ref get_stack(size_t stack_sz)
{
    peer_ref co = free_list;
    if (co == NULL) {
        return new_stack(stack_sz);
    }
    free_list = co->next_free;
    return co;
}

static inline void peer_destroy(peer_ref co)
{
    co->next_free = free_list;
    free_list = co;
}

#else

#define get_stack new_stack

static inline void peer_destroy(peer_ref co)
{
    munmap(co->mapping, co->sz);
    free(co);
}

#endif

static inline peer_ref peer_create(peer_ref parent, peer_body body, void *arg, size_t stack_sz)
{
    peer_ref co = get_stack(stack_sz);
    co->parent = parent;
    co->body = body;
    co->arg = arg;
    co->context.uc_link = &parent->context;
    makecontext(&co->context, enter, 0);
    return co;
}

static inline void peer_resume(peer_ref co)
{
    running = co;
    swapcontext(&co->parent->context, &co->context);
    running = co->parent;
}

#define peer_kill peer_destroy

static void peer_init(void)
{
}

#include "bodies.h"
#define PEER_PURE flat /* a resume is the call of swapcontext() and not much else */
#include "workloads.h"
