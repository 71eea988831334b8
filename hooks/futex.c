// SPDX-License-Identifier: Apache-2.0
/*
 * Futexes that are used by syscall(). Tasks wait for them in the hooks' own queues, plain threads
 * in the kernel's. A wake goes to tasks first, and to the kernel for those that are left.
 *
 * A word in memory that processes share may be changed by another process, or under another
 * address, and its wake reaches the kernel alone. A task that waits for one, without the private
 * flag, looks at the value again and again, each time after twice as long, and after LAST_LOOK at
 * most. The page table tells whether memory is shared. As that costs some us, only longer waits
 * ask.
 */
#include "waiting.h"

#include <limits.h>
#include <linux/futex.h>

HOOKS_OF(futex);

#define FIRST_LOOK 50000    /* ns after which a task looks at the value again */
#define LAST_LOOK 50000000  /* ns; the time doubles up to this */
#define LONG_WAIT 1000000   /* ns after which the page table is asked */
#define LEAST_ADDRESS 4096u /* no word lies below it */

/* ==== Shared memory ========================================================================== */

typedef struct {
    watch_t watch;
    const uint32_t *word;
    uint32_t value;
} shared_word_t;

/* Bits of an entry of /proc/self/pagemap. */
#define IS_PRESENT (UINT64_C(1) << 63)
#define IS_OF_FILE_OR_SHARED (UINT64_C(1) << 61)

/* Whether the memory of a word is known to be the process's own. */
static int is_own_memory(const uint32_t *word)
{
    KEEP_ERRNO();
    uint64_t entry = 0;
    struct iovec iov = {&entry, sizeof(entry)};
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return 0;
    }
    uint64_t page = (uintptr_t)word / (uintptr_t)sysconf(_SC_PAGESIZE);
    ssize_t sz = aco_i_libc.preadv(fd, &iov, 1, (int64_t)(page * sizeof(entry)));
    syscall(SYS_close, fd);
    return sz == sizeof(entry) && (entry & IS_PRESENT) != 0 && (entry & IS_OF_FILE_OR_SHARED) == 0;
}

static int is_over(watch_t *watch)
{
    const shared_word_t *shared = (shared_word_t *)watch;
    if (__atomic_load_n(shared->word, __ATOMIC_SEQ_CST) != shared->value) {
        return 1;
    }
    int was_short = watch->interval < LONG_WAIT;
    watch->interval *= watch->interval < LAST_LOOK ? 2 : 1;
    if (was_short && watch->interval >= LONG_WAIT && is_own_memory(shared->word)) {
        watch->interval = 0;
    }
    return 0;
}

/* ==== Waiting ================================================================================ */

typedef struct {
    long number;
    const args_t *args;
    const void *caller;
    const uint32_t *word;
    int op, command;
    uint32_t value, bits;
    struct timespec time;
} futex_t;

/* The time that a call names; NULL if it names none. */
static const struct timespec *time_of(futex_t *f)
{
    const void *t = (const void *)f->args->at[3];
    if (t == NULL) {
        return NULL;
    }
    memcpy(&f->time, t, sizeof(f->time));
#ifdef SYS_futex_time64
    if (f->number == SYS_futex_time64) {
        int64_t large[2];
        memcpy(large, t, sizeof(large));
        f->time.tv_sec = large[0] > INT_MAX ? INT_MAX : large[0] < 0 ? -1 : (time_t)large[0];
        f->time.tv_nsec = (long)large[1];
    }
#endif
    return &f->time;
}

static long wait_until(const futex_t *f, const limit_t *limit)
{
    shared_word_t shared = {{is_over, FIRST_LOOK}, f->word, f->value};
    int error;
    do {
        if (!aco_i_begin_wait_for_wake(f->word, f->value, f->bits)) {
            return refuse(EAGAIN);
        }
        error = aco_i_end_wait(limit, (f->op & FUTEX_PRIVATE_FLAG) == 0 ? &shared.watch : NULL);
    } while (error == ERESTART);
    return error == 0 ? 0 : refuse(error);
}

/* Without a time limit, it waits in any case: callers take a failure for a wake and wait again, or
 * end the program. */
static long wait_in_task(futex_t *f)
{
    limit_t limit = {.time = time_of(f), .clock = CLOCK_MONOTONIC, .caller = f->caller};
    limit.signals = limit.time == NULL ? SIGNALS_RESTART : SIGNALS_FAIL;
    int is_realtime = (f->op & FUTEX_CLOCK_REALTIME) != 0;
    if (limit.time == NULL) {
        aco_shielded
        {
            return wait_until(f, &limit);
        }
    }
    if (!is_valid_time(limit.time) || (f->command == FUTEX_WAIT && is_realtime)) {
        return aco_i_libc_syscall(f->number, f->args); /* fails at once */
    }
    if (f->command == FUTEX_WAIT) {
        f->time = timespec_of(aco_i_after(ns_of(limit.time)));
    } else if (is_realtime) {
        limit.clock = CLOCK_REALTIME;
    }
    return wait_until(f, &limit);
}

/* ==== Waking ================================================================================= */

/* Whether a task waits for a word, or for another one in its bucket. The caller has changed the
 * word. */
static int has_tasks(const uint32_t *word)
{
    __sync_synchronize();
    return is_awaited(word);
}

/* Adds what the kernel woke to what the table did. */
static long sum_of(unsigned ct, long result)
{
    return result >= 0 ? (long)ct + result : ct != 0 ? (long)ct : result;
}

/* The kernel wakes one at least. */
static long wake(const futex_t *f)
{
    unsigned most = (int)f->value > 0 ? f->value : 1;
    unsigned ct = has_tasks(f->word) ? aco_i_wake_tasks(f->word, most, f->bits) : 0;
    if (ct == most) {
        return (long)ct;
    }
    args_t rest = *f->args;
    rest.at[2] = (long)(most - ct);
    return sum_of(ct, aco_i_libc_syscall(f->number, &rest));
}

static long requeue(const futex_t *f)
{
    args_t rest = *f->args;
    requeue_t r = {.word = f->word, .to = (const uint32_t *)rest.at[4]};
    if ((int)f->value < 0 || (int)rest.at[3] < 0 || !has_tasks(f->word)) {
        return aco_i_libc_syscall(f->number, &rest);
    }
    r.compares = f->command == FUTEX_CMP_REQUEUE;
    r.value = (uint32_t)rest.at[5];
    r.most_woken = f->value;
    r.most_moved = (unsigned)rest.at[3];
    if (!aco_i_requeue_tasks(&r)) {
        return refuse(EAGAIN);
    }
    rest.at[2] = (long)(r.most_woken - r.ct_woken);
    rest.at[3] = (long)(r.most_moved - r.ct_moved);
    return sum_of(r.ct_woken + r.ct_moved, aco_i_libc_syscall(f->number, &rest));
}

/* The kernel alone knows what the comparison has said, so tasks that wait for the second word look
 * for themselves. */
static long wake_by_operation(const futex_t *f)
{
    const uint32_t *second = (const uint32_t *)f->args->at[4];
    long result = aco_i_libc_syscall(f->number, f->args);
    unsigned ct = 0;
    if (result >= 0 && has_tasks(f->word)) {
        ct += aco_i_wake_tasks(f->word, f->value, UINT32_MAX);
    }
    if (result >= 0 && has_tasks(second)) {
        ct += aco_i_wake_tasks(second, (unsigned)f->args->at[3], UINT32_MAX);
    }
    return sum_of(ct, result);
}

/* ==== Any ==================================================================================== */

long aco_i_futex(long number, const args_t *args, const void *caller)
{
    futex_t f = {.number = number, .args = args, .bits = FUTEX_BITSET_MATCH_ANY, .caller = caller};
    f.word = (const uint32_t *)args->at[0];
    f.op = (int)args->at[1];
    f.command = f.op & FUTEX_CMD_MASK;
    f.value = (uint32_t)args->at[2];
    if (f.command == FUTEX_WAIT_BITSET || f.command == FUTEX_WAKE_BITSET) {
        f.bits = (uint32_t)args->at[5];
    }
    int is_right = (uintptr_t)f.word % sizeof(uint32_t) == 0 &&
                   (uintptr_t)f.word >= LEAST_ADDRESS && f.bits != 0;
    switch (is_right ? f.command : -1) {
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET:
        return is_in_task() ? wait_in_task(&f) : aco_i_libc_syscall(number, args);
    case FUTEX_WAKE:
    case FUTEX_WAKE_BITSET:
        return wake(&f);
    case FUTEX_REQUEUE:
    case FUTEX_CMP_REQUEUE:
        return requeue(&f);
    case FUTEX_WAKE_OP:
        return wake_by_operation(&f);
    default:
        return aco_i_libc_syscall(number, args);
    }
}
