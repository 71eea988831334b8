// SPDX-License-Identifier: Apache-2.0
/*
 * Name look-ups. libc's functions block inside libc, so helper threads call them; numeric addresses
 * need no helper. A look-up uses only memory of its own, so that a deadline ends the wait for it at
 * once.
 */
#include "io/io.h"

#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

/* The EAI_ error of an outcome other than WAIT_EVENT. */
static int error_of(outcome_t outcome)
{
    aco_i_result(outcome);
    return EAI_SYSTEM;
}

static outcome_t look_up(void *(*fn)(void *), void *arg, void (*discard)(void *), void **result)
{
    return aco_i_offload(HELPERS_FOR_NAMES, fn, arg, discard, result);
}

aco_i_look_up_t aco_i_look_up = look_up;

static inline aco_i_look_up_t present_look_up(void)
{
    return __atomic_load_n(&aco_i_look_up, __ATOMIC_RELAXED);
}

/* ==== Addresses of a name ==================================================================== */

typedef struct {
    int error;
    struct addrinfo hints, *list;
    const char *node, *service; /* both in `text`, or NULL */
    char text[];
} lookup_t;

static void *do_lookup(void *arg)
{
    lookup_t *l = (lookup_t *)arg;
    l->error = aco_i_libc.getaddrinfo(l->node, l->service, &l->hints, &l->list);
    return l;
}

static void discard_lookup(void *arg)
{
    lookup_t *l = (lookup_t *)arg;
    if (l->error == 0) {
        freeaddrinfo(l->list);
    }
    aco_i_release(l);
}

static lookup_t *new_lookup(const char *node, const char *service, const struct addrinfo *hints)
{
    size_t node_sz = node != NULL ? strlen(node) + 1 : 0;
    size_t service_sz = service != NULL ? strlen(service) + 1 : 0;
    lookup_t *l = (lookup_t *)aco_i_allocate(sizeof(*l) + node_sz + service_sz);
    if (l == NULL) {
        return NULL;
    }
    *l = (lookup_t){EAI_AGAIN, *hints, NULL, NULL, NULL};
    if (node != NULL) {
        l->node = (const char *)memcpy(l->text, node, node_sz);
    }
    if (service != NULL) {
        l->service = (const char *)memcpy(l->text + node_sz, service, service_sz);
    }
    return l;
}

int aco_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                    struct addrinfo **list)
{
    need(list, "aco_getaddrinfo", "there is no place for the list: pass the address of a pointer");
    static const struct addrinfo defaults = {.ai_flags = AI_V4MAPPED | AI_ADDRCONFIG};
    struct addrinfo numeric = hints != NULL ? *hints : defaults;
    numeric.ai_flags |= AI_NUMERICHOST | AI_NUMERICSERV;
    int error = aco_i_libc.getaddrinfo(node, service, &numeric, list);
    if (error != EAI_NONAME || (node == NULL && service == NULL)) {
        return error;
    }
    lookup_t *l = new_lookup(node, service, hints != NULL ? hints : &defaults);
    if (l == NULL) {
        return EAI_MEMORY;
    }
    void *result;
    outcome_t outcome = present_look_up()(do_lookup, l, discard_lookup, &result);
    if (outcome != WAIT_EVENT) {
        return error_of(outcome);
    }
    *list = l->error == 0 ? l->list : *list;
    error = l->error;
    release_keeping_errno(l);
    return error;
}

/* ==== The name of an address ================================================================= */

typedef struct {
    int error, flags;
    struct sockaddr_storage address;
    socklen_t address_sz, host_sz, service_sz;
    char host[NI_MAXHOST], service[NI_MAXSERV];
} reverse_t;

static void *do_reverse(void *arg)
{
    reverse_t *r = (reverse_t *)arg;
    r->error = aco_i_libc.getnameinfo(
        (const struct sockaddr *)&r->address, r->address_sz, r->host_sz != 0 ? r->host : NULL,
        r->host_sz, r->service_sz != 0 ? r->service : NULL, r->service_sz, r->flags);
    return r;
}

static socklen_t least(socklen_t a, size_t b)
{
    return a < b ? a : (socklen_t)b;
}

int aco_getnameinfo(const struct sockaddr *address, socklen_t address_sz, char *host,
                    socklen_t host_sz, char *service, socklen_t service_sz, int flags)
{
    host_sz = host == NULL ? 0 : host_sz;
    service_sz = service == NULL ? 0 : service_sz;
    if (address == NULL || (((flags & NI_NUMERICHOST) != 0 || host_sz == 0) &&
                            ((flags & NI_NUMERICSERV) != 0 || service_sz == 0))) {
        return aco_i_libc.getnameinfo(address, address_sz, host, host_sz, service, service_sz,
                                      flags);
    }
    reverse_t *r = (reverse_t *)aco_i_allocate(sizeof(*r));
    if (r == NULL) {
        return EAI_MEMORY;
    }
    memset(r, 0, sizeof(*r));
    r->flags = flags;
    r->address_sz = least(address_sz, sizeof(r->address));
    memcpy(&r->address, address, r->address_sz);
    r->host_sz = least(host_sz, sizeof(r->host));
    r->service_sz = least(service_sz, sizeof(r->service));
    void *result;
    outcome_t outcome = present_look_up()(do_reverse, r, aco_i_release, &result);
    if (outcome != WAIT_EVENT) {
        return error_of(outcome);
    }
    int error = r->error;
    if (error == 0 && host_sz != 0) {
        memcpy(host, r->host, r->host_sz);
    }
    if (error == 0 && service_sz != 0) {
        memcpy(service, r->service, r->service_sz);
    }
    release_keeping_errno(r);
    return error;
}
