// SPDX-License-Identifier: Apache-2.0
/* Shared objects with thread-local variables are loaded and unloaded while threads run and start.
 * The arguments are their files. */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#define CT_THREADS 20
#define CT_ROUNDS 100

typedef int (*plugin_t)(void);

static pthread_barrier_t barrier;
static plugin_t plugin;
static int is_over; /* atomic */

static plugin_t find(void *object)
{
    plugin_t found;
    CHECK(object != NULL);
    *(void **)&found = dlsym(object, "call_plugin");
    CHECK(found != NULL);
    return found;
}

/* Each thread has the variables of an object that was loaded after its start. */
static void *has_own_values(void *arg)
{
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 1; i <= CT_ROUNDS; i++) {
        CHECK(plugin() == 100 + i);
        sched_yield();
    }
    pthread_barrier_wait(&barrier);
    return arg;
}

static void *ends(void *arg)
{
    return arg;
}

static void *starts_threads(void *arg)
{
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        result_of(start(ends, NULL));
    }
    return arg;
}

static void threads_have_values_of_later_objects(const char *file)
{
    pthread_t threads[CT_THREADS], starter = start(starts_threads, NULL);
    pthread_barrier_init(&barrier, NULL, CT_THREADS + 1);
    for (int i = 0; i < CT_THREADS; i++) {
        threads[i] = start(has_own_values, NULL);
    }
    pthread_barrier_wait(&barrier);
    void *object = dlopen(file, RTLD_NOW);
    plugin = find(object);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < CT_THREADS; i++) {
        result_of(threads[i]);
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    result_of(starter);
    __atomic_store_n(&is_over, 0, __ATOMIC_RELEASE);
    CHECK(plugin() == 101 && dlclose(object) == 0);
    pthread_barrier_destroy(&barrier);
}

static void *loads(void *file)
{
    for (int i = 0; i < CT_ROUNDS; i++) {
        void *object = dlopen((const char *)file, RTLD_NOW);
        CHECK(find(object)() == 101);
        CHECK(dlclose(object) == 0);
    }
    return file;
}

static void threads_start_while_objects_come_and_go(char **files)
{
    pthread_t starters[] = {start(starts_threads, NULL), start(starts_threads, NULL)};
    pthread_t loader = start(loads, files[0]);
    loads(files[1]);
    result_of(loader);
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    result_of(starters[0]);
    result_of(starters[1]);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    setenv("WAITS", "", 1);
    for (int i = 0; i < 10; i++) {
        threads_have_values_of_later_objects(argv[1]);
    }
    unsetenv("WAITS"); /* a thread that waits for the loader keeps its loop */
    threads_start_while_objects_come_and_go(argv + 1);
    puts("all held");
    return 0;
}
