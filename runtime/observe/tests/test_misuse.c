// SPDX-License-Identifier: Apache-2.0
/* Misuse that is detected ends in one line on stderr, which names the call and the task, and
 * abort(). */
#include "aco_bindings.h"
#include "tasks.h"

#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static aco_chan_t *chan;
static int item;
static aco_mutex_t mutex;
static aco_rwlock_t rwlock;
static aco_cond_t cond;
static aco_once_t once;
static aco_i_watch_t watch;
static void *word;
static aco_reader_t reader;
static char *text;
static uint64_t position, beyond = 1;

static void calls_nothing(void)
{
}

static void *does_nothing(void *arg)
{
    return arg;
}

static void joins_twice(void)
{
    aco_task_t *task = aco_spawn(does_nothing, NULL);
    aco_join(task, NULL);
    aco_join(task, NULL);
}

static aco_task_t *left_task;
static aco_group_t *left_group;

static void *leaves_both(void *arg)
{
    left_task = aco_spawn(does_nothing, NULL);
    left_group = aco_group_new();
    return arg;
}

static void *sends(void *arg)
{
    aco_chan_send(chan, arg);
    return arg;
}

static void frees_under_wait(void)
{
    aco_go(sends, &item);
    aco_yield();
    aco_chan_free(chan);
}

static void goes_without_function(void)
{
    aco_task_options_t options = {.name = "x"};
    aco_go_with(&options, NULL, NULL, NULL);
}

static void *joins_group(void *group)
{
    aco_group_join((aco_group_t *)group);
    return NULL;
}

static void joins_its_own(void)
{
    aco_group_t *group = aco_group_new();
    aco_group_go(group, joins_group, group);
    aco_yield();
}

static void *joins_nothing(void *arg)
{
    aco_join(NULL, NULL);
    return arg;
}

static void has_a_bad_name(void)
{
    aco_task_options_t options = {.name = "x\naco: "};
    aco_go_with(&options, joins_nothing, NULL, NULL);
}

/* Objects on a stack that others use while the task waits. */
typedef enum {
    A_MUTEX,
    AN_RWLOCK_TO_READ,
    AN_RWLOCK,
    A_COND,
    ITS_MUTEX,
    A_SEMAPHORE,
    A_COUNT
} lent_t;

static void *locks_beside(void *locks)
{
    aco_mutex_lock(((void **)locks)[0]);
    aco_rwlock_write_lock(((void **)locks)[1]);
    return NULL;
}

static void *waits_for_lent(void *arg)
{
    aco_mutex_t its_mutex = {0};
    aco_rwlock_t its_rwlock = {0};
    aco_cond_t its_cond = {0};
    aco_semaphore_t semaphore = {0};
    aco_wait_group_t wait_group = {.ct = 1};
    void *locks[] = {&its_mutex, &its_rwlock};
    lent_t lent = (lent_t)(intptr_t)arg;
    aco_mutex_lock(lent == ITS_MUTEX ? &its_mutex : &mutex);
    if (lent <= AN_RWLOCK) { /* another owner locks them */
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, locks_beside, locks) == 0);
        pthread_join(thread, NULL);
    }
    switch (lent) {
    case A_MUTEX:
        aco_mutex_lock(&its_mutex);
        break;
    case AN_RWLOCK_TO_READ:
        aco_rwlock_read_lock(&its_rwlock);
        break;
    case AN_RWLOCK:
        aco_rwlock_write_lock(&its_rwlock);
        break;
    case A_COND:
        aco_cond_wait(&its_cond, &mutex);
        break;
    case ITS_MUTEX:
        aco_cond_wait(&cond, &its_mutex);
        break;
    case A_SEMAPHORE:
        aco_semaphore_acquire(&semaphore);
        break;
    case A_COUNT:
        aco_wait_group_wait(&wait_group);
        break;
    }
    return NULL;
}

static void waits_for(lent_t lent)
{
    aco_task_options_t options = {.shares_stack = 1};
    aco_go_with(&options, waits_for_lent, (void *)(intptr_t)lent, NULL);
}

/* The calls that pass a local of such a stack to another task. */
typedef enum { BY_GO, BY_SPAWN, BY_GO_WITH, BY_GROUP_GO, BY_OFFLOAD } passing_t;

static void pass_local(passing_t passing)
{
    int local = 1;
    switch (passing) {
    case BY_GO:
        aco_go(does_nothing, &local);
        break;
    case BY_SPAWN:
        aco_spawn(does_nothing, &local);
        break;
    case BY_GO_WITH:
        aco_go_with(NULL, does_nothing, &local, NULL);
        break;
    case BY_GROUP_GO:
        aco_group_go(aco_group_new(), does_nothing, &local);
        break;
    case BY_OFFLOAD:
        aco_offload(does_nothing, &local);
        break;
    }
}

static void *passes_local(void *passing)
{
    pass_local((passing_t)(intptr_t)passing);
    return NULL;
}

static void passes_lent(passing_t passing)
{
    aco_task_options_t options = {.shares_stack = 1};
    aco_go_with(&options, passes_local, (void *)(intptr_t)passing, NULL);
}

static void passes_in_coroutine(void)
{
    pass_local(*(const passing_t *)aco_get_arg());
    aco_exit();
}

/* Passes from a coroutine on one of two share stacks. */
static void passes_from_coroutine(passing_t passing)
{
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_create(aco_get_co(), stack, 0, calls_nothing, NULL);
    aco_resume(aco_create(aco_get_co(), stack, 0, passes_in_coroutine, &passing));
}

/* Sanitizers see these themselves. */
#if defined(ACO_USE_ASAN) || defined(ACO_USE_TSAN)
#define CALLS_OF_FREED(X)
#else
static aco_chan_t *freed_chan(void)
{
    aco_chan_t *freed = aco_chan_new(sizeof(item), 1);
    aco_chan_free(freed);
    return freed;
}

static void selects_freed(const void *send)
{
    aco_case_t c = {.chan = freed_chan(), .send = send, .recv = send == NULL ? &item : NULL};
    aco_select(&c, 1, 1);
}

#define CALLS_OF_FREED(X)                                                                          \
    X("aco_chan_send", aco_chan_send(freed_chan(), &item))                                         \
    X("aco_chan_recv", aco_chan_recv(freed_chan(), &item))                                         \
    X("aco_chan_try_send", aco_chan_try_send(freed_chan(), &item))                                 \
    X("aco_chan_try_recv", aco_chan_try_recv(freed_chan(), &item))                                 \
    X("aco_chan_close", aco_chan_close(freed_chan()))                                              \
    X("aco_chan_free", aco_chan_free(freed_chan()))                                                \
    X("aco_select", selects_freed(&item))                                                          \
    X("aco_select", selects_freed(NULL))
#endif

static void *adds_to(void *group)
{
    aco_group_go((aco_group_t *)group, does_nothing, NULL);
    return NULL;
}

static void *runs_adding_to(void *group)
{
    aco_run(NULL, adds_to, group, NULL);
    return NULL;
}

static void adds_from_another_runtime(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, runs_adding_to, aco_group_new()) == 0);
    pthread_join(thread, NULL);
}

static void *exits(void *storage)
{
    (void)storage;
    aco_exit();
    return NULL;
}

static void places(void *storage, void *arg)
{
    *(void **)storage = arg;
}

static void exits_from_a_binding(void)
{
    aco_i_spawn_in(NULL, exits, places, NULL, NULL);
}

static void counts_too_many(void)
{
    aco_wait_group_t wait_group = {.ct = INT64_MAX};
    aco_wait_group_add(&wait_group, 1);
}

static aco_reader_t *prepared(void)
{
    aco_reader_init(&reader, STDIN_FILENO, NULL, 0);
    return &reader;
}

/* Calls for a reader that another task uses. */
typedef enum { FREE, UNTIL, EXACTLY, PEEK, READ } reading_t;

static void *reads(void *arg)
{
    aco_reader_peek(&reader, 1, &text);
    return arg;
}

static void uses_busy_reader(reading_t reading)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    aco_reader_init(&reader, ends[0], NULL, 0);
    aco_go(reads, NULL);
    aco_yield();
    switch (reading) {
    case FREE:
        aco_reader_free(&reader);
        break;
    case UNTIL:
        aco_reader_until(&reader, "x", 0, &text);
        break;
    case EXACTLY:
        aco_reader_exactly(&reader, 1, &text);
        break;
    case PEEK:
        aco_reader_peek(&reader, 0, &text);
        break;
    case READ:
        aco_reader_read(&reader, &item, 1);
        break;
    }
    _exit(0);
}

static aco_broadcast_t *new_broadcast(void)
{
    return aco_broadcast_new(sizeof(item), 1);
}

static void *receives(void *broadcast)
{
    aco_broadcast_recv((aco_broadcast_t *)broadcast, &position, &item);
    return NULL;
}

static void frees_broadcast_under_wait(void)
{
    aco_broadcast_t *broadcast = new_broadcast();
    aco_go(receives, broadcast);
    aco_yield();
    aco_broadcast_free(broadcast);
}

/* The receiver has been woken, but has not returned. */
static void frees_broadcast_under_end(void)
{
    aco_broadcast_t *broadcast = new_broadcast();
    aco_go(receives, broadcast);
    aco_yield();
    aco_broadcast_close(broadcast);
    aco_broadcast_free(broadcast);
}

static void *calls_off(void *arg)
{
    aco_i_call_off((aco_task_t *)arg);
    return arg;
}

static void *calls_off_elsewhere(void *arg)
{
    aco_run(NULL, calls_off, arg, NULL);
    return arg;
}

static void calls_off_from_another_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, calls_off_elsewhere,
                   aco_i_go_later(aco_now(), does_nothing, NULL));
    pthread_join(thread, NULL);
}

#define CALLS(X)                                                                                   \
    X("aco_chan_send", aco_chan_send(NULL, &item))                                                 \
    X("aco_chan_send", aco_chan_send(chan, NULL))                                                  \
    X("aco_chan_recv", aco_chan_recv(NULL, &item))                                                 \
    X("aco_chan_recv", aco_chan_recv(chan, NULL))                                                  \
    X("aco_chan_try_send", aco_chan_try_send(NULL, &item))                                         \
    X("aco_chan_try_recv", aco_chan_try_recv(NULL, &item))                                         \
    X("aco_chan_close", aco_chan_close(NULL))                                                      \
    X("aco_chan_free", aco_chan_free(NULL))                                                        \
    X("aco_chan_free", frees_under_wait())                                                         \
    X("aco_select", aco_select(NULL, 1, 1))                                                        \
    X("aco_go", aco_go(NULL, NULL))                                                                \
    X("aco_spawn", aco_spawn(NULL, NULL))                                                          \
    X("aco_go_with", goes_without_function())                                                      \
    X("aco_group_go", aco_group_go(NULL, does_nothing, NULL))                                      \
    X("aco_group_go", aco_group_go(aco_group_new(), NULL, NULL))                                   \
    X("aco_group_go", adds_from_another_runtime())                                                 \
    X("aco_go", passes_lent(BY_GO))                                                                \
    X("aco_spawn", passes_lent(BY_SPAWN))                                                          \
    X("aco_go_with", passes_lent(BY_GO_WITH))                                                      \
    X("aco_group_go", passes_lent(BY_GROUP_GO))                                                    \
    X("aco_offload", passes_lent(BY_OFFLOAD))                                                      \
    X("aco_go", passes_from_coroutine(BY_GO))                                                      \
    X("aco_spawn", passes_from_coroutine(BY_SPAWN))                                                \
    X("aco_go_with", passes_from_coroutine(BY_GO_WITH))                                            \
    X("aco_group_go", passes_from_coroutine(BY_GROUP_GO))                                          \
    X("aco_offload", passes_from_coroutine(BY_OFFLOAD))                                            \
    X("aco_exit", exits_from_a_binding())                                                          \
    X("aco_group_cancel", aco_group_cancel(NULL))                                                  \
    X("aco_group_join", aco_group_join(NULL))                                                      \
    X("aco_group_join", joins_its_own())                                                           \
    X("aco_join", aco_join(NULL, NULL))                                                            \
    X("aco_join", has_a_bad_name())                                                                \
    X("aco_join", joins_twice())                                                                   \
    X("aco_task_id", aco_task_id(NULL))                                                            \
    X("aco_task_name", aco_task_name(NULL))                                                        \
    X("aco_task_cancel", aco_task_cancel(NULL))                                                    \
    X("aco_unpark", aco_unpark(NULL))                                                              \
    X("aco_key_create", aco_key_create(NULL, NULL))                                                \
    X("aco_offload", aco_offload(NULL, NULL))                                                      \
    X("aco_print_tasks", aco_print_tasks(NULL))                                                    \
    X("aco_chan_try_send", aco_chan_try_send(chan, NULL))                                          \
    X("aco_chan_try_recv", aco_chan_try_recv(chan, NULL))                                          \
    X("aco_mutex_lock", aco_mutex_lock(NULL))                                                      \
    X("aco_mutex_try_lock", aco_mutex_try_lock(NULL))                                              \
    X("aco_mutex_unlock", aco_mutex_unlock(NULL))                                                  \
    X("aco_mutex_unlock", aco_mutex_unlock(&mutex))                                                \
    X("aco_rwlock_read_lock", aco_rwlock_read_lock(NULL))                                          \
    X("aco_rwlock_write_lock", aco_rwlock_write_lock(NULL))                                        \
    X("aco_rwlock_try_read_lock", aco_rwlock_try_read_lock(NULL))                                  \
    X("aco_rwlock_try_write_lock", aco_rwlock_try_write_lock(NULL))                                \
    X("aco_rwlock_unlock", aco_rwlock_unlock(NULL))                                                \
    X("aco_rwlock_unlock", aco_rwlock_unlock(&rwlock))                                             \
    X("aco_cond_wait", aco_cond_wait(NULL, &mutex))                                                \
    X("aco_cond_wait", aco_cond_wait(&cond, NULL))                                                 \
    X("aco_cond_wait", aco_cond_wait(&cond, &mutex))                                               \
    X("aco_cond_signal", aco_cond_signal(NULL))                                                    \
    X("aco_cond_broadcast", aco_cond_broadcast(NULL))                                              \
    X("aco_semaphore_init", aco_semaphore_init(NULL, 1))                                           \
    X("aco_semaphore_acquire", aco_semaphore_acquire(NULL))                                        \
    X("aco_semaphore_try_acquire", aco_semaphore_try_acquire(NULL))                                \
    X("aco_semaphore_release", aco_semaphore_release(NULL))                                        \
    X("aco_wait_group_add", aco_wait_group_add(NULL, 1))                                           \
    X("aco_wait_group_done", aco_wait_group_done(NULL))                                            \
    X("aco_wait_group_wait", aco_wait_group_wait(NULL))                                            \
    X("aco_once", aco_once(NULL, calls_nothing))                                                   \
    X("aco_once", aco_once(&once, NULL))                                                           \
    X("aco_listen", aco_listen(NULL, ":0"))                                                        \
    X("aco_listen", aco_listen("tcp", NULL))                                                       \
    X("aco_dial", aco_dial(NULL, ":0"))                                                            \
    X("aco_dial", aco_dial("tcp", NULL))                                                           \
    X("aco_getaddrinfo", aco_getaddrinfo("127.0.0.1", NULL, NULL, NULL))                           \
    X("aco_wait_signal", aco_wait_signal(NULL, NULL))                                              \
    X("aco_mutex_lock", waits_for(A_MUTEX))                                                        \
    X("aco_rwlock_read_lock", waits_for(AN_RWLOCK_TO_READ))                                        \
    X("aco_rwlock_write_lock", waits_for(AN_RWLOCK))                                               \
    X("aco_cond_wait", waits_for(A_COND))                                                          \
    X("aco_cond_wait", waits_for(ITS_MUTEX))                                                       \
    X("aco_semaphore_acquire", waits_for(A_SEMAPHORE))                                             \
    X("aco_wait_group_wait", waits_for(A_COUNT))                                                   \
    X("aco_wait_group_add", counts_too_many())                                                     \
    X("aco_reader_init", aco_reader_init(NULL, 0, NULL, 0))                                        \
    X("aco_reader_init", aco_reader_init(&reader, 0, &item, 0))                                    \
    X("aco_reader_free", aco_reader_free(NULL))                                                    \
    X("aco_reader_free", uses_busy_reader(FREE))                                                   \
    X("aco_reader_until", aco_reader_until(NULL, "x", 0, &text))                                   \
    X("aco_reader_until", aco_reader_until(&reader, "x", 0, &text))                                \
    X("aco_reader_until", uses_busy_reader(UNTIL))                                                 \
    X("aco_reader_until", aco_reader_until(prepared(), NULL, 0, &text))                            \
    X("aco_reader_until", aco_reader_until(prepared(), "x", 0, NULL))                              \
    X("aco_reader_exactly", aco_reader_exactly(&reader, 1, &text))                                 \
    X("aco_reader_exactly", aco_reader_exactly(prepared(), 1, NULL))                               \
    X("aco_reader_exactly", uses_busy_reader(EXACTLY))                                             \
    X("aco_reader_peek", aco_reader_peek(&reader, 1, &text))                                       \
    X("aco_reader_peek", aco_reader_peek(prepared(), 1, NULL))                                     \
    X("aco_reader_peek", uses_busy_reader(PEEK))                                                   \
    X("aco_reader_read", aco_reader_read(&reader, &item, 1))                                       \
    X("aco_reader_read", uses_busy_reader(READ))                                                   \
    X("aco_broadcast_send", aco_broadcast_send(NULL, &item))                                       \
    X("aco_broadcast_send", aco_broadcast_send(new_broadcast(), NULL))                             \
    X("aco_broadcast_subscribe", aco_broadcast_subscribe(NULL))                                    \
    X("aco_broadcast_recv", aco_broadcast_recv(NULL, &position, &item))                            \
    X("aco_broadcast_recv", aco_broadcast_recv(new_broadcast(), NULL, &item))                      \
    X("aco_broadcast_recv", aco_broadcast_recv(new_broadcast(), &position, NULL))                  \
    X("aco_broadcast_recv", aco_broadcast_recv(new_broadcast(), &beyond, &item))                   \
    X("aco_broadcast_close", aco_broadcast_close(NULL))                                            \
    X("aco_broadcast_free", aco_broadcast_free(NULL))                                              \
    X("aco_broadcast_free", frees_broadcast_under_wait())                                          \
    X("aco_broadcast_free", frees_broadcast_under_end())                                           \
    X("aco_stats", aco_stats(NULL))                                                                \
    X("aco_print_metrics", aco_print_metrics(NULL))                                                \
    X("aco_i_spawn_in", aco_i_spawn_in(NULL, NULL, NULL, NULL, NULL))                              \
    X("aco_i_await_end", aco_i_await_end(NULL))                                                    \
    X("the destructor of a task", aco_i_cancel_and_await(NULL))                                    \
    X("the destructor of a task", aco_i_cancel_and_await(aco_self()))                              \
    X("aco_i_semaphore_ct", aco_i_semaphore_ct(NULL))                                              \
    X("aco_i_has_ended", aco_i_has_ended(NULL))                                                    \
    X("aco_i_free_ended", aco_i_free_ended(NULL))                                                  \
    X("aco_i_was_cancelled", aco_i_was_cancelled(NULL))                                            \
    X("aco_i_storage", aco_i_storage(NULL))                                                        \
    X("aco_i_detach", aco_i_detach(NULL, NULL))                                                    \
    X("aco_i_watch", aco_i_watch(NULL, &watch))                                                    \
    X("aco_i_watch", aco_i_watch(aco_self(), NULL))                                                \
    X("aco_i_unwatch", aco_i_unwatch(NULL, &watch))                                                \
    X("aco_i_unwatch", aco_i_unwatch(aco_self(), NULL))                                            \
    X("aco_i_stop_of", aco_i_stop_of(NULL, NULL, NULL))                                            \
    X("aco_i_leave_stop", aco_i_leave_stop(NULL))                                                  \
    X("aco_i_group_keep", aco_i_group_keep(NULL, &item))                                           \
    X("aco_group_join", aco_i_group_join(NULL, &word))                                             \
    X("aco_i_group_join", aco_i_group_join(aco_group_new(), NULL))                                 \
    X("aco_i_go_parked", aco_i_go_parked(NULL, NULL))                                              \
    X("aco_i_go_later", aco_i_go_later(0, NULL, NULL))                                             \
    X("the end of a co_await", aco_i_begin_now(NULL))                                              \
    X("the destructor of a co_await", aco_i_call_off(NULL))                                        \
    X("the destructor of a co_await", calls_off_from_another_thread())                             \
    CALLS_OF_FREED(X)

/* Makes, in a task, the misuse in line `arg` of CALLS. */
static void *misuses(void *arg)
{
    int i = 0, wanted = (int)(intptr_t)arg;
    chan = aco_chan_new(sizeof(item), 0);
#define X(name, call)                                                                              \
    if (i++ == wanted) {                                                                           \
        (void)call;                                                                                \
    }
    CALLS(X)
#undef X
    return NULL;
}

enum { JOINS_TASK_LATE = -3, JOINS_GROUP_LATE, JOINS_GROUP_TWICE };

static void *joins_a_group_twice(void *arg)
{
    aco_group_t *group = aco_group_new();
    aco_group_join(group);
    aco_group_join(group);
    return arg;
}

static void join_freed(int which)
{
    aco_run(NULL, which == JOINS_GROUP_TWICE ? joins_a_group_twice : leaves_both, NULL, NULL);
    (void)(which == JOINS_TASK_LATE ? aco_join(left_task, NULL) : aco_group_join(left_group));
}

/* Runs a child that misuses a call, and returns its message. */
static void end_by_misuse(int which, char *said, size_t sz)
{
    int ends[2], status;
    size_t done = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL); /* cmocka handles it */
        dup2(ends[1], STDERR_FILENO);
        if (which < 0) {
            join_freed(which);
        }
        aco_run(NULL, misuses, (void *)(intptr_t)which, NULL);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t ct; done < sz - 1 && (ct = read(ends[0], said + done, sz - 1 - done)) > 0;) {
        done += (size_t)ct;
    }
    said[done] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT) {
        fail_msg("misuse %d: status %x, \"%s\"", which, status, said);
    }
}

static void misuse_ends_in_a_line(void **state)
{
    (void)state;
#define X(name, call) name,
    static const char *const names[] = {CALLS(X)};
#undef X
    for (int i = 0; i < (int)ARRAY_SZ(names); i++) {
        char said[4096], begin[64];
        end_by_misuse(i, said, sizeof(said));
        snprintf(begin, sizeof(begin), "aco: %s: ", names[i]);
        char *line_end = strchr(said, '\n');
        if (strncmp(said, begin, strlen(begin)) != 0 ||
            strstr(said + strlen(begin), ": ") == NULL || strstr(said, " (task ") == NULL ||
            strstr(said, " \"\") (coroutine ") != NULL || line_end == NULL || line_end[1] != '\0') {
            fail_msg("not a line of %s in a task: %s", names[i], said);
        }
    }
}

/* The sanitizers report the second join of a group first. */
#if defined(ACO_USE_ASAN) || defined(ACO_USE_TSAN)
#define LAST_OF_FREED JOINS_GROUP_LATE
#else
#define LAST_OF_FREED JOINS_GROUP_TWICE
#endif

static void what_was_freed_is_not_joined(void **state)
{
    (void)state;
    for (int which = JOINS_TASK_LATE; which <= LAST_OF_FREED; which++) {
        char said[4096];
        end_by_misuse(which, said, sizeof(said));
        assert_non_null(
            strstr(said, "join: it was joined, or its runtime has ended, and is freed: "));
        assert_non_null(strstr(said, " once, before aco_run() returns ("));
    }
}

/* Calls fail with EFAULT where the kernel's do. */
static void *passes_no_buffers(void *arg)
{
    int fds[2];
    struct addrinfo *list = NULL;
    char host[8];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    CHECK_FAILS(aco_readv(fds[0], NULL, 1), EFAULT);
    CHECK_FAILS(aco_writev(fds[0], NULL, 1), EFAULT);
    CHECK_FAILS(aco_sendmsg(fds[0], NULL, 0), EFAULT);
    CHECK_FAILS(aco_recvmsg(fds[0], NULL, 0), EFAULT);
    struct msghdr msg = {.msg_iovlen = 1};
    CHECK_FAILS(aco_sendmsg(fds[0], &msg, 0), EFAULT);
    CHECK_FAILS(aco_recvmsg(fds[0], &msg, MSG_WAITALL), EFAULT);
    CHECK_FAILS(aco_poll(NULL, 1, -1), EFAULT);
    char byte = 'b';
    CHECK(write(fds[0], &byte, 1) == 1 && write(fds[1], &byte, 1) == 1);
    CHECK_FAILS(aco_read(fds[0], NULL, 1), EFAULT);
    CHECK_FAILS(aco_recv(fds[0], NULL, 1, MSG_PEEK), EFAULT);
    CHECK_FAILS(aco_read_all(fds[0], NULL, 1), EFAULT);
    CHECK_FAILS(aco_write(fds[0], NULL, 1), EFAULT);
    CHECK_FAILS(aco_send(fds[0], NULL, 1, 0), EFAULT);
    CHECK_FAILS(aco_sendto(fds[0], NULL, 1, 0, NULL, 0), EFAULT);
    CHECK_FAILS(aco_write_all(fds[0], NULL, 1), EFAULT);
    CHECK_FAILS(aco_connect(fds[0], NULL, 16), EFAULT);
    CHECK_FAILS(aco_open(NULL, O_RDONLY), EFAULT);
    CHECK_FAILS(aco_select(NULL, 0, 1), EINVAL);
    CHECK(aco_getaddrinfo(NULL, NULL, NULL, &list) == EAI_NONAME);
    CHECK(aco_getnameinfo(NULL, 16, host, sizeof(host), NULL, 0, 0) == EAI_FAMILY);
    for (int i = 0; i < 2; i++) {
        aco_close(fds[i]);
    }
    return arg;
}

static void missing_buffers_are_errors(void **state)
{
    (void)state;
    run_tasks(passes_no_buffers, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misuse_ends_in_a_line),
        cmocka_unit_test(what_was_freed_is_not_joined),
        cmocka_unit_test(missing_buffers_are_errors),
    };
    return cmocka_run_group_tests_name("misuse", tests, NULL, NULL);
}
