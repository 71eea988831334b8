// SPDX-License-Identifier: Apache-2.0
/* Channels and aco_select(), on one thread and on several. */
#include "tasks.h"

#include <pthread.h>

#define CT_SENDERS 8
#define CT_ITEMS 500

static aco_chan_t *chan, *other;
static long sum;

/* ==== Items ================================================================================== */

typedef struct {
    long n;
    char text[24];
} item_t;

static void *sends_items(void *arg)
{
    for (long i = 0; i < CT_ITEMS; i++) {
        item_t item = {(long)(uintptr_t)arg * CT_ITEMS + i, ""};
        snprintf(item.text, sizeof(item.text), "%ld", item.n);
        CHECK(aco_chan_send(chan, &item) == 0);
    }
    return NULL;
}

static void *receives_items(void *arg)
{
    item_t item;
    long last[CT_SENDERS];
    memset(last, -1, sizeof(last));
    int result;
    while ((result = aco_chan_recv(chan, &item)) == 1) {
        CHECK(atol(item.text) == item.n);
        CHECK(item.n > last[item.n / CT_ITEMS]); /* of one sender, in order */
        last[item.n / CT_ITEMS] = item.n;
        __atomic_add_fetch(&sum, item.n, __ATOMIC_RELAXED);
    }
    CHECK(result == 0);
    return arg;
}

static void *passes_items(void *capacity)
{
    chan = aco_chan_new(sizeof(item_t), (size_t)capacity);
    aco_group_t *senders = aco_group_new(), *receivers = aco_group_new();
    sum = 0;
    for (uintptr_t i = 0; i < CT_SENDERS; i++) {
        aco_task_options_t options = {.thread = ACO_ANY, .shares_stack = i % 2, .group = senders};
        CHECK(aco_go_with(&options, sends_items, (void *)i, NULL) == 0);
        options.group = receivers;
        CHECK(aco_go_with(&options, receives_items, NULL, NULL) == 0);
    }
    CHECK(aco_group_join(senders) == 0);
    CHECK(aco_chan_close(chan) == 0);
    CHECK_FAILS(aco_chan_close(chan), EPIPE);
    CHECK(aco_group_join(receivers) == 0);
    long ct = (long)CT_SENDERS * CT_ITEMS;
    CHECK(sum == ct * (ct - 1) / 2);
    aco_chan_free(chan);
    return NULL;
}

static void items_arrive_once_and_in_order(void **state)
{
    (void)state;
    for (int ct_threads = 1; ct_threads <= 3; ct_threads++) {
        for (uintptr_t capacity = 0; capacity <= 9; capacity += 3) {
            run_tasks_on(ct_threads, passes_items, (void *)capacity);
        }
    }
}

/* ==== Threads that run no task =============================================================== */

static void *sends_from_a_thread(void *arg)
{
    sends_items(arg);
    item_t item;
    CHECK(aco_chan_recv(other, &item) == 1 && item.n == 7);
    CHECK(aco_chan_recv(other, &item) == 0);
    return NULL;
}

static void *receives_from_a_thread(void *arg)
{
    pthread_t thread;
    chan = aco_chan_new(sizeof(item_t), 0);
    other = aco_chan_new(sizeof(item_t), 0);
    CHECK(pthread_create(&thread, NULL, sends_from_a_thread, NULL) == 0);
    item_t item = {0, ""};
    for (long i = 0; i < CT_ITEMS; i++) {
        CHECK(aco_chan_recv(chan, &item) == 1 && item.n == i);
    }
    item.n = 7;
    CHECK(aco_chan_send(other, &item) == 0);
    CHECK(aco_chan_close(other) == 0);
    pthread_join(thread, NULL);
    aco_chan_free(chan);
    aco_chan_free(other);
    return arg;
}

static void threads_use_channels(void **state)
{
    (void)state;
    run_tasks(receives_from_a_thread, NULL);
}

/* ==== Ends =================================================================================== */

static void *waits_to_send(void *arg)
{
    item_t item = {1, ""};
    CHECK_FAILS(aco_chan_send(chan, &item), EPIPE);
    return arg;
}

static void *waits_to_receive(void *arg)
{
    item_t item;
    CHECK(aco_chan_recv(other, &item) == 0);
    return arg;
}

static void *closes(void *arg)
{
    item_t item = {5, ""};
    chan = aco_chan_new(sizeof(item_t), 1);
    other = aco_chan_new(sizeof(item_t), 1);
    CHECK_FAILS(aco_chan_try_recv(chan, &item), EAGAIN);
    CHECK(aco_chan_try_send(chan, &item) == 0);
    CHECK_FAILS(aco_chan_try_send(chan, &item), EAGAIN);
    aco_within(MS)
    {
        CHECK_FAILS(aco_chan_send(chan, &item), ETIMEDOUT);
        CHECK_FAILS(aco_chan_recv(other, &item), ETIMEDOUT);
    }
    CHECK(aco_go(waits_to_send, NULL) == 0);
    CHECK(aco_go(waits_to_receive, NULL) == 0);
    aco_yield();
    CHECK(aco_chan_close(chan) == 0);
    CHECK(aco_chan_close(other) == 0);
    aco_yield();
    CHECK(aco_chan_recv(chan, &item) == 1 && item.n == 5); /* the items in the channel are still
                                                            * received */
    CHECK(aco_chan_recv(chan, &item) == 0);
    CHECK_FAILS(aco_chan_send(chan, &item), EPIPE);
    aco_chan_free(chan);
    aco_chan_free(other);
    other = aco_chan_new(sizeof(item_t), 1);
    CHECK(aco_go(waits_to_receive, NULL) == 0);
    aco_yield();
    CHECK(aco_chan_close(other) == 0);
    aco_chan_free(other); /* before the receiver, which has been woken, has run */
    errno = 0;
    CHECK(aco_chan_new(SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
    return arg;
}

static void a_closed_channel_ends_waits(void **state)
{
    (void)state;
    run_tasks(closes, NULL);
}

/* ==== Select ================================================================================= */

#define CT_CHANNELS 4
static aco_chan_t *channels[CT_CHANNELS];
static long ct_received, ct_of[CT_CHANNELS];

static void *selects(void *arg)
{
    long items[CT_CHANNELS];
    aco_case_t cases[CT_CHANNELS];
    int ct_open = CT_CHANNELS;
    for (int i = 0; i < CT_CHANNELS; i++) {
        cases[i] = (aco_case_t){.chan = channels[i], .recv = &items[i]};
    }
    while (ct_open != 0) {
        int i = aco_select(cases, CT_CHANNELS, 1);
        CHECK(i >= 0);
        if (i < 0) {
            break;
        }
        if (cases[i].result == 0) {
            cases[i].chan = NULL; /* closed and empty: left out from now on */
            ct_open--;
        } else {
            CHECK(items[i] % CT_CHANNELS == i);
            __atomic_add_fetch(&ct_received, 1, __ATOMIC_RELAXED);
            __atomic_add_fetch(&ct_of[i], 1, __ATOMIC_RELAXED);
        }
    }
    return arg;
}

static void *sends_by_select(void *arg)
{
    long items[CT_CHANNELS] = {0, 1, 2, 3};
    aco_case_t cases[CT_CHANNELS];
    for (int i = 0; i < CT_CHANNELS; i++) {
        cases[i] = (aco_case_t){.chan = channels[i], .send = &items[i]};
    }
    for (int i = 0; i < CT_ITEMS; i++) {
        int k = aco_select(cases, CT_CHANNELS, 1);
        CHECK(k >= 0 && cases[k].result == 0);
    }
    return arg;
}

static void *selects_on_both_sides(void *capacity)
{
    aco_group_t *senders = aco_group_new(), *receivers = aco_group_new();
    for (int i = 0; i < CT_CHANNELS; i++) {
        channels[i] = aco_chan_new(sizeof(long), (size_t)capacity);
        ct_of[i] = 0;
    }
    ct_received = 0;
    for (int i = 0; i < 6; i++) {
        aco_task_options_t options = {.thread = ACO_ANY, .shares_stack = i % 2, .group = senders};
        CHECK(aco_go_with(&options, sends_by_select, NULL, NULL) == 0);
        options.group = receivers;
        CHECK(aco_go_with(&options, selects, NULL, NULL) == 0);
    }
    CHECK(aco_group_join(senders) == 0);
    for (int i = 0; i < CT_CHANNELS; i++) {
        CHECK(aco_chan_close(channels[i]) == 0);
    }
    CHECK(aco_group_join(receivers) == 0);
    CHECK(ct_received == 6 * CT_ITEMS);
    for (int i = 0; i < CT_CHANNELS; i++) {
        CHECK(ct_of[i] > 6 * CT_ITEMS / CT_CHANNELS / 2); /* each has its chance */
        aco_chan_free(channels[i]);
    }
    return NULL;
}

static void *selects_alone(void *arg)
{
    long n = 1, m = 0;
    chan = aco_chan_new(sizeof(long), 0);
    other = aco_chan_new(sizeof(long), 1);
    aco_case_t cases[] = {{.chan = chan, .send = &n}, {.chan = chan, .recv = &m}, {.chan = NULL}};
    CHECK_FAILS(aco_select(cases, 3, 0), EAGAIN);
    aco_within(MS)
    {
        CHECK_FAILS(aco_select(cases, 3, 1), ETIMEDOUT); /* the call is not its own partner */
    }
    cases[2] = (aco_case_t){.chan = other, .send = &n};
    CHECK(aco_select(cases, 3, 1) == 2 && cases[2].result == 0);
    cases[2] = (aco_case_t){.chan = other, .recv = &m};
    CHECK(aco_select(cases, 3, 0) == 2 && cases[2].result == 1 && m == 1);
    CHECK(aco_chan_close(other) == 0);
    CHECK(aco_select(cases, 3, 1) == 2 && cases[2].result == 0);
    cases[2] = (aco_case_t){.chan = other, .send = &n};
    CHECK(aco_select(cases, 3, 1) == 2 && cases[2].result == -1 && cases[2].error == EPIPE);
    cases[2].recv = &m;
    CHECK_FAILS(aco_select(cases, 3, 1), EINVAL);
    aco_case_t none = {.chan = NULL};
    CHECK_FAILS(aco_select(&none, 1, 1), EINVAL);
    CHECK_FAILS(aco_select(&none, 1, 0), EAGAIN);
    aco_chan_free(chan);
    aco_chan_free(other);
    return arg;
}

#define CT_ROUNDS 200

static void *receives_each(void *arg)
{
    aco_chan_t *shared = (aco_chan_t *)arg;
    intptr_t ct_second = 0;
    for (int i = 0; i < CT_ROUNDS; i++) {
        int item;
        CHECK(aco_chan_recv(shared, &item) == 1);
        ct_second += item;
    }
    return (void *)ct_second;
}

/* Cases that are alike wait for their turn: either may be done. */
static void *selects_between_likes(void *arg)
{
    static const int items[] = {0, 1};
    aco_chan_t *shared = aco_chan_new(sizeof(int), 0);
    aco_case_t cases[] = {{.chan = shared, .send = &items[0]}, {.chan = shared, .send = &items[1]}};
    aco_task_t *receiver = aco_spawn(receives_each, shared);
    intptr_t ct_second = 0;
    void *received;
    for (int i = 0; i < CT_ROUNDS; i++) {
        ct_second += aco_select(cases, 2, 1);
    }
    CHECK(aco_join(receiver, &received) == 0 && (intptr_t)received == ct_second);
    CHECK(ct_second > 0 && ct_second < CT_ROUNDS);
    aco_chan_free(shared);
    return arg;
}

#define CT_LIKE 200000

/* Takes some 100 ms; a look at all cases for each would take minutes. */
static void *selects_from_many(void *arg)
{
    aco_chan_t *shared = aco_chan_new(sizeof(int), 0);
    aco_case_t *cases = (aco_case_t *)calloc(CT_LIKE, sizeof(*cases));
    int item = 0;
    for (int i = 0; i < CT_LIKE; i++) {
        cases[i] = i % 2 == 0 ? (aco_case_t){.chan = shared, .send = &item}
                              : (aco_case_t){.chan = shared, .recv = &item};
    }
    aco_within(MS)
    {
        CHECK_FAILS(aco_select(cases, CT_LIKE, 1), ETIMEDOUT);
    }
    free(cases);
    aco_chan_free(shared);
    return arg;
}

static void like_cases_are_selected(void **state)
{
    (void)state;
    run_tasks(selects_between_likes, NULL);
    run_tasks(selects_from_many, NULL);
}

static void one_of_several_is_selected(void **state)
{
    (void)state;
    for (int ct_threads = 1; ct_threads <= 3; ct_threads++) {
        run_tasks_on(ct_threads, selects_on_both_sides, (void *)0);
        run_tasks_on(ct_threads, selects_on_both_sides, (void *)2);
    }
    run_tasks(selects_alone, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_arrive_once_and_in_order),
        cmocka_unit_test(threads_use_channels),
        cmocka_unit_test(a_closed_channel_ends_waits),
        cmocka_unit_test(one_of_several_is_selected),
        cmocka_unit_test(like_cases_are_selected),
    };
    return cmocka_run_group_tests_name("chan", tests, NULL, NULL);
}
