// SPDX-License-Identifier: Apache-2.0
/*
 * Allocates the structs of tasks, in chunks that live as long as their runtime, as lists of tasks
 * are made without locks. Each loop keeps some free ones, and gives the rest to the runtime. The
 * pages of a chunk without a task in use go back to the system when a loop is idle.
 */
#include "sched/sched.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define CT_TASKS_A_CHUNK 256u
#define CT_TASKS_A_MOVE 128u                 /* between a loop and its runtime */
#define MAX_FREE_TASKS (2 * CT_TASKS_A_MOVE) /* that a loop keeps */

struct chunk_s {
    struct chunk_s *next, *next_idle;
    aco_task_t tasks[CT_TASKS_A_CHUNK];
};

/* Trimming reads it of all tasks of a runtime, whose loops meanwhile use theirs. */
static void set_state(aco_task_t *task, state_t state)
{
    __atomic_store_n(&task->state, state, __ATOMIC_RELAXED);
}

/* The lock of the runtime is held here, and in functions up to take_from_chunk(). */
static void put_spare(runtime_t *runtime, aco_task_t *task)
{
    set_state(task, TASK_SPARE);
    task->next = runtime->free_tasks;
    runtime->free_tasks = task;
}

static void count_returned(runtime_t *runtime, size_t ct)
{
    __atomic_store_n(&runtime->ct_returned, runtime->ct_returned + ct, __ATOMIC_RELAXED);
}

static void give_tasks(loop_t *loop, size_t ct)
{
    count_returned(loop->runtime, ct);
    loop->ct_free_tasks -= ct;
    while (ct-- != 0) {
        aco_task_t *task = loop->free_tasks;
        loop->free_tasks = task->next;
        put_spare(loop->runtime, task);
    }
}

static void add_free(loop_t *loop, aco_task_t *task)
{
    set_state(task, TASK_FREE);
    task->next = loop->free_tasks;
    loop->free_tasks = task;
    loop->ct_free_tasks++;
}

static void take_tasks(loop_t *loop)
{
    runtime_t *runtime = loop->runtime;
    while (runtime->free_tasks != NULL && loop->ct_free_tasks < CT_TASKS_A_MOVE) {
        aco_task_t *task = runtime->free_tasks;
        runtime->free_tasks = task->next;
        add_free(loop, task);
    }
    size_t ct = loop->ct_free_tasks, most = runtime->ct_returned;
    count_returned(runtime, -(ct < most ? ct : most));
}

static struct chunk_s *new_chunk(runtime_t *runtime)
{
    struct chunk_s *chunk = (struct chunk_s *)aco_i_allocate(sizeof(*chunk));
    if (chunk == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    memset(chunk, 0, sizeof(*chunk));
    chunk->next = runtime->chunks;
    return runtime->chunks = chunk;
}

static int take_from_chunk(loop_t *loop)
{
    runtime_t *runtime = loop->runtime;
    struct chunk_s *chunk = runtime->idle_chunks;
    if (chunk != NULL) {
        runtime->idle_chunks = chunk->next_idle;
    } else if ((chunk = new_chunk(runtime)) == NULL) {
        return -1;
    }
    for (size_t i = CT_TASKS_A_CHUNK; i-- != 0;) {
        add_free(loop, &chunk->tasks[i]);
    }
    return 0;
}

aco_task_t *aco_i_new_task(loop_t *loop, void *(*fn)(void *), void *arg)
{
    if (loop->free_tasks == NULL) {
        lock(&loop->runtime->lock);
        take_tasks(loop);
        int failed = loop->free_tasks == NULL && take_from_chunk(loop) != 0;
        unlock(&loop->runtime->lock);
        if (failed) {
            return NULL;
        }
    }
    aco_task_t *task = loop->free_tasks;
    loop->free_tasks = task->next;
    loop->ct_free_tasks--;
    size_t sz = sizeof(*task);
    __asm__("" : "+r"(sz)); /* for a known size, compilers use an instruction that starts slowly */
    memset(task, 0, sz);
    task->runtime = loop->runtime;
    task->id = aco_i_new_id();
    task->state = TASK_NEW;
    task->fn = fn;
    task->arg = arg;
    task->deadline = NO_DEADLINE;
    task->node.task = task;
    return task;
}

static __attribute__((noinline)) void leave_stops(const aco_task_t *task)
{
    for (aco_i_stop_t *stop = task->stops, *next; stop != NULL; stop = next) {
        next = stop->next;
        stop->freed(stop);
    }
}

void aco_i_free_task(aco_task_t *task)
{
    loop_t *loop = aco_i_loop;
    runtime_t *runtime = task->runtime;
    if (aco_unlikely(task->stops != NULL)) {
        leave_stops(task);
    }
    if (loop == NULL || loop->runtime != runtime) { /* joined from outside */
        lock(&runtime->lock);
        put_spare(runtime, task);
        count_returned(runtime, 1);
        unlock(&runtime->lock);
        return;
    }
    add_free(loop, task);
    if (loop->ct_free_tasks > MAX_FREE_TASKS) {
        lock(&runtime->lock);
        give_tasks(loop, CT_TASKS_A_MOVE);
        unlock(&runtime->lock);
    }
}

/* ==== Idle chunks ============================================================================ */

static int is_spare(const aco_task_t *task)
{
    return __atomic_load_n(&task->state, __ATOMIC_RELAXED) == TASK_SPARE;
}

static int is_idle(const struct chunk_s *chunk)
{
    size_t i = 0;
    while (i < CT_TASKS_A_CHUNK && is_spare(&chunk->tasks[i])) {
        i++;
    }
    return i == CT_TASKS_A_CHUNK;
}

/* Takes the idle chunks from the list of free tasks, which is made anew. Returns the first one. */
static struct chunk_s *take_idle(runtime_t *runtime)
{
    struct chunk_s *first = NULL;
    runtime->free_tasks = NULL;
    count_returned(runtime, -runtime->ct_returned);
    for (struct chunk_s *chunk = runtime->chunks; chunk != NULL; chunk = chunk->next) {
        if (is_idle(chunk)) {
            for (size_t i = 0; i < CT_TASKS_A_CHUNK; i++) {
                set_state(&chunk->tasks[i], TASK_FREE);
            }
            chunk->next_idle = first;
            first = chunk;
            continue;
        }
        for (size_t i = CT_TASKS_A_CHUNK; i-- != 0;) {
            if (is_spare(&chunk->tasks[i])) {
                put_spare(runtime, &chunk->tasks[i]);
            }
        }
    }
    return first;
}

void aco_i_trim_tasks(loop_t *loop)
{
    runtime_t *runtime = loop->runtime;
    uintptr_t page_sz = (uintptr_t)sysconf(_SC_PAGESIZE);
    lock(&runtime->lock);
    give_tasks(loop, loop->ct_free_tasks);
    struct chunk_s *first = take_idle(runtime), **link = &first;
    unlock(&runtime->lock);
    for (; *link != NULL; link = &(*link)->next_idle) {
        uintptr_t begin = ((uintptr_t)(*link)->tasks + page_sz - 1) & -page_sz;
        uintptr_t end = (uintptr_t)(*link + 1) & -page_sz;
        if (begin < end) {
            madvise((void *)begin, end - begin, MADV_DONTNEED);
        }
    }
    lock(&runtime->lock);
    *link = runtime->idle_chunks;
    runtime->idle_chunks = first;
    unlock(&runtime->lock);
}

void aco_i_free_chunks(runtime_t *runtime)
{
    while (runtime->chunks != NULL) {
        struct chunk_s *chunk = runtime->chunks;
        runtime->chunks = chunk->next;
        aco_i_release(chunk);
    }
}

int aco_i_has_task(runtime_t *runtime, const void *task)
{
    lock(&runtime->lock);
    const struct chunk_s *chunk = runtime->chunks;
    while (chunk != NULL &&
           (uintptr_t)task - (uintptr_t)chunk->tasks >= CT_TASKS_A_CHUNK * sizeof(aco_task_t)) {
        chunk = chunk->next;
    }
    unlock(&runtime->lock);
    return chunk != NULL;
}

READS_RACILY static int is_free(const aco_task_t *task)
{
    return task->state == TASK_FREE || task->state == TASK_SPARE;
}

int aco_i_has_group(runtime_t *runtime, const void *group)
{
    lock(&runtime->lock);
    const aco_group_t *found = runtime->orphans;
    while (found != NULL && found != group) {
        found = found->next;
    }
    for (const struct chunk_s *chunk = runtime->chunks; chunk != NULL; chunk = chunk->next) {
        for (size_t i = 0; i < CT_TASKS_A_CHUNK && found == NULL; i++) {
            found = is_free(&chunk->tasks[i]) ? NULL : chunk->tasks[i].groups;
            while (found != NULL && found != group) {
                found = found->next;
            }
        }
    }
    unlock(&runtime->lock);
    return found != NULL;
}

READS_RACILY void aco_i_each_task(runtime_t *runtime, void (*fn)(const aco_task_t *, void *),
                                  void *arg)
{
    int is_locked = aco_i_try_to_lock(&runtime->lock);
    const struct chunk_s *chunk = runtime->chunks; /* it stays; others come before it */
    if (is_locked) {
        unlock(&runtime->lock);
    }
    for (; chunk != NULL; chunk = chunk->next) {
        for (size_t i = 0; i < CT_TASKS_A_CHUNK; i++) {
            if (!is_free(&chunk->tasks[i]) && chunk->tasks[i].state != TASK_ENDED) {
                fn(&chunk->tasks[i], arg);
            }
        }
    }
}

void aco_i_each_unjoined(const runtime_t *runtime, void (*fn)(const aco_task_t *, void *arg),
                         void *arg)
{
    for (const struct chunk_s *chunk = runtime->chunks; chunk != NULL; chunk = chunk->next) {
        for (size_t i = 0; i < CT_TASKS_A_CHUNK; i++) {
            if (chunk->tasks[i].state == TASK_ENDED) {
                fn(&chunk->tasks[i], arg);
            }
        }
    }
}
