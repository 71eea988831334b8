// SPDX-License-Identifier: Apache-2.0
/* libldap and slapd. */
#include "real.h"

#include <ldap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#define SUFFIX "dc=test"
#define ROOT "cn=admin," SUFFIX
#define PEOPLE "ou=people," SUFFIX /* forty of them, made by servers.sh */

enum { BIG_SZ = 200000, CT_ASYNC = 30, PAGE_SZ = 7, FOR_EVER = 3600 };

static LDAP *dial_for(int to, int seconds, int us)
{
    LDAP *ldap = NULL;
    char url[TEXT_SZ];
    int version = LDAP_VERSION3;
    struct timeval t = {seconds, us};
    snprintf(url, sizeof(url), "ldap://" HOST ":%d", to);
    CHECK(ldap_initialize(&ldap, url) == LDAP_SUCCESS);
    ldap_set_option(ldap, LDAP_OPT_PROTOCOL_VERSION, &version);
    ldap_set_option(ldap, LDAP_OPT_NETWORK_TIMEOUT, &t);
    ldap_set_option(ldap, LDAP_OPT_TIMEOUT, &t);
    return ldap;
}

static int enter(LDAP *ldap, const char *name, const char *password)
{
    struct berval secret = {strlen(password), (char *)(uintptr_t)password};
    return ldap_sasl_bind_s(ldap, name, LDAP_SASL_SIMPLE, &secret, NULL, NULL, NULL);
}

static LDAP *dial(void)
{
    LDAP *ldap = dial_for(port, FOR_EVER, 0);
    CHECK(enter(ldap, ROOT, "secret") == LDAP_SUCCESS);
    return ldap;
}

static void leave(LDAP *ldap)
{
    ldap_unbind_ext_s(ldap, NULL, NULL);
}

static void tell_code(job_t *job, int code)
{
    tell(job, "[%d %s] ", code, ldap_err2string(code));
}

/* ==== Entries ================================================================================ */

/* Adds or changes the entry of this name. */
static int put(LDAP *ldap, const char *dn, const char *name, char *bytes, size_t sz, int is_new)
{
    struct berval text = {sz, bytes}, *texts[] = {&text, NULL};
    char *classes[] = {"person", NULL}, *names[] = {(char *)(uintptr_t)name, NULL};
    LDAPMod class = {LDAP_MOD_ADD, "objectClass", {classes}}, cn = {LDAP_MOD_ADD, "cn", {names}};
    LDAPMod sn = {LDAP_MOD_ADD, "sn", {names}};
    LDAPMod value = {LDAP_MOD_REPLACE | LDAP_MOD_BVALUES, "description", {NULL}};
    LDAPMod *whole[] = {&class, &cn, &sn, &value, NULL}, *change[] = {&value, NULL};
    value.mod_bvalues = texts;
    if (is_new) {
        value.mod_op = LDAP_MOD_ADD | LDAP_MOD_BVALUES;
        return ldap_add_ext_s(ldap, dn, whole, NULL, NULL);
    }
    return ldap_modify_ext_s(ldap, dn, change, NULL, NULL);
}

static int search(LDAP *ldap, const char *base, const char *filter, int limit, LDAPMessage **found)
{
    return ldap_search_ext_s(ldap, base, LDAP_SCOPE_SUBTREE, filter, NULL, 0, NULL, NULL, NULL,
                             limit, found);
}

static void ask(job_t *job, LDAP *ldap, const char *base, const char *filter, int limit)
{
    LDAPMessage *found = NULL;
    int code = search(ldap, base, filter, limit, &found);
    tell_code(job, code);
    tell(job, "[%d found] ", code == LDAP_SUCCESS ? ldap_count_entries(ldap, found) : 0);
    ldap_msgfree(found);
}

/* Whether this is the description of an entry. */
static int holds(LDAP *ldap, const char *dn, const char *bytes, size_t sz)
{
    LDAPMessage *found = NULL;
    struct berval **values = NULL;
    int is_same = 0;
    if (search(ldap, dn, "(objectClass=*)", 0, &found) == LDAP_SUCCESS) {
        values = ldap_get_values_len(ldap, ldap_first_entry(ldap, found), "description");
        is_same = ldap_count_values_len(values) == 1 && values[0]->bv_len == sz &&
                  memcmp(values[0]->bv_val, bytes, sz) == 0;
    }
    ldap_value_free_len(values);
    ldap_msgfree(found);
    return is_same;
}

static void talk_of_one(job_t *job, LDAP *ldap)
{
    char name[TEXT_SZ], dn[2 * TEXT_SZ], *big = (char *)malloc(BIG_SZ);
    struct berval text = {3, "new"};
    snprintf(name, sizeof(name), "talk%d", job->number);
    snprintf(dn, sizeof(dn), "cn=%s," SUFFIX, name);
    fill(big, BIG_SZ, (unsigned)job->number);
    ldap_delete_ext_s(ldap, dn, NULL, NULL);
    tell_code(job, put(ldap, dn, name, big, BIG_SZ, 1));
    tell_code(job, put(ldap, dn, name, big, BIG_SZ, 1));
    CHECK(holds(ldap, dn, big, BIG_SZ));
    tell_code(job, put(ldap, dn, name, "new", 3, 0));
    CHECK(holds(ldap, dn, "new", 3));
    tell_code(job, ldap_compare_ext_s(ldap, dn, "description", &text, NULL, NULL));
    tell_code(job, ldap_delete_ext_s(ldap, dn, NULL, NULL));
    tell_code(job, ldap_delete_ext_s(ldap, dn, NULL, NULL));
    free(big);
}

/* Many questions before the first answer. */
static void talk_at_once(job_t *job, LDAP *ldap)
{
    int ids[CT_ASYNC], ct = 0;
    for (int i = 0; i < CT_ASYNC; i++) {
        char filter[TEXT_SZ];
        snprintf(filter, sizeof(filter), "(cn=person %d)", i);
        CHECK(ldap_search_ext(ldap, PEOPLE, LDAP_SCOPE_SUBTREE, filter, NULL, 0, NULL, NULL, NULL,
                              0, &ids[i]) == LDAP_SUCCESS);
    }
    for (int i = CT_ASYNC; i-- > 0;) {
        LDAPMessage *found = NULL;
        CHECK(ldap_result(ldap, ids[i], LDAP_MSG_ALL, NULL, &found) > 0);
        ct += ldap_count_entries(ldap, found);
        ldap_msgfree(found);
    }
    tell(job, "[%d at once] ", ct);
}

static void talk_in_pages(job_t *job, LDAP *ldap)
{
    struct berval cookie = {0, NULL};
    int ct_pages = 0, ct = 0;
    do {
        LDAPControl *page = NULL, *in[2] = {NULL, NULL}, **out = NULL;
        LDAPMessage *found = NULL;
        ber_int_t estimate;
        CHECK(ldap_create_page_control(ldap, PAGE_SZ, &cookie, 0, &page) == LDAP_SUCCESS);
        in[0] = page;
        CHECK(ldap_search_ext_s(ldap, PEOPLE, LDAP_SCOPE_ONELEVEL, "(cn=*)", NULL, 0, in, NULL,
                                NULL, 0, &found) == LDAP_SUCCESS);
        CHECK(ldap_parse_result(ldap, found, NULL, NULL, NULL, NULL, &out, 0) == LDAP_SUCCESS);
        ber_memfree(cookie.bv_val);
        CHECK(ldap_parse_pageresponse_control(
                  ldap, ldap_control_find(LDAP_CONTROL_PAGEDRESULTS, out, NULL), &estimate,
                  &cookie) == LDAP_SUCCESS);
        ct += ldap_count_entries(ldap, found);
        ct_pages++;
        ldap_controls_free(out);
        ldap_control_free(page);
        ldap_msgfree(found);
    } while (cookie.bv_len != 0);
    ber_memfree(cookie.bv_val);
    tell(job, "[%d in %d pages] ", ct, ct_pages);
}

/* ==== Talks ================================================================================== */

static void talk_in_vain(job_t *job, int to, const char *password)
{
    LDAP *ldap = dial_for(to, to == port ? FOR_EVER : 0, 100000);
    tell_code(job, enter(ldap, ROOT, password));
    leave(ldap);
}

static void talk(job_t *job)
{
    LDAP *ldap = dial();
    ask(job, ldap, PEOPLE, "(cn=person 7)", 0);
    ask(job, ldap, PEOPLE, "(cn=*)", 0);
    ask(job, ldap, PEOPLE, "(cn=*)", 5);
    ask(job, ldap, "ou=nothing," SUFFIX, "(cn=*)", 0);
    ask(job, ldap, PEOPLE, "(cn=*", 0);
    talk_of_one(job, ldap);
    talk_at_once(job, ldap);
    talk_in_pages(job, ldap);
    leave(ldap);
    talk_in_vain(job, port, "wrong");
    talk_in_vain(job, silent_port, "secret");
    talk_in_vain(job, REFUSED_PORT, "secret");
}

static void wait(job_t *job)
{
    LDAP *ldap = dial_for(port, FOR_EVER, 0);
    about_to_wait();
    aco_within(patience)
    {
        tell_code(job, enter(ldap, ROOT, "secret"));
    }
    leave(ldap);
}

static void session(job_t *job, unsigned *seed)
{
    LDAP *ldap = dial();
    char name[TEXT_SZ], dn[2 * TEXT_SZ];
    snprintf(name, sizeof(name), "load%d", job->number);
    snprintf(dn, sizeof(dn), "cn=%s," SUFFIX, name);
    for (int ct = rand_r(seed) % 10, i = 0; i < ct; i++) {
        size_t sz = (size_t)rand_r(seed) % (rand_r(seed) % 4 ? 100 : 100000) + 1;
        char *text = (char *)malloc(sz);
        fill(text, sz, *seed);
        CHECK(put(ldap, dn, name, text, sz, i == 0) == LDAP_SUCCESS);
        CHECK(holds(ldap, dn, text, sz));
        free(text);
        if (i == ct - 1) {
            CHECK(ldap_delete_ext_s(ldap, dn, NULL, NULL) == LDAP_SUCCESS);
        }
    }
    leave(ldap);
}

/* The first use of the library makes the data that all connections share. */
static void init(void)
{
    leave(dial_for(port, FOR_EVER, 0));
}

const library_t library = {talk, wait, NULL, NULL, NULL, session, init};
