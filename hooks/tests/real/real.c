// SPDX-License-Identifier: Apache-2.0
/*
 * Runs the functions of a library_t:
 *
 *   PROGRAM threads|tasks talk CT         CT jobs at a time; prints what each reports
 *   PROGRAM threads|tasks release CT      CT jobs wait at the same time, until they are released
 *   PROGRAM threads|tasks kill CT         CT jobs wait at the same time; the server is killed
 *   PROGRAM tasks deadline                one job waits, with a deadline of 150 ms
 *   PROGRAM tasks load CT SECONDS SEED    CT random sessions at a time, again and again; there are
 *                                         as many descriptors and bytes at the end as in between
 *
 * PORT in the environment is the server's port, PID its process, KILL the command that ends it. All
 * tasks run on one thread.
 */
#include "real.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CT_MOST = 1000, CT_ROUNDS = 10 };
enum { STACK_SZ = 1 << 20, MEMORY_SLACK = 1 << 15, MORE_THREADS = 40 };
#define DEADLINE_NS INT64_C(150000000)
#define LATEST_NS INT64_C(60000000000)

int port, silent_port;
int64_t patience = INT64_C(3600000000000); /* an hour */

static int is_in_tasks, ct_jobs, ct_about;
static int64_t wait_start; /* of the last wait */
static job_t jobs[CT_MOST];
static void (*job_function)(job_t *);

void failed(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: not so: %s (errno: %s)\n", file, line, what, strerror(errno));
    exit(1);
}

void tell(job_t *job, const char *format, ...)
{
    size_t used = strlen(job->text), left = sizeof(job->text) - used;
    va_list list;
    va_start(list, format);
    CHECK((size_t)vsnprintf(job->text + used, left, format, list) < left);
    va_end(list);
}

void about_to_wait(void)
{
    __atomic_add_fetch(&ct_about, 1, __ATOMIC_SEQ_CST);
    wait_start = is_in_tasks ? aco_now() : 0;
}

void fill(char *buffer, size_t sz, unsigned seed)
{
    for (size_t i = 0; i < sz; i++) {
        seed = seed * 1103515245 + 12345;
        buffer[i] = (char)('a' + (seed >> 16) % 26);
    }
}

uint32_t sum_of(uint32_t sum, const void *bytes, size_t sz)
{
    for (size_t i = 0; i < sz; i++) {
        sum = sum * 31 + ((const unsigned char *)bytes)[i];
    }
    return sum;
}

/* ==== Jobs =================================================================================== */

static int entries(const char *folder)
{
    DIR *dir = opendir(folder);
    int ct = 0;
    CHECK(dir != NULL);
    while (readdir(dir) != NULL) {
        ct++;
    }
    closedir(dir);
    return ct;
}

/* Counts the descriptors, but for the ring that a loop has from its first connect() on. */
static int descriptors(void)
{
    char target[64];
    DIR *dir = opendir("/proc/self/fd");
    int ct = 0;
    CHECK(dir != NULL);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        ssize_t sz = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
        target[sz < 0 ? 0 : sz] = '\0';
        ct += strstr(target, "io_uring") == NULL;
    }
    closedir(dir);
    return ct;
}

static int number_of(const char *name)
{
    const char *text = getenv(name);
    CHECK(text != NULL);
    return atoi(text);
}

static void *run_job(void *job)
{
    job_function((job_t *)job);
    return NULL;
}

/* Runs `fn` for as many jobs, and `watch`, unless NULL, beside them. */
static void run_jobs(int ct, void (*fn)(job_t *), void (*watch)(void))
{
    pthread_t threads[CT_MOST];
    aco_group_t *group = NULL;
    CHECK(ct <= CT_MOST);
    job_function = fn;
    memset(jobs, 0, sizeof(jobs));
    if (is_in_tasks) {
        CHECK((group = aco_group_new()) != NULL);
    }
    for (int i = 0; i < ct; i++) {
        jobs[i].number = i;
        CHECK((is_in_tasks ? aco_group_go(group, run_job, &jobs[i])
                           : pthread_create(&threads[i], NULL, run_job, &jobs[i])) == 0);
    }
    if (watch != NULL) {
        watch();
    }
    for (int i = 0; i < ct && !is_in_tasks; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(!is_in_tasks || aco_group_join(group) == 0);
}

static void print_jobs(int ct)
{
    for (int i = 0; i < ct; i++) {
        printf("%s\n", jobs[i].text);
    }
}

/* ==== Waits ================================================================================== */

static int ct_waiting(void)
{
    return library.ct_waiting != NULL ? library.ct_waiting()
                                      : __atomic_load_n(&ct_about, __ATOMIC_SEQ_CST);
}

/* Whether all threads of the server have stopped: SIGSTOP does not reach them at the same time. */
static int is_stopped(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    int has_run = 0;
    CHECK(dir != NULL);
    while ((entry = readdir(dir)) != NULL) {
        char name[TEXT_SZ + 40], text[TEXT_SZ];
        snprintf(name, sizeof(name), "%s/%.20s/stat", folder, entry->d_name);
        int fd = entry->d_name[0] == '.' ? -1 : open(name, O_RDONLY);
        ssize_t sz = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        text[sz < 0 ? 0 : sz] = '\0';
        has_run |= sz > 0 && strstr(text, ") T ") == NULL;
        CHECK(fd < 0 || close(fd) == 0);
    }
    closedir(dir);
    return !has_run;
}

static void prepare(void)
{
    char folder[TEXT_SZ];
    if (library.prepare != NULL) {
        library.prepare();
        return;
    }
    CHECK(kill(number_of("PID"), SIGSTOP) == 0);
    snprintf(folder, sizeof(folder), "/proc/%d/task", number_of("PID"));
    while (!is_stopped(folder)) {
        usleep(1000);
    }
}

/* Waits until all jobs wait at the same time. */
static void await_all(void)
{
    while (ct_waiting() < ct_jobs) {
        usleep(10000);
    }
    CHECK(!is_in_tasks || entries("/proc/self/task") < MORE_THREADS);
}

static void let_go(void)
{
    if (library.prepare == NULL) {
        CHECK(kill(number_of("PID"), SIGCONT) == 0);
    } else if (library.release != NULL) {
        library.release(ct_jobs);
    }
}

static void release_all(void)
{
    await_all();
    let_go();
}

static void kill_server(void)
{
    await_all();
    CHECK(system(getenv("KILL")) == 0);
}

/* Checks that the deadline ends a wait that would last for at least ten minutes. */
static void keep_to_deadline(void)
{
    int ct_fds;
    prepare();
    ct_fds = descriptors();
    patience = DEADLINE_NS;
    library.wait(&jobs[0]);
    CHECK(aco_now() - wait_start < LATEST_NS);
    CHECK(descriptors() == ct_fds);
    printf("%sby %.1f ms\n", jobs[0].text, (double)(aco_now() - wait_start) / 1e6);
    let_go();
}

/* ==== Load =================================================================================== */

static unsigned load_seed;

static void run_session(job_t *job)
{
    unsigned seed = load_seed + (unsigned)job->number;
    library.session(job, &seed);
}

/* Runs rounds of sessions. A round gives everything back at its end. */
static void load(int seconds, unsigned seed)
{
    int64_t end = aco_now() + (int64_t)seconds * 1000000000;
    int ct_fds = 0, round = 0;
    size_t sz_most = 0, sz = 0;
    for (; round < CT_ROUNDS || aco_now() < end; round++) {
        load_seed = seed + (unsigned)(round * ct_jobs);
        run_jobs(ct_jobs, run_session, NULL);
        sz = mallinfo2().uordblks;
        if (round < CT_ROUNDS / 2) {
            ct_fds = descriptors();
            sz_most = sz > sz_most ? sz : sz_most;
        }
    }
    printf("%d rounds, %d descriptors, then %d; %zu bytes, then %zu\n", round, ct_fds,
           descriptors(), sz_most, sz);
    CHECK(descriptors() == ct_fds);
    CHECK(sz <= sz_most + MEMORY_SLACK);
}

/* ==== Command line =========================================================================== */

static void make_silent_server(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t sz = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(fd, (struct sockaddr *)&address, sz) == 0 && listen(fd, CT_MOST) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &sz) == 0);
    silent_port = ntohs(address.sin_port);
}

static void *run(void *arguments)
{
    char **argv = (char **)arguments;
    const char *what = argv[2];
    ct_jobs = argv[3] != NULL ? atoi(argv[3]) : 1;
    if (strcmp(what, "talk") == 0) {
        run_jobs(ct_jobs, library.talk, NULL);
        print_jobs(ct_jobs);
    } else if (strcmp(what, "load") == 0) {
        load(atoi(argv[4]), (unsigned)atoi(argv[5]));
    } else if (strcmp(what, "deadline") == 0) {
        keep_to_deadline();
    } else {
        prepare();
        run_jobs(ct_jobs, library.wait, strcmp(what, "kill") == 0 ? kill_server : release_all);
        print_jobs(ct_jobs);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    CHECK(argc >= 3);
    port = number_of("PORT");
    is_in_tasks = strcmp(argv[1], "tasks") == 0;
    make_silent_server();
    if (library.init != NULL) {
        library.init();
    }
    if (is_in_tasks) {
        CHECK(aco_run(&(aco_run_options_t){.stack_sz = STACK_SZ}, run, argv, NULL) == 0);
    } else {
        run(argv);
    }
    return 0;
}
