// SPDX-License-Identifier: Apache-2.0
/*
 * Unwinds copies of stacks.
 *
 * The unwinders of libgcc and libunwind start where they are called, and read the stack in place.
 * This one starts from a few registers, and reads a copy: of frames that are saved out, or of a
 * task that its thread may resume meanwhile. It reads nothing of the stack but the copy, so a stack
 * that makes no sense ends the backtrace, and does no harm. 32-bit ARM has other tables: there, the
 * innermost frame is the only one.
 */
#include "observe/cfi.h"

#include <string.h>

#define CT_WORDS 16 /* on the stack of an expression */

typedef struct {
    uintptr_t registers[CT_REGISTERS], pc;
    uint64_t known; /* a bit for each register */
    const aco_i_stack_t *stack;
} frame_t;

/* Reads the word at an address of the stack; 0 if that is outside of the copy. */
static int read_word(const frame_t *frame, uintptr_t address, uintptr_t *word)
{
    const aco_i_stack_t *stack = frame->stack;
    uintptr_t offset = address - stack->low;
    if (address < stack->low || stack->sz < sizeof(*word) || offset > stack->sz - sizeof(*word)) {
        return 0;
    }
    memcpy(word, stack->copy + offset, sizeof(*word));
    return 1;
}

static int read_register(const frame_t *frame, uintptr_t number, uintptr_t *value)
{
    if (number >= CT_REGISTERS || !(frame->known >> number & 1)) {
        return 0;
    }
    *value = frame->registers[number];
    return 1;
}

/* Does an operation on two words; 0 if `op` is none. */
static int combine(unsigned op, uintptr_t *a, uintptr_t b)
{
    intptr_t x = (intptr_t)*a, y = (intptr_t)b;
    uintptr_t shift = b < 8 * sizeof(*a) ? b : 0;
    switch (op) {
    case 0x1a: /* and */
        *a &= b;
        return 1;
    case 0x1c: /* minus */
        *a -= b;
        return 1;
    case 0x21: /* or */
        *a |= b;
        return 1;
    case 0x22: /* plus */
        *a += b;
        return 1;
    case 0x24: /* shl */
        *a <<= shift;
        return 1;
    case 0x2a: /* ge, gt, le, lt */
    case 0x2b:
    case 0x2c:
    case 0x2d:
        *a = op == 0x2a ? x >= y : op == 0x2b ? x > y : op == 0x2c ? x <= y : x < y;
        return 1;
    default:
        return 0;
    }
}

/* Does an operation that pushes a word; 0 if `op` is none, or the word is unknown. */
static int push(const frame_t *frame, unsigned op, bytes_t *at, uintptr_t *word)
{
    if (op >= 0x30 && op <= 0x4f) { /* lit0 to lit31 */
        *word = op - 0x30;
        return 1;
    }
    if (op >= 0x08 && op <= 0x0f) { /* const1u, const1s to const8s */
        *word = take_fixed(at, (size_t)1 << (op - 8) / 2, op & 1);
        return 1;
    }
    if (op == 0x10 || op == 0x11) { /* constu, consts */
        *word = op == 0x10 ? take_uleb(at) : take_sleb(at);
        return 1;
    }
    if ((op >= 0x70 && op <= 0x8f) || op == 0x92) { /* breg0 to breg31, bregx */
        uintptr_t number = op == 0x92 ? take_uleb(at) : op - 0x70;
        int is_known = read_register(frame, number, word);
        *word += take_sleb(at);
        return is_known;
    }
    return 0;
}

/* Evaluates an expression that begins with `first` on its stack; 0 if it has no result. */
static int evaluate(const frame_t *frame, bytes_t at, uintptr_t first, uintptr_t *result)
{
    uintptr_t words[CT_WORDS] = {first};
    unsigned top = 0;
    bytes_t end = at;
    end = skip_block(&end) + take_uleb(&at);
    while (at < end) {
        unsigned op = *at++;
        if (op == 0x06) { /* deref */
            if (!read_word(frame, words[top], &words[top])) {
                return 0;
            }
        } else if (op == 0x23) { /* plus_uconst */
            words[top] += take_uleb(&at);
        } else if (top > 0 && combine(op, &words[top - 1], words[top])) {
            top--;
        } else if (top + 1 < CT_WORDS && push(frame, op, &at, &words[top + 1])) {
            top++;
        } else {
            return 0;
        }
    }
    *result = words[top];
    return 1;
}

/* Finds the caller's value of a register; 0 if it is unknown. */
static int restore(const frame_t *frame, const rules_t *rules, unsigned number, uintptr_t cfa,
                   uintptr_t *value)
{
    uintptr_t operand = rules->value[number], at;
    switch (rules->how[number]) {
    case KEPT:
        return read_register(frame, number, value);
    case AT_OFFSET:
        return read_word(frame, cfa + operand, value);
    case IS_OFFSET:
        *value = cfa + operand;
        return 1;
    case IN_REGISTER:
        return read_register(frame, operand, value);
    case AT_EXPRESSION:
        return evaluate(frame, (bytes_t)operand, cfa, &at) && read_word(frame, at, value);
    case IS_EXPRESSION:
        return evaluate(frame, (bytes_t)operand, cfa, value);
    default:
        return 0;
    }
}

static int find_cfa(const frame_t *frame, const rules_t *rules, uintptr_t *cfa)
{
    if (rules->cfa_expression != NULL) {
        return evaluate(frame, rules->cfa_expression, 0, cfa);
    }
    int is_known = read_register(frame, rules->cfa_register, cfa);
    *cfa += rules->cfa_offset;
    return is_known;
}

/* Steps from a frame to its caller's; 0 if that is not found. `is_call`: the frame's pc is behind a
 * call; `is_last`: it has no caller. */
static int step(frame_t *frame, int *is_call, int *is_last)
{
    aco_i_row_t row;
    uintptr_t cfa = 0;
    if (!aco_i_find_row(frame->pc - (*is_call != 0), &row) || !find_cfa(frame, &row.rules, &cfa)) {
        return 0;
    }
    *is_last = row.rules.how[row.return_address] == UNDEFINED;
    frame_t caller = {.stack = frame->stack};
    for (unsigned i = 0; i < CT_REGISTERS; i++) {
        uintptr_t value;
        if (restore(frame, &row.rules, i, cfa, &value)) {
            caller.registers[i] = value;
            caller.known |= (uint64_t)1 << i;
        }
    }
    if (row.rules.how[R_SP] == KEPT) {
        caller.registers[R_SP] = cfa;
        caller.known |= (uint64_t)1 << R_SP;
    }
    int is_inner = row.is_signal_frame || caller.registers[R_SP] > frame->registers[R_SP] ||
                   (caller.registers[R_SP] == frame->registers[R_SP] && !*is_call);
    if (!is_inner || !read_register(&caller, row.return_address, &caller.pc) || caller.pc == 0) {
        return 0;
    }
    *is_call = !row.is_signal_frame;
    *frame = caller;
    return 1;
}

/* Steps from an address without code, to which the program has jumped, by a NULL pointer, say. */
static int leave(frame_t *frame, int *is_call)
{
    if (aco_i_module_of(frame->pc) != NULL) {
        return 0;
    }
#if defined(__x86_64__) || defined(__i386__)
    int is_known = read_word(frame, frame->registers[R_SP], &frame->pc);
    frame->registers[R_SP] += sizeof(uintptr_t);
#elif defined(__aarch64__)
    int is_known = read_register(frame, 30, &frame->pc);
#else
    int is_known = read_register(frame, 1, &frame->pc);
#endif
    *is_call = 1;
    return is_known && aco_i_function_at(frame->pc - 1) != 0;
}

int aco_i_unwind(const aco_i_registers_t *from, const aco_i_stack_t *stack, uintptr_t *pcs,
                 int most, int *is_whole)
{
    frame_t frame = {.pc = from->pc, .stack = stack};
    int is_call = 0, ct = 0;
    frame.registers[R_SP] = from->sp;
    frame.registers[R_BP] = from->bp;
    frame.known = (uint64_t)1 << R_SP | (uint64_t)1 << R_BP;
#ifdef __aarch64__
    frame.registers[30] = from->link;
    frame.known |= (uint64_t)(from->link != 0) << 30;
#elif defined(__riscv)
    frame.registers[1] = from->link;
    frame.known |= (uint64_t)(from->link != 0) << 1;
#endif
#ifdef __arm__
    most = most < 1 ? most : 1;
#endif
    *is_whole = 0;
    do {
        pcs[ct++] = frame.pc - (is_call != 0);
    } while (ct < most &&
             (step(&frame, &is_call, is_whole) || (ct == 1 && leave(&frame, &is_call))));
    return ct;
}
