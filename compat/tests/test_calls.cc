// SPDX-License-Identifier: Apache-2.0
/* Coroutines, values and hooks: the result of each call, and the order in which coroutines run. */
// build: -I. -Iruntime
#include "calls.h"

#include "aco_runtime.h"
#include "co_routine_inner.h"

#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ==== Resume and yield ======================================================================= */

static stCoRoutine_t *inner;

static void *yields(void *arg)
{
    const char *letters = static_cast<const char *>(arg);
    for (; *letters != '\0'; letters++) {
        note(*letters);
        co_yield_ct();
    }
    note('.');
    return NULL;
}

static void *resumes_inner(void *)
{
    CHECK(co_self() != inner);
    note('A');
    co_resume(inner);
    note('B');
    co_yield (co_self());
    note('C');
    co_resume(inner);
    note('D');
    return NULL;
}

static void test_order(stShareStack_t *stack)
{
    char letters[] = "12";
    inner = create(yields, letters, stack);
    stCoRoutine_t *outer = create(resumes_inner, NULL, stack);
    EXPECT("");
    co_resume(outer);
    EXPECT("A1B");
    co_resume(outer);
    EXPECT("C2D");
    co_resume(outer); /* has ended */
    EXPECT("");
    co_resume(inner);
    EXPECT(".");
    co_reset(inner);
    co_resume(inner);
    EXPECT("1");
    co_reset(inner); /* in the middle */
    co_resume(inner);
    co_resume(inner);
    EXPECT("12");
    co_release(inner); /* before its end */
    co_release(outer);
}

/* Resumes coroutines deeply nested, all of which end at once then. */
static void *descends(void *arg)
{
    long depth = reinterpret_cast<long>(arg);
    char local[100];
    memset(local, (int)depth, sizeof(local));
    if (depth != 0) {
        stCoRoutine_t *next = create(descends, reinterpret_cast<void *>(depth - 1));
        co_resume(next);
        co_resume(next); /* does nothing */
        co_release(next);
    }
    for (size_t i = 0; i < sizeof(local); i++) {
        CHECK(local[i] == (char)depth);
    }
    note('x');
    return NULL;
}

static void test_nested()
{
    stCoRoutine_t *co = create(descends, reinterpret_cast<void *>(20));
    co_resume(co);
    EXPECT("xxxxxxxxxxxxxxxxxxxxx");
    co_release(co);
}

static void *sees_itself(void *arg)
{
    CHECK(co_self() == *static_cast<stCoRoutine_t **>(arg));
    co_yield_ct();
    CHECK(co_self() == *static_cast<stCoRoutine_t **>(arg));
    return NULL;
}

static void test_self()
{
    CHECK(co_self() == NULL && co_get_curr_thread_env() == NULL);
    co_init_curr_thread_env();
    stCoRoutineEnv_t *env = co_get_curr_thread_env();
    CHECK(env != NULL);
    stCoRoutine_t *outside = co_self(), *co;
    CHECK(outside != NULL);
    co = create(sees_itself, &co);
    co_resume(co);
    CHECK(co_self() == outside);
    co_resume(co);
    CHECK(co_self() == outside && co_get_curr_thread_env() == env);
    co_free(co);
}

static void *measures_stack(void *arg)
{
    char local[300 << 10];
    memset(local, 1, sizeof(local));
    *static_cast<int *>(arg) = local[sizeof(local) / 2];
    return NULL;
}

static void test_attributes()
{
    stCoRoutineAttr_t attr;
    CHECK(attr.stack_size == 128 * 1024 && attr.share_stack == NULL);
    attr.stack_size = 1 << 20;
    stCoRoutine_t *co;
    int result = 0;
    CHECK(co_create(&co, &attr, measures_stack, &result) == 0);
    co_resume(co);
    CHECK(result == 1);
    co_release(co);
    attr.stack_size = INT_MAX; /* three of them exceed the address space of a 32-bit process */
    stCoRoutine_t *many[3] = {NULL, NULL, NULL};
    for (int i = 0; sizeof(void *) == 4 && i < 3; i++) {
        errno = 0;
        if (co_create(&many[i], &attr, yields, NULL) != 0) {
            CHECK(errno == ENOMEM);
            many[i] = NULL;
            note('f');
        }
    }
    CHECK(sizeof(void *) == 8 || strchr(trace, 'f') != NULL);
    trace[0] = '\0';
    for (int i = 0; i < 3; i++) {
        if (many[i] != NULL) {
            co_release(many[i]);
        }
    }
    errno = 0;
    CHECK(co_alloc_sharestack(0, 4096) == NULL && errno == EINVAL);
}

static void *tells_place(void *arg)
{
    char local = 'x';
    *static_cast<uintptr_t *>(arg) = reinterpret_cast<uintptr_t>(&local);
    co_yield_ct();
    return local == 'x' ? arg : NULL;
}

/* Coroutines take the shared stacks in turn. */
static void test_shared_stacks()
{
    uintptr_t places[4];
    stCoRoutine_t *all[4];
    stShareStack_t *stacks = co_alloc_sharestack(2, 16 << 10);
    for (int i = 0; i < 4; i++) {
        all[i] = create(tells_place, &places[i], stacks);
        co_resume(all[i]);
    }
    CHECK(places[0] == places[2] && places[1] == places[3] && places[0] != places[1]);
    for (int i = 0; i < 4; i++) {
        co_release(all[i]);
    }
}

/* ==== Values ================================================================================= */

static pthread_key_t keys[20];

static void *sets_values(void *arg)
{
    for (int i = 0; i < 20; i++) {
        CHECK(co_getspecific(keys[i]) == NULL);
        CHECK(co_setspecific(keys[i], static_cast<char *>(arg) + i) == 0);
    }
    co_yield_ct();
    for (int i = 0; i < 20; i++) {
        CHECK(co_getspecific(keys[i]) == static_cast<char *>(arg) + i);
    }
    return NULL;
}

static void test_values(stShareStack_t *stack)
{
    char one[20], two[20];
    for (int i = 0; i < 20; i++) {
        CHECK(pthread_key_create(&keys[i], NULL) == 0);
    }
    CHECK(co_setspecific(keys[3], one) == 0);
    stCoRoutine_t *first = create(sets_values, one, stack);
    stCoRoutine_t *second = create(sets_values, two, stack);
    co_resume(first);
    co_resume(second);
    CHECK(co_getspecific(keys[3]) == one && co_getspecific(keys[4]) == NULL);
    CHECK(pthread_getspecific(keys[3]) == one);
    co_resume(first);
    co_resume(second);
    co_release(first);
    co_release(second);
    for (int i = 0; i < 20; i++) {
        CHECK(pthread_key_delete(keys[i]) == 0);
    }
}

/* ==== Hooks ================================================================================== */

static void *toggles_hooks(void *)
{
    CHECK(!co_is_enable_sys_hook());
    co_enable_hook_sys();
    CHECK(co_is_enable_sys_hook());
    co_yield_ct();
    CHECK(co_is_enable_sys_hook());
    co_disable_hook_sys();
    CHECK(!co_is_enable_sys_hook());
    return NULL;
}

/* Reads from a blocking descriptor that was made outside of coroutines. */
static void *reads_hooked(void *arg)
{
    char byte = 0;
    co_enable_hook_sys();
    note('r');
    CHECK(read(*static_cast<int *>(arg), &byte, 1) == 1 && byte == 'x');
    note('R');
    *static_cast<int *>(arg) = -1;
    return NULL;
}

/* Without hooks, the thread waits. */
static void *reads_unhooked(void *arg)
{
    char byte = 0;
    note('r');
    CHECK(read(*static_cast<int *>(arg), &byte, 1) == 1 && byte == 'x');
    note('R');
    return NULL;
}

static void *writes_in_thread(void *arg)
{
    usleep(10000);
    CHECK(write(*static_cast<int *>(arg), "x", 1) == 1);
    return NULL;
}

static void test_unhooked(int fds[2], stShareStack_t *stack)
{
    pthread_t thread;
    stCoRoutine_t *co = create(reads_unhooked, &fds[0], stack);
    CHECK(pthread_create(&thread, NULL, writes_in_thread, &fds[1]) == 0);
    co_resume(co);
    EXPECT("rR");
    CHECK(pthread_join(thread, NULL) == 0);
    co_release(co);
}

static void *writes_later(void *arg)
{
    note('w');
    co_poll(co_get_epoll_ct(), NULL, 0, 10);
    CHECK(write(*static_cast<int *>(arg), "x", 1) == 1);
    return NULL;
}

static int is_negative(void *fd)
{
    return *static_cast<int *>(fd) < 0 ? -1 : 0;
}

static void *reads_in_vain(void *arg)
{
    char byte;
    double begun = now_ms();
    co_enable_hook_sys();
    errno = 0;
    CHECK(read(*static_cast<int *>(arg), &byte, 1) == -1 && errno == EAGAIN);
    CHECK(now_ms() - begun >= 20);
    *static_cast<int *>(arg) = -1;
    return NULL;
}

static void test_hooks(stShareStack_t *stack)
{
    stCoRoutine_t *one = create(toggles_hooks, NULL, stack);
    stCoRoutine_t *two = create(toggles_hooks, NULL, stack);
    co_resume(one);
    CHECK(!co_is_enable_sys_hook());
    co_resume(two);
    co_resume(one);
    co_resume(two);
    co_release(one);
    co_release(two);
    int fds[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    int in = fds[0];
    one = create(reads_hooked, &in, stack);
    two = create(writes_later, &fds[1], stack);
    co_resume(one);
    co_resume(two);
    EXPECT("rw");
    co_eventloop(co_get_epoll_ct(), is_negative, &in);
    EXPECT("R");
    co_release(one);
    co_release(two);
    CHECK((fcntl(fds[0], F_GETFL) & O_NONBLOCK) == 0);
    co_set_default_timeout(20);
    in = fds[0];
    one = create(reads_in_vain, &in, stack);
    co_resume(one);
    CHECK(in >= 0);
    co_eventloop(co_get_epoll_ct(), is_negative, &in);
    co_set_default_timeout(0);
    co_release(one);
    CHECK(co_register_fd(fds[0]) == 0);
    test_unhooked(fds, stack);
    close(fds[0]);
    close(fds[1]);
}

static void test_accept()
{
    struct sockaddr_in addr;
    socklen_t sz = sizeof(addr);
    memset(&addr, 0, sizeof(addr));
    addr.sin_family = AF_INET;
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(bind(listener, reinterpret_cast<struct sockaddr *>(&addr), sz) == 0);
    CHECK(listen(listener, 1) == 0);
    CHECK(getsockname(listener, reinterpret_cast<struct sockaddr *>(&addr), &sz) == 0);
    errno = 0;
    CHECK(co_accept(listener, NULL, NULL) == -1 && errno == EAGAIN);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(client, reinterpret_cast<struct sockaddr *>(&addr), sz) == 0);
    struct pollfd polled = {listener, POLLIN, 0};
    CHECK(poll(&polled, 1, -1) == 1);
    int server = co_accept(listener, NULL, NULL);
    CHECK(server >= 0);
    close(server);
    close(client);
    close(listener);
}

/* A child begins anew, as each thread does. */
static void test_fork()
{
    int is_done = 0, status = -1;
    pid_t child = fork();
    if (child == 0) {
        stCoRoutine_t *co = create(polls_for_time, &is_done);
        co_resume(co);
        co_eventloop(co_get_epoll_ct(), is_set, &is_done);
        EXPECT("ab");
        _exit(ct_failed != 0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void *creates_none(void *arg)
{
    stCoRoutine_t *co = NULL;
    errno = 0;
    CHECK(co_create(&co, NULL, polls_for_time, NULL) == -1 && errno == EBUSY && co == NULL);
    return arg;
}

static void *runs_another_loop(void *arg)
{
    CHECK(aco_run(NULL, creates_none, NULL, NULL) == 0);
    return arg;
}

/* A thread that is in aco_run() has a loop already. */
static void test_other_loop()
{
    pthread_t other;
    CHECK(pthread_create(&other, NULL, runs_another_loop, NULL) == 0);
    CHECK(pthread_join(other, NULL) == 0);
}

/* The line that co_log_err() prints. */
static void test_log()
{
    int fds[2], saved = dup(STDERR_FILENO);
    char text[2000] = "", expected[] = "17 is wrong\n";
    CHECK(pipe(fds) == 0 && dup2(fds[1], STDERR_FILENO) >= 0);
    co_log_err("%d is %s", 17, "wrong");
    CHECK(dup2(saved, STDERR_FILENO) >= 0 && close(fds[1]) == 0 && close(saved) == 0);
    CHECK(read(fds[0], text, sizeof(text)) == static_cast<ssize_t>(strlen(expected)));
    CHECK(strcmp(text, expected) == 0 && close(fds[0]) == 0);
}

int main()
{
    test_log();
    test_self();
    test_nested();
    test_attributes();
    test_accept();
    test_shared_stacks();
    stShareStack_t *stacks[] = {NULL, co_alloc_sharestack(1, 64 << 10),
                                co_alloc_sharestack(3, 128 << 10)};
    for (int i = 0; i < 3; i++) {
        test_order(stacks[i]);
        test_values(stacks[i]);
        test_hooks(stacks[i]);
    }
    test_fork();
    test_other_loop();
    return ct_failed != 0;
}
