// SPDX-License-Identifier: Apache-2.0
/* Misuse that can be seen: one line on stderr, which names the call and the task, and abort(). */
#include "tasks.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static aco_chan_t *chan;
static int item;

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
    X("aco_group_cancel", aco_group_cancel(NULL))                                                  \
    X("aco_group_join", aco_group_join(NULL))                                                      \
    X("aco_group_join", joins_its_own())                                                           \
    X("aco_join", aco_join(NULL, NULL))                                                            \
    X("aco_join", joins_twice())                                                                   \
    X("aco_task_id", aco_task_id(NULL))                                                            \
    X("aco_task_name", aco_task_name(NULL))                                                        \
    X("aco_task_cancel", aco_task_cancel(NULL))                                                    \
    X("aco_unpark", aco_unpark(NULL))                                                              \
    X("aco_key_create", aco_key_create(NULL, NULL))                                                \
    X("aco_offload", aco_offload(NULL, NULL))                                                      \
    X("aco_print_tasks", aco_print_tasks(NULL))

/* In a task: the misuse of which `arg` is the line of CALLS. */
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

/* Of a child that misuses a call; what it said. */
static void end_by_misuse(int which, char *said, size_t sz)
{
    int ends[2], status;
    size_t done = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL); /* cmocka handles it */
        dup2(ends[1], STDERR_FILENO);
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
        if (strncmp(said, begin, strlen(begin)) != 0 || strstr(said, " (task ") == NULL ||
            line_end == NULL || line_end[1] != '\0') {
            fail_msg("not a line of %s in a task: %s", names[i], said);
        }
    }
}

/* Where the kernel says EFAULT, so do we. */
static void *passes_no_buffers(void *arg)
{
    int fds[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    CHECK_FAILS(aco_readv(fds[0], NULL, 1), EFAULT);
    CHECK_FAILS(aco_writev(fds[0], NULL, 1), EFAULT);
    CHECK_FAILS(aco_sendmsg(fds[0], NULL, 0), EFAULT);
    CHECK_FAILS(aco_recvmsg(fds[0], NULL, 0), EFAULT);
    struct msghdr msg = {.msg_iovlen = 1};
    CHECK_FAILS(aco_sendmsg(fds[0], &msg, 0), EFAULT);
    CHECK_FAILS(aco_recvmsg(fds[0], &msg, MSG_WAITALL), EFAULT);
    CHECK_FAILS(aco_poll(NULL, 1, -1), EFAULT);
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
        cmocka_unit_test(missing_buffers_are_errors),
    };
    return cmocka_run_group_tests_name("misuse", tests, NULL, NULL);
}
