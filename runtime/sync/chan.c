// SPDX-License-Identifier: Apache-2.0
/*
 * Channels and aco_select(). No task waits to send to a channel that is not full, or to receive
 * from one that is not empty: an item that can be passed on at once never waits.
 *
 * A task that waits has a node in the queue of each channel that it waits for. Whoever can serve
 * one of them claims the task's wait, so that the others can't.
 *
 * A freed channel stays locked until its memory is used again. So its next use finds the lock held,
 * and only then looks for the reason.
 */
#include "sync/sync.h"

#include <errno.h>
#include <string.h>

struct aco_chan_s {
    queue_t senders, receivers; /* first, as free() overwrites the start of a block */
    lock_t lock;
    char is_closed;
    unsigned freed; /* FREED once it was freed */
    size_t item_sz, capacity;
    size_t ct, first; /* items in `items`, a ring, and the oldest of them */
    char items[];
};

#define FREED 0xf4eedc4au

typedef enum { DONE, CLOSED, BLOCKED } progress_t;

static const char no_chan[] = "the channel is NULL: pass what aco_chan_new() returned";

aco_chan_t *aco_chan_new(size_t item_sz, size_t capacity)
{
    aco_chan_t *chan = (aco_chan_t *)new_with_items(sizeof(*chan), item_sz, capacity);
    if (chan != NULL) {
        chan->item_sz = item_sz;
        chan->capacity = capacity;
    }
    return chan;
}

/* Ends the process if the channel was freed and its memory was not used again. */
static inline void check_freed(const aco_chan_t *chan, const char *call)
{
    if (aco_unlikely(*(const volatile unsigned *)&chan->freed == FREED)) {
        aco_i_misuse_of(call, "the channel was freed: free it when no task will use it any more");
    }
}

static __attribute__((noinline, cold)) void lock_slowly(aco_chan_t *chan, const char *call)
{
    check_freed(chan, call);
    aco_i_lock_slowly(&chan->lock);
}

static inline void lock_chan(aco_chan_t *chan, const char *call)
{
    if (aco_unlikely(!lock_at_once(&chan->lock))) {
        lock_slowly(chan, call);
    }
}

void aco_chan_free(aco_chan_t *chan)
{
    need(chan, "aco_chan_free", no_chan);
    check_freed(chan, "aco_chan_free");
    if (chan->senders.first != NULL || chan->receivers.first != NULL) {
        aco_i_misuse_of("aco_chan_free",
                        "a task waits for the channel: close it, and let the task end");
    }
    /* Volatile: compilers drop stores before free(). */
    *(volatile char *)&chan->lock.is_held = 1;
    *(volatile unsigned *)&chan->freed = FREED;
    aco_i_release(chan);
}

/* ==== Without waiting ======================================================================== */

/* Most items are a pointer. */
static inline void copy_item(void *to, const void *from, size_t sz)
{
    if (sz == sizeof(void *)) {
        memcpy(to, from, sizeof(void *));
    } else {
        memcpy(to, from, sz);
    }
}

static void put(aco_chan_t *chan, const void *item)
{
    size_t i = chan->first + chan->ct++;
    i -= i < chan->capacity ? 0 : chan->capacity;
    copy_item(chan->items + i * chan->item_sz, item, chan->item_sz);
}

static void take(aco_chan_t *chan, void *item)
{
    copy_item(item, chan->items + chan->first * chan->item_sz, chan->item_sz);
    chan->first = chan->first + 1 < chan->capacity ? chan->first + 1 : 0;
    chan->ct--;
}

/* Takes the first node of a queue whose wait can be claimed, and notes its kind in the task; NULL
 * if there is none. */
static inline node_t *next_of(queue_t *queue, outcome_t outcome)
{
    node_t *node = queue->first;
    if (node == NULL) {
        return NULL;
    }
    int *wait = &node->task->wait;
    if (is_alone() && aco_likely(aco_i_ct_forks == 0) &&
        __atomic_load_n(wait, __ATOMIC_RELAXED) == WAIT_OPEN) {
        dequeue(node);
        __atomic_store_n(wait, (int)outcome, __ATOMIC_RELAXED); /* as aco_i_claim() would */
    } else {
        node = aco_i_claim_first(queue, outcome);
    }
    if (node != NULL) {
        node->task->selected = node->kind;
    }
    return node;
}

/* Both are called with the channel's lock held. After releasing it, the caller makes `*ready`
 * ready. */
static inline __attribute__((always_inline)) progress_t
send_at_once(aco_chan_t *chan, const void *item, aco_task_t **ready)
{
    if (chan->is_closed) {
        return CLOSED;
    }
    node_t *receiver = next_of(&chan->receivers, WAIT_EVENT);
    if (receiver != NULL) {
        copy_item(receiver->item, item, chan->item_sz);
        *ready = receiver->task;
        return DONE;
    }
    if (chan->ct == chan->capacity) {
        return BLOCKED;
    }
    put(chan, item);
    return DONE;
}

static inline __attribute__((always_inline)) progress_t
receive_at_once(aco_chan_t *chan, void *item, aco_task_t **ready)
{
    if (chan->ct != 0) {
        take(chan, item);
        node_t *sender = next_of(&chan->senders, WAIT_EVENT);
        if (sender != NULL) {
            put(chan, sender->item);
            *ready = sender->task;
        }
        return DONE;
    }
    node_t *sender = next_of(&chan->senders, WAIT_EVENT);
    if (sender != NULL) {
        copy_item(item, sender->item, chan->item_sz);
        *ready = sender->task;
        return DONE;
    }
    return chan->is_closed ? CLOSED : BLOCKED;
}

/* The result of a send or a receive. */
static int result_of(int is_send, progress_t progress)
{
    if (progress == DONE) {
        return is_send ? 0 : 1;
    }
    if (progress == CLOSED && !is_send) {
        return 0;
    }
    errno = progress == CLOSED ? EPIPE : EAGAIN;
    return -1;
}

int aco_chan_close(aco_chan_t *chan)
{
    need(chan, "aco_chan_close", no_chan);
    aco_task_t *first = NULL, **link = &first;
    lock_chan(chan, "aco_chan_close");
    int was_closed = chan->is_closed;
    chan->is_closed = 1;
    node_t *node;
    while ((node = next_of(&chan->senders, WAIT_CLOSED)) != NULL ||
           (node = next_of(&chan->receivers, WAIT_CLOSED)) != NULL) {
        *link = node->task;
        link = &node->task->next;
    }
    *link = NULL;
    unlock(&chan->lock);
    aco_i_wake_all(first);
    return was_closed ? result_of(1, CLOSED) : 0;
}

/* ==== One channel ============================================================================ */

/* Waits for the other side. The lock is held, and released; `item` stays where it is. */
static outcome_t wait_for_partner(aco_chan_t *chan, void *item, int is_send, aco_task_t *self)
{
    self->node.task = self;
    self->node.item = item;
    enqueue(is_send ? &chan->senders : &chan->receivers, &self->node);
    aco_i_open_wait(self, is_send ? FOR_SEND : FOR_RECV);
    unlock(&chan->lock);
    outcome_t outcome = aco_i_wait(self);
    if (outcome != WAIT_EVENT && outcome != WAIT_CLOSED) { /* else the channel may be freed */
        lock_chan(chan, is_send ? "aco_chan_send" : "aco_chan_recv");
        dequeue(&self->node);
        unlock(&chan->lock);
    }
    return outcome;
}

static int finish(int is_send, outcome_t outcome)
{
    return outcome == WAIT_EVENT    ? result_of(is_send, DONE)
           : outcome == WAIT_CLOSED ? result_of(is_send, CLOSED)
                                    : aco_i_result(outcome);
}

/* Passes an item that lies on a stack that others use meanwhile. */
static __attribute__((noinline)) int pass_by_copy(aco_chan_t *chan, void *item, int is_send)
{
    void *copy = aco_i_allocate(chan->item_sz == 0 ? 1 : chan->item_sz);
    if (copy == NULL) {
        errno = ENOMEM;
        return -1;
    }
    if (is_send) {
        memcpy(copy, item, chan->item_sz);
    }
    int result = is_send ? aco_chan_send(chan, copy) : aco_chan_recv(chan, copy);
    if (!is_send && result > 0) {
        memcpy(item, copy, chan->item_sz);
    }
    KEEP_ERRNO();
    aco_i_release(copy);
    return result;
}

/* Names of calls, by `may_wait` * 2 + `is_send`. */
static const char *const calls[] = {"aco_chan_try_recv", "aco_chan_try_send", "aco_chan_recv",
                                    "aco_chan_send"};

static __attribute__((noinline, cold)) ACO_NORETURN void fail(int call)
{
    aco_i_misuse_of(calls[call],
                    "the channel or the item is NULL: pass what aco_chan_new() "
                    "returned, and where an item is");
}

/* Sends or receives. Not inlined: senders and receivers that switch to each other then return to
 * the same address, which processors predict by a stack of their own that no switch changes. */
static __attribute__((noinline)) int pass(aco_chan_t *chan, void *item, int is_send, int may_wait)
{
    aco_task_t *ready = NULL;
    if (__builtin_expect(chan == NULL || (item == NULL && chan->item_sz != 0), 0)) {
        fail(may_wait * 2 + is_send);
    }
    if (aco_unlikely(!lock_at_once(&chan->lock))) {
        lock_slowly(chan, calls[may_wait * 2 + is_send]);
    }
    progress_t progress = is_send ? send_at_once(chan, item, &ready)
                                  : receive_at_once(chan, item, &ready);
    if (progress == BLOCKED && may_wait) {
        aco_task_t *self = aco_i_self();
        if (is_moved(self, item)) {
            unlock(&chan->lock);
            return pass_by_copy(chan, item, is_send);
        }
        return finish(is_send, wait_for_partner(chan, item, is_send, self));
    }
    unlock(&chan->lock);
    if (ready != NULL) {
        aco_i_make_ready(ready);
    }
    return result_of(is_send, progress);
}

int aco_chan_send(aco_chan_t *chan, const void *item)
{
    aco_i_spend_call();
    return pass(chan, (void *)(uintptr_t)item, 1, 1);
}

int aco_chan_recv(aco_chan_t *chan, void *item)
{
    aco_i_spend_call();
    return pass(chan, item, 0, 1);
}

int aco_chan_try_send(aco_chan_t *chan, const void *item)
{
    return pass(chan, (void *)(uintptr_t)item, 1, 0);
}

int aco_chan_try_recv(aco_chan_t *chan, void *item)
{
    return pass(chan, item, 0, 0);
}

/* ==== Several channels ======================================================================= */

/* The place of a task in the queue of one case, and more that it needs while it waits. */
typedef struct {
    node_t node;
    size_t order; /* index of the case that is tried in this turn */
    void *copy;   /* of an item on a stack that others use meanwhile; or NULL */
} case_place_t;

static uint32_t random_below(uint32_t ct)
{
    loop_t *loop = aco_i_loop;
    uint32_t state = loop != NULL ? loop->random : (uint32_t)aco_i_clock() | 1;
    state ^= state << 13; /* xorshift */
    state ^= state >> 17;
    state ^= state << 5;
    if (loop != NULL) {
        loop->random = state;
    }
    return (uint32_t)((uint64_t)state * ct >> 32);
}

static void set_result(aco_case_t *c, progress_t progress)
{
    KEEP_ERRNO();
    c->result = result_of(c->send != NULL, progress);
    c->error = c->result < 0 ? errno : 0;
}

static int copy_items(case_place_t *places, aco_case_t *cases, size_t ct, aco_task_t *self)
{
    for (size_t i = 0; i < ct; i++) {
        aco_case_t *c = &cases[i];
        const void *item = c->send != NULL ? c->send : c->recv;
        if (c->chan == NULL || !is_moved(self, item)) {
            continue;
        }
        size_t sz = c->chan->item_sz;
        places[i].copy = aco_i_allocate(sz == 0 ? 1 : sz);
        if (places[i].copy == NULL) {
            return -1;
        }
        if (c->send != NULL) {
            memcpy(places[i].copy, item, sz);
        }
    }
    return 0;
}

static void release_places(case_place_t *places, size_t ct)
{
    for (size_t i = 0; i < ct; i++) {
        aco_i_release(places[i].copy);
    }
    aco_i_release(places);
}

static case_place_t *new_places(aco_case_t *cases, size_t ct, int wait, aco_task_t *self)
{
    case_place_t *places = (case_place_t *)aco_i_allocate(ct * sizeof(*places));
    if (places == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    memset(places, 0, ct * sizeof(*places));
    for (size_t i = 0; i < ct; i++) { /* all orders are equally likely */
        size_t j = random_below((uint32_t)i + 1);
        places[i].order = places[j].order;
        places[j].order = i;
    }
    if (wait && copy_items(places, cases, ct, self) != 0) {
        release_places(places, ct);
        errno = ENOMEM;
        return NULL;
    }
    return places;
}

/* The caller has no two nodes in a row: see enqueue_case(). */
static int has_another(const queue_t *queue, const aco_task_t *self)
{
    const node_t *node = queue->first;
    while (node != NULL && node->task == self) {
        node = node->next;
    }
    return node != NULL;
}

static int is_possible(const aco_case_t *c, const aco_task_t *self)
{
    const aco_chan_t *chan = c->chan;
    return chan->is_closed ||
           (c->send != NULL ? has_another(&chan->receivers, self) || chan->ct < chan->capacity
                            : has_another(&chan->senders, self) || chan->ct != 0);
}

static progress_t do_case(aco_case_t *c, aco_task_t **ready)
{
    progress_t progress = c->send != NULL ? send_at_once(c->chan, c->send, ready)
                                          : receive_at_once(c->chan, c->recv, ready);
    if (progress != BLOCKED) {
        set_result(c, progress);
    }
    return progress;
}

/* Does the first case that can be done and returns its index; `ct`: none can. */
static size_t try_cases(aco_case_t *cases, const case_place_t *places, size_t ct)
{
    for (size_t i = 0; i < ct; i++) {
        aco_case_t *c = &cases[places[i].order];
        if (c->chan == NULL) {
            continue;
        }
        aco_task_t *ready = NULL;
        lock_chan(c->chan, "aco_select");
        progress_t progress = do_case(c, &ready);
        unlock(&c->chan->lock);
        if (ready != NULL) {
            aco_i_make_ready(ready);
        }
        if (progress != BLOCKED) {
            return places[i].order;
        }
    }
    return ct;
}

/* Enters a case, unless one that is like it is the last in the queue: it would be served first, and
 * is so in the random order of the turn. */
static void enqueue_case(const aco_case_t *c, case_place_t *place, size_t kind, aco_task_t *self)
{
    queue_t *queue = c->send != NULL ? &c->chan->senders : &c->chan->receivers;
    if (queue->last != NULL && queue->last->task == self) {
        return;
    }
    place->node.task = self;
    place->node.kind = kind;
    place->node.item = place->copy != NULL ? place->copy
                       : c->send != NULL   ? (void *)(uintptr_t)c->send
                                           : c->recv;
    enqueue(queue, &place->node);
}

/* Enters the open wait into the channels' queues; 1: one of them ends it, or has. 0: a case has
 * become possible meanwhile; the wait is closed, and the caller tries again. */
static int wait_for_cases(const aco_case_t *cases, case_place_t *places, size_t ct,
                          aco_task_t *self)
{
    for (size_t i = 0; i < ct; i++) {
        size_t kind = places[i].order;
        const aco_case_t *c = &cases[kind];
        if (c->chan == NULL) {
            continue;
        }
        lock_chan(c->chan, "aco_select");
        int is_ready = is_possible(c, self);
        if (!is_ready) {
            enqueue_case(c, &places[kind], kind, self);
        }
        unlock(&c->chan->lock);
        if (is_ready) {
            return !aco_i_close_wait(self);
        }
    }
    return 1;
}

static void leave_queues(const aco_case_t *cases, case_place_t *places, size_t ct)
{
    for (size_t i = 0; i < ct; i++) {
        if (cases[i].chan != NULL) {
            lock_chan(cases[i].chan, "aco_select");
            dequeue(&places[i].node);
            unlock(&cases[i].chan->lock);
        }
    }
}

static int select_by(aco_case_t *cases, case_place_t *places, size_t ct, int wait)
{
    aco_task_t *self = aco_i_self();
    for (;;) {
        size_t i = try_cases(cases, places, ct);
        if (i < ct) {
            return (int)i;
        }
        if (!wait) {
            errno = EAGAIN;
            return -1;
        }
        aco_i_open_wait(self, FOR_SELECT);
        outcome_t outcome = wait_for_cases(cases, places, ct, self) ? aco_i_wait(self) : WAIT_NONE;
        leave_queues(cases, places, ct);
        if (outcome == WAIT_EVENT || outcome == WAIT_CLOSED) {
            aco_case_t *c = &cases[self->selected];
            if (places[self->selected].copy != NULL && c->recv != NULL && outcome == WAIT_EVENT) {
                memcpy(c->recv, places[self->selected].copy, c->chan->item_sz);
            }
            set_result(c, outcome == WAIT_EVENT ? DONE : CLOSED);
            return (int)self->selected;
        }
        if (outcome != WAIT_NONE) {
            return aco_i_result(outcome);
        }
    }
}

int aco_select(aco_case_t *cases, size_t ct, int wait)
{
    size_t ct_valid = 0, ct_invalid = 0;
    if (cases == NULL && ct != 0) {
        aco_i_misuse_of("aco_select", "there are no cases: pass an array of `ct`");
    }
    if (wait) {
        aco_i_spend_call();
    }
    for (size_t i = 0; i < ct; i++) {
        if (cases[i].chan != NULL) {
            check_freed(cases[i].chan, "aco_select"); /* and its memory was not used again */
            int is_valid = (cases[i].send == NULL) != (cases[i].recv == NULL);
            ct_valid += (size_t)is_valid;
            ct_invalid += (size_t)!is_valid;
        }
    }
    if (ct > INT32_MAX || ct_invalid != 0 || (ct_valid == 0 && wait)) {
        errno = EINVAL;
        return -1;
    }
    case_place_t *places = new_places(cases, ct, wait, aco_i_self());
    if (places == NULL) {
        return -1;
    }
    int result = select_by(cases, places, ct, wait);
    KEEP_ERRNO();
    release_places(places, ct);
    return result;
}
