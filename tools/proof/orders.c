// SPDX-License-Identifier: Apache-2.0
/*
 * Checks programs by execution graphs, as RC11 defines them: events of threads, the write that each
 * read reads from, and an order of the writes to each place. "hb" is happens-before.
 *
 * An execution is built event by event. Each next event is chosen among those of all threads, with
 * each write that a read may read from, also a stale one, and each place that a write may have
 * among the others. A graph that was reached before, by events in another order, is not followed
 * again: what is left of the threads depends on the graph alone. Data races are refused, so this
 * holds for plain accesses, too. No event reads from one that comes later (RC11 excludes that, by
 * a rule which is stricter than C11).
 */
#include "orders.h"

#include "aco.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_EVENTS 192
#define MOST_PLACES 64
#define MOST_CHOICES 128 /* for one event */
#define WORDS (MOST_EVENTS / 64)
#define NO_THREAD 255 /* of the event that stands for the first value of a place */
#define STACK_SZ ((size_t)64 << 10)

typedef struct {
    uint64_t words[WORDS];
} set_t;

typedef struct {
    unsigned char of[MOST_THREADS];
} clock_of_t;

typedef enum { LOAD, STORE, UPDATE, FENCE, START, END, JOIN } kind_t;
typedef enum { EXCHANGE, ADD, SUB, AND, OR, XOR, NAND, COMPARE, TAKE_0, TAKE_SET } update_t;

/* The next operation of a thread. */
typedef struct {
    kind_t kind;
    update_t update;
    int order, order_of_failure;
    volatile void *at;
    unsigned sz;
    uint64_t value, expected;
    int may_give_up;
    const void *pc;
} operation_t;

typedef struct {
    unsigned char thread, idx;
    int is_read, is_write, order, place, from; /* -1: none */
    uint64_t read, written;
    clock_of_t clock, message; /* what happened before it; what a reader acquires */
    set_t before;              /* by hb */
    set_t readers;
    set_t elsewhere; /* earlier ones of its thread at other places */
    set_t relayed;   /* `elsewhere` of all that are before it */
    set_t fixed;     /* those before it by the part of scb that does not change */
    kind_t kind;
    const void *pc;
} event_t;

typedef struct {
    volatile void *at;
    unsigned sz;
    int writes[MOST_EVENTS], ct; /* in their order */
    uint64_t last;               /* as memory has it */
} place_t;

typedef struct {
    aco_t *co;
    void (*fn)(void);
    operation_t next;
    uint64_t result;
    int has_ended, ct;
    int last_read, passed; /* events, or -1 */
    clock_of_t clock, acquired, released;
} thread_t;

/* A possible next event. */
typedef struct {
    unsigned char thread;
    short from, place_among;
    char succeeds, gives_up;
} choice_t;

typedef struct {
    choice_t choices[MOST_CHOICES];
    int ct, next;
} level_t;

/* The accesses to a byte, by the count of events of each thread at that time. */
typedef struct {
    unsigned execution;
    unsigned char reads[MOST_THREADS], writes[MOST_THREADS];
    unsigned char atomic_reads[MOST_THREADS], atomic_writes[MOST_THREADS];
    char is_freed;
} shadow_t;

static event_t events[MOST_EVENTS];
static int ct_events;
static place_t places[MOST_PLACES];
static int ct_places;
static thread_t threads[MOST_THREADS];
static int ct_threads, current; /* -1: no thread runs */
static level_t levels[MOST_EVENTS];
static aco_t *main_co;
static const program_t *program;
static const char *failure;
static unsigned char *watched;
static size_t watched_sz;
static shadow_t *shadows;
static unsigned execution;
static struct {
    uint64_t *hashes;
    size_t sz;
} seen;
size_t ct_states;

/* ==== Sets =================================================================================== */

static inline void add(set_t *set, int i)
{
    set->words[i / 64] |= UINT64_C(1) << i % 64;
}

static inline int has(const set_t *set, int i)
{
    return (int)(set->words[i / 64] >> i % 64 & 1);
}

static inline void unite(set_t *set, const set_t *with)
{
    for (int i = 0; i < WORDS; i++) {
        set->words[i] |= with->words[i];
    }
}

#define EACH(i, set)                                                                               \
    for (int i##_word = 0; i##_word < WORDS; i##_word++)                                           \
        for (uint64_t i##_left = (set)->words[i##_word]; i##_left != 0; i##_left &= i##_left - 1)  \
            for (int i = i##_word * 64 + __builtin_ctzll(i##_left), i##_once = 1; i##_once;        \
                 i##_once = 0)

static void join_clock(clock_of_t *clock, const clock_of_t *with)
{
    for (int i = 0; i < MOST_THREADS; i++) {
        clock->of[i] = clock->of[i] < with->of[i] ? with->of[i] : clock->of[i];
    }
}

static int acquires(int order)
{
    return order == __ATOMIC_ACQUIRE || order == __ATOMIC_CONSUME || order == __ATOMIC_ACQ_REL ||
           order == __ATOMIC_SEQ_CST;
}

static int releases(int order)
{
    return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

/* ==== Failures =============================================================================== */

static void print_execution(void)
{
    static const char *const kinds[] = {"load", "store", "update", "fence", "start", "end", "join"};
    static const char *const orders[] = {"relaxed", "consume", "acquire",
                                         "release", "acq_rel", "seq_cst"};
    for (int i = 0; i < ct_events; i++) {
        const event_t *e = &events[i];
        if (e->thread == NO_THREAD) {
            continue;
        }
        printf("  thread %d: %s", e->thread, kinds[e->kind]);
        if (e->place >= 0) {
            const unsigned char *at = (const unsigned char *)places[e->place].at;
            printf(" %s at %p", orders[e->order], (const void *)at);
        }
        if (e->is_read) {
            const event_t *from = &events[e->from];
            printf(", reads %lld%s", (long long)e->read,
                   from->thread != NO_THREAD && from->thread != e->thread ? " of another" : "");
        }
        if (e->is_write) {
            printf(", writes %lld", (long long)e->written);
        }
        printf(" [%p]\n", e->pc);
    }
}

static void fail_as(const char *rule)
{
    if (failure == NULL) {
        failure = rule;
        printf("%s: %s\n", program->name, rule);
        print_execution();
    }
}

void refuse(const char *rule)
{
    fail_as(rule);
    aco_yield();
    abort();
}

/* ==== Plain accesses ========================================================================= */

static void check_past(const unsigned char *past, const char *rule)
{
    for (int i = 0; i < ct_threads; i++) {
        if (i != current && past[i] > threads[current].clock.of[i]) {
            fail_as(rule);
        }
    }
}

/* Notes an access to memory. A plain one is before the next event of its thread. */
static void note_access(const volatile void *at, size_t sz, int is_write, int is_atomic)
{
    size_t offset = (size_t)((uintptr_t)at - (uintptr_t)watched);
    if (current < 0 || offset >= watched_sz) {
        return;
    }
    for (size_t i = offset; i < offset + sz && i < watched_sz; i++) {
        shadow_t *shadow = &shadows[i];
        if (shadow->execution != execution) {
            *shadow = (shadow_t){.execution = execution};
        }
        if (shadow->is_freed) {
            fail_as("memory is used after it was freed");
        }
        check_past(shadow->writes, "a data race with a plain write");
        if (is_write) {
            check_past(shadow->reads, "a data race of a write with a plain read");
        }
        if (!is_atomic) {
            check_past(shadow->atomic_writes, "a data race of a plain access with an atomic write");
        }
        if (!is_atomic && is_write) {
            check_past(shadow->atomic_reads, "a data race of a plain write with an atomic read");
        }
        unsigned char *note = is_atomic  ? is_write ? shadow->atomic_writes : shadow->atomic_reads
                              : is_write ? shadow->writes
                                         : shadow->reads;
        note[current] = (unsigned char)(threads[current].ct + !is_atomic);
    }
    if (failure != NULL && aco_get_co() != main_co) {
        aco_yield();
    }
}

void free_memory(const void *memory, size_t sz)
{
    note_access(memory, sz, 1, 0);
    for (size_t i = 0; i < sz; i++) {
        shadows[(size_t)((uintptr_t)memory - (uintptr_t)watched) + i].is_freed = 1;
    }
}

/* ==== Places ================================================================================= */

static uint64_t value_at(const volatile void *at, unsigned sz)
{
    return sz == 1   ? *(const volatile uint8_t *)at
           : sz == 2 ? *(const volatile uint16_t *)at
           : sz == 4 ? *(const volatile uint32_t *)at
                     : *(const volatile uint64_t *)at;
}

static void set_value(volatile void *at, unsigned sz, uint64_t value)
{
    switch (sz) {
    case 1:
        *(volatile uint8_t *)at = (uint8_t)value;
        break;
    case 2:
        *(volatile uint16_t *)at = (uint16_t)value;
        break;
    case 4:
        *(volatile uint32_t *)at = (uint32_t)value;
        break;
    default:
        *(volatile uint64_t *)at = value;
    }
}

static int new_event(void)
{
    if (ct_events == MOST_EVENTS) {
        fail_as("the execution is too long");
        ct_events--;
    }
    event_t *e = &events[ct_events];
    memset(e, 0, sizeof(*e));
    e->place = e->from = -1;
    return ct_events++;
}

/* Returns the place at an address, made with its present value when it is first used. */
static int place_at(volatile void *at, unsigned sz)
{
    for (int i = 0; i < ct_places; i++) {
        if (places[i].at == at) {
            return i;
        }
    }
    if (ct_places == MOST_PLACES) {
        fail_as("there are too many places");
        return 0;
    }
    int i = new_event();
    places[ct_places] = (place_t){.at = at, .sz = sz, .ct = 1, .last = value_at(at, sz)};
    places[ct_places].writes[0] = i;
    events[i].thread = NO_THREAD;
    events[i].place = ct_places;
    events[i].is_write = 1;
    events[i].written = places[ct_places].last;
    return ct_places++;
}

static int position(const place_t *place, int write)
{
    int i = 0;
    while (place->writes[i] != write) {
        i++;
    }
    return i;
}

static int is_before(const event_t *e, const clock_of_t *clock)
{
    return e->thread == NO_THREAD || e->idx <= clock->of[e->thread];
}

/* Returns the position of the first write that a thread may still read. */
static int first_visible(const place_t *place, int number, const clock_of_t *clock)
{
    int first = 0;
    for (int i = 0; i < ct_events; i++) {
        const event_t *e = &events[i];
        if (e->place == number && is_before(e, clock)) {
            int at = position(place, e->is_write ? i : e->from);
            first = first < at ? at : first;
        }
    }
    return first;
}

/* Whether an update reads from a write: then none may come between the two. */
static int is_updated(const event_t *e)
{
    EACH(reader, &e->readers)
    {
        if (events[reader].is_write) {
            return 1;
        }
    }
    return 0;
}

/* ==== Events ================================================================================= */

static uint64_t updated(const operation_t *op, uint64_t read)
{
    uint64_t sum = op->update == ADD    ? read + op->value
                   : op->update == SUB  ? read - op->value
                   : op->update == AND  ? (read & op->value)
                   : op->update == OR   ? (read | op->value)
                   : op->update == XOR  ? (read ^ op->value)
                   : op->update == NAND ? ~(read & op->value)
                                        : op->value;
    return op->sz == 8 ? sum : sum & ((UINT64_C(1) << 8 * op->sz) - 1);
}

/* Sets what comes before an event by hb, and by the part of scb that later events don't change. */
static void relate(int number)
{
    event_t *e = &events[number];
    for (int i = 0; i < number; i++) {
        const event_t *other = &events[i];
        if (other->thread == NO_THREAD || !is_before(other, &e->clock)) {
            continue;
        }
        add(&e->before, i);
        unite(&e->relayed, &other->elsewhere);
        int is_same_place = other->place == e->place && e->place >= 0;
        if (other->thread == e->thread && !is_same_place) {
            add(&e->elsewhere, i);
        }
        if (other->thread == e->thread || is_same_place) {
            add(&e->fixed, i);
        }
    }
    EACH(i, &e->elsewhere)
    {
        unite(&e->fixed, &events[i].relayed);
    }
}

static void read_from(event_t *e, int number, int from, thread_t *thread)
{
    e->is_read = 1;
    e->from = from;
    e->read = events[from].written;
    add(&events[from].readers, number);
    join_clock(acquires(e->order) ? &thread->clock : &thread->acquired, &events[from].message);
}

static void write_to(event_t *e, int number, int at)
{
    place_t *place = &places[e->place];
    memmove(&place->writes[at + 1], &place->writes[at],
            (size_t)(place->ct - at) * sizeof(place->writes[0]));
    place->writes[at] = number;
    place->ct++;
    e->is_write = 1;
}

static void pass_fence(thread_t *thread, int order)
{
    if (acquires(order)) {
        join_clock(&thread->clock, &thread->acquired);
    }
    if (releases(order)) {
        thread->released = thread->clock;
    }
}

/* Adds an event to the graph, and returns its number. */
static int extend(const choice_t *choice)
{
    thread_t *thread = &threads[choice->thread];
    const operation_t *op = &thread->next;
    int place = op->at != NULL && !choice->gives_up ? place_at(op->at, op->sz) : -1;
    int number = new_event();
    event_t *e = &events[number];
    e->thread = choice->thread;
    e->idx = (unsigned char)++thread->ct;
    thread->clock.of[e->thread] = e->idx;
    e->place = place;
    e->kind = op->kind;
    e->order = choice->succeeds ? op->order : op->order_of_failure;
    e->pc = op->pc;
    if (op->kind == FENCE) {
        pass_fence(thread, op->order);
    } else if (op->kind == JOIN) {
        join_clock(&thread->clock, &threads[op->value].clock);
    }
    if (choice->from >= 0) {
        read_from(e, number, choice->from, thread);
    }
    e->clock = thread->clock;
    if (choice->place_among >= 0 && place >= 0) {
        write_to(e, number, choice->place_among);
        e->written = updated(op, e->read);
        e->message = releases(op->order) ? e->clock : thread->released;
        if (choice->from >= 0) {
            join_clock(&e->message, &events[choice->from].message);
        }
    }
    relate(number);
    return number;
}

/* Takes the last event from the graph again. */
static void retract(int number, const thread_t *before)
{
    event_t *e = &events[number];
    if (e->from >= 0) {
        events[e->from].readers.words[number / 64] &= ~(UINT64_C(1) << number % 64);
    }
    if (e->is_write) {
        place_t *place = &places[e->place];
        int at = position(place, number);
        place->ct--;
        memmove(&place->writes[at], &place->writes[at + 1],
                (size_t)(place->ct - at) * sizeof(place->writes[0]));
    }
    threads[e->thread] = *before;
    ct_events--;
}

/* ==== Sequential consistency ================================================================= */

/* For each write, those before it by the orders of writes and of reads before writes. */
static void order_writes(set_t *earlier)
{
    for (int i = 0; i < ct_places; i++) {
        set_t past = {{0}};
        for (int j = 0; j < places[i].ct; j++) {
            int write = places[i].writes[j];
            earlier[write] = past;
            earlier[write].words[write / 64] &= ~(UINT64_C(1) << write % 64);
            if (events[write].thread != NO_THREAD) {
                add(&past, write);
            }
            unite(&past, &events[write].readers);
        }
    }
}

/* Adds the seq_cst events that precede `x` by psc_base, if an scb step follows `x`. */
static void add_left(set_t *left, int x, const set_t *accesses, const set_t *fences)
{
    if (has(accesses, x) || has(fences, x)) {
        add(left, x);
    }
    for (int i = 0; i < WORDS; i++) {
        left->words[i] |= events[x].before.words[i] & fences->words[i];
    }
}

/* The seq_cst events that must precede event `number`: psc_base, and psc_F for fences. */
static set_t preceding(int number, const set_t *earlier, const set_t *accesses, const set_t *fences)
{
    set_t left = {{0}}, ends = {{0}}, steps = {{0}};
    add(&ends, number);
    if (has(fences, number)) {
        unite(&ends, &events[number].before);
    }
    EACH(end, &ends)
    {
        unite(&steps, &events[end].fixed);
        unite(&steps, &earlier[end]);
    }
    EACH(step, &steps)
    {
        add_left(&left, step, accesses, fences);
    }
    if (!has(fences, number)) {
        return left;
    }
    EACH(end, &ends)
    {
        const event_t *e = &events[end];
        set_t eco = e->is_write ? earlier[end] : (set_t){{0}};
        if (e->from >= 0) {
            unite(&eco, &earlier[e->from]);
            add(&eco, e->from);
        }
        for (int i = 0; i < WORDS; i++) {
            left.words[i] |= e->before.words[i] & fences->words[i];
        }
        EACH(x, &eco)
        {
            for (int i = 0; i < WORDS; i++) {
                left.words[i] |= events[x].before.words[i] & fences->words[i];
            }
        }
    }
    left.words[number / 64] &= ~(UINT64_C(1) << number % 64);
    return left;
}

/* Whether some order of all seq_cst events agrees with psc: takes those without predecessors one
 * by one. */
static int has_order(const set_t *all, const set_t *left)
{
    set_t rest = *all;
    for (int is_taken = 1; is_taken;) {
        is_taken = 0;
        EACH(i, &rest)
        {
            int is_free = 1;
            for (int j = 0; j < WORDS; j++) {
                is_free &= (left[i].words[j] & rest.words[j]) == 0;
            }
            if (is_free) {
                rest.words[i / 64] &= ~(UINT64_C(1) << i % 64);
                is_taken = 1;
            }
        }
    }
    uint64_t is_left = 0;
    for (int i = 0; i < WORDS; i++) {
        is_left |= rest.words[i];
    }
    return is_left == 0;
}

static int is_sequential(void)
{
    static set_t earlier[MOST_EVENTS], left[MOST_EVENTS];
    set_t accesses = {{0}}, fences = {{0}}, all;
    int is_relevant = events[ct_events - 1].order == __ATOMIC_SEQ_CST;
    for (int i = 0; i < ct_events; i++) {
        const event_t *e = &events[i];
        if (e->order == __ATOMIC_SEQ_CST) {
            add(e->kind == FENCE ? &fences : &accesses, i);
            is_relevant |= e->kind == FENCE;
        }
        earlier[i] = (set_t){{0}};
    }
    if (!is_relevant) {
        return 1;
    }
    order_writes(earlier);
    all = accesses;
    unite(&all, &fences);
    EACH(i, &all)
    {
        left[i] = preceding(i, earlier, &accesses, &fences);
    }
    return has_order(&all, left);
}

/* ==== States that were seen ================================================================== */

static uint64_t scatter(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    return scatter(scatter(a) + 3 * b);
}

static uint64_t identity(int number)
{
    const event_t *e = &events[number];
    return e->thread == NO_THREAD ? 1 : (uint64_t)e->thread << 8 | (uint64_t)e->idx << 16;
}

/* A hash of the graph that does not depend on the order in which its events were added. */
static uint64_t hash_of_graph(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < ct_events; i++) {
        const event_t *e = &events[i];
        if (e->thread != NO_THREAD) {
            uint64_t hash = mix(identity(i), (uint64_t)(uintptr_t)e->pc);
            hash = mix(hash, e->from < 0 ? e->read : mix(identity(e->from), 3));
            sum += mix(hash, (uint64_t)e->is_write);
        }
    }
    for (int i = 0; i < ct_places; i++) {
        uint64_t at = (uint64_t)(uintptr_t)places[i].at;
        for (int j = 1; j < places[i].ct; j++) {
            sum += mix(mix(at, (uint64_t)j), identity(places[i].writes[j]));
        }
    }
    return sum | 1;
}

static void enter_hash(uint64_t *hashes, size_t sz, uint64_t hash)
{
    size_t i = (size_t)(hash >> 1) % sz;
    while (hashes[i] != 0) {
        i = (i + 1) % sz;
    }
    hashes[i] = hash;
}

/* Returns whether a state is new, and keeps it. */
static int is_new(uint64_t hash)
{
    size_t i = (size_t)(hash >> 1) % seen.sz;
    for (; seen.hashes[i] != 0; i = (i + 1) % seen.sz) {
        if (seen.hashes[i] == hash) {
            return 0;
        }
    }
    seen.hashes[i] = hash;
    if (++ct_states > seen.sz / 2) {
        uint64_t *hashes = (uint64_t *)calloc(2 * seen.sz, sizeof(*hashes));
        for (i = 0; i < seen.sz; i++) {
            if (seen.hashes[i] != 0) {
                enter_hash(hashes, 2 * seen.sz, seen.hashes[i]);
            }
        }
        free(seen.hashes);
        seen.hashes = hashes;
        seen.sz *= 2;
    }
    return 1;
}

/* ==== Choices ================================================================================ */

/* Counts possible events in any case, but keeps only those that lead to a new state. */
static void consider(level_t *level, choice_t choice, int *ct_possible)
{
    thread_t before = threads[choice.thread];
    int number = extend(&choice);
    if (failure == NULL && is_sequential()) {
        ++*ct_possible;
        if (level->ct < MOST_CHOICES && is_new(hash_of_graph())) {
            level->choices[level->ct++] = choice;
        } else if (level->ct == MOST_CHOICES) {
            fail_as("there are too many choices");
        }
    }
    retract(number, &before);
}

static int may_read(const operation_t *op, const event_t *write)
{
    return op->update == TAKE_0     ? write->written == 0
           : op->update == TAKE_SET ? write->written != 0
                                    : 1;
}

static void consider_access(level_t *level, int number, int *ct_possible)
{
    const thread_t *thread = &threads[number];
    const operation_t *op = &thread->next;
    int i = place_at(op->at, op->sz);
    const place_t *place = &places[i];
    int first = first_visible(place, i, &thread->clock);
    if (thread->passed >= 0 && events[thread->passed].place == i) {
        int passed = events[thread->passed].from;
        int after = position(place, passed) + 1;
        first = first < after ? after : first;
    }
    for (int at = first; at < place->ct; at++) {
        int write = place->writes[at], is_taken = is_updated(&events[write]);
        int succeeds = op->kind != UPDATE || op->update != COMPARE ||
                       events[write].written == op->expected;
        choice_t choice = {(unsigned char)number, (short)write, (short)(at + 1), 1, 0};
        if (op->kind == LOAD || !succeeds) {
            choice.place_among = -1;
            choice.succeeds = op->kind == LOAD;
        } else if (is_taken || (op->kind == UPDATE && !may_read(op, &events[write]))) {
            continue;
        } else if (op->kind == STORE) {
            choice.from = -1;
        }
        consider(level, choice, ct_possible);
    }
}

/* Lists the events that may be next. Returns 0 if there are none, seen or not. */
static int list_choices(level_t *level)
{
    int ct_possible = 0;
    level->ct = level->next = 0;
    for (int i = 0; i < ct_threads; i++) {
        const operation_t *op = &threads[i].next;
        choice_t choice = {(unsigned char)i, -1, -1, 1, 0};
        if (threads[i].has_ended || (op->kind == JOIN && !threads[op->value].has_ended)) {
            continue;
        }
        if (op->at != NULL) {
            consider_access(level, i, &ct_possible);
        }
        if (op->at == NULL || op->may_give_up) {
            choice.gives_up = (char)op->may_give_up;
            consider(level, choice, &ct_possible);
        }
    }
    return ct_possible;
}

/* ==== Threads ================================================================================ */

/* Gives memory that a thread has changed by plain writes, or by assembly, its writes. */
static void see_plain_writes(int number)
{
    for (int i = 0; i < ct_places; i++) {
        uint64_t value = value_at(places[i].at, places[i].sz);
        if (value != places[i].last) {
            thread_t *thread = &threads[number];
            operation_t next = thread->next;
            thread->next = (operation_t){.kind = STORE,
                                         .order = __ATOMIC_RELAXED,
                                         .at = places[i].at,
                                         .sz = places[i].sz,
                                         .value = value};
            choice_t choice = {(unsigned char)number, -1, (short)places[i].ct, 1, 0};
            extend(&choice);
            thread->next = next;
            places[i].last = value;
        }
    }
}

/* Runs a thread up to its next operation. */
static void run_thread(int number)
{
    current = number;
    if (program->at_switch != NULL) {
        program->at_switch(number);
    }
    aco_resume(threads[number].co);
    current = -1;
    if (failure != NULL) {
        return;
    }
    see_plain_writes(number);
    if (!threads[number].has_ended && threads[number].next.at != NULL) {
        place_at(threads[number].next.at, threads[number].next.sz); /* same number each time */
    }
}

/* Does an operation on memory that is not watched, which therefore belongs to one thread, or keeps
 * its value. */
static uint64_t operate_at_once(const operation_t *op)
{
    uint64_t read = value_at(op->at, op->sz);
    if (op->kind == STORE ||
        (op->kind == UPDATE && (op->update != COMPARE || read == op->expected))) {
        set_value(op->at, op->sz, updated(op, read));
    }
    return read;
}

static uint64_t operate(operation_t op)
{
    if (op.at != NULL && (uintptr_t)op.at - (uintptr_t)watched >= watched_sz) {
        return operate_at_once(&op);
    }
    threads[current].next = op;
    aco_yield();
    return threads[current].result;
}

static void enter_thread(void)
{
    thread_t *thread = (thread_t *)aco_get_arg();
    thread->fn();
    operate((operation_t){.kind = END});
    thread->has_ended = 1;
    aco_exit();
}

static void begin_thread(int number, void (*fn)(void))
{
    thread_t *thread = &threads[number];
    aco_t *co = thread->co;
    if (co == NULL) {
        co = aco_create(main_co, aco_share_stack_new(STACK_SZ), 0, enter_thread, thread);
    } else {
        aco_reset(co, enter_thread, thread);
    }
    *thread = (thread_t){.co = co, .fn = fn, .last_read = -1, .passed = -1};
}

/* Does what an event in the graph means for its thread and for memory. */
static void perform(int number)
{
    const event_t *e = &events[number];
    thread_t *thread = &threads[e->thread];
    thread->result = e->read;
    if (e->is_read) {
        thread->last_read = number;
        thread->passed = -1;
    }
    if (e->place >= 0) {
        place_t *place = &places[e->place];
        place->last = events[place->writes[place->ct - 1]].written;
        set_value(place->at, place->sz, place->last);
        current = e->thread;
        note_access(place->at, place->sz, e->is_write, 1);
        current = -1;
    }
    if (e->kind == START) {
        int started = ct_threads++;
        begin_thread(started, (void (*)(void))(uintptr_t)thread->next.value);
        threads[started].clock = thread->clock;
        thread->result = (uint64_t)started;
        run_thread(started);
    }
}

int start_thread(void (*fn)(void))
{
    if (ct_threads == MOST_THREADS) {
        refuse("there are too many threads");
    }
    return (int)operate((operation_t){
        .kind = START, .value = (uint64_t)(uintptr_t)fn, .pc = __builtin_return_address(0)});
}

void join_thread(int thread)
{
    operate(
        (operation_t){.kind = JOIN, .value = (uint64_t)thread, .pc = __builtin_return_address(0)});
}

int take_int(int *at, int value, int may_give_up)
{
    return (int)operate((operation_t){.kind = UPDATE,
                                      .update = TAKE_SET,
                                      .order = __ATOMIC_ACQ_REL,
                                      .at = at,
                                      .sz = sizeof(*at),
                                      .value = (unsigned)value,
                                      .may_give_up = may_give_up,
                                      .pc = __builtin_return_address(0)});
}

void take_lock(char *at)
{
    operate((operation_t){.kind = UPDATE,
                          .update = TAKE_0,
                          .order = __ATOMIC_ACQUIRE,
                          .at = at,
                          .sz = 1,
                          .value = 1,
                          .pc = __builtin_return_address(0)});
}

void await_change(void)
{
    threads[current].passed = threads[current].last_read;
}

/* ==== Executions ============================================================================= */

static void begin_execution(void)
{
    execution++;
    ct_events = ct_places = 0;
    ct_threads = 1;
    begin_thread(0, program->fn);
    run_thread(0);
}

static int have_all_ended(void)
{
    int have = 1;
    for (int i = 0; i < ct_threads; i++) {
        have &= threads[i].has_ended;
    }
    return have;
}

/* Runs an execution: by the choices of `depth` levels, then by the first of each level. Returns
 * the depth that it reached. */
static int run_execution(int depth, size_t *ct)
{
    begin_execution();
    for (int i = 0; failure == NULL; i++) {
        if (have_all_ended()) {
            ++*ct;
            return i;
        }
        level_t *level = &levels[i];
        if (i >= depth && !list_choices(level)) {
            fail_as("a thread waits for ever");
        }
        if (failure != NULL || level->ct == 0) {
            return i;
        }
        const choice_t *choice = &level->choices[level->next];
        perform(extend(choice));
        if (failure == NULL) {
            run_thread(choice->thread);
        }
    }
    return 0;
}

size_t explore(const program_t *of, void *memory, size_t sz)
{
    size_t ct = 0;
    program = of;
    failure = NULL;
    current = -1;
    ct_states = 0;
    if (main_co == NULL) {
        aco_thread_init(NULL);
        main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    }
    watched = (unsigned char *)memory;
    watched_sz = sz;
    shadows = (shadow_t *)calloc(sz, sizeof(*shadows));
    seen.sz = (size_t)1 << 16;
    seen.hashes = (uint64_t *)calloc(seen.sz, sizeof(*seen.hashes));
    for (int depth = run_execution(0, &ct); failure == NULL;) {
        while (depth > 0 && levels[depth - 1].next + 1 >= levels[depth - 1].ct) {
            depth--;
        }
        if (depth == 0) {
            break;
        }
        levels[depth - 1].next++;
        depth = run_execution(depth, &ct);
    }
    free(shadows);
    free(seen.hashes);
    return failure != NULL ? 0 : ct;
}

/* ==== Calls that compilers insert ============================================================ */

void __tsan_init(void);
void __tsan_init(void)
{
}

void __tsan_func_entry(void *pc);
void __tsan_func_entry(void *pc)
{
    (void)pc;
}

void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
}

void __tsan_read_range(void *at, size_t sz);
void __tsan_read_range(void *at, size_t sz)
{
    note_access(at, sz, 0, 0);
}

void __tsan_write_range(void *at, size_t sz);
void __tsan_write_range(void *at, size_t sz)
{
    note_access(at, sz, 1, 0);
}

#define PLAIN_ACCESS(name, sz, is_write)                                                           \
    void name(void *at);                                                                           \
    void name(void *at)                                                                            \
    {                                                                                              \
        note_access(at, sz, is_write, 0);                                                          \
    }
#define PLAIN(sz)                                                                                  \
    PLAIN_ACCESS(__tsan_read##sz, sz, 0)                                                           \
    PLAIN_ACCESS(__tsan_write##sz, sz, 1)                                                          \
    PLAIN_ACCESS(__tsan_unaligned_read##sz, sz, 0)                                                 \
    PLAIN_ACCESS(__tsan_unaligned_write##sz, sz, 1)
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

#define OPERATE(...) operate((operation_t){.pc = __builtin_return_address(0), __VA_ARGS__})

#define UPDATES(bits, name, how)                                                                   \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile void *at, uint##bits##_t value,           \
                                                int order);                                        \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile void *at, uint##bits##_t value,           \
                                                int order)                                         \
    {                                                                                              \
        return (uint##bits##_t)OPERATE(.kind = UPDATE, .update = how, .order = order, .at = at,    \
                                       .sz = (bits) / 8, .value = value);                          \
    }

#define COMPARES(bits, name)                                                                       \
    int __tsan_atomic##bits##_##name(volatile void *at, uint##bits##_t *expected,                  \
                                     uint##bits##_t value, int order, int order_of_failure);       \
    int __tsan_atomic##bits##_##name(volatile void *at, uint##bits##_t *expected,                  \
                                     uint##bits##_t value, int order, int order_of_failure)        \
    {                                                                                              \
        uint##bits##_t read =                                                                      \
            (uint##bits##_t)OPERATE(.kind = UPDATE, .update = COMPARE, .order = order,             \
                                    .order_of_failure = order_of_failure, .at = at,                \
                                    .sz = (bits) / 8, .value = value, .expected = *expected);      \
        int is_done = read == *expected;                                                           \
        *expected = read;                                                                          \
        return is_done;                                                                            \
    }

#define ATOMIC(bits)                                                                               \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile void *at, int order);                 \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile void *at, int order)                  \
    {                                                                                              \
        return (uint##bits##_t)OPERATE(.kind = LOAD, .order = order,                               \
                                       .at = (volatile void *)(uintptr_t)at, .sz = (bits) / 8);    \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile void *at, uint##bits##_t value, int order);          \
    void __tsan_atomic##bits##_store(volatile void *at, uint##bits##_t value, int order)           \
    {                                                                                              \
        OPERATE(.kind = STORE, .order = order, .at = at, .sz = (bits) / 8, .value = value);        \
    }                                                                                              \
    UPDATES(bits, exchange, EXCHANGE)                                                              \
    UPDATES(bits, fetch_add, ADD)                                                                  \
    UPDATES(bits, fetch_sub, SUB)                                                                  \
    UPDATES(bits, fetch_and, AND)                                                                  \
    UPDATES(bits, fetch_or, OR)                                                                    \
    UPDATES(bits, fetch_xor, XOR)                                                                  \
    UPDATES(bits, fetch_nand, NAND)                                                                \
    COMPARES(bits, compare_exchange_strong)                                                        \
    COMPARES(bits, compare_exchange_weak)
ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order)
{
    OPERATE(.kind = FENCE, .order = order);
}

void __tsan_atomic_signal_fence(int order);
void __tsan_atomic_signal_fence(int order)
{
    (void)order;
}
