// SPDX-License-Identifier: Apache-2.0
/*
 * Implements cmocka.h. Relies on libc.
 */
#include "cmocka.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

enum { RUNS, FAILED, SKIPPED };

/* Where the test under way is left, with one of these. */
static jmp_buf leaving;

void _fail(const char *file, int line)
{
    print_error("%s:%d: failed\n", file, line);
    longjmp(leaving, FAILED);
}

void leave_skipped(void)
{
    longjmp(leaving, SKIPPED);
}

static void print(FILE *to, const char *format, va_list arguments)
{
    vfprintf(to, format, arguments);
    fflush(to);
}

void print_message(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print(stdout, format, arguments);
    va_end(arguments);
}

void print_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print(stderr, format, arguments);
    va_end(arguments);
}

void expect(int holds, const char *what, const char *file, int line)
{
    if (!holds) {
        print_error("not so: %s\n", what);
        _fail(file, line);
    }
}

void expect_equal(uintmax_t a, uintmax_t b, const char *a_text, const char *b_text,
                  const char *file, int line)
{
    if (a != b) {
        print_error("%s is %#jx, but %s is %#jx\n", a_text, a, b_text, b);
        _fail(file, line);
    }
}

/* Setup, test or teardown, with `state` where the former put it. */
static int run_one(const struct CMUnitTest *test, void **state)
{
    int result = setjmp(leaving);
    if (result == RUNS) {
        if (test->setup != NULL && test->setup(state) != 0) {
            return FAILED;
        }
        test->test(state);
    }
    return result;
}

static int tear_down(const struct CMUnitTest *test, void **state)
{
    int result = setjmp(leaving);
    if (result == RUNS && test->teardown != NULL && test->teardown(state) != 0) {
        result = FAILED;
    }
    return result;
}

int run_group(const char *name, const struct CMUnitTest *tests, size_t ct,
              int (*setup)(void **state), int (*teardown)(void **state))
{
    static const char *const words[] = {"passed", "FAILED", "skipped"};
    static void *group_state, *state;
    int ct_failed = 0;
    if (setup != NULL && setup(&group_state) != 0) {
        return 1;
    }
    for (size_t i = 0; i < ct; i++) {
        state = tests[i].initial_state != NULL ? tests[i].initial_state : group_state;
        int result = run_one(&tests[i], &state);
        if (tear_down(&tests[i], &state) == FAILED) {
            result = FAILED;
        }
        print_message("%s %s: %s\n", words[result], name, tests[i].name);
        ct_failed += result == FAILED;
    }
    if (teardown != NULL && teardown(&group_state) != 0) {
        ct_failed++;
    }
    return ct_failed;
}
