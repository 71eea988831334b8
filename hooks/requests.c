// SPDX-License-Identifier: Apache-2.0
/*
 * Waits for requests that libc's threads carry out: aio_suspend() and gai_suspend(). Nothing tells
 * tasks when one is done, so a thread of its own calls libc's function for each wait.
 */
#include "waiting.h"

#include <netdb.h>

HOOKS_OF(requests);

typedef struct {
    caller_t caller;
    int (*wait)(const void *const *list, int ct, const struct timespec *t);
    const void **list; /* a copy behind this struct */
    int ct, result, error;
    struct timespec t;
    int has_time;
} wait_t;

static void call_wait(caller_t *caller)
{
    wait_t *w = (wait_t *)caller;
    int result = w->wait(w->list, w->ct, w->has_time ? &w->t : NULL);
    w->error = errno;
    w->result = result;
}

static void cancel_wait(caller_t *caller)
{
    pthread_cancel(caller->thread);
}

/* Returns 0 if the call has returned, or the error by which the task gave up. */
static int wait_by_thread(int (*wait)(const void *const *, int, const struct timespec *),
                          const void *const *list, int ct, const struct timespec *t, int *result,
                          const void *caller)
{
    limit_t never = {.caller = caller, .is_of_io = 1, .signals = SIGNALS_FAIL};
    size_t list_sz = (size_t)ct * sizeof(*list);
    wait_t *w = (wait_t *)aco_i_allocate(sizeof(*w) + list_sz);
    if (w == NULL) {
        return EAGAIN;
    }
    *w = (wait_t){.caller = {.call = call_wait, .interrupt = cancel_wait},
                  .wait = wait,
                  .list = (const void **)(w + 1),
                  .ct = ct,
                  .error = -1,
                  .has_time = t != NULL};
    memcpy(w->list, list, list_sz);
    w->t = t != NULL ? *t : w->t;
    int error = aco_i_call_by_thread(&w->caller, &never);
    if (w->error != -1) {
        *result = w->result;
        errno = w->result < 0 ? w->error : errno;
        error = 0;
    }
    aco_i_release(w);
    return error;
}

/* Whether the call would wait, so that a thread is worth its cost. */
static int may_wait(int ct, const struct timespec *t)
{
    return is_in_task() && ct > 0 && (t == NULL || (is_valid_time(t) && ns_of(t) != 0));
}

/* ==== Input and output ======================================================================= */

static const struct timespec at_once = {0, 0};

#define HOOK_AIO(name)                                                                             \
    HOOK(int, name, (const void *const *list, int ct, const struct timespec *t), (list, ct, t),    \
         refuse(ENOSYS))                                                                           \
    {                                                                                              \
        int before = errno, result;                                                                \
        if (!may_wait(ct, t)) {                                                                    \
            return real_##name(list, ct, t);                                                       \
        }                                                                                          \
        if ((result = real_##name(list, ct, &at_once)) == 0 || errno != EAGAIN) {                  \
            return result;                                                                         \
        }                                                                                          \
        errno = before;                                                                            \
        int error = wait_by_thread(real_##name, list, ct, t, &result, CALLER);                     \
        return error == 0 ? result : (int)refuse_to(CALLER, error);                                \
    }                                                                                              \
    _Static_assert(1, "")

HOOK_AIO(aio_suspend);
#if __SIZEOF_POINTER__ == 8
HOOK_ALIAS(aio_suspend64, aio_suspend);
#else
HOOK_AIO(aio_suspend64);
#endif

/* ==== Names ================================================================================== */

HOOK(int, gai_suspend, (const void *const *list, int ct, const struct timespec *t), (list, ct, t),
     EAI_SYSTEM)
{
    int result;
    if (!may_wait(ct, t)) {
        return real_gai_suspend(list, ct, t);
    }
    if ((result = real_gai_suspend(list, ct, &at_once)) == 0 || result == EAI_ALLDONE) {
        return result;
    }
    int error = wait_by_thread(real_gai_suspend, list, ct, t, &result, CALLER);
    return error == 0 ? result : error == EAGAIN ? EAI_MEMORY : EAI_INTR;
}
