// SPDX-License-Identifier: Apache-2.0
/*
 * Every rule of the optional parts, broken: each ends in one line of the form that all failures
 * have, which names the public call, the rule and the coroutine passed, and in SIGABRT. Calls that
 * are about C++ are right in C as well.
 */
// build: -fexceptions
#include "extra/cancel/aco_cancel.h"
#include "extra/exceptions/aco_exceptions.h"
#include "extra/high_water/aco_high_water.h"
#include "extra/returning/aco_returning.h"
#include "extra/threads/aco_threads.h"
#include "extra/value/aco_value.h"
#include "tests/harness.h"

/* Coroutines of which most states can be had. */
typedef struct {
    aco_t *main_co;
    aco_t *yielded;
    aco_t *ended;
    aco_t *detached;
    aco_t *self; /* in which the misuse happens, if it is not in main */
} world_t;

#include "tests/misuse.h"

#define MISUSE(name, call)                                                                         \
    static void name(world_t *w)                                                                   \
    {                                                                                              \
        (void)w;                                                                                   \
        (void)call;                                                                                \
    }

MISUSE(cancel_null, aco_cancel(NULL))
MISUSE(cancel_main, aco_cancel(w->main_co))
MISUSE(cancel_self, aco_cancel(w->self))
MISUSE(cancel_yielded, aco_cancel(w->yielded))
MISUSE(cancel_detached, aco_cancel(w->detached))
MISUSE(resume_kept_null, (aco_exceptions_resume(NULL), 0))
MISUSE(resume_kept_main, (aco_exceptions_resume(w->main_co), 0))
MISUSE(resume_kept_ended, (aco_exceptions_resume(w->ended), 0))
MISUSE(resume_kept_yielded, (aco_exceptions_resume(w->yielded), 0))
MISUSE(yield_kept, (aco_exceptions_yield(), 0))
MISUSE(high_water_of_null, aco_share_stack_high_water(NULL))
MISUSE(return_ends_null, aco_return_ends(NULL))
MISUSE(return_ends_main, aco_return_ends(w->main_co))
MISUSE(return_ends_yielded, aco_return_ends(w->yielded))
MISUSE(detach_null, (aco_detach(NULL), 0))
MISUSE(detach_main, (aco_detach(w->main_co), 0))
MISUSE(detach_self, (aco_detach(w->self), 0))
MISUSE(detach_yielded, (aco_detach(w->yielded), 0))
MISUSE(detach_detached, (aco_detach(w->detached), 0))
MISUSE(attach_null, (aco_attach(NULL, w->main_co), 0))
MISUSE(attach_yielded, (aco_attach(w->yielded, w->main_co), 0))
MISUSE(attach_main, (aco_attach(w->main_co, w->main_co), 0))
MISUSE(attach_to_null, (aco_attach(w->detached, NULL), 0))
MISUSE(yield_movably, (aco_movable_yield(), 0))
MISUSE(resume_value_null, aco_resume_value(NULL, w))
MISUSE(resume_value_main, aco_resume_value(w->main_co, w))
MISUSE(resume_value_ended, aco_resume_value(w->ended, w))
MISUSE(resume_value_yielded, aco_resume_value(w->yielded, w))
MISUSE(yield_value, aco_yield_value(w))
MISUSE(first_value, aco_first_value())

#define NONE "no coroutine is running"

static const misuse_t misuses_of_parts[] = {
    CASE(cancel_null, FRESH, "aco_cancel", "NULL or a main coroutine", NOBODY),
    CASE(cancel_null, COROUTINE, "aco_cancel", "NULL or a main coroutine", NOBODY),
    CASE(cancel_main, MAIN, "aco_cancel", "NULL or a main coroutine", CO(main_co)),
    CASE(cancel_self, COROUTINE, "aco_cancel", "is running", CO(self)),
    CASE(cancel_yielded, COROUTINE, "aco_cancel", "not its parent", CO(yielded)),
    CASE(cancel_detached, MAIN, "aco_cancel", "another thread", CO(detached)),
    CASE(resume_kept_null, FRESH, "aco_exceptions_resume", "NULL", NOBODY),
    CASE(resume_kept_main, FRESH, "aco_exceptions_resume", "main coroutine", CO(main_co)),
    CASE(resume_kept_ended, MAIN, "aco_exceptions_resume", "ended", CO(ended)),
    CASE(resume_kept_yielded, COROUTINE, "aco_exceptions_resume", "not its parent", CO(yielded)),
    CASE(yield_kept, FRESH, "aco_exceptions_yield", NONE, NOBODY),
    CASE(yield_kept, MAIN, "aco_exceptions_yield", NONE, CO(main_co)),
    CASE(high_water_of_null, MAIN, "aco_share_stack_high_water", "is NULL", NOBODY),
    CASE(return_ends_null, COROUTINE, "aco_return_ends", "NULL", NOBODY),
    CASE(return_ends_main, MAIN, "aco_return_ends", "not in state init", CO(main_co)),
    CASE(return_ends_yielded, MAIN, "aco_return_ends", "not in state init", CO(yielded)),
    CASE(detach_null, MAIN, "aco_detach", "NULL or a main coroutine", NOBODY),
    CASE(detach_main, COROUTINE, "aco_detach", "NULL or a main coroutine", CO(main_co)),
    CASE(detach_self, COROUTINE, "aco_detach", "is running", CO(self)),
    CASE(detach_yielded, MAIN, "aco_detach", "use its share stack", CO(yielded)),
    CASE(detach_detached, MAIN, "aco_detach", "is detached", CO(detached)),
    CASE(attach_null, MAIN, "aco_attach", "not detached", NOBODY),
    CASE(attach_yielded, MAIN, "aco_attach", "not detached", CO(yielded)),
    CASE(attach_main, MAIN, "aco_attach", "not detached", CO(main_co)),
    CASE(attach_to_null, MAIN, "aco_attach", "NULL or of another thread", CO(detached)),
    CASE(yield_movably, FRESH, "aco_movable_yield", NONE, NOBODY),
    CASE(yield_movably, MAIN, "aco_movable_yield", NONE, CO(main_co)),
    CASE(resume_value_null, MAIN, "aco_resume_value", "is NULL", NOBODY),
    CASE(resume_value_main, FRESH, "aco_resume_value", "main coroutine", CO(main_co)),
    CASE(resume_value_ended, MAIN, "aco_resume_value", "ended", CO(ended)),
    CASE(resume_value_yielded, COROUTINE, "aco_resume_value", "not its parent", CO(yielded)),
    CASE(yield_value, FRESH, "aco_yield_value", NONE, NOBODY),
    CASE(yield_value, MAIN, "aco_yield_value", NONE, CO(main_co)),
    CASE(first_value, FRESH, "aco_first_value", NONE, NOBODY),
    CASE(first_value, MAIN, "aco_first_value", NONE, CO(main_co)),
};

static void misuses(void)
{
    scene_t *scene = (scene_t *)aco_get_arg();
    scene->misuse->act(&scene->world);
    aco_exit();
}

static void check_case(const instance_t *in, const misuse_t *misuse)
{
    scene_t scene = {misuse, {in->main_co, NULL, NULL, NULL, NULL}};
    world_t *w = &scene.world;
    instance_t own = {in->main_co, aco_share_stack_new(0)};
    w->yielded = make_co(in, yields_for_ever, NULL);
    w->ended = make_co(in, ends_at_once, NULL);
    w->self = make_co(in, misuses, &scene);
    w->detached = make_co(&own, yields_for_ever, NULL);
    aco_detach(w->detached);
    const char *line = expect_abort_at(play, &scene, misuse->call, misuse->words, __FILE__,
                                       misuse->line);
    if (misuse->culprit != NOBODY) {
        assert_names_ptr(line, *(aco_t **)((char *)w + misuse->culprit));
    } else {
        assert_non_null(strstr(line, " (coroutine 0x0)"));
    }
    aco_destroy(w->yielded);
    aco_destroy(w->ended);
    aco_destroy(w->self);
    aco_destroy(w->detached);
    aco_share_stack_destroy(own.stack);
}

static void misuse_names_call_rule_and_coroutine(void **state)
{
    for (size_t i = 0; i < ARRAY_SZ(misuses_of_parts); i++) {
        check_case((const instance_t *)*state, &misuses_of_parts[i]);
    }
}

static void yields_as_with_exceptions(void)
{
    aco_exceptions_yield();
    aco_exit();
}

/* Without a C++ runtime there are no exceptions. */
static void in_c_exceptions_are_none(void **state)
{
    const instance_t *in = (const instance_t *)*state;
    aco_t *co = make_co(in, yields_as_with_exceptions, NULL);
    aco_exceptions_t mine;
    memset(&mine, 1, sizeof(mine));
    aco_exceptions_resume(co);
    assert_int_equal(co->is_end, 0);
    aco_exceptions_resume(co);
    assert_int_equal(co->is_end, 1);
    aco_exceptions_leave(&mine);
    assert_null(mine.caught);
    assert_int_equal(mine.ct_uncaught, 0);
    aco_destroy(co);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        instance_test(misuse_names_call_rule_and_coroutine),
        instance_test(in_c_exceptions_are_none),
    };
    return cmocka_run_group_tests_name("misuse of parts", tests, NULL, NULL);
}
