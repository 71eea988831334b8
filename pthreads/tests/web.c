// SPDX-License-Identifier: Apache-2.0
/*
 * A server on libmicrohttpd with a thread for each connection: `web PORT FILE`. /file is the file,
 * and /together/CT is answered when so many such requests are there at a time. SIGTERM ends it.
 */
#include "check.h"

#include <fcntl.h>
#include <microhttpd.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#define MOST_CONNECTIONS 2000
#define TIMEOUT 60 /* s */

static const char *file;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_met = PTHREAD_COND_INITIALIZER;
static unsigned ct_requests, ct_arrived, round_of_all; /* guarded */
static __thread unsigned ct_of_connection;

static void meet(unsigned ct)
{
    pthread_mutex_lock(&mutex);
    unsigned round = round_of_all;
    if (++ct_arrived == ct) {
        ct_arrived = 0;
        round_of_all++;
        pthread_cond_broadcast(&has_met);
    }
    while (round == round_of_all) {
        pthread_cond_wait(&has_met, &mutex);
    }
    pthread_mutex_unlock(&mutex);
}

static struct MHD_Response *respond(const char *url)
{
    static char text[] = "met\n";
    struct stat status;
    unsigned ct;
    if (sscanf(url, "/together/%u", &ct) == 1) {
        meet(ct);
        return MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_PERSISTENT);
    }
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &status) == 0);
    return MHD_create_response_from_fd((size_t)status.st_size, fd);
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *body, size_t *sz,
                              void **ct_before)
{
    (void)arg, (void)method, (void)version, (void)body, (void)sz;
    if (*ct_before == NULL) { /* the headers; the request follows */
        *ct_before = (void *)(uintptr_t)++ct_of_connection;
        return MHD_YES;
    }
    struct MHD_Response *response = respond(url);
    CHECK(response != NULL && (uintptr_t)*ct_before == ct_of_connection);
    enum MHD_Result result = MHD_queue_response(connection, MHD_HTTP_OK, response);
    MHD_destroy_response(response);
    pthread_mutex_lock(&mutex);
    ct_requests++;
    pthread_mutex_unlock(&mutex);
    return result;
}

int main(int argc, char **argv)
{
    sigset_t set;
    int number;
    CHECK(argc == 3);
    file = argv[2];
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL,
        (uint16_t)atoi(argv[1]), NULL, NULL, answer, NULL, MHD_OPTION_CONNECTION_LIMIT,
        MOST_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, TIMEOUT, MHD_OPTION_END);
    CHECK(daemon != NULL);
    CHECK(sigwait(&set, &number) == 0);
    MHD_stop_daemon(daemon);
    printf("%u requests\n", ct_requests);
    return EXIT_SUCCESS;
}
