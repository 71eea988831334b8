// SPDX-License-Identifier: Apache-2.0
/*
 * Message queues of POSIX, which are descriptors that poll() knows; and queues and semaphores of
 * System V, of which nothing tells when they change. Tasks that wait for these try again when
 * another hooked call has changed one, and otherwise after FIRST_RETRY ns, then after twice as long
 * each time, and after LAST_RETRY at most.
 */
#include "waiting.h"

#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>

HOOKS_OF(queues);

/* ==== Message queues of POSIX ================================================================ */

static const struct timespec past = {0, 0};

/* Whether the kernel may wait, and for no invalid time. */
static int may_wait(const struct timespec *time)
{
    return is_in_task() && (time == NULL || is_valid_time(time));
}

/* Waits until a queue may be ready. 0, or -1 with errno. */
static int wait_for_queue(mqd_t queue, short events, const struct timespec *time)
{
    limit_t limit = {.time = time, .clock = CLOCK_REALTIME};
    struct pollfd polled = {queue, events, 0};
    int ct;
    do {
        ct = aco_i_poll(&polled, 1, aco_i_end_of_limit(&limit));
    } while (ct < 0 && aco_i_may_restart());
    if (ct == 0 && aco_i_end_of_limit(&limit) <= aco_i_clock()) {
        return (int)refuse(ETIMEDOUT);
    }
    return ct < 0 ? -1 : 0;
}

#ifdef SYS_mq_timedsend_time64
#define NO_QUEUES(number, ...) refuse(ENOSYS)
#else
#define NO_QUEUES(number, ...) syscall(number, __VA_ARGS__)
#endif

HOOK(int, mq_timedsend,
     (mqd_t queue, const char *text, size_t sz, unsigned priority, const struct timespec *time),
     (queue, text, sz, priority, time),
     NO_QUEUES(SYS_mq_timedsend, queue, text, sz, priority, time))
{
    if (!may_wait(time)) {
        return real_mq_timedsend(queue, text, sz, priority, time);
    }
    const void *caller = CALLER;
    int before = errno, result; /* a time that has passed counts only where the kernel would wait */
    while ((result = real_mq_timedsend(queue, text, sz, priority, &past)) != 0 &&
           errno == ETIMEDOUT && ANSWERED_TO(caller, wait_for_queue(queue, POLLOUT, time)) == 0) {
    }
    errno = result == 0 ? before : errno;
    return result;
}

HOOK(ssize_t, mq_timedreceive,
     (mqd_t queue, char *text, size_t sz, unsigned *priority, const struct timespec *time),
     (queue, text, sz, priority, time),
     NO_QUEUES(SYS_mq_timedreceive, queue, text, sz, priority, time))
{
    if (!may_wait(time)) {
        return real_mq_timedreceive(queue, text, sz, priority, time);
    }
    const void *caller = CALLER;
    int before = errno;
    ssize_t result;
    while ((result = real_mq_timedreceive(queue, text, sz, priority, &past)) < 0 &&
           errno == ETIMEDOUT && ANSWERED_TO(caller, wait_for_queue(queue, POLLIN, time)) == 0) {
    }
    errno = result >= 0 ? before : errno;
    return result;
}

HOOK(int, mq_send, (mqd_t queue, const char *text, size_t sz, unsigned priority),
     (queue, text, sz, priority), refuse(ENOSYS))
{
    return is_in_task() ? NESTED(hook_mq_timedsend(queue, text, sz, priority, NULL))
                        : real_mq_send(queue, text, sz, priority);
}

HOOK(ssize_t, mq_receive, (mqd_t queue, char *text, size_t sz, unsigned *priority),
     (queue, text, sz, priority), refuse(ENOSYS))
{
    return is_in_task() ? NESTED(hook_mq_timedreceive(queue, text, sz, priority, NULL))
                        : real_mq_receive(queue, text, sz, priority);
}

/* ==== System V =============================================================================== */

#define FIRST_RETRY 50000   /* ns */
#define LAST_RETRY 50000000 /* ns */
#define CT_CHANGES 256u

typedef enum { QUEUE, SEMAPHORES } kind_t;

/* Counts of changes, by ids. Tasks wait until one changes. */
static uint32_t changes[CT_CHANGES];

static uint32_t *changes_of(kind_t kind, int id)
{
    return &changes[(((unsigned)id * UINT32_C(0x9e3779b1)) >> 25) * 2 + kind];
}

static void tell_change(kind_t kind, int id)
{
    KEEP_ERRNO();
    uint32_t *word = changes_of(kind, id);
    __atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
    if (is_awaited(word)) {
        aco_i_wake_tasks(word, UINT32_MAX, UINT32_MAX);
    }
}

/* A call that has to wait, and its arguments. try() makes it without waiting: a result, or -1 with
 * errno, which is `again` if it would wait. */
typedef struct sysv_s {
    kind_t kind;
    int id, again, flags;
    long (*try)(struct sysv_s *call);
    void *data;
    size_t sz;
    long type;
} sysv_t;

static int is_always_over(watch_t *watch)
{
    (void)watch;
    return 1;
}

static long call_until(sysv_t *call, int64_t until, const void *caller)
{
    struct timespec end = timespec_of(until);
    limit_t limit = {.time = until == NO_DEADLINE ? NULL : &end,
                     .clock = CLOCK_MONOTONIC,
                     .caller = caller,
                     .is_of_io = 1,
                     .signals = SIGNALS_FAIL};
    watch_t watch = {is_always_over, FIRST_RETRY};
    int before = errno, ct_waits = 0;
    for (;; ct_waits++) {
        const uint32_t *word = changes_of(call->kind, call->id);
        uint32_t seen = __atomic_load_n(word, __ATOMIC_SEQ_CST);
        long result = call->try(call);
        if (result >= 0) {
            errno = before;
            tell_change(call->kind, call->id);
            return result;
        }
        if (errno != call->again) {
            return errno == EINVAL && ct_waits != 0 ? refuse(EIDRM) : result;
        }
        int error = aco_i_begin_wait_for_wake(word, seen, UINT32_MAX)
                        ? aco_i_end_wait(&limit, &watch)
                        : 0;
        if (error != 0 && error != ERESTART) {
            return refuse_to(caller, error == ETIMEDOUT && until <= aco_i_clock() ? EAGAIN : error);
        }
        watch.interval *= watch.interval < LAST_RETRY ? 2 : 1;
    }
}

HOOK(int, msgsnd, (int id, const void *message, size_t sz, int flags), (id, message, sz, flags),
     refuse(ENOSYS));
HOOK(ssize_t, msgrcv, (int id, void *message, size_t sz, long type, int flags),
     (id, message, sz, type, flags), refuse(ENOSYS));

static long try_msgsnd(sysv_t *call)
{
    return real_msgsnd(call->id, call->data, call->sz, call->flags | IPC_NOWAIT);
}

static long try_msgrcv(sysv_t *call)
{
    return real_msgrcv(call->id, call->data, call->sz, call->type, call->flags | IPC_NOWAIT);
}

int hook_msgsnd(int id, const void *message, size_t sz, int flags)
{
    sysv_t call = {QUEUE, id, EAGAIN, flags, try_msgsnd, (void *)(uintptr_t)message, sz, 0};
    if (is_in_task() && (flags & IPC_NOWAIT) == 0) {
        return (int)call_until(&call, NO_DEADLINE, CALLER);
    }
    int result = real_msgsnd(id, message, sz, flags);
    tell_change(QUEUE, id);
    return result;
}

ssize_t hook_msgrcv(int id, void *message, size_t sz, long type, int flags)
{
    sysv_t call = {QUEUE, id, ENOMSG, flags, try_msgrcv, message, sz, type};
    if (is_in_task() && (flags & IPC_NOWAIT) == 0) {
        return call_until(&call, NO_DEADLINE, CALLER);
    }
    ssize_t result = real_msgrcv(id, message, sz, type, flags);
    tell_change(QUEUE, id);
    return result;
}

HOOK(int, semtimedop, (int id, struct sembuf *ops, size_t ct, const struct timespec *t),
     (id, ops, ct, t), refuse(ENOSYS));

/* No time to wait, with the caller's flags: the kernel says EAGAIN. */
static long try_semop(sysv_t *call)
{
    return real_semtimedop(call->id, (struct sembuf *)call->data, call->sz, &past);
}

/* Whether an operation must not wait. libc gets such calls: of several operations, the kernel alone
 * knows which one has to wait. */
static int is_impatient(const struct sembuf *ops, size_t ct)
{
    for (size_t i = 0; i < ct; i++) {
        if ((ops[i].sem_flg & IPC_NOWAIT) != 0) {
            return 1;
        }
    }
    return 0;
}

#define MOST_OPS 500u /* the kernel takes no more */

int hook_semtimedop(int id, struct sembuf *ops, size_t ct, const struct timespec *t)
{
    sysv_t call = {SEMAPHORES, id, EAGAIN, 0, try_semop, ops, ct, 0};
    if (is_in_task() && (t == NULL || is_valid_time(t)) && ct <= MOST_OPS &&
        !is_impatient(ops, ct)) {
        return (int)call_until(&call, end_of(t), CALLER);
    }
    int result = real_semtimedop(id, ops, ct, t);
    tell_change(SEMAPHORES, id);
    return result;
}

HOOK(int, semop, (int id, struct sembuf *ops, size_t ct), (id, ops, ct), refuse(ENOSYS))
{
    if (is_in_task()) {
        return NESTED(hook_semtimedop(id, ops, ct, NULL));
    }
    int result = real_semop(id, ops, ct);
    tell_change(SEMAPHORES, id);
    return result;
}
