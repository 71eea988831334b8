// SPDX-License-Identifier: Apache-2.0
/* libssh2 and sshd: files by SFTP. */
#include "real.h"

#include <arpa/inet.h>
#include <libssh2.h>
#include <libssh2_sftp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SOME_SZ = 100000 };

static const char *user, *folder;

typedef struct {
    int fd;
    LIBSSH2_SESSION *session;
    LIBSSH2_SFTP *sftp;
} connection_t;

static int dial_socket(int to)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)to)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

static void tell_error(job_t *job, const connection_t *connection, const char *what)
{
    char *text;
    int code = libssh2_session_last_error(connection->session, &text, NULL, 0);
    tell(job, "[%s: %d %s] ", what, code, text);
}

/* Logs in with this key; reports a failure. */
static int open_connection(job_t *job, connection_t *connection, const char *key)
{
    char path[TEXT_SZ];
    snprintf(path, sizeof(path), "%s/%s", folder, key);
    connection->sftp = NULL;
    connection->fd = dial_socket(port);
    CHECK((connection->session = libssh2_session_init()) != NULL);
    if (libssh2_session_handshake(connection->session, connection->fd) != 0) {
        tell_error(job, connection, "handshake");
    } else if (libssh2_userauth_publickey_fromfile(connection->session, user, NULL, path, NULL)) {
        tell_error(job, connection, "login");
    } else if ((connection->sftp = libssh2_sftp_init(connection->session)) == NULL) {
        tell_error(job, connection, "sftp");
    }
    return connection->sftp != NULL;
}

static void close_connection(connection_t *connection)
{
    if (connection->sftp != NULL) {
        libssh2_sftp_shutdown(connection->sftp);
    }
    libssh2_session_disconnect(connection->session, "done");
    libssh2_session_free(connection->session);
    close(connection->fd);
}

static LIBSSH2_SFTP_HANDLE *open_file(const connection_t *connection, const char *path,
                                      unsigned long flags)
{
    return libssh2_sftp_open_ex(connection->sftp, path, (unsigned)strlen(path), flags, 0600,
                                LIBSSH2_SFTP_OPENFILE);
}

static void put_file(const connection_t *connection, const char *path, const char *bytes, size_t sz)
{
    LIBSSH2_SFTP_HANDLE *file =
        open_file(connection, path, LIBSSH2_FXF_WRITE | LIBSSH2_FXF_CREAT | LIBSSH2_FXF_TRUNC);
    CHECK(file != NULL);
    for (size_t done = 0; done < sz;) {
        ssize_t ct = libssh2_sftp_write(file, bytes + done, sz - done);
        CHECK(ct > 0);
        done += (size_t)ct;
    }
    CHECK(libssh2_sftp_close(file) == 0);
}

static void get_file(const connection_t *connection, const char *path, const char *bytes, size_t sz)
{
    char buffer[4096];
    LIBSSH2_SFTP_HANDLE *file = open_file(connection, path, LIBSSH2_FXF_READ);
    size_t done = 0;
    ssize_t ct;
    CHECK(file != NULL);
    while ((ct = libssh2_sftp_read(file, buffer, sizeof(buffer))) > 0) {
        CHECK(done + (size_t)ct <= sz && memcmp(buffer, bytes + done, (size_t)ct) == 0);
        done += (size_t)ct;
    }
    CHECK(ct == 0 && done == sz && libssh2_sftp_close(file) == 0);
}

static void copy_file(const connection_t *connection, int number, size_t sz)
{
    char path[TEXT_SZ], *bytes = (char *)malloc(sz);
    fill(bytes, sz, (unsigned)number);
    snprintf(path, sizeof(path), "%s/file%d", folder, number);
    put_file(connection, path, bytes, sz);
    get_file(connection, path, bytes, sz);
    CHECK(libssh2_sftp_unlink_ex(connection->sftp, path, (unsigned)strlen(path)) == 0);
    free(bytes);
}

static void talk(job_t *job)
{
    connection_t connection;
    char path[TEXT_SZ];
    CHECK(open_connection(job, &connection, "user_key"));
    copy_file(&connection, job->number, SOME_SZ);
    snprintf(path, sizeof(path), "%s/nothing", folder);
    CHECK(open_file(&connection, path, LIBSSH2_FXF_READ) == NULL);
    tell_error(job, &connection, "open");
    tell(job, "[%lu] ", libssh2_sftp_last_error(connection.sftp));
    snprintf(path, sizeof(path), "%s/fifo", folder);
    libssh2_session_set_timeout(connection.session, 200);
    CHECK(open_file(&connection, path, LIBSSH2_FXF_READ) == NULL);
    tell_error(job, &connection, "wait");
    libssh2_session_free(connection.session); /* without a word: the server does not listen */
    close(connection.fd);
    CHECK(!open_connection(job, &connection, "host_key"));
    close_connection(&connection);
    connection.session = libssh2_session_init();
    connection.fd = dial_socket(silent_port);
    libssh2_session_set_timeout(connection.session, 200);
    CHECK(libssh2_session_handshake(connection.session, connection.fd) != 0);
    tell_error(job, &connection, "handshake");
    libssh2_session_free(connection.session);
    close(connection.fd);
}

/* Makes the server wait until a FIFO has a writer. */
static void wait(job_t *job)
{
    connection_t connection;
    LIBSSH2_SFTP_HANDLE *file = NULL;
    char path[TEXT_SZ];
    CHECK(open_connection(job, &connection, "user_key"));
    snprintf(path, sizeof(path), "%s/fifo", folder);
    about_to_wait();
    aco_within(patience)
    {
        file = open_file(&connection, path, LIBSSH2_FXF_READ);
    }
    if (file == NULL) {
        tell_error(job, &connection, "wait");
        libssh2_session_set_timeout(connection.session, 100); /* the server still waits */
        libssh2_session_free(connection.session);
        close(connection.fd);
        return;
    }
    tell(job, "[open] ");
    libssh2_sftp_close(file);
    close_connection(&connection);
}

static void session(job_t *job, unsigned *seed)
{
    connection_t connection;
    CHECK(open_connection(job, &connection, "user_key"));
    for (int ct = rand_r(seed) % 5; ct > 0; ct--) {
        copy_file(&connection, job->number, (size_t)rand_r(seed) % SOME_SZ + 1);
    }
    close_connection(&connection);
}

static void prepare(void)
{
}

/* The open waits for the first reader; all others then find a writer. */
static void release(int ct)
{
    char path[TEXT_SZ];
    FILE *file;
    (void)ct;
    snprintf(path, sizeof(path), "%s/fifo", folder);
    CHECK((file = fopen(path, "w")) != NULL);
}

static void init(void)
{
    CHECK((user = getenv("SSH_USER")) != NULL && (folder = getenv("SSH_FOLDER")) != NULL);
    CHECK(libssh2_init(0) == 0);
}

const library_t library = {talk, wait, prepare, NULL, release, session, init};
