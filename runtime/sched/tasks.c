// SPDX-License-Identifier: Apache-2.0
/*
 * Allocates the structs of tasks, in chunks that live as long as their runtime. Each loop keeps
 * some free ones, and gives the rest to the runtime.
 */
#include "sched/sched.h"

#include <errno.h>
#include <string.h>

#define CT_TASKS_A_CHUNK 128u
#define MAX_FREE_TASKS (2 * CT_TASKS_A_CHUNK) /* that a loop keeps */

struct chunk_s {
    struct chunk_s *next;
    aco_task_t tasks[CT_TASKS_A_CHUNK];
};

/* The lock of the runtime is held here and in take_tasks(). */
static void give_tasks(loop_t *loop, size_t ct)
{
    while (ct-- != 0) {
        aco_task_t *task = loop->free_tasks;
        loop->free_tasks = task->next;
        loop->ct_free_tasks--;
        task->next = loop->runtime->free_tasks;
        loop->runtime->free_tasks = task;
    }
}

static void take_tasks(loop_t *loop)
{
    runtime_t *runtime = loop->runtime;
    while (runtime->free_tasks != NULL && loop->ct_free_tasks < CT_TASKS_A_CHUNK) {
        aco_task_t *task = runtime->free_tasks;
        runtime->free_tasks = task->next;
        task->next = loop->free_tasks;
        loop->free_tasks = task;
        loop->ct_free_tasks++;
    }
}

static int add_chunk(loop_t *loop)
{
    struct chunk_s *chunk = (struct chunk_s *)aco_i_allocate(sizeof(*chunk));
    if (chunk == NULL) {
        errno = ENOMEM;
        return -1;
    }
    memset(chunk, 0, sizeof(*chunk));
    chunk->next = loop->runtime->chunks;
    loop->runtime->chunks = chunk;
    for (size_t i = CT_TASKS_A_CHUNK; i-- != 0;) {
        chunk->tasks[i].next = loop->free_tasks;
        loop->free_tasks = &chunk->tasks[i];
        loop->ct_free_tasks++;
    }
    return 0;
}

aco_task_t *aco_i_new_task(loop_t *loop, void *(*fn)(void *), void *arg)
{
    if (loop->free_tasks == NULL) {
        lock(&loop->runtime->lock);
        take_tasks(loop);
        int failed = loop->free_tasks == NULL && add_chunk(loop) != 0;
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

void aco_i_free_task(aco_task_t *task)
{
    loop_t *loop = aco_i_loop;
    runtime_t *runtime = task->runtime;
    task->state = TASK_FREE;
    if (loop == NULL || loop->runtime != runtime) { /* joined from outside */
        lock(&runtime->lock);
        task->next = runtime->free_tasks;
        runtime->free_tasks = task;
        unlock(&runtime->lock);
        return;
    }
    task->next = loop->free_tasks;
    loop->free_tasks = task;
    if (++loop->ct_free_tasks > MAX_FREE_TASKS) {
        lock(&runtime->lock);
        give_tasks(loop, CT_TASKS_A_CHUNK);
        unlock(&runtime->lock);
    }
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

int aco_i_has_group(runtime_t *runtime, const void *group)
{
    lock(&runtime->lock);
    const aco_group_t *found = runtime->orphans;
    while (found != NULL && found != group) {
        found = found->next;
    }
    for (const struct chunk_s *chunk = runtime->chunks; chunk != NULL; chunk = chunk->next) {
        for (size_t i = 0; i < CT_TASKS_A_CHUNK && found == NULL; i++) {
            found = chunk->tasks[i].state == TASK_FREE ? NULL : chunk->tasks[i].groups;
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
            if (chunk->tasks[i].state != TASK_FREE && chunk->tasks[i].state != TASK_ENDED) {
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
