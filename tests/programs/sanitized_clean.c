// SPDX-License-Identifier: Apache-2.0
/*
 * A program without an error, about which sanitizers must be silent. Its coroutines do all that
 * could mislead one: their arrays lie where others of another shape had theirs, their frames are
 * abandoned, copied and left by longjmp(), and hold the only pointers to blocks. Exits with 0 if
 * all is well, otherwise says what is not. The argument names what is done; see `acts`. Relies on
 * aco.h and pthreads.
 */
#include "aco.h"

#include <pthread.h>
#include <setjmp.h>

#define NOINLINE __attribute__((noinline))
#define ARRAY_SZ(array) (sizeof(array) / sizeof((array)[0]))

#define CHECK(EX) ((EX) ? (void)0 : die(#EX, __LINE__))

static void die(const char *text, int line)
{
    fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, line, text);
    exit(3);
}

/* The next of a sequence of pseudo-random numbers, below `limit`; `*random` is its state. */
static uint32_t below(uint32_t *random, uint32_t limit)
{
    *random = *random * 1664525 + 1013904223;
    return (*random >> 8) % limit;
}

static NOINLINE void fill(unsigned char *bytes, size_t sz, uint32_t seed)
{
    for (size_t i = 0; i < sz; i++) {
        bytes[i] = (unsigned char)(seed + i * 7);
    }
}

static NOINLINE int is_filled(const unsigned char *bytes, size_t sz, uint32_t seed)
{
    for (size_t i = 0; i < sz; i++) {
        if (bytes[i] != (unsigned char)(seed + i * 7)) {
            return 0;
        }
    }
    return 1;
}

/* The pattern by which programs reset a coroutine. */
static void reset_by_hand(aco_t *co)
{
    co->reg[ACO_REG_IDX_RETADDR] = (void *)(uintptr_t)co->fp;
    co->reg[ACO_REG_IDX_SP] = co->share_stack->align_retptr;
    co->is_end = 0;
    co->save_stack.valid_sz = 0;
}

static aco_t *make_main(void)
{
    aco_thread_init(NULL);
    return aco_create(NULL, NULL, 0, NULL, NULL);
}

/* clang keeps the locals of a function with inline assembly off ASan's fake stack. Functions with
 * arrays therefore have others switch. */
static NOINLINE void yield(void)
{
    aco_yield();
}

static NOINLINE void run(aco_t *co)
{
    aco_resume(co);
}

/* Calls `leave` with frames of arrays above, as many as `depth`. */
static NOINLINE void dive(unsigned depth, void (*leave)(void *), void *arg)
{
    unsigned char data[20];
    fill(data, sizeof(data), depth);
    if (depth == 0) {
        leave(arg);
    } else {
        dive(depth - 1, leave, arg);
    }
    CHECK(is_filled(data, sizeof(data), depth));
}

/* Overwrites what is left below, as any deep call does. An array of variable size is never on a
 * fake stack. */
static NOINLINE void scrub(void)
{
    static volatile size_t sz = 4096;
    unsigned char data[sz];
    fill(data, sizeof(data), 0);
}

/* ==== Walks =================================================================================== */

/*
 * Workers on a few share stacks, of which the first belongs to one worker and the last lies in a
 * block, are created, resumed, reset and destroyed at random. At every resume a worker goes deeper
 * into frames of some shape, returns from one, jumps out of many, lets another worker run, ends or
 * stays.
 */
#define WORKER_CT 12
#define MAX_DEPTH 12u
#define STEP_CT 2000

static const size_t stack_sizes[] = {65536, 50000, 100000};
#define STACK_CT ARRAY_SZ(stack_sizes)

typedef struct world world_t;

typedef struct {
    world_t *world;
    aco_t *co; /* NULL: there is none */
    uint32_t random;
    unsigned ct_steps;
} worker_t;

struct world {
    uint32_t random;
    aco_t *parent; /* of all workers */
    void *block;   /* with the last share stack */
    aco_share_stack_t *stacks[STACK_CT];
    worker_t workers[WORKER_CT];
    unsigned ct_steps; /* of all workers, who must not race for it */
};

static void wander(worker_t *w, unsigned depth);

static NOINLINE void in_small_arrays(worker_t *w, unsigned depth)
{
    unsigned char first[9], second[40];
    fill(first, sizeof(first), depth);
    fill(second, sizeof(second), depth + 1);
    wander(w, depth);
    CHECK(is_filled(first, sizeof(first), depth) && is_filled(second, sizeof(second), depth + 1));
}

static NOINLINE void in_large_array(worker_t *w, unsigned depth)
{
    unsigned char data[700];
    fill(data, sizeof(data), depth);
    wander(w, depth);
    CHECK(is_filled(data, sizeof(data), depth));
}

static NOINLINE void in_variable_array(worker_t *w, unsigned depth)
{
    size_t sz = 1 + below(&w->random, 300);
    unsigned char data[sz];
    fill(data, sz, depth);
    wander(w, depth);
    CHECK(is_filled(data, sz, depth));
}

typedef struct {
    jmp_buf env;
} place_t;

/* Abandons its frames in a jump. */
static void jump_back(void *place)
{
    aco_yield();
    longjmp(((place_t *)place)->env, 1);
}

static NOINLINE void jump(worker_t *w, unsigned depth)
{
    place_t place;
    if (setjmp(place.env) == 0) {
        dive(3, jump_back, &place);
    }
    wander(w, depth);
}

static void (*const shapes[])(worker_t *w, unsigned depth) = {in_small_arrays, in_large_array,
                                                              in_variable_array, jump};

/* Yields to its parent or to another worker. */
static void yield_to_any(worker_t *w)
{
    const worker_t *other = &w->world->workers[below(&w->random, WORKER_CT)];
    if (below(&w->random, 4) == 0 && other != w && other->co != NULL && !other->co->is_end) {
        aco_yield_to(other->co);
    } else {
        aco_yield();
    }
}

static NOINLINE void wander(worker_t *w, unsigned depth)
{
    for (;;) {
        yield_to_any(w);
        w->ct_steps++;
        w->world->ct_steps++;
        uint32_t choice = below(&w->random, 100);
        if (choice < 40 && depth < MAX_DEPTH) {
            shapes[below(&w->random, ARRAY_SZ(shapes))](w, depth + 1);
        } else if (choice < 70) {
            return;
        } else if (choice < 75) {
            aco_exit();
        }
    }
}

static void wanders(void)
{
    in_small_arrays((worker_t *)aco_get_arg(), 0);
    aco_exit();
}

static void reset(world_t *world, worker_t *w)
{
    if (below(&world->random, 2) == 0) {
        reset_by_hand(w->co);
    } else {
        aco_reset(w->co, wanders, w);
    }
}

static void step(world_t *world)
{
    uint32_t number = below(&world->random, WORKER_CT);
    worker_t *w = &world->workers[number];
    if (w->co == NULL) {
        /* The first worker has a share stack to itself. */
        size_t stack = number == 0 ? 0 : 1 + below(&world->random, STACK_CT - 1);
        w->co = aco_create(world->parent, world->stacks[stack], 0, wanders, w);
        return;
    }
    uint32_t choice = below(&world->random, 100);
    if (choice < 4 || (w->co->is_end && choice < 50)) {
        aco_destroy(w->co);
        w->co = NULL;
    } else if (choice < 8 || w->co->is_end) {
        reset(world, w);
    } else {
        aco_resume(w->co);
        scrub();
    }
}

static world_t *make_world(aco_t *parent, uint32_t seed)
{
    world_t *world = (world_t *)calloc(1, sizeof(*world));
    CHECK(world != NULL);
    world->random = seed;
    world->parent = parent;
    for (size_t i = 0; i + 1 < STACK_CT; i++) {
        world->stacks[i] = aco_share_stack_new2(stack_sizes[i], (char)(i % 2));
    }
    world->block = malloc(stack_sizes[STACK_CT - 1]);
    world->stacks[STACK_CT - 1] = aco_share_stack_new_in(world->block, stack_sizes[STACK_CT - 1]);
    for (uint32_t i = 0; i < WORKER_CT; i++) {
        world->workers[i].world = world;
        world->workers[i].random = seed + i;
    }
    return world;
}

static void destroy_world(world_t *world)
{
    unsigned ct_steps = 0;
    for (unsigned i = 0; i < WORKER_CT; i++) {
        ct_steps += world->workers[i].ct_steps;
        if (world->workers[i].co != NULL) {
            aco_destroy(world->workers[i].co);
        }
    }
    CHECK(ct_steps == world->ct_steps && ct_steps > STEP_CT / 2);
    for (size_t i = 0; i < STACK_CT; i++) {
        aco_share_stack_destroy(world->stacks[i]);
    }
    free(world->block);
    free(world);
}

/* Makes a walk with the caller, of whatever kind, as the parent of all workers. */
static void walk_with(aco_t *parent, uint32_t seed)
{
    world_t *world = make_world(parent, seed);
    for (unsigned i = 0; i < STEP_CT; i++) {
        step(world);
        if (i % 20 == 0 && !aco_is_main_co(parent)) {
            aco_yield();
        }
    }
    destroy_world(world);
}

static void *walk_in_thread(void *seed)
{
    aco_t *main_co = make_main();
    walk_with(main_co, *(const uint32_t *)seed);
    aco_destroy(main_co);
    return NULL;
}

static void walk(void)
{
    uint32_t seed = 4000;
    walk_in_thread(&seed);
}

/* Parents that are coroutines themselves, and copied. */
static void walks(void)
{
    walk_with(aco_get_co(), *(const uint32_t *)aco_get_arg());
    aco_exit();
}

static void walk_nested(void)
{
    static uint32_t seeds[] = {5, 60};
    aco_t *cos[ARRAY_SZ(seeds)], *main_co = make_main();
    aco_share_stack_t *stack = aco_share_stack_new(0);
    for (size_t i = 0; i < ARRAY_SZ(seeds); i++) {
        cos[i] = aco_create(main_co, stack, 0, walks, &seeds[i]);
    }
    while (!cos[0]->is_end) {
        for (size_t i = 0; i < ARRAY_SZ(seeds); i++) {
            aco_resume(cos[i]);
            scrub();
        }
    }
    for (size_t i = 0; i < ARRAY_SZ(seeds); i++) {
        aco_destroy(cos[i]);
    }
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
}

static void walk_in_threads(void)
{
    static uint32_t seeds[] = {1, 20, 300};
    pthread_t threads[ARRAY_SZ(seeds)];
    for (size_t i = 0; i < ARRAY_SZ(seeds); i++) {
        CHECK(pthread_create(&threads[i], NULL, walk_in_thread, &seeds[i]) == 0);
    }
    for (size_t i = 0; i < ARRAY_SZ(seeds); i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

/* ==== Many ends =============================================================================== */

/* More calls than a sanitizer has room for are never returned from. */
#define END_CT 100
#define END_DEPTH 1000u

static void yield_and_end(void *arg)
{
    (void)arg;
    aco_yield();
    aco_exit();
}

static void ends_deep(void)
{
    dive(END_DEPTH, yield_and_end, NULL);
    aco_exit();
}

static void end_often(void)
{
    aco_t *main_co = make_main();
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *reset = aco_create(main_co, stack, 0, ends_deep, NULL);
    for (unsigned i = 0; i < END_CT; i++) {
        aco_resume(reset);
        reset_by_hand(reset);
        aco_t *co = aco_create(main_co, stack, 0, ends_deep, NULL);
        aco_resume(co);
        aco_resume(co);
        CHECK(co->is_end);
        aco_destroy(co);
    }
    aco_destroy(reset);
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
}

/* ==== Many direct switches ==================================================================== */

#define DIRECT_CT 40000 /* by each of two */

static aco_t *partners[2];

static void yields_to_the_other(void)
{
    const aco_t *self = aco_get_co();
    for (unsigned i = 0; i < DIRECT_CT; i++) {
        aco_yield_to(partners[self == partners[0]]);
    }
    aco_yield();
    aco_exit();
}

static void yield_often(void)
{
    aco_t *main_co = make_main();
    aco_share_stack_t *stack = aco_share_stack_new(65536);
    for (size_t i = 0; i < ARRAY_SZ(partners); i++) {
        partners[i] = aco_create(main_co, stack, 0, yields_to_the_other, NULL);
    }
    aco_resume(partners[0]);
    scrub();
    for (size_t i = 0; i < ARRAY_SZ(partners); i++) {
        CHECK(!partners[i]->is_end);
        aco_destroy(partners[i]);
    }
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
}

/* ==== Memory of the sanitizer ================================================================= */

/*
 * Where ASan puts locals on fake stacks, these are 11 times as large as the share stack. They go
 * with the coroutine, whatever its state, and when it ends or starts again, too.
 */
#define FAKE_CT 40
#define FAKE_STACK_SZ ((size_t)1 << 20) /* bytes */

/* Bytes that are mapped. */
static size_t mapped_sz(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%zu", &pages) == 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static NOINLINE void yield_with_array(void)
{
    unsigned char data[64];
    fill(data, sizeof(data), 0);
    yield();
    CHECK(is_filled(data, sizeof(data), 0));
}

static void yields_with_array(void)
{
    yield_with_array();
    aco_exit();
}

static void keep_nothing(void)
{
    aco_t *main_co = make_main();
    aco_share_stack_t *stack = aco_share_stack_new(FAKE_STACK_SZ - 4096);
    aco_t *first = NULL, *cos[FAKE_CT];
    size_t before = 0;
    for (unsigned i = 0; i < FAKE_CT; i++) {
        cos[i] = aco_create(main_co, stack, 0, yields_with_array, NULL);
        aco_resume(cos[i]);
        if (i == 0) {
            before = mapped_sz();
            first = cos[0];
        } else if (i % 4 == 0) {
            aco_resume(cos[i]); /* has ended, and stays */
        } else if (i % 4 == 1) {
            aco_destroy(cos[i]); /* in place */
        } else if (i % 4 == 2) {
            aco_resume(first); /* which starts again */
            reset_by_hand(first);
            aco_destroy(cos[i]); /* saved out */
        } else {
            aco_resume(cos[i]);
            reset_by_hand(cos[i]);
            aco_destroy(cos[i]); /* reset after its end */
        }
    }
    CHECK(mapped_sz() < before + FAKE_CT / 4 * FAKE_STACK_SZ);
    aco_destroy(first);
    for (unsigned i = 4; i < FAKE_CT; i += 4) {
        aco_destroy(cos[i]);
    }
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
}

/* TSan keeps some 800 KiB for each fiber, and some for later. */
#define FIBER_CT 100
#define FIBER_SZ ((size_t)200 << 10) /* bytes; less than one takes */

static void start_and_destroy(aco_t *main_co, aco_share_stack_t *stack)
{
    for (unsigned i = 0; i < FIBER_CT; i++) {
        aco_t *co = aco_create(main_co, stack, 0, yields_with_array, NULL);
        aco_resume(co);
        aco_destroy(co);
    }
}

static void keep_no_fiber(void)
{
    aco_t *main_co = make_main();
    aco_share_stack_t *stack = aco_share_stack_new(0);
    start_and_destroy(main_co, stack);
    size_t before = mapped_sz();
    start_and_destroy(main_co, stack);
    CHECK(mapped_sz() < before + FIBER_CT * FIBER_SZ);
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
}

/* ==== A switch that ASan is not told of ======================================================= */

static void yields_for_ever(void)
{
    for (;;) {
        yield();
    }
}

/* Switches as bindings do that know nothing of sanitizers. The way back is reported to ASan. */
static void switch_untold(void)
{
    aco_t *main_co = make_main();
    aco_share_stack_t *stack = aco_share_stack_new(65536);
    aco_t *co = aco_create(main_co, stack, 0, yields_for_ever, NULL);
    aco_resume(co);
    if (co->is_owner) { /* a stress build evicts */
        aco_gtls_co = co;
        acosw(main_co, co);
        aco_gtls_co = main_co;
    }
    aco_resume(co);
    scrub();
    aco_destroy(co);
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
}

/* ==== Blocks that are no leak ================================================================= */

#define BLOCK_CT 3

/* The size makes a report tell which holder lost its blocks. */
static NOINLINE void take_blocks(void **blocks, size_t sz)
{
    for (size_t i = 0; i < BLOCK_CT; i++) {
        blocks[i] = malloc(sz);
        CHECK(blocks[i] != NULL);
    }
}

static NOINLINE void hold_blocks(void)
{
    void *blocks[BLOCK_CT];
    take_blocks(blocks, *(const size_t *)aco_get_arg());
    scrub();
    yield();
    for (size_t i = 0; i < BLOCK_CT; i++) {
        free(blocks[i]);
    }
}

static void holds_blocks(void)
{
    hold_blocks();
    aco_exit();
}

/* ASan has the largest frames at the end of a fake stack. */
static NOINLINE void hold_blocks_in_large_frame(void)
{
    void *blocks[40000 / sizeof(void *)], **last = blocks + ARRAY_SZ(blocks) - BLOCK_CT;
    take_blocks(last, *(const size_t *)aco_get_arg());
    scrub();
    yield();
    for (size_t i = 0; i < BLOCK_CT; i++) {
        free(last[i]);
    }
}

static void holds_blocks_in_large_frame(void)
{
    hold_blocks_in_large_frame();
    aco_exit();
}

static void exits_the_process(void)
{
    scrub();
    exit(0);
}

static pthread_barrier_t is_suspended;

static void waits_for_ever(void)
{
    scrub();
    pthread_barrier_wait(&is_suspended);
    for (;;) {
        pause();
    }
}

/* Global, so that they are found. */
static aco_t *volatile holders[5];

/* Suspends coroutines that hold blocks: saved out, in place with others on the stack and alone. */
static NOINLINE void suspend_holders(aco_t *main_co)
{
    static size_t sizes[ARRAY_SZ(holders)] = {1001, 1002, 1003, 1004, 1006};
    aco_share_stack_t *shared = aco_share_stack_new(65536), *own = aco_share_stack_new(65536);
    for (size_t i = 0; i < ARRAY_SZ(holders); i++) {
        holders[i] = aco_create(main_co, i == 0 ? own : shared, 0,
                                i == 4 ? holds_blocks_in_large_frame : holds_blocks, &sizes[i]);
        aco_resume(holders[i]);
    }
}

/* Holds blocks in its frames while a coroutine runs that does not come back. */
static NOINLINE void hold_and_run(aco_t *self, aco_cofuncp_t fp)
{
    aco_share_stack_t *stack = aco_share_stack_new(65536);
    void *blocks[BLOCK_CT];
    take_blocks(blocks, 1005);
    aco_t *co = aco_create(self, stack, 0, fp, NULL);
    run(co);
    for (size_t i = 0; i < BLOCK_CT; i++) {
        free(blocks[i]);
    }
}

static void return_with_holders(void)
{
    suspend_holders(make_main());
    scrub();
}

static void exit_in_coroutine(void)
{
    hold_and_run(make_main(), exits_the_process);
}

static void runs_one_that_exits(void)
{
    hold_and_run(aco_get_co(), exits_the_process);
}

static void exit_in_child(void)
{
    hold_and_run(make_main(), runs_one_that_exits);
}

static void *runs_one_that_waits(void *arg)
{
    hold_and_run(make_main(), waits_for_ever);
    return arg;
}

static void return_while_a_thread_is_in_a_coroutine(void)
{
    pthread_t thread;
    pthread_barrier_init(&is_suspended, NULL, 2);
    CHECK(pthread_create(&thread, NULL, runs_one_that_waits, NULL) == 0);
    pthread_barrier_wait(&is_suspended);
    scrub();
}

/* ==== Main ==================================================================================== */

static const struct {
    const char *name;
    void (*act)(void);
} acts[] = {
    {"walk", walk},
    {"walk_nested", walk_nested},
    {"walk_in_threads", walk_in_threads},
    {"end_often", end_often},
    {"yield_often", yield_often},
    {"keep_nothing", keep_nothing},
    {"keep_no_fiber", keep_no_fiber},
    {"switch_untold", switch_untold},
    {"return_with_holders", return_with_holders},
    {"exit_in_coroutine", exit_in_coroutine},
    {"exit_in_child", exit_in_child},
    {"return_while_a_thread_is_in_a_coroutine", return_while_a_thread_is_in_a_coroutine},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < ARRAY_SZ(acts); i++) {
        if (argc == 2 && strcmp(argv[1], acts[i].name) == 0) {
            acts[i].act();
            return 0;
        }
    }
    fprintf(stderr, "usage: sanitized_clean NAME, one of\n");
    for (size_t i = 0; i < ARRAY_SZ(acts); i++) {
        fprintf(stderr, "  %s\n", acts[i].name);
    }
    return 2;
}
