// SPDX-License-Identifier: Apache-2.0
/* Listens and dials by name. */
#include "io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define NEXT_AFTER 250000000 /* ns from one attempt to the next; RFC 8305 */
#define BACKLOG 4096         /* the kernel takes what it allows */

typedef struct {
    int family, type;
    int is_per_thread; /* by SO_REUSEPORT */
} network_t;

/* The addresses of a host and a port, or of a path. */
typedef struct {
    struct addrinfo *found; /* to be freed; NULL: a path */
    struct addrinfo path;
    struct sockaddr_un path_addr;
} addresses_t;

/* ==== Names and addresses ==================================================================== */

static int parse_network(const char *name, network_t *network)
{
    static const struct {
        const char *name;
        network_t network;
    } known[] = {
        {"tcp", {AF_UNSPEC, SOCK_STREAM, 0}}, {"tcp4", {AF_INET, SOCK_STREAM, 0}},
        {"tcp6", {AF_INET6, SOCK_STREAM, 0}}, {"tcp+", {AF_UNSPEC, SOCK_STREAM, 1}},
        {"tcp4+", {AF_INET, SOCK_STREAM, 1}}, {"tcp6+", {AF_INET6, SOCK_STREAM, 1}},
        {"udp", {AF_UNSPEC, SOCK_DGRAM, 0}},  {"unix", {AF_UNIX, SOCK_STREAM, 0}},
    };
    for (size_t i = 0; name != NULL && i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(name, known[i].name) == 0) {
            *network = known[i].network;
            return 0;
        }
    }
    errno = EINVAL;
    return -1;
}

static int find_path(const char *path, addresses_t *addresses)
{
    struct sockaddr_un *addr = &addresses->path_addr;
    size_t sz = strlen(path);
    if (sz == 0 || sz >= sizeof(addr->sun_path)) {
        errno = sz == 0 ? EINVAL : ENAMETOOLONG;
        return -1;
    }
    addr->sun_family = AF_UNIX;
    memcpy(addr->sun_path, path, sz + 1);
    if (path[0] == '@') { /* an abstract name begins with a zero byte, and has none at its end */
        addr->sun_path[0] = '\0';
        sz--;
    }
    addresses->path = (struct addrinfo){.ai_family = AF_UNIX, .ai_socktype = SOCK_STREAM};
    addresses->path.ai_addr = (struct sockaddr *)addr;
    addresses->path.ai_addrlen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sz + 1);
    return 0;
}

/* Whether it is a number above all ports: getaddrinfo() would take its lower bits. */
static int is_no_port(const char *service)
{
    size_t ct_digits = strspn(service, "0123456789");
    return service[ct_digits] == '\0' && (ct_digits > 5 || atoi(service) > UINT16_MAX);
}

/* Splits "HOST:PORT", "[HOST]:PORT" or ":PORT": copies the host and returns the port, or NULL if it
 * is none of these. */
static const char *parse_address(const char *address, char host[NI_MAXHOST])
{
    const char *colon = strrchr(address, ':');
    if (colon == NULL || colon[1] == '\0') {
        return NULL;
    }
    const char *begin = address, *end = colon;
    if (*begin == '[') {
        if (end[-1] != ']') {
            return NULL;
        }
        begin++;
        end--;
    } else if (memchr(begin, ':', (size_t)(end - begin)) != NULL) {
        return NULL; /* an IPv6 address without brackets */
    }
    if (end - begin >= NI_MAXHOST || is_no_port(colon + 1)) {
        return NULL;
    }
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = '\0';
    return colon + 1;
}

/* Whether the process, or the machine, has no descriptor left for a look-up; errno says which. libc
 * takes a file that it can't open for one without names. */
static int lacks_descriptors(void)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return errno == EMFILE || errno == ENFILE;
    }
    aco_i_libc.close(fds[0]);
    aco_i_libc.close(fds[1]);
    return 0;
}

static int error_of(int result)
{
    if (result == EAI_SYSTEM || (result != EAI_MEMORY && lacks_descriptors())) {
        return errno;
    }
    aco_i_self()->lookup_error = (signed char)result;
    return result == EAI_MEMORY                            ? ENOMEM
           : result == EAI_AGAIN                           ? EAGAIN
           : result == EAI_SERVICE || result == EAI_FAMILY ? EINVAL
                                                           : ENOENT;
}

static int find(const char *name, const char *address, int is_passive, network_t *network,
                addresses_t *addresses)
{
    aco_i_self()->lookup_error = 0;
    memset(addresses, 0, sizeof(*addresses));
    if (parse_network(name, network) != 0) {
        return -1;
    }
    if (network->family == AF_UNIX) {
        return find_path(address, addresses);
    }
    char host[NI_MAXHOST];
    const char *port = parse_address(address, host);
    if (port == NULL) {
        errno = EINVAL;
        return -1;
    }
    struct addrinfo hints = {.ai_family = network->family, .ai_socktype = network->type};
    hints.ai_flags = is_passive ? AI_PASSIVE : 0;
    int result = aco_getaddrinfo(host[0] != '\0' ? host : NULL, port, &hints, &addresses->found);
    if (result != 0) {
        errno = error_of(result);
        return -1;
    }
    return 0;
}

const char *aco_lookup_error(void)
{
    int error = aco_i_self()->lookup_error;
    return error == 0 ? NULL : gai_strerror(error);
}

static void free_addresses(addresses_t *addresses)
{
    KEEP_ERRNO();
    if (addresses->found != NULL) {
        freeaddrinfo(addresses->found);
    }
}

static const struct addrinfo *first_of(const addresses_t *addresses)
{
    return addresses->found != NULL ? addresses->found : &addresses->path;
}

static void set(int fd, int level, int option)
{
    int one = 1;
    setsockopt(fd, level, option, &one, sizeof(one));
}

static int is_tcp(const struct addrinfo *address)
{
    return address->ai_family != AF_UNIX && address->ai_socktype == SOCK_STREAM;
}

/* ==== Listening ============================================================================== */

static int listen_at(const network_t *network, const struct addrinfo *address)
{
    int fd = socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC, address->ai_protocol);
    if (fd < 0) {
        return -1;
    }
    if (is_tcp(address)) {
        set(fd, SOL_SOCKET, SO_REUSEADDR);
        set(fd, IPPROTO_TCP, TCP_NODELAY); /* accepted connections inherit it */
    }
    if (network->is_per_thread) {
        set(fd, SOL_SOCKET, SO_REUSEPORT);
    }
    if (address->ai_family == AF_INET6) {
        int only = network->family == AF_INET6;
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
    }
    if (bind(fd, address->ai_addr, address->ai_addrlen) != 0 ||
        (address->ai_socktype == SOCK_STREAM && listen(fd, BACKLOG) != 0)) {
        close_keeping_errno(fd);
        return -1;
    }
    aco_i_adopt_fd(fd, 0, 1);
    return fd;
}

int aco_listen(const char *network_name, const char *address)
{
    need(network_name, "aco_listen", "the network is NULL: pass \"tcp\", say");
    need(address, "aco_listen", "the address is NULL: pass \":0\", say");
    network_t network;
    addresses_t addresses;
    if (find(network_name, address, 1, &network, &addresses) != 0) {
        return -1;
    }
    /* Without a host, the IPv6 address serves both families: it comes first. */
    int fd = -1;
    for (int round = 0; fd < 0 && round < 2; round++) {
        for (const struct addrinfo *a = first_of(&addresses); fd < 0 && a != NULL; a = a->ai_next) {
            int is_both = address[0] == ':' && a->ai_family == AF_INET6;
            if ((round == 0) == is_both) {
                fd = listen_at(&network, a);
            }
        }
    }
    free_addresses(&addresses);
    return fd;
}

/* ==== Dialling =============================================================================== */

typedef struct {
    const struct addrinfo *first;
    const struct addrinfo
        *next[2];           /* addresses not begun with: of the first one's family, others */
    int turn;               /* in `next` */
    struct pollfd *pending; /* attempts that have not ended */
    int ct_pending;
    int error; /* of the first attempt that failed */
} dial_t;

/* Skips addresses of the other family. */
static void skip(dial_t *dial, int turn)
{
    const struct addrinfo **next = &dial->next[turn];
    while (*next != NULL && ((*next)->ai_family != dial->first->ai_family) != turn) {
        *next = (*next)->ai_next;
    }
}

/* 0, or -1 with ENOMEM. */
static int begin_dial(dial_t *dial, const struct addrinfo *first)
{
    size_t ct = 0;
    for (const struct addrinfo *a = first; a != NULL; a = a->ai_next) {
        ct++;
    }
    *dial = (dial_t){.first = first, .next = {first, first}};
    skip(dial, 1);
    dial->pending = (struct pollfd *)aco_i_allocate(ct * sizeof(*dial->pending));
    errno = dial->pending == NULL ? ENOMEM : errno;
    return dial->pending == NULL ? -1 : 0;
}

static int has_next(const dial_t *dial)
{
    return dial->next[0] != NULL || dial->next[1] != NULL;
}

/* Takes the next address: families take turns, beginning with that of the first address. */
static const struct addrinfo *take_next(dial_t *dial)
{
    dial->turn = dial->next[dial->turn] != NULL ? dial->turn : !dial->turn;
    const struct addrinfo *a = dial->next[dial->turn];
    dial->next[dial->turn] = a->ai_next;
    skip(dial, dial->turn);
    dial->turn = !dial->turn;
    return a;
}

static void fail(dial_t *dial, int error)
{
    dial->error = dial->error != 0 ? dial->error : error;
}

/* Begins the next attempt; returns its descriptor if it succeeds at once, or else -1. */
static int begin(dial_t *dial)
{
    const struct addrinfo *a = take_next(dial);
    int flags = SOCK_CLOEXEC | SOCK_NONBLOCK;
    int fd = socket(a->ai_family, a->ai_socktype | flags, a->ai_protocol);
    if (fd < 0) {
        fail(dial, errno);
        return -1;
    }
    if (is_tcp(a)) {
        set(fd, IPPROTO_TCP, TCP_NODELAY);
    }
    aco_i_adopt_fd(fd, is_tcp(a), 1);
    if (aco_i_libc.connect(fd, a->ai_addr, a->ai_addrlen) == 0) {
        return fd;
    }
    if (errno == EINPROGRESS) {
        dial->pending[dial->ct_pending++] = (struct pollfd){fd, POLLOUT, 0};
    } else {
        fail(dial, errno);
        aco_close(fd);
    }
    return -1;
}

/* Looks at the attempts that have ended; returns the descriptor of one that succeeded, or -1. */
static int collect(dial_t *dial)
{
    for (int i = dial->ct_pending - 1; i >= 0; i--) {
        int fd = dial->pending[i].fd;
        if (dial->pending[i].revents == 0) {
            continue;
        }
        dial->pending[i] = dial->pending[--dial->ct_pending];
        int error = socket_option(fd, SO_ERROR);
        if (error == 0) {
            return fd;
        }
        fail(dial, error < 0 ? errno : error);
        aco_close(fd);
    }
    return -1;
}

static int wait_for_attempts(dial_t *dial)
{
    int64_t next = has_next(dial) ? aco_i_after(NEXT_AFTER) : NO_DEADLINE;
    if (aco_self() != NULL) {
        return aco_i_poll(dial->pending, (nfds_t)dial->ct_pending, next);
    }
    return aco_i_libc.poll(dial->pending, (nfds_t)dial->ct_pending, next == NO_DEADLINE ? -1 : 250);
}

static int dial_all(dial_t *dial)
{
    int fd = -1, is_due = 1;
    while (fd < 0 && (dial->ct_pending != 0 || has_next(dial))) {
        if (has_next(dial) && (is_due || dial->ct_pending == 0)) {
            is_due = 0;
            fd = begin(dial);
            continue;
        }
        int ct_before = dial->ct_pending, result = wait_for_attempts(dial);
        if (result < 0 && errno != EINTR) {
            dial->error = errno;
            break;
        }
        fd = result > 0 ? collect(dial) : -1;
        is_due = result == 0 || dial->ct_pending < ct_before; /* one has failed */
    }
    for (int i = 0; i < dial->ct_pending; i++) {
        aco_close(dial->pending[i].fd);
    }
    if (fd < 0) {
        errno = dial->error;
    }
    return fd;
}

/* Dials a path by aco_connect(), since no event reports that the full queue of a local socket has
 * room again. */
static int dial_path(const struct addrinfo *a)
{
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    aco_i_adopt_fd(fd, 0, 1);
    if (aco_connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
        close_keeping_errno(fd);
        return -1;
    }
    return fd;
}

int aco_dial(const char *network_name, const char *address)
{
    need(network_name, "aco_dial", "the network is NULL: pass \"tcp\", say");
    need(address, "aco_dial", "the address is NULL: pass \":0\", say");
    network_t network;
    addresses_t addresses;
    if (find(network_name, address, 0, &network, &addresses) != 0) {
        return -1;
    }
    int fd;
    if (network.family == AF_UNIX) {
        fd = dial_path(&addresses.path);
    } else {
        dial_t dial;
        fd = begin_dial(&dial, addresses.found) != 0 ? -1 : dial_all(&dial);
        release_keeping_errno(dial.pending);
        if (fd >= 0) {
            aco_i_libc.fcntl(fd, F_SETFL, aco_i_libc.fcntl(fd, F_GETFL) & ~O_NONBLOCK);
        }
    }
    free_addresses(&addresses);
    return fd;
}
