// SPDX-License-Identifier: Apache-2.0
/* ELF files: their bytes and symbols, as elf.c finds them. */
#ifndef ACO_RUNTIME_ELF_H
#define ACO_RUNTIME_ELF_H

#include "observe/observe.h"

#include <elf.h>
#include <link.h>

typedef struct {
    const char *bytes; /* NULL: the file can't be read */
    size_t sz;
} file_t;

/* The symbols of a file. */
typedef struct {
    const ElfW(Sym) * first;
    size_t ct;
    const char *names;
    size_t names_sz;
} symbols_t;

HIDDEN file_t aco_i_map_file(const char *path);
HIDDEN void aco_i_unmap_file(const file_t *file);

/* Finds the file's symbols: those for the linker, with static functions, or else those for the
 * dynamic linker. */
HIDDEN void aco_i_find_symbols(const file_t *file, symbols_t *symbols);

#endif
