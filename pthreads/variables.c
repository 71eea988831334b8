// SPDX-License-Identifier: Apache-2.0
/*
 * Thread-local variables. The threads of a loop have them at the same addresses, those of the
 * loop's own thread: one of them owns these, and the bytes of the others are put by. A thread that
 * goes on and is not the owner has the owner's bytes copied out, and its own copied in.
 *
 * libc's variables stay the loop's, and so do those of the loader, the C++ runtime, sanitizers, and
 * of the library with malloc(), which keeps caches there.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Objects with thread-local variables. Those of a thread that are put by lie one behind another, in
 * places that objects keep until they are unloaded, and others take over then. */
typedef struct {
    size_t id;         /* the loader's; 0: it was unloaded */
    const void *start; /* of what it has in memory */
    size_t sz, image_sz;
    char *image;        /* their initial values, which others may still need after its end */
    size_t place, room; /* bytes, also of `image` */
    size_t since;       /* the generation that it is of */
    int is_finished;    /* the loader makes blocks */
} module_t;

/* glibc's struct dl_find_object. */
typedef struct {
    unsigned long long flags;
    void *start, *end;
    const struct link_map *map;
    long rest[28]; /* larger than it is */
} found_t;

#define MOST_MODULES 1024
#define IMAGES_SZ ((size_t)256 << 10) /* bytes, that are mapped at a time */

static struct {
    lock_t lock; /* not held where the loader may be locked */
    size_t ct;
    size_t sz;         /* of what is put by; atomic */
    size_t generation; /* of the list, counted from 1 on; atomic */
    module_t of[MOST_MODULES];
    const struct link_map *last; /* in the list of the loader; atomic; NULL: look anew */
    const void *dynamic;         /* section of the last, which libc may unload unseen; atomic */
    int ct_closing, ct_touching; /* calls of dlclose(), and loops that have the loader make blocks;
                                    atomic */
    char *images;                /* room for some more */
    size_t images_sz;
    const void *allocator; /* malloc() */
    int (*find_object)(void *address,
                       found_t *); /* 0: the loader has relocated it; NULL: old libc */
} modules;

/* The variables of an object in a loop, and what the object was when the loop looked. */
typedef struct {
    module_t module;
    char *block; /* NULL: there are none */
} block_t;

/* The variables of a loop. */
static __thread struct {
    thread_t *owner;
    locale_t locale;   /* its thread's; NULL: the program's */
    size_t generation; /* of the list that it has seen */
    size_t ct, room;   /* of `blocks` */
    block_t *blocks;
} mine __attribute__((tls_model("initial-exec")));

/* ==== The list =============================================================================== */

/* Beginnings of names of files, each list ends with NULL. */
static const char *const sanitizers[] = {"libasan", "libtsan",     "libubsan",
                                         "liblsan", "libclang_rt", NULL};
static const char *const runtimes[] = {"libc.so.", "ld-linux",  "ld.so",      "libstdc++", "libc++",
                                       "libgcc_s", "libunwind", "libpthread", NULL};

static int has_name_of(const char *const *names, const char *path)
{
    const char *slash = strrchr(path, '/'), *file = slash == NULL ? path : slash + 1;
    while (*names != NULL && strncmp(file, *names, strlen(*names)) != 0) {
        names++;
    }
    return *names != NULL;
}

/* malloc(). A program with fixed addresses that takes a function's has an entry of its own for it,
 * which stands for the function everywhere. */
static EARLY const void *find_allocator(void)
{
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    const void *address = dlsym(RTLD_DEFAULT, "malloc");
    int is_known = dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT) != 0;
    return is_known && symbol != NULL && symbol->st_shndx == SHN_UNDEF ? dlsym(RTLD_NEXT, "malloc")
                                                                       : address;
}

/* The loader can't be asked while it is locked. It makes callers wait for a dlopen() of another
 * thread, which may wait for them in a constructor: so it is asked once, if libc can tell without
 * that whether an object is ready. */
static EARLY void ask_loader(void)
{
    if (modules.find_object == NULL) {
        modules.allocator = find_allocator();
        *(void **)&modules.find_object = dlsym(RTLD_DEFAULT, "_dl_find_object");
    }
}

const char *aco_i_file_of(const void *address)
{
    found_t found;
    ask_loader();
    return modules.find_object != NULL &&
                   modules.find_object((void *)(uintptr_t)address, &found) == 0
               ? found.map->l_name
               : "";
}

/* Whether an object has an address in one of its segments. */
static int has_address(const struct dl_phdr_info *info, const void *address)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD &&
            (uintptr_t)address - (info->dlpi_addr + segment->p_vaddr) < segment->p_memsz) {
            return 1;
        }
    }
    return 0;
}

/* Whether an object serves the thread of the kernel: the runtimes of languages, and malloc(). */
static int serves_loop(const struct dl_phdr_info *info)
{
    return has_name_of(sanitizers, info->dlpi_name) || has_name_of(runtimes, info->dlpi_name) ||
           has_address(info, &modules) || has_address(info, modules.allocator);
}

static int is_of_loop(const struct dl_phdr_info *info)
{
    const char *path = info->dlpi_name[0] != '\0' ? info->dlpi_name : program_invocation_name;
    return serves_loop(info) || aco_i_shares_variables_of(path);
}

/* Keys and variables of a library belong to the same thread, except that the C++ runtime keeps in
 * keys what a thread does at its end. */
EARLY int aco_i_has_own_keys(const void *address)
{
    Dl_info of_caller, of_malloc;
    const void *allocator = find_allocator();
    return !aco_i_is_ours(address) && dladdr(address, &of_caller) != 0 &&
           !has_name_of(sanitizers, of_caller.dli_fname) &&
           (dladdr(allocator, &of_malloc) == 0 || of_caller.dli_fbase != of_malloc.dli_fbase) &&
           !aco_i_shares_variable(address);
}

/* ==== Code =================================================================================== */

#define MOST_RANGES 64

/* The code of objects that serve the loop. It grows, and handlers read it. */
static struct {
    size_t ct; /* atomic */
    struct {
        uintptr_t start, sz;
    } of[MOST_RANGES];
} code;

static void add_code(uintptr_t start, uintptr_t sz)
{
    if (!aco_i_is_code_of_loop(start) && code.ct < MOST_RANGES) {
        code.of[code.ct].start = start;
        code.of[code.ct].sz = sz;
        __atomic_store_n(&code.ct, code.ct + 1, __ATOMIC_RELEASE);
    }
}

/* The vdso is called by libc and by the loops. */
static void note_code(const struct dl_phdr_info *info)
{
    if (!serves_loop(info) && strncmp(info->dlpi_name, "linux-", strlen("linux-")) != 0) {
        return;
    }
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_X) != 0) {
            add_code(info->dlpi_addr + segment->p_vaddr, segment->p_memsz);
        }
    }
}

int aco_i_is_code_of_loop(uintptr_t address)
{
    size_t ct = __atomic_load_n(&code.ct, __ATOMIC_ACQUIRE);
    for (size_t i = 0; i < ct; i++) {
        if (address - code.of[i].start < code.of[i].sz) {
            return 1;
        }
    }
    return 0;
}

/* ==== Objects ================================================================================ */

/* The segment of an object that has the initial values; NULL if there is none. */
static const ElfW(Phdr) * segment_of(const struct dl_phdr_info *info)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_TLS) {
            return &info->dlpi_phdr[i];
        }
    }
    return NULL;
}

/* The loader gives the id of an object that was unloaded to another one. */
static module_t *module_of(const struct dl_phdr_info *info)
{
    for (size_t i = 0; i < modules.ct; i++) {
        if (modules.of[i].id == info->dlpi_tls_modid &&
            modules.of[i].start == (const void *)info->dlpi_addr) {
            return &modules.of[i];
        }
    }
    return NULL;
}

/* Memory that stays. NULL: there is none. */
static char *room_for_image(size_t sz)
{
    if (sz > modules.images_sz) {
        size_t mapped_sz = sz > IMAGES_SZ ? sz : IMAGES_SZ;
        void *memory = mmap(NULL, mapped_sz, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                            -1, 0);
        if (memory == MAP_FAILED) {
            return NULL;
        }
        modules.images = (char *)memory;
        modules.images_sz = mapped_sz;
    }
    char *room = modules.images;
    modules.images += sz;
    modules.images_sz -= sz;
    return room;
}

/* A place that an object has left, or a new one. */
static module_t *find_place(size_t sz)
{
    for (size_t i = 0; i < modules.ct; i++) {
        if (modules.of[i].id == 0 && modules.of[i].room >= sz) {
            return &modules.of[i];
        }
    }
    char *image = modules.ct < MOST_MODULES ? room_for_image(sz) : NULL;
    if (image == NULL) {
        aco_i_misuse_of("dlopen",
                        "there is no room for the thread-local variables of so many "
                        "objects: name some by --share-tls");
    }
    module_t *module = &modules.of[modules.ct];
    *module = (module_t){.image = image, .place = modules.sz, .room = sz};
    __atomic_store_n(&modules.sz, modules.sz + sz, __ATOMIC_RELAXED);
    __atomic_store_n(&modules.ct, modules.ct + 1, __ATOMIC_RELAXED);
    return module;
}

static module_t *add(const struct dl_phdr_info *info, const ElfW(Phdr) * segment)
{
    if (is_of_loop(info)) {
        return NULL;
    }
    module_t *module = find_place((segment->p_memsz + 15) & ~(size_t)15);
    module->id = info->dlpi_tls_modid;
    module->start = (const void *)info->dlpi_addr;
    module->sz = segment->p_memsz;
    module->image_sz = segment->p_filesz;
    module->since = modules.generation + 1;
    module->is_finished = 0;
    memcpy(module->image, (const void *)(info->dlpi_addr + segment->p_vaddr), segment->p_filesz);
    return module;
}

/* Objects of this generation and before: the loader had not finished with them when they were first
 * seen, but now makes their blocks. */
static struct {
    size_t generation; /* atomic */
    int is_asked;      /* a thread waits for the loader; atomic */
} finished;

static void *wait_for_loader(void *generation)
{
    Dl_info unused;
    dladdr(&modules, &unused);
    __atomic_store_n(&finished.generation, (size_t)generation, __ATOMIC_RELEASE);
    __atomic_store_n(&finished.is_asked, 0, __ATOMIC_SEQ_CST);
    return NULL;
}

/* Asks by a thread of its own: a constructor that the loader calls may wait for the caller. */
static void ask_whether_finished(void)
{
    if (__atomic_exchange_n(&finished.is_asked, 1, __ATOMIC_SEQ_CST)) {
        return;
    }
    size_t generation = __atomic_load_n(&modules.generation, __ATOMIC_RELAXED);
    if (aco_i_start_own(wait_for_loader, (void *)generation) != 0) {
        __atomic_store_n(&finished.is_asked, 0, __ATOMIC_SEQ_CST);
    }
}

#define MOST_MISSING 16

/* A look at all objects, under the lock of the list. */
static struct {
    int has_changed;
    int has_early;      /* objects that are being loaded */
    int has_unfinished; /* objects whose blocks the loader may not be able to make yet */
    const struct link_map *last;
    const void *dynamic;
    char is_there[MOST_MODULES];
    char *blocks[MOST_MODULES]; /* of the thread that looks */
    size_t ct_missing;          /* blocks that the loader makes when the thread touches them */
    size_t missing[MOST_MISSING];
} look;

/* New objects come behind the last. */
static void find_last(void)
{
    look.last = _r_debug.r_map;
    while (look.last->l_next != NULL) {
        look.last = look.last->l_next;
    }
    look.dynamic = look.last->l_ld;
}

static inline int is_closing(void)
{
    return __atomic_load_n(&modules.ct_closing, __ATOMIC_SEQ_CST) != 0;
}

/* While an object is loaded or unloaded, the next look is due at once. */
static void keep_last(void)
{
    __atomic_store_n(&modules.dynamic, look.dynamic, __ATOMIC_RELAXED);
    __atomic_store_n(&modules.last, look.has_early || look.has_unfinished ? NULL : look.last,
                     __ATOMIC_SEQ_CST);
    if (is_closing()) {
        __atomic_store_n(&modules.last, NULL, __ATOMIC_RELEASE);
    }
}

/* Whether an object is relocated, with its initial values, and its variables can be used. */
static int is_ready(const struct dl_phdr_info *info)
{
    const ElfW(Phdr) *segment = info->dlpi_phdr;
    found_t found;
    while (segment->p_type != PT_LOAD) {
        segment++;
    }
    return modules.find_object == NULL ||
           modules.find_object((void *)(info->dlpi_addr + segment->p_vaddr), &found) == 0;
}

/* The block of an object that the loader has not finished with may be one of an object that had the
 * same id, until the thread next uses any variable: it must not be kept. */
static void note_block(const struct dl_phdr_info *info, module_t *module)
{
    size_t finished_ones = __atomic_load_n(&finished.generation, __ATOMIC_ACQUIRE);
    int is_first = modules.generation == 0 && info->dlpi_tls_data != NULL;
    look.is_there[module - modules.of] = 1;
    look.blocks[module - modules.of] = (char *)info->dlpi_tls_data;
    if (!module->is_finished) {
        module->is_finished = is_first || module->since <= finished_ones;
        look.has_changed |= module->is_finished;
    }
    if (!module->is_finished) {
        look.has_unfinished = 1;
    } else if (info->dlpi_tls_data == NULL && look.ct_missing < MOST_MISSING) {
        look.missing[look.ct_missing++] = info->dlpi_tls_modid;
    }
}

/* The loader is locked. */
static int see_object(struct dl_phdr_info *info, size_t sz, void *unused)
{
    const ElfW(Phdr) *segment = segment_of(info);
    (void)sz, (void)unused;
    if (look.last == NULL) {
        find_last();
    }
    note_code(info);
    if (segment == NULL) {
        return 0;
    }
    if (!is_ready(info)) {
        look.has_early = 1;
        return 0;
    }
    module_t *module = module_of(info);
    if (module == NULL) {
        module = add(info, segment);
        look.has_changed |= module != NULL;
    }
    if (module != NULL) {
        note_block(info, module);
    }
    return 0;
}

/* Looks at all objects, under the lock. */
static void look_at_list(void)
{
    memset(&look, 0, sizeof(look));
    dl_iterate_phdr(see_object, NULL);
    keep_last();
    for (size_t i = 0; i < modules.ct; i++) {
        if (modules.of[i].id != 0 && !look.is_there[i]) {
            modules.of[i].id = 0;
            look.has_changed = 1;
        }
    }
    if (look.has_changed || modules.generation == 0) {
        __atomic_store_n(&modules.generation, modules.generation + 1, __ATOMIC_RELEASE);
    }
}

/* Whether an object may have been loaded or unloaded since the last look at the list. */
static inline int is_list_old(void)
{
    const struct link_map *last = __atomic_load_n(&modules.last, __ATOMIC_ACQUIRE);
    return last == NULL || last->l_next != NULL ||
           last->l_ld != __atomic_load_n(&modules.dynamic, __ATOMIC_RELAXED);
}

static __attribute__((noinline, cold)) void renew_list(void)
{
    ask_loader();
    lock(&modules.lock);
    look_at_list();
    int has_unfinished = look.has_unfinished;
    unlock(&modules.lock);
    if (has_unfinished) {
        ask_whether_finished();
    }
}

/* Returns when no loop has the loader make blocks of an object that may be unloaded then; or after
 * a tenth of a second, as such a loop may wait for this thread, which has the loader's lock. */
static void wait_for_touching(void)
{
    for (int i = 0; i < 100 && __atomic_load_n(&modules.ct_touching, __ATOMIC_SEQ_CST) != 0; i++) {
        aco_i_libc.poll(NULL, 0, 1);
    }
}

REPLACE(int, dlclose, (void *object), (object), -1)
{
    __atomic_add_fetch(&modules.ct_closing, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&modules.last, NULL, __ATOMIC_RELEASE);
    wait_for_touching();
    int result = real_dlclose(object);
    KEEP_ERRNO();
    renew_list();
    __atomic_sub_fetch(&modules.ct_closing, 1, __ATOMIC_SEQ_CST);
    return result;
}

/* ==== The list, as a loop sees it ============================================================ */

typedef struct {
    unsigned long module, offset;
} variable_t;

extern void *__tls_get_addr(variable_t *variable); // NOLINT: the loader's name

/* Has the loader make blocks, unless an object may be unloaded: then the loop looks again soon.
 * Returns how many. */
static size_t touch(const size_t *ids, size_t ct)
{
    size_t i = 0;
    for (; i < ct && !is_closing(); i++) {
        variable_t first = {ids[i], 0};
        __tls_get_addr(&first);
    }
    return i;
}

static void enlarge_blocks(size_t ct)
{
    block_t *larger = (block_t *)aco_i_allocate(ct * sizeof(*larger));
    if (larger == NULL) {
        aco_i_misuse_of("dlopen", "there is no memory for the thread-local variables of threads");
    }
    aco_i_release(mine.blocks);
    mine.blocks = larger;
    mine.room = ct;
}

/* Takes over the list, under the lock; returns how many blocks are missing. */
static size_t take_list(size_t *missing)
{
    for (size_t i = 0; i < modules.ct; i++) {
        mine.blocks[i] = (block_t){modules.of[i], look.blocks[i]};
    }
    mine.ct = modules.ct;
    mine.generation = modules.generation;
    memcpy(missing, look.missing, sizeof(look.missing));
    return look.ct_missing;
}

static __attribute__((noinline, cold)) void look_again(void)
{
    size_t missing[MOST_MISSING], room, ct_touched;
    int has_unfinished;
    ask_loader();
    do {
        __atomic_add_fetch(&modules.ct_touching, 1, __ATOMIC_SEQ_CST);
        lock(&modules.lock);
        look_at_list();
        room = modules.ct;
        size_t ct_missing = room <= mine.room ? take_list(missing) : 0;
        has_unfinished = look.has_unfinished;
        unlock(&modules.lock);
        ct_touched = touch(missing, ct_missing);
        __atomic_sub_fetch(&modules.ct_touching, 1, __ATOMIC_SEQ_CST);
        if (room > mine.room) {
            enlarge_blocks(room);
        }
    } while (room > mine.ct || ct_touched != 0);
    if (has_unfinished) {
        ask_whether_finished();
    }
}

static inline int has_changed(void)
{
    return is_list_old() ||
           mine.generation != __atomic_load_n(&modules.generation, __ATOMIC_RELAXED);
}

/* ==== Locale ================================================================================= */

REPLACE(locale_t, uselocale, (locale_t locale), (locale), NULL)
{
    thread_t *thread = this_thread();
    locale_t before = real_uselocale(locale);
    if (thread != NULL && locale != NULL) {
        thread->locale = mine.locale = locale;
    }
    return before;
}

/* ==== Values ================================================================================= */

int aco_i_new_variables(thread_t *thread)
{
    if (is_list_old()) {
        renew_list();
    }
    size_t sz = __atomic_load_n(&modules.sz, __ATOMIC_RELAXED);
    thread->variables = sz == 0 ? NULL : (char *)aco_i_allocate(sz);
    thread->variables_sz = sz;
    return sz != 0 && thread->variables == NULL ? ENOMEM : 0;
}

/* Objects were loaded since the thread was made. */
static void enlarge(thread_t *thread)
{
    size_t sz = __atomic_load_n(&modules.sz, __ATOMIC_RELAXED);
    char *larger = (char *)aco_i_allocate(sz);
    if (larger == NULL) {
        aco_i_misuse_of("dlopen", "there is no memory for the thread-local variables of threads");
    }
    if (thread->variables_sz != 0) {
        memcpy(larger, thread->variables, thread->variables_sz);
    }
    aco_i_release(thread->variables);
    thread->variables = larger;
    thread->variables_sz = sz;
}

static void initialize(const module_t *module, char *values)
{
    memcpy(values, module->image, module->image_sz);
    memset(values + module->image_sz, 0, module->sz - module->image_sz);
}

/* A thread has the initial values of objects that were loaded since its variables were put by, and
 * of those that the loop has no variables of yet. */
static void put_by(thread_t *thread)
{
    if (thread->variables_sz < __atomic_load_n(&modules.sz, __ATOMIC_RELAXED)) {
        enlarge(thread);
    }
    for (size_t i = 0; i < mine.ct; i++) {
        const block_t *b = &mine.blocks[i];
        char *values = thread->variables + b->module.place;
        if (b->block != NULL) {
            memcpy(values, b->block, b->module.sz);
        } else if (b->module.since > thread->generation) {
            initialize(&b->module, values);
        }
    }
    thread->generation = mine.generation;
}

static void fetch(const thread_t *thread)
{
    for (size_t i = 0; i < mine.ct; i++) {
        const block_t *b = &mine.blocks[i];
        if (b->block != NULL && b->module.since <= thread->generation) {
            memcpy(b->block, thread->variables + b->module.place, b->module.sz);
        } else if (b->block != NULL) {
            initialize(&b->module, b->block);
        }
    }
}

void aco_i_take_variables(thread_t *thread)
{
    if (has_changed()) {
        look_again();
    }
    if (mine.owner == thread) {
        return;
    }
    if (mine.ct != 0) {
        if (mine.owner != NULL) {
            put_by(mine.owner);
        }
        fetch(thread);
    }
    if (mine.locale != thread->locale) {
        real_uselocale(thread->locale != NULL ? thread->locale : LC_GLOBAL_LOCALE);
        mine.locale = thread->locale;
    }
    mine.owner = thread;
}

int aco_i_is_variable(const void *address)
{
    for (size_t i = 0; i < mine.ct; i++) {
        const block_t *b = &mine.blocks[i];
        if (b->block != NULL && (uintptr_t)address - (uintptr_t)b->block < b->module.sz) {
            return 1;
        }
    }
    return 0;
}

void aco_i_drop_variables(thread_t *thread)
{
    if (mine.owner == thread) {
        mine.owner = NULL;
    }
    aco_i_release(thread->variables);
    thread->variables = NULL;
}

void aco_i_begin_child_of_variables(void)
{
    modules.lock = (lock_t){0};
    modules.ct_closing = modules.ct_touching = 0;
    modules.last = NULL;
    finished.is_asked = 0;
}
