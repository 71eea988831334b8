// SPDX-License-Identifier: Apache-2.0
/*
 * What the tests use of cmocka, for processors for which no package of it can be installed beside
 * the one of this machine: found before <cmocka.h> of the system, and with the same meaning. A test
 * of a group runs even if the one before it failed; the status of the program is how many failed.
 */
#ifndef ACO_TEST_FOREIGN_CMOCKA_H
#define ACO_TEST_FOREIGN_CMOCKA_H

#include <stddef.h>
#include <stdint.h>

/* An emulator runs the program, which does without some of what the kernel offers. */
#define EMULATED 1

struct CMUnitTest {
    const char *name;
    void (*test)(void **state);
    int (*setup)(void **state);
    int (*teardown)(void **state);
    void *initial_state;
};

#define cmocka_unit_test(f) cmocka_unit_test_setup_teardown(f, NULL, NULL)
#define cmocka_unit_test_setup_teardown(f, setup, teardown) {#f, f, setup, teardown, NULL}
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    cmocka_run_group_tests_name(#tests, tests, setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown)                                  \
    run_group(name, tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)
int run_group(const char *name, const struct CMUnitTest *tests, size_t ct,
              int (*setup)(void **state), int (*teardown)(void **state));

/* Leave the test: it has failed, or there is nothing for it to do here. */
__attribute__((noreturn)) void _fail(const char *file, int line);
__attribute__((noreturn)) void leave_skipped(void);
#define fail() _fail(__FILE__, __LINE__)
#define skip() leave_skipped()

__attribute__((format(printf, 1, 2))) void print_message(const char *format, ...);
__attribute__((format(printf, 1, 2))) void print_error(const char *format, ...);

#define assert_true(EX) expect((EX) ? 1 : 0, #EX, __FILE__, __LINE__)
#define assert_false(EX) expect((EX) ? 0 : 1, "!(" #EX ")", __FILE__, __LINE__)
#define assert_non_null(ptr) assert_true((ptr) != NULL)
#define assert_null(ptr) assert_ptr_equal(ptr, NULL)
#define assert_int_equal(a, b)                                                                     \
    expect_equal((uintmax_t)(a), (uintmax_t)(b), #a, #b, __FILE__, __LINE__)
#define assert_ptr_equal(a, b)                                                                     \
    expect_equal((uintptr_t)(a), (uintptr_t)(b), #a, #b, __FILE__, __LINE__)
#define assert_in_range(n, low, high)                                                              \
    expect((uintmax_t)(n) >= (uintmax_t)(low) && (uintmax_t)(n) <= (uintmax_t)(high),              \
           #n " in " #low " to " #high, __FILE__, __LINE__)
#define assert_string_equal(a, b) expect(strcmp(a, b) == 0, #a " equals " #b, __FILE__, __LINE__)
#define assert_memory_equal(a, b, sz)                                                              \
    expect(memcmp(a, b, sz) == 0, #a " equals " #b, __FILE__, __LINE__)

void expect(int holds, const char *what, const char *file, int line);
void expect_equal(uintmax_t a, uintmax_t b, const char *a_text, const char *b_text,
                  const char *file, int line);

#endif
