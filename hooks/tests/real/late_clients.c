// SPDX-License-Identifier: Apache-2.0
/*
 * Clients of many libraries that wait for a server which takes connections, and does not answer.
 * Prints a row of the table in docs/hooks.md for each: what the call returns in a task whose
 * deadline comes, and in one that is cancelled; and what the same call with the same handle returns
 * without a limit, from the server that answers now.
 *
 *   PROGRAM [MS]   tasks are late or cancelled after so many ms
 */
#define _GNU_SOURCE
#include "aco_runtime.h"

#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <ares.h>
#include <cups/cups.h>
#include <git2.h>
#include <gio/gio.h>
#include <gnutls/gnutls.h>
#include <libsmbclient.h>
#include <libssh/libssh.h>
#include <librtmp/log.h>
#include <librtmp/rtmp.h>
#include <modbus/modbus.h>
#include <mosquitto.h>
#include <nats/nats.h>
#include <ne_request.h>
#include <ne_session.h>
#include <netinet/in.h>
#include <nfsc/libnfs.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <sybdb.h>

#define MS INT64_C(1000000) /* ns */
#define HOST "127.0.0.1"
#define LONG 20000 /* ms: longer than any wait here takes */
#define SHORT 1000 /* ms: the limit of libraries that end by nothing else */

/* ==== Calls ================================================================================== */

static int patience;     /* ms until tasks are late */
static int limit;        /* ms that the library is to wait at most, where it can be told */
static int is_answering; /* whether the server answers, also requests that have come before */
static char texts[2][380];
static int64_t late_ms; /* that the first call took */

static int64_t ms_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void end_turn(int turn, int64_t began)
{
    late_ms = turn == 0 ? ms_now() - began : late_ms;
    is_answering = 1;
}

/* Runs the block behind it twice, late and then in time. */
#define CALLS                                                                                      \
    int64_t began = ms_now();                                                                      \
    for (int turn = 0; turn < 2; end_turn(turn++, began))                                          \
    ACO_I_SCOPE(turn == 0 ? aco_i_enter_within(patience * MS) : aco_i_enter_shielded())

#define TELL(...) snprintf(texts[turn], sizeof(texts[turn]), __VA_ARGS__)

static void on_mosquitto(struct mosquitto *client, void *has_connected, int code)
{
    (void)client;
    *(int *)has_connected = 1 + code;
}

static void call_mosquitto(int port)
{
    int has_connected = 0;
    struct mosquitto *client = mosquitto_new(NULL, 1, &has_connected);
    mosquitto_connect_callback_set(client, on_mosquitto);
    CALLS
    {
        int error = mosquitto_connect(client, HOST, port, 60);
        while (error == 0 && has_connected == 0) {
            error = mosquitto_loop(client, -1, 1);
        }
        TELL("%s", error == MOSQ_ERR_ERRNO ? strerror(errno) : mosquitto_strerror(error));
    }
    mosquitto_destroy(client);
}

static void call_rabbitmq(int port)
{
    amqp_connection_state_t state = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(state);
    CALLS
    {
        amqp_socket_open(socket, HOST, port);
        amqp_rpc_reply_t reply = amqp_login(state, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "",
                                            "");
        TELL("%s", amqp_error_string2(reply.library_error));
    }
    amqp_destroy_connection(state);
}

static void call_nats(int port)
{
    char url[40];
    natsOptions *options = NULL;
    natsConnection *connection = NULL;
    snprintf(url, sizeof(url), "nats://" HOST ":%d", port);
    natsOptions_Create(&options);
    natsOptions_SetURL(options, url);
    natsOptions_SetAllowReconnect(options, false);
    natsOptions_SetTimeout(options, limit);
    CALLS
    {
        TELL("%s", natsStatus_GetText(natsConnection_Connect(&connection, options)));
    }
    natsConnection_Destroy(connection);
    natsOptions_Destroy(options);
}

static int on_sybase(DBPROCESS *process, int severity, int number, int os, char *message, char *why)
{
    (void)process, (void)severity, (void)number, (void)os, (void)why;
    snprintf(texts[is_answering], sizeof(texts[0]), "%s", message);
    return INT_CANCEL;
}

static void call_sybdb(int port)
{
    char server[40];
    snprintf(server, sizeof(server), HOST ":%d", port);
    dbinit();
    dberrhandle(on_sybase);
    LOGINREC *login = dblogin();
    DBSETLUSER(login, "user");
    DBSETLPWD(login, "password");
    CALLS
    {
        dbopen(login, server);
    }
    dbloginfree(login);
}

/* Another connection has the lock of the file first. */
static void call_sqlite3(int port)
{
    sqlite3 *owner, *client;
    (void)port;
    sqlite3_open("late.db", &owner);
    sqlite3_open("late.db", &client);
    sqlite3_busy_timeout(client, limit);
    sqlite3_exec(owner, "create table if not exists t (i)", NULL, NULL, NULL);
    sqlite3_exec(owner, "begin exclusive", NULL, NULL, NULL);
    CALLS
    {
        if (is_answering) {
            sqlite3_exec(owner, "commit", NULL, NULL, NULL);
        }
        sqlite3_exec(client, "insert into t values (1)", NULL, NULL, NULL);
        TELL("%s", sqlite3_errmsg(client));
    }
    sqlite3_close(client);
    sqlite3_close(owner);
}

static void call_nfs(int port)
{
    char url[100];
    struct nfs_context *nfs = nfs_init_context();
    nfs_set_timeout(nfs, limit);
    snprintf(url, sizeof(url), "nfs://" HOST "/x?nfsport=%d&mountport=%d", port, port);
    struct nfs_url *parsed = nfs_parse_url_dir(nfs, url);
    CALLS
    {
        nfs_mount(nfs, HOST, "/x");
        TELL("%.60s", nfs_get_error(nfs));
    }
    nfs_destroy_url(parsed);
    nfs_destroy_context(nfs);
}

static void call_smbclient(int port)
{
    SMBCCTX *context = smbc_new_context();
    smbc_setPort(context, (uint16_t)port);
    smbc_setTimeout(context, limit);
    context = smbc_init_context(context);
    CALLS
    {
        SMBCFILE *folder = smbc_getFunctionOpendir(context)(context, "smb://" HOST "/share");
        TELL("%s", folder != NULL ? "open" : strerror(errno));
    }
    smbc_free_context(context, 1);
}

static void call_neon(int port)
{
    ne_session *session = ne_session_create("http", HOST, (unsigned)port);
    CALLS
    {
        ne_request *request = ne_request_create(session, "GET", "/");
        ne_request_dispatch(request);
        TELL("%s", ne_get_error(session));
        ne_request_destroy(request);
    }
    ne_session_destroy(session);
}

static void call_cups(int port)
{
    http_t *http = httpConnect2(HOST, port, NULL, AF_UNSPEC, HTTP_ENCRYPTION_NEVER, 1, limit, NULL);
    CALLS
    {
        http_status_t status = HTTP_STATUS_ERROR;
        if (httpGet(http, "/") == 0) {
            while ((status = httpUpdate(http)) == HTTP_STATUS_CONTINUE) {
            }
        }
        TELL("%s", status == HTTP_STATUS_ERROR ? strerror(httpError(http)) : httpStatus(status));
    }
    httpClose(http);
}

static void call_git2(int port, const char *scheme)
{
    char url[60];
    git_remote *remote = NULL;
    git_libgit2_init();
    snprintf(url, sizeof(url), "%s://" HOST ":%d/x", scheme, port);
    git_remote_create_detached(&remote, url);
    CALLS
    {
        git_remote_connect(remote, GIT_DIRECTION_FETCH, NULL, NULL, NULL);
        TELL("%s", git_error_last() != NULL ? git_error_last()->message : "");
    }
    git_remote_free(remote);
    git_libgit2_shutdown();
}

static void call_git2_by_http(int port)
{
    call_git2(port, "http");
}

static void call_git2_by_ssh(int port)
{
    call_git2(port, "ssh");
}

static struct sockaddr_in address_of(int port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return addr;
}

static void call_gnutls(int port)
{
    gnutls_session_t session;
    gnutls_certificate_credentials_t credentials;
    struct sockaddr_in addr = address_of(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    connect(fd, (struct sockaddr *)&addr, sizeof(addr));
    gnutls_certificate_allocate_credentials(&credentials);
    gnutls_init(&session, GNUTLS_CLIENT);
    gnutls_set_default_priority(session);
    gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials);
    gnutls_transport_set_int(session, fd);
    CALLS
    {
        TELL("%s", gnutls_strerror(gnutls_handshake(session)));
    }
    gnutls_deinit(session);
    gnutls_certificate_free_credentials(credentials);
    close(fd);
}

static void call_ssh(int port)
{
    ssh_session session = ssh_new();
    long seconds = limit / 1000;
    ssh_options_set(session, SSH_OPTIONS_HOST, HOST);
    ssh_options_set(session, SSH_OPTIONS_PORT, &port);
    ssh_options_set(session, SSH_OPTIONS_TIMEOUT, &seconds);
    CALLS
    {
        int result = ssh_connect(session);
        const char *error = ssh_get_error(session);
        TELL("%s", result == SSH_OK ? "ok" : *error != '\0' ? error : "an error without a text");
    }
    ssh_free(session);
}

static void call_modbus(int port)
{
    uint16_t value;
    modbus_t *modbus = modbus_new_tcp(HOST, port);
    modbus_set_response_timeout(modbus, (unsigned)limit / 1000, 0);
    modbus_connect(modbus);
    CALLS
    {
        int ct = modbus_read_registers(modbus, 0, 1, &value);
        TELL("%s", ct == 1 ? "a register" : modbus_strerror(errno));
    }
    modbus_close(modbus);
    modbus_free(modbus);
}

static void call_rtmp(int port)
{
    RTMP *rtmp = RTMP_Alloc();
    char url[60];
    snprintf(url, sizeof(url), "rtmp://" HOST ":%d/app/x", port);
    RTMP_LogSetLevel(RTMP_LOGCRIT);
    RTMP_Init(rtmp);
    rtmp->Link.timeout = limit / 1000;
    RTMP_SetupURL(rtmp, url);
    CALLS
    {
        TELL("%s", RTMP_Connect(rtmp, NULL) ? "connected" : "0");
    }
    RTMP_Close(rtmp);
    RTMP_Free(rtmp);
}

static void on_ares(void *status, int code, int timeouts, struct hostent *host)
{
    (void)timeouts, (void)host;
    *(int *)status = code;
}

/* The program waits for what c-ares asks, by select(). */
static void call_ares(int port)
{
    ares_channel channel;
    struct ares_options options = {.timeout = limit, .tries = 1};
    char servers[40];
    ares_init_options(&channel, &options, ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES);
    snprintf(servers, sizeof(servers), HOST ":%d", port);
    ares_set_servers_ports_csv(channel, servers);
    CALLS
    {
        int status = -1;
        ares_gethostbyname(channel, "aco.example.org", AF_INET, on_ares, &status);
        while (status < 0) {
            fd_set in, out;
            struct timeval time;
            FD_ZERO(&in);
            FD_ZERO(&out);
            int ct = ares_fds(channel, &in, &out);
            if (select(ct, &in, &out, NULL, ares_timeout(channel, NULL, &time)) < 0) {
                ares_cancel(channel);
            } else {
                ares_process(channel, &in, &out);
            }
        }
        TELL("%s", ares_strerror(status));
    }
    ares_destroy(channel);
}

static void call_gio(int port)
{
    GSocketClient *client = g_socket_client_new();
    g_socket_client_set_timeout(client, (unsigned)limit / 1000);
    GSocketConnection *connection = g_socket_client_connect_to_host(client, HOST, (guint16)port,
                                                                    NULL, NULL);
    CALLS
    {
        char buffer[8];
        GError *error = NULL;
        gssize got = g_input_stream_read(g_io_stream_get_input_stream(G_IO_STREAM(connection)),
                                         buffer, 8, NULL, &error);
        TELL("%s", error != NULL ? error->message : got == 5 ? "hello" : "the end");
        g_clear_error(&error);
    }
    g_clear_object(&connection);
    g_object_unref(client);
}

/* ==== The clients ============================================================================ */

/* Bytes in a string, and their count. */
#define BYTES(string) (string), sizeof(string) - 1
#define HTTP_ANSWER BYTES("HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

typedef struct {
    const char *name, *function;
    void (*call)(int port);
    const char *answer; /* NULL: the server just ends the connection */
    size_t answer_sz;
    const char *last_resort; /* ends the wait after SHORT, as neither deadline nor cancelling do */
} client_t;

static const char of_library[] = "at its own limit", of_server[] = "when the server ends";
static char handshake[1 + 2 * 1536] = {3}; /* of RTMP */

static const client_t clients[] = {
    {"c-ares", "select", call_ares, NULL, 0, NULL},
    {"GIO", "g_input_stream_read", call_gio, BYTES("hello"), of_library},
    {"GnuTLS", "gnutls_handshake", call_gnutls, BYTES("\x15\3\3\0\2\2\x28"), NULL},
    {"libcups", "httpUpdate", call_cups, HTTP_ANSWER, NULL},
    {"libgit2 over HTTP", "git_remote_connect", call_git2_by_http, HTTP_ANSWER, NULL},
    {"libgit2 over SSH", "git_remote_connect", call_git2_by_ssh, NULL, 0, of_server},
    {"libmodbus", "modbus_read_registers", call_modbus, BYTES("\0\1\0\0\0\5\xff\3\2\x12\x34"),
     NULL},
    {"libmosquitto", "mosquitto_loop", call_mosquitto, BYTES("\x20\2\0\0"), NULL},
    {"libnats", "natsConnection_Connect", call_nats, BYTES("INFO {}\r\nPONG\r\n"), NULL},
    {"libnfs", "nfs_mount", call_nfs, NULL, 0, NULL},
    {"librabbitmq", "amqp_login", call_rabbitmq, BYTES("AMQP\0\1\0\0"), NULL},
    {"librtmp", "RTMP_Connect", call_rtmp, handshake, sizeof(handshake), NULL},
    {"libsmbclient", "opendir", call_smbclient, NULL, 0, of_library},
    {"libssh", "ssh_connect", call_ssh, NULL, 0, NULL},
    {"libsybdb", "dbopen", call_sybdb, NULL, 0, NULL},
    {"neon", "ne_request_dispatch", call_neon, HTTP_ANSWER, NULL},
    {"SQLite", "sqlite3_exec", call_sqlite3, NULL, 0, NULL},
};

static const client_t *client; /* the one whose turn it is */

/* ==== The server ============================================================================= */

/* A socket for connections or messages. Sets the port, unless it is set. */
static int listen_at(int *port, int type)
{
    struct sockaddr_in addr = address_of(*port);
    socklen_t sz = sizeof(addr);
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&addr, sz) != 0 ||
        getsockname(fd, (struct sockaddr *)&addr, &sz) != 0 ||
        (type == SOCK_STREAM && listen(fd, 100) != 0)) {
        perror("listen_at");
    }
    *port = ntohs(addr.sin_port);
    return fd;
}

static void *answer(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char bytes[500];
    while (!is_answering) {
        aco_sleep(MS);
    }
    if (client->answer != NULL) {
        aco_write(fd, client->answer, client->answer_sz);
        aco_shutdown(fd, SHUT_WR);
        aco_within(SHORT * MS)
        {
            while (aco_read(fd, bytes, sizeof(bytes)) > 0) {
            }
        }
    }
    aco_close(fd);
    return NULL;
}

static void *serve(void *listener)
{
    for (int fd; (fd = aco_accept4((int)(intptr_t)listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
        aco_go(answer, (void *)(intptr_t)fd);
    }
    return NULL;
}

/* Answers questions for names: there are none. */
static void *serve_names(void *arg)
{
    int fd = (int)(intptr_t)arg;
    struct sockaddr_in addr;
    socklen_t addr_sz = sizeof(addr);
    char bytes[500];
    while (aco_wait_fd(fd, POLLIN) >= 0) {
        if (is_answering) {
            ssize_t sz = recvfrom(fd, bytes, sizeof(bytes), 0, (struct sockaddr *)&addr, &addr_sz);
            bytes[2] = '\x81', bytes[3] = '\x83'; /* an answer, NXDOMAIN */
            sendto(fd, bytes, (size_t)sz, 0, (struct sockaddr *)&addr, addr_sz);
        } else {
            aco_sleep(MS);
        }
    }
    return NULL;
}

/* ==== Tasks that are late ==================================================================== */

static void *call(void *port)
{
    client->call(*(int *)port);
    return NULL;
}

/* How the calls of a task ended that is late after `ms`, or cancelled. */
typedef struct {
    char late[400], again[sizeof(texts[1])];
} end_t;

static end_t run(int port, int ms, int is_cancelled)
{
    end_t end;
    patience = is_cancelled ? LONG : ms;
    limit = client->last_resort == of_library ? SHORT : LONG;
    aco_task_t *task = aco_spawn(call, &port);
    if (is_cancelled) {
        aco_sleep(ms * MS);
        aco_task_cancel(task);
    }
    if (client->last_resort == of_server) {
        aco_sleep(SHORT * MS);
        is_answering = 1;
    }
    aco_join(task, NULL);
    int is_at_end = late_ms >= (client->last_resort != NULL ? SHORT : LONG) - ms;
    snprintf(end.late, sizeof(end.late), "%s%s%s",
             !is_at_end                    ? ""
             : client->last_resort != NULL ? client->last_resort
                                           : "too late",
             is_at_end ? ": " : "", texts[0]);
    memcpy(end.again, texts[1], sizeof(end.again));
    return end;
}

/* Writes a row; a cell tells of cancelling where that differs. */
static void report(const end_t *late, const end_t *cancelled, const char *in_time)
{
    int is_same = strcmp(late->late, cancelled->late) == 0;
    int is_same_again = strcmp(late->again, cancelled->again) == 0;
    int is_as_new = strcmp(late->again, in_time) == 0;
    printf("| %s | `%s()` | %s%s%s | %s%s%s |\n", client->name, client->function, late->late,
           is_same ? "" : "; cancelled: ", is_same ? "" : cancelled->late,
           is_as_new ? "works" : late->again,
           is_same_again ? "" : "; cancelled: ", is_same_again ? "" : cancelled->again);
}

static void *first(void *ms)
{
    int port = 0, listener = listen_at(&port, SOCK_STREAM), names = listen_at(&port, SOCK_DGRAM);
    aco_task_t *servers[] = {aco_spawn(serve, (void *)(intptr_t)listener),
                             aco_spawn(serve_names, (void *)(intptr_t)names)};
    for (size_t i = 0; i < sizeof(clients) / sizeof(clients[0]); i++) {
        client = &clients[i];
        is_answering = 0;
        end_t late = run(port, *(int *)ms, 0);
        is_answering = 0;
        end_t cancelled = run(port, *(int *)ms, 1);
        patience = LONG;
        client->call(port);
        report(&late, &cancelled, texts[0]);
    }
    for (int i = 0; i < 2; i++) {
        aco_task_cancel(servers[i]);
        aco_join(servers[i], NULL);
    }
    close(listener);
    close(names);
    return NULL;
}

int main(int argc, char **argv)
{
    int ms = argc > 1 ? atoi(argv[1]) : 100;
    return aco_run(&(aco_run_options_t){.stack_sz = 1 << 20}, first, &ms, NULL);
}
