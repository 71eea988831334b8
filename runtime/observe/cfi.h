// SPDX-License-Identifier: Apache-2.0
/* Call-frame information, as modules.c and cfi.c read it for unwind.c. */
#ifndef ACO_RUNTIME_CFI_H
#define ACO_RUNTIME_CFI_H

#include "observe/observe.h"

/* DWARF's numbers of registers. */
#if defined(__x86_64__)
enum { R_BP = 6, R_SP = 7 };
#elif defined(__i386__)
enum { R_SP = 4, R_BP = 5 };
#elif defined(__aarch64__)
enum { R_BP = 29, R_SP = 31 };
#elif defined(__riscv)
enum { R_SP = 2, R_BP = 8 };
#else
enum { R_SP = 13, R_BP = 11 };
#endif
#define CT_REGISTERS 33

typedef const unsigned char *bytes_t;

/* Takes a LEB128 number: 7 bits a byte, the lowest first. */
static inline uintptr_t take_leb(bytes_t *at, int is_signed)
{
    uintptr_t value = 0;
    unsigned shift = 0;
    unsigned char byte;
    do {
        byte = *(*at)++;
        value |= shift < 8 * sizeof(value) ? (uintptr_t)(byte & 127) << shift : 0;
        shift += 7;
    } while (byte & 128);
    if (is_signed && (byte & 64) && shift < 8 * sizeof(value)) {
        value |= ~(uintptr_t)0 << shift;
    }
    return value;
}

static inline uintptr_t take_uleb(bytes_t *at)
{
    return take_leb(at, 0);
}

static inline uintptr_t take_sleb(bytes_t *at)
{
    return take_leb(at, 1);
}

/* Takes an integer of `sz` bytes. */
static inline uintptr_t take_fixed(bytes_t *at, size_t sz, int is_signed)
{
    uint64_t value = 0;
    for (size_t i = 0; i < sz; i++) {
        value |= (uint64_t)(*at)[i] << 8 * i;
    }
    *at += sz;
    if (is_signed && sz < 8 && value >> (8 * sz - 1)) {
        value |= ~(uint64_t)0 << 8 * sz;
    }
    return (uintptr_t)value;
}

static inline bytes_t skip_block(bytes_t *at)
{
    bytes_t block = *at;
    uintptr_t sz = take_uleb(at);
    *at += sz;
    return block;
}

/* The description of a function in .eh_frame. */
typedef struct {
    bytes_t initial, initial_end, program, end; /* instructions: the CIE's, then its own */
    uintptr_t function;                         /* its address */
    uintptr_t code_step, data_step;             /* factors of distances */
    unsigned return_address;                    /* number of the register */
    unsigned encoding;
    int is_signal_frame;
} description_t;

/* Takes a pointer in one of the encodings DW_EH_PE_*; `data` is the base of DW_EH_PE_datarel. */
HIDDEN uintptr_t aco_i_take_pointer(bytes_t *at, unsigned encoding, uintptr_t data);
/* Reads a CIE, the part that functions have in common; 0: its form is unknown. */
HIDDEN int aco_i_read_common(bytes_t at, description_t *d);
/* The last entry that does not begin above `pc`, of a program without .eh_frame_hdr; NULL: none. */
HIDDEN bytes_t aco_i_find_in_index(uintptr_t pc);
HIDDEN int aco_i_has_index(void);

typedef enum __attribute__((packed)) {
    KEPT, /* in the register */
    UNDEFINED,
    AT_OFFSET, /* in memory at CFA + value */
    IS_OFFSET, /* CFA + value */
    IN_REGISTER,
    AT_EXPRESSION, /* `value` points to the expression */
    IS_EXPRESSION
} how_t;

typedef struct {
    how_t how[CT_REGISTERS];
    uintptr_t value[CT_REGISTERS];
    unsigned cfa_register;
    uintptr_t cfa_offset;
    bytes_t cfa_expression; /* NULL: the CFA is register + offset */
} rules_t;

/* The rules by which the registers of a frame's caller are found. */
typedef struct {
    rules_t rules;
    unsigned return_address; /* number of the register */
    int is_signal_frame;
} aco_i_row_t;

/* Finds the row for an address; 0: there is none. */
HIDDEN int aco_i_find_row(uintptr_t pc, aco_i_row_t *row);

#endif
