// SPDX-License-Identifier: Apache-2.0
/*
 * Handing coroutines from one thread to another: they continue where they were, in every state and
 * with all their data; calls on a coroutine of another thread are refused.
 *
 * Like coroutines, threads other than the tests' own record failures instead of asserting.
 */
#include "extra/threads/aco_threads.h"
#include "tests/harness.h"

#include <fenv.h>
#include <pthread.h>

#define DATA_SZ 300
#define STEPS 12

static void run_on_thread(void *(*function)(void *), void *arg)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, arg), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* A coroutine on a share stack of its own. */
static aco_t *make_standalone(const instance_t *in, aco_cofuncp_t fp, void *arg)
{
    return aco_create(in->main_co, aco_share_stack_new(0), 0, fp, arg);
}

static void delete_standalone(aco_t *co)
{
    aco_share_stack_t *stack = co->share_stack;
    aco_destroy(co);
    aco_share_stack_destroy(stack);
}

/* ==== Going on ================================================================================ */

typedef struct {
    int ct_steps;
    int ct_starts;
    int rounding;
    pthread_t thread; /* on which it made its last step */
} progress_t;

static NOINLINE pthread_t this_thread(void)
{
    return pthread_self();
}

static __attribute__((noinline)) void ends_here(void)
{
    aco_exit();
}

static void makes_steps(void)
{
    progress_t *progress = (progress_t *)aco_get_arg();
    unsigned char data[DATA_SZ];
    progress->ct_starts++;
    fesetround(FE_UPWARD);
    for (uint32_t i = 0; i < STEPS; i++) {
        fill_from_seed(data, sizeof(data), i);
        progress->thread = this_thread();
        aco_movable_yield();
        CO_CHECK(is_from_seed(data, sizeof(data), i));
        CO_CHECK(aco_movable_co()->arg == progress);
        progress->rounding = fegetround();
        progress->ct_steps++;
    }
    ends_here();
}

/* Attaches a detached coroutine, lets it make one step, and detaches it again. */
static void *make_step(void *arg)
{
    aco_t *co = (aco_t *)arg;
    const progress_t *progress = (const progress_t *)co->arg;
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_attach(co, main_co);
    aco_resume(co);
    CO_CHECK(aco_get_co() == main_co);
    CO_CHECK(co->is_end || pthread_equal(progress->thread, pthread_self()));
    aco_detach(co);
    aco_destroy(main_co);
    return NULL;
}

/* Whether its place in the list of this thread's coroutines is right, if there is a list. */
static int is_listed_if(int is_expected, const aco_t *co)
{
#ifdef ACO_CONFIG_LIST
    const aco_t *listed = aco_i_gtls_list;
    while (listed != NULL && listed != co) {
        listed = listed->list_next;
    }
    return (listed != NULL) == is_expected;
#else
    (void)co;
    return is_expected == 0 || is_expected == 1;
#endif
}

/* On the thread of the tests and on others, in turn. */
static void it_goes_on_wherever_it_is(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    progress_t progress;
    memset(&progress, 0, sizeof(progress));
    aco_t *co = make_standalone(in, makes_steps, &progress);
    aco_detach(co);
    for (int i = 0; i <= STEPS; i++) {
        assert_int_equal(progress.ct_steps, i > 0 ? i - 1 : 0);
        if (i % 3 == 2) {
            assert_true(is_listed_if(0, co));
            aco_attach(co, in->main_co);
            assert_true(is_listed_if(1, co));
            aco_resume(co);
            aco_detach(co);
        } else {
            run_on_thread(make_step, co);
        }
    }
    fesetround(FE_TONEAREST);
    assert_int_equal(progress.ct_starts, 1);
    assert_int_equal(progress.ct_steps, STEPS);
#ifndef ACO_CONFIG_SHARE_FPU_MXCSR_ENV
    assert_int_equal(progress.rounding, FE_UPWARD);
#endif
    assert_int_equal(co->is_end, 1);
    assert_int_equal(co->save_stack.ct_save != 0, STRESS);
    delete_standalone(co);
    assert_co_checks();
}

static void *reset_and_run(void *arg)
{
    aco_t *co = (aco_t *)arg;
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_attach(co, main_co);
    aco_reset(co, makes_steps, co->arg);
    while (!co->is_end) {
        aco_resume(co);
    }
    delete_standalone(co);
    aco_destroy(main_co);
    return NULL;
}

/* In every state; the other thread resets and destroys it. */
static void it_may_be_reset_and_destroyed_there(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (int ct_resumes = 0; ct_resumes <= STEPS + 1; ct_resumes += 3) {
        progress_t progress;
        memset(&progress, 0, sizeof(progress));
        aco_t *co = make_standalone(in, makes_steps, &progress);
        for (int i = 0; i < ct_resumes && !co->is_end; i++) {
            aco_resume(co);
        }
        progress.ct_steps = 0;
        aco_detach(co);
        run_on_thread(reset_and_run, co);
        assert_int_equal(progress.ct_steps, STEPS);
    }
    fesetround(FE_TONEAREST);
    assert_co_checks();
}

static void *delete_detached(void *co)
{
    delete_standalone((aco_t *)co);
    return NULL;
}

static void one_that_is_detached_may_be_destroyed_by_anyone(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    for (int is_here = 0; is_here <= 1; is_here++) {
        progress_t progress;
        memset(&progress, 0, sizeof(progress));
        aco_t *co = make_standalone(in, makes_steps, &progress);
        aco_resume(co);
        aco_detach(co);
        if (is_here) {
            delete_standalone(co);
        } else {
            run_on_thread(delete_detached, co);
        }
    }
}

static void adopts_argument(void)
{
    aco_t *co = (aco_t *)aco_get_arg();
    aco_attach(co, aco_get_co());
    aco_resume(co);
    aco_detach(co);
    aco_exit();
}

static void its_new_parent_may_be_any_coroutine(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    progress_t progress;
    memset(&progress, 0, sizeof(progress));
    aco_t *co = make_standalone(in, makes_steps, &progress);
    aco_t *parent = make_co(in, adopts_argument, co);
    aco_resume(co);
    aco_detach(co);
    aco_resume(parent);
    assert_int_equal(parent->is_end, 1);
    assert_int_equal(progress.ct_steps, 1);
    aco_attach(co, in->main_co);
    aco_resume(co);
    assert_int_equal(progress.ct_steps, 2);
    delete_standalone(co);
    aco_destroy(parent);
    assert_co_checks();
}

/* ==== A relay of threads ====================================================================== */

#define RUNNERS 3
#define BATONS 8

/* Coroutines that the first free thread takes. */
static struct {
    pthread_mutex_t mutex;
    aco_t *cos[BATONS];
    size_t ct;
    size_t ct_ended;
} queue = {PTHREAD_MUTEX_INITIALIZER, {NULL}, 0, 0};

static aco_t *take(void)
{
    pthread_mutex_lock(&queue.mutex);
    aco_t *co = queue.ct != 0 ? queue.cos[--queue.ct] : NULL;
    pthread_mutex_unlock(&queue.mutex);
    return co;
}

static size_t put(aco_t *co)
{
    pthread_mutex_lock(&queue.mutex);
    if (co != NULL && co->is_end) {
        queue.ct_ended++;
        delete_standalone(co);
    } else if (co != NULL) {
        queue.cos[queue.ct++] = co;
    }
    size_t ct_ended = queue.ct_ended;
    pthread_mutex_unlock(&queue.mutex);
    return ct_ended;
}

static void *run_relay(void *arg)
{
    (void)arg;
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL), *co = NULL;
    while (put(co) < BATONS) {
        co = take();
        if (co != NULL) {
            aco_attach(co, main_co);
            aco_resume(co);
            aco_detach(co);
        }
    }
    aco_destroy(main_co);
    return NULL;
}

static void threads_pass_them_around(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    progress_t progress[BATONS];
    pthread_t threads[RUNNERS];
    memset(progress, 0, sizeof(progress));
    for (size_t i = 0; i < BATONS; i++) {
        aco_t *co = make_standalone(in, makes_steps, &progress[i]);
        aco_detach(co);
        put(co);
    }
    for (size_t i = 0; i < RUNNERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_relay, NULL), 0);
    }
    for (size_t i = 0; i < RUNNERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    for (size_t i = 0; i < BATONS; i++) {
        assert_int_equal(progress[i].ct_steps, STEPS);
    }
    assert_co_checks();
}

/* ==== The list of coroutines ================================================================== */

#ifdef ACO_CONFIG_LIST

/* Whether the list of this thread has exactly these, newest first, with correct links. */
static int lists(aco_t *const *cos, size_t ct)
{
    const aco_t *before = NULL, *co = aco_i_gtls_list;
    for (size_t i = 0; i < ct; i++) {
        if (co != cos[i] || co->list_prev != before || co->list_self != co) {
            return 0;
        }
        before = co;
        co = co->list_next;
    }
    return co == NULL;
}

static void it_is_whole_whoever_comes_and_goes(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *cos[4];
    for (size_t i = 0; i < 4; i++) {
        cos[i] = make_standalone(in, yields_for_ever, NULL);
    }
    assert_true(lists((aco_t *[]){cos[3], cos[2], cos[1], cos[0], in->main_co}, 5));
    aco_detach(cos[1]);
    assert_null(cos[1]->list_self);
    assert_true(lists((aco_t *[]){cos[3], cos[2], cos[0], in->main_co}, 4));
    delete_standalone(cos[2]);
    assert_true(lists((aco_t *[]){cos[3], cos[0], in->main_co}, 3));
    aco_attach(cos[1], in->main_co);
    assert_true(lists((aco_t *[]){cos[1], cos[3], cos[0], in->main_co}, 4));
    aco_detach(cos[1]);
    assert_true(lists((aco_t *[]){cos[3], cos[0], in->main_co}, 3));
    delete_standalone(cos[1]);
    assert_true(lists((aco_t *[]){cos[3], cos[0], in->main_co}, 3));
    delete_standalone(cos[0]);
    assert_true(lists((aco_t *[]){cos[3], in->main_co}, 2));
    delete_standalone(cos[3]);
    assert_true(lists((aco_t *[]){in->main_co}, 1));
}

/* A thread that makes coroutines, and ends. */
static void *make_and_end(void *arg)
{
    aco_t **cos = (aco_t **)arg;
    cos[0] = aco_create(NULL, NULL, 0, NULL, NULL);
    for (size_t i = 1; i < 4; i++) {
        const instance_t in = {cos[0], NULL};
        cos[i] = make_standalone(&in, yields_for_ever, NULL);
    }
    return NULL;
}

/* On a thread whose thread-locals are at the addresses of the ended one. */
static void *destroy_what_is_left(void *arg)
{
    aco_t **cos = (aco_t **)arg;
    aco_t *mine = aco_create(NULL, NULL, 0, NULL, NULL);
    static const size_t order[] = {2, 3, 1};
    for (size_t i = 0; i < ARRAY_SZ(order); i++) {
        delete_standalone(cos[order[i]]);
        CO_CHECK(lists(&mine, 1));
    }
    aco_destroy(cos[0]);
    CO_CHECK(lists(&mine, 1));
    aco_destroy(mine);
    CO_CHECK(lists(NULL, 0));
    return NULL;
}

static void that_of_a_thread_that_has_ended_is_left_alone(void **state)
{
    aco_t *cos[4];
    (void)state;
    run_on_thread(make_and_end, cos);
    run_on_thread(destroy_what_is_left, cos);
    assert_co_checks();
}

#endif

/* ==== Misuse ================================================================================== */

static void detach(void *co)
{
    aco_detach((aco_t *)co);
}

static void *detach_here(void *co)
{
    detach(co);
    return NULL;
}

static void detach_on_other_thread(void *co)
{
    run_on_thread(detach_here, co);
}

static void resume(void *co)
{
    aco_resume((aco_t *)co);
}

static void attach_to_null(void *co)
{
    aco_attach((aco_t *)co, NULL);
}

/* Attaches to the first of two; the second belongs to the thread of the tests. */
static void *attach_here(void *cos)
{
    aco_attach(((aco_t **)cos)[0], ((aco_t **)cos)[1]);
    return NULL;
}

static void attach_on_other_thread(void *cos)
{
    run_on_thread(attach_here, cos);
}

static void detaches_argument(void)
{
    aco_detach((aco_t *)aco_get_arg());
    aco_exit();
}

static void detaches_itself(void)
{
    aco_detach(aco_get_co());
    aco_exit();
}

static void detaching_what_can_not_go_is_found_out(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, yields_for_ever, NULL);
    aco_t *other = make_co(in, yields_for_ever, NULL);
    aco_t *alone = make_standalone(in, detaches_itself, NULL);
    expect_abort(detach, NULL, "aco_detach", "NULL or a main coroutine");
    expect_abort(detach, in->main_co, "aco_detach", "NULL or a main coroutine");
    expect_abort(detach, co, "aco_detach", "other coroutines use its share stack");
    expect_abort(detach_on_other_thread, alone, "aco_detach", "of another thread");
    expect_abort(resume, alone, "aco_detach", "is running");
    aco_detach(alone);
    expect_abort(detach, alone, "aco_detach", "is detached");
    delete_standalone(alone);
    aco_destroy(other);
    aco_destroy(co);
}

static void one_that_is_detached_can_not_be_resumed(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_standalone(in, yields_for_ever, NULL);
    aco_t *detaching = make_co(in, detaches_argument, co);
    aco_detach(co);
    expect_abort(resume, co, "aco_resume", "another thread");
    aco_attach(co, in->main_co);
    aco_resume(co);
    aco_resume(detaching);
    expect_abort(resume, co, "aco_resume", "another thread");
    delete_standalone(co);
    aco_destroy(detaching);
}

static void attaching_to_the_wrong_parent_is_found_out(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *cos[2] = {make_standalone(in, yields_for_ever, NULL), in->main_co};
    expect_abort(attach_to_null, NULL, "aco_attach", "not detached");
    expect_abort(attach_to_null, cos[0], "aco_attach", "not detached");
    aco_detach(cos[0]);
    expect_abort(attach_to_null, cos[0], "aco_attach", "NULL or of another thread");
    expect_abort(attach_on_other_thread, cos, "aco_attach", "NULL or of another thread");
    delete_standalone(cos[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(it_goes_on_wherever_it_is),
        instance_test(it_may_be_reset_and_destroyed_there),
        instance_test(one_that_is_detached_may_be_destroyed_by_anyone),
        instance_test(its_new_parent_may_be_any_coroutine),
        instance_test(threads_pass_them_around),
#ifdef ACO_CONFIG_LIST
        instance_test(it_is_whole_whoever_comes_and_goes),
        cmocka_unit_test(that_of_a_thread_that_has_ended_is_left_alone),
#endif
        instance_test(detaching_what_can_not_go_is_found_out),
        instance_test(one_that_is_detached_can_not_be_resumed),
        instance_test(attaching_to_the_wrong_parent_is_found_out),
    };
    return cmocka_run_group_tests_name("hand over", tests, NULL, NULL);
}
