// SPDX-License-Identifier: Apache-2.0
/*
 * Implements model.h, apart from the operations. Relies on control_words.h.
 */
#include "model.h"

#include "extra/exceptions/aco_exceptions.h"
#include "tests/control_words.h"

slot_t nobody;
struct model_s model;

void die_of(const char *line)
{
    ssize_t written = write(STDERR_FILENO, line, strlen(line));
    (void)written;
    abort();
}

unsigned take(void)
{
    return model.next < model.end ? *model.next++ : 0;
}

/* ==== Questions =============================================================================== */

slot_t *pick(unsigned states, int (*fits)(const slot_t *slot))
{
    unsigned first = take();
    for (unsigned i = 0; i < SLOT_CT; i++) {
        slot_t *slot = &model.slots[(first + i) % SLOT_CT];
        int is_here = slot->thread == model.thread || slot->state & (ABSENT | DETACHED);
        if (is_here && (slot->state & states) && (fits == NULL || fits(slot))) {
            return slot;
        }
    }
    return NULL;
}

static int descends_from(const slot_t *slot, const slot_t *ancestor)
{
    while (slot != NULL && slot != ancestor) {
        slot = slot->parent;
    }
    return slot != NULL;
}

int is_running(const slot_t *slot)
{
    return descends_from(model.running, slot);
}

int is_connected(const slot_t *slot)
{
    return !descends_from(slot, &nobody);
}

int is_childless(const slot_t *slot)
{
    for (size_t i = 0; i < SLOT_CT; i++) {
        if (model.slots[i].state != ABSENT && model.slots[i].parent == slot) {
            return 0;
        }
    }
    return 1;
}

/* Half unwound coroutines: this one and its descendants. */
static int ct_unwinding(const slot_t *slot)
{
    int ct = 0;
    for (size_t i = 0; i < SLOT_CT; i++) {
        const slot_t *other = &model.slots[i];
        ct += other->state != ABSENT && other->is_unwinding && descends_from(other, slot);
    }
    return ct;
}

int is_settled(const slot_t *slot)
{
    return ct_unwinding(slot) == 0;
}

int may_reset(const slot_t *slot)
{
#ifdef ACO_USE_ASAN
    return is_settled(slot);
#else
    return ct_unwinding(slot) == slot->is_unwinding && !slot->is_being_cancelled;
#endif
}

int is_mine(const place_t *place)
{
    for (size_t i = 0; i < SLOT_CT; i++) {
        const slot_t *slot = &model.slots[i];
        if (slot->state != ABSENT && (slot->place == place || slot->home == place) &&
            slot->thread != model.thread) {
            return 0;
        }
    }
    return 1;
}

size_t ct_users(const place_t *place)
{
    size_t ct = 0;
    for (size_t i = 0; i < SLOT_CT; i++) {
        const slot_t *slot = &model.slots[i];
        ct += slot->state != ABSENT && (slot->place == place || slot->home == place);
    }
    return ct;
}

static int has_stack(const slot_t *slot)
{
    const slot_t *owner = slot->place->owner;
    return slot->place->state == USABLE &&
           (owner == NULL || owner == model.running || owner->state != RUNNING);
}

int may_resume(const slot_t *slot)
{
    return slot->parent == model.running && slot->thread == model.thread && has_stack(slot) &&
           (model.running == NULL || slot->place != model.running->place);
}

int may_yield_to(const slot_t *slot)
{
    const slot_t *self = model.running;
    return slot->parent == self->parent && slot->main_co == self->main_co && has_stack(slot) &&
           !(NOTES_CLEANUPS && (slot->is_unwinding || self->is_unwinding));
}

/* It reads between the variables, too, which is nothing that AddressSanitizer should mind. */
aco_attr_no_asan uint64_t digest_of(const char *frames, size_t sz)
{
    const uintptr_t *words = (const uintptr_t *)(const void *)frames;
    uint64_t digest = 0;
    for (size_t i = 0; i < sz / sizeof(*words); i++) {
        digest = (digest ^ words[i]) * 0x9e3779b97f4a7c15u;
    }
    return digest;
}

/* ==== Changes ================================================================================= */

void model_evict(place_t *place)
{
    slot_t *owner = place->owner;
    if (owner != NULL && owner->state != ENDED) {
        owner->ct_save++;
        owner->valid_sz = owner->live_sz;
        if (owner->live_sz > owner->max_cpsz) {
            owner->max_cpsz = owner->live_sz;
        }
    }
    place->owner = NULL;
}

void model_resume(slot_t *slot, void *value)
{
    place_t *place = slot->place;
    if (place->owner != slot) {
        model_evict(place);
        slot->ct_restore += slot->live_sz != 0;
        place->owner = slot;
        place->is_forgotten = 0;
    }
    slot->home = place;
    slot->valid_sz = 0;
    slot->is_misplaced = slot->is_ferried = 0;
    slot->given = value;
    slot->state = RUNNING;
    model.running = slot;
    if (slot->parent == NULL) {
        model.thread->current_main = slot->main_co;
    }
}

void model_yielded(slot_t *slot)
{
    const char *sp = (const char *)slot->co->reg[ACO_REG_IDX_SP];
    slot->live_sz = live_sz(slot->co);
    slot->digest = digest_of(live_frames(slot->co), slot->live_sz);
    CHECK(sp <= slot->innermost && slot->innermost < sp + slot->live_sz);
}

void model_arrive(void)
{
    slot_t *outgoing = model.outgoing;
    if (outgoing != NULL) {
        model.outgoing = NULL;
        model_yielded(outgoing);
        model_resume(model.incoming, NULL);
        model.incoming->is_ferried = 1;
    }
}

void model_forget_frames(slot_t *slot)
{
    slot->live_sz = 0;
    slot->digest = 0;
    slot->is_lost = 0;
}

void model_forget_owner(slot_t *slot)
{
    if (slot->place->owner == slot) {
        slot->place->owner = NULL;
    }
}

/* How many coroutines the share stack has to count. */
static size_t ct_at_home(const place_t *place)
{
    size_t ct = 0;
    for (size_t i = 0; i < SLOT_CT; i++) {
        ct += model.slots[i].state != ABSENT && model.slots[i].home == place;
    }
    return ct;
}

void model_sweep(void)
{
    for (size_t i = 0; i < PLACE_CT; i++) {
        place_t *place = &model.places[i];
        if (place->state == DESTROYED && ct_at_home(place) == 0) {
            free(place->memory);
            place->state = GONE;
        }
    }
}

/* ==== Control words =========================================================================== */

/* In the form of reg[ACO_REG_IDX_FPU], as all are here. */
static uint32_t *current_words(void)
{
    slot_t *running = model.running;
    return IS_SHARED || running == NULL ? &model.thread->main_words : &running->words;
}

void set_usual_words(thread_t *thread)
{
    thread->main_words = thread->start_words = in_reg(usual);
    write_words(usual);
}

void change_words(void)
{
    uint32_t choice = take();
    words_t words = sets[(choice & 0x7f) % ARRAY_SZ(sets)];
    *current_words() = in_reg(words);
    words.word |= choice & 0x80 ? MY_FLAGS : ITS_FLAGS;
    write_words(words);
}

void init_thread(void)
{
    aco_thread_init(NULL);
    model.thread->start_words = *current_words();
}

/* ==== Checks ================================================================================== */

/* Checks a coroutine that is not running: I2, I3 and the promised contents of reg[]. */
static void check_at_rest(const slot_t *slot, unsigned state)
{
    const aco_t *co = slot->co;
    if (state != ENDED && !slot->is_misplaced) {
        CHECK(live_sz(co) == slot->live_sz);
        CHECK(slot->live_sz <= co->share_stack->align_limit);
        CHECK(slot->is_lost || digest_of(live_frames(co), slot->live_sz) == slot->digest);
    }
    if ((state & IN_INIT) && !slot->returns) {
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

static void check_save_stack(const slot_t *slot)
{
    const aco_t *co = slot->co;
    const aco_save_stack_t *save = &co->save_stack;
    CHECK(save->ct_save == slot->ct_save);
    CHECK(save->ct_restore == slot->ct_restore);
    CHECK(save->max_cpsz == slot->max_cpsz);
    CHECK(save->valid_sz == slot->valid_sz);
    CHECK(save->valid_sz <= save->sz);
    CHECK(STRESS || !slot->place->is_exclusive || save->ct_save + save->ct_restore == 0);
    CHECK((co->blocks & ACO_BLOCK_SAVE_STACK) || slot->original != NULL ||
          is_save_stack_embedded(co));
    CHECK(slot->original == NULL || is_save_stack_embedded(slot->original));
}

static void check_slot(const slot_t *slot)
{
    const aco_t *co = slot->co;
    unsigned state = slot->state == DETACHED ? slot->detached_state : slot->state;
    CHECK(co->main_co == slot->main_co);
    CHECK(co->arg == slot->arg);
    CHECK(slot->state == DETACHED || aco_status(co) == status_of(slot));
    CHECK(co->share_stack == slot->place->s);
    CHECK(co->is_end == (state == ENDED));
    CHECK(co->is_owner == (slot->place->owner == slot));
    check_save_stack(slot);
    CHECK(slot->thread != model.thread || is_running(slot) == (state == RUNNING));
    if (state == RUNNING) {
        CHECK(co->is_owner && slot->valid_sz == 0);
    } else {
        check_at_rest(slot, state);
    }
}

static void check_place(const place_t *place)
{
    const aco_share_stack_t *s = place->s;
    const slot_t *owner = place->is_forgotten ? NULL : place->owner;
    CHECK(s->owner == (owner == NULL ? NULL : owner->co));
    CHECK(s->ct_coroutines - ct_at_home(place) <= place->ct_moved_away);
    CHECK(place->state == DESTROYED ||
          *(void **)s->align_retptr == (void *)(uintptr_t)aco_funcp_protector_asm);
}

aco_exceptions_t *__cxa_get_globals(void) __attribute__((weak));

/* A cancelled coroutine leaves none behind in the thread. */
static void check_exceptions(void)
{
    const slot_t *slot = model.running;
    while (slot != NULL && !slot->is_unwinding) {
        slot = slot->parent;
    }
    if (slot == NULL && __cxa_get_globals != NULL) {
        const aco_exceptions_t *exceptions = __cxa_get_globals();
        CHECK(exceptions->caught == NULL && exceptions->ct_uncaught == 0);
#ifdef ACO_ARCH_ARM
        CHECK(exceptions->propagating == NULL);
#endif
    }
}

/* Checks what the library reports to the side that runs, main or coroutine, about itself. */
static void check_current(void)
{
    const slot_t *running = model.running;
    const aco_t *co = running != NULL ? running->co : model.thread->current_main;
    CHECK(aco_gtls_co == co && aco_get_co() == co && aco_co() == co);
    CHECK(running == NULL || aco_get_arg() == running->arg);
    CHECK(co == NULL || aco_is_main_co(co) == (running == NULL));
    CHECK((in_reg(read_words()) & IN_REG) == *current_words());
    check_exceptions();
}

void check_everything(void)
{
    model_sweep();
    check_current();
    for (size_t i = 0; i < SLOT_CT; i++) {
        if (model.slots[i].state != ABSENT) {
            check_slot(&model.slots[i]);
        }
    }
    for (size_t i = 0; i < PLACE_CT; i++) {
        if (model.places[i].state != GONE) {
            check_place(&model.places[i]);
        }
    }
}
