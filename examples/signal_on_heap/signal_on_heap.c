// signal_on_heap.c shows the fault of switchers that move SP off the stack.
// SPDX-License-Identifier: Apache-2.0
/*
 * A switch must not move SP to what is no stack, not even for an instruction. Two coroutines
 * switch back and forth under the trap flag: by faulty_switch(), without a signal and with one
 * before every instruction, and by acosw() with signals. Ends with 0 if the first is caught and
 * seen to do harm, and the last is not. Relies on tests/single_step.c.
 */
#include "aco.h"
#include "faulty_switch.h"
#include "single_step.h"

#define BUFFER_SZ 16384u /* bytes; more than a signal takes, frame and handler */
#define STACK_SZ 65536u  /* bytes */
#define USUAL_MXCSR 0x1f80u
#define USUAL_X87 0x37fu
#define ROUNDS 2 /* the first starts the coroutine, the second continues it */

/* A coroutine as a program might keep it, in one block on the heap. */
typedef struct {
    char buffer[BUFFER_SZ];
    context_t context;
} object_t;

static struct {
    object_t *mains, *its;
    aco_t *main_co, *co;
    step_side_t main_side, co_side;
    int is_signalled;
} program;

/* ==== By the faulty switch ==================================================================== */

static void step_faulty(step_side_t *from, step_side_t *to, object_t *mine, object_t *other)
{
    const step_t step = {from,
                         to,
                         (void (*)(void))faulty_switch,
                         {&mine->context, &other->context},
                         program.is_signalled,
                         1,
                         NULL};
    single_step(&step);
}

static void switches_back_for_ever(void)
{
    for (;;) {
        step_faulty(&program.co_side, &program.main_side, program.its, program.mains);
    }
}

static object_t *new_object(void)
{
    object_t *object = (object_t *)calloc(1, sizeof(*object));
    aco_assertalloc_ptr(object);
    memset(object->buffer, 'a', sizeof(object->buffer));
    return object;
}

/* The end of a stack: the address of the entry function, and one for it to return to. */
static void prepare(object_t *object, char *stack)
{
    void **words = (void **)(void *)(stack + STACK_SZ) - 2;
    words[0] = (void *)(uintptr_t)switches_back_for_ever;
    words[1] = NULL;
    object->context.sp = words;
    program.co_side.low = stack;
    program.co_side.sp = (char *)(words + 1);
    program.co_side.entry = (const void *)(uintptr_t)switches_back_for_ever;
}

/* Prints which bytes of a buffer have changed. */
static unsigned print_harm(const char *name, const object_t *object)
{
    const char *buffer = object->buffer;
    size_t low = 0, high = BUFFER_SZ;
    while (low < BUFFER_SZ && buffer[low] == 'a') {
        low++;
    }
    while (high > low && buffer[high - 1] == 'a') {
        high--;
    }
    if (low == high) {
        printf("  buffer in the heap object of %s: unharmed\n", name);
    } else {
        printf("  buffer in the heap object of %s: overwritten from byte %zu to %zu of %u\n", name,
               low, high - 1, BUFFER_SZ);
    }
    return low != high;
}

/* Reads it where it lies, now that everything is over. */
static void print_frame(const char *name, const object_t *object)
{
    const char *frame = (const char *)step_report.stray_frame;
    if (frame >= object->buffer && frame < object->buffer + BUFFER_SZ) {
        printf(
            "  the last signal frame on the heap: at byte %td of the buffer of %s;\n"
            "    it says that it interrupted faulty_switch+%td\n",
            frame - object->buffer, name,
            pc_in_frame(frame) - (const char *)(uintptr_t)faulty_switch);
    }
}

static void print_steps(const char *title)
{
    printf("%s\n  %lu instructions stepped, %lu signals delivered\n", title,
           step_report.instructions, step_report.signals);
    if (step_report.faults == 0) {
        printf("  every rule kept: SP in the outgoing or the incoming stack, and the others\n");
    } else {
        printf("  caught before %lu instructions, the first of them faulty_switch+%td: %s\n",
               step_report.faults, step_report.pc - (const char *)(uintptr_t)faulty_switch,
               step_report.rule);
    }
}

/* Whether it was caught, and as many buffers harmed as expected. */
static int run_faulty(const char *title, int is_signalled, unsigned expected)
{
    static char stack[STACK_SZ] __attribute__((aligned(16)));
    memset(&step_report, 0, sizeof(step_report));
    program.mains = new_object();
    program.its = new_object();
    program.is_signalled = is_signalled;
    prepare(program.its, stack);
    for (int i = 0; i < ROUNDS; i++) {
        step_faulty(&program.main_side, &program.co_side, program.mains, program.its);
    }
    print_steps(title);
    unsigned harmed = print_harm("main", program.mains);
    harmed += print_harm("the coroutine", program.its);
    print_frame("main", program.mains);
    print_frame("the coroutine", program.its);
    free(program.mains);
    free(program.its);
    return step_report.strays != 0 && harmed == expected;
}

/* ==== By acosw() ============================================================================== */

static void step_acosw(step_side_t *from, step_side_t *to, aco_t *mine, aco_t *other)
{
    const step_t step = {from, to,  (void (*)(void))acosw, {mine, other}, program.is_signalled,
                         0,    NULL};
    aco_gtls_co = other;
    single_step(&step);
}

static void yields_by_acosw(void)
{
    for (;;) {
        step_acosw(&program.co_side, &program.main_side, program.co, program.main_co);
    }
}

static void run_acosw(const char *title)
{
    aco_thread_init(NULL);
    program.main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(STACK_SZ);
    program.co = aco_create(program.main_co, stack, 0, yields_by_acosw, NULL);
    memset(&step_report, 0, sizeof(step_report));
    program.co_side.low = (char *)stack->ptr;
    program.co_side.sp = (char *)stack->align_retptr;
    program.co_side.entry = (const void *)(uintptr_t)yields_by_acosw;
    for (int i = 0; i < ROUNDS; i++) {
        step_acosw(&program.main_side, &program.co_side, program.main_co, program.co);
    }
    print_steps(title);
    aco_destroy(program.co);
    aco_share_stack_destroy(stack);
    aco_destroy(program.main_co);
}

int main(void)
{
    program.main_side.low = (char *)__builtin_frame_address(0) - STACK_SZ;
    program.main_side.mxcsr = program.co_side.mxcsr = USUAL_MXCSR;
    program.main_side.x87 = program.co_side.x87 = USUAL_X87;
    single_step_init();

    int is_right = run_faulty("faulty_switch, no signal:", 0, 0);
    is_right &= run_faulty("faulty_switch, a signal before every instruction:", 1, 2);
    run_acosw("acosw, a signal before every instruction:");
    return is_right && step_report.faults == 0 ? 0 : 1;
}
