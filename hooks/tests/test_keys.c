// SPDX-License-Identifier: Apache-2.0
// built by hooks/tests/test_hooks.sh, where there is OpenSSL
// build: -lssl -lcrypto
/*
 * The owners of values of pthread keys. OpenSSL keeps its queue of errors in one: an error of one
 * task must not show in another. With the argument "shared", the keys are the thread's, and the
 * error shows.
 */
#include "threads.h"

#include "aco_hooks.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <search.h>

/* ==== Values ================================================================================= */

static pthread_key_t keys[40];
static int ct_destroyed;

/* Uses keys, and sets a value again, which causes another round. */
static void destroy(void *value)
{
    CHECK(pthread_getspecific(keys[0]) == NULL);
    if (++ct_destroyed == 1) {
        CHECK(pthread_setspecific(keys[0], value) == 0);
    }
}

static void *has_own_values(void *arg)
{
    CHECK(pthread_getspecific(keys[0]) == NULL);
    CHECK(pthread_getspecific(keys[30]) == NULL);
    CHECK(pthread_setspecific(keys[0], arg) == 0);
    CHECK(pthread_setspecific(keys[30], &ct_failed) == 0);
    CHECK(pthread_getspecific(keys[0]) == arg);
    let_run();
    CHECK(pthread_getspecific(keys[0]) == arg);
    CHECK(pthread_getspecific(keys[30]) == &ct_failed);
    CHECK(pthread_setspecific(keys[30], NULL) == 0);
    return arg;
}

static void *has_two_tasks(void *arg)
{
    aco_task_t *a = aco_spawn(has_own_values, keys), *b = aco_spawn(has_own_values, &ct_destroyed);
    CHECK(aco_join(a, NULL) == 0);
    CHECK(aco_join(b, NULL) == 0);
    return arg;
}

/* Deletes key 1; another key gets its number. */
static void *has_no_old_value(void *arg)
{
    pthread_key_t before = keys[1];
    CHECK(pthread_setspecific(keys[1], arg) == 0);
    CHECK(pthread_key_delete(keys[1]) == 0);
    CHECK(pthread_setspecific(before, arg) == EINVAL);
    CHECK(pthread_getspecific(before) == NULL);
    CHECK(pthread_key_create(&keys[1], destroy) == 0);
    CHECK(keys[1] == before && pthread_getspecific(keys[1]) == NULL);
    return arg;
}

static void keys_of_named_libraries_are_the_tasks(void **state)
{
    (void)state;
    int value;
    assert_int_equal(aco_hooks_own_keys("libother test_keys"), 0);
    assert_int_equal(aco_hooks_own_keys("libanother"), 0); /* each is added */
    for (size_t i = 0; i < ARRAY_SZ(keys); i++) {
        assert_int_equal(pthread_key_create(&keys[i], destroy), 0);
    }
    assert_int_equal(pthread_setspecific(keys[0], &value), 0);
    run_tasks(has_two_tasks, NULL);
    assert_ptr_equal(pthread_getspecific(keys[0]), &value);
    assert_int_equal(ct_destroyed, 3);
    run_tasks(has_no_old_value, &value);
    assert_int_equal(ct_destroyed, 3);
    assert_int_equal(pthread_setspecific(keys[0], NULL), 0);
}

static void *has_none(void *key)
{
    CHECK(pthread_getspecific(*(pthread_key_t *)key) == NULL);
    return key;
}

/* lfind() calls pthread_key_create(&of_libc, destroy), in place of a comparison. */
static void keys_of_named_libraries_may_be_made_by_libc(void **state)
{
    (void)state;
    static pthread_key_t of_libc;
    int (*make)(pthread_key_t *, void (*)(void *)) = pthread_key_create;
    int (*compare)(const void *, const void *);
    const void *second;
    void (*destructor)(void *) = destroy;
    size_t ct = 1;
    memcpy(&compare, &make, sizeof(compare));
    memcpy(&second, &destructor, sizeof(second));
    assert_int_equal(aco_hooks_own_keys("test_keys"), 0);
    assert_ptr_equal(lfind(&of_libc, second, &ct, 1, compare), second);
    assert_int_equal(pthread_setspecific(of_libc, &ct), 0);
    run_tasks(has_none, &of_libc);
    assert_int_equal(pthread_setspecific(of_libc, NULL), 0);
    assert_int_equal(pthread_key_delete(of_libc), 0);
}

static void *has_the_threads_value(void *key)
{
    CHECK(pthread_getspecific(*(pthread_key_t *)key) == key);
    return NULL;
}

static void other_keys_are_the_threads(void **state)
{
    (void)state;
    pthread_key_t key;
    assert_int_equal(aco_hooks_set_own_keys("libcrypto"), 0);
    assert_int_equal(aco_hooks_own_keys(NULL), -1);
    assert_int_equal(aco_hooks_set_own_keys(NULL), -1);
    assert_int_equal(pthread_key_create(&key, NULL), 0);
    assert_int_equal(pthread_setspecific(key, &key), 0);
    run_tasks(has_the_threads_value, &key);
    assert_int_equal(pthread_key_delete(key), 0);
}

/* ==== OpenSSL ================================================================================ */

static SSL_CTX *server_context, *client_context;

/* Makes contexts with a self-signed certificate. */
static void make_contexts(void)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -1000);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 100000);
    X509_set_pubkey(certificate, key);
    X509_sign(certificate, key, EVP_sha256());
    server_context = SSL_CTX_new(TLS_server_method());
    client_context = SSL_CTX_new(TLS_client_method());
    assert_int_equal(SSL_CTX_use_certificate(server_context, certificate), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(server_context, key), 1);
    SSL_CTX_set_num_tickets(server_context, 0);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

typedef enum { IS_SILENT, SENDS_GARBAGE, TRUNCATES, HAS_A_BAD_CERTIFICATE, CT_PEERS } manner_t;

typedef struct {
    manner_t manner;
    int fd;
} peer_t;

/* Runs on a thread of its own. */
static void *serves(void *arg)
{
    const peer_t *peer = (const peer_t *)arg;
    static const char garbage[64] = "GET / HTTP/1.0", record[] = {23, 3, 3, 1, 0, 'x'};
    char byte;
    SSL *ssl = SSL_new(server_context);
    SSL_set_fd(ssl, peer->fd);
    if (SSL_accept(ssl) == 1) {
        if (peer->manner == SENDS_GARBAGE) {
            CHECK(write(peer->fd, garbage, sizeof(garbage)) == sizeof(garbage));
        } else if (peer->manner == TRUNCATES) {
            CHECK(write(peer->fd, record, sizeof(record)) == sizeof(record));
            shutdown(peer->fd, SHUT_WR);
        }
        while (read(peer->fd, &byte, 1) > 0) { /* until the client closes */
        }
    }
    SSL_free(ssl);
    close(peer->fd);
    return NULL;
}

/* A client's connection, on which a thread answers. */
typedef struct {
    peer_t peer;
    pthread_t thread;
    SSL *ssl;
    int fd;
} client_t;

static void begin(client_t *client, manner_t manner)
{
    int fds[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    client->peer = (peer_t){manner, fds[1]};
    client->fd = fds[0];
    client->ssl = SSL_new(client_context);
    SSL_set_fd(client->ssl, client->fd);
    SSL_set_verify(client->ssl, manner == HAS_A_BAD_CERTIFICATE ? SSL_VERIFY_PEER : SSL_VERIFY_NONE,
                   NULL);
    CHECK(pthread_create(&client->thread, NULL, serves, &client->peer) == 0);
}

static void end(client_t *client)
{
    SSL_free(client->ssl);
    close(client->fd);
    aco_shielded
    {
        CHECK(pthread_join(client->thread, NULL) == 0);
    }
}

static int must_be_shared; /* the queue of errors */

/* The wait is cancelled after the other task has failed; cancelling is no error of SSL's. */
static void *is_in_the_middle_of_a_read(void *arg)
{
    client_t client;
    char byte;
    begin(&client, IS_SILENT);
    CHECK(SSL_connect(client.ssl) == 1);
    stage = 1;
    int result = SSL_read(client.ssl, &byte, 1);
    CHECK(result < 0);
    CHECK(SSL_get_error(client.ssl, result) ==
          (must_be_shared ? SSL_ERROR_SSL : SSL_ERROR_SYSCALL));
    CHECK((ERR_peek_error() != 0) == must_be_shared);
    end(&client);
    return arg;
}

static void *has_a_bad_peer(void *arg)
{
    client_t client;
    char byte;
    begin(&client, *(manner_t *)arg);
    int result = SSL_connect(client.ssl);
    CHECK((result == 1) == (client.peer.manner != HAS_A_BAD_CERTIFICATE));
    if (result == 1) {
        result = SSL_read(client.ssl, &byte, 1);
    }
    CHECK(result <= 0 && ERR_peek_error() != 0);
    stage = 2;
    wait_for_stage(3);
    CHECK(ERR_peek_error() != 0); /* still there */
    end(&client);
    return arg;
}

static void *has_both(void *arg)
{
    stage = 0;
    ERR_clear_error();
    aco_task_t *good = aco_spawn(is_in_the_middle_of_a_read, NULL);
    wait_for_stage(1);
    aco_task_t *bad = aco_spawn(has_a_bad_peer, arg);
    wait_for_stage(2);
    aco_task_cancel(good);
    CHECK(aco_join(good, NULL) == 0);
    stage = 3;
    CHECK(aco_join(bad, NULL) == 0);
    return arg;
}

static void errors_of_openssl_are_the_tasks(void **state)
{
    (void)state;
    make_contexts();
    for (manner_t manner = SENDS_GARBAGE; manner < CT_PEERS; manner++) {
        run_tasks(has_both, &manner);
    }
    SSL_CTX_free(server_context);
    SSL_CTX_free(client_context);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest shared[] = {cmocka_unit_test(errors_of_openssl_are_the_tasks)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_of_openssl_are_the_tasks),
        cmocka_unit_test(keys_of_named_libraries_are_the_tasks),
        cmocka_unit_test(keys_of_named_libraries_may_be_made_by_libc),
        cmocka_unit_test(other_keys_are_the_threads),
    };
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1 && strcmp(argv[1], "shared") == 0) {
        must_be_shared = 1;
        aco_hooks_set_own_keys("");
        return cmocka_run_group_tests_name("a thread's queue", shared, NULL, NULL);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
