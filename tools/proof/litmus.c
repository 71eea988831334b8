// SPDX-License-Identifier: Apache-2.0
/*
 * Small programs with known answers, by which orders.c is checked: each outcome of their reads is
 * possible or not.
 */
#include "orders.h"

#include <stdio.h>
#include <string.h>

#define READ(at, order) __atomic_load_n(&(at), __ATOMIC_##order)
#define WRITE(at, value, order) __atomic_store_n(&(at), value, __ATOMIC_##order)
#define FENCE(order) __atomic_thread_fence(__ATOMIC_##order)

static struct {
    int x, y, z;
    int plain;
    int a, b, c, d; /* what was read */
} m;

static unsigned outcomes; /* bit i: outcome i of the present program was seen */

static void run(void (*first)(void), void (*second)(void), void (*third)(void))
{
    memset(&m, 0, sizeof(m));
    void (*const fns[])(void) = {first, second, third};
    int started[3], ct = 0;
    for (int i = 0; i < 3 && fns[i] != NULL; i++) {
        started[ct++] = start_thread(fns[i]);
    }
    while (ct-- != 0) {
        join_thread(started[ct]);
    }
}

#define THREAD(name, ...)                                                                          \
    static void name(void)                                                                         \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* A program, and what must be possible and impossible of a condition about what was read. */
#define PROGRAM(name, first, second, third, condition)                                             \
    static void name(void)                                                                         \
    {                                                                                              \
        run(first, second, third);                                                                 \
        outcomes |= (condition) ? 2u : 1u;                                                         \
    }

/* Store buffering: both may read the old value, unless all is seq_cst or fences are between. */
THREAD(sb_1, WRITE(m.x, 1, SEQ_CST); m.a = READ(m.y, SEQ_CST);)
THREAD(sb_2, WRITE(m.y, 1, SEQ_CST); m.b = READ(m.x, SEQ_CST);)
THREAD(sb_1_released, WRITE(m.x, 1, RELEASE); m.a = READ(m.y, SEQ_CST);)
THREAD(sb_2_acquiring, WRITE(m.y, 1, SEQ_CST); m.b = READ(m.x, ACQUIRE);)
THREAD(sb_1_fenced, WRITE(m.x, 1, RELAXED); FENCE(SEQ_CST); m.a = READ(m.y, RELAXED);)
THREAD(sb_2_fenced, WRITE(m.y, 1, RELAXED); FENCE(SEQ_CST); m.b = READ(m.x, RELAXED);)
THREAD(sb_2_half_fenced, WRITE(m.y, 1, RELAXED); FENCE(ACQ_REL); m.b = READ(m.x, RELAXED);)
#define BOTH_OLD (m.a == 0 && m.b == 0)
PROGRAM(sb, sb_1, sb_2, NULL, BOTH_OLD)
PROGRAM(sb_store_weak, sb_1_released, sb_2, NULL, BOTH_OLD)
PROGRAM(sb_load_weak, sb_1, sb_2_acquiring, NULL, BOTH_OLD)
PROGRAM(sb_fences, sb_1_fenced, sb_2_fenced, NULL, BOTH_OLD)
PROGRAM(sb_one_fence, sb_1_fenced, sb_2_half_fenced, NULL, BOTH_OLD)
PROGRAM(sb_mixed, sb_1, sb_2_fenced, NULL, BOTH_OLD)

/* An update does as a write and a read of seq_cst, but no barrier: relaxed reads may go ahead. */
THREAD(sb_1_update, (void)__atomic_exchange_n(&m.x, 1, __ATOMIC_SEQ_CST); m.a = READ(m.y, RELAXED);)
THREAD(sb_2_update, (void)__atomic_exchange_n(&m.y, 1, __ATOMIC_SEQ_CST); m.b = READ(m.x, SEQ_CST);)
PROGRAM(sb_update_relaxed, sb_1_update, sb_2_update, NULL, BOTH_OLD)

/* Message passing. */
THREAD(mp_1, m.plain = 1; WRITE(m.y, 1, RELEASE);)
THREAD(mp_1_atomic, WRITE(m.x, 1, RELAXED); WRITE(m.y, 1, RELEASE);)
THREAD(mp_1_relaxed, WRITE(m.x, 1, RELAXED); WRITE(m.y, 1, RELAXED);)
THREAD(mp_1_fence, WRITE(m.x, 1, RELAXED); FENCE(RELEASE); WRITE(m.y, 1, RELAXED);)
THREAD(mp_2, m.a = READ(m.y, ACQUIRE); m.b = READ(m.x, RELAXED);)
THREAD(mp_2_fence, m.a = READ(m.y, RELAXED); FENCE(ACQUIRE); m.b = READ(m.x, RELAXED);)
THREAD(mp_2_relaxed, m.a = READ(m.y, RELAXED); m.b = READ(m.x, RELAXED);)
THREAD(mp_2_plain, m.a = READ(m.y, ACQUIRE) ? m.plain : 0;)
THREAD(mp_2_race, m.a = READ(m.y, RELAXED) ? m.plain : 0;)
#define NEW_OLD (m.a == 1 && m.b == 0)
PROGRAM(mp, mp_1_atomic, mp_2, NULL, NEW_OLD)
PROGRAM(mp_weak_write, mp_1_relaxed, mp_2, NULL, NEW_OLD)
PROGRAM(mp_weak_read, mp_1_atomic, mp_2_relaxed, NULL, NEW_OLD)
PROGRAM(mp_fences, mp_1_fence, mp_2_fence, NULL, NEW_OLD)
PROGRAM(mp_plain, mp_1, mp_2_plain, NULL, m.a == 1)
PROGRAM(mp_race, mp_1, mp_2_race, NULL, m.a == 1)

/* An update carries on a release sequence; a store of another thread ends it. */
THREAD(rs_2, (void)__atomic_fetch_add(&m.y, 1, __ATOMIC_RELAXED);)
THREAD(rs_2_store, WRITE(m.y, 2, RELAXED);)
THREAD(rs_3, m.a = READ(m.y, ACQUIRE); m.b = READ(m.x, RELAXED);)
PROGRAM(rs_update, mp_1_atomic, rs_2, rs_3, m.a == 2 && m.b == 0)
PROGRAM(rs_store, mp_1_atomic, rs_2_store, rs_3, m.a == 2 && m.b == 0)

/* No thread reads what is written later than its own condition (out of thin air). */
THREAD(lb_1, m.a = READ(m.x, RELAXED); WRITE(m.y, 1, RELAXED);)
THREAD(lb_2, m.b = READ(m.y, RELAXED); WRITE(m.x, 1, RELAXED);)
PROGRAM(lb, lb_1, lb_2, NULL, m.a == 1 && m.b == 1)

/* Reads of one place by one thread never go back. */
THREAD(co_1, WRITE(m.x, 1, RELAXED); WRITE(m.x, 2, RELAXED);)
THREAD(co_2, m.a = READ(m.x, RELAXED); m.b = READ(m.x, RELAXED);)
PROGRAM(co_back, co_1, co_2, NULL, m.a > m.b)
PROGRAM(co_forth, co_1, co_2, NULL, m.a < m.b)

/* Two writers of two places: the orders of writes may cross, unless they are seq_cst. */
THREAD(w_1, WRITE(m.x, 1, RELAXED); WRITE(m.y, 2, RELAXED);)
THREAD(w_2, WRITE(m.y, 1, RELAXED); WRITE(m.x, 2, RELAXED);)
THREAD(w_1_sc, WRITE(m.x, 1, SEQ_CST); WRITE(m.y, 2, SEQ_CST);)
THREAD(w_2_sc, WRITE(m.y, 1, SEQ_CST); WRITE(m.x, 2, SEQ_CST);)
PROGRAM(w_weak, w_1, w_2, NULL, READ(m.x, RELAXED) == 1 && READ(m.y, RELAXED) == 1)
PROGRAM(w_sc, w_1_sc, w_2_sc, NULL, READ(m.x, RELAXED) == 1 && READ(m.y, RELAXED) == 1)

/* Seq_cst operations order nothing for a thread that sees them by a relaxed one: two places,
 * with a message that is relaxed. */
THREAD(far_1, WRITE(m.y, 1, SEQ_CST); WRITE(m.x, 1, RELAXED);)
THREAD(far_2, m.a = READ(m.x, RELAXED); m.b = READ(m.y, SEQ_CST);)
PROGRAM(far, far_1, far_2, NULL, NEW_OLD)

/* Updates of one place never both read the same write. */
THREAD(up, int *at = __atomic_fetch_add(&m.x, 1, __ATOMIC_RELAXED) == 0 ? &m.y : &m.z;
       WRITE(*at, 1, RELAXED);)
PROGRAM(up_lost, up, up, NULL, READ(m.x, RELAXED) != 2)
PROGRAM(up_both, up, up, NULL, READ(m.y, RELAXED) == 1 && READ(m.z, RELAXED) == 1)

/* Independent reads of independent writes, the writers of which are two threads. */
THREAD(iriw_1, WRITE(m.x, 1, SEQ_CST);)
THREAD(iriw_2, WRITE(m.y, 1, SEQ_CST); m.a = READ(m.x, SEQ_CST);)
THREAD(iriw_3, m.c = READ(m.x, SEQ_CST); m.d = READ(m.y, SEQ_CST);)
THREAD(iriw_3_weak, m.c = READ(m.x, ACQUIRE); m.d = READ(m.y, ACQUIRE);)
PROGRAM(iriw, iriw_1, iriw_2, iriw_3, m.a == 0 && m.c == 1 && m.d == 0)
PROGRAM(iriw_weak, iriw_1, iriw_2, iriw_3_weak, m.a == 0 && m.c == 1 && m.d == 0)

THREAD(stuck_1, (void)take_int(&m.x, 0, 0);)
PROGRAM(stuck, stuck_1, stuck_1, NULL, 0)

#define ROW(name, is_possible)                                                                     \
    {                                                                                              \
        {#name, name, NULL}, is_possible                                                           \
    }
static const struct {
    program_t program;
    int is_possible; /* its condition; -1: the program is to be refused */
} rows[] = {
    ROW(sb, 0),
    ROW(sb_store_weak, 1),
    ROW(sb_load_weak, 1),
    ROW(sb_fences, 0),
    ROW(sb_one_fence, 1),
    ROW(sb_update_relaxed, 1),
    ROW(sb_mixed, 0),
    ROW(mp, 0),
    ROW(mp_weak_write, 1),
    ROW(mp_weak_read, 1),
    ROW(mp_fences, 0),
    ROW(mp_plain, 1),
    ROW(mp_race, -1),
    ROW(rs_update, 0),
    ROW(rs_store, 1),
    ROW(lb, 0),
    ROW(co_back, 0),
    ROW(co_forth, 1),
    ROW(w_weak, 1),
    ROW(w_sc, 0),
    ROW(far, 1),
    ROW(up_lost, 0),
    ROW(up_both, 1),
    ROW(iriw, 0),
    ROW(iriw_weak, 1),
    ROW(stuck, -1),
};

int main(void)
{
    int ct_wrong = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        outcomes = 0;
        size_t ct = explore(&rows[i].program, &m, sizeof(m));
        int is_possible = ct == 0 ? -1 : (outcomes & 2u) != 0;
        printf("%s: %zu executions, %s\n", rows[i].program.name, ct,
               is_possible == rows[i].is_possible ? "as known" : "WRONG");
        ct_wrong += is_possible != rows[i].is_possible;
    }
    return ct_wrong != 0;
}
