// SPDX-License-Identifier: Apache-2.0
/*
 * Answers: what a library gets from a call whose task is late or cancelled. The library is that of
 * the hook's return address, which is looked up when a wait has failed, so that calls that succeed
 * cost nothing. A call that goes on is made again, shielded: one that has failed has done nothing.
 * Waits for locks and similar go on without leaving their queue.
 */
#include "waiting.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

HOOKS_OF(answers);

/* ==== Rules ================================================================================== */

/* The answer for libraries. The newest rule that names a library counts. */
typedef struct rule_s {
    const struct rule_s *next;
    aco_hooks_answer_t answer;
    const char *libraries;
} rule_t;

static const rule_t default_rules[] = {
    {NULL, ACO_HOOKS_LOCKS_WAIT, "libpython libnng libdb-"},
    {&default_rules[0], ACO_HOOKS_EINTR, "libzmq libnanomsg"},
    {&default_rules[1], ACO_HOOKS_WAIT, "libuv libevent libtevent libglib- libgio-"},
};

static const rule_t *newest = &default_rules[2]; /* atomic */

/* Rules stay for good: other threads may be looking at them. */
static int add_rule(const char *libraries, size_t sz, aco_hooks_answer_t answer)
{
    rule_t *rule = (rule_t *)aco_i_allocate(sizeof(*rule) + sz + 1);
    if (rule == NULL) {
        return (int)refuse(ENOMEM);
    }
    char *copy = (char *)(rule + 1);
    memcpy(copy, libraries, sz);
    copy[sz] = '\0';
    *rule = (rule_t){__atomic_load_n(&newest, __ATOMIC_RELAXED), answer, copy};
    while (!__atomic_compare_exchange_n(&newest, &rule->next, rule, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
    }
    return 0;
}

int aco_hooks_on_deadline(const char *libraries, aco_hooks_answer_t answer)
{
    return libraries == NULL || (unsigned)answer > ACO_HOOKS_WAIT
               ? (int)refuse(EINVAL)
               : add_rule(libraries, strlen(libraries), answer);
}

/* ==== The environment ======================================================================== */

static const char *const names[] = {"error", "locks-wait", "EINTR", "wait"};

/* The answer with a name; -1: there is none. */
static int answer_of(const char *name, size_t sz)
{
    for (int i = 0; i <= ACO_HOOKS_WAIT; i++) {
        if (strlen(names[i]) == sz && strncmp(names[i], name, sz) == 0) {
            return i;
        }
    }
    return -1;
}

static __attribute__((constructor)) void read_environment(void)
{
    const char *word = getenv("ACO_HOOKS_ON_DEADLINE");
    for (size_t sz; word != NULL && (word += strspn(word, " "))[0] != '\0'; word += sz) {
        sz = strcspn(word, " ");
        size_t name_sz = strcspn(word, " =");
        int answer = name_sz == 0 || name_sz >= sz
                         ? -1
                         : answer_of(word + name_sz + 1, sz - name_sz - 1);
        if (answer < 0) {
            fprintf(stderr,
                    "aco_hooks: ACO_HOOKS_ON_DEADLINE has %.*s: name a library and its answer, "
                    "such as libzmq=EINTR, error, wait or locks-wait\n",
                    (int)sz, word);
        } else {
            add_rule(word, name_sz, (aco_hooks_answer_t)answer);
        }
    }
}

/* ==== Libraries ============================================================================== */

EARLY int aco_i_is_named(const char *libraries, const char *file)
{
    const char *slash = strrchr(file, '/'), *name = slash == NULL ? file : slash + 1;
    const char *word = libraries;
    for (size_t sz; (word += strspn(word, " "))[0] != '\0'; word += sz) {
        sz = strcspn(word, " ");
        if (strncmp(name, word, sz) == 0) {
            return 1;
        }
    }
    return 0;
}

/* A thread of a program that is a task ends by the error that cancels it. */
static aco_hooks_answer_t answer_for(const void *caller)
{
    Dl_info info;
    const aco_task_t *self = aco_i_running_task();
    caller = self->caller != NULL ? self->caller : caller;
    if (self->is_thread || dladdr(caller, &info) == 0 || info.dli_fname == NULL) {
        return ACO_HOOKS_ERROR;
    }
    const rule_t *rule = __atomic_load_n(&newest, __ATOMIC_ACQUIRE);
    while (rule != NULL && !aco_i_is_named(rule->libraries, info.dli_fname)) {
        rule = rule->next;
    }
    return rule != NULL ? rule->answer : ACO_HOOKS_ERROR;
}

/* ==== Answers ================================================================================ */

static int is_by_deadline(void)
{
    return (errno == ETIMEDOUT || errno == ECANCELED) && aco_i_is_late(aco_i_running_task());
}

int aco_i_goes_on(const void *caller)
{
    if (!is_by_deadline()) {
        return 0;
    }
    int error = errno;
    aco_hooks_answer_t answer = answer_for(caller);
    errno = answer == ACO_HOOKS_EINTR ? EINTR : error;
    return answer == ACO_HOOKS_WAIT;
}

/* A helper may have begun to write already, and a caller could not know what is in the file. */
int aco_i_finishes(const void *caller, int fd)
{
    struct stat status;
    if (!is_by_deadline()) {
        return 0;
    }
    int error = errno;
    int is_file = fstat(fd, &status) == 0 && (S_ISREG(status.st_mode) || S_ISBLK(status.st_mode));
    errno = error;
    return is_file || aco_i_goes_on(caller);
}

int aco_i_always_waits(const void *caller)
{
    KEEP_ERRNO();
    return answer_for(caller) == ACO_HOOKS_WAIT;
}

int aco_i_limit_goes_on(const limit_t *limit)
{
    KEEP_ERRNO();
    if (limit->caller == NULL || !aco_i_is_late(aco_i_running_task())) {
        return 0;
    }
    aco_hooks_answer_t answer = answer_for(limit->caller);
    return answer == ACO_HOOKS_WAIT || (answer != ACO_HOOKS_ERROR && !limit->is_of_io);
}
