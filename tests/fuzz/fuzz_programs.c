// SPDX-License-Identifier: Apache-2.0
/*
 * A libFuzzer target. Its input is a program, a few bytes per operation, which main and the
 * coroutines follow in turn: both resume their children, create, copy, reset and destroy other
 * coroutines, set arguments and change control words; a coroutine also goes deeper, returns, and at
 * any depth yields, to its parent or to another child of that, and exits. A model says after every
 * operation what must be true of all coroutines and share stacks. At the end all coroutines return
 * from all their levels and exit, and all is freed.
 *
 * What is not as the model says is a line on stderr and abort(), on whichever stack that is found.
 * Relies on aco.h, on harness.h for patterns and for where frames lie, on control_words.h and on
 * no_inline.h.
 */
#include "tests/control_words.h"
#include "tests/harness.h"
#include "tests/no_inline.h"

#include <alloca.h>

#define SLOT_CT 16
#define MAIN_CT 2
#define ARG_CT 8
#define LEVEL_RESERVE ((size_t)8 << 10) /* bytes that a level leaves for what it calls */
#define LEVEL_STEP 16u                  /* bytes; the largest level has 255 times as many */
#define SMALL_LEVEL_SZ 16u              /* bytes */
#define ALIGNED_LEVEL_SZ 128u           /* bytes; its alignment, too */

#ifdef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
#define IS_SHARED 1
#else
#define IS_SHARED 0
#endif

/* On any stack, however small: so nothing is formatted. */
#define CHECK(EX) ((EX) ? (void)0 : die_of(CHECK_PLACE "not so: " #EX "\n"))
#define CHECK_PLACE __FILE__ ":" ACO_STR(__LINE__) ": "

ACO_NORETURN static void die_of(const char *line)
{
    ssize_t written = write(STDERR_FILENO, line, strlen(line));
    (void)written;
    abort();
}

/* ==== Model =================================================================================== */

/* The states of a slot, of which a set may be named. */
enum {
    ABSENT = 1,
    FRESH = 2, /* in init, and never resumed */
    RESET = 4, /* in init again */
    RUNNING = 8,
    YIELDED = 16,
    ENDED = 32,
};
#define RESUMABLE (FRESH | RESET | YIELDED)
#define AT_REST (RESUMABLE | ENDED)
#define PRESENT (AT_REST | RUNNING)

typedef struct slot_s slot_t;
struct slot_s {
    unsigned state;
    aco_t *co;
    aco_t *original; /* whose copy it is, or NULL */
    aco_t *main_co;
    slot_t *parent; /* its main_co; NULL: a main coroutine, `nobody`: one that is destroyed */
    void *arg;
    unsigned stack;
    uint32_t words; /* its control words */
    uint32_t ct_levels;
    const char *innermost; /* frame of the function that yielded */
    size_t ct_save, ct_restore, max_cpsz;
    size_t live_sz;
    uint64_t digest; /* of its live frames */
};

static slot_t nobody;

/* One coroutine at a time is made on the first; the last has no guard page. */
enum { STANDALONE, SHARED, ANOTHER, SMALL, STACK_CT };
static const size_t stack_sizes[STACK_CT] = {(size_t)64 << 10, (size_t)64 << 10, (size_t)64 << 10,
                                             (size_t)12 << 10};

/* Bytes; the program chooses one of these, or one that is about as large as frames are. */
static const size_t save_stack_sizes[] = {0, 1, 9000, 100000};
#define SAVE_STACK_STEP 8u

static struct {
    const uint8_t *next, *end; /* the rest of the program */
    int is_at_end;             /* coroutines are to return and exit */
    aco_t *mains[MAIN_CT];
    aco_t *current_main;  /* NULL before the first resume */
    slot_t *running;      /* NULL in main */
    slot_t *outgoing;     /* has just switched to `incoming`, which does not know yet */
    slot_t *incoming;
    uint32_t main_words;  /* control words of main, or all there are */
    uint32_t start_words; /* those of new coroutines */
    aco_share_stack_t *stacks[STACK_CT];
    slot_t *owners[STACK_CT];
    slot_t slots[SLOT_CT];
    char args[ARG_CT];
} model;

/* The next byte of the program, or 0. */
static unsigned take(void)
{
    return model.next < model.end ? *model.next++ : 0;
}

/* A slot in one of `states` that `fits`, if this is given: the one that the program names or the
 * next such; NULL if there is none. */
static slot_t *pick(unsigned states, int (*fits)(const slot_t *slot))
{
    unsigned first = take();
    for (unsigned i = 0; i < SLOT_CT; i++) {
        slot_t *slot = &model.slots[(first + i) % SLOT_CT];
        if ((slot->state & states) && (fits == NULL || fits(slot))) {
            return slot;
        }
    }
    return NULL;
}

static int is_childless(const slot_t *slot)
{
    for (size_t i = 0; i < SLOT_CT; i++) {
        if (model.slots[i].state != ABSENT && model.slots[i].parent == slot) {
            return 0;
        }
    }
    return 1;
}

/* Its stack may be in use by one that waits for who resumes it. */
static int may_resume(const slot_t *slot)
{
    const slot_t *owner = model.owners[slot->stack];
    return slot->parent == model.running && (owner == NULL || owner->state != RUNNING);
}

static int may_yield_to(const slot_t *slot)
{
    const slot_t *owner = model.owners[slot->stack], *self = model.running;
    return slot->parent == self->parent && slot->main_co == self->main_co &&
           (owner == NULL || owner == self || owner->state != RUNNING);
}

/* Whether it runs, or waits for one that it has resumed. */
static int is_running(const slot_t *slot)
{
    const slot_t *running = model.running;
    while (running != NULL && running != slot) {
        running = running->parent;
    }
    return running != NULL;
}

static uint32_t slot_no(const slot_t *slot)
{
    return (uint32_t)(slot - model.slots);
}

/* Differs if any one word of the frames does. It reads between the variables, too, which is nothing
 * that AddressSanitizer should mind. */
aco_attr_no_asan static uint64_t digest_of(const char *frames, size_t sz)
{
    const uintptr_t *words = (const uintptr_t *)(const void *)frames;
    uint64_t digest = 0;
    for (size_t i = 0; i < sz / sizeof(*words); i++) {
        digest = (digest ^ words[i]) * 0x9e3779b97f4a7c15u;
    }
    return digest;
}

static void model_evict(unsigned stack)
{
    slot_t *owner = model.owners[stack];
    if (owner != NULL) {
        owner->ct_save++;
        if (owner->live_sz > owner->max_cpsz) {
            owner->max_cpsz = owner->live_sz;
        }
        model.owners[stack] = NULL;
    }
}

static void model_resume(slot_t *slot)
{
    if (model.owners[slot->stack] != slot) {
        model_evict(slot->stack);
        slot->ct_restore += slot->live_sz != 0;
        model.owners[slot->stack] = slot;
    }
    slot->state = RUNNING;
    model.running = slot;
    if (slot->parent == NULL) {
        model.current_main = slot->main_co;
    }
}

/* Its frames are what is found now, and must stay so. */
static void model_yielded(slot_t *slot)
{
    const char *sp = (const char *)slot->co->reg[ACO_REG_IDX_SP];
    slot->live_sz = live_sz(slot->co);
    slot->digest = digest_of(live_frames(slot->co), slot->live_sz);
    CHECK(sp <= slot->innermost && slot->innermost < sp + slot->live_sz);
}

/* What a coroutine does first when it is continued: after a direct switch, who was left has come to
 * rest only now. */
static void model_arrive(void)
{
    slot_t *outgoing = model.outgoing;
    if (outgoing != NULL) {
        model.outgoing = NULL;
        model_yielded(outgoing);
        model_resume(model.incoming);
    }
}

static void model_forget_frames(slot_t *slot)
{
    slot->live_sz = 0;
    slot->digest = 0;
}

/* ==== Control words =========================================================================== */

/* In the form of reg[ACO_REG_IDX_FPU], as all are here. */
#define USUAL_WORDS in_reg(usual)

static uint32_t *current_words(void)
{
    return IS_SHARED || model.running == NULL ? &model.main_words : &model.running->words;
}

/* With flags, which are nobody's. */
static void change_words(void)
{
    uint32_t choice = take();
    words_t words = sets[(choice & 0x7f) % ARRAY_SZ(sets)];
    *current_words() = in_reg(words);
    words.word |= choice & 0x80 ? MY_FLAGS : ITS_FLAGS;
    write_words(words);
}

/* ==== Checks ================================================================================== */

/* What is true of all that are not running: I2, I3 and what reg[] is said to hold. */
static void check_at_rest(const slot_t *slot)
{
    const aco_t *co = slot->co;
    const aco_save_stack_t *save = &co->save_stack;
    if (slot->state == ENDED) {
        CHECK(save->valid_sz == 0);
    } else {
        CHECK(live_sz(co) == slot->live_sz);
        CHECK(slot->live_sz <= co->share_stack->align_limit);
        CHECK(save->valid_sz == (co->is_owner ? 0 : slot->live_sz));
        CHECK(save->valid_sz <= save->sz);
        CHECK(digest_of(live_frames(co), slot->live_sz) == slot->digest);
    }
    if (slot->state & (FRESH | RESET)) {
        CHECK(co->reg[ACO_REG_IDX_RETADDR] == (void *)(uintptr_t)co->fp);
    }
#ifndef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
    uint32_t words = (uint32_t)(uintptr_t)co->reg[ACO_REG_IDX_FPU];
    CHECK((words & IN_REG) == slot->words);
#endif
}

static aco_status_t status_of(const slot_t *slot)
{
    switch (slot->state) {
    case RUNNING:
        return ACO_STATUS_RUNNING;
    case YIELDED:
        return ACO_STATUS_SUSPENDED;
    case ENDED:
        return ACO_STATUS_END;
    default:
        return ACO_STATUS_INIT;
    }
}

static void check_slot(const slot_t *slot)
{
    const aco_t *co = slot->co;
    const aco_save_stack_t *save = &co->save_stack;
    CHECK(co->main_co == slot->main_co);
    CHECK(co->arg == slot->arg);
    CHECK(aco_status(co) == status_of(slot));
    CHECK(co->share_stack == model.stacks[slot->stack]);
    CHECK(co->is_end == (slot->state == ENDED));
    CHECK(co->is_owner == (model.owners[slot->stack] == slot));
    CHECK(save->ct_save == slot->ct_save);
    CHECK(save->ct_restore == slot->ct_restore);
    CHECK(save->max_cpsz == slot->max_cpsz);
    CHECK(STRESS || slot->stack != STANDALONE || save->ct_save + save->ct_restore == 0);
    CHECK((co->blocks & ACO_BLOCK_SAVE_STACK) || slot->original != NULL ||
          is_save_stack_embedded(co));
    CHECK(slot->original == NULL || is_save_stack_embedded(slot->original));
    CHECK(is_running(slot) == (slot->state == RUNNING));
    if (slot->state == RUNNING) {
        CHECK(co->is_owner && save->valid_sz == 0);
    } else {
        check_at_rest(slot);
    }
}

static void check_stack(unsigned i)
{
    const aco_share_stack_t *s = model.stacks[i];
    size_t ct = 0;
    for (size_t j = 0; j < SLOT_CT; j++) {
        ct += model.slots[j].state != ABSENT && model.slots[j].stack == i;
    }
    CHECK(s->owner == (model.owners[i] == NULL ? NULL : model.owners[i]->co));
    CHECK(s->ct_coroutines == ct);
    CHECK(*(void **)s->align_retptr == (void *)(uintptr_t)aco_funcp_protector_asm);
}

/* What the one that runs, main or coroutine, is told of itself. */
static void check_current(void)
{
    const slot_t *running = model.running;
    const aco_t *co = running != NULL ? running->co : model.current_main;
    CHECK(aco_gtls_co == co && aco_get_co() == co && aco_co() == co);
    CHECK(running == NULL || aco_get_arg() == running->arg);
    CHECK(co == NULL || aco_is_main_co(co) == (running == NULL));
    CHECK((in_reg(read_words()) & IN_REG) == *current_words());
}

/* In a coroutine as well as in main. */
static void check_everything(void)
{
    check_current();
    for (size_t i = 0; i < SLOT_CT; i++) {
        if (model.slots[i].state != ABSENT) {
            check_slot(&model.slots[i]);
        }
    }
    for (unsigned i = 0; i < STACK_CT; i++) {
        check_stack(i);
    }
}

/* ==== What main and coroutines do ============================================================= */

static void works(void);

/* Sets who resumes it, and the stack that it is on: a parent that is a coroutine is on another. */
static void set_parent(slot_t *slot)
{
    unsigned choice = take(), main_no = choice / STACK_CT % MAIN_CT;
    unsigned parents = choice / STACK_CT / MAIN_CT % 4;
    slot_t *parent = parents == 0 ? pick(PRESENT, NULL) : parents == 1 ? model.running : NULL;
    unsigned stack = choice % STACK_CT;
    if (parent != NULL && parent->stack == stack) {
        stack = (stack + 1) % STACK_CT;
    }
    if (stack == STANDALONE && model.stacks[stack]->ct_coroutines != 0) {
        stack = parent != NULL && parent->stack == SHARED ? ANOTHER : SHARED;
    }
    slot->stack = stack;
    slot->parent = parent;
    slot->main_co = parent != NULL ? parent->co : model.mains[main_no];
}

static void create(slot_t *slot)
{
    unsigned size = take();
    size_t save_stack_sz =
        size < ARRAY_SZ(save_stack_sizes) ? save_stack_sizes[size] : size * SAVE_STACK_STEP;
    memset(slot, 0, sizeof(*slot));
    slot->state = ABSENT;
    set_parent(slot);
    slot->state = FRESH;
    slot->arg = &model.args[size % ARG_CT];
    slot->words = model.start_words;
    slot->co =
        aco_create(slot->main_co, model.stacks[slot->stack], save_stack_sz, works, slot->arg);
    CHECK(slot->co->save_stack.sz == (save_stack_sz == 0 ? 64 : save_stack_sz));
}

/* From now on the copy is run, with the memory of the original as its first save stack. */
static void copy(slot_t *slot)
{
    if (slot->original == NULL) {
        slot->original = slot->co;
        slot->co = (aco_t *)malloc(sizeof(*slot->co));
        CHECK(slot->co != NULL);
        *slot->co = *slot->original;
    }
}

/* The pattern by which programs reset a coroutine. */
static void reset_by_hand(slot_t *slot)
{
    aco_t *co = slot->co;
    co->reg[ACO_REG_IDX_RETADDR] = (void *)(uintptr_t)co->fp;
    co->reg[ACO_REG_IDX_SP] = co->share_stack->align_retptr;
    co->is_end = 0;
    co->save_stack.valid_sz = 0;
}

static void forget_owner(slot_t *slot)
{
    if (model.owners[slot->stack] == slot) {
        model.owners[slot->stack] = NULL;
    }
}

static void reset(slot_t *slot)
{
    if (take() % 2 == 0) {
        reset_by_hand(slot);
    } else {
        slot->arg = &model.args[take() % ARG_CT];
        slot->words = model.start_words;
        forget_owner(slot);
        aco_reset(slot->co, works, slot->arg);
    }
    slot->state = RESET;
    model_forget_frames(slot);
}

static void destroy(slot_t *slot)
{
    forget_owner(slot);
    for (size_t i = 0; i < SLOT_CT; i++) {
        if (model.slots[i].parent == slot) {
            model.slots[i].parent = &nobody;
        }
    }
    aco_destroy(slot->co);
    free(slot->original);
    slot->state = ABSENT;
}

static void set_arg(slot_t *slot)
{
    slot->arg = slot->co->arg = &model.args[take() % ARG_CT];
}

/* New coroutines start with the control words that the caller has. */
static void init_thread(void)
{
    aco_thread_init(NULL);
    model.start_words = *current_words();
}

typedef enum {
    RESUME,
    YIELD,
    YIELD_TO,
    DEEPER,
    UP,
    EXIT,
    CREATE,
    COPY,
    RESET_IT,
    DESTROY,
    SET_ARG,
    CHANGE_WORDS,
    INIT_THREAD,
} operation_t;

/* What acts on a slot that is in one of the given states. */
static const struct {
    unsigned states;
    int (*fits)(const slot_t *slot);
    void (*act)(slot_t *slot);
} deeds[] = {
    [CREATE] = {ABSENT, NULL, create},
    [COPY] = {FRESH, is_childless, copy},
    [RESET_IT] = {AT_REST, NULL, reset},
    [DESTROY] = {AT_REST, NULL, destroy},
    [SET_ARG] = {PRESENT, NULL, set_arg},
};

/* Any operation that main as well as a coroutine may be told. */
static void operate(operation_t operation)
{
    if (operation == CHANGE_WORDS) {
        change_words();
    } else if (operation == INIT_THREAD) {
        init_thread();
    } else {
        slot_t *slot = pick(deeds[operation].states, deeds[operation].fits);
        if (slot != NULL) {
            deeds[operation].act(slot);
        }
    }
    check_everything();
}

/* Lets it run until it, or one that it has switched to, yields or exits. Compiled into main and into
 * every function that has a level. */
static inline __attribute__((always_inline)) void resume(slot_t *slot)
{
    slot_t *self = model.running;
    model_resume(slot);
    if (take() % 3 < 2) {
        aco_resume(slot->co);
    } else {
        no_inline_resume(slot->co);
    }
    slot = model.running;
    model.running = self;
    CHECK(slot->parent == self);
    if (slot->state == ENDED) {
        model_forget_frames(slot);
        model.owners[slot->stack] = NULL;
    } else {
        CHECK(slot->state == YIELDED);
        model_yielded(slot);
        if (STRESS) {
            model_evict(slot->stack);
        }
    }
    check_everything();
}

/* ==== What coroutines do ====================================================================== */

static operation_t next_of_coroutine(void)
{
    static const operation_t operations[] = {
        YIELD,    DEEPER,   CREATE, YIELD,  UP,      CHANGE_WORDS, YIELD,       DEEPER,
        EXIT,     RESET_IT, RESUME, DEEPER, DESTROY, SET_ARG,      INIT_THREAD, COPY,
        YIELD_TO, RESUME,   RESUME, CREATE, RESUME,  YIELD_TO,
    };
    if (model.next == model.end) {
        return model.is_at_end ? UP : YIELD;
    }
    return operations[take() % ARRAY_SZ(operations)];
}

/* Of the frames further out than the one at `frame`, which lie still while that one runs. */
static uint64_t digest_from(const slot_t *slot, const char *frame)
{
    const char *high = (const char *)model.stacks[slot->stack]->align_retptr;
    return digest_of(frame, (size_t)(high - frame));
}

/* All ways to yield, to the parent or to `to`, each compiled into every function that has a level. */
static inline __attribute__((always_inline)) void yield(slot_t *slot, slot_t *to)
{
    slot->state = YIELDED;
    model.outgoing = to != NULL ? slot : NULL;
    model.incoming = to;
    unsigned choice = take() % 3;
    if (to != NULL && choice != 0) {
        aco_yield_to(to->co);
    } else if (to != NULL) {
        no_inline_yield_to(to->co);
    } else if (choice == 0) {
        aco_yield();
    } else if (choice == 1) {
        aco_yield1(slot->co);
    } else {
        no_inline_yield();
    }
    model_arrive();
    check_everything();
}

/* Suspends the coroutine in the way that `operation` says, or not, if there is nobody to run. */
static inline __attribute__((always_inline)) void wait(slot_t *slot, operation_t operation)
{
    const char *frame = (const char *)__builtin_frame_address(0);
    uint64_t digest = digest_from(slot, frame);
    slot->innermost = frame;
    if (operation == YIELD) {
        yield(slot, NULL);
    } else {
        slot_t *other = pick(RESUMABLE, operation == RESUME ? may_resume : may_yield_to);
        if (other != NULL && operation == RESUME) {
            resume(other);
        } else if (other != NULL) {
            yield(slot, other);
        }
    }
    CHECK(digest_from(slot, frame) == digest);
}

ACO_NORETURN static void end(slot_t *slot)
{
    slot->state = ENDED;
    switch (take() % 3) {
    case 0:
        aco_exit();
    case 1:
        aco_exit1(slot->co);
    default:
        no_inline_exit();
    }
}

static void go_deeper(slot_t *slot);

/* What a level of recursion does until it returns. */
static inline __attribute__((always_inline)) void follow(slot_t *slot, void *data, size_t sz)
{
    uint32_t seed = slot_no(slot) << 16 | ++slot->ct_levels;
    operation_t operation;
    fill_from_seed(data, sz, seed);
    while ((operation = next_of_coroutine()) != UP) {
        if (operation == YIELD || operation == YIELD_TO || operation == RESUME) {
            wait(slot, operation);
            CHECK(is_from_seed(data, sz, seed));
        } else if (operation == DEEPER) {
            go_deeper(slot);
        } else if (operation == EXIT) {
            end(slot);
        } else {
            operate(operation);
        }
    }
    CHECK(is_from_seed(data, sz, seed));
}

static NOINLINE void small_level(slot_t *slot, size_t sz)
{
    unsigned char data[SMALL_LEVEL_SZ];
    follow(slot, data, sz % (sizeof(data) + 1));
}

static NOINLINE void varying_level(slot_t *slot, size_t sz)
{
    follow(slot, alloca(sz), sz);
}

static NOINLINE void aligned_level(slot_t *slot, size_t sz)
{
    unsigned char data[ALIGNED_LEVEL_SZ] __attribute__((aligned(ALIGNED_LEVEL_SZ)));
    fill_from_seed(data, sizeof(data), (uint32_t)sz);
    CHECK((uintptr_t)data % ALIGNED_LEVEL_SZ == 0);
    follow(slot, alloca(sz), sz);
    CHECK(is_from_seed(data, sizeof(data), (uint32_t)sz));
}

/* Unless that would leave too little of the share stack. */
static NOINLINE void go_deeper(slot_t *slot)
{
    static void (*const levels[])(slot_t *, size_t) = {small_level, varying_level, aligned_level};
    unsigned choice = take();
    size_t sz = take() * LEVEL_STEP + choice / ARRAY_SZ(levels) % LEVEL_STEP;
    const char *here = (const char *)__builtin_frame_address(0);
    size_t room = (size_t)(here - (const char *)slot->co->share_stack->ptr);
    if (sz + LEVEL_RESERVE <= room) {
        levels[choice % ARRAY_SZ(levels)](slot, sz);
    }
}

/* The entry function of all. */
static void works(void)
{
    model_arrive();
    slot_t *slot = model.running;
    check_everything();
    small_level(slot, take());
    end(slot);
}

/* ==== What main does ========================================================================== */

static void follow_in_main(void)
{
    static const operation_t operations[] = {
        RESUME, CREATE, RESUME, DESTROY, RESUME,       CREATE, RESUME,      RESET_IT,
        RESUME, CREATE, RESUME, SET_ARG, CHANGE_WORDS, COPY,   INIT_THREAD, RESUME,
    };
    while (model.next != model.end) {
        operation_t operation = operations[take() % ARRAY_SZ(operations)];
        slot_t *slot;
        if (operation != RESUME) {
            operate(operation);
        } else if ((slot = pick(RESUMABLE, may_resume)) != NULL) {
            resume(slot);
        }
    }
}

static void set_up(const uint8_t *data, size_t sz)
{
    memset(&model, 0, sizeof(model));
    model.next = data;
    model.end = data + sz;
    model.main_words = model.start_words = USUAL_WORDS;
    write_words(usual);
    aco_thread_init(NULL);
    for (size_t i = 0; i < MAIN_CT; i++) {
        model.mains[i] = aco_create(NULL, NULL, 0, NULL, NULL);
    }
    for (size_t i = 0; i < STACK_CT; i++) {
        model.stacks[i] = i == SMALL ? aco_share_stack_new2(stack_sizes[i], 0)
                                     : aco_share_stack_new(stack_sizes[i]);
    }
    for (size_t i = 0; i < SLOT_CT; i++) {
        model.slots[i].state = ABSENT;
    }
    check_everything();
}

/* Lets the children of main return and exit, and leaves nothing behind. */
static void tear_down(void)
{
    model.is_at_end = 1;
    for (size_t i = 0; i < SLOT_CT; i++) {
        slot_t *slot = &model.slots[i];
        if ((slot->state & RESUMABLE) && slot->parent == NULL) {
            resume(slot);
            CHECK(slot->state == ENDED);
        }
        if (slot->state != ABSENT) {
            destroy(slot);
            check_everything();
        }
    }
    for (size_t i = 0; i < STACK_CT; i++) {
        aco_share_stack_destroy(model.stacks[i]);
    }
    for (size_t i = 0; i < MAIN_CT; i++) {
        aco_destroy(model.mains[i]);
    }
    CHECK(aco_get_co() == NULL);
    write_words(usual);
}

/* ==== libFuzzer =============================================================================== */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz)
{
    set_up(data, sz);
    follow_in_main();
    tear_down();
    return 0;
}
