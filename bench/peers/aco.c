// SPDX-License-Identifier: Apache-2.0
/*
 * aco, in its builds. Control words are shared or of each coroutine's own. The switch is inline, or
 * the function acosw(). Stacks come from a pool (extra/stack_pool) or are mapped for each coroutine
 * (standalone), both with a guard page; or one share stack serves all, and live frames are copied.
 * By its side, under the same workloads, the plain shape of a copying library: plain.h.
 *
 * kind: stackful
 *
 * peer: aco pool
 * build: $CC -O2 -I. -DPOOL -DACO_CONFIG_SHARE_FPU_MXCSR_ENV $SRC \
 *        extra/stack_pool/aco_stack_pool.c aco.c acosw.S -o $OUT
 * peer: aco pool, own control words
 * build: $CC -O2 -I. -DPOOL $SRC extra/stack_pool/aco_stack_pool.c aco.c acosw.S -o $OUT
 * peer: aco pool, kill by aco_cancel
 * build: $CC -O2 -I. -DPOOL -DCANCEL -DACO_CONFIG_SHARE_FPU_MXCSR_ENV $SRC \
 *        extra/cancel/aco_cancel.c extra/stack_pool/aco_stack_pool.c aco.c acosw.S -o $OUT
 * peer: aco standalone
 * build: $CC -O2 -I. -DACO_CONFIG_SHARE_FPU_MXCSR_ENV $SRC aco.c acosw.S -o $OUT
 * peer: aco standalone, own control words
 * build: $CC -O2 -I. $SRC aco.c acosw.S -o $OUT
 * peer: aco standalone, acosw
 * build: $CC -O2 -I. -DACO_CONFIG_NO_INLINE_SWITCH -DACO_CONFIG_SHARE_FPU_MXCSR_ENV $SRC \
 *        aco.c acosw.S -o $OUT
 * peer: aco standalone, acosw, own control words
 * build: $CC -O2 -I. -DACO_CONFIG_NO_INLINE_SWITCH $SRC aco.c acosw.S -o $OUT
 * peer: aco share stack
 * build: $CC -O2 -I. -DCOPYING -DACO_CONFIG_SHARE_FPU_MXCSR_ENV $SRC aco.c acosw.S -o $OUT
 * peer: aco share stack, own control words
 * build: $CC -O2 -I. -DCOPYING $SRC aco.c acosw.S -o $OUT
 * peer: plain copying library
 * build: $CC -O2 -I. -DCOPYING -DPLAIN $SRC bench/peers/plain.c -o $OUT
 *
 * needs: libtcmalloc-minimal4
 * peer: aco share stack, tcmalloc
 * build: $CC -O2 -I. -DCOPYING -DACO_CONFIG_SHARE_FPU_MXCSR_ENV $SRC aco.c acosw.S -o $OUT \
 *        -l:libtcmalloc_minimal.so.4
 * needs: libjemalloc2
 * peer: aco share stack, jemalloc
 * build: $CC -O2 -I. -DCOPYING -DACO_CONFIG_SHARE_FPU_MXCSR_ENV $SRC aco.c acosw.S -o $OUT \
 *        -l:libjemalloc.so.2
 * needs: libmimalloc2.0
 * peer: aco share stack, mimalloc
 * build: $CC -O2 -I. -DCOPYING -DACO_CONFIG_SHARE_FPU_MXCSR_ENV $SRC aco.c acosw.S -o $OUT \
 *        -l:libmimalloc.so.2.0
 * needs: gcc-multilib
 * peer: aco standalone, -m32
 * build: $CC -m32 -O2 -I. -DACO_CONFIG_SHARE_FPU_MXCSR_ENV $SRC aco.c acosw.S -o $OUT
 * peer: aco standalone, acosw, -m32
 * build: $CC -m32 -O2 -I. -DACO_CONFIG_NO_INLINE_SWITCH -DACO_CONFIG_SHARE_FPU_MXCSR_ENV \
 *        $SRC aco.c acosw.S -o $OUT
 */
#ifdef PLAIN
#include "plain.h"
#else
#include "aco.h"
#endif
#ifdef POOL
#include "extra/stack_pool/aco_stack_pool.h"
#endif
#ifdef CANCEL
#include "extra/cancel/aco_cancel.h"
#endif

#include "peer.h"

typedef aco_t *peer_ref;
typedef peer_ref peer_self;
typedef void (*peer_body)(void);

static aco_t *main_co;

#define PEER_STACKFUL
#define PEER_MAIN main_co
#define PEER_SELF(self) (self)
#define PEER_ARG(self) ((self)->arg)
#define PEER_YIELD(self) ((void)(self), aco_yield())
#define PEER_RETURN(self) ((void)(self), aco_exit())
#define PEER_BODY(name)                                                                            \
    static inline void name##_of(aco_t *self) __attribute__((always_inline));                      \
    static void name(void)                                                                         \
    {                                                                                              \
        name##_of(aco_gtls_co);                                                                    \
    }                                                                                              \
    static inline void name##_of(aco_t *self)

static inline void peer_resume(aco_t *co)
{
    aco_resume(co);
}

/* ==== Stacks ================================================================================= */

#if defined(POOL)

static aco_stack_pool_t *pool;

static inline aco_t *peer_create(aco_t *parent, peer_body body, void *arg, size_t stack_sz)
{
    if (pool == NULL) {
        pool = aco_stack_pool_new(stack_sz, 0);
    }
    return aco_stack_pool_create_co(pool, parent, body, arg);
}

static inline void peer_destroy(aco_t *co)
{
    aco_stack_pool_destroy_co(pool, co);
}

#elif defined(COPYING)

/* One share stack for each depth of nesting, since a parent and its children can't share one. */
#define LEVEL_CT 16
static aco_share_stack_t *levels[LEVEL_CT];

static inline aco_t *peer_create(aco_t *parent, peer_body body, void *arg, size_t stack_sz)
{
    int level = 0;
    if (parent != main_co) {
        while (levels[level++] != parent->share_stack) {
        }
    }
    if (levels[level] == NULL) {
        levels[level] = aco_share_stack_new(stack_sz);
    }
    return aco_create(parent, levels[level], 0, body, arg);
}

static inline void peer_destroy(aco_t *co)
{
    aco_destroy(co);
}

#else

static inline aco_t *peer_create(aco_t *parent, peer_body body, void *arg, size_t stack_sz)
{
    return aco_create(parent, aco_share_stack_new(stack_sz), 0, body, arg);
}

static inline void peer_destroy(aco_t *co)
{
    aco_share_stack_t *stack = co->share_stack;
    aco_destroy(co);
    aco_share_stack_destroy(stack);
}

#endif

static inline void peer_kill(aco_t *co)
{
#ifdef CANCEL
    aco_cancel(co);
#endif
    peer_destroy(co);
}

static void peer_init(void)
{
    aco_thread_init(NULL);
    main_co = aco_create(NULL, NULL, 0, NULL, NULL);
}

#include "bodies.h"
static int run_others(int argc, char **argv);
#define PEER_OTHERS(argc, argv) run_others(argc, argv)
#include "workloads.h"

/* ==== Workloads of its own =================================================================== */

#ifdef COPYING

static double resident_bytes(void)
{
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    check(statm != NULL && fscanf(statm, "%*d %ld", &pages) == 1, "no /proc/self/statm");
    fclose(statm);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

#define SHARE_STACK_SZ ((size_t)1 << 20) /* bytes */

static size_t data_sz; /* bytes */

/* Keeps its data alive on its stack, and looks at both ends after each yield. */
PEER_BODY(holds)
{
    volatile char data[data_sz];
    char mark = (char)(uintptr_t)PEER_ARG(self);
    data[0] = mark;
    data[data_sz - 1] = mark;
    while (!is_over) {
        yields++;
        PEER_YIELD(self);
        check(data[0] == mark && data[data_sz - 1] == mark, "live bytes changed");
    }
    PEER_RETURN(self);
}

/* Creates so many and resumes each `rounds` times. */
static double make_all(peer_body body, long count, size_t save_sz, long rounds)
{
    all = (peer_ref *)get_memory((size_t)count * sizeof(*all));
    int64_t start = now_ns();
    for (long i = 0; i < count; i++) {
        all[i] = aco_create(main_co, levels[0], save_sz, body, (void *)(uintptr_t)i);
    }
    double ns = mean_ns(start, (double)count);
    resume_all(count, rounds);
    return ns;
}

/* The live bytes of a suspended coroutine with this body. */
static size_t live_sz_of(peer_body body)
{
    make_all(body, 2, 0, 2);
    size_t sz = all[0]->save_stack.max_cpsz;
    destroy_all(2);
    free(all);
    return sz;
}

/* The body whose frames have the size nearest to the one wanted; they include some beside data. */
static peer_body nearest_body(size_t wanted_sz)
{
    data_sz = 1024;
    size_t other_sz = live_sz_of(holds) - data_sz;
    if (wanted_sz <= other_sz) {
        return until_over;
    }
    data_sz = wanted_sz - other_sz;
    return holds;
}

static void end_all(long count)
{
    is_over = 1;
    resume_all(count, 1);
    destroy_all(count);
    free(all);
}

static void run_share(long count, size_t wanted_sz, long rounds)
{
    levels[0] = aco_share_stack_new(SHARE_STACK_SZ);
    peer_body body = nearest_body(wanted_sz);
    size_t live_sz = live_sz_of(body);
    double before = resident_bytes();
    double create_ns = make_all(body, count, live_sz, 2);
    double bytes = (resident_bytes() - before) / (double)count - (double)sizeof(*all);
    yields = 0;
    double ns = resume_all(count, rounds);
    check(yields == count * rounds, "a resume was lost");
    check(all[0]->save_stack.max_cpsz == (count > 1 ? live_sz : 0), "another size was copied");
    end_all(count);
    print_metric("create_ns", create_ns);
    print_metric("ns", ns);
    print_metric("copied_bytes", (double)live_sz);
    print_metric("bytes", bytes);
}

static long sum_of_ids;

/* Its number is on its stack while it is suspended, and is counted when it goes on. */
PEER_BODY(remembers)
{
    volatile long id = (long)(uintptr_t)PEER_ARG(self);
    PEER_YIELD(self);
    sum_of_ids += id;
    PEER_YIELD(self);
    PEER_RETURN(self);
}

/* Starts so many coroutines; all are suspended at a time. Then resumes each once more. */
static void run_suspended(long count)
{
    levels[0] = aco_share_stack_new(SHARE_STACK_SZ);
    size_t live_sz = live_sz_of(remembers);
    sum_of_ids = 0;
    double before = resident_bytes();
    double create_ns = make_all(remembers, count, live_sz, 0);
    double start_ns = resume_all(count, 1);
    double bytes = (resident_bytes() - before) / (double)count - (double)sizeof(*all);
    double ns = resume_all(count, 1);
    check(sum_of_ids == count * (count - 1) / 2, "wrong sum of what they remember");
    print_metric("create_ns", create_ns);
    print_metric("start_ns", start_ns);
    print_metric("ns", ns);
    print_metric("bytes", bytes);
}

#endif

#ifndef PLAIN

/* Two that hand over to each other. Each counts its own turns: a count of both, in memory, would
 * have each hand-over wait for the count of the one before. */
static aco_t *pair[2];
static long turns;

PEER_BODY(ping)
{
    for (;;) {
        for (long left_ct = turns; left_ct > 0; left_ct--) {
            aco_yield_to(pair[1]);
        }
        PEER_YIELD(self);
    }
}

PEER_BODY(pong)
{
    for (;;) {
        yields++;
        aco_yield_to(pair[0]);
    }
}

static double hand_over(long n)
{
    yields = 0;
    turns = n / 2;
    int64_t start = now_ns();
    peer_resume(pair[0]);
    double ns = mean_ns(start, (double)n);
    check(yields == n / 2, "a hand-over was lost");
    return ns;
}

static double alternate(long n)
{
    yields = 0;
    int64_t start = now_ns();
    for (long i = 0; i < n; i += 2) {
        peer_resume(pair[0]);
        peer_resume(pair[1]);
    }
    double ns = mean_ns(start, (double)n);
    check(yields == n, "a resume was lost");
    return ns;
}

/* From one coroutine to the other, straight, and by way of their parent. */
static void run_transfer(long n)
{
    n += n % 2;
    for (int i = 0; i < 2; i++) {
        pair[i] = peer_create(main_co, i == 0 ? ping : pong, NULL, SWITCH_STACK_SZ);
    }
    hand_over(WARM_UP_CT);
    double direct_ns = hand_over(n);
    for (int i = 0; i < 2; i++) {
        peer_kill(pair[i]);
        pair[i] = peer_create(main_co, flat, NULL, SWITCH_STACK_SZ);
    }
    alternate(WARM_UP_CT);
    double through_main_ns = alternate(n);
    print_metric("direct_ns", direct_ns);
    print_metric("through_main_ns", through_main_ns);
}

#if !defined(POOL) && !defined(COPYING)

/* The switch alone, there and back, with no look at what the coroutines are. */
PEER_BODY(switches)
{
    for (;;) {
        aco_t *to = main_co;
        yields++;
        ACO_SWITCH(self, to);
    }
}

static __attribute__((noinline)) void switch_often(aco_t *co, long n)
{
    aco_t *from = main_co;
    for (long i = 0; i < n; i++) {
        aco_t *to = co;
        ACO_SWITCH(from, to);
    }
}

static void run_pure(long n)
{
    aco_t *co = peer_create(main_co, switches, NULL, SWITCH_STACK_SZ);
    aco_resume(co);
    switch_often(co, WARM_UP_CT);
    yields = 0;
    int64_t start = now_ns();
    switch_often(co, n);
    double ns = mean_ns(start, (double)n);
    check(yields == n, "a switch was lost");
    peer_destroy(co);
    print_metric("ns", ns);
}

#endif
#endif

#ifdef POOL

/* The pool's part of a life. */
static void run_get_put(long n)
{
    pool = aco_stack_pool_new(SWITCH_STACK_SZ, 0);
    aco_stack_pool_put(pool, aco_stack_pool_get(pool));
    int64_t start = now_ns();
    for (long i = 0; i < n; i++) {
        aco_stack_pool_put(pool, aco_stack_pool_get(pool));
    }
    print_metric("ns", mean_ns(start, (double)n));
}

#endif

static int run_others(int argc, char **argv)
{
#ifndef PLAIN
    if (is_called(argc, argv, "transfer", 1, 1)) {
        run_transfer(number(argv[2]));
        return 1;
    }
#if !defined(POOL) && !defined(COPYING)
    if (is_called(argc, argv, "pure", 1, 1)) {
        run_pure(number(argv[2]));
        return 1;
    }
#endif
#endif
#ifdef POOL
    if (is_called(argc, argv, "get_put", 1, 1)) {
        run_get_put(number(argv[2]));
        return 1;
    }
#endif
#ifdef COPYING
    if (is_called(argc, argv, "share", 3, 3)) {
        run_share(number(argv[2]), (size_t)number(argv[3]), number(argv[4]));
        return 1;
    }
    if (is_called(argc, argv, "suspended", 1, 1)) {
        run_suspended(number(argv[2]));
        return 1;
    }
#endif
    (void)argc;
    (void)argv;
    return 0;
}
