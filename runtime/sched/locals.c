// SPDX-License-Identifier: Apache-2.0
/* Keeps task-local values: an array for each task, indexed by key. */
#include "sched/sched.h"

#include <errno.h>
#include <string.h>

#define MAX_KEYS 1024u
#define DESTRUCTOR_ROUNDS 4

static struct {
    unsigned ct;
    void (*destructors[MAX_KEYS])(void *);
} keys;

int aco_key_create(aco_key_t *key, void (*destructor)(void *))
{
    need(key, "aco_key_create", "there is no place for the key: pass an aco_key_t");
    unsigned ct = __atomic_load_n(&keys.ct, __ATOMIC_ACQUIRE);
    do {
        if (ct == MAX_KEYS) {
            errno = EAGAIN;
            return -1;
        }
    } while (
        !__atomic_compare_exchange_n(&keys.ct, &ct, ct + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    __atomic_store_n(&keys.destructors[ct], destructor, __ATOMIC_RELEASE);
    *key = ct;
    return 0;
}

/* The task whose values the caller uses; NULL: none. */
static inline aco_task_t *task_with_values(void)
{
    aco_task_t *self = aco_self();
    return aco_likely(self != NULL) ? self : aco_i_forked_task;
}

static int grow_locals(aco_task_t *task, size_t ct)
{
    void **locals = (void **)aco_i_allocate(ct * sizeof(*locals));
    if (locals == NULL) {
        errno = ENOMEM;
        return -1;
    }
    memset(locals, 0, ct * sizeof(*locals));
    if (task->ct_locals != 0) {
        memcpy(locals, task->locals, task->ct_locals * sizeof(*locals));
    }
    aco_i_release(task->locals);
    task->locals = locals;
    task->ct_locals = (uint16_t)ct;
    return 0;
}

int aco_setspecific(aco_key_t key, const void *value)
{
    aco_task_t *self = task_with_values();
    if (self == NULL || key >= __atomic_load_n(&keys.ct, __ATOMIC_ACQUIRE)) {
        errno = self == NULL ? EPERM : EINVAL;
        return -1;
    }
    if (key >= self->ct_locals && grow_locals(self, key + 8) != 0) {
        return -1;
    }
    self->locals[key] = (void *)(uintptr_t)value;
    return 0;
}

void *aco_getspecific(aco_key_t key)
{
    const aco_task_t *self = task_with_values();
    return self != NULL && key < self->ct_locals ? self->locals[key] : NULL;
}

void aco_i_run_destructors(aco_task_t *task)
{
    int is_left = 1;
    for (int round = 0; is_left && round < DESTRUCTOR_ROUNDS; round++) {
        is_left = 0;
        for (size_t key = 0; key < task->ct_locals; key++) {
            void *value = task->locals[key];
            void (*destructor)(void *) =
                key < MAX_KEYS ? __atomic_load_n(&keys.destructors[key], __ATOMIC_ACQUIRE) : NULL;
            task->locals[key] = NULL;
            if (value != NULL && destructor != NULL) {
                destructor(value);
                is_left = 1;
            }
        }
    }
    aco_i_release(task->locals);
    task->locals = NULL;
    task->ct_locals = 0;
}
