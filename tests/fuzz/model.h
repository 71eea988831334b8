// SPDX-License-Identifier: Apache-2.0
/*
 * The model that the random programs of this directory run against: some coroutines and share
 * stacks, and what must be true of each. A program is a sequence of bytes; each choice takes the
 * next ones.
 *   model.c          the model: how it changes, and the checks of the library against it
 *   operations.c     what main and coroutines may do to others, without a switch
 *   fuzz_programs.c  the switches: what main, coroutines and a second thread do
 * What is not as the model says is a line on stderr and abort(), on whichever stack that is found.
 * Relies on aco.h and its optional parts, on harness.h for patterns and for where frames lie.
 */
#ifndef ACO_TEST_FUZZ_MODEL_H
#define ACO_TEST_FUZZ_MODEL_H

#include "extra/stack_pool/aco_stack_pool.h"
#include "tests/harness.h"

#define SLOT_CT 16
#define PLACE_CT 6
#define MAIN_CT 2
#define ARG_CT 8

#ifdef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
#define IS_SHARED 1
#else
#define IS_SHARED 0
#endif

/* Where C++ keeps for the thread which exception runs a cleanup: see aco_cancel.h. */
#ifdef ACO_ARCH_ARM
#define NOTES_CLEANUPS 1
#else
#define NOTES_CLEANUPS 0
#endif

/* On any stack, however small: so nothing is formatted. */
#define CHECK(EX) ((EX) ? (void)0 : die_of(CHECK_PLACE "not so: " #EX "\n"))
#define CHECK_PLACE __FILE__ ":" ACO_STR(__LINE__) ": "
ACO_NORETURN void die_of(const char *line);

/* ==== Share stacks ============================================================================ */

typedef struct slot_s slot_t;

typedef enum { GONE, USABLE, DESTROYED } place_state_t; /* destroyed: before its coroutines */
typedef enum { GUARDED, BARE, IN_MEMORY, POOLED, KIND_CT } kind_t;

/* Where a share stack may be. */
typedef struct {
    place_state_t state;
    kind_t kind;
    int is_exclusive;       /* one coroutine at a time is made on it */
    int is_forgotten;       /* the program has set `owner` to NULL since the last change */
    unsigned ct_moved_away; /* coroutines that were set on another one before their start */
    slot_t *owner;          /* whose frames are in place */
    aco_share_stack_t *s;
    void *memory; /* of the kind IN_MEMORY */
} place_t;

/* ==== Coroutines ============================================================================== */

/* The states of a slot, of which a set may be named. */
enum {
    ABSENT = 1,
    FRESH = 2, /* in init, and never resumed */
    RESET = 4, /* in init again */
    RUNNING = 8,
    YIELDED = 16,
    ENDED = 32,
    DETACHED = 64,
};
#define IN_INIT (FRESH | RESET)
#define RESUMABLE (IN_INIT | YIELDED)
#define AT_REST (RESUMABLE | ENDED)
#define PRESENT (AT_REST | RUNNING)

typedef struct {
    aco_t *mains[MAIN_CT];
    aco_t *current_main;  /* NULL before the first resume */
    uint32_t main_words;  /* control words of main, or all there are */
    uint32_t start_words; /* those of new coroutines */
} thread_t;

/* Where a coroutine may be. */
struct slot_s {
    unsigned state;
    unsigned detached_state; /* what `state` is once it is attached */
    thread_t *thread;
    aco_t *co;
    aco_t *original; /* whose copy it is, or NULL */
    aco_t *main_co;
    slot_t *parent; /* its main_co; NULL: a main coroutine, `nobody`: none, or a destroyed one */
    void *arg;
    void *given; /* what it was resumed with */
    place_t *place;
    place_t *home;           /* which counts it: before a start, where it was made */
    char is_pooled;          /* made by the pool, together with its stack */
    char is_misplaced;       /* was set on another stack, and SP was not */
    char is_ferried;         /* was continued by a direct switch */
    char is_unwinding;       /* was cancelled and has not ended yet */
    char is_being_cancelled; /* its parent is in aco_cancel() */
    char is_lost;            /* its stack was destroyed with its frames */
    char is_ended_by_hand;
    char returns;   /* may return from its entry function */
    uint32_t words; /* its control words */
    uint32_t ct_levels;
    const char *innermost; /* frame of the function that yielded */
    size_t ct_save, ct_restore, max_cpsz, valid_sz;
    size_t live_sz;
    uint64_t digest; /* of its live frames */
};

/* The parent of those that have none. */
extern slot_t nobody;

extern struct model_s {
    const uint8_t *next, *end; /* the rest of the program */
    int is_at_end;             /* coroutines are to return and exit */
    thread_t threads[2];
    thread_t *thread;
    slot_t *running;  /* NULL in main */
    slot_t *outgoing; /* has just switched to `incoming`, which does not know yet */
    slot_t *incoming;
    void *returned;   /* passed by the last one that yielded or exited, to its parent */
    void *last_given; /* the last value that was passed to a coroutine */
    aco_stack_pool_t *pool;
    place_t places[PLACE_CT];
    slot_t slots[SLOT_CT];
    char args[ARG_CT];
} model;

/* The next byte of the program, or 0. */
unsigned take(void);

/* A slot of this thread in one of `states` that `fits`, if this is given: the one that the program
 * names or the next such; NULL if there is none. */
slot_t *pick(unsigned states, int (*fits)(const slot_t *slot));

/* ==== Questions =============================================================================== */

/* Whether it runs, or waits for one that it has resumed. */
int is_running(const slot_t *slot);

int is_childless(const slot_t *slot);

/* Whether all its ancestors are there. */
int is_connected(const slot_t *slot);

/* Whether neither it nor one of its descendants is half unwound: then it would leak. */
int is_settled(const slot_t *slot);

/* One that is half unwound itself may be reset when aco_cancel() has returned, but leaks then. */
int may_reset(const slot_t *slot);

/* Whether all coroutines on it are of this thread. */
int is_mine(const place_t *place);

/* How many coroutines start or have started there, or were made there. */
size_t ct_users(const place_t *place);

/* Whether the coroutine that runs, or main, may continue it by a resume, or by a direct switch. Its
 * stack may be in use by an ancestor of the resumer. */
int may_resume(const slot_t *slot);
int may_yield_to(const slot_t *slot);

/* Differs if any one word of the frames does. */
uint64_t digest_of(const char *frames, size_t sz);

/* ==== Changes ================================================================================= */

void model_evict(place_t *place);

/* It is about to run, given `value` by its parent. */
void model_resume(slot_t *slot, void *value);

/* Its frames are what is found now, and must stay so. */
void model_yielded(slot_t *slot);

/* Called first by a coroutine that is continued: after a direct switch, the one that was left has
 * come to rest only now. */
void model_arrive(void);

void model_forget_frames(slot_t *slot);
void model_forget_owner(slot_t *slot);

/* Forgets the share stacks that are destroyed and count no coroutine any more. */
void model_sweep(void);

/* ==== Control words =========================================================================== */

void set_usual_words(thread_t *thread);

/* Also raises flags, which belong to none. */
void change_words(void);

/* New coroutines start with the control words that the caller has. */
void init_thread(void);

/* ==== Checks and operations =================================================================== */

/* In a coroutine as well as in main, after the library has changed something. */
void check_everything(void);

/* Operations of main and of coroutines, and then those that only one of them may do. */
typedef enum {
    RESUME,
    CREATE,
    COPY,
    RESET_IT,
    RESTART_BY_HAND,
    RETURN_ENDS,
    MOVE,
    DETACH,
    ATTACH,
    DESTROY,
    SET_ARG,
    CHANGE_WORDS,
    INIT_THREAD,
    NEW_PLACE,
    DESTROY_PLACE,
    FORGET_OWNER,
    YIELD,
    YIELD_TO,
    DEEPER,
    UP,
    EXIT,
    RENEW_MAIN,
    RUN_THREAD,
} operation_t;

/* Does an operation that is no switch, and checks everything. */
void operate(operation_t operation);

/* Whether it may be handed to another thread; does that. */
int may_detach(const slot_t *slot);
void detach(slot_t *slot);

void destroy(slot_t *slot);
void new_place(place_t *place, kind_t kind, int is_exclusive);
void destroy_place(place_t *place);

/* Makes another main coroutine in the place of one of this thread's. */
void renew_main(void);

/* The entry function of all. */
void works(void);

#endif
