// SPDX-License-Identifier: Apache-2.0
/*
 * The bodies of measured coroutines, for peers in C and C++ in which a body may yield. C99 and
 * C++20.
 * Before it is included, a peer has defined:
 *   peer_ref                     the name of a coroutine for whoever resumes it: a pointer, or a
 *                                handle, which is held in one place if it can't be copied
 *   peer_self                    what names it in its own body and in functions called from there
 *   PEER_BODY(name)              the head of a body, in which `self` is a peer_self
 *   PEER_YIELD(self)             a statement that suspends it; a peer in which that is no statement
 *                                for any place defines flat, until_over, live and scheduled_inner
 *   PEER_RETURN(self)            a statement that ends it
 *   PEER_ARG(self)               the pointer that it was created with
 *   PEER_SELF(self)              what peer_create() takes for the parent of another one
 *   peer_create, peer_resume, peer_destroy, declared at least: see workloads.h
 * and, if functions that a body calls may yield, too, PEER_STACKFUL; if not, it may define a body
 * that does the like, and PEER_DEEP as its name.
 */
#ifndef BENCH_BODIES_H
#define BENCH_BODIES_H

#include "peer.h"

/* They are not static, since a compiler might conclude that a switch can't change variables that
 * only this file knows. */
long yields; /* counted by the coroutines, compared with the resumes at the end */
int is_over; /* bodies that end return at the next resume */

PEER_BODY(at_once)
{
    (void)self;
    yields++;
    PEER_RETURN(self);
}

#ifdef PEER_YIELD

PEER_BODY(flat)
{
    for (;;) {
        yields++;
        PEER_YIELD(self);
    }
}

PEER_BODY(until_over)
{
    while (!is_over) {
        yields++;
        PEER_YIELD(self);
    }
    PEER_RETURN(self);
}

#endif

/* ==== Live registers ========================================================================= */

/* Eight integers and eight doubles, each in a register of its own before and after each yield;
 * sixteen additions between two yields. */
#define LIVE_CT 8
#define LIVE_LIST(what) what(0) what(1) what(2) what(3) what(4) what(5) what(6) what(7)
#define LIVE_DECLARE(k)                                                                            \
    long i##k = (k);                                                                               \
    double d##k = (k);
#define LIVE_ADD(k)                                                                                \
    i##k += (k) + 1;                                                                               \
    d##k += (k) + 1;
#define LIVE_FOLD(k) sum += (double)i##k + d##k;
#ifdef __SSE2__
#define LIVE_IN_REGISTER(k) __asm__ volatile("" : "+r"(i##k), "+x"(d##k));
#else
#define LIVE_IN_REGISTER(k) __asm__ volatile("" : "+r"(i##k), "+m"(d##k));
#endif

double live_sum;

#ifdef PEER_YIELD
PEER_BODY(live)
{
    LIVE_LIST(LIVE_DECLARE)
    while (!is_over) {
        LIVE_LIST(LIVE_ADD)
        LIVE_LIST(LIVE_IN_REGISTER)
        yields++;
        PEER_YIELD(self);
        LIVE_LIST(LIVE_IN_REGISTER)
    }
    double sum = 0;
    LIVE_LIST(LIVE_FOLD)
    live_sum = sum;
    PEER_RETURN(self);
}
#endif

/* The value of live_sum after so many yields. */
static double expected_live_sum(long n)
{
    double sum = 0;
    for (int k = 0; k < LIVE_CT; k++) {
        sum += 2.0 * ((double)k + (double)n * (k + 1));
    }
    return sum;
}

/* ==== Four calls deep ======================================================================== */

#ifdef PEER_STACKFUL

/* The empty statement after each call keeps it from being a jump. */
static __attribute__((noinline)) void call_4(peer_self self)
{
    PEER_YIELD(self);
    yields++;
    __asm__ volatile("");
}
#define CALL(name, callee)                                                                         \
    static __attribute__((noinline)) void name(peer_self self)                                     \
    {                                                                                              \
        callee(self);                                                                              \
        __asm__ volatile("");                                                                      \
    }
CALL(call_3, call_4)
CALL(call_2, call_3)
CALL(call_1, call_2)

#define PEER_DEEP deep
PEER_BODY(deep)
{
    for (;;) {
        call_1(self);
        __asm__ volatile("");
    }
}

#endif

/* ==== Skynet ================================================================================= */

/* Each inner one makes ten others, until there are as many leaves as asked for. Every leaf has a
 * number, every other one adds up what its children found. */
#define CHILD_CT 10
#define SKYNET_STACK_SZ ((size_t)16 << 10) /* bytes */

typedef struct skynet_task {
    long first; /* number of the first leaf below */
    long ct;    /* leaves below; a leaf itself where it is 1 */
    int64_t sum;
    /* By scheduler only. */
    struct skynet_task *parent, *children;
    struct skynet_task *next; /* in the run queue */
    peer_ref co;
    int pending; /* children that have not reported yet */
    int is_done;
} skynet_task;

static inline void set_child(skynet_task *child, const skynet_task *task, int i)
{
    child->ct = task->ct / CHILD_CT;
    child->first = task->first + i * child->ct;
}

static inline skynet_task whole_of(long leaves)
{
    skynet_task root;
    root.first = 0;
    root.ct = leaves;
    root.parent = root.next = NULL;
    root.is_done = 0;
    return root;
}

/* Nested: a parent resumes its children, and reads their sums from what it gave them. */
PEER_BODY(nested_leaf)
{
    skynet_task *task = (skynet_task *)PEER_ARG(self);
    task->sum = task->first;
    PEER_RETURN(self);
}

PEER_BODY(nested_inner)
{
    skynet_task *task = (skynet_task *)PEER_ARG(self), tasks[CHILD_CT];
    peer_ref children[CHILD_CT];
    int64_t sum = 0;
    peer_body body = task->ct == CHILD_CT ? nested_leaf : nested_inner;
    for (int i = 0; i < CHILD_CT; i++) {
        set_child(&tasks[i], task, i);
        children[i] = peer_create(PEER_SELF(self), body, &tasks[i], SKYNET_STACK_SZ);
    }
    for (int i = 0; i < CHILD_CT; i++) {
        peer_resume(children[i]);
        peer_destroy(children[i]);
        sum += tasks[i].sum;
    }
    task->sum = sum;
    PEER_RETURN(self);
}

static int64_t skynet_nested(long leaves)
{
    skynet_task root = whole_of(leaves);
    peer_ref co = peer_create(PEER_MAIN, nested_inner, &root, SKYNET_STACK_SZ);
    peer_resume(co);
    peer_destroy(co);
    return root.sum;
}

/* By scheduler: tasks wait in a queue, the newest first, and are resumed from the main program
 * alone. A parent waits until all of its children have reported to it. */
skynet_task *run_queue;

static void make_ready(skynet_task *task)
{
    task->next = run_queue;
    run_queue = task;
}

static void report(skynet_task *task)
{
    task->is_done = 1;
    if (task->parent != NULL) {
        task->parent->sum += task->sum;
        if (--task->parent->pending == 0) {
            make_ready(task->parent);
        }
    }
}

PEER_BODY(scheduled_leaf)
{
    skynet_task *task = (skynet_task *)PEER_ARG(self);
    task->sum = task->first;
    report(task);
    PEER_RETURN(self);
}

static void spawn_children(skynet_task *task, peer_body inner)
{
    skynet_task *tasks = NEW_ARRAY(skynet_task, CHILD_CT);
    peer_body body = task->ct == CHILD_CT ? scheduled_leaf : inner;
    task->sum = 0;
    task->pending = CHILD_CT;
    for (int i = 0; i < CHILD_CT; i++) {
        set_child(&tasks[i], task, i);
        tasks[i].parent = task;
        tasks[i].is_done = 0;
        tasks[i].co = peer_create(PEER_MAIN, body, &tasks[i], SKYNET_STACK_SZ);
        make_ready(&tasks[i]);
    }
    task->children = tasks;
}

#ifdef PEER_YIELD
PEER_BODY(scheduled_inner)
{
    skynet_task *task = (skynet_task *)PEER_ARG(self);
    spawn_children(task, scheduled_inner);
    PEER_YIELD(self);
    DELETE_ARRAY(task->children);
    report(task);
    PEER_RETURN(self);
}
#endif

static int64_t skynet_scheduler(long leaves)
{
    skynet_task root = whole_of(leaves);
    root.co = peer_create(PEER_MAIN, scheduled_inner, &root, SKYNET_STACK_SZ);
    make_ready(&root);
    while (run_queue != NULL) {
        skynet_task *task = run_queue;
        run_queue = task->next;
        peer_resume(task->co);
        /* Its parent frees it, but only when it is resumed itself. */
        if (task->is_done) {
            peer_destroy(task->co);
        }
    }
    return root.sum;
}

#endif
