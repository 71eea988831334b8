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

/* Objects with thread-local variables. Their bytes lie one behind another in what is put by; one
 * that is unloaded leaves a gap, so that places stay. */
typedef struct {
    const void *image; /* their initial values */
    size_t image_sz, sz, place;
    size_t id; /* the loader's */
} module_t;

#define MOST_MODULES 1024

static struct {
    lock_t lock;
    size_t ct; /* atomic */
    size_t sz; /* of what is put by; atomic */
    module_t of[MOST_MODULES];
    const struct link_map *last; /* in the list of the loader; atomic; NULL: it may be gone */
} modules;

/* The variables of a loop. */
static __thread struct {
    thread_t *owner;
    locale_t locale; /* its thread's; NULL: the program's */
    size_t ct;       /* of those in `blocks` */
    char *blocks[MOST_MODULES];
} mine __attribute__((tls_model("initial-exec")));

/* ==== The list =============================================================================== */

/* Beginnings of names of files. */
static const char *const of_the_loop[] = {
    "libc.so.", "ld-linux", "ld.so",    "libstdc++", "libc++",      "libgcc_s",  "libunwind",
    "libasan",  "libtsan",  "libubsan", "liblsan",   "libclang_rt", "libpthread"};

static int has_name_of_loop(const char *path)
{
    const char *slash = strrchr(path, '/'), *file = slash == NULL ? path : slash + 1;
    for (size_t i = 0; i < sizeof(of_the_loop) / sizeof(of_the_loop[0]); i++) {
        if (strncmp(file, of_the_loop[i], strlen(of_the_loop[i])) == 0) {
            return 1;
        }
    }
    return 0;
}

static const ElfW(Phdr) * first_segment(const struct dl_phdr_info *info)
{
    const ElfW(Phdr) *segment = info->dlpi_phdr;
    while (segment->p_type != PT_LOAD) {
        segment++;
    }
    return segment;
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

static int is_of_loop(const struct dl_phdr_info *info)
{
    const void *inside = (const void *)(info->dlpi_addr + first_segment(info)->p_vaddr);
    return has_name_of_loop(info->dlpi_name) || has_address(info, &modules) ||
           has_address(info, dlsym(RTLD_DEFAULT, "malloc")) ||
           aco_i_is_listed("ACO_PTHREADS_SHARE_TLS", inside);
}

/* Keys and variables of a library belong to the same thread. */
EARLY int aco_i_has_own_keys(const void *address)
{
    Dl_info of_caller, of_malloc;
    void *allocator = dlsym(RTLD_DEFAULT, "malloc");
    return !aco_i_is_ours(address) && dladdr(address, &of_caller) != 0 &&
           !has_name_of_loop(of_caller.dli_fname) &&
           (dladdr(allocator, &of_malloc) == 0 || of_caller.dli_fbase != of_malloc.dli_fbase) &&
           !aco_i_is_listed("ACO_PTHREADS_SHARE_TLS", address);
}

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
static module_t *module_of(const struct dl_phdr_info *info, const ElfW(Phdr) * segment)
{
    const void *image = (const void *)(info->dlpi_addr + segment->p_vaddr);
    for (size_t i = 0; i < modules.ct; i++) {
        if (modules.of[i].id == info->dlpi_tls_modid && modules.of[i].image == image) {
            return &modules.of[i];
        }
    }
    return NULL;
}

static void add(const struct dl_phdr_info *info, const ElfW(Phdr) * segment)
{
    if (modules.ct == MOST_MODULES || is_of_loop(info)) {
        return;
    }
    size_t sz = (segment->p_memsz + 15) & ~(size_t)15;
    modules.of[modules.ct] = (module_t){(const void *)(info->dlpi_addr + segment->p_vaddr),
                                        segment->p_filesz, segment->p_memsz, modules.sz,
                                        info->dlpi_tls_modid};
    __atomic_store_n(&modules.sz, modules.sz + sz, __ATOMIC_RELAXED);
    __atomic_store_n(&modules.ct, modules.ct + 1, __ATOMIC_RELEASE);
}

/* ==== The list, as a loop sees it ============================================================ */

#define MOST_MISSING 64

/* Objects whose variables the loop's thread has not touched: the loader makes them then. */
typedef struct {
    size_t ct;
    size_t ids[MOST_MISSING];
} missing_t;

static int see_object(struct dl_phdr_info *info, size_t sz, void *arg)
{
    missing_t *missing = (missing_t *)arg;
    const ElfW(Phdr) *segment = segment_of(info);
    (void)sz;
    if (segment == NULL) {
        return 0;
    }
    if (module_of(info, segment) == NULL) {
        add(info, segment);
    }
    const module_t *module = module_of(info, segment);
    if (module != NULL) {
        mine.blocks[module - modules.of] = (char *)info->dlpi_tls_data;
        if (info->dlpi_tls_data == NULL && missing->ct < MOST_MISSING) {
            missing->ids[missing->ct++] = info->dlpi_tls_modid;
        }
    }
    return 0;
}

typedef struct {
    unsigned long module, offset;
} variable_t;

extern void *__tls_get_addr(variable_t *variable); // NOLINT: the loader's name

/* Looks at all objects, which stay where they are in the list. */
static __attribute__((noinline, cold)) void look_again(void)
{
    missing_t missing;
    lock(&modules.lock);
    const struct link_map *last = _r_debug.r_map;
    while (last->l_next != NULL) {
        last = last->l_next;
    }
    __atomic_store_n(&modules.last, last, __ATOMIC_RELEASE);
    do {
        missing.ct = 0;
        memset(mine.blocks, 0, modules.ct * sizeof(mine.blocks[0]));
        dl_iterate_phdr(see_object, &missing);
        for (size_t i = 0; i < missing.ct; i++) {
            variable_t first = {missing.ids[i], 0};
            __tls_get_addr(&first);
        }
    } while (missing.ct != 0);
    mine.ct = modules.ct;
    unlock(&modules.lock);
}

/* Whether an object was loaded or unloaded. New ones come behind the last. */
static inline int has_changed(void)
{
    const struct link_map *last = __atomic_load_n(&modules.last, __ATOMIC_ACQUIRE);
    return last == NULL || last->l_next != NULL ||
           mine.ct != __atomic_load_n(&modules.ct, __ATOMIC_RELAXED);
}

REPLACE(int, dlclose, (void *object), (object), -1)
{
    __atomic_store_n(&modules.last, NULL, __ATOMIC_RELEASE);
    int result = real_dlclose(object);
    __atomic_store_n(&modules.last, NULL, __ATOMIC_RELEASE);
    return result;
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
    if (has_changed()) {
        look_again(); /* of the caller's thread, for their sizes alone */
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

static void put_by(thread_t *thread)
{
    if (thread->variables_sz < __atomic_load_n(&modules.sz, __ATOMIC_RELAXED)) {
        enlarge(thread);
    }
    for (size_t i = 0; i < mine.ct; i++) {
        if (mine.blocks[i] != NULL) {
            memcpy(thread->variables + modules.of[i].place, mine.blocks[i], modules.of[i].sz);
        }
    }
    thread->ct_modules = mine.ct;
}

/* Objects that were loaded since then have their initial values. */
static void fetch(const thread_t *thread)
{
    for (size_t i = 0; i < mine.ct; i++) {
        const module_t *module = &modules.of[i];
        if (mine.blocks[i] == NULL) {
            continue;
        }
        if (i < thread->ct_modules) {
            memcpy(mine.blocks[i], thread->variables + module->place, module->sz);
        } else {
            memcpy(mine.blocks[i], module->image, module->image_sz);
            memset(mine.blocks[i] + module->image_sz, 0, module->sz - module->image_sz);
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

void aco_i_drop_variables(thread_t *thread)
{
    if (mine.owner == thread) {
        mine.owner = NULL;
    }
    aco_i_release(thread->variables);
    thread->variables = NULL;
}
