// SPDX-License-Identifier: Apache-2.0
/*
 * Reads call-frame information (.eh_frame, as the DWARF standard and the LSB describe it): where a
 * function keeps its caller's registers while it is at an address. It neither allocates nor locks,
 * so signal handlers may do so once aco_i_find_modules() has made the table of modules.
 */
#include "observe/cfi.h"

#include <dlfcn.h>
#include <string.h>

#ifdef DLFO_STRUCT_HAS_EH_DBASE /* glibc 2.35 */
extern __typeof__(_dl_find_object) _dl_find_object __attribute__((weak));
#endif

#define CT_STATES 4 /* states that DW_CFA_remember_state may keep at a time */

/* ==== A frame's description ================================================================== */

/* The .eh_frame_hdr of the module that `pc` is in; NULL if there is none. Libraries may have been
 * loaded, or unloaded, since the table was made, so newer versions of libc are asked instead. */
static bytes_t frames_at(uintptr_t pc)
{
#ifdef DLFO_STRUCT_HAS_EH_DBASE
    struct dl_find_object found;
    if (_dl_find_object != NULL && _dl_find_object((void *)pc, &found) == 0) {
        return (bytes_t)found.dlfo_eh_frame;
    }
#endif
    const aco_i_module_t *module = aco_i_module_of(pc);
    return module == NULL ? NULL : module->frames;
}

/* The entry for `pc`, by the sorted table of .eh_frame_hdr; NULL if there is none. */
static bytes_t find_entry(uintptr_t pc)
{
    bytes_t at = frames_at(pc);
    if (at == NULL || at[0] != 1 || at[3] != 0x3b) {
        return aco_i_find_in_index(pc);
    }
    unsigned ct_encoding = at[2], encoding = at[1];
    uintptr_t data = (uintptr_t)at;
    at += 4;
    aco_i_take_pointer(&at, encoding, data);
    size_t low = 0, high = aco_i_take_pointer(&at, ct_encoding, data);
    while (low < high) { /* rows before `low` are not above pc, rows from `high` on are */
        size_t middle = low + (high - low) / 2;
        bytes_t row = at + 8 * middle;
        if (data + take_fixed(&row, 4, 1) <= pc) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) {
        return NULL;
    }
    bytes_t row = at + 8 * (low - 1) + 4;
    return (bytes_t)(data + take_fixed(&row, 4, 1));
}

static int describe(uintptr_t pc, description_t *d)
{
    bytes_t at = find_entry(pc);
    if (at == NULL) {
        return 0;
    }
    memset(d, 0, sizeof(*d));
    uintptr_t sz = take_fixed(&at, 4, 0);
    d->end = at + sz;
    bytes_t common = at;
    common -= take_fixed(&at, 4, 0);
    if (sz == 0 || sz == UINT32_MAX || !aco_i_read_common(common, d)) {
        return 0;
    }
    d->function = aco_i_take_pointer(&at, d->encoding, 0);
    if (pc - d->function >= aco_i_take_pointer(&at, d->encoding & 15, 0)) {
        return 0;
    }
    uintptr_t augmentation_sz = take_uleb(&at);
    d->program = at + augmentation_sz;
    return 1;
}

int aco_i_has_frames(uintptr_t pc)
{
    return frames_at(pc) != NULL || aco_i_has_index();
}

uintptr_t aco_i_function_at(uintptr_t pc)
{
    description_t d;
    return describe(pc, &d) ? d.function : 0;
}

/* ==== Rules ================================================================================== */

static void set_rule(rules_t *rules, uintptr_t number, how_t how, uintptr_t value)
{
    if (number < CT_REGISTERS) {
        rules->how[number] = how;
        rules->value[number] = value;
    }
}

static void copy_rule(rules_t *rules, const rules_t *from, uintptr_t number)
{
    if (number < CT_REGISTERS) {
        set_rule(rules, number, from->how[number], from->value[number]);
    }
}

/* The row that instructions make, with the rows that they may restore. */
typedef struct {
    rules_t now, initial, remembered[CT_STATES];
    unsigned ct_remembered;
    uintptr_t pc; /* where the row begins */
} run_t;

/* Runs an instruction about the CFA; 0 if `op` is none. */
static int run_cfa(rules_t *rules, unsigned op, bytes_t *at, const description_t *d)
{
    switch (op) {
    case 0x0c: /* DW_CFA_def_cfa and its signed form */
    case 0x12:
        rules->cfa_register = (unsigned)take_uleb(at);
        rules->cfa_offset = op == 0x0c ? take_uleb(at) : take_sleb(at) * d->data_step;
        rules->cfa_expression = NULL;
        return 1;
    case 0x0d: /* DW_CFA_def_cfa_register */
        rules->cfa_register = (unsigned)take_uleb(at);
        rules->cfa_expression = NULL;
        return 1;
    case 0x0e: /* DW_CFA_def_cfa_offset and its signed form */
        rules->cfa_offset = take_uleb(at);
        return 1;
    case 0x13:
        rules->cfa_offset = take_sleb(at) * d->data_step;
        return 1;
    case 0x0f: /* DW_CFA_def_cfa_expression */
        rules->cfa_expression = skip_block(at);
        return 1;
    default:
        return 0;
    }
}

/* Runs an instruction that sets the rule of a register; 0 if `op` is none. */
static int run_rule(run_t *run, unsigned op, bytes_t *at, const description_t *d)
{
    uintptr_t number;
    if (op == 0x2d || op == 0x2e) { /* GNU_window_save or negate_ra_state; GNU_args_size */
        op == 0x2e ? (void)take_uleb(at) : (void)0;
        return 1;
    }
    if (op < 0x05 || (op > 0x09 && op < 0x10) || op > 0x16 || op == 0x12 || op == 0x13) {
        return 0;
    }
    number = take_uleb(at);
    switch (op) {
    case 0x05: /* offset_extended and its signed form */
    case 0x11:
        set_rule(&run->now, number, AT_OFFSET,
                 (op == 0x05 ? take_uleb(at) : take_sleb(at)) * d->data_step);
        break;
    case 0x06: /* restore_extended */
        copy_rule(&run->now, &run->initial, number);
        break;
    case 0x07: /* undefined; 8: same_value */
    case 0x08:
        set_rule(&run->now, number, op == 0x07 ? UNDEFINED : KEPT, 0);
        break;
    case 0x09: /* register */
        set_rule(&run->now, number, IN_REGISTER, take_uleb(at));
        break;
    case 0x14: /* val_offset and its signed form */
    case 0x15:
        set_rule(&run->now, number, IS_OFFSET,
                 (op == 0x14 ? take_uleb(at) : take_sleb(at)) * d->data_step);
        break;
    default: /* expression, val_expression */
        set_rule(&run->now, number, op == 0x10 ? AT_EXPRESSION : IS_EXPRESSION,
                 (uintptr_t)skip_block(at));
    }
    return 1;
}

/* Runs an instruction that has an operand in its byte, moves on, or keeps or restores a row; 0 if
 * `op` is unknown. */
static int run_other(run_t *run, unsigned op, bytes_t *at, const description_t *d)
{
    unsigned low = op & 63;
    switch (op >> 6) {
    case 1: /* advance_loc */
        run->pc += low * d->code_step;
        return 1;
    case 2: /* offset */
        set_rule(&run->now, low, AT_OFFSET, take_uleb(at) * d->data_step);
        return 1;
    case 3: /* restore */
        copy_rule(&run->now, &run->initial, low);
        return 1;
    default:
        break;
    }
    if (op == 0x01) { /* set_loc */
        run->pc = aco_i_take_pointer(at, d->encoding, 0);
    } else if (op >= 0x02 && op <= 0x04) { /* advance_loc1, 2, 4 */
        run->pc += take_fixed(at, (size_t)1 << (op - 2), 0) * d->code_step;
    } else if (op == 0x0a && run->ct_remembered < CT_STATES) {
        run->remembered[run->ct_remembered++] = run->now;
    } else if (op == 0x0b && run->ct_remembered > 0) {
        run->now = run->remembered[--run->ct_remembered];
    } else {
        return op == 0; /* nop */
    }
    return 1;
}

/* Runs instructions up to the row for `pc`; 0 if one is unknown. */
static int run_program(run_t *run, bytes_t at, bytes_t end, const description_t *d, uintptr_t pc)
{
    while (at < end && run->pc <= pc) {
        unsigned op = *at++;
        if (!run_cfa(&run->now, op, &at, d) && !run_rule(run, op, &at, d) &&
            !run_other(run, op, &at, d)) {
            return 0;
        }
    }
    return 1;
}

int aco_i_find_row(uintptr_t pc, aco_i_row_t *row)
{
    description_t d;
    run_t run;
    if (!describe(pc, &d)) {
        return 0;
    }
    memset(&run, 0, sizeof(run));
    if (!run_program(&run, d.initial, d.initial_end, &d, UINTPTR_MAX)) {
        return 0;
    }
    run.initial = run.now;
    run.pc = d.function;
    if (!run_program(&run, d.program, d.end, &d, pc)) {
        return 0;
    }
    *row = (aco_i_row_t){run.now, d.return_address, d.is_signal_frame};
    return 1;
}
