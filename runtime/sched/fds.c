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

static __attribute__((noinline, cold)) void wait_for_close(const fd_t *entry)
{
    while (__atomic_load_n(&entry->is_closing, __ATOMIC_ACQUIRE)) {
        aco_i_libc.sched_yield();
    }
}

moment_t aco_i_moment(const fd_t *entry)
{
    for (;;) {
        moment_t moment = {__atomic_load_n(&entry->moment.ct_closed, __ATOMIC_ACQUIRE),
                           __atomic_load_n(&entry->moment.ct_events, __ATOMIC_ACQUIRE)};
        if (aco_likely(!__atomic_load_n(&entry->is_closing, __ATOMIC_ACQUIRE))) {
            return moment;
        }
        wait_for_close(entry);
    }
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
    lock(&entry->lock);
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
    unlock(&entry->lock);
    aco_i_wake_all(woken);
}

void aco_i_end_cached(loop_t *loop)
{
    fd_t *next = loop->cached;
    loop->cached = NULL;
    while (next != NULL) {
        fd_t *entry = next;
        lock(&entry->lock);
        next = entry->next_cached;
        entry->is_cached = 0;
        entry->watched_until = entry->asked_until = 0;
        aco_task_t *woken = claim_waiting(entry, UINT32_MAX, WAIT_RECHECK);
        unlock(&entry->lock);
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
            lock(&part[j].lock);
            if (part[j].loop == loop) {
                forget(i * ENTRIES + j, &part[j]);
                woken = claim_waiting(&part[j], UINT32_MAX, WAIT_EVENT);
            }
            unlock(&part[j].lock);
            aco_i_wake_all(woken);
        }
    }
    loop->has_descriptors = 0;
}

/* ==== New and closed ========================================================================= */

void aco_i_adopt_fd(int fd, int is_tcp, int is_ours)
{
    fd_t *entry = aco_i_fd(fd);
    if (entry == NULL) {
        return; /* nothing was noted of it either */
    }
    lock(&entry->lock);
    __atomic_store_n(&entry->moment.ct_closed, entry->moment.ct_closed + 1, __ATOMIC_RELEASE);
    aco_task_t *woken = claim_waiting(entry, UINT32_MAX, WAIT_CLOSED); /* it was closed unseen */
    entry->has_stale_items |= entry->loop != NULL;
    entry->loop = NULL;
    forget_file(entry);
    entry->is_ours = (char)is_ours;
    __atomic_store_n(&entry->is_plain_tcp, (char)is_tcp, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->drained_at, entry->moment.ct_events - 1, __ATOMIC_RELAXED);
    unlock(&entry->lock);
    aco_i_wake_all(woken);
}

int aco_i_close_by(int fd, int (*fn)(void *arg), void *arg)
{
    fd_t *entry = aco_i_fd(fd);
    if (entry == NULL) {
        return fn(arg);
    }
    lock(&entry->lock);
    __atomic_store_n(&entry->is_closing, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&entry->moment.ct_closed, entry->moment.ct_closed + 1, __ATOMIC_RELEASE);
    aco_task_t *woken = claim_waiting(entry, UINT32_MAX, WAIT_CLOSED);
    forget(fd, entry); /* a copy of the descriptor would keep it watched */
    forget_file(entry);
    int result = fn(arg);
    KEEP_ERRNO();
    result = result < 0 && errno == EINTR ? 0 : result; /* it is closed all the same */
    __atomic_store_n(&entry->is_closing, 0, __ATOMIC_RELEASE);
    unlock(&entry->lock);
    aco_i_wake_all(woken);
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
