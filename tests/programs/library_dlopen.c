// SPDX-License-Identifier: Apache-2.0
/*
 * Opens the shared library given as its argument, finds every public name in it, and uses the
 * library through what it found, as a binding of another language would. Exits with 0 if all is
 * well, otherwise says what is not. Of aco.h it uses types only.
 */
#define ACO_CONFIG_DLOPEN
#include "aco.h"

#include <dlfcn.h>

#define ROUNDS 10

static const char *const names[] = {
    "aco_version",               "aco_thread_init",           "aco_runtime_test",
    "aco_share_stack_new",       "aco_share_stack_new2",      "aco_try_share_stack_new2",
    "aco_share_stack_new_in",    "aco_share_stack_destroy",   "aco_create",
    "aco_try_create",            "aco_create_in",             "aco_reset",
    "aco_resume",                "aco_yield",                 "aco_yield1",
    "aco_yield_to",              "aco_exit",                  "aco_exit1",
    "aco_destroy",               "aco_set_allocator",         "aco_get_co",
    "aco_co",                    "aco_get_arg",               "aco_is_main_co",
    "aco_status",                "acosw",                     "aco_set_waker",
    "aco_i_wake",                "aco_save_fpucw_mxcsr",      "aco_funcp_protector",
    "aco_funcp_protector_asm",   "aco_i_assert_failed",       "aco_on_own_stack",
};

static void *library;

static void *find(const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "not found: %s\n", name);
        exit(1);
    }
    return found;
}

/* dlsym() gives functions as object pointers, which POSIX lets be converted. */
#define FIND(type, name) ((type)(uintptr_t)find(name))

static void counts(void)
{
    int *ct = (int *)FIND(void *(*)(void), "aco_get_arg")();
    for (int i = 0; i < ROUNDS; i++) {
        ++*ct;
        FIND(void (*)(void), "aco_yield")();
    }
    FIND(void (*)(void), "aco_exit")();
}

int main(int argc, char **argv)
{
    library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (library == NULL) {
        fprintf(stderr, "can't open the library: %s\n", argc == 2 ? dlerror() : "not given");
        return 1;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        find(names[i]);
    }
    int ct = 0;
    FIND(void (*)(aco_cofuncp_t, int), ACO_CONFIG_NAME("aco_thread_init"))(NULL, ACO_VERSION);
    aco_t *(*create)(aco_t *, aco_share_stack_t *, size_t, aco_cofuncp_t, void *) =
        FIND(aco_t *(*)(aco_t *, aco_share_stack_t *, size_t, aco_cofuncp_t, void *), "aco_create");
    aco_t *main_co = create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = FIND(aco_share_stack_t * (*)(size_t), "aco_share_stack_new")(0);
    aco_t *co = create(main_co, stack, 0, counts, &ct);
    while (!co->is_end) {
        FIND(void (*)(aco_t *), "aco_resume")(co);
    }
    int is_main = FIND(aco_t *(*)(void), "aco_get_co")() == main_co;
    FIND(void (*)(aco_t *), "aco_destroy")(co);
    FIND(void (*)(aco_share_stack_t *), "aco_share_stack_destroy")(stack);
    FIND(void (*)(aco_t *), "aco_destroy")(main_co);
    if (ct != ROUNDS || !is_main || FIND(int (*)(void), "aco_version")() != ACO_VERSION) {
        fprintf(stderr, "the coroutine ran %d times, not %d\n", ct, ROUNDS);
        return 1;
    }
    return 0;
}
