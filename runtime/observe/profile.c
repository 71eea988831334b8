// SPDX-License-Identifier: Apache-2.0
/*
 * Makes the profile: where processor time goes, by task. A timer interrupts each loop's thread 99
 * times in a second of its processor time. The handler walks the stack, and counts it in a table of
 * the thread's own, without locks. When no loop is left, and when the program exits, the tables
 * become a file of collapsed stacks, from which flame graphs are drawn.
 */
#include "observe/observe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Tests set others. */
#ifndef PROFILE_HZ
#define PROFILE_HZ 99
#endif
#ifndef PROFILE_CLOCK
#define PROFILE_CLOCK CLOCK_THREAD_CPUTIME_ID
#endif

#define MOST_FRAMES 128
#define NAME_SZ 64                   /* bytes of a task's name */
#define SAMPLES_SZ ((size_t)4 << 20) /* bytes */
#define CT_SLOTS ((size_t)1 << 16)
#define COPY_SZ ((size_t)256 << 10) /* bytes of a stack */
#define CT_NAMES ((size_t)1 << 13)

/* A stack, and how often it was seen. Two are the same if all that follows `ct` is. */
typedef struct {
    uintptr_t ct;        /* atomic: only its thread changes it */
    void *(*fn)(void *); /* the task's; NULL: of the loop itself */
    char name[NAME_SZ];  /* the task's, or else "" */
    int is_whole;
    int ct_pcs;
    uintptr_t pcs[MOST_FRAMES]; /* the innermost first */
} sample_t;

struct profile_s {
    loop_t *loop; /* NULL: its loop has ended, and another one may have the profile */
    profile_t *next;
    int timer;
    uintptr_t low, top;  /* of the thread's own stack */
    uint64_t ct_lost;    /* samples for which there was no room */
    uint64_t ct_cramped; /* samples that the stack for handlers was too small for */
    size_t sz;           /* atomic: bytes of samples that are in use */
    sample_t now;
    uint32_t slots[CT_SLOTS]; /* a hash table: 1 + a sample's index in `samples`; 0: empty */
    uintptr_t samples[SAMPLES_SZ / sizeof(uintptr_t)];
    char copy[COPY_SZ];
};

static struct {
    pthread_mutex_t mutex; /* protects what follows */
    int fd;                /* < 0: no profile is asked for */
    int is_changed;        /* atomic: there are samples that the file lacks */
    pid_t pid;
    int has_failed; /* a message about it was printed */
    int is_whole;   /* the file, which is not written again */
    int ct_loops;
    profile_t *first;
} all = {.mutex = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

/* Prints once why a profile is missing, or lacks something. Under the mutex. */
static void say(const char *what, const char *why)
{
    if (!all.has_failed) {
        fprintf(stderr, "aco: ACO_PROFILE: %s%s\n", what, why);
        all.has_failed = 1;
    }
}

/* ==== Samples ================================================================================ */

/* The number of words that a sample takes. */
static size_t size_of_sample(const sample_t *sample)
{
    size_t sz = offsetof(sample_t, pcs) + (size_t)sample->ct_pcs * sizeof(sample->pcs[0]);
    return (sz + sizeof(uintptr_t) - 1) / sizeof(uintptr_t);
}

static size_t hash_of(const sample_t *sample)
{
    const uintptr_t *words = (const uintptr_t *)sample;
    size_t sz = size_of_sample(sample);
    uint64_t hash = 0;
    for (size_t i = offsetof(sample_t, fn) / sizeof(words[0]); i < sz; i++) {
        hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return (size_t)hash;
}

static int is_same(const sample_t *a, const sample_t *b)
{
    size_t from = offsetof(sample_t, fn);
    return a->ct_pcs == b->ct_pcs && memcmp((const char *)a + from, (const char *)b + from,
                                            size_of_sample(a) * sizeof(uintptr_t) - from) == 0;
}

/* Counts the sample in profile->now. */
static void count_sample(profile_t *profile)
{
    sample_t *now = &profile->now;
    size_t sz = size_of_sample(now), used = profile->sz;
    uint32_t *slot = NULL;
    for (size_t i = hash_of(now), tries = 0; tries < CT_SLOTS / 2; i++, tries++) {
        slot = &profile->slots[i % CT_SLOTS];
        sample_t *found = (sample_t *)&profile->samples[*slot == 0 ? 0 : *slot - 1];
        if (*slot == 0) {
            break;
        }
        if (is_same(found, now)) {
            __atomic_store_n(&found->ct, found->ct + 1, __ATOMIC_RELAXED);
            return;
        }
    }
    if (*slot != 0 || sz > sizeof(profile->samples) / sizeof(uintptr_t) - used) {
        profile->ct_lost++;
        return;
    }
    now->ct = 1;
    memcpy(&profile->samples[used], now, sz * sizeof(uintptr_t));
    *slot = (uint32_t)used + 1;
    __atomic_store_n(&profile->sz, used + sz, __ATOMIC_RELEASE);
}

static void take_sample(profile_t *profile, const void *ucontext)
{
    const aco_task_t *task = profile->loop->running;
    sample_t *now = &profile->now;
    aco_i_registers_t registers = aco_i_interrupted(ucontext);
    aco_i_walk_t walk = {
        .pcs = now->pcs, .most = MOST_FRAMES, .copy = profile->copy, .copy_sz = COPY_SZ};
    memset(now, 0, offsetof(sample_t, pcs));
    if (task != NULL) {
        now->fn = task->fn;
        size_t sz = task->name == NULL ? 0 : aco_i_read_memory(now->name, task->name, NAME_SZ - 1);
        size_t length = strnlen(now->name, sz);
        memset(now->name + length, 0, NAME_SZ - length);
    }
    aco_i_walk_here(task, &registers, profile->low, profile->top, &walk);
    now->is_whole = walk.is_whole;
    now->ct_pcs = walk.ct;
    count_sample(profile);
}

static void handle(int signal, siginfo_t *info, void *ucontext)
{
    KEEP_ERRNO();
    const loop_t *loop = aco_i_loop;
    profile_t *profile = loop == NULL ? NULL : loop->profile;
    (void)signal;
    if (profile != NULL && info->si_code == SI_TIMER && info->si_value.sival_ptr == profile) {
        if (aco_i_has_room()) {
            take_sample(profile, ucontext);
        } else {
            profile->ct_cramped++;
        }
        __atomic_store_n(&all.is_changed, 1, __ATOMIC_RELAXED);
    }
}

/* ==== Lines ================================================================================== */

typedef struct {
    char *text;
    uint64_t ct;
} line_t;

/* The text is in one piece until it has all lines, since it may move meanwhile. */
typedef struct {
    aco_i_text_t text;
    line_t *lines;
    size_t ct;
} lines_t;

/* The name of the function at an address, or else the address in its file; from malloc(). */
static char *find_name(uintptr_t pc)
{
    char *name = NULL;
    size_t sz;
    aco_i_text_t text = {.stream = open_memstream(&name, &sz)};
    if (text.stream == NULL) {
        return NULL;
    }
    aco_i_put_function(&text, pc);
    aco_i_flush(&text);
    return fclose(text.stream) == 0 ? name : NULL;
}

/* The same, kept for the next time: symbols are not sorted, so looking for one takes long. */
static const char *name_at(uintptr_t pc)
{
    static struct {
        uintptr_t function;
        char *name;
    } names[CT_NAMES];
    uintptr_t start = aco_i_function_at(pc), function = start == 0 ? pc : start;
    size_t i = (size_t)(function * UINT32_C(0x9e3779b1) >> 7) % CT_NAMES;
    if (names[i].function != function) {
        free(names[i].name);
        names[i].name = find_name(function);
        names[i].function = function;
    }
    return names[i].name == NULL ? "?" : names[i].name;
}

/* Puts the name of a frame, in which a semicolon would be its end. */
static void put_frame(aco_i_text_t *text, const char *name)
{
    for (; *name != '\0'; name++) {
        char c = *name == ';' ? ':' : (unsigned char)*name < ' ' || *name == 0x7f ? '?' : *name;
        aco_i_put_some(text, &c, 1);
    }
}

static int begins_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Puts "task;outer;inner", without the frames that every stack begins with. */
static void put_stack(aco_i_text_t *text, const sample_t *sample)
{
    int ct = 0;
    put_frame(text, sample->fn == NULL        ? "loop"
                    : sample->name[0] != '\0' ? sample->name
                                              : name_at((uintptr_t)sample->fn));
    for (const char *name; ct < sample->ct_pcs; ct++) {
        name = name_at(sample->pcs[ct]);
        if (begins_with(name, "aco_i_enter_task") || begins_with(name, "aco_i_run_loop")) {
            break;
        }
    }
    aco_i_put(text, sample->is_whole ? "" : ";...");
    for (int i = ct - 1; i >= 0; i--) {
        const char *name = name_at(sample->pcs[i]);
        if (!begins_with(name, "aco_coroutine_end")) {
            aco_i_put(text, ";");
            put_frame(text, name);
        }
    }
    aco_i_put(text, "\n");
}

/* 0: there is no memory for it. */
static int add_line(lines_t *lines, uint64_t ct)
{
    if ((lines->ct & (lines->ct - 1)) == 0) { /* a power of 2, or 0: there is no room */
        size_t sz = (lines->ct == 0 ? 1 : 2 * lines->ct) * sizeof(line_t);
        line_t *larger = (line_t *)realloc(lines->lines, sz);
        if (larger == NULL) {
            return 0;
        }
        lines->lines = larger;
    }
    lines->lines[lines->ct++].ct = ct;
    return 1;
}

static void add_profile(lines_t *lines, const profile_t *profile)
{
    size_t sz = __atomic_load_n(&profile->sz, __ATOMIC_ACQUIRE);
    for (size_t at = 0; at < sz;) {
        const sample_t *sample = (const sample_t *)&profile->samples[at];
        if (add_line(lines, __atomic_load_n(&sample->ct, __ATOMIC_RELAXED))) {
            put_stack(&lines->text, sample);
        }
        at += size_of_sample(sample);
    }
    if (profile->ct_cramped != 0) {
        say("sigaltstack() was given less than 32 KiB: samples are missing", "");
    }
    if (profile->ct_lost != 0 && add_line(lines, profile->ct_lost)) {
        aco_i_put(&lines->text, "no room for further stacks\n");
    }
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const line_t *)a)->text, ((const line_t *)b)->text);
}

/* ==== The file =============================================================================== */

/* Writes the lines. Stacks of the same functions make one, whose number is the sum of theirs. */
static void put_lines(line_t *lines, size_t ct, char *texts)
{
    aco_i_text_t text = {.fd = all.fd};
    for (size_t i = 0; i < ct; i++) {
        lines[i].text = texts;
        texts = strchr(texts, '\n');
        *texts++ = '\0';
    }
    if (ct > 1) {
        qsort(lines, ct, sizeof(lines[0]), compare);
    }
    for (size_t i = 0; i < ct; i++) {
        if (i + 1 < ct && strcmp(lines[i].text, lines[i + 1].text) == 0) {
            lines[i + 1].ct += lines[i].ct;
            continue;
        }
        aco_i_put(&text, lines[i].text);
        aco_i_put(&text, " ");
        aco_i_put_number(&text, lines[i].ct, 10);
        aco_i_put(&text, "\n");
    }
    aco_i_flush(&text);
    if (text.error != 0) {
        say("the file is not whole: ", strerror(text.error));
    }
}

/* Writes all that was counted so far; to a pipe, only at the end of the process. Under the
 * mutex. */
static void write_file(int is_end)
{
    if (all.is_whole) {
        return;
    }
    all.is_whole = is_end;
    char *texts = NULL;
    size_t sz;
    lines_t lines = {.text = {.stream = open_memstream(&texts, &sz)}};
    int is_file = ftruncate(all.fd, 0) == 0 && lseek(all.fd, 0, SEEK_SET) == 0;
    if (lines.text.stream == NULL) {
        say("no memory for the file", "");
        return;
    }
    aco_i_find_modules();
    aco_i_begin_backtraces();
    for (const profile_t *p = all.first; p != NULL && (is_file || is_end); p = p->next) {
        add_profile(&lines, p);
    }
    aco_i_end_backtraces();
    aco_i_flush(&lines.text);
    if (fclose(lines.text.stream) == 0) {
        put_lines(lines.lines, lines.ct, texts);
    }
    free(lines.lines);
    free(texts);
}

/* Prints a message if a loop's thread can't have had all its samples. Under the mutex. */
static void check_signal(int is_own_thread)
{
    struct sigaction action;
    sigset_t blocked;
    if (sigaction(SIGPROF, NULL, &action) == 0 &&
        (!(action.sa_flags & SA_SIGINFO) || action.sa_sigaction != handle)) {
        say("the program has set a handler of its own for SIGPROF: samples are missing", "");
    } else if (is_own_thread && pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0 &&
               sigismember(&blocked, SIGPROF)) {
        say("the program has blocked SIGPROF: samples are missing", "");
    }
}

static void finish_profile(void)
{
    if (getpid() == all.pid) { /* else a child ends, or no profile is asked for */
        pthread_mutex_lock(&all.mutex);
        if (all.ct_loops != 0) {
            check_signal(aco_i_loop != NULL);
        }
        write_file(1);
        pthread_mutex_unlock(&all.mutex);
    }
}

/* ==== Start and end ========================================================================== */

/* Takes SIGPROF; 0 if the program has a use of its own for it. */
static int take_signal(void)
{
    struct sigaction action = {.sa_sigaction = handle,
                               .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    return aco_i_take_signal(SIGPROF, &action);
}

static void begin_file(void)
{
    const char *path = getenv("ACO_PROFILE");
    if (path == NULL || *path == '\0') {
        return;
    }
    if (!take_signal()) {
        fprintf(stderr, "aco: ACO_PROFILE: the program has a handler of its own for SIGPROF\n");
        return;
    }
    all.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (all.fd < 0) {
        fprintf(stderr, "aco: ACO_PROFILE: %s: %s\n", path, strerror(errno));
        return;
    }
    all.pid = getpid();
    aco_i_find_modules();
    atexit(finish_profile);
    aco_i_finish_on_signals(PROFILE_FILE, finish_profile);
}

/* A free profile, or a new one, which stays in the list; NULL: no memory. Under the mutex. */
static profile_t *find_profile(void)
{
    for (profile_t *profile = all.first; profile != NULL; profile = profile->next) {
        if (profile->loop == NULL) {
            return profile;
        }
    }
    profile_t *profile = (profile_t *)aco_i_map(sizeof(*profile), MAP_NORESERVE);
    if (profile != NULL) {
        profile->next = all.first;
        all.first = profile;
    }
    return profile;
}

static void find_own_stack(profile_t *profile)
{
    pthread_attr_t attributes;
    void *low = NULL;
    size_t sz = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstack(&attributes, &low, &sz);
        pthread_attr_destroy(&attributes);
    }
    profile->low = (uintptr_t)low;
    profile->top = (uintptr_t)low + sz;
}

/* Starts the timer by system calls, since older versions of libc have timers in a library of their
 * own. The first sample comes at random within a period, so that loops which end sooner have their
 * share. Returns 0, or -1 with errno. */
static int start_timer(profile_t *profile)
{
    struct {
        void *value;
        int signal, notify, tid;
        char unused[64];
    } event = {profile, SIGPROF, 4 /* SIGEV_THREAD_ID */, profile->loop->tid, ""};
    long period[4] = {0, 1000000000 / PROFILE_HZ, 0, 0};
    period[3] = 1 + (long)(aco_i_clock() % period[1]);
    if (syscall(SYS_timer_create, PROFILE_CLOCK, &event, &profile->timer) != 0) {
        profile->timer = -1;
        return -1;
    }
    return (int)syscall(SYS_timer_settime, profile->timer, 0, period, NULL);
}

void aco_i_begin_profile(loop_t *loop)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin_file);
    if (all.fd < 0 || getpid() != all.pid) {
        return;
    }
    pthread_mutex_lock(&all.mutex);
    profile_t *profile = find_profile();
    if (profile != NULL) {
        profile->loop = loop;
        all.ct_loops++;
        find_own_stack(profile);
    }
    if (profile == NULL || start_timer(profile) != 0) {
        say("no timer of a thread's time: ", strerror(errno));
    }
    pthread_mutex_unlock(&all.mutex);
    /* The handler must not be the first to use these on the thread: malloc() may be called then. */
    loop_t *volatile running = aco_i_loop;
    aco_t *volatile co = aco_gtls_co;
    (void)running;
    (void)co;
    loop->profile = profile;
}

void aco_i_end_profile(loop_t *loop)
{
    profile_t *profile = loop->profile;
    if (profile == NULL || getpid() != all.pid) { /* a child has no timers */
        return;
    }
    loop->profile = NULL;
    if (profile->timer != -1) {
        syscall(SYS_timer_delete, profile->timer);
    }
    pthread_mutex_lock(&all.mutex);
    check_signal(1);
    profile->loop = NULL;
    if (--all.ct_loops == 0 && __atomic_exchange_n(&all.is_changed, 0, __ATOMIC_RELAXED)) {
        write_file(0);
    }
    pthread_mutex_unlock(&all.mutex);
}
