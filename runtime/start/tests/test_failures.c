// SPDX-License-Identifier: Apache-2.0
/*
 * One program that uses all of the runtime runs again and again; in each run another call to libc
 * fails, with each error that it can have. Whichever fails, the program ends, it sees either
 * success or that error, and nothing is left behind: no descriptor, no memory, no thread.
 *
 *     test_failures [EACH [FIRST]]
 *
 * makes one call of EACH fail, from the FIRST on.
 */
// build: -Wl,--wrap=epoll_create1,--wrap=epoll_ctl,--wrap=epoll_wait,--wrap=eventfd
// build: -Wl,--wrap=timerfd_create,--wrap=signalfd,--wrap=socket,--wrap=bind,--wrap=listen
// build: -Wl,--wrap=accept4,--wrap=connect,--wrap=poll,--wrap=read,--wrap=write,--wrap=preadv64
// build: -Wl,--wrap=pwritev64,--wrap=recvfrom,--wrap=recvmsg,--wrap=send,--wrap=sendmsg
// build: -Wl,--wrap=sendfile64,--wrap=fsync,--wrap=waitpid,--wrap=sigtimedwait,--wrap=mprotect
// build: -Wl,--wrap=close,--wrap=open64,--wrap=syscall,--wrap=pthread_create,--wrap=getaddrinfo
// build: -Wl,--wrap=malloc,--wrap=calloc,--wrap=free,--wrap=mmap,--wrap=mmap64
// build: -Wl,--wrap=munmap
#define _GNU_SOURCE
#include "aco_runtime.h"
#include "failing_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <sys/wait.h>

#define MS INT64_C(1000000) /* ns */
#define LEAST_CALLS 200     /* that the program makes at least */

static int ct_wrong; /* atomic */

static void wrong(const char *what, int line)
{
    fprintf(stderr,
            "line %d: %s: errno %d, after %s has failed with errno %d; test_failures 1 %ld\n", line,
            what, errno, failing.name != NULL ? failing.name : "nothing", failing.error,
            failing.refused - 1);
    __atomic_add_fetch(&ct_wrong, 1, __ATOMIC_RELAXED);
}

#define CHECK(EX) ((EX) ? (void)0 : wrong(#EX, __LINE__))

/* Returns whether a step has succeeded. If not, checks that a call was made to fail, and that errno
 * is its error or a consequence. */
static int did(int succeeded, const char *what, int line)
{
    static const int others[] = {EMFILE, EINVAL,    EPIPE,  ECONNRESET,
                                 EBADF,  ECANCELED, ENOENT, EAGAIN};
    int error = __atomic_load_n(&failing.error, __ATOMIC_ACQUIRE), is_told = errno == error;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        is_told |= errno == others[i];
    }
    if (!succeeded && (error == 0 || error == EINTR || !is_told)) {
        wrong(what, line);
    }
    return succeeded;
}

#define DID(EX) did((EX), #EX, __LINE__)
/* Checks that a call has moved `sz` bytes. If it has moved fewer, the other end has failed. */
#define MOVED(sz, EX) moved((sz), (EX), #EX, __LINE__)

static int moved(ssize_t sz, ssize_t result, const char *what, int line)
{
    errno = result >= 0 ? EPIPE : errno;
    return did(result == sz, what, line);
}

/* ==== Tasks ================================================================================== */

static aco_key_t key;

static void *counts(void *ct)
{
    DID(aco_setspecific(key, ct) == 0);
    DID(aco_sleep(1000) == 0);
    __atomic_add_fetch((int *)ct, 1, __ATOMIC_RELAXED);
    return ct;
}

static void *uses_tasks(void *arg)
{
    static const aco_task_options_t options[] = {
        {.shares_stack = 1}, {.stack_sz = 100000}, {.thread = ACO_ANY}, {.thread = ACO_THREAD(1)}};
    int *ct = (int *)calloc(1, sizeof(*ct)), ct_made = 0;
    for (size_t i = 0; ct != NULL && i < 2 * sizeof(options) / sizeof(options[0]); i++) {
        aco_task_t *task;
        if (DID(aco_go_with(&options[i / 2], counts, ct, &task) == 0)) {
            ct_made++;
            CHECK(aco_join(task, NULL) == 0);
        }
    }
    aco_group_t *group = aco_group_new();
    for (int i = 0; DID(group != NULL) && ct != NULL && i < 3; i++) {
        ct_made += DID(aco_group_go(group, counts, ct) == 0);
    }
    CHECK(group == NULL || aco_group_join(group) == 0);
    CHECK(ct == NULL || *ct == ct_made);
    free(ct);
    return arg;
}

typedef struct {
    aco_chan_t *chan, *rendezvous;
} chans_t;

static void *sends(void *arg)
{
    chans_t *chans = (chans_t *)arg;
    for (int i = 0; i < 3; i++) {
        DID(aco_chan_send(i % 2 == 0 ? chans->chan : chans->rendezvous, &i) == 0);
    }
    return arg;
}

static void *uses_chans(void *arg)
{
    chans_t *chans = (chans_t *)calloc(1, sizeof(*chans));
    if (chans == NULL) {
        return arg;
    }
    *chans = (chans_t){aco_chan_new(sizeof(int), 1), aco_chan_new(sizeof(int), 0)};
    if (DID(chans->chan != NULL && chans->rendezvous != NULL)) {
        int got, sum = 0;
        aco_task_t *task = aco_spawn(sends, chans);
        aco_case_t cases[] = {{.chan = chans->chan, .recv = &got},
                              {.chan = chans->rendezvous, .recv = &got}};
        for (int i = 0; task != NULL && i < 3; i++) {
            while (!DID(aco_select(cases, 2, 1) >= 0))
                continue; /* fails once */
            sum += got;
        }
        CHECK(task == NULL || (sum == 3 && aco_join(task, NULL) == 0));
    }
    if (chans->chan != NULL) {
        aco_chan_free(chans->chan);
    }
    if (chans->rendezvous != NULL) {
        aco_chan_free(chans->rendezvous);
    }
    free(chans);
    return arg;
}

/* ==== Descriptors ============================================================================ */

static void *echoes(void *arg)
{
    char bytes[16];
    int listener = (int)(intptr_t)arg;
    int fd = aco_accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (DID(fd >= 0)) {
        if (MOVED(10, aco_read_all(fd, bytes, 10))) {
            MOVED(10, aco_write_all(fd, bytes, 10));
        }
        DID(aco_close(fd) == 0);
    }
    DID(aco_close(listener) == 0); /* the caller must not wait for ever */
    return NULL;
}

static void *calls(const char *network, const char *address)
{
    static const char question[] = "0123456789";
    char bytes[16] = "", text[64];
    int listener = aco_listen(network, address);
    if (!DID(listener >= 0)) {
        return NULL;
    }
    struct sockaddr_in addr;
    socklen_t sz = sizeof(addr);
    CHECK(getsockname(listener, (struct sockaddr *)&addr, &sz) == 0);
    if (network[0] == 't') {
        snprintf(text, sizeof(text), "127.0.0.1:%u", ntohs(addr.sin_port));
        address = text;
    }
    aco_task_t *server = aco_spawn(echoes, (void *)(intptr_t)listener);
    int fd = server == NULL ? -1 : aco_dial(network, address);
    if (DID(fd >= 0)) {
        struct iovec iov[] = {{(char *)(uintptr_t)question, 4},
                              {(char *)(uintptr_t)question + 4, 6}};
        aco_sleep(1000); /* the server waits before the bytes are there */
        if (MOVED(10, aco_writev(fd, iov, 2)) && MOVED(10, aco_recv(fd, bytes, 10, MSG_WAITALL))) {
            CHECK(memcmp(bytes, question, 10) == 0);
        }
        DID(aco_close(fd) == 0);
    } else {
        aco_shutdown(listener, SHUT_RDWR); /* nor the server */
    }
    DID(server != NULL ? aco_join(server, NULL) == 0 : aco_close(listener) == 0);
    return NULL;
}

static void *uses_sockets(void *arg)
{
    char name[32];
    snprintf(name, sizeof(name), "@aco failures %d", (int)getpid());
    calls("tcp4", "127.0.0.1:0");
    calls("unix", name);
    return arg;
}

static void *writes(void *arg)
{
    int fd = (int)(intptr_t)arg;
    MOVED(3, aco_write(fd, "abc", 3));
    DID(aco_close(fd) == 0);
    return NULL;
}

static void *uses_pipes(void *arg)
{
    int fds[2];
    char bytes[4];
    CHECK(pipe2(fds, O_CLOEXEC) == 0);
    struct pollfd polled = {fds[0], POLLIN, 0};
    DID(aco_poll(&polled, 1, 1) == 0);
    aco_task_t *writer = aco_spawn(writes, (void *)(intptr_t)fds[1]);
    if (DID(writer != NULL)) {
        DID(aco_wait_fd(fds[0], POLLIN) > 0);
        MOVED(3, aco_read_all(fds[0], bytes, 4));
        CHECK(aco_join(writer, NULL) == 0);
    } else {
        CHECK(aco_close(fds[1]) == 0);
    }
    DID(aco_close(fds[0]) == 0);
    return arg;
}

/* ==== Files, names, processes ================================================================ */

static char path[] = "/tmp/failures.XXXXXX";

static void *computes(void *arg)
{
    return arg;
}

static void *uses_files(void *arg)
{
    char bytes[8];
    int fd = aco_open(path, O_RDWR | O_CLOEXEC), sockets[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
    if (DID(fd >= 0)) {
        int64_t offset = 0;
        if (MOVED(4, aco_pwrite(fd, "abcd", 4, 0)) && MOVED(4, aco_pread(fd, bytes, 8, 0))) {
            CHECK(memcmp(bytes, "abcd", 4) == 0);
        }
        DID(aco_fsync(fd) == 0);
        if (MOVED(4, aco_sendfile(sockets[0], fd, &offset, 4))) {
            MOVED(4, aco_read(sockets[1], bytes, 4));
        }
        DID(aco_close(fd) == 0);
    }
    CHECK(__real_close(sockets[0]) == 0 && __real_close(sockets[1]) == 0);
    CHECK(aco_offload(computes, &key) == &key);
    return arg;
}

static void *uses_names(void *arg)
{
    struct addrinfo *list = NULL;
    char host[64];
    struct sockaddr_in addr = {.sin_family = AF_INET};
    int error = aco_getaddrinfo("localhost", NULL, NULL, &list);
    if (DID(error == 0 || error == EAI_SYSTEM || failing.error != 0) && error == 0) {
        freeaddrinfo(list);
    }
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    error = aco_getnameinfo((struct sockaddr *)&addr, sizeof(addr), host, sizeof(host), NULL, 0, 0);
    DID(error == 0 || failing.error != 0);
    return arg;
}

static void *uses_processes(void *arg)
{
    sigset_t set;
    int status;
    pid_t child = fork();
    if (child == 0) {
        _exit(3);
    }
    pid_t got = aco_waitpid(child, &status, 0);
    if (DID(got == child)) {
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    } else {
        CHECK(__real_waitpid(child, &status, 0) == child);
    }
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    if (!DID(aco_wait_signal(&set, NULL) == SIGUSR1)) {
        static const struct timespec at_once;
        CHECK(__real_sigtimedwait(&set, NULL, &at_once) == SIGUSR1);
    }
    return arg;
}

static void *waits_for_signal(void *arg)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    aco_within(MS)
    {
        CHECK(aco_wait_signal(&set, NULL) < 0);
    }
    return arg;
}

/* ==== All of it ============================================================================== */

static void *uses_all(void *arg)
{
    static void *(*const parts[])(void *) = {uses_tasks,     uses_chans,      uses_sockets,
                                             uses_pipes,     uses_files,      uses_names,
                                             uses_processes, waits_for_signal};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        parts[i](NULL);
    }
    return arg;
}

static void *embeds(void *arg)
{
    if (DID(aco_loop_fd() >= 0) && DID(aco_go(uses_pipes, NULL) == 0)) {
        while (aco_run_once(-1) != 0)
            continue;
    }
    return arg;
}

static int ct_open(void)
{
    int ct = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder) != NULL) {
        ct++;
    }
    closedir(folder);
    return ct;
}

static int ct_threads(void)
{
    int ct = 0;
    DIR *folder = opendir("/proc/self/task");
    while (readdir(folder) != NULL) {
        ct++;
    }
    closedir(folder);
    return ct;
}

static void run_all(int is_first)
{
    static const aco_run_options_t options = {.ct_threads = 2, .ct_offload = 2};
    int fds = ct_open(), threads = ct_threads(), result = 1;
    long blocks = failing.ct_blocks, mapped_sz = failing.mapped_sz;
    failing.ct = 0;
    failing.error = failing.has_more = 0;
    failing.name = NULL;
    alarm(60);
    __atomic_store_n(&failing.is_on, 1, __ATOMIC_RELEASE);
    DID(aco_run(&options, uses_all, NULL, NULL) == 0);
    pthread_t thread;
    if (__real_pthread_create(&thread, NULL, embeds, NULL) == 0) {
        pthread_join(thread, NULL);
    }
    __atomic_store_n(&failing.is_on, 0, __ATOMIC_RELEASE);
    for (int i = 0; i < 10000 && (result = ct_threads() > threads); i++) {
        usleep(1000); /* a helper whose look-up was dropped, or a thread that was joined */
    }
    CHECK(result == 0 && ct_open() == fds);
    CHECK(is_first || failing.ct_blocks == blocks);
    CHECK(failing.mapped_sz == mapped_sz);
}

static void on_alarm(int signal)
{
    (void)signal;
    wrong("hangs", __LINE__);
    aco_print_tasks(stderr);
    _exit(1);
}

/* Makes one call fail in each run, from the first on, until a run makes fewer calls. */
static long fail_each(long each, long first)
{
    long ct_failed = 0;
    for (failing.refused = 1 + first;; failing.refused += each) {
        for (failing.choice = 0;; failing.choice++) {
            run_all(0);
            ct_failed += failing.error != 0;
            if (!failing.has_more) {
                break;
            }
        }
        if (failing.error == 0 && failing.ct < failing.refused) {
            return ct_failed;
        }
    }
}

static void *ends(void *arg)
{
    return arg;
}

int main(int argc, char **argv)
{
    long each = argc > 1 ? atol(argv[1]) : 1, first = argc > 2 ? atol(argv[2]) : 0;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGALRM, on_alarm);
    signal(SIGPIPE, SIG_IGN);
    close(mkstemp(path));
    aco_key_create(&key, NULL);
    pthread_t thread; /* sanitizers start a thread of theirs with the first one */
    CHECK(pthread_create(&thread, NULL, ends, NULL) == 0 && pthread_join(thread, NULL) == 0);
    run_all(1); /* allocates what is never freed */
    run_all(0);
    CHECK(failing.ct > LEAST_CALLS);
    long ct_failed = ct_wrong != 0 ? 0 : fail_each(each, first % each);
    unlink(path);
    printf("test_failures: %ld failures in %ld calls, %d wrong\n", ct_failed, failing.ct, ct_wrong);
    return ct_wrong != 0;
}
