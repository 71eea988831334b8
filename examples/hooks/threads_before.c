// threads_before.c shows a daemon with a thread for each connection, before it runs tasks.
// SPDX-License-Identifier: Apache-2.0
/*
 * It keeps values by keys. Clients send lines, "set KEY VALUE" or "get KEY"; what is set is in a
 * file before it is answered, and locked meanwhile.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <search.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINE_SZ 256
#define IDLE_LIMIT 60 /* seconds for which a client may be silent */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of these two */
static void *entries;                                     /* a tree of keys, each with its value */
static int journal;

static __thread char request[LINE_SZ]; /* of the client that the thread serves */

/* ==== The values ============================================================================= */

static int compare(const void *a, const void *b)
{
    return strcmp((const char *)a, (const char *)b);
}

/* Keeps KEY, '\0', VALUE. */
static int keep(const char *key, const char *value)
{
    size_t key_sz = strlen(key) + 1;
    char *entry = (char *)malloc(key_sz + strlen(value) + 1);
    if (entry == NULL) {
        return 0;
    }
    memcpy(entry, key, key_sz);
    strcpy(entry + key_sz, value);
    char **found = (char **)tsearch(entry, &entries, compare);
    if (found != NULL && *found != entry) {
        free(*found);
        *found = entry;
    }
    return found != NULL;
}

static int note(const char *key, const char *value)
{
    char line[LINE_SZ];
    int sz = snprintf(line, sizeof(line), "set %s %s\n", key, value);
    return write(journal, line, (size_t)sz) == sz && fdatasync(journal) == 0;
}

static const char *set(const char *key, const char *value)
{
    pthread_mutex_lock(&mutex);
    int is_kept = note(key, value) && keep(key, value);
    pthread_mutex_unlock(&mutex);
    return is_kept ? "done\n" : "failed\n";
}

static const char *get(const char *key, char *answer)
{
    pthread_mutex_lock(&mutex);
    char **found = (char **)tfind(key, &entries, compare);
    const char *value = found != NULL ? *found + strlen(key) + 1 : "";
    snprintf(answer, LINE_SZ, "%s\n", value);
    pthread_mutex_unlock(&mutex);
    return answer;
}

/* Reads what the file has kept since the last time. */
static void load(const char *path)
{
    char line[LINE_SZ], key[LINE_SZ], value[LINE_SZ];
    FILE *file = fopen(path, "a+");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "set %s %[^\n]", key, value) != 2 || !keep(key, value)) {
            errx(1, "%s: %s", path, line);
        }
    }
    journal = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file == NULL || fclose(file) != 0 || journal < 0) {
        err(1, "%s", path);
    }
}

/* ==== A client =============================================================================== */

/* The text is in `answer`, or static. */
static const char *reply_to(const char *text, char *answer)
{
    char key[LINE_SZ], value[LINE_SZ];
    return sscanf(text, "set %s %[^\n]", key, value) == 2 ? set(key, value)
           : sscanf(text, "get %s", key) == 1             ? get(key, answer)
                                                          : "what?\n";
}

/* Returns 0 at the end, at a failure, and for a line that is too long. */
static int read_request(int fd)
{
    size_t sz = 0;
    while (sz < LINE_SZ - 1 && read(fd, &request[sz], 1) == 1) {
        if (request[sz++] == '\n') {
            request[sz] = '\0';
            return 1;
        }
    }
    return 0;
}

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char answer[LINE_SZ];
    struct timeval limit = {IDLE_LIMIT, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    while (read_request(fd)) {
        const char *reply = reply_to(request, answer);
        if (send(fd, reply, strlen(reply), MSG_NOSIGNAL) < 0) {
            break;
        }
    }
    close(fd);
    return NULL;
}

/* ==== All of them ============================================================================ */

static int start(int fd)
{
    pthread_t thread;
    void *arg = (void *)(intptr_t)fd;
    return pthread_create(&thread, NULL, serve, arg) == 0 && pthread_detach(thread) == 0;
}

static int listen_at(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(listener, SOMAXCONN) != 0) {
        err(1, "port %d", port);
    }
    return listener;
}

static void *accept_all(void *port)
{
    int listener = listen_at(atoi((const char *)port));
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0 || !start(fd)) {
            warnx("a client has to leave");
            close(fd);
            usleep(100000);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        int is_help = argc == 2 && strcmp(argv[1], "-h") == 0;
        fprintf(is_help ? stdout : stderr, "usage: %s [-h] PORT FILE\n",
                program_invocation_short_name);
        return is_help ? 0 : 2;
    }
    load(argv[2]);
    accept_all(argv[1]);
}
