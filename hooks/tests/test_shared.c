// SPDX-License-Identifier: Apache-2.0
// not stress: tasks use what lies on the stack of another one, which moves there
// build: -lstdc++
/* Conditions and semaphores that processes share, spin locks, static variables of C++ functions:
 * two tasks of a thread wait for each other, and for other processes. Children of which libc's
 * handlers of fork() do not learn; ends of threads; jumps. */
#include "threads.h"

#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>

/* In shared memory. */
typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    sem_t semaphores[2];
    int turn, ct_turns;
} shared_t;

static shared_t *shared;

enum { CT_TURNS = 10 };

static void begin_shared(int type)
{
    pthread_mutexattr_t mutex;
    pthread_condattr_t cond;
    shared = (shared_t *)mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, type);
    assert_int_equal(pthread_mutex_init(&shared->mutex, &mutex), 0);
    pthread_condattr_init(&cond);
    pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
    assert_int_equal(pthread_cond_init(&shared->cond, &cond), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sem_init(&shared->semaphores[i], 1, 0), 0);
    }
}

static void end_shared(void)
{
    assert_int_equal(pthread_cond_destroy(&shared->cond), 0);
    assert_int_equal(pthread_mutex_destroy(&shared->mutex), 0);
    assert_int_equal(munmap(shared, sizeof(*shared)), 0);
}

/* ==== Conditions ============================================================================= */

static void *takes_turns(void *arg)
{
    int mine = arg != NULL;
    CHECK(pthread_mutex_lock(&shared->mutex) == 0);
    for (int i = 0; i < CT_TURNS; i++) {
        while (shared->turn != mine) {
            CHECK(pthread_cond_wait(&shared->cond, &shared->mutex) == 0);
        }
        shared->turn = !mine;
        shared->ct_turns++;
        CHECK(pthread_cond_broadcast(&shared->cond) == 0);
    }
    CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    return NULL;
}

static void *take_turns(void *arg)
{
    aco_task_t *other = aco_spawn(takes_turns, shared);
    takes_turns(arg);
    CHECK(aco_join(other, NULL) == 0);
    CHECK(shared->ct_turns == 2 * CT_TURNS);
    return NULL;
}

static void *take_turns_with_a_child(void *arg)
{
    pid_t pid = fork();
    if (pid == 0) {
        takes_turns(shared);
        _exit(ct_failed);
    }
    int status = -1;
    takes_turns(arg);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    return NULL;
}

static void *waits_in_vain(void *arg)
{
    CHECK(pthread_mutex_lock(&shared->mutex) == 0);
    CHECK(pthread_cond_wait(&shared->cond, &shared->mutex) == ECANCELED);
    CHECK(pthread_mutex_trylock(&shared->mutex) == EBUSY);
    CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    return arg;
}

static void *gives_up(void *arg)
{
    struct timespec soon = in(CLOCK_REALTIME, MS), past = {1, 0}, wrong = {1, -1};
    aco_task_t *waiting = aco_spawn(waits_in_vain, NULL);
    CHECK(pthread_mutex_lock(&shared->mutex) == 0);
    CHECK(pthread_cond_timedwait(&shared->cond, &shared->mutex, &past) == ETIMEDOUT);
    CHECK(pthread_cond_timedwait(&shared->cond, &shared->mutex, &soon) == ETIMEDOUT);
    CHECK(has_come(CLOCK_REALTIME, &soon));
    CHECK(pthread_cond_timedwait(&shared->cond, &shared->mutex, &wrong) == EINVAL);
    aco_within(MS)
    {
        CHECK(pthread_cond_wait(&shared->cond, &shared->mutex) == ETIMEDOUT);
    }
    CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    aco_task_cancel(waiting);
    CHECK(aco_join(waiting, NULL) == 0);
    return arg;
}

static void shared_conditions_wake_tasks(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* TSan takes the thread that waits for a task for another owner of the mutex */
#endif
    for (int type = PTHREAD_PROCESS_PRIVATE; type <= PTHREAD_PROCESS_SHARED; type++) {
        begin_shared(type);
        run_tasks(take_turns, NULL);
        if (type == PTHREAD_PROCESS_SHARED) {
            run_tasks(take_turns_with_a_child, NULL);
        }
        run_tasks(gives_up, NULL);
        end_shared();
    }
}

/* ==== Semaphores ============================================================================= */

static sem_t *pair[2];

static void *plays(void *arg)
{
    int mine = arg != NULL;
    for (int i = 0; i < CT_TURNS; i++) {
        CHECK(sem_post(pair[!mine]) == 0);
        CHECK(sem_wait(pair[mine]) == 0);
    }
    return NULL;
}

static void *play(void *arg)
{
    aco_task_t *other = aco_spawn(plays, pair);
    plays(arg);
    CHECK(aco_join(other, NULL) == 0);
    return NULL;
}

static void *play_with_a_child(void *arg)
{
    struct timespec past = {1, 0};
    pid_t pid = fork();
    if (pid == 0) {
        plays(pair);
        _exit(ct_failed);
    }
    int status = -1;
    plays(arg);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK_FAILS(sem_timedwait(pair[0], &past), ETIMEDOUT);
    return NULL;
}

static void shared_semaphores_wake_tasks(void **state)
{
    (void)state;
    begin_shared(PTHREAD_PROCESS_SHARED);
    for (int i = 0; i < 2; i++) {
        pair[i] = &shared->semaphores[i];
    }
    run_tasks(play, NULL);
    run_tasks(play_with_a_child, NULL);
    end_shared();
    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof(name), "/aco_test_%d", (int)getpid());
        pair[i] = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
        assert_true(pair[i] != SEM_FAILED);
        sem_unlink(name);
    }
    run_tasks(play, NULL);
    run_tasks(play_with_a_child, NULL);
    for (int i = 0; i < 2; i++) {
        sem_close(pair[i]);
    }
}

/* ==== Spin locks ============================================================================= */

static pthread_spinlock_t spin;
static int ct_inside;

static void *holds_spin(void *arg)
{
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_spin_lock(&spin) == 0);
        CHECK(++ct_inside == 1);
        CHECK(pthread_spin_trylock(&spin) == EBUSY);
        aco_sleep(MS / 10);
        ct_inside--;
        CHECK(pthread_spin_unlock(&spin) == 0);
    }
    return arg;
}

static void spin_locks_are_held_over_waits(void **state)
{
    void *(*fn)(void *) = holds_spin;
    (void)state;
    pthread_spin_init(&spin, 0);
    run_tasks(spawns_anywhere, &fn);
    run_tasks_on(2, spawns_anywhere, &fn);
    pthread_spin_destroy(&spin);
}

/* ==== Static variables of C++ functions ====================================================== */

int __cxa_guard_acquire(uint64_t *guard);
void __cxa_guard_release(uint64_t *guard);
void __cxa_guard_abort(uint64_t *guard);

static uint64_t guard;
static int ct_made, ct_given_up;

/* As compilers make it of a static variable whose constructor waits and first throws. */
static void *needs_variable(void *arg)
{
    while (__atomic_load_n((char *)&guard, __ATOMIC_ACQUIRE) == 0 && __cxa_guard_acquire(&guard)) {
        CHECK(++ct_inside == 1);
        aco_sleep(MS);
        ct_inside--;
        if (ct_given_up++ == 0) {
            __cxa_guard_abort(&guard);
            return arg;
        }
        ct_made++;
        __cxa_guard_release(&guard);
    }
    CHECK(ct_made == 1);
    return arg;
}

static void static_variables_are_made_once(void **state)
{
    void *(*fn)(void *) = needs_variable;
    (void)state;
    for (int ct_threads = 1; ct_threads <= 2; ct_threads++) {
        guard = 0;
        ct_made = ct_given_up = 0;
        run_tasks_on(ct_threads, spawns_anywhere, &fn);
    }
}

static int has_begun;

static void *needs_made_variable(void *arg)
{
    __atomic_store_n(&has_begun, 1, __ATOMIC_SEQ_CST);
    CHECK(__cxa_guard_acquire(&guard) == 0);
    CHECK(ct_made == 1);
    return arg;
}

static void *makes_variable(void *arg)
{
    pthread_t thread;
    CHECK(__cxa_guard_acquire(&guard) == 1);
    CHECK(pthread_create(&thread, NULL, needs_made_variable, NULL) == 0);
    while (!__atomic_load_n(&has_begun, __ATOMIC_SEQ_CST)) {
        aco_yield();
    }
    aco_sleep(2 * MS);
    ct_made++;
    __cxa_guard_release(&guard);
    CHECK(pthread_join(thread, NULL) == 0);
    return arg;
}

static void a_thread_waits_for_a_variable_that_a_task_makes(void **state)
{
    (void)state;
    guard = 0;
    ct_made = 0;
    run_tasks(makes_variable, NULL);
}

/* ==== Exceptions ============================================================================= */

/* As C++ runtimes have it for each thread. */
typedef struct {
    void *caught;
    unsigned ct_uncaught;
} exceptions_t;

exceptions_t *__cxa_get_globals(void);

/* As in a catch block: other tasks see no exception, and it is still there afterwards. */
static void *yields_in_catch_block(void *exception)
{
    exceptions_t *mine = __cxa_get_globals();
    CHECK(mine->caught == NULL && mine->ct_uncaught == 0);
    *mine = (exceptions_t){exception, 1};
    for (int i = 0; i < 3; i++) {
        CHECK(sched_yield() == 0);
        CHECK(mine->caught == exception && mine->ct_uncaught == 1);
    }
    *mine = (exceptions_t){NULL, 0};
    return NULL;
}

static void *yields_beside_another(void *arg)
{
    aco_task_t *other = aco_spawn(yields_in_catch_block, &ct_made);
    yields_in_catch_block(arg);
    CHECK(aco_join(other, NULL) == 0);
    return NULL;
}

static void exceptions_are_the_tasks_over_a_yield(void **state)
{
    (void)state;
    run_tasks(yields_beside_another, &guard);
}

/* ==== Children =============================================================================== */

static volatile int ct_ticks;

static void *ticks(void *arg)
{
    while (aco_sleep(MS / 10) == 0) {
        ct_ticks++;
    }
    return arg;
}

/* Returns whether no task of the parent runs. */
static int is_alone(void)
{
    int before = ct_ticks;
    usleep(3000);
    return ct_ticks == before && aco_self() == NULL;
}

static pid_t makes_child(int way)
{
    switch (way) {
    case 0:
        return _Fork();
    case 1:
        return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    case 2:
        if (syscall(SYS_clone3, NULL, 0) < 0 && errno == EINVAL) { /* it may be forbidden */
            uint64_t arguments[8] = {[4] = SIGCHLD};
            return (pid_t)syscall(SYS_clone3, arguments, sizeof(arguments));
        }
        return fork();
    default:
#ifdef SYS_fork
        return (pid_t)syscall(SYS_fork);
#else
        return fork();
#endif
    }
}

static void *makes_children(void *arg)
{
    aco_task_t *ticker = aco_spawn(ticks, NULL);
    usleep(1000);
    for (int way = 0; way < 4; way++) {
        pid_t pid = makes_child(way);
        if (pid == 0) {
            _exit(is_alone() ? 0 : 1);
        }
        int status = -1;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        int before = ct_ticks;
        usleep(2000);
        CHECK(ct_ticks != before);
    }
    aco_task_cancel(ticker);
    CHECK(aco_join(ticker, NULL) == 0);
    return arg;
}

static void children_are_alone(void **state)
{
    (void)state;
    run_tasks(makes_children, NULL);
}

/* ==== Ends of threads ======================================================================== */

static volatile int ct_read, ct_runs, ct_cleanups;
static int is_asked_to_end; /* atomic */

static void *reads_three(void *arg)
{
    int fds[2];
    char byte;
    CHECK(pipe(fds) == 0);
    while (__atomic_add_fetch(&ct_read, 1, __ATOMIC_SEQ_CST) < 3) {
        CHECK(write(fds[1], "x", 1) == 1 && read(fds[0], &byte, 1) == 1);
        while (!__atomic_load_n(&is_asked_to_end, __ATOMIC_ACQUIRE)) {
            aco_sleep(MS);
        }
    }
    CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
    return arg;
}

static void clean_up(void *arg)
{
    (void)arg;
    ct_cleanups++;
}

static void *runs_tasks(void *arg)
{
    pthread_cleanup_push(clean_up, NULL);
    CHECK(aco_run(NULL, reads_three, NULL, NULL) == 0);
    ct_runs++;
    pthread_testcancel();
    pthread_cleanup_pop(0);
    return arg;
}

static void a_cancelled_thread_ends_behind_its_tasks(void **state)
{
    pthread_t thread;
    void *result = NULL;
    (void)state;
    ct_failed = 0;
    assert_int_equal(pthread_create(&thread, NULL, runs_tasks, NULL), 0);
    while (__atomic_load_n(&ct_read, __ATOMIC_SEQ_CST) == 0) {
        usleep(100);
    }
    assert_int_equal(pthread_cancel(thread), 0);
    __atomic_store_n(&is_asked_to_end, 1, __ATOMIC_RELEASE);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    assert_int_equal(ct_read, 3);
    assert_int_equal(ct_runs, 1);
    assert_int_equal(ct_cleanups, 1);
    assert_int_equal(ct_failed, 0);
}

/* ==== Misuse ================================================================================= */

static sigjmp_buf before_wait;

static void jump(int number)
{
    siglongjmp(before_wait, number);
}

/* On a busy machine, the signal may come before the task waits: then it jumps, and tries again. */
static void *jumps(void *arg)
{
    static useconds_t after = 1000;
    signal(SIGALRM, jump);
    if (sigsetjmp(before_wait, 1) == 0 || after < 500000) {
        after *= 2;
        ualarm(after, 0);
        pause();
    }
    return arg;
}

static void *ends_thread(void *arg)
{
    pthread_exit(arg);
}

static void *ends_thread_of_c11(void *arg)
{
    (void)arg;
    thrd_exit(0);
}

/* Runs a task in a child, which must abort and write a line with these words. */
static void dies(void *(*fn)(void *), const char *words)
{
    int fds[2], status = 0;
    static char text[2000];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(fds[1], 2);
        _exit(aco_run(NULL, fn, NULL, NULL));
    }
    close(fds[1]);
    ssize_t sz = read(fds[0], text, sizeof(text) - 1);
    text[sz < 0 ? 0 : sz] = '\0';
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, words));
    close(fds[0]);
}

static void misuse_ends_in_a_line(void **state)
{
    (void)state;
    dies(ends_thread, "pthread_exit: a task does not end its thread: return from its function");
    dies(ends_thread_of_c11, "thrd_exit: a task does not end");
    dies(jumps, "siglongjmp: a signal handler jumps into a task that waits");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(static_variables_are_made_once), /* while there is one thread */
        cmocka_unit_test(a_thread_waits_for_a_variable_that_a_task_makes),
        cmocka_unit_test(shared_conditions_wake_tasks),
        cmocka_unit_test(shared_semaphores_wake_tasks),
        cmocka_unit_test(spin_locks_are_held_over_waits),
        cmocka_unit_test(exceptions_are_the_tasks_over_a_yield),
        cmocka_unit_test(children_are_alone),
        cmocka_unit_test(a_cancelled_thread_ends_behind_its_tasks),
        cmocka_unit_test(misuse_ends_in_a_line),
    };
    alarm(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
