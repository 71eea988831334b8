// SPDX-License-Identifier: Apache-2.0
/* The time, and the model, of the random programs of random_tasks.c. */
#ifndef ACO_TESTS_RANDOM_MODEL_H
#define ACO_TESTS_RANDOM_MODEL_H

#include "aco_runtime.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MAX_TASKS 24
#define CT_OBJECTS 2 /* of each kind */
#define MAX_QUEUE 4096
#define MAX_ITEMS 65536
#define MAX_GROUPS 24

static unsigned long seed, program_no;
static int64_t now;
static int64_t unit; /* of all times of a program, in ns */
static long ct_given;

static void fail(const char *what, int line)
{
    int error = errno;
    fprintf(stderr,
            "random_tasks: errno %d, line %d: %s, at %lld ns of program %lu; again: random_tasks 1 "
            "%lu\n",
            error, line, what, (long long)now, program_no, seed);
    aco_print_tasks(stderr);
    exit(1);
}

#define CHECK(EX) ((EX) ? (void)0 : fail(#EX, __LINE__))

/* ==== Time =================================================================================== */

int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_epoll_wait(int epoll, struct epoll_event *events, int ct, int timeout);
long __wrap_syscall(long number, ...);
long __real_syscall(long number, ...);

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    (void)clock;
    *t = (struct timespec){(time_t)(now / 1000000000), (long)(now % 1000000000)};
    return 0;
}

int __wrap_epoll_wait(int epoll, struct epoll_event *events, int ct, int timeout)
{
    (void)epoll;
    (void)events;
    (void)ct;
    if (timeout < 0) {
        fail("every task waits for what none does", __LINE__);
    }
    now += timeout * INT64_C(1000000);
    return 0;
}

long __wrap_syscall(long number, ...)
{
    if (number != SYS_epoll_pwait2) {
        errno = ENOSYS;
        return -1;
    }
    va_list args;
    va_start(args, number);
    (void)va_arg(args, int);
    (void)va_arg(args, struct epoll_event *);
    (void)va_arg(args, int);
    const long long *t = va_arg(args, const long long *);
    va_end(args);
    now += t[0] * 1000000000 + t[1];
    return 0;
}

/* ==== The model ============================================================================== */

static uint64_t random_state;

static unsigned below(unsigned ct)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((random_state >> 33) % ct);
}

/* The tasks that wait, in order; or the items of a channel that were sent or are about to be. */
typedef struct {
    long entries[MAX_QUEUE];
    size_t first, end;
} line_t;

static void join_line(line_t *line, long entry)
{
    CHECK(line->end < MAX_QUEUE);
    line->entries[line->end++] = entry;
}

static void leave_line(line_t *line, long entry)
{
    size_t i = line->first;
    while (i < line->end && line->entries[i] != entry) {
        i++;
    }
    CHECK(i < line->end);
    memmove(&line->entries[i], &line->entries[i + 1],
            (line->end - i - 1) * sizeof(line->entries[0]));
    line->end--;
}

static struct {
    aco_mutex_t it;
    long holder;      /* 0: none */
    int64_t freed_at; /* when it last became free */
    line_t line;
} mutexes[CT_OBJECTS];

static struct {
    aco_semaphore_t it;
    size_t ct;
    line_t line;
} semaphores[CT_OBJECTS];

static struct {
    aco_chan_t *it;
    line_t items;
    size_t ct_sent, ct_received;
    long received[MAX_QUEUE]; /* by the n-th call to receive; 0: none */
    size_t ct_starts;
    int is_closed;
} chans[CT_OBJECTS];

typedef struct group_s group_t;

/* A task of the program. */
typedef struct {
    aco_task_t *task;
    long no;              /* from 1 */
    int64_t cancelled_at; /* -1: never */
    int ct_hopeless;      /* waits in a row that failed at once, as it was cancelled */
    int64_t deadline;     /* of its wait */
    int ct_shields;
    int is_granted;   /* it got what it waits in line for, and has had no turn since */
    int64_t woken_at; /* for the first time, in the line of a mutex; -1: never */
    int has_ended, is_joined;
    group_t *group; /* to which it belongs, or NULL */
} actor_t;
static actor_t actors[MAX_TASKS];
static long ct_actors, last_item;

struct group_s {
    aco_group_t *it; /* NULL: it was joined */
    actor_t *maker;
    int64_t deadline, last_end;
    int is_cancelled;
    int is_shielded; /* made in a shield that the maker has not left */
    int is_waited_for;
};
static group_t groups[MAX_GROUPS];
static size_t ct_groups;

static struct {
    long sender;
    int is_selected; /* one of several cases, of which one happens */
} items[MAX_ITEMS];

static long new_item(const actor_t *sender, int is_selected)
{
    CHECK(last_item + 1 < MAX_ITEMS);
    items[++last_item].sender = sender->no;
    items[last_item].is_selected = is_selected;
    return last_item;
}

/* Whether something else has ended the wait of a task, which may have had no turn since. */
#define REST 1000000 /* ns */

static int is_cut(long no)
{
    const actor_t *actor = &actors[no - 1];
    return actor->deadline <= now || (actor->cancelled_at >= 0 && actor->ct_shields == 0);
}

/* Gives an object to the first task that waits for it. Returns whether there is one. */
static int grant(const line_t *line)
{
    for (size_t i = line->first; i < line->end; i++) {
        actor_t *actor = &actors[line->entries[i] - 1];
        if (!actor->is_granted && !is_cut(actor->no)) {
            return actor->is_granted = 1;
        }
    }
    return 0;
}

static void begin_wait(actor_t *self, line_t *line)
{
    self->deadline = aco_deadline();
    self->is_granted = 0;
    self->woken_at = -1;
    if (line != NULL) {
        join_line(line, self->no);
    }
}

static actor_t *new_actor(void)
{
    if (ct_actors == MAX_TASKS) {
        return NULL;
    }
    actor_t *actor = &actors[ct_actors++];
    *actor = (actor_t){.no = ct_actors, .cancelled_at = -1};
    return actor;
}

/* Whether a group, or one that its maker is in, is cancelled because the deadline of its joiner has
 * passed. At that very instant, it may be only about to be. */
static int is_out_of_time(const group_t *group)
{
    while (group != NULL && (!group->is_waited_for || group->deadline > now)) {
        group = group->maker->group;
    }
    return group != NULL;
}

static void cancel_group(group_t *group);

static void cancel(actor_t *actor)
{
    if (actor->cancelled_at < 0) {
        actor->cancelled_at = now;
    }
    for (size_t i = 0; i < ct_groups; i++) {
        if (groups[i].maker == actor && groups[i].it != NULL && !groups[i].is_shielded) {
            cancel_group(&groups[i]);
        }
    }
}

static void cancel_group(group_t *group)
{
    group->is_cancelled = 1;
    for (long i = 0; i < ct_actors; i++) {
        if (actors[i].group == group && !actors[i].has_ended) {
            cancel(&actors[i]);
        }
    }
}

/* Checks the end of a wait that began at `since`. Returns whether its event ended it. One that is
 * hopeless as it begins fails at once, but not the third one in a row: that takes REST. */
static int ended_well(actor_t *self, int result, int64_t since)
{
    int64_t deadline = aco_deadline();
    int is_cancelled = self->cancelled_at >= 0 && self->ct_shields == 0;
    int64_t cancelled_at = self->cancelled_at > since ? self->cancelled_at : since;
    int64_t cut_at = deadline > since ? deadline : since;
    int64_t hopeless_at = is_cancelled && self->cancelled_at < deadline ? self->cancelled_at
                                                                        : deadline;
    int has_rested = result < 0 && hopeless_at <= since && now == since + REST;
    CHECK(!is_cancelled || now <= cancelled_at || has_rested);
    CHECK(deadline == INT64_MAX || now <= cut_at || has_rested);
    int has_failed = result < 0 && errno != EPIPE && is_cancelled && self->cancelled_at < since;
    self->ct_hopeless = has_failed && !has_rested ? self->ct_hopeless + 1 : 0;
    CHECK(self->ct_hopeless < 3);
    if (result >= 0) {
        return 1;
    }
    CHECK(errno == ECANCELED || errno == ETIMEDOUT || errno == EPIPE);
    CHECK(errno != ECANCELED || is_cancelled ||
          (is_out_of_time(self->group) && self->ct_shields == 0));
    CHECK(errno != ETIMEDOUT || deadline <= now);
    return 0;
}

#endif
