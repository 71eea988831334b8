// own_memory.c shows no heap, and a limit that ends in a refusal.
// SPDX-License-Identifier: Apache-2.0
//
// Memory of one's own: coroutines that need no heap, and a limit that ends in no abort, by
// aco_create_in(), aco_share_stack_new_in(), aco_set_allocator(), aco_try_create() and
// aco_status().
/*
 * A device has room for three jobs, all of it here. A fourth is refused until one of the others has
 * ended. Nothing is ever allocated elsewhere: the allocator set here hands out what is left of the
 * room. It prints:
 *
 *     job 1 accepted
 *     job 2 accepted
 *     job 3 accepted
 *     job 4 refused: Cannot allocate memory
 *     job 1 is at step 1, job 2 is at step 1, job 3 is at step 1
 *     job 1 is at step 2, job 2 is at step 2, job 3 is at step 2
 *     job 1 is at an end, job 2 is at an end, job 3 is at an end
 *     job 4 accepted
 */
#include "aco.h"

#include <errno.h>

#define JOBS 3
#define STACK_SZ 16384 /* bytes */
#define ROOM_SZ 512    /* bytes of a coroutine and of what it keeps on the stack when it yields */

/* Aligned to 16, as coroutines want to be. */
typedef struct {
    char is_taken;
    __attribute__((aligned(16))) char bytes[ROOM_SZ];
} room_t;

static __attribute__((aligned(16))) char stack_memory[STACK_SZ], main_memory[ROOM_SZ];
static room_t rooms[JOBS];

static void *take_room(size_t sz)
{
    for (size_t i = 0; i < JOBS && sz <= ROOM_SZ; i++) {
        if (!rooms[i].is_taken) {
            rooms[i].is_taken = 1;
            return rooms[i].bytes;
        }
    }
    errno = ENOMEM;
    return NULL;
}

static void leave_room(void *ptr)
{
    for (size_t i = 0; i < JOBS; i++) {
        if (ptr == rooms[i].bytes) {
            rooms[i].is_taken = 0;
        }
    }
}

static void job(void)
{
    int *step = (int *)aco_get_arg();
    while (++*step < 3) {
        aco_yield();
    }
    aco_exit();
}

static aco_t *accept_job(aco_t *main_co, aco_share_stack_t *stack, int number, int *step)
{
    /* The aco_t leaves the rest of the room to its frames: they fit, so nothing grows. */
    size_t save_stack_sz = ROOM_SZ - (sizeof(aco_t) + 15) / 16 * 16;
    aco_t *co = aco_try_create(main_co, stack, save_stack_sz, job, step);
    if (co == NULL) {
        printf("job %d refused: %s\n", number, strerror(errno));
    } else {
        printf("job %d accepted\n", number);
    }
    return co;
}

static void tell(const aco_t *co, int number, int step)
{
    printf("%sjob %d is at ", number > 1 ? ", " : "", number);
    if (aco_status(co) == ACO_STATUS_END) {
        printf("an end");
    } else {
        printf("step %d", step);
    }
}

int main(void)
{
    aco_t *jobs[JOBS];
    int steps[JOBS + 1] = {0};
    aco_set_allocator(take_room, leave_room);
    aco_thread_init(NULL);
    aco_t *main_co = aco_create_in(main_memory, sizeof(main_memory), NULL, NULL, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new_in(stack_memory, sizeof(stack_memory));
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = accept_job(main_co, stack, i + 1, &steps[i]);
    }
    aco_t *fourth = accept_job(main_co, stack, JOBS + 1, &steps[JOBS]);
    while (aco_status(jobs[JOBS - 1]) != ACO_STATUS_END) {
        for (int i = 0; i < JOBS; i++) {
            aco_resume(jobs[i]);
            tell(jobs[i], i + 1, steps[i]);
        }
        printf("\n");
    }
    aco_destroy(jobs[0]);
    fourth = accept_job(main_co, stack, JOBS + 1, &steps[JOBS]);
    aco_destroy(fourth);
    for (int i = 1; i < JOBS; i++) {
        aco_destroy(jobs[i]);
    }
    aco_share_stack_destroy(stack);
    aco_destroy(main_co);
    return 0;
}
