// SPDX-License-Identifier: Apache-2.0
/*
 * Runs a program of a few threads in every way that the memory orders of C11 allow.
 *
 * The program is compiled with -fsanitize=thread and linked without its library: orders.c has the
 * functions that the compiler then calls at each access to memory. The sources need no change.
 */
#ifndef ACO_PROOF_ORDERS_H
#define ACO_PROOF_ORDERS_H

#include <stddef.h>
#include <stdint.h>

#define MOST_THREADS 4

typedef struct {
    const char *name;
    void (*fn)(void);       /* the first thread; called again for each execution */
    void (*at_switch)(int); /* the thread that goes on now; NULL: nothing to do */
} program_t;

/* Runs a program in every way, and returns how many whole executions there were; 0 if one fails,
 * which is printed. Threads share `memory` alone, and plain accesses to it must not race. All else
 * belongs to one thread, or keeps its value. */
size_t explore(const program_t *program, void *memory, size_t sz);

/* How many states of the last program were seen. */
extern size_t ct_states;

/* ---- For the program ---- */

/* Starts a thread, and waits for the end of one. */
int start_thread(void (*fn)(void));
void join_thread(int thread);

/* Ends the execution as a failure. */
void refuse(const char *rule) __attribute__((noreturn));

/* Marks memory as freed: no thread may access it any more. */
void free_memory(const void *memory, size_t sz);

/* Exchanges a value, with memory_order_acq_rel, once it may read one that is not 0, and returns
 * that. It may give up at any time, if told so, and then returns 0. */
int take_int(int *at, int value, int may_give_up);

/* Exchanges 0 for 1, with memory_order_acquire, once it may. */
void take_lock(char *at);

/* Called between two reads of a loop that waits for another value: the next read of the place that
 * was read last must give that. Operations that would change nothing are left out in this way. */
void await_change(void);

#endif
