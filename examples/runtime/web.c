// web.c shows a web server for the files of a folder, with a page that shows its own tasks.
// SPDX-License-Identifier: Apache-2.0
/*
 * It speaks HTTP/1.0, one request for each connection. At SIGTERM or SIGINT, it stops listening,
 * and waits for the clients to end; those that are left after some seconds are cancelled.
 */
#include "aco_runtime.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REQUEST_SZ 4096 /* bytes */
#define SECOND INT64_C(1000000000)

static const char USAGE[] =
    "usage: web [-d FOLDER] [-t SECONDS] [-e SECONDS] [-h] ADDRESS, such as :8080\n"
    "  -d FOLDER   whose files are served (.)\n"
    "  -t SECONDS  that a client may take for a request and its answer (60)\n"
    "  -e SECONDS  that clients have to end after SIGTERM (10)\n"
    "  -h          this text\n"
    "  /tasks shows the tasks of the server; /metrics is for Prometheus.\n";

static int64_t client_limit = 60 * SECOND, end_limit = 10 * SECOND;
static const char *address;
static aco_group_t *clients;
static int listener;

/* ==== Answers ================================================================================ */

static void send_head(int fd, const char *status, const char *type, int64_t length)
{
    char head[256];
    int sz = snprintf(head, sizeof(head),
                      "HTTP/1.0 %s\r\nContent-Type: %s\r\nContent-Length: %" PRId64
                      "\r\nConnection: close\r\n\r\n",
                      status, type, length);
    aco_write_all(fd, head, (size_t)sz);
}

static void refuse(int fd, const char *status)
{
    send_head(fd, status, "text/plain", (int64_t)strlen(status) + 1);
    aco_write_all(fd, status, strlen(status));
    aco_write_all(fd, "\n", 1);
}

/* Browsers load it anew each second. Names of tasks and functions need no escapes in HTML. */
static void print_page(FILE *stream)
{
    aco_stats_t stats;
    aco_stats(&stats);
    fprintf(stream,
            "<!doctype html>\n<meta charset=utf-8>\n<meta http-equiv=refresh content=1>\n"
            "<title>Tasks</title>\n<h1>%" PRIu64
            " tasks</h1>\n"
            "<p>%" PRIu64 " started, %" PRIu64 " switches</p>\n<pre>\n",
            stats.ct_tasks, stats.ct_started, stats.ct_switches);
    aco_print_tasks(stream);
    fputs("</pre>\n", stream);
}

/* Sends the page that print() writes. */
static void send_printed(int fd, void (*print)(FILE *), const char *type)
{
    char *page = NULL;
    size_t sz;
    FILE *stream = open_memstream(&page, &sz);
    if (stream == NULL) {
        err(1, "open_memstream");
    }
    print(stream);
    fclose(stream);
    send_head(fd, "200 OK", type, (int64_t)sz);
    aco_write_all(fd, page, sz);
    free(page);
}

static const char *type_of(const char *path)
{
    static const char *const types[][2] = {{".html", "text/html; charset=utf-8"},
                                           {".css", "text/css"},
                                           {".js", "text/javascript"},
                                           {".svg", "image/svg+xml"},
                                           {".png", "image/png"},
                                           {".json", "application/json"}};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot != NULL && i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(dot, types[i][0]) == 0) {
            return types[i][1];
        }
    }
    return "text/plain; charset=utf-8";
}

/* The regular file at `path`, which begins with '/'; -1 with errno. Nothing is above the folder. */
static int open_file(const char *path, struct stat *about)
{
    if (strstr(path, "/..") != NULL) {
        errno = ENOENT;
        return -1;
    }
    int file = aco_open(path + strspn(path, "/"), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file >= 0 && (fstat(file, about) != 0 || !S_ISREG(about->st_mode))) {
        aco_close(file);
        errno = ENOENT;
        return -1;
    }
    return file;
}

static void send_file(int fd, const char *path)
{
    struct stat about;
    int file = open_file(path, &about);
    if (file < 0) {
        refuse(fd, errno == ENOENT || errno == ENOTDIR ? "404 Not Found" : "403 Forbidden");
        return;
    }
    int64_t offset = 0;
    send_head(fd, "200 OK", type_of(path), about.st_size);
    while (offset < about.st_size &&
           aco_sendfile(fd, file, &offset, (size_t)(about.st_size - offset)) > 0) {
    }
    aco_close(file);
}

/* ==== Requests =============================================================================== */

static void answer(int fd, const char *request)
{
    char method[16], path[1024];
    if (sscanf(request, "%15[A-Z] %1023[^ ?\r\n]", method, path) != 2 || path[0] != '/') {
        refuse(fd, "400 Bad Request");
    } else if (strcmp(method, "GET") != 0) {
        refuse(fd, "405 Method Not Allowed");
    } else if (strcmp(path, "/tasks") == 0) {
        send_printed(fd, print_page, "text/html; charset=utf-8");
    } else if (strcmp(path, "/metrics") == 0) {
        send_printed(fd, aco_print_metrics, "text/plain; version=0.0.4");
    } else {
        send_file(fd, strcmp(path, "/") == 0 ? "/index.html" : path);
    }
}

/* Takes the head of a request up to the empty line, and answers it. */
static void serve_request(int fd)
{
    char buffer[REQUEST_SZ], *request;
    aco_reader_t reader;
    aco_reader_init(&reader, fd, buffer, sizeof(buffer));
    ssize_t sz = aco_reader_until(&reader, "\r\n\r\n", sizeof(buffer), &request);
    if (sz > 0) {
        request[sz - 1] = '\0';
        answer(fd, request);
    } else if (sz < 0 && errno == EMSGSIZE) {
        refuse(fd, "431 Request Header Fields Too Large");
    }
}

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    aco_within(client_limit)
    {
        serve_request(fd);
    }
    aco_close(fd);
    return NULL;
}

/* ==== The server ============================================================================= */

static void *accept_all(void *arg)
{
    aco_task_options_t options = {.name = "client", .group = clients};
    for (;;) {
        int fd = aco_accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0 && aco_go_with(&options, serve, (void *)(intptr_t)fd, NULL) == 0) {
            continue;
        }
        if (errno == ECANCELED) {
            return arg;
        }
        warn("a client has to wait");
        aco_close(fd);
        aco_sleep(SECOND / 10);
    }
}

static void *run(void *arg)
{
    const sigset_t *signals = (const sigset_t *)arg;
    aco_group_t *listening = aco_group_new();
    clients = aco_group_new();
    listener = aco_listen("tcp", address);
    if (listener < 0 || listening == NULL || clients == NULL ||
        aco_group_go(listening, accept_all, NULL) != 0) {
        err(1, "%s", address);
    }
    aco_wait_signal(signals, NULL);
    pthread_sigmask(SIG_UNBLOCK, signals, NULL); /* a second one ends the process at once */
    aco_group_cancel(listening);
    aco_group_join(listening);
    aco_close(listener);
    aco_within(end_limit)
    {
        if (aco_group_join(clients) != 0) {
            warnx("clients were cut off");
        }
    }
    return NULL;
}

static int64_t seconds(const char *text)
{
    return (int64_t)(atof(text) * (double)SECOND);
}

int main(int argc, char **argv)
{
    int option;
    const char *folder = ".";
    while ((option = getopt(argc, argv, "d:t:e:h")) != -1) {
        if (option == 'd') {
            folder = optarg;
        } else if (option == 't') {
            client_limit = seconds(optarg);
        } else if (option == 'e') {
            end_limit = seconds(optarg);
        } else {
            break;
        }
    }
    if (option != -1 || optind != argc - 1) {
        fputs(USAGE, option == 'h' ? stdout : stderr);
        return option == 'h' ? 0 : 2;
    }
    address = argv[optind];
    if (chdir(folder) != 0) {
        err(1, "%s", folder);
    }
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
