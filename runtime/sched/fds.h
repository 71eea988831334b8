// SPDX-License-Identifier: Apache-2.0
/* The entry of a descriptor, which poll.c keeps, and what descriptors.c knows of it. */
#ifndef ACO_RUNTIME_DESCRIPTORS_H
#define ACO_RUNTIME_DESCRIPTORS_H

#include "internal.h"

struct aco_i_fd_s {
    queue_t waiting;
    loop_t *loop; /* that watches it; NULL: none */
    moment_t moment;
    uint32_t drained_at; /* a short read left nothing at this count of events */
    uint32_t asked_at;   /* count of all changes when the kernel was asked for `patience` */
    uint32_t ct_changes; /* by this number; atomic */
    int64_t watched_until, asked_until; /* when `loop` and `patience` may be wrong */
    int64_t patience[2]; /* ns, for input and output, of a blocking one; 0: not known */
    fd_t *next_trusted;  /* in the list of a loop */
    lock_t lock;         /* of all but what says otherwise; held across its close() */
    char is_closing;
    char is_ours;      /* only aco_close() closes it */
    char is_simple;    /* no event but those of data; a short read leaves nothing */
    char is_trusted;   /* in a loop's list of those that a wait has relied on */
    char is_no_socket; /* a hint; atomic */
    char has_hung_up;  /* a hint; atomic */
};

/* Of a number that is closed, or was, unseen. */
HIDDEN void aco_i_forget_file(fd_t *entry);
/* Until when what the kernel says now counts, for tasks of a loop; 0: no longer. */
HIDDEN int64_t aco_i_end_of_trust(const loop_t *loop);

#endif
