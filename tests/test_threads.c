// SPDX-License-Identifier: Apache-2.0
/*
 * Threads: each has an instance of its own, with its own running coroutine, last word and control
 * words, and several run at the same time without minding each other. Resuming a coroutine on
 * another thread than its own is found out.
 *
 * Assertions of cmocka belong to the thread that runs the tests; the others take notes, like
 * coroutines.
 */
#include "harness.h"

#include <fenv.h>
#include <pthread.h>

#define THREAD_CT 4
#define CO_CT 6
#define ROUNDS 400

/* Prepares the calling thread. */
static void make_instance_here(instance_t *in)
{
    aco_thread_init(NULL);
    in->main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    in->stack = aco_share_stack_new(0);
}

static void delete_instance_here(instance_t *in)
{
    aco_share_stack_destroy(in->stack);
    aco_destroy(in->main_co);
}

static void run_on_thread(void *(*function)(void *), void *arg)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, arg), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* ==== Several at a time ======================================================================= */

typedef struct {
    pthread_t thread;
    uint32_t seed;
    unsigned ct_steps; /* of all its coroutines */
} runner_t;

static void counts_steps(void)
{
    runner_t *runner = (runner_t *)aco_get_arg();
    const aco_t *co = aco_get_co();
    unsigned char data[333];
    for (unsigned i = 0; i < ROUNDS; i++) {
        fill_from_seed(data, sizeof(data), runner->seed + i);
        aco_yield();
        CO_CHECK(is_from_seed(data, sizeof(data), runner->seed + i));
        CO_CHECK(aco_get_co() == co);
        CO_CHECK(pthread_equal(pthread_self(), runner->thread));
        runner->ct_steps++;
    }
    aco_exit();
}

static void *run_coroutines(void *arg)
{
    runner_t *runner = (runner_t *)arg;
    instance_t in;
    aco_t *cos[CO_CT];
    runner->thread = pthread_self();
    CO_CHECK(aco_get_co() == NULL);
    make_instance_here(&in);
    for (size_t i = 0; i < CO_CT; i++) {
        cos[i] = make_co(&in, counts_steps, runner);
    }
    for (unsigned round = 0; round <= ROUNDS; round++) {
        for (size_t i = 0; i < CO_CT; i++) {
            aco_resume(cos[i]);
            CO_CHECK(aco_get_co() == in.main_co);
        }
    }
    for (size_t i = 0; i < CO_CT; i++) {
        CO_CHECK(cos[i]->is_end);
        aco_destroy(cos[i]);
    }
    delete_instance_here(&in);
    return NULL;
}

static void threads_run_their_coroutines_at_the_same_time(void **state)
{
    runner_t runners[THREAD_CT];
    pthread_t threads[THREAD_CT];
    (void)state;
    for (size_t i = 0; i < THREAD_CT; i++) {
        runners[i].seed = (uint32_t)i * 100000;
        runners[i].ct_steps = 0;
        assert_int_equal(pthread_create(&threads[i], NULL, run_coroutines, &runners[i]), 0);
    }
    for (size_t i = 0; i < THREAD_CT; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(runners[i].ct_steps, CO_CT * ROUNDS);
    }
    assert_co_checks();
}

/* ==== Things of each thread =================================================================== */

static void *look_at_running_coroutine(void *arg)
{
    *(aco_t **)arg = aco_get_co();
    return NULL;
}

static void starts_thread(void)
{
    pthread_t thread;
    CO_CHECK(pthread_create(&thread, NULL, look_at_running_coroutine, aco_get_arg()) == 0);
    CO_CHECK(pthread_join(thread, NULL) == 0);
    aco_exit();
}

static void a_new_thread_has_no_running_coroutine(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *seen = in->main_co;
    aco_t *co = make_co(in, starts_thread, &seen);
    aco_resume(co);
    assert_null(seen);
    assert_ptr_equal(aco_get_co(), in->main_co);
    aco_destroy(co);
}

static void *set_last_word_and_rounding(void *arg)
{
    (void)arg;
    CO_CHECK(fesetround(FE_UPWARD) == 0);
    aco_thread_init(abort);
    return NULL;
}

static void writes_down_rounding(void)
{
    *(int *)aco_get_arg() = fegetround();
    aco_exit();
}

static void returns(void)
{
}

static void resume(void *co)
{
    aco_resume((aco_t *)co);
}

static void thread_init_is_for_one_thread_only(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    int rounding = -1;
    run_on_thread(set_last_word_and_rounding, NULL);
    aco_t *co = make_co(in, writes_down_rounding, &rounding);
    aco_resume(co);
    assert_int_equal(rounding, FE_TONEAREST);
    aco_destroy(co);
    co = make_co(in, returns, NULL);
    expect_abort(resume, co, "aco_exit", "returned");
    aco_destroy(co);
}

/* ==== The wrong thread ======================================================================== */

static void *resume_here(void *co)
{
    aco_resume((aco_t *)co);
    return NULL;
}

static void *resume_here_as_main(void *co)
{
    instance_t in;
    make_instance_here(&in);
    aco_resume(make_co(&in, yields_for_ever, NULL));
    aco_resume((aco_t *)co);
    return NULL;
}

static void resume_on_unprepared_thread(void *co)
{
    run_on_thread(resume_here, co);
}

static void resume_on_thread_with_an_instance(void *co)
{
    run_on_thread(resume_here_as_main, co);
}

static void resuming_on_the_wrong_thread_is_found_out(void **state)
{
    static const act_t acts[] = {resume_on_unprepared_thread, resume_on_thread_with_an_instance};
    const instance_t *in = (const instance_t *)*state;
    for (int is_started = 0; is_started <= 1; is_started++) {
        for (size_t i = 0; i < ARRAY_SZ(acts); i++) {
            aco_t *co = make_co(in, yields_for_ever, NULL);
            if (is_started) {
                aco_resume(co);
            }
            const char *line = expect_abort(acts[i], co, "aco_resume", "thread");
            assert_names_ptr(line, co);
            aco_destroy(co);
        }
    }
}

/* The other way round: what a thread made, the thread of the tests resumes. */
typedef struct {
    instance_t in;
    aco_t *co;
} legacy_t;

static pthread_barrier_t legacy_is_made;

static void *make_and_wait(void *arg)
{
    legacy_t *legacy = (legacy_t *)arg;
    make_instance_here(&legacy->in);
    legacy->co = make_co(&legacy->in, yields_for_ever, NULL);
    aco_resume(legacy->co);
    pthread_barrier_wait(&legacy_is_made);
    pause();
    return NULL;
}

static void resume_that_of_another(void *arg)
{
    legacy_t legacy;
    pthread_t thread;
    (void)arg;
    pthread_barrier_init(&legacy_is_made, NULL, 2);
    pthread_create(&thread, NULL, make_and_wait, &legacy);
    pthread_barrier_wait(&legacy_is_made);
    aco_resume(legacy.co);
}

static void resuming_what_another_thread_made_is_found_out(void **state)
{
    (void)state;
    expect_abort(resume_that_of_another, NULL, "aco_resume", "thread");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_run_their_coroutines_at_the_same_time),
        instance_test(a_new_thread_has_no_running_coroutine),
        instance_test(thread_init_is_for_one_thread_only),
        instance_test(resuming_on_the_wrong_thread_is_found_out),
        instance_test(resuming_what_another_thread_made_is_found_out),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
