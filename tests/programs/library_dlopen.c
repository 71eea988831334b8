// SPDX-License-Identifier: Apache-2.0
/*
 * Opens the shared library that is its first argument, finds there the functions that the others
 * name, and uses the library through dlsym() alone, as a binding of another language would. Exits
 * with 0 if all is well, otherwise says what is not. It uses only types of aco.h.
 */
#define ACO_CONFIG_DLOPEN
#include "aco.h"

#include <dlfcn.h>

#define ROUNDS 10

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
    library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (library == NULL) {
        fprintf(stderr, "can't open the library: %s\n", argc > 1 ? dlerror() : "not given");
        return 1;
    }
    for (int i = 2; i < argc; i++) {
        find(argv[i]);
    }
    int ct = 0;
    FIND(void (*)(aco_cofuncp_t, int), ACO_CONFIG_NAME("aco_thread_init"))(NULL, ACO_VERSION);
    aco_t *(*create)(aco_t *, aco_share_stack_t *, size_t, aco_cofuncp_t, void *) = FIND(
        aco_t * (*)(aco_t *, aco_share_stack_t *, size_t, aco_cofuncp_t, void *), "aco_create");
    aco_t *main_co = create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = FIND(aco_share_stack_t * (*)(size_t), "aco_share_stack_new")(0);
    aco_t *co = create(main_co, stack, 0, counts, &ct);
    while (!co->is_end) {
        FIND(void (*)(aco_t *), "aco_resume")(co);
    }
    int is_main = FIND(aco_t * (*)(void), "aco_get_co")() == main_co;
    FIND(void (*)(aco_t *), "aco_destroy")(co);
    FIND(void (*)(aco_share_stack_t *), "aco_share_stack_destroy")(stack);
    FIND(void (*)(aco_t *), "aco_destroy")(main_co);
    if (ct != ROUNDS || !is_main || FIND(int (*)(void), "aco_version")() != ACO_VERSION) {
        fprintf(stderr, "the coroutine ran %d times, not %d\n", ct, ROUNDS);
        return 1;
    }
    return 0;
}
