// echo_client.c shows ten thousand connections at a time, every byte checked.
// SPDX-License-Identifier: Apache-2.0
//
// A client for the echo server, with a coroutine for each connection: it lives from how little a
// copying coroutine takes, and some coroutines wait for each other.
// build: examples/net/net.c
/*
 * Opens all connections and keeps them until the last one is open and has had an answer. Then each
 * sends a message in every round, and checks every byte that comes back. Some break off early, in
 * the middle of an answer. Tells at the end what it did and what it took.
 */
#include "net/net.h"

#include <errno.h>
#include <sys/socket.h>

#define MESSAGE_MAX_SZ 1000u /* bytes; so that it fits into the buffers of a connection */
#define PIECE_SZ 256u        /* bytes; a larger buffer on the stack would be copied with it */
#define UNDER_WAY_MAX 256u   /* connections that the server has not answered yet */
#define SAVE_STACK_SZ 512u   /* bytes */
#define EVENTS 256           /* taken from epoll at a time */
#define OTHER_FILES 16u

static const char USAGE[] =
    "usage: echo_client [-c CONNECTIONS] [-r ROUNDS] [-e EVERY] [-h] PORT\n"
    "  -c CONNECTIONS  how many are open at a time (10000, or as many as ulimit -Hn allows)\n"
    "  -r ROUNDS       messages that each of them sends (5)\n"
    "  -e EVERY        one of so many breaks off early; 0: none does (10)\n"
    "  -h              this text\n";

static struct {
    size_t ct_connections, ct_rounds, every;
    uint16_t port;
} options = {10000, 5, 10, 0};

static size_t ct_open;  /* connections that had an answer */
static size_t ct_early; /* that broke off */
static size_t ct_ended;
static size_t bytes; /* that came back and were right */
static int epoll_fd;

/* ==== A connection =========================================================================== */

typedef struct {
    uint32_t number;
    int fd;
    uint32_t sent, received; /* bytes */
} connection_t;

/* The byte at `position` of what a connection sends. */
static unsigned char byte_at(const connection_t *c, uint32_t position)
{
    uint32_t x = (c->number + 1) * 2654435761u + position;
    x = (x ^ x >> 15) * 2246822519u;
    return (unsigned char)(x >> 24);
}

static void send_bytes(connection_t *c, uint32_t ct)
{
    unsigned char piece[PIECE_SZ];
    while (ct > 0) {
        uint32_t sz = ct < PIECE_SZ ? ct : PIECE_SZ;
        for (uint32_t i = 0; i < sz; i++) {
            piece[i] = byte_at(c, c->sent + i);
        }
        net_demand(net_write(c->fd, piece, sz) == 0, "send");
        c->sent += sz;
        ct -= sz;
    }
}

static void check_bytes(connection_t *c, uint32_t ct)
{
    unsigned char piece[PIECE_SZ];
    while (ct > 0) {
        ssize_t sz = net_read(c->fd, piece, ct < PIECE_SZ ? ct : PIECE_SZ);
        net_demand(sz >= 0, "recv");
        for (uint32_t i = 0; i < (uint32_t)sz; i++, c->received++) {
            if (piece[i] != byte_at(c, c->received)) {
                sz = 0;
            }
        }
        if (sz == 0) {
            fprintf(stderr, "connection %u: wrong or missing at byte %u\n", c->number, c->received);
            exit(1);
        }
        ct -= (uint32_t)sz;
        bytes += (size_t)sz;
    }
}

static uint32_t size_of_message(const connection_t *c, size_t round)
{
    return 1 + (c->number * 7919u + (uint32_t)round * 104729u) % MESSAGE_MAX_SZ;
}

static void exchange(connection_t *c, size_t round)
{
    uint32_t sz = size_of_message(c, round);
    send_bytes(c, sz);
    check_bytes(c, sz);
}

/* Ends in order: no more from here, then no more from there. */
static void close_in_order(connection_t *c)
{
    unsigned char more;
    net_demand(shutdown(c->fd, SHUT_WR) == 0, "shutdown");
    if (net_read(c->fd, &more, 1) != 0) {
        fprintf(stderr, "connection %u: no end after the last byte\n", c->number);
        exit(1);
    }
    close(c->fd);
}

static void break_off(connection_t *c)
{
    uint32_t sz = size_of_message(c, options.ct_rounds);
    send_bytes(c, sz);
    check_bytes(c, sz / 2);
    net_abort(c->fd);
    ct_early++;
}

static void converse(void)
{
    connection_t c = {(uint32_t)(uintptr_t)aco_get_arg(), -1, 0, 0};
    c.fd = net_connect(epoll_fd, options.port, aco_get_co());
    net_demand(c.fd >= 0, "connect");
    exchange(&c, 0);
    ct_open++;
    while (ct_open < options.ct_connections) {
        aco_yield();
    }
    for (size_t round = 1; round < options.ct_rounds; round++) {
        exchange(&c, round);
    }
    if (options.every != 0 && c.number % options.every == 0) {
        break_off(&c);
    } else {
        close_in_order(&c);
    }
    ct_ended++;
    aco_exit();
}

/* ==== The loop =============================================================================== */

static void handle_events(void)
{
    struct epoll_event events[EVENTS];
    int ct = epoll_wait(epoll_fd, events, EVENTS, -1);
    net_demand(ct >= 0 || errno == EINTR, "epoll_wait");
    for (int i = 0; i < ct; i++) {
        aco_t *co = (aco_t *)events[i].data.ptr;
        if (!co->is_end) {
            aco_resume(co);
        }
    }
}

static void open_all(aco_t *const *cos)
{
    size_t ct_begun = 0;
    while (ct_open < options.ct_connections) {
        while (ct_begun < options.ct_connections && ct_begun - ct_open < UNDER_WAY_MAX) {
            aco_resume(cos[ct_begun++]);
        }
        if (ct_open < options.ct_connections) {
            handle_events();
        }
    }
    printf("%zu connections are open\n", ct_open);
    fflush(stdout);
}

static void run(aco_t *const *cos)
{
    open_all(cos);
    for (size_t i = 0; i < options.ct_connections; i++) {
        if (!cos[i]->is_end) {
            aco_resume(cos[i]); /* it has waited for the last one */
        }
    }
    while (ct_ended < options.ct_connections) {
        handle_events();
    }
    printf("%zu ended in order, %zu early; %zu bytes came back right\n", ct_ended - ct_early,
           ct_early, bytes);
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
    while ((option = getopt(argc, argv, "c:r:e:h")) != -1) {
        switch (option) {
        case 'c':
            options.ct_connections = strtoul(optarg, NULL, 10);
            break;
        case 'r':
            options.ct_rounds = strtoul(optarg, NULL, 10);
            break;
        case 'e':
            options.every = strtoul(optarg, NULL, 10);
            break;
        case 'h':
            end_with_usage(0);
        default:
            end_with_usage(2);
        }
    }
    if (optind != argc - 1) {
        end_with_usage(2);
    }
    options.port = (uint16_t)strtoul(argv[optind], NULL, 10);
    size_t allowed = net_allow_files(options.ct_connections + OTHER_FILES) - OTHER_FILES;
    if (options.ct_connections > allowed) {
        options.ct_connections = allowed;
    }
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t **cos;
    aco_new(cos, options.ct_connections * sizeof(*cos));
    for (size_t i = 0; i < options.ct_connections; i++) {
        cos[i] = aco_create(main_co, stack, SAVE_STACK_SZ, converse, (void *)i);
    }
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    net_demand(epoll_fd >= 0, "epoll_create1");

    run(cos);
    net_print_usage();

    close(epoll_fd);
    for (size_t i = 0; i < options.ct_connections; i++) {
        aco_destroy(cos[i]);
    }
    free(cos);
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
    return 0;
}
