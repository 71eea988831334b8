// SPDX-License-Identifier: Apache-2.0
/*
 * Names of functions, from the symbol tables of the files that the program runs: of static ones
 * too, unless the file was stripped. By system calls alone, so signal handlers may ask; one caller
 * at a time.
 */
#include "internal.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    const char *bytes;
    size_t sz;
} file_t;

/* The file that was read last. */
static struct {
    const aco_i_module_t *module;
    file_t file;
    const ElfW(Sym) * symbols;
    size_t ct;
    const char *names;
    size_t names_sz;
} last;

static file_t map_file(const char *path)
{
    file_t file = {NULL, 0};
    struct stat about;
    int fd = aco_i_libc.open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) {
        void *bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes != MAP_FAILED) {
            file = (file_t){(const char *)bytes, (size_t)about.st_size};
        }
    }
    if (fd >= 0) {
        aco_i_libc.close(fd);
    }
    return file;
}

/* `sz` bytes at an offset of the file; NULL if it has not so many. */
static const void *part_of(const file_t *file, uint64_t offset, uint64_t sz)
{
    return offset <= file->sz && sz <= file->sz - offset ? file->bytes + offset : NULL;
}

/* Finds the file's symbols; those for the linker have static functions, too. */
static void find_symbols(const file_t *file)
{
    const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)part_of(file, 0, sizeof(*head));
    if (head == NULL || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
        head->e_shentsize != sizeof(ElfW(Shdr))) {
        return;
    }
    size_t ct = head->e_shnum;
    const ElfW(Shdr) *sections = (const ElfW(Shdr) *)part_of(file, head->e_shoff,
                                                             ct * sizeof(*sections));
    for (size_t i = 0; sections != NULL && i < ct; i++) {
        const ElfW(Shdr) *section = &sections[i];
        int is_better = section->sh_type == SHT_SYMTAB ||
                        (section->sh_type == SHT_DYNSYM && last.symbols == NULL);
        if (!is_better || section->sh_link >= ct) {
            continue;
        }
        const ElfW(Shdr) *strings = &sections[section->sh_link];
        last.symbols = (const ElfW(Sym) *)part_of(file, section->sh_offset, section->sh_size);
        last.ct = last.symbols == NULL ? 0 : section->sh_size / sizeof(ElfW(Sym));
        last.names = (const char *)part_of(file, strings->sh_offset, strings->sh_size);
        int is_ended = last.names != NULL && strings->sh_size != 0 &&
                       last.names[strings->sh_size - 1] == '\0';
        last.names_sz = is_ended ? strings->sh_size : 0;
    }
}

static int find_section(const file_t *file, const char *name, uintptr_t *address, size_t *sz)
{
    const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)part_of(file, 0, sizeof(*head));
    size_t ct = head == NULL || head->e_shentsize != sizeof(ElfW(Shdr)) ? 0 : head->e_shnum;
    const ElfW(Shdr) *sections =
        ct == 0 ? NULL : (const ElfW(Shdr) *)part_of(file, head->e_shoff, ct * sizeof(*sections));
    if (sections == NULL || head->e_shstrndx >= ct) {
        return 0;
    }
    const ElfW(Shdr) *names = &sections[head->e_shstrndx];
    for (size_t i = 0; i < ct; i++) {
        const ElfW(Shdr) *section = &sections[i];
        uint64_t room = section->sh_name < names->sh_size ? names->sh_size - section->sh_name : 0;
        const void *at = part_of(file, names->sh_offset + section->sh_name, room);
        if (at != NULL && room > strlen(name) && memcmp(at, name, strlen(name) + 1) == 0) {
            *address = section->sh_addr;
            *sz = section->sh_size;
            return 1;
        }
    }
    return 0;
}

int aco_i_find_section(const char *path, const char *name, uintptr_t *address, size_t *sz)
{
    file_t file = map_file(path);
    int is_found = file.bytes != NULL && find_section(&file, name, address, sz);
    if (file.bytes != NULL) {
        munmap((void *)(uintptr_t)file.bytes, file.sz);
    }
    return is_found;
}

static void unmap_last(void)
{
    if (last.file.bytes != NULL) {
        munmap((void *)(uintptr_t)last.file.bytes, last.file.sz);
    }
    memset(&last, 0, sizeof(last));
}

static void read_module(const aco_i_module_t *module)
{
    if (last.module != module) {
        unmap_last();
        last.module = module;
        last.file = map_file(module->path);
        if (last.file.bytes != NULL) {
            find_symbols(&last.file);
        }
    }
}

/* The function at an address of the file, counted from where it is loaded; NULL if none is known.
 * Of several, one that others may call. */
static const ElfW(Sym) * find_function(uintptr_t address)
{
    const ElfW(Sym) *found = NULL;
    for (size_t i = 0; i < last.ct; i++) {
        const ElfW(Sym) *symbol = &last.symbols[i];
        int type = ELF32_ST_TYPE(symbol->st_info);
        if ((type == STT_FUNC || type == STT_GNU_IFUNC) && symbol->st_shndx != SHN_UNDEF &&
            address - symbol->st_value < symbol->st_size && symbol->st_name < last.names_sz) {
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

static lock_t places_lock;
static int is_locked; /* its holder has it; a handler that could not have it goes on without */

void aco_i_begin_last_places(void)
{
    is_locked = aco_i_try_to_lock(&places_lock);
}

void aco_i_begin_places(void)
{
    if (aco_i_is_dying()) {
        aco_i_begin_last_places();
    } else {
        lock(&places_lock);
        is_locked = 1;
    }
}

void aco_i_end_places(void)
{
    unmap_last();
    if (is_locked) {
        unlock(&places_lock);
    }
}

void aco_i_forget_places(void)
{
    memset(&last, 0, sizeof(last));
    memset(&places_lock, 0, sizeof(places_lock));
}

/* The symbol of the function at an address, and the module that it is in; NULL: there is none. */
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
    return symbol == NULL ? NULL : last.names + symbol->st_name;
}

int aco_i_is_function(uintptr_t pc, const char *prefix)
{
    const char *name = aco_i_function_name(pc);
    return name != NULL && strncmp(name, prefix, strlen(prefix)) == 0;
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
        aco_i_put(text, last.names + symbol->st_name);
    } else {
        put_in_file(text, module, address);
    }
}

void aco_i_put_place(aco_i_text_t *text, uintptr_t pc)
{
    const aco_i_module_t *module;
    const ElfW(Sym) *symbol = symbol_at(pc, &module);
    if (symbol != NULL) {
        aco_i_put(text, last.names + symbol->st_name);
        aco_i_put(text, "+0x");
        aco_i_put_number(text, pc - module->base - symbol->st_value, 16);
        aco_i_put(text, " ");
    }
    put_in_file(text, module, pc);
}
