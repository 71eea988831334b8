// SPDX-License-Identifier: Apache-2.0
/*
 * A library between a program and libc. Its look-ups of "slow.test" block until the program lets
 * them go, and then find nothing.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

int slow_names_may_go; /* atomic */
int slow_names_ct;     /* atomic: look-ups that block */

static int is_slow(const char *name)
{
    if (name == NULL || strcmp(name, "slow.test") != 0) {
        return 0;
    }
    __atomic_add_fetch(&slow_names_ct, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&slow_names_may_go, __ATOMIC_SEQ_CST)) {
        usleep(500);
    }
    __atomic_sub_fetch(&slow_names_ct, 1, __ATOMIC_SEQ_CST);
    return 1;
}

/* Points `real` to the next function of a name. */
#define REAL(type, name, params)                                                                   \
    static type(*real) params;                                                                     \
    if (real == NULL) {                                                                            \
        void *next = dlsym(RTLD_NEXT, name);                                                       \
        memcpy(&real, &next, sizeof(real));                                                        \
    }

int gethostbyname_r(const char *name, struct hostent *host, char *buf, size_t sz,
                    struct hostent **found, int *h_error)
{
    REAL(int, "gethostbyname_r",
         (const char *, struct hostent *, char *, size_t, struct hostent **, int *))
    if (is_slow(name)) {
        *found = NULL;
        *h_error = HOST_NOT_FOUND;
        return 0;
    }
    return real(name, host, buf, sz, found, h_error);
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **list)
{
    REAL(int, "getaddrinfo",
         (const char *, const char *, const struct addrinfo *, struct addrinfo **))
    int is_numeric = hints != NULL && (hints->ai_flags & AI_NUMERICHOST) != 0;
    return !is_numeric && is_slow(node) ? EAI_NONAME : real(node, service, hints, list);
}
