// SPDX-License-Identifier: Apache-2.0
/* The loop, co_poll() and conditions: the result of each call, and the order in which coroutines
 * run. */
#include "calls.h"

#include <unistd.h>

static int ct_turns_left;

static int count_down(void *)
{
    return --ct_turns_left <= 0 ? -1 : 0;
}

/* ==== The loop =============================================================================== */

static void test_time(stShareStack_t *stack)
{
    int is_done = 0;
    stCoRoutine_t *co = create(polls_for_time, &is_done, stack);
    co_resume(co);
    EXPECT("a");
    co_eventloop(co_get_epoll_ct(), is_set, &is_done);
    EXPECT("b");
    co_release(co);
}

/* The loop calls the function after each turn, also if there is nothing to do. */
static void test_turns()
{
    ct_turns_left = 5;
    co_eventloop(co_get_epoll_ct(), count_down, NULL);
    CHECK(ct_turns_left == 0);
}

struct polled_t {
    int fd;
    int timeout;
    int result;
    int revents;
    int is_done;
};

static void *polls_one(void *arg)
{
    polled_t *polled = static_cast<polled_t *>(arg);
    struct pollfd fds[2] = {{polled->fd, POLLIN, -1}, {-1, POLLIN, -1}};
    polled->result = co_poll(co_get_epoll_ct(), fds, 2, polled->timeout);
    CHECK(fds[1].revents == 0);
    polled->revents = fds[0].revents;
    polled->is_done = 1;
    return NULL;
}

static void test_poll(stShareStack_t *stack)
{
    int fds[2];
    CHECK(pipe(fds) == 0);
    const struct {
        int timeout, is_written, result, revents;
    } cases[] = {
        {0, 0, 0, 0}, {20, 0, 0, 0}, {0, 1, 1, POLLIN}, {-1, 1, 1, POLLIN}, {60000, 1, 1, POLLIN}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        polled_t polled = {fds[0], cases[i].timeout, -2, -2, 0};
        char byte = 'x';
        stCoRoutine_t *co = create(polls_one, &polled, stack);
        CHECK(!cases[i].is_written || cases[i].timeout != 0 || write(fds[1], &byte, 1) == 1);
        co_resume(co);
        CHECK(polled.is_done == (cases[i].timeout == 0));
        CHECK(!cases[i].is_written || cases[i].timeout == 0 || write(fds[1], &byte, 1) == 1);
        co_eventloop(co_get_epoll_ct(), is_set, &polled.is_done);
        CHECK(polled.result == cases[i].result && polled.revents == cases[i].revents);
        CHECK(!cases[i].is_written || read(fds[0], &byte, 1) == 1);
        co_release(co);
    }
    polled_t closed = {fds[1] + 100, -1, -2, -2, 0}; /* none: known at once */
    stCoRoutine_t *co = create(polls_one, &closed, stack);
    co_resume(co);
    CHECK(!closed.is_done);
    co_resume(co);
    CHECK(closed.is_done && closed.result == 1 && closed.revents == POLLNVAL);
    co_release(co);
    struct pollfd outside = {fds[1], POLLOUT, 0};
    CHECK(co_poll(co_get_epoll_ct(), &outside, 1, 1000) == 1 && outside.revents == POLLOUT);
    CHECK(co_poll(co_get_epoll_ct(), NULL, 0, 1) == 0);
    close(fds[0]);
    close(fds[1]);
}

enum { CT_READY_CALLS = 8 };

/* Makes calls that need not wait, and counts them. */
static void *never_waits(void *arg)
{
    int fds[2], *ct = static_cast<int *>(arg);
    char byte = 'x';
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    struct pollfd ready = {fds[0], POLLOUT, 0};
    CHECK(co_poll(co_get_epoll_ct(), &ready, 1, -1) == 1 && ++*ct == 1);
    co_enable_hook_sys();
    CHECK(poll(&ready, 1, 1000) == 1 && ++*ct == 2);
    CHECK(write(fds[0], &byte, 1) == 1 && ++*ct == 3);
    CHECK(read(fds[1], &byte, 1) == 1 && ++*ct == 4);
    CHECK(send(fds[0], &byte, 1, 0) == 1 && ++*ct == 5);
    CHECK(recv(fds[1], &byte, 1, 0) == 1 && ++*ct == 6);
    errno = 0;
    CHECK(write(fds[0], &byte, 0) == 0 && errno == 0 && ++*ct == 7);
    CHECK(read(-1, &byte, 1) == -1 && errno == EBADF && ++*ct == 8);
    CHECK(poll(&ready, 1, 0) == 1); /* never waits */
    co_disable_hook_sys();
    close(fds[0]);
    close(fds[1]);
    return NULL;
}

/* co_resume() returns at each call, even if that has no need to wait. */
static void test_ready(stShareStack_t *stack)
{
    int ct = 0;
    stCoRoutine_t *co = create(never_waits, &ct, stack);
    for (int i = 0; i < CT_READY_CALLS; i++) {
        co_resume(co);
        CHECK(ct == i);
    }
    co_resume(co);
    CHECK(ct == CT_READY_CALLS);
    co_reset(co);
    ct = 0;
    co_resume(co);
    ct_turns_left = 2 * CT_READY_CALLS;
    co_eventloop(co_get_epoll_ct(), count_down, NULL); /* resumes it, too */
    CHECK(ct == CT_READY_CALLS);
    co_release(co);
}

/* A coroutine that waits is resumed before its event, reset or released. */
static void test_early(stShareStack_t *stack)
{
    int fds[2];
    CHECK(pipe(fds) == 0);
    const int timeouts[] = {-1, 100000000};
    for (size_t i = 0; i < 2; i++) {
        polled_t polled = {fds[0], timeouts[i], -2, -2, 0};
        stCoRoutine_t *co = create(polls_one, &polled, stack);
        co_resume(co);
        CHECK(!polled.is_done);
        co_resume(co);
        CHECK(polled.is_done && polled.result == 0 && polled.revents == 0);
        co_reset(co);
        polled.is_done = 0;
        co_resume(co);
        co_reset(co);
        CHECK(!polled.is_done);
        co_resume(co);
        CHECK(!polled.is_done);
        co_release(co);
        CHECK(write(fds[1], "x", 1) == 1);
        test_turns(); /* the event finds no coroutine any more */
        CHECK(!polled.is_done);
        char byte;
        CHECK(read(fds[0], &byte, 1) == 1);
    }
    close(fds[0]);
    close(fds[1]);
}

/* ==== Conditions ============================================================================= */

static stCoCond_t *cond;

static void *waits(void *arg)
{
    const char *letters = static_cast<const char *>(arg);
    errno = 0;
    CHECK(co_cond_timedwait(cond, -1) == 0 && errno == 0);
    note(letters[0]);
    CHECK(co_cond_timedwait(cond, 0) == 0 && errno == 0);
    note(letters[1]);
    return NULL;
}

struct timed_wait_t {
    int timeout;
    bool is_late;
    int is_done;
};

static void *waits_for_time(void *arg)
{
    timed_wait_t *wait = static_cast<timed_wait_t *>(arg);
    double begun = now_ms();
    errno = 0;
    CHECK(co_cond_timedwait(cond, wait->timeout) == 0 && (errno == ETIMEDOUT) == wait->is_late);
    CHECK(!wait->is_late || now_ms() - begun >= wait->timeout);
    wait->is_done = 1;
    return NULL;
}

static void run_loop()
{
    ct_turns_left = 2;
    co_eventloop(co_get_epoll_ct(), count_down, NULL);
}

static void test_conditions(stShareStack_t *stack)
{
    char one[] = "ab", two[] = "cd";
    cond = co_cond_alloc();
    CHECK(cond != NULL);
    CHECK(co_cond_signal(cond) == 0); /* is lost */
    CHECK(co_cond_broadcast(cond) == 0);
    stCoRoutine_t *first = create(waits, one, stack), *second = create(waits, two, stack);
    co_resume(first);
    co_resume(second);
    run_loop();
    EXPECT("");
    CHECK(co_cond_signal(cond) == 0);
    EXPECT(""); /* not before the loop */
    run_loop();
    EXPECT("a");
    CHECK(co_cond_broadcast(cond) == 0);
    run_loop();
    EXPECT("cb");
    CHECK(co_cond_signal(cond) == 0);
    run_loop();
    EXPECT("d");
    co_reset(first);
    co_resume(first);
    co_release(first); /* no signal goes to it */
    first = create(waits, one, stack);
    co_resume(first);
    CHECK(co_cond_signal(cond) == 0);
    run_loop();
    EXPECT("a");
    CHECK(co_cond_broadcast(cond) == 0);
    run_loop();
    EXPECT("b");
    co_release(first);
    co_release(second);
    timed_wait_t wait = {20, true, 0};
    stCoRoutine_t *third = create(waits_for_time, &wait, stack);
    co_resume(third);
    co_eventloop(co_get_epoll_ct(), is_set, &wait.is_done);
    wait = (timed_wait_t){100000000, false, 0};
    co_reset(third);
    co_resume(third);
    CHECK(co_cond_signal(cond) == 0 && !wait.is_done);
    co_resume(third); /* it is ready, and resumed before its turn */
    CHECK(wait.is_done);
    wait.is_done = 0;
    co_reset(third);
    co_resume(third);
    co_resume(third); /* without a signal */
    CHECK(wait.is_done);
    run_loop();
    co_release(third);
    CHECK(co_cond_free(cond) == 0);
}

static void *waits_thrice(void *arg)
{
    char letter = *static_cast<const char *>(arg);
    co_cond_timedwait(cond, letter == 'a' ? 1 : -1);
    note(letter);
    co_cond_timedwait(cond, -1);
    note(letter);
    co_cond_timedwait(cond, -1);
    note(letter);
    return NULL;
}

static int has_noted(void *)
{
    return trace[0] != '\0' ? -1 : 0;
}

/* The others stay in a queue when one is taken from its middle. */
static void test_queues(stShareStack_t *stack)
{
    char letters[] = "abc";
    stCoRoutine_t *all[3];
    cond = co_cond_alloc();
    for (int i = 0; i < 3; i++) {
        all[i] = create(waits_thrice, &letters[i], stack);
        co_resume(all[i]);
    }
    co_eventloop(co_get_epoll_ct(), has_noted, NULL);
    EXPECT("a"); /* its time is over; it waits behind the others now */
    for (int i = 0; i < 3; i++) {
        CHECK(co_cond_signal(cond) == 0);
    }
    co_resume(all[0]); /* b and c are ready before it */
    EXPECT("a");
    co_resume(all[1]);
    EXPECT("b");
    CHECK(co_cond_signal(cond) == 0); /* a again, behind c */
    run_loop();
    EXPECT("ca");
    CHECK(co_cond_broadcast(cond) == 0);
    run_loop();
    EXPECT("bc");
    for (int i = 0; i < 3; i++) {
        co_release(all[i]);
    }
    co_cond_free(cond);
}

/* ==== Turns ================================================================================== */

static void *polls_shortly(void *)
{
    note('p');
    co_poll(co_get_epoll_ct(), NULL, 0, 1);
    note('P');
    return NULL;
}

static stCoRoutine_t *inner;

static void *resumes_when_woken(void *)
{
    co_cond_timedwait(cond, -1);
    note('1');
    co_resume(inner);
    note('2');
    return NULL;
}

static void *notes_when_woken(void *)
{
    co_cond_timedwait(cond, -1);
    note('3');
    return NULL;
}

/* A coroutine that waits returns to its resumer, whatever else is ready. */
static void test_return(stShareStack_t *stack)
{
    cond = co_cond_alloc();
    inner = create(polls_shortly, NULL, stack);
    stCoRoutine_t *outer = create(resumes_when_woken, NULL, stack);
    stCoRoutine_t *other = create(notes_when_woken, NULL, stack);
    co_resume(outer);
    co_resume(other);
    co_cond_broadcast(cond);
    stCoRoutine_t *from_outside = create(polls_shortly, NULL, stack);
    co_resume(from_outside);
    EXPECT("p");
    ct_turns_left = 1;
    co_eventloop(co_get_epoll_ct(), count_down, NULL);
    CHECK(strncmp(trace, "1p23", 4) == 0);
    trace[0] = '\0';
    co_release(inner);
    co_release(from_outside);
    co_release(outer);
    co_release(other);
    co_cond_free(cond);
}

static int is_over;

/* Two of these are always ready, except while the other one runs. */
static void *never_sleeps(void *arg)
{
    stCoRoutine_t *resumed = static_cast<stCoRoutine_t *>(arg);
    while (!is_over) {
        for (int i = 0; i < 3; i++) {
            co_resume(resumed);
        }
        co_cond_signal(cond);
        co_cond_timedwait(cond, -1);
    }
    co_cond_signal(cond);
    return NULL;
}

static void *only_yields(void *)
{
    for (;;) {
        co_yield_ct();
    }
    return NULL;
}

/* Coroutines that are always ready don't keep the loop from looking at the time. */
static void test_starving(stShareStack_t *stack)
{
    cond = co_cond_alloc();
    is_over = 0;
    stCoRoutine_t *all[5];
    for (int i = 0; i < 4; i += 2) {
        all[i] = create(only_yields, NULL, stack);
        all[i + 1] = create(never_sleeps, all[i], stack);
        co_resume(all[i + 1]);
    }
    all[4] = create(polls_for_time, &is_over, stack);
    co_resume(all[4]);
    co_eventloop(co_get_epoll_ct(), is_set, &is_over);
    EXPECT("ab");
    for (int i = 0; i < 5; i++) {
        co_release(all[i]);
    }
    co_cond_free(cond);
}

int main()
{
    stShareStack_t *stacks[] = {NULL, co_alloc_sharestack(1, 64 << 10),
                                co_alloc_sharestack(3, 128 << 10)};
    test_turns();
    for (int i = 0; i < 3; i++) {
        test_time(stacks[i]);
        test_poll(stacks[i]);
        test_ready(stacks[i]);
        test_early(stacks[i]);
        test_conditions(stacks[i]);
        test_queues(stacks[i]);
        test_return(stacks[i]);
        test_starving(stacks[i]);
    }
    return ct_failed != 0;
}
