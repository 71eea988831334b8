// SPDX-License-Identifier: Apache-2.0
/* Time, text, memory, the running task, misuse, and fork(). */
#ifndef ACO_RUNTIME_SELF_H
#define ACO_RUNTIME_SELF_H

#include "base/types.h"

/* ---- clock.c ---- */

/* The time on CLOCK_MONOTONIC, in ns. */
SHARED int64_t aco_i_clock(void);

/* The time in `ns` from now, without overflow. */
SHARED int64_t aco_i_after(int64_t ns);

/* ---- text.c ---- */

#define ACO_I_NAME_SZ 64                       /* bytes of a task's name that are shown */
#define ACO_I_LABEL_SZ (4 * ACO_I_NAME_SZ + 1) /* bytes of that name, escaped */

/* Text on its way to a descriptor, by write(2) alone, or to a stream. */
typedef struct {
    FILE *stream; /* NULL: to `fd` */
    int fd;
    int error; /* errno of a write that has failed; nothing is written after that */
    size_t sz;
    char bytes[512];
} aco_i_text_t;

HIDDEN void aco_i_put(aco_i_text_t *text, const char *string);
HIDDEN void aco_i_put_some(aco_i_text_t *text, const char *bytes, size_t sz);
HIDDEN void aco_i_put_number(aco_i_text_t *text, uint64_t number, unsigned base);

/* Puts a duration in seconds, with three decimals; 0 for one below, as clocks differ a little. */
HIDDEN void aco_i_put_time(aco_i_text_t *text, int64_t ns);
HIDDEN void aco_i_flush(aco_i_text_t *text);

/* Copies a name of at most `sz` bytes and escapes quotes, backslashes and control characters, so
 * that it can't end its quotes or its line. `to` has room for 4 * sz + 1. Returns its length. */
HIDDEN size_t aco_i_escape(char *to, const char *bytes, size_t sz);

/* ---- memory.c ---- */

/* Copies memory that may be unmapped; returns how many bytes from the start on it has copied. */
HIDDEN size_t aco_i_read_memory(void *to, const void *from, size_t sz);

/* ---- self.c ---- */

/* The functions by which the runtime reports its work. Those about a loop run on its thread. */
typedef struct {
    void (*begin_runtime)(void);
    void (*end_runtime)(const runtime_t *runtime, size_t ct_unjoined_groups);
    void (*begin_loop)(loop_t *loop); /* may set its `trace` and `profile` */
    void (*end_loop)(loop_t *loop);

    /* Only while `trace` is set. */
    void (*look)(loop_t *loop, const aco_task_t *last_before); /* the last ready task before it */
    void (*begin_run)(loop_t *loop, const aco_task_t *task);
    void (*end_run)(loop_t *loop, aco_task_t *task);
    void (*rename)(loop_t *loop, const aco_task_t *task);
    void (*wake)(const loop_t *loop, aco_task_t *task); /* it went into another loop's inbox */

    /* Writes the name that messages give to the running task, of ACO_I_LABEL_SZ bytes at most. */
    void (*label)(char *label, const aco_task_t *task);
} aco_i_observer_t;

extern HIDDEN const aco_i_observer_t *aco_i_observer; /* NULL: there is none */

extern SHARED __thread loop_t *aco_i_loop;           /* that runs on this thread; NULL: none */
extern HIDDEN __thread aco_task_t aco_i_thread_task; /* stands for the thread outside of tasks */

/* In a child: the task that called fork(), and goes on as this thread; else NULL. */
extern HIDDEN __thread aco_task_t *aco_i_forked_task;

/* The running task, or what stands for the thread outside of one. */
static inline aco_task_t *aco_i_self(void)
{
    loop_t *loop = aco_i_loop;
    return loop != NULL && loop->running != NULL ? loop->running : &aco_i_thread_task;
}

/* The stress build moves all frames. */
#ifdef ACO_CONFIG_STRESS
#define IS_STRESS 1
#else
#define IS_STRESS 0
#endif

/* Returns whether any frame of the running task may be elsewhere while it waits. */
static inline int has_moved_frames(const aco_task_t *self)
{
    return self->loop != NULL && (self->shares_stack || IS_STRESS || aco_get_co() != self->co);
}

/* Returns whether that is so for the frame that `ptr` points into. */
static inline int is_moved(const aco_task_t *self, const void *ptr)
{
    const aco_t *co = has_moved_frames(self) ? aco_get_co() : NULL;
    for (; co != NULL && co->share_stack != NULL; co = co->main_co) {
        if ((uintptr_t)ptr - (uintptr_t)co->share_stack->ptr < co->share_stack->sz) {
            return 1;
        }
    }
    return 0;
}

/* Returns whether `ptr` points into a frame of the running task whose stack others use while it
 * waits. */
HIDDEN int aco_i_is_on_shared_stack(const aco_task_t *self, const void *ptr);

/* The exceptions that the calling thread handles; NULL in a program without C++. */
HIDDEN handling_t *aco_i_handling(void);

/* A new id of a task or thread, which no other has or had; its low word is not 0. */
HIDDEN uint64_t aco_i_new_id(void);

/* Ends the process with a message that names the call, the rule and the running task. */
SHARED ACO_NORETURN void aco_i_misuse_of(const char *call, const char *rule);

/* Does so if an argument is NULL. */
#define need(argument, call, rule)                                                                 \
    do {                                                                                           \
        if (aco_unlikely((argument) == NULL)) {                                                    \
            aco_i_misuse_of(call, rule);                                                           \
        }                                                                                          \
    } while (0)

/* Does so if an argument for another task or thread points into a frame that is moved. */
static inline void check_argument(const char *call, const void *arg)
{
    const aco_task_t *self = aco_i_self();
    if (aco_unlikely(has_moved_frames(self)) && aco_i_is_on_shared_stack(self, arg)) {
        aco_i_misuse_of(call,
                        "the argument lies on a stack that others use while the task waits: "
                        "pass memory from the heap");
    }
}

/* ---- fork.c ---- */

/* The number of forks between the first process and this one. */
extern HIDDEN unsigned aco_i_ct_forks;

/* A function by which a part forgets, in a child, what is the parent's. */
typedef struct aco_i_fork_handler_s {
    void (*fn)(void);
    struct aco_i_fork_handler_s *next;
    int is_registered; /* atomic */
} aco_i_fork_handler_t;

/* Registers a handler for children from now on; it runs once in each, however often it is
 * registered. In signal handlers, too. */
HIDDEN void aco_i_at_fork(aco_i_fork_handler_t *handler);

/* Calls the handlers, in a child. Hooks do it for a fork() without libc's handlers. */
SHARED void aco_i_begin_child_of_runtime(void);

/* Makes children call the handlers from now on; 0, or -1 with errno. */
HIDDEN int aco_i_watch_fork(void);

#endif
