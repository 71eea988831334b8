// SPDX-License-Identifier: Apache-2.0
/* Variables with a value for each coroutine, and for each thread outside of coroutines. */
#include "co_routine_specific.h"

#include "check.h"

#include <stdint.h>
#include <unistd.h>
#include <vector>

struct request_t {
    int id;
    char text[1000];
    double number;
};

CO_ROUTINE_SPECIFIC(request_t, request)
CO_ROUTINE_SPECIFIC(long, number);

static int ct_done;

static void *work(void *arg)
{
    int id = *static_cast<int *>(arg);
    co_enable_hook_sys();
    CHECK(request->id == 0 && request->text[999] == '\0' && *number == 0);
    CHECK(reinterpret_cast<uintptr_t>(&request->number) % sizeof(double) == 0);
    request->id = id;
    for (int i = 0; i < 3; i++) {
        CHECK(request->id == id && *number == i);
        *number += 1;
        co_poll(co_get_epoll_ct(), NULL, 0, id % 3);
    }
    CHECK((*request).id == id);
    ct_done++;
    return NULL;
}

static int end_when_done(void *arg)
{
    return ct_done == *static_cast<int *>(arg) ? -1 : 0;
}

static void *run_thread(void *)
{
    CHECK(request->id == 0);
    request->id = 7;
    *number = 8;
    return NULL;
}

int main()
{
    int ids[30], ct = 30;
    std::vector<stCoRoutine_t *> all(30);
    *number = 5;
    for (int i = 0; i < ct; i++) {
        ids[i] = i;
        CHECK(co_create(&all[static_cast<size_t>(i)], NULL, work, &ids[i]) == 0);
        co_resume(all[static_cast<size_t>(i)]);
    }
    co_eventloop(co_get_epoll_ct(), end_when_done, &ct);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(*number == 5 && request->id == 0);
    for (size_t i = 0; i < all.size(); i++) {
        co_release(all[i]);
    }
    return ct_failed != 0;
}
