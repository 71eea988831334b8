// SPDX-License-Identifier: Apache-2.0
/* Records the readers of rwlocks while there is a watchdog: an rwlock only counts them. */
#include "sync/sync.h"

#include <string.h>

#define CT_LISTS 1024

typedef struct reader_s {
    struct reader_s *next;
    const aco_rwlock_t *rwlock;
    uintptr_t id;
} reader_t;

int aco_i_is_watched;
static reader_t *readers[CT_LISTS];
static lock_t readers_lock;

static reader_t **list_of(const aco_rwlock_t *rwlock)
{
    return &readers[((uintptr_t)rwlock >> 4) * UINT32_C(0x9e3779b1) / 4 % CT_LISTS];
}

/* Removes a reader of a lock, this one if it is known, or else any; 0: there is none. */
static int take_reader(const aco_rwlock_t *rwlock, uintptr_t id)
{
    reader_t **any = NULL, **at = list_of(rwlock);
    for (; *at != NULL && ((*at)->rwlock != rwlock || (*at)->id != id); at = &(*at)->next) {
        any = (*at)->rwlock == rwlock ? at : any;
    }
    at = *at != NULL ? at : any;
    if (at == NULL) {
        return 0;
    }
    reader_t *reader = *at;
    *at = reader->next;
    aco_i_release(reader);
    return 1;
}

static void forget_readers(void)
{
    memset(readers, 0, sizeof(readers));
    memset(&readers_lock, 0, sizeof(readers_lock));
}

void aco_i_note_reader(const aco_rwlock_t *rwlock, const aco_task_t *task)
{
    static aco_i_fork_handler_t handler = {.fn = forget_readers};
    aco_i_at_fork(&handler);
    reader_t *reader = (reader_t *)aco_i_allocate(sizeof(*reader));
    lock(&readers_lock);
    /* Records of a former lock at the same address are dropped before the first reader. */
    while (rwlock->ct_readers == 0 && take_reader(rwlock, (uintptr_t)task->id)) {
    }
    if (reader != NULL) {
        reader_t **list = list_of(rwlock);
        *reader = (reader_t){*list, rwlock, (uintptr_t)task->id};
        *list = reader;
    }
    unlock(&readers_lock);
}

void aco_i_drop_reader(const aco_rwlock_t *rwlock, const aco_task_t *task)
{
    lock(&readers_lock);
    take_reader(rwlock, (uintptr_t)task->id);
    unlock(&readers_lock);
}

void aco_i_each_reader(const aco_rwlock_t *rwlock, size_t ct, void (*fn)(uintptr_t id, void *arg),
                       void *arg)
{
    size_t ct_known = 0;
    lock(&readers_lock);
    for (const reader_t *at = *list_of(rwlock); at != NULL; at = at->next) {
        ct_known += at->rwlock == rwlock;
    }
    for (const reader_t *at = *list_of(rwlock); at != NULL && ct_known == ct; at = at->next) {
        if (at->rwlock == rwlock) {
            fn(at->id, arg);
        }
    }
    unlock(&readers_lock);
}
