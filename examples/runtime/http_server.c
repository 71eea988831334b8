// http_server.c shows an HTTP/1.1 server with pipelining, limits of all kinds and a graceful end.
// SPDX-License-Identifier: Apache-2.0
/*
 * Each connection is a task, which takes requests from a buffered reader and answers them in order.
 * GET / answers "hello"; POST /echo answers with the body of the request. A request that breaks the
 * rules of RFC 9112, or a limit, is refused, and its connection ends.
 *
 * At SIGTERM or SIGINT, the server stops listening, and cancels its connections: those that wait
 * for a request end at once. A request that has begun is shielded from that, and is answered.
 */
#include "aco_runtime.h"

#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
#define HEAD_SZ 8192 /* bytes of a request without its body, at most */
#define PATH_SZ 1024
#define CHUNK_HEAD_SZ 256
#define GONE (-1) /* instead of a status: there is nobody to answer */

static const char USAGE[] =
    "usage: http_server [-b BYTES] [-c COUNT] [-i SECONDS] [-r SECONDS] [-h] ADDRESS, say :8080\n"
    "  -b BYTES    of the body of a request, at most (1048576)\n"
    "  -c COUNT    connections at a time; others wait to be accepted (10000)\n"
    "  -i SECONDS  that a connection may be idle (60)\n"
    "  -r SECONDS  that a request and its answer may take, also after SIGTERM (10)\n"
    "  -h          this text\n";

static size_t body_limit = 1 << 20;
static int64_t idle_limit = 60 * SECOND, request_limit = 10 * SECOND;
static aco_semaphore_t free_places; /* for connections */
static aco_group_t *connections;
static int listener, is_ending;

typedef struct {
    char method[16], path[PATH_SZ];
    int minor; /* of HTTP/1.x */
    int ct_hosts, has_length, is_chunked, wants_close, wants_keep_alive, expects_continue;
    size_t body_sz; /* of the field Content-Length; then of the body */
    char *body;     /* of body_sz bytes, in the reader's buffer or in `chunks` */
    char *chunks;   /* from malloc() */
} request_t;

/* ==== Answers ================================================================================ */

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {{200, "OK"},
                   {400, "Bad Request"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {408, "Request Timeout"},
                   {413, "Content Too Large"},
                   {414, "URI Too Long"},
                   {417, "Expectation Failed"},
                   {431, "Request Header Fields Too Large"},
                   {501, "Not Implemented"},
                   {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if (reasons[i].status == status) {
            return reasons[i].reason;
        }
    }
    return "Internal Server Error";
}

typedef struct {
    int status;
    const char *body;
    size_t body_sz;
    const char *allow; /* methods, where it is another one; NULL: none */
    int has_no_body;   /* it is that of HEAD */
    int keeps_alive;
} answer_t;

/* Whether all of it was written. */
static int send_answer(int fd, const answer_t *answer)
{
    char head[512], date[64];
    struct tm now;
    time_t seconds = time(NULL);
    strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&seconds, &now));
    int sz = snprintf(
        head, sizeof(head),
        "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: text/plain\r\n"
        "Content-Length: %zu\r\nConnection: %s\r\n%s%s%s\r\n",
        answer->status, reason_of(answer->status), date, answer->body_sz,
        answer->keeps_alive ? "keep-alive" : "close", answer->allow != NULL ? "Allow: " : "",
        answer->allow != NULL ? answer->allow : "", answer->allow != NULL ? "\r\n" : "");
    struct iovec parts[] = {{head, (size_t)sz}, {(void *)(uintptr_t)answer->body, answer->body_sz}};
    ssize_t all = sz + (answer->has_no_body ? 0 : (ssize_t)answer->body_sz);
    return aco_writev(fd, parts, answer->has_no_body ? 1 : 2) == all;
}

static int respond(int fd, const request_t *request, answer_t answer)
{
    char body[64];
    answer.has_no_body = strcmp(request->method, "HEAD") == 0;
    if (answer.body == NULL) {
        answer.body_sz = (size_t)snprintf(body, sizeof(body), "%s\n", reason_of(answer.status));
        answer.body = body;
    }
    return send_answer(fd, &answer);
}

/* The work of the server itself. */
static answer_t answer_to(const request_t *request)
{
    int is_post = strcmp(request->method, "POST") == 0;
    if (strcmp(request->path, "/") == 0) {
        return is_post ? (answer_t){.status = 405, .allow = "GET, HEAD"}
                       : (answer_t){.status = 200, .body = "hello\n", .body_sz = 6};
    }
    if (strcmp(request->path, "/echo") == 0) {
        return is_post ? (answer_t){.status = 200,
                                    .body = request->body_sz == 0 ? "" : request->body,
                                    .body_sz = request->body_sz}
                       : (answer_t){.status = 405, .allow = "POST"};
    }
    return (answer_t){.status = 404};
}

/* ==== The head of a request ================================================================== */

/* All functions that read return 0, or the status to refuse the request with, or GONE. */
static int status_of(ssize_t result)
{
    return result == 0          ? GONE
           : errno == ETIMEDOUT ? 408
           : errno == EMSGSIZE  ? 431
           : errno == ENOMEM    ? 500
                                : GONE;
}

/* Takes a line of at most `*left` bytes, and makes a string of it, without its end. */
static int read_line(aco_reader_t *reader, size_t *left, char **line)
{
    ssize_t sz = aco_reader_until(reader, "\n", *left, line);
    if (sz <= 0) {
        return status_of(sz);
    }
    *left -= (size_t)sz;
    if (sz < 2 || (*line)[sz - 2] != '\r') {
        return 400;
    }
    (*line)[sz - 2] = '\0';
    return strlen(*line) == (size_t)sz - 2 ? 0 : 400;
}

static int is_token(const char *text)
{
    static const char chars[] =
        "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return *text != '\0' && text[strspn(text, chars)] == '\0';
}

static int has_control(const char *text)
{
    while (((unsigned char)*text >= ' ' && *text != 0x7f) || *text == '\t') {
        text++;
    }
    return *text != '\0';
}

static int parse_target(const char *target, request_t *request)
{
    if (strncasecmp(target, "http://", 7) == 0) { /* as proxies are asked */
        target += 7 + strcspn(target + 7, "/?");
        target = *target == '/' ? target : "/";
    }
    if (target[0] != '/' || strpbrk(target, " \t") != NULL || has_control(target)) {
        return 400;
    }
    size_t sz = strcspn(target, "?");
    if (sz >= sizeof(request->path)) {
        return 414;
    }
    memcpy(request->path, target, sz);
    return 0;
}

static int parse_request_line(char *line, request_t *request)
{
    char *target = strchr(line, ' '), *version = strrchr(line, ' ');
    if (target == NULL || target == version) {
        return 400;
    }
    *target++ = *version++ = '\0';
    if (!is_token(line) || strlen(version) != 8 || strncmp(version, "HTTP/", 5) != 0 ||
        strspn(version + 5, "0123456789") != 1 || version[6] != '.' ||
        strspn(version + 7, "0123456789") != 1) {
        return 400;
    }
    if (version[5] != '1') {
        return 505;
    }
    request->minor = version[7] - '0';
    if (strcmp(line, "GET") != 0 && strcmp(line, "HEAD") != 0 && strcmp(line, "POST") != 0) {
        return 501;
    }
    strcpy(request->method, line);
    return parse_target(target, request);
}

static int parse_length(const char *value, request_t *request)
{
    size_t ct = strspn(value, "0123456789");
    if (request->has_length++ || ct == 0 || value[ct] != '\0') {
        return 400;
    }
    errno = 0;
    unsigned long long length = strtoull(value, NULL, 10);
    if (errno != 0 || length > body_limit) {
        return 413;
    }
    request->body_sz = (size_t)length;
    return 0;
}

/* Whether a list with commas has a word. */
static int has_word(const char *list, const char *word)
{
    for (size_t sz; *list != '\0'; list += sz) {
        list += strspn(list, ", \t");
        sz = strcspn(list, ", \t");
        if (sz == strlen(word) && strncasecmp(list, word, sz) == 0) {
            return 1;
        }
    }
    return 0;
}

/* A line that goes on with the one before begins with a blank, and is refused so. */
static int parse_field(char *line, request_t *request)
{
    char *value = strchr(line, ':');
    if (value == NULL) {
        return 400;
    }
    *value++ = '\0';
    value += strspn(value, " \t");
    for (size_t sz = strlen(value); sz > 0 && strchr(" \t", value[sz - 1]) != NULL; sz--) {
        value[sz - 1] = '\0';
    }
    if (!is_token(line) || has_control(value)) {
        return 400;
    }
    if (strcasecmp(line, "Content-Length") == 0) {
        return parse_length(value, request);
    }
    if (strcasecmp(line, "Transfer-Encoding") == 0) {
        return strcasecmp(value, "chunked") != 0 ? 501 : request->is_chunked++ ? 400 : 0;
    }
    if (strcasecmp(line, "Expect") == 0) {
        request->expects_continue = 1;
        return strcasecmp(value, "100-continue") == 0 ? 0 : 417;
    }
    if (strcasecmp(line, "Connection") == 0) {
        request->wants_close |= has_word(value, "close");
        request->wants_keep_alive |= has_word(value, "keep-alive");
    }
    request->ct_hosts += strcasecmp(line, "Host") == 0;
    return 0;
}

static int read_head(aco_reader_t *reader, request_t *request)
{
    char *line;
    size_t left = HEAD_SZ;
    int status;
    do { /* a client may send an empty line too many after a body */
        status = read_line(reader, &left, &line);
    } while (status == 0 && *line == '\0');
    if (status == 0) {
        status = parse_request_line(line, request);
    }
    while (status == 0 && (status = read_line(reader, &left, &line)) == 0 && *line != '\0') {
        status = parse_field(line, request);
    }
    if (status == 0 && (request->ct_hosts > 1 || (request->minor > 0 && request->ct_hosts == 0) ||
                        (request->is_chunked && (request->has_length || request->minor == 0)))) {
        return 400; /* of two lengths, other servers on the way may take the other one */
    }
    return status;
}

/* ==== The body =============================================================================== */

static int parse_chunk_head(const char *line, size_t *sz)
{
    size_t ct = strspn(line, "0123456789abcdefABCDEF");
    if (ct == 0 || (line[ct] != '\0' && strchr("; \t", line[ct]) == NULL)) {
        return 400;
    }
    errno = 0;
    unsigned long long length = strtoull(line, NULL, 16);
    *sz = (size_t)length;
    return errno != 0 || length > body_limit ? 413 : 0;
}

/* Takes a chunk, of which the head was read. */
static int read_chunk(aco_reader_t *reader, size_t sz, request_t *request, size_t *chunks_sz)
{
    char *bytes, *line;
    size_t all = request->body_sz + sz, left = 2;
    if (all > body_limit) {
        return 413;
    }
    int result = aco_reader_exactly(reader, sz, &bytes);
    if (result <= 0) {
        return status_of(result);
    }
    if (all > *chunks_sz) {
        char *chunks = (char *)realloc(request->chunks, *chunks_sz = all * 2);
        if (chunks == NULL) {
            return 500;
        }
        request->chunks = chunks;
    }
    memcpy(request->chunks + request->body_sz, bytes, sz);
    request->body_sz = all;
    int status = read_line(reader, &left, &line);
    return status == 431 ? 400 : status;
}

static int read_chunks(aco_reader_t *reader, request_t *request)
{
    char *line;
    size_t sz, chunks_sz = 0, trailer_left = HEAD_SZ;
    int status;
    do {
        size_t left = CHUNK_HEAD_SZ;
        status = read_line(reader, &left, &line);
        if (status != 0 || (status = parse_chunk_head(line, &sz)) != 0) {
            return status == 431 ? 400 : status;
        }
        status = sz == 0 ? 0 : read_chunk(reader, sz, request, &chunks_sz);
    } while (status == 0 && sz != 0);
    while (status == 0 && (status = read_line(reader, &trailer_left, &line)) == 0 &&
           *line != '\0') {
    }
    request->body = request->chunks;
    return status;
}

static int read_body(aco_reader_t *reader, int fd, request_t *request)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (!request->is_chunked && request->body_sz == 0) {
        return 0;
    }
    if (request->expects_continue && request->minor > 0 &&
        aco_write_all(fd, go_on, sizeof(go_on) - 1) < 0) {
        return GONE;
    }
    if (request->is_chunked) {
        return read_chunks(reader, request);
    }
    int result = aco_reader_exactly(reader, request->body_sz, &request->body);
    return result <= 0 ? status_of(result) : 0;
}

/* ==== Connections ============================================================================ */

/* Takes and answers a request that has begun. Returns 0 if another one may follow, or else the
 * status of the answer, or GONE. */
static int serve_request(aco_reader_t *reader, int fd)
{
    request_t request = {.minor = 1};
    int status = read_head(reader, &request);
    if (status == 0) {
        status = read_body(reader, fd, &request);
    }
    if (status == 0) {
        answer_t answer = answer_to(&request);
        answer.keeps_alive = !is_ending && !request.wants_close &&
                             (request.minor > 0 || request.wants_keep_alive);
        status = !respond(fd, &request, answer) ? GONE : answer.keeps_alive ? 0 : answer.status;
    } else if (status != GONE) {
        respond(fd, &request, (answer_t){.status = status});
    }
    free(request.chunks);
    return status;
}

/* Waits for the next request, and serves it. */
static int serve_next(aco_reader_t *reader, int fd)
{
    char *bytes;
    ssize_t sz = -1;
    int status = GONE;
    aco_within(idle_limit)
    {
        sz = aco_reader_peek(reader, 1, &bytes);
    }
    if (sz > 0) {
        aco_shielded
        {
            aco_within(request_limit)
            {
                status = serve_request(reader, fd);
            }
        }
    }
    return status;
}

/* Were a connection closed with bytes unread, TCP would reset it, and the client might not get to
 * read the last answer. */
static void drain(int fd)
{
    char scrap[1024];
    aco_shutdown(fd, SHUT_WR);
    aco_within(SECOND)
    {
        while (aco_read(fd, scrap, sizeof(scrap)) > 0) {
        }
    }
}

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg, status;
    aco_reader_t reader;
    aco_reader_init(&reader, fd, NULL, body_limit > HEAD_SZ ? body_limit : HEAD_SZ);
    do {
        status = serve_next(&reader, fd);
    } while (status == 0);
    aco_reader_free(&reader);
    if (status != GONE) {
        drain(fd);
    }
    aco_close(fd);
    aco_semaphore_release(&free_places);
    return NULL;
}

static void *accept_all(void *arg)
{
    aco_task_options_t options = {.name = "connection", .group = connections};
    while (aco_semaphore_acquire(&free_places) == 0) {
        int fd = aco_accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0 && aco_go_with(&options, serve, (void *)(intptr_t)fd, NULL) == 0) {
            continue;
        }
        if (errno == ECANCELED) {
            break;
        }
        warn("a client has to wait");
        aco_close(fd);
        aco_semaphore_release(&free_places);
        aco_sleep(SECOND / 10);
    }
    return arg;
}

/* ==== The server ============================================================================= */

static const char *address;

static void *run(void *arg)
{
    const sigset_t *signals = (const sigset_t *)arg;
    aco_group_t *listening = aco_group_new();
    connections = aco_group_new();
    listener = aco_listen("tcp", address);
    if (listener < 0 || listening == NULL || connections == NULL ||
        aco_group_go(listening, accept_all, NULL) != 0) {
        err(1, "%s", address);
    }
    aco_wait_signal(signals, NULL);
    pthread_sigmask(SIG_UNBLOCK, signals, NULL); /* a second one ends the process at once */
    is_ending = 1;
    aco_group_cancel(listening);
    aco_group_join(listening);
    aco_close(listener);
    aco_group_cancel(connections);
    aco_group_join(connections);
    return NULL;
}

static int usage(int status)
{
    fputs(USAGE, status == 0 ? stdout : stderr);
    return status;
}

static int64_t seconds(const char *text)
{
    return (int64_t)(atof(text) * (double)SECOND);
}

int main(int argc, char **argv)
{
    int option, ct_connections = 10000;
    while ((option = getopt(argc, argv, "b:c:i:r:h")) != -1) {
        if (option == 'b') {
            body_limit = strtoul(optarg, NULL, 10);
        } else if (option == 'c') {
            ct_connections = atoi(optarg);
        } else if (option == 'i') {
            idle_limit = seconds(optarg);
        } else if (option == 'r') {
            request_limit = seconds(optarg);
        } else {
            return usage(option == 'h' ? 0 : 2);
        }
    }
    if (optind != argc - 1 || ct_connections < 1) {
        return usage(2);
    }
    address = argv[optind];
    aco_semaphore_init(&free_places, (size_t)ct_connections);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before there are threads */
    signal(SIGPIPE, SIG_IGN);
    if (aco_run(NULL, run, &signals, NULL) != 0) {
        err(1, "aco_run");
    }
    return 0;
}
