// SPDX-License-Identifier: Apache-2.0
/*
 * Random programs of tasks against a model, in a time of their own: clock_gettime() tells it, and
 * where the loop would sleep, it goes on to when that would end. So a program is repeated by its
 * seed, and takes no longer than its instructions.
 *
 * The model knows, of each object, who holds it and who waits for it, in the order in which they
 * came. What is checked:
 *   - a wait ends at the instant at which something ends it, not later: time stands still while a
 * task can run;
 *   - who is first in the queue is first to go on, and nobody goes on who is not; but a mutex that
 * is unlocked is free for others, too, until the first one has been losing for 1 ms;
 *   - each item that was sent is received once, in order, unless its send has failed;
 *   - a deadline and a cancellation end a wait then and there, and a shield keeps them off;
 *   - a loop that would sleep for ever has no task that could go on.
 *
 *     random_tasks [CT_PROGRAMS [SEED]]
 */
// build: -Wl,--wrap=clock_gettime,--wrap=epoll_wait,--wrap=syscall
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
#define MAX_STEPS 24
#define MAX_ITEMS 65536
#define LONG_UNIT 10000 /* ns; 100 of these are the 1 ms after which a lock is given */

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

/* Who waits, in order; or the items of a channel that were sent or are about to be. */
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
    long received[MAX_QUEUE]; /* by the n-th call; 0: none */
    size_t ct_starts;
    int is_closed;
} chans[CT_OBJECTS];

/* What a task of the program knows of itself. */
typedef struct {
    aco_task_t *task;
    long no;              /* from 1 */
    int64_t cancelled_at; /* -1: it is not */
    int64_t deadline;     /* of its wait */
    int ct_shields;
    int is_granted;   /* what it waits in line for is its own, and it has had no turn since */
    int64_t woken_at; /* first, in the line of a mutex; -1: it was not */
    int has_ended, is_joined;
} actor_t;
static actor_t actors[MAX_TASKS];
static long ct_actors, last_item;
static struct {
    long sender;
    int is_selected; /* it is one of several, of which one happens */
} items[MAX_ITEMS];

static long new_item(const actor_t *sender, int is_selected)
{
    CHECK(last_item + 1 < MAX_ITEMS);
    items[++last_item].sender = sender->no;
    items[last_item].is_selected = is_selected;
    return last_item;
}

/* Whether something else has ended the wait of a task, which may have had no turn since. */
static int is_cut(long no)
{
    const actor_t *actor = &actors[no - 1];
    return actor->deadline <= now || (actor->cancelled_at >= 0 && actor->ct_shields == 0);
}

/* Gives something to the first who waits for it; whether there is one. */
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

/* Checks how a wait has ended that began at `since`. Returns whether it was by what it waited for.
 */
static int ended_well(const actor_t *self, int result, int64_t since)
{
    int64_t deadline = aco_deadline();
    int is_cancelled = self->cancelled_at >= 0 && self->ct_shields == 0;
    int64_t cancelled_at = self->cancelled_at > since ? self->cancelled_at : since;
    int64_t cut_at = deadline > since ? deadline : since;
    CHECK(!is_cancelled || now <= cancelled_at);
    CHECK(deadline == INT64_MAX || now <= cut_at);
    if (result >= 0) {
        return 1;
    }
    CHECK(errno == ECANCELED || errno == ETIMEDOUT || errno == EPIPE);
    CHECK(errno != ECANCELED || is_cancelled);
    CHECK(errno != ETIMEDOUT || deadline <= now);
    return 0;
}

/* ==== What a task does ======================================================================= */

static void *acts(void *arg);

static void sleeps(actor_t *self)
{
    int64_t ns = below(200) * unit, until = now + ns, since = now;
    if (ended_well(self, aco_sleep(ns), since)) {
        CHECK(now == until);
    }
}

/* The first in a line whose wait was not ended otherwise, before `end` in it; NULL: none. */
static actor_t *first_of(const line_t *line, long end)
{
    for (size_t i = line->first; i < line->end && line->entries[i] != end; i++) {
        if (!is_cut(line->entries[i])) {
            return &actors[line->entries[i] - 1];
        }
    }
    return NULL;
}

static int takes_mutex(actor_t *self, size_t i)
{
    int64_t since = now;
    line_t *line = &mutexes[i].line;
    int is_free = mutexes[i].holder == 0;
    CHECK(!is_free || first_of(line, 0) == NULL || mutexes[i].freed_at == now);
    mutexes[i].holder = is_free ? self->no : mutexes[i].holder;
    begin_wait(self, is_free ? NULL : line);
    int is_locked = ended_well(self, aco_mutex_lock(&mutexes[i].it), since);
    CHECK(is_locked || (!is_free && !self->is_granted));
    if (!is_free) {
        CHECK(!is_locked || mutexes[i].holder == (self->is_granted ? self->no : 0));
        CHECK(!is_locked || first_of(line, self->no) == NULL);
        leave_line(line, self->no);
    }
    return is_locked;
}

/* Time as sync.c measures it. */
static int64_t moment(int64_t ns)
{
    return (ns >> 10) | 1;
}

/* Who was woken and is to try again tries in this very instant, and waits on if it has lost. */
static void gives_up_mutex(size_t i)
{
    actor_t *first = mutexes[i].it.is_woken ? NULL : first_of(&mutexes[i].line, 0);
    mutexes[i].holder = 0;
    mutexes[i].freed_at = now;
    if (first != NULL && first->woken_at >= 0 && moment(now) - moment(first->woken_at) >= 1000) {
        mutexes[i].holder = first->no;
        first->is_granted = 1;
        ct_given++;
    } else if (first != NULL && first->woken_at < 0) {
        first->woken_at = now;
    }
    CHECK(aco_mutex_unlock(&mutexes[i].it) == 0);
}

static void locks(actor_t *self, int depth)
{
    size_t i = below(CT_OBJECTS);
    if (mutexes[i].holder == self->no) {
        CHECK(aco_mutex_lock(&mutexes[i].it) == -1 && errno == EDEADLK);
        return;
    }
    if (!takes_mutex(self, i)) {
        return;
    }
    mutexes[i].holder = self->no;
    if (below(2) == 0) {
        aco_yield();
    } else if (depth < 3) {
        sleeps(self);
    }
    CHECK(mutexes[i].holder == self->no);
    gives_up_mutex(i);
}

static void acquires(actor_t *self)
{
    size_t i = below(CT_OBJECTS);
    int64_t since = now;
    int is_free = semaphores[i].ct != 0;
    semaphores[i].ct -= (size_t)is_free;
    begin_wait(self, is_free ? NULL : &semaphores[i].line);
    int is_acquired = ended_well(self, aco_semaphore_acquire(&semaphores[i].it), since);
    CHECK(is_acquired == (is_free || self->is_granted));
    if (!is_free) {
        leave_line(&semaphores[i].line, self->no);
    }
}

static void releases(void)
{
    size_t i = below(CT_OBJECTS);
    semaphores[i].ct += !grant(&semaphores[i].line);
    CHECK(aco_semaphore_release(&semaphores[i].it) == 0);
}

static void receives_item(size_t i, long item)
{
    leave_line(&chans[i].items, item);
    chans[i].ct_received++;
}

/* Of two that were sent and received by calls for one channel, the one that was sent first has gone
 * to whoever wanted to receive first. */
static void check_order(void)
{
    for (size_t i = 0; i < CT_OBJECTS; i++) {
        long last = 0;
        for (size_t start = 0; start < chans[i].ct_starts; start++) {
            long item = chans[i].received[start];
            CHECK(item == 0 || items[item].is_selected || item > last);
            last = item == 0 || items[item].is_selected ? last : item;
        }
    }
}

static void sends(actor_t *self)
{
    size_t i = below(CT_OBJECTS);
    int64_t since = now;
    long item = new_item(self, 0);
    begin_wait(self, NULL);
    join_line(&chans[i].items, item);
    int result = aco_chan_send(chans[i].it, &item);
    if (ended_well(self, result, since)) {
        chans[i].ct_sent++;
        return;
    }
    CHECK(errno != EPIPE || chans[i].is_closed);
    leave_line(&chans[i].items, item); /* it was not received */
}

static void receives(actor_t *self)
{
    size_t i = below(CT_OBJECTS);
    int64_t since = now;
    long item = 0;
    size_t start = chans[i].ct_starts++;
    CHECK(start < MAX_QUEUE);
    int result = aco_chan_recv(chans[i].it, &item);
    if (ended_well(self, result, since)) {
        if (result == 1) {
            chans[i].received[start] = item;
            receives_item(i, item);
        } else {
            CHECK(chans[i].is_closed);
        }
    }
}

static void selects(actor_t *self)
{
    aco_case_t cases[2 * CT_OBJECTS];
    long sent[2 * CT_OBJECTS], received[2 * CT_OBJECTS];
    size_t ct = 1 + below(2 * CT_OBJECTS);
    int64_t since = now;
    for (size_t i = 0; i < ct; i++) {
        int is_send = below(2) == 0;
        sent[i] = is_send ? new_item(self, 1) : 0;
        cases[i] = (aco_case_t){.chan = chans[i % CT_OBJECTS].it};
        cases[i].send = is_send ? &sent[i] : NULL;
        cases[i].recv = is_send ? NULL : &received[i];
        if (is_send) {
            join_line(&chans[i % CT_OBJECTS].items, sent[i]);
        }
    }
    int k = aco_select(cases, ct, 1);
    for (size_t i = 0; i < ct; i++) { /* the others were not sent */
        if (sent[i] != 0 && ((int)i != k || cases[i].result < 0)) {
            leave_line(&chans[i % CT_OBJECTS].items, sent[i]);
        }
    }
    if (!ended_well(self, k, since)) {
        return;
    }
    size_t i = (size_t)k % CT_OBJECTS;
    if (sent[k] != 0) {
        CHECK(cases[k].result == 0 || (chans[i].is_closed && cases[k].error == EPIPE));
        chans[i].ct_sent += cases[k].result == 0;
    } else if (cases[k].result == 1) {
        receives_item(i, received[k]);
    } else {
        CHECK(cases[k].result == 0 && chans[i].is_closed);
    }
}

static void spawns(actor_t *self)
{
    actor_t *actor = new_actor();
    if (actor == NULL) {
        return;
    }
    aco_task_options_t options = {.shares_stack = below(3) == 0};
    CHECK(aco_go_with(&options, acts, actor, &actor->task) == 0);
    (void)self;
}

static void joins_one(actor_t *self)
{
    actor_t *actor = &actors[below((unsigned)ct_actors)];
    if (actor == self || actor->is_joined || actor->task == NULL) {
        return;
    }
    void *result = NULL;
    int64_t since = now;
    actor->is_joined = 1;
    if (ended_well(self, aco_join(actor->task, &result), since)) {
        CHECK(actor->has_ended && result == actor);
    } else {
        actor->is_joined = 0;
    }
}

static void cancels_one(void)
{
    actor_t *actor = &actors[below((unsigned)ct_actors)];
    if (actor->task != NULL && !actor->is_joined && !actor->has_ended && below(4) == 0) {
        if (actor->cancelled_at < 0) {
            actor->cancelled_at = now;
        }
        aco_task_cancel(actor->task);
    }
}

static void act(actor_t *self, int depth);

static void acts_within(actor_t *self, int depth)
{
    aco_within(below(300) * unit)
    {
        for (unsigned i = below(4); i != 0; i--) {
            act(self, depth + 1);
        }
    }
}

static void acts_shielded(actor_t *self, int depth)
{
    aco_shielded
    {
        self->ct_shields++;
        aco_within(below(300) * unit)
        {
            act(self, depth + 1);
        }
        self->ct_shields--;
    }
}

static void act(actor_t *self, int depth)
{
    switch (below(depth < 3 ? 13 : 10)) {
    case 0:
        aco_yield();
        break;
    case 1:
        sleeps(self);
        break;
    case 2:
        locks(self, depth);
        break;
    case 3:
        acquires(self);
        break;
    case 4:
        releases();
        break;
    case 5:
        sends(self);
        break;
    case 6:
        receives(self);
        break;
    case 7:
        selects(self);
        break;
    case 8:
        spawns(self);
        break;
    case 9:
        cancels_one();
        break;
    case 10:
        acts_within(self, depth);
        break;
    case 11:
        acts_shielded(self, depth);
        break;
    default:
        joins_one(self);
        break;
    }
}

static void *acts(void *arg)
{
    actor_t *self = (actor_t *)arg;
    aco_within(10000 * unit)
    { /* so that each program ends */
        for (unsigned i = below(MAX_STEPS); i != 0; i--) {
            act(self, 0);
        }
    }
    self->has_ended = 1;
    return self;
}

/* ==== A program ============================================================================== */

static void *runs_a_program(void *arg)
{
    for (unsigned i = 1 + below(6); i != 0; i--) {
        spawns(NULL);
    }
    aco_sleep(below(1000) * unit);
    chans[0].is_closed = below(2) == 0;
    if (chans[0].is_closed) {
        CHECK(aco_chan_close(chans[0].it) == 0);
    }
    for (long i = 0; i < ct_actors; i++) { /* more are made meanwhile */
        while (!actors[i].has_ended) {
            aco_sleep(100 * unit);
        }
        if (!actors[i].is_joined) {
            actors[i].is_joined = 1;
            CHECK(aco_join(actors[i].task, NULL) == 0);
        }
    }
    return arg;
}

static void run_program(void)
{
    memset(mutexes, 0, sizeof(mutexes));
    memset(semaphores, 0, sizeof(semaphores));
    memset(chans, 0, sizeof(chans));
    ct_actors = last_item = 0;
    random_state = seed * UINT64_C(0x9e3779b97f4a7c15);
    unit = below(2) == 0 ? 1 : LONG_UNIT;
    size_t capacities[CT_OBJECTS];
    for (size_t i = 0; i < CT_OBJECTS; i++) {
        aco_semaphore_init(&semaphores[i].it, semaphores[i].ct = below(3));
        capacities[i] = below(4);
        chans[i].it = aco_chan_new(sizeof(long), capacities[i]);
    }
    CHECK(aco_run(NULL, runs_a_program, NULL, NULL) == 0);
    check_order();
    for (size_t i = 0; i < CT_OBJECTS; i++) {
        CHECK(mutexes[i].holder == 0 && semaphores[i].line.first == semaphores[i].line.end);
        size_t ct_left = chans[i].items.end - chans[i].items.first;
        CHECK(chans[i].ct_sent - chans[i].ct_received == ct_left && ct_left <= capacities[i]);
        aco_chan_free(chans[i].it);
    }
}

int main(int argc, char **argv)
{
    unsigned long ct = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000;
    seed = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    for (program_no = 1; program_no <= ct; program_no++, seed++) {
        now = 1000000;
        run_program();
    }
    CHECK(ct < 10000 || ct_given > 0);
    printf("%lu programs\n", ct);
    return 0;
}
