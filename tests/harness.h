// SPDX-License-Identifier: Apache-2.0
/*
 * Shared by test programs: a thread instance to test on, the invariants of aco.c as assertions, and
 * functions that let a child process fail and look at how it died. Includes cmocka. Rely on nothing
 * but this header and aco.h.
 *
 * cmocka's assertions leave a test by longjmp(), which must not cross from one stack to another:
 * use them on the thread's own stack only. In a coroutine use CO_CHECK(), which takes a note; the
 * test fails on the notes in assert_co_checks() or, at the latest, in delete_instance(). In a child
 * process use neither: let it end with another status than the one that the parent expects.
 */
#ifndef ACO_TEST_HARNESS_H
#define ACO_TEST_HARNESS_H

#include "aco.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* 1 where every yield evicts, which counts of saves and restores must know. */
#ifdef ACO_CONFIG_STRESS
#define STRESS 1
#else
#define STRESS 0
#endif

/* 1 where qemu runs the test. */
#ifndef EMULATED
#define EMULATED 0
#endif

#define NOINLINE __attribute__((noinline))
#define ARRAY_SZ(array) (sizeof(array) / sizeof((array)[0]))

/* Makes the compiler forget what it knows of the memory at `ptr`, and take it as read. */
#define ESCAPE(ptr) __asm__ volatile("" : : "r"(ptr) : "memory")

/* ==== Instance ================================================================================ */

/* A prepared thread with its main coroutine and one share stack. */
typedef struct {
    aco_t *main_co;
    aco_share_stack_t *stack;
} instance_t;

/* Setup and teardown of a test; its *state is an instance_t. */
int make_instance(void **state);
int delete_instance(void **state);
#define instance_test(f) cmocka_unit_test_setup_teardown(f, make_instance, delete_instance)

/* A coroutine of the instance, on its share stack, with a save stack of the default size. */
aco_t *make_co(const instance_t *in, aco_cofuncp_t fp, void *arg);

/* Entry functions: the one yields whenever it is resumed, the other ends at once. */
void yields_for_ever(void);
void ends_at_once(void);

/* ==== Checks ================================================================================== */

/* For use in coroutines: notes a false condition, for assert_co_checks(). */
#define CO_CHECK(EX) ((EX) ? (void)0 : note_failure(#EX, __FILE__, __LINE__))
void note_failure(const char *text, const char *file, int line);

/* Fails the test if a note was taken since the last call. */
void assert_co_checks(void);

/* Asserts I1 to I4 of aco.c for a suspended or ended coroutine and its share stack. */
void assert_invariants(const aco_t *co);

/* Whether the save stack of `co` is the memory that came with `co`. */
int is_save_stack_embedded(const aco_t *co);

/* The live frames of a suspended coroutine: how many bytes, and where they lie now. */
size_t live_sz(const aco_t *co);
const char *live_frames(const aco_t *co);

/* Fills `sz` bytes with what follows from `seed`; returns whether they still are that. */
void fill_from_seed(void *ptr, size_t sz, uint32_t seed);
int is_from_seed(const void *ptr, size_t sz, uint32_t seed);

/* The next of a sequence of pseudo-random numbers; `*random` is its state, not 0. */
uint32_t next_random(uint32_t *random);

/* ==== Children ================================================================================ */

/* Runs in a child process. */
typedef void (*act_t)(void *arg);

/*
 * Does act(arg) in a child. Asserts that it died of SIGABRT, which a shell reports as 134, and that
 * it wrote one line to stderr which has the form of a failure, names `call` and holds `words`:
 *     aco: [PLACE: ]CALL: RULE: REMEDY (coroutine ADDRESS[, entry function FILE(+OFFSET)])
 * Returns the line, valid until the next child.
 */
#define expect_abort(act, arg, call, words)                                                        \
    expect_abort_at(act, arg, call, words, __FILE__, __LINE__)
const char *expect_abort_at(act_t act, void *arg, const char *call, const char *words,
                            const char *file, int line);

/* The same for death of any signal, with whatever text on stderr, which is returned. */
#define expect_death(act, arg, signal_no) expect_death_at(act, arg, signal_no, __FILE__, __LINE__)
const char *expect_death_at(act_t act, void *arg, int signal_no, const char *file, int line);

/* The same for death of any signal, and for exit with a status; both without a word on stderr. */
#define expect_signal(act, arg, signal_no) expect_signal_at(act, arg, signal_no, __FILE__, __LINE__)
void expect_signal_at(act_t act, void *arg, int signal_no, const char *file, int line);
#define expect_exit(act, arg, status) expect_exit_at(act, arg, status, __FILE__, __LINE__)
void expect_exit_at(act_t act, void *arg, int status, const char *file, int line);

/* Acts on an aco_share_stack_t: write below it, at the start of its guard, and its lowest byte. */
void write_below(void *stack);
void write_at_start_of_guard(void *stack);
void write_lowest(void *stack);

/* Asserts that `line` names `ptr`, as printed by %p. */
void assert_names_ptr(const char *line, const void *ptr);

/* Asserts that `line` names the entry function `fp` as FILE(+OFFSET), in terms of the file. */
void assert_names_code(const char *line, aco_cofuncp_t fp);

#endif
