// SPDX-License-Identifier: Apache-2.0
/*
 * Implements the operations of model.h: what main and coroutines do to others, and to share stacks,
 * without a switch. Among them is what programs do by hand, without a call of the library.
 */
#include "model.h"

#include "extra/returning/aco_returning.h"
#include "extra/threads/aco_threads.h"

/* Bytes; the program chooses one of these, or one that is about as large as frames are. */
static const size_t save_stack_sizes[] = {0, 1, 9000, 100000};
#define SAVE_STACK_STEP 8u
#define LEAST_USUAL_SZ 64u /* bytes; what 0 stands for */
#define MOST_USUAL_SZ 512u

/* Bytes of a share stack in memory of the program. */
#define MEMORY_SZ ((size_t)32 << 10)

/* ==== Share stacks ============================================================================ */

void new_place(place_t *place, kind_t kind, int is_exclusive)
{
    memset(place, 0, sizeof(*place));
    place->state = USABLE;
    place->kind = kind;
    place->is_exclusive = is_exclusive;
    switch (kind) {
    case BARE:
        place->s = aco_share_stack_new2((size_t)16 << 10, 0);
        break;
    case IN_MEMORY:
        place->memory = malloc(MEMORY_SZ);
        place->s = aco_share_stack_new_in(place->memory, MEMORY_SZ);
        break;
    case POOLED:
        place->s = aco_stack_pool_get(model.pool);
        break;
    default:
        place->s = aco_share_stack_new((size_t)64 << 10);
    }
}

static place_t *find_gone_place(void)
{
    for (size_t i = 0; i < PLACE_CT; i++) {
        if (model.places[i].state == GONE) {
            return &model.places[i];
        }
    }
    return NULL;
}

static void make_place(void)
{
    unsigned choice = take();
    place_t *place = find_gone_place();
    if (place != NULL) {
        new_place(place, (kind_t)(choice % KIND_CT), choice / KIND_CT % 4 == 0);
    } else {
        aco_stack_pool_trim(model.pool);
    }
}

/* Not while a coroutine of it runs, or waits there for its start by hand, of which the library does
 * not know yet. One that is half unwound must be able to go on. A pool wants all to be gone. */
static int may_destroy_place(const place_t *place)
{
    if (place->state != USABLE || !is_mine(place)) {
        return 0;
    }
    if (place->kind == POOLED) {
        return ct_users(place) == 0;
    }
    for (size_t i = 0; i < SLOT_CT; i++) {
        const slot_t *slot = &model.slots[i];
        if (slot->state != ABSENT && slot->place == place &&
            (slot->state == RUNNING || slot->home != place || !is_settled(slot))) {
            return 0;
        }
    }
    return 1;
}

void destroy_place(place_t *place)
{
    slot_t *owner = place->owner;
    if (owner != NULL) {
        owner->is_lost = owner->live_sz != 0;
        place->owner = NULL;
    }
    place->state = DESTROYED;
    if (place->kind == POOLED) {
        aco_stack_pool_put(model.pool, place->s);
    } else {
        aco_share_stack_destroy(place->s);
    }
}

static void destroy_some_place(void)
{
    place_t *place = &model.places[take() % PLACE_CT];
    if (may_destroy_place(place)) {
        destroy_place(place);
    }
}

/* Does as programs of libaco that want nothing to be saved out. */
static void forget_owner(place_t *place, int is_sz_too)
{
    place->is_forgotten = 1;
    place->s->owner = NULL;
    if (is_sz_too) {
        place->s->align_validsz = 0;
    }
}

static void forget_some_owner(void)
{
    unsigned choice = take();
    place_t *place = &model.places[choice % PLACE_CT];
    if (place->state == USABLE && is_mine(place)) {
        forget_owner(place, choice / PLACE_CT % 2 == 0);
    }
}

/* Whether a child of `parent`, which is on another share stack, may start there. */
static int may_use(const place_t *place, const slot_t *parent)
{
    return place->state == USABLE && is_mine(place) && (parent == NULL || parent->place != place) &&
           (!place->is_exclusive || ct_users(place) == 0);
}

/* NULL if there is none. */
static place_t *pick_place(const slot_t *parent)
{
    unsigned first = take();
    for (unsigned i = 0; i < PLACE_CT; i++) {
        place_t *place = &model.places[(first + i) % PLACE_CT];
        if (may_use(place, parent)) {
            return place;
        }
    }
    return NULL;
}

/* ==== Create and destroy ====================================================================== */

/* Sets the side that is to resume it. */
static void set_parent(slot_t *slot)
{
    unsigned choice = take();
    slot->parent = choice / MAIN_CT % 4 == 0   ? pick(PRESENT, is_connected)
                   : choice / MAIN_CT % 4 == 1 ? model.running
                                               : NULL;
    slot->main_co = slot->parent != NULL ? slot->parent->co : model.thread->mains[choice % MAIN_CT];
    slot->thread = model.thread;
}

static void create_on(slot_t *slot, place_t *place, unsigned size)
{
    size_t sz = size < ARRAY_SZ(save_stack_sizes) ? save_stack_sizes[size] : size * SAVE_STACK_STEP;
    size_t usual_sz = place->s->usual_sz;
    CHECK(LEAST_USUAL_SZ <= usual_sz && usual_sz <= MOST_USUAL_SZ);
    slot->co = aco_create(slot->main_co, place->s, sz, works, slot->arg);
    CHECK(slot->co->save_stack.sz == (sz == 0 ? usual_sz : sz));
}

static void create_in_pool(slot_t *slot, place_t *place)
{
    memset(place, 0, sizeof(*place));
    slot->co = aco_stack_pool_create_co(model.pool, slot->main_co, works, slot->arg);
    slot->is_pooled = 1;
    place->state = USABLE;
    place->kind = POOLED;
    place->is_exclusive = 1;
    place->s = slot->co->share_stack;
}

static void create(slot_t *slot)
{
    unsigned size = take();
    int is_pooled = take() % 8 == 1;
    memset(slot, 0, sizeof(*slot));
    slot->state = ABSENT;
    set_parent(slot);
    place_t *place = is_pooled ? find_gone_place() : pick_place(slot->parent);
    if (place == NULL) {
        return;
    }
    slot->arg = &model.args[size % ARG_CT];
    slot->words = model.thread->start_words;
    if (is_pooled) {
        create_in_pool(slot, place);
    } else {
        create_on(slot, place, size);
    }
    slot->place = slot->home = place;
    slot->state = FRESH;
}

static int may_copy(const slot_t *slot)
{
    return is_childless(slot) && !slot->is_pooled && slot->home == slot->place;
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

static void orphan_children(const slot_t *slot)
{
    for (size_t i = 0; i < SLOT_CT; i++) {
        if (model.slots[i].parent == slot) {
            model.slots[i].parent = &nobody;
        }
    }
}

void destroy(slot_t *slot)
{
    place_t *place = slot->place;
    model_forget_owner(slot);
    orphan_children(slot);
    slot->state = ABSENT;
    if (slot->is_pooled) {
        aco_stack_pool_destroy_co(model.pool, slot->co);
        place->state = GONE;
    } else {
        aco_destroy(slot->co);
        free(slot->original);
    }
}

void renew_main(void)
{
    aco_t **main_co = &model.thread->mains[take() % MAIN_CT];
    for (size_t i = 0; i < SLOT_CT; i++) {
        slot_t *slot = &model.slots[i];
        if (slot->state != ABSENT && slot->main_co == *main_co && !is_settled(slot)) {
            return;
        }
    }
    for (size_t i = 0; i < SLOT_CT; i++) {
        slot_t *slot = &model.slots[i];
        if (slot->state != ABSENT && slot->parent == NULL && slot->main_co == *main_co) {
            slot->parent = &nobody;
        }
    }
    if (model.thread->current_main == *main_co) {
        model.thread->current_main = NULL;
    }
    aco_destroy(*main_co);
    *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
}

/* ==== Start again ============================================================================= */

static void become_reset(slot_t *slot)
{
    slot->state = RESET;
    slot->returns = slot->is_ended_by_hand = slot->is_misplaced = slot->is_unwinding = 0;
    model_forget_frames(slot);
}

static void reset(slot_t *slot)
{
    slot->arg = &model.args[take() % ARG_CT];
    slot->words = model.thread->start_words;
    slot->valid_sz = 0;
    model_forget_owner(slot);
    aco_reset(slot->co, works, slot->arg);
    become_reset(slot);
}

/* The patterns by which programs reset a coroutine. */
static void restart_by_hand(slot_t *slot)
{
    unsigned choice = take();
    aco_t *co = slot->co;
    co->reg[ACO_REG_IDX_RETADDR] = (void *)(uintptr_t)co->fp;
    co->reg[ACO_REG_IDX_SP] = co->share_stack->align_retptr;
    co->is_end = 0;
    if (choice % 2 == 0) {
        co->save_stack.valid_sz = slot->valid_sz = 0;
    }
    if (choice / 2 % 2 == 0 && slot->place->state == USABLE) {
        forget_owner(slot->place, choice / 4 % 2 == 0);
    }
    become_reset(slot);
}

static void return_ends(slot_t *slot)
{
    CHECK(aco_return_ends(slot->co) == slot->co);
    slot->returns = 1;
}

/* One of a pool stays: what was there before must be gone when its stack is put back. */
static int may_move(const slot_t *slot)
{
    return slot->original == NULL && slot->home->kind != POOLED;
}

/* Sets another share stack by hand. */
static void move(slot_t *slot)
{
    place_t *place = pick_place(slot->parent);
    aco_t *co = slot->co;
    if (place == NULL) {
        return;
    }
    co->share_stack = place->s;
    if (take() % 2 == 0) {
        co->reg[ACO_REG_IDX_SP] = place->s->align_retptr;
    }
    slot->is_misplaced = co->reg[ACO_REG_IDX_SP] != place->s->align_retptr;
    slot->home->ct_moved_away += slot->home != place;
    slot->place = place;
}

/* ==== Other threads =========================================================================== */

int may_detach(const slot_t *slot)
{
    const place_t *place = slot->place;
    return ct_users(place) == 1 && place->ct_moved_away == 0 && slot->home == place &&
           place->state == USABLE && is_childless(slot) && is_settled(slot) && is_connected(slot);
}

void detach(slot_t *slot)
{
    aco_detach(slot->co);
    slot->detached_state = slot->state;
    slot->state = DETACHED;
    slot->parent = &nobody;
    slot->main_co = slot->co->main_co;
    slot->thread = NULL;
}

static void attach(slot_t *slot)
{
    set_parent(slot);
    aco_attach(slot->co, slot->main_co);
    slot->state = slot->detached_state;
}

/* ==== Any of them ============================================================================= */

static void set_arg(slot_t *slot)
{
    slot->arg = slot->co->arg = &model.args[take() % ARG_CT];
}

/* Operations on a slot that is in one of the given states. */
static const struct {
    unsigned states;
    int (*fits)(const slot_t *slot);
    void (*act)(slot_t *slot);
} deeds[] = {
    [CREATE] = {ABSENT, NULL, create},
    [COPY] = {FRESH, may_copy, copy},
    [RESET_IT] = {AT_REST, may_reset, reset},
    [RESTART_BY_HAND] = {AT_REST, is_settled, restart_by_hand},
    [RETURN_ENDS] = {IN_INIT, NULL, return_ends},
    [MOVE] = {FRESH, may_move, move},
    [DETACH] = {AT_REST, may_detach, detach},
    [ATTACH] = {DETACHED, NULL, attach},
    [DESTROY] = {AT_REST | DETACHED, is_settled, destroy},
    [SET_ARG] = {PRESENT, NULL, set_arg},
};

/* Operations on something else. */
static void (*const other_deeds[])(void) = {
    [CHANGE_WORDS] = change_words,      [INIT_THREAD] = init_thread,
    [NEW_PLACE] = make_place,           [DESTROY_PLACE] = destroy_some_place,
    [FORGET_OWNER] = forget_some_owner, [RENEW_MAIN] = renew_main,
};

void operate(operation_t operation)
{
    if (operation > SET_ARG) {
        other_deeds[operation]();
    } else {
        slot_t *slot = pick(deeds[operation].states, deeds[operation].fits);
        if (slot != NULL) {
            deeds[operation].act(slot);
        }
    }
    check_everything();
}
