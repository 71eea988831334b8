// SPDX-License-Identifier: Apache-2.0
/*
 * The switch, instruction by instruction: each time SP lies in the outgoing or the incoming stack
 * with nothing live below it, DF is 0 and the x87 stack empty; a side that arrives finds its
 * registers, control words and stack as the ABI wants, having run before or not. First with the
 * trap flag alone, then with a signal before every instruction, whose handler fills the stack
 * below. For every way to resume, with every way to yield and to exit; where the frames are in
 * place and where they are copied.
 */
// build: tests/no_inline.c tests/single_step.c
// only x86
#include "harness.h"
#include "no_inline.h"
#include "single_step.h"

#define MAIN_ROOM 65536 /* bytes that main's part of a step may take of its stack */
#define DATA_SZ 100     /* bytes */

#ifdef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
#define IS_SHARED 1
#else
#define IS_SHARED 0
#endif

/* A stress build fills the share stack after a switch: that is no part of it, and long. */
#ifdef ACO_CONFIG_STRESS
#define LEFT_FOR ((const void *)(uintptr_t)memset)
#else
#define LEFT_FOR NULL
#endif

/* ==== Ways ==================================================================================== */

/* Set if a value that was live across an inline switch has changed. */
static volatile int is_harmed;

/* The clobbers leave no register for these: they lie in the frame meanwhile. */
#define WITH_LIVE_VALUES(switches)                                                                 \
    uintptr_t a = 0xa1, b = 0xb2, c = 0xc3;                                                        \
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c));                                              \
    switches;                                                                                      \
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c));                                              \
    is_harmed |= a != 0xa1 || b != 0xb2 || c != 0xc3

STEP_SWITCH_CODE static void inline_resume(aco_t *co)
{
    WITH_LIVE_VALUES(aco_resume(co));
}

STEP_SWITCH_CODE static void inline_yield(void)
{
    WITH_LIVE_VALUES(aco_yield());
}

STEP_SWITCH_CODE static void inline_exit(void)
{
    aco_exit();
}

typedef void (*way_t)(void);
#define WAY(function) ((way_t)(function))

/* acosw() itself; what aco_resume() does besides is done by hand. */
static const way_t by_hand = WAY(acosw);

static const way_t resumes[] = {WAY(inline_resume), WAY(aco_resume), WAY(no_inline_resume),
                                WAY(acosw)};
static const way_t yields[] = {inline_yield, WAY(aco_yield), no_inline_yield, WAY(acosw)};
static const way_t exits[] = {inline_exit, WAY(aco_exit), no_inline_exit};

/* ==== Control words =========================================================================== */

typedef struct {
    uint32_t mxcsr, x87;
} words_t;

static const words_t usual = {0x1f80, 0x37f};

/* Control words of main and of the coroutine, for each path through the switch. */
static const struct {
    words_t mains, its;
    int is_raised; /* main has raised what the coroutine does not mask */
} cases[] = {
    {{0x3f80, 0xb7f}, {0x5f80, 0x77f}, 0}, /* both differ */
    {{0x1f80, 0x37f}, {0x1f80, 0x37f}, 0}, /* none does */
    {{0x3f80, 0x37f}, {0x3f80, 0x37e}, 1},
};

static void raise_invalid(void)
{
    __asm__ volatile("fldz\n\tfdiv %%st(0), %%st\n\tfstp %%st(0)" : : : "st");
}

static void drop_raised(void)
{
    __asm__ volatile("fnclex");
}

/* ==== A pair ================================================================================== */

/* Main and a coroutine that step to each other. */
typedef struct {
    aco_t *co;
    step_side_t mains, its;
    way_t back;   /* how the coroutine goes back to main */
    size_t words; /* which of the cases */
    int is_signalled;
} pair_t;

static void set_words(step_side_t *side, words_t words)
{
    side->mxcsr = words.mxcsr;
    side->x87 = words.x87;
}

static void step_across(const pair_t *pair, step_side_t *from, step_side_t *to, way_t way,
                        void *argument, void *argument2)
{
    const step_t step = {from,      to,      way, {argument, argument2}, pair->is_signalled,
                         IS_SHARED, LEFT_FOR};
    single_step(&step);
}

static void steps_back(void)
{
    pair_t *pair = (pair_t *)aco_get_arg();
    aco_t *co = aco_get_co();
    unsigned char data[DATA_SZ];
    fill_from_seed(data, sizeof(data), 7);
    for (;;) {
        drop_raised();
        set_words(&pair->its, cases[pair->words].its);
        step_across(pair, &pair->its, &pair->mains, pair->back, co, co->main_co);
        CO_CHECK(is_from_seed(data, sizeof(data), 7));
    }
}

static void start_pair(pair_t *pair, const instance_t *in)
{
    memset(pair, 0, sizeof(*pair));
    pair->co = make_co(in, steps_back, pair);
    pair->its.low = (char *)in->stack->ptr;
    pair->its.sp = (char *)in->stack->align_retptr;
    pair->its.entry = (const void *)(uintptr_t)steps_back;
    set_words(&pair->its, usual);
}

/* Takes a step to the coroutine, and with it the one back. */
static void step_there_and_back(pair_t *pair, way_t way, way_t back)
{
    aco_t *co = pair->co, *main_co = co->main_co;
    pair->back = back;
    pair->mains.low = (char *)__builtin_frame_address(0) - MAIN_ROOM;
    set_words(&pair->mains, cases[pair->words].mains);
    if (cases[pair->words].is_raised) {
        raise_invalid();
    }
    if (way == by_hand) {
        if (!co->is_owner) {
            aco_i_acquire(co);
        }
        aco_gtls_co = co;
        step_across(pair, &pair->mains, &pair->its, way, main_co, co);
        aco_gtls_co = main_co;
    } else {
        step_across(pair, &pair->mains, &pair->its, way, co, NULL);
    }
}

/* The place is what addr2line wants of a program that may lie anywhere. */
extern const char program_start[] __asm__("__executable_start");

static void print_fault(void)
{
    print_error("%lu times, the first at %#tx of the program, with SP %p: %s\n", step_report.faults,
                step_report.pc - program_start, (const void *)step_report.sp, step_report.rule);
    step_report.faults = 0;
}

static void assert_no_fault(void)
{
    if (step_report.faults != 0) {
        print_fault();
        fail();
    }
    int harmed = is_harmed;
    is_harmed = 0;
    assert_int_equal(harmed, 0);
    assert_co_checks();
}

/* ==== Every pair ============================================================================== */

/* From init to end. Where there is an evictor, the coroutine is copied in at every step. */
static void step_through_life(const instance_t *in, aco_t *evictor, size_t words, int is_signalled,
                              const way_t ways[3])
{
    pair_t pair;
    unsigned char data[DATA_SZ];
    unsigned long unsignalled = step_report.instructions - step_report.signals;
    fill_from_seed(data, sizeof(data), 8);
    start_pair(&pair, in);
    pair.words = words;
    pair.is_signalled = is_signalled;
    for (int i = 0; i < 2; i++) {
        if (evictor != NULL) {
            aco_resume(evictor);
        }
        step_there_and_back(&pair, ways[0], i == 0 ? ways[1] : ways[2]);
        assert_no_fault();
        assert_invariants(pair.co);
    }
    assert_int_equal(pair.co->is_end, 1);
    aco_destroy(pair.co);
    assert_true(is_from_seed(data, sizeof(data), 8));
    if (is_signalled) {
        assert_int_equal(step_report.instructions - step_report.signals, unsignalled);
    }
}

/* Every way to resume, where the coroutine is in init and where it has yielded in every way; every
 * way to yield and to exit, where main has resumed in every way. */
static void step_all_ways(const instance_t *in, aco_t *evictor, size_t words)
{
    for (int is_signalled = 0; is_signalled <= 1; is_signalled++) {
        for (size_t i = 0; i < ARRAY_SZ(resumes); i++) {
            for (size_t j = 0; j < ARRAY_SZ(yields); j++) {
                const way_t ways[3] = {resumes[i], yields[j], exits[j % ARRAY_SZ(exits)]};
                step_through_life(in, evictor, words, is_signalled, ways);
            }
        }
    }
}

static void a_standalone_coroutine_is_switched_by_the_rules(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (size_t words = 0; words < ARRAY_SZ(cases); words++) {
        /* Shared control words can't differ, and what one does not mask traps all. */
        if (!IS_SHARED || !cases[words].is_raised) {
            step_all_ways(in, NULL, words);
        }
    }
}

static void a_copying_coroutine_is_switched_by_the_rules(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *evictor = make_co(in, yields_for_ever, NULL);
    step_all_ways(in, evictor, 0);
    aco_destroy(evictor);
}

/* ==== Without main ============================================================================ */

/* Two coroutines with a share stack each, which step to each other by acosw() alone. */
typedef struct {
    pair_t pair;
    aco_t *cos[2];
    unsigned ct; /* steps still to be taken */
} couple_t;

static void steps_to_the_other(void)
{
    couple_t *couple = (couple_t *)aco_get_arg();
    aco_t *co = aco_get_co();
    int is_second = co == couple->cos[1];
    pair_t *pair = &couple->pair;
    step_side_t *mine = is_second ? &pair->its : &pair->mains;
    step_side_t *other = is_second ? &pair->mains : &pair->its;
    set_words(mine, is_second ? cases[0].its : cases[0].mains);
    while (couple->ct-- != 0) {
        aco_gtls_co = couple->cos[!is_second];
        step_across(pair, mine, other, by_hand, co, aco_gtls_co);
    }
    aco_yield();
}

static void start_of_couple(couple_t *couple, size_t i, step_side_t *side, aco_t *main_co,
                            aco_share_stack_t *stack)
{
    couple->cos[i] = aco_create(main_co, stack, 0, steps_to_the_other, couple);
    aco_i_acquire(couple->cos[i]);
    side->low = (char *)stack->ptr;
    side->sp = (char *)stack->align_retptr;
    side->entry = (const void *)(uintptr_t)steps_to_the_other;
    set_words(side, usual);
}

static void acosw_switches_two_coroutines_by_the_rules(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_share_stack_t *stack = aco_share_stack_new(0);
    for (int is_signalled = 0; is_signalled <= 1; is_signalled++) {
        couple_t couple;
        memset(&couple, 0, sizeof(couple));
        couple.ct = 4;
        couple.pair.is_signalled = is_signalled;
        start_of_couple(&couple, 0, &couple.pair.mains, in->main_co, in->stack);
        start_of_couple(&couple, 1, &couple.pair.its, in->main_co, stack);
        aco_resume(couple.cos[0]);
        assert_no_fault();
        aco_destroy(couple.cos[0]);
        aco_destroy(couple.cos[1]);
    }
    aco_share_stack_destroy(stack);
}

/* ==== Report ================================================================================== */

static int print_report(void **state)
{
    (void)state;
    /* A test that crashed leaves its fault. */
    if (step_report.faults != 0) {
        print_fault();
    }
    print_message("%lu instructions stepped, %lu signals delivered\n", step_report.instructions,
                  step_report.signals);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(a_standalone_coroutine_is_switched_by_the_rules),
        instance_test(a_copying_coroutine_is_switched_by_the_rules),
        instance_test(acosw_switches_two_coroutines_by_the_rules),
    };
    single_step_init();
    return cmocka_run_group_tests_name("single step", tests, NULL, print_report);
}
