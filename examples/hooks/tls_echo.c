// tls_echo.c shows a TLS server over unmodified OpenSSL, with a task for each connection.
// SPDX-License-Identifier: Apache-2.0
// libraries: openssl
/*
 * OpenSSL reads and writes blocking sockets, as in a server with threads. At SIGINT or SIGTERM no
 * more clients are let in; those that are here get the rest of an echo that has begun, and TLS's
 * notice of the end, by which they know that nothing was cut off.
 */
#include "aco_runtime.h"

#include <err.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
#define PAUSE (SECOND / 10) /* after a client could not be let in */

static const char USAGE[] =
    "usage: tls_echo [-c FILE] [-k FILE] [-t SECONDS] [-i SECONDS] [-h] ADDRESS\n"
    "  -c FILE     with the certificate, and those of authorities up to a known one (cert.pem)\n"
    "  -k FILE     with its key (key.pem)\n"
    "  -t SECONDS  that a handshake may take, and an echo (10)\n"
    "  -i SECONDS  for which a client may be silent (60)\n"
    "  -h          this text\n"
    "  ADDRESS is as localhost:4433.\n";

static SSL_CTX *context;
static double limit = 10, idle_limit = 60; /* seconds */
static int ct_served, ct_refused;          /* clients */
static int is_ending;
static sigset_t end_signals;

/* ==== A client =============================================================================== */

/*
 * Waits for bytes from the client. This is where a client that is silent for too long is left, and
 * all of them when the server ends. It waits outside of OpenSSL, for which a call that failed would
 * end the connection: SSL_shutdown() could not say so to the client any more.
 */
static int await_input(SSL *ssl)
{
    int is_here = 0;
    aco_within((int64_t)(idle_limit * 1e9))
    {
        is_here = SSL_has_pending(ssl) || aco_wait_fd(SSL_get_fd(ssl), POLLIN) >= 0;
    }
    return is_here;
}

/* Returns 0 when the client has sent its last byte, or at a failure. A message that it has begun to
 * read is echoed, even if the server is about to end. */
static int echo(SSL *ssl)
{
    char bytes[4096];
    int is_done = 0;
    aco_shielded
    {
        aco_within((int64_t)(limit * 1e9))
        {
            int sz = SSL_read(ssl, bytes, sizeof(bytes));
            is_done = sz > 0 && SSL_write(ssl, bytes, sz) == sz;
        }
    }
    return is_done;
}

/* Tells the client that no more comes, and waits until it has closed: bytes that come after
 * close() would have the kernel reset the connection, and drop what is on its way. */
static void say_goodbye(SSL *ssl)
{
    char dropped[4096];
    aco_shielded
    {
        aco_within((int64_t)(limit * 1e9))
        {
            SSL_shutdown(ssl);
            aco_shutdown(SSL_get_fd(ssl), SHUT_WR);
            while (aco_read(SSL_get_fd(ssl), dropped, sizeof(dropped)) > 0) {
            }
        }
    }
}

static int shake_hands(SSL *ssl)
{
    int is_done = 0;
    aco_within((int64_t)(limit * 1e9))
    {
        is_done = SSL_accept(ssl) == 1;
    }
    return is_done;
}

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    SSL *ssl = SSL_new(context);
    if (ssl != NULL && SSL_set_fd(ssl, fd) == 1 && shake_hands(ssl)) {
        while (!is_ending && await_input(ssl) && echo(ssl)) {
        }
        say_goodbye(ssl);
        ct_served++;
    } else {
        ct_refused++;
    }
    SSL_free(ssl);
    aco_close(fd);
    return NULL;
}

/* ==== The server ============================================================================= */

/* Lets one in. Returns 0 once the task was cancelled. */
static int accept_one(int listener, aco_group_t *clients)
{
    int fd = aco_accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0 && aco_group_go(clients, serve, (void *)(intptr_t)fd) == 0) {
        return 1;
    }
    int error = errno;
    if (fd >= 0) {
        aco_close(fd);
    }
    if (error != ECANCELED) {
        warnx("a client has to wait: %s", strerror(error));
    }
    return aco_sleep(PAUSE) == 0;
}

/* Cancelling it cancels the clients, too: they are in a group that it has made. */
static void *accept_all(void *address)
{
    int listener = aco_listen("tcp", (const char *)address);
    aco_group_t *clients = aco_group_new();
    if (listener < 0 || clients == NULL) {
        err(1, "%s", (const char *)address);
    }
    while (accept_one(listener, clients)) {
    }
    aco_close(listener);
    aco_group_join(clients);
    return NULL;
}

static void *run(void *address)
{
    aco_task_t *acceptor = aco_spawn(accept_all, address);
    if (acceptor == NULL || aco_wait_signal(&end_signals, NULL) < 0) {
        err(1, "%s", (const char *)address);
    }
    sigprocmask(SIG_UNBLOCK, &end_signals, NULL); /* a second one ends the program at once */
    is_ending = 1;
    aco_task_cancel(acceptor);
    aco_join(acceptor, NULL);
    printf("%d clients served, %d refused\n", ct_served, ct_refused);
    return NULL;
}

/* ==== The program ============================================================================ */

static void make_context(const char *certificate, const char *key)
{
    context = SSL_CTX_new(TLS_server_method());
    if (context == NULL || SSL_CTX_use_certificate_chain_file(context, certificate) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1) {
        ERR_print_errors_fp(stderr);
        errx(1, "%s and %s are no certificate and key", certificate, key);
    }
}

int main(int argc, char **argv)
{
    int option;
    const char *certificate = "cert.pem", *key = "key.pem";
    while ((option = getopt(argc, argv, "c:k:t:i:h")) != -1) {
        if (option == 'c') {
            certificate = optarg;
        } else if (option == 'k') {
            key = optarg;
        } else if (option == 't') {
            limit = atof(optarg);
        } else if (option == 'i') {
            idle_limit = atof(optarg);
        } else {
            break;
        }
    }
    if (option != -1 || optind != argc - 1) {
        fputs(USAGE, option == 'h' ? stdout : stderr);
        return option == 'h' ? 0 : 2;
    }
    make_context(certificate, key);
    signal(SIGPIPE, SIG_IGN); /* OpenSSL writes by write() */
    sigemptyset(&end_signals);
    sigaddset(&end_signals, SIGINT);
    sigaddset(&end_signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &end_signals, NULL);
    if (aco_run(NULL, run, argv[optind], NULL) != 0) {
        err(1, "aco_run");
    }
    SSL_CTX_free(context);
    return 0;
}
