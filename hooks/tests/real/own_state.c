// SPDX-License-Identifier: Apache-2.0
/*
 * Libraries keep the last error, or settings, in pthread keys. A task's stay while it waits and
 * another task has other ones.
 *
 *   PROGRAM [shared]   shared: no library has keys of its own, and each must be seen to mix them up
 */
#include "aco_hooks.h"
#include "aco_runtime.h"

#include <cups/cups.h>
#include <git2.h>
#include <nats/nats.h>
#include <rpc/rpc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_SZ 256

/* Changes a state in the first or the second way, and tells what it is. */
typedef struct {
    const char *library;
    void (*change)(int is_second);
    void (*tell)(char *text);
} state_t;

static void fail_in_git(int is_second)
{
    git_repository *repository = NULL;
    git_repository_open(&repository, is_second ? "/no/such/b" : "/no/such/a");
}

static void tell_of_git(char *text)
{
    const git_error *error = git_error_last();
    snprintf(text, TEXT_SZ, "%s", error == NULL ? "none" : error->message);
}

static void set_in_cups(int is_second)
{
    cupsSetServer(is_second ? "b.invalid" : "a.invalid");
}

static void tell_of_cups(char *text)
{
    snprintf(text, TEXT_SZ, "%s", cupsServer());
}

static void fail_in_nats(int is_second)
{
    natsOptions *options = NULL;
    if (is_second) {
        natsConnection_PublishString(NULL, "", "");
    } else if (natsOptions_Create(&options) == NATS_OK) {
        natsOptions_SetTimeout(options, -1);
        natsOptions_Destroy(options);
    }
}

static void tell_of_nats(char *text)
{
    natsStatus status = NATS_OK;
    const char *error = nats_GetLastError(&status);
    snprintf(text, TEXT_SZ, "%s, %d", error == NULL ? "none" : error, (int)status);
}

static void fail_in_tirpc(int is_second)
{
    clnt_create("127.0.0.1", 99, 1, is_second ? "tcp" : "no such protocol");
}

static void tell_of_tirpc(char *text)
{
    snprintf(text, TEXT_SZ, "%d", (int)rpc_createerr.cf_stat);
}

static const state_t states[] = {
    {"libgit2", fail_in_git, tell_of_git},
    {"libcups", set_in_cups, tell_of_cups},
    {"libnats", fail_in_nats, tell_of_nats},
    {"libtirpc", fail_in_tirpc, tell_of_tirpc},
};

static int must_mix;

static void *changes(void *arg)
{
    const state_t *state = (const state_t *)arg;
    char *text = (char *)malloc(TEXT_SZ);
    state->change(1);
    state->tell(text);
    return text;
}

static void check(const state_t *state)
{
    char before[TEXT_SZ], after[TEXT_SZ];
    void *other = NULL;
    state->change(0);
    state->tell(before);
    aco_task_t *task = aco_spawn(changes, (void *)(uintptr_t)state);
    if (task == NULL || aco_join(task, &other) != 0 || other == NULL ||
        strcmp(before, (char *)other) == 0) {
        fprintf(stderr, "%s: both are %s\n", state->library, before);
        exit(1);
    }
    state->tell(after);
    if (strcmp(after, must_mix ? (char *)other : before) != 0) {
        fprintf(stderr, "%s: %s, then %s\n", state->library, before, after);
        exit(1);
    }
    free(other);
}

static void *check_all(void *arg)
{
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        check(&states[i]);
    }
    return arg;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "shared") == 0) {
        must_mix = 1;
        aco_hooks_set_own_keys("");
    }
    git_libgit2_init();
    nats_Open(-1);
    if (aco_run(NULL, check_all, NULL, NULL) != 0) {
        return 1;
    }
    printf("%zu libraries\n", sizeof(states) / sizeof(states[0]));
    return 0;
}
