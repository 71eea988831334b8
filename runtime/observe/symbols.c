// SPDX-License-Identifier: Apache-2.0
/*
 * Finds names of functions in the symbol tables of the program's modules; static functions have
 * theirs unless the file was stripped. By system calls alone, so signal handlers may ask; one
 * caller at a time.
 */
#include "observe/elf.h"

#include <string.h>
#include <unistd.h>

/* The file that was read last. */
static struct {
    const aco_i_module_t *module;
    file_t file;
    symbols_t symbols;
} last;

static void unmap_last(void)
{
    aco_i_unmap_file(&last.file);
    memset(&last, 0, sizeof(last));
}

static void read_module(const aco_i_module_t *module)
{
    if (last.module != module) {
        unmap_last();
        last.module = module;
        last.file = aco_i_map_file(module->path);
        if (last.file.bytes != NULL) {
            aco_i_find_symbols(&last.file, &last.symbols);
        }
    }
}

/* The function at an address, relative to the file's base; NULL if there is none. Global symbols
 * come before local ones. */
static const ElfW(Sym) * find_function(uintptr_t address)
{
    const ElfW(Sym) *found = NULL;
    for (size_t i = 0; i < last.symbols.ct; i++) {
        const ElfW(Sym) *symbol = &last.symbols.first[i];
        int type = ELF32_ST_TYPE(symbol->st_info);
        if ((type == STT_FUNC || type == STT_GNU_IFUNC) && symbol->st_shndx != SHN_UNDEF &&
            address - symbol->st_value < symbol->st_size &&
            symbol->st_name < last.symbols.names_sz) {
            found = symbol;
            if (ELF32_ST_BIND(symbol->st_info) != STB_LOCAL) {
                break;
            }
        }
    }
    return found;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* The name of the program's own file. */
static const char *program_name(void)
{
    static char path[256];
    ssize_t sz = readlink("/proc/self/exe", path, sizeof(path) - 1);
    path[sz < 0 ? 0 : sz] = '\0';
    return path;
}

static lock_t backtraces_lock;
static int is_locked; /* backtraces_lock; a signal handler may have to go on without */

void aco_i_begin_last_backtraces(void)
{
    is_locked = aco_i_try_to_lock(&backtraces_lock);
}

/* The child of a fork() may begin in the middle of a listing. */
static void forget_backtraces(void)
{
    memset(&last, 0, sizeof(last));
    memset(&backtraces_lock, 0, sizeof(backtraces_lock));
}

void aco_i_begin_backtraces(void)
{
    static aco_i_fork_handler_t handler = {.fn = forget_backtraces};
    aco_i_at_fork(&handler);
    if (aco_i_is_dying()) {
        aco_i_begin_last_backtraces();
    } else {
        lock(&backtraces_lock);
        is_locked = 1;
    }
}

void aco_i_end_backtraces(void)
{
    unmap_last();
    if (is_locked) {
        unlock(&backtraces_lock);
    }
}

/* The symbol of the function that an address is in, and the module; NULL: there is none. */
static const ElfW(Sym) * symbol_at(uintptr_t pc, const aco_i_module_t **module)
{
    *module = aco_i_module_of(pc);
    if (*module == NULL) {
        return NULL;
    }
    read_module(*module);
    return find_function(pc - (*module)->base);
}

const char *aco_i_function_name(uintptr_t address)
{
    const aco_i_module_t *module;
    const ElfW(Sym) *symbol = symbol_at(address, &module);
    return symbol == NULL ? NULL : last.symbols.names + symbol->st_name;
}

int aco_i_is_function(uintptr_t pc, const char *prefix)
{
    const char *name = aco_i_function_name(pc);
    return name != NULL && strncmp(name, prefix, strlen(prefix)) == 0;
}

int aco_i_is_in_function(const void *address, const char *prefix)
{
    aco_i_find_modules();
    aco_i_begin_backtraces();
    int is_in_it = aco_i_is_function((uintptr_t)address, prefix);
    aco_i_end_backtraces();
    return is_in_it;
}

static void put_in_file(aco_i_text_t *text, const aco_i_module_t *module, uintptr_t pc)
{
    if (module != NULL) {
        int is_program = strcmp(module->path, "/proc/self/exe") == 0;
        aco_i_put(text, "(");
        aco_i_put(text, base_name(is_program ? program_name() : module->path));
        aco_i_put(text, "+");
    }
    aco_i_put(text, "0x");
    aco_i_put_number(text, module != NULL ? pc - module->base : pc, 16);
    aco_i_put(text, module != NULL ? ")" : "");
}

void aco_i_put_function(aco_i_text_t *text, uintptr_t address)
{
    const aco_i_module_t *module;
    const ElfW(Sym) *symbol = symbol_at(address, &module);
    if (symbol != NULL) {
        aco_i_put(text, last.symbols.names + symbol->st_name);
    } else {
        put_in_file(text, module, address);
    }
}

void aco_i_put_place(aco_i_text_t *text, uintptr_t pc)
{
    const aco_i_module_t *module;
    const ElfW(Sym) *symbol = symbol_at(pc, &module);
    if (symbol != NULL) {
        aco_i_put(text, last.symbols.names + symbol->st_name);
        aco_i_put(text, "+0x");
        aco_i_put_number(text, pc - module->base - symbol->st_value, 16);
        aco_i_put(text, " ");
    }
    put_in_file(text, module, pc);
}
