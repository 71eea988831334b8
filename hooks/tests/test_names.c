// SPDX-License-Identifier: Apache-2.0
// built by hooks/tests/test_hooks.sh, with a library between it and libc
// build: -lslow_names
/* Name look-ups in tasks: they have libc's results. Results and h_errno are the task's own. */
#include "threads.h"

#include "aco_hooks.h"

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <malloc.h>
#include <netdb.h>
#include <resolv.h>

#define BAD_NAME "a..b" /* no server is asked for this */

/* In slow_names.c. */
extern int slow_names_may_go, slow_names_ct;

/* ==== The same as libc ======================================================================= */

typedef struct {
    int error, h_error, type;
    char text[1024];
} found_t;

static void describe(found_t *found, const struct hostent *host)
{
    char address[INET6_ADDRSTRLEN];
    found->text[0] = '\0';
    if (host == NULL) {
        return;
    }
    strcat(found->text, host->h_name);
    for (char **alias = host->h_aliases; *alias != NULL; alias++) {
        strcat(strcat(found->text, " aka "), *alias);
    }
    for (char **item = host->h_addr_list; *item != NULL; item++) {
        strcat(strcat(found->text, " at "),
               inet_ntop(host->h_addrtype, *item, address, sizeof(address)));
    }
    found->type = host->h_addrtype;
}

#define CT_BLOCKS 256

/* Writes to blocks of all sizes, so that memory which was freed no longer has its bytes. */
static void use_memory(void)
{
    void *blocks[CT_BLOCKS];
    for (size_t i = 0; i < CT_BLOCKS; i++) {
        blocks[i] = memset(malloc(16 * (i + 1)), 0xa5, 16 * (i + 1));
    }
    for (size_t i = 0; i < CT_BLOCKS; i++) {
        free(blocks[i]);
    }
}

/* Makes the look-up of this number, from 0, and keeps a description of its result. */
static int look_up(int number, found_t *found)
{
    static const unsigned char loopback[4] = {127, 0, 0, 1};
    static const char *const names[] = {"localhost", "127.0.0.1", BAD_NAME, "127.1"};
    struct hostent host, *result = NULL;
    char buf[1000] __attribute__((aligned(16)));
    size_t sz = number % 2 == 0 ? 1000 : 6;
    memset(found, 0, sizeof(*found));
    int kind = number / 8, name = number / 2 % 4;
    switch (kind) {
    case 0:
        found->error = gethostbyname_r(names[name], &host, buf, sz, &result, &found->h_error);
        break;
    case 1:
        found->error = gethostbyname2_r(names[name], AF_INET, &host, buf, sz, &result,
                                        &found->h_error);
        break;
    case 2:
        found->error = gethostbyaddr_r(loopback, 4, AF_INET, &host, buf, sz, &result,
                                       &found->h_error);
        break;
    case 3:
        result = gethostbyname(names[name]);
        found->h_error = result == NULL ? h_errno : 0;
        break;
    case 4:
        result = gethostbyname2(names[name], AF_INET);
        found->h_error = result == NULL ? h_errno : 0;
        break;
    case 5:
        result = gethostbyaddr(loopback, 4, name % 2 == 0 ? AF_INET : AF_INET6);
        found->h_error = result == NULL ? h_errno : 0;
        break;
    default:
        return 0;
    }
    use_memory();
    describe(found, result);
    return 1;
}

#define CT_LOOK_UPS 48
static found_t by_libc[CT_LOOK_UPS];

static void *compares(void *arg)
{
    found_t found;
    for (int i = 0; i < CT_LOOK_UPS; i++) {
        CHECK(look_up(i, &found));
        CHECK(memcmp(&found, &by_libc[i], offsetof(found_t, text)) == 0);
        CHECK(strcmp(found.text, by_libc[i].text) == 0);
    }
    return arg;
}

static void *compares_in_tasks(void *arg)
{
    aco_task_options_t options = {.shares_stack = 1};
    aco_task_t *tasks[4];
    for (size_t i = 0; i < ARRAY_SZ(tasks); i++) {
        options.shares_stack = i % 2 == 0;
        CHECK(aco_go_with(&options, compares, NULL, &tasks[i]) == 0);
    }
    for (size_t i = 0; i < ARRAY_SZ(tasks); i++) {
        CHECK(aco_join(tasks[i], NULL) == 0);
    }
    return arg;
}

static void look_ups_find_what_libc_finds(void **state)
{
    (void)state;
    for (int i = 0; i < CT_LOOK_UPS; i++) {
        assert_true(look_up(i, &by_libc[i]));
    }
    assert_non_null(strstr(by_libc[0].text, "127.0.0.1"));
    run_tasks(compares_in_tasks, NULL);
}

/* ==== The task's own ========================================================================= */

static void *looks_up_another(void *arg)
{
    struct hostent *host = gethostbyname("127.0.0.9");
    CHECK(host != NULL && strcmp(host->h_name, "127.0.0.9") == 0);
    aco_within(2 * MS)
    {
        errno = 0;
        CHECK(gethostbyname("slow.test") == NULL);
        CHECK(errno == ETIMEDOUT && h_errno == NETDB_INTERNAL);
    }
    return arg;
}

static void *keeps_its_results(void *arg)
{
    const struct hostent *host = gethostbyname("127.0.0.7");
    char text[INET_ADDRSTRLEN];
    CHECK(host != NULL);
    CHECK(aco_join(aco_spawn(looks_up_another, NULL), NULL) == 0);
    CHECK(strcmp(host->h_name, "127.0.0.7") == 0);
    inet_ntop(AF_INET, host->h_addr_list[0], text, sizeof(text));
    CHECK(strcmp(text, "127.0.0.7") == 0);
    CHECK(gethostbyname(BAD_NAME) == NULL);
    int h_error = h_errno;
    CHECK(h_error != NETDB_INTERNAL && h_error != 0);
    CHECK(aco_join(aco_spawn(looks_up_another, NULL), NULL) == 0);
    CHECK(h_errno == h_error);
    h_errno = NO_DATA;
    CHECK(aco_join(aco_spawn(looks_up_another, NULL), NULL) == 0);
    CHECK(h_errno == NO_DATA);
    return arg;
}

static void results_and_h_errno_are_the_tasks(void **state)
{
    (void)state;
    h_errno = TRY_AGAIN;
    run_tasks(keeps_its_results, NULL);
}

static void *looks_up_slowly(void *arg)
{
    struct addrinfo *list;
    CHECK(arg == NULL || res_init() == 0); /* now it has a state of its own */
    stage = 1;
    CHECK(getaddrinfo("slow.test", "80", NULL, &list) == EAI_SYSTEM && errno == ECANCELED);
    CHECK(gethostbyname("slow.test") == NULL && errno == ECANCELED);
    CHECK(getaddrinfo("127.0.0.1", "80", NULL, &list) == 0); /* does not wait */
    freeaddrinfo(list);
    CHECK(gethostbyname("127.0.0.1") != NULL);
    return arg;
}

static void *is_patient(void *arg)
{
    CHECK(gethostbyname("slow.test") == NULL && h_errno == HOST_NOT_FOUND);
    return arg;
}

static void *cancels(void *arg)
{
    stage = 0;
    __atomic_store_n(&slow_names_may_go, 0, __ATOMIC_SEQ_CST);
    aco_task_t *late = aco_spawn(looks_up_slowly, arg), *task = aco_spawn(is_patient, NULL);
    wait_for_stage(1);
    while (__atomic_load_n(&slow_names_ct, __ATOMIC_SEQ_CST) < 2) {
        aco_sleep(MS / 10);
    }
    aco_task_cancel(late);
    CHECK(aco_join(late, NULL) == 0);
    __atomic_store_n(&slow_names_may_go, 1, __ATOMIC_SEQ_CST);
    CHECK(aco_join(task, NULL) == 0);
    return arg;
}

static void *lets_names_go(void *arg)
{
    CHECK(aco_sleep(10 * MS) == 0);
    __atomic_store_n(&slow_names_may_go, 1, __ATOMIC_SEQ_CST);
    return arg;
}

/* The deadline passes, and a library that wants to wait has the answer all the same. */
static void *waits_past_its_deadline(void *arg)
{
    __atomic_store_n(&slow_names_may_go, 0, __ATOMIC_SEQ_CST);
    aco_task_t *other = aco_spawn(lets_names_go, NULL);
    aco_within(2 * MS)
    {
        CHECK(gethostbyname("slow.test") == NULL && h_errno == HOST_NOT_FOUND);
        CHECK_FAILS(aco_sleep(MS), ETIMEDOUT);
    }
    CHECK(aco_join(other, NULL) == 0);
    return arg;
}

/* ==== Memory ================================================================================= */

enum { CT_LEAVING = 300 };

static void *keeps_a_result(void *arg)
{
    CHECK(gethostbyname("127.0.0.5") != NULL);
    CHECK(arg == NULL || res_init() == 0);
    return NULL;
}

/* The bytes that malloc() has given after the tasks have ended; 0 under sanitizers. */
static size_t allocated_after_tasks(void *arg)
{
    for (int i = 0; i < CT_LEAVING; i++) {
        CHECK(aco_join(aco_spawn(keeps_a_result, arg), NULL) == 0);
    }
#if __GLIBC_PREREQ(2, 33)
    return mallinfo2().uordblks;
#else
    return 0;
#endif
}

static void *frees_what_it_keeps(void *arg)
{
    for (int i = 0; i < 2; i++) {
        size_t before = allocated_after_tasks(i == 0 ? NULL : by_libc);
        CHECK(allocated_after_tasks(i == 0 ? NULL : by_libc) < before + (size_t)CT_LEAVING * 20);
    }
    return arg;
}

static void tasks_free_what_they_keep(void **state)
{
    (void)state;
    run_tasks(frees_what_it_keeps, NULL);
}

/* ==== The state of the resolver ============================================================== */

/* Whether a query asks for recursion, which the state decides. */
static int is_recursive(void)
{
    unsigned char query[512];
    CHECK(res_mkquery(QUERY, "a.test", C_IN, T_A, NULL, 0, NULL, query, sizeof(query)) > 0);
    return query[2] & 1;
}

static void *has_its_own_state(void *is_set)
{
    CHECK(is_recursive() && res_init() == 0 && (_res.options & RES_RECURSE) != 0);
    if (is_set == NULL) {
        _res.options &= ~(unsigned long)RES_RECURSE;
    }
    let_run();
    CHECK(((_res.options & RES_RECURSE) != 0) == (is_set != NULL));
    CHECK(is_recursive() == (is_set != NULL));
    return is_set;
}

static void *has_two_states(void *arg)
{
    aco_task_t *a = aco_spawn(has_its_own_state, NULL),
               *b = aco_spawn(has_its_own_state, &slow_names_ct);
    CHECK(aco_join(a, NULL) == 0);
    CHECK(aco_join(b, NULL) == 0);
    return arg;
}

static void the_state_of_the_resolver_is_the_tasks(void **state)
{
    (void)state;
    run_tasks(has_two_states, NULL);
    assert_true(is_recursive());
}

static const char own_address[] = "10.1.2.3";

enum { CT_MANY = 100 };

/* A name server that has one address for names, and many for those that begin with "m". */
static void *serves_names(void *arg)
{
    int fd = (int)(intptr_t)arg;
    unsigned char text[512 + 16 * CT_MANY];
    struct sockaddr_in client;
    socklen_t sz = sizeof(client);
    ssize_t ct;
    while ((ct = recvfrom(fd, text, 512, 0, (struct sockaddr *)&client, &sz)) > 12) {
        static const unsigned char answer[] = {0xc0, 12, 0, T_A, 0, C_IN, 0, 0, 0, 1, 0, 4};
        int ct_answers = text[13] == 'm' ? CT_MANY : 1;
        ssize_t end = 12; /* of the question; what follows is dropped */
        while (text[end] != 0) {
            end += text[end] + 1;
        }
        end += 5;
        text[2] |= 0x80;                     /* an answer */
        text[7] = (unsigned char)ct_answers; /* other records: none */
        memset(text + 8, 0, 4);
        for (int i = 0; i < ct_answers; i++, end += (ssize_t)sizeof(answer) + 4) {
            memcpy(text + end, answer, sizeof(answer));
            CHECK(inet_pton(AF_INET, own_address, text + end + sizeof(answer)) == 1);
        }
        CHECK(sendto(fd, text, (size_t)end, 0, (struct sockaddr *)&client, sz) > 0);
        sz = sizeof(client);
    }
    return NULL;
}

static void *asks_its_own_server(void *arg)
{
    struct sockaddr_in server = {.sin_family = AF_INET}, *found;
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *list = NULL;
    socklen_t sz = sizeof(server);
    char text[INET_ADDRSTRLEN];
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&server, sz) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&server, &sz) == 0 && res_init() == 0);
    _res.nscount = 1;
    _res.nsaddr_list[0] = server;
    aco_task_t *task = aco_spawn(serves_names, (void *)(intptr_t)fd);
    CHECK(getaddrinfo("a.test", NULL, &hints, &list) == 0);
    found = list == NULL ? NULL : (struct sockaddr_in *)(void *)list->ai_addr;
    CHECK(found != NULL && inet_ntop(AF_INET, &found->sin_addr, text, sizeof(text)) != NULL &&
          strcmp(text, own_address) == 0);
    freeaddrinfo(list);
    const struct hostent *host = gethostbyname("b.test");
    CHECK(host != NULL && inet_ntop(AF_INET, host->h_addr, text, sizeof(text)) != NULL &&
          strcmp(text, own_address) == 0);
    host = gethostbyname("many.test"); /* larger than the task's first place for results */
    int ct = 0;
    while (host != NULL && host->h_addr_list[ct] != NULL) {
        ct++;
    }
    CHECK(ct == CT_MANY);
    strcpy(_res.defdname, "own.test");
    _res.dnsrch[0] = _res.defdname;
    _res.dnsrch[1] = NULL;
    host = gethostbyname("c"); /* the server answers by the name that it is asked for */
    CHECK(host != NULL && strcmp(host->h_name, "c.own.test") == 0);
    aco_task_cancel(task);
    CHECK(aco_join(task, NULL) == 0 && close(fd) == 0);
    return arg;
}

static void look_ups_use_the_state_of_the_task(void **state)
{
    (void)state;
    run_tasks(asks_its_own_server, NULL);
}

static void only_the_task_waits_and_can_be_cancelled(void **state)
{
    (void)state;
    run_tasks(cancels, NULL);
    run_tasks(cancels, by_libc);
    assert_int_equal(aco_hooks_on_deadline("test_names", ACO_HOOKS_WAIT), 0);
    run_tasks(waits_past_its_deadline, NULL);
    assert_int_equal(aco_hooks_on_deadline("test_names", ACO_HOOKS_ERROR), 0);
}

static void *looks_up_an_address(void *arg)
{
    char host[100];
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const struct sockaddr *a = (const struct sockaddr *)&address;
    CHECK(getnameinfo(a, sizeof(address), host, sizeof(host), NULL, 0, 0) == 0);
    CHECK(strcmp(host, (const char *)arg) == 0);
    return arg;
}

static void addresses_have_names(void **state)
{
    (void)state;
    char *name = strtok(by_libc[16].text, " ");
    assert_non_null(name);
    run_tasks(looks_up_an_address, name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(look_ups_find_what_libc_finds),
        cmocka_unit_test(results_and_h_errno_are_the_tasks),
        cmocka_unit_test(tasks_free_what_they_keep),
        cmocka_unit_test(addresses_have_names),
        cmocka_unit_test(the_state_of_the_resolver_is_the_tasks),
        cmocka_unit_test(look_ups_use_the_state_of_the_task),
        cmocka_unit_test(only_the_task_waits_and_can_be_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
