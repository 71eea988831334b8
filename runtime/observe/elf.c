// SPDX-License-Identifier: Apache-2.0
/* Maps ELF files, and finds their sections and symbols; by system calls alone, so signal handlers
 * may do so, too. */
#include "observe/elf.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

typedef ElfW(Ehdr) head_t;
typedef ElfW(Shdr) section_t;

file_t aco_i_map_file(const char *path)
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

void aco_i_unmap_file(const file_t *file)
{
    if (file->bytes != NULL) {
        munmap((void *)(uintptr_t)file->bytes, file->sz);
    }
}

/* The `sz` bytes at an offset of the file; NULL if it ends before. */
static const void *part_of(const file_t *file, uint64_t offset, uint64_t sz)
{
    return offset <= file->sz && sz <= file->sz - offset ? file->bytes + offset : NULL;
}

/* The headers of the sections, of which there are head->e_shnum; NULL: it is no ELF file. */
static const section_t *sections_of(const file_t *file, const head_t **head)
{
    const head_t *first = (const head_t *)part_of(file, 0, sizeof(*first));
    *head = first;
    if (first == NULL || memcmp(first->e_ident, ELFMAG, SELFMAG) != 0 ||
        first->e_shentsize != sizeof(section_t)) {
        return NULL;
    }
    return (const section_t *)part_of(file, first->e_shoff, first->e_shnum * sizeof(section_t));
}

void aco_i_find_symbols(const file_t *file, symbols_t *symbols)
{
    const head_t *head;
    const section_t *sections = sections_of(file, &head);
    size_t ct = sections == NULL ? 0 : head->e_shnum;
    for (size_t i = 0; i < ct; i++) {
        const section_t *section = &sections[i];
        int is_better = section->sh_type == SHT_SYMTAB ||
                        (section->sh_type == SHT_DYNSYM && symbols->first == NULL);
        if (!is_better || section->sh_link >= ct) {
            continue;
        }
        const section_t *strings = &sections[section->sh_link];
        symbols->first = (const ElfW(Sym) *)part_of(file, section->sh_offset, section->sh_size);
        symbols->ct = symbols->first == NULL ? 0 : section->sh_size / sizeof(ElfW(Sym));
        symbols->names = (const char *)part_of(file, strings->sh_offset, strings->sh_size);
        int is_ended = symbols->names != NULL && strings->sh_size != 0 &&
                       symbols->names[strings->sh_size - 1] == '\0';
        symbols->names_sz = is_ended ? strings->sh_size : 0;
    }
}

static int find_section(const file_t *file, const char *name, uintptr_t *address, size_t *sz)
{
    const head_t *head;
    const section_t *sections = sections_of(file, &head);
    size_t ct = sections == NULL ? 0 : head->e_shnum;
    if (ct == 0 || head->e_shstrndx >= ct) {
        return 0;
    }
    const section_t *names = &sections[head->e_shstrndx];
    for (size_t i = 0; i < ct; i++) {
        const section_t *section = &sections[i];
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
    file_t file = aco_i_map_file(path);
    int is_found = file.bytes != NULL && find_section(&file, name, address, sz);
    aco_i_unmap_file(&file);
    return is_found;
}
