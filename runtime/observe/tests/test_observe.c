// SPDX-License-Identifier: Apache-2.0
/* Reports about tasks, seen from outside of them. */
#define _GNU_SOURCE
#include "tasks.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char text[1 << 20];

static void print_to_text(void (*print)(FILE *))
{
    FILE *stream = fmemopen(text, sizeof(text), "w");
    print(stream);
    fclose(stream);
}

/* ==== Numbers ================================================================================ */

/* The value in the line with this name; -1 if there is none. */
static double number_of(const char *name)
{
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ' ') {
            return strtod(line + strlen(name), NULL);
        }
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return -1;
}

/* Checks a histogram: no bucket has less than the one before, and the last has all. */
static void check_histogram(const char *name)
{
    char prefix[64], count[64];
    double before = 0;
    int ct = 0;
    snprintf(prefix, sizeof(prefix), "%s_bucket{le=\"", name);
    snprintf(count, sizeof(count), "%s_count", name);
    for (const char *line = text; (line = strstr(line, prefix)) != NULL; ct++) {
        double now = strtod(strchr(line, ' '), NULL);
        CHECK(now >= before);
        before = now;
        line += strlen(prefix);
    }
    CHECK(ct == 25 && before == number_of(count));
}

static void *sleeps(void *arg)
{
    CHECK(aco_sleep(MS) == 0);
    return arg;
}

static void *parks(void *arg)
{
    CHECK(aco_park() == 0);
    return arg;
}

static void spin(int64_t ns)
{
    for (int64_t end = aco_now() + ns; aco_now() < end;) {
    }
}

static void *counts(void *arg)
{
    aco_task_t *parked = aco_spawn(parks, NULL), *other = aco_spawn(parks, NULL);
    sleeps(NULL);
    spin(20 * MS);
    sleeps(NULL);
    aco_go(sleeps, NULL);
    print_to_text(aco_print_metrics);
    CHECK(number_of("aco_tasks") == 4);
    CHECK(number_of("aco_tasks_ready") == 1);
    CHECK(number_of("aco_tasks_running") == 1);
    CHECK(number_of("aco_tasks_waiting{for=\"aco_unpark\"}") == 2);
    CHECK(number_of("aco_stacks_bytes") >= 3 * 4096);
    check_histogram("aco_turn_seconds");
    check_histogram("aco_wake_seconds");
    double ct = number_of("aco_turn_seconds_count");
    CHECK(number_of("aco_turn_seconds_bucket{le=\"0.016777216\"}") <= ct - 1);
    CHECK(number_of("aco_turn_seconds_sum") >= 0.02);
    CHECK(number_of("aco_wake_seconds_count") >= 1);
    CHECK(number_of("aco_wake_seconds_count") < number_of("aco_wakes_total"));
    aco_unpark(parked);
    aco_unpark(other);
    CHECK(aco_join(parked, NULL) == 0 && aco_join(other, NULL) == 0);
    return arg;
}

static void numbers_are_told(void **state)
{
    (void)state;
    run_tasks(counts, NULL);
}

/* A task is woken behind another one that computes, and its delay is counted. */
static void *spins_twice(void *arg)
{
    CHECK(aco_sleep(30 * MS) == 0);
    spin(20 * MS);
    return arg;
}

static void *is_late(void *arg)
{
    aco_task_t *one = aco_spawn(spins_twice, NULL), *two = aco_spawn(spins_twice, NULL);
    aco_yield();
    spin(40 * MS); /* both are due at the next look */
    CHECK(aco_join(one, NULL) == 0 && aco_join(two, NULL) == 0);
    print_to_text(aco_print_metrics);
    double ct = number_of("aco_wake_seconds_count");
    CHECK(ct >= 1 && number_of("aco_wake_seconds_bucket{le=\"0.016777216\"}") <= ct - 1);
    return arg;
}

static void delays_are_sampled(void **state)
{
    (void)state;
    run_tasks(is_late, NULL);
}

/* ==== Names ================================================================================== */

static void *is_named_badly(void *arg)
{
    const char *escaped = "\"\\x1b[31m\\\"\\x0atask 99 \\\"boss\\\\\\x7f\": waits for ";
    aco_task_options_t options = {.name = "\033[31m\"\ntask 99 \"boss\\\177"};
    aco_task_t *task = NULL;
    CHECK(aco_go_with(&options, parks, NULL, &task) == 0);
    aco_yield();
    print_to_text(aco_print_tasks);
    CHECK(strstr(text, "\ntask 99") == NULL && strstr(text, escaped) != NULL);
    aco_unpark(task);
    CHECK(aco_join(task, NULL) == 0);
    return arg;
}

static void a_name_stays_in_its_line(void **state)
{
    (void)state;
    run_tasks(is_named_badly, NULL);
}

/* ==== Times ================================================================================== */

static int has_list; /* atomic */

/* The list waits a second for this task. */
static void *answers_nothing(void *arg)
{
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGURG);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    while (!__atomic_load_n(&has_list, __ATOMIC_RELAXED)) {
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return arg;
}

/* The list reaches this task later, when its wait is younger than the list. */
static void *sleeps_often(void *arg)
{
    while (!__atomic_load_n(&has_list, __ATOMIC_RELAXED)) {
        CHECK(aco_sleep(10 * MS) == 0);
    }
    return arg;
}

static void *lists(void *arg)
{
    print_to_text(aco_print_tasks);
    __atomic_store_n(&has_list, 1, __ATOMIC_RELAXED);
    return arg;
}

static void *lists_meanwhile(void *arg)
{
    aco_task_options_t on_one = {.thread = ACO_THREAD(1)}, on_two = {.thread = ACO_THREAD(2)};
    CHECK(aco_go_with(&on_one, answers_nothing, NULL, NULL) == 0);
    CHECK(aco_go(sleeps_often, NULL) == 0);
    CHECK(aco_sleep(50 * MS) == 0);
    aco_within(-500 * MS)
    {
        CHECK(aco_go_with(&on_two, lists, NULL, NULL) == 0);
        spin(MS);
        while (!__atomic_load_n(&has_list, __ATOMIC_RELAXED)) {
            aco_yield();
        }
    }
    return arg;
}

static void times_are_not_negative(void **state)
{
    (void)state;
    run_tasks_on(3, lists_meanwhile, NULL);
    assert_null(strstr(text, " -"));
    assert_non_null(strstr(text, "waits for a time since 0."));
    assert_non_null(strstr(text, " s ago"));
}

/* ==== Runtimes =============================================================================== */

/* Counts that remain when a runtime has ended. */
static const char *const totals[] = {
    "aco_tasks_started_total", "aco_switches_total",     "aco_wakes_total",     "aco_polls_total",
    "aco_offloads_total",      "aco_turn_seconds_count", "aco_turn_seconds_sum"};

static void *does_little(void *arg)
{
    CHECK(aco_offload(sleeps, arg) == arg);
    CHECK(aco_sleep(MS) == 0);
    return arg;
}

static void counts_never_fall(void **state)
{
    double before[ARRAY_SZ(totals)];
    int ct_runs = 3;
    (void)state;
    for (int run = 0; run < ct_runs; run++) {
        print_to_text(aco_print_metrics);
        for (size_t i = 0; i < ARRAY_SZ(totals); i++) {
            before[i] = number_of(totals[i]);
        }
        run_tasks_on(1 + run, does_little, NULL);
        print_to_text(aco_print_metrics);
        for (size_t i = 0; i < ARRAY_SZ(totals); i++) {
            assert_true(number_of(totals[i]) > before[i]);
        }
        assert_true(number_of(totals[0]) == before[0] + 1);
    }
}

/* ==== Many runtimes ========================================================================== */

#define CT_RUNTIMES 100
static pthread_barrier_t all_run, all_end;

static void *waits_for_all(void *arg)
{
    pthread_barrier_wait(&all_run);
    pthread_barrier_wait(&all_end);
    return arg;
}

static void *runs(void *arg)
{
    CHECK(aco_run(NULL, waits_for_all, arg, NULL) == 0);
    return arg;
}

static void all_runtimes_are_listed(void **state)
{
    pthread_t threads[CT_RUNTIMES];
    (void)state;
    pthread_barrier_init(&all_run, NULL, CT_RUNTIMES + 1);
    pthread_barrier_init(&all_end, NULL, CT_RUNTIMES + 1);
    for (int i = 0; i < CT_RUNTIMES; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, runs, NULL), 0);
    }
    pthread_barrier_wait(&all_run);
    print_to_text(aco_print_metrics);
    double ct = number_of("aco_tasks"), ct_listed = 0;
    print_to_text(aco_print_tasks);
    for (const char *line = text; (line = strstr(line, "task ")) != NULL; line++) {
        ct_listed += line == text || line[-1] == '\n';
    }
    for (const char *line = text; (line = strstr(line, "    and ")) != NULL; line++) {
        ct_listed += strstr(line, " like it") != NULL ? strtod(line + 8, NULL) : 0;
    }
    pthread_barrier_wait(&all_end);
    for (int i = 0; i < CT_RUNTIMES; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_true(ct == CT_RUNTIMES);
    assert_true(ct_listed == CT_RUNTIMES);
    assert_null(strstr(text, "no memory"));
}

/* TSan has no threads in children of threaded processes. */
#ifdef ACO_USE_TSAN
#define SKIP_FOR_TSAN() skip()
#else
#define SKIP_FOR_TSAN() (void)0
#endif

/* ==== Lists on a signal ====================================================================== */

#define PATIENCE 30000 /* ms */

/* Whether the list comes on stderr, which is a file, after a signal. */
static void *is_listed(void *arg)
{
    int fd = *(int *)arg;
    raise(SIGUSR1);
    for (int i = 0; i < PATIENCE && strstr(text, "task ") == NULL; i++) {
        aco_sleep(MS);
        CHECK(pread(fd, text, sizeof(text) - 1, 0) >= 0);
    }
    CHECK(strstr(text, "task ") != NULL);
    return NULL;
}

static int lists_in_child(int closes_all)
{
    char path[] = "/tmp/aco_child_XXXXXX";
    int fd;
    for (int i = STDERR_FILENO + 1; closes_all && i < 1024; i++) {
        close(i);
    }
    fd = mkstemp(path);
    unlink(path);
    dup2(fd, STDERR_FILENO);
    text[0] = '\0';
    return aco_run(NULL, is_listed, &fd, NULL) == 0 && ct_failed == 0 ? 0 : 1;
}

/* A child prints its own tasks, not its parent's. */
static void children_list_their_tasks(void **state)
{
    (void)state;
    SKIP_FOR_TSAN();
    ct_failed = 0;
    assert_int_equal(aco_print_tasks_on(SIGUSR1), 0);
    for (int closes_all = 0; closes_all < 2; closes_all++) {
        int status = -1;
        pid_t pid = fork();
        if (pid == 0) {
            _exit(lists_in_child(closes_all));
        }
        assert_true(waitpid(pid, &status, 0) == pid && status == 0);
    }
}

/* The thread that prints does not depend on descriptors that the program may close. */
static void descriptors_may_be_closed(void **state)
{
    int status = -1;
    (void)state;
    ct_failed = 0;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(aco_print_tasks_on(SIGUSR1) == 0 ? lists_in_child(1) : 2);
    }
    assert_true(waitpid(pid, &status, 0) == pid && status == 0);
}

static void exits_with_7(int signal)
{
    (void)signal;
    _exit(7);
}

#define SMALL_SZ ((size_t)8192)
#define PAGE_SZ ((size_t)4096)

/* Sets a stack for handlers that is too small for a list, behind a page that must not be
 * touched. */
static void set_small_stack(void)
{
    char *memory = (char *)mmap(NULL, PAGE_SZ + SMALL_SZ, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
                                -1, 0);
    stack_t stack = {.ss_sp = memory + PAGE_SZ, .ss_size = SMALL_SZ};
    CHECK(mprotect(memory + PAGE_SZ, SMALL_SZ, PROT_READ | PROT_WRITE) == 0);
    CHECK(sigaltstack(&stack, NULL) == 0);
}

enum { LARGE_STACK, SMALL_BEFORE, SMALL_IN_TASK };
static int which_stack;

static void *raises(void *arg)
{
    if (which_stack == SMALL_IN_TASK) {
        set_small_stack();
    }
    raise(*(int *)arg);
    return NULL;
}

/* The status of a child that a signal ends: the former action follows the list. */
static int status_after(int signal_number, void (*handler)(int))
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        close(STDERR_FILENO);
        signal(signal_number, handler);
        aco_print_tasks_on(signal_number);
        if (which_stack == SMALL_BEFORE) {
            set_small_stack();
        }
        aco_run(NULL, raises, &signal_number, NULL);
        _exit(0);
    }
    return waitpid(pid, &status, 0) == pid ? status : -1;
}

static void former_handlers_are_called(void **state)
{
    (void)state;
    SKIP_FOR_TSAN();
    int status = status_after(SIGBUS, exits_with_7);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    status = status_after(SIGABRT, SIG_IGN);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    status = status_after(SIGABRT, SIG_DFL);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void small_stacks_for_handlers_are_enough(void **state)
{
    (void)state;
    SKIP_FOR_TSAN();
    for (which_stack = SMALL_BEFORE; which_stack <= SMALL_IN_TASK; which_stack++) {
        int status = status_after(SIGBUS, exits_with_7);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    which_stack = LARGE_STACK;
}

/* ==== Lists ================================================================================== */

static void *sleeps_until_cancelled(void *arg)
{
    CHECK_FAILS(aco_sleep(1000000 * MS), ECANCELED);
    return arg;
}

/* The bytes of stack in the line of a task; 0: none are shown. */
static size_t stack_use_of(const char *list, const char *name)
{
    const char *line = strstr(list, name), *end = line != NULL ? strchr(line, '\n') : NULL;
    const char *unit = line != NULL ? strstr(line, " bytes of stack") : NULL;
    if (unit == NULL || end < unit) {
        return 0;
    }
    while (unit[-1] != ' ') {
        unit--;
    }
    return strtoul(unit, NULL, 10);
}

static void *is_printed(void *arg)
{
    aco_task_options_t options = {.name = "sleeper"};
    aco_stats_t before, stats;
    volatile char frame[4096] = "";
    aco_stats(&before);
    CHECK(aco_go_with(&options, sleeps, NULL, NULL) == 0);
    aco_yield();
    print_to_text(aco_print_tasks);
    CHECK(strstr(text, "\"sleeper\": waits for a time since") != NULL);
    CHECK(strstr(text, "\"is_printed\": running") != NULL);
    size_t used = stack_use_of(text, "\"is_printed\"");
    CHECK(used > sizeof(frame) && used < 65536);
    used = stack_use_of(text, "\"sleeper\"");
    CHECK(used > 0 && used < sizeof(frame));
    aco_stats(&stats);
    CHECK(stats.ct_tasks == 2 && stats.ct_started == before.ct_started + 1 && stats.ct_timers == 1);
    CHECK(stats.stacks_sz >= 2 * (size_t)256 << 10);
    return arg;
}

static void *is_printed_on_a_signal(void *arg)
{
    char path[] = "/tmp/aco_tasks_XXXXXX";
    int fd = mkstemp(path), former = dup(STDERR_FILENO);
    unlink(path);
    aco_task_options_t options = {.name = "sleeper"};
    aco_task_t *sleeper = NULL;
    CHECK(aco_go_with(&options, sleeps_until_cancelled, NULL, &sleeper) == 0);
    aco_yield();
    CHECK(aco_print_tasks_on(SIGUSR1) == 0 && aco_print_tasks_on(SIGUSR2) == 0);
    dup2(fd, STDERR_FILENO);
    raise(SIGUSR2);
    const char *line = "\"sleeper\": waits for a time since";
    for (int i = 0; i < 5000 && strstr(text, line) == NULL; i++) {
        aco_sleep(MS);
        CHECK(pread(fd, text, sizeof(text) - 1, 0) >= 0);
    }
    dup2(former, STDERR_FILENO);
    CHECK(strstr(text, line) != NULL);
    aco_task_cancel(sleeper);
    CHECK(aco_join(sleeper, NULL) == 0);
    close(former);
    close(fd);
    return arg;
}

static void tasks_are_printed(void **state)
{
    (void)state;
    run_tasks(is_printed, NULL);
    run_tasks(is_printed_on_a_signal, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_told),
        cmocka_unit_test(delays_are_sampled),
        cmocka_unit_test(a_name_stays_in_its_line),
        cmocka_unit_test(times_are_not_negative),
        cmocka_unit_test(counts_never_fall),
        cmocka_unit_test(all_runtimes_are_listed),
        cmocka_unit_test(descriptors_may_be_closed),
        cmocka_unit_test(children_list_their_tasks),
        cmocka_unit_test(former_handlers_are_called),
        cmocka_unit_test(small_stacks_for_handlers_are_enough),
        cmocka_unit_test(tasks_are_printed),
    };
    return cmocka_run_group_tests_name("observe", tests, NULL, NULL);
}
