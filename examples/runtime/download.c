// download.c shows downloads at the same time, with deadlines and a progress bar.
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE /* strcasestr() */
#include "aco_runtime.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_SZ 16384 /* bytes; the head of an answer must fit */
#define BAR_SZ 40       /* characters */
#define SECOND INT64_C(1000000000)

static const char USAGE[] =
    "usage: download [-c COUNT] [-t SECONDS] [-h] URL...\n"
    "  -c COUNT    so many at a time (8)\n"
    "  -t SECONDS  that each may take (60)\n"
    "  -h          this text\n"
    "  A URL is http://HOST[:PORT]/PATH. The file gets the last part of PATH as its name.\n";

static int64_t patience = 60 * SECOND;
static aco_semaphore_t places;
static int ct_urls, ct_ended, ct_failed;
static int64_t received_sz, expected_sz; /* bytes of all files under way or done */

/* ==== A file ================================================================================= */

typedef struct {
    const char *url;
    char host[256], address[280]; /* the address is the host with a port */
    const char *path, *file;      /* within url */
    char buffer[BUFFER_SZ];
    size_t sz; /* bytes in the buffer */
} download_t;

/* Takes the URL apart; NULL, or what is wrong. */
static const char *parse(download_t *d)
{
    if (sscanf(d->url, "http://%255[^/]", d->host) != 1) {
        return "it is not http://HOST/PATH";
    }
    d->path = strchr(d->url + strlen("http://"), '/');
    if (d->path == NULL || *(d->file = strrchr(d->path, '/') + 1) == '\0') {
        return "it names no file";
    }
    const char *after = strrchr(d->host, ']'); /* of [::1]:80 */
    int has_port = strchr(after == NULL ? d->host : after, ':') != NULL;
    snprintf(d->address, sizeof(d->address), "%s%s", d->host, has_port ? "" : ":80");
    return NULL;
}

/* Asks for the file, and reads the head of the answer and what comes with it. */
static const char *ask(download_t *d, int fd, int64_t *length)
{
    int sz = snprintf(d->buffer, BUFFER_SZ, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", d->path,
                      d->host);
    if (aco_write_all(fd, d->buffer, (size_t)sz) != sz) {
        return strerror(errno);
    }
    char *end = NULL;
    for (d->sz = 0; end == NULL; end = strstr(d->buffer, "\r\n\r\n")) {
        ssize_t got = aco_read(fd, d->buffer + d->sz, BUFFER_SZ - 1 - d->sz);
        if (got <= 0) {
            return got < 0 ? strerror(errno) : "the answer is not one of HTTP";
        }
        d->buffer[d->sz += (size_t)got] = '\0';
    }
    int status = 0;
    sscanf(d->buffer, "HTTP/1.%*1[01] %d", &status);
    const char *field = strcasestr(d->buffer, "\r\nContent-Length:");
    *length = field != NULL && field < end ? atoll(strchr(field, ':') + 1) : -1;
    d->sz -= (size_t)(end + 4 - d->buffer);
    memmove(d->buffer, end + 4, d->sz);
    return status == 200 ? NULL : "the server does not answer with 200";
}

static const char *receive(download_t *d, int fd, int out, int64_t length)
{
    int64_t done = 0;
    ssize_t got = (ssize_t)d->sz;
    do {
        if (aco_write_all(out, d->buffer, (size_t)got) != got) {
            return strerror(errno);
        }
        done += got;
        received_sz += got;
        got = done == length ? 0 : aco_read(fd, d->buffer, BUFFER_SZ);
    } while (got > 0);
    return got < 0 ? strerror(errno) : length >= 0 && done != length ? "it ends too early" : NULL;
}

static const char *fetch_from(download_t *d, int fd)
{
    int64_t length = -1; /* unknown */
    const char *fault = ask(d, fd, &length);
    if (fault != NULL) {
        return fault;
    }
    int out = aco_open(d->file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (out < 0) {
        return strerror(errno);
    }
    expected_sz += length > 0 ? length : 0;
    fault = receive(d, fd, out, length);
    return aco_close(out) == 0 || fault != NULL ? fault : strerror(errno);
}

static const char *why_not_dialled(void)
{
    const char *lookup = aco_lookup_error();
    return lookup != NULL ? lookup : strerror(errno);
}

static const char *fetch(download_t *d)
{
    const char *fault = parse(d);
    if (fault != NULL) {
        return fault;
    }
    aco_within(patience)
    {
        int fd = aco_dial("tcp", d->address);
        fault = fd < 0 ? why_not_dialled() : fetch_from(d, fd);
        aco_close(fd);
    }
    return fault;
}

static void *download(void *url)
{
    aco_semaphore_acquire(&places);
    download_t *d = (download_t *)malloc(sizeof(*d));
    if (d == NULL) {
        err(1, "malloc");
    }
    d->url = (const char *)url;
    const char *fault = fetch(d);
    if (fault != NULL) {
        fprintf(stderr, "\r%s: %s\n", d->url, fault);
        ct_failed++;
    }
    ct_ended++;
    free(d);
    aco_semaphore_release(&places);
    return NULL;
}

/* ==== All of them ============================================================================ */

static void show_progress(void)
{
    static const char full[BAR_SZ + 1] = "########################################";
    double part = expected_sz > 0 ? (double)received_sz / (double)expected_sz : 0;
    int sz = ct_ended == ct_urls ? BAR_SZ : (int)((part < 1 ? part : 1) * BAR_SZ);
    fprintf(stderr, "\r[%-*.*s] %d of %d files, %.1f MB ", BAR_SZ, sz, full, ct_ended, ct_urls,
            (double)received_sz / 1e6);
}

static void *keep_showing(void *arg)
{
    do {
        show_progress();
    } while (aco_sleep(SECOND / 10) == 0);
    return arg;
}

static void *run(void *arg)
{
    aco_task_t *bar = aco_spawn(keep_showing, NULL);
    aco_group_t *group = aco_group_new();
    for (char **url = (char **)arg; *url != NULL; url++) {
        if (bar == NULL || group == NULL || aco_group_go(group, download, *url) != 0) {
            err(1, "%s", *url);
        }
    }
    aco_group_join(group);
    aco_task_cancel(bar);
    aco_join(bar, NULL);
    show_progress();
    fputs("\n", stderr);
    return NULL;
}

int main(int argc, char **argv)
{
    int option;
    size_t at_a_time = 8;
    while ((option = getopt(argc, argv, "c:t:h")) != -1) {
        if (option == 'c') {
            at_a_time = strtoul(optarg, NULL, 10);
        } else if (option == 't') {
            patience = (int64_t)(atof(optarg) * (double)SECOND);
        } else {
            break;
        }
    }
    if (option != -1 || optind == argc || at_a_time == 0) {
        fputs(USAGE, option == 'h' ? stdout : stderr);
        return option == 'h' ? 0 : 2;
    }
    signal(SIGPIPE, SIG_IGN);
    aco_semaphore_init(&places, at_a_time);
    ct_urls = argc - optind;
    if (aco_run(NULL, run, argv + optind, NULL) != 0) {
        err(1, "aco_run");
    }
    return ct_failed != 0;
}
