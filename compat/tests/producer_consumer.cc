// SPDX-License-Identifier: Apache-2.0
/* A producer puts numbers into a queue and signals a condition; a consumer takes them. */
#include "co_routine.h"

#include "check.h"

#include <queue>
#include <stdlib.h>

enum { CT = 50 };

struct state_t {
    stCoCond_t *cond;
    std::queue<int> queue;
    int ct_taken, ct_waits;
};

static void *produce(void *arg)
{
    state_t *state = static_cast<state_t *>(arg);
    co_enable_hook_sys();
    for (int i = 0; i < CT; i++) {
        state->queue.push(i);
        CHECK(co_cond_signal(state->cond) == 0);
        poll(NULL, 0, i % 3 == 0 ? 1 : 0);
    }
    return NULL;
}

static void *consume(void *arg)
{
    state_t *state = static_cast<state_t *>(arg);
    co_enable_hook_sys();
    while (state->ct_taken < CT) {
        if (state->queue.empty()) {
            state->ct_waits++;
            CHECK(co_cond_timedwait(state->cond, -1) == 0);
            continue;
        }
        CHECK(state->queue.front() == state->ct_taken);
        state->queue.pop();
        state->ct_taken++;
    }
    return NULL;
}

static int end_when_taken(void *arg)
{
    return static_cast<state_t *>(arg)->ct_taken == CT ? -1 : 0;
}

int main()
{
    state_t state;
    stCoRoutine_t *consumer, *producer;
    state.cond = co_cond_alloc();
    state.ct_taken = state.ct_waits = 0;
    CHECK(co_create(&consumer, NULL, consume, &state) == 0);
    co_resume(consumer);
    CHECK(co_create(&producer, NULL, produce, &state) == 0);
    co_resume(producer);
    co_eventloop(co_get_epoll_ct(), end_when_taken, &state);
    CHECK(state.ct_waits >= 2);

    co_release(consumer);
    co_release(producer);
    CHECK(co_cond_free(state.cond) == 0);
    return ct_failed != 0;
}
