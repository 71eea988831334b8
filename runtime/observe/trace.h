// SPDX-License-Identifier: Apache-2.0
/* Rings of events, which trace.c fills and trace_file.c empties. */
#ifndef ACO_RUNTIME_TRACE_H
#define ACO_RUNTIME_TRACE_H

#include "observe/observe.h"

#define CT_EVENTS ((uint64_t)1 << 16) /* in a ring */
#define NAME_SZ 64                    /* bytes of a name that are written */

typedef enum __attribute__((packed)) { RAN, WOKE, LOOKED, NAMED, NAMED_ON } event_kind_t;

#define PART_SZ 40 /* bytes of a name in an event */

typedef struct __attribute__((aligned(64))) {
    union {
        struct {
            int64_t at, duration; /* ns */
            int64_t waited_since; /* RAN: when the wait before it began; 0: there was none */
            const void *name;     /* RAN: a string, or else the entry function */
            int fd, next_fd;      /* of these waits, if for input or output */
        };
        char part[PART_SZ]; /* NAMED: the start of the task's name; NAMED_ON: the rest */
    };
    uint64_t id;
    event_kind_t kind;
    reason_t waited_for, waits_for; /* before, afterwards */
    state_t state;                  /* afterwards */
    char is_function, was_woken;
} event_t;

struct trace_s {
    uint64_t ct_begun;   /* events that the loop's thread writes, or has written */
    uint64_t room_until; /* ct_begun when the ring may be full */
    uint64_t ct_lost;
    uint64_t ct_published;        /* atomic */
    int64_t began;                /* when the loop began what it does now */
    event_t *runs;                /* of the task that runs */
    const aco_task_t *last_ready; /* before it did; NULL: none was */
    char thread[64];              /* the part of each record that names the thread */
    size_t thread_sz;
    int has_ended; /* atomic: the loop writes no more */
    int is_busy;   /* ct_begun is about to change: signal handlers keep off */
    trace_t *next;
    event_t lost;
    __attribute__((aligned(64))) uint64_t ct_read; /* atomic: by whoever writes the file */
    event_t ring[];
};

/* The processor's counter, where the kernel trusts it: ns are (counter - from) * scale / 2^32. */
typedef struct {
    uint64_t from, scale; /* scale 0: it is not used */
    int64_t at_from;
} counter_t;
extern HIDDEN counter_t aco_i_counter;

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
    if (aco_i_counter.scale != 0) {
        unsigned __int128 ns = (unsigned __int128)(read_counter() - aco_i_counter.from) *
                               aco_i_counter.scale;
        return aco_i_counter.at_from + (int64_t)(ns >> 32);
    }
#endif
    return aco_i_clock();
}

/* Lets the file have all events that were begun, which are complete. */
static inline void publish(trace_t *trace)
{
    __atomic_store_n(&trace->ct_published, trace->ct_begun, __ATOMIC_RELEASE);
}

#endif
