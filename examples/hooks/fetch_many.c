// fetch_many.c shows downloads at the same time by unmodified libcurl, with a progress bar.
// SPDX-License-Identifier: Apache-2.0
// libraries: libcurl
#include "aco_runtime.h"

#include <curl/curl.h>
#include <err.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BAR_SZ 40 /* characters */

static const char USAGE[] =
    "usage: fetch_many [-c COUNT] [-t SECONDS] [-a FILE] [-h] URL...\n"
    "  -c COUNT    so many at a time (100)\n"
    "  -t SECONDS  that each may take (60)\n"
    "  -a FILE     with certificates of authorities, instead of the system's\n"
    "  -h          this text\n"
    "  What a URL leads to goes into a file with the last part of its path as name.\n";

static aco_semaphore_t places;
static const char *authorities;
static double patience = 60, received, expected; /* seconds; bytes of all files */
static int ct_urls, ct_ended, ct_failed;

/* ==== A file ================================================================================= */

typedef struct {
    double received, expected;
} progress_t;

/* Called by libcurl, in the task of the transfer. */
static int note_progress(void *arg, curl_off_t total, curl_off_t now, curl_off_t up_total,
                         curl_off_t up_now)
{
    progress_t *known = (progress_t *)arg;
    (void)up_total;
    (void)up_now;
    received += (double)now - known->received;
    expected += (double)total - known->expected;
    *known = (progress_t){(double)now, (double)total};
    return 0;
}

static CURLcode fetch_to(FILE *file, const char *url)
{
    CURL *curl = curl_easy_init();
    progress_t progress = {0, 0};
    CURLcode code = CURLE_FAILED_INIT;
    if (curl != NULL) {
        curl_easy_setopt(curl, CURLOPT_URL, url);
        curl_easy_setopt(curl, CURLOPT_WRITEDATA, file);
        curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
        curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
        curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, note_progress);
        curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &progress);
        if (authorities != NULL) {
            curl_easy_setopt(curl, CURLOPT_CAINFO, authorities);
        }
        code = curl_easy_perform(curl);
        curl_easy_cleanup(curl);
    }
    return code;
}

static const char *fetch(const char *url)
{
    const char *slash = strrchr(url, '/');
    CURLcode code = CURLE_OK;
    int64_t end = aco_now() + (int64_t)(patience * 1e9);
    if (slash == NULL || slash[1] == '\0') {
        return "it names no file";
    }
    FILE *file = fopen(slash + 1, "wb");
    if (file == NULL) {
        return "its file can't be written";
    }
    aco_within((int64_t)(patience * 1e9))
    {
        code = fetch_to(file, url);
    }
    if (fclose(file) != 0 && code == CURLE_OK) {
        code = CURLE_WRITE_ERROR;
    }
    return code == CURLE_OK   ? NULL
           : aco_now() >= end ? "no time is left"
                              : curl_easy_strerror(code);
}

static void *download(void *arg)
{
    const char *url = (const char *)arg;
    aco_semaphore_acquire(&places);
    const char *fault = fetch(url);
    if (fault != NULL) {
        fprintf(stderr, "\r%s: %s\n", url, fault);
        ct_failed++;
    }
    ct_ended++;
    aco_semaphore_release(&places);
    return NULL;
}

/* ==== All of them ============================================================================ */

static void show_progress(void)
{
    static const char full[BAR_SZ + 1] = "########################################";
    double part = ct_ended == ct_urls ? 1 : expected > 0 ? received / expected : 0;
    fprintf(stderr, "\r[%-*.*s] %d of %d files, %.1f MB ", BAR_SZ,
            (int)((part < 1 ? part : 1) * BAR_SZ), full, ct_ended, ct_urls, received / 1e6);
}

static void *keep_showing(void *arg)
{
    do {
        show_progress();
    } while (aco_sleep(100000000) == 0);
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
    size_t at_a_time = 100;
    while ((option = getopt(argc, argv, "c:t:a:h")) != -1) {
        if (option == 'c') {
            at_a_time = strtoul(optarg, NULL, 10);
        } else if (option == 't') {
            patience = atof(optarg);
        } else if (option == 'a') {
            authorities = optarg;
        } else {
            break;
        }
    }
    if (option != -1 || optind == argc || at_a_time == 0) {
        fputs(USAGE, option == 'h' ? stdout : stderr);
        return option == 'h' ? 0 : 2;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    aco_semaphore_init(&places, at_a_time);
    ct_urls = argc - optind;
    if (aco_run(NULL, run, argv + optind, NULL) != 0) {
        err(1, "aco_run");
    }
    return ct_failed != 0;
}
