// SPDX-License-Identifier: Apache-2.0
/*
 * A libFuzzer target. Its input is a program, a few bytes per operation, which main and the
 * coroutines follow in turn: both resume, cancel, create, copy, reset, restart by hand and destroy
 * coroutines, hand them over, make and destroy share stacks, and change control words. A coroutine
 * also goes deeper, returns, and at any depth yields, to its parent or to another child of that,
 * and exits. It may do all this when it leaves a level, too, be it because it is cancelled. Main
 * lets another thread go on with those that are detached. The model says after every operation what
 * must be true. At the end all coroutines return from all their levels and exit, and all is freed.
 *
 * Relies on model.h, on the optional parts that switch, and on no_inline.h. Compiled with
 * -fexceptions, as aco_cancel.h wants it.
 */
#include "model.h"

#include "extra/cancel/aco_cancel.h"
#include "extra/exceptions/aco_exceptions.h"
#include "extra/threads/aco_threads.h"
#include "extra/value/aco_value.h"
#include "tests/no_inline.h"

#include <alloca.h>
#include <pthread.h>

#define LEVEL_RESERVE ((size_t)10 << 10) /* bytes that a level leaves for what it calls */
#define LEVEL_STEP 16u                   /* bytes; the largest level has 255 times as many */
#define SMALL_LEVEL_SZ 16u               /* bytes */
#define ALIGNED_LEVEL_SZ 128u            /* bytes; its alignment, too */

/* Where a function may go on in another thread without more ado: see aco_threads.h. */
#if defined(ACO_ARCH_X86_64) || defined(ACO_ARCH_I386)
#define MAY_CHANGE_THREADS 1
#else
#define MAY_CHANGE_THREADS 0
#endif

#define INLINE static inline __attribute__((always_inline))

/* ==== Resume ================================================================================== */

/* The value that the program passes to another side, not NULL. */
static void *take_value(void)
{
    return &model.args[take() % ARG_CT];
}

INLINE void resume_with_value(slot_t *slot)
{
    void *value = take_value();
    model.last_given = value;
    model_resume(slot, value);
    value = aco_resume_value(slot->co, value);
    CHECK(value == model.returned);
}

/* One in init ends at once. */
INLINE void cancel(slot_t *slot)
{
    int is_init = (slot->state & IN_INIT) != 0;
    model_resume(slot, NULL);
    if (is_init) {
        slot->state = ENDED;
        model.returned = NULL;
    } else {
        slot->is_unwinding = 1;
    }
    slot->is_being_cancelled = 1;
    int is_end = aco_cancel(slot->co);
    slot->is_being_cancelled = 0;
    CHECK(is_end == (slot->state == ENDED));
}

/* After one has yielded or exited to `self`. */
static void come_back(slot_t *self)
{
    slot_t *slot = model.running;
    model.running = self;
    CHECK(slot->parent == self);
    if (slot->state == ENDED) {
        model_forget_frames(slot);
        if (!slot->is_ended_by_hand) {
            slot->place->owner = NULL;
        }
    } else {
        CHECK(slot->state == YIELDED);
        model_yielded(slot);
    }
    if (STRESS) {
        model_evict(slot->place);
    }
    check_everything();
}

static int wants_exceptions_kept(const slot_t *slot)
{
    return NOTES_CLEANUPS &&
           (slot->is_unwinding || (model.running != NULL && model.running->is_unwinding));
}

/* Lets it run until it, or one that it has switched to, yields or exits. Compiled into main and
 * into every function that has a level. */
INLINE void resume(slot_t *slot)
{
    slot_t *self = model.running;
    unsigned way = take() % 10;
    switch (way < 7 && wants_exceptions_kept(slot) ? 7 : way) {
    default:
        model_resume(slot, NULL);
        aco_resume(slot->co);
        break;
    case 3:
    case 4:
        model_resume(slot, NULL);
        no_inline_resume(slot->co);
        break;
    case 5:
    case 6:
        resume_with_value(slot);
        break;
    case 7:
        model_resume(slot, NULL);
        aco_exceptions_resume(slot->co);
        break;
    case 8:
    case 9:
        cancel(slot);
    }
    come_back(self);
}

/* A child that is half unwound, or has such a descendant; NULL if there is none. */
static slot_t *find_unsettled_child(void)
{
    for (size_t i = 0; i < SLOT_CT; i++) {
        slot_t *slot = &model.slots[i];
        if (slot->state == YIELDED && slot->thread == model.thread &&
            slot->parent == model.running && !is_settled(slot)) {
            return slot;
        }
    }
    return NULL;
}

/* Nobody else can, once their parent has ended. */
static NOINLINE void finish_children(void)
{
    slot_t *self = model.running, *slot;
    while ((slot = find_unsettled_child()) != NULL) {
        CHECK(may_resume(slot));
        cancel(slot);
        come_back(self);
    }
}

/* ==== Yield and exit ========================================================================== */

INLINE void yield_value(slot_t *slot)
{
    void *value = take_value();
    model.returned = value;
    value = aco_yield_value(value);
    model_arrive();
    CHECK(value == slot->given);
}

INLINE void yield(slot_t *slot)
{
    slot->state = YIELDED;
    model.returned = NULL;
    switch (take() % 6) {
    case 0:
        aco_yield();
        break;
    case 1:
        aco_yield1(slot->co);
        break;
    case 2:
        no_inline_yield();
        break;
    case 3:
        aco_movable_yield();
        break;
    case 4:
        aco_exceptions_yield();
        break;
    case 5:
        yield_value(slot);
    }
    model_arrive();
    check_everything();
}

INLINE void yield_to(slot_t *slot, slot_t *to)
{
    slot->state = YIELDED;
    model.outgoing = slot;
    model.incoming = to;
    if (take() % 3 != 0) {
        aco_yield_to(to->co);
    } else {
        no_inline_yield_to(to->co);
    }
    model_arrive();
    check_everything();
}

/* Digest of the frames further out than the one at `frame`, which lie still while that one runs. */
static uint64_t digest_from(const slot_t *slot, const char *frame)
{
    const char *high = (const char *)slot->place->s->align_retptr;
    return digest_of(frame, (size_t)(high - frame));
}

/* Suspends the coroutine in the way that `operation` says, or not, if there is none to run. */
INLINE void wait(slot_t *slot, operation_t operation)
{
    const char *frame = (const char *)__builtin_frame_address(0);
    uint64_t digest = digest_from(slot, frame);
    slot->innermost = frame;
    if (operation == YIELD) {
        yield(slot);
    } else {
        slot_t *other = pick(RESUMABLE, operation == RESUME ? may_resume : may_yield_to);
        if (other != NULL && operation == RESUME) {
            resume(other);
        } else if (other != NULL) {
            yield_to(slot, other);
        }
    }
    CHECK(digest_from(slot, frame) == digest);
}

static void become_ended(slot_t *slot)
{
    finish_children();
    slot->state = ENDED;
    slot->is_unwinding = 0;
    model.returned = NULL;
}

/* Ends the coroutine as programs of libaco do. */
ACO_NORETURN static void exit_by_hand(slot_t *slot)
{
    slot->is_ended_by_hand = 1;
    slot->place->is_forgotten = 1;
    slot->co->is_end = 1;
    slot->co->share_stack->owner = NULL;
    slot->co->share_stack->align_validsz = 0;
    aco_yield1(slot->co);
    die_of("one that had ended by hand went on\n");
}

ACO_NORETURN static void end(slot_t *slot)
{
    become_ended(slot);
    switch (take() % 4) {
    case 0:
        aco_exit();
    case 1:
        aco_exit1(slot->co);
    case 2:
        no_inline_exit();
    default:
        exit_by_hand(slot);
    }
}

/* ==== Levels of recursion ===================================================================== */

typedef struct {
    slot_t *slot;
    void *data;
    size_t sz;
    uint32_t seed;
} level_t;

static operation_t next_of_coroutine(const slot_t *slot)
{
    static const operation_t operations[] = {
        YIELD,           DEEPER,       CREATE,      YIELD,    UP,        CHANGE_WORDS,
        YIELD,           DEEPER,       EXIT,        RESET_IT, RESUME,    DEEPER,
        DESTROY,         SET_ARG,      INIT_THREAD, COPY,     YIELD_TO,  RESUME,
        RESUME,          CREATE,       RESUME,      YIELD_TO, NEW_PLACE, DESTROY_PLACE,
        DETACH,          ATTACH,       MOVE,        RESUME,   YIELD,     RETURN_ENDS,
        YIELD_TO,        FORGET_OWNER, UP,          DEEPER,   RESUME,    YIELD,
        RESTART_BY_HAND,
    };
    if (model.next == model.end) {
        return model.is_at_end || slot->is_unwinding ? UP : YIELD;
    }
    return operations[take() % ARRAY_SZ(operations)];
}

static void go_deeper(slot_t *slot);

/* Runs a level until it returns, and perhaps again when it is left. */
INLINE void follow(level_t *level)
{
    slot_t *slot = level->slot;
    operation_t operation;
    while ((operation = next_of_coroutine(slot)) != UP) {
        if (operation == YIELD || operation == YIELD_TO || operation == RESUME) {
            wait(slot, operation);
            CHECK(is_from_seed(level->data, level->sz, level->seed));
        } else if (operation == DEEPER) {
            go_deeper(slot);
        } else if (operation != EXIT) {
            operate(operation);
        } else if (!slot->is_unwinding) {
            end(slot);
        }
    }
    CHECK(is_from_seed(level->data, level->sz, level->seed));
}

static NOINLINE void leave(level_t *level)
{
    CHECK(is_from_seed(level->data, level->sz, level->seed));
    check_everything();
    if (take() % 2 != 0) {
        follow(level);
    }
}

#define LEVEL __attribute__((cleanup(leave))) level_t

static level_t new_level(slot_t *slot, void *data, size_t sz)
{
    level_t level = {slot, data, sz, (uint32_t)(slot - model.slots) << 16 | ++slot->ct_levels};
    fill_from_seed(data, sz, level.seed);
    return level;
}

static NOINLINE void small_level(slot_t *slot, size_t sz)
{
    unsigned char data[SMALL_LEVEL_SZ];
    LEVEL level = new_level(slot, data, sz % (sizeof(data) + 1));
    follow(&level);
}

static NOINLINE void varying_level(slot_t *slot, size_t sz)
{
    LEVEL level = new_level(slot, alloca(sz), sz);
    follow(&level);
}

static NOINLINE void aligned_level(slot_t *slot, size_t sz)
{
    unsigned char data[ALIGNED_LEVEL_SZ] __attribute__((aligned(ALIGNED_LEVEL_SZ)));
    fill_from_seed(data, sizeof(data), (uint32_t)sz);
    CHECK((uintptr_t)data % ALIGNED_LEVEL_SZ == 0);
    {
        LEVEL level = new_level(slot, alloca(sz), sz);
        follow(&level);
    }
    CHECK(is_from_seed(data, sizeof(data), (uint32_t)sz));
}

/* In catching_level.cc, if that is linked. */
void catching_level(void (*follow)(void *), void (*leave)(void *), void *level)
    __attribute__((weak));

static void follow_at(void *level)
{
    follow((level_t *)level);
}

static void leave_at(void *level)
{
    leave((level_t *)level);
}

static NOINLINE void cxx_level(slot_t *slot, size_t sz)
{
    level_t level = new_level(slot, alloca(sz), sz);
    catching_level(follow_at, leave_at, &level);
}

/* Unless that would leave too little of the share stack. */
static NOINLINE void go_deeper(slot_t *slot)
{
    static void (*const levels[])(slot_t *, size_t) = {small_level, varying_level, aligned_level,
                                                       cxx_level};
    size_t ct_levels = ARRAY_SZ(levels) - (catching_level == NULL);
    unsigned choice = take();
    size_t sz = take() * LEVEL_STEP + choice / ct_levels % LEVEL_STEP;
    const char *here = (const char *)__builtin_frame_address(0);
    size_t room = (size_t)(here - (const char *)slot->co->share_stack->ptr);
    if (sz + LEVEL_RESERVE <= room) {
        levels[choice % ct_levels](slot, sz);
    }
}

/* ==== Entry function ========================================================================== */

static void leave_entry(slot_t **slot)
{
    if ((*slot)->is_unwinding) {
        become_ended(*slot);
    }
}

/* A coroutine that starts by a direct switch may find the value of one that has been reset
 * meanwhile. */
static void check_first_value(const slot_t *slot)
{
    void *value = aco_first_value();
    CHECK(value == slot->given || (slot->is_ferried && value == model.last_given));
}

void works(void)
{
    model_arrive();
    __attribute__((cleanup(leave_entry))) slot_t *slot = model.running;
    check_first_value(slot);
    check_everything();
    small_level(slot, take());
    if (!slot->returns || take() % 2 != 0) {
        end(slot);
    }
    become_ended(slot);
}

/* ==== Main and another thread ================================================================= */

static void begin_thread(int is_prepared)
{
    set_usual_words(model.thread);
    if (is_prepared) {
        init_thread();
    }
    for (size_t i = 0; i < MAIN_CT; i++) {
        model.thread->mains[i] = aco_create(NULL, NULL, 0, NULL, NULL);
    }
    check_everything();
}

static operation_t next_of_main(void)
{
    static const operation_t operations[] = {
        RESUME, CREATE, RESUME,      DESTROY,         RESUME,       CREATE, RESUME,
        RESUME, CREATE, RESUME,      SET_ARG,         CHANGE_WORDS, COPY,   INIT_THREAD,
        RESUME, MOVE,   RETURN_ENDS, NEW_PLACE,       FORGET_OWNER, RESUME, DESTROY_PLACE,
        DETACH, ATTACH, RESET_IT,    RESTART_BY_HAND, RUN_THREAD,   RESUME, RENEW_MAIN,
        RESUME, CREATE,
    };
    return operations[take() % ARRAY_SZ(operations)];
}

static void run_thread(void);

static void follow_in_main(unsigned limit)
{
    for (unsigned ct = 0; ct < limit && model.next != model.end; ct++) {
        operation_t operation = next_of_main();
        slot_t *slot;
        if (operation == RUN_THREAD) {
            run_thread();
        } else if (operation != RESUME) {
            operate(operation);
        } else if ((slot = pick(RESUMABLE, may_resume)) != NULL) {
            resume(slot);
        }
    }
}

/* Detaches what can be handed back, so that the first thread may go on with it. */
static void end_thread(void)
{
    finish_children();
    for (size_t i = 0; i < SLOT_CT; i++) {
        slot_t *slot = &model.slots[i];
        if ((slot->state & AT_REST) && slot->thread == model.thread && may_detach(slot)) {
            detach(slot);
        }
    }
    for (size_t i = 0; i < SLOT_CT; i++) {
        slot_t *slot = &model.slots[i];
        if (slot->state != ABSENT && slot->thread == model.thread) {
            destroy(slot);
        }
    }
    for (size_t i = 0; i < MAIN_CT; i++) {
        aco_destroy(model.thread->mains[i]);
    }
    CHECK(aco_get_co() == NULL);
}

static void *go_on(void *arg)
{
    thread_t *first = model.thread;
    memset(arg, 0, sizeof(thread_t));
    model.thread = (thread_t *)arg;
    begin_thread(take() % 2);
    follow_in_main(take() % 16);
    end_thread();
    model.thread = first;
    return NULL;
}

/* The first thread waits for the second, so all that one does is in order. */
static void run_thread(void)
{
    pthread_t thread;
    thread_t *second = &model.threads[1];
    if (MAY_CHANGE_THREADS && model.thread != second) {
        CHECK(pthread_create(&thread, NULL, go_on, second) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        check_everything();
    }
}

/* ==== Begin and end =========================================================================== */

static void set_up(const uint8_t *data, size_t sz)
{
    memset(&model, 0, sizeof(model));
    model.next = data;
    model.end = data + sz;
    model.thread = &model.threads[0];
    model.pool = aco_stack_pool_new((size_t)32 << 10, 0);
    new_place(&model.places[0], GUARDED, 1);
    new_place(&model.places[1], GUARDED, 0);
    new_place(&model.places[2], BARE, 0);
    for (size_t i = 0; i < SLOT_CT; i++) {
        model.slots[i].state = ABSENT;
    }
    begin_thread(1);
}

/* Lets the children of main return and exit, and leaves nothing behind. */
static void tear_down(void)
{
    model.is_at_end = 1;
    for (size_t i = 0; i < SLOT_CT; i++) {
        slot_t *slot = &model.slots[i];
        if ((slot->state & RESUMABLE) && may_resume(slot)) {
            resume(slot);
            CHECK(slot->state == ENDED);
        }
    }
    for (size_t i = 0; i < SLOT_CT; i++) {
        if (model.slots[i].state != ABSENT) {
            destroy(&model.slots[i]);
            check_everything();
        }
    }
    for (size_t i = 0; i < PLACE_CT; i++) {
        CHECK(model.places[i].state != DESTROYED);
        if (model.places[i].state == USABLE) {
            destroy_place(&model.places[i]);
        }
    }
    model_sweep();
    aco_stack_pool_destroy(model.pool);
    for (size_t i = 0; i < MAIN_CT; i++) {
        aco_destroy(model.thread->mains[i]);
    }
    CHECK(aco_get_co() == NULL);
    set_usual_words(model.thread);
}

/* ==== libFuzzer =============================================================================== */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz)
{
    set_up(data, sz);
    follow_in_main(UINT_MAX);
    tear_down();
    return 0;
}
