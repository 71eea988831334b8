// SPDX-License-Identifier: Apache-2.0
/*
 * getenv(), setenv() and unsetenv() of the names that co_set_env_list() lists: each coroutine with
 * hooks has values of its own for them, and none at first. All other calls are libc's.
 */
#include "coroutine.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct names_t {
    size_t ct;
    char *names[1];
};

static names_t *listed; /* NULL: none; once set, it never changes */

PUBLIC void co_set_env_list(const char *names[], size_t ct)
{
    names_t *made = static_cast<names_t *>(calloc(1, sizeof(names_t) + ct * sizeof(*names)));
    names_t *none = NULL;
    for (size_t i = 0; made != NULL && i < ct; i++) {
        if (names[i] != NULL && (made->names[made->ct] = strdup(names[i])) != NULL) {
            made->ct++;
        }
    }
    if (made != NULL && !__atomic_compare_exchange_n(&listed, &none, made, false, __ATOMIC_ACQ_REL,
                                                     __ATOMIC_ACQUIRE)) {
        while (made->ct != 0) {
            free(made->names[--made->ct]);
        }
        free(made);
    }
}

/* The index of a listed name, plus one, if the caller is a coroutine with hooks; else 0. */
static size_t find(const char *name)
{
    const names_t *names = __atomic_load_n(&listed, __ATOMIC_ACQUIRE);
    const stCoRoutine_t *co = names == NULL || name == NULL ? NULL : co_i_running();
    for (size_t i = 0; co != NULL && co->is_hooked && i < names->ct; i++) {
        if (strcmp(names->names[i], name) == 0) {
            return i + 1;
        }
    }
    return 0;
}

/* Does not call libc's getenv(): an allocator may call this one as it starts, too early for
 * dlsym(). */
static char *value_of_process(const char *name)
{
    size_t sz = strlen(name);
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        if (strncmp(*entry, name, sz) == 0 && (*entry)[sz] == '=') {
            return *entry + sz + 1;
        }
    }
    return NULL;
}

static char *value_of(const char *name, size_t number)
{
    if (number == 0) {
        return value_of_process(name);
    }
    const stCoRoutine_t *co = co_i_running();
    return co->variables == NULL ? NULL : co->variables[number - 1];
}

/* Gives the running coroutine a value, which it then owns. 0, or -1 with ENOMEM. */
static int set(size_t number, char *value)
{
    stCoRoutine_t *co = co_i_running();
    if (co->variables == NULL) {
        co->variables = static_cast<char **>(calloc(listed->ct, sizeof(*co->variables)));
    }
    if (co->variables == NULL) {
        free(value);
        return -1;
    }
    free(co->variables[number - 1]);
    co->variables[number - 1] = value;
    return 0;
}

void co_i_free_variables(stCoRoutine_t *co)
{
    for (size_t i = 0; co->variables != NULL && i < listed->ct; i++) {
        free(co->variables[i]);
    }
    free(co->variables);
}

/* ==== In libc's place ======================================================================== */

extern "C" PUBLIC char *getenv(const char *name) noexcept
{
    return value_of(name, find(name));
}

extern "C" PUBLIC int setenv(const char *name, const char *value, int overwrite) noexcept
{
    size_t number = find(name);
    if (number != 0) {
        if (overwrite == 0 && value_of(name, number) != NULL) {
            return 0;
        }
        char *copy = strdup(value);
        return copy == NULL ? -1 : set(number, copy);
    }
    typedef int (*setenv_t)(const char *, const char *, int);
    setenv_t real = reinterpret_cast<setenv_t>(dlsym(RTLD_NEXT, "setenv"));
    if (real == NULL) {
        errno = ENOSYS;
        return -1;
    }
    return real(name, value, overwrite);
}

extern "C" PUBLIC int unsetenv(const char *name) noexcept
{
    size_t number = find(name);
    if (number != 0) {
        return set(number, NULL);
    }
    typedef int (*unsetenv_t)(const char *);
    unsetenv_t real = reinterpret_cast<unsetenv_t>(dlsym(RTLD_NEXT, "unsetenv"));
    if (real == NULL) {
        errno = ENOSYS;
        return -1;
    }
    return real(name);
}
