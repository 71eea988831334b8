// SPDX-License-Identifier: Apache-2.0
/*
 * The call-frame information of the program (.eh_frame, as the DWARF standard and the LSB describe
 * it): where the caller's registers are when a function is at an address. It neither allocates nor
 * locks, so signal handlers may ask. The table of modules is made before, by aco_i_find_modules().
 */
#include "cfi.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>

#ifdef DLFO_STRUCT_HAS_EH_DBASE /* glibc 2.35 */
extern __typeof__(_dl_find_object) _dl_find_object __attribute__((weak));
#endif

#define CT_STATES 4 /* that DW_CFA_remember_state may keep at a time */

/* ==== Modules ================================================================================ */

typedef struct {
    aco_i_module_t modules[256];
    size_t ct;
    unsigned long long ct_changes; /* of the list of modules, when this one was made */
} table_t;

/* A signal handler may still read the former table when the next one is made. */
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

/* A pointer in one of the encodings DW_EH_PE_*; `data` is what those relative to data refer to. */
static uintptr_t take_pointer(bytes_t *at, unsigned encoding, uintptr_t data)
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

/* ==== A frame's description ================================================================== */

typedef struct {
    bytes_t initial, initial_end, program, end; /* instructions: of all functions, of this one */
    uintptr_t function;                         /* its address */
    uintptr_t code_step, data_step;             /* factors of distances */
    unsigned return_address;                    /* number of the register */
    unsigned encoding;
    int is_signal_frame;
} description_t;

static int read_common(bytes_t at, description_t *d)
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
            take_pointer(&rest, encoding, 0);
        } else if (*augmentation == 'L') {
            rest++;
        } else if (*augmentation == 'S') {
            d->is_signal_frame = 1;
        }
    }
    return d->return_address < CT_REGISTERS;
}

/* ---- Programs without .eh_frame_hdr, as linkers make them with -static ---- */

typedef struct {
    uintptr_t function;
    bytes_t entry;
} indexed_t;

/* Of the program's own file; it is made once. `first` is atomic. */
static struct {
    indexed_t *first;
    size_t ct;
} frame_index;

/* Goes through .eh_frame, whose entries are in no order, to enter those of functions in the index.
 * Returns how many there are. */
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
        if (distance == 0) { /* what others have in common */
            continue;
        }
        if (common != fields - 4 - distance) {
            common = fields - 4 - distance;
            memset(&d, 0, sizeof(d));
            read_common(common, &d);
        }
        uintptr_t function = take_pointer(&fields, d.encoding, 0);
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
    void *memory = ct == 0 ? MAP_FAILED
                           : mmap(NULL, ct * sizeof(indexed_t), PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return;
    }
    indexed_t *first = (indexed_t *)memory;
    enter_all(at, end, first);
    sort_indexed(first, ct);
    frame_index.ct = ct;
    __atomic_store_n(&frame_index.first, first, __ATOMIC_RELEASE);
}

/* The last entry that does not begin above `pc`. */
static bytes_t find_in_index(uintptr_t pc)
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

/* .eh_frame_hdr of the module with an address; NULL if there is none. A library may have been
 * loaded, or unloaded, since the table was made: libc knows, and tells signal handlers, too. */
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

/* The entry of its sorted table that is for `pc`; NULL if there is none. */
static bytes_t find_entry(uintptr_t pc)
{
    bytes_t at = frames_at(pc);
    if (at == NULL || at[0] != 1 || at[3] != 0x3b) {
        return find_in_index(pc);
    }
    unsigned ct_encoding = at[2], encoding = at[1];
    uintptr_t data = (uintptr_t)at;
    at += 4;
    take_pointer(&at, encoding, data);
    size_t low = 0, high = take_pointer(&at, ct_encoding, data);
    while (low < high) { /* all before `low` are not above pc, and all from `high` on are */
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
    if (sz == 0 || sz == UINT32_MAX || !read_common(common, d)) {
        return 0;
    }
    d->function = take_pointer(&at, d->encoding, 0);
    if (pc - d->function >= take_pointer(&at, d->encoding & 15, 0)) {
        return 0;
    }
    uintptr_t augmentation_sz = take_uleb(&at);
    d->program = at + augmentation_sz;
    return 1;
}

int aco_i_has_frames(uintptr_t pc)
{
    return frames_at(pc) != NULL || frame_index.ct != 0;
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

/* A row of the table that instructions make, with those that only they need. */
typedef struct {
    rules_t now, initial, remembered[CT_STATES];
    unsigned ct_remembered;
    uintptr_t pc; /* where the row begins */
} run_t;

/* Those of the instructions that are about the CFA; 0 if `op` is none. */
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

/* Those that set the rule of a register; 0 if `op` is none. */
static int run_rule(run_t *run, unsigned op, bytes_t *at, const description_t *d)
{
    uintptr_t number;
    if (op == 0x2d || op == 0x2e) { /* window_save, or pointers are signed; args_size */
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

/* Those of one byte with an operand in it, and those that move on; 0 for one that is unknown. */
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
        run->pc = take_pointer(at, d->encoding, 0);
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

/* Runs instructions up to the row that is for `pc`; 0 if one is unknown. */
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
