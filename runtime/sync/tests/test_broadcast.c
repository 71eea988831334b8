// SPDX-License-Identifier: Apache-2.0
/* Broadcasts: every subscriber gets every item, unless it is too slow, and then learns so. */
#include "tasks.h"

#include <pthread.h>

#define CT_SUBSCRIBERS 20
#define CT_ITEMS 2000
#define CAPACITY 8

static aco_broadcast_t *broadcast;
static int ct_ready, ct_done;

static int sends(int item)
{
    return aco_broadcast_send(broadcast, &item);
}

static void *receives_all(void *arg)
{
    uint64_t position = aco_broadcast_subscribe(broadcast);
    int item, expected = 0;
    ++ct_ready;
    while (aco_broadcast_recv(broadcast, &position, &item) == 1) {
        CHECK(item == expected++ && position == (uint64_t)expected);
    }
    CHECK(expected == CT_ITEMS);
    ++ct_done;
    return arg;
}

static void *sends_to_all(void *arg)
{
    ct_ready = ct_done = 0;
    broadcast = aco_broadcast_new(sizeof(int), CAPACITY);
    aco_group_t *group = aco_group_new();
    for (int i = 0; i < CT_SUBSCRIBERS; i++) {
        CHECK(aco_group_go(group, receives_all, NULL) == 0);
    }
    aco_yield();
    CHECK(ct_ready == CT_SUBSCRIBERS);
    for (int i = 0; i < CT_ITEMS; i++) {
        CHECK(sends(i) == 0);
        if (i % CAPACITY == 0) {
            aco_yield();
        }
    }
    CHECK(aco_broadcast_close(broadcast) == 0);
    CHECK_FAILS(aco_broadcast_close(broadcast), EPIPE);
    CHECK_FAILS(sends(0), EPIPE);
    CHECK(aco_group_join(group) == 0 && ct_done == CT_SUBSCRIBERS);
    aco_broadcast_free(broadcast);
    return arg;
}

static void all_subscribers_get_all_items(void **state)
{
    (void)state;
    run_tasks(sends_to_all, NULL);
}

static void *is_slow(void *arg)
{
    uint64_t position = 0;
    int item = -1;
    broadcast = aco_broadcast_new(sizeof(item), CAPACITY);
    for (int i = 0; i < CAPACITY; i++) {
        CHECK(sends(i) == 0);
    }
    CHECK(aco_broadcast_recv(broadcast, &position, &item) == 1 && item == 0 && position == 1);
    CHECK(sends(CAPACITY) == 0);
    CHECK(aco_broadcast_recv(broadcast, &position, &item) == 1 && item == 1 && position == 2);
    for (int i = 1; i <= 4; i++) {
        CHECK(sends(CAPACITY + i) == 0);
    }
    CHECK_FAILS(aco_broadcast_recv(broadcast, &position, &item), EOVERFLOW);
    CHECK(item == 1 && position == 5); /* it missed three */
    CHECK(aco_broadcast_recv(broadcast, &position, &item) == 1 && item == 5 && position == 6);
    position = aco_broadcast_subscribe(broadcast);
    CHECK(position == CAPACITY + 5);
    aco_within(MS)
    {
        CHECK_FAILS(aco_broadcast_recv(broadcast, &position, &item), ETIMEDOUT);
    }
    CHECK(sends(100) == 0);
    aco_broadcast_close(broadcast);
    CHECK(aco_broadcast_recv(broadcast, &position, &item) == 1 && item == 100);
    CHECK(aco_broadcast_recv(broadcast, &position, &item) == 0);
    position = 0;
    CHECK_FAILS(aco_broadcast_recv(broadcast, &position, &item), EOVERFLOW);
    aco_broadcast_free(broadcast);
    errno = 0;
    CHECK(aco_broadcast_new(1, 0) == NULL && errno == EINVAL);
    CHECK(aco_broadcast_new(SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
    return arg;
}

static void *waits_until_cancelled(void *arg)
{
    uint64_t position = 0;
    CHECK_FAILS(aco_broadcast_recv(broadcast, &position, NULL), ECANCELED);
    return arg;
}

/* A wait that was cancelled leaves nothing behind. Items may have 0 bytes. */
static void *cancels(void *arg)
{
    uint64_t position = 0;
    broadcast = aco_broadcast_new(0, 1);
    aco_group_t *group = aco_group_new();
    for (int i = 0; i < 3; i++) {
        CHECK(aco_group_go(group, waits_until_cancelled, NULL) == 0);
    }
    aco_yield();
    aco_group_cancel(group);
    CHECK(aco_group_join(group) == 0);
    aco_broadcast_free(broadcast);
    broadcast = aco_broadcast_new(0, 1);
    CHECK(aco_broadcast_send(broadcast, NULL) == 0);
    CHECK(aco_broadcast_recv(broadcast, &position, NULL) == 1 && position == 1);
    aco_broadcast_free(broadcast);
    return arg;
}

static void a_slow_subscriber_is_told(void **state)
{
    (void)state;
    run_tasks(is_slow, NULL);
    run_tasks(cancels, NULL);
}

/* A subscriber on any thread gets the items in order; received and missed ones are all items. */
static void *counts_all(void *arg)
{
    uint64_t position = 0, before = 0;
    int item, result;
    while ((result = aco_broadcast_recv(broadcast, &position, &item)) != 0) {
        if (result < 0) {
            CHECK(errno == EOVERFLOW && position > before);
        } else {
            CHECK(position == before + 1 && (uint64_t)item == before);
        }
        before = position;
    }
    CHECK(position == CT_ITEMS);
    return arg;
}

static void *sends_to_threads(void *arg)
{
    pthread_t thread;
    aco_task_options_t options = {.shares_stack = 1};
    broadcast = aco_broadcast_new(sizeof(int), CAPACITY);
    CHECK(pthread_create(&thread, NULL, counts_all, NULL) == 0);
    options.group = aco_group_new();
    for (int i = 0; i < CT_SUBSCRIBERS; i++) {
        options.thread = ACO_THREAD(i % 3);
        CHECK(aco_go_with(&options, counts_all, NULL, NULL) == 0);
    }
    for (int i = 0; i < CT_ITEMS; i++) {
        CHECK(sends(i) == 0);
        if (i % 5 == 0) {
            aco_sleep(i % 50 == 0 ? 10000 : 0);
        }
    }
    CHECK(aco_broadcast_close(broadcast) == 0);
    CHECK(aco_group_join(options.group) == 0);
    pthread_join(thread, NULL);
    aco_broadcast_free(broadcast);
    return arg;
}

static void threads_subscribe(void **state)
{
    (void)state;
    run_tasks_on(3, sends_to_threads, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_subscribers_get_all_items),
        cmocka_unit_test(a_slow_subscriber_is_told),
        cmocka_unit_test(threads_subscribe),
    };
    return cmocka_run_group_tests_name("broadcast", tests, NULL, NULL);
}
