// SPDX-License-Identifier: Apache-2.0
/* libcurl and nginx, with TLS and without. */
#include "real.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CT_KEPT = 20, SUMMED_SZ = 1 << 20 };

typedef struct {
    uint32_t sum;
    size_t sz;
    int tells_begin;
} body_t;

static int tls_port;
static const char *certificate;

static size_t take(char *bytes, size_t one, size_t sz, void *arg)
{
    body_t *body = (body_t *)arg;
    if (body->tells_begin && body->sz == 0) {
        about_to_wait();
    }
    if (body->sz < SUMMED_SZ) { /* 100 MB take long */
        size_t left = SUMMED_SZ - body->sz;
        body->sum = sum_of(body->sum, bytes, left < sz * one ? left : sz * one);
    }
    body->sz += sz * one;
    return sz * one;
}

static CURLcode get(CURL *curl, const char *scheme, int to, const char *path, body_t *body)
{
    char url[TEXT_SZ];
    snprintf(url, sizeof(url), "%s://%s:%d/%s", scheme, to == silent_port ? HOST : "localhost", to,
             path);
    body->sum = 0;
    body->sz = 0;
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_IPRESOLVE, (long)CURL_IPRESOLVE_V4);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_CAPATH, NULL); /* GnuTLS would read all of it each time */
    return curl_easy_perform(curl);
}

static void ask(job_t *job, CURL *curl, const char *scheme, const char *path)
{
    body_t body = {0};
    int to = strcmp(scheme, "https") == 0 ? tls_port : port;
    CURLcode code = get(curl, scheme, to, path, &body);
    long status = 0, ct_connects = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(curl, CURLINFO_NUM_CONNECTS, &ct_connects);
    tell(job, "[%s %ld %zu %08x %ld] ", curl_easy_strerror(code), status, body.sz, body.sum,
         ct_connects);
}

static void talk_in_vain(job_t *job, const char *scheme, int to)
{
    CURL *curl = curl_easy_init();
    body_t body = {0};
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, 200L);
    tell(job, "[%s] ", curl_easy_strerror(get(curl, scheme, to, "", &body)));
    curl_easy_cleanup(curl);
}

static void talk_in(job_t *job, const char *scheme)
{
    CURL *curl = curl_easy_init();
    curl_easy_setopt(curl, CURLOPT_CAINFO, certificate);
    ask(job, curl, scheme, "small");
    for (int i = 0; i < CT_KEPT; i++) {
        body_t body = {0};
        CHECK(get(curl, scheme, strcmp(scheme, "https") ? port : tls_port, "small", &body) == 0);
        CHECK(body.sz == 1000);
    }
    ask(job, curl, scheme, "medium");
    ask(job, curl, scheme, "wait");
    curl_easy_setopt(curl, CURLOPT_ACCEPT_ENCODING, "gzip"); /* the answer comes in chunks */
    ask(job, curl, scheme, "chunked/medium");
    curl_easy_setopt(curl, CURLOPT_ACCEPT_ENCODING, NULL);
    if (job->number == 0) {
        ask(job, curl, scheme, "large");
    }
    curl_easy_cleanup(curl);
}

static void talk(job_t *job)
{
    CURL *curl;
    talk_in(job, "http");
    talk_in(job, "https");
    curl = curl_easy_init();
    ask(job, curl, "https", "small"); /* its certificate is not known */
    curl_easy_cleanup(curl);
    talk_in_vain(job, "http", REFUSED_PORT);
    talk_in_vain(job, "http", silent_port);
    talk_in_vain(job, "https", silent_port);
}

/* Waits for an answer that begins and has no end. */
static void wait(job_t *job)
{
    CURL *curl = curl_easy_init();
    body_t body = {.tells_begin = 1};
    CURLcode code = CURLE_OK;
    int is_tls = job->number % 2;
    curl_easy_setopt(curl, CURLOPT_CAINFO, certificate);
    aco_within(patience)
    {
        code = get(curl, is_tls ? "https" : "http", is_tls ? tls_port : port, "stay", &body);
    }
    tell(job, "[%s]", curl_easy_strerror(code));
    curl_easy_cleanup(curl);
}

static void prepare(void)
{
}

static void session(job_t *job, unsigned *seed)
{
    static const char *const PATHS[] = {"small", "medium", "nothing", "chunked/medium"};
    CURL *curl = curl_easy_init();
    (void)job;
    curl_easy_setopt(curl, CURLOPT_CAINFO, certificate);
    for (int ct = rand_r(seed) % 10; ct > 0; ct--) {
        int is_tls = rand_r(seed) % 2;
        body_t body = {0};
        CHECK(get(curl, is_tls ? "https" : "http", is_tls ? tls_port : port,
                  PATHS[rand_r(seed) % 4], &body) == CURLE_OK);
        CHECK(body.sz > 0);
    }
    curl_easy_cleanup(curl);
}

static void init(void)
{
    CHECK(getenv("TLS_PORT") != NULL);
    tls_port = atoi(getenv("TLS_PORT"));
    CHECK((certificate = getenv("CERTIFICATE")) != NULL);
    CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
}

const library_t library = {talk, wait, prepare, NULL, NULL, session, init};
