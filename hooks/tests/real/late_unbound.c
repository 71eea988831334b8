// SPDX-License-Identifier: Apache-2.0
/* libunbound: a server that answers late, in a thread. */
#include "late.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unbound.h>
#include <unistd.h>

static int server, is_silent = 1, ct_names; /* the first two are atomic */
static char address[40];

/* Answers each question by the address 10.0.0.1, or not at all. */
static void *serve(void *unused)
{
    static const unsigned char answer[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 10, 0, 0, 1};
    unsigned char message[600];
    for (;;) {
        struct sockaddr_in peer;
        socklen_t peer_sz = sizeof(peer);
        ssize_t sz = recvfrom(server, message, 512, 0, (struct sockaddr *)&peer, &peer_sz);
        size_t end = 12;
        while (sz > 12 && message[end] != 0) {
            end += message[end] + 1u;
        }
        end += 5;
        if (sz < (ssize_t)end || __atomic_load_n(&is_silent, __ATOMIC_SEQ_CST)) {
            continue;
        }
        message[2] = 0x84;
        message[3] = 0x80;
        message[7] = 1;
        memset(message + 8, 0, 4);
        memcpy(message + end, answer, sizeof(answer));
        sendto(server, message, end + sizeof(answer), 0, (struct sockaddr *)&peer, peer_sz);
    }
    return unused;
}

static void begin(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t sz = sizeof(a);
    pthread_t thread;
    server = socket(AF_INET, SOCK_DGRAM, 0);
    if (bind(server, (struct sockaddr *)&a, sz) != 0) {
        perror("bind");
    }
    getsockname(server, (struct sockaddr *)&a, &sz);
    snprintf(address, sizeof(address), "127.0.0.1@%d", ntohs(a.sin_port));
    pthread_create(&thread, NULL, serve, NULL);
}

static void wait(char *text, size_t sz)
{
    char name[40];
    struct ub_result *result = NULL;
    struct ub_ctx *context = ub_ctx_create();
    ub_ctx_set_option(context, "do-not-query-localhost:", "no");
    ub_ctx_set_option(context, "module-config:", "iterator");
    ub_ctx_set_fwd(context, address);
    snprintf(name, sizeof(name), "h%d.example.org", ct_names++);
    int error = ub_resolve(context, name, 1, 1, &result);
    snprintf(text, sz, "resolve %s, data %d", ub_strerror(error),
             error == 0 ? result->havedata : -1);
    ub_resolve_free(result);
    ub_ctx_delete(context);
    __atomic_store_n(&is_silent, 1, __ATOMIC_SEQ_CST);
}

static void release(void)
{
    __atomic_store_n(&is_silent, 0, __ATOMIC_SEQ_CST);
}

static int works(void)
{
    char text[100];
    release();
    wait(text, sizeof(text));
    return strstr(text, "data 1") != NULL;
}

const late_t late = {begin, wait, release, works};
