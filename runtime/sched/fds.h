// SPDX-License-Identifier: Apache-2.0
/* The entry of a descriptor: fds.c keeps it; fd_hints.c and fd_wait.c in io/ use it, too. */
#ifndef ACO_RUNTIME_FDS_H
#define ACO_RUNTIME_FDS_H

#include "sched/sched.h"

struct aco_i_fd_s {
    queue_t waiting;
    loop_t *loop;        /* that watches it; NULL: none */
    moment_t moment;     /* atomic */
    uint32_t drained_at; /* a short read left nothing at this count of events; atomic */
    uint32_t asked_at;   /* count of all changes when the kernel was asked for `wait_limit` */
    uint32_t ct_changes; /* count of changes to this descriptor; atomic */
    int64_t watched_until, asked_until; /* when `loop` and `wait_limit` may be wrong */
    int64_t wait_limit[2]; /* ns, for input and output, of a blocking one; 0: not known */
    fd_t *next_cached;     /* in the list of a loop */
    lock_t lock;           /* for all but atomic fields */
    char missed_close;     /* a signal handler closed it while the lock was held; atomic */
    char is_ours;          /* only aco_close() closes it */
    char is_plain_tcp;     /* it had events of data alone; a short read leaves nothing; atomic */
    char is_cached;        /* in a loop's list of those that a wait has relied on */
    char is_no_socket;     /* a hint; atomic */
    char has_hung_up;      /* a hint; atomic */
    char has_stale_items;  /* epoll may know another file under this number, since a close unseen */
};

/* ---- fds.c ---- */

/* Whether a socket may have got a low water mark, SO_RCVLOWAT; atomic. */
extern HIDDEN int aco_i_low_water;

static inline int aco_i_has_low_water(void)
{
    return __atomic_load_n(&aco_i_low_water, __ATOMIC_RELAXED);
}

/* The present moment, which a caller takes before it tries a call. */
HIDDEN moment_t aco_i_moment(const fd_t *entry);

/* Makes a loop watch a descriptor: the one that does already, if tasks rely on it, or else `loop`,
 * the caller's. Returns 0; or 1 if its number is another file's by now: tasks that wait for the
 * former file are to be `woken`; or -1 with errno. The lock is held. */
HIDDEN int aco_i_watch_fd(int fd, fd_t *entry, loop_t *loop, aco_task_t **woken);

/* Until when an answer that the kernel gives now counts, for tasks of a loop; 0: only now. */
HIDDEN int64_t aco_i_cached_until(const loop_t *loop);

/* How many entries the thread holds: while it is not 0, a signal handler closes without locks. */
extern HIDDEN __thread int aco_i_ct_held_fds __attribute__((tls_model("initial-exec")));

HIDDEN void aco_i_on_missed_close(fd_t *entry);

/* Hold and release the lock of an entry. */
static inline void aco_i_lock_fd(fd_t *entry)
{
    __atomic_store_n(&aco_i_ct_held_fds, aco_i_ct_held_fds + 1, __ATOMIC_RELAXED);
    lock(&entry->lock);
}

static inline void aco_i_unlock_fd(fd_t *entry)
{
    unlock(&entry->lock);
    __atomic_store_n(&aco_i_ct_held_fds, aco_i_ct_held_fds - 1, __ATOMIC_RELAXED);
    if (!is_alone()) {
        __sync_synchronize(); /* the handler sets the flag, then tries the lock */
    }
    if (aco_unlikely(__atomic_load_n(&entry->missed_close, __ATOMIC_RELAXED))) {
        aco_i_on_missed_close(entry);
    }
}

static inline void forget_wait_limit(fd_t *entry)
{
    entry->wait_limit[0] = entry->wait_limit[1] = 0;
}

#endif
