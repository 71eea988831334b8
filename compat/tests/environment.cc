// SPDX-License-Identifier: Apache-2.0
/* Environment variables with a value for each coroutine. */
#include "co_routine.h"

#include "check.h"

#include <stdlib.h>
#include <string.h>
#include <vector>

enum { CT = 10 };

static const char *const names[] = {"CO_TEST_QUERY", "CO_TEST_COOKIE", "CO_TEST_HOST"};
static int ct_done;

static bool is(const char *name, const char *expected)
{
    const char *value = getenv(name);
    return expected == NULL || value == NULL ? value == expected : strcmp(value, expected) == 0;
}

static void *work(void *arg)
{
    char own[20];
    snprintf(own, sizeof(own), "query %d", *static_cast<int *>(arg));
    CHECK(is("CO_TEST_QUERY", "process"));
    co_enable_hook_sys();
    CHECK(is("CO_TEST_QUERY", NULL) && is("CO_TEST_COOKIE", NULL) && is("CO_TEST_HOST", NULL));
    CHECK(setenv("CO_TEST_QUERY", "first", 0) == 0 && is("CO_TEST_QUERY", "first"));
    CHECK(setenv("CO_TEST_QUERY", own, 1) == 0 && setenv("CO_TEST_HOST", "own host", 0) == 0);
    CHECK(setenv("CO_TEST_COOKIE", own, 0) == 0);
    CHECK(setenv("CO_TEST_SHARED", own, 1) == 0);
    co_poll(co_get_epoll_ct(), NULL, 0, 5);
    CHECK(is("CO_TEST_QUERY", own) && is("CO_TEST_COOKIE", own) && is("CO_TEST_HOST", "own host"));
    CHECK(setenv("CO_TEST_QUERY", "not this", 0) == 0 && is("CO_TEST_QUERY", own));
    co_disable_hook_sys();
    CHECK(is("CO_TEST_QUERY", "process") && is("CO_TEST_COOKIE", NULL));
    co_enable_hook_sys();
    CHECK(unsetenv("CO_TEST_QUERY") == 0 && is("CO_TEST_QUERY", NULL));
    co_poll(co_get_epoll_ct(), NULL, 0, 5);
    CHECK(is("CO_TEST_QUERY", NULL) && is("CO_TEST_COOKIE", own));
    ct_done++;
    return NULL;
}

static int end_when_done(void *)
{
    return ct_done == CT ? -1 : 0;
}

int main()
{
    int ids[CT];
    std::vector<stCoRoutine_t *> all(CT);
    const char *listed[] = {names[0], names[1], names[2]}, *ignored[] = {"CO_TEST_SHARED"};
    CHECK(setenv("CO_TEST_HOST", "host", 1) == 0);
    CHECK(setenv("CO_TEST_QUERY", "process", 1) == 0 && is("CO_TEST_QUERY", "process"));
    co_set_env_list(listed, 3);
    co_set_env_list(ignored, 1); /* only the first call counts */
    for (int i = 0; i < CT; i++) {
        ids[i] = i;
        CHECK(co_create(&all[static_cast<size_t>(i)], NULL, work, &ids[i]) == 0);
        co_resume(all[static_cast<size_t>(i)]);
    }
    CHECK(is("CO_TEST_QUERY", "process") && is("CO_TEST_COOKIE", NULL));
    CHECK(is("CO_TEST_SHARED", "query 9") && is("CO_TEST_HOST", "host"));
    co_eventloop(co_get_epoll_ct(), end_when_done, NULL);
    CHECK(unsetenv("CO_TEST_QUERY") == 0 && is("CO_TEST_QUERY", NULL));
    for (size_t i = 0; i < all.size(); i++) {
        co_release(all[i]);
    }
    return ct_failed != 0;
}
