// SPDX-License-Identifier: Apache-2.0
/*
 * The client of all echo servers, and what measures them: starts a server, opens connections, and
 * sends on each a message of 64 bytes as soon as the last one has come back. Every byte that comes
 * back is compared. Called as `client SERVER LAYOUT CONNECTIONS REQUESTS`, where LAYOUT is
 *
 *   apart  server and client have a processor each
 *   one    both share one processor
 *   two    both have two threads, and share two processors
 *
 * $CPUS has the numbers of the processors that may be used. The server is called as `SERVER echo
 * THREADS`, and prints its port. Relies on Linux: schedstat has the processor time of its threads.
 *
 * peer: client
 * kind: client
 * build: $CC -O2 -pthread -Ibench/peers $SRC -o $OUT
 */
#define _GNU_SOURCE
#include "peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE_WORDS 8 /* of 8 bytes */
#define MESSAGE_SZ (MESSAGE_WORDS * sizeof(uint64_t))
#define EVENTS 256
#define CONNECTIONS_AN_ADDRESS 8192
#define MOST_THREADS 2
#define OTHER_DESCRIPTORS 64 /* besides connections */
#define STALL_MS 10000       /* without an answer: the server has lost one */

typedef struct {
    int fd;
    uint32_t index, ct_sent;
    size_t got; /* bytes of the present answer */
    uint64_t answer[MESSAGE_WORDS];
} connection_t;

typedef struct {
    connection_t *connections;
    int ct, epoll_fd;
    long ct_requests; /* of a run */
    pthread_t thread;
} worker_t;

typedef struct {
    pid_t pid;
    int port;
} server_t;

static void check_system(int holds, const char *call)
{
    if (!holds) {
        fprintf(stderr, "%s: %s\n", call, strerror(errno));
        exit(1);
    }
}

/* ==== Messages =============================================================================== */

static void compose(uint64_t message[MESSAGE_WORDS], const connection_t *connection)
{
    uint64_t seed = (uint64_t)connection->index << 32 | connection->ct_sent;
    for (uint64_t i = 0; i < MESSAGE_WORDS; i++) {
        message[i] = seed * (2 * i + 1);
    }
}

static void send_next(connection_t *connection)
{
    uint64_t message[MESSAGE_WORDS];
    connection->ct_sent++;
    compose(message, connection);
    connection->got = 0;
    ssize_t sz = send(connection->fd, message, MESSAGE_SZ, MSG_NOSIGNAL);
    check_system(sz == (ssize_t)MESSAGE_SZ, "send");
}

/* Tells whether the answer is there as a whole; then it is the right one. */
static int receive(connection_t *connection)
{
    uint64_t message[MESSAGE_WORDS];
    char *answer = (char *)connection->answer;
    ssize_t sz = recv(connection->fd, answer + connection->got, MESSAGE_SZ - connection->got, 0);
    check(sz != 0, "the server has closed a connection");
    check_system(sz > 0, "recv");
    connection->got += (size_t)sz;
    if (connection->got < MESSAGE_SZ) {
        return 0;
    }
    compose(message, connection);
    check(memcmp(message, answer, MESSAGE_SZ) == 0, "the server has sent other bytes than it got");
    return 1;
}

static void *make_requests(void *arg)
{
    worker_t *worker = (worker_t *)arg;
    struct epoll_event events[EVENTS];
    long to_send = worker->ct_requests - worker->ct, to_come = worker->ct_requests;
    for (int i = 0; i < worker->ct; i++) {
        send_next(&worker->connections[i]);
    }
    while (to_come > 0) {
        int ct = epoll_wait(worker->epoll_fd, events, EVENTS, STALL_MS);
        check(ct != 0, "the server does not answer");
        for (int i = 0; i < ct; i++) {
            connection_t *connection = (connection_t *)events[i].data.ptr;
            if (receive(connection)) {
                to_come--;
                if (to_send > 0) {
                    to_send--;
                    send_next(connection);
                }
            }
        }
    }
    return NULL;
}

/* Each connection has one request at least. */
static void run(worker_t *workers, int ct_workers, long ct_requests)
{
    for (int i = 1; i < ct_workers; i++) {
        workers[i].ct_requests = ct_requests / ct_workers;
        check(pthread_create(&workers[i].thread, NULL, make_requests, &workers[i]) == 0,
              "there is no thread");
    }
    workers[0].ct_requests = ct_requests - ct_requests / ct_workers * (ct_workers - 1);
    make_requests(&workers[0]);
    for (int i = 1; i < ct_workers; i++) {
        pthread_join(workers[i].thread, NULL);
    }
}

/* ==== The server ============================================================================= */

/* The first number in a file of /proc whose line starts with `key`. */
static double number_in(const char *path, const char *key)
{
    char line[256];
    double value = -1;
    FILE *file = fopen(path, "r");
    check_system(file != NULL, path);
    while (value < 0 && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            value = strtod(line + strlen(key), NULL);
        }
    }
    fclose(file);
    return value < 0 ? 0 : value;
}

/* Processor time of all its threads, also of those that have ended, in ns. */
static double processor_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec time;
    check(clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &time) == 0,
          "the server has ended");
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Bytes that no file has: those of the heap, of stacks and the like. */
static double user_bytes(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
    return number_in(path, "Anonymous:") * 1024;
}

/* Bytes of its page tables. */
static double table_bytes(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    return number_in(path, "VmPTE:") * 1024;
}

/* Bytes of objects in the kernel, and of its stacks, of all processes. */
static double kernel_bytes(void)
{
    return (number_in("/proc/meminfo", "Slab:") + number_in("/proc/meminfo", "KernelStack:")) *
           1024;
}

static void pin(const int *cpus, int ct)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < ct; i++) {
        CPU_SET(cpus[i], &set);
    }
    check_system(sched_setaffinity(0, sizeof(set), &set) == 0, "sched_setaffinity");
}

static server_t start_server(const char *program, int ct_threads, const int *cpus, int ct_cpus)
{
    int ends[2];
    char threads[16];
    server_t server;
    check_system(pipe(ends) == 0, "pipe");
    snprintf(threads, sizeof(threads), "%d", ct_threads);
    server.pid = fork();
    check_system(server.pid >= 0, "fork");
    if (server.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(cpus, ct_cpus);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl(program, program, "echo", threads, (char *)NULL);
        die("the server can't be run");
    }
    close(ends[1]);
    FILE *said = fdopen(ends[0], "r");
    if (said == NULL || fscanf(said, "port %d", &server.port) != 1) {
        int status;
        check(waitpid(server.pid, &status, 0) == server.pid && WIFEXITED(status) &&
                  WEXITSTATUS(status) == ABSENT,
              "the server tells no port");
        exit(ABSENT);
    }
    return server;
}

/* ==== Connections ============================================================================ */

/* One address has 28,232 ports, and the last of them take long to find. Closing leaves nothing. */
static int connect_to(int port, uint32_t index)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in own = {.sin_family = AF_INET};
    struct linger linger = {1, 0};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK + index / CONNECTIONS_AN_ADDRESS);
    check_system(fd >= 0, "socket");
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
    check_system(bind(fd, (struct sockaddr *)&own, sizeof(own)) == 0, "bind");
    check_system(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

static void open_connections(worker_t *workers, int ct_workers, int ct, int port)
{
    connection_t *connections = (connection_t *)calloc((size_t)ct, sizeof(*connections));
    check(connections != NULL, "out of memory");
    for (int i = 0, first = 0; i < ct_workers; i++) {
        worker_t *worker = &workers[i];
        worker->connections = connections + first;
        worker->ct = (ct - first) / (ct_workers - i);
        worker->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        for (int j = 0; j < worker->ct; j++) {
            connection_t *connection = &worker->connections[j];
            struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
            connection->index = (uint32_t)(first + j);
            connection->fd = connect_to(port, connection->index);
            check_system(epoll_ctl(worker->epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) == 0,
                         "epoll_ctl");
        }
        first += worker->ct;
    }
}

/* The limit of descriptors, which the server inherits. */
static void raise_limit(rlim_t ct)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_max = limit.rlim_max < ct ? ct : limit.rlim_max;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        absent("the limit of descriptors is too low");
    }
}

static void measure(const server_t *server, int ct_workers, int ct, long ct_requests)
{
    worker_t workers[MOST_THREADS];
    double user = user_bytes(server->pid), kernel = kernel_bytes();
    double tables = table_bytes(server->pid);
    open_connections(workers, ct_workers, ct, server->port);
    run(workers, ct_workers, 2 * ct); /* warm */
    user = user_bytes(server->pid) - user;
    kernel = kernel_bytes() - kernel;
    tables = table_bytes(server->pid) - tables;
    double processor = processor_ns(server->pid);
    int64_t start = now_ns();
    run(workers, ct_workers, ct_requests);
    double wall = mean_ns(start, (double)ct_requests);
    processor = processor_ns(server->pid) - processor;
    print_metric("server_ns", processor / (double)ct_requests);
    print_metric("ns", wall);
    print_metric("bytes", user / ct);
    print_metric("table_bytes", tables / ct);
    print_metric("kernel_bytes", kernel / ct); /* of both ends */
}

int main(int argc, char **argv)
{
    check(argc == 5, "usage: client SERVER apart|one|two CONNECTIONS REQUESTS");
    int cpus[2] = {-1, -1}, ct = atoi(argv[3]);
    long ct_requests = atol(argv[4]);
    const char *words = getenv("CPUS"), *layout = argv[2];
    check(words != NULL && sscanf(words, "%d %d", &cpus[0], &cpus[1]) >= 1, "CPUS is not set");
    cpus[1] = cpus[1] < 0 ? cpus[0] : cpus[1];
    ct_requests = ct_requests < ct ? ct : ct_requests;
    raise_limit((rlim_t)ct + OTHER_DESCRIPTORS);
    int is_two = strcmp(layout, "two") == 0, is_apart = strcmp(layout, "apart") == 0;
    int ct_threads = is_two ? 2 : 1;
    server_t server = start_server(argv[1], ct_threads, is_two ? cpus : &cpus[1], ct_threads);
    pin(is_two || is_apart ? cpus : &cpus[1], ct_threads);
    measure(&server, ct_threads, ct, ct_requests);
    kill(server.pid, SIGKILL);
    waitpid(server.pid, NULL, 0);
    return 0;
}
