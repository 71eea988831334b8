// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps an entry for each descriptor, with the tasks that wait for it and the loop that watches
 * it; closes descriptors.
 *
 * A call tries first and waits only if the kernel says EAGAIN, so an event that comes between the
 * two must not be lost. The entry of a descriptor counts its events and how often its number was
 * closed: the call takes this moment before it tries, and its wait ends at once if something has
 * happened since.
 *
 * The first loop with a task that waits for a descriptor watches it, edge-triggered and in both
 * directions, until it is closed. An event wakes all tasks that wait for its kind, of any loop,
 * and they try again, so an event too many does no harm. None is missed: when a descriptor is
 * added, epoll reports what is true then.
 *
 * A program may close a descriptor behind our back, and get its number again for another file.
 * Only descriptors from aco_accept4(), aco_dial() and aco_listen(), which aco_close() closes, are
 * known to be watched still. All others are added again at each wait: the kernel says EEXIST if
 * they are watched, and if it does not, the number is another file's by now. With hooks, the
 * answer counts for a while: see io/fd_hints.c.
 */
#include "sched/fds.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#define ENTRIES 1024 /* in a part */
#define PARTS 16384
#define WATCHED (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET)
#define CACHE_TIME 1000000000 /* ns for which answers of the kernel count, with hooks */

static fd_t *parts[PARTS]; /* atomic, and never freed */

/* Runs in a child: the notes are about the parent's descriptors. */
static void forget_descriptors(void)
{
    for (int i = 0; i < PARTS; i++) {
        if (parts[i] != NULL) {
            memset(parts[i], 0, ENTRIES * sizeof(*parts[i]));
        }
    }
}

static __attribute__((noinline)) fd_t *add_part(int i)
{
    static aco_i_fork_handler_t handler = {.fn = forget_descriptors};
    aco_i_at_fork(&handler);
    fd_t *part = (fd_t *)aco_i_allocate(ENTRIES * sizeof(*part));
    if (part == NULL) {
        return NULL;
    }
    memset(part, 0, ENTRIES * sizeof(*part));
    fd_t *there = NULL;
    if (!__atomic_compare_exchange_n(&parts[i], &there, part, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        aco_i_release(part);
        part = there;
    }
    return part;
}

fd_t *aco_i_fd(int fd)
{
    unsigned i = (unsigned)fd / ENTRIES;
    if (i >= PARTS) { /* or below 0 */
        errno = EBADF;
        return NULL;
    }
    fd_t *part = __atomic_load_n(&parts[i], __ATOMIC_ACQUIRE);
    if (aco_unlikely(part == NULL) && (part = add_part((int)i)) == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    return &part[(unsigned)fd % ENTRIES];
}

int aco_i_is_known(int fd)
{
    const fd_t *part = fd < 0 || fd >= ENTRIES * PARTS
                           ? NULL
                           : __atomic_load_n(&parts[fd / ENTRIES], __ATOMIC_ACQUIRE);
    return part != NULL;
}

moment_t aco_i_moment(const fd_t *entry)
{
    return (moment_t){__atomic_load_n(&entry->moment.ct_closed, __ATOMIC_ACQUIRE),
                      __atomic_load_n(&entry->moment.ct_events, __ATOMIC_ACQUIRE)};
}

int aco_i_sees_changes;

int64_t aco_i_cached_until(const loop_t *loop)
{
    return __atomic_load_n(&aco_i_sees_changes, __ATOMIC_RELAXED) ? loop->now + CACHE_TIME : 0;
}

/* Forgets a file whose descriptor is closed, or was, unseen. */
static void forget_file(fd_t *entry)
{
    forget_wait_limit(entry);
    entry->is_ours = 0;
    entry->watched_until = entry->asked_until = 0;
    __atomic_store_n(&entry->is_plain_tcp, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->is_no_socket, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->has_hung_up, 0, __ATOMIC_RELAXED);
}

int aco_i_low_water;

/* Sockets inherit the mark, and descriptors are copied: from now on, no entry is of a plain one. A
 * signal handler may call this, too, so no lock is taken. */
void aco_i_tell_low_water(void)
{
    __atomic_store_n(&aco_i_low_water, 1, __ATOMIC_SEQ_CST);
    keep_load_behind();
    for (int i = 0; i < PARTS; i++) {
        fd_t *part = __atomic_load_n(&parts[i], __ATOMIC_ACQUIRE);
        for (int j = 0; part != NULL && j < ENTRIES; j++) {
            __atomic_store_n(&part[j].is_plain_tcp, 0, __ATOMIC_SEQ_CST);
        }
    }
}

/* ==== Watching =============================================================================== */

/* Claims the tasks that wait for some of `events`, and takes them from the queue. Returns them,
 * linked by their `next`. */
static aco_task_t *claim_waiting(fd_t *entry, uint32_t events, outcome_t outcome)
{
    aco_task_t *first = NULL, **link = &first;
    for (node_t *node = entry->waiting.first, *next; node != NULL; node = next) {
        aco_task_t *task = node->task;
        next = node->next;
        if ((node->kind & events) != 0 && aco_i_claim(task, outcome)) {
            dequeue(node);
            task->next = NULL;
            *link = task;
            link = &task->next;
        }
    }
    return first;
}

/* Makes a loop watch a descriptor. Returns 1; 0 if it does already; or -1 with errno.
 *
 * An item of epoll outlives close() while a copy of the file's descriptor exists. When the file
 * gets its number back, its events would bear an old count of closes, and be dropped: so the item
 * gets the present count. */
static int add(int fd, fd_t *entry, const loop_t *loop)
{
    struct epoll_event event = {.events = WATCHED};
    event.data.u64 = (uint64_t)entry->moment.ct_closed << 32 | (uint32_t)fd;
    while (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        if (errno != EEXIST) {
            return -1;
        }
        entry->has_stale_items |= entry->loop == NULL;
        if (!entry->has_stale_items || epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, fd, &event) == 0) {
            return 0;
        }
        if (errno != ENOENT) { /* then it was closed meanwhile */
            return -1;
        }
    }
    return 1;
}

/* Enters an entry into the list of the caller's loop, unless it is in one. */
static void enter_cached(fd_t *entry, loop_t *loop)
{
    if (entry->is_cached) {
        return;
    }
    entry->is_cached = 1;
    entry->next_cached = loop->cached;
    if (loop->cached == NULL) {
        loop->cached_until = aco_i_cached_until(loop);
    }
    loop->cached = entry;
}

static void forget(int fd, fd_t *entry)
{
    struct epoll_event none = {0};
    if (entry->loop != NULL) {
        if (epoll_ctl(entry->loop->epoll_fd, EPOLL_CTL_DEL, fd, &none) != 0) {
            forget_file(entry); /* the file is gone, or only its descriptor */
            entry->has_stale_items = 1;
        }
        entry->loop = NULL;
    }
}

int aco_i_watch_fd(int fd, fd_t *entry, loop_t *loop, aco_task_t **woken)
{
    int64_t cached_until = aco_i_cached_until(loop);
    if (entry->loop != loop && entry->waiting.first == NULL) {
        forget(fd, entry);
    } else if (entry->loop != NULL && entry->is_ours) {
        return 0;
    } else if (entry->loop == loop && loop->now < entry->watched_until) {
        enter_cached(entry, loop);
        return 0;
    }
    int added = add(fd, entry, entry->loop != NULL ? entry->loop : loop);
    if (added != 0 && entry->loop != NULL) {
        entry->loop = added > 0 ? entry->loop : NULL;
        entry->has_stale_items = 1;
        forget_file(entry);
        *woken = claim_waiting(entry, UINT32_MAX, WAIT_CLOSED);
        return 1;
    }
    if (added < 0) {
        return -1;
    }
    entry->loop = entry->loop != NULL ? entry->loop : loop;
    entry->watched_until = entry->loop == loop ? cached_until : 0;
    if (loop->now < entry->asked_until && entry->asked_until != cached_until) {
        enter_cached(entry, loop); /* for its wait_limit */
    }
    loop->has_descriptors = 1;
    return 0;
}

void aco_i_on_event(uint64_t data, uint32_t events)
{
    fd_t *entry = aco_i_fd((int)(uint32_t)data);
    aco_task_t *woken = NULL;
    aco_i_lock_fd(entry);
    if (entry->moment.ct_closed == (uint32_t)(data >> 32)) {
        __atomic_store_n(&entry->moment.ct_events, entry->moment.ct_events + 1, __ATOMIC_RELEASE);
        if ((events & ~(uint32_t)(EPOLLIN | EPOLLOUT)) != 0) {
            __atomic_store_n(&entry->is_plain_tcp, 0, __ATOMIC_RELAXED);
        }
        if ((events & (EPOLLRDHUP | EPOLLHUP)) != 0) {
            __atomic_store_n(&entry->has_hung_up, 1, __ATOMIC_RELAXED);
        }
        woken = claim_waiting(entry, events, WAIT_EVENT);
    }
    aco_i_unlock_fd(entry);
    aco_i_wake_all(woken);
}

void aco_i_end_cached(loop_t *loop)
{
    fd_t *next = loop->cached;
    loop->cached = NULL;
    while (next != NULL) {
        fd_t *entry = next;
        aco_i_lock_fd(entry);
        next = entry->next_cached;
        entry->is_cached = 0;
        entry->watched_until = entry->asked_until = 0;
        aco_task_t *woken = claim_waiting(entry, UINT32_MAX, WAIT_RECHECK);
        aco_i_unlock_fd(entry);
        aco_i_wake_all(woken);
    }
}

void aco_i_forget_loop(loop_t *loop)
{
    aco_i_end_cached(loop);
    for (int i = 0; i < PARTS && loop->has_descriptors; i++) {
        fd_t *part = __atomic_load_n(&parts[i], __ATOMIC_ACQUIRE);
        for (int j = 0; part != NULL && j < ENTRIES; j++) {
            aco_task_t *woken = NULL; /* tasks of other runtimes: they find another loop */
            aco_i_lock_fd(&part[j]);
            if (part[j].loop == loop) {
                forget(i * ENTRIES + j, &part[j]);
                woken = claim_waiting(&part[j], UINT32_MAX, WAIT_EVENT);
            }
            aco_i_unlock_fd(&part[j]);
            aco_i_wake_all(woken);
        }
    }
    loop->has_descriptors = 0;
}

/* ==== New and closed ========================================================================= */

__thread int aco_i_ct_held_fds;

/*
 * Closing. POSIX lets signal handlers close descriptors, so
 *   - no lock is held while the kernel closes, which may also linger;
 *   - a handler that finds the lock held, perhaps by the thread that it interrupted, does without,
 *     and the holder looks again;
 *   - tasks are woken by the inbox of their loop, which looks at it soon.
 *
 * The waits of tasks end before the kernel closes. Until it has, others may begin to wait for the
 * same file, and once it has, for another one under its number. Both kinds of tasks try again then.
 */
static void wake_by_inbox(aco_task_t *first)
{
    loop_t *loop = aco_i_loop;
    if (first != NULL && loop != NULL) {
        end_turn(loop, 1);
    }
    while (first != NULL) {
        aco_task_t *task = first;
        first = task->next;
        aco_i_make_ready_by_inbox(task);
    }
}

static int lock_to_close(fd_t *entry)
{
    if (aco_likely(aco_i_ct_held_fds == 0)) {
        aco_i_lock_fd(entry);
        return 1;
    }
    __atomic_store_n(&aco_i_ct_held_fds, aco_i_ct_held_fds + 1, __ATOMIC_RELAXED);
    if (lock_at_once(&entry->lock)) {
        return 1;
    }
    __atomic_store_n(&aco_i_ct_held_fds, aco_i_ct_held_fds - 1, __ATOMIC_RELAXED);
    return 0;
}

/* All that wait try again; the kernel may watch another file by now. The lock is held. */
static aco_task_t *look_again(fd_t *entry)
{
    if (entry->loop != NULL) {
        entry->has_stale_items = 1;
        entry->loop = NULL;
        forget_file(entry);
    }
    return claim_waiting(entry, UINT32_MAX, WAIT_EVENT);
}

static void end_close(fd_t *entry)
{
    if (!lock_to_close(entry)) {
        __atomic_store_n(&entry->missed_close, 1, __ATOMIC_RELAXED);
        __sync_synchronize(); /* the holder frees the lock, then looks at the flag */
        if (!lock_to_close(entry)) {
            return;
        }
    }
    __atomic_store_n(&entry->missed_close, 0, __ATOMIC_RELAXED);
    aco_task_t *woken = look_again(entry);
    aco_i_unlock_fd(entry);
    wake_by_inbox(woken);
}

void aco_i_on_missed_close(fd_t *entry)
{
    KEEP_ERRNO();
    end_close(entry);
}

/* Ends the waits for a file whose descriptor is closed, or was, unseen. The lock is held. */
static aco_task_t *claim_for_close(fd_t *entry)
{
    __atomic_store_n(&entry->moment.ct_closed, entry->moment.ct_closed + 1, __ATOMIC_RELEASE);
    return claim_waiting(entry, UINT32_MAX, WAIT_CLOSED);
}

void aco_i_adopt_fd(int fd, int is_tcp, int is_ours)
{
    fd_t *entry = aco_i_fd(fd);
    if (entry == NULL) {
        return; /* nothing was noted of it either */
    }
    if (!lock_to_close(entry)) {
        end_close(entry);
        return;
    }
    aco_task_t *woken = claim_for_close(entry);
    entry->has_stale_items |= entry->loop != NULL;
    entry->loop = NULL;
    forget_file(entry);
    entry->is_ours = (char)is_ours;
    __atomic_store_n(&entry->is_plain_tcp, (char)is_tcp, __ATOMIC_SEQ_CST);
    keep_load_behind();
    if (__atomic_load_n(&aco_i_low_water, __ATOMIC_SEQ_CST)) {
        __atomic_store_n(&entry->is_plain_tcp, 0, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&entry->drained_at, entry->moment.ct_events - 1, __ATOMIC_RELAXED);
    aco_i_unlock_fd(entry);
    wake_by_inbox(woken);
}

int aco_i_close_by(int fd, int (*fn)(void *arg), void *arg)
{
    fd_t *entry = aco_i_fd(fd);
    if (entry == NULL) {
        return fn(arg);
    }
    if (lock_to_close(entry)) {
        aco_task_t *woken = claim_for_close(entry);
        forget(fd, entry); /* a copy of the descriptor would keep it watched */
        forget_file(entry);
        aco_i_unlock_fd(entry);
        wake_by_inbox(woken);
    }
    int result = fn(arg);
    KEEP_ERRNO();
    result = result < 0 && errno == EINTR ? 0 : result; /* it is closed all the same */
    end_close(entry);
    return result;
}

static int do_close(void *arg)
{
    return aco_i_libc.close((int)(intptr_t)arg);
}

int aco_close(int fd)
{
    return aco_i_close_by(fd, do_close, (void *)(intptr_t)fd);
}
