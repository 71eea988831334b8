// SPDX-License-Identifier: Apache-2.0
/*
 * The trace: when each task ran and waited, for what, and what woke it, in the Trace Event Format,
 * which Perfetto's and Chrome's viewers read. A loop that is traced runs its tasks one by one, and
 * writes what it sees of each into a ring of its own, without locks; others pay nothing. A thread
 * empties the rings into the file.
 */
#include "internal.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#define CT_EVENTS ((uint64_t)1 << 16) /* of a ring */
#define AHEAD 4                       /* events for which memory is fetched in advance */
#define PAUSE 20000000                /* ns between two rounds of the thread */
#define CALIBRATION 5000000           /* ns */
#define LEAST_PRIORITY 19
#define CT_NAMES 4096  /* that are kept */
#define NAME_SZ 64     /* bytes of a name that are written */
#define RECORD_SZ 1024 /* at most, of a record */

typedef enum __attribute__((packed)) { RAN, WOKE, LOOKED, NAMED, NAMED_ON } kind_t;

#define PART_SZ 40 /* bytes of a name in an event */

typedef struct __attribute__((aligned(64))) {
    union {
        struct {
            int64_t at, duration; /* ns */
            int64_t waited_since; /* RAN: when the wait before it began; 0: there was none */
            const void *name;     /* RAN: a string, or else the entry function */
            int fd, next_fd;      /* of these waits, if for input or output */
        };
        char part[PART_SZ]; /* NAMED: the begin of the task's name; NAMED_ON: the rest */
    };
    uint64_t id;
    kind_t kind;
    reason_t waited_for, waits_for; /* before, afterwards */
    state_t state;                  /* afterwards */
    char is_function, was_woken;
} event_t;

struct trace_s {
    uint64_t ct_begun;   /* events that the loop's thread writes, or has written */
    uint64_t room_until; /* ct_begun when the ring may be full */
    uint64_t ct_lost;
    uint64_t ct_published;        /* atomic */
    int64_t began;                /* what the loop does now */
    event_t *runs;                /* of the task that runs */
    const aco_task_t *last_ready; /* before it did; NULL: none was */
    char thread[64];              /* what each record says of its thread */
    size_t thread_sz;
    int has_ended; /* atomic: the loop writes no more */
    int is_busy;   /* ct_begun is about to change: a signal handler keeps off */
    trace_t *next;
    event_t lost;
    __attribute__((aligned(64))) uint64_t ct_read; /* atomic: by who writes the file */
    event_t ring[];
};

#define MAPPED_SZ (sizeof(trace_t) + CT_EVENTS * sizeof(event_t)) /* bytes of a trace */

static struct {
    pthread_mutex_t mutex; /* of what follows */
    int fd;
    char *end; /* of what is to be written; NULL: no trace is asked for */
    trace_t *first;
    int64_t start;
    int has_events;
    int has_failed; /* the file can't be written any more */
    pid_t pid;
    char text[1 << 16];
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

static int has_room(trace_t *trace)
{
    trace->room_until = __atomic_load_n(&trace->ct_read, __ATOMIC_ACQUIRE) + CT_EVENTS;
    trace->ct_lost += trace->ct_begun == trace->room_until;
    return trace->ct_begun != trace->room_until;
}

/* The next event, to be filled before it is published; a lost one if there is no room. */
static inline event_t *add_event(trace_t *trace)
{
    event_t *event = &trace->lost;
    if (!trace->is_busy) {
        trace->is_busy = 1;
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        if (trace->ct_begun != trace->room_until || has_room(trace)) {
            event = &trace->ring[trace->ct_begun++ % CT_EVENTS];
            /* The ring is larger than most caches, and the other thread has just read it. */
            __builtin_prefetch(&trace->ring[(trace->ct_begun + AHEAD) % CT_EVENTS], 1);
        }
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        trace->is_busy = 0;
    }
    return event;
}

/* All events that were begun are complete. */
static inline void publish(trace_t *trace)
{
    __atomic_store_n(&trace->ct_published, trace->ct_begun, __ATOMIC_RELEASE);
}

static void add_wake(trace_t *trace, const aco_task_t *task, int64_t at)
{
    event_t *event = add_event(trace);
    event->kind = WOKE;
    event->at = at;
    event->id = task->id;
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
    event_t *event = add_event(trace);
    event->kind = LOOKED;
    event->at = trace->began;
    event->duration = at - trace->began;
    add_woken(loop, last_before, NULL, at - 1);
    publish(trace);
    trace->began = at;
}

/* The program may free the name when the task has ended, which is before the file is written. */
static __attribute__((noinline)) void add_name(trace_t *trace, const aco_task_t *task)
{
    size_t sz = strnlen(task->name, NAME_SZ);
    for (size_t done = 0; done == 0 || done < sz; done += PART_SZ) {
        event_t *event = add_event(trace);
        event->kind = done == 0 ? NAMED : NAMED_ON;
        event->id = task->id;
        memset(event->part, 0, PART_SZ);
        memcpy(event->part, task->name + done, sz - done < PART_SZ ? sz - done : PART_SZ);
    }
}

void aco_i_trace_begin_run(loop_t *loop, const aco_task_t *task)
{
    trace_t *trace = loop->trace;
    if (task->co == NULL && task->name != NULL) {
        add_name(trace, task);
    }
    event_t *event = add_event(trace);
    int was_woken = task->co == NULL || task->reason != FOR_NOTHING;
    event->kind = RAN;
    event->at = trace->began;
    event->waited_since = task->co != NULL && was_woken ? task->since : 0;
    event->id = task->id;
    event->is_function = task->name == NULL;
    event->name = task->name != NULL ? (const void *)task->name : (const void *)(uintptr_t)task->fn;
    event->waited_for = task->reason;
    event->was_woken = (char)was_woken;
    event->fd = task->fd;
    trace->runs = event;
    trace->last_ready = loop->first_ready != NULL ? loop->last_ready : NULL;
}

void aco_i_trace_end_run(loop_t *loop, aco_task_t *task)
{
    trace_t *trace = loop->trace;
    event_t *event = trace->runs;
    int64_t at = now();
    event->duration = at - trace->began;
    event->state = task->id == event->id ? task->state : TASK_ENDED;
    event->waits_for = task->reason;
    event->next_fd = task->fd;
    if (task->state == TASK_WAITING) {
        task->since = at;
    } else if (task->state == TASK_READY) {
        task->reason = FOR_NOTHING; /* nothing has to wake it */
    }
    if (loop->first_ready != NULL && loop->last_ready != trace->last_ready) {
        add_woken(loop, trace->last_ready, task, at - 1);
    }
    publish(trace);
    trace->began = at;
}

/* ==== The file =============================================================================== */

/* Writes what has been put. After an error the trace ends there: a gap would spoil it all. */
static void flush_file(void)
{
    const char *bytes = all.text;
    while (bytes != all.end && !all.has_failed) {
        ssize_t ct = aco_i_libc.write(all.fd, bytes, (size_t)(all.end - bytes));
        if (ct < 0 && errno != EINTR) {
            all.has_failed = 1;
            fprintf(stderr, "aco: ACO_TRACE: the file ends early: %s\n", strerror(errno));
        }
        bytes += ct > 0 ? ct : 0;
    }
    all.end = all.text;
}

static inline void put_some(const char *bytes, size_t sz)
{
    memcpy(all.end, bytes, sz);
    all.end += sz;
}

#define PUT(literal) put_some("" literal, sizeof(literal) - 1)

/* Puts the digits of a number so that they end at `end`, two at a time; returns their begin. */
static char *digits_before(char *end, uint64_t number)
{
    static const char pairs[] =
        "00010203040506070809101112131415161718192021222324252627282930313233"
        "34353637383940414243444546474849505152535455565758596061626364656667"
        "68697071727374757677787980818283848586878889909192939495969798"
        "99";
    while (number >= 100) {
        end -= 2;
        memcpy(end, &pairs[number % 100 * 2], 2);
        number /= 100;
    }
    if (number >= 10) {
        end -= 2;
        memcpy(end, &pairs[number * 2], 2);
    } else {
        *--end = (char)('0' + number);
    }
    return end;
}

static void put_number(uint64_t number)
{
    char digits[20], *end = digits + sizeof(digits), *first = digits_before(end, number);
    put_some(first, (size_t)(end - first));
}

/* In us, with three decimals. */
static void put_time(int64_t ns)
{
    char digits[24], *end = digits + sizeof(digits);
    unsigned rest = (unsigned)(ns % 1000) + 1000;
    char *first = digits_before(end, rest);
    *first = '.'; /* instead of the 1 that makes it four digits */
    first = digits_before(first, (uint64_t)(ns / 1000));
    put_some(first, (size_t)(end - first));
}

/* Bytes of the character at `s` in UTF-8; 0: there is none. */
static size_t size_of_character(const unsigned char *s, size_t sz)
{
    size_t more = s[0] < 0x80 ? 0 : s[0] < 0xc2 ? sz : s[0] < 0xe0 ? 1 : s[0] < 0xf0 ? 2 : 3;
    if (more >= sz || s[0] > 0xf4 || (s[0] < 0x80 && s[0] < ' ')) {
        return 0;
    }
    for (size_t i = 1; i <= more; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    int is_long = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    int is_high = (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f);
    return is_long || is_high ? 0 : more + 1;
}

static void put_string(const char *string, size_t sz)
{
    size_t length = strnlen(string, sz);
    for (size_t i = 0; i < length;) {
        size_t ct = size_of_character((const unsigned char *)string + i, length - i);
        if (string[i] == '"' || string[i] == '\\') {
            PUT("\\");
        }
        put_some(ct == 0 ? "?" : string + i, ct == 0 ? 1 : ct);
        i += ct == 0 ? 1 : ct;
    }
}

/* Looking for the name of a function takes long, so those that were found are kept. */
static void put_function(const void *function)
{
    static struct {
        const void *function;
        char name[NAME_SZ];
    } found[256];
    size_t i = (uintptr_t)function / 16 % 256;
    if (found[i].function != function) {
        FILE *stream = fmemopen(found[i].name, NAME_SZ, "w");
        aco_i_text_t text = {.stream = stream};
        if (stream == NULL) {
            return;
        }
        aco_i_put_function(&text, (uintptr_t)function);
        aco_i_flush(&text);
        fclose(stream);
        found[i].name[NAME_SZ - 1] = '\0';
        found[i].function = function;
    }
    put_string(found[i].name, NAME_SZ);
}

/* Names of tasks, as they were at the start; and those that had to be read again, by a system call,
 * as the string may be gone: it is the program's. */
typedef struct {
    uint64_t id;
    char text[2 * PART_SZ];
} name_t;
static name_t names[CT_NAMES];

static void keep_name(const event_t *event)
{
    name_t *name = &names[event->id % CT_NAMES];
    if (event->kind == NAMED) {
        memset(name, 0, sizeof(*name));
        name->id = event->id;
    }
    if (name->id == event->id) {
        memcpy(name->text + (event->kind == NAMED ? 0 : PART_SZ), event->part, PART_SZ);
    }
}

static void put_name(const event_t *event)
{
    name_t *name = &names[event->id % CT_NAMES];
    if (event->is_function) {
        put_function(event->name);
        return;
    }
    if (name->id != event->id) {
        memset(name, 0, sizeof(*name));
        aco_i_read_memory(name->text, event->name, NAME_SZ);
        name->id = event->id;
    }
    put_string(name->text, NAME_SZ);
}

/* Begins a record, for whose rest there is room. */
static void put_head(const trace_t *trace, char kind, int64_t at)
{
    if (all.end - all.text > (ptrdiff_t)(sizeof(all.text) - RECORD_SZ)) {
        flush_file();
    }
    put_some(",\n", all.has_events ? 2 : 0);
    all.has_events = 1;
    PUT("{\"ph\":\"");
    *all.end++ = kind;
    put_some(trace->thread, trace->thread_sz);
    put_time(at > all.start ? at - all.start : 0);
}

static void put_reason(reason_t reason, int fd)
{
    PUT("waits for ");
    put_some(aco_i_reason_names[reason], strlen(aco_i_reason_names[reason]));
    if (reason == FOR_INPUT || reason == FOR_OUTPUT) {
        PUT(" of descriptor ");
        put_number((uint64_t)fd);
    }
}

/* The end of an arrow. */
static void put_arrow(const trace_t *trace, char kind, int64_t at, uint64_t id)
{
    put_head(trace, kind, at);
    PUT(",\"bp\":\"e\",\"cat\":\"wake\",\"name\":\"wake\",\"id\":");
    put_number(id);
    PUT("}");
}

static void put_wait(const trace_t *trace, const event_t *event)
{
    for (int is_end = 0; is_end <= 1; is_end++) {
        put_head(trace, is_end ? 'e' : 'b', is_end ? event->at : event->waited_since);
        PUT(",\"cat\":\"wait\",\"id\":");
        put_number(event->id);
        PUT(",\"name\":\"");
        put_reason(event->waited_for, event->fd);
        PUT("\"}");
    }
}

static void put_slice(const trace_t *trace, const event_t *event)
{
    put_head(trace, 'X', event->at);
    PUT(",\"dur\":");
    put_time(event->duration);
}

static void put_run(const trace_t *trace, const event_t *event)
{
    if (event->waited_since != 0) {
        put_wait(trace, event);
    }
    put_slice(trace, event);
    PUT(",\"cat\":\"task\",\"name\":\"");
    put_name(event);
    PUT("\",\"args\":{\"task\":");
    put_number(event->id);
    PUT(",\"then\":\"");
    if (event->state == TASK_WAITING) {
        put_reason(event->waits_for, event->next_fd);
    } else if (event->state == TASK_READY) {
        PUT("yields");
    } else {
        PUT("ends");
    }
    PUT("\"}}");
    if (event->was_woken) {
        put_arrow(trace, 'f', event->at, event->id);
    }
}

static void put_event(const trace_t *trace, const event_t *event)
{
    if (event->kind == RAN) {
        put_run(trace, event);
    } else if (event->kind == WOKE) {
        put_arrow(trace, 's', event->at, event->id);
    } else if (event->kind == NAMED || event->kind == NAMED_ON) {
        keep_name(event);
    } else {
        put_slice(trace, event);
        PUT(",\"cat\":\"loop\",\"name\":\"looks outside\"}");
    }
}

static void put_lost(trace_t *trace)
{
    if (trace->ct_lost != 0) {
        put_head(trace, 'i', now());
        PUT(",\"s\":\"t\",\"name\":\"");
        put_number(trace->ct_lost);
        PUT(" events are lost: no processor had time to write them\"}");
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
        uint64_t ct = __atomic_load_n(&trace->ct_published, __ATOMIC_ACQUIRE);
        for (uint64_t i = trace->ct_read; i != ct; i++) {
            put_event(trace, &trace->ring[i % CT_EVENTS]);
            if (i % 1024 == 1023 || i + 1 == ct) {
                __atomic_store_n(&trace->ct_read, i + 1, __ATOMIC_RELEASE);
            }
        }
        put_lost(trace);
        if (has_ended) {
            *link = trace->next;
            munmap(trace, MAPPED_SZ);
        } else {
            link = &trace->next;
        }
    }
    aco_i_end_places();
    flush_file();
}

static void *write_file(void *arg)
{
    struct timespec pause = {0, PAUSE};
    setpriority(PRIO_PROCESS, 0, LEAST_PRIORITY); /* of this thread */
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
    PUT("\n]\n");
    flush_file();
    close(all.fd);
    all.fd = open("/dev/null", O_WRONLY | O_CLOEXEC); /* of threads that still run */
    pthread_mutex_unlock(&all.mutex);
}

static void begin_file(void)
{
    const char *path = getenv("ACO_TRACE");
    if (path == NULL || *path == '\0') {
        return;
    }
    all.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (all.fd < 0) {
        fprintf(stderr, "aco: ACO_TRACE: %s: %s\n", path, strerror(errno));
        return;
    }
    all.end = all.text;
    PUT("[\n");
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
    if (all.end == NULL || getpid() != all.pid) { /* the file is the parent's */
        return;
    }
    void *memory = mmap(NULL, MAPPED_SZ, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "aco: ACO_TRACE: no memory for it\n");
        return;
    }
    trace_t *trace = (trace_t *)memory;
    trace->thread_sz = (size_t)snprintf(trace->thread, sizeof(trace->thread),
                                        "\",\"pid\":%ld,\"tid\":%d,\"ts\":", (long)all.pid,
                                        loop->tid);
    trace->room_until = CT_EVENTS;
    trace->began = now();
    pthread_mutex_lock(&all.mutex);
    trace->next = all.first;
    all.first = trace;
    put_head(trace, 'M', all.start);
    PUT(",\"name\":\"thread_name\",\"args\":{\"name\":\"loop ");
    put_number((uint64_t)loop->index);
    PUT("\"}}");
    pthread_mutex_unlock(&all.mutex);
    loop->trace = trace;
}

void aco_i_end_trace(loop_t *loop)
{
    if (loop->trace != NULL) {
        publish(loop->trace);
        __atomic_store_n(&loop->trace->has_ended, 1, __ATOMIC_RELEASE);
        loop->trace = NULL;
        pthread_mutex_lock(&all.mutex);
        empty_rings();
        pthread_mutex_unlock(&all.mutex);
    }
}
