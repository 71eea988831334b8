// SPDX-License-Identifier: Apache-2.0
/*
 * Functions of glibc, written for musl: the unwinder of a gcc that was made for glibc calls them.
 * Linked to the tests that test_musl.sh builds; a gcc made for musl has an unwinder that needs
 * none.
 */

/* For dl_iterate_phdr(). */
#define _GNU_SOURCE

#include <link.h>
#include <stdint.h>

/* As the two agreed in glibc 2.35, on the processors for which it has no fifth word. */
struct dl_find_object {
    unsigned long long flags;
    void *map_start;
    void *map_end;
    struct link_map *link_map;
    void *eh_frame; /* the segment PT_GNU_EH_FRAME */
    unsigned long long reserved[7];
};

int _dl_find_object(void *pc, struct dl_find_object *found);

/* Whether the object `info` has `found->map_start` in one of its segments. */
static int look_in_object(struct dl_phdr_info *info, size_t sz, void *data)
{
    struct dl_find_object *found = (struct dl_find_object *)data;
    const uintptr_t pc = (uintptr_t)found->map_start;
    int is_here = 0;
    (void)sz;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && pc - start < segment->p_memsz) {
            is_here = 1;
        }
        if (segment->p_type == PT_GNU_EH_FRAME) {
            found->eh_frame = (void *)start;
        }
    }
    return is_here;
}

int _dl_find_object(void *pc, struct dl_find_object *found)
{
    *found = (struct dl_find_object){.map_start = pc};
    return dl_iterate_phdr(look_in_object, found) ? 0 : -1;
}
