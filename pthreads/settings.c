// SPDX-License-Identifier: Apache-2.0
/* Reads the environment, as docs/pthreads.md says, and finds the object of an address. */
#define _GNU_SOURCE
#include "internal.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static long number_in(const char *variable)
{
    const char *text = getenv(variable);
    long number = text != NULL ? strtol(text, NULL, 10) : 0;
    return number > 0 ? number : 0;
}

int aco_i_ct_loops(void)
{
    long ct = number_in("ACO_PTHREADS_LOOPS");
    return ct == 0 ? ACO_ALL_PROCESSORS : ct < INT_MAX ? (int)ct : INT_MAX;
}

int aco_i_list_signal(void)
{
    long number = number_in("ACO_PTHREADS_LIST_ON");
    return number < NSIG ? (int)number : 0;
}

size_t aco_i_default_stack_sz(void)
{
    pthread_attr_t attributes;
    size_t sz = (size_t)number_in("ACO_PTHREADS_STACK");
    if (sz == 0 && pthread_attr_init(&attributes) == 0) {
        pthread_attr_getstacksize(&attributes, &sz);
        pthread_attr_destroy(&attributes);
    }
    return sz < LEAST_STACK_SZ ? LEAST_STACK_SZ : sz;
}

static int begins_with(const char *name, const char *word, size_t sz)
{
    return name != NULL && strncmp(name, word, sz) == 0;
}

/* Whether a list has a word with which a name of an object, or that of a function, begins. */
static int has_word(const char *word, const char *path, const char *function)
{
    const char *slash = strrchr(path, '/');
    const char *file = slash == NULL ? path : slash + 1;
    for (size_t sz; word != NULL && *(word += strspn(word, ", ")) != '\0'; word += sz) {
        sz = strcspn(word, ", ");
        if (begins_with(file, word, sz) || begins_with(function, word, sz)) {
            return 1;
        }
    }
    return 0;
}

/* Whether a word of a list is the beginning of the name of the function at an address, or of its
 * file. */
static int is_listed(const char *list, const void *address)
{
    Dl_info info;
    return list != NULL && dladdr(address, &info) != 0 &&
           has_word(list, info.dli_fname, info.dli_sname);
}

/* OpenMP's threads compute, and wait by spinning and for words among thread-local variables. */
#define ALWAYS_REAL "libgomp libomp libiomp5"

int aco_i_is_real(const void *fn)
{
    static const void *last; /* that is none; atomic */
    if (fn == __atomic_load_n(&last, __ATOMIC_RELAXED)) {
        return 0;
    }
    int is_real = has_word(ALWAYS_REAL, aco_i_file_of(fn), NULL) ||
                  is_listed(getenv("ACO_PTHREADS_REAL"), fn);
    if (!is_real) {
        __atomic_store_n(&last, fn, __ATOMIC_RELAXED);
    }
    return is_real;
}

int aco_i_shares_variable(const void *address)
{
    return is_listed(getenv("ACO_PTHREADS_SHARE_TLS"), address);
}

int aco_i_shares_variables_of(const char *path)
{
    return has_word(getenv("ACO_PTHREADS_SHARE_TLS"), path, NULL);
}

/* The object that this is linked into. */
extern HIDDEN const ElfW(Ehdr) object __asm__("__ehdr_start");

static size_t object_sz(void)
{
    size_t sz = 0;
    const ElfW(Phdr) *segments = (const ElfW(Phdr) *)((const char *)&object + object.e_phoff);
    for (int i = 0; i < object.e_phnum; i++) {
        if (segments[i].p_type == PT_LOAD) {
            sz = segments[i].p_vaddr + segments[i].p_memsz;
        }
    }
    return sz;
}

int aco_i_is_ours(const void *address)
{
    static size_t sz; /* atomic */
    if (__atomic_load_n(&sz, __ATOMIC_RELAXED) == 0) {
        __atomic_store_n(&sz, object_sz(), __ATOMIC_RELAXED);
    }
    return (uintptr_t)address - (uintptr_t)&object < sz;
}
