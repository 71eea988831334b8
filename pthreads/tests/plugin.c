// SPDX-License-Identifier: Apache-2.0
/* A shared object with thread-local variables, which plugins.c loads. The loader takes a while for
 * its many relocations, among which is the initial value of a variable. If WAITS is set, it then
 * waits for a thread of the object. */
#include <pthread.h>
#include <stdlib.h>

static __thread int ct_calls = 100;
static __thread char unused[3000];
static const int seven = 7;
static __thread const int *volatile address = &seven;
static const int *const many[1 << 18] = {[0 ...(1 << 18) - 1] = &seven};

int call_plugin(void)
{
    if (ct_calls < 100 || ct_calls >= 1000 || address != many[ct_calls]) {
        return 0;
    }
    unused[ct_calls]++;
    return ++ct_calls;
}

static void *has_initial_values(void *arg)
{
    return call_plugin() == 101 ? arg : NULL;
}

static __attribute__((constructor)) void wait_for_thread(void)
{
    pthread_t thread;
    void *result = NULL;
    if (getenv("WAITS") != NULL &&
        (pthread_create(&thread, NULL, has_initial_values, &thread) != 0 ||
         pthread_join(thread, &result) != 0 || result == NULL)) {
        abort();
    }
}
