// SPDX-License-Identifier: Apache-2.0
/* Opens the plugins that its arguments name, and calls them in a coroutine, where they yield. */
#include "aco.h"

#include <dlfcn.h>

static void (*plugin_step)(void);

static void calls_plugin(void)
{
    plugin_step();
    plugin_step();
    aco_exit();
}

static void open_plugin(const char *path)
{
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *step = plugin != NULL ? dlsym(plugin, "plugin_step") : NULL;
    if (step == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    memcpy(&plugin_step, &step, sizeof(step));
}

int main(int argc, char **argv)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    for (int i = 1; i < argc; i++) {
        open_plugin(argv[i]);
        aco_t *co = aco_create(main_co, stack, 0, calls_plugin, NULL);
        int ct = 0;
        for (; !co->is_end; ct++) {
            aco_resume(co);
        }
        aco_assert(ct == 3);
        aco_destroy(co);
    }
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
    return 0;
}
