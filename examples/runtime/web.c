// web.c shows a web server for the files of a folder, with a page that shows its own tasks live.
// SPDX-License-Identifier: Apache-2.0
#include "aco_runtime.h"
#include "web_page.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REQUEST_SZ 4096 /* bytes */
#define SECOND INT64_C(1000000000)

static const char USAGE[] =
    "usage: web [-d FOLDER] [-t SECONDS] [-h] ADDRESS, such as :8080\n"
    "  -d FOLDER   whose files are served (.)\n"
    "  -t SECONDS  that a client may take for a request and its answer (60)\n"
    "  -h          this text\n"
    "  /tasks shows the tasks of the server, live; /status has them in JSON; /metrics is for\n"
    "  Prometheus.\n";

static int64_t patience = 60 * SECOND;

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

/* Lines as strings of JSON. */
static void print_strings(FILE *stream, const char *text)
{
    const char *between = "\n    \"";
    for (; *text != '\0'; text++) {
        fputs(between, stream);
        for (between = ""; *text != '\n'; text++) {
            int is_control = (unsigned char)*text < ' ', is_quoted = *text == '"' || *text == '\\';
            fprintf(stream, is_control ? "\\u%04x" : is_quoted ? "\\%c" : "%c", *text);
        }
        fputs("\"", stream);
        between = ",\n    \"";
    }
}

static void print_status(FILE *stream)
{
    aco_stats_t stats;
    char *tasks = NULL;
    size_t sz;
    FILE *list = open_memstream(&tasks, &sz);
    if (list == NULL) {
        err(1, "open_memstream");
    }
    aco_print_tasks(list);
    fclose(list);
    aco_stats(&stats);
    fprintf(stream, "{\n  \"tasks\": %" PRIu64 ",\n  \"started\": %" PRIu64, stats.ct_tasks,
            stats.ct_started);
    fprintf(stream, ",\n  \"switches\": %" PRIu64 ",\n  \"list\": [", stats.ct_switches);
    print_strings(stream, tasks);
    fputs("\n  ]\n}\n", stream);
    free(tasks);
}

/* What a function prints. */
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

static void send_tasks_page(int fd)
{
    send_head(fd, "200 OK", "text/html", (int64_t)sizeof(TASKS_PAGE) - 1);
    aco_write_all(fd, TASKS_PAGE, sizeof(TASKS_PAGE) - 1);
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

/* Reads until the empty line that ends the head. Returns 0 if none comes. */
static int read_request(int fd, char *request)
{
    size_t sz = 0;
    do {
        ssize_t got = aco_read(fd, request + sz, REQUEST_SZ - 1 - sz);
        if (got <= 0) {
            return 0;
        }
        request[sz += (size_t)got] = '\0';
    } while (strstr(request, "\r\n\r\n") == NULL);
    return 1;
}

static void answer(int fd)
{
    char request[REQUEST_SZ], method[16], path[1024];
    if (!read_request(fd, request)) {
        return;
    }
    if (sscanf(request, "%15[A-Z] %1023[^ ?\r\n]", method, path) != 2 || path[0] != '/') {
        refuse(fd, "400 Bad Request");
    } else if (strcmp(method, "GET") != 0) {
        refuse(fd, "405 Method Not Allowed");
    } else if (strcmp(path, "/tasks") == 0) {
        send_tasks_page(fd);
    } else if (strcmp(path, "/status") == 0) {
        send_printed(fd, print_status, "application/json");
    } else if (strcmp(path, "/metrics") == 0) {
        send_printed(fd, aco_print_metrics, "text/plain; version=0.0.4");
    } else {
        send_file(fd, strcmp(path, "/") == 0 ? "/index.html" : path);
    }
}

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    aco_within(patience)
    {
        answer(fd);
    }
    aco_close(fd);
    return NULL;
}

static void *accept_all(void *address)
{
    static const aco_task_options_t options = {.name = "client"};
    int listener = aco_listen("tcp", (const char *)address);
    if (listener < 0) {
        err(1, "%s", (const char *)address);
    }
    for (;;) {
        int fd = aco_accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 || aco_go_with(&options, serve, (void *)(intptr_t)fd, NULL) != 0) {
            warn("a client has to wait");
            aco_close(fd);
            aco_sleep(SECOND / 10);
        }
    }
}

int main(int argc, char **argv)
{
    int option;
    const char *folder = ".";
    while ((option = getopt(argc, argv, "d:t:h")) != -1) {
        if (option == 'd') {
            folder = optarg;
        } else if (option == 't') {
            patience = (int64_t)(atof(optarg) * (double)SECOND);
        } else {
            break;
        }
    }
    if (option != -1 || optind != argc - 1) {
        fputs(USAGE, option == 'h' ? stdout : stderr);
        return option == 'h' ? 0 : 2;
    }
    if (chdir(folder) != 0) {
        err(1, "%s", folder);
    }
    signal(SIGPIPE, SIG_IGN);
    aco_run(NULL, accept_all, argv[optind], NULL);
    err(1, "aco_run");
}
