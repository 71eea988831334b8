// SPDX-License-Identifier: Apache-2.0
/*
 * Broadcasts. A ring holds the last items that were sent, once for all subscribers. Each subscriber
 * keeps its own position; a broadcast knows only those that wait for the next item.
 */
#include "sync/sync.h"

#include <errno.h>
#include <string.h>

struct aco_broadcast_s {
    lock_t lock;
    char is_closed;
    size_t item_sz, capacity;
    uint64_t ct; /* items that were sent; item i is in place i % capacity */
    queue_t waiting;
    size_t ct_waiting; /* calls that have waited, and may not have returned */
    char items[];
};

static const char no_broadcast[] = "the broadcast is NULL: pass what aco_broadcast_new() returned";

aco_broadcast_t *aco_broadcast_new(size_t item_sz, size_t capacity)
{
    if (capacity == 0) {
        errno = EINVAL;
        return NULL;
    }
    aco_broadcast_t *broadcast = (aco_broadcast_t *)new_with_items(sizeof(*broadcast), item_sz,
                                                                   capacity);
    if (broadcast != NULL) {
        broadcast->item_sz = item_sz;
        broadcast->capacity = capacity;
    }
    return broadcast;
}

void aco_broadcast_free(aco_broadcast_t *broadcast)
{
    need(broadcast, "aco_broadcast_free", no_broadcast);
    lock(&broadcast->lock);
    size_t ct_waiting = broadcast->ct_waiting;
    unlock(&broadcast->lock);
    if (ct_waiting != 0) {
        aco_i_misuse_of("aco_broadcast_free",
                        "a task waits for an item: close the broadcast, and let it end");
    }
    aco_i_release(broadcast);
}

static char *place_of(aco_broadcast_t *broadcast, uint64_t i)
{
    return broadcast->items + (size_t)(i % broadcast->capacity) * broadcast->item_sz;
}

/* Wakes all that wait, and releases the lock. */
static void unlock_and_wake_all(aco_broadcast_t *broadcast)
{
    aco_task_t *first = aco_i_claim_all(&broadcast->waiting);
    unlock(&broadcast->lock);
    aco_i_wake_all(first);
}

/* Locks a broadcast that is not closed; -1 with EPIPE if it is. */
static int lock_open(aco_broadcast_t *broadcast)
{
    lock(&broadcast->lock);
    if (broadcast->is_closed) {
        unlock(&broadcast->lock);
        errno = EPIPE;
        return -1;
    }
    return 0;
}

int aco_broadcast_send(aco_broadcast_t *broadcast, const void *item)
{
    need(broadcast, "aco_broadcast_send", no_broadcast);
    if (broadcast->item_sz != 0) {
        need(item, "aco_broadcast_send", "the item is NULL: pass where it is");
    }
    if (lock_open(broadcast) != 0) {
        return -1;
    }
    if (broadcast->item_sz != 0) {
        memcpy(place_of(broadcast, broadcast->ct), item, broadcast->item_sz);
    }
    broadcast->ct++;
    unlock_and_wake_all(broadcast);
    return 0;
}

int aco_broadcast_close(aco_broadcast_t *broadcast)
{
    need(broadcast, "aco_broadcast_close", no_broadcast);
    if (lock_open(broadcast) != 0) {
        return -1;
    }
    broadcast->is_closed = 1;
    unlock_and_wake_all(broadcast);
    return 0;
}

uint64_t aco_broadcast_subscribe(aco_broadcast_t *broadcast)
{
    need(broadcast, "aco_broadcast_subscribe", no_broadcast);
    lock(&broadcast->lock);
    uint64_t position = broadcast->ct;
    unlock(&broadcast->lock);
    return position;
}

/* Waits for the next item. The lock is held before and after. */
static outcome_t wait_for_item(aco_broadcast_t *broadcast, aco_task_t *self)
{
    self->node.task = self;
    enqueue(&broadcast->waiting, &self->node);
    aco_i_open_wait(self, FOR_RECV);
    broadcast->ct_waiting++;
    unlock(&broadcast->lock);
    outcome_t outcome = aco_i_wait(self);
    lock(&broadcast->lock);
    broadcast->ct_waiting--;
    dequeue(&self->node);
    return outcome;
}

/* Takes the item at `*position`, which was sent. The lock is held. */
static int take(aco_broadcast_t *broadcast, uint64_t *position, void *item)
{
    if (broadcast->ct - *position > broadcast->capacity) {
        *position = broadcast->ct - broadcast->capacity;
        errno = EOVERFLOW;
        return -1;
    }
    if (broadcast->item_sz != 0) {
        memcpy(item, place_of(broadcast, *position), broadcast->item_sz);
    }
    ++*position;
    return 1;
}

int aco_broadcast_recv(aco_broadcast_t *broadcast, uint64_t *position, void *item)
{
    aco_i_spend_call();
    need(broadcast, "aco_broadcast_recv", no_broadcast);
    need(position, "aco_broadcast_recv", "there is no position: pass the address of one");
    if (broadcast->item_sz != 0) {
        need(item, "aco_broadcast_recv", "the item is NULL: pass where it goes");
    }
    lock(&broadcast->lock);
    if (*position > broadcast->ct) {
        aco_i_misuse_of("aco_broadcast_recv",
                        "no item has that position yet: begin with what "
                        "aco_broadcast_subscribe() returned");
    }
    while (*position == broadcast->ct && !broadcast->is_closed) {
        outcome_t outcome = wait_for_item(broadcast, aco_i_self());
        if (outcome != WAIT_EVENT) {
            unlock(&broadcast->lock);
            return aco_i_result(outcome);
        }
    }
    int result = *position == broadcast->ct ? 0 : take(broadcast, position, item);
    unlock(&broadcast->lock);
    return result;
}
