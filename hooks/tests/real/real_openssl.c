// SPDX-License-Identifier: Apache-2.0
/*
 * OpenSSL by its own calls, and nginx. Jobs are pairs: one meets a peer that misbehaves, and keeps
 * the error in its queue; the other is in the middle of a connection meanwhile, and must not see
 * the error. OWN_KEYS in the environment names the libraries of
 * aco_hooks_set_own_keys().
 */
#define _GNU_SOURCE
#include "real.h"

#include "aco_hooks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#pragma weak aco_hooks_set_own_keys /* the program of threads has no hooks */

enum { CT_MOST_PAIRS = 100 };

static int tls_port;
static SSL_CTX *knows_certificate, *knows_none;
static int pipes[CT_MOST_PAIRS][2][2]; /* for each pair, to the one and to the other */

/* ==== Connections ============================================================================ */

typedef struct {
    int fd;
    SSL *ssl;
} connection_t;

static void dial(connection_t *connection, SSL_CTX *context, int to)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)to)};
    struct timeval timeout = {.tv_usec = 200000};
    connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(connect(connection->fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    if (to == silent_port) {
        CHECK(setsockopt(connection->fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) == 0);
    }
    CHECK((connection->ssl = SSL_new(context)) != NULL);
    CHECK(SSL_set_fd(connection->ssl, connection->fd) == 1);
    CHECK(SSL_set1_host(connection->ssl, "localhost") == 1);
}

static void hang_up(connection_t *connection)
{
    SSL_free(connection->ssl);
    close(connection->fd);
}

/* Reports the result of a call, and the first error in the caller's queue. */
static void tell_end(job_t *job, connection_t *connection, int result)
{
    int error = SSL_get_error(connection->ssl, result);
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    tell(job, "[%d %d %s] ", result, error, reason != NULL ? reason : "no error");
}

static void send_request(connection_t *connection, const char *path)
{
    char request[TEXT_SZ];
    int sz = snprintf(request, sizeof(request), "GET /%s HTTP/1.0\r\n\r\n", path);
    CHECK(SSL_write(connection->ssl, request, sz) == sz);
}

/* Reads until `sz` bytes or the end have come, and reports their sum. */
static int read_answer(job_t *job, connection_t *connection, size_t sz)
{
    char buffer[10000];
    size_t done = 0;
    int ct = 1;
    while (done < sz && ct > 0) {
        size_t left = sz - done < sizeof(buffer) ? sz - done : sizeof(buffer);
        ct = SSL_read(connection->ssl, buffer, (int)left);
        done += ct > 0 ? (size_t)ct : 0;
    }
    tell(job, "[%zu bytes] ", done);
    return ct;
}

/* ==== Talk =================================================================================== */

static void fail_handshake(job_t *job, SSL_CTX *context, int to)
{
    connection_t connection;
    int result;
    ERR_clear_error();
    dial(&connection, context, to);
    result = SSL_connect(connection.ssl);
    CHECK(result <= 0);
    tell_end(job, &connection, result);
    hang_up(&connection);
}

static void signal_other(job_t *job)
{
    CHECK(write(pipes[job->number / 2][!(job->number % 2)][1], "x", 1) == 1);
}

static void await_other(job_t *job)
{
    char byte;
    CHECK(read(pipes[job->number / 2][job->number % 2][0], &byte, 1) == 1);
}

/* Leaves its error in the queue until the other one is done. */
static void misbehave(job_t *job)
{
    const char *reason;
    fail_handshake(job, knows_certificate, silent_port);
    fail_handshake(job, knows_none, tls_port);
    await_other(job);
    fail_handshake(job, knows_certificate, port); /* this port has no TLS */
    signal_other(job);
    await_other(job);
    reason = ERR_reason_error_string(ERR_peek_error());
    tell(job, "[still %s] ", reason != NULL ? reason : "no error");
    ERR_clear_error();
}

static void behave(job_t *job)
{
    connection_t connection;
    char byte;
    dial(&connection, knows_certificate, tls_port);
    CHECK(SSL_connect(connection.ssl) == 1);
    send_request(&connection, "medium");
    CHECK(read_answer(job, &connection, 100000) > 0);
    signal_other(job);
    await_other(job); /* the other one has an error now */
    while (SSL_read(connection.ssl, &byte, 1) > 0) {
        continue;
    }
    tell_end(job, &connection, 0);
    ERR_clear_error();
    signal_other(job);
    hang_up(&connection);
}

static void talk(job_t *job)
{
    if (job->number % 2 == 0) {
        misbehave(job);
    } else {
        behave(job);
    }
}

/* ==== Waits and load ========================================================================= */

static void wait(job_t *job)
{
    connection_t connection;
    char buffer[1000], byte;
    int result;
    dial(&connection, knows_certificate, tls_port);
    CHECK(SSL_connect(connection.ssl) == 1);
    send_request(&connection, "stay");
    do {
        CHECK((result = SSL_read(connection.ssl, buffer, sizeof(buffer))) > 0);
    } while (memmem(buffer, (size_t)result, "begin", 5) == NULL);
    about_to_wait();
    aco_within(patience)
    {
        while ((result = SSL_read(connection.ssl, &byte, 1)) > 0) {
            continue;
        }
    }
    tell_end(job, &connection, result);
    ERR_clear_error();
    hang_up(&connection);
}

static void prepare(void)
{
}

static void session(job_t *job, unsigned *seed)
{
    connection_t connection;
    for (int ct = rand_r(seed) % 10; ct > 0; ct--) {
        if (rand_r(seed) % 4 == 0) {
            fail_handshake(job, rand_r(seed) % 2 ? knows_none : knows_certificate, port);
            job->text[0] = '\0';
            continue;
        }
        dial(&connection, knows_certificate, tls_port);
        CHECK(SSL_connect(connection.ssl) == 1);
        send_request(&connection, "medium");
        CHECK(read_answer(job, &connection, (size_t)rand_r(seed) % 200000) > 0);
        job->text[0] = '\0';
        hang_up(&connection);
    }
    ERR_clear_error();
}

static SSL_CTX *make_context(const char *certificate)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    CHECK(context != NULL);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    CHECK(certificate == NULL || SSL_CTX_load_verify_locations(context, certificate, NULL) == 1);
    return context;
}

static void init(void)
{
    CHECK(getenv("OWN_KEYS") == NULL || aco_hooks_set_own_keys(getenv("OWN_KEYS")) == 0);
    CHECK(getenv("TLS_PORT") != NULL && getenv("CERTIFICATE") != NULL);
    tls_port = atoi(getenv("TLS_PORT"));
    knows_certificate = make_context(getenv("CERTIFICATE"));
    knows_none = make_context(NULL);
    for (int i = 0; i < CT_MOST_PAIRS; i++) {
        CHECK(pipe(pipes[i][0]) == 0 && pipe(pipes[i][1]) == 0);
    }
}

const library_t library = {talk, wait, prepare, NULL, NULL, session, init};
