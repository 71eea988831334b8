// SPDX-License-Identifier: Apache-2.0
/*
 * Name look-ups. getaddrinfo() and getnameinfo() are the runtime's. A helper thread makes the older
 * calls, into memory of its own, from which the result is copied. Each task has an h_errno, and a
 * buffer for results of calls that take none.
 */
#include "internal.h"

#include <arpa/inet.h>
#include <limits.h>
#include <netdb.h>

HOOKS_OF(names);

#define FIRST_SZ 1024u /* bytes of a result, doubled while it does not fit */
#define ALIGNMENT 16u

/* ==== Addresses and names ==================================================================== */

HOOK(int, getaddrinfo,
     (const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **list),
     (node, service, hints, list), EAI_AGAIN)
{
    return is_in_task() ? ANSWERED(aco_getaddrinfo(node, service, hints, list))
                        : real_getaddrinfo(node, service, hints, list);
}

HOOK(int, getnameinfo,
     (const struct sockaddr *address, socklen_t address_sz, char *host, socklen_t host_sz,
      char *service, socklen_t service_sz, int flags),
     (address, address_sz, host, host_sz, service, service_sz, flags), EAI_AGAIN)
{
    return is_in_task()
               ? ANSWERED(aco_getnameinfo(address, address_sz, host, host_sz, service, service_sz,
                                          flags))
               : real_getnameinfo(address, address_sz, host, host_sz, service, service_sz, flags);
}

/* ==== State of a task ======================================================================== */

/* A result, and h_errno. */
typedef struct {
    struct hostent host;
    char *buf;
    size_t sz;
    int h_error;
    int h_error_of_libc; /* its value when h_error was taken from it */
    uint64_t ct_switches;
} kept_t;

static lazy_key_t kept_key;

static void free_kept(void *arg)
{
    kept_t *kept = (kept_t *)arg;
    aco_i_release(kept->buf);
    aco_i_release(kept);
}

/* NULL if the task keeps nothing. */
static kept_t *kept(void)
{
    return (kept_t *)value_of_key(&kept_key);
}

static kept_t *begin_to_keep(void)
{
    kept_t *k = make_key(&kept_key, free_kept) ? (kept_t *)aco_i_allocate(sizeof(*k)) : NULL;
    if (k != NULL) {
        memset(k, 0, sizeof(*k));
        if (aco_setspecific(kept_key.key, k) != 0) {
            aco_i_release(k);
            k = NULL;
        }
    }
    return k;
}

/* libc's own functions set h_errno of the thread. It counts if no other task has run since. */
HOOK(int *, __h_errno_location, (void), (), NULL)
{
    int *of_thread = real___h_errno_location();
    kept_t *k = is_in_task() ? kept() : NULL;
    if (k == NULL) {
        return of_thread;
    }
    if (k->ct_switches == aco_i_ct_switches() && k->h_error_of_libc != *of_thread) {
        k->h_error = *of_thread;
    }
    k->h_error_of_libc = *of_thread;
    k->ct_switches = aco_i_ct_switches();
    return &k->h_error;
}

static void set_h_error(int h_error)
{
    *hook___h_errno_location() = h_error;
}

/* ==== Questions and answers ================================================================== */

typedef struct {
    const char *name; /* NULL: the question is the name of an address */
    const void *address;
    socklen_t address_sz;
    int family; /* AF_UNSPEC: as gethostbyname() asks */
    const void *caller;
} question_t;

typedef struct {
    struct hostent host;
    char *buf;
    size_t sz;
    struct hostent *found; /* `host` or NULL */
    int error, h_error;
} answer_t;

typedef struct {
    question_t question;
    answer_t answer;
    char text[]; /* the question's, then the answer's */
} look_up_t;

typedef struct hostent host_t;

HOOK(int, gethostbyname_r,
     (const char *name, host_t *host, char *buf, size_t sz, host_t **found, int *h_error),
     (name, host, buf, sz, found, h_error), EAGAIN);
HOOK(int, gethostbyname2_r,
     (const char *name, int family, host_t *host, char *buf, size_t sz, host_t **found,
      int *h_error),
     (name, family, host, buf, sz, found, h_error), EAGAIN);
HOOK(int, gethostbyaddr_r,
     (const void *address, socklen_t address_sz, int family, host_t *host, char *buf, size_t sz,
      host_t **found, int *h_error),
     (address, address_sz, family, host, buf, sz, found, h_error), EAGAIN);

static void ask(const question_t *q, answer_t *a)
{
    if (q->name == NULL) {
        a->error = real_gethostbyaddr_r(q->address, q->address_sz, q->family, &a->host, a->buf,
                                        a->sz, &a->found, &a->h_error);
    } else if (q->family == AF_UNSPEC) {
        a->error = real_gethostbyname_r(q->name, &a->host, a->buf, a->sz, &a->found, &a->h_error);
    } else {
        a->error = real_gethostbyname2_r(q->name, q->family, &a->host, a->buf, a->sz, &a->found,
                                         &a->h_error);
    }
}

static void *do_look_up(void *arg)
{
    look_up_t *l = (look_up_t *)arg;
    ask(&l->question, &l->answer);
    return l;
}

/* Whether libc answers without asking anyone. */
static int is_numeric(const char *name)
{
    struct in6_addr address;
    return inet_aton(name, (struct in_addr *)&address) != 0 ||
           inet_pton(AF_INET6, name, &address) == 1;
}

/* Moves a pointer into the buffer of `from` to the same place in that of `to`; others remain. */
static void *moved(void *ptr, const answer_t *from, const answer_t *to)
{
    uintptr_t place = (uintptr_t)ptr - (uintptr_t)from->buf;
    return ptr != NULL && place < from->sz ? to->buf + place : ptr;
}

static char **moved_list(char **list, const answer_t *from, const answer_t *to)
{
    char **copy = (char **)moved(list, from, to);
    for (char **item = copy; copy != list && *item != NULL; item++) {
        *item = (char *)moved(*item, from, to);
    }
    return copy;
}

static void copy_answer(const answer_t *from, answer_t *to)
{
    memcpy(to->buf, from->buf, from->sz);
    to->error = from->error;
    to->h_error = from->h_error;
    to->found = from->found == NULL ? NULL : &to->host;
    if (to->found != NULL) {
        to->host = from->host;
        to->host.h_name = (char *)moved(from->host.h_name, from, to);
        to->host.h_aliases = moved_list(from->host.h_aliases, from, to);
        to->host.h_addr_list = moved_list(from->host.h_addr_list, from, to);
    }
}

/* A copy of the question, with room for an answer that is aligned like the caller's. */
static look_up_t *new_look_up(const question_t *question, const answer_t *answer)
{
    const void *text = question->name != NULL ? question->name : question->address;
    size_t text_sz = question->name != NULL ? strlen(question->name) + 1 : question->address_sz;
    look_up_t *l = (look_up_t *)aco_i_allocate(sizeof(*l) + text_sz + ALIGNMENT + answer->sz);
    if (l == NULL) {
        return NULL;
    }
    l->question = *question;
    if (question->name != NULL) {
        l->question.name = l->text;
    } else {
        l->question.address = l->text;
    }
    memcpy(l->text, text, text_sz);
    l->answer = *answer;
    l->answer.found = NULL;
    l->answer.buf = l->text + text_sz;
    l->answer.buf += ((uintptr_t)answer->buf - (uintptr_t)l->answer.buf) % ALIGNMENT;
    return l;
}

static void fail(answer_t *answer, int error)
{
    answer->found = NULL;
    answer->h_error = NETDB_INTERNAL;
    answer->error = errno = error;
}

static void look_up(const question_t *question, answer_t *answer);

/* Answers a look-up that has failed with errno, perhaps by another one. */
static void look_up_again(const question_t *question, answer_t *answer)
{
    if (!aco_i_goes_on(question->caller)) {
        fail(answer, errno);
        return;
    }
    aco_shielded
    {
        look_up(question, answer);
    }
}

/* Like ask(), but the task waits. If the wait fails, errno says why. */
static void look_up(const question_t *question, answer_t *answer)
{
    if (question->name != NULL && is_numeric(question->name)) {
        ask(question, answer);
        return;
    }
    look_up_t *l = new_look_up(question, answer);
    if (l == NULL) {
        fail(answer, ENOMEM);
        return;
    }
    void *result;
    aco_i_look_up_t offload = __atomic_load_n(&aco_i_look_up, __ATOMIC_RELAXED);
    outcome_t outcome = offload(do_look_up, l, aco_i_release, &result);
    if (outcome != WAIT_EVENT) {
        aco_i_result(outcome);
        look_up_again(question, answer);
        return;
    }
    KEEP_ERRNO();
    copy_answer(&l->answer, answer);
    aco_i_release(l);
}

/* ==== With the caller's buffer =============================================================== */

static int look_up_into(const question_t *question, host_t *host, char *buf, size_t sz,
                        host_t **found, int *h_error)
{
    answer_t answer = {.buf = buf, .sz = sz, .h_error = *h_error};
    look_up(question, &answer);
    *found = NULL;
    *h_error = answer.h_error;
    if (answer.found != NULL) {
        *host = answer.host;
        *found = host;
    }
    return answer.error;
}

int hook_gethostbyname_r(const char *name, host_t *host, char *buf, size_t sz, host_t **found,
                         int *h_error)
{
    question_t question = {.name = name, .caller = CALLER};
    return is_in_task() ? look_up_into(&question, host, buf, sz, found, h_error)
                        : real_gethostbyname_r(name, host, buf, sz, found, h_error);
}

int hook_gethostbyname2_r(const char *name, int family, host_t *host, char *buf, size_t sz,
                          host_t **found, int *h_error)
{
    question_t question = {.name = name, .family = family, .caller = CALLER};
    return is_in_task() ? look_up_into(&question, host, buf, sz, found, h_error)
                        : real_gethostbyname2_r(name, family, host, buf, sz, found, h_error);
}

int hook_gethostbyaddr_r(const void *address, socklen_t address_sz, int family, host_t *host,
                         char *buf, size_t sz, host_t **found, int *h_error)
{
    question_t question = {
        .address = address, .address_sz = address_sz, .family = family, .caller = CALLER};
    return is_in_task()
               ? look_up_into(&question, host, buf, sz, found, h_error)
               : real_gethostbyaddr_r(address, address_sz, family, host, buf, sz, found, h_error);
}

/* ==== With the task's ======================================================================== */

static int grow(kept_t *k)
{
    size_t sz = k->sz == 0 ? FIRST_SZ : k->sz * 2;
    char *buf = (char *)aco_i_allocate(sz);
    if (buf == NULL) {
        return -1;
    }
    aco_i_release(k->buf);
    k->buf = buf;
    k->sz = sz;
    return 0;
}

static host_t *look_up_for_task(const question_t *question)
{
    kept_t *k = kept();
    k = k != NULL ? k : begin_to_keep();
    int has_failed = k == NULL || (k->buf == NULL && grow(k) != 0);
    answer_t answer = {.error = ERANGE};
    while (!has_failed) {
        answer.buf = k->buf;
        answer.sz = k->sz;
        look_up(question, &answer);
        if (answer.error != ERANGE || answer.h_error != NETDB_INTERNAL) {
            break;
        }
        has_failed = grow(k) != 0;
    }
    if (has_failed) {
        errno = ENOMEM;
        answer.h_error = NETDB_INTERNAL;
        answer.found = NULL;
    }
    if (answer.found == NULL) {
        set_h_error(answer.h_error);
        return NULL;
    }
    k->host = answer.host;
    return &k->host;
}

HOOK(host_t *, gethostbyname, (const char *name), (name), NULL)
{
    question_t question = {.name = name, .caller = CALLER};
    return is_in_task() ? look_up_for_task(&question) : real_gethostbyname(name);
}

HOOK(host_t *, gethostbyname2, (const char *name, int family), (name, family), NULL)
{
    question_t question = {.name = name, .family = family, .caller = CALLER};
    return is_in_task() ? look_up_for_task(&question) : real_gethostbyname2(name, family);
}

HOOK(host_t *, gethostbyaddr, (const void *address, socklen_t address_sz, int family),
     (address, address_sz, family), NULL)
{
    question_t question = {
        .address = address, .address_sz = address_sz, .family = family, .caller = CALLER};
    return is_in_task() ? look_up_for_task(&question)
                        : real_gethostbyaddr(address, address_sz, family);
}
