// SPDX-License-Identifier: Apache-2.0
/*
 * Writes the trace: when each task ran and waited, for what, and what woke it, in the Trace Event
 * Format, which Perfetto's and Chrome's viewers read. A thread empties the rings of loops into the
 * file.
 */
#include "observe/trace.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define PAUSE 20000000      /* ns between two rounds of the thread */
#define CALIBRATION 5000000 /* ns */
#define LEAST_PRIORITY 19
#define CT_NAMES 4096                                             /* names that are kept */
#define RECORD_SZ 1024                                            /* bytes of a record, at most */
#define MAPPED_SZ (sizeof(trace_t) + CT_EVENTS * sizeof(event_t)) /* bytes of a trace */

static struct {
    pthread_mutex_t mutex; /* protects what follows */
    int fd;
    char *end; /* of the text to be written; NULL: no trace is asked for */
    trace_t *first;
    int64_t start;
    int has_events;
    int has_failed; /* the file can't be written any more */
    pid_t pid;
    char text[1 << 16];
} all = {.mutex = PTHREAD_MUTEX_INITIALIZER};

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
    aco_i_counter.at_from = aco_i_clock();
    aco_i_counter.from = read_counter();
    while (aco_i_clock() - aco_i_counter.at_from < CALIBRATION) {
    }
    int64_t ns = aco_i_clock() - aco_i_counter.at_from;
    aco_i_counter.scale =
        (uint64_t)((double)ns * 4294967296.0 / (double)(read_counter() - aco_i_counter.from));
}

/* ==== Records ================================================================================ */

/* Writes the text. After an error the trace ends there: a gap would spoil it all. */
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

/* Puts the digits of a number so that they end at `end`, two at a time; returns their start. */
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

/* Puts a time in us, with three decimals. */
static void put_time(int64_t ns)
{
    char digits[24], *end = digits + sizeof(digits);
    unsigned rest = (unsigned)(ns % 1000) + 1000;
    char *first = digits_before(end, rest);
    *first = '.'; /* instead of the 1 that makes it four digits */
    first = digits_before(first, (uint64_t)(ns / 1000));
    put_some(first, (size_t)(end - first));
}

/* The bytes of the UTF-8 character at `s`; 0: there is none. */
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

/* Keeps the names that it finds, since looking for one takes long. */
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

/* Names of tasks, as they were at the start, or else as read later, by a system call: the string is
 * the program's, and may be gone. */
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

/* Begins a record, and makes room for the rest of it. */
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

/* Puts one end of an arrow. */
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

/* ==== The file =============================================================================== */

/* Empties all rings, and frees those of loops that have ended. Under the mutex. */
static void empty_rings(void)
{
    aco_i_begin_backtraces();
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
    aco_i_end_backtraces();
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

/* Writes what there is, and the end of the list, which viewers can do without. */
static void finish_trace(void)
{
    if (getpid() != all.pid) { /* a child's end, or no trace is asked for */
        return;
    }
    pthread_mutex_lock(&all.mutex);
    empty_rings();
    PUT("\n]\n");
    flush_file();
    close(all.fd);
    all.fd = open("/dev/null", O_WRONLY | O_CLOEXEC); /* for threads that still run */
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
    atexit(finish_trace);
    aco_i_finish_on_signals(TRACE_FILE, finish_trace);
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
    trace_t *trace = (trace_t *)aco_i_map(MAPPED_SZ, MAP_POPULATE);
    if (trace == NULL) {
        fprintf(stderr, "aco: ACO_TRACE: no memory for it\n");
        return;
    }
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
