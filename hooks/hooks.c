// SPDX-License-Identifier: Apache-2.0
/*
 * The start of the hooks. A constructor finds libc's functions and gives the runtime those that it
 * calls itself. A hook that is called earlier finds libc's function by itself.
 */
#include "waiting.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

extern HIDDEN hook_t aco_i_first_hook[] __asm__("__start_aco_hooks");
extern HIDDEN hook_t aco_i_behind_hooks[] __asm__("__stop_aco_hooks");

static __thread int is_finding __attribute__((tls_model("initial-exec")));

/* ==== libc's functions ======================================================================= */

static EARLY void *find(const char *name)
{
    KEEP_ERRNO();
    is_finding = 1;
    void *found = dlsym(RTLD_NEXT, name);
    is_finding = 0;
    return found;
}

EARLY int aco_i_find_real(const char *name, void *real)
{
    void *found = is_finding ? NULL : find(name);
    if (found == NULL) {
        return 0;
    }
    __atomic_store((void **)real, &found, __ATOMIC_RELAXED);
    return 1;
}

static void give_to_runtime(void)
{
#if __SIZEOF_POINTER__ == 4
#define SYMBOL(name, large) #large
#else
#define SYMBOL(name, large) #name
#endif
#define X(name, large)                                                                             \
    {                                                                                              \
        void *found = find(SYMBOL(name, large));                                                   \
        if (found != NULL) {                                                                       \
            memcpy(&aco_i_libc.name, &found, sizeof(found));                                       \
        }                                                                                          \
    }
    ACO_I_LIBC(X)
#undef X
}

/* ==== Whether they work ====================================================================== */

/* The first hook whose name leads libraries to another function; NULL if there is none. A program
 * may have a C++ runtime of its own. */
static const hook_t *first_unreached(void)
{
    for (const hook_t *hook = aco_i_first_hook; hook < aco_i_behind_hooks; hook++) {
        int is_of_cxx = strncmp(hook->name, "__cxa_", 6) == 0;
        if (!is_of_cxx && dlsym(RTLD_DEFAULT, hook->name) != hook->hook) {
            return hook;
        }
    }
    return NULL;
}

int aco_hooks_active(void)
{
    return first_unreached() == NULL;
}

static void check_hooks(void)
{
    static int is_told;
    const hook_t *hook = first_unreached();
    __atomic_store_n(&aco_i_sees_changes, hook == NULL, __ATOMIC_RELAXED);
    if (hook != NULL && !__atomic_exchange_n(&is_told, 1, __ATOMIC_RELAXED)) {
        fprintf(stderr,
                "aco_hooks: libraries do not reach the hook of %s(), and block threads: link "
                "dynamically, name the hooks before libc, and don't hide their symbols\n",
                hook->name);
    }
}

/* References to all objects, so that a linker takes all of an archive or none. */
HIDDEN const char *const aco_i_hooks_of[] = {
#define X(file) &aco_i_hooks_of_##file,
    HOOKS_FILES(X)
#undef X
};

/* ==== Start ================================================================================== */

static pid_t process;

int aco_i_is_in_child(void)
{
    return getpid() != process;
}

/* The runtime itself leaves its tasks and descriptors to the parent. */
static void begin_child(void)
{
    process = getpid();
    aco_i_forget_waits();
}

void aco_i_begin_child(void)
{
    aco_i_begin_child_of_runtime();
    begin_child();
}

/* A static program has no table in which libc's functions are found: each hook would fail. */
static void end_static_program(void)
{
    fputs("aco_hooks: a program linked with -static has no hooks: link dynamically\n", stderr);
    abort();
}

static __attribute__((constructor)) void start(void)
{
    if (find("read") == NULL) {
        end_static_program();
    }
    for (const hook_t *hook = aco_i_first_hook; hook < aco_i_behind_hooks; hook++) {
        if (hook->real != NULL) {
            aco_i_find_real(hook->name, hook->real);
        }
    }
    give_to_runtime();
    process = getpid();
    aco_i_check_hooks = check_hooks;
    aco_i_locks_of_hooks = (locks_of_hooks_t){aco_i_buckets, sizeof(aco_i_buckets), aco_i_owner_of};
    pthread_atfork(NULL, NULL, begin_child);
}
