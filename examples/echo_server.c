// echo_server.c shows epoll: one coroutine per connection, stacks of three kinds, several threads.
// SPDX-License-Identifier: Apache-2.0
//
// An echo server, in which the body of a connection reads as if its calls blocked: with the choice
// between standalone, pool and share stack, aco_cancel() with cleanups in C, an instance of aco per
// thread, and aco_on_own_stack() against a pitfall.
// build: -fexceptions -Iextra/cancel -Iextra/stack_pool examples/net/net.c
// build: extra/cancel/aco_cancel.c extra/stack_pool/aco_stack_pool.c
/*
 * Ends after so many connections, or when interrupted, and tells what it did and what it took. Each
 * thread has a listener of its own at the port (SO_REUSEPORT), among which the kernel deals out the
 * clients. To see it with 10,000 connections at a time:
 *
 *   ./echo_server -s share -p 7777 -n 10000 & ./echo_client -c 10000 7777
 */
#include "net/net.h"
#include "aco_cancel.h"
#include "aco_stack_pool.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#define BUFFER_SZ 2048u      /* bytes; of each connection */
#define STACK_SZ (16u << 10) /* bytes; aco_cancel() takes 3 KiB of it, a buffer 2 KiB */
#define SAVE_STACK_SZ 160u   /* bytes; what the server says at the end that a copy took */
#define EVENTS 256           /* taken from epoll at a time */
#define THREADS_MAX 64u
#define FILES_WANTED 10100u

static const char USAGE[] =
    "usage: echo_server [-s standalone|pool|share] [-b heap|stack] [-t THREADS] [-p PORT]\n"
    "                   [-n CONNECTIONS] [-h]\n"
    "  -s STACKS       of the coroutines: standalone, pool or share (share)\n"
    "  -b PLACE        of the buffers: heap or stack (heap); not stack with -s share\n"
    "  -t THREADS      1 to 64 (1)\n"
    "  -p PORT         where to listen; 0: any (0)\n"
    "  -n CONNECTIONS  after which it ends; 0: never (0)\n"
    "  -h              this text\n";

enum { STANDALONE, POOL, SHARE };

static struct {
    int stacks; /* STANDALONE, POOL or SHARE */
    int buffer_is_on_stack;
    size_t ct_threads;
    uint16_t port;         /* 0: any */
    size_t ct_connections; /* after which it ends; 0: never */
} options = {SHARE, 0, 1, 0, 0};

static size_t ct_ended; /* connections, of all threads */
static int stop_fd;     /* an eventfd: readable when it is time to end */

/* ==== A connection =========================================================================== */

typedef struct connection_s connection_t;
struct connection_s {
    aco_t *co;
    int fd;
    char *lent;          /* where the loop is to put what comes; NULL for nowhere */
    ssize_t received;    /* bytes that it put there */
    connection_t *next;  /* the next older one of the thread that is open */
    connection_t **link; /* what points to this one */
};

/* An instance, one for each thread. */
typedef struct {
    pthread_t thread;
    int listener, epoll;
    aco_t *main_co;
    aco_share_stack_t *share_stack; /* of all its coroutines, if options.stacks is SHARE */
    aco_stack_pool_t *pool;         /* if it is POOL */
    connection_t *open;
    int is_stopped;
    size_t ct_accepted, ct_cancelled, ct_allocated, ct_freed, bytes, max_cpsz;
} server_t;

static __thread server_t *self;

/*
 * The pitfall. While a coroutine waits here, somebody else keeps its buffer: this loop, which fills
 * it, or the kernel, had it been given to io_uring or aio_read(). Nothing is wrong with
 *
 *     char buffer[BUFFER_SZ];
 *     receive(c, buffer);
 *
 * on a stack of one's own. On a share stack, what lies at that address meanwhile is a frame of
 * whoever runs, and the bytes that come go there: a fault that shows much later, elsewhere, if two
 * connections are busy at the same time. So what is lent is checked.
 */
static void lend(connection_t *c, char *buffer)
{
    ACO_ASSERT(options.stacks != SHARE || !aco_on_own_stack(buffer),
               "the buffer is on a share stack, where frames of others will be when it is filled: "
               "take it from the heap, or give the coroutine a stack of its own");
    c->lent = buffer;
}

/* A connection that broke: the loop is told so, too, and cancels the caller. */
static void wait_to_be_cancelled(void)
{
    for (;;) {
        aco_yield();
    }
}

/* The next bytes, as soon as there are some; 0 at the end. */
static size_t receive(connection_t *c, char *buffer)
{
    ssize_t ct = recv(c->fd, buffer, BUFFER_SZ, 0);
    if (ct < 0 && errno == EAGAIN) {
        lend(c, buffer);
        aco_yield();
        ct = c->received;
    }
    if (ct < 0) {
        wait_to_be_cancelled();
    }
    return (size_t)ct;
}

static void echo(connection_t *c, char *buffer)
{
    for (size_t sz = receive(c, buffer); sz > 0; sz = receive(c, buffer)) {
        if (net_write(c->fd, buffer, sz) != 0) {
            wait_to_be_cancelled();
        }
        self->bytes += sz;
    }
}

static char *new_buffer(void)
{
    char *buffer;
    aco_new(buffer, BUFFER_SZ);
    self->ct_allocated++;
    return buffer;
}

/* Called when the block that holds the buffer is left, at its end or by aco_cancel(). */
static void free_buffer(char **buffer)
{
    free(*buffer);
    self->ct_freed++;
}

static void echo_by_heap(connection_t *c)
{
    char *buffer __attribute__((cleanup(free_buffer))) = new_buffer();
    echo(c, buffer);
}

static void echo_by_stack(connection_t *c)
{
    char buffer[BUFFER_SZ];
    echo(c, buffer);
}

static void serve(void)
{
    connection_t *c = (connection_t *)aco_get_arg();
    if (options.buffer_is_on_stack) {
        echo_by_stack(c);
    } else {
        echo_by_heap(c);
    }
    aco_exit();
}

/* ==== Stacks ================================================================================= */

static aco_t *new_coroutine(void *arg)
{
    switch (options.stacks) {
    case STANDALONE:
        return aco_create(self->main_co, aco_share_stack_new(STACK_SZ), 0, serve, arg);
    case POOL:
        return aco_stack_pool_create_co(self->pool, self->main_co, serve, arg);
    default:
        return aco_create(self->main_co, self->share_stack, SAVE_STACK_SZ, serve, arg);
    }
}

static void delete_coroutine(aco_t *co)
{
    aco_share_stack_t *stack = co->share_stack;
    if (self->max_cpsz < co->save_stack.max_cpsz) {
        self->max_cpsz = co->save_stack.max_cpsz;
    }
    if (options.stacks == POOL) {
        aco_stack_pool_destroy_co(self->pool, co);
        return;
    }
    aco_destroy(co);
    if (options.stacks == STANDALONE) {
        aco_share_stack_destroy(stack);
    }
}

/* ==== The loop =============================================================================== */

static void stop(int signal_no)
{
    uint64_t one = 1;
    (void)signal_no;
    net_demand(write(stop_fd, &one, sizeof(one)) == sizeof(one), "write");
}

static void close_connection(connection_t *c)
{
    delete_coroutine(c->co);
    close(c->fd);
    *c->link = c->next;
    if (c->next != NULL) {
        c->next->link = c->link;
    }
    free(c);
    if (__atomic_add_fetch(&ct_ended, 1, __ATOMIC_RELAXED) == options.ct_connections) {
        stop(0);
    }
}

static void cancel(connection_t *c)
{
    self->ct_cancelled++;
    while (!aco_cancel(c->co)) {
    }
    close_connection(c);
}

static void resume(connection_t *c)
{
    aco_resume(c->co);
    if (c->co->is_end) {
        close_connection(c);
    }
}

static void open_connection(int fd)
{
    connection_t *c;
    aco_new(c, sizeof(*c));
    *c = (connection_t){NULL, fd, NULL, 0, self->open, &self->open};
    if (c->next != NULL) {
        c->next->link = &c->next;
    }
    self->open = c;
    self->ct_accepted++;
    c->co = new_coroutine(c);
    net_watch(self->epoll, fd, c);
    resume(c);
}

/* A client that leaves in order closes its own direction first, and waits for the end of ours: both
 * directions are down (EPOLLHUP) only if it broke off. */
static void handle_news(connection_t *c, uint32_t news)
{
    if (news & (EPOLLERR | EPOLLHUP)) {
        cancel(c);
    } else if (c->lent == NULL) {
        resume(c);
    } else {
        c->received = recv(c->fd, c->lent, BUFFER_SZ, 0);
        if (c->received >= 0 || errno != EAGAIN) {
            c->lent = NULL;
            resume(c);
        }
    }
}

static void handle_event(const struct epoll_event *event)
{
    if (event->data.ptr == &stop_fd) {
        self->is_stopped = (event->events & EPOLLIN) != 0;
    } else if (event->data.ptr == self) {
        for (int fd = net_accept(self->listener); fd >= 0; fd = net_accept(self->listener)) {
            open_connection(fd);
        }
    } else {
        handle_news((connection_t *)event->data.ptr, event->events);
    }
}

static void loop(void)
{
    struct epoll_event events[EVENTS];
    while (!self->is_stopped) {
        int ct = epoll_wait(self->epoll, events, EVENTS, -1);
        net_demand(ct >= 0 || errno == EINTR, "epoll_wait");
        for (int i = 0; i < ct; i++) {
            handle_event(&events[i]);
        }
    }
    while (self->open != NULL) {
        cancel(self->open);
    }
}

static void *run(void *server)
{
    self = (server_t *)server;
    aco_thread_init(NULL);
    self->main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    self->share_stack = aco_share_stack_new(0);
    self->pool = aco_stack_pool_new(STACK_SZ, 0);
    self->epoll = epoll_create1(0);
    net_demand(self->epoll >= 0, "epoll_create1");
    net_watch(self->epoll, self->listener, self);
    net_watch(self->epoll, stop_fd, &stop_fd);
    loop();
    close(self->epoll);
    close(self->listener);
    aco_stack_pool_destroy(self->pool);
    aco_share_stack_destroy(self->share_stack);
    aco_destroy(self->main_co);
    return NULL;
}

/* ==== Command line =========================================================================== */

/* Ends the program with its usage: on stdout for status 0, else on stderr. */
__attribute__((noreturn)) static void end_with_usage(int status)
{
    fputs(USAGE, status == 0 ? stdout : stderr);
    exit(status);
}

/* The number of `word` among `words`; ends the program if it is none of them. */
static int choose(const char *word, const char *const *words)
{
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(word, words[i]) == 0) {
            return i;
        }
    }
    end_with_usage(2);
}

static void read_options(int argc, char **argv)
{
    static const char *const stacks[] = {"standalone", "pool", "share", NULL};
    static const char *const places[] = {"heap", "stack", NULL};
    int option;
    while ((option = getopt(argc, argv, "s:b:t:p:n:h")) != -1) {
        switch (option) {
        case 's':
            options.stacks = choose(optarg, stacks);
            break;
        case 'b':
            options.buffer_is_on_stack = choose(optarg, places);
            break;
        case 't':
            options.ct_threads = strtoul(optarg, NULL, 10);
            break;
        case 'p':
            options.port = (uint16_t)strtoul(optarg, NULL, 10);
            break;
        case 'n':
            options.ct_connections = strtoul(optarg, NULL, 10);
            break;
        case 'h':
            end_with_usage(0);
        default:
            end_with_usage(2);
        }
    }
    if (options.ct_threads == 0 || options.ct_threads > THREADS_MAX || optind < argc) {
        end_with_usage(2);
    }
}

static void start(server_t *servers)
{
    uint16_t port = options.port;
    for (size_t i = 0; i < options.ct_threads; i++) {
        servers[i].listener = net_listen(port);
        port = net_port(servers[i].listener);
    }
    printf("listening at port %u\n", port);
    fflush(stdout);
    for (size_t i = 0; i < options.ct_threads; i++) {
        net_demand(pthread_create(&servers[i].thread, NULL, run, &servers[i]) == 0,
                   "pthread_create");
    }
}

static void print_sums(const server_t *servers)
{
    server_t all;
    memset(&all, 0, sizeof(all));
    for (size_t i = 0; i < options.ct_threads; i++) {
        printf("thread %zu: %zu connections\n", i, servers[i].ct_accepted);
        all.ct_accepted += servers[i].ct_accepted;
        all.ct_cancelled += servers[i].ct_cancelled;
        all.ct_allocated += servers[i].ct_allocated;
        all.ct_freed += servers[i].ct_freed;
        all.bytes += servers[i].bytes;
        all.max_cpsz = all.max_cpsz > servers[i].max_cpsz ? all.max_cpsz : servers[i].max_cpsz;
    }
    printf("%zu connections, %zu cancelled; %zu bytes echoed\n", all.ct_accepted, all.ct_cancelled,
           all.bytes);
    printf("%zu buffers allocated, %zu freed\n", all.ct_allocated, all.ct_freed);
    printf("a copy took at most %zu bytes\n", all.max_cpsz);
}

int main(int argc, char **argv)
{
    static server_t servers[THREADS_MAX];
    read_options(argc, argv);
    net_allow_files(FILES_WANTED);
    stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    net_demand(stop_fd >= 0, "eventfd");
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    start(servers);
    for (size_t i = 0; i < options.ct_threads; i++) {
        pthread_join(servers[i].thread, NULL);
    }
    print_sums(servers);
    net_print_usage();
    return 0;
}
