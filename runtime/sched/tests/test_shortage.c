// SPDX-License-Identifier: Apache-2.0
/* Stacks that are not available: for good, which is an error, or for a time, which a task waits
 * out. */
// build: -Wl,--wrap=mmap,--wrap=nanosleep
#include "tasks.h"

#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define RETRY (10 * MS) /* the loop tries again after that time, and not before */
#define OWN_STACK ((size_t)64 << 10)
#define MOST_TRIES 7 /* of mappings at a time: for 64 stacks, and each half as many as before */
#define ROUNDS 100
/* More than there are addresses. */
#define ABSURD_SZ (SIZE_MAX > UINT32_MAX ? SIZE_MAX >> 4 : SIZE_MAX / 4 * 3)

static int is_short, ct_refused, ct_naps;

void *__real_mmap(void *ptr, size_t sz, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *ptr, size_t sz, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *ptr, size_t sz, int protection, int flags, int fd, off_t offset)
{
    if (__atomic_load_n(&is_short, __ATOMIC_RELAXED)) {
        ct_refused++;
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return __real_mmap(ptr, sz, protection, flags, fd, offset);
}

/* Nothing may keep the thread from its events. */
int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    ct_naps++;
    return __real_nanosleep(time, left);
}

/* ==== For good =============================================================================== */

static void *does_nothing(void *arg)
{
    return arg;
}

static void *makes_absurd_tasks(void *arg)
{
    aco_task_options_t options = {.stack_sz = ABSURD_SZ};
    aco_task_t *task;
    CHECK_FAILS(aco_go_with(&options, does_nothing, NULL, NULL), ENOMEM);
    CHECK_FAILS(aco_go_with(&options, does_nothing, NULL, &task), ENOMEM);
    options.group = aco_group_new();
    CHECK_FAILS(aco_go_with(&options, does_nothing, NULL, NULL), ENOMEM);
    CHECK(aco_group_join(options.group) == 0);
    return arg;
}

static void a_stack_too_large_is_an_error(void **state)
{
    (void)state;
    for (int ct_threads = 1; ct_threads <= 2; ct_threads++) {
        aco_run_options_t options = {.stack_sz = ABSURD_SZ, .ct_threads = ct_threads};
        errno = 0;
        assert_int_equal(aco_run(&options, does_nothing, NULL, NULL), -1);
        assert_int_equal(errno, ENOMEM);
    }
    run_tasks(makes_absurd_tasks, NULL);
}

static void a_first_task_without_a_stack_is_an_error(void **state)
{
    (void)state;
    is_short = 1;
    errno = 0;
    assert_int_equal(aco_run(NULL, does_nothing, NULL, NULL), -1);
    assert_int_equal(errno, ENOMEM);
    is_short = 0;
    run_tasks(does_nothing, NULL);
}

/* ==== For a time ============================================================================= */

typedef struct {
    int to_thread[2], to_task[2];
    int ct_ended;
} shortage_t;

/* A thread that answers each byte. */
static void *answers(void *arg)
{
    const shortage_t *s = (const shortage_t *)arg;
    char byte;
    while (read(s->to_thread[0], &byte, 1) == 1 && write(s->to_task[1], &byte, 1) == 1) {
    }
    return NULL;
}

static void *counts(void *arg)
{
    ((shortage_t *)arg)->ct_ended++;
    return NULL;
}

static void make_starved(shortage_t *s, int ct)
{
    aco_task_options_t options = {.stack_sz = OWN_STACK};
    for (int i = 0; i < ct; i++) {
        CHECK(aco_go_with(&options, counts, s, NULL) == 0);
    }
}

/* Timers and events of others go on, the loop sleeps in between, and the task starts in the end. */
static void *goes_on(void *arg)
{
    shortage_t *s = (shortage_t *)arg;
    char byte = 'x';
    ct_refused = ct_naps = 0;
    __atomic_store_n(&is_short, 1, __ATOMIC_RELAXED);
    int64_t began = aco_now();
    make_starved(s, 3);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(write(s->to_thread[1], &byte, 1) == 1);
        CHECK(aco_read(s->to_task[0], &byte, 1) == 1);
        CHECK(aco_sleep(MS / 10) == 0);
    }
    int64_t passed = aco_now() - began;
    CHECK(s->ct_ended == 0);
    CHECK(ct_naps == 0);
    CHECK(ct_refused >= 3 && ct_refused <= MOST_TRIES * (passed / RETRY + 4));
    __atomic_store_n(&is_short, 0, __ATOMIC_RELAXED);
    while (s->ct_ended < 3) {
        CHECK(aco_sleep(MS) == 0);
    }
    return arg;
}

static void a_shortage_keeps_nobody_else(void **state)
{
    (void)state;
    shortage_t s = {.ct_ended = 0};
    pthread_t thread;
    assert_int_equal(pipe(s.to_thread) | pipe(s.to_task), 0);
    assert_int_equal(pthread_create(&thread, NULL, answers, &s), 0);
    run_tasks(goes_on, &s);
    close(s.to_thread[1]);
    pthread_join(thread, NULL);
    close(s.to_thread[0]);
    close(s.to_task[0]);
    close(s.to_task[1]);
}

static void *ends_the_shortage(void *arg)
{
    __atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
    CHECK(aco_park() == 0);
    __atomic_store_n(&is_short, 0, __ATOMIC_RELAXED);
    return arg;
}

/* The tasks that are left have no stack, until a task ends on this thread or another one. */
static void *leaves_it_to(void *arg)
{
    aco_task_options_t options = {.thread = (int)(intptr_t)arg};
    static shortage_t s;
    static int has_begun;
    aco_task_t *task;
    s.ct_ended = has_begun = 0;
    CHECK(aco_go_with(&options, ends_the_shortage, &has_begun, &task) == 0);
    while (!__atomic_load_n(&has_begun, __ATOMIC_ACQUIRE)) {
        CHECK(aco_sleep(MS / 10) == 0);
    }
    __atomic_store_n(&is_short, 1, __ATOMIC_RELAXED);
    make_starved(&s, 2);
    aco_unpark(task);
    return &s;
}

static void a_task_starts_when_the_shortage_is_over(void **state)
{
    (void)state;
    for (int thread = 0; thread < 2; thread++) {
        aco_run_options_t options = {.ct_threads = thread + 1};
        void *result;
        ct_failed = 0;
        assert_int_equal(aco_run(&options, leaves_it_to,
                                 (void *)(intptr_t)(thread == 0 ? ACO_HERE : ACO_THREAD(thread)),
                                 &result),
                         0);
        assert_int_equal(ct_failed, 0);
        assert_int_equal(((shortage_t *)result)->ct_ended, 2);
    }
}

/* The descriptor of an embedded loop becomes readable when it is time to try again. */
static void an_embedded_loop_tries_again(void **state)
{
    (void)state;
    shortage_t s = {.ct_ended = 0};
    int fd = aco_loop_fd(), result;
    ct_failed = 0;
    is_short = 1;
    make_starved(&s, 2);
    assert_int_equal(aco_run_once(0), 1);
    assert_int_equal(s.ct_ended, 0);
    is_short = 0;
    do {
        struct pollfd polled = {fd, POLLIN, 0};
        assert_int_equal(poll(&polled, 1, -1), 1);
        result = aco_run_once(0);
    } while (result > 0);
    assert_int_equal(result, 0);
    assert_int_equal(s.ct_ended, 2);
    assert_int_equal(ct_failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stack_too_large_is_an_error),
        cmocka_unit_test(a_first_task_without_a_stack_is_an_error),
        cmocka_unit_test(a_shortage_keeps_nobody_else),
        cmocka_unit_test(a_task_starts_when_the_shortage_is_over),
        cmocka_unit_test(an_embedded_loop_tries_again),
    };
    return cmocka_run_group_tests_name("shortage", tests, NULL, NULL);
}
