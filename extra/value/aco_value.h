// SPDX-License-Identifier: Apache-2.0
/*
 * Values: resume and yield pass a pointer each way, as generators need it. Optional: the rest of
 * aco does not depend on it. Relies on aco.h.
 *
 *     static void count(void)                     aco_t *co = aco_create(main_co, stack, 0, count,
 *     {                                                                  NULL);
 *         int *to = aco_first_value();            int ten = 10;
 *         for (int i = 1; i <= *to; i++) {        for (int *i = aco_resume_value(co, &ten);
 *             aco_yield_value(&i);                     i != NULL; i = aco_resume_value(co, NULL)) {
 *         }                                           printf("%d\n", *i);
 *         aco_exit();                             }
 *     }
 *
 * (Variables on the stack of a copying coroutine, such as `i`, may be read until the next resume of
 * any coroutine.)
 */
#ifndef ACO_VALUE_H
#define ACO_VALUE_H

#include "aco.h"

#ifndef ACO_VALUE_INLINE
#define ACO_VALUE_INLINE extern inline __attribute__((ACO_ALWAYS gnu_inline))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * aco_resume(co) that passes `value`: if `co` continues in aco_yield_value(), that returns it; if
 * `co` starts, aco_first_value() does. Otherwise the value is lost. Returns the value that the
 * coroutine which continues the caller passes to aco_yield_value(); NULL if it uses another call,
 * such as aco_exit(). Costs and aborts as aco_resume() does.
 */
void *aco_resume_value(aco_t *co, void *value);

/*
 * aco_yield() that passes `value` to the caller's parent: aco_resume_value() returns it there.
 * Otherwise the value is lost. Returns what the parent passes to aco_resume_value(), and NULL if
 * another call continues the caller. Costs and aborts as aco_yield() does.
 */
void *aco_yield_value(void *value);

/*
 * The value that the parent passed to aco_resume_value() when it started the calling coroutine;
 * NULL if it used another call. Call it once, before any other of these calls and any switch. (Not
 * checked: if a coroutine that was given a value without taking it is reset and started by
 * aco_yield_to(), before its parent's aco_resume_value() has returned, it gets the old value.)
 * Aborts if no coroutine is running.
 */
void *aco_first_value(void);

/* ==== Inline ================================================================================= */

/* A value in transit on this thread, its sender and its receiver; `to` is NULL if there is none. */
typedef struct {
    const aco_t *from, *to;
    void *value;
} aco_letter_t;
extern __thread aco_letter_t aco_i_gtls_letter;

void aco_i_send(const aco_t *from, const aco_t *to, void *value);
void *aco_i_receive(const aco_t *co);

ACO_VALUE_INLINE void aco_i_send(const aco_t *from, const aco_t *to, void *value)
{
    aco_i_gtls_letter.from = from;
    aco_i_gtls_letter.to = to;
    aco_i_gtls_letter.value = value;
}

/* Returns the value sent to `co`, if any; then none is in transit. */
ACO_VALUE_INLINE void *aco_i_receive(const aco_t *co)
{
    void *value = aco_i_gtls_letter.to == co ? aco_i_gtls_letter.value : ACO_NULL;
    aco_i_gtls_letter.to = ACO_NULL;
    return value;
}

ACO_VALUE_INLINE void *aco_resume_value(aco_t *co, void *value)
{
    const char *call = "aco_resume_value";
    ACO_LAUNDER(co);
    if (aco_unlikely(co == ACO_NULL || co->main_co == ACO_NULL || co->is_end)) {
        aco_i_check_resume(call, co);
    }
    aco_t *parent = co->main_co;
    aco_i_send(parent, co, value);
    aco_i_continue(call, co);
    return aco_i_receive(parent);
}

ACO_VALUE_INLINE void *aco_yield_value(void *value)
{
    aco_t *co = aco_gtls_co;
    aco_i_send(co, co != ACO_NULL ? co->main_co : ACO_NULL, value);
    aco_i_suspend("aco_yield_value", co);
    return aco_i_receive(co);
}

ACO_VALUE_INLINE void *aco_first_value(void)
{
    aco_t *co = aco_gtls_co;
    if (aco_unlikely(co == ACO_NULL || co->main_co == ACO_NULL)) {
        aco_i_misuse("aco_first_value", co);
    }
    /* A value from another sender was for a former coroutine at the address of `co`. */
    const aco_t *from = aco_i_gtls_letter.from;
    void *value = aco_i_receive(co);
    return from == co->main_co ? value : ACO_NULL;
}

#ifdef __cplusplus
}
#endif

#endif
