// SPDX-License-Identifier: Apache-2.0
/*
 * The budget of a turn, for random_tasks.c. The last of CALLS_A_TURN calls that need not wait
 * begins by letting all ready tasks run once, and no other call does. In a turn of over 1 ms, an
 * earlier one does, so that tasks whose time has come are not much too late.
 */
#ifndef ACO_TESTS_RANDOM_TURNS_H
#define ACO_TESTS_RANDOM_TURNS_H

#include "random_model.h"

#define CALLS_A_TURN 96
#define CALLS_A_LOOK 32   /* between two looks at the clock */
#define TURN_TIME 1000000 /* ns */
#define MAX_CALL 20000    /* ns that a call takes */
#define MAX_BUSY 4

/* ==== Calls that need not wait =============================================================== */

/* Things that they use, and no other task. */
typedef struct {
    aco_mutex_t mutex;
    aco_rwlock_t rwlock;
    aco_semaphore_t semaphore;
    aco_wait_group_t wait_group;
    aco_chan_t *chan;
} tools_t;

static tools_t *new_tools(void)
{
    tools_t *tools = (tools_t *)calloc(1, sizeof(*tools));
    CHECK(tools != NULL && aco_semaphore_init(&tools->semaphore, 1) == 0);
    tools->chan = aco_chan_new(sizeof(int), 1);
    CHECK(tools->chan != NULL);
    return tools;
}

static void free_tools(tools_t *tools)
{
    aco_chan_free(tools->chan);
    free(tools);
}

/* Makes calls of which one counts. The others never wait: they are free. */
static void make_call(tools_t *tools)
{
    int item = 1;
    aco_case_t cases[] = {{.chan = tools->chan, .send = &item}};
    switch (below(8)) {
    case 0:
        CHECK(aco_mutex_lock(&tools->mutex) == 0 && aco_mutex_unlock(&tools->mutex) == 0);
        break;
    case 1:
        CHECK(aco_rwlock_read_lock(&tools->rwlock) == 0 && aco_rwlock_unlock(&tools->rwlock) == 0);
        break;
    case 2:
        CHECK(aco_semaphore_acquire(&tools->semaphore) == 0);
        CHECK(aco_semaphore_try_acquire(&tools->semaphore) != 0);
        CHECK(aco_semaphore_release(&tools->semaphore) == 0);
        break;
    case 3:
        CHECK(aco_wait_group_wait(&tools->wait_group) == 0);
        break;
    case 4:
        CHECK(aco_chan_send(tools->chan, &item) == 0);
        CHECK(aco_chan_try_recv(tools->chan, &item) == 1);
        break;
    case 5:
        CHECK(aco_chan_try_send(tools->chan, &item) == 0);
        CHECK(aco_chan_recv(tools->chan, &item) == 1);
        break;
    case 6:
        CHECK(aco_select(cases, 1, 1) == 0 && aco_chan_try_recv(tools->chan, &item) == 1);
        break;
    default:
        aco_unpark(aco_self());
        CHECK(aco_park() == 0);
    }
}

/* ==== A turn by its calls ==================================================================== */

typedef struct {
    int ct_turns, is_over, ct_left;
} witnesses_t;

static void *counts_turns(void *arg)
{
    witnesses_t *witnesses = (witnesses_t *)arg;
    while (!witnesses->is_over) {
        witnesses->ct_turns++;
        aco_yield();
    }
    if (--witnesses->ct_left == 0) {
        free(witnesses);
    }
    return NULL;
}

/* Makes calls in a row, beside a few tasks that are always ready. */
static void makes_calls(void)
{
    witnesses_t *witnesses = (witnesses_t *)calloc(1, sizeof(*witnesses));
    tools_t *tools = new_tools();
    int ct = 1 + (int)below(3), ct_calls = (int)below(3 * CALLS_A_TURN);
    CHECK(witnesses != NULL);
    witnesses->ct_left = ct;
    for (int i = 0; i < ct; i++) {
        CHECK(aco_go(counts_turns, witnesses) == 0);
    }
    aco_yield();
    for (int i = 1; i <= ct_calls; i++) {
        int before = witnesses->ct_turns;
        make_call(tools);
        CHECK(witnesses->ct_turns - before == (i % CALLS_A_TURN == 0 ? ct : 0));
    }
    witnesses->is_over = 1;
    free_tools(tools);
    aco_yield(); /* the caller's next calls are in another turn */
}

/* ==== A turn by its time ===================================================================== */

static int ct_busy;

/* Each call takes its time, and counts. */
static void *is_busy(void *arg)
{
    tools_t *tools = new_tools();
    for (unsigned i = below(2000); i != 0; i--) {
        now += below(MAX_CALL);
        make_call(tools);
    }
    free_tools(tools);
    ct_busy--;
    return arg;
}

/* One who sleeps is late by the turns that the busy tasks have then, but not by more. */
static void *sleeps_beside(void *arg)
{
    int64_t most = (ct_busy + 1) * (int64_t)(TURN_TIME + CALLS_A_LOOK * MAX_CALL);
    while (ct_busy != 0) {
        int64_t until = now + below(10 * TURN_TIME);
        CHECK(aco_sleep(until - now) == 0);
        CHECK(now >= until && now - until <= most);
    }
    return arg;
}

static void *is_beside_busy_tasks(void *arg)
{
    ct_busy = 1 + (int)below(MAX_BUSY);
    for (int i = ct_busy; i != 0; i--) {
        CHECK(aco_go(is_busy, NULL) == 0);
    }
    CHECK(aco_go(sleeps_beside, NULL) == 0 && aco_go(sleeps_beside, NULL) == 0);
    return arg;
}

#endif
