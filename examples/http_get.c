// http_get.c shows many fetches at a time, with a line of progress.
// SPDX-License-Identifier: Apache-2.0
//
// HTTP fetches, by coroutines each of which asks for one page after the other: work that is shared
// out among coroutines on stacks of a pool, a buffer that all of them use in turn, and a line of
// progress that the loop keeps up.
// build: -Iextra/stack_pool examples/net/net.c extra/stack_pool/aco_stack_pool.c
/*
 * Fetches a page from a server of this machine. Without a port it serves the pages itself, by
 * coroutines in the same loop, and then knows what is in them and checks every byte.
 */

/* For strcasestr(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "net/net.h"
#include "aco_stack_pool.h"

#include <errno.h>

#define HEAD_MAX_SZ 1024u /* bytes; of a request, and of the head of an answer */
#define CHUNK_SZ 16384u   /* bytes */
#define PAGE_MAX_SZ 50000u
#define STACK_SZ (32u << 10) /* bytes */
#define EVENTS 64
#define STEPS 50u /* of the line of progress */

static const char USAGE[] =
    "usage: http_get [-n FETCHES] [-c AT_A_TIME] [-h] [PORT [PATH]]\n"
    "  -n FETCHES    how many pages are fetched (1000)\n"
    "  -c AT_A_TIME  by how many coroutines (100)\n"
    "  -h            this text\n"
    "  PORT          of a server of this machine; without, the program serves pages of its own\n"
    "  PATH          of the page there (/)\n";

static struct {
    size_t ct_fetches, ct_at_a_time;
    uint16_t port;
    const char *path; /* NULL: pages of our own */
} options = {1000, 100, 0, NULL};

static size_t ct_begun, ct_done, bytes; /* fetches, fetches, bytes of pages */
static int epoll_fd, listener = -1;
static aco_t *main_co;
static aco_stack_pool_t *pool;

/* What is read goes here. All coroutines use it, as none keeps what is in it over a yield. */
static char chunk[CHUNK_SZ];

static void fail(const char *what, size_t page)
{
    fprintf(stderr, "page %zu: %s\n", page, what);
    exit(1);
}

/* ==== Pages ================================================================================== */

static size_t size_of_page(size_t page)
{
    return page * 7919 % PAGE_MAX_SZ;
}

static char byte_of_page(size_t page, size_t position)
{
    return (char)('a' + (page + position) % 26);
}

/* ==== A fetch ================================================================================ */

/* Of an answer on its way. */
typedef struct {
    size_t page;
    int fd;
    char head[HEAD_MAX_SZ + 1];
    size_t head_sz;
    size_t body_sz; /* that came so far */
} answer_t;

static void take_body(answer_t *answer, const char *data, size_t sz)
{
    for (size_t i = 0; options.path == NULL && i < sz; i++) {
        if (data[i] != byte_of_page(answer->page, answer->body_sz + i)) {
            fail("wrong byte", answer->page);
        }
    }
    answer->body_sz += sz;
}

/* Reads up to the empty line that ends the head; what follows it is of the body. */
static void read_head(answer_t *answer)
{
    const char *end = NULL;
    while (end == NULL) {
        char *rest = answer->head + answer->head_sz;
        ssize_t sz = net_read(answer->fd, rest, HEAD_MAX_SZ - answer->head_sz);
        if (sz <= 0) {
            fail("no head, or too long a one", answer->page);
        }
        answer->head_sz += (size_t)sz;
        answer->head[answer->head_sz] = '\0';
        end = strstr(answer->head, "\r\n\r\n");
    }
    size_t sz = (size_t)(end + 4 - answer->head);
    take_body(answer, answer->head + sz, answer->head_sz - sz);
    answer->head[sz] = '\0';
}

/* What the head says of the size of the body; SIZE_MAX if nothing. */
static size_t promised_sz(const char *head)
{
    static const char name[] = "\r\nContent-Length: ";
    const char *found = strcasestr(head, name);
    return found != NULL ? strtoul(found + sizeof(name) - 1, NULL, 10) : SIZE_MAX;
}

static void send_request(const answer_t *answer)
{
    char request[HEAD_MAX_SZ], own_path[24];
    snprintf(own_path, sizeof(own_path), "/%zu", answer->page);
    int sz = snprintf(request, sizeof(request), "GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n",
                      options.path != NULL ? options.path : own_path);
    if (sz >= (int)sizeof(request) || net_write(answer->fd, request, (size_t)sz) != 0) {
        fail("the request can't be sent", answer->page);
    }
}

static void fetch(size_t page)
{
    answer_t answer = {page, net_connect(epoll_fd, options.port, aco_get_co()), "", 0, 0};
    if (answer.fd < 0) {
        fail("nobody listens at the port", page);
    }
    send_request(&answer);
    read_head(&answer);
    if (strncmp(answer.head, "HTTP/1.", 7) != 0 || strncmp(answer.head + 8, " 200 ", 5) != 0) {
        fail("the server does not answer with 200", page);
    }
    ssize_t sz;
    while ((sz = net_read(answer.fd, chunk, sizeof(chunk))) > 0) {
        take_body(&answer, chunk, (size_t)sz);
    }
    size_t promised = promised_sz(answer.head);
    if (sz < 0 || (promised != SIZE_MAX && promised != answer.body_sz)) {
        fail("it is not complete", page);
    }
    close(answer.fd);
    bytes += answer.body_sz;
}

static void fetch_pages(void)
{
    while (ct_begun < options.ct_fetches) {
        fetch(ct_begun++);
        ct_done++;
    }
    aco_exit();
}

/* ==== The server ============================================================================= */

static void send_page(int fd, size_t page)
{
    char piece[4096];
    size_t sent = 0, sz = size_of_page(page);
    int head_sz = snprintf(piece, sizeof(piece), "HTTP/1.0 200 OK\r\nContent-Length: %zu\r\n\r\n",
                           sz);
    int status = net_write(fd, piece, (size_t)head_sz);
    while (status == 0 && sent < sz) {
        size_t piece_sz = sz - sent < sizeof(piece) ? sz - sent : sizeof(piece);
        for (size_t i = 0; i < piece_sz; i++) {
            piece[i] = byte_of_page(page, sent + i);
        }
        status = net_write(fd, piece, piece_sz);
        sent += piece_sz;
    }
}

static void serve(void)
{
    int fd = (int)(intptr_t)aco_get_arg();
    char request[HEAD_MAX_SZ + 1] = "";
    size_t sz = 0;
    while (strstr(request, "\r\n\r\n") == NULL) {
        ssize_t ct = net_read(fd, request + sz, HEAD_MAX_SZ - sz);
        if (ct <= 0) {
            break;
        }
        sz += (size_t)ct;
        request[sz] = '\0';
    }
    if (strncmp(request, "GET /", 5) == 0) {
        send_page(fd, strtoul(request + 5, NULL, 10));
    }
    close(fd);
    aco_exit();
}

/* ==== The loop =============================================================================== */

/* Resumes, and destroys at the end: nothing else keeps a coroutine here than epoll, until it has
 * closed its socket. */
static void resume(aco_t *co)
{
    aco_resume(co);
    if (co->is_end) {
        aco_stack_pool_destroy_co(pool, co);
    }
}

static void accept_clients(void)
{
    for (int fd = net_accept(listener); fd >= 0; fd = net_accept(listener)) {
        aco_t *co = aco_stack_pool_create_co(pool, main_co, serve, (void *)(intptr_t)fd);
        net_watch(epoll_fd, fd, co);
        resume(co);
    }
}

/* One line, written over itself: a bar, and the numbers. */
static void show_progress(void)
{
    static size_t shown = STEPS + 1;
    static const char bar[] = "##################################################";
    size_t step = options.ct_fetches == 0 ? STEPS : ct_done * STEPS / options.ct_fetches;
    if (step != shown) {
        shown = step;
        printf("\r[%-*.*s] %zu of %zu pages", (int)STEPS, (int)step, bar, ct_done,
               options.ct_fetches);
        fflush(stdout);
    }
}

static void loop(void)
{
    struct epoll_event events[EVENTS];
    while (ct_done < options.ct_fetches) {
        int ct = epoll_wait(epoll_fd, events, EVENTS, -1);
        net_demand(ct >= 0 || errno == EINTR, "epoll_wait");
        for (int i = 0; i < ct; i++) {
            if (events[i].data.ptr == &listener) {
                accept_clients();
            } else {
                resume((aco_t *)events[i].data.ptr);
            }
        }
        show_progress();
    }
    printf("\n%zu bytes of pages, at most %zu at a time\n", bytes, options.ct_at_a_time);
}

/* Ends the program with its usage: on stdout for status 0, else on stderr. */
__attribute__((noreturn)) static void end_with_usage(int status)
{
    fputs(USAGE, status == 0 ? stdout : stderr);
    exit(status);
}

static void read_options(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "n:c:h")) != -1) {
        switch (option) {
        case 'n':
            options.ct_fetches = strtoul(optarg, NULL, 10);
            break;
        case 'c':
            options.ct_at_a_time = strtoul(optarg, NULL, 10);
            break;
        case 'h':
            end_with_usage(0);
        default:
            end_with_usage(2);
        }
    }
    if (optind < argc) {
        options.port = (uint16_t)strtoul(argv[optind], NULL, 10);
        options.path = optind + 1 < argc ? argv[optind + 1] : "/";
    }
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    net_allow_files(2 * options.ct_at_a_time + 16);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    net_demand(epoll_fd >= 0, "epoll_create1");
    aco_thread_init(NULL);
    main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    pool = aco_stack_pool_new(STACK_SZ, 0);
    if (options.path == NULL) {
        listener = net_listen(0);
        options.port = net_port(listener);
        net_watch(epoll_fd, listener, &listener);
    }

    for (size_t i = 0; i < options.ct_at_a_time; i++) {
        resume(aco_stack_pool_create_co(pool, main_co, fetch_pages, NULL));
    }
    loop();
    net_print_usage();

    if (listener >= 0) {
        close(listener);
    }
    close(epoll_fd);
    aco_stack_pool_destroy(pool);
    aco_destroy(main_co);
    return 0;
}
