// SPDX-License-Identifier: Apache-2.0
/*
 * Many coroutines on a few share stacks do what pseudo-random numbers say: they are created,
 * resumed, recurse, return, end, are reset by hand and destroyed, in any order. A model says after
 * every step who must own which stack, what every coroutine's statistics must be, and what must
 * lie in its live frames, byte by byte, whether in place or saved out.
 */
#include "harness.h"

#define STACK_CT 4
#define WORKER_CT 24
#define MAX_DEPTH 12
#define STEP_CT 4000
#define FRAME_RESERVE 640u  /* bytes of a level besides its data, at -O0 */
#define STACK_RESERVE 3072u /* bytes of a share stack that the data leaves */
#define NOBODY WORKER_CT

static const size_t stack_sizes[STACK_CT] = {4096, 9000, 40000, 300000};

typedef enum { STAY, DEEPER, BACK, END } order_t;

/* A coroutine's next order, and what is known of it. */
typedef struct {
    aco_t *co; /* NULL: there is none */
    size_t stack;
    order_t order;
    size_t depth; /* of the innermost level */
    uint32_t seeds[MAX_DEPTH];
    size_t sizes[MAX_DEPTH];
    void *data[MAX_DEPTH]; /* where each level keeps its own */
    unsigned ct_resumed;   /* as told by the coroutine */
    int is_started, is_ended;
    unsigned ct_expected;
    size_t ct_save, ct_restore, max_cpsz;
    size_t snapshot_sz; /* its frames, as they were when it yielded */
    char *snapshot;
} worker_t;

static struct {
    uint32_t random;
    aco_t *main_co;
    aco_share_stack_t *stacks[STACK_CT];
    size_t owners[STACK_CT]; /* worker, or NOBODY */
    worker_t workers[WORKER_CT];
} model;

static uint32_t below(uint32_t limit)
{
    return next_random(&model.random) % limit;
}

/* ==== The coroutine's side ==================================================================== */

/* One level of recursion: keeps its data, follows orders, and looks at the data after each. */
static NOINLINE void level(worker_t *w, size_t depth)
{
    size_t sz = w->sizes[depth];
    unsigned char data[sz];
    fill_from_seed(data, sz, w->seeds[depth]);
    w->data[depth] = data;
    for (;;) {
        aco_yield();
        w->ct_resumed++;
        for (;;) {
            CO_CHECK(is_from_seed(data, sz, w->seeds[depth]));
            if (w->order != DEEPER) {
                break;
            }
            w->depth = depth + 1;
            level(w, depth + 1);
            w->order = STAY;
        }
        if (w->order == END) {
            aco_exit();
        }
        if (w->order == BACK) {
            w->depth = depth - 1;
            return;
        }
    }
}

static void works(void)
{
    worker_t *w = (worker_t *)aco_get_arg();
    w->ct_resumed++;
    level(w, 0);
    note_failure("level 0 returned", __FILE__, __LINE__);
    aco_exit();
}

/* ==== The model =============================================================================== */

static void model_evict(size_t stack)
{
    if (model.owners[stack] == NOBODY) {
        return;
    }
    worker_t *w = &model.workers[model.owners[stack]];
    w->ct_save++;
    if (w->snapshot_sz > w->max_cpsz) {
        w->max_cpsz = w->snapshot_sz;
    }
    model.owners[stack] = NOBODY;
}

static void model_acquire(size_t worker)
{
    worker_t *w = &model.workers[worker];
    if (model.owners[w->stack] != worker) {
        model_evict(w->stack);
        if (w->snapshot_sz != 0) {
            w->ct_restore++;
        }
        model.owners[w->stack] = worker;
    }
}

static void forget_frames(worker_t *w)
{
    free(w->snapshot);
    w->snapshot = NULL;
    w->snapshot_sz = 0;
}

/* Not by memcpy(), to which AddressSanitizer's red zones between locals are out of bounds. */
aco_attr_no_asan static void copy_frames(char *to, const volatile char *from, size_t sz)
{
    for (size_t i = 0; i < sz; i++) {
        to[i] = from[i];
    }
}

static void take_snapshot(worker_t *w)
{
    forget_frames(w);
    w->snapshot_sz = live_sz(w->co);
    w->snapshot = (char *)malloc(w->snapshot_sz);
    assert_non_null(w->snapshot);
    copy_frames(w->snapshot, live_frames(w->co), w->snapshot_sz);
}

/* Where the data of a level lies now. */
static const char *data_of_level(const worker_t *w, size_t depth)
{
    size_t offset = (size_t)((char *)w->data[depth] - (char *)w->co->reg[ACO_REG_IDX_SP]);
    assert_true(offset + w->sizes[depth] <= live_sz(w->co));
    return live_frames(w->co) + offset;
}

static void check_worker(size_t worker)
{
    const worker_t *w = &model.workers[worker];
    const aco_t *co = w->co;
    assert_invariants(co);
    assert_int_equal(co->is_end, w->is_ended);
    assert_int_equal(co->is_owner, model.owners[w->stack] == worker);
    assert_int_equal(co->save_stack.ct_save, w->ct_save);
    assert_int_equal(co->save_stack.ct_restore, w->ct_restore);
    assert_int_equal(co->save_stack.max_cpsz, w->max_cpsz);
    assert_true((co->blocks & ACO_BLOCK_SAVE_STACK) || is_save_stack_embedded(co));
    assert_int_equal(w->ct_resumed, w->ct_expected);
    if (w->is_ended) {
        return;
    }
    assert_int_equal(live_sz(co), w->snapshot_sz);
    assert_memory_equal(live_frames(co), w->snapshot, w->snapshot_sz);
    for (size_t i = 0; w->is_started && i <= w->depth; i++) {
        assert_true(is_from_seed(data_of_level(w, i), w->sizes[i], w->seeds[i]));
    }
}

static void check_everything(void)
{
    size_t cts[STACK_CT] = {0};
    for (size_t i = 0; i < WORKER_CT; i++) {
        if (model.workers[i].co != NULL) {
            check_worker(i);
            cts[model.workers[i].stack]++;
        }
    }
    for (size_t i = 0; i < STACK_CT; i++) {
        size_t owner = model.owners[i];
        assert_ptr_equal(model.stacks[i]->owner, owner == NOBODY ? NULL : model.workers[owner].co);
        assert_int_equal(model.stacks[i]->ct_coroutines, cts[i]);
    }
    assert_co_checks();
}

/* ==== Steps =================================================================================== */

static void plan_level(worker_t *w, size_t depth)
{
    static const uint32_t scales[] = {8, 64, 300, 1400};
    w->seeds[depth] = next_random(&model.random);
    w->sizes[depth] = 1 + below(scales[below(ARRAY_SZ(scales))]);
}

static int has_room_for_a_level(const worker_t *w)
{
    size_t need = STACK_RESERVE;
    for (size_t i = 0; i <= w->depth + 1; i++) {
        need += FRAME_RESERVE + (i <= w->depth ? w->sizes[i] : 1400);
    }
    return w->depth + 1 < MAX_DEPTH && need <= model.stacks[w->stack]->align_limit;
}

static void step_create(size_t worker)
{
    static const size_t save_stack_sizes[] = {0, 1, 40, 500, 5000};
    worker_t *w = &model.workers[worker];
    memset(w, 0, sizeof(*w));
    w->stack = below(STACK_CT);
    w->co = aco_create(model.main_co, model.stacks[w->stack],
                       save_stack_sizes[below(ARRAY_SZ(save_stack_sizes))], works, w);
    plan_level(w, 0);
}

static void step_resume(size_t worker)
{
    worker_t *w = &model.workers[worker];
    w->order = STAY;
    if (w->is_started) {
        order_t wanted = (order_t)below(4);
        int may = wanted == DEEPER ? has_room_for_a_level(w)
                  : wanted == BACK ? w->depth != 0
                  : wanted == END  ? below(6) == 0
                                   : 1;
        w->order = may ? wanted : STAY;
        if (w->order == DEEPER) {
            plan_level(w, w->depth + 1);
        }
    }
    model_acquire(worker);
    w->ct_expected++;
    w->is_started = 1;
    aco_resume(w->co);
    if (w->order == END) {
        w->is_ended = 1;
        forget_frames(w);
        model.owners[w->stack] = NOBODY;
        return;
    }
    take_snapshot(w);
    if (STRESS) {
        model_evict(w->stack);
    }
}

static void step_destroy(size_t worker)
{
    worker_t *w = &model.workers[worker];
    if (model.owners[w->stack] == worker) {
        model.owners[w->stack] = NOBODY;
    }
    aco_destroy(w->co);
    forget_frames(w);
    w->co = NULL;
}

/* The pattern by which programs reset a coroutine. */
static void step_reset(size_t worker)
{
    worker_t *w = &model.workers[worker];
    aco_t *co = w->co;
    co->reg[ACO_REG_IDX_RETADDR] = (void *)(uintptr_t)co->fp;
    co->reg[ACO_REG_IDX_SP] = co->share_stack->align_retptr;
    co->is_end = 0;
    co->save_stack.valid_sz = 0;
    forget_frames(w);
    w->is_ended = w->is_started = 0;
    w->depth = 0;
    plan_level(w, 0);
}

static void step(void)
{
    size_t worker = below(WORKER_CT);
    const worker_t *w = &model.workers[worker];
    uint32_t dice = below(100);
    if (w->co == NULL) {
        step_create(worker);
    } else if (dice < 4) {
        step_destroy(worker);
    } else if (dice < 8) {
        step_reset(worker);
    } else if (w->is_ended) {
        step_destroy(worker);
    } else {
        step_resume(worker);
    }
    check_everything();
}

static void every_step_is_as_the_model_says(void **state)
{
    memset(&model, 0, sizeof(model));
    model.random = *(const uint32_t *)*state;
    aco_thread_init(NULL);
    model.main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    for (size_t i = 0; i < STACK_CT; i++) {
        model.stacks[i] = aco_share_stack_new2(stack_sizes[i], (char)(i % 2));
        model.owners[i] = NOBODY;
    }
    for (unsigned i = 0; i < STEP_CT; i++) {
        step();
    }
    for (size_t i = 0; i < WORKER_CT; i++) {
        if (model.workers[i].co != NULL) {
            step_destroy(i);
            check_everything();
        }
    }
    for (size_t i = 0; i < STACK_CT; i++) {
        aco_share_stack_destroy(model.stacks[i]);
    }
    aco_destroy(model.main_co);
}

int main(void)
{
    static uint32_t seeds[] = {1, 20180701, 4000000007u};
#define MODEL_TEST(i)                                                                              \
    {                                                                                              \
        "every_step_is_as_the_model_says_" #i, every_step_is_as_the_model_says, NULL, NULL,        \
            &seeds[i]                                                                              \
    }
    const struct CMUnitTest tests[] = {MODEL_TEST(0), MODEL_TEST(1), MODEL_TEST(2)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
