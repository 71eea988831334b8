// SPDX-License-Identifier: Apache-2.0
// not stress: tasks use what lies on the stack of another one, which moves there
/* syscall(): tasks wait for futexes as tasks, with threads of the kernel and other processes; other
 * calls reach their hooks; arguments and errors are the kernel's. */
#include "threads.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { PRIVATE = FUTEX_PRIVATE_FLAG, CT_WAITERS = 3 };

static uint32_t word, second;
static int ct_woken; /* atomic */

static long futex(const void *at, int op, uint32_t value, const void *time, const void *at2,
                  uint32_t value3)
{
    return syscall(SYS_futex, at, op, value, time, at2, value3);
}

/* ==== Waiting and waking ===================================================================== */

static void *waits(void *op)
{
    CHECK(futex(&word, (int)(intptr_t)op, 0, NULL, NULL, 0) == 0);
    __atomic_add_fetch(&ct_woken, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void *wakes(void *arg)
{
    int flag = (int)(intptr_t)arg;
    aco_task_t *tasks[CT_WAITERS];
    CHECK(futex(&word, FUTEX_WAKE | flag, 1, NULL, NULL, 0) == 0);
    CHECK_FAILS(futex(&word, FUTEX_WAIT | flag, 1, NULL, NULL, 0), EAGAIN);
    ct_woken = 0;
    for (int i = 0; i < CT_WAITERS; i++) {
        tasks[i] = aco_spawn(waits, (void *)(intptr_t)(FUTEX_WAIT | flag));
    }
    let_run();
    CHECK(ct_woken == 0);
    CHECK(futex(&word, FUTEX_WAKE | flag, 0, NULL, NULL, 0) == 1); /* as the kernel does */
    let_run();
    CHECK(ct_woken == 1);
    CHECK(futex(&word, FUTEX_WAKE | flag, INT_MAX, NULL, NULL, 0) == 2);
    for (int i = 0; i < CT_WAITERS; i++) {
        CHECK(aco_join(tasks[i], NULL) == 0);
    }
    CHECK(futex(&word, FUTEX_WAKE | flag, INT_MAX, NULL, NULL, 0) == 0);
    return NULL;
}

static void wakes_reach_tasks(void **state)
{
    (void)state;
    run_tasks(wakes, (void *)(intptr_t)PRIVATE);
    run_tasks(wakes, NULL);
}

static void *waits_for_bits(void *bits)
{
    CHECK(futex(&word, FUTEX_WAIT_BITSET | PRIVATE, 0, NULL, NULL, (uint32_t)(uintptr_t)bits) == 0);
    ct_woken += (int)(uintptr_t)bits;
    return NULL;
}

static void *wakes_by_bits(void *arg)
{
    ct_woken = 0;
    aco_task_t *one = aco_spawn(waits_for_bits, (void *)1),
               *six = aco_spawn(waits_for_bits, (void *)6);
    let_run();
    CHECK(futex(&word, FUTEX_WAKE_BITSET | PRIVATE, 5, NULL, NULL, 8) == 0);
    CHECK(futex(&word, FUTEX_WAKE_BITSET | PRIVATE, 5, NULL, NULL, 4) == 1);
    CHECK(aco_join(six, NULL) == 0);
    CHECK(ct_woken == 6);
    CHECK(futex(&word, FUTEX_WAKE_BITSET | PRIVATE, 5, NULL, NULL, 9) == 1);
    CHECK(aco_join(one, NULL) == 0);
    return arg;
}

static void *waits_in_kernel(void *ct_ended)
{
    CHECK(futex(&word, FUTEX_WAIT | PRIVATE, 0, NULL, NULL, 0) == 0);
    __atomic_add_fetch((int *)ct_ended, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* A task that moves leaves less for the kernel, which would move the thread. */
static void *requeues_one(void *arg)
{
    static int ct_ended;
    pthread_t thread;
    aco_task_t *task = aco_spawn(waits, (void *)(intptr_t)(FUTEX_WAIT | PRIVATE));
    __atomic_store_n(&ct_ended, 0, __ATOMIC_SEQ_CST);
    CHECK(pthread_create(&thread, NULL, waits_in_kernel, &ct_ended) == 0);
    CHECK(aco_sleep(10 * MS) == 0); /* it waits by now, most likely */
    CHECK(futex(&word, FUTEX_REQUEUE | PRIVATE, 0, (void *)1, &second, 0) == 1);
    while (__atomic_load_n(&ct_ended, __ATOMIC_SEQ_CST) == 0) {
        futex(&word, FUTEX_WAKE | PRIVATE, 1, NULL, NULL, 0);
        CHECK(aco_sleep(MS) == 0);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(futex(&second, FUTEX_WAKE | PRIVATE, 5, NULL, NULL, 0) == 1);
    CHECK(aco_join(task, NULL) == 0);
    return arg;
}

static void *requeues(void *arg)
{
    aco_task_t *tasks[CT_WAITERS];
    ct_woken = 0;
    for (int i = 0; i < CT_WAITERS; i++) {
        tasks[i] = aco_spawn(waits, (void *)(intptr_t)(FUTEX_WAIT | PRIVATE));
    }
    let_run();
    CHECK_FAILS(futex(&word, FUTEX_CMP_REQUEUE | PRIVATE, 1, (void *)5, &second, 1), EAGAIN);
    CHECK(futex(&word, FUTEX_CMP_REQUEUE | PRIVATE, 1, (void *)1, &second, 0) == 2);
    let_run();
    CHECK(ct_woken == 1);
    CHECK(futex(&second, FUTEX_WAKE | PRIVATE, 5, NULL, NULL, 0) == 1);
    CHECK(futex(&word, FUTEX_REQUEUE | PRIVATE, 0, (void *)5, &second, 0) == 1);
    CHECK(futex(&word, FUTEX_WAKE | PRIVATE, 5, NULL, NULL, 0) == 0);
    CHECK(futex(&second, FUTEX_WAKE | PRIVATE, 5, NULL, NULL, 0) == 1);
    for (int i = 0; i < CT_WAITERS; i++) {
        CHECK(aco_join(tasks[i], NULL) == 0);
    }
    return arg;
}

static void *waits_for_second(void *arg)
{
    CHECK(futex(&second, FUTEX_WAIT | PRIVATE, 0, NULL, NULL, 0) == 0);
    return arg;
}

/* Adds 1 to the second word, and wakes one of each. */
static void *wakes_by_operation(void *arg)
{
    int op = (int)(FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 0));
    aco_task_t *task = aco_spawn(waits, (void *)(intptr_t)(FUTEX_WAIT | PRIVATE));
    let_run();
    CHECK(futex(&word, FUTEX_WAKE_OP | PRIVATE, 1, (void *)1, &second, (uint32_t)op) == 1);
    CHECK(aco_join(task, NULL) == 0 && second == 1);
    second = 0;
    task = aco_spawn(waits, (void *)(intptr_t)(FUTEX_WAIT | PRIVATE));
    aco_task_t *other = aco_spawn(waits_for_second, NULL);
    let_run();
    CHECK(futex(&word, FUTEX_WAKE_OP | PRIVATE, 1, (void *)1, &second, (uint32_t)op) == 2);
    CHECK(aco_join(task, NULL) == 0 && aco_join(other, NULL) == 0 && second == 1);
    second = 0;
    return arg;
}

static void bits_choose_and_requeues_move(void **state)
{
    (void)state;
    run_tasks(wakes_by_bits, NULL);
    run_tasks(requeues, NULL);
    run_tasks(requeues_one, NULL);
    run_tasks(wakes_by_operation, NULL);
}

/* ==== Time =================================================================================== */

static void *waits_until(void *arg)
{
    static const struct timespec none = {0, 0}, soon = {0, MS}, wrong = {0, 1000000000};
    struct timespec real = in(CLOCK_REALTIME, MS), monotonic = in(CLOCK_MONOTONIC, MS);
    int absolute = FUTEX_WAIT_BITSET | PRIVATE;
    CHECK_FAILS(futex(&word, FUTEX_WAIT | PRIVATE, 0, &none, NULL, 0), ETIMEDOUT);
    CHECK_FAILS(futex(&word, FUTEX_WAIT, 0, &soon, NULL, 0), ETIMEDOUT);
    CHECK_FAILS(futex(&word, FUTEX_WAIT | PRIVATE, 0, &wrong, NULL, 0), EINVAL);
    CHECK_FAILS(futex(&word, FUTEX_WAIT | PRIVATE, 1, &soon, NULL, 0), EAGAIN);
    CHECK_FAILS(futex(&word, absolute, 0, &monotonic, NULL, 1), ETIMEDOUT);
    CHECK(has_come(CLOCK_MONOTONIC, &monotonic));
    CHECK_FAILS(futex(&word, absolute | FUTEX_CLOCK_REALTIME, 0, &real, NULL, 1), ETIMEDOUT);
    CHECK(has_come(CLOCK_REALTIME, &real));
    CHECK_FAILS(futex(&word, absolute, 0, &none, NULL, 1), ETIMEDOUT);
#ifdef SYS_futex_time64 /* where addresses have 32 bits */
    const int64_t large[2] = {0, MS};
    CHECK_FAILS(syscall(SYS_futex_time64, &word, FUTEX_WAIT, 0, large, NULL, 0), ETIMEDOUT);
#endif
    return arg;
}

static void *waits_an_hour(void *arg)
{
    static const struct timespec hour = {3600, 0};
    CHECK_FAILS(futex(&word, FUTEX_WAIT | PRIVATE, 0, &hour, NULL, 0), ECANCELED);
    CHECK_FAILS(futex(&word, FUTEX_WAIT | PRIVATE, 0, &hour, NULL, 0), ECANCELED);
    return arg;
}

/* Timed waits end by deadlines and cancelling; callers of others could only wait again. */
static void *gives_up(void *arg)
{
    static const struct timespec hour = {3600, 0};
    aco_within(MS)
    {
        CHECK_FAILS(futex(&word, FUTEX_WAIT | PRIVATE, 0, &hour, NULL, 0), ETIMEDOUT);
    }
    aco_task_t *timed = aco_spawn(waits_an_hour, NULL);
    aco_task_t *patient = aco_spawn(waits, (void *)(intptr_t)(FUTEX_WAIT | PRIVATE));
    let_run();
    ct_woken = 0;
    aco_task_cancel(timed);
    aco_task_cancel(patient);
    CHECK(aco_join(timed, NULL) == 0);
    CHECK(ct_woken == 0 && futex(&word, FUTEX_WAKE | PRIVATE, 1, NULL, NULL, 0) == 1);
    CHECK(aco_join(patient, NULL) == 0);
    return arg;
}

static void waits_end_in_time(void **state)
{
    (void)state;
    run_tasks(waits_until, NULL);
    run_tasks(gives_up, NULL);
}

/* ==== Threads ================================================================================ */

/* Wakes three tasks and two threads, however late they come. */
static void *wakes_all(void *arg)
{
    long ct = 0;
    while (ct < CT_WAITERS + 2) {
        ct += futex(&word, FUTEX_WAKE | PRIVATE, 1 + ct % 3 == 0 ? 1 : INT_MAX, NULL, NULL, 0);
        sched_yield();
    }
    CHECK(ct == CT_WAITERS + 2);
    return arg;
}

static void *waits_with_threads(void *arg)
{
    void *op = (void *)(intptr_t)(FUTEX_WAIT | PRIVATE);
    pthread_t threads[3];
    aco_task_t *tasks[CT_WAITERS];
    ct_woken = 0;
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, waits, op) == 0);
    }
    for (int i = 0; i < CT_WAITERS; i++) {
        tasks[i] = aco_spawn(waits, op);
    }
    if (arg != NULL) {
        CHECK(pthread_create(&threads[2], NULL, wakes_all, NULL) == 0);
        CHECK(pthread_join(threads[2], NULL) == 0);
    } else {
        wakes_all(NULL);
    }
    for (int i = 0; i < CT_WAITERS; i++) {
        CHECK(aco_join(tasks[i], NULL) == 0);
    }
    CHECK(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
    return NULL;
}

/* A lock as libraries write it. */
static uint32_t lock_word;
static int ct_inside;

static void lock_it(void)
{
    uint32_t free = 0;
    if (!__atomic_compare_exchange_n(&lock_word, &free, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        while (__atomic_exchange_n(&lock_word, 2, __ATOMIC_SEQ_CST) != 0) {
            futex(&lock_word, FUTEX_WAIT | PRIVATE, 2, NULL, NULL, 0);
        }
    }
}

static void unlock_it(void)
{
    if (__atomic_exchange_n(&lock_word, 0, __ATOMIC_SEQ_CST) == 2) {
        futex(&lock_word, FUTEX_WAKE | PRIVATE, 1, NULL, NULL, 0);
    }
}

static void *locks(void *arg)
{
    for (int i = 0; i < 50; i++) {
        lock_it();
        CHECK(++ct_inside == 1);
        (i % 4 == 0) ? (void)usleep(10) : (void)sched_yield();
        ct_inside--;
        unlock_it();
    }
    return arg;
}

static void *locks_with_threads(void *arg)
{
    void *(*fn)(void *) = locks;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, locks, NULL) == 0);
    }
    spawns_anywhere(&fn);
    CHECK(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
    return arg;
}

static void tasks_and_threads_wait_together(void **state)
{
    (void)state;
    run_tasks(waits_with_threads, NULL);
    run_tasks(waits_with_threads, &word);
    run_tasks_on(2, locks_with_threads, NULL);
}

/* ==== Shared memory ========================================================================== */

static uint32_t *maps(int fd)
{
    int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, fd, 0);
    CHECK(memory != MAP_FAILED);
    return (uint32_t *)memory;
}

/* Another process changes the word and wakes; the task and its thread do something else. */
static void *waits_for_a_child(void *arg)
{
    uint32_t *shared = maps(-1);
    int pipe_fds[2];
    char byte;
    CHECK(pipe(pipe_fds) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(read(pipe_fds[0], &byte, 1) != 1 || (*(volatile uint32_t *)shared = 1) != 1);
    }
    aco_task_t *writer = aco_spawn(waits_until, NULL); /* runs meanwhile */
    aco_sleep(3 * MS);
    CHECK(write(pipe_fds[1], "x", 1) == 1);
    while (__atomic_load_n(shared, __ATOMIC_SEQ_CST) == 0) {
        CHECK(futex(shared, FUTEX_WAIT, 0, NULL, NULL, 0) == 0 || errno == EAGAIN);
    }
    CHECK(aco_join(writer, NULL) == 0 && waitpid(pid, NULL, 0) == pid);
    CHECK(munmap(shared, 4096) == 0 && close(pipe_fds[0]) == 0 && close(pipe_fds[1]) == 0);
    return arg;
}

static uint32_t *views[2];

static void *changes_other_view(void *arg)
{
    aco_sleep(5 * MS);
    __atomic_store_n(views[1], 1, __ATOMIC_SEQ_CST);
    futex(views[1], FUTEX_WAKE, 1, NULL, NULL, 0);
    return arg;
}

static void *waits_at_one_address(void *arg)
{
    int fd = (int)syscall(SYS_memfd_create, "futex", 0);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
    views[0] = maps(fd);
    views[1] = maps(fd);
    CHECK(aco_go(changes_other_view, NULL) == 0);
    CHECK(futex(views[0], FUTEX_WAIT, 0, NULL, NULL, 0) == 0);
    CHECK(*views[0] == 1);
    CHECK(munmap(views[0], 4096) == 0 && munmap(views[1], 4096) == 0 && close(fd) == 0);
    return arg;
}

static void shared_words_are_looked_at(void **state)
{
    (void)state;
    run_tasks(waits_for_a_child, NULL);
    run_tasks(waits_at_one_address, NULL);
}

/* ==== As the kernel ========================================================================== */

typedef struct {
    long result;
    int error;
} answer_t;

static answer_t answers[2][32];

/* Calls that must not wait, with right and wrong arguments. */
static void *asks(void *answers_of_one)
{
    answer_t *answer = (answer_t *)answers_of_one;
    static const struct timespec none = {0, 0}, wrong = {0, -1}, early = {-1, 0};
    char *odd = (char *)&word + 1;
    void *nowhere = (void *)(uintptr_t)16;
    int fd = open("/dev/null", O_RDWR);
    struct pollfd polled = {fd, POLLIN, 0};
    uint64_t set = 0;
#define ASK(...)                                                                                   \
    errno = 0;                                                                                     \
    answer->result = syscall(__VA_ARGS__);                                                         \
    answer->error = errno;                                                                         \
    answer++
    ASK(SYS_futex, odd, FUTEX_WAIT, 0, NULL, NULL, 0);
    ASK(SYS_futex, odd, FUTEX_WAKE, 1, NULL, NULL, 0);
    ASK(SYS_futex, nowhere, FUTEX_WAIT | PRIVATE, 0, NULL, NULL, 0);
    ASK(SYS_futex, nowhere, FUTEX_WAKE, 1, NULL, NULL, 0);
    ASK(SYS_futex, &word, FUTEX_WAIT_BITSET, 0, &none, NULL, 0);
    ASK(SYS_futex, &word, FUTEX_WAKE_BITSET, 1, NULL, NULL, 0);
    ASK(SYS_futex, &word, FUTEX_WAIT, 0, &wrong, NULL, 0);
    ASK(SYS_futex, &word, FUTEX_WAIT, 1, &wrong, NULL, 0);
    ASK(SYS_futex, &word, FUTEX_WAIT_BITSET, 0, &early, NULL, 1);
    ASK(SYS_futex, &word, FUTEX_WAIT, 1, &none, NULL, 0);
    ASK(SYS_futex, &word, FUTEX_WAIT, 0, &none, NULL, 0);
    ASK(SYS_futex, &word, FUTEX_WAIT | FUTEX_CLOCK_REALTIME, 0, &none, NULL, 0);
    ASK(SYS_futex, &word, FUTEX_CMP_REQUEUE, 1, (void *)1, &second, 1);
    ASK(SYS_futex, &word, FUTEX_CMP_REQUEUE, -1, (void *)1, &second, 0);
    ASK(SYS_futex, &word, FUTEX_REQUEUE, 1, (void *)-1, &second, 0);
    ASK(SYS_futex, &word, 99, 0, NULL, NULL, 0);
    ASK(SYS_read, -1, &set, 1);
    ASK(SYS_write, fd, "x", 1);
    ASK(SYS_ppoll, &polled, 1, &none, &set, 8);
    ASK(SYS_ppoll, &polled, 1, &none, &set, 7);
    ASK(SYS_ppoll, &polled, 1, &wrong, NULL, 8);
    ASK(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &wrong, NULL);
    ASK(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &none, NULL);
    ASK(SYS_nanosleep, &none, NULL);
    ASK(SYS_close, 12345);
    ASK(123456);
#ifdef __x86_64__
    void *memory = (void *)syscall(SYS_mmap, NULL, 4096L, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS,
                                   -1L, 0L); /* six arguments */
    CHECK(memory != MAP_FAILED && munmap(memory, 4096) == 0);
#endif
    close(fd);
    return NULL;
}

static void calls_answer_as_the_kernel(void **state)
{
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, asks, answers[0]), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    run_tasks(asks, answers[1]);
    for (size_t i = 0; i < ARRAY_SZ(answers[0]); i++) {
        if (memcmp(&answers[0][i], &answers[1][i], sizeof(answer_t)) != 0) {
            fail_msg("call %zu: thread %ld, errno %d; task %ld, errno %d", i, answers[0][i].result,
                     answers[0][i].error, answers[1][i].result, answers[1][i].error);
        }
    }
}

/* ==== Other calls ============================================================================ */

static int ends[2];

static void *writes(void *arg)
{
    let_run();
    CHECK(syscall(SYS_write, ends[1], "abc", 3L) == 3);
    return arg;
}

static void *calls(void *arg)
{
    char bytes[4];
    struct timespec t = {3600, 0};
    long mask[2] = {0, 0};
    CHECK(pipe(ends) == 0);
    struct pollfd polled = {ends[0], POLLIN, 0};
    CHECK(aco_go(writes, NULL) == 0);
    CHECK(syscall(SYS_ppoll, &polled, 1L, &t, NULL, 8L) == 1);
    CHECK(t.tv_sec < 3600 && t.tv_sec > 0);
    CHECK(syscall(SYS_read, ends[0], bytes, 2L) == 2);
    CHECK(syscall(SYS_read, ends[0], bytes, 2L) == 1);
    CHECK(aco_go(writes, NULL) == 0);
    CHECK(syscall(SYS_read, ends[0], bytes, 4L) == 3);
    t = (struct timespec){0, MS};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    CHECK(syscall(SYS_pselect6, ends[0] + 1, &set, NULL, NULL, &t, mask) == 0);
    CHECK(t.tv_sec == 0 && t.tv_nsec == 0 && !FD_ISSET(ends[0], &set));
    t = (struct timespec){0, MS};
    CHECK(syscall(SYS_pselect6, 0, NULL, NULL, NULL, &t, NULL) == 0);
    CHECK(aco_go(writes, NULL) == 0);
    CHECK(syscall(SYS_ppoll, &polled, 1L, NULL, NULL, 8L) == 1);
    CHECK(syscall(SYS_read, ends[0], bytes, 4L) == 3);
#ifdef SYS_poll
    CHECK(aco_go(writes, NULL) == 0);
    CHECK(syscall(SYS_poll, &polled, 1L, -1) == 1);
#endif
    CHECK(syscall(SYS_close, ends[0]) == 0 && syscall(SYS_close, ends[1]) == 0);
    return arg;
}

static void other_calls_wait_as_tasks(void **state)
{
    (void)state;
    run_tasks(calls, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wakes_reach_tasks),
        cmocka_unit_test(bits_choose_and_requeues_move),
        cmocka_unit_test(waits_end_in_time),
        cmocka_unit_test(tasks_and_threads_wait_together),
        cmocka_unit_test(shared_words_are_looked_at),
        cmocka_unit_test(calls_answer_as_the_kernel),
        cmocka_unit_test(other_calls_wait_as_tasks),
    };
    alarm(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
