// SPDX-License-Identifier: Apache-2.0
/*
 * The trace: when each task ran and waited, for what, and what woke it, in the Trace Event Format,
 * which Perfetto's and Chrome's viewers read. A loop that is traced runs its tasks one by one, and
 * writes what it sees of each into a ring of its own, without locks; others pay nothing. A thread
 * empties the rings into the file.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define CT_EVENTS ((uint64_t)1 << 16) /* of a ring */
#define PAUSE 20000000                /* ns between two rounds of the thread */
#define CALIBRATION 5000000           /* ns */

typedef enum __attribute__((packed)) { RAN, WOKE, LOOKED } kind_t;

typedef struct {
    int64_t at, duration; /* ns */
    int64_t waited_since; /* RAN: when the wait before it began; 0: there was none */
    uint64_t id;
    const void *name; /* RAN: a string, or else the entry function */
    int fd, next_fd;  /* of these waits, if for input or output */
    kind_t kind;
    reason_t waited_for, waits_for; /* before, afterwards */
    state_t state;                  /* afterwards */
    char is_function, was_woken;
} event_t;

struct trace_s {
    event_t *ring;
    uint64_t ct_written; /* atomic: by the loop's thread */
    uint64_t room_until; /* ct_written when the ring may be full */
    uint64_t ct_lost;
    int64_t began; /* what the loop does now */
    int tid;
    int has_ended; /* atomic: the loop writes no more */
    int is_busy;   /* an event is being written: a signal handler keeps off */
    trace_t *next;
    __attribute__((aligned(64))) uint64_t ct_read; /* atomic: by who writes the file */
};

static struct {
    pthread_mutex_t mutex; /* of what follows */
    FILE *file;            /* NULL: no trace is asked for */
    trace_t *first;
    int64_t start;
    int has_events;
    pid_t pid;
} all = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ==== Time =================================================================================== */

/* The processor's counter, where the kernel trusts it: ns are (counter - from) * scale / 2^32. */
static struct {
    uint64_t from, scale; /* scale 0: it is not used */
    int64_t at_from;
} counter;

static inline uint64_t read_counter(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return 0;
#endif
}

static inline int64_t now(void)
{
#if defined(__x86_64__)
    if (counter.scale != 0) {
        unsigned __int128 ns = (unsigned __int128)(read_counter() - counter.from) * counter.scale;
        return counter.at_from + (int64_t)(ns >> 32);
    }
#endif
    return aco_i_clock();
}

static void calibrate(void)
{
    char source[16] = "";
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
    if (file != NULL) {
        if (fgets(source, sizeof(source), file) == NULL) {
            source[0] = '\0';
        }
        fclose(file);
    }
    if (read_counter() == 0 ||
        (strcmp(source, "tsc\n") != 0 && strcmp(source, "kvm-clock\n") != 0)) {
        return;
    }
    counter.at_from = aco_i_clock();
    counter.from = read_counter();
    while (aco_i_clock() - counter.at_from < CALIBRATION) {
    }
    int64_t ns = aco_i_clock() - counter.at_from;
    counter.scale = (uint64_t)((double)ns * 4294967296.0 / (double)(read_counter() - counter.from));
}

/* ==== Events ================================================================================= */

static inline event_t *begin_event(trace_t *trace)
{
    if (trace->is_busy) {
        return NULL;
    }
    trace->is_busy = 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    uint64_t ct = __atomic_load_n(&trace->ct_written, __ATOMIC_RELAXED);
    if (ct == trace->room_until) {
        trace->room_until = __atomic_load_n(&trace->ct_read, __ATOMIC_ACQUIRE) + CT_EVENTS;
        if (ct == trace->room_until) {
            trace->ct_lost++;
            trace->is_busy = 0;
            return NULL;
        }
    }
    return &trace->ring[ct % CT_EVENTS];
}

static inline void end_event(trace_t *trace)
{
    __atomic_store_n(&trace->ct_written, trace->ct_written + 1, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    trace->is_busy = 0;
}

static void add_wake(trace_t *trace, const aco_task_t *task, int64_t at)
{
    event_t *event = begin_event(trace);
    if (event != NULL) {
        event->kind = WOKE;
        event->at = at;
        event->id = task->id;
        end_event(trace);
    }
}

/* Those behind `last_before` in the ready queue were woken, or made, until now. */
static void add_woken(loop_t *loop, const aco_task_t *last_before, const aco_task_t *ran,
                      int64_t at)
{
    const aco_task_t *task = last_before != NULL ? last_before->next : loop->first_ready;
    for (; task != NULL; task = task->next) {
        if (task != ran && !task->is_woken) {
            add_wake(loop->trace, task, at);
        }
    }
}

void aco_i_trace_wake(const loop_t *loop, aco_task_t *task)
{
    task->is_woken = 1; /* so that its own loop does not tell it again */
    add_wake(loop->trace, task, now());
}

void aco_i_trace_look(loop_t *loop, const aco_task_t *last_before)
{
    trace_t *trace = loop->trace;
    int64_t at = now();
    event_t *event = begin_event(trace);
    if (event != NULL) {
        event->kind = LOOKED;
        event->at = trace->began;
        event->duration = at - trace->began;
        end_event(trace);
    }
    add_woken(loop, last_before, NULL, at - 1);
    trace->began = at;
}

void aco_i_trace_run(loop_t *loop, aco_task_t *task, aco_i_before_t *before)
{
    trace_t *trace = loop->trace;
    int64_t at = now();
    event_t *event = begin_event(trace);
    if (event != NULL) {
        event->kind = RAN;
        event->at = trace->began;
        event->duration = at - trace->began;
        event->waited_since = before->waited_since;
        event->id = before->id;
        event->name = before->name;
        event->is_function = before->is_function;
        event->waited_for = before->reason;
        event->was_woken = before->was_woken;
        event->fd = before->fd;
        event->state = task->id == before->id ? task->state : TASK_ENDED;
        event->waits_for = task->reason;
        event->next_fd = task->fd;
        end_event(trace);
    }
    if (task->state == TASK_WAITING) {
        task->since = at;
    } else if (task->state == TASK_READY) {
        task->reason = FOR_NOTHING; /* nothing has to wake it */
    }
    add_woken(loop, before->last_ready, task, at - 1);
    trace->began = at;
}

void aco_i_before_run(const loop_t *loop, const aco_task_t *task, aco_i_before_t *before)
{
    int has_waited = task->co != NULL && task->reason != FOR_NOTHING;
    before->id = task->id;
    before->is_function = task->name == NULL;
    before->name = task->name != NULL ? (const void *)task->name
                                      : (const void *)(uintptr_t)task->fn;
    before->waited_since = has_waited ? task->since : 0;
    before->reason = task->reason;
    before->fd = task->fd;
    before->was_woken = task->co == NULL || task->reason != FOR_NOTHING;
    before->last_ready = loop->first_ready != NULL ? loop->last_ready : NULL;
}

/* ==== The file =============================================================================== */

static void put_string(const char *string, size_t sz)
{
    for (size_t i = 0; i < sz && string[i] != '\0'; i++) {
        unsigned char c = (unsigned char)string[i];
        if (c == '"' || c == '\\') {
            fputc('\\', all.file);
        }
        fputc(c < ' ' ? '?' : c, all.file);
    }
}

/* Looking for the name of a function takes long, so those that were found are kept. */
static void put_function(const void *function)
{
    static struct {
        const void *function;
        char name[64];
    } found[64];
    size_t i = (uintptr_t)function / 16 % 64;
    if (found[i].function != function) {
        FILE *stream = fmemopen(found[i].name, sizeof(found[i].name), "w");
        aco_i_text_t text = {.stream = stream};
        if (stream == NULL) {
            return;
        }
        aco_i_put_function(&text, (uintptr_t)function);
        aco_i_flush(&text);
        fclose(stream);
        found[i].name[sizeof(found[i].name) - 1] = '\0';
        found[i].function = function;
    }
    put_string(found[i].name, sizeof(found[i].name));
}

static void put_name(const event_t *event)
{
    char name[64];
    if (event->is_function) {
        put_function(event->name);
    } else {
        put_string(name, aco_i_read_memory(name, event->name, sizeof(name)));
    }
}

static void put_head(const trace_t *trace, const char *kind, int64_t at)
{
    at -= all.start;
    fprintf(all.file, "%s{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%lld.%03d",
            all.has_events ? ",\n" : "", kind, (int)getpid(), trace->tid, (long long)(at / 1000),
            (int)(at % 1000));
    all.has_events = 1;
}

static void put_reason(reason_t reason, int fd)
{
    fprintf(all.file, "waits for %s", aco_i_reason_names[reason]);
    if (reason == FOR_INPUT || reason == FOR_OUTPUT) {
        fprintf(all.file, " of descriptor %d", fd);
    }
}

static void put_wait(const trace_t *trace, const event_t *event)
{
    for (const char *kind = "b"; kind != NULL; kind = *kind == 'b' ? "e" : NULL) {
        put_head(trace, kind, *kind == 'b' ? event->waited_since : event->at);
        fprintf(all.file, ",\"cat\":\"wait\",\"id\":%llu,\"name\":\"",
                (unsigned long long)event->id);
        put_reason(event->waited_for, event->fd);
        fputs("\"}", all.file);
    }
}

static void put_run(const trace_t *trace, const event_t *event)
{
    if (event->waited_since != 0) {
        put_wait(trace, event);
    }
    put_head(trace, "X", event->at);
    fprintf(all.file, ",\"dur\":%lld.%03d,\"cat\":\"task\",\"name\":\"",
            (long long)(event->duration / 1000), (int)(event->duration % 1000));
    put_name(event);
    fprintf(all.file, "\",\"args\":{\"task\":%llu,\"then\":\"", (unsigned long long)event->id);
    if (event->state == TASK_WAITING) {
        put_reason(event->waits_for, event->next_fd);
    } else {
        fputs(event->state == TASK_READY ? "yields" : "ends", all.file);
    }
    fputs("\"}}", all.file);
    if (event->was_woken) {
        put_head(trace, "f", event->at);
        fprintf(all.file, ",\"bp\":\"e\",\"cat\":\"wake\",\"name\":\"wake\",\"id\":%llu}",
                (unsigned long long)event->id);
    }
}

static void put_event(const trace_t *trace, const event_t *event)
{
    if (event->kind == RAN) {
        put_run(trace, event);
    } else if (event->kind == WOKE) {
        put_head(trace, "s", event->at);
        fprintf(all.file, ",\"cat\":\"wake\",\"name\":\"wake\",\"id\":%llu}",
                (unsigned long long)event->id);
    } else {
        put_head(trace, "X", event->at);
        fprintf(all.file, ",\"dur\":%lld.%03d,\"cat\":\"loop\",\"name\":\"looks outside\"}",
                (long long)(event->duration / 1000), (int)(event->duration % 1000));
    }
}

static void put_lost(trace_t *trace)
{
    if (trace->ct_lost != 0) {
        put_head(trace, "i", now());
        fprintf(all.file, ",\"s\":\"t\",\"name\":\"%llu events are lost: the file is too slow\"}",
                (unsigned long long)trace->ct_lost);
        trace->ct_lost = 0;
    }
}

/* Empties all rings, and frees those of loops that have ended. Under the mutex. */
static void empty_rings(void)
{
    aco_i_begin_places();
    for (trace_t **link = &all.first; *link != NULL;) {
        trace_t *trace = *link;
        int has_ended = __atomic_load_n(&trace->has_ended, __ATOMIC_ACQUIRE);
        uint64_t ct = __atomic_load_n(&trace->ct_written, __ATOMIC_ACQUIRE);
        for (uint64_t i = trace->ct_read; i != ct; i++) {
            put_event(trace, &trace->ring[i % CT_EVENTS]);
            if (i % 1024 == 1023 || i + 1 == ct) {
                __atomic_store_n(&trace->ct_read, i + 1, __ATOMIC_RELEASE);
            }
        }
        put_lost(trace);
        if (has_ended) {
            *link = trace->next;
            munmap(trace->ring, CT_EVENTS * sizeof(event_t));
            aco_i_release(trace);
        } else {
            link = &trace->next;
        }
    }
    aco_i_end_places();
    fflush(all.file);
}

static void *write_file(void *arg)
{
    struct timespec pause = {0, PAUSE};
    for (;;) {
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&all.mutex);
        empty_rings();
        pthread_mutex_unlock(&all.mutex);
    }
    return arg;
}

/* Viewers do without the end of the list, where the process was killed. */
static void end_file(void)
{
    if (getpid() != all.pid) { /* a child's end */
        return;
    }
    pthread_mutex_lock(&all.mutex);
    empty_rings();
    fputs("\n]\n", all.file);
    fflush(all.file);
    all.has_events = 0;
    all.file = fopen("/dev/null", "we"); /* threads that still run */
    pthread_mutex_unlock(&all.mutex);
}

static void begin_file(void)
{
    const char *path = getenv("ACO_TRACE");
    if (path == NULL || *path == '\0') {
        return;
    }
    all.file = fopen(path, "we");
    if (all.file == NULL) {
        fprintf(stderr, "aco: ACO_TRACE: %s: %s\n", path, strerror(errno));
        return;
    }
    fputs("[\n", all.file);
    aco_i_find_modules();
    calibrate();
    all.start = now();
    all.pid = getpid();
    atexit(end_file);
    if (aco_i_start_thread(write_file, NULL) != 0) {
        fprintf(stderr, "aco: ACO_TRACE: no thread for it: %s\n", strerror(errno));
    }
}

void aco_i_begin_trace(loop_t *loop)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin_file);
    if (all.file == NULL) {
        return;
    }
    trace_t *trace = (trace_t *)aco_i_allocate(sizeof(*trace));
    void *ring = mmap(NULL, CT_EVENTS * sizeof(event_t), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (trace == NULL || ring == MAP_FAILED) {
        fprintf(stderr, "aco: ACO_TRACE: no memory for it\n");
        return;
    }
    *trace = (trace_t){.ring = (event_t *)ring, .tid = loop->tid, .room_until = CT_EVENTS};
    trace->began = now();
    pthread_mutex_lock(&all.mutex);
    trace->next = all.first;
    all.first = trace;
    put_head(trace, "M", all.start);
    fprintf(all.file, ",\"name\":\"thread_name\",\"args\":{\"name\":\"loop %d\"}}", loop->index);
    pthread_mutex_unlock(&all.mutex);
    loop->trace = trace;
}

void aco_i_end_trace(loop_t *loop)
{
    if (loop->trace != NULL) {
        __atomic_store_n(&loop->trace->has_ended, 1, __ATOMIC_RELEASE);
        loop->trace = NULL;
        pthread_mutex_lock(&all.mutex);
        empty_rings();
        pthread_mutex_unlock(&all.mutex);
    }
}
