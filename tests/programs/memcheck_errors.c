// SPDX-License-Identifier: Apache-2.0
/*
 * For memcheck, which must find what the comments "memcheck: ..." say, each at its line, and
 * nothing else: variables that coroutines on one share stack use before they were set, at once or
 * after their frames were saved out and restored, and pointers to frames that are saved out. Around
 * each such use is one that is right.
 */
#include "aco.h"

#define ESCAPE(ptr) __asm__ volatile("" : : "r"(ptr) : "memory")
#define NOINLINE __attribute__((noinline))

/* So much in a frame is not made by pushing some register, which would define it. */
#define ROOM 32

static volatile int ct_taken;

/* A call, so that a compiler can't do without the branch that leads to it. */
static NOINLINE void take(void)
{
    ct_taken++;
}

/* Defines the bytes of frames to come: a new frame must be undefined all the same. */
static NOINLINE void dirty_the_stack(void)
{
    char bytes[4096];
    memset(bytes, 1, sizeof(bytes));
    ESCAPE(bytes);
}

static void dirties_the_stack(void)
{
    for (;;) {
        dirty_the_stack();
        aco_yield();
    }
}

/* ==== Uninitialised variables ================================================================= */

static void branches_at_once(void)
{
    int set = 1, not_set[ROOM];
    ESCAPE(&set);
    ESCAPE(not_set);
    if (set) {
        take();
    }
    if (not_set[1]) { /* memcheck: Conditional jump */
        take();
    }
    aco_exit();
}

static void branches_after_a_yield(void)
{
    int set = 1, not_set[ROOM];
    ESCAPE(&set);
    ESCAPE(not_set);
    aco_yield();
    if (set) {
        take();
    }
    if (not_set[1]) { /* memcheck: Conditional jump */
        take();
    }
    aco_exit();
}

static NOINLINE void branch_deep(int depth)
{
    int not_set;
    volatile int set[100];
    ESCAPE(&not_set);
    for (int i = 0; i < 100; i++) {
        set[i] = depth;
    }
    if (depth != 0) {
        branch_deep(depth - 1);
    } else {
        aco_yield();
        aco_yield();
        if (not_set) { /* memcheck: Conditional jump */
            take();
        }
    }
    if (set[depth] == depth) {
        take();
    }
}

static void branches_deep(void)
{
    branch_deep(10);
    aco_exit();
}

/* Set by another while the frame is saved out; what is on the stack meanwhile is not its own. */
static void is_set_late(void)
{
    int late;
    ESCAPE(&late);
    aco_yield();
    late = 1;
    ESCAPE(&late);
    aco_yield();
    if (late) {
        take();
    }
    aco_exit();
}

/* ==== Definedness to the bit ================================================================== */

typedef struct {
    int32_t first;
    int32_t middle; /* not set */
    int32_t last;
} triple_t;

static void branches_on_a_member(void)
{
    triple_t triples[ROOM], copy;
    triple_t *triple = &triples[1];
    ESCAPE(triples);
    triple->first = 1;
    triple->last = 1;
    ESCAPE(triples);
    aco_yield();
    copy = *triple;
    ESCAPE(&copy);
    aco_yield();
    if (copy.first) {
        take();
    }
    if (copy.middle) { /* memcheck: Conditional jump */
        take();
    }
    if (copy.last) {
        take();
    }
    aco_exit();
}

static void branches_on_a_bit(void)
{
    uint32_t half_set[ROOM];
    ESCAPE(half_set);
    half_set[1] = (half_set[1] & 0xfffffff0) | 0x05;
    ESCAPE(half_set);
    aco_yield();
    if (half_set[1] & 0x04) {
        take();
    }
    if (half_set[1] & 0x10) { /* memcheck: Conditional jump */
        take();
    }
    aco_exit();
}

/* ==== Pointers to frames that are saved out =================================================== */

static volatile int *volatile stale;

static NOINLINE void point_deep(int depth)
{
    volatile int local[100];
    for (int i = 0; i < 100; i++) {
        local[i] = 1;
    }
    if (depth != 0) {
        point_deep(depth - 1);
    } else {
        stale = local;
        aco_yield();
    }
    if (!local[50]) {
        abort();
    }
}

static void points_deep(void)
{
    point_deep(10);
    aco_exit();
}

static void use_stale(void)
{
    int found = *stale; /* memcheck: Invalid read */
    ESCAPE(&found);
    stale[1] = 1; /* memcheck: Invalid write */
}

static void uses_stale(void)
{
    use_stale();
    aco_exit();
}

/* ==== All of them ============================================================================= */

typedef struct {
    aco_t *main_co;
    aco_share_stack_t *stack;
    aco_t *dirties;
} instance_t;

/* Between any two resumes of a coroutine, another uses the stack. */
static void run(const instance_t *in, aco_cofuncp_t entry)
{
    aco_t *co = aco_create(in->main_co, in->stack, 0, entry, NULL);
    while (!co->is_end) {
        aco_resume(in->dirties);
        aco_resume(co);
    }
    aco_destroy(co);
}

static void run_stale(const instance_t *in)
{
    aco_t *points = aco_create(in->main_co, in->stack, 0, points_deep, NULL);
    aco_resume(points);
    *stale = 1; /* the owner is suspended in place: its frames may be used */
    run(in, uses_stale);
    aco_resume(points);
    aco_destroy(points);
}

int main(void)
{
    static const aco_cofuncp_t entries[] = {
        branches_at_once, branches_after_a_yield, branches_deep,
        is_set_late,      branches_on_a_member,   branches_on_a_bit,
    };
    instance_t in;
    aco_thread_init(NULL);
    in.main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    in.stack = aco_share_stack_new(0);
    in.dirties = aco_create(in.main_co, in.stack, 0, dirties_the_stack, NULL);
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        run(&in, entries[i]);
    }
    run_stale(&in);
    aco_destroy(in.dirties);
    aco_share_stack_destroy(in.stack);
    aco_destroy(in.main_co);
    return ct_taken == 0;
}
