// SPDX-License-Identifier: Apache-2.0
/*
 * The table of handles: one range of addresses, so that a subtraction tells a handle from a
 * pthread_t of libc. A handle is used again late, as programs compare old ones.
 */
#include "internal.h"

#include <sys/mman.h>

#define MOST_HANDLES ((size_t)1 << 20)
#define LEAST_FREE 4096u    /* that wait before the first of them is used again */
#define FIRST_TID (1 << 22) /* the kernel's numbers are smaller: its PID_MAX_LIMIT */

static struct {
    thread_t *at; /* atomic; NULL: the range was not needed so far */
    size_t ct, ct_free;
    thread_t *first_free, *last_free;
    lock_t lock;
} table;

static thread_t *reserve(void)
{
    void *range = mmap(NULL, MOST_HANDLES * sizeof(thread_t), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range != MAP_FAILED) {
        __atomic_store_n(&table.at, (thread_t *)range, __ATOMIC_RELEASE);
    }
    return table.at;
}

static thread_t *take_free(void)
{
    thread_t *thread = table.first_free;
    table.first_free = thread->next;
    table.ct_free--;
    return thread;
}

static thread_t *take(void)
{
    if (table.at == NULL && reserve() == NULL) {
        return NULL;
    }
    if (table.ct_free > LEAST_FREE || (table.ct == MOST_HANDLES && table.ct_free != 0)) {
        return take_free();
    }
    if (table.ct == MOST_HANDLES) {
        return NULL;
    }
    __atomic_store_n(&table.ct, table.ct + 1, __ATOMIC_RELEASE);
    return &table.at[table.ct - 1];
}

thread_t *aco_i_new_handle(void)
{
    lock(&table.lock);
    thread_t *thread = take();
    unlock(&table.lock);
    if (thread != NULL) {
        memset(thread, 0, sizeof(*thread));
        thread->tid = FIRST_TID + (int)(thread - table.at);
    }
    return thread;
}

void aco_i_free_handle(thread_t *thread)
{
    thread->next = NULL;
    lock(&table.lock);
    thread->state = HANDLE_FREE;
    *(table.ct_free != 0 ? &table.last_free->next : &table.first_free) = thread;
    table.last_free = thread;
    table.ct_free++;
    unlock(&table.lock);
}

thread_t *aco_i_handle_of(pthread_t thread)
{
    uintptr_t offset = (uintptr_t)thread - (uintptr_t)__atomic_load_n(&table.at, __ATOMIC_ACQUIRE);
    return table.at != NULL && offset < MOST_HANDLES * sizeof(thread_t) ? (thread_t *)thread : NULL;
}

int aco_i_for_each_handle(int (*fn)(thread_t *thread, void *arg), void *arg)
{
    thread_t *at = __atomic_load_n(&table.at, __ATOMIC_ACQUIRE);
    size_t ct = __atomic_load_n(&table.ct, __ATOMIC_ACQUIRE);
    int result = 0;
    for (size_t i = 0; at != NULL && i < ct && result == 0; i++) {
        result = fn(&at[i], arg);
    }
    return result;
}

thread_t *aco_i_handle_of_tid(int tid)
{
    thread_t *at = __atomic_load_n(&table.at, __ATOMIC_ACQUIRE);
    size_t index = (size_t)tid - FIRST_TID;
    return at != NULL && tid >= FIRST_TID && index < table.ct && at[index].state != HANDLE_FREE
               ? &at[index]
               : NULL;
}

void aco_i_begin_child_of_handles(void)
{
    table.lock = (lock_t){0};
}
