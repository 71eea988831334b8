// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the modules of the program, its own file and shared libraries, and the call-frame
 * information of each. aco_i_find_modules() makes the table before signal handlers read it.
 */
#include "observe/cfi.h"

#include <link.h>
#include <string.h>

typedef struct {
    aco_i_module_t modules[256];
    size_t ct;
    unsigned long long ct_changes; /* of libc's list of modules, up to this table */
} table_t;

/* Two, as a signal handler may still read one while the next is made. */
static table_t tables[2];
static table_t *table;

static int add_module(struct dl_phdr_info *info, size_t sz, void *arg)
{
    table_t *to = (table_t *)arg;
    aco_i_module_t module = {.low = UINTPTR_MAX};
    (void)sz;
    to->ct_changes = info->dlpi_adds + info->dlpi_subs;
    if (table != NULL && table->ct_changes == to->ct_changes) {
        return 1;
    }
    module.base = info->dlpi_addr;
    module.path = info->dlpi_name[0] == '\0' && to->ct == 0 ? "/proc/self/exe" : info->dlpi_name;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t low = module.base + part->p_vaddr, high = low + part->p_memsz;
        if (part->p_type == PT_LOAD) {
            module.low = low < module.low ? low : module.low;
            module.high = high > module.high ? high : module.high;
        } else if (part->p_type == PT_GNU_EH_FRAME) {
            module.frames = (bytes_t)low;
        }
    }
    if (to->ct < sizeof(to->modules) / sizeof(to->modules[0])) {
        to->modules[to->ct++] = module;
    }
    return 0;
}

const aco_i_module_t *aco_i_module_of(uintptr_t pc)
{
    const table_t *now = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
    for (size_t i = 0; now != NULL && i < now->ct; i++) {
        if (now->modules[i].low <= pc && pc < now->modules[i].high) {
            return &now->modules[i];
        }
    }
    return NULL;
}

uintptr_t aco_i_take_pointer(bytes_t *at, unsigned encoding, uintptr_t data)
{
    static const unsigned char sizes[8] = {sizeof(void *), 0, 2, 4, 8, 0, 0, 0};
    uintptr_t here = (uintptr_t)*at, value;
    if ((encoding & 7) == 1) {
        value = encoding & 8 ? take_sleb(at) : take_uleb(at);
    } else {
        value = take_fixed(at, sizes[encoding & 7], encoding & 8);
    }
    if (value == 0) {
        return 0;
    }
    return value + ((encoding & 0x70) == 0x10 ? here : (encoding & 0x70) == 0x30 ? data : 0);
}

int aco_i_read_common(bytes_t at, description_t *d)
{
    d->initial_end = at + 4;
    d->initial_end += take_fixed(&at, 4, 0);
    at += 4;
    unsigned version = *at++;
    const char *augmentation = (const char *)at;
    at += strlen(augmentation) + 1;
    if (version == 4) {
        at += 2; /* sizes of addresses and segments */
    }
    d->code_step = take_uleb(&at);
    d->data_step = take_sleb(&at);
    d->return_address = version == 1 ? *at++ : (unsigned)take_uleb(&at);
    if (*augmentation != 'z') {
        d->initial = at;
        return *augmentation == '\0' && d->return_address < CT_REGISTERS;
    }
    bytes_t rest = at + 1;
    uintptr_t sz = take_uleb(&at);
    rest = at;
    d->initial = at + sz;
    while (*++augmentation != '\0') {
        if (*augmentation == 'R') {
            d->encoding = *rest++;
        } else if (*augmentation == 'P') {
            unsigned encoding = *rest++;
            aco_i_take_pointer(&rest, encoding, 0);
        } else if (*augmentation == 'L') {
            rest++;
        } else if (*augmentation == 'S') {
            d->is_signal_frame = 1;
        }
    }
    return d->return_address < CT_REGISTERS;
}

typedef struct {
    uintptr_t function;
    bytes_t entry;
} indexed_t;

/* The index of the program's own file; it is made once. `first` is atomic. */
static struct {
    indexed_t *first;
    size_t ct;
} frame_index;

/* Enters the functions of .eh_frame, which are in no order, in the index, unless `first` is NULL.
 * Returns their number. */
static size_t enter_all(bytes_t at, bytes_t end, indexed_t *first)
{
    description_t d = {.encoding = 0};
    bytes_t common = NULL;
    size_t ct = 0;
    while ((size_t)(end - at) > 8) {
        bytes_t entry = at, fields;
        uintptr_t sz = take_fixed(&at, 4, 0), distance;
        if (sz == 0 || sz > (uintptr_t)(end - at)) {
            break;
        }
        fields = at;
        at += sz;
        distance = take_fixed(&fields, 4, 0);
        if (distance == 0) { /* a CIE, the part that functions have in common */
            continue;
        }
        if (common != fields - 4 - distance) {
            common = fields - 4 - distance;
            memset(&d, 0, sizeof(d));
            aco_i_read_common(common, &d);
        }
        uintptr_t function = aco_i_take_pointer(&fields, d.encoding, 0);
        if (first != NULL) {
            first[ct] = (indexed_t){function, entry};
        }
        ct++;
    }
    return ct;
}

/* Shell's sort: qsort() may call malloc(), which signal handlers must not. */
static void sort_indexed(indexed_t *first, size_t ct)
{
    for (size_t gap = ct / 2; gap != 0; gap /= 2) {
        for (size_t i = gap; i < ct; i++) {
            indexed_t moved = first[i];
            size_t to = i;
            for (; to >= gap && first[to - gap].function > moved.function; to -= gap) {
                first[to] = first[to - gap];
            }
            first[to] = moved;
        }
    }
}

static void make_index(const aco_i_module_t *program)
{
    uintptr_t address;
    size_t sz;
    if (frame_index.first != NULL ||
        !aco_i_find_section(program->path, ".eh_frame", &address, &sz)) {
        return;
    }
    bytes_t at = (bytes_t)(program->base + address), end = at + sz;
    size_t ct = enter_all(at, end, NULL);
    indexed_t *first = ct == 0 ? NULL : (indexed_t *)aco_i_map(ct * sizeof(*first), 0);
    if (first == NULL) {
        return;
    }
    enter_all(at, end, first);
    sort_indexed(first, ct);
    frame_index.ct = ct;
    __atomic_store_n(&frame_index.first, first, __ATOMIC_RELEASE);
}

bytes_t aco_i_find_in_index(uintptr_t pc)
{
    const indexed_t *first = __atomic_load_n(&frame_index.first, __ATOMIC_ACQUIRE);
    size_t low = 0, high = first == NULL ? 0 : frame_index.ct;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (first[middle].function <= pc) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low == 0 ? NULL : first[low - 1].entry;
}

void aco_i_find_modules(void)
{
    static lock_t making;
    if (!aco_i_try_to_lock(&making)) {
        return;
    }
    table_t *next = table == &tables[0] ? &tables[1] : &tables[0];
    next->ct = 0;
    if (dl_iterate_phdr(add_module, next) == 0) {
        if (next->ct != 0 && next->modules[0].frames == NULL) {
            make_index(&next->modules[0]);
        }
        __atomic_store_n(&table, next, __ATOMIC_RELEASE);
    }
    unlock(&making);
}

int aco_i_has_index(void)
{
    return frame_index.ct != 0;
}
