// SPDX-License-Identifier: Apache-2.0
/*
 * A task sees what a thread sees. Every call, on every kind of descriptor and in every situation,
 * blocking or not, with timeouts or without, is made once by a thread, through libc, and once by a
 * task. Both must have the same result, errno, bytes, wait and flags of the descriptor. The other
 * end ends a call that would wait for ever: it feeds, drains or hangs up once the caller sleeps.
 *
 *     test_kernel [EACH [FIRST]]
 *
 * makes one case of EACH, from the FIRST on.
 */
#define _GNU_SOURCE
#include "aco_runtime.h"
#include "calls.h"
#include "situations.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>

#define PATIENCE 300  /* looks at a caller that goes on sleeping in spite of help */
#define SHORT (-1000) /* a count that depends on the kernel's buffers */

/* ==== A case ================================================================================= */

/* How the other end ends a call that would wait for ever. */
typedef enum { HELP, HANG_UP, NOTHING } act_t;

static struct {
    const kind_t *kind;
    size_t call;
    situation_t situation;
    int is_nonblocking, has_timeouts;
    act_t act;
} now;

/* One run of a case. */
static struct {
    const api_t *api;
    ends_t ends;
    seen_t seen;
    ssize_t result;
    int error;
    int64_t took;
    int is_begun, is_done; /* atomic */
    int has_waited, ct_rounds, ct_signals, flags_before, flags_during, flags_after;
    long left; /* bytes that can be read afterwards, at both ends */
} run, reference;

static void on_sigpipe(int signal)
{
    (void)signal;
    run.ct_signals++;
}

/* Makes the call, on a thread or in a task. */
static void make_call(void)
{
    int64_t begun = aco_now();
    errno = 0;
    __atomic_store_n(&run.is_begun, 1, __ATOMIC_RELEASE);
    run.result = calls[now.call].fn(run.api, &run.ends, &run.seen);
    run.error = run.result < 0 ? errno : 0;
    run.took = aco_now() - begun;
    __atomic_store_n(&run.is_done, 1, __ATOMIC_RELEASE);
}

static int is_done(void)
{
    return __atomic_load_n(&run.is_done, __ATOMIC_ACQUIRE);
}

/* Acts for the first time, once the caller sleeps. */
static void act_first(void)
{
    int is_input = (calls[now.call].kind & IN) != 0;
    run.has_waited = 1;
    run.flags_during = fcntl(run.ends.fd, F_GETFL);
    if (now.act == NOTHING) {
        return;
    }
    if (now.act == HANG_UP && run.ends.peer >= 0) {
        close_peer(&run.ends);
    } else if (is_input && now.kind->feed != NULL && run.ends.peer >= 0) {
        now.kind->feed(&run.ends);
    } else if (is_input && now.kind->feed != NULL && !now.kind->is_socket) {
        now.kind->feed(&run.ends);
    } else if (now.kind->drain == NULL || is_input || run.ends.peer < 0) {
        shutdown(run.ends.fd, SHUT_RDWR);
    }
}

/* Acts again and again after that; `sleeps`: the caller still sleeps. */
static void act_again(int sleeps)
{
    if (now.act == NOTHING) {
        return;
    }
    if ((calls[now.call].kind & OUT) != 0 && now.kind->drain != NULL &&
        (run.ends.peer >= 0 || now.kind->drain == drain_eventfd)) {
        now.kind->drain(&run.ends);
    } else if (sleeps && (calls[now.call].kind & IN) != 0 && now.kind->is_socket &&
               ++run.ct_rounds == PATIENCE) {
        shutdown(run.ends.fd, SHUT_RDWR);
    }
}

/* ==== By a thread ============================================================================ */

static sem_t order; /* makes the caller's thread go on */
static int has_ended;
static int caller_id;

static void *call_in_thread(void *arg)
{
    __atomic_store_n(&caller_id, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
    for (;;) {
        while (sem_wait(&order) != 0)
            continue;
        if (has_ended) {
            return arg;
        }
        make_call();
    }
}

/* Whether the caller's thread sleeps in its call. */
static int is_asleep(void)
{
    char path[64], text[512];
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", caller_id);
    int fd = open(path, O_RDONLY);
    ssize_t sz = read(fd, text, sizeof(text) - 1);
    MUST(fd >= 0 && sz > 0 && close(fd) == 0);
    text[sz] = '\0';
    return strrchr(text, ')')[2] == 'S';
}

static void run_in_thread(void)
{
    MUST(sem_post(&order) == 0);
    sched_yield();
    while (!is_done()) {
        if (run.has_waited) {
            act_again(is_asleep());
        } else if (__atomic_load_n(&run.is_begun, __ATOMIC_ACQUIRE) && is_asleep() && !is_done()) {
            act_first();
        }
        sched_yield();
    }
}

/* ==== By a task ============================================================================== */

static void *call_in_task(void *arg)
{
    make_call();
    return arg;
}

static void run_in_task(void)
{
    aco_task_t *caller = aco_spawn(call_in_task, NULL);
    aco_yield();
    if (!is_done()) {
        act_first();
        while (now.act != NOTHING && !is_done()) {
            act_again(1);
            aco_yield();
        }
    }
    MUST(aco_join(caller, NULL) == 0);
}

/* ==== Comparing ============================================================================== */

static long left_in(int fd)
{
    char buf[4096];
    long ct = 0;
    ssize_t sz;
    if (fcntl(fd, F_GETFL) < 0 || (fcntl(fd, F_GETFL) & O_PATH) != 0 || !happens(fd, POLLIN, 0)) {
        return 0;
    }
    set_nonblocking(fd);
    while ((sz = read(fd, buf, sizeof(buf))) > 0 && ct < BIG) {
        ct += sz;
    }
    return ct;
}

/* Whether the kernel's buffers decide how many bytes a call moves. */
static int do_buffers_decide(void)
{
    return now.kind->varies || calls[now.call].fn == sendfile_big;
}

static void perform(void (*how)(void), const api_t *api)
{
    memset(&run, 0, sizeof(run));
    run.api = api;
    ct_drained = 0;
    make_ends(now.kind, now.situation, &run.ends);
    if (now.is_nonblocking) {
        fcntl(run.ends.fd, F_SETFL, fcntl(run.ends.fd, F_GETFL) | O_NONBLOCK);
    }
    struct timeval timeout = {0, now.has_timeouts ? TIMEOUT_MS * 1000 : 0};
    if (now.kind->is_socket) {
        setsockopt(run.ends.fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
        setsockopt(run.ends.fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    }
    run.flags_before = run.flags_during = fcntl(run.ends.fd, F_GETFL);
    how();
    run.flags_after = fcntl(run.ends.fd, F_GETFL);
    if (!do_buffers_decide()) {
        run.left = (left_in(run.ends.peer) + ct_drained) << 8;
        run.left += now.kind->make == make_zero ? 0 : left_in(run.ends.fd);
    }
    close_rest(&run.ends);
    aco_close(run.ends.fd); /* so that the runtime knows nothing of the descriptor */
}

static void tell(const char *who)
{
    fprintf(stderr,
            "%s: %zd, errno %d (%s), more %lx, left %lx, flags %x %x %x, waited %d, %lld us, "
            "signals %d, \"%.20s\"\n",
            who, run.result, run.error, strerror(run.error), run.seen.more, run.left,
            run.flags_before, run.flags_during, run.flags_after, run.has_waited,
            (long long)run.took / 1000, run.ct_signals, run.seen.bytes);
}

/* The result; SHORT for some but not all bytes where the kernel's buffers decide the count. */
static ssize_t class_of(ssize_t result)
{
    return do_buffers_decide() && result > 1000 && result < BIG ? SHORT : result;
}

static int is_same(void)
{
    int is_waited_for = now.kind->is_socket || now.kind->feed != NULL || now.kind->drain != NULL;
    return class_of(run.result) == class_of(reference.result) && run.error == reference.error &&
           run.seen.more == reference.seen.more && run.left == reference.left &&
           run.flags_before == reference.flags_before && run.flags_during == run.flags_before &&
           run.flags_after == reference.flags_after && run.ct_signals == reference.ct_signals &&
           (now.act == NOTHING || !is_waited_for || run.has_waited == reference.has_waited) &&
           memcmp(&run.seen.bytes, &reference.seen.bytes, sizeof(run.seen.bytes)) == 0;
}

/* Makes the call in a thread and in a task; whether they see different things. */
static int differs(void)
{
    alarm(60);
    perform(run_in_thread, &of_thread);
    reference = run;
    perform(run_in_task, &of_task);
    int is_early = run.error == EAGAIN && now.has_timeouts && !now.is_nonblocking &&
                   run.took < TIMEOUT_MS * 1000000 && reference.took >= TIMEOUT_MS * 1000000;
    return !is_same() || is_early;
}

static int ct_cases, ct_wrong;

/* A difference counts if it comes three times: a hang-up may race a call by microseconds. */
static void compare(void)
{
    static const char *situations[] = {"idle", "ready", "full", "ended", "ready, ended", "reset"};
    static char text[256];
    snprintf(text, sizeof(text), "case %d: %s, %s, %s%s%s, %s", ct_cases, calls[now.call].name,
             now.kind->name, situations[now.situation], now.is_nonblocking ? ", O_NONBLOCK" : "",
             now.has_timeouts ? ", timeouts" : "",
             now.act == HELP      ? "helped"
             : now.act == HANG_UP ? "hung up"
                                  : "left alone");
    what_is_tested = text;
    if (!differs() || !differs() || !differs()) {
        return;
    }
    ct_wrong++;
    fprintf(stderr, "%s\n", text);
    tell("  task  ");
    run = reference;
    tell("  thread");
}

static void on_alarm(int signal)
{
    (void)signal;
    if (write(2, what_is_tested, strlen(what_is_tested)) > 0 && write(2, ": hangs\n", 8) > 0) {
        aco_print_tasks(stderr);
    }
    _exit(1);
}

/* Whether the kernel does something that no program relies on, or nothing can end the call. */
static int is_left_out(void)
{
    ssize_t (*fn)(const api_t *, const ends_t *, seen_t *) = calls[now.call].fn;
    int kind = calls[now.call].kind;
    int has_help = (kind & IN) != 0 ? now.kind->feed != NULL : now.kind->drain != NULL;
    int is_pty = now.kind->make == make_pty_slave || now.kind->make == make_pty_master;
    return (fn == recv_0 && now.kind->make == make_tcp && now.has_timeouts) || /* 0 after them */
           (fn == connect_somewhere && now.kind->feed == feed_listener) ||     /* to itself */
           (fn == read_0 && now.kind->make == make_inotify) || /* waits without need */
           (now.kind->make == make_eventfd && now.situation == FULL && fn != write_8 &&
            (kind & (TIMED | UNTIMED)) == 0) || /* all but 8 bytes is wrong, full or not */
           (is_pty && fn == write_nowhere) ||   /* the first check may be of the bytes or of room */
           (is_pty && kind == OUT && !now.is_nonblocking && /* the master waits for ever */
            (now.act == HANG_UP || now.situation == ENDED)) ||
           ((kind & UNTIMED) != 0 && now.act == HELP && !has_help && !now.kind->is_socket);
}

static int each = 1, first_case;

static void compare_if_chosen(void)
{
    if (!is_left_out() && ct_cases++ % each == first_case) {
        compare();
    }
}

/* A task waits for a turn where a thread has the connection at once. */
static int connects_by_itself(void)
{
    return calls[now.call].fn == connect_somewhere && now.kind->drain == NULL &&
           now.situation != FULL;
}

/* Compares all cases of a call in a situation of a kind. */
static void compare_modes(void)
{
    int kind = calls[now.call].kind;
    for (now.is_nonblocking = 0; now.is_nonblocking < 2; now.is_nonblocking++) {
        for (now.has_timeouts = 0; now.has_timeouts <= now.kind->is_socket; now.has_timeouts++) {
            int is_left = (kind & (TIMED | HELPED)) != 0 || connects_by_itself() ||
                          ((kind & UNTIMED) == 0 && (now.has_timeouts || now.is_nonblocking));
            now.act = is_left ? NOTHING : HELP;
            compare_if_chosen();
            if (!is_left && (now.kind->situations & B(ENDED)) != 0) {
                now.act = HANG_UP;
                compare_if_chosen();
            }
        }
    }
}

static void *compare_all(void *arg)
{
    for (size_t i = 0; i < ARRAY_SZ(kinds); i++) {
        now.kind = &kinds[i];
        for (now.situation = IDLE; now.situation < CT_SITUATIONS; now.situation++) {
            for (now.call = 0; now.call < ARRAY_SZ(calls); now.call++) {
                int is_for = now.situation == FULL ? OUT : IN | OUT;
                if ((now.kind->situations & B(now.situation)) != 0 &&
                    (calls[now.call].kind & is_for) != 0) {
                    compare_modes();
                }
            }
        }
    }
    return arg;
}

int main(int argc, char **argv)
{
    sigset_t set;
    pthread_t thread;
    each = argc > 1 ? atoi(argv[1]) : 1;
    first_case = argc > 2 ? atoi(argv[2]) % each : 0;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    MUST(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    signal(SIGPIPE, on_sigpipe);
    signal(SIGALRM, on_alarm);
    MUST(mkdtemp(folder) != NULL);
    snprintf(fifo_path, sizeof(fifo_path), "%s/fifo", folder);
    snprintf(file_path, sizeof(file_path), "%s/file", folder);
    for (size_t i = 0; i < BIG; i++) {
        big[i] = (char)(i * 2654435761u >> 11);
    }
    int fd = open(file_path, O_CREAT | O_RDWR, 0600);
    MUST(fd >= 0 && write(fd, big, BIG) == BIG && close(fd) == 0);
    MUST(sem_init(&order, 0, 0) == 0);
    MUST(pthread_create(&thread, NULL, call_in_thread, NULL) == 0);
    MUST(aco_run(NULL, compare_all, NULL, NULL) == 0);
    has_ended = 1;
    MUST(sem_post(&order) == 0);
    MUST(pthread_join(thread, NULL) == 0);
    unlink(fifo_path);
    unlink(file_path);
    rmdir(folder);
    printf("test_kernel: %d cases of %d, %d wrong\n", (ct_cases - first_case + each - 1) / each,
           ct_cases, ct_wrong);
    return ct_wrong != 0;
}
