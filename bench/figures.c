// SPDX-License-Identifier: Apache-2.0
/*
 * Measures one workload and prints one number: ns per operation, or bytes per coroutine. Built
 * against aco in its configurations, and with -DPLAIN against plain.h. figures.sh runs them all.
 */
#ifdef PLAIN
#include "plain.h"
#else
#include "aco.h"
#endif

static aco_t *main_co;
static aco_share_stack_t *stack;
static long yields; /* counted by the coroutines, compared with the resumes at the end */

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void die(const char *words)
{
    fprintf(stderr, "figures: %s\n", words);
    exit(1);
}

/* ---- Bodies --------------------------------------------------------------------------------- */

static void flat(void)
{
    for (;;) {
        yields++;
        aco_yield();
    }
}

/* The empty statement after each call keeps it from being a jump. */
static __attribute__((noinline)) void call_4(void)
{
    aco_yield();
    yields++;
}
#define CALL(name, callee)                                                                         \
    static __attribute__((noinline)) void name(void)                                               \
    {                                                                                              \
        callee();                                                                                  \
        __asm__ volatile("");                                                                      \
    }
CALL(call_3, call_4)
CALL(call_2, call_3)
CALL(call_1, call_2)

static void deep(void)
{
    for (;;) {
        call_1();
        __asm__ volatile("");
    }
}

static void through_acosw(void)
{
    for (;;) {
        yields++;
        acosw(aco_gtls_co, aco_gtls_co->main_co);
    }
}

static void ends(void)
{
    yields++;
    aco_exit();
}

static volatile double one = 1.0, three = 3.0, quotient;

static void divides_first(void)
{
    quotient = one / three;
    flat();
}

/* Keeps `sz` bytes alive on its stack, and looks at both ends after each yield. */
#define HOLDS(sz)                                                                                  \
    static void holds_##sz(void)                                                                   \
    {                                                                                              \
        volatile char live[sz];                                                                    \
        live[0] = 1;                                                                               \
        live[(sz) - 1] = 2;                                                                        \
        for (;;) {                                                                                 \
            yields++;                                                                              \
            aco_yield();                                                                           \
            if (live[0] + live[(sz) - 1] != 3) {                                                   \
                die("live bytes changed");                                                         \
            }                                                                                      \
        }                                                                                          \
    }
HOLDS(8)
HOLDS(112)
HOLDS(120)
HOLDS(1000)
HOLDS(2024)
HOLDS(4072)
HOLDS(7992)

static void (*holder(size_t sz))(void)
{
    switch (sz) {
    case 0: return flat;
    case 8: return holds_8;
    case 112: return holds_112;
    case 120: return holds_120;
    case 1000: return holds_1000;
    case 2024: return holds_2024;
    case 4072: return holds_4072;
    case 7992: return holds_7992;
    default: die("no such number of live bytes"); return NULL;
    }
}

/* ---- Workloads ------------------------------------------------------------------------------ */

static double one_coroutine(void (*body)(void))
{
    enum { RESUMES = 10000000 };
    aco_t *co = aco_create(main_co, stack, 0, body, NULL);
    aco_resume(co);
    aco_resume(co);
    yields = 0;
    double start = now_ns();
    for (long i = 0; i < RESUMES; i++) {
        aco_resume(co);
    }
    double ns = (now_ns() - start) / RESUMES;
    if (yields != RESUMES) {
        die("a resume was lost");
    }
    return ns;
}

static double bare_acosw(void)
{
    enum { SWITCHES = 10000000 };
    aco_t *co = aco_create(main_co, stack, 0, through_acosw, NULL);
    aco_resume(co);
    yields = 0;
    aco_gtls_co = co;
    double start = now_ns();
    for (long i = 0; i < SWITCHES; i++) {
        acosw(main_co, co);
    }
    double ns = (now_ns() - start) / SWITCHES;
    if (yields != SWITCHES) {
        die("a switch was lost");
    }
    return ns;
}

static double life(void)
{
    enum { LIVES = 5000000 };
    yields = 0;
    double start = now_ns();
    for (long i = 0; i < LIVES; i++) {
        aco_t *co = aco_create(main_co, stack, 0, ends, NULL);
        aco_resume(co);
        aco_destroy(co);
    }
    double ns = (now_ns() - start) / LIVES;
    if (yields != LIVES) {
        die("a coroutine was lost");
    }
    return ns;
}

/* Creates `count` coroutines and resumes each twice, so that all have their save stacks. */
static aco_t **suspended(size_t count, size_t live_sz, size_t save_sz)
{
    aco_t **all = (aco_t **)malloc(count * sizeof(*all));
    if (all == NULL) {
        die("out of memory");
    }
    for (size_t i = 0; i < count; i++) {
        all[i] = aco_create(main_co, stack, save_sz, holder(live_sz), NULL);
    }
    for (size_t i = 0; i < 2 * count; i++) {
        aco_resume(all[i % count]);
    }
    return all;
}

/* The save_stack_sz that is right for a body: what one of its kind had saved out. */
static size_t right_save_sz(size_t live_sz)
{
    aco_t **two = suspended(2, live_sz, 0);
    size_t sz = two[0]->save_stack.max_cpsz;
    aco_destroy(two[0]);
    aco_destroy(two[1]);
    free(two);
    return sz;
}

static double copying(size_t live_sz)
{
    enum { COUNT = 100000, ROUNDS = 20 };
    aco_t **all = suspended(COUNT, live_sz, right_save_sz(live_sz));
    yields = 0;
    double start = now_ns();
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            aco_resume(all[i]);
        }
    }
    double ns = (now_ns() - start) / ((double)COUNT * ROUNDS);
    if (yields != (long)COUNT * ROUNDS) {
        die("a resume was lost");
    }
    return ns;
}

static double resident_bytes(void)
{
    char line[128];
    double kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    if (status == NULL) {
        die("no /proc");
    }
    while (fgets(line, sizeof(line), status) != NULL) {
        if (strncmp(line, "VmRSS:", 6) == 0) {
            kib = strtod(line + 6, NULL);
        }
    }
    fclose(status);
    return kib * 1024;
}

/* The array of pointers is the program's, not the library's: it is not counted. */
static double memory(size_t live_sz, size_t save_sz)
{
    enum { COUNT = 5000000 };
    double before = resident_bytes();
    suspended(COUNT, live_sz, save_sz);
    return (resident_bytes() - before) / COUNT - (double)sizeof(aco_t *);
}

static double measure(const char *workload, size_t sz)
{
    if (strcmp(workload, "flat") == 0) {
        return one_coroutine(flat);
    }
    if (strcmp(workload, "deep") == 0) {
        return one_coroutine(deep);
    }
    if (strcmp(workload, "main-divides") == 0) {
        quotient = one / three;
        return one_coroutine(flat);
    }
    if (strcmp(workload, "coroutine-divides") == 0) {
        return one_coroutine(divides_first);
    }
    if (strcmp(workload, "acosw") == 0) {
        return bare_acosw();
    }
    if (strcmp(workload, "life") == 0) {
        return life();
    }
    if (strcmp(workload, "copying") == 0) {
        return copying(sz);
    }
    if (strcmp(workload, "memory-default") == 0) {
        return memory(sz, 0);
    }
    if (strcmp(workload, "memory-right") == 0) {
        return memory(sz, right_save_sz(sz));
    }
    die("no such workload");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        die("usage: figures WORKLOAD [LIVE_BYTES]");
    }
    aco_thread_init(NULL);
    main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    stack = aco_share_stack_new(1 << 20);
    printf("%.2f\n", measure(argv[1], argc > 2 ? (size_t)strtoul(argv[2], NULL, 10) : 0));
    return 0;
}
